"""Soft actor-critic with any number of critics. Its settings, and those of the agent, make it

- REDQ (Chen et al. 2021, https://arxiv.org/abs/2101.05982): many critics, of which each target takes a few, and many updates;
- DroQ (Hiraoka et al. 2022, https://arxiv.org/abs/2110.02034): the same with two critics that have dropout and layer normalization;
- TQC (Kuznetsov et al. 2020, https://arxiv.org/abs/2005.04269): critics of quantiles, of which targets leave out the largest;
- CrossQ (Bhatt et al. 2024, https://arxiv.org/abs/1902.05605): no target networks, but batch renormalization;
- discrete SAC (Christodoulou 2019, https://arxiv.org/abs/1910.07207), by `DiscreteSAC`.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import torch

from rlpyt.agents.base import action_mask
from rlpyt.algos.hyperparameters import Needs, check_effects
from rlpyt.algos.qpg.base import LOGGED_STRIDE, CompletedQAgent
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.replay import bootstrap_discount
from rlpyt.models.qpg.ensemble import QEnsembleModel
from rlpyt.models.utils import unwrap_ddp
from rlpyt.types import BatchSpec
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import is_of_rlpyt, name_of
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import COUNT, STEPS, checked, one_of
from rlpyt.utils.tensor import huber, mean_of_valid, midpoints, quantile_huber, select_at_indexes

OptInfo = namedtuple("OptInfo", "qLoss piLoss qGradNorm piGradNorm q piMu piLogStd qStd alpha")
DiscreteOptInfo = namedtuple("DiscreteOptInfo", "qLoss piLoss qGradNorm piGradNorm q entropy qStd alpha")

KAPPA = 1.0  # of the quantile Huber loss
ROUNDING = 1e-5  # Entropies may have been computed in float32.
OF_UNIFORM = 0.98  # Part of the uniform distribution's entropy for which α is tuned.

# Settings of the algorithm that settings of the agent switch off.
OF_AGENT = (
    Needs(("n_dropped_quantiles",), "n_quantiles of the agent", lambda algo: algo.agent.n_quantiles is not None),
    Needs(
        ("target_update_tau", "target_update_interval"),
        "target_networks=True of the agent",
        lambda algo: algo.agent.target_networks,
        may_be_left=True,
    ),
)


class EnsembleSAC(SAC):
    """SAC with an ensemble of critics, which has one optimizer. With two critics and default settings its losses are those of SAC.

    It has the settings of `rlpyt.algos.qpg.sac.SAC`, and:

    Args:
        n_target_critics: number of critics, drawn for each update, whose least value is the target; None for all.
        policy_value: "min" or "mean" over the critics, which the policy maximizes.
        policy_update_interval: gradient updates of the critics per update of the policy and of α.
        n_dropped_quantiles: targets pool the quantiles of all critics, and drop the largest: this many per critic.

    Raises:
        ValueError: a setting is not possible.
    """

    n_target_critics: int | None
    policy_value: str
    policy_update_interval: int
    n_dropped_quantiles: int

    OptInfoCls: Any = OptInfo
    opt_info_fields: tuple[str, ...] = OptInfo._fields
    optimizer_names = ("q_optimizer", "pi_optimizer", "alpha_optimizer")
    clipped = 2
    agent_needs = (
        "pi",
        "target_pi",
        "q",
        "discrete",
        "n_critics",
        "n_quantiles",
        "target_networks",
        "update_target",
        "pi_parameters",
        "q_parameters",
    )
    agent_example = "rlpyt.agents.qpg.ensemble_sac_agent.EnsembleSacAgent"
    n_q = 1  # The ensemble is one model.
    discrete = False
    renormalizes = True

    @checked(n_target_critics=COUNT, policy_value=one_of("min", "mean"), policy_update_interval=COUNT, n_dropped_quantiles=STEPS)
    def __init__(
        self,
        *,
        n_target_critics: int | None = None,
        policy_value: str = "min",
        policy_update_interval: int = 1,
        n_dropped_quantiles: int = 2,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def check_parts(self, agent: Any, batch_spec: BatchSpec | None) -> None:
        """Extend the base class: the settings must fit the agent's critics."""
        super().check_parts(agent, batch_spec)
        if not self._trains_by_ours():
            return
        name, n, n_quantiles = type(self).__name__, agent.n_critics, agent.n_quantiles
        if agent.discrete != self.discrete:
            raise ValueError(f"{name} needs an agent such as {self.agent_example}; {type(agent).__name__} is for another kind of actions.")
        if self.n_target_critics is not None and self.n_target_critics > n:
            raise ValueError(f"{name}: n_target_critics={self.n_target_critics} must be at most n_critics={n} of the agent.")
        if n_quantiles is not None and self.n_target_critics is not None:
            raise ValueError(f"{name}: with quantiles, targets take those of all critics: leave n_target_critics None.")
        if n_quantiles is not None and self.n_dropped_quantiles >= n_quantiles:
            raise ValueError(
                f"{name}: n_dropped_quantiles={self.n_dropped_quantiles} must be below n_quantiles={n_quantiles} of the agent."
            )

    def _prepare(self, agent: Any, *args: Any, **kwargs: Any) -> None:
        """Also check that settings have effects with this agent, and warn if critics without target networks are not normalized.

        Raises:
            ValueError: a setting has no effect.
        """
        super()._prepare(agent, *args, **kwargs)
        if not self._trains_by_ours():
            return
        check_effects(self, OF_AGENT)
        if agent.target_networks or not (is_of_rlpyt(type(agent)) and self.trains_by("q_and_target", "q_losses")):
            return  # What a user's agent or losses do is not known.
        critics = unwrap_ddp(agent.q_model)
        if QEnsembleModel.computes_few(critics) and not critics.normalizes_layers:  # Nor what a user's layers do.
            logger.warn(
                f"{type(agent).__name__}: without target networks, values easily grow without bound. CrossQ keeps them bounded by batch "
                "renormalization: give model_kwargs=dict(batch_renorm=True) and q_model_kwargs=dict(batch_renorm=True), or "
                "target_networks=True."
            )

    def q_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Parameters of the critics."""
        return self.agent.q_parameters()

    def after_backward(self) -> None:
        """Average the gradient of α, in updates in which it has one."""
        if self.update_branch:
            super().after_backward()

    @property
    def update_branch(self) -> bool:
        """Whether the next update includes a step of the policy."""
        return (self.update_counter + 1) % self.policy_update_interval == 0

    def loss(self, samples: Any) -> tuple[tuple, tuple]:
        """Compute the losses of the critics together, of the policy, and of α.

        ::

            y   = R + γ^m (min Q_target(s',a') - α log π(a'|s')),   a' ~ π(s'), minimum over `n_target_critics` critics
            Q:  sum over critics of ½ (Q_i(s,a) - y)²
            π:  α log π(ã|s) - Q(s,ã) - log prior(ã),               ã ~ π(s), Q by `policy_value`
            α:  -log α (log π(ã|s) + target entropy)

        R, m and s' are those of SAC. If critics estimate quantiles, y has a value for each of the quantiles of all critics together except
        the largest, the loss of a critic is the mean over its quantiles of `rlpyt.utils.tensor.quantile_huber`, and Q(s,ã) is the mean of
        quantiles. Without target networks, the critics see (s,a) and (s',a') in one batch; values of the latter have no gradient. After a
        termination, s' is s there.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.

        Returns:
            Losses (q, pi or None, alpha or None), with gradients for disjoint sets of parameters; and values to log: those of the critics
            [n,n_critics], and further ones of the policy or None.
        """
        valid, alpha = self.valid_samples(samples), self._alpha
        if not self.agent.target_networks:
            samples = self.with_ends_that_count(samples, valid)
        q, y = self.q_and_target(samples, alpha)
        q_loss = mean_of_valid(self.q_losses(q, y), valid)
        pi_loss = alpha_loss = None
        values: tuple = ()
        if self.update_branch:
            pi_losses, log_pi, values = self.policy_losses(samples, alpha)
            pi_loss = mean_of_valid(pi_losses, valid)
            if self.alpha_optimizer is not None:
                alpha_loss = -self._log_alpha * mean_of_valid(log_pi.detach() + self.target_entropies(samples), valid)
        return (q_loss, pi_loss, alpha_loss), tuple(value.detach() for value in (self.means(q), *values))

    def q_and_target(self, samples: Any, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return Q(s,a) [n,n_critics] and y [n]; with quantiles [n,n_critics,n_quantiles] and [n,K]."""
        next_action, next_log_pi, _ = self.agent.target_pi(*samples.target_inputs)
        q, next_q = self.q_and_next_q(samples, (samples.action,), (next_action,))
        with torch.no_grad():
            if self.agent.n_quantiles is None:
                return q, self.discounted(samples, torch.addcmul(self.least(next_q), alpha, next_log_pi, value=-1))
            n_kept = self.agent.n_critics * (self.agent.n_quantiles - self.n_dropped_quantiles)
            atoms = next_q.flatten(1).sort(dim=-1).values[:, :n_kept]
            return q, self.discounted(samples, atoms - (alpha * next_log_pi)[:, None])

    def with_ends_that_count(self, samples: Any, valid: torch.Tensor | None) -> Any:
        """Return samples with s in place of s' where the target does not use it: replay may have put any observation there.

        Otherwise it would be in the statistics of the critics' batch, with which they normalize (s,a).
        """
        counts = bootstrap_discount(samples, self.discount, self.n_step_return) > 0  # [n]
        if valid is not None:
            counts = counts & valid
        firsts = iter(buffer_leaves(samples.agent_inputs))
        ends = buffer_func(samples.target_inputs, lambda x: torch.where(counts.view(-1, *[1] * (x.dim() - 1)), x, next(firsts).to(x)))
        return samples._replace(target_inputs=ends)

    def target_entropies(self, samples: Any) -> torch.Tensor | float:
        """Return the entropy for which α is tuned: a number, or [n], one for each sample."""
        return self.target_entropy

    def q_and_next_q(self, samples: Any, action: tuple, next_action: tuple) -> tuple[torch.Tensor, torch.Tensor]:
        """Return outputs of the critics at `agent_inputs`, and, without gradient, those for targets at `target_inputs`.

        The latter are those of all critics or of `n_target_critics` drawn ones, see `target_q`.
        """
        agent = self.agent
        if agent.target_networks:
            return self.checked_q(agent.q(*samples.agent_inputs, *action)), self.target_q(*samples.target_inputs, *next_action)
        both = _concatenated((tuple(samples.agent_inputs), action), (tuple(samples.target_inputs), next_action))
        q, next_q = self.checked_q(agent.q(*both[0], *both[1])).chunk(2)
        return q, next_q.detach()

    def checked_q(self, q: torch.Tensor) -> torch.Tensor:
        """Return outputs of the critics if they have the shape that losses of this class need. There may be more critics than `n_critics`.

        Raises:
            ValueError: they have not. (Those of a user's agent or losses may have any.)
        """
        agent, rest = self.agent, []
        if self.discrete:
            rest.append(agent.env_spaces.action.n)
        if agent.n_quantiles is not None:
            rest.append(agent.n_quantiles)
        fits = q.dim() == 2 + len(rest) and q.shape[1] >= agent.n_critics and list(q.shape[2:]) == rest
        if not fits and is_of_rlpyt(agent.q) and self._trains_by_ours() and self.trains_by("q_and_target"):
            raise ValueError(
                f"{type(self).__name__}: the critics returned values of shape {list(q.shape)} for {len(q)} observations, but must return "
                f"{[len(q), agent.n_critics, *rest]}. They are of {name_of(agent.QModelCls)}, which gets n_critics={agent.n_critics}."
            )
        return q

    def target_q(self, *inputs: Any) -> torch.Tensor:
        """Return outputs [n,m,...] of `n_target_critics` critics of the target networks, drawn for the whole batch.

        Return those of all critics if targets take all, or if a user's `q_and_target` or `least` expects all.
        """
        agent = self.agent
        if self.n_target_critics in (None, agent.n_critics) or not self.trains_by("q_and_target", "least"):
            return agent.target_q(*inputs)
        critics = self.drawn_critics(agent.n_critics)
        few = CompletedQAgent(agent).target_q_of(critics, *inputs)
        return agent.target_q(*inputs)[:, critics] if few is None else few

    def drawn_critics(self, n: int) -> torch.Tensor:
        """Draw `n_target_critics` of n critics for the whole batch; return their indexes."""
        assert self.n_target_critics is not None
        return torch.rand(n, device=self.agent.device).topk(self.n_target_critics).indices

    def least(self, q: torch.Tensor) -> torch.Tensor:
        """Return the minimum [n,...] over critics of values [n,n_critics,...]. If there are more than `n_target_critics`, draw so many."""
        if self.n_target_critics not in (None, q.shape[1]):
            q = q[:, self.drawn_critics(q.shape[1])]
        return q.amin(dim=1)

    def discounted(self, samples: Any, value: torch.Tensor) -> torch.Tensor:
        """Return targets ``R + γ^m value`` for values [n] or [n,K]."""
        return_, factor = self.scaled_return(samples), bootstrap_discount(samples, self.discount, self.n_step_return)
        shape = (-1, *[1] * (value.dim() - 1))
        return torch.addcmul(return_.view(shape).to(value), factor.view(shape).to(value), value)

    def q_losses(self, q: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return losses [n], summed over critics, of their outputs at targets [n] or [n,K]."""
        if self.agent.n_quantiles is None:
            return huber(y[:, None] - q)[0].sum(dim=-1)
        fractions = midpoints(self.agent.n_quantiles, q.device)
        return quantile_huber(q, fractions, y[:, None], KAPPA).sum(dim=-1) / self.agent.n_quantiles

    def policy_losses(self, samples: Any, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, tuple]:
        """Return losses of the policy [n], log π [n], and values to log: mean and log_std."""
        action, log_pi, dist_info = self.agent.pi(*samples.agent_inputs)
        with self.freeze_q():
            q = self.value_for_policy(self.agent.q(*samples.agent_inputs, action))
        losses = self.minus_log_prior(alpha * log_pi - q, action)
        return losses, log_pi, (dist_info.mean, dist_info.log_std)

    def means(self, q: torch.Tensor) -> torch.Tensor:
        """Return outputs of the critics, or means of their quantiles."""
        return q if self.agent.n_quantiles is None else q.mean(dim=-1)

    def value_for_policy(self, q: torch.Tensor) -> torch.Tensor:
        """Return the value [n,...] that the policy maximizes, given outputs of the critics [n,n_critics,...]."""
        q = self.means(q)
        return q.amin(dim=1) if self.policy_value == "min" else q.mean(dim=1)

    def append_opt_info_(self, opt_info: Any, losses: tuple, grad_norms: Any, values: tuple) -> None:
        """Append the logged tensors of an update to the lists in `opt_info`."""
        q_loss, pi_loss, _ = losses
        q, *of_policy = values
        policy_fields = opt_info._fields[opt_info._fields.index("q") + 1 : opt_info._fields.index("qStd")]
        logged = dict(qLoss=q_loss.detach(), qGradNorm=grad_norms[0], q=q[::LOGGED_STRIDE], alpha=self._alpha)
        logged["qStd"] = q.std(dim=1, correction=0).mean()
        if pi_loss is not None:
            logged.update(piLoss=pi_loss.detach(), piGradNorm=grad_norms[1])
            logged.update({name: value[::LOGGED_STRIDE] for name, value in zip(policy_fields, of_policy)})
        for name, value in logged.items():
            getattr(opt_info, name).append(value)


class DiscreteSAC(EnsembleSAC):
    """SAC for discrete actions: critics have a value for each action, and expectations over actions are sums.

    It has the settings of `EnsembleSAC`, without those of actions that are vectors and of quantiles, and:

    Args:
        target_entropy: policy entropy for which α is tuned. "auto" means 0.98 times that of the uniform distribution over the actions that
            the mask of the observation allows, or over all without masks. Any other number is the same for all observations.
    """

    OptInfoCls = DiscreteOptInfo
    opt_info_fields = DiscreteOptInfo._fields
    agent_example = "rlpyt.agents.qpg.ensemble_sac_agent.DiscreteSacAgent"
    discrete = True

    @checked(without=("action_prior", "reparameterize", "n_dropped_quantiles"))
    def __init__(self, *, target_entropy: float | str | None = "auto", **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def make_optimizers(self) -> None:
        """Also check that a policy can have the target entropy.

        Raises:
            ValueError: it cannot.
        """
        super().make_optimizers()
        n, target = self.agent.env_spaces.action.n, self.target_entropy
        is_given = self.alpha_optimizer is not None and self._given_target_entropy is None and self.trains_by("target_entropies")
        if is_given and not 0 <= target <= math.log(n) + ROUNDING:
            raise ValueError(
                f"{type(self).__name__}: target_entropy={target} is not possible, because the entropy of a policy over {n} actions is "
                f"between 0 and log {n} = {math.log(n):.4g}. 'auto' is {OF_UNIFORM} times the largest."
            )

    def auto_target_entropy(self) -> float:
        """Return the target entropy for the setting "auto" where all actions are allowed."""
        return OF_UNIFORM * math.log(self.agent.env_spaces.action.n)

    def target_entropies(self, samples: Any) -> torch.Tensor | float:
        """Return the entropy for which α is tuned: for "auto" with masks, [n], that of each observation."""
        observation, *_ = samples.agent_inputs
        mask = action_mask(observation, self.agent.device) if self._given_target_entropy == "auto" else None
        if mask is None:
            return super().target_entropies(samples)
        n_allowed = mask.sum(dim=-1)
        n_allowed = torch.where(n_allowed == 0, mask.shape[-1], n_allowed)  # Without any, the policy ignores the mask.
        return OF_UNIFORM * n_allowed.to(self._log_alpha.dtype).log()

    def q_and_target(self, samples: Any, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return Q(s,a) [n,n_critics] and ``y = R + γ^m sum_a' π(a'|s') (min Q_target(s',a') - α log π(a'|s'))`` [n]."""
        next_pi, next_log_pi, _ = self.agent.target_pi(*samples.target_inputs)
        q, next_q = self.q_and_next_q(samples, (), ())  # [n,n_critics,A]
        with torch.no_grad():
            value = expectation(next_pi, self.least(next_q) - alpha * next_log_pi)
        return select_at_indexes(samples.action, q.transpose(1, 2)), self.discounted(samples, value)

    def policy_losses(self, samples: Any, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, tuple]:
        """Return losses ``sum_a π(a|s) (α log π(a|s) - Q(s,a))`` [n], ``sum_a π(a|s) log π(a|s)`` [n], and values to log: the entropy."""
        pi, log_pi, _ = self.agent.pi(*samples.agent_inputs)
        with torch.no_grad(), self.freeze_q():
            q = self.value_for_policy(self.agent.q(*samples.agent_inputs))  # [n,A]
        minus_entropy = (pi * log_pi).sum(dim=-1)
        return expectation(pi, alpha * log_pi - q), minus_entropy, (-minus_entropy,)


def expectation(pi: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return ``sum_a π(a) value(a)`` [n] for [n,A]. Values of actions with probability 0, such as masked ones, have no influence."""
    return (pi * torch.where(pi > 0, values, 0)).sum(dim=-1)


def _concatenated(a: Any, b: Any) -> Any:
    """Concatenate structures of tensors along their first dimension."""
    others = iter(buffer_leaves(b))
    return buffer_func(a, lambda x: torch.cat([x, next(others).to(x)]))
