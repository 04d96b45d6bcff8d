"""How a worker resets and steps each kind of environment."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from rlpyt.envs.base import as_flag, fast_reset, fast_step, write_observation
from rlpyt.envs.specs import STEP_TYPES, EnvSpec, EnvStep, StepType, checked_reset, checked_step
from rlpyt.utils.plain import check_form, set_legacy_state, set_python_state

GOES_ON, TERMINAL, TIMEOUT = 0, int(StepType.TERMINAL), int(StepType.TIMEOUT)


class RlpytDriver:
    """Drives an environment with the interface of `rlpyt.envs.base.Env`, which writes its observations in place.

    An episode ends with ``done``. It is truncated if ``env_info.timeout`` is True, or if the trajectory ends without ``done``.

    Attributes:
        needs_reset: whether the next episode begins with a reset; otherwise it continues the game, as after the loss of a life.
    """

    reward_dtype = np.float32

    def __init__(self, env: Any) -> None:
        self.env, self.env_spec = env, EnvSpec.from_env(env)
        self._step, self._reset = fast_step(env), fast_reset(env)
        self.needs_reset = True

    def first(self) -> tuple[Any, dict]:
        """Reset; return the observation and information on the episode."""
        return self.env.reset(), {}

    def reset(self, observation_out: Any) -> dict:
        """Reset, writing the observation; return information on the episode."""
        self._reset(observation_out)
        return {}

    def structure(self, observation: Any) -> Any:
        """Return an observation of nested dictionaries in the environment's structure."""
        from rlpyt.envs.adapters import from_dict

        return from_dict(observation, self.env.observation_space.null_value())

    def step(self, action: Any, observation_out: Any) -> tuple[float, int, Any]:
        """Step, writing the observation; return the reward, how the episode ended (or GOES_ON), and the env_info."""
        reward, done, env_info = self._step(action, observation_out)
        if done is not False:
            done = as_flag(done)
        if reward is None:  # Numpy would write NaN.
            raise TypeError(f"{type(self.env).__name__}.step(): reward: expected one number, got None.")
        is_over = getattr(env_info, "traj_done", done)
        if not done and not is_over:
            return reward, GOES_ON, env_info
        self.needs_reset = bool(is_over)
        return reward, TIMEOUT if getattr(env_info, "timeout", False) or not done else TERMINAL, env_info


class EnvironmentDriver:
    """Drives an `Environment`, which returns whole steps."""

    reward_dtype = np.float64
    needs_reset = True

    def __init__(self, env: Any) -> None:
        self.env, self.env_spec = env, env.spec

    def first(self) -> tuple[Any, dict]:
        """Reset; return the observation and information on the episode."""
        return checked_reset(self.env.reset(), self.env)

    def reset(self, observation_out: Any) -> dict:
        """Reset, writing the observation; return information on the episode."""
        observation, episode_info = self.first()
        write(observation, observation_out)
        return episode_info

    def structure(self, observation: Any) -> Any:
        """Return an observation of nested dictionaries in the environment's structure, with tuples for Tuple spaces."""
        return _as_in(self.env.observation_space, observation)

    def step(self, action: Any, observation_out: Any) -> tuple[float, int, dict]:
        """Step, writing the observation; return the reward, how the episode ended (or GOES_ON), and the env_info."""
        env_step = self.env.step(action)
        if type(env_step) is not EnvStep or env_step.step_type not in STEP_TYPES or env_step.reward is None:
            checked_step(env_step, self.env)
        write(env_step.observation, observation_out)
        return env_step.reward, int(env_step.step_type) if env_step.step_type >= TERMINAL else GOES_ON, env_step.env_info


def _as_in(space: Any, value: Any) -> Any:
    parts = getattr(space, "spaces", None)
    if parts is None:
        return value
    if isinstance(parts, tuple):
        return tuple(_as_in(part, value[f"item_{i}"]) for i, part in enumerate(parts))
    return {key: _as_in(part, value[key]) for key, part in parts.items()}


