"""DDPG on continuous control."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.mujoco import qpg

classes = dict(qpg.classes, agent="rlpyt.agents.qpg.ddpg_agent.DdpgAgent", algo="rlpyt.algos.qpg.ddpg.DDPG")
classes_by_key = dict(async_serial=dict(sampler="rlpyt.samplers.async_.serial_sampler.AsyncSerialSampler"))

ddpg_from_td3_1M_serial = variant(
    qpg.base,
    algo=dict(
        batch_size=100,
        replay_ratio=100,
        target_update_tau=0.01,
        target_update_interval=1,
        policy_update_interval=1,
        learning_rate=1e-3,
        q_learning_rate=1e-3,
    ),
    sampler=dict(eval_n_envs=5),
)

ddpg_from_td3_serial_bstl = variant(ddpg_from_td3_1M_serial, algo=dict(bootstrap_timelimit=True))

configs = dict(
    ddpg_from_td3_1M_serial=ddpg_from_td3_1M_serial,
    ddpg_from_td3_serial_bstl=ddpg_from_td3_serial_bstl,
    async_serial=variant(ddpg_from_td3_serial_bstl, algo=dict(updates_per_sync=1), sampler=dict(batch_T=5)),
)
