"""The contents of a run's snapshots, and how a run resumes from one.

A snapshot has the documented keys (itr, cum_steps, agent_state_dict, optimizer_state_dict), and everything else under ``run``. The replay
buffer is saved in files beside it (see `ReplayFiles`). Snapshots hold only plain data and tensors: loading runs no code. Contents that
rlpyt cannot have saved raise a ValueError that names the part.
"""

from __future__ import annotations

import inspect
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlpyt.replays.base import CompletedReplay
from rlpyt.runners.protocols import Algorithm, CompletedAlgorithm, Part, Run, Snapshots
from rlpyt.runners.snapshots import load_snapshot, newest_first, replay_files
from rlpyt.utils.buffer import cloned
from rlpyt.utils.choices import are_answers
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.snapshot import copy, loadable, read_snapshot, reading
from rlpyt.utils.logging.store import beside
from rlpyt.utils.misc import atomic_write, is_same
from rlpyt.utils.plain import NATURAL, check_form, shown
from rlpyt.utils.quick_args import arguments_of
from rlpyt.utils.recipes import Script, describe, readable, running_script
from rlpyt.utils.text import printable, shortened

FORMAT = 1
FORM = dict(itr=NATURAL, cum_steps=NATURAL, agent_state_dict=object, optimizer_state_dict=object, run=dict)  # See `check_form`.
_RUN_FORM = dict(
    format=NATURAL, seed=NATURAL, settings=dict, runner=dict, n_rows=NATURAL, best_score=(int, float), algo=object, sampler=object, rng=dict
)
_DOCUMENTED = ("agent_state_dict", "optimizer_state_dict")  # Parts with a key outside of ``run``.
_OF_EACH_PROCESS = ("algo", "sampler", "rng")  # Parts that each training process has separately.
_LONGEST_SETTING = 500  # characters
_NOT_GIVEN = object()  # In the place of a setting that one of two runs lacks.
_GIVEN = dict(  # What keeps settings that training changes.
    entropy_loss_coeff="_entropy_loss_coeff", ratio_clip="_ratio_clip", target_entropy="_given_target_entropy"
)
_SAMPLER_SETTINGS = ("EnvCls", "env_kwargs", "batch_T", "batch_B", "CollectorCls", "eval_n_envs")


# --- Contents ---------------------------------------------------------------------------------------------------------
def training_parts(agent: Any, algo: Algorithm) -> dict[str, Part]:
    """Return the parts that each training process restores."""
    return dict(
        agent_state_dict=Part(agent.state_dict, agent.load_state_dict),
        optimizer_state_dict=Part(algo.optim_state_dict, algo.load_optim_state_dict),
        algo=Part(algo.training_state, algo.load_training_state),
    )


def snapshot_of(run: Run, itr: int, cum_steps: int) -> dict[str, Any]:
    """Return the snapshot of a run after iteration `itr` and its row of the log, without the replay buffer."""
    states = {name: part.state_dict() for name, part in run.parts().items()}
    documented = {name: states.pop(name) for name in _DOCUMENTED}
    log = dict(n_rows=logger.n_rows(), best_score=run.snapshots.best_score(states["runner"].get("score")))
    return dict(
        itr=itr,
        cum_steps=cum_steps,
        **documented,
        run=dict(format=FORMAT, seed=run.seed, settings=run_settings(run), choices=run.choices, **log, **states),
    )


def process_state(run: Run) -> dict[str, Any]:
    """Return the states of the parts that each training process has separately."""
    parts = run.parts()
    return {name: parts[name].state_dict() for name in _OF_EACH_PROCESS}


def run_settings(run: Run) -> dict[str, Any]:
    """Return the result of `settings_of` before training, or its current result if an overridden `startup` did not keep that."""
    return run.settings or settings_of(run)


def settings_of(run: Run) -> dict[str, Any]:
    """Return the settings that must not change when a run is resumed, as JSON data. Call this before training changes settings."""
    script, sampler = run.script or running_script(), run.sampler
    return {
        "world_size": run.world_size,
        "algo": _arguments_of(run.algo, script),
        "agent": _arguments_of(run.agent, script),
        "sampler": {
            "class": type(sampler).__name__,
            **{name: _as_data(getattr(sampler, name, None), script) for name in _SAMPLER_SETTINGS},
        },
    }


