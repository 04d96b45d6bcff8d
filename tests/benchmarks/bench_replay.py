"""Whole replay buffers: prioritized batches against cpprb, frames against a plain gather of as many bytes, appending against memcpy.

The limit of reading frames is the faster of ``numpy.take`` and a loop of memcpy over random frames, into memory that is reused like the
batches'; that of appending is a memcpy of all bytes that are stored, where they are stored.

    python tests/benchmarks/bench_replay.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from common import median, ratio, ratios, rounds, seconds, tell

from rlpyt.replays.frame import BufferSamples
from rlpyt.replays.non_sequence.frame import PrioritizedReplayFrameBuffer, UniformReplayFrameBuffer
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplayBuffer
from rlpyt.replays.sequence.frame import UniformSequenceReplayFrameBuffer
from rlpyt.utils import kernels
from rlpyt.utils.collections import namedarraytuple

SIZE, B = 2**20, 16
H, W, C = 104, 80, 4
N_FRAMES = 256_000
GOALS = {32: 1.5, 256: 4, 512: 5}
GATHER_GOAL, APPEND_GOAL = 0.8, 0.7


def prioritized(n_rounds: int) -> None:
    """`sample_batch` and `update_batch_priorities` of a million steps whose observation is one number."""
    try:
        from cpprb import PrioritizedReplayBuffer as Cpprb
    except ImportError:
        print("This comparison needs cpprb: pip install cpprb")
        return
    rng = np.random.default_rng(0)
    fields = {name: {} for name in ("obs", "act", "rew", "next_obs", "done")}
    cpprb = Cpprb(SIZE, fields, alpha=0.6)
    example = BufferSamples(np.float32(0), np.int64(0), np.float32(0), np.bool_(False))
    ours = PrioritizedReplayBuffer(example=example, size=SIZE, B=B, discount=0.99, input_priorities=True, input_priority_shift=1)
    ours.reuse_batches()
    Samples = namedarraytuple("Samples", [*BufferSamples._fields, "priorities"])
    for _ in range(17):
        T = ours.T // 16
        cpprb.add(**{name: np.zeros(T * B) for name in fields}, priorities=rng.random(T * B))
        floats = rng.normal(size=(2, T, B)).astype(np.float32)
        ours.append_samples(
            Samples(floats[0], rng.integers(4, size=(T, B)), floats[1], rng.random((T, B)) < 0.01, None, None, rng.random((T, B)))
        )
    for n, goal in GOALS.items():
        priorities = rng.random(n)
        tensor = torch.from_numpy(priorities.astype(np.float32))

        def use_cpprb(n=n, priorities=priorities):
            batch = cpprb.sample(n, beta=0.4)
            cpprb.update_priorities(batch["indexes"], priorities)

        def use_ours(n=n, tensor=tensor):
            ours.sample_batch(n)
            ours.update_batch_priorities(tensor)

        results = rounds(
            {"cpprb": lambda f=use_cpprb: seconds(f, 1000), "ours": lambda f=use_ours: seconds(f, 5000)},
            n_rounds,
        )
        print(
            f"batch {n}: {1e6 * median(results['ours']):.0f} us (cpprb {1e6 * median(results['cpprb']):.0f}), "
            f"ratio {ratio(results['cpprb'], results['ours']):.1f} (goal {goal})"
        )


@kernels.kernel
def copy_blocks(frames, idxs, out):
    F = frames.shape[1]
    frames, out = frames.reshape(-1), out.reshape(-1)
    for i in range(len(idxs)):
        kernels._copy(out, i * F, frames, idxs[i] * F, F)


def frames(n_rounds: int) -> None:
    """`sample_batch` of buffers that store single frames."""
    rng = np.random.default_rng(0)

    def filled(BufferCls, **kwargs):
        envs = 64
        example = BufferSamples(np.zeros((C, H, W), np.uint8), np.int64(0), np.float32(0), np.bool_(False))
        buffer = BufferCls(example=example, size=N_FRAMES, B=envs, discount=0.99, **kwargs)
        T = 40
        stacks = np.ones((T, envs, C, H, W), np.uint8)
        buffer.storage.stacks[0].moves_by_frames = True  # In a game, that is known after two steps.
        rest = np.zeros((T, envs), np.int64), np.zeros((T, envs), np.float32), np.zeros((T, envs), np.bool_)
        samples = BufferSamples(stacks, *rest)
        for _ in range(-(-buffer.T // T)):
            buffer.append_samples(samples)
        buffer.reuse_batches()
        return buffer, samples

    def measure(name, buffer, n_bytes, n_calls, n):
        stored = buffer.samples.observation.reshape(-1, H * W)
        n_blocks = n_bytes // stored.shape[1]
        outs = [np.zeros((n_blocks, stored.shape[1]), np.uint8) for _ in range(2)]

        def gather(function):
            def call():
                outs.append(outs.pop(0))
                function(stored, rng.integers(0, len(stored), n_blocks), outs[-1])

            return call

        takes = gather(lambda source, idxs, out: np.take(source, idxs, axis=0, out=out, mode="clip"))
        copies = gather(copy_blocks)
        calls = {"ours": lambda: buffer.sample_batch(n), "take": takes, "memcpy": copies}
        contenders = {key: lambda f=f: n_bytes / seconds(f, n_calls) / 1e9 for key, f in calls.items()}
        rounds(contenders, 2)
        results = rounds(contenders, n_rounds)
        best = [max(pair) for pair in zip(results["take"], results["memcpy"])]
        print(
            f"{name}: {median(results['ours']):.1f} GB/s, limit {median(best):.1f}, ratio {ratio(results['ours'], best):.2f} "
            f"(goal {GATHER_GOAL})"
        )
        tell(name, **{"of a plain gather": ratios(results["ours"], best)})

    frame_bytes = H * W * C
    for BufferCls in (UniformReplayFrameBuffer, PrioritizedReplayFrameBuffer):
        buffer, samples = filled(BufferCls)
        for n in (32, 256):
            measure(f"{BufferCls.__name__}, batch {n}", buffer, 2 * n * frame_bytes, 1024 // n, n)
        append(buffer, samples, n_rounds, "one step, no episode ends")
        del buffer
    L, n, n_step = 120, 64, 5
    buffer, samples = filled(UniformSequenceReplayFrameBuffer, rnn_state_interval=0, batch_T=L, n_step_return=n_step)
    measure(f"sequences, {n} of {L} + {n_step} steps", buffer, (L + n_step) * n * frame_bytes, 1, n)


def append_episodes(n_rounds: int) -> None:
    """Like `append`, with three-step returns, and one step in 200 that ends an episode, every other one by truncation."""
    rng, T, envs = np.random.default_rng(0), 40, 64
    done = rng.random((T, envs)) < 0.005
    timeout = done & (rng.random((T, envs)) < 0.5)
    stacks = np.ones((T, envs, C, H, W), np.uint8)
    for t, b in zip(*np.nonzero(done), strict=True):
        for age in range(1, C):  # Frames of the episode before are blank.
            stacks[(t + age) % T, b, : C - age] = 0
    stacks[0, done[-1], :-1] = 0
    final = np.ones((max(1, timeout.sum(axis=0).max()), envs, C, H, W), np.uint8)
    numbers = np.zeros((T, envs), np.int64)
    samples = BufferSamples(stacks, numbers, numbers.astype(np.float32), done, timeout, final)
    example = BufferSamples(np.zeros((C, H, W), np.uint8), np.int64(0), np.float32(0), np.bool_(False), np.bool_(False))
    buffer = UniformReplayFrameBuffer(example=example, size=N_FRAMES, B=envs, discount=0.99, n_step_return=3)
    buffer.storage.stacks[0].moves_by_frames = True
    for _ in range(-(-buffer.T // T)):
        buffer.append_samples(samples)
    append(buffer, samples, n_rounds, "three steps, episodes end")


def append(buffer, samples, n_rounds: int, name: str) -> None:
    """`append_samples` against memcpy of the same rows."""
    T = len(samples.reward)
    stored = buffer.samples
    leaves = [(stored.observation, np.ascontiguousarray(samples.observation[:, :, -1]))]
    leaves += [(getattr(stored, name), getattr(samples, name)) for name in ("action", "reward", "done")]
    cursor = 0

    def memcpy():
        nonlocal cursor
        for there, new in leaves:
            there[cursor : cursor + T] = new
        cursor = (cursor + T) % (buffer.T - T)

    contenders = {"ours": lambda: seconds(lambda: buffer.append_samples(samples), 5), "memcpy": lambda: seconds(memcpy, 5)}
    rounds(contenders, 2)
    results = rounds(contenders, n_rounds)
    print(
        f"append [{T},{buffer.B}], {name}: {1e3 * median(results['ours']):.2f} ms, memcpy {1e3 * median(results['memcpy']):.2f} ms, "
        f"ratio {ratio(results['memcpy'], results['ours']):.2f} (goal {APPEND_GOAL})"
    )
    tell(f"append_samples, {name}", **{"of memcpy": ratios(results["memcpy"], results["ours"])})


def main(n_rounds: int = 9) -> None:
    prioritized(n_rounds)
    append_episodes(n_rounds)
    frames(n_rounds)


if __name__ == "__main__":
    main()
