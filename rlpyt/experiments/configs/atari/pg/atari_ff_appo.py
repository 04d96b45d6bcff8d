"""Asynchronous PPO with a feedforward network on Atari games: sampling continues while the agent trains."""

from typing import Any

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.atari.pg import atari_ff_ppo

classes = dict(
    agent="rlpyt.agents.pg.atari.AtariFfAgent",
    algo="rlpyt.algos.pg.appo.Appo",
    env="rlpyt.envs.atari.atari_env.AtariEnv",
    sampler="rlpyt.samplers.async_.cpu_sampler.AsyncCpuSampler",
    traj_info="rlpyt.envs.atari.atari_env.AtariTrajInfo",
)

base: dict[str, Any] = atari_ff_ppo.configs
configs = {key: variant(base[key]) for key in ("0", "pong_2M")}  # The settings of PPO.
