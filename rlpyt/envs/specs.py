"""Specifications of environments, and records of single steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from math import prod
from typing import Any, ClassVar

import numpy as np

from rlpyt.envs.base import ActionForm, CompletedEnv, CompletedSpec, effective, for_envs, horizon_of, is_space
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.utils.collections import fields_of
from rlpyt.utils.settings import has
from rlpyt.utils.structures import Tree, field_names, is_info, shape_of


class StepType(IntEnum):
    """Position of a step in its episode; the last step is either `TERMINAL` or `TIMEOUT`.

    With a limit of 5 steps, an episode that terminates at step 4 is FIRST, MID, MID, TERMINAL; one that terminates at step 5 is
    FIRST, MID, MID, MID, TERMINAL; one that does not terminate is FIRST, MID, MID, MID, TIMEOUT. An episode of one step has no FIRST.
    """

    FIRST = 0
    MID = 1
    TERMINAL = 2
    TIMEOUT = 3

    @classmethod
    def get_step_type(cls, step_cnt: int | None, max_episode_length: float | None, done: bool) -> StepType:
        """Return the type of a step from its number and an environment's merged flag.

        `done` does not tell termination from truncation, so at the limit it counts as truncation. If both flags are known, use
        `from_flags`.

        Args:
            step_cnt: number of the step in its episode, from 1.
            max_episode_length: limit (env steps); None for no limit.
            done: whether the environment says that the episode has ended.

        Raises:
            ValueError: `step_cnt` is None or less than 1.
        """
        if step_cnt is None or step_cnt < 1:
            raise ValueError(f"step_cnt is {step_cnt}, but counts steps from 1. Call the environment's reset() before its first step().")
        truncated = max_episode_length is not None and step_cnt >= max_episode_length
        return cls.from_flags(step_cnt == 1, done and not truncated, truncated)

    @classmethod
    def from_flags(cls, first: Any, terminated: Any, truncated: Any) -> Any:
        """Return the type of a step; a step that terminates the episode is `TERMINAL` even if it is truncated as well.

        Args:
            first, terminated, truncated: bools, or arrays of them that broadcast.

        Returns:
            A `StepType`, or for arrays a uint8 array.
        """
        if type(first) is type(terminated) is type(truncated) is bool:  # A single step: the fast path of environments.
            return cls.TERMINAL if terminated else cls.TIMEOUT if truncated else cls.FIRST if first else cls.MID
        types = np.where(terminated, cls.TERMINAL, np.where(truncated, cls.TIMEOUT, np.where(first, cls.FIRST, cls.MID)))
        return types.astype(np.uint8) if types.ndim else cls(int(types))


STEP_TYPES = tuple(StepType)


def checked_step(env_step: Any, env: Any, needs_reward: bool = True) -> EnvStep:
    """Return the result of ``step(action)`` of an `Environment` after a check.

    Args:
        needs_reward: whether a reward of None is an error. (A step that only resets has no reward, see `rlpyt.envs.adapters.AutoReset`.)

    Raises:
        TypeError: the result is not an `EnvStep`, or has no reward.
        ValueError: its type is not a `StepType`.
    """
    try:
        if env_step.step_type in STEP_TYPES and not (env_step.reward is None and needs_reward):
            return env_step
    except (AttributeError, ValueError):  # Not a step, or step_type is an array.
        pass
    name = type(env).__name__
    if not hasattr(env_step, "step_type"):
        raise TypeError(f"{name}.step() must return an EnvStep, got {form_of(env_step)}.")
    if env_step.reward is None and needs_reward:
        raise TypeError(f"{name}.step(): reward: expected one number, got None.")
    raise ValueError(f"{name}.step(): step_type: expected one of {', '.join(map(str, StepType))}, got {env_step.step_type!r}.")


def checked_reset(result: Any, env: Any) -> tuple[Any, Any]:
    """Return the result of ``reset()`` of an `Environment`; TypeError if it is not an observation and a dictionary."""
    if isinstance(result, (tuple, list)) and len(result) == 2 and isinstance(result[1], Mapping):
        return result[0], result[1]
    raise TypeError(
        f"{type(env).__name__}.reset() must return the first observation, and a dictionary of information on the episode "
        f"(it may be empty), got {form_of(result)}."
    )


def checked_action(result: Any, policy: Any, method: str) -> Sequence[Any]:
    """Return the result of a policy's method ("get_action" or "get_actions"); TypeError if it is not an action and an info."""
    if isinstance(result, (tuple, list)) and len(result) == 2:
        info = result[1]
        if type(info) is dict or info is None or is_info(info):
            return result
    raise TypeError(
        f"{type(policy).__name__}.{method}() must return the action{method.removeprefix('get_action')}, and a dictionary of further "
        f"information (it may be empty), got {form_of(result)}."
    )


