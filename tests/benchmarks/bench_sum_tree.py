"""Sum tree of a million priorities: draw and update per second, against cpprb's prioritized buffer of five fields.

python tests/benchmarks/bench_sum_tree.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import median, ratio, ratios, rounds, seconds, tell
from cpprb import PrioritizedReplayBuffer

from rlpyt.replays.sum_tree import SumTree

SIZE, B = 2**20, 16
GOALS = {32: 4, 256: 8, 512: 8}


def filled_cpprb() -> PrioritizedReplayBuffer:
    fields = {name: {} for name in ("obs", "act", "rew", "next_obs", "done")}
    buffer = PrioritizedReplayBuffer(SIZE, fields, alpha=0.6)
    for _ in range(16):
        n = SIZE // 16
        buffer.add(**{name: np.zeros(n) for name in fields}, priorities=np.random.rand(n))
    return buffer


def filled_tree() -> SumTree:
    tree = SumTree(SIZE // B, B, off_backward=1, off_forward=1, enable_input_priorities=True, input_priority_shift=1)
    for _ in range(17):
        tree.advance(tree.T // 16, np.random.rand(tree.T // 16, B))
    return tree


def main(n_rounds: int = 9) -> None:
    np.random.seed(0)
    cpprb, tree = filled_cpprb(), filled_tree()
    for n, goal in GOALS.items():
        priorities = np.random.rand(n)

        def use_cpprb(n=n, priorities=priorities):
            batch = cpprb.sample(n, beta=0.4)
            cpprb.update_priorities(batch["indexes"], priorities)

        def use_tree(n=n, priorities=priorities):
            ids, _, _, _ = tree.draw(n)
            tree.update(ids, priorities)

        def use_unique(n=n, priorities=priorities):
            ids, _, _, _ = tree.draw(n, unique=True)
            tree.update(ids, priorities)

        results = rounds(
            {
                "cpprb": lambda f=use_cpprb: seconds(f, 1000),
                "tree": lambda f=use_tree: seconds(f, 10_000),
                "unique": lambda f=use_unique: seconds(f, 10_000),
            },
            n_rounds,
        )
        print(
            f"batch {n}: {1e6 * median(results['tree']):.1f} us, {1 / median(results['tree']):,.0f} per second (cpprb "
            f"{1 / median(results['cpprb']):,.0f}), ratio {ratio(results['cpprb'], results['tree']):.1f} (goal {goal}); "
            f"unique {1e6 * median(results['unique']):.1f} us"
        )
        tell(f"SumTree, batch {n}", **{"times as fast as cpprb": ratios(results["cpprb"], results["tree"])})
    advance = [seconds(lambda: tree.advance(64), 1000) for _ in range(n_rounds)]
    print(f"advance of 64x{B} rows: {1e6 * median(advance):.1f} us (goal 100)")


if __name__ == "__main__":
    main()
