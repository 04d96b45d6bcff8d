"""Building optimizers, clipping their gradients, and stepping several at once."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch

from rlpyt.utils.logging import logger
from rlpyt.utils.misc import module_of
from rlpyt.utils.plain import check_form
from rlpyt.utils.settings import shown

# Settings of torch's optimizers that choose an implementation or its abilities.
_IMPLEMENTATION_SETTINGS = {"fused", "foreach", "capturable", "differentiable"}


def make_optimizer(OptimCls: type, params: Iterable, lr: float, optim_kwargs: dict | None = None, capturable: bool = False) -> Any:
    """Build an optimizer, fused if it has a fused implementation and `optim_kwargs` choose no other.

    Args:
        OptimCls: class of the optimizer.
        params: parameters, or groups of them.
        lr: learning rate.
        optim_kwargs: further arguments of `OptimCls`.
        capturable: steps become part of a CUDA graph. If the optimizer reads its learning rate on the device, the rate is then a tensor,
            which `set_learning_rate` changes.
    """
    groups = list(params)
    kwargs = dict(optim_kwargs or {})
    if not _IMPLEMENTATION_SETTINGS & set(kwargs) and _is_of_torch_with(OptimCls, "fused"):
        tensors = _flat(groups)
        kwargs["fused"] = all(p.is_floating_point() for p in tensors) and _can_be_fused(OptimCls, {p.device for p in tensors})
    if capturable and _is_of_torch_with(OptimCls, "capturable"):
        kwargs.setdefault("capturable", True)
    reads_on_device = capturable and (kwargs.get("capturable") or kwargs.get("fused"))
    return OptimCls(groups, lr=torch.full((), lr, device=_flat(groups)[0].device) if reads_on_device else lr, **kwargs)


def rate_may_change(optimizer: Any) -> bool:
    """Return whether a CUDA graph with steps of `optimizer` sees a change of its learning rate."""
    return all(isinstance(group["lr"], torch.Tensor) for group in optimizer.param_groups)


def set_learning_rate(optimizer: Any, lr: float) -> None:
    """Set the learning rate of all parameters. A tensor is changed in place, so that CUDA graphs see the new rate."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def _is_of_torch_with(OptimCls: type, argument: str) -> bool:
    of_torch = module_of(OptimCls).startswith("torch.optim")
    return of_torch and argument in inspect.signature(OptimCls).parameters


def _can_be_fused(OptimCls: type, devices: Iterable[torch.device]) -> bool:
    """Return whether the optimizer has a fused implementation for parameters on these devices."""
    try:
        OptimCls([torch.zeros(1, device=device) for device in devices], fused=True)
    except RuntimeError:
        return False
    return True


def _flat(groups: Sequence) -> list[torch.Tensor]:
    """Return the tensors in a list of parameters, named parameters, or parameter groups."""
    flat: list[torch.Tensor] = []
    for item in groups:
        if isinstance(item, dict):
            params = item["params"]
            flat += _flat([params] if isinstance(params, torch.Tensor) else list(params))
        else:
            flat.append(item[1] if isinstance(item, tuple) else item)
    return flat


def optimizer_state(optimizer: Any) -> dict[str, Any]:
    """Return the state of an optimizer, with learning rates as numbers."""
    state = optimizer.state_dict()
    return {**state, "param_groups": [{**group, "lr": float(group["lr"])} for group in state["param_groups"]]}


def load_optimizer_state(optimizer: Any, state_dict: dict[str, Any]) -> None:
    """Load a state that any implementation of the optimizer saved. `optimizer` keeps its implementation.

    The state of a scalar parameter may have the shape `[1]`, as in the original rlpyt. The optimizer gets copies, so that its steps leave
    `state_dict` as it is.
    """
    check_form(state_dict, dict(param_groups=[dict], state=dict), "The state of the optimizer")
    groups = state_dict["param_groups"]
    if len(groups) == len(optimizer.param_groups):  # Otherwise load_state_dict raises.
        own = [{name: group[name] for name in _IMPLEMENTATION_SETTINGS & set(group)} for group in optimizer.param_groups]
        groups = [{**saved, **settings} for saved, settings in zip(groups, own)]
        for group, rate in zip(groups, [group["lr"] for group in optimizer.param_groups]):
            if isinstance(rate, torch.Tensor):
                group["lr"] = torch.full_like(rate, group["lr"])
    optimizer.load_state_dict({**state_dict, "state": copy.deepcopy(state_dict["state"]), "param_groups": groups})
    for saved in [saved for parameter, saved in optimizer.state.items() if parameter.dim() == 0]:
        saved.update({name: value.squeeze() for name, value in saved.items() if isinstance(value, torch.Tensor)})


def load_initial_state(algo: Any, is_scheduled: bool) -> None:
    """Load the `initial_optim_state_dict` of an algorithm, if it has one; warn of each setting that the state replaces.

    Args:
        algo: the algorithm, with its optimizers.
        is_scheduled: the algorithm sets learning rates in each iteration, so those of the state do not matter.
    """
    if algo.initial_optim_state_dict is None:
        return
    optimizers = {name: each for name, each in vars(algo).items() if hasattr(each, "param_groups")}
    before = {name: _settings(optimizer) for name, optimizer in optimizers.items()}
    algo.load_optim_state_dict(algo.initial_optim_state_dict)
    for name, optimizer in optimizers.items():
        for i, (given, loaded) in enumerate(zip(before[name], _settings(optimizer))):
            changed = [
                f"{key}={shown(loaded[key])} instead of {shown(given[key])}"
                for key in given
                if key in loaded and not _are_close(loaded[key], given[key]) and not (key == "lr" and is_scheduled)
            ]
            if changed:
                group = f", parameter group {i}" if len(before[name]) > 1 else ""
                logger.warn(f"{name}{group} has {', '.join(changed)}: the settings in initial_optim_state_dict count.")


