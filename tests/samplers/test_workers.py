"""Whatever happens to a worker process: the run ends soon, with an error that says what happened, and leaves nothing behind."""

import gc
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from agents_for_tests import RecordingAgent
from collecting import GPU_SAMPLERS, SAMPLERS, assert_signals_are_empty
from envs import ClosingEnv, CountingEnv, FailingEnv, ModulesEnv, ModulesVector, SlowEnv
from leftovers import is_alive, living_children, workers_of
from tiers import full, processes, start_methods, thinned

from rlpyt.algos.dqn.dqn import DQN
from rlpyt.envs.vector import VectorEnvs
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.samplers.workers import WorkerError, WorkerPool
from rlpyt.utils import accelerator
from rlpyt.utils.logging.context import no_new_runs

TESTS = Path(__file__).parents[1]

pytestmark = [processes, pytest.mark.usefixtures("nothing_is_left_behind")]
every_sampler = pytest.mark.parametrize("kind", thinned(SAMPLERS, quick=["CPU"]))
gpu_samplers = pytest.mark.parametrize("kind", thinned(GPU_SAMPLERS, quick=["GPU"]))
TRIALS = 8  # where something happens at a random moment


def gone(pids, seconds=20):
    """Whether all processes end within a time that allows for a busy machine."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) and is_alive(psutil.Process(pid)) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def start(kind, env=None, EnvCls=FailingEnv, agent=None, start_method="fork", n_workers=2, **kwargs):
    """Start a sampler with 4 environments in 2 workers, in alternating samplers one for each half."""
    SamplerCls = SAMPLERS[kind]
    sampler = SamplerCls(
        EnvCls=EnvCls,
        env_kwargs=dict(spare_pid=os.getpid(), **(env or {})) if EnvCls is FailingEnv else (env or {}),
        **{**dict(batch_T=5, batch_B=4, max_decorrelation_steps=0, start_method=start_method), **kwargs},
    )
    affinity = dict(workers_cpus=list(range(n_workers)), set_affinity=False, alternating=SamplerCls.alternating)
    sampler.initialize(agent or RecordingAgent(), affinity=affinity, seed=0, bootstrap_value=True)
    return sampler


def failure(run, error=WorkerError):
    """Return the message of the error that `run` ends with, in a time that allows for a busy machine."""
    begin = time.monotonic()
    with pytest.raises(error) as info:
        run()
    assert time.monotonic() - begin < 30, "not a measure of speed: without a watch it would never end"
    return str(info.value)


def collect_forever(sampler):
    for itr in range(10**6):
        sampler.obtain_samples(itr)


# ---------------------------------------------------------------------------------------------------------------------
# Death
# ---------------------------------------------------------------------------------------------------------------------
@every_sampler
def test_a_worker_killed_at_any_moment_of_collecting_is_named(kind):
    for _ in range(TRIALS):
        sampler = start(kind, EnvCls=SlowEnv, batch_T=10)
        victim = random.randrange(2)
        pid = sampler._pool.processes[victim].pid
        threading.Timer(random.random() * 0.2, os.kill, (pid, signal.SIGKILL)).start()
        message = failure(lambda sampler=sampler: collect_forever(sampler))
        assert f"worker {victim}" in message and str(pid) in message and "SIGKILL" in message and "batch" in message
        assert f"environments {2 * victim} to {2 * victim + 1}" in message
        assert not living_children()
        sampler.shutdown()


class Killer(threading.Thread):
    """Kills one of this process's two workers, a random time after it has appeared."""

    def __init__(self, within):
        super().__init__(daemon=True)
        self.within, self.pid = within, None
        self.start()

    def run(self):
        while len(workers := workers_of()) < 2:
            time.sleep(0.01)
        time.sleep(random.random() * self.within)
        victim = random.choice(sorted(workers, key=lambda worker: worker.pid)[:2])  # What comes later may be a shell that is being started.
        self.pid = victim.pid
        victim.kill()


@full
@every_sampler
@pytest.mark.parametrize("start_method, within", [("fork", 0.1), pytest.param("spawn", 0.8, marks=full)])
def test_a_worker_killed_at_any_moment_from_its_start_on_is_named(kind, start_method, within):
    """With spawn, workers start for longer than they collect here."""
    for _ in range(TRIALS):
        killer = Killer(within)
        message = failure(lambda: collect_forever(start(kind, EnvCls=SlowEnv, batch_T=3, start_method=start_method)))
        killer.join()
        assert str(killer.pid) in message and "SIGKILL" in message and re.search("while (starting|collecting batch)", message)
        assert re.search(r"ampler worker [01] \(environments (0 to 1|2 to 3)\)", message)
        assert not living_children()


