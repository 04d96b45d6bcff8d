"""Recurrent state during sampling, so that samplers need not know whether an agent has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rlpyt.utils.buffer import buffer_func, buffer_leaves, buffer_method
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.settings import checked


class RecurrentState:
    """The state of environments that act together: a structure of tensors [N,B,H], or None for all zeros.

    Structures returned by `get` are never written to.
    """

    def __init__(self) -> None:
        self.set(None)

    def get(self) -> Any:
        """Return the state before the next step."""
        self._is_private = False
        return self._state

    def set(self, state: Any) -> None:
        """Store a model's output, which others may still refer to; it is not written to."""
        self._state = state
        self._is_private = False

    def take(self, columns: torch.Tensor) -> Any:
        """Return a copy of the state of some environments, [N,n,H] for `columns` [n]."""
        return buffer_func(self._state, lambda leaf: leaf.index_select(1, columns.to(leaf.device)))

    def put(self, columns: torch.Tensor, state: Any, B: int) -> None:
        """Set the state [N,n,H] of some of `B` environments, `columns` [n]; None stands for zeros."""
        if self._state is None and state is None:
            return
        if self._state is None:
            self.set(buffer_func(state, lambda leaf: leaf.new_zeros(len(leaf), B, leaf.shape[-1])))
        elif not self._is_private:
            self._state = buffer_method(self._state, "clone")
        self._is_private = True
        if state is None:
            state = self.take(columns)
            buffer_method(state, "zero_")
        for leaf, part in zip(buffer_leaves(self._state), buffer_leaves(state)):
            leaf[:, columns.to(leaf.device)] = part

    def zero(self, b: int) -> None:
        """Set the state of environment `b` to zero."""
        if not self._is_private:  # One copy is enough for all episodes that end with the same step.
            self._state = buffer_method(self._state, "clone")
            self._is_private = True
        for leaf in buffer_leaves(self._state):
            leaf[:, b] = 0


class RecurrentAgentMixin:
    """Keeps the recurrent state between steps: ``class MyAgent(RecurrentAgentMixin, MyAgentBase)``.

    The state [N,B,H] (layers, environments, width) is what the model returned at the previous step, on the agent's device.
    `step` computes with `prev_rnn_state`, records it as agent_info.prev_rnn_state [B,N,H] (zeros where it is None), and
    ends with `advance_rnn_state`; `value` only computes with it.

    The state of sampling is saved when another mode interrupts it, and restored by the next `sample_mode`. So evaluation may have any
    number of environments, and its `reset` does not affect sampling.
    """

    recurrent = True
    _n_groups = 1  # How many sets of environments take turns.

    @checked()
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._forget_everything()

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Extend the method: reset all states, because another sampler may have other environments."""
        super().initialize(*args, **kwargs)
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._start_from_zeros()
        self._sampling = self._rnn_states, self._alt  # The state of sampling, which the next `sample_mode` restores.

    def _start_from_zeros(self) -> None:
        self._rnn_states = [RecurrentState() for _ in range(self._n_groups)]
        self._alt = 0  # Whose turn it is.

    def reset(self) -> None:
        """Reset the state of all environments: it becomes None, which stands for zeros."""
        self._start_from_zeros()

    def reset_one(self, idx: int) -> None:
        """Reset the state of environment `idx`: its column becomes zero."""
        self._rnn_states[self._alt].zero(idx)

    def advance_rnn_state(self, new_rnn_state: Any) -> None:
        """Store the state [N,B,H] after a step, for the next one. `step` calls it at its end."""
        self._rnn_states[self._alt].set(new_rnn_state)
        self._alt = (self._alt + 1) % self._n_groups

    @contextmanager
    def acting_for(self, columns: torch.Tensor, B: int) -> Iterator[None]:
        """Extend the method: the recurrent state is that of these environments."""
        of_all, self._rnn_states = self._rnn_states, [RecurrentState() for _ in self._rnn_states]
        everyone, mine = of_all[self._alt], self._rnn_states[self._alt]
        before = everyone.take(columns)
        mine.set(before)
        try:
            with super().acting_for(columns, B):
                yield
            if (after := mine.get()) is not before:
                everyone.put(columns, after, B)
        finally:
            self._rnn_states = of_all

    @property
    def prev_rnn_state(self) -> Any:
        """The state before the next step, a structure of tensors [N,B,H], or None."""
        return self._rnn_states[self._alt].get()

    def sampling_state(self) -> dict[str, Any]:
        """Return the recurrent states [N,B,H] of sampling."""
        states, alt = (self._rnn_states, self._alt) if self._mode == "sample" else self._sampling
        leaves = [[leaf.detach().cpu() for leaf in buffer_leaves(state.get())] for state in states]
        return dict(alt=alt, rnn_states=leaves)

    def set_sampling_state(self, state: dict[str, Any], example: Any) -> None:
        """Continue sampling from a `sampling_state`."""
        check_form(state, dict(alt=NATURAL, rnn_states=[[torch.Tensor]]), "The state of the agent")
        n_leaves = len(buffer_leaves(example.prev_rnn_state))
        groups = state["rnn_states"]
        if len(groups) != self._n_groups or any(len(saved) not in (0, n_leaves) for saved in groups) or state["alt"] >= self._n_groups:
            raise ValueError(f"The recurrent states are not of {self._n_groups} groups, or have not {n_leaves} tensors each.")
        rnn_states = [RecurrentState() for _ in range(self._n_groups)]
        for rnn_state, saved in zip(rnn_states, groups):
            if saved:
                leaves = iter(saved)
                rnn_state.set(buffer_func(example.prev_rnn_state, lambda _, leaves=leaves: next(leaves).to(self.device)))
        if self._mode == "sample":
            self._rnn_states, self._alt = rnn_states, state["alt"]
        else:
            self._sampling = rnn_states, state["alt"]

    def _set_mode(self, mode: str, training: bool) -> None:
        if self._mode == "sample" and mode != "sample":
            self._sampling = self._rnn_states, self._alt
            self._start_from_zeros()
        elif self._mode != "sample" and mode == "sample":
            self._rnn_states, self._alt = self._sampling
        super()._set_mode(mode, training)


class AlternatingRecurrentAgentMixin(RecurrentAgentMixin):
    """Replaces RecurrentAgentMixin in alternating samplers, where two halves of the environments take turns, and only there.

    Each half has a state. Every method concerns the half whose turn it is; `advance_rnn_state` gives the other half the turn.
    Feedforward agents do not need it.
    """

    alternating = True
    _n_groups = 2

    def act_for_one_group(self) -> None:
        """From now on serve all environments at once, as outside of alternating samplers."""
        self.alternating, self._n_groups = False, 1
        self._forget_everything()

    def get_alt(self) -> int:
        """Return which half acts next, 0 or 1."""
        return self._alt

    def toggle_alt(self) -> None:
        """Switch to the other half."""
        self._alt = 1 - self._alt


def recorded_rnn_state(prev_rnn_state: Any, next_rnn_state: Any) -> Any:
    """Return the state before a step as agent_info holds it: [B,N,H] (the model's is [N,B,H]), with zeros in place of None.

    Args:
        next_rnn_state: the state after the step, for the shapes of the zeros.
    """
    if prev_rnn_state is None:
        prev_rnn_state = buffer_func(next_rnn_state, torch.zeros_like)
    return buffer_method(prev_rnn_state, "transpose", 0, 1)
