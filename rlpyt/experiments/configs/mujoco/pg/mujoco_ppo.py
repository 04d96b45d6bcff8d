"""PPO on continuous control."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.pg.mujoco.MujocoFfAgent",
    algo="rlpyt.algos.pg.ppo.PPO",
    env="rlpyt.envs.gym.make",
    sampler="rlpyt.samplers.parallel.cpu.sampler.CpuSampler",
)
serial = dict(sampler="rlpyt.samplers.serial.sampler.SerialSampler")
classes_by_key = dict(ppo_1M_serial=serial, ppo_1M_normalized=serial)

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

# What has become usual since: observations and rewards are normalized, layers initialized orthogonally, and the value loss clipped.
ppo_1M_normalized = variant(
    ppo_1M_serial,
    algo=dict(normalize_reward=True, clip_value_loss=True, value_loss_coeff=0.5, clip_grad_norm=0.5),
    affinity=dict(master_torch_threads=1),
    model=dict(normalize_observation=True, orthogonal_init=True, mu_nonlinearity=None),
    optim=dict(eps=1e-5),
)

configs = dict(
    ppo_1M_serial=ppo_1M_serial,
    ppo_1M_cpu=ppo_1M_cpu,
    ppo_1M_normalized=ppo_1M_normalized,
    ppo_32ep_1mb=variant(ppo_1M_cpu),
)
