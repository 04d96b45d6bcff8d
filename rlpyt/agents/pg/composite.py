"""Policy gradient agents for actions of any kind: discrete, continuous, or composed of such parts."""

from __future__ import annotations

from typing import Any

from rlpyt.agents.base import AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.pg.gaussian import GaussianPgAgent
from rlpyt.agents.spaces import ANY_PARTS, check_action_space, composite_of
from rlpyt.distributions.base import Distribution
from rlpyt.distributions.categorical import Categorical
from rlpyt.distributions.composite import Composite
from rlpyt.distributions.gaussian import Gaussian
from rlpyt.models.pg.mlp_composite_model import MlpCompositeFfModel, MlpCompositeLstmModel
from rlpyt.spaces.base import CompletedSpace


class CompositePgAgent(GaussianPgAgent):
    """Agent for policy gradients with the distribution that fits the action space: Categorical, Gaussian, or their product.

    The model is made for the distribution. It returns the fields of its dist_info and value [*lead], and receives the previous
    action as a vector, one-hot where it is discrete. Environments get the continuous parts clipped to their bounds, unless clip_actions is
    False (see `GaussianPgAgent`).
    """

    model_arguments = ("observation_shape", "distribution")

    distribution: Categorical | Gaussian | Composite

    @property
    def DistInfoCls(self) -> type:  # type: ignore[override]
        """Namedarraytuple type of what the model returns about the distribution."""
        return self.distribution.DistInfoCls

    def make_distribution(self, action_space: Any) -> Distribution:
        """Return the distribution; ValueError if a part of the space is neither discrete from 0 nor a vector with bounds -a and a."""
        space = composite_of(action_space)
        if space is not None:
            return Composite([self.make_distribution(part) for part in space.spaces], type(space.null_value()))
        check_action_space(self, action_space, ANY_PARTS)
        return Categorical(dim=int(action_space.n)) if CompletedSpace(action_space).n is not None else Gaussian(dim=action_space.shape[0])


class RecurrentCompositePgAgentBase(CompositePgAgent):
    """The same with a recurrent model; a mixin in front of it keeps the state."""

    recurrent = True


class MlpCompositeFfAgent(CompositePgAgent):
    """Feedforward agent for vector observations."""

    ModelCls = MlpCompositeFfModel


class MlpCompositeLstmAgent(RecurrentAgentMixin, RecurrentCompositePgAgentBase):
    """Recurrent agent for vector observations."""

    ModelCls = MlpCompositeLstmModel


class AlternatingMlpCompositeLstmAgent(AlternatingRecurrentAgentMixin, RecurrentCompositePgAgentBase):
    """MlpCompositeLstmAgent for alternating samplers."""

    ModelCls = MlpCompositeLstmModel
