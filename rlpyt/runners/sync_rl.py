"""Training in several processes at once, each with a replica of sampler, algorithm and agent. Gradients are averaged between them.

The runner starts the replicas, one for each entry of its list of affinities. Or ``torchrun`` starts all replicas, on one machine or
several, with the same script::

    python train.py                                  # affinity=[dict(cuda_idx=0, ...), dict(cuda_idx=1, ...)]
    torchrun --nproc-per-node 2 train.py

Ranks exchange gradients inside DistributedDataParallel, by NCCL between GPUs and by gloo otherwise. Between iterations, they exchange
everything else (trajectories, whether to stop) in a second group, which uses gloo.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from multiprocessing.util import get_temp_dir
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from rlpyt.runners.checkpoint import process_state
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval, RunnerMixin
from rlpyt.runners.protocols import CompletedSampler
from rlpyt.samplers.workers import WATCH_INTERVAL, WorkerError, WorkerPool, check_forked_torch_threads, default_start_method
from rlpyt.utils import accelerator
from rlpyt.utils.interrupt import PATIENCE, Interrupt, Overdue
from rlpyt.utils.launching.affinity import for_runner
from rlpyt.utils.logging import logger
from rlpyt.utils.processors import check_affinity, check_gpus
from rlpyt.utils.settings import checked

_PATIENCE = timedelta(days=7)  # Ranks may wait long for each other, for example for an evaluation; deaths are noticed by other means.
_ANSWER = 3.0  # seconds, at the end of a run, after which a rank that has not abandoned its sampler is considered stuck
_GRACE = 5.0  # seconds for the report of a rank that failed, and for a wait for that rank to raise an error
SEED_STEP = 100  # Distance between the seeds of ranks. Environments have separate random streams.

T = TypeVar("T")


class SyncRlMixin(RunnerMixin):
    """Trains in several processes. Put it in front of a runner: ``class SyncRl(SyncRlMixin, MinibatchRl)``.

    Sampler and algorithm have their batch dimensions per process, so n processes sample n times as much and train on n times as much.
    Rank 0 logs, evaluates and saves.

    Args:
        affinity: a list with one dictionary per process, as for `MinibatchRl`. Under torchrun, one per process of this machine, or one for
            all. "auto" starts a process for each GPU.
        kwargs: arguments of the runner.

    Raises:
        ValueError: `affinity` is no such list, or does not fit torchrun's number of processes.
    """

    affinities: list[dict]
    _control: Any = None  # The group in which ranks exchange objects, while they train.

    @checked()
    def __init__(self, *args: Any, affinity: Any = None, **kwargs: Any) -> None:
        self._launched = "TORCHELASTIC_RUN_ID" in os.environ or "LOCAL_WORLD_SIZE" in os.environ
        n_local = int(os.environ.get("LOCAL_WORLD_SIZE", 0))  # 0 is one per GPU.
        affinity = for_runner(affinity, kwargs.get("sampler", args[2] if len(args) > 2 else None), n_process=n_local)
        affinities = [affinity] if self._launched and (affinity is None or isinstance(affinity, dict)) else affinity
        if not isinstance(affinities, (list, tuple)) or not affinities:
            raise ValueError(
                f"affinity={affinity!r} must be a list with one dictionary for each process, e.g. [dict(cuda_idx=0), dict(cuda_idx=1)]."
            )
        for each in affinities:
            check_affinity(each)
        check_gpus(affinities)
        rank, world_size, local_rank = 0, len(affinities), 0
        if self._launched:
            rank, world_size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
            if len(affinities) not in (1, n_local):
                raise ValueError(
                    f"affinity lists {len(affinities)} processes, but torchrun started {n_local} on this machine: give one entry for each "
                    "of them, or one for all."
                )
            cuda_idx = (affinities[0] or {}).get("cuda_idx")
            if len(affinities) < n_local and cuda_idx is not None:
                raise ValueError(
                    f"affinity has cuda_idx={cuda_idx} for all {n_local} processes of this machine, which need a GPU each: give a list "
                    "with one entry for each of them."
                )
        super().__init__(*args, affinity=affinities[local_rank % len(affinities)] or {}, **kwargs)
        self.affinities = [each or {} for each in affinities]
        self.rank, self.world_size = rank, world_size
        self._pool: WorkerPool | None = None

    # Processes ------------------------------------------------------------------------------------------------------
    def train(self) -> None:
        """Start the replicas, unless torchrun did, and train together with them."""
        with self._interruptible() as interrupt:
            if self._launched:
                self._train_in_group(None)
            else:
                self._launch_and_train()
        if interrupt.signal is not None:  # It arrived after training had ended.
            raise interrupt.ended()

    def _launch_and_train(self) -> None:
        """Start the other ranks, if any. They meet this one at a file."""
        if self.world_size == 1:
            self._train_in_group(dist.HashStore())
            return
        try:
            with self._interruptible().abandonable(patience=0):
                self.launch_workers()
            pool = running(self._pool)
            with watching(pool):
                self._train_in_group(meeting_place(pool.directory, self.world_size))
            pool.request("leave", "ending")
        except (SystemExit, KeyboardInterrupt, Overdue):
            raise
        except BaseException as error:
            if self._interruptible().signal is not None and _may_be_lost_connection(error):  # Lost to a rank that the signal has ended.
                raise SystemExit(self._interruptible().exit_code) from error
            if self._pool is not None:
                raise_first_failure(self._pool, error)
            raise
        finally:
            if self._pool is not None:
                self._pool.kill(grace=0)

    def launch_workers(self) -> None:
        """Start a process for each rank except this one."""
        ranks = range(1, self.world_size)
        replica = copy.copy(self)
        replica.hooks = ()  # Only rank 0 calls hooks, so they need not go through a pipe.
        replica._interrupt = replica._pool = None
        start_method = CompletedSampler(self.sampler).start_method or default_start_method()
        for rank in ranks:
            n_threads = self.affinities[rank].get("master_torch_threads") or torch.get_num_threads()
            check_forked_torch_threads(n_threads, start_method, "master_torch_threads")
        self._pool = WorkerPool(
            _replica,
            [dict(runner=replica, rank=rank) for rank in ranks],
            [f"rank {rank} of {self.world_size}" for rank in ranks],
            start_method=start_method,
        )
        self._pool.receive()
        self._pool.send("train", "training")

    def _train_in_group(self, store: Any) -> None:
        with process_group(self, store):
            super().train()
            gc.collect()  # Wrapped models refer to the group in cycles, and must be deleted before it.

    def be_replica(self, rank: int) -> None:
        """Train as this rank, in its process."""
        self.rank, self.affinity = rank, self.affinities[rank]
        self._train_in_group(meeting_place(None, self.world_size))

    # Steps that ranks take together ---------------------------------------------------------------------------------
    def startup(self) -> int:
        """Start up with the seed of rank 0; only rank 0 logs."""
        if self.rank > 0:
            logger.disable()
            logger.disable_tabular()
            logger.set_snapshot_mode("none")
        if self.rank == 0:
            self._settle_seed()
        seeds = [self.seed]
        dist.broadcast_object_list(seeds, src=0, group=self._control)
        self.seed = seeds[0]
        return super().startup()

    @property
    def process_seed(self) -> int:
        """Seed of the random generators of this process."""
        return self._settle_seed() + SEED_STEP * self.rank

    def _interruptible(self) -> Interrupt:
        """See the base class. In a rank that rank 0 started, a repeated signal has no effect, because rank 0 handles it."""
        interrupt = super()._interruptible()
        if self.rank > 0:
            interrupt.says, interrupt.may_repeat = None, self._launched
        return interrupt

    def _on_signal(self) -> None:
        """See the base class. Pass the signal on to the ranks that this one started."""
        super()._on_signal()
        signal = None if self._interrupt is None else self._interrupt.signal
        for process in [] if self._pool is None else self._pool.processes:
            if process.pid is not None and signal is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal)

    def _make_choices(self, agent: Any) -> dict[str, Any]:
        """See the base class. Rank 0 decides for all ranks."""
        made = [super()._make_choices(agent) if self.rank == 0 else {}]
        dist.broadcast_object_list(made, src=0, group=self._control)
        return made[0]

    def _n_sharing(self) -> int:
        """Return the number of ranks on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size)) if self._launched else self.world_size

    def _meet(self) -> None:
        """Wait until all ranks have started their samplers."""
        self._agree()

    def _sample(self, itr: int) -> tuple[Any, list]:
        """See the base class. If one rank has no batch, no rank continues."""
        try:
            samples = super()._sample(itr)
        except Overdue:
            self._agree(is_lost=True)
            raise
        if self._agree():
            raise Overdue
        return samples

    def _agree(self, is_lost: bool = False) -> bool:
        """Wait for all ranks, and record whether any of them was told to stop. All ranks then stop after the same iteration.

        Args:
            is_lost: whether this rank has abandoned its sampler.

        Returns:
            Whether any rank has abandoned its sampler.
        """
        interrupt = self._interruptible()
        flags = torch.tensor([interrupt.signal or 0, is_lost])
        try:
            with interrupt.abandonable(PATIENCE + _ANSWER):
                _interruptibly(dist.all_reduce, flags, op=dist.ReduceOp.MAX, group=self._control)
        except Overdue:
            logger.warn("another rank does not answer: the run ends, and the previous snapshot is its last one.")
            if self._pool is not None:
                self._pool.kill(grace=0)
            raise SystemExit(interrupt.exit_code) from None
        self._agreed_signal, any_lost = flags.tolist()
        return bool(any_lost)

    def _stops(self, interrupt: Interrupt) -> bool:
        """Return whether the ranks have agreed to stop."""
        if self._agreed_signal:
            interrupt.adopt(self._agreed_signal)
        return super()._stops(interrupt)

    def _is_told(self, interrupt: Interrupt) -> bool:
        """Return whether the ranks have agreed that one of them was told to end. A later signal is too late to be agreed on."""
        return bool(self._agreed_signal)

    def store_diagnostics(self, itr: int, traj_infos: list, opt_info: Any) -> None:
        """See the base class. Trajectories of other ranks are counted when the next row is logged."""
        if self.rank > 0:
            self._own_infos.extend(traj_infos)
            return
        super().store_diagnostics(itr, traj_infos, opt_info)

    def initialize_logging(self) -> None:
        self._own_infos: list = []
        self._agreed_signal = 0
        super().initialize_logging()

    def log_diagnostics(self, itr: int, *args: Any, **kwargs: Any) -> None:
        """Gather the trajectories of all ranks and log a row. All ranks then continue together, or stop if rank 0 so decides."""
        gathered: list | None = [None] * self.world_size if self.rank == 0 else None
        own, self._own_infos = self._own_infos, []
        dist.gather_object(own, gathered, dst=0, group=self._control)
        if gathered is not None:
            self.take_in([info for infos in gathered for info in infos])
            super().log_diagnostics(itr, *args, **kwargs)
        elif itr >= self.min_itr_learn - 1:
            self.save_itr_snapshot(itr)
        self._row_itr = itr
        flags = torch.tensor([self._interruptible().signal or 0, self.stop_reason is not None])
        dist.broadcast(flags, src=0, group=self._control)
        signal, is_stopping = flags.tolist()
        self._agreed_signal = self._agreed_signal or signal
        if is_stopping and self.stop_reason is None:
            self.stop_reason = "Rank 0 decided so."

    def _save(self, itr: int, force: bool = False) -> None:
        """See the base class. Rank 0 saves the snapshot, with the states of the other ranks. Each rank saves its replay buffer."""
        where = [self.snapshots.get_snapshot_dir() if self.rank == 0 and self.snapshots.is_snapshot_due(itr, force) else None]
        dist.broadcast_object_list(where, src=0, group=self._control)
        if where[0] is None:
            return
        saver = self.saver
        own = saver.save_own(process_state(self), self._saved_replay, where[0], self.rank) if self.rank > 0 else None
        states: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        dist.gather_object(own, states, dst=0, group=self._control)
        self._states = states
        saver.begin()
        if states is not None and None not in states[1:]:
            super()._save(itr, force)
            saver.wait()
        is_saved = [saver.is_saved]
        dist.broadcast_object_list(is_saved, src=0, group=self._control)
        saver.is_saved = is_saved[0]
        if self.rank > 0:
            saver.delete_old_replay()

    def get_itr_snapshot(self, itr: int) -> dict:
        """Return the snapshot with the states of the other ranks."""
        snapshot = super().get_itr_snapshot(itr)
        snapshot["run"]["ranks"] = self._states
        return snapshot

    def take_in(self, traj_infos: list) -> None:
        """Count trajectories of other ranks. Only rank 0 calls this."""
        self.diagnostics.count_trajs(len(traj_infos))

    def shutdown(self) -> None:
        """See the base class. Also unwrap the models, so that the group can end."""
        try:
            super().shutdown()
        finally:
            self.agent.unwrap()


