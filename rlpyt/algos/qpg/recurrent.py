"""SAC and TD3 for agents with memory, on sequences from replay: stored recurrent states and burn-in after R2D2 (Kapturowski et al. 2019,
https://openreview.net/forum?id=r1lyTjAqYX), separate memories of the policy and of the Q-functions after Ni et al. 2022
(https://arxiv.org/abs/2110.05038).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from rlpyt.agents.base import AgentInputsRnn
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.algos.sequences import Sequences, agent_inputs, as_model_state
from rlpyt.returns import valid_from_done
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.collections import field_of

# The steps of sequences to train on, in the form in which losses take transitions.
#   agent_inputs   `AgentInputsRnn` [T,B,...]; init_rnn_state, before the first step, is that of the agent's models
#   action         [T,B,A]
#   return_        [T,B], sum of n discounted rewards
#   done_n         [T,B], the episode was terminated within the n steps
#   target_inputs  `AgentInputsRnn` [T,B,...], n steps later; init_rnn_state is that of the models for targets
#   valid          [T,B], bool, the step is one to learn from; what is not used for any valid step is zero
Trained = namedtuple("Trained", ["agent_inputs", "action", "return_", "done_n", "target_inputs", "valid"])


class TrainedSequences(Sequences):
    """Sequences for a recurrent policy and recurrent Q-functions, which all have separate states.

    A sequence begins with the states that the networks had while sampling, if these are stored; the networks for targets begin with the
    states of the networks that they follow. Networks first update their states through the `warmup_T` steps, without gradient. The losses
    are those for transitions, for each of `batch_T` consecutive steps.

    Of each sequence, the steps of one episode count, up to its end:

    =====================================================  =====================================  ==========================
    sequence                                               first step that counts                 states before it
    =====================================================  =====================================  ==========================
    an episode ends within the `warmup_T` steps            the next episode's, after blank rows   zeros
    an episode begins with it; first half of the batch     its first one                          zeros, which are stored
    any other                                              that after the `warmup_T` steps        those after the warm-up
    =====================================================  =====================================  ==========================

    Steps whose target would bootstrap from the end of a truncated episode do not count.

    Algorithms have its arguments as settings, and:

        replay_ratio: replayed steps per sampled step; an update replays ``(batch_T + warmup_T) * batch_B`` steps. With the other defaults,
            the default is one update per sampled step.
    """

    @torch.no_grad()
    def trained(self, samples: Any, algo: Any) -> Trained:
        """Return the steps to train on, with the states before them.

        Args:
            samples: `rlpyt.replays.sequence.n_step.SamplesFromReplay`, [warmup_T + batch_T (+ n), B], on the training device.
            algo: its `n_step_return` is the number of steps from a step to that of its target; its agent has a method `remember`.
        """
        W, T, n, agent = self.warmup_T, self.batch_T, algo.n_step_return, algo.agent
        all_inputs = agent_inputs(samples)  # [W+T+n,B,...] each
        states = target_states = as_model_state(samples.init_rnn_state)
        begun, first = first_rows(samples.done, field_of(samples, "valid"), W, _are_zero(states))
        t, b = first + torch.arange(T + n, device=first.device)[:, None], torch.arange(len(first), device=first.device)
        steps = t[:T].clamp(max=W + T - 1), b
        action, return_, done, done_n, valid = _rows(
            (samples.all_action[1:], samples.return_, samples.done, samples.done_n, field_of(samples, "valid")), steps
        )
        counts = valid_from_done(done).bool() & (t[:T] < W + T)
        if valid is not None:
            counts = counts & valid
        all_needed = needed_rows(counts, done_n.bool(), n)
        inputs = _zero_unless(all_needed, _rows(all_inputs, (t.clamp(max=W + T + n - 1), b)))  # [T+n,B,...] each
        action, return_, done_n = _zero_unless(counts, (action, return_, done_n))

        if W:
            warmup = _rows(all_inputs, slice(W))
            states, target_states = agent.remember(*warmup, states), agent.remember(*warmup, target_states, target=True)
        states, target_states = _zero_where(begun | ~counts.any(dim=0), (states, target_states))
        target_states = agent.remember(*_rows(inputs, slice(n)), target_states, target=True)
        return Trained(
            agent_inputs=AgentInputsRnn(*_rows(inputs, slice(T)), states),
            action=action,
            return_=return_,
            done_n=done_n,
            target_inputs=AgentInputsRnn(*_rows(inputs, slice(n, None)), target_states),
            valid=counts,
        )


class RecurrentSAC(SAC):
    """`rlpyt.algos.qpg.sac.SAC` for agents with memory, on sequences.

    It has the settings of SAC, without `batch_size`, and those of `TrainedSequences`.
    """

    SequencesCls = TrainedSequences
    agent_example = "rlpyt.agents.qpg.sac_lstm_agent.SacLstmAgent"


class RecurrentTD3(TD3):
    """`rlpyt.algos.qpg.td3.TD3` for agents with memory, on sequences.

    It has the settings of TD3, without `batch_size`, and those of `TrainedSequences`.
    """

    SequencesCls = TrainedSequences
    agent_example = "rlpyt.agents.qpg.td3_lstm_agent.Td3LstmAgent"


def first_rows(
    done: torch.Tensor, valid: torch.Tensor | None, warmup_T: int, starts: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whether training begins with an episode [B], and its first row [B], by the table of `TrainedSequences`.

    If only blank rows follow the episode that ends within the warm-up, training begins with the episode that starts the sequence, if one
    does. In the second half of a batch, an episode that starts a sequence is not trained on from its start: otherwise its steps after the
    first batch_T might never be trained on.

    Args:
        done: [L,B].
        valid: [L,B], False for rows to skip, such as blank ones, which are `done`; None for none.
        starts: [B], an episode starts with row 0; None if that is unknown.
    """
    done, (L, B) = done.bool(), done.shape
    is_blank = torch.zeros_like(done) if valid is None else done & ~valid.bool()
    rows = torch.arange(L, device=done.device)[:, None]
    after = torch.where(done & (rows < warmup_T), rows + 1, 0).amax(dim=0)  # [B], 0 where no episode ends within the warm-up.
    follows = (rows >= after) & ~is_blank  # Rows of the episode after that one, and of later ones.
    begun, following = after > 0, torch.where(follows.any(dim=0), follows.int().argmax(dim=0), L)
    first = torch.where(begun, following, warmup_T)
    if starts is not None:
        in_first_half = torch.arange(B, device=done.device) < B // 2
        from_start = starts & torch.where(begun, first == L, in_first_half)
        begun, first = begun | from_start, torch.where(from_start, 0, first)
    return begun, first


