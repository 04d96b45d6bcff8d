"""Opening the directory of a run: its snapshot, and the agent, environments and runner that its params.json describes.

`rlpyt.experiments.trust` decides which of the named classes are imported.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rlpyt
from rlpyt.experiments.configs import look_up
from rlpyt.experiments.trust import HINT, PARTS, Names, script_module
from rlpyt.runners.protocols import CompletedLoop
from rlpyt.runners.record import CHANGEABLE, FORMAT
from rlpyt.runners.snapshots import load_snapshot
from rlpyt.utils.logging.context import no_new_runs
from rlpyt.utils.logging.runs import RECORD, read_params
from rlpyt.utils.logging.snapshot import reading
from rlpyt.utils.logging.store import beside, moved_aside
from rlpyt.utils.plain import NATURAL, check_form, shown
from rlpyt.utils.quick_args import takes
from rlpyt.utils.recipes import Script, make, make_call, running_script
from rlpyt.utils.text import said, said_clearly


class OpenedRun:
    """A snapshot of a run, with the agent, sampler and algorithm to use it. These are made at their first access.

    Args:
        path: directory of the run, or a snapshot file.
        snapshot: for a directory, "last" (the newest readable one), "best", the path of a file or the name of one in the directory, or
            None to open no snapshot, which is enough for `runner`.
        trust: whether to import whatever params.json names.
        script: "FILE.py:FUNCTION" of a function that returns the runner; params.json is then not used.

    Attributes:
        file: the snapshot.
        snapshot: its contents; {} without one.
        params: contents of params.json, {} with a `script`.

    Raises:
        FileNotFoundError: there is no snapshot, params.json or script.
        ValueError: one of them is damaged, or params.json names a class or function that is not trusted; the message says what to do.
    """

    def __init__(self, path: Any, snapshot: Any = "last", trust: bool = False, script: str | None = None) -> None:
        if snapshot is None:
            self.file, self.snapshot = Path(path) / "params.pkl", dict[str, Any]()
        else:
            self.file, self.snapshot = load_snapshot(_snapshot_path(Path(path), snapshot))
        if snapshot is not None and not {"agent_state_dict", "trainer"} & self.snapshot.keys():
            raise ValueError(f"{self.file} is not the snapshot of a run: it has no agent_state_dict.")
        with reading(self.file):
            check_form({"itr": 0, "cum_steps": 0, **self.snapshot}, dict(itr=NATURAL, cum_steps=NATURAL), "snapshot")
        self.params_file = beside(self.file, "params.json")
        self.params: dict[str, Any] = {}
        self.record: dict[str, Any] = {}
        self._built = None if script is None else build_by_script(script, self.params_file)
        if script is None:
            self.params = read_params(self.params_file)
            self.record = record_in(self.params, self.params_file)
            self._names = Names(self.record, self.params_file, trust)
            self.script = self._names.script
        else:
            self.script = running_script()

    @property
    def has_own_loop(self) -> bool:
        """Whether a `Trainer` ran an algorithm that has its own training loop."""
        return bool(self.snapshot) and "agent_state_dict" not in self.snapshot

    @property
    def trainer_args(self) -> dict[str, Any] | None:
        """Arguments of `Trainer.train`, if a `Trainer` trained the run."""
        return self.record.get("trainer")

    @cached_property
    def agent(self) -> Any:
        """The agent, made as for the run, without trained parameters. An agent for alternating samplers acts for one group."""
        if self.has_own_loop:
            return self._policy_agent()
        agent = self._built.agent if self._built else self._part("agent")
        if agent.recurrent and agent.alternating:
            agent.act_for_one_group()
        return agent

    @cached_property
    def sampler(self) -> Any:
        """The sampler, not initialized; has the environments and the TrajInfo class of the run."""
        if self.has_own_loop:
            return self._envs_of_algo()
        return self._built.sampler if self._built else self._part("sampler")

    @property
    def traj_info_kwargs(self) -> dict[str, Any]:
        """Settings of the TrajInfo class that come from other parts, e.g. the discount."""
        return self._built.get_traj_info_kwargs() if self._built else self.record.get("traj_info", {})

    @cached_property
    def algo(self) -> Any:
        """The algorithm, not initialized."""
        if self._built:
            return self._built.algo
        algo = self._part("algo")
        return algo.accelerate(**self.record["accelerate"]) if self.record.get("accelerate") else algo

    def _policy_agent(self) -> Any:
        """The policy of an algorithm with its own training loop, as an agent, with the parameters of the snapshot."""
        from rlpyt.agents.policy import PolicyAgent
        from rlpyt.runners.trainer import load_state

        load_state(self.algo, self.snapshot["algo"], self.file)
        policy = CompletedLoop(self.algo).policy
        if policy is None:
            raise ValueError(f"{type(self.algo).__name__} has no attribute policy, so that its actions are unknown.")
        return PolicyAgent(policy)

    def _envs_of_algo(self) -> Any:
        """A sampler's attributes of environments, for an algorithm with its own training loop and a sampler of episodes or recorded env."""
        from rlpyt.envs.env_update import first_update
        from rlpyt.types import TrajInfo

        if "env" in self.record:
            given = self._part("env")
        elif CompletedLoop(self.algo)._sampler is not None:
            given = self.algo._sampler.given_envs
            self.algo._sampler.shutdown_worker()
        else:
            raise ValueError(f"{self.params_file} does not say which environment the run had. {HINT}")
        given = first_update(given)
        makes_envs = callable(given) and not hasattr(given, "step")
        EnvCls = given if makes_envs or isinstance(given, type) else partial(copy.deepcopy, given)
        return SimpleNamespace(eval_EnvCls=EnvCls, eval_env_kwargs={}, TrajInfoCls=TrajInfo)

    def runner(self, **changes: Any) -> Any:
        """Return the runner, not started, with `changes` of its arguments."""
        if self._built:
            return self._built
        parts = dict(algo=self.algo, agent=self._part("agent"), sampler=self._part("sampler"))
        runner = self._part("runner", parts, **changes)
        runner.script = self.script
        for name in CHANGEABLE:
            setattr(runner, name, self.record.get(name, getattr(runner, name, None)))
        return runner

    def trainer_parts(self) -> dict[str, Any]:
        """Return the arguments of `Trainer.setup`."""
        if self.has_own_loop:
            return dict(algo=self.algo, env=self._part("env") if "env" in self.record else None)
        runner = self.runner()
        return dict(
            algo=runner.algo,
            agent=runner.agent,
            sampler=runner.sampler,
            affinity=make(self.record["runner"]["arguments"].get("affinity"), self._names.find),
            save_replay=runner.save_replay,
            RunnerCls=type(runner),
        )

    def _part(self, name: str, parts: Mapping[str, Any] | None = None, **changes: Any) -> Any:
        try:
            return make_call(self.record.get(name), self._names.find, parts, **changes)
        except Exception as error:  # Users' constructors may raise anything.
            raise ValueError(f"The {name} of {self.params_file} cannot be made again: {said_clearly(error)} {HINT}") from error

    def agent_for(self, env: Any, cuda_idx: int | None = None) -> Any:
        """Return the agent with the parameters of the snapshot, in evaluation mode.

        Args:
            env: an environment of the run, as samplers step it.
            cuda_idx: index of the GPU on which the agent acts; None for the CPU.

        Raises:
            ValueError: the snapshot does not fit the agent, or there is no such GPU.
        """
        from rlpyt.samplers.buffer import checked_spaces
        from rlpyt.utils.processors import check_gpus

        check_gpus([dict(cuda_idx=cuda_idx)])
        agent = self.agent
        agent.initialize(checked_spaces(env))
        try:
            if not self.has_own_loop:
                agent.load_state_dict(self.snapshot["agent_state_dict"])
        except Exception as error:  # Users' agents may raise anything.
            raise ValueError(f"{self.file} does not fit {type(agent).__name__} in this environment: {said(error)}") from error
        agent.to_device(cuda_idx)
        agent.eval_mode(self.itr)
        return agent

    @property
    def itr(self) -> int:
        """Iteration of the agent, at least 1: agents take iteration 0 for the one before any training."""
        return max(self.snapshot["itr"], 1)

    @contextmanager
    def example_env(self, **changes: Any) -> Iterator[Any]:
        """Yield an evaluation environment of the run, made with further keyword arguments; close it at the end."""
        from rlpyt.samplers.base import close_envs, entry, make_envs

        envs: list = []
        try:
            kwargs = {**entry(self.sampler.eval_env_kwargs, 0), **changes}
            (env,) = make_envs(self.sampler.eval_EnvCls, kwargs, 0, "example", [0], envs)
            yield env
        finally:
            close_envs(envs)


