"""What a runner asks of its parts, and what snapshots ask of a runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from rlpyt.types import BatchSpec
from rlpyt.utils.recipes import Script


class Algorithm(Protocol):
    """What a runner asks of an algorithm. `rlpyt.algos.base.RlAlgorithm` implements it.

    The runner calls `initialize` once, when the agent is on its device, and then `optimize_agent` after each batch. For a snapshot it calls
    the two methods that return states. To resume, it calls their inverses between `initialize` and the first batch.

    Attributes:
        opt_info_fields: the columns of the log that `optimize_agent` yields.
        update_counter: gradient updates so far.
        bootstrap_value: whether the sampler records the values that returns bootstrap from.

    An algorithm may have further attributes: ``discount``, for the TrajInfo class; ``batch_size``, samples per gradient update;
    ``min_itr_learn``, iterations before it learns; ``replay_seconds``, time spent on replay; ``replay_buffer``, which `save_replay` saves.
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
        """Return the rest of the algorithm's state, without models and replay: plain data."""

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Invert `training_state`."""


class BatchSampler(Protocol):
    """What a runner asks of a sampler. `rlpyt.samplers.base.BaseSampler` implements it.

    The runner calls `initialize` first and `shutdown` last, and in between, in its own thread, `obtain_samples` or `evaluate_agent`.

    Attributes:
        batch_spec: dimensions (T, B) of a batch, of this process alone.
        mid_batch_reset: whether environments are reset inside a batch.
        TrajInfoCls: class of the TrajInfos.
        eval_n_envs: number of evaluation environments; 0 for none.
        eval_max_trajectories: the most episodes of an evaluation; None for no limit.
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
        """Make environments, initialize the agent, and start workers; return one example of each field of a batch."""

    def obtain_samples(self, itr: int) -> tuple[Any, list]:
        """Return the batch ``[T,B]`` of iteration `itr`, in memory that the next one overwrites, and the TrajInfos of finished episodes."""

    def evaluate_agent(self, itr: int) -> list:
        """Return the TrajInfos of complete evaluation episodes."""

    def take_restarted(self) -> list[int]:
        """Return the columns of the last batch that do not follow the batch before it."""

    def state_dict(self) -> Any:
        """Return the state of sampling, plain data and tensors; None if it continues with new episodes."""

    def load_state_dict(self, state: Any) -> list[int]:
        """Continue from what `state_dict` returned; return the columns whose environments begin a new episode."""

    def shutdown(self) -> None:
        """End all workers, and close environments."""


class Snapshots(Protocol):
    """What a runner asks of whatever keeps its snapshots: the module `rlpyt.utils.logging.logger`, unless a `Trainer` counts in epochs.

    `itr` is the last complete iteration. With `force`, a snapshot is saved even between two gaps, because this is the last chance.
    """

    def get_snapshot_dir(self) -> str | None:
        """Return the directory of the snapshots; None if none are kept."""

    def is_snapshot_due(self, itr: int, force: bool = False) -> bool:
        """Whether `save_itr_params` would save anything now."""

    def save_itr_params(self, itr: int, params: dict[str, Any], force: bool = False, score: float | None = None) -> bool:
        """Save a snapshot, if it is due; return whether it is safe on the disk. `score` is the mean return, if known."""


class Part(NamedTuple):
    """A part of a run: `state_dict` returns its state, plain data and tensors, and `load_state_dict` continues from that."""

    state_dict: Callable[[], Any]
    load_state_dict: Callable[[Any], Any]


class Run(Protocol):
    """What `rlpyt.runners.checkpoint` asks of a runner.

    Attributes:
        settings: those that must be the same when the run is resumed, as they were before training; {} if they were not kept.
        seed_given: the seed that the runner was given, if any; `seed` is the one that it uses, and is set by `restore`.
        itr_batch_size: env steps of one iteration, of all processes.
        save_replay: whether the replay buffer is saved too.
        rank, world_size: number of this process, and of all that train together.
        script: what made the run; None for the script of this process.
    """

    algo: Any
    agent: Any
    sampler: Any
    settings: dict[str, Any]
    seed: int | None
    seed_given: int | None
    itr_batch_size: int
    save_replay: bool
    rank: int
    world_size: int
    script: Script | None

    def parts(self) -> dict[str, Part]:
        """Return the parts of the run by the names that they have in a snapshot, in the order in which their states are taken."""
