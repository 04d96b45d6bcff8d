import copy
import multiprocessing as mp
import pickle

import numpy as np
import pytest
import torch
from tiers import start_methods

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.dqn_agent import DqnAgent
from rlpyt.agents.dqn.epsilon_greedy import EpsilonGreedyAgentMixin
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.runners import checkpoint
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils import shared_int
from rlpyt.utils.recipes import Script

SPACES = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 3))
IMAGES = EnvSpaces(IntBox(0, 256, (4, 36, 36), dtype="uint8"), IntBox(0, 3))


def make(global_B=1, env_ranks=None, **kwargs):
    agent = MlpDqnAgent(**kwargs)
    agent.initialize(SPACES, global_B=global_B, env_ranks=env_ranks)
    return agent


def inputs(*lead):
    return torch.randn(*lead, 4), torch.zeros(lead, dtype=torch.long), torch.zeros(lead)


# --- Models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dueling", [False, True])
def test_the_target_starts_as_a_copy_and_moves_only_when_told(dueling):
    agent = make(model_kwargs=dict(dueling=dueling))
    batch = inputs(5)
    assert torch.equal(agent.target(*batch), agent(*batch))
    old = agent.target(*batch)
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.add_(0.1)
    assert torch.equal(agent.target(*batch), old)
    before = copy.deepcopy(agent.state_dict())
    agent.update_target(tau=0.25)
    for name, value in agent.state_dict()["target"].items():
        torch.testing.assert_close(value, 0.25 * before["model"][name] + 0.75 * before["target"][name])
    agent.update_target()
    assert torch.equal(agent.target(*batch), agent(*batch))


def test_only_the_model_gets_gradients():
    agent = make()
    q, target = agent(*inputs(5)), agent.target(*inputs(5))
    assert q.requires_grad and not target.requires_grad
    assert {id(p) for p in agent.parameters()} == {id(p) for p in agent.model.parameters()}


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_atari_agent_gives_actions_and_q_values(lead):
    agent = AtariDqnAgent()
    agent.initialize(IMAGES)
    agent.set_sample_epsilon_greedy(0)
    images = torch.randint(0, 256, (*lead, 4, 36, 36), dtype=torch.uint8)
    step = agent.step(images, torch.zeros(lead, dtype=torch.long), torch.zeros(lead))
    assert step.action.shape == lead and step.agent_info.q.shape == (*lead, 3)
    assert torch.equal(step.action, step.agent_info.q.argmax(-1))


def test_bases_come_in_the_documented_order():
    assert DqnAgent.__mro__[1:3] == (EpsilonGreedyAgentMixin, BaseAgent)


def test_spaces_for_another_agent_are_refused():
    with pytest.raises(ValueError, match="MlpDqnAgent"):
        AtariDqnAgent().initialize(SPACES)
    with pytest.raises(ValueError, match="discrete"):
        MlpDqnAgent().initialize(EnvSpaces(SPACES.observation, SPACES.observation))


# --- Epsilon ----------------------------------------------------------------------------------------------------------


def epsilon_at(agent, itr):
    agent.sample_mode(itr)
    return agent.distribution.epsilon


def test_epsilon_falls_linearly_between_two_iterations():
    agent = make(eps_init=0.8, eps_final=0.2, eps_itr_min=10, eps_itr_max=40)
    for itr, epsilon in [(0, 0.8), (10, 0.8), (20, 0.6), (25, 0.5), (40, 0.2), (41, 0.2), (10**6, 0.2)]:
        assert epsilon_at(agent, itr) == pytest.approx(epsilon)


def test_starting_late_samples_with_the_final_epsilon():
    assert epsilon_at(make(), 5000) == pytest.approx(0.01)


@pytest.mark.parametrize("itr_min, itr_max", [(0, 0), (0, 1), (5, 5), (3, 4), (7, 2), (0, 9)])
def test_a_schedule_of_any_length_goes_from_first_to_last_epsilon(itr_min, itr_max):
    agent = make()
    agent.set_epsilon_itr_min_max(itr_min, itr_max)
    epsilons = [epsilon_at(agent, itr) for itr in range(itr_min, itr_min + 12)]
    assert epsilons[0] == 1 and epsilons[-1] == pytest.approx(0.01)
    assert all(a >= b for a, b in zip(epsilons, epsilons[1:]))


def test_evaluation_is_random_before_training_and_almost_greedy_later():
    agent = make(eps_eval=0.05)
    agent.eval_mode(0)
    assert agent.distribution.epsilon == 1
    agent.eval_mode(1)
    assert agent.distribution.epsilon == 0.05
    assert epsilon_at(agent, 0) == 1


