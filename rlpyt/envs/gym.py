"""Environments of gymnasium, and of classic gym, as rlpyt environments.

This module imports neither: it recognizes the interface from what an environment returns, so that environments written for classic gym
work without gym. Only `make` imports gymnasium.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from rlpyt.envs.base import (
    CompletedEnv,
    CompletedSpec,
    Env,
    EnvSpaces,
    EnvStep,
    Wrapper,
    as_flag,
    as_number,
    time_limit_of,
    unwrapped,
    wrapper_chain,
    write_observation,
)
from rlpyt.envs.state import get_gym_state, set_gym_state, statistics_kept, with_known_state
from rlpyt.spaces.composite import child_seeds
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper, fits_losslessly
from rlpyt.spaces.masked import allowed_action, is_masked
from rlpyt.utils.collections import dynamic_namedtuple
from rlpyt.utils.extras import extra_with, import_error
from rlpyt.utils.misc import may_take_keyword, module_of
from rlpyt.utils.plain import check_form
from rlpyt.utils.seed import seed_method
from rlpyt.utils.structures import field_names

_NO_INFO: Mapping = {}
CLASSIC_TIMEOUT = "TimeLimit.truncated"  # info key for truncations in classic gym


class GymEnvWrapper(Wrapper, Env):
    """Gives an environment of gymnasium or classic gym the rlpyt interface.

    `rlpyt.spaces.gym_wrapper.GymSpaceWrapper` wraps the spaces. ``step`` may return five values (with terminated and truncated) or four
    (``info["TimeLimit.truncated"]`` then reports a truncation). ``reset`` may accept ``seed``, and may return info.

    The info dictionary becomes the namedtuple ``env_info``. The constructor finds its fields with one reset and one step with a random
    action, so every key must appear at the first step after a reset (otherwise use `EnvInfoWrapper`). Running statistics of wrappers, such
    as ``NormalizeObservation``, do not count that step if their class is called ``RunningMeanStd``. Keys become fields by these rules:

    - Keys that are not valid field names are changed, e.g. dots to underscores. Nested dictionaries become nested namedtuples.
    - Values that are not numbers or arrays of numbers are dropped, with one warning that names them.
    - Keys that appear only later are ignored; `rlpyt.envs.contract.check_env` names them. Missing keys and None become 0.
    - The boolean field ``timeout`` is added: truncated and not terminated. An info key of that name becomes ``timeout_``.

    Args:
        env: the environment.
        act_null_value: content of the action space's null value (see `GymSpaceWrapper`), in the rlpyt form of actions.
        obs_null_value: the same for observations.
        force_float32: convert float64 observations and actions to float32.
        action_mask: name of the mask of actions that may follow, in info or in a Dict observation, see
            `rlpyt.envs.action_masks.ActionMaskWrapper`. None if all actions may always follow.
    """

    _space_wrapper = GymSpaceWrapper
    _tuple_type: Callable[[str, list[str]], Any] = staticmethod(dynamic_namedtuple)
    _left_out: tuple[str, ...] = ()  # Keys of the info dictionary that are left out without a warning.

    # Plain attributes, set in the constructor, replace the base class's properties.
    action_space: GymSpaceWrapper = None  # type: ignore[assignment]
    observation_space: GymSpaceWrapper = None  # type: ignore[assignment]

    def __init__(
        self, env: Any, act_null_value: Any = 0, obs_null_value: Any = 0, force_float32: bool = True, action_mask: str | None = None
    ) -> None:
        _check_has_spaces(env)
        if action_mask is not None:
            from rlpyt.envs.action_masks import ActionMaskWrapper  # Here, because it needs gymnasium.

            env = ActionMaskWrapper(env, action_mask)
        env = with_known_state(env)
        super().__init__(env)
        self.act_null_value = act_null_value
        self.obs_null_value = obs_null_value
        self.force_float32 = force_float32
        # Copies, because environments may share one space (e.g. a class attribute) and its random generator.
        action_space, observation_space = copy.deepcopy((env.action_space, env.observation_space))
        self.action_space = self._space_wrapper(action_space, act_null_value, "action", force_float32)
        self.observation_space = self._space_wrapper(observation_space, obs_null_value, "observation", force_float32)
        self._seed: int | None = None
        with statistics_kept([env]):
            self._probe()
        plain = self.observation_space.is_plain_array
        self._obs_dtype = np.dtype(env.observation_space.dtype) if plain else None
        self._obs_shape = self.observation_space.shape if plain else None
        # The action space, if its `revert` surely returns its argument.
        is_same = type(self.action_space).revert is GymSpaceWrapper.revert and self.action_space.is_same_in_gym
        self._same_actions = self.action_space if is_same else None

    def _probe(self) -> None:
        """Determine the environment's interface and the keys of its info with one reset and one step."""
        reset_result = self.env.reset()
        action_space = copy.deepcopy(self.env.action_space)  # The generator of the original keeps its state.
        action_space.seed(0)
        action = action_space.sample()
        if is_masked(self.observation_space.null_value()):
            action = self._allowed(action, reset_result[0] if isinstance(reset_result, tuple) else reset_result)
        step_result = self.env.step(action)
        if not isinstance(step_result, tuple) or len(step_result) not in (4, 5):
            raise TypeError(
                f"step() of {self.env} must return (observation, reward, terminated, truncated, info) or "
                f"(observation, reward, done, info), got {step_result!r}."
            )
        self._is_classic = len(step_result) == 4
        self._resets_with_info = _is_observation_and_info(reset_result) and not (
            self._is_classic and self.observation_space.is_structured and len(self.observation_space.names) == 2
        )
        for observation in (reset_result[0] if self._resets_with_info else reset_result, step_result[0]):
            self.observation_space.convert(observation)  # Its error names the part of the observation that does not fit.
        as_number(step_result[1])
        for name, flag in zip(("done",) if self._is_classic else ("terminated", "truncated"), step_result[2:]):
            as_flag(flag, name)
        example = {key: value for key, value in step_result[-1].items() if key not in self._left_out}
        converter = InfoConverter(example, "info", self._tuple_type, has_timeout=True)
        self._to_env_info: Callable[..., Any] = converter
        self._only_timeout = converter.constant  # Looked up here, because a call takes longer.

    def _allowed(self, action: Any, observation: Any) -> Any:
        """Return an action like `action` that may follow an observation, both of the gym environment."""
        of_rlpyt = allowed_action(self.action_space, self.action_space.convert(action), self.observation_space.convert(observation))
        return self.action_space.revert(of_rlpyt)

    def step(self, action: Any) -> EnvStep:
        """Revert the action to its gym form, step the environment, and convert observation and info."""
        observation, reward, done, env_info = _step(self.__dict__, action)
        return EnvStep(self.observation_space.convert(observation), reward, done, env_info)

    def step_into(self, action: Any, observation_out: Any) -> tuple[float, bool, Any]:
        """Run a `step`, write the observation into `observation_out`, and return ``(reward, done, env_info)``."""
        own = self.__dict__
        observation, reward, done, env_info = _step(own, action)
        _write(own, observation, observation_out)
        return reward, done, env_info

    def bind_step(self) -> Callable[[Any, Any], tuple[float, bool, Any]]:
        """Return a faster `step_into`, which takes spaces and the fields of env_info as they are now."""
        if self._is_classic or self.action_space is not self._same_actions:
            return self.step_into
        own, ndarray, obs_dtype, obs_shape = self.__dict__, np.ndarray, self._obs_dtype, self._obs_shape
        no_timeout = None if self._only_timeout is None else self._only_timeout[False]  # The env_info of most steps.

        def step_into(action: Any, observation_out: Any) -> tuple[float, bool, Any]:
            stepped = own["env"].step(action)  # An environment may be replaced, even by a reset.
            try:
                observation, reward, terminated, truncated, info = stepped
            except (TypeError, ValueError):
                raise _no_step(own, stepped) from None
            if type(observation) is ndarray and observation.dtype == obs_dtype and observation.shape == obs_shape:
                observation_out[...] = observation
            else:
                _write(own, observation, observation_out)
            if terminated is False and truncated is False and no_timeout is not None and type(reward) is float:
                return reward, False, no_timeout
            return _outcome(own, reward, terminated, truncated, info)

        return step_into

    def reset(self) -> Any:
        """Reset the environment, with the seed of a preceding call of `seed` if any; return the converted observation."""
        return self.observation_space.convert(self._reset())

    def reset_into(self, observation_out: Any) -> None:
        """Run a `reset` and write the observation into `observation_out`."""
        _write(self.__dict__, self._reset(), observation_out)

    def _reset(self) -> Any:
        """Return the observation of the gym environment."""
        if self._seed is None:
            result = self.env.reset()
        else:
            seed, self._seed = self._seed, None
            result = self.env.reset(seed=seed)
        return result[0] if self._resets_with_info else result

    def watch_info(self) -> set[str]:
        """Return a set, to which later steps add the names of info keys that hold numbers but have no field in env_info."""
        left_out: set[str] = set()
        convert = cast(InfoConverter, self._to_env_info)

        def convert_and_watch(info: Mapping | None, timeout: bool | None = None) -> Any:
            converted = convert(info, timeout)
            left_out.update(convert.left_out(info or {}))
            return converted

        self._to_env_info, self._only_timeout = convert_and_watch, None
        return left_out

    def seed(self, seed: int) -> None:
        """Seed the environment, by ``reset(seed=seed)`` at the next reset or classic ``env.seed(seed)``, and its spaces."""
        Env.seed(self, seed)
        for space, space_seed in zip((self.env.action_space, self.env.observation_space), child_seeds(seed, 2)):
            space.seed(space_seed)  # The environment may sample from its original spaces.
        if self._is_classic and callable(classic_seed := seed_method(self.env)):
            classic_seed(seed)
        elif all(may_take_keyword(env.reset, "seed") for env in wrapper_chain(self.env)):
            self._seed = seed
        else:
            warnings.warn(
                f"{self.env} has neither reset(seed=...) nor seed(): its randomness does not follow the run's seed.", stacklevel=2
            )

    def get_state(self) -> dict:
        """Return the complete state as plain data; NotPlain if the state of a part is unknown, see `rlpyt.envs.state`."""
        return dict(env=get_gym_state(self.env), seed=self._seed)

    def set_state(self, state: dict) -> None:
        """Restore a state that `get_state` returned."""
        check_form(state, dict(env=list, seed=(int, type(None))), "The state of GymEnvWrapper")
        self._seed = state["seed"]
        set_gym_state(self.env, state["env"])

    @property
    def spaces(self) -> EnvSpaces:
        """The wrapped spaces: ``EnvSpaces(observation, action)``."""
        return EnvSpaces(observation=self.observation_space, action=self.action_space)

    @property
    def horizon(self) -> int | None:
        """Time limit of an episode (env steps), from a TimeLimit wrapper or the environment's spec; None if unknown."""
        for env in wrapper_chain(self.env):
            limit = time_limit_of(env) if type(env).__name__ == "TimeLimit" else None
            if limit is not None:
                return limit
        return CompletedSpec(CompletedEnv(self.env).spec).max_episode_steps

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _check_has_spaces(env: Any) -> None:
    """Raise AttributeError if an environment lacks a space."""
    for name in ("action_space", "observation_space"):
        try:
            getattr(env, name)
        except AttributeError as error:
            raise AttributeError(
                f"{type(unwrapped(env)).__name__} has no {name}. An environment assigns action_space and observation_space, two spaces of "
                "Gymnasium, in its class or its constructor."
            ) from error


