import re

import numpy as np
import pytest
import torch

from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as WithValue
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.hyperparameters import Number
from rlpyt.algos.offline.iql import IQL
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.appo import Appo
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.sac import SAC


@pytest.mark.parametrize(
    "Algo,wrong",
    [
        (A2C, dict(learning_rate=-1e-3)),
        (A2C, dict(learning_rate="fast")),
        (A2C, dict(learning_rate=float("nan"))),
        (A2C, dict(discount=1.5)),
        (A2C, dict(gae_lambda=-0.1)),
        (A2C, dict(clip_grad_norm=0)),
        (A2C, dict(OptimCls="Adam")),
        (A2C, dict(optim_kwargs=[1])),
        (A2C, dict(initial_optim_state_dict="path")),
        (PPO, dict(minibatches=0)),
        (PPO, dict(minibatches=2.5)),
        (PPO, dict(epochs=0)),
        (PPO, dict(epochs=float("inf"))),
        (PPO, dict(ratio_clip=0)),
        (PPO, dict(entropy_loss_coeff=None)),
        (DQN, dict(batch_size=0)),
        (DQN, dict(learning_rate=-1)),
        (DQN, dict(delta_clip=0)),
        (DQN, dict(replay_ratio=0)),
        (DQN, dict(replay_size=-1)),
        (DQN, dict(n_step_return=0)),
        (DQN, dict(target_update_tau=2)),
        (DQN, dict(target_update_interval=0)),
        (DQN, dict(min_steps_learn=-1)),
        (DQN, dict(double_dqn=True, discount=True)),
        (CategoricalDQN, dict(V_min=float("-inf"))),
        (CategoricalDQN, dict(V_max=float("inf"))),
        (CategoricalDQN, dict(V_min=2, V_max=2)),
    ],
)
def test_an_impossible_setting_is_refused_by_name_value_and_what_is_allowed(Algo, wrong):
    name, value = list(wrong.items())[-1]
    with pytest.raises(ValueError) as error:
        Algo(**wrong)
    message = str(error.value)
    assert Algo.__name__ in message and f"{name}={value!r}" in message and "it must be" in message


def test_settings_are_attributes_under_their_own_names():
    algo = DQN(batch_size=16, min_steps_learn=1e3, delta_clip=None)
    assert (algo.batch_size, algo.min_steps_learn, algo.delta_clip, algo.discount) == (16, 1e3, None, 0.99)
    assert algo.optim_kwargs == dict(eps=0.01 / 16) and algo.default_priority == 1.0
    algo = PPO(ratio_clip=0.2, OptimCls=torch.optim.SGD)
    assert (algo.ratio_clip, algo.OptimCls, algo.optim_kwargs, algo.linear_lr_schedule) == (0.2, torch.optim.SGD, {}, True)


def test_whole_numbers_are_stored_as_int():
    ppo, dqn = PPO(epochs=2.0, minibatches=np.int64(4)), DQN(replay_size=1e4, batch_size=8.0, n_step_return=2.0, eps_steps=1e3)
    values = ppo.epochs, ppo.minibatches, dqn.replay_size, dqn.batch_size, dqn.n_step_return, dqn.eps_steps, dqn.target_update_interval
    assert values == (2, 4, 10000, 8, 2, 1000, 312)
    assert all(type(value) is int for value in values)


@pytest.mark.parametrize(
    "number,text",
    [
        (Number(0, 1), "a number at least 0 and at most 1"),
        (Number(0, above=True), "a number above 0"),
        (Number(1, whole=True, optional=True), "a whole number at least 1, or None"),
        (Number(), "a number"),
        (Number(-10, above=True, finite=True), "a finite number above -10"),
    ],
)
def test_what_is_allowed_reads_as_a_sentence(number, text):
    assert str(number) == text


