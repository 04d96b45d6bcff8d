"""Parameters that workers share: seen by every kind of process, in memory without a name, and nothing of them in /dev/shm."""

import pytest
import torch
from mapped import torch_files, unnamed_memory
from tiers import start_methods

from rlpyt.agents.base import BaseAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpLstmAgent
from rlpyt.agents.pg.mujoco import MujocoLstmAgent
from rlpyt.agents.policy import AgentPolicy
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.envs.base import EnvSpaces
from rlpyt.samplers.workers import WorkerPool
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils import accelerator
from rlpyt.utils import buffer as buffer_module

DISCRETE = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 2))
CONTINUOUS = EnvSpaces(FloatBox(-1, 1, (4,)), FloatBox(-1, 1, (2,)))


@pytest.fixture
def no_torch_files():
    before = torch_files()
    yield before
    assert not torch_files() - before


def make_agents():
    return [
        (SacAgent(), CONTINUOUS),
        (Td3Agent(), CONTINUOUS),
        (MujocoLstmAgent(model_kwargs=dict(normalize_observation=True)), CONTINUOUS),
        (MlpDqnAgent(), DISCRETE),
        (MlpLstmAgent(), DISCRETE),
        (MlpFfAgent(model_kwargs=dict(hidden_sizes=[1340, 1340])), DISCRETE),  # 3.6 million parameters
    ]


def contents(agent):
    return [tensor.double().sum().item() for tensor in agent.model.state_dict().values()]


def _tell_contents(pipe, agents, known):
    torch.set_num_threads(1)
    pipe.send(("ok", None))
    while pipe.recv() is not None:
        pipe.send(("ok", ([contents(agent) for agent in agents], torch_files() - known)))
    pipe.send(("ok", None))


@pytest.mark.parametrize("start_method", start_methods("fork", "spawn", "forkserver"))
def test_workers_see_parameters_and_statistics_change_without_any_file_of_torch(start_method, no_torch_files):
    agents = []
    for agent, spaces in make_agents():
        agent.initialize(spaces, share_memory=True)
        agents.append(agent)
    assert unnamed_memory() > 4 * 3_600_000
    pool = WorkerPool(_tell_contents, [dict(agents=agents, known=no_torch_files)], ["the worker"], start_method=start_method)
    pool.receive()
    try:
        for step in range(2):
            before = [contents(agent) for agent in agents]
            for agent in agents:
                for tensor in agent.model.parameters():
                    tensor.data.add_(0.125)
            agents[2].update_obs_rms(torch.full((3, 4), float(step)))
            ((seen, files),) = pool.request("look", "looking")
            assert seen == [contents(agent) for agent in agents] != before and not files
    finally:
        pool.stop()


def test_only_the_model_that_acts_is_shared():
    agent = SacAgent()
    agent.initialize(CONTINUOUS, share_memory=True)
    assert agent.shared_model is agent.model
    for name, model in agent.named_models().items():
        assert all(parameter.is_shared() == (name == "model") for parameter in model.parameters())


class Tied(torch.nn.Module):
    """A linear layer there and back, with one matrix."""

    uses_prev_action = False

    def __init__(self, **kwargs):
        super().__init__()
        self.there, self.back = torch.nn.Linear(4, 2, bias=False), torch.nn.Linear(2, 4, bias=False)
        self.back.weight.data = self.there.weight.data.t()
        self.again = self.there
        self.register_buffer("first_row", self.there.weight.data[0], persistent=False)


class TiedAgent(BaseAgent):
    """Has a second model, which is trained on the same first layer, and one that is its own."""

    model_names = {"model": "model", "critic": "critic", "apart": "apart", "later": "later"}

    def make_models(self):
        super().make_models()
        self.critic, self.apart = torch.nn.Sequential(torch.nn.Linear(4, 2, bias=False)), torch.nn.Linear(4, 2)
        self.critic[0].weight.data = self.model.there.weight.data


