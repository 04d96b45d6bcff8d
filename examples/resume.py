"""Resuming a run that stopped.

What it teaches, compared with example 0: a snapshot is a whole run, with networks, optimizer, counters and random numbers. A runner that is
given `resume_from` continues from it. With a serial sampler the rest of the run is, bit for bit, what it would have been without a stop.

Here a run ends halfway, as if somebody had pressed Ctrl-C, and continues in the same directory. All settings but the number of steps must
be the same. The command `rlpyt resume RUN_DIR --n_steps 40000` does the same without the script.

    python examples/resume.py
"""

from pathlib import Path

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.gym import make as gym_make
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

INTERVAL = 4096  # environment steps between two rows of the log, each with a snapshot


def build(n_steps: int = 10 * INTERVAL, resume_from: str | None = None, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        n_steps: environment steps of the whole run.
        resume_from: directory of a run to continue.
    """
    return MinibatchRl(
        algo=PPO(learning_rate=1e-3, gae_lambda=0.95, epochs=10, normalize_advantage=True),
        agent=MlpFfAgent(),
        sampler=SerialSampler(EnvCls=gym_make, env_kwargs=dict(id="CartPole-v1"), batch_T=128, batch_B=8),
        n_steps=n_steps,
        log_interval_steps=INTERVAL,
        resume_from=resume_from,
        affinity=dict(master_torch_threads=1),
        seed=seed,
    )


def build_and_train(run_ID: int = 0, n_steps: int = 10 * INTERVAL, seed: int | None = None, log_dir: str = "resume", smoke: bool = False):
    """Train one half, then the other, and return the directory of the run.

    Args:
        n_steps: environment steps of the whole run.
    """
    if smoke:
        n_steps = 2 * INTERVAL
    with logger_context(log_dir, run_ID, name="ppo_cartpole") as run_dir:
        build(n_steps // 2, seed=seed).train()
    # From here on it could be another process, on another day.
    with logger_context(Path(run_dir).parent, run_ID, name="ppo_cartpole"):  # An absolute path: the same directory.
        build(n_steps, resume_from=run_dir, seed=seed).train()
    print(f"{run_dir} has both halves: progress.csv has the rows of the whole run, progress.1.csv those of the first half.")
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__)
