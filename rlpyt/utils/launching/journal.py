"""The journal of a search: one line of JSON for each event, from which everything about the search is computed again.

    {"event": "launch", "at": 1.0, "n_slots": 2}                   a launcher begins
    {"event": "trial", "trial": 0, "values": [0.001]}              these settings are tried, up to rung 0
    {"event": "begin", "trial": 0, "rung": 0, "run": 1, "slot": 0, "at": 1.0}
    {"event": "end", "trial": 0, "rung": 0, "run": 1, "at": 9.0, "outcome": "reached", "return": 21.5, "steps": 2000}
    {"event": "promote", "trial": 0, "rung": 1}                    the trial trains on, up to rung 1
    {"event": "stop", "trials": [0], "at": 9.5}                    too many trials failed at once: the next launcher tries these again

A run that has begun ends with the outcome "reached", "failed" (with "error") or "interrupted"; after the last one it begins again. Without
an end, its launcher was killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlpyt.utils.launching.halving import Trial, plain_number, promoted, steps_taken

SEARCH, JOURNAL = "search.json", "search.jsonl"  # the arguments of a search, and its journal


class Journal:
    """The file. One process at a time appends; others may read at any time.

    Args:
        path: the file, which is made if necessary. An incomplete last line, of a process killed while writing it, is removed.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        os.ftruncate(self._descriptor, sum(map(len, _complete_lines(path))))

    def append(self, event: dict[str, Any]) -> None:
        """Write an event. When this returns, the event survives everything; before, there is either all of it or nothing."""
        line = (json.dumps(event) + "\n").encode()
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) != len(line):
                raise OSError("The disk is full: the journal of the search cannot be written.")
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the events so far, without an incomplete last line; [] without a file.

    Raises:
        ValueError: a line is no event.
    """
    if not path.exists():
        return []
    events = []
    for number, line in enumerate(_complete_lines(path), 1):
        try:
            event = json.loads(line)
            _check_fields(event)
        except DAMAGED as error:
            raise is_damaged(path, number, error) from None
        events.append(event)
    return events


def is_damaged(path: Path, number: int, error: Exception) -> ValueError:
    """Return the error of a journal with a wrong line, which people may have edited."""
    why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
    return ValueError(f"{path} is damaged: line {number} is no event of this search ({why}): restore the file from a copy.")


def _complete_lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError)  # what reading or applying a damaged line raises
_NUMBER = (int, float)
_FIELDS: dict[str, dict[str, Any]] = dict(
    launch=dict(at=_NUMBER, n_slots=int),
    trial=dict(trial=int, values=list),
    begin=dict(trial=int, rung=int, run=int, slot=int, at=_NUMBER),
    end=dict(trial=int, rung=int, run=int, outcome=str, at=_NUMBER),
    promote=dict(trial=int, rung=int),
    stop=dict(trials=list, at=_NUMBER),
)
_MAY_BE_NONE: dict[str, Any] = {"return": _NUMBER, "steps": _NUMBER, "error": str}


def _check_fields(event: Any) -> None:
    """Raise one of DAMAGED unless this is an event, with values of the right types."""
    if not isinstance(event, dict) or event.get("event") not in list(_FIELDS):
        raise ValueError(f"the event must be one of {', '.join(_FIELDS)}")
    optional = {name: kind for name, kind in _MAY_BE_NONE.items() if event.get(name) is not None}
    for name, kind in {**_FIELDS[event["event"]], **optional}.items():
        if not isinstance(event[name], kind):
            raise TypeError(f"{name} cannot be {event[name]!r}")


_OUTCOMES = ("reached", "failed", "interrupted")


def _demand(condition: bool, why_not: str) -> None:
    if not condition:
        raise ValueError(why_not)


class History:
    """The state of a search after the events of its journal.

    Args:
        n_runs: runs of each trial.
        rungs: environment steps of each rung.
        eta: see `rlpyt.utils.launching.halving.promoted`.

    Attributes:
        trials: all trials, in the order of proposals.
        scored: (environment steps of all runs so far, number of the trial, its rung, its score) in the order of time.
        to_retry: numbers of the failed trials that the next launcher tries again, because the search has stopped itself.
        tried_again: numbers of those that a launcher has tried again.
        launches: for each launcher, when it began, its number of slots, and the (begin, end) of its runs; `end` is None while one runs.
        last: when the last event of the last launcher was (seconds since the epoch).
    """

    def __init__(self, n_runs: int, rungs: Sequence[int], eta: float) -> None:
        self.n_runs, self.rungs, self.eta = n_runs, list(rungs), eta
        self.trials: list[Trial] = []
        self.scored: list[tuple[int, int, int, float]] = []
        self.to_retry: set[int] = set()
        self.tried_again: set[int] = set()
        self.launches: list[dict[str, Any]] = []

    def apply(self, event: dict[str, Any]) -> None:
        """Apply one event; raise ValueError if it cannot follow those before."""
        getattr(self, f"_{event['event']}")(event)
        if "at" in event and self.launches:
            self.launches[-1]["last"] = max(self.launches[-1]["last"], event["at"])

    def _launch(self, event: dict[str, Any]) -> None:
        for number in self.to_retry:
            self.trials[number].error = None
        self.tried_again |= self.to_retry
        self.to_retry = set()
        self.launches.append(dict(at=event["at"], last=event["at"], n_slots=event["n_slots"], runs={}, ended=[]))

    def _trial(self, event: dict[str, Any]) -> None:
        _demand(event["trial"] == len(self.trials), f"trial {len(self.trials)} comes next, not {event['trial']}")
        self.trials.append(Trial(event["trial"], event["values"]))

    def _promote(self, event: dict[str, Any]) -> None:
        trial = self._known(event["trial"])
        _demand(event["rung"] == trial.rung + 1 < len(self.rungs), f"trial {trial.number} is at rung {trial.rung}")
        trial.promote()

    def _stop(self, event: dict[str, Any]) -> None:
        self.to_retry |= {self._known(number).number for number in event["trials"]}

    def _begin(self, event: dict[str, Any]) -> None:
        self._check_run(event)
        self.launches[-1]["runs"][event["trial"], event["run"]] = event["at"]

    def _end(self, event: dict[str, Any]) -> None:
        self._check_run(event)
        _demand(event["outcome"] in _OUTCOMES, f"the outcome must be one of {', '.join(_OUTCOMES)}")
        trial, run_ID, launch = self.trials[event["trial"]], event["run"], self.launches[-1]
        if (event["trial"], run_ID) in launch["runs"]:
            launch["ended"].append((launch["runs"].pop((event["trial"], run_ID)), event["at"]))
        if event.get("steps") is not None:
            trial.steps[run_ID] = event["steps"]
        if event["outcome"] == "failed":
            trial.error = event.get("error") or "it failed"
        elif event["outcome"] == "reached":
            trial.returns[event["rung"]][run_ID] = plain_number(event.get("return"))
            if len(trial.returns[event["rung"]]) == self.n_runs:
                self.scored.append((steps_taken(self.trials), trial.number, event["rung"], trial.scores(self.n_runs)[event["rung"]]))

    def _known(self, number: int) -> Trial:
        _demand(isinstance(number, int) and 0 <= number < len(self.trials), f"there is no trial {number} before it")
        return self.trials[number]

    def _check_run(self, event: dict[str, Any]) -> None:
        trial = self._known(event["trial"])
        _demand(0 <= event["run"] < self.n_runs, f"a trial has the runs 0 to {self.n_runs - 1}")
        _demand(0 <= event["rung"] <= trial.rung, f"trial {trial.number} is at rung {trial.rung}")
        _demand(bool(self.launches), "there is no launch before it")

    @property
    def has_reached(self) -> bool:
        """Whether any run has reached a rung."""
        return any(trial.returns[0] for trial in self.trials)

    def to_promote(self, at_least: int = 0) -> Trial | None:
        """Return the trial to promote now, or None, as `halving.promoted` does."""
        return promoted(self.trials, len(self.rungs), self.n_runs, self.eta, at_least)

    def waiting(self) -> list[tuple[Trial, int]]:
        """Return trials with the run_IDs of their runs that have not reached the trial's rung, higher rungs first."""
        active = sorted((trial for trial in self.trials if trial.error is None), key=lambda trial: (-trial.rung, trial.number))
        return [(trial, run_ID) for trial in active for run_ID in range(self.n_runs) if run_ID not in trial.returns[trial.rung]]

    def busy_share(self, until_last_begin: bool = False) -> float | None:
        """Return the part of the time of all slots in which they had a run; None before any run has begun.

        Args:
            until_last_begin: count only the time until the last run of each launcher began. After that, slots have nothing to do. A
                launcher that has used no slot twice does not count: until its last run began, it was still filling its slots. None if no
                launcher counts.
        """
        busy = there = 0.0
        for launch in self.launches:
            begins = [begin for begin, _ in launch["ended"]] + list(launch["runs"].values())
            if not begins or (until_last_begin and all(stop > max(begins) for _, stop in launch["ended"])):
                continue
            end = max(begins) if until_last_begin else launch["last"]
            spans = [*launch["ended"], *((begin, end) for begin in launch["runs"].values())]
            busy += sum(max(min(stop, end) - begin, 0.0) for begin, stop in spans)
            there += launch["n_slots"] * (end - launch["at"])
        return busy / there if there > 0 else None
