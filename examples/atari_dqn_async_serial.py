"""DQN on an Atari game, with one process that samples beside one that trains.

What it teaches: an asynchronous run. Sampling continues while the agent is trained, which helps where both take their time: `replay_ratio`
is an upper bound now, for which the training waits if it is faster, and the log says how much of its time it trained (OptThrottle). Only
sampler and runner are other ones than in example 1.

    python examples/atari_dqn_async_serial.py --game pong
"""

from rlpyt.cli.scripts import command_line
from rlpyt.experiments.smoke import tiny
from rlpyt.experiments.train import build_runner
from rlpyt.utils.logging.context import logger_context


def build(game: str = "pong", cuda_idx: int | None = None, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
        cuda_idx: GPU that trains; default: none.
        seed: the same seed gives the same environments and first parameters; default: a new one.
    """
    affinity = dict(
        optimizer=[dict(cuda_idx=cuda_idx)],  # One dictionary for each process that trains; several share each update.
        sampler=dict(),  # One process samples.
        set_affinity=False,  # True binds processes to the processors listed.
    )
    return build_runner(
        "atari_dqn",
        "double_pri_duel",
        seed=seed,
        sampler="async_serial",
        settings=[f"env.game={game}", "sampler.batch_T=8", "sampler.batch_B=2"],
        affinity=affinity,
    )


def build_and_train(game: str = "pong", run_ID: int = 0, *, log_dir: str = "atari_dqn_async_serial", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name=f"dqn_{game}", log_params=dict(game=game)) as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
