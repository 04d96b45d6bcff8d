"""Experiments: many learning runs, queued on one machine or a Ray cluster.

    variants, log_dirs = make_variants(VariantLevel(...), VariantLevel(...))
    run_experiments("train.py", encode_affinity(n_cpu_core=8, cpu_per_run=2), "my_experiment", 2, variants, log_dirs)

Each run is a separate program, ``python train.py <slot_affinity_code> <log_dir> <run_ID> ...``. It finds its settings with
``load_variant(log_dir)``, its hardware with ``affinity_from_code(slot_affinity_code)``, and with `resume_from` the run that it resumes, if
any. `rlpyt.utils.launching.status` describes the files of an experiment, `rlpyt.utils.launching.sweep` how runs are watched.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlpyt.utils.launching.affinity import CODE, affinity_from_code, get_n_run_slots, launcher_environment, one_run, prepend_run_slot
from rlpyt.utils.launching.journal import SEARCH
from rlpyt.utils.launching.status import (
    EXPERIMENT,
    RunStatus,
    experiment_status,
    format_status,
    planned_runs,
    plural,
    read_experiment,
    read_mark,
    run_status,
)
from rlpyt.utils.launching.sweep import (
    LEFTOVER_GRACE,
    PAUSE_AT,
    RESUME_FROM,
    InOrder,
    Run,
    RunProcess,
    Sweep,
    say,
    start_process,
    start_run,
)
from rlpyt.utils.launching.variant import VARIANT, as_saved, load_variant, save_variant
from rlpyt.utils.logging.context import get_log_dir, sole_writer
from rlpyt.utils.logging.logger import try_to_write
from rlpyt.utils.misc import atomic_write, is_same
from rlpyt.utils.processors import can_bind_processes
from rlpyt.utils.settings import PATH, STEPS, Kind, Number, checked, is_integer, list_of
from rlpyt.utils.text import printable

MOST_RUNS = 10**6  # Limit for each variant; a larger number is surely a typo.
LIST = Kind("a list or tuple", lambda value: isinstance(value, Sequence))


@checked(
    affinity_code=CODE,
    runs_per_setting=Number(1, MOST_RUNS, whole=True),
    variants=list_of("dictionaries", lambda value: isinstance(value, Mapping)),
    log_dirs=list_of("paths", PATH.test),
    common_args=LIST,
    runs_args=list_of("lists", LIST.test),
)
def run_experiments(
    script: str | os.PathLike,
    affinity_code: str,
    experiment_title: str | os.PathLike,
    runs_per_setting: int,
    variants: Sequence[Mapping],
    log_dirs: Sequence[str | os.PathLike],
    common_args: Sequence | None = None,
    runs_args: Sequence[Sequence] | None = None,
    set_egl_device: bool = False,
    ray_address: str | None = None,
) -> list[RunStatus]:
    """Run an experiment on this machine or a Ray cluster: each variant several times, with as many simultaneous runs as fit.

    The experiment writes only to its directory, data/local/YYYYMMDD/HHMMSS/<experiment_title>; `status` describes its files. An
    experiment_title that is an absolute path is the directory itself. If it is launched again, finished runs are skipped; other runs
    resume from their last snapshot if the script uses `resume_from`, and restart otherwise. Variants and runs may be added. Earlier ones
    that are missing from the new arguments are not launched, but stay part of the experiment. `rerun_experiments` launches a whole
    experiment again, in any directory.

    The first runs of all variants are launched first, then the second ones. A failed run does not keep others from running. Ctrl-C,
    SIGTERM and SIGHUP end all runs, with time to save. At the end, a table is printed.

    Args:
        script: script of a run, which is called as in `launch_experiment`.
        affinity_code: from `encode_affinity`. A run slot in it does not matter, since each run gets its own.
        experiment_title: name, or absolute path, of the directory.
        runs_per_setting: runs of each variant; they have the run_IDs 0, 1, ...
        variants: the changes of each variant to the configuration; see `make_variants`.
        log_dirs: directory of each variant, relative to that of the experiment.
        common_args: arguments of the script for all runs, after the documented three.
        runs_args: further arguments for each variant, after `common_args`.
        set_egl_device: see `launch_experiment`.
        ray_address: address of a running Ray cluster, or "auto" for the cluster of this machine. Runs are then placed on its machines,
            which must see the experiment's directory and the script under the same paths. The affinity code says what each run gets; the
            number of simultaneous runs is as many as fit into the cluster. None for this machine.

    Returns:
        The state of each run, if all have finished.

    Raises:
        ValueError, TypeError, FileNotFoundError: arguments are wrong, or runs in the directory have finished with other arguments, or
            it is that of a search; nothing has been started or written.
        ConnectionError: no Ray cluster answers at that address.
        StillRunning: the same experiment, or one of its runs, is running.
        SystemExit: with code 1 if any run has failed, or 128 + n after signal n.
    """
    experiment = Experiment(
        script=os.fspath(script),
        affinity_code=affinity_code,
        runs_per_setting=[runs_per_setting] * len(variants),
        variants=[as_saved(variant) for variant in variants],
        log_dirs=[os.fspath(log_dir) for log_dir in log_dirs],
        common_args=[str(arg) for arg in no_text(common_args or (), "common_args")],
        runs_args=[[str(arg) for arg in no_text(args, "runs_args[i]")] for args in runs_args or [()] * len(variants)],
        set_egl_device=set_egl_device,
        cwd=os.getcwd(),
        ray_address=ray_address,
    )
    return _run(experiment, Path(get_log_dir(os.fspath(experiment_title))))


@checked()
def rerun_experiments(exp_dir: str | os.PathLike, affinity_code: str | None = None, ray_address: str | None = None) -> list[RunStatus]:
    """Launch the unfinished runs of the experiment in a directory again, with the arguments given to `run_experiments`.

    Args:
        exp_dir: directory of the experiment.
        affinity_code: replaces that of the first launch, e.g. on another machine.
        ray_address: replaces that of the first launch; "" for this machine.

    Returns, Raises:
        See `run_experiments`. ValueError if `exp_dir` contains no experiment.
    """
    exp_dir = Path(exp_dir).absolute()
    return _run(updated(_read(exp_dir), affinity_code=affinity_code, ray_address=ray_address), exp_dir)


def updated(before: Any, **arguments: Any) -> Any:
    """Return a copy of the saved arguments of a launch, a dataclass, with other values for `arguments`; None keeps a saved value."""
    return replace(before, **{name: value for name, value in arguments.items() if value is not None})


@checked(run_slot=STEPS, affinity_code=CODE, run_ID=STEPS, args=LIST)
def launch_experiment(
    script: str | os.PathLike,
    run_slot: int,
    affinity_code: str,
    log_dir: str | os.PathLike,
    variant: Mapping,
    run_ID: int,
    args: Sequence,
    python_executable: str | None = None,
    set_egl_device: bool = False,
) -> subprocess.Popen:
    """Start one run in a new process, and return the process.

        python {script} {slot_affinity_code} {log_dir} {run_ID} {*args}

    The process, with all processes that it starts, is bound to all CPUs of its slot, unless the code has ``set_affinity=False``.

    Args:
        script: Python script of the run.
        run_slot: number of the slot, from 0.
        affinity_code: from `encode_affinity`; `run_slot` replaces a slot in it.
        log_dir: directory of the run's variant; the variant is saved there.
        variant: the variant, which the script reads with ``load_variant(log_dir)``.
        run_ID: number of the run among those of its variant.
        args: further arguments.
        python_executable: the interpreter; default: that of this process.
        set_egl_device: set the environment variable EGL_DEVICE_ID to the number of the training GPU, for environments that render on it.
    """
    save_variant(variant, log_dir)
    command, options = _command(script, affinity_code, log_dir, run_ID, args, python_executable, set_egl_device, run_slot)
    return start_process(command, **options)


def resume_from() -> str | None:
    """Return the directory of the run that this script resumes, for a runner's argument of the same name; None for a new run.

    A script resumes a run if `run_experiments` launched it, and an earlier launch has left a snapshot.
    """
    return os.environ.get(RESUME_FROM) or None


def pause_at() -> int | None:
    """Return the environment steps at which this run pauses, for the search that launched it; None for a run that does not pause.

    Runners read it: at the first row of the log with at least this many steps, they save a snapshot and end.
    """
    text = os.environ.get(PAUSE_AT, "")
    return int(text) if text.isdecimal() else None


@checked()
def log_exps_tree(exp_dir: str | os.PathLike, log_dirs: Sequence[str | os.PathLike], runs_per_setting: int | Sequence[int]) -> None:
    """Write the directories of all runs as a tree into experiments_tree.txt; `runs_per_setting` may be a number for each log_dir."""
    if isinstance(runs_per_setting, int):
        runs_per_setting = [runs_per_setting] * len(log_dirs)
    tree: dict[str, dict] = {}
    for log_dir, n_runs in zip(log_dirs, runs_per_setting):
        branch = tree
        for part in Path(log_dir).parts:
            branch = branch.setdefault(part, {})
        branch.update({f"run_{run_ID}": {} for run_ID in range(n_runs)})
    lines = [str(exp_dir), *_branches(tree, "")]
    os.makedirs(exp_dir, exist_ok=True)
    with atomic_write(Path(exp_dir, "experiments_tree.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


@checked(n=STEPS, total=STEPS)
def log_num_launched(exp_dir: str | os.PathLike, n: int, total: int) -> None:
    """Write how many runs have been launched into num_launched.txt."""
    with atomic_write(Path(exp_dir, "num_launched.txt"), "w", encoding="utf-8") as file:
        file.write(f"{n} of {total} runs launched.\n")


class StillRunning(RuntimeError):
    """Runs cannot be launched because they are running already."""


@dataclass
class Experiment:
    """The arguments of `run_experiments`, as saved in the experiment's directory.

    `runs_per_setting`, `variants`, `log_dirs` and `runs_args` have one entry per variant. `cwd` is the directory in which the script is
    called.
    """

    script: str
    affinity_code: str
    runs_per_setting: list[int]
    variants: list[dict]
    log_dirs: list[str]
    common_args: list[str]
    runs_args: list[list[str]]
    set_egl_device: bool
    cwd: str
    ray_address: str | None = None

    def check(self) -> None:
        """Raise ValueError or FileNotFoundError if the experiment cannot be run."""
        if not Path(self.cwd).is_dir():
            raise FileNotFoundError(
                f"There is no directory {self.cwd} any more, in which the runs start: make it again, or launch with the same arguments "
                "from another directory."
            )
        if not Path(self.cwd, self.script).is_file():
            raise FileNotFoundError(f"There is no script {self.script!r} in {self.cwd}: give the path of the script that trains.")
        if self.ray_address and self.set_egl_device:
            raise ValueError("set_egl_device=True is for runs on this machine; on a Ray cluster they choose their device to render on.")
        for n_runs in self.runs_per_setting:
            if not is_integer(n_runs, lowest=1):
                raise ValueError(f"runs_per_setting={n_runs!r} must be an integer of at least 1.")
        n = len(self.variants)
        if n == 0:
            raise ValueError("variants is empty: give at least one, which may be an empty dictionary.")
        for name, n_values in dict(log_dirs=len(self.log_dirs), runs_args=len(self.runs_args)).items():
            if n_values != n:
                raise ValueError(f"There are {n} variants, but {n_values} {name}: there must be one for each.")
        places: dict[str, str] = {}
        for log_dir in self.log_dirs:
            place = os.path.normpath(log_dir)
            if os.path.isabs(place) or place.split(os.sep)[0] == "..":
                raise ValueError(f"The log_dir {log_dir!r} must be relative, inside the directory of the experiment.")
            if place in places:
                raise ValueError(f"Two variants have the same log_dir, {log_dir!r}: their runs would overwrite each other.")
            places[place] = log_dir
        for place, log_dir in places.items():
            parts = Path(place).parts
            for i, part in enumerate(parts):
                above = places.get(os.path.join(*parts[:i]) if i else ".")
                if above is not None and re.fullmatch(r"run_\d+", part):
                    raise ValueError(f"The log_dir {log_dir!r} is in that of a run of {above!r}: choose another directory.")
        for arg in [*self.common_args, *(arg for args in self.runs_args for arg in args)]:
            if "\0" in arg:
                raise ValueError(f"The argument {arg!r} has a zero character, which arguments of programs cannot have.")

    def script_path(self) -> str:
        """Return the path of the script, relative only if `cwd` is."""
        return os.path.normpath(os.path.join(self.cwd, self.script))

    def runs(self, exp_dir: Path) -> list[tuple[int, int, Path]]:
        """The number of the variant, the run_ID and the directory of each run, in the order of launching."""
        return [(i, run_ID, exp_dir / self.log_dirs[i] / f"run_{run_ID}") for i, run_ID in planned_runs(self.runs_per_setting)]

    def added_to(self, before: Experiment) -> Experiment:
        """Return this experiment with the variants and runs of an earlier launch, which come first."""
        both: dict[str, tuple] = {}  # by log_dir: runs, variant, log_dir, arguments
        for each in (before, self):
            for entry in zip(each.runs_per_setting, each.variants, each.log_dirs, each.runs_args):
                place = os.path.normpath(entry[2])
                n_runs = max(entry[0], both[place][0]) if place in both else entry[0]
                both[place] = (n_runs, *entry[1:])
        n_runs, variants, log_dirs, runs_args = map(list, zip(*both.values()))
        return replace(self, runs_per_setting=n_runs, variants=variants, log_dirs=log_dirs, runs_args=runs_args)

    def differences(self, before: Experiment, exp_dir: Path) -> list[str]:
        """Return what has changed for runs of an earlier launch that have finished, or that have begun and are no longer requested."""
        found: dict[str, tuple[Any, Any]] = {}
        asked = {os.path.normpath(log_dir): args for log_dir, args in zip(self.log_dirs, self.runs_args)}
        for i, _, run_dir in before.runs(exp_dir):
            log_dir, state = before.log_dirs[i], read_mark(run_dir)[0]
            is_asked = os.path.normpath(log_dir) in asked
            if state == "finished" or (not is_asked and state != "pending"):
                args = asked[os.path.normpath(log_dir)] if is_asked else before.runs_args[i]
                found["script"] = before.script_path(), self.script_path()
                found["common_args"] = (before.common_args, self.common_args)
                found[f"runs_args of {log_dir!r}"] = (before.runs_args[i], args)
        return [f"{name}: {old!r} before, {new!r} now" for name, (old, new) in found.items() if old != new]

    def n_slots(self) -> int:
        """Return the number of simultaneous runs; raise ValueError if the code asks for more than this machine has."""
        n_slots = get_n_run_slots(self.affinity_code)
        for slot in range(n_slots):
            affinity = affinity_from_code(prepend_run_slot(slot, self.affinity_code))
            if self.set_egl_device:
                _training_gpu(affinity)
        return n_slots


def _run(experiment: Experiment, exp_dir: Path) -> list[RunStatus]:
    """Run the unfinished runs of an experiment, print its table, and return its runs; SystemExit unless all have finished."""
    experiment.check()
    if (exp_dir / SEARCH).is_file():
        raise ValueError(f"{exp_dir} is the directory of a search: give the experiment another one. (rlpyt resume continues the search.)")
    with ExitStack() as stack:
        n_slots = _n_places(experiment, stack)
        stack.enter_context(only_launcher(exp_dir, "experiment"))
        _write(_with_what_is_there(experiment, exp_dir), exp_dir)
        runs = [
            Run(
                name=os.path.relpath(run_dir, exp_dir),
                run_dir=run_dir,
                start=partial(start_in_slot, experiment, run_dir.parent, run_ID, [*experiment.common_args, *experiment.runs_args[i]]),
            )
            for i, run_ID, run_dir in experiment.runs(exp_dir)
        ]
        say(f"Experiment {printable(exp_dir)}: {plural(len(runs), 'run')}, {min(n_slots, len(runs))} at a time.\n", sys.stdout)
        progress = exp_dir / "num_launched.txt"

        def on_launch(n: int) -> None:
            try_to_write(str(progress), lambda: log_num_launched(exp_dir, n, len(runs)))

        sweep = Sweep(InOrder(runs), n_slots, on_launch)
        number = sweep.run()
    states = [run_status(run.run_dir, exp_dir) for run in runs]
    say(f"\n{format_status(states)}\n", sys.stdout)
    if number or any(state.state != "finished" for state in states):
        if sweep.stopped_because:
            say(f"Stopped: {printable(sweep.stopped_because)}\n", sys.stdout)
        say(f"To resume the unfinished runs: rlpyt resume {printable(shlex.quote(str(exp_dir)))}\n", sys.stdout)
        raise SystemExit(128 + number if number else 1)
    return states


@contextmanager
def only_launcher(exp_dir: Path, what: str) -> Iterator[None]:
    """Make a directory; within this context, no other launcher works there. StillRunning if one does, on what is called `what`.

    Raises:
        OSError: the directory cannot be made, with a sentence that says so.
    """
    try:
        exp_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        is_file = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "it, or what it should be in, is a file" if is_file else error.strerror or error
        raise type(error)(f"The directory {exp_dir} cannot be made ({reason}): give the {what} another one.") from None
    with ExitStack() as stack:
        try:
            stack.enter_context(sole_writer(exp_dir, f"The {what} in {exp_dir} is running already, by another launcher."))
        except RuntimeError as error:
            raise StillRunning(str(error)) from None
        yield


def _with_what_is_there(experiment: Experiment, exp_dir: Path) -> Experiment:
    """Return the experiment merged with earlier launches in its directory; raise if their runs belong to another one, or are running."""
    if (exp_dir / EXPERIMENT).exists():
        before = _read(exp_dir)
        differences = experiment.differences(before, exp_dir)
        if differences:
            raise ValueError(
                f"Runs in {exp_dir} were launched in another way than they would be now. {'; '.join(differences)}. Give the experiment "
                "another directory; or launch it as before; or remove the directories of those runs."
            )
        whole = experiment.added_to(before)
        whole.check()
    else:
        whole = experiment
    for log_dir, variant in zip(experiment.log_dirs, experiment.variants):
        try:
            saved = load_variant(exp_dir / log_dir)
        except FileNotFoundError:
            continue
        if not is_same(saved, variant):
            raise ValueError(
                f"{exp_dir / log_dir / VARIANT} is of another variant, {saved!r}, than this one, {variant!r}: its runs would be mixed up "
                "with these. Give the variant another log_dir, or the experiment another directory."
            )
    for status in experiment_status(exp_dir):
        if status.state == "running":
            state, facts = read_mark(status.run_dir)
            who = f"as process {facts.get('pid')} on {facts.get('host')}, says {status.run_dir / 'RUNNING.json'}"
            who = who if state == "running" else "as its directory is locked by a process"
            raise StillRunning(f"{status.run_dir} is still running, {who}: wait until it has ended, or end it.")
    return whole


def _read(exp_dir: Path) -> Experiment:
    """Return the experiment saved in a directory; ValueError if it cannot be read."""
    try:
        asked = read_experiment(exp_dir)
        return Experiment(**{field.name: asked[field.name] for field in fields(Experiment) if field.name in asked})
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{exp_dir} is not the directory of an experiment: its {EXPERIMENT} cannot be read ({error!r}).") from None


def _write(experiment: Experiment, exp_dir: Path) -> None:
    """Write all files about an experiment before it is launched."""
    for log_dir, variant in zip(experiment.log_dirs, experiment.variants):
        save_variant(variant, exp_dir / log_dir)
    log_exps_tree(exp_dir, experiment.log_dirs, experiment.runs_per_setting)
    with atomic_write(exp_dir / EXPERIMENT, "w", encoding="utf-8") as file:
        json.dump(asdict(experiment), file, indent=2)
        file.write("\n")


def _n_places(experiment: Experiment, stack: ExitStack) -> int:
    """Return the number of simultaneous runs on this machine or the cluster.

    Raises:
        ValueError: no run fits.
    """
    if not experiment.ray_address:
        return experiment.n_slots()
    from rlpyt.utils.cluster import Cluster
    from rlpyt.utils.launching.ray_cluster import count_places

    _, n_cpus, n_gpus = one_run(experiment.affinity_code)
    cluster = Cluster(experiment.ray_address)
    stack.callback(cluster.close)
    return count_places(cluster, n_cpus, n_gpus)


def start_in_slot(
    experiment: Experiment,
    log_dir: Path,
    run_ID: int,
    args: Sequence,
    slot: int,
    environment: Mapping[str, str],
    stdout: Path,
    stderr: Path,
) -> RunProcess:
    """Start a run on this machine or the cluster. On the cluster it has slot 0, because its code describes only its own resources."""
    if not experiment.ray_address:
        code, set_egl_device = experiment.affinity_code, experiment.set_egl_device
        command, options = _command(experiment.script, code, log_dir, run_ID, args, None, set_egl_device, slot)
        options["environment"] = {**options["environment"], **environment}
        return start_run(command, stdout, stderr, cwd=experiment.cwd, **options)
    from rlpyt.utils.launching.ray_cluster import RayRunProcess

    code, n_cpus, n_gpus = one_run(experiment.affinity_code)
    command = [str(part) for part in (sys.executable, experiment.script, prepend_run_slot(0, code), log_dir, run_ID, *args)]
    return RayRunProcess(command, stdout, stderr, environment, experiment.cwd, n_cpus, n_gpus, LEFTOVER_GRACE)


def _command(
    script: str | os.PathLike,
    affinity_code: str,
    log_dir: str | os.PathLike,
    run_ID: int,
    args: Sequence,
    python_executable: str | None,
    set_egl_device: bool,
    run_slot: int,
) -> tuple[list[str], dict]:
    """Return the command of a run, and options of `start_process`: its processors and additional environment variables."""
    slot_affinity_code = prepend_run_slot(run_slot, affinity_code)
    affinity = affinity_from_code(slot_affinity_code)
    cpus = _cpus(affinity) if can_bind_processes() else set()
    environment = launcher_environment() if cpus else {}
    if set_egl_device:
        environment["EGL_DEVICE_ID"] = str(_training_gpu(affinity))
    command = [python_executable or sys.executable, script, slot_affinity_code, log_dir, run_ID, *args]
    return [str(part) for part in command], dict(cpus=cpus, environment=environment)


def _cpus(affinity: Mapping | Sequence[Mapping]) -> set[int]:
    """All CPUs of a run's affinity in the form of `affinity_from_code`; none if the run stays unbound."""
    if not isinstance(affinity, Mapping):
        return set().union(*(_cpus(each) for each in affinity))
    return set(affinity.get("all_cpus") or ()) if affinity.get("set_affinity", True) else set()


def _training_gpu(affinity: Mapping | Sequence[Mapping]) -> int:
    """The GPU that trains, the first one of several; ValueError without one."""
    parts = affinity.get("optimizer", [affinity]) if isinstance(affinity, Mapping) else affinity
    cuda_idx = parts[0].get("cuda_idx")
    if cuda_idx is None:
        raise ValueError("set_egl_device=True is for runs with a GPU, but the affinity code gives them none.")
    return cuda_idx


def _branches(tree: Mapping[str, Mapping], indent: str) -> list[str]:
    """Lines of a tree of names."""
    lines = []
    for i, (name, branch) in enumerate(tree.items()):
        is_last = i == len(tree) - 1
        lines.append(f"{indent}{'└── ' if is_last else '├── '}{name}")
        lines += _branches(branch, indent + ("    " if is_last else "│   "))
    return lines


def no_text(values: Sequence, name: str) -> Sequence:
    """Return the values; TypeError for a text, whose characters would be taken for separate values."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name}={values!r} must be a list or tuple, e.g. ({values!r},).")
    return values
