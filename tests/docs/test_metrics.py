"""docs/metrics.md lists exactly the columns that runs write."""

import csv
import re
from pathlib import Path

import pytest
from tiers import thinned

from rlpyt.experiments import train
from rlpyt.experiments.configs import classes_of, load
from rlpyt.runners.async_rl import AsyncRl, AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlBase, MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRl, SyncRlEval
from rlpyt.utils.logging.context import logger_context

ROOT = Path(__file__).parents[2]

STATISTICS = ("Average", "Std", "Median", "Min", "Max")
RUNS = [  # runner, configuration, sampler instead of its own
    (MinibatchRl, "cartpole a2c", None),
    (MinibatchRlEval, "cartpole ppo", None),
    (MinibatchRl, "cartpole dqn", None),
    (MinibatchRlEval, "cartpole catdqn", None),
    (MinibatchRl, "cartpole iqn", None),
    (MinibatchRl, "cartpole_without_velocities r2d1", None),
    (MinibatchRl, "cartpole_without_velocities iqn_r2d1", None),
    (MinibatchRl, "pendulum ddpg", None),
    (MinibatchRlEval, "pendulum td3", None),
    (MinibatchRl, "pendulum sac", None),
    (MinibatchRl, "pendulum_without_velocities sac_lstm", None),
    (MinibatchRl, "pendulum_without_velocities td3_lstm", None),
    (MinibatchRl, "pendulum tqc", None),
    (MinibatchRl, "cartpole sac", None),
    (MinibatchRlEval, "mujoco_sac_v sac_1M_serial", None),
    (MinibatchRlEval, "atari_dqn dqn", "serial"),
    (SyncRl, "cartpole a2c", None),
    (SyncRlEval, "cartpole ppo", None),
    (AsyncRl, "cartpole dqn", "async_serial"),
    (AsyncRlEval, "cartpole dqn", "async_serial"),
    (AsyncRl, "cartpole impala", None),
    (AsyncRlEval, "cartpole appo", None),
]
QUICK = [RUNS[1], RUNS[2]]


def tables():
    """Sections of the page by title: rows of each section's table, without its head."""
    found, rows = {}, []
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if line.startswith("## "):
            rows = found.setdefault(line[3:], [])
        elif line.startswith("| `"):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def names(cell):
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def documented_columns(runner, algo, traj_info):
    """The columns that the page says such a run has."""
    columns = set()
    for title, rows in tables().items():
        runners, _, algorithms = title.partition(" with ")
        if title == "All runners" or (runner in runners.split(", ") and (not algorithms or algo in algorithms.split(", "))):
            columns |= {f"Diagnostics/{name}" for row in rows for name in names(row[0])}
        elif title == "Trajectories":
            classes = {"TrajInfo", traj_info}
            columns |= {name + stat for row in rows if classes & set(names(row[1])) for name in names(row[0]) for stat in STATISTICS}
        elif title == "Algorithms":
            columns |= {name + stat for row in rows if algo in row[1].split(", ") for name in names(row[0]) for stat in STATISTICS}
    return columns


def columns_of_run(RunnerCls, configuration, sampler, run_dir):
    """Run something tiny; return the names of algorithm and TrajInfo class, and the header of its log."""
    module_name, key = configuration.split()
    module = load(module_name)
    paths = classes_of(module, key)
    if sampler:
        paths["sampler"] = train.SAMPLERS[sampler]
    classes = dict(algo=train.load_class(paths["algo"]), runner=MinibatchRlBase, sampler=train.load_class(paths["sampler"]))
    config = train.limited({"accelerate": {}, **module.configs[key]}, classes)
    config["sampler"]["eval_max_steps"] = 2000  # Enough for one episode of all environments.
    affinity = dict(workers_cpus=[0], master_torch_threads=1, set_affinity=False)
    parts = train.build(config, paths, affinity, seed=0)
    settings = dict(config["runner"], affinity=[affinity, dict(affinity)] if RunnerCls in (SyncRl, SyncRlEval) else affinity)
    runner = RunnerCls(algo=parts.algo, agent=parts.agent, sampler=parts.sampler, seed=0, **settings)
    with logger_context(run_dir, 0, name="metrics", override_prefix=True, snapshot_mode="none") as run_dir:
        runner.train()
    with open(Path(run_dir) / "progress.csv") as file:
        header = next(csv.reader(file))
    assert len(header) == len(set(header))
    return type(runner.algo).__name__, runner.sampler.TrajInfoCls.__name__, set(header)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("RunnerCls, configuration, sampler", thinned(RUNS, quick=QUICK), ids=lambda x: getattr(x, "__name__", x))
def test_the_page_lists_what_runs_log(RunnerCls, configuration, sampler, tmp_path):
    algo, traj_info, header = columns_of_run(RunnerCls, configuration, sampler, tmp_path)
    assert header == documented_columns(RunnerCls.__name__, algo, traj_info)


def test_every_entry_has_a_meaning_and_a_unit_and_is_logged_by_a_run_above():
    runners = {RunnerCls.__name__ for RunnerCls, *_ in RUNS}
    keys = [configuration.split() for _, configuration, _ in RUNS]
    algorithms = {classes_of(load(module), key)["algo"].rpartition(".")[2] for module, key in keys}
    for title, rows in tables().items():
        assert "Rl" not in title or runners & set(title.partition(" with ")[0].split(", ")), title
        for row in rows:
            assert len(row) == (4 if title in ("Trajectories", "Algorithms") else 3) and all(row), row
            assert title != "Algorithms" or set(row[1].split(", ")) <= algorithms, row
