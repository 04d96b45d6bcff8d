"""Environments that step together: vectors, and the adapters that make them of Gymnasium's vectors, ale-py's and EnvPool's.

A sampler is told that its environments come as vectors by ``EnvCls=VectorEnvs(make)``. Each process that steps environments then makes one
vector, with an environment for each of its columns of the batch.

What happens after the last step of an episode is the vector's `autoreset_mode`, with Gymnasium's names::

    SAME_STEP   the vector resets the environment in the same step. It returns the first observation of the next episode, and the last one
                of the episode separately
    NEXT_STEP   the vector resets the environment by the next step, which ignores the action. This row of the batch is blank
    DISABLED    the sampler resets the environment, by `reset_into` with a mask
"""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from rlpyt.envs.base import CompletedEnv, CompletedSpec, DeclaresSpaces, close_env
from rlpyt.envs.gym import InfoConverter
from rlpyt.envs.state import get_gym_state, restore_each, set_gym_state, statistics_kept, with_known_state
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.composite import child_seeds
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.masked import allowed_action, without_mask
from rlpyt.utils.buffer import buffer_from_example, buffer_func, buffer_leaves
from rlpyt.utils.extras import import_error
from rlpyt.utils.misc import did_you_mean, has_all
from rlpyt.utils.plain import NotPlain, check_form, from_plain, to_plain
from rlpyt.utils.processors import allowed_cpus
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.seed import seed_generators
from rlpyt.utils.structures import as_dictionaries, leaves, map_structure

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
AUTORESET_MODES = (NEXT_STEP, SAME_STEP, DISABLED)

# The results of one step of n environments. A vector may reuse their memory at the next call.
#   reward             [n], numbers
#   terminated         [n], bool
#   truncated          [n], bool
#   infos              namedtuple of arrays [n,...] (possibly nested), the same at every step; None for no further information
#   final_observation  structure [n,...], of a SAME_STEP vector if an episode ended: rows of ended episodes hold their last observation
VectorStep = namedtuple("VectorStep", ["reward", "terminated", "truncated", "infos", "final_observation"], defaults=(None, None))