def load_agent(path: Any, snapshot: Any = "last", device: int | str | None = None, trust: bool = False, script: str | None = None) -> Any:
    """Return the agent of a run, in evaluation mode.

    Args:
        path: directory of the run, or a snapshot file.
        snapshot: "last", "best", the path of a snapshot, or the name of one in the directory.
        device: where the agent acts: the index of a GPU, or a name such as "cpu" or "cuda:0"; None is the CPU.
        trust: whether to import whatever the run names, see `rlpyt.experiments.trust`.
        script: "FILE.py:FUNCTION", for a run that params.json cannot describe: the function returns the runner.

    Returns:
        The agent, a `rlpyt.agents.base.BaseAgent`. Its method ``step(observation, prev_action, prev_reward)`` takes and returns tensors.

    Raises:
        FileNotFoundError: there is no snapshot or params.json.
        ValueError: one of them is damaged, names a class that is not trusted, or does not say how the agent was made.
    """
    opened = OpenedRun(path, snapshot, trust, script)
    with opened.example_env() as env:
        return opened.agent_for(env, _cuda_idx(device))


def load_policy(
    path: Any, snapshot: Any = "last", device: int | str | None = None, trust: bool = False, script: str | None = None
) -> TrainedPolicy:
    """Return the agent of a run as a function of observations; arguments and errors are those of `load_agent`.

    Observations and actions are those of the run's environment: of Gymnasium's, if ``EnvCls`` is `rlpyt.envs.gym.make` or a class of
    Gymnasium::

        policy, env = load_policy(run_dir), gymnasium.make("CartPole-v1")
        (observation, info), done = env.reset(), False
        while not done:
            observation, reward, terminated, truncated, info = env.step(policy(observation))
            done = terminated or truncated
    """
    from rlpyt.envs.adapters import original

    opened = OpenedRun(path, snapshot, trust, script)
    with opened.example_env() as env:
        return TrainedPolicy(opened.agent_for(env, _cuda_idx(device)), original(env), opened.itr)


