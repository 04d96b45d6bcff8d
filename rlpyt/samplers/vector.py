"""A vector of environments as the columns of a collector.

To a collector, the columns are a list of environments like any other, and `VectorCalls` are their calls. Only a step is taken for all of
them at once. Afterwards each environment looks as if it were a single one: its row holds the last observation of an episode that ended,
until the collector resets the environment.

Where the vector resets itself by its next step, the row of that step is blank::

    row                 0      1      2      3      4
    observation         o0     o1     0      p0     p1        o2, the last observation of the episode, is kept elsewhere, as always
    action              a0     a1     any    b0     b1        the vector ignores the action of row 2
    reward, env_info    r0     r1     0      s0     s1
    done                -      done   done   -      -         so the agent forgets what it saw in row 2
    valid               1      1      0      1      1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlpyt.envs.base import CompletedEnv, EnvSpaces, EnvStep, horizon_of
from rlpyt.envs.vector import AUTORESET_MODES, DISABLED, NEXT_STEP, SAME_STEP, VectorEnv, VectorEnvs, VectorStep
from rlpyt.samplers.rows import Row, StepRow, env_rows, fit
from rlpyt.samplers.workers import describe_failure
from rlpyt.spaces.gym_wrapper import fits_losslessly
from rlpyt.spaces.masked import allowed_action, without_mask
from rlpyt.utils.buffer import buffer_from_example, buffer_func, buffer_leaves
from rlpyt.utils.collections import dynamic_namedtuple, fields_of
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.plain import NotPlain, check_form, from_plain, shown, to_plain

kernels: Any = LazyModule("rlpyt.samplers.kernels")

_OF_PYTHON = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool))


class VectorColumns(list):
    """The environments of a vector, as the list of environments that a collector steps.

    Args:
        vector: the vector.
        env_ranks: numbers of its environments among all of the run.

    Attributes:
        calls: steps and resets them.
        has_state: whether the state of the vector was known when it was last asked for.
        first_observations: [n,...], of the latest reset by a `VectorColumn`; None before that.
    """

    has_state = False
    first_observations: Any = None

    def __init__(self, vector: VectorEnv, env_ranks: Sequence[int]) -> None:
        self.vector = vector
        super().__init__(VectorColumn(self, b) for b in range(vector.n))
        self.calls = VectorCalls(vector, env_ranks)


class VectorColumn:
    """One environment of a vector. The first one can be stepped, to make an example of what all return, or to film it.

    Attributes:
        leaves_blank_rows: whether the vector resets itself by its next step.
        resets_some: whether the vector can reset some of its environments.
        n_ready: for how many environments of the vector the agent acts at a time; None for all.
    """

    def __init__(self, columns: VectorColumns, b: int) -> None:
        self._columns, self._b = columns, b
        vector = columns.vector
        self.action_space, self.observation_space = vector.action_space, vector.observation_space
        self.spaces = EnvSpaces(observation=self.observation_space, action=self.action_space)
        self.truncates_only_at_horizon = vector.truncates_only_at_horizon
        self.leaves_blank_rows = vector.autoreset_mode == NEXT_STEP
        self.resets_some, self.n_ready = vector.resets_some, vector.n_ready
        self.render = CompletedEnv(vector).render

    @property
    def horizon(self) -> int | None:
        """Largest number of steps in an episode, or None if it is not known."""
        return horizon_of(self._columns.vector)

    def reset(self) -> Any:
        """Reset the whole vector; return the first observation of the first environment. ValueError for any other environment."""
        self._check_is_first("reset")
        vector = self._columns.vector
        observation = self._columns.first_observations = observation_memory(vector)
        vector.reset_into(observation)
        return observation[0]

    def step(self, action: Any) -> EnvStep:
        """Step the whole vector with the same action for all where it is allowed; return the outcome of the first environment.

        Raises:
            ValueError: this is not the first environment.
        """
        self._check_is_first("stepped")
        vector = self._columns.vector
        observation, before = observation_memory(vector), self._columns.first_observations
        actions = buffer_from_example(action, (vector.n,), share_memory=False)
        for b in range(vector.n):
            actions[b] = action if before is None else allowed_action(self.action_space, action, before[b])
        outcome = self._columns.calls.outcome(vector.step_into(actions, observation))
        return EnvStep(observation[0], outcome.reward[0], outcome.done[0], outcome.env_info(0))

    def _check_is_first(self, done: str) -> None:
        if self._b:
            raise ValueError(
                f"One environment of a vector cannot be {done} alone: a loop in collect_batch that replaces the one of rlpyt needs single "
                "environments as EnvCls."
            )

    def get_state(self) -> Any:
        """Return the state of the vector.

        The first environment returns the state of the whole vector, the others return 0.

        Raises:
            NotPlain: the state is unknown.
        """
        columns = self._columns
        if self._b == 0:
            columns.has_state = False
            state = dict(vector=columns.vector.get_state(), calls=columns.calls.state())
            columns.has_state = True
            return state
        if not columns.has_state:
            raise NotPlain("The state of the vector is unknown.")
        return 0

    def set_state(self, state: Any) -> None:
        """Restore the result of `get_state`."""
        if self._b == 0:
            check_form(state, dict(vector=object, calls=tuple), "The state of a vector")
            self._columns.vector.set_state(state["vector"])
            self._columns.calls.set_state(state["calls"])


def observation_memory(vector: VectorEnv) -> Any:
    """Return memory for the observations of all environments of a vector, a namedarraytuple of arrays ``[n,...]``, or an array."""
    return buffer_from_example(vector.observation_space.null_value(), (vector.n,), share_memory=False)


class Outcome:
    """The outcome of a step of a vector.

    Attributes:
        reward: [n].
        done, timeout: [n], bool.
        values: the entries of env_info, structures of arrays ``[n,...]``; `timeout` is the last one.
    """

    def __init__(self, type_: type, reward: np.ndarray, done: np.ndarray, timeout: np.ndarray, values: tuple) -> None:
        self.type, self.reward, self.done, self.timeout, self.values = type_, reward, done, timeout, values

    def of(self, b: int) -> tuple[int, float, bool, Any]:
        """Return the outcome of environment `b`, as `rlpyt.samplers.stepping.Outcome`."""
        return b, float(self.reward[b]), bool(self.done[b]), self.env_info(b)

    def env_info(self, b: int) -> Any:
        """Return the env_info of environment `b`."""
        return self.type(*(buffer_func(value, _entry, b) for value in self.values))


class VectorCalls:
    """Steps and resets the environments of a vector; takes the place of `rlpyt.samplers.stepping.EnvCalls`.

    Between two steps, flags tell the state of each environment::

        none        its episode goes on
        _over       its episode ended in the latest step
        _is_first   it has been reset (SAME_STEP: by the latest step, with `_over`); `reset` hands out its first observation, from `_first`
        is_blank    the next step will reset it (NEXT_STEP); `reset` has written zeros

    Args:
        vector: the vector.
        env_ranks: numbers of its environments among all.

    Attributes:
        is_blank: [n], bool, environments that the next step resets.
        waits: whether environments whose episode has ended are idle until the batch is full.
        at_once: whether compiled loops write the steps of a batch, and `end_vector_episodes` ends episodes; set by the collector.
        steps: one None per environment, since they are stepped together.
        n_ready: for how many environments the agent acts at a time; None for all.
        final: structure [n,...] whose rows of the episodes that ended in the latest step of a batch have their last observations.
        n_timeouts: how many of these episodes ended by a timeout.
    """

    def __init__(self, vector: VectorEnv, env_ranks: Sequence[int]) -> None:
        self.vector, self.n = vector, vector.n
        self.env_ranks = [int(rank) for rank in env_ranks]
        self.steps: list[Any] = [None] * self.n
        self.waits = self.at_once = False
        self.is_blank, self._over, self._is_first = (np.zeros(self.n, bool) for _ in range(3))
        self._first = observation_memory(vector)
        self._seen = observation_memory(vector)  # In evaluation.
        is_masked = without_mask(vector.observation_space) is not vector.observation_space
        self._latest: Any = observation_memory(vector) if is_masked else None  # Observations of the latest step, if they have masks.
        self.final: Any = None
        self.n_timeouts = 0
        self._ended = np.zeros(self.n, np.int64)  # Memory.
        self._infos_type: Any = None  # The newest type of infos, and
        self._env_info_type: Any = None  # that of env_info, which has the field timeout in addition.
        self._mode = vector.autoreset_mode
        if self._mode not in AUTORESET_MODES:
            raise ValueError(
                f"autoreset_mode={self._mode!r} of {type(vector).__name__} must be NEXT_STEP, SAME_STEP or DISABLED of rlpyt.envs.vector: "
                f"{', '.join(map(repr, AUTORESET_MODES))}."
            )
        self.n_ready = vector.n_ready if vector.n_ready is not None and vector.n_ready < self.n else None
        if self.n_ready is not None and self._mode != NEXT_STEP:
            raise ValueError(
                f"n_ready={self.n_ready} of {type(vector).__name__} is for vectors that reset an environment by its next step (NEXT_STEP), "
                f"and its autoreset_mode is {self._mode!r}: leave n_ready at None."
            )

    # Steps ----------------------------------------------------------------------------------------------------------
    def step(self, running: list, action: Any, row: StepRow, when: Callable[[int], str], take: Any = None) -> Any:
        """Step the vector, and write the outcomes of environments `running` into `row`; return those whose episode ended.

        An environment that was reset instead has zeros, and is done, so that the agent forgets the row. The arguments are those of
        `rlpyt.samplers.stepping.EnvCalls.step`. In a `Row` of a batch, environments that are not running get the same zeros.

        With `at_once`, `end_vector_episodes` has to follow: it keeps the last observations of episodes.
        """
        try:
            if isinstance(row, Row):
                return self._step_all(action, row) if self.at_once else self._step_row(running, action, row, take)
            outcome, blank = self._step(action, self._seen, running)
        except (Exception, SystemExit) as error:
            self.explain(error, None, when(0))
            raise
        ended = []
        for b, _ in running:
            row.observations[b][...] = self._seen[b]
            row.reward_cells[b], row.done_cells[b] = (0, True) if blank[b] else (outcome.reward[b], outcome.done[b])
            if not blank[b]:
                if take is not None:
                    take(outcome.of(b))
                if outcome.done[b]:
                    ended.append(b)
        return ended

    def _step_all(self, action: Any, row: Row) -> np.ndarray:
        """Step the vector; return the environments [k] whose episode ended. Nothing is copied but what the row keeps.

        `final` gets the last observations of their episodes. In a SAME_STEP vector, the row has the first ones of the next episodes.
        """
        step = self.vector.step_into(action, row.next_observation)
        reward, terminated, truncated = self._checked(step)
        if reward.dtype != np.float32:
            reward = reward.astype(np.float32)
        is_blank = self.is_blank if self._mode == NEXT_STEP else None
        if step.infos is not None:
            some_are_blank = is_blank is not None and is_blank.any()
            for column, value in zip(row.columns[:-1], step.infos, strict=True):  # The last one is timeout.
                _write(column, value)
                if some_are_blank:
                    column[is_blank] = 0
        n_ended, self.n_timeouts = kernels.take_step(
            reward, terminated, truncated, is_blank, row.reward, row.done, row.timeout, row.env_timeout, row.valid, self._ended
        )
        self.final = _final_of(step) if self._mode == SAME_STEP and n_ended else row.next_observation
        return self._ended[:n_ended]

    def _step_row(self, running: list, action: Any, row: Row, take: Any) -> list[int]:
        outcome, not_steps = self._step(action, row.next_observation, running)
        row.reward[...] = outcome.reward
        row.done[...] = outcome.done
        columns: Any = row.columns
        for column, value in zip(columns, outcome.values, strict=True):
            _write(column, value)
        if len(running) < self.n:  # Others wait for the end of the batch.
            idle = np.ones(self.n, bool)
            idle[[b for b, _ in running]] = False
            row.next_observation[idle] = 0
            not_steps |= idle
        if row.valid is not None:
            np.logical_not(not_steps, out=row.valid)
        if not_steps.any():
            row.reward[not_steps] = 0
            row.done[not_steps] = True
            for column in columns:
                column[not_steps] = 0
        if take is not None:
            for b in np.flatnonzero(~not_steps).tolist():
                take(outcome.of(b))
        return np.flatnonzero(outcome.done & ~not_steps).tolist()

    def _step(self, action: Any, observation_out: Any, running: list | None = None) -> tuple[Outcome, np.ndarray]:
        """Step the vector; return the outcome, and the mask of those that were reset instead.

        `observation_out` gets the last observations of episodes that end. Environments that are not `running` (None: all are) are stepped
        as well, but their outcomes are not recorded.
        """
        vector, over = self.vector, self._over
        if self._mode == DISABLED and over.any():  # Their episodes have ended, so they cannot be stepped.
            vector.reset_into(self._first, over)
            self._is_first |= over
        if running is not None and len(running) < self.n and self._latest is not None:
            action = self._allowed(action, running)
        self._is_first[:] = False
        blank = self.is_blank.copy()
        self.is_blank[:] = False
        step = vector.step_into(action, observation_out)
        outcome = self.outcome(step)
        np.logical_and(outcome.done, ~blank, out=over)
        if self._mode == SAME_STEP and over.any():  # It has reset them.
            for first, out, final in _leaves(self._first, observation_out, _final_of(step)):
                first[over], out[over] = out[over], final[over]
            self._is_first[over] = True
        if self._latest is not None:
            self._latest[...] = observation_out
        return outcome, blank

    def _allowed(self, action: Any, running: list) -> Any:
        """Return actions that environments allow which are not `running`: the agent, which acts for all, does not see their masks."""
        action = buffer_func(action, np.copy)
        for b in set(range(self.n)) - {b for b, _ in running}:
            seen: Any = self._first if self._is_first[b] else self._latest
            action[b] = allowed_action(self.vector.action_space, action[b], seen[b])
        return action

    def send(self, columns: list[int], actions: Any, where: str) -> None:
        """Begin a step of `columns` [k] with `actions` [k,...]; `where` is for messages."""
        try:
            self._is_first[columns] = False
            self.vector.send(np.array(columns), actions)
        except (Exception, SystemExit) as error:
            self.explain(error, None, where)
            raise

    def receive(self, k: int, rows: Sequence[Row], t: Sequence[int], where: str) -> list[tuple[int, bool, Any]]:
        """Wait for `k` environments, and write the outcomes of their steps `t` [n] into `rows`, blank ones like `step`.

        Returns:
            for each of them its column, whether its episode ended, and its outcome as `rlpyt.samplers.stepping.Outcome`, or None if the row
            is blank.
        """
        try:
            columns, step = self.vector.receive(k, self._seen[:k])
            outcome = self.outcome(step, k)
            received = []
            for i, b in enumerate(columns.tolist()):
                row, is_blank = rows[t[b]], bool(self.is_blank[b])
                _, reward, done, env_info = outcome.of(i)
                row.observations[b][...] = self._seen[i]
                row.reward_cells[b], row.done_cells[b] = (0, True) if is_blank else (reward, done)
                row.valid[b] = not is_blank
                for column, value, name in zip(row.columns, env_info, env_info._fields, strict=True):
                    if is_blank:
                        column[b] = 0
                    else:
                        fit(b, value, column, f"infos.{name}")
                self.is_blank[b], self._over[b] = False, done and not is_blank
                received.append((b, bool(self._over[b]), None if is_blank else (b, reward, done, env_info)))
        except (Exception, SystemExit) as error:
            self.explain(error, None, where)
            raise
        return sorted(received, key=lambda each: each[0])

    def outcome(self, step: Any, n: int | None = None) -> Outcome:
        """Return the outcome of a step of `n` environments; None: of all.

        Raises:
            ValueError, TypeError: the shape or dtype of a part is wrong, or infos have other fields than before.
        """
        reward, terminated, truncated = self._checked(step, n)
        timeout = truncated & ~terminated
        values = (timeout,) if step.infos is None else (*step.infos, timeout)
        return Outcome(self._env_info_type, reward, terminated | truncated, timeout, values)

    def _checked(self, step: Any, n: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return reward, terminated and truncated of a step of `n` environments (None: of all) as arrays [n], if it is in order."""
        n = self.n if n is None else n
        if type(step.infos) is not self._infos_type:
            self._new_infos(step.infos)
        return (
            _vector(step.reward, n, "reward", "fiub"),
            _vector(step.terminated, n, "terminated", "b"),
            _vector(step.truncated, n, "truncated", "b"),
        )

    def _new_infos(self, infos: Any) -> None:
        fields = () if infos is None else fields_of(infos)
        if fields is None:
            raise ValueError(f"infos is a {type(infos).__name__}, but must be a namedtuple of arrays, or None.")
        if "timeout" in fields or "traj_done" in fields:
            raise ValueError(f"infos has the fields {list(fields)}: a vector tells timeouts by `truncated`, and cannot tell traj_done.")
        if self._env_info_type is not None and self._env_info_type._fields[:-1] != fields:
            raise ValueError(f"infos: expected the fields {list(self._env_info_type._fields[:-1])} at every step, got {list(fields)}.")
        self._infos_type, self._env_info_type = type(infos), dynamic_namedtuple("info", [*fields, "timeout"])

    # Resets ---------------------------------------------------------------------------------------------------------
    def reset(self, b: int, observation: Any, when: str) -> None:
        """Reset environment `b` and write its first observation; or zeros, if the next step resets it."""
        if not self._is_first[b]:
            if self._mode == NEXT_STEP and self._over[b] and not self.waits:
                self.is_blank[b], self._over[b] = True, False
                observation[...] = 0
                return
            self._reset_some(b, when)
        self._is_first[b] = self._over[b] = False
        observation[...] = self._first[b]

    def reset_ended(self, columns: np.ndarray, observation: Any, when: Callable[[], str]) -> None:
        """Reset environments `columns` [k], whose episode ended in the latest `_step_all`; write the rows of `observation` as `reset` does.

        A SAME_STEP vector has already reset them.
        """
        if self._mode == NEXT_STEP:
            self.is_blank[columns] = True
            observation[columns] = 0
        elif self._mode == DISABLED:
            self._over[columns] = True
            self._reset_some(columns[0], when())
            observation[columns] = self._first[columns]
            self._is_first[columns] = False

    def _reset_some(self, b: int, when: str) -> None:
        """Reset environment `b`, and with it all others whose episode has just ended."""
        which = self._over.copy() if self._mode == DISABLED else np.zeros(self.n, bool)
        which[b] = True
        try:
            self.vector.reset_into(self._first, which)
        except (Exception, SystemExit) as error:
            self.explain(error, b, f"in reset, {when}")
            raise
        self._is_first |= which
        self._over[which] = False

    def reset_all(self, when: str, seeds: Sequence[int] | None = None) -> None:
        """Reset the whole vector; `reset` then hands out the first observations."""
        try:
            if seeds is not None:
                self.vector.seed(seeds)
            self.vector.reset_into(self._first)
        except (Exception, SystemExit) as error:
            self.explain(error, None, f"in reset, {when}")
            raise
        self._is_first[:] = True
        self.is_blank[:] = self._over[:] = False

    def first_observation(self, b: int, when: str) -> Any:
        """Return the first observation of environment `b`; for the first one, reset the vector. `when` is for messages."""
        if b == 0:
            self.reset_all(when)
        self._is_first[b] = False
        return self._first[b]

    def start(self, inputs: Any, TrajInfoCls: Any, n_steps: int) -> list:
        """Reset the vector, and take `n_steps` random steps in all environments; write the agent's first `inputs`, return the TrajInfos.

        The action space draws the actions. An environment whose last step ended an episode begins with a new one.
        """
        null_action, space = self.vector.action_space.null_value(), self.vector.action_space
        inputs.prev_action[:] = null_action
        inputs.prev_reward[:] = 0
        self.reset_all("at the start")
        inputs.observation[...] = self._first
        self._is_first[:] = False
        traj_infos, rows = [TrajInfoCls() for _ in range(self.n)], env_rows(inputs.observation, self.n)
        for step in range(n_steps):
            for b in range(self.n):
                inputs.prev_action[b] = allowed_action(space, space.sample(), inputs.observation[b])
            before = buffer_func(inputs.observation, np.copy)
            action = buffer_func(inputs.prev_action, np.copy)  # For the vector,
            taken = buffer_func(action, np.copy)  # and for TrajInfos, which may keep them.
            try:
                outcome, blank = self._step(action, inputs.observation)
            except (Exception, SystemExit) as error:
                self.explain(error, None, f"in step {step} of decorrelation")
                raise
            inputs.prev_reward[...] = outcome.reward
            for b in range(self.n):
                if not blank[b]:
                    reward, done = float(outcome.reward[b]), bool(outcome.done[b])
                    traj_infos[b].step(before[b], taken[b], reward, done, None, outcome.env_info(b))
            for b in range(self.n):  # Not before, since the vector may reuse the memory of the outcome when it is reset.
                if blank[b] or outcome.done[b]:
                    inputs.prev_action[b], inputs.prev_reward[b] = null_action, 0
                if outcome.done[b] and not blank[b]:
                    traj_infos[b] = TrajInfoCls()
                    self.reset(b, rows[b], f"after step {step} of decorrelation")
        return traj_infos

    # State and errors -----------------------------------------------------------------------------------------------
    def state(self) -> tuple:
        """Return what to save between two batches, as plain data."""
        first = [to_plain(leaf[self._is_first]) for leaf in buffer_leaves(self._first)]
        return to_plain(self.is_blank), to_plain(self._over), to_plain(self._is_first), first

    def set_state(self, state: tuple) -> None:
        """Restore the result of `state`."""
        if len(state) != 4:
            raise ValueError(f"The state of a vector has {len(state)} entries, and not 4: it is damaged, or of another version.")
        *masks, first = state
        for mask, saved in zip((self.is_blank, self._over, self._is_first), masks):
            value = from_plain(saved, "The state of a vector")
            if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (mask.shape, mask.dtype):
                raise ValueError(f"The state of a vector has not {self.n} flags: it is damaged, or of another vector.")
            mask[:] = value
        leaves = buffer_leaves(self._first)
        check_form(first, list, "The first observations in the state of a vector")
        if len(first) != len(leaves):
            raise ValueError(f"The state of a vector has {len(first)} arrays of first observations, and not {len(leaves)}.")
        for leaf, saved in zip(leaves, first):
            value = from_plain(saved, "The state of a vector")
            expected = leaf[self._is_first]
            if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (expected.shape, expected.dtype):
                raise ValueError(
                    f"The first observations in the state of a vector are {shown(value)}, and not an array {list(expected.shape)} of "
                    f"{expected.dtype}: it is damaged, or of another vector."
                )
            leaf[self._is_first] = value

    def explain(self, error: BaseException, b: int | None, where: str) -> None:
        """Attach to an error which environment it is from; None for the whole vector."""
        if b is None and self.n > 1:
            which = f"the vector of environments {self.env_ranks[0]} to {self.env_ranks[-1]}"
        else:
            which = f"environment {self.env_ranks[b or 0]}"
        describe_failure(error, f"This was in {which}, {where}.")


