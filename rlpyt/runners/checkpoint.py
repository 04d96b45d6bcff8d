"""What a run needs to go on where it stopped: what of it is written into snapshots, and how it is found and put back.

A snapshot has the documented keys (itr, cum_steps, agent_state_dict, optimizer_state_dict), and under ``run`` everything else but what is
replayed, which lies in files of its own (see `ReplayFiles`). All of it is plain data and tensors: loading runs no code. Whatever cannot
have been saved is a ValueError that names the part.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from rlpyt.runners.snapshots import load_snapshot, newest_first, replay_files
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.snapshot import loadable, read_snapshot, reading
from rlpyt.utils.logging.store import beside
from rlpyt.utils.misc import atomic_write
from rlpyt.utils.plain import NATURAL, check_form, shown
from rlpyt.utils.recipes import Script, describe, readable, running_script
from rlpyt.utils.seed import rng_states, set_rng_states
from rlpyt.utils.text import printable, shortened

FORMAT = 1
FORM = dict(itr=NATURAL, cum_steps=NATURAL, agent_state_dict=object, optimizer_state_dict=object, run=dict)  # See `check_form`.
_RUN_FORM = dict(
    format=NATURAL, seed=NATURAL, settings=dict, runner=dict, n_rows=NATURAL, best_score=(int, float), algo=object, sampler=object, rng=dict
)
_LONGEST_SETTING = 500  # characters
_SAMPLER_SETTINGS = ("EnvCls", "env_kwargs", "batch_T", "batch_B", "CollectorCls", "eval_n_envs")


# --- What is saved ----------------------------------------------------------------------------------------------------
def run_state(runner: Any) -> dict[str, Any]:
    """Return the state of a run, besides agent and optimizer, after an iteration and its row of the log."""
    return dict(
        format=FORMAT,
        seed=runner.seed,
        settings=run_settings(runner),
        runner=runner.counters(),
        n_rows=logger.n_rows(),
        best_score=logger.best_score(),
        **process_state(runner),
    )


def process_state(runner: Any) -> dict[str, Any]:
    """Return the part of it of which each process that trains has its own."""
    return dict(
        algo=runner.algo.training_state(),
        sampler=runner.sampling_state(),
        rng=rng_states(),  # Last: nothing above may draw random numbers.
    )


def run_settings(runner: Any) -> dict[str, Any]:
    """Return what `settings_of` did before training; or what it does now, where `startup` was overridden and did not keep that."""
    return getattr(runner, "settings", None) or settings_of(runner)


def settings_of(runner: Any) -> dict[str, Any]:
    """Return the settings that must be the same when a run is resumed, as JSON would hold them. For a runner that has just been made."""
    script, sampler = getattr(runner, "script", None) or running_script(), runner.sampler
    return {
        "world_size": runner.world_size,
        "algo": _arguments_of(runner.algo, script),
        "agent": _arguments_of(runner.agent, script),
        "sampler": {
            "class": type(sampler).__name__,
            **{name: _as_data(getattr(sampler, name, None), script) for name in _SAMPLER_SETTINGS},
        },
    }


def _arguments_of(part: Any, script: Script) -> dict[str, Any]:
    """The arguments an object was made with, as far as it keeps them under their names."""
    names = {name for cls in type(part).__mro__ if "__init__" in vars(cls) for name in inspect.signature(cls.__init__).parameters}
    kept = {name: _as_data(getattr(part, name), script) for name in sorted(names) if name in vars(part) and "state_dict" not in name}
    return {"class": type(part).__name__, **kept}


def _as_data(value: Any, script: Script) -> Any:
    return readable(describe(value, script)[0])


# --- What is put back -------------------------------------------------------------------------------------------------
def resume(runner: Any, path: Any) -> int:
    """Put a run that has just been started up into the state of a snapshot; return the iteration to go on with.

    Args:
        runner: a runner, after its startup.
        path: of a snapshot, or of the directory of a run, whose newest readable snapshot is taken.

    Raises:
        FileNotFoundError: there is no snapshot.
        ValueError: no snapshot is readable, or it is of a run with other settings, which are listed.
    """
    return restore(runner, *find_snapshot(runner, path))


def find_snapshot(runner: Any, path: Any) -> tuple[Path, dict[str, Any]]:
    """Return the file and the contents of the snapshot that `runner` is to go on from; errors as of `resume`."""
    file, snapshot = load_snapshot(path, replay_needed=runner.save_replay)
    run = run_in(file, snapshot)
    check_settings(run["settings"], run_settings(runner), file)
    if runner.seed_given not in (None, run["seed"]):
        raise ValueError(f"{file} is of a run with seed {run['seed']}, and is resumed with it: leave seed={runner.seed_given} out.")
    return file, snapshot


def run_in(file: Any, snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the run in a snapshot; ValueError if there is none, or it cannot have been saved by this version."""
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
    """Raise ValueError unless snapshots of this format can be read."""
    if saved != FORMAT:
        raise ValueError(f"it is of format {shown(saved)}, this version of rlpyt reads format {FORMAT}: use the one that saved it.")