class VectorEnv(DeclaresSpaces):
    """`n` environments that step together, with the same spaces.

    A vector of your own sets `n`, `_action_space`, `_observation_space` (spaces of one environment) and `autoreset_mode`, and defines
    `step_into`, `reset_into` and `seed`. `rlpyt.envs.vector_contract.check_vector_env` tests whether it keeps the rules below.

    Attributes:
        n: number of environments.
        autoreset_mode: NEXT_STEP, SAME_STEP or DISABLED.
        resets_some: whether `reset_into` can reset some of the environments. DISABLED vectors must be able to.
        truncates_only_at_horizon: as in `DeclaresSpaces`.
        n_ready: for how many environments the agent acts at a time, as soon as they are ready, while the others step; None for all. Such a
            vector is a NEXT_STEP one, and defines `send` and `receive`.
    """

    n: int
    autoreset_mode = SAME_STEP
    resets_some = False
    n_ready: int | None = None

    def step_into(self, actions: Any, observation_out: Any) -> VectorStep:
        """Step all environments.

        Args:
            actions: structure ``[n,...]``.
            observation_out: arrays ``[n,...]``, or namedarraytuple of them, in which to write the observations after the step: the last
                one of an episode that ends, but in a SAME_STEP vector the first one of the next episode.

        Returns:
            a `VectorStep`. In a NEXT_STEP vector, an environment whose episode ended in the step before is reset instead of stepped; its
            entries of the `VectorStep` are ignored.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step_into(actions, observation_out).")

    def send(self, columns: np.ndarray, actions: Any) -> None:
        """Begin a step of environments `columns` [k] with `actions`, a structure ``[k,...]``, and do not wait for it. See `n_ready`."""
        raise NotImplementedError(f"{type(self).__name__} does not define send(columns, actions), which n_ready={self.n_ready} needs.")

    def receive(self, k: int, observation_out: Any) -> tuple[np.ndarray, VectorStep]:
        """Wait until `k` environments have ended the step that `send` began; write their observations, arrays ``[k,...]``.

        Returns:
            The environments' numbers [k], int64, in the order of the rows, and the `VectorStep` of k environments.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define receive(k, observation_out), which n_ready={self.n_ready} needs.")

    def reset_into(self, observation_out: Any, which: np.ndarray | None = None) -> None:
        """Start new episodes and write their first observations.

        Args:
            observation_out: as in `step_into`.
            which: bool ``[n]``, the environments to reset, and the only rows of `observation_out` to write; None means all. Only a vector
                that `resets_some` gets a mask.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define reset_into(observation_out, which=None).")

    def seed(self, seeds: Sequence[int]) -> None:
        """Seed environment ``i`` by ``seeds[i]``, and the spaces; takes effect at the next `reset_into` of all environments.

        Equal seeds must lead to equal episodes. In a vector whose environments share one random generator, they do so only with the same
        number of environments.
        """
        for space, space_seed in zip(self.spaces, child_seeds(seeds[0], 2)):
            space.seed(space_seed)

    def get_state(self) -> Any:
        """Return the state of all environments as plain data. `NotPlain` says that it is unknown."""
        raise NotPlain(f"{type(self).__name__} does not define get_state.")

    def set_state(self, state: Any) -> None:
        """Restore a state that `get_state` returned."""
        raise NotImplementedError(f"{type(self).__name__} does not define set_state(state).")


class VectorEnvs(Recorded):
    """Tells a sampler that its environments come as vectors: ``EnvCls=VectorEnvs(make)``.

    Args:
        make: function that makes a vector: ``make(num_envs=n, **env_kwargs)`` returns a `VectorEnv` or a ``gymnasium.vector.VectorEnv``.
            Such functions are ``gymnasium.make_vec``, `make_vec`, `make_ale` and `make_envpool`.
        n: number of environments of each vector; None for as many as each process has columns of the batch.

    Raises:
        TypeError: `make` cannot be called. ValueError: `n` is not a positive integer.
    """

    def __init__(self, make: Callable[..., Any], n: int | None = None) -> None:
        if not callable(make):
            raise TypeError(f"VectorEnvs needs a function that makes a vector, make(num_envs=n, **env_kwargs), got {make!r}.")
        if n is not None and not (isinstance(n, int) and n >= 1):
            raise ValueError(f"n={n!r} must be a number of environments, at least 1, or None for as many as a process has columns.")
        self.make, self.n = make, n
        self.__signature__ = _signature(make)  # Tells samplers which env_kwargs are possible.

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "__signature__"}

    def __call__(self, num_envs: int | None = None, **env_kwargs: Any) -> VectorEnv:
        """Make a vector of `num_envs` environments (by default `n`, or one).

        Raises:
            ValueError: the number is another one than `n`, or the vector has another number.
        """
        num_envs = num_envs or self.n or 1
        self.check_share(num_envs, f"{num_envs} environments are asked for")
        made = self.make(num_envs=num_envs, **env_kwargs)
        try:
            vector = as_vector(made)
        except Exception:
            close_env(made)
            raise
        if vector.n != num_envs:
            wrong, vector_n = type(vector).__name__, vector.n
            vector.close()
            raise ValueError(
                f"make(num_envs={num_envs}) returned a {wrong} of {vector_n} environments: it must make as many as num_envs says."
            )
        return vector

    def check_share(self, n_columns: int, where: str) -> None:
        """Raise ValueError if vectors of `n` environments do not fit a process with this number of columns; `where` says which."""
        if self.n is not None and n_columns != self.n:
            raise ValueError(
                f"VectorEnvs(n={self.n}) makes vectors of {self.n} environments, but {where}: a process steps one vector, with an "
                "environment for each of its columns. Leave n out, or choose batch_B (or eval_n_envs) and the number of workers to fit."
            )


def _signature(make: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of `make` without num_envs."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        return inspect.signature(lambda **env_kwargs: None)
    return inspect.Signature([parameter for name, parameter in parameters.items() if name != "num_envs"])


def as_vector(vector: Any) -> VectorEnv:
    """Return a vector of any kind as a `VectorEnv`.

    Raises:
        TypeError: `vector` is not a vector. ValueError: it is a vector that cannot be used, see `GymVectorEnv`.
    """
    if isinstance(vector, VectorEnv):
        return vector
    if _is_a(vector, "EnvPoolMixin"):
        raise TypeError(
            "EnvPool seeds its environments when it makes them, so the sampler must make them: give VectorEnvs(make_envpool), of "
            "rlpyt.envs.vector, and env_kwargs=dict(task_id=...)."
        )
    if is_gym_vector(vector):
        return (GymVectorEnv if CompletedEnv(vector.unwrapped).ale is None else AleVectorEnv)(vector)
    raise TypeError(f"{vector!r} is no vector: make must return a rlpyt.envs.vector.VectorEnv or a gymnasium.vector.VectorEnv.")


def is_gym_vector(env: Any) -> bool:
    """Return whether `env` is a vector with the interface of Gymnasium, and not a single environment."""
    return has_all(env, "num_envs", "single_observation_space")


class _Options(dict):
    """Options of a reset that can be looked up, and popped again, after they were popped.

    Gymnasium's vectors pop the mask from the options, where wrappers around them, such as RecordEpisodeStatistics, look for it later. The
    environments in the vector, which get the options next, should not see it when they go through these.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(options)
        self._popped: dict[str, Any] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._popped or super().__contains__(key)

    def pop(self, key: str, *default: Any) -> Any:
        if key not in self._popped and super().__contains__(key):
            self._popped[key] = super().pop(key)
        return self._popped[key] if key in self._popped else super().pop(key, *default)


