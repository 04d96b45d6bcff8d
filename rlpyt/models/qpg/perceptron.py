"""Multilayer perceptrons of linear layers and ReLU, forwards and backwards in as few operations as possible.

Small networks spend much of their time between operations: in modules, in nodes of the graph, in kernels that reread what they have just
written. Here no modules are called, and ReLU writes into its input. On an accelerator, and where several perceptrons with the same input
are one batched product, all layers are a single node of the graph. Those of `after_constants` are one everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from rlpyt.models.linear import is_by_onednn, linear, onednn_linear, onednn_product
from rlpyt.utils.accelerator import has_fused_relu
from rlpyt.utils.choices import chosen, is_chosen

WAYS = ("apart", "together")  # Answers to questions ("nets", number, rows, in, out of the first layer), see `rlpyt.utils.choices`.

Layers = Sequence[tuple[torch.Tensor, torch.Tensor]]  # (weight [out,in], bias [out]) of each layer


def perceptrons(x: torch.Tensor, nets: Sequence[Layers]) -> tuple[torch.Tensor, ...]:
    """Return outputs [B,out], one per net, for an input [B,in]: linear layers with ReLU between them.

    Nets have the same shapes. On an accelerator, and where that was chosen on a CPU, nets whose parameters are adjacent in memory
    (`stack_parameters`) are computed together.
    """
    device_type = x.device.type
    if torch.is_autocast_enabled(device_type) or torch.compiler.is_compiling():
        return _layer_by_layer(x, nets)
    if device_type == "cpu" and (len(nets) == 1 or not _together(nets[0][0][0], len(nets), len(x))):
        return _layer_by_layer(x, nets)  # A node in Python takes longer than torch's nodes of all layers.
    params = [p for layers in nets for layer in layers for p in layer]
    if not torch.is_grad_enabled():
        return tuple(out for layers in _groups(params, len(nets), len(x)) for out in _outputs(_forward(x, layers)[-1]))
    return _Perceptrons.apply(x, len(nets), *params)


class _Perceptrons(torch.autograd.Function):
    """One node for all layers; its inputs are those and `x`, its outputs one per net."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, n_nets: int, *params: torch.Tensor) -> tuple[torch.Tensor, ...]:
        activations = [_forward(x, layers) for layers in _groups(params, n_nets, len(x))]  # per group of nets, per layer
        ctx.n_nets = n_nets
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *params, *(hidden for group in activations for hidden in group[:-1]))
        return tuple(out for group in activations for out in _outputs(group[-1]))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor | None) -> tuple:
        n_params = len(ctx.needs_input_grad) - 2
        x, *saved = ctx.saved_tensors
        params, hidden = saved[:n_params], saved[n_params:]
        if torch.is_grad_enabled():  # The caller wants to differentiate again.
            return _backward_by_autograd(ctx, x, params, grad_outputs)
        need_x, _, *need_params = ctx.needs_input_grad
        groups = _groups(params, ctx.n_nets, len(x))
        nets_per_group, hidden_per_group = ctx.n_nets // len(groups), len(hidden) // len(groups)
        grad_x, grads = None, []
        for i, layers in enumerate(groups):
            of_nets = grad_outputs[i * nets_per_group : (i + 1) * nets_per_group]
            inputs = [x, *hidden[i * hidden_per_group : (i + 1) * hidden_per_group]]
            g = _joined(of_nets, inputs[-1], layers[-1][0])
            if g is None:
                grads += _of_nets([None] * (2 * len(layers)), nets_per_group)
                continue
            g, of_params = _backward(g, inputs, layers, need_x, any(need_params))
            grads += _of_nets(of_params, nets_per_group)
            if need_x:
                g = g if g.dim() == 2 else g.sum(0)
                grad_x = g if grad_x is None else grad_x.add_(g)
        return grad_x, None, *(g if needed else None for g, needed in zip(grads, need_params))


