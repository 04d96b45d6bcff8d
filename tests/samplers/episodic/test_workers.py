"""Workers: what they play is what there was to be played, field by field."""

import pickle
import random
import re
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from agents_for_tests import RecordingAgent, RnnAgent, StructuredAgent
from envs import CountingEnv, FailingEnv, StructuredGymEnv, WalkGymEnv, make_structured
from hypothesis import given, settings
from hypothesis import strategies as st
from policies_for_tests import (
    PATH,
    NoisyEnvironment,
    RandomLengthEnv,
    RandomPolicy,
    ScriptedPolicy,
    TellingGym,
    by_hand,
    factory,
    grid,
    worker,
)
from tiers import full, thinned

from rlpyt.agents.pg.composite import MlpCompositeFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent
from rlpyt.agents.pg.mujoco import MujocoLstmAgent
from rlpyt.agents.policy import AgentPolicy
from rlpyt.envs.adapters import as_environment, as_rlpyt
from rlpyt.envs.base import NotRestored
from rlpyt.envs.environment import CountingEnvironment, Wrapper
from rlpyt.envs.grid_world import GridWorldEnv
from rlpyt.envs.gym import make as gym_make
from rlpyt.envs.gym_env import GymEnv
from rlpyt.envs.multitask import MultiEnvWrapper, TaskOnehotWrapper
from rlpyt.envs.point_env import PointEnv
from rlpyt.envs.specs import EnvStep, StepType
from rlpyt.episodes import EpisodeBatch
from rlpyt.samplers.episodic import (
    DefaultWorker,
    FragmentWorker,
    InProgressEpisode,
    LocalSampler,
    NewEnvUpdate,
    SetTaskUpdate,
    VecWorker,
    Worker,
    WorkerFactory,
    recorder,
)
from rlpyt.samplers.episodic.evaluation import obtain_evaluation_episodes, rollout
from rlpyt.utils.logging import logger
from rlpyt.utils.plain import from_plain, to_plain
from rlpyt.utils.seed import set_seed
from rlpyt.utils.structures import leaves, map_structure

FIRST, MID, TERMINAL, TIMEOUT = (int(t) for t in StepType)
every_worker = pytest.mark.parametrize("worker_class", [DefaultWorker, VecWorker])


def assert_same(a, b):
    assert a == b, "not the same episodes"


# ---------------------------------------------------------------------------------------------------------------------
# One episode
# ---------------------------------------------------------------------------------------------------------------------
@every_worker
def test_a_rollout_is_the_episode_that_was_played(worker_class):
    args = {} if worker_class is DefaultWorker else dict(n_envs=1)
    batch = worker(worker_class, ScriptedPolicy(), grid(), **args).rollout()
    squares = [0, 4, 8, 9, 13, 14]
    assert batch.observations.tolist() == squares and batch.next_observations.tolist() == [*squares[1:], 15]
    assert batch.last_observations.tolist() == [15], "what the last action led to, not what it was chosen for"
    assert batch.actions.tolist() == PATH and batch.rewards.tolist() == [0, 0, 0, 0, 0, 1]
    assert batch.step_types.tolist() == [FIRST, MID, MID, MID, MID, TERMINAL] and batch.lengths.tolist() == [6]
    assert batch.env_infos["success"].tolist() == [False] * 5 + [True]
    assert batch.agent_infos["twice"].tolist() == [2 * square for square in squares]
    assert batch.env_spec == grid().spec


@every_worker
@pytest.mark.parametrize("n_envs", [1, 3])
def test_policies_see_observations_at_aligned_addresses(worker_class, n_envs):
    """The last bits of a product can depend on the address, and a worker that is resumed begins with another row of its memory."""
    seen = []

    class Policy(RandomPolicy):
        def get_actions(self, observations):
            seen.append((observations.ctypes.data % 64, observations.copy()))
            return np.zeros((len(observations), 2), np.float32), {}

        def get_action(self, observation):
            action, info = self.get_actions(observation[None])
            return action[0], info

    args = dict(n_envs=n_envs) if worker_class is VecWorker else {}
    batch = worker(worker_class, Policy(), PointEnv(max_episode_length=7), **args).rollout()
    n = n_envs if worker_class is VecWorker else 1
    assert batch.n_episodes == n and len(seen) == 7
    assert {address for address, _ in seen} == {0}
    observations = np.stack([of_step for _, of_step in seen], axis=1)  # [n,T,...]
    assert np.array_equal(np.concatenate(observations), batch.observations)


@every_worker
def test_a_timeout_of_the_environment_ends_the_episode(worker_class):
    args = {} if worker_class is DefaultWorker else dict(n_envs=1)
    played = worker(worker_class, ScriptedPolicy(), GridWorldEnv("4x4", max_episode_length=3), **args)
    for _ in range(3):
        batch = played.rollout()
        assert batch.lengths.tolist() == [3] and batch.step_types.tolist() == [FIRST, MID, TIMEOUT]
        assert batch.observations.tolist() == [0, 4, 8] and batch.last_observations.tolist() == [9]


@every_worker
def test_an_episode_that_is_too_long_for_the_worker_times_out(worker_class):
    args = {} if worker_class is DefaultWorker else dict(n_envs=1)
    played = worker(worker_class, ScriptedPolicy(), grid(), max_episode_length=2, **args)
    for _ in range(2):
        batch = played.rollout()
        assert batch.step_types.tolist() == [FIRST, TIMEOUT] and batch.last_observations.tolist() == [8]


def test_termination_at_the_limit_is_termination():
    batch = worker(DefaultWorker, ScriptedPolicy(), grid(), max_episode_length=6).rollout()
    assert batch.step_types[-1] == TERMINAL


def test_an_episode_of_one_step_has_no_first():
    batch = worker(DefaultWorker, ScriptedPolicy(), grid(), max_episode_length=1).rollout()
    assert batch.step_types.tolist() == [TIMEOUT]


def test_several_episodes_can_be_played_before_they_are_collected():
    played = worker(DefaultWorker, ScriptedPolicy(), grid())
    for _ in range(3):
        played.start_episode()
        while not played.step_episode():
            pass
    assert played.collect_episode().lengths.tolist() == [6, 6, 6]
    played.start_episode()
    played.step_episode()
    partial = played.collect_episode()
    assert partial.lengths.tolist() == [1] and partial.step_types.tolist() == [FIRST] and partial.last_observations.tolist() == [4]


def test_without_an_episode_there_is_nothing_to_step_or_to_collect():
    played = worker(VecWorker, ScriptedPolicy(), grid(), n_envs=2)
    with pytest.raises(RuntimeError, match=r"start_episode\(\)"):
        played.step_episode()
    with pytest.raises(RuntimeError, match="No episode"):
        played.collect_episode()
    with pytest.raises(RuntimeError, match=r"update_env\(\)"):
        factory(DefaultWorker)(0).rollout()


@every_worker
def test_after_the_loss_of_a_life_the_next_episode_goes_on_from_there(worker_class):
    args = {} if worker_class is DefaultWorker else dict(n_envs=2)
    played = worker(worker_class, RandomPolicy(), CountingEnv([2, 3], ["life", "terminated"]), **args)
    n_envs = args.get("n_envs", 1)
    batch = played.play_episodes(4 * n_envs).to_batch()
    steps = [x[:, 2].tolist() for x in batch.observations_list]
    assert steps == [each for each in [[0, 1], [2, 3, 4], [0, 1], [2, 3, 4]] for _ in range(n_envs)]
    assert batch.last_observations[:, 2].tolist() == [each for each in [2, 5, 2, 5] for _ in range(n_envs)]
    types = [FIRST, TERMINAL], [FIRST, MID, TERMINAL]
    assert [episode.step_types.tolist() for episode in batch.split()] == [each for each in types * 2 for _ in range(n_envs)]


# ---------------------------------------------------------------------------------------------------------------------
# Several environments
# ---------------------------------------------------------------------------------------------------------------------
def test_a_vec_worker_acts_once_for_all_environments_and_returns_when_one_ends():
    policy = ScriptedPolicy()
    played = worker(VecWorker, policy, [grid(), GridWorldEnv("4x4", max_episode_length=4), grid()], n_envs=3)
    assert played.rollout().lengths.tolist() == [4]
    assert policy.n_calls == 4 * 3
    batch = played.rollout()
    assert batch.lengths.tolist() == [6, 6], "those that were in progress went on"
    assert played.rollout().step_types.tolist() == [FIRST, MID, MID, TIMEOUT]
    assert policy.resets == [[True] * 3, [False, True, False], [True, False, True]]


