"""The checks of ``rlpyt info --check``: does this installation work on this machine?

Each check is a function in a separate process, with a temporary directory and a time limit. A check that crashes or hangs is therefore
reported like any other, and everything it started or wrote is removed. A check takes its directory and returns a remark. It raises
an error if something does not work, or `NotHere` if there is nothing to check.

::

    rlpyt info --check                              one process for each check, as many at a time as there are processors
      results()  -------- function, seconds ------->  main() calls the function
                 <---------- result.json -----------  no such file, if it crashed or hung
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlpyt.utils import accelerator
from rlpyt.utils.extras import clone_directory, install_command, missing_modules
from rlpyt.utils.text import said, traceback_of

OK, NONE, MISSING, FAILED = "ok", "none", "missing", "FAILED"
TIMEOUT = 120.0  # Time limit of a check (seconds), generous for busy machines.
GRACE = 5.0  # Seconds after the time limit until the process is killed, if it does not end itself.
LONGEST_REASON = 400  # characters
LONGEST_OUTPUT = 20_000
AFFINITY = dict(workers_cpus=[0], set_affinity=False)  # one worker, on any processor
_RESULT, _OUTPUT = "result.json", "output.txt"
_SCRIPT = "import sys; from rlpyt.cli.checks import main; main(*sys.argv[1:])"


class NotHere(Exception):
    """There is nothing to check on this machine; the message says why."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: name to display.
        function: called as ``function(directory)`` in another process, which imports it by name; returns a short remark.
        extra: the extra of setup.py that the check needs, a key of `rlpyt.utils.extras.EXTRAS`.
    """

    name: str
    function: Callable[[Path], str]
    extra: str | None = None


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a check.

    Attributes:
        name: name of the check.
        status: OK; NONE, if there is nothing to check; MISSING, if the extra is not installed; or FAILED.
        detail: for these, in order: a remark, why there is nothing, the command that installs the extra, or the reason of the failure.
        seconds: duration.
        output: everything that a failed check printed, with tracebacks; empty for others.
    """

    name: str
    status: str
    detail: str
    seconds: float = 0.0
    output: str = ""


# ---------------------------------------------------------------------------------------------------------------------
# Running checks
# ---------------------------------------------------------------------------------------------------------------------
def results(checks: Sequence[Check], timeout: float = TIMEOUT, at_once: int | None = None) -> Iterator[Result]:
    """Run checks, and yield their results in order, each as soon as possible.

    Args:
        checks: the checks.
        timeout: time limit of each (seconds).
        at_once: number of checks that run at a time; None for the number of processors that this process may use.
    """
    if at_once is None:
        from rlpyt.utils.processors import allowed_cpus

        at_once = len(allowed_cpus())
    known: dict[int, Result] = {}
    running: dict[int, _Running] = {}
    to_start = list(enumerate(checks))
    with tempfile.TemporaryDirectory(prefix="rlpyt-", ignore_cleanup_errors=True) as directory:
        try:
            for i in range(len(checks)):
                while i not in known:
                    while to_start and len(running) < at_once:
                        j, check = to_start.pop(0)
                        if missing := check.extra and missing_modules(check.extra):
                            known[j] = Result(check.name, MISSING, f"{install_command(check.extra)}  (for {', '.join(missing)})")
                        else:
                            running[j] = _Running(check, Path(directory) / str(j), timeout)
                    ended = [j for j in running if running[j].has_ended()]
                    known.update((j, running.pop(j).result()) for j in ended)
                    if not ended:
                        time.sleep(0.02)
                yield known[i]
        finally:
            for each in running.values():
                each.end()


