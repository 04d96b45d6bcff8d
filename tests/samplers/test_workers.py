"""Whatever happens to a worker process: the run ends soon, with an error that says what happened, and leaves nothing behind."""

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from agents_for_tests import RecordingAgent
from envs import CountingEnv, FailingEnv

from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.samplers.workers import WorkerError, check_affinity, set_cpu_affinity, split_evenly

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    shm = set(os.listdir("/dev/shm"))
    yield
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and workers_of(os.getpid()):
        time.sleep(0.05)
    assert not workers_of(os.getpid())
    assert not {name for name in os.listdir("/dev/shm") if name not in shm and not name.startswith("pymp-")}


def workers_of(pid):
    """Living descendants, without those that the forkserver and the resource tracker of multiprocessing are."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [p for p in children if p.is_running() and p.status() != psutil.STATUS_ZOMBIE and not is_helper(p)]


def is_helper(process):
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return True
    return "multiprocessing.resource_tracker" in line or "multiprocessing.forkserver" in line


def start(env=None, EnvCls=FailingEnv, agent=None, start_method="fork", n_workers=2, **kwargs):
    sampler = CpuSampler(
        EnvCls=EnvCls,
        env_kwargs=dict(spare_pid=os.getpid(), **(env or {})) if EnvCls is FailingEnv else (env or {}),
        **{**dict(batch_T=5, batch_B=4, max_decorrelation_steps=0, start_method=start_method), **kwargs},
    )
    affinity = dict(workers_cpus=list(range(n_workers)), set_affinity=False)
    sampler.initialize(agent or RecordingAgent(), affinity=affinity, seed=0)
    return sampler


def slow_env(**kwargs):
    """An environment whose steps take a while, so that a batch is not over before it is interrupted."""
    env = CountingEnv(**kwargs)
    step = env.step

    def slow_step(action):
        time.sleep(0.002)
        return step(action)

    env.step = slow_step
    return env


def failure(run):
    """Return the message of the WorkerError that `run` ends with, in a time that allows for a busy machine."""
    begin = time.monotonic()
    with pytest.raises(WorkerError) as info:
        run()
    assert time.monotonic() - begin < 30, "not a measure of speed: without a watch it would never end"
    return str(info.value)


# ---------------------------------------------------------------------------------------------------------------------
# Death
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_worker_killed_at_any_moment_of_collecting_is_named(start_method):
    for _ in range(20):
        sampler = start(EnvCls=slow_env, batch_T=100, start_method=start_method)
        victim = random.randrange(2)
        pid = sampler._pool.processes[victim].pid
        threading.Timer(random.random() * 0.5, os.kill, (pid, signal.SIGKILL)).start()
        message = failure(lambda sampler=sampler: [sampler.obtain_samples(itr) for itr in range(1000)])
        assert f"worker {victim}" in message and str(pid) in message and "SIGKILL" in message and "batch" in message
        assert f"environments {2 * victim} to {2 * victim + 1}" in message
        assert not workers_of(os.getpid())
        sampler.shutdown()


def test_a_worker_killed_while_it_waits_is_named_at_the_next_batch():
    sampler = start(EnvCls=CountingEnv)
    sampler.obtain_samples(0)
    sampler._pool.processes[1].kill()
    assert "SIGKILL" in failure(lambda: sampler.obtain_samples(1))


@pytest.mark.parametrize("how, said", [("exit", "exit code 7"), ("segv", "SIGSEGV"), ("sigkill", "SIGKILL")])
@pytest.mark.parametrize("fail_in", ["init", "step"])
def test_a_worker_that_ends_is_reported_with_its_code_or_signal(how, said, fail_in):
    env = dict(fail_in=fail_in, fail_at=3 if fail_in == "step" else 1, how=how)
    message = failure(lambda: start(env).obtain_samples(0))
    assert said in message and "sampler worker" in message.lower()
    assert ("starting" if fail_in == "init" else "collecting") in message


# ---------------------------------------------------------------------------------------------------------------------
# Exceptions
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_what_the_environment_raised_is_what_you_see(start_method, tmp_path):
    env = dict(fail_in="step", fail_at=8, once=str(tmp_path / "failed"))
    sampler = start(env, start_method=start_method)
    sampler.obtain_samples(0)
    message = failure(lambda: sampler.obtain_samples(1))
    assert message.startswith("EnvFailure: planned failure in step, call 8")
    assert "envs.py" in message and "line" in message and "Traceback" in message
    assert "environment" in message and "step 2 of batch 1 (environment step 7)" in message and "while collecting batch 1" in message


def test_an_environment_that_fails_in_reset_is_named(tmp_path):
    env = dict(fail_in="reset", fail_at=2, once=str(tmp_path / "failed"), episode_length=3)
    message = failure(lambda: start(env).obtain_samples(0))
    assert "EnvFailure" in message and "in reset, after step 2 of batch 0" in message


def test_an_environment_that_fails_at_the_first_reset_is_named(tmp_path):
    message = failure(lambda: start(dict(fail_in="reset", once=str(tmp_path / "failed"))))
    assert "EnvFailure" in message and "in reset, at the start" in message and "while starting" in message


def test_an_environment_that_cannot_be_made_in_a_worker_is_reported():
    assert "planned failure in init" in failure(lambda: start(dict(fail_in="init")))


def test_an_environment_that_cannot_be_made_at_all_raises_its_own_error_in_the_master():
    with pytest.raises(TypeError, match="no_such_argument"):
        start(dict(no_such_argument=1))


def test_an_environment_that_fails_in_close_is_reported_at_shutdown():
    sampler = start(dict(fail_in="close"))
    sampler.obtain_samples(0)
    assert "planned failure in close" in failure(sampler.shutdown)
    sampler.shutdown()


def test_a_failure_in_evaluation_is_reported(tmp_path):
    sampler = start(dict(fail_in="step", fail_at=6, once=str(tmp_path / "failed")), eval_n_envs=2, eval_max_steps=40)
    sampler.obtain_samples(0)
    message = failure(lambda: sampler.evaluate_agent(3))
    assert "evaluation at iteration 3" in message and "EnvFailure" in message


def test_a_failure_in_decorrelation_is_reported(tmp_path):
    env = dict(fail_in="step", fail_at=2, once=str(tmp_path / "failed"))
    assert "step 1 of decorrelation" in failure(lambda: start(env, max_decorrelation_steps=50))


def test_an_agent_that_fails_in_a_worker_is_reported():
    message = failure(lambda: start(EnvCls=CountingEnv, agent=RecordingAgent(fail_at=4)).obtain_samples(0))
    assert message.startswith("ArithmeticError: planned failure of the agent")


def test_the_serial_sampler_raises_the_original_exception_and_says_where(tmp_path):
    sampler = SerialSampler(
        EnvCls=FailingEnv,
        env_kwargs=dict(fail_in="step", fail_at=3, once=str(tmp_path / "failed")),
        batch_T=5,
        batch_B=2,
        max_decorrelation_steps=0,
    )
    sampler.initialize(RecordingAgent(), seed=0)
    with pytest.raises(Exception, match="planned failure in step") as info:
        sampler.obtain_samples(0)
    assert any("environment 0, step 2 of batch 0" in note for note in info.value.__notes__)


def fork_a_child():
    """An environment that starts a process of its own, which inherits the worker's pipes and lives on."""
    if os.getpid() != TEST_PID:
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        CHILDREN.put(child)
    return slow_env()


