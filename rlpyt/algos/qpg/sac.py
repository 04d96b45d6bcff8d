"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905)."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from rlpyt.algos.base import Counted
from rlpyt.algos.hyperparameters import Needs
from rlpyt.algos.qpg.base import CompletedQAgent, QpgAlgorithm, agent_renormalizes, every_tenth
from rlpyt.algos.replay import SamplesToBuffer, bootstrap_discount
from rlpyt.distributions.gaussian import Gaussian
from rlpyt.utils.misc import has_all, is_of_rlpyt
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import FLAG, RATE, Kind, Number, checked, one_of
from rlpyt.utils.tensor import mean_huber, mean_of_valid, smaller

OptInfo = namedtuple("OptInfo", "q1Loss q2Loss piLoss q1GradNorm q2GradNorm piGradNorm q1 q2 piMu piLogStd qMeanDiff alpha")

SamplesToBufferTl = SamplesToBuffer  # Samples with a field `timeout`.

_ENTROPY = Number(finite=True)


class SoftActorCritic(QpgAlgorithm):
    """The base class of both forms of SAC.

    Subclasses declare:
        clipped: number of networks. Their optimizers come first in `optimizer_names`, and only their gradients are clipped.

    It has the settings of `rlpyt.algos.replay.OffPolicyAlgorithm` and `rlpyt.algos.qpg.base.QpgAlgorithm`, and:

    Args:
        action_prior: "uniform" or "gaussian", the prior over actions in the policy's loss.
        reward_scale: factor of all rewards.
        reparameterize: must be True: the policy learns by gradients through the action.
        clip_grad_norm: largest norm of the gradient of each network.
    """

    clipped: int
    action_prior: str
    reward_scale: float

    @checked(
        action_prior=one_of("uniform", "gaussian"),
        reward_scale=Number(finite=True),
        reparameterize=Kind("True: the policy learns through the action alone", lambda value: FLAG.allows(value) and bool(value)),
    )
    def __init__(
        self,
        *,
        batch_size: int = 256,
        min_steps_learn: int = int(1e4),
        replay_ratio: float = 256,
        target_update_tau: float = 0.005,
        target_update_interval: int = 1,
        learning_rate: float = 3e-4,
        initial_optim_state_dict: dict | None = None,
        action_prior: str = "uniform",
        reward_scale: float = 1,
        reparameterize: bool = True,
        clip_grad_norm: float = 1e9,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def _prepare(self, agent: Any, *args: Any, **kwargs: Any) -> None:
        """Also check that log-densities, of which the losses take the entropy, are those of the agent's actions.

        Raises:
            ValueError: they are not.
        """
        super()._prepare(agent, *args, **kwargs)
        distribution = CompletedQAgent(agent).distribution
        clips = isinstance(distribution, Gaussian) and distribution.clip is not None
        if clips and self._trains_by_ours():
            raise ValueError(
                f"{type(self).__name__} needs the density of actions, but {type(agent).__name__} clips actions, and its density is that of "
                f"actions before clipping: take an agent that squashes them, such as {self.agent_example}."
            )

    def update(self, batch: Any) -> tuple[Any, None]:
        """Step all optimizers on the losses of `batch`."""
        batch = self.trained(batch)
        with self.joint_q():
            losses, values = self.loss(batch)
        optimizers = [getattr(self, name) for name, loss in zip(self.optimizer_names, losses) if loss is not None]
        losses_to_step = [loss for loss in losses if loss is not None]
        grad_norms = self.step_optimizers(losses_to_step, optimizers[: self.clipped], optimizers[self.clipped :])
        opt_info = self.OptInfoCls(*([] for _ in self.OptInfoCls._fields))
        self.append_opt_info_(opt_info, losses, grad_norms, values)
        return self.OptInfoCls(*map(_joined, opt_info)), None

    def q_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Parameters of the agent's Q-functions."""
        return chain(self.agent.q1_parameters(), self.agent.q2_parameters())

    def loss(self, samples: Any) -> tuple[tuple, tuple]:
        """Return losses in the order of `optimizer_names` (None for an optimizer that is not needed), and values to log."""
        raise NotImplementedError

    def append_opt_info_(self, opt_info: Any, losses: tuple, grad_norms: Sequence[torch.Tensor], values: tuple) -> None:
        """Append the logged tensors of an update to the lists in `opt_info`."""
        q1, q2, *_ = values
        if isinstance(q1, Counted):
            difference = Counted(mean_of_valid((q1.values - q2.values).abs(), q1.counts), q1.counts.amax())
        else:
            difference = (q1 - q2).abs().mean()
        logged = [loss.detach() for loss in losses[: self.clipped]] + [*grad_norms] + [every_tenth(value) for value in values]
        for field, value in zip(opt_info, [*logged, difference]):
            field.append(value)

    def make_optimizers(self) -> None:
        """Assign the optimizers of the networks."""
        for name in self.optimizer_names[: self.clipped]:
            parameters = getattr(self.agent, name.replace("_optimizer", "_parameters"))()
            setattr(self, name, self.make_optimizer(parameters, self.learning_rate))

    def get_action_prior(self, action: torch.Tensor) -> torch.Tensor | float:
        """Return the log-density [n] of the prior, standard normal or uniform (up to a constant), at actions [n,A]."""
        if self.action_prior == "uniform":
            return 0.0
        return -0.5 * action.square().sum(-1) - 0.5 * action.shape[-1] * math.log(2 * math.pi)

    def minus_log_prior(self, losses: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return losses of the policy [n] minus `get_action_prior` of actions [n,A], which takes no time if that is 0."""
        log_prior = self.get_action_prior(action)
        return losses - log_prior if isinstance(log_prior, torch.Tensor) or log_prior != 0 else losses

    def scaled_return(self, samples: Any) -> torch.Tensor:
        """Return the sums of discounted rewards [n], times `reward_scale`."""
        return samples.return_ if self.reward_scale == 1 else self.reward_scale * samples.return_


class SAC(SoftActorCritic):
    """Learns a policy that maximizes reward and entropy, with two Q-functions; optionally tunes the weight α of entropy.

    It has the settings of `SoftActorCritic`, and:

    Args:
        fixed_alpha: α, the weight of entropy relative to reward; None to tune α.
        target_entropy: policy entropy for which α is tuned. "auto" means minus the number of action components; None leaves α at 1, or at
            `fixed_alpha`. If α is tuned, `initialize` assigns the number to the attribute in place of "auto".

    Attributes:
        _alpha: α, a tensor.
        _target_entropy: the target entropy as a number, set by `initialize`.

    Raises:
        ValueError: a setting is not possible.
    """

    fixed_alpha: float | None
    target_entropy: Any  # A number, None or, until `initialize` replaces it, "auto".
    _given_target_entropy: str | None = None  # "auto", if it has been replaced.
    _target_entropy: float

    OptInfoCls: Any = OptInfo
    opt_info_fields: tuple[str, ...] = OptInfo._fields
    optimizer_names: Sequence[str] = ("q1_optimizer", "q2_optimizer", "pi_optimizer", "alpha_optimizer")
    clipped = 3
    renormalizes = False
    agent_needs: Sequence[str] = ("pi", "q", "target_q", "update_target", "pi_parameters", "q1_parameters", "q2_parameters")
    agent_example = "rlpyt.agents.qpg.sac_agent.SacAgent"
    settings_need: tuple[Needs, ...] = (
        Needs(("target_entropy",), "fixed_alpha=None", lambda algo: algo.fixed_alpha is None or algo.target_entropy is None),
    )

    @checked(
        fixed_alpha=RATE,
        target_entropy=Kind(f"{_ENTROPY}, or 'auto'", lambda value: value == "auto" if isinstance(value, str) else _ENTROPY.allows(value)),
    )
    def __init__(
        self,
        *,
        fixed_alpha: float | None = None,
        OptimCls: type = torch.optim.Adam,
        target_entropy: float | str | None = "auto",
        reparameterize: bool = True,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def make_optimizers(self) -> None:
        """Assign the optimizers and α; `alpha_optimizer` is None if α is not tuned."""
        super().make_optimizers()
        agent = self.agent
        self.alpha_optimizer = None
        self._log_alpha = torch.full((), 1.0 if self.fixed_alpha is None else self.fixed_alpha, device=agent.device).log()
        if self.fixed_alpha is None and self.target_entropy is not None:
            was_replaced = self._given_target_entropy is not None and self.target_entropy == self._target_entropy
            is_auto = self.target_entropy == "auto" or was_replaced
            self._given_target_entropy = "auto" if is_auto else None
            self._target_entropy = self.target_entropy = self.auto_target_entropy() if is_auto else float(self.target_entropy)
            self.alpha_optimizer = self.make_optimizer([self._log_alpha.requires_grad_()], self.learning_rate)

    def auto_target_entropy(self) -> float:
        """Return the target entropy for the setting "auto"."""
        return -float(np.prod(self.agent.env_spaces.action.shape))

    @property
    def _alpha(self) -> torch.Tensor:
        """The current α. Assigning it has an effect only if α is not tuned."""
        return self._log_alpha.detach().exp()

    @_alpha.setter
    def _alpha(self, alpha: torch.Tensor | float) -> None:
        if self.alpha_optimizer is None:
            self._log_alpha = torch.as_tensor(alpha, device=self._log_alpha.device).log()

    def _prepare(self, agent: Any, *args: Any, **kwargs: Any) -> None:
        """Also check that this algorithm can train batch renormalization, if the agent has it.

        Raises:
            ValueError: it cannot.
        """
        # Before the base class, which advises one process, where this algorithm cannot train them either. It refuses unsuitable agents.
        is_ours = is_of_rlpyt(type(self)) and has_all(agent, *self.agent_needs)
        if not self.renormalizes and is_ours and agent_renormalizes(agent):
            raise ValueError(
                f"{type(self).__name__} cannot train networks with batch_renorm=True: use rlpyt.algos.qpg.ensemble_sac.EnsembleSAC, whose "
                "targets leave their statistics alone."
            )
        super()._prepare(agent, *args, **kwargs)

    def after_backward(self) -> None:
        """Average the gradient of α over the processes that train together. (Data-parallel models average their own gradients.)"""
        if self.alpha_optimizer is not None and self.world_size > 1:
            grad = self._log_alpha.grad
            assert grad is not None
            torch.distributed.all_reduce(grad)
            grad /= self.world_size

    def loss(self, samples: Any) -> tuple[tuple, tuple]:
        """Compute the losses of both Q-functions, of the policy, and of α.

        ::

            y   = R + γ^m (min Q_target(s',a') - α log π(a'|s')),   a' ~ π(s')
            Q:  ½ (Q_i(s,a) - y)²
            π:  α log π(ã|s) - min Q(s,ã) - log prior(ã),           ã ~ π(s)
            α:  -log α (log π(ã|s) + target entropy)

        R is the sum of m discounted rewards, and s' is m steps after s, at most n. The second term of y is missing if the episode was
        terminated before.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.

        Returns:
            Losses (q1, q2, pi, alpha or None), with gradients for disjoint sets of parameters; and (q1, q2, mean, log_std).
        """
        agent, valid = self.agent, self.valid_samples(samples)
        alpha = self._alpha
        (new_action, log_pi, dist_info), (next_action, next_log_pi) = self.both_pi(samples)
        with torch.no_grad():
            target_q = torch.minimum(*agent.target_q(*samples.target_inputs, next_action))
            target_v = torch.addcmul(target_q, alpha, next_log_pi, value=-1)
            factor = bootstrap_discount(samples, self.discount, self.n_step_return)
            y = torch.addcmul(self.scaled_return(samples), factor, target_v)
        q1, q2 = agent.q(*samples.agent_inputs, samples.action)
        q1_loss, q2_loss = (mean_huber(q, y, valid=valid) for q in (q1, q2))

        with self.freeze_q():
            min_q = smaller(*agent.q(*samples.agent_inputs, new_action))
        pi_loss = mean_of_valid(self.minus_log_prior(alpha * log_pi - min_q, new_action), valid)

        alpha_loss = None
        if self.alpha_optimizer is not None:
            alpha_loss = self._log_alpha * mean_of_valid(-self.target_entropy - log_pi.detach(), valid)
        values = (q1, q2, dist_info.mean, dist_info.log_std)
        return (q1_loss, q2_loss, pi_loss, alpha_loss), self.to_log(values, samples)

    def both_pi(self, samples: Any) -> tuple[tuple, tuple]:
        """Return the agent's `pi` of the samples, and action and log-density for the targets, without gradient; all the noise is new."""
        joint = CompletedQAgent(self.agent).joint_pi(samples.agent_inputs, samples.target_inputs)
        if joint is not None:
            return joint
        with torch.no_grad():
            of_targets = self.agent.pi(*samples.target_inputs)[:2]
        return self.agent.pi(*samples.agent_inputs), of_targets

    def append_opt_info_(self, opt_info: OptInfo, losses: tuple, grad_norms: Sequence[torch.Tensor], values: tuple) -> None:
        """Also append α."""
        super().append_opt_info_(opt_info, losses, grad_norms, values)
        opt_info.alpha.append(self._alpha)

    def optim_state_dict(self) -> dict[str, Any]:
        """Add α."""
        return dict(super().optim_state_dict(), log_alpha=self._log_alpha.detach().clone())

    def load_optim_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `optim_state_dict` returned, including α if α is tuned. A fixed α keeps the value in the settings.

        Raises:
            ValueError: the state does not fit the settings.
        """
        if self.target_entropy is None:  # The original has an optimizer of α that never steps.
            state_dict = {**state_dict, "alpha_optimizer": None}
        super().load_optim_state_dict(state_dict)
        if self.alpha_optimizer is not None:
            with torch.no_grad():
                self._log_alpha.copy_(torch.as_tensor(state_dict["log_alpha"]).reshape(()))


def _joined(values: list) -> Any:
    """Concatenate a list of tensors; return None if it is empty."""
    if len(values) < 2:
        return values[0] if values else None
    return torch.cat([torch.as_tensor(value).reshape(-1) for value in values])
