"""Do two versions of the code train bit for bit the same?

    python tests/golden.py record before.json          # runs everything, and writes what came out
    python tests/golden.py compare before.json         # runs what is in it again, and says what differs
    python tests/golden.py trees ../old ../new         # records one working tree and compares another, e.g. of `git worktree add`
    python tests/golden.py record some.json --only cartpole:dqn /cpu --tree ../old
    python tests/golden.py verify --workers 1 2 4      # runs everything with digests, verifies it (see `rlpyt.experiments.verify`), and
                                                       # resumes it in the middle: the rows must be those of the uninterrupted run

A run is a tiny one (`smoke` of `rlpyt.experiments.train`) of a configuration of `rlpyt.experiments.configs`, once with the serial sampler
and once with workers; EXTRAS has others, for what no configuration uses. Seed and threads are fixed. Recorded are, as hashes, the
samples of every batch, and at the end the agent's and the optimizer's state; and the columns of progress.csv that do not depend on time.
All these are observed from outside: by `obtain_samples`, `state_dict`, `optim_state_dict` and the file. So of both versions only these
must be there, and what makes a run, in `rlpyt.experiments`. Each run has a process of its own, so that one that crashes is a line of the
result. The exit code is 1 if a run crashes or differs.

Arithmetic differs between processors and versions of torch, so a recording is good for the machine it was made on. Asynchronous samplers
are left out: their batches depend on how fast processes are.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import preloaded
import torch

ROOT = Path(__file__).resolve().parents[1]
SEED = 7
TIMEOUT = 300  # seconds for one run
AFFINITY = dict(cuda_idx=None, set_affinity=False, master_torch_threads=1, worker_torch_threads=1)
N_WORKERS = 2
PACKAGES = ("torch", "numpy", "numba", "gymnasium", "ale-py", "mujoco", "box2d", "opencv-python", "opencv-python-headless")
NEEDS = {  # Modules, by the beginning of a configuration's name.
    r"atari_": ("ale_py", "cv2"),
    r"mujoco|halfcheetah|hopper": ("mujoco",),
    "lunarlander": ("Box2D",),
}
OF_TIME = re.compile(r"Time|PerSecond|Seconds|\(s\)")  # Columns of progress.csv with such names differ from run to run.
SHOWN = 6  # names of what differs, in one line


class Run(NamedTuple):
    """One run.

    Attributes:
        module, key: the configuration; "episodes" is none, see `observe_episodes`.
        sampler: name in `rlpyt.experiments.build.SAMPLERS`; with "episodes", in `rlpyt.samplers.episodic`.
        extra: what is different from the configuration, in a word.
        settings: that difference, such as "algo.n_step_return=3".
        classes: import paths of other classes.
        n_workers: worker processes of samplers that have some.
    """

    module: str
    key: str
    sampler: str
    extra: str = ""
    settings: Sequence[str] = ()
    classes: dict[str, str] = {}
    n_workers: int = N_WORKERS

    @property
    def name(self) -> str:
        """What this run is called in files and on the command line."""
        n_workers = f"{self.n_workers} workers" if self.n_workers != N_WORKERS else ""
        return "/".join(filter(None, (f"{self.module}:{self.key}", self.sampler, self.extra, n_workers)))

    @property
    def affinity(self) -> dict[str, Any]:
        """The affinity, whose list of processors sets the number of workers."""
        return dict(AFFINITY, workers_cpus=list(range(self.n_workers)))


PRIORITIZED = dict(extra="prioritized", settings=["algo.prioritized_replay=True"])
INPUT_PRIORITIES = dict(extra="prioritized", settings=["algo.prioritized_replay=True", "algo.n_step_return=2"])  # Within a batch.
PREFETCH = dict(extra="prefetch", settings=["algo.prefetch_batches=True"])
TIME_LIMIT = dict(extra="time_limit", settings=["env.max_episode_steps=13"])  # Episodes are truncated in the middle of batches.
SHORT = dict(extra="time_limit", settings=["env.id=ShortCartPole-v0"])
WAIT_RESET = dict(extra="wait_reset", classes=dict(collector="rlpyt.samplers.parallel.cpu.collectors.CpuWaitResetCollector"))
GPU_WAIT_RESET = dict(extra="wait_reset", classes=dict(collector="rlpyt.samplers.parallel.gpu.collectors.GpuWaitResetCollector"))
gymnasium.register("ShortCartPole-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=13)
LSTM, R2D1 = ("cartpole_without_velocities", "ppo_lstm"), ("cartpole_without_velocities", "r2d1")
EXTRAS = [
    *[Run("cartpole", key, sampler, **WAIT_RESET) for key in ("ppo", "dqn") for sampler in ("serial", "cpu")],
    *[Run("cartpole", key, sampler, **SHORT) for key in ("ppo", "a2c", "dqn") for sampler in ("serial", "cpu")],
    *[Run("cartpole", key, sampler, **PRIORITIZED) for key in ("dqn", "catdqn") for sampler in ("serial", "cpu")],
    *[Run("cartpole", key, sampler) for key in ("ppo", "dqn") for sampler in ("gpu", "alternating")],
    *[Run(*of, sampler) for of in (LSTM, R2D1) for sampler in ("gpu", "alternating")],
    *[Run(*of, "serial", **kwargs) for of in (LSTM, R2D1) for kwargs in (SHORT, WAIT_RESET)],
    *[Run(*of, "alternating", **GPU_WAIT_RESET) for of in (LSTM, R2D1)],
    *[Run(*R2D1, sampler, **INPUT_PRIORITIES) for sampler in ("serial", "alternating")],
    *[Run(*of, "serial", **PREFETCH) for of in (("cartpole", "dqn"), R2D1)],
    *[Run("pendulum", key, sampler, **TIME_LIMIT) for key in ("ddpg", "td3", "sac") for sampler in ("serial", "cpu")],
    Run("pendulum", "sac", "gpu"),
    Run("atari_dqn", "double_pri_duel", "gpu"),
    Run("atari_r2d1", "r2d1_test", "alternating"),
    *[Run("episodes", "ppo", sampler) for sampler in ("LocalSampler", "MultiprocessingSampler")],
]


# ---------------------------------------------------------------------------------------------------------------------
# What is run
# ---------------------------------------------------------------------------------------------------------------------
def plan() -> tuple[dict[str, Run], list[str]]:
    """Return all runs by their names, and a sentence for each configuration that is left out."""
    from rlpyt.experiments.configs import config_modules, load

    runs, left_out, seen = {}, [], {}
    for module in config_modules():
        needed = [name for start, names in NEEDS.items() if re.match(start, module) for name in names]
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        if missing:
            left_out.append(f"{module} is left out, since {' and '.join(missing)} cannot be imported.")
            continue
        for key in load(module).configs:
            same = seen.setdefault(json.dumps(settings_of(Run(module, key, "serial")), sort_keys=True, default=str), f"{module}:{key}")
            if same != f"{module}:{key}":
                left_out.append(f"{module}:{key} is left out: at this size it is the same as {same}.")
                continue
            runs.update({run.name: run for run in (Run(module, key, sampler) for sampler in ("serial", "cpu"))})
        runs.update({run.name: run for run in EXTRAS if run.module == module})
    return {**runs, **{run.name: run for run in EXTRAS if run.module == "episodes"}}, left_out


def settings_of(run: Run) -> tuple[dict, dict]:
    """Return the settings and the classes of a run, as `build` takes them."""
    from rlpyt.experiments.configs import classes_of, load
    from rlpyt.experiments.train import configuration

    settings, module = list(run.settings), load(run.module)
    path = classes_of(module, run.key)["algo"]
    if ".dqn." in path:
        settings.append("algo.target_update_interval=8")  # Target networks change in so short a run, too.
    if ".qpg." in path:  # At least one update in each iteration, some of which are a single step.
        settings += ["runner.n_steps=320", "runner.log_interval_steps=160", "algo.replay_ratio=2"]
        if module.configs[run.key]["algo"].get("bootstrap_timelimit"):
            settings += TIME_LIMIT["settings"]
    if run.module.startswith("atari_"):  # Images take longer, and episodes are too long.
        settings += ["runner.n_steps=256", "runner.log_interval_steps=128", "sampler.eval_max_trajectories=2", "env.horizon=25"]
        if ".dqn." in path:  # 16 updates.
            settings.append("algo.min_steps_learn=128")
            settings += ["algo.batch_B=4", "algo.replay_ratio=4"] if "r2d1" in path else ["algo.batch_size=16", "algo.replay_ratio=2"]
    if run.sampler != "serial" and module.configs[run.key]["sampler"].get("batch_B", run.n_workers) < run.n_workers:
        settings.append(f"sampler.batch_B={run.n_workers}")  # One for each worker.
    return configuration(run.module, run.key, run.sampler, settings, dict(classes=run.classes), smoke=True)


# ---------------------------------------------------------------------------------------------------------------------
# What is observed
# ---------------------------------------------------------------------------------------------------------------------
def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of everything in nested dictionaries, lists and named tuples, but for None."""
    if hasattr(tree, "_fields"):
        parts: Iterable = ((name, getattr(tree, name)) for name in tree._fields)
    elif isinstance(tree, dict):
        parts = tree.items()
    elif isinstance(tree, (list, tuple)):
        parts = enumerate(tree)
    else:
        parts = ()
        if tree is not None:
            yield path, tree
    for name, part in parts:
        yield from leaves(part, f"{path}.{name}" if path else str(name))


