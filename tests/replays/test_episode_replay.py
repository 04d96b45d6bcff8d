"""The replay buffer of whole episodes, against a list of them."""

import io
import multiprocessing as mp
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import processes

from rlpyt.episodes import EnvSpec, EpisodeBatch, StepType, TimeStepBatch
from rlpyt.replays.episode import EpisodeReplayBuffer

SPEC = EnvSpec(spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Discrete(5))


def make_episodes(lengths, number=0):
    """Every step has a number of its own, and its observation tells it; of an episode of n steps the last observation is number + 0.5."""
    S = sum(lengths)
    numbers = number + np.arange(S)
    last = numbers[np.cumsum(lengths) - 1] + 0.5
    types = sum([[StepType.FIRST] * (n > 1) + [StepType.MID] * (n - 2) + [StepType.TERMINAL + i % 2] for i, n in enumerate(lengths)], [])
    return EpisodeBatch(
        env_spec=SPEC,
        observations=np.stack([numbers, -numbers], axis=1).astype(np.float64),
        last_observations=np.stack([last, -last], axis=1),
        actions=numbers % 5,
        rewards=numbers.astype(np.float32),
        env_infos={"deep": {"x": numbers * 2}, "name": np.array(["a"] * S)},
        step_types=np.array(types, np.uint8),
        episode_infos={"length": np.array(lengths)},
        lengths=np.array(lengths),
    )


def expected_transition(episodes, reward):
    """Return (observation, next observation, step type, length of the episode) of the step with this number."""
    for path in episodes:
        for t in range(len(path["rewards"])):
            if path["rewards"][t] == reward:
                return path["observations"][t].tolist(), path["next_observations"][t].tolist(), path["step_types"][t], len(path["rewards"])
    raise AssertionError(f"step {reward} is not kept any more")


def assert_is_one_of(sample, kept):
    for i in range(len(sample)):
        got = sample.observations[i].tolist(), sample.next_observations[i].tolist(), sample.step_types[i], sample.episode_infos["length"][i]
        assert got == expected_transition(kept, sample.rewards[i])
        assert sample.env_infos["deep"]["x"][i] == 2 * sample.rewards[i] and sample.actions[i] == sample.rewards[i] % 5


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.integers(8, 30),
    appends=st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=8),
    k=st.integers(0, 9),
)
def test_the_latest_whole_episodes_are_kept(capacity, appends, k):
    buffer, kept, number = EpisodeReplayBuffer(capacity), [], 0
    for i, lengths in enumerate(appends):
        batch = make_episodes(lengths, number)
        number += sum(lengths)
        buffer.append_episodes(batch)
        kept += batch.to_list()
        while sum(len(path["rewards"]) for path in kept) > capacity:
            kept.pop(0)
        assert buffer.n_steps == len(buffer) == sum(len(path["rewards"]) for path in kept) and buffer.n_episodes == len(kept)
        if i == k:  # As if the run had been resumed.
            file = io.BytesIO()
            torch.save(buffer.state_dict(), file)
            file.seek(0)
            again = EpisodeReplayBuffer(capacity, SPEC)
            again.load_state_dict(torch.load(file, weights_only=True))
            assert again.sample_timesteps(20) == buffer.sample_timesteps(20)
            buffer = again
        everything = buffer.episodes()
        assert [x["rewards"].tolist() for x in everything.to_list()] == [path["rewards"].tolist() for path in kept]
        assert_is_one_of(TimeStepBatch.from_episode_batch(everything), kept)
        assert_is_one_of(buffer.sample_timesteps(50), kept)
        assert_is_one_of(TimeStepBatch.from_episode_batch(buffer.sample_episodes(5)), kept)


def test_what_could_not_be_kept_leaves_the_buffer_empty():
    episodes = make_episodes([2, 3])
    names = np.array(["a", "b", "c", "d", "e"])
    fields = {name: getattr(episodes, name) for name in ("actions", "rewards", "env_infos", "step_types", "lengths")}
    of_names = EpisodeBatch(env_spec=None, observations=names, last_observations=names[:2], episode_infos={}, **fields)
    buffer = EpisodeReplayBuffer(20)
    for _ in range(2):
        with pytest.raises(TypeError):
            buffer.append_episodes(of_names)
    buffer.append_episodes(episodes)
    assert buffer.n_steps == 5


