"""What replay buffers do with wrong input, copies, classes derived from them, and states of other buffers."""

import copy
import gc
import multiprocessing as mp
import os
import pickle
import signal
import time

import numpy as np
import psutil
import pytest
import torch
from tiers import processes

from rlpyt.replays.non_sequence import frame, prioritized, time_limit, uniform
from rlpyt.replays.sequence import frame as sequence_frame
from rlpyt.replays.sequence import prioritized as sequence_prioritized
from rlpyt.replays.sequence import uniform as sequence_uniform
from rlpyt.utils.collections import namedarraytuple

TIMEOUT = 30  # seconds, for what takes one
B, C, H, W = 2, 3, 4, 5
CLASSES = (
    uniform.UniformReplayBuffer,
    prioritized.PrioritizedReplayBuffer,
    time_limit.TlUniformReplayBuffer,
    frame.UniformReplayFrameBuffer,
    frame.PrioritizedReplayFrameBuffer,
    sequence_uniform.UniformSequenceReplayBuffer,
    sequence_prioritized.PrioritizedSequenceReplayBuffer,
    sequence_frame.PrioritizedSequenceReplayFrameBuffer,
)
FIELDS = ["observation", "action", "reward", "done", "timeout", "final_observation", "prev_rnn_state", "valid", "priorities"]
Samples = namedarraytuple("Samples", FIELDS, defaults=(None,) * 5)


def is_sequence(cls):
    return "Sequence" in cls.__name__


def samples(cls, n, first=0, **fields):
    """Steps [n,B] whose every number tells their own."""
    number = np.arange(first, first + n)[:, None] * 10 + np.arange(B)
    observation = np.stack([number, number], -1).astype(np.float32)
    if "Frame" in cls.__name__:
        ages = np.arange(C - 1, -1, -1)
        frames = np.maximum(number[:, :, None] - 10 * ages, 0) * (np.arange(first, first + n)[:, None, None] >= ages)
        observation = np.broadcast_to(frames[..., None, None], (n, B, C, H, W)).astype(np.uint8)
    s = Samples(
        observation=np.ascontiguousarray(observation),
        action=number,
        reward=number.astype(np.float32),
        done=np.zeros((n, B), np.bool_),
        timeout=np.zeros((n, B), np.bool_),
        prev_rnn_state=observation.reshape(n, B, -1)[..., :1].astype(np.float32) if is_sequence(cls) else None,
    )
    return s._replace(**fields)


def make(cls, T=20, **kwargs):
    example = samples(cls, 1)[0, 0]
    if is_sequence(cls):
        kwargs = dict(dict(rnn_state_interval=2, batch_T=3), **kwargs)
    return cls(example=example, size=T * B, B=B, **kwargs)


def filled(cls, n=14, **kwargs):
    buffer = make(cls, **kwargs)
    buffer.append_samples(samples(cls, n))
    return buffer


def arrays_of(buffer):
    return [leaf.copy() for _, leaf in buffer.storage.named_arrays()] + [buffer.ring.written, buffer.ring.claimed]


def same(before, after):
    return all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("method", [copy.deepcopy, lambda buffer: pickle.loads(pickle.dumps(buffer))])
def test_a_copy_goes_on_by_itself(cls, method):
    buffer = filled(cls)
    duplicate = method(buffer)
    before = arrays_of(buffer)
    duplicate.append_samples(samples(cls, 4, first=14))
    assert same(before, arrays_of(buffer))
    buffer.append_samples(samples(cls, 4, first=14))
    assert same(arrays_of(buffer), arrays_of(duplicate))
    T_idxs, length = np.array([14, 12]), (3,) * is_sequence(cls)
    for one in (buffer, duplicate):
        batch = one.extract_batch(T_idxs, np.array([1, 0]), *length)
        assert (batch.all_action[1] if is_sequence(cls) else batch.action).tolist() == [141, 120]
    assert torch.equal(*(one.sample_batch(6).get(1).reshape(-1) for one in (buffer, duplicate)))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(
    "field,wrong,message",
    [
        ("observation", lambda x: x[:, :, :1], r"'observation' of samples must have shape \(5, 2, .* got"),
        ("observation", lambda x: np.concatenate([x, x], axis=2), r"'observation' of samples must have shape"),
        ("action", lambda x: x[:, :1], r"'action' of samples must have shape \(5, 2\).*got \(5, 1\)"),
        ("action", lambda x: x + 0.5, "'action' of samples must be int64.*got float64"),
        ("done", lambda x: x[:2], "'done' of samples must have shape"),
        ("reward", lambda x: x[:, 0], r"'reward' of samples must have shape \(5, 2\).*got \(5,\)"),
        ("timeout", lambda x: None, "Samples lack 'timeout'"),
    ],
)
def test_samples_of_another_shape_or_kind_are_refused_before_anything_is_written(cls, field, wrong, message):
    buffer, s = filled(cls), samples(cls, 5, first=14)
    before = arrays_of(buffer)
    with pytest.raises(ValueError, match=message):
        buffer.append_samples(s._replace(**{field: wrong(getattr(s, field))}))
    assert same(before, arrays_of(buffer))


