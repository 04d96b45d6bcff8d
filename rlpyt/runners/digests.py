"""Digests of a run's computations in each row of its log, by which another run can be compared with it bit for bit.

====================== ================================================================================================
column                 digest of
====================== ================================================================================================
``DigestSamples``      all batches so far, without memory that means nothing; of `OfflineRl`, the data set
``DigestParameters``   the agent's `state_dict`
``DigestOptimizer``    the algorithm's `optim_state_dict`
``DigestRandom``       the random generators of Python, numpy and torch in the process that trains
====================== ================================================================================================

`rlpyt.utils.digests.FILE`, beside progress.csv, has the digest of every single tensor. The random generators of worker processes show in
the samples.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlpyt.returns import valid_steps
from rlpyt.runners.calibration import processor
from rlpyt.runners.record import versions
from rlpyt.samplers.parallel.base import ParallelSamplerBase
from rlpyt.utils import accelerator
from rlpyt.utils.collections import field_of
from rlpyt.utils.digests import FILE, DigestRow, as_bytes, digest, digest_bytes, digests, form_digest, leaves, line_of, read_rows, together
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import append_whole, atomic_write
from rlpyt.utils.plain import check_form
from rlpyt.utils.seed import raw_rng_states
from rlpyt.utils.text import printable

_SHIFTED = ("prev_action", "prev_reward")  # Views of other fields, one row later.
_is_on = False


def set_digest(on: bool) -> None:
    """Let runners whose `digest` is None record digests, or not: all that are made in this process from now on. At first they do not."""
    global _is_on
    _is_on = on


def is_digested() -> bool:
    """Return whether runners whose `digest` is None record digests."""
    return _is_on


class Digests:
    """Records the digests of a run.

    Args:
        mid_batch_reset: whether the sampler resets environments inside a batch. If not, a column means nothing after its first `done`.
    """

    def __init__(self, mid_batch_reset: bool = True) -> None:
        self._mid_batch_reset = mid_batch_reset
        self._samples: dict[str, int] | None = {}  # By field, of all batches so far; None if earlier batches are not known.
        self._batch: Any = None  # The batch that `_views` and `_fields` belong to.
        self._views: list[tuple[str, np.ndarray]] = []  # Its memory as bytes.
        self._fields: list[tuple[str, Any]] = []  # Fields whose memory has gaps, or is not the CPU's.
        self._n_rows = 0
        self._unwritten: list[bytes] = []
        self._is_first = True

    # Samples --------------------------------------------------------------------------------------------------------
    def take(self, samples: Any) -> None:
        """Take in the next batch [T,B]. Batches in the memory of an earlier one, which is the same object, take less time."""
        running = self._samples
        if running is None:
            return
        if samples is not self._batch:
            self._bind(samples, running)
        for path, view in self._views:
            running[path] = digest_bytes(view, running[path])
        for path, field in self._fields:
            running[path] = digest_bytes(as_bytes(field), running[path])
        for path, values in _ends(samples, self._mid_batch_reset):
            running[path] = digest_bytes(as_bytes(values), running.get(path, 0))

    def take_data(self, arrays: Any) -> None:
        """Take in a data set, nested dictionaries of arrays, in place of batches. A resumed run takes in the same one again."""
        if self._samples is not None:
            self._samples.update(digests(arrays, "data"))

    def _bind(self, samples: Any, running: dict[str, int]) -> None:
        """Find the memory of a batch, in which later batches come, too. Fields that are new begin with their form."""
        self._batch, self._views, self._fields = samples, [], []
        env, agent = (
            {name: field_of(part, name) for name in part._fields if name not in _SHIFTED} for part in (samples.env, samples.agent)
        )
        agent.pop("bootstrap_value", None)
        following = dict(leaves(env.pop("next_observation", None), "env.next_observation"))
        parts = [*leaves(dict(env=env, agent=agent)), *((path, leaf[-1:]) for path, leaf in following.items())]
        for path, leaf in parts:
            is_view = isinstance(leaf, np.ndarray) or leaf.device.type == "cpu"
            array = np.asarray(leaf) if is_view and leaf.dtype != torch.bfloat16 else None
            if array is not None and array.flags.c_contiguous:
                self._views.append((path, as_bytes(array)))
            else:
                self._fields.append((path, leaf))
            running.setdefault(path, form_digest(leaf))

    # Rows -----------------------------------------------------------------------------------------------------------
    def record(self, runner: Any, itr: int, directory: Any) -> None:
        """Record the columns of the next row of the log, and write the digests of its tensors into the file.

        Args:
            runner: has agent, algo, sampler, diagnostics, affinity and n_steps.
            itr: the last iteration.
            directory: directory of the run; None writes no file.
        """
        kinds = {} if self._samples is None else dict(Samples=dict(self._samples))
        kinds["Parameters"] = digests(runner.agent.state_dict())
        kinds["Optimizer"] = digests(runner.algo.optim_state_dict())
        kinds["Random"] = _random_digests()
        for kind, parts in kinds.items():
            logger.record_tabular(f"Digest{kind}", together(parts), detail=True)
        if directory is None:
            return
        self._n_rows += 1
        hexadecimal = {kind: {name: f"{number:016x}" for name, number in parts.items()} for kind, parts in kinds.items()}
        on = depends_on(runner.affinity, isinstance(runner.sampler, ParallelSamplerBase)) if self._is_first else {}
        row = DigestRow(self._n_rows, itr, runner.diagnostics.cum_steps, runner.n_steps, hexadecimal, on)
        self._is_first = False
        self._unwritten.append(line_of(row))
        path = os.path.join(directory, FILE)
        logger.try_to_write(path, lambda: self._write_pending(path))

    def _write_pending(self, path: str) -> None:
        append_whole(path, b"".join(self._unwritten))
        self._unwritten = []

    # Resuming -------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Return the digests of the samples so far, for a snapshot."""
        return dict(samples=None if self._samples is None else dict(self._samples))

    def load_state_dict(self, state: Any) -> None:
        """Continue from a `state_dict`. None is that of a run without digests: then those of the samples stay unknown."""
        self._samples = None
        if state is not None:
            check_form(state, dict(samples=(dict, type(None))), "digests")
            if state["samples"] is not None:
                check_form(state["samples"], dict.fromkeys(state["samples"], int), "digests['samples']")
                self._samples = dict(state["samples"])
        if self._samples is None:
            logger.log("The digests of samples stay unknown, since the run was without digests before.")

    def continue_from(self, file: Any, directory: Any, steps: int) -> None:
        """Begin the file of this run with the rows, up to this number of environment steps, of the run that it continues."""
        if directory is None or not Path(file).is_file():
            return
        try:
            rows = [row for row in read_rows(file) if row.steps <= steps]
        except ValueError as error:
            logger.warn(printable(f"{error} The digests of this run begin with the resumed part."))
            return
        lines = [line_of(row._replace(on=row.on if i == 0 or rows[i - 1].on != row.on else {})) for i, row in enumerate(rows)]
        path = os.path.join(directory, FILE)

        def write() -> None:
            with atomic_write(path) as new_file:
                new_file.write(b"".join(lines))

        logger.try_to_write(path, write)
        self._n_rows = rows[-1].row if rows else 0


