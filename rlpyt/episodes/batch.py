"""Batches of transitions and of whole episodes.

Steps are packed: arrays are ``[S,...]``, episode after episode. Observations, actions and infos may be nested dictionaries of arrays.
Batches hold the given arrays without a copy, and never change them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rlpyt.envs.base import ActionForm
from rlpyt.envs.specs import EnvSpec, StepType, contains, fits_space, form_of, same_value
from rlpyt.episodes.samples import episode_fields, to_samples
from rlpyt.utils.misc import has_all
from rlpyt.utils.structures import Tree, as_array, as_numpy, as_torch, cat, is_tensor, leaves, structure, tree_map


@dataclass(frozen=True, eq=False, init=False, repr=False)
class TimeStepBatch:
    """n transitions in any order; immutable, compared by value.

    Args:
        env_spec: `EnvSpec` of their environment; None if unknown: then nothing is compared with spaces.
        episode_infos: dictionary of arrays [n,...] that are constant during an episode.
        observations, next_observations: before and after the action [n,...].
        actions: [n,...].
        rewards: [n].
        env_infos, agent_infos: nested dictionaries of arrays [n,...].
        step_types: `StepType` of each [n]; kept as uint8.
        validate: check all shapes and types; unnecessary for arrays that come from another batch.

    Raises:
        ValueError: a field has a wrong type or shape. Sizes must match that of `rewards`.
    """

    env_spec: EnvSpec | None
    episode_infos: dict
    observations: Tree
    actions: Tree
    rewards: np.ndarray
    next_observations: Tree
    agent_infos: dict
    env_infos: dict
    step_types: np.ndarray

    _PER_STEP: ClassVar[tuple[str, ...]] = (
        *("rewards", "observations", "actions", "next_observations", "step_types"),
        *("agent_infos", "episode_infos", "env_infos"),
    )
    _PER_EPISODE: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        env_spec: EnvSpec | None,
        *,
        observations: Tree,
        actions: Tree,
        rewards: np.ndarray,
        next_observations: Tree,
        step_types: np.ndarray,
        env_infos: dict | None = None,
        agent_infos: dict | None = None,
        episode_infos: dict | None = None,
        validate: bool = True,
    ) -> None:
        self._fill(
            validate,
            env_spec=env_spec,
            episode_infos=episode_infos,
            observations=observations,
            actions=actions,
            rewards=rewards,
            next_observations=next_observations,
            agent_infos=agent_infos,
            env_infos=env_infos,
            step_types=step_types,
        )

    def _fill(self, validate: bool, **fields: Any) -> None:
        """Keep all fields, with empty dictionaries for infos that are None, and check them."""
        infos = ("agent_infos", "env_infos", "episode_infos", "episode_infos_by_episode")
        self._keep(**{name: {} if value is None and name in infos else value for name, value in fields.items()})
        if validate:
            self._check()
        self._keep(step_types=_as_uint8(self.step_types))

    def _check(self) -> None:
        _check_steps(self)

    def _keep(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _map(self, func: Callable) -> Any:
        """Return a batch of ``func(leaf)`` for every array."""
        names = (*self._PER_STEP, *self._PER_EPISODE)
        new = object.__new__(type(self))
        new._keep(env_spec=self.env_spec, **{name: tree_map(func, getattr(self, name)) for name in names})
        return new

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = ("env_spec", *self._PER_STEP, *self._PER_EPISODE)
        return all(same_value(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.rewards)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} steps)"

    # Kinds of arrays ------------------------------------------------------------------------------------------------
    def torch(self, device: Any = None) -> Any:
        """Return the batch with torch tensors, which share its memory if they are on the CPU; strings stay numpy arrays."""
        return self._map(lambda x: as_torch(x, device))

    def numpy(self) -> Any:
        """Return the batch with numpy arrays, which share the memory of tensors on the CPU."""
        return self._map(as_numpy)

    # Questions ------------------------------------------------------------------------------------------------------
    @property
    def terminals(self) -> np.ndarray:
        """Whether the episode terminated with the step [S] bool; False if it was truncated."""
        return self.step_types == int(StepType.TERMINAL)

    @property
    def timeouts(self) -> np.ndarray:
        """Whether the episode was truncated with the step [S] bool."""
        return self.step_types == int(StepType.TIMEOUT)

    # Conversions ----------------------------------------------------------------------------------------------------
    def for_envs(self) -> Any:
        """Return the batch with the actions that environments got, in the units of the action space and within its bounds.

        Agents may choose in other units, in which they also learn (`EnvSpec.action_form`): with actions as they chose them, likelihoods are
        right. Other programs need those of the environment. The arrays become numpy arrays. If actions are those of the environment
        already, or `env_spec` is None, this is the batch itself.
        """
        if self.env_spec is None or not any(self.env_spec.action_form):
            return self
        batch = self.numpy()
        actions = self.env_spec.for_envs(batch.actions)
        batch._keep(actions=actions, env_spec=replace(self.env_spec, action_form=ActionForm()))
        return batch

    @classmethod
    def concatenate(cls, *batches: TimeStepBatch) -> Any:
        """Return one batch with the steps of all `batches`, and the `env_spec` of the first.

        Raises:
            ValueError: no batch is given; or keys of infos, shapes of arrays, or the units of actions differ.
        """
        if not batches:
            raise ValueError(f"Concatenating takes at least one {cls.__name__}.")
        return cls._joined(batches, "batch")

    @classmethod
    def _joined(cls, batches: Sequence[TimeStepBatch], each: str) -> Any:
        """Concatenate batches; `each` is the word for one of them in error messages."""
        new = object.__new__(cls)
        new._keep(env_spec=batches[0].env_spec)
        check_action_forms([batch.env_spec for batch in batches], each)
        for name in (*cls._PER_STEP, *cls._PER_EPISODE):
            parts, shown = [getattr(batch, name) for batch in batches], name.removesuffix("_by_episode")
            expected = structure(parts[0])
            for i, part in enumerate(parts):
                got = structure(part)
                if got != expected:
                    raise ValueError(f"{shown} of {each} {i} has the keys {got}, but must have those of {each} 0, {expected}.")
            try:
                new._keep(**{name: cat(parts)})
            except (ValueError, RuntimeError) as error:  # from numpy, and from torch
                raise ValueError(f"{shown} cannot be put together, because shapes differ: {error}") from None
        return new

    def split(self) -> list:
        """Return n batches of one step each, views of this one: the opposite of `concatenate`."""
        return [self._map(lambda x, i=i: x[i : i + 1]) for i in range(len(self))]

    def take(self, idxs: np.ndarray) -> TimeStepBatch:
        """Return a copy of the steps chosen by `idxs`: a mask [S] bool, or indexes [n] int, whose order is kept."""
        idxs = _chosen(len(self), idxs)
        return self._map(lambda x: x[idxs])

    def sample(self, n: int, rng: np.random.Generator | None = None) -> TimeStepBatch:
        """Return `n` steps drawn uniformly with replacement, by `rng` (default: numpy's global state).

        Raises:
            ValueError: the batch is empty.
        """
        if not len(self):
            raise ValueError("There are no steps to sample from.")
        draw = np.random.randint if rng is None else rng.integers
        return self.take(draw(len(self), size=n))

    def to_time_step_list(self) -> list[dict]:
        """Return one dictionary per step with all fields except `env_spec`; arrays keep a leading dimension of 1."""
        batch = TimeStepBatch.from_episode_batch(self) if isinstance(self, EpisodeBatch) else self
        return [{name: getattr(step, name) for name in TimeStepBatch._PER_STEP} for step in batch.split()]

    @classmethod
    def from_time_step_list(cls, env_spec: EnvSpec | None, ts_samples: Sequence[dict]) -> TimeStepBatch:
        """Return the steps in dictionaries like those of `to_time_step_list`; each may hold any number of steps.

        Other keys, and ``env_spec``, are ignored. Missing infos are empty.

        Raises:
            ValueError: no dictionary is given, or a field of one is missing or wrong.
        """
        batches = []
        for i, sample in enumerate(ts_samples):
            _check_dict(f"Entry {i}", sample)
            given = {name: sample[name] for name in TimeStepBatch._PER_STEP if name in sample}
            if "next_observation" in sample:
                given.setdefault("next_observations", sample["next_observation"])
            _check_keys(f"Entry {i}", sample, [name for name in _NEEDED if name not in given])
            with _naming(f"Entry {i}"):
                batches.append(TimeStepBatch(env_spec, **given))
        if not batches:
            raise ValueError("from_time_step_list takes at least one dict of steps.")
        return TimeStepBatch._joined(batches, "entry")

    @classmethod
    def from_episode_batch(cls, batch: EpisodeBatch) -> TimeStepBatch:
        """Return the transitions of episodes, in order. Next observations and infos of episodes are copied, other fields are not."""
        fields = {name: getattr(batch, name) for name in TimeStepBatch._PER_STEP}
        return TimeStepBatch(env_spec=batch.env_spec, validate=False, **fields)

    @classmethod
    def from_samples(cls, samples: Any, env_spec: EnvSpec | None = None, **kwargs: Any) -> Any:
        """Return the transitions in a sampler's batch; arguments are those of `EpisodeBatch.from_samples`."""
        return TimeStepBatch.from_episode_batch(EpisodeBatch.from_samples(samples, env_spec, **kwargs))


def _padded_property(name: str, what: str) -> property:
    """Return a property of an `EpisodeBatch`: the arrays of field `name`, padded."""

    def padded(self: EpisodeBatch) -> Tree:
        return self._padded(getattr(self, name))

    return property(padded, doc=f"{what}, with zeros after the end of episodes; L is the time limit, or else the longest length.")


@dataclass(frozen=True, eq=False, init=False, repr=False)
class EpisodeBatch(TimeStepBatch):
    """N episodes with S steps in total, packed one after the other; immutable, compared by value.

    The last step of an incomplete episode is neither `TERMINAL` nor `TIMEOUT`.

    Args:
        env_spec: `EnvSpec` of their environment; None if unknown: then nothing is compared with spaces.
        episode_infos: dictionary of arrays [N,...] that are constant during an episode.
        observations: before the action [S,...].
        last_observations: after the last action of each episode [N,...].
        actions: [S,...].
        rewards: [S].
        env_infos, agent_infos: nested dictionaries of arrays [S,...].
        step_types: `StepType` of each step [S]; kept as uint8. `TERMINAL` and `TIMEOUT` are only at the last step of an episode.
        lengths: steps of each episode [N] int, at least 1.
        validate: check all shapes and types.

    Attributes:
        episode_infos_by_episode: as given, [N,...].

    Raises:
        ValueError: a field has a wrong type or shape.
    """

    episode_infos_by_episode: dict
    last_observations: Tree
    lengths: np.ndarray

    _PER_STEP: ClassVar = ("rewards", "observations", "actions", "step_types", "agent_infos", "env_infos")
    _PER_EPISODE: ClassVar = ("last_observations", "episode_infos_by_episode", "lengths")

    def __init__(
        self,
        env_spec: EnvSpec | None,
        *,
        observations: Tree,
        last_observations: Tree,
        actions: Tree,
        rewards: np.ndarray,
        step_types: np.ndarray,
        lengths: np.ndarray,
        env_infos: dict | None = None,
        agent_infos: dict | None = None,
        episode_infos: dict | None = None,
        validate: bool = True,
    ) -> None:
        self._fill(
            validate,
            env_spec=env_spec,
            episode_infos_by_episode=episode_infos,
            observations=observations,
            last_observations=last_observations,
            actions=actions,
            rewards=rewards,
            env_infos=env_infos,
            agent_infos=agent_infos,
            step_types=step_types,
            lengths=lengths,
        )

    def _check(self) -> None:
        _check_episodes(self)
        _check_steps(self)
        _check_lengths(self)

    def __repr__(self) -> str:
        return f"EpisodeBatch({self.n_episodes} episodes, {len(self)} steps)"

    # Where episodes are ---------------------------------------------------------------------------------------------
    @property
    def n_episodes(self) -> int:
        """Number of episodes N."""
        return len(self.lengths)

    @property
    def _lengths(self) -> np.ndarray:
        """The lengths [N] as numpy int64, whatever their dtype."""
        return as_numpy(self.lengths).astype(np.int64, copy=False)

    @property
    def _stops(self) -> np.ndarray:
        """Index after the last step of each episode [N] int64."""
        return np.cumsum(self._lengths)

    @property
    def _slices(self) -> list[slice]:
        stops = self._stops
        return [slice(*bounds) for bounds in zip((stops - self._lengths).tolist(), stops.tolist())]

    @property
    def _episode_idxs(self) -> np.ndarray:
        """Number of the episode that each step belongs to [S] int64."""
        return np.repeat(np.arange(self.n_episodes), self._lengths)

    # Computed fields ------------------------------------------------------------------------------------------------
    @property  # type: ignore[misc]
    def next_observations(self) -> Tree:
        """The observations after the actions [S,...]; computed at each access."""
        ends = self._stops - 1

        def shift(observation: Any, last: Any) -> Any:
            following = np.roll(np.arange(len(observation)), -1)
            shifted = observation[following]
            shifted[ends] = last
            return shifted

        return tree_map(shift, self.observations, self.last_observations)

    @property  # type: ignore[misc]
    def episode_infos(self) -> dict:
        """`episode_infos_by_episode` repeated for each step [S,...]; computed at each access."""
        idxs = self._episode_idxs
        return tree_map(lambda x: x[idxs], self.episode_infos_by_episode)

    @property
    def observations_list(self) -> list:
        """The observations of each episode, a list of N arrays [T,...]; views."""
        return [tree_map(lambda x, s=s: x[s], self.observations) for s in self._slices]

    @property
    def actions_list(self) -> list:
        """The actions of each episode, a list of N arrays [T,...]; views."""
        return [tree_map(lambda x, s=s: x[s], self.actions) for s in self._slices]

    # Padded to the same length --------------------------------------------------------------------------------------
    def _padded_length(self) -> int:
        longest = int(self._lengths.max(initial=0))
        limit = None if self.env_spec is None else self.env_spec.max_episode_length
        if limit is None or np.isinf(limit):
            return longest
        if longest > limit:
            warnings.warn(
                f"An episode of {longest} steps has a longer length than requested by max_episode_length={limit} of the EnvSpec; "
                f"episodes are padded to {longest} steps.",
                stacklevel=4,
            )
        return max(longest, int(limit))

    def _padded(self, tree: Tree) -> Tree:
        """Return [N,L,...] with zeros after the end of episodes."""
        N, L = self.n_episodes, self._padded_length()
        row = self._episode_idxs
        idxs = row * L + np.arange(len(row)) - (self._stops - self._lengths)[row]  # [S], in [N*L]

        def pad(x: Any) -> Any:
            shape = (N * L, *x.shape[1:])
            out = x.new_zeros(shape) if is_tensor(x) else np.zeros(shape, x.dtype)
            out[idxs] = x
            return out.reshape(N, L, *x.shape[1:])

        return tree_map(pad, tree)

    padded_observations = _padded_property("observations", "Observations [N,L,...]")
    padded_next_observations = _padded_property("next_observations", "Observations after the actions [N,L,...]")
    padded_actions = _padded_property("actions", "Actions [N,L,...]")
    padded_rewards = _padded_property("rewards", "Rewards [N,L]")
    padded_step_types = _padded_property("step_types", "Step types [N,L] uint8; the zeros look like `StepType.FIRST`, see `valids`")
    padded_env_infos = _padded_property("env_infos", "Nested dictionary of arrays [N,L,...]")
    padded_agent_infos = _padded_property("agent_infos", "Nested dictionary of arrays [N,L,...]")

    @property
    def valids(self) -> np.ndarray:
        """Ones where padded arrays hold steps, zeros after the end of episodes [N,L], in the dtype of rewards."""
        rewards = self.rewards
        return self._padded(np.ones_like(rewards) if isinstance(rewards, np.ndarray) else rewards.new_ones(rewards.shape))

    # Conversions ----------------------------------------------------------------------------------------------------
    def split(self) -> list[EpisodeBatch]:
        """Return N batches of one episode each, views of this one: the opposite of `concatenate`."""
        return [self._select(s, slice(i, i + 1)) for i, s in enumerate(self._slices)]

    def _select(self, steps: Any, episodes: Any) -> EpisodeBatch:
        """Return the batch of these steps and episodes (slices, masks or indexes that belong together)."""
        new = object.__new__(EpisodeBatch)
        new._keep(env_spec=self.env_spec)
        new._keep(**{name: tree_map(lambda x: x[steps], getattr(self, name)) for name in self._PER_STEP})
        new._keep(**{name: tree_map(lambda x: x[episodes], getattr(self, name)) for name in self._PER_EPISODE})
        return new

    def select(self, episodes: Any) -> EpisodeBatch:
        """Return a copy of the chosen episodes: `episodes` is a mask [N] bool, or indexes [n] int, whose order is kept."""
        chosen = _chosen(self.n_episodes, episodes)
        stops, lengths = self._stops, self._lengths[chosen]
        starts = stops[chosen] - lengths
        steps = np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return self._select(steps, chosen)

    def take(self, idxs: np.ndarray) -> TimeStepBatch:
        """Return a copy of the steps chosen by `idxs` as transitions; see `TimeStepBatch.take`."""
        idxs = _chosen(len(self), idxs)
        episodes = np.searchsorted(self._stops, idxs, side="right")
        is_last = idxs + 1 == self._stops[episodes]

        def after(observation: Any, last: Any) -> Any:
            following = observation[np.where(is_last, idxs, idxs + 1)]
            following[is_last] = last[episodes[is_last]]
            return following

        new = object.__new__(TimeStepBatch)
        new._keep(
            env_spec=self.env_spec,
            next_observations=tree_map(after, self.observations, self.last_observations),
            episode_infos=tree_map(lambda x: x[episodes], self.episode_infos_by_episode),
            **{name: tree_map(lambda x: x[idxs], getattr(self, name)) for name in self._PER_STEP},
        )
        return new

    def to_list(self) -> list[dict]:
        """Return one dictionary per episode of T steps, for `from_list`.

        Its keys are observations, next_observations, actions, rewards, env_infos, agent_infos, step_types (all [T,...], or nested
        dictionaries of such) and episode_infos (without a leading dimension).
        """
        per_step = {name: getattr(self, name) for name in (*self._PER_STEP, "next_observations")}
        return [
            {
                **{name: tree_map(lambda x, s=s: x[s], tree) for name, tree in per_step.items()},
                "episode_infos": tree_map(lambda x, i=i: x[i], self.episode_infos_by_episode),
            }
            for i, s in enumerate(self._slices)
        ]

    @classmethod
    def from_list(cls, env_spec: EnvSpec | None, paths: Sequence[dict]) -> EpisodeBatch:
        """Return a batch of episodes given as dictionaries, one for each episode of T steps.

        Args:
            env_spec: `EnvSpec` of their environment, or None.
            paths: dictionaries with the keys observations ([T,...], or [T+1,...] with the last one), actions, rewards, and either
                step_types or dones (``TERMINAL`` where done, else ``MID``; bools, or 0 and 1). Optional keys: env_infos, agent_infos,
                episode_infos (without a leading dimension), and next_observations, which ends with the episode's last observation. (If no
                last observation is given, the one before is repeated.) Lists and tensors become numpy arrays; an entry of None counts as
                missing.

        Raises:
            ValueError: no dictionary is given, a field of one is missing or wrong, or fields of two do not match.
        """
        episodes = []
        for i, path in enumerate(paths):
            given = _path_of(f"Episode {i}", path)
            with _naming(f"Episode {i}"):
                episodes.append(cls(env_spec, **_episode_of(given)))
        if not episodes:
            raise ValueError("from_list takes at least one dict of an episode: from an empty list it cannot know the shapes.")
        return cls._joined(episodes, "episode")

    @classmethod
    def from_samples(  # type: ignore[override]
        cls,
        samples: Any,
        env_spec: EnvSpec | None = None,
        partial: str = "keep",
        boundary: str = "done",
        first: Any = None,
        mid_batch_reset: bool = True,
    ) -> EpisodeBatch:
        """Return the episodes in a sampler's batch, ordered by column, then by time. The arrays are copied.

        Args:
            samples: `rlpyt.types.Samples` [T,B], of arrays or tensors. If an episode in it terminated, the sampler needs
                ``keep_terminal_observations=True``. Columns may be selected (``samples[:, 2:4]``), but not rows (``samples[3:]``),
                because the positions of last observations depend on all rows.
            env_spec: `EnvSpec` of the result. ``EnvSpec.from_env(env, agent)`` records how the agent changes actions for environments.
            partial: "keep" or "drop" episodes that began before the batch, or continue after it.
            boundary: what ends an episode: "done", or env_info's "traj_done", e.g. for games that continue after a lost life.
            first: whether the first step of each column starts an episode [B] bool (or one bool for all); None if unknown.
            mid_batch_reset: setting of the sampler; if False, rows after the first `done` of a column are not steps.

        Raises:
            ValueError: an argument is invalid, or the batch lacks an observation that ended an episode.
        """
        return cls(env_spec=env_spec, **episode_fields(samples, partial, boundary, first, mid_batch_reset), validate=False)

    def to_samples(self, max_T: int | None = None, value: Callable | None = None) -> tuple[Any, Any]:
        """Return the episodes side by side as a training batch ``[T,N]`` of tensors, and a mask of its valid steps.

        Initialize the algorithm with ``mid_batch_reset=False``: columns are not reset within the batch. T is the length of the longest
        episode; after the end of an episode arrays are zero and ``done`` is True. Every column ends with ``done``: incomplete episodes
        count as truncated.

        Args:
            max_T: largest number of rows (env steps); longer episodes continue in another column. None for no limit.
            value: function of tensors (observations [n,...], previous actions [n,...], previous rewards [n]) that returns values [n],
                such as ``agent.value`` of a feed-forward agent. Truncated episodes bootstrap from these values; without `value`,
                algorithms ignore the last steps of truncated episodes.

        Returns:
            `rlpyt.types.Samples` [T,N], and the mask of valid steps, float32 [T,N].

        Raises:
            ValueError: the batch has no episodes, or `max_T` is less than 1.
        """
        return to_samples(self, max_T, value)


# ---------------------------------------------------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------------------------------------------------
def _chosen(n: int, which: Any) -> np.ndarray:
    """Return the choice of a mask [n], or of indexes (also negative ones), as indexes in [0,n)."""
    return np.arange(n)[as_numpy(which)]


def _as_uint8(step_types: Any) -> Any:
    if isinstance(step_types, np.ndarray) and step_types.dtype != np.uint8:
        return step_types.astype(np.uint8)
    return step_types


def check_action_forms(specs: Sequence[EnvSpec | None], each: str) -> None:
    """Raise ValueError if recorded actions become those of environments in different ways; `each` is the word for an owner of a spec."""
    forms = [spec.action_form for spec in specs if spec is not None]
    different = [form for form in forms if form != forms[0]]
    if different:
        raise ValueError(
            f"The actions of each {each} must be in the same units, but some are chosen by agents that change them for environments by "
            f"{forms[0]}, others by {different[0]}: join the results of for_envs()."
        )


_OF_SPEC = ("observation_space", "action_space", "max_episode_length")


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Prefix the message of a ValueError with `what`."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _check_dict(what: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is not a dictionary, but {form_of(value)}.")


