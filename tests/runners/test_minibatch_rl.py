import csv
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch
from envs import CountingEnv
from leftovers import workers_of
from tiers import full, processes, thinned

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.base import OptInfo
from rlpyt.algos.pg.ppo import PPO
from rlpyt.runners.diagnostics import Diagnostics
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context

COMMON = [
    "Iteration",
    "CumTime (s)",
    "CumSteps",
    "CumCompletedTrajs",
    "CumUpdates",
    "StepsPerSecond",
    "UpdatesPerSecond",
    "ReplayRatio",
    "CumReplayRatio",
    "SamplingTime (s)",
    "WaitingTime (s)",
    "ReplayTime (s)",
    "OptimizationTime (s)",
    "EvaluationTime (s)",
]
TIMES = ("Time", "PerSecond")


def train(log_dir, RunnerCls=MinibatchRl, SamplerCls=SerialSampler, n_steps=400, seed=0, snapshot_mode="last"):
    """Run A2C on a counting environment, 20 steps per iteration; return the directory of the run and the runner."""
    sampler = SamplerCls(
        EnvCls=CountingEnv,
        env_kwargs=dict(episode_length=[5, 7], end=["terminated", "timeout"]),
        batch_T=5,
        batch_B=4,
        **(dict(eval_n_envs=2, eval_max_steps=60) if RunnerCls is MinibatchRlEval else {}),
    )
    runner = RunnerCls(
        algo=A2C(),
        agent=MlpFfAgent(),
        sampler=sampler,
        n_steps=n_steps,
        seed=seed,
        log_interval_steps=100,
        affinity=dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1),
    )
    with logger_context(log_dir, 0, "test", dict(a=1), snapshot_mode=snapshot_mode, override_prefix=True) as run_dir:
        runner.train()
    return run_dir, runner


def rows(run_dir):
    with open(os.path.join(run_dir, "progress.csv")) as file:
        return list(csv.DictReader(file))


def test_a_run_leaves_log_settings_and_snapshot(tmp_path):
    run_dir, _ = train(tmp_path)
    table = rows(run_dir)
    assert [int(float(row["Diagnostics/CumSteps"])) for row in table] == [100, 200, 300, 400]
    assert [int(float(row["Diagnostics/Iteration"])) for row in table] == [4, 9, 14, 19]
    assert [int(float(row["Diagnostics/CumUpdates"])) for row in table] == [5, 10, 15, 20]
    columns = [f"Diagnostics/{name}" for name in ["NewCompletedTrajs", "StepsInTrajWindow", *COMMON]]
    columns += [f"{name}{stat}" for name in TRAJ_AND_OPT for stat in ("Average", "Std", "Median", "Min", "Max")]
    assert list(table[0]) == columns
    assert json.loads(open(f"{run_dir}/params.json").read())["a"] == 1
    assert "Training complete" in open(f"{run_dir}/debug.log").read()
    snapshot = torch.load(f"{run_dir}/params.pkl", weights_only=True)
    assert snapshot["itr"] == 19 and snapshot["cum_steps"] == 400
    MlpFfAgent(initial_model_state_dict=snapshot["agent_state_dict"]).initialize(CountingEnv().spaces)


TRAJ_AND_OPT = ["Length", "Return", "NonzeroRewards", "DiscountedReturn", *OptInfo._fields]


def test_counters_are_right(tmp_path):
    run_dir, _ = train(tmp_path)
    table = [{name: float(value) for name, value in row.items()} for row in rows(run_dir)]
    new = [row["Diagnostics/NewCompletedTrajs"] for row in table]
    assert [row["Diagnostics/CumCompletedTrajs"] for row in table] == [sum(new[: i + 1]) for i in range(4)]
    assert all(row["Diagnostics/ReplayRatio"] == 1 and row["Diagnostics/CumReplayRatio"] == 1 for row in table)
    assert all(row["LengthMin"] == 5 and row["LengthMax"] == 7 for row in table)


def test_evaluation_is_logged_before_training_and_at_every_interval(tmp_path):
    run_dir, _ = train(tmp_path, RunnerCls=MinibatchRlEval)
    table = [{name: float(value) for name, value in row.items()} for row in rows(run_dir)]
    assert [row["Diagnostics/CumSteps"] for row in table] == [0, 100, 200, 300, 400]
    assert all(row["Diagnostics/TrajsInEval"] == 10 and row["Diagnostics/StepsInEval"] == 58 for row in table)
    assert all(name in table[0] for name in ("Diagnostics/CumEvalTime", "Diagnostics/CumTrainTime", "ReturnAverage"))
    assert table[-1]["Diagnostics/CumEvalTime"] > table[0]["Diagnostics/CumEvalTime"]


