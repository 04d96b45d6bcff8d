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
from operator import itemgetter
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
from rlpyt.utils.digests import (
    FILE,
    DigestRow,
    as_bytes,
    digest,
    digest_bytes,
    digest_pieces,
    digests,
    form_digest,
    is_short,
    leaves,
    line_of,
    read_rows,
    together,
)
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import append_whole, atomic_write
from rlpyt.utils.plain import check_form
from rlpyt.utils.seed import raw_rng_states
from rlpyt.utils.text import printable

_SHIFTED = ("prev_action", "prev_reward")  # Views of other fields, one row later.
_FLAGS = ("bootstrap_value", "done", "timeout", "valid", "traj_done")
_MANY = 64  # Batches whose small fields are digested together, since a call takes longer than the few bytes of each.
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
        self._batch: Any = None  # The batch whose memory the next four know.
        self._short: list[tuple[bytearray, memoryview]] = []  # What is put together before it is digested, and the memory of its field.
        self._long: list[tuple[str, np.ndarray]] = []  # Path and memory, as bytes, of other fields.
        self._fields: list[tuple[str, Any]] = []  # Fields whose memory has gaps, or is not the CPU's.
        self._of_ends: dict[str, Any] = {}  # What `_ends` looks at; arrays, where the memory is the CPU's.
        self._pieces: dict[str, bytearray] = {}  # By field, short pieces of bytes that are not digested yet.
        self._n_pieces = 0  # Batches that they are of.
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
        for pieces, view in self._short:
            pieces += view
        for path, data in self._long:
            running[path] = digest_bytes(data, running[path])
        for path, field in self._fields:
            self._add(path, as_bytes(field), running)
        for path, values in self._ends():
            self._add(path, as_bytes(values), running)
        self._n_pieces += 1
        if self._n_pieces == _MANY:
            self._digest_pieces()

    def _add(self, path: str, data: np.ndarray, running: dict[str, int]) -> None:
        """Add bytes [n] to those of a field."""
        if is_short(data):
            self._pieces.setdefault(path, bytearray()).extend(data.data)
        else:
            self._digest_pieces()
            running[path] = digest_bytes(data, running.get(path, 0))

    def _digest_pieces(self) -> None:
        """Digest the pieces of bytes that have been put together."""
        running = self._samples
        if running is not None:
            for path, pieces in self._pieces.items():
                if pieces or path not in running:
                    running[path] = digest_pieces(pieces, running.get(path, 0))
                    pieces.clear()
        self._n_pieces = 0

    def take_data(self, arrays: Any) -> None:
        """Take in a data set, nested dictionaries of arrays, in place of batches. A resumed run takes in the same one again."""
        if self._samples is not None:
            self._samples.update(digests(arrays, "data"))

    def _bind(self, samples: Any, running: dict[str, int]) -> None:
        """Find the memory of a batch, in which later batches come, too. Fields that are new begin with their form."""
        self._digest_pieces()
        self._batch, self._short, self._long, self._fields, self._pieces = samples, [], [], [], {}
        self._of_ends = _fields_of_ends(samples)
        env, agent = (
            {name: field_of(part, name) for name in part._fields if name not in _SHIFTED} for part in (samples.env, samples.agent)
        )
        agent.pop("bootstrap_value", None)
        following = dict(leaves(env.pop("next_observation", None), "env.next_observation"))
        parts = [*leaves(dict(env=env, agent=agent)), *((path, leaf[-1:]) for path, leaf in following.items())]
        for path, leaf in parts:
            array = _in_memory(leaf)
            if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
                self._fields.append((path, leaf))
            elif is_short(data := as_bytes(array)):
                self._short.append((self._pieces.setdefault(path, bytearray()), data.data))
            else:
                self._long.append((path, data))
            running.setdefault(path, form_digest(leaf))

    def _ends(self) -> Iterator[tuple[str, Any]]:
        """Yield path and values of what means something in some places only: values to bootstrap from, last observations of episodes."""
        fields: Iterator[Any] = (None if leaf is None else _array(leaf) for leaf in itemgetter(*_FLAGS)(self._of_ends))
        bootstrap_value, done, timeout, valid, traj_done = fields
        if bootstrap_value is not None:
            yield "agent.bootstrap_value", bootstrap_value[~done[-1:]]
        if not any(flags is not None and flags.any() for flags in (done, timeout, traj_done)):
            return
        timeout = np.zeros_like(done) if timeout is None else timeout
        slots = dict(final_observation=timeout)  # By name, which steps [T,B] have used one each.
        if self._of_ends["terminal_observation"]:
            ended = (done | (done if traj_done is None else traj_done.astype(bool))) & ~timeout
            is_step = valid_steps(done, valid, until_done=not self._mid_batch_reset)
            slots["terminal_observation"] = ended if is_step is None else ended & (is_step > 0)
        for name, steps in slots.items():
            if steps.any():
                n_used = steps.sum(axis=0)  # [B]
                for path, leaf in self._of_ends[name]:  # [K,B,...]
                    yield path, _array(leaf)[np.arange(len(leaf))[:, None] < n_used]

    # Rows -----------------------------------------------------------------------------------------------------------
    def record(self, runner: Any, itr: int, directory: Any) -> None:
        """Record the columns of the next row of the log, and write the digests of its tensors into the file.

        Args:
            runner: has agent, algo, sampler, diagnostics, affinity and n_steps.
            itr: the last iteration.
            directory: directory of the run; None writes no file.
        """
        self._digest_pieces()
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
        self._digest_pieces()
        return dict(samples=None if self._samples is None else dict(self._samples))

    def load_state_dict(self, state: Any) -> None:
        """Continue from a `state_dict`. None is that of a run without digests: then those of the samples stay unknown."""
        self._samples, self._batch, self._pieces = None, None, {}
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


def _fields_of_ends(samples: Any) -> dict[str, Any]:
    """Return the fields of a batch that tell where episodes end, and by name the paths and leaves of what is kept there."""
    env = samples.env
    fields = dict(bootstrap_value=field_of(samples.agent, "bootstrap_value"), traj_done=field_of(env.env_info, "traj_done", None))
    fields |= {name: field_of(env, name) for name in ("done", "timeout", "valid")}  # [T,B]
    found = {name: None if leaf is None else _in_memory(leaf) for name, leaf in fields.items()}
    for name in ("final_observation", "terminal_observation"):
        found[name] = [(path, _in_memory(leaf)) for path, leaf in leaves(field_of(samples, name), name)]
    return found


def _random_digests() -> dict[str, int]:
    """Return the digests of the random generators of this process."""
    states = raw_rng_states()
    version, words, *others = states.pop("python")
    name, key, *rest = states.pop("numpy")
    python = digest_bytes(as_bytes(np.array(words, np.uint32)), digest((version, *others)))
    numpy = digest_bytes(as_bytes(key), digest((name, *rest)))
    return dict(python=python, numpy=numpy, **digests(states))


def _in_memory(leaf: Any) -> Any:
    """Return an array that is the memory of a tensor, if that is the CPU's and numpy knows the dtype; otherwise the tensor."""
    if isinstance(leaf, np.ndarray) or (leaf.device.type == "cpu" and leaf.dtype != torch.bfloat16):
        return np.asarray(leaf)
    return leaf


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
