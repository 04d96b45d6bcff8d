"""The interfaces of a runner's parts, and the interface of runners for snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rlpyt.types import BatchSpec
from rlpyt.utils.completed import Completed
from rlpyt.utils.recipes import Script


class Algorithm(Protocol):
    """The algorithm's interface for runners. `rlpyt.algos.base.RlAlgorithm` implements it.

    The runner calls `initialize` once, when the agent is on its device, and then `optimize_agent` after each batch. For a snapshot, it
    calls the two methods that return states. To resume, it calls their inverses between `initialize` and the first batch.

    Attributes:
        opt_info_fields: the columns of the log for the results of `optimize_agent`.
        update_counter: gradient updates so far.
        bootstrap_value: whether the sampler must record the value estimates from which returns bootstrap.

    `CompletedAlgorithm` has the optional attributes.
    """

    opt_info_fields: Sequence[str]
    update_counter: int
    bootstrap_value: bool

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Prepare for training, with the arguments of `rlpyt.algos.base.RlAlgorithm.initialize`."""

    def optimize_agent(self, itr: int, samples: Any) -> Any:
        """Train on a batch ``[T,B]``; return a namedtuple with `opt_info_fields`, of floats or lists of floats."""

    def optim_state_dict(self) -> dict[str, Any]:
        """Return the states of all optimizers."""

    def load_optim_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Invert `optim_state_dict`."""

    def training_state(self) -> dict[str, Any]:
        """Return the rest of the algorithm's state, without models and replay, as plain data."""

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Invert `training_state`."""


class AsyncAlgorithm(Algorithm, Protocol):
    """The algorithm's interface for asynchronous runners; it learns from replay. `rlpyt.algos.replay.ReplayAlgorithm` implements it.

    The runner's process calls `async_initialize` before it starts the others. Each optimizing process then calls `prepare_models`,
    `optim_initialize` and `deliver_batches`, and the memory copier `append`.

    Attributes:
        updates_per_optimize: gradient updates in a call of `optimize_agent`.
        batch_size: samples per gradient update in each optimizing process.
        replay_ratio: largest number of replayed samples per sampled environment step.
    """

    updates_per_optimize: int
    batch_size: int
    replay_ratio: float

    def async_initialize(self, *args: Any, **kwargs: Any) -> Any:
        """Allocate the replay buffer in shared memory, with the arguments of `rlpyt.algos.replay.ReplayAlgorithm.async_initialize`."""

    def prepare_models(self) -> None:
        """Prepare the agent's models for training on its device."""

    def optim_initialize(self, rank: int = 0) -> None:
        """Make the optimizers of a training process."""

    def deliver_batches(self) -> None:
        """Prepare to draw batches in this process."""

    def append(self, samples: Any) -> None:
        """Append a batch ``[T,B]`` to the replay buffer."""

    def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: int | None = None) -> Any:
        """Train on replayed samples; `sampler_itr` is the newest batch in the replay buffer."""


class CompletedAlgorithm(Completed):
    """Any algorithm, with the optional attributes that runners read.

    Attributes:
        discount: for the TrajInfo class.
        batch_size: samples per gradient update; None if unknown.
        min_itr_learn: iterations before it learns.
        replay_seconds: time spent on replay so far.
        replay_buffer: which `save_replay` saves; None without one, or before it is made.
        n_step_return: rewards that a target sums up before it bootstraps.
        samples_to_buffer: method of algorithms that learn from replay; None for others.
        corrects_lag: whether an algorithm without replay may learn from batches of an earlier policy.
        bf16, compile_models, cuda_graphs: whether it makes training faster in these ways.
    """

    discount: float = 1
    batch_size: int | None = None
    min_itr_learn: int = 0
    replay_seconds: float = 0.0
    replay_buffer: Any = None
    n_step_return: int = 1
    samples_to_buffer: Callable[[Any], Any] | None = None
    corrects_lag: bool = False
    bf16: bool = False
    compile_models: bool = False
    cuda_graphs: bool = False
    _first_itr_with_replay: int = 0

    def check_parts(self, agent: Any, batch_spec: BatchSpec | None) -> None:
        """Check what can be checked before processes start, see `RlAlgorithm.check_parts`. The default knows nothing."""

    def trained_rows(self, agent: Any, batch_spec: BatchSpec) -> list[int]:
        """Return how many steps the models see at once in updates, see `RlAlgorithm.trained_rows`. The default knows none."""
        return []

    def restarted(self, columns: list[int]) -> None:
        """Record that the next steps of these environments do not follow the previous ones. The default does nothing."""


