"""HalfCheetah-v5, as far as it gets in a short run."""

import torch

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.classic.pendulum import classes_by_key as qpg
from rlpyt.experiments.configs.classic.pendulum import networks

classes = dict(env="rlpyt.envs.gym.make", sampler="rlpyt.samplers.serial.sampler.SerialSampler")
classes_by_key = dict(
    sac_100k=qpg["sac"],
    td3_100k=qpg["td3"],
    ppo_300k=dict(
        agent="rlpyt.agents.pg.mujoco.MujocoFfAgent",
        algo="rlpyt.algos.pg.ppo.PPO",
        env="rlpyt.experiments.envs.make_scaled",
    ),
)

base = dict(
    agent=networks(256, 256),
    algo=dict(),
    env=dict(id="HalfCheetah-v5"),
    model=dict(),
    optim=dict(),
    runner=dict(n_steps=100e3, log_interval_steps=5e3),
    sampler=dict(batch_T=1, batch_B=1, max_decorrelation_steps=0, eval_n_envs=5, eval_max_steps=10_000, eval_max_trajectories=10),
)

configs = dict(
    sac_100k=variant(base, algo=dict(min_steps_learn=5000)),
    td3_100k=variant(base, agent=networks(400, 300), algo=dict(min_steps_learn=10_000, batch_size=256, replay_ratio=256)),
    ppo_300k=dict(
        base,
        agent=dict(deterministic_eval=True),
        algo=dict(
            discount=0.98,
            learning_rate=2e-5,
            value_loss_coeff=1.0,
            entropy_loss_coeff=0.0004,
            clip_grad_norm=0.8,
            gae_lambda=0.92,
            minibatches=8,
            epochs=20,
            ratio_clip=0.1,
            linear_lr_schedule=False,
            normalize_advantage=True,
        ),
        affinity=dict(master_torch_threads=1),
        env=dict(id="HalfCheetah-v5", discount=0.98),
        eval_env=dict(discount=None),
        model=dict(
            hidden_sizes=[256, 256],
            hidden_nonlinearity=torch.nn.ReLU,
            mu_nonlinearity=torch.nn.Identity,
            init_log_std=-2.0,  # With more noise it learns to slide on its back, relying on the noise: its mean actions do not move it.
            normalize_observation=True,
        ),
        optim=dict(eps=1e-5),
        runner=dict(n_steps=300e3, log_interval_steps=20_480),
        sampler=dict(
            batch_T=512,
            batch_B=1,
            max_decorrelation_steps=0,
            eval_n_envs=5,
            eval_max_steps=10_000,
            eval_max_trajectories=10,
        ),
    ),
)
