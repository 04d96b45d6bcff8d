"""Policy gradient agents for actions of any kind: discrete, continuous, or composed of such parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlpyt.agents.base import AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.pg.gaussian import GaussianPgAgent, gaussian_over
from rlpyt.agents.spaces import ANY_PARTS, check_action_space
from rlpyt.distributions.base import Distribution
from rlpyt.distributions.categorical import Categorical
from rlpyt.distributions.composite import Composite
from rlpyt.distributions.multi_categorical import MultiCategorical
from rlpyt.models.pg.mlp_composite_model import MlpCompositeFfModel, MlpCompositeLstmModel
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.parts import composite_of, integers_of
from rlpyt.utils.buffer import torchify_buffer


class CompositePgAgent(GaussianPgAgent):
    """Agent for policy gradients with the distribution that fits the action space.

    That is Categorical for one integer (Discrete), MultiCategorical for several (MultiDiscrete, MultiBinary, a Box of integers), Gaussian
    for real numbers (Box), and for a structure (Dict, Tuple, Composite) the product of the distributions of its parts.

    The model is made for the distribution. It returns the fields of its dist_info and value [*lead], and receives the previous
    action as a vector, one-hot where it is discrete. Environments get real numbers rescaled and clipped as by `GaussianPgAgent`.
    """

    model_arguments: Sequence[str] = ("observation_shape", "distribution", "n_observations")

    distribution: Any

    @property
    def DistInfoCls(self) -> type:  # type: ignore[override]
        """Namedarraytuple type of what the model returns about the distribution."""
        return self.distribution.DistInfoCls

    def make_distribution(self, action_space: Any) -> Distribution:
        """Return the distribution; ValueError if the space, or a part of it, has none."""
        space = composite_of(action_space)
        if space is not None:
            return Composite([self.make_distribution(part) for part in space.spaces], type(space.null_value()))
        check_action_space(self, action_space, ANY_PARTS)
        integers = integers_of(action_space)
        if integers is None:
            return gaussian_over(action_space)
        n, _ = integers
        if CompletedSpace(action_space).n is not None and n.shape == ():
            return Categorical(dim=int(n))
        return MultiCategorical(n, dtype=torchify_buffer(np.empty(0, action_space.dtype)).dtype)


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
