"""A policy and two Q-functions that each have a recurrent state: what agents with such networks share.

All states advance with each step of the environment, so that replay can store them, and training start from them. Hence sampling processes
have the parameters of Q-functions, too (`BaseAgent.acting_names`).

The models also take the state before the first step, after the previous reward, and return the state after the last step, after their other
outputs. They have a method `remember`, see `rlpyt.models.qpg.lstm.QpgLstm`, of which only the state in its result is used here.

Functions whose first argument is `self` are methods: the classes of agents name them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.agents.qpg.base import QpgAgent
from rlpyt.agents.recurrent import recorded_rnn_state
from rlpyt.models.utils import unwrap_ddp
from rlpyt.utils.collections import is_namedarraytuple, namedarraytuple

# Recurrent states of the policy and of both Q-functions, each a structure of tensors [N,B,H]: layers, environments, width. The states of
# Q-functions are those before an action is chosen.
RnnStates = namedarraytuple("RnnStates", ["pi", "q1", "q2"])


def check_models(agent: QpgAgent) -> None:
    """Raise TypeError if a model cannot go through steps to advance its state, which training and sampling need."""
    for name in agent.acting_names:
        model = getattr(agent, name)
        if not callable(getattr(model, "remember", None)):
            raise TypeError(
                f"{type(agent).__name__} needs models with a method `remember`, which {type(model).__name__} ({name}) lacks: derive it "
                "from rlpyt.models.qpg.lstm.QpgLstm, or define the method as there."
            )


def each_state(agent: QpgAgent, states: Any) -> tuple:
    """Return the state of each network on the training device, for `RnnStates` or None."""
    return (None,) * len(RnnStates._fields) if states is None else tuple(agent._to_device(states))


def step_networks(agent: QpgAgent, inputs: tuple) -> tuple[tuple, Any]:
    """Advance all states by a step. Return the policy's outputs [*lead,...], and the states before the step [B,N,H], on the CPU."""
    before = agent.prev_rnn_state
    pi_before, *q_before = each_state(agent, before)
    *outputs, pi_after = unwrap_ddp(agent.model)(*inputs, pi_before)
    after = RnnStates(pi_after, *_advanced(agent, agent.q_names, inputs, q_before))
    agent.advance_rnn_state(after)
    return agent._to_cpu((tuple(outputs), recorded_rnn_state(before, after)))


def recurrent_q_values(
    agent: QpgAgent,
    names: Sequence[str],
    observation: Any,
    prev_action: Any,
    prev_reward: torch.Tensor,
    init_rnn_state: Any,
    action: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return Q [T,B] of the first, or both, of the Q-functions or of their target networks; inputs as from the algorithm."""
    models: list[Any] = [getattr(agent, name) for name in names]
    if agent._q_frozen or not torch.is_grad_enabled():
        models = list(map(unwrap_ddp, models))
    *inputs, action = agent._to_device((observation, prev_action, prev_reward, action))
    return tuple(model(*inputs, state, action)[0] for model, state in zip(models, each_state(agent, init_rnn_state)[1:]))


@torch.no_grad()
def remember(
    self: QpgAgent, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any = None, target: bool = False
) -> Any:
    """Return `RnnStates` after the last step of sequences [T,B], without gradient.

    Args:
        init_rnn_state: `RnnStates` before the first step, or None for zeros.
        target: return states for targets: those of target networks, and of a network itself where it has no target network.
    """
    names = [self.target_names.get(name, name) if target else name for name in self.acting_names]
    inputs = self._model_inputs(observation, prev_action, prev_reward)
    return RnnStates(*_advanced(self, names, inputs, each_state(self, init_rnn_state)))


def q(
    self: QpgAgent, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any, action: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return both Q [T,B] of actions [T,B,A], with gradient."""
    return recurrent_q_values(self, self.q_names, observation, prev_action, prev_reward, init_rnn_state, action)


@torch.no_grad()
def target_q(
    self: QpgAgent, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any, action: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return both target networks' Q [T,B] of actions [T,B,A]."""
    names = [self.target_names[name] for name in self.q_names]
    return recurrent_q_values(self, names, observation, prev_action, prev_reward, init_rnn_state, action)


def _advanced(agent: QpgAgent, names: Sequence[str], inputs: tuple, states: Sequence[Any]) -> list[Any]:
    models: list[Any] = [unwrap_ddp(getattr(agent, name)) for name in names]
    return [_state_after(model, model.remember(*inputs, state)) for model, state in zip(models, states, strict=True)]


def _state_after(model: Any, remembered: Any) -> Any:
    """Return the state in what a model's `remember` returned."""
    if not isinstance(remembered, (tuple, list)) or is_namedarraytuple(remembered) or len(remembered) < 2:
        raise TypeError(
            f"`remember` of {type(model).__name__} must return a tuple whose second element is the state after the last step. "
            "rlpyt.models.qpg.lstm.QpgLstm shows how."
        )
    return remembered[1]
