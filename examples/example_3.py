"""A2C on an Atari game, with the sampler of your choice.

What it teaches, compared with example 1: the sampler is exchanged in one line, and nothing else changes.

* "serial" runs everything in the master process;
* "cpu" runs the environments in worker processes, each of which does its share of the agent's work too;
* "gpu" leaves the agent, on a GPU if there is one, to the master process, which acts for all workers at once;
* "alternating" does the same for two groups of workers in turn, so that one steps its environments while the agent acts for the other.

    python examples/example_3.py --game pong --sample_mode cpu --n_parallel 2
"""

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.cli.scripts import command_line
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

SAMPLERS = dict(serial=SerialSampler, cpu=CpuSampler, gpu=GpuSampler, alternating=AlternatingSampler)


def build(
    game: str = "pong",
    cuda_idx: int | None = None,
    sample_mode: str = "serial",
    n_parallel: int = 2,
    seed: int | None = None,
    n_steps: int = 50_000_000,
):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
        sample_mode: where environments and agent run.
        n_parallel: worker processes of parallel samplers, in each group.
        n_steps: environment steps to train for.
    """
    sampler = SAMPLERS[sample_mode](
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=dict(game=game),
        batch_T=5,
        batch_B=16,
        max_decorrelation_steps=400,
    )
    return MinibatchRl(
        algo=A2C(learning_rate=3e-4),
        agent=AtariFfAgent(),
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=100_000,
        affinity=dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), set_affinity=False),
        seed=seed,
    )


def build_and_train(
    game: str = "pong", run_ID: int = 0, *, sample_mode: str = "serial", log_dir: str = "example_3", smoke: bool = False, **settings
):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, sample_mode=sample_mode, **settings)
    if smoke:
        runner = tiny(runner)
    config = dict(game=game, sample_mode=sample_mode)
    with logger_context(log_dir, run_ID, name=f"a2c_{game}", log_params=config, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build, sample_mode=SAMPLERS)