@every_sampler
def test_a_worker_killed_while_evaluating_is_named(kind):
    for _ in range(5):
        sampler = start(kind, EnvCls=SlowEnv, eval_n_envs=2, eval_max_steps=10**6)
        pid = sampler._pool.processes[1].pid
        threading.Timer(random.random() * 0.1, os.kill, (pid, signal.SIGKILL)).start()
        message = failure(lambda sampler=sampler: sampler.evaluate_agent(7))
        assert "worker 1" in message and "SIGKILL" in message and "evaluating at iteration 7" in message
        assert not living_children()


@every_sampler
def test_a_worker_killed_while_it_waits_is_named_at_the_next_batch(kind):
    sampler = start(kind, EnvCls=CountingEnv)
    sampler.obtain_samples(0)
    sampler._pool.processes[1].kill()
    assert "SIGKILL" in failure(lambda: sampler.obtain_samples(1))
    assert not living_children()


@every_sampler
def test_after_a_death_the_sampler_says_that_it_must_be_started_anew_and_can_be(kind):
    sampler = start(kind, EnvCls=CountingEnv)
    sampler._pool.processes[0].kill()
    failure(lambda: sampler.obtain_samples(0))
    with pytest.raises(RuntimeError, match="initialize"):
        sampler.obtain_samples(1)
    sampler.shutdown()
    sampler.initialize(RecordingAgent(), affinity=dict(workers_cpus=[0, 1], set_affinity=False), seed=0)
    sampler.obtain_samples(0)
    assert_signals_are_empty(sampler)
    sampler.shutdown()


@pytest.mark.parametrize(
    "how, said", [("exit", "exit code 7"), pytest.param("segv", "SIGSEGV", marks=full), pytest.param("sigkill", "SIGKILL", marks=full)]
)
@pytest.mark.parametrize("fail_in", ["init", "step"])
@every_sampler
def test_a_worker_that_ends_is_reported_with_its_code_or_signal(kind, how, said, fail_in):
    env = dict(fail_in=fail_in, fail_at=3 if fail_in == "step" else 1, how=how)
    message = failure(lambda: start(kind, env).obtain_samples(0))
    assert said in message and "sampler worker" in message.lower()
    assert ("starting" if fail_in == "init" else "collecting") in message


# ---------------------------------------------------------------------------------------------------------------------
# Exceptions
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
@every_sampler
def test_what_the_environment_raised_is_what_you_see(kind, start_method, tmp_path):
    env = dict(fail_in="step", fail_at=8, once=str(tmp_path / "failed"))
    sampler = start(kind, env, start_method=start_method)
    sampler.obtain_samples(0)
    message = failure(lambda: sampler.obtain_samples(1))
    assert message.startswith("EnvFailure: planned failure in step, call 8")
    assert "envs.py" in message and "line" in message and "Traceback" in message
    assert "environment" in message and "step 2 of batch 1 (environment step 7)" in message and "while collecting batch 1" in message


@every_sampler
def test_an_environment_that_fails_in_reset_is_named(kind, tmp_path):
    env = dict(fail_in="reset", fail_at=2, once=str(tmp_path / "failed"), episode_length=3)
    message = failure(lambda: start(kind, env).obtain_samples(0))
    assert "EnvFailure" in message and "in reset, after step 2 of batch 0" in message


@every_sampler
def test_an_environment_that_fails_in_a_reset_between_batches_is_named(kind, tmp_path):
    from rlpyt.samplers.parallel.cpu.collectors import CpuWaitResetCollector
    from rlpyt.samplers.parallel.gpu.collectors import GpuWaitResetCollector

    env = dict(fail_in="reset", fail_at=2, once=str(tmp_path / "failed"), episode_length=3)
    CollectorCls = CpuWaitResetCollector if kind == "CPU" else GpuWaitResetCollector
    sampler = start(kind, env, CollectorCls=CollectorCls)

    def two_batches():
        sampler.obtain_samples(0)  # Its last environments may be reset after it was returned.
        sampler.obtain_samples(1)

    message = failure(two_batches)
    assert "EnvFailure" in message and "in reset" in message


