"""Runs record digests of what they compute if they are asked to, and a change of one bit is found by them."""

import csv

import numpy as np
import pytest
import torch
from tiers import full, processes

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.gym import make
from rlpyt.experiments import verify
from rlpyt.runners import digests as of_runners
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.digests import Digests, set_digest
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.parallel.cpu.collectors import CpuWaitResetCollector
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.digests import FILE, KINDS, DigestRow, digests, in_common, parting, read_rows, together
from rlpyt.utils.logging.context import logger_context

T, B = 8, 2
ONE = dict(master_torch_threads=1, set_affinity=False)


def runner(RunnerCls=MinibatchRl, n=4, affinity=ONE, **settings):
    """A run of `n` iterations, each with a row of the log."""
    sampler = SerialSampler(make, dict(id="CartPole-v1"), batch_T=T, batch_B=B, max_decorrelation_steps=5)
    settings = dict(dict(seed=1, log_interval_steps=T * B, digest=True), **settings)
    algo = PPO(epochs=1, minibatches=2, linear_lr_schedule=False)
    return RunnerCls(algo=algo, agent=MlpFfAgent(), sampler=sampler, n_steps=n * T * B, affinity=affinity, **settings)


def train(made, log_dir):
    with logger_context(str(log_dir), 0, "test") as run_dir:
        made.train()
    with open(f"{run_dir}/progress.csv") as file:
        return made, log_dir / "run_0", list(csv.DictReader(file))


def test_each_row_has_digests_of_everything_and_the_file_those_of_each_tensor(tmp_path):
    made, run_dir, table = train(runner(), tmp_path)
    rows = read_rows(run_dir / FILE)
    assert [(row.row, row.itr, row.steps, row.n_steps) for row in rows] == [(i + 1, i, 16 * (i + 1), 64) for i in range(4)]
    for row, columns in zip(rows, table, strict=True):
        for kind in KINDS:
            parts = {name: int(number, 16) for name, number in row.digests[kind].items()}
            assert columns[f"Diagnostics/Digest{kind}"] == together(parts)
    assert {name: int(number, 16) for name, number in rows[-1].digests["Parameters"].items()} == digests(made.agent.state_dict())
    assert len({row.digests["Samples"]["env.observation"] for row in rows}) == 4 and rows[0].digests["Random"] != rows[1].digests["Random"]
    assert rows[-1].on["torch"] == torch.__version__ and rows[-1].on["torch threads"] == 1


def test_rows_say_on_which_gpu_and_with_how_many_threads_of_workers_they_were_computed(monkeypatch):
    assert not {"GPU", "CUDA", "worker torch threads"} & of_runners.depends_on(ONE).keys()
    monkeypatch.setattr(of_runners.accelerator, "name", lambda cuda_idx: f"GPU number {cuda_idx}")
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    found = of_runners.depends_on(dict(cuda_idx=1, worker_torch_threads=2))
    assert (found["GPU"], found["CUDA"], found["worker torch threads"]) == ("GPU number 1", "12.6", 2)
    affinity = dict(workers_cpus=[0, 1, 2])
    assert of_runners.depends_on(affinity, has_workers=True)[of_runners.WORKERS] == 3
    assert of_runners.WORKERS not in of_runners.depends_on(affinity)


def test_workers_that_an_earlier_version_did_not_record_are_no_difference():
    def row(**on):
        return DigestRow(1, 0, 16, 64, {}, dict(torch="2", **on))

    def different(*on):
        rows = tuple(row(**each) for each in on)
        return verify._compared([rows], {}, {}).conditions

    assert different({of_runners.WORKERS: 2}, {of_runners.WORKERS: 1}) == {of_runners.WORKERS: (2, 1)}
    assert different({}, {of_runners.WORKERS: 1}) == {}


def test_without_it_nothing_is_recorded(tmp_path):
    made, run_dir, table = train(runner(digest=None), tmp_path)
    assert made.digests is None and not (run_dir / FILE).exists()
    assert not [name for name in table[0] if "Digest" in name] and "digests" not in made.counters()


def test_it_changes_nothing_else(tmp_path):
    (a, _, _), (b, _, _) = train(runner(), tmp_path / "a"), train(runner(digest=False), tmp_path / "b")
    torch.testing.assert_close(a.agent.state_dict(), b.agent.state_dict(), rtol=0, atol=0)


def test_a_process_may_switch_it_on_for_its_runs():
    try:
        set_digest(True)
        assert runner(digest=None).digest is True and runner(digest=False).digest is False
    finally:
        set_digest(False)
    assert runner(digest=None).digest is False


def test_without_an_open_log_a_run_trains_as_ever():
    runner().train()