def test_the_evaluation_before_training_is_at_iteration_0_in_each_training():
    points = []

    class Writer:
        def add_scalar(self, name, value, step):
            if name == "Diagnostics/CumSteps":
                points.append((value, step))

    sampler = SerialSampler(CountingEnv, dict(episode_length=[5, 7]), batch_T=5, batch_B=4, eval_n_envs=2, eval_max_steps=60)
    runner = MinibatchRlEval(algo=A2C(), agent=MlpFfAgent(), sampler=sampler, n_steps=40, log_interval_steps=20)
    with logger.new_run():
        logger.set_tf_summary_writer(Writer())
        runner.train()
        runner.train()
    assert points == [(0, 0), (20, 0), (40, 1)] * 2


def test_evaluations_and_snapshots_are_left_out_until_the_iteration_before_learning_begins(tmp_path):
    sampler = SerialSampler(CountingEnv, {}, batch_T=5, batch_B=2, max_decorrelation_steps=0, eval_n_envs=1, eval_max_steps=20)
    algo = DQN(batch_size=4, replay_ratio=4, min_steps_learn=50, replay_size=100)
    runner = MinibatchRlEval(algo=algo, agent=MlpDqnAgent(), sampler=sampler, n_steps=70, log_interval_steps=10)
    with logger_context(str(tmp_path), 0, "test", override_prefix=True, snapshot_mode="all") as run_dir:
        runner.train()
    assert algo.min_itr_learn == 5
    assert sorted(name for name in os.listdir(run_dir) if name.endswith(".pkl")) == ["itr_4.pkl", "itr_5.pkl", "itr_6.pkl"]
    evaluated = [float(row["Diagnostics/TrajsInEval"]) > 0 for row in rows(run_dir)]
    assert evaluated == [True, True, False, False, False, True, True, True], "before training, and after iterations 0 to 6"


@pytest.mark.parametrize("training_pauses, seconds", [(True, 2), (False, 5)])
def test_seconds_of_an_evaluation_count_as_training_unless_training_pauses(monkeypatch, training_pauses, seconds):
    recorded, now = {}, [100.0]
    monkeypatch.setattr("rlpyt.runners.diagnostics.time.monotonic", lambda: now[0])
    monkeypatch.setattr("rlpyt.runners.diagnostics.logger.record_tabular", lambda name, value, detail=False: recorded.update({name: value}))
    diagnostics = Diagnostics([], train_batch_size=4)
    diagnostics.cum_steps = 60
    now[0] += 5
    diagnostics.record(itr=5, updates=30, eval_time=3.0, training_pauses=training_pauses)
    assert recorded["StepsPerSecond"] == 60 / seconds and recorded["UpdatesPerSecond"] == 30 / seconds
    assert recorded["CumTime (s)"] == 5


def test_seconds_of_replay_are_told_apart_from_those_of_optimization(monkeypatch):
    recorded = {}
    monkeypatch.setattr("rlpyt.runners.diagnostics.logger.record_tabular", lambda name, value, detail=False: recorded.update({name: value}))
    diagnostics = Diagnostics([], train_batch_size=4)
    for sampling, replay, optimization in ((3.0, 1.0, 5.0), (7.0, 4.0, 11.0)):
        diagnostics.sampling.seconds, diagnostics.optimization.seconds = sampling, optimization
        diagnostics.record_times(eval_time=2.0, replay_seconds=replay, waiting_seconds=0.5)
    assert recorded == {
        "SamplingTime (s)": 4, "WaitingTime (s)": 0, "ReplayTime (s)": 3, "OptimizationTime (s)": 3, "EvaluationTime (s)": 2
    }  # fmt: skip


@processes
@pytest.mark.parametrize("RunnerCls", thinned([MinibatchRl, MinibatchRlEval], quick=[MinibatchRlEval]))
@pytest.mark.parametrize("SamplerCls", thinned([SerialSampler, CpuSampler], quick=[SerialSampler]))
def test_the_same_seed_gives_the_same_run(tmp_path, RunnerCls, SamplerCls):
    def result(name, seed):
        run_dir, runner = train(tmp_path / name, RunnerCls, SamplerCls, seed=seed)
        table = [{k: v for k, v in row.items() if not any(time in k for time in TIMES)} for row in rows(run_dir)]
        return table, {name: value.clone() for name, value in runner.agent.state_dict().items()}

    (a, a_model), (b, b_model), (c, _) = result("a", 0), result("b", 0), result("c", 1)
    assert a == b and a != c
    assert all(torch.equal(a_model[name], b_model[name]) for name in a_model)


