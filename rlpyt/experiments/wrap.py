"""`wrap_experiment` turns a function into an experiment with a directory, a log, and a record of the code that was run.

    @wrap_experiment
    def cartpole(ctxt, seed=0, lr=1e-3):
        ...
        trainer = Trainer(ctxt)

    cartpole(lr=1e-4)                          # logs into data/local/experiment/cartpole, then cartpole_1, ...
    cartpole(dict(snapshot_mode="all"), lr=1)  # with another option, this time

    data/local/experiment/cartpole/
        variant.json, params.json    arguments of the function, defaults included
        metadata.json                command, machine, packages, commit
        launch_archive.tar.xz        the repository of the script that was run
        debug.log, progress.csv, events.out.tfevents...     text, rows, and the rows for TensorBoard
        params.pkl, itr_N.pkl        snapshots

An `ExperimentContext` does the same without a function.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import Any

from rlpyt.utils import provenance
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import inside, make_first_new, run_context, torchrun_rank
from rlpyt.utils.logging.runs import STEPS_COLUMNS
from rlpyt.utils.logging.store import ByEpoch
from rlpyt.utils.misc import did_you_mean
from rlpyt.utils.settings import ANYTHING, COUNT, PATH, checked, shown

_LOGGER_MODES = {"gap_and_last": "last+gap", "gap_overwrite": "last"}  # the nearest modes, for runners without a Trainer
_LONGEST_NAME = 255  # bytes, of one directory
_MOST_NAMED = 10  # files, in a warning


@dataclass
class ExperimentContext:
    """Settings of an experiment's snapshots, which `Trainer`, `Snapshotter` and `logger_context` have as well.

    Inside an experiment the log is open already. Elsewhere, ``with ExperimentContext(directory):`` opens a log, so that code in such a
    block runs in both places.

    Args:
        snapshot_dir: directory of the experiment.
        snapshot_mode: which snapshots are kept, see `rlpyt.runners.snapshots.Snapshotter`.
        snapshot_gap: epochs between two snapshots in the modes with a gap.
    """

    snapshot_dir: str
    snapshot_mode: str = "last"
    snapshot_gap: int = 1
    _logs: list[ExitStack] = field(default_factory=list, init=False, repr=False, compare=False)  # one for each open `with` block

    def __fspath__(self) -> str:
        return self.snapshot_dir

    def __enter__(self) -> str:
        directory, log = os.path.abspath(self.snapshot_dir), ExitStack()
        if logger.get_snapshot_dir() != directory:
            log.enter_context(_open_log(directory, os.path.basename(directory), {}, self.snapshot_mode, self.snapshot_gap))
        self._logs.append(log)
        return directory

    def __exit__(self, *exc_info: Any) -> bool | None:
        return self._logs.pop().__exit__(*exc_info)


@dataclass(frozen=True)
class _Options:
    """Arguments of `wrap_experiment`, which a single call may change."""

    log_dir: Any
    prefix: str
    name: str | None
    snapshot_mode: str
    snapshot_gap: int
    archive_launch_repo: bool
    name_parameters: str | None
    use_existing_dir: bool
    x_axis: str

    def __post_init__(self) -> None:
        ByEpoch(self.snapshot_mode, self.snapshot_gap)  # Raises ValueError for wrong values.

    def changed(self, changes: dict[str, Any]) -> _Options:
        """Return the options with some changes; ValueError for an unknown option."""
        names = [each.name for each in fields(self)]
        for name in changes:
            if name not in names:
                raise ValueError(f"wrap_experiment has no option {name!r}. {did_you_mean(name, names)}")
        return replace(self, **changes)


@checked(function=ANYTHING, log_dir=PATH._replace(optional=True), snapshot_gap=COUNT)
def wrap_experiment(
    function: Callable | None = None,
    *,
    log_dir: Any = None,
    prefix: str = "experiment",
    name: str | None = None,
    snapshot_mode: str = "last",
    snapshot_gap: int = 1,
    archive_launch_repo: bool = True,
    name_parameters: str | None = None,
    use_existing_dir: bool = False,
    x_axis: str = "TotalEnvSteps",
) -> Callable:
    """Decorate a function, with or without arguments, so that each call of it is an experiment with a new directory.

    The function's first parameter must be called `ctxt`: it receives an `ExperimentContext`. The others are given as keyword arguments.
    A dictionary as the only positional argument of a call changes the arguments below for that call.

    Under torchrun, only the first process logs and saves. Each of the others gets an empty directory, which is removed at the end; with
    `use_existing_dir`, all processes get the same directory.

    Args:
        function: the function.
        log_dir: directory of the experiment; default ``data/local/<prefix>/<name>`` in the current directory. If it exists, ``_1``,
            ``_2`` and so on is appended.
        prefix: see `log_dir`.
        name: name of the experiment; default the function's.
        snapshot_mode: which snapshots are kept: "last", "all", "gap", "gap_and_last", "gap_overwrite" or "none"; see
            `rlpyt.runners.snapshots.Snapshotter`.
        snapshot_gap: epochs between two snapshots in the modes with a gap.
        archive_launch_repo: archive the git repository of the script: all files of less than 8 MiB each that git does not ignore; a
            warning names larger ones.
        name_parameters: "passed" appends the parameters given in a call to the name; "all" includes the defaults of the others, in the
            order of the function's definition.
        use_existing_dir: use the directory even if it exists. Files of an earlier run are kept, renamed to ``progress.1.csv`` and so on.
        x_axis: the column of TensorBoard's x-axis. ("TotalEnvSteps", which a `Trainer` logs, also means "CumSteps" of other runners.)

    Returns:
        The experiment: a function with the same parameters except `ctxt`, and the same result.

    Raises:
        ValueError: the first parameter has another name, or an option a wrong value. Calls raise it if `prefix` or `name` lead out of
            ``data/local``.
    """
    if not (function is None or callable(function)):
        said = shown(function)
        raise ValueError(f"wrap_experiment: function={said} is not a function; arguments are given by keyword, such as name={said}.")
    options = _Options(log_dir, prefix, name, snapshot_mode, snapshot_gap, archive_launch_repo, name_parameters, use_existing_dir, x_axis)
    return functools.partial(_experiment, options=options) if function is None else _experiment(function, options)


def _experiment(function: Callable, options: _Options) -> Callable:
    signature = _signature_without_context(function)

    @functools.wraps(function)
    def experiment(*args: Any, **kwargs: Any) -> Any:
        if args and not (len(args) == 1 and isinstance(args[0], dict)):
            raise ValueError(
                f"{function.__name__}() takes its arguments by keyword; a positional one may only be a dictionary of options of "
                "wrap_experiment."
            )
        chosen = options.changed(args[0]) if args else options
        try:
            bound = signature.bind(**kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__name__}{signature}: {error}.") from None
        passed = _flat(bound, signature)
        bound.apply_defaults()
        parameters = _flat(bound, signature)
        name = (chosen.name or function.__name__) + _appendix(chosen.name_parameters, passed, parameters)
        with _run(chosen, name, passed, parameters) as ctxt:
            return function(ctxt, **kwargs)

    experiment.__signature__ = signature  # type: ignore[attr-defined]
    return experiment


def _signature_without_context(function: Callable) -> inspect.Signature:
    """The parameters of an experiment, by keyword only; ValueError if the function cannot be one."""
    signature = inspect.signature(function)
    if not signature.parameters:
        raise ValueError(f"{function.__name__}() must have a first parameter named 'ctxt' to be an experiment; it has none.")
    context, *others = signature.parameters.values()
    if context.name != "ctxt":
        raise ValueError(f"The first parameter of {function.__name__}() must be named 'ctxt' instead of {context.name!r}.")
    unfit = [p.name for p in others if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
    if unfit:
        raise ValueError(f"{function.__name__}() takes {', '.join(unfit)} by position only; an experiment's parameters are given by name.")
    named = [p.replace(kind=p.KEYWORD_ONLY) if p.kind == p.POSITIONAL_OR_KEYWORD else p for p in others]
    return signature.replace(parameters=named)


def _flat(bound: inspect.BoundArguments, signature: inspect.Signature) -> dict[str, Any]:
    """Arguments in the order of the definition, with the entries of ``**kwargs`` by name."""
    flat: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        flat.update(value if signature.parameters[name].kind == inspect.Parameter.VAR_KEYWORD else {name: value})
    return flat


def _appendix(which: str | None, passed: dict[str, Any], parameters: dict[str, Any]) -> str:
    """The suffix of an experiment's name that shows its parameters."""
    if which not in (None, "passed", "all"):
        raise ValueError(f"wrap_experiment.name_parameters must be None, 'passed' or 'all', not {which!r}.")
    named = {} if which is None else passed if which == "passed" else parameters
    text = "".join(f"_{name}={value}" for name, value in named.items())
    return "".join(c if c.isprintable() and c not in "/\\" else "-" for c in text)  # a single directory for all values


