"""Policy gradient agent for continuous actions."""

from collections.abc import Sequence

import numpy as np
import torch

from rlpyt.agents.base import AgentStep, BaseAgent
from rlpyt.agents.pg.base import AgentInfo
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian
from rlpyt.models.utils import unwrap_ddp


class GaussianPgAgent(BaseAgent):
    """Agent for policy gradients with a Gaussian distribution over actions, which are neither clipped nor squashed.

    Its model returns (mean [*lead,A], log_std [*lead,A], value [*lead]).
    """

    def initialize(
        self, env_spaces, share_memory: bool = False, global_B: int = 1, env_ranks: Sequence[int] | None = None
    ) -> None:
        """Extends the base method by the distribution.

        ValueError for actions that are not vectors, or whose bounds are not the same -a and a for all components.
        """
        self._check_action_space(env_spaces.action)
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.distribution = Gaussian(dim=env_spaces.action.shape[0])

    def __call__(self, observation, prev_action, prev_reward) -> tuple[DistInfoStd, torch.Tensor]:
        """Training data [T,B,...] or [B,...] -> (dist_info, value), with gradient, on the training device."""
        mean, log_std, value = self.model(*self._model_inputs(observation, prev_action, prev_reward))
        return DistInfoStd(mean, log_std), value

    @torch.no_grad()
    def step(self, observation, prev_action, prev_reward) -> AgentStep:
        """Sample actions: AgentStep(action [*lead,A], AgentInfo(dist_info, value)) on the CPU, without gradient."""
        mean, log_std, value = self._act(observation, prev_action, prev_reward)
        dist_info = DistInfoStd(mean, log_std)
        return AgentStep(self.distribution.sample(dist_info), AgentInfo(dist_info, value))

    @torch.no_grad()
    def value(self, observation, prev_action, prev_reward) -> torch.Tensor:
        """Value [*lead] of the state, e.g. to bootstrap from; on the CPU, without gradient."""
        return self._act(observation, prev_action, prev_reward)[2]

    def _act(self, *agent_inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self._to_cpu(unwrap_ddp(self.model)(*self._model_inputs(*agent_inputs)))

    def _check_action_space(self, space) -> None:
        name = type(self).__name__
        if hasattr(space, "n") or not hasattr(space, "high"):
            raise ValueError(
                f"{name} needs continuous actions (FloatBox), but the environment's action space is {space!r}. For discrete "
                "actions use a categorical agent, e.g. rlpyt.agents.pg.mlp.MlpFfAgent or rlpyt.agents.pg.atari.AtariFfAgent."
            )
        if len(space.shape) != 1:
            raise ValueError(f"{name} needs actions of shape (A,), but {space!r} has shape {space.shape}: reshape them in the environment.")
        high = np.asarray(space.high)
        if not (np.all(high == high[0]) and np.all(np.asarray(space.low) == -high)):
            raise ValueError(
                f"{name} needs actions bounded by the same -a and a in every component, but {space!r} has low={space.low} and "
                f"high={space.high}: rescale them in the environment (e.g. gymnasium.wrappers.RescaleAction to [-1,1])."
            )