class SyncRl(SyncRlMixin, MinibatchRl):
    """Data-parallel training that measures performance by the trajectories of all processes."""

    def take_in(self, traj_infos: list) -> None:
        """See the base class. Add the trajectories to the window of the latest ones."""
        super().take_in(traj_infos)
        self._traj_infos.extend(traj_infos)


class SyncRlEval(SyncRlMixin, MinibatchRlEval):
    """Data-parallel training in which rank 0 plays evaluation episodes while the others wait."""

    def evaluate_agent(self, itr: int) -> tuple[list, float]:
        """In rank 0, play evaluation episodes; see the base class."""
        if self.rank > 0:
            return [], 0.0
        try:
            return super().evaluate_agent(itr)
        except Overdue:  # The other ranks wait for the row of the log.
            self._sampling_is_lost = True
            return [], 0.0


def _replica(pipe: Any, runner: Any, rank: int) -> None:
    """The target of the processes of other ranks, see `WorkerPool`."""
    pipe.send(("ok", None))
    pipe.recv()
    with suppress(SystemExit):  # A signal has ended all ranks.
        runner.be_replica(rank)
    leave(pipe)


def leave(pipe: Any) -> None:
    """End this process, a rank of a group, once all ranks are done."""
    pipe.send(("ok", None))
    pipe.recv()
    pipe.send(("ok", None))
    os._exit(0)  # A normal exit sometimes aborts while threads of the group still run.


