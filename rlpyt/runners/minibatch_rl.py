"""The training loop in one process: sample a batch, optimize, log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlpyt.runners.base import BaseRunner
from rlpyt.runners.calibration import calibrate, forget_threads, set_torch_threads
from rlpyt.runners.checkpoint import (
    Saver,
    choices_of,
    find_snapshot,
    replay_buffer_of,
    restore,
    seed_of,
    settings_of,
    snapshot_of,
    tell_restarted,
    training_parts,
)
from rlpyt.runners.diagnostics import Diagnostics, counter, moment
from rlpyt.runners.digests import Digests, is_digested
from rlpyt.runners.hooks import Hook, call_hooks, checked_hooks
from rlpyt.runners.protocols import Algorithm, BatchSampler, CompletedAlgorithm, CompletedSampler, Part, Snapshots
from rlpyt.runners.record import record_choices, record_resumed, record_run
from rlpyt.runners.screen import tell_ended_at_once, tell_next, tell_of_busy_processors, tell_settings
from rlpyt.samplers.workers import default_start_method
from rlpyt.types import BatchSpec, infos_from_plain, plain_infos
from rlpyt.utils import choices
from rlpyt.utils.digests import FILE
from rlpyt.utils.interrupt import CLOSING, HURRY, Interrupt, Overdue
from rlpyt.utils.launching.affinity import for_runner
from rlpyt.utils.launching.exp_launcher import pause_at
from rlpyt.utils.launching.status import SNAPSHOT_MISSING
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import COMPLETE
from rlpyt.utils.logging.runs import RETURN_COLUMNS, value
from rlpyt.utils.logging.store import beside
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.processors import bind_master, check_affinity, check_gpus
from rlpyt.utils.prog_bar import NoBar, ProgBarCounter, Progress
from rlpyt.utils.recipes import Script
from rlpyt.utils.seed import make_seed, rng_states, set_rng_states, set_seed
from rlpyt.utils.settings import COUNT, PATH, SEED, Number, check_attributes, check_values, checked, has
from rlpyt.utils.text import plural

PARTS = dict(
    algo=has("an algorithm, such as PPO() of rlpyt.algos", "optimize_agent"),
    agent=has("an agent, such as MlpFfAgent() of rlpyt.agents", "step"),
    sampler=has("a sampler, such as SerialSampler(...) of rlpyt.samplers", "obtain_samples"),
)
OF_RUNNERS = dict(
    {name: kind._replace(optional=True) for name, kind in PARTS.items()},  # A runner with another `startup` may do without one.
    n_steps=Number(1, finite=True),
    seed=SEED,
    log_interval_steps=Number(1, finite=True),
    resume_from=PATH._replace(optional=True),
    stop_return=Number(finite=True, optional=True),  # the mean return at which the run stops
    verbose=logger.VERBOSE._replace(optional=True),
    calibrate=choices.CALIBRATE._replace(optional=True),
)
_MUCH_MORE = 1.05  # times n_steps, above which the log says why a run takes that many steps


class MinibatchRlBase(BaseRunner):
    """Startup, logging and snapshots; subclasses have the loop.

    Args:
        algo: the algorithm.
        agent: the learning agent.
        sampler: the sampler.
        n_steps: environment steps of the whole run; rounded up to whole logging intervals.
        seed: seed of the run; None draws one.
        affinity: processors, GPU and threads: ``master_cpus``, ``workers_cpus``, ``cuda_idx``, ``master_torch_threads``,
            ``worker_torch_threads``, ``set_affinity``; all optional. "auto" is for a run that has the machine to itself.
        log_interval_steps: environment steps between two rows of the log.
        resume_from: directory of a run, or a snapshot, to resume; None starts a new run. All settings must be those of the resumed run,
            except `n_steps`, `log_interval_steps`, `affinity`, `stop_return`, `hooks`, `verbose`, `calibrate` and `digest`.
        save_replay: save the replay buffer with each snapshot, for a resumed run. The first snapshot writes all of it, later ones write
            only new steps. It takes as much space on the disk as in memory.
        stop_return: stop the run at the first row of the log with at least this mean return (`ReturnAverage`) over enough trajectories.
            Enough is a full window of `log_traj_window`, or, in an evaluation, one per evaluation environment. None: run all `n_steps`.
        hooks: functions to call as ``hook(runner, row)`` after each row of the log, in this order; see `rlpyt.runners.hooks.Hook`.
        verbose: how much to show on the screen. 0: warnings, progress, and why the run ends; 1: also its settings, and short tables; 2: all
            lines, and tables with all columns. None: the level of `rlpyt.utils.logging.logger.set_verbose`, by default 1. Of the log's
            files, only the tables in debug.log depend on it.
        calibrate: whether to measure, on this machine and for these sizes, which of several equal computations are fastest, and how many
            torch threads (if the user has not said it). False: take the defaults. A dictionary: take these choices, as params.json has
            them under ``choices``. None: as `rlpyt.utils.choices.set_calibration` says, by default True; a resumed run then keeps the
            choices of its snapshot.
        digest: whether each row of the log has digests of the run's computations, so that ``rlpyt verify`` and ``rlpyt bisect`` can
            compare it with another run, bit for bit; see `rlpyt.runners.digests`. None: as `rlpyt.runners.digests.set_digest` says, by
            default False.

    Attributes:
        choices: the choices of this run, once the agent has its models.
        stop_reason: a sentence that tells why the run stops before `n_steps`; None while the run continues.
    """

    _eval = False
    _eval_pauses_training = True
    _returns_are_of = "{n} trajectories"  # The trajectories of the mean return.
    stop_return: float | None = None
    hooks: Sequence[Hook] = ()
    stop_reason: str | None = None
    _score: float | None = None  # Mean return in the last row of the log,
    _n_scored = 0  # and the number of trajectories in that mean.
    snapshots: Snapshots = logger
    settings: dict[str, Any] = {}  # See `settings_of`.
    chosen_settings: tuple[str, ...] = ()  # Settings of the algorithm that the runner chooses itself.
    script: Script | None = None  # The file that made the run, if it is not that of this process.
    also_recorded: dict = {}  # Further entries of the record in params.json, plain data.
    is_recorded = False  # Whether params.json holds the record of this run,
    unrecorded: dict[str, str] = {}  # and the arguments that it lacks, see `write_record`.
    verbose: int | None = None
    calibrate: bool | dict | None = None
    choices: dict[str, Any] = {}
    digest = False
    digests: Digests | None = None  # Of the process that writes the log, while it trains, with `digest`.
    pbar: Any = NoBar()  # A subclass may set a `ProgBarCounter`, which is then shown instead of `progress`.
    rank, world_size = 0, 1
    affinities: Sequence[dict] = ()  # Of all ranks, if there may be several,
    sampler_affinities: Sequence[dict] = ()  # and of the sampling processes, if it is not these that sample.
    resume_from: Any = None
    _launched = False  # Whether another program, such as torchrun, starts the ranks.
    first_itr = 0  # The iteration with which this process begins.
    _itr = -1  # The last complete iteration,
    _row_itr = -1  # and the one with the last row of the log.
    _found: tuple[Path, dict[str, Any]] | None = None  # The snapshot in `resume_from`, from its check until it is restored.
    _is_resumed = False  # Whether the state in `resume_from` has been restored.
    _interrupt: Interrupt | None = None
    _sampling_is_lost = False  # Whether sampling was abandoned, so that the states of environments are unknown.

    # The counters in `diagnostics`, for subclasses that write rows of the log themselves.
    _opt_infos = counter("opt_infos")
    _new_completed_trajs = counter("new_completed_trajs")
    _cum_completed_trajs = counter("cum_completed_trajs")
    _cum_eval_time = counter("cum_eval_time")
    _cum_time = counter("cum_time")
    _last_update_counter = counter("_last_updates")
    _start_time = moment("_start_time")
    _last_time = moment("_last_time")

    @checked(OF_RUNNERS)
    def __init__(
        self,
        algo: Algorithm,
        agent: Any,
        sampler: BatchSampler,
        n_steps: int | float,
        seed: int | None = None,
        affinity: dict | str | None = None,
        log_interval_steps: int | float = 1e5,
        resume_from: Any = None,
        save_replay: bool = False,
        stop_return: float | None = None,
        hooks: Sequence[Hook] | None = None,
        verbose: int | None = None,
        calibrate: bool | dict | None = None,
        digest: bool | None = None,
    ) -> None:
        own_affinity = for_runner(affinity, sampler)
        check_affinity(own_affinity)
        check_gpus([own_affinity])
        if self._eval and not CompletedSampler(sampler).eval_n_envs:
            raise ValueError(f"{type(self).__name__} evaluates the agent: give the sampler eval_n_envs and eval_max_steps.")
        self.algo = algo
        self.agent = agent
        self.sampler = sampler
        self.n_steps = int(n_steps)
        self.seed = self.seed_given = seed
        self.affinity: dict[str, Any] = {} if own_affinity is None else own_affinity
        self.log_interval_steps = int(log_interval_steps)
        self.resume_from = resume_from
        self.save_replay = save_replay
        self.stop_return = checked_stop_return(stop_return)
        self.hooks = checked_hooks(hooks)
        self.verbose = verbose
        self.calibrate = calibrate
        self.digest = is_digested() if digest is None else digest
        self.saver = Saver()

    # Startup and end ------------------------------------------------------------------------------------------------
    def startup(self) -> int:
        """Bind to processors, seed, and initialize sampler, agent, algorithm and logging; return the number of iterations."""
        self._check_settings()
        affinity = self.affinity
        self._forget_choices()
        set_torch_threads(affinity)
        self._settle()
        with self._choosing():
            examples = self.sampler.initialize(
                agent=self.agent,
                affinity=affinity,
                seed=self._settle_seed() + 1,
                bootstrap_value=self.algo.bootstrap_value,
                traj_info_kwargs=self.get_traj_info_kwargs(),
                rank=self.rank,
                world_size=self.world_size,
            )
        bind_master(affinity)
        self._meet()
        self.itr_batch_size = self.sampler.batch_spec.size * self.world_size  # env steps
        n_itr = self.get_n_itr()
        self.agent.to_device(affinity.get("cuda_idx", None))
        if self.world_size > 1:
            self.agent.data_parallel()
        self.algo.initialize(
            agent=self.agent,
            n_itr=n_itr,
            batch_spec=self.sampler.batch_spec,
            mid_batch_reset=self.sampler.mid_batch_reset,
            examples=examples,
            world_size=self.world_size,
            rank=self.rank,
        )
        self._warn_if_nothing_is_learned()
        self.initialize_logging()
        self._resume()
        return n_itr

    def _check_settings(self) -> None:
        """Check the parts, and find the snapshot to resume from, before environments are made or processes start.

        The algorithm checks only agents of rlpyt: a user's agent may get what it needs in its `initialize`.
        """
        check_attributes(self, PARTS)
        if is_of_rlpyt(type(self.agent)):
            is_known = CompletedSampler(self.sampler).batch_spec is not None
            CompletedAlgorithm(self.algo).check_parts(self.agent, self._trained_spec() if is_known else None)
        self.settings = settings_of(self)  # Before training, which changes some of them, such as PPO's ratio_clip.
        if self.resume_from is not None and self._found is None:
            self._found = find_snapshot(self, self.resume_from)

    def _forget_choices(self) -> None:
        """Forget the choices of an earlier run in this process."""
        choices.adopt({})
        forget_threads()
        self.choices = {}

    def _settle(self) -> None:
        """Determine the seed of the run, show it with the settings, and record them."""
        self._settle_seed()
        set_seed(self.process_seed)
        tell_settings(self)
        record_run(self)

    @contextmanager
    def _choosing(self) -> Iterator[None]:
        """Within this context, choose between equal computations as soon as the agent has its models."""
        with choices.once_models_exist(self._choose):
            yield
        if self.affinity.get("master_torch_threads") is None and self.affinity.get("cuda_idx") is None and torch.get_num_threads() > 1:
            tell_of_busy_processors()

    def _choose(self, agent: Any) -> None:
        """Make the choices of all processes of the run. The sampler's workers have not been started yet."""
        self.choices = self._make_choices(agent)
        choices.adopt(self.choices)
        set_torch_threads(self.affinity)
        record_choices(self)

    def _make_choices(self, agent: Any) -> dict[str, Any]:
        """Return the choices: given, of the snapshot, or measured."""
        if isinstance(self.calibrate, dict):
            return dict(self.calibrate)
        if self.calibrate is None and self.resume_from is not None:
            kept = choices_of(self.resume_from)
            if kept is not None:
                return kept
        if not (choices.is_calibrated() if self.calibrate is None else self.calibrate):
            return {}
        if self._forks_with_threads():
            logger.log("Nothing is measured: processes that are forked later could not use several torch threads.", level=2)
            return {}
        on_cpu = self.affinity.get("cuda_idx") is None
        acting_rows, acting_threads = self._acting()
        return calibrate(
            agent,
            trained_rows=CompletedAlgorithm(self.algo).trained_rows(agent, self._trained_spec()) if on_cpu else [],
            acting_rows=acting_rows if on_cpu or acting_threads is not None else [],
            acting_threads=acting_threads,
            affinity=self.affinity,
            n_sharing=self._n_sharing(),
            repeats=self.seed_given is not None,
        )

    def _acting(self) -> tuple[list[int], int | None]:
        """Return the number of environments for which the agent acts at once, and its number of torch threads."""
        return CompletedSampler(self.sampler).acting(self.affinity)

    def _trained_spec(self) -> BatchSpec:
        """Return the dimensions of the batches that this process gets."""
        return self.sampler.batch_spec

    def _n_sharing(self) -> int:
        """Return how many training processes share the processors."""
        return 1

    def _forks_with_threads(self) -> bool:
        """Return whether processes that are to be forked need several torch threads: they would hang, if this process has used some."""
        is_forked = (CompletedSampler(self.sampler).start_method or default_start_method()) == "fork"
        return is_forked and (self.affinity.get("worker_torch_threads") or 1) > 1

    def _settle_seed(self) -> int:
        """Use the given seed, or else the seed of the run to resume, or else draw one; return it. Further calls return the same."""
        if self.seed is None and self.resume_from is not None:
            self.seed = seed_of(self.resume_from)
        if self.seed is None:
            self.seed = make_seed()
        return self.seed

    def _warn_if_nothing_is_learned(self) -> None:
        if self.min_itr_learn >= self.n_itr:
            logger.warn(
                f"nothing will be learned: learning begins after {self.min_itr_learn * self.itr_batch_size:,} environment steps "
                f"(min_steps_learn), and the run ends after {self.n_itr * self.itr_batch_size:,}."
            )

    def _meet(self) -> None:
        """Wait for other processes that train together with this one. A subclass may have such processes."""

    def _resume(self) -> None:
        """Resume from `resume_from`, unless that is None or done."""
        if self.resume_from is not None and not self._is_resumed:
            file, snapshot = self._found or find_snapshot(self, self.resume_from)  # An overridden `startup` has not found it.
            self._found = None
            self.first_itr = restore(self, file, snapshot)
            self._is_resumed = True
            record_resumed(self, file, snapshot["cum_steps"])
            if self.digests is not None:
                self.digests.continue_from(beside(file, FILE), self.snapshots.get_snapshot_dir(), snapshot["cum_steps"])

    @property
    def process_seed(self) -> int:
        """Seed of the random generators of this process."""
        return self._settle_seed()

    def get_traj_info_kwargs(self) -> dict:
        """Return the attributes that the TrajInfo class gets, such as the discount."""
        return dict(discount=CompletedAlgorithm(self.algo).discount)

    def get_n_itr(self) -> int:
        """Return the number of iterations: enough for `n_steps`, rounded up to whole logging intervals."""
        self.log_interval_itrs = max(self.log_interval_steps // self.itr_batch_size, 1)
        self.n_itr = self.planned_steps(self.itr_batch_size) // self.itr_batch_size
        why = ""
        if self.log_interval_itrs > -(-self.n_steps // self.itr_batch_size):
            logger.warn(
                f"log_interval_steps={int(self.log_interval_steps):,} is more than n_steps={int(self.n_steps):,}, which is rounded up to "
                f"whole intervals: the run takes {self.n_itr * self.itr_batch_size:,} steps. For fewer, make the interval shorter."
            )
        elif self.n_itr * self.itr_batch_size > _MUCH_MORE * self.n_steps:
            interval = self.log_interval_itrs * self.itr_batch_size
            why = f" (n_steps={int(self.n_steps):,} rounded up to whole logging intervals of {interval:,} steps)"
        logger.log(
            f"Running {self.n_itr:,} iterations of {plural(self.itr_batch_size, 'environment step')}, "
            f"{self.n_itr * self.itr_batch_size:,} in all{why}, with a row of the log after every {self.log_interval_itrs:,}."
        )
        return self.n_itr

    def planned_steps(self, itr_batch_size: int) -> int:
        """Return the environment steps of the whole run: `n_steps`, rounded up to whole logging intervals.

        Args:
            itr_batch_size: environment steps of one iteration in all processes.
        """
        interval = max(self.log_interval_steps // itr_batch_size, 1) * itr_batch_size
        return int(-(-self.n_steps // interval) * interval)

    def initialize_logging(self) -> None:
        """Start counting."""
        self.diagnostics = self._new_diagnostics()
        self.stop_reason = None
        self._end_progress()
        logger.log("Training begins.", level=2)

    def _new_diagnostics(self) -> Diagnostics:
        return Diagnostics(
            self.algo.opt_info_fields,
            (CompletedAlgorithm(self.algo).batch_size or 0) * self.world_size,
            self.sampler.waiting_seconds,
        )

    @cached_property
    def progress(self) -> Progress:
        """The progress of this run. It counts from its first use, after the state of a resumed run is restored."""
        return Progress(
            self.n_itr * self.itr_batch_size,
            self.diagnostics.cum_steps,
            stop_return=self.stop_return,
            is_shown=self.rank == 0 and isinstance(self.pbar, NoBar),
        )

    def _end_progress(self) -> None:
        if "progress" in vars(self):
            vars(self).pop("progress").stop()

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """The counters of this run. They start in `initialize_logging`, or, if that is overridden, at their first use."""
        return self._new_diagnostics()

    def shutdown(self) -> None:
        """End the progress bar and the sampler; wait until the last snapshot is safe."""
        self.pbar.stop()
        self._end_progress()
        try:
            self.sampler.shutdown()
        finally:
            self.saver.wait()

    @property
    def min_itr_learn(self) -> int:
        """Iterations before the algorithm starts to learn."""
        return CompletedAlgorithm(self.algo).min_itr_learn

    @contextmanager
    def _iterations(self) -> Iterator[Iterator[int]]:
        """Start up, yield the iterations until the run ends or stops, and shut down."""
        with logger.verbosity(self.verbose), self._interruptible() as interrupt:
            try:
                self._forget_earlier_training()
                with interrupt.abandonable(patience=0):
                    self.settings, self._is_resumed = settings_of(self), False
                    n_itr = self.startup()
                    self._resume()  # An overridden `startup` may not have done so.
                self._itr = self._row_itr = self.first_itr - 1
                try:
                    yield self._until_stopped(n_itr, interrupt)
                except Overdue:
                    self._abandon_sampling()
                self._finish(self._itr, interrupt)
            finally:
                self._found = None
                with interrupt.abandonable(at_least=CLOSING):
                    self.shutdown()
        self._say_end(interrupt)

    def _say_end(self, interrupt: Interrupt) -> None:
        """Log that the run has ended, and show the next commands; raise SystemExit if a signal ended it."""
        is_told = self._is_told(interrupt)
        with logger.verbosity(self.verbose):
            if not is_told:
                if self.first_itr >= self.n_itr and self.stop_reason is None:
                    taken = f"the run was resumed after {self.diagnostics.cum_steps:,} steps"
                    logger.log(f"Nothing was left to do: {taken}, and n_steps={self.n_steps:,} asks for no more.", level=0)
                logger.log(COMPLETE)
            tell_next(self)
        if is_told:
            raise interrupt.ended()

    def _forget_earlier_training(self) -> None:
        """Reset the attributes that an earlier call of `train` has set."""
        self._sampling_is_lost, self.saver = False, Saver()
        self._itr = self._row_itr = -1
        self.is_recorded, self.unrecorded = False, {}
        self.digests = Digests(self.sampler.mid_batch_reset) if self.digest and self.rank == 0 else None

    def _interruptible(self) -> Interrupt:
        """Return the context in which Ctrl-C and SIGTERM end the run in good order: the active one, or a new one."""
        if self._interrupt is None or not self._interrupt.is_active:
            self._interrupt = Interrupt(self._on_signal, hurry=HURRY, on_second=self._say_what_is_left)
        return self._interrupt

    def _on_signal(self) -> None:
        """Stop an evaluation. A signal handler calls this at any time of the run."""
        CompletedSampler(self.sampler).stop_evaluation()

    def _say_what_is_left(self) -> None:
        """Log which snapshot a run leaves that a second signal has ended, and show the next commands."""
        if self.rank == 0:
            with logger.verbosity(self.verbose):
                tell_ended_at_once(self)

    def _is_told(self, interrupt: Interrupt) -> bool:
        """Return whether a signal told the run to end."""
        return interrupt.signal is not None

    def _abandon_sampling(self) -> None:
        """End the run without the sampler, which did not finish its batch or evaluation in time."""
        self._sampling_is_lost = True
        logger.warn(
            "the sampler did not end in time, and is abandoned: its samples since the last complete iteration are lost. A resumed run "
            "begins new episodes."
        )

    def _until_stopped(self, n_itr: int, interrupt: Interrupt) -> Iterator[int]:
        self.progress.update(self.diagnostics.cum_steps)
        while self._itr < n_itr - 1 and not self._stops(interrupt):
            itr = self._itr + 1
            logger.set_iteration(itr)
            with logger.prefix(f"itr #{itr} "):
                yield itr
            self._itr = itr

    def _stops(self, interrupt: Interrupt) -> bool:
        """Return whether to stop before the next iteration."""
        return self._is_told(interrupt) or self.stop_reason is not None

    def run_iteration(self, itr: int) -> None:
        """Sample a batch, optimize on it, and store the diagnostics of both."""
        self.agent.sample_mode(itr)
        with self.diagnostics.sampling:
            samples, traj_infos = self._sample(itr)
        if self.digests is not None:
            self.digests.take(samples)
        tell_restarted(self.algo, self.sampler.take_restarted())
        self._tell_lag(self.algo)
        self.agent.train_mode(itr)
        with self.diagnostics.optimization:
            opt_info = self.algo.optimize_agent(itr, samples)
        self.store_diagnostics(itr, traj_infos, opt_info)
        self._count_steps(itr)
        self._itr = itr

    def _tell_lag(self, algo: Any) -> None:
        """If the sampler samples ahead, tell the algorithm how many updates old the policy of the last batch is."""
        lag = CompletedSampler(self.sampler).policy_lag
        if lag is not None:
            algo.policy_lag = lag

    def _sample(self, itr: int) -> tuple[Any, list]:
        """Return a batch and the TrajInfos of its finished episodes; raise Overdue if that takes too long after a signal."""
        with self._interruptible().abandonable():
            return self.sampler.obtain_samples(itr)

    def _finish(self, itr: int, interrupt: Interrupt) -> None:
        """Write the missing row of the log and snapshot after `itr`, the last complete iteration (-1 if none is complete)."""
        if self._is_told(interrupt):
            self.finish_interrupted(itr)
        elif self.stop_reason is not None:
            self.finish_stopped(itr)
        self.saver.wait()
        if self.saver.is_missing:
            self._save_after_all(itr, interrupt)

    def finish_stopped(self, itr: int) -> None:
        """Save, unless the last row of the log came with a snapshot, and log why the run stops."""
        if itr < max(self.first_itr, self.min_itr_learn - 1):
            self._save(max(itr, 0), force=True)
        logger.log(self.stop_reason, level=0)

    def finish_interrupted(self, itr: int) -> None:
        """Log the iterations since the last row, up to `itr`, the last complete one (-1 if none is complete), and save.

        A search compares rows of whole intervals. So a run of a search writes no row for a part of one, and resumes from its last row.
        """
        has_row = itr == self._row_itr
        if itr < self.first_itr or (not has_row and pause_at() is not None):
            return
        if not has_row and (self._sampling_is_lost or (itr + 1) % self.log_interval_itrs != 0):
            self.log_unfinished_interval(itr)
        self._save(itr, force=True)
        logger.log(f"Stopped after iteration {itr}.", level=0)

    def log_unfinished_interval(self, itr: int) -> None:
        """Write a row of the log in the middle of an interval."""
        self.log_diagnostics(itr)

    # Snapshots ------------------------------------------------------------------------------------------------------
    def get_itr_snapshot(self, itr: int) -> dict:
        """Return the state of the run after iteration `itr`: agent, optimizer, and everything else that `resume_from` needs."""
        return snapshot_of(self, itr, self.diagnostics.cum_steps)

    def parts(self) -> dict[str, Part]:
        """Return the parts of the run that snapshots hold."""
        return dict(
            training_parts(self.agent, self.algo),
            sampler=Part(self.sampling_state, self.restore_sampling),
            runner=Part(self.counters, self.load_counters),
            rng=Part(rng_states, set_rng_states),  # Last: nothing before may draw random numbers.
        )

    def sampling_state(self) -> Any:
        """Return the state of sampling as plain data and tensors; None if a resumed run begins new episodes."""
        return dict(itr=self._itr) if self._sampling_is_lost else self.sampler.state_dict()

    def restore_sampling(self, state: Any) -> list[int]:
        """Continue from a `sampling_state`; return the columns of the batch whose environments begin new episodes."""
        try:
            return self.sampler.load_state_dict(state)
        except KeyError:
            if isinstance(state, dict) and set(state) == {"itr"}:  # Sampling was abandoned; a user's sampler may not expect this state.
                return list(range(self.sampler.batch_spec.B))
            raise

    def counters(self) -> dict:
        """Return the counters of this runner as plain data."""
        digests = {} if self.digests is None else dict(digests=self.digests.state_dict())
        return dict(diagnostics=self.diagnostics.state_dict(), score=self._score, n_scored=self._n_scored, **digests)

    def load_counters(self, counters: dict) -> None:
        """Continue counting from the result of `counters`; stop at once if the run was already solved."""
        check_counters(counters)
        self.diagnostics.load_state_dict(counters["diagnostics"])
        self._score, self._n_scored = counters.get("score"), counters.get("n_scored", 0)
        if self.digests is not None:
            self.digests.load_state_dict(counters.get("digests"))
        self.stop_reason = self.reason_to_stop(self._score, self._n_scored, self.diagnostics.cum_steps)
        if self.stop_reason is not None:
            self.stop_reason += " So there is nothing to do: to train on, change stop_return or leave it out."
        else:
            self.stop_reason = self._reason_to_pause(self.diagnostics.cum_steps)

    def save_itr_snapshot(self, itr: int) -> None:
        """Save a snapshot, if one is due according to the snapshot mode of the log."""
        force = self.stop_reason is not None
        is_due = self.rank == 0 and self.snapshots.is_snapshot_due(itr, force)
        if is_due:
            logger.log("saving snapshot...", level=2)
        self._save(itr, force)
        if is_due and self.saver.is_saved:
            logger.log("saved", level=2)

    def _save(self, itr: int, force: bool = False) -> None:
        if self.snapshots.is_snapshot_due(itr, force):
            record_run(self)  # A subclass's startup() may not have done so.
            snapshot = partial(self.get_itr_snapshot, *self._numbers(itr))
            self.saver.save(self.snapshots, itr, snapshot, self._saved_replay, force, self._score, self._only_in_best())

    def _only_in_best(self) -> dict[str, Any]:
        """Return the entries that best.pkl has in place of those of other snapshots."""
        return {}

    def _save_after_all(self, itr: int, interrupt: Interrupt) -> None:
        """At the end of the run, retry saving the last snapshot; raise RuntimeError if that fails, unless the run was told to end."""
        logger.log("saving snapshot once more, since the last one could not be saved...")
        self._save(max(itr, 0), force=True)
        self.saver.wait()
        if self.saver.is_saved:
            logger.log("saved")
        elif not self._is_told(interrupt):
            raise snapshot_is_missing(self.snapshots.get_snapshot_dir())

    @property
    def _saved_replay(self) -> Any:
        """The replay buffer, if it is to be saved."""
        return replay_buffer_of(self.algo) if self.save_replay else None

    # Logging --------------------------------------------------------------------------------------------------------
    def store_diagnostics(self, itr: int, traj_infos: list, opt_info: Any) -> None:
        """Keep the results of iteration `itr` until the next row is logged."""
        self._count_steps(itr)
        self.diagnostics.count_trajs(len(traj_infos))
        self.diagnostics.store_opt_info(opt_info)
        self.progress.update(self.diagnostics.cum_steps)

    def _count_steps(self, itr: int) -> None:
        """Count the environment steps up to batch `itr`; an overridden `store_diagnostics` may not have done so."""
        self.diagnostics.cum_steps = max(self.diagnostics.cum_steps, (itr + 1) * self.itr_batch_size)

    def _numbers(self, itr: int) -> tuple[int, ...]:
        """Return the numbers that methods for users, such as `get_itr_snapshot`, are given for batch `itr`."""
        return (itr,)

    def _iteration(self, itr: int) -> int:
        """Return the iteration to show in the row of batch `itr`."""
        return itr

    @property
    def waiting_seconds(self) -> float:
        """Seconds spent so far waiting for other processes."""
        return self.sampler.waiting_seconds

    def log_diagnostics(self, itr: int, traj_infos: list | None = None, eval_time: float = 0, prefix: str = "Diagnostics/") -> None:
        """Write a row of the log, and a snapshot if the algorithm has begun to learn."""
        self._clear_progress()
        if itr > 0:  # At 0 training may not have begun.
            self._count_steps(itr)
        with logger.tabular_prefix(prefix):
            if self._eval:
                evaluation = (self.diagnostics.cum_eval_time + eval_time) * self._eval_pauses_training
                logger.record_tabular("CumTrainTime", self.diagnostics.cum_time - evaluation, detail=True)
            self.diagnostics.record(self._iteration(itr), self.algo.update_counter, eval_time, self._eval_pauses_training)
            self.diagnostics.record_times(eval_time, CompletedAlgorithm(self.algo).replay_seconds, self.waiting_seconds)
            if self.digests is not None:
                self.digests.record(self, itr, self.snapshots.get_snapshot_dir())
        self._log_infos(traj_infos)
        row = logger.dump_tabular(with_prefix=False)
        self._row_itr = itr
        try:
            self.after_row(row)
        finally:
            if itr >= self.min_itr_learn - 1:
                self.save_itr_snapshot(*self._numbers(itr))
        if itr < self.n_itr - 1 and self.stop_reason is None and isinstance(self.pbar, ProgBarCounter):
            self.pbar = ProgBarCounter(self.log_interval_itrs)

    def _clear_progress(self) -> None:
        self.pbar.stop()
        self.progress.clear()

    def after_row(self, row: dict[str, float]) -> None:
        """Call the hooks, and stop the run if a hook or the mean return requires it. Otherwise show the progress.

        `log_diagnostics` calls this between a row and its snapshot.

        Args:
            row: the values of the row by column, as `logger.dump_tabular` returns them.
        """
        steps = self.diagnostics.cum_steps
        self.stop_reason = self.reason_to_stop(self._score, self._n_scored, steps)
        stopping = call_hooks(self.hooks, self, row)
        if stopping is not None and self.stop_reason is None:
            self.stop_reason = f"Stopped by the hook {stopping}, after {steps:,} steps."
        if self.stop_reason is None:
            self.stop_reason = self._reason_to_pause(steps)
        is_told = self._interrupt is not None and self._interrupt.signal is not None
        self.progress.row(steps, value(row, *RETURN_COLUMNS), is_going_on=self.stop_reason is None and not is_told)

    def reason_to_stop(self, score: float | None, n_trajs: int, cum_steps: int) -> str | None:
        """Return a sentence if the run is solved, or None if it is not.

        Args:
            score: mean return in the last row of its log, if any.
            n_trajs: number of trajectories in that mean.
            cum_steps: environment steps so far.
        """
        if self.stop_return is None or score is None or n_trajs < self.min_trajs_to_stop or not score >= self.stop_return:
            return None
        returns_are_of = self._returns_are_of.format(n=n_trajs)
        return f"Solved: mean return {score:.1f} over {returns_are_of} (stop_return={self.stop_return:g}), after {cum_steps:,} steps."

    def _reason_to_pause(self, cum_steps: int) -> str | None:
        """Return a sentence if the launcher wants the run to pause after this many environment steps; None if it should continue."""
        at = pause_at()
        if at is None or cum_steps < at or cum_steps >= self.n_steps:
            return None
        return f"Paused after {cum_steps:,} of {self.n_steps:,} steps: the search that launched this run decides whether it resumes."

    @property
    def min_trajs_to_stop(self) -> int:
        """Smallest number of trajectories whose mean return can stop the run."""
        return 1

    def _log_infos(self, traj_infos: list | None = None) -> None:
        """Record statistics of the trajectories and of the optimization."""
        returns = [info["Return"] for info in traj_infos or [] if "Return" in info]
        self._score, self._n_scored = (sum(returns) / len(returns) if returns else None), len(returns)
        self.diagnostics.record_infos(traj_infos or [])


# The base of mixins (classes in front of a runner), so that type checkers know the attributes of a runner.
if TYPE_CHECKING:
    RunnerMixin = MinibatchRlBase
else:
    RunnerMixin = object


class MinibatchRl(MinibatchRlBase):
    """Measures performance by the trajectories on which it trains.

    Args:
        log_traj_window: number of latest trajectories to average.
        kwargs: see `MinibatchRlBase`.
    """

    _returns_are_of = "the last {n} trajectories"

    @checked(log_traj_window=COUNT)
    def __init__(self, log_traj_window: int = 100, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.log_traj_window = log_traj_window

    @property
    def min_trajs_to_stop(self) -> int:
        """The size of the window."""
        return self.log_traj_window

    def train(self) -> None:
        """Alternate between sampling and optimization, logging at the specified interval."""
        with self._iterations() as itrs:
            for itr in itrs:
                self.run_iteration(itr)
                if (itr + 1) % self.log_interval_itrs == 0:
                    self.log_diagnostics(itr)

    def initialize_logging(self) -> None:
        """Start counting, with an empty window of trajectories."""
        super().initialize_logging()
        self._traj_infos: deque = deque(maxlen=self.log_traj_window)

    def counters(self) -> dict:
        return dict(super().counters(), traj_infos=plain_infos(self._traj_infos))

    def load_counters(self, counters: dict) -> None:
        super().load_counters(counters)
        traj_infos = infos_from_plain(counters.get("traj_infos"), self.sampler.TrajInfoCls)
        self._traj_infos = deque(traj_infos, maxlen=self.log_traj_window)

    def store_diagnostics(self, itr: int, traj_infos: list, opt_info: Any) -> None:
        """Keep the results of iteration `itr` until the next row is logged."""
        self._traj_infos.extend(traj_infos[-self.log_traj_window :])
        super().store_diagnostics(itr, traj_infos, opt_info)

    def log_diagnostics(self, itr: int, prefix: str = "Diagnostics/") -> None:  # type: ignore[override]
        """Write a row of the log."""
        with logger.tabular_prefix(prefix):
            logger.record_tabular("NewCompletedTrajs", self.diagnostics.new_completed_trajs, detail=True)
            logger.record_tabular("StepsInTrajWindow", sum(info["Length"] for info in self._traj_infos), detail=True)
        super().log_diagnostics(itr, prefix=prefix)

    def _log_infos(self, traj_infos: list | None = None) -> None:
        super()._log_infos(list(self._traj_infos) if traj_infos is None else traj_infos)


class MinibatchRlEval(MinibatchRlBase):
    """Measures performance by evaluation episodes. Training pauses for them: before it begins, and in every logging interval."""

    _eval = True
    _returns_are_of = "the {n} trajectories of the evaluation"

    @property
    def min_trajs_to_stop(self) -> int:
        """The number of evaluation environments, or the limit of trajectories in an evaluation if that is less."""
        return min(self.sampler.eval_n_envs, self.sampler.eval_max_trajectories or self.sampler.eval_n_envs)

    def train(self) -> None:
        """Evaluate, then alternate between sampling and optimization, evaluating and logging at the specified interval."""
        with self._iterations() as itrs:
            if self.resume_from is None:
                logger.set_iteration(0)
                with logger.prefix("itr #0 "):
                    self.log_diagnostics(0, *self._complete(self.evaluate_agent(0)))
                self._row_itr = -1  # It came before iteration 0.
            for itr in itrs:
                self.run_iteration(itr)
                if (itr + 1) % self.log_interval_itrs == 0:
                    evaluation = self.evaluate_agent(itr)
                    if pause_at() is not None and self._is_told(self._interruptible()):
                        break  # The evaluation may be incomplete, see `finish_interrupted`.
                    self.log_diagnostics(itr, *self._complete(evaluation))

    def _complete(self, evaluation: tuple[list, float]) -> tuple[list, float]:
        """Return an evaluation, or one without episodes if a signal may have cut it short: only short episodes would be in it."""
        return ([], 0.0) if self._is_told(self._interruptible()) else evaluation

    def evaluate_agent(self, itr: int) -> tuple[list, float]:
        """Play evaluation episodes, once learning has begun; return their TrajInfos and the seconds it took."""
        if 0 < itr < self.min_itr_learn - 1:
            return [], 0.0
        self._clear_progress()
        logger.log("Evaluating agent...", level=2)
        start = time.monotonic()
        self.agent.eval_mode(itr)  # For example, sets epsilon.
        with self._interruptible().abandonable():
            traj_infos = self.sampler.evaluate_agent(itr)
        self.agent.sample_mode(itr)
        logger.log("Evaluation runs complete.", level=2)
        return traj_infos, time.monotonic() - start

    def log_unfinished_interval(self, itr: int) -> None:
        """Write a row of the log in the middle of an interval, without evaluation."""
        self.log_diagnostics(itr, [], 0.0)

    def log_diagnostics(  # type: ignore[override]
        self, itr: int, eval_traj_infos: list, eval_time: float, prefix: str = "Diagnostics/"
    ) -> None:
        """Write a row of the log."""
        if eval_time > 0 and not eval_traj_infos:
            logger.warn("no evaluation episode was completed within eval_max_steps; raise it.")
        with logger.tabular_prefix(prefix):
            logger.record_tabular("StepsInEval", sum(info["Length"] for info in eval_traj_infos), detail=True)
            logger.record_tabular("TrajsInEval", len(eval_traj_infos), detail=True)
            logger.record_tabular("CumEvalTime", self.diagnostics.cum_eval_time + eval_time, detail=True)
        super().log_diagnostics(itr, eval_traj_infos, eval_time, prefix=prefix)


def snapshot_is_missing(directory: Any) -> RuntimeError:
    """Return the error of a run that has not finished, because its last snapshot could not be saved."""
    reasons = logger.why_not_written(directory or "")
    return RuntimeError(
        f"{SNAPSHOT_MISSING}, not even in a second try at the end of the run{': ' * bool(reasons)}{reasons}. "
        "Make room for it, and resume the run: it continues from the previous snapshot, if any."
    )


def check_counters(counters: Any) -> None:
    """Raise ValueError unless these are counters that all runners have."""
    check_form(counters, dict(diagnostics=dict), "counters")
    check_form(counters.get("score"), (int, float, type(None)), "counters['score']")
    check_form(counters.get("n_scored", 0), NATURAL, "counters['n_scored']")


def checked_stop_return(stop_return: Any) -> float | None:
    """Return the mean return at which a run stops, as a float or None; raise ValueError for anything else."""
    check_values("The run", dict(stop_return=stop_return), dict(stop_return=OF_RUNNERS["stop_return"]))
    return None if stop_return is None else float(stop_return)
