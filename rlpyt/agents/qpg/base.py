"""What agents with a policy and Q-functions of continuous actions share."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch

from rlpyt.agents.base import MODEL_METHODS, BaseAgent, set_training
from rlpyt.agents.spaces import BOUNDED_VECTOR, check_action_space, images_in
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.qpg.lstm import QpgLstm
from rlpyt.models.qpg.mlp import QofMuMlpModel, QpgMlp, q_values
from rlpyt.models.qpg.perceptron import stack_parameters
from rlpyt.models.utils import frozen, parameters_of, unwrap_ddp, update_state_dict
from rlpyt.spaces.base import CompletedSpace
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.quick_args import arguments_of, needs, save__init__args, takes
from rlpyt.utils.settings import ArgumentsFor, checked
from rlpyt.utils.shared_int import SharedInt


class QpgAgent(BaseAgent):
    """Agent with a policy (`model`), one or two Q-functions, and target networks of some models.

    Target networks start as copies. The state dict holds one state dict per name in `model_names`.

    Subclasses declare:
        model_names: all models, see `BaseAgent`.
        q_names: attributes of the Q-functions, in order.
        target_names: attribute of a model -> attribute of its target network.
        settings_names: attribute of each model that is neither policy nor target -> attributes with its class and keyword arguments.
        hidden_sizes: default for models without keyword arguments whose classes take hidden_sizes.
        takes_actions: the action spaces that the agent takes.

    Args:
        ModelCls: class of the policy.
        QModelCls: class of the Q-functions, which also take an action and return [*lead].
        model_kwargs, q_model_kwargs: their keyword arguments except observation_shape and action_size. Without hidden_sizes in
            them, these are the agent's.
        initial_model_state_dict: a `state_dict` of such an agent.
    """

    q_names: Sequence[str]
    target_names: Mapping[str, str]
    settings_names: Mapping[str, tuple[str, str]] = {}
    hidden_sizes: Sequence[int]
    model_arguments = ("observation_shape", "action_size", "n_observations")
    takes_actions = BOUNDED_VECTOR

    min_itr_learn = SharedInt()  # Sampler iteration at which learning begins; shared, because workers may start before it is known.

    @checked(model_kwargs=ArgumentsFor("ModelCls", by=MODEL_METHODS), q_model_kwargs=ArgumentsFor("QModelCls", by=MODEL_METHODS))
    def __init__(
        self,
        ModelCls: type[torch.nn.Module] | None = None,
        QModelCls: type[torch.nn.Module] = QofMuMlpModel,
        model_kwargs: dict[str, Any] | None = None,
        q_model_kwargs: dict[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
    ) -> None:
        save__init__args(locals())
        classes = {"model_kwargs": "ModelCls", **{kwargs_name: cls_name for cls_name, kwargs_name in self.settings_names.values()}}
        for kwargs_name, cls_name in classes.items():
            kwargs, make, sizes = getattr(self, kwargs_name), getattr(self, cls_name), dict(hidden_sizes=list(self.hidden_sizes))
            if kwargs is None:
                setattr(self, kwargs_name, sizes if takes(make, "hidden_sizes") else {})
            elif needs(make, "hidden_sizes") or (is_of_rlpyt(make) and takes(make, "hidden_sizes")):
                setattr(self, kwargs_name, {**sizes, **kwargs})
        super().__init__()
        self.min_itr_learn = 0
        self._q_frozen = self._q_joint = False
        self._targets: tuple[list, list] | None = None  # tensors of target networks, and of the models that they follow

    # --- construction -------------------------------------------------------------------------------------------------

    def initialize(  # type: ignore[override]
        self, env_spaces: EnvSpaces, share_memory: bool = False, global_B: int = 1, env_ranks: Sequence[int] | None = None
    ) -> None:
        """Extend the base class by the distribution.

        Raises:
            ValueError: actions are not vectors with the same bounds -a and a for all components, or observations are images.
        """
        check_spaces(self, env_spaces)
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.make_distribution(env_spaces.action)

    def models_by_class(self) -> dict[str, Any]:
        """Extend the base class by the models that are neither policies nor targets."""
        others = {cls_name: vars(self).get(attribute) for attribute, (cls_name, _) in self.settings_names.items()}
        return {**super().models_by_class(), **others}

    def make_distribution(self, action_space: Any) -> None:
        """Assign the distribution over actions."""
        raise NotImplementedError(f"{type(self).__name__} defines no distribution over actions.")

    def largest_output(self) -> dict[str, float]:
        """Return ``{"output_max": ...}``, the largest action, if the policy takes it by this name and `model_kwargs` does not have it.

        A class takes it, too, if it passes ``**kwargs`` on to a base class that does.
        """
        takes_it = callable(self.ModelCls) and "output_max" in arguments_of(self.ModelCls) and "output_max" not in self.model_kwargs
        return {"output_max": largest_action(self.env_spaces.action)} if takes_it else {}

    def make_models(self) -> None:
        """Extend the base class by Q-functions, further models and target networks."""
        super().make_models()
        for attribute, (cls_name, kwargs_name) in self.settings_names.items():
            Cls, of_env = getattr(self, cls_name), dict(self.env_model_kwargs)
            if "n_observations" not in arguments_of(Cls):
                of_env.pop("n_observations", None)
            setattr(self, attribute, Cls(**of_env, **getattr(self, kwargs_name)))
        for attribute, target in self.target_names.items():
            setattr(self, target, copy.deepcopy(getattr(self, attribute)).requires_grad_(False).eval())
        self._arrange()

    def to_device(self, cuda_idx: int | None = None) -> None:
        """Extend the base class by the arrangement of parameters in memory."""
        super().to_device(cuda_idx)
        self._arrange()

    def data_parallel(self) -> int | None:
        """Extend the base class; see there."""
        device_idx = super().data_parallel()
        self._targets = None
        return device_idx

    def _arrange(self) -> None:
        """Put parameters that are used together next to each other in memory."""
        self._targets = None
        targets = [self.target_names[name] for name in self.q_names if name in self.target_names]
        for names in (self.q_names, targets):
            models = [getattr(self, name) for name in names]
            if len(models) > 1 and all(type(model) is QofMuMlpModel for model in models):
                stack_parameters(models)

    def trained_models(self) -> list[torch.nn.Module]:
        """Extend the base class by Q-functions and further models. Targets follow them, statistics of observations included."""
        return [unwrap_ddp(getattr(self, name)) for name in self.model_names.values() if name not in self.target_names.values()]

    # --- before learning begins ---------------------------------------------------------------------------------------

    def give_min_itr_learn(self, min_itr_learn: int) -> None:
        """Assign the sampler iteration at which learning begins. The algorithm calls it; all workers see the value."""
        self.min_itr_learn = min_itr_learn

    # --- Q ------------------------------------------------------------------------------------------------------------

    @contextmanager
    def freeze_q(self) -> Iterator[None]:
        """Within this context gradients pass through Q-functions to the action, but are not computed for their parameters.

        Data-parallel training does not expect their gradients either.
        """
        self._q_frozen = True
        try:
            with frozen(self.q_parameters()):
                yield
        finally:
            self._q_frozen = False

    @contextmanager
    def joint_q(self) -> Iterator[None]:
        """Within this context all Q-functions are computed together, which is faster, and may share a node of the graph.

        So one call of `backward` must serve all of them. Outside, each Q-function can have a separate loss and `backward`.
        """
        self._q_joint = True
        try:
            yield
        finally:
            self._q_joint = False

    def q_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of all Q-functions."""
        return chain.from_iterable(parameters_of(getattr(self, name)) for name in self.q_names)

    def _q_values(
        self, names: Sequence[str], observation: Any, prev_action: Any, prev_reward: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return Q [*lead] of the models with these attributes; inputs as from the algorithm."""
        models = [getattr(self, name) for name in names]
        inputs = self._to_device((observation, prev_action, prev_reward, action))
        if self._q_frozen or not torch.is_grad_enabled():
            return q_values([unwrap_ddp(model) for model in models], *inputs)
        return q_values(models, *inputs) if self._q_joint else tuple(model(*inputs) for model in models)

    # --- modes --------------------------------------------------------------------------------------------------------

    def _set_mode(self, mode: str, training: bool) -> None:
        """Extend the base class: only the models that act switch to sampling. Others keep the mode of training; targets never switch."""
        self._unpack()
        targets = self.target_names.values()
        for attribute in self.acting_names if mode == "sample" else [name for name in self.model_names.values() if name not in targets]:
            set_training(getattr(self, attribute), training)
        self._mode = mode

    # --- targets ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def update_target(self, tau: float = 1) -> None:
        """Move the target networks towards the models: ``tau * model + (1 - tau) * target``, in place."""
        if self._targets is None:
            pairs = [(unwrap_ddp(getattr(self, name)), getattr(self, target)) for name, target in self.target_names.items()]
            if any(True for model, _ in pairs for _ in model.buffers()):
                for model, target in pairs:
                    update_state_dict(target, model.state_dict(), tau)
                return
            self._targets = [p for _, target in pairs for p in target.parameters()], [p for model, _ in pairs for p in model.parameters()]
        torch._foreach_lerp_(*self._targets, float(tau))


def largest_action(action_space: Any) -> float:
    """Return the largest float32 number that is in a space with the same bounds -a and a for all components.

    If the environment's bounds are float64, the nearest float32 number may be outside: 0.1 is larger in float32.
    """
    largest, clip = np.float32(action_space.high[0]), CompletedSpace(action_space).clip
    is_inside = clip is None or float(largest) <= float(np.asarray(clip(action_space.high)).flat[0])
    return float(largest if is_inside else np.nextafter(largest, np.float32(0)))


def check_spaces(agent: QpgAgent, env_spaces: EnvSpaces) -> None:
    """Raise ValueError, with a remedy, for spaces that these agents do not take."""
    name, observation = type(agent).__name__, env_spaces.observation
    check_action_space(agent, env_spaces.action, agent.takes_actions)
    has_perceptrons = isinstance(agent.ModelCls, type) and issubclass(agent.ModelCls, (QpgMlp, QpgLstm)) and is_of_rlpyt(agent.ModelCls)
    if has_perceptrons and images_in(observation) == [observation]:
        raise ValueError(
            f"{name} has perceptrons for models, but observations are images ({observation!r} of uint8): give it models for them "
            "(ModelCls, QModelCls), or turn images into vectors of features in the environment."
        )
