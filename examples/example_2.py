"""SAC on a continuous-control task of Gymnasium.

What it teaches, compared with example 1: continuous actions, a policy besides Q-functions, and an update after every step. Episodes of
HalfCheetah only ever end because time runs out; what would have followed is estimated from the last observation, not counted as zero
(``bootstrap_timelimit``). Networks as small as these learn fastest with one or two threads.

    pip install -c constraints.txt -e ".[mujoco]"
    python examples/example_2.py --env_id HalfCheetah-v5
"""

import argparse

from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.algos.qpg.sac import SAC
from rlpyt.envs.gym import make as gym_make
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context


def build_and_train(env_id="HalfCheetah-v5", run_ID=0, cuda_idx=None, seed=None, log_dir="example_2", smoke=False):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    sampler = SerialSampler(
        EnvCls=gym_make,
        env_kwargs=dict(id=env_id),
        eval_env_kwargs=dict(id=env_id),
        batch_T=1,  # One step per batch,
        batch_B=1,  # of one environment.
        max_decorrelation_steps=0,
        eval_n_envs=1 if smoke else 5,
        eval_max_steps=1000 if smoke else 25_000,
        eval_max_trajectories=1 if smoke else 5,
    )
    algo = SAC(  # Runs one update of 256 replayed steps per batch of samples.
        min_steps_learn=300 if smoke else 10_000,
        replay_size=1000 if smoke else 1_000_000,
    )
    runner = MinibatchRlEval(
        algo=algo,
        agent=SacAgent(action_squash=float(gym_make(id=env_id).action_space.high[0])),  # Actions as large as the environment takes.
        sampler=sampler,
        n_steps=400 if smoke else 1_000_000,
        log_interval_steps=200 if smoke else 10_000,
        affinity=dict(cuda_idx=cuda_idx, master_torch_threads=2),
        seed=seed,
    )
    config = dict(env_id=env_id)
    with logger_context(log_dir, run_ID, name=f"sac_{env_id}", log_params=config, snapshot_mode="last") as run_dir:
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
