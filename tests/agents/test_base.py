import copy
import multiprocessing as mp
import pickle
from collections import namedtuple

import pytest
import torch
from ranks import process_group, run_ranks
from tiers import gpu, processes, start_methods

from rlpyt.agents.base import SYNC_BUFFERS, AgentInputs, BaseAgent, null_after_done, set_training, uses_prev_action
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.pg.mlp_ff_model import MlpFfModel
from rlpyt.models.qpg import mlp
from rlpyt.models.utils import unwrap_ddp
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.collections import namedarraytuple

SPACES = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 2))
AGENTS = [MlpFfAgent, MlpDqnAgent]
OBSERVATION = torch.linspace(-1, 1, 12).view(3, 4)
INPUTS = AgentInputs(OBSERVATION, torch.zeros(3, dtype=torch.long), torch.zeros(3))


def make(AgentCls, share_memory=False, **kwargs):
    agent = AgentCls(**kwargs)
    agent.initialize(SPACES, share_memory=share_memory, global_B=3, env_ranks=range(3))
    return agent


def output(agent):
    """Something that depends on the parameters of the model which acts."""
    info = agent.step(*INPUTS).agent_info
    return (info.q if hasattr(info, "q") else info.dist_info.prob).clone()


@torch.no_grad()
def change(model, value=0.1):
    for parameter in model.parameters():
        parameter.add_(value)


class OfParts(torch.nn.Module):
    def __init__(self, observation_shape, output_size):
        super().__init__()

    def forward(self, observation, prev_action, prev_reward):
        a = observation["a"] if isinstance(observation, dict) else observation.a
        return torch.full((*a.shape[:-1], 2), 0.5), a.sum(-1)


def test_a_dictionary_of_observations_is_refused_unless_the_model_takes_it():
    space = Composite([FloatBox(-1, 1, (4,)), FloatBox(-1, 1, (2,))], namedtuple("Pair", ["a", "b"]))
    observation, prev = dict(a=torch.zeros(3, 4), b=torch.zeros(3, 2)), (INPUTS.prev_action, INPUTS.prev_reward)
    agent = MlpFfAgent(ModelCls=OfParts)
    agent.initialize(EnvSpaces(space, IntBox(0, 2)))
    assert agent.step(observation, *prev).action.shape == (3,)
    agent = MlpFfAgent()
    agent.initialize(EnvSpaces(space, IntBox(0, 2)))
    message = "MlpFfAgent takes observations as named tuples of tensors, with the fields a, b, not as a dict. For .* rlpyt.load_policy"
    with pytest.raises(TypeError, match=message):
        agent.step(observation, *prev)
    assert agent.step(namedarraytuple("Pair", ["a", "b"])(**observation), *prev).action.shape == (3,)


# --- Parameters -------------------------------------------------------------------------------------------------------


def test_state_dict_of_one_model_is_the_models():
    agent = make(MlpFfAgent)
    assert agent.state_dict().keys() == agent.model.state_dict().keys()


@pytest.mark.parametrize("AgentCls", AGENTS)
def test_initial_parameters_of_another_model_are_named_as_such(AgentCls):
    state_dict = make(AgentCls, model_kwargs=dict(hidden_sizes=[3])).state_dict()
    with pytest.raises(RuntimeError, match=rf"^{AgentCls.__name__}: initial_model_state_dict is of another model (.|\n)*size mismatch"):
        make(AgentCls, model_kwargs=dict(hidden_sizes=[5]), initial_model_state_dict=state_dict)

    class Loads(AgentCls):
        def load_state_dict(self, state_dict):
            raise RuntimeError("It is too old.")

    with pytest.raises(RuntimeError, match="^It is too old.$"):
        make(Loads, initial_model_state_dict=state_dict)


@pytest.mark.parametrize("AgentCls", AGENTS)
@pytest.mark.parametrize("how", ["load_state_dict", "constructor"])
def test_loading_is_the_inverse_of_saving(AgentCls, how):
    agent = make(AgentCls)
    change(agent.model)
    state_dict = copy.deepcopy(agent.state_dict())
    if how == "constructor":
        other = make(AgentCls, initial_model_state_dict=state_dict)
    else:
        other = make(AgentCls)
        other.load_state_dict(state_dict)
    assert torch.equal(output(agent), output(other))
    for name, model in agent.named_models().items():
        for a, b in zip(model.state_dict().values(), other.named_models()[name].state_dict().values(), strict=True):
            assert torch.equal(a, b)


