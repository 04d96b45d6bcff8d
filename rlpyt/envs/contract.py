"""The rules of `rlpyt.envs.base.Env` as a test for any environment.

For example, in a test file::

    def test_my_env_keeps_the_contract():
        check_env(MyEnv, dict(level=3))

No test framework is needed.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from rlpyt.envs.base import (
    CompletedEnv,
    check_makes_envs,
    checked_spaces,
    close_env,
    fast_reset,
    fast_step,
    horizon_of,
    truncates_only_at_horizon,
    write_observation,
)
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.masked import allowed_action, split
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.collections import field_of, fields_of
from rlpyt.utils.structures import map_structure, named_leaves

SENTINEL_BYTE = 0xA5  # Fills memory to detect missing and forbidden writes.
SEED_ADVICE = (
    "Draw all random numbers from a generator that seed() makes; in an environment of Gymnasium from self.np_random, which "
    "super().reset(seed=seed) makes. np.random, random and sample() of a space of the environment do not follow the seed."
)
PAST_ADVICE = (
    "They differ only since one of them has played before: seed() must make all that follows independent of that, also counters and levels."
)


def check_env(EnvCls: Callable[..., Any], env_kwargs: Mapping | None = None, n_steps: int = 200, seed: int = 0) -> None:
    """Make environments with ``EnvCls(**env_kwargs)``, run `n_steps` random steps three times, and check rules up to the first broken one.

    The rules concern: spaces; a constant form of observation, reward, done and env_info; timeouts and horizon; equal episodes after equal
    seeds, whatever happened before; `step_into` and `reset_into`, which do the same as `step` and `reset` and write nothing else; actions,
    which `step` must not change; and `close`, if there is one, which may be called twice. Choose `n_steps` so that some episodes end.

    An environment of Gymnasium is wrapped first, as in samplers. Half of the actions are extreme: drawn from a wide distribution and
    clipped to the bounds of their space.

    Raises:
        AssertionError: a rule is broken, or a method of the environment has raised an error, which is then the cause; the message says
            which one, and when.
        TypeError: `EnvCls` cannot be called. Errors in making the environments are passed on.

    Warns:
        UserWarning: an environment of Gymnasium has info keys that are missing at the first step, and therefore from env_info.
    """
    check_makes_envs("EnvCls", EnvCls)
    env_kwargs = {} if env_kwargs is None else env_kwargs
    made: list = []
    try:
        for _ in range(2):
            made.append(_steppable(EnvCls(**env_kwargs)))
        env, twin = made
        left_out = CompletedEnv(env).watch_info()
        check_spaces(env)
        for plain, advice in ((True, SEED_ADVICE), (True, PAST_ADVICE), (False, "")):
            if advice == PAST_ADVICE:
                with _telling_errors("some steps after another seed"):
                    _play(env, seed + 1)
            with _telling_errors("seed()"):
                env.seed(seed)
                twin.seed(seed)
            _check_equal_samples(env, twin)
            _check_steps(env, twin, n_steps, plain, advice)
    except SystemExit as error:
        raise AssertionError(f"The environment called sys.exit({error.code!r}), but an environment never ends the program.") from error
    finally:
        for each in (*made, *made[:1]):
            close_env(each)
    if left_out:
        warnings.warn(
            f"env_info leaves out these keys, which info lacks at the first step: {', '.join(sorted(left_out))}. "
            "To include them, give a value for steps without them: rlpyt.envs.gym.make(..., info_example=dict(key=0.0)), or "
            "GymEnvWrapper(EnvInfoWrapper(env, dict(key=0.0))).",
            stacklevel=2,
        )


def _steppable(env: Any) -> Any:
    gymnasium = sys.modules.get("gymnasium")  # If not imported, no environment is one of gymnasium.
    if gymnasium is None or not isinstance(env, gymnasium.Env):
        return env
    with _telling_errors("the first reset and step, by which it is wrapped"):
        return GymEnvWrapper(env)


@contextmanager
def _telling_errors(where: str) -> Iterator[None]:
    """Raise AssertionError, which says `where` that was, for an error of the environment."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} in {where}: {error}") from error


