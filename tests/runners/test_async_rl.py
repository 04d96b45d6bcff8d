"""Asynchronous training: nothing lost, nothing twice, within the replay ratio, with new parameters, and with an end."""

import csv
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces
from tiers import full, processes, thinned

from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.ensemble_sac_agent import DiscreteSacAgent, EnsembleSacAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_lstm_agent import AlternatingSacLstmAgent, SacLstmAgent
from rlpyt.agents.qpg.td3_lstm_agent import Td3LstmAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.impala import Impala
from rlpyt.algos.qpg.ensemble_sac import DiscreteSAC, EnsembleSAC
from rlpyt.algos.qpg.recurrent import RecurrentSAC, RecurrentTD3
from rlpyt.algos.qpg.sac import SAC
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.envs.gym import make
from rlpyt.runners import async_rl
from rlpyt.runners.async_rl import NICENESS, AsyncRl, AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.async_.alternating_sampler import AsyncAlternatingSampler, AsyncNoOverlapAlternatingSampler
from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
from rlpyt.samplers.async_.gpu_sampler import AsyncGpuSampler
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.collections import TrajInfo
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.samplers.workers import WorkerError
from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.launching.sweep import PAUSE_AT
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.logging.runs import RECORD, read_params, replay_lost_at
from rlpyt.utils.logging.store import snapshot_files
from rlpyt.utils.processors import allowed_cpus