def _check_keys(what: str, given: Mapping, missing: Sequence[str]) -> None:
    if missing:
        raise ValueError(f"{what} lacks {', '.join(missing)}; it has the keys {sorted(map(str, given))}.")


def _check_type(name: str, x: Any) -> None:
    if not isinstance(x, np.ndarray):
        raise ValueError(f"{name} is not of type numpy.ndarray, but {type(x).__name__}.")


def _check_vector(name: str, x: Any, of_each: str) -> None:
    _check_type(name, x)
    if x.ndim != 1:
        raise ValueError(f"{name} has shape {x.shape}, but must have one dimension: one number for each {of_each}.")


def _check_array(name: str, x: Any, n: int, like: str = "rewards") -> None:
    _check_type(name, x)
    _check_size(name, x, n, like)


def _check_size(name: str, x: np.ndarray, n: int, like: str) -> None:
    if x.ndim == 0 or len(x) != n:
        size = len(x) if x.ndim else "none"
        raise ValueError(f"{name} has batch size {size}, but must have batch size {n} to match {like}.")


def _check_infos(name: str, infos: Any, n: int, like: str = "rewards") -> None:
    if not isinstance(infos, dict):
        raise ValueError(f"{name} is not of type dict, but {type(infos).__name__}.")
    for path, x in leaves(infos):
        entry = f"Entry '{path}' in {name}"
        if not isinstance(x, np.ndarray):
            raise ValueError(f"{entry} is of type {type(x).__name__}, but must be of type numpy.ndarray or dict.")
        _check_size(entry, x, n, like)


