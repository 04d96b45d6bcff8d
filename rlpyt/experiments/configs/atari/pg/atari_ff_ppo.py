"""PPO with a feedforward network on Atari games."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.pg.atari.AtariFfAgent",
    algo="rlpyt.algos.pg.ppo.PPO",
    env="rlpyt.envs.atari.atari_env.AtariEnv",
    sampler="rlpyt.samplers.parallel.cpu.sampler.CpuSampler",
    traj_info="rlpyt.envs.atari.atari_env.AtariTrajInfo",
)

base = dict(
    agent=dict(),
    algo=dict(
        discount=0.99,
        learning_rate=1e-3,
        value_loss_coeff=1.0,
        entropy_loss_coeff=0.01,
        clip_grad_norm=1.0,
        gae_lambda=0.98,
        linear_lr_schedule=True,
        minibatches=4,
        epochs=4,
    ),
    env=dict(game="pong"),
    model=dict(),
    optim=dict(),
    runner=dict(n_steps=50e6),
    sampler=dict(batch_T=64, batch_B=32, max_decorrelation_steps=1000),
)

configs = {
    "0": base,
    # The usual setting of the literature: observations of 84x84, the network of Mnih et al. (2015), 8 environments of 128 steps.
    "pong_2M": variant(
        base,
        algo=dict(
            learning_rate=2.5e-4,
            value_loss_coeff=0.5,
            clip_grad_norm=0.5,
            gae_lambda=0.95,
            ratio_clip=0.1,
            normalize_advantage=True,
        ),
        env=dict(frame_shape=(84, 84)),
        model=dict(channels=[32, 64, 64], kernel_sizes=[8, 4, 3], strides=[4, 2, 1], paddings=[0, 0, 0], orthogonal_init=True),
        optim=dict(eps=1e-5),
        runner=dict(n_steps=2e6, log_interval_steps=25e3),
        sampler=dict(batch_T=128, batch_B=8),
    ),
}
