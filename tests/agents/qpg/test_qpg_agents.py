import copy
import multiprocessing as mp

import gymnasium
import numpy as np
import pytest
import torch
from tiers import start_methods, thinned

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.pg.composite import MlpCompositeFfAgent, MlpCompositeLstmAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent, MujocoLstmAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.ensemble_sac_agent import DiscreteSacAgent, EnsembleSacAgent
from rlpyt.agents.qpg.iql_agent import IqlAgent
from rlpyt.agents.qpg.sac_agent import MAX_LOG_STD, MIN_LOG_STD, SacAgent
from rlpyt.agents.qpg.sac_lstm_agent import SacLstmAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as SacVAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.agents.qpg.td3_lstm_agent import Td3LstmAgent
from rlpyt.agents.spaces import ANY_BOX
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.mlp import ObservationVector
from rlpyt.models.qpg.mlp import MuMlpModel, PiMlpModel, QofMuMlpModel
from rlpyt.models.utils import unwrap_ddp
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.quick_args import arguments_of

SPACES = EnvSpaces(FloatBox(-1, 1, (4,)), FloatBox(-2, 2, (3,)))
AGENTS = {"ddpg": DdpgAgent, "td3": Td3Agent, "sac": SacAgent, "sac_v": SacVAgent}
KEYS = {
    "ddpg": ["model", "q_model", "target_model", "target_q_model"],
    "td3": ["model", "q_model", "target_model", "target_q_model", "q2_model", "target_q2_model"],
    "sac": ["model", "q1_model", "q2_model", "target_q1_model", "target_q2_model"],
    "sac_v": ["model", "q1_model", "q2_model", "v_model", "target_v_model"],
}
every_agent = pytest.mark.parametrize("name", AGENTS)
LEADS = [(), (3,), (2, 3)]


def make(name, spaces=SPACES, **kwargs):
    agent = AGENTS[name](**kwargs)
    agent.initialize(spaces)
    return agent


def inputs(*lead):
    return torch.randn(*lead, 4), torch.zeros(*lead, 3), torch.zeros(lead)


def disturb(agent):
    with torch.no_grad():
        for name in set(agent.model_names) - set(agent.target_names.values()):
            for parameter in getattr(agent, name).parameters():
                parameter.add_(torch.randn_like(parameter))


def equal(a, b):
    return all(torch.equal(a[name][key], b[name][key]) for name in a for key in a[name])


# --- Models -----------------------------------------------------------------------------------------------------------


@every_agent
def test_the_state_dict_holds_all_models_and_loading_is_its_inverse(name):
    agent, other = make(name), make(name)
    assert list(agent.state_dict()) == KEYS[name]
    disturb(agent)
    agent.update_target(0.5)
    state = copy.deepcopy(agent.state_dict())
    other.load_state_dict(state)
    assert equal(other.state_dict(), state)
    third = make(name, initial_model_state_dict=state)
    assert equal(third.state_dict(), state)
    with pytest.raises(KeyError, match=type(agent).__name__):
        other.load_state_dict({"model": state["model"]})


@every_agent
def test_targets_start_as_copies_and_move_only_when_told(name):
    agent = make(name)
    before = copy.deepcopy(agent.state_dict())
    for attribute, target in agent.target_names.items():
        assert all(torch.equal(a, b) for a, b in zip(before[attribute].values(), before[target].values(), strict=True))
    disturb(agent)
    after = copy.deepcopy(agent.state_dict())
    for target in agent.target_names.values():
        assert equal({target: after[target]}, {target: before[target]})
    agent.update_target(0.25)
    for attribute, target in agent.target_names.items():
        for key, value in agent.state_dict()[target].items():
            torch.testing.assert_close(value, 0.25 * after[attribute][key] + 0.75 * before[target][key])
    agent.update_target()
    for attribute, target in agent.target_names.items():
        assert all(torch.equal(agent.state_dict()[target][key], value) for key, value in after[attribute].items())


