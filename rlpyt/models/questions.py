"""What can be chosen about the computations of models on a CPU, for `rlpyt.utils.choices`.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from rlpyt.models.conv2d import LAYOUTS, Conv2dModel
from rlpyt.models.linear import ACTING, BFLOAT16, LIBRARIES, MIN_SIZE, Linear, onednn_is_available, packs
from rlpyt.models.qpg.mlp import QofMuMlpModel
from rlpyt.models.qpg.perceptron import WAYS, perceptrons, stack_parameters
from rlpyt.utils.choices import Comparison, trying
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
) -> list[Comparison]:
    """Return the questions about models on the CPU, those with most to gain first.

    Args:
        models: models of an agent.
        trained_rows: sizes of the batches on which they are trained.
        acting_rows: sizes of the batches in which they act, without gradient.
        acting_threads: torch threads while they act; None is the number of this process.
        image_shape: (C,H,W) of the observation if it is an image.
        acting_bf16: whether they may act in bfloat16.
    """
    n_threads = torch.get_num_threads()
    sizes = dict.fromkeys(
        (layer.in_features, layer.out_features) for model in models for layer in model.modules() if isinstance(layer, Linear)
    )
    linear = [_linear(*product, n_threads) for product in _large(trained_rows, sizes) if onednn_is_available()]
    linear += [_acting(*product, acting_threads or n_threads, acting_bf16) for product in _large(acting_rows, sizes)]
    linear.sort(key=lambda each: -each.question[1] * each.question[2] * each.question[3])
    return [*_images(models, trained_rows, image_shape), *linear, *_nets(models, trained_rows)]


def _large(all_rows: Sequence[int], sizes: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (rows, in, out) of the products that are large enough to ask about."""
    for rows in dict.fromkeys(all_rows):
        for n_in, n_out in sizes:
            if rows * n_in * n_out >= MIN_SIZE:
                yield rows, n_in, n_out


def _linear(rows: int, n_in: int, n_out: int, n_threads: int) -> Comparison:
    question = ("linear", rows, n_in, n_out)
    layer, x = _random(Linear(n_in, n_out)), torch.randn(rows, n_in, requires_grad=True)
    return Comparison(question, LIBRARIES, partial(_pass, layer, x), partial(_with_threads, question, n_threads), _said(n_threads))


def _acting(rows: int, n_in: int, n_out: int, n_threads: int, bf16: bool) -> Comparison:
    question = ("acting", rows, n_in, n_out)
    layer, x = _random(Linear(n_in, n_out)), torch.randn(rows, n_in)
    alternatives = [way for way in ACTING if way != "onednn" or onednn_is_available()]

    @contextmanager
    def use(answer: Any) -> Iterator[None]:
        with _with_threads(question, n_threads, answer):
            layer.pack(rows) if answer == BFLOAT16 else layer.unpack()
            yield

    alternatives = [BFLOAT16] * (bf16 and packs()) + alternatives
    return Comparison(question, alternatives, torch.no_grad()(partial(layer, x)), use, _said(n_threads))


def _images(models: Sequence[torch.nn.Module], trained_rows: Sequence[int], image_shape: Sequence[int] | None) -> Iterator[Comparison]:
    for conv in _convolutions(models, image_shape):
        for rows in dict.fromkeys(trained_rows):
            n, shape = min(rows, _MOST_IMAGES), tuple(image_shape or ())
            images = torch.randint(256, (n, *shape), dtype=torch.uint8)
            use = partial(trying, ("images", n, *shape))
            yield Comparison(("images", rows, *shape), LAYOUTS, partial(_pass, conv, images), use, _said(torch.get_num_threads()))
        return  # Models with other convolutions of the same images follow the first.


def _nets(models: Sequence[torch.nn.Module], trained_rows: Sequence[int]) -> Iterator[Comparison]:
    critics = [model for model in models if type(model) is QofMuMlpModel and any(p.requires_grad for p in model.parameters())]
    if len(critics) < 2 or any(model.layers() is None for model in critics):
        return
    copies = [_random(copy.deepcopy(model)) for model in critics]
    stack_parameters(copies)
    nets = [model.layers() or () for model in copies]
    n_out, n_in = nets[0][0][0].shape
    for rows in dict.fromkeys(trained_rows):
        x = torch.randn(rows, n_in, requires_grad=True)
        question = ("nets", len(nets), rows, n_in, n_out)
        yield Comparison(
            question, WAYS, partial(_pass, partial(perceptrons, nets=nets), x), partial(trying, question), _said(torch.get_num_threads())
        )


def training_pass(
    models: Sequence[torch.nn.Module], rows: int, image_shape: Sequence[int] | None = None
) -> tuple[Callable[[], None] | None, str]:
    """Return a function that computes about as much as an update does, and its sizes in words; None if the models have no such layers.

    It passes forwards and backwards through all layers, one by one, and steps the optimizer Adam.
    """
    passes, parameters, sizes = [], [], [f"{rows} rows"]
    for layer in _layers(models):
        module: torch.nn.Module
        if isinstance(layer, torch.nn.LSTM):
            module = torch.nn.LSTM(layer.input_size, layer.hidden_size, layer.num_layers)
            x = torch.randn(_LSTM_T, max(rows // _LSTM_T, 1), layer.input_size)
            sizes.append(f"lstm {layer.input_size}x{layer.hidden_size}")
        else:
            module = Linear(layer.in_features, layer.out_features)
            x = torch.randn(rows, layer.in_features)
            sizes.append(f"{layer.in_features}x{layer.out_features}")
        passes.append(partial(_pass, _random(module), x.requires_grad_()))
        parameters += module.parameters()
    for conv in _convolutions(models, image_shape):
        images = torch.randint(256, (min(rows, _MOST_IMAGES), *(image_shape or ())), dtype=torch.uint8)
        passes.append(partial(_pass, conv, images))
        parameters += conv.parameters()
        sizes.append("images " + "x".join(map(str, image_shape or ())))
    if not passes:
        return None, ""
    optimizer = torch.optim.Adam(parameters, fused=True)

    def compute() -> None:
        optimizer.zero_grad()
        for each in passes:
            each()
        optimizer.step()

    return compute, " ".join(sizes)


def _layers(models: Sequence[torch.nn.Module]) -> Iterator[Any]:
    for model in models:
        for layer in model.modules():
            if isinstance(layer, (torch.nn.Linear, torch.nn.LSTM)) and any(p.requires_grad for p in layer.parameters()):
                yield layer


def _convolutions(models: Sequence[torch.nn.Module], image_shape: Sequence[int] | None) -> list[Conv2dModel]:
    """Return random copies of the convolutions of trained models that take these images."""
    if image_shape is None or len(image_shape) != 3:
        return []
    found = [layer for model in models for layer in model.modules() if type(layer) is Conv2dModel]
    trained = [conv for conv in found if any(p.requires_grad for p in conv.parameters())]
    fitting = [conv for conv in trained if next(m for m in conv.modules() if isinstance(m, torch.nn.Conv2d)).in_channels == image_shape[0]]
    return [_random(copy.deepcopy(conv)) for conv in fitting]


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
        torch.autograd.backward(outputs, [torch.ones_like(part) for part in outputs])


def _said(n_threads: int) -> str:
    return f"{n_threads} thread{'s' * (n_threads != 1)}"


@contextmanager
def _with_threads(question: tuple, n_threads: int, answer: Any) -> Iterator[None]:
    with torch_threads(n_threads), trying(question, answer):
        yield
