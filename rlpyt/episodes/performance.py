"""Records statistics of episodes in the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlpyt.envs.specs import StepType
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.utils.logging import logger

# Entries of env_infos that report success.
SUCCESS_KEYS = ("success", "is_success")

# Task name of episodes whose env_infos name no task.
UNNAMED_TASK = "__unnamed_task__"


def log_performance(
    itr: int,
    batch: EpisodeBatch,
    discount: float,
    prefix: str = "Evaluation",
    success_keys: Sequence[str] = SUCCESS_KEYS,
) -> np.ndarray:
    """Record statistics of episodes in the log's next row, in columns named ``prefix/...``.

    ``Iteration``, ``NumEpisodes``, ``AverageDiscountedReturn``, ``AverageReturn``, ``StdReturn`` (of the population), ``MaxReturn``,
    ``MinReturn``, ``TerminationRate`` (episodes that terminated instead of being truncated), and ``SuccessRate`` (episodes with success
    in any step) if the environment reports success.

    Args:
        itr: iteration.
        batch: the episodes; or a list of `rlpyt.types.TrajInfo`, which give no rates, and use their own discount instead of `discount`.
        discount: γ.
        prefix: prefix of the columns' names.
        success_keys: entries of env_infos that report success.

    Returns:
        The undiscounted returns [N].
    """
    statistics = _of_episodes(batch, discount, success_keys) if isinstance(batch, EpisodeBatch) else _of_traj_infos(batch)
    _record(itr, statistics, prefix)
    return statistics["returns"]


def log_multitask_performance(
    itr: int,
    batch: EpisodeBatch,
    discount: float,
    name_map: dict[int, str] | None = None,
    success_keys: Sequence[str] = SUCCESS_KEYS,
) -> np.ndarray:
    """Record the statistics of `log_performance` for each task, under the task's name, and for all episodes, under ``Average``.

    The task of an episode is "task_name" in the env_infos of its first step, or else the name of its "task_id".

    Args:
        itr: iteration.
        batch: the episodes.
        discount: γ.
        name_map: names of the task ids; other ids are named "Task #<id>". Tasks without an episode are recorded as well, with
            ``NumEpisodes`` 0 and NaN.
        success_keys: entries of env_infos that report success.

    Returns:
        The undiscounted returns of all episodes [N].
    """
    batch, name_map = batch.numpy(), name_map or {}
    tasks = np.array(_task_names(batch, name_map), dtype=object)
    names = list(dict.fromkeys([*name_map.values(), *tasks]))
    statistics = _of_episodes(batch, discount, success_keys)
    for name in names:
        chosen = tasks == name
        _record(itr, {key: value[chosen] for key, value in statistics.items()}, name)
    _record(itr, statistics, "Average")
    return statistics["returns"]


def _task_names(batch: EpisodeBatch, name_map: dict[int, str]) -> Iterable[str]:
    starts = np.cumsum(batch.lengths) - batch.lengths
    if "task_name" in batch.env_infos:
        return [str(name) for name in batch.env_infos["task_name"][starts]]
    if "task_id" in batch.env_infos:
        ids = (int(np.ravel(id_)[0]) for id_ in batch.env_infos["task_id"][starts])
        return [name_map.get(id_, f"Task #{id_}") for id_ in ids]
    return [UNNAMED_TASK] * batch.n_episodes


def _of_episodes(batch: EpisodeBatch, discount: float, success_keys: Sequence[str]) -> dict[str, np.ndarray]:
    """Return arrays [N]: returns, discounted, terminated, and success if the environment reports it."""
    batch = batch.numpy()
    lengths = np.asarray(batch.lengths, np.int64)
    starts = np.cumsum(lengths) - lengths
    rewards = np.asarray(batch.rewards, np.float64)
    t = np.arange(len(rewards)) - np.repeat(starts, lengths)

    def per_episode(reduce: np.ufunc, x: np.ndarray) -> np.ndarray:
        return reduce.reduceat(x, starts) if len(starts) else x[:0]

    statistics = dict(
        returns=per_episode(np.add, rewards),
        discounted=per_episode(np.add, rewards * float(discount) ** t),
        terminated=per_episode(np.logical_or, batch.step_types == int(StepType.TERMINAL)),
    )
    told = [batch.env_infos[key].reshape(len(rewards), -1).astype(bool).any(axis=1) for key in success_keys if key in batch.env_infos]
    if told:
        statistics["success"] = per_episode(np.logical_or, np.any(told, axis=0))
    return statistics


def _of_traj_infos(traj_infos: Sequence[Any]) -> dict[str, np.ndarray]:
    names = dict(returns="Return", discounted="DiscountedReturn")
    return {key: np.array([info[name] for info in traj_infos], np.float64) for key, name in names.items()}


def _record(itr: int, statistics: dict[str, np.ndarray], prefix: str) -> None:
    returns = statistics["returns"]
    columns = dict(Iteration=itr, NumEpisodes=len(returns), AverageDiscountedReturn=_or_nan(np.mean, statistics["discounted"]))
    for name, function in (("AverageReturn", np.mean), ("StdReturn", np.std), ("MaxReturn", np.max), ("MinReturn", np.min)):
        columns[name] = _or_nan(function, returns)
    for name, key in (("TerminationRate", "terminated"), ("SuccessRate", "success")):
        if key in statistics:
            columns[name] = _or_nan(np.mean, statistics[key])
    with logger.tabular_prefix(f"{prefix}/"):
        for name, value in columns.items():
            logger.record_tabular(name, value)


def _or_nan(function: Any, x: np.ndarray) -> float:
    return float(function(x)) if len(x) else float("nan")
