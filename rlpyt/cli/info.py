"""Show versions, and what of the machine this process may use.

The affinity code at the end is what rlpyt.utils.launching suggests for sweeps on this machine.

example:
  rlpyt info
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("rlpyt", "torch", "numpy", "gymnasium", "ale-py", "mujoco", "numba", "matplotlib", "tensorboard", "wandb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")


def run(args: argparse.Namespace) -> int:
    """Print what there is."""
    facts = facts_of_this_machine()
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        values = value if isinstance(value, list) else [value]
        for i, each in enumerate(values or ["none"]):
            print(f"{name if i == 0 else '':{width}}{each}")
    return 0


def facts_of_this_machine() -> dict[str, Any]:
    """Return name and value of everything there is to say, in order; values are texts, numbers or lists of them."""
    import psutil
    import torch

    cpus = allowed_cpus()
    gib = psutil.virtual_memory()
    facts = dict(
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        **{package: version_of(package) for package in PACKAGES},
        system=platform.platform(),
        processor=processor_name(),
        CPUs=f"{len(cpus)} allowed of {os.cpu_count()}: {ranges(cpus)}",
        memory=f"{gib.total / 2**30:.1f} GiB, {gib.available / 2**30:.1f} GiB available",
        GPUs=[gpu_name(torch, i) for i in range(torch.cuda.device_count())],
    )
    facts["torch threads"] = f"{torch.get_num_threads()} for operations, {torch.get_num_interop_threads()} between them"
    try:
        from rlpyt.utils.launching.affinity import quick_affinity_code
    except ImportError:
        return facts
    facts["affinity code"] = quick_affinity_code()
    return facts


def version_of(package: str) -> str:
    """Return the version of an installed package; of rlpyt, that of the code in use."""
    if package == "rlpyt":
        import rlpyt

        return f"{rlpyt.__version__}, in {Path(rlpyt.__file__).parent}"
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor_name() -> str:
    """Return what the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def allowed_cpus() -> list[int]:
    """Return the numbers of the logical processors that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def ranges(numbers: list[int]) -> str:
    """Return sorted integers as "0-3, 8, 10-11"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def gpu_name(torch: Any, index: int) -> str:
    """Return the name and memory of a GPU."""
    properties = torch.cuda.get_device_properties(index)
    return f"{index}: {properties.name}, {properties.total_memory / 2**30:.0f} GiB"
