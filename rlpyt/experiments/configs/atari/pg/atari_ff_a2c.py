"""A2C with a feedforward network on Atari games."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.pg.atari.AtariFfAgent",
    algo="rlpyt.algos.pg.a2c.A2C",
    env="rlpyt.envs.atari.atari_env.AtariEnv",
    sampler="rlpyt.samplers.parallel.cpu.sampler.CpuSampler",
    traj_info="rlpyt.envs.atari.atari_env.AtariTrajInfo",
)

base = dict(
    agent=dict(),
    algo=dict(discount=0.99, learning_rate=3e-4, value_loss_coeff=0.5, entropy_loss_coeff=0.01, clip_grad_norm=1.0),
    env=dict(game="pong"),
    model=dict(),
    optim=dict(),
    runner=dict(n_steps=50e6),
    sampler=dict(batch_T=5, batch_B=32, max_decorrelation_steps=1000),
)

configs = {
    "0": base,
    "low_lr": variant(base, algo=dict(learning_rate=4e-4)),
    "2gpu": variant(base, sampler=dict(batch_B=16)),  # in each of two processes
    "pong_2M": variant(base, runner=dict(n_steps=2e6, log_interval_steps=1e5)),
}