# ---------------------------------------------------------------------------------------------------------------------
# Gymnasium
# ---------------------------------------------------------------------------------------------------------------------
class GymVectorEnv(VectorEnv):
    """Gives a ``gymnasium.vector.VectorEnv`` the interface of `VectorEnv`, in each of its three autoreset modes.

    Observations and actions are translated as by `rlpyt.envs.gym.GymEnvWrapper`. So are infos: the constructor finds their fields with one
    reset and one step with random actions. Entries that are not arrays of numbers are left out.

    Args:
        env: the vector.
        act_null_value, obs_null_value, force_float32: those of `GymEnvWrapper`.
        info_example: keys that do not appear at the first step, such as ``dict(episode=dict(r=0.0, l=0))`` of Gymnasium's
            ``RecordEpisodeStatistics``, with a value of one environment for steps without them.
        action_mask: name of the mask of actions that may follow, in infos or in a Dict observation, see
            `rlpyt.envs.action_masks.VectorActionMaskWrapper`. None if all actions may always follow.

    Raises:
        ValueError: the vector does not tell a known autoreset mode, or its environments have different spaces.
    """

    _action_space: GymSpaceWrapper
    _observation_space: GymSpaceWrapper
    _left_out: tuple[str, ...] = ("final_obs", "final_info")

    def __init__(
        self,
        env: Any,
        act_null_value: Any = 0,
        obs_null_value: Any = 0,
        force_float32: bool = True,
        info_example: Mapping | None = None,
        action_mask: str | None = None,
    ) -> None:
        if _is_a(env.unwrapped, "SyncVectorEnv"):
            env.unwrapped.envs = [with_known_state(each) for each in env.unwrapped.envs]
        self._inside, self.n = env, int(env.num_envs)
        if action_mask is not None:
            from rlpyt.envs.action_masks import VectorActionMaskWrapper  # Here, because it needs gymnasium.

            env = VectorActionMaskWrapper(env, action_mask)
        self.env = env
        self.autoreset_mode = self._mode()
        if self.autoreset_mode == NEXT_STEP and _is_a(env.unwrapped, "AsyncVectorEnv") and not env.unwrapped.shared_memory:
            raise ValueError(
                f"{env} has shared_memory=False. In NEXT_STEP mode, Gymnasium then resets an environment a second time after reset(): "
                "choose shared_memory=True, or autoreset_mode='SameStep' or 'Disabled'."
            )
        self._check_spaces()
        action_space, observation_space = copy.deepcopy((env.single_action_space, env.single_observation_space))
        self._action_space = GymSpaceWrapper(action_space, act_null_value, "action", force_float32)
        self._observation_space = GymSpaceWrapper(observation_space, obs_null_value, "observation", force_float32)
        self._takes_list = _is_a(env.unwrapped, "SyncVectorEnv", "AsyncVectorEnv")
        self.resets_some = self._takes_list or self.autoreset_mode == DISABLED
        self._seeds: list[int] | None = None
        # Ends of episodes at which to see whether the last observation outlives the reset that follows in the same step.
        self._n_to_watch = 10 if self.autoreset_mode == SAME_STEP and _is_a(env.unwrapped, "SyncVectorEnv") else 0
        self._memory: Any = None  # Of all observations, where only some are to be written.
        with statistics_kept([env, *CompletedEnv(env.unwrapped).envs]):
            self._probe({} if info_example is None else info_example)

    def _mode(self) -> str:
        mode = self.env.metadata.get("autoreset_mode")
        mode = mode.value if isinstance(mode, Enum) else mode
        if mode not in AUTORESET_MODES:
            raise ValueError(
                f"{self.env} does not tell how it resets environments: its metadata['autoreset_mode'] is {mode!r}, and must be one of "
                f"gymnasium.vector.AutoresetMode ({', '.join(AUTORESET_MODES)})."
            )
        return mode

    def _check_spaces(self) -> None:
        from gymnasium.vector.utils import batch_space

        env = self.env
        for what, of_one, of_all in (
            ("observations", env.single_observation_space, env.observation_space),
            ("actions", env.single_action_space, env.action_space),
        ):
            if batch_space(of_one, self.n) != of_all:
                raise ValueError(
                    f"The environments of {env} have different spaces of {what}: {of_all!r} is not {self.n} times {of_one!r}. One agent "
                    "acts for all, so give environments with equal spaces."
                )

    def _probe(self, info_example: Mapping) -> None:
        """Find the fields of infos with one reset and one step."""
        observation = self._probe_reset()
        space = copy.deepcopy(self.env.action_space)  # The generator of the original keeps its state.
        space.seed(0)
        action = space.sample()
        if without_mask(self._observation_space) is not self._observation_space:
            action = self._allowed_actions(observation)
        step = self.env.step(action)
        if not isinstance(step, tuple) or len(step) != 5:
            raise TypeError(f"step() of {self.env} must return (observations, rewards, terminated, truncated, infos), got {step!r}.")
        infos = self._of_steps(step[4], np.logical_or(step[2], step[3]))
        self._warn_of_dtypes(infos)
        example = {**self._own_info(infos), **_repeated(info_example, self.n)}
        self._to_infos = InfoConverter(example, "info")
        self._no_infos = self._to_infos.constant is not None

    def _probe_reset(self) -> Any:
        """Reset the vector; return observations, and keep the infos that its environments gave, without those of wrappers around it."""
        inner, of_envs = self.env.unwrapped, []
        reset = inner.reset

        def keeping(**kwargs: Any) -> tuple:
            of_envs.append(reset(**kwargs))
            return of_envs[-1]

        inner.reset = keeping
        try:
            observation, infos = self.env.reset()
        finally:
            del inner.reset
        self._reset_infos = of_envs[-1][1] if of_envs else infos
        return observation

    def _warn_of_dtypes(self, infos: Mapping) -> None:
        """Warn of infos that Gymnasium may cut, because it merges those of resets and of steps in one array."""
        if self.n == 1 or not self._takes_list or self.autoreset_mode == DISABLED:
            return
        of_resets = self._own_info(self._reset_infos)
        cut = [
            key
            for key, value in self._own_info(infos).items()
            if isinstance(value, np.ndarray) and not np.can_cast(value.dtype, np.asarray(of_resets.get(key, value)).dtype, "same_kind")
        ]
        if cut:
            warnings.warn(
                f"reset() of {self.env} returns infos of another dtype than step(): {', '.join(cut)}. In a step that resets some of its "
                "environments, Gymnasium puts both into one array, which may cut the others' values: return them with the same dtype, or "
                "choose autoreset_mode='Disabled'.",
                stacklevel=4,
            )

    def _allowed_actions(self, observation: Any) -> Any:
        """Return random actions, in the vector's form, that the masks in its observations allow."""
        out, space = self._scratch(), copy.deepcopy(self._action_space)
        self._observation_space.convert_into(observation, out)
        space.seed(0)
        actions = buffer_from_example(space.null_value(), (self.n,), share_memory=False)
        for b in range(self.n):
            actions[b] = allowed_action(space, space.sample(), out[b])
        return self._action_space.revert(actions)

    def _own_info(self, infos: Mapping) -> dict:
        """Return infos without their masks (key ``_x`` beside ``x``) and without the keys in `_left_out`."""
        is_mask = {key for key in infos if key.startswith("_") and key[1:] in infos}
        return {
            key: self._own_info(value) if isinstance(value, Mapping) else value
            for key, value in infos.items()
            if key not in is_mask and key not in self._left_out
        }

    def step_into(self, actions: Any, observation_out: Any) -> VectorStep:
        """Step the vector."""
        step = self._watched_step if self._n_to_watch > 0 else self.env.step
        observation, reward, terminated, truncated, infos = step(self._action_space.revert(actions))
        self._observation_space.convert_into(observation, observation_out)
        final = None
        if self.autoreset_mode == SAME_STEP:
            ended = np.logical_or(terminated, truncated)
            if ended.any():
                final = self._final_observation(infos, ended)
                infos = self._of_steps(infos, ended)
        return VectorStep(reward, terminated, truncated, self._as_infos(infos), final)

    def _watched_step(self, actions: Any) -> tuple:
        """Step a SyncVectorEnv; ValueError if an environment that it resets writes over its last observation."""
        vector = self.env.unwrapped
        envs, vector.envs = vector.envs, [_Watched(env) for env in vector.envs]
        try:
            result = self.env.step(actions)
            watched = [env for env in vector.envs if env.is_reset]
        finally:
            vector.envs = envs
        self._n_to_watch -= len(watched)
        if any(env.is_overwritten() for env in watched):
            raise ValueError(
                f"{self.env} resets its environments in the step that ends an episode (SAME_STEP), and they write each observation "
                "into the same memory: so the last observation of an episode is lost. Return copies from the environment's step() "
                "and reset(), or choose autoreset_mode='NextStep' or 'Disabled'."
            )
        return result

    def _of_steps(self, infos: Mapping, ended: np.ndarray) -> Mapping:
        """Return infos with those of the last step, not of the reset that followed, where an episode `ended` [n]."""
        if self.autoreset_mode != SAME_STEP or "final_info" not in infos:
            return infos
        others = {key: value for key, value in infos.items() if key.removeprefix("_") not in ("final_obs", "final_info")}
        return _chosen(others, infos["final_info"], self._reset_infos, np.asarray(ended, bool))

    def _as_infos(self, infos: Mapping) -> Any:
        return None if self._no_infos else self._to_infos(infos)

    def _final_observation(self, infos: Mapping, ended: np.ndarray) -> Any:
        """Return the last observations of episodes that `ended` [n], in a structure [n,...]."""
        final = infos.get("final_obs")
        if final is None:
            raise ValueError(f"{self.env} ended an episode in SAME_STEP mode without infos['final_obs'], the observation that ended it.")
        out = self._scratch()
        if isinstance(final, np.ndarray) and final.dtype == object:
            rows = [self._observation_space.convert(final[i]) if ended[i] else None for i in range(self.n)]
            for i, row in enumerate(rows):
                if row is not None:
                    out[i] = row
        else:
            which = np.flatnonzero(ended)  # Other rows hold anything.
            part = out[which]
            self._observation_space.convert_into(map_structure(lambda x: x[which], final), part)
            out[which] = part
        return out

    def _scratch(self) -> Any:
        if self._memory is None:
            self._memory = buffer_from_example(self._observation_space.null_value(), (self.n,), share_memory=False)
        return self._memory

    def reset_into(self, observation_out: Any, which: np.ndarray | None = None) -> None:
        """Reset the vector, with the seeds of a preceding call of `seed` if any; or some of its environments."""
        if which is None:
            seeds, self._seeds = self._seeds, None
            observation, _ = self.env.reset(seed=None if seeds is None else self._reset_seed(seeds))
            self._observation_space.convert_into(observation, observation_out)
            return
        observation, _ = self.env.reset(options=_Options(reset_mask=np.array(which, bool)))
        scratch = self._scratch()
        self._observation_space.convert_into(observation, scratch)
        for row, out in zip(buffer_leaves(scratch), buffer_leaves(observation_out), strict=True):
            out[which] = row[which]

    def _reset_seed(self, seeds: Sequence[int]) -> Any:
        """Return the argument ``seed`` of the vector's ``reset``: a list if its environments have random numbers of their own."""
        return list(seeds) if self._takes_list else int(seeds[0])

    def seed(self, seeds: Sequence[int]) -> None:
        """Seed the environments at the next reset. A vector with one random generator gets the first seed only.

        Generators in attributes of environments are seeded at once, but not if other processes step them (``AsyncVectorEnv``).
        """
        super().seed(seeds)
        self._seeds = [int(seed) for seed in seeds]
        for env, seed in zip(CompletedEnv(self.env.unwrapped).envs, seeds):
            seed_generators(env, int(seed))
            for space, space_seed in zip((env.action_space, env.observation_space), child_seeds(int(seed), 2)):
                space.seed(space_seed)  # The environment may sample from its spaces.

    def get_state(self) -> dict:
        """Return the state, of a vector whose environments are in this process, or that is written in Python."""
        env = self._inside
        if _is_a(env, "AsyncVectorEnv") or (_is_a(env.unwrapped, "SyncVectorEnv") and env is not env.unwrapped):
            raise NotPlain(f"The state of {env} is unknown.")
        if _is_a(env, "SyncVectorEnv"):
            state = [get_gym_state(each) for each in env.envs], to_plain(np.array(env._autoreset_envs))
        else:
            state = get_gym_state(env), None
        return dict(env=state, seeds=self._seeds)

    def set_state(self, state: Any) -> None:
        """Restore a state that `get_state` returned."""
        check_form(state, dict(env=tuple, seeds=(list, type(None))), "The state of GymVectorEnv")
        envs, resets = state["env"]
        self._seeds = state["seeds"]
        if resets is None:
            set_gym_state(self._inside, envs)
        else:
            check_form(envs, list, "The state of GymVectorEnv")
            self._inside._autoreset_envs = from_plain(resets, "The state of GymVectorEnv")
            restore_each(self._inside.envs, envs, set_gym_state)

    def render(self) -> Any:
        """Return the picture of the first environment."""
        return self.env.render()[0]

    @property
    def horizon(self) -> int | None:
        """Time limit of an episode (env steps), from the vector's spec; None if unknown."""
        return CompletedSpec(CompletedEnv(self.env).spec).max_episode_steps

    def close(self) -> None:
        """Close the vector."""
        env, self.env, self._inside = self._inside, None, None
        if env is not None:
            env.close()