@every_sampler
def test_an_environment_that_fails_at_the_first_reset_is_named(kind, tmp_path):
    message = failure(lambda: start(kind, dict(fail_in="reset", once=str(tmp_path / "failed"))))
    assert "EnvFailure" in message and "in reset, at the start" in message and "while starting" in message


@every_sampler
def test_an_environment_that_cannot_be_made_in_a_worker_is_reported(kind):
    assert "planned failure in init" in failure(lambda: start(kind, dict(fail_in="init")))


@every_sampler
def test_an_environment_that_cannot_be_made_at_all_raises_its_own_error_in_the_master(kind):
    with pytest.raises(TypeError, match="no_such_argument"):
        start(kind, dict(no_such_argument=1))


@every_sampler
def test_an_environment_that_fails_in_close_is_reported_at_shutdown(kind):
    sampler = start(kind, dict(fail_in="close"))
    sampler.obtain_samples(0)
    text = failure(sampler.shutdown)
    assert "planned failure in close" in text
    assert "Raised by" not in text or "while ending.\nThis was when an environment was closed." in text, "not in the batch before"
    sampler.shutdown()


@every_sampler
@pytest.mark.parametrize("fail_in, where", [("step", "step 3 of the evaluation at iteration 3"), ("reset", "in reset")])
def test_a_failure_in_evaluation_is_reported(kind, fail_in, where, tmp_path):
    env = dict(fail_in="nothing")
    fails = dict(fail_in=fail_in, fail_at=4 if fail_in == "step" else 2, once=str(tmp_path / "failed"), episode_length=3)
    sampler = start(
        kind, env, eval_env_kwargs=dict(spare_pid=os.getpid(), **fails), eval_n_envs=2, eval_max_steps=40, eval_max_trajectories=20
    )
    sampler.obtain_samples(0)
    message = failure(lambda: sampler.evaluate_agent(3))
    assert "EnvFailure" in message and where in message and "while evaluating at iteration 3" in message


@every_sampler
def test_a_failure_in_decorrelation_is_reported(kind, tmp_path):
    env = dict(fail_in="step", fail_at=2, once=str(tmp_path / "failed"))
    assert "step 1 of decorrelation" in failure(lambda: start(kind, env, max_decorrelation_steps=50))


AGENT_FAILURES = [("step", 4), ("value", 1), ("reset_one", 2)]


@pytest.mark.parametrize("fail_in, fail_at", AGENT_FAILURES)
def test_an_agent_that_fails_in_a_worker_is_reported(fail_in, fail_at, tmp_path):
    agent = RecordingAgent(fail_at=fail_at, fail_in=fail_in)
    sampler = start("CPU", dict(directory=str(tmp_path), episode_length=3), EnvCls=ClosingEnv, agent=agent)
    message = failure(lambda: sampler.obtain_samples(0))
    assert message.startswith("ArithmeticError: planned failure of the agent")
    assert "agents_for_tests.py" in message and "while collecting batch 0" in message
    assert len(closed_in_workers(tmp_path)) == 4


@pytest.mark.parametrize("fail_in, fail_at", AGENT_FAILURES)
@gpu_samplers
def test_an_agent_that_fails_in_the_action_server_raises_its_own_error_and_the_workers_are_released(kind, fail_in, fail_at, tmp_path):
    agent = RecordingAgent(fail_at=fail_at, fail_in=fail_in)
    sampler = start(kind, dict(directory=str(tmp_path), episode_length=3), EnvCls=ClosingEnv, agent=agent)
    with pytest.raises(ArithmeticError, match="planned failure of the agent") as info:
        sampler.obtain_samples(0)
    assert any("batch 0" in note for note in info.value.__notes__)
    assert not living_children(), "nobody has called shutdown"
    assert len(closed_in_workers(tmp_path)) == 4
    with pytest.raises(RuntimeError, match="initialize"):
        sampler.obtain_samples(1)
    sampler.shutdown()


@gpu_samplers
def test_an_agent_that_fails_in_evaluation_raises_its_own_error_and_the_workers_are_released(kind, tmp_path):
    agent = RecordingAgent(fail_at=20)
    env = dict(directory=str(tmp_path))
    sampler = start(kind, env, EnvCls=ClosingEnv, agent=agent, eval_n_envs=3, eval_max_steps=3000)
    sampler.obtain_samples(0)
    with pytest.raises(ArithmeticError, match="planned failure of the agent") as info:
        sampler.evaluate_agent(5)
    assert any("evaluation at iteration 5" in note for note in info.value.__notes__)
    assert not living_children()
    assert len(closed_in_workers(tmp_path)) == 4 + 3


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
    return SlowEnv()


