"""DQN on an Atari game, with an action server and a configuration.

What it teaches, compared with example 1: all settings come from one dictionary, which is logged with the run. A variant is a few changed
entries, and says so by name: `--config double_pri_duel` is DQN with double Q-learning, prioritized replay and a dueling network, and
`--config rainbow` learns distributions of the return as well, over three steps, and explores by noise on the weights. The environments run
in worker processes; the agent, on a GPU if there is one, acts for all of them at once.

    python examples/example_5.py --game pong --config dqn --n_parallel 2
"""

from rlpyt.agents.dqn.atari.atari_catdqn_agent import AtariCatDqnAgent
from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.cli.scripts import command_line
from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo
from rlpyt.experiments.configs import variant
from rlpyt.experiments.smoke import tiny
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


def settings_of(game: str, config: str) -> dict:
    """Return the settings of a variant in a game."""
    _, _, changes = VARIANTS[config]
    return variant(variant(CONFIG, **changes), env=dict(game=game), eval_env=dict(game=game))


def build(game: str = "pong", cuda_idx: int | None = None, config: str = "dqn", n_parallel: int = 2, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        game: Atari game.
        config: which variant of DQN.
        n_parallel: worker processes.
    """
    AgentCls, AlgoCls, _ = VARIANTS[config]
    settings = settings_of(game, config)
    sampler = GpuSampler(
        EnvCls=AtariEnv,
        TrajInfoCls=AtariTrajInfo,
        env_kwargs=settings["env"],
        eval_env_kwargs=settings["eval_env"],
        **settings["sampler"],
    )
    return MinibatchRlEval(
        algo=AlgoCls(**settings["algo"]),
        agent=AgentCls(model_kwargs=settings["model"], **settings["agent"]),
        sampler=sampler,
        affinity=dict(cuda_idx=cuda_idx, workers_cpus=list(range(n_parallel)), set_affinity=False),
        seed=seed,
        **settings["runner"],
    )


def build_and_train(
    game: str = "pong", run_ID: int = 0, *, config: str = "dqn", log_dir: str = "example_5", smoke: bool = False, **settings
):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(game, config=config, **settings)
    if smoke:
        runner = tiny(runner)
    log_params = settings_of(game, config)
    with logger_context(log_dir, run_ID, name=f"{config}_{game}", log_params=log_params, snapshot_mode="last") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build, config=VARIANTS)