def make_vec(
    id: Any, num_envs: int = 1, *, info_example: Mapping | None = None, action_mask: str | None = None, **kwargs: Any
) -> GymVectorEnv:
    """Make a vector of Gymnasium, with infos and masks as `GymVectorEnv` translates them: ``VectorEnvs(make_vec)``.

    Args:
        id: of the environment, such as "Taxi-v4", or its specification.
        num_envs: number of environments.
        info_example, action_mask: those of `GymVectorEnv`.
        kwargs: further arguments of ``gymnasium.make_vec``.
    """
    import gymnasium

    return GymVectorEnv(gymnasium.make_vec(id, num_envs=num_envs, **kwargs), info_example=info_example, action_mask=action_mask)


def _is_a(env: Any, *names: str) -> bool:
    return any(cls.__name__ in names for cls in type(env).__mro__)


class _Watched:
    """Stands for an environment of a SyncVectorEnv during a step, and tells whether a reset changed what the step returned."""

    is_reset = False
    _arrays: list[np.ndarray] | None = None  # Of the observation that the step returned.

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def step(self, action: Any) -> tuple:
        result = self._env.step(action)
        self._arrays = [leaf for _, leaf in leaves(as_dictionaries(result[0])) if isinstance(leaf, np.ndarray)]
        self._copies = [array.copy() for array in self._arrays]
        return result

    def reset(self, **kwargs: Any) -> tuple:
        self.is_reset = self._arrays is not None
        return self._env.reset(**kwargs)

    def is_overwritten(self) -> bool:
        return any(array.tobytes() != before.tobytes() for array, before in zip(self._arrays or (), self._copies))