def _check_tree(name: str, tree: Tree, n: int, like: str = "rewards") -> None:
    for path, x in leaves(tree):
        _check_array(f"{name}.{path}" if path else name, x, n, like)


def _first(tree: Tree) -> Tree:
    return tree_map(lambda x: x[0], tree)


def _shapes(tree: Tree) -> Any:
    return tree_map(np.shape, tree)


def _check_space(name: str, tree: Tree, space: Any, space_name: str, warn: bool = False) -> None:
    """Compare the form of each array's first element with the space; if `warn`, warn of values outside the space."""
    one = _first(tree)
    if warn and not contains(space, one) and fits_space(space, one):
        warnings.warn(f"An element of {name}s is not in the {space_name} {space!r}: a value or the dtype does not fit.", stacklevel=6)
    if not (contains(space, one) or fits_space(space, one)):
        raise ValueError(f"Each {name} has shape {_shapes(one)}, but must match the {space_name} {space!r}.")


def _check_steps(batch: TimeStepBatch) -> None:
    """Check the fields that have one entry per step."""
    if batch.env_spec is not None and not has_all(batch.env_spec, *_OF_SPEC):
        raise ValueError(f"env_spec={batch.env_spec!r} must be an EnvSpec, or None if unknown.")
    _check_vector("rewards", batch.rewards, "step")
    if batch.rewards.dtype.kind not in "biuf":
        raise ValueError(f"rewards has dtype {batch.rewards.dtype}, but must have a dtype of real numbers, such as float32.")
    n, spec, is_episodes = len(batch.rewards), batch.env_spec, isinstance(batch, EpisodeBatch)
    space_names = {"observation": "observation_space", "action": "action_space"}
    if not is_episodes:
        space_names["next_observation"] = "observation_space"
    for name, space_name in space_names.items():
        tree = getattr(batch, f"{name}s")
        _check_tree(f"{name}s", tree, n)
        if n and spec is not None:
            _check_space(name, tree, getattr(spec, space_name), space_name, warn=name == "observation")
    _check_step_types(batch.step_types, n)
    _check_infos("agent_infos", batch.agent_infos, n)
    if not is_episodes:
        _check_infos("episode_infos", batch.episode_infos, n)
    _check_infos("env_infos", batch.env_infos, n)


