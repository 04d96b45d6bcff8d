"""The parts of a replay buffer, each without the others as far as possible."""

import copy

import numpy as np
import pytest

from rlpyt.replays.batches import BatchMemory
from rlpyt.replays.draws import UniformDraws
from rlpyt.replays.episode_ends import EpisodeEnds
from rlpyt.replays.frame import FrameStorage
from rlpyt.replays.prioritized import PrioritizedDraws
from rlpyt.replays.ring import Ring
from rlpyt.replays.sequence.n_step import RecurrentStates
from rlpyt.replays.storage import NStepReturns, RowArrays, Storage
from rlpyt.replays.sum_tree import SumTree
from rlpyt.utils.collections import namedarraytuple

B = 2
Steps = namedarraytuple("Steps", ["observation", "action", "reward", "done", "valid", "prev_rnn_state"], defaults=(None, None))
EXAMPLE = Steps(np.float32(0), np.int64(0), np.float32(0), np.bool_(False))


def steps(first, n, **fields):
    number = np.arange(first, first + n)[:, None] * 10 + np.arange(B)
    numbers = number.astype(np.float32)
    return Steps(numbers, number, numbers, np.zeros((n, B), np.bool_))._replace(**fields)


def written(ring, parts, samples):
    """Write samples to parts and advance the ring."""
    n = len(samples.reward)
    ring.claim(n)
    for part in parts:
        part.check(samples, n)
        part.write(samples, n)
    ring.advance(n)


def test_a_storage_writes_where_the_cursor_of_its_ring_is_and_does_not_move_it():
    ring = Ring(5)
    storage = Storage(EXAMPLE, ring, B, share_memory=False)
    storage.write(steps(0, 3), 3)
    storage.write(steps(7, 1), 1)
    assert ring.written == 0 and storage.samples.action[:3, 0].tolist() == [70, 10, 20]
    ring.advance(4)
    storage.write(steps(4, 3), 3)
    assert storage.samples.action[:, 1].tolist() == [51, 61, 21, 0, 41]
    assert storage.memory.action.shape == (5 * B + 1,) and np.shares_memory(storage.memory.action, storage.samples.action)


def test_a_copy_of_a_storage_has_separate_memory_of_which_its_steps_are_a_view():
    storage = Storage(EXAMPLE, Ring(5), B, share_memory=False)
    other = copy.deepcopy(storage)
    other.write(steps(3, 2), 2)
    assert not storage.memory.action.any() and other.memory.action[:4].tolist() == [30, 31, 40, 41]


