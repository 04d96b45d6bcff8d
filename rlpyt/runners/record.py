"""A record of how a run was made, in its params.json: enough to build its parts again, and to tell where they came from.

params.json holds the `log_params` of the script, and under ``"rlpyt"`` this record:

=================== =================================================================================================
key                 what
=================== =================================================================================================
format              version of this layout
script              file of the script, also relative to the run, and its module where it was started by ``python -m``
seed, n_steps,      of the run (env steps, mean return, whether it has digests); what it was resumed with last
stop_return, digest
runner, algo,       how each was made: ``class``, ``arguments`` (those that were given), ``defaults`` (the values of all
agent, sampler      others, for reading); see `rlpyt.utils.recipes`. `Trainer` adds ``trainer``.
accelerate          arguments of the algorithm's method of that name
log                 how the log is kept: arguments of `rlpyt.utils.logging.context.logger_context`
choices             between equal computations; a resumed run keeps them. To repeat them in a new run, give them to the runner as
                    `calibrate`.
traj_info           attributes that the TrajInfo class gets, such as the discount
started, command... when, where and by which versions the run was started; the state of the script's git repository, or of rlpyt's
                    for the command ``rlpyt`` and for scripts in no repository
resumed             the same for each time the run was resumed, and ``steps``, the environment steps after which it was, and
                    ``planned``, those that were planned for the whole run until then
=================== =================================================================================================
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from rlpyt.runners.protocols import CompletedAlgorithm
from rlpyt.utils import provenance
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import LOG_DIR, check_runs_may_start, torchrun_rank
from rlpyt.utils.logging.runs import RECORD, read_params, recorded_settings, resumptions
from rlpyt.utils.logging.store import beside
from rlpyt.utils.logging.writers import CompletedWriter
from rlpyt.utils.misc import write_json
from rlpyt.utils.recipes import Script, defaults_of, describe, describe_call, readable, running_script

FORMAT = 1
PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "mujoco", "box2d", "numba")  # whose versions can change what a run computes
CHANGEABLE = ("n_steps", "stop_return", "digest")  # Settings of a runner that may change when the run is resumed.
_ORIGIN = (  # What `_origin` returns.
    *("started", "command", "directory", "host", "platform", "python", "packages"),
    *("githash", "git_dirty", "git_root_path", "launcher"),
)


def record_run(runner: Any) -> None:
    """Write how the parts of `runner` were made into params.json of the open log.

    Only one process writes it, once in each training. The log names arguments that cannot be written as data. Without an open log, nothing
    is written.

    Args:
        runner: a runner whose seed is known, and whose training has not begun.

    Raises:
        ValueError: the runner is only to be built, see `rlpyt.utils.logging.context.no_new_runs`.
    """
    check_runs_may_start()
    directory = runner.snapshots.get_snapshot_dir()
    if runner.is_recorded or runner.rank > 0 or torchrun_rank() > 0 or directory is None:
        return
    runner.is_recorded = True
    algo = runner.algo
    completed = CompletedAlgorithm(algo)
    accelerate = {name: getattr(completed, name) for name in ("bf16", "compile_models", "cuda_graphs") if getattr(completed, name)}
    runner.unrecorded = write_record(
        directory,
        runner.script or running_script(),
        parts=dict(runner=runner, algo=algo, agent=runner.agent, sampler=runner.sampler),
        seed=runner.seed,
        is_resumed=runner.resume_from is not None,
        **{name: getattr(runner, name, None) for name in CHANGEABLE},
        accelerate=accelerate,
        traj_info=readable(runner.get_traj_info_kwargs()),
        **runner.also_recorded,
    )


def record_choices(runner: Any) -> None:
    """Add the choices of a runner to its record."""
    _change_record(runner, lambda record: {**record, "choices": runner.choices})


def record_resumed(runner: Any, file: Path, steps: int) -> None:
    """Add to the record that the run has been resumed from a snapshot, in `file`, after this number of environment steps."""

    def resumed(record: dict[str, Any]) -> dict[str, Any]:
        if "resumed" not in record:  # A script resumes the run, not the command.
            with suppress(OSError, ValueError):  # The run is worth more than its record.
                earlier = read_params(beside(file, "params.json")).get(RECORD)
                record = _continued(earlier, record) if isinstance(earlier, dict) else record
        for last in resumptions(record)[-1:]:
            last["steps"] = steps
        return record

    _change_record(runner, resumed)


def _change_record(runner: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace the record of a runner, if it has one in its directory."""
    directory = runner.snapshots.get_snapshot_dir()
    if not runner.is_recorded or directory is None:
        return
    path = os.path.join(directory, "params.json")

    def write() -> None:
        with open(path, encoding="utf-8") as file:
            params = json.load(file)
        if RECORD not in params:  # The disk has refused it.
            return
        write_json(path, {**params, RECORD: change(params[RECORD])})

    logger.try_to_write(path, write)


