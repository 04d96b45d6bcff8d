"""Snapshots that somebody has changed, checksums and all: what does not fit is an error that names the part, and nothing is executed."""

import copy
import random
import zipfile

import pytest
import torch
from damage import IN_ITSELF, comparable, damaged, of_torch, watched
from tiers import full, processes, thinned

from rlpyt.experiments import train
from rlpyt.experiments.configs import classes_of, load, variant
from rlpyt.runners.checkpoint import check_settings, restore, run_in
from rlpyt.runners.snapshots import load_snapshot, replay_files
from rlpyt.samplers.collections import TrajInfo
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.logging.snapshot import _check_contents, read_snapshot, reading

SMALL_REPLAY = dict(min_steps_learn=64, replay_size=400, batch_size=16)
CASES = {
    "dqn": ("cartpole", "dqn", dict(algo=dict(SMALL_REPLAY, prioritized_replay=True, prefetch_batches=True))),
    "dqn_uniform": ("cartpole", "dqn", dict(algo=SMALL_REPLAY)),
    "r2d1": (
        "cartpole_without_velocities", "r2d1",
        dict(algo=dict(min_steps_learn=128, replay_size=1600, batch_B=4, batch_T=8), sampler=dict(batch_T=4, batch_B=4)),
    ),
    "ppo_lstm": ("cartpole_without_velocities", "ppo_lstm", dict(algo=dict(epochs=3), sampler=dict(batch_T=16, batch_B=8))),
}  # fmt: skip