TEST_PID = os.getpid()
CHILDREN = multiprocessing.get_context("fork").SimpleQueue()


@every_sampler
def test_a_killed_worker_is_noticed_although_a_process_it_started_lives_on(kind):
    sampler = start(kind, EnvCls=fork_a_child, batch_T=50)
    threading.Timer(0.1, sampler._pool.processes[0].kill).start()
    begin = time.monotonic()
    message = failure(lambda: collect_forever(sampler))
    assert "SIGKILL" in message and time.monotonic() - begin < 15, "the child lives for 20 s"
    while not CHILDREN.empty():
        os.kill(CHILDREN.get(), signal.SIGKILL)


class ErrorEnv(CountingEnv):
    """Raises an error of a kind that pipes raise as well."""

    def step(self, action):
        if self.t == 3 and self.episode >= 0 and os.getpid() != TEST_PID:
            raise BrokenPipeError("the simulator has gone")
        return super().step(action)


@every_sampler
def test_errors_of_an_environments_own_pipes_are_reported_like_all_others(kind):
    message = failure(lambda: start(kind, EnvCls=ErrorEnv).obtain_samples(0))
    assert message.startswith("BrokenPipeError: the simulator has gone")


def closed_in_workers(directory):
    """The environments that were closed in other processes than this one."""
    return [name for name in os.listdir(directory) if not name.startswith(f"{os.getpid()} ")]


@every_sampler
def test_environments_are_closed_although_one_of_them_failed(kind, tmp_path):
    (tmp_path / "closed").mkdir()
    env = dict(fail_in="step", fail_at=8, once=str(tmp_path / "failed"), directory=str(tmp_path / "closed"), spare_pid=os.getpid())
    sampler = start(kind, env, EnvCls=ClosingEnv)
    sampler.obtain_samples(0)
    failure(lambda: sampler.obtain_samples(1))
    assert len(closed_in_workers(tmp_path / "closed")) == 4


@every_sampler
def test_the_others_environments_are_closed_when_a_worker_dies(kind, tmp_path):
    sampler = start(kind, dict(directory=str(tmp_path)), EnvCls=ClosingEnv)
    sampler.obtain_samples(0)
    sampler._pool.processes[0].kill()
    failure(lambda: sampler.obtain_samples(1))
    assert len(closed_in_workers(tmp_path)) == 2


@every_sampler
def test_environments_are_closed_at_shutdown(kind, tmp_path):
    sampler = start(kind, dict(directory=str(tmp_path)), EnvCls=ClosingEnv, eval_n_envs=2, eval_max_steps=20)
    sampler.obtain_samples(0)
    sampler.shutdown()
    assert len(closed_in_workers(tmp_path)) == 4 + 2


# ---------------------------------------------------------------------------------------------------------------------
# Silence
# ---------------------------------------------------------------------------------------------------------------------
@every_sampler
@pytest.mark.parametrize("phase", ["collecting", "evaluating"])
def test_a_hanging_environment_is_reported_with_the_workers_stack(kind, phase, monkeypatch, tmp_path):
    monkeypatch.setattr("rlpyt.samplers.workers.WATCH_INTERVAL", 0.1)
    hangs = dict(fail_in="step", fail_at=3, how="hang", once=str(tmp_path / "failed"))
    env, eval_env = (hangs, {}) if phase == "collecting" else ({}, hangs)
    sampler = start(kind, env, eval_env_kwargs=eval_env, eval_n_envs=2, eval_max_steps=20, worker_timeout=1.0)
    message = failure(lambda: sampler.obtain_samples(0) if phase == "collecting" else sampler.evaluate_agent(0))
    assert "worker_timeout=1.0" in message and "_maybe_fail" in message and "envs.py" in message and phase in message


@every_sampler
def test_a_long_evaluation_that_gets_on_is_not_taken_for_a_hang(kind):
    sampler = start(kind, EnvCls=SlowEnv, eval_n_envs=2, eval_max_steps=2 * 700, worker_timeout=1.0)
    begin = time.monotonic()
    assert sampler.evaluate_agent(0)
    assert time.monotonic() - begin > 1.3 * 1.0
    sampler.shutdown()