# --- The run ----------------------------------------------------------------------------------------------------------
@contextmanager
def _run(options: _Options, name: str, passed: dict[str, Any], parameters: dict[str, Any]) -> Iterator[ExperimentContext]:
    """Make the directory, open the log, and record the code that is run."""
    is_writer = torchrun_rank() == 0  # Only the first process of torchrun writes.
    with ExitStack() as stack:
        if options.use_existing_dir:
            log_dir = _log_dir(options, name)
        elif is_writer:
            log_dir = _log_dir(options, name)
            log_dir = make_first_new(log_dir, (f"{log_dir}_{number}" for number in count(1)))  # Never the same for two processes.
        else:  # The first process's number is unknown here, and the directory without a number is an earlier run's.
            log_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="rlpyt_rank_"))
        stack.enter_context(_open_log(log_dir, name, parameters, options.snapshot_mode, options.snapshot_gap, options.x_axis))
        if is_writer:
            logger.log_variant(os.path.join(log_dir, "variant.json"), parameters)
            _record(log_dir, list(passed), options.archive_launch_repo)
        yield ExperimentContext(log_dir, options.snapshot_mode, options.snapshot_gap)


@contextmanager
def _open_log(
    directory: str, title: str, parameters: dict[str, Any], mode: str, gap: int, x_axis: str = STEPS_COLUMNS[0]
) -> Iterator[None]:
    mode = ByEpoch(mode, gap).mode
    params = {"name": title, **parameters}
    with run_context(directory, title, params, _LOGGER_MODES.get(mode, mode), use_summary_writer=True, snapshot_gap=gap):
        logger.set_tf_step("env_steps", STEPS_COLUMNS if x_axis in STEPS_COLUMNS else (x_axis,))
        yield