def test_steps_are_rounded_up_to_whole_logging_intervals(tmp_path):
    assert train(tmp_path, n_steps=101)[1].n_itr == 10


def test_that_a_logging_interval_is_longer_than_the_run_is_said(tmp_path, capsys):
    assert train(tmp_path, n_steps=60)[1].n_itr == 5
    said = "log_interval_steps=100 is more than n_steps=60, which is rounded up to whole intervals: the run takes 100 steps."
    assert said in capsys.readouterr().out
    train(tmp_path, n_steps=101)
    assert "is more than n_steps" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "mode, files",
    [("none", []), ("all", ["itr_19.pkl", "itr_4.pkl", "itr_9.pkl"]), ("last", ["params.pkl", "params_previous.pkl"])],
)
def test_snapshot_modes(tmp_path, mode, files):
    run_dir, _ = train(tmp_path, snapshot_mode=mode)
    assert sorted(name for name in os.listdir(run_dir) if name.endswith(".pkl") and name != "itr_14.pkl") == files


@pytest.mark.parametrize(
    "bad, said",
    [
        (dict(n_steps=0), "n_steps=0"),
        (dict(log_interval_steps="many"), "log_interval_steps='many'"),
        (dict(n_steps=float("inf")), "n_steps=inf"),
        (dict(seed=-1), "seed=-1"),
        (dict(affinity=[0, 1]), "affinity"),
        (dict(affinity=dict(cuda=0)), "unknown key 'cuda'"),
        (dict(log_traj_window=0), "log_traj_window"),
    ],
)
def test_impossible_settings_are_refused_by_name(bad, said):
    with pytest.raises(ValueError, match=said):
        MinibatchRl(**{**dict(algo=None, agent=None, sampler=None, n_steps=10), **bad})


def test_an_evaluating_runner_needs_evaluation_environments():
    sampler = SerialSampler(EnvCls=CountingEnv, env_kwargs={}, batch_T=1, batch_B=1)
    with pytest.raises(ValueError, match="eval_n_envs"):
        MinibatchRlEval(algo=None, agent=None, sampler=sampler, n_steps=10)


@processes
def test_a_failure_at_the_start_leaves_no_worker_behind():
    sampler = CpuSampler(CountingEnv, {}, batch_T=2, batch_B=2)
    affinity = dict(workers_cpus=[0, 1], set_affinity=False)
    runner = MinibatchRl(algo=PPO(minibatches=1000), agent=MlpFfAgent(), sampler=sampler, n_steps=10, affinity=affinity)
    with pytest.raises(ValueError, match="minibatches=1000"):
        runner.train()
    assert sampler._pool is None


def test_overridden_methods_take_effect(tmp_path):
    class MyRunner(MinibatchRl):
        def get_itr_snapshot(self, itr):
            return dict(super().get_itr_snapshot(itr), mine=7)

        def get_traj_info_kwargs(self):
            return dict(discount=0.0)

    run_dir, _ = train(tmp_path, RunnerCls=MyRunner)
    assert torch.load(f"{run_dir}/params.pkl", weights_only=True)["mine"] == 7
    assert float(rows(run_dir)[0]["DiscountedReturnAverage"]) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Signals
# ---------------------------------------------------------------------------------------------------------------------
SCRIPT = """
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.envs.gym import make
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import logger_context


class Telling(A2C):
    def optimize_agent(self, itr, *args):
        if itr == 2:
            logger.log("Two iterations are done.")
        return super().optimize_agent(itr, *args)


{first}
if __name__ == "__main__":
    sampler = {sampler}(make, dict(id="CartPole-v1"), batch_T=5, batch_B=4, eval_n_envs=2, eval_max_steps={eval_max_steps})
    affinity = dict(workers_cpus=[0, 1], set_affinity=False, master_torch_threads=1)
    runner = {runner}(algo=Telling(), agent=MlpFfAgent(), sampler=sampler, n_steps=10**9, log_interval_steps=10_000, affinity=affinity)
    with logger_context({log_dir!r}, 0, "test", snapshot_mode="last", override_prefix=True):
        runner.train()
"""


STARTED = []


@pytest.fixture(autouse=True)
def endless_runs_end():
    """Also where a test fails."""
    yield
    while STARTED:
        STARTED[-1].kill()
        STARTED.pop().communicate()


def start_endless_run(tmp_path, runner="MinibatchRl", sampler="CpuSampler", eval_max_steps=100, until="Two iterations are done", first=""):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(runner=runner, sampler=sampler, eval_max_steps=eval_max_steps, log_dir=str(tmp_path), first=first))
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    STARTED.append(process)
    wait_for_log(tmp_path, until)
    return process