def test_loading_the_state_dict_of_another_kind_of_agent_fails_in_a_sentence():
    with pytest.raises(KeyError, match="'model', 'target'"):
        make(MlpDqnAgent).load_state_dict(make(MlpFfAgent).state_dict())


@pytest.mark.parametrize("AgentCls", AGENTS)
def test_modes_reach_the_trained_models_only(AgentCls):
    agent = make(AgentCls)
    for enter, training in [(agent.train_mode, True), (agent.sample_mode, False), (agent.train_mode, True), (agent.eval_mode, False)]:
        enter(0)
        assert agent.model.training is training
        for name, model in agent.named_models().items():
            assert name == "model" or not model.training


def test_a_module_that_changes_how_it_switches_modes_is_asked():
    class KeepsStatistics(torch.nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(False)

    class Model(MlpFfModel):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.norm, self.other = KeepsStatistics(2), torch.nn.Dropout()

    agent = make(MlpFfAgent, ModelCls=Model)
    agent.eval_mode(0)
    agent.train_mode(0)
    assert agent.model.training and agent.model.other.training and not agent.model.norm.training


def test_a_subclass_may_add_a_model_as_documented():
    class TwoHeaded(MlpFfAgent):
        def initialize(self, env_spaces, share_memory=False, **kwargs):
            super().initialize(env_spaces, share_memory, **kwargs)
            self.extra = torch.nn.Linear(2, 2)

        def state_dict(self):
            return dict(model=super().state_dict(), extra=self.extra.state_dict())

    assert make(TwoHeaded).state_dict().keys() == {"model", "extra"}


class OnlyChildCalledModule(torch.nn.Module):
    uses_prev_action = False

    def __init__(self, **kwargs):
        super().__init__()
        self.module = MlpFfModel(**kwargs)

    def forward(self, *inputs):
        return self.module(*inputs)


def test_a_model_whose_only_part_is_called_module_is_loaded(one_rank):
    agent, other = make(MlpFfAgent, ModelCls=OnlyChildCalledModule), make(MlpFfAgent, ModelCls=OnlyChildCalledModule)
    other.load_state_dict(agent.state_dict())
    assert torch.equal(output(agent), output(other))
    agent.data_parallel()
    change(agent.model)
    other.load_state_dict(agent.model.state_dict())
    assert torch.equal(output(agent), output(other))


def test_the_initial_state_dict_is_loaded_by_the_method_of_the_subclass():
    class WithScale(MlpFfAgent):
        def make_models(self):
            super().make_models()
            self.scale = 1.0

        def state_dict(self):
            return dict(model=super().state_dict(), scale=self.scale)

        def load_state_dict(self, state_dict):
            super().load_state_dict(state_dict["model"])
            self.scale = state_dict["scale"]

    agent = make(WithScale)
    change(agent.model)
    agent.scale = 3.0
    other = make(WithScale, initial_model_state_dict=agent.state_dict())
    assert torch.equal(output(agent), output(other)) and other.scale == 3.0


# --- Sharing ----------------------------------------------------------------------------------------------------------


def _watch(agent, pipe):
    torch.set_num_threads(1)
    agent.collector_initialize(3, range(3))
    agent.sample_mode(0)
    while pipe.recv() is not None:
        pipe.send(output(agent).numpy())


@pytest.mark.parametrize("AgentCls", AGENTS)
@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
def test_a_worker_sees_the_parents_changes(AgentCls, start_method):
    agent = make(AgentCls, share_memory=True)
    ctx = mp.get_context(start_method)
    pipe, theirs = ctx.Pipe()
    worker = ctx.Process(target=_watch, args=(agent, theirs), daemon=True)
    worker.start()
    seen = []
    for _ in range(3):
        change(agent.model)
        pipe.send("look")
        assert pipe.poll(60), "the worker does not answer"
        seen.append(torch.from_numpy(pipe.recv()))
        torch.testing.assert_close(seen[-1], output(agent))
    pipe.send(None)
    worker.join(60)
    assert worker.exitcode == 0
    assert not torch.allclose(seen[0], seen[-1])


def test_an_agent_which_shares_nothing_pickles():
    agent = make(MlpFfAgent)
    assert torch.equal(output(pickle.loads(pickle.dumps(agent))), output(agent))


def test_syncing_copies_from_a_separate_trained_model():
    agent = make(MlpFfAgent, share_memory=True)
    agent.sync_shared_memory()
    assert agent.shared_model is agent.model
    agent.model = copy.deepcopy(agent.shared_model)
    change(agent.model)
    agent.sync_shared_memory()
    assert torch.equal(agent.shared_model.pi.model[0].weight, agent.model.pi.model[0].weight)
    assert agent.shared_model.pi.model[0].weight.is_shared()


# --- Asynchronous exchange --------------------------------------------------------------------------------------------


def _sample_asynchronously(agent, pipe):
    torch.set_num_threads(1)
    agent.async_cpu()
    agent.sample_mode(0)
    while pipe.recv() is not None:
        before = output(agent)
        agent.recv_shared_memory()
        pipe.send((before.numpy(), output(agent).numpy()))


@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
@pytest.mark.parametrize("share_memory", [False, True])
def test_a_sampler_takes_over_parameters_when_they_are_sent(start_method, share_memory):
    agent = make(MlpFfAgent, share_memory=share_memory)
    ctx = mp.get_context(start_method)
    agent.async_initialize(ctx)
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    pipe, theirs = ctx.Pipe()
    sampler = ctx.Process(target=_sample_asynchronously, args=(agent, theirs), daemon=True)
    sampler.start()

    def look():
        pipe.send("look")
        assert pipe.poll(60), "the sampler does not answer"
        return tuple(map(torch.from_numpy, pipe.recv()))

    def train():
        optimizer.zero_grad()
        agent(*INPUTS)[1].sum().backward()
        agent(*INPUTS)[0].prob[:, 0].sum().backward()
        optimizer.step()
        return output(agent)

    old = output(agent)
    for wait in (torch.equal, torch.allclose):
        before, after = look()
        assert wait(before, after)
        torch.testing.assert_close(after, old)
    new = train()
    agent.send_shared_memory()
    before, after = look()
    torch.testing.assert_close(before, old)
    torch.testing.assert_close(after, new)
    newer = train()
    torch.testing.assert_close(look()[1], new)  # trained, not sent
    agent.send_shared_memory()
    torch.testing.assert_close(look()[1], newer)
    pipe.send(None)
    sampler.join(60)
    assert sampler.exitcode == 0


def test_parameters_are_received_once_per_sending():
    agent = make(MlpFfAgent)
    agent.async_initialize()
    agent.send_shared_memory()
    sampler = copy.copy(agent)
    sampler.async_cpu(share_memory=False)
    assert not any(parameter.is_shared() for parameter in sampler.parameters())
    change(sampler.model)
    mine = output(sampler)
    sampler.recv_shared_memory()
    assert torch.equal(output(sampler), mine)
    agent.send_shared_memory()
    sampler.recv_shared_memory()
    assert torch.equal(output(sampler), output(agent))


def test_exchange_without_shared_memory_fails_in_a_sentence():
    with pytest.raises(RuntimeError, match="call async_initialize"):
        make(MlpFfAgent).send_shared_memory()


# --- Data-parallel ----------------------------------------------------------------------------------------------------


@pytest.fixture
def one_rank(tmp_path):
    with process_group(tmp_path / "meeting"):
        yield


@pytest.mark.parametrize("AgentCls", AGENTS)
def test_data_parallel_wraps_the_trained_model_and_changes_nothing_else(AgentCls, one_rank):
    agent, plain = make(AgentCls), make(AgentCls)
    plain.load_state_dict(agent.state_dict())
    names = {key: None for key in agent.state_dict()}.keys()
    agent.sample_mode(0)
    assert agent.data_parallel() is None
    assert unwrap_ddp(agent.model) is not agent.model
    agent.train_mode(0)
    assert agent.model.training and unwrap_ddp(agent.model).training
    assert unwrap_ddp(plain.model) is plain.model
    assert torch.equal(output(agent), output(plain))
    assert agent.state_dict().keys() == names
    plain.load_state_dict(agent.state_dict())

    raw = {name: model.state_dict() for name, model in agent.named_models().items()}  # with "module." in the names
    saved = raw if len(raw) > 1 else raw["model"]
    change(plain.model)
    plain.load_state_dict(saved)
    agent.load_state_dict(saved)
    assert torch.equal(output(agent), output(plain))

    assert not getattr(agent.model, SYNC_BUFFERS)  # Buffers are equal already, and one rank may act alone.

    outputs = agent(*INPUTS)
    (outputs if torch.is_tensor(outputs) else outputs[1] + outputs[0].prob.sum(-1)).sum().backward()
    assert all(parameter.grad is not None for parameter in agent.parameters())
    if AgentCls is MlpDqnAgent:
        agent.update_target()
        assert torch.equal(agent.target(*INPUTS), agent(*INPUTS))


def _share_gradients(rank, results):
    torch.manual_seed(rank)
    agent = make(MlpDqnAgent)
    agent.data_parallel()
    if rank == 0:
        agent.sample_mode(0)
        agent.step(*INPUTS)  # one rank may act alone
    agent(*(INPUTS if rank == 0 else INPUTS[:1])).sum().backward()
    results[rank, 0] = next(agent.parameters()).detach()
    results[rank, 1] = next(agent.target_model.parameters())
    results[rank, 2] = next(agent.parameters()).grad


@processes
def test_all_ranks_start_with_the_same_models_and_share_gradients():
    results = torch.zeros(2, 3, 128, 4).share_memory_()
    run_ranks(_share_gradients, results)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0, 0], results[0, 1]) and results[0, 2].abs().sum() > 0