def _repeated(example: Mapping, n: int) -> dict:
    """Return an info example of one environment for `n` of them."""
    return {
        key: _repeated(value, n) if isinstance(value, Mapping) else np.repeat(np.asarray(value)[None], n, axis=0)
        for key, value in example.items()
    }


def _chosen(infos: Mapping, final: Mapping, of_resets: Any, ended: np.ndarray) -> dict:
    """Return `infos`, without masks, with the entries of `final` where an episode `ended` [n].

    A key that `final` lacks was added by a wrapper around the vector, and is kept. If environments give that key at a reset
    (`of_resets`), its value is of the reset: zero replaces it. If no other environment gave it, the key is left out.
    """
    of_resets = of_resets if isinstance(of_resets, Mapping) else {}
    chosen: dict[str, Any] = {}
    both = {**infos, **final}
    for key in both:
        if key.startswith("_") and key[1:] in both:
            continue
        value, last = infos.get(key), final.get(key)
        if isinstance(value, Mapping) or isinstance(last, Mapping):
            chosen[key] = _chosen(value or {}, last or {}, of_resets.get(key), ended)
        elif last is None and key in of_resets:
            is_given = np.asarray(infos.get(f"_{key}", True)) & ~ended
            if is_given.any():
                chosen[key] = np.array(value)
                chosen[key][ended] = 0
        elif last is None:
            chosen[key] = np.array(value)
        else:
            others = np.zeros_like(last) if value is None else np.asarray(value)
            chosen[key] = merged = np.array(others, dtype=np.result_type(others, last))  # Dtypes of resets may be others.
            merged[ended] = last[ended]
    return chosen


