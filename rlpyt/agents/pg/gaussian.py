"""Policy gradient agents for continuous actions."""

import numpy as np

from rlpyt.agents.base import AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.pg.base import PgAgent, RecurrentPgAgent
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian


class GaussianMixin:
    """A Gaussian distribution over actions, which are neither clipped nor squashed.

    The model returns mean [*lead,A], log_std [*lead,A] and value [*lead].
    """

    DistInfoCls = DistInfoStd

    def make_distribution(self, action_space) -> Gaussian:
        """ValueError for actions that are not vectors, or whose bounds are not the same -a and a for all components."""
        self._check_action_space(action_space)
        return Gaussian(dim=action_space.shape[0])

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


class GaussianPgAgent(GaussianMixin, PgAgent):
    """Agent for policy gradients with a Gaussian distribution over actions."""


class RecurrentGaussianPgAgentBase(GaussianMixin, RecurrentPgAgent):
    """The same with a recurrent model; a mixin in front of it keeps the state."""


class RecurrentGaussianPgAgent(RecurrentAgentMixin, RecurrentGaussianPgAgentBase):
    """Recurrent agent with a Gaussian distribution over actions."""


class AlternatingRecurrentGaussianPgAgent(AlternatingRecurrentAgentMixin, RecurrentGaussianPgAgentBase):
    """The same for alternating samplers."""