def test_episodes_in_progress_are_dropped_if_the_policy_changes():
    policy = ScriptedPolicy()
    played = worker(VecWorker, policy, [grid(), GridWorldEnv("4x4", max_episode_length=4)], n_envs=2)
    played.rollout()
    played.update_agent(None)
    played.rollout()
    played.update_agent(policy.get_param_values())
    assert played.rollout().lengths.tolist() == [4]


def test_each_environment_has_its_own_episode_info():
    tasks = [{"goal": np.array([0.1 * i, 0.0], np.float32)} for i in range(3)]
    updates = [SetTaskUpdate(PointEnv, task) for task in tasks]

    class Still:
        def get_actions(self, observations):
            return np.zeros((len(observations), 2), np.float32), {}

        def reset(self, do_resets=None):
            pass

    played = worker(VecWorker, Still(), updates, n_envs=3, max_episode_length=5)
    for _ in range(2):
        batch = played.play_episodes(3).to_batch()
        goals = batch.episode_infos_by_episode["goal"]
        assert goals.shape == (3, 2) and sorted(goals[:, 0].tolist()) == pytest.approx([0, 0.1, 0.2])
        per_step = batch.env_infos["task"]["goal"]
        assert per_step.shape == (batch.lengths.sum(), 2)
        assert np.array_equal(batch.episode_infos["goal"], per_step)


def test_copies_of_one_environment_have_random_numbers_of_their_own():
    batch = worker(VecWorker, RandomPolicy(), CountingEnv(4), n_envs=5).play_episodes(5).to_batch()
    codes, noise = batch.observations[:, 0], batch.observations[:, 3]
    assert len(set(codes.tolist())) == 5 and len(set(noise.tolist())) == 20


def pole():
    return gymnasium.make("CartPole-v1")


def pole_that_was_used():
    env = pole()
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    "make",
    [
        pole,
        pole_that_was_used,
        lambda: pole,
        lambda: TaskOnehotWrapper(pole_that_was_used(), 0, 2),
        lambda: MultiEnvWrapper([pole, pole_that_was_used]),
        lambda: as_rlpyt(GymEnv(pole())),
        lambda: as_environment(gym_make("CartPole-v1")),
    ],
    ids=["unused", "used", "function", "one-hot", "several", "in rlpyt form", "of rlpyt"],
)
def test_environments_of_every_kind_follow_the_seed_and_each_has_random_numbers_of_its_own(make):
    def starts(seed):
        played = [worker(VecWorker, RandomPolicy(2), make(), i, seed=seed, n_envs=3, max_episode_length=3) for i in range(2)]
        batches = [each.play_episodes(6).to_batch() for each in played]
        return np.concatenate([batch.observations[np.cumsum(batch.lengths) - batch.lengths] for batch in batches])

    first = starts(1)
    np.testing.assert_array_equal(first, starts(1))
    assert len(np.unique(first, axis=0)) == len(first) == 12
    assert not (first == starts(2)).all(1).any()


def test_an_environment_of_gymnasium_that_cannot_be_seeded_is_played_with_a_warning():
    class Old(WalkGymEnv):
        def reset(self):
            return super().reset()

        def _advance(self, action):
            super()._advance([0.0])

    class OldWithSeed(Old):
        def seed(self, seed):
            WalkGymEnv.reset(self, seed=seed)

    with pytest.warns(UserWarning, match="does not follow the run's seed"):
        worker(DefaultWorker, RandomPolicy(), Old).rollout()
    starts = [worker(DefaultWorker, RandomPolicy(), OldWithSeed).rollout().observations[0] for _ in range(2)]
    np.testing.assert_array_equal(*starts)


def test_another_environment_may_have_other_observations_and_another_policy_other_infos():
    for worker_class, args in ((DefaultWorker, {}), (VecWorker, dict(n_envs=2))):
        played = worker(worker_class, ScriptedPolicy(), grid, **args)
        played.rollout()
        played.update_agent(RandomPolicy())
        played.update_env(lambda: CountingEnv(3))
        batch = played.rollout()
        assert batch.observations.shape[1:] == (4,) and batch.agent_infos == {} and batch.env_spec.action_space.n == 3


def test_a_list_of_environments_has_one_for_each():
    with pytest.raises(ValueError, match="n_envs=3"):
        worker(VecWorker, ScriptedPolicy(), [grid(), grid()], n_envs=3)
    with pytest.raises(TypeError, match="environment"):
        worker(DefaultWorker, ScriptedPolicy(), "grid")
    with pytest.raises(ValueError, match="n_envs=0"):
        factory(VecWorker, n_envs=0)(0)


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=4),
    ends=st.lists(st.sampled_from(["terminated", "timeout"]), min_size=1, max_size=3),
    limit=st.integers(1, 12),
    chunk=st.integers(1, 7),
    n=st.integers(1, 12),
)
def test_any_number_of_environments_plays_what_each_would_play_alone(lengths, ends, limit, chunk, n):
    before, recorder.MAX_CHUNK_T = recorder.MAX_CHUNK_T, chunk
    try:
        envs = [CountingEnv(own, ends) for own in lengths]
        played = worker(VecWorker, ConstantPolicy(), envs, n_envs=len(envs), max_episode_length=limit)
        batch = played.play_episodes(n).to_batch()
        more = played.play_steps(5, unbiased=True).to_batch()
    finally:
        recorder.MAX_CHUNK_T = before
    assert batch.n_episodes == n and more.lengths.sum() >= 5
    for some in (batch, more):
        codes = some.observations[np.cumsum(some.lengths) - some.lengths, 0]
        assert len(set(codes.tolist())) <= len(envs)
    episodes = [*batch.split(), *more.split()]
    for b, own in enumerate(lengths):
        twin = CountingEnv(own, ends)
        twin.seed(played._envs[b]._seed)
        for episode in episodes:
            if episode.observations[0, 0] != np.float32(played._envs[b]._code):
                continue
            expected, terminated = by_hand(twin, ConstantPolicy(), limit)
            assert np.array_equal(episode.observations, expected["observations"])
            assert np.array_equal(episode.next_observations, expected["next_observations"])
            assert np.array_equal(episode.rewards, expected["rewards"]) and np.array_equal(episode.actions, expected["actions"])
            assert episode.step_types[-1] == (TERMINAL if terminated else TIMEOUT)
            assert episode.env_infos["t"].tolist() == list(range(1, len(episode) + 1))


def test_an_episode_that_was_too_long_is_followed_by_a_reset_also_if_the_one_before_it_was_not():
    env = CountingEnv([2, 9], ["life", "terminated"])
    batch = worker(VecWorker, ConstantPolicy(), [env], n_envs=1, max_episode_length=4).play_episodes(3).to_batch()
    assert batch.lengths.tolist()[:2] == [2, 4]
    first_steps = batch.observations[[0, 2, 6], 2].tolist()  # After the loss of a life, steps are counted on.
    assert first_steps == [0, 2, 0]


class ConstantPolicy(RandomPolicy):
    def get_action(self, observation):
        return 1, {}

    def get_actions(self, observations):
        return np.ones(len(observations), np.int64), {}


# ---------------------------------------------------------------------------------------------------------------------
# How long, how many
# ---------------------------------------------------------------------------------------------------------------------
def test_short_episodes_are_not_preferred():
    unbiased, biased = [], []
    for into, flag in ((unbiased, True), (biased, False)):
        played = worker(VecWorker, RandomPolicy(), RandomLengthEnv, n_envs=8)
        for _ in range(60):
            played.update_agent(RandomPolicy())
            into += played.play_steps(10, unbiased=flag).to_batch().lengths.tolist()
    assert 0.4 < np.mean(np.array(unbiased) > 1) < 0.6
    assert np.mean(np.array(biased) > 1) < 0.35, "what happens otherwise"


def test_every_episode_that_was_begun_is_returned():
    played = worker(VecWorker, RandomPolicy(), RandomLengthEnv, n_envs=4)
    returned = 0
    for _ in range(20):
        returned += played.play_steps(50).to_batch().n_episodes
        played.update_agent(RandomPolicy())
    assert returned == sum(env.episode + 1 for env in played._envs)