pytestmark = [processes, pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_is_left_behind")]
SAMPLERS = {
    "serial": AsyncSerialSampler,
    "cpu": AsyncCpuSampler,
    "gpu": AsyncGpuSampler,
    "alternating": AsyncAlternatingSampler,
    "no overlap": AsyncNoOverlapAlternatingSampler,
}
every_sampler = pytest.mark.parametrize("sampler", thinned(SAMPLERS, quick=["serial", "cpu"]))
B, T = 4, 5


class SlowEnv:
    """CartPole with steps that take some milliseconds."""

    def __new__(cls, seconds=0.002, **kwargs):
        env = make(**kwargs)
        step = env.step_into

        def step_into(action, observation):
            time.sleep(seconds)
            return step(action, observation)

        env.step_into = step_into
        return env


def dqn(**settings):
    kwargs = dict(min_steps_learn=100, replay_size=2000, batch_size=16, replay_ratio=2, eps_steps=200, target_update_interval=20)
    return DQN(**{**kwargs, **settings})


def build(
    sampler="serial", RunnerCls=AsyncRl, algo=None, agent=None, EnvCls=make, n_optimizers=1, n_sampling=1, n_steps=800, env=None,
    start_method=None, **settings,
):  # fmt: skip
    evaluation = dict(eval_n_envs=2, eval_max_steps=400, eval_max_trajectories=4) if RunnerCls is AsyncRlEval else {}
    SamplerCls = SAMPLERS.get(sampler, SerialSampler)
    is_async = SamplerCls is not SerialSampler
    affinity = dict(
        optimizer=[dict(torch_threads=1, set_affinity=False)] * n_optimizers,
        sampler=[dict(workers_cpus=[0, 1], set_affinity=False)] * n_sampling,
    )
    return RunnerCls(
        algo=algo or dqn(),
        agent=agent or MlpDqnAgent(),
        sampler=SamplerCls(
            EnvCls, env or dict(id="CartPole-v1"), batch_T=T, batch_B=B, max_decorrelation_steps=10, start_method=start_method,
            **evaluation,
        ),
        n_steps=n_steps,
        **{**dict(log_interval_steps=200, seed=5, affinity=affinity if is_async else dict(master_torch_threads=1)), **settings},
    )  # fmt: skip


def train(runner, log_dir, **kwargs):
    with logger_context(str(log_dir), 0, "test", **kwargs):
        runner.train()
    with open(Path(log_dir) / "run_0" / "progress.csv") as file:
        return list(csv.DictReader(file))


def column(table, name):
    return [float(row[f"Diagnostics/{name}"]) for row in table]


# --- Runs -------------------------------------------------------------------------------------------------------------
# How a run logs without evaluation does not depend on the sampler.
LOGGED = [*((name, AsyncRlEval) for name in SAMPLERS), ("serial", AsyncRl), ("cpu", AsyncRl)]


@pytest.mark.parametrize("sampler, RunnerCls", thinned(LOGGED, quick=[("cpu", AsyncRlEval)]))
def test_a_run_logs_as_others_do(sampler, RunnerCls, tmp_path):
    runner = build(sampler, RunnerCls, EnvCls=SlowEnv)
    table = train(runner, tmp_path)
    first = RunnerCls is AsyncRlEval
    assert column(table, "CumSteps") == [0] * first + [200, 400, 600, 800]
    assert column(table, "SamplerIteration")[first:] == [9, 19, 29, 39]
    assert runner.n_copied == runner.n_itr == 40
    updates, versions = column(table, "CumUpdates"), column(table, "ParametersVersion")
    assert updates == sorted(updates) and updates[-1] > 0
    assert versions == sorted(versions) and 1 <= versions[-1] <= runner.opt_itr + 1
    assert all(0 <= value <= 1 for value in column(table, "OptThrottle"))
    for name in ("SamplingTime (s)", "OptimizationTime (s)"):
        assert sum(column(table, name)) > 0
    if first:
        assert column(table, "TrajsInEval")[0] == column(table, "TrajsInEval")[-1] == 4
        assert column(table, "EvaluationTime (s)")[-1] > 0


@full
@pytest.mark.parametrize("sampler", ["cpu", "gpu"])
def test_processes_may_be_spawned(sampler, tmp_path):
    table = train(build(sampler, start_method="spawn", n_steps=400, EnvCls=SlowEnv), tmp_path)
    assert column(table, "CumSteps") == [200, 400] and column(table, "ParametersVersion")[-1] >= 1


@pytest.mark.parametrize("n_sampling", thinned([1, 2], quick=[2]))
def test_several_optimizers(n_sampling, tmp_path):
    runner = build(EnvCls=SlowEnv, n_optimizers=2, n_sampling=n_sampling, algo=dqn(updates_per_sync=2))
    table = train(runner, tmp_path)
    assert column(table, "CumSteps")[-1] == 800 and column(table, "CumUpdates")[-1] > 0
    assert runner.algo.update_counter == 2 * runner.opt_itr
    assert column(table, "CumReplayRatio")[-1] == pytest.approx(column(table, "CumUpdates")[-1] * 2 * 16 / 800)


# --- Samples ----------------------------------------------------------------------------------------------------------
def greedy(AgentCls):
    return AgentCls(eps_init=0.0, eps_final=0.0)


# Who samples half of the columns does with them what one process does with all: one process is tested with two samplers only.
@pytest.mark.parametrize("sampler, n_sampling", thinned([*((name, 2) for name in SAMPLERS), ("serial", 1), ("gpu", 1)], quick=[("cpu", 2)]))
def test_no_batch_is_lost_or_doubled(sampler, n_sampling, tmp_path):
    """With parameters that do not change, and actions that chance has no part in, it is clear what must be in the replay buffer."""
    kinds = dict(algo=lambda: dqn(learning_rate=0.0, prioritized_replay=True), agent=lambda: greedy(MlpDqnAgent))
    ours, theirs = (
        build(kind, RunnerCls, algo=kinds["algo"](), agent=kinds["agent"](), n_sampling=n)
        for kind, RunnerCls, n in ((sampler, AsyncRl, n_sampling), ("synchronous", MinibatchRl, 1))
    )
    train(ours, tmp_path / "ours")
    train(theirs, tmp_path / "theirs")
    assert ours.algo.replay_buffer.written == theirs.algo.replay_buffer.written == 40 * T
    assert_same(ours.algo.replay_buffer.samples, theirs.algo.replay_buffer.samples, 40 * T)


@full
@pytest.mark.parametrize("sampler", thinned(SAMPLERS, quick=["serial"]))
def test_recurrent_states_of_all_networks_are_those_of_a_synchronous_run(sampler, tmp_path):
    """Without noise and learning, so that chance has no part in actions; the last run learns as well."""
    states = []
    network = dict(lstm_size=6, hidden_sizes=[5], head_size=[5])
    runs = ((sampler, AsyncRl, 10**6), ("synchronous", MinibatchRl, 10**6), (sampler, AsyncRl, 100))
    for i, (kind, RunnerCls, min_steps_learn) in enumerate(runs):
        is_alternating = kind in ("alternating", "no overlap")
        torch.manual_seed(0)
        agent = (AlternatingSacLstmAgent if is_alternating else SacLstmAgent)(
            model_kwargs=network, q_model_kwargs=network, action_squash=2.0, pretrain_std=0.0
        )
        algo = RecurrentSAC(
            batch_T=5, warmup_T=5, batch_B=4, store_rnn_state_interval=5, min_steps_learn=min_steps_learn, replay_size=2000, replay_ratio=1,
        )  # fmt: skip
        # Beside busy processes, a fixed number of steps may take too long, or end before the first updates. So updates end the run.
        enough = dict(n_steps=10**6, hooks=[lambda runner, row: runner.algo.update_counter > 5])
        length = dict(n_steps=800) if min_steps_learn > 100 else enough
        runner = build(kind, RunnerCls, algo=algo, agent=agent, env=dict(id="Pendulum-v1"), **length)
        train(runner, tmp_path / str(i))
        states.append([np.array(leaf) for leaf in buffer_leaves(runner.algo.replay_buffer.samples_prev_rnn_state)])
    assert len(states[0]) == 6 and runner.algo.update_counter > 5
    assert all(leaf.any() for leaf in states[2])  # It sampled with states while it learned.
    for a, b in zip(states[0], states[1], strict=True):
        assert a.any()
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)  # Batches of another size round otherwise.


SMALL = dict(min_steps_learn=100, replay_size=2000, batch_size=16, replay_ratio=2)
ALGORITHMS = {
    "tqc": lambda: (
        EnsembleSacAgent(n_critics=3, n_quantiles=5, action_squash=2.0),
        EnsembleSAC(policy_value="mean", **SMALL),
    ),
    "crossq": lambda: (
        EnsembleSacAgent(target_networks=False, q_model_kwargs=dict(batch_renorm=True), action_squash=2.0),
        EnsembleSAC(**SMALL),
    ),
    "discrete sac": lambda: (DiscreteSacAgent(), DiscreteSAC(**SMALL)),
    "prioritized m-iqn": lambda: (MlpIqnAgent(), QuantileDQN(munchausen=True, prioritized_replay=True, **SMALL)),
    "td3 with memory": lambda: (
        Td3LstmAgent(model_kwargs=dict(lstm_size=6), q_model_kwargs=dict(lstm_size=6)),
        RecurrentTD3(batch_T=5, warmup_T=5, batch_B=4, store_rnn_state_interval=5, min_steps_learn=100, replay_size=2000, replay_ratio=1),
    ),
}


