import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from tiers import full

from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent, MlpQrDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.agents.pg.base import PgAgent
from rlpyt.agents.pg.composite import MlpCompositeFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent, MlpLstmAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent, MujocoLstmAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_lstm_agent import SacLstmAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.distributions.categorical import Categorical
from rlpyt.distributions.composite import Composite as CompositeDistribution
from rlpyt.envs.base import EnvSpaces
from rlpyt.models import tape
from rlpyt.models.batch_renorm import BatchRenorm
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel
from rlpyt.models.linear import Linear, PackedWeight
from rlpyt.models.mlp import MlpModel
from rlpyt.models.pg.mlp_composite_model import MlpCompositeFfModel
from rlpyt.models.pg.mlp_ff_model import MlpFfModel
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.tape import NotRepeatable, Tape, Tapes
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils import choices
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.structures import leaves_of

VECTORS, IMAGES, BYTES = FloatBox(-1, 1, (5,)), IntBox(0, 256, (1, 36, 36), dtype="uint8"), IntBox(0, 256, (2, 3), dtype="uint8")
NUMBERS, DISCRETE, CONTINUOUS = IntBox(0, 7), IntBox(0, 3), FloatBox(-1, 1, (2,))
NORMALIZED = dict(model_kwargs=dict(normalize_observation=True))

# Agent, its settings, observations, actions, and whether its model acts from a tape.
AGENTS = {
    "categorical": (MlpFfAgent, {}, VECTORS, DISCRETE, True),
    "bytes": (MlpFfAgent, {}, BYTES, DISCRETE, True),
    "numbers": (MlpFfAgent, {}, NUMBERS, DISCRETE, False),  # F.one_hot looks at the values.
    "gaussian": (MlpGaussianFfAgent, {}, VECTORS, CONTINUOUS, True),
    "normalized": (MujocoFfAgent, NORMALIZED, VECTORS, CONTINUOUS, True),
    "evaluated by the mean": (MujocoFfAgent, dict(deterministic_eval=True), VECTORS, CONTINUOUS, True),
    "lstm": (MlpLstmAgent, {}, VECTORS, DISCRETE, True),
    "gru": (MlpLstmAgent, dict(model_kwargs=dict(rnn="gru")), VECTORS, DISCRETE, True),
    "gaussian lstm": (MujocoLstmAgent, NORMALIZED, VECTORS, CONTINUOUS, True),
    "images": (AtariFfAgent, {}, IMAGES, DISCRETE, False),
    "dqn": (MlpDqnAgent, dict(model_kwargs=dict(dueling=True)), VECTORS, DISCRETE, True),
    "noisy": (MlpDqnAgent, dict(model_kwargs=dict(noisy=True)), VECTORS, DISCRETE, True),
    "catdqn": (MlpCatDqnAgent, {}, VECTORS, DISCRETE, True),
    "qr_dqn": (MlpQrDqnAgent, {}, VECTORS, DISCRETE, True),
    "iqn": (MlpIqnAgent, {}, VECTORS, DISCRETE, False),
    "r2d1": (MlpR2d1Agent, {}, VECTORS, DISCRETE, True),
    "ddpg": (DdpgAgent, {}, VECTORS, CONTINUOUS, True),
    "td3": (Td3Agent, {}, VECTORS, CONTINUOUS, True),
    "sac": (SacAgent, {}, VECTORS, CONTINUOUS, True),
    "crossq": (SacAgent, dict(model_kwargs=dict(hidden_sizes=[32], batch_renorm=True)), VECTORS, CONTINUOUS, True),
    "sac_lstm": (SacLstmAgent, {}, VECTORS, CONTINUOUS, None),
}


@pytest.fixture(autouse=True)
def recorded_soon(monkeypatch):
    monkeypatch.setattr(tape, "CALLS_BEFORE", 2)


def make(AgentCls, settings, observation, action):
    torch.manual_seed(3)
    agent = AgentCls(**settings)
    agent.initialize(EnvSpaces(observation, action), global_B=3, env_ranks=[0, 1, 2])
    return agent


def inputs_of(observation, action, generator, B=3):
    if observation is NUMBERS:
        seen = torch.randint(7, (B,), generator=generator)
    elif observation is VECTORS:
        seen = torch.randn(B, 5, generator=generator)
    else:
        seen = torch.randint(256, (B, *observation.shape), generator=generator).to(torch.uint8)
    prev_action = torch.randint(3, (B,), generator=generator) if action is DISCRETE else torch.randn(B, 2, generator=generator)
    return seen, prev_action, torch.randn(B, generator=generator)


