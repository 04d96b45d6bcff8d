"""DQN and its extensions on Atari games."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.dqn.atari.atari_dqn_agent.AtariDqnAgent",
    algo="rlpyt.algos.dqn.dqn.DQN",
    env="rlpyt.envs.atari.atari_env.AtariEnv",
    sampler="rlpyt.samplers.parallel.gpu.sampler.GpuSampler",
    traj_info="rlpyt.envs.atari.atari_env.AtariTrajInfo",
)
categorical = dict(
    agent="rlpyt.agents.dqn.atari.atari_catdqn_agent.AtariCatDqnAgent",
    algo="rlpyt.algos.dqn.cat_dqn.CategoricalDQN",
)
_by_quantiles = dict(algo="rlpyt.algos.dqn.quantile_dqn.QuantileDQN")
by_fixed_quantiles = dict(_by_quantiles, agent="rlpyt.agents.dqn.atari.atari_quantile_agents.AtariQrDqnAgent")
by_drawn_quantiles = dict(_by_quantiles, agent="rlpyt.agents.dqn.atari.atari_quantile_agents.AtariIqnAgent")
serial = dict(sampler="rlpyt.samplers.serial.sampler.SerialSampler")
cpu = dict(sampler="rlpyt.samplers.parallel.cpu.sampler.CpuSampler")
classes_by_key = dict(
    catdqn=categorical,
    ernbw=categorical,
    rainbow=categorical,
    qr_dqn=by_fixed_quantiles,
    iqn=by_drawn_quantiles,
    m_iqn=by_drawn_quantiles,
    rmsprop=dict(optim="torch.optim.RMSprop"),
    serial=serial,
    cpu=cpu,
    debug=serial,
    debug_vec_eps=cpu,
    async_big=dict(sampler="rlpyt.samplers.async_.gpu_sampler.AsyncGpuSampler"),
)

dqn = dict(
    agent=dict(),
    algo=dict(
        discount=0.99,
        batch_size=128,
        learning_rate=1e-4,
        clip_grad_norm=10.0,
        min_steps_learn=50_000,
        double_dqn=False,
        prioritized_replay=False,
        n_step_return=1,
        replay_size=1_000_000,
    ),
    env=dict(game="pong", episodic_lives=True),
    eval_env=dict(game="pong", episodic_lives=False, horizon=27_000),
    model=dict(dueling=False),
    optim=dict(),
    runner=dict(n_steps=50e6, log_interval_steps=1e6),
    sampler=dict(
        batch_T=2,
        batch_B=16,
        max_decorrelation_steps=1000,
        eval_n_envs=4,
        eval_max_steps=125_000,
        eval_max_trajectories=100,
    ),
)

double_pri_duel = variant(dqn, algo=dict(double_dqn=True, prioritized_replay=True), model=dict(dueling=True))

# Updates as published: 32 transitions for every 4 steps; target networks follow every 10,000 steps.
published = variant(dqn, algo=dict(batch_size=32, target_update_interval=2500))
quantiles = variant(published, algo=dict(learning_rate=5e-5, clip_grad_norm=1e9))
munchausen = dict(munchausen=True)

debug = variant(
    dqn,
    algo=dict(replay_size=1e4, min_steps_learn=1e4, eps_steps=2e4),
    runner=dict(n_steps=3e4, log_interval_steps=1e4),
    sampler=dict(batch_T=8, batch_B=2, max_decorrelation_steps=20, eval_max_steps=8e3, eval_max_trajectories=4),
)

configs = dict(
    dqn=dqn,
    double=variant(dqn, algo=dict(double_dqn=True)),
    prioritized=variant(dqn, algo=dict(prioritized_replay=True)),
    dueling=variant(dqn, model=dict(dueling=True)),
    double_pri_duel=double_pri_duel,
    catdqn=variant(dqn, algo=dict(learning_rate=2.5e-4)),
    ernbw=variant(double_pri_duel, algo=dict(n_step_return=3, learning_rate=6.25e-5)),
    rainbow=variant(
        published,
        agent=dict(eps_init=0.0, eps_final=0.0),
        algo=dict(
            double_dqn=True,
            learning_rate=6.25e-5,
            min_steps_learn=20_000,
            n_step_return=3,
            prioritized_replay=True,
            pri_alpha=0.5,
            target_update_interval=2000,
        ),
        model=dict(dueling=True, noisy=True),
        optim=dict(eps=1.5e-4),
    ),
    m_dqn=variant(published, algo=dict(munchausen, learning_rate=5e-5)),
    qr_dqn=quantiles,
    iqn=variant(quantiles),
    m_iqn=variant(quantiles, algo=munchausen),
    rmsprop=variant(dqn, algo=dict(learning_rate=2.5e-4), optim=dict(alpha=0.95, eps=1e-6), runner=dict(n_steps=15e6)),
    fast_log=variant(
        dqn,
        runner=dict(n_steps=15e6, log_interval_steps=1e5),
        sampler=dict(eval_max_steps=70e3, eval_max_trajectories=50),
    ),
    short_run=variant(dqn, runner=dict(n_steps=15e6)),
    no_eval=variant(dqn, runner=dict(log_interval_steps=100_000), sampler=dict(eval_n_envs=0)),
    serial=variant(dqn, sampler=dict(batch_T=8, batch_B=2)),
    cpu=variant(dqn, sampler=dict(batch_T=4, batch_B=4)),
    debug=debug,
    debug_vec_eps=variant(debug, agent=dict(eps_final_min=0.001), sampler=dict(batch_T=4, batch_B=4)),
    async_big=variant(dqn, sampler=dict(batch_T=4, batch_B=256, eval_n_envs=10)),
    pong_1M=variant(  # Learning and exploration begin and end early, and target networks follow every 1,000 steps.
        dqn,
        algo=dict(
            batch_size=32,
            min_steps_learn=20_000,
            eps_steps=100_000,
            target_update_interval=250,
            replay_size=100_000,
        ),
        runner=dict(n_steps=1e6, log_interval_steps=1e5),
        sampler=dict(eval_max_trajectories=10),
    ),
)
