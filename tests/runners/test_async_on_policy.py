"""Asynchronous training without replay: each batch once, in order, whole, with a bounded and known lag, and with an end."""

import os
import resource
import signal
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from runners.test_async_rl import SAMPLERS, B, NiceTrajInfo, T, build, column, kill_when_running, train
from tiers import full, processes, thinned

from rlpyt.agents.pg.mlp import AlternatingMlpLstmAgent, MlpFfAgent, MlpLstmAgent
from rlpyt.algos.pg.appo import Appo
from rlpyt.algos.pg.impala import Impala
from rlpyt.algos.pg.ppo import PPO
from rlpyt.runners.async_rl import AsyncRlEval, _Direct
from rlpyt.samplers.collections import BatchSpec
from rlpyt.samplers.workers import WorkerError

pytestmark = [processes, pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_is_left_behind")]


def watch(AlgoCls, seconds=0.0, **settings):
    """An algorithm that notes the ends of its batches, and takes its time."""

    class Watched(AlgoCls):
        def optimize_agent(self, itr, samples, sampler_itr=None):
            env = samples.env
            self.seen.append((itr, env.observation[0].clone(), env.next_observation[-1].clone(), self.policy_lag))
            time.sleep(seconds)
            result = super().optimize_agent(itr, samples, sampler_itr)
            assert torch.equal(env.observation[0], self.seen[-1][1]) and torch.equal(env.next_observation[-1], self.seen[-1][2])
            return result

    algo = Watched(**settings)
    algo.seen = []
    return algo


def on_policy(sampler="serial", algo=None, **settings):
    recurrent = AlternatingMlpLstmAgent if sampler in ("alternating", "no overlap") else MlpLstmAgent
    agent = recurrent() if settings.pop("recurrent", False) else MlpFfAgent()
    return build(sampler, algo=algo or Impala(), agent=agent, **settings)


# How far sampling is ahead is a matter of the runner, not of the sampler: "serial" has all combinations, others the least and the most.
AHEAD = [
    *(("serial", n, ahead) for n in (1, 2) for ahead in (1, 3)),
    *((name, n, ahead) for name in SAMPLERS if name != "serial" for n, ahead in ((1, 1), (2, 3))),
]


@pytest.mark.parametrize("sampler, n_sampling, ahead", thinned(AHEAD, quick=[("serial", 2, 3)]))
def test_every_batch_is_trained_on_once_in_order_and_nothing_overwrites_it(sampler, n_sampling, ahead, tmp_path):
    """Each batch begins with the observations after the previous one."""
    algo = watch(Impala, seconds=0.01)
    runner = on_policy(sampler, algo, n_sampling=n_sampling, max_batches_ahead=ahead)
    table = train(runner, tmp_path)
    assert [itr for itr, *_ in algo.seen] == list(range(40)) and runner.n_copied == runner.n_itr == 40
    for (_, _, after, _), (_, first, _, _) in zip(algo.seen, algo.seen[1:]):
        assert torch.equal(after, first)
    lags = np.array([lag for *_, lag in algo.seen])
    assert lags.min() >= 0 and 0 < lags.max() <= ahead
    assert column(table, "PolicyLagMax") == [max(lags[i : i + 10]) for i in range(0, 40, 10)]
    assert column(table, "PolicyLagAverage") == pytest.approx([lags[i : i + 10].mean() for i in range(0, 40, 10)])
    assert column(table, "CumSteps") == [200, 400, 600, 800] and column(table, "CumUpdates") == [10, 20, 30, 40]
    assert column(table, "SamplerIteration") == column(table, "Iteration") == [9, 19, 29, 39]


@full
@pytest.mark.parametrize(
    "sampler, AlgoCls",
    thinned([*((name, Impala) for name in SAMPLERS), ("cpu", Appo), ("alternating", Appo)], quick=[("cpu", Appo)]),
)
def test_recurrent_agents_train_too(sampler, AlgoCls, tmp_path):
    settings = dict(epochs=2, minibatches=2) if AlgoCls is Appo else {}
    runner = on_policy(sampler, AlgoCls(**settings), recurrent=True, n_steps=400)
    table = train(runner, tmp_path)
    assert column(table, "CumUpdates")[-1] == 20 * (4 if AlgoCls is Appo else 1)
    assert all(np.isfinite(float(row["lossAverage"])) for row in table)


@full
def test_with_evaluation_rows_are_those_of_other_runs(tmp_path):
    runner = on_policy(RunnerCls=AsyncRlEval, n_steps=400)
    table = train(runner, tmp_path)
    assert column(table, "CumSteps") == [0, 200, 400] and column(table, "TrajsInEval") == [4, 4, 4]
    assert np.isnan(column(table, "PolicyLagMax")[0]) and column(table, "PolicyLagMax")[-1] <= 1


@pytest.mark.parametrize("n_sampling", thinned([1, 2], quick=[2]))
def test_several_optimizers_share_out_each_batch(n_sampling, tmp_path):
    runner = on_policy(algo=Appo(minibatches=2, epochs=2), n_optimizers=2, n_sampling=n_sampling, n_steps=400)
    table = train(runner, tmp_path)
    assert column(table, "CumSteps")[-1] == 400 and column(table, "CumUpdates")[-1] == 20 * 4
    assert runner.algo.batch_spec == BatchSpec(T, B // 2)
    assert column(table, "CumReplayRatio")[-1] == 2  # Two epochs over all columns.


def test_sampling_has_the_usual_priority_since_it_waits_for_training(tmp_path):
    runner = on_policy(n_steps=200)
    runner.sampler.TrajInfoCls = NiceTrajInfo
    table = train(runner, tmp_path)
    assert {float(row[name]) for row in table for name in ("NicenessMin", "NicenessMax")} == {os.getpriority(os.PRIO_PROCESS, 0)}


@pytest.mark.parametrize("rank", [0, 1])
def test_an_optimizer_gets_its_columns_the_lag_and_which_columns_restarted(rank):
    batches = [np.arange(T * B).reshape(T, B) + 100 * i for i in range(3)]
    restarted = np.zeros((3, B), bool)
    restarted[2, [0, 3]] = True
    feed = _Direct(batches, BatchSpec(T, B), True, None, n_itr=7, world_size=2, restarted=restarted)
    algo = SimpleNamespace(initialize=lambda **kwargs: vars(algo).update(kwargs), optimize_agent=lambda itr, samples: (itr, samples))
    told = []
    algo.restarted = told.extend
    feed.start(algo, agent=None, rank=rank)
    itr, samples = feed.optimize(algo, 3, 5, lag=2)
    assert (itr, algo.policy_lag, algo.rank, algo.world_size, algo.n_itr, algo.batch_spec) == (5, 2, rank, 2, 7, (T, B // 2))
    np.testing.assert_array_equal(samples, batches[2][:, 2 * rank : 2 * rank + 2])
    assert told == [[0], [1]][rank]


@full
def test_environments_of_a_resumed_run_have_restarted_before_its_first_batch(tmp_path):
    train(on_policy(n_steps=200), tmp_path, snapshot_mode="last")
    told = []
    resumed = on_policy(algo=(algo := Impala()), n_steps=400, resume_from=tmp_path / "run_0")
    algo.restarted = lambda columns: told.append((resumed.n_copied, columns))
    train(resumed, tmp_path, snapshot_mode="last")
    assert told == [(10, list(range(B)))]


# --- Open files -------------------------------------------------------------------------------------------------------
@pytest.fixture
def few_files():
    """Let this process open no more than 150 files beyond those that are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + 150, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_batches_ahead_open_as_many_files_as_the_system_allows(few_files, tmp_path):
    assert len(train(on_policy(n_steps=200, max_batches_ahead=10), tmp_path)) == 1


def test_a_run_that_may_not_open_enough_files_says_so(few_files, monkeypatch):
    monkeypatch.setattr(resource, "setrlimit", lambda *args: None)  # As if the limit is the highest possible one.
    with pytest.raises(OSError, match=r"This process may open .* files, and needs more.*\(ulimit -n\).*max_batches_ahead"):
        on_policy(max_batches_ahead=10).train()


# --- Ends -------------------------------------------------------------------------------------------------------------
def test_a_run_that_is_solved_ends_although_batches_have_begun(tmp_path):
    runner = on_policy(algo=watch(Impala, seconds=0.01), n_sampling=2, max_batches_ahead=3, stop_return=1.0, log_traj_window=2)
    table = train(runner, tmp_path)
    assert runner.stop_reason.startswith("Solved") and column(table, "CumSteps")[-1] < 800
    assert len(runner.algo.seen) == (runner.sampler_itr + 1)  # What began afterwards is not trained on.


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_signal_lets_the_run_train_on_what_has_begun_and_save(seconds, tmp_path, monkeypatch):
    """Also if one optimization takes longer than sampling has time to end."""
    monkeypatch.setattr("rlpyt.utils.interrupt.PATIENCE", 0.5 if seconds else 4.0)
    algo = watch(Impala, 0.05 if seconds else 0.0)  # So that sampling is ahead.
    runner = on_policy(algo=algo, n_steps=10**8, max_batches_ahead=2)
    optimize = algo.optimize_agent

    def interrupting(itr, samples, sampler_itr=None):
        if itr == 25:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(seconds)
        return optimize(itr, samples, sampler_itr)

    algo.optimize_agent = interrupting
    with pytest.raises(SystemExit):
        train(runner, tmp_path, snapshot_mode="last")
    assert len(algo.seen) == runner.n_copied == runner._lines.n_batches[0] and 26 <= runner.n_copied <= 29
    snapshot = torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)
    assert snapshot["cum_steps"] == runner.n_copied * T * B and snapshot["cum_updates"] == runner.n_copied


@pytest.mark.parametrize("who, name", thinned([(0, "ampling process 0 of 2"), (2, "ptimizer 1 of 2")], quick=[(2, "ptimizer 1 of 2")]))
def test_a_process_that_is_killed_ends_the_run_and_is_named(who, name):
    runner = on_policy(n_sampling=2, n_optimizers=2, n_steps=10**8)
    kill_when_running(runner, lambda pool: pool.processes[who].pid)
    with pytest.raises(WorkerError, match=f"{name}, pid .*, was killed by SIGKILL"):
        runner.train()


@full
def test_a_resumed_run_goes_on_counting_with_the_state_of_the_algorithm(tmp_path):
    def make(**settings):
        algo = watch(Appo, minibatches=2, normalize_reward=True, lr_schedule="adaptive")
        return on_policy(algo=algo, **settings)

    first = make(n_steps=400)
    before = train(first, tmp_path, snapshot_mode="last")
    state = first.algo.training_state()
    resumed = make(n_steps=800, resume_from=tmp_path / "run_0")
    seen, load = [], resumed.algo.load_training_state
    resumed.algo.load_training_state = lambda state: (load(state), seen.append(resumed.algo.training_state()))
    table = train(resumed, tmp_path, snapshot_mode="last")
    assert seen == [state]
    assert table[: len(before)] == before and column(table, "CumSteps") == [200, 400, 600, 800]
    assert [itr for itr, *_ in resumed.algo.seen] == list(range(20, 40))
    assert column(table, "CumUpdates") == [80, 160, 240, 320]


@full
@pytest.mark.parametrize("sampler", ["serial", "gpu"])
def test_processes_may_be_spawned(sampler, tmp_path):
    runner = on_policy(sampler, algo=Impala(), start_method="spawn", n_steps=400, n_optimizers=2)
    assert column(train(runner, tmp_path), "CumUpdates") == [10, 20]


# --- Misuse -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(algo=PPO(), agent=MlpFfAgent()), r"PPO learns from the batch just sampled.*Impala \(in place of A2C\) and Appo"),
        (dict(max_batches_ahead=0), "max_batches_ahead=0 is not possible"),
        (dict(algo=Impala(), agent=MlpFfAgent(), max_batches_ahead=0), "max_batches_ahead=0 is not possible"),
        (dict(algo=Impala(), agent=MlpFfAgent(), n_optimizers=3), "batch_B=4 columns cannot be shared out evenly among 3 optimizers"),
    ],
)
def test_what_does_not_suit_is_refused_before_anything_starts(settings, message):
    with pytest.raises(ValueError, match=message):
        build(**settings)
