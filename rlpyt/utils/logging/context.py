"""The directory of a run, and tools for the directories of many runs."""

import json
import math
import multiprocessing
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from itertools import chain, count
from os import PathLike
from pathlib import Path
from typing import Any

from rlpyt.utils.extras import clone_directory
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.runs import RECORD
from rlpyt.utils.logging.store import snapshot_files
from rlpyt.utils.logging.writers import WandbWriter, Writers, import_wandb
from rlpyt.utils.misc import is_file_name, write_json
from rlpyt.utils.settings import ANYTHING, COUNT, DICTIONARY, FLAG, PATH, Kind, checked, one_of
from rlpyt.utils.text import flush_output, printable, show, traceback_of

# In a clone, data/ beside the code, where git ignores data/local/; otherwise data/ in the current directory.
LOG_DIR = str((clone_directory() or Path.cwd()) / "data")
EXITS_BY_SIGNAL = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of runs that were told to end
IMPORTS_MAIN = 76  # exit code of a child process that tried to start a run itself, see `leave_if_importing_main`
_NO_NEW_RUNS: ContextVar[str | None] = ContextVar("no_new_runs", default=None)
COMPLETE = "Training complete."  # The last line of a runner.
RUN_COMPLETE = "Run complete."  # The last line of a log that is closed cleanly. A log with neither line is of an unfinished run.


OF_LOGS = dict(
    snapshot_mode=one_of(*logger.SNAPSHOT_MODES),
    snapshot_gap=COUNT,
    tf_step=one_of(*logger.TF_STEPS),
    use_wandb=Kind("True, False, or a dictionary", lambda value: FLAG.test(value) or DICTIONARY.test(value)),
)


def get_log_dir(experiment_name: str, root_log_dir: PathLike | str | None = None, date: bool = True) -> str:
    """Return <root_log_dir>/local/YYYYMMDD/HHMMSS/<experiment_name>, without the time if `date` is False.

    Args:
        root_log_dir: default LOG_DIR, which is data/ in the clone, or in the current directory without one.

    Raises:
        ValueError: the name is relative, but leads out of this directory.
    """
    return _log_dir_at(datetime.now() if date else None, experiment_name, root_log_dir)


def _log_dir_at(time: datetime | None, experiment_name: str, root_log_dir: PathLike | str | None = None) -> str:
    root = os.path.join(LOG_DIR if root_log_dir is None else root_log_dir, "local")
    return inside(os.path.join(root, "" if time is None else time.strftime("%Y%m%d/%H%M%S")), experiment_name, "log_dir")


def inside(directory: str, name: PathLike | str, what: str) -> str:
    """Return the path of `name` in a directory, or `name` itself if it is absolute.

    Raises:
        ValueError: `name` is relative but leads out of the directory, or is no possible file name; the message calls it `what`.
    """
    name = os.fspath(name)
    _refuse_empty(name, what)
    parts = [part for part in os.path.normpath(name).split(os.sep) if part]
    if not os.path.isabs(name) and os.pardir in parts:
        raise ValueError(f"{what}={name!r} leads out of {directory}: give an absolute path if you mean that.")
    if not all(part == os.curdir or is_file_name(part) for part in parts):
        raise ValueError(f"{what}={name!r} cannot be the name of a directory: leave out characters that file names cannot have.")
    return os.path.join(directory, name)


def _refuse_empty(name: str, what: str) -> None:
    if not name:
        raise ValueError(f"{what} is empty: give the name of a directory, or an absolute path. Is a variable of the shell not set?")


