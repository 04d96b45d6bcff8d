"""Environments made for experiments."""

import numpy as np
import pytest

from rlpyt.envs.contract import check_env
from rlpyt.experiments.envs import make_partial, make_scaled


def test_only_some_components_of_observations_are_seen():
    env = make_partial("CartPole-v1", components=[0, 2])
    env.seed(0)
    assert env.reset().shape == env.spaces.observation.shape == (2,)
    observation = env.step(0).observation
    np.testing.assert_allclose(observation, np.array(env.env.unwrapped.state)[[0, 2]], rtol=1e-6)


@pytest.mark.parametrize(
    "name, components, message",
    [
        ("CartPole-v1", [0, 7], r"components=\[0, 7\] must be at least one of the numbers 0 to 3"),
        ("CartPole-v1", [], r"components=\[\] must be at least one of the numbers 0 to 3"),
        ("FrozenLake-v1", [0], r"Components can be chosen of vectors only, and observations are of Discrete\(16\)"),
    ],
)
def test_components_that_are_not_there_are_refused(name, components, message):
    with pytest.raises(ValueError, match=message):
        make_partial(name, components)


def test_rewards_are_scaled_for_training_only():
    pytest.importorskip("mujoco")
    train, evaluate = (make_scaled("HalfCheetah-v5", discount=discount) for discount in (0.99, None))
    for env in (train, evaluate):
        env.seed(0)
        env.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 6)).astype(np.float32)
    rewards = np.array([[env.step(action).reward for env in (train, evaluate)] for action in actions])
    ratios = rewards[:, 0] / rewards[:, 1]
    assert np.all(ratios > 0) and ratios.std() > 0


def test_rewards_are_divided_by_the_deviation_of_their_discounted_sum():
    env, plain = make_scaled("Pendulum-v1", discount=0.9), make_scaled("Pendulum-v1")
    actions = np.random.default_rng(0).uniform(-2, 2, (450, 1)).astype(np.float32)
    for seed in (3, 4):  # Statistics begin anew with a seed.
        for e in (env, plain):
            e.seed(seed)
            e.reset()
        return_, returns = 0.0, []
        for action in actions:
            step, (_, reward, done, _) = env.step(action), plain.step(action)
            return_ = 0.9 * return_ + reward
            returns.append(return_)
            if len(returns) > 1:
                assert step.reward == pytest.approx(np.clip(reward / np.std(returns), -10, 10), rel=1e-4)
            assert step.done == done
            if done:
                env.reset(), plain.reset()
                return_ = 0.0


def test_actions_beyond_the_bounds_are_clipped_by_the_space_that_samplers_ask():
    pytest.importorskip("mujoco")
    one, other = (make_scaled("HalfCheetah-v5") for _ in range(2))
    for env in (one, other):
        env.seed(0)
        env.reset()
    clipped = one.action_space.clip(np.full(6, 7.0, np.float32))
    assert one.step(clipped).reward == other.step(np.ones(6, np.float32)).reward


@pytest.mark.parametrize("make", [lambda: make_partial("CartPole-v1", [0, 2]), lambda: make_scaled("Pendulum-v1", 0.99)])
def test_they_keep_the_contract_of_environments(make):
    check_env(make)
