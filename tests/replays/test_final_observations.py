import numpy as np

from rlpyt.replays.final_observations import FinalObservations


def test_it_returns_what_was_appended_however_it_grew_and_forgot():
    rng = np.random.default_rng(0)
    store, kept, total = FinalObservations(np.zeros(3), capacity=2), [], 0
    for _ in range(300):
        n = int(rng.integers(0, 6))
        observations = rng.normal(size=(n, 3))
        numbers = store.append(observations, n)
        assert numbers.tolist() == list(range(total, total + n))
        kept += list(zip(numbers, observations))
        total += n
        n_forgotten = int(rng.integers(0, min(len(kept), 7) + 1))
        store.forget(n_forgotten)
        kept = kept[n_forgotten:]
        assert len(store) == len(kept)
        if kept:
            np.testing.assert_array_equal(store[np.array([i for i, _ in kept])], np.stack([o for _, o in kept]))


def test_memory_does_not_grow_when_as_much_is_forgotten_as_comes_in():
    store = FinalObservations(np.zeros(3), capacity=4)
    for i in range(1000):
        store.append(np.full((1, 3), i), 1)
        if len(store) == 4:
            store.forget(1)
    assert len(store._memory) == 4
