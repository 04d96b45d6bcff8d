"""Recurrent state during sampling, so that samplers need not know whether an agent has any."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.utils.buffer import buffer_func, buffer_leaves, buffer_method
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.settings import checked


class RecurrentState:
    """The state of the environments which act together: a structure of tensors [N,B,H], or None for all zeros.

    What `get` has handed out is never written to afterwards.
    """

    def __init__(self) -> None:
        self.set(None)

    def get(self) -> Any:
        """The state before the next step."""
        self._is_private = False
        return self._state

    def set(self, state: Any) -> None:
        """Take over what a model returned; which may still be referred to from elsewhere."""
        self._state = state
        self._is_private = False

    def zero(self, b: int) -> None:
        """Forget the past of environment `b`."""
        if not self._is_private:  # One copy serves all environments that end with the same step.
            self._state = buffer_method(self._state, "clone")
            self._is_private = True
        for leaf in buffer_leaves(self._state):
            leaf[:, b] = 0


class RecurrentAgentMixin:
    """Keeps the recurrent state between steps: ``class MyAgent(RecurrentAgentMixin, MyAgentBase)``.

    The state [N,B,H] (layers, environments, width) is what the model returned at the step before, on the agent's device.
    `step` computes with `prev_rnn_state`, records it as agent_info.prev_rnn_state [B,N,H] (zeros where it is None), and
    ends with `advance_rnn_state`; `value` only computes with it.

    Sampling has a state of its own: it is put aside when another mode interrupts it, and is back with the next
    `sample_mode`. So evaluation may be of any number of environments, and `reset` there leaves sampling alone.
    """

    recurrent = True
    _n_groups = 1  # How many sets of environments take turns.

    @checked()
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._forget_everything()

    def initialize(self, *args, **kwargs) -> None:
        """Extends the method: another sampler may have other environments, so nothing is kept from an earlier one."""
        super().initialize(*args, **kwargs)
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._start_from_zeros()
        self._sampling = self._rnn_states, self._alt  # What sampling goes on with when it is the mode again.

    def _start_from_zeros(self) -> None:
        self._rnn_states = [RecurrentState() for _ in range(self._n_groups)]
        self._alt = 0  # Whose turn it is.

    def reset(self) -> None:
        """Forget the past of all environments: the state becomes None, which recurrent layers take for zeros."""
        self._start_from_zeros()

    def reset_one(self, idx: int) -> None:
        """Forget the past of environment `idx`: its column of the state becomes zero."""
        self._rnn_states[self._alt].zero(idx)

    def advance_rnn_state(self, new_rnn_state: Any) -> None:
        """Keep the state [N,B,H] after a step, for the next one; to be called at the end of `step`."""
        self._rnn_states[self._alt].set(new_rnn_state)
        self._alt = (self._alt + 1) % self._n_groups

    @property
    def prev_rnn_state(self) -> Any:
        """The state before the next step, a structure of tensors [N,B,H], or None."""
        return self._rnn_states[self._alt].get()

    def sampling_state(self) -> dict[str, Any]:
        """Extends the method: the recurrent states [N,B,H] of sampling."""
        states, alt = (self._rnn_states, self._alt) if self._mode == "sample" else self._sampling
        leaves = [[leaf.detach().cpu() for leaf in buffer_leaves(state.get())] for state in states]
        return dict(alt=alt, rnn_states=leaves)

    def set_sampling_state(self, state: dict[str, Any], example: Any) -> None:
        """Extends the method."""
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
    """In place of RecurrentAgentMixin where two halves of the environments take turns: in alternating samplers, and only there.

    Each half has a state. Every method means the half whose turn it is, which `advance_rnn_state` passes on to the other.
    Feedforward agents need nothing of this.
    """

    alternating = True
    _n_groups = 2

    def act_for_one_group(self) -> None:
        """Be an agent for all environments at once from now on, as outside of alternating samplers."""
        self.alternating, self._n_groups = False, 1
        self._forget_everything()

    def get_alt(self) -> int:
        """Which half acts next, 0 or 1."""
        return self._alt

    def toggle_alt(self) -> None:
        """Turn to the other half."""
        self._alt = 1 - self._alt


def recorded_rnn_state(prev_rnn_state: Any, next_rnn_state: Any) -> Any:
    """The state before a step as agent_info holds it: [B,N,H] where the model's are [N,B,H], zeros in place of None.

    next_rnn_state: the one after the step, for the zeros' shapes.
    """
    if prev_rnn_state is None:
        prev_rnn_state = buffer_func(next_rnn_state, torch.zeros_like)
    return buffer_method(prev_rnn_state, "transpose", 0, 1)
