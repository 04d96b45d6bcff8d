"""The complete state of an environment as plain data, so that a run can be resumed in the middle of an episode.

`rlpyt.envs.base.StatefulEnv` lists the methods that an environment defines for this.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from rlpyt.envs.base import NotRestored, StatefulEnv, has_state, wrapper_chain
from rlpyt.utils.misc import attributes, has_all
from rlpyt.utils.plain import NotPlain, Reader, Writer, arrays_apart, arrays_in, check_form, from_plain, shown, to_plain

# Classes, by name, of attributes that need no saving: they never change, or only display the environment.
_STATIC = {"EnvSpec", "MjModel", "MujocoRenderer", "module"}
# Of these, the name is saved: an environment may have several, of which it uses one at a time.
_NAMED = {"type", "function", "method", "builtin_function_or_method", "partial"}
_STATISTICS = "RunningMeanStd"  # Class, by name, of running statistics, in Gymnasium's wrappers and others. The object stays, and changes.
# Environments in worlds of Box2D, which cannot be saved. They make a new world for each episode, or repeat their episodes all the same.
_REPEATED = {"gymnasium.envs.box2d.lunar_lander.LunarLander", "gymnasium.envs.box2d.car_racing.CarRacing"}
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_WRAPPED = dict(wrapper=list, env=object)  # The state of a wrapper without methods for it, see `complete_state`.


def get_state(env: Any) -> Any:
    """Return the state of an environment as plain data; None if it is unknown."""
    if not has_state(env):
        return None
    try:
        return complete_state(env)
    except NotPlain:
        return None


def complete_state(env: Any) -> Any:
    """Return the state of an environment that has one. A wrapper whose class has no `get_state` adds its attributes.

    Raises:
        NotPlain: the state of a part is unknown.
    """
    if _defines_state(env):
        return env.get_state()
    return dict(wrapper=_attributes([env]), env=complete_state(attributes(env)["env"]))


def set_state(env: StatefulEnv, state: Any) -> None:
    """Restore a state from `get_state` or `complete_state` of an environment made with the same arguments."""
    if _defines_state(env) or not (isinstance(state, dict) and state.keys() == _WRAPPED.keys()):  # Older states have no attributes.
        env.set_state(state)
        return
    check_form(state, _WRAPPED, f"The state of {type(env).__qualname__}")
    _set_attributes([env], state["wrapper"])
    set_state(attributes(env)["env"], state["env"])


def _defines_state(env: Any) -> bool:
    """Whether an environment has methods for its state that are not those of one inside: wrappers forward what they lack."""
    return has_state(type(env)) or "env" not in attributes(env)


def set_states(envs: Sequence[Any], states: Any, name: str) -> None:
    """Restore the states of several environments, each of which is reset next; ValueError if their numbers differ.

    If a state is None or cannot be restored, the environment's random numbers differ from those of an uninterrupted run.
    """
    if len(states) != len(envs):
        raise ValueError(f"{name} has {len(states)} entries, and not {len(envs)}.")
    for env, state in zip(envs, states):
        if state is not None:
            with suppress(NotRestored):
                set_state(env, state)


def restore_each(envs: Sequence[Any], states: Sequence[Any], restore: Callable[[Any, Any], None]) -> None:
    """Call ``restore(env, state)`` for each environment, also after one that cannot return to its state, and then raise its NotRestored."""
    first: NotRestored | None = None
    for env, state in zip(envs, states, strict=True):
        try:
            restore(env, state)
        except NotRestored as error:
            first = first or error
    if first is not None:
        raise first


def with_known_state(env: Any) -> Any:
    """Return `env`, with a `rlpyt.envs.repeated.RepeatedEpisode` inside if it is one whose state can be known in no other way."""
    *_, innermost = wrapper_chain(env)
    cls = type(innermost)
    if f"{cls.__module__}.{cls.__qualname__}" not in _REPEATED:
        return env
    from rlpyt.envs.repeated import repeat_episodes  # Here, because it needs gymnasium.

    return repeat_episodes(env)


def get_gym_state(env: Any) -> list:
    """Return the state of a gymnasium environment: the attributes of each wrapper and of the environment, outermost first.

    The list ends with the first inner environment that is not of gymnasium and has ``get_state``, which returns the rest of the state.

    Raises:
        NotPlain: the state of an attribute is unknown.
    """
    layers, own = _layers(env)
    return [*_attributes(layers), *(("own", layer.get_state()) for layer in own)]


def set_gym_state(env: Any, state: list) -> None:
    """Restore the result of `get_gym_state`.

    Raises:
        ValueError: the state is damaged, or of an environment with other wrappers or attributes.
    """
    layers, own = _layers(env)
    check_form(state, list, "The state of an environment")
    if len(state) != len(layers) + len(own):
        raise ValueError(f"The state has {len(state)} nested environments, but this environment has {len(layers) + len(own)}.")
    _set_attributes(layers, state[: len(layers)])
    for layer, saved in zip(own, state[len(layers) :]):
        layer.set_state(_content_of(saved, "own", type(layer).__qualname__))


@contextmanager
def statistics_kept(envs: Iterable[Any]) -> Iterator[None]:
    """Restore, after the block, the running statistics of the wrappers of environments, and the arrays beside them.

    Statistics, such as those of ``NormalizeObservation``, outlive resets. So without this, a step that only tries an environment out would
    change all that follow.
    """
    before: list[tuple[Any, dict[str, Any]]] = []  # (statistics, or what has them; its attributes)
    for layer in (layer for env in envs for layer in _layers(env)[0]):
        own = [value for name, value in attributes(layer).items() if _kind(name, value) == "statistics"]
        before += [(each, {**vars(each)}) for each in own]
        before += [(layer, {name: value for name, value in attributes(layer).items() if own and isinstance(value, np.ndarray)})]
    contents = [(value, value.copy()) for _, values in before for value in values.values() if isinstance(value, np.ndarray)]
    try:
        yield
    finally:
        for thing, values in before:
            for name, value in values.items():
                setattr(thing, name, value)
        for array, content in contents:
            if array.flags.writeable:
                array[...] = content  # In place, because others may hold it.


def _content_of(entry: Any, kind: str, where: str) -> Any:
    """Return the content of a saved ``(kind, content)``; ValueError if the kind is wrong."""
    if not (isinstance(entry, tuple) and len(entry) == 2 and entry[0] == kind):
        raise ValueError(f"The saved {where} is not of the kind {kind!r}: the state is damaged, or of another environment.")
    return entry[1]


def _set_attribute(layer: Any, name: Any, entry: Any, reader: Reader) -> Any:
    """Restore one entry of the result of `_attributes`; return (value,) if it is the value of an attribute, still to be assigned."""
    where = f"{type(layer).__qualname__}.{name}"
    if not (isinstance(name, str) and name.isidentifier()) or _is_method(layer, name):
        raise ValueError(f"{where} is no attribute that has a state.")
    own = attributes(layer)
    present = own[name] if name in own else _spaces_of_class(type(layer)).get(name)
    kind = _kind(name, present)
    if kind in ("plain", "name") and isinstance(entry, tuple) and entry[:1] in (("plain",), ("name",)):
        kind = entry[0]  # It may have been a number or None, and be a method now, or the other way round.
    content = _content_of(entry, kind or "plain", where)
    if kind == "mujoco":
        _set_mujoco_state(layer.model, layer.data, content)
    elif kind == "space":
        _set_generators(present, reader.read(content, where), where)
    elif kind == "statistics":
        statistics = reader.read(content, where)
        check_form(statistics, {each: object for each in vars(present)}, where)
        vars(present).update({each: statistics[each] for each in vars(present)})
    elif kind == "own" and present is not None:
        set_state(present, content)
    elif kind == "name":
        _choose_again(layer, name, content)
    elif kind is None:
        raise ValueError(f"{where} is no attribute that has a state.")
    else:
        return (reader.read(content, where),)
    return None


def _layers(env: Any) -> tuple[list, list]:
    """Return `env` and the environments inside, outermost first, and then the first one that saves its state itself, if any."""
    if _repeats(env):  # It saves its state itself. Other environments may call this function for that, so they are not `own` here.
        return [], [env]
    layers = [env]
    while "env" in attributes(layers[-1]):
        inner = attributes(layers[-1])["env"]
        if _has_own_state(inner):
            return layers, [inner]
        layers.append(inner)
    return layers, []


def _has_own_state(layer: Any) -> bool:
    cls = type(layer)
    of_gymnasium = any(base.__module__ == "gymnasium.core" for base in cls.__mro__)  # Their `set_state` may mean something else (MuJoCo).
    return has_state(cls) and (not of_gymnasium or _repeats(layer))


def _repeats(layer: Any) -> bool:
    """Whether a layer is a `rlpyt.envs.repeated.RepeatedEpisode`, whose module needs gymnasium."""
    return any(cls.__name__ == "RepeatedEpisode" for cls in type(layer).__mro__)


def _attributes(layers: Sequence[Any]) -> list[dict[str, tuple[str, Any]]]:
    """Return the attributes of wrappers and environments that can change, each as ``(kind, content)``. They share what they shared."""
    named = [(layer, {**_spaces_of_class(type(layer)), **attributes(layer)}) for layer in layers]
    parts = [(layer, name, value, _kind(name, value)) for layer, values in named for name, value in values.items()]
    parts = [part for part in parts if not (part[3] == "name" and _is_method(*part[:2]))]  # In the place of a method, they stay.
    content: dict[str | None, Callable[[Any], Any]] = {"statistics": vars, "space": _generators_of}
    parts = [(layer, name, content[kind](value) if kind in content else value, kind) for layer, name, value, kind in parts]
    written = ("plain", "statistics", "space")
    writer = Writer([value for *_, value, kind in parts if kind in written])
    states: dict[int, dict[str, tuple[str, Any]]] = {id(layer): {} for layer in layers}
    for layer, name, value, kind in parts:
        where = f"{type(layer).__qualname__}.{name}"
        state = states[id(layer)]
        if kind == "mujoco":
            state[name] = kind, _mujoco_state(layer.model, value)
        elif kind == "own":
            state[name] = kind, complete_state(value)
        elif kind == "name":
            state[name] = kind, _name_of(layer, value)
        elif kind in written:
            state[name] = kind, writer.write(value, where)
    return list(states.values())


def _set_attributes(layers: Sequence[Any], states: list) -> None:
    """Restore the result of `_attributes`."""
    reader, values = Reader(), []
    for layer, saved in zip(layers, states, strict=True):
        check_form(saved, dict, type(layer).__qualname__)
        for name, entry in saved.items():
            done = _set_attribute(layer, name, entry, reader)
            if done is not None:
                values.append((layer, name, done[0]))
    present = [attributes(layer).get(name) for layer, name, _ in values]
    apart = arrays_apart(present) | arrays_apart([value for *_, value in values])
    constants = {type(layer): list(arrays_in(_constants_of(type(layer)))) for layer in layers}
    for layer, name, value in values:
        _assign(layer, name, value, apart, constants[type(layer)])


def _kind(name: str, value: Any) -> str | None:
    """Return how the state of an attribute is saved; None if it does not change."""
    kind = type(value).__name__
    if name == "env" or kind in _STATIC:
        return None
    if kind in _NAMED:
        return "name"
    if kind == "MjData":
        return "mujoco"
    if kind == _STATISTICS and attributes(value):
        return "statistics"
    if _is_space(value):  # Only its random generators change.
        return "space"
    return "own" if has_state(value) and not isinstance(value, np.random.RandomState) else "plain"


def _is_space(value: Any) -> bool:
    return has_all(value, "contains", "sample") and not isinstance(value, type)


def _spaces_of_class(cls: type) -> dict[str, Any]:
    """Return the spaces that a class and its base classes hold, by name: its objects share them, with their random generators."""
    return {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items() if _is_space(value)}


def _spaces_in(space: Any) -> list[Any]:
    """Return a space of any library and all spaces that it is made of, each once, always in the same order."""
    found, seen = [space], {id(space)}
    inside: list[Any] = [attributes(space)]
    for contents in inside:  # Which grows meanwhile.
        values = [*contents.values()] if isinstance(contents, dict) else [*contents]
        for value in values:
            is_space = _is_space(value)
            if id(value) not in seen and (is_space or isinstance(value, (dict, list, tuple))):
                seen.add(id(value))
                found += [value] if is_space else []
                inside.append(attributes(value) if is_space else value)
    return found


def _generators_of(space: Any) -> list[dict[str, Any]]:
    """Return the random generators of each of `_spaces_in`, by their attributes."""
    return [{name: value for name, value in attributes(part).items() if isinstance(value, _GENERATORS)} for part in _spaces_in(space)]


def _set_generators(space: Any, saved: Any, where: str) -> None:
    """Restore the result of `_generators_of`; ValueError if it is none, or of a space with another number of parts."""
    parts = _spaces_in(space)
    if is_old := isinstance(saved, np.random.Generator):  # Older states have only this one.
        parts, saved = [space], [{"_np_random": saved}]
    if not isinstance(saved, list):
        raise ValueError(f"{where} is {shown(saved)}, not a random generator.")
    check_form(saved, [dict], where)
    if len(saved) != len(parts):
        raise ValueError(f"{where} was made of {len(saved)} spaces when the state was saved, and is made of {len(parts)} now.")
    for part, generators in zip(parts, saved):
        for name, generator in generators.items():
            if not (isinstance(name, str) and name.isidentifier()) or _is_method(part, name):
                raise ValueError(f"{where}.{name} is no attribute that has a state.")
            if not isinstance(generator, _GENERATORS):
                raise ValueError(f"{where}.{name} is {shown(generator)}, not a random generator.")
        unused = {name: None for name, value in attributes(part).items() if isinstance(value, _GENERATORS)}
        attributes(part).update({**({} if is_old else unused), **generators})


def _name_of(layer: Any, value: Any) -> str:
    """Return the name of a function, method, partial or class; that of one of the layer's own methods begins with a dot."""
    if isinstance(value, MethodType) and value.__self__ is layer:
        return f".{value.__name__}"
    value = value.func if isinstance(value, partial) else value
    named = value if isinstance(value, (type, FunctionType, BuiltinFunctionType, MethodType)) else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def _is_method(layer: Any, name: str) -> bool:
    """Whether the class of a layer has a method or property of this name."""
    of_class = getattr(type(layer), name, None)
    return callable(of_class) or isinstance(of_class, property)


