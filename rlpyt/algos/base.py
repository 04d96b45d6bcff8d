"""The base class of algorithms, and the report on their updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from itertools import compress, islice
from typing import Any, NamedTuple

import torch

from rlpyt.agents.base import BaseAgent
from rlpyt.algos.cuda_graph import GraphedUpdate
from rlpyt.algos.hyperparameters import Needs, check_effects
from rlpyt.algos.optimizers import (
    clip_grad_norm,
    load_optimizer_state,
    optimizer_state,
    rate_may_change,
    set_learning_rate,
    step_all,
    zero_grads,
)
from rlpyt.algos.schedules import Schedule, factor_at
from rlpyt.models.utils import unwrap_ddp
from rlpyt.types import BatchSpec, CompletedAgent
from rlpyt.utils import accelerator
from rlpyt.utils.accelerator import has_bf16
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.packing import PackedCopies
from rlpyt.utils.plain import NATURAL, check_form
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.settings import check_attributes, checked, declared_by


def normalization_of(agent: Any) -> Callable[[Any], None] | None:
    """Return the agent's method that adds observations to its statistics, or None if it does not normalize observations."""
    completed = CompletedAgent(agent)
    return completed.update_obs_rms if completed.normalizes_observations else None


def start_targets(agent: Any) -> None:
    """Copy an agent's models to its target networks, if it has any. Before learning begins, only statistics of observations differ.

    Target networks that the agent was given stay as they are: they may be others.
    """
    completed = CompletedAgent(agent)
    if completed.update_target is not None and completed.initial_model_state_dict is None:
        completed.update_target()