def _play(env: Any, seed: int, n_steps: int = 20) -> None:
    """Play some random steps with another seed."""
    env.seed(seed)
    observation = env.reset()
    for _ in range(n_steps):
        observation, _, done, info = env.step(allowed_action(env.action_space, env.action_space.sample(), observation))
        if field_of(info, "traj_done", done):
            observation = env.reset()


def check_spaces(env: Any) -> None:
    """Assert that an environment, or a vector of them, has its spaces and its horizon in the documented forms."""
    with _telling_errors("its spaces"):
        checked_spaces(env)
    assert env.spaces.observation is env.observation_space, "spaces.observation must be the observation_space."
    assert env.spaces.action is env.action_space, "spaces.action must be the action_space."
    horizon = horizon_of(env)
    assert horizon is None or horizon >= 1, f"horizon must be None or a number of steps, got {horizon!r}."
    for name, space in (("observation", env.observation_space), ("action", env.action_space)):
        sample, null = space.sample(), space.null_value()
        assert space.contains(sample), f"{name}_space.contains() must be True for its own sample {sample!r}."
        check_same_form(f"{name}_space.null_value()", null, sample)


def _check_equal_samples(env: Any, twin: Any) -> None:
    for name, space, twin_space in zip(env.spaces._fields, env.spaces, twin.spaces):
        samples, twin_samples = [[s.sample() for _ in range(3)] for s in (space, twin_space)]
        assert are_equal(samples, twin_samples), f"After seed(), the {name} spaces of two environments must sample alike."


def _check_steps(env: Any, twin: Any, n_steps: int, plain: bool, advice: str) -> None:
    """Step `env` with `step` and `reset`, and `twin` with the same methods if `plain`, else with `step_into` and `reset_into`.

    `advice` says what to do if they differ.
    """
    step_into, reset_into = _plain_methods(twin) if plain else (fast_step(twin), fast_reset(twin))
    check_equal = partial(_check_seed, advice) if plain else _check_written
    first_observation = first_info = None

    def reset(when: str) -> Any:
        with _telling_errors(f"reset(){when}"):
            observation = env.reset()
        _check_observation(env, f"reset(){when}", observation, observation if first_observation is None else first_observation)
        out, around = _rows_like(observation)
        with _telling_errors(f"{'reset' if plain else 'reset_into'}(){when}"):
            reset_into(out)
        check_equal(f"reset{when}", observation, out, around)
        return observation

    observation = first_observation = reset("")
    t_episode = 0
    for t in range(n_steps):
        action = extreme_action(env.action_space) if t % 2 else env.action_space.sample()
        action = allowed_action(env.action_space, action, observation)
        action_before = map_structure(np.array, action)
        with _telling_errors(f"step() at step {t}"):
            outcome = env.step(action)
        assert isinstance(outcome, tuple) and len(outcome) == 4, (
            f"step() must return EnvStep(observation, reward, done, env_info), got {outcome!r}."
        )
        observation, reward, done, info = outcome
        observation = map_structure(np.array, observation)  # A copy, because environments may reuse their memory.
        t_episode += 1

        before = f"at step {t}"
        _check_observation(env, f"step() {before}", observation, first_observation)
        assert np.ndim(reward) == 0 and np.asarray(reward).dtype.kind in "biuf", f"The reward {before} must be one number, got {reward!r}."
        assert math.isfinite(reward), f"The reward {before} must be finite, got {reward!r}."
        assert isinstance(done, (bool, np.bool_)), f"done {before} must be True or False, got {done!r}."
        first_info = info if first_info is None else first_info
        _check_info(info, first_info, before)
        traj_done = _check_end(env, bool(done), info, t_episode, before)
        assert are_equal(action, action_before), f"step() changed the action it was given {before}."

        out, around = _rows_like(observation)
        with _telling_errors(f"{'step' if plain else 'step_into'}() {before}"):
            twin_outcome = step_into(action, out)
        assert isinstance(twin_outcome, tuple) and len(twin_outcome) == 3, (
            f"step_into() must return (reward, done, env_info), got {twin_outcome!r}."
        )
        rule, name = ("", "step()") if plain else (", and step_into() those of step()", "step_into()")
        assert are_equal(tuple(twin_outcome), (reward, done, info)), (
            f"Equal seeds and actions must give equal results{rule}: {before} step() returned {(reward, done, info)} and {name} in a "
            f"second environment {tuple(twin_outcome)}.{advice and ' '}{advice}"
        )
        check_equal(f"step {before}", observation, out, around)

        if traj_done:
            t_episode = 0
            observation = reset(f" after step {t}")


