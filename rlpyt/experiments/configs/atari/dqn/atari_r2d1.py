"""R2D1 on Atari games: R2D2 (Kapturowski et al. 2019) on one machine."""

from rlpyt.experiments.configs import variant

classes = dict(
    agent="rlpyt.agents.dqn.atari.atari_r2d1_agent.AtariR2d1Agent",
    alternating_agent="rlpyt.agents.dqn.atari.atari_r2d1_agent.AtariR2d1AlternatingAgent",
    algo="rlpyt.algos.dqn.r2d1.R2D1",
    env="rlpyt.envs.atari.atari_env.AtariEnv",
    sampler="rlpyt.samplers.parallel.gpu.sampler.GpuSampler",
    traj_info="rlpyt.envs.atari.atari_env.AtariTrajInfo",
)
async_gpu = dict(sampler="rlpyt.samplers.async_.gpu_sampler.AsyncGpuSampler")
async_alternating = dict(sampler="rlpyt.samplers.async_.alternating_sampler.AsyncAlternatingSampler")
classes_by_key = dict(
    async_gpu=async_gpu,
    async_gpu_dgx=async_gpu,
    async_alt_pabti=async_alternating,
    async_alt_dgx=async_alternating,
    async_alt_got=async_alternating,
)

r2d1 = dict(
    agent=dict(),
    model=dict(dueling=True),
    algo=dict(
        discount=0.997,
        batch_T=80,
        batch_B=32,
        warmup_T=40,
        store_rnn_state_interval=40,
        replay_ratio=4,
        learning_rate=1e-4,
        clip_grad_norm=80.0,
        min_steps_learn=100_000,
        double_dqn=True,
        prioritized_replay=True,
        n_step_return=5,
        pri_alpha=0.9,
        pri_beta_init=0.6,
        pri_beta_final=0.6,
        input_priority_shift=2,
    ),
    optim=dict(),
    env=dict(game="pong", episodic_lives=True, clip_reward=False, horizon=27_000, num_img_obs=4),
    eval_env=dict(game="pong", episodic_lives=False, horizon=27_000, clip_reward=False, num_img_obs=4),
    runner=dict(n_steps=100e6, log_interval_steps=1e6),
    sampler=dict(
        batch_T=30,
        batch_B=32,
        max_decorrelation_steps=1000,
        eval_n_envs=4,
        eval_max_steps=161_000,
        eval_max_trajectories=100,
    ),
)

r2d1_long = variant(
    r2d1,
    agent=dict(eps_final=0.1, eps_final_min=0.0005),
    algo=dict(replay_size=4_000_000, batch_B=64, replay_ratio=1),
    env=dict(episodic_lives=False),
    runner=dict(n_steps=20e9, log_interval_steps=10e6),
    sampler=dict(batch_T=40, batch_B=192, eval_n_envs=6, eval_max_steps=168_000),
)

r2d1_profile = variant(
    r2d1_long,
    algo=dict(min_steps_learn=5e4),
    runner=dict(n_steps=1e6, log_interval_steps=1e6),
    sampler=dict(eval_max_trajectories=2),
)

configs = dict(
    r2d1=r2d1,
    r2d1_long=r2d1_long,
    r2d1_profile=r2d1_profile,
    r2d1_prof_halftrain=variant(r2d1_profile, algo=dict(replay_ratio=0.5, batch_B=32)),
    r2d1_prof_quartertrain=variant(r2d1_profile, algo=dict(replay_ratio=0.25, batch_B=16)),
    r2d1_long_4tr=variant(r2d1_long, algo=dict(replay_ratio=4), sampler=dict(eval_n_envs=12, eval_max_steps=336_000)),
    async_gpu=variant(r2d1_long, sampler=dict(batch_B=256, eval_n_envs=20, eval_max_steps=560_000)),
    r2d1_test=variant(
        r2d1_long,
        algo=dict(
            batch_T=10,
            batch_B=16,
            warmup_T=5,
            store_rnn_state_interval=5,
            min_steps_learn=1e4,
            replay_size=100_000,
            eps_steps=1e5,
        ),
        env=dict(episodic_lives=True),
        runner=dict(log_interval_steps=1e5),
        sampler=dict(
            batch_T=5,
            batch_B=8,
            max_decorrelation_steps=20,
            eval_n_envs=8,
            eval_max_steps=12_000,
            eval_max_trajectories=8,
        ),
    ),
    # For larger machines.
    async_alt_pabti=variant(
        r2d1_long,
        sampler=dict(batch_B=264, eval_n_envs=44, eval_max_steps=1_232_000, eval_max_trajectories=120),
    ),
    async_alt_dgx=variant(
        r2d1_long,
        sampler=dict(batch_B=312, eval_n_envs=78, eval_max_steps=2_184_000, eval_max_trajectories=210),
    ),
    async_alt_got=variant(r2d1_long, sampler=dict(batch_B=252, eval_n_envs=36, eval_max_steps=1_008_000)),
    async_gpu_dgx=variant(
        r2d1_long,
        sampler=dict(batch_B=312, eval_n_envs=39, eval_max_steps=1_092_000, eval_max_trajectories=210),
    ),
)
