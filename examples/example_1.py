"""DQN on an Atari game, everything in one process, with evaluation.

What it teaches, compared with example 0: a replay-based algorithm, and `MinibatchRlEval`, which pauses to measure the agent in
environments of its own (here without exploration, and playing all lives). In the serial sampler everything happens in the master
process, where ``breakpoint()`` works.

    python examples/example_1.py --game pong
"""

import argparse

from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context


def build_and_train(game="pong", run_ID=0, cuda_idx=None, seed=None, log_dir="example_1", smoke=False):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    sampler = SerialSampler(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,  # Logs the game's score as well as the clipped rewards.
        env_kwargs=dict(game=game),
        eval_env_kwargs=dict(game=game, episodic_lives=False, horizon=200 if smoke else 27_000),
        batch_T=4,  # Four steps per batch,
        batch_B=1,  # of one environment.
        max_decorrelation_steps=0,
        eval_n_envs=2 if smoke else 10,
        eval_max_steps=500 if smoke else 50_000,
        eval_max_trajectories=2 if smoke else 10,
    )
    algo = DQN(  # Runs one update per batch of samples, for a replay ratio of 8.
        min_steps_learn=100 if smoke else 1000,
        replay_size=1000 if smoke else 1_000_000,
    )
    runner = MinibatchRlEval(
        algo=algo,
        agent=AtariDqnAgent(),
        sampler=sampler,
        n_steps=200 if smoke else 50_000_000,
        log_interval_steps=100 if smoke else 10_000,
        affinity=dict(cuda_idx=cuda_idx),
        seed=seed,
    )
    config = dict(game=game)
    with logger_context(log_dir, run_ID, name=f"dqn_{game}", log_params=config, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", help="Atari game", default="pong")
    parser.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    parser.add_argument("--cuda_idx", help="GPU to use; default: none", type=int, default=None)
    parser.add_argument("--seed", help="the same seed gives the same run; default: a new one", type=int, default=None)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = parser.parse_args()
    build_and_train(game=args.game, run_ID=args.run_ID, cuda_idx=args.cuda_idx, seed=args.seed, smoke=args.smoke)
