"""Measure on this machine, and make the tables of README.md and docs/performance.md from all that was measured on any.

    python -m venv sb3
    sb3/bin/pip install -c constraints.txt torch stable-baselines3 ale-py opencv-python-headless mujoco imageio
    pip install cpprb
    python tests/benchmarks/tables.py --sb3_python sb3/bin/python   # everything, about an hour
    python tests/benchmarks/tables.py --only samplers load          # some of the benchmarks
    python tests/benchmarks/tables.py --write                       # measures nothing

Each kind of processor has a file in docs/measured/. It holds, for each benchmark, the median and the range of each figure, when and by
which command it was measured, with which versions, and how busy the machine was. A benchmark that runs again replaces the figures that
it measures, of this kind of processor. Tables stand in the pages between the comments ``<!-- table NAME -->`` and
``<!-- end of table -->``; do not edit them.

A figure that was measured on one kind of processor only is not claimed in README.md, and has no range in docs/performance.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from common import JSON

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "docs" / "measured"
PAGES = ("README.md", "docs/performance.md")
PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "mujoco")
FORMAT = 1


class Benchmark(NamedTuple):
    """A script, and its arguments."""

    script: str
    arguments: tuple[str, ...] = ()
    against_sb3: bool = False


BENCHMARKS = {
    "samplers": Benchmark("bench_samplers.py", ("--rounds", "9")),
    "end_to_end": Benchmark("bench_end_to_end.py", ("--rounds", "7"), against_sb3=True),
    "mlp": Benchmark("bench_mlp.py", ("--rounds", "7"), against_sb3=True),
    "qpg": Benchmark("bench_qpg.py", ("--rounds", "7"), against_sb3=True),
    "load": Benchmark("bench_load.py", ("--rounds", "7")),
    "runners": Benchmark("bench_runners.py", ("--rounds", "7", "--tasks", "sync", "async")),
    "startup": Benchmark("bench_startup.py"),
    "episodes": Benchmark("bench_episodes.py"),
    "episodic": Benchmark("bench_episodic.py", ("--only", "256 steps", "FragmentWorker", "--batches", "4")),
    "replay": Benchmark("bench_replay.py"),
    "frames": Benchmark("bench_frames.py"),
    "sum_tree": Benchmark("bench_sum_tree.py"),
    "returns": Benchmark("bench_returns.py"),
    "namedarraytuple": Benchmark("bench_namedarraytuple.py"),
    "ray": Benchmark("bench_ray.py"),
}
NEEDS = {"ray": "ray", "sum_tree": "cpprb"}  # modules; without them a benchmark is left out


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        label: its first cell.
        row, figure: names with which the benchmark told it.
        steps: whether the cells also have the steps per second.
    """

    label: str
    row: str
    figure: str
    steps: bool = False


class Table(NamedTuple):
    """A table: the benchmark that measures it, and its rows.

    Attributes:
        head: of the first column.
        is_claim: only rows that were measured on at least two kinds of processor appear, and only their range.
    """

    benchmark: str
    rows: Sequence[Row]
    head: str = ""
    is_claim: bool = False


