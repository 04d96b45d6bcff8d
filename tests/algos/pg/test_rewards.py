"""Rewards are divided by the standard deviation of the discounted returns of all steps so far."""

import numpy as np
import pytest
import torch

from rlpyt.algos.pg.rewards import RewardScale

T, B, DISCOUNT = 6, 4, 0.9


def batches(n, seed=0, scale=7.0):
    rng = np.random.default_rng(seed)
    return [(torch.from_numpy(scale * rng.normal(1, 1, (T, B))).float(), torch.from_numpy(rng.random((T, B)) < 0.2)) for _ in range(n)]


class SlowScale:
    """Keeps all returns, one environment at a time."""

    def __init__(self):
        self.current, self.all = [0.0] * B, []

    def std(self, reward, done, valid):
        for b in range(B):
            for t in range(T):
                if valid[t][b]:
                    self.current[b] = self.current[b] * DISCOUNT + float(reward[t, b])
                    self.all.append(self.current[b])
                    if done[t, b]:
                        self.current[b] = 0.0
        return np.std(self.all)


@pytest.mark.parametrize("waits", [False, True])
def test_the_scale_is_that_of_all_returns_so_far(waits):
    scale, slow = RewardScale(DISCOUNT, B, torch.device("cpu")), SlowScale()
    for reward, done in batches(5):
        valid = torch.ones(T, B, dtype=torch.bool)
        if waits:  # After the first end of an episode, rows are blank.
            done = done.cumsum(0) > 0
            valid[1:] = ~done[:-1]
            reward = reward * valid
        scaled = scale.scaled(reward, done, valid if waits else None)
        expected = (reward / slow.std(reward, done, valid)).clamp(-10, 10)
        torch.testing.assert_close(scaled, expected.float())


def test_rewards_are_clipped_and_not_centered():
    scale = RewardScale(DISCOUNT, B, torch.device("cpu"))
    reward = torch.ones(T, B)
    reward[0, 0] = 1e6
    scaled = scale.scaled(reward, torch.zeros(T, B, dtype=torch.bool))
    assert scaled.max() <= 10 and (scaled > 0).all()
    constant = RewardScale(0.0, B, torch.device("cpu")).scaled(torch.ones(T, B), torch.zeros(T, B, dtype=torch.bool))
    assert constant.isfinite().all() and (constant == 10).all()


def test_a_saved_scale_continues_as_if_nothing_had_happened():
    first, resumed = RewardScale(DISCOUNT, B, torch.device("cpu")), RewardScale(DISCOUNT, B, torch.device("cpu"))
    *before, (reward, done) = batches(3)
    for batch in before:
        first.scaled(*batch)
    resumed.load_state_dict(first.state_dict())
    assert torch.equal(first.scaled(reward, done), resumed.scaled(reward, done))
    assert first.state_dict() == resumed.state_dict()


@pytest.mark.parametrize("damage", [dict(count=-1), dict(mean="0"), dict(returns=[None]), None])
def test_a_state_of_something_else_is_refused(damage):
    scale = RewardScale(DISCOUNT, B, torch.device("cpu"))
    with pytest.raises(ValueError, match="reward_scale"):
        scale.load_state_dict(None if damage is None else {**scale.state_dict(), **damage})
