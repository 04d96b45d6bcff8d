"""Helpers for models: shapes, gradients, and copying parameters between models."""

import ctypes
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from rlpyt.utils.packing import to_cpu
from rlpyt.utils.settings import complete_signature


def conv2d_output_shape(
    h: int,
    w: int,
    kernel_size: int | Sequence[int] = 1,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
) -> tuple[int, int]:
    """Return height and width after a 2-D convolution or pooling of an input [h,w]; each setting is an int or a pair."""
    kernel, strides, paddings, dilations = map(_pair, (kernel_size, stride, padding, dilation))
    h_out, w_out = ((size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in zip((h, w), kernel, strides, paddings, dilations))
    return h_out, w_out


def _pair(x: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(x, int):
        return x, x
    first, second = x
    return first, second


def as_vectors(x: torch.Tensor, n: int) -> torch.Tensor:
    """Return vectors of `n` steps with any leading dims as [n,size]. ``reshape(n, -1)`` is ambiguous if there is no step."""
    return x.reshape(n, -1) if n else x.reshape(0, x.shape[-1])


class ScaleGrad(torch.autograd.Function):
    """Identity in the forward pass, which multiplies the gradient by `scale` in the backward pass."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad_output * ctx.scale, None


scale_grad = ScaleGrad.apply


POLICY_GAIN = 0.01  # of an orthogonal initialization


@torch.no_grad()
def orthogonal_(module: torch.nn.Module, gain: float) -> None:
    """Initialize all linear, convolutional and recurrent layers in `module` by orthogonal matrices times `gain`, and biases of 0.

    With gains of sqrt(2) where ReLU follows, 0.01 for the logits of a policy and 1 for values, policy gradients from images start faster
    (Engstrom et al. 2020, arXiv:2005.12729).
    """
    for layer in module.modules():
        if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)):
            torch.nn.init.orthogonal_(layer.weight, gain)
            if layer.bias is not None:
                layer.bias.zero_()
        elif isinstance(layer, torch.nn.RNNBase):
            for name, parameter in layer.named_parameters():
                torch.nn.init.zeros_(parameter) if "bias" in name else torch.nn.init.orthogonal_(parameter, gain)


def orthogonal_policy_(body: Sequence[torch.nn.Module], policy: torch.nn.Module, values: torch.nn.Module, recurrent: Any = None) -> None:
    """Initialize the parts of a policy gradient model by `orthogonal_`.

    Args:
        body: layers that a nonlinearity follows, with gain sqrt(2).
        policy: last layer of the policy, with gain `POLICY_GAIN`: at first all actions are about equally likely, or of about the same mean.
        values: last layer of the values, with gain 1.
        recurrent: recurrent layers, with gain 1, if any.
    """
    gains = [(module, math.sqrt(2)) for module in body] + [(policy, POLICY_GAIN), (values, 1.0)]
    for module, gain in gains if recurrent is None else [*gains, (recurrent, 1.0)]:
        orthogonal_(module, gain)


def modules_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return a model and all modules in it, shared ones repeatedly, many times faster than `Module.modules`."""
    found = [model]
    for module in found:  # The list grows meanwhile.
        found += [child for child in module._modules.values() if child is not None]
    return found


def parameters_of(model: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Return what ``model.parameters()`` does, in the same order, several times faster."""
    if type(model).parameters is not torch.nn.Module.parameters:
        return model.parameters()
    found: dict[int, torch.nn.Parameter] = {}

    def collect(module: torch.nn.Module) -> None:
        found.update((id(p), p) for p in module._parameters.values() if p is not None)
        for child in module._modules.values():
            if child is not None:
                collect(child)

    collect(model)
    return iter(found.values())


@contextmanager
def frozen(parameters: Iterable[torch.nn.Parameter]) -> Iterator[None]:
    """Within this context gradients pass through the models that have these parameters, but are not computed for the parameters."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad = False
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad = True


class Model(torch.nn.Module):
    """Base of the models that agents use.

    Inputs of `forward` have leading dims [T,B], [B] or []; outputs have the same. A recurrent model takes discrete previous actions
    one-hot. Its last input is the state before the first step, and its last output the state after the last step. States are structures
    of tensors [N,B,H]: layers, environments (1 where inputs have no leading dims), width; None stands for zeros.

    The signature of a subclass includes the settings of its bases (see `rlpyt.utils.settings.checked`). Many models have these:

    - image_shape: (C,H,W).
    - observation_shape: shape of one observation, which is flattened (see `rlpyt.models.mlp.ObservationVector`).
    - n_observations: number of values of a discrete observation, which is encoded one-hot.
    - output_size: number of actions.
    - action_size: number of action components.

    State dicts, such as those of the original rlpyt, may have other names for a model's parts.

    Subclasses declare:
        former_names: prefix of names in such a state dict -> prefix of names in this model.
    """

    former_names: Mapping[str, str] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        complete_signature(cls)

    def _load_from_state_dict(self, state_dict: dict[str, torch.Tensor], prefix: str, *args: Any) -> None:
        """Called by `load_state_dict` of the whole model, with a copy of the state dict."""
        for former, name in self.former_names.items():
            for key in [key for key in state_dict if key.startswith(prefix + former)]:
                state_dict[prefix + name + key.removeprefix(prefix + former)] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args)


def unwrap_ddp(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model without the DistributedDataParallel around it, if any."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def average_in_order_of_ranks(group: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average gradients over the processes that train together, in the same order of ranks for each of them.

    For `DistributedDataParallel.register_comm_hook`. The sums of gloo's own reduction begin with another rank at each place of a bucket.
    DistributedDataParallel fills its buckets in another order after the first backward pass. So with three or more ranks, a run that is
    resumed would begin with other roundings than the run that went on.

    Args:
        group: of the processes; None for the default one.
        bucket: gradients of this process.
    """
    n = torch.distributed.get_world_size(group)
    part = bucket.buffer().div_(n)
    parts = [torch.empty_like(part) for _ in range(n)]

    def total(_: Any) -> torch.Tensor:
        for other in parts[1:]:
            parts[0].add_(other)
        return parts[0]

    return torch.distributed.all_gather(parts, part, group=group, async_op=True).get_future().then(total)


def strip_ddp_state_dict(state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a state dict without the "module." that DistributedDataParallel puts before every name.

    If any name lacks that prefix, the state dict is returned unchanged. If a part of the model is called `module`, use
    `matching_state_dict`.
    """
    prefix = "module."
    if not all(name.startswith(prefix) for name in state_dict):
        return dict(state_dict)
    return {name[len(prefix) :]: value for name, value in state_dict.items()}


def matching_state_dict(model: torch.nn.Module, state_dict: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """Return the state dict under the names of `model`; it may have been saved from that model in DistributedDataParallel.

    The names of `model` decide, since a part of it might be called `module`.
    """
    return state_dict if state_dict.keys() == model.state_dict().keys() else strip_ddp_state_dict(state_dict)


@torch.no_grad()
def update_state_dict(model: torch.nn.Module, state_dict: Mapping[str, torch.Tensor], tau: float = 1, strip_ddp: bool = True) -> None:
    """Move the parameters and buffers of `model` towards `state_dict`, in place (so shared memory stays shared).

    Args:
        tau: 1 copies; 0 < tau < 1 gives ``tau * new + (1 - tau) * old``, except for integers (counters), which are copied.
        strip_ddp: accept the state dict of a model wrapped in DistributedDataParallel.

    Raises:
        KeyError: the names differ.
    """
    model = unwrap_ddp(model)
    new = matching_state_dict(model, state_dict) if strip_ddp else state_dict
    old = model.state_dict()
    if old.keys() != new.keys():
        raise KeyError(
            f"The state dict does not fit {type(model).__name__}: it lacks {sorted(old.keys() - new.keys())} "
            f"and has in excess {sorted(new.keys() - old.keys())}."
        )
    mixed = [name for name, value in old.items() if tau != 1 and value.is_floating_point()]
    copied = [name for name in old if name not in mixed]
    if copied:
        values = tuple(new[name] for name in copied)
        if all(old[name].device.type == "cpu" for name in copied):
            values = to_cpu(values)
        torch._foreach_copy_([old[name] for name in copied], list(values))
    if mixed:
        torch._foreach_lerp_([old[name] for name in mixed], [new[name] for name in mixed], float(tau))


def keep_large_blocks() -> None:
    """Let this process reuse memory for large tensors instead of returning it to the system after every use.

    By default the C library asks the system for each block above 32 MB (a minibatch of 256 images as floats), and returns free memory at
    the end of its heap. The system clears and maps every page of it again, which takes up to a quarter of the training time of a small
    network. It takes up to a sixth of the time in which a convolutional network acts for a few environments, depending on where a process
    happens to have put other things. After this call, blocks up to 256 MB are reused, and free memory above 1 GB is returned. Does nothing
    without glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
    mallopt(M_MMAP_THRESHOLD, 2**28)
    mallopt(M_TRIM_THRESHOLD, 2**30)
