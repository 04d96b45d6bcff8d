"""Searches: many trials of a train script, of which only the good ones train on.

    space = dict(algo=dict(learning_rate=log_uniform(1e-5, 1e-2)))
    run_search("train.py", encode_affinity(n_cpu_core=8), space, "my_search", n_trials=30, max_steps=1e6)

Trials are runs as those of `run_experiments`: the same scripts, slots and files. `rlpyt.utils.launching.halving` decides which trials are
promoted; a promoted trial resumes its runs from their snapshots. A search writes only to its directory, which
`rlpyt.utils.launching.search_dir` describes.
"""

from __future__ import annotations

import csv
import json
import math
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from rlpyt.utils.launching.affinity import CODE
from rlpyt.utils.launching.exp_launcher import LIST, StillRunning, no_text, only_launcher, start_in_slot, updated
from rlpyt.utils.launching.halving import WORST, Trial, plain_number, rungs
from rlpyt.utils.launching.journal import JOURNAL, SEARCH, Journal
from rlpyt.utils.launching.proposals import METHODS, default_method, make_proposals
from rlpyt.utils.launching.search_dir import BEST, Search, Settings, read_settings_of
from rlpyt.utils.launching.search_status import format_search
from rlpyt.utils.launching.space import Space
from rlpyt.utils.launching.status import (
    SNAPSHOT_MISSING,
    RunStatus,
    error_in,
    last_lines,
    mark,
    plural,
    read_mark,
    run_status,
    says_complete,
)
from rlpyt.utils.launching.sweep import END_GRACE, MAX_IMMEDIATE_FAILURES, SAVE_GRACE, UNMARKED, Run, Sweep, say
from rlpyt.utils.launching.variant import as_saved, load_variant, save_variant
from rlpyt.utils.logging.context import EXITS_BY_SIGNAL, get_log_dir
from rlpyt.utils.logging.runs import PROGRESS, PUT_ASIDE, RETURN_COLUMNS, STEPS_COLUMN, find_column, has_column, read_columns
from rlpyt.utils.logging.store import snapshot_files
from rlpyt.utils.misc import atomic_write, remove_stale_temporaries
from rlpyt.utils.settings import COUNT, DICTIONARY, PATH, SEED, Number, checked, one_of
from rlpyt.utils.text import printable, sentence

_WITHOUT_RETURN = (
    "no episode ended in one of its runs, so it counts as the worst. "
    "If evaluations are too short for good agents, make eval_max_steps of the sampler larger"
)
MOST_FAILURES_AMID_OTHERS = 9  # trials in a row that fail at once, though others did not: settings can be bad, but not so often
MOST_RETRIES = 5  # in a row, of a run that is killed before it has logged another row
_EXITS_WHEN_KILLED = (*EXITS_BY_SIGNAL, 128 + 9, 128 + 1)  # SIGINT, SIGTERM, SIGKILL, SIGHUP
_POLL = 0.2  # seconds between two looks at runs that are still ending


