"""Finding snapshots in the directory of a run, and `Snapshotter`, which keeps the snapshots of epochs.

The files are those of `rlpyt.utils.logging.snapshot`: complete at every moment, with checksums. They hold only tensors and plain data, so
loading one runs no code.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import torchrun_rank
from rlpyt.utils.logging.snapshot import check_archive, read_snapshot
from rlpyt.utils.logging.store import ByEpoch, SnapshotFile, SnapshotStore, beside, moved_aside, snapshot_files
from rlpyt.utils.misc import is_file_name
from rlpyt.utils.plain import check_form, shown
from rlpyt.utils.settings import COUNT, PATH, checked
from rlpyt.utils.text import printable

_REPLAY_FORM = dict(directory=str, files=[str])


class NotAFileError(FileNotFoundError):
    """The requested snapshot does not exist."""


class SnapshotConfig(NamedTuple):
    """The directory of snapshots, and which snapshots to keep."""

    snapshot_dir: str | None
    snapshot_mode: str = "last"
    snapshot_gap: int = 1


class Snapshotter:
    """Keeps snapshots of epochs in a directory.

    =================  =======================================================================
    mode               files
    =================  =======================================================================
    ``all``            ``itr_N.pkl`` of every epoch N
    ``last``           ``params.pkl``, of the last epoch
    ``gap``            ``itr_N.pkl`` of every epoch N that is a multiple of the gap
    ``gap_and_last``   both of these; the logger's name for it, ``last+gap``, works too
    ``gap_overwrite``  ``params.pkl``, of the last epoch that is a multiple of the gap
    ``none``           no file
    =================  =======================================================================

    The logger's ``gap``, which runners use, counts differently: a gap ends with iterations 0, gap - 1, 2 gap - 1 and so on.
    A replaced ``params.pkl`` is kept as ``params_previous.pkl``. Of the processes that torchrun started, only the first one saves.

    Args:
        snapshot_dir: directory of the snapshots, made if it does not exist; default ``data/local/experiment`` in the current directory.
        snapshot_mode: which snapshots to keep.
        snapshot_gap: epochs between two snapshots in the modes with a gap.

    Attributes:
        snapshot_dir: absolute path of the directory.
        is_writer: whether this process saves.

    Raises:
        ValueError: the mode is unknown, or the gap is unsuitable for it.
    """

    @checked(snapshot_dir=PATH._replace(optional=True), snapshot_gap=COUNT)
    def __init__(self, snapshot_dir: Any = None, snapshot_mode: str = "last", snapshot_gap: int = 1) -> None:
        self._policy = ByEpoch(snapshot_mode, snapshot_gap)
        directory = os.path.join(os.getcwd(), "data", "local", "experiment") if snapshot_dir is None else os.fspath(snapshot_dir)
        self.snapshot_dir = os.path.abspath(directory)
        self.is_writer = torchrun_rank() == 0
        if self.is_writer:
            os.makedirs(self.snapshot_dir, exist_ok=True)
        self._store = SnapshotStore(self._policy, self.snapshot_dir if self.is_writer else None)

    @property
    def snapshot_mode(self) -> str:
        """The mode, which tells which snapshots are kept."""
        return self._policy.mode

    @property
    def snapshot_gap(self) -> int:
        """Epochs between two snapshots in the modes with a gap."""
        return self._policy.gap

    def is_due(self, itr: int, force: bool = False) -> bool:
        """Return whether `save_itr_params` would save a snapshot of epoch `itr`."""
        return self._store.is_due(itr, force)

    def save_itr_params(self, itr: int, params: Any, force: bool = False) -> bool:
        """Save the snapshot of an epoch if the mode requires it; return whether a snapshot was saved.

        If the disk refuses it, a warning is logged.

        Args:
            itr: number of the epoch.
            params: tensors, arrays, numbers, strings, and dicts, lists and tuples of them.
            force: also save an epoch that is no multiple of the gap, because training ends.

        Raises:
            TypeError: `params` contains an object of another type; the message tells where.
        """
        return self._store.save(itr, params, logger.try_to_write, force)

    def next_training(self) -> int:
        """Return the number of a training that begins now: 1, or one more than the highest in the snapshots of the directory.

        A `Trainer` writes it into its snapshots, under ``trainer`` and ``training``. Several trainings may save in a directory, and a later
        one may have fewer epochs. So a snapshot with a higher number is newer, whatever the epochs are.
        """
        files = snapshot_files(self.snapshot_dir) if os.path.isdir(self.snapshot_dir) else []
        return 1 + int(max((number for number, _ in map(_place_of, files) if number < math.inf), default=0))

    def load(self, load_dir: Any, itr: int | str = "last") -> dict[str, Any]:
        """Return the snapshot of an epoch; arguments and errors are those of `find_snapshot`."""
        return find_snapshot(load_dir, itr)[1]


# --- Finding one ------------------------------------------------------------------------------------------------------
def find_snapshot(load_dir: Any, itr: int | str = "last") -> tuple[Path, dict[str, Any]]:
    """Return the file and the contents of the snapshot of an epoch.

    If the latest run has no snapshot, those of the previous run are used, which were moved aside (``params.1.pkl``).

    Args:
        load_dir: directory of the snapshots, or a snapshot itself.
        itr: number of the epoch; "last" or "first" for the last or first epoch with a readable snapshot. If several trainings of a
            `Trainer` have saved in the directory, "last" is of the newest one, and an epoch is of the newest one that has it.

    Raises:
        ValueError: `itr` is not possible, or no snapshot is readable.
        NotAFileError: there is no snapshot of epoch `itr`.
        FileNotFoundError: there is no snapshot at all, or no such directory.
    """
    if not (itr in ("first", "last") or str(itr).isdecimal()):
        raise ValueError(f"itr={itr!r} must be the number of an epoch, 'first' or 'last'.")
    directory = Path(load_dir)
    if not directory.is_dir():
        return load_snapshot(directory)  # Or raise an error that tells what is missing.
    files = [file for file in snapshot_files(directory) if file.name == "params" or (file.itr is not None and not file.is_previous)]
    if not files:
        raise FileNotFoundError(f"There is no snapshot in {directory}: give the directory of an experiment.")
    latest = max(file.run for file in files)
    files = sorted(file for file in files if file.run == latest)
    is_number = itr not in ("first", "last")
    places = {file: _place_of(file) for file in files if not is_number or file.itr in (None, int(itr))}
    asked, wanted = "", sorted(places, key=places.__getitem__, reverse=True)
    if itr == "first":
        wanted.sort(key=lambda file: places[file].epoch)
    elif is_number:
        asked, wanted = f" of epoch {itr}", [file for file in wanted if places[file].epoch == int(itr)]
    if not wanted:
        raise NotAFileError(f"There is no snapshot{asked} in {directory}, but of {_available({file: _place_of(file) for file in files})}")
    problems = []
    for file in wanted:
        try:
            snapshot = read_snapshot(file.path)
        except ValueError as error:
            problems.append(str(error))
        else:
            for problem in problems:
                logger.warn(printable(f"{problem} Taking {file.path.name}."))
            return file.path, snapshot
    raise ValueError(f"No snapshot{asked} in {directory} is readable. {' '.join(problems)}")


class _Place(NamedTuple):
    """The place of a snapshot among those of a directory. Higher ones were saved later."""

    training: float  # Its number, see `Snapshotter.next_training`. That of a damaged file is infinite, so that the file is noticed.
    epoch: float  # Infinite if it is unknown.


def _place_of(file: SnapshotFile) -> _Place:
    named = math.inf if file.itr is None else file.itr
    try:
        snapshot = _opened(file)
        return _Place(training_of(snapshot), _epoch_of(snapshot) if file.itr is None else named)
    except Exception:  # Damaged files fail in many ways.
        return _Place(math.inf, named)


def _opened(file: SnapshotFile) -> dict[str, Any]:
    """Return the contents of a snapshot without reading its tensors, and without comparing checksums."""
    return torch.load(file.path, map_location="cpu", weights_only=True, mmap=True)


def _available(places: dict[SnapshotFile, _Place]) -> str:
    """Return the epochs of these snapshots as text, and what is wrong with those that tell none."""
    available, problems = [str(epoch) for epoch in sorted({place.epoch for place in places.values()} - {math.inf})], []
    for file in (file for file, place in places.items() if place.epoch == math.inf):
        try:
            read_snapshot(file.path)
            available.append(f"one, in {file.path.name}, that tells no epoch")
        except ValueError as error:
            problems.append(str(error))
    return " ".join([f"{', '.join(available)}.", *problems])


def training_of(snapshot: Any) -> int:
    """Return the number of the training that saved a snapshot, see `Snapshotter.next_training`; 0 if the snapshot tells none."""
    trainer = snapshot.get("trainer") if isinstance(snapshot, dict) else None
    number = trainer.get("training") if isinstance(trainer, dict) else None
    return number if isinstance(number, int) else 0


def _epoch_of(snapshot: Any) -> float:
    """Return the epoch of a snapshot; infinity if it has none, so that it counts as the last one."""
    epoch = snapshot.get("epoch", snapshot.get("itr")) if isinstance(snapshot, dict) else None
    return epoch if isinstance(epoch, int) else math.inf


def load_snapshot(path: Any, replay_needed: bool = False) -> tuple[Path, dict[str, Any]]:
    """Return the file and the contents of a snapshot: the given one, or the newest readable one in the directory of a run.

    Args:
        path: path of the snapshot or directory.
        replay_needed: skip snapshots whose replay files are damaged or missing.

    Raises:
        FileNotFoundError: there is no snapshot.
        ValueError: no snapshot is readable.
    """
    path, files = newest_first(path)
    if not files:
        advice = "give the directory of a run (run_<ID>), or a snapshot file"
        if (path / "params.json").exists():
            advice = "the run has ended before its first one; start it again"
        elif runs := runs_in(path):
            advice = f"give the directory of a run in it, {' or '.join(map(str, runs[:3]))}{' or others' * (len(runs) > 3)}"
        raise FileNotFoundError(f"There is no snapshot in {path}: {advice}.")
    problems = []
    for file in files:
        try:
            snapshot = read_snapshot(file)
            for part in replay_files(file, snapshot.get("replay")) if replay_needed else ():
                check_archive(part)
            return file, snapshot
        except ValueError as error:
            problems.append(str(error))
            if file != files[-1]:
                logger.warn(printable(f"{error} Trying the one before it."))
    raise ValueError(problems[0] if path.is_file() else f"No snapshot in {path} is readable. {' '.join(problems)}")


def runs_in(directory: Path) -> list[Path]:
    """Return the directories of runs, run_<ID>, that are in this one."""
    return sorted(path for path in directory.glob("run_*") if path.is_dir())


def newest_first(path: Any) -> tuple[Path, list[Path]]:
    """Return the current location of `path`, and the snapshots there: the file itself, or those in the directory of a run."""
    path = moved_aside(Path(path))
    return path, [path] if path.is_file() else [file.path for file in sorted(snapshot_files(path), key=_recency, reverse=True)]


def _recency(file: SnapshotFile) -> tuple[bool, float, float, float, bool]:
    """Return a sort key that is higher for snapshots written later. Copying changes the times of files, so they are not used.

    Files of earlier runs, which were moved aside, are older. Within a run, the training of a `Trainer` decides, and within that the number
    of sampled steps. Damaged files count as newest, so that they are noticed. The best snapshot is the last resort: a resumed run begins
    with that of the run before, and that of an asynchronous run has older networks than its number of steps says.
    """
    training = steps = math.inf
    with suppress(Exception):  # Damaged files fail in many ways.
        snapshot = _opened(file)
        check_form(snapshot.get("cum_steps", -1), (int, float), "cum_steps")
        training, steps = training_of(snapshot), snapshot.get("cum_steps", -1)
    return file.name != "best", file.run, training, steps, not file.is_previous


def replay_files(file: Path, replay: dict | None) -> list[Path]:
    """Return the replay files that the snapshot in `file` names; raise ValueError if one is outside of the run's directory."""
    if replay is None:
        return []
    check_form(replay, _REPLAY_FORM, f"replay of {file}")
    for name in (replay["directory"], *replay["files"]):
        if not is_file_name(name):
            raise ValueError(f"replay of {file} names {shown(name)}, which is not in the directory of the run.")
    return [beside(file, replay["directory"]) / name for name in replay["files"]]
