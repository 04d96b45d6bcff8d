"""The states of algorithms and samplers of any kind, for the snapshots of a `Trainer`."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.utils.logging.snapshot import reading
from rlpyt.utils.misc import has_all
from rlpyt.utils.plain import NotPlain, check_form, from_plain, to_plain

KEPT = (torch.Tensor, torch.Size, torch.dtype, torch.device)  # A snapshot can hold these, and plain data.


def check_has_state(part: Any, otherwise: str = "keep no snapshots of it") -> None:
    """Raise TypeError unless an object returns its state."""
    if not (has_state_dict(part) or _has_getstate(part)):
        raise TypeError(
            f"{type(part).__name__} has neither state_dict() and load_state_dict() nor __getstate__() and __setstate__(), so a snapshot "
            f"could not hold its state: define them, or {otherwise}."
        )


def has_state_dict(part: Any) -> bool:
    """Return whether an object returns and restores its state by methods of these names."""
    return has_all(part, "state_dict", "load_state_dict")


def _has_getstate(part: Any) -> bool:
    """Return whether an object's class defines ``__getstate__`` and ``__setstate__``. (Since Python 3.11, every object has the former.)"""
    defined = {name for cls in type(part).__mro__ if cls is not object for name in vars(cls)}
    return {"__getstate__", "__setstate__"} <= defined


def state_of(part: Any) -> dict[str, Any]:
    """Return the state of an object for a snapshot."""
    check_has_state(part)
    name = type(part).__name__
    method = "state_dict" if has_state_dict(part) else "__getstate__"
    try:
        return {"class": name, "state": to_plain(getattr(part, method)(), f"{name}.{method}()", KEPT)}
    except NotPlain as error:
        raise TypeError(
            f"{error} A snapshot cannot hold that, because loading it would run code: return its state instead, in tensors, arrays, "
            "numbers, strings, random generators, and dicts, lists and tuples of them."
        ) from None


def load_state(part: Any, saved: dict[str, Any], file: Any) -> None:
    """Invert `state_of`; raise ValueError if the state belongs to another class, or is damaged."""
    name = type(part).__name__
    with reading(file, f"The state of {name}"):
        check_form(saved, {"class": str, "state": object}, "state")
        if saved["class"] != name:
            raise ValueError(f"it is of a {saved['class']}, and cannot be the state of a {name}.")
        state = from_plain(saved["state"], name)
        part.load_state_dict(state) if has_state_dict(part) else part.__setstate__(state)