def end_vector_episodes(collector: Any, t: int, row: Row, ended: np.ndarray, completed: list) -> None:
    """Do for environments `ended` [k] of a vector what `TrainingCollector._end_episodes` does; the TrajInfos come with the batch's end."""
    calls = collector._calls
    if calls.n_timeouts:
        collector._timeouts.keep(row.timeout.nonzero()[0], calls.final)
    if collector._terminals.memory is not None:
        collector._terminals.keep(ended[~row.timeout[ended]], calls.final)
    if collector._tracker.looks_at_observations:
        collector._tracker.finish(ended, calls.final)
    calls.reset_ended(ended, row.next_observation, lambda: f"after {collector._when(t)}")


def _final_of(step: VectorStep) -> Any:
    """Return the last observations of episodes that ended in a step of a SAME_STEP vector."""
    if step.final_observation is None:
        raise ValueError(
            "A SAME_STEP vector must return final_observation where an episode ends, since observation_out then has the first "
            "observation of the next episode: give it as the fifth field of VectorStep."
        )
    return step.final_observation


def vector_columns(envs: VectorEnvs, env_kwargs: Any, env_ranks: Sequence[int], all_envs: list, is_example: bool) -> VectorColumns:
    """Make a vector, append it to `all_envs`, and return its environments.

    Args:
        is_example: whether only one environment is needed, as an example.

    Raises:
        ValueError: the vector has another number of environments, or cannot be used.
    """
    n = (envs.n or 1) if is_example else len(env_ranks)
    try:
        vector = envs(num_envs=n, **env_kwargs)
    except SystemExit as error:
        describe_failure(error, f"This was when the vector of environments {env_ranks[0]} to {env_ranks[-1]} was made.")
        raise
    all_envs.append(vector)
    ranks = range(env_ranks[0], env_ranks[0] + n) if is_example else env_ranks
    return VectorColumns(vector, list(ranks))