def form_of(value: Any) -> str:
    """Describe type and shape of a value, for messages."""
    if isinstance(value, (tuple, list)) and fields_of(value) is None:
        return f"a {type(value).__name__} of {len(value)} ({', '.join(form_of(part) for part in value[:8])}{', ...' * (len(value) > 8)})"
    shape = shape_of(value)
    return "None" if value is None else type(value).__name__ + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")


# ---------------------------------------------------------------------------------------------------------------------
# Spaces
# ---------------------------------------------------------------------------------------------------------------------
def flat_dim(space: Any) -> int:
    """Return the number of numbers in an element of `space` (of gymnasium or rlpyt); a discrete element counts as one-hot."""
    completed = CompletedSpace(space)
    if completed.space is not None:  # A wrapped gymnasium space.
        return flat_dim(completed.space)
    parts = completed.spaces
    if parts is not None:
        return sum(flat_dim(part) for part in (parts.values() if isinstance(parts, Mapping) else parts))
    if completed.nvec is not None:
        return int(np.sum(completed.nvec))
    return int(completed.n) if space.shape == () and completed.n is not None else prod(space.shape)


def fits_space(space: Any, x: Any) -> bool:
    """Return whether `x` (an array or a dictionary of arrays) has the form of an element of `space`, or is flat; values are not checked."""
    if isinstance(x, dict):
        parts = sub_spaces(space)
        return set(parts) == set(x) and all(fits_space(parts[key], x[key]) for key in x)
    if sub_spaces(space):
        return np.ndim(x) > 0 and np.size(x) == flat_dim(space)
    return np.shape(x) == tuple(space.shape) or (np.ndim(x) > 0 and np.size(x) == flat_dim(space))


def contains(space: Any, x: Any) -> bool:
    """Return whether `x` (an array or a dictionary of arrays) is an element of `space`, or one of float64 as float32."""
    if isinstance(x, dict):
        parts = sub_spaces(space)
        return set(parts) == set(x) and all(contains(parts[key], x[key]) for key in x)
    try:
        if space.contains(x):
            return True
        is_rounded = np.asarray(x).dtype == np.float32 and CompletedSpace(space).dtype == np.float64
        return is_rounded and as_wrapped(space).contains(x)
    except (TypeError, ValueError, AttributeError, AssertionError):
        return False


def sub_spaces(space: Any) -> dict:
    """Return the parts of a composite space by name; an empty dictionary for other spaces."""
    completed = CompletedSpace(space)
    parts = completed.spaces
    if parts is None:
        return {}
    if isinstance(parts, Mapping):
        return dict(parts.items())
    return dict(zip([f"item_{i}" for i in range(len(parts))] if completed.names is None else completed.names, parts))


def parts_by_key(space: Any, keys: Any) -> dict:
    """Return the parts of a composite space by the keys of a batch; in a sampler's batch the part "a.b" is named "a_b"."""
    parts = sub_spaces(space)
    return {key if key in keys else name: part for (key, part), name in zip(parts.items(), field_names(parts))}


