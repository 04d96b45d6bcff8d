"""Policy gradient agent for discrete actions."""

from collections.abc import Sequence

import torch

from rlpyt.agents.base import AgentStep, BaseAgent, discrete_action_count
from rlpyt.agents.pg.base import AgentInfo
from rlpyt.distributions.categorical import Categorical, DistInfo
from rlpyt.models.utils import unwrap_ddp


class CategoricalPgAgent(BaseAgent):
    """Agent for policy gradients with a categorical distribution over actions.

    Its model returns (action probabilities [*lead,n], value [*lead]), and receives the previous action one-hot.
    """

    def initialize(
        self, env_spaces, share_memory: bool = False, global_B: int = 1, env_ranks: Sequence[int] | None = None
    ) -> None:
        """Extends the base method by the distribution. ValueError for an action space that is not discrete from 0."""
        n_actions = discrete_action_count(self, env_spaces.action)
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.distribution = Categorical(dim=n_actions)

    def __call__(self, observation, prev_action, prev_reward) -> tuple[DistInfo, torch.Tensor]:
        """Training data [T,B,...] or [B,...] -> (dist_info, value), with gradient, on the training device."""
        prob, value = self.model(*self._model_inputs(observation, prev_action, prev_reward))
        return DistInfo(prob), value

    @torch.no_grad()
    def step(self, observation, prev_action, prev_reward) -> AgentStep:
        """Sample actions: AgentStep(action [*lead], AgentInfo(dist_info, value)) on the CPU, without gradient."""
        prob, value = self._act(observation, prev_action, prev_reward)
        dist_info = DistInfo(prob)
        return AgentStep(self.distribution.sample(dist_info), AgentInfo(dist_info, value))

    @torch.no_grad()
    def value(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """Value [*lead] of the state, e.g. to bootstrap from; on the CPU, without gradient."""
        return self._act(observation, prev_action, prev_reward)[1]

    def _act(self, *agent_inputs) -> tuple[torch.Tensor, torch.Tensor]:
        return self._to_cpu(unwrap_ddp(self.model)(*self._model_inputs(*agent_inputs)))