def life(agent, observation, action):
    """What an agent returns that samples, learns and is evaluated, in turns."""
    generator = torch.Generator().manual_seed(1)
    returned = []
    optimizer = torch.optim.Adam(agent.parameters(), lr=0.1, fused=True)
    for itr in range(4):
        agent.sample_mode(itr)
        for _ in range(6):
            returned.append(agent.step(*inputs_of(observation, action, generator)))
            if agent.remembers_envs:
                agent.reset_one(1)
        if isinstance(agent, PgAgent):
            returned.append(agent.value(*inputs_of(observation, action, generator)))
        agent.eval_mode(itr)
        agent.reset()
        for _ in range(4):
            returned.append(agent.step(*inputs_of(observation, action, generator, B=2 if not agent.remembers_envs else 3)))
        agent.reset()
        agent.train_mode(itr)
        agent.update_obs_rms(inputs_of(observation, action, generator)[0])
        for parameter in agent.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return [leaf.clone() for leaf in leaves_of(tuple(returned))], torch.get_rng_state()


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_acts_with_tapes_as_without_to_the_last_bit(name, monkeypatch):
    AgentCls, settings, *spaces, is_taped = AGENTS[name]
    agent = make(AgentCls, settings, *spaces)
    found, found_random = life(agent, *spaces)
    tapes = [each for each in agent._tapes._tapes.values() if isinstance(each, Tape)]
    if is_taped is not None:
        assert bool(tapes) == is_taped
    monkeypatch.setattr(tape, "CALLS_BEFORE", 10**9)
    expected, expected_random = life(make(AgentCls, settings, *spaces), *spaces)
    assert len(found) == len(expected)
    assert all(torch.equal(*pair) for pair in zip(found, expected))
    assert torch.equal(found_random, expected_random)


# ---------------------------------------------------------------------------------------------------------------------
# One model
# ---------------------------------------------------------------------------------------------------------------------
def no_grad(func):
    return torch.no_grad()(func)


class Counted(torch.nn.Module):
    """A user's model, which counts calls of its code."""

    static_forward = True

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 3)
        self.n_calls = [0]

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        return torch.relu(self.layer(observation))


class Undeclared(Counted):
    def forward(self, *inputs):
        return super().forward(*inputs)


class LooksAtValues(Counted):
    static_forward = True

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        return observation * observation.sum().item()


class ReturnsANumber(Counted):
    static_forward = True

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        return self.layer(observation), 3


class Remembers(Counted):
    static_forward = True

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        return self.total.add_(self.layer(observation).sum(0)).clone()


class Draws(Counted):
    """Draws random numbers, in a way that a tape repeats, and then in one that it does not."""

    static_forward = True

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        return torch.rand(3) + torch.randperm(3)


RECORDED = 4  # Two calls, a recorded one, and one with which the tape is compared.
INPUTS = torch.randn(4, 5), torch.zeros(4, 2), torch.zeros(4)


@no_grad
def calls_of(model, n=8, tapes=None, **changed):
    """Call a model through tapes; return how often its code ran."""
    model.eval()
    tapes, before = tapes or Tapes(), model.n_calls[0]
    for _ in range(n):
        tapes(model, INPUTS)
    return model.n_calls[0] - before


def test_a_model_is_called_until_it_is_recorded_and_never_afterwards():
    model, tapes = Counted(), Tapes()
    assert calls_of(model, 8, tapes) == RECORDED
    assert calls_of(model, 8, tapes) == 0


@pytest.mark.parametrize("Model", [Undeclared, LooksAtValues, ReturnsANumber, Remembers, Draws])
def test_models_that_a_tape_cannot_stand_for_are_always_called(Model):
    extra = Model is not Undeclared  # The attempt to record it.
    assert calls_of(Model(), 8) == 8 + extra


class UsesNumpy(Counted):
    """Computes outside of torch, where nothing is recorded."""

    static_forward = True

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        return torch.from_numpy(observation.numpy() * 2)


class UsesLists(UsesNumpy):
    static_forward = True

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        return torch.tensor(observation.tolist()) * 2


@pytest.mark.parametrize("Model", [UsesNumpy, UsesLists])
def test_what_is_computed_outside_of_torch_is_found_out(Model):
    assert calls_of(Model(), 8) == 8 + 2  # The attempt to record it, and the comparison.