@every_sampler
def test_silence_is_a_warning_where_there_is_no_timeout(kind, monkeypatch, tmp_path):
    monkeypatch.setattr("rlpyt.samplers.workers.HANG_WARNING", 0.5)
    monkeypatch.setattr("rlpyt.samplers.workers.WATCH_INTERVAL", 0.1)
    sampler = start(kind, dict(fail_in="step", fail_at=3, how="hang", once=str(tmp_path / "failed")))
    for process in sampler._pool.processes:
        threading.Timer(1.5, process.kill).start()
    with pytest.warns(UserWarning, match="worker_timeout="):
        failure(lambda: sampler.obtain_samples(0))


# ---------------------------------------------------------------------------------------------------------------------
# The master's end
# ---------------------------------------------------------------------------------------------------------------------
MASTER = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})

def start(kind):
    from agents_for_tests import RecordingAgent
    from collecting import SAMPLERS
    from envs import SlowEnv

    SamplerCls = SAMPLERS[kind]
    sampler = SamplerCls(EnvCls=SlowEnv, env_kwargs={{}}, batch_T=20, batch_B=4, start_method={start_method!r})
    affinity = dict(workers_cpus=[0, 1], set_affinity=False, alternating=SamplerCls.alternating)
    sampler.initialize(RecordingAgent(), affinity=affinity, seed=0)
    say("pids", *[p.pid for p in sampler._pool.processes])
    return sampler

def say(*words):  # At once, for several processes say something.
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())

if __name__ == "__main__":
    from collecting import SAMPLERS  # Here, and not for workers.

    {then}
"""


@pytest.fixture
def run_master(tmp_path):
    """Runs a program whose main part is given, which leads a session of its own; ends it after the test."""
    programs = []

    def run(start_method, then):
        script = tmp_path / f"master_{len(programs)}.py"
        script.write_text(MASTER.format(tests=str(TESTS), start_method=start_method, then=then.replace("\n", "\n    ")))
        programs.append(
            subprocess.Popen(
                [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )
        )
        return programs[-1]

    yield run
    for program in programs:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()


# A program that turns into one master per sampler, which saves starting Python for each.
IN_EACH_OF_FOUR = """\
for kind in SAMPLERS:
    if os.fork() == 0:
        say("master", os.getpid())
        sampler = start(kind)
        {then}
        os._exit(0)
for _ in SAMPLERS:
    os.wait()"""


IDLE, BUSY = "time.sleep(100)", "[sampler.obtain_samples(i) for i in range(10**6)]"


@pytest.mark.parametrize(
    "start_method, then, how",
    [
        ("fork", BUSY, signal.SIGKILL),
        pytest.param("fork", IDLE, signal.SIGKILL, marks=full),
        pytest.param("spawn", BUSY, signal.SIGKILL, marks=full),
        pytest.param("forkserver", BUSY, signal.SIGKILL, marks=full),
        pytest.param("fork", BUSY, signal.SIGTERM, marks=full),
        pytest.param("fork", BUSY, signal.SIGINT, marks=full),
    ],
)
def test_workers_of_every_sampler_end_when_their_master_is_killed(run_master, start_method, then, how):
    program = run_master(start_method, IN_EACH_OF_FOUR.format(then=then))
    masters, workers = [], []
    while len(masters) < len(SAMPLERS) or len(workers) < 2 * len(SAMPLERS):
        what, *pids = program.stdout.readline().split()
        (masters if what == "master" else workers).extend(map(int, pids))
    time.sleep(random.random() * 0.5)
    for pid in masters:
        os.kill(pid, how)
    program.communicate(timeout=30)
    assert len(workers) == 2 * len(SAMPLERS) and gone(workers)


@full
@pytest.mark.timeout(120)
def test_other_processes_of_the_program_can_be_terminated(run_master):
    then = """
import multiprocessing
sampler = start("CPU")
other = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(1000,))
other.start()
other.terminate()
other.join(20)
say("exit", other.exitcode)
sampler.shutdown()"""
    out, err = run_master("forkserver", then).communicate(timeout=100)
    assert f"exit {-signal.SIGTERM}" in out, err


STARTING = """
import sys, time
sys.path[:0] = [{tests!r}]
import torch  # What workers send is then sent in another way.
from agents_for_tests import RecordingAgent
from envs import StartingEnv
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

