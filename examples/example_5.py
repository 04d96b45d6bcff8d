"""DQN on an Atari game, with an action server and a configuration.

What it teaches, compared with example 1: all settings come from one dictionary, which is logged with the run. A variant is a few changed
entries, and says so by name: `--config double_pri_duel` is DQN with double Q-learning, prioritized replay and a dueling network, and
`--config rainbow` learns distributions of the return as well, over three steps, and explores by noise on the weights. The environments run
in worker processes; the agent, on a GPU if there is one, acts for all of them at once.

    python examples/example_5.py --game pong --config dqn --n_parallel 2
"""

import argparse

from rlpyt.agents.dqn.atari.atari_catdqn_agent import AtariCatDqnAgent
from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.experiments.configs import variant
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.utils.logging.context import logger_context

CONFIG = dict(
    agent=dict(),
    model=dict(dueling=False),
    algo=dict(
        discount=0.99,
        batch_size=128,
        learning_rate=2.5e-4,  # Adam's step size, per update.
        clip_grad_norm=10.0,
        min_steps_learn=50_000,
        replay_size=1_000_000,
        double_dqn=False,
        prioritized_replay=False,
        n_step_return=1,
    ),
    env=dict(game="pong"),
    eval_env=dict(game="pong", episodic_lives=False),
    sampler=dict(
        batch_T=2,  # Two steps per batch,
        batch_B=32,  # of 32 environments: four updates per batch, for a replay ratio of 8.
        max_decorrelation_steps=400,
        eval_n_envs=10,
        eval_max_steps=125_000,
        eval_max_trajectories=50,
    ),
    runner=dict(n_steps=50_000_000, log_interval_steps=1_000_000),
)

# Name: classes, and what differs from CONFIG.
VARIANTS = dict(
    dqn=(AtariDqnAgent, DQN, dict()),
    double_pri_duel=(
        AtariDqnAgent,
        DQN,
        dict(model=dict(dueling=True), algo=dict(double_dqn=True, prioritized_replay=True)),
    ),
    catdqn=(AtariCatDqnAgent, CategoricalDQN, dict(algo=dict(V_min=-10, V_max=10))),
    rainbow=(
        AtariCatDqnAgent,
        CategoricalDQN,
        dict(
            agent=dict(eps_init=0.0, eps_final=0.0),  # The noise explores.
            model=dict(dueling=True, noisy=True),
            algo=dict(double_dqn=True, prioritized_replay=True, n_step_return=3),
        ),
    ),
)

SMOKE = dict(
    algo=dict(min_steps_learn=128, replay_size=1000, replay_ratio=1, batch_size=16),
    eval_env=dict(horizon=200),
    sampler=dict(batch_B=8, max_decorrelation_steps=10, eval_n_envs=2, eval_max_steps=500, eval_max_trajectories=2),
    runner=dict(n_steps=256, log_interval_steps=128),
)


def build_and_train(
    game="pong", run_ID=0, cuda_idx=None, config="dqn", n_parallel=2, seed=None, log_dir="example_5", smoke=False
):
    """Train, and return the directory of the run. `smoke` makes it tiny, to see whether everything works."""
    AgentCls, AlgoCls, changes = VARIANTS[config]
    settings = variant(CONFIG, **changes)
    settings = variant(settings, env=dict(game=game), eval_env=dict(game=game))
    if smoke:
        settings = variant(settings, **SMOKE)

    sampler = GpuSampler(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=settings["env"],
        eval_env_kwargs=settings["eval_env"],
        **settings["sampler"],
    )
    runner = MinibatchRlEval(
        algo=AlgoCls(**settings["algo"]),
        agent=AgentCls(model_kwargs=settings["model"], **settings["agent"]),
        sampler=sampler,
        affinity=dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), set_affinity=False),
        seed=seed,
        **settings["runner"],
    )
    name = f"{config}_{game}"
    with logger_context(log_dir, run_ID, name, log_params=settings, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", help="Atari game", default="pong")
    parser.add_argument("--run_ID", help="number of the run, part of its directory", type=int, default=0)
    parser.add_argument("--cuda_idx", help="GPU to use; default: none", type=int, default=None)
    parser.add_argument("--config", help="which variant of DQN", choices=list(VARIANTS), default="dqn")
    parser.add_argument("--n_parallel", help="worker processes", type=int, default=2)
    parser.add_argument("--seed", help="the same seed gives the same run; default: a new one", type=int, default=None)
    parser.add_argument("--smoke", help="a tiny run, to see whether everything works", action="store_true")
    args = parser.parse_args()
    build_and_train(**vars(args))
