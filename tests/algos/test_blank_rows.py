"""Rows with which a vector of environments resets itself are in no loss, no replay sample, and no running mean."""

import numpy as np
import pytest
import torch
from envs import make_gym_vector
from tiers import thinned

from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent, MlpQrDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpLstmAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent, MujocoLstmAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.ensemble_sac_agent import DiscreteSacAgent, EnsembleSacAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_lstm_agent import SacLstmAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as SacVAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.agents.qpg.td3_lstm_agent import Td3LstmAgent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.appo import Appo
from rlpyt.algos.pg.impala import Impala
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.ensemble_sac import DiscreteSAC, EnsembleSAC
from rlpyt.algos.qpg.recurrent import RecurrentSAC, RecurrentTD3
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.sac_v import SAC_V
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.envs.vector import VectorEnvs
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.types import as_recorded
from rlpyt.utils.seed import set_seed

T, B = 10, 6
OFF_POLICY = dict(min_steps_learn=60, batch_size=16, replay_size=600, replay_ratio=1)
R2D1_SETTINGS = dict(min_steps_learn=60, replay_size=600, batch_T=5, batch_B=4, warmup_T=3, store_rnn_state_interval=5, replay_ratio=1)
SEQUENCES = R2D1_SETTINGS
RENORM = dict(model_kwargs=dict(batch_renorm=True), q_model_kwargs=dict(batch_renorm=True))
RMS = dict(model_kwargs=dict(normalize_observation=True))
CASES = {
    "A2C": lambda: (A2C(), MlpFfAgent()),
    "A2C, normalized": lambda: (A2C(normalize_advantage=True, gae_lambda=0.9), MujocoFfAgent(**RMS)),
    "A2C, recurrent": lambda: (A2C(), MlpLstmAgent()),
    "PPO": lambda: (PPO(), MlpFfAgent()),
    "PPO, normalized": lambda: (PPO(normalize_advantage=True, gae_lambda=0.9), MujocoFfAgent(**RMS)),
    "PPO, scaled rewards": lambda: (PPO(normalize_reward=True, clip_value_loss=True), MlpFfAgent()),
    "PPO, recurrent": lambda: (PPO(minibatches=6), MujocoLstmAgent(**RMS)),
    "DQN": lambda: (DQN(**OFF_POLICY), MlpDqnAgent()),
    "DQN, n-step": lambda: (DQN(**OFF_POLICY, n_step_return=3, double_dqn=True), MlpDqnAgent()),
    "DQN, prioritized": lambda: (DQN(**OFF_POLICY, prioritized_replay=True), MlpDqnAgent()),
    "CatDQN": lambda: (CategoricalDQN(**OFF_POLICY), MlpCatDqnAgent()),
    "R2D1": lambda: (R2D1(**R2D1_SETTINGS), MlpR2d1Agent()),
    "R2D1, input priorities": lambda: (R2D1(**R2D1_SETTINGS, prioritized_replay=True, input_priorities=True), MlpR2d1Agent()),
    "DDPG": lambda: (DDPG(**OFF_POLICY), DdpgAgent()),
    "TD3": lambda: (TD3(**OFF_POLICY), Td3Agent()),
    "SAC": lambda: (SAC(**OFF_POLICY), SacAgent()),
    "IMPALA": lambda: (Impala(), MlpFfAgent()),
    "IMPALA, recurrent": lambda: (Impala(), MlpLstmAgent()),
    "APPO": lambda: (Appo(), MlpFfAgent()),
    "APPO, recurrent": lambda: (Appo(minibatches=6), MujocoLstmAgent()),
    "IMPALA, lag": lambda: (Impala(gae_lambda=0.9, normalize_advantage=True), MlpFfAgent()),
    "IMPALA, lag, recurrent": lambda: (Impala(), MlpLstmAgent()),
    "APPO, lag": lambda: (Appo(clip_value_loss=True), MlpFfAgent()),
    "APPO, lag, recurrent": lambda: (Appo(minibatches=6), MlpLstmAgent()),
    "QR-DQN": lambda: (QuantileDQN(**OFF_POLICY), MlpQrDqnAgent()),
    "IQN, Munchausen": lambda: (QuantileDQN(**OFF_POLICY, munchausen=True), MlpIqnAgent()),
    "SAC, truncated quantiles": lambda: (EnsembleSAC(**OFF_POLICY), EnsembleSacAgent(n_critics=3, n_quantiles=5)),
    "SAC, batch renormalization": lambda: (EnsembleSAC(**OFF_POLICY), EnsembleSacAgent(target_networks=False, **RENORM)),
    "discrete actions": lambda: (DiscreteSAC(**OFF_POLICY), DiscreteSacAgent()),
    "SAC with V": lambda: (SAC_V(**OFF_POLICY), SacVAgent()),
    "SAC, recurrent": lambda: (RecurrentSAC(**SEQUENCES), SacLstmAgent()),
    "TD3, recurrent": lambda: (RecurrentTD3(**SEQUENCES), Td3LstmAgent()),
}
CONTINUOUS = ("normalized", "DDPG", "TD3", "SAC", "PPO, recurrent")