def _check_numbers(actions: np.ndarray, n: int | None) -> None:
    """Raise ValueError unless all actions are from 0 to n - 1; None for other than discrete actions."""
    if n is not None and not (0 <= actions.min() and actions.max() < n):
        raise ValueError(f"action: expected numbers from 0 to {n - 1}, got {actions}.")


class AleVectorEnv(GymVectorEnv):
    """Gives ale-py's ``AtariVectorEnv`` the interface of `VectorEnv`: ``VectorEnvs(make_ale)``.

    Raises:
        ValueError: the vector returns batches of other sizes than its number of environments.
    """

    def __init__(self, env: Any, **kwargs: Any) -> None:
        if env.unwrapped.batch_size != env.num_envs:
            raise ValueError(
                f"batch_size={env.unwrapped.batch_size} of AtariVectorEnv must be left out: a step is to return all {env.num_envs} "
                "environments."
            )
        super().__init__(env, **kwargs)
        self.resets_some = True

    _left_out = ("final_obs", "final_info", "env_id")

    def step_into(self, actions: Any, observation_out: Any) -> VectorStep:
        """Step the vector.

        Raises:
            ValueError: an action is not in the action space; ale-py itself does not check.
        """
        _check_numbers(actions, CompletedSpace(self.env.single_action_space).n)
        return super().step_into(actions, observation_out)

    def _reset_seed(self, seeds: Sequence[int]) -> np.ndarray:
        return np.array(seeds, np.int64) % 2**31

    def get_state(self) -> dict:
        """Raise NotPlain: the state is unknown."""
        raise NotPlain("ale-py does not tell the state of its vectors.")