def _step(own: dict[str, Any], action: Any) -> tuple[Any, float, bool, Any]:
    """Step the gym environment of a `GymEnvWrapper`; return ``(observation, reward, done, env_info)``, with the gym observation.

    Args:
        own: dictionary of the attributes of the `GymEnvWrapper`. To look one up is four times as fast there as at the object, because the
            class has ``__getattr__``.
        action: as the rlpyt environment gets it.
    """
    if own["action_space"] is not own["_same_actions"]:
        action = own["action_space"].revert(action)
    if own["_is_classic"]:
        observation, reward, done, info = own["env"].step(action)
        done = as_flag(done)
        timeout = done and as_flag(info.get(CLASSIC_TIMEOUT) or False, f"info['{CLASSIC_TIMEOUT}']")
        return observation, *_outcome(own, reward, done and not timeout, timeout, info)
    stepped = own["env"].step(action)
    try:
        observation, reward, terminated, truncated, info = stepped
    except (TypeError, ValueError):
        raise _no_step(own, stepped) from None
    return observation, *_outcome(own, reward, terminated, truncated, info)


def _no_step(own: dict[str, Any], stepped: Any) -> ValueError:
    """Return the error for an environment whose step did not return five values; `own` as for `_step`."""
    env = own["env"]
    n = len(stepped) if isinstance(stepped, (tuple, list)) else None
    got = type(stepped).__name__ if n is None else f"{n} values"
    classic = ", as in classic gym: return terminated and truncated in place of done" if n == 4 else ""
    return ValueError(
        f"step() of {type(unwrapped(env)).__name__} must return observation, reward, terminated, truncated, info. It "
        f"returned {got}{classic}."
    )


