"""Small environments shared by tests: importable as ``envs`` here and in spawned processes (see conftest.py)."""

from __future__ import annotations

import copy
import ctypes
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from itertools import cycle
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.envs.base import Env, EnvStep
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.envs.vector import NEXT_STEP, GymVectorEnv, VectorEnv, VectorStep
from rlpyt.experiments.envs import make_partial
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.structures import map_structure

CountingInfo = namedtuple("CountingInfo", ["episode", "t", "action", "traj_done", "timeout"])


def _as_list(x: Any) -> list:
    return list(x) if isinstance(x, (tuple, list)) else [x]


class CountingEnv(Env):
    """Everything can be predicted: the observation says which environment, which episode and which step it belongs to.

    observation [4] float32: ``seed % 2**16`` (-1 before `seed` is called), episode (from 0), step in the episode (0 after a reset), and a
    random number in [0, 1) drawn from a generator with this seed.
    reward: the step in the episode (1, 2, ...), times `reward_scale`.
    env_info: episode and t as in the observation, the action (first component), traj_done, timeout.

    Args:
        episode_length: steps of an episode, or a list of lengths used in turn.
        end: how episodes end, or a list used in turn: "terminated", "timeout", or "life" (done, but not traj_done: the step counter
            and the episode number go on without a reset).
        n_actions: number of discrete actions; 0 for a continuous action in [-1, 1] of shape [2].
    """

    def __init__(
        self,
        episode_length: int | list[int] = 5,
        end: str | list[str] = "terminated",
        n_actions: int = 3,
        reward_scale: float = 1.0,
    ) -> None:
        self.episode_length, self.end, self.n_actions, self.reward_scale = episode_length, end, n_actions, reward_scale
        unknown = set(_as_list(end)) - {"terminated", "timeout", "life"}
        if unknown:
            raise ValueError(f"end={end!r}: unknown {unknown}.")
        self._action_space = IntBox(0, n_actions) if n_actions else FloatBox(-1.0, 1.0, shape=(2,))
        self._observation_space = FloatBox(-1.0, 1e6, shape=(4,))
        lengths, ends = _as_list(episode_length), _as_list(end)
        self._horizon = lengths[0] if len(set(lengths)) == 1 and set(ends) == {"timeout"} else None
        self.truncates_only_at_horizon = self._horizon is not None
        self._seed, self._code = None, -1
        self._begin()

    def _begin(self) -> None:
        self._rng = np.random.default_rng(self._seed)
        self._lengths, self._ends = cycle(_as_list(self.episode_length)), cycle(_as_list(self.end))
        self.episode, self._next_end = -1, 0
        self.t = 0

    def seed(self, seed: int) -> None:
        super().seed(seed)
        self._seed, self._code = seed, seed % 2**16
        self._begin()

    @property
    def horizon(self) -> int | None:
        return self._horizon

    def _observation(self) -> np.ndarray:
        return np.array([self._code, self.episode, self.t, self._rng.random()], dtype=np.float32)

    def reset(self) -> np.ndarray:
        self.episode, self.t = self.episode + 1, 0
        self._next_end, self._end = next(self._lengths), next(self._ends)
        return self._observation()

    def step(self, action: Any) -> EnvStep:
        self.t += 1
        done = self.t >= self._next_end
        how = self._end if done else ""
        if how == "life":
            self._next_end += next(self._lengths)
            self._end = next(self._ends)
        first = np.asarray(action).reshape(-1)[0]
        info = CountingInfo(self.episode, self.t, np.float32(first), done and how != "life", how == "timeout")
        return EnvStep(self._observation(), self.t * self.reward_scale, done, info)


class EnvFailure(Exception):
    """What FailingEnv raises; cannot be unpickled (its arguments are not its message), like many exceptions of real environments."""

    def __init__(self, where: str, call: int) -> None:
        super().__init__(f"planned failure in {where}, call {call}")