def after_constants(constants: torch.Tensor, x: torch.Tensor, layers: Layers) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs of one net for constants [n,in] and an input [B,in] in one pass: [n+B,out], and [B,out], which are its last rows.

    Only the second result has a gradient, which only the parameters get. Only it takes a backward pass.
    """
    return _AfterConstants.apply(torch.cat([constants, x]), len(constants), *(p for layer in layers for p in layer))


class _AfterConstants(torch.autograd.Function):
    """One node for all layers; its inputs are those and `x`, of which the first `n_constants` rows have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, n_constants: int, *params: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, rows = [x], len(x) - n_constants
        layers = list(zip(params[::2], params[1::2]))
        inputs += _forward(x, layers, rows)
        outputs = inputs.pop()
        ctx.n_nets = 1
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*params, *(each[n_constants:] for each in inputs))
        ctx.mark_non_differentiable(outputs)
        return outputs, outputs[n_constants:]

    @staticmethod
    def backward(ctx: Any, _: None, g: torch.Tensor | None) -> tuple:
        n_params = len(ctx.needs_input_grad) - 2
        if g is None:
            return (None,) * (2 + n_params)
        params, inputs = ctx.saved_tensors[:n_params], ctx.saved_tensors[n_params:]
        if torch.is_grad_enabled():
            return _backward_by_autograd(ctx, inputs[0], params, [g])
        grads = _backward(g, inputs, list(zip(params[::2], params[1::2])), need_x=False, need_params=True)[1]
        return None, None, *grads


def _forward(x: torch.Tensor, layers: Layers, rows: int | None = None) -> list[torch.Tensor]:
    """Return the outputs of all layers, computed as was chosen for inputs of that many `rows`, by default those of `x`."""
    outputs = []
    for weight, bias in layers[:-1]:
        x = _linear(x, weight, bias, relu=True, rows=rows)
        outputs.append(x)
    outputs.append(_linear(x, *layers[-1], relu=False, rows=rows))
    return outputs


def _backward(
    g: torch.Tensor, inputs: Sequence[torch.Tensor], layers: Layers, need_x: bool, need_params: bool
) -> tuple[torch.Tensor, Sequence[torch.Tensor | None]]:
    """Return gradients of the first input (if needed), and of weights and biases in the order of the layers, from `g` of the output."""
    grads: list[torch.Tensor] = []
    for i in reversed(range(len(layers))):
        weight, x = layers[i][0], inputs[i]
        product = onednn_product if is_by_onednn(x, weight) else torch.matmul
        if need_params:
            grads[:0] = [product(g.mT, x.expand(*g.shape[:-1], -1) if x.dim() < g.dim() else x), g.sum(-2)]
        if i or need_x:
            g = product(g, weight)
        if i:
            torch.ops.aten.threshold_backward.grad_input(g, x, 0, grad_input=g)  # In place: `g` is new, and still in the cache.
    return g, grads if need_params else [None] * (2 * len(layers))


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, relu: bool, rows: int | None = None) -> torch.Tensor:
    """``x W^T + b``, of one net or, with W [n,out,in], of several."""
    if weight.dim() == 3:
        y = torch.baddbmm(bias.unsqueeze(1), x.expand(len(weight), *x.shape[-2:]), weight.mT)
    elif is_by_onednn(x, weight, rows):
        return onednn_linear(x, weight, bias, "relu" if relu else "none")
    elif relu and x.device.type != "cpu" and has_fused_relu(x.device):  # A CPU does the same in two steps.
        return torch._addmm_activation(bias, x, weight.t())
    else:
        y = F.linear(x, weight, bias)
    return y.relu_() if relu else y


# --- Nets that are computed together ----------------------------------------------------------------------------------


@torch.no_grad()
def stack_parameters(modules: Sequence[torch.nn.Module]) -> None:
    """Move the parameters of equal modules so that corresponding ones are adjacent in memory."""
    for parameters in zip(*(module.parameters() for module in modules)):
        for parameter, data in zip(parameters, torch.stack([p.data for p in parameters])):
            parameter.data = data


