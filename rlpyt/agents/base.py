"""The agent's base class: models, devices, sharing between processes, modes."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from rlpyt.agents.exchange import ParameterExchange
from rlpyt.agents.recurrent import AlternatingRecurrentAgentMixin, RecurrentAgentMixin
from rlpyt.agents.spaces import ONE_NUMBER, arguments_of_model, check_action_space, check_flattened
from rlpyt.distributions.composite import encode
from rlpyt.models.utils import keep_large_blocks, matching_state_dict, unwrap_ddp, update_state_dict
from rlpyt.types import AgentInputs
from rlpyt.utils.buffer import buffer_to
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.quick_args import save__init__args
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
AgentStep = namedarraytuple("AgentStep", ["action", "agent_info"])

# What keeps DistributedDataParallel from sending buffers around in every forward pass: a name that depends on torch's version.
SYNC_BUFFERS = next(
    name for name in ("forward_sync_buffers", "broadcast_buffers") if name in inspect.signature(DistributedDataParallel).parameters
)


MODEL_METHODS = ("initialize", "make_env_to_model_kwargs", "make_models", "make_policy")  # Those that decide what models are given.


class BaseAgent(Recorded):
    """Chooses actions for the sampler, evaluates training data for the algorithm, and owns the models to do so.

    The base class serves agents with one model. Agents with more extend `make_models` and list them in `model_names`;
    devices, data-parallel training, modes and state dicts then work for all of them. A model none of whose parameters
    requires a gradient (a target network) is not trained: it stays in evaluation mode. Only `model` is shared with
    sampler processes.

    Life: the sampler calls `initialize`; the runner `to_device` and perhaps `data_parallel`; then, in turns,
    `sample_mode` or `eval_mode` with `step` and `value`, and `train_mode` with `__call__`.

    A subclass that assigns `ModelCls` in its body has that default for the argument, which then is the first one.

    Args:
        ModelCls: class of the model.
        model_kwargs: keyword arguments for it, besides those from `make_env_to_model_kwargs`.
        initial_model_state_dict: what `state_dict` of such an agent returned.

    Attributes: `model`; `shared_model` (the one in shared memory, or None); `distribution`; `device` (of training);
    `parameters_version` (in asynchronous training: how often parameters were sent to samplers; in a sampler, which of them it has);
    `env_spaces`; `env_model_kwargs`; `clip_actions` (whether environments get the actions clipped to the bounds of their space: for
    agents whose distribution goes beyond them); `acts_on_device` (set by samplers that copy what `step` and `value` return to where
    they need it: outputs then stay on the agent's device, where also the random numbers come from).
    """

    recurrent = False
    alternating = False
    acts_on_device = False
    clip_actions = False

    # Name in the state dict -> attribute which holds the model.
    model_names: Mapping[str, str] = {"model": "model"}
    # What `make_env_to_model_kwargs` gives the model: some of image_shape, observation_shape, n_observations, output_size, action_size
    # and distribution.
    model_arguments: Sequence[str] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "ModelCls" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = _constructor_with_model(cls)
        super().__init_subclass__(**kwargs)

    @checked(model_kwargs=ArgumentsFor("ModelCls", by=MODEL_METHODS))
    def __init__(
        self,
        ModelCls: type[torch.nn.Module] | None = None,
        model_kwargs: dict[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
    ):
        save__init__args(locals())  # Here and in all agents: an attribute that a subclass has assigned before stays.
        if self.model_kwargs is None:
            self.model_kwargs = {}
        self.model: torch.nn.Module | None = None
        self.shared_model: torch.nn.Module | None = None
        self.distribution = None
        self.device = torch.device("cpu")
        self.env_spaces = None
        self.env_model_kwargs: dict[str, Any] = {}
        self._mode: str | None = None
        self._exchange: ParameterExchange | None = None  # In asynchronous training.
        self.parameters_version = 0

    # --- construction -------------------------------------------------------------------------------------------------

    def initialize(self, env_spaces, share_memory: bool = False, **kwargs) -> None:
        """Build the models for the environment's spaces. Called by the sampler.

        env_spaces: EnvSpaces(observation, action).
        share_memory: keep `model` in shared memory, so that processes started later see its parameters change.
        initial_model_state_dict goes to `load_state_dict`: make all that it fills in `make_models`, or before this method.
        kwargs: for agents which treat environments differently, `global_B` (int, number of environments in the whole
            run) and `env_ranks` (which of them this agent serves); ignored here.
        """
        self.env_spaces = env_spaces
        self.env_model_kwargs = self.make_env_to_model_kwargs(env_spaces)
        self.make_models()
        check_flattened(self, env_spaces.observation)
        if self.initial_model_state_dict is not None:
            self.load_state_dict(self.initial_model_state_dict)
        if share_memory:
            self._share_model()
            self.shared_model = self.model

    def make_env_to_model_kwargs(self, env_spaces) -> dict[str, Any]:
        """Return the keyword arguments to the model that depend on the environment's spaces: those in `model_arguments`."""
        return arguments_of_model(self, env_spaces)

    def make_models(self) -> None:
        """Instantiate all models, on the CPU; agents with further ones extend this."""
        self.model = self.make_policy()

    def make_policy(self, **kwargs: Any) -> torch.nn.Module:
        """Instantiate `model`, with further keyword arguments that depend on the environment's spaces.

        Raises:
            ValueError: there is no class of the model.
        """
        if not callable(self.ModelCls):
            raise ValueError(f"{type(self).__name__}: ModelCls={self.ModelCls!r} is not possible; give the class of the model.")
        return self.ModelCls(**{**self.env_model_kwargs, **kwargs}, **self.model_kwargs)

    def named_models(self) -> dict[str, torch.nn.Module]:
        """All models, by their names in the state dict."""
        return {name: getattr(self, attribute) for name, attribute in self.model_names.items()}

    # --- devices and processes ----------------------------------------------------------------------------------------

    def to_device(self, cuda_idx: int | None = None) -> None:
        """Train on this CUDA device; None stays on the CPU. Called by the runner, before the optimizer is made.

        If `model` is shared, the shared one remains on the CPU, and a new one is trained.
        """
        if cuda_idx is None:
            keep_large_blocks()
            return
        self.device = torch.device("cuda", cuda_idx)
        if self.shared_model is not None:
            self.model = copy.deepcopy(self.shared_model)
        for model in self.named_models().values():
            model.to(self.device)
        logger.log(f"The agent trains on {self.device}.")

    def data_parallel(self) -> int | None:
        """Wrap the trained models in DistributedDataParallel, and start all models from rank 0's parameters.

        Returns the device index, None on the CPU. Called by the runner, in all ranks.
        """
        device_idx = self.device.index
        for name, model in self.named_models().items():
            if is_trained(model):
                # Buffers hold statistics which are equal in all ranks already; and syncing them would hang when one rank
                # alone uses the model.
                device_ids = None if device_idx is None else [device_idx]
                wrapped = DistributedDataParallel(model, device_ids=device_ids, **{SYNC_BUFFERS: False})
                setattr(self, self.model_names[name], wrapped)
            else:
                for tensor in model.state_dict().values():
                    torch.distributed.broadcast(tensor, src=0)
        return device_idx

    def unwrap(self) -> None:
        """Undo `data_parallel`; nothing to do where that was not called."""
        for attribute in self.model_names.values():
            if hasattr(self, attribute):
                setattr(self, attribute, unwrap_ddp(getattr(self, attribute)))

    def _share_model(self) -> None:
        """Move `model` into shared memory; parameters that other models have in common with it remain so."""
        others = [getattr(self, attribute, None) for attribute in self.model_names.values()]
        share_tensors(_tensors(self.model), aliases=[tensor for model in others if model is not None for tensor in _tensors(model)])
        self.model.share_memory()  # Finds nothing left to do, unless the model's class extends it.

    def async_initialize(self, ctx: Any = None) -> None:
        """Get ready for `send_shared_memory` here, and `recv_shared_memory` in processes that are started later.

        To be called after `initialize`. ctx: not needed; any start method will do.
        """
        self._exchange = ParameterExchange(_tensors(self.model))
        self.parameters_version = 0

    def async_cpu(self, share_memory: bool = True) -> None:
        """In an asynchronous sampler's process: act with a copy of the model, which `recv_shared_memory` updates.

        share_memory: share the copy with this sampler's workers.
        """
        self._check_async("async_cpu")
        self.shared_model = None
        self.model = copy.deepcopy(unwrap_ddp(self.model))
        self.parameters_version = self._exchange.receive(_tensors(self.model))
        if share_memory:
            self._share_model()

    def collector_initialize(self, global_B: int = 1, env_ranks: Sequence[int] | None = None) -> None:
        """In a worker process: get ready to serve the environments `env_ranks`, out of `global_B` in the whole run."""

    def sync_shared_memory(self) -> None:
        """Copy the trained parameters to the shared model, for sampler workers; nothing to do if it is the trained one.

        Not for asynchronous sampling.
        """
        if self.shared_model is not None and self.shared_model is not unwrap_ddp(self.model):
            update_state_dict(self.shared_model, self.model.state_dict())

    def send_shared_memory(self) -> None:
        """In asynchronous training: have samplers find the trained parameters in shared memory. It takes one copy, and never waits."""
        self._check_async("send_shared_memory")
        self.parameters_version = self._exchange.send(_tensors(unwrap_ddp(self.model)))

    def recv_shared_memory(self) -> None:
        """In an asynchronous sampler: take over the parameters that were sent last, if they are new."""
        self._check_async("recv_shared_memory")
        if self.parameters_version < self._exchange.version:
            self.parameters_version = self._exchange.receive(_tensors(self.model))

    def _check_async(self, name: str) -> None:
        if self._exchange is None:
            raise RuntimeError(f"{name} needs memory that processes share: call async_initialize() before starting them.")

    # --- acting and training ------------------------------------------------------------------------------------------

    def __call__(self, observation, prev_action, prev_reward):
        """What the algorithm needs from training data: tensors on the training device, with gradient.

        Inputs are tensors, or structures of them, with leading dims [T,B] or [B], on the CPU or already on the training device.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no __call__ for training.")

    def step(self, observation, prev_action, prev_reward) -> AgentStep:
        """Choose actions, without gradient: AgentStep(action, agent_info) on the CPU (or as `acts_on_device` says).

        Inputs are CPU tensors, or structures of them, with leading dims [B], [T,B] or [].
        """
        raise NotImplementedError(f"{type(self).__name__} defines no step.")

    def reset(self) -> None:
        """Forget the past of all environments; only recurrent agents have any."""

    def reset_one(self, idx: int) -> None:
        """Forget the past of environment `idx`; only recurrent agents have any."""

    def sampling_state(self) -> Any:
        """What the agent remembers of the environments it samples from, for a checkpoint: plain data and tensors."""
        return None

    def set_sampling_state(self, state: Any, example: Any) -> None:
        """Go on sampling from what `sampling_state` returned. example: structure of agent_info, whose leaves do not matter."""

    def toggle_alt(self) -> None:
        """Turn to the other half of the environments; only alternating recurrent agents care."""

    def _model_inputs(self, observation, prev_action, prev_reward) -> tuple:
        """Return the inputs on the training device; discrete previous actions one-hot, if the model uses them."""
        if self.distribution is not None and uses_prev_action(type(unwrap_ddp(self.model))):
            prev_action = encode(self.distribution, prev_action)
        return self._to_device((observation, prev_action, prev_reward))

    def _to_device(self, inputs):
        """Structure of tensors on the training device."""
        return inputs if self.device.type == "cpu" else buffer_to(inputs, device=self.device)

    def _to_cpu(self, outputs):
        """Structure of tensors on the CPU, unless the agent leaves them on its device."""
        return outputs if self.device.type == "cpu" or self.acts_on_device else buffer_to(outputs, device="cpu")

    # --- parameters ---------------------------------------------------------------------------------------------------

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Parameters to optimize."""
        return self.model.parameters()

    def state_dict(self) -> dict[str, Any]:
        """All models' parameters and buffers, for saving: the model's own state dict, or one by name for several models."""
        state_dicts = {name: unwrap_ddp(model).state_dict() for name, model in self.named_models().items()}
        return state_dicts if len(state_dicts) > 1 else state_dicts.popitem()[1]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take parameters and buffers from what `state_dict` returned, also if it was saved under data-parallel training.

        A subclass with a method of its own may hand on a state dict in which there is more: it takes the rest itself.
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
        """Go into training mode. itr: iteration of the runner."""
        self._set_mode("train", training=True)

    def sample_mode(self, itr: int) -> None:
        """Go into sampling mode. itr: iteration of the sampler."""
        self._set_mode("sample", training=False)

    def eval_mode(self, itr: int) -> None:
        """Go into evaluation mode. itr: iteration of the runner."""
        self._set_mode("eval", training=False)

    def _set_mode(self, mode: str, training: bool) -> None:
        for model in self.named_models().values():
            set_training(model, training)
        self._mode = mode


def _constructor_with_model(cls: type[BaseAgent]) -> Callable[..., None]:
    """Return a constructor that passes all arguments on, with the class's `ModelCls` by default."""

    @checked()
    def __init__(self: BaseAgent, ModelCls: type[torch.nn.Module] | None = cls.ModelCls, **settings: Any) -> None:
        super(cls, self).__init__(ModelCls=ModelCls, **settings)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def is_trained(model: torch.nn.Module) -> bool:
    """Whether any parameter of a model is. (`Module.parameters` takes several times as long to get to the first one.)"""
    return any(p.requires_grad for module in model.modules() for p in module._parameters.values() if p is not None)


def set_training(model: torch.nn.Module, training: bool) -> None:
    """Put a model into training or evaluation mode, where it is not in it; one that is not trained goes into evaluation mode."""
    training = training and is_trained(model)
    if model.training != training:
        model.train(training)


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


@functools.cache
def uses_prev_action(ModelCls: type[torch.nn.Module]) -> bool:
    """Whether a model wants the previous action: yes, unless its class says `uses_prev_action = False`.

    What a class says holds for its own `forward`, not for that of a subclass.
    """
    for cls in ModelCls.__mro__:
        if "uses_prev_action" in vars(cls):
            return bool(vars(cls)["uses_prev_action"])
        if "forward" in vars(cls):
            return True
    return True


def null_after_done(prev: Any, done: torch.Tensor, null: Any = 0) -> Any:
    """A copy of `prev`, the agent's previous actions or rewards, as the agent sees them: null after an episode's end.

    prev: [T,B,...] tensor, or a structure of them; row 0 remains as it is. done: [T,B]. null: value of one entry, e.g.
    the action space's null value; a structure of them for a structure, or one value for all of its tensors.
    """
    if prev is None:
        return None
    if isinstance(prev, tuple):
        nulls = null if isinstance(null, tuple) else [null] * len(prev)
        parts = [null_after_done(part, done, part_null) for part, part_null in zip(tuple(prev), tuple(nulls))]
        return prev._make(parts) if hasattr(prev, "_make") else tuple(parts)
    prev = prev.clone()
    prev[1:][done[:-1].bool()] = torch.as_tensor(null, dtype=prev.dtype, device=prev.device)
    return prev


def discrete_action_count(agent, action_space) -> int:
    """Number of actions of a discrete action space ``0 .. n - 1``; ValueError for any other space."""
    check_action_space(agent, action_space, ONE_NUMBER)
    return int(action_space.n)
