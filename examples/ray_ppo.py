"""PPO on an Atari game, with environments on a Ray cluster.

What it teaches, compared with example 3: the machines that sample need not be the one that trains. `RayBatchSampler` takes the place of a
`CpuSampler`, and everything else stays as it is.

* Without `--address` a local cluster is started, for as long as the run takes, with all processors of this machine.
* With it, the run joins a cluster: start one with ``ray start --head --port=6379`` on the machine that trains and
  ``ray start --address=<its IP>:6379`` on each of the others, all of which have rlpyt installed.
* `--in_flight 1` lets actors collect the next batch while this process optimizes, with the parameters of one update before. PPO can do with
  that: it corrects for the difference by the ratio of probabilities.

    python examples/ray_ppo.py --game pong --in_flight 1
"""

import argparse

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.ray.batch_sampler import RayBatchSampler
from rlpyt.utils.logging.context import logger_context


def build_and_train(
    game="pong",
    run_ID=0,
    address=None,
    n_actors=None,
    in_flight=0,
    cuda_idx=None,
    seed=None,
    n_steps=50_000_000,
    log_dir="ray_ppo",
    smoke=False,
):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    sampler = RayBatchSampler(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=dict(game=game),
        batch_T=16 if smoke else 128,
        batch_B=4 if smoke else 16,
        max_decorrelation_steps=10 if smoke else 400,
        n_actors=n_actors,  # One for each CPU of the cluster, if it is None; each has its share of the environments.
        in_flight=in_flight,
        address=address,
        init_kwargs=dict(object_store_memory=200_000_000) if smoke else None,
    )
    runner = MinibatchRl(
        algo=PPO(learning_rate=2.5e-4, gae_lambda=0.95, normalize_advantage=True),
        agent=AtariFfAgent(),
        sampler=sampler,
        n_steps=256 if smoke else n_steps,
        log_interval_steps=128 if smoke else 100_000,
        affinity=dict(cuda_idx=cuda_idx),
        seed=seed,
    )
    config = dict(game=game, in_flight=in_flight)
    with logger_context(log_dir, run_ID, name=f"ppo_{game}", log_params=config, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", help="Atari game", default="pong")
    parser.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    parser.add_argument("--address", help="of a running Ray cluster, or 'auto'; default: RAY_ADDRESS, or one is started", default=None)
    parser.add_argument("--n_actors", help="actors that sample; default: one for each CPU of the cluster", type=int, default=None)
    parser.add_argument("--in_flight", help="batches that are collected ahead", type=int, default=0)
    parser.add_argument("--cuda_idx", help="GPU to train on; default: none", type=int, default=None)
    parser.add_argument("--n_steps", help="environment steps to train for", type=int, default=50_000_000)
    parser.add_argument("--seed", help="the same seed gives the same run; default: a new one", type=int, default=None)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = parser.parse_args()
    build_and_train(**vars(args))