def make_runner(case, sampler="serial", **settings):
    module, key, changes = CASES[case]
    module = load(module)
    config = variant(module.configs[key], **changes)
    unit = max(16, config["sampler"]["batch_B"] * config["sampler"]["batch_T"])
    settings = dict(dict(n_steps=12 * unit, log_interval_steps=6 * unit, save_replay=True), **settings)
    config = variant(config, runner=settings, sampler=dict(eval_n_envs=0))
    paths = dict(classes_of(module, key), **{"sampler": "rlpyt.samplers.parallel.cpu.sampler.CpuSampler"} if sampler == "cpu" else {})
    return train.build(config, paths, dict(master_torch_threads=1, workers_cpus=[0, 1], set_affinity=False), seed=3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the snapshot file of a run."""
    files = {}

    def make(case, sampler="serial"):
        if (case, sampler) not in files:
            log_dir = tmp_path_factory.mktemp(case)
            with logger_context(str(log_dir), 0, "test"):
                make_runner(case, sampler).train()
            files[case, sampler] = log_dir / "run_0" / "params.pkl"
        return files[case, sampler]

    return make


@pytest.fixture
def started(trained):
    """Returns a runner that has started up and could go on, and the file and contents of a snapshot of it."""
    runners = []

    def start(case, sampler="serial"):
        runner, file = make_runner(case, sampler), trained(case, sampler)
        runner.startup()
        runners.append(runner)
        return runner, file, read_snapshot(file)

    yield start
    while runners:
        runners.pop().sampler.shutdown()


def put_back(runner, file, snapshot):
    """What a runner with resume_from does, but reading the file."""
    run = run_in(file, snapshot)
    check_settings(run["settings"], runner, file)
    restore(runner, file, snapshot)


PARTS = {  # What is put in the place of what, and what is said.
    "no settings": (("run", "settings"), None, r"run\['settings'\] is None, and not dict"),
    "a negative seed": (("run", "seed"), -1, r"run\['seed'\] is -1"),
    "a number of rows that is text": (("run", "n_rows"), "3", r"run\['n_rows'\] is '3'"),
    "another format": (("run", "format"), 7, "it is of format 7, this version of rlpyt reads format 1"),
    "no iteration": (("itr",), None, r"snapshot\['itr'\] is None"),
    "settings of another run": (("run", "settings", "algo"), torch.zeros(2), r"run\['settings'\] of .* cannot be put back|other settings"),
    "no agent": (("agent_state_dict",), 5, "agent_state_dict of .* cannot be put back"),
    "no optimizer": (("optimizer_state_dict",), {}, "optimizer_state_dict of .* cannot be put back: .* has no 'param_groups'"),
    "an algorithm without counters": (("run", "algo"), {}, r"run\['algo'\] of .* cannot be put back: algo has no"),
    "counters that are none": (("run", "runner", "diagnostics", "cum_steps"), "x", r"run\['runner'\] of .*\['cum_steps'\] is 'x'"),
    "a score that is none": (("run", "runner", "score"), [], r"run\['runner'\] of .*counters\['score'\] is a list"),
    "episodes that are none": (("run", "runner", "traj_infos"), 5, r"run\['runner'\] of .*traj_infos is 5"),
    "random numbers of torch": (("run", "rng", "torch"), torch.zeros(3), r"run\['rng'\] of .* cannot be put back: .*torch"),
    "no sampler": (("run", "sampler"), 5, r"run\['sampler'\] of .* cannot be put back: sampler is 5"),
    "another environment": (("run", "sampler", "collector", "envs", 0), 5, r"(?s)run\['sampler'\] of .*environment 0, in set_state"),
    "what the agent sees": (("run", "sampler", "collector", "inputs", 0), ("array", ["<f4", [1], b"1234"]), r"inputs'\]\[0\] is a ndarray"),
}


@pytest.mark.parametrize("path, value, message", PARTS.values(), ids=PARTS.keys())
def test_a_part_that_does_not_fit_is_named(path, value, message, started):
    runner, file, snapshot = started("dqn_uniform")
    *outer, last = path
    place = snapshot
    for key in outer:
        place = place[key]
    place[last] = value
    with pytest.raises(ValueError, match=message):
        put_back(runner, file, snapshot)


def told(run):
    """What can be compared of the state of a run: not the time, which goes on, and not episodes, whose fields have defaults."""
    counters = {name: value for name, value in run["runner"].items() if name != "traj_infos"}
    counters["diagnostics"] = {name: value for name, value in counters["diagnostics"].items() if name != "cum_time"}
    algo = {name: value for name, value in run["algo"].items() if name != "first_itr_with_replay"}  # Later without replay.
    return {name: comparable(value) for name, value in dict(algo=algo, rng=run["rng"], runner=counters).items()}


@pytest.mark.parametrize("case, n", thinned([("dqn", 30), ("dqn", 200), ("ppo_lstm", 120), ("r2d1", 200)], quick=[("dqn", 30)]))
def test_a_changed_snapshot_is_refused_or_put_back_as_it_is(case, n, started, tmp_path, monkeypatch):
    (tmp_path / "conftest.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    runner, file, snapshot = started(case)
    put_back(runner, file, snapshot)
    choices, refused = random.Random(n), 0
    with watched() as events:
        for _ in range(n):
            part = choices.choice(["run", "run", "run", "replay", "optimizer_state_dict", None])
            changed = {**snapshot, part: damaged(snapshot[part], choices)} if part in snapshot else damaged(snapshot, choices)
            events.clear()
            try:
                _check_contents(changed)
                put_back(runner, file, changed)
            except ValueError as error:
                refused += 1
                assert len(str(error)) < 20_000
            else:
                ours, theirs = told(runner.get_itr_snapshot(0)["run"]), told(changed["run"])
                different = [(name, key) for name in theirs for key in theirs[name] if theirs[name][key] != ours[name].get(key)]
                assert all(key not in ours[name] for name, key in different), different  # What nobody knows is left alone.
            assert of_torch(events), events
    assert refused > n / 3 and not (tmp_path / "ran").exists()
    put_back(runner, file, snapshot)


@pytest.mark.parametrize("case, n", thinned([("dqn", 40), ("dqn", 300), ("dqn_uniform", 200), ("r2d1", 200)], quick=[("dqn", 40)]))
def test_a_changed_replay_is_refused_or_can_be_sampled_from(case, n, started):
    runner, file, snapshot = started(case)
    put_back(runner, file, snapshot)
    buffer, batch_size = runner.algo.replay_buffer, runner.algo.replay_batch_B
    state = dict(read_snapshot(file.parent / "replay" / snapshot["replay"]["files"][-1]), complete=True)
    buffer.load_state_dict(copy.deepcopy(state))
    choices, refused = random.Random(n), 0
    for _ in range(n):
        changed = damaged(state, choices)
        try:
            _check_contents(changed)
            with reading(file, "replay"):
                buffer.load_state_dict(changed)
        except ValueError:
            refused += 1
            buffer.load_state_dict(copy.deepcopy(state))
        try:
            buffer.sample_batch(batch_size)
        except ValueError as error:  # Of what has been damaged nothing may be left that can be drawn.
            assert "replay" in str(error)
            buffer.load_state_dict(copy.deepcopy(state))
    assert refused > n / 3


# ---------------------------------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------------------------------
SHARED = [1, 2]
FILES = {
    "a class of somebody": (dict(a=TrajInfo()), "not a readable snapshot"),
    "a container in two places": (dict(a=SHARED, b=dict(c=SHARED)), r"is in other places of it, too"),
    "a container in itself": (dict(a=IN_ITSELF), r"\['a'\]\[0\] is in other places of it, too"),
    "a tensor that shows more than there is": (dict(a=[torch.zeros(1).expand(2**40)]), r"\['a'\]\[0\] is a tensor of shape \[10995"),
    "a tensor without memory": (dict(a=torch.empty(2**40, device="meta")), r"\['a'\] is a tensor without memory"),
    "flags that are neither": (dict(a=torch.tensor([7], dtype=torch.uint8).view(torch.bool)), "neither True nor False"),
    "no dictionary": ([1], "The snapshot is a list, and not dict"),
}


@pytest.mark.parametrize("contents, message", FILES.values(), ids=FILES.keys())
def test_files_with_what_is_never_saved_are_no_snapshots(contents, message, tmp_path):
    torch.save(contents, tmp_path / "params.pkl")
    with pytest.raises(ValueError, match=f"params.pkl is not a readable snapshot.*{message}|{message}"):
        read_snapshot(tmp_path / "params.pkl")


def test_files_are_not_larger_inside_than_outside(tmp_path):
    torch.save(dict(a=torch.zeros(2**20)), tmp_path / "plain.pkl")
    with zipfile.ZipFile(tmp_path / "plain.pkl") as source, zipfile.ZipFile(tmp_path / "params.pkl", "w", zipfile.ZIP_DEFLATED) as file:
        for entry in source.infolist():
            file.writestr(entry.filename, source.read(entry))
    with pytest.raises(ValueError, match="it is compressed"):
        read_snapshot(tmp_path / "params.pkl")
    with zipfile.ZipFile(tmp_path / "twice.pkl", "w") as file:
        file.writestr("archive/data/0", bytes(2**20))
        first = file.infolist()[0]
        for i in range(100):  # All of them are the same bytes.
            other = copy.copy(first)
            other.filename = f"archive/data/{i}"
            file.filelist.append(other)
    with pytest.raises(ValueError, match="its entries are larger than the file"):
        read_snapshot(tmp_path / "twice.pkl")


@pytest.mark.parametrize("name", ["../x.pt", "/etc/passwd", "a/b.pt", "", "..", "a\0.pt"])
@pytest.mark.parametrize("where", ["directory", "files"])
def test_replay_is_read_from_the_directory_of_the_run(name, where, trained):
    file = trained("dqn_uniform")
    replay = dict(read_snapshot(file)["replay"])
    replay[where] = name if where == "directory" else [name]
    with pytest.raises(ValueError, match="which is not in the directory of the run"):
        replay_files(file, replay)


def test_the_last_snapshot_is_found_whatever_a_damaged_one_says(trained, tmp_path):
    for name, cum_steps in (("params.pkl", "x"), ("itr_3.pkl", torch.zeros(3)), ("itr_5.pkl", 96)):
        torch.save(dict(read_snapshot(trained("dqn_uniform")), cum_steps=cum_steps), tmp_path / name)
    assert load_snapshot(tmp_path)[0].name in ("params.pkl", "itr_3.pkl"), "what is damaged is looked at first, and said"


@full
@processes
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "change, said",
    [
        (lambda worker: worker.pop("collector"), "has no 'collector'"),
        (lambda worker: worker["collector"]["envs"].pop(), r"collector\['envs'\] has 1 entries, and not 2"),
        (lambda worker: worker["collector"]["envs"].__setitem__(1, [("own", 5)]), "This was in environment [13], in set_state"),
        (lambda worker: worker["collector"]["rng"].update(python=("generator", '{"bit_generator": "test"}')), "bit generator 'test'"),
    ],
)
def test_what_is_wrong_in_a_worker_is_named(change, said, nothing_is_left_behind, started):
    runner, file, snapshot = started("dqn_uniform", "cpu")
    change(snapshot["run"]["sampler"]["workers"][1])
    with pytest.raises(ValueError, match=rf"(?s)run\['sampler'\] of .* cannot be put back: .*{said}"):
        put_back(runner, file, snapshot)


def test_a_field_of_an_episode_does_not_take_the_place_of_a_method(started):
    runner, file, snapshot = started("dqn_uniform")
    kind, items = snapshot["run"]["sampler"]["collector"]["traj_infos"][0]
    snapshot["run"]["sampler"]["collector"]["traj_infos"][0] = kind, [*items, ("step", 5)]
    with pytest.raises(ValueError, match=r"run\['sampler'\] of .*traj_infos.*'step', which is no field of a TrajInfo"):
        put_back(runner, file, snapshot)


def set_in(tensor, i, value):
    tensor[i] = value


REPLAYS = {
    "a row that there is not": (lambda s: set_in(s["next_draw"][0][0], 0, 10**9), "is not one of this buffer"),
    "a batch of another size": (lambda s: s["next_draw"][0].__setitem__(0, s["next_draw"][0][0][:3]), "next_draw is not one of 16 samples"),
    "indexes of another kind": (lambda s: s["next_draw"][0].__setitem__(1, s["next_draw"][0][1].float()), "next_draw is not one of 16"),
    "a batch of other shapes": (lambda s: s["next_batch"].pop(), "next_batch is not a batch of this buffer"),
    "fewer rows than there are": (lambda s: s["chunks"][0].update({"samples.done": s["chunks"][0]["samples.done"][:1]}), "stores shape"),
    "a field of another kind": (lambda s: s["chunks"][0].update({"samples.reward": 5}), "'samples.reward' of the saved replay buffer has"),
    "no chunks": (lambda s: s.update(chunks=5), "The saved replay buffer.*'chunks'.* is 5, and not list"),
    "rows that cannot be there": (lambda s: s.update(claimed=10**6), "which cannot be in"),
    "a priority that is negative": (lambda s: set_in(s["priority_tree"]["priorities"], 0, -1.0), "not from 0 to"),
    "a priority that is no number": (lambda s: set_in(s["priority_tree"]["priorities"], 0, float("nan")), "not from 0 to"),
    "one priority for all": (lambda s: s["priority_tree"].update(priorities=torch.ones(1)), "'priorities' of the saved sum tree is not"),
    "a cursor elsewhere": (lambda s: s["priority_tree"].update(claimed=10**6), "saved sum tree has .* which cannot be in"),
    "random numbers": (lambda s: s["priority_tree"].update(rng='{"bit_generator": "test"}'), "rng is a dict, and not a dictionary of"),
}


@pytest.mark.parametrize("change, message", REPLAYS.values(), ids=REPLAYS.keys())
def test_a_replay_that_does_not_fit_is_refused(change, message, started):
    runner, file, snapshot = started("dqn")
    state = dict(read_snapshot(file.parent / "replay" / snapshot["replay"]["files"][-1]), complete=True)
    runner.algo.replay_buffer.load_state_dict(copy.deepcopy(state))
    change(state)
    with pytest.raises(ValueError, match=message):
        runner.algo.replay_buffer.load_state_dict(state)
