"""TD3 on continuous control."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.mujoco import qpg

classes = dict(qpg.classes, agent="rlpyt.agents.qpg.td3_agent.Td3Agent", algo="rlpyt.algos.qpg.td3.TD3")
classes_by_key = dict(async_cpu=dict(sampler="rlpyt.samplers.async_.cpu_sampler.AsyncCpuSampler"))

td3_1M_serial = variant(
    qpg.base,
    algo=dict(
        batch_size=100,
        replay_ratio=100,
        target_update_tau=0.005,
        target_update_interval=2,
        policy_update_interval=2,
        learning_rate=1e-3,
        q_learning_rate=1e-3,
    ),
    model=dict(),
    sampler=dict(eval_n_envs=6),
)

td3_serial_bstl = variant(td3_1M_serial, algo=dict(bootstrap_timelimit=True))

configs = dict(
    td3_1M_serial=td3_1M_serial,
    td3_serial_bstl=td3_serial_bstl,
    async_cpu=variant(td3_serial_bstl, algo=dict(updates_per_sync=1), sampler=dict(batch_T=5, batch_B=3)),
)
