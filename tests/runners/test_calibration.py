"""Runs choose between equal computations: once per machine, the same in all processes, kept when resumed, repeated by the same seed."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tiers import full, processes, thinned

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.appo import Appo
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.sac import SAC
from rlpyt.envs.gym import make
from rlpyt.runners import calibration, minibatch_rl
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.calibration import THREADS, possible_threads, threads_are_said
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.samplers.workers import WorkerPool
from rlpyt.types import BatchSpec
from rlpyt.utils import choices
from rlpyt.utils.choices import Verdict, current
from rlpyt.utils.logging.context import logger_context

ONE = dict(master_torch_threads=1, workers_cpus=[0, 1], set_affinity=False)


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """This machine's answers are below tmp_path, it is idle, and nothing is chosen after the test."""
    monkeypatch.setattr(calibration, "busy_processors", lambda: 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    yield tmp_path / "caches"
    choices.adopt({})
    calibration.forget_threads()


def answering(monkeypatch, which):
    """Let measurements find that the alternative of this index is the fastest."""
    asked = []

    def compare(comparison, seconds, clock=None):
        asked.append(comparison.question)
        return Verdict(comparison.alternatives[which], "so it is pretended")

    monkeypatch.setattr(choices, "compare", compare)
    return asked


def serial(SamplerCls=SerialSampler, **settings):
    return SamplerCls(make, **{**dict(env_kwargs=dict(id="CartPole-v1"), batch_T=64, batch_B=4, max_decorrelation_steps=0), **settings})


def build(RunnerCls=MinibatchRl, **settings):
    """PPO with layers of 128 x 128 and minibatches of 128 steps, whose products are large enough for oneDNN."""
    defaults = dict(
        algo=PPO(epochs=1, minibatches=2), agent=MlpFfAgent(model_kwargs=dict(hidden_sizes=[128, 128])), sampler=serial(),
        n_steps=1024, log_interval_steps=256, seed=3, affinity=ONE, calibrate=True,
    )  # fmt: skip
    return RunnerCls(**{**defaults, **settings})


def trained(directory, runner):
    with logger_context(str(directory), 0, "test", override_prefix=True):
        runner.train()
    return torch.cat([p.detach().flatten() for p in runner.agent.parameters()])


def recorded(directory):
    return json.loads(Path(directory, "run_0", "params.json").read_text())["rlpyt"]["choices"]


# --- The same seed, the same bits -------------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_bits_whatever_is_measured(tmp_path, monkeypatch):
    asked = answering(monkeypatch, -1)
    first = build()
    parameters = trained(tmp_path / "a", first)
    assert first.choices == {"linear 128 128 128": "onednn"} and len(asked) == 1
    answering(monkeypatch, 0)  # It would be the other way round now.
    second = build()
    assert torch.equal(trained(tmp_path / "b", second), parameters) and second.choices == first.choices


def test_it_does_where_nothing_can_be_kept(tmp_path, monkeypatch, caches):
    caches.write_text("This is no directory.")
    asked, runners = answering(monkeypatch, -1), [build(), build()]
    parameters = [trained(tmp_path / str(i), runner) for i, runner in enumerate(runners)]
    assert torch.equal(*parameters) and not asked
    assert [runner.choices for runner in runners] == [{"linear 128 128 128": "blas"}] * 2


def test_measuring_does_not_change_a_run(tmp_path):
    """Real measurements: random numbers and models are what they were, and so are results if the default is fastest."""
    measured = build()
    parameters = trained(tmp_path / "a", measured)
    torch.testing.assert_close(trained(tmp_path / "b", build(calibrate=False)), parameters, rtol=1e-3, atol=1e-4)
    assert torch.equal(trained(tmp_path / "c", build(calibrate=measured.choices)), parameters)


# --- Settings ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("calibrate", [False, {}, {"linear 128 128 128": "onednn"}])
def test_choices_can_be_fixed(calibrate, tmp_path, monkeypatch, caches):
    asked, runner = answering(monkeypatch, -1), build(calibrate=calibrate)
    trained(tmp_path, runner)
    assert runner.choices == (calibrate or {}) == recorded(tmp_path) and not asked and not caches.exists()


def test_a_run_that_says_nothing_does_as_was_said_for_all(tmp_path, monkeypatch):
    asked = answering(monkeypatch, -1)
    trained(tmp_path / "off", build(calibrate=None))
    assert not asked
    monkeypatch.delenv("RLPYT_CALIBRATE")
    trained(tmp_path / "on", build(calibrate=None))
    assert asked


@pytest.mark.parametrize("calibrate", ["yes", 1, {"threads": 0}, {1: "blas"}])
def test_other_values_are_refused(calibrate):
    with pytest.raises(ValueError, match="calibrate"):
        build(calibrate=calibrate)


def test_each_choice_is_a_line_of_the_log(tmp_path, monkeypatch, capsys):
    answering(monkeypatch, -1)
    trained(tmp_path, build())
    text = (tmp_path / "run_0" / "debug.log").read_text()
    assert text.count("Choice: linear 128 128 128 (1 thread): onednn, so it is pretended.") == 1
    assert "Choice" not in capsys.readouterr().out, "by default"


# --- Resumed runs -----------------------------------------------------------------------------------------------------
class Killed(Exception):
    pass


class Stopping(MinibatchRl):
    def run_iteration(self, itr):
        if itr == 2:
            raise Killed
        super().run_iteration(itr)


@full
def test_a_resumed_run_keeps_the_choices_of_its_snapshot(tmp_path, monkeypatch):
    answering(monkeypatch, -1)
    whole = trained(tmp_path / "whole", build())
    with pytest.raises(Killed):
        trained(tmp_path / "parts", build(Stopping))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    asked = answering(monkeypatch, 0)
    resumed = build(resume_from=tmp_path / "parts" / "run_0", calibrate=None)
    assert torch.equal(trained(tmp_path / "resumed", resumed), whole)
    assert resumed.choices == {"linear 128 128 128": "onednn"} == recorded(tmp_path / "resumed") and not asked
    with pytest.raises(Killed):
        trained(tmp_path / "never measured", build(Stopping, calibrate=False))
    monkeypatch.delenv("RLPYT_CALIBRATE")
    again = build(resume_from=tmp_path / "never measured" / "run_0", calibrate=None)
    trained(tmp_path / "resumed again", again)
    assert again.choices == {} and not asked


def test_a_resumed_run_that_says_so_measures_anew(tmp_path, monkeypatch):
    with pytest.raises(Killed):
        trained(tmp_path / "a", build(Stopping, calibrate=False))
    asked, resumed = answering(monkeypatch, -1), build(resume_from=tmp_path / "a" / "run_0", calibrate=True)
    trained(tmp_path / "b", resumed)
    assert resumed.choices == {"linear 128 128 128": "onednn"} and asked


# --- All processes of a run -------------------------------------------------------------------------------------------
def tell(pipe):
    pipe.send(("ok", current()))
    pipe.recv()
    pipe.send(("ok", None))


@processes
@pytest.mark.parametrize("start_method", thinned(["fork", "spawn", "forkserver"], quick=["fork"]))
def test_processes_choose_as_the_one_that_starts_them(start_method):
    choices.adopt({"linear 1 2 3": "onednn"})
    pool = WorkerPool(tell, [{}], ["a worker"], start_method=start_method)
    assert pool.receive() == [{"linear 1 2 3": "onednn"}]
    pool.stop()


class TellsChoices(SyncRl):
    """Each rank measures something else."""

    def startup(self):
        minibatch_rl.calibrate = lambda *args, **kwargs: {"linear 9 9 9": f"rank{self.rank}"}
        n_itr = super().startup()
        Path(self.algo.directory, str(self.rank)).write_text(json.dumps([self.choices, current()]))
        return n_itr


@processes
def test_rank_0_decides_for_all_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(minibatch_rl, "calibrate", None)
    algo = A2C()
    algo.directory = str(tmp_path)
    build(TellsChoices, algo=algo, affinity=[ONE] * 2, n_steps=512).train()
    assert [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)] == [[{"linear 9 9 9": "rank0"}] * 2] * 2