def _entry(array: np.ndarray, b: int) -> Any:
    """Return entry `b`; a Python number where an array of Python's numbers has this dtype."""
    return array[b].item() if array.ndim == 1 and array.dtype in _OF_PYTHON else array[b]


def _vector(x: Any, n: int, name: str, kinds: str) -> np.ndarray:
    """Return `x` as an array [n]; ValueError, or TypeError, unless its dtype is of one of these kinds."""
    array = x if type(x) is np.ndarray else np.asarray(x)
    if array.shape != (n,):
        raise ValueError(f"{name}: expected shape {(n,)}, one entry for each environment of the vector, got {array.shape}.")
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name}: expected {'bool' if kinds == 'b' else 'numbers'}, got dtype {array.dtype}.")
    return array


def _write(column: Any, value: Any, name: str = "infos") -> None:
    """Write an entry of env_info, a structure of arrays [n,...], into its column of the batch."""
    if type(value) is np.ndarray and type(column) is np.ndarray and value.dtype == column.dtype and value.shape == column.shape:
        column[...] = value
        return
    if fields_of(column) is not None:
        for field, part, part_value in zip(column._fields, tuple(column), tuple(value), strict=True):
            _write(part, part_value, f"{name}.{field}")
        return
    array = np.asarray(value)
    if array.shape != column.shape or not fits_losslessly(array, column.dtype):
        raise ValueError(
            f"{name}: expected shape {column.shape} and dtype {column.dtype}, as at the first step, got {array.shape} and {array.dtype}."
        )
    column[...] = array


def _leaves(*structures: Any) -> list:
    return list(zip(*map(buffer_leaves, structures), strict=True))