def make_ale(game: str = "pong", num_envs: int = 1, **kwargs: Any) -> AleVectorEnv:
    """Make a vector of Atari games by ale-py, which steps them in threads.

    Args:
        game: name of the game, such as "pong" or "ms_pacman".
        num_envs: number of environments.
        kwargs: further arguments of ``ale_py.vector_env.AtariVectorEnv``.

    Raises:
        ImportError: ale-py is missing. ValueError: there is no such game.
    """
    try:
        from ale_py import roms
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        raise import_error("make_ale needs", "atari", error) from error
    if game not in (games := roms.get_all_rom_ids()):
        raise ValueError(f"game={game!r} is no game of ale-py. {did_you_mean(game, games)}")
    return AleVectorEnv(AtariVectorEnv(game, num_envs, **kwargs))


# ---------------------------------------------------------------------------------------------------------------------
# EnvPool
# ---------------------------------------------------------------------------------------------------------------------
class EnvPoolVectorEnv(VectorEnv):
    """A vector of EnvPool, which steps its environments in threads: ``VectorEnvs(make_envpool)``.

    EnvPool seeds its environments when it makes them, so `seed` makes new ones. It resets an environment by the next step (NEXT_STEP).

    A pool that need not step all environments at once returns one at a time, since it would wait forever for a number that is larger than
    that of environments in a step.

    Args:
        make: makes the pool: ``make(seed=[...])``, with one seed per environment, or without an argument. If `n_ready` is less than `n`,
            with ``batch_size=1``.
        n: number of environments.
        n_ready: as in `VectorEnv`.

    Raises:
        ValueError: the pool returns another number of environments.
    """

    autoreset_mode = NEXT_STEP
    resets_some = True
    _action_space: GymSpaceWrapper
    _observation_space: GymSpaceWrapper
    _left_out = ("env_id", "players")

    def __init__(self, make: Callable[..., Any], n: int, n_ready: int | None = None) -> None:
        self._make, self.n, self.n_ready = make, n, n_ready
        self._one_by_one = n_ready is not None and n_ready < n
        self.env = env = make()
        if env.config["batch_size"] != (1 if self._one_by_one else n):
            raise ValueError(f"EnvPoolVectorEnv(n={n}, n_ready={n_ready}) got a pool with batch_size={env.config['batch_size']}.")
        self._action_space = GymSpaceWrapper(copy.deepcopy(env.action_space), 0, "action")
        self._observation_space = GymSpaceWrapper(copy.deepcopy(env.observation_space), 0, "observation")
        self._n_actions = CompletedSpace(env.action_space).n
        action = np.stack([np.asarray(self._action_space.null_value())] * n)
        self.reset_into(self._scratch(n))
        if self._one_by_one:
            self._send(np.arange(n), self._action_space.revert(action))
            infos = [env.recv()[4] for _ in range(n)][0]
        else:
            infos = env.step(self._action_space.revert(action))[4]
        example = {key: value for key, value in infos.items() if key not in self._left_out}
        self._to_infos = InfoConverter(example, "info")

    def step_into(self, actions: Any, observation_out: Any) -> VectorStep:
        """Step the pool.

        Raises:
            ValueError: an action is not in the space. EnvPool itself does not check this.
        """
        if self._one_by_one:
            self.send(np.arange(self.n), actions)
            scratch = self._scratch(self.n)
            columns, step = self.receive(self.n, scratch)
            order = np.argsort(columns)
            for rows, out in zip(buffer_leaves(scratch), buffer_leaves(observation_out), strict=True):
                out[...] = rows[order]
            return VectorStep(*(None if part is None else buffer_func(part, lambda x: x[order]) for part in step))
        _check_numbers(actions, self._n_actions)
        return self._taken_in(self.env.step(self._action_space.revert(actions)), observation_out)

    def send(self, columns: np.ndarray, actions: Any) -> None:
        """Begin a step of environments `columns` [k] with `actions` [k,...]; raises the errors of `step_into`."""
        _check_numbers(actions, self._n_actions)
        self._send(columns, self._action_space.revert(actions))

    def _send(self, columns: np.ndarray, actions: Any) -> None:
        self.env.send(actions, columns.astype(np.int32))

    def receive(self, k: int, observation_out: Any) -> tuple[np.ndarray, VectorStep]:
        """Wait for `k` environments, one after the other."""
        columns, steps = np.zeros(k, np.int64), []
        for i in range(k):
            results = self.env.recv()
            columns[i] = results[4]["env_id"][0]
            steps.append(self._taken_in(results, observation_out[i : i + 1]))
        reward, terminated, truncated = (np.concatenate([step[j] for step in steps]) for j in range(3))
        infos = map_structure(lambda *parts: np.concatenate(parts), *(step.infos for step in steps))
        return columns, VectorStep(reward, terminated, truncated, infos)

    def _taken_in(self, results: tuple, observation_out: Any) -> VectorStep:
        """Write the observations in the pool's `results` to `observation_out`; return the other results."""
        observation, reward, terminated, truncated, infos = results
        self._observation_space.convert_into(observation, observation_out)
        return VectorStep(reward, terminated, truncated, None if self._to_infos.constant is not None else self._to_infos(infos))

    def reset_into(self, observation_out: Any, which: np.ndarray | None = None) -> None:
        """Reset all environments, or those of the mask `which`."""
        if which is None and not self._one_by_one:
            self._observation_space.convert_into(self.env.reset()[0], observation_out)
            return
        ids = np.arange(self.n) if which is None else np.flatnonzero(which)
        for some in ids[:, None] if self._one_by_one else ids[None]:
            scratch = self._scratch(len(some))
            self._observation_space.convert_into(self.env.reset(some.astype(np.int32))[0], scratch)
            for rows, out in zip(buffer_leaves(scratch), buffer_leaves(observation_out), strict=True):
                out[some] = rows

    def _scratch(self, k: int) -> Any:
        return buffer_from_example(self._observation_space.null_value(), (k,), share_memory=False)

    def seed(self, seeds: Sequence[int]) -> None:
        """Make new environments, with these seeds modulo 2**31."""
        super().seed(seeds)
        self.close()
        self.env = self._make(seed=[int(seed) % 2**31 for seed in seeds])

    @property
    def horizon(self) -> int | None:
        """Time limit of an episode (env steps)."""
        return self.env.config.get("max_episode_steps")

    def close(self) -> None:
        """Close the pool."""
        env, self.env = self.env, None
        if env is not None:
            env.close()