@full
@processes
def test_an_asynchronous_run_chooses_before_its_processes_start(tmp_path, monkeypatch):
    answering(monkeypatch, -1)
    runner = AsyncRl(
        algo=SAC(batch_size=64, min_steps_learn=64, replay_ratio=8, replay_size=1000),
        agent=SacAgent(model_kwargs=dict(hidden_sizes=[128, 128]), q_model_kwargs=dict(hidden_sizes=[128, 128])),
        sampler=serial(AsyncCpuSampler, env_kwargs=dict(id="Pendulum-v1"), batch_T=8, batch_B=2),
        n_steps=128, log_interval_steps=64, seed=3, affinity=ONE, calibrate=True,
    )  # fmt: skip
    trained(tmp_path, runner)
    assert runner.choices == {"linear 64 128 128": "onednn", "nets 2 64 4 128": "together"} == recorded(tmp_path)


# --- What is asked ----------------------------------------------------------------------------------------------------
class Recurrent:
    recurrent = True


class FeedForward:
    recurrent = False


@pytest.mark.parametrize(
    "algo, agent, rows",
    [
        (A2C(), FeedForward, [160]),
        (PPO(minibatches=4), FeedForward, [40]),
        (PPO(minibatches=4), Recurrent, [20 * 2]),
        (SAC(batch_size=96), FeedForward, [96]),
        (R2D1(batch_T=8, batch_B=4, warmup_T=4, n_step_return=2, double_dqn=True), Recurrent, [40, 40]),
        (R2D1(batch_T=8, batch_B=4, warmup_T=4, n_step_return=2, double_dqn=False), Recurrent, [32, 40]),
    ],
)
def test_algorithms_know_how_many_steps_a_model_sees_at_once(algo, agent, rows):
    assert algo.trained_rows(agent, BatchSpec(20, 8)) == rows


