"""The rules of `rlpyt.envs.vector.VectorEnv` as a test for any vector of environments.

For example, in a test file::

    def test_my_vector_keeps_the_contract():
        check_vector_env(MyVector, dict(level=3))

No test framework is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlpyt.envs.base import close_env, horizon_of
from rlpyt.envs.contract import (
    PAST_ADVICE,
    SEED_ADVICE,
    SENTINEL_BYTE,
    are_equal,
    check_same_form,
    check_spaces,
    extreme_action,
    named_arrays,
)
from rlpyt.envs.vector import AUTORESET_MODES, DISABLED, NEXT_STEP, SAME_STEP, VectorEnvs, VectorStep
from rlpyt.utils.buffer import buffer_from_example, buffer_func, buffer_leaves
from rlpyt.utils.collections import fields_of

_PARTS = ("reward", "terminated", "truncated")


def check_vector_env(make: Callable[..., Any], env_kwargs: Mapping | None = None, n: int = 3, n_steps: int = 200, seed: int = 0) -> None:
    """Make two vectors with ``make(num_envs=n, **env_kwargs)``, run `n_steps` random steps twice, and check the rules.

    The rules concern: spaces; shapes and dtypes of all results; observations, which must lie in their space, in the rows given, and nowhere
    else; what happens after the last step of an episode, by the autoreset mode; horizon; equal episodes after equal seeds, whatever
    happened before; actions, which must not be changed; resets of some environments; with `n_ready`, steps that environments end one after
    the other, which must lead where `step_into` does; and `close`, which may be called twice. Choose
    `n_steps` so that some episodes end.

    A vector of Gymnasium is wrapped first, as in samplers. Half of the actions are extreme, as in `rlpyt.envs.contract.check_env`.

    Raises:
        AssertionError: a rule is broken; the message says which one, and how.
    """
    vectors = [VectorEnvs(make)(num_envs=n, **(env_kwargs or {})) for _ in range(2)]
    try:
        vector = vectors[0]
        assert vector.autoreset_mode in AUTORESET_MODES, f"autoreset_mode must be one of {AUTORESET_MODES}, got {vector.autoreset_mode!r}."
        assert vector.autoreset_mode != DISABLED or vector.resets_some, "A DISABLED vector must be able to reset some environments."
        check_spaces(vector)
        for advice in (SEED_ADVICE, PAST_ADVICE):
            if advice == PAST_ADVICE:
                _play(vector, [seed + 1 + i for i in range(n)])
            for each in vectors:
                each.seed([seed + i for i in range(n)])
            _check_steps([_Watched(each) for each in vectors], n_steps, advice)
        if vector.n_ready is not None and vector.n_ready < n:
            for each in vectors:
                each.seed([seed + i for i in range(n)])
            _check_ready(*vectors)
    finally:
        for each in (*vectors, *vectors):
            close_env(each)


class _Watched:
    """A vector, with memory for its observations between rows that it must not touch.

    Attributes:
        out: structure [n,...], the rows that are given to the vector.
    """

    def __init__(self, vector: Any) -> None:
        self.vector, n = vector, vector.n
        around = buffer_from_example(vector.observation_space.null_value(), (n + 2,), share_memory=False)
        self._around, self.out = around, around[1:-1]
        self.step: Any = None

    def _mark(self) -> None:
        for leaf in buffer_leaves(self._around):
            leaf.reshape(-1).view(np.uint8)[:] = SENTINEL_BYTE

    def _check_around(self, name: str) -> None:
        for path, leaf in named_arrays(self._around, "observation"):
            beside = np.ascontiguousarray(leaf[[0, -1]]).view(np.uint8)
            assert (beside == SENTINEL_BYTE).all(), f"{name} wrote beyond the rows it was given, in {path}."
            for i, row in enumerate(leaf[1:-1]):
                is_written = row.nbytes < 4 or (np.ascontiguousarray(row).view(np.uint8) != SENTINEL_BYTE).any()
                assert is_written, f"{name} did not write the row of environment {i}, in {path}."

    def reset(self) -> None:
        self._mark()
        self.vector.reset_into(self.out)
        self._check_around("reset_into()")

    def reset_some(self, which: np.ndarray) -> None:
        before = buffer_func(self.out, np.copy)
        mask = which.copy()
        self.vector.reset_into(self.out, mask)
        self._check_around("reset_into()")
        assert are_equal(buffer_func(self.out, lambda x: x[~which]), buffer_func(before, lambda x: x[~which])), (
            f"reset_into() must write only the rows of its mask, {which}."
        )

    def take_step(self, actions: Any) -> None:
        self._mark()
        self.step = self.vector.step_into(actions, self.out)
        self._check_around("step_into()")
        assert isinstance(self.step, VectorStep), f"step_into() must return a VectorStep, got {self.step!r}."


def _play(vector: Any, seeds: list[int], n_steps: int = 20) -> None:
    """Play some random steps with other seeds."""
    n, space = vector.n, vector.action_space
    out = buffer_from_example(vector.observation_space.null_value(), (n,), share_memory=False)
    vector.seed(seeds)
    vector.reset_into(out)
    for _ in range(n_steps):
        actions = buffer_from_example(space.null_value(), (n,), share_memory=False)
        for i in range(n):
            actions[i] = space.sample()
        step = vector.step_into(actions, out)
        ended = np.asarray(step.terminated) | np.asarray(step.truncated)
        if vector.autoreset_mode == DISABLED and ended.any():
            vector.reset_into(out, ended)


def _check_steps(pair: list[_Watched], n_steps: int, advice: str) -> None:
    """Step both vectors alike; `advice` says what to do if they differ."""
    watched, twin = pair
    vector = watched.vector
    n, mode, space, horizon = vector.n, vector.autoreset_mode, vector.action_space, horizon_of(vector)
    for each in pair:
        each.reset()
    _check_observations(vector, watched.out, "reset_into()")
    _check_twin(watched.out, twin.out, "reset", advice)
    blank, lengths, first_infos = np.zeros(n, bool), np.zeros(n, int), None
    for t in range(n_steps):
        before = f"at step {t}"
        actions = buffer_from_example(space.null_value(), (n,), share_memory=False)
        for i in range(n):
            actions[i] = extreme_action(space) if t % 2 else space.sample()
        unchanged = buffer_func(actions, np.copy)
        for each in pair:
            each.take_step(actions)
            assert are_equal(actions, unchanged), f"step_into() changed the actions it was given {before}."
        step = watched.step
        for name in _PARTS:
            part = np.asarray(getattr(step, name))
            assert part.shape == (n,), f"{name} {before} must have shape {(n,)}, got {part.shape}."
            kinds = "biuf" if name == "reward" else "b"
            assert part.dtype.kind in kinds, f"{name} {before} must be {'numbers' if name == 'reward' else 'bool'}, got {part.dtype}."
        assert np.isfinite(step.reward[~blank]).all(), f"The rewards {before} must be finite, got {step.reward}."
        first_infos = step.infos if t == 0 else first_infos
        _check_infos(step.infos, first_infos, n, before)
        _check_observations(vector, watched.out, f"step_into() {before}")
        _check_twin(watched.out, twin.out, f"step {before}", advice)
        for name in (*_PARTS, "infos"):
            ours, theirs = (_rows(getattr(each.step, name), ~blank) for each in pair)
            assert ours is theirs is None or are_equal(ours, theirs), (
                f"Equal seeds and actions must give equal results: {before} {name} was {ours}, and in a second vector {theirs}. {advice}"
            )
        ended = (np.asarray(step.terminated) | np.asarray(step.truncated)) & ~blank
        lengths = np.where(blank, 0, lengths + 1)
        assert horizon is None or (lengths <= horizon).all(), f"An episode is longer than horizon={horizon}."
        if mode == SAME_STEP and ended.any():
            final = step.final_observation
            assert final is not None, f"A SAME_STEP vector must return final_observation where an episode ends, as {before}."
            check_same_form("final_observation", _rows(final, ended), _rows(watched.out, ended))
            _check_observations(vector, _rows(final, ended), f"final_observation {before}")
        lengths[ended] = 0
        blank = ended if mode == NEXT_STEP else np.zeros(n, bool)
        some = ended if mode == DISABLED else (np.arange(n) == t % n) if vector.resets_some and t % 17 == 16 else np.zeros(n, bool)
        if some.any():
            for each in pair:
                each.reset_some(some)
            _check_observations(vector, watched.out, f"reset_into() after step {t}")
            _check_twin(watched.out, twin.out, f"reset after step {t}", advice)
            lengths[some], blank[some] = 0, False


def _check_ready(vector: Any, twin: Any) -> None:
    n, space = vector.n, vector.action_space
    out, expected = (buffer_from_example(vector.observation_space.null_value(), (n,), share_memory=False) for _ in range(2))
    actions = buffer_from_example(space.null_value(), (n,), share_memory=False)
    for i in range(n):
        actions[i] = space.sample()
    vector.reset_into(out)
    twin.reset_into(expected)
    result = twin.step_into(actions, expected)
    vector.send(np.arange(n), actions)
    first, rest = vector.receive(1, out[:1]), vector.receive(n - 1, out[1:])
    columns = np.concatenate([first[0], rest[0]])
    assert sorted(columns.tolist()) == list(range(n)), (
        f"After a step of all {n} environments was begun, receive(1) and receive({n - 1}) must return each of them once, got {columns}."
    )
    for some, step, rows in ((first[0], first[1], out[:1]), (rest[0], rest[1], out[1:])):
        for name, got in (("observation", rows), *((name, getattr(step, name)) for name in (*_PARTS, "infos"))):
            theirs = _rows(expected if name == "observation" else getattr(result, name), some)
            assert got is theirs is None or are_equal(got, theirs), (
                f"receive() must lead where step_into() does: {name} of environments {some} was {got}, and with step_into() {theirs}."
            )


def _check_observations(vector: Any, observations: Any, where: str) -> None:
    space, null = vector.observation_space, vector.observation_space.null_value()
    for i in range(len(buffer_leaves(observations)[0])):
        observation = buffer_func(observations, lambda x, i=i: x[i])
        for path, leaf in named_arrays(observation, "observation"):
            assert leaf.dtype.kind not in "fc" or np.isfinite(leaf).all(), f"The {path} of {where} must be finite, got {leaf!r}."
        check_same_form(f"observation of {where}", observation, null)
        plain = type(null)(*observation) if isinstance(null, tuple) else observation
        assert space.contains(plain), f"The observation of {where} must be in the observation_space {space!r}, got {observation!r}."


def _check_twin(observations: Any, others: Any, what: str, advice: str) -> None:
    assert are_equal(observations, others), (
        f"Equal seeds and actions must give equal episodes, but two vectors differ in their observations of {what}. {advice}"
    )


def _check_infos(infos: Any, first: Any, n: int, before: str) -> None:
    if infos is None:
        assert first is None, f"infos {before} is None, but was a namedtuple at the first step."
        return
    assert fields_of(infos) is not None, f"infos {before} must be a namedtuple or None, got {infos!r}."
    check_same_form(f"infos {before}", infos, first)
    for path, leaf in named_arrays(infos, "infos"):
        assert leaf.shape[:1] == (n,) and leaf.dtype.kind in "biufc", f"{path} {before} must be numbers [{n},...], got {leaf!r}."


def _rows(structure: Any, mask: np.ndarray) -> Any:
    return structure if structure is None else buffer_func(structure, lambda x: np.asarray(x)[mask])
