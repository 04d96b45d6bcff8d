"""Episodes that span batches are put together as they were played."""

import io

import numpy as np
import pytest
import torch
from collecting import ENV, collect
from envs import CountingEnv, make_structured
from hypothesis import given, settings
from hypothesis import strategies as st
from played import ENVS, SPEC, Diary, Play, as_episodes, assert_episodes, ends, split
from tiers import processes

from rlpyt.episodes import EpisodeAssembler, EpisodeBatch
from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.structures import leaves


def saved_and_loaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Expectation:
    """Says, from the diaries alone, which episodes each push must return."""

    def __init__(self, B, boundary, known):
        self.boundary, self.running, self.known = boundary, [[] for _ in range(B)], [known] * B

    def push(self, steps):
        episodes = []
        for b, column in enumerate(steps):
            for piece in split(column, self.boundary):
                self.running[b] = self.running[b] + piece
                if ends(piece, self.boundary):
                    if self.known[b]:
                        episodes += as_episodes([self.running[b]], [True], self.boundary)
                    self.running[b], self.known[b] = [], True
        return episodes

    def held(self):
        return [(b, steps) for b, steps in enumerate(self.running) if steps and self.known[b]]


@settings(max_examples=60, deadline=None)
@given(
    env=ENVS,
    T=st.integers(1, 9),
    B=st.integers(1, 4),
    wait_reset=st.booleans(),
    boundary=st.sampled_from(["done", "traj_done"]),
    decorrelation=st.sampled_from([0, 5]),
    seed=st.integers(0, 99),
    interrupt=st.sets(st.integers(0, 9)),
)
def test_batches_become_exactly_the_episodes_that_were_played(env, T, B, wait_reset, boundary, decorrelation, seed, interrupt):
    play = Play(T, B, env=env, wait_reset=wait_reset, decorrelation=decorrelation, seed=seed)
    settings_ = dict(env_spec=SPEC, B=B, boundary=boundary, mid_batch_reset=not wait_reset)
    assembler = EpisodeAssembler(**settings_, first=not decorrelation)
    expectation = Expectation(B, boundary, known=not decorrelation)
    for itr in range(10):
        samples, steps = play.batch()
        assert_episodes(assembler.push(samples), expectation.push(steps))
        held = expectation.held()
        assert assembler.n_steps == sum(len(steps) for _, steps in held)
        if itr in interrupt:  # As if the run had been stopped and resumed.
            state = saved_and_loaded(assembler.state_dict())
            assembler = EpisodeAssembler(**settings_)
            assembler.load_state_dict(state)
    rest = assembler.flush()
    if held:
        assert_episodes(rest, as_episodes([steps for _, steps in held], [True] * len(held), boundary))
    else:
        assert rest is None
    assert assembler.n_steps == 0 and assembler.flush() is None


def test_structured_observations():
    play, assembler = Play(4, 3, make_env=make_structured), EpisodeAssembler(None, 3, first=True)
    expectation, n = Expectation(3, "done", True), 0
    for _ in range(8):
        samples, steps = play.batch()
        batch = assembler.push(samples)
        n += batch.n_episodes
        assert_episodes(batch, expectation.push(steps))
    assert n >= 6


@processes
@pytest.mark.timeout(60)
def test_episodes_of_a_parallel_sampler():
    settings_ = dict(T=5, n_batches=8, evaluate_after=(), keep_terminal_observations=True)
    mine, theirs = (EpisodeAssembler(SPEC, 6) for _ in range(2))
    n = 0
    for ours, others in zip(collect("CPU, 2 workers", **settings_).batches, collect("serial", **settings_).batches, strict=True):
        batch = mine.push(ours)
        assert batch == theirs.push(others)
        n += batch.n_episodes
    assert n > 20


def test_flushed_episodes_are_not_gone_on_with():
    play, assembler = Play(4, 1, env=dict(episode_length=6)), EpisodeAssembler(SPEC, 1, first=True)
    assert assembler.push(play.batch()[0]).n_episodes == 0
    assert assembler.flush().lengths.tolist() == [4]
    assert assembler.push(play.batch()[0]).n_episodes == 0, "the two steps that were left of it"
    assert assembler.push(play.batch()[0]).lengths.tolist() == [6]


def test_episodes_under_one_policy_only():
    play, assembler = Play(5, 2, env=dict(episode_length=[3, 4])), EpisodeAssembler(SPEC, 2, first=True, on_policy_only=True)
    seen = [assembler.push(play.batch()[0]).lengths.tolist() for _ in range(7)]  # Ends at 3, 7, 10, 14, 17, 21, 24, 28, 31, 35.
    assert seen == [[3, 3], [3, 3], [4, 4], [], [3, 3], [], [4, 4]] and assembler.n_steps == 0


