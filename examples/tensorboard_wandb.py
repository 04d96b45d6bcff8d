"""A run that TensorBoard shows, and Weights & Biases if you like.

What it teaches, compared with example 0: `logger_context` decides where diagnostics go in addition to progress.csv. Nothing else changes.
TensorBoard reads the directory of the run, also during the run. Weights & Biases gets diagnostics and all settings; "offline" keeps them in
the directory, for `wandb sync`, "online" needs an account.

    python examples/tensorboard_wandb.py
    tensorboard --logdir data/local

    pip install -c constraints.txt -e ".[wandb]"
    python examples/tensorboard_wandb.py --wandb offline
"""

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.gym import make as gym_make
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.logging.context import logger_context


def build(n_steps: int = 100_000, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        n_steps: environment steps to train for.
    """
    return MinibatchRl(
        algo=PPO(learning_rate=1e-3, gae_lambda=0.95, epochs=10, normalize_advantage=True),
        agent=MlpFfAgent(),
        sampler=CpuSampler(EnvCls=gym_make, env_kwargs=dict(id="CartPole-v1"), batch_T=128, batch_B=8),
        n_steps=n_steps,
        log_interval_steps=5_000,
        affinity=dict(master_torch_threads=1),
        seed=seed,
    )


def build_and_train(
    run_ID: int = 0,
    *,
    wandb: str | None = None,
    project: str = "rlpyt",
    log_dir: str = "tensorboard_wandb",
    smoke: bool = False,
    **settings,
):
    """Train, and return the directory of the run. Further settings are those of `build`.

    Args:
        wandb: mode of Weights & Biases, offline or online; default: not used.
        project: of Weights & Biases.
    """
    runner = build(**settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(
        log_dir,
        run_ID,
        name="ppo_cartpole",
        use_summary_writer=True,  # TensorBoard,
        tf_step="env_steps",  # over environment steps, not iterations,
        use_wandb=dict(project=project, mode=wandb) if wandb else False,  # which are the arguments of wandb.init.
    ) as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build, wandb=("offline", "online"))
