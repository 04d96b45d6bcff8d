"""The base class of Q-function policy gradient algorithms: replay, time limits, optimizers by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from rlpyt.algos.base import Counted
from rlpyt.algos.optimizers import (
    clip_grad_norms,
    load_initial_state,
    load_optimizer_state,
    make_optimizer,
    optimizer_state,
    parameters_of,
    step_all,
    zero_grads,
)
from rlpyt.algos.replay import OffPolicyAlgorithm, is_frame_stack
from rlpyt.algos.sequences import Sequences, constructor_on_sequences
from rlpyt.models.batch_renorm import has_batch_renorm
from rlpyt.models.utils import frozen
from rlpyt.replays.non_sequence.time_limit import (
    AsyncTlPrioritizedReplayBuffer,
    AsyncTlUniformReplayBuffer,
    AsyncTlUniformReplayFrameBuffer,
    TlPrioritizedReplayBuffer,
    TlUniformReplayBuffer,
    TlUniformReplayFrameBuffer,
)
from rlpyt.types import BatchSpec, timeout_of
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import field_of
from rlpyt.utils.completed import Completed
from rlpyt.utils.misc import has_all, is_of_rlpyt
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import checked

LOGGED_STRIDE = 10  # The values of every tenth row of a batch are logged.

# Buffers for samples without the final observations of truncated episodes, by (frames stored once, prioritized, shared by processes).
TIME_LIMIT_BUFFERS = {
    (False, False, False): TlUniformReplayBuffer,
    (False, False, True): AsyncTlUniformReplayBuffer,
    (False, True, False): TlPrioritizedReplayBuffer,
    (False, True, True): AsyncTlPrioritizedReplayBuffer,
    (True, False, False): TlUniformReplayFrameBuffer,
    (True, False, True): AsyncTlUniformReplayFrameBuffer,
}


class CompletedQAgent(Completed):
    """An agent for `QpgAlgorithm`, which need not be one of ours, with the optional methods that the algorithm calls.

    Attributes:
        freeze_q: method that returns a context without gradients for the Q-functions; None if the agent leaves that to the algorithm.
        recurrent: the agent has a recurrent state.
        distribution: of actions; None if there is none.
    """

    recurrent: bool = False
    distribution: Any = None
    freeze_q: Callable[[], AbstractContextManager] | None = None

    def give_min_itr_learn(self, min_itr_learn: int) -> None:
        """Take the first iteration of learning. The default ignores it."""

    def check_bounds(self) -> None:
        """Log a warning if actions do not fit the bounds of the action space. The default does not."""

    def joint_q(self) -> AbstractContextManager:
        """Return a context in which the Q-functions may be computed together. The default changes nothing."""
        return nullcontext()

    def joint_pi(self, inputs: Any, target_inputs: Any) -> tuple[tuple, tuple] | None:
        """Return `pi` of `inputs`, and that of `target_inputs` without gradient, if one pass can compute both. The default cannot."""
        return None

    def target_q_of(self, critics: torch.Tensor, *inputs: Any) -> torch.Tensor | None:
        """Return what `target_q` does, of the critics with indexes [m] alone: [n,m,...]. Return None, as the default does, if it cannot."""
        return None


def agent_renormalizes(agent: Any) -> bool:
    """Return whether one of the agent's models has batch renormalization."""
    return has_all(agent, "named_models") and any(map(has_batch_renorm, agent.named_models().values()))


def every_tenth(value: torch.Tensor | Counted) -> Any:
    """Return every tenth row of values to log."""
    return buffer_func(value, lambda x: x[::LOGGED_STRIDE])


