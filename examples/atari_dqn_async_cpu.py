"""DQN on an Atari game, with sampling, by agents in worker processes, and training at the same time.

What it teaches: the parallel samplers run asynchronously, too: a separate process with its own workers. It takes over the latest
parameters before each batch (ParametersVersion in the log says which).

    python examples/atari_dqn_async_cpu.py --game pong --n_parallel 2
"""

from rlpyt.cli.scripts import command_line
from rlpyt.experiments.smoke import tiny
from rlpyt.experiments.train import build_runner
from rlpyt.utils.logging.context import logger_context


def build(game: str = "pong", cuda_idx: int | None = None, n_parallel: int = 2, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
        cuda_idx: GPU that trains; default: none.
        n_parallel: worker processes of each sampling process.
        seed: the same seed gives the same environments and first parameters; default: a new one.
    """
    affinity = dict(
        optimizer=[dict(cuda_idx=cuda_idx)],  # One dictionary for each process that trains; several share each update.
        sampler=dict(workers_cpus=list(range(n_parallel))),  # One process samples, with so many workers.
        set_affinity=False,  # True binds processes to the processors listed.
    )
    return build_runner(
        "atari_dqn",
        "double_pri_duel",
        seed=seed,
        sampler="async_cpu",
        settings=[f"env.game={game}", "sampler.batch_T=4"],
        affinity=affinity,
    )


def build_and_train(game: str = "pong", run_ID: int = 0, *, log_dir: str = "atari_dqn_async_cpu", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name=f"dqn_{game}", log_params=dict(game=game)) as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