TEST_PID = os.getpid()
CHILDREN = multiprocessing.get_context("fork").SimpleQueue()


def test_a_killed_worker_is_noticed_although_a_process_it_started_lives_on():
    sampler = start(EnvCls=fork_a_child, batch_T=200)
    threading.Timer(0.2, sampler._pool.processes[0].kill).start()
    begin = time.monotonic()
    message = failure(lambda: [sampler.obtain_samples(itr) for itr in range(1000)])
    assert "SIGKILL" in message and time.monotonic() - begin < 15, "the child lives for 20 s"
    while not CHILDREN.empty():
        os.kill(CHILDREN.get(), signal.SIGKILL)


class ErrorEnv(CountingEnv):
    """Raises an error of a kind that pipes raise as well."""

    def step(self, action):
        if self.t == 3 and self.episode >= 0 and os.getpid() != TEST_PID:
            raise BrokenPipeError("the simulator has gone")
        return super().step(action)


def test_errors_of_an_environments_own_pipes_are_reported_like_all_others():
    assert failure(lambda: start(EnvCls=ErrorEnv).obtain_samples(0)).startswith("BrokenPipeError: the simulator has gone")


class ClosingEnv(FailingEnv):
    """Leaves a file when it is closed."""

    def __init__(self, directory, **kwargs):
        super().__init__(**kwargs)
        self.directory = directory

    def close(self):
        open(os.path.join(self.directory, f"{os.getpid()} {id(self)}"), "w").close()