def map_parts(function: Callable[[Any, Any], Any], space: Any, tree: Tree) -> Tree:
    """Apply ``function(part of the space, array)`` to each array of a batch of elements of `space`."""
    if isinstance(tree, dict):
        parts = parts_by_key(space, tree)
        return {key: map_parts(function, parts[key], part) for key, part in tree.items()}
    return function(space, tree)


def as_wrapped(space: Any) -> Any:
    """Return a space of rlpyt as it is, and one of Gymnasium in a `GymSpaceWrapper`."""
    return space if is_space(space) else GymSpaceWrapper(space, name="action")


def _for_envs(space: Any, form: ActionForm, actions: Tree) -> Tree:
    """Return actions as environments with this action space get them."""
    return map_parts(lambda part, array: for_envs(as_wrapped(part), form)(array), space, actions)


def _same(a: Any, b: Any) -> bool:
    """Compare spaces (or parts of them) by value; ``==`` compares spaces of rlpyt by identity."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    defined: Any = type(a).__eq__
    if defined is object.__eq__ and hasattr(a, "__dict__") and not isinstance(a, (type, np.random.Generator)):
        return vars(a).keys() == vars(b).keys() and all(_same(vars(a)[name], vars(b)[name]) for name in vars(a) if name != "_rng")
    return bool(a == b)


@dataclass(frozen=True, eq=False)
class InOutSpec:
    """Input and output space of a primitive or a module.

    Attributes:
        input_space, output_space: spaces, of gymnasium or rlpyt.
    """

    input_space: Any
    output_space: Any

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    def __hash__(self) -> int:
        return hash((type(self), *(type(getattr(self, field.name)) for field in fields(self))))  # Most spaces are not hashable.


ENV_SPEC = has("an EnvSpec", "observation_space", "action_space")


@dataclass(frozen=True, eq=False)
class EnvSpec(InOutSpec):
    """Spaces and time limit of an environment; immutable, and compared by value.

    ``dataclasses.replace(spec, max_episode_length=100)`` is a spec with another limit.

    Args:
        observation_space, action_space: spaces, of gymnasium or rlpyt.
        max_episode_length: largest number of steps in an episode (env steps); None for no limit.
        action_form: how actions that were recorded with this spec become those of the environment. By default they are those already.

    Attributes:
        input_space, output_space: action space and observation space.

    Raises:
        ValueError: `max_episode_length` is less than 1.
    """

    input_space: Any = field(init=False, repr=False)
    output_space: Any = field(init=False, repr=False)
    observation_space: Any
    action_space: Any
    max_episode_length: float | None = None
    action_form: ActionForm = field(default=ActionForm(), repr=False)

    def __post_init__(self) -> None:
        if self.max_episode_length is not None and not self.max_episode_length >= 1:
            raise ValueError(f"max_episode_length={self.max_episode_length!r} must be at least 1 step, or None for no limit.")
        object.__setattr__(self, "input_space", self.action_space)
        object.__setattr__(self, "output_space", self.observation_space)

    @classmethod
    def from_env(cls, env: Any, agent: Any = None) -> EnvSpec:
        """Describe an environment of any kind.

        Args:
            env: an `Environment`, whose `spec` is returned; or an environment of gymnasium or rlpyt.
            agent: agent, or policy, whose actions are recorded, see `of_agent`; None if actions are those of the environment.
        """
        spec = CompletedEnv(env).spec
        if not isinstance(spec, EnvSpec):
            limit = horizon_of(env)
            if limit is None:
                limit = CompletedSpec(spec).max_episode_steps
            spec = cls(env.observation_space, env.action_space, limit)
        return spec.of_agent(agent)

    def of_agent(self, agent: Any) -> EnvSpec:
        """Return the spec of steps with actions as this agent, or policy, chooses them.

        It differs only if the agent rescales or clips actions for this action space (``rescale_actions``, ``clip_actions``).
        """
        form = effective(as_wrapped(self.action_space), ActionForm.of(agent)) if any(ActionForm.of(agent)) else ActionForm()
        return self if form == self.action_form else replace(self, action_form=form)

    def for_envs(self, actions: Tree) -> Tree:
        """Return recorded actions [n,...] as the environment got them: in the units of its action space and within the bounds.

        Args:
            actions: array, or dictionary of arrays.
        """
        return _for_envs(self.action_space, self.action_form, actions) if any(self.action_form) else actions


# ---------------------------------------------------------------------------------------------------------------------
# Single steps
# ---------------------------------------------------------------------------------------------------------------------
def same_value(a: Any, b: Any) -> bool:
    """Compare numbers, arrays, tensors, and nested dictionaries of them, by value; NaN equals NaN."""
    if isinstance(a, dict) or isinstance(b, dict):
        return isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, (str, type(None), EnvSpec)) or isinstance(b, (str, type(None), EnvSpec)):
        return a == b
    a, b = np.asarray(a), np.asarray(b)
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc" and b.dtype.kind in "fc")


class _ComparedByValue:
    """Compares all fields of a dataclass by value, arrays element by element."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(same_value(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    __hash__ = None  # type: ignore[assignment]