def test_exactly_as_many_episodes_as_asked_for_shared_out_evenly():
    played = worker(VecWorker, RandomPolicy(), [CountingEnv(1), CountingEnv(20), CountingEnv(3)], n_envs=3)
    played.play_steps(4, unbiased=False)  # Two are in progress.
    batch = played.play_episodes(7).to_batch()
    assert batch.n_episodes == 7 and sorted(batch.lengths.tolist()) == [1, 1, 1, 3, 3, 20, 20]
    for episode in batch.split():
        assert episode.observations[:, 2].tolist() == list(range(len(episode))), "those that stood still lack nothing"


def test_at_least_as_many_steps_as_asked_for_and_no_episode_more():
    played = worker(DefaultWorker, ScriptedPolicy(), grid())
    assert [played.play_steps(n).to_batch().n_episodes for n in (0, 6, 7, 12, 13)] == [1, 1, 2, 2, 3]


# ---------------------------------------------------------------------------------------------------------------------
# Fragments
# ---------------------------------------------------------------------------------------------------------------------
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.lists(st.integers(1, 7), min_size=1, max_size=3), st.integers(2, 9))
def test_fragments_are_what_was_played_in_pieces_of_one_size(n_envs, T, lengths, limit):
    played = worker(FragmentWorker, ConstantPolicy(), CountingEnv(lengths), n_envs=n_envs, timesteps_per_call=T, max_episode_length=limit)
    pieces = []
    for _ in range(4):
        batch = played.rollout()
        assert batch.lengths.sum() == T * n_envs
        ended = np.isin(batch.step_types[np.cumsum(batch.lengths) - 1], [TERMINAL, TIMEOUT])
        assert ended.tolist() == sorted(ended.tolist(), reverse=True), "those that ended come first"
        pieces += batch.split()
    for env in played._envs:
        ours = [piece for piece in pieces if piece.observations[0, 0] == np.float32(env._code)]
        twin = CountingEnv(lengths)
        twin.seed(env._seed)
        observations, next_observations, types = [], [], []
        while len(observations) < 4 * T:
            expected, terminated = by_hand(twin, ConstantPolicy(), limit)
            n = len(expected["actions"])
            last = TERMINAL if terminated else TIMEOUT
            types += [last] if n == 1 else [FIRST, *[MID] * (n - 2), last]
            observations += expected["observations"]
            next_observations += expected["next_observations"]
        assert np.array_equal(np.concatenate([p.observations for p in ours]), observations[: 4 * T])
        assert np.array_equal(np.concatenate([p.next_observations for p in ours]), next_observations[: 4 * T])
        assert np.concatenate([p.step_types for p in ours]).tolist() == types[: 4 * T]


def test_fragments_go_on_when_the_policy_changes_and_begin_anew_when_the_environment_does():
    played = worker(FragmentWorker, ScriptedPolicy(), grid, n_envs=2, timesteps_per_call=2)
    assert played.rollout().step_types.tolist() == [FIRST, MID] * 2
    played.update_agent(ScriptedPolicy())
    assert played.rollout().step_types.tolist() == [MID, MID] * 2
    played.update_env([grid(), None])
    assert played.rollout().step_types.tolist() == [MID, TERMINAL, FIRST, MID]


def test_fragments_go_on_with_another_policy_of_other_actions_and_infos():
    played = worker(FragmentWorker, ScriptedPolicy(), grid, n_envs=2, timesteps_per_call=2)
    first = played.rollout()
    policy = RandomPolicy()
    policy.get_actions = lambda observations: (np.array([2.0, 0.0]), {"other": observations})
    played.update_agent(policy)
    second = played.rollout()
    assert first.agent_infos.keys() == {"twice"} and second.agent_infos.keys() == {"other"}
    assert second.observations.tolist() == second.agent_infos["other"].tolist() == [8, 9, 8, 8]
    assert second.actions.tolist() == [2.0, 2.0, 0.0, 0.0] and second.last_observations.tolist() == [10, 8]
    assert second.step_types.tolist() == [MID] * 4


@pytest.mark.parametrize("another", [RecordingAgent, lambda: AgentPolicy(RecordingAgent())])
def test_fragments_go_on_with_another_agent(another):
    sampler = LocalSampler(factory(FragmentWorker, n_envs=2, timesteps_per_call=3), RecordingAgent(), CountingEnv(20))
    batches = [sampler.obtain_samples(0, 1, None), sampler.obtain_samples(1, 1, another())]
    for before, after in zip(*(batch.split() for batch in batches)):
        steps = [episode.agent_infos["observation"][:, 2].tolist() for episode in (before, after)]
        assert steps == [[0, 1, 2], [3, 4, 5]] and after.step_types.tolist() == [MID] * 3
        assert after.agent_infos["prev_action"].tolist() == [0, *after.actions[:-1]], "another agent does not know what came before"
    sampler.shutdown_worker()


@pytest.mark.parametrize("worker_class", [DefaultWorker, VecWorker, FragmentWorker])
def test_an_agent_that_is_new_explores_as_in_the_present_iteration(worker_class):
    seen = []

    class Annealed(RecordingAgent):
        def sample_mode(self, itr):
            super().sample_mode(itr)
            self.itr = itr

        def step(self, *inputs):
            seen.append(self.itr)
            return super().step(*inputs)

    sampler = LocalSampler(factory(worker_class), RecordingAgent(), CountingEnv(3))
    sampler.obtain_samples(3, 1, Annealed())
    assert set(seen) == {3}
    sampler.shutdown_worker()


# ---------------------------------------------------------------------------------------------------------------------
# Overriding
# ---------------------------------------------------------------------------------------------------------------------
class TwoTrials(DefaultWorker):
    """A trial is two episodes, and the policy is reset between trials only."""

    def rollout(self):
        for _ in range(2):
            self.start_episode()
            while not self.step_episode():
                pass
        return self.collect_episode()


class Doubling(VecWorker):
    """Doubles rewards when episodes are collected."""

    def collect_episode(self):
        batch = super().collect_episode()
        batch.rewards[:] *= 2
        return batch


class OnlyRollout(Worker):
    """Nothing but the interface."""

    def update_agent(self, agent_update):
        self.policy = agent_update

    def update_env(self, env_update):
        self.inner = worker(DefaultWorker, self.policy, env_update)

    def rollout(self):
        return self.inner.rollout()


class EndsEarly(DefaultWorker):
    """Ends each episode after four steps, although the environment goes on."""

    def start_episode(self):
        super().start_episode()
        self.n = 0

    def step_episode(self):
        self.n += 1
        return super().step_episode() or self.n == 4


class OwnUpdate(DefaultWorker):
    def update_env(self, env_update):
        self.env = GridWorldEnv(env_update)


@pytest.mark.parametrize("n", [6, 12, 13])
def test_methods_of_ones_own_take_effect(n):
    assert worker(TwoTrials, ScriptedPolicy(), grid()).play_steps(n).to_batch().n_episodes == (2 if n <= 12 else 4)
    doubled = worker(Doubling, ScriptedPolicy(), grid, n_envs=2)
    assert doubled.play_steps(n).to_batch().rewards.max() == 2 and doubled.play_episodes(2).to_batch().rewards.max() == 2
    assert worker(OwnUpdate, ScriptedPolicy(), "4x4_safe").play_steps(n).to_batch().rewards.sum() == -(-n // 6)
    assert set(worker(EndsEarly, ScriptedPolicy(), grid()).play_steps(n).to_batch().lengths) == {4}
    assert worker(OnlyRollout, ScriptedPolicy(), grid()).play_episodes(2).to_batch().lengths.tolist() == [6, 6]


def test_workers_are_not_picklable_but_their_factory_is():
    made = factory(VecWorker, n_workers=2, n_envs=3)
    with pytest.raises(ValueError, match="WorkerFactory"):
        pickle.dumps(made(0))
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.n_workers, copy.worker_class, copy.worker_args, copy.seed) == (2, VecWorker, {"n_envs": 3}, 3)


def test_what_a_factory_refuses():
    made = factory(DefaultWorker, n_workers=2)
    for number in (2, -1):
        with pytest.raises(ValueError, match="n_workers=2"):
            made(number)
    with pytest.raises(ValueError, match="3 entries"):
        made.prepare_worker_messages([1, 2, 3])
    assert made.prepare_worker_messages([1, 2], str) == ["1", "2"] and made.prepare_worker_messages((1, 2)) == [(1, 2)] * 2
    with pytest.raises(TypeError):
        WorkerFactory(3, max_episode_length=5)


