"""Statistics of episodes in the log."""

import numpy as np
import pytest
from gymnasium import spaces

from rlpyt.episodes import EnvSpec, EpisodeBatch, StepType, log_multitask_performance, log_performance
from rlpyt.samplers.collections import TrajInfo
from rlpyt.utils.logging import logger

SPEC = EnvSpec(spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
LENGTHS = [2, 3, 1, 2]
REWARDS = [1.0, 2.0, 3.0, 0.0, 1.0, -4.0, 2.0, 2.0]  # Returns 3, 4, -4, 4.
SUCCESS = [0, 1, 0, 0, 0, 0, 1, 0]
ENDS = [StepType.TERMINAL, StepType.TIMEOUT, StepType.TERMINAL, StepType.MID]


def batch(**env_infos):
    types = sum([[StepType.FIRST] * (n > 1) + [StepType.MID] * (n - 2) + [end] for n, end in zip(LENGTHS, ENDS)], [])
    return EpisodeBatch(
        env_spec=SPEC,
        observations=np.zeros((8, 1), np.float32),
        last_observations=np.zeros((4, 1), np.float32),
        actions=np.zeros(8, np.int64),
        rewards=np.array(REWARDS, np.float32),
        env_infos=env_infos,
        step_types=np.array(types, np.uint8),
        lengths=np.array(LENGTHS),
    )


@pytest.fixture
def row(monkeypatch):
    """The values recorded so far, by column."""
    recorded = {}

    def record(key, value, *args, **kwargs):
        recorded["".join(logger._state.tabular_prefixes) + key] = value

    monkeypatch.setattr(logger, "record_tabular", record)
    return recorded


DISCOUNTED = [1 + 1.0, 3 + 0.25, -4, 2 + 1.0]


def test_columns_of_the_log(row):
    returns = log_performance(7, batch(success=np.array(SUCCESS)), 0.5)
    assert returns.tolist() == [3, 4, -4, 4]
    assert row == {
        "Evaluation/Iteration": 7,
        "Evaluation/NumEpisodes": 4,
        "Evaluation/AverageDiscountedReturn": pytest.approx(np.mean(DISCOUNTED)),
        "Evaluation/AverageReturn": 7 / 4,
        "Evaluation/StdReturn": pytest.approx(np.std([3, 4, -4, 4])),
        "Evaluation/MaxReturn": 4,
        "Evaluation/MinReturn": -4,
        "Evaluation/TerminationRate": 0.5,
        "Evaluation/SuccessRate": 0.5,
    }


def test_success_is_recorded_only_where_it_is_told(row):
    log_performance(0, batch(), 1.0, prefix="Train")
    assert not any("Success" in name for name in row) and all(name.startswith("Train/") for name in row)


@pytest.mark.parametrize(
    "keys", [dict(is_success=np.array(SUCCESS, bool)), dict(success=np.zeros(8), is_success=np.array(SUCCESS)[:, None])]
)
def test_success_has_two_names(row, keys):
    log_performance(0, batch(**keys), 1.0)
    assert row["Evaluation/SuccessRate"] == 0.5


def test_rewards_are_summed_in_double_precision(row):
    large = batch()
    rewards = np.array([1e8, 1, 1e8, 1, 1, 0, 0, 0], np.float32)
    args = {name: getattr(large, name) for name in ("env_spec", "observations", "last_observations", "actions", "step_types", "lengths")}
    assert log_performance(0, EpisodeBatch(**args, rewards=rewards), 1.0).tolist() == [1e8 + 1, 1e8 + 2, 0, 0]


def test_no_episodes(row):
    assert log_performance(3, batch().select([]), 0.9).shape == (0,)
    assert row["Evaluation/NumEpisodes"] == 0 and np.isnan(row["Evaluation/AverageReturn"]) and np.isnan(row["Evaluation/TerminationRate"])


def test_statistics_of_traj_infos(row):
    infos = []
    for rewards in ([1.0, 2.0], [3.0]):
        infos.append(TrajInfo())
        for reward in rewards:
            infos[-1].step(None, None, reward, False, None, None)
    assert log_performance(1, infos, 1.0).tolist() == [3, 3]
    assert row["Evaluation/NumEpisodes"] == 2 and row["Evaluation/AverageReturn"] == 3 and "Evaluation/TerminationRate" not in row


# Several tasks -------------------------------------------------------------------------------------------------------
def averages(row):
    return {name.removesuffix("/AverageReturn"): value for name, value in row.items() if name.endswith("/AverageReturn")}


TASKS = np.repeat([1, 0, 1, 2], LENGTHS)


def test_tasks_by_their_names(row):
    names = np.array(["push", "reach"])[np.repeat([0, 1, 0, 1], LENGTHS)]
    returns = log_multitask_performance(2, batch(task_name=names, task_id=TASKS), 0.5)
    assert returns.tolist() == [3, 4, -4, 4]
    assert averages(row) == {"push": -0.5, "reach": 4, "Average": 7 / 4}
    assert row["push/TerminationRate"] == 1 and row["reach/TerminationRate"] == 0 and row["Average/NumEpisodes"] == 4


def test_tasks_by_their_ids_without_any_names(row):
    log_multitask_performance(2, batch(task_id=TASKS), 0.5)
    assert averages(row) == {"Task #1": -0.5, "Task #0": 4, "Task #2": 4, "Average": 7 / 4}


def test_ids_without_a_name_do_not_vanish_and_names_without_episodes_are_recorded(row):
    log_multitask_performance(2, batch(task_id=TASKS[:, None]), 0.5, name_map={1: "push", 5: "never"})
    expected = {"push": -0.5, "Task #0": 4, "Task #2": 4, "Average": 7 / 4}
    assert {name: value for name, value in averages(row).items() if name != "never"} == expected
    assert row["never/NumEpisodes"] == 0 and np.isnan(row["never/AverageReturn"]) and np.isnan(row["never/MaxReturn"])


def test_episodes_that_name_no_task(row):
    log_multitask_performance(2, batch(), 0.5)
    assert averages(row) == {"__unnamed_task__": 7 / 4, "Average": 7 / 4}
