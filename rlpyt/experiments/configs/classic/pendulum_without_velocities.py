"""Pendulum-v1 with observations of the angle only, as cosine and sine: solved by remembering earlier angles."""

import copy
from typing import Any

import torch

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.classic import pendulum

classes = dict(env="rlpyt.experiments.envs.make_partial", sampler="rlpyt.samplers.serial.sampler.SerialSampler")
recurrent = dict(
    sac_lstm=dict(
        agent="rlpyt.agents.qpg.sac_lstm_agent.SacLstmAgent",
        alternating_agent="rlpyt.agents.qpg.sac_lstm_agent.AlternatingSacLstmAgent",
        algo="rlpyt.algos.qpg.recurrent.RecurrentSAC",
    ),
    td3_lstm=dict(
        agent="rlpyt.agents.qpg.td3_lstm_agent.Td3LstmAgent",
        alternating_agent="rlpyt.agents.qpg.td3_lstm_agent.AlternatingTd3LstmAgent",
        algo="rlpyt.algos.qpg.recurrent.RecurrentTD3",
    ),
    ppo_lstm=dict(
        agent="rlpyt.agents.pg.mujoco.MujocoLstmAgent",
        alternating_agent="rlpyt.agents.pg.mujoco.AlternatingMujocoLstmAgent",
        algo="rlpyt.algos.pg.ppo.PPO",
    ),
)
classes_by_key = dict(sac=pendulum.classes_by_key["sac"], **recurrent)


def remembering(config: dict, batch_T: int, warmup_T: int, batch_B: int, **network: Any) -> dict:
    """Return a configuration for transitions with an update per environment step on sequences, and recurrent networks instead."""
    algo = {name: value for name, value in config["algo"].items() if name not in ("batch_size", "replay_ratio")}
    sequences = dict(batch_T=batch_T, warmup_T=warmup_T, batch_B=batch_B, store_rnn_state_interval=max(warmup_T, 1))
    networks = dict(model_kwargs=network, q_model_kwargs=network)
    return copy.deepcopy(
        dict(config, agent={**config["agent"], **networks}, algo=dict(algo, **sequences, replay_ratio=(batch_T + warmup_T) * batch_B))
    )


def partial(config: dict) -> dict:
    """Return a configuration with observations of the angle only."""
    return variant(config, env=dict(components=[0, 1]))


sequences: dict[str, Any] = dict(batch_T=16, warmup_T=4, batch_B=16, hidden_sizes=[64], lstm_size=64, head_size=[128])

configs = dict(
    sac=partial(pendulum.configs["sac"]),
    sac_lstm=remembering(partial(pendulum.configs["sac"]), **sequences),
    # With the noise of `pendulum td3`, 0.2, runs learned after 8,000 to 16,000 steps, or not within 20,000.
    td3_lstm=remembering(partial(variant(pendulum.configs["td3"], agent=dict(action_std=0.8))), **sequences),
    ppo_lstm=dict(
        partial(pendulum.base),
        agent=dict(deterministic_eval=True, rescale_actions=True),
        algo=dict(
            discount=0.95,
            learning_rate=3e-3,
            value_loss_coeff=0.5,
            entropy_loss_coeff=0.0,
            clip_grad_norm=0.5,
            gae_lambda=0.95,
            minibatches=8,
            epochs=10,
            ratio_clip=0.2,
            normalize_advantage=True,
            normalize_reward=True,
        ),
        model=dict(hidden_sizes=[64], lstm_size=64, nonlinearity=torch.nn.Tanh),
        runner=dict(n_steps=200e3, log_interval_steps=20_480),
        sampler=dict(pendulum.base["sampler"], batch_T=64, batch_B=16),
    ),
)
