"""Linear layer that computes on a CPU by the library that is faster there."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F

from rlpyt.utils.choices import chosen

# Multiplications above which oneDNN's start-up cost (some 20 us) is made up for.
MIN_SIZE = 2**20
# Answers to questions, see `rlpyt.utils.choices`.
LIBRARIES = ("blas", "onednn")  # ("linear", rows, in_features, out_features)
ACTING = (*LIBRARIES, "weight_first")  # ("acting", rows, in_features, out_features): without gradient
BFLOAT16 = "bfloat16"  # Another answer to the latter, and the default, where bfloat16 is allowed.


class PackedWeight(NamedTuple):
    """The weight of a layer in bfloat16, in the order in which oneDNN reads it."""

    weight: torch.Tensor  # opaque
    version: int  # of the parameter when it was packed


class Linear(torch.nn.Linear):
    """torch.nn.Linear that computes large float32 products on a CPU by oneDNN, where that was chosen.

    PyTorch computes them by a BLAS, MKL as a rule. Which one is faster depends on processor, threads and sizes: on one CPU oneDNN took less
    than half of the time (512 x 3456 weights, batches from 32 to 256, forward and backward), on another of the same maker it took longer.
    PyTorch's function for it is internal, hence the checks; where it is missing, this class is torch.nn.Linear.

    A process that acts many times with the same parameters may use a packed copy of the weight (`pack`): at small batches the time of a
    large layer is that of reading its weight, and the copy has half the bytes.
    """

    _packed: PackedWeight | None = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[*,in_features] -> [*,out_features]."""
        if not _has_choice(input, self.weight):
            return F.linear(input, self.weight, self.bias)
        if torch.is_grad_enabled():
            self._packed = None  # Training follows. Fused optimizers do not raise the version of a parameter.
            if onednn_is_chosen(len(input), self.weight):
                return _OneDnnLinear.apply(input, self.weight, self.bias)
        else:
            packed = self._packed
            if packed is not None and packed.version == self.weight._version:
                return _packed_linear(input, packed, self.bias)
            way = chosen(("acting", len(input), self.in_features, self.out_features))
            if way == "weight_first":
                return weight_first_linear(input, self.weight, self.bias)
            if way == "onednn" or (way is None and onednn_is_chosen(len(input), self.weight)):
                return onednn_linear(input, self.weight, self.bias)
        return F.linear(input, self.weight, self.bias)

    @torch.no_grad()
    def pack(self, rows: int) -> bool:
        """Copy the weight in bfloat16 for calls without gradient, until `unpack` or a call with gradient; return whether that was done.

        It is not done if the product is small, or if float32 was chosen because it is faster here.

        This layer does not notice that another process, a fused optimizer, or code that writes to ``weight.data`` changes the weight: call
        `unpack` before that, and `pack` after it. It notices `load_state_dict` and other operations in place.

        Args:
            rows: rows of the inputs to come.
        """
        self._packed = None  # Its memory is free for the new one.
        weight = self.weight.detach()
        is_large = rows * weight.numel() >= MIN_SIZE
        if chosen(("acting", rows, self.in_features, self.out_features)) not in (None, BFLOAT16):
            return False
        if not is_large or weight.dtype != torch.float32 or weight.device.type != "cpu" or not packs():
            return False
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(torch.bfloat16), None)
        self._packed = PackedWeight(packed, self.weight._version)
        return True

    def unpack(self) -> None:
        """Forget the packed weight: the parameters may change from now on."""
        self._packed = None

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name != "_packed"}


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """``x W^T + b`` with its gradients, as `Linear` computes it in training."""
    if is_by_onednn(x, weight):
        return _OneDnnLinear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


def is_by_onednn(x: torch.Tensor, weight: torch.Tensor, rows: int | None = None) -> bool:
    """Return whether ``x W^T`` and its gradients are computed by oneDNN, as was chosen for `rows`, by default those of `x`."""
    is_chosen = weight.dim() == 2 and onednn_is_chosen(len(x) if rows is None else rows, weight)
    return is_chosen and _has_choice(x, weight)