def _choose_again(layer: Any, name: str, chosen: Any) -> None:
    """Set an attribute to one of the layer's own methods, if it is another one.

    Raises:
        ValueError: it was another function or class than now. (Where there is none yet, the environment will choose it again.)
    """
    where, present = f"{type(layer).__qualname__}.{name}", attributes(layer).get(name)
    check_form(chosen, str, where)
    now = _name_of(layer, present) if _kind(name, present) == "name" else None
    method = chosen.removeprefix(".")
    is_own = chosen.startswith(".") and not method.startswith("__") and isinstance(getattr(type(layer), method, None), FunctionType)
    if chosen != now and is_own:
        setattr(layer, name, getattr(layer, method))
    elif now not in (None, chosen):
        raise ValueError(
            f"{where} was {shown(chosen)} when the state was saved, and is {now!r} now. If it changes, define get_state and set_state, or "
            "use methods of the class."
        )


def _assign(layer: Any, name: str, value: Any, apart: set[int], constants: list[np.ndarray]) -> None:
    """Set an attribute. Write an array in place, because others than attributes may hold it, such as a simulator or an object inside.

    But replace it if it may be a constant, or a part of one: if a class of the layer, or the module of one, holds it. And replace it if it
    shares memory with another attribute, or did when the state was saved.

    Args:
        apart: ids of the arrays, present and saved ones, that share nothing.
        constants: arrays of the layer's classes and their modules.
    """
    present = attributes(layer).get(name)
    if isinstance(value, np.ndarray) and isinstance(present, np.ndarray) and present.flags.writeable:
        is_alike = (present.shape, present.dtype) == (value.shape, value.dtype)
        if is_alike and {id(present), id(value)} <= apart and not any(np.may_share_memory(present, each) for each in constants):
            present[...] = value
            return
    setattr(layer, name, value)