def write_record(directory: Any, script: Script, parts: dict[str, Any], is_resumed: bool, **facts: Any) -> dict[str, str]:
    """Write a record into params.json of a directory, and name arguments that cannot be written as data in the log.

    Args:
        directory: directory of the run.
        script: the script of the run.
        parts: the objects of the run by name.
        is_resumed: whether a record that is there already is of the run that is resumed. Otherwise it is of an earlier training with the
            same log, and is replaced.
        facts: further entries of the record, as plain data.

    Returns:
        Descriptions of the arguments that cannot be written, by part and argument, such as "sampler.EnvCls".
    """
    calls, unknown = {}, {}
    for name, part in parts.items():
        try:
            call, cannot = describe_call(part, script, parts, where=name)
            call["defaults"] = readable(describe(defaults_of(part), script, parts)[0])
        except Exception as error:  # Classes of users may raise anything. The run is worth more than its record.
            cannot = {name: f"{type(part).__name__}, whose arguments could not be read: {type(error).__name__}: {error}"}
            call = {"class": {"$unknown": cannot[name]}, "arguments": {}, "defaults": {}}
        for arguments in (call["arguments"], call["defaults"]):
            arguments.pop("resume_from", None)  # Belongs to this process, not to the run.
        calls[name] = call
        unknown.update(cannot)
    relative = None if script.file is None else os.path.relpath(os.path.realpath(script.file), os.path.realpath(directory))
    whence = dict(format=FORMAT, script=dict(script._asdict(), relative=relative), log=logger.log_settings())
    record = dict(**whence, **facts, **calls, **_origin(script, directory))
    path = os.path.join(directory, "params.json")
    logger.try_to_write(path, lambda: _add_record(path, record, is_resumed))
    CompletedWriter(logger.get_tf_summary_writer()).add_settings(recorded_settings(record))
    if unknown:
        what = ", ".join(f"{where} ({text})" for where, text in unknown.items())
        commands = "rlpyt resume" if may_play(unknown) else "rlpyt eval, video and resume"
        logger.log(
            f"params.json cannot hold {what}: to open this run, {commands} will need --script FILE.py:FUNCTION. "
            "What is importable, such as a class or function at the top of a file, can be held."
        )
    return unknown


def may_play(unrecorded: dict[str, str]) -> bool:
    """Return whether a record describes agent and environments completely, given the result of `write_record`."""
    return not any(where.partition(".")[0] in ("agent", "sampler") for where in unrecorded)


def _add_record(path: str, record: dict, is_resumed: bool) -> None:
    params = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            params = json.load(file)
    before = params.get(RECORD)
    if is_resumed and isinstance(before, dict):
        record = _continued(before, record)
    write_json(path, {**params, RECORD: record})


def _continued(before: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a run that is resumed: it keeps its origin in the record `before`, and the origin of `record` is listed."""
    now = {name: record[name] for name in _ORIGIN if name in record}
    first = {name: before[name] for name in _ORIGIN if name in before}
    resumed = [*resumptions(before), dict(now, planned=before.get("n_steps"))]
    return {**{name: entry for name, entry in record.items() if name not in _ORIGIN}, **first, "resumed": resumed}


def _origin(script: Script, directory: Any) -> dict[str, Any]:
    """Return when, where and with which versions a run is started, and the state of the repository whose code runs."""
    facts = dict(provenance.describe_process(), packages=versions())
    if script.file is None:
        return facts
    return {**facts, **_git_state(script.file, _is_command(script), str(Path(directory).parent))}


def _is_command(script: Script) -> bool:
    """Return whether a script is the command ``rlpyt``, ``python -m rlpyt``, or a script in the package, which searches launch."""
    import rlpyt

    if script.module is not None:
        return script.module.partition(".")[0] == "rlpyt"
    file = Path(str(script.file))
    return file.stem == "rlpyt" or file.resolve().is_relative_to(Path(rlpyt.__file__).resolve().parent)


@functools.cache  # The process runs the code as it was at import.
def _git_state(file: str, is_command: bool, outputs: str) -> dict[str, Any]:
    # The command runs the rlpyt that is imported. Its file may lie in any repository: around its virtual environment, or in the clone in
    # which the run began.
    root = None if is_command else provenance.repository_of(file)
    root = root or provenance.repository_of_rlpyt()
    return {} if root is None else provenance.git_state(file, root, [Path(LOG_DIR).resolve(), Path(outputs).resolve()])


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of rlpyt and of the packages that can change what a run computes."""
    import rlpyt

    versions = {"rlpyt": rlpyt.__version__}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