def test_environments_are_closed_although_one_of_them_failed(tmp_path):
    (tmp_path / "closed").mkdir()
    env = dict(fail_in="step", fail_at=8, once=str(tmp_path / "failed"), directory=str(tmp_path / "closed"), spare_pid=os.getpid())
    sampler = start(env, EnvCls=ClosingEnv)
    sampler.obtain_samples(0)
    failure(lambda: sampler.obtain_samples(1))
    closed = [name for name in os.listdir(tmp_path / "closed") if not name.startswith(f"{os.getpid()} ")]
    assert len(closed) == 4


# ---------------------------------------------------------------------------------------------------------------------
# Silence
# ---------------------------------------------------------------------------------------------------------------------
def test_a_hanging_environment_is_reported_with_the_workers_stack(tmp_path):
    env = dict(fail_in="step", fail_at=3, how="hang", once=str(tmp_path / "failed"))
    message = failure(lambda: start(env, worker_timeout=1.5).obtain_samples(0))
    assert "worker_timeout=1.5" in message and "_maybe_fail" in message and "envs.py" in message


def test_a_long_evaluation_that_gets_on_is_not_taken_for_a_hang():
    sampler = start(EnvCls=slow_env, eval_n_envs=2, eval_max_steps=4000, worker_timeout=1.5)
    begin = time.monotonic()
    assert sampler.evaluate_agent(0)
    assert time.monotonic() - begin > 2 * 1.5
    sampler.shutdown()


def test_silence_is_a_warning_where_there_is_no_timeout(monkeypatch, tmp_path):
    monkeypatch.setattr("rlpyt.samplers.workers.HANG_WARNING", 1.0)
    monkeypatch.setattr("rlpyt.samplers.workers.WATCH_INTERVAL", 0.2)
    sampler = start(dict(fail_in="step", fail_at=3, how="hang", once=str(tmp_path / "failed")))
    threading.Timer(4, sampler._pool.processes[0].kill).start()
    threading.Timer(4, sampler._pool.processes[1].kill).start()
    with pytest.warns(UserWarning, match="worker_timeout="):
        failure(lambda: sampler.obtain_samples(0))


# ---------------------------------------------------------------------------------------------------------------------
# The master's end
# ---------------------------------------------------------------------------------------------------------------------
MASTER = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
from agents_for_tests import RecordingAgent
from samplers_for_tests import slow_env
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

if __name__ == "__main__":
    sampler = CpuSampler(EnvCls=slow_env, env_kwargs=dict(), batch_T=100, batch_B=4, start_method={start_method!r})
    sampler.initialize(RecordingAgent(), affinity=dict(workers_cpus=[0, 1], set_affinity=False), seed=0)
    print("pids", *[p.pid for p in sampler._pool.processes], flush=True)
    {then}