if __name__ == "__main__":
    settings = dict(batch_T=5, batch_B=4, max_decorrelation_steps=0, start_method={start_method!r})
    sampler = CpuSampler(StartingEnv, dict(keeps_gil={keeps_gil}), **settings)
    sampler.initialize(RecordingAgent(), dict(workers_cpus=[0, 1], set_affinity=False), seed=0)
    print("workers", *[process.pid for process in sampler._pool.processes], flush=True)
    sampler.state_dict()  # As a snapshot does.
    print("ready", flush=True)
    {then}
"""
ENDS = {
    "shutdown": "sampler.shutdown()",
    "a failure": "sampler._pool.processes[0].kill(); sampler.obtain_samples(0)",
    "the master is killed": "sampler.obtain_samples(0); time.sleep(1000)",
    "the master is killed while workers keep the GIL": "sampler.obtain_samples(0); time.sleep(1000)",
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "end, start_method",
    thinned(
        [*((end, "fork") for end in ENDS), *((end, method) for method in ("spawn", "forkserver") for end in list(ENDS)[1:3])],
        quick=[("shutdown", "fork")],
    ),
)
def test_nothing_outlives_a_sampler_also_not_what_environments_start(end, start_method):
    """No process, and no file in $TMPDIR."""
    with tempfile.TemporaryDirectory() as directory:  # Not tmp_path, which is too long for sockets.
        code = STARTING.format(tests=str(TESTS), start_method=start_method, keeps_gil="GIL" in end, then=ENDS[end])
        script = Path(directory, "script.py")
        script.write_text(code)
        temporary = Path(directory, "t")
        temporary.mkdir()
        settings = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(os.environ, TMPDIR=str(temporary)))
        program = subprocess.Popen([sys.executable, str(script)], **settings)
        pids = []
        while (words := program.stdout.readline().split()) != ["ready"]:
            pids += map(int, words[1:])
        assert len(pids) == 2 + 4 and not gone(pids[:1], seconds=0)
        if "killed" in end:
            time.sleep(0.5)
            program.kill()
        program.wait()
        program.stdout.close()
        assert gone(pids)
        deadline = time.monotonic() + 10
        while any(temporary.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not list(temporary.iterdir())


@every_sampler
def test_environments_that_are_not_closed_in_time_are_named(kind, monkeypatch):
    monkeypatch.setattr("rlpyt.samplers.workers.STOP_GRACE", 0.5)
    sampler = start(kind, dict(fail_in="close", how="hang"))
    with pytest.warns(UserWarning, match=r"environments were not closed within 0.5 s: sampler worker 0 \(environments 0 to 1\)"):
        sampler.shutdown()


@full
@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
def test_a_program_that_forgets_shutdown_exits_cleanly(run_master, start_method):
    then = "samplers = [start(kind) for kind in SAMPLERS]\nfor sampler in samplers:\n    sampler.obtain_samples(0)"
    program = run_master(start_method, then)
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0 and not err, err
    assert gone([int(pid) for pid in out.split() if pid.isdigit()])


@full
def test_workers_ignore_ctrl_c(run_master):
    then = (
        "samplers = [start(kind) for kind in SAMPLERS]\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.killpg(0, signal.SIGINT)\n"
        "time.sleep(0.5)\nfor sampler in samplers:\n    sampler.obtain_samples(0)\n    sampler.shutdown()\nprint('went on')"
    )
    program = run_master("fork", then)
    out, err = program.communicate(timeout=60)
    assert "went on" in out, err


@every_sampler
def test_ctrl_c_in_the_middle_of_a_batch_ends_in_a_clean_shutdown(kind, tmp_path):
    for phase in ("collecting", "evaluating"):
        directory = tmp_path / phase
        directory.mkdir()
        sampler = start(kind, dict(directory=str(directory)), EnvCls=SlowClosingEnv, eval_n_envs=2, eval_max_steps=10**6)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            collect_forever(sampler) if phase == "collecting" else sampler.evaluate_agent(0)
        sampler.stop_evaluation()
        sampler.shutdown()
        assert not living_children()
        assert len(closed_in_workers(directory)) == 4 + 2


@every_sampler
def test_a_sampler_that_was_interrupted_in_the_middle_of_a_batch_hands_out_no_half_batch_later(kind):
    sampler = start(kind, EnvCls=SlowEnv, batch_T=1000)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sampler.obtain_samples(0)
    with pytest.raises(RuntimeError, match="initialize"):
        sampler.obtain_samples(1)
    sampler.shutdown()


class SlowClosingEnv(ClosingEnv):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


@full
@every_sampler
def test_samplers_come_and_go_without_leaving_descriptors_or_memory(kind):
    def cycles(n):
        for _ in range(n):
            sampler = start(kind, EnvCls=CountingEnv)
            sampler.obtain_samples(0)
            sampler.shutdown()
        gc.collect()

    cycles(5)
    process = psutil.Process()
    n_fds, rss = process.num_fds(), process.memory_info().rss
    cycles(30)
    assert process.num_fds() <= n_fds + 2
    assert process.memory_info().rss <= rss * 1.05


@every_sampler
def test_a_sampler_that_is_dropped_takes_its_workers_along(kind):
    sampler = start(kind, EnvCls=CountingEnv)
    pids = [process.pid for process in sampler._pool.processes]
    del sampler
    gc.collect()
    assert gone(pids)


@gpu_samplers
def test_signals_are_empty_after_every_batch_and_every_evaluation(kind):
    sampler = start(kind, EnvCls=CountingEnv, n_workers=4, eval_n_envs=3, eval_max_steps=30)
    assert len(sampler.signals) >= 2 and all(signal.is_empty() for signal in sampler.signals)
    for itr in range(20):
        sampler.obtain_samples(itr)
        assert all(signal.is_empty() for signal in sampler.signals)
        sampler.evaluate_agent(itr)
        assert all(signal.is_empty() for signal in sampler.signals)
    sampler.shutdown()


# ---------------------------------------------------------------------------------------------------------------------
# What workers load
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start_method", thinned(["spawn", "forkserver"], quick=["spawn"]))
@pytest.mark.parametrize("EnvCls", [ModulesEnv, pytest.param(VectorEnvs(ModulesVector), marks=full)], ids=["single", "vector"])
@gpu_samplers
def test_workers_that_are_served_actions_import_neither_torch_nor_numba(kind, EnvCls, start_method):
    sampler = start(kind, EnvCls=EnvCls, start_method=start_method, eval_n_envs=2, eval_max_steps=20)
    samples, _ = sampler.obtain_samples(0)
    sampler.evaluate_agent(0)
    samples, _ = sampler.obtain_samples(1)
    sampler.shutdown()
    assert not samples.env.env_info.torch.any() and not samples.env.env_info.numba.any()


@full
def test_the_modules_of_workers_that_act_themselves_show_that_this_can_be_seen():
    sampler = start("CPU", EnvCls=ModulesEnv, start_method="spawn")
    samples, _ = sampler.obtain_samples(0)
    sampler.shutdown()
    assert samples.env.env_info.torch.all()


# ---------------------------------------------------------------------------------------------------------------------
def runner(RunnerCls, cuda_idx):
    """Make a runner whose only process, or one of whose processes, uses that GPU."""
    SamplerCls = AsyncSerialSampler if RunnerCls is AsyncRl else SerialSampler
    affinity = {
        MinibatchRl: dict(cuda_idx=cuda_idx),
        SyncRl: [dict(cuda_idx=0), dict(cuda_idx=cuda_idx)],
        AsyncRl: dict(optimizer=[dict(cuda_idx=0)], sampler=dict(cuda_idx=cuda_idx)),
    }[RunnerCls]
    sampler = SamplerCls(EnvCls=CountingEnv, batch_T=2, batch_B=2)
    return RunnerCls(algo=DQN(), agent=RecordingAgent(), sampler=sampler, n_steps=10, affinity=affinity)


@pytest.mark.parametrize("RunnerCls", [MinibatchRl, SyncRl, AsyncRl])
def test_a_gpu_that_is_not_there_is_an_error_of_the_runner_before_anything_starts(RunnerCls, monkeypatch):
    monkeypatch.setattr(accelerator, "count", lambda: 2)
    assert runner(RunnerCls, 1)
    with pytest.raises(ValueError, match=r"^cuda_idx=2 is not possible: only GPUs 0 to 1 are visible to this process \("):
        runner(RunnerCls, 2)
    monkeypatch.setattr(accelerator, "count", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    says = r"no GPU is visible to this process \(this torch was installed for the CPU alone\)\. None is for the CPU\.$"
    with pytest.raises(ValueError, match=says):
        runner(RunnerCls, 1)
    with no_new_runs("This is only looked at."):
        assert runner(RunnerCls, 1)


# ---------------------------------------------------------------------------------------------------------------------
# What new processes import
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
@pytest.mark.timeout(60)
def test_what_a_worker_cannot_import_is_said_before_it_starts(start_method):
    with pytest.raises(ValueError) as error:
        start("CPU", EnvCls=lambda: CountingEnv(), start_method=start_method)
    says = str(error.value)
    assert re.match(r"Sampler worker 0 \(environments 0 to 1\) cannot be given what it needs: Can't (pickle|get) local object", says)
    assert says.endswith("such as EnvCls must be found by name in a module: define them at its top level, not by lambda or in a function.")
    assert not living_children()


UNGUARDED = """
import sys
from agents_for_tests import RecordingAgent
from envs import CountingEnv
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.logging.context import logger_context

