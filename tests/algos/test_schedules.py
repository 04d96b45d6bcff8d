"""Learning rates follow their schedules, in all families, and after a resume."""

import math

import pytest
import torch
from experience import SPACES, random_samples, start

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.schedules import factor_at
from rlpyt.envs.base import EnvSpaces
from rlpyt.samplers.collections import BatchSpec
from rlpyt.spaces.float_box import FloatBox

T, B = 8, 5


def squared(progress):
    return (1 - progress) ** 2


@pytest.mark.parametrize(
    "schedule, factors",
    [
        ("constant", [1, 1, 1]),
        ("linear", [1, 0.75, 0]),
        ("cosine", [1, (1 + math.cos(math.pi / 4)) / 2, 0]),
        (squared, [1, 0.5625, 0]),
    ],
)
def test_schedules_are_functions_of_the_progress(schedule, factors):
    assert [factor_at(schedule, progress) for progress in (0, 0.25, 1)] == pytest.approx(factors)


@pytest.mark.parametrize("returned", [-0.1, float("nan"), float("inf"), None, "fast"])
def test_a_function_that_returns_no_factor_is_an_error_with_the_name_of_the_setting(returned):
    with pytest.raises(ValueError, match="lr_schedule returned .* at the progress 0.5; it must return a finite number at least 0"):
        factor_at(lambda progress: returned, 0.5, "lr_schedule")


@pytest.mark.parametrize("AlgoCls", [A2C, PPO, DQN, SAC])
def test_an_unknown_name_is_refused(AlgoCls):
    with pytest.raises(ValueError, match="lr_schedule='lienar' is not possible; it must be 'constant', 'linear', 'cosine'"):
        AlgoCls(lr_schedule="lienar")


@pytest.mark.parametrize("AlgoCls", [A2C, DQN])
def test_only_ppo_adapts_its_rate(AlgoCls):
    with pytest.raises(ValueError, match="lr_schedule='adaptive' is not possible"):
        AlgoCls(lr_schedule="adaptive")


@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_policy_gradients_follow_a_schedule(AlgoCls):
    agent = MlpFfAgent()
    algo = start(AlgoCls(learning_rate=0.4, lr_schedule=squared), agent, T, B, n_itr=10)
    for itr in (0, 5, 5, 10, 20):
        opt_info = algo.optimize_agent(itr, random_samples(agent, T, B))
        expected = 0.4 * max(1 - itr / 10, 0) ** 2
        assert algo.optimizer.param_groups[0]["lr"] == pytest.approx(expected)
        assert opt_info.learningRate == pytest.approx(expected if AlgoCls is A2C else [expected])


def test_a_named_schedule_gives_the_rates_of_linear_lr_schedule_bit_for_bit():
    rates = []
    for settings in (dict(linear_lr_schedule=True), dict(linear_lr_schedule=False, lr_schedule="linear")):
        agent = MlpFfAgent()
        algo = start(A2C(learning_rate=0.3, **settings), agent, T, B, n_itr=7)
        rates.append([algo.optimize_agent(itr, random_samples(agent, T, B)).learningRate for itr in range(9)])
    assert rates[0] == rates[1] and rates[0][-1] == 0


def test_a_schedule_replaces_the_linear_one_of_the_rate_and_of_ratio_clip():
    agent = MlpFfAgent()
    algo = start(PPO(learning_rate=0.4, ratio_clip=0.2, lr_schedule="constant"), agent, T, B, n_itr=10)
    algo.optimize_agent(6, random_samples(agent, T, B))
    assert (algo.optimizer.param_groups[0]["lr"], algo.ratio_clip) == (0.4, 0.2)


@pytest.mark.parametrize("AlgoCls", [A2C, PPO])
def test_the_weight_of_entropy_follows_a_schedule(AlgoCls):
    agent = MlpFfAgent()
    algo = start(AlgoCls(entropy_loss_coeff=0.2, entropy_coeff_schedule="linear"), agent, T, B, n_itr=10)
    samples, seen = random_samples(agent, T, B), []
    for itr in (0, 5, 10):
        algo.optimize_agent(itr, samples)
        seen.append(algo.entropy_loss_coeff)
    assert seen == pytest.approx([0.2, 0.1, 0])


