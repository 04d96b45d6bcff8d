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

from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.ray.batch_sampler import RayBatchSampler
from rlpyt.utils.logging.context import logger_context


def build(
    game: str = "pong",
    address: str | None = None,
    n_actors: int | None = None,
    in_flight: int = 0,
    cuda_idx: int | None = None,
    seed: int | None = None,
    n_steps: int = 50_000_000,
    object_store_memory: int | None = None,
):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
        address: of a running Ray cluster, or 'auto'; default: RAY_ADDRESS, or one is started.
        n_actors: actors that sample; default: one for each CPU of the cluster.
        in_flight: batches that are collected ahead.
        n_steps: environment steps to train for.
        object_store_memory: bytes of shared memory for a cluster that is started; default: Ray's, a third of the memory.
    """
    sampler = RayBatchSampler(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=dict(game=game),
        batch_T=128,
        batch_B=16,
        max_decorrelation_steps=400,
        n_actors=n_actors,  # One for each CPU of the cluster, if it is None; each has its share of the environments.
        in_flight=in_flight,
        address=address,
        init_kwargs=dict(object_store_memory=object_store_memory),
    )
    return MinibatchRl(
        algo=PPO(learning_rate=2.5e-4, gae_lambda=0.95, normalize_advantage=True),
        agent=AtariFfAgent(),
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=100_000,
        affinity=dict(cuda_idx=cuda_idx),
        seed=seed,
    )


def build_and_train(game: str = "pong", run_ID: int = 0, *, in_flight: int = 0, log_dir: str = "ray_ppo", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, in_flight=in_flight, **settings)
    if smoke:
        runner = tiny(runner)
    config = dict(game=game, in_flight=in_flight)
    with logger_context(log_dir, run_ID, name=f"ppo_{game}", log_params=config, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