@checked(OF_LOGS, log_dir=PATH, name=ANYTHING)
@contextmanager
def logger_context(
    log_dir: PathLike | str,
    run_ID: Any,
    name: str,
    log_params: dict | None = None,
    snapshot_mode: str = "last",
    override_prefix: bool = False,
    use_summary_writer: bool = False,
    snapshot_gap: int | None = None,
    tf_step: str = "itr",
    use_wandb: bool | dict = False,
) -> Iterator[str]:
    """Context in which a run has a log: put it around `runner.train()`. Yields the run's directory.

    ::

        with logger_context("cartpole", 0, "ppo", config) as run_dir:
            runner.train()

    The directory is LOG_DIR/local/YYYYMMDD/HHMMSS/<log_dir>/run_<run_ID>, which is always new: if runs start in the same second, the later
    ones get the next free second. It is <log_dir>/run_<run_ID> if log_dir is an absolute path or already under LOG_DIR, or with
    override_prefix=True. Files of an earlier run there are kept, renamed to progress.1.csv and so on.

    The directory gets debug.log (text), progress.csv (diagnostics), params.json (log_params, name, run_ID) and the snapshots. Of the
    processes that torchrun started, the first one writes; the others log nothing.

    At the end of the block, the previous log is restored. Python's warnings that are shown in the block are also written to debug.log.
    So are an exception and a normal end, by which a launcher recognizes a finished run. Contexts may follow one another and nest: the inner
    run writes only to its own files.

    Args:
        log_params: the configuration; values that JSON cannot hold are written as the names of their types. The key "rlpyt" is left out:
            in params.json of an earlier run, it has the record of that run. See `rlpyt.runners.record`.
        snapshot_mode: "none"; "last": params.pkl, overwritten (the default, so that every run leaves a snapshot); "all": itr_N.pkl; "gap":
            itr_N.pkl every `snapshot_gap` iterations; "last+gap"; "best": params.pkl, and best.pkl, the one with the highest mean return
            (of the evaluation if the run evaluates, else of the last episodes).
        use_summary_writer: write for TensorBoard into the same directory.
        tf_step: the x-axis in TensorBoard and Weights & Biases, "itr" (iteration) or "env_steps" (environment steps).
        use_wandb: also write for Weights & Biases; a dictionary has arguments of wandb.init, e.g. dict(project="atari", mode="offline").

    Raises:
        ValueError: `run_ID` cannot be part of a file name, or a relative `log_dir` leads elsewhere ("../x").
        RuntimeError: another run is writing to the directory.
        OSError: the directory cannot be made.
    """
    own = {key: value for key, value in (log_params or {}).items() if key != RECORD}
    params = {**own, "name": name, "run_ID": run_ID}
    message = "give this one another run_ID or log_dir."
    settings = (snapshot_mode, use_summary_writer, snapshot_gap, tf_step, use_wandb)
    run_dir, others = _run_dirs(log_dir, run_ID, override_prefix)
    with run_context(run_dir, f"{name}_{run_ID}", params, *settings, message, others) as run_dir:
        yield run_dir


def has_earlier_run(log_dir: PathLike | str, run_ID: Any) -> bool:
    """Return whether the directory of a new run has files of an earlier one, which `logger_context` would move aside."""
    run_dir, _ = _run_dirs(log_dir, run_ID, override_prefix=False)
    return os.path.isdir(run_dir) and bool(_files_of_run(run_dir))