@every_agent
def test_targets_follow_models_that_were_moved_or_have_buffers(name):
    class WithBuffer(QofMuMlpModel):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.register_buffer("count", torch.zeros(1))

    agent = make(name, QModelCls=WithBuffer)
    agent.update_target()
    for model in agent.named_models().values():
        model.double()
    for attribute in agent.q_names:
        getattr(agent, attribute).count.fill_(8)
    disturb(agent)
    agent.update_target(0.5)
    for attribute, target in agent.target_names.items():
        if attribute in agent.q_names:
            assert getattr(agent, target).count.item() == 4
    agent.update_target()
    for attribute, target in agent.target_names.items():
        assert all(torch.equal(a, b) for a, b in zip(getattr(agent, attribute).parameters(), getattr(agent, target).parameters()))


@every_agent
def test_twin_q_functions_start_different(name):
    agent = make(name)
    if len(agent.q_names) == 2:
        q1, q2 = agent.q(*inputs(5), torch.randn(5, 3))
        assert q1.shape == q2.shape == (5,) and not torch.isclose(q1, q2).any()


def test_initial_parameters_of_single_models():
    first = make("td3")
    disturb(first)
    state = copy.deepcopy(first.state_dict())
    agent = make(
        "td3",
        initial_model_state_dict=state["model"],
        initial_q_model_state_dict=state["q_model"],
        initial_q2_model_state_dict=state["q2_model"],
    )
    for key in ("model", "q_model", "q2_model"):
        assert equal({key: agent.state_dict()[key]}, {key: state[key]})
        assert equal({"x": agent.state_dict()[f"target_{key}"]}, {"x": state[key]})


@every_agent
def test_default_widths_are_the_documented_ones(name):
    agent = make(name)
    widths = [400, 300] if name in ("ddpg", "td3") else [256, 256]
    assert agent.model_kwargs == agent.q_model_kwargs == dict(hidden_sizes=widths)
    agent = make(name, model_kwargs=dict(hidden_sizes=[8]), q_model_kwargs=dict(hidden_sizes=[9]))
    assert agent.model.mlp.model[0].weight.shape == (8, 4) and getattr(agent, agent.q_names[0]).mlp.model[0].weight.shape == (9, 7)


@every_agent
def test_within_freeze_q_gradients_pass_but_parameters_get_none(name):
    agent = make(name)
    action = torch.randn(5, 3, requires_grad=True)
    parameters = [p for attribute in agent.q_names for p in getattr(agent, attribute).parameters()]
    with agent.freeze_q():
        q = agent.q(*inputs(5), action)
    assert all(p.requires_grad for p in parameters)
    (q if isinstance(q, torch.Tensor) else sum(q)).sum().backward()
    assert action.grad.abs().sum() > 0 and all(p.grad is None for p in parameters)


@every_agent
def test_models_for_gradients_and_for_targets_are_told_apart(name):
    agent = make(name)
    batch = inputs(5)
    if name in ("ddpg", "td3"):
        assert agent.q_at_mu(*batch).requires_grad
        target = agent.target_q_at_mu(*batch)
        assert len(list(agent.q_parameters())) == 6 * len(agent.q_names) and len(list(agent.mu_parameters())) == 6
    else:
        action, log_pi, dist_info = agent.pi(*batch)
        assert action.requires_grad and log_pi.requires_grad and dist_info.mean.requires_grad
        target = agent.target_q(*batch, action) if name == "sac" else agent.target_v(*batch)
        assert len(list(agent.q1_parameters())) == len(list(agent.q2_parameters())) == len(list(agent.pi_parameters())) == 6
        assert (agent.models.pi, agent.models.q1, agent.models.q2) == (agent.model, agent.q1_model, agent.q2_model)
        assert (agent.models.v is None) == (name == "sac")
    targets = target if isinstance(target, tuple) else (target,)
    assert all(t.shape == (5,) and not t.requires_grad for t in targets)


@every_agent
def test_models_are_in_the_mode_in_which_they_are_used(name):
    agent = make(name)
    targets = set(agent.target_names.values())
    trained = set(agent.model_names) - targets

    def training():
        return {attribute for attribute in agent.model_names if getattr(agent, attribute).training}

    agent.train_mode(0)
    assert training() == trained
    agent.sample_mode(0)
    assert training() == trained - {"model"}
    agent.train_mode(0)
    assert training() == trained
    agent.eval_mode(0)
    assert not training()
    agent.sample_mode(0)
    assert not training()


# --- Actions ----------------------------------------------------------------------------------------------------------


