"""What can be chosen about models: that the code does what is chosen, with equal results, and that all sizes of a model are asked for."""

import subprocess
import sys

import pytest
import torch

from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.models import linear, questions
from rlpyt.models.conv2d import images_to_float
from rlpyt.models.dqn.atari_dqn_model import AtariDqnModel
from rlpyt.models.dqn.mlp_iqn_model import MlpIqnModel
from rlpyt.models.linear import Linear, onednn_is_available
from rlpyt.models.lstm import LstmWithInputs
from rlpyt.models.mlp import MlpModel
from rlpyt.models.qpg.mlp import MuMlpModel, QofMuMlpModel, q_values
from rlpyt.models.qpg.perceptron import stack_parameters
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.choices import adopt, chosen, current, trying

needs_onednn = pytest.mark.skipif(not onednn_is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def nothing_is_chosen():
    adopt({})
    yield
    adopt({})


def asked(models, **kwargs):
    """Questions -> comparisons."""
    kwargs = dict(dict(trained_rows=[256], acting_rows=[8]), **kwargs)
    return {each.question: each for each in questions.comparisons(models, **kwargs)}


# --- What is asked ----------------------------------------------------------------------------------------------------
@needs_onednn
def test_large_products_of_all_sizes_are_asked_for_and_small_ones_are_not():
    found = asked([MlpModel(100, [512, 256], 4), MlpModel(100, [512])], acting_rows=[8, 256], acting_threads=3)
    trained = {("linear", 256, 100, 512), ("linear", 256, 512, 256)}
    assert set(found) == trained | {("acting", 8, 512, 256), ("acting", 256, 100, 512), ("acting", 256, 512, 256)}
    for question, each in found.items():
        assert tuple(each.alternatives) == (("blas", "onednn") if question in trained else ("blas", "onednn", "weight_first"))
        assert ("3 threads" in each.conditions) == (question not in trained)


@needs_onednn
@pytest.mark.skipif(not linear.packs(), reason="this torch or this processor does not pack weights")
def test_bfloat16_is_the_default_where_it_is_allowed():
    found = asked([MlpModel(100, [512, 256], 4)], trained_rows=[], acting_rows=[8], acting_bf16=True)
    assert found["acting", 8, 512, 256].alternatives[0] == "bfloat16"


@needs_onednn
def test_the_head_of_implicit_quantiles_sees_a_row_for_each_fraction(monkeypatch):
    model = MlpIqnModel((100,), 3, [512, 256])
    found = asked([model], trained_rows=[32], trained_fractions=[8, 16], acting_fractions=[32])
    of_embedding = {("linear", 32 * n, 64, 512) for n in (8, 16)}
    assert {each for each in found if each[0] == "linear"} == of_embedding | {
        ("linear", 32, 100, 512), *(("linear", 32 * n, 512, 256) for n in (8, 16)),
    }  # fmt: skip
    assert ("acting", 8 * 32, 512, 256) in found and ("acting", 8, 512, 256) not in found
    seen = []
    monkeypatch.setattr(questions, "_pass", lambda layer, x: seen.append(tuple(x.shape)))
    questions.update_comparison(("threads",), [2, 1], [model], 32, fractions=[8, 16]).prepare()()
    assert seen == [(32, 100), (32 * 16, 64), (32 * 16, 512), (32 * 16, 256)]


@needs_onednn
def test_what_is_asked_about_an_agent_of_implicit_quantiles_is_what_its_layers_ask(monkeypatch):
    """Nothing that training or acting looks up is missing."""
    agent = MlpIqnAgent(n_quantiles=8, n_target_quantiles=16, n_acting_quantiles=32, model_kwargs=dict(hidden_sizes=[512, 256]))
    agent.initialize(EnvSpaces(FloatBox(-1, 1, (100,)), IntBox(0, 3)))
    fractions = dict(trained_fractions=agent.trained_fractions, acting_fractions=agent.acting_fractions)
    found = asked([agent.model, agent.target_model], trained_rows=[32], acting_rows=[64], **fractions)
    looked_up = set()
    monkeypatch.setattr(linear, "chosen", lambda question: looked_up.add(question))
    inputs = torch.randn(32, 100), torch.zeros(32, dtype=torch.long), torch.zeros(32)
    agent.train_mode(0)
    agent(*inputs, agent.fractions(32))
    with torch.no_grad():
        agent.target(*inputs, agent.target_fractions(32))
    trained = {("linear", *sizes) for _, *sizes in looked_up}
    looked_up.clear()
    agent.sample_mode(0)
    agent.step(torch.randn(64, 100), torch.zeros(64, dtype=torch.long), torch.zeros(64))
    acted = {question for question in looked_up if question[0] == "acting"}
    assert trained and acted and trained | acted <= set(found)


def test_critics_are_asked_for_and_their_targets_are_not():
    critics = [QofMuMlpModel((17,), [256, 256], 6) for _ in range(2)]
    targets = [QofMuMlpModel((17,), [256, 256], 6).requires_grad_(False) for _ in range(2)]
    assert ("nets", 2, 256, 23, 256) in asked([MuMlpModel((17,), [256, 256], 6), *critics, *targets])
    assert not any(question[0] == "nets" for question in asked([critics[0], targets[0]]))


def test_images_are_asked_for_once():
    models = [AtariDqnModel((4, 52, 40), 3), AtariDqnModel((4, 52, 40), 3)]
    found = [question for question in asked(models, trained_rows=[64], image_shape=(4, 52, 40)) if question[0] == "images"]
    assert found == [("images", 64, 4, 52, 40)]
    assert not any(question[0] == "images" for question in asked(models))


@pytest.mark.parametrize("question", ["linear", "acting", "nets", "images"])
def test_all_alternatives_can_be_computed_and_leave_nothing_behind(question):
    critics = [QofMuMlpModel((17,), [64, 64], 6) for _ in range(2)]
    models = [*critics, AtariDqnModel((4, 52, 40), 3)]
    before = [parameter.clone() for model in models for parameter in model.parameters()]
    for each in asked(models, image_shape=(4, 52, 40), acting_bf16=True, acting_rows=[64]).values():
        if each.question[0] == question:
            compute = each.prepare()
            for alternative in each.alternatives:
                with each.use(alternative):
                    compute()
    after = [parameter for model in models for parameter in model.parameters()]
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, after)) and current() == {}


