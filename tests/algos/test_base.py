import math
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch

from rlpyt.algos import cuda_graph
from rlpyt.algos.base import Counted, RlAlgorithm, read_opt_info
from rlpyt.algos.replay import OffPolicyAlgorithm

Info = namedtuple("Info", ["loss", "errors"])


def test_opt_info_lists_the_numbers_of_all_updates_in_order():
    updates = [Info(torch.tensor(1.0), torch.tensor([1.0, 2.0])), Info(torch.tensor(2.0, requires_grad=True), None), Info(3, torch.ones(1))]
    info = read_opt_info(Info, updates)
    assert info == Info([1.0, 2.0, 3.0], [1.0, 2.0, 1.0])
    assert all(type(x) is float for field in info for x in field)


def test_opt_info_lists_only_numbers_that_count():
    some = Counted(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    updates = [Info(torch.tensor(1.0), some), Info(2.0, Counted(torch.ones(2), torch.zeros(2))), Info(3.0, torch.tensor([5.0]))]
    assert read_opt_info(Info, updates) == Info([1.0, 2.0, 3.0], [2.0, 3.0, 5.0])


@pytest.mark.parametrize("field,value", [("loss", math.nan), ("loss", math.inf), ("loss", -math.inf), ("errors", math.nan)])
def test_numbers_that_say_training_has_failed_are_refused_in_a_sentence(field, value):
    updates = [Info(torch.tensor(1.0), torch.tensor([1.0, 2.0])) for _ in range(3)]
    updates[1] = updates[1]._replace(**{field: torch.tensor([value])})
    with pytest.raises(FloatingPointError, match=f"{field} became {value}. Lower the learning rate, and check rewards and observations"):
        read_opt_info(Info, updates)


@pytest.mark.parametrize("field,refused", [("gradNorm", True), ("qLoss", True), ("piGradNorm", True), ("entropy", False)])
def test_only_losses_and_gradient_norms_must_be_finite(field, refused):
    Infinite = namedtuple("Infinite", [field])
    if refused:
        with pytest.raises(FloatingPointError, match=field):
            read_opt_info(Infinite, [Infinite(math.inf)])
    else:
        assert read_opt_info(Infinite, [Infinite(math.inf)]) == ([math.inf],)


def test_opt_info_of_no_update_is_empty_lists():
    assert read_opt_info(Info, []) == Info([], [])


def test_the_base_class_leaves_everything_to_subclasses():
    algo = RlAlgorithm()
    assert (algo.opt_info_fields, algo.bootstrap_value, algo.update_counter) == ((), False, 0)
    with pytest.raises(NotImplementedError):
        algo.optimize_agent(0)


def test_gradients_of_losses_are_those_of_torch_whatever_the_shapes_of_losses():
    algo, x = RlAlgorithm(), torch.ones(3, requires_grad=True)
    for losses in ([x.sum()], [x[:1] * 2], [x.sum() * 3, x[1:2]]):
        expected = sum(torch.autograd.grad(loss, x, torch.ones_like(loss), retain_graph=True)[0] for loss in losses)
        x.grad = None
        algo.backward_from(losses)
        assert torch.equal(x.grad, expected)


def test_graphs_are_made_for_so_many_shapes_only(monkeypatch):
    captured = []
    monkeypatch.setattr(cuda_graph, "warm_up", lambda func, device: func())
    monkeypatch.setattr(cuda_graph, "capture", lambda func, device: captured.append(func) or func)
    monkeypatch.setattr(cuda_graph, "MAX_GRAPHS", 2)
    graphed = cuda_graph.GraphedUpdate(lambda batch: batch * 2, torch.device("cpu"))
    for n in (1, 2, 3, 1, 3):
        for _ in range(5):
            assert torch.equal(graphed(torch.arange(n)), 2 * torch.arange(n))
    assert len(captured) == 2


def test_an_off_policy_algorithm_has_one_optimizer_of_all_parameters_unless_it_says_otherwise():
    parameter = torch.nn.Parameter(torch.zeros(2))
    first = OffPolicyAlgorithm(learning_rate=0.5, OptimCls=torch.optim.SGD, optim_kwargs=dict(momentum=0.5))
    first.agent = SimpleNamespace(parameters=lambda: [parameter])
    first.optim_initialize(rank=1)
    (group,) = first.optimizer.param_groups
    assert first.rank == 1 and [each is parameter for each in group["params"]] == [True]
    assert (group["lr"], group["momentum"]) == (0.5, 0.5)
    parameter.grad = torch.ones(2)
    first.optimizer.step()
    second = OffPolicyAlgorithm(OptimCls=torch.optim.SGD, initial_optim_state_dict=first.optim_state_dict())
    second.agent = first.agent
    second.optim_initialize()
    assert torch.equal(second.optimizer.state[parameter]["momentum_buffer"], torch.ones(2))