class TrainedPolicy:
    """Chooses actions for the observations of one environment. A recurrent agent remembers the episode.

    Args:
        agent: the agent, ready to act.
        env: an environment with the spaces.
        itr: training iteration of the agent.
    """

    def __init__(self, agent: Any, env: Any, itr: int = 1) -> None:
        from rlpyt.agents.policy import AgentPolicy

        self._policy = AgentPolicy(agent)
        self._policy.take_spaces(env)
        self._policy.eval_mode(itr)

    def __call__(self, observation: Any, reward: float = 0.0) -> Any:
        """Return the action for one observation, not a batch. `reward` is the reward of the previous action, which few agents use.

        Raises:
            ValueError: the observation has another shape than the environment's.
            TypeError: its dtype cannot be cast safely.
        """
        import numpy as np

        observation = self._policy.checked_observation(observation)
        self._policy.take_rewards(np.array([reward], np.float32))
        return self._policy.for_envs(self._policy.get_action(observation)[0])

    def reset(self) -> None:
        """Forget the episode; call this whenever the environment is reset."""
        self._policy.reset()


def _cuda_idx(device: int | str | None) -> int | None:
    import torch

    if device is None or isinstance(device, int):
        return device
    place = torch.device(device)
    return None if place.type == "cpu" else place.index or 0


