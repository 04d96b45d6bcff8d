"""SAC with a state-value function, as first published, on continuous control."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.qpg.sac_v_agent.SacAgent",
    algo="rlpyt.algos.qpg.sac_v.SAC_V",
    env="rlpyt.envs.gym.make",
    sampler="rlpyt.samplers.serial.sampler.SerialSampler",
)
classes_by_key = dict(async_gpu=dict(sampler="rlpyt.samplers.parallel.gpu.sampler.GpuSampler"))

sac_1M_serial = dict(
    agent=dict(model_kwargs=None, q_model_kwargs=None, v_model_kwargs=None),
    algo=dict(
        discount=0.99,
        batch_size=256,
        replay_ratio=256,
        target_update_tau=0.005,
        target_update_interval=1,
        learning_rate=3e-4,
        reparameterize=True,
        policy_output_regularization=0.001,
        reward_scale=5,
    ),
    env=dict(id="Hopper-v5"),
    model=dict(),
    optim=dict(),
    runner=dict(n_steps=1e6, log_interval_steps=1e4),
    sampler=dict(
        batch_T=1,
        batch_B=1,
        max_decorrelation_steps=0,
        eval_n_envs=6,
        eval_max_steps=51_000,
        eval_max_trajectories=50,
    ),
)

sac_serial_bstl = variant(sac_1M_serial, algo=dict(bootstrap_timelimit=True))

configs = dict(
    sac_1M_serial=sac_1M_serial,
    sac_serial_bstl=sac_serial_bstl,
    async_gpu=variant(sac_serial_bstl, algo=dict(updates_per_sync=1), sampler=dict(batch_T=5, batch_B=3)),
)
