import copy
import gc
import multiprocessing as mp
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiers import full, processes, thinned

from rlpyt.replays.draws import Draw
from rlpyt.replays.n_step import BaseNStepReturnBuffer
from rlpyt.replays.non_sequence.prioritized import AsyncPrioritizedReplayBuffer, PrioritizedReplayBuffer
from rlpyt.replays.non_sequence.uniform import UniformReplayBuffer
from rlpyt.replays.prefetch import PrefetchedReplay
from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.collections import namedarraytuple

TIMEOUT = 30  # seconds, for what happens at once unless something is broken
Samples = namedarraytuple("Samples", ["observation", "action", "reward", "done"])
B = 2


class SlowBuffer(BaseNStepReturnBuffer):
    """Draws 0, 1, 2, ..., and gathers when it is allowed to; records what is called, and whether by the main thread."""

    color = "red"

    def __init__(self):
        self.calls, self.allowed, self.begun = [], threading.Event(), threading.Event()
        self.allowed.set()
        self.n_draws, self.torn, self.bad = 0, set(), set()

    def record(self, *call):
        self.calls.append((threading.current_thread() is threading.main_thread(), *call))

    def draw_batch(self, *size):
        self.record("draw", *size)
        self.n_draws += 1
        return Draw(where=size, oldest=0, ids=self.n_draws - 1)

    def gather_batch(self, draw):
        self.begun.set()
        assert self.allowed.wait(TIMEOUT)
        self.record("gather", draw.ids)
        if draw.ids in self.bad:
            raise OSError(f"bad {draw.ids}")
        return draw.ids

    def draw_is_intact(self, draw):
        return draw.ids not in self.torn

    def discard_batch(self):
        pass

    def append_samples(self, samples):
        self.record("append", samples)

    def update_batch_priorities(self, priorities, ids=None):
        self.record("update", priorities, ids)

    def set_beta(self, beta):
        self.record("beta", beta)


@pytest.fixture
def replay():
    replay = PrefetchedReplay(SlowBuffer(), 8)
    yield replay
    replay.buffer.allowed.set()
    replay.close()


def test_the_next_batch_is_drawn_when_one_is_handed_out_and_gathered_by_a_thread(replay):
    assert replay.sample_batch(8) == 0
    assert [call for call in replay.buffer.calls if call[1] == "draw"] == [(True, "draw", 8)] * 2
    assert replay.sample_batch(8) == 1
    assert replay.sample_batch(8) == 2
    replay.close()
    assert [call for call in replay.buffer.calls if call[1] == "draw"] == [(True, "draw", 8)] * 4
    assert [call for call in replay.buffer.calls if call[1] == "gather"] == [(i == 0, "gather", i) for i in range(4)]


def test_appending_waits_for_the_gathering_that_is_under_way(replay):
    assert [replay.sample_batch(8), replay.sample_batch(8)] == [0, 1]
    replay.append_samples("old")
    assert replay.buffer.calls[-2:] == [(False, "gather", 2), (True, "append", "old")]
    replay.buffer.begun.clear()
    replay.buffer.allowed.clear()
    assert replay.sample_batch(8) == 2
    assert replay.buffer.begun.wait(TIMEOUT)
    threading.Timer(0.1, replay.buffer.allowed.set).start()
    replay.append_samples("new")
    assert replay.buffer.calls[-2:] == [(False, "gather", 3), (True, "append", "new")]


def test_priorities_go_to_the_batch_that_was_handed_out_last(replay):
    for i in range(3):
        replay.sample_batch(8)
        replay.update_batch_priorities("p")
        assert (True, "update", "p", i) in replay.buffer.calls
    replay.update_batch_priorities("p", ids=77)
    assert (True, "update", "p", 77) in replay.buffer.calls


def test_a_batch_of_another_size_is_drawn_at_once_and_the_one_gathered_ahead_is_kept(replay):
    assert replay.sample_batch(8) == 0
    assert replay.sample_batch(5) == 2
    assert replay.buffer.calls[-2:] == [(True, "draw", 5), (True, "gather", 2)]
    replay.update_batch_priorities("p")
    assert replay.buffer.calls[-1] == (True, "update", "p", 2)
    assert replay.sample_batch(8, 3) == 3
    assert replay.sample_batch(8) == 1
    replay.update_batch_priorities("p")
    assert (True, "update", "p", 1) in replay.buffer.calls


