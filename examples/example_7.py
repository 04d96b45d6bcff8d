"""A2C on an Atari game, on several GPUs, or in several processes.

What it teaches, compared with example 3: one process becomes several, each with a sampler and an agent of its own, that average their
gradients. All that changes is the runner, and that its affinity is a list, with one entry for each process. Sizes are those of each
process: two of them sample, and train on, twice as much. torchrun may start them instead, on one machine or on several:

    python examples/example_7.py --game pong --cuda_idxs 0 1
    python examples/example_7.py --game pong --n_processes 2
    torchrun --nproc-per-node 2 examples/example_7.py --game pong
"""

import argparse

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.logging.context import logger_context


def build_and_train(
    game="pong",
    run_ID=0,
    cuda_idxs=(),
    n_processes=2,
    n_parallel=1,
    seed=None,
    n_steps=50_000_000,
    log_dir="example_7",
    smoke=False,
):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    affinity = [
        dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), master_torch_threads=1, set_affinity=False)
        for cuda_idx in cuda_idxs or [None] * n_processes
    ]
    sampler = CpuSampler(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=dict(game=game),
        batch_T=5,
        batch_B=4 if smoke else 16,
        max_decorrelation_steps=10 if smoke else 400,
    )
    runner = SyncRl(
        algo=A2C(learning_rate=3e-4),
        agent=AtariFfAgent(),
        sampler=sampler,
        n_steps=400 if smoke else n_steps,  # Of all processes together.
        log_interval_steps=200 if smoke else 100_000,
        affinity=affinity,
        seed=seed,
    )
    with logger_context(log_dir, run_ID, name=f"a2c_{game}", log_params=dict(game=game), snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", help="Atari game", default="pong")
    parser.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    parser.add_argument("--cuda_idxs", help="GPUs to train on, a process for each; default: none", type=int, nargs="*", default=())
    parser.add_argument("--n_processes", help="processes, where no GPUs are given", type=int, default=2)
    parser.add_argument("--n_parallel", help="worker processes of each sampler", type=int, default=1)
    parser.add_argument("--seed", help="the same seed gives the same run; default: a new one", type=int, default=None)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = parser.parse_args()
    build_and_train(**vars(args))
