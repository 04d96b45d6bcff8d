"""How benchmarks measure: contenders in turn within one run, and the medians of their ratios round by round.

The speed of a shared machine drifts; what is measured a moment apart drifts together, so that ratios hold where seconds do not.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

JSON = "RLPYT_BENCHMARK_JSON"  # Environment variable: the file that gets the results, see `tell`.


def rounds(contenders: dict[str, Callable[[], float]], n_rounds: int = 9) -> dict[str, list[float]]:
    """Call every contender once per round, in alternating order; return their results, one per round."""
    results: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(n_rounds):
        for name in list(contenders)[:: 1 if i % 2 == 0 else -1]:
            results[name].append(contenders[name]())
    return results


def median(values: list[float]) -> float:
    return statistics.median(values)


def ratio(a: list[float], b: list[float]) -> float:
    """Median of the round-by-round ratios a / b."""
    return median([x / y for x, y in zip(a, b)])


def ratios(a: list[float], b: list[float]) -> list[float]:
    """The ratios a / b, round by round."""
    return [x / y for x, y in zip(a, b)]


def tell(row: str, **figures: Sequence[float]) -> None:
    """Append a row of results to the file that `JSON` names, if any: each figure's median, range, and number of rounds.

    ``tables.py`` reads the file. Rows and figures have the names of its tables.
    """
    if path := os.environ.get(JSON):
        summary = {name: dict(median=median(list(v)), low=min(v), high=max(v), rounds=len(v)) for name, v in figures.items()}
        with open(path, "a") as file:
            file.write(json.dumps(dict(row=row, figures=summary)) + "\n")


def seconds(func: Callable[[], None], n: int) -> float:
    """Return the seconds that `n` calls take, each."""
    start = time.perf_counter()
    for _ in range(n):
        func()
    return (time.perf_counter() - start) / n


@contextmanager
def busy(n: int) -> Iterator[None]:
    """Within this context, `n` processes compute."""
    processes = [multiprocessing.get_context("fork").Process(target=_compute, daemon=True) for _ in range(n)]
    for process in processes:
        process.start()
    time.sleep(0.2)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _compute() -> None:
    x, parent = 0, os.getppid()
    while os.getppid() == parent:  # Otherwise the benchmark has been killed.
        for _ in range(10**6):
            x = (x * 31 + 7) % 1000003


class BareLoops:
    """Processes that each run `loop(env, n_steps)` on an environment of their own, at the same time.

    Args:
        make_loop: returns a function ``loop(n_steps)``.
        n: how many processes.
    """

    def __init__(self, make_loop: Callable, n: int) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes = []
        for i in range(n):
            mine, theirs = context.Pipe()
            context.Process(target=_serve, args=(theirs, make_loop, i), daemon=True).start()
            self._pipes.append(mine)

    def steps_per_second(self, n_steps: int, n: int | None = None) -> float:
        """Run `n_steps` in each of the first `n` processes (all by default); return the sum of their speeds."""
        pipes = self._pipes[:n]
        for pipe in pipes:
            pipe.send(n_steps)
        return sum(n_steps / pipe.recv() for pipe in pipes)


def _serve(pipe, make_loop: Callable, i: int) -> None:
    loop = make_loop(i)
    loop(100)
    while True:
        n_steps = pipe.recv()
        start = time.perf_counter()
        loop(n_steps)
        pipe.send(time.perf_counter() - start)
