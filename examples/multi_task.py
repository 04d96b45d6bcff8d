"""PPO on several tasks at once: a point that is to move to one of four goals.

What it teaches, compared with example 0: every column of the batch has its own environment. Here they are four tasks, four columns
each. A one-hot in the observation tells one agent which task it is; the log has the return of each task besides that of all together.

    python examples/multi_task.py
"""

from functools import partial

from rlpyt.agents.pg.mlp import MlpGaussianFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.multitask import TaskOnehotWrapper
from rlpyt.envs.point_env import PointEnv
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.samplers.collections import TaskTrajInfo
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

GOALS = {"NorthEast": (1, 1), "NorthWest": (-1, 1), "SouthWest": (-1, -1), "SouthEast": (1, -1)}


class GoalTrajInfo(TaskTrajInfo):
    """Logs TaskNorthEastReturn and so on."""

    task_names = tuple(GOALS)


def build(n_parallel: int | None = None, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        n_parallel: worker processes; default: none, everything in one process.
    """
    tasks = TaskOnehotWrapper.wrap_env_cons_list([partial(PointEnv, goal=goal, max_episode_length=30) for goal in GOALS.values()])
    SamplerCls = CpuSampler if n_parallel else SerialSampler
    sampler = SamplerCls(
        EnvCls=tasks * 4,  # One constructor for each column: tasks 0 1 2 3 0 1 2 3 ...
        env_kwargs={},
        TrajInfoCls=GoalTrajInfo,
        batch_T=64,
        batch_B=len(tasks) * 4,
        max_decorrelation_steps=30,
        eval_n_envs=len(tasks),  # One of each task.
        eval_max_steps=len(tasks) * 60,
    )
    agent = MlpGaussianFfAgent(model_kwargs=dict(hidden_sizes=[64, 64], init_log_std=-2.5), deterministic_eval=True)
    algo = PPO(discount=0.95, learning_rate=1e-3, entropy_loss_coeff=0.0, epochs=8, normalize_advantage=True)
    return MinibatchRlEval(
        algo=algo,
        agent=agent,
        sampler=sampler,
        n_steps=200_000,
        log_interval_steps=20_000,
        affinity=dict(workers_cpus=list(range(n_parallel or 1)), set_affinity=False),
        seed=seed,
    )


def build_and_train(n_parallel: int | None = None, run_ID: int = 0, *, log_dir: str = "multi_task", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(n_parallel, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name="ppo_goals", log_params=dict(goals=GOALS), snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