"""


def run_master(tmp_path, start_method, then):
    (tmp_path / "samplers_for_tests.py").write_text(
        "import time\nfrom envs import CountingEnv\n\n\ndef slow_env():\n    env = CountingEnv()\n    step = env.step\n"
        "    env.step = lambda action: (time.sleep(0.002), step(action))[1]\n    return env\n"
    )
    script = tmp_path / "master.py"
    script.write_text(MASTER.format(tests=str(TESTS), start_method=start_method, then=then))
    return subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def gone(pids, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("then", ["time.sleep(100)", "[sampler.obtain_samples(i) for i in range(10**6)]"], ids=["idle", "busy"])
def test_workers_end_themselves_when_the_master_is_killed(tmp_path, start_method, then):
    master = run_master(tmp_path, start_method, then)
    pids = list(map(int, master.stdout.readline().split()[1:]))
    assert len(pids) == 2
    time.sleep(random.random())
    master.kill()
    master.communicate(timeout=30)
    assert gone(pids)


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_program_that_forgets_shutdown_exits_cleanly(tmp_path, start_method):
    master = run_master(tmp_path, start_method, "sampler.obtain_samples(0)")
    out, err = master.communicate(timeout=60)
    assert master.returncode == 0 and not err, err
    assert gone(list(map(int, out.split()[1:])))


def test_workers_ignore_ctrl_c(tmp_path):
    master = run_master(
        tmp_path,
        "fork",
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n    os.killpg(0, signal.SIGINT)\n    time.sleep(0.5)\n"
        "    sampler.obtain_samples(0)\n    sampler.shutdown()\n    print('went on')",
    )
    out, err = master.communicate(timeout=60)
    assert "went on" in out, err


def test_samplers_come_and_go_without_leaving_descriptors_or_memory():
    def cycle():
        sampler = start(EnvCls=CountingEnv)
        sampler.obtain_samples(0)
        sampler.shutdown()
        gc.collect()

    for _ in range(5):
        cycle()
    process = psutil.Process()
    n_fds, rss = process.num_fds(), process.memory_info().rss
    for _ in range(50):
        cycle()
    assert process.num_fds() <= n_fds + 2
    assert process.memory_info().rss <= rss * 1.05


def test_a_sampler_that_is_dropped_takes_its_workers_along():
    sampler = start(EnvCls=CountingEnv)
    pids = [process.pid for process in sampler._pool.processes]
    del sampler
    gc.collect()
    assert gone(pids)


# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "bad, said",
    [
        (dict(worker_cpus=[0]), "did you mean 'workers_cpus'"),
        (dict(workers_cpus=2), "workers_cpus"),
        (dict(workers_cpus=["a"]), "workers_cpus"),
        (dict(workers_cpus=[]), "workers_cpus"),
        (dict(master_cpus="0"), "master_cpus"),
        (dict(worker_torch_threads=0), "worker_torch_threads"),
        (dict(cuda_idx="0"), "cuda_idx"),
        ([0, 1], "dictionary"),
    ],
)
def test_impossible_affinities_are_refused_by_name(bad, said):
    with pytest.raises(ValueError, match=said):
        check_affinity(bad)


@pytest.mark.parametrize(
    "good", [None, {}, dict(workers_cpus=np.arange(2)), dict(workers_cpus=[(0, 1), [2]], master_cpus=[0], cuda_idx=0, alternating=True)]
)
def test_possible_affinities_are_accepted(good):
    check_affinity(good)


def test_what_is_split_evenly_differs_by_one_at_most():
    assert split_evenly(7, 3) == [range(0, 3), range(3, 5), range(5, 7)]
    assert split_evenly(1, 3) == [range(0, 1), range(1, 1), range(1, 1)]


def test_binding_to_processors_that_do_not_exist_is_a_warning_that_names_those_allowed():
    allowed = os.sched_getaffinity(0)
    with pytest.warns(UserWarning, match=rf"\[100000\].*allowed are \[{min(allowed)}"):
        set_cpu_affinity(100_000)
    assert os.sched_getaffinity(0) == allowed
