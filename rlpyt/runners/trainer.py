"""`Trainer`: training in epochs, with log and snapshots, by an algorithm with a training loop, or by one of rlpyt's.

    trainer = Trainer(ctxt)                      # of wrap_experiment; Trainer() logs and saves where the log is open
    trainer.setup(algo, env)                     # an algorithm with train(trainer), or
    trainer.setup(PPO(), agent=AtariFfAgent(), sampler=SerialSampler(...))
    trainer.train(n_epochs=100, batch_size=4000)

    trainer = Trainer(ctxt)                      # later, with the same algorithm and environment
    trainer.setup(algo, env)
    trainer.restore(directory)
    trainer.resume()                             # continues as if it had never stopped; n_epochs=200 makes it longer

A snapshot holds data and no code, so the arguments of `setup` must be built again. It holds

- for an algorithm with ``train(trainer)``, the result of ``state_dict()`` (or ``__getstate__()``): tensors, arrays, numbers, strings,
  random generators, and dicts, lists and tuples of them. ``load_state_dict(state)`` (or ``__setstate__(state)``) restores it;
- for its sampler the same, if the sampler has these methods; otherwise environments begin new episodes;
- for an algorithm of rlpyt, the snapshot of its runner;
- the random state of the process, counters, and the position in the log.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from rlpyt.agents.policy import CompletedPolicy
from rlpyt.runners.checkpoint import FORMAT, check_format
from rlpyt.runners.minibatch_rl import MinibatchRl, MinibatchRlEval, snapshot_is_missing
from rlpyt.runners.protocols import CompletedLoop, CompletedRunner, CompletedSampler, Snapshots
from rlpyt.runners.record import write_record
from rlpyt.runners.screen import show_commands
from rlpyt.runners.snapshots import SnapshotConfig, Snapshotter, find_snapshot
from rlpyt.runners.states import KEPT, check_has_state, has_state_dict, load_state, state_of
from rlpyt.runners.sync_rl import SyncRlMixin
from rlpyt.samplers.workers import describe_failure
from rlpyt.utils.interrupt import CLOSING, HURRY, Interrupt
from rlpyt.utils.logging import logger
from rlpyt.utils.logging.context import check_runs_may_start
from rlpyt.utils.logging.runs import PROGRESS, RETURN_COLUMNS, value
from rlpyt.utils.logging.snapshot import reading
from rlpyt.utils.logging.store import beside
from rlpyt.utils.misc import has_all
from rlpyt.utils.plain import NATURAL, check_form, from_plain, to_plain
from rlpyt.utils.prog_bar import Progress
from rlpyt.utils.recipes import Script, running_script
from rlpyt.utils.seed import get_seed, rng_states, seed_env, set_rng_states
from rlpyt.utils.settings import COUNT, SEED, STEPS, checked
from rlpyt.utils.text import printable

_FORM = dict(  # The form of snapshots of an algorithm with a training loop, see `check_form`.
    epoch=NATURAL,
    cum_steps=NATURAL,
    algo=dict,
    sampler=(dict, type(None)),
    trainer=dict(total_itr=NATURAL, cum_time=(int, float), episodes=object),
    n_rows=NATURAL,
    rng=dict,
)


class NotSetupError(Exception):
    """Another method must be called before this one."""


@dataclass
class TrainArgs:
    """Arguments of `Trainer.train`, and the first epoch."""

    n_epochs: int
    batch_size: int | None = None
    plot: bool = False
    store_episodes: bool = False
    pause_for_plot: bool = False
    start_epoch: int = 0


class Trainer:
    """Trains in epochs, and writes a row of the log and a snapshot after each of them.

    Args:
        snapshot_config: has `snapshot_dir`, `snapshot_mode` and `snapshot_gap`, like the context of an experiment; see
            `rlpyt.runners.snapshots.Snapshotter`. A directory alone keeps the last snapshot. None takes the configuration of the open log,
            or else the defaults.
        verbose: how much to show on the screen, from 0 to 2, as for runners; None takes the level of
            `rlpyt.utils.logging.logger.set_verbose`.

    Raises:
        TypeError: `snapshot_config` has another type.

    Attributes:
        step_itr: iterations so far, counted by an algorithm with ``train(trainer)``; they are the steps of TensorBoard.
        step_episode: the samples of such an algorithm in this epoch, for `store_episodes`; after `restore`, the stored samples, a list of
            dictionaries, one per episode.
        enable_logging: whether a row is logged after each epoch; such an algorithm may write the rows itself instead.
    """

    @checked(verbose=logger.VERBOSE)
    def __init__(self, snapshot_config: Any = None, verbose: int | None = None) -> None:
        config = _config_of_log() if snapshot_config is None else _as_config(snapshot_config)
        self._snapshotter = Snapshotter(config.snapshot_dir, config.snapshot_mode, config.snapshot_gap)
        self.script: Script | None = None  # The file that made the run, if it is not that of this process.
        self.step_itr = 0
        self.step_episode: Any = None
        self.enable_logging = True
        self.verbose = verbose
        self._progress: Progress | None = None
        self._algo: Any = None
        self._env: Any = None
        self._sampler: Any = None
        self._runner_settings: dict | None = None  # None if the algorithm has a training loop.
        self._runner: Any = None
        self._train_args: TrainArgs | None = None
        self._restored: tuple[Any, dict] | None = None  # Snapshot file and contents.
        self._must_continue = False  # Sampler and random states are restored when the first epoch begins.
        self._interrupt: Interrupt | None = None
        self._sampler_state: dict | None = None  # State of a sampler that was shut down after training.
        self._training: int | None = None  # Its number, see `Snapshotter.next_training`; None before its first snapshot.
        self._epoch = 0  # The last epoch that was offered to the snapshotter,
        self._is_missing = False  # and whether the newest snapshot that was due could not be saved.
        self._total_env_steps = 0
        self._ended_sampler: Any = None  # The sampler that the last training has shut down.
        self._cum_time = 0.0  # seconds of training until `_start_time`
        self._start_time: float | None = None  # None while nothing trains.
        self._epoch_time = time.monotonic()

    # Setup ----------------------------------------------------------------------------------------------------------
    @checked(seed=SEED)
    def setup(
        self,
        algo: Any,
        env: Any = None,
        *,
        agent: Any = None,
        sampler: Any = None,
        seed: int | None = None,
        affinity: dict | str | None = None,
        save_replay: bool = False,
        RunnerCls: Any = None,
    ) -> None:
        """Choose what to train.

        Args:
            algo: an algorithm with ``train(trainer)``, and with ``_sampler`` if it uses `obtain_episodes`; or an algorithm of rlpyt, with
                ``optimize_agent``.
            env: environment, for `get_env_copy`.
            agent, sampler: agent and sampler for an algorithm of rlpyt.
            seed, affinity, save_replay: arguments of its runner, see `rlpyt.runners.minibatch_rl.MinibatchRlBase`. The seed defaults to the
                last one given to `rlpyt.utils.seed.set_seed`.
            RunnerCls: class of its runner; default `MinibatchRlEval` if the sampler has evaluation environments, otherwise `MinibatchRl`.

        Raises:
            TypeError: `algo` is neither of these.
            ValueError: agent or sampler is missing, or superfluous.
        """
        settings = dict(agent=agent, sampler=sampler, seed=seed, affinity=affinity, save_replay=save_replay, RunnerCls=RunnerCls)
        name = type(algo).__name__
        loop = CompletedLoop(algo)
        if callable(loop.train):
            superfluous = [key for key, value in settings.items() if value is not None and value is not False]
            if superfluous:
                raise ValueError(f"{name} has train(trainer), so it takes care of {', '.join(superfluous)} itself: leave them out.")
            self._runner_settings, self._sampler = None, loop._sampler
        elif callable(loop.optimize_agent):
            missing = [key for key in ("agent", "sampler") if settings[key] is None]
            if missing:
                raise ValueError(f"{name} is an algorithm of rlpyt: setup() needs its {' and '.join(missing)}, too.")
            self._runner_settings, self._sampler = settings, None
        else:
            raise TypeError(f"{name} has neither train(trainer) nor optimize_agent(itr, samples): it is no algorithm to train.")
        self._algo, self._env, self._sampler_state = algo, env, None
        if self._restored is not None:
            self._load_algo(*self._restored)

    def get_env_copy(self) -> Any:
        """Return a copy of the environment given to `setup`, with other random numbers; None if none was given."""
        if self._env is None:
            return None
        import cloudpickle

        copy = cloudpickle.loads(cloudpickle.dumps(self._env))
        seed_env(copy, int(torch.randint(2**31, ())))
        return copy

    @property
    def total_env_steps(self) -> int:
        """Environment steps so far."""
        diagnostics = CompletedRunner(self._runner).diagnostics
        return self._total_env_steps if diagnostics is None else diagnostics.cum_steps

    @total_env_steps.setter
    def total_env_steps(self, value: int) -> None:
        self._total_env_steps = value

    # Sampling -------------------------------------------------------------------------------------------------------
    def obtain_episodes(self, itr: int, batch_size: int | None = None, agent_update: Any = None, env_update: Any = None) -> Any:
        """Return whole episodes, sampled by the algorithm's sampler.

        Args:
            itr: number of the iteration.
            batch_size: smallest number of environment steps; default that of `train`.
            agent_update: the policy or parameters for the workers, or a list with one entry per worker. Default: ``get_param_values()`` of
                the algorithm's ``exploration_policy``, or else of its ``policy``; the policy itself if it lacks that method.
            env_update: changes the environments, or a list of changes with one entry per worker; None leaves them unchanged.

        Returns:
            An `rlpyt.episodes.EpisodeBatch`.

        Raises:
            ValueError: there is no sampler, no `batch_size` here and in `train`, or no policy for the workers.
        """
        if self._sampler is None:
            raise ValueError("The trainer has no sampler: give the algorithm one, as its attribute _sampler, before setup().")
        if batch_size is None and self._train_args is not None:
            batch_size = self._train_args.batch_size
        if batch_size is None:
            raise ValueError("batch_size (env steps) must be given, to obtain_episodes() or to train().")
        if agent_update is None:
            agent_update = self._policy_parameters()
        try:
            with nullcontext() if self._interrupt is None else self._interrupt.abandonable():
                episodes = self._sampler.obtain_samples(itr, batch_size, agent_update=agent_update, env_update=env_update)
        except RuntimeError as error:
            if self._sampler is self._ended_sampler:
                describe_failure(error, "The training before has shut it down: give the algorithm a new sampler, and call setup() again.")
            raise
        self._total_env_steps += int(sum(episodes.lengths))
        if self._progress is not None:
            self._progress.update(self._progress.done, self.total_env_steps)
        return episodes

    def obtain_samples(self, itr: int, batch_size: int | None = None, agent_update: Any = None, env_update: Any = None) -> list[dict]:
        """Do `obtain_episodes`, but return a list of dictionaries, one per episode."""
        return self.obtain_episodes(itr, batch_size, agent_update, env_update).to_list()

    def _policy_parameters(self) -> Any:
        """Return the parameters of the policy, or the policy if it has no `get_param_values`."""
        loop = CompletedLoop(self._algo)
        policy = loop.policy if loop.exploration_policy is None else loop.exploration_policy
        if policy is None:
            raise ValueError(
                f"{type(self._algo).__name__} has no attribute policy or exploration_policy, so workers would act with their first "
                "parameters for ever: keep the policy there, or give obtain_episodes() an agent_update."
            )
        get_param_values = CompletedPolicy(policy).get_param_values
        return policy if get_param_values is None else get_param_values()

    # Training -------------------------------------------------------------------------------------------------------
    @checked(n_epochs=STEPS, batch_size=COUNT)
    def train(
        self,
        n_epochs: int,
        batch_size: int | None = None,
        plot: bool = False,
        store_episodes: bool = False,
        pause_for_plot: bool = False,
    ) -> Any:
        """Train from the beginning: epochs, environment steps, iterations and time count from 0, also after `restore` or another training.

        An algorithm with ``train(trainer)`` keeps its state, such as the one that `restore` gave it. One of rlpyt begins with new models.
        Training ends by shutting the algorithm's sampler down, if it can be. To train again, give the algorithm a new sampler, and call
        `setup` again.

        Args:
            n_epochs: number of epochs.
            batch_size: environment steps per epoch. For an algorithm of rlpyt, a multiple of the steps in a batch of its sampler, by
                default one batch; with `SyncRl`, the batches of all processes count together.
            plot, pause_for_plot: ignored, with a warning, because there is no window.
            store_episodes: keep ``step_episode`` in snapshots.

        Returns:
            The result of the algorithm's ``train``, by convention the average return in the last epoch. For algorithms of rlpyt, that
            average, or None if it is unknown.

        Raises:
            NotSetupError: there was no `setup`.
            TypeError: snapshots are kept, but the algorithm does not return its state.
        """
        self._check_setup("train()")
        self._restored, self._must_continue = None, False
        self._runner, self.step_episode = None, None
        self._total_env_steps = self.step_itr = 0
        self._cum_time = 0.0
        return self._train(TrainArgs(n_epochs, batch_size, plot, store_episodes, pause_for_plot))

    @checked(n_epochs=STEPS, batch_size=COUNT)
    def resume(
        self,
        n_epochs: int | None = None,
        batch_size: int | None = None,
        plot: bool | None = None,
        store_episodes: bool | None = None,
        pause_for_plot: bool | None = None,
    ) -> Any:
        """Continue from the snapshot that `restore` loaded. Arguments are those of `train`, and default to those of the first training.

        Raises:
            NotSetupError: there was no `restore` or no `setup`.
        """
        if self._restored is None or self._train_args is None:
            raise NotSetupError("Call restore(directory) before resume().")
        self._check_setup("resume()")
        given: dict[str, Any] = dict(
            n_epochs=n_epochs, batch_size=batch_size, plot=plot, store_episodes=store_episodes, pause_for_plot=pause_for_plot
        )
        return self._train(dataclasses.replace(self._train_args, **{name: value for name, value in given.items() if value is not None}))

    def _train(self, args: TrainArgs) -> Any:
        if args.plot or args.pause_for_plot:
            logger.warn("There is no window to plot in: plot=True is ignored. `rlpyt video` records what an agent does.")
        self._train_args, self._training = args, None
        try:
            with logger.verbosity(self.verbose):
                settings = self._runner_settings
                return self._train_by_algorithm(args) if settings is None else self._train_by_runner(args, dict(settings))
        finally:
            self._restored = None  # The next training must not start from it.

    def _recorded(self, args: TrainArgs) -> dict[str, Any]:
        """Return the entries of the trainer in params.json."""
        return dict(trainer={name: value for name, value in dataclasses.asdict(args).items() if name != "start_epoch"})

    def _train_by_algorithm(self, args: TrainArgs) -> Any:
        check_runs_may_start()
        if self._snapshotter.snapshot_mode != "none":
            check_has_state(self._algo, "train it with snapshot_mode='none'")
        self._describe(args)
        self._tell_settings(args)
        if self._snapshotter.is_writer:
            parts = dict(algo=self._algo) if self._env is None else dict(algo=self._algo, env=self._env)
            n_steps = None if args.batch_size is None else args.n_epochs * args.batch_size
            write_record(
                self._snapshotter.snapshot_dir,
                self.script or running_script(),
                parts,
                is_resumed=self._restored is not None,
                seed=get_seed(),
                n_steps=n_steps,
                **self._recorded(args),
            )
        self._sampler_state, self._is_missing = None, False
        self._start_time = self._epoch_time = time.monotonic()
        says = "finishing this epoch, then saving. Ctrl-C again ends at once."
        with Interrupt(lambda: None, says, hurry=HURRY) as self._interrupt:
            try:
                value = self._algo.train(self)
                self._save_after_all()
                if self._snapshotter.snapshot_mode != "none":
                    self._sampler_state = self._state_of_sampler()  # For save() afterwards.
            finally:
                self._cum_time, self._start_time = self._seconds(), None
                self._end_progress()
                self._ended_sampler = self._sampler
                with self._interrupt.abandonable(at_least=CLOSING):
                    CompletedSampler(self._sampler).shutdown_worker()
        directory = self._snapshotter.snapshot_dir
        if self._snapshotter.is_writer and os.path.exists(os.path.join(directory, PROGRESS)):
            show_commands([f"rlpyt plot {shlex.quote(os.fspath(directory))}"])
        if self._interrupt.signal is not None:
            raise self._interrupt.ended()
        return value

    def _tell_settings(self, args: TrainArgs) -> None:
        """Log the settings of an algorithm with a training loop in one line."""
        parts = [type(self._algo).__name__]
        parts += [type(part).__name__ for part in (self._sampler, self._env) if part is not None]
        size = "" if args.batch_size is None else f" of {args.batch_size:,} environment steps"
        logger.log(f"{', '.join(parts)}: seed {get_seed()}, epochs {args.start_epoch:,} to {args.n_epochs:,}{size}.")

    @property
    def _is_told_to_end(self) -> bool:
        return self._interrupt is not None and self._interrupt.signal is not None

    def _end_progress(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def step_epochs(self) -> Iterator[int]:
        """Yield the number of each epoch, and log and save after it. The algorithm's ``train(trainer)`` loops over this.

        for epoch in trainer.step_epochs():
            trainer.step_episode = trainer.obtain_samples(trainer.step_itr)
            self.train_once(trainer.step_episode)
            trainer.step_itr += 1
        """
        self._check_setup("step_epochs()")
        if self._train_args is None:
            raise NotSetupError("step_epochs() is for the algorithm's train(trainer), which train() calls.")
        self._continue()
        args, self.step_episode = self._train_args, None
        self._end_progress()
        self._progress = Progress(args.n_epochs, args.start_epoch, "epochs", steps=self.total_env_steps)
        for epoch in range(args.start_epoch, args.n_epochs):
            self._epoch_time = time.monotonic()
            with logger.prefix(f"epoch #{epoch} "):
                yield epoch
                is_last = self._is_told_to_end
                row: dict[str, Any] = {}
                self._progress.clear()
                if self.enable_logging:
                    self.log_diagnostics(args.pause_for_plot)
                    logger.record_tabular("Epoch", epoch)
                    logger.set_iteration(self.step_itr)
                    row = logger.dump_tabular()
                self._save(epoch, force=is_last)
                self._progress.row(epoch + 1, value(row, *RETURN_COLUMNS), self.total_env_steps, is_going_on=not is_last)
            if is_last:
                return

    def log_diagnostics(self, pause_for_plot: bool = False) -> None:
        """Record the columns that all algorithms share in the row of this epoch. `step_epochs` calls this."""
        logger.record_tabular("TotalEnvSteps", self.total_env_steps)
        logger.record_tabular("CumTime (s)", self._seconds())
        logger.record_tabular("EpochTime (s)", time.monotonic() - self._epoch_time)

    def _seconds(self) -> float:
        """Return the seconds of training so far."""
        return self._cum_time + (0.0 if self._start_time is None else time.monotonic() - self._start_time)

    def _train_by_runner(self, args: TrainArgs, settings: dict[str, Any]) -> Any:
        RunnerCls = settings.pop("RunnerCls") or (MinibatchRlEval if settings["sampler"].eval_n_envs else MinibatchRl)
        if args.start_epoch >= args.n_epochs:
            logger.log(f"There is nothing to do: {args.start_epoch} of {args.n_epochs} epochs are done.")
            return None
        if args.store_episodes:
            logger.warn("store_episodes=True is ignored: the samplers of rlpyt's algorithms do not sample by episodes.")
        if self._restored is not None:
            settings["resume_from"], before = self._restored[0], self._restored[1]["trainer"]["train_args"]["batch_size"]
            if args.batch_size != before:
                raise ValueError(f"batch_size={args.batch_size} must be {before}, as it was: the runner counts in epochs of that.")
        elif settings["seed"] is None:
            settings["seed"] = get_seed()
        size = settings["sampler"].batch_spec.size
        runner = RunnerCls(algo=self._algo, **settings, n_steps=args.n_epochs * size, log_interval_steps=size)
        if isinstance(runner, SyncRlMixin):
            size *= runner.world_size  # Only the runner knows it.
        args.batch_size = args.batch_size or size
        if args.batch_size % size:
            who = f"samplers of {runner.world_size} processes take" if isinstance(runner, SyncRlMixin) else "sampler takes"
            raise ValueError(f"batch_size={args.batch_size} must be a multiple of the {size} env steps that the {who} at once.")
        runner.n_steps, runner.log_interval_steps = args.n_epochs * args.batch_size, args.batch_size
        self._describe(args)
        self._runner = runner
        self._runner.snapshots = _EpochSnapshots(self._snapshotter, self._runner, args)
        self._runner.script, self._runner.also_recorded = self.script, self._recorded(args)
        self._runner.train()
        return self._runner._score

    # Snapshots ------------------------------------------------------------------------------------------------------
    def save(self, epoch: int) -> None:
        """Save a snapshot, if one is due according to the snapshot mode. `step_epochs` calls this after each epoch.

        Raises:
            NotSetupError: there was no `setup`.
            RuntimeError: the algorithm is one of rlpyt, whose runner saves the snapshots.
            TypeError: the algorithm does not return its state, or the state contains an object that a snapshot cannot hold.
        """
        self._check_setup("save()")
        if self._runner_settings is not None:
            raise RuntimeError(f"The runner of {type(self._algo).__name__} saves a snapshot after each epoch, and at no other time.")
        self._save(epoch)

    def _save(self, epoch: int, force: bool = False) -> None:
        self._epoch = epoch
        if self._snapshotter.is_due(epoch, force):
            self._is_missing = not self._snapshotter.save_itr_params(epoch, self._snapshot(epoch), force)

    def _save_after_all(self) -> None:
        """If the newest snapshot that was due is not saved, save one of the last epoch; raise RuntimeError if that fails, too.

        It is no error if training was told to end.
        """
        if self._is_missing:
            self._save(self._epoch, force=True)
        if self._is_missing and not self._is_told_to_end:
            raise snapshot_is_missing(self._snapshotter.snapshot_dir)

    def _snapshot(self, epoch: int) -> dict[str, Any]:
        if self._training is None:
            self._training = self._snapshotter.next_training()
        args = self._train_args or TrainArgs(n_epochs=epoch + 1)
        episodes: Any = self.step_episode if args.store_episodes else None
        episodes = episodes.to_list() if hasattr(episodes, "to_list") else episodes
        return dict(
            itr=epoch,
            epoch=epoch,
            cum_steps=self.total_env_steps,
            algo=state_of(self._algo),
            sampler=self._sampler_state or self._state_of_sampler(),
            trainer=dict(
                format=FORMAT,
                training=self._training,
                train_args=dataclasses.asdict(args),
                total_itr=self.step_itr,
                cum_time=self._seconds(),
                episodes=to_plain(episodes, "step_episode", KEPT),
            ),
            n_rows=logger.n_rows(),
            rng=rng_states(),  # Last: nothing above may draw random numbers.
        )

    def _state_of_sampler(self) -> dict | None:
        return state_of(self._sampler) if has_state_dict(self._sampler) else None

    def restore(self, from_dir: Any, from_epoch: int | str = "last") -> TrainArgs:
        """Load a snapshot. The algorithm gets its state here, or in a later `setup`; `resume` restores the rest.

        Args:
            from_dir: directory of the experiment.
            from_epoch: number of an epoch that has a snapshot; "first" or "last" for the first or last such epoch. If several trainings
                have saved in the directory, "last" is of the newest one, and an epoch is of the newest one that has it.

        Returns:
            A copy of the arguments of `train`, with the epoch to continue with.

        Raises:
            FileNotFoundError: there is no snapshot, or none of that epoch.
            ValueError: no snapshot is readable, or no `Trainer` saved it.
        """
        file, snapshot = find_snapshot(from_dir, from_epoch)
        trainer = snapshot.get("trainer") if isinstance(snapshot, dict) else None
        if trainer is None:
            raise ValueError(f"{file} has not been saved by a Trainer. If a runner saved it, resume that runner, by its resume_from.")
        is_of_runner = "run" in snapshot
        with reading(file):
            check_form(trainer, dict(format=NATURAL, train_args=dict), "trainer")
            check_format(trainer["format"])
            check_form(snapshot, dict(cum_steps=NATURAL) if is_of_runner else _FORM, "snapshot")
        self._restored = file, snapshot
        with reading(file, "trainer['train_args']"):
            form = dict(n_epochs=NATURAL, batch_size=NATURAL if is_of_runner else (int, type(None)), start_epoch=NATURAL)
            check_form(trainer["train_args"], form, "train_args")
            self._train_args = args = TrainArgs(**trainer["train_args"])
        # A runner that was interrupted has not completed its epoch.
        args.start_epoch = snapshot["cum_steps"] // max(args.batch_size or 0, 1) if is_of_runner else snapshot["epoch"] + 1
        self._runner, self._total_env_steps = None, snapshot["cum_steps"]
        if not is_of_runner:
            self._cum_time = trainer["cum_time"]
            with reading(file, "trainer['episodes']"):
                self.step_itr, self.step_episode = trainer["total_itr"], from_plain(trainer["episodes"], "episodes")
        if self._algo is not None:
            self._load_algo(file, snapshot)
        return dataclasses.replace(args)

    def _load_algo(self, file: Any, snapshot: dict[str, Any]) -> None:
        """Restore the algorithm from the snapshot. (The runner restores an algorithm of rlpyt.)"""
        if ("run" in snapshot) != (self._runner_settings is not None):
            kind = "an algorithm of rlpyt" if "run" in snapshot else "an algorithm with train(trainer)"
            raise ValueError(f"{file} is of {kind}, which {type(self._algo).__name__} is not.")
        if self._runner_settings is None:
            load_state(self._algo, snapshot["algo"], file)
            self._must_continue = True

    def _continue(self) -> None:
        """Restore the rest of the snapshot, just before the first epoch."""
        if self._restored is None or not self._must_continue:
            return
        self._must_continue = False
        file, snapshot = self._restored
        if snapshot["sampler"] is not None and has_state_dict(self._sampler):
            load_state(self._sampler, snapshot["sampler"], file)
        elif self._sampler is not None:
            logger.log("Environments begin new episodes: the sampler does not save their states.")
        self._total_env_steps, self.step_itr = snapshot["cum_steps"], snapshot["trainer"]["total_itr"]
        self._cum_time, self._start_time = snapshot["trainer"]["cum_time"], time.monotonic()
        if logger.n_rows() == 0:
            logger.continue_rows(beside(file, "progress.csv"), snapshot["n_rows"])
        with reading(file, "rng"):
            set_rng_states(snapshot["rng"])
        logger.log(f"Resumed after epoch {snapshot['epoch']} ({snapshot['cum_steps']:,} environment steps) from {printable(file)}.")

    def _check_setup(self, what: str) -> None:
        if self._algo is None:
            raise NotSetupError(
                f"Call setup(algo, env) before {what}. A snapshot holds no code: to resume, make algorithm and environment as they were."
            )

    def _describe(self, args: TrainArgs) -> None:
        """Write the settings and the length of the training into trainer.json."""
        if not self._snapshotter.is_writer:
            return
        settings = self._runner_settings or dict(sampler=self._sampler)
        parts = {name: type(part).__name__ for name, part in dict(settings, algo=self._algo, env=self._env).items() if part is not None}
        parts = {name: parts[name] for name in ("algo", "agent", "sampler", "env") if name in parts}
        path = os.path.join(self._snapshotter.snapshot_dir, "trainer.json")
        logger.try_to_write(path, lambda: logger.log_variant(path, {**parts, **dataclasses.asdict(args)}))


class _EpochSnapshots(Snapshots):
    """Keeps the snapshots of `Trainer`'s runner by epochs, and no best.pkl. See `rlpyt.runners.protocols.Snapshots`."""

    def __init__(self, snapshotter: Snapshotter, runner: Any, args: TrainArgs) -> None:
        self._snapshotter, self._runner, self._args = snapshotter, runner, args
        self._training = snapshotter.next_training()

    def _epoch(self, itr: int) -> int:
        return itr // self._runner.log_interval_itrs

    def is_snapshot_due(self, itr: int, force: bool = False) -> bool:
        return self._snapshotter.is_due(self._epoch(itr), force)

    def get_snapshot_dir(self) -> str:
        return self._snapshotter.snapshot_dir

    def keeps_best(self) -> bool:
        return False

    def best_score(self, score: float | None = None) -> float:
        return -math.inf

    def continue_snapshots(self, itr: int, best_score: float) -> None:
        """Do nothing: gaps end at multiples of epochs, whatever was saved before."""

    def save_itr_params(
        self,
        itr: int,
        params: dict[str, Any],
        force: bool = False,
        score: float | None = None,
        only_in_best: Mapping[str, Any] | None = None,
    ) -> bool:
        trainer = dict(format=FORMAT, training=self._training, train_args=dataclasses.asdict(self._args))
        epoch = self._epoch(itr)
        return self._snapshotter.save_itr_params(epoch, dict(params, epoch=epoch, trainer=trainer), force)


def _config_of_log() -> SnapshotConfig:
    directory, mode = logger.get_snapshot_dir(), logger.get_snapshot_mode()
    if directory is None:
        return SnapshotConfig(None)
    return SnapshotConfig(directory, "last" if mode == "best" else mode, logger.get_snapshot_gap() if "gap" in mode else 1)


def _as_config(given: Any) -> Any:
    if has_all(given, *SnapshotConfig._fields):
        return given
    if isinstance(given, (str, os.PathLike)):
        return SnapshotConfig(os.fspath(given))
    raise TypeError(
        f"snapshot_config={given!r} must be the context of an experiment, a SnapshotConfig, a directory, or None for that of the log."
    )