# --- Devices ----------------------------------------------------------------------------------------------------------


def test_an_agent_that_is_initialized_again_is_on_the_cpu_in_no_mode():
    agent = make(MlpDqnAgent)
    agent.device, agent._mode = torch.device("meta"), "eval"  # As after a run on another device.
    agent.initialize(SPACES)
    assert agent.device == torch.device("cpu") and agent._mode is None


def test_no_cuda_index_leaves_the_agent_on_the_cpu():
    agent = make(MlpDqnAgent, share_memory=True)
    model = agent.model
    agent.to_device(None)
    assert agent.model is model and agent.device == torch.device("cpu")


@gpu
@pytest.mark.parametrize("AgentCls", AGENTS)
def test_training_on_a_gpu_leaves_the_shared_model_on_the_cpu(AgentCls):
    agent = make(AgentCls, share_memory=True)
    agent.to_device(0)
    assert {p.device.type for model in agent.named_models().values() for p in model.parameters()} == {"cuda"}
    assert all(p.is_shared() and p.device.type == "cpu" for p in agent.shared_model.parameters())
    assert output(agent).device.type == "cpu"
    trained = agent(*INPUTS)
    assert (trained if torch.is_tensor(trained) else trained[1]).device.type == "cuda"
    change(agent.model)
    agent.sync_shared_memory()
    shared = make(AgentCls)
    shared.model = agent.shared_model
    torch.testing.assert_close(output(shared), output(agent), rtol=1e-3, atol=1e-3)


