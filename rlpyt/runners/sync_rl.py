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
from contextlib import suppress
from operator import itemgetter
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from rlpyt.runners.checkpoint import process_state
from rlpyt.runners.group import (
    SEED_STEP,
    interruptibly,
    leave,
    may_be_lost_connection,
    meeting_place,
    process_group,
    raise_first_failure,
    running,
    watching,
)
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval, RunnerMixin
from rlpyt.runners.protocols import CompletedSampler
from rlpyt.samplers.workers import WorkerPool, check_forked_torch_threads, default_start_method
from rlpyt.utils.interrupt import PATIENCE, Interrupt, Overdue
from rlpyt.utils.launching.affinity import for_runner
from rlpyt.utils.left_out import names_left_out
from rlpyt.utils.logging import logger
from rlpyt.utils.processors import check_affinity, check_gpus
from rlpyt.utils.settings import checked

__getattr__ = names_left_out(__name__)

_ANSWER = 3.0  # seconds, at the end of a run, after which a rank that has not abandoned its sampler is considered stuck


class _Ranks(NamedTuple):
    """What is true of a rank, or of any of them, when ranks agree on what to do."""

    waiting: bool = False  # It was told to stop before it sampled.
    sampled: bool = False  # It has sampled the batch of this iteration.
    lost: bool = False  # It has abandoned its sampler.


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
        affinities = _affinities_of_ranks(affinity, n_local, self._launched)
        rank, world_size, local_rank = 0, len(affinities), 0
        if self._launched:
            rank, world_size, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        super().__init__(*args, affinity=affinities[local_rank % len(affinities)], **kwargs)
        self.affinities, self.rank, self.world_size = affinities, rank, world_size
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
                self._check_settings()
                self.launch_workers()
            pool = running(self._pool)
            with watching(pool):
                self._train_in_group(meeting_place(pool.directory, self.world_size))
            pool.request("leave", "ending")
        except (SystemExit, KeyboardInterrupt, Overdue):
            raise
        except BaseException as error:
            if self._interruptible().signal is not None and may_be_lost_connection(error):  # Lost to a rank that the signal has ended.
                raise SystemExit(self._interruptible().exit_code) from error
            if self._pool is not None:
                raise_first_failure(self._pool, error)
            raise
        finally:
            self._found = None
            if self._pool is not None:
                self._pool.kill(grace=0)

    def launch_workers(self) -> None:
        """Start a process for each rank except this one."""
        ranks = range(1, self.world_size)
        replica = copy.copy(self)
        replica.hooks = ()  # Only rank 0 calls hooks, so they need not go through a pipe.
        replica._interrupt = replica._pool = replica._found = None  # Each rank reads its snapshot itself.
        replica.digests = None  # Only rank 0 records them; after a training, they know the memory of its batches.
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
        interruptibly(dist.broadcast_object_list, seeds, src=0, group=self._control)
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
        interruptibly(dist.broadcast_object_list, made, src=0, group=self._control)
        return made[0]

    def _n_sharing(self) -> int:
        """Return the number of ranks on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size)) if self._launched else self.world_size

    def _meet(self) -> None:
        """Wait until all ranks have started their samplers."""
        interruptibly(dist.barrier, group=self._control)

    def _sample(self, itr: int) -> tuple[Any, list]:
        """See the base class. If one rank has no batch, no rank continues."""
        try:
            samples = super()._sample(itr)
        except Overdue:
            self._agree(_Ranks(lost=True))
            raise
        ranks = self._agree(_Ranks(sampled=True))
        if ranks.waiting and not ranks.lost:  # Those ranks sample now, too.
            ranks = self._agree(_Ranks(sampled=True))
        if ranks.lost:
            raise Overdue
        return samples

    def _agree(self, own: _Ranks) -> _Ranks:
        """Wait for all ranks, and record whether any of them was told to stop. All ranks then stop after the same iteration.

        Args:
            own: what is true of this rank.

        Returns:
            What is true of any rank.
        """
        interrupt = self._interruptible()
        flags = torch.tensor([interrupt.signal or 0, *own])
        try:
            with interrupt.abandonable(PATIENCE + _ANSWER, at_least=_ANSWER):
                interruptibly(dist.all_reduce, flags, op=dist.ReduceOp.MAX, group=self._control)
        except Overdue:
            logger.warn("another rank does not answer: the run ends, and the previous snapshot is its last one.")
            if self._pool is not None:
                self._pool.kill(grace=0)
            raise SystemExit(interrupt.exit_code) from None
        signal, *of_any = flags.tolist()
        self._adopt(signal)
        return _Ranks(*map(bool, of_any))

    def _adopt(self, signal: int) -> None:
        """Record the signal that the ranks have agreed on (0 for none), as if this rank had received it, too."""
        if signal:
            self._agreed_signal = signal
            self._interruptible().adopt(signal)

    def _stops(self, interrupt: Interrupt) -> bool:
        """Return whether the ranks have agreed to stop.

        A rank that was told to stop asks the others before it samples. If one of them has sampled already, all do this iteration.
        """
        if self.stop_reason is not None:  # All ranks know it, and ask nobody any more.
            return True
        if interrupt.signal is not None and not self._agreed_signal:
            ranks = self._agree(_Ranks(waiting=True))
            if ranks.sampled and not ranks.lost:
                return False
        return self._is_told(interrupt)

    def _is_told(self, interrupt: Interrupt) -> bool:
        """Return whether the ranks have agreed that one of them was told to end. A later signal is too late to be agreed on."""
        return bool(self._agreed_signal)

    def store_diagnostics(self, itr: int, traj_infos: list, opt_info: Any) -> None:
        """See the base class. Trajectories of other ranks are counted when the next row is logged."""
        self._own_infos.extend(traj_infos)
        if self.rank == 0:
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
            self.take_in(gathered)
            super().log_diagnostics(itr, *args, **kwargs)
        elif itr >= self.min_itr_learn - 1:
            self.save_itr_snapshot(itr)
        self._row_itr = itr
        self._follow_rank_0()

    def _follow_rank_0(self) -> None:
        """Let all ranks agree on the signal of rank 0, if it has one, and stop if it has a reason to."""
        flags = torch.tensor([self._interruptible().signal or 0, self.stop_reason is not None])
        dist.broadcast(flags, src=0, group=self._control)
        signal, is_stopping = flags.tolist()
        self._adopt(self._agreed_signal or signal)
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

    def take_in(self, of_ranks: list[list]) -> None:
        """Count the trajectories of other ranks since the last row, given those `of_ranks`. Only rank 0 calls this."""
        self.diagnostics.count_trajs(sum(map(len, of_ranks[1:])))

    def shutdown(self) -> None:
        """See the base class. Also unwrap the models, so that the group can end."""
        try:
            super().shutdown()
        finally:
            self.agent.unwrap()


class SyncRl(SyncRlMixin, MinibatchRl):
    """Data-parallel training that measures performance by the trajectories of all processes."""

    def take_in(self, of_ranks: list[list]) -> None:
        """See the base class. Mix the trajectories of all ranks in the window of the latest ones, in the order in which they ended."""
        super().take_in(of_ranks)
        for _ in range(min(len(of_ranks[0]), len(self._traj_infos))):  # Rank 0 has added its own already.
            self._traj_infos.pop()
        part_of_time = [(i / len(infos), info) for infos in of_ranks for i, info in enumerate(infos, 1)]
        self._traj_infos.extend(info for _, info in sorted(part_of_time, key=itemgetter(0)))


class SyncRlEval(SyncRlMixin, MinibatchRlEval):
    """Data-parallel training in which rank 0 plays evaluation episodes while the others wait."""

    def evaluate_agent(self, itr: int) -> tuple[list, float]:
        """In rank 0, play evaluation episodes; see the base class. All ranks then know whether a signal has cut them short.

        If the ranks have agreed to end before it, there is no evaluation.
        """
        evaluated: tuple[list, float] = [], 0.0
        if self._agreed_signal:
            return evaluated
        if self.rank == 0:
            try:
                evaluated = super().evaluate_agent(itr)
            except Overdue:  # The other ranks wait for this one.
                self._sampling_is_lost = True
        self._follow_rank_0()
        return evaluated


def _affinities_of_ranks(affinity: Any, n_local: int, launched: bool) -> list[dict]:
    """Return a list of affinities for the ranks of this machine: one for each, or, if `launched` by torchrun, perhaps one for all.

    Args:
        affinity: that of `SyncRlMixin`, with "auto" resolved.
        n_local: number of ranks that torchrun started on this machine.

    Raises:
        ValueError: see `SyncRlMixin`.
    """
    affinities = [affinity] if launched and (affinity is None or isinstance(affinity, dict)) else affinity
    if not isinstance(affinities, (list, tuple)) or not affinities:
        raise ValueError(
            f"affinity={affinity!r} must be a list with one dictionary for each process, e.g. [dict(cuda_idx=0), dict(cuda_idx=1)]."
        )
    for each in affinities:
        check_affinity(each)
    check_gpus(affinities)
    if launched and len(affinities) not in (1, n_local):
        raise ValueError(
            f"affinity lists {len(affinities)} processes, but torchrun started {n_local} on this machine: give one entry for each of them, "
            "or one for all."
        )
    given = [each or {} for each in affinities]
    cuda_idx = given[0].get("cuda_idx")
    if launched and len(given) < n_local and cuda_idx is not None:
        raise ValueError(
            f"affinity has cuda_idx={cuda_idx} for all {n_local} processes of this machine, which need a GPU each: give a list with one "
            "entry for each of them."
        )
    return given


def _replica(pipe: Any, runner: Any, rank: int) -> None:
    """The target of the processes of other ranks, see `WorkerPool`."""
    pipe.send(("ok", None))
    pipe.recv()
    with suppress(SystemExit):  # A signal has ended all ranks.
        runner.be_replica(rank)
    leave(pipe)
