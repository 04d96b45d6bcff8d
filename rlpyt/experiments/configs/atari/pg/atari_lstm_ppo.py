"""PPO with a recurrent network on Atari games."""

classes = dict(
    agent="rlpyt.agents.pg.atari.AtariLstmAgent",
    alternating_agent="rlpyt.agents.pg.atari.AlternatingAtariLstmAgent",
    algo="rlpyt.algos.pg.ppo.PPO",
    env="rlpyt.envs.atari.atari_env.AtariEnv",
    sampler="rlpyt.samplers.parallel.cpu.sampler.CpuSampler",
    traj_info="rlpyt.envs.atari.atari_env.AtariTrajInfo",
)

configs = {
    "0": dict(
        agent=dict(),
        algo=dict(
            discount=0.99,
            learning_rate=1e-3,
            value_loss_coeff=1.0,
            entropy_loss_coeff=0.01,
            clip_grad_norm=1.0,
            gae_lambda=0.98,
            linear_lr_schedule=True,
        ),
        env=dict(game="pong", num_img_obs=1),
        model=dict(),
        optim=dict(),
        runner=dict(n_steps=50e6),
        sampler=dict(batch_T=64, batch_B=32, max_decorrelation_steps=1000),
    )
}