class _HasStepType(_ComparedByValue):
    """Questions about `step_type`."""

    step_type: StepType

    @property
    def first(self) -> bool:
        """Whether this is the first step of its episode (and not also the last)."""
        return self.step_type == StepType.FIRST

    @property
    def mid(self) -> bool:
        """Whether this step is in the middle of its episode."""
        return self.step_type == StepType.MID

    @property
    def terminal(self) -> bool:
        """Whether the episode terminated with this step."""
        return self.step_type == StepType.TERMINAL

    @property
    def timeout(self) -> bool:
        """Whether the episode was truncated with this step."""
        return self.step_type == StepType.TIMEOUT

    @property
    def last(self) -> bool:
        """Whether this is the last step of its episode."""
        return self.terminal or self.timeout


@dataclass(eq=False)
class EnvStep(_HasStepType):
    """Result of one step of an `Environment`. Fields are neither validated nor copied.

    Attributes:
        env_spec: `EnvSpec` of the environment.
        action: action of the step.
        reward: float.
        observation: observation after the action.
        env_info: dictionary of further information.
        step_type: `StepType`. The first step after a reset is `FIRST`; the reset itself is not a step.
    """

    env_spec: EnvSpec
    action: Any
    reward: float
    observation: Any
    env_info: dict
    step_type: StepType


@dataclass(frozen=True, eq=False)
class TimeStep(_HasStepType):
    """One transition. Fields are neither validated nor copied.

    Attributes:
        env_spec: `EnvSpec` of the environment.
        episode_info: dictionary of information on the whole episode.
        observation: observation before the action.
        action: action of the step.
        reward: float.
        next_observation: observation after the action.
        env_info, agent_info: dictionaries of further information from environment and agent.
        step_type: `StepType`.
    """

    env_spec: EnvSpec
    episode_info: dict
    observation: Any
    action: Any
    reward: float
    next_observation: Any
    env_info: dict
    agent_info: dict
    step_type: StepType

    @classmethod
    def from_env_step(cls, env_step: EnvStep, last_observation: Any, agent_info: dict, episode_info: dict | None = None) -> TimeStep:
        """Return the transition of an `EnvStep`, given the observation before it and the infos of agent and reset."""
        return cls(
            env_spec=env_step.env_spec,
            episode_info={} if episode_info is None else episode_info,
            observation=last_observation,
            action=env_step.action,
            reward=env_step.reward,
            next_observation=env_step.observation,
            env_info=env_step.env_info,
            agent_info=agent_info,
            step_type=env_step.step_type,
        )
