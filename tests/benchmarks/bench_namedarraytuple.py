"""Indexing a namedarraytuple of six fields against the same six numpy operations written out.

The operations are written out twice: on arrays in variables, and on the fields of the structure (``x = nat.a[3]``), as code without
indexing by structure would have to.

    python tests/benchmarks/bench_namedarraytuple.py
"""

from __future__ import annotations

import sys
import timeit
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import median, ratio, ratios, rounds, tell

from rlpyt.utils.collections import namedarraytuple

N = 20_000


def main(n_rounds: int = 11) -> None:
    shapes = [((4,), np.float64), ((), np.float64), ((), bool), ((4,), np.float32), ((), np.int64), ((2,), np.float64)]
    arrays = [np.zeros((32, 16, *shape), dtype) for shape, dtype in shapes]
    nat = namedarraytuple("Six", "a b c d e f")(*arrays)
    names = dict(zip("abcdef", arrays), nat=nat, value=nat[4], **{f"v{i}": x[4] for i, x in enumerate(arrays)})
    statements = {
        "read written out": "; ".join(f"x{name} = {name}[3]" for name in "abcdef"),
        "read by field": "; ".join(f"x{name} = nat.{name}[3]" for name in "abcdef"),
        "read": "x = nat[3]",
        "write written out": "; ".join(f"{name}[3] = v{i}" for i, name in enumerate("abcdef")),
        "write by field": "; ".join(f"nat.{name}[3] = value.{name}" for name in "abcdef"),
        "write": "nat[3] = value",
    }
    timers = {name: timeit.Timer(statement, globals=names) for name, statement in statements.items()}
    results = rounds({name: (lambda t=t: min(t.repeat(5, N // 5)) / (N // 5)) for name, t in timers.items()}, n_rounds)
    for what in ("read", "write"):
        bare, by_field = results[f"{what} written out"], results[f"{what} by field"]
        print(
            f"{what}: {1e9 * median(results[what]):.0f} ns, written out {1e9 * median(bare):.0f} ns, "
            f"ratio {ratio(results[what], bare):.2f} (goal 1.6); by field {1e9 * median(by_field):.0f} ns, "
            f"ratio {ratio(results[what], by_field):.2f}"
        )
        tell(f"namedarraytuple, {what}", **{"times as long as written out": ratios(results[what], bare)})


if __name__ == "__main__":
    main()