def hash_of(value: Any) -> str:
    """Return a hash of an array or a tensor with its dtype and shape; of another value, of how it is written."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    is_array = isinstance(value, np.ndarray)
    data = f"{value.dtype}{value.shape}".encode() + value.tobytes() if is_array else repr(value).encode()
    return hashlib.sha256(data).hexdigest()[:12]


def hashes(tree: Any) -> dict[str, str]:
    """Return the hash of each leaf by its path."""
    return {path: hash_of(value) for path, value in sorted(leaves(tree), key=lambda leaf: leaf[0])}


def used(samples: Any) -> dict[str, Any]:
    """Return what a batch of samples says, without memory that means nothing (see `rlpyt.samplers.collections`)."""
    agent, env = ({name: getattr(part, name) for name in part._fields} for part in (samples.agent, samples.env))
    if agent.get("bootstrap_value") is not None:
        agent["bootstrap_value"] = agent["bootstrap_value"][~env["done"][-1:].bool()]
    final = {}
    if env.get("timeout") is not None:
        n_timeouts = env["timeout"].long().sum(dim=0)  # [B]
        for path, leaf in leaves(getattr(samples, "final_observation", None), "observation"):  # [K,B,...]
            final[path] = leaf[torch.arange(len(leaf))[:, None] < n_timeouts]
    return dict(agent=agent, env=env, final=final)


class Batches:
    """The hashes of all batches of a run: one of each batch, and one of each field over the whole run."""

    def __init__(self) -> None:
        self._batches: list[dict[str, str]] = []

    def add(self, tree: Any) -> None:
        """Take in the next batch."""
        self._batches.append(hashes(tree))

    def recorded(self) -> dict[str, Any]:
        """Return what is recorded of them."""
        fields = sorted({path for batch in self._batches for path in batch})
        samples = {path: hash_of([batch.get(path) for batch in self._batches]) for path in fields}
        return dict(batches=[hash_of(batch) for batch in self._batches], samples=samples)


def observe(run: Run) -> dict[str, Any]:
    """Do a run in this process, and return what is recorded of it."""
    if run.module == "episodes":
        return observe_episodes(run)
    from rlpyt.experiments.build import build
    from rlpyt.utils.logging.context import logger_context

    batches, runner = Batches(), build(*settings_of(run), run.affinity, SEED)
    obtain_samples = runner.sampler.obtain_samples

    def observed(*args: Any, **kwargs: Any) -> Any:
        samples, traj_infos = obtain_samples(*args, **kwargs)
        batches.add(used(samples))
        return samples, traj_infos

    runner.sampler.obtain_samples = observed
    with tempfile.TemporaryDirectory() as directory:
        with logger_context(directory, 0, "golden", snapshot_mode="none") as run_dir:
            runner.train()
        with open(os.path.join(run_dir, "progress.csv"), newline="") as file:
            header, *rows = csv.reader(file)
    progress = {name: list(values) for name, *values in zip(header, *rows) if not OF_TIME.search(name)}
    return dict(batches.recorded(), **learned(runner.agent, runner.algo), progress=progress)


def verified(run: Run) -> dict[str, Any]:
    """Do a run with digests in this process, compute it again, and do it with an interruption, from which it resumes.

    Returns:
        The number of rows, and where these runs part from the first one, if they do.
    """
    from rlpyt.experiments.build import build
    from rlpyt.experiments.verify import compare, verify
    from rlpyt.utils.launching.sweep import PAUSE_AT
    from rlpyt.utils.logging.context import logger_context

    settings, paths = settings_of(run)

    def train(directory: str, **changes: Any) -> str:
        runner = build(settings, paths, run.affinity, SEED)
        for name, value in dict(changes, digest=True, save_replay=True).items():
            setattr(runner, name, value)
        with logger_context(directory, 0, "golden", snapshot_mode="last") as run_dir:
            runner.train()
        return run_dir

    with tempfile.TemporaryDirectory() as whole_dir, tempfile.TemporaryDirectory() as parts_dir:
        whole = train(whole_dir)
        os.environ[PAUSE_AT] = str(settings["runner"]["n_steps"] // 2)
        parts = train(parts_dir)
        del os.environ[PAUSE_AT]
        found = {"again": verify(whole, None), "resumed": compare(whole, train(parts_dir, resume_from=parts))}
    partings = [f"{how}: {each.parting.a}, {' '.join(each.parting.first)}" for how, each in found.items() if each.parting is not None]
    return dict(rows=len(found["resumed"].pairs), parting="; ".join(partings) or None)


def observe_episodes(run: Run) -> dict[str, Any]:
    """Do the same with PPO on episodes from a sampler of whole episodes, without a runner."""
    from rlpyt.agents.pg.mlp import MlpFfAgent
    from rlpyt.algos.pg.ppo import PPO
    from rlpyt.envs.gym import make
    from rlpyt.samplers import episodic
    from rlpyt.samplers.collections import BatchSpec
    from rlpyt.utils.seed import set_seed

    set_seed(SEED)
    batches, agent, algo = Batches(), MlpFfAgent(), PPO(minibatches=2, epochs=2)
    workers = dict(n_workers=2, worker_class=episodic.VecWorker, worker_args=dict(n_envs=2))
    factory = episodic.WorkerFactory(max_episode_length=30, seed=SEED, **workers)
    sampler = getattr(episodic, run.sampler)(factory, agent, partial(make, "CartPole-v1"))
    algo.initialize(agent, n_itr=4, batch_spec=BatchSpec(30, 8), mid_batch_reset=False, examples=None)
    for itr in range(4):
        agent.sample_mode(itr)
        episodes = sampler.obtain_samples(itr, num_samples=200, agent_update=agent.state_dict())
        agent.train_mode(itr)
        samples, valid = episodes.to_samples(value=agent.value)
        batches.add(dict(used(samples), valid=valid))
        algo.optimize_agent(itr, samples)
    sampler.shutdown_worker()
    return dict(batches.recorded(), **learned(agent, algo))


def learned(agent: Any, algo: Any) -> dict[str, dict[str, str]]:
    """Return what is recorded of agent and algorithm after training."""
    return dict(agent=hashes(agent.state_dict()), optimizer=hashes(algo.optim_state_dict()))


# ---------------------------------------------------------------------------------------------------------------------
# Processes
# ---------------------------------------------------------------------------------------------------------------------
def in_process(what: Any, tree: Path, how: str = "observe") -> Any:
    """Do a run with the code of a tree in a process of its own and return what is recorded; or, without a run, the plan.

    `how` is "observe" or "verified", see the functions of these names.
    """
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result.json"
        try:
            environment = dict(OMP_NUM_THREADS="1", RLPYT_CALIBRATE="0", PYTHONPATH=str(tree))
            done = preloaded.run(__file__, "child", json.dumps(what), tree, result, how, timeout=TIMEOUT, cwd=directory, **environment)
        except subprocess.TimeoutExpired:
            return dict(crash=f"It had not ended after {TIMEOUT} s.")
        if done.returncode == 0:
            return json.loads(result.read_text())
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "It said nothing.")
        return dict(crash=f"Exit code {done.returncode}: {last.strip()}")


def child(what: str, tree: str, result: str, how: str) -> None:
    """Be that process."""
    sys.path.insert(0, tree)
    import rlpyt

    if not Path(rlpyt.__file__).is_relative_to(tree):
        raise ImportError(f"{rlpyt.__file__} is not in {tree}.")
    run = json.loads(what)
    do = dict(observe=observe, verified=verified)[how]
    Path(result).write_text(json.dumps(plan() if run is None else do(Run(*run))))


def record(tree: Path, only: Sequence[str] = (), of: Collection[str] | None = None) -> dict[str, Any]:
    """Do all runs with the code of a tree; return versions, and what is recorded by name.

    Args:
        tree: a working tree.
        only: parts of names; others are left out.
        of: names; others are left out. None: all.
    """
    tree = tree.resolve()
    planned = in_process(None, tree)
    if "crash" in planned:
        sys.exit(f"The configurations of {tree} cannot be read. {planned['crash']}")
    runs, left_out = planned
    if not only and of is None:
        print("\n".join(left_out))
    names = [name for name in runs if (of is None or name in of) and is_among(name, only)]
    recorded, start = {}, time.monotonic()
    for i, name in enumerate(names):
        begun = time.monotonic()
        recorded[name] = in_process(runs[name], tree)
        print(f"{i + 1}/{len(names)} {name}: {recorded[name].get('crash', f'{time.monotonic() - begun:.1f} s')}", flush=True)
    print(f"{len(names)} runs took {(time.monotonic() - start) / 60:.1f} minutes.")
    return dict(versions=versions(), runs=recorded)


def verify_all(tree: Path, only: Sequence[str], n_workers: Sequence[int]) -> int:
    """Do all runs with digests, again, and with an interruption; print a line for each, and return the exit code.

    Runs of samplers with workers are done with each of these numbers of workers.
    """
    planned = [Run(*run) for run in in_process(None, tree.resolve())[0].values() if run[0] != "episodes"]
    runs = [run._replace(n_workers=n) for run in planned for n in (n_workers if run.sampler != "serial" else [N_WORKERS])]
    runs = [run for run in runs if is_among(run.name, only)]
    n_verified = 0
    for i, run in enumerate(runs):
        begun = time.monotonic()
        found = in_process(run, tree.resolve(), "verified")
        wrong = found.get("crash") or found["parting"]
        n_verified += wrong is None
        same = wrong or f"{found['rows']} rows are the same, {time.monotonic() - begun:.1f} s"
        print(f"{i + 1}/{len(runs)} {run.name}: {same}", flush=True)
    print(f"{n_verified} of {len(runs)} runs are verified.")
    return int(n_verified < len(runs) or not runs)


def is_among(name: str, only: Sequence[str]) -> bool:
    """Whether the name of a run contains one of `only`, or nothing is asked for."""
    return not only or any(part in name for part in only)


def versions() -> dict[str, str]:
    """Return what the numbers depend on besides the code."""
    found = dict(python=platform.python_version(), machine=platform.machine(), instructions=torch.backends.cpu.get_cpu_capability())
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.*)", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    found["processor"] = model[1] if model else platform.processor()
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Comparison
# ---------------------------------------------------------------------------------------------------------------------
def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return a line for each part of a run that differs: what, and where; none if all is the same."""
    if "crash" in old or "crash" in new:
        return [f"{when}: {run['crash']}" for when, run in (("then", old), ("now", new)) if "crash" in run]
    lines = []
    for part in dict.fromkeys([*old, *new]):
        a, b = (dict(enumerate(x)) if isinstance(x, list) else x for x in (old.get(part, {}), new.get(part, {})))
        names = list(dict.fromkeys([*a, *b]))
        changed = [change(name, a, b) for name in names if (name in a, a.get(name)) != (name in b, b.get(name))]
        if changed:
            more = f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
            lines.append(f"{part}: {len(changed)} of {len(names)} differ: {', '.join(changed[:SHOWN])}{more}")
    return lines