def restore(runner: Any, file: Path, snapshot: dict[str, Any]) -> int:
    """As `resume`, with what `find_snapshot` returned."""
    run = snapshot["run"]
    runner.seed = run["seed"]
    mine, where = dict(run, replay=snapshot.get("replay")), "run"
    if runner.rank > 0:
        with reading(file, f"run['ranks'][{runner.rank}]"):
            mine, where = run["ranks"][runner.rank], f"run['ranks'][{runner.rank}]"
            check_form(mine, dict(algo=object, sampler=object, rng=dict, replay=object), where)
    load_training(runner, snapshot, file)
    first_itr = snapshot["cum_steps"] // runner.itr_batch_size
    _load_replay(runner, file, mine["replay"], first_itr)
    with reading(file, f"{where}['sampler']"):
        begun_anew = runner.restore_sampling(mine["sampler"])
    if begun_anew and hasattr(getattr(runner.algo, "replay_buffer", None), "end_episodes"):
        runner.algo.replay_buffer.end_episodes(begun_anew)  # What will be appended does not follow what is there.
    with reading(file, "run['runner']"):
        runner.load_counters(run["runner"])
    if runner.rank == 0:
        logger.continue_rows(beside(file, "progress.csv"), run["n_rows"])
        logger.set_best_score(run["best_score"])
    with reading(file, f"{where}['rng']"):
        set_rng_states(mine["rng"])
    logger.log(f"Resumed after iteration {snapshot['itr']} ({snapshot['cum_steps']:,} environment steps) from {printable(file)}.")
    if begun_anew and mine["sampler"] is not None:
        logger.log(
            f"{len(begun_anew)} environments begin a new episode: their states are not known (they have no get_state, or sampling was "
            "abandoned at a signal), or they are shared out among workers in another way than they were, or update_envs had replaced them "
            "(then call it again)."
        )
    return first_itr


def load_training(runner: Any, snapshot: dict, file: Any) -> None:
    """Put agent and algorithm into the state of a snapshot: what every process that trains must do."""
    with reading(file, "agent_state_dict"):
        runner.agent.load_state_dict(snapshot["agent_state_dict"])
    with reading(file, "optimizer_state_dict"):
        runner.algo.load_optim_state_dict(snapshot["optimizer_state_dict"])
    with reading(file, "run['algo']"):
        runner.algo.load_training_state(snapshot["run"]["algo"])


def seed_of(path: Any) -> int | None:
    """Return the seed of the run whose newest readable snapshot this is, or is in this directory; None if there is none."""
    for file in newest_first(path)[1]:
        with suppress(ValueError):  # Which is said when the run is resumed.
            return run_in(file, read_snapshot(file))["seed"]
    return None


def check_settings(saved: dict, now: dict, file: Any) -> None:
    """ValueError, with every difference, unless the settings of a snapshot are those of this run."""
    with reading(file, "run['settings']"):
        differences = [
            f"{where}: {shortened(repr(old), _LONGEST_SETTING)} in the snapshot, {shortened(repr(new), _LONGEST_SETTING)} now"
            for where, old, new in _differences(saved, now, "")
        ]
    if differences:
        raise ValueError(
            f"{file} is of a run with other settings, so it cannot be resumed with these. {'; '.join(differences)}. To train on "
            "with other settings, start a new run from its agent (initial_model_state_dict)."
        )


def _differences(a: Any, b: Any, where: str) -> list[tuple[str, Any, Any]]:
    if isinstance(a, dict) and isinstance(b, dict):
        names = [*a, *(name for name in b if name not in a)]
        return [d for name in names for d in _differences(a.get(name), b.get(name), f"{where}.{name}".lstrip("."))]
    return [(where, a, b)] if a != b else []