_SAMPLERS = (
    ("Pong, random actions, B=16, T=32, 2 workers", "Pong, cpu random"),
    ("Pong, AtariFf network on the CPU", "Pong, cpu network"),
    ("... acting in bfloat16", "Pong, cpu network, bf16"),
    ("Pong, random actions served by `GpuSampler`", "Pong, gpu random"),
    ("Pong, AtariFf network on the CPU, `GpuSampler` (one group)", "Pong, gpu network"),
    ("... `AlternatingSampler` (two groups of 2 workers)", "Pong, alternating network"),
    ("... `NoOverlapAlternatingSampler`", "Pong, no-overlap alternating network"),
    ("CartPole, random actions, B=32, T=32", "CartPole, cpu random"),
    ("CartPole, random actions, B=32, T=128", "CartPole, cpu random, T=128"),
)
_NETWORK = [(label, row) for label, row in _SAMPLERS if "network" in row]
_UNEVEN = (
    ("`CpuSampler`, whose workers never wait for each other within a batch", "uneven, cpu network"),
    ("`GpuSampler`", "uneven, gpu network"),
    ("`AlternatingSampler`", "uneven, alternating network"),
    ("`GpuSampler(serve_fraction=0.25)`", "uneven, gpu network, serve_fraction=0.25"),
)
_PONG = (
    ("PPO on Pong, 8 environments, T=128, 4 epochs of 4 minibatches", "ppo"),
    ("... with `algo.accelerate(bf16=True)`, Stable-Baselines3 in float32", "ppo_bf16"),
    ("A2C on Pong, 16 environments, T=5", "a2c"),
    ("DQN on Pong, 8 environments, replay ratio 8 with batches of 32", "dqn"),
)
_QPG = tuple(
    (f"{algo.upper()} on HalfCheetah, {threads} thread{'s' * (threads > 1)}", f"{algo}, {threads} threads")
    for algo in ("sac", "td3")
    for threads in (1, 2)
)
_MLP = (
    ("PPO on HalfCheetah, T=2048, 10 epochs of 32 minibatches", "halfcheetah_ppo"),
    ("PPO on CartPole, 8 environments, T=32, 20 epochs of 1 minibatch", "cartpole_ppo"),
    ("A2C on CartPole, 8 environments, T=8", "cartpole_a2c"),
)
_MLP_UPDATES = [("an update of 64 steps, HalfCheetah", "halfcheetah_ppo"), ("... of 256 steps, CartPole", "cartpole_ppo")]
_LOAD = (
    ("`CpuSampler`, Pong", "cpu sampler"),
    ("`GpuSampler`, acting on the CPU", "one group"),
    ("`AlternatingSampler`, acting on the CPU", "two groups"),
    ("SAC on Pendulum, batch of 256, 1 thread", "SAC, 1 thread"),
    ("... 2 threads", "SAC, 2 threads"),
    ("PPO on CartPole, 1 thread", "PPO, 1 thread"),
)
TABLES = {
    "claims_pong": Table("end_to_end", [Row(label, row, "to_sb3") for label, row in _PONG], "times as fast as Stable-Baselines3", True),
    "claims_qpg": Table("qpg", [Row(label, row, "to_sb3") for label, row in _QPG], "times as fast as Stable-Baselines3", True),
    "samplers": Table("samplers", [Row(label, row, "of_limit", steps=True) for label, row in _SAMPLERS], "of the limit (hot)"),
    "samplers_between": Table("samplers", [Row(label, row, "of_other_limit") for label, row in _NETWORK], "of the limit, as in sampling"),
    "uneven": Table("samplers", [Row(label, row, "of_limit", steps=True) for label, row in _UNEVEN], "of the limit"),
    "pong_sb3": Table("end_to_end", [Row(label, row, "to_sb3", steps=True) for label, row in _PONG], "times as fast as Stable-Baselines3"),
    "pong_bare": Table("end_to_end", [Row(label, row, "to_bare") for label, row in _PONG], "times as fast as bare torch and environments"),
    "qpg_sb3": Table("qpg", [Row(label, row, "to_sb3", steps=True) for label, row in _QPG], "times as fast as Stable-Baselines3"),
    "mlp_sb3": Table("mlp", [Row(label, row, "to_sb3", steps=True) for label, row in _MLP], "times as fast as Stable-Baselines3"),
    "mlp_bare": Table(
        "mlp",
        [
            *(Row(label, row, "to_bare") for label, row in _MLP),
            *(Row(label, f"{row}: update", "to_bare") for label, row in _MLP_UPDATES),
        ],
        "times as fast as bare torch and environments",
    ),
    "qpg_bare": Table("qpg", [Row(label, row, "to_bare") for label, row in _QPG], "times as fast as bare torch and environment"),
    "load_1": Table("load", [Row(label, row, "beside_1", steps=True) for label, row in _LOAD], "of the fair share beside 1"),
    "load_4": Table("load", [Row(label, row, "beside_4") for label, row in _LOAD], "of the fair share beside 4"),
}


# --- Records ----------------------------------------------------------------------------------------------------------
def read_records(directory: Path = MEASURED) -> list[dict[str, Any]]:
    """Return the records of all kinds of processor, by name."""
    return [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]