class _Running:
    """A check in a separate process. Its descendants are recognized by session, or by the directory in their environment."""

    def __init__(self, check: Check, directory: Path, timeout: float) -> None:
        self.check, self.directory, self.timeout, self.start = check, directory, timeout, time.monotonic()
        directory.mkdir()
        target = f"{check.function.__module__}:{check.function.__qualname__}"
        environment = dict(os.environ, TMPDIR=str(directory), PYTHONPATH=os.pathsep.join(map(os.path.abspath, sys.path)))
        environment.setdefault("OMP_NUM_THREADS", "1")  # several checks run at a time
        with open(directory / _OUTPUT, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SCRIPT, target, str(timeout)],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        return self.process.poll() is not None or time.monotonic() > self.start + self.timeout + GRACE

    def result(self) -> Result:
        """End the remaining processes, and return the result."""
        seconds = time.monotonic() - self.start
        self.end()
        try:
            status, detail = json.loads((self.directory / _RESULT).read_text())
        except (OSError, ValueError):  # The check ended before it wrote a result.
            status, detail = FAILED, self._why_it_said_nothing(seconds)
        output = "" if status != FAILED else (self.directory / _OUTPUT).read_text(errors="replace")[-LONGEST_OUTPUT:]
        return Result(self.check.name, status, detail, seconds, output)

    def _why_it_said_nothing(self, seconds: float) -> str:
        code = self.process.returncode
        if seconds >= self.timeout:
            return f"It did not end within {self.timeout:g} s."
        if code < 0:
            return f"Its process was ended by {signal.Signals(-code).name}."
        return f"Its process ended with exit code {code}."

    def end(self) -> None:
        """End the process and all its descendants, including those that lead a session or have lost their parent."""
        import psutil

        for _ in range(100):  # A process may start another one while it is being killed.
            members = [process for process in psutil.process_iter() if self._is_member(process)]
            if not members:
                break
            for process in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(0.01)
        self.process.wait()

    def _is_member(self, process: Any) -> bool:
        import psutil

        with contextlib.suppress(psutil.Error, OSError):  # It has ended, or belongs to another user.
            if process.status() != psutil.STATUS_ZOMBIE:
                return os.getsid(process.pid) == self.process.pid or process.environ().get("TMPDIR") == str(self.directory)
        return False


def main(target: str, timeout: str) -> None:
    """Run the function of a check in its process, and write the result into the current directory.

    Args:
        target: "module:function".
        timeout: time limit (seconds), after which the process prints its stack and ends.
    """
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(timeout), exit=True)  # also while C code holds the interpreter lock
    module, _, function = target.partition(":")
    try:
        result = OK, getattr(importlib.import_module(module), function)(Path.cwd())
    except NotHere as reason:
        result = NONE, str(reason)
    except BaseException as error:
        print(traceback_of(error), file=sys.stderr)
        result = FAILED, _sentence(error)
    Path(_RESULT).write_text(json.dumps(result))


def _sentence(error: BaseException) -> str:
    """Return the class of an exception, and the first line of its message."""
    lines = [line.strip() for line in said(error).splitlines() if line.strip()] or [""]
    text = f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]} ..."


def where_to_read_on() -> str:
    """Return the documentation page of the checks, which says what helps if one fails."""
    clone = clone_directory()
    return f"{'' if clone is None else f'{clone}/'}docs/installing.md#checks"


# ---------------------------------------------------------------------------------------------------------------------
# The checks
# ---------------------------------------------------------------------------------------------------------------------
def shared_memory(directory: Path) -> str:
    """Let another process write to an array, under a lock, and read the array here."""
    from rlpyt.samplers.workers import default_start_method
    from rlpyt.utils.buffer import available_bytes, np_mp_array

    context: Any = multiprocessing.get_context(default_start_method())
    array, lock = np_mp_array(2**20, "int64"), context.Lock()
    process = context.Process(target=_fill, args=(array, lock))
    process.start()
    process.join()
    with lock:
        if process.exitcode != 0 or not (array == 1).all():
            raise RuntimeError(f"Data written by another process are not visible here; it ended with exit code {process.exitcode}.")
    return f"{available_bytes() / 1e9:.1f} GB of memory are free"


def _fill(array: Any, lock: Any) -> None:
    with lock:
        array[:] = 1


def fork(directory: Path) -> str:
    """Sample with a worker process that is forked."""
    return _sample("fork")


def spawn(directory: Path) -> str:
    """Sample with a worker process that is spawned."""
    return _sample("spawn")


def forkserver(directory: Path) -> str:
    """Sample with a worker process that a fork server starts."""
    return _sample("forkserver")


def _sample(start_method: str) -> str:
    from rlpyt.agents.pg.mlp import MlpFfAgent
    from rlpyt.envs.gym import make
    from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

    env_kwargs = dict(id="CartPole-v1")
    sampler = CpuSampler(EnvCls=make, env_kwargs=env_kwargs, batch_T=8, batch_B=2, max_decorrelation_steps=0, start_method=start_method)
    try:
        sampler.initialize(MlpFfAgent(), AFFINITY, seed=0)
        samples, _ = sampler.obtain_samples(0)
    finally:
        sampler.shutdown()
    if not (samples.env.reward == 1).all():
        raise RuntimeError("Data written by the worker are not visible here.")
    return "a batch from a worker process"