@pytest.mark.parametrize("algo, rows", [(Appo(minibatches=2), [4 * 6 // 2 // 2]), (SAC(batch_size=96), [96])])
def test_several_optimizers_share_processors_and_without_replay_columns(algo, rows, monkeypatch):
    asked = []
    monkeypatch.setattr(minibatch_rl, "calibrate", lambda *args, **kwargs: asked.append((kwargs["trained_rows"], kwargs["n_sharing"])))
    sampler = serial(AsyncCpuSampler, batch_T=4, batch_B=6, start_method="spawn")
    affinity = dict(optimizer=[dict(set_affinity=False)] * 2, sampler=dict(workers_cpus=[0], set_affinity=False))
    build(AsyncRl, algo=algo, sampler=sampler, affinity=affinity)._make_choices(FeedForward)
    assert asked == [(rows, 2)]


def test_samplers_know_for_how_many_environments_the_agent_acts_at_once(monkeypatch):
    monkeypatch.setattr("rlpyt.samplers.parallel.base.allowed_cpus", lambda: list(range(8)))
    three = dict(workers_cpus=[0, 1, 2])
    sizes = dict(batch_T=4, batch_B=10)
    assert serial(**sizes).acting(three) == ([10], None)
    assert serial(CpuSampler, **sizes).acting(three) == ([3, 4], 1)
    assert serial(CpuSampler, **sizes).acting(dict(worker_torch_threads=2)) == ([1, 2], 2)
    assert serial(GpuSampler, **sizes).acting(three) == ([10], 5)
    assert serial(AlternatingSampler, **sizes).acting(three) == ([5], 2)


def test_nothing_is_measured_if_forked_processes_need_several_threads(tmp_path, monkeypatch):
    asked, runner = answering(monkeypatch, -1), build(affinity=dict(ONE, worker_torch_threads=2))
    trained(tmp_path, runner)
    assert runner.choices == {} and not asked


# --- Threads ----------------------------------------------------------------------------------------------------------
@contextmanager
def torch_with(n, monkeypatch):
    """Pretend that torch has this many threads, and that no one has said so."""
    set_to = [n]
    monkeypatch.setattr(torch, "get_num_threads", lambda: set_to[-1])
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.setattr(calibration, "_threads_at_import", n)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    yield set_to


@pytest.mark.parametrize(
    "quota, n_cpus, n_sharing, n_torch, possible",
    [
        (None, 8, 1, 8, [8, 4, 2, 1]),
        (None, 6, 1, 8, [6, 3, 1]),
        (2.5, 8, 1, 8, [2, 1]),
        (0.5, 8, 1, 8, [1]),
        (None, 8, 2, 8, [4, 2, 1]),
        (None, 2, 4, 2, [1]),
        (None, 8, 1, 4, [4, 2, 1]),
    ],
)
def test_threads_are_as_many_as_the_process_can_have_or_fewer(quota, n_cpus, n_sharing, n_torch, possible, monkeypatch):
    class Machine:
        def under_quota(self, n):
            return n if quota is None else max(1, min(n, int(quota)))

    monkeypatch.setattr(calibration, "read_machine", lambda n_gpu: Machine())
    monkeypatch.setattr(calibration, "allowed_cpus", lambda: list(range(n_cpus)))
    with torch_with(n_torch, monkeypatch):
        assert possible_threads(n_sharing) == possible


def test_the_users_number_of_threads_wins(monkeypatch):
    with torch_with(4, monkeypatch) as set_to:
        assert not threads_are_said({}) and threads_are_said(dict(master_torch_threads=4))
        set_to.append(2)
        assert threads_are_said({}), "by torch.set_num_threads(2)"
        set_to.append(4)
        calibration.use_threads(1)
        assert not threads_are_said({}), "1 is ours"
        calibration.forget_threads()
        assert set_to[-1] == 4
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
        assert threads_are_said({})


@pytest.mark.parametrize(
    "seed, busy, n_threads, n_later", [(3, 0.0, 2, 2), (3, 2.8, 4, 4), (None, 0.0, 2, 2), (None, 0.8, 3, 2), (None, 3.9, 1, 2)]
)
def test_load_changes_only_runs_that_need_not_repeat(seed, busy, n_threads, n_later, monkeypatch, tmp_path):
    """Others keep the default, for themselves and for later ones."""

    class Machine:
        def under_quota(self, n):
            return n

    monkeypatch.setattr(calibration, "read_machine", lambda n_gpu: Machine())
    monkeypatch.setattr(calibration, "allowed_cpus", lambda: list(range(4)))
    answering(monkeypatch, 1)  # Half of the threads.
    with torch_with(4, monkeypatch) as set_to:
        for now, expected, directory in ((busy, n_threads, tmp_path / "a"), (0.0, n_later, tmp_path / "b")):
            monkeypatch.setattr(calibration, "busy_processors", lambda now=now: now)
            runner = build(affinity=dict(workers_cpus=[0]), seed=seed, n_steps=256)
            trained(directory, runner)
            assert runner.choices[THREADS] == expected == recorded(directory)[THREADS] == set_to[-1]


def test_later_runs_in_a_process_do_not_have_the_threads_of_earlier_ones(monkeypatch, tmp_path):
    answering(monkeypatch, -1)
    with torch_with(2, monkeypatch) as set_to:
        trained(tmp_path / "a", build(affinity={}, n_steps=256))
        assert set_to[-1] == 1
        trained(tmp_path / "b", build(affinity={}, calibrate=False, n_steps=256))
        assert set_to[-1] == 2


@full
def test_a_resumed_run_has_the_threads_of_its_snapshot_unless_the_user_says_others(monkeypatch, tmp_path):
    answering(monkeypatch, -1)
    with torch_with(2, monkeypatch) as set_to:
        with pytest.raises(Killed):
            trained(tmp_path / "a", build(Stopping, affinity={}))
        answering(monkeypatch, 0)
        trained(tmp_path / "b", build(affinity={}, calibrate=None, resume_from=tmp_path / "a" / "run_0"))
        assert set_to[-1] == 1
        trained(tmp_path / "c", build(affinity=dict(master_torch_threads=2), calibrate=None, resume_from=tmp_path / "a" / "run_0"))
        assert set_to[-1] == 2


def test_the_affinitys_threads_measure_even_if_an_earlier_run_chose_as_many(monkeypatch, tmp_path):
    answering(monkeypatch, -1)
    with torch_with(2, monkeypatch) as set_to:
        trained(tmp_path / "a", build(affinity={}, n_steps=256))
        assert set_to[-1] == 1, "chosen"
        threads = []
        monkeypatch.setattr(minibatch_rl, "calibrate", lambda *args, **kwargs: threads.append(set_to[-1]) or {})
        trained(tmp_path / "b", build(affinity=dict(master_torch_threads=1), n_steps=256))
        assert threads == [1]
