"""The script that compares what two versions of the code train: what it notices, and what it leaves out."""

import json
import re

import golden
import pytest
import torch
from tiers import full, processes

from rlpyt.envs.base import NotRestored
from rlpyt.samplers import columns
from rlpyt.samplers.collections import AgentSamplesBsv, EnvSamples, Samples
from rlpyt.utils.misc import torch_threads

RUN = golden.Run("cartpole", "a2c", "serial", settings=["sampler.eval_n_envs=0", "runner.n_steps=256", "runner.log_interval_steps=128"])


@pytest.fixture
def in_this_process(monkeypatch):
    """Makes the script do one run only, in this process; returns a dictionary with the run, which may be changed."""
    planned = {RUN.name: RUN}

    def in_process(what, tree, how="observe"):
        with torch_threads(1):
            return (planned, []) if what is None else getattr(golden, how)(golden.Run(*json.loads(json.dumps(what))))

    monkeypatch.setattr(golden, "in_process", in_process)
    return planned


def test_a_second_run_is_the_same_and_one_with_another_learning_rate_is_not(in_this_process, tmp_path, capsys):
    file = tmp_path / "before.json"
    assert golden.main(["record", str(file)]) == 0
    assert golden.main(["compare", str(file)]) == 0 and "All 1 runs are bit for bit the same" in capsys.readouterr().out
    in_this_process[RUN.name] = RUN._replace(settings=[*RUN.settings, "algo.learning_rate=3e-3"])
    assert golden.main(["compare", str(file)]) == 1
    differing = dict(line.split(":", 1) for line in capsys.readouterr().out.split(f"{RUN.name}:\n")[1].replace("    ", "").splitlines())
    assert set(differing) == {"batches", "samples", "agent", "optimizer", "progress"}
    assert differing["batches"].startswith(" 7 of 8 differ: 1, 2,")  # Not the first one, before which nothing was learned.
    recorded = json.loads(file.read_text())["runs"][RUN.name]
    assert {"env.observation", "env.reward", "agent.action"} <= recorded["samples"].keys()
    assert "lossAverage" in recorded["progress"] and not any("Time" in name for name in recorded["progress"])


def test_verify_names_the_row_in_which_a_resumed_run_parts(in_this_process, capsys, monkeypatch):
    assert golden.main(["verify", "--workers", "1", "4"]) == 0  # The serial sampler has no workers, so it is one run.
    assert capsys.readouterr().out.endswith("s\n1 of 1 runs are verified.\n")

    def set_state(env, state):
        raise NotRestored  # A new episode begins.

    monkeypatch.setattr(columns, "set_state", set_state)
    assert golden.main(["verify"]) == 1
    assert re.search(r"a2c/serial: resumed: row 2 .*Samples env.observation\n0 of 1 runs are verified", capsys.readouterr().out)


def test_runs_with_other_numbers_of_workers_have_other_names():
    of_workers = [golden.Run("cartpole", "ppo", "cpu", n_workers=n) for n in (2, 4)]
    assert [run.name for run in of_workers] == ["cartpole:ppo/cpu", "cartpole:ppo/cpu/4 workers"]
    assert [len(run.affinity["workers_cpus"]) for run in of_workers] == [2, 4]


def test_memory_of_a_batch_that_means_nothing_is_left_out():
    def batch(unused, T=3, B=2):
        timeout = torch.tensor([[False, True], [False, False], [False, False]])  # One episode of the second column is truncated.
        done = torch.tensor([[False, True], [False, False], [True, False]])  # The first column ends with an episode.
        agent = AgentSamplesBsv(torch.zeros(T, B), torch.zeros(T, B), None, torch.tensor([[unused, 5.0]]), torch.zeros(T, B))
        env = EnvSamples(torch.zeros(T, B, 4), torch.zeros(T, B), torch.zeros(T, B), done, None, timeout)
        final = torch.full((2, B, 4), unused)
        final[0, 1] = 6
        return Samples(agent, env, final)

    one, other = golden.used(batch(1.0)), golden.used(batch(2.0))
    assert golden.hashes(one) == golden.hashes(other)
    assert one["agent"]["bootstrap_value"].tolist() == [5] and one["final"]["observation"].tolist() == [[6] * 4]


@pytest.mark.parametrize("old, new", [(1.0, -1.0), (0.0, -0.0), ([1, 2], [2, 1]), (torch.zeros(2), torch.zeros(2, 1)), (1, True)])
def test_values_that_are_not_the_very_same_have_different_hashes(old, new):
    assert golden.hashes(dict(a=old)) != golden.hashes(dict(a=new))


def test_what_differs_is_said_with_its_place():
    old = dict(batches=["a", "b"], agent=dict(w="1", v="2"), progress=dict(Loss=["1.0", "2.0"], Steps=["1", "2"]))
    new = dict(batches=["a", "c"], agent=dict(w="1", u="2"), progress=dict(Loss=["1.0", "2.5"], Steps=["1"]))
    assert golden.differences(old, old) == []
    assert golden.differences(old, new) == [
        "batches: 1 of 2 differ: 1",
        "agent: 2 of 3 differ: v (is gone), u (is new)",
        "progress: 2 of 2 differ: Loss (2.5 instead of 2.0 in row 1), Steps (1 rows instead of 2)",
    ]
    assert golden.differences(old, dict(crash="Exit code -9: killed")) == ["now: Exit code -9: killed"]


def test_a_run_that_only_one_recording_has_is_a_difference():
    old, new = dict(runs={"a/serial": {}, "b/serial": {}}), dict(runs={"a/serial": {}, "c/cpu": {}})
    assert [line.split(":")[0] for line in golden.compared(old, new)] == ["b/serial", "c/cpu"]
    assert golden.compared(old, new, only=["a/"]) == []


def test_all_runs_have_different_names_and_nothing_is_left_out_without_a_word():
    names = [run.name for run in golden.EXTRAS]
    runs, left_out = golden.plan()
    assert len(set(names)) == len(names) and all(name in runs or any(name.split(":")[0] in line for line in left_out) for name in names)
    for name in ("cartpole:dqn", "cartpole_without_velocities:r2d1", "pendulum:sac"):
        assert {f"{name}/serial", f"{name}/cpu"} <= runs.keys()


@full
@processes
def test_a_run_in_a_process_of_its_own_is_the_same_and_one_that_crashes_is_a_line(monkeypatch):
    here = golden.in_process(RUN, golden.ROOT)
    with torch_threads(1):
        assert golden.differences(here, json.loads(json.dumps(golden.observe(RUN)))) == []
    crash = golden.in_process(RUN._replace(settings=["algo.none=1"]), golden.ROOT)["crash"]
    assert crash.startswith("Exit code 1: ValueError: There is no setting of A2C")
    monkeypatch.setattr(golden, "TIMEOUT", 0.1)
    assert golden.in_process(RUN, golden.ROOT) == dict(crash="It had not ended after 0.1 s.")