@checked(
    affinity_code=CODE,
    space=DICTIONARY,
    n_trials=COUNT,
    max_steps=COUNT,
    min_steps=COUNT._replace(optional=True),
    eta=Number(2, 1000),
    runs_per_trial=COUNT,
    common_args=LIST._replace(optional=True),
    seed=SEED,
    proposals=one_of(*METHODS, None),
    train_command=LIST._replace(optional=True),
    script=PATH,
    experiment_title=PATH,
)
def run_search(
    script: str | os.PathLike,
    affinity_code: str,
    space: Mapping,
    experiment_title: str | os.PathLike,
    n_trials: int,
    max_steps: int | float,
    min_steps: int | float | None = None,
    eta: float = 3,
    runs_per_trial: int = 3,
    common_args: Sequence | None = None,
    seed: int = 0,
    proposals: str | None = None,
    set_egl_device: bool = False,
    train_command: Sequence[str] | None = None,
) -> Search:
    """Search for good settings on this machine, by asynchronous successive halving, and return what was found.

    Each trial trains up to the first rung. The best of those there train on to the next one: they resume, in the same directories. A
    failed trial counts as the worst. A run that is killed is launched again. If trial after trial fails at once, a run cannot be started
    or resumed, or the disk is full, the search stops, and loses no trial. Ctrl-C, SIGTERM and SIGHUP end all runs, with time to save;
    launched again, by `rerun_search`, or with the same arguments where the directory is an absolute path, the search continues, also after
    SIGKILL. `n_trials` may be larger then.

    Args:
        script: script of a run, which is called as in `launch_experiment`. It uses `resume_from` for its runner, and keeps snapshots.
        affinity_code: from `encode_affinity`. A run slot in it does not matter, since each run gets its own.
        space: a variant with ranges, see `rlpyt.utils.launching.space`.
        experiment_title: absolute path of the directory, or its name in data/local/<date>/<time>, another one for each launch.
        n_trials: number of different settings to try; if the space has fewer, all of them.
        max_steps: environment steps of the last rung. If the script's runs are longer, they pause there.
        min_steps: environment steps that the first rung has at least; default `max_steps` / eta³. The rungs are `max_steps`, a fraction
            1/eta of it, and so on.
        eta: one in `eta` trials of a rung is promoted.
        runs_per_trial: runs of each trial; they have the run_IDs 0, 1, ... The score is the interquartile mean of their returns.
        common_args: arguments of the script for all runs, after the documented three.
        seed: seed of the proposals.
        proposals: "optuna" or "random"; None: Optuna if it is installed.
        set_egl_device: see `launch_experiment`.
        train_command: words of a command that trains with the settings that follow, as ``["rlpyt", "train", "cartpole", "ppo", "--set"]``
            does. It is shown with the best settings.

    Returns:
        The search, with its trials.

    Raises:
        ValueError, TypeError, FileNotFoundError: arguments are wrong, or the directory is of another search; nothing has been started.
        StillRunning: the same search, or one of its runs, is running.
        SystemExit: with code 1 if no trial has a score or the search has stopped itself, or 128 + n after signal n.
    """
    lowest = max(int(max_steps / eta**3), 1) if min_steps is None else int(min_steps)
    settings = Settings(
        script=os.fspath(script),
        affinity_code=affinity_code,
        space=as_saved(Space(space).as_saved()),
        n_trials=int(n_trials),
        rungs=rungs(int(max_steps), lowest, eta),
        eta=eta,
        runs_per_trial=int(runs_per_trial),
        common_args=[str(arg) for arg in no_text(common_args or (), "common_args")],
        seed=int(seed),
        proposals=proposals or "",
        set_egl_device=set_egl_device,
        cwd=os.getcwd(),
        train_command=[str(word) for word in train_command or ()],
    )
    return _run(settings, Path(get_log_dir(os.fspath(experiment_title))))


@checked()
def rerun_search(exp_dir: str | os.PathLike, affinity_code: str | None = None) -> Search:
    """Go on with the search in a directory, with the arguments given to `run_search`; `affinity_code` replaces that of the first launch.

    Returns, Raises:
        See `run_search`. ValueError if `exp_dir` contains no search.
    """
    exp_dir = Path(exp_dir).absolute()
    return _run(updated(read_settings_of(exp_dir), affinity_code=affinity_code), exp_dir)


