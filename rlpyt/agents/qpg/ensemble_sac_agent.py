"""Agents for soft actor-critic with an ensemble of critics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from rlpyt.agents.base import AgentStep, action_mask
from rlpyt.agents.qpg.base import QpgAgent
from rlpyt.agents.qpg.sac_base import AgentInfo, SquashedGaussianAgent
from rlpyt.agents.spaces import ONE_NUMBER
from rlpyt.distributions.categorical import Categorical, DistInfo
from rlpyt.models.batch_renorm import by_running_statistics
from rlpyt.models.qpg.ensemble import QEnsembleModel
from rlpyt.models.qpg.mlp import PiCategoricalMlpModel
from rlpyt.models.utils import unwrap_ddp
from rlpyt.spaces.masked import split
from rlpyt.utils.misc import is_of_rlpyt, name_of
from rlpyt.utils.quick_args import save__init__args, takes
from rlpyt.utils.settings import COUNT, checked


class EnsembleAgent(QpgAgent):
    """Agent with an ensemble of critics, which is one model, and perhaps a target network of it.

    The state dict has the keys model (the policy), q_model, and target_q_model if there are target networks.

    Its settings are those of `rlpyt.agents.qpg.base.QpgAgent`, and:

    Args:
        n_critics: number of critics; their model gets it, too.
        n_quantiles: quantiles of the return that each critic estimates, in place of its mean; their model gets it, too. None for the mean.
        target_networks: targets are computed by target networks.

    Raises:
        ValueError: `q_model_kwargs` has another number of critics or quantiles.
    """

    model: Any
    q_model: Any
    target_q_model: Any
    distribution: Any
    QModelCls: Any
    q_model_kwargs: dict[str, Any]
    n_critics: int
    n_quantiles: int | None
    target_networks: bool

    discrete = False
    q_names = ("q_model",)
    settings_names = {"q_model": ("QModelCls", "q_model_kwargs")}

    @checked(n_critics=COUNT, n_quantiles=COUNT)
    def __init__(
        self,
        *,
        QModelCls: type[torch.nn.Module] = QEnsembleModel,
        n_critics: int = 2,
        n_quantiles: int | None = None,
        target_networks: bool = True,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)
        for name, values in dict(n_critics="n_critics", n_quantiles="n_critics,n_quantiles").items():
            value = getattr(self, name)
            if self.q_model_kwargs.get(name, value) != value:
                raise ValueError(
                    f"{type(self).__name__}: {name}={value} of the agent and {name}={self.q_model_kwargs[name]} in q_model_kwargs differ: "
                    "give it to the agent alone, which hands it on."
                )
            if value is None:
                continue  # A model without quantiles need not know the name.
            if not takes(self.QModelCls, name) and is_of_rlpyt(type(self)):  # A subclass may make its critics in another way.
                raise TypeError(
                    f"{type(self).__name__} gives its critics {name}, which {name_of(self.QModelCls)} does not take: let it take that "
                    f"number, and return values [*lead,{values}]."
                )
            self.q_model_kwargs = {**self.q_model_kwargs, name: value}
        self.model_names: Mapping[str, str] = {"model": "model", "q_model": "q_model"}
        self.target_names: Mapping[str, str] = {}
        if self.target_networks:
            self.model_names = {**self.model_names, "target_q_model": "target_q_model"}
            self.target_names = {"q_model": "target_q_model"}

    def make_models(self) -> None:
        """Extend the base class: dropout is active in the target network, too."""
        super().make_models()
        if self.target_networks:
            for layer in self.target_q_model.modules():
                layer.train(isinstance(layer, torch.nn.Dropout))

    def q(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, *action: torch.Tensor) -> torch.Tensor:
        """Return Q of an action, with gradient: [*lead,n_critics], or quantiles [*lead,n_critics,n_quantiles].

        For discrete actions there is no argument `action`, and the result has their number as a further dimension after n_critics.
        """
        is_plain = self._q_frozen or not torch.is_grad_enabled()
        model = unwrap_ddp(self.q_model) if is_plain else self.q_model
        return model(*self._q_inputs(observation, prev_action, prev_reward, *action))

    @torch.no_grad()
    def target_q(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, *action: torch.Tensor) -> torch.Tensor:
        """Return what `q` does, by the target network."""
        return self.target_q_model(*self._q_inputs(observation, prev_action, prev_reward, *action))

    @torch.no_grad()
    def target_q_of(self, critics: torch.Tensor, *inputs: Any) -> torch.Tensor | None:
        """Return what `target_q` does for `inputs`, of the critics with indexes [m] alone: [*lead,m,...].

        Return None if `target_q` or a part of the model is a user's: then all critics must be computed.
        """
        if not is_of_rlpyt(self.target_q) or not QEnsembleModel.computes_few(self.target_q_model):
            return None
        return self.target_q_model(*self._q_inputs(*inputs), critics=critics)

    def _q_inputs(self, observation: Any, *others: Any) -> tuple[Any, ...]:
        """Return the inputs of the critics on the training device: observations without mask, and the others."""
        inputs: tuple[Any, ...] = self._to_device((split(observation)[0], *others))
        return inputs

    def pi(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Return what the algorithm needs of the policy, with gradient."""
        raise NotImplementedError

    @torch.no_grad()
    def target_pi(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Return what `pi` does, for targets; batch renormalization uses its running statistics."""
        with by_running_statistics(self.model):
            return self.pi(observation, prev_action, prev_reward)

    @contextmanager
    def freeze_q(self) -> Iterator[None]:
        """Extend the base class: batch renormalization of the critics uses its running statistics."""
        with super().freeze_q(), by_running_statistics(self.q_model):
            yield

    def pi_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of the policy."""
        return self.model.parameters()

    def update_target(self, tau: float = 1) -> None:
        """Move the target network, if there is one, towards the model."""
        if self.target_networks:
            super().update_target(tau)


class EnsembleSacAgent(EnsembleAgent, SquashedGaussianAgent):
    """Agent for `EnsembleSAC`: a squashed Gaussian policy, and any number of critics.

    The state dict has the keys model (the policy), q_model, and target_q_model if there are target networks.

    Its settings are those of `EnsembleAgent` and of `rlpyt.agents.qpg.sac_base.SquashedGaussianAgent`.
    """

    @checked(without=("v_model_kwargs",))
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def pi(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Return a new action [*lead,A], the log of its density [*lead], and dist_info, all with gradient to the policy."""
        return SquashedGaussianAgent.pi(self, observation, prev_action, prev_reward)


class DiscreteSacAgent(EnsembleAgent):
    """Agent for `DiscreteSAC`: a categorical policy, and critics with a value for each action. Evaluation takes the most probable action.

    The state dict has the keys model (the policy), q_model, and target_q_model if there are target networks.

    If observations come with a mask of actions (see `rlpyt.spaces.masked`), masked actions have probability 0, also in training.

    Its settings are those of `EnsembleAgent`, without n_quantiles, and:

    Args:
        ModelCls: class of the policy, which returns logarithms of probabilities [*lead,n].
    """

    discrete = True
    hidden_sizes = (256, 256)
    model_arguments = ("observation_shape", "output_size", "n_observations")
    takes_actions = ONE_NUMBER

    @checked(without=("n_quantiles",))
    def __init__(self, *, ModelCls: type[torch.nn.Module] = PiCategoricalMlpModel, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def make_distribution(self, action_space: Any) -> None:
        """A categorical distribution."""
        self.distribution = Categorical(dim=int(action_space.n))

    def pi(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, DistInfo]:
        """Return probabilities of all actions and their logarithms, both [*lead,n], and dist_info, all with gradient to the policy.

        The logarithms of masked actions are 0, so that products with their probabilities, which are 0, are 0.
        """
        log_pi = self.model(*self._model_inputs(observation, prev_action, prev_reward))
        pi, log_pi = _given_mask(log_pi, action_mask(observation, log_pi.device))
        return pi, log_pi, DistInfo(pi)

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions: AgentStep(action [*lead], AgentInfo(dist_info [*lead,n])) on the CPU, without gradient."""
        log_pi = self._to_cpu(self._outputs(*self._model_inputs(observation, prev_action, prev_reward)))
        mask = action_mask(observation, log_pi.device)
        dist_info = DistInfo(_given_mask(log_pi, mask)[0])
        action = dist_info.prob.argmax(dim=-1) if self._mode == "eval" else self.distribution.sample(dist_info)
        return AgentStep(action if mask is None else self.distribution.possible(action, dist_info), AgentInfo(dist_info))


def _given_mask(log_pi: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return probabilities and their logarithms, both 0 for actions whose `mask` is False, for logarithms [*lead,n] without mask.

    Where no action is allowed, all are. A mask that is None changes nothing.
    """
    if mask is None:
        return log_pi.exp(), log_pi
    masked = ~mask & mask.any(dim=-1, keepdim=True)
    log_pi = torch.log_softmax(log_pi.masked_fill(masked, -torch.inf), dim=-1)
    return log_pi.exp(), log_pi.masked_fill(masked, 0)
