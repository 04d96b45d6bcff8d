"""The accelerators of this machine that torch supports: GPUs of NVIDIA and AMD (both "cuda" in torch), Intel ("xpu") and Apple ("mps").

Functions here tell which of them have features such as graphs. Settings call the index of an accelerator ``cuda_idx``. Functions import
torch when they are called, because environment workers import this module and do without torch.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    module = _module(device_of(cuda_idx))
    return module.get_device_name(cuda_idx) if hasattr(module, "get_device_name") else f"{device_type()}:{cuda_idx}"


def description(cuda_idx: int) -> str:
    """Return the name of the accelerator of this index and, if torch tells, its memory."""
    module = _module(device_of(cuda_idx))
    if not hasattr(module, "get_device_properties"):
        return name(cuda_idx)
    return f"{name(cuda_idx)}, {module.get_device_properties(cuda_idx).total_memory / 2**30:.0f} GiB"


def has_page_locking(device: torch.device) -> bool:
    """Whether a device copies from page-locked memory without making this process wait."""
    return device.type not in _WITHOUT_PAGE_LOCKING


def can_lock_shared_memory(device: torch.device) -> bool:
    """Whether memory that was allocated elsewhere can be page-locked for a device."""
    return device.type != "cpu" and hasattr(_module(device), "cudart")


def has_graphs(device: torch.device) -> bool:
    """Whether a device can replay a recorded sequence of operations in one launch."""
    return device.type != "cpu" and hasattr(_module(device), "CUDAGraph")


def has_bf16(device: torch.device) -> bool:
    """Whether a device, which may be the CPU, has native instructions for bfloat16, without emulation."""
    if device.type == "cpu":
        return _cpu_has_bf16()
    asked = getattr(_module(device), "is_bf16_supported", None)
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


def recorded_event(device: torch.device) -> Any:
    """Return an event that completes when all work launched on a device so far is done; its `synchronize` waits for that."""
    module = _module(device)
    event = module.Event()
    if hasattr(module, "current_stream"):
        event.record(module.current_stream(device))  # By default, torch would use the current device, which may be another one.
    else:
        event.record()
    return event


def use(device: torch.device) -> None:
    """Make a device the default, which libraries use if no device is named."""
    module = _module(device)
    if hasattr(module, "set_device"):
        module.set_device(device.index)


def rng_states() -> dict[str, Any]:
    """Return the states of the random generators of all accelerators, by device type; {} if torch uses none yet."""
    kind = device_type()
    if kind is None:
        return {}
    module = _module(kind)
    if not hasattr(module, "get_rng_state_all") or not module.is_initialized():
        return {}
    return {kind: module.get_rng_state_all()}


def set_rng_states(states: dict[str, Any]) -> None:
    """Restore states that `rng_states` returned, for the accelerators that exist here; other items are ignored."""
    kind = device_type()
    if kind in states:
        _module(kind).set_rng_state_all(states[kind][: count()])


def _module(device: torch.device | str) -> Any:
    """Return torch's module for the type of a device, such as `torch.cuda`."""
    import torch

    return torch.get_device_module(device)
