"""A2C on an Atari game, with the sampler of your choice.

What it teaches, compared with example 1: the sampler is exchanged in one line, and nothing else changes.

* "serial" runs everything in the master process;
* "cpu" runs the environments in worker processes, each of which does its share of the agent's work too;
* "gpu" leaves the agent, on a GPU if there is one, to the master process, which acts for all workers at once;
* "alternating" does the same for two groups of workers in turn, so that one steps its environments while the agent acts for the other.

    python examples/example_3.py --game pong --sample_mode cpu --n_parallel 2
"""

import argparse

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

SAMPLERS = dict(serial=SerialSampler, cpu=CpuSampler, gpu=GpuSampler, alternating=AlternatingSampler)


def build_and_train(
    game="pong",
    run_ID=0,
    cuda_idx=None,
    sample_mode="serial",
    n_parallel=2,
    seed=None,
    n_steps=50_000_000,
    log_dir="example_3",
    smoke=False,
):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    sampler = SAMPLERS[sample_mode](
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=dict(game=game),
        batch_T=5,
        batch_B=4 if smoke else 16,
        max_decorrelation_steps=10 if smoke else 400,
    )
    runner = MinibatchRl(
        algo=A2C(learning_rate=3e-4),
        agent=AtariFfAgent(),
        sampler=sampler,
        n_steps=200 if smoke else n_steps,
        log_interval_steps=100 if smoke else 100_000,
        affinity=dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), set_affinity=False),
        seed=seed,
    )
    config = dict(game=game, sample_mode=sample_mode)
    with logger_context(log_dir, run_ID, name=f"a2c_{game}", log_params=config, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", help="Atari game", default="pong")
    parser.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    parser.add_argument("--cuda_idx", help="GPU to use; default: none", type=int, default=None)
    parser.add_argument("--sample_mode", help="where environments and agent run", choices=list(SAMPLERS), default="serial")
    parser.add_argument("--n_parallel", help="worker processes of parallel samplers, in each group", type=int, default=2)
    parser.add_argument("--n_steps", help="environment steps to train for", type=int, default=50_000_000)
    parser.add_argument("--seed", help="the same seed gives the same run; default: a new one", type=int, default=None)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = parser.parse_args()
    build_and_train(**vars(args))