def test_tied_parameters_stay_tied_also_between_models(no_torch_files):
    agent = TiedAgent(Tied)
    agent.initialize(DISCRETE, share_memory=True)
    weight = agent.model.there.weight
    with torch.no_grad():
        weight.copy_(torch.arange(8.0).view(2, 4))
    assert torch.equal(agent.model.back.weight, weight.t()) and agent.model.again.weight is weight
    assert agent.model.first_row.tolist() == [0, 1, 2, 3]
    assert torch.equal(agent.critic[0].weight, weight) and agent.critic[0].weight.is_shared()
    assert not agent.apart.weight.is_shared()


@pytest.mark.parametrize("how", ["trained apart", "sampled asynchronously", "copied for a worker"])
def test_layers_that_models_share_are_shared_by_their_copies(how, monkeypatch):
    class SharesALayer(Td3Agent):
        acting_names = ("model", "q_model")

        def make_models(self):
            super().make_models()
            self.q_model.encoder = self.model.mlp.model[0]

    agent = SharesALayer()
    agent.initialize(CONTINUOUS, share_memory=True)
    shared = agent.model.mlp.model[0].weight
    if how == "trained apart":
        monkeypatch.setattr(accelerator, "device_of", lambda index: torch.device("cpu"))  # So that this test needs no other device.
        agent.to_device(0)
    elif how == "sampled asynchronously":
        agent.async_initialize()
        agent.async_cpu(share_memory=False)
    else:
        agent = AgentPolicy(agent).copy_for_worker(cpu=True).agent
    weight = agent.model.mlp.model[0].weight
    assert agent.q_model.encoder.weight is weight and weight is not shared
    assert shared.is_shared() and not weight.is_shared() and torch.equal(weight, shared)


def test_models_that_share_nothing_are_not_replaced_on_a_device(monkeypatch):
    monkeypatch.setattr(accelerator, "device_of", lambda index: torch.device("cpu"))
    agent = Td3Agent()
    agent.initialize(CONTINUOUS, share_memory=True)
    model, critic = agent.model, agent.q_model
    agent.to_device(0)
    assert agent.q_model is critic and agent.model is not model


def test_what_was_frozen_stays_frozen_and_state_dicts_come_back():
    agent, other = (MlpFfAgent(model_kwargs=dict(hidden_sizes=[4])) for _ in range(2))
    agent.initialize(DISCRETE, share_memory=True)
    other.initialize(DISCRETE)
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in agent.parameters())
    addresses = [tensor.data_ptr() for tensor in agent.state_dict().values()]
    agent.load_state_dict(other.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(agent.state_dict().values(), other.state_dict().values(), strict=True))
    assert [tensor.data_ptr() for tensor in agent.state_dict().values()] == addresses
    frozen = agent.model.requires_grad_(False)
    twin = MlpFfAgent(ModelCls=lambda **kwargs: frozen)
    twin.initialize(DISCRETE, share_memory=True)
    assert not any(parameter.requires_grad for parameter in twin.parameters())


class WithMemory(torch.nn.Linear):
    """Shares a tensor that is no parameter."""

    def __init__(self, **kwargs):
        super().__init__(4, 2)
        self.memory = torch.zeros(3)

    def share_memory(self):
        self.memory.share_memory_()
        return super().share_memory()


def test_a_model_may_share_more_by_a_method_of_its_own():
    agent = BaseAgent(WithMemory)
    agent.initialize(DISCRETE, share_memory=True)
    assert agent.model.memory.is_shared() and agent.model.weight.is_shared()


def test_an_agent_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr(buffer_module, "_CHECKED_BYTES", 0)
    monkeypatch.setattr(buffer_module, "available_bytes", lambda: 1000)
    with pytest.raises(MemoryError, match=r"A model in shared memory needs .* \(1000 bytes\) are available. Make the network smaller"):
        MlpFfAgent().initialize(DISCRETE, share_memory=True)


def test_the_copy_of_an_asynchronous_sampler_is_shared_in_the_same_way(no_torch_files):
    agent = SacAgent()
    agent.initialize(CONTINUOUS)
    agent.async_initialize()
    trained = agent.model
    agent.async_cpu(share_memory=True)
    assert agent.model is not trained and all(parameter.is_shared() for parameter in agent.model.parameters())
    assert not any(parameter.is_shared() for parameter in trained.parameters())
    assert all(torch.equal(a, b) for a, b in zip(agent.model.parameters(), trained.parameters()))