def test_steps_and_episodes_are_drawn_uniformly():
    buffer = EpisodeReplayBuffer(10)
    buffer.append_episodes(make_episodes([1, 3, 6]))
    steps = buffer.sample_timesteps(20_000)
    assert np.abs(np.bincount(steps.rewards.astype(int), minlength=10) / 20_000 - 0.1).max() < 0.02
    lengths = buffer.sample_episodes(9_000).lengths
    assert np.abs(np.bincount(lengths)[[1, 3, 6]] / 9_000 - 1 / 3).max() < 0.04


def test_truncated_episodes_are_kept_with_their_step_types():
    buffer = EpisodeReplayBuffer(10)
    buffer.append_episodes(make_episodes([2, 3]))
    assert buffer.episodes().timeouts.tolist() == [False, False, False, False, True]


def test_paths_and_transitions_are_dictionaries():
    buffer = EpisodeReplayBuffer(10)
    buffer.append_episodes(make_episodes([4]))
    path = buffer.sample_path()
    assert path["rewards"].tolist() == [0, 1, 2, 3] and path["next_observations"][-1, 0] == 3.5 and path["episode_infos"] == {"length": 4}
    transitions = buffer.sample_transitions(6)
    assert transitions["observations"].shape == transitions["next_observations"].shape == (6, 2)


def test_names_are_not_kept_and_the_spec_is():
    buffer = EpisodeReplayBuffer(10)
    buffer.append_episodes(make_episodes([4]))
    assert set(buffer.episodes().env_infos) == {"deep"} and buffer.episodes().env_spec is SPEC


def test_a_restored_buffer_works_without_a_spec():
    buffer, restored = EpisodeReplayBuffer(10), EpisodeReplayBuffer(10)
    buffer.append_episodes(make_episodes([4, 2]))
    restored.load_state_dict(buffer.state_dict())
    assert restored.env_spec is None
    np.testing.assert_array_equal(restored.episodes().padded_rewards, buffer.episodes().padded_rewards)


def test_what_is_sampled_is_a_copy():
    buffer = EpisodeReplayBuffer(10)
    buffer.append_episodes(make_episodes([4]))
    buffer.sample_episodes(1).observations[...] = -1
    buffer.sample_timesteps(4).next_observations[...] = -1
    assert buffer.episodes().observations[:, 0].tolist() == [0, 1, 2, 3]


def test_a_copy_draws_the_same_numbers():
    buffer = EpisodeReplayBuffer(10)
    buffer.append_episodes(make_episodes([4, 5]))
    copy = pickle.loads(pickle.dumps(buffer))
    assert copy.episodes() == buffer.episodes() and copy.sample_timesteps(50) == buffer.sample_timesteps(50)


def draw(buffer, answers):
    answers.put(buffer.sample_timesteps(50).rewards.tolist())


@processes
def test_a_copy_in_another_process_draws_other_numbers():
    buffer = EpisodeReplayBuffer(10)
    buffer.append_episodes(make_episodes([4, 5]))
    ctx, drawn = mp.get_context("fork"), []
    for _ in range(2):
        answers = ctx.SimpleQueue()
        process = ctx.Process(target=draw, args=(buffer, answers), daemon=True)
        process.start()
        process.join(60)
        assert process.exitcode == 0
        drawn.append(answers.get())
    drawn.append(buffer.sample_timesteps(50).rewards.tolist())
    assert len(set(map(tuple, drawn))) == 3


FIELDS = ("env_spec", *EpisodeBatch._PER_STEP, "last_observations", "lengths")

OTHER_FORMS = {
    "an episode info less": (dict(episode_infos={}), "fields.*must have those kept before"),
    "an episode info more": (dict(episode_infos={"length": np.array([2]), "goal": np.zeros(1)}), "must have those kept before"),
    "an episode info of another shape": (dict(episode_infos={"length": np.array([[2]])}), r"episode_infos.length .*shape \(1,\)"),
    "an episode info of another dtype": (dict(episode_infos={"length": np.array([2.0])}), "episode_infos.length has dtype float64"),
    "last observations of another shape": (dict(last_observations=np.zeros((1, 1))), r"last_observations .*float64 and \(2,\)"),
    "last observations of another dtype": (dict(last_observations=np.zeros((1, 2), np.float32)), "last_observations has dtype float32"),
    "last observations of another structure": (dict(last_observations={"x": np.zeros((1, 2))}), "must have those kept before"),
    "rewards of another dtype": (dict(rewards=np.zeros(2)), "rewards has dtype float64"),
}