@every_agent
@pytest.mark.parametrize("lead", LEADS)
def test_actions_have_the_leading_dimensions_of_observations(name, lead):
    agent = make(name)
    agent.sample_mode(0)
    step = agent.step(*inputs(*lead))
    assert step.action.shape == (*lead, 3) and not step.action.requires_grad
    info = step.agent_info
    parts = [info.mu] if name in ("ddpg", "td3") else [info.dist_info.mean, info.dist_info.log_std]
    assert all(part.shape == (*lead, 3) for part in parts)


@every_agent
def test_evaluation_is_without_noise(name):
    agent = make(name)
    batch = inputs(5)
    agent.eval_mode(1)
    step, again = agent.step(*batch), agent.step(*batch)
    assert torch.equal(step.action, again.action)
    expected = step.agent_info.mu if name in ("ddpg", "td3") else torch.tanh(step.agent_info.dist_info.mean)
    torch.testing.assert_close(step.action, expected)
    agent.sample_mode(1)
    assert not torch.equal(agent.step(*batch).action, agent.step(*batch).action)


def noise_std(agent, itr, n=20_000):
    """Standard deviation of what is added to the (pre-squash) mean when sampling."""
    agent.sample_mode(itr)
    observation, prev_action, prev_reward = inputs(1)
    step = agent.step(observation.expand(n, 4) * 0.1, prev_action.expand(n, 3), prev_reward.expand(n))
    if hasattr(step.agent_info, "mu"):
        return (step.action - step.agent_info.mu).std().item()
    return (torch.atanh(step.action.double() / agent.action_squash) - step.agent_info.dist_info.mean).std().item()


def test_noise_before_learning_begins_has_its_own_size():
    td3 = make("td3", pretrain_std=0.3, action_std=0.1)
    sac = make("sac", pretrain_std=0.3)
    td3.give_min_itr_learn(7)
    sac.give_min_itr_learn(7)
    for itr, std in ((0, 0.3), (6, 0.3), (7, 0.1), (100, 0.1)):
        assert noise_std(td3, itr) == pytest.approx(std, rel=0.05)
    assert noise_std(sac, 6) == pytest.approx(0.3, rel=0.05)
    sac.sample_mode(7)
    assert sac.distribution.std is None
    sac.sample_mode(0)
    sac.train_mode(0)
    assert sac.distribution.std is None
    assert noise_std(make("ddpg", action_std=0.2), 0) == pytest.approx(0.2, rel=0.05)


def test_noise_is_clipped_and_so_are_actions():
    agent = make("ddpg", action_std=5.0, action_noise_clip=0.25)
    agent.sample_mode(0)
    step = agent.step(*inputs(1000))
    assert (step.action - step.agent_info.mu).abs().max() <= 0.25 + 1e-6
    agent = make("ddpg", action_std=50.0)
    agent.sample_mode(0)
    assert agent.step(*inputs(1000)).action.abs().max() == 2


def test_target_noise_of_td3():
    agent = make("td3", target_noise_std=0.0)
    batch = inputs(5)
    mu = agent.target_model(*batch)
    for got, model in zip(agent.target_q_at_mu(*batch), (agent.target_q_model, agent.target_q2_model)):
        torch.testing.assert_close(got, model(*batch, mu))
    agent.set_target_noise(1e6, noise_clip=0.3)  # Of which nothing stays within the clip.
    assert agent.target_distribution.noise_clip == 0.3
    seen = []
    agent.target_q_model.register_forward_pre_hook(lambda module, args: seen.append(args[-1]))
    agent.target_q_model.__class__ = type("Mine", (QofMuMlpModel,), {})  # Not in one pass.
    agent.target_q_at_mu(*batch)
    assert ((seen[0] - mu).abs() - 0.3).abs().max() < 1e-5


def _report_std(agent, pipe):
    while (itr := pipe.recv()) is not None:
        agent.sample_mode(itr)
        pipe.send(None if agent.distribution.std is None else float(agent.distribution.std))


