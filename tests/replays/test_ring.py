import numpy as np
import pytest

from rlpyt.replays.ring import Ring, window


def rows_valid_by_definition(n_written, T, back, forward):
    """Rows (in order of age) of which nothing within reach has been overwritten or is still to come."""
    oldest = max(n_written - T, 0)
    return [i % T for i in range(n_written) if i >= oldest + forward and i < n_written - back]


@pytest.mark.parametrize("back,forward", [(1, 1), (3, 1), (2, 3), (5, 4)])
def test_the_window_is_what_the_definition_says_at_every_cursor(back, forward):
    T = 8
    ring = Ring(T)
    for n_written in range(1, 40):
        ring.advance(1)
        first, n_valid = ring.window(back, forward)
        assert [int(ring.wrap(first + i)) for i in range(n_valid)] == rows_valid_by_definition(n_written, T, back, forward)


def test_no_row_is_valid_when_the_zones_cover_the_ring():
    assert window(t=3, full=True, T=4, back=3, forward=2)[1] == 0
    assert window(t=2, full=False, T=10, back=2, forward=1)[1] == 0


@pytest.mark.parametrize("T", [1, 5])
def test_advancing_by_chunks_is_advancing_by_ones(T):
    rng = np.random.default_rng(0)
    chunks, ones = Ring(T), Ring(T)
    for _ in range(50):
        n = int(rng.integers(0, T + 1))
        chunks.advance(n)
        for _ in range(n):
            ones.advance(1)
        assert (chunks.t, chunks.full) == (ones.t, ones.full)


def test_rows_are_a_slice_unless_they_wrap():
    ring = Ring(6)
    ring.advance(4)
    assert ring.rows(0, 2) == slice(4, 6)
    assert ring.rows(0, 3).tolist() == [4, 5, 0]
    assert ring.rows(-5, 3).tolist() == [5, 0, 1]
    assert ring.rows(-4, 4) == slice(0, 4)