def test_what_is_kept_is_a_copy():
    play, assembler = Play(4, 2, env=dict(episode_length=6)), EpisodeAssembler(SPEC, 2, first=True)
    steps = [[], []]
    for _ in range(2):
        samples, more = play.batch()
        batch = assembler.push(samples)
        for leaf in buffer_leaves(samples):
            leaf[...] = -1
        steps = [a + b for a, b in zip(steps, more)]
    expected = as_episodes([split(column)[0] for column in steps], [True] * 2)
    del expected[0]["actions"], expected[1]["actions"]  # The agent saw what was overwritten.
    for mine, theirs in zip(batch.to_list(), expected):
        np.testing.assert_array_equal(mine["rewards"], theirs["rewards"])
        np.testing.assert_array_equal(mine["next_observations"], theirs["next_observations"])


def test_columns_that_begin_anew_after_a_resumed_run():
    play, assembler = Play(4, 2, env=dict(episode_length=6)), EpisodeAssembler(SPEC, 2, first=True)
    assembler.push(play.batch()[0])
    again = EpisodeAssembler(SPEC, 2)
    again.load_state_dict(assembler.state_dict())
    again.begin_anew([1])
    assert again.n_steps == 4
    batch = again.push(play.batch()[0])
    assert batch.lengths.tolist() == [6, 2], "as far as it knows, the environment in column 1 has begun anew"


def test_columns_whose_environments_are_changed():
    play, assembler = Play(4, 2, env=dict(episode_length=6)), EpisodeAssembler(SPEC, 2, first=True)
    assembler.push(play.batch()[0])
    changed = play.sampler.update_envs([None, lambda: Diary(CountingEnv(episode_length=3), play.made)])
    assembler.begin_anew(changed)
    episodes = assembler.push(play.batch()[0])
    assert changed == [1] and episodes.lengths.tolist() == [6, 3]
    assert_episodes(episodes.select([1]), as_episodes([play.made[-1].steps[:3]], [True]))


def test_the_memory_of_what_is_kept_is_given_back():
    """Of one column the episode never ends, of the others always: what those leave behind must not pile up."""

    class Mixed:
        made = 0

        def __new__(cls):
            cls.made += 1
            return CountingEnv(episode_length=10**6 if cls.made == 2 else 3)

    play, assembler = Play(2, 8, make_env=Mixed), EpisodeAssembler(SPEC, 8, first=True)
    for _ in range(50):
        assembler.push(play.batch()[0])
        kept = [leaf for pieces in assembler._kept for piece in pieces for _, leaf in leaves(piece)]
        assert all(leaf.base is None for leaf in kept), "none is a view that keeps more than itself"
        assert sum(len(piece["rewards"]) for pieces in assembler._kept for piece in pieces) == assembler.n_steps
    assert 100 <= assembler.n_steps <= 100 + 7 * 2


def test_arguments_that_are_not_possible():
    with pytest.raises(ValueError, match="boundary='life'"):
        EpisodeAssembler(SPEC, 2, boundary="life")
    with pytest.raises(ValueError, match="first must be"):
        EpisodeAssembler(SPEC, 2, first=np.ones(3, bool))
    with pytest.raises(ValueError, match="B=0 is not possible; it must be a whole number at least 1"):
        EpisodeAssembler(SPEC, 0)
    for columns in ([0, 5], [2], [-1]):
        play, assembler = Play(4, 2, env=dict(episode_length=6)), EpisodeAssembler(SPEC, 2, first=True)
        assembler.push(play.batch()[0])
        with pytest.raises(ValueError, match=f"no column {columns[-1]}: with B=2.*from 0 to 1"):
            assembler.begin_anew(columns)
        assert assembler.push(play.batch()[0]).lengths.tolist() == [6, 6]
    assembler = EpisodeAssembler(SPEC, 2)
    with pytest.raises(ValueError, match="The batch has 3 columns"):
        assembler.push(Play(4, 3, env=ENV).batch()[0])
    with pytest.raises(ValueError, match="B=3, not B=2"):
        assembler.load_state_dict(EpisodeAssembler(SPEC, 3).state_dict())
    assert isinstance(EpisodeAssembler(SPEC, 2).push(Play(4, 2, env=ENV).batch()[0]), EpisodeBatch)