def _run(settings: Settings, exp_dir: Path) -> Search:
    """Run what is left of a search, print its table, and return it; SystemExit after a signal, or if nothing was found."""
    if os.path.isabs(settings.script) and not os.path.isdir(settings.cwd):  # The directory of the first launch has been moved or removed.
        settings = updated(settings, cwd=os.getcwd())
    settings.experiment().check()
    n_slots = settings.experiment().n_slots()
    with ExitStack() as stack:
        if (exp_dir / SEARCH).exists():
            _check_same(settings, exp_dir)
        elif exp_dir.is_dir() and any(not entry.name.startswith(".") for entry in exp_dir.iterdir()):  # Temporary files are hidden.
            raise ValueError(f"{exp_dir} is not empty, and no search: give the search another directory.")
        settings.proposals = settings.proposals or default_method()
        stack.enter_context(only_launcher(exp_dir, "search"))
        queue = _SearchQueue(exp_dir, settings, n_slots)
        stack.callback(queue.end)
        search = queue.search
        n_rungs = plural(len(settings.rungs), "rung")
        steps = ", ".join(f"{each:,}" for each in settings.rungs)
        say(
            f"Search {printable(exp_dir)}: {plural(settings.n_trials, 'trial')} of {plural(settings.runs_per_trial, 'run')}, {n_rungs} "
            f"({steps} steps), {n_slots} at a time. {settings.proposals.capitalize()} proposes.\n",
            sys.stdout,
        )
        number = Sweep(queue, n_slots, most_immediate_failures=None).run()  # The queue counts trials.
    say(f"\n{printable(format_search(search), keep=chr(10))}\n", sys.stdout)
    if queue.stopped_because:
        say(f"Stopped: {printable(queue.stopped_because)}\n", sys.stdout)
    if number or queue.stopped_because:
        say(f"To resume it: rlpyt resume {printable(shlex.quote(str(exp_dir)))}\n", sys.stdout)
    if number or search.best is None or queue.stopped_because:
        raise SystemExit(128 + number if number else 1)
    return search


def _check_same(settings: Settings, exp_dir: Path) -> None:
    """Raise ValueError unless an earlier launch had the same settings; take its proposals if none are given."""
    before = read_settings_of(exp_dir)
    settings.proposals = settings.proposals or before.proposals
    n_trials, settings.n_trials = settings.n_trials, max(settings.n_trials, before.n_trials)
    differences = settings.differences(before)
    if differences:
        raise ValueError(
            f"{exp_dir} is of a search with other arguments. {'; '.join(differences)}. Give this one another directory, or launch it as "
            "before. (Only the number of trials, which may grow, and the affinity code may change.)"
        )
    if n_trials < before.n_trials:
        say(f"The search keeps its {plural(before.n_trials, 'trial')}, not {n_trials}.\n", sys.stdout)


class _Started(NamedTuple):
    """A run that has been started: its trial, its run_ID, and what its log held before.

    Attributes:
        first_row: the first row of the log, if the run is to resume; otherwise empty.
        steps: the environment steps in the last row; None without one.
    """

    trial: Trial
    run_ID: int
    first_row: dict[str, str]
    steps: int | None


