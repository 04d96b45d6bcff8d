"""Kernels that have no test where they are used: those of stored frames."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.errors import NumbaError
from tiers import processes

from rlpyt.utils import kernels

UNTOUCHED = 7  # Outputs are full of it before.


def observation(frames, done, T, B, C, t, b):
    """The observation [C,F] of step (t, b): frames from the newest back, until one from before the episode."""
    result = np.zeros((C, frames.shape[1]), np.uint8)
    for age in range(C):
        if age > 0 and done[(t - age) % T * B + b]:
            break
        result[C - 1 - age] = frames[(t - age) % T * B + b]
    return result


@st.composite
def memories(draw):
    """Frames, done, T, B, C; and T_idxs, n_steps, B_idxs of some samples; frames are never zero where they are not blank."""
    C = draw(st.integers(1, 5))
    T, B, F = draw(st.integers(C, 12)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 5, 64, 200, 3000]))
    n = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    frames = rng.integers(1, 256, (T * B, F), dtype=np.uint8)
    done = (rng.random(T * B) < draw(st.sampled_from([0, 0.1, 0.5, 1]))).astype(draw(st.sampled_from([bool, np.uint8])))
    samples = rng.integers(0, T, n), rng.integers(1, draw(st.integers(2, 8)), n), rng.integers(0, B, n)
    return (frames, done, T, B, C), samples


def full(*shape):
    return np.full(shape, UNTOUCHED, np.uint8)


@settings(max_examples=200, deadline=None)
@given(memories())
def test_observations_are_put_together_from_their_frames(memory):
    where, (t, _, b) = memory
    frames, C = where[0], where[4]
    out = full(len(t), C, frames.shape[1])
    kernels.gather_frames(*where, t, b, out, 0, len(t))
    for i in range(len(t)):
        np.testing.assert_array_equal(out[i], observation(*where, t[i], b[i]))


@settings(max_examples=300, deadline=None)
@given(memories())
def test_transitions_have_the_observations_at_both_ends(memory):
    where, (t, n_steps, b) = memory
    frames, _, T, _, C = where
    out, target_out = full(len(t), C, frames.shape[1]), full(len(t), C, frames.shape[1])
    kernels.gather_frames_of_transitions(*where, t, n_steps, b, out, target_out, 0, len(t))
    for i in range(len(t)):
        np.testing.assert_array_equal(out[i], observation(*where, t[i], b[i]))
        np.testing.assert_array_equal(target_out[i], observation(*where, (t[i] + n_steps[i]) % T, b[i]))


@settings(max_examples=200, deadline=None)
@given(memories(), st.integers(1, 15))
def test_sequences_have_the_observations_of_all_their_rows(memory, L):
    where, (t, _, b) = memory
    frames, _, T, _, C = where
    out = full(L, len(t), C, frames.shape[1])
    kernels.gather_frames_of_sequences(*where, t, b, out, 0, len(t))
    for i in range(len(t)):
        for k in range(L):
            np.testing.assert_array_equal(out[k, i], observation(*where, (t[i] + k) % T, b[i]))


def random_memory(n, T=50, B=4, C=4, F=128):
    rng = np.random.default_rng(0)
    frames, done = rng.integers(1, 256, (T * B, F), dtype=np.uint8), rng.random(T * B) < 0.1
    return (frames, done, T, B, C), rng.integers(0, T, n), rng.integers(1, 5, n), rng.integers(0, B, n)


def test_only_the_samples_asked_for_are_written():
    where, t, n_steps, b = random_memory(n=6)
    out, target_out, sequences = full(6, 4, 128), full(6, 4, 128), full(3, 6, 4, 128)
    kernels.gather_frames_of_transitions(*where, t, n_steps, b, out, target_out, 2, 4)
    kernels.gather_frames_of_sequences(*where, t, b, sequences, 2, 4)
    for array in (out, target_out, sequences.swapaxes(0, 1)):
        assert (array[:2] == UNTOUCHED).all() and (array[4:] == UNTOUCHED).all()
    np.testing.assert_array_equal(out[3], observation(*where, t[3], b[3]))
    single = full(6, 4, 128)
    kernels.gather_frames(*where, t, b, single, 2, 4)
    np.testing.assert_array_equal(single, out)


def test_threads_that_share_the_samples_give_what_one_gives():
    where, t, n_steps, b = random_memory(n=1000)
    one, two = full(2, 1000, 4, 128), full(2, 1000, 4, 128)
    kernels.gather_frames_of_transitions(*where, t, n_steps, b, *one, 0, 1000)
    with ThreadPoolExecutor(2) as pool:
        parts = [pool.submit(kernels.gather_frames_of_transitions, *where, t, n_steps, b, *two, i, i + 250) for i in range(0, 1000, 250)]
        for part in parts:
            part.result()
    np.testing.assert_array_equal(one, two)


def test_an_output_that_is_not_contiguous_is_refused():
    where, t, _, b = random_memory(n=6)
    with pytest.raises(NumbaError):
        kernels.gather_frames(*where, t, b, full(6, 8, 128)[:, ::2], 0, 6)


@pytest.mark.full
@processes
def test_machine_code_is_kept_for_other_processes(tmp_path):
    """The kernels that contain instructions of our own, too."""
    code = """
import numpy as np
from rlpyt.utils import kernels
i = np.zeros(1, np.int64)
kernels.gather_frames(np.ones((4, 3), np.uint8), np.zeros(4, bool), 4, 1, 2, i, i, out := np.zeros((1, 2, 3), np.uint8), 0, 1)
assert out.all()
print(len(kernels.gather_frames.stats.cache_hits))
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        for _ in range(2)
    ]
    assert [run.stdout.strip() for run in runs] == ["0", "1"]