class CompletedLoop(Completed):
    """Any algorithm that a `Trainer` or a command is given, with the attributes that tell which kind it is.

    Attributes:
        train: method of an algorithm with its own training loop.
        optimize_agent: method of an algorithm for runners.
        policy, exploration_policy: policies of an algorithm with its own loop; it samples with the latter, if any.
        _sampler: its sampler of episodes.
    """

    train: Callable[[Any], Any] | None = None
    optimize_agent: Callable[[int, Any], Any] | None = None
    policy: Any = None
    exploration_policy: Any = None
    _sampler: Any = None


class BatchSampler(Protocol):
    """The sampler's interface for runners. `rlpyt.samplers.base.BaseSampler` implements it.

    The runner calls `initialize` first and `shutdown` last. In between, it calls `obtain_samples` or `evaluate_agent` in its own thread.

    Attributes:
        batch_spec: dimensions (T, B) of a batch in this process.
        mid_batch_reset: whether environments are reset inside a batch.
        TrajInfoCls: class of the TrajInfos.
        eval_n_envs: number of evaluation environments; 0 for none.
        eval_max_trajectories: largest number of episodes in an evaluation; None for no limit.
        waiting_seconds: seconds spent so far waiting for worker processes.
    """

    batch_spec: BatchSpec
    mid_batch_reset: bool
    TrajInfoCls: type
    eval_n_envs: int
    eval_max_trajectories: int | None

    @property
    def waiting_seconds(self) -> float: ...

    def initialize(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Build environments, initialize the agent, and start workers; return one example of each field of a batch."""

    def obtain_samples(self, itr: int) -> tuple[Any, list]:
        """Return the batch ``[T,B]`` of iteration `itr`, and the TrajInfos of finished episodes. The next batch overwrites its memory."""

    def evaluate_agent(self, itr: int) -> list:
        """Return the TrajInfos of complete evaluation episodes."""

    def take_restarted(self) -> list[int]:
        """Return the columns of the last batch that do not continue the previous batch."""

    def state_dict(self) -> Any:
        """Return the state of sampling as plain data and tensors; None if a resumed run begins new episodes."""

    def load_state_dict(self, state: Any) -> list[int]:
        """Continue from a `state_dict`; return the columns whose environments begin a new episode."""

    def shutdown(self) -> None:
        """End all workers and close environments."""


class AsyncBatchSampler(BatchSampler, Protocol):
    """The sampler's interface for asynchronous runners. `rlpyt.samplers.async_.base.AsyncSamplerMixin` implements it.

    The training process calls `async_initialize` and `parts`; each part runs in a separate process.

    Attributes:
        start_method: how processes start; None for the system's default.
        seed: of the environments.
        acting_parameters_version: in a part, version of the parameters that acted in the last batch (the agent's `parameters_version`).
    """

    start_method: str | None
    seed: int
    acting_parameters_version: int
    _batches: Sequence[tuple[Any, Any]]  # The two batches, in tensors and in the same memory as arrays.

    def async_initialize(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Initialize the agent and allocate two batches; return them, and one example of each field."""

    def parts(self, n: int) -> list[Any]:
        """Return samplers for `n` processes, each with its columns of the batches."""

    def stop_evaluation(self) -> None:
        """End a running evaluation early. A signal handler calls it."""


class CompletedSampler(Completed):
    """Any sampler, also one of episodes, with the optional attributes that runners read.

    Attributes:
        batch_spec: dimensions of a batch; None if unknown.
        eval_n_envs: number of evaluation environments.
        async_: whether it is for `AsyncRl`.
        policy_lag: updates by which the policy of the last batch is older than the newest; None if it never is.
        start_method: how it starts processes; None for the system's default.
        EnvCls, env_kwargs: how it makes its environments.
    """

    batch_spec: BatchSpec | None = None
    eval_n_envs: int = 0
    async_: bool = False
    policy_lag: int | None = None
    start_method: str | None = None
    EnvCls: Any = None
    env_kwargs: Any = None

    def acting(self, affinity: dict | None) -> tuple[list[int], int | None]:
        """Return for how many environments the agent acts at once, see `BaseSampler.acting`. The default knows nothing."""
        return [], None

    def stop_evaluation(self) -> None:
        """End a running evaluation early. A signal handler calls it. The default lets the evaluation finish."""

    def shutdown_worker(self) -> None:
        """End the workers of a sampler of episodes. The default does nothing."""


class CompletedRunner(Completed):
    """Any runner that a `Trainer` has made, or None before, with its optional attribute.

    Attributes:
        diagnostics: the run's counters; None if the runner does not show them.
    """

    diagnostics: Any = None


class Snapshots(Protocol):
    """The interface for storing a runner's snapshots: the module `rlpyt.utils.logging.logger`, unless a `Trainer` counts in epochs.

    `itr` is the last complete iteration. With `force`, a snapshot is saved even inside a gap, because the run ends.
    """

    def get_snapshot_dir(self) -> str | None:
        """Return the directory of the snapshots; None if none are kept."""

    def is_snapshot_due(self, itr: int, force: bool = False) -> bool:
        """Return whether `save_itr_params` would save a snapshot now."""

    def save_itr_params(
        self,
        itr: int,
        params: dict[str, Any],
        force: bool = False,
        score: float | None = None,
        only_in_best: Mapping[str, Any] | None = None,
    ) -> bool:
        """Save a snapshot if one is due; return whether it is safe on the disk.

        `score` is the mean return, if known. `only_in_best` has entries for the best snapshot, in place of those in `params`. Runners
        leave it out if there are none.
        """

    def keeps_best(self) -> bool:
        """Return whether best.pkl is kept, the snapshot with the highest score."""

    def best_score(self, score: float | None = None) -> float:
        """Return the score of best.pkl, also if that is still to be saved, with this `score`; -inf if there is none."""

    def continue_snapshots(self, itr: int, best_score: float) -> None:
        """Go on from the snapshot of iteration `itr`, which is resumed. best.pkl needs a higher score than this one."""


class Part(NamedTuple):
    """A part of a run: `state_dict` returns its state as plain data and tensors, and `load_state_dict` restores it."""

    state_dict: Callable[[], Any]
    load_state_dict: Callable[[Any], Any]


class Run(Protocol):
    """The runner's interface for `rlpyt.runners.checkpoint`.

    Attributes:
        settings: settings that must not change when the run is resumed, as they were before training; {} if they were not kept.
        chosen_settings: settings of the algorithm that the runner chooses itself, and that are not compared when the run is resumed.
        seed_given: the seed argument of the runner, if any; `seed` is the seed that it uses, and is set by `restore`.
        itr_batch_size: environment steps of one iteration in all processes.
        save_replay: whether the replay buffer is saved, too.
        rank, world_size: index of this process, and number of processes that train together.
        choices: its choices between equal computations, as plain data; see `rlpyt.utils.choices`.
        script: the script that made the run; None for the script of this process.
        snapshots: where its snapshots are stored.
    """

    algo: Any
    agent: Any
    sampler: Any
    settings: dict[str, Any]
    chosen_settings: tuple[str, ...]
    choices: dict[str, Any]
    seed: int | None
    seed_given: int | None
    itr_batch_size: int
    save_replay: bool
    rank: int
    world_size: int
    script: Script | None
    snapshots: Snapshots

    def parts(self) -> dict[str, Part]:
        """Return the parts of the run by their names in a snapshot, in the order of saving their states."""
