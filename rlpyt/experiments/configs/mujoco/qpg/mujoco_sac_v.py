"""SAC with a state-value function, as first published, on continuous control."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.mujoco import qpg

classes = dict(qpg.classes, agent="rlpyt.agents.qpg.sac_v_agent.SacAgent", algo="rlpyt.algos.qpg.sac_v.SAC_V")
classes_by_key = dict(async_gpu=dict(sampler="rlpyt.samplers.async_.gpu_sampler.AsyncGpuSampler"))

sac_1M_serial = variant(
    qpg.base,
    agent=dict(v_model_kwargs=None),
    algo=dict(
        batch_size=256,
        replay_ratio=256,
        target_update_tau=0.005,
        target_update_interval=1,
        learning_rate=3e-4,
        reparameterize=True,
        policy_output_regularization=0.001,
        reward_scale=5,
    ),
    model=dict(),
    sampler=dict(eval_n_envs=6),
)

sac_serial_bstl = variant(sac_1M_serial, algo=dict(bootstrap_timelimit=True))

configs = dict(
    sac_1M_serial=sac_1M_serial,
    sac_serial_bstl=sac_serial_bstl,
    async_gpu=variant(sac_serial_bstl, algo=dict(updates_per_sync=1), sampler=dict(batch_T=5, batch_B=3)),
)
