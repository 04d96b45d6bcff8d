"""The directory of a search: its arguments, its journal and its trials.

<exp_dir>/search.json                 arguments of the search
         /search.jsonl                its journal, see `rlpyt.utils.launching.journal`
         /best.json                   the best settings so far
         /optuna.log                  the study of Optuna, if it proposes
         /trial_<n>/variant_config.json
         /trial_<n>/run_<ID>/         as in experiments
         /put_aside/trial_<n>.<i>/    what was in place of a trial, because the journal was an older copy
"""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rlpyt.utils.launching.exp_launcher import Experiment
from rlpyt.utils.launching.halving import WORST, Trial, ranked
from rlpyt.utils.launching.journal import DAMAGED, JOURNAL, SEARCH, History, is_damaged, read_journal
from rlpyt.utils.launching.space import Space, without_empty
from rlpyt.utils.logging.runs import flat
from rlpyt.utils.text import setting_text

BEST = "best.json"
_MAY_CHANGE = ("affinity_code", "n_trials", "cwd")


@dataclass
class Settings:
    """The arguments of `run_search`, as saved in the directory; `rungs` are environment steps, `proposals` is "" if it was None."""

    script: str
    affinity_code: str
    space: dict
    n_trials: int
    rungs: list[int]
    eta: float
    runs_per_trial: int
    common_args: list[str]
    seed: int
    proposals: str
    set_egl_device: bool
    cwd: str
    train_command: list[str]

    def experiment(self) -> Experiment:
        """Return the arguments that each run's command needs."""
        return Experiment(
            script=self.script,
            affinity_code=self.affinity_code,
            runs_per_setting=[self.runs_per_trial],
            variants=[{}],
            log_dirs=["trial_0"],
            common_args=self.common_args,
            runs_args=[[]],
            set_egl_device=self.set_egl_device,
            cwd=self.cwd,
        )

    def differences(self, before: Settings) -> list[str]:
        """Return what differs from an earlier launch, apart from what may change."""
        both = {field.name: (getattr(before, field.name), getattr(self, field.name)) for field in fields(self)}
        both["script"] = before.experiment().script_path(), self.experiment().script_path()
        of_space = []
        if without_empty(before.space) == without_empty(self.space):  # Earlier versions left out empty dictionaries.
            del both["space"]
        elif of_space := _differences_of_spaces(before.space, self.space):  # Otherwise only the order of the settings is another one.
            del both["space"]
        gone, added = _changed_words(before.common_args, self.common_args)
        if not any(Counter(each) - Counter(of_all) for each, of_all in zip(_changed_words(*both["train_command"]), (gone, added))):
            del both["train_command"]  # It shows the same changes.
        others = []
        for name, (old, new) in both.items():
            if old != new and name not in _MAY_CHANGE:
                is_words = name in ("common_args", "train_command")
                was, is_now = map(_as_words, _changed_words(old, new)) if is_words else (repr(old), repr(new))
                others.append(f"{name}: {was} before, {is_now} now")
        return [*of_space, *others]


def _changed_words(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command that are gone, and those that are new; all words if only their order differs."""
    gone, added = list((Counter(old) - Counter(new)).elements()), list((Counter(new) - Counter(old)).elements())
    return (gone, added) if gone or added or old == new else (list(old), list(new))


def _as_words(words: Sequence[str]) -> str:
    """Return the words of a command as they are written in a shell."""
    return shlex.join(words) or "nothing"


def _differences_of_spaces(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return which settings differ between two saved spaces, by dotted names."""
    both = []
    for space in (before, now):
        constants = {name: repr(value) for name, value in flat(without_empty(space["constants"])).items()}
        both.append({**{".".join(path): text for path, text in space["ranges"]}, **constants})
    old, new = both
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    return [f"{name}: {old.get(name, 'nothing')} before, {new.get(name, 'nothing')} now" for name in names]


def is_search(directory: str | os.PathLike) -> bool:
    """Whether this is the directory of a search."""
    return Path(directory, SEARCH).is_file()


def read_settings_of(exp_dir: Path) -> Settings:
    """Return the settings of the search in a directory; ValueError if they cannot be read."""
    try:
        saved = json.loads((exp_dir / SEARCH).read_text(encoding="utf-8"))
        settings = Settings(**{field.name: saved[field.name] for field in fields(Settings)})
        Space.read(settings.space)
        return settings
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{exp_dir} is not the directory of a search: its {SEARCH} cannot be read ({error!r}).") from None


class Search:
    """A search in a directory, as far as its journal tells.

    Args:
        exp_dir: the directory.
        settings: the arguments; None reads them.

    Attributes:
        history: the trials and what has become of them.

    Raises:
        ValueError: the arguments or the journal cannot be read, or contradict each other.
    """

    def __init__(self, exp_dir: str | os.PathLike, settings: Settings | None = None) -> None:
        self.exp_dir = Path(exp_dir)
        self.settings = read_settings_of(self.exp_dir) if settings is None else settings
        self.space = Space.read(self.settings.space)
        self.history = History(self.settings.runs_per_trial, self.settings.rungs, self.settings.eta)
        path = self.exp_dir / JOURNAL
        for number, event in enumerate(read_journal(path), 1):
            try:
                if event["event"] == "trial":
                    self._check_values(event["values"])
                self.history.apply(event)
            except DAMAGED as error:
                raise is_damaged(path, number, error) from None

    def _check_values(self, values: list[Any]) -> None:
        """Raise one of DAMAGED unless there is a possible value for each range."""
        ranges = self.space.ranges.values()
        if len(values) != len(ranges):
            raise ValueError(f"it has {len(values)} values for {len(ranges)} ranges")
        for range_, value in zip(ranges, values):
            range_.position(value)

    @property
    def trials(self) -> list[Trial]:
        """The trials, in the order of proposals."""
        return self.history.trials

    @property
    def is_used_up(self) -> bool:
        """Whether all settings of the search space have been tried."""
        return self.space.is_used_up([trial.values for trial in self.trials])

    @property
    def is_all_proposed(self) -> bool:
        """Whether no further trial begins."""
        return len(self.trials) >= self.settings.n_trials or self.is_used_up

    @property
    def best(self) -> Trial | None:
        """The best trial: of those at the highest rung, the one with the highest score; None if no trial has a score."""
        best = ranked(self.trials, self.history.n_runs)[:1]
        return best[0] if best and best[0].error is None and self.score(best[0]) > WORST else None

    def score(self, trial: Trial) -> float:
        """Return the score of a trial at the highest rung it has reached; WORST without one."""
        scores = trial.scores(self.history.n_runs)
        return scores[-1] if scores else WORST

    def variant(self, trial: Trial) -> dict:
        """Return the variant of a trial, as in its variant_config.json."""
        return self.space.variant(self.space.values(trial.values))

    def train_command(self, trial: Trial) -> str | None:
        """Return the command that trains with the settings of a trial; None if the search was given no such command."""
        if not self.settings.train_command:
            return None
        settings: dict[str, Any] = {}  # by dotted name
        for section, values in self.variant(trial).items():
            is_section = isinstance(values, Mapping)  # Otherwise it is a setting of its own, in no section.
            settings.update({f"{section}.{name}": value for name, value in values.items()} if is_section else {section: values})
        return shlex.join([*self.settings.train_command, *(f"{name}={setting_text(value)}" for name, value in settings.items())])

    def trial_dir(self, trial: Trial) -> Path:
        """Return the directory of a trial."""
        return self.exp_dir / f"trial_{trial.number}"