# ---------------------------------------------------------------------------------------------------------------------
# Random numbers
# ---------------------------------------------------------------------------------------------------------------------
def test_the_seed_is_that_of_the_process_when_the_factory_is_made():
    set_seed(7)
    try:
        assert WorkerFactory(max_episode_length=3).seed == 7
    finally:
        set_seed(0)
    a, b = (WorkerFactory(seed=None, max_episode_length=3).seed for _ in range(2))
    assert a != b and a == pickle.loads(pickle.dumps(WorkerFactory(seed=a, max_episode_length=3))).seed


def test_a_workers_random_numbers_are_its_own_and_those_of_the_process_are_left_alone():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    first = worker(DefaultWorker, RandomPolicy(), CountingEnv(20)).play_episodes(3).to_batch()
    other = worker(DefaultWorker, RandomPolicy(), CountingEnv(20), number=1).play_episodes(3).to_batch()
    assert random.getstate() == states[0] and str(np.random.get_state()) == str(states[1])
    assert torch.equal(torch.get_rng_state(), states[2])
    np.random.seed(5)
    again = worker(DefaultWorker, RandomPolicy(), CountingEnv(20))
    pieces = [again.rollout() for _ in range(3)]
    assert_same(type(first).concatenate(*pieces), first)
    assert first.actions.tolist() != other.actions.tolist()


# ---------------------------------------------------------------------------------------------------------------------
# Agents of rlpyt, infos, failures
# ---------------------------------------------------------------------------------------------------------------------
def test_an_agent_sees_what_samplers_would_show_it():
    batch = worker(VecWorker, RecordingAgent(), CountingEnv([3, 5]), n_envs=3).play_episodes(12).to_batch()
    for episode in batch.split():
        assert np.array_equal(episode.agent_infos["observation"], episode.observations)
        assert episode.agent_infos["prev_action"].tolist() == [0, *episode.actions[:-1].tolist()]
        assert episode.agent_infos["prev_reward"].tolist() == [0, *episode.rewards[:-1].tolist()]


@pytest.mark.parametrize("wrap", [gymnasium.make, gym_make, lambda name: as_environment(gymnasium.make(name))])
@pytest.mark.parametrize("name,AgentCls", [("CartPole-v1", MlpFfAgent), ("Pendulum-v1", MlpGaussianFfAgent)])
def test_an_agent_plays_in_environments_of_every_kind(wrap, name, AgentCls):
    agent = AgentCls(model_kwargs=dict(hidden_sizes=[4]))
    batch = worker(VecWorker, agent, lambda: wrap(name), n_envs=2, max_episode_length=7).play_episodes(3).to_batch()
    assert batch.lengths.tolist() == [7] * 3 and np.isin(batch.step_types[6::7], [TIMEOUT]).all()
    assert batch.env_spec.action_space.contains(batch.actions[0]) or name == "Pendulum-v1"
    assert batch.agent_infos["value"].shape == (21,) and len({str(x) for x in batch.observations}) == 21


@every_worker
@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("wrap", [lambda env: env, as_environment])
def test_environments_get_actions_within_their_bounds_unless_the_agent_says_otherwise(wrap, clip, worker_class):
    agent = MlpGaussianFfAgent(model_kwargs=dict(hidden_sizes=[4], init_log_std=1.0), clip_actions=clip)
    batch = worker(worker_class, agent, lambda: wrap(CountingEnv(8, n_actions=0))).play_episodes(3).to_batch()
    chosen, got = batch.actions[:, 0], batch.env_infos["action"]
    assert (chosen < -1).any() and (chosen > 1).any()
    assert np.array_equal(np.clip(chosen, -1, 1) if clip else chosen, got)