def kind_of_processor() -> tuple[str, str]:
    """Return the name of the file for this kind of processor, and how tables call it."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    vendor, family, model = (fields.get(name, "") for name in ("vendor_id", "cpu family", "model"))
    if vendor == "AuthenticAMD" and family == "26":
        return "amd-zen5", "AMD Zen 5"
    if vendor == "AuthenticAMD" and family == "25":
        return ("amd-zen4", "AMD Zen 4") if "avx512f" in fields.get("flags", "").split() else ("amd-zen3", "AMD Zen 3")
    if vendor == "GenuineIntel" and (family, model) in (("6", "143"), ("6", "207")):
        return "intel-sapphire-rapids", "Intel Sapphire or Emerald Rapids"
    name = re.sub(r"[^a-z0-9]+", "-", f"{vendor}-{family}-{model}".lower()).strip("-")
    return name, fields.get("model name", f"{vendor}, family {family}, model {model}")


def describe_processor() -> dict[str, Any]:
    """Return model, cores and caches of this machine."""
    lines = subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    caches = [f"{name.split()[0]} {value}" for name, value in named.items() if name.endswith("cache")]
    numbers = f"family {named.get('CPU family')}, model {named.get('Model')}"
    return dict(model=f"{named.get('Model name')} ({numbers})", cores=len(os.sched_getaffinity(0)), caches=", ".join(caches))


def measure(name: str, sb3_python: str | None) -> dict[str, Any]:
    """Run a benchmark; return its entry of the record."""
    from rlpyt.utils.processors import busy_processors

    benchmark = BENCHMARKS[name]
    arguments = list(benchmark.arguments)
    without_sb3 = ["--ours"] if name == "qpg" else []
    if benchmark.against_sb3:
        arguments += ["--sb3_python", sb3_python] if sb3_python else without_sb3
    busy = busy_processors(2.0)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "results")
        print(f"{benchmark.script}: {busy:.1f} processors busy before", flush=True)
        command = [sys.executable, str(Path(__file__).parent / benchmark.script), *arguments]
        subprocess.run(command, check=True, env={**os.environ, JSON: str(path)})
        told = [json.loads(line) for line in path.read_text().splitlines()]
    shown = " ".join("PYTHON" if argument == sb3_python else argument for argument in arguments)
    return dict(
        when=date.today().isoformat(),
        command=f"python tests/benchmarks/{benchmark.script} {shown}".strip(),
        versions={package: metadata.version(package) for package in PACKAGES},
        load=f"{busy:.1f} processors busy before, {busy_processors(2.0):.1f} after",
        rows={each["row"]: each["figures"] for each in told},
    )


def add(entries: dict[str, dict[str, Any]], directory: Path = MEASURED) -> None:
    """Put the entries of benchmarks into the record of this kind of processor.

    Figures that they lack are kept as they were, with the day of their measurement (`when`).
    """
    name, title = kind_of_processor()
    path = directory / f"{name}.json"
    record = json.loads(path.read_text()) if path.exists() else dict(format=FORMAT, title=title, benchmarks={})
    record["processor"] = describe_processor()
    for benchmark, entry in entries.items():
        before = record["benchmarks"].get(benchmark, {})
        day = before.get("when") or before.get("origin")
        kept = {"when": day} if day not in (None, entry.get("when")) else {}
        rows = {row: {name: {**kept, **figure} for name, figure in figures.items()} for row, figures in before.get("rows", {}).items()}
        rows.update({row: {**rows.get(row, {}), **figures} for row, figures in entry["rows"].items()})
        record["benchmarks"][benchmark] = {**entry, "rows": rows}
    directory.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


# --- Tables -----------------------------------------------------------------------------------------------------------
def written(table: Table, records: Sequence[dict[str, Any]]) -> str:
    """Return a table in Markdown."""
    kinds = [record for record in records if any(_figure(record, table, row) for row in table.rows)]
    head, body = [table.head, *(record["title"] for record in kinds), "range of the medians"], []
    for row in table.rows:
        figures = [_figure(record, table, row) for record in kinds]
        medians = [figure["median"] for figure in figures if figure]
        if len(medians) < (2 if table.is_claim else 1):
            continue
        cells = [_cell(record, table, row, figure) for record, figure in zip(kinds, figures)]
        between = _range(min(medians), max(medians)) if len(medians) > 1 else ""
        body.append([row.label, between] if table.is_claim else [row.label, *cells, between])
    if table.is_claim:
        head = [table.head, "range of the medians"]
    if not body:
        return f"What `{BENCHMARKS[table.benchmark].script}` measures has been measured on fewer than two kinds of processor so far."
    return "\n".join([_line(head), "|---" * len(head) + "|", *map(_line, body)])


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _figure(record: dict[str, Any], table: Table, row: Row, name: str | None = None) -> dict[str, Any] | None:
    entry = record["benchmarks"].get(table.benchmark, {"rows": {}})
    return entry["rows"].get(row.row, {}).get(name or row.figure)


def _cell(record: dict[str, Any], table: Table, row: Row, figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    text = f"{figure['median']:.2f}"
    if "low" in figure:
        text += f" ({_range(figure['low'], figure['high'])})"
    steps = _figure(record, table, row, "steps") if row.steps else None
    return text if steps is None else f"{text}, {steps['median']:,.0f} steps/s"


def _range(low: float, high: float) -> str:
    low, high = round(low, 2), round(high, 2)
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def others(records: Sequence[dict[str, Any]]) -> str:
    """Return a table, in Markdown, of all that no other table has."""
    shown = {table.benchmark for table in TABLES.values()}
    wanted: dict[tuple[str, str, str], None] = {}
    for record in records:
        for benchmark, entry in record["benchmarks"].items():
            if benchmark not in shown:
                wanted.update({(benchmark, row, figure): None for row, figures in entry["rows"].items() for figure in figures})
    if not wanted:
        return "No other benchmark has been recorded yet."
    names = sorted(wanted)
    tables = [Table(benchmark, [Row(f"{row}: {figure}", row, figure)]) for benchmark, row, figure in names]
    kinds = [record for record in records if any(_figure(record, table, table.rows[0]) for table in tables)]
    lines = [_line(["", *(record["title"] for record in kinds)]), "|---" * (len(kinds) + 1) + "|"]
    for table in tables:
        (row,) = table.rows
        lines.append(_line([row.label, *(_cell(record, table, row, _figure(record, table, row)) for record in kinds)]))
    return "\n".join(lines)


def origins(records: Sequence[dict[str, Any]]) -> str:
    """Return a list of what was measured where, when and how, in Markdown."""
    lines = []
    for record in records:
        processor = record["processor"]
        lines.append(f"* **{record['title']}**: {processor['model']}, {processor['cores']} cores; caches: {processor['caches']}.")
        groups: dict[tuple, list[str]] = {}
        for name, entry in record["benchmarks"].items():
            versions = ", ".join(f"{package} {version}" for package, version in entry.get("versions", {}).items())
            kept = sorted({figure["when"] for figures in entry["rows"].values() for figure in figures.values() if "when" in figure})
            earlier = f"some figures are of {', '.join(kept)}" if kept else None
            load = f"load: {entry['load']}" if entry.get("load") else None
            said = [entry.get("origin"), entry.get("when"), load, versions or None, earlier]
            groups.setdefault(tuple(filter(None, said)), []).append(name)
        lines += [f"    * {', '.join(names)}: {'; '.join(said)}." for said, names in groups.items()]
    return "\n".join(lines)


def filled(page: str, records: Sequence[dict[str, Any]]) -> str:
    """Return a page with all its tables made anew.

    Raises:
        KeyError: it has a table of another name.
    """

    def fill(match: re.Match) -> str:
        name = match[1]
        makers = dict(origins=origins, others=others)
        text = makers[name](records) if name in makers else written(TABLES[name], records)
        return f"<!-- table {name} -->\n{text}\n<!-- end of table -->"

    return re.sub(r"<!-- table (\w+) -->\n.*?<!-- end of table -->", fill, page, flags=re.DOTALL)


def main(only: Sequence[str], sb3_python: str | None, write_only: bool) -> None:
    for name in [] if write_only else only or BENCHMARKS:
        if name in NEEDS and not only and importlib.util.find_spec(NEEDS[name]) is None:
            print(f"{name} is left out, since {NEEDS[name]} is not installed.")
            continue
        add({name: measure(name, sb3_python)})  # Each at once, in case a later one fails.
    records = read_records()
    for page in PAGES:
        path = ROOT / page
        path.write_text(filled(path.read_text(), records))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=[])
    parser.add_argument("--sb3_python", help="Python with Stable-Baselines3; without, what is measured against it is left out")
    parser.add_argument("--write", action="store_true", help="only write the tables")
    args = parser.parse_args()
    main(args.only, args.sb3_python, args.write)
