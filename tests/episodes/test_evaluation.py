import numpy as np
import pytest

from rlpyt.envs.point_env import PointEnv
from rlpyt.episodes import StepType, obtain_evaluation_episodes, rollout


class TowardsGoal:
    """Acts towards (1, 1), but says something else if it is not asked for the mean."""

    n_resets = 0

    def reset(self, do_resets=None):
        self.n_resets += 1

    def get_action(self, observation):
        return -np.ones(2, np.float32), dict(mean=np.ones(2, np.float32))


def test_a_rollout_has_one_entry_per_step():
    path = rollout(PointEnv(), TowardsGoal(), max_episode_length=3)
    assert all(len(path[key]) == 3 for key in ("observations", "next_observations", "actions", "rewards", "step_types", "dones"))
    assert len(path["agent_infos"]["mean"]) == len(path["env_infos"]["success"]) == 3
    np.testing.assert_array_equal(path["observations"][1:], path["next_observations"][:-1])
    assert path["step_types"].tolist() == [StepType.FIRST, StepType.MID, StepType.TIMEOUT] and not path["dones"].any()
    assert (path["actions"] < 0).all() and set(path["episode_infos"]) == {"goal"}


def test_a_deterministic_one_acts_by_the_mean_until_the_goal_is_reached():
    path = rollout(PointEnv(), TowardsGoal(), deterministic=True)
    assert path["step_types"][-1] == StepType.TERMINAL and path["dones"].tolist() == [False] * (len(path["dones"]) - 1) + [True]
    assert path["env_infos"]["success"][-1]


def test_evaluation_episodes_are_a_batch():
    policy = TowardsGoal()
    batch = obtain_evaluation_episodes(policy, PointEnv(), max_episode_length=4, num_eps=3)
    assert batch.lengths.tolist() == [4, 4, 4] and policy.n_resets == 3
    assert (batch.step_types.reshape(3, 4)[:, -1] == StepType.TIMEOUT).all()
    assert batch.episode_infos_by_episode["goal"].shape == (3, 2)


def test_no_steps_or_episodes_are_refused():
    with pytest.raises(ValueError, match="max_episode_length=0 must be at least 1"):
        rollout(PointEnv(), TowardsGoal(), max_episode_length=0)
    with pytest.raises(ValueError, match="num_eps=0 must be at least 1"):
        obtain_evaluation_episodes(TowardsGoal(), PointEnv(), num_eps=0)


def test_what_is_left_out_says_so():
    with pytest.raises(ImportError, match="There is no TFTrainer: rlpyt trains with PyTorch"):
        from rlpyt.episodes import TFTrainer  # noqa: F401