# --- Replay -----------------------------------------------------------------------------------------------------------
class ReplayFiles:
    """The contents of a replay buffer in files, each with what was stored since the one before.

    A file whose steps have all been overwritten in the buffer is deleted when two snapshots without it are safe: the last one, and the one
    before, which is kept as well.
    """

    def __init__(self, directory: Any) -> None:
        self.directory = Path(directory)
        self._parts: list[tuple[str, int]] = []  # (name, rows written by its end)
        self._dropped: list[tuple[str, int]] = []  # What the part written last has made needless,
        self._dropped_before: list[tuple[str, int]] = []  # and those before it.

    def prepare(self, buffer: Any) -> ReplayPart:
        """Return what is new in `buffer`, to be written to a file."""
        since = self._parts[-1][1] if self._parts else 0
        state = buffer.state_dict(since)
        part = f"{state['first']}-{state['written']}-{time.time_ns()}.pt", state["written"]
        oldest = state["claimed"] - state["T"]
        parts = [(name, written) for name, written in [*self._parts, part] if written > oldest or name == part[0]]
        return ReplayPart(self, buffer, state, parts)

    def keep_to(self, part: ReplayPart) -> None:
        """Take note that `part` has been written."""
        self._dropped += [each for each in self._parts if each not in part.parts]
        self._parts = part.parts

    def delete_old(self) -> None:
        """Delete what no snapshot needs any more; to be called when the one with the part written last is safe."""
        for name, _ in self._dropped_before:
            (self.directory / name).unlink(missing_ok=True)
        self._dropped_before, self._dropped = self._dropped, []


class ReplayPart:
    """What is to be written of a buffer: views of its memory, while training goes on.

    Attributes:
        manifest: what belongs into the snapshot.
        parts: name of this file and of those before that are still needed, each with the rows written by its end.
        lasts: whether it will stay in the buffer for long, so that there is no hurry to write it.
    """

    def __init__(self, files: ReplayFiles, buffer: Any, state: dict, parts: list) -> None:
        self._files, self._buffer, self._state, self.parts = files, buffer, state, parts
        self.path = files.directory / parts[-1][0]
        self.manifest = dict(directory=files.directory.name, files=[name for name, _ in parts])
        self._is_copy = buffer.async_
        self.lasts = self._is_copy or state["written"] - state["first"] <= state["T"] // 2

    def write(self) -> None:
        """Write it; OSError if the disk refuses, or it was overwritten meanwhile: then the next part begins where this one does."""
        files, state = self._files, self._state
        files.directory.mkdir(exist_ok=True)
        with atomic_write(self.path) as file:
            torch.save(loadable(state), file)
            if not self._is_copy and self._buffer.ring.claimed - state["T"] > state["first"]:
                raise OSError("writing took so long that part of it was overwritten in the replay buffer.")
        files.keep_to(self)


class Background:
    """Does one thing at a time in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin with `work`, after what was begun before has come to its end."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(work,), name="save")
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Wait for the end of what was begun; raise what that raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error


def _load_replay(runner: Any, file: Path, replay: dict | None, first_itr: int) -> None:
    buffer = getattr(runner.algo, "replay_buffer", None)
    if buffer is None:
        return
    if replay is None:
        logger.log("The snapshot holds no replay: the buffer starts empty. (save_replay=True of the runner keeps it.)")
        runner.algo.start_with_empty_replay(first_itr)
        return
    paths = replay_files(file, replay)
    missing = [path for path in paths if not path.is_file()]
    if missing and not runner.save_replay:
        logger.log("The replay of the snapshot is not there any more: the buffer starts empty.")
        runner.algo.start_with_empty_replay(first_itr)
        return
    if missing:
        raise ValueError(
            f"The replay of {file} is not complete: {', '.join(map(str, missing))} are missing (it is kept for the last two snapshots). "
            "With save_replay=False, a run goes on from it with an empty buffer."
        )
    for i, path in enumerate(paths):
        state = read_snapshot(path)
        if i == 0:
            state["complete"] = True  # What it leaves out has been overwritten by what follows.
        with reading(path, "The replay"):
            buffer.load_state_dict(state)