@pytest.mark.parametrize("change, said", OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_episodes_of_another_form_are_refused_and_nothing_is_changed(change, said):
    buffer, batch = EpisodeReplayBuffer(7), make_episodes([2], number=5)
    buffer.append_episodes(make_episodes([2, 3]))
    before = buffer.episodes()
    args = {name: getattr(batch, name) for name in FIELDS} | {"episode_infos": batch.episode_infos_by_episode}
    with pytest.raises(ValueError, match=said):
        buffer.append_episodes(EpisodeBatch(**{**args, **change}, validate=False))
    assert buffer.episodes() == before and buffer.state_dict() is not None
    buffer.append_episodes(batch)
    assert buffer.n_steps == 7


def test_infos_that_only_later_episodes_have_are_refused():
    buffer, batch = EpisodeReplayBuffer(10), make_episodes([2])
    buffer.append_episodes(EpisodeBatch(**{name: getattr(batch, name) for name in FIELDS}))
    assert buffer.episodes().episode_infos_by_episode == {}
    with pytest.raises(ValueError, match="must have those kept before"):
        buffer.append_episodes(batch)
    buffer.clear()
    buffer.append_episodes(batch)
    assert buffer.episodes().episode_infos_by_episode["length"].tolist() == [2]


@pytest.mark.parametrize("given", [None, SPEC])
def test_an_empty_buffer_takes_the_spec_of_other_episodes_unless_it_was_given_one(given):
    buffer, other = EpisodeReplayBuffer(10, given), EnvSpec(spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Discrete(5))
    buffer.append_episodes(make_episodes([2]))
    buffer.clear()
    assert buffer.env_spec is given
    batch = make_episodes([2])
    wider = {name: np.repeat(getattr(batch, name), 2, axis=1)[:, :3] for name in ("observations", "last_observations")}
    fields = {name: getattr(batch, name) for name in ("actions", "rewards", "step_types", "lengths")}
    buffer.append_episodes(EpisodeBatch(other, **wider, **fields))
    assert buffer.episodes().env_spec is (given or other)


def test_a_buffer_that_loads_a_state_keeps_its_spec():
    buffer, restored = EpisodeReplayBuffer(10), EpisodeReplayBuffer(10)
    for each in (buffer, restored):
        each.append_episodes(make_episodes([2]))
    restored.load_state_dict(buffer.state_dict())
    assert restored.env_spec is SPEC


def test_errors():
    with pytest.raises(ValueError, match="capacity=0"):
        EpisodeReplayBuffer(0)
    buffer = EpisodeReplayBuffer(10)
    for sample in (buffer.sample_timesteps, buffer.sample_episodes):
        with pytest.raises(ValueError, match="empty"):
            sample(1)
    with pytest.raises(ValueError, match="11 steps does not fit"):
        buffer.append_episodes(make_episodes([11]))
    buffer.append_episodes(make_episodes([2]).select([]))
    assert len(buffer) == 0
    buffer.append_episodes(make_episodes([2, 3]))
    batch = make_episodes([2])
    for sample in (buffer.sample_timesteps, buffer.sample_transitions, buffer.sample_episodes):
        with pytest.raises(ValueError, match="n=0 must be at least 1"):
            sample(0)
    with pytest.raises(TypeError, match="takes an EpisodeBatch, not a TimeStepBatch"):
        buffer.append_episodes(TimeStepBatch.from_episode_batch(batch))
    names = ("env_spec", "observations", "last_observations", "actions", "rewards", "step_types", "lengths")
    args = {name: getattr(batch, name) for name in names}
    with pytest.raises(ValueError, match="must have those kept before"):
        buffer.append_episodes(EpisodeBatch(**args))
    with pytest.raises(ValueError, match="observations has dtype float32"):
        args["observations"] = args["observations"].astype(np.float32)
        buffer.append_episodes(EpisodeBatch(**args, env_infos=batch.env_infos, episode_infos=batch.episode_infos_by_episode))
    with pytest.raises(ValueError, match="capacity=10, and this one has capacity=11"):
        EpisodeReplayBuffer(11).load_state_dict(buffer.state_dict())