@full
@pytest.mark.parametrize("name", thinned(list(ALGORITHMS), quick=["discrete sac"]))
def test_algorithms_with_ensembles_quantiles_or_memory_train(name, tmp_path):
    agent, algo = ALGORITHMS[name]()
    env = dict(id="CartPole-v1" if name in ("discrete sac", "prioritized m-iqn") else "Pendulum-v1")
    enough = dict(n_steps=10**6, hooks=[lambda runner, row: runner.algo.update_counter > 20])
    runner = build("cpu", algo=algo, agent=agent, env=env, **enough)
    before = None

    def remember(agent, send=agent.send_shared_memory):
        nonlocal before
        before = before or [parameter.detach().clone() for parameter in agent.parameters()]
        send()

    agent.send_shared_memory = lambda: remember(agent)
    train(runner, tmp_path)
    after = [parameter.detach() for parameter in agent.parameters()]
    assert runner.algo.update_counter > 20 and all(parameter.isfinite().all() for parameter in after)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def assert_same(a, b, n):
    for x, y in zip(buffer_leaves(a), buffer_leaves(b), strict=True):
        assert x[:n].any() or not y[:n].any()
        np.testing.assert_array_equal(x[:n], y[:n])


@full
@pytest.mark.parametrize("sampler", thinned(["serial", "cpu"], quick=["serial"]))
def test_input_priorities_are_those_of_a_synchronous_run(sampler, tmp_path):
    trees = []
    for kind, RunnerCls in ((sampler, AsyncRl), ("synchronous", MinibatchRl)):
        algo = R2D1(
            batch_T=5, warmup_T=5, batch_B=4, store_rnn_state_interval=5, min_steps_learn=10**6, replay_size=2000, n_step_return=2,
            prioritized_replay=True, input_priorities=True, input_priority_shift=1,
        )  # fmt: skip
        runner = build(kind, RunnerCls, algo=algo, agent=greedy(MlpR2d1Agent))
        train(runner, tmp_path / RunnerCls.__name__)
        trees.append(np.array(runner.algo.replay_buffer.priority_tree.tree))
    assert len(set(trees[0].tolist())) > 20
    np.testing.assert_allclose(trees[0], trees[1], rtol=1e-6)  # Batches of another size round otherwise.


@pytest.mark.parametrize("n_optimizers", thinned([1, 2], quick=[1]))
@pytest.mark.parametrize("replay_ratio", thinned([0.5, 4], quick=[0.5]))
def test_the_replay_ratio_is_an_upper_bound_and_reached_by_who_is_fast(replay_ratio, n_optimizers, tmp_path):
    env = dict(id="CartPole-v1", seconds=0.0015 * replay_ratio * n_optimizers)  # Much slower than training, also on a busy machine.
    algo = dqn(replay_ratio=replay_ratio, batch_size=8)
    runner = build(EnvCls=SlowEnv, env=env, algo=algo, n_optimizers=n_optimizers, n_steps=600, log_interval_steps=100)
    seen, optimize = [], runner.optimize

    def watched():
        n_copied = runner.n_copied
        optimize()
        seen.append((n_copied, runner.algo.update_counter))

    runner.optimize = watched
    table = train(runner, tmp_path)
    per_batch = replay_ratio * T * B / (8 * n_optimizers)
    first = runner.algo.min_itr_learn
    assert first == 5
    for n_copied, updates in seen:
        assert n_copied > first and updates <= (n_copied - first) * per_batch
    assert seen[-1][1] >= (runner.n_itr - first - 2) * per_batch - 1
    assert min(column(table, "OptThrottle")[2:]) < 0.9 and sum(column(table, "WaitingTime (s)")) > 0.1


def slow_training(ahead=1, replay_ratio=4, after_update=lambda runner: None, **settings):
    """A run of 25 batches in which each update takes 20 ms longer. With a ratio of 4, all optimizers together make 5 for each batch."""
    algo = settings.pop("algo", None) or dqn(replay_ratio=replay_ratio)
    runner = build(algo=algo, max_batches_ahead=ahead, **{**dict(n_steps=500, log_interval_steps=100), **settings})
    optimize = runner.optimize

    def slow():
        optimize()
        time.sleep(0.02)
        after_update(runner)

    runner.optimize = slow
    return runner


FAR = [("serial", 1, 1, 1, 4), ("cpu", 2, 1, 3, 4), ("serial", 2, 2, 1, 4), ("serial", 1, 1, 2, 0.5)]


