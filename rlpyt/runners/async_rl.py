"""Sampling and training at the same time, in separate processes.

Algorithms that replay::

    sampling process(es)  --batch in one of two buffers-->  memory copier  -->  replay buffer  -->  optimizer(s)
                          <--parameters, each time they have been trained--------------------------  (this process is the first one)
                          <--how many batches may begin, if `max_batches_ahead` is set-------------

While the copier reads one buffer, sampling continues in the other. The copier appends batches in the order of sampling. There is only one
copier, because several would have to take turns. Any number of GPUs will do, including 0.

Optimization waits whenever it would otherwise exceed `replay_ratio` replayed samples per sampled step. Without `max_batches_ahead`,
sampling never waits for optimization: `replay_ratio` is an upper bound. If both share processors, sampling then has a low priority. With
`max_batches_ahead`, sampling waits when it is that far ahead, so that the run keeps to the ratio.

Algorithms that correct for the age of the policy (`corrects_lag`), such as Impala and Appo::

    sampling process(es)  --batch in one of 1 + max_batches_ahead buffers-->  optimizer(s)
                          <--parameters, each time they have been trained---  (this process is the first one)

Each batch is trained on once, in the order of sampling, where it is. Sampling waits while all buffers are full, and optimization while the
next one is not.
"""

from __future__ import annotations

import copy
import gc
import itertools
import multiprocessing
import os
import time
from collections import namedtuple
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist

from rlpyt.runners.calibration import set_torch_threads
from rlpyt.runners.checkpoint import restore, restore_training, tell_restarted
from rlpyt.runners.group import SEED_STEP, leave, meeting_place, process_group, raise_first_failure, running, watching
from rlpyt.runners.minibatch_rl import OF_RUNNERS, MinibatchRl, MinibatchRlBase, MinibatchRlEval
from rlpyt.runners.protocols import AsyncAlgorithm, AsyncBatchSampler, CompletedAlgorithm, CompletedSampler
from rlpyt.runners.record import record_resumed
from rlpyt.samplers.signals import Semaphore
from rlpyt.samplers.workers import WATCH_INTERVAL, WorkerPool, check_forked_torch_threads, default_start_method, send_by_value
from rlpyt.types import BatchSpec
from rlpyt.utils.buffer import cloned, np_mp_array, torchify_buffer
from rlpyt.utils.interrupt import CLOSING, Overdue
from rlpyt.utils.launching.affinity import for_runner
from rlpyt.utils.launching.exp_launcher import pause_at
from rlpyt.utils.left_out import names_left_out
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.snapshot import read_snapshot
from rlpyt.utils.misc import many_files
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.processors import bind_master, check_gpus, share_processors, split_async_affinity
from rlpyt.utils.seed import env_seed, set_seed
from rlpyt.utils.settings import COUNT, checked
from rlpyt.utils.stopwatch import Stopwatch
from rlpyt.utils.synchronize import ProcessLock

__getattr__ = names_left_out(__name__)

ALL = int(np.iinfo(np.int64).max)  # batches
NICENESS = 15  # Of sampling processes that share processors with training. While both are busy, sampling gets a thirtieth of a processor.