# --- Inputs -----------------------------------------------------------------------------------------------------------


def test_previous_actions_and_rewards_are_null_after_an_episodes_end():
    prev_action = torch.arange(1, 9).view(4, 2)
    done = torch.tensor([[False, True], [True, False], [False, False], [True, True]])
    nulled = null_after_done(prev_action, done, null=-1)
    assert nulled.tolist() == [[1, 2], [3, -1], [-1, 6], [7, 8]]
    assert prev_action.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_structured_actions_are_nulled_part_by_part():
    Action = AgentInputs  # any namedarraytuple
    done = torch.tensor([[True], [False]])
    action = Action(torch.ones(2, 1), torch.ones(2, 1, 2), None)
    nulled = null_after_done(action, done, null=Action(5, torch.tensor([6, 7]), None))
    assert type(nulled) is Action and nulled.prev_reward is None
    assert nulled.observation.tolist() == [[1], [5]]
    assert nulled.prev_action.tolist() == [[[1, 1]], [[6, 7]]]


def test_a_model_may_declare_that_it_ignores_the_previous_action():
    class Inherits(MlpFfModel):
        pass

    class Overrides(MlpFfModel):
        def forward(self, observation, prev_action, prev_reward):
            return super().forward(observation, prev_action, prev_reward)

    assert not uses_prev_action(MlpFfModel) and not uses_prev_action(Inherits)
    assert uses_prev_action(Overrides) and uses_prev_action(torch.nn.Linear)


def test_no_perceptron_of_rlpyt_for_continuous_actions_uses_the_previous_action():
    models = [each for each in vars(mlp).values() if isinstance(each, type) and issubclass(each, mlp.QpgMlp) and each is not mlp.QpgMlp]
    assert len(models) == 6 and not any(map(uses_prev_action, models))


def test_an_agent_without_its_methods_says_so():
    for use in (lambda: BaseAgent()(*INPUTS), lambda: BaseAgent().step(*INPUTS)):
        with pytest.raises(NotImplementedError, match="BaseAgent defines no"):
            use()


def test_a_scripted_module_follows_the_mode_too():
    """It keeps its mode where Python's attributes do not reach."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.jit.script(torch.nn.Dropout(0.5)))
    set_training(model, True)
    set_training(model, False)
    with torch.no_grad():
        torch.testing.assert_close(model(OBSERVATION), model[0](OBSERVATION), rtol=0, atol=0)
