"""The origin of a run: its script, command, machine and packages, and the state and an archive of its git repository."""

from __future__ import annotations

import io
import os
import platform
import socket
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from rlpyt.utils.misc import atomic_write, file_of

LARGE = 8 * 2**20  # bytes
_SECONDS = 60  # seconds that git may take


def launcher() -> str:
    """Return the path of the script that is running, absolute; "<stdin>" without a file, as in a notebook."""
    path = file_of(sys.modules["__main__"])
    return "<stdin>" if path is None else os.path.abspath(path)


def repository_of(path: Any) -> Path | None:
    """Return the root of the git repository that contains a file; None without a repository, or without git."""
    directory = os.path.dirname(path)
    root = _git(directory, "rev-parse", "--show-toplevel") if os.path.isdir(directory) else None
    return Path(os.fsdecode(root.removesuffix(b"\n"))) if root else None


def repository_of_rlpyt() -> Path | None:
    """Return the root of the clone that rlpyt is imported from; None if it is installed from elsewhere."""
    import rlpyt

    root = repository_of(rlpyt.__file__)
    is_tracked = root is not None and _git(root, "ls-files", "--error-unmatch", rlpyt.__file__) is not None
    return root if is_tracked else None  # A virtual environment may lie in the repository of something else.


def describe(script: str, root: Path | None, outputs: Iterable[Path] = ()) -> dict[str, Any]:
    """Return how and where a script is run, for JSON.

    Args:
        script: its absolute path.
        root: root of its git repository; None without one.
        outputs: files and directories that experiments have written, which do not count as changes of the repository.
    """
    facts = dict(launcher=script, **describe_process(), packages=_packages())
    return facts if root is None else {**facts, **git_state(script, root, outputs)}


def describe_process() -> dict[str, Any]:
    """Return when, where and by which command this process was started, for JSON."""
    return dict(
        command=list(sys.orig_argv),
        directory=os.getcwd(),
        host=socket.gethostname(),
        platform=platform.platform(),
        python=platform.python_version(),
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _packages() -> dict[str, str]:
    """Return the versions of all installed packages, by name."""
    metadata = [each.metadata for each in distributions()]
    return dict(sorted((each["Name"], each["Version"]) for each in metadata if each["Name"]))


def git_state(script: str, root: Path, outputs: Iterable[Path]) -> dict[str, Any]:
    """Return commit and state of a script's git repository `root`, for JSON; `outputs` as in `describe`."""
    commit = _git(root, "rev-parse", "--verify", "HEAD")  # None before the first commit.
    tracked = _git(root, "status", "--porcelain", "--untracked-files=no")
    new = _untracked(root, outputs)
    is_dirty = None if tracked is None else bool(tracked.strip() or new)
    githash = None if commit is None else commit.decode().strip() + "-dirty" * bool(is_dirty)
    return dict(githash=githash, git_dirty=is_dirty, git_root_path=str(root), launcher=os.path.relpath(os.path.realpath(script), root))


def archive(root: Path, path: Any, outputs: Iterable[Path] = ()) -> tuple[int, dict[str, int]]:
    """Write the current files of a git repository into a .tar.xz: those that git tracks or does not ignore, without `outputs`.

    Returns:
        Their total bytes; and the sizes by name of files that are left out because they have `LARGE` bytes or more.
    """
    tracked = _names(_git(root, "ls-files", "-z", "--cached"))
    names = sorted({*tracked, *_untracked(root, outputs)})
    total, left_out = 0, {}
    with atomic_write(path) as file, tarfile.open(fileobj=file, mode="w:xz", preset=1) as tar:
        for name in names:
            source = root / name
            try:
                info, contents = _read(source, name)
                if info is None and source.is_file():
                    left_out[name] = source.stat().st_size
            except OSError:  # The file is deleted, or not readable for this user.
                continue
            if info is not None:
                tar.addfile(info, io.BytesIO(contents))
                total += info.size
    return total, left_out


def _untracked(root: Path, outputs: Iterable[Path]) -> list[str]:
    """Return the names of files that git neither tracks nor ignores, except those in `outputs`; one with `root` inside excludes nothing."""
    names = _names(_git(root, "ls-files", "-z", "--others", "--exclude-standard"))
    directories = [output for output in outputs if not root.is_relative_to(output)]
    return [name for name in names if not any((root / name).is_relative_to(directory) for directory in directories)]


def _names(listed: bytes | None) -> list[str]:
    return [os.fsdecode(name) for name in (listed or b"").split(b"\0") if name]


def _read(source: Path, name: str) -> tuple[tarfile.TarInfo | None, bytes]:
    """Return a file's entry for an archive and its contents, read only once, because the file may change. None for files to leave out."""
    status, info, contents = source.lstat(), tarfile.TarInfo(name), b""
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(source)
    elif stat.S_ISREG(status.st_mode) and status.st_size < LARGE:
        contents = source.read_bytes()
        info.size, info.mode = len(contents), stat.S_IMODE(status.st_mode)
    else:
        return None, contents
    info.mtime = int(status.st_mtime)
    return info, contents


def _git(directory: Any, *arguments: str) -> bytes | None:
    """Return the output of a git command; None if it fails, or without git."""
    environment = dict(os.environ, GIT_OPTIONAL_LOCKS="0", LC_ALL="C")
    command = ["git", "-C", os.fspath(directory), *arguments]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, env=environment, timeout=_SECONDS).stdout
    except (OSError, subprocess.SubprocessError):
        return None