@full
def test_compiled_models_are_not_recorded():
    compiled = []

    def backend(graph, example_inputs):
        def run(*inputs):
            compiled.append(graph)
            return graph(*inputs)

        return run

    model = Counted()
    model.compile(backend=backend, fullgraph=True)
    calls_of(model, 8)
    assert len(compiled) == 8


class Warm(Categorical):
    """A distribution of a user's, whose parameters depend on an attribute."""

    temperature = 1.0

    def prob_of(self, x):
        return super().prob_of(x / self.temperature)


@no_grad
@pytest.mark.parametrize("is_part", [False, True])
def test_a_model_with_an_object_of_a_users_is_called(is_part):
    warm, tapes = Warm(3), Tapes()
    distribution = CompositeDistribution([warm], namedarraytuple("Single", ["a"])) if is_part else warm
    model = MlpCompositeFfModel((5,), distribution).eval()
    for warm.temperature in (1.0, 3.0):
        for _ in range(6):
            assert all(torch.equal(*pair) for pair in zip(leaves_of(tapes(model, INPUTS)), leaves_of(model(*INPUTS))))


def test_objects_that_refer_to_each_other_are_no_trap():
    model = Counted()
    model.first, model.second = Warm(3), Warm(3)
    model.first.other, model.second.other = model.second, model.first
    assert calls_of(model, 8) == 8


@no_grad
def test_settings_of_any_kind_are_noticed():
    model, tapes = MujocoFfModel((5,), 2, normalize_observation=True).eval(), Tapes()
    for model.norm_obs_clip in (np.float64(10), np.float64(0.1)):
        tapes.check()
        for _ in range(6):
            assert all(torch.equal(*pair) for pair in zip(tapes(model, INPUTS), model(*INPUTS)))


@no_grad
def test_packed_weights_are_noticed():
    model, tapes = MlpModel(5, [3], 2).eval(), Tapes()
    for _ in range(6):
        tapes(model, INPUTS[:1])
    key = next(iter(tapes._tapes))
    assert tapes._tapes[key].is_of(model)
    model.model[0]._packed = PackedWeight(torch.zeros(1), 0)
    assert not tapes._tapes[key].is_of(model)


def test_nested_outputs_are_repeated():
    Pair = namedarraytuple("Pair", ["a", "b"])
    agent = make(MlpCompositeFfAgent, {}, VECTORS, Composite([DISCRETE, IntBox(0, 2)], Pair))
    agent.sample_mode(0)
    for _ in range(6):
        zeros = torch.zeros(3, dtype=torch.long)
        step = agent.step(torch.randn(3, 5), Pair(zeros, zeros), torch.zeros(3))
    assert [type(each) for each in agent._tapes._tapes.values()] == [Tape]
    assert step.action.a.shape == step.action.b.shape == (3,)


class Fails(Counted):
    """A model whose third call fails."""

    static_forward = True

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        if self.n_calls[0] in (3, 4):  # The attempt to record it, and the call itself.
            raise ArithmeticError("planned")
        return self.layer(observation)


def test_an_error_of_a_model_is_the_models():
    model, tapes = Fails(), Tapes()
    with pytest.raises(ArithmeticError, match="planned"):
        calls_of(model, 8, tapes)
    assert calls_of(model, 5, tapes) == 5


class Sums(Counted):
    """Does operations with variants that cannot write into given memory."""

    static_forward = True

    def forward(self, observation, prev_action, prev_reward):
        self.n_calls[0] += 1
        return observation.sum() + observation.mean() + observation.std()


def test_operations_without_such_a_variant_leave_the_model_as_it_is():
    model = Sums()
    with torch.no_grad():
        expected = model(*INPUTS)
        tapes = Tapes()
        model.eval()
        assert all(torch.equal(tapes(model, INPUTS), expected) for _ in range(8))


@no_grad
def test_a_failed_recording_leaves_the_random_numbers_as_they_were():
    model = Draws().eval()
    torch.manual_seed(5)
    expected = [model(*INPUTS) for _ in range(6)]
    torch.manual_seed(5)
    tapes = Tapes()
    assert all(torch.equal(tapes(model, INPUTS), each) for each in expected)


def with_hook(model):
    model.layer.register_forward_hook(lambda module, inputs, output: None)


def with_own_forward(model):
    model.layer.forward = lambda x: torch.nn.functional.linear(x, model.layer.weight)