def _arguments_of(part: Any, script: Script) -> dict[str, Any]:
    """Return those arguments of an object's constructor that the object keeps under their names."""
    names = {name for cls in type(part).__mro__ if "__init__" in vars(cls) for name in inspect.signature(vars(cls)["__init__"]).parameters}
    values = {name: value for name, value in vars(part).items() if name in names and "state_dict" not in name}
    for name, attribute in _GIVEN.items():  # Of an algorithm that was initialized before.
        if name in values and vars(part).get(attribute) is not None:
            values[name] = vars(part)[attribute]
    return {"class": type(part).__name__, **{name: _as_data(values[name], script) for name in sorted(values)}}


def _with_defaults(saved: Any, now: dict[str, Any], part: Any, script: Script) -> Any:
    """Return saved settings of an algorithm or agent, with the constructor's defaults of those that did not exist when they were saved."""
    defaults = {name: p.default for name, p in arguments_of(type(part)).items() if p.default is not p.empty}
    if not isinstance(saved, dict):
        return saved
    return {**saved, **{name: _as_data(defaults[name], script) for name in now if name in defaults and name not in saved}}


def _as_data(value: Any, script: Script) -> Any:
    return readable(describe(value, script)[0])


# --- Resuming ---------------------------------------------------------------------------------------------------------
def find_snapshot(run: Run, path: Any) -> tuple[Path, dict[str, Any]]:
    """Return the file and the contents of the snapshot from which `run` resumes.

    Args:
        run: the run, whose settings are known.
        path: path of a snapshot, or of a run's directory, whose newest readable snapshot is used.

    Raises:
        FileNotFoundError: there is no snapshot.
        ValueError: no snapshot is readable, or its run had other settings; the message lists them.
    """
    file, snapshot = load_snapshot(path, replay_needed=run.save_replay)
    saved = run_in(file, snapshot)
    check_settings(saved["settings"], run, file)
    if run.seed_given not in (None, saved["seed"]):
        raise ValueError(f"{file} is of a run with seed {saved['seed']}, and is resumed with it: leave seed={run.seed_given} out.")
    return file, snapshot


def seed_of(path: Any) -> int | None:
    """Return the seed of the run in the newest readable snapshot at this path, or None if there is no such snapshot."""
    for file in newest_first(path)[1]:
        with suppress(ValueError):  # Resuming the run raises it again.
            return run_in(file, read_snapshot(file))["seed"]
    return None


def choices_of(path: Any) -> dict[str, Any] | None:
    """Return the choices of the run in the newest readable snapshot at this path; None if there is no such snapshot, or if it has none."""
    for file in newest_first(path)[1]:
        with suppress(ValueError):  # Resuming the run raises it again.
            found = run_in(file, read_snapshot(file)).get("choices")
            return dict(found) if isinstance(found, dict) and are_answers(found) else None
    return None


