"""The agent's base class: models, devices, sharing between processes, modes."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from rlpyt.agents.exchange import ParameterExchange
from rlpyt.agents.recurrent import AlternatingRecurrentAgentMixin, Memory, RecurrentAgentMixin, RecurrentMemory
from rlpyt.agents.spaces import ONE_NUMBER, arguments_of_model, check_action_space, check_flattened, check_mask
from rlpyt.distributions.base import Distribution
from rlpyt.distributions.composite import encode
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.linear import Linear, pack_layers
from rlpyt.models.running_mean_std import RunningMeanStdModel
from rlpyt.models.tape import Tapes
from rlpyt.models.utils import (
    average_in_order_of_ranks,
    keep_large_blocks,
    matching_state_dict,
    modules_of,
    unwrap_ddp,
    update_state_dict,
)
from rlpyt.spaces.masked import split, without_mask
from rlpyt.types import AgentInputs
from rlpyt.utils import accelerator
from rlpyt.utils.accelerator import has_bf16
from rlpyt.utils.choices import models_exist
from rlpyt.utils.collections import fields_of, namedarraytuple, remade
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import has_all, is_of_rlpyt, name_of
from rlpyt.utils.packing import PackedCopies, to_cpu
from rlpyt.utils.quick_args import save__init__args, takes
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.settings import ArgumentsFor, checked
from rlpyt.utils.shared_tensors import share_tensors

# Defined elsewhere, documented as names of this module: AgentInputs and the two mixins.
__all__ = [
    "AgentInputs",
    "AgentInputsRnn",
    "AgentStep",
    "AlternatingRecurrentAgentMixin",
    "BaseAgent",
    "RecurrentAgentMixin",
    "discrete_action_count",
    "null_after_done",
    "uses_prev_action",
]

AgentInputsRnn = namedarraytuple("AgentInputsRnn", [*AgentInputs._fields, "init_rnn_state"])
if TYPE_CHECKING:

    class AgentStep(NamedTuple):
        action: Any
        agent_info: Any
else:
    AgentStep = namedarraytuple("AgentStep", ["action", "agent_info"])

# The argument by which DistributedDataParallel does not send buffers around in every forward pass; its name depends on torch's version.
SYNC_BUFFERS = next(
    name for name in ("forward_sync_buffers", "broadcast_buffers") if name in inspect.signature(DistributedDataParallel).parameters
)


# Methods of `BaseAgent` that do what a class attribute says. In ``class A(Mixin, Theirs)``, where Mixin declares the attribute and Theirs
# defines such a method for another one, Python would call the method of Theirs. So A gets that of `BaseAgent`.
BY_DECLARATION = {
    "model_arguments": ("make_env_to_model_kwargs",),
    "MemoryCls": ("reset", "reset_one", "advance_rnn_state", "get_alt", "toggle_alt"),
}

# Methods that determine the arguments of the models.
MODEL_METHODS = ("initialize", "make_env_to_model_kwargs", "make_models", "make_policy")


class BaseAgent(Recorded):
    """Chooses actions for the sampler, evaluates training data for the algorithm, and owns the models to do so.

    The base class serves agents with one model. Agents with more extend `make_models` and list them in `model_names`;
    devices, data-parallel training, modes and state dicts then work for all of them. A model without parameters that require a gradient
    (a target network) is not trained: it stays in evaluation mode. Only the models in `acting_names` are shared with sampler processes.

    Life: the sampler calls `initialize`; the runner `to_device` and perhaps `data_parallel`; then, in turns,
    `sample_mode` or `eval_mode` with `step` and `value`, and `train_mode` with `__call__`.

    If a subclass assigns `ModelCls` in its body, the argument defaults to that class and comes first.

    Args:
        ModelCls: class of the model.
        model_kwargs: keyword arguments for it, in addition to those from `make_env_to_model_kwargs`.
        initial_model_state_dict: a `state_dict` of such an agent.
        acting_bf16: in the batches and evaluations of samplers on the CPU, large linear layers of `rlpyt.models` compute in bfloat16.
            Training does not change. Ignored, with a message, if the processor has no instructions for bfloat16.

    Attributes:
        model: acts, and is trained.
        acting_names: attributes of the models that `step` and `value` use.
        shared_model: the model in shared memory, or None.
        distribution: over actions.
        device: of training.
        env_spaces, env_model_kwargs: as `initialize` received and made them.
        parameters_version: in asynchronous training, how often parameters were sent to samplers; in a sampler, the version it has.
        clip_actions: environments get actions clipped to the bounds of their space, for agents whose distribution exceeds them.
        rescale_actions: environments get actions rescaled from [-1,1] to the bounds of their space, before they are clipped: True for
            every Box, "auto" for every Box, except those with the same bounds -a and a in all components.
        acts_on_device: outputs of `step` and `value` stay on the agent's device, which also draws the random numbers. Samplers that
            copy the outputs themselves set it.
    """

    recurrent = False
    alternating = False
    acts_on_device = False
    MemoryCls: type[Memory] = Memory
    _copies: PackedCopies | None = None
    _packed_layers: Sequence[Linear] = ()
    clip_actions = False
    rescale_actions: bool | str = False

    # Name in the state dict -> attribute which holds the model.
    model_names: Mapping[str, str] = {"model": "model"}
    # Attributes of the models that act: sampler processes have their parameters, of no other model.
    acting_names: Sequence[str] = ("model",)
    # What `make_env_to_model_kwargs` gives the model: some of image_shape, observation_shape, n_observations, output_size, action_size
    # and distribution.
    model_arguments: Sequence[str] = ()

    # The constructor assigns the arguments by `save__init__args`. The others are None before `initialize`.
    ModelCls: type[torch.nn.Module] | None
    model_kwargs: dict[str, Any]
    initial_model_state_dict: Mapping[str, Any] | None
    acting_bf16: bool
    model: torch.nn.Module
    distribution: Distribution
    env_spaces: EnvSpaces

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "ModelCls" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = _constructor_with_model(cls)  # type: ignore[method-assign]
        for declared, methods in BY_DECLARATION.items():
            for name in methods:
                nearest = next(base for base in cls.__mro__ if vars(base).keys() & {declared, name})
                if not issubclass(nearest, BaseAgent) and name not in vars(nearest):
                    setattr(cls, name, vars(BaseAgent)[name])
        super().__init_subclass__(**kwargs)

    @checked(model_kwargs=ArgumentsFor("ModelCls", by=MODEL_METHODS))
    def __init__(
        self,
        ModelCls: type[torch.nn.Module] | None = None,
        model_kwargs: dict[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
        acting_bf16: bool = False,
    ) -> None:
        save__init__args(locals())  # Here and in all agents: an attribute that a subclass has assigned before stays.
        if self.model_kwargs is None:
            self.model_kwargs = {}
        self.model = self.distribution = self.env_spaces = None  # type: ignore[assignment]
        self.shared_model: torch.nn.Module | None = None
        self._shared_models: dict[str, torch.nn.Module] = {}  # By attribute; `shared_model` is one of them.
        self.device = torch.device("cpu")
        self.env_model_kwargs: dict[str, Any] = {}
        self._mode: str | None = None
        self.sampling_itr = 0  # The last iteration in which the agent sampled; its exploration may depend on it.
        self._exchange: ParameterExchange | None = None  # In asynchronous training.
        self.parameters_version = 0

    # --- construction -------------------------------------------------------------------------------------------------

    def initialize(self, env_spaces: EnvSpaces, share_memory: bool = False, **kwargs: Any) -> None:
        """Build the models for the environment's spaces. Called by the sampler.

        `load_state_dict` loads `initial_model_state_dict`, so `make_models` must make every model named in it.

        Args:
            env_spaces: EnvSpaces(observation, action).
            share_memory: keep `model` in shared memory, so that processes started later see its parameters change.
            kwargs: ignored here. Agents that treat environments differently use `global_B` (number of environments in the whole run)
                and `env_ranks` (those that this agent serves).
        """
        if self.acting_bf16 and not has_bf16(torch.device("cpu")):
            logger.log("The processor has no instructions for bfloat16: the agent acts in float32.")
        check_mask(env_spaces)
        self.env_spaces, self.device, self._mode = env_spaces, torch.device("cpu"), None
        self.env_model_kwargs = self.make_env_to_model_kwargs(env_spaces)
        self.make_models()
        check_flattened(self, without_mask(env_spaces.observation))
        if self.initial_model_state_dict is not None:
            self._load_initial_parameters(self.initial_model_state_dict)
        if share_memory:
            self._share_model()
            self.shared_model = self.model
            self._shared_models = {name: getattr(self, name) for name in self.acting_names}
        self._forget_everything()  # Another sampler may have other environments.
        models_exist(self)

    def _load_initial_parameters(self, state_dict: Mapping[str, Any]) -> None:
        try:
            self.load_state_dict(state_dict)
        except RuntimeError as error:
            if "in loading state_dict" not in str(error):
                raise
            raise RuntimeError(
                f"{type(self).__name__}: initial_model_state_dict is of another model (its settings or the spaces differ): {error}"
            ) from error

    def make_env_to_model_kwargs(self, env_spaces: EnvSpaces) -> dict[str, Any]:
        """Return the keyword arguments to the model that depend on the environment's spaces: those in `model_arguments`."""
        return arguments_of_model(self, env_spaces)

    def make_models(self) -> None:
        """Make all models, on the CPU; agents with several extend this method."""
        self.model = self.make_policy()

    def make_policy(self, **kwargs: Any) -> torch.nn.Module:
        """Return a new `model`. The keyword arguments are added to those that depend on the environment's spaces.

        Raises:
            ValueError: `ModelCls` is not a class or function, or does not take what depends on the environment.
        """
        ModelCls, name = self.ModelCls, type(self).__name__
        if isinstance(ModelCls, torch.nn.Module):
            raise ValueError(f"{name}: ModelCls is a model. Give its class, {type(ModelCls).__name__}, and its settings in model_kwargs.")
        if not callable(ModelCls):
            raise ValueError(f"{name}: ModelCls={ModelCls!r} is not possible; give the class of the model.")
        of_env = {**self.env_model_kwargs, **kwargs}
        try:
            return ModelCls(**of_env, **self.model_kwargs)
        except TypeError as error:
            missing = [argument for argument in of_env if not takes(ModelCls, argument)]
            if not missing:
                raise
            raise ValueError(
                f"{name} gives its model {', '.join(of_env)}, but the constructor of {name_of(ModelCls)} takes no "
                f"{', '.join(missing)}: add what is missing to its arguments."
            ) from error

    def named_models(self) -> dict[str, torch.nn.Module]:
        """Return all models, by their names in the state dict."""
        return {name: getattr(self, attribute) for name, attribute in self.model_names.items()}

    def models_by_class(self) -> dict[str, Any]:
        """Return a model for each attribute that holds a class of models, by the attribute's name; None if a subclass makes none."""
        return dict(ModelCls=self.model)

    # --- devices and processes ----------------------------------------------------------------------------------------

    def to_device(self, cuda_idx: int | None = None) -> None:
        """Train on the accelerator of this index, or on the CPU if it is None. Called by the runner, before the optimizer is made.

        A shared model stays on the CPU, and a copy is trained. Layers that models share stay shared.
        """
        if cuda_idx is None:
            keep_large_blocks()
            return
        self.device = accelerator.device_of(cuda_idx)
        accelerator.use(self.device)
        if self.shared_model is not None:
            self.replace_by_copies(self._tied_to(self._shared_models))
        for model in self.named_models().values():
            model.to(self.device)
        logger.log(f"The agent trains on {self.device}.")

    def data_parallel(self) -> int | None:
        """Wrap the trained models in DistributedDataParallel, and start all models from rank 0's parameters.

        Called by the runner, in all ranks. Returns the device index, None on the CPU.
        """
        device_idx = self.device.index
        for name, model in self.named_models().items():
            if is_trained(model):
                # Buffers hold statistics that all ranks share already. Synchronizing them would hang when one rank alone uses the model.
                device_ids = None if device_idx is None else [device_idx]
                options: dict[str, Any] = {SYNC_BUFFERS: False}
                parallel = DistributedDataParallel(model, device_ids=device_ids, **options)
                parallel.training = model.training  # It begins in training mode, and `set_training` would leave it and the model there.
                if self.device.type == "cpu" and torch.distributed.get_world_size() > 2:
                    parallel.register_comm_hook(None, average_in_order_of_ranks)
                setattr(self, self.model_names[name], parallel)
            else:
                for tensor in model.state_dict().values():
                    torch.distributed.broadcast(tensor, src=0)
        return device_idx

    def unwrap(self) -> None:
        """Undo `data_parallel`, if it was called."""
        for attribute in self.model_names.values():
            if hasattr(self, attribute):
                setattr(self, attribute, unwrap_ddp(getattr(self, attribute)))

    def _tied_to(self, names: Iterable[str]) -> list[str]:
        """Return these attributes, and those of all other models if any of them shares a tensor with these."""
        others = [name for name in self.model_names.values() if name not in names]
        mine, theirs = ({tensor.data_ptr() for name in each for tensor in _tensors(getattr(self, name))} for each in (names, others))
        return [*names, *(others if mine & theirs - {0} else ())]

    def replace_by_copies(self, attributes: Iterable[str]) -> None:
        """Replace the models that these attributes hold by copies. Layers and tensors that they share are shared among the copies, too."""
        for attribute, model in copy.deepcopy({name: unwrap_ddp(getattr(self, name)) for name in attributes}).items():
            setattr(self, attribute, model)

    def _share_model(self) -> None:
        """Move the acting models into shared memory; parameters that they share with other models stay shared."""
        others = [getattr(self, attribute, None) for attribute in self.model_names.values()]
        share_tensors(self.acting_tensors(), aliases=[tensor for model in others if model is not None for tensor in _tensors(model)])
        for name in self.acting_names:
            getattr(self, name).share_memory()  # For a model class that extends share_memory(); for any other, nothing is left to do.

    def async_initialize(self, ctx: Any = None) -> None:
        """Prepare `send_shared_memory` here, and `recv_shared_memory` in processes that are started later. Call it after `initialize`.

        Args:
            ctx: not used; processes may be started by any method.
        """
        self._exchange = ParameterExchange(self.acting_tensors())
        self.parameters_version = 0

    def async_cpu(self, share_memory: bool = True) -> None:
        """In an asynchronous sampler's process: act with a copy of the models, which `recv_shared_memory` updates.

        Args:
            share_memory: share the copy with this sampler's workers.
        """
        exchange = self._exchange_for("async_cpu")
        self.shared_model, self._shared_models = None, {}
        self.replace_by_copies(self.acting_names)
        self.parameters_version = exchange.receive(self.acting_tensors())
        if share_memory:
            self._share_model()

    def collector_initialize(self, global_B: int = 1, env_ranks: Sequence[int] | None = None) -> None:
        """In a process that acts: prepare to serve the environments `env_ranks`, out of `global_B` in the whole run."""
        keep_large_blocks()

    def sync_shared_memory(self) -> None:
        """Copy the trained parameters to the shared models, for sampler workers, unless they are the trained models themselves.

        Asynchronous sampling uses `send_shared_memory` instead.
        """
        if self.shared_model is None:
            return
        for name, shared in self._shared_models.items():
            if shared is not unwrap_ddp(trained := getattr(self, name)):
                update_state_dict(shared, trained.state_dict())

    def send_shared_memory(self) -> None:
        """In asynchronous training: publish the trained parameters to the samplers. It takes one copy, and never waits."""
        self.parameters_version = self._exchange_for("send_shared_memory").send(self.acting_tensors())

    def recv_shared_memory(self) -> None:
        """In an asynchronous sampler: load the newest parameters, if they are not loaded yet."""
        exchange = self._exchange_for("recv_shared_memory")
        if self.parameters_version < exchange.version:
            self.parameters_version = exchange.receive(self.acting_tensors())

    def acting_tensors(self) -> list[torch.Tensor]:
        """Return parameters and buffers of the models that act."""
        return [tensor for name in self.acting_names for tensor in _tensors(unwrap_ddp(getattr(self, name)))]

    def _exchange_for(self, name: str) -> ParameterExchange:
        if self._exchange is None:
            raise RuntimeError(f"{name} needs memory that processes share: call async_initialize() before starting them.")
        return self._exchange

    # --- acting and training ------------------------------------------------------------------------------------------

    def __call__(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> Any:
        """Return what the algorithm needs from training data: tensors on the training device, with gradient.

        Inputs are tensors, or structures of them, with leading dims [T,B] or [B], on the CPU or already on the training device.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no __call__ for training.")

    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions, without gradient: AgentStep(action, agent_info) on the CPU (or as `acts_on_device` says).

        Inputs are CPU tensors, or structures of them, with leading dims [B], [T,B] or [].
        """
        raise NotImplementedError(f"{type(self).__name__} defines no step.")

    @functools.cached_property
    def _tapes(self) -> Tapes:
        """Repeats the model's operations while the agent acts, if the model is small and on the CPU."""
        return Tapes()

    def _outputs(self, *inputs: Any) -> Any:
        """Return what `model` makes of inputs on the agent's device; inputs and outputs have no gradient."""
        model = unwrap_ddp(self.model)
        try:
            return self._tapes(model, inputs, self._mode) if self.device.type == "cpu" else model(*inputs)
        except Exception as error:
            if not isinstance(inputs[0], Mapping):
                raise
            fields = fields_of(self.env_spaces.observation.null_value())
            with_fields = f", with the fields {', '.join(fields)}" if fields else ""
            raise TypeError(
                f"{type(self).__name__} takes observations as named tuples of tensors{with_fields}, "
                f"not as a {type(inputs[0]).__name__}. For a trained agent, rlpyt.load_policy returns a policy that takes observations as "
                "the environment gives them."
            ) from error

    @functools.cached_property
    def _memory(self) -> Memory:
        """The agent's memory of environments from step to step: with `RecurrentAgentMixin` a recurrent state, else nothing."""
        return self.MemoryCls()

    def reset(self) -> None:
        """Reset the recurrent state of all environments, if the agent has one: it becomes None, which stands for zeros."""
        self._memory.reset()

    def reset_one(self, idx: int) -> None:
        """Reset the recurrent state of environment `idx`, if the agent has one: its column becomes zero."""
        self._memory.reset_one(idx)

    @property
    def remembers_envs(self) -> bool:
        """Whether `reset_one` has anything to forget. Samplers do not call it otherwise."""
        is_own = getattr(self.reset_one, "__func__", None) is not BaseAgent.reset_one
        return is_own or self.MemoryCls.reset_one is not Memory.reset_one

    @property
    def prev_rnn_state(self) -> Any:
        """The recurrent state before the next step, a structure of tensors [N,B,H], or None."""
        return self._memory.state

    @prev_rnn_state.setter
    def prev_rnn_state(self, state: Any) -> None:
        self._memory.state = state

    def advance_rnn_state(self, new_rnn_state: Any) -> None:
        """Store the recurrent state [N,B,H] after a step, for the next one. `step` of a recurrent agent calls it at its end."""
        self._memory.advance(new_rnn_state)

    @contextmanager
    def acting_for(self, columns: torch.Tensor, B: int) -> Iterator[None]:
        """Inside this context `step`, `value` and `reset_one` are about some environments only; `idx` is a position in `columns`.

        An agent that remembers something of each environment extends this method.

        Args:
            columns: [n] int64, the environments.
            B: number of all environments for which this agent acts.
        """
        with self._memory.acting_for(columns, B):
            yield

    def _forget_everything(self) -> None:
        """Reset the recurrent states of sampling, and of the mode that interrupts it, if the agent has any."""
        self._memory = self.MemoryCls()

    def sampling_state(self) -> Any:
        """Return what the agent remembers of the environments it samples from, for a checkpoint: plain data and tensors."""
        return self._memory.sampling_state(is_sampling=self._mode == "sample")

    def set_sampling_state(self, state: Any, example: Any) -> None:
        """Continue sampling from a `sampling_state`.

        Args:
            example: an agent_info; only its structure matters.
        """
        self._memory.set_sampling_state(state, self._mode == "sample", example, self.device)

    def get_alt(self) -> int:
        """Return which half of the environments acts next, 0 or 1, if the agent is recurrent and alternating."""
        return self._memory.turn

    def toggle_alt(self) -> None:
        """Switch to the other half of the environments, if the agent is recurrent and alternating."""
        self._memory.turn = (self._memory.turn + 1) % self._memory.n_groups

    def act_for_one_group(self) -> None:
        """From now on an agent for alternating samplers serves all environments at once, as outside of them."""
        self.alternating, self.MemoryCls = False, RecurrentMemory
        self._forget_everything()

    def update_obs_rms(self, observation: Any) -> None:
        """Add observations [T,B,...] or [B,...] to statistics of `trained_models`; in data-parallel training all ranks together.

        Models without ``update_obs_rms`` have none.
        """
        models: list[Any] = [model for model in self.trained_models() if has_all(model, "update_obs_rms")]
        if models:
            observation = self._to_device(split(observation)[0])
        for model in models:
            model.update_obs_rms(observation)

    @property
    def normalizes_observations(self) -> bool:
        """Whether `update_obs_rms` does anything: a model has running statistics, or a user has written or replaced the method."""
        is_replaced = "update_obs_rms" in vars(self) or type(self).update_obs_rms is not BaseAgent.update_obs_rms
        return is_replaced or any(map(_has_statistics, self.trained_models()))

    def trained_models(self) -> list[torch.nn.Module]:
        """Return the models that an algorithm trains, without what data-parallel training wraps around them."""
        return [unwrap_ddp(self.model)]

    def _model_inputs(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> tuple[Any, Any, torch.Tensor]:
        """Return the inputs on the training device: observations without mask, discrete previous actions one-hot if the model uses them."""
        if self.distribution is not None and uses_prev_action(type(unwrap_ddp(self.model))):  # type: ignore[arg-type]
            prev_action = encode(self.distribution, prev_action)
        observation, _ = split(observation)
        inputs: tuple[Any, Any, torch.Tensor] = self._to_device((observation, prev_action, prev_reward))
        return inputs

    def _to_device(self, inputs: Any) -> Any:
        """Return a structure of tensors on the training device."""
        self._copies = PackedCopies.to(self.device, self._copies)
        return self._copies.to_device(inputs)

    def _to_cpu(self, outputs: Any) -> Any:
        """Return a structure of tensors on the CPU, unless `acts_on_device`."""
        return outputs if self.device.type == "cpu" or self.acts_on_device else to_cpu(outputs)

    # --- parameters ---------------------------------------------------------------------------------------------------

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters to optimize."""
        return self.model.parameters()

    def state_dict(self) -> dict[str, Any]:
        """Return the parameters and buffers of all models: the state dict of the only model, or one for each model by its name."""
        state_dicts = {name: unwrap_ddp(model).state_dict() for name, model in self.named_models().items()}
        return state_dicts if len(state_dicts) > 1 else state_dicts.popitem()[1]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a `state_dict`, also one saved under data-parallel training.

        A subclass that overrides this method may pass a state dict with further entries, which it loads itself.
        """
        models = self.named_models()
        if len(models) == 1:
            state_dict = {name: state_dict for name in models}
        elif models.keys() - state_dict.keys() or (state_dict.keys() - models.keys() and is_of_rlpyt(self.load_state_dict)):
            raise KeyError(
                f"{type(self).__name__} loads a dictionary with the state dicts of {list(models)}, as its state_dict() "
                f"returns, but got {list(state_dict)[:10]}."
            )
        for name, model in models.items():
            model = unwrap_ddp(model)
            model.load_state_dict(matching_state_dict(model, state_dict[name]))

    # --- modes --------------------------------------------------------------------------------------------------------

    def train_mode(self, itr: int) -> None:
        """Switch to training mode at iteration `itr` of the runner."""
        self._switch("train", training=True)

    def sample_mode(self, itr: int) -> None:
        """Switch to sampling mode at iteration `itr` of the sampler."""
        self.sampling_itr = itr
        self._switch("sample", training=False)

    def eval_mode(self, itr: int) -> None:
        """Switch to evaluation mode at iteration `itr` of the runner."""
        self._switch("eval", training=False)

    def _switch(self, mode: str, training: bool) -> None:
        self._memory.switch(self._mode, mode)
        self._tapes.check()
        self._set_mode(mode, training)

    def _set_mode(self, mode: str, training: bool) -> None:
        self._unpack()
        for model in self.named_models().values():
            set_training(model, training)
        self._mode = mode

    def prepare_acting(self, B: int, n_steps: int | None = None) -> None:
        """Prepare to act on the CPU with the current parameters, until the mode changes. Call it after `sample_mode` or `eval_mode`.

        Args:
            B: most environments in a call of `step`.
            n_steps: number of calls to come; None for many.
        """
        self._unpack()  # Some agents extend the modes, and do not call the methods of this class.
        self._tapes.check()
        if self.acting_bf16 and self.device.type == "cpu" and has_bf16(self.device):
            self._packed_layers = pack_layers(unwrap_ddp(self.model), B, n_steps)

    def _unpack(self) -> None:
        for layer in self._packed_layers:
            layer.unpack()
        self._packed_layers = ()


def _constructor_with_model(cls: type[BaseAgent]) -> Callable[..., None]:
    """Return a constructor that passes all arguments on, with the class's `ModelCls` by default."""

    @checked()
    def __init__(self: BaseAgent, ModelCls: type[torch.nn.Module] | None = cls.ModelCls, **settings: Any) -> None:
        super(cls, self).__init__(ModelCls=ModelCls, **settings)  # type: ignore[call-arg]

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def _has_statistics(model: Any) -> bool:
    """Return whether a model has running statistics of observations. A user's ``update_obs_rms`` counts, since it may do anything."""
    if not has_all(model, "update_obs_rms"):
        return False
    return not is_of_rlpyt(model.update_obs_rms) or any(isinstance(module, RunningMeanStdModel) for module in modules_of(model))


def is_trained(model: torch.nn.Module) -> bool:
    """Return whether any parameter of a model is trained."""
    return any(p.requires_grad for module in modules_of(model) for p in module._parameters.values() if p is not None)


def set_training(model: torch.nn.Module, training: bool) -> None:
    """Switch a model to training or evaluation mode, unless it is there already; an untrained model goes to evaluation mode."""
    training = training and is_trained(model)
    if model.training == training:
        return
    modules, plain = modules_of(model), torch.nn.Module
    if any(
        type(module).train is not plain.train or type(module).__setattr__ is not plain.__setattr__ or "train" in vars(module)
        for module in modules
    ):
        model.train(training)
        return
    for module in modules:
        object.__setattr__(module, "training", training)  # As `Module.train` does, which takes ten times as long for the same.


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def action_mask(observation: Any, device: torch.device) -> torch.Tensor | None:
    """Return the mask [*lead,n] of the actions that may follow observations [*lead,...], bool on `device`; None if there is none."""
    _, mask = split(observation)
    return None if mask is None else mask.to(device).bool()


@functools.cache
def uses_prev_action(ModelCls: type[torch.nn.Module]) -> bool:
    """Return whether a model uses the previous action: yes, unless its class declares `uses_prev_action = False`.

    The declaration holds for the `forward` of the declaring class, not for a subclass that overrides `forward`.
    """
    for cls in ModelCls.__mro__:
        if "uses_prev_action" in vars(cls):
            return bool(vars(cls)["uses_prev_action"])
        if "forward" in vars(cls):
            return True
    return True


def null_after_done(prev: Any, done: torch.Tensor, null: Any = 0) -> Any:
    """Return a copy of `prev`, previous actions or rewards, as the agent sees them: null after an episode's end.

    Args:
        prev: [T,B,...] tensor, or a structure of them; row 0 stays as it is.
        done: [T,B].
        null: value of one entry, e.g. the action space's null value; for a structure a structure of values, or one value for all of
            its tensors.
    """
    if prev is None:
        return None
    if isinstance(prev, tuple):
        nulls = null if isinstance(null, tuple) else [null] * len(prev)
        parts = [null_after_done(part, done, part_null) for part, part_null in zip(tuple(prev), tuple(nulls))]
        return remade(prev, parts)
    prev = prev.clone()
    prev[1:][done[:-1].bool()] = torch.as_tensor(null, dtype=prev.dtype, device=prev.device)
    return prev


def discrete_action_count(agent: BaseAgent, action_space: Any) -> int:
    """Return the number of actions of a discrete action space ``0 .. n - 1``; raise ValueError for any other space."""
    check_action_space(agent, action_space, ONE_NUMBER)
    return int(action_space.n)
