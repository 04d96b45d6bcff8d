"""The lines that a run shows on the screen: its settings at the start, and the commands that use its files at the end."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rlpyt.runners.protocols import CompletedSampler
from rlpyt.runners.record import may_play
from rlpyt.utils.extras import missing_modules
from rlpyt.utils.launching.exp_launcher import resume_from
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import name_of
from rlpyt.utils.processors import allowed_cpus, busy_processors
from rlpyt.utils.text import plural, printable, shortened

LONG = 50_000  # env steps; a run of at least this length that keeps nothing says so at its start
_LONGEST_NAME = 100  # characters


def tell_settings(runner: Any) -> None:
    """Log two lines with a runner's parts, seed and affinity; warn if a long run keeps nothing.

    Args:
        runner: a runner whose seed is known. Its parts may belong to classes of users.
    """
    algo, agent, sampler = (type(part).__name__ for part in (runner.algo, runner.agent, runner.sampler))
    spec = CompletedSampler(runner.sampler).batch_spec
    size = "" if spec is None else f", T x B = {spec.T} x {spec.B}"
    logger.log(f"{algo} with {agent}, {sampler} of {env_name(runner.sampler)}{size}.")
    sampling = runner.sampler_affinities
    if sampling:
        affinity = f"{said_affinity(runner.optimizer_affinities)}; of sampling: {said_affinity(sampling)}"
    else:
        affinity = said_affinity(runner.affinities or [runner.affinity])
    logger.log(
        f"{type(runner).__name__}: seed {runner.seed}, n_steps {runner.n_steps:,}, "
        f"{plural(torch.get_num_threads(), 'torch thread')} in this process, affinity {affinity}."
    )
    if resume_from() is not None and runner.resume_from is None:
        logger.warn(
            "an earlier launch of this run was interrupted, and it starts from the beginning. It would resume from the "
            f"snapshot in {resume_from()} if the script gave the runner resume_from=resume_from(), of rlpyt.utils.launching.exp_launcher."
        )
    if runner.n_steps >= LONG and runner.rank == 0 and logger.keeps_nothing() and runner.snapshots.get_snapshot_dir() is None:
        logger.warn(
            "No log is open, so nothing of this run will be kept, neither its agent nor its table: train inside "
            "`with logger_context(log_dir, run_ID, name):`, of rlpyt.utils.logging.context."
        )


def tell_of_busy_processors() -> None:
    """Log a line if other programs use processors that the torch threads of this process need."""
    n, n_threads, busy = len(allowed_cpus()), torch.get_num_threads(), round(busy_processors())
    if busy and n - busy < n_threads:
        logger.log(
            f"Other programs keep {busy} of {plural(n, 'processor')} busy. {n_threads} torch threads wait for each other, and so for those "
            f"programs: affinity=dict(master_torch_threads={max(n - busy, 1)}) is faster while they run."
        )


def env_name(sampler: Any) -> str:
    """Return a short name of a sampler's environment: its id or game, or else the name of the function that makes it."""
    completed = CompletedSampler(sampler)
    makes, kwargs = completed.EnvCls, completed.env_kwargs
    many = max((len(each) for each in (makes, kwargs) if isinstance(each, (list, tuple))), default=1)
    make, kwargs = (each[0] if isinstance(each, (list, tuple)) and each else each for each in (makes, kwargs))
    kwargs = kwargs if isinstance(kwargs, Mapping) else {}
    names = [kwargs[key] for key in ("id", "game") if isinstance(kwargs.get(key), str)]
    name = names[0] if names else "an environment" if make is None else name_of(make)
    return printable(shortened(name, _LONGEST_NAME)) + (f" and others (a list of {many})" if many > 1 else "")


def said_affinity(affinities: Any) -> str:
    """Return a short text for affinities of processes, with equal ones once."""
    said = {", ".join(f"{key}={_compact(value)}" for key, value in each.items()) or "{}": None for each in affinities}
    return " | ".join(said)


def _compact(value: Any) -> str:
    """Return a value of an affinity as text, with consecutive processors as a range."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(cpu, int) for cpu in value):
        return f"[{' '.join(map(_compact, value))}]" if isinstance(value, (list, tuple)) else str(value)
    ends: list[list[int]] = []
    for cpu in value:
        if ends and cpu == ends[-1][1] + 1:
            ends[-1][1] = cpu
        else:
            ends.append([cpu, cpu])
    return f"[{' '.join(str(first) if first == last else f'{first}-{last}' for first, last in ends)}]"


def tell_ended_at_once(runner: Any) -> None:
    """Log which snapshot is the last one of a run that has been ended without another, and show the next commands.

    Args:
        runner: a runner that may not have begun to train.
    """
    saver, directory = runner.saver, runner.snapshots.get_snapshot_dir()
    if saver.saved_itr is None or directory is None:
        logger.log("Ended at once. This training has saved no snapshot.", level=0)
        return
    left = f"Ended at once. The last snapshot is of iteration {saver.saved_itr}"
    logger.log(f"{left}, in {printable(directory)}. What came after it is lost.", level=0)
    tell_next(runner)


def tell_next(runner: Any) -> None:
    """Show the commands that use the files of a run, if it has saved a snapshot. Commands that would not work are left out.

    Args:
        runner: a runner, after its training.
    """
    directory = runner.snapshots.get_snapshot_dir()
    if directory is None or runner.rank > 0 or not runner.saver.is_saved:
        return
    path = shlex.quote(str(directory))
    commands = [f"rlpyt plot {path}"] * (logger.n_rows() > 0)
    if runner.is_recorded and may_play(runner.unrecorded) and not missing_modules("video"):
        commands.append(f"rlpyt video {path}")
    is_named = re.fullmatch(r"run_.+", Path(directory).name) is not None  # The command resumes only such directories.
    if runner.is_recorded and not runner.unrecorded and is_named and not runner._launched:
        commands.append(f"rlpyt resume {path}{_options(runner)}")
    show_commands(commands)


def show_commands(commands: Sequence[str]) -> None:
    """Show commands, if any, as the next steps."""
    if commands:
        logger.show("\n".join(["Next:", *(f"  {printable(command)}" for command in commands)]))


def _options(runner: Any) -> str:
    """Return the options that let a finished run continue."""
    steps = runner.diagnostics.cum_steps
    if runner.reason_to_stop(runner._score, runner._n_scored, steps) is not None:
        return " --stop_return none"
    return f" --n_steps {2 * steps}" if steps >= runner.planned_steps(runner.itr_batch_size) else ""
