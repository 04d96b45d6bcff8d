"""Policy gradient agents for actions of any kind: discrete, continuous, or composed of such parts."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.base import AlternatingRecurrentAgentMixin, RecurrentAgentMixin, uses_prev_action
from rlpyt.agents.pg.base import PgAgent, RecurrentPgAgent
from rlpyt.agents.pg.categorical import CategoricalMixin
from rlpyt.agents.pg.gaussian import GaussianMixin
from rlpyt.agents.spaces import ANY_PARTS, check_action_space, composite_of
from rlpyt.distributions.base import Distribution
from rlpyt.distributions.composite import Composite, encode
from rlpyt.models.pg.mlp_composite_model import MlpCompositeFfModel, MlpCompositeLstmModel
from rlpyt.models.utils import unwrap_ddp


class CompositeMixin(CategoricalMixin, GaussianMixin):
    """The distribution over actions that fits their space: Categorical, Gaussian, or the product of such for a composite one.

    The model is made for the distribution. It returns the fields of its dist_info and value [*lead], and receives the previous
    action as a vector, one-hot where it is discrete. Environments get the continuous parts clipped to their bounds, unless clip_actions is
    False (see `GaussianMixin`).
    """

    @property
    def DistInfoCls(self) -> type:
        """Namedarraytuple type of what the model returns about the distribution."""
        if isinstance(self.distribution, Composite):
            return self.distribution.DistInfoCls
        return (CategoricalMixin if hasattr(self.env_spaces.action, "n") else GaussianMixin).DistInfoCls

    def make_distribution(self, action_space) -> Distribution:
        """ValueError for an action space of which a part is neither discrete from 0 nor a vector with bounds -a and a."""
        space = composite_of(action_space)
        if space is not None:
            return Composite([self.make_distribution(part) for part in space.spaces], type(space.null_value()))
        check_action_space(self, action_space, ANY_PARTS)
        Mixin = CategoricalMixin if hasattr(action_space, "n") else GaussianMixin
        return Mixin.make_distribution(self, action_space)

    def make_env_to_model_kwargs(self, env_spaces) -> dict[str, Any]:
        """observation_shape and distribution."""
        return dict(observation_shape=env_spaces.observation.shape, distribution=self.make_distribution(env_spaces.action))

    def _model_inputs(self, observation, prev_action, prev_reward) -> tuple:
        if uses_prev_action(type(unwrap_ddp(self.model))):
            prev_action = encode(self.distribution, prev_action)
        return self._to_device((observation, prev_action, prev_reward))


class CompositePgAgent(CompositeMixin, PgAgent):
    """Agent for policy gradients with the distribution that fits the action space."""


class RecurrentCompositePgAgentBase(CompositeMixin, RecurrentPgAgent):
    """The same with a recurrent model; a mixin in front of it keeps the state."""


class MlpCompositeFfAgent(CompositePgAgent):
    """Feedforward agent for vector observations."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MlpCompositeFfModel, **kwargs) -> None:
        super().__init__(ModelCls=ModelCls, **kwargs)


class MlpCompositeLstmAgent(RecurrentAgentMixin, RecurrentCompositePgAgentBase):
    """Recurrent agent for vector observations."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MlpCompositeLstmModel, **kwargs) -> None:
        super().__init__(ModelCls=ModelCls, **kwargs)


class AlternatingMlpCompositeLstmAgent(AlternatingRecurrentAgentMixin, RecurrentCompositePgAgentBase):
    """MlpCompositeLstmAgent for alternating samplers."""

    def __init__(self, ModelCls: type[torch.nn.Module] = MlpCompositeLstmModel, **kwargs) -> None:
        super().__init__(ModelCls=ModelCls, **kwargs)