@checked(OF_LOGS)
@contextmanager
def run_context(
    run_dir: str,
    title: str,
    params: dict,
    snapshot_mode: str = "last",
    use_summary_writer: bool = False,
    snapshot_gap: int | None = None,
    tf_step: str = "itr",
    use_wandb: bool | dict = False,
    if_taken: str = "give this one another directory.",
    others: Iterable[str] = (),
) -> Iterator[str]:
    """Like `logger_context`, for a run in exactly this directory; yields it.

    Args:
        run_dir: absolute path.
        title: prefix of each line of the log.
        params: contents of params.json.
        if_taken: advice in the error if another run is writing there.
        others: absolute paths; if `run_dir` exists already, the first of these that does not exist is used.
    """
    check_runs_may_start()
    logger.check_snapshot_mode(snapshot_mode)
    with ExitStack() as stack:
        stack.enter_context(logger.new_run())
        if torchrun_rank() > 0:  # Rank 0 writes for all.
            logger.disable()
            logger.disable_tabular()
            yield run_dir
            return
        logger.set_tf_step(tf_step)
        if snapshot_gap is not None:
            logger.set_snapshot_gap(snapshot_gap)
        SummaryWriter = logger.get_tf_summary_writer_class() if use_summary_writer else None
        if use_wandb:
            import_wandb()  # Raises before any directory is made.
        run_dir = make_first_new(run_dir, others)
        message = f"Another run is writing to {run_dir}: {if_taken}"
        stack.enter_context(sole_writer(run_dir, message))
        logger.move_aside(_files_of_run(run_dir))
        logger.add_text_output(os.path.join(run_dir, "debug.log"))
        logger.add_tabular_output(os.path.join(run_dir, "progress.csv"))
        logger.log_parameters_lite(os.path.join(run_dir, "params.json"), params)
        logger.set_snapshot_mode(snapshot_mode)
        logger.set_snapshot_dir(run_dir)
        writers = []
        if SummaryWriter is not None:
            writers.append(SummaryWriter(run_dir))
            stack.callback(_close, writers[0])
            logger.set_tf_summary_dir(run_dir)
        if use_wandb:
            settings = use_wandb if isinstance(use_wandb, dict) else {}
            writers.append(stack.enter_context(WandbWriter(run_dir, title, logger.stub_to_json(params), settings)))
        if writers:
            logger.set_tf_summary_writer(writers[0] if len(writers) == 1 else Writers(writers))
        logger.push_prefix(f"{printable(title)} ")
        logger.log(f"Logging to {printable(run_dir)}")
        try:
            with logger.keeping_warnings():
                yield run_dir
        except BaseException as error:
            if not isinstance(error, SystemExit) or error.code not in (None, 0, *EXITS_BY_SIGNAL):
                logger.write_text(traceback_of(error))
            raise
        logger.write_text(RUN_COMPLETE)


@contextmanager
def no_new_runs(message: str) -> Iterator[None]:
    """Inside this context, opening a log or starting to train raises ValueError with this message: for code that is only inspected."""
    token = _NO_NEW_RUNS.set(message)
    try:
        yield
    finally:
        _NO_NEW_RUNS.reset(token)


def runs_may_start() -> bool:
    """Return whether no `no_new_runs` context is active."""
    return _NO_NEW_RUNS.get() is None


def check_runs_may_start() -> None:
    """Raise ValueError inside `no_new_runs`, and `leave_if_importing_main`."""
    leave_if_importing_main()
    message = _NO_NEW_RUNS.get()
    if message is not None:
        raise ValueError(message)


