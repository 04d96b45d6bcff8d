"""Pendulum-v1: torque from -2 to 2, episodes of 200 steps that always end by the time limit."""

from rlpyt.experiments.configs import variant

classes = dict(env="rlpyt.envs.gym.make", sampler="rlpyt.samplers.serial.sampler.SerialSampler")
classes_by_key = dict(
    ddpg=dict(agent="rlpyt.agents.qpg.ddpg_agent.DdpgAgent", algo="rlpyt.algos.qpg.ddpg.DDPG"),
    td3=dict(agent="rlpyt.agents.qpg.td3_agent.Td3Agent", algo="rlpyt.algos.qpg.td3.TD3"),
    sac=dict(agent="rlpyt.agents.qpg.sac_agent.SacAgent", algo="rlpyt.algos.qpg.sac.SAC"),
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

configs = dict(
    ddpg=variant(base, agent=dict(action_std=0.2), algo=dict(learning_rate=1e-3, target_update_tau=0.005)),
    td3=variant(base, agent=dict(pretrain_std=2.0, action_std=0.2, target_noise_std=0.2)),
    sac=variant(base, agent=dict(action_squash=2.0), algo=dict(learning_rate=1e-3)),
)
