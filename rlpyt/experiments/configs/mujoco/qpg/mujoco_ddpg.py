"""DDPG on continuous control."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.qpg.ddpg_agent.DdpgAgent",
    algo="rlpyt.algos.qpg.ddpg.DDPG",
    env="rlpyt.envs.gym.make",
    sampler="rlpyt.samplers.serial.sampler.SerialSampler",
)

ddpg_from_td3_1M_serial = dict(
    agent=dict(model_kwargs=None, q_model_kwargs=None),
    algo=dict(
        discount=0.99,
        batch_size=100,
        replay_ratio=100,
        target_update_tau=0.01,
        target_update_interval=1,
        policy_update_interval=1,
        learning_rate=1e-3,
        q_learning_rate=1e-3,
    ),
    env=dict(id="Hopper-v5"),
    optim=dict(),
    runner=dict(n_steps=1e6, log_interval_steps=1e4),
    sampler=dict(
        batch_T=1,
        batch_B=1,
        max_decorrelation_steps=0,
        eval_n_envs=5,
        eval_max_steps=51_000,
        eval_max_trajectories=50,
    ),
)

ddpg_from_td3_serial_bstl = variant(ddpg_from_td3_1M_serial, algo=dict(bootstrap_timelimit=True))

configs = dict(
    ddpg_from_td3_1M_serial=ddpg_from_td3_1M_serial,
    ddpg_from_td3_serial_bstl=ddpg_from_td3_serial_bstl,
    async_serial=variant(ddpg_from_td3_serial_bstl, algo=dict(updates_per_sync=1), sampler=dict(batch_T=5)),
)
