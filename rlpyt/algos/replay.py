"""The update loop of algorithms that learn from a replay buffer: append, sample, update, prioritize."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch

from rlpyt.agents.base import BaseAgent
from rlpyt.algos.base import RlAlgorithm, normalization_of, read_opt_info, start_targets
from rlpyt.algos.hyperparameters import OF_REPLAY
from rlpyt.algos.optimizers import load_initial_state, make_optimizer
from rlpyt.algos.schedules import Schedule
from rlpyt.replays.async_ import has_priorities
from rlpyt.replays.base import BESIDE_STEPS, OPTIONAL_STEPS, CompletedReplay, unknown_fields
from rlpyt.replays.draws import takes_ids
from rlpyt.replays.n_step import BaseNStepReturnBuffer
from rlpyt.replays.non_sequence.frame import (
    AsyncPrioritizedReplayFrameBuffer,
    AsyncUniformReplayFrameBuffer,
    PrioritizedReplayFrameBuffer,
    UniformReplayFrameBuffer,
)
from rlpyt.replays.non_sequence.prioritized import AsyncPrioritizedReplayBuffer, PrioritizedReplayBuffer
from rlpyt.replays.non_sequence.uniform import AsyncUniformReplayBuffer, UniformReplayBuffer
from rlpyt.replays.prefetch import PrefetchedReplay
from rlpyt.replays.sequence.n_step import SequenceNStepReturnBuffer
from rlpyt.returns import valid_steps
from rlpyt.spaces.masked import split
from rlpyt.types import BatchSpec, as_recorded, with_zeros_in_blanks
from rlpyt.utils import accelerator
from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.collections import field_of, namedarraytuple
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import is_of_rlpyt, name_of
from rlpyt.utils.plain import check_form
from rlpyt.utils.quick_args import save__init__args, takes
from rlpyt.utils.settings import check_attributes, checked, declared_by
from rlpyt.utils.stopwatch import Stopwatch
from rlpyt.utils.structures import dtype_of

# What the buffer stores of every step, [T,B,...]. final_observation is [K,B,...], as in the sampler's batch; valid is None if all steps
# are valid; observation_after [1,B,...] follows the last step.
SamplesToBuffer = namedarraytuple(
    "SamplesToBuffer",
    ["observation", "action", "reward", "done", "timeout", "final_observation", "valid", "observation_after"],
    defaults=(None, None, None, None),
)

# Buffers of transitions, by (frames stored once, prioritized, shared by processes).
BUFFERS = {
    (False, False, False): UniformReplayBuffer,
    (False, False, True): AsyncUniformReplayBuffer,
    (False, True, False): PrioritizedReplayBuffer,
    (False, True, True): AsyncPrioritizedReplayBuffer,
    (True, False, False): UniformReplayFrameBuffer,
    (True, False, True): AsyncUniformReplayFrameBuffer,
    (True, True, False): PrioritizedReplayFrameBuffer,
    (True, True, True): AsyncPrioritizedReplayFrameBuffer,
}


class ReplayAlgorithm(RlAlgorithm):
    """Off-policy learning from replay; subclasses define what is stored and one gradient update.

    Subclasses have the settings of `OffPolicyAlgorithm`, the base class of rlpyt's algorithms, and optionally `prioritized_replay` and
    `prefetch_batches`. Your class may also assign attributes with these names.

    A sampler that does not reset environments inside batches leaves blank rows after the end of an episode, and so do vectors of
    environments that reset themselves by a step. `valid_steps` finds these rows, and the buffer never replays them.

    Attributes:
        OptInfoCls: namedtuple type that `optimize_agent` returns; set by subclasses.
        replay_buffer: `optimize_agent` writes it.
        sequences: a `rlpyt.algos.sequences.Sequences`, if the algorithm replays sequences; None if it replays transitions.
        learns_statistics: the agent normalizes observations, if it does, by statistics of replayed observations. Each batch is added before
            the update on it. If False, the statistics stay as they are, for example those of a data set.
        updates_per_optimize: gradient updates per iteration.
        min_itr_learn: first iteration with updates.
        sampler_bs: environment steps per iteration in this process.
    """

    OptInfoCls: Any
    replay_buffer: Any = None  # Until it is allocated.
    prioritized_replay = prefetch_batches = False
    learns_statistics = True
    sequences: Any = None
    agent: Any  # It may be a user's; its methods take `*agent_inputs`, of which recurrent agents have one more.
    can_be_graphed = True
    discount: float
    batch_size: int
    min_steps_learn: int
    replay_size: int
    replay_ratio: float
    target_update_tau: float
    target_update_interval: int
    learning_rate: float
    OptimCls: type
    optim_kwargs: dict[str, Any] | None
    initial_optim_state_dict: dict[str, Any] | None
    n_step_return: int
    updates_per_sync: int
    ReplayBufferCls: type | None
    _stored_ends: tuple[str, ...] = BESIDE_STEPS  # Fields about the ends of episodes that the buffer requires.
    _first_itr_with_replay = 0

    @property
    def replay_seconds(self) -> float:
        """Seconds that `optimize_agent` has spent on the replay buffer so far."""
        return self._replay_watch.seconds

    @property
    def replay_batch_B(self) -> int:
        """Number of transitions or sequences that an update draws from the buffer."""
        return self.batch_size if self.sequences is None else self.sequences.batch_B

    def trained_rows(self, agent: BaseAgent, batch_spec: BatchSpec) -> list[int]:
        """Return the size of a batch from replay, without steps that only warm up."""
        return [self.batch_size if self.sequences is None else self.sequences.batch_T * self.sequences.batch_B]

    def check_settings(self) -> None:
        """Also check the settings of `OffPolicyAlgorithm`, which a subclass need not declare."""
        check_attributes(self, {**OF_REPLAY, **declared_by(type(self))})
        self.check_effects()

    def initialize(
        self,
        agent: BaseAgent,
        n_itr: int,
        batch_spec: BatchSpec,
        mid_batch_reset: bool,
        examples: dict[str, Any],
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        """Allocate the replay buffer, build the optimizer, and convert settings from steps to iterations.

        Raises:
            ValueError: the agent or the buffer is unsuitable (see `initialize_replay_buffer`), or memory does not suffice.
        """
        self._prepare(agent, n_itr, batch_spec, mid_batch_reset, examples, world_size)
        self.updates_per_optimize = max(1, round(self.replay_ratio * self.sampler_bs / self.batch_size))
        self.prepare_models()
        self.optim_initialize(rank)
        self.deliver_batches()

    def start_with_empty_replay(self, itr: int) -> None:
        """Resume a run at iteration `itr` with an empty buffer. Updates resume after as many steps as at the start of the run."""
        self._first_itr_with_replay = itr + self.min_itr_learn

    def training_state(self) -> dict[str, Any]:
        """Add the first iteration with enough stored steps to replay."""
        return dict(super().training_state(), first_itr_with_replay=self._first_itr_with_replay)

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Restore what `training_state` returned."""
        super().load_training_state(state)
        check_form(state, dict(first_itr_with_replay=int), "algo")
        self._first_itr_with_replay = state["first_itr_with_replay"]

    def deliver_batches(self) -> None:
        """Let the buffer reuse the memory of batches, and prefetch them if `prefetch_batches`. Only the training process calls this.

        A batch then stays valid until two more batches of its size have been sampled.
        """
        pin = accelerator.has_page_locking(self.agent.device)
        CompletedReplay(self.replay_buffer).reuse_batches(2 + self.prefetch_batches, pin=pin)
        if self.prefetch_batches:
            self.replay_buffer = PrefetchedReplay(self.replay_buffer, self.replay_batch_B)

    def async_initialize(
        self,
        agent: BaseAgent,
        sampler_n_itr: int,
        batch_spec: BatchSpec,
        mid_batch_reset: bool,
        examples: dict[str, Any],
        world_size: int = 1,
    ) -> Any:
        """Allocate the replay buffer in shared memory and return it.

        The training processes then call `prepare_models`, `optim_initialize` and `deliver_batches`.
        """
        self._prepare(agent, sampler_n_itr, batch_spec, mid_batch_reset, examples, world_size, async_=True)
        self.updates_per_optimize = self.updates_per_sync
        return self.replay_buffer

    def _prepare(
        self,
        agent: BaseAgent,
        n_itr: int,
        batch_spec: BatchSpec,
        mid_batch_reset: bool,
        examples: dict[str, Any],
        world_size: int,
        async_: bool = False,
    ) -> None:
        """Do the part of initialization that synchronous and asynchronous training share."""
        self.check_parts(agent, batch_spec)
        self.agent = agent
        self.n_itr = n_itr
        self.mid_batch_reset = mid_batch_reset
        self.world_size = world_size
        self.sampler_bs = batch_spec.size
        self.update_counter = self._first_itr_with_replay = 0
        self._graphed_update = None
        self._replay_watch = Stopwatch()
        self._copied: deque = deque(maxlen=2)  # Events recorded after copying the latest batches to an accelerator.
        self.initialize_replay_buffer(examples, batch_spec, async_)
        min_itr = self.min_steps_learn // self.sampler_bs
        self.min_itr_learn = max(min_itr, self._first_replayable_itr(batch_spec.T))

    def initialize_replay_buffer(self, examples: dict[str, Any], batch_spec: BatchSpec, async_: bool = False) -> Any:
        """Allocate `replay_buffer` for steps like `examples_to_buffer(examples)`, and return it.

        Its class is `ReplayBufferCls`. If that is None, `prioritized_replay`, `async_` (shared memory) and the observation choose one:
        a uint8 image [C,H,W], also with a mask of actions, counts as the C latest frames, and each frame is stored once; other
        observations are stored whole. If images in other structures are frames, too, a class with "Frame" in its name stores them once.

        Raises:
            ValueError: `ReplayBufferCls` is unsuitable, or `replay_size` is less than a batch of the sampler.
        """
        example = self.examples_to_buffer(examples)
        ReplayCls: Any = self.ReplayBufferCls or self.default_replay_buffer_cls(example, async_)
        self._check_replay_buffer_cls(ReplayCls, example, async_)
        self._check_replay_size(batch_spec)
        self.replay_buffer = ReplayCls(example=example, **self.replay_kwargs(batch_spec))
        kept = [name for name in OPTIONAL_STEPS if field_of(example, name) is not None]
        self._stored_ends = (*kept, *BESIDE_STEPS)
        return self.replay_buffer

    def check_parts(self, agent: Any, batch_spec: BatchSpec | None) -> None:
        """Extend the base class: the replay buffer must have room for a batch. (A user's class may determine its size later.)"""
        super().check_parts(agent, batch_spec)
        if batch_spec is not None and self.trains_by("initialize", "async_initialize", "initialize_replay_buffer", "replay_kwargs"):
            self._check_replay_size(batch_spec)

    def _check_replay_size(self, batch_spec: BatchSpec) -> None:
        if self.replay_size < batch_spec.size:
            raise ValueError(
                f"replay_size={self.replay_size} must be at least the {batch_spec.size} environment steps of a sampler's batch "
                f"(batch_T={batch_spec.T}, batch_B={batch_spec.B})."
            )

    def _check_replay_buffer_cls(self, ReplayCls: Any, example: Any, async_: bool) -> None:
        """Raise ValueError if a class of replay buffers is unsuitable; log a warning if its priorities have no effect."""
        name, cls_name = type(self).__name__, name_of(ReplayCls)
        if async_ and not ReplayCls.async_:
            raise ValueError(
                f"An asynchronous runner needs a replay buffer that processes share, which {cls_name} is not: put "
                "rlpyt.replays.async_.AsyncReplayBufferMixin in front of its bases, or leave ReplayBufferCls None."
            )
        if self.prioritized_replay and not has_priorities(ReplayCls):
            raise ValueError(
                f"prioritized_replay=True needs a replay buffer with priorities, which {cls_name} is not: choose one such as "
                "PrioritizedReplayBuffer, or leave ReplayBufferCls None."
            )
        trains_by_ours = self.trains_by("replay_kwargs", "optimize_agent", "update", *self.loss_methods)
        if not (trains_by_ours and isinstance(ReplayCls, type) and issubclass(ReplayCls, BaseNStepReturnBuffer)):
            return
        of_sequences = issubclass(ReplayCls, SequenceNStepReturnBuffer)
        if of_sequences != (self.sequences is not None):
            raise ValueError(
                f"{name} replays {'single steps' if of_sequences else 'sequences'}, for which {cls_name} is not made: choose one such as "
                f"{self.default_replay_buffer_cls(example, async_).__name__}, or leave ReplayBufferCls None."
            )
        if not (has_priorities(ReplayCls) and is_of_rlpyt(ReplayCls)):
            return  # A user's buffer may set priorities itself.
        can_update = any(takes(cls, "prioritized_replay") for cls in type(self).__mro__ if is_of_rlpyt(cls))
        if not (can_update and self.prioritized_replay):
            remedy = "give prioritized_replay=True" if can_update else "leave ReplayBufferCls None"
            if self.prioritized_replay:
                remedy = "set prioritized_replay to False, or let `update` return priorities"
            logger.warn(f"{name} does not update the priorities of {cls_name}, so it draws all steps equally often: {remedy}.")

    def default_replay_buffer_cls(self, example: Any, async_: bool = False) -> type:
        """Return the buffer class for the observation of an example and the settings."""
        kind = is_frame_stack(example.observation), self.prioritized_replay, async_
        return BUFFERS[kind] if self.sequences is None else self.sequences.buffer_cls(*kind)

    def replay_kwargs(self, batch_spec: BatchSpec) -> dict[str, Any]:
        """Return the arguments of the replay buffer, except the example."""
        kwargs = dict(
            size=self.replay_size,
            B=batch_spec.B,
            discount=self.discount,
            n_step_return=self.n_step_return,
        )
        null_action = self.agent.env_spaces.action.null_value()
        if any(np.any(leaf) for leaf in buffer_leaves(null_action)):  # Otherwise the default suits any class.
            kwargs["null_action"] = null_action
        if self.sequences is not None:
            kwargs.update(self.sequences.buffer_kwargs())
        return kwargs

    def _first_replayable_itr(self, batch_T: int) -> int:
        """Return the first iteration after which the buffer holds a valid sample."""
        return -(-CompletedReplay(self.replay_buffer).min_rows // batch_T) - 1

    def examples_to_buffer(self, examples: dict[str, Any]) -> Any:
        """Return the example of one stored step."""
        stored = SamplesToBuffer(
            observation=examples["observation"],
            action=examples["action"],
            reward=examples["reward"],
            done=examples["done"],
            timeout=np.bool_(False),
            valid=None if self.mid_batch_reset and "valid" not in examples else np.bool_(True),
        )
        return stored if self.sequences is None else self.sequences.with_rnn_state(stored, examples["agent_info"])

    def samples_to_buffer(self, samples: Any) -> Any:
        """Return the part of a batch [T,B] to store; to store more, override this and `examples_to_buffer`."""
        samples = as_recorded(samples)
        env = samples.env
        stored = SamplesToBuffer(
            observation=env.observation,
            action=samples.agent.action,
            reward=env.reward,
            done=env.done,
            **self._ends(samples),
        )
        return stored if self.sequences is None else self.sequences.with_rnn_state(stored, samples.agent.agent_info)

    def _ends(self, samples: Any) -> dict[str, Any]:
        """Return the fields of `SamplesToBuffer` about the ends of episodes; None for fields that the buffer does not know."""
        env = samples.env
        valid = valid_steps(env.done, env.valid, until_done=not self.mid_batch_reset)
        ends = dict(
            timeout=self._timeout(env),
            final_observation=samples.final_observation,
            valid=None if valid is None else valid.bool(),
            observation_after=None if env.next_observation is None else env.next_observation[-1:],
        )
        if not self._buffer_is_ours:
            ends.update(dict.fromkeys(unknown_fields(self.replay_buffer)))
        return ends

    @property
    def _buffer_is_ours(self) -> bool:
        """Whether the replay buffer derives from rlpyt's; True before it is allocated."""
        return self.replay_buffer is None or CompletedReplay(self.replay_buffer).append_batch is not None

    def _stored(self, samples: Any) -> Any:
        """Return `samples_to_buffer`, and add fields about the ends of episodes that an override left out."""
        stored = self.samples_to_buffer(samples)
        if not is_of_rlpyt(self.samples_to_buffer) and self._changes_observations(stored, samples):
            return self._without_ends(stored)
        lacking = [name for name in self._stored_ends if field_of(stored, name, 0) is None]
        if not lacking:
            return stored
        ends = self._ends(samples)
        return stored._replace(**{name: ends[name] for name in lacking})

    _has_said_so = False  # Whether `_without_ends` has logged its message.

    def _changes_observations(self, stored: Any, samples: Any) -> bool:
        """Return whether an override of `samples_to_buffer` changed the observations but not the final observations."""
        stored = field_of(stored, "samples", stored)
        final = field_of(stored, "final_observation")
        return stored.observation is not samples.env.observation and (final is None or final is samples.final_observation)

    def _without_ends(self, stored: Any) -> Any:
        """Return `stored` with time limits as terminations, since the final observations do not match the changed observations."""
        if not self._has_said_so:
            self._has_said_so = True
            logger.log(
                f"samples_to_buffer of {type(self).__name__} changes observations, so time limits count as terminations. To bootstrap from "
                "them, return final_observation and observation_after of the batch, changed in the same way."
            )
        if "samples" in stored._fields:
            return stored._replace(samples=self._without_ends(stored.samples))
        no_ends = dict(timeout=torch.zeros_like(torch.as_tensor(stored.done)), final_observation=None, observation_after=None)
        known = {name: value for name, value in no_ends.items() if field_of(stored, name) is not None or name in self._stored_ends}
        return stored._replace(**{name: value for name, value in known.items() if name in stored._fields})

    def _timeout(self, env: Any) -> torch.Tensor:
        """Return [T,B], True where an episode is truncated and its target bootstraps."""
        return torch.zeros_like(env.done) if env.timeout is None else env.timeout

    def update(self, batch: Any) -> tuple[Any, Any]:
        """Do one gradient update on a batch from the buffer, on the training device.

        Returns:
            An `OptInfoCls` of tensors, and the new priorities [batch_size] of the batch, or None.
        """
        raise NotImplementedError

    def _sample_batch(self) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """Return a batch from the buffer, on the training device, and further arguments for `update_batch_priorities`.

        These are the ids of the batch, if the batch has ids and the buffer takes them.

        Copies to an accelerator are asynchronous. This waits only for the copy of the last batch but one, because the buffer reuses its
        memory.
        """
        if len(self._copied) == 2:
            self._copied[0].synchronize()
        sampled = self.replay_buffer.sample_batch(self.replay_batch_B)
        ids = field_of(sampled, "ids")
        ReplayCls: Any = type(self.replay_buffer)
        ids = () if ids is None or not takes_ids(ReplayCls) else (ids,)
        if self.agent.device.type == "cpu":
            return sampled, ids
        batch = self.to_device(sampled._replace(ids=None) if ids else sampled)
        self._copied.append(accelerator.recorded_event(self.agent.device))
        return batch, ids

    def _update(self, batch: Any) -> tuple[Any, Any]:
        """Do `update` with the choices of `accelerate`."""
        with self.autocast():
            return super()._update(batch)

    def replayed_observations(self, batch: Any) -> Any:
        """Return the observations [n,...] of the steps to learn from in a batch from the buffer."""
        if self.sequences is None:
            return batch.agent_inputs.observation
        observation, valid = batch.all_observation[: len(batch.done)], field_of(batch, "valid")
        return observation if valid is None else observation[valid.bool()]

    def append(self, samples: Any) -> None:
        """Append a batch [T,B] of the sampler to the replay buffer, in the form of `samples_to_buffer`."""
        append = self.replay_buffer.append_batch if self._buffer_is_ours else self.replay_buffer.append_samples
        append(self._stored(with_zeros_in_blanks(as_recorded(samples))))

    def update_itr_hyperparams(self, itr: int) -> None:
        """Set scheduled hyperparameters to their values at iteration `itr`."""

    def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: int | None = None) -> Any:
        """Append `samples` [T,B], if given, to the buffer, and do `updates_per_optimize` updates on replayed batches.

        Updates begin at `min_itr_learn`.

        Returns:
            An `OptInfoCls` of lists of floats.

        Raises:
            FloatingPointError: training has failed, see `read_opt_info`.
            ValueError: the samples do not fit into the buffer.
        """
        if sampler_itr is not None:
            itr = sampler_itr
        if samples is not None:
            with self._replay_watch:
                self.append(samples)
        if itr < max(self.min_itr_learn, self._first_itr_with_replay):
            return read_opt_info(self.OptInfoCls, [])
        self.set_learning_rates(itr)
        self.update_itr_hyperparams(itr)
        add_to_statistics = normalization_of(self.agent) if self.learns_statistics else None
        updates = []
        for _ in range(self.updates_per_optimize):
            with self._replay_watch:
                batch, ids = self._sample_batch()
            if add_to_statistics is not None:
                add_to_statistics(self.replayed_observations(batch))
                if self.update_counter == 0:
                    start_targets(self.agent)
            opt_info, priorities = self._update(batch)
            if priorities is not None:
                with self._replay_watch:
                    self.replay_buffer.update_batch_priorities(priorities, *ids)
            self.update_counter += 1
            if self.update_counter % self.target_update_interval == 0:
                self.agent.update_target(self.target_update_tau)
            updates.append(opt_info)
        return read_opt_info(self.OptInfoCls, updates)