def wait_for_log(tmp_path, text):
    """Wait until a run has logged this."""
    log = tmp_path / "run_0" / "debug.log"
    deadline = time.monotonic() + 60
    while not (log.exists() and text in log.read_text()):
        assert time.monotonic() < deadline, f"the run has not logged {text!r}"
        time.sleep(0.05)


@processes
@pytest.mark.parametrize(
    "runner, number, code",
    [("MinibatchRl", signal.SIGTERM, 143), pytest.param("MinibatchRlEval", signal.SIGINT, 130, marks=full)],
)
def test_ctrl_c_and_sigterm_end_with_a_snapshot(tmp_path, runner, number, code):
    process = start_endless_run(tmp_path, runner)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    os.killpg(process.pid, number)  # To all processes of the run, as a terminal or a batch system does.
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "Traceback" not in err and f"{signal.Signals(number).name}: finishing" in out
    assert not any(worker.is_running() for worker in workers)
    snapshot = torch.load(tmp_path / "run_0" / "params.pkl", weights_only=True)
    assert f"Stopped after iteration {snapshot['itr']}" in out
    last = rows(tmp_path / "run_0")[-1]
    assert float(last["Diagnostics/Iteration"]) == snapshot["itr"]
    assert float(last["Diagnostics/CumSteps"]) == snapshot["cum_steps"] == 20 * (snapshot["itr"] + 1)
    assert "Traceback" not in (tmp_path / "run_0" / "debug.log").read_text()


@processes
@full
@pytest.mark.parametrize("sampler", ["SerialSampler", "CpuSampler"])
def test_a_signal_cuts_a_long_evaluation_short(tmp_path, sampler):
    process = start_endless_run(tmp_path, "MinibatchRlEval", sampler, eval_max_steps=10**8, until="Evaluating agent")
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 143 and "Traceback" not in err, err
    assert "Evaluation runs complete" in (tmp_path / "run_0" / "debug.log").read_text(), out


@processes
@full
def test_a_second_ctrl_c_ends_at_once(tmp_path):
    # However slow this machine is, the run ends neither by itself after the first signal, nor before it has said why it ends.
    patient = "from rlpyt.runners import minibatch_rl\nfrom rlpyt.utils import interrupt\n\ninterrupt.PATIENCE = minibatch_rl.HURRY = 60\n"
    process = start_endless_run(tmp_path, first=patient)
    workers = workers_of(process.pid)
    process.send_signal(signal.SIGSTOP)  # So that both arrive before an iteration can end.
    workers[0].send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    wait_for_log(tmp_path, "Ctrl-C again ends at once")
    time.sleep(0.3)  # The same signal is not taken for a second one within 0.2 s.
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode != 0 and "KeyboardInterrupt" in err
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)


@full
@processes
def test_a_worker_that_dies_ends_the_run_with_its_error_and_keeps_the_last_snapshot(tmp_path):
    process = start_endless_run(tmp_path)
    workers_of(process.pid)[0].kill()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "WorkerError" in err and "SIGKILL" in err
    assert "WorkerError" in (tmp_path / "run_0" / "debug.log").read_text()


@processes
def test_the_log_says_where_the_seconds_go(tmp_path):
    class Slow(CountingEnv):
        def step(self, action):
            time.sleep(0.002)
            return super().step(action)

    names = [f"Diagnostics/{name}Time (s)" for name in ("Sampling", "Waiting", "Replay", "Optimization", "Evaluation")]
    for SamplerCls, waits in ((SerialSampler, False), (CpuSampler, True)):
        sampler = SamplerCls(Slow, {}, batch_T=5, batch_B=2, max_decorrelation_steps=0)
        algo = DQN(batch_size=4, replay_ratio=4, min_steps_learn=10, replay_size=100)
        affinity = dict(workers_cpus=[0], set_affinity=False)
        runner = MinibatchRl(algo=algo, agent=MlpDqnAgent(), sampler=sampler, n_steps=60, log_interval_steps=30, affinity=affinity)
        with logger_context(str(tmp_path / SamplerCls.__name__), 0, "test") as run_dir:
            start = time.perf_counter()
            runner.train()
            total = time.perf_counter() - start
        with open(os.path.join(run_dir, "progress.csv")) as file:
            table = [[float(row[name]) for name in names] for row in csv.DictReader(file)]
        for sampling, waiting, replay, optimization, evaluation in table:
            assert sampling > 3 * 5 * 2 * 0.002 and replay > 0 and optimization > 0 and evaluation == 0
            assert (waiting > 0.9 * 3 * 5 * 2 * 0.002) == waits and waiting <= sampling
        assert sum(sum(row) - row[1] for row in table) < total
