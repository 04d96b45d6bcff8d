"""Batches of samplers become exactly the episodes that were played."""

import functools

import numpy as np
import pytest
from collecting import ENV, KINDS, ONE_OF_EACH, collect, collect_in_parts, kinds, make_sampler
from envs import CountingEnv, make_structured
from hypothesis import given, settings
from hypothesis import strategies as st
from played import ENVS, SPEC, Play, as_episodes, assert_episodes, ends, split

from rlpyt.episodes import EpisodeBatch, StepType, TimeStepBatch
from rlpyt.utils.buffer import buffer_func, buffer_leaves


@settings(max_examples=60, deadline=None)
@given(
    env=ENVS,
    T=st.integers(1, 12),
    B=st.integers(1, 3),
    wait_reset=st.booleans(),
    boundary=st.sampled_from(["done", "traj_done"]),
    partial=st.sampled_from(["keep", "drop"]),
    as_tensors=st.booleans(),
)
def test_each_batch_becomes_the_pieces_of_episodes_that_were_played(env, T, B, wait_reset, boundary, partial, as_tensors):
    play = Play(T, B, env=env, wait_reset=wait_reset)
    first = np.ones(B, bool)
    for _ in range(3):
        samples, steps = play.batch()
        expected, after = [], []
        for b in range(B):
            pieces = split(steps[b], boundary)
            begins = [bool(first[b])] + [True] * (len(pieces) - 1)
            after.append(ends(pieces[-1], boundary))
            if partial == "drop":
                kept = [begin and ends(piece, boundary) for piece, begin in zip(pieces, begins)]
                pieces = [piece for piece, keep in zip(pieces, kept) if keep]
                begins = [True] * len(pieces)
            expected += as_episodes(pieces, begins, boundary)
        samples = samples if as_tensors else play.sampler.samples_np
        batch = EpisodeBatch.from_samples(samples, SPEC, partial, boundary, first=first, mid_batch_reset=not wait_reset)
        assert_episodes(batch, expected)
        assert int((batch.terminals | batch.timeouts).sum()) == sum(
            episode["step_types"][-1] in (StepType.TERMINAL, StepType.TIMEOUT) for episode in expected
        )
        EpisodeBatch.concatenate(*batch.split()) if len(expected) else None
        first = np.array(after)


@pytest.mark.parametrize("wait_reset", [False, True])
def test_structured_observations_and_actions(wait_reset):
    play = Play(12, 3, make_env=make_structured, wait_reset=wait_reset)
    first = np.ones(3, bool)
    for _ in range(3):
        samples, steps = play.batch()
        pieces = [split(column) for column in steps]
        begins = [[bool(first[b])] + [True] * (len(pieces[b]) - 1) for b in range(3)]
        expected = [episode for b in range(3) for episode in as_episodes(pieces[b], begins[b])]
        assert_episodes(EpisodeBatch.from_samples(samples, first=first, mid_batch_reset=not wait_reset), expected)
        first = np.array([ends(column[-1]) for column in pieces])


def test_what_is_made_of_a_batch_is_valid_and_a_copy():
    samples, _ = Play(12, 3, env=ENV).batch()
    batch = EpisodeBatch.from_samples(samples, SPEC)
    args = {name: getattr(batch, name) for name in ("env_spec", *EpisodeBatch._PER_STEP, "last_observations", "lengths")}
    assert EpisodeBatch(**args) == batch and batch.env_spec is SPEC
    before = EpisodeBatch.concatenate(*batch.split(), batch.select([]))
    for leaf in buffer_leaves(samples):
        leaf[...] = 0
    assert batch == before


def test_nothing_is_known_of_how_columns_begin_unless_it_is_told():
    samples, steps = Play(12, 3, env=ENV).batch()
    batch = EpisodeBatch.from_samples(samples, SPEC)
    starts = np.cumsum(batch.lengths) - batch.lengths
    first_of_columns = starts[np.searchsorted(starts, [0, 12, 24])]
    assert (batch.step_types[first_of_columns] == StepType.MID).all()
    whole = EpisodeBatch.from_samples(samples, SPEC, partial="drop")
    assert whole.n_episodes == sum(len(split(column)) - 1 - (not ends(split(column)[-1])) for column in steps)
    assert (EpisodeBatch.from_samples(samples, SPEC, first=True).step_types[first_of_columns] == StepType.FIRST).all()


def test_transitions_of_a_batch():
    samples, steps = Play(9, 2, env=ENV).batch()
    batch = TimeStepBatch.from_samples(samples, SPEC)
    assert type(batch) is TimeStepBatch and batch == TimeStepBatch.from_episode_batch(EpisodeBatch.from_samples(samples, SPEC))
    played = [step for column in steps for step in column]
    np.testing.assert_array_equal(batch.observations, [step["observation"] for step in played])
    np.testing.assert_array_equal(batch.next_observations, [step["next_observation"] for step in played])
    assert batch.terminals.tolist() == [step["done"] and not step["timeout"] for step in played]


