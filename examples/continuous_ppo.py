"""PPO on a continuous-control task of Gymnasium.

What it teaches, compared with example 0: a Gaussian agent for continuous actions, and what PPO needs where observations and rewards have
any size: observations are normalized by the model, rewards are scaled by the environment (`make_scaled`). So the same settings do for many
tasks. Returns are measured in their own environments, by the mean action, without scaling. Compared with SAC in example 2, PPO needs
more steps, each of which takes far less time.

    pip install -c constraints.txt -e ".[mujoco]"
    python examples/continuous_ppo.py --env_id HalfCheetah-v5

Without MuJoCo, it is Pendulum that is trained.
"""

from importlib.util import find_spec

from rlpyt.agents.pg.mlp import MlpGaussianFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.experiments.envs import make_scaled
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.logging.context import logger_context

ENV_ID = "HalfCheetah-v5" if find_spec("mujoco") else "Pendulum-v1"


def build(env_id: str = ENV_ID, n_steps: int = 1_000_000, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        env_id: Gymnasium environment with continuous actions.
        n_steps: environment steps to train for.
    """
    discount = 0.99
    sampler = CpuSampler(
        EnvCls=make_scaled,
        env_kwargs=dict(id=env_id, discount=discount),
        eval_env_kwargs=dict(id=env_id),
        batch_T=256,
        batch_B=8,
        max_decorrelation_steps=0,
        eval_n_envs=4,
        eval_max_steps=20_000,
        eval_max_trajectories=8,
    )
    algo = PPO(
        discount=discount,
        learning_rate=3e-4,
        linear_lr_schedule=True,  # down to 0 at the end of the run
        gae_lambda=0.95,
        epochs=10,
        minibatches=32,
        ratio_clip=0.2,
        clip_grad_norm=0.5,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.0,
        normalize_advantage=True,
    )
    agent = MlpGaussianFfAgent(model_kwargs=dict(normalize_observation=True), deterministic_eval=True)
    return MinibatchRlEval(
        algo=algo,
        agent=agent,
        sampler=sampler,
        n_steps=n_steps,
        log_interval_steps=20_480,
        affinity=dict(master_torch_threads=1),
        seed=seed,
    )


def build_and_train(env_id: str = ENV_ID, run_ID: int = 0, *, log_dir: str = "continuous_ppo", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(env_id, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name=f"ppo_{env_id}", log_params=dict(env_id=env_id)) as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