def run_in(file: Any, snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the run in a snapshot; raise ValueError if it is missing, or if this version cannot have saved it."""
    if snapshot.get("run") is None:
        raise ValueError(
            f"{file} holds an agent and an optimizer, but not the state of a run: start a new run with them instead "
            "(initial_model_state_dict of the agent, initial_optim_state_dict of the algorithm)."
        )
    with reading(file):
        check_form(snapshot, FORM, "snapshot")
        check_format(snapshot["run"].get("format"))
        check_form(snapshot["run"], _RUN_FORM, "run")
    return snapshot["run"]


def check_format(saved: Any) -> None:
    """Raise ValueError unless this version reads snapshots of this format."""
    if saved != FORMAT:
        raise ValueError(f"it is of format {shown(saved)}, this version of rlpyt reads format {FORMAT}: use the one that saved it.")


def restore(run: Run, file: Path, snapshot: dict[str, Any]) -> int:
    """Restore all parts of a run that has just started up; return the iteration to continue with.

    Args:
        run: the run.
        file, snapshot: what `find_snapshot` returned.

    Raises:
        ValueError: a part does not fit; the message names it.
    """
    saved, parts = snapshot["run"], run.parts()
    run.seed = saved["seed"]
    own, where = dict(saved, replay=snapshot.get("replay")), "run"
    if run.rank > 0:
        where = f"run['ranks'][{run.rank}]"
        with reading(file, where):
            own = saved["ranks"][run.rank]
            check_form(own, dict(algo=object, sampler=object, rng=dict, replay=object), where)
    restore_training(run.agent, run.algo, snapshot, file, own["algo"], f"{where}['algo']")
    first_itr = snapshot["cum_steps"] // run.itr_batch_size
    _restore_replay(run, file, own["replay"], first_itr)
    with reading(file, f"{where}['sampler']"):
        restarted = parts["sampler"].load_state_dict(own["sampler"])
    tell_restarted(run.algo, restarted)  # Appended samples will not continue the stored ones.
    with reading(file, "run['runner']"):
        parts["runner"].load_state_dict(saved["runner"])
    if run.rank == 0:
        logger.continue_rows(beside(file, "progress.csv"), saved["n_rows"])
        run.snapshots.continue_snapshots(first_itr - 1, _keep_best(run.snapshots, file, snapshot))
    with reading(file, f"{where}['rng']"):
        parts["rng"].load_state_dict(own["rng"])  # Last: nothing above may draw random numbers.
    logger.log(f"Resumed after iteration {snapshot['itr']} ({snapshot['cum_steps']:,} environment steps) from {printable(file)}.")
    if restarted and own["sampler"] is not None:
        logger.log(
            f"{len(restarted)} environments begin a new episode: their states are not known (they have no get_state, or sampling was "
            "abandoned at a signal), or the environments could not return to them, or they are distributed differently among workers, "
            "or update_envs had replaced them (then call it again)."
        )
    return first_itr


def _keep_best(snapshots: Snapshots, file: Path, snapshot: dict[str, Any]) -> float:
    """Keep the best snapshot of a run that is resumed, in the directory of the run that resumes it; return its score.

    It is best.pkl, or the resumed snapshot itself if the run was killed before it wrote best.pkl. Without either, the next score will be
    the best one.
    """
    best_score, directory = snapshot["run"]["best_score"], snapshots.get_snapshot_dir()
    if not snapshots.keeps_best() or directory is None:
        return best_score
    best = beside(file, "best.pkl")
    scores = {file: snapshot["run"]["runner"].get("score")}
    with suppress(OSError, ValueError):
        scores[best] = run_in(best, read_snapshot(best))["best_score"]
    new = os.path.join(directory, "best.pkl")
    for path in (best, file):
        if path in scores and scores[path] == best_score:
            return best_score if logger.try_to_write(new, partial(copy, path, new)) else -math.inf
    return -math.inf


def restore_training(agent: Any, algo: Algorithm, snapshot: dict[str, Any], file: Any, own: Any = None, where: str = "run['algo']") -> None:
    """Restore agent and algorithm. Each training process calls this.

    Args:
        agent, algo: parts of the run.
        snapshot, file: the snapshot, and the file that holds it.
        own, where: state of the algorithm in this process, and its place in the snapshot; None takes that of rank 0.
    """
    states = dict(snapshot, algo=snapshot["run"]["algo"] if own is None else own)
    for name, part in training_parts(agent, algo).items():
        with reading(file, name if name in _DOCUMENTED else where):
            part.load_state_dict(states[name])


def tell_restarted(algo: Algorithm, columns: list[int]) -> None:
    """Tell an algorithm that these environments restart, and mark their newest step in its replay buffer, if any, as truncated."""
    if columns:
        CompletedReplay(replay_buffer_of(algo)).end_episodes(columns)
        CompletedAlgorithm(algo).restarted(columns)


def replay_buffer_of(algo: Algorithm) -> Any:
    """Return the replay buffer of an algorithm; None if it has none, or none yet."""
    return CompletedAlgorithm(algo).replay_buffer


def _restore_replay(run: Run, file: Path, replay: dict | None, first_itr: int) -> None:
    buffer = replay_buffer_of(run.algo)
    if buffer is None:
        return
    paths = replay_files(file, replay)
    missing = [path for path in paths if not path.is_file()]
    if replay is None or (missing and not run.save_replay):
        reason = "The replay files of the snapshot have been deleted: the buffer starts empty."
        if replay is None:
            reason = "The snapshot holds no replay: the buffer starts empty. (save_replay=True of the runner keeps it.)"
        logger.log(reason)
        run.algo.start_with_empty_replay(first_itr)
        return
    if missing:
        raise ValueError(
            f"The replay of {file} is not complete: {', '.join(map(str, missing))} are missing (it is kept for the last two snapshots). "
            "With save_replay=False, a run continues from it with an empty buffer."
        )
    for i, path in enumerate(paths):
        state = read_snapshot(path)
        if i == 0:
            state["complete"] = True  # Later rows have overwritten the rows that it leaves out.
        with reading(path, "The replay"):
            buffer.load_state_dict(state)


def check_settings(saved: dict, run: Run, file: Any) -> None:
    """Raise ValueError, listing all differences, unless the settings of a snapshot are those of this run.

    A setting of algorithm or agent that the snapshot lacks had the constructor's default.
    """
    now, script = run_settings(run), run.script or running_script()
    with reading(file, "run['settings']"):
        parts = dict(algo=run.algo, agent=run.agent)
        saved = {**saved, **{name: _with_defaults(saved.get(name), now[name], part, script) for name, part in parts.items()}}
        differences = [
            f"{where}: {_said(old)} in the snapshot, {_said(new)} now"
            for where, old, new in _differences(saved, now, "")
            if where not in {f"algo.{name}" for name in run.chosen_settings}
        ]
    if differences:
        raise ValueError(
            f"{file} is of a run with other settings, so it cannot be resumed with these. {'; '.join(differences)}. To train on "
            "with other settings, start a new run from its agent (initial_model_state_dict)."
        )


def _differences(a: Any, b: Any, where: str) -> list[tuple[str, Any, Any]]:
    """Return the place, the old and the new value of each difference. A setting that was not given is the same as None."""
    if isinstance(a, dict) and isinstance(b, dict):
        names = [*a, *(name for name in b if name not in a)]
        pairs = [(f"{where}.{name}".lstrip("."), a.get(name, _NOT_GIVEN), b.get(name, _NOT_GIVEN)) for name in names]
        return [d for place, old, new in pairs for d in _differences(old, new, place)]
    old, new = (None if each is _NOT_GIVEN else each for each in (a, b))
    return [] if is_same(old, new) else [(where, a, b)]


def _said(value: Any) -> str:
    return "not given" if value is _NOT_GIVEN else shortened(repr(value), _LONGEST_SETTING)


# --- Saving -----------------------------------------------------------------------------------------------------------
class Saver:
    """Saves the snapshots of one training with the replay buffer, in another thread if the buffer allows it.

    Attributes:
        was_due: whether any snapshot was due so far.
        is_saved: whether the newest snapshot that was due is safe on the disk.
        saved_itr: the iteration of the newest snapshot that is safe on the disk; None before the first one.
    """

    def __init__(self) -> None:
        self.was_due = self.is_saved = False
        self.saved_itr: int | None = None
        self._replay_files: ReplayFiles | None = None
        self._writing: Future | None = None

    @property
    def is_missing(self) -> bool:
        """Whether the newest snapshot that was due could not be saved."""
        return self.was_due and not self.is_saved

    def wait(self) -> None:
        """Wait until the last snapshot is safe or refused; raise the error of saving it, if any."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def begin(self) -> None:
        """Wait for the previous snapshot, and record that another one is due."""
        self.wait()
        self.was_due, self.is_saved = True, False

    def save(
        self,
        snapshots: Snapshots,
        itr: int,
        make: Callable[[], dict[str, Any]],
        replay: Any = None,
        force: bool = False,
        score: float | None = None,
        only_in_best: dict[str, Any] | None = None,
    ) -> None:
        """Save the snapshot from `make`, and the new rows of the buffer `replay`, if any. For other arguments see `Snapshots`."""
        self.begin()
        snapshot = make()
        part = self._new_in(replay, snapshots.get_snapshot_dir())
        snapshot["replay"] = part and part.manifest
        how: dict[str, Any] = dict(force=force, score=score, **(dict(only_in_best=only_in_best) if only_in_best else {}))
        if part is None or not part.lasts:
            self._write(snapshots, itr, snapshot, part, how)
        else:  # Training changes parameters meanwhile, so save a copy.
            thread = ThreadPoolExecutor(1, "save")
            self._writing = thread.submit(self._write, snapshots, itr, cloned(snapshot), part, how)
            thread.shutdown(wait=False)

    def _write(self, snapshots: Snapshots, itr: int, snapshot: dict[str, Any], part: ReplayPart | None, how: dict[str, Any]) -> None:
        if part is None or part.try_to_write():
            self.is_saved = snapshots.save_itr_params(itr, snapshot, **how)
            self.saved_itr = itr if self.is_saved else self.saved_itr
            self.delete_old_replay()

    def save_own(self, state: dict[str, Any], replay: Any, directory: str, rank: int) -> dict[str, Any] | None:
        """Save a rank's replay buffer; return its `state` with the names of the files, for rank 0. None if the disk refused them."""
        part = self._new_in(replay, directory, rank)
        return dict(state, replay=part and part.manifest) if part is None or part.try_to_write() else None

    def _new_in(self, replay: Any, directory: Any, rank: int = 0) -> ReplayPart | None:
        if replay is None:
            return None
        if self._replay_files is None:
            self._replay_files = ReplayFiles(os.path.join(directory, f"replay_{rank}" if rank else "replay"))
        return self._replay_files.prepare(replay)

    def delete_old_replay(self) -> None:
        """Delete replay files that no snapshot needs any more, if the last snapshot is safe."""
        if self.is_saved and self._replay_files is not None:
            self._replay_files.delete_old()


class ReplayFiles:
    """The contents of a replay buffer in files. Each file holds the steps stored since the previous file.

    When all steps of a file have been overwritten in the buffer, and two snapshots without the file are safe (the last one and
    ``params_previous.pkl``), the file is deleted.
    """

    def __init__(self, directory: Any) -> None:
        self.directory = Path(directory)
        self._parts: list[tuple[str, int]] = []  # (name, number of rows written by its end)
        self._dropped: list[tuple[str, int]] = []  # Files that the newest snapshot does not need,
        self._dropped_before: list[tuple[str, int]] = []  # and files that the previous snapshot does not need either.

    def prepare(self, buffer: Any) -> ReplayPart:
        """Return the new rows of `buffer`, to be written to a file."""
        since = self._parts[-1][1] if self._parts else 0
        state = buffer.state_dict(since)
        part = f"{state['first']}-{state['written']}-{time.time_ns()}.pt", state["written"]
        oldest = state["claimed"] - state["T"]
        parts = [(name, written) for name, written in [*self._parts, part] if written > oldest or name == part[0]]
        return ReplayPart(self, buffer, state, parts)

    def keep_to(self, part: ReplayPart) -> None:
        """Record that `part` has been written."""
        self._dropped += [each for each in self._parts if each not in part.parts]
        self._parts = part.parts

    def delete_old(self) -> None:
        """Delete files that no snapshot needs any more. Call this when the snapshot with the latest part is safe."""
        for name, _ in self._dropped_before:
            (self.directory / name).unlink(missing_ok=True)
        self._dropped_before, self._dropped = self._dropped, []


class ReplayPart:
    """The new rows of a replay buffer, as views of its memory. They can be written while training continues.

    Attributes:
        manifest: names of the files, for the snapshot.
        parts: names of this file and of the earlier ones still needed, each with the number of rows written by its end.
        lasts: whether the rows stay in the buffer long enough to be written while training continues.
    """

    def __init__(self, files: ReplayFiles, buffer: Any, state: dict, parts: list) -> None:
        self._files, self._buffer, self._state, self.parts = files, buffer, state, parts
        self.path = files.directory / parts[-1][0]
        self.manifest = dict(directory=files.directory.name, files=[name for name, _ in parts])
        self._is_copy = buffer.async_
        self.lasts = self._is_copy or state["written"] - state["first"] <= state["T"] // 2

    def try_to_write(self) -> bool:
        """Write the file; return whether the disk took it, and log a warning if not."""
        return logger.try_to_write(str(self.path.parent), self.write)

    def write(self) -> None:
        """Write the file; raise OSError if the disk refuses it or rows were overwritten. The next part then begins with these rows."""
        files, state = self._files, self._state
        files.directory.mkdir(exist_ok=True)
        with atomic_write(self.path) as file:
            torch.save(loadable(state), file)
            if not self._is_copy and self._buffer.ring.claimed - state["T"] > state["first"]:
                raise OSError("writing took so long that part of it was overwritten in the replay buffer.")
        files.keep_to(self)
