import math
from collections import namedtuple

import pytest
import torch

from rlpyt.algos.base import RlAlgorithm, make_optimizer, read_opt_info

Info = namedtuple("Info", ["loss", "errors"])


def parameters(dtype=torch.float32):
    return [torch.nn.Parameter(torch.ones(3, dtype=dtype)), torch.nn.Parameter(torch.ones(2, dtype=dtype))]


@pytest.mark.parametrize("OptimCls", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_optimizers_are_fused_by_default(OptimCls):
    assert make_optimizer(OptimCls, iter(parameters()), 0.1).param_groups[0]["fused"] is True


@pytest.mark.parametrize("setting", [dict(fused=False), dict(foreach=True), dict(capturable=False), dict(differentiable=True)])
def test_what_the_user_says_about_the_implementation_decides(setting):
    assert not make_optimizer(torch.optim.Adam, parameters(), 0.1, setting).param_groups[0]["fused"]


def test_optimizers_that_know_no_fusion_are_left_alone():
    class Mine(torch.optim.Adam):
        pass

    assert "fused" not in make_optimizer(torch.optim.RMSprop, parameters(), 0.1).param_groups[0]
    assert not make_optimizer(Mine, parameters(), 0.1).param_groups[0]["fused"]
    assert not make_optimizer(torch.optim.SGD, parameters(torch.complex64), 0.1).param_groups[0]["fused"]


def test_groups_and_named_parameters_are_parameters():
    a, b = parameters()
    groups = [dict(params=[a], lr=0.5), dict(params=b)]
    optimizer = make_optimizer(torch.optim.Adam, groups, 0.1, dict(eps=0.01))
    assert [(g["lr"], g["eps"], g["fused"]) for g in optimizer.param_groups] == [(0.5, 0.01, True), (0.1, 0.01, True)]
    named = make_optimizer(torch.optim.Adam, [("a", a), ("b", b)], 0.1)
    assert named.param_groups[0]["fused"]


def test_the_fused_step_is_the_plain_one():
    results = []
    for kwargs in (None, dict(foreach=False)):
        params = parameters()
        optimizer = make_optimizer(torch.optim.Adam, params, 0.1, kwargs)
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            sum((p**3).sum() for p in params).backward()
            optimizer.step()
        results.append(torch.cat([p.detach() for p in params]))
    torch.testing.assert_close(*results)


def test_opt_info_lists_the_numbers_of_all_updates_in_order():
    updates = [Info(torch.tensor(1.0), torch.tensor([1.0, 2.0])), Info(torch.tensor(2.0, requires_grad=True), None), Info(3, torch.ones(1))]
    info = read_opt_info(Info, updates)
    assert info == Info([1.0, 2.0, 3.0], [1.0, 2.0, 1.0])
    assert all(type(x) is float for field in info for x in field)


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