sampler = CpuSampler(EnvCls=CountingEnv, batch_T=2, batch_B=2, start_method=sys.argv[1])
agent = RecordingAgent()
agent.more = bytes(1_000_000)  # Much more than a pipe has room for.
if sys.argv[2] == "with a log":
    with logger_context(sys.argv[3], 0, "mine"):
        sampler.initialize(agent, affinity=dict(workers_cpus=[0, 0], set_affinity=False), seed=0)
else:
    sampler.initialize(agent, affinity=dict(workers_cpus=[0, 0], set_affinity=False), seed=0)
"""


@full
@pytest.mark.timeout(200)
@pytest.mark.parametrize("log", ["with a log", "without"])
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_script_without_main_guard_is_told_so_in_the_last_line_and_is_run_once(start_method, log, tmp_path):
    (tmp_path / "mine.py").write_text(UNGUARDED)
    command = [sys.executable, str(tmp_path / "mine.py"), start_method, log, str(tmp_path / "log")]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(TESTS), *sys.path]))
    result = subprocess.run(command, capture_output=True, text=True, timeout=180, env=env)
    assert result.returncode == 1 and result.stderr.count("Traceback") == 1
    assert result.stderr.splitlines()[-1].endswith('put what it does below `if __name__ == "__main__":`.')
    if log == "with a log":
        assert [file.name for file in tmp_path.glob("log/*/*.log")] == ["debug.log"]  # None that was moved aside for another.


def counts_bytes(pipe, **kwargs):
    pipe.send(("ok", sum(map(len, kwargs.values()))))
    pipe.recv()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_worker_gets_arguments_that_no_pipe_has_room_for(start_method):
    pool = WorkerPool(counts_bytes, [dict(a=bytes(3_000_000), b=b"12")], ["a worker"], start_method=start_method)
    assert pool.receive() == [3_000_002]
    pool.stop()
    assert not living_children()


FAILS_IN_WORKERS = """
if __name__ == "__mp_main__":
    raise ImportError("no such module here")
