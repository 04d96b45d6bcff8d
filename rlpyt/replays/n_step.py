"""The base class of replay buffers with n-step returns, made of parts that store, draw, gather and save."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlpyt.replays.base import BESIDE_STEPS, EXAMPLE, BaseReplayBuffer, unknown_fields, without
from rlpyt.replays.batches import BatchMemory
from rlpyt.replays.draws import Draw, Draws, is_ours
from rlpyt.replays.episode_ends import EpisodeEnds
from rlpyt.replays.prioritized import weighted, with_priorities
from rlpyt.replays.ring import Ring
from rlpyt.replays.storage import NStepReturns, Storage, step_bytes
from rlpyt.utils.buffer import check_memory, numpify_buffer
from rlpyt.utils.collections import field_of
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.settings import COUNT, FRACTION, checked, naming, shown

kernels = LazyModule("rlpyt.utils.kernels")

# After this many consecutive batches that were overwritten while being read, writers wait for the next batch.
_N_TRIES = 3


class BaseNStepReturnBuffer(BaseReplayBuffer):
    """Stores the latest samples in arrays [T,B,...], and replays random samples with their n-step returns.

    The latest `n_step_return` rows up to the cursor cannot be replayed yet, because later rewards and observations are missing
    (`off_backward`). The row at the cursor can no longer be replayed, because the previous action and reward are overwritten
    (`off_forward`). Subclasses choose the parts: for storing observations (`StorageCls`), for drawing samples (`DrawsCls`), and for
    gathering batches (`_make_layout`, `extract_batch`).

    Samples may have optional fields:

    * `timeout` [T,B], bool: the step truncated the episode (`done` is also True). The samples then also have a field
      `final_observation` [K,B,...], whose entry [k,b] is the observation that ended the k-th truncated episode of environment b (None if
      no episode was truncated). Final observations are kept as long as their steps.
    * `observation_after` [1,B,...]: the observation after the last step, for `end_episodes`.
    * `valid` [T,B], bool (or 0 and 1): False for the rows that a sampler leaves blank after the end of an episode; they are never drawn.

    Processes may share a buffer of an asynchronous class. An append first claims the rows that it will overwrite, then writes, and finally
    makes the new rows valid. Only the first and the last of these steps, and drawing, take `lock`. Reading takes no lock; the reader checks
    afterwards, by the numbers of its rows, whether any of them were claimed meanwhile.

    Args:
        example: namedtuple with an example of each field of a step, without leading dimensions; it has the fields `observation`, `action`,
            `reward` and `done`.
        size: environment steps to keep; rounded up to a whole number of rows, ``T = ceil(size / B)``.
        B: number of environments.
        discount: γ.
        n_step_return: n.
        null_action: the agent's previous action at the start of an episode.

    Attributes:
        T, size, off_backward, off_forward: see above. A subclass that needs a larger `off_forward` sets it before this
            constructor runs.
        ring: the cursor; tells which rows are valid.
        starts: the rows at which replayed samples may start.
        storage, returns, ends, layout, draws: the other parts. `ends` is None if no final observations are kept.

    Raises:
        ValueError: the size is too small to replay anything.
        MemoryError: too little memory is free.
    """

    StorageCls = Storage
    DrawsCls: type[Draws] = Draws  # Draws nothing: a subclass draws in `sample_batch`, unless it names another.
    off_forward = 1
    keeps_final_observations = True
    requires_final_observations = True
    lock: AbstractContextManager = nullcontext()  # An asynchronous buffer has locks that processes share.
    writer_lock: AbstractContextManager = nullcontext()

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

        example = numpify_buffer(example)
        if field_of(example, "valid") is not None:
            example = example._replace(valid=np.bool_(True))
        stored = self.StorageCls.stored_example(example)
        self.off_forward = max(self.off_forward, self.StorageCls.rows_before(example))
        self._check_size(size)
        n_bytes = self._step_bytes(example)
        check_memory(math.ceil(self.size * n_bytes), f"A replay buffer of {self.size} steps of {n_bytes:.0f} bytes")

        self.ring = Ring(self.T, share_memory=self.async_)
        self.starts = self.ring.every(self.start_interval)
        self.storage = self.StorageCls(example, self.ring, B, self.async_)
        with naming(self, f"null_action={shown(self.null_action)}", AttributeError, OverflowError, RuntimeError):
            self.storage.memory.action[self.size] = self.null_action
        self.returns = NStepReturns(self.storage, n_step_return, discount, self.async_)
        self.ends = EpisodeEnds(stored.observation, self.ring, B, self.async_) if self._keeps_ends(example) else None
        self._row_parts: list[Any] = [self.storage]  # The parts that are written row by row.
        self._batches = BatchMemory()
        self.layout = self._make_layout(example)
        self.draws = self._make_draws()
        self._saved_parts = self._row_parts if self.ends is None else [*self._row_parts, self.ends]

        self._own_append = is_ours(self, "append_samples")
        self._own_observations = is_ours(self, "extract_observation")  # Otherwise a subclass makes them.
        self._beside: dict[str, Any] = {}  # During `append_batch`, the fields that are kept from `append_samples`,
        self._n_beside = 0  # and the number of time steps in their batch.

    def _check_size(self, size: int) -> None:
        """Check that the buffer, once full, can replay something."""
        back, forward = self.start_zones()
        if self.T // self.start_interval <= back + forward:
            at_least = (back + forward) * self.start_interval
            raise ValueError(
                f"A replay buffer of size={size} for B={self.B} environments holds {self.T} time steps, and n_step_return="
                f"{self.n_step_return}{self._other_needs()} needs more than {at_least}: raise the size."
            )

    def _other_needs(self) -> str:
        return ""

    def _keeps_ends(self, example: Any) -> bool:
        return self.keeps_final_observations and field_of(example, "timeout") is not None

    def _step_bytes(self, example: Any) -> float:
        """Return the bytes of memory per step in all parts."""
        n_bytes = step_bytes(self.StorageCls.stored_example(example)) + EpisodeEnds.STEP_BYTES * self._keeps_ends(example)
        return n_bytes + (step_bytes(example.reward) + step_bytes(example.done)) * (self.n_step_return > 1)

    def _make_layout(self, example: Any) -> Any:
        """Return the part that gathers batches, for `extract_batch` of a subclass."""

    def _make_draws(self) -> Draws:
        """Return the part that draws samples."""
        return self.DrawsCls(self.starts, self.B, *self.start_zones(), self.storage.valid)

    # -----------------------------------------------------------------------------------------------------------------
    # Contents
    # -----------------------------------------------------------------------------------------------------------------
    @property
    def samples(self) -> Any:
        """Namedarraytuple like the example, [T,B,...]; only `append_samples` writes it."""
        return self.storage.samples

    @property
    def samples_return_(self) -> np.ndarray:
        """N-step returns [T,B], see `NStepReturns`."""
        return self.returns.as_T_B[0]

    @property
    def samples_done_n(self) -> np.ndarray:
        """Whether the episode ended within n steps, [T,B]."""
        return self.returns.as_T_B[1]

    @property
    def start_interval(self) -> int:
        """Number of rows from one possible start of a sample to the next."""
        return 1

    def start_zones(self, *size: Any) -> tuple[int, int]:
        """Return the numbers of starts before and after the cursor that cannot be replayed."""
        return self.off_backward, self.off_forward

    @property
    def min_rows(self) -> int:
        """Number of rows to write before anything can be replayed."""
        return sum(self.start_zones()) * self.start_interval + 1

    @property
    def written(self) -> int:
        """Number of rows ever written; an argument for `state_dict`, to leave out earlier rows."""
        return self.ring.written

    @property
    def t(self) -> int:
        """The next row to write. A class that writes rows itself sets it."""
        return self.ring.t

    @t.setter
    def t(self, t: int) -> None:
        self.draws.detach()
        if self.ring.full:
            self.ring.advance((t - self.ring.t) % self.T)
        else:
            self.ring.move_to(t)

    @property
    def _buffer_full(self) -> bool:
        """Whether every row has been written. A class that writes rows itself sets it when it restarts at row 0."""
        return self.ring.full

    @_buffer_full.setter
    def _buffer_full(self, full: bool) -> None:
        self.draws.detach()
        if full != self.ring.full:
            self.ring.move_to(self.ring.t + self.T * full)

    # -----------------------------------------------------------------------------------------------------------------
    # Writing
    # -----------------------------------------------------------------------------------------------------------------
    def append_batch(self, samples: Any) -> None:
        """Append the samples that an algorithm stores, by `append_samples`.

        If a class of another package overrides `append_samples`, that method gets only the fields [T',B,...]. The other fields are kept
        here until `append_samples` of this class needs them.
        """
        if self._own_append:
            self.append_samples(samples)
            return
        stored = field_of(samples, "samples", samples)
        self._beside = {name: field_of(stored, name) for name in BESIDE_STEPS}
        self._n_beside = len(stored.reward)
        try:
            self.append_samples(without(samples, unknown_fields(self)))
        finally:
            self._beside = {}

    def append_samples(self, samples: Any) -> tuple[int, slice | np.ndarray]:
        """Write samples [T',B,...] at the cursor, compute the returns that they complete, and advance.

        Returns:
            T', and the index of the rows written: a slice, or an array [T'] if they wrap around.

        Raises:
            ValueError: there are more rows than in the buffer; a field is missing, or has another shape or kind of dtype than in the
                example; or a final observation is missing. Nothing is written then.
        """
        samples = numpify_buffer(with_priorities(samples))
        n = len(samples.reward)
        if n > self.T:
            raise ValueError(f"{n} time steps were appended to a replay buffer of {self.T}: raise its size or lower batch_T.")
        for part in (*self._row_parts, self.draws):
            part.check(samples, n)
        ended = self._truncated(samples)
        after = self._beside_steps(samples, "observation_after")
        rows = self.ring.rows(0, n)
        with self.lock:
            self.draws.claim(n)
            self.ring.claim(n)
        self._write(samples, n)
        if self.ends is not None:
            self.ends.write(n, *ended)
        self.compute_returns(n)
        with self.lock:
            self._publish(n, samples)
        if self.ends is not None:
            self.ends.write_after(None if after is None else after[-1])
        return n, rows

    def _write(self, samples: Any, n: int) -> None:
        for part in self._row_parts:
            part.write(samples, n)

    def compute_returns(self, T: int) -> None:
        """Compute the n-step returns that the `T` rows just written complete. Called before the cursor advances."""
        self.returns.complete(T)

    def _publish(self, n: int, samples: Any) -> None:
        """Make the `n` rows just written valid."""
        self.draws.publish(n, samples)
        self.ring.advance(n)

    def _repair(self) -> None:
        """Repair the unfinished changes of a process that was killed while it held `lock`."""
        self.draws.repair()

    def _truncated(self, samples: Any) -> tuple:
        """Return arguments of `EpisodeEnds.write`: a mask of the truncated steps, and their final observations.

        Raises:
            ValueError: final observations are missing.
        """
        if self.ends is None or not samples.timeout.any():
            return ()
        final_observation = self._beside_steps(samples, "final_observation")
        if final_observation is not None:
            return self.ends.of_steps(samples.timeout, final_observation)
        if self.requires_final_observations:
            raise ValueError(
                "Samples have steps with timeout=True, but no final_observation [K,B,...] with the observations "
                "that ended those episodes, from which targets bootstrap. If samples_to_buffer is your own, also return "
                "final_observation=samples.final_observation, or treat time limits as terminations (timeout all False)."
            )
        return ()

    def _beside_steps(self, samples: Any, name: str) -> Any:
        """Return a field of `BESIDE_STEPS`, in the form of stored observations; None if the field is missing."""
        observation = field_of(samples, name)
        if observation is None and self._beside.get(name) is not None:
            if len(samples.reward) == self._n_beside:
                observation = numpify_buffer(self._beside[name])
            elif name == "final_observation":
                raise ValueError(
                    f"append_samples of {type(self).__name__} passed on {len(samples.reward)} of {self._n_beside} time steps of a batch, "
                    "and the buffer cannot tell which final observations belong to them: pass on the whole batch at once, or define "
                    "append_batch(samples)."
                )
        return None if observation is None else self.storage.stored_observation(observation)

    def end_episodes(self, B_idxs: Any = None) -> None:
        """Mark the newest step of environments `B_idxs` (None: all) as truncated, because the next step will not follow it.

        Called when a run is resumed without its environments.
        """
        if self.written == 0:
            return
        newest = self.ring.row(-1)
        b = np.arange(self.B) if B_idxs is None else np.asarray(B_idxs, np.int64)
        b = b[~self.samples.done[newest, b].astype(bool)]
        self.samples.done[newest, b] = True
        self.returns.end_episodes(b)
        if not len(self.storage.timeout) or not len(b):
            return
        knows_after = self.ends is not None and self.ends.knows_after
        if self.ends is not None and knows_after:
            self.ends.end_episodes(b)
        needed = self.ends is not None and self.requires_final_observations
        self.samples.timeout[newest, b] = knows_after or not needed  # If False, the end counts as a termination.

    # -----------------------------------------------------------------------------------------------------------------
    # Reading
    # -----------------------------------------------------------------------------------------------------------------
    def reuse_batches(self, n_slots: int = 2, pin: bool = False) -> None:
        """From now on reuse the memory of earlier batches, which saves the time to allocate it.

        A batch then lasts only until `n_slots` more batches of the same size have been sampled.

        Args:
            n_slots: number of batches that last at the same time.
            pin: use page-locked memory, from which an accelerator copies each batch in one piece.
        """
        self._batches.reuse(n_slots, pin)

    def sample_batch(self, batch_B: int) -> Any:  # type: ignore[override]
        """Return a batch of `batch_B` random samples; see `extract_batch`."""
        return self.draw_and_gather(batch_B)[0]

    def sample_idxs(self, batch_B: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (T_idxs [batch_B], B_idxs [batch_B]) of random steps that are valid now.

        Raises:
            ValueError: no step is valid yet.
        """
        return self.draws.select(batch_B)

    def draw_and_gather(self, *size: int | None) -> tuple[Any, Draw]:
        """Return a random batch, no part of which was overwritten while being read, and its draw. Arguments are those of `draw_batch`.

        Raises:
            ValueError: no sample is valid yet.
        """
        for _ in range(_N_TRIES):
            try:
                draw = self.draw_batch(*size)
            except ValueError:
                if not self.async_ or not self.written:
                    raise
                break  # A writer may have claimed the memory of all steps that were valid. Below, it has written others.
            batch = self.gather_batch(draw)
            if self.draw_is_intact(draw):
                return batch, draw
            self.discard_batch()
        with self.writer_lock:
            draw = self.draw_batch(*size)
            return self.gather_batch(draw), draw

    def draw_batch(self, *size: int | None) -> Draw:
        """Draw the samples of a batch.

        Args:
            *size: batch_B, the number of samples; and batch_T, the length of sequences, unless the buffer has a fixed length.
        """
        with self.lock:
            draw = self._draw(*size)
            return draw._replace(oldest=int(self.ring.numbers(draw.where[0]).min())) if self.async_ else draw

    def _draw(self, *size: Any) -> Draw:
        return Draw(tuple(self.sample_idxs(*size)))

    def extract_batch(self, *where: Any, **kwargs: Any) -> Any:
        """Return the batch stored at these places."""
        raise NotImplementedError

    def gather_batch(self, draw: Draw) -> Any:
        """Return the drawn batch, read from the current memory. The buffer is not changed."""
        batch = self.extract_batch(*draw.where)
        if draw.ids is None or draw.is_weights is None:
            return batch
        return weighted(batch.__class__)._make((*batch, self._batches.beside(draw.is_weights), torch.from_numpy(draw.ids)))

    def discard_batch(self) -> None:
        """Reuse the memory of the latest batch for the next one. Earlier batches may still be on their way to a device."""
        self._batches.repeat()

    def draw_is_intact(self, draw: Draw) -> bool:
        """Return whether all drawn rows are still in memory, and no other process has begun to overwrite them."""
        if not self.async_:
            return True
        with self.lock:
            return draw.oldest >= self.ring.window(0, self.off_forward)[0]

    def _checked_idxs(self, T_idxs: Any, B_idxs: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds-checked int64 indexes [n], because the kernels check no bounds."""
        T_idxs, B_idxs = _as_indexes(T_idxs), _as_indexes(B_idxs)
        if not kernels.all_within(T_idxs, B_idxs, self.T, self.B):
            raise IndexError(
                f"T_idxs and B_idxs must have the same length, from 0 to {self.T - 1} and from 0 to {self.B - 1}: got {len(T_idxs)} "
                f"from {T_idxs.min(initial=0)} to {T_idxs.max(initial=0)} and {len(B_idxs)} from {B_idxs.min(initial=0)} to "
                f"{B_idxs.max(initial=0)}."
            )
        return T_idxs, B_idxs

    # -----------------------------------------------------------------------------------------------------------------
    # Checkpoints
    # -----------------------------------------------------------------------------------------------------------------
    def state_dict(self, since: int = 0) -> dict[str, Any]:
        """Return the contents: plain numbers, text, lists and torch tensors.

        The tensors of stored steps are views of the buffer's memory: save them before the next append.

        Args:
            since: an earlier value of `written`: leave out the rows written before, because a state saved then contains them. Loading that
                state and then this one restores everything.
        """
        written, claimed = self.written, self.ring.claimed
        oldest = max(claimed - self.T, 0)
        first = min(max(oldest, since - 1), written)  # `end_episodes` may have marked the newest row of the state before.
        chunks = []
        for number, rows in self.ring.pieces(first, written):
            n = rows.stop - rows.start
            chunks.append({name: tensor for part in self._saved_parts for name, tensor in part.chunk(number, n).items()})
        counts = {"first": first, "written": written, "claimed": claimed, "complete": first == oldest}
        after = None if self.ends is None else self.ends.after_state()
        with self.lock:
            return {**self._state_settings(), **counts, "chunks": chunks, "after": after, **self.draws.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: the state does not fit this buffer, or leaves out rows that this buffer lacks.
        """
        s = state_dict
        self._check_state(s)
        if s["complete"] and self.ends is not None:  # Earlier contents are dropped.
            self.ends.clear()
        self.ring.move_to(s["first"])
        for (number, rows), chunk in zip(self.ring.pieces(s["first"], s["written"]), s["chunks"], strict=True):
            n = rows.stop - rows.start
            self.ring.claim(n)
            for part in self._saved_parts:
                part.load_chunk(chunk, number, n)
            self.compute_returns(n)
            self.ring.advance(n)
        self.ring.move_to(s["written"], s["claimed"])
        if self.ends is not None:
            self.ends.load_after_state(s["after"])
        self.draws.load_state(s)

    def _check_state(self, s: dict[str, Any]) -> None:
        """Raise ValueError if a state cannot be loaded. Called before anything is changed."""
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
            for part in self._saved_parts:
                part.check_chunk(chunk, number, rows.stop - rows.start)
        if self.ends is not None:
            self.ends.check_after_state(s["after"])
        self.draws.check_state(s)

    def _state_settings(self) -> dict[str, Any]:
        """Return the settings that a saved state must have."""
        return dict(T=self.T, B=self.B, start_interval=self.start_interval, n_step_return=self.n_step_return)


# The base of mixins (classes in front of a buffer), so that type checkers know the attributes of a buffer.
if TYPE_CHECKING:
    BufferMixin = BaseNStepReturnBuffer
else:
    BufferMixin = object


def _as_indexes(idxs: Any) -> np.ndarray:
    if type(idxs) is np.ndarray and idxs.dtype == np.int64 and idxs.flags.c_contiguous:
        return idxs
    return np.ascontiguousarray(numpify_buffer(idxs), np.int64)
