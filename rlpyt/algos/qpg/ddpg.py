"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971)."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.algos.qpg.base import QpgAlgorithm
from rlpyt.algos.replay import SamplesToBuffer, bootstrap_discount
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import COUNT, POSITIVE, RATE, checked
from rlpyt.utils.tensor import mean_huber, mean_of_valid

__all__ = ["DDPG", "OptInfo", "SamplesToBuffer"]

OptInfo = namedtuple("OptInfo", ["muLoss", "qLoss", "muGradNorm", "qGradNorm"])


class DDPG(QpgAlgorithm):
    """Learns a Q-function from replay, and a deterministic policy that maximizes it.

    It has the settings of `rlpyt.algos.replay.OffPolicyAlgorithm` and `rlpyt.algos.qpg.base.QpgAlgorithm`, and:

    Args:
        target_update_interval: gradient updates of Q between updates of the target networks.
        policy_update_interval: gradient updates of Q per update of the policy.
        learning_rate: step size of the policy's optimizer.
        q_learning_rate: step size of Q's optimizer.
        clip_grad_norm: largest norm of the policy's gradient, and of Q's.
        q_target_clip: largest absolute target of Q.

    Raises:
        ValueError: a setting is not possible.
    """

    policy_update_interval: int
    q_learning_rate: float
    q_target_clip: float

    OptInfoCls = OptInfo
    opt_info_fields = OptInfo._fields
    optimizer_names = ("mu_optimizer", "q_optimizer")
    former_optimizer_names = {"mu_optimizer": "mu", "q_optimizer": "q"}
    loss_methods = ("mu_loss", "q_loss")
    agent_needs: Sequence[str] = ("q", "q_at_mu", "target_q_at_mu", "update_target", "mu_parameters", "q_parameters")
    agent_example = "rlpyt.agents.qpg.ddpg_agent.DdpgAgent"
    n_q = 1

    @checked(policy_update_interval=COUNT, q_learning_rate=RATE, q_target_clip=POSITIVE)
    def __init__(
        self,
        *,
        batch_size: int = 64,
        replay_ratio: float = 64,
        target_update_tau: float = 0.01,
        target_update_interval: int = 1,
        policy_update_interval: int = 1,
        learning_rate: float = 1e-4,
        q_learning_rate: float = 1e-3,
        OptimCls: type = torch.optim.Adam,
        clip_grad_norm: float = 1e8,
        q_target_clip: float = 1e6,
        n_step_return: int = 1,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def make_optimizers(self) -> None:
        """Assign the optimizers."""
        self.mu_optimizer = self.make_optimizer(self.agent.mu_parameters(), self.learning_rate)
        self.q_optimizer = self.make_optimizer(self.agent.q_parameters(), self.q_learning_rate)

    @property
    def update_branch(self) -> bool:
        """Whether the next update includes a step of the policy."""
        return (self.update_counter + 1) % self.policy_update_interval == 0

    def update(self, batch: Any) -> tuple[OptInfo, None]:
        """Take a gradient step of Q, and every `policy_update_interval` updates then a step of the policy."""
        batch = self.trained(batch)
        valid = self.valid_samples(batch)
        with self.joint_q():
            q_loss = self.q_loss(batch, valid)
        (q_grad_norm,) = self.step_optimizers([q_loss], [self.q_optimizer])
        mu_loss = mu_grad_norm = None
        if self.update_branch:
            mu_loss = self.mu_loss(batch, valid)
            (mu_grad_norm,) = self.step_optimizers([mu_loss], [self.mu_optimizer])
            mu_loss = mu_loss.detach()
        return OptInfo(mu_loss, q_loss.detach(), mu_grad_norm, q_grad_norm), None

    def mu_loss(self, samples: Any, valid: torch.Tensor | None) -> torch.Tensor:
        """Compute the policy's loss ``-Q(s, mu(s))``, with gradients for the policy alone.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.
            valid: [n], mask of the samples to learn from, or None for all.
        """
        with self.freeze_q():
            return -mean_of_valid(self.agent.q_at_mu(*samples.agent_inputs), valid)

    def q_loss(self, samples: Any, valid: torch.Tensor | None) -> torch.Tensor:
        """Compute the loss ``½ (Q(s,a) - y)²`` with ``y = R + γ^m Q_target(s', mu_target(s'))``, clipped.

        R is the sum of m discounted rewards, and s' is m steps after s, at most n. The second term of y is missing if the episode was
        terminated before. The arguments are those of `mu_loss`.
        """
        y = self.q_target(samples, self.agent.target_q_at_mu(*samples.target_inputs))
        q = self.agent.q(*samples.agent_inputs, samples.action)
        return mean_huber(q, y, valid=valid)

    @torch.no_grad()
    def q_target(self, samples: Any, target_q: torch.Tensor) -> torch.Tensor:
        """Return the target of Q [n] from the target value [n] of `target_inputs`."""
        y = samples.return_ + bootstrap_discount(samples, self.discount, self.n_step_return) * target_q
        return y.clamp(-self.q_target_clip, self.q_target_clip)