def _settings(optimizer: Any) -> list[dict[str, Any]]:
    """Return the settings of each parameter group that are numbers, or tuples of numbers."""

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return value.item()
        return tuple(value) if isinstance(value, list) else value

    def is_plain(value: Any) -> bool:
        return isinstance(value, (int, float)) or (isinstance(value, tuple) and all(map(is_plain, value)))

    groups = [{key: plain(value) for key, value in group.items()} for group in optimizer.param_groups]
    return [{key: value for key, value in group.items() if is_plain(value) and key not in _IMPLEMENTATION_SETTINGS} for group in groups]


def _are_close(a: Any, b: Any) -> bool:
    """Return whether two numbers, or tuples of numbers, are equal but for the rounding of float32."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and all(map(_are_close, a, b))
    return a == b or math.isclose(a, b, rel_tol=1e-6)


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """Return the parameters that `optimizer` steps."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def zero_grads(optimizers: Iterable[Any]) -> None:
    """Remove the gradients of all parameters that the optimizers step."""
    for optimizer in optimizers:
        for parameter in parameters_of(optimizer):
            parameter.grad = None


def clip_grad_norm(optimizer: Any, max_norm: float) -> torch.Tensor:
    """Scale the gradients of all parameters of `optimizer` down to a joint norm of at most `max_norm`.

    Returns:
        The norm before scaling, as a tensor on the device.
    """
    return clip_grad_norms([optimizer], max_norm)[0]


def clip_grad_norms(optimizers: Sequence[Any], max_norm: float) -> list[torch.Tensor]:
    """Do `clip_grad_norm` for each optimizer separately; return one norm per optimizer."""
    grads = [[g for p in parameters_of(optimizer) if (g := p.grad) is not None] for optimizer in optimizers]
    norms = torch.stack(torch._foreach_norm(list(chain(*grads))))
    total_norms = list(torch._foreach_norm(norms.split([len(of_one) for of_one in grads]) if len(grads) > 1 else [norms]))
    if norms.device.type == "cpu":  # Reading norms is free there.
        for of_one, norm in zip(grads, total_norms):
            if norm > max_norm:
                torch._foreach_mul_(of_one, (max_norm / (norm + 1e-6)).clamp(max=1))
        return total_norms
    all_norms = total_norms[0].reshape(1) if len(grads) == 1 else torch.stack(total_norms)
    excesses = (all_norms / max_norm).clamp_(min=1)
    for of_one, excess in zip(grads, excesses.unbind()):
        torch._foreach_div_(of_one, excess)
    return total_norms


def step_all(optimizers: Sequence[Any]) -> None:
    """Take a step of each optimizer.

    Fused Adam optimizers with the same settings step in one operation, because for small networks calling `Optimizer.step` takes as long
    as the arithmetic.
    """
    together: dict[tuple, list] = {}
    for optimizer in optimizers:
        key = _key_of_plain_adam(optimizer)
        if key is None:
            optimizer.step()
        else:
            together.setdefault(key, []).append(optimizer)
    for (_, *settings), group in together.items():
        _step_plain_adam(group, *settings)


def _key_of_plain_adam(optimizer: Any) -> tuple | None:
    """Return (device, lr, beta1, beta2, weight_decay, eps) if these alone determine a step of the optimizer, otherwise None."""
    if type(optimizer) is not torch.optim.Adam or len(optimizer.param_groups) != 1:
        return None
    hooked = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or "step" in vars(optimizer)
    group = optimizer.param_groups[0]
    special = any(group.get(name) for name in ("amsgrad", "maximize", "differentiable", "decoupled_weight_decay"))
    plain = group["fused"] and not special and not isinstance(group["lr"], torch.Tensor)
    started = len(optimizer.state) == len(group["params"])  # The first step creates the state.
    if hooked or not plain or not started or any(p.grad is None for p in group["params"]):
        return None
    return group["params"][0].device, group["lr"], *group["betas"], group["weight_decay"], group["eps"]


def _counted_on(steps: list[torch.Tensor], states: Sequence[dict]) -> list[torch.Tensor]:
    """Add 1 to the counters of steps, scalars in `states`. They become views of one tensor, so that this is one operation."""
    joined = steps[0]._base
    if joined is None or joined.shape != (len(steps),) or any(step._base is not joined for step in steps):
        joined = torch.stack(steps)
        steps = list(joined.unbind())
        for state, step in zip(states, steps):
            state["step"] = step
    joined.add_(1)
    return steps


@torch.no_grad()
def _step_plain_adam(optimizers: Sequence[Any], lr: float, beta1: float, beta2: float, weight_decay: float, eps: float) -> None:
    params: list[Any] = list(chain(*map(parameters_of, optimizers)))  # All have gradients.
    states = [optimizer.state[p] for optimizer in optimizers for p in parameters_of(optimizer)]
    steps = _counted_on([state["step"] for state in states], states)
    torch._fused_adam_(
        params,
        [p.grad for p in params],
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        steps,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=False,
        maximize=False,
    )