@pytest.mark.parametrize("sampler, n_sampling, n_optimizers, ahead, replay_ratio", thinned(FAR, quick=FAR[3:]))
def test_sampling_waits_if_it_is_as_far_ahead_of_training_as_it_may_be(sampler, n_sampling, n_optimizers, ahead, replay_ratio, tmp_path):
    """So the replay ratio is reached although training is slow."""
    first, n_begun = 5, []
    per_update = 16 * n_optimizers / (T * B * replay_ratio)  # batches

    def after_update(runner):
        allowed = min(first + math.ceil((runner.algo.update_counter + 1) * per_update) + ahead, runner.n_itr)
        while runner._lines.n_begun[0] < allowed:
            time.sleep(0.001)
        time.sleep(0.01)
        n_begun.append((int(runner._lines.n_begun[0]), allowed))

    runner = slow_training(
        ahead, replay_ratio, after_update, sampler=sampler, RunnerCls=AsyncRlEval, n_sampling=n_sampling, n_optimizers=n_optimizers
    )
    table = train(runner, tmp_path)
    assert all(begun == allowed for begun, allowed in n_begun)
    assert len(n_begun) == runner.algo.update_counter >= (25 - first - ahead - math.ceil(per_update)) / per_update - 1
    assert column(table, "CumSteps") == [0, 100, 200, 300, 400, 500]
    assert runner.n_copied == runner.n_itr == 25 and runner.min_itr_learn == first


@pytest.mark.parametrize(
    "way, n_sampling", thinned([("signal", 1), ("signal", 2), ("hook", 1), ("hook", 2)], quick=[("signal", 2), ("hook", 1)])
)
def test_a_run_that_ends_while_sampling_waits_for_training_wakes_it(way, n_sampling, tmp_path):
    def after_update(runner):
        if way == "signal" and runner.algo.update_counter == 20:
            os.kill(os.getpid(), signal.SIGINT)
            deadline = time.monotonic() + 30
            while runner._n_sampling:
                assert time.monotonic() < deadline, "Sampling still waits for the next update."
                runner._take_in()
                time.sleep(0.01)

    def hook(runner, row):
        return way == "hook" and row["Diagnostics/CumSteps"] >= 200

    runner = slow_training(after_update=after_update, n_sampling=n_sampling, hooks=[hook])
    with pytest.raises(SystemExit) if way == "signal" else nullcontext():
        train(runner, tmp_path, snapshot_mode="last")
    assert runner._ended and runner.n_copied == runner._lines.n_batches[0] == runner._lines.n_begun[0] < 25
    steps = torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)["cum_steps"]
    assert steps == (runner.n_copied * T * B if way == "signal" else 200)


@full
def test_a_resumed_run_keeps_to_the_replay_ratio(tmp_path):
    train(slow_training(save_replay=True), tmp_path, snapshot_mode="last")
    resumed = slow_training(save_replay=True, n_steps=800, resume_from=tmp_path / "run_0")
    table = train(resumed, tmp_path, snapshot_mode="last")
    assert column(table, "CumSteps") == list(range(100, 900, 100))
    assert 0 <= (40 - 5) * 5 - resumed.algo.update_counter <= 10


@full
def test_a_run_that_lagged_behind_the_ratio_keeps_to_it_from_where_it_is_resumed(tmp_path):
    def wait_until_sampling_has_ended(runner):
        while runner.n_copied < runner.n_itr:
            runner._take_in()
            time.sleep(0.01)

    lagging = slow_training(ahead=None, save_replay=True, after_update=wait_until_sampling_has_ended)
    before = train(lagging, tmp_path, snapshot_mode="last")
    n_updates = column(before, "CumUpdates")[-1]
    assert n_updates < (25 - 5) * 5 / 2
    resumed = slow_training(save_replay=True, n_steps=700, resume_from=tmp_path / "run_0")
    table = train(resumed, tmp_path, snapshot_mode="last")
    assert column(table, "CumSteps") == list(range(100, 800, 100))
    assert 0 <= 10 * 5 - (resumed.algo.update_counter - n_updates) <= 10


@full
def test_a_run_resumed_without_its_replay_buffer_samples_again_before_it_trains(tmp_path):
    """Here an update needs the steps of one batch, so there is nothing that keeps it from training but the empty buffer."""

    def make(**settings):
        return slow_training(algo=dqn(min_steps_learn=0, replay_ratio=4), **settings)

    train(make(n_steps=300), tmp_path, snapshot_mode="last")
    resumed = make(n_steps=500, resume_from=tmp_path / "run_0")
    assert column(train(resumed, tmp_path, snapshot_mode="last"), "CumSteps") == [100, 200, 300, 400, 500]
    assert replay_lost_at(read_params(tmp_path / "run_0" / "params.json")[RECORD]) == [300]


class NiceTrajInfo(TrajInfo):
    """Tells the priority of the process that samples."""

    def terminate(self, observation):
        self.Niceness = os.getpriority(os.PRIO_PROCESS, 0)
        return self


@full
@pytest.mark.parametrize("own, ahead", [(False, None), (False, 2), (True, None)])
@pytest.mark.parametrize("sampler", thinned(["serial", "cpu"], quick=["serial"]))
def test_sampling_goes_second_where_it_shares_processors_with_training_but_does_not_wait_for_it(sampler, own, ahead, tmp_path):
    cpus = allowed_cpus()
    if own and len(cpus) < 2:
        pytest.skip("needs two processors")
    optimizer = dict(cpus=cpus[:1], torch_threads=1, set_affinity=own)
    affinity = dict(optimizer=[optimizer], sampler=dict(master_cpus=cpus[1:] or cpus, workers_cpus=cpus[1:2] or cpus, set_affinity=own))
    runner = build(sampler, affinity=affinity, max_batches_ahead=ahead)
    runner.sampler.TrajInfoCls = NiceTrajInfo
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        table = train(runner, tmp_path)
    finally:
        os.sched_setaffinity(0, cpus)
    expected = before if own or ahead else min(before + NICENESS, 19)
    assert {float(row[column]) for row in table for column in ("NicenessMin", "NicenessMax")} == {expected}
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