from rlpyt.samplers.workers import WorkerPool

def work(pipe, data):
    pass

if __name__ == "__main__":
    WorkerPool(work, [dict(data=bytes(1_000_000))], ["a worker"], start_method="spawn").receive()
"""


@pytest.mark.timeout(60)
def test_a_worker_that_cannot_import_the_script_is_an_error_however_much_it_would_get(tmp_path):
    (tmp_path / "mine.py").write_text(FAILS_IN_WORKERS)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    result = subprocess.run([sys.executable, str(tmp_path / "mine.py")], capture_output=True, text=True, timeout=50, env=env)
    assert result.returncode == 1 and "ImportError: no such module here" in result.stderr
    assert re.search(r"WorkerError: A worker, pid \d+, ended with exit code 1 while starting", result.stderr.splitlines()[-1]), (
        result.stderr
    )


@full
@processes
@pytest.mark.timeout(200)
def test_a_script_that_is_in_no_file_is_told_so_where_new_processes_would_import_it(tmp_path):
    script = UNGUARDED.replace('if sys.argv[2] == "with a log":', 'if __name__ != "__main__":\n    pass\nelif sys.argv[2] == "with a log":')
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(TESTS), *sys.path]))
    result = subprocess.run([sys.executable, "-", "spawn", "without"], input=script, capture_output=True, text=True, timeout=180, env=env)
    assert result.returncode == 1 and "run `python train.py`, not `python -` or a session" in result.stderr.splitlines()[-1], result.stderr
