"""How good the settings are that a search finds in some processor time: `rlpyt tune` against Optuna with Stable-Baselines3.

    python tests/benchmarks/bench_tune.py --sb3_python /path/to/venv-with-stable-baselines3-and-optuna/bin/python --out tuned.jsonl

A study is a search with one seed. Stable-Baselines3 is searched as rl_zoo3 does it. Both get the same number of processor seconds, of all
their processes together, and search the same ranges as far as their settings correspond, with one run for each trial. Then the best
settings are trained again with other seeds: the score of a study is the mean return after that (of PPO's agents, ours act by samples,
theirs by the best action, each as in its search). A training that fails counts as the
lowest return that the task has, and so does a study that finds no settings. What is printed is the interquartile mean of the studies with
its bootstrap interval, the probability that one of ours scores more, in which part of the time the slots of ours had a run, and how many
environment steps it saved by resuming promoted trials.

Studies in the file `--out` are not made again, so that the benchmark goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from common import tell

from rlpyt.utils.aggregate import interquartile_mean_of_all, probability_of_improvement, stratified_bootstrap
from rlpyt.utils.launching.affinity import encode_affinity
from rlpyt.utils.launching.search_dir import BEST, Search
from rlpyt.utils.launching.search_status import facts
from rlpyt.utils.logging.runs import PROGRESS, RETURN_COLUMNS, find_column, read_columns

GAMMAS = "0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999"
FEW_EPISODES = ["sampler.eval_n_envs=5", "sampler.eval_max_trajectories=5"]  # in searches, as in rl_zoo3
MANY_EPISODES = ["sampler.eval_n_envs=10", "sampler.eval_max_trajectories=20"]
TASKS: dict[str, dict[str, Any]] = {
    "cartpole_ppo": dict(
        names=("cartpole", "ppo"),
        steps=100_000,
        worst=0,  # mean return of an episode, a lower bound
        seconds=300,
        ranges=dict(
            algo=dict(
                learning_rate="log_uniform(1e-5, 1)",
                discount=f"choice({GAMMAS})",
                gae_lambda="choice(0.8, 0.9, 0.92, 0.95, 0.98, 0.99, 1.0)",
                epochs="choice(1, 5, 10, 20)",
                minibatches="choice(1, 2, 4, 8, 16)",
                ratio_clip="choice(0.1, 0.2, 0.3, 0.4)",
                entropy_loss_coeff="log_uniform(1e-8, 0.1)",
                value_loss_coeff="uniform(0, 1)",
                clip_grad_norm="choice(0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0)",
            ),
            sampler=dict(batch_T="choice(8, 16, 32, 64, 128, 256, 512, 1024, 2048)"),
            model=dict(hidden_sizes="choice([64], [64, 64], [256, 256])"),
        ),
    ),
    "pendulum_sac": dict(
        names=("pendulum", "sac"),
        steps=20_000,
        worst=-3255,  # 200 steps upside down, at the highest speed and torque: -200 (π² + 0.1 · 8² + 0.001 · 2²)
        seconds=900,
        ranges=dict(
            algo=dict(
                learning_rate="log_uniform(1e-5, 1)",
                discount=f"choice({GAMMAS})",
                batch_size="choice(16, 32, 64, 128, 256, 512, 1024, 2048)",
                replay_size="choice(10_000, 100_000, 1_000_000)",
                min_steps_learn="choice(100, 500, 1000)",  # Nothing is evaluated before.
                replay_ratio="choice(32, 64, 128, 256, 512)",  # batch_size of these samples are one update for each step.
                target_update_tau="choice(0.001, 0.005, 0.01, 0.02, 0.05, 0.08)",
            ),
            sampler=dict(batch_T="choice(1, 4, 8, 16, 32, 64)"),
        ),
    ),
}
OURS, THEIRS = "rlpyt tune", "Optuna and SB3"
COSTS = ("busy_share", "steps_taken", "steps_if_restarting")  # of ours, see `rlpyt status --json`
ONE_THREAD = dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
POLL = 0.5  # seconds between two looks at the processor time


def rlpyt(*words: str) -> list[str]:
    """The command of ``rlpyt ...`` in this Python."""
    return [sys.executable, "-m", "rlpyt", *words]


def seconds_of(process: psutil.Process) -> float:
    """Processor seconds of a process and all of its descendants so far."""
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += sum(each.cpu_times()[:4])  # Its own, and those of children that have ended.
        except psutil.Error:  # It has just ended, and counts in its parent next time.
            pass
    return total


def run_for(command: list[str], seconds: float, log: Path) -> float:
    """Run a program until it has taken so many processor seconds, then end it like Ctrl-C; return the seconds that it took.

    Raises:
        RuntimeError: the program was refused, or crashed. (A search that stops itself, or finds nothing, exits with 1.)
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, "ab") as output:
        process = subprocess.Popen(command, env=ONE_THREAD, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    watched = psutil.Process(process.pid)
    while process.poll() is None and seconds_of(watched) < seconds:
        time.sleep(POLL)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    elif process.returncode not in (0, 1):
        raise RuntimeError(f"{shlex.join(command)} failed:\n{log.read_text()}")
    process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def search_of_ours(task: str, seed: int, steps: int, exp_dir: Path) -> list[str]:
    """The command of a search with ``rlpyt tune``."""
    module, key = TASKS[task]["names"]
    ranges = [f"{section}.{name}={text}" for section, each in TASKS[task]["ranges"].items() for name, text in each.items()]
    intervals = [f"runner.n_steps={steps}", f"runner.log_interval_steps={max(steps // 27, 100)}"]
    options = ["--trials", "10000", "--runs", "1", "--seed", str(seed), "--proposals", "optuna", "--log_dir", str(exp_dir)]
    options += ["--affinity_code", encode_affinity(n_cpu_core=1, set_affinity=False)]
    return rlpyt("tune", module, key, *options, "--set", *intervals, *FEW_EPISODES, *ranges)


def study_of_ours(task: str, seed: int, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Search with ``rlpyt tune``, and train the best settings again."""
    exp_dir = directory / "search"
    command = search_of_ours(task, seed, args.steps or TASKS[task]["steps"], exp_dir)
    seconds = run_for(command, args.seconds or TASKS[task]["seconds"], directory / "log.txt")
    search = Search(exp_dir)
    costs = facts(search)
    found: dict[str, Any] = dict(seconds=seconds, trials=len(search.trials), settings=None, best=None, scores=[])
    found.update((name, costs[name]) for name in COSTS)
    if search.best is not None:
        best = json.loads((exp_dir / BEST).read_text())
        train = rlpyt(*shlex.split(best["command"])[1:], *MANY_EPISODES)
        for training in args.trainings:
            with open(directory / "log.txt", "ab") as log:
                run = [*train, "--seed", str(training), "--run_ID", str(training), "--log_dir", str(directory / "again")]
                is_done = subprocess.run(run, env=ONE_THREAD, stdout=log, stderr=log, check=False).returncode == 0
            found["scores"].append(last_return(directory / "again" / f"run_{training}") if is_done else None)
        found.update(settings=best["variant"], best=best["score"])
    return found


def last_return(run_dir: Path) -> float | None:
    """The last mean return in a run's log; None if there is none."""
    if not (run_dir / PROGRESS).is_file():
        return None
    columns = read_columns(run_dir / PROGRESS)
    returns = [value for value in columns[find_column(columns, *RETURN_COLUMNS)] if np.isfinite(value)]
    return returns[-1] if returns else None


def study_of_theirs(task: str, seed: int, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Search with Optuna, and train the best settings again."""
    script, out = Path(__file__).with_name("sb3_tune.py"), directory / "found.json"
    numbers = dict(seed=seed, seconds=args.seconds or TASKS[task]["seconds"], steps=args.steps or TASKS[task]["steps"])
    options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    options += ["--trainings", *map(str, args.trainings), "--out", str(out)]
    with open(directory / "log.txt", "ab") as log:
        subprocess.run([args.sb3_python, str(script), task, *options], env=ONE_THREAD, stdout=log, stderr=log, check=True)
    return json.loads(out.read_text())


def score_of(study: dict[str, Any], worst: float) -> float:
    """The mean return of a study's trainings. Failed ones count as `worst`, and so does a study that has found no settings."""
    return float(np.mean([worst if score is None else score for score in study["scores"]] or [worst]))


def summary(task: str, studies: list[dict[str, Any]]) -> None:
    """Print what the studies of a task have found."""
    scores = {who: np.array([score_of(each, TASKS[task]["worst"]) for each in studies if each["who"] == who]) for who in (OURS, THEIRS)}
    print(f"\n{task}, {len(studies)} studies")
    for who, found in scores.items():
        if not len(found):
            continue
        of_who = [each for each in studies if each["who"] == who]
        n_failed = sum(not each["scores"] or None in each["scores"] for each in of_who)
        failed = f", {n_failed} of {len(of_who)} failed to train and count as the worst" if n_failed else ""
        center, low, high = map(float, stratified_bootstrap([found], interquartile_mean_of_all))
        costs = f"{np.mean([each['seconds'] for each in of_who]):.0f} s, {np.mean([each['trials'] for each in of_who]):.0f} trials"
        print(f"  {who:15} {center:8.1f} ({low:.1f} to {high:.1f})   {costs}{failed}")
        tell(f"{task}, {who}", score=list(found))
    ours = [each for each in studies if each.get("steps_taken")]  # Without a step there is nothing to tell.
    if ours:
        slots, taken, restarting = (np.array([each[name] for each in ours], float) for name in COSTS)
        saved = 1 - taken / restarting
        print(f"  {OURS}: slots busy {slots.min():.0%} to {slots.max():.0%} of the time")
        share = f"{saved.min():.0%} to {saved.max():.0%}"
        print(f"  {OURS}: {taken.sum():,.0f} environment steps, {share} fewer than if promoted trials restarted")
    if all(map(len, scores.values())):
        center, low, high = map(float, stratified_bootstrap(list(scores.values()), probability_of_improvement))
        print(f"  {OURS} scores more with probability {center:.2f} ({low:.2f} to {high:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3_python", required=True, help="Python of an environment with Stable-Baselines3 and Optuna")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--studies", type=int, default=5, help="searches of each task and program")
    parser.add_argument("--seconds", type=float, help="processor seconds of a search; default: 300 for CartPole, 900 for Pendulum")
    parser.add_argument("--steps", type=int, help="environment steps of a run; default: 100,000 for CartPole, 20,000 for Pendulum")
    parser.add_argument("--trainings", type=int, nargs="+", default=[100, 101, 102], help="seeds with which the best settings train again")
    parser.add_argument("--out", type=Path, default=Path("bench_tune.jsonl"), help="the studies, a line for each")
    args = parser.parse_args()
    make = {OURS: study_of_ours, THEIRS: study_of_theirs}
    for seed in range(args.studies):
        for task in args.tasks:
            for who in list(make)[:: 1 if seed % 2 == 0 else -1]:
                if any((each["task"], each["who"], each["seed"]) == (task, who, seed) for each in studies_in(args.out)):
                    continue
                with tempfile.TemporaryDirectory(prefix="bench_tune_") as directory:
                    study = dict(task=task, who=who, seed=seed, **make[who](task, seed, args, Path(directory)))
                with open(args.out, "a") as file:
                    file.write(json.dumps(study) + "\n")
                print(json.dumps(study), flush=True)
    for task in args.tasks:
        summary(task, [each for each in studies_in(args.out) if each["task"] == task])


def studies_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
