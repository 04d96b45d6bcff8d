"""The complete state of an environment as plain data, so that a resumed run goes on where it stopped.

An environment of one's own has one if it defines ``get_state()``, which returns plain data (see `rlpyt.utils.plain`), and
``set_state(state)``, after which the same actions have the same consequences. `AtariEnv` and `GymEnvWrapper` do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.utils.plain import NotPlain, from_plain, to_plain

# Parts of a gymnasium environment that do not change while it runs, or that only show it, by the names of their classes.
_STATIC = {"EnvSpec", "MjModel", "MujocoRenderer", "type", "function", "module", "method", "builtin_function_or_method", "partial"}


def get_state(env: Any) -> Any:
    """Return the state of an environment, plain data; None if it cannot be told."""
    if not (hasattr(env, "get_state") and hasattr(env, "set_state")):
        return None
    try:
        return env.get_state()
    except NotPlain:
        return None


def set_state(env: Any, state: Any) -> None:
    """Put an environment made with the same arguments into a state that `get_state` returned."""
    env.set_state(state)


def get_gym_state(env: Any) -> list:
    """Return the state of a gymnasium environment: the attributes of each of its wrappers and of itself, from the outside inwards.

    Of what is inside a wrapper and not of gymnasium, it is what its own ``get_state`` returns.

    Raises:
        NotPlain: one of them is an object whose state is unknown here.
    """
    outermost, *others = _layers(env)
    return [_attributes(outermost)] + [("own", layer.get_state()) if _has_own_state(layer) else _attributes(layer) for layer in others]


def set_gym_state(env: Any, state: list) -> None:
    """Invert `get_gym_state`."""
    for layer, attributes in zip(_layers(env), state, strict=True):
        if isinstance(attributes, tuple):
            layer.set_state(attributes[1])
            continue
        for name, (kind, content) in attributes.items():
            if kind == "mujoco":
                _set_mujoco_state(layer.model, layer.data, content)
            elif kind == "space":
                vars(getattr(layer, name))["_np_random"] = from_plain(content)
            elif kind == "own":
                getattr(layer, name).set_state(content)
            else:
                _assign(layer, name, from_plain(content))


def _layers(env: Any) -> list:
    """Return `env`, what it wraps, and so on inwards, as far as the first that tells its own state, with all that is inside."""
    layers = [env]
    while "env" in vars(layers[-1]) and (len(layers) == 1 or not _has_own_state(layers[-1])):
        layers.append(vars(layers[-1])["env"])
    return layers


def _has_own_state(layer: Any) -> bool:
    cls = type(layer)
    of_gymnasium = any(base.__module__ == "gymnasium.core" for base in cls.__mro__)  # Where `set_state` may be something else (MuJoCo).
    return hasattr(cls, "get_state") and hasattr(cls, "set_state") and not of_gymnasium


def _attributes(layer: Any) -> dict[str, tuple[str, Any]]:
    """What can change of one wrapper, or of the environment itself."""
    state = {}
    for name, value in vars(layer).items():
        where = f"{type(layer).__qualname__}.{name}"
        kind = type(value).__name__
        if name == "env" or kind in _STATIC:
            continue
        if kind == "MjData":
            state[name] = "mujoco", _mujoco_state(layer.model, value)
        elif hasattr(value, "contains") and hasattr(value, "sample"):  # A space, of which only the random numbers change.
            if isinstance(generator := vars(value).get("_np_random"), np.random.Generator):
                state[name] = "space", to_plain(generator, where)
        elif hasattr(value, "get_state") and hasattr(value, "set_state") and not isinstance(value, np.random.RandomState):
            state[name] = "own", value.get_state()
        else:
            state[name] = "plain", to_plain(value, where)
    return state


def _assign(layer: Any, name: str, value: Any) -> None:
    """Set an attribute; arrays in place, since there may be views of them."""
    present = vars(layer).get(name)
    if isinstance(value, np.ndarray) and isinstance(present, np.ndarray) and present.flags.writeable:
        if (present.shape, present.dtype) == (value.shape, value.dtype):
            present[...] = value
            return
    setattr(layer, name, value)


def _mujoco_state(model: Any, data: Any) -> Any:
    """Everything the next step depends on: positions, velocities, actuators, controls, warm start, time."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    return to_plain(state)


def _set_mujoco_state(model: Any, data: Any, state: Any) -> None:
    import mujoco

    mujoco.mj_setState(model, data, from_plain(state), mujoco.mjtState.mjSTATE_INTEGRATION)
    warm_start = data.qacc_warmstart.copy()
    mujoco.mj_forward(model, data)  # What follows from it, such as the positions of bodies.
    data.qacc_warmstart[:] = warm_start
