"""Ring memory of samples with n-step returns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlpyt.algos.utils import discount_return_n_step
from rlpyt.replays.base import BaseReplayBuffer
from rlpyt.replays.final_observations import FinalObservations
from rlpyt.replays.ring import Ring
from rlpyt.utils.buffer import buffer_from_example, buffer_leaves, check_memory, numpify_buffer


class BaseNStepReturnBuffer(BaseReplayBuffer):
    """Stores the latest samples in arrays [T,B,...] and computes their n-step returns.

    All samples are taken to be valid: they come from a sampler that resets environments inside batches. The
    latest `n_step_return` rows up to the cursor cannot be replayed yet, because rewards and next observations
    are missing (`off_backward`), and the row at the cursor cannot any more, because the action and reward
    before it have been overwritten (`off_forward`). Subclasses define what is drawn and what is read out.

    Where the example has a field `timeout`, samples bring a field `final_observation` [K,B,...] as well,
    whose slot [k,b] is the observation that ended the k-th truncated episode of environment b in them (None
    if nothing was truncated). These are kept as long as the step is.

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

    Raises:
        ValueError: the size is too small to replay anything.
        MemoryError: the memory for it is not available.
    """

    off_forward = 1

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
        self.T = math.ceil(size / B)
        self.size = self.T * B
        self.off_backward = n_step_return
        if n_step_return < 1 or self.T <= self.off_backward + self.off_forward:
            raise ValueError(
                f"A replay buffer of size={size} for B={B} environments holds {self.T} time steps, and n_step_return="
                f"{n_step_return} (at least 1) needs more than {self.off_backward + self.off_forward}: raise the size."
            )
        self.ring = Ring(self.T)

        example = numpify_buffer(_without_final_observation(example))
        has_timeout = getattr(example, "timeout", None) is not None
        step_bytes = sum(np.asarray(leaf).nbytes for leaf in buffer_leaves(example)) + 8 * has_timeout
        step_bytes += (n_step_return > 1) * 5
        check_memory(self.size * step_bytes, f"A replay buffer of {self.size} steps of {step_bytes} bytes")
        allocate = {"leading_dims": (self.T, B), "share_memory": self.async_}
        self.samples = buffer_from_example(example, **allocate)
        if n_step_return > 1:
            self.samples_return_ = buffer_from_example(example.reward, **allocate)
            self.samples_done_n = buffer_from_example(example.done, **allocate)
        else:
            self.samples_return_ = self.samples.reward
            self.samples_done_n = self.samples.done
        self._final_observations = FinalObservations(example.observation) if has_timeout else None
        if has_timeout:  # Where in that store to find the one of a truncated step.
            self._final_number = buffer_from_example(np.int64(0), **allocate)

    @property
    def t(self) -> int:
        """The row to be written next."""
        return self.ring.t

    @property
    def _buffer_full(self) -> bool:
        return self.ring.full

    def append_samples(self, samples: Any) -> None:
        """Write samples [T',B,...] at the cursor, complete the returns of the rows they belong to, and advance.

        Raises:
            ValueError: there are more rows than in the buffer, or an observation that ended an episode is
                missing.
        """
        samples = numpify_buffer(samples)
        n = len(samples.reward)
        if n > self.T:
            raise ValueError(
                f"{n} time steps were appended to a replay buffer of {self.T}: raise its size or lower batch_T."
            )
        rows = self.ring.rows(0, n)
        if self._final_observations is not None:
            self._keep_final_observations(samples, rows)
        self.samples[rows] = _without_final_observation(samples)
        self.compute_returns(n)
        self.ring.advance(n)

    def compute_returns(self, T: int) -> None:
        """Compute the n-step returns that the `T` rows just written at the cursor complete, before it advances."""
        if self.n_step_return == 1:
            return
        known = self.ring.rows(1 - self.n_step_return, T + self.n_step_return - 1)
        completed = self.ring.rows(1 - self.n_step_return, T)
        self.samples_return_[completed], self.samples_done_n[completed] = discount_return_n_step(
            self.samples.reward[known], self.samples.done[known], self.n_step_return, self.discount
        )

    def _keep_final_observations(self, samples: Any, rows: slice | np.ndarray) -> None:
        """Forget those of the rows to be overwritten, and keep the new ones in the order of their steps."""
        self._final_observations.forget(np.count_nonzero(self.samples.timeout[rows]))
        timeout = samples.timeout.astype(bool)
        if not timeout.any():
            return
        if getattr(samples, "final_observation", None) is None:
            raise ValueError(
                "Samples have steps with timeout=True, but no final_observation [K,B,...] with the observations "
                "that ended those episodes; without them the value of what follows cannot be estimated."
            )
        t_idxs, b_idxs = np.nonzero(timeout)  # In the order of time, as they will be overwritten.
        slots = np.cumsum(timeout, axis=0)[t_idxs, b_idxs] - 1
        final_observation = samples.final_observation[slots, b_idxs]
        number = np.zeros(timeout.shape, np.int64)
        number[timeout] = self._final_observations.append(final_observation, len(slots))
        self._final_number[rows] = number


def _without_final_observation(samples: Any) -> Any:
    """Return `samples` without the field that has other leading dimensions than the rest."""
    return samples._replace(final_observation=None) if "final_observation" in samples._fields else samples
