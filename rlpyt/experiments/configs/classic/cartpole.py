"""CartPole-v1, which counts as solved at a mean return of 475 of 500."""

from rlpyt.experiments.configs import variant

classes = dict(env="rlpyt.envs.gym.make", sampler="rlpyt.samplers.serial.sampler.SerialSampler")
classes_by_key = dict(
    ppo=dict(agent="rlpyt.agents.pg.mlp.MlpFfAgent", algo="rlpyt.algos.pg.ppo.PPO"),
    a2c=dict(agent="rlpyt.agents.pg.mlp.MlpFfAgent", algo="rlpyt.algos.pg.a2c.A2C"),
    appo=dict(
        agent="rlpyt.agents.pg.mlp.MlpFfAgent",
        algo="rlpyt.algos.pg.appo.Appo",
        sampler="rlpyt.samplers.async_.serial_sampler.AsyncSerialSampler",
    ),
    impala=dict(
        agent="rlpyt.agents.pg.mlp.MlpFfAgent",
        algo="rlpyt.algos.pg.impala.Impala",
        sampler="rlpyt.samplers.async_.serial_sampler.AsyncSerialSampler",
    ),
    dqn=dict(agent="rlpyt.agents.dqn.mlp_dqn_agent.MlpDqnAgent", algo="rlpyt.algos.dqn.dqn.DQN"),
    catdqn=dict(agent="rlpyt.agents.dqn.mlp_catdqn_agent.MlpCatDqnAgent", algo="rlpyt.algos.dqn.cat_dqn.CategoricalDQN"),
    rainbow=dict(agent="rlpyt.agents.dqn.mlp_catdqn_agent.MlpCatDqnAgent", algo="rlpyt.algos.dqn.cat_dqn.CategoricalDQN"),
    m_dqn=dict(agent="rlpyt.agents.dqn.mlp_dqn_agent.MlpDqnAgent", algo="rlpyt.algos.dqn.dqn.DQN"),
    qr_dqn=dict(agent="rlpyt.agents.dqn.mlp_quantile_agents.MlpQrDqnAgent", algo="rlpyt.algos.dqn.quantile_dqn.QuantileDQN"),
    iqn=dict(agent="rlpyt.agents.dqn.mlp_quantile_agents.MlpIqnAgent", algo="rlpyt.algos.dqn.quantile_dqn.QuantileDQN"),
    sac=dict(agent="rlpyt.agents.qpg.ensemble_sac_agent.DiscreteSacAgent", algo="rlpyt.algos.qpg.ensemble_sac.DiscreteSAC"),
    m_iqn=dict(agent="rlpyt.agents.dqn.mlp_quantile_agents.MlpIqnAgent", algo="rlpyt.algos.dqn.quantile_dqn.QuantileDQN"),
)

on_policy = dict(
    agent=dict(),
    algo=dict(),
    affinity=dict(master_torch_threads=1),  # Networks this small are faster on one thread.
    env=dict(id="CartPole-v1"),
    model=dict(),
    optim=dict(),
    runner=dict(log_interval_steps=5e3),
    sampler=dict(max_decorrelation_steps=0, eval_n_envs=10, eval_max_steps=10_000, eval_max_trajectories=20),
)

dqn = variant(
    on_policy,
    agent=dict(eps_final=0.02),
    algo=dict(
        learning_rate=5e-4,
        batch_size=64,
        min_steps_learn=1000,
        replay_size=50_000,
        replay_ratio=16,
        target_update_interval=500,
        n_step_return=5,
        double_dqn=True,
        eps_steps=5000,
    ),
    runner=dict(n_steps=100e3),
    sampler=dict(batch_T=4, batch_B=4),
)

catdqn = variant(dqn, algo=dict(V_min=0, V_max=100))  # 100 is the largest return at the discount of 0.99.
iqn = variant(dqn, agent=dict(n_quantiles=16, n_target_quantiles=16))
munchausen = dict(munchausen=True, double_dqn=False)

ppo = variant(
    on_policy,
    algo=dict(
        discount=0.98,
        learning_rate=1e-3,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.0,
        clip_grad_norm=0.5,
        gae_lambda=0.8,
        minibatches=1,
        epochs=20,
        ratio_clip=0.2,
        normalize_advantage=True,
    ),
    runner=dict(n_steps=100e3),
    sampler=dict(batch_T=32, batch_B=8),
)
a2c = variant(
    on_policy,
    algo=dict(learning_rate=2e-3, gae_lambda=0.95, entropy_loss_coeff=0.001, linear_lr_schedule=True),
    runner=dict(n_steps=200e3),
    sampler=dict(batch_T=8, batch_B=8),
)

configs = dict(
    ppo=ppo,
    a2c=a2c,
    appo=variant(ppo),  # The same settings, while sampling and training go on at the same time.
    impala=variant(a2c),
    dqn=dqn,
    catdqn=catdqn,
    rainbow=variant(
        catdqn,
        agent=dict(eps_init=0.0, eps_final=0.0),
        algo=dict(prioritized_replay=True, pri_beta_steps=100e3),
        model=dict(dueling=True, noisy=True),
    ),
    m_dqn=variant(dqn, algo=munchausen),
    qr_dqn=variant(dqn, agent=dict(n_quantiles=50)),
    iqn=iqn,
    m_iqn=variant(iqn, algo=munchausen),
    sac=variant(
        on_policy,
        agent=dict(q_model_kwargs=dict(hidden_sizes=[128, 128])),
        algo=dict(
            learning_rate=5e-4,
            batch_size=64,
            min_steps_learn=1000,
            replay_size=50_000,
            replay_ratio=16,
            n_step_return=5,
            target_update_tau=0.02,
            target_entropy=0.2,
        ),
        model=dict(hidden_sizes=[128, 128]),
        runner=dict(n_steps=100e3),
        sampler=dict(batch_T=4, batch_B=4),
    ),
)
