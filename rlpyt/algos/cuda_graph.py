"""A whole gradient update as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from rlpyt.utils.buffer import buffer_func, buffer_leaves

MAX_GRAPHS = 16  # Each graph keeps memory. Batches of any further shape are computed operation by operation.
N_WARM_UP = 3  # Calls before the capture, in which libraries and optimizers allocate their memory.


class GraphedUpdate:
    """Calls a function of a batch; from the fourth call on, as a CUDA graph, which launches all its kernels at once.

    For small networks, launching kernels one by one takes most of the time. The graph repeats the captured call, on the same memory, in the
    same branches of Python code, and with the same learning rates. So the function must not read results (``.item()``), and must change
    nothing but tensors.

    Args:
        update: function of a batch. Batch and result are structures of tensors on the device. If the function has several branches, the
            caller names the one to take by `branch`.
        device: a device with graphs, see `rlpyt.utils.accelerator.has_graphs`.
    """

    def __init__(self, update: Callable[[Any], Any], device: torch.device) -> None:
        self._update, self._device = update, device
        self._n_calls: dict[Hashable, int] = {}
        self._captured: dict[Hashable, tuple[Any, Callable[[], Any]]] = {}

    def __call__(self, batch: Any, branch: Hashable = None) -> Any:
        """Return ``update(batch)``. There is one graph for each branch and each set of shapes."""
        key = branch, *((leaf.shape, leaf.dtype) for leaf in buffer_leaves(batch))
        self._n_calls[key] = self._n_calls.get(key, 0) + 1
        if self._n_calls[key] <= N_WARM_UP or (key not in self._captured and len(self._captured) == MAX_GRAPHS):
            return warm_up(lambda: self._update(batch), self._device)
        if key not in self._captured:
            memory = buffer_func(batch, torch.clone)
            self._captured[key] = memory, capture(lambda: self._update(memory), self._device)
        memory, replay = self._captured[key]
        torch._foreach_copy_(buffer_leaves(memory), buffer_leaves(batch))
        return buffer_func(replay(), torch.clone)  # The next replay writes into the same memory.


def warm_up(func: Callable[[], Any], device: torch.device) -> Any:
    """Call `func` in a separate stream, as CUDA requires before a capture."""
    module = torch.get_device_module(device)
    with module.device(device):
        stream = module.Stream()
        stream.wait_stream(module.current_stream())
        with module.stream(stream):
            result = func()
        module.current_stream().wait_stream(stream)
    return result


def capture(func: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """Return a function that repeats `func` and returns its results, always in the same memory."""
    module = torch.get_device_module(device)
    graph = module.CUDAGraph()
    with module.device(device), module.graph(graph):
        results = func()

    def replay() -> Any:
        graph.replay()
        return results

    return replay
