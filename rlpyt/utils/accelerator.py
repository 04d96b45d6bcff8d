"""The accelerators of this machine, whichever torch has: GPUs of NVIDIA and AMD (both "cuda" for torch), Intel ("xpu") and Apple ("mps").

What only some of them can do, such as graphs, is asked for here. Settings call the index of an accelerator ``cuda_idx``. torch is imported
inside functions, since environment workers use modules that import this one without it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_WITHOUT_PAGE_LOCKING = ("cpu", "mps")  # An Apple GPU works in the memory of the processor.


def count() -> int:
    """Return the number of accelerators that torch can use here. CUDA is not initialized where NVML tells."""
    kind = device_type()
    return _module(kind).device_count() if kind else 0


def why_not_more() -> str:
    """Return what may be the reason that `count` is not larger, for messages."""
    import torch

    if torch.accelerator.current_accelerator() is None:
        return "this torch was installed for the CPU alone"
    return "CUDA_VISIBLE_DEVICES may hide some" if torch.backends.cuda.is_built() else "there may be no more"


def device_type() -> str | None:
    """Return what torch calls accelerators of this machine; None if torch can use none."""
    import torch

    kind = torch.accelerator.current_accelerator()  # That torch was built for. To ask it for those that are there initializes CUDA.
    return kind.type if kind is not None and _module(kind).device_count() else None


def device_of(cuda_idx: int) -> torch.device:
    """Return the accelerator of this index."""
    import torch

    return torch.device(device_type() or "cuda", cuda_idx)  # Without one, torch's error for CUDA says so.


def name(cuda_idx: int) -> str:
    """Return what the maker calls the accelerator of this index."""
    module = _module(device_of(cuda_idx))
    return module.get_device_name(cuda_idx) if hasattr(module, "get_device_name") else f"{device_type()}:{cuda_idx}"


def description(cuda_idx: int) -> str:
    """Return the name and, where torch tells, the memory of the accelerator of this index."""
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
    """Whether a device repeats a recorded sequence of operations in one launch."""
    return device.type != "cpu" and hasattr(_module(device), "CUDAGraph")


def has_bf16(device: torch.device) -> bool:
    """Whether a device, which may be the CPU, has instructions for bfloat16, and need not emulate them."""
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
    """Return an event that is over when everything that has been launched on a device so far is done; `synchronize` waits for it."""
    module = _module(device)
    event = module.Event()
    if hasattr(module, "current_stream"):
        event.record(module.current_stream(device))  # Without it, that of the device in use, which may be another one.
    else:
        event.record()
    return event


def use(device: torch.device) -> None:
    """Make a device the one that libraries take where none is named."""
    module = _module(device)
    if hasattr(module, "set_device"):
        module.set_device(device.index)


def rng_states() -> dict[str, Any]:
    """Return the states of the random numbers of all accelerators in use, by the type of device; {} if none is in use."""
    kind = device_type()
    if kind is None:
        return {}
    module = _module(kind)
    if not hasattr(module, "get_rng_state_all") or not module.is_initialized():
        return {}
    return {kind: module.get_rng_state_all()}


def set_rng_states(states: dict[str, Any]) -> None:
    """Restore what `rng_states` returned, as far as there are such accelerators here; other items are ignored."""
    kind = device_type()
    if kind in states:
        _module(kind).set_rng_state_all(states[kind][: count()])


def _module(device: torch.device | str) -> Any:
    """Return the module of torch for the type of a device, such as `torch.cuda`."""
    import torch

    return torch.get_device_module(device)