def test_each_environment_of_the_run_gets_its_own_epsilon():
    settings = dict(eps_init=1, eps_final=0.1, eps_final_min=0.001, eps_itr_min=0, eps_itr_max=10)
    expected = torch.tensor([0.001, 0.01, 0.1])
    agent = make(3, range(3), **settings)
    torch.testing.assert_close(epsilon_at(agent, 0), torch.ones(3))
    torch.testing.assert_close(epsilon_at(agent, 5), 0.5 + 0.5 * expected)
    torch.testing.assert_close(epsilon_at(agent, 10), expected)
    worker = make(**settings)
    worker.collector_initialize(global_B=3, env_ranks=[1, 2])
    torch.testing.assert_close(epsilon_at(worker, 10), expected[1:])
    assert worker.step(*inputs(2)).action.shape == (2,) and worker.step(*inputs(5, 2)).action.shape == (5, 2)


def test_alternating_halves_share_epsilons():
    agent = MlpDqnAgent(eps_final=0.1, eps_final_min=0.001)
    agent.alternating = True
    agent.initialize(SPACES, global_B=12, env_ranks=range(6, 12))
    torch.testing.assert_close(epsilon_at(agent, 10**6), torch.logspace(-3, -1, 6)[3:])


def test_shared_numbers_are_recorded_as_numbers():
    """Snapshots of all versions have them in this form, and are compared with the agent that resumes."""
    settings = checkpoint._arguments_of(MlpDqnAgent(eps_itr_max=77), Script(None))
    assert (settings["eps_itr_min"], settings["eps_itr_max"]) == ([50], [77])
    agent = MlpDqnAgent()
    vars(agent)["eps_itr_max"] = np.array([7])  # As in an agent that an earlier version has pickled.
    assert agent.eps_itr_max == 7
    agent.eps_itr_max = 8
    assert agent.eps_itr_max == 8 and isinstance(vars(agent)["eps_itr_max"], shared_int._Shared)


def test_an_agent_that_is_initialized_again_forgets_the_epsilons_of_its_environments():
    agent = make(3, range(3), eps_final_min=0.001)
    assert epsilon_at(agent, 5000).shape == (3,)
    with pytest.raises(ValueError, match=r"Epsilon has shape \[3\], with a value for each environment"):
        agent.step(*inputs(2))
    with pytest.raises(ValueError, match=r"Epsilon has shape \[3\], with a value for each environment"):
        agent.step(*inputs())
    agent.initialize(SPACES)
    assert epsilon_at(agent, 5000) == pytest.approx(0.01)
    assert agent.step(*inputs(2)).action.shape == (2,)
    agent.make_vec_eps(1, [0])
    agent.sample_mode(5000)
    assert agent.step(*inputs()).action.shape == () and agent.step(*inputs(2)).action.shape == (2,)


def test_the_parameters_of_the_model_alone_are_loaded_into_both():
    agent, other = make(), make()
    agent.load_state_dict({"model": other.model.state_dict()})
    for model in (agent.model, agent.target_model):
        for mine, theirs in zip(model.state_dict().values(), other.model.state_dict().values(), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("eps_final_min", [0, -1, 0.5])
def test_epsilons_that_have_no_spacing_are_refused(eps_final_min):
    with pytest.raises(ValueError, match="eps_final_min"):
        MlpDqnAgent(eps_final=0.1, eps_final_min=eps_final_min)


def _report_epsilon(agent, pipe):
    while (itr := pipe.recv()) is not None:
        pipe.send(float(epsilon_at(agent, itr)))


COPIES = {"itself": lambda agent: agent, "deepcopy": copy.deepcopy, "pickle": lambda agent: pickle.loads(pickle.dumps(agent))}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
def test_the_algorithms_schedule_reaches_workers_started_before(start_method, how):
    original = make()
    agent = COPIES[how](original)
    ctx = mp.get_context(start_method)
    pipe, theirs = ctx.Pipe()
    worker = ctx.Process(target=_report_epsilon, args=(agent, theirs), daemon=True)
    worker.start()
    agent.set_epsilon_itr_min_max(2, 6)
    for itr in (2, 4, 6):
        pipe.send(itr)
        assert pipe.poll(60), "the worker does not answer"
        assert pipe.recv() == pytest.approx(epsilon_at(agent, itr))
    assert (agent.eps_itr_min, agent.eps_itr_max) == (2, 6)
    assert how == "itself" or original.eps_itr_max == 1000
    pipe.send(None)
    worker.join(60)
    assert worker.exitcode == 0


def test_constructor_arguments_are_attributes():
    agent = MlpDqnAgent(eps_init=0.5, eps_final=0.2, eps_final_min=0.1, eps_itr_min=3, eps_itr_max=4, eps_eval=0.3)
    assert (agent.eps_init, agent.eps_final, agent.eps_final_min, agent.eps_eval) == (0.5, 0.2, 0.1, 0.3)
    assert (agent.eps_itr_min, agent.eps_itr_max) == (3, 4)
