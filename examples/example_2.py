"""SAC on a continuous-control task of Gymnasium.

What it teaches, compared with example 1: continuous actions, a policy besides Q-functions, and an update after every step. Episodes of
HalfCheetah only ever end because time runs out; what would have followed is estimated from the last observation, not counted as zero
(``bootstrap_timelimit``). Networks as small as these are best off with one thread.

    pip install -c constraints.txt -e ".[mujoco]"
    python examples/example_2.py --env_id HalfCheetah-v5
"""

from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.algos.qpg.sac import SAC
from rlpyt.cli.scripts import command_line
from rlpyt.envs.gym import make as gym_make
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context


def build(env_id: str = "HalfCheetah-v5", cuda_idx: int | None = None, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        env_id: Gymnasium environment with continuous actions.
    """
    sampler = SerialSampler(
        EnvCls=gym_make,
        env_kwargs=dict(id=env_id),
        eval_env_kwargs=dict(id=env_id),
        batch_T=1,  # One step per batch,
        batch_B=1,  # of one environment.
        max_decorrelation_steps=0,
        eval_n_envs=5,
        eval_max_steps=25_000,
        eval_max_trajectories=5,
    )
    algo = SAC(  # Runs one update of 256 replayed steps per batch of samples.
        min_steps_learn=10_000,
        replay_size=1_000_000,
    )
    return MinibatchRlEval(
        algo=algo,
        agent=SacAgent(),
        sampler=sampler,
        n_steps=1_000_000,
        log_interval_steps=10_000,
        affinity=dict(cuda_idx=cuda_idx, master_torch_threads=1),
        seed=seed,
    )


def build_and_train(env_id: str = "HalfCheetah-v5", run_ID: int = 0, *, log_dir: str = "example_2", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(env_id, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name=f"sac_{env_id}", log_params=dict(env_id=env_id), snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
