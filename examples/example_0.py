"""First steps: PPO solves CartPole, on all processors, in less than a minute.

What it teaches: the four parts of every run. An *agent* (the network, and how it acts), an *algorithm* (how it learns), a *sampler* (how
agent and environments run) and a *runner* (the loop, and the log). Each is made on its own, and each can be exchanged in one line.

    python examples/example_0.py
"""

import csv
import time

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.gym import make as gym_make
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.plotting import plot_learning_curve

SOLVED = 475  # mean return over the last 100 episodes, by the definition of CartPole-v1


def build(seed: int | None = None, n_steps: int = 200_000):
    """Return the runner, with which nothing has been started yet.

    Args:
        n_steps: environment steps to train for, unless it is solved before.
    """
    sampler = CpuSampler(  # One worker process for each processor that may be used; each runs its share of the 8 environments.
        EnvCls=gym_make,
        env_kwargs=dict(id="CartPole-v1"),
        batch_T=128,  # time steps per batch
        batch_B=8,  # environments
    )
    algo = PPO(
        learning_rate=1e-3,
        gae_lambda=0.95,
        epochs=10,
        ratio_clip=0.2,
        value_loss_coeff=0.5,
        normalize_advantage=True,
    )
    return MinibatchRl(
        algo=algo,
        agent=MlpFfAgent(),
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=10_000,
        stop_return=SOLVED,  # It stops when solved, at the next row of the log.
        affinity=dict(master_torch_threads=1),  # Networks this small are faster on one thread.
        seed=seed,
    )


def build_and_train(run_ID: int = 0, *, log_dir: str = "example_0", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(**settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name="ppo_cartpole", log_params=dict(env="CartPole-v1"), snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


def report(run_dir, seconds):
    """Say how it went, and draw the learning curve."""
    with open(f"{run_dir}/progress.csv") as file:
        last = list(csv.DictReader(file))[-1]
    mean_return = float(last.get("ReturnAverage") or "nan")  # It is missing if no episode has ended yet.
    n_episodes = min(100, int(float(last["Diagnostics/CumCompletedTrajs"])))
    verdict = "Solved" if mean_return >= SOLVED else "Not solved yet"
    print(f"\n{verdict}: mean return {mean_return:.1f} over the last {n_episodes} episodes (solved means {SOLVED}), after {seconds:.0f} s.")
    try:
        print(f"Learning curve: {plot_learning_curve(run_dir)}")
    except ImportError as error:
        print(f"No learning curve was drawn. {error}")
    print(f"Everything about the run is in {run_dir}")


if __name__ == "__main__":
    start = time.time()
    run_dir = command_line(build_and_train, __doc__, build)
    report(run_dir, time.time() - start)