def numba(directory: Path) -> str:
    """Draw from a sum tree of priorities, whose functions are compiled."""
    import numpy as np

    from rlpyt.replays.sum_tree import SumTree

    tree = SumTree(T=100, B=2, off_backward=1, off_forward=0)
    tree.advance(50)
    (T_idxs, B_idxs), _ = tree.sample(16)
    tree.update_batch_priorities(np.full(16, 3.0))
    if not (tree.priorities[T_idxs, B_idxs] == 3).all() or tree.total != tree.priorities.sum():
        raise RuntimeError(f"Compiled functions compute a wrong sum of priorities: {tree.total} instead of {tree.priorities.sum()}.")
    return "compiled functions for replay"


def classic_control(directory: Path) -> str:
    """Train on CartPole, in one process."""
    _train(directory)
    return "a training run, PPO on CartPole-v1"


def gpu(directory: Path) -> str:
    """Multiply matrices on each GPU, and train on the first."""
    import warnings

    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        n = accelerator.count() if torch.accelerator.is_available() else 0
    if n == 0:
        if torch.accelerator.current_accelerator() is None:
            raise NotHere(f"torch {torch.__version__} is built for the CPU only")
        if caught and Path("/dev/nvidiactl").exists():  # e.g. for a driver that is too old
            raise RuntimeError(str(caught[0].message))
        raise NotHere("torch sees none")
    for i in range(n):
        ones = torch.ones(64, 64, device=accelerator.device_of(i))
        if (ones @ ones).sum().item() != 64**3:
            raise RuntimeError(f"GPU {i}, {accelerator.name(i)}, computes a wrong product of matrices.")
    _train(directory, affinity=dict(cuda_idx=0))
    return f"{', '.join(accelerator.name(i) for i in range(n))}; a training run on the first"


def atari(directory: Path) -> str:
    """Train on Pong."""
    from rlpyt.agents.pg.atari import AtariFfAgent
    from rlpyt.envs.atari.atari_env import AtariEnv

    _train(directory, AtariFfAgent, EnvCls=AtariEnv, env_kwargs=dict(game="pong"))
    return "a training run, PPO on Pong"


def mujoco(directory: Path) -> str:
    """Train on HalfCheetah."""
    from rlpyt.agents.pg.mujoco import MujocoFfAgent

    _train(directory, MujocoFfAgent, env_kwargs=dict(id="HalfCheetah-v5"))
    return "a training run, PPO on HalfCheetah-v5"


def box2d(directory: Path) -> str:
    """Train on LunarLander."""
    _train(directory, env_kwargs=dict(id="LunarLander-v3"))
    return "a training run, PPO on LunarLander-v3"


def envpool(directory: Path) -> str:
    """Train on a vector of CartPoles."""
    from rlpyt.envs.vector import VectorEnvs, make_envpool

    _train(directory, EnvCls=VectorEnvs(make_envpool), env_kwargs=dict(task_id="CartPole-v1"))
    return "a training run, PPO on EnvPool's CartPole-v1"


def ray(directory: Path) -> str:
    """Train with an actor on a Ray cluster that this process starts."""
    from rlpyt.samplers.ray.batch_sampler import RayBatchSampler

    os.environ.pop("RAY_ADDRESS", None)
    _train(directory, SamplerCls=RayBatchSampler, n_actors=1, init_kwargs=dict(object_store_memory=100_000_000, num_cpus=1))
    return "a training run with an actor on a local cluster"


def plot(directory: Path) -> str:
    """Draw a learning curve."""
    from rlpyt.utils.plotting import plot_learning_curve

    (directory / "progress.csv").write_text("CumSteps,ReturnAverage\n100,20\n200,30\n")
    plot_learning_curve(directory)
    return "a learning curve"


def video(directory: Path) -> str:
    """Film an agent on CartPole."""
    from rlpyt.cli import main as rlpyt

    run_dir = _train(directory)
    if rlpyt(["video", run_dir, "--max_steps", "10", "--out", "video.mp4"]) != 0:
        raise RuntimeError("rlpyt video ended with an error.")
    return "an MP4 of CartPole-v1"