class _SearchQueue:
    """Decides which run of a search takes the next free slot, and writes the journal.

    Args:
        exp_dir: directory of the search, locked by this process.
        settings: the arguments, checked.
        n_slots: number of simultaneous runs.

    Attributes:
        search: the search.
        stopped_because: why the search has stopped itself, in a sentence; None otherwise.
    """

    n_runs = None

    def __init__(self, exp_dir: Path, settings: Settings, n_slots: int) -> None:
        self._proposals = make_proposals(settings.proposals, Space.read(settings.space), settings.seed, exp_dir)  # Optuna may be missing.
        remove_stale_temporaries(exp_dir)
        with atomic_write(exp_dir / SEARCH, "w", encoding="utf-8") as file:
            json.dump(asdict(settings), file, indent=2)
            file.write("\n")
        self.search = Search(exp_dir, settings)
        _wait_for_runs(self.search)
        self._settings, self._experiment, self._history = settings, settings.experiment(), self.search.history
        self._journal = Journal(exp_dir / JOURNAL)
        self._next: tuple[Trial, int] | None = None
        self._running: dict[str, _Started] = {}  # by the name of the run
        self._retries: Counter = Counter()
        self._failed_at_once: list[int] = []  # Numbers of the last trials, in a row, of which a run failed before it logged a row.
        self.stopped_because: str | None = None
        self._is_closed = False
        self._forget_failures()
        self._tell(event="launch", at=_now(), n_slots=n_slots)
        self._proposals.note(self._history)
        self._write_best()

    def end(self) -> None:
        """Close the files."""
        is_over = not self._is_closed and not self._history.waiting()
        try:
            if is_over:
                self._proposals.close(self._history)
        finally:
            self._journal.close()

    # What the sweep asks -------------------------------------------------------------------------------------------
    def has_next(self) -> bool:
        """Whether a run can start now. This method chooses the run, so call it only if a slot is free."""
        if self._is_closed:
            return False
        while self._next is None and (job := self._choose()) is not None:
            if all(started.trial is not job[0] for started in self._running.values()):
                self._put_others_aside(job[0])
            self._next = None if self._is_settled(*job) else job
        return self._next is not None

    def take(self, slot: int) -> Run:
        """Return the run that `has_next` has decided on."""
        assert self._next is not None
        (trial, run_ID), self._next = self._next, None
        log_dir, args = self.search.trial_dir(trial), self._experiment.common_args
        run = Run(
            name=f"trial_{trial.number}/run_{run_ID}",
            run_dir=log_dir / f"run_{run_ID}",
            start=partial(start_in_slot, self._experiment, log_dir, run_ID, args),
            pause_at=self._settings.rungs[trial.rung],
        )
        save_variant(self.search.variant(trial), log_dir)
        self._tell(event="begin", trial=trial.number, rung=trial.rung, run=run_ID, slot=slot, at=_now())
        first_row = _first_row(run.run_dir) if _has_snapshot(run.run_dir) else {}
        self._running[run.name] = _Started(trial, run_ID, first_row, run_status(run.run_dir).steps)
        return run

    def ended(self, run: Run, status: RunStatus) -> str | None:
        """Write how a run ended; return a line about its trial, if that has reached its rung or failed."""
        trial, run_ID, first_row, steps_before = self._running.pop(run.name)
        reached = reached_in(run.run_dir, self._settings.rungs[trial.rung])
        cannot_resume = _why_not_resumable(run, status, first_row)
        outcome: dict[str, Any]
        if status.state == UNMARKED:
            outcome = dict(outcome="interrupted", steps=status.steps)
            self._stop(f"{run.name}: how the run ended could not be written. Make room on the disk, and then: {self._resume_command}")
        elif reached is not None and cannot_resume is not None:  # All trials would fail so, and none of them is to blame.
            outcome = dict(outcome="interrupted", error=cannot_resume, steps=status.steps)
            self._stop(f"{run.name}: {cannot_resume}. Then resume the search: it has lost no trial.")
        elif reached is not None and status.state in ("paused", "finished"):
            outcome = dict(outcome="reached", **reached)
            _remove_old_replay(run.run_dir)
        elif status.state == "failed" and _needs_help(status.exit_code, status.error):
            outcome = dict(outcome="interrupted", error=status.error, steps=status.steps)
            self._stop(self._help_for(run, status))
        elif status.state == "interrupted" or _was_killed(status.exit_code, status.error):
            outcome = self._killed(run, status)
        else:
            outcome = dict(outcome="failed", error=status.error or _why_without_result(run.run_dir), steps=status.steps)
        has_failed_before = trial.error is not None
        line = self._ended(trial, run_ID, outcome)
        if outcome["outcome"] == "failed" and status.state in ("failed", "finished") and status.steps == steps_before:
            if not has_failed_before:
                self._count_failure(trial, run.name)
        elif outcome["outcome"] != "interrupted":
            self._failed_at_once = []
        return line

    def close(self) -> None:
        """Start no more runs."""
        self._is_closed = True

    # Decisions -------------------------------------------------------------------------------------------------------
    def _choose(self) -> tuple[Trial, int] | None:
        """Return the trial and the run_ID to train next: of a trial on its way to a rung, of one to promote, or of a new one."""
        running = {(started.trial.number, started.run_ID) for started in self._running.values()}
        for trial, run_ID in self._history.waiting():
            if (trial.number, run_ID) not in running:
                return trial, run_ID
        is_all_proposed = self.search.is_all_proposed
        trial_to_promote = self._history.to_promote(at_least=int(is_all_proposed and not running))
        if trial_to_promote is not None:
            self._tell(event="promote", trial=trial_to_promote.number, rung=trial_to_promote.rung + 1)
            return trial_to_promote, 0
        if not is_all_proposed:
            values = self._proposals.propose(self._history)
            self._tell(event="trial", trial=len(self.search.trials), values=values)
            self._proposals.note(self._history)
            return self.search.trials[-1], 0
        return None

    def _put_others_aside(self, trial: Trial) -> None:
        """Move what is in place of a trial's directory if it has other settings: the journal may be an older copy."""
        trial_dir = self.search.trial_dir(trial)
        try:
            saved = load_variant(trial_dir)
        except (FileNotFoundError, ValueError):
            return
        if json.dumps(saved, sort_keys=True) == json.dumps(self.search.variant(trial), sort_keys=True):
            return
        aside = self.search.exp_dir / PUT_ASIDE
        aside.mkdir(exist_ok=True)
        place = next(place for i in count(1) if not (place := aside / f"{trial_dir.name}.{i}").exists())
        trial_dir.rename(place)
        say(
            f"{printable(trial_dir)} was of other settings than trial {trial.number} of {JOURNAL}, which may be an older copy. "
            f"It is now {printable(place)}.\n",
            sys.stdout,
        )

    def _is_settled(self, trial: Trial, run_ID: int) -> bool:
        """Whether a run need not be launched.

        It ended just before its launcher was killed, or it was solved at an earlier rung, or it has restarted instead of resuming. It must
        be launched again if it has paused without a snapshot.
        """
        run_dir = self.search.trial_dir(trial) / f"run_{run_ID}"
        reached = reached_in(run_dir, self._settings.rungs[trial.rung])
        state, facts = read_mark(run_dir)
        outcome: dict[str, Any] = {}
        if state == "paused" and not _has_snapshot(run_dir):
            return False
        if reached is not None:
            outcome = dict(outcome="reached", **reached)
        elif state == "failed":
            exit_code, error = facts.get("exit_code"), facts.get("error")
            if _was_killed(exit_code, error) or _needs_help(exit_code, error):
                return False
            outcome = dict(outcome="failed", error=error, steps=run_status(run_dir).steps)
        elif state == "finished":
            outcome = dict(outcome="failed", error=_why_without_result(run_dir), steps=None)
        if outcome:
            self._ended(trial, run_ID, outcome)
        return bool(outcome)

    def _stop(self, reason: str) -> None:
        """Start no more runs, because all would fail or lose time."""
        self.stopped_because = self.stopped_because or reason
        self.close()

    def _help_for(self, run: Run, status: RunStatus) -> str:
        """Return what to do about a run that needs help."""
        if status.exit_code is None:
            return f"{run.name}: {sentence(status.error)} Remove the cause, and resume the search."
        return f"{run.name} could not save its last snapshot. Make room on the disk, and then: {self._resume_command} ({status.error})"

    @property
    def _resume_command(self) -> str:
        return f"rlpyt resume {shlex.quote(str(self.search.exp_dir))}"

    def _count_failure(self, trial: Trial, name: str) -> None:
        """Count a trial that failed before it logged a row; stop the search if there are so many in a row that something else is wrong.

        The next launcher tries these trials again. If they then fail again, but other trials do not, then their settings are bad.
        """
        has_reached = self._history.has_reached
        if has_reached and trial.number in self._history.tried_again:
            return
        self._failed_at_once.append(trial.number)
        n, most = len(self._failed_at_once), MOST_FAILURES_AMID_OTHERS if has_reached else MAX_IMMEDIATE_FAILURES
        is_every_one = self.search.is_all_proposed and n >= len(self.search.trials)
        if self.stopped_because is None and n < most and not is_every_one:
            return
        self._tell(event="stop", trials=self._failed_at_once, at=_now())
        self._stop(
            f"{plural(n, 'trial')} in a row failed before they logged anything, so no more are launched. The last one, {name}: "
            f"{sentence(trial.error)} Remove the cause, and resume the search: it tries these trials again. If the cause is in the "
            "search space or the arguments of the script, which cannot change, start a new search in another directory."
        )

    def _forget_failures(self) -> None:
        """Mark runs that are tried again as interrupted, so that their old failures are not taken for new ones."""
        for number in self._history.to_retry:
            for run_ID in range(self._history.n_runs):
                run_dir = self.search.trial_dir(self.search.trials[number]) / f"run_{run_ID}"
                state, _ = read_mark(run_dir)
                if state == "failed" or (state == "finished" and run_status(run_dir).steps is None):
                    mark(run_dir, "interrupted")

    def _killed(self, run: Run, status: RunStatus) -> dict[str, Any]:
        """The outcome of a run that was killed: it is launched again, unless that has not helped several times."""
        self._retries[run.name, status.steps] += 1
        if self._retries[run.name, status.steps] < MOST_RETRIES or self._is_closed:
            return dict(outcome="interrupted", steps=status.steps)
        why = status.error or error_in(last_lines(run.run_dir / "stderr.log", 100)) or "it was told to end"
        return dict(outcome="failed", error=f"{plural(MOST_RETRIES, 'time')} in a row: {why}", steps=status.steps)

    def _ended(self, trial: Trial, run_ID: int, outcome: Mapping[str, Any]) -> str | None:
        """Write how a run ended on the way to its trial's rung; return a line to show, if any."""
        rung, n_runs = trial.rung, self._history.n_runs
        self._tell(event="end", trial=trial.number, rung=rung, run=run_ID, at=_now(), **outcome)
        if outcome["outcome"] == "interrupted" and not self._is_closed:
            return f"trial_{trial.number}/run_{run_ID} was killed: it is launched again"
        is_scored = outcome["outcome"] == "reached" and len(trial.returns[rung]) == n_runs
        if not is_scored and outcome["outcome"] != "failed":
            return None
        self._proposals.note(self._history)
        self._write_best()
        if not is_scored:
            return f"trial {trial.number} has failed, and counts as the worst: {outcome['error']}"
        score = trial.scores(n_runs)[rung]
        there = [each.scores(n_runs)[rung] for each in self.search.trials if len(each.scores(n_runs)) > rung]
        place = 1 + sum(other > score for other in there)
        place_there = f"score {score:.4g}, place {place} of {len(there)} there"
        shown = place_there if score > WORST else _WITHOUT_RETURN
        return f"trial {trial.number} has reached rung {rung} ({self._settings.rungs[rung]:,} steps): {shown}"

    def _write_best(self) -> None:
        """Write the best trial so far to its file; remove the file if no trial is left, because the only one has failed."""
        best = self.search.best
        if best is None:
            (self.search.exp_dir / BEST).unlink(missing_ok=True)
        else:
            rung = len(best.scores(self._history.n_runs)) - 1
            facts = dict(trial=best.number, score=plain_number(self.search.score(best)), steps=self._history.rungs[rung])
            with atomic_write(self.search.exp_dir / BEST, "w", encoding="utf-8") as file:
                json.dump(dict(facts, variant=self.search.variant(best), command=self.search.train_command(best)), file, indent=2)
                file.write("\n")

    def _tell(self, **event: Any) -> None:
        """Write an event into the journal, and apply it to the history."""
        self._journal.append(event)
        self._history.apply(event)