def _outcome(own: dict[str, Any], reward: Any, terminated: Any, truncated: Any, info: Any) -> tuple[float, bool, Any]:
    """Convert what a gym environment's step returned besides the observation to ``(reward, done, env_info)``; `own` as for `_step`."""
    if type(terminated) is not bool or type(truncated) is not bool:
        terminated, truncated = as_flag(terminated, "terminated"), as_flag(truncated, "truncated")
    timeout = truncated and not terminated
    if type(reward) is not float:
        reward = as_number(reward)
    only_timeout = own["_only_timeout"]
    return reward, terminated or timeout, own["_to_env_info"](info, timeout) if only_timeout is None else only_timeout[timeout]


def _write(own: dict[str, Any], observation: Any, out: Any) -> None:
    """Write a gym observation into the memory of a batch; `own` as for `_step`."""
    if type(observation) is np.ndarray and observation.dtype == own["_obs_dtype"] and observation.shape == own["_obs_shape"]:
        out[...] = observation
    else:
        write_observation(own["observation_space"].convert(observation), out)


class InfoConverter:
    """Converts info dictionaries to namedtuples of the same type as for an example, by the rules of `GymEnvWrapper`.

    Args:
        example: info dictionary with all keys, and values of the final type and shape.
        name: name of the namedtuple type; inner types are named ``name_field``.
        tuple_type: makes a namedtuple type, or a schema, from a name and field names.
        has_timeout: whether to add the boolean field ``timeout``; its value is the second argument of a call.
        path: what errors call the dictionary; None for `name`.

    Raises:
        ValueError: in a call, a value is not of the form that it has in the example; the message names it.

    Attributes:
        constant: the namedtuple for either value of ``timeout``, if there are no other fields; else None.
    """

    def __init__(
        self,
        example: Mapping,
        name: str = "info",
        tuple_type: Callable = dynamic_namedtuple,
        has_timeout: bool = False,
        path: str | None = None,
    ) -> None:
        self._path = path = name if path is None else path
        leaves = {key: value for key, value in example.items() if isinstance(value, Mapping) or _is_numeric(value)}
        self._dropped = dropped = [key for key in example if key not in leaves]
        if dropped:
            warnings.warn(
                f"Not numbers or arrays of numbers, and therefore left out of env_info: {name} keys {', '.join(map(repr, dropped))}.",
                stacklevel=2,
            )
        fields = field_names(leaves, taken=["timeout"] if has_timeout else ())
        self._parts: list[
            tuple[Any, type | None, InfoConverter | _InfoLeaf]
        ] = []  # (key, type of values that need no conversion, conversion of others)
        for (key, value), field in zip(leaves.items(), fields):
            if isinstance(value, Mapping):
                self._parts.append((key, None, InfoConverter(value, f"{name}_{field}", tuple_type, path=f"{path}[{key!r}]")))
            else:
                leaf = _InfoLeaf(value, f"{path}[{key!r}]")
                self._parts.append((key, leaf.scalar_type, leaf))
        self.tuple_cls = tuple_type(name, fields + ["timeout"] * has_timeout)
        self._make = self.tuple_cls._make
        self.constant = None
        if not self._parts:
            self.constant = {t: self._make([t] * has_timeout) for t in (False, True)}

    def __call__(self, info: Mapping | None, timeout: bool | None = None) -> Any:
        """Return the namedtuple for `info` (all zeros for None)."""
        if self.constant is not None:
            return self.constant[bool(timeout)]
        try:
            get = _NO_INFO.get if info is None else info.get
        except AttributeError:
            keys = [key for key, *_ in self._parts]
            raise ValueError(f"{self._path}: expected a dictionary with the keys {keys} as at the first step, got {info!r}.") from None
        values = []
        for key, scalar_type, convert in self._parts:
            value = get(key)
            values.append(value if scalar_type is not None and type(value) is scalar_type else convert(value))
        if timeout is not None:
            values.append(timeout)
        return self._make(values)

    def left_out(self, info: Mapping) -> Iterator[str]:
        """Yield the names of keys that hold numbers and have no field, such as ``episode['r']`` in a nested dictionary."""
        fields = {key: convert for key, _, convert in self._parts}
        for key, value in info.items():
            if key in fields:
                convert = fields[key]
                if isinstance(convert, InfoConverter) and isinstance(value, Mapping):
                    yield from (f"{key}[{name!r}]" for name in convert.left_out(value))
            elif key not in self._dropped and key != CLASSIC_TIMEOUT and (isinstance(value, Mapping) or _is_numeric(value)):
                yield str(key)


