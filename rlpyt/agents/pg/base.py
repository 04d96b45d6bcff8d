"""The base of policy gradient agents: turns the model's outputs into actions, and records both at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlpyt.agents.base import AgentStep, BaseAgent, action_mask
from rlpyt.agents.recurrent import recorded_rnn_state
from rlpyt.distributions.base import Distribution
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.utils import unwrap_ddp
from rlpyt.spaces.base import Space
from rlpyt.spaces.masked import is_masked
from rlpyt.utils.collections import fields_of, namedarraytuple
from rlpyt.utils.misc import is_of_rlpyt

AgentInfo = namedarraytuple("AgentInfo", ["dist_info", "value"])

#   prev_rnn_state  [B,N,H], the state before the step
AgentInfoRnn = namedarraytuple("AgentInfoRnn", ["dist_info", "value", "prev_rnn_state"])


class PgAgent(BaseAgent):
    """Agent for policy gradients, with any distribution over actions.

    Its model returns the parameters of the distribution, one for each field of `DistInfoCls`, and value [*lead].
    Subclasses name the distribution.

    A mixin in front of a recurrent agent keeps the state. Its model also takes the state before the first step, and returns the
    state after the last step as last output. States are structures of tensors [N,B,H]: layers, environments (1 where inputs have no leading
    dims), width; None stands for zeros.
    """

    DistInfoCls: type

    def make_distribution(self, action_space: Space) -> Distribution:
        """Return the distribution over actions; ValueError if none fits this action space."""
        raise NotImplementedError(f"{type(self).__name__} defines no distribution over actions.")

    def initialize(  # type: ignore[override]
        self, env_spaces: EnvSpaces, share_memory: bool = False, global_B: int = 1, env_ranks: Sequence[int] | None = None
    ) -> None:
        """Extend the base class by the distribution. ValueError if it does not take the action space."""
        distribution = self.make_distribution(env_spaces.action)
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.distribution = distribution

    def __call__(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, init_rnn_state: Any = None) -> tuple:
        """Training data [T,B,...] or [B,...] -> (dist_info, value), with gradient, on the training device.

        A recurrent agent also takes the state before the first step [N,B,H], and returns the state after the last step as third output.
        """
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        if not self.recurrent:
            *dist_info, value = self.model(*inputs)
            return self._dist_info(dist_info, observation, value), value
        *dist_info, value, next_rnn_state = self.model(*inputs, self._to_device(init_rnn_state))
        return self._dist_info(dist_info, observation, value), value, next_rnn_state

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Sample actions: AgentStep(action [*lead,...], AgentInfo(dist_info, value)) on the CPU, without gradient.

        A recurrent agent takes inputs with leading dims [B] or [], advances its state, and returns AgentInfoRnn.
        """
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        if not self.recurrent:
            *dist_info, value = self._to_cpu(self._outputs(*inputs))
            dist_info = self._dist_info(dist_info, observation, value)
            return AgentStep(self._sample(dist_info, observation, value), AgentInfo(dist_info, value))
        prev_rnn_state = self.prev_rnn_state
        *outputs, next_rnn_state = self._outputs(*inputs, prev_rnn_state)
        outputs = *outputs, recorded_rnn_state(prev_rnn_state, next_rnn_state)
        *dist_info, value, prev_rnn_state = self._to_cpu(outputs)
        dist_info = self._dist_info(dist_info, observation, value)
        step = AgentStep(self._sample(dist_info, observation, value), AgentInfoRnn(dist_info, value, prev_rnn_state))
        self.advance_rnn_state(next_rnn_state)
        return step

    @torch.no_grad()
    def blame_model(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> None:
        """After an error of `step` with these inputs: raise ValueError if the model returns something else than a tuple of tensors.

        The model is asked once more, without a recurrent state. A user's agent may need other outputs.
        """
        if not is_of_rlpyt(type(self).step, type(self)._dist_info):
            return
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        try:
            outputs = unwrap_ddp(self.model)(*inputs, None) if self.recurrent else unwrap_ddp(self.model)(*inputs)
        except Exception:  # Its own error tells more.
            return
        needed = (*(fields_of(self.DistInfoCls) or ["dist_info"]), "value", *["next_rnn_state"] * self.recurrent)
        if isinstance(outputs, torch.Tensor):
            got = "one tensor"
        elif not isinstance(outputs, (tuple, list)):
            got = f"a {type(outputs).__name__}"
        elif len(outputs) != len(needed):
            got = f"{len(outputs)} outputs"
        else:
            arrays = [name for name, output in zip(needed, outputs) if isinstance(output, np.ndarray)]
            if not arrays:
                return
            got = f"arrays of numpy, {' and '.join(arrays)}"
        model = type(unwrap_ddp(self.model)).__name__
        raise ValueError(f"{model} returned {got}; {type(self).__name__} needs a tuple of tensors, ({', '.join(needed)}).")

    def _dist_info(self, outputs: Sequence[Any], observation: Any, value: torch.Tensor) -> Any:
        """Return the model's outputs as parameters of the distribution, masked if observations come with a mask.

        `value` tells the device.
        """
        dist_info = self.DistInfoCls(*outputs)
        mask = action_mask(observation, value.device)
        return dist_info if mask is None else self.distribution.masked(dist_info, mask)

    def _sample(self, dist_info: Any, observation: Any, value: torch.Tensor) -> Any:
        """Draw actions, certainly none that is masked."""
        action = self.distribution.sample(dist_info)
        return self.distribution.possible(action, dist_info) if is_masked(observation) and value.device.type != "cpu" else action

    @torch.no_grad()
    def value(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> torch.Tensor:
        """Return the value [*lead] of the state, e.g. to bootstrap from; on the CPU, without gradient."""
        inputs = self._model_inputs(observation, prev_action, prev_reward)
        if not self.recurrent:
            *_, value = self._outputs(*inputs)
        else:
            *_, value, _ = self._outputs(*inputs, self.prev_rnn_state)
        return self._to_cpu(value)