def test_subclasses_keep_their_own_defaults():
    class Mine(A2C):
        def __init__(self, learning_rate=0.5, mine=3, **kwargs):
            self.mine = mine
            super().__init__(learning_rate=learning_rate, **kwargs)

    assert (Mine().learning_rate, Mine().mine, Mine(learning_rate=0.1).learning_rate) == (0.5, 3, 0.1)


# --- Settings that another one switches off -----------------------------------------------------------------------------
IDLE = [
    (PPO, dict(desired_kl=0.02), 'lr_schedule="adaptive"', dict(lr_schedule="adaptive")),
    (Appo, dict(desired_kl=0.02, lr_schedule="linear"), 'lr_schedule="adaptive"', dict(lr_schedule="adaptive")),
    (PPO, dict(target_kl=0.02, epochs=1), "epochs above 1", dict(epochs=2)),
    (A2C, dict(entropy_coeff_schedule="linear", entropy_loss_coeff=0.0), "entropy_loss_coeff other than 0", dict(entropy_loss_coeff=0.1)),
    (DQN, dict(munchausen_temperature=0.1), "munchausen=True", dict(munchausen=True)),
    (QuantileDQN, dict(munchausen_min=-2.0), "munchausen=True", dict(munchausen=True)),
    (DQN, dict(munchausen_alpha=0.5), "munchausen=True", dict(munchausen=True)),
    (SAC, dict(fixed_alpha=0.1, target_entropy=-2), "fixed_alpha=None", dict(fixed_alpha=None)),
    (IQL, dict(temperature=0.0, max_weight=10.0), "temperature above 0", dict(temperature=1.0)),
]
KEPT = [
    (DQN, dict(pri_alpha=0.5), dict(prioritized_replay=True)),
    (DQN, dict(default_priority=3.0), dict(prioritized_replay=True)),
    (CategoricalDQN, dict(delta_clip=2.0), dict(prioritized_replay=True)),
    (R2D1, dict(prioritized_replay=False, pri_beta_init=0.5), dict(prioritized_replay=True)),
    (R2D1, dict(input_priorities=False, input_priority_shift=1), dict(input_priorities=True)),
]


@pytest.mark.parametrize("Algo,settings,needed,given", IDLE)
def test_a_setting_without_effect_is_refused_with_the_one_that_it_needs(Algo, settings, needed, given):
    with pytest.raises(ValueError, match=rf"{Algo.__name__}: .* has no effect without .*{re.escape(needed)}: give both, or leave .* out"):
        Algo(**settings)
    Algo(**{**settings, **given})


@pytest.mark.parametrize("Algo,settings,given", KEPT)
def test_where_configurations_keep_it_a_warning_says_so(Algo, settings, given, capsys):
    algo, name = Algo(**settings), list(settings)[-1]
    assert f"WARNING: {Algo.__name__}: {name}={settings[name]} has no effect without" in capsys.readouterr().out
    assert getattr(algo, name) == settings[name]
    Algo(**{**settings, **given})
    assert not capsys.readouterr().out


def test_defaults_and_what_is_switched_off_together_have_no_message(capsys):
    for Algo in (PPO, DQN, QuantileDQN, CategoricalDQN, R2D1, SAC, IQL):
        Algo()
    DQN(munchausen_temperature=0.03, pri_alpha=0.6)
    SAC(fixed_alpha=0.1), SAC(fixed_alpha=0.1, target_entropy=None), R2D1(prioritized_replay=False, input_priorities=False)
    assert not capsys.readouterr().out


def test_a_class_with_its_own_loss_may_use_every_setting():
    class Own(DQN):
        def loss(self, samples):
            return super().loss(samples)

    assert Own(munchausen_temperature=0.1).munchausen_temperature == 0.1


def test_so_do_agents(capsys):
    SacAgent(v_model_kwargs=dict(hidden_sizes=[4]))
    assert "SacAgent has no value function: v_model_kwargs={'hidden_sizes': [4]} has no effect" in capsys.readouterr().out
    WithValue(v_model_kwargs=dict(hidden_sizes=[4]))
    assert not capsys.readouterr().out
