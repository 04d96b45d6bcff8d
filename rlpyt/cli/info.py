"""Show versions and this machine; check them; or, of the directory of a run, how it was made.

Of a run: its state, when and by which script, command, versions and commit it was started, and all
settings with their values, those that were left at their defaults in brackets. Nothing of it is imported.

Of the machine: what this process may use. The affinity code is the one that quick_affinity_code
suggests for experiments on this machine.

With --check: whether rlpyt works here. It tries shared memory, each start method, compiled functions, the
GPU if there is one, and each extra that is installed, in about half a minute. Nothing is left of it. The
exit code is 0 if nothing failed; docs/installing.md says what helps.

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
from rlpyt.utils.text import printable, show

PACKAGES = ("rlpyt", "torch", "numpy", "gymnasium", "ale-py", "mujoco", "numba", "matplotlib", "tensorboard", "wandb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="RUN_DIR", nargs="?", help="directory of a run; default: versions and this machine")
    parser.add_argument("--check", action="store_true", help="try whether all that is installed works on this machine")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")


def run(args: argparse.Namespace) -> int:
    """Print what there is."""
    if args.check:
        if args.dir is not None:
            raise ValueError(f"--check looks at this machine, not at a run: leave out {args.dir}.")
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
    """Check this installation; print each result as soon as it is there, and return 1 if something failed, else 0."""
    from rlpyt.cli import checks

    start, ended = time.monotonic(), []
    width = max(len(check.name) for check in checks.CHECKS) + 2
    with ended_by_sigterm():
        for result in checks.results(checks.CHECKS):
            ended.append(result)
            if not as_json:
                read_on = f" Read on in {checks.where_to_read_on()}" if result.status == checks.FAILED else ""
                show(f"{result.name:{width}}{result.status:9}{printable(result.detail)}{read_on}")
                sys.stdout.flush()
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
    """SIGTERM raises SystemExit in this block, so that the checks in progress end, and their files are removed, as after Ctrl-C."""
    previous = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def facts_of_this_machine() -> dict[str, Any]:
    """Return name and value of everything there is to say, in order; values are texts, or lists of them."""
    import torch

    from rlpyt.utils.launching.affinity import quick_affinity_code
    from rlpyt.utils.launching.machine import read_machine

    machine, versions = read_machine(), {package: version_of(package) for package in PACKAGES}
    versions["torch"] = str(torch.__version__)  # It tells for which CUDA it was built, too.
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
    """Return what is known of a run, as `facts_of_this_machine` does.

    Raises:
        FileNotFoundError: there is no params.json in the directory.
        ValueError: it is damaged.
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
    return {**{name: fact for name, fact in facts.items() if fact}, **settings}


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
