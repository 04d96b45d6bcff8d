"""Ctrl-C and SIGTERM at random moments of runs: ``python tests/signal_trials.py --trials 200``; tests take some of them.

Each trial is a process that trains, with a runner, a sampler, a start method and an environment that are drawn. It gets one signal between
the first line of `train()` and some seconds later. A signal is lost if the process has not ended `LOST` seconds after it.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import psutil
import torch._dynamo  # As the first step of an optimizer does: so that trials need not.
from envs import CountingEnv

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.pg.a2c import A2C
from rlpyt.runners.async_rl import AsyncRl, AsyncRlEval
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
from rlpyt.runners.sync_rl import SyncRl, SyncRlEval
from rlpyt.samplers.async_.alternating_sampler import AsyncAlternatingSampler
from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
from rlpyt.samplers.async_.gpu_sampler import AsyncGpuSampler
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.parallel.gpu.alternating_sampler import AlternatingSampler
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

RUNNERS = {cls.__name__: cls for cls in (MinibatchRl, MinibatchRlEval, SyncRl, SyncRlEval, AsyncRl, AsyncRlEval)}
SAMPLERS = dict(serial=SerialSampler, cpu=CpuSampler, gpu=GpuSampler, alternating=AlternatingSampler)
ASYNC_SAMPLERS = dict(serial=AsyncSerialSampler, cpu=AsyncCpuSampler, gpu=AsyncGpuSampler, alternating=AsyncAlternatingSampler)
START_METHODS = ("fork", "spawn", "forkserver")
# Seconds of a step, and the step at which an environment hangs.
ENVS = dict(fast=(0, None), slow=(0.05, None), hangs=(0, 1000), hangs_at_once=(0, 3), hangs_with_gil=(0, 1000))
LOST = 40  # seconds
PROMISED = 10  # seconds, on a machine with nothing else to do


class TrialEnv(CountingEnv):
    """A CountingEnv whose steps take a while, or of which one does not end."""

    def __init__(self, seconds=0.0, hangs_at=None, keeps_gil=False, **kwargs):
        super().__init__(**kwargs)
        self.seconds, self.hangs_at, self.keeps_gil, self.n_steps = seconds, hangs_at, keeps_gil, 0

    def step(self, action):
        self.n_steps += 1
        if self.n_steps == self.hangs_at:
            ctypes.PyDLL(None).sleep(10**6) if self.keeps_gil else time.sleep(10**6)
        time.sleep(self.seconds)
        return super().step(action)


def train(runner, sampler, start_method, env, directory, when_it_begins):
    """What a trial's process does: an endless run."""
    is_async = "Async" in runner
    seconds, hangs_at = ENVS[env]
    kwargs = {} if sampler == "serial" and not is_async else dict(start_method=start_method)
    made = (ASYNC_SAMPLERS if is_async else SAMPLERS)[sampler](
        TrialEnv, dict(seconds=seconds, hangs_at=hangs_at, keeps_gil="gil" in env), batch_T=20, batch_B=4, max_decorrelation_steps=40,
        eval_n_envs=2, eval_max_steps=200, eval_env_kwargs={}, **kwargs,
    )  # fmt: skip
    one = dict(master_torch_threads=1, workers_cpus=[0, 1], set_affinity=False)
    agent, algo = (MlpDqnAgent(), DQN(min_steps_learn=80, replay_size=1000)) if is_async else (MlpFfAgent(), A2C())
    affinity = [one, one] if "Sync" in runner else one
    built = RUNNERS[runner](algo=algo, agent=agent, sampler=made, n_steps=10**9, log_interval_steps=800, seed=0, affinity=affinity)
    with logger_context(directory, 0, "trial", snapshot_mode="last"):
        print("training", flush=True)
        when_it_begins()
        built.train()