def _check_step_types(step_types: Any, n: int) -> None:
    _check_array("step_types", step_types, n)
    if step_types.ndim != 1:
        raise ValueError(f"step_types has shape {step_types.shape}, but must have shape ({n},).")
    are_types = step_types.dtype == object and all(isinstance(x, StepType) for x in step_types)
    if step_types.dtype.kind not in "iu" and not are_types:
        raise ValueError(f"step_types has dtype {step_types.dtype}, but must have an integer dtype, such as uint8.")
    wrong = [x for x in np.unique(step_types.astype(np.int64)) if x not in iter(StepType)]
    if wrong:
        raise ValueError(f"step_types has the values {wrong}, but must be a StepType: 0 to {max(StepType).value}.")


def _check_episodes(batch: EpisodeBatch) -> None:
    """Check the fields that have one entry per episode."""
    lengths = batch.lengths
    _check_vector("lengths", lengths, "episode")
    if lengths.dtype.kind not in "iu":
        raise ValueError(f"lengths has dtype {lengths.dtype}, but must have an integer dtype.")
    N = len(lengths)
    _check_infos("episode_infos", batch.episode_infos_by_episode, N, "lengths")
    _check_tree("last_observations", batch.last_observations, N, "lengths")
    expected, got = structure(batch.observations), structure(batch.last_observations)
    if expected != got:
        raise ValueError(f"last_observations has the keys {got}, but must have those of observations, {expected}.")
    if N and all(isinstance(x, np.ndarray) and len(x) for _, x in leaves(batch.observations)):
        one = _first(batch.observations)
        shapes = [_shapes(_first(batch.last_observations)), _shapes(one)]
        spec = batch.env_spec
        if shapes[0] != shapes[1] and (spec is None or fits_space(spec.observation_space, one)):
            raise ValueError(
                f"last_observations must have the same number of entries in each observation as observations: got shape {shapes[0]}, "
                f"expected {shapes[1]}."
            )


