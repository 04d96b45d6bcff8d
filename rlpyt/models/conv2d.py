"""Convolutional model components for images."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from rlpyt.models.mlp import MlpModel
from rlpyt.models.utils import Model, conv2d_output_shape
from rlpyt.utils.choices import chosen
from rlpyt.utils.settings import checked
from rlpyt.utils.tensor import infer_leading_dims

LAYOUTS = ("channels_last", "channels_first")  # Answers to questions ("images", B, C, H, W), see `rlpyt.utils.choices`.


class Conv2dModel(torch.nn.Module):
    """Stack of 2-D convolutions, each followed by a nonlinearity.

    Args:
        in_channels: channels of the image.
        channels, kernel_sizes, strides: one entry per layer.
        paddings: one entry per layer; default no padding.
        nonlinearity: class of the activation module.
        use_maxpool: convolve with stride 1 and max-pool by the stride instead of striding.
    """

    def __init__(
        self,
        in_channels: int,
        channels: Sequence[int],
        kernel_sizes: Sequence[int],
        strides: Sequence[int],
        paddings: Sequence[int] | None = None,
        nonlinearity: type[torch.nn.Module] = torch.nn.ReLU,
        use_maxpool: bool = False,
        head_sizes: None = None,
    ) -> None:
        super().__init__()
        if head_sizes is not None:
            raise ValueError(f"head_sizes={head_sizes}: Conv2dModel has no head, use Conv2dHeadModel(hidden_sizes=...).")
        paddings = [0] * len(channels) if paddings is None else paddings
        n_layers = {len(setting) for setting in (channels, kernel_sizes, strides, paddings)}
        if len(n_layers) > 1:
            raise ValueError(
                f"channels={channels}, kernel_sizes={kernel_sizes}, strides={strides} and paddings={paddings} "
                "need one entry per layer each."
            )
        layers = []
        for i, (out_channels, kernel_size, stride, padding) in enumerate(zip(channels, kernel_sizes, strides, paddings)):
            n_in = channels[i - 1] if i else in_channels
            layers += [
                torch.nn.Conv2d(n_in, out_channels, kernel_size, 1 if use_maxpool else stride, padding),
                nonlinearity(),
            ]
            if use_maxpool and stride != 1:
                layers.append(torch.nn.MaxPool2d(stride))
        self.conv = torch.nn.Sequential(*layers)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Image [B,C,H,W] -> features [B,C',H',W']; uint8 images in [0,255] are used as floats in [0,1]."""
        return self.conv(images_to_float(input) if input.dtype == torch.uint8 else input)

    def conv_out_size(self, h: int, w: int, c: int | None = None) -> int:
        """Return the number of features C' * H' * W' for an image [c,h,w]; `c` matters only if there are no layers.

        Raises:
            ValueError: the image is too small for the layers, or `c` is missing.
        """
        size = h, w
        for layer in self.conv:
            if isinstance(layer, torch.nn.Conv2d):
                c = layer.out_channels
            if isinstance(layer, (torch.nn.Conv2d, torch.nn.MaxPool2d)):
                padding = cast("int | tuple[int, int]", layer.padding)  # Not "same", which stands for numbers.
                h, w = conv2d_output_shape(h, w, layer.kernel_size, layer.stride, padding)
                if min(h, w) < 1:
                    raise ValueError(
                        f"Images of {size[0]} x {size[1]} pixels are too small for the convolutions: nothing is left after {layer}. Give "
                        "the model (by model_kwargs of the agent) fewer layers, smaller kernel_sizes or strides, or paddings."
                    )
        if c is None:
            raise ValueError("conv_out_size needs c, the number of channels, because there are no layers.")
        return h * w * c


