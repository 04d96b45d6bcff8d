"""Variants of SAC with other critics, on continuous control, with the settings of the papers.

Where the papers choose a setting for each task, these have one for all:

- TQC drops 2 quantiles per critic. The paper drops 5 on Hopper and 0 on HalfCheetah.
- The target entropy of REDQ and DroQ is minus the number of action components. The papers take half of it on HalfCheetah, and a third on
  Hopper.
- The dropout rate of DroQ is 0.01. In the paper it differs from task to task. On Hopper it is 0.0001, which with that target entropy is
  ``algo.target_entropy=-1 agent.q_model_kwargs.dropout=0.0001``.

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

configs = dict(
    redq=variant(base, agent=dict(n_critics=10), algo=dict(many_updates, n_target_critics=2)),
    droq=variant(base, agent=dict(q_model_kwargs=dict(dropout=0.01, layer_norm=True)), algo=many_updates),
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
