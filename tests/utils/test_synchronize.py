import copy
import gc
import multiprocessing as mp
import os
import pickle
import queue
import signal
import socket
import threading
from multiprocessing import resource_tracker

import numpy as np
import pytest
from tiers import processes, start_methods

from rlpyt.utils.buffer import np_mp_array
from rlpyt.utils.synchronize import ExclusiveRWLock, ProcessLock, RWLock, drain_queue, find_port

TIMEOUT = 30  # seconds, for what happens at once unless something is broken
METHODS = ["fork", "spawn", "forkserver"]


def is_locked(lock):
    if lock.acquire(block=False):
        lock.release()
        return False
    return True


def test_readers_share_and_the_last_one_lets_the_writer_in():
    lock = RWLock()
    with lock:
        with lock:
            assert is_locked(lock.write_lock)
        assert is_locked(lock.write_lock)
    assert not is_locked(lock.write_lock)
    with lock.write_lock:
        assert is_locked(lock.write_lock)


def _read(lock, entered):
    with lock:
        entered.set()


@pytest.mark.parametrize("method", start_methods("fork", "spawn"))
def test_a_writer_keeps_readers_of_other_processes_out(method):
    ctx = mp.get_context(method)
    lock, entered = RWLock(ctx), ctx.Event()
    lock.acquire_write()
    reader = ctx.Process(target=_read, args=(lock, entered))
    reader.start()
    assert not entered.wait(0.2)
    lock.release_write()
    assert entered.wait(TIMEOUT)
    reader.join(TIMEOUT)
    assert reader.exitcode == 0


def _release(lock):
    lock.release_read()
    lock.acquire_write()


@processes
def test_another_process_may_release_what_this_one_acquired():
    lock = RWLock()
    lock.acquire_read()
    other = mp.Process(target=_release, args=(lock,))
    other.start()
    other.join(TIMEOUT)
    assert other.exitcode == 0 and is_locked(lock.write_lock)
    lock.release_write()
    with lock:
        pass


def test_releasing_what_nobody_holds_is_an_error():
    with pytest.raises(ValueError, match="nobody is reading"):
        RWLock().release_read()


def _increment(lock, value, n):
    for _ in range(n):
        with lock.write_lock:
            value.value += 1
        with lock:
            pass


