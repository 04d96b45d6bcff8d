import multiprocessing as mp
import queue
import socket

import pytest

from rlpyt.utils.synchronize import RWLock, drain_queue, find_port

TIMEOUT = 30  # seconds, for what happens at once unless something is broken


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


@pytest.mark.parametrize("method", ["fork", "spawn"])
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


def test_writers_exclude_each_other():
    lock, value = RWLock(), mp.RawValue("l", 0)
    writers = [mp.Process(target=_increment, args=(lock, value, 300)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(TIMEOUT)
    assert value.value == 900


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