def _constants_of(cls: type) -> list[Any]:
    """Return what the classes of an environment, and their modules, hold."""
    modules = (sys.modules.get(base.__module__) for base in cls.__mro__)
    return [*(dict(vars(base)) for base in cls.__mro__), *(dict(vars(module)) for module in modules if module is not None)]


# What an environment may read before its next step, and what belongs to the step before: a new forward pass would compute it anew.
_DERIVED = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "subtree_com"),
    *("cinert", "cvel", "cacc", "cfrc_int", "cfrc_ext", "qacc", "qfrc_actuator", "qfrc_constraint", "actuator_force", "sensordata"),
)


def _mujoco_state(model: Any, data: Any) -> Any:
    """Return everything that determines the next step: positions, velocities, actuators, controls, warm start, time. And what it shows."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, state, kind)
    return to_plain(dict(state=state, **{name: np.array(getattr(data, name)) for name in _DERIVED}))


def _set_mujoco_state(model: Any, data: Any, state: Any) -> None:
    import mujoco

    saved = from_plain(state, "The state of MuJoCo")
    saved = dict(state=saved) if isinstance(saved, np.ndarray) else saved  # Older states have nothing else.
    check_form(saved, dict(state=np.ndarray), "The state of MuJoCo")
    mujoco.mj_setState(model, data, saved["state"], mujoco.mjtState.mjSTATE_INTEGRATION)
    warm_start = data.qacc_warmstart.copy()
    mujoco.mj_forward(model, data)  # Compute derived values that were not saved.
    data.qacc_warmstart[:] = warm_start
    for name in saved.keys() & {*_DERIVED}:
        array = getattr(data, name)
        if np.shape(saved[name]) != array.shape:
            raise ValueError(f"The state of MuJoCo has {name} of shape {np.shape(saved[name])}, and the model needs {array.shape}.")
        array[...] = saved[name]
