"""Show versions, and what of the machine this process may use.

The affinity code is the one that quick_affinity_code suggests for experiments on this machine.

example:
  rlpyt info
"""

from __future__ import annotations

import argparse
import json
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
    """Return name and value of everything there is to say, in order; values are texts, or lists of them."""
    import torch

    from rlpyt.utils.launching.affinity import quick_affinity_code
    from rlpyt.utils.launching.machine import read_machine

    machine = read_machine()
    return dict(
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        **{package: version_of(package) for package in PACKAGES},
        system=platform.platform(),
        processor=processor_name(),
        machine=machine.describe().splitlines(),
        GPUs=[gpu_name(torch, i) for i in range(torch.cuda.device_count())],
        **{
            "torch threads": f"{torch.get_num_threads()} for operations, {torch.get_num_interop_threads()} between them",
            "affinity code": quick_affinity_code(machine=machine),
        },
    )


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


def gpu_name(torch: Any, index: int) -> str:
    """Return the name and memory of a GPU."""
    properties = torch.cuda.get_device_properties(index)
    return f"{index}: {properties.name}, {properties.total_memory / 2**30:.0f} GiB"
