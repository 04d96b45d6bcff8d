"""A2C with a recurrent agent on an Atari game.

What it teaches, compared with example 3: the agent remembers, by an LSTM, and so sees one frame at a time instead of four. It trains on
whole sequences of `batch_T` steps, each only up to the end of its first episode. What comes after that is a choice, made by the collector:
with `--mid_batch_reset true` the environment is reset at once, and the beginning of its next episode is not trained on; with
`--mid_batch_reset false` it is idle until the batch is full, and the next one starts with the next episode.

The sampler decides which collectors fit, and whether the agent must keep the memories of two groups of environments apart.

    python examples/example_4.py --game pong --mid_batch_reset false
"""

from rlpyt.agents.pg.atari import AlternatingAtariLstmAgent, AtariLstmAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.cli.scripts import command_line
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.collectors import GpuResetCollector, GpuWaitResetCollector
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.utils.logging.context import logger_context

MODES = dict(  # sampler, agent, and collectors: without and with reset within a batch
    cpu=(CpuSampler, AtariLstmAgent, (CpuWaitResetCollector, CpuResetCollector)),
    gpu=(GpuSampler, AtariLstmAgent, (GpuWaitResetCollector, GpuResetCollector)),
    alternating=(AlternatingSampler, AlternatingAtariLstmAgent, (GpuWaitResetCollector, GpuResetCollector)),
)


def build(
    game: str = "pong",
    cuda_idx: int | None = None,
    mid_batch_reset: bool = False,
    sample_mode: str = "gpu",
    n_parallel: int = 2,
    seed: int | None = None,
    n_steps: int = 50_000_000,
):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
        mid_batch_reset: reset within a batch.
        sample_mode: where environments and agent run.
        n_parallel: worker processes, in each group.
        n_steps: environment steps to train for.
    """
    SamplerCls, AgentCls, collectors = MODES[sample_mode]
    sampler = SamplerCls(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=dict(game=game, num_img_obs=1),  # One frame: the agent remembers the others.
        CollectorCls=collectors[mid_batch_reset],
        batch_T=20,  # Steps that gradients flow back through.
        batch_B=16,
        max_decorrelation_steps=400,
    )
    return MinibatchRl(
        algo=A2C(learning_rate=3e-4),
        agent=AgentCls(),
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=100_000,
        affinity=dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), set_affinity=False),
        seed=seed,
    )


def build_and_train(
    game: str = "pong",
    run_ID: int = 0,
    *,
    mid_batch_reset: bool = False,
    sample_mode: str = "gpu",
    log_dir: str = "example_4",
    smoke: bool = False,
    **settings,
):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, mid_batch_reset=mid_batch_reset, sample_mode=sample_mode, **settings)
    if smoke:
        runner = tiny(runner)
    config = dict(game=game, mid_batch_reset=mid_batch_reset, sample_mode=sample_mode)
    with logger_context(log_dir, run_ID, name=f"a2c_lstm_{game}", log_params=config, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build, sample_mode=MODES)
