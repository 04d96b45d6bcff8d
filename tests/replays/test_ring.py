import numpy as np
import pytest

from rlpyt.replays.ring import Ring, window


def valid_by_definition(n_written, T, back, forward):
    """Numbers of the rows (in order of age) of which nothing within reach has been overwritten or is still to come."""
    oldest = max(n_written - T, 0)
    return [i for i in range(n_written) if i >= oldest + forward and i < n_written - back]


@pytest.mark.parametrize("back,forward", [(1, 1), (3, 1), (2, 3), (5, 4)])
def test_the_window_is_what_the_definition_says_at_every_cursor(back, forward):
    T = 8
    ring = Ring(T)
    for n_written in range(1, 40):
        ring.advance(1)
        assert list(range(*ring.window(back, forward))) == valid_by_definition(n_written, T, back, forward)


def test_rows_that_are_claimed_take_the_oldest_out_of_the_window_and_do_not_come_in_until_they_are_written():
    ring = Ring(8)
    for n in (5, 3, 6):
        before = ring.window(2, 1)
        ring.claim(n)
        assert ring.window(2, 1) == (max(ring.written + n - 8, 0) + 1, max(before[1], ring.window(2, 1)[0]))
        ring.claim(n)  # Again, by somebody who goes on where another has died.
        ring.advance(n)
        assert list(range(*ring.window(2, 1))) == valid_by_definition(ring.written, 8, 2, 1)


@pytest.mark.parametrize("interval", [2, 3])
def test_at_intervals_a_start_is_valid_only_if_all_rows_it_needs_are_there_wherever_the_cursor_is(interval):
    T, rows_back, rows_forward = 6 * interval, 4, 1
    back, forward = -(-rows_back // interval), -(-rows_forward // interval)
    ring = Ring(T)
    for n_written in range(1, 80):
        ring.advance(1)
        starts = range(*ring.every(interval).window(back, forward))
        assert set(i * interval for i in starts) <= set(valid_by_definition(n_written, T, rows_back, rows_forward))
        assert n_written < T or len(starts) >= 6 - back - forward - 1


def test_no_row_is_valid_when_the_zones_cover_the_ring():
    for written, T in ((7, 4), (2, 10)):
        first, end = window(written, written, T, back=3, forward=2)
        assert first == end


def test_the_numbers_of_rows_are_those_of_what_was_written_there_last():
    ring = Ring(5)
    ring.advance(3)
    assert ring.numbers(np.arange(5)).tolist() == [0, 1, 2, -2, -1]
    ring.advance(9)
    assert ring.numbers(np.arange(5)).tolist() == [10, 11, 7, 8, 9]


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
