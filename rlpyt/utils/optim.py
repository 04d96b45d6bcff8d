"""Optimizers chosen by an argument: a class, or a class with its settings."""

from __future__ import annotations

from typing import Any


class _Default:
    """Marks a keyword argument as a default: it is dropped if the optimizer class comes with a dictionary of arguments.

    Args:
        val: the value.
    """

    def __init__(self, val: Any) -> None:
        self.val = val

    def __repr__(self) -> str:
        return f"_Default({self.val!r})"


def make_optimizer(optimizer_type: Any, module: Any = None, **kwargs: Any) -> Any:
    """Make an optimizer.

        make_optimizer(torch.optim.Adam, module=policy, lr=1e-3)
        make_optimizer((torch.optim.Adam, dict(lr=1e-3)), module=policy, lr=_Default(1e-4))  # lr is 1e-3.

    The tuple corresponds to ``OptimCls`` and ``optim_kwargs`` of rlpyt's algorithms.

    Args:
        optimizer_type: class of the optimizer, or a tuple of the class and a dictionary of its arguments.
        module: ``torch.nn.Module`` whose parameters the optimizer steps, for optimizers of torch; None calls the class without parameters.
        kwargs: other arguments of the class, if `optimizer_type` is not a tuple.

    Returns:
        The optimizer.

    Raises:
        ValueError: arguments are given both in the tuple and by keyword.
        TypeError: `optimizer_type` is neither a class nor such a tuple.
    """
    if isinstance(optimizer_type, tuple):
        if len(optimizer_type) != 2 or not isinstance(optimizer_type[1], dict):
            raise TypeError(f"optimizer_type={optimizer_type!r} must be a class, or a tuple of a class and a dictionary of its arguments.")
        OptimCls, arguments = optimizer_type
        chosen = [name for name, value in kwargs.items() if not isinstance(value, _Default)]
        if chosen:
            raise ValueError(f"Put {', '.join(chosen)} into the dictionary of optimizer_type={optimizer_type!r}, or give no dictionary.")
    else:
        OptimCls = optimizer_type
        arguments = {name: value.val if isinstance(value, _Default) else value for name, value in kwargs.items()}
    if not callable(OptimCls):
        raise TypeError(f"optimizer_type={optimizer_type!r} must be a class, or a tuple of a class and a dictionary of its arguments.")
    return OptimCls(**arguments) if module is None else OptimCls(module.parameters(), **arguments)
