"""Processes that write and read one buffer at once. As a script, for longer: ``python tests/replays/test_async.py SECONDS``."""

import multiprocessing as mp
import os
import queue
import random
import signal
import sys
import threading
import time
import traceback
from types import SimpleNamespace

import numpy as np
import pytest
from tiers import processes, start_methods, thinned

from rlpyt.replays.non_sequence import frame, prioritized, time_limit, uniform
from rlpyt.replays.sequence import frame as sequence_frame
from rlpyt.replays.sequence import prioritized as sequence_prioritized
from rlpyt.replays.sequence import uniform as sequence_uniform
from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.collections import namedarraytuple

TIMEOUT = 60  # seconds, for what takes a few
B, N_STEP, DISCOUNT, N_FRAMES, BATCH_T = 3, 2, 0.5, 4, 3
CLASSES = {
    cls.__name__: cls
    for cls in (
        uniform.AsyncUniformReplayBuffer,
        prioritized.AsyncPrioritizedReplayBuffer,
        frame.AsyncUniformReplayFrameBuffer,
        frame.AsyncPrioritizedReplayFrameBuffer,
        time_limit.AsyncTlUniformReplayBuffer,
        time_limit.AsyncTlPrioritizedReplayBuffer,
        sequence_uniform.AsyncUniformSequenceReplayBuffer,
        sequence_prioritized.AsyncPrioritizedSequenceReplayBuffer,
        sequence_frame.AsyncUniformSequenceReplayFrameBuffer,
        sequence_frame.AsyncPrioritizedSequenceReplayFrameBuffer,
    )
}
QUICK = ["AsyncUniformReplayBuffer", "AsyncTlPrioritizedReplayBuffer", "AsyncPrioritizedReplayFrameBuffer"]
QUICK += ["AsyncPrioritizedSequenceReplayFrameBuffer"]
every_class = pytest.mark.parametrize("name", thinned(CLASSES, quick=QUICK))
Samples = namedarraytuple(
    "Samples", ["observation", "action", "reward", "done", "timeout", "final_observation", "prev_rnn_state"], defaults=(None,)
)


# ---------------------------------------------------------------------------------------------------------------------
# Everything about a step is a function of its number i and its environment b (arrays of any one shape)
# ---------------------------------------------------------------------------------------------------------------------
def action_of(i, b):
    return 7 * i + b


def reward_of(i, b):
    return (i + 100.0 * b) * np.ones(np.shape(b))


def done_of(i, b):
    return (i + 2 * b) % 5 == 4