def test_a_class_that_names_nothing_that_draws_says_what_to_do():
    buffer = filled(uniform.NStepReturnBuffer)
    with pytest.raises(NotImplementedError, match="put UniformReplay or the like in front of the buffer, or define sample_batch"):
        buffer.sample_batch(2)
    assert "rng" not in buffer.state_dict()


def test_a_missing_recurrent_state_is_refused_before_anything_is_written():
    cls = sequence_uniform.UniformSequenceReplayBuffer
    buffer = filled(cls)
    with pytest.raises(ValueError, match="Samples lack 'prev_rnn_state'"):
        buffer.append_samples(samples(cls, 5, first=14, prev_rnn_state=None))
    assert buffer.ring.claimed == 14
    assert filled(cls, rnn_state_interval=-1).sample_batch(2).init_rnn_state is None


@pytest.mark.parametrize("wrong", [np.nan, -1.0])
@pytest.mark.parametrize("alpha", [0, 0.6, 2])
def test_impossible_priorities_are_refused_before_anything_is_written(wrong, alpha):
    cls = prioritized.PrioritizedReplayBuffer
    buffer = filled(cls, input_priorities=True, alpha=alpha)
    before = arrays_of(buffer)
    priorities = np.ones((5, B))
    priorities[3, 1] = wrong
    with pytest.raises(ValueError, match=f"A priority is {wrong}"):
        buffer.append_samples(samples(cls, 5, first=14, priorities=priorities))
    with pytest.raises(ValueError, match=r"\(5, 2\)"):
        buffer.append_samples(samples(cls, 5, first=14, priorities=np.ones((4, B))))
    assert same(before, arrays_of(buffer)) and buffer.priority_tree.written == 14
    buffer.sample_batch(3)
    with pytest.raises(ValueError, match=f"A priority is {wrong}"):
        buffer.update_batch_priorities(torch.tensor([1.0, wrong, 2.0]))
    buffer.update_batch_priorities(torch.ones(3, dtype=torch.bfloat16))


@pytest.mark.parametrize("cls", CLASSES)
def test_indexes_that_are_none_are_refused(cls):
    buffer, length = filled(cls), (3,) * is_sequence(cls)
    for T_idxs, B_idxs in ([10**9], [0]), ([-1], [0]), ([20], [0]), ([2], [2]), ([2], [10**9]), ([2, 4], [1]):
        with pytest.raises(IndexError, match="from 0 to 19 and from 0 to 1"):
            buffer.extract_batch(np.array(T_idxs), np.array(B_idxs), *length)
        if "Frame" in cls.__name__:
            with pytest.raises(IndexError):
                buffer.extract_observation(np.array(T_idxs), np.array(B_idxs), *length)
    assert buffer.extract_batch(torch.tensor([4]), [1], *length) is not None


@pytest.mark.parametrize("cls", CLASSES)
def test_what_an_extract_observation_of_ones_own_returns_is_what_batches_hold(cls):
    class Mine(cls):
        def extract_observation(self, *args):
            return super().extract_observation(*args)[..., :1].astype(np.float64) / 255

    Mine.__name__ = f"Mine{cls.__name__}"
    expected, got = (filled(c).extract_batch(np.array([6, 8]), np.array([0, 1]), *(3,) * is_sequence(cls)) for c in (cls, Mine))
    pairs = [(e.all_observation, g.all_observation) for e, g in [(expected, got)] if is_sequence(cls)] or [
        (expected.agent_inputs.observation, got.agent_inputs.observation),
        (expected.target_inputs.observation, got.target_inputs.observation),
    ]
    for e, g in pairs:
        assert g.dtype == torch.float64 and torch.equal(g, e[..., :1].double() / 255) and g.max() > 0


def test_the_tree_may_be_sampled_and_updated_by_a_class_of_ones_own_as_documented():
    class Mine(prioritized.PrioritizedReplayBuffer):
        def sample_batch(self, batch_B):
            (T_idxs, B_idxs), priorities = self.priority_tree.sample(batch_B, unique=self.unique)
            batch = self.extract_batch(T_idxs, B_idxs)
            return prioritized.SamplesFromReplayPri(*batch, is_weights=torch.from_numpy(priorities))

    buffer = filled(Mine)
    batch = buffer.sample_batch(4)
    buffer.update_batch_priorities(torch.full((4,), 7.0))
    rows, envs = np.divmod(batch.action.numpy(), 10)
    assert buffer.priority_tree.priorities[rows, envs] == pytest.approx(7**0.6)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(cls):
    buffer = filled(cls)
    before = arrays_of(buffer)
    others = [filled(cls, n_step_return=2), filled(cls, T=30)]
    if is_sequence(cls):
        others += [filled(cls, rnn_state_interval=4), filled(cls, rnn_state_interval=0)]
    if hasattr(buffer, "priority_tree"):
        others += [filled(cls, alpha=0.5), filled(cls, input_priorities=True)]
        others += [filled(cls, batch_T=5)] if is_sequence(cls) else []
    other_kind = [c for c in CLASSES if c is not cls and is_sequence(c) == is_sequence(cls)]
    others += [filled(c) for c in other_kind if hasattr(filled(c), "priority_tree") != hasattr(buffer, "priority_tree")][:1]
    for other in others:
        with pytest.raises(ValueError, match="saved"):
            buffer.load_state_dict(other.state_dict())
        assert same(before, arrays_of(buffer))