class OffPolicyAlgorithm(ReplayAlgorithm):
    """A `ReplayAlgorithm` with the settings that all of rlpyt's have. Their defaults differ.

    Args:
        discount: γ.
        batch_size: transitions per gradient update.
        min_steps_learn: environment steps before the first update. In `SyncRl` each rank counts its own steps.
        replay_size: environment steps to keep.
        replay_ratio: replayed steps per sampled step. An iteration has ``round(replay_ratio * T * B / batch_size)`` updates, at least one.
        target_update_tau: fraction by which an update moves target networks towards the networks; 1 copies the networks.
        target_update_interval: gradient updates between two updates of the target networks.
        learning_rate: step size of the optimizers.
        OptimCls: class of the optimizers.
        optim_kwargs: further arguments of the optimizers.
        initial_optim_state_dict: state of the optimizers to start from, see `optim_state_dict`. It contains their settings, which count.
        clip_grad_norm: largest norm of the gradient.
        n_step_return: n, number of rewards summed before bootstrapping from the target network.
        updates_per_sync: gradient updates between two transfers of parameters to an asynchronous sampler. Synchronous runners ignore it:
            `replay_ratio` sets their updates.
        ReplayBufferCls: class of the replay buffer; None chooses one by the observation, see `initialize_replay_buffer`.
        lr_schedule: how the learning rates of all optimizers change: "constant", "linear" (to 0), "cosine" (to 0), or a function of the
            progress (0 to 1, in the sampler's iterations) that returns the factor of the initial rate. None: they do not change.

    Raises:
        ValueError: a setting is not possible.
    """

    @checked(OF_REPLAY)
    def __init__(
        self,
        discount: float = 0.99,
        batch_size: int = 256,
        min_steps_learn: int = int(1e4),
        replay_size: int = int(1e6),
        replay_ratio: float = 256,
        target_update_tau: float = 0.005,
        target_update_interval: int = 1,
        learning_rate: float = 3e-4,
        OptimCls: type = torch.optim.Adam,
        optim_kwargs: dict | None = None,
        initial_optim_state_dict: dict | None = None,
        clip_grad_norm: float = 1e9,
        n_step_return: int = 1,
        updates_per_sync: int = 1,
        ReplayBufferCls: type | None = None,
        *,
        lr_schedule: Schedule | None = None,
    ) -> None:
        save__init__args(locals())
        self.check_settings()

    def optim_initialize(self, rank: int = 0) -> None:
        """Build one optimizer of all parameters. An algorithm with several optimizers overrides this method."""
        self.rank = rank
        parameters = self.agent.parameters()
        self.optimizer = make_optimizer(self.OptimCls, parameters, self.learning_rate, self.optim_kwargs, capturable=self.cuda_graphs)
        self.schedule_rates((self.optimizer, self.learning_rate))
        load_initial_state(self, is_scheduled=self.lr_schedule is not None)


def is_frame_stack(observation: Any) -> bool:
    """Return whether an observation looks like [C,H,W] video frames: a three-dimensional uint8 array, perhaps with a mask of actions."""
    image, _ = split(observation)
    return dtype_of(image) == np.uint8 and np.ndim(image) == 3


def bootstrap_discount(samples: Any, discount: float, n_step_return: int) -> Any:
    """Return the factor [n] of the target value; computed from `done_n` if the buffer does not provide it."""
    if field_of(samples, "bootstrap_discount") is not None:
        return samples.bootstrap_discount
    return discount**n_step_return * (1 - samples.done_n.float())