class RlAlgorithm(Recorded):
    """Trains an agent on samples, for example by gradient descent on a loss of its model's outputs.

    A constructor only checks and stores its arguments. The runner passes everything else to `initialize`.

    Attributes:
        opt_info_fields: field names of the result of `optimize_agent`.
        loss_methods: methods that compute losses.
        settings_need: settings of this class, not of its bases, that another one switches off.
        bootstrap_value: the sampler must record the value estimates that on-policy returns bootstrap from.
        update_counter: gradient updates so far.
        bf16, compile_models, cuda_graphs: as given to `accelerate`, but False if the device does not support it.
        can_be_graphed: updates can run as CUDA graphs.
        world_size: number of processes that train together.
        lr_schedule: how learning rates change during the run, a setting of most algorithms; None if they do not change.
        n_itr: iterations of the run.
    """

    opt_info_fields: tuple[str, ...] = ()
    loss_methods: Sequence[str] = ("loss",)
    settings_need: tuple[Needs, ...] = ()
    bootstrap_value = False
    update_counter = 0
    bf16 = False
    compile_models = False
    cuda_graphs = False
    can_be_graphed = False
    world_size = 1
    agent: BaseAgent
    optimizer: torch.optim.Optimizer
    clip_grad_norm: float
    lr_schedule: Schedule | None = None
    n_itr = 1
    _initial_rates: Sequence[tuple[Any, float]] = ()  # Optimizers, and their learning rates by the settings.
    _copies: PackedCopies | None = None
    _one: torch.Tensor | None = None  # The gradient of a loss with respect to itself.
    _graphed_update: Any = None  # Refers to the memory of optimizer and models.

    def check_settings(self) -> None:
        """Check all settings, which are attributes. Constructors call this last.

        An attribute that a subclass assigned earlier replaces the argument.

        Raises:
            ValueError: a setting is not possible.
        """
        check_attributes(self, declared_by(type(self)))
        self.check_effects()

    def check_parts(self, agent: Any, batch_spec: BatchSpec | None) -> None:
        """Check that this algorithm can train an agent of this kind by batches of this size, as far as that is known before `initialize`.

        Runners ask before they make environments or start processes, `initialize` asks again.

        Args:
            agent: it need not be initialized.
            batch_spec: of the sampler; None if unknown.

        Raises:
            ValueError: it cannot.
        """

    def check_effects(self) -> None:
        """Check that each setting that was given has an effect, unless a user's class overrides training and may use it.

        Raises:
            ValueError: another setting switches it off.
        """
        if self._trains_by_ours():
            check_effects(self, [each for cls in type(self).__mro__ for each in vars(cls).get("settings_need", ())])

    @checked()
    def accelerate(self, bf16: bool = False, compile_models: bool = False, cuda_graphs: bool = False) -> RlAlgorithm:
        """Choose faster arithmetic for training, and return this algorithm. Call this before `initialize`.

        Args:
            bf16: train models in bfloat16 (by autocast), except for their last layers. Ignored, with a message, if the training device
                has no bfloat16 instructions, since emulation is many times slower.
            compile_models: compile the agent's models by `torch.compile`. This needs a C++ compiler, and takes up to a minute at first use.
            cuda_graphs: on a GPU, launch all operations of an update at once. Only for training in one process. Ignored, with a message,
                if the training device has no graphs.

        Raises:
            ValueError: a choice is not True or False, or this algorithm's updates cannot run as CUDA graphs.
        """
        self.bf16, self.compile_models, self.cuda_graphs = bf16, compile_models, cuda_graphs
        if cuda_graphs and not self.can_be_graphed:
            raise ValueError(f"{type(self).__name__} does not train with CUDA graphs: its updates are not made for them.")
        return self

    def to_device(self, structure: Any) -> Any:
        """Return a structure of tensors on the training device, copied in one piece. Tensors already there are not copied."""
        self._copies = PackedCopies.to(self.agent.device, self._copies)
        return self._copies.to_device(structure)

    def autocast(self) -> Any:
        """Return the context in which losses are computed."""
        if not self.bf16:
            return nullcontext()
        return torch.autocast(self.agent.device.type, torch.bfloat16, cache_enabled=not self.cuda_graphs)

    def prepare_models(self) -> None:
        """Apply the choices of `accelerate` to the agent's models; part of `initialize`, in the training process."""
        self._graphed_update = None  # An earlier graph trains the models of an earlier initialization.
        if self.bf16 and not has_bf16(self.agent.device):
            logger.log(f"The device ({self.agent.device}) has no instructions for bfloat16: training in float32.")
            self.bf16 = False
        if self.cuda_graphs and not accelerator.has_graphs(self.agent.device):
            logger.log(f"The device ({self.agent.device}) has no CUDA graphs: training without.")
            self.cuda_graphs = False
        if self.cuda_graphs and self.world_size > 1:
            raise ValueError("cuda_graphs=True is for training in one process: leave it False if several processes train together.")
        if self.compile_models:
            for model in self.agent.named_models().values():
                unwrap_ddp(model).compile()

    @property
    def update_branch(self) -> Hashable:
        """Key for the kind of the next update, if updates differ: each kind needs a CUDA graph."""
        return None

    def update(self, batch: Any) -> Any:
        """Do one gradient update on a batch on the training device; return a structure of tensors."""
        raise NotImplementedError

    def _update(self, batch: Any) -> Any:
        """Do `update`, as a CUDA graph if `accelerate` chose graphs."""
        if not self.cuda_graphs:
            return self.update(batch)
        if self._graphed_update is None:
            self._graphed_update = GraphedUpdate(self.update, self.agent.device)
        return self._graphed_update(batch, self.update_branch)

    def trains_by(self, *names: str) -> bool:
        """Return whether the methods with these names are rlpyt's. Only rlpyt's methods need an agent of a certain kind."""
        return is_of_rlpyt(*(getattr(self, name, None) for name in names))

    def _trains_by_ours(self) -> bool:
        """Return whether no user's class has another way to train."""
        return self.trains_by("optimize_agent", "update", *self.loss_methods)

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
        """Prepare for training; called once by the runner, after the agent is on its device.

        Args:
            agent: the agent to train.
            n_itr: how many times `optimize_agent` will be called.
            batch_spec: dimensions (T, B) of the sampler's batches in this process.
            mid_batch_reset: the sampler resets environments inside a batch. If it does not, the steps of a batch after the end of an
                episode are invalid.
            examples: one example each of observation, reward, done, env_info, action and agent_info.
            world_size: number of processes that train together.
            rank: index of this process.
        """
        raise NotImplementedError

    def async_initialize(
        self,
        agent: BaseAgent,
        sampler_n_itr: int,
        batch_spec: BatchSpec,
        mid_batch_reset: bool,
        examples: dict[str, Any],
        world_size: int = 1,
    ) -> Any:
        """Make the replay buffer that the optimizer shares with an asynchronous sampler, and return it."""
        raise NotImplementedError

    def optim_initialize(self, rank: int = 0) -> None:
        """Build the optimizer. `initialize` calls this; the optimizer processes of an asynchronous run call only this part of it."""
        raise NotImplementedError

    def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: int | None = None) -> Any:
        """Train on a batch; called by the runner once per iteration.

        Args:
            itr: iteration of the runner.
            samples: the sampler's new batch ``[T,B]``; None if another process fills the replay buffer.
            sampler_itr: iteration of the sampler, if it differs from `itr`.

        Returns:
            A namedtuple with `opt_info_fields`; each field is a float or a list of floats.
        """
        raise NotImplementedError

    def backward_from(self, losses: Sequence[torch.Tensor]) -> None:
        """Compute the gradients of scalar losses by `torch.autograd.backward`."""
        if self._one is None or not _are_alike(self._one, losses[0]):
            self._one = torch.ones_like(losses[0]).detach()
        torch.autograd.backward(losses, [self._one if _are_alike(self._one, loss) else torch.ones_like(loss) for loss in losses])

    def descend(self, loss: torch.Tensor) -> torch.Tensor:
        """Step `optimizer` on the gradient of `loss`, clipped to `clip_grad_norm`; return the gradient norm before clipping."""
        zero_grads([self.optimizer])
        self.backward_from([loss])
        grad_norm = clip_grad_norm(self.optimizer, self.clip_grad_norm)
        step_all([self.optimizer])
        return grad_norm

    def progress_at(self, itr: int) -> float:
        """Return the fraction of the run's iterations that are done before iteration `itr`, at most 1."""
        return min(itr / max(self.n_itr, 1), 1.0)

    def schedule_rates(self, *rates: tuple[Any, float]) -> None:
        """Let these optimizers follow `lr_schedule`, each from its learning rate at the start of the run.

        Raises:
            ValueError: CUDA graphs would ignore the schedule.
        """
        self._initial_rates = rates
        if self.cuda_graphs and self.lr_schedule not in (None, "constant"):
            for optimizer, _ in rates:
                check_graph_sees_rate(optimizer, 'lr_schedule="constant"')

    def set_learning_rates(self, itr: int) -> None:
        """Set all learning rates to their values at iteration `itr`, if they follow `lr_schedule`."""
        if self.lr_schedule is not None:
            factor = factor_at(self.lr_schedule, self.progress_at(itr), "lr_schedule")
            for optimizer, rate in self._initial_rates:
                set_learning_rate(optimizer, rate * factor)

    def optim_state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state; algorithms with several optimizers override this and its inverse."""
        return optimizer_state(self.optimizer)

    def load_optim_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `optim_state_dict` returned."""
        load_optimizer_state(self.optimizer, state_dict)
        self._graphed_update = None

    def training_state(self) -> dict[str, Any]:
        """Return, as plain data, what a checkpoint needs in addition to optimizer, models and replay."""
        return dict(update_counter=self.update_counter)

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Restore what `training_state` returned."""
        check_form(state, dict(update_counter=NATURAL), "algo")
        self.update_counter = state["update_counter"]

    @property
    def replay_seconds(self) -> float:
        """Seconds that `optimize_agent` has spent on the replay buffer so far; 0 without a replay buffer."""
        return 0.0

    def trained_rows(self, agent: BaseAgent, batch_spec: BatchSpec) -> list[int]:
        """Before `initialize`: return how many steps the models see at once in updates; only speed depends on it.

        Args:
            agent: the agent to train, after its initialization.
            batch_spec: dimensions (T, B) of the sampler's batch.
        """
        return [batch_spec.size]

    @property
    def batch_size(self) -> int:
        """Number of samples per gradient update."""
        return self._batch_size

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        self._batch_size = value


def check_graph_sees_rate(optimizer: Any, otherwise: str) -> None:
    """Raise ValueError if a CUDA graph would ignore that the learning rate of an optimizer changes.

    Args:
        otherwise: the setting without schedule.
    """
    if not rate_may_change(optimizer):
        raise ValueError(
            f"cuda_graphs=True would always repeat the first learning rate of {type(optimizer).__name__}: set "
            f"{otherwise}, or choose an optimizer of torch that has the argument fused or capturable."
        )


def _are_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)


class Counted(NamedTuple):
    """Values to log, of which only some count.

    Attributes:
        values: tensor of any shape.
        counts: of the same shape, nonzero where a value counts.
    """

    values: torch.Tensor
    counts: torch.Tensor


def read_opt_info(OptInfoCls: Any, updates: Sequence[Any]) -> Any:
    """Combine the `OptInfoCls` of all updates into one of lists of floats, with a single read from the device.

    Args:
        OptInfoCls: namedtuple type.
        updates: one instance per update. A field is None, a number, or a tensor of any shape, whose numbers all go into the list, or
            `Counted`, whose numbers do if they count.

    Returns:
        An `OptInfoCls` whose fields list the numbers of all updates in order.

    Raises:
        FloatingPointError: a number is NaN, or a loss or gradient norm (by the name of the field) is infinite.
    """
    fields: tuple[list, ...] = tuple([] for _ in OptInfoCls._fields)
    read: list[torch.Tensor] = []
    owners = []
    for update in updates:
        for field, value in zip(fields, update, strict=True):
            if value is not None:
                parts = value if isinstance(value, Counted) else (value,)
                read.extend(map(torch.as_tensor, parts))
                owners.append((field, read[-1].numel(), len(parts) > 1))
    if read:
        numbers = iter(_numbers(read))
        for field, n, may_not_count in owners:
            values = list(islice(numbers, n))
            field.extend(compress(values, islice(numbers, n)) if may_not_count else values)
    for name, field in zip(OptInfoCls._fields, fields, strict=True):
        _check_training_goes_well(name, field)
    return OptInfoCls(*fields)


def _numbers(values: list[torch.Tensor]) -> list[float]:
    """Return the numbers in tensors of any shapes, dtypes and devices, in order."""
    if all(v.device.type == "cpu" for v in values):  # Reading is free there.
        return [x for v in values for x in ((float(v.item()),) if v.dim() == 0 else v.detach().reshape(-1).double().tolist())]
    return _joined([v.detach().reshape(-1) for v in values]).tolist()


def _joined(values: list[torch.Tensor]) -> torch.Tensor:
    """Concatenate one-dimensional tensors of any dtypes and devices to one tensor of floats, without losing precision."""
    first = values[0]
    if not first.is_floating_point() or any(v.device != first.device or v.dtype != first.dtype for v in values):
        device = next((v.device for v in values if v.device.type != "cpu"), first.device)
        widest = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64.
        values = [v.to(device, widest) for v in values]
    return torch.cat(values)


def _check_training_goes_well(name: str, numbers: list[float]) -> None:
    if math.isfinite(sum(numbers)):  # Then all are, and Python need not look at each.
        return
    must_be_finite = name.lower().endswith(("loss", "gradnorm"))
    for x in numbers:
        if math.isnan(x) or (must_be_finite and math.isinf(x)):
            raise FloatingPointError(
                f"Training failed: {name} became {x}. Lower the learning rate, and check rewards and observations for NaN and infinity."
            )