def _check_lengths(batch: EpisodeBatch) -> None:
    lengths, S = batch.lengths, len(batch.rewards)
    if lengths.size and lengths.min() < 1:
        raise ValueError(f"lengths has an entry of {lengths.min()}, but every episode must have at least 1 step.")
    if int(lengths.sum()) != S:
        raise ValueError(f"lengths has the sum {int(lengths.sum())}, but must have the sum {S}: the number of steps in rewards.")
    is_end = batch.terminals | batch.timeouts
    is_end[batch._stops - 1] = False
    for s in np.flatnonzero(is_end)[:1]:
        last = batch._stops[batch._episode_idxs[s]] - 1
        raise ValueError(
            f"step_types[{s}] is {StepType(int(batch.step_types[s])).name}, but its episode goes on to step {last}: what follows is "
            "another episode. Give each episode its own entry in lengths (or, in from_list, its own dictionary)."
        )


_NEEDED = ("observations", "actions", "rewards", "next_observations", "step_types")
_PATH_KEYS = (
    *("observations", "next_observations", "actions", "rewards", "step_types", "dones"),
    *("env_infos", "agent_infos", "episode_infos"),
)


def _path_of(what: str, path: Any) -> dict:
    """Return the fields of an episode that are given; ValueError if a required one is missing."""
    _check_dict(what, path)
    keys = [key for key in _PATH_KEYS if path.get(key) is not None]
    missing = [key for key in ("observations", "actions", "rewards") if key not in keys]
    missing += [] if "step_types" in keys or "dones" in keys else ["step_types (or dones)"]
    _check_keys(what, path, missing)
    return {key: path[key] for key in keys}


