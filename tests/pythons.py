"""Does rlpyt install and work under each Python that is on this machine?

    python tests/pythons.py [--only 3.12 3.13] [--extras atari,plot] [--tests tests/utils] [--keep DIRECTORY]

Of each version that rlpyt is made for, the newest interpreter is taken that is found on PATH, among the versions of pyenv, or among those
of uv. With each, a copy of the working tree is installed into a virtual environment of its own, with the versions of constraints.txt.
Then follow ``rlpyt info --check``, ``examples/example_0.py --smoke`` and the quick tests. What comes after a step that fails is left
out. A table says how it went, and the exit code is 1 if anything failed. An environment takes 2 GB, or 6 GB where torch comes with CUDA,
and is removed before the next one is made, unless --keep is given. It takes too long for CI.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from mutations import copy_tree

from rlpyt.utils.text import table

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
STEPS = ("install", "check", "example_0", "tests")
STEP_SECONDS = 3600.0  # At the most.
SHOWN_LINES = 40  # of the output of a step that failed
LEFT_OUT = "-"


def candidates(version: str) -> list[str]:
    """Return the places where an interpreter of a version such as "3.12" may be."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR", os.path.expanduser("~/.local/share/uv/python"))
    on_path = [os.path.join(directory, f"python{version}") for directory in os.environ.get("PATH", "").split(os.pathsep) if directory]
    return [
        *on_path,
        *glob.glob(f"{glob.escape(pyenv)}/versions/{version}.*/bin/python"),
        *glob.glob(f"{glob.escape(uv)}/cpython-{version}.*/bin/python"),
    ]


def interpreters(versions: Iterable[str] = VERSIONS) -> dict[str, str]:
    """Return the newest interpreter of each of these versions that there is: version, as in "3.12.1" -> path."""
    found = {}
    for version in versions:
        complete = [(full_version(path), path) for path in candidates(version) if os.access(path, os.X_OK)]
        complete = [(numbers, path) for numbers, path in complete if numbers[:2] == tuple(map(int, version.split(".")))]
        if complete:
            numbers, path = max(complete)
            found[".".join(map(str, numbers))] = path
    return found


def full_version(path: str) -> tuple[int, ...]:
    """Return (3, 12, 1), or () if this is no interpreter that works, such as a shim of pyenv for a version that is not chosen."""
    try:
        out = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:3])"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(map(int, out.stdout.split())) if out.returncode == 0 else ()


def commands(python: str, extras: str, tests: Sequence[str]) -> dict[str, list[list[str]]]:
    """Return the command lines of each step, to run in a copy of the tree. The environment is the directory venv in it."""
    in_venv = os.path.join("venv", "bin", "python")
    pip = [in_venv, "-m", "pip", "install", "-q"]
    return dict(
        install=[
            [python, "-m", "venv", "venv"],
            [*pip, "--upgrade", "pip"],  # The one of Python 3.10 had not chosen versions of all extras after eight minutes.
            [*pip, "-c", "constraints.txt", "-e", f".[{extras}]"],
        ],
        check=[[in_venv, "-m", "rlpyt", "info", "--check"]],
        example_0=[[in_venv, "examples/example_0.py", "--smoke"]],
        tests=[[in_venv, "-m", "pytest", *tests]],
    )


def run_steps(steps: dict[str, list[list[str]]], directory: Path) -> list[str]:
    """Run the steps in a directory, and return a word on each: its seconds, or that it failed, after which the others are left out."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    words: list[str] = []
    for lines in steps.values():
        start = time.monotonic()
        if words and not is_ok(words[-1]):
            words.append(LEFT_OUT)
        elif all(succeeds(line, directory, environment) for line in lines):
            words.append(f"{time.monotonic() - start:.0f} s")
        else:
            words.append("FAILED")
    return words


def is_ok(word: str) -> bool:
    """Whether this is what `run_steps` says of a step that went well."""
    return word.endswith(" s")


def succeeds(line: list[str], directory: Path, environment: dict[str, str]) -> bool:
    """Run a command line; if it fails, print the end of its output."""
    with tempfile.TemporaryFile() as output:
        try:
            kwargs = dict(cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            code = subprocess.run(line, timeout=STEP_SECONDS, **kwargs).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            code = str(error)
        if code == 0:
            return True
        output.seek(0)
        last = output.read().decode(errors="replace").splitlines()[-SHOWN_LINES:]
    print("\n".join([f"\n{' '.join(line)}: {code}", *last]), file=sys.stderr)
    return False


def main(argv: Sequence[str] | None = None) -> int:
    """Do it, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="VERSION", nargs="+", choices=VERSIONS, default=VERSIONS, help="such as 3.12; default: all")
    parser.add_argument("--extras", help="to install, with commas; default: test, which has all that is tested", default="test")
    parser.add_argument("--tests", metavar="PATH", nargs="+", default=[], help="files or directories of tests; default: the quick tests")
    parser.add_argument("--without", metavar="STEP", nargs="+", choices=STEPS[1:], default=[], help=f"leave out some of {STEPS[1:]}")
    parser.add_argument("--keep", metavar="DIRECTORY", type=Path, help="where to put copies and environments, and leave them")
    args = parser.parse_args(argv)
    rows, found = [["Python", *STEPS]], interpreters(args.only)
    for version, python in found.items():
        if args.keep is not None:
            args.keep.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"python-{version}-", dir=args.keep))
        try:
            copy_tree(ROOT, directory)
            steps = {step: lines for step, lines in commands(python, args.extras, args.tests).items() if step not in args.without}
            words = dict(zip(steps, run_steps(steps, directory)))
        finally:
            if args.keep is None:
                shutil.rmtree(directory, ignore_errors=True)
        rows.append([version, *(words.get(step, LEFT_OUT) for step in STEPS)])
        print("  ".join(rows[-1]), flush=True)
    print("\n" + table(rows, right=range(1, len(STEPS) + 1), rule=True))
    missing = [version for version in args.only if not any(full.startswith(f"{version}.") for full in found)]
    if missing:
        print(f"\nNo interpreter was found of {', '.join(missing)}.")
    return int(any("FAILED" in row for row in rows) or not found)


if __name__ == "__main__":
    sys.exit(main())
