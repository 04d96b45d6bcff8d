"""Q-function policy gradient algorithms on continuous control."""

classes = dict(env="rlpyt.envs.gym.make", sampler="rlpyt.samplers.serial.sampler.SerialSampler")

base = dict(
    agent=dict(model_kwargs=None, q_model_kwargs=None),
    algo=dict(discount=0.99),
    env=dict(id="Hopper-v5"),
    optim=dict(),
    runner=dict(n_steps=1e6, log_interval_steps=1e4),
    sampler=dict(batch_T=1, batch_B=1, max_decorrelation_steps=0, eval_max_steps=51_000, eval_max_trajectories=50),
)