def _as_flags(name: str, x: np.ndarray) -> np.ndarray:
    """Return an array of bools, or of 0 and 1, as bool; any other text or number would count as True."""
    wrong = [] if x.dtype == bool else [value for value in x.ravel().tolist() if value not in (0, 1)]
    if wrong:
        raise ValueError(f"{name} has the value {wrong[0]!r}, but must have True or False (or 1 or 0) for each step.")
    return x.astype(bool)


def _episode_of(path: dict) -> dict:
    """Return the arguments of an `EpisodeBatch` that holds this episode."""
    path = {key: tree_map(lambda x, key=key: as_array(key, as_numpy(x)), given) for key, given in path.items()}
    for key, tree in path.items():
        for name, x in leaves(tree, key):
            if x.ndim == 0 and key != "episode_infos":
                raise ValueError(f"{name} has no dimension of steps, but must have one entry for each step.")
    T, observations = len(path["rewards"]), path["observations"]
    _check_tree("next_observations", path.get("next_observations", {}), T)
    if all(len(x) == T + 1 for _, x in leaves(observations)):
        last = tree_map(lambda x: x[T:], observations)
        observations = tree_map(lambda x: x[:T], observations)
    else:
        last = tree_map(lambda x: x[-1:], path.get("next_observations", observations))
    if "step_types" in path:
        step_types = path["step_types"]
    else:
        step_types = np.where(_as_flags("dones", path["dones"]), StepType.TERMINAL, StepType.MID).astype(np.uint8)
    return dict(
        observations=observations,
        last_observations=last,
        actions=path["actions"],
        rewards=path["rewards"],
        step_types=step_types,
        env_infos=path.get("env_infos", {}),
        agent_infos=path.get("agent_infos", {}),
        episode_infos=tree_map(lambda x: x[None], path.get("episode_infos", {})),
        lengths=np.array([T]),
    )