def _check_end(env: Any, done: bool, info: Any, t_episode: int, before: str) -> bool:
    """Check whether the episode may end, or continue, after its step number `t_episode`; return whether the trajectory ends."""
    timeout, traj_done = bool(field_of(info, "timeout", False)), bool(field_of(info, "traj_done", done))
    assert done or not timeout, f"env_info.timeout is True {before}, but done is not."
    assert done or not traj_done, f"env_info.traj_done is True {before}, but done is not."
    horizon = horizon_of(env)
    assert horizon is None or t_episode <= horizon, f"An episode is longer than horizon={horizon}."
    if timeout and truncates_only_at_horizon(env):
        assert t_episode == horizon, f"timeout after {t_episode} steps, though truncates_only_at_horizon ({horizon}) is set."
    if horizon is not None and t_episode == horizon:
        assert traj_done, f"The episode continues after its horizon of {horizon} steps."
    return traj_done


def _plain_methods(env: Any) -> tuple[Callable, Callable]:
    """Return `step` and `reset` of an environment with the arguments of `step_into` and `reset_into`."""

    def step_into(action: Any, observation_out: Any) -> tuple:
        observation, *outcome = env.step(action)
        write_observation(observation, observation_out)
        return tuple(outcome)

    return step_into, lambda observation_out: write_observation(env.reset(), observation_out)


def extreme_action(space: Any) -> Any:
    """Return an action like those of an unbounded policy after clipping: its numbers often lie on the bounds of their space.

    Discrete parts are samples of the space. If the space cannot clip, the whole action is a sample.
    """
    sample, other = space.sample(), iter(buffer_leaves(space.sample()))

    def beyond(x: Any) -> Any:
        y = next(other)
        return x + 4 * (x - y) if np.asarray(x).dtype.kind == "f" else x

    with np.errstate(over="ignore"):
        action = buffer_func(sample, beyond)
    clip = CompletedSpace(space).clip
    action = action if clip is None else clip(action)
    return action if space.contains(action) else sample


def _check_observation(env: Any, where: str, observation: Any, first: Any) -> None:
    assert env.observation_space.contains(observation), (
        f"The observation of {where} must be in the observation_space {env.observation_space!r}, got {observation!r}."
    )
    for path, leaf in named_arrays(observation, "observation"):
        assert leaf.dtype.kind not in "fc" or np.isfinite(leaf).all(), f"The {path} of {where} must be finite, got {leaf!r}."
    _, mask = split(observation)
    assert mask is None or np.isin(mask, (0, 1)).all(), (
        f"The mask of {where} must have 1 for each value of an action that may be taken, and 0 for the others, got {mask!r}."
    )
    check_same_form(f"observation of {where}", observation, first)
    sample = env.observation_space.null_value()
    check_same_form(f"observation of {where}", observation, sample)


