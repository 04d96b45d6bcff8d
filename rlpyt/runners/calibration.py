"""Choices of a run between computations that are equal up to rounding: its questions, and the number of threads for each.

A run makes its choices once, when its models exist and no worker process has been started. They are, in this order,

- those given to the runner: ``calibrate=dict(...)``, or ``calibrate=False`` for the defaults;
- those of the snapshot, if the run is resumed;
- those in the file of this machine, and else measured (`rlpyt.utils.choices`).

All processes of the run use them. They are in the log, in params.json and in each snapshot.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from rlpyt.models.questions import comparisons, update_comparison
from rlpyt.models.utils import unwrap_ddp
from rlpyt.spaces.base import CompletedSpace
from rlpyt.utils import choices
from rlpyt.utils.accelerator import has_bf16
from rlpyt.utils.choices import settle
from rlpyt.utils.completed import Completed
from rlpyt.utils.launching.machine import read_machine
from rlpyt.utils.logging import logger
from rlpyt.utils.processors import allowed_cpus, busy_processors
from rlpyt.utils.text import plural

THREADS = "threads"
_SAID_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # Environment variables with the number of threads.
_threads_at_import = torch.get_num_threads()
_threads_in_use: int | None = None  # The number that `use_threads` has set, if any.


class CompletedQuantileAgent(Completed):
    """Any agent, with what those of quantiles tell.

    Attributes:
        trained_fractions, acting_fractions: numbers of fractions at which the model computes quantiles for each sample, if it gets them as
            inputs: in training with and without gradient, and to act.
    """

    trained_fractions: Sequence[int] = ()
    acting_fractions: Sequence[int] = ()


def threads_are_said(affinity: Mapping[str, Any]) -> bool:
    """Return whether the user has chosen the number of torch threads: by the affinity, the environment, or `torch.set_num_threads`."""
    by_affinity = affinity.get("master_torch_threads") is not None
    is_ours = torch.get_num_threads() in (_threads_at_import, _threads_in_use)
    return by_affinity or any(os.environ.get(name) for name in _SAID_BY) or not is_ours


def use_threads(n: int) -> None:
    """Let torch use `n` threads, until `forget_threads`."""
    global _threads_in_use
    torch.set_num_threads(n)
    _threads_in_use = n


def forget_threads() -> None:
    """Undo `use_threads` of an earlier run in this process, unless the user has changed the number meanwhile."""
    global _threads_in_use
    if _threads_in_use is not None and torch.get_num_threads() == _threads_in_use:
        torch.set_num_threads(_threads_at_import)
    _threads_in_use = None


def set_torch_threads(affinity: Mapping[str, Any]) -> None:
    """Set the number of torch threads of this process by its affinity, or else as was chosen, unless the user has said another."""
    given, n_chosen = affinity.get("master_torch_threads"), choices.chosen((THREADS,))
    if given is not None:
        torch.set_num_threads(int(given))
    elif n_chosen is not None and not threads_are_said(affinity):
        use_threads(n_chosen)


def possible_threads(n_sharing: int) -> list[int]:
    """Return numbers of torch threads to choose from, the default first: as many as processors can run all the time, half of them, ... 1.

    Args:
        n_sharing: how many training processes share the processors.
    """
    n = read_machine(n_gpu=0).under_quota(len(allowed_cpus())) // n_sharing
    n = max(1, min(n, torch.get_num_threads()))
    return [n >> i for i in range(n.bit_length())]


def machine() -> str:
    """Return all that the answers may depend on, except sizes and threads: processor, number of processors, and versions."""
    n = plural(len(allowed_cpus()), "processor")
    return f"{processor()}, {n} of {os.cpu_count()}, torch {torch.__version__}, {platform.machine()}"


def processor() -> str:
    """Return the name of the processor, with family and model where the system tells them."""
    names = ("model name", "cpu family", "model")
    found: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    told = [found.get(name, "") for name in names]
    return f"{told[0]} (family {told[1]}, model {told[2]})" if all(told) else platform.processor() or platform.machine()


def calibrate(
    agent: Any,
    trained_rows: Sequence[int],
    acting_rows: Sequence[int],
    acting_threads: int | None,
    affinity: Mapping[str, Any],
    n_sharing: int = 1,
    repeats: bool = True,
    directory: Any = None,
) -> dict[str, Any]:
    """Answer the questions about an agent's models, log a line for each, and return the answers. Afterwards torch has the chosen threads.

    Args:
        agent: an agent with models.
        trained_rows: sizes of the batches on which they are trained in this process; empty if that happens on an accelerator.
        acting_rows, acting_threads: sizes of the batches in which they act, and torch threads there.
        affinity: of this process.
        n_sharing: how many training processes share the processors.
        repeats: whether the run must repeat. If not, the load counts: no more threads than idle processors, and nothing is stored that
            was chosen because of the load.
        directory: of the answers of this machine; None is that of the user's caches.
    """
    start = time.perf_counter()
    found = [vars(agent).get(attribute) for attribute in agent.model_names.values()]
    models = [unwrap_ddp(model) for model in found if isinstance(model, torch.nn.Module)]
    image_shape = CompletedSpace(agent.env_spaces.observation).shape
    image_shape = image_shape if image_shape is not None and len(image_shape) == 3 else None
    quantiles = CompletedQuantileAgent(agent)
    load = _Load()
    keeping: dict[str, Any] = dict(machine=machine(), directory=directory, keeps_defaults=repeats)
    answers: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]):
        if trained_rows and not threads_are_said(affinity) and torch.get_num_threads() > 1:
            possible = possible_threads(n_sharing)
            comparison = update_comparison((THREADS,), possible, models, max(trained_rows), image_shape, quantiles.trained_fractions)
            answers[THREADS] = _choose_threads(possible, comparison, keeping, load, repeats)
            use_threads(answers[THREADS])
        bf16 = agent.acting_bf16 and has_bf16(torch.device("cpu"))
        fractions = quantiles.trained_fractions, quantiles.acting_fractions
        asked = comparisons(models, trained_rows, acting_rows, acting_threads, image_shape, bf16, *fractions)
        n, budget = torch.get_num_threads(), choices.BUDGET - (time.perf_counter() - start)
        settled = settle(asked, **keeping, budget=budget, obstacle=partial(load.obstacle, n))
    for line in settled.lines.values():
        logger.log(f"Choice: {line}.", level=2)
    answers |= settled.answers
    if answers:
        logger.log(f"Choices between equal computations took {1e3 * (time.perf_counter() - start):.0f} ms.", level=2)
    return answers


def _choose_threads(possible: list[int], comparison: Any, keeping: dict[str, Any], load: _Load, repeats: bool) -> int:
    """Return the number of torch threads, out of the `possible` ones, and log why; `comparison` is None if nothing can be measured."""
    n, why = possible[0], f"{possible[0]}, what this process can have of the processors"
    if comparison is not None and len(possible) > 1:
        settled = settle([comparison], **keeping, budget=choices.BUDGET / 2, obstacle=partial(load.obstacle, n))
        n, why = settled.answers[THREADS], settled.lines[THREADS].partition(": ")[2]
    if not repeats and load.n_idle < n:
        n, why = load.n_idle, f"{load.n_idle}, since {load}. A run with a given seed ignores the load, so that it repeats"
    logger.log(f"Choice: {THREADS}: {why}.", level=2 if n == torch.get_num_threads() else 1)
    return n


class _Load:
    """The load of other programs on the processors of this process; measured once, at the first access."""

    @cached_property
    def n_busy(self) -> int:
        """Number of processors that other programs use."""
        return round(busy_processors())

    @property
    def n_idle(self) -> int:
        """Number of processors left, at least 1."""
        return max(len(allowed_cpus()) - self.n_busy, 1)

    def __str__(self) -> str:
        return f"other programs keep {self.n_busy} of {plural(len(allowed_cpus()), 'processor')} busy"

    def obstacle(self, n_threads: int) -> str | None:
        """Return the reason why `n_threads` threads cannot be measured, or None: they would wait for other programs."""
        return f"not measured, since {self} now" if len(allowed_cpus()) - self.n_busy < n_threads else None
