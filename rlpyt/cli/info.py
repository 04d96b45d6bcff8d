"""Show versions and this machine, check the installation, or show how a run was made.

For a run: its state; time, script, command, versions and commit of its start; and all settings with their
values, with defaults in brackets. No code of the run is imported.

For the machine: the resources that this process may use. The affinity code is the suggestion of
quick_affinity_code for experiments on this machine.

With --check: whether rlpyt works here. This tries shared memory, each start method, compiled functions, the
GPU if there is one, and each installed extra, in about half a minute, and leaves no files or processes.
The exit code is 0 if nothing failed; docs/installing.md says what helps.

examples:
  rlpyt info
  rlpyt info --check
  rlpyt info data/local/20260101/120000/cartpole_ppo/run_0
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from rlpyt.utils import accelerator
from rlpyt.utils.text import CompletedStream, printable, show

PACKAGES = ("rlpyt", "torch", "numpy", "gymnasium", "ale-py", "mujoco", "numba", "matplotlib", "tensorboard", "wandb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="RUN_DIR", nargs="?", help="directory of a run; default: versions and this machine")
    parser.add_argument("--check", action="store_true", help="check whether everything installed works on this machine")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")


def run(args: argparse.Namespace) -> int:
    """Print checks, or the facts of this machine or of a run."""
    if args.check:
        if args.dir is not None:
            raise ValueError(f"--check is for this machine, not for a run: leave out {args.dir}.")
        return print_checks(args.json)
    facts = facts_of_this_machine() if args.dir is None else facts_of_run(Path(args.dir))
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    facts = {printable(name): fact for name, fact in facts.items()}
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        values = value if isinstance(value, list) else [value]
        for i, each in enumerate(values or ["none"]):
            show(f"{name if i == 0 else '':{width}}{printable(each)}")
    return 0


def print_checks(as_json: bool) -> int:
    """Check this installation, printing each result as soon as possible; return 1 if a check failed, else 0."""
    from rlpyt.cli import checks

    start, ended = time.monotonic(), []
    width = max(len(check.name) for check in checks.CHECKS) + 2
    with ended_by_sigterm():
        for result in checks.results(checks.CHECKS):
            ended.append(result)
            if not as_json:
                read_on = f" Read on in {checks.where_to_read_on()}" if result.status == checks.FAILED else ""
                show(f"{result.name:{width}}{result.status:9}{printable(result.detail)}{read_on}")
                CompletedStream(sys.stdout).flush()
    counts = Counter(result.status for result in ended)
    if as_json:
        print(json.dumps([dataclasses.asdict(result) for result in ended], indent=2))
    else:
        parts = {checks.OK: "ok", checks.MISSING: "not installed", checks.NONE: "not there", checks.FAILED: "FAILED"}
        counted = ", ".join(f"{counts[status]} {words}" for status, words in parts.items() if counts[status])
        show(f"\n{counted}, in {time.monotonic() - start:.0f} s.")
    return int(counts[checks.FAILED] > 0)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM in this block, so that running checks end and their files are removed, as after Ctrl-C."""
    previous = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def facts_of_this_machine() -> dict[str, Any]:
    """Return all facts by name, in order of display; values are strings, or lists of them."""
    import torch

    from rlpyt.utils.launching.affinity import quick_affinity_code
    from rlpyt.utils.launching.machine import read_machine

    machine, versions = read_machine(), {package: version_of(package) for package in PACKAGES}
    versions["torch"] = str(torch.__version__)  # also names the CUDA version of the build
    return dict(
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        **versions,
        system=platform.platform(),
        processor=processor_name(),
        machine=machine.describe().splitlines(),
        GPUs=[f"{i}: {accelerator.description(i)}" for i in range(accelerator.count())],
        **{
            "torch threads": f"{torch.get_num_threads()} for operations, {torch.get_num_interop_threads()} between them",
            "affinity code": quick_affinity_code(machine=machine),
        },
    )


def facts_of_run(run_dir: Path) -> dict[str, Any]:
    """Return the facts of a run, in the form of `facts_of_this_machine`.

    Raises:
        FileNotFoundError: there is no params.json in the directory.
        ValueError: params.json is damaged.
    """
    from rlpyt.utils.launching.status import run_status
    from rlpyt.utils.logging.runs import read_params

    params, status = read_params(run_dir / "params.json"), run_status(run_dir)
    try:
        return _facts(run_dir, params, status)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{run_dir / 'params.json'} is damaged, or of another program: {type(error).__name__}: {error}.") from error


def _facts(run_dir: Path, params: dict[str, Any], status: Any) -> dict[str, Any]:
    from rlpyt.utils.logging.runs import RECORD, read_settings, recorded_settings

    record = params.get(RECORD, {})
    packages = [f"{name} {version}" for name, version in record.get("packages", {}).items()]
    of_total = f" of {status.n_steps:,}" if status.n_steps else ""
    facts = dict(
        run=str(run_dir.resolve()),
        name=str(params.get("name")),
        status=f"{status.state}, {status.steps or 0:,}{of_total} environment steps",
        started=record.get("started"),
        resumed=[each.get("started") for each in record.get("resumed", [])],
        script=record.get("script", {}).get("file"),
        commit=record.get("githash"),
        command=shlex.join(map(str, record.get("command", []))),
        directory=record.get("directory"),
        host=record.get("host"),
        versions=", ".join([f"python {record.get('python')}", *packages]) if record else None,
    )
    defaults = recorded_settings(record).keys() - recorded_settings(record, with_defaults=False).keys()
    settings = {name: f"({value})" if name in defaults else str(value) for name, value in read_settings(run_dir).items()}
    facts = {name: fact for name, fact in facts.items() if fact}
    return {**facts, **settings, **facts}  # A setting of the user may be called like a fact.


def version_of(package: str) -> str:
    """Return the version of an installed package; for rlpyt, of the code in use."""
    if package == "rlpyt":
        import rlpyt

        return f"{rlpyt.__version__}, in {Path(rlpyt.__file__).parent}"
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor_name() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
