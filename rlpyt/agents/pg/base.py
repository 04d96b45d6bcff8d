"""What policy gradient agents share: from the model's outputs to actions, and what they record at every step."""

from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.agents.base import AgentStep, BaseAgent
from rlpyt.agents.recurrent import recorded_rnn_state
from rlpyt.models.utils import unwrap_ddp
from rlpyt.utils.collections import namedarraytuple

AgentInfo = namedarraytuple("AgentInfo", ["dist_info", "value"])

#   prev_rnn_state  [B,N,H], the state before the step
AgentInfoRnn = namedarraytuple("AgentInfoRnn", ["dist_info", "value", "prev_rnn_state"])


class PgAgent(BaseAgent):
    """Agent for policy gradients, with any distribution over actions.

    Its model returns the parameters of the distribution, as many as `DistInfoCls` has fields, and value [*lead].
    Subclasses name the distribution.
    """

    DistInfoCls: type

    def make_distribution(self, action_space) -> Any:
        """The distribution over actions; ValueError if there is none for this action space."""
        raise NotImplementedError(f"{type(self).__name__} defines no distribution over actions.")

    def initialize(self, env_spaces, share_memory: bool = False, global_B: int = 1, env_ranks: Sequence[int] | None = None) -> None:
        """Extends the base method by the distribution. ValueError for an action space it is not made for."""
        distribution = self.make_distribution(env_spaces.action)
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.distribution = distribution

    def __call__(self, observation, prev_action, prev_reward) -> tuple[Any, torch.Tensor]:
        """Training data [T,B,...] or [B,...] -> (dist_info, value), with gradient, on the training device."""
        *dist_info, value = self.model(*self._model_inputs(observation, prev_action, prev_reward))
        return self.DistInfoCls(*dist_info), value

    @torch.no_grad()
    def step(self, observation, prev_action, prev_reward) -> AgentStep:
        """Sample actions: AgentStep(action [*lead,...], AgentInfo(dist_info, value)) on the CPU, without gradient."""
        *dist_info, value = self._act(observation, prev_action, prev_reward)
        dist_info = self.DistInfoCls(*dist_info)
        return AgentStep(self.distribution.sample(dist_info), AgentInfo(dist_info, value))

    @torch.no_grad()
    def value(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """Value [*lead] of the state, e.g. to bootstrap from; on the CPU, without gradient."""
        *_, value = self._act(observation, prev_action, prev_reward)
        return value

    def _act(self, *agent_inputs) -> tuple[torch.Tensor, ...]:
        return self._to_cpu(unwrap_ddp(self.model)(*self._model_inputs(*agent_inputs)))


class RecurrentPgAgent(PgAgent):
    """The same for a recurrent model, which also takes the state before, and returns the next one, last. To go behind a mixin.

    States are structures of tensors [N,B,H]: layers, environments (1 where inputs have no leading dims), width.
    """

    def __call__(self, observation, prev_action, prev_reward, init_rnn_state) -> tuple[Any, torch.Tensor, Any]:
        """Training data [T,B,...] or [B,...] -> (dist_info, value, next_rnn_state), with gradient, on the training device.

        init_rnn_state: before the first step, [N,B,H]; None for zeros.
        """
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        *dist_info, value, next_rnn_state = self.model(*inputs, self._to_device(init_rnn_state))
        return self.DistInfoCls(*dist_info), value, next_rnn_state

    @torch.no_grad()
    def step(self, observation, prev_action, prev_reward) -> AgentStep:
        """Sample actions, and advance the recurrent state; on the CPU, without gradient.

        Inputs have leading dims [B] or []. Returns AgentStep(action [*lead,...], AgentInfoRnn(dist_info, value,
        prev_rnn_state [B,N,H])).
        """
        prev_rnn_state = self.prev_rnn_state
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        *outputs, next_rnn_state = unwrap_ddp(self.model)(*inputs, prev_rnn_state)
        outputs = *outputs, recorded_rnn_state(prev_rnn_state, next_rnn_state)
        *dist_info, value, prev_rnn_state = self._to_cpu(outputs)
        dist_info = self.DistInfoCls(*dist_info)
        step = AgentStep(self.distribution.sample(dist_info), AgentInfoRnn(dist_info, value, prev_rnn_state))
        self.advance_rnn_state(next_rnn_state)
        return step

    def _act(self, *agent_inputs) -> tuple[torch.Tensor, ...]:
        *outputs, _ = unwrap_ddp(self.model)(*self._model_inputs(*agent_inputs), self.prev_rnn_state)
        return self._to_cpu(tuple(outputs))
