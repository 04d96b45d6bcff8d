"""What agents with a recurrent policy and recurrent Q-functions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from rlpyt.agents.qpg.base import QpgAgent
from rlpyt.agents.recurrent import recorded_rnn_state
from rlpyt.models.utils import unwrap_ddp
from rlpyt.utils.collections import namedarraytuple

# Recurrent states of the policy and of both Q-functions, each a structure of tensors [N,B,H]: layers, environments, width. The states of
# Q-functions are those before an action is chosen.
if TYPE_CHECKING:

    class RnnStates(NamedTuple):
        pi: Any
        q1: Any
        q2: Any
else:
    RnnStates = namedarraytuple("RnnStates", ["pi", "q1", "q2"])


class RecurrentModels:
    """The policy and both Q-functions of an agent, each with a recurrent state.

    All states advance with each step of the environment, so that replay can store them, and training start from them. Hence the sampler's
    processes have the parameters of Q-functions, too.

    Models also take the state before the first step, after the previous reward, and return the state after the last step, after their
    other outputs. They have a method `remember`, see `rlpyt.models.qpg.lstm.QpgLstm`, of which only the state in its result is used.

    In methods for training, inputs have leading dims [T,B], and `init_rnn_state` holds the states before the first step, `RnnStates` of
    [N,B,H], or None for zeros.

    Args:
        agent: has the models, and keeps the states while acting.
    """

    def __init__(self, agent: QpgAgent) -> None:
        self.agent = agent

    def policy(
        self, model: torch.nn.Module, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any
    ) -> list[torch.Tensor]:
        """Return the outputs [T,B,...] of a policy, but for its state."""
        *outputs, _ = model(*self.agent._model_inputs(observation, prev_action, prev_reward), self._each(init_rnn_state)[0])
        return outputs

    def q_values(
        self,
        names: Sequence[str],
        observation: Any,
        prev_action: Any,
        prev_reward: torch.Tensor,
        init_rnn_state: Any,
        action: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Return Q [T,B] of actions [T,B,A] by the first, or both, of the Q-functions or of their target networks."""
        models = [getattr(self.agent, name) for name in names]
        if self.agent._q_frozen or not torch.is_grad_enabled():
            models = [unwrap_ddp(model) for model in models]
        *inputs, action = self.agent._to_device((observation, prev_action, prev_reward, action))
        return tuple(model(*inputs, state, action)[0] for model, state in zip(models, self._each(init_rnn_state)[1:]))

    @torch.no_grad()
    def remember(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any, target: bool) -> RnnStates:
        """Return the states after the last step, without gradient.

        Args:
            target: states for targets: those of target networks, and of the model itself where it has no target network.
        """
        names = [self.agent.target_names.get(name, name) if target else name for name in self.agent.acting_names]
        inputs = self.agent._model_inputs(observation, prev_action, prev_reward)
        return RnnStates(*self._advanced(names, inputs, self._each(init_rnn_state)))

    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> tuple[tuple, RnnStates]:
        """Advance all states by a step. Return the policy's outputs [*lead,...], and the states before the step [B,N,H], on the CPU."""
        agent = self.agent
        inputs, before = agent._model_inputs(observation, prev_action, prev_reward), agent.prev_rnn_state
        pi_before, *q_before = self._each(before)
        *outputs, pi_after = unwrap_ddp(agent.model)(*inputs, pi_before)
        after = RnnStates(pi_after, *self._advanced(agent.q_names, inputs, q_before))
        agent.advance_rnn_state(after)
        return agent._to_cpu((tuple(outputs), recorded_rnn_state(before, after)))

    def _advanced(self, names: Sequence[str], inputs: tuple, states: Sequence[Any]) -> list[Any]:
        """Return the states of the models with these attributes after the steps of `inputs`."""
        models: list[Any] = [unwrap_ddp(getattr(self.agent, name)) for name in names]
        return [model.remember(*inputs, state)[1] for model, state in zip(models, states, strict=True)]

    def _each(self, states: Any) -> tuple:
        """Return the state of each model, on the training device."""
        return (None,) * len(RnnStates._fields) if states is None else tuple(self.agent._to_device(states))