def _has_choice(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether a product is one of those for which there may be a choice: large, in float32, on a CPU."""
    return (
        x.numel() * len(weight) >= MIN_SIZE
        and x.dim() == 2
        and x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


Forward = TypeVar("Forward", bound=Callable[..., torch.Tensor])


def in_float32(forward: Forward) -> Forward:
    """Return the `forward` of a last layer that computes in float32 where autocast lets the others compute in bfloat16.

    Losses need more digits of probabilities, values and their differences than bfloat16 has, and this layer is the least of the work.
    """

    @functools.wraps(forward)
    def forward_in_float32(self: Any, input: torch.Tensor) -> torch.Tensor:
        device_type = input.device.type
        if not torch.is_autocast_enabled(device_type):
            return forward(self, input)
        with torch.autocast(device_type, enabled=False):
            return forward(self, input.float())

    return cast(Forward, forward_in_float32)


class OutputLinear(Linear):
    """Last layer of a model."""

    def pack(self, rows: int) -> bool:
        """Return False: the last layer computes in float32."""
        return False

    forward = in_float32(Linear.forward)


class _OneDnnLinear(torch.autograd.Function):
    """y = x W^T + b"""

    @staticmethod
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return onednn_linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        # With gradients enabled the caller wants to differentiate again, which oneDNN's function does not support.
        product = torch.mm if torch.is_grad_enabled() else onednn_product
        return (
            product(grad, weight) if ctx.needs_input_grad[0] else None,
            product(grad.t(), x) if ctx.needs_input_grad[1] else None,
            grad.sum(0) if ctx.needs_input_grad[2] else None,
        )


def _packed_linear(x: torch.Tensor, packed: PackedWeight, bias: torch.Tensor | None) -> torch.Tensor:
    """``x W^T + b``, float32."""
    y = onednn_linear(x.to(torch.bfloat16), packed.weight, None)
    return y.float() if bias is None else y + bias


def onednn_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, then: str = "none") -> torch.Tensor:
    """``x W^T + b``, perhaps with then="relu"."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, then, [], "")


def onednn_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a b``, [n,m] [m,k] -> [n,k]."""
    if a.numel() > b.numel() and not a.is_contiguous():  # What is transposed gets copied, so let it be the smaller one.
        return onednn_linear(b.t(), a, None).t()
    return onednn_linear(a, b.t(), None)


def weight_first_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """``x W^T + b``, computed as the transpose of ``W x^T + b``.

    With some ten rows, nearly all of the time goes into reading the weight, and a BLAS may read its first factor faster than its second.
    """
    y = weight @ x.t() if bias is None else torch.addmm(bias.unsqueeze(1), weight, x.t())  # [out,rows]
    return y.t().contiguous()


def onednn_is_chosen(rows: int, weight: torch.Tensor) -> bool:
    """Return whether a layer with this weight [out,in] computes an input of this many rows by oneDNN."""
    return chosen(("linear", rows, weight.shape[1], weight.shape[0])) == "onednn" and onednn_is_available()


@functools.cache
def onednn_is_available() -> bool:
    """Whether torch has oneDNN and the function used here."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@functools.cache
def packs() -> bool:
    """Whether torch has the functions of oneDNN that pack a weight and multiply with it, and the processor instructions that they need."""
    if not onednn_is_available() or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.zeros(16, 16, dtype=torch.bfloat16), None)
    except RuntimeError:  # A processor without AVX-512.
        return False
    return True


# From this many calls on, packing saves more than it costs: it takes as long as two to four calls.
MIN_CALLS = 8


def pack_layers(model: torch.nn.Module, rows: int, n_calls: int | None = None) -> list[Linear]:
    """Pack the weights of all large layers of a model, see `Linear.pack`; return these layers.

    Args:
        n_calls: number of calls until `Linear.unpack`, None for many. For a few calls no layer is packed.
    """
    if n_calls is not None and n_calls < MIN_CALLS:
        return []
    return [layer for layer in model.modules() if isinstance(layer, Linear) and layer.pack(rows)]