def test_rows_at_an_interval_store_one_step_in_it_wherever_chunks_begin():
    ring = Ring(12)
    starts = ring.every(3)
    states = RecurrentStates(np.float32(0), starts, B, share_memory=False)
    expected = np.zeros((4, B))
    for first, n in [(0, 1), (1, 4), (5, 2), (7, 2), (9, 7), (16, 3)]:
        samples = steps(first, n)
        written(ring, [states], samples._replace(prev_rnn_state=samples.reward))
        for number in range(first, first + n):
            if number % 3 == 0:
                expected[number // 3 % 4] = [10 * number, 10 * number + 1]
        assert states.samples.tolist() == expected.tolist()
        assert starts.written == -(-(first + n) // 3)


@pytest.mark.parametrize("interval", [1, 3])
def test_chunks_restore_what_lies_in_their_rows(interval):
    ring = Ring(12)
    arrays = RowArrays(np.int64(0), "number", ring.every(interval), B, share_memory=False)
    arrays.samples[:] = np.arange(arrays.size).reshape(-1, B)
    chunk = {name: tensor.clone() for name, tensor in arrays.chunk(14, 7).items()}
    saved = arrays.samples.copy()
    arrays.samples[:] = -1
    arrays.check_chunk(chunk, 14, 7)
    arrays.load_chunk(chunk, 14, 7)
    inside = np.array([any(12 + row * interval == number for number in range(14, 21)) for row in range(12 // interval)])
    assert (arrays.samples[inside] == saved[inside]).all() and (arrays.samples[~inside] == -1).all()
    with pytest.raises(ValueError, match="'number' of the saved replay buffer"):
        arrays.check_chunk(chunk, 14, 3)


def test_frames_are_stored_once_and_read_as_stacks_with_zeros_before_the_episode():
    example = EXAMPLE._replace(observation=np.zeros((3, 1, 2), np.uint8))
    ring = Ring(8)
    storage = FrameStorage(example, ring, B, share_memory=False)
    assert storage.rows_before(example) == 2 and storage.samples.observation.shape == (8, B, 1, 2)
    frames = np.zeros((6, B, 3, 1, 2), np.uint8)
    for t in range(6):
        for age in range(3):
            start = 3 if t >= 3 else 0  # Row 2 ends an episode.
            frames[t, :, 2 - age] = t - age + 1 if t - age >= start else 0
    done = np.zeros((6, B), np.bool_)
    done[2] = True
    written(ring, [storage], steps(0, 6, observation=frames, done=done))
    T_idxs = np.array([0, 1, 2, 3, 5])
    assert (storage.observations(T_idxs, np.zeros(5, np.int64)) == frames[T_idxs, 0]).all()
    assert (storage.observations(np.array([1]), np.array([1]), 4)[:, 0] == frames[1:5, 1]).all()


@pytest.mark.parametrize("n_step", [1, 3])
def test_returns_are_complete_n_rows_before_the_cursor_however_rows_come(n_step):
    ring = Ring(9)
    storage = Storage(EXAMPLE, ring, B, share_memory=False)
    returns = NStepReturns(storage, n_step, 0.5, share_memory=False)
    for first, n in [(0, 4), (4, 1), (5, 3), (8, 6)]:
        storage.write(steps(first, n), n)
        returns.complete(n)
        ring.advance(n)
        for number in range(max(first + n - 9, 0), first + n - n_step + 1):
            expected = sum(0.5**k * 10 * (number + k) for k in range(n_step))
            assert returns.as_T_B[0][number % 9, 0] == expected


def test_observations_that_ended_episodes_last_as_long_as_their_rows():
    ring = Ring(4)
    ends = EpisodeEnds(np.float32(0), ring, B, share_memory=False)
    for number in range(9):
        timeout = np.array([[number % 2 == 0, False]])
        ring.claim(1)
        ends.write(1, *(ends.of_steps(timeout, np.full((1, B), 100 + number)) if timeout.any() else ()))
        ring.advance(1)
        kept = [i for i in range(max(number - 3, 0), number + 1) if i % 2 == 0]
        assert len(ends.store) == len(kept)
        assert ends.at(np.array(kept) % 4, np.zeros(len(kept), np.int64)).tolist() == [100 + i for i in kept]
    ends.clear()
    assert len(ends.store) == 0


def test_uniform_draws_follow_the_window_of_their_rows():
    ring = Ring(12)
    draws = UniformDraws(ring.every(3), B, off_backward=1, off_forward=1, valid=np.empty(0, np.bool_))
    for n in (10, 5):
        ring.advance(n)
        T_idxs, B_idxs = draws.select(300)
        first, end = ring.every(3).window(1, 1)
        assert set(T_idxs.tolist()) == {3 * (i % 4) for i in range(first, end)} and set(B_idxs.tolist()) == {0, 1}


def test_prioritized_draws_change_only_what_is_valid_and_give_back_ids():
    ring = Ring(8)
    storage = Storage(EXAMPLE, ring, B, share_memory=False)
    tree = SumTree(8, B, off_backward=1, off_forward=1, rows=ring)
    draws = PrioritizedDraws(tree, ring, storage, alpha=0.5, beta=1.0, weights_eps=0.0)
    for number in range(0, 12, 3):
        draws.claim(3)
        ring.claim(3)
        draws.publish(3, steps(number, 3))
        ring.advance(3)
    draw = draws.draw(400)
    first, end = ring.window(1, 1)
    assert set(draw.ids.tolist()) == set(range(first * B, end * B)) and (draw.is_weights == 1).all()
    assert (draw.where[0] == draw.ids // B % 8).all() and (draw.where[1] == draw.ids % B).all()
    tree.update(np.array([first * B, 0]), draws.powers(np.array([16.0, 25.0])))  # The second one has been overwritten.
    assert tree.priorities[first % 8].tolist() == [4, 1] and tree.total == 4 + (end - first) * B - 1


def test_a_tree_that_is_detached_moves_by_itself():
    ring = Ring(8)
    tree = SumTree(8, B, off_backward=1, off_forward=1, rows=ring)
    tree.advance(3)
    ring.advance(3)
    tree.detach()
    ring.advance(2)
    tree.advance(4)
    assert tree.written == 7 and ring.written == 5 and tree.window() == (1, 6) and tree.total == 5 * B


def test_memory_of_a_batch_that_is_not_used_is_given_once_more():
    memory = BatchMemory()
    memory.reuse(2)
    first, second = (memory.next(rows, 3) for _ in range(2))
    memory.repeat()
    assert memory.next(rows, 3) is second and memory.next(rows, 3) is first
    memory.next(rows, 2)
    memory.repeat()
    assert memory.next(rows, 3) is second  # The latest batch was another one.


def rows(n, new):
    return new((n,), np.float32)
