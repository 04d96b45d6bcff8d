"""Asynchronous PPO with a feedforward network on Atari games: sampling continues while the agent trains."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.atari.pg import atari_ff_ppo

classes = dict(
    agent="rlpyt.agents.pg.atari.AtariFfAgent",
    algo="rlpyt.algos.pg.appo.Appo",
    env="rlpyt.envs.atari.atari_env.AtariEnv",
    sampler="rlpyt.samplers.async_.cpu_sampler.AsyncCpuSampler",
    traj_info="rlpyt.envs.atari.atari_env.AtariTrajInfo",
)

configs = {key: variant(atari_ff_ppo.configs[key]) for key in ("0", "pong_2M")}  # The settings of PPO.