def change(name: Any, a: dict, b: dict) -> str:
    """Say what has become of one entry."""
    if name not in a or name not in b:
        return f"{name} (is {'gone' if name in a else 'new'})"
    if not isinstance(a[name], list):
        return str(name)
    if len(a[name]) != len(b[name]):
        return f"{name} ({len(b[name])} rows instead of {len(a[name])})"
    row = next(i for i, (x, y) in enumerate(zip(a[name], b[name])) if x != y)
    return f"{name} ({b[name][row]} instead of {a[name][row]} in row {row})"


def compared(old: dict[str, Any], new: dict[str, Any], only: Sequence[str] = ()) -> list[str]:
    """Return the lines that say what differs between two recordings, in runs whose names contain one of `only`; none if nothing does."""
    lines = []
    for name in dict.fromkeys([*old["runs"], *new["runs"]]):
        if not is_among(name, only):
            continue
        if name not in old["runs"] or name not in new["runs"]:
            lines.append(f"{name}: it is only in the {'old' if name in old['runs'] else 'new'} recording.")
        elif found := differences(old["runs"][name], new["runs"][name]):
            lines += [f"{name}:", *(f"    {line}" for line in found)]
    return lines


def report(old: dict[str, Any], new: dict[str, Any], only: Sequence[str]) -> int:
    """Print what differs between two recordings; return the exit code."""
    then, now = old["versions"], new["versions"]
    other = [f"{key} ({then.get(key)} then, {now.get(key)} now)" for key in {**then, **now} if then.get(key) != now.get(key)]
    if other:
        print(f"The old recording is from elsewhere, which may be why something differs: {', '.join(other)}.")
    lines = compared(old, new, only)
    print("\n".join(lines) if lines else f"All {len(new['runs'])} runs are bit for bit the same.")
    return int(bool(lines) or not new["runs"])


