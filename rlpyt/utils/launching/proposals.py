"""Which settings a search tries next: random ones, or those that Optuna proposes from the scores so far."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlpyt.utils.extras import import_error, missing_modules
from rlpyt.utils.launching.halving import WORST, Trial
from rlpyt.utils.launching.journal import History
from rlpyt.utils.launching.space import AnyRange, Choice, Space, json_text

OPTUNA_JOURNAL = "optuna.log"
METHODS = ("optuna", "random")
N_RANDOM = 10  # first trials of Optuna's sampler, which are random
MOST_ASKS = 30  # of what proposes, while it proposes settings that were tried before


class Proposals(Protocol):
    """Proposes settings."""

    def propose(self, history: History) -> list:
        """Return the values of the next trial, in the order of the space's ranges; the same for the same history.

        No other trial has them, unless the space is used up (`Space.is_used_up`), or its real numbers nearly are.
        """

    def note(self, history: History) -> None:
        """Record the new events of the history."""

    def close(self, history: History) -> None:
        """Record the end of the search."""


def default_method() -> str:
    """Return "optuna" if it is installed, else "random"."""
    return "random" if missing_modules("tune") else "optuna"


def make_proposals(method: str, space: Space, seed: int, exp_dir: Path) -> Proposals:
    """Return what proposes; ImportError if Optuna is missing.

    Args:
        method: one of METHODS.
        space: the search space.
        seed: seed of all proposals.
        exp_dir: directory of the search.
    """
    return OptunaProposals(space, seed, exp_dir) if method == "optuna" else RandomProposals(space, seed)


class RandomProposals:
    """Draws each trial independently of scores: trial n is the same whatever else happens."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._seed = space, seed

    def propose(self, history: History) -> list:
        n = len(history.trials)
        generator = np.random.default_rng([self._seed, n])
        draws = [[range_.at(generator.random()) for range_ in self._space.ranges.values()] for _ in range(MOST_ASKS)]
        return _first_new(chain(draws, self._space.some(n)), history) or draws[0]

    def note(self, history: History) -> None:
        pass

    def close(self, history: History) -> None:
        pass


