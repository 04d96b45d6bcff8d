"""Calls every constructor and launching function with wrong settings, and counts what comes of it.

    python tests/fuzz_settings.py                  # all, as a table
    python tests/fuzz_settings.py --quick          # a twentieth of the values
    python tests/fuzz_settings.py --only PPO --show unnamed
    python tests/fuzz_settings.py --save a.json    # and then, with another version of rlpyt in PYTHONPATH, compare: --excluded a.json

For each of the subjects, whose other arguments are as they should be, each setting gets each of the wrong values; besides, its name is
misspelled. Nothing is trained, and no process is started. An outcome is

named      a ValueError or TypeError with the name of the setting
unnamed    one without it
obscure    another exception
accepted   none, and no declaration excludes the value: it may be a right one
silent     none, though the declaration of the setting excludes the value
hang       none within the time limit
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import json
import math
import os
import pkgutil
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

OUTCOMES = ("named", "unnamed", "obscure", "accepted", "silent", "hang")
TIME_LIMIT = 5.0  # seconds of a call
SEED = 0
QUICK = 20  # Of so many cases, one is quick.

WRONG = {
    "text": "abc",
    "empty text": "",
    "text of a number": "5",
    "bytes": b"5",
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "negative": -1,
    "negative fraction": -0.5,
    "zero": 0,
    "fraction": 0.5,
    "float": 2.5,
    "large": 1e308,
    "huge": 10**30,
    "larger than floats": 10**400,
    "numpy nan": np.float32("nan"),
    "tensor": torch.ones(2),
    "array of texts": np.array(["a"]),
    "None": None,
    "True": True,
    "empty list": [],
    "list": [1],
    "list of texts": ["abc"],
    "dictionary": {"abc": 1},
    "set": {1},
    "object": object(),
    "class": object,
    "function": len,
    "complex": 1j,
}


class Subject(NamedTuple):
    """What is called.

    Attributes:
        name: for the table.
        of: class or function that declares the settings.
        call: called with the arguments.
        arguments: with which it works.
    """

    name: str
    of: Callable
    call: Callable
    arguments: dict[str, Any]


class Case(NamedTuple):
    """One call with something wrong: `value`, the name of one of `WRONG`, or "misspelled"."""

    subject: Subject
    setting: str
    value: str

    def __str__(self) -> str:
        return f"{self.subject.name}({self.setting}: {self.value})"


class TooSlow(BaseException):
    """A call has taken longer than the time limit."""


# --- What is called ---------------------------------------------------------------------------------------------------
class Policy:
    """The simplest there is."""

    def get_action(self, observation):
        return np.zeros(2, np.float32), {}

    def reset(self, do_resets=None):
        pass


class Benchmark:
    """As of Meta-World, with one task to train on."""

    train_classes = {"reach": object}
    train_tasks = [SimpleNamespace(env_name="reach")]


class Tasks:
    """An environment class with tasks."""

    num_tasks = 1

    def step(self, action):
        pass

    def sample_tasks(self, n):
        return [0] * n


def experiment_function(ctxt):
    """What `wrap_experiment` wraps."""


def subjects() -> list[Subject]:
    """Everything that has settings, in an order that does not change; to be called in an empty directory."""
    from rlpyt.agents.base import BaseAgent
    from rlpyt.algos.base import RlAlgorithm
    from rlpyt.replays.base import BaseReplayBuffer
    from rlpyt.samplers.base import BaseSampler

    for package in ("agents", "algos", "replays", "samplers", "runners"):
        module = importlib.import_module(f"rlpyt.{package}")
        for info in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            with contextlib.suppress(ImportError):
                importlib.import_module(info.name)
    found = []
    for base, several in (
        (BaseAgent, [{}, dict(ModelCls=torch.nn.Linear)]),
        (RlAlgorithm, [{}]),
        (BaseReplayBuffer, list(_buffers())),
        (BaseSampler, [_sampler()]),
    ):
        for cls in sorted(_subclasses(base), key=lambda cls: (cls.__module__, cls.__name__)):
            arguments = next((each for each in several if _works(cls, each)), None)
            if arguments is not None:
                found.append(Subject(f"{cls.__module__.removeprefix('rlpyt.')}.{cls.__name__}", cls, cls, arguments))
    return [*found, *_runners(), *_episodes(), *_launching(), *_logs()]


def _subclasses(cls: type) -> set[type]:
    below = {each for sub in cls.__subclasses__() for each in {sub, *_subclasses(sub)}}
    return {each for each in below if each.__module__.startswith("rlpyt.") and not each.__name__.startswith("_")}


def _works(call: Callable, arguments: dict) -> bool:
    try:
        call(**arguments)
    except Exception:
        return False
    return True


def _sampler() -> dict[str, Any]:
    from rlpyt.envs.point_env import PointEnv

    kwargs = dict(arena_size=2.0)
    evaluation = dict(eval_n_envs=2, eval_max_steps=10, eval_max_trajectories=3, eval_env_kwargs=kwargs)
    return dict(EnvCls=PointEnv, env_kwargs=kwargs, batch_T=2, batch_B=2, **evaluation)


def _buffers() -> Iterator[dict[str, Any]]:
    from rlpyt.utils.collections import namedarraytuple

    Example = namedarraytuple("Example", ["observation", "action", "reward", "done", "prev_rnn_state"])
    for observation in (np.zeros((2, 4, 4), np.uint8), np.zeros(3, np.float32)):
        example = Example(observation, np.int64(0), np.float32(0), np.bool_(False), np.zeros((1, 2), np.float32))
        common = dict(example=example, size=64, B=2, discount=0.9, n_step_return=2)
        yield dict(common, rnn_state_interval=2, batch_T=4)
        yield common


def _runners() -> Iterator[Subject]:
    from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
    from rlpyt.agents.pg.mlp import MlpFfAgent
    from rlpyt.algos.dqn.dqn import DQN
    from rlpyt.algos.pg.a2c import A2C
    from rlpyt.runners.async_rl import AsyncRl, AsyncRlEval
    from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval
    from rlpyt.runners.sync_rl import SyncRl, SyncRlEval
    from rlpyt.runners.trainer import Trainer
    from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
    from rlpyt.samplers.serial.sampler import SerialSampler

    parts = dict(algo=A2C(), agent=MlpFfAgent(), sampler=SerialSampler(**_sampler()))
    async_parts = dict(algo=DQN(), agent=MlpDqnAgent(), sampler=AsyncSerialSampler(**_sampler()))
    for cls in (MinibatchRl, MinibatchRlEval):
        yield Subject(cls.__name__, cls, cls, dict(parts, n_steps=100))
    for cls in (SyncRl, SyncRlEval):
        yield Subject(cls.__name__, cls, cls, dict(parts, n_steps=100, affinity=[{}]))
    for cls in (AsyncRl, AsyncRlEval):
        yield Subject(cls.__name__, cls, cls, dict(async_parts, n_steps=100))
    yield Subject("Trainer", Trainer, Trainer, {})

    def train(**kwargs: Any) -> None:
        trainer = Trainer("trainer")
        trainer._check_setup = trainer._train_by_algorithm = lambda *args: None
        trainer._runner_settings = None
        trainer.train(**kwargs)

    yield Subject("Trainer.train", Trainer.train, train, dict(n_epochs=2))


def _episodes() -> Iterator[Subject]:
    from rlpyt.envs.point_env import PointEnv
    from rlpyt.envs.specs import EnvSpec
    from rlpyt.episodes.assembler import EpisodeAssembler
    from rlpyt.experiments.task_sampler import ConstructEnvsSampler, EnvPoolSampler, MetaWorldTaskSampler, SetTaskSampler
    from rlpyt.replays.episode import EpisodeReplayBuffer
    from rlpyt.samplers.episodic.evaluation import obtain_evaluation_episodes, rollout
    from rlpyt.samplers.episodic.factory import WorkerFactory
    from rlpyt.samplers.episodic.local import LocalSampler
    from rlpyt.samplers.episodic.multiprocessing import MultiprocessingSampler
    from rlpyt.samplers.episodic.workers import DefaultWorker, FragmentWorker, VecWorker

    env, worker = PointEnv(max_episode_length=3), dict(seed=0, max_episode_length=3, worker_number=0)
    spec = EnvSpec(env.observation_space, env.action_space, 3)
    yield Subject("WorkerFactory", WorkerFactory, WorkerFactory, dict(seed=0, max_episode_length=3, n_workers=1, worker_class=VecWorker))
    for cls in (DefaultWorker, VecWorker, FragmentWorker):
        yield Subject(cls.__name__, cls, cls, worker)
    for cls in (LocalSampler, MultiprocessingSampler):
        arguments = dict(agents=Policy(), envs=env, seed=0, max_episode_length=3, n_workers=1, worker_class=VecWorker)

        def make(cls: type = cls, **kwargs: Any) -> None:
            with mock.patch.object(cls, "_start"):
                cls(**kwargs)

        yield Subject(cls.__name__, cls, make, arguments)
    yield Subject("EpisodeReplayBuffer", EpisodeReplayBuffer, EpisodeReplayBuffer, dict(capacity=10, env_spec=spec))
    yield Subject("EpisodeAssembler", EpisodeAssembler, EpisodeAssembler, dict(env_spec=spec, B=2))
    yield Subject("rollout", rollout, rollout, dict(env=env, agent=Policy()))
    arguments = dict(policy=Policy(), env=env, max_episode_length=2, num_eps=1)
    yield Subject("obtain_evaluation_episodes", obtain_evaluation_episodes, obtain_evaluation_episodes, arguments)
    for cls, arguments in (
        (ConstructEnvsSampler, dict(env_constructors=[PointEnv])),
        (SetTaskSampler, dict(env_constructor=Tasks)),
        (EnvPoolSampler, dict(envs=[env])),
        (MetaWorldTaskSampler, dict(benchmark=Benchmark(), kind="train")),
    ):
        yield Subject(cls.__name__, cls, cls, arguments)


def _launching() -> Iterator[Subject]:
    from rlpyt.utils.launching import affinity, exp_launcher, search, space, variant

    Path("script.py").touch()
    code, levels = affinity.encode_affinity(n_cpu_core=1), dict(keys=[("algo", "x")], values=[(1,)], dir_names=["one"])

    def run(**kwargs: Any) -> None:
        with mock.patch.object(exp_launcher, "_run", lambda experiment, exp_dir: experiment.check()):
            exp_launcher.run_experiments(**kwargs)

    def rerun(**kwargs: Any) -> None:
        with (
            mock.patch.object(exp_launcher, "_run"),
            mock.patch.object(exp_launcher, "_read"),
            mock.patch.object(exp_launcher, "updated"),
        ):
            exp_launcher.rerun_experiments(**kwargs)

    def launch(**kwargs: Any) -> None:
        with mock.patch.object(exp_launcher, "start_process"):
            exp_launcher.launch_experiment(**kwargs)

    def run_search(**kwargs: Any) -> None:
        with mock.patch.object(search, "_run", lambda settings, exp_dir: settings.experiment().check()):
            search.run_search(**kwargs)

    ranges = dict(algo=dict(x=space.uniform(0, 1)))
    asked = dict(script="script.py", affinity_code=code, experiment_title="title", space=ranges, n_trials=1, max_steps=100)
    yield Subject("run_search", search.run_search, run_search, asked)
    for kind in (space.uniform, space.log_uniform, space.integer):
        yield Subject(kind.__name__, kind, kind, dict(low=1, high=2))
    asked = dict(script="script.py", affinity_code=code, experiment_title="title", runs_per_setting=1, variants=[{}], log_dirs=["one"])
    yield Subject("run_experiments", exp_launcher.run_experiments, run, asked)
    yield Subject("rerun_experiments", exp_launcher.rerun_experiments, rerun, dict(exp_dir="title"))
    one = dict(script="script.py", run_slot=0, affinity_code=code, log_dir="one", variant={}, run_ID=0, args=())
    yield Subject("launch_experiment", exp_launcher.launch_experiment, launch, one)
    for name, arguments in (
        ("encode_affinity", {}),
        ("quick_affinity_code", {}),
        ("auto_affinity", {}),
        ("affinity_from_code", dict(run_slot_affinity_code=code)),
        ("prepend_run_slot", dict(run_slot=0, affinity_code=code)),
        ("get_n_run_slots", dict(affinity_code=code)),
    ):
        yield Subject(name, getattr(affinity, name), getattr(affinity, name), arguments)
    yield Subject("make_affinity", affinity.encode_affinity, affinity.make_affinity, {})
    level = variant.VariantLevel
    yield Subject("make_variants", level, lambda **kwargs: variant.make_variants(level(**kwargs)), levels)
    for name, arguments in (
        ("update_config", dict(default={"algo": {}}, variant={"algo": {}})),
        ("save_variant", dict(variant={}, log_dir="one")),
        ("load_variant", dict(log_dir="one")),
    ):
        yield Subject(name, getattr(variant, name), getattr(variant, name), arguments)
    variant.save_variant({}, "one")


def _logs() -> Iterator[Subject]:
    from rlpyt.experiments.wrap import wrap_experiment
    from rlpyt.runners.snapshots import Snapshotter
    from rlpyt.utils.logging import context

    def log(**kwargs: Any) -> None:
        with mock.patch.multiple(context, LOG_DIR=os.path.join(os.getcwd(), "data"), import_wandb=mock.DEFAULT, WandbWriter=mock.DEFAULT):
            with context.logger_context(**kwargs):
                pass

    arguments = dict(log_dir=os.path.abspath("logs"), run_ID=0, name="name", log_params={}, snapshot_mode="gap", snapshot_gap=2)
    yield Subject("logger_context", context.logger_context, log, arguments)
    yield Subject("Snapshotter", Snapshotter, Snapshotter, dict(snapshot_dir="snapshots"))
    yield Subject("wrap_experiment", wrap_experiment, wrap_experiment, dict(function=experiment_function))


# --- What is wrong ----------------------------------------------------------------------------------------------------
def settings_of(subject: Subject) -> list[str]:
    """Names of all that can be set."""
    from rlpyt.utils.quick_args import arguments_of

    collected = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    of = subject.of
    arguments = inspect.signature(of).parameters if issubclass(type(of), type) and issubclass(of, tuple) else arguments_of(of)
    return [name for name, p in arguments.items() if p.kind not in collected and name != "self"]


def cases(all_subjects: list[Subject], quick: bool = False) -> list[Case]:
    """All calls with something wrong, or a twentieth of them."""
    found = [
        Case(subject, setting, value) for subject in all_subjects for setting in settings_of(subject) for value in [*WRONG, "misspelled"]
    ]
    return random.Random(SEED).sample(found, len(found) // QUICK) if quick else found


def misspelled(setting: str) -> str:
    """The name, as fingers type it: with its last letter twice."""
    return setting + setting[-1]


def is_excluded(case: Case) -> bool:
    """Whether what is declared of the setting excludes the value."""
    from rlpyt.utils.settings import declared_by

    of = case.subject.of
    kind = (declared_by(of) if isinstance(of, type) else getattr(of, "kinds", {})).get(case.setting)
    return case.value == "misspelled" or (kind is not None and not kind.allows(WRONG[case.value]))


def outcome(case: Case, excluded: bool) -> tuple[str, str]:
    """Make a call; return its outcome and what the exception says."""
    arguments = dict(case.subject.arguments)
    if case.value == "misspelled":
        arguments[misspelled(case.setting)] = arguments.pop(case.setting, None)
    else:
        arguments[case.setting] = WRONG[case.value]
    try:
        with _limited(TIME_LIMIT):
            case.subject.call(**arguments)
    except TooSlow:
        return "hang", ""
    except (ValueError, TypeError, FileNotFoundError) as error:
        text = str(error).replace(" ", "_")  # "affinity code" is a name as well.
        is_named = case.setting in text and (case.value != "misspelled" or f"{case.setting!r}" in text)
        return "named" if is_named else "unnamed", f"{type(error).__name__}: {error}"
    except Exception as error:
        return "obscure", f"{type(error).__name__}: {error}"
    return "silent" if excluded else "accepted", ""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooSlow

    before, start = signal.signal(signal.SIGALRM, stop), time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)  # until the timeout of a test, 0 without one
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - start), 1e-3))


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """In here, the current directory is an empty one, nothing is printed, and random states are put back afterwards."""
    here, states = os.getcwd(), (np.random.get_state(), torch.get_rng_state())
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(directory)
        try:
            yield
        finally:
            os.chdir(here)
            np.random.set_state(states[0])
            torch.set_rng_state(states[1])


def run(quick: bool = False, only: str = "", excluded: dict[str, bool] | None = None) -> dict[str, tuple[str, str, bool]]:
    """Make all calls, or a twentieth of them; return outcome, error and whether the value is excluded, by case."""
    results = {}
    with elsewhere():
        for case in cases([subject for subject in subjects() if only in subject.name], quick):
            wrong = is_excluded(case) if excluded is None else excluded.get(str(case), False)
            results[str(case)] = (*outcome(case, wrong), wrong)
    return results


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the calls")
    parser.add_argument("--only", default="", help="subjects with this in their name")
    parser.add_argument("--show", choices=OUTCOMES, action="append", default=[], help="list the calls with this outcome")
    parser.add_argument("--save", type=Path, help="write which values are excluded to this file")
    parser.add_argument("--excluded", type=Path, help="a file that --save has written: what is excluded, whatever is declared")
    args = parser.parse_args()
    results = run(args.quick, args.only, None if args.excluded is None else json.loads(args.excluded.read_text()))
    for case, (what, error, _) in results.items():
        if what in args.show:
            print(f"{what:9s}{case}  {error}"[:250])
    if args.save:
        args.save.write_text(json.dumps({case: wrong for case, (*_, wrong) in results.items()}))
    counts = Counter(what for what, *_ in results.values())
    print(f"{len(results)} calls of {len({case.partition('(')[0] for case in results})} subjects: ", end="")
    print(", ".join(f"{counts[what]} {what}" for what in OUTCOMES))


if __name__ == "__main__":
    main()
    sys.exit()
