import math
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from agents_for_tests import RecordingAgent
from envs import CountingEnv

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.composite import MlpCompositeFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent, MlpLstmAgent
from rlpyt.agents.policy import AgentPolicy
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.envs.gym import make as gym_make
from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.point_env import PointEnv
from rlpyt.episodes import StepType, as_environment, obtain_evaluation_episodes, rollout
from rlpyt.samplers.episodic import LocalSampler
from rlpyt.utils.seed import seed_env


class TowardsGoal:
    """Acts towards (1, 1), but says something else if it is not asked for the mean."""

    n_resets = 0

    def reset(self, do_resets=None):
        self.n_resets += 1

    def get_action(self, observation):
        return -np.ones(2, np.float32), dict(mean=np.ones(2, np.float32))


def test_an_agent_explores_as_in_its_last_iteration_of_sampling():
    agent, env = MlpDqnAgent(eps_init=1.0, eps_final=0.0, eps_itr_min=0, eps_itr_max=10), gym_make("CartPole-v1")
    agent.initialize(env.spaces)

    def greedy(observations, actions):
        values = agent(torch.as_tensor(observations), torch.zeros(len(actions), dtype=torch.long), torch.zeros(len(actions)))
        return (values.argmax(-1).numpy() == actions).all()

    def played():
        sampler = LocalSampler(agent, env, max_episode_length=200, seed=0, n_workers=1)
        path, batch = rollout(env, agent), sampler.obtain_exact_episodes(3, None)
        return greedy(path["observations"], path["actions"]) and greedy(batch.observations, batch.actions), sampler

    assert not played()[0], "in iteration 0, it acts at random"
    agent.sample_mode(10)
    is_greedy, sampler = played()
    assert is_greedy
    batch = sampler.obtain_exact_episodes(3, None, itr=0)
    assert not greedy(batch.observations, batch.actions)
    batch = sampler.obtain_exact_episodes(3, None)
    assert not greedy(batch.observations, batch.actions), "as in the last call"


@pytest.mark.parametrize("play", [rollout, partial(obtain_evaluation_episodes, num_eps=2, deterministic=False)])
def test_an_agent_that_is_sampled_keeps_its_recurrent_state(play):
    agent, env = MlpLstmAgent(model_kwargs=dict(hidden_sizes=[4], lstm_size=4)), gym_make("CartPole-v1")
    agent.initialize(env.spaces)
    agent.sample_mode(0)
    inputs = torch.ones(3, 4), torch.zeros(3, dtype=torch.long), torch.zeros(3)

    def values(plays):
        agent.reset()
        first = agent.step(*inputs).agent_info.value
        if plays:
            if play is rollout:
                play(env, agent)
            else:
                play(agent, env)
        return first, agent.step(*inputs).agent_info.value

    expected = values(False)
    assert not torch.equal(*expected), "it remembers its first step"
    torch.testing.assert_close(values(True), expected, rtol=0, atol=0)


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


