"""PPO on a continuous-control task of Gymnasium.

What it teaches, compared with example 0: continuous actions from a Gaussian policy, and observations normalized by running statistics
(``normalize_observation``). Episodes here only ever end because time runs out; what would have followed is estimated, not counted as zero.

    pip install -c constraints.txt -e ".[mujoco]"
    python examples/example_2.py --env_id HalfCheetah-v5
"""

import argparse

from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make as gym_make
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context


def build_and_train(env_id="HalfCheetah-v5", run_ID=0, cuda_idx=None, seed=None, log_dir="example_2", smoke=False):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    sampler = SerialSampler(
        EnvCls=gym_make,
        env_kwargs=dict(id=env_id),
        batch_T=128 if smoke else 2048,
        batch_B=1,
        max_decorrelation_steps=0,
    )
    algo = PPO(
        learning_rate=3e-4,
        gae_lambda=0.95,
        minibatches=4 if smoke else 32,
        epochs=2 if smoke else 10,
        ratio_clip=0.2,
        clip_grad_norm=0.5,
        entropy_loss_coeff=0.0,
        normalize_advantage=True,
    )
    runner = MinibatchRl(
        algo=algo,
        agent=MujocoFfAgent(model_kwargs=dict(normalize_observation=True)),
        sampler=sampler,
        n_steps=512 if smoke else 1_000_000,
        log_interval_steps=256 if smoke else 20_480,
        log_traj_window=10,
        affinity=dict(cuda_idx=cuda_idx, master_torch_threads=1),
        seed=seed,
    )
    config = dict(env_id=env_id)
    with logger_context(log_dir, run_ID, name=f"ppo_{env_id}", log_params=config, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env_id", help="Gymnasium environment with continuous actions", default="HalfCheetah-v5")
    parser.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    parser.add_argument("--cuda_idx", help="GPU to use; default: none", type=int, default=None)
    parser.add_argument("--seed", help="the same seed gives the same run; default: a new one", type=int, default=None)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = parser.parse_args()
    build_and_train(env_id=args.env_id, run_ID=args.run_ID, cuda_idx=args.cuda_idx, seed=args.seed, smoke=args.smoke)
