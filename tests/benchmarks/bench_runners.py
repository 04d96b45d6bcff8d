"""Runners: several processes that train, sampling beside training, parameters on their way, and snapshots of replay.

    python tests/benchmarks/bench_runners.py [--rounds 7] [--tasks sync async exchange snapshot]

* sync: environment steps per second of PPO on Pong, one thread in each process: `SyncRl` with two processes over gloo against one, and
  against two runs at the same time that have nothing to do with each other, which is what two processors can do at best.
* async: updates per second of DQN on Pong with a replay ratio of 8, on two processors: `AsyncRl`, without and with
  ``max_batches_ahead=1``, against `MinibatchRl`, each with two workers, and with as many threads that train as there are processors.
* exchange: seconds to send, and to receive, a network of 3.6 million parameters.
* snapshot: seconds for which training pauses to save a replay buffer of 1 million frames, after 50,000 more of them each time. Needs 9 GB
  of memory, and of disk in the directory for temporary files.

Contenders of sync and async run in turn, in processes of their own; ratios are medians over rounds.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


# --- Runs -------------------------------------------------------------------------------------------------------------
def sampler(SamplerCls, T, B):
    from rlpyt.envs.atari.atari_env import AtariEnv, AtariTrajInfo

    return SamplerCls(
        EnvCls=AtariEnv, env_kwargs=dict(game="pong"), TrajInfoCls=AtariTrajInfo, batch_T=T, batch_B=B, max_decorrelation_steps=0
    )


def sync(n_processes: int) -> float:
    """Return environment steps per second of all processes together, after the first iterations."""
    from rlpyt.agents.pg.atari import AtariFfAgent
    from rlpyt.algos.pg.ppo import PPO
    from rlpyt.runners.minibatch_rl import MinibatchRl
    from rlpyt.runners.sync_rl import SyncRl
    from rlpyt.samplers.serial.sampler import SerialSampler

    T, B, n_itr, warmup = 128, 8, 2, 1
    times = []

    def timed(RunnerCls):
        class Timed(RunnerCls):
            def store_diagnostics(self, *args):
                super().store_diagnostics(*args)
                times.append(time.perf_counter())

        return Timed

    one = dict(master_torch_threads=1)
    n_steps = n_processes * T * B * (n_itr + warmup)
    settings = dict(algo=PPO(), agent=AtariFfAgent(), sampler=sampler(SerialSampler, T, B), n_steps=n_steps, log_interval_steps=n_steps)
    if n_processes == 1:
        timed(MinibatchRl)(affinity=one, seed=0, **settings).train()
    else:
        timed(SyncRl)(affinity=[one] * n_processes, seed=0, **settings).train()
    return n_processes * T * B * n_itr / (times[-1] - times[-1 - n_itr])


def async_(contender: str) -> float:
    """Return gradient updates per second, once there are some."""
    from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
    from rlpyt.algos.dqn.dqn import DQN
    from rlpyt.runners.async_rl import AsyncRl
    from rlpyt.runners.minibatch_rl import MinibatchRl
    from rlpyt.samplers.async_.cpu_sampler import AsyncCpuSampler
    from rlpyt.samplers.parallel.cpu.sampler import CpuSampler

    T, B, start, n_updates = 2, 16, 2000, 200
    algo = DQN(batch_size=128, replay_ratio=8, min_steps_learn=start, replay_size=20_000, updates_per_sync=2)
    times = []
    optimize_agent = algo.optimize_agent

    def timed(*args, **kwargs):
        result = optimize_agent(*args, **kwargs)
        times.append((time.perf_counter(), algo.update_counter))
        return result

    algo.optimize_agent = timed
    n_steps = start + (n_updates + 20) * 128 / 8
    settings = dict(algo=algo, agent=AtariDqnAgent(), n_steps=n_steps, log_interval_steps=n_steps, seed=0)
    if contender == "synchronous":
        MinibatchRl(sampler=sampler(CpuSampler, T, B), **settings).train()
    else:
        max_batches_ahead = 1 if contender == "limited" else None
        AsyncRl(sampler=sampler(AsyncCpuSampler, T, B), max_batches_ahead=max_batches_ahead, **settings).train()
    times = [(t, updates) for t, updates in times if updates >= 20]
    return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])


# --- Parts of runs ----------------------------------------------------------------------------------------------------
def exchange(n_rounds: int) -> None:
    """Print milliseconds to send and to receive."""
    import torch
    from common import median, rounds, seconds

    from rlpyt.agents.exchange import ParameterExchange

    torch.set_num_threads(1)
    shapes = [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (1024, 3136), (1024,), (300, 1024), (6, 512)]
    tensors = [torch.randn(shape) for shape in shapes]
    n = sum(tensor.numel() for tensor in tensors)
    parameters = ParameterExchange(tensors)
    mine = [tensor.clone() for tensor in tensors]
    contenders = dict(
        send=lambda: seconds(lambda: parameters.send(tensors), 20), receive=lambda: seconds(lambda: parameters.receive(mine), 20)
    )
    for name, values in rounds(contenders, n_rounds).items():
        print(f"exchange: {name} {n / 1e6:.1f} million parameters {1e3 * median(values):.1f} ms", flush=True)


def snapshot(n_rounds: int) -> None:
    """Print seconds for which training pauses."""
    import numpy as np
    from common import median

    from rlpyt.algos.replay import SamplesToBuffer
    from rlpyt.replays.non_sequence.frame import UniformReplayFrameBuffer
    from rlpyt.runners.checkpoint import ReplayFiles

    B, T = 16, 625
    image = np.zeros((4, 104, 80), np.uint8)
    example = SamplesToBuffer(image, np.int64(0), np.float32(0), np.bool_(False), np.bool_(False))
    buffer = UniformReplayFrameBuffer(example=example, size=1_000_000, B=B)
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (T + 3, B, 104, 80), dtype=np.uint8)
    observation = np.stack([frames[i : T + i] for i in range(4)], axis=2)
    zeros = np.zeros((T, B), bool)

    def append(n_steps):
        for _ in range(n_steps // (T * B)):
            buffer.append_samples(SamplesToBuffer(observation, zeros.astype(np.int64), zeros.astype(np.float32), zeros, zeros))
            buffer.storage.stacks[0].last = None

    append(1_000_000)
    with tempfile.TemporaryDirectory() as directory:
        files, thread, pauses, durations = ReplayFiles(Path(directory) / "replay"), ThreadPoolExecutor(1), [], []
        start = time.perf_counter()
        files.prepare(buffer).write()
        print(f"snapshot: first save of 1 million frames {time.perf_counter() - start:.1f} s", flush=True)
        for _ in range(n_rounds):
            append(50_000)
            start = time.perf_counter()
            part = files.prepare(buffer)
            saving = thread.submit(part.write)
            pauses.append(time.perf_counter() - start)
            buffer.sample_batch(32)
            saving.result()
            files.delete_old()
            durations.append(time.perf_counter() - start)
        print(f"snapshot: pause {1e3 * median(pauses):.1f} ms, at most {1e3 * max(pauses):.1f} ms; written after {median(durations):.2f} s")


# ----------------------------------------------------------------------------------------------------------------------
def main(n_rounds: int, tasks: list[str]) -> None:
    from common import median, ratio, ratios, rounds, tell

    def run(*args: str):
        out = subprocess.run([sys.executable, __file__, "--measure", *args], capture_output=True, text=True)
        if out.returncode:
            raise RuntimeError(out.stderr)
        return float(out.stdout.split()[-1])

    if "sync" in tasks:
        with ThreadPoolExecutor() as pool:
            contenders = dict(
                one=lambda: run("sync", "1"),
                two=lambda: run("sync", "2"),
                apart=lambda: sum(pool.map(run, ["sync"] * 2, ["1"] * 2)),
            )
            results = rounds(contenders, n_rounds)
        one, two, apart = (median(results[name]) for name in contenders)
        print(
            f"sync: one process {one:.0f}, two {two:.0f}, two that are not connected {apart:.0f} steps/s; two are "
            f"{ratio(results['two'], results['one']) / 2:.2f} of twice one, {ratio(results['two'], results['apart']):.2f} of two apart",
            flush=True,
        )
        tell("SyncRl with two processes", **{"of two apart": ratios(results["two"], results["apart"])})
    if "async" in tasks:
        results = rounds({name: lambda name=name: run("async", name) for name in ("synchronous", "asynchronous", "limited")}, n_rounds)
        for name, updates in results.items():
            speed = ratio(updates, results["synchronous"])
            print(f"async: {name} {median(updates):.1f} updates/s, {speed:.2f} times as fast as synchronous", flush=True)
        tell("AsyncRl", **{"of MinibatchRl, updates per second": ratios(results["asynchronous"], results["synchronous"])})
    if "exchange" in tasks:
        exchange(n_rounds)
    if "snapshot" in tasks:
        snapshot(n_rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    tasks = ["sync", "async", "exchange", "snapshot"]
    parser.add_argument("--tasks", nargs="+", default=tasks, choices=tasks)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        what, n = args.measure
        print(sync(int(n)) if what == "sync" else async_(n))
    else:
        main(args.rounds, args.tasks)