def needed_rows(counts: torch.Tensor, done_n: torch.Tensor, n: int) -> torch.Tensor:
    """Return which rows [T+n,B] have a part in the losses of steps that count [T,B]: themselves, those of targets, and all before these.

    Args:
        counts: [T,B], the steps to learn from, which are the first ones of each column.
        done_n: [T,B], the target of a step is without a value of the row n steps later.
    """
    T, B = counts.shape
    used = counts.new_zeros(T + n, B)
    used[:T] |= counts
    used[n:] |= counts & ~done_n
    return used.flip(0).cumsum(dim=0).flip(0) > 0


def _rows(x: Any, where: Any) -> Any:
    """Return the same rows of all tensors of a structure."""
    return buffer_func(x, lambda leaf: leaf[where])


def _zero_unless(mask: torch.Tensor, x: Any) -> Any:
    """Return a structure of tensors [T,B,...] with zeros where `mask` [T,B] is False. What was there may be NaN."""
    return buffer_func(x, lambda leaf: torch.where(mask.view(*mask.shape, *[1] * (leaf.dim() - 2)), leaf, leaf.new_zeros(())))


def _are_zero(states: Any) -> torch.Tensor | None:
    """Return whether all states [N,B,...] are zeros, as at the first step of an episode, [B]; None for None."""
    leaves = buffer_leaves(states)
    if not leaves:
        return None
    return torch.stack([(leaf == 0).transpose(0, 1).flatten(1).all(dim=1) for leaf in leaves]).all(dim=0)


def _zero_where(mask: torch.Tensor, states: Any) -> Any:
    """Return states [N,B,...] with zeros where `mask` [B] is True."""
    return buffer_func(states, lambda x: torch.where(mask.view(1, -1, *[1] * (x.dim() - 2)), 0, x))