def reached_in(run_dir: Path, steps: int) -> dict[str, Any] | None:
    """Return the mean return and the steps in the first row of a run's log with at least `steps`; None if the run has not got there.

    A run has got there only if it has ended in good order after that row, so that its snapshot is safe. Of a run that has finished
    earlier, because it was solved or is shorter, the last row counts.
    """
    state, _ = read_mark(run_dir)
    has_log = (run_dir / "debug.log").exists()
    if not (says_complete(run_dir) if has_log else state in ("paused", "finished")):
        return None
    try:
        columns = read_columns(run_dir / PROGRESS)
        at = columns[find_column(columns, STEPS_COLUMN)]
    except (OSError, ValueError):
        return None
    rows = [i for i, each in enumerate(at) if each >= steps] or [len(at) - 1] * (state == "finished" and len(at) > 0)
    if not rows:
        return None
    returns = columns[find_column(columns, *RETURN_COLUMNS)] if has_column(columns, *RETURN_COLUMNS) else []
    finite = [each for each in at if math.isfinite(each)]
    if not finite:
        return None
    return {"return": plain_number(returns[rows[0]]) if returns else None, "steps": int(finite[-1])}


def _why_without_result(run_dir: Path) -> str:
    """Return why a run that ended in good order has no result."""
    try:
        columns = read_columns(run_dir / PROGRESS)
    except (OSError, ValueError):
        columns = {}
    if not any(columns.values()):
        return "it has logged no row in its run_<ID>. The script must give `logger_context` the log_dir and run_ID that it gets"
    if not has_column(columns, STEPS_COLUMN):
        return f"its {PROGRESS} has no column {STEPS_COLUMN}, which tells at which rung it is"
    return "its log does not say that it was complete: the script must leave `logger_context` before it ends"


