"""Reads and writes episodes as Minari datasets; needs the extra `minari`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np

from rlpyt.envs.adapters import gymnasium_space
from rlpyt.envs.base import CompletedSpec
from rlpyt.envs.specs import EnvSpec, StepType, map_parts, sub_spaces
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.spaces.base import CompletedSpace
from rlpyt.utils.extras import import_error
from rlpyt.utils.misc import has_all
from rlpyt.utils.quick_args import takes
from rlpyt.utils.structures import Tree, field_names, leaves, numeric, tree_map
from rlpyt.utils.text import shortened

# Key of the agent_infos in Minari's infos.
_AGENT_INFOS = "agent_infos"


def _import_minari() -> ModuleType:
    try:
        import minari
    except ImportError as error:
        raise import_error("Datasets of Minari need", "minari", error) from error
    return minari


def from_minari(dataset: Any, episode_indices: Iterable[int] | None = None) -> EpisodeBatch:
    """Return the episodes of a dataset.

    Args:
        dataset: a ``minari.MinariDataset``, or the id of one on this machine, such as "mujoco/hopper/expert-v0".
        episode_indices: numbers of the episodes; None for all.

    Returns:
        The episodes, with the dataset's spaces in their `EnvSpec`. Their actions are elements of the dataset's action space, of which a
        Discrete may start at another number than 0. Observations of a Tuple space become dictionaries with the keys ``item_0``,
        ``item_1``, ... Infos have one entry per step; Minari's entry for the reset, if any, is left out. Infos that some episodes do not
        have are left out too, with a warning.

    Raises:
        ImportError: Minari is not installed.
        TypeError: `dataset` is something else.
        ValueError: no episodes are selected, or the dataset does not have them.
    """
    if isinstance(dataset, str):
        dataset = _import_minari().load_dataset(dataset)
    elif not has_all(dataset, "env_spec", "iterate_episodes"):
        raise TypeError(f"{shortened(repr(dataset), 100)} is no dataset of Minari: give one, or the id of one on this machine.")
    limit = CompletedSpec(dataset.env_spec).max_episode_steps
    spec = EnvSpec(dataset.observation_space, dataset.action_space, limit)
    there = [int(i) for i in dataset.episode_indices]
    indices = there if episode_indices is None else list(episode_indices)
    if not indices:
        raise ValueError(f"No episodes are selected; the dataset {dataset.id} has {len(there)}.")
    missing = sorted({*indices}.difference(there))
    if missing:
        raise ValueError(f"The dataset {dataset.id} has no episodes {missing}: choose among its episode_indices, {len(there)} in all.")
    paths = [_path(episode) for episode in dataset.iterate_episodes(indices)]
    for name in ("env_infos", "agent_infos"):
        infos = [path[name] for path in paths]
        common, dropped = _common(infos)
        if dropped:
            what = ", ".join(sorted(dropped))
            warnings.warn(
                f"Not all episodes of {dataset.id} have these {name} with one entry per step: {what}. They are left out.", stacklevel=2
            )
        for path, kept in zip(paths, common):
            path[name] = kept
    return EpisodeBatch.from_list(spec, paths)


def _path(episode: Any) -> dict:
    """Return an episode in the form that `EpisodeBatch.from_list` takes."""
    T = len(episode.rewards)
    infos = _per_step(_dicts(episode.infos or {}), T)
    agent_infos = infos.pop(_AGENT_INFOS, {})
    return dict(
        observations=_dicts(episode.observations),
        actions=_dicts(episode.actions),
        rewards=np.asarray(episode.rewards),
        step_types=StepType.from_flags(np.arange(T) == 0, episode.terminations, episode.truncations),
        env_infos=infos,
        agent_infos=agent_infos,
    )


def _dicts(value: Any) -> Tree:
    """Convert nested tuples to dictionaries, and lists to arrays."""
    if isinstance(value, dict):
        return {key: _dicts(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return {f"item_{i}": _dicts(part) for i, part in enumerate(value)}
    return np.asarray(value)


def _common(infos: list[dict], prefix: str = "") -> tuple[list[dict], set[str]]:
    """Return the entries that all of these nested dictionaries have, and the names of the others."""
    names: dict[str, list[bool]] = {}  # Whether each value of this name is a dictionary.
    for each in infos:
        for name, value in each.items():
            names.setdefault(name, []).append(isinstance(value, dict))
    shared = [name for name, nested in names.items() if len(nested) == len(infos) and len({*nested}) == 1]
    kept: list[dict] = [{} for _ in infos]
    dropped = {f"{prefix}{name}" for name in names if name not in shared}
    for name in shared:
        values = [each[name] for each in infos]
        if names[name][0]:
            values, of_part = _common(values, f"{prefix}{name}.")
            dropped |= of_part
            if of_part and not values[0]:
                continue
        for each, value in zip(kept, values):
            each[name] = value
    return kept, dropped


def _per_step(infos: Tree, T: int) -> Tree:
    """Return the infos with one entry per step, without the entry of the reset."""
    if not isinstance(infos, dict):
        return infos[-T:]
    kept = {key: value for key, value in infos.items() if isinstance(value, dict) or (value.ndim and len(value) in (T, T + 1))}
    return {key: _per_step(value, T) for key, value in kept.items()}


def to_minari(batch: EpisodeBatch, dataset_id: str, **metadata: Any) -> Any:
    """Write episodes, without loss of precision, as a new dataset on this machine.

    Args:
        batch: the episodes, with an `env_spec`. The dataset gets the actions of the environment, see `EpisodeBatch.for_envs`. Integers that
            a `GymSpaceWrapper` counts from 0 start where they do in the environment. Incomplete episodes are written as truncated. Infos
            are written if they are numbers; agent_infos become an entry of that name. episode_infos and the time limit of `env_spec` are
            left out, because Minari has no place for them; `from_minari` reads the time limit of ``env``, if given.
        dataset_id: ``(namespace/)(env_name/)dataset_name-v0``.
        metadata: further arguments of ``minari.create_dataset_from_buffers``, such as ``env``, ``algorithm_name``, ``author``, or
            ``jpeg_encoding=True``, which stores images with less space and less precision.

    Returns:
        The ``minari.MinariDataset``.

    Raises:
        ImportError: Minari is not installed.
        ValueError: the batch has no `env_spec` or no episodes, Minari rejects the id, or its version cannot store images exactly.
    """
    minari = _import_minari()
    if batch.env_spec is None:
        raise ValueError("The episodes have no env_spec, but a dataset needs its spaces.")
    if not batch.n_episodes:
        raise ValueError("There are no episodes to write.")
    spaces = dict(observation_space=batch.env_spec.observation_space, action_space=batch.env_spec.action_space)
    spaces = {name: _gymnasium_space(space) for name, space in spaces.items()}
    buffers = [_buffer(minari, episode, i, **spaces) for i, episode in enumerate(batch.for_envs().numpy().split())]
    arguments = {"jpeg_encoding": False, **spaces, **metadata}
    if not takes(minari.create_dataset_from_buffers, "jpeg_encoding") and not arguments.pop("jpeg_encoding") and _has_images(batch):
        raise ValueError(
            f"Minari {minari.__version__} stores images as JPEG, which changes them: install Minari 0.5.4 or later (it needs Python 3.11), "
            "or give jpeg_encoding=True to accept this."
        )
    return minari.create_dataset_from_buffers(dataset_id, buffers, **arguments)


def _gymnasium_space(space: Any) -> gymnasium.Space:
    """Return the space of Gymnasium, in which integers start where they do in the environment."""
    if isinstance(space, gymnasium.Space):
        return space
    parts = sub_spaces(space)
    if parts:
        return gymnasium.spaces.Dict({name: _gymnasium_space(part) for name, part in parts.items()})
    return CompletedSpace(space).space if np.any(_start(space)) else gymnasium_space(space)


def _start(space: Any) -> Any:
    """Return the integers of Gymnasium that a `GymSpaceWrapper` counts as 0; 0 for other spaces."""
    return CompletedSpace(CompletedSpace(space).space).start


def _from_start(space: Any, tree: Tree) -> Tree:
    """Return elements [n,...] of a space as those of its `_gymnasium_space`."""

    def shifted(part: Any, array: Any) -> Any:
        start = _start(part)
        return array + start if np.any(start) else array

    return map_parts(shifted, space, tree)


def _has_images(batch: EpisodeBatch) -> bool:
    """Return whether parts of observations are images to Minari: uint8 [H,W,C]."""
    return any(leaf.ndim == 4 and leaf.dtype == np.uint8 for _, leaf in leaves(batch.observations))


def _buffer(minari: ModuleType, episode: EpisodeBatch, i: int, observation_space: Any, action_space: Any) -> Any:
    """Return one episode as a Minari buffer."""
    observations = tree_map(lambda *x: np.concatenate(x), episode.observations, episode.last_observations)
    spec: Any = episode.env_spec
    observations, actions = _from_start(spec.observation_space, observations), _from_start(spec.action_space, episode.actions)
    truncations = episode.timeouts.copy()
    truncations[-1] |= not episode.terminals[-1]
    infos = numeric(episode.env_infos)
    if any(True for _ in leaves(numeric(episode.agent_infos))):
        infos = {**infos, _AGENT_INFOS: numeric(episode.agent_infos)}
    return minari.data_collector.EpisodeBuffer(
        id=i,
        observations=_as_in_space(observations, observation_space),
        actions=_as_in_space(actions, action_space),
        rewards=episode.rewards,
        terminations=episode.terminals,
        truncations=truncations,
        infos=infos,
    )


def _as_in_space(tree: Tree, space: Any) -> Any:
    """Convert dictionaries that represent tuples back to tuples."""
    if not isinstance(tree, dict):
        return tree
    if isinstance(space.spaces, Mapping):
        fields = zip(space.spaces.items(), field_names(space.spaces))  # In a sampler's batch, "a.b" is named "a_b".
        return {key: _as_in_space(tree[key if key in tree else field], part) for (key, part), field in fields}
    return tuple(_as_in_space(tree[f"item_{i}"], part) for i, part in enumerate(space.spaces))
