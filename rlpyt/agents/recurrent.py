"""Recurrent state during sampling, so that samplers need not know whether an agent has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from rlpyt.utils.buffer import buffer_func, buffer_leaves, buffer_method
from rlpyt.utils.plain import NATURAL, check_form


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


class Memory:
    """An agent's memory of environments from step to step, which is empty here.

    Attributes:
        state: the recurrent state before the next step, None here. An agent that keeps its state by itself may assign it.
        turn: which group of environments acts next.
    """

    n_groups = 1  # How many sets of environments take turns, each with a state.
    state: Any = None
    turn = 0

    def reset(self) -> None:
        """Reset the state of all environments: it becomes None, which stands for zeros."""

    def reset_one(self, b: int) -> None:
        """Reset the state of environment `b`: its column becomes zero."""

    def advance(self, state: Any) -> None:
        """Store the state [N,B,H] after a step, for the next one."""
        raise TypeError("The agent keeps no recurrent state: put RecurrentAgentMixin in front of its bases.")

    def acting_for(self, columns: torch.Tensor, B: int) -> AbstractContextManager[None]:
        """Inside this context the state is that of some environments, `columns` [n] of `B`."""
        return nullcontext()

    def switch(self, before: str | None, mode: str) -> None:
        """Called when the agent's mode changes from `before` to `mode`."""

    def sampling_state(self, is_sampling: bool) -> Any:
        """Return what is remembered of sampling, for a checkpoint: plain data and tensors."""

    def set_sampling_state(self, state: Any, is_sampling: bool, example: Any, device: torch.device) -> None:
        """Continue sampling from a `sampling_state`, with recurrent states on `device`.

        Args:
            example: an agent_info; only its structure matters.
        """


class RecurrentMemory(Memory):
    """Remembers a recurrent state [N,B,H] (layers, environments, width), on the agent's device.

    The state of sampling is saved when another mode interrupts it, and restored afterwards. So evaluation may have any number of
    environments, and its resets do not affect sampling.
    """

    def __init__(self) -> None:
        self.reset()
        self._sampling = self._states, self.turn  # The state of sampling, which is restored.

    def reset(self) -> None:
        self._states = [RecurrentState() for _ in range(self.n_groups)]
        self.turn = 0

    def reset_one(self, b: int) -> None:
        self._states[self.turn].zero(b)

    @property
    def state(self) -> Any:
        return self._states[self.turn].get()

    @state.setter
    def state(self, state: Any) -> None:
        self._states[self.turn].set(state)

    def advance(self, state: Any) -> None:
        self.state = state
        self.turn = (self.turn + 1) % self.n_groups

    @contextmanager
    def acting_for(self, columns: torch.Tensor, B: int) -> Iterator[None]:
        of_all, self._states = self._states, [RecurrentState() for _ in self._states]
        everyone, mine = of_all[self.turn], self._states[self.turn]
        before = everyone.take(columns)
        mine.set(before)
        try:
            yield
            if (after := mine.get()) is not before:
                everyone.put(columns, after, B)
        finally:
            self._states = of_all

    def switch(self, before: str | None, mode: str) -> None:
        if before == "sample" and mode != "sample":
            self._sampling = self._states, self.turn
            self.reset()
        elif before != "sample" and mode == "sample":
            self._states, self.turn = self._sampling

    def sampling_state(self, is_sampling: bool) -> dict[str, Any]:
        states, turn = (self._states, self.turn) if is_sampling else self._sampling
        leaves = [[leaf.detach().cpu() for leaf in buffer_leaves(state.get())] for state in states]
        return dict(alt=turn, rnn_states=leaves)

    def set_sampling_state(self, state: Any, is_sampling: bool, example: Any, device: torch.device) -> None:
        check_form(state, dict(alt=NATURAL, rnn_states=[[torch.Tensor]]), "The state of the agent")
        n_leaves = len(buffer_leaves(example.prev_rnn_state))
        groups = state["rnn_states"]
        if len(groups) != self.n_groups or any(len(saved) not in (0, n_leaves) for saved in groups) or state["alt"] >= self.n_groups:
            raise ValueError(f"The recurrent states are not of {self.n_groups} groups, or have not {n_leaves} tensors each.")
        states = [RecurrentState() for _ in range(self.n_groups)]
        for rnn_state, saved in zip(states, groups):
            if saved:
                leaves = iter(saved)
                rnn_state.set(buffer_func(example.prev_rnn_state, lambda _, leaves=leaves: next(leaves).to(device)))
        if is_sampling:
            self._states, self.turn = states, state["alt"]
        else:
            self._sampling = states, state["alt"]


class AlternatingMemory(RecurrentMemory):
    """Two halves of the environments take turns, each with a state. Everything is about the half whose turn it is."""

    n_groups = 2


class RecurrentAgentMixin:
    """Keeps the recurrent state between steps: ``class MyAgent(RecurrentAgentMixin, MyAgentBase)``.

    The state [N,B,H] (layers, environments, width) is what the model returned at the previous step, on the agent's device.
    `step` computes with `prev_rnn_state`, records it as agent_info.prev_rnn_state [B,N,H] (zeros where it is None), and
    ends with `advance_rnn_state`; `value` only computes with it.
    """

    recurrent = True
    MemoryCls: type[Memory] = RecurrentMemory


class AlternatingRecurrentAgentMixin(RecurrentAgentMixin):
    """Replaces RecurrentAgentMixin in alternating samplers, where two halves of the environments take turns, and only there.

    Each half has a state. Every method concerns the half whose turn it is; `advance_rnn_state` gives the other half the turn.
    Feedforward agents do not need it.
    """

    alternating = True
    MemoryCls: type[Memory] = AlternatingMemory


def recorded_rnn_state(prev_rnn_state: Any, next_rnn_state: Any) -> Any:
    """Return the state before a step as agent_info holds it: [B,N,H] (the model's is [N,B,H]), with zeros in place of None.

    Args:
        next_rnn_state: the state after the step, for the shapes of the zeros.
    """
    if prev_rnn_state is None:
        prev_rnn_state = buffer_func(next_rnn_state, torch.zeros_like)
    return buffer_method(prev_rnn_state, "transpose", 0, 1)