def leave_if_importing_main() -> None:
    """End this process, with the exit code IMPORTS_MAIN, if it is a child of multiprocessing that is still importing the main script.

    Code that starts a run or processes calls this function: a script that starts them at import would start them again in each child.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing checks the same before it starts a process.
        flush_output()
        os._exit(IMPORTS_MAIN)  # The parent recognizes the code, and raises the error.


def torchrun_rank() -> int:
    """Return the rank of this process among those that torchrun started; 0 without torchrun."""
    return int(os.environ.get("RANK", 0)) if "LOCAL_WORLD_SIZE" in os.environ else 0


def _close(writer: Any) -> None:
    with suppress(OSError):  # A full disk has been reported already
        writer.close()


def _run_dirs(log_dir: PathLike | str, run_ID: int | str, override_prefix: bool) -> tuple[str, Iterator[str]]:
    """Return the directory for a run, and the directories of the following seconds; none if its path contains no time."""
    name = f"run_{run_ID}"
    if not is_file_name(name) or str(run_ID) in ("", os.pardir):
        raise ValueError(f"run_ID={run_ID!r} cannot be part of the directory's name, run_<run_ID>: give a number, or a word.")
    log_dir = os.fspath(log_dir)
    _refuse_empty(log_dir, "log_dir")
    if override_prefix or os.path.isabs(log_dir) or _is_under_log_dir(log_dir):
        return os.path.join(inside(os.getcwd(), os.path.abspath(log_dir), "log_dir"), name), iter(())
    now = datetime.now()
    times = (now + timedelta(seconds=seconds) for seconds in count())
    run_dirs = (os.path.abspath(os.path.join(_log_dir_at(time, log_dir), name)) for time in times)
    return next(run_dirs), run_dirs


def make_first_new(directory: str, others: Iterable[str]) -> str:
    """Make the first of these directories that does not exist yet, and return its path; return `directory` if all exist.

    Raises:
        OSError: a directory cannot be made, with a sentence that says so.
    """
    for candidate in chain([directory], others):
        try:
            os.makedirs(candidate)
            return candidate
        except FileExistsError:
            pass
        except OSError as error:
            reason = error.strerror or error
            raise type(error)(f"The log directory {candidate} cannot be made ({reason}): give another log_dir.") from None
    return directory


def _is_under_log_dir(log_dir: str) -> bool:
    with suppress(ValueError):  # Not a possible file name.
        return Path(log_dir).resolve().is_relative_to(Path(LOG_DIR).resolve())
    return False


def _files_of_run(run_dir: str) -> list[str]:
    own = re.compile(
        r"debug\.log|progress\.csv|digests\.jsonl|(params|variant|metadata|trainer)\.json|launch_archive\.tar\.xz|replay(_\d+)?"
    )
    snapshots = {file.path.name for file in snapshot_files(run_dir) if file.run == math.inf}
    return [os.path.join(run_dir, name) for name in sorted(os.listdir(run_dir)) if own.fullmatch(name) or name in snapshots]


@contextmanager
def sole_writer(directory: PathLike | str, message: str) -> Iterator[None]:
    """Lock a directory for the block, at most until its processes end; raise RuntimeError if another process holds a lock."""
    with _locked(directory, message, shared=False):
        yield


@contextmanager
def reader(directory: PathLike | str, message: str) -> Iterator[None]:
    """Keep `sole_writer` out of a directory for the block; raise RuntimeError if it is there. Other readers do not matter."""
    with _locked(directory, message, shared=True):
        yield


@contextmanager
def _locked(directory: PathLike | str, message: str, shared: bool) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # No such locks on this platform
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(message) from None
        except OSError:  # A file system without locks
            pass
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # Closing alone would not unlock: forked processes hold it, too
        os.close(descriptor)


def add_exp_param(param_name: str, param_val: Any, exp_dir: PathLike | str | None = None, overwrite: bool = False) -> None:
    """Write a parameter into params.json of every experiment in the immediate subdirectories of exp_dir.

    Use it to tell experiments apart afterwards, e.g. by a combination of settings.

    Args:
        exp_dir: default the current directory.
        overwrite: replace an existing parameter; otherwise such an experiment stays as it is, and a line says so.
    """
    for params_file in sorted(Path(exp_dir or ".").glob("*/params.json")):
        params = json.loads(params_file.read_text())
        if param_name in params and not overwrite:
            show(f"{printable(params_file)}: {param_name}={params[param_name]!r} stays (overwrite=True replaces it)")
            continue
        params[param_name] = logger.stub_to_json(param_val)
        write_json(params_file, params)


def check_progress(exp_dir: PathLike | str | None = None) -> None:
    """Print the number of lines of every progress.csv in exp_dir (default: the current directory) and its subdirectories.

    python -c "from rlpyt.utils.logging.context import check_progress; check_progress('data/local')"
    """
    for progress_file in sorted(Path(exp_dir or ".").rglob("progress.csv")):
        with open(progress_file, "rb") as file:
            show(f"{sum(1 for _ in file):8d} {printable(progress_file)}")
