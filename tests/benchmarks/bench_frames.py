"""Putting observations together from stored frames against the fastest plain gather of as many random ones.

One thread works, or two that share the samples; the limit is the faster of ``numpy.take`` and a loop of memcpy with the same threads. The
frames are in private memory, for which numpy asks for huge pages, and then in shared memory, which has none. Outputs are reused.

    python tests/benchmarks/bench_frames.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import median, ratio, ratios, rounds, tell

from rlpyt.utils import kernels
from rlpyt.utils.buffer import available_bytes, np_mp_array

H, W, C, B = 104, 80, 4, 16
F = H * W
T = 16_000  # 256,000 frames, 2.1 GB
L, N_SEQUENCES = 120 + 5, 64
GOAL = 0.8


@kernels.kernel
def copy_blocks(frames, idxs, out, start, stop):
    """The limit: copy whole frames by memcpy, each read for one place."""
    F = frames.shape[1]
    frames, out = frames.reshape(-1), out.reshape(-1)
    for i in range(start, stop):
        kernels._copy(out, i * F, frames, idxs[i] * F, F)


def take(frames, idxs, out, start, stop):
    np.take(frames, idxs[start:stop], axis=0, out=out[start:stop], mode="clip")


def gigabytes_per_second(calls: list[tuple[Callable, int]], n_bytes: int, pool: ThreadPoolExecutor | None) -> float:
    """Time ``call(start, stop)`` over all samples, or half of them in another thread."""
    begin = time.perf_counter()
    for call, n in calls:
        if pool is None:
            call(0, n)
        else:
            half = pool.submit(call, 0, n // 2)
            call(n // 2, n)
            half.result()
    return len(calls) * n_bytes / (time.perf_counter() - begin) / 1e9


def gathers(frames: np.ndarray, done: np.ndarray, pools: dict[int, ThreadPoolExecutor | None], n_rounds: int) -> None:
    rng = np.random.default_rng(0)
    where = (done, T, B, C)

    def rows_and_envs(n):
        return rng.integers(0, T, n), rng.integers(0, B, n)

    def measure(name: str, shape: tuple[int, ...], n: int, n_calls: int, prepare: Callable) -> None:
        n_frames = int(np.prod(shape))  # In all outputs together.
        plain = np.zeros((n_frames, F), np.uint8)

        def plain_gather(function):
            idxs = rng.integers(0, T * B, n_frames)
            return lambda start, stop: function(frames, idxs, plain, start, stop)

        prepares = {
            "ours": (prepare, n),
            "take": (lambda: plain_gather(take), n_frames),
            "memcpy": (lambda: plain_gather(copy_blocks), n_frames),
        }
        contenders = {}
        for k in (1, 2):
            for what, (make, size) in prepares.items():
                contenders[what, k] = lambda make=make, size=size, k=k: gigabytes_per_second(
                    [(make(), size) for _ in range(n_calls)], plain.nbytes, pools[k]
                )
        rounds(contenders, 1)
        results = rounds(contenders, n_rounds)
        for k in (1, 2):
            best = [max(pair) for pair in zip(results["take", k], results["memcpy", k])]
            print(
                f"  {name}, {k} thread{'s' * (k > 1)}: {median(results['ours', k]):.1f} GB/s, limit {median(best):.1f} "
                f"(take {median(results['take', k]):.1f}, memcpy {median(results['memcpy', k]):.1f}), "
                f"ratio {ratio(results['ours', k], best):.2f} (goal {GOAL})"
            )
            memory = "private" if frames.base is None else "shared"
            tell(f"{name}, {k} thread{'s' * (k > 1)}, {memory} memory", **{"of a plain gather": ratios(results["ours", k], best)})

    for n in (32, 64, 128, 256):
        outputs, n_steps = np.zeros((2, n, C, F), np.uint8), np.ones(n, np.int64)

        def transitions(n=n, n_steps=n_steps, outputs=outputs):
            t, b = rows_and_envs(n)
            return lambda start, stop: kernels.gather_frames_of_transitions(frames, *where, t, n_steps, b, *outputs, start, stop)

        measure(f"transitions, batch {n}", (2, n, C), n, 1024 // n, transitions)
    n, out = 256, np.zeros((256, C, F), np.uint8)

    def observations():
        t, b = rows_and_envs(n)
        return lambda start, stop: kernels.gather_frames(frames, *where, t, b, out, start, stop)

    measure("observations, batch 256", (n, C), n, 4, observations)
    sequences_out = np.zeros((L, N_SEQUENCES, C, F), np.uint8)

    def sequences():
        t, b = rows_and_envs(N_SEQUENCES)
        return lambda start, stop: kernels.gather_frames_of_sequences(frames, *where, t, b, sequences_out, start, stop)

    measure(f"{N_SEQUENCES} sequences of {L} steps", sequences_out.shape[:3], N_SEQUENCES, 1, sequences)


def main(n_rounds: int = 9) -> None:
    n_bytes = T * B * F
    if available_bytes() < 2 * n_bytes:
        raise MemoryError(f"This benchmark needs {2 * n_bytes / 1e9:.1f} GB of free memory.")
    done = np.random.default_rng(1).random(T * B) < 0.001
    with ThreadPoolExecutor(1) as pool:
        for kind, allocate in (("private memory", np.zeros), ("shared memory", np_mp_array)):
            frames = allocate((T * B, F), np.uint8)
            frames[...] = 1  # Now every page exists.
            print(f"{n_bytes / 1e9:.1f} GB of frames in {kind}")
            gathers(frames, done, {1: None, 2: pool}, n_rounds)
            del frames


if __name__ == "__main__":
    main()