def _why_not_resumable(run: Run, status: RunStatus, first_row: Mapping[str, str]) -> str | None:
    """Return why the script of a run that ended well is not one for searches: it must resume, and leave snapshots. None if it is.

    Args:
        first_row: first row of its log before it was launched; empty if it had nothing to resume.
    """
    if status.state == "paused" and not _has_snapshot(run.run_dir):
        return "it has paused without a snapshot, so it could not resume. Let its log keep snapshots (snapshot_mode of the script)"
    after = _first_row(run.run_dir)
    if status.state == "paused" and any(after.get(column) != text for column, text in first_row.items()):
        return "it has restarted instead of resuming. Let its script give its runner resume_from=resume_from()"
    return None


def _was_killed(exit_code: int | None, error: str | None) -> bool:
    """Whether a run that has failed was killed: the run itself did nothing wrong. While Python starts, SIGINT is an exception."""
    return exit_code in _EXITS_WHEN_KILLED or (error or "").startswith("KeyboardInterrupt")


def _needs_help(exit_code: int | None, error: str | None) -> bool:
    """Whether a run failed only because it could not be started, or its last snapshot had no room: then its settings may be good."""
    return exit_code is None or SNAPSHOT_MISSING in (error or "")


def _has_snapshot(run_dir: Path) -> bool:
    return run_dir.is_dir() and bool(snapshot_files(run_dir))


def _first_row(run_dir: Path) -> dict[str, str]:
    """Return the first row of a run's log by column; {} without one. It holds times, so no two runs have the same."""
    with suppress(OSError, csv.Error), open(run_dir / PROGRESS, newline="", encoding="utf-8", errors="replace") as file:
        return next(csv.DictReader(file), {})
    return {}


def _remove_old_replay(run_dir: Path) -> None:
    """Remove the replay buffers that a resumed run has put aside, as large as the one that replaces them."""
    for directory in run_dir.glob("replay*.[0-9]*"):
        shutil.rmtree(directory, ignore_errors=True)


def _wait_for_runs(search: Search) -> None:
    """Wait until the runs of a launcher that was killed have ended, as the system tells them to; StillRunning if they do not."""
    deadline = time.monotonic() + SAVE_GRACE + END_GRACE
    for run_dir in search.exp_dir.glob("trial_*/run_*"):
        while run_status(run_dir).state == "running":
            if time.monotonic() > deadline:
                raise StillRunning(f"{run_dir} is still running: wait until it has ended, or end it.")
            time.sleep(_POLL)


def _now() -> float:
    return round(time.time(), 3)
