"""The observations that ended truncated episodes, stored beside a ring of steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.replays.final_observations import FinalObservations
from rlpyt.replays.ring import Ring
from rlpyt.replays.storage import check_saved
from rlpyt.utils.buffer import buffer_from_example, buffer_func, buffer_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.structures import named_leaves

_NO_OBSERVATION = -1


class EpisodeEnds:
    """Keeps the final observation of each truncated episode while its last step is stored, and the observation after the newest step.

    Args:
        observation: an example, in stored form.
        ring: the ring of the steps.
        B: number of environments.
        share_memory: whether processes started later see the same memory.

    Attributes:
        store: the observations.
        slots: int32 [T*B], slot in `store` of the final observation after each step, or -1.
        knows_after: whether the observation after the newest step is known.
    """

    STEP_BYTES = 4  # Bytes of `slots` per step; the store uses memory only for occupied slots.

    def __init__(self, observation: Any, ring: Ring, B: int, share_memory: bool) -> None:
        self.ring, self.T, self.B = ring, ring.T, B
        self.store = FinalObservations(observation, ring.T * B, share_memory)
        self.slots = buffer_from_example(np.int32(0), ring.T * B, share_memory)
        self.slots[:] = _NO_OBSERVATION
        self._after = buffer_from_example(observation, B, share_memory)  # [B,...]
        self._knows_after = buffer_from_example(np.bool_(False), 1, share_memory)

    @property
    def knows_after(self) -> bool:
        return bool(self._knows_after[0])

    def at(self, T_idxs: np.ndarray, B_idxs: np.ndarray) -> Any:
        """Return copies of the final observations [n,...] of the episodes truncated at ``[T_idxs, B_idxs]``."""
        return self.store[self.slots[T_idxs * self.B + B_idxs]]

    # Writing --------------------------------------------------------------------------------------------------------
    def of_steps(self, timeout: np.ndarray, final_observation: Any) -> tuple[np.ndarray, Any]:
        """Return a mask [n,B] of the truncated steps, and their final observations [m,...] in the order of `np.nonzero`.

        Args:
            timeout: [n,B].
            final_observation: [K,B,...]; entry [k,b] ended the k-th truncated episode of environment b.

        Raises:
            ValueError: final observations are missing.
        """
        timeout = timeout.astype(bool)
        t_idxs, b_idxs = np.nonzero(timeout)
        slots = np.cumsum(timeout, axis=0)[t_idxs, b_idxs] - 1
        n_slots = min(len(leaf) for leaf in buffer_leaves(final_observation))
        if n_slots <= slots.max():
            raise ValueError(
                f"Samples have {slots.max() + 1} steps with timeout=True in one environment, and {n_slots} final observations for each."
            )
        return timeout, buffer_func(final_observation, lambda leaf: leaf[slots, b_idxs])

    def write(self, n: int, ended: np.ndarray | None = None, observations: Any = None) -> None:
        """Forget the observations of the `n` rows overwritten at the cursor, and keep `observations` [m,...] of the steps `ended` [n,B]."""
        rows, slots = self.ring.rows(0, n), self.slots.reshape(self.T, self.B)
        overwritten = slots[rows]
        outdated = overwritten[overwritten != _NO_OBSERVATION]
        if len(outdated):  # A writer killed here loses memory, but no observation belongs to two steps.
            slots[rows] = _NO_OBSERVATION
            self.store.forget(outdated)
        if ended is not None:
            new = np.full((n, self.B), _NO_OBSERVATION, np.int32)
            new[ended] = self.store.append(observations, int(np.count_nonzero(ended)))
            slots[rows] = new

    def write_after(self, observation: Any) -> None:
        """Keep the observation [B,...] after the newest step; None if it is unknown."""
        self._knows_after[0] = observation is not None
        if observation is not None:
            self._after[:] = observation

    def end_episodes(self, B_idxs: np.ndarray) -> None:
        """Keep the observations after the newest step as final observations of environments `B_idxs`."""
        self.slots.reshape(self.T, self.B)[self.ring.row(-1), B_idxs] = self.store.append(self._after[B_idxs], len(B_idxs))

    def clear(self) -> None:
        """Forget all observations of steps."""
        kept = self.slots[self.slots != _NO_OBSERVATION]
        self.slots[:] = _NO_OBSERVATION
        self.store.forget(kept)

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def chunk(self, number: int, n: int) -> dict[str, Any]:
        """Return the part of the state of `n` rows from row `number` on, as tensors. The rows must not wrap around."""
        kept = self.slots.reshape(self.T, self.B)[self.ring.piece(number, n)]
        final = self.store[kept[kept != _NO_OBSERVATION]]
        chunk = {f"final_{name}": torchify_buffer(leaf) for name, leaf in named_leaves(final, "observation")}
        return {"has_final_observation": torchify_buffer(kept != _NO_OBSERVATION), **chunk}

    def check_chunk(self, chunk: dict[str, Any], number: int, n: int) -> None:
        """Raise ValueError unless `chunk` is one of such a buffer, for `n` rows from `number` on."""
        check_saved(chunk, "has_final_observation", (n, self.B), np.dtype(bool))
        n_final = int(np.count_nonzero(numpify_buffer(chunk["has_final_observation"])))
        for name, leaf in named_leaves(self.store.example, "observation"):
            check_saved(chunk, f"final_{name}", (n_final, *np.shape(leaf)), leaf.dtype)

    def load_chunk(self, chunk: dict[str, Any], number: int, n: int) -> None:
        """Restore what `chunk` returned, into the rows at the cursor."""
        ended = numpify_buffer(chunk["has_final_observation"])
        observations = buffer_from_example(self.store.example, int(np.count_nonzero(ended)))
        for name, leaf in named_leaves(observations, "observation"):
            leaf[:] = numpify_buffer(chunk[f"final_{name}"])
        self.write(n, ended, observations)

    def after_state(self) -> dict[str, Any] | None:
        """Return the observation after the newest step as tensors; None if it is unknown."""
        if not self.knows_after:
            return None
        return {name: torchify_buffer(leaf.copy()) for name, leaf in named_leaves(self._after, "observation")}

    def check_after_state(self, state: dict[str, Any] | None) -> None:
        """Raise ValueError unless `state` is an `after_state` of such a buffer."""
        if state is None:
            return
        for name, leaf in named_leaves(self._after, "observation"):
            check_saved(state, name, leaf.shape, leaf.dtype)

    def load_after_state(self, state: dict[str, Any] | None) -> None:
        """Restore what `after_state` returned."""
        self._knows_after[0] = state is not None
        if state is None:
            return
        for name, leaf in named_leaves(self._after, "observation"):
            leaf[:] = numpify_buffer(state[name])