class QpgAlgorithm(OffPolicyAlgorithm):
    """Off-policy learning of a policy and of Q-functions for continuous actions.

    Subclasses make optimizers in `make_optimizers`, define `update`, and declare:
        optimizer_names: attributes of the optimizers, in the order of their losses.
        former_optimizer_names: attribute of an optimizer -> its name in states that the original rlpyt saved, if different.
        loss_methods: methods that need the agent declared below; a subclass that overrides one may train any agent.
        agent_needs: attributes that the agent must have.
        agent_example: import path of an agent with these attributes.
        n_q: number of Q-functions of the agent.
        SequencesCls: of algorithms for recurrent agents, a `rlpyt.algos.sequences.Sequences` with a method `trained`. Unless its body has
        a constructor, the class has settings of sequences in place of `batch_size`.

    It has the settings of `rlpyt.algos.replay.OffPolicyAlgorithm`, and:

    Args:
        bootstrap_timelimit: bootstrap from the end of a truncated episode; if False, a truncated episode counts as terminated.
    """

    optimizer_names: Sequence[str]
    former_optimizer_names: Mapping[str, str] = {}
    loss_methods: Sequence[str] = ("loss",)
    agent_needs: Sequence[str]
    agent_example: str
    n_q = 2
    SequencesCls: type[Sequences] | None = None
    bootstrap_timelimit: bool
    _ends_recorded = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        inherited = [vars(base).get("SequencesCls") for base in cls.__mro__[1:]]
        if cls.SequencesCls is not None and not any(inherited) and "__init__" not in vars(cls):
            cls.__init__ = constructor_on_sequences(cls)  # type: ignore[method-assign]
        super().__init_subclass__(**kwargs)

    @checked()
    def __init__(self, *, bootstrap_timelimit: bool = True, ReplayBufferCls: type | None = None, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def check_parts(self, agent: Any, batch_spec: BatchSpec | None) -> None:
        """Extend the base class: the agent must have what the losses need. (The losses of a user's class may train any agent.)"""
        super().check_parts(agent, batch_spec)
        on_sequences = self.sequences is not None
        needs = (*self.agent_needs, "remember") if on_sequences else self.agent_needs
        is_suitable = has_all(agent, *needs) and CompletedQAgent(agent).recurrent == on_sequences
        if is_suitable and is_of_rlpyt(agent.q):
            is_suitable = len(agent.q_names) == self.n_q
        if not is_suitable and self._trains_by_ours():
            agent_path = f"{type(agent).__module__}.{type(agent).__qualname__}"
            raise ValueError(
                f"{type(self).__name__} needs an agent with {', '.join(needs)}, {'a' if on_sequences else 'no'} recurrent "
                f"state, and with {self.n_q} Q-functions, such as {self.agent_example}; {agent_path} is not one."
            )

    def _prepare(self, agent: Any, *args: Any, **kwargs: Any) -> None:
        """Also tell the agent when learning begins, and let it check the bounds of actions.

        Raises:
            ValueError: batch renormalization would have other statistics in each of several processes.
        """
        super()._prepare(agent, *args, **kwargs)
        CompletedQAgent(agent).check_bounds()
        if self.world_size > 1 and self._trains_by_ours() and agent_renormalizes(agent):
            raise ValueError(
                f"{type(self).__name__}: each of several processes would normalize by statistics of its own batches; train in one process."
            )
        CompletedQAgent(agent).give_min_itr_learn(self.min_itr_learn)

    # --- Q-functions --------------------------------------------------------------------------------------------------

    def freeze_q(self) -> AbstractContextManager:
        """Return a context without gradients for the Q-functions: the agent's if it has one, otherwise rlpyt's."""
        freeze_q = CompletedQAgent(self.agent).freeze_q
        return frozen(self.q_parameters()) if freeze_q is None else freeze_q()

    def joint_q(self) -> AbstractContextManager:
        """Return a context in which the agent computes its Q-functions together, if it can. One `backward` must then serve all of them."""
        return CompletedQAgent(self.agent).joint_q()

    def q_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Parameters of the agent's Q-functions."""
        return self.agent.q_parameters()

    # --- optimizers ---------------------------------------------------------------------------------------------------

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimizers."""
        self.rank = rank
        self._initial_rates = ()
        self.make_optimizers()
        self.schedule_rates(*self._initial_rates)
        load_initial_state(self, is_scheduled=self.lr_schedule is not None)

    def make_optimizers(self) -> None:
        """Assign all optimizers."""
        raise NotImplementedError

    def make_optimizer(self, parameters: Any, learning_rate: float) -> Any:
        """Return an optimizer of `OptimCls` for these parameters."""
        optimizer = make_optimizer(self.OptimCls, parameters, learning_rate, self.optim_kwargs, capturable=self.cuda_graphs)
        self._initial_rates = (*self._initial_rates, (optimizer, learning_rate))
        return optimizer

    def optim_state_dict(self) -> dict[str, Any]:
        """Return the state of each optimizer by name; None for an optimizer that the settings do not need."""
        optimizers = {name: getattr(self, name) for name in self.optimizer_names}
        return {name: None if optimizer is None else optimizer_state(optimizer) for name, optimizer in optimizers.items()}

    def load_optim_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `optim_state_dict` returned, here or in the original rlpyt.

        Raises:
            ValueError: the state does not fit the settings.
        """
        for name in self.optimizer_names:
            optimizer = getattr(self, name)
            saved_as = name if name in state_dict else self.former_optimizer_names.get(name, name)
            if saved_as not in state_dict:
                raise ValueError(f"{type(self).__name__}: the state has no {name}, but {', '.join(state_dict) or 'nothing'}.")
            if (optimizer is None) != (state_dict[saved_as] is None):
                raise ValueError(
                    f"{type(self).__name__}: the state of {name} does not fit these settings: it was saved "
                    f"{'with' if optimizer is None else 'without'} that optimizer."
                )
            if optimizer is not None:
                load_optimizer_state(optimizer, state_dict[saved_as])
        self._graphed_update = None

    def step_optimizers(self, losses: Sequence[Any], optimizers: Sequence[Any], others: Sequence[Any] = ()) -> list[torch.Tensor]:
        """Step all optimizers on the losses. Only the gradients of `optimizers`, not of `others`, are clipped.

        Returns:
            The norms of the gradients of `optimizers` before clipping.
        """
        zero_grads((*optimizers, *others))
        self.backward(losses, (*optimizers, *others))
        self.after_backward()
        grad_norms = clip_grad_norms(optimizers, self.clip_grad_norm)
        step_all((*optimizers, *others))
        return grad_norms

    def backward(self, losses: Sequence[Any], optimizers: Sequence[Any]) -> None:
        """Compute the gradient of each loss for the parameters of its optimizer only.

        rlpyt's losses share no parameters, but those of a user's class may: the original rlpyt discards the gradients of the policy's loss
        for Q-functions.
        """
        if self.trains_by(*self.loss_methods):
            self.backward_from(losses)
            return
        for loss, optimizer in zip(losses, optimizers, strict=True):
            torch.autograd.backward(loss, inputs=parameters_of(optimizer), retain_graph=True)

    def after_backward(self) -> None:
        """Change gradients before clipping, for example average those that data-parallel models do not average."""

    def to_log(self, values: Sequence[torch.Tensor], samples: Any) -> tuple[torch.Tensor | Counted, ...]:
        """Return values [n,...] of the samples as they are logged: without gradient, and `Counted` for steps of sequences.

        Steps of sequences [T,B] become [T*B], so that every tenth of them may be any step of a sequence.
        """
        if self.sequences is None:
            return tuple(value.detach() for value in values)
        valid = samples.valid  # [T,B]
        flat = [v.detach().flatten(0, 1) for v in values]
        return tuple(Counted(v, valid.reshape(-1, *[1] * (v.dim() - 1)).to(v).expand_as(v)) for v in flat)

    # --- replay -------------------------------------------------------------------------------------------------------

    def initialize_replay_buffer(self, examples: dict[str, Any], batch_spec: BatchSpec, async_: bool = False) -> Any:
        """Also remember whether the sampler's collector records the final observations of truncated episodes."""
        self._ends_recorded = bool(examples.get("ends_recorded", False))
        return super().initialize_replay_buffer(examples, batch_spec, async_)

    def default_replay_buffer_cls(self, example: Any, async_: bool = False) -> type:
        """Return the buffer class for the observation of an example and the settings.

        With `bootstrap_timelimit`, batches have `timeout_n` if final observations may be missing, or if a user's class overrides training
        and may ignore them.
        """
        kind = is_frame_stack(example.observation), self.prioritized_replay, async_
        bootstraps = self.bootstrap_timelimit and field_of(example, "timeout") is not None
        needs_marks = bootstraps and not (self._ends_recorded and self._trains_by_ours())
        if needs_marks and self.sequences is None and kind in TIME_LIMIT_BUFFERS:
            return TIME_LIMIT_BUFFERS[kind]
        return super().default_replay_buffer_cls(example, async_)

    def _timeout(self, env: Any) -> torch.Tensor:
        """Return [T,B], True where an episode is truncated and its target bootstraps."""
        timeout = timeout_of(env)
        return torch.zeros_like(env.done) if timeout is None or not self.bootstrap_timelimit else timeout.bool() & env.done

    def trained(self, batch: Any) -> Any:
        """Return what losses take, of a batch from the buffer: its transitions, or the steps of sequences to train on."""
        return batch if self.sequences is None else self.sequences.trained(batch, self)

    def valid_samples(self, samples: Any) -> torch.Tensor | None:
        """Return a mask [n] of the replayed samples to learn from, or None for all of them.

        A sample is excluded if its episode was truncated within its n steps and the final observation is unknown. With discount 0, targets
        need no final observation. Steps of sequences have a mask already.
        """
        if self.sequences is not None:
            return samples.valid
        timeout_n = field_of(samples, "timeout_n")
        if timeout_n is None or not self.bootstrap_timelimit or self.discount == 0:
            return None
        bootstrap = field_of(samples, "bootstrap_discount")
        return ~timeout_n.bool() if bootstrap is None else ~timeout_n.bool() | (bootstrap > 0)
