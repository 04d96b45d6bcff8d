"""The accelerators of this machine that torch supports: GPUs of NVIDIA and AMD (both "cuda" in torch), Intel ("xpu") and Apple ("mps").

Functions here tell which of them have features such as graphs. Settings call the index of an accelerator ``cuda_idx``. Functions import
torch when they are called, because environment workers import this module and do without torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlpyt.utils.completed import Completed

if TYPE_CHECKING:
    import torch

_WITHOUT_PAGE_LOCKING = ("cpu", "mps")  # An Apple GPU works in the memory of the processor.


def count() -> int:
    """Return the number of accelerators that torch can use here, without initializing CUDA if NVML tells the number."""
    kind = device_type()
    return _module(kind).device_count() if kind else 0


def why_not_more() -> str:
    """Return a possible reason why `count` is not larger, for messages."""
    import torch

    if torch.accelerator.current_accelerator() is None:
        return "this torch was installed for the CPU alone"
    return "CUDA_VISIBLE_DEVICES may hide some" if torch.backends.cuda.is_built() else "there may be no more"


def device_type() -> str | None:
    """Return torch's name for this machine's accelerators, such as "cuda"; None if torch can use none."""
    import torch

    kind = torch.accelerator.current_accelerator()  # The type torch was built for. Its check for existing devices initializes CUDA.
    return kind.type if kind is not None and _module(kind).device_count() else None


def device_of(cuda_idx: int) -> torch.device:
    """Return the accelerator of this index."""
    import torch

    return torch.device(device_type() or "cuda", cuda_idx)  # Without an accelerator, torch's error about CUDA says so.


def name(cuda_idx: int) -> str:
    """Return the product name of the accelerator of this index."""
    get_device_name = _optional(device_of(cuda_idx)).get_device_name
    return f"{device_type()}:{cuda_idx}" if get_device_name is None else get_device_name(cuda_idx)


def description(cuda_idx: int) -> str:
    """Return the name of the accelerator of this index and, if torch tells, its memory."""
    properties = _optional(device_of(cuda_idx)).get_device_properties
    if properties is None:
        return name(cuda_idx)
    return f"{name(cuda_idx)}, {properties(cuda_idx).total_memory / 2**30:.0f} GiB"


def has_page_locking(device: torch.device) -> bool:
    """Return whether a device copies from page-locked memory without making this process wait."""
    return device.type not in _WITHOUT_PAGE_LOCKING


def can_lock_shared_memory(device: torch.device) -> bool:
    """Return whether memory that was allocated elsewhere can be page-locked for a device."""
    return device.type != "cpu" and _optional(device).cudart is not None


def has_graphs(device: torch.device) -> bool:
    """Return whether a device can replay a recorded sequence of operations in one launch."""
    return device.type != "cpu" and _optional(device).CUDAGraph is not None


def has_bf16(device: torch.device) -> bool:
    """Return whether a device, which may be the CPU, has native instructions for bfloat16, without emulation."""
    if device.type == "cpu":
        return _cpu_has_bf16()
    asked = _optional(device).is_bf16_supported
    if asked is None:
        return False
    return asked(including_emulation=False) if device.type == "cuda" else asked()


@functools.cache
def _cpu_has_bf16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split()
    except OSError:
        return False
    return bool({"avx512_bf16", "amx_bf16"} & set(flags))


@functools.cache
def has_fused_relu(device: torch.device) -> bool:
    """Return whether a device, which may be the CPU, has torch's internal operation for ``relu(x W^T + b)``."""
    import torch

    try:
        torch._addmm_activation(*(torch.zeros(shape, device=device) for shape in ((1,), (1, 1), (1, 1))))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return True


def recorded_event(device: torch.device) -> Any:
    """Return an event that completes when all work launched on a device so far is done; its `synchronize` waits for that."""
    event, current_stream = _module(device).Event(), _optional(device).current_stream
    if current_stream is not None:
        event.record(current_stream(device))  # By default, torch would use the current device, which may be another one.
    else:
        event.record()
    return event


def use(device: torch.device) -> None:
    """Make a device the default, which libraries use if no device is named."""
    _optional(device).set_device(device.index)


def rng_states() -> dict[str, Any]:
    """Return the states of the random generators of all accelerators, by device type; {} if torch uses none yet."""
    kind = device_type()
    if kind is None:
        return {}
    states = _optional(kind).get_rng_state_all
    return {} if states is None or not _module(kind).is_initialized() else {kind: states()}


def set_rng_states(states: dict[str, Any]) -> None:
    """Restore states that `rng_states` returned, for the accelerators that exist here; other items are ignored."""
    kind = device_type()
    if kind in states:
        _module(kind).set_rng_state_all(states[kind][: count()])


def _module(device: torch.device | str) -> Any:
    """Return torch's module for the type of a device, such as `torch.cuda`."""
    import torch

    return torch.get_device_module(device)


class _CompletedModule(Completed):
    """Torch's module for a type of devices. It lacks what such devices cannot do, or torch not yet: None."""

    get_device_name: Callable[[int], str] | None = None
    get_device_properties: Callable[[int], Any] | None = None
    cudart: Callable[[], Any] | None = None
    CUDAGraph: type | None = None
    is_bf16_supported: Callable[..., bool] | None = None
    current_stream: Callable[[Any], Any] | None = None
    get_rng_state_all: Callable[[], list] | None = None

    def set_device(self, index: int) -> None:
        """Make a device the default. The only device of a type always is."""


def _optional(device: torch.device | str) -> _CompletedModule:
    return _CompletedModule(_module(device))