class _InfoLeaf:
    """Converts the values of one info key to the dtype and shape of an example."""

    def __init__(self, example: Any, path: str) -> None:
        array = np.asarray(example)
        self.path, self.dtype, self.shape = path, array.dtype, array.shape
        is_scalar = array.shape == () and not isinstance(example, np.ndarray)
        self.scalar_type = type(example) if is_scalar else None
        zeros = np.zeros(array.shape, array.dtype)
        zeros.flags.writeable = False
        self.zero: Any = type(example)(0) if is_scalar else zeros

    def __call__(self, value: Any) -> Any:
        if value is None:
            return self.zero
        try:
            array = np.asarray(value)
        except ValueError:  # nested lists of different lengths
            array = np.asarray(None)
        if array.dtype == self.dtype and array.shape == self.shape:
            return array
        if array.shape != self.shape or not fits_losslessly(array, self.dtype):
            raise ValueError(
                f"{self.path}: expected dtype {self.dtype} and shape {self.shape} as at the first step, got {value!r}. The "
                "first value must have the type of all later ones, e.g. 0.0 instead of 0 if later ones are not integers."
            )
        return array.astype(self.dtype)


class EnvInfoWrapper(Wrapper):
    """Adds missing keys to the info of every step, so that ``env_info`` has fields for keys that appear only at some steps.

    Put it between the gym environment and `GymEnvWrapper`: ``GymEnvWrapper(EnvInfoWrapper(env, info_example))``.

    Args:
        env: a gym environment.
        info_example: keys, possibly nested, and the values to use at steps without them.
    """

    def __init__(self, env: Any, info_example: Mapping) -> None:
        super().__init__(env)
        self.info_example = info_example

    def reset(self, **kwargs: Any) -> Any:
        """Reset the wrapped environment."""
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple:
        """Step the wrapped environment; add missing keys to the info."""
        *outcome, info = self.env.step(action)
        return (*outcome, infill_info(info, self.info_example))


