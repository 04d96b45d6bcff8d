"""Snapshots of epochs: which are kept, and how they are found again.

Files are those of all runs: complete at every moment, with checksums, tensors and plain data only, so that loading runs no code.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import torchrun_rank
from rlpyt.utils.settings import COUNT, PATH, checked
from rlpyt.utils.text import printable

SNAPSHOT_MODES = ("all", "last", "gap", "gap_and_last", "gap_overwrite", "none")
_ALIASES = {"last+gap": "gap_and_last"}  # as the logger calls it
_FILE = re.compile(r"(?P<name>params|params_previous|itr_(?P<epoch>\d+))(\.(?P<aside>\d+))?\.pkl")


class NotAFileError(FileNotFoundError):
    """The snapshot asked for is not there."""


class SnapshotConfig(NamedTuple):
    """Where snapshots are kept, and which."""

    snapshot_dir: str
    snapshot_mode: str = "last"
    snapshot_gap: int = 1


class Snapshotter:
    """Keeps snapshots of epochs in a directory.

    =================  =======================================================================
    mode               files
    =================  =======================================================================
    ``all``            ``itr_N.pkl`` of every epoch N
    ``last``           ``params.pkl``, that of the last epoch
    ``gap``            ``itr_N.pkl`` of every epoch N that is a multiple of the gap
    ``gap_and_last``   both of these; the logger's name for it, ``last+gap``, is understood, too
    ``gap_overwrite``  ``params.pkl``, that of the last epoch that is a multiple of the gap
    ``none``           no file
    =================  =======================================================================

    (The logger's ``gap``, which runners obey, counts otherwise: iterations 0, gap - 1, 2 gap - 1 and so on, which end a gap.)
    A ``params.pkl`` that is replaced stays as ``params_previous.pkl``. Of the processes that torchrun started, only the first one saves.

    Args:
        snapshot_dir: directory of the snapshots, made if need be; default ``data/local/experiment`` in the current directory.
        snapshot_mode: which are kept.
        snapshot_gap: epochs between two snapshots in the modes with a gap.

    Raises:
        ValueError: there is no such mode, or the gap does not go with it.
    """

    @checked(snapshot_dir=PATH._replace(optional=True), snapshot_gap=COUNT)
    def __init__(self, snapshot_dir: Any = None, snapshot_mode: str = "last", snapshot_gap: int = 1) -> None:
        self._snapshot_mode = check_snapshot_mode(snapshot_mode, snapshot_gap)
        self._snapshot_gap = snapshot_gap
        directory = os.path.join(os.getcwd(), "data", "local", "experiment") if snapshot_dir is None else os.fspath(snapshot_dir)
        self._snapshot_dir = os.path.abspath(directory)
        self._is_writer = torchrun_rank() == 0
        if self._is_writer:
            os.makedirs(self._snapshot_dir, exist_ok=True)

    @property
    def snapshot_dir(self) -> str:
        """Directory of the snapshots."""
        return self._snapshot_dir

    @property
    def is_writer(self) -> bool:
        """Whether this process saves: of those that torchrun started, the first one."""
        return self._is_writer

    @property
    def snapshot_mode(self) -> str:
        """Which snapshots are kept."""
        return self._snapshot_mode

    @property
    def snapshot_gap(self) -> int:
        """Epochs between two snapshots in the modes with a gap."""
        return self._snapshot_gap

    def is_due(self, itr: int, force: bool = False) -> bool:
        """Whether `save_itr_params` would save anything of epoch `itr`."""
        return bool(self._names(itr, force))

    def _names(self, itr: int, force: bool) -> list[str]:
        if not self._is_writer:
            return []
        mode = self._snapshot_mode
        in_gap = "gap" in mode and (itr % self._snapshot_gap == 0 or force)
        numbered = mode == "all" or (in_gap and mode != "gap_overwrite")
        overwritten = mode in ("last", "gap_and_last") or (in_gap and mode == "gap_overwrite")
        return [f"itr_{itr}.pkl"] * numbered + ["params.pkl"] * overwritten

    def save_itr_params(self, itr: int, params: Any, force: bool = False) -> bool:
        """Save what belongs to an epoch, if the mode says so; return whether it is safe: False if it was not to be saved.

        If the disk refuses it, a warning is all that happens.

        Args:
            itr: number of the epoch.
            params: tensors, arrays, numbers, strings, and dicts, lists and tuples of them.
            force: save now although it is not a multiple of the gap, because it is the last chance.

        Raises:
            TypeError: `params` holds something else; the message says where.
        """
        names = self._names(itr, force)
        if not names:
            return False
        from rlpyt.utils.logging.snapshot import serialize, write

        data, is_safe = serialize(params), True
        for name in names:
            path = os.path.join(self._snapshot_dir, name)
            is_safe &= logger.try_to_write(path, lambda path=path: write(path, data))
        return is_safe

    def load(self, load_dir: Any, itr: int | str = "last") -> dict[str, Any]:
        """Return the snapshot of an epoch; arguments and errors are those of `find_snapshot`."""
        return find_snapshot(load_dir, itr)[1]


def check_snapshot_mode(mode: str, gap: int = 1) -> str:
    """Return the mode by its own name; ValueError if there is none such, or if `gap` does not go with it."""
    mode = _ALIASES.get(mode, mode)
    if mode not in SNAPSHOT_MODES:
        raise ValueError(f"snapshot_mode={mode!r} is unknown: choose one of {', '.join(SNAPSHOT_MODES)}.")
    if gap < 1:
        raise ValueError(f"snapshot_gap={gap} must be at least 1 epoch.")
    if mode == "last" and gap != 1:
        raise ValueError(f"snapshot_gap={gap} must be 1 in snapshot_mode='last', which keeps the last epoch: choose 'gap_overwrite'.")
    if mode == "gap_overwrite" and gap == 1:
        raise ValueError("snapshot_gap must be more than 1 in snapshot_mode='gap_overwrite': choose 'last', or a gap.")
    return mode


def find_snapshot(load_dir: Any, itr: int | str = "last") -> tuple[Path, dict[str, Any]]:
    """Return the file and the contents of the snapshot of an epoch.

    Files of an earlier run in the same directory, which were put aside (``params.1.pkl``), are looked at if there are no others.

    Args:
        load_dir: directory of the snapshots, or a snapshot itself.
        itr: number of the epoch; "last" or "first" for the last or first of which there is a readable snapshot.

    Raises:
        ValueError: `itr` is something else, or no snapshot is readable.
        NotAFileError: there is no snapshot of epoch `itr`.
        FileNotFoundError: there is no snapshot at all, or no such directory.
    """
    from rlpyt.runners.checkpoint import load_snapshot, read_snapshot

    if not (itr in ("first", "last") or str(itr).isdecimal()):
        raise ValueError(f"itr={itr!r} must be the number of an epoch, 'first' or 'last'.")
    directory = Path(load_dir)
    if not directory.is_dir():
        return load_snapshot(directory)  # Or an error that says what is missing.
    matches = [match for file in directory.iterdir() if (match := _FILE.fullmatch(file.name))]
    if not matches:
        raise FileNotFoundError(f"There is no snapshot in {directory}: give the directory of an experiment.")
    run = max(matches, key=_recency)["aside"]
    files = {match["name"]: directory / match[0] for match in matches if match["aside"] == run}
    numbered = {int(name.removeprefix("itr_")): file for name, file in files.items() if name.startswith("itr_")}
    if str(itr).isdecimal() and int(itr) in numbered:
        return numbered[int(itr)], read_snapshot(numbered[int(itr)])
    readable, problems = {}, []  # those without a number in their names, by epoch
    for name in ("params", "params_previous"):
        try:
            if name in files:
                snapshot = read_snapshot(files[name])
                readable.setdefault(_epoch_of(snapshot), (files[name], snapshot))
        except ValueError as error:
            problems.append(str(error))
    if str(itr).isdecimal():
        if int(itr) in readable:
            return readable[int(itr)]
        there = [str(epoch) for epoch in sorted({*numbered, *readable} - {math.inf})]
        there += [f"one, in {readable[math.inf][0].name}, that tells no epoch"] if math.inf in readable else []
        raise NotAFileError(f"There is no snapshot of epoch {itr} in {directory}, but of {', '.join(there)}. {' '.join(problems)}".rstrip())
    for epoch in sorted({*numbered, *readable}, reverse=itr == "last"):
        try:
            found = readable.get(epoch) or (numbered[epoch], read_snapshot(numbered[epoch]))
        except ValueError as error:
            problems.append(str(error))
        else:
            for problem in problems:
                logger.warn(printable(f"{problem} Taking {found[0].name}."))
            return found
    raise ValueError(f"No snapshot in {directory} is readable. {' '.join(problems)}")


def _recency(match: re.Match) -> float:
    """The higher, the later the run a file belongs to: the present one, then those put aside, the last one first."""
    return int(match["aside"]) if match["aside"] else math.inf


def _epoch_of(snapshot: Any) -> float:
    """Number of the epoch of a snapshot; infinite, so that it counts as the last one, if it does not tell."""
    epoch = snapshot.get("epoch", snapshot.get("itr")) if isinstance(snapshot, dict) else None
    return epoch if isinstance(epoch, int) else math.inf
