"""The complete state of an environment as plain data, so that a run can be resumed in the middle of an episode.

`rlpyt.envs.base.StatefulEnv` lists the methods that an environment defines for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlpyt.envs.base import StatefulEnv, has_state
from rlpyt.utils.misc import attributes, has_all
from rlpyt.utils.plain import NotPlain, check_form, from_plain, shown, to_plain

# Classes, by name, of attributes that need no saving: they never change, or only display the environment.
_STATIC = {"EnvSpec", "MjModel", "MujocoRenderer", "type", "function", "module", "method", "builtin_function_or_method", "partial"}


def get_state(env: Any) -> Any:
    """Return the state of an environment as plain data; None if it is unknown."""
    if not has_state(env):
        return None
    try:
        return env.get_state()
    except NotPlain:
        return None


def set_state(env: StatefulEnv, state: Any) -> None:
    """Restore a state from `get_state` of an environment made with the same arguments."""
    env.set_state(state)


def set_states(envs: Sequence[Any], states: Any, name: str) -> None:
    """Restore the states of several environments; None leaves an environment unchanged. ValueError if their numbers differ."""
    if len(states) != len(envs):
        raise ValueError(f"{name} has {len(states)} entries, and not {len(envs)}.")
    for env, state in zip(envs, states):
        if state is not None:
            set_state(env, state)


def get_gym_state(env: Any) -> list:
    """Return the state of a gymnasium environment: the attributes of each wrapper and of the environment, outermost first.

    The list ends with the first inner environment that is not of gymnasium and has ``get_state``, which returns the rest of the state.

    Raises:
        NotPlain: the state of an attribute is unknown.
    """
    outermost, *others = _layers(env)
    return [_attributes(outermost)] + [("own", layer.get_state()) if _has_own_state(layer) else _attributes(layer) for layer in others]


def set_gym_state(env: Any, state: list) -> None:
    """Restore the result of `get_gym_state`.

    Raises:
        ValueError: the state is damaged, or of an environment with other wrappers or attributes.
    """
    layers = _layers(env)
    check_form(state, list, "The state of an environment")
    if len(state) != len(layers):
        raise ValueError(f"The state has {len(state)} nested environments, but this environment has {len(layers)}.")
    for i, (layer, saved) in enumerate(zip(layers, state)):
        if i > 0 and _has_own_state(layer):
            layer.set_state(_content_of(saved, "own", type(layer).__qualname__))
            continue
        check_form(saved, dict, type(layer).__qualname__)
        for name, entry in saved.items():
            _set_attribute(layer, name, entry)


def _content_of(entry: Any, kind: str, where: str) -> Any:
    """Return the content of a saved ``(kind, content)``; ValueError if the kind is wrong."""
    if not (isinstance(entry, tuple) and len(entry) == 2 and entry[0] == kind):
        raise ValueError(f"The saved {where} is not of the kind {kind!r}: the state is damaged, or of another environment.")
    return entry[1]


def _set_attribute(layer: Any, name: Any, entry: Any) -> None:
    """Restore one entry of the result of `_attributes`."""
    where = f"{type(layer).__qualname__}.{name}"
    of_class = getattr(type(layer), name, None) if isinstance(name, str) else None
    if not (isinstance(name, str) and name.isidentifier()) or callable(of_class) or isinstance(of_class, property):
        raise ValueError(f"{where} is no attribute that has a state.")
    present = attributes(layer).get(name)
    kind = _kind(name, present)
    content = _content_of(entry, kind or "plain", where)
    if kind == "mujoco":
        _set_mujoco_state(layer.model, layer.data, content)
    elif kind == "space":
        generator = from_plain(content, where)
        if not isinstance(generator, np.random.Generator):
            raise ValueError(f"{where} is {shown(generator)}, not a random generator.")
        attributes(present)["_np_random"] = generator
    elif kind == "own" and present is not None:
        present.set_state(content)
    elif kind is None:
        raise ValueError(f"{where} is no attribute that has a state.")
    else:
        _assign(layer, name, from_plain(content, where))


def _layers(env: Any) -> list:
    """Return `env` and the environments inside, outermost first, up to the first inner one that saves its state itself."""
    layers = [env]
    while "env" in attributes(layers[-1]) and (len(layers) == 1 or not _has_own_state(layers[-1])):
        layers.append(attributes(layers[-1])["env"])
    return layers


def _has_own_state(layer: Any) -> bool:
    cls = type(layer)
    of_gymnasium = any(base.__module__ == "gymnasium.core" for base in cls.__mro__)  # Their `set_state` may mean something else (MuJoCo).
    return has_state(cls) and not of_gymnasium


def _attributes(layer: Any) -> dict[str, tuple[str, Any]]:
    """Return the attributes of one wrapper or environment that can change, each as ``(kind, content)``."""
    state = {}
    for name, value in attributes(layer).items():
        where = f"{type(layer).__qualname__}.{name}"
        kind = _kind(name, value)
        if kind == "mujoco":
            state[name] = kind, _mujoco_state(layer.model, value)
        elif kind == "space":
            if isinstance(generator := attributes(value).get("_np_random"), np.random.Generator):
                state[name] = kind, to_plain(generator, where)
        elif kind == "own":
            state[name] = kind, value.get_state()
        elif kind == "plain":
            state[name] = kind, to_plain(value, where)
    return state


def _kind(name: str, value: Any) -> str | None:
    """Return how the state of an attribute is saved; None if it does not change."""
    kind = type(value).__name__
    if name == "env" or kind in _STATIC:
        return None
    if kind == "MjData":
        return "mujoco"
    if has_all(value, "contains", "sample"):  # A space: only its random generator changes.
        return "space"
    return "own" if has_state(value) and not isinstance(value, np.random.RandomState) else "plain"


def _assign(layer: Any, name: str, value: Any) -> None:
    """Set an attribute; write arrays in place, because views of them may exist."""
    present = attributes(layer).get(name)
    if isinstance(value, np.ndarray) and isinstance(present, np.ndarray) and present.flags.writeable:
        if (present.shape, present.dtype) == (value.shape, value.dtype):
            present[...] = value
            return
    setattr(layer, name, value)


def _mujoco_state(model: Any, data: Any) -> Any:
    """Return everything that determines the next step: positions, velocities, actuators, controls, warm start, time."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    return to_plain(state)


def _set_mujoco_state(model: Any, data: Any, state: Any) -> None:
    import mujoco

    mujoco.mj_setState(model, data, from_plain(state, "The state of MuJoCo"), mujoco.mjtState.mjSTATE_INTEGRATION)
    warm_start = data.qacc_warmstart.copy()
    mujoco.mj_forward(model, data)  # Compute derived values, such as the positions of bodies.
    data.qacc_warmstart[:] = warm_start
