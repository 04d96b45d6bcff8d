"""SAC on continuous control."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.qpg.sac_agent.SacAgent",
    algo="rlpyt.algos.qpg.sac.SAC",
    env="rlpyt.envs.gym.make",
    sampler="rlpyt.samplers.serial.sampler.SerialSampler",
)

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
        reward_scale=1,
        target_entropy="auto",
    ),
    env=dict(id="Hopper-v5"),
    model=dict(),
    optim=dict(),
    runner=dict(n_steps=1e6, log_interval_steps=1e4),
    sampler=dict(
        batch_T=1,
        batch_B=1,
        max_decorrelation_steps=0,
        eval_n_envs=4,
        eval_max_steps=51_000,
        eval_max_trajectories=50,
    ),
)

configs = dict(
    sac_1M_serial=sac_1M_serial,
    sac_serial_bstl=variant(sac_1M_serial, algo=dict(bootstrap_timelimit=True)),
)
