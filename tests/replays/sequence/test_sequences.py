"""All replay buffers of sequences against the list-based oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import KINDS, C, Game, H, W, all_windows, games, play
from tiers import thinned

from rlpyt.utils.collections import namedarraytuple

SEQUENCES = [kind for kind in KINDS if kind.sequence]
sequences = pytest.mark.parametrize("kind", SEQUENCES, ids=lambda kind: kind.name)
uniform = pytest.mark.parametrize("kind", [kind for kind in SEQUENCES if not kind.prioritized], ids=lambda kind: kind.name)
prioritized = pytest.mark.parametrize("kind", [kind for kind in SEQUENCES if kind.prioritized], ids=lambda kind: kind.name)
with_frames = pytest.mark.parametrize("kind", [kind for kind in SEQUENCES if kind.frames], ids=lambda kind: kind.name)


@pytest.mark.parametrize(
    "kind",
    thinned(SEQUENCES, quick=[kind for kind in SEQUENCES if kind.name == "AsyncPrioritizedSequenceReplayFrameBuffer"]),
    ids=lambda kind: kind.name,
)
def test_every_sequence_priority_and_draw_is_the_oracles(kind):
    @settings(max_examples=30, deadline=None, derandomize=True, database=None)
    @given(games(kind), st.lists(st.integers(1, 50), min_size=4, max_size=12))
    def whatever_happens(arguments, chunks):
        play(Game(kind, **arguments), chunks)

    whatever_happens()


@sequences
@pytest.mark.parametrize("chunk,interval", thinned([(1, 1), (2, 3), (5, 0)], quick=[(2, 3)]))
def test_every_pattern_of_ends_in_a_window_and_over_a_border_of_chunks(kind, chunk, interval):
    """Nothing, termination or timeout on every step of the three of a window and the one before it, at different places in the chunk."""
    game = Game(kind, n_step=3, batch_T=4, interval=interval, spare=5, timeouts=True, script=all_windows(4))
    for i in range(max(82 // chunk, 10)):
        game.append(chunk)
        if i % 3 == 2 or chunk > 2:
            game.check()


@sequences
def test_sequences_may_contain_what_stood_still_and_say_so(kind):
    game = Game(kind, wait_reset=True, p_done=0.2, batch_T=6, interval=2, spare=12)
    n_contained = 0
    for _ in range(8):
        game.append(5)
        game.check()
        if game.naive.drawable():
            batch = game.sample(20)
            assert batch.valid[0].all()
            n_contained += (~batch.valid).sum()
    assert n_contained > 20


@sequences
def test_a_step_whose_window_was_truncated_is_not_valid_and_one_before_a_termination_is(kind):
    game = Game(kind, n_step=2, batch_T=4, interval=1, B=1, spare=12, timeouts=True, script=[0, 0, 0, 0, 2, 0, 0, 0, 0, 1])
    game.append(14)
    batch = game.extract([(2, 0), (7, 0)])
    assert batch.valid.T.tolist() == [[True, False, False, True], [True] * 4]
    assert batch.done_n.T.tolist() == [[False, True, True, False], [False, True, True, False]]


@sequences
def test_sequences_do_without_final_observations(kind):
    game = Game(kind, n_step=3, batch_T=4, timeouts=True, finals=0.0, script=all_windows(4))
    for _ in range(20):
        game.append(4)
        game.check()


@sequences
def test_sequences_start_only_where_there_is_a_state(kind):
    game = Game(kind, interval=3, spare=8)
    game.append(game.T)
    start, b = game.naive.drawable()[0]
    assert start % 3 == 0
    with pytest.raises(ValueError, match="interval"):
        game.extract([(start + 1, b)])


@sequences
def test_without_an_interval_there_are_no_states_and_sequences_start_anywhere(kind):
    game = Game(kind, interval=0, spare=8)
    game.append(game.T)
    game.append(3)
    assert game.sample(5).init_rnn_state is None
    assert {i for i, _ in game.pairs(game.buffer.sample_batch(2000))} == set(game.naive.valid_steps())


@uniform
def test_the_length_may_be_another_one_in_every_batch(kind):
    game = Game(kind, interval=2, batch_T=5, n_step=2, spare=8)
    for n in (game.T - 3, 7, 4):
        game.append(n)
        for batch_T in (5, 3, 1, 7):
            batch = game.buffer.sample_batch(1000, batch_T)  # Enough that each is drawn.
            assert batch.return_.shape == (batch_T, 1000)
            pairs = game.pairs(batch)
            assert set(pairs) == set(game.naive.drawable(batch_T))
            game.compare(batch, pairs)
        assert game.buffer.sample_batch(3).return_.shape == (5, 3)
    with pytest.raises(ValueError):
        game.buffer.sample_batch(3, game.T)


@uniform
def test_the_length_may_be_set_later(kind):
    game = Game(kind, interval=2, batch_T=3, spare=8)
    game.kwargs["batch_T"] = None
    buffer = game.new_buffer()
    buffer.append_samples(game.append(game.T))
    assert buffer.sample_batch(4, 2).return_.shape == (2, 4)
    buffer.set_batch_T(5)
    batch = buffer.sample_batch(100)
    assert batch.return_.shape == (5, 100)
    game.compare(batch, game.pairs(batch))
    assert set(game.pairs(batch)) <= set(game.naive.drawable(5))


@prioritized
def test_the_length_of_prioritized_sequences_must_be_known(kind):
    game = Game(kind)
    game.kwargs["batch_T"] = None
    with pytest.raises(ValueError, match="batch_T"):
        game.new_buffer()


@prioritized
def test_the_length_of_prioritized_sequences_stays(kind):
    buffer = Game(kind).buffer
    buffer.set_batch_T(buffer.batch_T)
    with pytest.raises(ValueError, match=f"cannot be drawn by priority, since the buffer was made for batch_T={buffer.batch_T}"):
        buffer.set_batch_T(buffer.batch_T + 1)


@prioritized
def test_priorities_of_a_sequence_may_come_with_its_last_batch(kind):
    """As in R2D1: batches of 4 steps, one state in each, sequences of 3 batches, and the first one warms up."""
    game = Game(kind, interval=4, batch_T=12, n_step=1, B=2, given=True, shift=2, alpha=1.0, default_priority=0.25, spare=6)
    given_at = []
    for i in range(20):
        game.append(4)
        given_at.append([game.priorities.mass[max(i - 2, 0), b] for b in range(2)])
        game.check()
    start = (game.naive.drawable()[0][0]) // 4
    leaf = game.buffer.priority_tree.priorities[start % (game.T // 4)]
    np.testing.assert_allclose(leaf, given_at[start + 2])


@pytest.mark.parametrize("kind", [kind for kind in SEQUENCES if not kind.frames], ids=lambda kind: kind.name)
def test_structured_observations_and_actions_are_replayed(kind):
    Obs, Act = namedarraytuple("Obs", ["a", "b"]), namedarraytuple("Act", ["x", "y"])
    Samples = namedarraytuple("SamplesToBuffer", ["observation", "action", "reward", "done"])

    def samples(steps):  # [...]
        observation = Obs(np.stack([steps, steps], -1).astype(np.float32), steps)
        return Samples(observation, Act(steps.astype(np.float32), steps), steps.astype(np.float32), steps == 3)

    buffer = kind.cls(example=samples(np.int64(0)), size=12, B=1, rnn_state_interval=0, batch_T=3)
    buffer.append_samples(samples(np.arange(8).reshape(8, 1)))
    batch = buffer.extract_batch(np.array([2, 4]), np.array([0, 0]), 3)
    assert batch.all_observation.b.T.tolist() == [[2, 3, 4, 5], [4, 5, 6, 7]]
    assert batch.all_observation.a[..., 1].T.tolist() == [[2, 3, 4, 5], [4, 5, 6, 7]]
    assert batch.all_action.y.T.tolist() == [[1, 2, 3, 4], [3, 4, 5, 6]]
    assert batch.all_prev_action.x.T.tolist() == [[1, 2, 0, 4], [0, 4, 5, 6]]


@with_frames
def test_frame_buffers_store_one_frame_per_step(kind):
    game = Game(kind, spare=8)
    game.append(game.T)
    assert game.buffer.samples.observation.shape == (game.T, game.B, H, W)
    assert game.sample(4).all_observation.shape == (3 + 1, 4, C, H, W)


@sequences
def test_the_least_size_leaves_something_to_replay(kind):
    game = Game(kind, spare=1, interval=2, batch_T=3, n_step=2)
    for _ in range(3):
        game.append(game.T)
        game.check()
        assert game.sample(2).return_.shape == (3, 2)
    game.kwargs["size"] -= 2 * game.B
    with pytest.raises(ValueError, match="raise the size"):
        game.new_buffer()