class PickAndMove(gymnasium.Env):
    """Says in its info which action it was given; episodes last 2 to 4 steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    parts = gymnasium.spaces.Discrete(3, start=5), gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, kind):
        self.action_space = kind(self.parts) if kind is gymnasium.spaces.Tuple else kind(dict(zip(("item_0", "item_1"), self.parts)))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.remaining = self.np_random.integers(2, 5)
        return self._observation(), {}

    def _observation(self):
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)

    def step(self, action):
        self.remaining -= 1
        pick, move = action if isinstance(action, tuple) else action.values()
        assert self.parts[0].contains(pick) and np.shape(move) == (2,)
        return self._observation(), 1.0, self.remaining == 0, False, {"item_0": int(pick), "item_1": np.array(move)}


@pytest.mark.parametrize("worker_class,args", [(DefaultWorker, {}), (VecWorker, dict(n_envs=1)), (VecWorker, dict(n_envs=3))])
@pytest.mark.parametrize("kind", [gymnasium.spaces.Dict, gymnasium.spaces.Tuple])
@pytest.mark.parametrize("wrap", [lambda env: env, as_environment, as_rlpyt, lambda env: as_environment(as_rlpyt(env))])
def test_structured_actions_are_played_in_the_environment_that_they_are_for(wrap, kind, worker_class, args):
    torch.manual_seed(0)
    agent = MlpCompositeFfAgent(model_kwargs=dict(hidden_sizes=[4]))
    batch = worker(worker_class, agent, lambda: wrap(PickAndMove(kind)), **args).play_episodes(6).to_batch()
    offset = 0 if batch.actions["item_0"].min() >= 5 else 5  # rlpyt's spaces begin at 0.
    assert np.array_equal(batch.actions["item_0"] + offset, batch.env_infos["item_0"])
    assert np.array_equal(np.clip(batch.actions["item_1"], -1, 1), batch.env_infos["item_1"])
    assert len(set(batch.actions["item_1"][:, 0])) == len(batch), "as they were drawn"


@pytest.mark.parametrize("worker_class,args", [(DefaultWorker, {}), (VecWorker, dict(n_envs=3))])
@pytest.mark.parametrize("env", [make_structured, StructuredGymEnv, lambda: as_environment(make_structured())])
def test_structured_actions_and_observations_are_remembered(env, worker_class, args):
    batch = worker(worker_class, StructuredAgent(), env, max_episode_length=3, **args).play_episodes(6).to_batch()
    assert len({str(camera) for camera in batch.agent_infos["observation"]["camera_left"]}) == len(batch)
    for episode in batch.split() if env is make_structured else ():
        for (path, action), (_, prev) in zip(leaves(episode.actions), leaves(episode.agent_infos["prev_action"]), strict=True):
            assert np.array_equal(prev[1:], action[:-1]) and not prev[0].any(), path
        for (path, seen), (_, was) in zip(leaves(episode.agent_infos["observation"]), leaves(episode.observations), strict=True):
            assert np.array_equal(seen, was), path


@pytest.mark.parametrize(
    "worker_class,names,missing",
    [
        (DefaultWorker, ["get_actions"], r"get_action\(\) and no reset\(\)"),
        (DefaultWorker, ["get_action"], r"reset\(\)"),
        (VecWorker, ["get_action", "reset"], r"get_actions\(\)"),
        (FragmentWorker, ["get_actions"], r"reset\(\)"),
    ],
)
def test_what_is_no_policy_is_refused_when_it_is_given(worker_class, names, missing):
    policy = type("Mine", (), {name: getattr(RandomPolicy(), name) for name in names})()
    with pytest.raises(TypeError, match=rf"Mine has no {missing}, which a policy of a {worker_class.__name__} needs: see"):
        factory(worker_class)(0).update_agent(policy)
    played = worker(worker_class, RandomPolicy(), grid)
    with pytest.raises(TypeError, match=r"RandomPolicy has no set_param_values\(\), which an update of worker 0 by parameters needs"):
        played.update_agent({"w": 1})
    assert played.rollout().n_episodes, "the policy that was there plays on"


@every_worker
def test_tuples_are_vectors_where_the_space_has_no_parts(worker_class):
    class Tuples(RandomPolicy):
        def get_action(self, observation):
            return (0.05, -0.05), {"two": (1, 2)}

        def get_actions(self, observations):
            return [(0.05, -0.05)] * len(observations), {"two": [(1, 2)] * len(observations)}

    expected, two = np.array([[0.05, -0.05]] * 2), [[1, 2]] * 2
    batch = worker(worker_class, Tuples(), PointEnv, max_episode_length=2).play_episodes(1).to_batch()
    assert np.array_equal(batch.actions, expected) and batch.agent_infos["two"].tolist() == two
    path = rollout(PointEnv(), Tuples(), max_episode_length=2)
    assert np.array_equal(path["actions"], expected) and path["agent_infos"]["two"].tolist() == two
    episode = InProgressEpisode(PointEnv())
    for _ in range(2):
        episode.step(*Tuples().get_action(None))
    assert np.array_equal(episode.to_batch().actions, expected) and episode.to_batch().agent_infos["two"].tolist() == two


def test_one_structure_for_the_actions_of_all_environments_is_refused():
    class Columns(RandomPolicy):
        def get_actions(self, observations):
            return {"a": super().get_actions(observations)[0]}, {}

    with pytest.raises(TypeError, match=r"Columns.get_actions\(\) returned one dict for all environments: return a list"):
        worker(VecWorker, Columns(), grid, n_envs=2).rollout()


def test_infos_of_other_keys_or_shapes_are_refused_and_wider_numbers_are_kept():
    class Info(ScriptedPolicy):
        infos = iter(())

        def get_action(self, observation):
            return super().get_action(observation)[0], next(self.infos)

    policy = Info()
    policy.infos = iter([{"x": 1, "s": "a"}, {"x": 0.5, "s": "long"}, {"x": 2, "s": ""}] * 2)
    batch = worker(DefaultWorker, policy, grid()).rollout()
    assert batch.agent_infos["x"].tolist() == [1, 0.5, 2] * 2 and batch.agent_infos["s"].tolist() == ["a", "long", ""] * 2
    policy.infos = iter([{"x": 1}, {"y": 1}])
    with pytest.raises(ValueError, match=r"agent_info: expected the keys \['x'\] at every step, got \['y'\]"):
        worker(DefaultWorker, policy, grid()).rollout()
    policy.infos = iter([{"x": np.zeros(2)}, {"x": np.zeros(3)}])
    with pytest.raises(ValueError, match=r"'x'.*expected shape \(2,\) at every step, got \(3,\)"):
        worker(DefaultWorker, policy, grid()).rollout()


@pytest.mark.parametrize("make", [list, tuple, np.array, torch.tensor])
def test_infos_that_are_lists_are_kept_as_they_are_or_refused(make):
    def batch(*infos):
        episode = InProgressEpisode(GridWorldEnv("4x4_safe", max_episode_length=9))
        for info in infos:
            episode.step(0, {"x": make(info)})
        return episode.to_batch()

    assert batch([1, 2], [0.5, 0.25], [3, 4]).agent_infos["x"].tolist() == [[1, 2], [0.5, 0.25], [3, 4]]
    with pytest.raises(ValueError, match=r"'x'.*expected shape \(2,\) at every step, got \(1,\)"):
        batch([1, 2], [7])


def test_numbers_of_any_type_are_kept_as_they_are():
    values = [1, 2**40, 0.5, True, np.float32(0.1), np.int8(3)]
    for first in values:
        episode = InProgressEpisode(GridWorldEnv("4x4_safe", max_episode_length=9))
        for value in [first, *values]:
            episode.step(0, {"x": value})
        assert episode.to_batch().agent_infos["x"].tolist() == [first, *values]


@pytest.mark.parametrize("values", [[1, 2**63], [1, 2**70], [2**70, 1], [[1, 2], [2**70, 3]]])
def test_integers_of_any_size_are_kept_as_they_are(values):
    env = WrongEnvironment(env_info=[{"x": value} for value in values])
    assert worker(DefaultWorker, RandomPolicy(), env).rollout().env_infos["x"].tolist() == [values[0], *[values[1]] * 3]


def test_a_failure_says_in_which_environment_and_the_worker_begins_anew():
    envs = [CountingEnv(4), FailingEnv(fail_at=3, episode_length=5)]
    played = worker(VecWorker, RandomPolicy(), envs, n_envs=2)
    with pytest.raises(Exception, match="planned failure") as info:
        played.play_episodes(2)
    assert "environment 1 of worker 0, in step 2" in str(info.value.__notes__)
    assert all(episode.observations[0, 2] == 0 for episode in played.play_episodes(2).to_batch().split())


def wrong_policies():
    def policy(**methods):
        return type("Mine", (RandomPolicy,), methods)()

    def infos(*each):
        left = iter(each)
        return dict(get_actions=lambda self, x: (np.zeros(3, int), next(left)))

    zeros = np.zeros(3, int)
    yield DefaultWorker, policy(get_action=lambda self, x: np.zeros(2)), r"TypeError: Mine.get_action\(\) must return the action, and a"
    yield DefaultWorker, policy(get_action=lambda self, x: 1), r"Mine.get_action\(\) .* got int"
    yield DefaultWorker, policy(get_action=lambda self, x: (1, 2)), r"Mine.get_action\(\) .* got a tuple of 2 \(int, int\)"
    yield VecWorker, policy(get_actions=lambda self, x: zeros), r"TypeError: Mine.get_actions\(\) must return the actions, and a dictionary"
    yield VecWorker, policy(get_actions=lambda self, x: (zeros[:2], {})), r"ValueError: .* the 3 environments, got ndarray of shape \(2,\)"
    yield VecWorker, policy(get_actions=lambda self, x: (1, {})), r"ValueError: .* each of the 3 environments, got int"
    for wrong in (np.zeros(1), np.zeros((1, 2)), 1.0, ["a"], np.zeros(4)):
        said = r"ValueError: agent_info\['x'\]: expected one entry for each of the 3 environments, got shape \("
        yield VecWorker, policy(**infos({"x": wrong})), said
        right = np.zeros((3, *np.shape(wrong)[1:]), np.asarray(wrong).dtype)
        yield VecWorker, policy(**infos({"x": right}, {"x": wrong})), said
    ragged = np.zeros(3), [[1], [1, 2], [3]]
    yield VecWorker, policy(**infos({"x": ragged[1]})), r"ValueError: agent_info\['x'\]: .* is no array: .*inhomogeneous"
    yield VecWorker, policy(**infos(*({"x": each} for each in ragged))), r"ValueError: agent_info\['x'\]: .* is no array: .*inhomogeneous"


@pytest.mark.parametrize("worker_class, policy, said", list(wrong_policies()))
def test_what_a_policy_returns_is_named_if_it_is_not_what_it_should_be(worker_class, policy, said):
    played = worker(worker_class, policy, lambda: CountingEnv(9), **({} if worker_class is DefaultWorker else dict(n_envs=3)))
    with pytest.raises((TypeError, ValueError)) as info:
        played.rollout()
    assert re.search(said, f"{type(info.value).__name__}: {info.value}")


class WrongEnvironment(NoisyEnvironment):
    """Returns something wrong, from the second step on or at `reset`."""

    def __init__(self, reset=None, change=None, **changes):
        super().__init__()
        self._reset, self._change, self._changes = reset, change or (lambda env_step: env_step), changes

    def reset(self):
        observation, info = super().reset()
        return (observation, info) if self._reset is None else self._reset(observation)

    def step(self, action):
        env_step = super().step(action)
        for name, values in self._changes.items():
            setattr(env_step, name, values[self._t > 1])
        return env_step if self._t < 2 else self._change(env_step)


WRONG_ENVIRONMENTS = [
    (dict(reset=lambda x: x), r"TypeError: WrongEnvironment.reset\(\) must return .* dictionary .* got ndarray of shape \(1,\)"),
    (dict(reset=lambda x: np.zeros(2)), r"TypeError: WrongEnvironment.reset\(\) .* got ndarray of shape \(2,\)"),
    (dict(reset=lambda x: (x, x)), r"TypeError: WrongEnvironment.reset\(\) .* got a tuple of 2 \(ndarray of shape \(1,\), ndarray of"),
    (dict(reset=lambda x: None), r"TypeError: WrongEnvironment.reset\(\) .* got None"),
    (dict(change=lambda x: (x.observation, 1.0, False, {})), r"TypeError: WrongEnvironment.step\(\) must return an EnvStep, got a tuple"),
    (dict(change=lambda x: None), r"TypeError: WrongEnvironment.step\(\) must return an EnvStep, got None"),
    (dict(step_type=[StepType.FIRST, 7]), r"ValueError: WrongEnvironment.step\(\): step_type: expected one of .*, got 7"),
    (dict(step_type=[StepType.FIRST, None]), r"ValueError: .* step_type: expected one of .*, got None"),
    (dict(step_type=[StepType.FIRST, []]), r"ValueError: .* step_type: expected one of .*, got \[\]"),
    (dict(reward=[0.0, None]), r"TypeError: .*reward: expected one number, got None"),
]
OF_INFOS = [
    (dict(env_info=[{"x": ["a"]}, {"x": ["a", "b"]}]), r"ValueError: env_info\['x'\]: expected shape \(1,\) at every step, got \(2,\)"),
    (dict(env_info=[{"x": ["a"]}, {"x": [["a"], ["b", "c"]]}]), r"ValueError: env_info\['x'\]: .* is no array: .*inhomogeneous"),
    (
        dict(env_info=[{"x": {"a": 1}}, {"x": 3}]),
        r"ValueError: env_info\['x'\]: expected (a dictionary|the keys \['a'\]) at every step, got int",
    ),
]


@pytest.mark.parametrize("how", ["worker", "in progress", "rollout", "as rlpyt", "wrapped"])
@pytest.mark.parametrize("wrong, said", WRONG_ENVIRONMENTS + OF_INFOS)
def test_what_an_environment_returns_is_named_if_it_is_not_what_it_should_be(wrong, said, how):
    if how == "as rlpyt" and "env_info" in wrong:
        return  # Text is left out there.
    with pytest.raises((TypeError, ValueError)) as info:
        env = WrongEnvironment(**wrong)
        if how == "rollout":
            rollout(env, RandomPolicy())
        elif how == "in progress":
            episode = InProgressEpisode(env)
            for _ in range(3):
                episode.step(0, {})
            episode.to_batch()
        else:
            env = as_rlpyt(env) if how == "as rlpyt" else Wrapper(env) if how == "wrapped" else env
            worker(DefaultWorker, RandomPolicy(), env).rollout()
    said = said.replace("WrongEnvironment", "(WrongEnvironment|Wrapper)")
    assert re.search(said, f"{type(info.value).__name__}: {info.value}")


def test_a_list_of_strings_of_one_length_is_kept():
    env = WrongEnvironment(env_info=[{"x": ["a", "b"]}, {"x": ["c", "de"]}])
    assert worker(DefaultWorker, RandomPolicy(), env).rollout().env_infos["x"].tolist() == [["a", "b"]] + [["c", "de"]] * 3


@pytest.mark.parametrize("how", ["worker", "several", "in progress", "rollout"])
@pytest.mark.parametrize("first, later", [(2.5, "a"), ("a", 3), ("a", True), ((2, "bb"), (1, "a")), (b"a", "b"), ("nan", float("nan"))])
def test_text_and_numbers_in_one_info_stay_what_they_are(first, later, how):
    class Policy(RandomPolicy):
        def get_action(self, observation):
            return 0, {"x": first}

        def get_actions(self, observations):
            return np.zeros(len(observations), int), {"x": [first] * len(observations)}

    env = WrongEnvironment(env_info=[{"x": first}, {"x": later}])
    if how == "in progress":
        episode = InProgressEpisode(env)
        for _ in range(4):
            episode.step(0, {"x": first})
        batch = episode.to_batch()
    elif how == "rollout":
        batch = EpisodeBatch.from_list(env.spec, [rollout(env, Policy())])
    else:
        worker_class, args = (DefaultWorker, {}) if how == "worker" else (VecWorker, dict(n_envs=1))
        batch = worker(worker_class, Policy(), env, **args).rollout()
    for infos, values in ((batch.env_infos, [first, later, later, later]), (batch.agent_infos, [first] * 4)):
        assert repr(infos["x"].tolist()) == repr(np.array(values, object).tolist())


class ChangesInPlace(CountingEnvironment):
    """Changes one array, list and dictionary in place, and tells of them in every step and at every reset."""

    render_modes = ()

    def __init__(self):
        super().__init__(gymnasium.spaces.Box(0, 9, (1,), np.float32), gymnasium.spaces.Discrete(2), 2)
        self._info = {"array": np.zeros(1), "names": ["0"], "deep": {"one": ["0", None]}}

    def _change(self, observation):
        n = int(self._info["array"][0]) + 1
        self._info["array"][0], self._info["names"][0], self._info["deep"]["one"][0] = n, str(n), str(n)
        return observation

    def reset(self):
        self._n_steps = 0
        return self._change(np.zeros(1, np.float32)), self._info

    def step(self, action):
        self._require_reset()
        observation = self._change(np.ones(1, np.float32))
        return EnvStep(self.spec, action, 1.0, observation, self._info, self._count_step(False, False, 2))

    def render(self, mode):
        pass

    def visualize(self):
        pass


@pytest.mark.parametrize("how", ["worker", "several", "in progress", "evaluation"])
def test_infos_that_an_environment_changes_in_place_are_recorded_as_they_were(how):
    class Policy(RandomPolicy):
        def __init__(self):
            self.names = ["0"]

        def get_action(self, observation):
            self.names[0] = str(int(self.names[0]) + 1)
            return 0, {"names": self.names}

        def get_actions(self, observations):
            return np.zeros(len(observations), int), {"names": [self.get_action(o)[1]["names"] for o in observations]}

    env = ChangesInPlace()
    if how == "in progress":
        episodes = []
        policy = Policy()
        for _ in range(2):
            episodes.append(InProgressEpisode(env))
            for _ in range(2):
                episodes[-1].step(*policy.get_action(None))
        batch = EpisodeBatch.concatenate(*(episode.to_batch() for episode in episodes))
    elif how == "evaluation":
        batch = obtain_evaluation_episodes(Policy(), env, num_eps=2)
    else:
        worker_class, args = (DefaultWorker, {}) if how == "worker" else (VecWorker, dict(n_envs=1))
        batch = worker(worker_class, Policy(), env, **args).play_episodes(2).to_batch()
    for infos, numbers in ((batch.episode_infos_by_episode, [1, 4]), (batch.env_infos, [2, 3, 5, 6])):
        assert infos["array"].ravel().tolist() == numbers
        assert infos["names"].ravel().tolist() == [str(n) for n in numbers]
        assert infos["deep"]["one"].tolist() == [[str(n), None] for n in numbers]
    assert batch.agent_infos["names"].ravel().tolist() == ["1", "2", "3", "4"]


@every_worker
@pytest.mark.parametrize("kind, key", [("text", None), ("dict", "words"), ("tuple", "item_0")])
def test_text_that_is_longer_than_the_first_one_is_recorded_and_seen_whole(worker_class, kind, key):
    seen = []

    class Reader(RandomPolicy):
        def get_action(self, observation):
            seen.append(text_of(observation))
            return 0, {}

        def get_actions(self, observations):
            assert text_of(observations).dtype.kind == "U"
            seen.append(text_of(observations)[0])
            return np.zeros(2, int), {}

    def text_of(observation):
        return observation if kind == "text" else observation["words"] if kind == "dict" else observation[0]

    args = {} if worker_class is DefaultWorker else dict(n_envs=2)
    batch = worker(worker_class, Reader(), partial(TellingGym, kind), **args).play_episodes(2).to_batch()
    observations, last = (tree if key is None else tree[key] for tree in (batch.observations, batch.last_observations))
    assert observations.tolist() == ["x", "xx", "xxx", "xxxx"] * 2 and last.tolist() == ["xxxxx"] * 2
    assert observations.dtype.kind == last.dtype.kind == "U"
    assert [str(text) for text in seen] == ["x", "xx", "xxx", "xxxx"] * len(args or [1, 2])


class ChangingGym(gymnasium.Env):
    """Observes the values of a list, one after the other."""

    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, values):
        self.values = values
        box = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(x=box, y=box) if isinstance(values[0], dict) else box

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.values[0], {}

    def step(self, action):
        self.t += 1
        return self.values[self.t], 1.0, self.t == len(self.values) - 1, False, {}


@pytest.mark.filterwarnings("ignore:observation. expected dtype .* it is cast")
@every_worker
@pytest.mark.parametrize("chunk", [1, 2, 256])
@pytest.mark.parametrize(
    "values",
    [
        [[0], [1.5], [2], [2.5]],
        [np.array([0]), np.array([1]), np.array([2.5])],
        [np.zeros(1, np.uint8), np.array([0.5], np.float32), np.array([200], np.uint8)],
        [np.zeros(1, np.int8), [3], [300], [2**40]],
        [np.array([False]), np.array([True]), [7]],
        [dict(x=[0], y=[0]), dict(x=[1], y=[0.5]), dict(x=[1.5], y=[1])],
    ],
    ids=str,
)
def test_observations_that_become_real_numbers_or_larger_ones_are_kept(worker_class, chunk, values, monkeypatch):
    monkeypatch.setattr(recorder, "MAX_CHUNK_T", chunk)
    seen = []

    class Policy(RandomPolicy):
        def get_action(self, observation):
            seen.append(observation)
            return 0, {}

        def get_actions(self, observations):
            seen.append(map_structure(lambda x: x[0], observations))
            return np.zeros(2, int), {}

    def numbers_of(key, observations):
        return [np.ravel(x[key] if key else x).item() for x in observations]

    env, args = (ChangingGym(values), {}) if worker_class is DefaultWorker else ([ChangingGym(values * n) for n in (1, 2)], dict(n_envs=2))
    batch = worker(worker_class, Policy(), env, **args).play_episodes(4).to_batch()
    assert {*batch.lengths.tolist()} == ({len(values) - 1, 2 * len(values) - 1} if args else {len(values) - 1})
    for episode in batch.split():
        for (key, x), (_, last) in zip(leaves(episode.observations), leaves(episode.last_observations)):
            assert [*x.ravel(), *last.ravel()] == numbers_of(key, values * 2)[: len(episode) + 1]
    for key, _ in leaves(batch.observations):
        assert numbers_of(key, seen)[: len(values) - 1] == numbers_of(key, values)[:-1]


def test_observations_of_another_form_are_named_also_if_their_numbers_become_real_ones():
    for later, said in (
        (dict(x=[0.5], z=[1]), r"observation: expected the keys \['x', 'y'\]"),
        (dict(x=[0.5], y=[1, 2]), r"\['y'\]: expected shape"),
    ):
        with pytest.raises(ValueError, match=said):
            worker(DefaultWorker, RandomPolicy(), ChangingGym([dict(x=[0], y=[0]), later])).rollout()
    with pytest.raises(TypeError, match="observation: expected dtype int64, got <U1"):
        worker(DefaultWorker, RandomPolicy(), ChangingGym([[0], ["a"]])).rollout()


def test_environments_that_cannot_be_copied_are_to_be_made():
    class Uncopied(CountingEnv):
        def __deepcopy__(self, memo):
            raise RuntimeError("a handle")

    with pytest.raises(TypeError, match="a function without arguments"):
        worker(VecWorker, RandomPolicy(), Uncopied(3), n_envs=2)
    assert worker(VecWorker, RandomPolicy(), NewEnvUpdate(Uncopied), n_envs=2).rollout().n_episodes == 2


def test_recurrent_agents_remember_within_episodes_only():
    batch = worker(VecWorker, RnnAgent(), CountingEnv([3, 5]), n_envs=3).play_episodes(9).to_batch()
    for episode in batch.split():
        state = episode.agent_infos["prev_rnn_state"].reshape(len(episode), -1)
        assert not state[0].any() and state[1:].any(axis=1).all()


# ---------------------------------------------------------------------------------------------------------------------
# Going on from a state
# ---------------------------------------------------------------------------------------------------------------------
class RepeatedEnv(CountingEnv):
    """A CountingEnv whose state is what has been done with it; `set_state` does it again."""

    def _begin(self):
        super()._begin()
        self.calls = ""

    def reset(self):
        self.calls += "r"
        return super().reset()

    def step(self, action):
        self.calls += "s"
        return super().step(action)

    def get_state(self):
        return dict(seed=self._seed, calls=self.calls)

    def set_state(self, state):
        self.seed(state["seed"])
        for call in state["calls"]:
            self.reset() if call == "r" else self.step(0)


class QuietEnv(StructuredGymEnv):
    def step(self, action):
        return *super().step(action)[:4], {}


def played_by_both(make, n_before=3, n_left_out=0):
    """What a sampler plays after `n_before` batches, and what another does that goes on from its state by way of a checkpoint."""
    first, other = make(seed=0), make(seed=1)
    for itr in range(n_before):
        first.obtain_samples(itr, 1, None)
    state = from_plain(to_plain(first.state_dict(), keep=(torch.Tensor,)))
    other.obtain_samples(0, 1, None)
    assert sum(worker.load_state_dict(each) for worker, each in zip(other._workers, state["workers"])) == n_left_out
    other.load_state_dict(state)
    pairs = [[sampler.obtain_samples(itr, 1, None) for sampler in (first, other)] for itr in range(n_before, n_before + 6)]
    for sampler in (first, other):
        sampler.shutdown_worker()
    return pairs


@pytest.mark.parametrize("T", thinned([1, 2, 3, 7], quick=[3]))
@pytest.mark.parametrize(
    "agent,env",
    [
        (RnnAgent, lambda: RepeatedEnv([3, 5, 1])),
        (RecordingAgent, lambda: RepeatedEnv([2, 4], ["life", "terminated"])),
        (StructuredAgent, make_structured),
        pytest.param(StructuredAgent, QuietEnv, marks=full),
        pytest.param(lambda: MlpFfAgent(model_kwargs=dict(hidden_sizes=[4])), lambda: gym_make("CartPole-v1"), marks=full),
        pytest.param(lambda: MlpFfAgent(model_kwargs=dict(hidden_sizes=[4])), lambda: gym_make("LunarLander-v3"), marks=full),
        (lambda: MujocoLstmAgent(model_kwargs=dict(hidden_sizes=[4], lstm_size=4)), lambda: PointEnv(max_episode_length=5)),
        (RandomPolicy, lambda: GridWorldEnv("4x4")),
        (RandomPolicy, TellingGym),
        (RandomPolicy, lambda: ChangingGym([[0], [1], [2.5], [3], [4]])),
    ],
)
def test_fragments_go_on_from_a_state_in_the_middle_of_episodes(agent, env, T):
    def make(seed):
        torch.manual_seed(0)
        made = factory(FragmentWorker, 2, seed, 6, n_envs=3, timesteps_per_call=T)
        return LocalSampler(made, agent(), env)

    in_the_middle = 0
    for n_before in (1, 2, 3):
        pairs = played_by_both(make, n_before)
        assert [a == b for a, b in pairs] == [True] * 6
        in_the_middle += pairs[0][0].step_types[0] != FIRST
    assert in_the_middle or T == 7


class CountingPolicy:
    """Tells how many actions it has chosen in each episode."""

    n = np.zeros(3, int)

    def get_actions(self, observations):
        self.n = self.n + 1
        return np.zeros(len(observations), int), dict(n=self.n)

    def reset(self, do_resets):
        self.n = np.where(do_resets, 0, self.n)


@pytest.mark.parametrize("unbiased", [True, False])
def test_no_episode_stands_still_while_the_policy_acts_in_others(unbiased):
    made = factory(VecWorker, 1, 0, n_envs=3)
    sampler = LocalSampler(made, CountingPolicy(), [[RepeatedEnv(3), RepeatedEnv(5), RepeatedEnv(8)]], unbiased=unbiased)
    for itr in range(10):
        batch = sampler.obtain_samples(itr, 7, None) if itr % 2 else sampler.obtain_exact_episodes(1 + itr % 4, None)
        for episode in batch.split():
            assert episode.agent_infos["n"].tolist() == list(range(1, 1 + len(episode)))
    sampler.shutdown_worker()


@pytest.mark.parametrize("new", [lambda: PointEnv((5, 5), max_episode_length=3), lambda: RepeatedEnv(2)])
@pytest.mark.parametrize("worker_class, args", [(DefaultWorker, {}), (VecWorker, dict(n_envs=2))])
def test_an_environment_that_was_replaced_has_no_state_which_is_said(worker_class, args, new, monkeypatch):
    lines = []
    monkeypatch.setattr(logger, "log", lines.append)

    def make():
        return LocalSampler(factory(worker_class, 1, 0, **args), RecordingAgent(), partial(PointEnv, max_episode_length=8))

    first, other, third = make(), make(), make()
    first.obtain_samples(0, 1, None)
    third.load_state_dict(first.state_dict())
    assert not lines, "nothing was replaced yet"
    first.obtain_samples(1, 1, None, new)
    state = first.state_dict()
    other.load_state_dict(state)
    n = args.get("n_envs", 1)
    expected = "environments begin new episodes, because their states are unknown. An env_update had replaced some of them: give it again."
    assert lines == [f"{n} {expected}"]
    assert set(other.obtain_samples(2, 1, None).lengths.tolist()) == {8}, "those of the constructor"
    assert other.obtain_samples(3, 1, None, new) == first.obtain_samples(3, 1, None, new), "given again, they are as without a resume"
    for sampler in (first, other, third):
        sampler.shutdown_worker()


class MakesOne(DefaultWorker):
    def worker_init(self):
        self.env = PointEnv(max_episode_length=8)


class WrapsWhatComes(DefaultWorker):
    def update_env(self, env_update):
        super().update_env(env_update)
        self.env = PointEnv(max_episode_length=8)


@pytest.mark.parametrize("worker_class", [MakesOne, WrapsWhatComes])
def test_environments_that_a_worker_makes_itself_are_not_replaced(worker_class):
    sampler = LocalSampler(factory(worker_class, 1, 0), RecordingAgent(), PointEnv(max_episode_length=8))
    sampler.obtain_samples(0, 1, None)
    (state,) = sampler.state_dict()["workers"]
    assert not state["are_replaced"] and state["envs"] != [None]


@pytest.mark.parametrize("worker_class,args", [(DefaultWorker, {}), (VecWorker, dict(n_envs=3))])
def test_after_the_loss_of_a_life_another_sampler_goes_on_from_there(worker_class, args):
    def make(seed):
        return LocalSampler(factory(worker_class, 2, seed, **args), RecordingAgent(), RepeatedEnv([2, 3], ["life", "terminated"]))

    pairs = played_by_both(make)
    assert [a == b for a, b in pairs] == [True] * 6
    assert [batch.observations[0, 2] for batch, _ in pairs][:2] in ([0, 2], [2, 0])


def test_episodes_with_steps_that_were_not_returned_are_left_out_of_a_state_which_is_said(monkeypatch):
    lines = []
    monkeypatch.setattr(logger, "log", lines.append)

    def make(seed):
        return LocalSampler(factory(VecWorker, 1, seed, n_envs=2), RecordingAgent(), [[RepeatedEnv(2), RepeatedEnv(5)]], unbiased=False)

    pairs = played_by_both(make, n_left_out=1)
    assert lines == ["1 environments begin new episodes, because their states are unknown."]
    assert pairs[0][1].observations[:, 2].tolist() == [0, 1]


def test_environments_that_cannot_return_to_their_state_begin_a_new_episode(monkeypatch):
    lines = []
    monkeypatch.setattr(logger, "log", lines.append)

    class Lost(RepeatedEnv):
        def get_state(self):
            return 0

        def set_state(self, state):
            raise NotRestored("It is another world.")

    def make(seed):
        return LocalSampler(factory(FragmentWorker, 2, seed, 6, n_envs=1, timesteps_per_call=2), RecordingAgent(), lambda: Lost(5))

    pairs = played_by_both(make, n_before=1, n_left_out=2)
    assert lines == ["2 environments begin new episodes, because their states are unknown."]
    assert [batch.step_types[0] for batch in pairs[0]] == [MID, FIRST]


# ---------------------------------------------------------------------------------------------------------------------
# Stepping oneself
# ---------------------------------------------------------------------------------------------------------------------
def test_an_episode_in_progress():
    episode, policy = InProgressEpisode(grid()), ScriptedPolicy()
    with pytest.raises(AssertionError):
        episode.to_batch()
    while not episode.step_types or episode.step_types[-1] < TERMINAL:
        observation = episode.step(*policy.get_action(episode.last_obs))
    assert observation == episode.last_obs == 15 and episode.observations == [0, 4, 8, 9, 13, 14, 15]
    assert_same(episode.to_batch(), worker(DefaultWorker, ScriptedPolicy(), grid()).rollout())


def test_an_episode_in_progress_with_structured_actions():
    episode = InProgressEpisode(PickAndMove(gymnasium.spaces.Tuple))
    actions = [(5 + t, np.full(2, t / 2, np.float32)) for t in range(2)]
    for action in actions:
        episode.step(action, {})
    batch = episode.to_batch()
    assert batch.actions["item_0"].tolist() == [5, 6] and batch.actions["item_1"].tolist() == [[0, 0], [0.5, 0.5]]


def test_an_episode_in_progress_that_was_begun_elsewhere():
    env = PointEnv()
    observation, info = env.reset()
    episode = InProgressEpisode(env, observation, info)
    episode.step(np.ones(2, np.float32), {"a": 1})
    batch = episode.to_batch()
    assert batch.episode_infos_by_episode["goal"].shape == (1, 2) and batch.agent_infos["a"].tolist() == [1]
    assert InProgressEpisode(env, observation).episode_info == {}
    with pytest.raises(ValueError, match="initial_observation"):
        InProgressEpisode(env, episode_info=info)


class WrongEnv(CountingEnv):
    """Goes wrong in its third step."""

    def __init__(self, wrong):
        super().__init__(5)
        self.wrong = wrong

    def step(self, action):
        step = super().step(action)
        if step.env_info.t == 3:
            if self.wrong == "exit":
                raise SystemExit
            info = {name: value for name, value in self.wrong.items() if name in step.env_info._fields}
            changes = {name: value for name, value in self.wrong.items() if name not in info}
            step = step._replace(env_info=step.env_info._replace(**info), **changes)
        return step


WRONG = [
    (dict(reward="1.0"), "reward: expected one number, got '1.0'"),
    (dict(reward=None), "reward: expected one number, got None"),
    (dict(reward=np.zeros(2)), "reward: expected one number, got array"),
    (dict(done=None), "done: expected True or False, got None"),
    (dict(done="False"), "done: expected True or False, got 'False'"),
    (dict(done=np.nan), "done: expected True or False, got nan"),
    (dict(done=True, timeout="False"), "env_info.timeout: expected True or False, got 'False'"),
    (dict(done=True, timeout=np.nan), "env_info.timeout: expected True or False, got nan"),
    (dict(done=True, traj_done="False"), "env_info.traj_done: expected True or False, got 'False'"),
]


@pytest.mark.parametrize("wrong, said", [*WRONG, ("exit", r"An environment called sys.exit\(\)")], ids=str)
def test_a_reward_or_done_that_is_none_and_an_exit_are_failures_by_name(wrong, said):
    played = worker(VecWorker, RandomPolicy(), [CountingEnv(4), WrongEnv(wrong)], n_envs=2)
    with pytest.raises((TypeError, RuntimeError), match=said) as info:
        played.play_episodes(2)
    assert "environment 1 of worker 0, in step 2" in str(info.value) + str(getattr(info.value, "__notes__", ""))


@pytest.mark.parametrize("wrong, said", WRONG, ids=str)
def test_a_reward_or_flag_that_is_something_else_is_named_in_a_rollout_too(wrong, said):
    with pytest.raises(TypeError, match=said):
        rollout(WrongEnv(wrong), RandomPolicy())


@pytest.mark.parametrize("reward, said", [("1.0", "got '1.0'"), (np.zeros(2), "got array")], ids=str)
def test_an_episode_in_progress_refuses_what_is_no_reward_and_stays_as_it_was(reward, said):
    episode = InProgressEpisode(WrongEnvironment(reward=[1.0, reward]))
    episode.step(0, {})
    with pytest.raises(TypeError, match=f"reward: expected one number, {said}"):
        episode.step(0, {})
    assert episode.to_batch().rewards.tolist() == [1]


@pytest.mark.parametrize("ends", [dict(done=np.array([0])), dict(done=np.array([1.0]), timeout=0), dict(done=1, timeout=None)])
def test_arrays_of_one_element_are_numbers(ends):
    wrong = dict(reward=np.array([7.5]), **ends)
    batch = worker(VecWorker, RandomPolicy(), [WrongEnv(wrong)], n_envs=1).play_episodes(1).to_batch()
    assert batch.rewards.tolist() == ([1, 2, 7.5] if "timeout" in ends else [1, 2, 7.5, 4, 5])
    played = rollout(WrongEnv(wrong), RandomPolicy())
    assert played["rewards"].tolist() == batch.rewards.tolist()
    assert played["step_types"].tolist() == batch.step_types.tolist() and batch.terminals[-1]


def test_rewards_of_an_environment_may_be_arrays_of_one_element():
    batch = obtain_evaluation_episodes(RandomPolicy(), WrongEnvironment(reward=[np.array([2.0]), np.array([1])]), num_eps=1)
    assert batch.rewards.tolist() == [2, 1, 1, 1]