def raise_first_failure(pool: WorkerPool, error: BaseException) -> None:
    """If this process only lost its connection because another process failed first, raise the error of that process."""
    if not _may_be_lost_connection(error):  # This process failed first, and the others lost their connection to it.
        return
    ended = threading.Event()
    ended.wait(0.1)
    for _ in range(int(_GRACE / 0.1)):
        for i, process in enumerate(pool.processes):
            if pool.pipes[i].poll() or process.exitcode is not None:
                try:
                    pool._fail(i)
                except WorkerError as failure:
                    raise failure from error
        ended.wait(0.1)


def _interruptibly(collective: Callable, *args: Any, **kwargs: Any) -> None:
    """Call `collective` in another thread, so that this thread handles signals meanwhile."""
    errors = []

    def call() -> None:
        try:
            collective(*args, **kwargs)
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    ended = threading.Event()
    threading.Thread(target=call, name="wait for ranks", daemon=True).start()
    ended.wait()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # An error refers to the thread's frame, and so to the group, which must be deleted before another one.


def _may_be_lost_connection(error: BaseException) -> bool:
    """Return whether an error is a RuntimeError raised inside a function of torch."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, RuntimeError) and bool(frames) and frames[-1].filename.startswith(os.path.dirname(torch.__file__))


def running(part: T | None) -> T:
    """Return a part of a run that exists from its startup on, such as a pool; RuntimeError before."""
    if part is None:
        raise RuntimeError("The run has not started: call its train().")
    return part


def meeting_place(directory: str | None, world_size: int) -> Any:
    """Return the store at which processes meet: a file in the directory of their pool, which is deleted with the pool.

    None is for workers, in which multiprocessing's `get_temp_dir` returns that directory.
    """
    return dist.FileStore(os.path.join(get_temp_dir() if directory is None else directory, "ranks"), world_size)


@contextmanager
def process_group(runner: Any, store: Any) -> Iterator[None]:
    """Make `runner` a rank of the group that meets at `store`, or by torchrun's settings if that is None."""
    if runner.world_size > 1:  # Wrapping a model imports this. Torch then keeps a group that exists already until the process ends.
        import_module("torch._dynamo")
    cuda_idx = runner.affinity.get("cuda_idx")
    if store is not None:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, _loopback())  # All ranks are on this machine.
    backend = "gloo"
    if cuda_idx is not None:
        device = accelerator.device_of(cuda_idx)
        accelerator.use(device)
        backend = dist.get_default_backend_for_device(device)
    where = dict(init_method="env://") if store is None else dict(store=store, rank=runner.rank, world_size=runner.world_size)
    dist.init_process_group(backend, timeout=_PATIENCE, **where)
    runner._control = dist.group.WORLD if backend == "gloo" else dist.new_group(backend="gloo", timeout=_PATIENCE)
    try:
        yield
        _interruptibly(dist.barrier, group=runner._control)  # No rank leaves while another still talks to it.
    finally:
        runner._control = None
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _loopback() -> str:
    import socket

    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), names[0])


@contextmanager
def watching(pool: WorkerPool) -> Iterator[None]:
    """End this process if another rank has died and the wait for it does not end by itself, as with NCCL."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_INTERVAL):
            dead = [i for i, process in enumerate(list(pool.processes)) if process.exitcode not in (None, 0)]
            if dead and not done.wait(2 * _GRACE):
                logger.log(f"ERROR: the run ends. {pool.last_words(dead[0])}", level=0)
                pool.kill(grace=0)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(1)

    threading.Thread(target=watch, name="watch ranks", daemon=True).start()
    try:
        yield
    finally:
        done.set()
