"""SAC on continuous control."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.mujoco import qpg

classes = dict(qpg.classes, agent="rlpyt.agents.qpg.sac_agent.SacAgent", algo="rlpyt.algos.qpg.sac.SAC")

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
        reward_scale=1,
        target_entropy="auto",
    ),
    model=dict(),
    sampler=dict(eval_n_envs=4),
)

configs = dict(
    sac_1M_serial=sac_1M_serial,
    sac_serial_bstl=variant(sac_1M_serial, algo=dict(bootstrap_timelimit=True)),
)