@pytest.mark.parametrize("change", [with_hook, with_own_forward])
def test_hooks_and_replaced_methods_are_not_recorded(change):
    model = Counted()
    change(model)
    assert calls_of(model, 8) == 8


def test_training_gradients_autocast_and_inference_mode_call_the_model():
    model, tapes = Counted(), Tapes()
    calls_of(model, 8, tapes)
    model.train()
    with torch.no_grad():
        tapes(model, INPUTS)
    model.eval()
    assert tapes(model, INPUTS).requires_grad
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert tapes(model, INPUTS).dtype == torch.bfloat16
    with torch.inference_mode():
        tapes(model, INPUTS)
    assert model.n_calls[0] == RECORDED + 4
    assert calls_of(model, 1, tapes) == 0


def test_large_models_are_called(monkeypatch):
    monkeypatch.setattr(tape, "MOST_ELEMENTS", 20)  # of the observations
    assert calls_of(Counted(), 5) == RECORDED
    monkeypatch.setattr(tape, "MOST_ELEMENTS", 19)
    assert calls_of(Counted(), 5) == 5 + 1


def move_data(model):
    model.layer.weight.data = model.layer.weight.data * 2


def replace_parameter(model):
    model.layer.weight = torch.nn.Parameter(model.layer.weight.detach() * 2)


def replace_layer(model):
    model.layer = torch.nn.Linear(5, 3)


def share(model):
    model.share_memory()


def load(model):
    model.load_state_dict(Counted().state_dict())


def assign(model):
    model.load_state_dict(Counted().state_dict(), assign=True)


def add_hook(model):
    model.layer.register_forward_hook(lambda module, inputs, output: output + 1)


@no_grad
@pytest.mark.parametrize("change", [move_data, replace_parameter, replace_layer, share, load, assign, add_hook])
def test_tapes_notice_what_changes_between_modes(change):
    model, tapes = Counted().eval(), Tapes()
    calls_of(model, 8, tapes)
    change(model)
    tapes.check()
    for _ in range(6):
        assert torch.equal(tapes(model, INPUTS), model(*INPUTS))


@no_grad
@pytest.mark.parametrize("change", [move_data, share, load])
def test_tapes_notice_at_once_that_parameters_are_elsewhere(change):
    model, tapes = Counted().eval(), Tapes()
    calls_of(model, 8, tapes)
    change(model)
    assert torch.equal(tapes(model, INPUTS), model(*INPUTS))


@no_grad
def test_tapes_notice_another_setting_of_a_module():
    model, tapes = MujocoFfModel((5,), 2, normalize_observation=True).eval(), Tapes()
    for clip in (10, 0.1):
        model.norm_obs_clip = clip
        tapes.check()
        for _ in range(6):
            assert all(torch.equal(*pair) for pair in zip(tapes(model, INPUTS), model(*INPUTS)))


@no_grad
def test_tapes_notice_another_choice_of_how_to_compute():
    model, tapes = Counted().eval(), Tapes()
    calls_of(model, 8, tapes)
    with choices.trying(("acting", 4, 5, 3), "onednn"):
        tapes.check()
        assert calls_of(model, 1, tapes) == 1
    tapes.check()
    assert calls_of(model, 4, tapes) == RECORDED - 1  # There was one call already.


@no_grad
def test_another_model_gets_other_tapes():
    models, tapes = [Counted(), Counted()], Tapes()
    for model in [*models, *models]:
        model.eval()
        for _ in range(5):
            assert torch.equal(tapes(model, INPUTS), model(*INPUTS))


@no_grad
def test_outputs_are_in_new_memory_and_inputs_stay_as_they_are():
    model, tapes = MlpFfModel((5,), 3).eval(), Tapes()
    kept = buffer_func(INPUTS, torch.clone)
    outputs = [tapes(model, INPUTS) for _ in range(6)]
    addresses = {leaf.data_ptr() for leaf in leaves_of(tuple(outputs))}
    assert len(addresses) == 12
    for output in outputs:
        for leaf in output:
            leaf.zero_()
    assert all(torch.equal(*pair) for pair in zip(tapes(model, INPUTS), model(*INPUTS)))
    assert all(torch.equal(*pair) for pair in zip(INPUTS, kept))


