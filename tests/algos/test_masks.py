"""No loss, target, priority or gradient depends on what a network says about masked actions."""

from functools import partial

import numpy as np
import pytest
import torch
from envs import make_masked
from tiers import thinned

from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent, MlpQrDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpIqnR2d1Agent, MlpQrR2d1Agent, MlpR2d1Agent
from rlpyt.agents.pg.composite import MlpCompositeFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpLstmAgent
from rlpyt.agents.qpg.ensemble_sac_agent import DiscreteSacAgent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN, scaled_log_policy
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.algos.dqn.quantile_r2d1 import QuantileR2D1
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.appo import Appo
from rlpyt.algos.pg.impala import Impala
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.ensemble_sac import DiscreteSAC
from rlpyt.distributions.epsilon_greedy import masked_q
from rlpyt.models.dqn.mlp_catdqn_model import MlpCatDqnModel
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel
from rlpyt.models.dqn.mlp_iqn_model import MlpIqnModel
from rlpyt.models.dqn.mlp_r2d1_model import MlpR2d1Model
from rlpyt.models.pg.mlp_composite_model import MlpCompositeFfModel
from rlpyt.models.pg.mlp_ff_model import MlpFfModel
from rlpyt.models.pg.mlp_lstm_model import MlpLstmModel
from rlpyt.models.qpg.ensemble import QEnsembleModel
from rlpyt.models.qpg.mlp import PiCategoricalMlpModel
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.serial.sampler import SerialSampler


def poisoned(ModelCls, sizes, of_critics=False):
    """A model whose outputs for masked actions, which the observation tells, are all `poison`.

    Its outputs are [*lead,n,...], or [*lead,n_critics,n] if `of_critics`.
    """

    class Poisoned(ModelCls):
        uses_prev_action = getattr(ModelCls, "uses_prev_action", True)

        def __init__(self, *args, poison, **kwargs):
            super().__init__(*args, **kwargs)
            self.poison = poison

        def forward(self, observation, *inputs):
            outputs = super().forward(observation, *inputs)
            first = outputs if isinstance(outputs, torch.Tensor) else outputs[0]
            parts = observation[..., :-1].bool().split(sizes, dim=-1)
            allowed = torch.cat([part | ~part.any(-1, keepdim=True) for part in parts], dim=-1)
            allowed = allowed.unsqueeze(-2) if of_critics else allowed.reshape(allowed.shape + (1,) * (first.dim() - allowed.dim()))
            first = torch.where(allowed, first, self.poison)
            return first if isinstance(outputs, torch.Tensor) else (first, *outputs[1:])

    return Poisoned


REPLAY = dict(min_steps_learn=24, replay_size=400, replay_ratio=2, learning_rate=1e-2, target_update_interval=3)
OF_SAC = dict(min_steps_learn=24, replay_size=400, replay_ratio=2, learning_rate=1e-2)
OF_R2D1 = dict(batch_T=4, batch_B=4, warmup_T=2, store_rnn_state_interval=2, n_step_return=2, **REPLAY)
ONE, SEVERAL = ("discrete", [6]), ("several", [3, 2, 4])
CASES = {
    "DQN": (DQN, dict(batch_size=16, **REPLAY), MlpDqnAgent, MlpDqnModel, ONE),
    "double, prioritized, three steps": (
        DQN, dict(batch_size=16, double_dqn=True, prioritized_replay=True, n_step_return=3, **REPLAY), MlpDqnAgent, MlpDqnModel, ONE,
    ),
    "categorical": (CategoricalDQN, dict(batch_size=16, **REPLAY), MlpCatDqnAgent, MlpCatDqnModel, ONE),
    "double, categorical": (CategoricalDQN, dict(batch_size=16, double_dqn=True, **REPLAY), MlpCatDqnAgent, MlpCatDqnModel, ONE),
    "Munchausen": (DQN, dict(batch_size=16, munchausen=True, **REPLAY), MlpDqnAgent, MlpDqnModel, ONE),
    "QR-DQN": (QuantileDQN, dict(batch_size=16, **REPLAY), MlpQrDqnAgent, MlpCatDqnModel, ONE),
    "double, QR-DQN": (QuantileDQN, dict(batch_size=16, double_dqn=True, **REPLAY), MlpQrDqnAgent, MlpCatDqnModel, ONE),
    "IQN": (QuantileDQN, dict(batch_size=16, **REPLAY), MlpIqnAgent, MlpIqnModel, ONE),
    "Munchausen IQN": (QuantileDQN, dict(batch_size=16, munchausen=True, **REPLAY), MlpIqnAgent, MlpIqnModel, ONE),
    "discrete SAC": (DiscreteSAC, dict(batch_size=16, **OF_SAC), DiscreteSacAgent, PiCategoricalMlpModel, ONE),
    "discrete SAC without target networks": (
        DiscreteSAC, dict(batch_size=16, **OF_SAC), partial(DiscreteSacAgent, target_networks=False), PiCategoricalMlpModel, ONE,
    ),
    "R2D1": (R2D1, OF_R2D1, MlpR2d1Agent, MlpR2d1Model, ONE),
    "R2D1 without double": (R2D1, dict(OF_R2D1, double_dqn=False), MlpR2d1Agent, MlpR2d1Model, ONE),
    "Munchausen R2D1": (R2D1, dict(OF_R2D1, munchausen=True), MlpR2d1Agent, MlpR2d1Model, ONE),
    "QR-R2D1": (QuantileR2D1, OF_R2D1, MlpQrR2d1Agent, MlpR2d1Model, ONE),
    "Munchausen IQN-R2D1": (QuantileR2D1, dict(OF_R2D1, munchausen=True), MlpIqnR2d1Agent, MlpR2d1Model, ONE),
    "A2C": (A2C, dict(gae_lambda=0.9), MlpFfAgent, MlpFfModel, ONE),
    "PPO": (PPO, dict(epochs=2, minibatches=2), MlpFfAgent, MlpFfModel, ONE),
    "PPO, recurrent": (PPO, dict(epochs=2, minibatches=2), MlpLstmAgent, MlpLstmModel, ONE),
    "PPO, several": (PPO, dict(epochs=2, minibatches=2), MlpCompositeFfAgent, MlpCompositeFfModel, SEVERAL),
}  # fmt: skip