def nothing(samples):
    pass


def nan_in_blanks(samples):
    blank = ~samples.env.valid
    for x in (samples.env.observation, samples.env.reward):
        x[blank] = float("nan")


def train(name, spoil, n_itr=8):
    """Train; return all parameters and statistics in the end, and the blank rows there were. `spoil` changes each batch first."""
    set_seed(0)
    algo, agent = CASES[name]()
    n_actions = 0 if any(each in name for each in CONTINUOUS) else 3
    sampler = SerialSampler(
        VectorEnvs(make_gym_vector), dict(n_actions=n_actions, lengths=(4, 1, 9, 6)), batch_T=T, batch_B=B, max_decorrelation_steps=0
    )
    examples = sampler.initialize(agent, seed=1, bootstrap_value=algo.bootstrap_value)
    algo.initialize(agent, n_itr, sampler.batch_spec, sampler.mid_batch_reset, examples)
    n_blank = 0
    for itr in range(n_itr):
        agent.sample_mode(itr)
        samples, _ = sampler.obtain_samples(itr)
        n_blank += int((~samples.env.valid).sum())
        agent.train_mode(itr)
        spoil(samples)
        if "lag" in name:
            algo.policy_lag = 1
        algo.optimize_agent(itr, samples)
    sampler.shutdown()
    return {name: value.clone() for model in agent.named_models().values() for name, value in model.state_dict().items()}, n_blank


@pytest.mark.parametrize("name", thinned(CASES, quick=["A2C, recurrent", "PPO, normalized", "DQN, n-step", "R2D1", "SAC"]))
def test_what_blank_rows_hold_does_not_matter(name):
    (clean, n_blank), (spoiled, _) = train(name, nothing), train(name, nan_in_blanks)
    assert n_blank > 50
    for parameter, value in clean.items():
        assert torch.isfinite(value.float()).all(), parameter
        assert torch.equal(value, spoiled[parameter]), parameter


@pytest.mark.parametrize("name", ["DQN", "DQN, prioritized", "R2D1", "SAC"])
def test_blank_rows_are_not_replayed(name):
    set_seed(0)
    algo, agent = CASES[name]()
    n_actions = 0 if name == "SAC" else 3
    sampler = SerialSampler(VectorEnvs(make_gym_vector), dict(n_actions=n_actions), batch_T=T, batch_B=B, max_decorrelation_steps=0)
    examples = sampler.initialize(agent, seed=1)
    algo.initialize(agent, 9, sampler.batch_spec, sampler.mid_batch_reset, examples)
    for itr in range(6):
        algo.append(as_recorded(sampler.obtain_samples(itr)[0]))
    sampler.shutdown()
    for _ in range(20):
        batch = algo.replay_buffer.sample_batch(64)
        if name == "R2D1":  # All observations of steps have a code, and blank ones are zeros.
            blank = ~batch.all_observation[: len(batch.valid)].any(dim=-1)
            assert blank.any() and not batch.valid[blank].any()
        else:
            assert batch.agent_inputs.observation.any(dim=-1).all()


@pytest.mark.parametrize("make", [A2C, lambda: PPO(minibatches=2, normalize_advantage=True)])
def test_a_recurrent_agent_learns_nothing_from_a_batch_whose_columns_all_begin_blank(make):
    set_seed(0)
    algo, agent = make(), MlpLstmAgent()
    env_kwargs = dict(lengths=(5,), ends=("terminated",))
    sampler = SerialSampler(VectorEnvs(make_gym_vector), env_kwargs, batch_T=5, batch_B=2, max_decorrelation_steps=0)
    examples = sampler.initialize(agent, seed=1, bootstrap_value=True)
    algo.initialize(agent, 9, sampler.batch_spec, sampler.mid_batch_reset, examples)
    for itr in range(2):
        agent.sample_mode(itr)
        samples, _ = sampler.obtain_samples(itr)
        agent.train_mode(itr)
        info = algo.optimize_agent(itr, samples)
    assert not samples.env.valid[0].any()
    assert np.isfinite(info.loss).all() and not np.any(info.gradNorm)
    sampler.shutdown()