class AsyncRlBase(MinibatchRlBase):
    """The base of asynchronous runners. Put it in front of a runner: ``class AsyncRl(AsyncRlBase, MinibatchRl)``.

    The algorithm must learn from replay, or correct for the age of the policy that acted (Impala, Appo). The sampler must be asynchronous
    (`rlpyt.samplers.async_`). The log interval counts sampled steps, as in other runners. `Iteration` counts calls of `optimize_agent`,
    `SamplerIteration` counts the sampler's batches. Without replay, several optimizers share out the columns of each batch.

    Args:
        affinity: ``optimizer`` (a list with one dictionary for each optimizing process: ``cpus``, ``cuda_idx``, ``torch_threads``,
            ``set_affinity``) and ``sampler`` (the dictionary of a synchronous run, or a list of them for several sampling processes). Or
            the dictionary of a synchronous run for both. Or "auto".
        max_batches_ahead: with replay, the number of batches that may be sampled beyond those that the next call of `optimize_agent`
            needs by `replay_ratio`; then sampling waits. If None, it never waits. Without replay, the number of batches that may be
            sampled while the optimizer trains on an earlier one, 1 if None. Each of these takes about 30 open files.
        kwargs: arguments of the runner.

    Raises:
        ValueError: sampler, algorithm or affinity is unsuitable.
    """

    algo: AsyncAlgorithm
    sampler: AsyncBatchSampler
    sampler_affinities: list[dict]
    _control: Any = None  # The group in which optimizing processes exchange objects, while they train.
    _evaluation: tuple[Any, ...] = ()  # If the runner evaluates: TrajInfos and seconds of the evaluation of the present row.
    _evaluated: list[torch.Tensor] | None = None  # The parameters that acted in the evaluation of the last row, if best.pkl is kept.
    _eval_pauses_training = False

    @checked(OF_RUNNERS, max_batches_ahead=COUNT)
    def __init__(
        self,
        algo: Any,
        agent: Any,
        sampler: Any,
        n_steps: int | float,
        affinity: Any = None,
        *,
        max_batches_ahead: int | None = None,
        **kwargs: Any,
    ) -> None:
        affinity = for_runner(affinity, sampler, async_sample=True)
        self.optimizer_affinities, self.sampler_affinities = split_async_affinity(affinity)
        check_gpus([*self.optimizer_affinities, *self.sampler_affinities])
        if not CompletedSampler(sampler).async_:
            raise ValueError(
                f"{type(self).__name__} needs a sampler from rlpyt.samplers.async_, such as AsyncCpuSampler; "
                f"{type(sampler).__name__} is for runners that wait for each batch."
            )
        self._replays = CompletedAlgorithm(algo).samples_to_buffer is not None
        if not self._replays and not CompletedAlgorithm(algo).corrects_lag:
            raise ValueError(
                f"{type(algo).__name__} learns from the batch just sampled, so sampling cannot run ahead of it: "
                f"{type(self).__name__} is for algorithms that learn from replay, such as DQN or SAC, and for those that correct for the "
                "age of the policy that acted: Impala (in place of A2C) and Appo (in place of PPO)."
            )
        super().__init__(algo=algo, agent=agent, sampler=sampler, n_steps=n_steps, affinity=self.optimizer_affinities[0], **kwargs)
        if self.digest:
            raise ValueError(
                f"digest=True is for runs that repeat bit for bit, but in {type(self).__name__} the speed of processes matters: "
                "leave digest out, or take a synchronous sampler."
            )
        self.max_batches_ahead = max_batches_ahead if self._replays else max_batches_ahead or 1
        self.world_size = len(self.optimizer_affinities)
        B, n = sampler.batch_spec.B, self.world_size
        if not self._replays and B % n:
            raise ValueError(f"batch_B={B} columns cannot be shared out evenly among {n} optimizers: make batch_B a multiple of {n}.")
        self._pool: WorkerPool | None = None
        self._lines: _Lines | None = None
        self._ended = False  # Whether all processes have finished.

    # The run --------------------------------------------------------------------------------------------------------
    def train(self) -> None:
        """Optimize as often as the replay ratio allows while other processes sample, and log at every interval of sampled steps."""
        self._forget_earlier_training()
        self._lines, self._ended = None, False
        with logger.verbosity(self.verbose), self._interruptible() as interrupt, ExitStack() as stack:
            stack.callback(self._shutdown_in_time)
            try:
                with interrupt.abandonable(patience=0), many_files():
                    self.startup()
                    if self.world_size > 1:
                        pool = running(self._pool)
                        stack.enter_context(watching(pool))
                        stack.enter_context(process_group(self, meeting_place(pool.directory, self.world_size)))
                    self.optim_startup()
                    self.start_sampling()
                try:
                    while self.wait_for_samples():
                        self.optimize()
                except Overdue:
                    self._abandon_sampling()
                self._end_optimizers()
            except RuntimeError as error:
                if self.world_size > 1 and self._pool is not None and self._pool.processes:
                    raise_first_failure(self._pool, error)
                raise
            self._finish(self.sampler_itr, interrupt)
        self._say_end(interrupt)

    def _shutdown_in_time(self) -> None:
        self._found = None
        with self._interruptible().abandonable(at_least=CLOSING):
            self.shutdown()

    def startup(self) -> int:
        """Initialize sampler and replay buffer in shared memory, and start the other processes; return the number of batches."""
        self._check_settings()
        n_batches = 2 if self._replays else 1 + cast(int, self.max_batches_ahead)
        self._lines = lines = _Lines(len(self.sampler_affinities), self.sampler.batch_spec.B, n_batches)
        self._forget_choices()
        self._settle()
        sampling_seed = self._settle_seed() + 1
        if self._found is not None:
            _, snapshot = self._found  # With the seed of the run, the environments would repeat its episodes.
            sampling_seed = env_seed(snapshot["run"]["seed"], "algo", snapshot["cum_steps"] // self.sampler.batch_spec.size)
        with self._choosing():
            _, examples = self.sampler.async_initialize(
                agent=self.agent,
                bootstrap_value=self.algo.bootstrap_value,
                traj_info_kwargs=self.get_traj_info_kwargs(),
                seed=sampling_seed,
                **({} if self._replays else dict(n_batches=n_batches)),
            )
        self.itr_batch_size = self.sampler.batch_spec.size  # env steps
        n_itr = self.get_n_itr()
        lines.n_batches[0] = n_itr
        sampler: dict[str, Any] = dict(batch_spec=self.sampler.batch_spec, mid_batch_reset=self.sampler.mid_batch_reset, examples=examples)
        if self._replays:
            self.algo.async_initialize(agent=self.agent, sampler_n_itr=n_itr, **sampler, world_size=self.world_size)
            self.feed: _Replayed | _Direct = _Replayed()
        else:
            self.feed = _Direct(self._batches_np, **sampler, n_itr=n_itr, world_size=self.world_size, restarted=lines.restarted)
        self._warn_if_nothing_is_learned()
        self.launch_workers()
        return n_itr

    @property
    def _batches_np(self) -> list:
        """The sampler's batches as arrays in shared memory."""
        return [samples_np for _, samples_np in self.sampler._batches]

    def _acting(self) -> tuple[list[int], int | None]:
        """See the base class."""
        affinity = self.sampler_affinities[0]
        rows, n_threads = CompletedSampler(self.sampler).acting(affinity)
        return rows, n_threads or affinity.get("master_torch_threads") or 1

    def _trained_spec(self) -> BatchSpec:
        """See the base class. Without replay, optimizers share out the columns."""
        T, B = self.sampler.batch_spec
        return BatchSpec(T, B if self._replays else B // self.world_size)

    def _n_sharing(self) -> int:
        """See the base class."""
        return self.world_size

    def _forks_with_threads(self) -> bool:
        """See the base class."""
        is_forked = (self.sampler.start_method or default_start_method()) == "fork"
        names = "master_torch_threads", "worker_torch_threads"
        several = any((affinity.get(name) or 1) > 1 for affinity in self.sampler_affinities for name in names)
        return is_forked and (self.world_size > 1 or several)

    def launch_workers(self) -> None:
        """Start the sampling processes, the memory copier if there is replay, and all optimizing processes except this one."""
        start_method = self.sampler.start_method or default_start_method()
        for default, affinities in ((1, self.sampler_affinities), (torch.get_num_threads(), self.optimizer_affinities[1:])):
            for affinity in affinities:
                check_forked_torch_threads(affinity.get("master_torch_threads") or default, start_method, "master_torch_threads")
        processes = self._sampling_processes(start_method)
        if self._replays:
            processes["the memory copier"] = dict(
                work=_copy, algo=self.algo, batches_np=self._batches_np, lines=self._lines, n_parts=len(self._reports)
            )
        trains_here = any(affinity.get("cuda_idx") is None for affinity in self.optimizer_affinities)
        # Sampling that waits for training takes no processor away from it in the long run.
        never_waits = self._replays and self.max_batches_ahead is None
        if trains_here and never_waits and share_processors(self.optimizer_affinities, self.sampler_affinities):
            for kwargs in processes.values():
                kwargs["niceness"] = NICENESS
        for rank in range(1, self.world_size):
            processes[f"optimizer {rank} of {self.world_size}"] = dict(work=_Optimizer(self, rank).train)
        self._pool = WorkerPool(_work, [dict(kwargs=kwargs) for kwargs in processes.values()], list(processes), start_method=start_method)

    def _sampling_processes(self, start_method: str) -> dict[str, dict[str, Any]]:
        """Return the arguments of `_work` for each sampling process, by its name; open the pipes for their reports."""
        parts = [copy.copy(part) for part in self.sampler.parts(len(self.sampler_affinities))]
        if self.resume_from is not None:
            for part in parts:
                part.max_decorrelation_steps = 0  # After a resume, appended samples begin with new episodes.
        pipes = [multiprocessing.get_context(start_method).Pipe(duplex=False) for _ in parts]
        self._reports, self._report_ends = [receive for receive, _ in pipes], [send for _, send in pipes]
        n, first_columns = len(parts), [0, *itertools.accumulate(part.batch_spec.B for part in parts)]
        return {
            "the sampling process" if n == 1 else f"sampling process {i} of {n}": dict(
                work=_sample,
                sampler=part,
                affinity=affinity,
                part=i,
                first_column=first_columns[i],
                seed=env_seed(self.sampler.seed, "agent", i),
                lines=self._lines,
                report=report,
                eval_interval=self.log_interval_itrs if self._eval else None,
                is_resumed=self.resume_from is not None,
                tells_parameters=i == 0 and self.snapshots.keeps_best(),
                min_itr_learn=self.min_itr_learn,
            )
            for i, (part, affinity, report) in enumerate(zip(parts, self.sampler_affinities, self._report_ends))
        }

    def optim_startup(self) -> None:
        """Bind this process, move the agent to its device, and build the optimizer. All other processes have already been started."""
        _start_optimizer(self)
        self.initialize_logging()

    def initialize_logging(self) -> None:
        super().initialize_logging()
        self._OptInfoCls: Any = namedtuple("OptInfo", self.algo.opt_info_fields)  # type: ignore[misc]
        self.opt_itr = 0  # Number of calls of optimize_agent.
        self.sampler_itr = -1  # The latest batch whose TrajInfos have arrived.
        self.n_copied = 0  # Number of batches in the replay buffer; without replay, of those that are trained on.
        self._n_filled = 0  # Without replay, the number of sampling processes that have filled their part of the next batch.
        self._lags: list[float] = []  # Of the batches trained on since the last row of the log, in versions of the parameters.
        self.sampler_parameters_version = 0
        self._evaluated = None
        self.throttled = Stopwatch()
        self._pending: dict[int, list] = {}  # Reports on batches for which the reports of other sampling processes are missing.
        self._n_sampling = len(self._reports)
        self._ratio_since = self.min_itr_learn, 0  # Batch and update from which the replay ratio counts.

    def start_sampling(self) -> None:
        """Restore the state of a resumed run, wait until all processes are ready, and let them begin."""
        if self.resume_from is not None:
            file, snapshot = running(self._found)
            self.first_itr = restore(self, file, snapshot)
            record_resumed(self, file, snapshot["cum_steps"])
            self._found = None
            if not self._replays:
                restarted = running(self._lines).restarted
                restarted[self.first_itr % len(restarted)] = True
            self.n_copied = self.first_itr
            self.sampler_itr = self.agent.sampling_itr = self.first_itr - 1
            first_update = max(self.min_itr_learn, CompletedAlgorithm(self.algo)._first_itr_with_replay)
            if first_update >= self.first_itr:
                self._ratio_since = first_update, self.algo.update_counter
            elif self._n_allowed() < self.first_itr:  # It ran without this limit. No row would be written until training has caught up.
                self._ratio_since = self.first_itr, self.algo.update_counter
        running(self._lines).n_begun[0] = self.first_itr
        if self.stop_reason is not None:  # The run was solved when it was saved.
            self._stop_sampling()
        running(self._lines).allow(self._n_allowed())
        self.agent.send_shared_memory()
        pool = running(self._pool)
        pool.receive()
        pool.send(self.first_itr, "training")
        self.progress.update(self.diagnostics.cum_steps)
        self._last_logged = time.monotonic(), 0.0
        self._next_check = 0.0

    def wait_for_samples(self) -> bool:
        """Wait until the replay ratio allows one more optimization, or the next batch is there; return False if sampling has ended.

        Raises:
            Overdue: sampling does not end within some seconds after a signal.
        """
        interrupt, pool, lines = self._interruptible(), running(self._pool), running(self._lines)
        while True:
            self._take_in()
            if self._n_sampling == 0 and self.n_copied >= lines.n_batches[0]:
                self._ended = True
                return False
            if interrupt.is_overdue and self._replays:  # There is always more to train on. Without replay, whole batches are trained on.
                raise Overdue
            if self._may_train():
                if self.stop_reason is None:
                    return True
                if not self._replays:
                    self._release_batch()  # Sampling processes may need it to end.
                    continue
            with self.throttled, interrupt.abandonable():
                pool.wait_for(self._next_sign(), *self._reports)

    def _may_train(self) -> bool:
        """Return whether there is enough to train on."""
        if self._replays:
            return self.n_copied >= self._n_needed()
        self._n_filled += self._next_sign().acquire_waiting()
        return self._n_filled >= len(self._reports) and self.n_copied < running(self._lines).n_batches[0]

    def _next_sign(self) -> Semaphore:
        """Return what other processes release when there is more to train on."""
        lines = running(self._lines)
        return lines.in_replay if self._replays else lines.filled[self.n_copied % len(lines.filled)]

    def _release_batch(self) -> None:
        """Let sampling processes overwrite the batch that was trained on."""
        lines = running(self._lines)
        free = lines.free
        lines.restarted[self.n_copied % len(free)] = False
        for semaphore in free[self.n_copied % len(free)]:
            semaphore.release()
        self.n_copied, self._n_filled = self.n_copied + 1, 0

    def _n_needed(self) -> int:
        """Return how many batches the replay buffer must contain so that one more optimization does not exceed `replay_ratio`."""
        first_itr, first_update = self._ratio_since
        updates = self.algo.update_counter - first_update + self.algo.updates_per_optimize
        samples = updates * self.algo.batch_size * self.world_size
        return first_itr + max(1, -int(-samples // (self.itr_batch_size * self.algo.replay_ratio)))

    @property
    def _keeps_to_ratio(self) -> bool:
        """Whether sampling with replay waits for training, so that the run keeps to the replay ratio."""
        return self._replays and self.max_batches_ahead is not None

    def _n_allowed(self) -> int:
        """Return how many batches may begin: those that the next optimization needs, and `max_batches_ahead` more.

        Without replay, and if sampling never waits for the ratio, all may.
        """
        return min(self._n_needed() + cast(int, self.max_batches_ahead), ALL) if self._keeps_to_ratio else ALL

    def optimize(self) -> None:
        """Train on the contents of the replay buffer, or on the next batch, and send the parameters to the sampler."""
        sampler_itr, lag = self.n_copied - 1, 0
        if not self._replays:
            sampler_itr = self.n_copied
            versions = running(self._lines).versions
            lag = self.agent.parameters_version - int(versions[sampler_itr % len(versions)].min())
            self._lags.append(lag)
        self._tell_optimizers(sampler_itr, lag)
        self.agent.train_mode(sampler_itr)
        with self.diagnostics.optimization:
            opt_info = self.feed.optimize(self.algo, self.opt_itr, sampler_itr, lag)
            self.agent.send_shared_memory()
        if not self._replays:
            if self.world_size > 1:
                dist.barrier(group=self._control)  # Others may still read the batch.
            self._release_batch()
        running(self._lines).allow(self._n_allowed())
        self.store_diagnostics(self.opt_itr, self.sampler_itr, [], opt_info)
        self.opt_itr += 1

    def _tell_optimizers(self, sampler_itr: int, lag: int = 0) -> None:
        """Let the other optimizing processes train together with this one, or end if `sampler_itr` is -1."""
        if self.world_size > 1:
            dist.broadcast(torch.tensor([self.opt_itr, sampler_itr, lag]), src=0, group=self._control)

    def _end_optimizers(self) -> None:
        self._tell_optimizers(-1)
        self.agent.unwrap()
        gc.collect()  # Wrapped models refer to the group in cycles, and must be deleted before it.

    def _stop_sampling(self) -> None:
        """End sampling after the batches that have begun. A signal handler also calls this."""
        if self._lines is not None:
            self._lines.end()
        self.sampler.stop_evaluation()

    def _on_signal(self) -> None:
        self._stop_sampling()

    def shutdown(self) -> None:
        """End all processes."""
        self.pbar.stop()
        self._end_progress()
        try:
            if self._pool is not None and self._ended:
                self._pool.stop()
            elif self._pool is not None:
                self._pool.kill(grace=0)
        finally:
            self.agent.unwrap()
            self.saver.wait()

    # Reports of other processes -------------------------------------------------------------------------------------
    def _take_in(self) -> None:
        """Receive the reports of the copier and of sampling processes; log the rows that are due."""
        if time.monotonic() > self._next_check:  # If training lags far behind, it never waits for the pool, which would check it.
            running(self._pool).check()
            self._next_check = time.monotonic() + WATCH_INTERVAL
        self.n_copied += running(self._lines).in_replay.acquire_waiting()
        for pipe in self._reports:
            while pipe.poll():
                report = pipe.recv()
                if report is None:
                    self._n_sampling -= 1
                else:
                    self._pending.setdefault(report.itr, []).append(report)
        for itr in sorted(self._pending):
            if self.stop_reason is None and itr < self.n_copied and len(self._pending[itr]) == len(self._reports):
                self._store_reports(itr, self._pending.pop(itr))

    def _store_reports(self, itr: int, reports: list[_Report]) -> None:
        """Count a batch once all sampling processes have reported it, and log if it is the last one of an interval."""
        evaluations = [report.evaluation for report in reports if report.evaluation is not None]
        is_cut_short = any(evaluation.is_cut_short for evaluation in evaluations)
        if is_cut_short:  # Only its short episodes have ended.
            evaluations = []
        self.diagnostics.sampling.seconds += max(report.sampling_seconds for report in reports)
        self.sampler_parameters_version = min(report.parameters_version for report in reports)
        is_batch = itr >= self.first_itr
        logger.set_iteration(max(itr, 0))
        with logger.prefix(f"itr #{max(itr, 0)} "):
            if is_batch:
                self.sampler_itr = self.agent.sampling_itr = itr  # The agent samples in other processes.
                traj_infos = [info for report in reports for info in report.traj_infos]
                self.store_diagnostics(self._iteration(itr), itr, traj_infos, self._OptInfoCls(*([] for _ in self._OptInfoCls._fields)))
                self._count_steps(itr)
            is_due = not is_batch or (itr + 1) % self.log_interval_itrs == 0
            if is_due and not (is_cut_short and pause_at() is not None):  # See `finish_interrupted`.
                infos = [info for evaluation in evaluations for info in evaluation.traj_infos]
                self._evaluated = next((evaluation.parameters for evaluation in evaluations if evaluation.parameters), None)
                self.log_batch(max(itr, 0), infos, max((evaluation.seconds for evaluation in evaluations), default=0.0))
            if not is_batch:
                self._row_itr = -1  # It came before batch 0.

    def log_batch(self, itr: int, eval_traj_infos: list, eval_time: float) -> None:
        """Write the row of the log after batch `itr`."""
        self._evaluation = (eval_traj_infos, eval_time) if self._eval else ()
        self.log_diagnostics(self._iteration(itr), itr, self.throttled.seconds - self._last_logged[1])

    def log_unfinished_interval(self, itr: int) -> None:
        """Write a row of the log in the middle of an interval, without evaluation."""
        self.log_batch(itr, [], 0.0)

    def store_diagnostics(self, itr: int, sampler_itr: int, traj_infos: list, opt_info: Any) -> None:  # type: ignore[override]
        """Keep results until the next row is logged. This is called for each of the sampler's batches, and for each optimization.

        Args:
            itr: number of the latest call of `optimize_agent`.
            sampler_itr: the sampler's latest batch; -1 before the first.
            traj_infos: the trajectories that ended in batch `sampler_itr`; of an optimization, none.
            opt_info: the result of `optimize_agent`; of a batch, one with empty lists.
        """
        super().store_diagnostics(sampler_itr, traj_infos, opt_info)

    def log_diagnostics(  # type: ignore[override]
        self, itr: int, sampler_itr: int, throttle_time: float, prefix: str = "Diagnostics/"
    ) -> None:
        """Write a row of the log, and a snapshot if the algorithm has begun to learn.

        Args:
            itr: number of the latest call of `optimize_agent`.
            sampler_itr: the sampler's latest batch.
            throttle_time: seconds that optimization has waited since the last row.
            prefix: of the columns about the run.
        """
        with logger.tabular_prefix(prefix):
            self.record_async(throttle_time)
        super().log_diagnostics(sampler_itr, *self._evaluation, prefix=prefix)  # type: ignore[misc]

    def after_row(self, row: dict[str, float]) -> None:
        """If the run stops, end sampling after the batches that have begun. These batches are no longer counted."""
        super().after_row(row)
        if self.stop_reason is not None:
            self._stop_sampling()

    def record_async(self, throttle_time: float) -> None:
        """Record the columns of asynchronous runs; `throttle_time`: seconds that optimization has waited since the last row."""
        now = time.monotonic()
        seconds = max(now - self._last_logged[0], 1e-9)
        eval_time = self._evaluation[1] if self._evaluation else 0.0
        new_steps = self.diagnostics.cum_steps - self.diagnostics._last_steps
        for name, value in (
            ("SamplerIteration", self.sampler_itr),
            ("NonEvalSamplesPerSecond", new_steps / max(seconds - eval_time, 1e-9)),
            ("OptThrottle", 1 - throttle_time / seconds),
            ("ParametersVersion", self.sampler_parameters_version),
        ):
            logger.record_tabular(name, value, detail=True)
        if not self._replays:
            lags, self._lags = self._lags or [np.nan], []
            logger.record_tabular("PolicyLagAverage", float(np.mean(lags)), detail=True)
            logger.record_tabular("PolicyLagMax", max(lags), detail=True)
        self._last_logged = now, self.throttled.seconds

    def _iteration(self, itr: int) -> int:
        return max(self.opt_itr - 1, 0)

    def _numbers(self, itr: int) -> tuple[int, ...]:
        return self._iteration(itr), itr

    @property
    def waiting_seconds(self) -> float:
        """Seconds that optimization has waited so far: for the replay ratio, or for the next batch."""
        return self.throttled.seconds

    # Snapshots ------------------------------------------------------------------------------------------------------
    def get_itr_snapshot(self, itr: int, sampler_itr: int) -> dict:  # type: ignore[override]
        """Return the state of the run after call `itr` of `optimize_agent` and batch `sampler_itr`, also with the number of updates."""
        snapshot = super().get_itr_snapshot(sampler_itr)
        # Its sampler_itr is -1 before the first batch.
        return dict(snapshot, itr=itr, sampler_itr=self.sampler_itr, cum_updates=self.algo.update_counter)

    def save_itr_snapshot(self, itr: int, sample_itr: int) -> None:  # type: ignore[override]
        """Save a snapshot, if one is due after batch `sample_itr` according to the snapshot mode of the log."""
        super().save_itr_snapshot(sample_itr)

    def _only_in_best(self) -> dict[str, Any]:
        """Return the agent that was evaluated, since training has gone on meanwhile."""
        if self._evaluated is None:
            return {}
        acting = self.agent.acting_tensors()
        trained = cloned(acting)
        try:
            _assign(acting, self._evaluated)
            return dict(agent_state_dict=cloned(self.agent.state_dict()))
        finally:
            _assign(acting, trained)

    def sampling_state(self) -> None:
        """Return None: environments continue while a snapshot is taken, so a resumed run begins new episodes."""

    def restore_sampling(self, state: Any) -> list[int]:
        """Return all columns, because all environments begin new episodes. Without replay, optimizers read that with the first batch."""
        return list(range(self.sampler.batch_spec.B)) if self._replays else []

    def counters(self) -> dict:
        return dict(super().counters(), opt_itr=self.opt_itr, ratio_since=list(self._ratio_since))

    def load_counters(self, counters: dict) -> None:
        super().load_counters(counters)
        check_form(counters, dict(opt_itr=NATURAL, ratio_since=(list, tuple)), "counters")
        self.opt_itr, self._ratio_since = counters["opt_itr"], tuple(counters["ratio_since"])


class AsyncRl(AsyncRlBase, MinibatchRl):  # type: ignore[misc]
    """Measures performance by the sampled trajectories. Args: see `AsyncRlBase` and `MinibatchRl`."""


class AsyncRlEval(AsyncRlBase, MinibatchRlEval):  # type: ignore[misc]
    """Measures performance by evaluation episodes. The sampling processes play them between batches while training continues.

    So when an evaluation is logged, the agent has been trained further than the one that was evaluated. Snapshots and hooks have the newer
    parameters. Only in best.pkl (snapshot_mode="best") do the models that act have those that were evaluated, by the first of several
    sampling processes. The rest of it is that of the other snapshots.

    Args: see `AsyncRlBase` and `MinibatchRlEval`.
    """


# ---------------------------------------------------------------------------------------------------------------------
# Between processes
# ---------------------------------------------------------------------------------------------------------------------
class _Lines:
    """The signals between the processes of a run.

    Without replay, the first optimizer takes the place of the copier.

    Args:
        n_parts: number of sampling processes; each fills its columns of every batch.
        B: number of columns of a batch.
        n_batches: number of buffers, n below, which are filled in turn.

    Attributes:
        filled: for each buffer, from the sampling processes to the copier: "my columns are in place".
        free: for each buffer, one per sampling process, from the copier: "you may write into it".
        restarted: [n,B], for each buffer, from the sampling processes to the copier
            (or optimizers): the columns that do not continue the previous batch.
        versions: [n,n_parts], for each buffer, from each sampling process: the version of the parameters that acted.
        in_replay: from the copier to the optimizer: "one more batch is in the replay buffer".
        n_allowed: [1], set by the optimizer: the number of batches, from the beginning of the run, that sampling processes may begin.
        look_again: for each sampling process, from the optimizer: "`n_allowed` or `stop` has changed".
        stop: [1], set by the optimizer: sampling processes finish the batches that any of them has begun, and begin no others.
        n_batches: [1], number of batches in the whole run; reduced when the run is told to stop.
        n_begun: [1], number of batches that any sampling process has begun.
    """

    def __init__(self, n_parts: int, B: int, n_batches: int) -> None:
        self.filled = [Semaphore() for _ in range(n_batches)]
        self.free = [[Semaphore() for _ in range(n_parts)] for _ in range(n_batches)]
        self.restarted = np_mp_array((n_batches, B), bool)
        self.versions = np_mp_array((n_batches, n_parts), np.int64)
        self.in_replay = Semaphore()
        self.n_allowed = np_mp_array(1, np.int64)
        self.look_again = [Semaphore() for _ in range(n_parts)]
        self.stop = np_mp_array(1, bool)
        self.n_batches = np_mp_array(1, np.int64)
        self.n_begun = np_mp_array(1, np.int64)
        self._lock = ProcessLock()
        for semaphores in self.free:
            for semaphore in semaphores:
                semaphore.release()

    def allow(self, n_batches: int) -> None:
        """Let sampling processes begin this number of batches, counted from the beginning of the run. A smaller one changes nothing."""
        if n_batches > self.n_allowed[0]:
            self.n_allowed[0] = n_batches
            self._wake()

    def end(self) -> None:
        """Let sampling processes finish the batches that any of them has begun, and begin no others. A signal handler also calls this."""
        self.stop[0] = True
        self._wake()

    def _wake(self) -> None:
        for semaphore in self.look_again:
            if semaphore.is_empty():  # One release is enough. A process that never waits reads none, and its pipe would fill up.
                semaphore.release()

    def wait_until_allowed(self, itr: int, part: int) -> None:
        """Wait until a sampling process may begin batch `itr`, or sampling ends."""
        while self.n_allowed[0] <= itr < self.n_batches[0] and not self.stop[0]:
            self.look_again[part].acquire_all()

    def may_begin(self, itr: int) -> bool:
        """Return whether a sampling process must fill its columns of batch `itr`. All of them finish each batch that one has begun."""
        with self._lock:
            if self.stop[0]:
                self.n_batches[0] = min(self.n_batches[0], self.n_begun[0])
            if itr >= self.n_batches[0]:
                return False
            self.n_begun[0] = max(self.n_begun[0], itr + 1)
            return True


class _Evaluation(NamedTuple):
    """The evaluation episodes of a sampling process."""

    traj_infos: list
    seconds: float
    is_cut_short: bool  # Whether a signal may have ended it early.
    parameters: list[torch.Tensor] | None  # Those that acted, on the CPU; None if they are not needed.


def _assign(tensors: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


class _Report(NamedTuple):
    """The report of a sampling process on a batch."""

    itr: int
    traj_infos: list
    parameters_version: int  # Version of the parameters that acted in the batch.
    sampling_seconds: float
    evaluation: _Evaluation | None  # After this batch, if any.


def _work(pipe: Any, kwargs: dict) -> None:
    """The target of every process except this one, see `WorkerPool`. Its work begins when it receives the first batch's number."""
    kwargs = dict(kwargs)
    if niceness := kwargs.pop("niceness", 0):
        os.nice(niceness)
    kwargs.pop("work")(pipe, **kwargs)


def _sample(
    pipe: Any,
    sampler: Any,
    affinity: dict,
    part: int,
    first_column: int,
    seed: int,
    lines: _Lines,
    report: Any,
    eval_interval: int | None,
    is_resumed: bool,
    tells_parameters: bool,
    min_itr_learn: int,
) -> None:
    """Fill one part of every batch."""
    torch.set_num_threads(1)  # Must come first: a forked process cannot use the threads of its parent.
    set_seed(seed)
    evaluate = partial(_evaluate, sampler, lines, tells_parameters)
    sampler.initialize(affinity)
    pipe.send(("ok", None))
    first_itr = pipe.recv()
    if first_itr is not None:
        if eval_interval and not is_resumed:
            send_by_value(report, _Report(-1, [], sampler.agent.parameters_version, 0.0, evaluate(0)))
        for itr in itertools.count(first_itr):
            buffer = itr % len(lines.filled)
            lines.wait_until_allowed(itr, part)
            lines.free[buffer][part].acquire()
            if not lines.may_begin(itr):
                break
            start = time.perf_counter()
            traj_infos = sampler.obtain_samples(itr, buffer)
            seconds = time.perf_counter() - start
            version = lines.versions[buffer, part] = sampler.acting_parameters_version
            for b in sampler.take_restarted():
                lines.restarted[buffer, first_column + b] = True
            lines.filled[buffer].release()
            evaluation = None
            if eval_interval and (itr + 1) % eval_interval == 0 and itr >= min_itr_learn - 1:
                evaluation = evaluate(itr)
            send_by_value(report, _Report(itr, traj_infos, version, seconds, evaluation))
        lines.filled[buffer].release()  # Wakes the copier, which then ends. Without replay nobody waits for it.
        report.send(None)
        pipe.send(("ok", None))
        pipe.recv()
    sampler.shutdown()
    pipe.send(("ok", None))


def _evaluate(sampler: Any, lines: _Lines, tells_parameters: bool, itr: int) -> _Evaluation:
    start = time.perf_counter()
    sampler.agent.eval_mode(itr)
    traj_infos = sampler.evaluate_agent(itr)
    sampler.agent.sample_mode(itr)
    seconds = time.perf_counter() - start
    parameters = [tensor.detach().to("cpu", copy=True) for tensor in sampler.agent.acting_tensors()] if tells_parameters else None
    return _Evaluation(traj_infos, seconds, bool(lines.stop[0]), parameters)


def _copy(pipe: Any, algo: Any, batches_np: list, lines: _Lines, n_parts: int) -> None:
    """Append batches to the replay buffer, in order."""
    torch.set_num_threads(1)
    batches = [torchify_buffer(batch) for batch in batches_np]
    pipe.send(("ok", None))
    first_itr = pipe.recv()
    if first_itr is not None:
        for itr in itertools.count(first_itr):
            buffer = itr % len(batches)
            for _ in range(n_parts):
                lines.filled[buffer].acquire()
            if itr >= lines.n_batches[0]:
                break
            if lines.restarted[buffer].any():
                tell_restarted(algo, np.flatnonzero(lines.restarted[buffer]).tolist())
                lines.restarted[buffer] = False
            algo.append(batches[buffer])
            for semaphore in lines.free[buffer]:
                semaphore.release()
            lines.in_replay.release()
        pipe.send(("ok", None))
        pipe.recv()
    pipe.send(("ok", None))


# ---------------------------------------------------------------------------------------------------------------------
# What optimizers train on
# ---------------------------------------------------------------------------------------------------------------------
class _Replayed:
    """Optimizers draw from the replay buffer."""

    def start(self, algo: Any, agent: Any, rank: int) -> None:
        """Prepare the algorithm of an optimizing process. The buffer is allocated already."""
        algo.prepare_models()
        algo.optim_initialize(rank)
        algo.deliver_batches()

    def optimize(self, algo: Any, itr: int, sampler_itr: int, lag: int) -> Any:
        """Train in call number `itr`, when batch `sampler_itr` is the newest in the buffer."""
        return algo.optimize_agent(itr, sampler_itr=sampler_itr)


class _Direct:
    """Optimizers train on the sampler's batches, each on its columns.

    Args:
        batches_np: the buffers, arrays [T,B,...] in shared memory.
        n_itr: number of batches in the whole run.
        world_size: number of optimizers.
        batch_spec, mid_batch_reset, examples: of the sampler.
        restarted: see `_Lines`.
    """

    def __init__(
        self,
        batches_np: list,
        batch_spec: BatchSpec,
        mid_batch_reset: bool,
        examples: dict[str, Any],
        n_itr: int,
        world_size: int,
        restarted: np.ndarray,
    ) -> None:
        self._restarted = restarted
        self._batches_np, self._batch_spec, self._world_size = batches_np, batch_spec, world_size
        self._settings = dict(mid_batch_reset=mid_batch_reset, examples=examples, n_itr=n_itr, world_size=world_size)

    def start(self, algo: Any, agent: Any, rank: int) -> None:
        """Initialize the algorithm of an optimizing process."""
        T, B = self._batch_spec
        B //= self._world_size
        self._columns = slice(B * rank, B * (rank + 1))
        self._batches = [torchify_buffer(batch[:, self._columns]) for batch in self._batches_np]
        algo.initialize(agent=agent, batch_spec=BatchSpec(T, B), rank=rank, **self._settings)

    def optimize(self, algo: Any, itr: int, sampler_itr: int, lag: int) -> Any:
        """Train on batch `sampler_itr`, in which a policy acted that is `lag` versions old."""
        algo.policy_lag = lag
        buffer = sampler_itr % len(self._batches)
        tell_restarted(algo, np.flatnonzero(self._restarted[buffer, self._columns]).tolist())
        return algo.optimize_agent(sampler_itr, self._batches[buffer])


# ---------------------------------------------------------------------------------------------------------------------
# Several optimizers
# ---------------------------------------------------------------------------------------------------------------------
class _Optimizer:
    """An optimizing process other than the first. The first one is the runner's process."""

    _control: Any = None  # As in the runner.

    def __init__(self, runner: Any, rank: int) -> None:
        self.algo, self.agent, self.feed = runner.algo, runner.agent, runner.feed
        is_resumed = runner._found is not None
        self.resumed_file = runner._found[0] if is_resumed else None
        self.affinity, self.rank, self.world_size = runner.optimizer_affinities[rank], rank, runner.world_size
        # With the seed of the run, a resumed run would repeat its random numbers. The sampler has another one each time it is resumed.
        self.seed = env_seed(runner.sampler.seed, "algo", rank) if is_resumed else runner.seed + SEED_STEP * rank

    def train(self, pipe: Any) -> None:
        """Train together with the other optimizers until sampling has ended."""
        set_seed(self.seed)
        with process_group(self, meeting_place(None, self.world_size)):
            _start_optimizer(self)
            if self.resumed_file is not None:
                restore_training(self.agent, self.algo, read_snapshot(self.resumed_file), self.resumed_file)
            pipe.send(("ok", None))
            if pipe.recv() is not None:
                while True:
                    told = torch.zeros(3, dtype=torch.int64)
                    dist.broadcast(told, src=0, group=self._control)
                    itr, sampler_itr, lag = told.tolist()
                    if sampler_itr < 0:
                        break
                    self.agent.train_mode(sampler_itr)
                    self.feed.optimize(self.algo, itr, sampler_itr, lag)
                    if isinstance(self.feed, _Direct):
                        dist.barrier(group=self._control)
            self.agent.unwrap()
            gc.collect()  # Wrapped models refer to the group in cycles, and must be deleted before it.
        leave(pipe)


def _start_optimizer(runner: Any) -> None:
    """Bind this process, move the agent to its device, and build the optimizer of this rank."""
    affinity = runner.affinity
    bind_master(affinity)
    set_torch_threads(affinity)
    runner.agent.to_device(affinity.get("cuda_idx"))
    if runner.world_size > 1:
        runner.agent.data_parallel()
    runner.feed.start(runner.algo, runner.agent, runner.rank)