def test_the_length_of_sequences_is_part_of_the_size():
    replay = PrefetchedReplay(SlowBuffer(), 8, batch_T=4)
    assert [replay.sample_batch(8), replay.sample_batch(8, 4), replay.sample_batch(8, 5), replay.sample_batch(8)] == [0, 1, 3, 2]
    replay.close()
    sizes = [call[2:] for call in replay.buffer.calls if call[1] == "draw"]
    assert sizes == [(8, 4), (8, 4), (8, 4), (8, 5), (8, 4)]


def test_a_batch_that_was_overwritten_is_drawn_again(replay):
    replay.buffer.torn = {1, 3}
    assert [replay.sample_batch(8) for _ in range(4)] == [0, 2, 4, 5]
    replay.update_batch_priorities("p")
    assert (True, "update", "p", 5) in replay.buffer.calls


def test_an_error_of_the_thread_is_raised_by_the_call_for_its_batch(replay):
    replay.buffer.bad = {1}
    assert replay.sample_batch(8) == 0
    replay.append_samples("new")
    assert replay.sample_batch(5) == 2
    with pytest.raises(OSError, match="bad 1"):
        replay.sample_batch(8)
    assert [replay.sample_batch(8), replay.sample_batch(8)] == [3, 4]


def test_it_has_the_attributes_of_the_buffer(replay):
    assert replay.color == "red"
    with pytest.raises(AttributeError, match="shape"):
        replay.shape  # noqa: B018


def n_threads():
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def test_the_thread_starts_with_the_first_batch_and_ends_with_close_or_with_the_last_reference():
    before = n_threads()
    replay = PrefetchedReplay(SlowBuffer(), 8)
    assert n_threads() == before
    replay.close()
    replay.sample_batch(8)
    assert n_threads() == before + 1
    replay.close()
    replay.close()
    assert n_threads() == before
    assert replay.sample_batch(8) == 1
    thread, buffer = replay._thread, weakref.ref(replay.buffer)
    del replay
    thread.join(TIMEOUT)
    gc.collect()
    assert n_threads() == before and buffer() is None