class OldImpala(Impala):
    """Learns as if another policy had acted."""

    def initialize(self, *args, **kwargs):
        super().initialize(*args, **kwargs)
        self.policy_lag = 1


class OldAppo(Appo):
    """The same."""

    def initialize(self, *args, **kwargs):
        super().initialize(*args, **kwargs)
        self.policy_lag = 1


CASES |= {
    "Impala, an older policy acted": (OldImpala, dict(gae_lambda=0.9), MlpFfAgent, MlpFfModel, ONE),
    "Appo, an older policy acted": (OldAppo, dict(epochs=2, minibatches=2), MlpCompositeFfAgent, MlpCompositeFfModel, SEVERAL),
}

QUICK = [
    "double, prioritized, three steps",
    "categorical",
    "QR-DQN",
    "discrete SAC",
    "Munchausen R2D1",
    "PPO, several",
    "Impala, an older policy acted",
]


def train(name, poison, wait_reset):
    Algo, settings, AgentCls, ModelCls, (kind, sizes) = CASES[name]
    sampler = SerialSampler(
        make_masked, dict(kind=kind), batch_T=4, batch_B=4, CollectorCls=CpuWaitResetCollector if wait_reset else CpuResetCollector
    )
    model_kwargs = dict(poison=poison)
    if AgentCls is MlpCatDqnAgent:
        settings = dict(settings, V_min=-3, V_max=3)
    q_settings = {}
    if Algo is DiscreteSAC:
        model_kwargs["hidden_sizes"] = [32, 32]
        q_settings = dict(QModelCls=poisoned(QEnsembleModel, sizes, of_critics=True), q_model_kwargs=model_kwargs)
    runner = MinibatchRl(
        algo=Algo(**settings),
        agent=AgentCls(ModelCls=poisoned(ModelCls, sizes), model_kwargs=model_kwargs, **q_settings),
        sampler=sampler,
        n_steps=160,
        log_interval_steps=160,
        seed=0,
        affinity=dict(master_torch_threads=1),
    )
    losses = []
    optimize = runner.algo.optimize_agent

    def optimize_agent(*args, **kwargs):
        info = optimize(*args, **kwargs)
        losses.extend(np.ravel([getattr(info, name) for name in info._fields if name in ("loss", "qLoss", "piLoss")]))
        return info

    runner.algo.optimize_agent = optimize_agent
    runner.train()
    return losses, {name: tensor.numpy().copy() for name, tensor in _tensors(runner.agent.state_dict())}


def _tensors(state_dict, prefix=""):
    for name, value in state_dict.items():
        if isinstance(value, torch.Tensor):
            yield prefix + name, value
        else:
            yield from _tensors(value, f"{prefix}{name}.")


@pytest.mark.parametrize("poison", thinned([float("nan"), 1e30], [1e30]))
@pytest.mark.parametrize("name", thinned(CASES, QUICK))
def test_training_is_the_same_whatever_the_network_says_about_masked_actions(name, poison):
    wait_reset = name in ("R2D1", "Munchausen R2D1", "PPO, recurrent")
    losses, parameters = train(name, 0.5, wait_reset)
    others, poisoned_parameters = train(name, poison, wait_reset)
    assert len(losses) >= 3 and np.isfinite(losses).all() and others == losses
    assert all(np.array_equal(value, poisoned_parameters[name]) for name, value in parameters.items())


def test_values_and_rewards_of_munchausen_are_those_of_the_allowed_actions():
    algo, qs, mask = (
        DQN(munchausen=True, munchausen_min=-float("inf")),
        torch.randn(50, 6),
        torch.tensor([1, 0, 1, 1, 0, 0]).bool().expand(50, 6),
    )
    masked = masked_q(qs, mask)
    allowed = qs[mask].reshape(50, 3)
    torch.testing.assert_close(algo.next_values(masked, masked), algo.next_values(allowed, allowed))
    action = torch.full((50,), 2)
    rewards = algo.munchausen_reward(action, masked)
    torch.testing.assert_close(rewards, algo.munchausen_reward(action - 1, allowed))
    assert rewards.isfinite().all()


def test_values_of_munchausen_without_masks_are_those_of_its_formula_bit_for_bit():
    algo, qs, quantiles = DQN(munchausen=True), 3 * torch.randn(500, 6), torch.randn(500, 6, 8)
    scaled_log_pi = scaled_log_policy(qs, algo.munchausen_temperature)
    pi = (scaled_log_pi / algo.munchausen_temperature).exp()
    assert (pi == 0).any()
    assert torch.equal(algo.next_values(qs, qs), (pi * (qs - scaled_log_pi)).sum(dim=1))
    assert torch.equal(algo.next_values(quantiles, qs), (pi[..., None] * (quantiles - scaled_log_pi[..., None])).sum(dim=1))
