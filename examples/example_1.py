"""DQN on an Atari game, everything in one process, with evaluation.

What it teaches, compared with example 0: a replay-based algorithm, and `MinibatchRlEval`, which pauses to measure the agent in
its own environments (here without exploration, and playing all lives). In the serial sampler everything happens in the master
process, where ``breakpoint()`` works.

    python examples/example_1.py --game pong
"""

from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.cli.scripts import command_line
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context


def build(game: str = "pong", cuda_idx: int | None = None, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
    """
    sampler = SerialSampler(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,  # Logs the game's score as well as the clipped rewards.
        env_kwargs=dict(game=game),
        eval_env_kwargs=dict(game=game, episodic_lives=False, horizon=27_000),
        batch_T=4,  # Four steps per batch,
        batch_B=1,  # of one environment.
        max_decorrelation_steps=0,
        eval_n_envs=10,
        eval_max_steps=50_000,
        eval_max_trajectories=10,
    )
    algo = DQN(  # Runs one update per batch of samples, for a replay ratio of 8.
        min_steps_learn=1000,
        replay_size=1_000_000,
    )
    return MinibatchRlEval(
        algo=algo,
        agent=AtariDqnAgent(),
        sampler=sampler,
        n_steps=50_000_000,
        log_interval_steps=10_000,
        affinity=dict(cuda_idx=cuda_idx),
        seed=seed,
    )


def build_and_train(game: str = "pong", run_ID: int = 0, *, log_dir: str = "example_1", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name=f"dqn_{game}", log_params=dict(game=game), snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