def _check_info(info: Any, first_info: Any, before: str) -> None:
    assert isinstance(info, tuple) and fields_of(info) is not None, f"env_info {before} must be a namedtuple, got {info!r}."
    check_same_form(f"env_info {before}", info, first_info)
    for path, leaf in named_arrays(info, "env_info"):
        assert leaf.dtype.kind in "biufc", f"{path} {before} must be a number or an array of numbers, got dtype {leaf.dtype}."


def check_same_form(name: str, value: Any, example: Any) -> None:
    """Assert that two structures have the same fields, shapes and dtypes."""
    form, expected = ([(path, leaf.shape, leaf.dtype) for path, leaf in named_arrays(v, "")] for v in (value, example))
    for (path, shape, dtype), (path_0, shape_0, dtype_0) in zip(form, expected):
        assert path == path_0, f"{name} must have the field {path_0!r}, has {path!r}."
        assert shape == shape_0, f"{name}{path} must have shape {shape_0}, has {shape}."
        assert dtype == dtype_0, f"{name}{path} must have dtype {dtype_0}, has {dtype}."
    assert len(form) == len(expected), f"{name} must have {len(expected)} fields, has {len(form)}."


def _check_seed(advice: str, what: str, observation: Any, twin_observation: Any, around: Any) -> None:
    """Assert that two environments with the same seed and actions returned the same observation."""
    assert are_equal(observation, twin_observation), (
        f"Equal seeds and actions must give equal episodes, but two environments differ in {what}: "
        f"{_difference(observation, twin_observation)}. {advice}"
    )


def _check_written(what: str, observation: Any, out: Any, around: Any) -> None:
    """Assert that `out` holds `observation`, and that the rows beside it are unchanged."""
    assert are_equal(observation, out), (
        f"{what}: step_into() and reset_into() must write what step() and reset() return after equal seeds and actions: "
        f"{_difference(out, observation)}."
    )
    for path, rows in named_arrays(around, "observation"):
        bytes_ = np.ascontiguousarray(rows[::2]).view(np.uint8)
        assert (bytes_ == SENTINEL_BYTE).all(), f"{what}: step_into() or reset_into() wrote beyond the row it was given, in {path}."


def _rows_like(observation: Any) -> tuple[Any, Any]:
    """Return a row for an observation (an array, or a namedarraytuple for structures), and three rows with this one in the middle.

    All three are filled with `SENTINEL_BYTE`.
    """
    if isinstance(observation, tuple):
        from rlpyt.utils.collections import namedarraytuple_like

        make = namedarraytuple_like(observation)
        out, around = zip(*(_rows_like(part) for part in observation))
        return make(*out), make(*around)
    array = np.asarray(observation)
    rows = np.frombuffer(bytearray([SENTINEL_BYTE]) * (3 * max(array.nbytes, 1)), dtype=array.dtype, count=3 * array.size)
    rows = rows.reshape(3, *array.shape)
    return rows[1, ...], rows


def _difference(x: Any, y: Any) -> str:
    """Return the first difference between two structures of equal form, such as "observation[2] is 0.5 and 0.7"."""
    for (path, a), (_, b) in zip(named_arrays(x, "observation"), named_arrays(y, "observation")):
        for index in np.argwhere(np.atleast_1d(a != b)):
            where = path + "".join(f"[{i}]" for i in index) if a.ndim else path
            return f"{where} is {np.atleast_1d(a)[tuple(index)]} and {np.atleast_1d(b)[tuple(index)]}"
    return "they have another form"


def named_arrays(structure: Any, name: str) -> list[tuple[str, np.ndarray]]:
    """Return the leaves of a structure as arrays, each with its path, which begins with `name`."""
    return [(path, np.asarray(leaf)) for path, leaf in named_leaves(structure, name)]


def are_equal(x: Any, y: Any) -> bool:
    """Return whether two structures hold the same numbers; NaN equals NaN."""
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(are_equal(a, b) for a, b in zip(tuple(x), tuple(y)))
    x, y = np.asarray(x), np.asarray(y)
    return x.shape == y.shape and bool(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc" and y.dtype.kind in "fc"))