def test_columns_can_be_taken_out_of_a_batch():
    samples, _ = Play(9, 4, env=ENV).batch()
    parts = [EpisodeBatch.from_samples(samples[:, columns], SPEC) for columns in (slice(0, 1), slice(1, 4))]
    assert EpisodeBatch.concatenate(*parts) == EpisodeBatch.from_samples(samples, SPEC)


# Errors --------------------------------------------------------------------------------------------------------------
def test_a_terminated_episode_needs_the_observation_that_ended_it():
    play = Play(12, 2, env=ENV, keep_terminal_observations=False)
    samples, _ = play.batch()
    assert samples.terminal_observation is None
    with pytest.raises(ValueError, match="keep_terminal_observations=True"):
        EpisodeBatch.from_samples(samples, SPEC)


def test_where_no_episode_terminated_nothing_more_is_needed():
    samples, steps = Play(12, 2, env=dict(episode_length=[5, 3], end="timeout"), keep_terminal_observations=False).batch()
    expected = [episode for column in steps for episode in as_episodes(split(column), [True] * 9)]
    assert_episodes(EpisodeBatch.from_samples(samples, SPEC, first=True), expected)


def test_arguments_that_are_not_possible():
    samples, _ = Play(6, 2).batch()
    with pytest.raises(ValueError, match="partial='some'"):
        EpisodeBatch.from_samples(samples, partial="some")
    with pytest.raises(ValueError, match="boundary='life'"):
        EpisodeBatch.from_samples(samples, boundary="life")
    for first in (np.ones(3, bool), np.ones(2)):
        with pytest.raises(ValueError, match="first must be a bool or an array of 2 bools"):
            EpisodeBatch.from_samples(samples, first=first)
    lacking = samples._replace(env=samples.env._replace(next_observation=None))
    with pytest.raises(ValueError, match="lacks env.next_observation"):
        EpisodeBatch.from_samples(lacking)


# Samplers ------------------------------------------------------------------------------------------------------------
@functools.cache
def batches(kind, wait_reset, **kwargs):
    return collect(kind, wait_reset=wait_reset, T=12, evaluate_after=(), keep_terminal_observations=True, **kwargs).batches


@pytest.mark.timeout(120)
@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize("kind", kinds([*ONE_OF_EACH[1:], "CPU, spawn"]))
def test_all_samplers_give_the_same_episodes(kind, wait_reset):
    for ours, theirs in zip(batches(kind, wait_reset), batches("serial", wait_reset), strict=True):
        mine, other = (EpisodeBatch.from_samples(samples, SPEC, mid_batch_reset=not wait_reset) for samples in (ours, theirs))
        assert mine == other and mine.terminals.any() and mine.timeouts.any()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", kinds(["async serial", "async GPU"]))
def test_asynchronous_samplers_give_the_same_episodes(kind):
    collected = collect_in_parts(kind, n_parts=2, T=12, evaluate_after=(), keep_terminal_observations=True)
    for ours, theirs in zip(collected.batches, batches("serial", False), strict=True):
        assert EpisodeBatch.from_samples(ours, SPEC) == EpisodeBatch.from_samples(theirs, SPEC)


@pytest.mark.parametrize("wait_reset", [False, True])
def test_keeping_terminal_observations_changes_nothing_else(wait_reset):
    without = collect("serial", wait_reset=wait_reset, T=12, evaluate_after=()).batches
    for ours, theirs in zip(batches("serial", wait_reset), without, strict=True):
        assert theirs.terminal_observation is None
        for x, y in zip(buffer_leaves(ours._replace(terminal_observation=None, final_observation=None)), buffer_leaves(theirs)):
            np.testing.assert_array_equal(x, y)


def test_terminal_observations_take_memory_only_as_they_occur():
    """Nothing is written to slots that are not needed."""
    play = Play(50, 2, env=dict(episode_length=20))
    samples, steps = play.batch()
    assert samples.terminal_observation.shape == (50, 2, 4)
    n_ended = [sum(step["done"] for step in column) for column in steps]
    assert n_ended == [2, 2] and samples.terminal_observation[:2].any() and not samples.terminal_observation[2:].any()


@pytest.mark.parametrize("boundary", ["done", "traj_done"])
def test_an_episode_info_named_traj_done_without_done_resets_and_is_kept(boundary):
    """An environment may say that the trajectory is over without saying done."""

    class Silent(CountingEnv):
        def step(self, action):
            step = super().step(action)
            return step._replace(done=False)

    play = Play(7, 2, make_env=Silent, env=dict(episode_length=3))
    samples, steps = play.batch()
    expected = [episode for column in steps for episode in as_episodes(split(column, "traj_done"), [True] * 9, "traj_done")]
    batch = EpisodeBatch.from_samples(samples, SPEC, boundary=boundary, first=True)
    assert_episodes(batch, expected)
    assert batch.lengths.max() == 3 and not batch.terminals.any() and batch.timeouts.sum() == 4, "the agent was not told that it is over"


