"""What agents with a recurrent policy and recurrent Q-functions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.agents.qpg.base import QpgAgent
from rlpyt.agents.recurrent import recorded_rnn_state
from rlpyt.models.qpg.lstm import QofMuLstmModel
from rlpyt.models.utils import unwrap_ddp
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import checked

# Recurrent states of the policy and of both Q-functions, each a structure of tensors [N,B,H]: layers, environments, width. The states of
# Q-functions are those before an action is chosen.
RnnStates = namedarraytuple("RnnStates", ["pi", "q1", "q2"])


class RecurrentQpgAgent(QpgAgent):
    """Agent whose policy and two Q-functions each have a recurrent state; a mixin in front of it keeps the states while acting.

    All of them advance with each step of the environment, so that replay can store their states, and training start from them. Hence the
    sampler's processes have the parameters of Q-functions, too.

    The methods for training take inputs with leading dims [T,B], and `init_rnn_state`, the states before the first step, `RnnStates` of
    [N,B,H], or None for zeros.

    The models also take the state before the first step, after the previous reward, and return the state after the last step, after their
    other outputs. They have a method `remember`, see `rlpyt.models.qpg.lstm.QpgLstm`, of which only the state in its result is used.

    Its settings are those of `rlpyt.agents.qpg.base.QpgAgent`.
    """

    @checked()
    def __init__(self, *, QModelCls: type[torch.nn.Module] = QofMuLstmModel, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    @torch.no_grad()
    def remember(
        self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any = None, target: bool = False
    ) -> Any:
        """Return the states after the last step of sequences [T,B], without gradient.

        Args:
            target: states for targets: those of target networks, and of the model itself where it has no target network.
        """
        names = [self.target_names.get(name, name) if target else name for name in self.acting_names]
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        return RnnStates(*self._advanced(names, inputs, self._each(init_rnn_state)))

    def _advanced(self, names: Sequence[str], inputs: tuple, states: Sequence[Any]) -> list[Any]:
        """Return the states of the models with these attributes after the steps of `inputs`."""
        models: list[Any] = [unwrap_ddp(getattr(self, name)) for name in names]
        return [model.remember(*inputs, state)[1] for model, state in zip(models, states, strict=True)]

    def _each(self, states: Any) -> tuple:
        """Return the state of each model, on the training device."""
        return (None,) * len(RnnStates._fields) if states is None else tuple(self._to_device(states))

    def _step_policy(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> tuple[tuple, Any]:
        """Advance all states by a step. Return the policy's outputs [*lead,...], and the states before the step [B,N,H], on the CPU."""
        inputs, before = self._model_inputs(observation, prev_action, prev_reward), self.prev_rnn_state
        pi_before, *q_before = self._each(before)
        *outputs, pi_after = unwrap_ddp(self.model)(*inputs, pi_before)
        after = RnnStates(pi_after, *self._advanced(self.q_names, inputs, q_before))
        self.advance_rnn_state(after)
        return self._to_cpu((tuple(outputs), recorded_rnn_state(before, after)))

    def _q_values(  # type: ignore[override]
        self, names: Sequence[str], observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any, action: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return Q [T,B] of the first, or both, of the Q-functions or of their target networks; inputs as from the algorithm."""
        models: list[Any] = [getattr(self, name) for name in names]
        if self._q_frozen or not torch.is_grad_enabled():
            models = list(map(unwrap_ddp, models))
        *inputs, action = self._to_device((observation, prev_action, prev_reward, action))
        return tuple(model(*inputs, state, action)[0] for model, state in zip(models, self._each(init_rnn_state)[1:]))