def infill_info(info: Mapping, sometimes_info: Mapping) -> dict:
    """Return `info` with missing keys from `sometimes_info`, also in nested dictionaries."""
    filled = {**sometimes_info, **info}
    for key, example in sometimes_info.items():
        if isinstance(example, Mapping) and key in info:
            filled[key] = infill_info(info[key], example)
    return filled


def build_info_tuples(info: Mapping, name: str = "info") -> type:
    """Return the namedtuple type for info dictionaries like `info`; inner types are named ``name_field``."""
    return InfoConverter(info, name).tuple_cls


def info_to_nt(value: Any, name: str = "info") -> Any:
    """Return an info dictionary as a namedtuple named `name`; return other values unchanged."""
    return InfoConverter(value, name)(value) if isinstance(value, Mapping) else value


def make(*args: Any, info_example: Mapping | None = None, action_mask: str | None = None, **kwargs: Any) -> GymEnvWrapper:
    """Make an environment with ``gymnasium.make(*args, **kwargs)`` and wrap it.

    gymnasium's environment checker, which costs time at every step, is off unless ``disable_env_checker=False`` is given. An environment
    that gymnasium does not know is made by classic gym if the program has imported gym and registered the environment there.

    Args:
        info_example: if given, an `EnvInfoWrapper` with this example is put between the two.
        action_mask: name of the mask of actions, see `GymEnvWrapper`.
    """
    return GymEnvWrapper(make_gym(*args, info_example=info_example, **kwargs), action_mask=action_mask)


