"""Choices between equal computations of models on a CPU, for `rlpyt.utils.choices`.

========================================= ============================================= ==============================================
question                                  alternatives                                  where it is asked
========================================= ============================================= ==============================================
``threads``                               numbers of torch threads                      `rlpyt.runners.calibration`
``linear`` rows in out                    ``blas``, ``onednn``                          `rlpyt.models.linear`, `rlpyt.models.qpg`
``acting`` rows in out                    the same, ``weight_first``, ``bfloat16``      `rlpyt.models.linear`
``nets`` number rows in out               ``apart``, ``together``                       `rlpyt.models.qpg.perceptron`
``images`` B C H W                        ``channels_last``, ``channels_first``         `rlpyt.models.conv2d`
========================================= ============================================= ==============================================

What is measured are copies of layers with random parameters and inputs. Neither models nor random generators change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from rlpyt.models.conv2d import LAYOUTS, Conv2dModel
from rlpyt.models.dqn.quantiles import QuantileHead
from rlpyt.models.linear import ACTING, BFLOAT16, LIBRARIES, MIN_SIZE, Linear, onednn_is_available, packs
from rlpyt.models.qpg.mlp import QofMuMlpModel
from rlpyt.models.qpg.perceptron import WAYS, perceptrons, stack_parameters
from rlpyt.utils.choices import Comparison, chosen, trying
from rlpyt.utils.misc import torch_threads

_MOST_IMAGES = 32  # More images take longer in proportion, so that fewer tell as much.
_LSTM_T = 8  # time steps of an LSTM's inputs


def comparisons(
    models: Sequence[torch.nn.Module],
    trained_rows: Sequence[int],
    acting_rows: Sequence[int] = (),
    acting_threads: int | None = None,
    image_shape: Sequence[int] | None = None,
    acting_bf16: bool = False,
    trained_fractions: Sequence[int] = (),
    acting_fractions: Sequence[int] = (),
) -> list[Comparison]:
    """Return the questions about models on the CPU, those with most to gain first.

    Args:
        models: models of an agent.
        trained_rows: sizes of the batches on which they are trained.
        acting_rows: sizes of the batches in which they act, without gradient.
        acting_threads: torch threads while they act; None is the number of this process.
        image_shape: (C,H,W) of the observation if it is an image.
        acting_bf16: whether they may act in bfloat16.
        trained_fractions, acting_fractions: numbers of fractions for each row, in training and in acting, of models whose heads multiply
            by embeddings of fractions (`QuantileHead`).
    """
    n_threads = torch.get_num_threads()
    trained, acting = _large(models, trained_rows, trained_fractions), _large(models, acting_rows, acting_fractions, are_shared=True)
    linear = [_linear(*product, n_threads) for product in trained if onednn_is_available()]
    linear += [_acting(*product, acting_threads or n_threads, acting_bf16) for product in acting]
    linear.sort(key=lambda each: -each.question[1] * each.question[2] * each.question[3])
    return [*_images(models, trained_rows, image_shape), *linear, *_nets(models, trained_rows)]


def _large(
    models: Sequence[torch.nn.Module], all_rows: Sequence[int], fractions: Sequence[int], are_shared: bool = False
) -> list[tuple[int, int, int]]:
    """Return (rows, in, out) of the products that are large enough to ask about.

    Args:
        are_shared: all rows have the same fractions, which are embedded once.
    """
    heads, embeddings = _in_quantile_heads(models), _in_quantile_heads(models, "embedding")
    products = [
        (n if layer in embeddings and fractions and are_shared else rows * n, layer.in_features, layer.out_features)
        for rows in dict.fromkeys(all_rows)
        for model in models
        for layer in model.modules()
        if isinstance(layer, Linear)
        for n in (fractions if layer in heads and fractions else (1,))
    ]
    return [(rows, n_in, n_out) for rows, n_in, n_out in dict.fromkeys(products) if rows * n_in * n_out >= MIN_SIZE]


def _in_quantile_heads(models: Sequence[torch.nn.Module], part: str = "") -> set[torch.nn.Module]:
    """Return the layers that see a row for each fraction, in all parts of the heads or in one."""
    heads = [head for model in models for head in model.modules() if isinstance(head, QuantileHead)]
    return {layer for head in heads for layer in head.get_submodule(part).modules()}


def _linear(rows: int, n_in: int, n_out: int, n_threads: int) -> Comparison:
    question = ("linear", rows, n_in, n_out)

    def prepare() -> Callable[[], Any]:
        return partial(_pass, _random(Linear(n_in, n_out)), torch.randn(rows, n_in, requires_grad=True))

    return Comparison(question, LIBRARIES, prepare, partial(_with_threads, question, n_threads), _said(n_threads))


def _acting(rows: int, n_in: int, n_out: int, n_threads: int, bf16: bool) -> Comparison:
    question = ("acting", rows, n_in, n_out)

    def prepare() -> Callable[[], Any]:
        layer, packed, x = _random(Linear(n_in, n_out)), _random(Linear(n_in, n_out)), torch.randn(rows, n_in)
        packed.pack(rows)
        return torch.no_grad()(lambda: (packed if chosen(question) == BFLOAT16 else layer)(x))

    alternatives = [BFLOAT16] * (bf16 and packs()) + [way for way in ACTING if way != "onednn" or onednn_is_available()]
    return Comparison(question, alternatives, prepare, partial(_with_threads, question, n_threads), _said(n_threads))


def _images(models: Sequence[torch.nn.Module], trained_rows: Sequence[int], image_shape: Sequence[int] | None) -> Iterator[Comparison]:
    for conv in _convolutions(models, image_shape)[:1]:  # Models with other convolutions of the same images follow the first.
        for rows in dict.fromkeys(trained_rows):
            n, shape = min(rows, _MOST_IMAGES), tuple(image_shape or ())
            use = partial(trying, ("images", n, *shape))
            yield Comparison(
                ("images", rows, *shape), LAYOUTS, partial(_convolution_pass, conv, n, shape), use, _said(torch.get_num_threads())
            )


def _nets(models: Sequence[torch.nn.Module], trained_rows: Sequence[int]) -> Iterator[Comparison]:
    plain: list[Any] = [model for model in models if type(model) is QofMuMlpModel]
    critics = [model for model in plain if not model._normalizes and any(p.requires_grad for p in model.parameters())]
    nets = [model.layers() for model in critics]
    if len(nets) < 2 or None in nets:
        return
    n_out, n_in = critics[0].layers()[0][0].shape

    def prepare(rows: int) -> Callable[[], None]:
        copies = [_random(copy.deepcopy(model)) for model in critics]
        stack_parameters(copies)
        return partial(_pass, partial(perceptrons, nets=[each.layers() for each in copies]), torch.randn(rows, n_in, requires_grad=True))

    for rows in dict.fromkeys(trained_rows):
        question = ("nets", len(nets), rows, n_in, n_out)
        yield Comparison(question, WAYS, partial(prepare, rows), partial(trying, question), _said(torch.get_num_threads()))


def update_comparison(
    question: tuple,
    alternatives: Sequence[int],
    models: Sequence[torch.nn.Module],
    rows: int,
    image_shape: Sequence[int] | None = None,
    fractions: Sequence[int] = (),
) -> Comparison | None:
    """Return the comparison of numbers of torch threads for the computation of an update; None for models without such layers.

    It passes forwards and backwards through all layers, one by one, and steps the optimizer Adam. `fractions` are the `trained_fractions`
    of `comparisons`.
    """
    layers, convolutions = list(_layers(models)), _convolutions(models, image_shape)
    shape, heads, n_fractions = tuple(image_shape or ()), _in_quantile_heads(models), max(fractions, default=1)
    if not layers and not convolutions:
        return None
    sizes = [f"{'lstm ' * isinstance(layer, torch.nn.LSTM)}{'x'.join(map(str, _sizes(layer)))}" for layer in layers]
    sizes += [f"images {'x'.join(map(str, shape))}" for _ in convolutions]

    def prepare() -> Callable[[], None]:
        passes, parameters = [], []
        for layer in layers:
            is_lstm = isinstance(layer, torch.nn.LSTM)
            module = _random((torch.nn.LSTM if is_lstm else Linear)(*_sizes(layer)))
            x = (
                torch.randn(_LSTM_T, max(rows // _LSTM_T, 1), layer.input_size)
                if is_lstm
                else torch.randn(rows * (n_fractions if layer in heads else 1), layer.in_features)
            )
            passes.append(partial(_pass, module, x.requires_grad_()))
            parameters += module.parameters()
        for conv in convolutions:
            passes.append(_convolution_pass(conv, min(rows, _MOST_IMAGES), shape))
            parameters += passes[-1].args[0].parameters()
        optimizer = torch.optim.Adam(parameters, fused=True)

        def compute() -> None:
            optimizer.zero_grad()
            for each in passes:
                each()
            optimizer.step()

        return compute

    return Comparison(question, alternatives, prepare, torch_threads, f"{rows} rows, {' '.join(sizes)}")


def _sizes(layer: Any) -> tuple[int, int]:
    return (layer.input_size, layer.hidden_size) if isinstance(layer, torch.nn.LSTM) else (layer.in_features, layer.out_features)


def _layers(models: Sequence[torch.nn.Module]) -> Iterator[Any]:
    for model in models:
        for layer in model.modules():
            if isinstance(layer, (torch.nn.Linear, torch.nn.LSTM)) and any(p.requires_grad for p in layer.parameters()):
                yield layer


def _convolutions(models: Sequence[torch.nn.Module], image_shape: Sequence[int] | None) -> list[Conv2dModel]:
    """Return the convolutions of trained models that take these images."""
    if image_shape is None or len(image_shape) != 3:
        return []
    found = [layer for model in models for layer in model.modules() if type(layer) is Conv2dModel]
    trained = [conv for conv in found if any(p.requires_grad for p in conv.parameters())]
    return [conv for conv in trained if _in_channels(conv) == image_shape[0]]


def _in_channels(conv: Conv2dModel) -> int | None:
    return next((layer.in_channels for layer in conv.modules() if isinstance(layer, torch.nn.Conv2d)), None)


def _convolution_pass(conv: Conv2dModel, n: int, image_shape: Sequence[int]) -> Any:
    """Return a function that passes `n` random images forwards and backwards through random convolutions."""
    return partial(_pass, _random(copy.deepcopy(conv)), torch.randint(256, (n, *image_shape), dtype=torch.uint8))


def _random(module: Any) -> Any:
    """Fill parameters with small random numbers."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.05)
    return module


def _pass(module: Callable, x: torch.Tensor) -> None:
    """Pass forwards and backwards."""
    with torch.enable_grad():
        y = module(x)
        outputs = [part for part in (y if isinstance(y, tuple) else (y,)) if isinstance(part, torch.Tensor)]
        _Scalar.apply(*outputs).backward()


class _Scalar(torch.autograd.Function):
    """A scalar with gradient 1 for each number of its inputs.

    A `backward` of outputs that are no scalars needs their gradients, and PyTorch imports sympy to check these. In a new process that takes
    longer than all measurements may.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*inputs)
        return inputs[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(map(torch.ones_like, ctx.saved_tensors))


def _said(n_threads: int) -> str:
    return f"{n_threads} thread{'s' * (n_threads != 1)}"


@contextmanager
def _with_threads(question: tuple, n_threads: int, answer: Any) -> Iterator[None]:
    with torch_threads(n_threads), trying(question, answer):
        yield
