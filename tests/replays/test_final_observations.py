import copy
import multiprocessing as mp
import os

import numpy as np
import pytest
from tiers import start_methods

from rlpyt.replays import final_observations
from rlpyt.replays.final_observations import FinalObservations
from rlpyt.utils.collections import namedarraytuple

TIMEOUT = 60  # seconds, for what takes a few
Observation = namedarraytuple("Observation", ["image", "joints"])


def observations(values):
    values = np.asarray(values)
    image = np.broadcast_to(values[:, None, None].astype(np.uint8), (len(values), 2, 3))
    return Observation(image=image, joints=np.repeat(values[:, None].astype(np.float32), 4, axis=1))


EXAMPLE = observations([0])[0]


def assert_holds(store, slots, values):
    expected, found = observations(values), store[np.asarray(slots)]
    np.testing.assert_array_equal(found.image, expected.image)
    np.testing.assert_array_equal(found.joints, expected.joints)


@pytest.mark.parametrize("share_memory", [False, True])
def test_every_observation_stays_in_its_slot_until_it_is_forgotten(share_memory):
    rng = np.random.default_rng(0)
    store, kept, most = FinalObservations(EXAMPLE, 40, share_memory), {}, 0
    for i in range(400):
        n = int(rng.integers(0, min(6, 40 - len(kept)) + 1))
        values = 10 * i + np.arange(n)
        slots = store.append(observations(values), n)
        assert slots.dtype == np.int64 and slots.shape == (n,)
        assert not set(slots.tolist()) & set(kept)
        kept.update(zip(slots.tolist(), values.tolist(), strict=True))
        most = max(most, len(kept))
        assert all(slot < most for slot in kept)  # No slot is used for the first time while another is free.
        assert len(store) == len(kept)
        if kept:
            assert_holds(store, list(kept), list(kept.values()))
        forgotten = rng.permutation(list(kept))[: rng.integers(0, 7)].astype(np.int32)
        store.forget(forgotten)
        for slot in forgotten.tolist():
            del kept[slot]
    assert len(store) == len(kept)


def test_take_writes_to_the_memory_it_is_given():
    store = FinalObservations(EXAMPLE, 8)
    slots = store.append(observations([5, 6, 7]), 3)
    out = Observation(image=np.zeros((2, 2, 3), np.uint8), joints=np.zeros((2, 4), np.float32))
    store.take(slots[[2, 0]], out)
    np.testing.assert_array_equal(out.image, observations([7, 5]).image)
    np.testing.assert_array_equal(out.joints, observations([7, 5]).joints)


def test_an_observation_may_be_a_plain_array_or_have_fields_that_are_none():
    plain = FinalObservations(np.zeros(3), 4)
    out = np.zeros((1, 3))
    plain.take(plain.append(np.full((1, 3), 2.5), 1), out)
    np.testing.assert_array_equal(out, [[2.5, 2.5, 2.5]])
    store = FinalObservations(EXAMPLE._replace(image=None), 4)
    slots = store.append(observations([9])._replace(image=None), 1)
    out = Observation(image=None, joints=np.zeros((1, 4), np.float32))
    store.take(slots, out)
    assert store[slots].image is None and (out.joints == 9).all()


def test_more_than_the_capacity_is_refused_and_changes_nothing():
    store = FinalObservations(EXAMPLE, 4)
    slots = store.append(observations([1, 2, 3]), 3)
    with pytest.raises(ValueError, match="2 observations do not fit into a store of 4 that keeps 3"):
        store.append(observations([4, 5]), 2)
    assert len(store) == 3
    assert_holds(store, slots, [1, 2, 3])


def test_a_terabyte_can_be_reserved_and_takes_memory_only_where_it_is_used():
    store = FinalObservations(np.zeros(2**20, np.uint8), 2**20)
    used = [store.append(np.full((1, 2**20), i, np.uint8), 1)[0] for i in range(4)]
    assert os.fstat(store._memory.base.fd).st_blocks * 512 == 4 * 2**20
    store.forget(np.array(used[:2]))
    for i in range(1000):
        store.forget(store.append(np.full((1, 2**20), i % 256, np.uint8), 1))
    assert os.fstat(store._memory.base.fd).st_blocks * 512 == 4 * 2**20


def test_memory_that_is_not_there_is_missed_before_it_is_used(monkeypatch):
    asked = []

    def check_memory(n_bytes, purpose):
        asked.append(n_bytes)
        if len(asked) == 2:
            raise MemoryError(purpose)

    monkeypatch.setattr(final_observations, "check_memory", check_memory)
    store = FinalObservations(np.zeros(2**23, np.uint8), 100)  # 8 of them are what is asked for at a time.
    store.append(np.ones((7, 2**23), np.uint8), 7)
    assert asked == []
    store.append(np.ones((1, 2**23), np.uint8), 1)
    assert asked == [2**26]
    with pytest.raises(MemoryError, match="more than the 8 observations that ended truncated episodes"):
        store.append(np.broadcast_to(np.uint8(1), (20, 2**23)), 20)
    assert asked == [2**26, 20 * 2**23] and len(store) == 8


def _append_and_forget(store, slots, answers):
    assert_holds(store, slots, [1, 2, 3])
    store.forget(slots[:2])
    answers.put(store.append(observations([7]), 1).tolist())


@pytest.mark.parametrize("method", start_methods("fork", "spawn", "forkserver"))
def test_processes_share_the_slots_of_a_shared_store(method):
    ctx = mp.get_context(method)
    store, answers = FinalObservations(EXAMPLE, 10, share_memory=True), ctx.Queue()
    slots = store.append(observations([1, 2, 3]), 3)
    process = ctx.Process(target=_append_and_forget, args=(store, slots, answers), daemon=True)
    process.start()
    (new,) = answers.get(timeout=TIMEOUT)
    process.join(TIMEOUT)
    assert process.exitcode == 0 and len(store) == 2
    assert_holds(store, [new, slots[2]], [7, 3])
    assert new not in store.append(observations([8, 9]), 2)


@pytest.mark.parametrize("share_memory", [False, True])
def test_a_copy_holds_what_is_in_use_and_goes_its_own_way(share_memory):
    store = FinalObservations(np.zeros(2**20, np.uint8), 2**20, share_memory)
    slots = store.append(np.full((3, 2**20), 5, np.uint8), 3)
    store.forget(slots[:1])
    other = copy.deepcopy(store)
    assert len(other) == 2 and (other[slots[1:]] == 5).all()
    assert other.append(np.full((1, 2**20), 6, np.uint8), 1) == slots[0]
    assert len(store) == 2 and (store[slots] == 5).all()
