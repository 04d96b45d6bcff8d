"""Features of observations that consist of any number of images, vectors and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlpyt.distributions.multi_categorical import MultiCategorical
from rlpyt.models.conv2d import Conv2dHeadModel, ImageModel
from rlpyt.models.mlp import MlpModel
from rlpyt.models.pg.atari_ff_model import SMALL_CONV
from rlpyt.models.running_mean_std import RunningMeanStdModel
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.parts import integers_of, leaf_spaces
from rlpyt.utils.logging import logger
from rlpyt.utils.settings import Number, checked
from rlpyt.utils.structures import leaves_of
from rlpyt.utils.tensor import infer_leading_dims

_SMALL_IMAGE = 36  # Height or width (pixels) below which the convolutions for video frames leave nothing.
_CONV_OF_SMALL_IMAGES = dict(channels=[16, 32], kernel_sizes=[3, 3], strides=[1, 2], paddings=[1, 1])
_MOST_CHANNELS = 4  # of an image with channels last
_MOST_VALUES = 1_000  # of integers that are encoded one-hot

IMAGE, REALS, NUMBERS = "an image", "real numbers", "integers with few values"


def kind_of_input(space: Any) -> str:
    """Return the kind of an innermost part of an observation space, as `MultiInputModel` treats it: IMAGE, REALS or NUMBERS.

    Raises:
        ValueError: an array with three dimensions has other integers than images.
    """
    shape, dtype = space.shape, np.dtype(space.dtype)
    if len(shape) == 3 and dtype.kind in "iu" and dtype != np.uint8:
        n, low = integers_of(space) or (0, np.zeros(1))
        if np.min(low) < 0 or np.max(low + n) > 2:
            raise ValueError(
                f"Observations {tuple(shape)} of {dtype} have three dimensions, like images, but are neither uint8, nor floats in [0,1], "
                "nor integers 0 and 1: convert them in the environment, or flatten them to vectors."
            )
    if len(shape) == 3 or (len(shape) == 2 and dtype == np.uint8):
        return IMAGE
    integers = integers_of(space) if CompletedSpace(space).nvec is not None or shape == () else None
    if integers is None:
        return REALS
    n, low = integers
    return NUMBERS if not low.any() and n.sum() <= _MOST_VALUES else REALS


class MultiInputModel(ImageModel):
    """Base of models for observations that are images, vectors or numbers, or structures (Dict, Tuple, Composite) of any of them.

    - Arrays with three dimensions, and uint8 arrays with two, are images, [C,H,W] or [H,W]: uint8, floats in [0,1], or integers 0 and 1.
      Each has convolutions and a fully connected layer that no other image shares. By default the convolutions are those of
      `rlpyt.models.pg.atari_ff_model.AtariFfModel`; for images below 36 pixels, 16 and then 32 channels of 3x3 with padding 1, the second
      with stride 2.
    - Single integers from 0 (Discrete, MultiDiscrete) are encoded one-hot.
    - All else is flattened. uint8 is scaled to [0,1].
    - Numbers and encodings together go through a multilayer perceptron.

    The features are the outputs of all these in a row.

    Args:
        observation_space: of the environment.
        image_sizes: width(s) of the fully connected layer(s) of each image.
        vector_sizes: hidden layer(s) of the perceptron.
        normalize_observation: subtract the running mean of inputs that are neither images nor encoded, and divide by their standard
            deviation. The statistics are of the observations given to `update_obs_rms`.
        norm_obs_clip: limit of normalized numbers.
        norm_obs_var_clip: least variance to normalize by; None for no limit, which gives NaN where observations are constant.
        settings: those of the convolutions, see `rlpyt.models.conv2d.ImageModel`; they hold for all images.

    Attributes:
        n_features: number of features.

    Raises:
        ValueError: an image seems to have its channels last.
    """

    conv_defaults = SMALL_CONV

    @checked(norm_obs_var_clip=Number(0, above=True, optional=True))
    def __init__(
        self,
        observation_space: Any,
        image_sizes: Sequence[int] | int = 256,
        vector_sizes: Sequence[int] | int = 64,
        normalize_observation: bool = False,
        norm_obs_clip: float = 10,
        norm_obs_var_clip: float = 1e-6,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.norm_obs_clip, self.norm_obs_var_clip = norm_obs_clip, norm_obs_var_clip
        spaces = leaf_spaces(observation_space)
        self._kinds = [kind_of_input(space) for space in spaces]
        self._shapes = [tuple(space.shape) for space in spaces]
        self._encodings: list[MultiCategorical] = []
        images, n_reals = [], 0
        for kind, space, shape in zip(self._kinds, spaces, self._shapes):
            if kind == IMAGE:
                images.append(self._conv(space, shape if len(shape) == 3 else (1, *shape), image_sizes, any(settings.values())))
            elif kind == NUMBERS:
                n, _ = integers_of(space) or ((), ())
                self._encodings.append(MultiCategorical(n))
            else:
                n_reals += math.prod(shape)
        if normalize_observation and not n_reals:
            logger.warn(
                f"{type(self).__name__}: normalize_observation=True has no effect, leave it out: the observations are only images, which "
                "are scaled to [0,1], and integers, which are encoded one-hot."
            )
        self.obs_rms = RunningMeanStdModel((n_reals,)) if normalize_observation and n_reals else None
        size = n_reals + sum(encoding.dim for encoding in self._encodings)
        self.images = torch.nn.ModuleList(images)
        self.vector = MlpModel(size, vector_sizes) if size else None
        self.n_features = sum(layers.output_size for layers in self.feature_layers())

    def _conv(self, space: Any, shape: Sequence[int], sizes: Sequence[int] | int, is_set: bool) -> Conv2dHeadModel:
        if shape[2] <= _MOST_CHANNELS < min(shape[:2]):
            raise ValueError(
                f"{type(self).__name__} needs images of shape (C,H,W), but {tuple(shape)} of {space!r} seems to be (H,W,C). Let the "
                "environment put channels first, as gymnasium.wrappers.TransformObservation does with lambda x: x.transpose(2, 0, 1)."
            )
        is_small = min(shape[1:]) < _SMALL_IMAGE and not is_set
        return Conv2dHeadModel(shape, hidden_sizes=sizes, **(_CONV_OF_SMALL_IMAGES if is_small else self.conv_settings))

    def feature_layers(self) -> list[Any]:
        """Return the modules that compute features: of each image, and of all that is not in images, if there is any."""
        return [*self.images, *([] if self.vector is None else [self.vector])]

    def features(self, observation: Any) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Observation with leading dims [T,B], [B] or [] -> features [T*B,n_features], (lead_dim, T, B)."""
        leaves = leaves_of(observation)
        lead_dims = infer_leading_dims(leaves[0], len(self._shapes[0]))[:3]
        features: list[torch.Tensor] = []
        for kind, shape, leaf in zip(self._kinds, self._shapes, leaves):
            if kind == IMAGE:
                leaf = leaf if leaf.dtype == torch.uint8 or leaf.is_floating_point() else leaf.float()
                number = len(features)
                image, _ = self.image_batch(leaf if len(shape) == 3 else leaf.unsqueeze(-3), number)
                features.append(self.images[number](image))
        if self.vector is not None:
            features.append(self.vector(self._numbers(leaves)))
        return features[0] if len(features) == 1 else torch.cat(features, dim=1), lead_dims

    def update_obs_rms(self, observation: Any) -> None:
        """Add observations to the running statistics, if they are used."""
        if self.obs_rms is not None:
            self.obs_rms.update(self._reals(leaves_of(observation)))

    def _numbers(self, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return all that is not in images, [T*B,size]."""
        parts = []
        if REALS in self._kinds:
            reals = self._reals(leaves)
            parts.append(reals if self.obs_rms is None else self.obs_rms.normalize(reals, self.norm_obs_clip, self.norm_obs_var_clip))
        encoded = [leaf for kind, leaf in zip(self._kinds, leaves) if kind == NUMBERS]
        parts += [encoding.to_onehot(leaf).reshape(-1, encoding.dim) for encoding, leaf in zip(self._encodings, encoded)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _reals(self, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the inputs that are neither images nor encoded, [T*B,size]."""
        parts = []
        for kind, shape, leaf in zip(self._kinds, self._shapes, leaves):
            if kind == REALS:
                flat = leaf.reshape(-1, math.prod(shape))
                parts.append(flat.float().mul_(1 / 255) if flat.dtype == torch.uint8 else flat.float())
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