@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
@pytest.mark.parametrize("name", ["td3", "sac"])
def test_workers_started_before_learn_when_learning_begins(name, start_method):
    agent = make(name, pretrain_std=0.625)
    ctx = mp.get_context(start_method)
    pipe, theirs = ctx.Pipe()
    worker = ctx.Process(target=_report_std, args=(agent, theirs), daemon=True)
    worker.start()
    agent.give_min_itr_learn(5)
    for itr in (4, 5):
        pipe.send(itr)
        assert pipe.poll(60), "the worker does not answer"
        std = pipe.recv()
        assert (std == 0.625) == (itr < 5)
    pipe.send(None)
    worker.join(60)
    assert worker.exitcode == 0


def test_the_policy_draws_from_the_agents_own_distribution():
    class Narrow(SacAgent):
        def make_distribution(self, action_space):
            self.distribution = Gaussian(3, squash=2.0, min_std=0.5, max_std=0.51)

    agent = Narrow()
    agent.initialize(SPACES)
    agent.model = lambda *inputs: (torch.zeros(4000, 3), torch.full((4000, 3), -6.0))
    agent._model_inputs = lambda *inputs: inputs
    action, log_pi, _ = agent.pi(None, None, None)
    assert torch.atanh(action / 2).std().item() == pytest.approx(0.5, rel=0.05)


@every_agent
def test_all_models_are_told_what_depends_on_the_spaces(name):
    told = []

    class Told(AGENTS[name]):
        def make_env_to_model_kwargs(self, env_spaces):
            return dict(goal_size=2, **super().make_env_to_model_kwargs(env_spaces))

    def recording(Cls):
        class Recording(Cls):
            def __init__(self, goal_size, **kwargs):
                told.append(goal_size)
                super().__init__(**kwargs)

        return Recording

    agent = Told()
    for cls_name in {"ModelCls", *(cls_name for cls_name, _ in agent.settings_names.values())}:
        setattr(agent, cls_name, recording(getattr(agent, cls_name)))
    agent.initialize(SPACES)
    assert len(told) == 1 + len(agent.settings_names)


class OwnPolicy(torch.nn.Module):
    def __init__(self, observation_shape, action_size, hidden_sizes):
        super().__init__()
        self.linear = torch.nn.Linear(4, action_size)

    def forward(self, observation, prev_action, prev_reward):
        return self.linear(observation)


def test_a_policy_of_ones_own_need_not_know_of_the_largest_action():
    agent = make("ddpg", ModelCls=OwnPolicy)
    assert agent.step(*inputs(2)).action.shape == (2, 3)
    assert make("ddpg").model._output_max == 2


def test_a_policy_that_passes_its_arguments_on_gets_the_largest_action_too():
    class Mine(MuMlpModel):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)

    assert make("ddpg", ModelCls=Mine).model._output_max == 2
    assert make("ddpg", ModelCls=Mine, model_kwargs=dict(hidden_sizes=[4], output_max=0.5)).model._output_max == 0.5


def test_a_policy_whose_further_arguments_are_unknown_does_not_get_it():
    def make_policy(observation_shape, **kwargs):
        return OwnPolicy(observation_shape, **kwargs)

    for name in ("ddpg", "td3"):
        assert isinstance(make(name, ModelCls=make_policy).model, OwnPolicy)


def test_vectors_of_bytes_are_no_images():
    agent = make("sac", EnvSpaces(IntBox(0, 256, shape=(128,), dtype="uint8"), FloatBox(-2, 2, (3,))))
    assert agent.step(torch.zeros(2, 128, dtype=torch.uint8), torch.zeros(2, 3), torch.zeros(2)).action.shape == (2, 3)


