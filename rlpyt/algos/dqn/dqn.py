"""Deep Q-learning (Mnih et al. 2015), with double Q-learning (van Hasselt et al. 2016), n-step returns, and the reward of Munchausen
reinforcement learning (Vieillard et al. 2020, https://arxiv.org/abs/2007.14430).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from rlpyt.algos.hyperparameters import PRIORITIES, Needs
from rlpyt.algos.replay import OffPolicyAlgorithm, SamplesToBuffer, bootstrap_discount
from rlpyt.algos.schedules import Schedule
from rlpyt.types import BatchSpec
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import has_all
from rlpyt.utils.quick_args import save__init__args, takes
from rlpyt.utils.settings import FRACTION, POSITIVE, RATE, STEPS, Number, checked
from rlpyt.utils.tensor import huber, mean_huber, select_at_indexes

__all__ = ["DQN", "OptInfo", "SamplesToBuffer", "scaled_log_policy", "td_losses"]

OptInfo = namedtuple("OptInfo", ["loss", "gradNorm", "tdAbsErr"])

# Settings of Munchausen reinforcement learning; its source defines it for Q-values and quantiles at single steps.
MUNCHAUSEN = ("munchausen", "munchausen_alpha", "munchausen_temperature", "munchausen_min")
TD_ERROR_STRIDE = 8  # Every eighth TD error of a batch is logged.
LEAST_PRIORITY = 1e-6  # ε of Schaul et al. 2016, so that a step without error is drawn again.


class DQN(OffPolicyAlgorithm):
    """Q-learning on transitions from a replay buffer, with a target network.

    In `SyncRl` each rank counts its own environment steps for `min_steps_learn`, `eps_steps` and `pri_beta_steps`: with two ranks, epsilon
    reaches its final value when both together have taken ``2 * eps_steps``.

    It has the settings of `rlpyt.algos.replay.OffPolicyAlgorithm`, and:

    Args:
        delta_clip: error above which the Huber loss is linear; None means the mean squared error.
        optim_kwargs: None means ``eps = 0.01 / batch_size``, if `OptimCls` has an eps.
        eps_steps: environment step, counted from 0, at which the agent's epsilon reaches its final value; epsilon begins to fall at
            `min_steps_learn`.
        double_dqn: the network, not the target network, chooses the action whose target value is used.
        prioritized_replay: replay in proportion to priorities, which are the latest absolute TD errors, at least `LEAST_PRIORITY`.
        pri_alpha: exponent of priorities.
        pri_beta_init, pri_beta_final: first and last exponent of the importance sampling weights.
        pri_beta_steps: environment step, counted from 0, at which the exponent is final; it begins to change at `min_steps_learn`.
        default_priority: priority of new samples; None means `delta_clip`, or 1 if `delta_clip` is None. Here, `delta_clip` is the
            largest priority there is. Subclasses with distributions can have larger ones.
        prefetch_batches: a thread gathers the next batch during an update. The batch is drawn before the update, so it does not depend on
            the priorities and samples that follow from the update.
        munchausen: learn the values of the policy π = softmax(Q_target / τ) with its entropy, and add ``α τ log π(a|s)`` to the reward.
            With `n_step_return` above 1, only the first of the n rewards has this term. With `double_dqn`, the policy at s' is that of the
            network.
        munchausen_alpha: α.
        munchausen_temperature: τ (in units of reward).
        munchausen_min: least value of ``τ log π(a|s)`` in the reward.

    Raises:
        ValueError: a setting is not possible.
    """

    delta_clip: float | None
    eps_steps: int
    double_dqn: bool
    pri_alpha: float
    pri_beta_init: float
    pri_beta_final: float
    pri_beta_steps: int
    default_priority: float
    munchausen: bool
    munchausen_alpha: float
    munchausen_temperature: float
    munchausen_min: float

    OptInfoCls: Any = OptInfo
    opt_info_fields: tuple[str, ...] = OptInfo._fields
    settings_need: tuple[Needs, ...] = (PRIORITIES, Needs(MUNCHAUSEN[1:], "munchausen=True", lambda algo: algo.munchausen))

    # The kind of agent to train.
    recurrent = distributional = by_quantiles = False
    agents = (
        "that acts epsilon-greedily on Q-values, has a target network and no recurrent state, such as AtariDqnAgent or MlpDqnAgent of "
        "rlpyt.agents.dqn"
    )

    @checked(
        delta_clip=POSITIVE,
        eps_steps=STEPS,
        pri_alpha=RATE,
        pri_beta_init=FRACTION,
        pri_beta_final=FRACTION,
        pri_beta_steps=STEPS,
        default_priority=Number(0, above=True, finite=True),
        munchausen_alpha=FRACTION,
        munchausen_temperature=Number(0, above=True, finite=True),
        munchausen_min=Number(high=0),
    )
    def __init__(
        self,
        *,
        batch_size: int = 32,
        min_steps_learn: int = int(5e4),
        delta_clip: float | None = 1.0,
        replay_size: int = int(1e6),
        replay_ratio: float = 8,
        target_update_tau: float = 1,
        target_update_interval: int = 312,
        n_step_return: int = 1,
        learning_rate: float = 2.5e-4,
        clip_grad_norm: float = 10.0,
        eps_steps: int = int(1e6),
        double_dqn: bool = False,
        prioritized_replay: bool = False,
        pri_alpha: float = 0.6,
        pri_beta_init: float = 0.4,
        pri_beta_final: float = 1.0,
        pri_beta_steps: int = int(50e6),
        default_priority: float | None = None,
        ReplayBufferCls: type | None = None,
        updates_per_sync: int = 1,
        lr_schedule: Schedule | None = None,  # In the base class, it stands before `updates_per_sync`, which may be given by position.
        prefetch_batches: bool = False,
        munchausen: bool = False,
        munchausen_alpha: float = 0.9,
        munchausen_temperature: float = 0.03,
        munchausen_min: float = -1.0,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)
        if self.optim_kwargs is None:
            self.optim_kwargs = dict(eps=self.optim_eps()) if takes(self.OptimCls, "eps") else {}
        if self.default_priority is None:
            self.default_priority = self.delta_clip or 1.0

    def optim_eps(self) -> float:
        """Return the optimizer's eps for `optim_kwargs=None`."""
        return 0.01 / self.batch_size

    def check_parts(self, agent: Any, batch_spec: BatchSpec | None) -> None:
        """Extend the base class: the agent must have what the loss needs. (The loss of a user's class may train any agent.)"""
        super().check_parts(agent, batch_spec)
        acts_on_q_values = has_all(agent, "target", "update_target", "set_epsilon_itr_min_max")
        kind = agent.recurrent, has_all(agent, "give_V_min_max"), has_all(agent, "fractions")
        is_suitable = acts_on_q_values and kind == (self.recurrent, self.distributional, self.by_quantiles)
        if not is_suitable and self.trains_by("optimize_agent", "update", "loss"):
            raise ValueError(f"{type(self).__name__} needs an agent {self.agents}; {type(agent).__name__} does not.")

    def _prepare(self, agent: Any, *args: Any, **kwargs: Any) -> None:
        """Also set the schedule of the agent's epsilon, which begins to fall when learning begins."""
        super()._prepare(agent, *args, **kwargs)
        eps_itr_max = max(1, self.eps_steps // self.sampler_bs)
        if eps_itr_max <= self.min_itr_learn:
            logger.log(
                f"The agent's epsilon jumps to its final value when learning begins: eps_steps={self.eps_steps} and min_steps_learn="
                f"{self.min_steps_learn} are both counted from step 0. Raise eps_steps to let epsilon fall gradually."
            )
        agent.set_epsilon_itr_min_max(self.min_itr_learn, eps_itr_max)

    def replay_kwargs(self, batch_spec: BatchSpec) -> dict[str, Any]:
        """Add the settings of prioritized replay."""
        kwargs = super().replay_kwargs(batch_spec)
        if self.prioritized_replay:
            kwargs.update(alpha=self.pri_alpha, beta=self.pri_beta_init)
            kwargs.update(default_priority=self.default_priority)
        return kwargs

    def update(self, batch: Any) -> tuple[Any, torch.Tensor | None]:
        """Do one gradient step on the loss of `batch`."""
        loss, td_abs_errors = self.loss(batch)
        grad_norm = self.descend(loss)
        opt_info = OptInfo(loss.detach(), grad_norm, td_abs_errors[::TD_ERROR_STRIDE])
        return opt_info, td_abs_errors.clamp(min=LEAST_PRIORITY) if self.prioritized_replay else None

    def loss(self, samples: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the loss ½ (Q(s,a) - y)², linear beyond `delta_clip`.

        ``y = R + γ^m max_a' Q_target(s',a')``, where R is the sum of m discounted rewards, and s' is m steps after s, at most n. The second
        term is missing if the episode was terminated before. With `double_dqn`, a' is the best action by Q. Prioritized replay weights
        losses by importance. With `munchausen`, R includes the term of `munchausen_reward`, and the maximum is replaced by the value of
        `next_values`.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.

        Returns:
            The mean loss, and ``|Q - y|`` [n], clipped at `delta_clip`.
        """
        q = select_at_indexes(samples.action, self.agent(*samples.agent_inputs))
        with torch.no_grad():
            target_qs = self.agent.target(*samples.target_inputs)
            return_ = samples.return_
            if self.munchausen:
                return_ = return_ + self.munchausen_reward(samples.action, self.agent.target(*samples.agent_inputs))
            if self.double_dqn or self.munchausen:
                target_q = self.next_values(target_qs, self.agent(*samples.target_inputs) if self.double_dqn else target_qs)
            else:
                target_q = target_qs.max(dim=-1).values
            y = return_ + bootstrap_discount(samples, self.discount, self.n_step_return) * target_q

        if not self.prioritized_replay:
            return mean_huber(q, y, self.delta_clip), clipped_errors(y - q.detach(), self.delta_clip)
        losses, td_abs_errors = td_losses(y - q, self.delta_clip)
        return (losses * samples.is_weights).mean(), td_abs_errors

    def munchausen_reward(self, action: torch.Tensor, qs: torch.Tensor) -> torch.Tensor:
        """Return ``α max(τ log π(a|s), munchausen_min)`` [n], π = softmax(Q / τ), for actions [n] and Q-values [n,A]."""
        scaled_log_pi = select_at_indexes(action, scaled_log_policy(qs, self.munchausen_temperature))
        return self.munchausen_alpha * scaled_log_pi.clamp(min=self.munchausen_min)

    def next_values(self, values: torch.Tensor, qs: torch.Tensor) -> torch.Tensor:
        """Return the values at s' of the policy that follows from Q-values: those of the best action.

        With `munchausen`, the policy is ``π = softmax(Q / τ)``, and the values are ``sum_a π(a|s') (value(a) - τ log π(a|s'))``.

        Args:
            values: [n,A,...], values of all actions; or [T,B,A,...], if `qs` are [T,B,A].
            qs: [n,A], Q-values of all actions.

        Returns:
            [n,...].
        """
        if not self.munchausen:
            return select_at_indexes(qs.argmax(dim=-1), values)
        scaled_log_pi = scaled_log_policy(qs, self.munchausen_temperature)
        scaled_log_pi = scaled_log_pi.reshape(*qs.shape, *[1] * (values.dim() - qs.dim()))
        pi = (scaled_log_pi / self.munchausen_temperature).exp()
        return (pi * torch.where(pi > 0, values - scaled_log_pi, 0)).sum(dim=qs.dim() - 1)  # A masked action has π = 0 and log π = -∞.

    def update_itr_hyperparams(self, itr: int) -> None:
        """Set the exponent of importance sampling, which changes linearly once learning has begun, always one iteration late."""
        if self.prioritized_replay:
            last_itr = max(self.min_itr_learn + 1, self.pri_beta_steps // self.sampler_bs)
            progress = min(1.0, max(0, itr - 1 - self.min_itr_learn) / (last_itr - self.min_itr_learn))
            self.replay_buffer.set_beta(progress * self.pri_beta_final + (1 - progress) * self.pri_beta_init)


def td_losses(delta: torch.Tensor, delta_clip: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ½ δ², linear beyond `delta_clip` unless that is None, and ``|δ|``, at most `delta_clip`, without gradient."""
    losses, errors = huber(delta, delta_clip)
    return losses, errors.abs()


def clipped_errors(delta: torch.Tensor, delta_clip: float | None) -> torch.Tensor:
    """Return ``|δ|``, at most `delta_clip` unless that is None."""
    return delta.abs() if delta_clip is None else delta.abs().clamp_(max=delta_clip)


def scaled_log_policy(qs: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return ``τ log π(a)``, π = softmax(Q / τ), for Q-values [*,A]: ``Q - V - τ log sum exp((Q - V) / τ)`` with ``V = max Q``."""
    advantages = qs - qs.amax(dim=-1, keepdim=True)
    return advantages - temperature * (advantages / temperature).logsumexp(dim=-1, keepdim=True)
