"""TD3 on continuous control."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.qpg.td3_agent.Td3Agent",
    algo="rlpyt.algos.qpg.td3.TD3",
    env="rlpyt.envs.gym.make",
    sampler="rlpyt.samplers.serial.sampler.SerialSampler",
)
classes_by_key = dict(async_cpu=dict(sampler="rlpyt.samplers.parallel.cpu.sampler.CpuSampler"))

td3_1M_serial = dict(
    agent=dict(model_kwargs=None, q_model_kwargs=None),
    algo=dict(
        discount=0.99,
        batch_size=100,
        replay_ratio=100,
        target_update_tau=0.005,
        target_update_interval=2,
        policy_update_interval=2,
        mu_learning_rate=1e-3,
        q_learning_rate=1e-3,
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

td3_serial_bstl = variant(td3_1M_serial, algo=dict(bootstrap_timelimit=True))

configs = dict(
    td3_1M_serial=td3_1M_serial,
    td3_serial_bstl=td3_serial_bstl,
    async_cpu=variant(td3_serial_bstl, algo=dict(updates_per_sync=1), sampler=dict(batch_T=5, batch_B=3)),
)