def _groups(params: Sequence[torch.Tensor], n_nets: int, rows: int) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return the layers of each net, or of all nets at once: [n,out,in]. `rows` are those of the input."""
    n = len(params) // n_nets
    nets = [params[i * n : (i + 1) * n] for i in range(n_nets)]
    if n_nets > 1 and _together(params[0], n_nets, rows) and all(map(_are_stacked, zip(*nets))):
        nets = [[_as_one([of_nets[0].detach(), *of_nets[1:]]) for of_nets in zip(*nets)]]
    return [list(zip(net[::2], net[1::2])) for net in nets]


def _together(weight: torch.Tensor, n_nets: int, rows: int) -> bool:
    """Whether nets are computed together: on an accelerator, where launching kernels takes most time, and on a CPU if that was chosen.

    Args:
        weight: of the first layer of a net.
    """
    return weight.device.type != "cpu" or chosen(("nets", n_nets, rows, weight.shape[1], weight.shape[0])) == "together"


def _are_stacked(tensors: Sequence[torch.Tensor]) -> bool:
    first = tensors[0]
    memory, n = first.untyped_storage().data_ptr(), first.numel()
    return all(
        t.is_contiguous() and t.untyped_storage().data_ptr() == memory and t.storage_offset() == first.storage_offset() + i * n
        for i, t in enumerate(tensors)
    )


def _as_one(stacked: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a view of tensors that are adjacent in memory, as `torch.stack` would."""
    first = stacked[0]
    return first.as_strided((len(stacked), *first.shape), (first.numel(), *first.stride()))


def _outputs(output: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (output,) if output.dim() == 2 else output.unbind()


def _joined(grads: Sequence[torch.Tensor | None], like: torch.Tensor, weight: torch.Tensor) -> torch.Tensor | None:
    """Return the gradients of a group's outputs as one tensor; None if all are None."""
    given = [g for g in grads if g is not None]
    if not given:
        return None
    if weight.dim() == 2:
        return grads[0]
    if len(given) < len(grads):
        zeros = like.new_zeros(like.shape[-2], weight.shape[1])
        given = [zeros if g is None else g for g in grads]
    return _as_one(given) if _are_stacked(given) else torch.stack(given)


def _of_nets(grads: Sequence[torch.Tensor | None], n_nets: int) -> list[torch.Tensor | None]:
    """Return the gradients of a group's parameters, net after net."""
    if n_nets == 1 or grads[0] is None:
        return list(grads) * n_nets
    return [g[i] for i in range(n_nets) for g in grads if g is not None]  # All are given.


# --- The same with a graph of all operations --------------------------------------------------------------------------


def _layer_by_layer(x: torch.Tensor, nets: Sequence[Layers]) -> tuple[torch.Tensor, ...]:
    """Do what `perceptrons` does. Under autocast, last layers compute in the dtype of their parameters (see `OutputLinear`)."""
    autocasts = torch.is_autocast_enabled(x.device.type)
    product: Callable[..., torch.Tensor] = F.linear
    # On most machines oneDNN is chosen for nothing, and to look that up for each layer takes time.
    if is_chosen("onednn") and not (autocasts or torch.compiler.is_compiling()):
        if not torch.is_grad_enabled():
            return tuple(_forward(x, layers)[-1] for layers in nets)  # oneDNN then computes a layer and its ReLU together.
        product = linear
    outputs = []
    for layers in nets:
        y = x
        for weight, bias in layers[:-1]:
            y = product(y, weight, bias).relu_()
        weight, bias = layers[-1]
        if not autocasts:
            outputs.append(product(y, weight, bias))
        else:
            with torch.autocast(x.device.type, enabled=False):
                outputs.append(F.linear(y.to(weight.dtype), weight, bias))
    return tuple(outputs)


def _backward_by_autograd(
    ctx: Any, x: torch.Tensor, params: Sequence[torch.Tensor], grad_outputs: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor | None, ...]:
    with torch.enable_grad():
        n = len(params) // ctx.n_nets
        nets = [list(zip(params[i : i + n : 2], params[i + 1 : i + n : 2])) for i in range(0, len(params), n)]
        outputs = [(out, g) for out, g in zip(_layer_by_layer(x, nets), grad_outputs) if g is not None]
        inputs: tuple[Any, ...] = (x, None, *params)
        wanted = [t for t, needed in zip(inputs, ctx.needs_input_grad) if needed]
        grads = iter(torch.autograd.grad([o for o, _ in outputs], wanted, [g for _, g in outputs], create_graph=True, allow_unused=True))
    return tuple(next(grads) if needed else None for needed in ctx.needs_input_grad)