def make_driver(env: Any) -> RlpytDriver | EnvironmentDriver:
    """Return the driver of `env`; an environment of gymnasium is wrapped.

    Raises:
        TypeError: `env` is no environment.
    """
    from rlpyt.envs.adapters import EnvironmentAsRlpyt, RlpytAsEnvironment, as_environment, is_rlpyt

    if isinstance(env, RlpytAsEnvironment) and not has_structures(env):  # The environment inside has structures of another form.
        return RlpytDriver(env.env)
    if is_rlpyt(env) and not isinstance(env, EnvironmentAsRlpyt):
        return RlpytDriver(env)
    return EnvironmentDriver(as_environment(env))


def has_structures(env: Any) -> bool:
    """Return whether actions or observations of an `Environment` are dictionaries or tuples."""
    return any(hasattr(space, "spaces") for space in (env.action_space, env.observation_space))


def write(observation: Any, out: Any, name: str = "observation") -> None:
    """Copy an observation, an array or nested dictionaries and tuples of them, into memory of the same structure.

    Raises:
        ValueError, TypeError: the observation does not fit.
    """
    if isinstance(out, tuple):
        for i, (value, part) in enumerate(zip(observation, out, strict=True)):
            write(value, part, f"{name}[{i}]")
    elif not isinstance(out, dict):
        write_observation(observation, out, name)
    elif not isinstance(observation, dict) or observation.keys() != out.keys():
        got = list(observation) if isinstance(observation, dict) else type(observation).__name__
        raise ValueError(f"{name}: expected the keys {list(out)}, got {got}.")
    else:
        for key, part in out.items():
            write(observation[key], part, f"{name}[{key!r}]")


# ---------------------------------------------------------------------------------------------------------------------
# Random numbers
# ---------------------------------------------------------------------------------------------------------------------
class RandomState:
    """One worker's state of the global generators of Python, numpy and torch, for workers that share a process.

    In the block ``with random_state:`` the generators have this state; afterwards they have their previous one. Blocks may be nested.

    Args:
        seed: a SeedSequence.
    """

    def __init__(self, seed: np.random.SeedSequence) -> None:
        python, numpy_, torch_ = (int(x) for x in seed.generate_state(3))
        self._torch_seed = torch_
        self._own = random.Random(python).getstate(), np.random.RandomState(numpy_).get_state(), None
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._others = _get_states()
            _set_states(self._own, self._torch_seed)

    def __exit__(self, *exc_info: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._own = _get_states()
            _set_states(self._others)

    def state_dict(self) -> dict:
        """Return the state, for a checkpoint: plain data and arrays."""
        python, numpy_, torch_ = self._own
        return dict(python=python, numpy=numpy_, torch=None if torch_ is None else torch_.numpy(), torch_seed=self._torch_seed)

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`; ValueError if `state` has another form."""
        check_form(state, {"python": tuple, "numpy": object, "torch": object, "torch_seed": object}, "random")
        set_python_state(random.Random(0), state["python"], "random['python']")  # Raises an error now instead of at the first use.
        set_legacy_state(np.random.RandomState(0), state["numpy"], "random['numpy']")
        torch_ = None if state["torch"] is None else sys.modules["torch"].from_numpy(state["torch"].copy())
        self._own, self._torch_seed = (state["python"], state["numpy"], torch_), state["torch_seed"]


def _get_states() -> tuple:
    torch = sys.modules.get("torch")
    return random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()


def _set_states(states: tuple, torch_seed: int | None = None) -> None:
    python, numpy_, torch_state = states
    random.setstate(python)
    np.random.set_state(numpy_)
    if "torch" not in sys.modules:
        return
    torch = sys.modules["torch"]
    if torch_state is not None:
        torch.set_rng_state(torch_state)
    elif torch_seed is not None:
        torch.set_rng_state(torch.Generator().manual_seed(torch_seed).get_state())