class OptunaProposals:
    """Asks Optuna's sampler (a tree-structured Parzen estimator), which sees every trial with its score at the highest rung it has reached.

    Optuna never changes a trial that has ended, but here a trial that paused may be promoted later. So the sampler sees a copy of the
    history in memory, in which paused trials have ended. The study in the directory, for Optuna's dashboard and other tools, gets each
    trial as it is asked for, its scores by environment steps, and its end. It is made again from the search's journal if it is damaged, or
    if it has ended a trial that continues, because the search had ended and has grown.
    """

    def __init__(self, space: Space, seed: int, exp_dir: Path) -> None:
        try:
            import optuna
        except ImportError as error:
            raise import_error("Proposals by Optuna need", "tune", error) from error
        self._optuna, self._space, self._seed = optuna, space, seed
        self._path = exp_dir / OPTUNA_JOURNAL
        self._study: Any = None

    def propose(self, history: History) -> list:
        optuna, number = self._optuna, len(history.trials)
        with _quiet(optuna):
            sampler = optuna.samplers.TPESampler(
                seed=(self._seed * 1_000_003 + number) % 2**32, n_startup_trials=N_RANDOM, constant_liar=True
            )
            study = optuna.create_study(direction="maximize", sampler=sampler)
            for trial in history.trials:
                study.add_trial(self._frozen(trial, history))
            asked = (self._values(study.ask(self._distributions())) for _ in range(MOST_ASKS))  # It knows what it was asked before.
            return _first_new(asked, history) or RandomProposals(self._space, self._seed).propose(history)

    def note(self, history: History) -> None:
        """Bring the study in the directory up to date."""
        with _quiet(self._optuna):
            try:
                self._update(history)
            except Exception:  # Of any kind: the file is a copy, and may be damaged in any way.
                self._study = None
                with suppress(OSError):
                    os.remove(self._path)
                self._update(history)

    def close(self, history: History) -> None:
        """Tell the study in the directory how trials ended."""
        self.note(history)
        with _quiet(self._optuna):
            for known, trial in zip(self._study.get_trials(deepcopy=False), history.trials):
                state = self._state(trial, history)
                if not known.state.is_finished() and state.is_finished():
                    score = trial.scores(history.n_runs)[-1] if state.name == "COMPLETE" else None
                    self._study.tell(known.number, score, state=state)

    def _open(self) -> Any:
        """Return the study in the directory, made if necessary."""
        storages = self._optuna.storages
        for lock in self._path.parent.glob(f"{self._path.name}.lock*"):  # Of a launcher that was killed.
            lock.unlink()
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            os.remove(self._path)
        storage = storages.JournalStorage(storages.journal.JournalFileBackend(str(self._path)))
        name = self._path.parent.name or "search"
        return self._optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)

    def _update(self, history: History) -> None:
        """Add new trials and scores to the study; ValueError if it is of another search, or an ended trial has continued."""
        self._study = self._open() if self._study is None else self._study
        known = self._study.get_trials(deepcopy=False)
        if len(known) > len(history.trials) or not all(self._fits(each, trial, history) for each, trial in zip(known, history.trials)):
            raise ValueError(f"{self._path} contradicts the journal of this search.")
        for trial in history.trials[len(known) :]:
            self._study.enqueue_trial(self._params(trial))
            self._study.ask(self._distributions())
        for trial, each in zip(history.trials, self._study.get_trials(deepcopy=False)):
            if not each.state.is_finished():
                for steps, score in self._scores(trial, history).items():
                    if steps not in each.intermediate_values:
                        self._optuna.trial.Trial(self._study, each._trial_id).report(score, steps)
                if trial.error is not None:
                    self._study.tell(each.number, state=self._optuna.trial.TrialState.FAIL)

    def _fits(self, known: Any, trial: Trial, history: History) -> bool:
        """Whether the study tells nothing wrong of a trial and, if the trial has ended there, all of it: it can get no more scores."""
        scores = self._scores(trial, history)
        if known.params != self._params(trial) or not known.intermediate_values.items() <= scores.items():
            return False
        has_failed = known.state == self._optuna.trial.TrialState.FAIL
        return not known.state.is_finished() or (len(known.intermediate_values) == len(scores) and has_failed == (trial.error is not None))

    def _distributions(self) -> dict[str, Any]:
        return {name: self._distribution(range_) for name, range_ in zip(self._space.names, self._space.ranges.values())}

    def _distribution(self, range_: AnyRange) -> Any:
        distributions = self._optuna.distributions
        if isinstance(range_, Choice):  # By number, because Optuna takes only numbers and texts.
            return distributions.CategoricalDistribution(list(range(len(range_.values))))
        if range_.kind == "integer":
            return distributions.IntDistribution(int(range_.low), int(range_.high))
        return distributions.FloatDistribution(range_.low, range_.high, log=range_.kind == "log_uniform")

    def _params(self, trial: Trial) -> dict[str, Any]:
        ranges = zip(self._space.names, self._space.ranges.values(), trial.values)
        return {name: range_.index(value) if isinstance(range_, Choice) else value for name, range_, value in ranges}

    def _values(self, asked: Any) -> list:
        return [_value(range_, asked.params[name]) for name, range_ in zip(self._space.names, self._space.ranges.values())]

    def _state(self, trial: Trial, history: History) -> Any:
        """The state of a trial if the search ended now: complete at the last rung, pruned at another one, running before the first one."""
        states, scores = self._optuna.trial.TrialState, trial.scores(history.n_runs)
        if trial.error is None and len(scores) == len(history.rungs) and scores[-1] > WORST:
            return states.COMPLETE
        return states.PRUNED if scores or trial.error is not None else states.RUNNING

    def _scores(self, trial: Trial, history: History) -> dict[int, float]:
        """The scores of a trial by environment steps, up to the first that is no number."""
        return dict(takewhile(lambda at: math.isfinite(at[1]), zip(history.rungs, trial.scores(history.n_runs))))

    def _frozen(self, trial: Trial, history: History) -> Any:
        """The trial as the sampler sees it. A failed trial has no scores, and so counts as worse than all others."""
        scores = {} if trial.error is not None else self._scores(trial, history)
        state = self._state(trial, history)
        return self._optuna.trial.create_trial(
            params=self._params(trial),
            distributions=self._distributions(),
            state=state,
            value=list(scores.values())[-1] if state.name == "COMPLETE" else None,
            intermediate_values=scores,
        )


def _first_new(proposed: Iterable[list], history: History) -> list | None:
    """Return the first list of values that no trial has; None without one."""
    tried = {json_text(trial.values) for trial in history.trials}
    return next((values for values in proposed if json_text(values) not in tried), None)


def _value(range_: AnyRange, proposed: Any) -> Any:
    return range_.values[proposed] if isinstance(range_, Choice) else range_.tidied(proposed)


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Within this context, Optuna does not write a line for each trial."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