def trial(runner, sampler, start_method, env, number, delay):
    """Run one; return what it came to: the seconds from the signal to the end, and what is wrong."""
    directory = Path(tempfile.mkdtemp(prefix="trial-"))
    (directory / "tmp").mkdir()
    shm = set(os.listdir("/dev/shm"))
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.environ["TMPDIR"] = tempfile.tempdir = str(directory / "tmp")
        output = os.open(directory / "output", os.O_RDWR | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        _train_and_exit(reads, writes, runner, sampler, start_method, env, directory)
    os.close(writes)
    os.read(reads, 1)  # Ends before the first line of train().
    os.close(reads)
    time.sleep(delay)
    os.killpg(pid, number)  # As a terminal does, or a batch system.
    began, wrong, status = time.monotonic(), [], None
    while status is None and time.monotonic() < began + LOST:
        time.sleep(0.02)
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if ended else None
    seconds = time.monotonic() - began
    if status is None:
        wrong.append("the signal was lost")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    elif status != 128 + number:
        wrong.append(f"exit code {status}")
    wrong += _left_behind(pid, directory / "tmp", shm) + _snapshot_is_wrong(directory)
    result = dict(runner=runner, sampler=sampler, start_method=start_method, env=env, signal=number.name, delay=round(delay, 2))
    result.update(seconds=round(seconds, 2), wrong=wrong, output=(directory / "output").read_text()[-4000:] if wrong else "")
    shutil.rmtree(directory)
    return result


def _train_and_exit(reads, writes, runner, sampler, start_method, env, directory):
    code = 1
    try:
        os.close(reads)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        train(runner, sampler, start_method, env, directory, when_it_begins=lambda: os.close(writes))
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        import multiprocessing.util

        multiprocessing.util._exit_function()
        os._exit(code)


def _left_behind(session, tmp, shm):
    """Processes that still live some seconds later, and files in $TMPDIR and /dev/shm."""
    deadline = time.monotonic() + 5
    while True:
        left = list(_processes(session, str(tmp)))
        left += [f"/dev/shm/{name}" for name in set(os.listdir("/dev/shm")) - shm]
        left += [f"temporary {name}" for name in os.listdir(tmp) if not name.startswith("torchinductor")]  # A cache, which torch keeps.
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _processes(session, tmp):
    """Describe those of the trial; what cleans up after it is in a session of its own, and knows the directory."""
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            if (os.getsid(process.pid) == session or tmp in line) and process.status() != psutil.STATUS_ZOMBIE:
                yield f"process {process.pid} {line[:80]}"
        except (OSError, psutil.Error):  # It has just ended.
            pass


def _snapshot_is_wrong(directory):
    """If the log tells of a last complete iteration: the snapshot must be of it, and readable."""
    log, file = directory / "run_0" / "debug.log", directory / "run_0" / "params.pkl"
    text = log.read_text() if log.exists() else ""
    stopped = [line.rsplit(" ", 1)[1].rstrip(".") for line in text.splitlines() if "Stopped after iteration" in line]
    if not stopped:
        return ["a snapshot is missing"] if "WARNING: the sampler did not end" in text and "itr #1 " in text else []
    saved = torch.load(file, weights_only=True)
    return [] if str(saved.get("sampler_itr", saved["itr"])) == stopped[0] else [f"snapshot of {saved['itr']}, stopped after {stopped[0]}"]


def draw(generator, **fixed):
    """Return the settings of a trial."""
    drawn = dict(
        runner=generator.choice(list(RUNNERS)),
        sampler=generator.choice(list(SAMPLERS)),
        start_method=generator.choice(START_METHODS),
        env=generator.choice(list(ENVS)),
        number=generator.choice([signal.SIGINT, signal.SIGTERM]),
    )
    drawn.update(fixed)
    if "gil" in drawn["env"] and drawn["sampler"] == "serial" and "Async" not in drawn["runner"]:
        drawn["env"] = "hangs"  # Nothing can be done where environments keep the master's own GIL.
    longest = 3.0 if drawn["start_method"] == "fork" else 8.0  # Others import everything again.
    return dict(drawn, delay=generator.choice([generator.uniform(0, 0.2), generator.uniform(0, longest)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME=VALUE", help="e.g. runner=SyncRl start_method=fork")
    args = parser.parse_args()
    generator = random.Random(args.seed)
    torch.set_num_threads(1)
    results = []
    for _ in range(args.trials):
        results.append(trial(**draw(generator, **dict(each.split("=") for each in args.only))))
        print(json.dumps({name: value for name, value in results[-1].items() if name != "output"}), flush=True)
        if results[-1]["wrong"]:
            print(results[-1]["output"], flush=True)
    seconds = sorted(result["seconds"] for result in results)
    lost = sum("the signal was lost" in result["wrong"] for result in results)
    bad = sum(bool(result["wrong"]) for result in results)
    late = sum(each > PROMISED for each in seconds)
    print(f"{len(results)} trials: {lost} signals lost, {bad} with anything wrong.")
    print(f"Seconds to the end: median {seconds[len(seconds) // 2]}, longest {seconds[-1]}; {late} took more than {PROMISED}.")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