def make_gym(*args: Any, info_example: Mapping | None = None, **kwargs: Any) -> Any:
    """Return the environment that `make` wraps.

    Raises:
        ImportError: packages are missing, or the version does not work; the text says what to install or which version to use.
        TypeError: the id of the environment is missing.
    """
    import gymnasium

    if not args and "id" not in kwargs:
        given = f" instead of {', '.join(kwargs)}" if kwargs else ""
        raise TypeError(f'make needs the id of an environment{given}: for example env_kwargs=dict(id="CartPole-v1") of the sampler.')
    id = kwargs.get("id", args[0] if args else None)
    if isinstance(id, str) and id not in gymnasium.registry:
        _register_atari(id)
    try:
        env = gymnasium.make(*args, **{"disable_env_checker": True, **kwargs})
    except gymnasium.error.UnregisteredEnv as error:
        env = _make_classic(error, *args, **kwargs)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        better = _better_error(error, id.id if isinstance(id, gymnasium.envs.registration.EnvSpec) else id)
        if better is None:
            raise
        raise better from error
    return env if info_example is None else EnvInfoWrapper(env, info_example)


def _register_atari(id: str) -> None:
    """Import ale-py, if installed: this registers environments such as "ALE/Pong-v5" with gymnasium.

    Raises:
        ImportError: `id` is one of these environments, and ale-py cannot be imported.
    """
    try:
        import ale_py  # noqa: F401
    except ImportError as error:
        if id.startswith("ALE/"):
            raise import_error(f"{id} needs", "atari", error) from error


def _better_error(error: Exception, id: Any) -> ImportError | None:
    """Return an error that says what to install, or which version to use; None if neither helps."""
    import gymnasium

    missing = next((each for each in (error, error.__cause__) if isinstance(each, ImportError) and each.name), None)
    if missing is not None:
        extra = extra_with((missing.name or "").partition(".")[0])
        return None if extra is None else import_error(f"{id} needs", extra, missing)
    spec = gymnasium.registry.get(id)
    if spec is None or not _is_gymnasiums_own(spec):
        return None
    versions = [each for each in gymnasium.registry.values() if (each.namespace, each.name) == (spec.namespace, spec.name)]
    newest = max(versions, key=lambda each: each.version or 0)
    return None if newest is spec else ImportError(f"{id} cannot be made: {str(error).rstrip('.')}. Use {newest.id}.")


def _is_gymnasiums_own(spec: Any) -> bool:
    where = spec.entry_point if isinstance(spec.entry_point, str) else module_of(spec.entry_point)
    return where.startswith("gymnasium.")


def _make_classic(error: Exception, *args: Any, **kwargs: Any) -> Any:
    """Make an environment that gymnasium does not know with classic gym, if the program has imported gym.

    Raises:
        type(error): gym does not know the id either, or is not imported.
    """
    gym, id_ = sys.modules.get("gym"), args[0] if args else kwargs.get("id")
    if gym is None:
        name = str(id_).rpartition(":")[2]
        package = f"If a package registers it, import that package first, or write id='package:{name}'. (For classic gym, import gym too.)"
        hint = "" if "Did you mean" in str(error) or "It provides" in str(error) else package  # Gymnasium says which names there are.
    else:
        try:
            gym.spec(id_)
        except Exception as unknown:  # The class differs between versions of gym.
            hint = f"Classic gym, which is imported, does not know it either: {unknown}"
        else:
            return gym.make(*args, **kwargs)
    raise type(error)(f"{error} {hint}".rstrip()) from None


def _is_observation_and_info(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)


def _is_numeric(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biufc"
    except ValueError:  # nested lists of different lengths
        return False


def __getattr__(name: str) -> Any:
    if name == "TimeLimit":  # gymnasium is imported only when needed.
        from gymnasium.wrappers import TimeLimit

        return TimeLimit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