# --- Failures ---------------------------------------------------------------------------------------------------------
def kill_when_running(runner, choose):
    def kill():
        while runner._pool is None or getattr(runner, "opt_itr", 0) < 3:
            time.sleep(0.02)
        time.sleep(random.random() * 0.2)
        os.kill(choose(runner._pool), signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("sampler", thinned(["serial", "gpu"], quick=["serial"]))
@pytest.mark.parametrize(
    "who, name",
    thinned(
        [(0, "sampling process 0 of 2"), (1, "sampling process 1 of 2"), (2, "memory copier")],
        quick=[(1, "sampling process 1 of 2"), (2, "memory copier")],
    ),
)
def test_a_process_that_is_killed_ends_the_run_and_is_named(sampler, who, name):
    runner = build(sampler, n_sampling=2, n_steps=10**8)
    kill_when_running(runner, lambda pool: pool.processes[who].pid)
    with pytest.raises(WorkerError, match=f"{name[1:]}, pid .*, was killed by SIGKILL"):
        runner.train()


@full
def test_a_death_is_noticed_by_who_never_waits():
    runner = build(algo=dqn(replay_ratio=10**6), n_steps=10**8)
    kill_when_running(runner, lambda pool: pool.processes[0].pid)
    with pytest.raises(WorkerError, match="he sampling process, pid .*, was killed by SIGKILL"):
        runner.train()


@full
def test_an_optimizer_that_is_killed_ends_the_run_and_is_named():
    runner = build(n_optimizers=2, n_steps=10**8)
    kill_when_running(runner, lambda pool: pool.processes[-1].pid)
    with pytest.raises(WorkerError, match="Optimizer 1 of 2, pid .*, was killed by SIGKILL"):
        runner.train()


@full
@pytest.mark.parametrize("sampler", thinned(["cpu", "gpu", "alternating"], quick=["gpu"]))
def test_a_worker_of_the_sampler_that_is_killed_ends_the_run_and_is_named(sampler):
    runner = build(sampler, n_steps=10**8)
    kill_when_running(runner, lambda pool: psutil.Process(pool.processes[0].pid).children()[0].pid)
    with pytest.raises(WorkerError, match="(?s)Sampler worker . .*was killed by SIGKILL.*Raised by the sampling process"):
        runner.train()


class FailingEnv:
    """CartPole that breaks after some steps."""

    def __new__(cls, **kwargs):
        env, n_steps = make(**kwargs), [0]
        step = env.step_into

        def step_into(action, observation):
            n_steps[0] += 1
            if n_steps[0] > 60:
                raise ZeroDivisionError("the pole broke")
            return step(action, observation)

        env.step_into = step_into
        return env


@every_sampler
def test_what_an_environment_raises_is_what_one_sees(sampler):
    with pytest.raises(WorkerError, match="(?s)ZeroDivisionError: the pole broke.*This was in environment"):
        build(sampler, EnvCls=FailingEnv).train()


class FailingToStart:
    def __new__(cls, **kwargs):
        if FAIL[0]:
            raise OSError("no such game")
        FAIL[0] = True  # The first one is the example.
        return make(**kwargs)


FAIL = [False]


def test_failing_to_start_is_told():
    FAIL[0] = False
    with pytest.raises(WorkerError, match="(?s)OSError: no such game.*Raised by the sampling process.*while starting"):
        build(EnvCls=FailingToStart).train()


class FailingDqn(DQN):
    def samples_to_buffer(self, samples):
        raise ArithmeticError("planned failure")


def test_what_the_copier_raises_is_what_one_sees():
    with pytest.raises(WorkerError, match="(?s)ArithmeticError: planned failure.*Raised by the memory copier"):
        build(algo=FailingDqn(replay_size=2000)).train()


SCRIPT = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from runners.test_async_rl import AsyncRlEval, build, logger_context
with logger_context({log_dir!r}, 0, "test", snapshot_mode="last"):
    build({sampler!r}, AsyncRlEval, n_sampling=2, n_steps=10**8).train()
"""


def stop_between_snapshots(pid, run_dir):
    """Stop a process while it writes no file. What it has half written when it is killed, nobody can remove but the next run."""
    deadline = time.monotonic() + 30
    os.kill(pid, signal.SIGSTOP)
    while list(run_dir.rglob("*.atomic_tmp*")):
        assert time.monotonic() < deadline
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)


@pytest.mark.parametrize(
    "sampler, number",
    [
        pytest.param("serial", signal.SIGTERM, marks=full),
        *(pytest.param("alternating", number, marks=full) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)),
    ],
)
def test_a_run_that_is_told_to_end_saves_and_leaves_nothing_behind(sampler, number, tmp_path):
    tests = str(Path(__file__).parents[1])
    script = SCRIPT.format(tests=tests, root=str(Path(tests).parent), log_dir=str(tmp_path), sampler=sampler)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    table = tmp_path / "run_0" / "progress.csv"
    deadline = time.monotonic() + 60
    while not (table.exists() and len(table.read_text().splitlines()) > 5) and time.monotonic() < deadline:
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3
    if number == signal.SIGKILL:
        stop_between_snapshots(process.pid, tmp_path)
    os.kill(process.pid, number)
    output = process.communicate(timeout=60)[0].decode()
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number), output
    assert not psutil.wait_procs(family, timeout=10)[1]
    snapshot = torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)
    assert {"itr", "sampler_itr", "cum_steps", "cum_updates", "agent_state_dict", "optimizer_state_dict"} <= set(snapshot)
    if number != signal.SIGKILL:
        with open(table) as file:
            steps = column(list(csv.DictReader(file)), "CumSteps")
        assert steps[-1] == snapshot["cum_steps"] == (snapshot["sampler_itr"] + 1) * T * B


class InterruptedEnv(gym.Env):
    """Episodes of `length` steps with a reward of -1 each; SIGINT comes in the middle of an episode of the second evaluation."""

    observation_space, action_space = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
    n_resets = 0

    def __init__(self, length, signals_in=0):
        self.length, self.signals_in = length, signals_in

    def reset(self, seed=None, options=None):
        self.t, self.n_resets = 0, self.n_resets + 1
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        if (self.n_resets, self.t) == (self.signals_in, self.length // 2):
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(0.5)  # Until the signal has arrived.
        return np.zeros(3, np.float32), -1.0, self.t >= self.length, False, {}


def interrupted_in_evaluation(signals_in, **settings):
    """A run whose second evaluation a signal cuts short, when only the episodes of its first environment have ended."""
    runner = build(
        RunnerCls=AsyncRlEval, algo=Impala(), agent=MlpFfAgent(), EnvCls=InterruptedEnv, env=dict(length=5), n_steps=400, stop_return=-30.0,
        **settings,
    )  # fmt: skip
    runner.sampler.eval_env_kwargs = [dict(length=5), dict(length=60, signals_in=signals_in)]
    return runner


@full
def test_an_evaluation_that_a_signal_cuts_short_has_no_return_and_solves_nothing(tmp_path):
    with pytest.raises(SystemExit):
        train(interrupted_in_evaluation(signals_in=5), tmp_path, snapshot_mode="best")
    table = rows_of(tmp_path)
    assert column(table, "TrajsInEval")[:2] == [4, 0] and np.isnan(float(table[1]["ReturnAverage"]))
    best, last = (torch.load(tmp_path / "run_0" / f"{name}.pkl", weights_only=True) for name in ("best", "params"))
    assert best["cum_steps"] == 0 and last["cum_steps"] >= 200 and last["run"]["runner"]["score"] is None
    resumed = interrupted_in_evaluation(signals_in=0, resume_from=tmp_path / "run_0")
    assert column(train(resumed, tmp_path, snapshot_mode="best"), "CumSteps")[-1] == 400


@full
def test_an_evaluation_that_a_signal_cuts_short_leaves_a_run_of_a_search_as_it_was_at_its_last_row(tmp_path, monkeypatch):
    monkeypatch.setenv(PAUSE_AT, "300")
    with pytest.raises(SystemExit):
        train(interrupted_in_evaluation(signals_in=5), tmp_path, snapshot_mode="last")
    assert column(rows_of(tmp_path), "CumSteps") == [0]
    assert torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)["cum_steps"] == 0


class ImprovingEnv(InterruptedEnv):
    """Each episode is shorter than the one before; each step takes a millisecond."""

    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        self.length -= 1
        return super().reset(seed, options)

    def step(self, action):
        time.sleep(0.001)
        return super().step(action)


@full
def test_the_best_snapshot_has_the_parameters_that_were_evaluated(tmp_path, monkeypatch):
    evaluate = async_rl._evaluate

    def noting(sampler, lines, tells_parameters, itr):
        evaluation = evaluate(sampler, lines, tells_parameters, itr)
        torch.save(sampler.agent.model.state_dict(), tmp_path / f"evaluated_{itr}.pt")
        return evaluation

    monkeypatch.setattr(async_rl, "_evaluate", noting)
    algo = SAC(min_steps_learn=20, batch_size=4, replay_size=1000)  # With 64 updates per step, it trains all the time.
    runner = build(RunnerCls=AsyncRlEval, algo=algo, agent=SacAgent(), EnvCls=ImprovingEnv, env=dict(length=40), n_steps=400)
    returns = [float(row["ReturnAverage"]) for row in train(runner, tmp_path, snapshot_mode="best")]
    assert returns == sorted(set(returns))  # The last one is the best one.
    best, last = (torch.load(tmp_path / "run_0" / f"{name}.pkl", weights_only=True) for name in ("best", "params"))
    assert best["cum_steps"] == last["cum_steps"] == 400
    evaluated, trained = (snapshot["agent_state_dict"].pop("model") for snapshot in (best, last))
    same = partial(torch.testing.assert_close, rtol=0, atol=0)
    same(evaluated, torch.load(tmp_path / "evaluated_19.pt", weights_only=True))
    assert any((evaluated[name] != trained[name]).any() for name in trained)
    same(best["agent_state_dict"], last["agent_state_dict"])  # The other models are no older than the rest of the snapshot.


# --- Resume -----------------------------------------------------------------------------------------------------------
@full
@pytest.mark.parametrize("save_replay", [False, True])
def test_a_resumed_run_goes_on_counting(save_replay, tmp_path):
    first = build("cpu", AsyncRlEval, EnvCls=SlowEnv, save_replay=save_replay)
    before = train(first, tmp_path, snapshot_mode="last")
    resumed = build("cpu", AsyncRlEval, EnvCls=SlowEnv, save_replay=save_replay, resume_from=tmp_path / "run_0", n_steps=1400)
    table = train(resumed, tmp_path, snapshot_mode="last")
    assert table[: len(before)] == before
    assert column(table, "CumSteps") == [0, 200, 400, 600, 800, 1000, 1200, 1400]
    updates, snapshot = column(table, "CumUpdates"), torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)
    assert updates == sorted(updates) and updates[-1] > updates[4] == first.algo.update_counter
    assert snapshot["cum_updates"] == updates[-1] and snapshot["cum_steps"] == 1400
    n_rows = resumed.algo.replay_buffer.written
    assert n_rows == (1400 if save_replay else 600) // B


@full
def test_a_run_resumed_from_its_first_row_does_not_write_it_again(tmp_path):
    def make(**settings):
        return build(RunnerCls=AsyncRlEval, algo=Impala(), agent=MlpFfAgent(), n_steps=200, **settings)

    def stop(runner, row):
        return True

    before = train(make(hooks=[stop]), tmp_path, snapshot_mode="last")
    table = train(make(resume_from=tmp_path / "run_0"), tmp_path, snapshot_mode="last")
    assert table[:1] == before and column(table, "CumSteps") == [0, 200]


class NotingDqn(DQN):
    """Each rank writes the number of each call, and a random number, into a file."""

    def optimize_agent(self, itr, samples=None, sampler_itr=None):
        with open(self.directory / f"rank_{self.rank}", "a") as file:
            file.write(f"{itr} {float(torch.rand(()))}\n")
        return super().optimize_agent(itr, samples, sampler_itr)

    def calls(self, rank):
        """Return the numbers of the calls, and the random numbers."""
        lines = (self.directory / f"rank_{rank}").read_text().splitlines()
        return [int(line.split()[0]) for line in lines], {float(line.split()[1]) for line in lines}


@full
def test_all_optimizers_of_a_resumed_run_go_on_counting_their_calls_and_draw_other_random_numbers(tmp_path):
    def make(name, **settings):
        algo = NotingDqn(min_steps_learn=100, replay_size=2000, batch_size=16, replay_ratio=2)
        algo.directory = tmp_path / name
        algo.directory.mkdir()
        return build(algo=algo, n_optimizers=2, EnvCls=SlowEnv, **settings)

    first = make("first", n_steps=400)
    train(first, tmp_path, snapshot_mode="last")
    n_before = torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)["run"]["runner"]["opt_itr"]
    resumed = make("resumed", n_steps=600, resume_from=tmp_path / "run_0")
    train(resumed, tmp_path, snapshot_mode="last")
    for rank in (0, 1):
        (_, drawn_before), (calls, drawn) = first.algo.calls(rank), resumed.algo.calls(rank)
        assert calls == list(range(n_before, resumed.opt_itr)) and 0 < n_before < resumed.opt_itr
        assert rank == 0 or not drawn & drawn_before  # The first one continues, and draws again what came after the snapshot.
    assert not resumed.algo.calls(0)[1] & resumed.algo.calls(1)[1]


def test_a_run_that_is_resumed_for_fewer_steps_says_that_nothing_was_left_to_do(tmp_path):
    train(build(algo=Impala(), agent=MlpFfAgent(), n_steps=200), tmp_path, snapshot_mode="last")
    resumed = build(algo=Impala(), agent=MlpFfAgent(), n_steps=100, resume_from=tmp_path / "run_0")
    train(resumed, tmp_path, snapshot_mode="last")
    said = f"Nothing was left to do: the run was resumed after {resumed.diagnostics.cum_steps:,} steps, and n_steps=100 asks for no more."
    assert resumed.diagnostics.cum_steps >= 200 and said in (tmp_path / "run_0" / "debug.log").read_text()


def test_a_run_of_any_length_can_be_resumed(tmp_path):
    def make(**settings):
        return build(algo=Impala(), agent=MlpFfAgent(), **settings)

    train(make(n_steps=200), tmp_path, snapshot_mode="last")
    file = tmp_path / "run_0" / "params.pkl"
    torch.save(dict(torch.load(file, weights_only=True), cum_steps=3 * 10**8), file)
    resumed = make(n_steps=3 * 10**8 + 200, resume_from=tmp_path / "run_0")
    train(resumed, tmp_path, snapshot_mode="last")
    assert resumed.n_copied == resumed.n_itr == (3 * 10**8 + 200) // (T * B)


def atari(log_dir, n_steps, **settings):
    runner = build(
        algo=dqn(min_steps_learn=60, replay_size=800, batch_size=8),
        agent=AtariDqnAgent(model_kwargs=dict(channels=[2], kernel_sizes=[3], strides=[2], paddings=[0], fc_sizes=8)),
        EnvCls=AtariEnv,
        env=dict(game="breakout", frame_shape=(12, 10)),
        n_steps=n_steps,
        save_replay=True,
        **settings,
    )
    train(runner, log_dir, snapshot_mode="last")
    return runner


@full
def test_what_is_replayed_of_frames_before_and_after(tmp_path):
    """The buffer is full, so that all of it is being overwritten while it is saved."""
    first = atari(tmp_path, 2000)
    snapshot = torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)
    assert snapshot["cum_steps"] == 2000 and first.algo.replay_buffer.written == 500
    resumed = atari(tmp_path, 2400, resume_from=tmp_path / "run_0")
    assert resumed.first_itr == 100 and resumed.algo.replay_buffer.written == 600
    ours, theirs = (runner.algo.replay_buffer for runner in (resumed, first))
    rows = [i % 200 for i in range(400, 500)]  # 300 to 399 have been overwritten.
    for a, b in zip(buffer_leaves(ours.samples), buffer_leaves(theirs.samples), strict=True):
        np.testing.assert_array_equal(a[rows[:-1]], b[rows[:-1]])
    assert ours.samples.done[rows[-1]].all()
    assert [row["Diagnostics/CumSteps"] for row in rows_of(tmp_path)] == [str(200 * i) for i in range(1, 13)]


def rows_of(log_dir):
    with open(log_dir / "run_0" / "progress.csv") as file:
        return list(csv.DictReader(file))


def test_a_snapshot_counts_no_batch_that_is_not_in_replay(tmp_path, monkeypatch):
    append = DQN.append

    def slow(self, samples):
        time.sleep(0.05)
        append(self, samples)

    monkeypatch.setattr(DQN, "append", slow)
    runner, seen = build(n_steps=400, log_interval_steps=100, save_replay=True), []
    save = runner._save

    def watched(*args, **kwargs):
        seen.append((runner.diagnostics.cum_steps, runner.algo.replay_buffer.written))
        save(*args, **kwargs)

    runner._save = watched
    train(runner, tmp_path, snapshot_mode="last")
    assert len(seen) == 4 and all(cum_steps <= written * B for cum_steps, written in seen)


# --- Misuse -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(sampler="synchronous"), "needs a sampler from rlpyt.samplers.async_, such as AsyncCpuSampler; SerialSampler is for"),
        (dict(algo=A2C(), agent=MlpFfAgent()), "A2C learns from the batch just sampled, so sampling cannot run ahead of it"),
        (dict(affinity=dict(optimiser=[{}], sampler={})), r"unknown keys \['optimiser'\]"),
        (dict(affinity=dict(optimizer=[], sampler={})), r"affinity\['optimizer'\]=\[\] must be a dictionary for one process, or a list"),
        (dict(affinity=dict(sampler=dict(worker_cpus=[0]))), "unknown key 'worker_cpus'. Did you mean 'workers_cpus'"),
        (dict(affinity=[dict(cuda_idx=0)]), "must be a dictionary"),
    ],
)
def test_what_does_not_suit_is_refused_before_anything_starts(settings, message):
    with pytest.raises(ValueError, match=message):
        build(**settings)


THREADS = """
import sys, torch
sys.path[:0] = [{tests!r}, {root!r}]
from runners.test_async_rl import build
torch.set_num_threads(2)
(torch.ones(512, 512) @ torch.ones(512, 512)).exp().sum()
runner = build("gpu", affinity=dict(sampler=dict(master_torch_threads=2, workers_cpus=[0], set_affinity=False)), n_steps=200)
try:
    runner.train()
    print("ran")
except ValueError as error:
    print(error)
"""


@full
def test_forked_processes_do_not_hang_with_several_threads():
    tests = str(Path(__file__).parents[1])
    script = THREADS.format(tests=tests, root=str(Path(tests).parent))
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    last = result.stdout.splitlines()[-1]
    assert last == "ran" or "affinity['master_torch_threads']=2: workers would hang" in last, result.stdout + result.stderr


@full
def test_a_synchronous_affinity_will_do(tmp_path):
    runner = build("cpu", affinity=dict(workers_cpus=[0, 1], master_torch_threads=1, set_affinity=False), n_steps=200)
    assert len(train(runner, tmp_path)) == 1


@full
@processes
def test_a_resumed_run_goes_on_with_its_gaps_between_snapshots(tmp_path):
    def kept(**settings):
        runner = build("serial", save_replay=True, log_interval_steps=1, **settings)
        with logger_context(str(tmp_path), 0, "test", snapshot_mode="last+gap", snapshot_gap=5, override_prefix=True):
            runner.train()
        numbered = (file for file in snapshot_files(tmp_path / "run_0") if file.itr is not None and file.run == math.inf)
        return sorted(file.itr for file in numbered), runner.n_itr, runner.agent.sampling_itr

    first, n_itr, sampling_itr = kept(n_steps=800)
    assert first and first[-1] >= n_itr - 5
    assert sampling_itr == n_itr - 1, "so that it explores as in training when it is recorded, and not as in iteration 0"
    second, n_longer, _ = kept(n_steps=1600, resume_from=tmp_path / "run_0")
    assert second and n_itr <= second[0] <= n_itr + 5 and second[-1] >= n_longer - 5