@pytest.mark.parametrize(
    "model, sizes",
    [
        (MlpModel(5, [6], 2), "16 rows, 5x6 6x2"),
        (LstmWithInputs(4, 2, 3), "16 rows, lstm 7x3"),
        (AtariDqnModel((4, 52, 40), 3), "images 4x52x40"),
        (MlpModel(5, [6], 2).requires_grad_(False), ""),
    ],
)
def test_an_updates_computations_are_those_of_its_layers(model, sizes):
    comparison = questions.update_comparison(("threads",), [2, 1], [model], 16, (4, 52, 40))
    assert (comparison is not None) == bool(sizes)
    if comparison is not None:
        assert comparison.conditions.endswith(sizes)
        comparison.prepare()()


# --- What is done -----------------------------------------------------------------------------------------------------
@needs_onednn
@pytest.mark.parametrize("with_grad", [True, False])
def test_a_linear_layer_computes_by_the_library_that_was_chosen(with_grad, monkeypatch):
    by_onednn, onednn_linear = [], linear.onednn_linear
    monkeypatch.setattr(linear, "onednn_linear", lambda *args: by_onednn.append(1) or onednn_linear(*args))
    layer, x = Linear(128, 256), torch.randn(64, 128)
    with torch.set_grad_enabled(with_grad):
        expected = layer(x)
        assert not by_onednn
        with trying(("linear", 64, 128, 256), "onednn"):
            torch.testing.assert_close(layer(x), expected)
            assert by_onednn == [1]
            layer(x[:63])
    assert by_onednn == [1], "Other sizes are computed by default."


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("way, function", [("onednn", "onednn_linear"), ("weight_first", "weight_first_linear")])
def test_a_linear_layer_acts_in_the_way_that_was_chosen(way, function, bias, monkeypatch):
    calls, original = [], getattr(linear, function)
    monkeypatch.setattr(linear, function, lambda *args: calls.append(1) or original(*args))
    layer, x = Linear(128, 256, bias=bias), torch.randn(64, 128)
    with torch.no_grad():
        expected = layer(x)
        with trying(("acting", 64, 128, 256), way):
            y = layer(x)
            torch.testing.assert_close(y, expected)
            assert y.is_contiguous() and calls == [1]
            layer(x[:63])
    with trying(("acting", 64, 128, 256), way):
        layer(x)
    assert calls == [1], "Neither other sizes nor calls with gradient are computed in this way."


