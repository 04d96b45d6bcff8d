"""A2C with a recurrent agent on an Atari game.

What it teaches, compared with example 3: the agent remembers, by an LSTM, and so sees one frame at a time instead of four. It trains on
whole sequences of `batch_T` steps, each only up to the end of its first episode. What comes after that is a choice, made by the collector:
with `--mid_batch_reset true` the environment is reset at once, and the beginning of its next episode is not trained on; with
`--mid_batch_reset false` it stands still until the batch is full, and the next one starts with the next episode.

The sampler decides which collectors fit, and whether the agent must keep the memories of two groups of environments apart.

    python examples/example_4.py --game pong --mid_batch_reset false
"""

import argparse

from rlpyt.agents.pg.atari import AlternatingAtariLstmAgent, AtariLstmAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
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


def build_and_train(
    game="pong",
    run_ID=0,
    cuda_idx=None,
    mid_batch_reset=False,
    sample_mode="gpu",
    n_parallel=2,
    seed=None,
    n_steps=50_000_000,
    log_dir="example_4",
    smoke=False,
):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    SamplerCls, AgentCls, collectors = MODES[sample_mode]
    sampler = SamplerCls(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=dict(game=game, num_img_obs=1),  # One frame: the agent remembers the others.
        CollectorCls=collectors[mid_batch_reset],
        batch_T=20,  # Steps that gradients flow back through.
        batch_B=4 if smoke else 16,
        max_decorrelation_steps=10 if smoke else 400,
    )
    runner = MinibatchRl(
        algo=A2C(learning_rate=3e-4),
        agent=AgentCls(),
        sampler=sampler,
        n_steps=320 if smoke else n_steps,
        log_interval_steps=160 if smoke else 100_000,
        affinity=dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), set_affinity=False),
        seed=seed,
    )
    config = dict(game=game, mid_batch_reset=mid_batch_reset, sample_mode=sample_mode)
    with logger_context(log_dir, run_ID, name=f"a2c_lstm_{game}", log_params=config, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


def true_or_false(text):
    """Read a truth value from the command line, where `bool` would take every text for true, "false" too."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, not {text!r}")
    return text.lower() == "true"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", help="Atari game", default="pong")
    parser.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    parser.add_argument("--cuda_idx", help="GPU to use; default: none", type=int, default=None)
    parser.add_argument("--mid_batch_reset", help="reset within a batch, true or false", type=true_or_false, default=False)
    parser.add_argument("--sample_mode", help="where environments and agent run", choices=list(MODES), default="gpu")
    parser.add_argument("--n_parallel", help="worker processes, in each group", type=int, default=2)
    parser.add_argument("--n_steps", help="environment steps to train for", type=int, default=50_000_000)
    parser.add_argument("--seed", help="the same seed gives the same run; default: a new one", type=int, default=None)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = parser.parse_args()
    build_and_train(**vars(args))
