"""HalfCheetah-v5 with observations of positions only, 8 of 17 numbers."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.classic import pendulum_without_velocities as pendulum
from rlpyt.experiments.configs.mujoco import halfcheetah

classes = pendulum.classes
classes_by_key = dict(
    sac=halfcheetah.classes_by_key["sac_100k"],
    sac_lstm=pendulum.classes_by_key["sac_lstm"],
    ppo_lstm=pendulum.classes_by_key["ppo_lstm"],
)

sac = variant(halfcheetah.configs["sac_100k"], env=dict(components=list(range(8))))

configs = dict(
    sac=sac,
    sac_lstm=pendulum.remembering(sac, batch_T=16, warmup_T=8, batch_B=16, hidden_sizes=[128], lstm_size=128, head_size=[256, 256]),
    ppo_lstm=variant(
        pendulum.configs["ppo_lstm"],
        algo=dict(discount=0.99, learning_rate=3e-4, clip_value_loss=True),
        env=sac["env"],
        model=dict(hidden_sizes=[128], lstm_size=128, normalize_observation=True),
        optim=dict(eps=1e-5),
        runner=dict(n_steps=300e3),
        sampler=dict(eval_n_envs=5, eval_max_steps=10_000, eval_max_trajectories=10, batch_T=128),
    ),
)