def _ends(samples: Any, mid_batch_reset: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield path and values of what means something only in some places: values to bootstrap from, and observations that end episodes."""
    env, bootstrap_value = samples.env, field_of(samples.agent, "bootstrap_value")
    done, timeout, valid = (_array(field_of(env, name)) for name in ("done", "timeout", "valid"))  # [T,B]
    if bootstrap_value is not None:
        yield "agent.bootstrap_value", _array(bootstrap_value)[~done[-1:]]
    timeout = np.zeros_like(done) if timeout is None else timeout
    slots = dict(final_observation=timeout)  # By name, which steps [T,B] have used one each.
    if field_of(samples, "terminal_observation") is not None:
        ended = (done | _array(field_of(env.env_info, "traj_done", done)).astype(bool)) & ~timeout
        is_step = valid_steps(done, valid, until_done=not mid_batch_reset)
        slots["terminal_observation"] = ended if is_step is None else ended & (is_step > 0)
    for name, steps in slots.items():
        if steps.any():
            n_used = steps.sum(axis=0)  # [B]
            for path, leaf in leaves(field_of(samples, name), name):  # [K,B,...]
                yield path, _array(leaf)[np.arange(len(leaf))[:, None] < n_used]


def _random_digests() -> dict[str, int]:
    """Return the digests of the random generators of this process."""
    states = raw_rng_states()
    version, words, *others = states.pop("python")
    name, key, *rest = states.pop("numpy")
    python = digest_bytes(as_bytes(np.array(words, np.uint32)), digest((version, *others)))
    numpy = digest_bytes(as_bytes(key), digest((name, *rest)))
    return dict(python=python, numpy=numpy, **digests(states))


def _array(values: Any) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


@functools.cache
def _machine() -> dict[str, Any]:
    found = {"python": platform.python_version(), **versions(), "processor": processor()}
    return {**found, "instructions": torch.backends.cpu.get_cpu_capability()}


WORKERS = "workers of parallel samplers"  # a condition


def depends_on(affinity: Mapping[str, Any], has_workers: bool = False) -> dict[str, Any]:
    """Return what the bits of a run may depend on, except the code: versions, processor, GPU, and numbers of torch threads and workers.

    Not all is here: neither the driver of the GPU, nor versions of other packages, such as that of an environment.

    Args:
        affinity: affinity of the runner.
        has_workers: whether its sampler has a worker process for each entry of ``workers_cpus``.
    """
    found, cuda_idx = {**_machine(), "torch threads": torch.get_num_threads()}, affinity.get("cuda_idx")
    if has_workers and affinity.get("workers_cpus"):
        found[WORKERS] = len(affinity["workers_cpus"])
    if affinity.get("worker_torch_threads") is not None:
        found["worker torch threads"] = affinity["worker_torch_threads"]
    if cuda_idx is not None:
        found.update({"GPU": accelerator.name(cuda_idx), "CUDA": torch.version.cuda or torch.version.hip})
    return found