class FailingEnv(CountingEnv):
    """A CountingEnv that fails at a chosen moment.

    Args:
        fail_in: "step", "reset", "init", "close" or "nothing".
        fail_at: which call of it fails, from 1; for "init", which construction in the process.
        how: "raise", "exit" (status 7), "sigkill", "segv", or "hang" (for ever).
        spare_pid: never fail in this process (e.g. in the one that runs the tests, where examples are made).
        once: path of a file that must not exist yet; the first environment to fail makes it and the others go on, so that exactly one of
            many environments, in any process, fails.
    """

    n_made: dict[int, int] = {}  # by process

    def __init__(
        self,
        fail_in: str = "step",
        fail_at: int = 1,
        how: str = "raise",
        spare_pid: int | None = None,
        once: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fail_in, self.fail_at, self.how, self.spare_pid, self.once = fail_in, fail_at, how, spare_pid, once
        self.calls = {"step": 0, "reset": 0, "close": 0}
        n_made = self.n_made[os.getpid()] = self.n_made.get(os.getpid(), 0) + 1
        self._maybe_fail("init", n_made)

    def _count(self, where: str) -> None:
        self.calls[where] += 1
        self._maybe_fail(where, self.calls[where])

    def _maybe_fail(self, where: str, call: int) -> None:
        if where != self.fail_in or call < self.fail_at or os.getpid() == self.spare_pid:
            return
        if call > self.fail_at and self.once is None:
            return
        if self.once is not None:
            try:
                os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
        if self.how == "raise":
            raise EnvFailure(where, call)
        if self.how == "exit":
            os._exit(7)
        if self.how == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "segv":
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        while True:
            time.sleep(60)

    def step(self, action: Any) -> EnvStep:
        self._count("step")
        return super().step(action)

    def reset(self) -> np.ndarray:
        self._count("reset")
        return super().reset()

    def close(self) -> None:
        self._count("close")


# ---------------------------------------------------------------------------------------------------------------------
# gymnasium environments, and one written against classic gym
# ---------------------------------------------------------------------------------------------------------------------
class WalkGymEnv(gymnasium.Env):
    """Random walk on a line with a Box action of one element; terminated beyond 3, truncated after 20 steps; info holds the position.

    Args:
        info: additional info keys, the same at every step.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    max_steps = 20

    def __init__(self, info: dict | None = None) -> None:
        self.extra_info = info or {}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.position, self.t = self.np_random.normal() * 0.1, 0
        return self._observation(), {}

    def _observation(self) -> np.ndarray:
        return np.array([self.position, self.t], dtype=np.float64)

    def _advance(self, action: np.ndarray) -> None:
        self.position += float(action[0]) + self.np_random.normal() * 0.5
        self.t += 1

    def step(self, action: np.ndarray) -> tuple:
        self._advance(action)
        terminated, truncated = abs(self.position) > 3, self.t >= self.max_steps
        info = {"position": self.position, **self.extra_info}
        return self._observation(), -abs(self.position), terminated, truncated, info


class ReusingGymEnv(WalkGymEnv):
    """Returns the same array, overwritten, at every step."""

    def __init__(self) -> None:
        super().__init__()
        self._memory = np.zeros(2)

    def _observation(self) -> np.ndarray:
        self._memory[:] = self.position, self.t
        return self._memory


class ClassicGymEnv:
    """The walk of WalkGymEnv in the form of classic gym: no base class, step returns 4 values, reset no info, `seed` is a method."""

    observation_space = WalkGymEnv.observation_space
    action_space = WalkGymEnv.action_space
    metadata: dict = {}

    def __init__(self) -> None:
        self._modern = WalkGymEnv()
        self._next_seed: int | None = None

    def seed(self, seed: int | None = None) -> list:
        self._next_seed = seed
        return [seed]

    def reset(self) -> np.ndarray:
        observation, _ = self._modern.reset(seed=self._next_seed)
        self._next_seed = None
        return observation

    def step(self, action: np.ndarray) -> tuple:
        observation, reward, terminated, truncated, info = self._modern.step(action)
        if truncated:
            info["TimeLimit.truncated"] = not terminated
        return observation, reward, terminated or truncated, info

    def close(self) -> None:
        pass


class StructuredGymEnv(gymnasium.Env):
    """Nested Dict and Tuple spaces with all supported kinds inside, awkward keys, a Discrete that starts at 3, and nested info."""

    observation_space = spaces.Dict(
        {
            "camera.left": spaces.Box(0, 255, (3, 2), np.uint8),
            "joints": spaces.Tuple((spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.MultiBinary(3))),
            "goal": spaces.Dict({"class": spaces.Discrete(4, start=-1), "0": spaces.MultiDiscrete([2, 3])}),
        }
    )
    action_space = spaces.Dict(
        {"move": spaces.Box(-1.0, 1.0, (2,), np.float64), "tool": spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3, start=3)))}
    )

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.t = 0
        return self._observation(), {}

    def _observation(self) -> dict:
        rng = self.np_random
        return {
            "camera.left": rng.integers(0, 256, (3, 2), dtype=np.uint8),
            "joints": (rng.normal(size=2), rng.integers(0, 2, 3, dtype=np.int8)),
            "goal": {"class": int(rng.integers(-1, 3)), "0": rng.integers([2, 3])},
        }

    def step(self, action: dict) -> tuple:
        assert self.action_space.contains(action), f"{action} is not in {self.action_space}"
        self.t += 1
        info = {"energy.used": 0.5 * self.t, "parts": {"left": self.t, "right": np.ones(2)}}
        if self.t == 4:
            info["only.at.the.fourth"] = 1.0
        return self._observation(), float(action["tool"][1]), self.t % 9 == 0, self.t % 7 == 0, info


class EveryKindGymEnv(gymnasium.Env):
    """Observations and actions of all kinds at once; it refuses actions that are not in its space, and tells what it got.

    env_info has ``got``, all numbers of the action in a row.
    """

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (3, 40, 40), np.uint8),
            "gray": spaces.Box(0, 255, (36, 36), np.uint8),
            "map": spaces.Box(0, 1, (2, 7, 7), np.float32),
            "body": spaces.Tuple((spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Box(0, 255, (4,), np.uint8))),
            "gear": spaces.Discrete(4, start=1),
            "switches": spaces.MultiDiscrete([2, 3]),
            "lamps": spaces.MultiBinary(2),
        }
    )
    action_space = spaces.Dict(
        {
            "buttons": spaces.MultiBinary((2, 2)),
            "gear": spaces.Discrete(3, start=1),
            "tools": spaces.Tuple((spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [2, 0]]), spaces.Box(0, 4, (2,), np.uint8))),
            "steer": spaces.Box(np.array([0, -3]), np.array([1, 5]), dtype=np.float64),
            "table": spaces.Box(-2, 2, (2, 2), np.float32),
            "power": spaces.Box(0, np.inf, (), np.float32),
        }
    )

    def __init__(self) -> None:
        self.observation_space = copy.deepcopy(self.observation_space)  # Each environment draws its own.

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: dict) -> tuple:
        assert self.action_space.contains(action), f"{action} is not in {self.action_space}"
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t % 9 == 0, self.t % 7 == 0, {"got": numbers_of(action)}


def numbers_of(action: Any) -> np.ndarray:
    """Return all numbers in an action of Gymnasium in a row."""
    if isinstance(action, dict):
        action = tuple(action.values())
    return np.concatenate([numbers_of(part) for part in action]) if isinstance(action, tuple) else np.ravel(action).astype(np.float32)


def make_every_kind() -> GymEnvWrapper:
    return GymEnvWrapper(EveryKindGymEnv())


class MaskedGymEnv(gymnasium.Env):
    """Allows some of the actions at each step, at random, and refuses others. Episodes last 1 to 6 steps.

    The mask is in the info of reset and step, or in the observation. The last of an episode allows nothing. The observation tells the mask,
    and the step of the episode.

    Args:
        kind: of actions: "discrete", "several", or "structure".
        where: "info" or "observation".
    """

    ACTIONS = {
        "discrete": spaces.Discrete(6, start=2),
        "several": spaces.MultiDiscrete([3, 2, 4]),
        "structure": spaces.Dict(
            a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,)), c=spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])))
        ),
    }
    SIZES = {"discrete": [6], "several": [3, 2, 4], "structure": [3, 2, 2, 2, 3]}

    def __init__(self, kind: str = "discrete", where: str = "info") -> None:
        self.kind, self.where = kind, where
        self.action_space = copy.deepcopy(self.ACTIONS[kind])
        self.sizes = self.SIZES[kind]
        self.observation_space = spaces.Box(0, 100, (sum(self.sizes) + 1,), np.float32)
        if where == "observation":
            mask_space = spaces.MultiBinary(sum(self.sizes))
            self.observation_space = spaces.Dict(vector=self.observation_space, allowed=mask_space)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        self.t, self.length = 0, self.np_random.integers(1, 7)
        return self._observe()

    def _observe(self) -> tuple:
        self.masks = [self.np_random.random(n) < 0.4 for n in self.sizes]
        for mask in self.masks:
            mask[self.np_random.integers(len(mask))] = True
        if self.t == self.length and self.length % 2 == 0:  # Terminated. Truncated episodes have a mask for the action that does not come.
            self.masks = [np.zeros(n, bool) for n in self.sizes]
        flat = np.concatenate(self.masks).astype(np.int8)
        vector = np.append(flat, self.t).astype(np.float32)
        if self.where == "observation":
            return dict(vector=vector, allowed=flat), {}
        return vector, {"action_mask": self._in_gymnasiums_form()}

    def _in_gymnasiums_form(self) -> Any:
        masks = [mask.astype(np.int8) for mask in self.masks]
        if self.kind == "discrete":
            return masks[0]
        if self.kind == "several":
            return tuple(masks)
        # Of a bit: 2 if both values are allowed, else the value.
        bits = np.array([2 if zero and one else int(one) for zero, one in masks[1:3]], np.int8)
        return dict(a=masks[0], b=None, c=(bits, tuple(masks[3:])))

    def step(self, action: Any) -> tuple:
        assert self.action_space.contains(action), f"{action} is not in {self.action_space}"
        if self.kind == "structure":
            chosen = [action["a"], *action["c"][0], *action["c"][1]]
        else:
            chosen = np.atleast_1d(action - getattr(self.action_space, "start", 0))
        if not all(mask[value] for mask, value in zip(self.masks, chosen, strict=True)):
            raise ValueError(f"planned failure: {action} is masked by {self.masks}")
        self.t += 1
        is_over = self.t == self.length
        observation, info = self._observe()
        return observation, float(chosen[0]), is_over and self.length % 2 == 0, is_over and self.length % 2 == 1, info


def make_masked(kind: str = "discrete", where: str = "info") -> GymEnvWrapper:
    return GymEnvWrapper(MaskedGymEnv(kind, where), action_mask=dict(info="action_mask", observation="allowed")[where])


def make_walk(**kwargs: Any) -> GymEnvWrapper:
    return GymEnvWrapper(WalkGymEnv(**kwargs))


def make_reusing() -> GymEnvWrapper:
    return GymEnvWrapper(ReusingGymEnv())


def make_classic() -> GymEnvWrapper:
    return GymEnvWrapper(ClassicGymEnv())


def make_structured() -> GymEnvWrapper:
    return GymEnvWrapper(StructuredGymEnv())


# ---------------------------------------------------------------------------------------------------------------------
# Counting environments with something special; module-level, so that spawned processes find them without the tests' other imports
# ---------------------------------------------------------------------------------------------------------------------
class SlowEnv(CountingEnv):
    """A CountingEnv whose steps take `seconds`, so that a batch is not over before it is interrupted."""

    def __init__(self, seconds: float = 0.002, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seconds = seconds

    def step(self, action: Any) -> EnvStep:
        time.sleep(self.seconds)
        return super().step(action)


class SilentEnv(CountingEnv):
    """A CountingEnv that has no env_info: neither a trajectory's end nor a timeout can be told from `done`."""

    def step(self, action: Any) -> EnvStep:
        return super().step(action)._replace(env_info=None)


class ClosingEnv(FailingEnv):
    """A FailingEnv that leaves a file in `directory` when it is closed; the file's name begins with the process id."""

    def __init__(self, directory: str, fail_in: str = "nothing", **kwargs: Any) -> None:
        super().__init__(fail_in, **kwargs)
        self.directory = directory

    def close(self) -> None:
        descriptor, _ = tempfile.mkstemp(prefix=f"{os.getpid()} ", dir=self.directory)
        os.close(descriptor)
        super().close()


class StartingEnv(CountingEnv):
    """In a worker, starts a process that does not end by itself, and prints its number in a line "started N".

    Args:
        keeps_gil: whether a step keeps the interpreter to itself for ever, from the second one on.
    """

    def __init__(self, keeps_gil: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keeps_gil, self.n_steps = keeps_gil, 0
        if multiprocessing.parent_process() is not None:
            started = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
            os.write(1, f"started {started.pid}\n".encode())

    def step(self, action: Any) -> EnvStep:
        self.n_steps += 1
        if self.keeps_gil and self.n_steps > 1:
            ctypes.PyDLL(None).sleep(1000)
        return super().step(action)


ModulesInfo = namedtuple("ModulesInfo", ["torch", "numba"])


class ModulesEnv(CountingEnv):
    """Its env_info says whether torch and numba are imported in the process it lives in."""

    def step(self, action: Any) -> EnvStep:
        return super().step(action)._replace(env_info=ModulesInfo("torch" in sys.modules, "numba" in sys.modules))


make_cartpole_without_velocities = functools.partial(make_partial, id="CartPole-v1", components=[0, 2])


# ---------------------------------------------------------------------------------------------------------------------
# Exceptions that are hard to report
# ---------------------------------------------------------------------------------------------------------------------
class _NotText(Exception):
    def __str__(self) -> str:
        raise OSError("no text")

    __repr__ = __str__


class _NotesThatRaise(Exception):
    @property
    def __notes__(self) -> list:
        raise OSError("no notes")


class _Frozen(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__traceback__":  # Contexts of Python do.
            return super().__setattr__(name, value)
        raise AttributeError(f"{name} cannot be set")


def _with_notes(notes: Any) -> Exception:
    error = RuntimeError("with notes")
    vars(error)["__notes__"] = notes
    return error


AWKWARD = {  # What makes an exception, its class, and something of what it says.
    "surrogate": (lambda: RuntimeError("bad \udcff"), "RuntimeError", "bad \\udcff"),
    "no text": (_NotText, "_NotText", "_NotText"),
    "an argument without repr": (lambda: KeyError(_NotText()), "KeyError", "KeyError"),
    "notes that are no list": (lambda: _with_notes(5), "RuntimeError", "with notes"),
    "notes that are no text": (lambda: _with_notes([_NotText(), None]), "RuntimeError", "with notes"),
    "notes that raise": (lambda: _NotesThatRaise("noted"), "_NotesThatRaise", "noted"),
    "frozen": (lambda: _Frozen("ice"), "_Frozen", "ice"),
    "not picklable": (lambda: RuntimeError("of threads", threading.Lock()), "RuntimeError", "of threads"),
    "not to be unpickled": (lambda: EnvFailure("step", 4), "EnvFailure", "planned failure"),
    "huge": (lambda: RuntimeError("a" * 50_000_000 + "b" * 50_000_000), "RuntimeError", "characters left out"),
}


class AwkwardEnv(CountingEnv):
    """Raises an exception of AWKWARD, by its name, in the fourth step of an episode."""

    def __init__(self, what: str = "surrogate", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.what = what

    def step(self, action: Any) -> EnvStep:
        if self.t == 3:
            raise AWKWARD[self.what][0]()
        return super().step(action)


class GymCounting(gymnasium.Env):
    """A CountingEnv for Gymnasium: the observation says which seed (scaled to [0, 1)), episode and step it belongs to, and a random number.

    Its infos are the step (int), the scaled seed (float), and, only at the end of an episode, its length.

    Args:
        n_actions: number of discrete actions; 0 for continuous actions in [-1, 1], of shape [2].
        lengths: steps of an episode, used in turn from the latest seeded reset on.
        ends: "terminated" or "truncated", used in turn.
    """

    def __init__(self, lengths: tuple = (5, 1, 3, 7), ends: tuple = ("terminated", "truncated", "truncated"), n_actions: int = 3) -> None:
        self.action_space = spaces.Discrete(n_actions) if n_actions else spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Box(-1.0, 1e6, (4,), np.float32)
        self.lengths, self.ends, self.code, self.episode = lengths, ends, -1, -1

    def _observation(self) -> np.ndarray:
        return np.array([self.code, self.episode, self.t, self.np_random.random()], np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        super().reset(seed=seed)
        if seed is not None:
            self.code, self.episode = seed % 2**16 / 2**16, -1
        self.episode, self.t = self.episode + 1, 0
        return self._observation(), dict(step=0, code=float(self.code))

    def step(self, action: Any) -> tuple:
        assert self.action_space.contains(action)
        self.t += 1
        done = self.t >= self.lengths[self.episode % len(self.lengths)]
        end = self.ends[self.episode % len(self.ends)]
        info = dict(step=self.t, code=float(self.code), **(dict(length=self.t) if done else {}))
        return self._observation(), self.t / 3, done and end == "terminated", done and end == "truncated", info


def make_gym_vector(num_envs: int, mode: str = "NextStep", async_: bool = False, **kwargs: Any) -> gymnasium.vector.VectorEnv:
    """Return a vector of Gymnasium of such environments."""
    VectorCls = gymnasium.vector.AsyncVectorEnv if async_ else gymnasium.vector.SyncVectorEnv
    return VectorCls([functools.partial(GymCounting, **kwargs)] * num_envs, autoreset_mode=mode)


class ModulesVector(GymVectorEnv):
    """A vector whose env_info says what that of `ModulesEnv` says."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(make_gym_vector(num_envs, "SameStep"))

    def step_into(self, actions: Any, observation_out: Any) -> VectorStep:
        imported = (np.full(self.n, name in sys.modules) for name in ModulesInfo._fields)
        return super().step_into(actions, observation_out)._replace(infos=ModulesInfo(*imported))


class ReadyVector(VectorEnv):
    """Environments that are ready in random order: some of them several times while others are not."""

    autoreset_mode = NEXT_STEP
    resets_some = True
    most = 0  # How far one was ahead of another.

    def __init__(self, num_envs, n_ready=2, fails_at=None, mode=NEXT_STEP, **kwargs):
        self.n, self.n_ready, self.fails_at, self.autoreset_mode = num_envs, n_ready, fails_at, mode
        self._singles = [GymVectorEnv(make_gym_vector(1, **kwargs)) for _ in range(num_envs)]
        self._action_space, self._observation_space = self._singles[0].action_space, self._singles[0].observation_space
        self._rng, self._begun, self._n_steps = np.random.default_rng(0), {}, np.zeros(num_envs, int)

    def seed(self, seeds):
        super().seed(seeds)
        for single, seed in zip(self._singles, seeds):
            single.seed([seed])

    def reset_into(self, observation_out, which=None):
        for b in range(self.n) if which is None else np.flatnonzero(which):
            self._singles[b].reset_into(observation_out[b : b + 1])

    def send(self, columns, actions):
        for i, b in enumerate(columns.tolist()):
            assert b not in self._begun, "one step at a time"
            self._begun[b] = actions[i : i + 1]

    def receive(self, k, observation_out):
        assert k <= len(self._begun), "it would wait forever"
        columns = self._rng.choice(sorted(self._begun), k, replace=False)
        steps = []
        for i, b in enumerate(columns.tolist()):
            self._n_steps[b] += 1
            if self._n_steps[b] == self.fails_at:
                raise ZeroDivisionError("planned failure")
            steps.append(self._singles[b].step_into(self._begun.pop(b), observation_out[i : i + 1]))
        type(self).most = max(type(self).most, int(np.ptp(self._n_steps)))
        return columns, VectorStep(*(map_structure(lambda *parts: np.concatenate(parts), *parts) for parts in zip(*(s[:4] for s in steps))))

    def step_into(self, actions, observation_out):
        self.send(np.arange(self.n), actions)
        scratch = buffer_func(observation_out, np.copy)
        columns, step = ReadyVector.receive(self, self.n, scratch)
        order = np.argsort(columns)
        observation_out[...] = scratch[order]
        return VectorStep(*(buffer_func(part, lambda x: x[order]) for part in step))

    def close(self):
        for single in self._singles:
            single.close()
