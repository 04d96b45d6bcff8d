"""Which snapshots are kept, where, and under which names.

`rlpyt.utils.logging.snapshot` writes and reads the files. It imports torch, which some logging processes do without; this module does not.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

_FILE = re.compile(r"(?P<name>params|best|itr_\d+)(?P<previous>_previous)?(\.(?P<aside>\d+))?\.pkl")


class Policy(Protocol):
    """Which snapshots are kept."""

    def names(self, itr: int, force: bool = False, score: float | None = None) -> list[str]:
        """Return the names of the files to write after iteration or epoch `itr`; with `force` also between two gaps.

        `score` is the mean return, None if it is unknown.
        """

    def wrote(self, name: str, itr: int, score: float | None) -> None:
        """Record that the file `name` is on the disk."""
        return None


@dataclass
class ByIteration(Policy):
    """The policy of the logger, for runners. See `rlpyt.utils.logging.logger.set_snapshot_mode` for the modes.

    A runner can save after some iterations only. Iteration 0 gets a snapshot, and so does the first such iteration at or after each of
    gap - 1, 2 * gap - 1, ...
    """

    MODES = ("none", "last", "all", "gap", "last+gap", "best")

    mode: str = "last"
    gap: int = 1  # iterations
    last_itr: int = -1  # The newest itr_N.pkl.
    best_score: float = -math.inf  # The score of best.pkl.

    def names(self, itr: int, force: bool = False, score: float | None = None) -> list[str]:
        is_overwritten = self.mode in ("last", "last+gap", "best")
        is_numbered = self.mode == "all" or (self.mode == "gap" and force) or ("gap" in self.mode and self._is_gap_over(itr))
        return ["params.pkl"] * is_overwritten + [f"itr_{itr}.pkl"] * is_numbered + ["best.pkl"] * self.is_best(score)

    def is_best(self, score: float | None) -> bool:
        """Return whether a snapshot with this score is one for best.pkl."""
        return self.mode == "best" and score is not None and score > self.best_score

    def _is_gap_over(self, itr: int) -> bool:
        return itr == 0 or (itr + 1) // self.gap > (self.last_itr + 1) // self.gap

    def wrote(self, name: str, itr: int, score: float | None) -> None:
        if name.startswith("itr_"):
            self.last_itr = itr
        if name == "best.pkl" and score is not None:
            self.best_score = score


@dataclass
class ByEpoch(Policy):
    """The policy of `rlpyt.runners.snapshots.Snapshotter`, which lists the modes. Every epoch is offered: gaps end at multiples of `gap`.

    Raises:
        ValueError: the mode is unknown, or the gap is not possible in it.
    """

    MODES = ("all", "last", "gap", "gap_and_last", "gap_overwrite", "none")

    mode: str = "last"
    gap: int = 1  # epochs

    def __post_init__(self) -> None:
        self.mode = {"last+gap": "gap_and_last"}.get(self.mode, self.mode)  # The logger's name for this mode.
        if self.mode not in self.MODES:
            raise ValueError(f"snapshot_mode={self.mode!r} is unknown: choose one of {', '.join(self.MODES)}.")
        if self.gap < 1:
            raise ValueError(f"snapshot_gap={self.gap} must be at least 1 epoch.")
        if self.mode == "last" and self.gap != 1:
            raise ValueError(
                f"snapshot_gap={self.gap} must be 1 in snapshot_mode='last', which keeps the last epoch: choose 'gap_overwrite'."
            )
        if self.mode == "gap_overwrite" and self.gap == 1:
            raise ValueError("snapshot_gap must be more than 1 in snapshot_mode='gap_overwrite': choose 'last', or a gap.")

    def names(self, itr: int, force: bool = False, score: float | None = None) -> list[str]:
        in_gap = "gap" in self.mode and (itr % self.gap == 0 or force)
        is_numbered = self.mode == "all" or (in_gap and self.mode != "gap_overwrite")
        is_overwritten = self.mode in ("last", "gap_and_last") or (in_gap and self.mode == "gap_overwrite")
        return [f"itr_{itr}.pkl"] * is_numbered + ["params.pkl"] * is_overwritten


@dataclass
class SnapshotStore:
    """Keeps the snapshots that a policy selects in a directory.

    Args:
        policy: which snapshots are kept.
        directory: where they are kept; None keeps none.
    """

    policy: Policy
    directory: str | None = None

    def is_due(self, itr: int, force: bool = False) -> bool:
        """Return whether `save` would write anything."""
        return self.directory is not None and bool(self.policy.names(itr, force))

    def save(
        self,
        itr: int,
        params: Any,
        attempt: Callable[[str, Callable[[], None]], bool],
        force: bool = False,
        score: float | None = None,
        only_in_best: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write `params` to the files that the policy names; return whether all are safe, False if it names none.

        Args:
            itr, force, score: as in `Policy.names`.
            params: contents of the files, see `rlpyt.utils.logging.snapshot.loadable`.
            attempt: called with a path and a function that writes it; returns whether the write succeeded.
            only_in_best: entries that best.pkl has in place of those in `params`.
        """
        if self.directory is None or not self.is_due(itr, force):
            return False
        from rlpyt.utils.logging.snapshot import serialize, write

        data, is_safe = serialize(params), True
        for name in self.policy.names(itr, force, score):
            path = os.path.join(self.directory, name)
            own = serialize({**params, **only_in_best}) if only_in_best and name == "best.pkl" else data
            if attempt(path, partial(write, path, own)):
                self.policy.wrote(name, itr, score)
            else:
                is_safe = False
        return is_safe


class SnapshotFile(NamedTuple):
    """The information in the name of a snapshot file."""

    path: Path
    name: str  # "params", "best" or "itr_<number>"
    is_previous: bool  # ``params_previous.pkl``
    run: float  # The number under which a later run moved it aside, 2 for ``params.2.pkl``; infinite for files of the latest run.

    @property
    def itr(self) -> int | None:
        """Number of the iteration or epoch, if the name has one."""
        return int(self.name.removeprefix("itr_")) if self.name.startswith("itr_") else None


def snapshot_files(run_dir: Any) -> list[SnapshotFile]:
    """Return the snapshots in the directory of a run, in any order; FileNotFoundError without this directory."""
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise FileNotFoundError(f"{run_dir} does not exist.")
    matches = [(path, match) for path in run_dir.iterdir() if (match := _FILE.fullmatch(path.name))]
    return [SnapshotFile(path, m["name"], m["previous"] is not None, float(m["aside"] or math.inf)) for path, m in matches]


def beside(file: Path, name: str) -> Path:
    """Return the file called `name` of a snapshot's run: ``progress.2.csv`` for ``params.2.pkl``, if a later run has moved both aside."""
    number = re.search(r"\.\d+(?=\.pkl$)", file.name)
    stem, extension = os.path.splitext(name)
    return file.parent / f"{stem}{number[0] if number else ''}{extension}"


def moved_aside(path: Path) -> Path:
    """Return the current path of a snapshot: ``params.2.pkl`` if a later run in its directory has moved ``params.pkl`` aside."""
    if path.exists() or path.suffix != ".pkl" or not path.parent.is_dir():
        return path
    pattern = re.compile(rf"{re.escape(path.stem)}\.(\d+)\.pkl")
    return max(((int(m[1]), file) for file in path.parent.iterdir() if (m := pattern.fullmatch(file.name))), default=(0, path))[1]