class ReusesMemory(gymnasium.Env):
    """Writes each observation and info into the same array, and spoils the action."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.t = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t[:] = 0
        return self.t, dict(t=self.t)

    def step(self, action):
        self.t += 1
        action *= 0
        return self.t, 1.0, bool(self.t >= 4), False, dict(t=self.t)


class SameMemory:
    """Writes actions and infos into the same arrays."""

    def __init__(self):
        self.action, self.n = np.zeros(1, np.float32), np.zeros(1)

    def reset(self, do_resets=None):
        self.n[:] = 0

    def get_action(self, observation):
        self.n += 1
        self.action[:] = self.n / 10
        return self.action, dict(n=self.n)


def test_what_environments_and_policies_write_into_the_same_memory_is_copied():
    path = rollout(ReusesMemory(), SameMemory())
    assert path["observations"].ravel().tolist() == [0, 1, 2, 3] and path["next_observations"].ravel().tolist() == [1, 2, 3, 4]
    assert path["env_infos"]["t"].ravel().tolist() == [1, 2, 3, 4] == path["agent_infos"]["n"].ravel().tolist()
    np.testing.assert_allclose(path["actions"].ravel(), [0.1, 0.2, 0.3, 0.4])
    batch = obtain_evaluation_episodes(SameMemory(), ReusesMemory(), num_eps=2)
    assert batch.observations.ravel().tolist() == [0, 1, 2, 3] * 2 and batch.last_observations.ravel().tolist() == [4, 4]


def test_evaluation_episodes_are_a_batch():
    policy = TowardsGoal()
    batch = obtain_evaluation_episodes(policy, PointEnv(), max_episode_length=4, num_eps=3)
    assert batch.lengths.tolist() == [4, 4, 4] and policy.n_resets == 3
    assert (batch.step_types.reshape(3, 4)[:, -1] == StepType.TIMEOUT).all()
    assert batch.episode_infos_by_episode["goal"].shape == (3, 2)


def agents():
    """Agents whose actions are told by what they say of them, with what tells so."""

    def mean(infos):
        return infos["dist_info"]["mean"]

    yield MlpGaussianFfAgent(), mean
    yield MlpCompositeFfAgent(), mean
    yield SacAgent(), lambda infos: np.tanh(mean(infos))
    yield DdpgAgent(), lambda infos: infos["mu"]


@pytest.mark.parametrize("wrap", [lambda agent: agent, AgentPolicy])
@pytest.mark.parametrize("k", range(4))
def test_a_deterministic_agent_acts_by_its_means_and_explores_again_afterwards(k, wrap):
    torch.manual_seed(0)
    agent, oracle = list(agents())[k]
    policy = wrap(agent)
    batch = obtain_evaluation_episodes(policy, PointEnv(), max_episode_length=5, num_eps=2)
    np.testing.assert_allclose(batch.actions, oracle(batch.agent_infos), rtol=0, atol=1e-6)
    path = rollout(PointEnv(), policy, max_episode_length=5)
    assert np.abs(path["actions"] - oracle(path["agent_infos"])).min() > 0


@pytest.mark.parametrize("clip", [True, False])
def test_environments_get_actions_within_their_bounds_unless_the_agent_says_otherwise(clip):
    agent = MlpGaussianFfAgent(model_kwargs=dict(init_log_std=1.0), clip_actions=clip)
    path = rollout(as_environment(CountingEnv(20, n_actions=0)), agent)
    chosen = path["actions"][:, 0]
    assert np.abs(chosen).max() > 1
    assert np.array_equal(np.clip(chosen, -1, 1) if clip else chosen, path["env_infos"]["action"])


def test_a_deterministic_agent_of_q_values_is_greedy():
    torch.manual_seed(0)
    agent = MlpDqnAgent(model_kwargs=dict(hidden_sizes=[4]), eps_eval=0.0)
    path = rollout(as_environment(CountingEnv(20)), agent, deterministic=True)
    assert path["actions"].tolist() == path["agent_infos"]["q"].argmax(-1).tolist()


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_agent_knows_its_rewards(deterministic):
    path = rollout(as_environment(CountingEnv(4)), RecordingAgent(), deterministic=deterministic)
    assert path["rewards"].any()
    assert path["agent_infos"]["prev_reward"].tolist() == [0, *path["rewards"][:-1]]
    assert path["agent_infos"]["prev_action"].tolist() == [0, *path["actions"][:-1]]


class Left:
    def reset(self, do_resets=None):
        pass

    def get_action(self, observation):
        return 0, {}


@pytest.mark.parametrize("make", [partial(gymnasium.make, "CartPole-v1"), partial(gym_make, "CartPole-v1"), partial(GymEnv, "CartPole-v1")])
def test_environments_of_every_kind_are_played(make):
    env, gym_env = make(), gymnasium.make("CartPole-v1")
    seed_env(env, 3)
    path, oracle = rollout(env, Left(), max_episode_length=None), [gym_env.reset(seed=3)[0]]
    while True:
        observation, _, terminated, _, _ = gym_env.step(0)
        if terminated:
            break
        oracle.append(observation)
    if isinstance(env, gymnasium.Env):  # Whose seed is an argument of reset.
        assert path["step_types"][-1] == StepType.TERMINAL and 8 <= len(path["rewards"]) <= 12
    else:
        np.testing.assert_allclose(path["observations"], oracle)
    for policy in (Left(), MlpFfAgent()):
        batch = obtain_evaluation_episodes(policy, env, 7, 3)
        assert batch.lengths.tolist() == [7] * 3 and batch.timeouts.sum() == 3


def test_no_limit_is_none_or_infinite():
    for limit in (None, math.inf):
        env = PointEnv(goal=(3, 3))
        assert len(rollout(env, TowardsGoal(), deterministic=True, max_episode_length=limit)["rewards"]) > 28
        assert obtain_evaluation_episodes(TowardsGoal(), env, limit, 2).terminals.sum() == 2


def test_no_steps_or_episodes_are_refused():
    with pytest.raises(ValueError, match="max_episode_length=0 is not possible; it must be a number at least 1"):
        rollout(PointEnv(), TowardsGoal(), max_episode_length=0)
    with pytest.raises(ValueError, match="num_eps=0 is not possible; it must be a whole number at least 1"):
        obtain_evaluation_episodes(TowardsGoal(), PointEnv(), num_eps=0)


def test_what_is_no_policy_is_refused():
    with pytest.raises(TypeError, match=r"object has no get_action\(\) and no reset\(\), which a rollout needs"):
        rollout(PointEnv(), object())


def test_what_is_left_out_says_so():
    with pytest.raises(ImportError, match="There is no TFTrainer: rlpyt trains with PyTorch"):
        from rlpyt.episodes import TFTrainer  # noqa: F401
