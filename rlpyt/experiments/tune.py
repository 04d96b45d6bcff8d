"""Searches for good settings of a configuration of `rlpyt.experiments.configs`; used by ``rlpyt tune``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlpyt.experiments.build import build, check_parts
from rlpyt.experiments.configs import look_up
from rlpyt.experiments.train import configuration, put, with_settings
from rlpyt.runners.minibatch_rl import MinibatchRlBase
from rlpyt.utils.launching.affinity import affinity_from_code, prepend_run_slot, quick_affinity_code
from rlpyt.utils.launching.halving import rungs
from rlpyt.utils.launching.search import Search, run_search
from rlpyt.utils.launching.space import RANGES, Range, Space, looks_like_range, read_range
from rlpyt.utils.quick_args import arguments_of
from rlpyt.utils.settings import Number, checked

ETA = 3
_OF_PARTS = ("agent", "env", "eval_env", "model", "optim")  # Sections on which environments, models or optimizers depend.
_BOUNDS = dict(uniform="(0.9,0.999)", log_uniform="(1e-4,1e-2)", integer="(1,20)", choice="(32,64)")  # Examples.
_NO_RANGE = {  # Settings whose range would make scores incomparable, and why.
    "runner.n_steps": "trials are compared after the same number of steps",
    "runner.log_interval_steps": "trials are compared after the same number of steps",
    "runner.stop_return": "a trial that stops sooner would get a lower score, because it stopped",
}


@checked(eta=Number(2, 1000), min_steps=Number(1, finite=True, optional=True))
def search_configuration(
    script: Path,
    module: str,
    key: str,
    settings: Sequence[str],
    n_trials: int = 30,
    runs_per_trial: int = 3,
    log_dir: Any = None,
    affinity_code: str | None = None,
    min_steps: float | None = None,
    eta: float = ETA,
    sampler: str | None = None,
    smoke: bool = False,
    seed: int = 0,
    proposals: str | None = None,
) -> Search:
    """Search for good settings of a configuration, and return what was found.

    The last rung is the run's `n_steps`. Runs save their replay buffer, so that promoted trials resume with it; set
    ``runner.save_replay=False`` to save the space on the disk.

    Args:
        script: script that trains a configuration as a run of an experiment, see `rlpyt.experiments.train.build_and_train_in_slot`.
        module: last part of a configuration module's name, such as "cartpole".
        key: key of a configuration in the module, such as "ppo".
        settings: settings with ranges, such as "algo.learning_rate=log_uniform(1e-4, 1e-2)", and changes for all trials.
        log_dir: name, or absolute path, of the directory of the search; default "<module>_<key>_search".
        affinity_code: processors and GPUs; None: all of this machine, as ``rlpyt info`` proposes.
        min_steps: environment steps of the first rung, at least; None: n_steps / eta³, or more, until something has been learned and
            logged, and, if ranges make iterations of different lengths, the longest one has ended.
        sampler, smoke: as in `rlpyt.experiments.train.build_and_train`.
        n_trials, runs_per_trial, eta, seed, proposals: see `rlpyt.utils.launching.search.run_search`.

    Raises:
        ValueError: a name does not exist, or a value at an end of a range is not possible; raised before anything starts.
    """
    ranges, constants = with_ranges(settings)
    config, _ = configuration(module, key, sampler, constants, smoke=smoke)
    space: dict[str, dict[str, Any]] = {}
    for setting in ranges:
        name, _, text = setting.partition("=")
        section, _, name = name.partition(".")
        put(space.setdefault(look_up(section, config, "section"), {}), name, read_range(text))
    slot = affinity_from_code(prepend_run_slot(0, affinity_code)) if affinity_code is not None else {}
    try:
        before_learning, (shortest, longest) = _check_corners(Space(space), module, key, sampler, constants, smoke, slot)
    except ValueError as error:
        hint = _bounds_missing(constants)
        if not hint:
            raise
        raise ValueError(f"{error} {hint}") from error
    n_steps, interval = int(config["runner"]["n_steps"]), _log_interval(config)
    if min_steps is None:
        of_iterations = longest if shortest != longest else 0
        min_steps = min(max(n_steps / eta**3, interval, before_learning + 1, of_iterations), n_steps)
    if int(min_steps) > n_steps:
        raise ValueError(f"min_steps={int(min_steps):,}, of the first rung, must be at most runner.n_steps={n_steps:,}, of the last one.")
    first = rungs(n_steps, int(min_steps), eta)[0]
    if first <= before_learning:
        remedy = "min_steps larger" if before_learning < n_steps else "runner.n_steps larger, or algo.min_steps_learn smaller"
        raise ValueError(
            f"The first rung, at {first:,} environment steps, comes before learning begins, at {before_learning:,} "
            f"(algo.min_steps_learn): make {remedy}."
        )
    if first < interval:
        remedy = "min_steps larger, or the interval shorter" if interval <= n_steps else "the interval shorter"
        raise ValueError(
            f"The first rung, at {first:,} environment steps, comes before the first row of the log, at {interval:,}: "
            f"make {remedy}, with runner.log_interval_steps={first}."
        )
    if shortest != longest and first < longest:
        remedy = "min_steps" if longest <= n_steps else "runner.n_steps"
        raise ValueError(
            f"The first rung, at {first:,} environment steps, is shorter than the longest iteration of a trial, of {longest:,} "
            f"(batch_T * batch_B), so trials would be compared after different numbers of steps: make {remedy} at least {longest}, or the "
            "ranges of sampler.batch_T and sampler.batch_B end earlier."
        )
    words = ["--sampler", sampler] * (sampler is not None) + ["--smoke"] * smoke
    changes = ["runner.save_replay=True"] * ("save_replay" not in space.get("runner", {})) + constants  # The last one counts.
    return run_search(
        script=script,
        affinity_code=quick_affinity_code() if affinity_code is None else affinity_code,
        space=space,
        experiment_title=f"{module}_{key}_search" if log_dir is None else log_dir,
        n_trials=n_trials,
        max_steps=n_steps,
        min_steps=first,
        eta=eta,
        runs_per_trial=runs_per_trial,
        common_args=[f"{module}:{key}", *words, *(["--set", *changes] if changes else [])],
        seed=seed,
        proposals=proposals,
        train_command=["rlpyt", "train", module, key, *words, "--set", *constants],
    )


def with_ranges(settings: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the settings that have ranges, and the others.

    Raises:
        ValueError: the form of one is wrong; one that has a range is given twice; or what decides when runs end has a range.
    """
    ranges: list[str] = []
    constants: list[str] = []
    for setting in settings:
        name, is_, text = setting.partition("=")
        if not (is_ and "." in name):
            raise ValueError(f"--set {setting} must be of the form section.name=value, e.g. algo.learning_rate=log_uniform(1e-4,1e-2).")
        (ranges if looks_like_range(text) else constants).append(setting)
    names, with_range = ([setting.partition("=")[0].strip() for setting in some] for some in (settings, ranges))
    for name in with_range:
        if names.count(name) > 1:
            raise ValueError(f"{name} is given {names.count(name)} times, and has a range: give it once.")
        if name in _NO_RANGE:
            raise ValueError(f"{name} cannot have a range: {_NO_RANGE[name]}. Give it one value.")
    return ranges, constants


