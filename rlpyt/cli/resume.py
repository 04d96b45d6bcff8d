"""Resume a run that stopped, or all unfinished runs of an experiment.

A run resumes from its newest snapshot, in the same directory, with the settings in params.json; earlier
files are kept, renamed to progress.1.csv and so on. With --n_steps, a complete run continues as well, and
with --stop_return, one that stopped because it was solved. A run that wrote for TensorBoard does so again.
An experiment is launched again with the same settings; finished runs are skipped.
A search (rlpyt tune) continues where it ended.
Code of the run comes from rlpyt, torch, gymnasium and files below the current directory; see --trust.
Runs of wrap_experiment are resumed by their script, with Trainer.restore and Trainer.resume.

examples:
  rlpyt resume data/local/20260101/120000/cartpole_ppo/run_0 --n_steps 200000
  rlpyt resume data/local/20260101/120000/cartpole_variants --affinity_code 4cpu
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlpyt.cli import playing
from rlpyt.utils.text import printable, show, traceback_of

if TYPE_CHECKING:
    from rlpyt.experiments.opening import OpenedRun

NONE = "none"
_REOPENED = ("snapshot_mode", "snapshot_gap", "use_summary_writer", "tf_step")  # Arguments with which the log of a run is opened again.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run_dir", metavar="DIR", help="directory of the run, run_<ID>, or of the experiment")
    parser.add_argument("--n_steps", type=float, help="env steps of the whole run; default: as planned for the run")
    parser.add_argument(
        "--stop_return", metavar="NUMBER", type=_or_none(float), help="mean return at which the run stops, or none; default: as before"
    )
    parser.add_argument("--cuda_idx", type=_or_none(int), help="GPU to use, or none for the CPU; default: as before")
    parser.add_argument("--n_parallel", type=playing.at_least_1, help="worker processes of parallel samplers; default: as before")
    parser.add_argument(
        "--snapshot_mode", help="which snapshots are kept, see rlpyt.utils.logging.context.logger_context; default: as before"
    )
    parser.add_argument("--affinity_code", help="affinity of an experiment; default: as before")
    playing.add_opening_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Build the runner, and train."""
    run_dir = Path(args.run_dir).resolve()
    if not run_dir.is_dir():
        raise FileNotFoundError(f"There is no directory {run_dir}: give the directory of a run, run_<ID>, or of an experiment.")

    from rlpyt.utils.launching.search_dir import is_search
    from rlpyt.utils.launching.status import EXPERIMENT, is_wrapped

    if (run_dir / EXPERIMENT).exists() or is_search(run_dir):
        return resume_experiment(run_dir, args)
    if args.affinity_code is not None:
        raise ValueError(f"--affinity_code is for experiments, and {run_dir} has no {EXPERIMENT}.")
    if re.fullmatch(r"run_(.+)", run_dir.name) is None:
        if is_wrapped(run_dir) or (run_dir / "trainer.json").exists():
            raise ValueError(
                f"The command line cannot resume {run_dir}, a run of wrap_experiment or of a Trainer: only its script knows what is "
                "trained. Let the script make algorithm and environment as before, and call trainer.setup(...), "
                f"trainer.restore({str(run_dir)!r}) and trainer.resume()."
            )
        from rlpyt.runners.snapshots import runs_in

        names = [path.name for path in runs_in(run_dir)[:3]]
        runs = f" It has {', '.join(names)}: give one of these." if names else ""
        raise ValueError(f"{run_dir} must be the directory of a run, called run_<ID>, or of an experiment that was launched.{runs}")

    from rlpyt.experiments.opening import OpenedRun
    from rlpyt.runners.checkpoint import check_settings, run_in
    from rlpyt.runners.minibatch_rl import check_counters, checked_stop_return
    from rlpyt.utils.logging.logger import check_snapshot_mode
    from rlpyt.utils.logging.runs import read_params
    from rlpyt.utils.logging.snapshot import reading

    if args.snapshot_mode is not None:
        check_snapshot_mode(args.snapshot_mode)
    if args.n_steps is not None and not (math.isfinite(args.n_steps) and args.n_steps >= 1):
        raise ValueError(f"--n_steps {args.n_steps:g} must be a finite number of environment steps, at least 1.")
    if args.script is not None and not (args.cuda_idx is None and args.n_parallel is None):
        raise ValueError("--cuda_idx and --n_parallel cannot be combined with --script, whose function determines the runner's affinity.")
    opened = OpenedRun(run_dir, trust=args.trust, script=args.script)
    file, snapshot = opened.file, opened.snapshot
    if opened.trainer_args is not None:
        return resume_trainer(opened, run_dir, args)
    run = run_in(file, snapshot)
    with reading(file, "run['runner']"):
        check_counters(run["runner"])
    affinity = new_affinity(opened.record, args.cuda_idx, args.n_parallel)
    if args.script is None:
        check_gpu(affinity.get("affinity", recorded_affinity(opened.record)))
    runner = opened.runner(**affinity)
    if args.n_steps is not None:
        if args.n_steps < snapshot["cum_steps"] < runner.n_steps:
            taken = f"{snapshot['cum_steps']:,} of {runner.n_steps:,} environment steps"
            raise ValueError(f"--n_steps {args.n_steps:g} is too few: the run has taken {taken}.")
        runner.n_steps = int(args.n_steps)
    if args.stop_return is not None:
        runner.stop_return = checked_stop_return(None if args.stop_return == NONE else args.stop_return)
    counters = run["runner"]
    solved = runner.reason_to_stop(counters.get("score"), counters.get("n_scored", 0), snapshot["cum_steps"])
    if solved is not None:
        show(f"{printable(run_dir)} is complete. {solved} Another --stop_return, or none, makes it longer.")
        return 0
    itr = max(snapshot.get("sampler_itr", snapshot["itr"]), 0)  # An asynchronous run also counts its updates.
    planned = runner.planned_steps(max(snapshot["cum_steps"] // (itr + 1), 1))
    if snapshot["cum_steps"] >= planned:
        check_enough(args.n_steps, planned, snapshot["cum_steps"])
        done = f"{snapshot['cum_steps']:,} of {planned:,} environment steps"
        show(f"{printable(run_dir)} is complete, with {done}: --n_steps makes it longer.")
        return 0
    check_settings(run["settings"], runner, file)  # The runner checks this too, but only after renaming files.
    runner.resume_from = run_dir

    params = opened.params or read_params(opened.params_file)
    return train(run_dir, params, settings_of_log(opened.record, args.snapshot_mode), runner.train)


def settings_of_log(record: Mapping[str, Any], snapshot_mode: str | None) -> dict[str, Any]:
    """Return the arguments with which the log of a run is opened again. Say what does not get the rest of the run.

    Args:
        record: record of the run, see `rlpyt.runners.record`.
        snapshot_mode: which snapshots are kept; None for those that were kept before.
    """
    before = record.get("log")
    before = before if isinstance(before, Mapping) else {}
    settings = {name: before[name] for name in _REOPENED if name in before}
    if settings.get("use_summary_writer") and find_spec("tensorboard") is None:
        settings["use_summary_writer"] = False
        show("TensorBoard does not get the rest of this run, because it is not installed.")
    if before.get("use_wandb"):
        show("Weights & Biases does not get the rest of this run. For that, let its script resume it, with resume_from.")
    return {**settings, **({} if snapshot_mode is None else dict(snapshot_mode=snapshot_mode))}


def train(run_dir: Path, params: Mapping[str, Any], settings: Mapping[str, Any], work: Callable[[], Any]) -> int:
    """Call `work` with the log of a run open, and return the exit code. ValueError if the log cannot be opened.

    Args:
        run_dir: directory of the run, run_<ID>.
        params: contents of its params.json, which stay the same. The record of the run is among them.
        settings: further arguments of `rlpyt.utils.logging.context.run_context`.
        work: function that trains.
    """
    from rlpyt.utils.launching.status import marked
    from rlpyt.utils.logging.context import run_context

    text = run_dir.name.removeprefix("run_")
    run_ID = int(text) if text.isdecimal() and str(int(text)) == text else text  # run_01 is another run than run_1.
    name = params.get("name", run_dir.parent.name)
    params = {**params, "name": name, "run_ID": run_ID}
    is_open = False
    try:
        with run_context(str(run_dir), f"{name}_{run_ID}", params, **settings, if_taken="wait until it has ended."):
            is_open = True
            with marked(run_dir):
                work()
    except Exception as error:
        if not is_open:
            raise ValueError(str(error)) from error
        show(traceback_of(error), sys.stderr)
        return 1
    return 0


def check_enough(n_steps: float | None, planned: int, cum_steps: int) -> None:
    """Raise ValueError if --n_steps asks for a shorter run than a complete one is; whole iterations make `planned` steps of it."""
    if n_steps is not None and planned < cum_steps:
        steps = f"{cum_steps:,}"
        raise ValueError(
            f"The run already has {steps} environment steps, and --n_steps {n_steps:g} asks for fewer: give more than {steps}."
        )


def resume_trainer(opened: OpenedRun, run_dir: Path, args: argparse.Namespace) -> int:
    """Resume the run of a `Trainer`, which counts steps in epochs."""
    if args.cuda_idx is not None or args.n_parallel is not None:
        raise ValueError(f"--cuda_idx and --n_parallel are for runs of runners, and {run_dir} was trained by a Trainer.")
    trainer_args = opened.trainer_args or {}
    batch_size = trainer_args.get("batch_size")
    if args.n_steps is not None and not batch_size:
        raise ValueError(f"--n_steps needs batch_size, the environment steps of an epoch, which {opened.params_file} does not contain.")
    n_epochs = None if args.n_steps is None else math.ceil(args.n_steps / batch_size)
    planned = (n_epochs or trainer_args.get("n_epochs") or 0) * (batch_size or 0)
    if planned <= opened.snapshot["cum_steps"]:
        check_enough(args.n_steps, planned, opened.snapshot["cum_steps"])
        show(f"{printable(run_dir)} is complete, with {opened.snapshot['cum_steps']:,} environment steps: --n_steps makes it longer.")
        return 0
    parts = opened.trainer_parts()

    def work() -> None:
        from rlpyt.runners.trainer import Trainer

        trainer = Trainer()
        trainer.script = opened.script
        trainer.setup(**parts)
        trainer.restore(run_dir)
        trainer.resume(n_epochs=n_epochs)

    return train(run_dir, opened.params, settings_of_log(opened.record, args.snapshot_mode), work)


def _or_none(number: Callable[[str], float]) -> Callable[[str], float | str]:
    """Return a function that reads a number of this type, or NONE."""

    def read(text: str) -> float | str:
        try:
            return NONE if text.lower() == NONE else number(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text} must be {'an integer' if number is int else 'a number'}, or none.") from None

    return read


def resume_experiment(exp_dir: Path, args: argparse.Namespace) -> int:
    """Launch unfinished runs of an experiment again; ValueError for options of single runs."""
    from rlpyt.experiments.trust import check_experiment
    from rlpyt.utils.launching.exp_launcher import StillRunning, rerun_experiments
    from rlpyt.utils.launching.search import rerun_search
    from rlpyt.utils.launching.search_dir import is_search

    single = [name for name in ("n_steps", "stop_return", "cuda_idx", "n_parallel", "script") if getattr(args, name) is not None]
    if single:
        raise ValueError(f"{', '.join(f'--{name}' for name in single)} are for a single run, and {exp_dir} is an experiment.")
    if not args.trust:
        check_experiment(exp_dir)
    try:
        (rerun_search if is_search(exp_dir) else rerun_experiments)(exp_dir, args.affinity_code)
    except StillRunning as error:
        raise ValueError(str(error)) from None
    return 0


def recorded_affinity(record: Mapping[str, Any]) -> Any:
    """Return the affinity of the runner in the record of a run; None if it has none."""
    return record.get("runner", {}).get("arguments", {}).get("affinity")


def new_affinity(record: Mapping[str, Any], cuda_idx: int | str | None, n_parallel: int | None) -> dict[str, Any]:
    """Return ``{"affinity": ...}`` with the given GPU or number of workers; {} if neither is given.

    Args:
        record: record of the run, see `rlpyt.runners.record`.
        cuda_idx: index of the GPU, NONE for the CPU, or None for the recorded one.

    Raises:
        ValueError: the run had several training processes, for which one GPU and one number of workers are not enough.
    """
    from rlpyt.utils.launching.affinity import AUTO

    changes: dict[str, Any] = {}
    if cuda_idx is not None:
        changes["cuda_idx"] = None if cuda_idx == NONE else cuda_idx
    if n_parallel is not None:
        changes["workers_cpus"] = list(range(n_parallel))
    if not changes:
        return {}
    recorded = recorded_affinity(record)
    if recorded is None or recorded == AUTO:
        recorded = dict(set_affinity=False)  # "auto" does not bind processes either.
    if not isinstance(recorded, dict) or "optimizer" in recorded:
        raise ValueError("The run had several processes that train or sample: change its affinity in a function, with --script.")
    return dict(affinity={**recorded, **changes})


def check_gpu(affinity: Any) -> None:
    """Raise ValueError if the affinity of a run with one training process names a GPU that this process does not see."""
    from rlpyt.utils import accelerator

    cuda_idx = affinity.get("cuda_idx") if isinstance(affinity, dict) else None
    if isinstance(cuda_idx, int) and cuda_idx >= accelerator.count():
        another = ", or give the index of another GPU" if accelerator.count() else ""
        raise ValueError(
            f"GPU {cuda_idx} is not visible to this process ({accelerator.why_not_more()}). Resume the run on the CPU, with "
            f"--cuda_idx none{another}."
        )