def test_returns_of_whole_rewards_are_not_cut_off():
    example = Samples(np.float32(0), np.int64(0), np.int32(0), np.bool_(False))
    buffer = uniform.UniformReplayBuffer(example, size=20, B=1, discount=0.9, n_step_return=3)
    steps = np.arange(8).reshape(8, 1)
    buffer.append_samples(Samples(steps.astype(np.float32), steps, (2 * steps).astype(np.int32), steps < 0))
    assert buffer.extract_batch(np.array([2]), np.array([0])).return_.item() == pytest.approx(4 + 0.9 * 6 + 0.81 * 8)


def test_a_single_valid_step_among_blank_rows_is_found():
    cls = uniform.UniformReplayBuffer
    buffer = make(cls, T=4000)
    buffer = cls(example=samples(cls, 1, valid=np.ones((1, B), bool))[0, 0], size=4000 * B, B=B)
    valid = np.zeros((4000, B))
    valid[1234, 1] = 1
    buffer.append_samples(samples(cls, 4000, valid=valid))
    assert set(buffer.sample_batch(10).action.tolist()) == {12341}
    buffer.samples.valid[:] = False
    with pytest.raises(ValueError, match="all stored rows are blank"):
        buffer.sample_batch(10)


def test_a_dropped_buffer_frees_its_memory_at_once():
    gc.disable()
    try:
        for cls in (uniform.UniformReplayBuffer, prioritized.AsyncPrioritizedReplayBuffer):
            filled(cls, T=200).sample_batch(3)
            n_fds = psutil.Process().num_fds()
            for _ in range(3):
                buffer = filled(cls, T=200)
                buffer.sample_batch(3)
                del buffer
            assert psutil.Process().num_fds() == n_fds
    finally:
        gc.enable()


# ---------------------------------------------------------------------------------------------------------------------
# Several processes
# ---------------------------------------------------------------------------------------------------------------------
class DiesInTheTree(prioritized.AsyncPrioritizedReplayBuffer):
    """Is killed inside the tree, at the n-th change of its rows."""

    def die_at(self, n):
        set_rows, changes = self.priority_tree._set_rows, []

        def set_rows_or_die(low, high, values):
            changes.append(1)
            if len(changes) == n:
                for _, rows in self.priority_tree.rows.pieces(low, high):
                    self.priority_tree.priorities[rows] = 5  # Leaves without their sums.
                os.kill(os.getpid(), signal.SIGKILL)
            set_rows(low, high, values)

        self.priority_tree._set_rows = set_rows_or_die


def _append_and_die(buffer, n):
    buffer.die_at(n)
    buffer.append_samples(samples(type(buffer), 5, first=buffer.written))


@processes
@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_tree_whose_writer_was_killed_in_it_is_set_right_by_the_next_process(n):
    buffer = make(DiesInTheTree)
    for _ in range(5):
        buffer.append_samples(samples(DiesInTheTree, 5, first=buffer.written))
    process = mp.Process(target=_append_and_die, args=(buffer, n), daemon=True)
    process.start()
    process.join(TIMEOUT)
    assert process.exitcode == -signal.SIGKILL
    for _ in range(6):
        batch = buffer.sample_batch(50)
        tree = buffer.priority_tree
        first, end = tree.window()
        numbers = batch.ids.numpy() // B
        assert (first <= numbers).all() and (numbers < end).all()
        on = [i % buffer.T for i in range(first, end)]
        assert not np.delete(tree.priorities, on, axis=0).any()
        assert tree.total == pytest.approx(tree.priorities.sum(), rel=1e-12)
        buffer.append_samples(samples(DiesInTheTree, 3, first=buffer.written))
        assert torch.equal(batch.return_.long(), batch.action)


def _append_for_ever(buffer):
    while True:
        buffer.append_samples(samples(type(buffer), 3, first=buffer.written))


@processes
def test_states_saved_while_another_process_writes_are_whole():
    cls = prioritized.AsyncPrioritizedReplayBuffer
    buffer = filled(cls)
    process = mp.Process(target=_append_for_ever, args=(buffer,), daemon=True)
    process.start()
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            state = buffer.state_dict()
            duplicate = make(prioritized.PrioritizedReplayBuffer)
            duplicate.load_state_dict(state)
            assert state["priority_tree"]["written"] == state["written"]
            batch = duplicate.sample_batch(20)
            assert torch.equal(batch.action, 10 * (batch.ids // B) + batch.ids % B)
            assert torch.equal(batch.agent_inputs.prev_action, batch.action - 10)
    finally:
        process.kill()
        process.join(TIMEOUT)
