"""CartPole-v1 with observations of positions only: solved by remembering earlier positions."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.classic.cartpole import on_policy

classes = dict(env="rlpyt.experiments.envs.make_partial", sampler="rlpyt.samplers.serial.sampler.SerialSampler")
classes_by_key = dict(
    ppo_lstm=dict(
        agent="rlpyt.agents.pg.mlp.MlpLstmAgent",
        alternating_agent="rlpyt.agents.pg.mlp.AlternatingMlpLstmAgent",
        algo="rlpyt.algos.pg.ppo.PPO",
    ),
    r2d1=dict(
        agent="rlpyt.agents.dqn.mlp_r2d1_agent.MlpR2d1Agent",
        alternating_agent="rlpyt.agents.dqn.mlp_r2d1_agent.MlpR2d1AlternatingAgent",
        algo="rlpyt.algos.dqn.r2d1.R2D1",
    ),
    iqn_r2d1=dict(
        agent="rlpyt.agents.dqn.mlp_r2d1_agent.MlpIqnR2d1Agent",
        alternating_agent="rlpyt.agents.dqn.mlp_r2d1_agent.MlpIqnR2d1AlternatingAgent",
        algo="rlpyt.algos.dqn.quantile_r2d1.QuantileR2D1",
    ),
)

base = variant(on_policy, env=dict(components=[0, 2]))

configs = dict(
    ppo_lstm=variant(
        base,
        algo=dict(
            learning_rate=5e-3,
            gae_lambda=0.9,
            epochs=10,
            minibatches=8,
            ratio_clip=0.2,
            normalize_advantage=True,
            value_loss_coeff=0.01,  # Policy and value share all but the last layer: large errors of the value must not drown the policy.
            entropy_loss_coeff=0.001,
        ),
        runner=dict(n_steps=150e3),
        sampler=dict(batch_T=32, batch_B=32),
    ),
    r2d1=variant(  # An action matters for 150 steps: hence long n-step returns, and frequent target updates.
        base,
        agent=dict(eps_final=0.1, eps_final_min=0.001),
        algo=dict(
            discount=0.99,
            batch_T=16,
            warmup_T=4,
            batch_B=32,
            store_rnn_state_interval=4,
            min_steps_learn=2000,
            replay_size=200_000,
            replay_ratio=40,
            target_update_interval=100,
            n_step_return=10,
            learning_rate=2e-3,
            eps_steps=10_000,
            clip_grad_norm=10,
        ),
        runner=dict(n_steps=200e3),
        sampler=dict(batch_T=4, batch_B=16),
    ),
)
configs["iqn_r2d1"] = variant(configs["r2d1"], agent=dict(n_quantiles=16, n_target_quantiles=16, n_acting_quantiles=16))
