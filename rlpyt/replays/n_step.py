"""Ring memory of samples with n-step returns."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np

from rlpyt.replays.base import BESIDE_STEPS, EXAMPLE, BaseReplayBuffer, unknown_fields, without
from rlpyt.replays.batches import BatchMemory, pairs_of_leaves, rows_like, take_rows
from rlpyt.replays.draws import is_ours
from rlpyt.replays.final_observations import FinalObservations
from rlpyt.replays.ring import Ring
from rlpyt.returns import discount_return_n_step
from rlpyt.utils.buffer import buffer_from_example, buffer_func, buffer_leaves, check_memory, numpify_buffer, torchify_buffer
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.settings import COUNT, FRACTION, checked, naming, shown

kernels = LazyModule("rlpyt.utils.kernels")

# Fields of samples that are not stored row by row.
_NOT_IN_ROWS = (*BESIDE_STEPS, "priorities", "prev_rnn_state")
_NO_OBSERVATION = -1


class BaseNStepReturnBuffer(BaseReplayBuffer):
    """Stores the latest samples in arrays [T,B,...] and computes their n-step returns.

    The latest `n_step_return` rows up to the cursor cannot be replayed yet, because rewards and next observations
    are missing (`off_backward`), and the row at the cursor cannot any more, because the action and reward
    before it have been overwritten (`off_forward`). Subclasses define what is drawn and what is read out.

    Samples may have more fields than they must:

    * `timeout` [T,B], bool: the episode was truncated with the step (`done` is True as well). They bring a field
      `final_observation` [K,B,...] then, whose slot [k,b] is the observation that ended the k-th truncated episode of
      environment b in them (None if nothing was truncated). These are kept as long as the step is.
    * `observation_after` [1,B,...]: what follows the last step, for `end_episodes`.
    * `valid` [T,B], bool (or 0 and 1): False for the rows that a sampler leaves blank after the end of an episode; they are never drawn.

    Processes may share a buffer of an asynchronous class. An append then announces which rows it will overwrite, writes,
    and only at last makes the new ones valid; only the first and the last of this, and drawing, take `lock`. Whoever
    reads without it finds out afterwards, by the numbers of the rows, whether they had been claimed by then.

    Args:
        example: namedtuple of one example each of what will be appended, without leading dimensions; it has
            the fields `observation`, `action`, `reward` and `done`.
        size: environment steps to keep; rounded up to a whole number of rows, ``T = ceil(size / B)``.
        B: number of environments.
        discount: γ.
        n_step_return: n.
        null_action: what the agent is given as previous action at the start of an episode.

    Attributes:
        samples: namedarraytuple like `example`, [T,B,...]; written by `append_samples` alone.
        samples_return_: [T,B], row t holds ``r_t + γ r_{t+1} + ... + γ^{n-1} r_{t+n-1}``, cut off at the
            episode's end.
        samples_done_n: [T,B], whether the episode ended within those n steps.
        T, size, off_backward, off_forward: see above. A subclass that needs a larger `off_forward` sets it before this
            constructor runs.
        ring: where the next row goes, and which rows are valid.

    Raises:
        ValueError: the size is too small to replay anything.
        MemoryError: the memory for it is not available.
    """

    off_forward = 1
    keeps_final_observations = True
    requires_final_observations = True

    @checked(example=EXAMPLE, size=COUNT, B=COUNT, discount=FRACTION, n_step_return=COUNT)
    def __init__(
        self,
        example: Any,
        size: int,
        B: int,
        discount: float = 1,
        n_step_return: int = 1,
        null_action: Any = 0,
    ) -> None:
        self.B, self.discount, self.n_step_return = B, discount, n_step_return
        self.null_action = null_action
        self.T = math.ceil(size / (B * self.start_interval)) * self.start_interval
        self.size = self.T * B
        self.off_backward = self.n_step_return
        self._check_size(size)
        if not hasattr(self, "lock"):  # An asynchronous buffer has one among processes.
            self.lock = nullcontext()
        self.ring = Ring(self.T, share_memory=self.async_)
        self._allocate(example)
        self._own_append = is_ours(self, "append_samples")
        self._beside: dict[str, Any] = {}  # During `append_batch`, the fields that `append_samples` is not given,
        self._n_beside = 0  # and the time steps of the batch that they belong to.
        self._batches = BatchMemory()

    def _check_size(self, size: int) -> None:
        """Check that something can be replayed once the buffer is full."""
        back, forward = self.start_zones()
        if self.T // self.start_interval <= back + forward:
            at_least = (back + forward) * self.start_interval
            raise ValueError(
                f"A replay buffer of size={size} for B={self.B} environments holds {self.T} time steps, and n_step_return="
                f"{self.n_step_return}{self._other_needs()} needs more than {at_least}: raise the size."
            )

    def _other_needs(self) -> str:
        return ""

    def _allocate(self, example: Any) -> None:
        """Allocate all memory, or none if there is not enough for all of it."""
        example = numpify_buffer(example)
        if getattr(example, "valid", None) is not None:
            example = example._replace(valid=np.bool_(True))
        stored = _rows_of(example)
        self._expected = self._expected_samples(example)
        has_timeout = getattr(example, "timeout", None) is not None
        keeps_final = has_timeout and self.keeps_final_observations
        step_bytes = sum(np.asarray(leaf).nbytes for leaf in buffer_leaves(stored)) + 4 * keeps_final
        if self.n_step_return > 1:
            step_bytes += np.asarray(example.reward).nbytes + np.asarray(example.done).nbytes
        step_bytes += self._further_bytes(example) / self.size
        check_memory(math.ceil(self.size * step_bytes), f"A replay buffer of {self.size} steps of {step_bytes:.0f} bytes")

        # Every array has one row behind the last step: what the agent is given as previous action and reward after a reset.
        self._null_row = self.size
        self._rows = buffer_from_example(stored, self.size + 1, self.async_)  # [T*B+1,...]
        with naming(self, f"null_action={shown(self.null_action)}", AttributeError, OverflowError, RuntimeError):
            self._rows.action[self._null_row] = self.null_action
        self._returns = self._done_n = None
        if self.n_step_return > 1:
            return_ = np.zeros((), np.result_type(np.asarray(example.reward).dtype, np.float32))
            self._returns = buffer_from_example(return_, self.size, self.async_)  # [T*B]
            self._done_n = buffer_from_example(example.done, self.size, self.async_)
        self._make_views()
        none = np.empty(0, np.bool_)  # Stands for a field there is not, where kernels look for one.
        self._timeout, self._valid = (none if x is None else x for x in (getattr(self._rows, name, None) for name in ("timeout", "valid")))
        self._own_observations = is_ours(self, "extract_observation")  # Otherwise a subclass knows how to make them.
        self._final_observations = None
        self._after, self._knows_after = None, buffer_from_example(np.bool_(False), 1, self.async_)
        if keeps_final:
            self._after = buffer_from_example(stored.observation, self.B, self.async_)  # [B,...], what follows the newest row.
            self._final_observations = FinalObservations(stored.observation, self.size, share_memory=self.async_)
            self._final_slot = buffer_from_example(np.int32(0), self.size, self.async_)  # [T*B], where in that store.
            self._final_slot[:] = _NO_OBSERVATION

    def _make_views(self) -> None:
        """Make what are views of other arrays."""
        self.samples = buffer_func(self._rows, self._as_T_B)
        if self.n_step_return == 1:
            self._returns, self._done_n = self._rows.reward[:-1], self._rows.done[:-1]
        self.samples_return_, self.samples_done_n = (x.reshape(self.T, self.B) for x in (self._returns, self._done_n))

    def __getstate__(self) -> dict:
        views = ["samples", "samples_return_", "samples_done_n"] + ["_returns", "_done_n"] * (self.n_step_return == 1)
        return {name: value for name, value in self.__dict__.items() if name not in views}  # Copied, they would be memory of their own.

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._make_views()

    def _as_T_B(self, rows: np.ndarray) -> np.ndarray:
        return rows[: self.size].reshape(self.T, self.B, *rows.shape[1:])

    def _further_bytes(self, example: Any) -> int:
        """Return the size of what a subclass allocates besides."""
        return 0

    def _batch_memory(self, *shape: int, pin: bool) -> Any:
        """Allocate memory for one batch, with the attributes `rows`, where observations are stored, and `observation`."""
        raise NotImplementedError

    def _observation_memory(self, *leading_dims: int, pin: bool) -> Any:
        """Allocate memory for observations [*leading_dims,...]."""
        return rows_like(self._rows.observation, *leading_dims, pin=pin)

    def _gather_observations(self, m: Any, T_idxs: np.ndarray, B_idxs: np.ndarray) -> None:
        """Write the observations of the batch in memory `m`, whose samples start at these indexes."""
        take_rows(pairs_of_leaves(self._rows.observation, m.rows, m.observation))

    # -----------------------------------------------------------------------------------------------------------------
    # What can be replayed
    # -----------------------------------------------------------------------------------------------------------------
    @property
    def start_interval(self) -> int:
        """Rows from one at which what is replayed may start to the next."""
        return 1

    def start_zones(self) -> tuple[int, int]:
        """Return how many starts before the cursor, and after it, cannot be replayed."""
        return self.off_backward, self.off_forward

    @property
    def min_rows(self) -> int:
        """Rows that must have been written before anything can be replayed."""
        return sum(self.start_zones()) * self.start_interval + 1

    @property
    def written(self) -> int:
        """Rows ever written; `state_dict` can leave out what came before such a number."""
        return self.ring.written

    @property
    def t(self) -> int:
        """The row to be written next. A class that writes rows by itself sets it."""
        return self.ring.t

    @t.setter
    def t(self, t: int) -> None:
        if self.ring.full:
            self.ring.advance((t - self.ring.t) % self.T)
        else:
            self.ring.move_to(t)

    @property
    def _buffer_full(self) -> bool:
        """Whether every row has been written. A class that writes rows by itself sets it when it begins anew at row 0."""
        return self.ring.full

    @_buffer_full.setter
    def _buffer_full(self, full: bool) -> None:
        if full != self.ring.full:
            self.ring.move_to(self.ring.t + self.T * full)

    def reuse_batches(self, n_slots: int = 2, pin: bool = False) -> None:
        """From now on put batches into the same memory again and again, which saves the time to allocate it.

        A batch then only lasts until `n_slots` more of the same size have been sampled.

        Args:
            n_slots: how many batches last at the same time.
            pin: use page-locked memory, from which a GPU copies directly.
        """
        self._batches.reuse(n_slots, pin)

    def _checked_idxs(self, T_idxs: Any, B_idxs: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return indexes as kernels take them, int64 [n], which do not look whether they are any."""
        T_idxs, B_idxs = _as_indexes(T_idxs), _as_indexes(B_idxs)
        if not kernels.all_within(T_idxs, B_idxs, self.T, self.B):
            raise IndexError(
                f"T_idxs and B_idxs must be as many as each other, from 0 to {self.T - 1} and from 0 to {self.B - 1}: got {len(T_idxs)} "
                f"from {T_idxs.min(initial=0)} to {T_idxs.max(initial=0)} and {len(B_idxs)} from {B_idxs.min(initial=0)} to "
                f"{B_idxs.max(initial=0)}."
            )
        return T_idxs, B_idxs

    # -----------------------------------------------------------------------------------------------------------------
    # Writing
    # -----------------------------------------------------------------------------------------------------------------
    def append_batch(self, samples: Any) -> None:
        """Append what an algorithm stores of a batch, by `append_samples`.

        If that is one of another package, it is given the fields [T',B,...] alone, and need not know that there are others: they are
        kept here until the one of this class asks for them.
        """
        if self._own_append:
            self.append_samples(samples)
            return
        stored = getattr(samples, "samples", samples)
        self._beside = {name: getattr(stored, name, None) for name in BESIDE_STEPS}
        self._n_beside = len(stored.reward)
        try:
            self.append_samples(without(samples, unknown_fields(self)))
        finally:
            self._beside = {}

    def append_samples(self, samples: Any) -> tuple[int, slice | np.ndarray]:
        """Write samples [T',B,...] at the cursor, complete the returns of the rows they belong to, and advance.

        Returns:
            T', and the index of the rows that were written: a slice, or an array [T'] where they wrap around.

        Raises:
            ValueError: there are more rows than in the buffer; a field is missing, or of another shape or kind of dtype than in the
                example; or an observation that ended an episode is missing. Nothing has been written then.
        """
        samples = numpify_buffer(samples)
        n = len(samples.reward)
        if n > self.T:
            raise ValueError(f"{n} time steps were appended to a replay buffer of {self.T}: raise its size or lower batch_T.")
        self._check_samples(samples, n)
        ended, final_observation = self._final_observations_of(samples)
        rows = self.ring.rows(0, n)
        with self.lock:
            self._claim(n)
        self._write(samples, n)
        self._keep_final_observations(n, ended, final_observation)
        self.compute_returns(n)
        with self.lock:
            self._publish(n, samples)
        self._keep_after(samples)
        return n, rows

    def _check_samples(self, samples: Any, n: int) -> None:
        """Check that what would be stored has the shapes of the example, and dtypes that can be stored, before anything is.

        Raises:
            ValueError: naming the field, what is expected, and what came.
        """
        for name, shape, dtype in self._expected:
            new = samples
            for field in name.split("."):
                new = getattr(new, field, None)
            shape = (n, self.B, *shape)
            if new is None:
                raise ValueError(f"Samples lack '{name}', which the example of the replay buffer had.")
            if new.shape != shape:
                raise ValueError(f"'{name}' of samples must have shape {shape}, as the example of the replay buffer says, got {new.shape}.")
            if dtype != np.bool_ and not np.can_cast(new.dtype, dtype, "same_kind"):
                raise ValueError(f"'{name}' of samples must be {dtype}, as in the example of the replay buffer, got {new.dtype}.")

    def _expected_samples(self, example: Any) -> list[tuple[str, tuple, np.dtype]]:
        """Return the name of every array that samples must have, its shape without [T,B], and its dtype."""
        leaves = [leaf for name, part in _rows_of(example)._asdict().items() for leaf in named_leaves(part, name)]
        return [(name, np.shape(leaf), np.asarray(leaf).dtype) for name, leaf in leaves]

    def compute_returns(self, T: int) -> None:
        """Compute the n-step returns that the `T` rows just written at the cursor complete, before it advances."""
        if self.n_step_return == 1:
            return
        known = self.ring.rows(1 - self.n_step_return, T + self.n_step_return - 1)
        completed = self.ring.rows(1 - self.n_step_return, T)
        self.samples_return_[completed], self.samples_done_n[completed] = discount_return_n_step(
            self.samples.reward[known], self.samples.done[known], self.n_step_return, self.discount
        )

    def _claim(self, n: int) -> None:
        """Announce that the next `n` rows will be overwritten."""
        self.ring.claim(n)

    def _repair(self) -> None:
        """Set right what a process was changing under `lock` when it was killed."""

    def _publish(self, n: int, samples: Any) -> None:
        """Make the `n` rows written valid."""
        self.ring.advance(n)

    def _write(self, samples: Any, n: int) -> None:
        """Write samples [n,B,...], in the form in which they are stored, at the cursor."""
        rows = self.ring.rows(0, n)
        for name, memory in self.samples.items():
            if name == "observation":
                self._write_observation(rows, samples.observation)
            elif memory is not None:
                memory[rows] = getattr(samples, name)

    def _write_observation(self, rows: slice | np.ndarray, observation: Any) -> None:
        self.samples.observation[rows] = observation

    def _final_observations_of(self, samples: Any) -> tuple[np.ndarray | None, Any]:
        """Return which of the steps `samples` brings final observations for [T',B], and these [m,...] in the order of their steps.

        Raises:
            ValueError: they are missing.
        """
        if self._final_observations is None or not samples.timeout.any():
            return None, None
        final_observation = self._stored_observation(samples, "final_observation")
        if final_observation is None:
            if not self.requires_final_observations:
                return None, None
            raise ValueError(
                "Samples have steps with timeout=True, but no final_observation [K,B,...] with the observations "
                "that ended those episodes; without them the value of what follows cannot be estimated. If samples_to_buffer is your "
                "own, return final_observation=samples.final_observation, too; or treat time limits as terminations (timeout all False)."
            )
        timeout = samples.timeout.astype(bool)
        t_idxs, b_idxs = np.nonzero(timeout)
        slots = np.cumsum(timeout, axis=0)[t_idxs, b_idxs] - 1
        n_slots = min(len(leaf) for leaf in buffer_leaves(final_observation))
        if n_slots <= slots.max():
            raise ValueError(
                f"Samples have {slots.max() + 1} steps with timeout=True in one environment, and {n_slots} final observations for each."
            )
        return timeout, buffer_func(final_observation, lambda leaf: leaf[slots, b_idxs])

    def _stored_observation(self, samples: Any, name: str) -> Any:
        """Return the field of `BESIDE_STEPS` with that name, in the form in which observations are stored; None if there is none."""
        observation = getattr(samples, name, None)
        if observation is not None or self._beside.get(name) is None:
            return observation
        if len(samples.reward) == self._n_beside:
            return numpify_buffer(self._beside[name])
        if name == "observation_after":
            return None
        raise ValueError(
            f"append_samples of {type(self).__name__} passed on {len(samples.reward)} of {self._n_beside} time steps of a batch, and it is "
            "not known which of the final observations belong to them: pass on the whole batch at once, or define append_batch(samples)."
        )

    def _keep_final_observations(self, n: int, ended: np.ndarray | None, observations: Any) -> None:
        """Forget those of the `n` rows overwritten at the cursor, and keep those [m,...] of the steps `ended` [n,B], if any."""
        if self._final_observations is None:
            return
        rows, slot = self.ring.rows(0, n), self._final_slot.reshape(self.T, self.B)
        overwritten = slot[rows]
        outdated = overwritten[overwritten != _NO_OBSERVATION]
        if len(outdated):  # Whoever dies in the middle of this has lost memory, but no observation has two owners.
            slot[rows] = _NO_OBSERVATION
            self._final_observations.forget(outdated)
        if ended is not None:
            new = np.full((n, self.B), _NO_OBSERVATION, np.int32)
            new[ended] = self._final_observations.append(observations, np.count_nonzero(ended))
            slot[rows] = new

    def _keep_after(self, samples: Any) -> None:
        after = self._stored_observation(samples, "observation_after")
        self._knows_after[0] = self._after is not None and after is not None
        if self._knows_after[0]:
            self._after[:] = after[-1]

    def end_episodes(self, B_idxs: Any = None) -> None:
        """Have the newest step of environments `B_idxs` (None: of all) be the last one of its episode, as by a time limit.

        To be called if what comes next does not follow: when a run is resumed, and its environments cannot be.
        """
        if self.written == 0:
            return
        newest = (self.t - 1) % self.T
        b = np.arange(self.B) if B_idxs is None else np.asarray(B_idxs, np.int64)
        b = b[~self.samples.done[newest, b].astype(bool)]
        self.samples.done[newest, b] = True
        if self.written >= self.n_step_return:  # The others are computed when samples are appended.
            self.samples_done_n[(self.t - self.n_step_return) % self.T, b] = True
        if getattr(self.samples, "timeout", None) is None or not len(b):
            return
        if self._knows_after[0]:
            self._final_slot.reshape(self.T, self.B)[newest, b] = self._final_observations.append(self._after[b], len(b))
        needed = self._final_observations is not None and self.requires_final_observations
        self.samples.timeout[newest, b] = bool(self._knows_after[0]) or not needed  # Else it counts as a termination.

    # -----------------------------------------------------------------------------------------------------------------
    # Checkpoints
    # -----------------------------------------------------------------------------------------------------------------
    def state_dict(self, since: int = 0) -> dict[str, Any]:
        """Return the contents: plain numbers, text, lists and torch tensors.

        The tensors of stored steps are views of the buffer's memory: save them before the next append.

        Args:
            since: leave out the rows that had been written when `written` had this value, because they are in a state that
                was saved then (or earlier). `load_state_dict` of that and then of this one restores all.
        """
        written, claimed = self.written, self.ring.claimed
        oldest = max(claimed - self.T, 0)
        first = min(max(oldest, since), written)
        chunks = []
        for _, rows in self.ring.pieces(first, written):
            chunk = {name: torchify_buffer(leaf[rows]) for name, leaf in self._named_rows()}
            if self._final_observations is not None:
                kept = self._final_slot.reshape(self.T, self.B)[rows]
                chunk["has_final_observation"] = torchify_buffer(kept != _NO_OBSERVATION)
                final = self._final_observations[kept[kept != _NO_OBSERVATION]]
                chunk |= {f"final_{name}": torchify_buffer(leaf) for name, leaf in named_leaves(final, "observation")}
            chunks.append(chunk)
        counts = {"first": first, "written": written, "claimed": claimed, "complete": first == oldest}
        after = None
        if self._knows_after[0]:
            after = {name: torchify_buffer(leaf.copy()) for name, leaf in named_leaves(self._after, "observation")}
        return {**self._state_settings(), **counts, "chunks": chunks, "after": after}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: it is of another buffer, or leaves out rows that are not here.
        """
        s = state_dict
        self._check_state(s)
        if s["complete"] and self._final_observations is not None:  # Nothing of what was here stays.
            kept = self._final_slot[self._final_slot != _NO_OBSERVATION]
            self._final_slot[:] = _NO_OBSERVATION
            self._final_observations.forget(kept)
        self.ring.move_to(s["first"])
        for (_, rows), chunk in zip(self.ring.pieces(s["first"], s["written"]), s["chunks"], strict=True):
            n = rows.stop - rows.start
            self.ring.claim(n)
            self._load_chunk(chunk, n)
            self.compute_returns(n)
            self.ring.advance(n)
        self.ring.move_to(s["written"], s["claimed"])
        self._knows_after[0] = s["after"] is not None and self._after is not None
        if self._knows_after[0]:
            for name, leaf in named_leaves(self._after, "observation"):
                leaf[:] = numpify_buffer(s["after"][name])

    def _check_state(self, s: dict[str, Any]) -> None:
        """Raise ValueError if a state cannot be loaded, before anything is."""
        counts = dict.fromkeys(("first", "written", "claimed"), NATURAL)
        check_form(s, dict(counts, complete=bool, chunks=[dict], after=(dict, type(None))), "The saved replay buffer")
        settings = self._state_settings()
        saved = {name: s.get(name) for name in settings}
        if saved != settings:
            raise ValueError(f"The saved replay buffer has {saved}, and this one {settings}: make it with the same settings.")
        if not s["complete"] and not s["first"] <= self.written <= s["written"]:
            raise ValueError(
                f"The saved rows {s['first']} to {s['written']} of a replay buffer continue one with {s['first']} rows written, and this "
                f"one has {self.written}: load the states in the order in which they were saved, beginning with a complete one."
            )
        if not s["first"] <= s["written"] <= s["claimed"] <= s["written"] + self.T or s["written"] - s["first"] > self.T:
            raise ValueError(
                f"The saved replay buffer has the rows {s['first']} to {s['written']} of {s['claimed']}, which cannot be in {self.T} rows."
            )
        for (number, rows), chunk in zip(self.ring.pieces(s["first"], s["written"]), s["chunks"], strict=True):
            self._check_chunk(chunk, number, rows.stop - rows.start)
        if s["after"] is not None and self._after is not None:
            for name, leaf in named_leaves(self._after, "observation"):
                check_saved(s["after"], name, leaf.shape, leaf.dtype)

    def _state_settings(self) -> dict[str, Any]:
        """Return the settings which a saved state must share."""
        return dict(T=self.T, B=self.B, start_interval=self.start_interval, n_step_return=self.n_step_return)

    def _named_rows(self) -> list[tuple[str, np.ndarray]]:
        return named_leaves(self.samples, "samples")

    def _check_chunk(self, chunk: dict[str, Any], number: int, n: int) -> None:
        """Raise ValueError unless these are `n` rows, from this number on, of a buffer such as this one."""
        for name, leaf in self._named_rows():
            check_saved(chunk, name, (n, *leaf.shape[1:]), leaf.dtype)
        if self._final_observations is not None:
            check_saved(chunk, "has_final_observation", (n, self.B), np.dtype(bool))
            n_final = np.count_nonzero(numpify_buffer(chunk["has_final_observation"]))
            for name, leaf in named_leaves(self._final_observations.example, "observation"):
                check_saved(chunk, f"final_{name}", (n_final, *np.shape(leaf)), leaf.dtype)

    def _load_chunk(self, chunk: dict[str, Any], n: int) -> None:
        """Write `n` saved rows at the cursor."""
        rows = self.ring.rows(0, n)
        for name, leaf in self._named_rows():
            leaf[rows] = numpify_buffer(chunk[name])
        if self._final_observations is not None:
            ended = numpify_buffer(chunk["has_final_observation"])
            observations = buffer_from_example(self._final_observations.example, np.count_nonzero(ended))
            for name, leaf in named_leaves(observations, "observation"):
                leaf[:] = numpify_buffer(chunk[f"final_{name}"])
            self._keep_final_observations(n, ended, observations)


def check_saved(saved: dict[str, Any], name: str, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise ValueError unless a tensor of this name, shape and dtype was saved."""
    tensor = saved.get(name)
    array = None if tensor is None else numpify_buffer(tensor)
    if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (tuple(shape), dtype):
        found = "is missing" if array is None else f"has shape {np.shape(array)} and {getattr(array, 'dtype', type(array).__name__)}"
        raise ValueError(
            f"'{name}' of the saved replay buffer {found}, but this one stores shape {tuple(shape)} and {dtype}: make it with the same "
            "environment, agent and settings."
        )


def _rows_of(samples: Any) -> Any:
    """Return `samples` without the fields that have other leading dimensions than the rest, or are used otherwise."""
    return samples._replace(**{name: None for name in _NOT_IN_ROWS if name in samples._fields})


def _as_indexes(idxs: Any) -> np.ndarray:
    if type(idxs) is np.ndarray and idxs.dtype == np.int64 and idxs.flags.c_contiguous:
        return idxs
    return np.ascontiguousarray(numpify_buffer(idxs), np.int64)


def named_leaves(buffer_: Any, name: str) -> list[tuple[str, Any]]:
    """Return the leaves of a structure with their names, dotted where structures are nested, depth first, without the Nones."""
    if buffer_ is None:
        return []
    if not isinstance(buffer_, tuple):
        return [(name, buffer_)]
    fields = getattr(buffer_, "_fields", range(len(buffer_)))
    return [leaf for field, part in zip(fields, tuple(buffer_), strict=True) for leaf in named_leaves(part, f"{name}.{field}")]
