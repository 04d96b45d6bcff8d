"""The results of a search as text: rungs, the best trials, which settings matter, and the cost."""

from __future__ import annotations

import math
from typing import Any

from rlpyt.utils.launching.halving import WORST, Trial, as_row, importance, plain_number, ranked, steps_restarting, steps_taken
from rlpyt.utils.launching.search_dir import Search
from rlpyt.utils.launching.space import Choice
from rlpyt.utils.text import format_seconds, plural, table

N_BEST = 5  # trials in the table
FEWEST = 10  # trials whose importances are not noise: of 10, one in nine settings that do not matter is above 0.3; of 5, one in three
MEASURE = "adjusted R² of the ranks of the scores at the first rung, fitted with one setting alone"


def importances(search: Search) -> dict[str, float]:
    """Return the importance of each setting by its dotted name, most important first; NaN if there are fewer than FEWEST trials.

    It is `halving.importance`, of the scores at the first rung, see `_first_scores`.
    """
    scored, scores = _first_scores(search)
    found = {}
    for i, (name, range_) in enumerate(zip(search.space.names, search.space.ranges.values())):
        positions = [range_.position(trial.values[i]) for trial in scored]
        found[name] = importance(positions, scores, isinstance(range_, Choice)) if len(scored) >= FEWEST else math.nan
    return dict(sorted(found.items(), key=lambda item: -1.0 if math.isnan(item[1]) else item[1], reverse=True))


def _first_scores(search: Search) -> tuple[list[Trial], list[float]]:
    """Return the trials that have ended at the first rung or before it, and their scores: WORST if they failed or have no return there."""
    n_runs = search.history.n_runs
    ended = [trial for trial in search.trials if trial.scores(n_runs) or trial.error is not None]
    return ended, [(trial.scores(n_runs) or [WORST])[0] for trial in ended]


def facts(search: Search) -> dict[str, Any]:
    """Return the state of a search as plain data, for ``rlpyt status --json``."""
    history, best = search.history, search.best
    taken, restarting = steps_taken(search.trials), steps_restarting(search.trials, history.rungs)
    return dict(
        n_trials=search.settings.n_trials,
        rungs=[
            dict(steps=steps, reached=_n_at(search, rung), promoted=_n_promoted(search, rung)) for rung, steps in enumerate(history.rungs)
        ],
        trials=[
            dict(
                trial=trial.number,
                settings=dict(zip(search.space.names, trial.values)),
                scores=[plain_number(score) for score in trial.scores(history.n_runs)],
                error=trial.error,
            )
            for trial in search.trials
        ],
        best=None if best is None else best.number,
        command=None if best is None else search.train_command(best),
        importance={name: plain_number(value) for name, value in importances(search).items()},
        busy_share=history.busy_share(),
        busy_share_until_last_begin=history.busy_share(until_last_begin=True),
        steps_taken=taken,
        steps_if_restarting=restarting,
    )


def format_search(search: Search) -> str:
    """Return tables of rungs, best trials and importances, and what the search cost."""
    history = search.history
    lines = [_rungs(search), "", _best(search), *_importance(search), *_failures(search), "", *_costs(search)]
    best = search.best
    if best is not None:
        score, steps = search.score(best), history.rungs[len(best.scores(history.n_runs)) - 1]
        lines += ["", f"Best: trial {best.number}, score {score:.4g} at {steps:,} steps, in {search.trial_dir(best)}"]
        command = search.train_command(best)
        lines += [f"  {command}"] if command else []
    return "\n".join(lines)


def _rungs(search: Search) -> str:
    rows = [("rung", "steps", "trials there", "promoted", "best score")]
    for rung, steps in enumerate(search.history.rungs):
        scores = [trial.scores(search.history.n_runs) for trial in search.trials]
        best = max((each[rung] for each in scores if len(each) > rung), default=WORST)
        counts = (f"{_n_at(search, rung)}", f"{_n_promoted(search, rung)}" if rung < len(search.history.rungs) - 1 else "")
        rows.append((str(rung), f"{steps:,}", *counts, "" if best == WORST else f"{best:.4g}"))
    return table(rows, right=range(5), rule=True)


def _n_at(search: Search, rung: int) -> int:
    return sum(len(trial.scores(search.history.n_runs)) > rung for trial in search.trials)


def _n_promoted(search: Search, rung: int) -> int:
    return sum(trial.rung > rung for trial in search.trials)


def _best(search: Search) -> str:
    found = [trial for trial in ranked(search.trials, search.history.n_runs) if search.score(trial) > WORST][:N_BEST]
    if not found:
        return f"No trial has a score yet; {plural(len(search.trials), 'trial')} of {search.settings.n_trials} begun."
    rows = [("best trials", "steps", "score", *search.space.names)]
    for trial in found:
        reached = search.history.rungs[len(trial.scores(search.history.n_runs)) - 1]
        rows.append((f"trial_{trial.number}", f"{reached:,}", f"{search.score(trial):.4g}", *as_row(trial.values)))
    return table(rows, right=range(1, len(rows[0])), rule=True)


def _importance(search: Search) -> list[str]:
    n = len(_first_scores(search)[0])
    if 0 < n < FEWEST:
        return [
            "",
            f"Importance: {plural(n, 'trial')} at the first rung, failed ones included, would tell only noise; {FEWEST} are needed.",
        ]
    found = {name: value for name, value in importances(search).items() if not math.isnan(value)}
    if not found:
        return []
    return ["", f"Importance ({MEASURE}): " + ", ".join(f"{name} {value:.2f}" for name, value in found.items())]


def _failures(search: Search) -> list[str]:
    failed: dict[str, list[Trial]] = {}
    for trial in search.trials:
        if trial.error is not None:
            failed.setdefault(trial.error, []).append(trial)
    return ["" for _ in list(failed)[:1]] + [
        f"failed: {', '.join(f'trial_{trial.number}' for trial in trials)}: {error}" for error, trials in failed.items()
    ]


def _costs(search: Search) -> list[str]:
    history = search.history
    taken, restarting = steps_taken(search.trials), steps_restarting(search.trials, history.rungs)
    saved = (
        f" Restarting promoted trials would take {restarting:,}: {100 * (1 - taken / restarting):.0f}% saved." if restarting > taken else ""
    )
    is_short = search.is_used_up and len(search.trials) < search.settings.n_trials
    used_up = " The search space has no other settings." if is_short else ""
    lines = [f"{len(search.trials)} of {search.settings.n_trials} trials begun, {taken:,} environment steps.{saved}{used_up}"]
    share, until = history.busy_share(), history.busy_share(until_last_begin=True)
    if share is not None:
        seconds = sum(launch["last"] - launch["at"] for launch in history.launches)
        before = f"{100 * until:.0f}% of the time until the last run began, " if until is not None else ""
        lines.append(f"Slots were busy {before}{100 * share:.0f}% of all {format_seconds(seconds)}.")
    return lines