@needs_onednn
def test_what_was_chosen_for_acting_comes_before_what_was_chosen_for_training(monkeypatch):
    by_onednn, onednn_linear = [], linear.onednn_linear
    monkeypatch.setattr(linear, "onednn_linear", lambda *args: by_onednn.append(1) or onednn_linear(*args))
    layer, x = Linear(128, 256), torch.randn(64, 128)
    adopt({"linear 64 128 256": "onednn", "acting 64 128 256": "blas"})
    with torch.no_grad():
        layer(x)
    assert not by_onednn


@pytest.mark.skipif(not linear.packs(), reason="this torch or this processor does not pack weights")
@pytest.mark.parametrize("answer, packed", [(None, True), ("bfloat16", True), ("weight_first", False), ("blas", False)])
def test_a_weight_is_packed_in_bfloat16_unless_float32_was_chosen(answer, packed):
    adopt({} if answer is None else {"acting 64 128 256": answer})
    layer = Linear(128, 256)
    assert layer.pack(rows=64) is packed and (layer._packed is not None) is packed


NO_IMPORTS = """
import sys
import torch
from rlpyt.models.questions import comparisons
from rlpyt.models.qpg.mlp import QofMuMlpModel

for comparison in comparisons([QofMuMlpModel((17,), [256, 256], 6) for _ in range(2)], [256]):
    compute, before = comparison.prepare(), set(sys.modules)
    compute()
    print(comparison.question[0], len(set(sys.modules) - before))
"""


def test_what_is_measured_first_in_a_new_process_imports_nothing():
    """PyTorch imports sympy where `backward` is given gradients. That took all of the time for measurements."""
    told = subprocess.run([sys.executable, "-c", NO_IMPORTS], capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert "nets" in told[::2] and set(told[1::2]) == {"0"}, told


def test_measured_are_gradients_of_1_for_each_output():
    x, grads = torch.randn(3, 2, requires_grad=True), []
    hook = lambda g: grads.append(g.clone())  # noqa: E731

    def module(x):
        outputs = 2 * x, x.sum(1)
        for output in outputs:
            output.register_hook(hook)
        return outputs

    questions._pass(module, x)
    assert sorted(g.shape for g in grads) == [(3,), (3, 2)] and all(torch.equal(g, torch.ones_like(g)) for g in grads)
    torch.testing.assert_close(x.grad, torch.full((3, 2), 3.0))


@needs_onednn
@pytest.mark.parametrize("alternative", ["blas", "onednn"])
def test_so_does_a_perceptron_forwards_and_backwards(alternative, monkeypatch):
    names, calls = ("onednn_linear", "onednn_product"), []
    for name in names:
        function = getattr(linear, name)
        monkeypatch.setattr(linear, name, lambda *args, function=function, name=name: calls.append(name) or function(*args))
    model, x, action = QofMuMlpModel((122,), [128, 128], 6), torch.randn(64, 122), torch.randn(64, 6)
    expected = torch.autograd.grad(model(x, None, None, action).square().sum(), list(model.parameters()))
    adopt({"linear 64 128 128": alternative})
    got = torch.autograd.grad(model(x, None, None, action).square().sum(), list(model.parameters()))
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    # Two layers forwards; gradients of two weights, and one of what is between them, each of which is a call of both functions.
    assert (calls.count(names[0]), calls.count(names[1])) == ((5, 3) if alternative == "onednn" else (0, 0))


def test_critics_are_computed_as_was_chosen(monkeypatch):
    batched, baddbmm = [], torch.baddbmm
    monkeypatch.setattr(torch, "baddbmm", lambda *args: batched.append(1) or baddbmm(*args))
    models = [QofMuMlpModel((3,), [8], 2) for _ in range(2)]
    stack_parameters(models)
    inputs = torch.randn(5, 3), None, None, torch.randn(5, 2)
    parameters = [p for model in models for p in model.parameters()]
    results = []
    for answers in ({}, {"nets 2 5 5 8": "together"}):
        adopt(answers)
        values = q_values(models, *inputs)
        results.append([*values, *torch.autograd.grad(sum(v.square().sum() for v in values), parameters)])
        assert len(batched) == (2 if answers else 0)
    for a, b in zip(*results):
        torch.testing.assert_close(a, b)


def test_images_are_laid_out_as_was_chosen():
    images = torch.randint(256, (5, 4, 9, 7), dtype=torch.uint8)
    default = images_to_float(images)
    assert default.is_contiguous(memory_format=torch.channels_last) and not default.is_contiguous()
    adopt({"images 5 4 9 7": "channels_first"})
    assert chosen(("images", 5, 4, 9, 7)) == "channels_first"
    other = images_to_float(images)
    assert other.is_contiguous() and torch.equal(other, default)