_TASKS = "envpool.list_all_envs() has all of them."


def make_envpool(task_id: str, num_envs: int = 1, batch_size: int | None = None, **kwargs: Any) -> EnvPoolVectorEnv:
    """Make a vector of EnvPool.

    Args:
        task_id: such as "Pong-v5" or "HalfCheetah-v4"; ``envpool.list_all_envs()`` has them all.
        num_envs: number of environments.
        batch_size: the agent acts as soon as this number of environments is ready, for these, while others step; None waits for all. So
            does a number that is not below `num_envs`, as in evaluations of few environments.
        kwargs: further arguments of ``envpool.make``. `num_threads` is, if not given, the number of processors of this process.

    Raises:
        ImportError: EnvPool is missing. ValueError: there is no such task, or `batch_size` is not positive. TypeError: the task has no
            such setting.
    """
    if batch_size is not None and not (isinstance(batch_size, int) and batch_size >= 1):
        raise ValueError(f"batch_size={batch_size!r} must be a number of environments, at least 1, or None to wait for all.")
    try:
        import envpool
    except ImportError as error:
        if not (3, 11) <= sys.version_info[:2] <= (3, 13):
            version = ".".join(map(str, sys.version_info[:2]))
            raise ImportError(
                f"make_envpool needs EnvPool, which has packages for Python 3.11 to 3.13 only; this is Python {version}."
            ) from error
        raise import_error("make_envpool needs", "envpool", error) from error
    tasks = envpool.list_all_envs()
    if task_id not in tasks:
        raise ValueError(f"task_id={task_id!r} is no task of EnvPool. {did_you_mean(task_id, tasks, _TASKS)}")
    kwargs.setdefault("num_threads", min(num_envs, len(allowed_cpus())))
    if batch_size is not None and batch_size < num_envs:
        kwargs["batch_size"] = 1
    try:
        return EnvPoolVectorEnv(partial(envpool.make, task_id, env_type="gymnasium", num_envs=num_envs, **kwargs), num_envs, batch_size)
    except TypeError as error:
        names = envpool.make_spec(task_id).config._fields
        for name in kwargs:
            if name not in names and repr(name) in str(error):
                raise TypeError(f"{task_id} of EnvPool has no setting {name!r}. {did_you_mean(name, names)}") from error
        raise
