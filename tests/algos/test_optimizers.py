import copy

import pytest
import torch

from rlpyt.algos.optimizers import clip_grad_norms, load_optimizer_state, make_optimizer, step_all, zero_grads


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


def groups_of_parameters(n):
    torch.manual_seed(0)
    return [[torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(4))] for _ in range(n)]


def set_grads(groups, step, seed=1):
    generator = torch.Generator().manual_seed(100 * seed + step)
    for p in (p for group in groups for p in group):
        p.grad = torch.randn(p.shape, generator=generator)


SETTINGS = [
    [dict(), dict(), dict()],
    [dict(lr=0.1), dict(lr=0.2), dict(lr=0.1)],
    [dict(betas=(0.5, 0.9)), dict(weight_decay=0.1), dict(eps=1e-3)],
    [dict(amsgrad=True), dict(), dict(maximize=True)],
    [dict(weight_decay=0.3, decoupled_weight_decay=True), dict(weight_decay=0.3), dict(weight_decay=0.3, decoupled_weight_decay=True)],
    [dict(fused=False), dict(lr=torch.tensor(0.1)), dict()],
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_steps_of_several_optimizers_are_those_of_each(settings):
    """`Optimizer.step` is the oracle; the state, too, must be the same."""
    sides = []
    for step in (step_all, lambda optimizers: [optimizer.step() for optimizer in optimizers]):
        groups = groups_of_parameters(len(settings))
        optimizers = [torch.optim.Adam(group, **{"lr": 0.1, "fused": True, **kwargs}) for group, kwargs in zip(groups, settings)]
        for i in range(4):
            set_grads(groups, i)
            step(optimizers)
        sides.append([groups, [optimizer.state_dict() for optimizer in optimizers]])
    torch.testing.assert_close(*sides, rtol=0, atol=0)


def test_steps_together_go_through_what_was_loaded_hooks_and_schedulers():
    sides = []
    for together in (True, False):
        groups = groups_of_parameters(3)
        optimizers = [torch.optim.Adam(group, lr=0.1, fused=True) for group in groups]
        called = []
        optimizers[1].register_step_post_hook(lambda *args: called.append(1))  # noqa: B023
        scheduler = torch.optim.lr_scheduler.StepLR(optimizers[2], step_size=1, gamma=0.5)
        for i in range(4):
            set_grads(groups, i)
            if i == 3:
                groups[0][1].grad = None
            step_all(optimizers) if together else [optimizer.step() for optimizer in optimizers]
            scheduler.step()
            if i == 1:
                optimizers[0].load_state_dict(optimizers[0].state_dict())
        assert len(called) == 4
        sides.append([groups, [optimizer.state_dict() for optimizer in optimizers]])
    torch.testing.assert_close(*sides, rtol=0, atol=0)


def test_counters_of_a_parameter_without_dimensions_survive_a_file(tmp_path):
    def made():
        group = [torch.nn.Parameter(torch.tensor(1.0)), torch.nn.Parameter(torch.ones(2))]
        return group, torch.optim.Adam(group, lr=0.1, fused=True)

    def step(group, optimizer, how):
        for p in group:
            p.grad = torch.ones_like(p)
        how(optimizer)

    states = []
    for how in (lambda optimizer: step_all([optimizer]), lambda optimizer: optimizer.step()):
        group, optimizer = made()
        step(group, optimizer, how)
        torch.save(optimizer.state_dict(), tmp_path / "state")
        group, optimizer = made()
        load_optimizer_state(optimizer, torch.load(tmp_path / "state"))
        step(group, optimizer, how)
        states.append((group, optimizer.state_dict()))
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert states[0][1]["state"][0]["step"].item() == 2


def test_counters_of_steps_survive_other_ways_to_step_and_copies():
    sides = []
    for together in (True, False):
        groups = groups_of_parameters(2)
        optimizers = [torch.optim.Adam(group, lr=0.1, fused=True) for group in groups]
        for i in range(7):
            set_grads(groups, i)
            for subset in ([optimizers], [optimizers[:1], optimizers[1:]], [optimizers[::-1]])[i % 3]:
                step_all(subset) if together and i != 4 else [optimizer.step() for optimizer in subset]
            if i == 5:
                optimizers[0].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
        sides.append([groups, [optimizer.state_dict() for optimizer in optimizers]])
    torch.testing.assert_close(*sides, rtol=0, atol=0)
    assert {state["step"].item() for optimizer in optimizers for state in optimizer.state.values()} == {7}


def test_other_optimizers_and_several_groups_step_as_ever():
    sides = []
    for step in (step_all, lambda optimizers: [optimizer.step() for optimizer in optimizers]):
        groups = groups_of_parameters(4)
        two_groups = torch.optim.Adam([dict(params=groups[0]), dict(params=groups[1], lr=0.3)], lr=0.1, fused=True)
        optimizers = [two_groups, torch.optim.SGD(groups[2], lr=0.1), torch.optim.AdamW(groups[3], lr=0.1, fused=True)]
        for i in range(3):
            set_grads(groups, i)
            step(optimizers)
        sides.append(groups)
    torch.testing.assert_close(*sides, rtol=0, atol=0)


def test_a_loaded_state_leaves_the_implementation_alone():
    params = parameters()
    saved = torch.optim.Adam(params, lr=0.3, foreach=True).state_dict()
    optimizer = make_optimizer(torch.optim.Adam, params, 0.1, dict(capturable=False), capturable=True)
    before = {name: optimizer.param_groups[0][name] for name in ("fused", "foreach", "capturable", "differentiable")}
    load_optimizer_state(optimizer, saved)
    group = optimizer.param_groups[0]
    assert {name: group[name] for name in before} == before and group["lr"] == 0.3
    with pytest.raises(ValueError, match="parameter group"):
        load_optimizer_state(optimizer, torch.optim.Adam([dict(params=[p]) for p in params]).state_dict())


@pytest.mark.parametrize("max_norm", [0.5, 3.0, 1e9])
def test_gradients_are_clipped_as_torch_does_it(max_norm):
    sides = []
    for mine in (True, False):
        groups = groups_of_parameters(3)
        set_grads(groups, 0)
        groups[1][0].grad *= 100
        groups[2][1].grad = None
        if mine:
            norms = clip_grad_norms([torch.optim.SGD(group, lr=0.1) for group in groups], max_norm)
        else:
            norms = [torch.nn.utils.clip_grad_norm_(group, max_norm) for group in groups]
        sides.append([norms, [[p.grad for p in group if p.grad is not None] for group in groups]])
    torch.testing.assert_close(*sides)


def test_no_gradient_is_left():
    groups = groups_of_parameters(2)
    set_grads(groups, 0)
    zero_grads([torch.optim.SGD(group, lr=0.1) for group in groups])
    assert all(p.grad is None for group in groups for p in group)


def test_steps_leave_the_state_that_was_loaded_as_it_is():
    """One snapshot may begin several runs."""

    def stepped(state=None):
        optimizer = make_optimizer(torch.optim.Adam, parameters(), 0.1)
        if state is not None:
            load_optimizer_state(optimizer, state)
        for _ in range(3):
            zero_grads([optimizer])
            sum((p**3).sum() for p in optimizer.param_groups[0]["params"]).backward()
            step_all([optimizer])
        return optimizer

    state = stepped().state_dict()
    before = copy.deepcopy(state)
    results = [stepped(state).param_groups[0]["params"] for _ in range(2)]
    torch.testing.assert_close(state, before, rtol=0, atol=0)
    torch.testing.assert_close(*results, rtol=0, atol=0)