@processes
def test_writers_exclude_each_other():
    lock, value = RWLock(), mp.RawValue("l", 0)
    writers = [mp.Process(target=_increment, args=(lock, value, 300)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(TIMEOUT)
    assert value.value == 900


def is_taken(lock):
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


def start(ctx, target, *args):
    process = ctx.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def finish(*processes):
    """Wait for processes, and end those that do not."""
    for process in processes:
        process.join(TIMEOUT)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    assert codes == [0] * len(processes)


def in_threads(n, function, *args):
    """Run `function` in `n` threads and return whether all have ended."""
    threads = [threading.Thread(target=function, args=args, daemon=True) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    return not any(thread.is_alive() for thread in threads)


def _count(lock, counts, n):
    for _ in range(n):
        with lock:
            count = int(counts[0])
            counts[1] = os.getpid()
            counts[0] = count + 1
            assert counts[1] == os.getpid()


def _count_in_threads(lock, counts, n):
    assert in_threads(3, _count, lock, counts, n)


@pytest.mark.parametrize("method", start_methods(*METHODS))
def test_threads_of_several_processes_exclude_each_other(method):
    ctx = mp.get_context(method)
    lock, counts = ProcessLock(), np_mp_array(2, np.int64)
    processes = [start(ctx, _count_in_threads, lock, counts, 500) for _ in range(3)]
    _count_in_threads(lock, counts, 500)
    finish(*processes)
    assert counts[0] == 4 * 3 * 500
    assert not is_taken(lock)


def _hold(lock, holds):
    with lock:
        holds.set()
        signal.pause()


@pytest.mark.parametrize("method", start_methods(*METHODS))
def test_a_lock_is_free_when_its_holder_has_been_killed(method):
    ctx = mp.get_context(method)
    lock = ProcessLock()
    for _ in range(20 if method == "fork" else 3):
        holds = ctx.Event()
        holder = start(ctx, _hold, lock, holds)
        assert holds.wait(TIMEOUT) and is_taken(lock)
        waiting = threading.Thread(target=_count, args=(lock, [0, 0], 1), daemon=True)
        waiting.start()
        holder.kill()
        waiting.join(TIMEOUT)
        assert not waiting.is_alive()
        holder.join()


def _hold_and_fork(lock, answers):
    with lock:
        child = os.fork()  # Processes of multiprocessing that are daemons must not have children.
        if child:
            answers.put(child)
        signal.pause()


@processes
def test_a_child_of_a_killed_holder_does_not_keep_the_lock():
    lock, answers = ProcessLock(), mp.Queue()
    holder = start(mp, _hold_and_fork, lock, answers)
    child = answers.get(timeout=TIMEOUT)
    try:
        assert is_taken(lock)
        holder.kill()
        holder.join()
        assert not is_taken(lock)
    finally:
        os.kill(child, signal.SIGKILL)


def _answer_whether_taken(lock, answers):
    answers.put(is_taken(lock))
    with lock:
        answers.put("has it")


@pytest.mark.parametrize("method", start_methods(*METHODS))
def test_a_process_started_while_a_thread_holds_the_lock_waits_for_it(method):
    ctx = mp.get_context(method)
    lock, taken, done = ProcessLock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            done.wait(TIMEOUT)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert taken.wait(TIMEOUT)
    answers = ctx.Queue()
    process = start(ctx, _answer_whether_taken, lock, answers)
    assert answers.get(timeout=TIMEOUT) is True
    with pytest.raises(queue.Empty):
        answers.get(timeout=0.1)
    done.set()
    assert answers.get(timeout=TIMEOUT) == "has it"
    holder.join(TIMEOUT)
    finish(process)


def _hold_inner(inner, outer, holds, go_on, answers):
    """Hold one lock in this thread, while another one waits for the other lock."""

    def wait():
        with outer:
            answers.put("outer")

    waiting = threading.Thread(target=wait, daemon=True)
    with inner:
        holds.set()
        assert go_on.wait(TIMEOUT)
        waiting.start()
        waiting.join(0.3)
        answers.put(waiting.is_alive())
    waiting.join(TIMEOUT)


@processes
def test_threads_that_wait_for_each_others_process_but_not_for_each_other_are_no_deadlock():
    inner, outer, holds, go_on, answers = ProcessLock(), ProcessLock(), mp.Event(), mp.Event(), mp.Queue()
    process = start(mp, _hold_inner, inner, outer, holds, go_on, answers)
    assert holds.wait(TIMEOUT)

    def nested():
        with outer:
            go_on.set()
            with inner:
                pass

    assert in_threads(1, nested)
    assert [answers.get(timeout=TIMEOUT) for _ in range(2)] == [True, "outer"]
    finish(process)


def test_a_lock_that_nobody_holds_cannot_be_released():
    lock = ProcessLock()
    with pytest.raises(RuntimeError):
        lock.release()
    assert not is_taken(lock)


def is_taken_for_others(lock):
    """Whether another thread, and a forked process, find the lock taken."""
    found = []
    assert in_threads(1, lambda: found.append(is_taken(lock)))
    child = os.fork()
    if child == 0:
        os._exit(is_taken(lock))
    assert found == [bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))]
    return found[0]


@pytest.mark.parametrize("read", [False, True])
def test_a_reentrant_lock_is_free_when_its_holder_has_released_it_as_often_as_it_took_it(read):
    lock = ProcessLock(reentrant=True)
    outer = ExclusiveRWLock(lock) if read else lock
    with outer:
        with lock:
            assert is_taken_for_others(lock)
        assert is_taken_for_others(lock)
    assert not is_taken_for_others(lock)
    with pytest.raises(RuntimeError):
        lock.release()


@processes
def test_waiting_for_a_lock_can_be_interrupted():
    lock, holds = ProcessLock(), mp.Event()
    holder = start(mp, _hold, lock, holds)
    assert holds.wait(TIMEOUT)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    holder.kill()
    holder.join()
    with lock:
        pass


def test_a_lock_cannot_be_copied_but_only_be_given_to_a_starting_process():
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(RuntimeError, match="inheritance"):
            copied(ProcessLock())


@processes
def test_locks_leave_no_open_files_behind():
    lock = ProcessLock()
    resource_tracker.ensure_running()  # By a descriptor that this process keeps.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with ProcessLock():
            pass
    for method in METHODS[:2]:
        finish(*[start(mp.get_context(method), is_taken, lock) for _ in range(2)])
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def filled(*items):
    queue_obj = queue.Queue()
    for item in items:
        queue_obj.put(item)
    return queue_obj


def test_drain_takes_what_is_there():
    assert drain_queue(filled()) == []
    assert drain_queue(filled(1, 2, 3)) == [1, 2, 3]
    assert drain_queue(filled(1, None, 2)) == [1, 2]


def test_drain_waits_for_all_sentinels_and_leaves_what_comes_after():
    queue_obj = filled(1, None, 2, None, 3)
    assert drain_queue(queue_obj, n_sentinel=2) == [1, 2]
    assert queue_obj.get() == 3


def test_drain_can_guard_a_sentinel():
    queue_obj = filled(1, 2, None)
    assert drain_queue(queue_obj, guard_sentinel=True) == [1, 2]
    assert drain_queue(queue_obj, n_sentinel=1) == []


def test_guarding_and_waiting_exclude_each_other():
    with pytest.raises(ValueError, match="n_sentinel=1"):
        drain_queue(filled(), n_sentinel=1, guard_sentinel=True)


def _produce(queue_obj, rank):
    for i in range(5):
        queue_obj.put((rank, i))
    queue_obj.put(None)


@processes
def test_drain_collects_from_several_processes():
    queue_obj = mp.Queue()
    producers = [mp.Process(target=_produce, args=(queue_obj, rank)) for rank in range(3)]
    for producer in producers:
        producer.start()
    contents = drain_queue(queue_obj, n_sentinel=3)
    for producer in producers:
        producer.join(TIMEOUT)
    assert sorted(contents) == [(rank, i) for rank in range(3) for i in range(5)]


@pytest.mark.parametrize("offset", [0, 7, 99, 100, 5000, 10**6])
def test_find_port_gives_a_port_one_can_listen_on(offset):
    port = find_port(offset)
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()


def test_find_port_avoids_a_port_in_use_and_starts_from_the_offset():
    first = find_port(11)
    assert (first - 29500 - 11) % 100 == 0
    with socket.socket() as server:
        server.bind(("127.0.0.1", first))
        assert find_port(11) != first
    assert find_port(12) != find_port(11)