def images_to_float(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 images [B,C,H,W] in [0,255] as floats in [0,1], in the memory layout that makes convolutions fast.

    On a CPU, forward and backward together are fastest with channels last, unless the other layout was chosen. Without a gradient (a
    sampler's small batches), rearranging costs more than it gains. The dtype is float32, or that of autocast.
    """
    device_type = images.device.type
    dtype = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else torch.float
    if device_type == "cpu" and torch.is_grad_enabled() and chosen(("images", *images.shape)) != "channels_first":
        # On bytes, stack is the fastest way to transpose; [B,H,W,C] in memory.
        return torch.stack(images.unbind(1), dim=-1).to(dtype).mul_(1 / 255).permute(0, 3, 1, 2)
    return images.to(dtype).mul_(1 / 255)


class ImageModel(Model):
    """Base of models that take images: uint8 in [0,255], which are used as floats in [0,1], or floats in [0,1].

    Subclasses declare:
        conv_defaults: channels, kernel_sizes, strides and paddings of each layer.

    Args:
        use_maxpool, channels, kernel_sizes, strides, paddings: of the convolutions, see `Conv2dModel`; None means `conv_defaults`. If
            some are given for fewer layers, the others take as many of the first defaults.

    Attributes:
        conv_settings: these arguments, with defaults filled in.
    """

    conv_defaults: Mapping[str, Sequence[int]] = {}
    _known_float_images: frozenset[int] = frozenset()  # Numbers of those that have been looked at.

    @checked()
    def __init__(
        self,
        use_maxpool: bool = False,
        channels: Sequence[int] | None = None,
        kernel_sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        paddings: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        given = dict(channels=channels, kernel_sizes=kernel_sizes, strides=strides, paddings=paddings)
        n_layers = min([len(setting) for setting in given.values() if setting], default=None)
        layers = {name: given[name] or default[:n_layers] for name, default in self.conv_defaults.items()}
        self.conv_settings: dict[str, Any] = dict(layers, use_maxpool=use_maxpool)

    def image_batch(self, image: torch.Tensor, number: int = 0) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Image with leading dims [T,B], [B] or [] -> [T*B,C,H,W], (lead_dim, T, B).

        ValueError for floats above 1. Only the first images that are not all 0 are tested, because each test makes the CPU wait for a GPU.

        number: of the image among those of an observation.
        """
        lead_dim, T, B, shape = infer_leading_dims(image, 3)
        if image.dtype.is_floating_point and number not in self._known_float_images and not torch.compiler.is_compiling():
            self._look_at(image, number)
        return image.reshape(T * B, *shape), (lead_dim, T, B)

    def _look_at(self, image: torch.Tensor, number: int) -> None:
        largest = float(image.max()) if image.numel() else 0.0
        if largest > 1:
            raise ValueError(
                f"{type(self).__name__} takes images as uint8 in [0,255] or as floats in [0,1], but these are floats up to {largest:g}: "
                "leave them uint8, which takes a quarter of the memory, or divide them by 255 in the environment."
            )
        if largest > 0:
            self._known_float_images |= {number}


class Conv2dHeadModel(torch.nn.Module):
    """Convolutions (`Conv2dModel`) and then, on the flattened features, a fully connected head (`MlpModel`).

    Args:
        image_shape: (C,H,W).
        hidden_sizes, output_size: of the head, as in MlpModel; if both are empty the output is the flattened features.
        channels, kernel_sizes, strides, paddings, nonlinearity, use_maxpool: as in Conv2dModel.
    """

    def __init__(
        self,
        image_shape: Sequence[int],
        channels: Sequence[int],
        kernel_sizes: Sequence[int],
        strides: Sequence[int],
        hidden_sizes: Sequence[int] | int | None,
        output_size: int | None = None,
        paddings: Sequence[int] | None = None,
        nonlinearity: type[torch.nn.Module] = torch.nn.ReLU,
        use_maxpool: bool = False,
    ) -> None:
        super().__init__()
        c, h, w = image_shape
        self.conv = Conv2dModel(c, channels, kernel_sizes, strides, paddings, nonlinearity, use_maxpool)
        self.head = MlpModel(self.conv.conv_out_size(h, w, c), hidden_sizes, output_size, nonlinearity)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Image [B,C,H,W], float or uint8 as in Conv2dModel -> [B,output_size]."""
        return self.head(self.conv(input).flatten(1))

    @property
    def output_size(self) -> int:
        """Width of the output."""
        return self.head.output_size
