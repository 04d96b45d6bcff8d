"""Pendulum-v1: torque from -2 to 2, episodes of 200 steps that always end by the time limit."""

from rlpyt.experiments.configs import variant

classes = dict(env="rlpyt.envs.gym.make", sampler="rlpyt.samplers.serial.sampler.SerialSampler")
ensemble = dict(agent="rlpyt.agents.qpg.ensemble_sac_agent.EnsembleSacAgent", algo="rlpyt.algos.qpg.ensemble_sac.EnsembleSAC")
classes_by_key = dict(
    ddpg=dict(agent="rlpyt.agents.qpg.ddpg_agent.DdpgAgent", algo="rlpyt.algos.qpg.ddpg.DDPG"),
    td3=dict(agent="rlpyt.agents.qpg.td3_agent.Td3Agent", algo="rlpyt.algos.qpg.td3.TD3"),
    sac=dict(agent="rlpyt.agents.qpg.sac_agent.SacAgent", algo="rlpyt.algos.qpg.sac.SAC"),
    **dict.fromkeys(("redq", "droq", "tqc", "crossq"), ensemble),
)


def networks(*hidden_sizes: int) -> dict:
    """Settings of the agent: hidden layers of its policy, and of its Q-functions."""
    return dict(model_kwargs=dict(hidden_sizes=list(hidden_sizes)), q_model_kwargs=dict(hidden_sizes=list(hidden_sizes)))


base = dict(
    agent=networks(64, 64),
    algo=dict(min_steps_learn=1000, replay_size=50_000, batch_size=128, replay_ratio=128),
    affinity=dict(master_torch_threads=1),
    env=dict(id="Pendulum-v1"),
    optim=dict(),
    runner=dict(n_steps=20e3, log_interval_steps=1e3),
    sampler=dict(batch_T=1, batch_B=1, max_decorrelation_steps=0, eval_n_envs=10, eval_max_steps=4000, eval_max_trajectories=20),
)

sac = variant(base, agent=dict(action_squash=2.0), algo=dict(learning_rate=1e-3))
many_updates = dict(replay_ratio=20 * 128, policy_update_interval=20, policy_value="mean")

configs = dict(
    ddpg=variant(base, agent=dict(action_std=0.2), algo=dict(learning_rate=1e-3, target_update_tau=0.005)),
    td3=variant(base, agent=dict(pretrain_std=2.0, action_std=0.2, target_noise_std=0.2)),
    sac=sac,
    redq=variant(sac, agent=dict(n_critics=10), algo=dict(many_updates, n_target_critics=2)),
    droq=variant(sac, agent=dict(q_model_kwargs=dict(dropout=0.01, layer_norm=True)), algo=many_updates),
    tqc=variant(sac, agent=dict(n_critics=5, n_quantiles=25), algo=dict(policy_value="mean")),
    crossq=variant(
        sac,
        agent=dict(
            target_networks=False,
            model_kwargs=dict(batch_renorm=True),
            q_model_kwargs=dict(hidden_sizes=[256, 256], batch_renorm=True),
        ),
        algo=dict(policy_update_interval=3, optim_kwargs=dict(betas=(0.5, 0.999))),
    ),
)