def _snapshot_path(path: Path, snapshot: Any) -> Path:
    if snapshot == "last":
        return path
    file = moved_aside(path / "best.pkl") if snapshot == "best" else Path(snapshot)
    if file.name == str(snapshot) and not file.is_file() and path.is_dir():
        file = path / file  # A plain name may also mean a file of the run.
    if not file.is_file():
        kept = " Runs with snapshot_mode='best' have one." if snapshot == "best" else ""
        raise FileNotFoundError(f"There is no snapshot {file}.{kept}")
    return file


# --- The record -------------------------------------------------------------------------------------------------------
def record_in(params: Mapping[str, Any], params_file: Any) -> dict[str, Any]:
    """Return the record in the contents of a params.json; ValueError, with what to do, if it is missing, damaged or of a later rlpyt."""
    record = params.get(RECORD)
    if not isinstance(record, Mapping):
        raise ValueError(f"{params_file} does not say how the run was made. {HINT}")
    _check_format(record, params_file)
    for part in PARTS:
        call = record.get(part, {"arguments": {}})
        if not (isinstance(call, Mapping) and isinstance(call.get("arguments"), Mapping) and isinstance(call.get("positional", []), list)):
            raise ValueError(f"{params_file} is damaged: its {part} does not say what to call, or with which arguments. {HINT}")
    for name in ("script", "accelerate", "traj_info", "trainer"):
        if not isinstance(record.get(name, {}), Mapping):
            raise ValueError(f"{params_file} is damaged: its {name} is {record[name]!r}. {HINT}")
    numbers = dict(n_steps=record.get("n_steps"), stop_return=record.get("stop_return"), **_epochs_in(record))
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
            raise ValueError(f"{params_file} is damaged: its {name} is {value!r}. {HINT}")
    return dict(record)


def _check_format(record: Mapping[str, Any], params_file: Any) -> None:
    """Raise ValueError unless this version reads records of this format. Those of other programs may not say their format."""
    saved = record.get("format", FORMAT)
    if type(saved) is int and saved <= FORMAT:
        return
    versions = record.get("packages")
    by = versions.get("rlpyt") if isinstance(versions, Mapping) else None
    by = f"rlpyt {by}" if isinstance(by, str) else "an unknown version of rlpyt"
    own = rlpyt.__version__
    raise ValueError(
        f"{params_file} is of format {shown(saved)}, written by {by}. This is rlpyt {own}, which reads format {FORMAT}: use a later one."
    )


def _epochs_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return n_epochs and batch_size of `Trainer.train` in a record; {} if no `Trainer` trained the run."""
    given = record.get("trainer")
    return {} if not given else {name: given.get(name) for name in ("n_epochs", "batch_size")}


# --- Scripts ----------------------------------------------------------------------------------------------------------
def load_function(script: str) -> Callable:
    """Return the function named by "FILE.py:FUNCTION"; the file is imported, but not as ``__main__``.

    Raises:
        ValueError: `script` has another form, the file has no such function, or importing the file starts a run.
        FileNotFoundError: there is no such file.
    """
    file, colon, name = script.rpartition(":")
    if not (file and colon and name):
        raise ValueError(f"{script!r} must be of the form file.py:function.")
    path = Path(file).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"There is no script {path}.")
    module = script_module(Script(str(path)))
    functions = [key for key, value in vars(module).items() if callable(value)]
    return getattr(module, look_up(name, functions, f"function in {path} called"))


def build_by_script(script: str, params_file: Any) -> Any:
    """Call a function of a script for the runner. The function may have an argument ``params``, for the contents of params.json.

    Raises:
        ValueError: the function trains, or returns something else.
    """
    function = load_function(script)
    with no_new_runs(f"{script} starts a run. Give a function that returns the runner without calling its train()."):
        runner = function(params=read_params(params_file)) if takes(function, "params") else function()
    missing = [name for name in ("agent", "algo", "sampler", "train") if not hasattr(runner, name)]
    if missing:
        raise ValueError(f"{script} must return a runner, but returned {runner!r}, which has no {' and no '.join(missing)}.")
    runner.script = Script(str(Path(script.rpartition(":")[0]).resolve()))
    return runner
