"""PPO on continuous control."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.pg.mujoco.MujocoFfAgent",
    algo="rlpyt.algos.pg.ppo.PPO",
    env="rlpyt.envs.gym.make",
    sampler="rlpyt.samplers.parallel.cpu.sampler.CpuSampler",
)
classes_by_key = dict(ppo_1M_serial=dict(sampler="rlpyt.samplers.serial.sampler.SerialSampler"))

ppo_1M_serial = dict(
    agent=dict(),
    algo=dict(
        discount=0.99,
        learning_rate=3e-4,
        clip_grad_norm=1e6,
        entropy_loss_coeff=0.0,
        gae_lambda=0.95,
        minibatches=32,
        epochs=10,
        ratio_clip=0.2,
        normalize_advantage=True,
        linear_lr_schedule=True,
    ),
    env=dict(id="Hopper-v5"),
    model=dict(normalize_observation=False),
    optim=dict(),
    runner=dict(n_steps=1e6, log_interval_steps=20_480),
    sampler=dict(batch_T=2048, batch_B=1, max_decorrelation_steps=0),
)

ppo_1M_cpu = variant(ppo_1M_serial, algo=dict(minibatches=1, epochs=32), sampler=dict(batch_T=256, batch_B=8))

configs = dict(
    ppo_1M_serial=ppo_1M_serial,
    ppo_1M_cpu=ppo_1M_cpu,
    ppo_32ep_1mb=variant(ppo_1M_cpu),
)
