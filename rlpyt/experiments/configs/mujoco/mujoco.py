"""Variants of SAC with other critics, on continuous control, with the settings of the papers.

The papers choose some settings for each task. Change these with the environment:

- The target entropy of REDQ and DroQ is -1, as in the papers for Hopper. For HalfCheetah and Walker2d it is -3 there, for Ant -4, and for
  Humanoid -2: ``env.id=HalfCheetah-v5 algo.target_entropy=-3``.
- The dropout rate of DroQ is 0.0001, as in the paper for Hopper. For Walker2d it is 0.005 there, for Ant 0.01, and for Humanoid 0.1:
  ``agent.q_model_kwargs.dropout=0.005``.
- TQC drops 2 quantiles per critic. The paper drops 5 on Hopper and 0 on HalfCheetah.

On a CPU, most of the time of CrossQ goes into critics of 2,048 units. With ``agent.q_model_kwargs.hidden_sizes=[256,256]`` it is some
twenty times as fast.

TQC begins to learn after 5,000 steps, like the others. Published code of TQC begins as soon as there is a batch.

Until learning begins, actions are not uniform: they are tanh of the initial policy's mean plus Gaussian noise with a standard deviation of
0.75 (`pretrain_std` of the agent).
"""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.classic.pendulum import ensemble
from rlpyt.experiments.configs.mujoco import qpg

classes = dict(qpg.classes, **ensemble)

base = variant(
    qpg.base,
    algo=dict(min_steps_learn=5000),
    runner=dict(n_steps=300e3, log_interval_steps=5e3),
    sampler=dict(eval_n_envs=5, eval_max_steps=10_000, eval_max_trajectories=10),
)
many_updates = dict(replay_ratio=20 * 256, policy_update_interval=20, policy_value="mean")
of_hopper = dict(many_updates, target_entropy=-1)

configs = dict(
    redq=variant(base, agent=dict(n_critics=10), algo=dict(of_hopper, n_target_critics=2)),
    droq=variant(base, agent=dict(q_model_kwargs=dict(dropout=1e-4, layer_norm=True)), algo=of_hopper),
    tqc=variant(base, agent=dict(n_critics=5, n_quantiles=25, q_model_kwargs=dict(hidden_sizes=[512] * 3)), algo=dict(policy_value="mean")),
    crossq=variant(
        base,
        agent=dict(
            target_networks=False,
            model_kwargs=dict(hidden_sizes=[256, 256], batch_renorm=True),
            q_model_kwargs=dict(hidden_sizes=[2048, 2048], batch_renorm=True),
        ),
        algo=dict(learning_rate=1e-3, policy_update_interval=3, optim_kwargs=dict(betas=(0.5, 0.999))),
    ),
)