def _outputs() -> Path:
    return Path.cwd() / "data" / "local"


def _log_dir(options: _Options, name: str) -> str:
    if options.log_dir is not None:
        return os.path.abspath(options.log_dir)
    encoded = name.encode(errors="surrogatepass")
    if len(encoded) > _LONGEST_NAME - 10:  # leaves room for _1, _2, ...
        digest = hashlib.sha256(encoded).hexdigest()[:16]
        name = f"{encoded[: _LONGEST_NAME - 30].decode(errors='ignore')}_{digest}"
    return os.path.abspath(inside(str(_outputs()), os.path.join(options.prefix, name), "prefix/name of wrap_experiment"))


def _record(log_dir: str, passed: list[str], with_archive: bool) -> None:
    """Write metadata.json, and the archive of the repository."""
    script = provenance.launcher()
    root = provenance.repository_of(script)
    outputs = [_outputs().resolve(), Path(log_dir).resolve()]
    logger.log_variant(os.path.join(log_dir, "metadata.json"), dict(provenance.describe(script, root, outputs), passed_parameters=passed))
    if root is None or not with_archive:
        return
    path, written = os.path.join(log_dir, "launch_archive.tar.xz"), []
    logger.try_to_write(path, lambda: written.append(provenance.archive(root, path, outputs)))
    advice = "let git ignore files that are not code, or switch the archive off (wrap_experiment(archive_launch_repo=False))."
    for size, left_out in written:
        if size >= provenance.LARGE:
            logger.warn(f"{path} holds {size / 2**20:.0f} MiB of files: {advice}")
        if left_out:
            large, more = [f"{name!r} ({n / 2**20:.0f} MiB)" for name, n in left_out.items()], len(left_out) - _MOST_NAMED
            names = ", ".join(large[:_MOST_NAMED]) + f" and {more} more" * (more > 0)
            logger.warn(f"{path} lacks files of {provenance.LARGE / 2**20:.0f} MiB or more, {names}: {advice}")