def tensorboard(directory: Path) -> str:
    """Write a log for TensorBoard."""
    if not list(Path(_log(directory, use_summary_writer=True)).glob("events.out.*")):
        raise RuntimeError("No event file was written.")
    return "a log with use_summary_writer=True"


def wandb(directory: Path) -> str:
    """Write an offline log of Weights & Biases."""
    for name in ("CACHE", "CONFIG", "DATA"):
        os.environ[f"WANDB_{name}_DIR"] = str(directory)
    _log(directory, use_wandb=dict(project="check", mode="offline"))
    return "a log that is not sent"


def _log(directory: Path, **settings: Any) -> str:
    from rlpyt.utils.logging import logger
    from rlpyt.utils.logging.context import logger_context

    with logger_context(str(directory), 0, name="check", **settings) as run_dir:
        logger.record_tabular("ReturnAverage", 1.0)
        logger.dump_tabular()
    return run_dir


def minari(directory: Path) -> str:
    """Write a dataset, and read it back."""
    os.environ["MINARI_DATASETS_PATH"] = str(directory)
    import numpy as np
    from gymnasium.spaces import Box, Discrete

    from rlpyt.episodes import EnvSpec, EpisodeBatch
    from rlpyt.episodes.minari import from_minari, to_minari

    spec = EnvSpec(Box(0, 9, (2,), np.float32), Discrete(2))
    steps = dict(observations=np.ones((4, 2), np.float32), actions=np.array([0, 1, 1]), rewards=np.ones(3), step_types=[0, 1, 2])
    episodes = EpisodeBatch.from_list(spec, [steps])
    if from_minari(to_minari(episodes, "rlpyt/check-v0")) != episodes:
        raise RuntimeError("The dataset read differs from the one written.")
    return "a dataset, written and read"


def tune(directory: Path) -> str:
    """Ask Optuna for the settings of a trial."""
    from rlpyt.utils.launching.journal import History
    from rlpyt.utils.launching.proposals import make_proposals
    from rlpyt.utils.launching.space import Space, uniform

    (value,) = make_proposals("optuna", Space(dict(x=uniform(0, 1))), seed=0, exp_dir=directory).propose(History(1, [1], 2))
    if not 0 <= value <= 1:
        raise RuntimeError(f"Optuna proposed {value}, which is not between 0 and 1.")
    return "a setting proposed by Optuna"


def _train(
    directory: Path,
    AgentCls: Any = None,
    SamplerCls: Any = None,
    affinity: dict | None = None,
    **kwargs: Any,
) -> str:
    """Train briefly with PPO, by default on CartPole in one process, and return the directory of the run.

    Args:
        directory: directory of the log.
        AgentCls: default `MlpFfAgent`.
        SamplerCls: default `SerialSampler`.
        affinity: affinity of the runner.
        kwargs: further arguments of the sampler.
    """
    from rlpyt.agents.pg.mlp import MlpFfAgent
    from rlpyt.algos.pg.ppo import PPO
    from rlpyt.envs.gym import make
    from rlpyt.runners.minibatch_rl import MinibatchRl
    from rlpyt.samplers.serial.sampler import SerialSampler
    from rlpyt.utils.logging.context import logger_context

    settings = {"EnvCls": make, "env_kwargs": dict(id="CartPole-v1"), "max_decorrelation_steps": 0, **kwargs}
    runner = MinibatchRl(
        algo=PPO(minibatches=2, epochs=1),
        agent=(AgentCls or MlpFfAgent)(),
        sampler=(SamplerCls or SerialSampler)(batch_T=16, batch_B=2, **settings),
        n_steps=64,
        log_interval_steps=32,
        affinity={**AFFINITY, **(affinity or {})},
        seed=0,
    )
    with logger_context(str(directory), 0, name="check") as run_dir:
        runner.train()
    return run_dir


_START_METHODS = tuple(f for f in (fork, spawn, forkserver) if f.__name__ in multiprocessing.get_all_start_methods())
_OF_EXTRAS = (atari, mujoco, box2d, envpool, ray, plot, video, wandb, minari, tune)
CHECKS = (
    Check("shared memory", shared_memory),
    *(Check(f"start method {function.__name__}", function) for function in _START_METHODS),
    Check("numba", numba),
    Check("GPU", gpu),
    Check("classic control", classic_control),
    Check("tensorboard", tensorboard),
    *(Check(function.__name__, function, function.__name__) for function in _OF_EXTRAS),
)