def main(argv: Sequence[str] | None = None) -> int:
    """Do it, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_ in (
        ("record", "run, and write FILE"),
        ("compare", "run, and say what differs from FILE"),
        ("trees", "compare trees"),
        ("verify", "run with digests, again, and with an interruption, and compare"),
    ):
        command = commands.add_parser(name, help=help_)
        if name == "trees":
            command.add_argument("old", type=Path, help="a working tree")
            command.add_argument("new", type=Path, help="another one")
        else:
            if name != "verify":
                command.add_argument("file", type=Path, help="the recording, in JSON")
            command.add_argument("--tree", type=Path, default=ROOT, help="the working tree whose code runs; default: this one")
        if name == "verify":
            command.add_argument("--workers", nargs="+", type=int, default=[N_WORKERS], metavar="N", help="numbers of worker processes")
        command.add_argument("--only", nargs="+", default=[], metavar="NAME", help="runs whose names contain one of these")
    args = parser.parse_args(argv)
    if args.command == "verify":
        return verify_all(args.tree, args.only, args.workers)
    if args.command == "trees":
        return report(record(args.old, args.only), record(args.new, args.only), args.only)
    if args.command == "compare":
        old = json.loads(args.file.read_text())
        return report(old, record(args.tree, args.only, old["runs"]), args.only)
    recording = record(args.tree, args.only)
    args.file.write_text(json.dumps(recording, indent=1))
    return int(any("crash" in run for run in recording["runs"].values()) or not recording["runs"])


if __name__ == "__main__":
    sys.exit(child(*sys.argv[2:]) if sys.argv[1:2] == ["child"] else main())