@full
@processes
def test_a_thread_in_the_middle_does_not_keep_the_interpreter_alive():
    script = """
        import threading
        from rlpyt.replays.draws import Draw
        from rlpyt.replays.n_step import BaseNStepReturnBuffer
        from rlpyt.replays.prefetch import PrefetchedReplay

        class Stuck(BaseNStepReturnBuffer):
            n_gathered = 0

            def __init__(self):
                pass

            def draw_batch(self, n):
                return Draw((n,))

            def gather_batch(self, draw):
                self.n_gathered += 1
                return draw.where[0] if self.n_gathered == 1 else threading.Event().wait()

        assert PrefetchedReplay(Stuck(), 3).sample_batch(3) == 3
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=TIMEOUT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ---------------------------------------------------------------------------------------------------------------------
# With real buffers
# ---------------------------------------------------------------------------------------------------------------------
def build(cls=PrioritizedReplayBuffer, n_rows=20):
    np.random.seed(0)
    example = Samples(observation=np.zeros(3, np.float32), action=0, reward=np.float32(0), done=False)
    buffer = cls(example=example, size=64, B=B, n_step_return=2, discount=0.9)
    buffer.append_samples(samples(0, n_rows))
    return buffer


def samples(first, n):
    i = np.arange(first, first + n)[:, None].repeat(B, axis=1)
    return Samples(observation=np.stack([i] * 3, -1).astype(np.float32), action=2 * i, reward=i.astype(np.float32), done=i % 7 == 6)


def assert_same(batch, expected):
    for x, y in zip(buffer_leaves(batch), buffer_leaves(expected), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0)


def train(replay, first, n, record):
    """Append, sample and update as algorithms do, from row `first` on."""
    rng = np.random.default_rng(first)
    for i in range(first, first + n):
        replay.append_samples(samples(3 * i, 3))
        for _ in range(2):
            batch = replay.sample_batch(8)
            record.append(copy.deepcopy(batch))
            if hasattr(replay, "priority_tree"):
                replay.update_batch_priorities(torch.from_numpy(rng.random(8)))
        if hasattr(replay, "priority_tree"):
            replay.set_beta(0.5 + 0.01 * i)


class OneAhead:
    """What prefetching amounts to, without a thread."""

    def __init__(self, buffer):
        self.buffer, self.next = buffer, None

    def sample_batch(self, n):
        draw, batch = self.next or (lambda draw: (draw, self.buffer.gather_batch(draw)))(self.buffer.draw_batch(n))
        self.drawn, draw = draw, self.buffer.draw_batch(n)
        self.next = draw, copy.deepcopy(self.buffer.gather_batch(draw))
        return batch

    def update_batch_priorities(self, priorities):
        self.buffer.update_batch_priorities(priorities, self.drawn.ids)

    def __getattr__(self, name):
        return getattr(self.buffer, name)


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize(
    "cls", thinned([UniformReplayBuffer, PrioritizedReplayBuffer, AsyncPrioritizedReplayBuffer], quick=[PrioritizedReplayBuffer])
)
def test_batches_do_not_depend_on_when_they_are_gathered(cls, reuse):
    record, expected = [], []
    replay = PrefetchedReplay(build(cls), 8)
    if reuse:
        replay.reuse_batches(2)
    train(replay, 7, 40, record)
    replay.close()
    train(OneAhead(build(cls)), 7, 40, expected)
    for batch, expected_batch in zip(record, expected, strict=True):
        assert_same(batch, expected_batch)


@pytest.mark.parametrize("cls", [UniformReplayBuffer, PrioritizedReplayBuffer])
def test_training_that_is_resumed_has_the_batches_of_training_that_is_not_stopped(cls):
    replay, expected, record = PrefetchedReplay(build(cls), 8), [], []
    train(replay, 7, 20, [])
    state = copy.deepcopy(replay.state_dict())
    train(replay, 27, 20, expected)
    other = PrefetchedReplay(build(cls), 8)
    other.sample_batch(8)
    if cls is PrioritizedReplayBuffer:
        other.set_beta(0.5 + 0.01 * 25)  # As it was when the next batch was gathered.
    other.load_state_dict(state)
    if cls is PrioritizedReplayBuffer:
        other.set_beta(0.5 + 0.01 * 26)
    train(other, 27, 20, record)
    for batch, expected_batch in zip(record, expected, strict=True):
        assert_same(batch, expected_batch)
    other.load_state_dict(build(cls).state_dict())
    assert other.ring.written == 20
    assert_same(other.sample_batch(8), build(cls).sample_batch(8))


def _sample_in_child(replay, answers):
    answers.put(SimpleNamespace(pid=os.getpid(), batches=[replay.sample_batch(8).action.tolist() for _ in range(2)]))
    replay.close()


@processes
@pytest.mark.parametrize("method, used", [("fork", False), ("fork", True), pytest.param("spawn", True, marks=full)])
def test_a_process_started_with_it_has_a_thread_of_its_own(method, used):
    ctx = mp.get_context(method)
    replay, answers = PrefetchedReplay(build(AsyncPrioritizedReplayBuffer), 8), ctx.Queue()
    if used:
        replay.sample_batch(8)
    process = ctx.Process(target=_sample_in_child, args=(replay, answers), daemon=True)
    process.start()
    answer = answers.get(timeout=TIMEOUT)
    process.join(TIMEOUT)
    assert process.exitcode == 0 and answer.pid != os.getpid()
    first = replay.sample_batch(8).action.tolist()
    assert not used or answer.batches[0] == first  # What had been drawn before is gathered by both.
    replay.close()


def test_a_buffer_that_samples_in_a_way_of_its_own_is_refused():
    class Mine(UniformReplayBuffer):
        def sample_batch(self, batch_B):
            return super().sample_batch(batch_B)

    class Own:
        def sample_batch(self, batch_B):
            return batch_B

    for buffer in (Own(), build(Mine)):
        with pytest.raises(ValueError, match="cannot be prefetched, because it defines sample_batch"):
            PrefetchedReplay(buffer, 4)


def test_updates_with_the_documented_one_argument_reach_the_batch_that_was_handed_out():
    class Mine(PrioritizedReplayBuffer):
        def update_batch_priorities(self, priorities):
            super().update_batch_priorities(priorities)

    replay = PrefetchedReplay(build(Mine), 4)
    for i in range(3):
        ids = replay.sample_batch(4).ids.clone()
        replay.update_batch_priorities(torch.full((4,), 50.0 + i))
        tree = replay.buffer.priority_tree
        rows, envs = np.divmod(ids.numpy(), B)
        assert tree.priorities[rows % tree.T, envs] == pytest.approx((50.0 + i) ** 0.6)
    replay.close()