def _bounds_missing(constants: Sequence[str]) -> str:
    """Return what to write for settings that have the name of a range without its bounds; "" without one.

    This alone is no error, since there may be settings that take such a word.
    """
    hints = []
    for setting in constants:
        name = setting.partition("=")[2].strip()
        if name in RANGES:
            hints.append(f"{name} needs its {'values' if name == 'choice' else 'bounds'}, such as {setting.strip()}{_BOUNDS[name]}.")
    return " ".join(hints)


def _check_corners(
    space: Space, module: str, key: str, sampler: str | None, constants: Sequence[str], smoke: bool, slot: Any
) -> tuple[int, tuple[int, int]]:
    """Build the parts of a run with values from each range, and environments and models with those that they depend on.

    A value is tried with the lowest values of all other ranges, and, if it is not possible with these, with the highest. No process is
    started.

    Args:
        slot: the affinity that runs of slot 0 get, of which only the kind matters.

    Returns:
        The most environment steps that any of them takes before it learns; and the environment steps of the shortest and of the longest
        iteration.

    Raises:
        ValueError: a value is not possible.
    """
    before_learning = 0
    all_T: set[int] = set()
    all_B: set[int] = set()

    def built(values: dict[Any, Any], checks_parts: bool) -> Any:
        changes = space.variant(values)
        config, paths = configuration(module, key, sampler, constants, changes, smoke)
        with_settings(slot, config, constants, changes)  # It raises if a range cannot have an effect.
        try:
            run = build(config, paths, with_settings(dict(set_affinity=False, workers_cpus=[0]), config, constants, changes), 0)
            if checks_parts:
                check_parts(run, config)
        except ValueError as error:
            fractions = [path for path, value in values.items() if isinstance(value, float) and value != int(value)]
            ranges = [space.ranges[path] for path in fractions if path[-1] in str(error)]
            whole = [f"integer({int(each.low)}, {int(each.high)})" for each in ranges if isinstance(each, Range) and each.has_whole_ends]
            raise ValueError(f"{error} For whole numbers, write {whole[0]}." if whole else str(error)) from None
        return run

    for path, (with_lowest, with_highest) in space.corners():
        checks_parts = not all_T or path[0] in _OF_PARTS  # Of the first run that can be built, and where they may differ.
        try:
            run = built(with_lowest, checks_parts)
        except ValueError as error:
            try:
                run = built(with_highest, checks_parts)
            except ValueError:
                raise error from None
        before_learning = max(before_learning, int(getattr(run.algo, "min_steps_learn", 0)))
        all_T.add(run.sampler.batch_spec.T)
        all_B.add(run.sampler.batch_spec.B)
    n_processes = len(slot) if isinstance(slot, (list, tuple)) else 1  # Each of several has all these environments.
    return before_learning, (min(all_T) * min(all_B) * n_processes, max(all_T) * max(all_B) * n_processes)


def _log_interval(config: dict) -> int:
    """Environment steps between two rows of the log."""
    default = arguments_of(MinibatchRlBase)["log_interval_steps"].default
    return int(config["runner"].get("log_interval_steps", default))