def test_samplers_take_the_argument():
    assert make_sampler("serial").keep_terminal_observations is False
    for kind in KINDS:
        assert make_sampler(kind, keep_terminal_observations=True).keep_terminal_observations is True


# Whole episodes as batches -------------------------------------------------------------------------------------------
def whole_episodes(n_steps=40, B=3, seed=0, env=ENV, **kwargs):
    samples, _ = Play(n_steps, B, env=env, seed=seed, **kwargs).batch()
    return EpisodeBatch.from_samples(buffer_func(samples, lambda x: x.clone()), SPEC, partial="drop", first=True)


@pytest.mark.parametrize("max_T", [None, 100, 1, 2, 4])
def test_to_samples_by_hand(max_T):
    batch = whole_episodes()
    samples, valid = batch.to_samples(max_T)
    columns = []  # (episode, first step, stop)
    for i, length in enumerate(batch.lengths.tolist()):
        columns += [(i, t, min(t + (max_T or length), length)) for t in range(0, length, max_T or length)]
    paths = batch.to_list()
    T, N = max(stop - start for _, start, stop in columns), len(columns)
    assert samples.env.reward.shape == valid.shape == (T, N)
    previous = {0: 0}
    for b, (i, start, stop) in enumerate(columns):
        path, n = paths[i], stop - start
        assert valid[:, b].tolist() == [1.0] * n + [0.0] * (T - n)
        for field, mine in (("observations", samples.env.observation), ("actions", samples.agent.action), ("rewards", samples.env.reward)):
            assert (mine[:n, b].numpy() == path[field][start:stop]).all()
        assert not samples.env.reward[n:, b].any() and not samples.agent.action[n:, b].any()
        assert (samples.env.next_observation[:n, b].numpy() == path["next_observations"][start:stop]).all()
        assert (samples.env.env_info.t[:n, b].numpy() == path["env_infos"]["t"][start:stop]).all()
        previous = [path["actions"][t - 1] if t else 0 for t in range(start, stop)]
        assert samples.agent.prev_action[:n, b].tolist() == previous
        assert samples.env.prev_reward[:n, b].tolist() == [path["rewards"][t - 1] if t else 0 for t in range(start, stop)]
        assert samples.env.done[:, b].tolist() == [False] * (n - 1) + [True] * (T - n + 1)
        terminal = path["step_types"][stop - 1] == StepType.TERMINAL
        assert samples.env.timeout[:, b].tolist() == [t == n - 1 and not terminal for t in range(T)]
        assert (samples.final_observation[0, b].numpy() == path["next_observations"][stop - 1]).all()


def test_to_samples_and_back():
    batch = whole_episodes()
    samples, _ = batch.to_samples()
    assert EpisodeBatch.from_samples(samples, SPEC, first=True, mid_batch_reset=False) == batch


def test_structured_episodes_to_samples_and_back():
    samples, _ = Play(40, 3, make_env=make_structured).batch()
    batch = EpisodeBatch.from_samples(samples, partial="drop", first=True)
    again = EpisodeBatch.from_samples(batch.to_samples()[0], first=True, mid_batch_reset=False)
    assert again == batch and again.n_episodes > 3


def test_truncated_episodes_bootstrap_from_a_value_function():
    batch = whole_episodes()

    def value(observation, prev_action, prev_reward):
        return observation[:, 2] * 100 + prev_action * 10 + prev_reward

    samples, _ = batch.to_samples(max_T=4, value=value)
    expected = np.zeros(samples.env.reward.shape)
    for t, b in samples.env.timeout.nonzero().tolist():
        expected[t, b] = samples.final_observation[0, b, 2] * 100 + samples.agent.action[t, b] * 10 + samples.env.reward[t, b]
    assert samples.env.timeout.any() and (samples.agent.timeout_value.numpy() == expected).all()
    assert batch.to_samples()[0].agent.timeout_value is None


def test_names_are_left_out_of_samples():
    batch = whole_episodes()
    names = ("env_spec", "observations", "actions", "rewards", "step_types", "last_observations", "lengths")
    batch = EpisodeBatch(
        **{name: getattr(batch, name) for name in names},
        env_infos={"task_name": np.array(["a"] * len(batch)), "TimeLimit.truncated": batch.timeouts},
    )
    env_info = batch.to_samples()[0].env.env_info
    assert env_info._fields == ("TimeLimit_truncated",) and batch.to_samples()[0].agent.agent_info is None


def test_to_samples_errors():
    batch = whole_episodes()
    with pytest.raises(ValueError, match="max_T=0"):
        batch.to_samples(0)
    with pytest.raises(ValueError, match="no episode"):
        batch.select([]).to_samples()