# --- Density of actions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("squash", [None, 1.0, 2.5])
def test_density_and_its_gradients_are_those_of_the_distribution(squash):
    mean, log_std = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64) - 1
    weights = torch.randn(7, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    results = []

    def by_formulas(m, s):
        x = m + s.exp() * torch.randn_like(m)
        return x if squash is None else squash * torch.tanh(x), Gaussian(3, squash=squash).log_likelihood(x, DistInfoStd(m, s))

    for func in (by_formulas, lambda m, s: Gaussian(3, squash=squash).sample_loglikelihood(DistInfoStd(m, s))):
        torch.manual_seed(0)
        m, s = mean.clone().requires_grad_(), log_std.clone().requires_grad_()
        sample, log_density = func(m, s)
        loss = (weights[0] * log_density).sum() + (weights[1] * sample).sum()
        results.append((sample, log_density, *torch.autograd.grad(loss, [m, s])))
    for got, expected in zip(*results):
        torch.testing.assert_close(got, expected)


def test_density_of_a_squashed_action_is_the_change_of_variables():
    mean, std, squash = torch.tensor([0.3], dtype=torch.float64), 0.5, 2.0
    sample, log_density = Gaussian(1, squash=squash).sample_loglikelihood(DistInfoStd(mean, torch.tensor([std], dtype=torch.float64).log()))
    x = np.arctanh(sample.item() / squash)
    gaussian = -0.5 * ((x - 0.3) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    assert log_density.item() == pytest.approx(gaussian - np.log(squash * (1 - np.tanh(x) ** 2)))


def test_density_stays_finite_at_the_limits():
    for value in (-60.0, 60.0):
        mean = torch.full((2, 3), value, requires_grad=True)
        action, log_pi = Gaussian(3, squash=1.0).sample_loglikelihood(DistInfoStd(mean, torch.zeros(2, 3)))
        log_pi.sum().backward()
        assert torch.isfinite(log_pi).all() and torch.isfinite(mean.grad).all() and (action.abs() <= 1).all()


def test_standard_deviations_are_limited():
    agent = make("sac", action_squash=None)

    class Extreme(torch.nn.Module):
        def forward(self, observation, prev_action, prev_reward):
            return torch.zeros(2, 3), torch.full((2, 3), self.log_std)

    agent.model, batch = Extreme(), inputs(2)
    for agent.model.log_std, limit in ((-1000.0, MIN_LOG_STD), (1000.0, MAX_LOG_STD)):
        torch.manual_seed(0)
        action, log_pi, _ = agent.pi(*batch)
        torch.manual_seed(0)
        expected, expected_log_pi = Gaussian(3).sample_loglikelihood(DistInfoStd(torch.zeros(2, 3), torch.full((2, 3), float(limit))))
        torch.testing.assert_close(action, expected)
        torch.testing.assert_close(log_pi, expected_log_pi)


@pytest.mark.parametrize("squash", [None, 2.0])
def test_both_policies_in_one_pass_are_those_of_two(squash):
    agent = make("sac", action_squash=squash)
    batch, targets = inputs(5), inputs(5)
    results = []
    for joint in (True, False):
        torch.manual_seed(0)
        if joint:
            (action, log_pi, dist_info), of_targets = agent.joint_pi(batch, targets)
        else:
            with torch.no_grad():
                of_targets = agent.pi(*targets)[:2]
            action, log_pi, dist_info = agent.pi(*batch)
        grads = torch.autograd.grad(action.sum() + (2 * log_pi).sum(), list(agent.pi_parameters()))
        results.append((action, log_pi, *dist_info, *of_targets, *grads))
    torch.testing.assert_close(*results)
    assert not any(x.requires_grad for x in of_targets)


def test_a_policy_that_a_user_has_changed_takes_two_passes():
    class Doubled(SacAgent):
        def pi(self, *args):
            action, *others = super().pi(*args)
            return 2 * action, *others

    class Model(PiMlpModel):
        def forward(self, *args):
            mean, log_std = super().forward(*args)
            return mean + 1, log_std

    changed = Doubled()
    changed.initialize(SPACES)
    hooked = make("sac")
    hooked.model.register_forward_hook(lambda module, args, output: output)
    fixed = make("sac")
    fixed.distribution.set_std(0.5)
    for agent in (changed, make("sac", ModelCls=Model), hooked, fixed):
        assert agent.joint_pi(inputs(5), inputs(5)) is None
    assert make("sac").joint_pi(inputs(2, 5), inputs(2, 5)) is None
    assert make("sac").joint_pi(inputs(5), inputs(5)) is not None


# --- Misuse -----------------------------------------------------------------------------------------------------------


@every_agent
@pytest.mark.parametrize(
    "action, message",
    [
        (IntBox(0, 3), "needs continuous actions"),
        (FloatBox(-1, 1, (2, 2)), "reshape"),
        (FloatBox(np.float32([-1, -2]), np.float32([1, 2])), "rescale"),
        (FloatBox(0, 1, (2,)), "rescale"),
        (FloatBox(-np.inf, np.inf, (2,)), "rescale"),
    ],
)
def test_actions_that_cannot_be_served_are_refused(name, action, message):
    with pytest.raises(ValueError, match=f"{AGENTS[name].__name__}.*{message}"):
        make(name, EnvSpaces(SPACES.observation, action))


@every_agent
def test_images_are_refused_by_models_for_vectors(name):
    with pytest.raises(ValueError, match="images"):
        make(name, EnvSpaces(IntBox(0, 256, (3, 8, 8), dtype="uint8"), SPACES.action))


@every_agent
def test_constructor_arguments_are_attributes(name):
    agent = AGENTS[name](q_model_kwargs=dict(hidden_sizes=[3]))
    assert isinstance(agent, BaseAgent) and agent.QModelCls is QofMuMlpModel and agent.q_model_kwargs == dict(hidden_sizes=[3])
    if name in ("ddpg", "td3"):
        assert (agent.action_std, agent.action_noise_clip) == (0.1, None)
    else:
        assert (agent.action_squash, agent.pretrain_std) == (1.0, 0.75)


@pytest.mark.parametrize("name, noises", [("ddpg", ["action_std"]), ("td3", ["action_std", "target_noise_std"])])
def test_noise_that_is_large_for_the_bounds_is_told_of(name, noises, capsys):
    def warned_of(largest, **settings):
        agent = make(name, EnvSpaces(SPACES.observation, FloatBox(-largest, largest, SPACES.action.shape)), **settings)
        agent.check_bounds()
        says = capsys.readouterr().out
        return [noise for noise in ("action_std", "target_noise_std") if f"({noise}) to actions" in says]

    assert warned_of(1) == warned_of(2) == []
    assert warned_of(0.4) == noises[1:]  # as in Humanoid
    assert warned_of(0.1) == noises
    assert warned_of(1, action_std=np.array([0.1, 0.5, 0.1])) == ["action_std"]


class Unsquashed(SacAgent):
    def make_distribution(self, action_space):
        self.distribution = Gaussian(dim=action_space.shape[0])


class Clipping(SacAgent):
    clip_actions = True


class BoundedByItself(SacAgent):
    def step(self, *inputs):
        return super().step(*inputs)


class OfAnyBox(SacAgent):
    takes_actions = ANY_BOX


@pytest.mark.parametrize(
    "AgentCls, largest, settings",
    [
        (Unsquashed, 1, {}),
        (Clipping, 1, dict(action_squash=None)),
        (BoundedByItself, 1, dict(action_squash=None)),
        (OfAnyBox, np.inf, dict(action_squash=None)),
    ],
)
def test_actions_that_are_bounded_in_another_way_are_not_told_of(AgentCls, largest, settings, capsys):
    agent = AgentCls(**settings)
    agent.initialize(EnvSpaces(SPACES.observation, FloatBox(-largest, largest, SPACES.action.shape)))
    agent.check_bounds()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["sac", "sac_v"])
def test_actions_may_be_squashed_to_the_bounds_of_the_space(name, capsys):
    spaces = EnvSpaces(SPACES.observation, FloatBox(-2.5, 2.5, SPACES.action.shape))
    agent = make(name, spaces, action_squash="auto")
    agent.check_bounds()
    assert agent.distribution.squash == 2.5 and capsys.readouterr().out == ""
    agent = make(name, spaces)
    agent.check_bounds()
    assert agent.distribution.squash == 1.0
    assert "those of the environment go to 2.5: action_squash='auto' takes as many as there are." in capsys.readouterr().out
    agent = make(name, spaces, action_squash=None)
    agent.check_bounds()
    assert (
        "takes actions of any size (action_squash=None), but those of the environment are between -2.5 and 2.5" in capsys.readouterr().out
    )
    with pytest.raises(ValueError, match="action_squash='space' is not possible; it must be a finite number above 0, or 'auto', or None."):
        AGENTS[name](action_squash="space")


# --- Data-parallel training -------------------------------------------------------------------------------------------


@every_agent
def test_data_parallel_training_changes_neither_values_nor_gradients_nor_the_state_dict(name, tmp_path):
    agent = make(name)
    other = make(name)
    other.load_state_dict(agent.state_dict())
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        assert agent.data_parallel() is None
        batch, action = inputs(5), torch.randn(5, 3)
        for _ in range(2):  # A second pass fails if the first one is waiting for gradients.
            grads = []
            for a in (agent, other):
                torch.manual_seed(0)
                q = a.q(*batch, action)
                loss = (q if isinstance(q, torch.Tensor) else sum(q)).sum()
                with a.freeze_q():
                    if name in ("ddpg", "td3"):
                        loss = loss + a.q_at_mu(*batch).sum()
                    else:
                        loss = loss + sum(a.q(*batch, a.pi(*batch)[0])).sum()
                loss.backward()
                trained = [unwrap_ddp(getattr(a, n)) for n in ("model", *a.q_names)]
                grads.append([p.grad for model in trained for p in model.parameters()])
            for mine, theirs in zip(*grads, strict=True):
                torch.testing.assert_close(mine, theirs)
        assert equal(agent.state_dict(), other.state_dict())
        disturb(agent)
        agent.update_target(0.5)
        agent.load_state_dict(other.state_dict())
        agent.sample_mode(0)
        agent.step(*batch)
    finally:
        torch.distributed.destroy_process_group()


# --- Spaces -----------------------------------------------------------------------------------------------------------
CONTINUOUS = {
    **AGENTS, "iql": IqlAgent, "ensemble": EnsembleSacAgent, "sac_lstm": SacLstmAgent, "td3_lstm": Td3LstmAgent,
    "mujoco": MujocoFfAgent, "mujoco_lstm": MujocoLstmAgent,
}  # fmt: skip


@pytest.mark.parametrize("name", [*CONTINUOUS, "discrete_sac", "composite", "composite_lstm"])
def test_an_observation_that_is_one_of_n_integers_is_encoded_one_hot(name):
    """All networks of the agent have a weight for each of them."""
    Agent = {**CONTINUOUS, "discrete_sac": DiscreteSacAgent, "composite": MlpCompositeFfAgent, "composite_lstm": MlpCompositeLstmAgent}[
        name
    ]
    agent, n = Agent(), 7
    agent.initialize(
        EnvSpaces(IntBox(0, n), IntBox(0, 4) if name in ("discrete_sac", "composite", "composite_lstm") else FloatBox(-1, 1, (2,)))
    )
    vectors = [m for model in agent.named_models().values() for m in model.modules() if isinstance(m, ObservationVector)]
    assert vectors and all(vector.n_values == vector.size == n for vector in vectors)


def test_models_of_ones_own_need_not_know_how_many_observations_there_are():
    class Q(QofMuMlpModel):
        def __init__(self, observation_shape, action_size, hidden_sizes=(8,)):
            super().__init__(observation_shape, list(hidden_sizes), action_size)

    agent = SacAgent(QModelCls=Q)
    agent.initialize(EnvSpaces(IntBox(0, 7), FloatBox(-1, 1, (2,))))
    assert agent.model.observation.n_values == 7 and agent.q1_model.observation.n_values is None


@pytest.mark.parametrize("name", [name for name in CONTINUOUS if not name.startswith("mujoco")])
@pytest.mark.parametrize(
    "high, dtype", thinned([(0.1, "float64"), (0.7, "float64"), (0.1, "float32"), (1.0, "float64")], quick=[(0.1, "float64")])
)
def test_the_largest_actions_are_inside_of_bounds_in_double_precision(name, high, dtype):
    """0.1 is larger in float32 than in float64."""
    space = gymnasium.spaces.Box(-high, high, (2,), np.dtype(dtype).type)
    agent = CONTINUOUS[name](**(dict(action_squash="auto") if "action_squash" in arguments_of(CONTINUOUS[name]) else {}))
    action_space = GymSpaceWrapper(space, 0, "action", True)
    agent.initialize(EnvSpaces(FloatBox(-1, 1, (4,)), action_space))
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.mul_(1000)
    largest = 0.0
    for mode in (agent.eval_mode, agent.sample_mode):
        mode(10**6)
        for _ in range(20):
            action = agent.step(torch.randn(4), torch.zeros(2), torch.zeros(())).action
            assert space.contains(action_space.revert(action.numpy()))
            largest = max(largest, action.abs().max().item())
    assert largest == pytest.approx(high, rel=1e-6)
