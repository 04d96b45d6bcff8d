"""The soak test itself: what it calls flat, and that it runs."""

import re

import numpy as np
import pytest
import soak
from tiers import full, processes

TIMES = np.arange(0, 400, 5.0)


def is_flat(values, tolerance=1, relative=0.0):
    return soak.trend(TIMES, [float(value) for value in values], tolerance, relative).is_flat


def test_what_does_not_grow_is_flat():
    noise = np.random.default_rng(0).normal(size=len(TIMES))
    assert is_flat(np.full(len(TIMES), 7)) and is_flat(100 + noise, 2) and is_flat(100 - 0.1 * TIMES)
    assert is_flat(7 + 5 * (np.arange(len(TIMES)) % 4 == 0)), "what comes and goes"
    assert is_flat([1e6 if i in (3, 40, 78) else 100 for i in range(len(TIMES))]), "points out of line"
    assert is_flat(np.minimum(TIMES, 120)), "what fills up during the warm-up"
    assert is_flat(500 + 0.015 * TIMES, 2, 0.01), "one percent of much"


def test_what_grows_is_not_flat():
    noise = np.random.default_rng(0).normal(size=len(TIMES))
    found = soak.trend(TIMES, (100 + 0.05 * TIMES + noise).tolist(), 2)
    assert not found.is_flat and 0.04 < found.per_hour / 3600 < 0.06 and 11 < found.growth < 16
    assert not is_flat(TIMES // 100), "one more from time to time"
    assert not is_flat(100 + 0.015 * TIMES, 2, 0.01)


@processes
@full
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["cpu", "async"])
def test_a_run_is_watched_and_told_to_end(kind, nothing_is_left_behind, capfd):
    """Too short for anything to be flat."""
    soak.main(["--minutes", "0.05", "--interval", "0.3", "--only", kind, "--log_interval_steps", "500"])
    out = capfd.readouterr().out
    assert f"{kind}: 3 s" in out and "environment steps" in out, out
    for name in ("resident memory", "shared memory", "descriptors", "threads", "processes", "entries of"):
        assert re.search(rf"{name}.* +\d+\.\d+ .*(flat|NOT FLAT)", out), out
    n_processes = re.search(r"processes +(\d+)\.0", out)[1]
    assert int(n_processes) >= (3 if kind == "cpu" else 5)