@pytest.mark.parametrize("B, n, width", [(2, 17, 256), (2, 11, 64), (4, 11, 64), (3, 17, 400)])
def test_the_address_of_inputs_changes_no_bit_before_or_after_the_recording(B, n, width):
    torch.manual_seed(0)
    model, memory = MlpModel(n, [width], 3).eval(), torch.randn(16 + B * n)
    found = []
    with torch.no_grad():
        for start in range(16):  # Of some inputs, products differ in the last bits where the address is no multiple of 16 bytes.
            memory[start : start + B * n] = torch.linspace(-1, 1, B * n).sin()
            inputs = (memory[start : start + B * n].view(B, n),)
            tapes = Tapes()
            found += [tapes(model, inputs) for _ in range(tape.CALLS_BEFORE + 3)]
    assert all(torch.equal(found[0], each) for each in found)


@no_grad
def test_the_order_of_inputs_in_memory_changes_no_bit():
    torch.manual_seed(0)
    model, x = MlpModel(17, [256], 1).eval(), torch.randn(40, 17)
    inputs = [x, x.T.contiguous().T, x.repeat(1, 2)[:, :17]]
    for first in inputs:
        tapes = Tapes()
        found = [tapes(model, (first,)) for _ in range(tape.CALLS_BEFORE + 3)] + [tapes(model, (each,)) for each in inputs]
        assert all(torch.equal(found[0], each) for each in found)


@no_grad
def test_shapes_and_modes_have_separate_tapes_up_to_a_limit():
    model, tapes = Counted().eval(), Tapes()
    for B in range(1, 30):
        inputs = torch.randn(B, 5), torch.zeros(B, 2), torch.zeros(B)
        for mode in ("sample", "eval"):
            for _ in range(4):
                assert torch.equal(tapes(model, inputs, mode), model(*inputs))
    assert len(tapes._tapes) == tape.MOST_TAPES
    assert all(isinstance(each, Tape) for each in tapes._tapes.values())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tapes: pickle.loads(pickle.dumps(tapes))])
def test_copies_for_other_processes_are_empty(copied):
    model, tapes = Counted(), Tapes()
    calls_of(model, 8, tapes)
    assert calls_of(model, 8, copied(tapes)) == RECORDED
    agent = make(*AGENTS["categorical"][:4])
    life(agent, *AGENTS["categorical"][2:4])
    assert agent._tapes._tapes and not copied(agent)._tapes._tapes


@no_grad
@pytest.mark.parametrize(
    "layer",
    [torch.nn.ELU(), torch.nn.SiLU(), torch.nn.GELU(), torch.nn.LeakyReLU(), torch.nn.Softplus(), torch.nn.LayerNorm(8), BatchRenorm(8)],
    ids=lambda layer: type(layer).__name__,
)
def test_usual_layers_are_repeated(layer):
    model = torch.nn.Sequential(Linear(5, 8), layer, Linear(8, 2)).eval()
    x = torch.randn(4, 5)
    recorded = Tape(model, (x,))
    other = torch.randn(4, 5)
    assert torch.equal(recorded.repeat([other]), model(other))
    assert len(recorded.calls) >= 3


@no_grad
def test_views_take_no_call():
    recorded = Tape(MlpModel(5, [4], 2).eval(), (torch.randn(3, 5),))
    assert len(recorded.calls) == 3  # two products and the nonlinearity between them; transposed weights are views


@no_grad
def test_a_recording_says_what_it_does_not_repeat():
    with pytest.raises(NotRepeatable, match="randperm"):
        Tape(Draws().eval(), INPUTS)
    with pytest.raises(NotRepeatable, match="not a tensor"):
        Tape(ReturnsANumber().eval(), INPUTS)


@no_grad
def test_noise_is_drawn_anew():
    model = MlpDqnModel((5,), 3, noisy=True).eval()
    tapes, inputs = Tapes(), INPUTS
    torch.manual_seed(0)
    found = [tapes(model, inputs) for _ in range(6)]
    torch.manual_seed(0)
    expected = [model(*inputs) for _ in range(6)]
    assert all(torch.equal(*pair) for pair in zip(found, expected))
    assert not torch.equal(found[4], found[5])


@full
def test_a_recording_does_not_import_the_compiler():
    """The import takes seconds, in every process that acts."""
    script = """
import sys
import torch
from rlpyt.models.mlp import MlpModel
from rlpyt.models.tape import Tape

with torch.no_grad():
    Tape(MlpModel(5, [4], 2).eval(), (torch.randn(3, 5),))
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