def timeout_of(i, b):
    return done_of(i, b) & ((i + 2 * b) // 5 % 3 == 0)


def frame_of(i, b):
    """One byte, never 0."""
    return ((3 * i + b) % 255 + 1).astype(np.uint8)


def observation_of(i, b, frames, final=False):
    """Observations [...,2] of numbers, or [...,N_FRAMES,2,2]; or those that end the episodes."""
    if not frames:
        return np.stack([-i - 1 if final else i, b], axis=-1)
    newest = np.zeros((*np.shape(i), N_FRAMES), np.uint8)
    begun = np.zeros(np.shape(i), bool)  # The episode, later than the frame.
    for age in range(N_FRAMES):
        # The observation that ends an episode has a frame of its own, which follows that of row i.
        values = frame_of(i - age + final, b) if age or not final else 255 - frame_of(i, b)
        newest[..., N_FRAMES - 1 - age] = np.where(begun, 0, values)
        row_before = i - age - 1 + final
        begun = begun | ((age >= final) & (done_of(row_before, b) | (row_before < 0)))
    return newest[..., None, None].repeat(2, axis=-2).repeat(2, axis=-1)


def rnn_state_of(i, b):
    return np.stack([i, -b], axis=-1)


def samples_of(first, n, frames):
    """Samples [n,B] from number `first` on."""
    i, b = np.mgrid[first : first + n, :B]
    timeout = timeout_of(i, b)
    final_observation = None
    if timeout.any():
        ends = observation_of(i, b, frames, final=True)
        final_observation = np.zeros((n, *ends.shape[1:]), ends.dtype)
        for t, env in zip(*np.nonzero(timeout)):
            final_observation[timeout[:t, env].sum(), env] = ends[t, env]
    return Samples(
        observation=observation_of(i, b, frames),
        action=action_of(i, b),
        reward=reward_of(i, b),
        done=done_of(i, b),
        timeout=timeout,
        final_observation=final_observation,
        prev_rnn_state=rnn_state_of(i, b),
    )


def null_after_done(values, i, b):
    return np.where(done_of(i - 1, b), 0, values)


def window_of(i, b):
    """The n-step return from each step on, how many steps it has, and whether it ended with an episode, or a truncated one."""
    return_, n_steps, going = np.zeros(np.shape(i)), np.zeros(np.shape(i), int), np.ones(np.shape(i), bool)
    for k in range(N_STEP):
        return_ += going * DISCOUNT**k * reward_of(i + k, b)
        n_steps += going
        going &= ~done_of(i + k, b)
    return SimpleNamespace(return_=return_, n_steps=n_steps, done=~going, timeout=~going & timeout_of(i + n_steps - 1, b))


def assert_equal(found, expected, name):
    found = np.asarray(found)
    assert found.shape == expected.shape and (found == expected).all(), f"{name}: {found.tolist()} is not {expected.tolist()}"


def check_transitions(batch, frames):
    """Check all of a batch against the number of each of its steps, which are returned with their environments."""
    i, b = np.divmod(batch.action.numpy(), 7)
    window = window_of(i, b)
    assert_equal(batch.agent_inputs.observation, observation_of(i, b, frames), "observation")
    assert_equal(batch.agent_inputs.prev_action, null_after_done(action_of(i - 1, b), i, b), "prev_action")
    assert_equal(batch.agent_inputs.prev_reward, null_after_done(reward_of(i - 1, b), i, b), "prev_reward")
    assert_equal(batch.done, done_of(i, b), "done")
    assert_equal(batch.return_, window.return_, "return_")
    assert_equal(batch.done_n, window.done, "done_n")
    if "timeout" in batch._fields:
        assert_equal(batch.timeout, timeout_of(i, b), "timeout")
        assert_equal(batch.timeout_n, window.timeout, "timeout_n")
    else:
        terminated = window.done & ~window.timeout
        assert_equal(batch.bootstrap_discount, np.where(terminated, 0, DISCOUNT**window.n_steps), "bootstrap_discount")
    end = i + window.n_steps
    for which, final in ((~window.done, False), (window.timeout, True)):
        target = batch.target_inputs[np.flatnonzero(which)]
        row, env = (end - final)[which], b[which]
        assert_equal(target.observation, observation_of(row, env, frames, final), f"target observation, final={final}")
        assert_equal(target.prev_action, action_of(end[which] - 1, env), "target prev_action")
        assert_equal(target.prev_reward, reward_of(end[which] - 1, env), "target prev_reward")
    return i, b


def check_sequences(batch, frames):
    """Check all of a batch against the number of the step with which each sequence starts; return these and the environments."""
    before, b = np.divmod(batch.all_action[0].numpy(), 7)
    start = before + 1
    i = start + np.arange(BATCH_T + N_STEP)[:, None]
    b_all = np.broadcast_to(b, i.shape)
    window = window_of(i[:BATCH_T], b_all[:BATCH_T])
    assert_equal(batch.all_observation, observation_of(i, b_all, frames), "all_observation")
    assert_equal(batch.all_action, action_of(i - 1, b_all), "all_action")
    assert_equal(batch.all_reward, reward_of(i - 1, b_all), "all_reward")
    assert_equal(batch.all_prev_action, null_after_done(action_of(i - 1, b_all), i, b_all), "all_prev_action")
    assert_equal(batch.all_prev_reward, null_after_done(reward_of(i - 1, b_all), i, b_all), "all_prev_reward")
    assert_equal(batch.return_, window.return_, "return_")
    assert_equal(batch.done, done_of(i, b_all)[:BATCH_T], "done")
    assert_equal(batch.done_n, window.done, "done_n")
    assert_equal(batch.valid, ~window.timeout, "valid")
    assert_equal(batch.init_rnn_state, rnn_state_of(start, b), "init_rnn_state")
    return start, b


# ---------------------------------------------------------------------------------------------------------------------
# The buffer
# ---------------------------------------------------------------------------------------------------------------------
class Numbered:
    """Appends steps from the number on that comes next, and takes its time, so that others come in between.

    Has a place between the mixin and the buffer proper, where it runs under the mixin's locks.
    """

    pause = 0.0  # At most so many seconds.
    killed_in = None  # Name of the method in which a writer is killed.

    @property
    def frames(self):
        return "Frame" in type(self).__name__

    def append_samples(self, n):
        super().append_samples(samples_of(self.ring.written, n, self.frames))

    def _write(self, samples, n):
        if self.killed_in in ("_write", "_publish"):
            for leaf in buffer_leaves(samples):
                leaf.flat[: leaf.size // 2 + 1] = 1  # Nobody may ever read this.
        super()._write(samples, n)
        self._maybe_die("_write")
        time.sleep(self.pause * random.random())

    def _publish(self, n, samples):
        self._maybe_die("_publish")  # While it holds both locks.
        if self.killed_in == "ring.advance":
            self.ring.advance = lambda n: self._maybe_die("ring.advance")
        super()._publish(n, samples)

    def _maybe_die(self, where):
        if self.killed_in == where:
            os.kill(os.getpid(), signal.SIGKILL)

    def extract_batch(self, *args):
        time.sleep(self.pause * random.random())
        return super().extract_batch(*args)


def numbered(cls):
    """Derive from a declared class so that `Numbered` follows the mixin in the order of its bases."""
    proper = type(cls.__name__ + "Proper", (Numbered, cls.__bases__[1]), {})
    return type("Numbered" + cls.__name__, (cls, proper), {"__module__": __name__})


for cls in CLASSES.values():
    globals()["Numbered" + cls.__name__] = numbered(cls)  # Where a starting process finds it.


def is_sequence(cls):
    return "Sequence" in cls.__name__


def build(name, T=24):
    cls = globals()["Numbered" + name]
    example = samples_of(0, 1, "Frame" in name)[0, 0]._replace(final_observation=None)
    kwargs = dict(example=example, size=T * B, B=B, discount=DISCOUNT, n_step_return=N_STEP)
    if is_sequence(cls):
        kwargs |= dict(rnn_state_interval=2, batch_T=BATCH_T)
    else:
        kwargs["example"] = example._replace(prev_rnn_state=None)
    buffer = cls(**kwargs)
    for _ in range(8):
        buffer.append_samples(5)
    return buffer


def check_sample(buffer, batch_B=16):
    """Draw a batch and check everything in it, and that it was valid at some time meanwhile."""
    claimed = buffer.ring.claimed
    batch = buffer.sample_batch(batch_B)
    written = buffer.ring.written
    i, b = (check_sequences if is_sequence(type(buffer)) else check_transitions)(batch, buffer.frames)
    length = BATCH_T - 1 if is_sequence(type(buffer)) else 0
    assert i.min() >= max(claimed - buffer.T, 0) + buffer.off_forward, "stale"
    assert i.max() < written - N_STEP - length, "too new"
    if "ids" in batch._fields:
        assert_equal(batch.ids, i // buffer.start_interval * B + b, "ids")
        buffer.update_batch_priorities(np.random.rand(batch_B))


def _append(buffer, seed, until, stop):
    rng = random.Random(seed)
    n = 0
    while (n == 0 or time.monotonic() < until) and not stop.value:
        buffer.append_samples(rng.randint(1, 5))
        n += 1
    return n, 0


def _sample(buffer, seed, until, stop):
    np.random.seed(seed)
    random.seed(seed)
    n_torn = 0
    is_intact = buffer.draw_is_intact

    def count_torn(draw):
        nonlocal n_torn
        intact = is_intact(draw)
        n_torn += not intact
        return intact

    buffer.draw_is_intact = count_torn
    n = 0
    while (n == 0 or time.monotonic() < until) and not stop.value:
        check_sample(buffer)
        n += 1
    return n, n_torn


def _run(function, buffer, seed, until, stop, answers):
    try:
        answers.put((function.__name__, *function(buffer, seed, until, stop)))
    except BaseException:
        stop.value = True
        answers.put(traceback.format_exc())


def exercise(buffer, seconds, method="fork"):
    """Write with two processes and read with two, at least once each.

    Returns:
        [(what, how often, how many batches were torn and drawn again)].
    """
    ctx = mp.get_context(method)
    answers, stop = ctx.Queue(), ctx.Value("b", False, lock=False)
    until = time.monotonic() + seconds
    processes = [
        ctx.Process(target=_run, args=(function, buffer, seed, until, stop, answers), daemon=True)
        for seed, function in enumerate([_append, _append, _sample, _sample])
    ]
    for process in processes:
        process.start()
    try:
        results = [answers.get(timeout=seconds + TIMEOUT) for _ in processes]
    except queue.Empty:
        raise AssertionError("Processes wait for each other for ever.") from None
    finally:
        stop.value = True
        for process in processes:
            process.join(5)
            process.kill()
            process.join()
    errors = [result for result in results if isinstance(result, str)]
    assert not errors, errors[0]
    return results


@processes
@every_class
def test_nothing_torn_or_stale_is_read_while_others_write(name):
    buffer = build(name)
    buffer.pause = 2e-3
    results = exercise(buffer, seconds=0.7)
    assert all(n > 0 for _, n, _ in results)
    written = buffer.ring.written
    check_sample(buffer)
    buffer.append_samples(3)
    assert buffer.ring.written == buffer.ring.claimed == written + 3


def test_a_reader_waits_for_a_writer_that_overwrites_all_that_could_be_drawn():
    """A batch of the sampler may be nearly as long as the memory."""
    buffer, claimed, may_write = build("AsyncUniformReplayBuffer"), threading.Event(), threading.Event()
    write, n = buffer._write, buffer.T - 1

    def slow_write(samples, n):
        claimed.set()
        assert may_write.wait(TIMEOUT)
        write(samples, n)

    buffer._write = slow_write
    writer = threading.Thread(target=buffer.append_samples, args=(n,), daemon=True)
    writer.start()
    assert claimed.wait(TIMEOUT)
    with pytest.raises(ValueError, match="Nothing to replay yet"):
        buffer.draw_batch(4)
    threading.Timer(0.2, may_write.set).start()
    check_sample(buffer)
    writer.join(TIMEOUT)
    assert not writer.is_alive()


def _append_once(buffer, n):
    buffer.append_samples(n)


@processes
@pytest.mark.parametrize("killed_in", ["_write", "_publish"])
@every_class
def test_a_writer_killed_in_an_append_blocks_nobody_and_what_it_wrote_is_never_read(name, killed_in):
    buffer = build(name)
    for n_lost, n_next in [(5, 1), (2, 4)]:
        written = buffer.ring.written
        buffer.killed_in = killed_in
        writer = mp.Process(target=_append_once, args=(buffer, n_lost), daemon=True)
        writer.start()
        writer.join(TIMEOUT)
        assert writer.exitcode == -signal.SIGKILL
        buffer.killed_in = None
        check_sample(buffer, 100)
        for _ in range(3):
            buffer.append_samples(n_next)
            check_sample(buffer, 100)
        assert buffer.ring.written == written + 3 * n_next


def _check_and_append(buffers, answers):
    try:
        for buffer in buffers:
            check_sample(buffer)
            buffer.append_samples(4)
            check_sample(buffer)
        answers.put("good")
    except BaseException:
        answers.put(traceback.format_exc())


@processes
@every_class
def test_a_writer_killed_when_the_tree_has_rows_that_are_not_published_yet_leaves_only_valid_ones(name):
    buffer = build(name)
    for n_lost in (3, 4):
        written = buffer.ring.written
        buffer.killed_in = "ring.advance"
        writer = mp.Process(target=_append_once, args=(buffer, n_lost), daemon=True)
        writer.start()
        writer.join(TIMEOUT)
        assert writer.exitcode == -signal.SIGKILL
        buffer.killed_in = None
        for _ in range(6):
            buffer.append_samples(3)
            check_sample(buffer, 100)
            if hasattr(buffer, "priority_tree"):
                tree = buffer.priority_tree
                on = [number % tree.T for number in range(*tree.window())]
                assert tree.priorities[on].all() and not np.delete(tree.priorities, on, axis=0).any()
        assert buffer.ring.written == written + 18


@pytest.mark.parametrize("method", start_methods("spawn", "forkserver"))
def test_buffers_can_be_arguments_of_a_starting_process(method):
    ctx = mp.get_context(method)
    names = ("AsyncPrioritizedReplayFrameBuffer", "AsyncTlUniformReplayBuffer", "AsyncUniformSequenceReplayBuffer")
    buffers, answers = [build(name) for name in names], ctx.Queue()
    written = buffers[0].ring.written
    process = ctx.Process(target=_check_and_append, args=(buffers, answers), daemon=True)
    process.start()
    assert answers.get(timeout=TIMEOUT) == "good"
    process.join(TIMEOUT)
    assert process.exitcode == 0
    for buffer in buffers:
        assert buffer.ring.written == written + 4
        check_sample(buffer)


if __name__ == "__main__":
    for name in CLASSES:
        buffer = build(name)
        for buffer.pause in (0.0, 2e-3):
            seconds = float(sys.argv[1]) / (2 * len(CLASSES))
            print(f"{name}, pauses of up to {buffer.pause} s: (what, how often, batches drawn again)", exercise(buffer, seconds))