# --- One bit ----------------------------------------------------------------------------------------------------------
def flip(tensor):
    """Change the lowest bit of an array's or tensor's middle number."""
    numbers = np.asarray(tensor.detach()).reshape(-1)
    numbers[len(numbers) // 2 :][:1].view(np.uint8)[0] ^= 1


class FlipsParameter(MinibatchRl):
    """Changes a bit of the agent's parameters before row 3 is written."""

    def log_diagnostics(self, itr, **kwargs):
        if itr == 2:
            flip(self.agent.model.state_dict()["pi.model.2.weight"])
        super().log_diagnostics(itr, **kwargs)


class FlipsMoment(MinibatchRl):
    """Changes a bit of the optimizer's."""

    def log_diagnostics(self, itr, **kwargs):
        if itr == 2:
            flip(self.algo.optim_state_dict()["state"][4]["exp_avg"])
        super().log_diagnostics(itr, **kwargs)


class FlipsSample(MinibatchRl):
    """Changes a bit of a sample."""

    def _sample(self, itr):
        samples, traj_infos = super()._sample(itr)
        if itr == 2:
            flip(samples.env.observation)
        return samples, traj_infos


class Draws(MinibatchRl):
    """Draws one random number too many."""

    def log_diagnostics(self, itr, **kwargs):
        if itr == 2:
            np.random.rand()
        super().log_diagnostics(itr, **kwargs)


@pytest.mark.parametrize(
    "RunnerCls, first, n_first",
    [
        pytest.param(FlipsParameter, ("Parameters", "pi.model.2.weight"), 1, marks=full),
        (FlipsMoment, ("Optimizer", "state.4.exp_avg"), 1),
        (FlipsSample, ("Samples", "env.observation"), 1),
        (Draws, ("Random", "numpy"), 1),
    ],
)
def test_a_change_of_one_bit_is_found_in_its_row_and_tensor(RunnerCls, first, n_first, tmp_path):
    (_, a, _), (_, b, _) = train(runner(), tmp_path / "a"), train(runner(RunnerCls), tmp_path / "b")
    found = parting(in_common(read_rows(a / FILE), read_rows(b / FILE)))
    assert (found.n_same, found.a.row, found.first, len(found.names[first[0]])) == (2, 3, first, n_first)
    before = KINDS[: KINDS.index(first[0])]
    assert not any(found.names[kind] for kind in before)


# --- Samples ----------------------------------------------------------------------------------------------------------
class Keeps(MinibatchRl):
    """Keeps the last batch."""

    def _sample(self, itr):
        self.samples, traj_infos = super()._sample(itr)
        return self.samples, traj_infos


def batch(T=T, max_episode_steps=5, **settings):
    """A batch with episodes of 5 steps, so that each column has a timeout at least."""
    sampler = SerialSampler(make, dict(id="CartPole-v1", max_episode_steps=max_episode_steps), batch_T=T, batch_B=B, **settings)
    made = Keeps(algo=PPO(epochs=1, minibatches=1), agent=MlpFfAgent(), sampler=sampler, n_steps=T * B, seed=1, log_interval_steps=T * B)
    made.train()
    return made.samples


def taken(samples, mid_batch_reset=True):
    found = Digests(mid_batch_reset)
    found.take(samples)
    return found.state_dict()["samples"]


def test_memory_that_means_nothing_does_not_count_and_what_means_something_does():
    samples = batch()
    samples.env.done[-1, 0] = True
    before, n_timeouts = taken(samples), samples.env.timeout.sum(dim=0)
    unused = torch.arange(len(samples.final_observation))[:, None] >= n_timeouts  # [K,B]
    assert n_timeouts.min() >= 1 and unused.any()
    samples.final_observation[unused] += 1
    samples.agent.bootstrap_value[samples.env.done[-1:]] += 1
    assert taken(samples) == before
    for name, field in (
        ("final_observation", samples.final_observation[0, 1]),
        ("env.next_observation", samples.env.next_observation[-1]),
        ("env.reward", samples.env.reward[-1]),
        ("agent.timeout_value", samples.agent.timeout_value),
        ("agent.action", samples.agent.action),
    ):
        was = field.clone()
        field += 1
        changed = taken(samples)
        assert [path for path in before if changed[path] != before[path]][-1:] == [name], name
        field[...] = was
    assert taken(samples) == before


@pytest.mark.parametrize("waits", [False, True])
def test_observations_that_end_terminated_episodes_count(waits):
    """CartPole falls after some 20 steps."""
    wait = dict(CollectorCls=CpuWaitResetCollector) if waits else {}
    samples = batch(T=100, max_episode_steps=500, keep_terminal_observations=True, **wait)
    slots, before = samples.terminal_observation, taken(samples, not waits)
    n_ends = torch.ones(B, dtype=torch.int64) if waits else samples.env.done.sum(dim=0)
    assert (n_ends >= 1 + (not waits)).all()
    slots[torch.arange(len(slots))[:, None] >= n_ends] += 1  # They mean nothing.
    assert taken(samples, not waits) == before
    slots[n_ends[1] - 1, 1] += 1
    after = taken(samples, not waits)
    assert [path for path in before if after[path] != before[path]] == ["terminal_observation"]


def test_batches_in_new_memory_count_as_those_in_the_same():
    samples = batch()
    same, new = Digests(), Digests()
    for _ in range(2):
        same.take(samples)
        new.take(samples[:])
    assert same.state_dict() == new.state_dict() != Digests().state_dict()
    strided = samples._replace(env=samples.env._replace(observation=samples.env.observation.transpose(0, 1).contiguous().transpose(0, 1)))
    assert taken(strided) == taken(samples)


def test_when_small_fields_are_digested_does_not_matter():
    samples = batch()
    never_asked, asked = Digests(), Digests()
    for i in range(150):
        samples.env.reward[...] += 1
        samples.env.done[-1] = i % 3 == 0
        never_asked.take(samples)
        asked.take(samples)
        if i % 7 == 0:
            state = asked.state_dict()
            asked = Digests()
            asked.load_state_dict(state)
    assert list(never_asked.state_dict()["samples"].items()) == list(asked.state_dict()["samples"].items())


# --- Resuming ---------------------------------------------------------------------------------------------------------
def test_a_resumed_run_has_the_rows_of_one_that_never_stopped(tmp_path):
    _, whole, _ = train(runner(n=4), tmp_path / "whole")
    _, run_dir, _ = train(runner(n=2), tmp_path / "parts")
    with open(run_dir / FILE, "ab") as file:  # A row after the snapshot, and half of one, as if the process had been killed then.
        lines = (whole / FILE).read_bytes().splitlines(keepends=True)
        file.write(lines[2].replace(b'"Samples": {"', b'"Samples": {"x') + lines[3][:50])
    _, _, table = train(runner(n=4, resume_from=run_dir), tmp_path / "parts")
    found, expected = read_rows(run_dir / FILE), read_rows(whole / FILE)
    assert len(table) == len(found) == 4
    assert [row._replace(n_steps=0) for row in found] == [row._replace(n_steps=0) for row in expected]
    assert [row.n_steps for row in found] == [32, 32, 64, 64], "as they were planned then"
    assert (run_dir / "digests.1.jsonl").exists(), "the earlier file is kept"


def test_a_run_that_gets_digests_only_when_it_is_resumed_does_not_know_those_of_its_samples(tmp_path, capsys):
    _, whole, _ = train(runner(n=3), tmp_path / "whole")
    _, run_dir, _ = train(runner(n=2, digest=False), tmp_path / "parts")
    _, _, table = train(runner(n=3, resume_from=run_dir), tmp_path / "parts")
    (row,) = read_rows(run_dir / FILE)
    assert set(row.digests) == {"Parameters", "Optimizer", "Random"} and "digests of samples stay unknown" in capsys.readouterr().out
    assert "Diagnostics/DigestSamples" not in table[-1] and parting(in_common(read_rows(whole / FILE), [row])) is None


def test_a_damaged_file_does_not_keep_a_run_from_going_on(tmp_path, capsys):
    _, run_dir, _ = train(runner(n=2), tmp_path)
    (run_dir / FILE).write_text("{\n")
    train(runner(n=3, resume_from=run_dir), tmp_path)
    assert [row.itr for row in read_rows(run_dir / FILE)] == [2] and "damaged: line 1" in capsys.readouterr().out


def test_a_row_that_the_disk_refuses_is_written_with_the_next(tmp_path, monkeypatch, capsys):
    refused = [True, True]
    append = of_runners.append_whole

    def append_later(path, data):
        if refused:
            refused.pop()
            raise OSError("no space")
        append(path, data)

    monkeypatch.setattr(of_runners, "append_whole", append_later)
    _, run_dir, _ = train(runner(), tmp_path)
    assert [row.row for row in read_rows(run_dir / FILE)] == [1, 2, 3, 4] and "could not be written" in capsys.readouterr().out


def test_a_new_run_in_the_same_directory_starts_a_new_file(tmp_path):
    train(runner(n=3), tmp_path)
    _, run_dir, _ = train(runner(n=2), tmp_path)
    assert (len(read_rows(run_dir / FILE)), len(read_rows(run_dir / "digests.1.jsonl"))) == (2, 3)


# --- Other runners ----------------------------------------------------------------------------------------------------
def test_asynchronous_runs_are_refused_because_they_do_not_repeat():
    sampler = AsyncSerialSampler(make, dict(id="CartPole-v1"), batch_T=T, batch_B=B)
    with pytest.raises(ValueError, match="digest=True is for runs that repeat"):
        AsyncRl(algo=DQN(), agent=MlpDqnAgent(), sampler=sampler, n_steps=100, digest=True)


@full
@processes
@pytest.mark.timeout(120)
def test_ranks_that_are_spawned_again_do_not_get_the_digests_of_the_first_training(tmp_path):
    made = runner(SyncRl, n=2, affinity=[ONE, ONE])
    made.sampler.start_method = "spawn"
    train(made, tmp_path / "a")
    assert len(train(made, tmp_path / "b")[2]) == 1


@full
@processes
@pytest.mark.timeout(120)
def test_of_several_processes_the_first_one_records(tmp_path):
    dirs = [train(runner(SyncRl, n=4, affinity=[ONE, ONE]), tmp_path / name)[1] for name in "ab"]
    a, b = (read_rows(each / FILE) for each in dirs)
    assert len(a) == 4 // 2 and parting(in_common(a, b)) is None