BOX = EnvSpaces(SPACES.observation, FloatBox(-1, 1, (2,)))
REPLAY = dict(batch_size=4, min_steps_learn=0, replay_size=200, replay_ratio=0.1)
OF_REPLAY = {
    "dqn": (lambda **s: DQN(learning_rate=0.4, **REPLAY, **s), MlpDqnAgent, SPACES, dict(optimizer=0.4)),
    "ddpg": (
        lambda **s: DDPG(learning_rate=0.4, q_learning_rate=0.8, **REPLAY, **s),
        DdpgAgent,
        BOX,
        dict(mu_optimizer=0.4, q_optimizer=0.8),
    ),
    "sac": (
        lambda **s: SAC(learning_rate=0.4, **REPLAY, **s),
        SacAgent,
        BOX,
        dict.fromkeys(["q1_optimizer", "q2_optimizer", "pi_optimizer", "alpha_optimizer"], 0.4),
    ),
}


def begin(make, AgentCls, spaces, **settings):
    torch.manual_seed(0)
    agent, algo = AgentCls(), make(**settings)
    agent.initialize(spaces)
    values = {name: space.null_value() for name, space in zip(("observation", "action"), spaces)}
    algo.initialize(agent, 10, BatchSpec(T, B), True, dict(values, reward=0.0, done=False, env_info=(), agent_info=()))
    return agent, algo


@pytest.mark.parametrize("name", OF_REPLAY)
def test_algorithms_with_replay_scale_the_rates_of_all_their_optimizers(name, monkeypatch):
    make, AgentCls, spaces, rates = OF_REPLAY[name]
    agent, algo = begin(make, AgentCls, spaces, lr_schedule="linear")
    monkeypatch.setattr(algo, "_sample_batch", lambda: (None, ()))
    monkeypatch.setattr(algo, "_update", lambda batch: (algo.OptInfoCls(*[None] * len(algo.OptInfoCls._fields)), None))
    resumed = begin(make, AgentCls, spaces, lr_schedule="linear")[1]
    for itr, factor in ((0, 1), (4, 0.6), (9, 0.1)):
        algo.optimize_agent(itr)
        resumed.load_optim_state_dict(algo.optim_state_dict())
        resumed.set_learning_rates(itr)
        for each in (algo, resumed):
            found = {name: getattr(each, name).param_groups[0]["lr"] for name in rates}
            assert found == pytest.approx({name: rate * factor for name, rate in rates.items()})


@pytest.mark.parametrize("name", OF_REPLAY)
def test_without_a_schedule_nothing_touches_the_rates(name, monkeypatch):
    make, AgentCls, spaces, rates = OF_REPLAY[name]
    _, algo = begin(make, AgentCls, spaces)
    for optimizer in rates:
        getattr(algo, optimizer).param_groups[0]["lr"] = 0.123
    algo.set_learning_rates(5)
    assert {getattr(algo, optimizer).param_groups[0]["lr"] for optimizer in rates} == {0.123}


class OwnOptimizer(torch.optim.SGD):
    __module__ = "of_a_user"


@pytest.mark.parametrize("schedule, is_refused", [("cosine", True), ("constant", False), (None, False)])
def test_a_graph_that_would_ignore_the_schedule_is_refused(schedule, is_refused, monkeypatch):
    monkeypatch.setattr(DQN, "prepare_models", lambda self: None)  # Which would see that the CPU has no graphs.
    make = OF_REPLAY["dqn"][0]
    try:
        begin(lambda **s: make(OptimCls=OwnOptimizer, **s).accelerate(cuda_graphs=True), MlpDqnAgent, SPACES, lr_schedule=schedule)
        assert not is_refused
    except ValueError as error:
        assert is_refused and 'would always repeat the first learning rate of OwnOptimizer: set lr_schedule="constant"' in str(error)
