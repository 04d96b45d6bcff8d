"""Implicit Q-learning (Kostrikov et al. 2022, https://arxiv.org/abs/2110.06169)."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from rlpyt.algos.hyperparameters import Needs
from rlpyt.algos.qpg.base import LOGGED_STRIDE, QpgAlgorithm
from rlpyt.algos.replay import bootstrap_discount
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import POSITIVE, RATE, Number, checked
from rlpyt.utils.tensor import huber, mean_huber, mean_of_valid

OptInfo = namedtuple("OptInfo", "qLoss vLoss piLoss qGradNorm vGradNorm piGradNorm q v advantage")


class IQL(QpgAlgorithm):
    """Learns values of the best recorded actions, without ever asking for values of others, and a policy of recorded actions weighted by
    their advantages.

    It has the settings of `rlpyt.algos.replay.OffPolicyAlgorithm` and `rlpyt.algos.qpg.base.QpgAlgorithm`, and:

    Args:
        expectile: τ; V(s) is that expectile of the values of recorded actions: 0.5 the mean, 1 the maximum.
        temperature: β (per unit of reward), how much the weights ``exp(β advantage)`` differ. 0 makes it behavior cloning.
        max_weight: largest weight.

    Raises:
        ValueError: a setting is not possible.
    """

    expectile: float
    temperature: float
    max_weight: float

    OptInfoCls = OptInfo
    opt_info_fields: tuple[str, ...] = OptInfo._fields
    optimizer_names = ("q_optimizer", "v_optimizer", "pi_optimizer")
    agent_needs = ("q", "target_q", "v", "log_pi", "update_target", "q_parameters", "v_parameters", "pi_parameters")
    agent_example = "rlpyt.agents.qpg.iql_agent.IqlAgent"
    settings_need: tuple[Needs, ...] = (Needs(("max_weight",), "a temperature above 0", lambda algo: algo.temperature > 0),)

    @checked(expectile=Number(0.5, 1), temperature=RATE, max_weight=POSITIVE)
    def __init__(self, *, expectile: float = 0.7, temperature: float = 3.0, max_weight: float = 100.0, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def make_optimizers(self) -> None:
        """Assign the optimizers."""
        for name in self.optimizer_names:
            parameters = getattr(self.agent, name.replace("_optimizer", "_parameters"))()
            setattr(self, name, self.make_optimizer(parameters, self.learning_rate))

    def update(self, batch: Any) -> tuple[OptInfo, None]:
        """Step all optimizers on the losses of `batch`."""
        with self.joint_q():
            losses, values = self.loss(batch)
        grad_norms = self.step_optimizers(losses, [getattr(self, name) for name in self.optimizer_names])
        return OptInfo(*(loss.detach() for loss in losses), *grad_norms, *(value[::LOGGED_STRIDE] for value in values)), None

    def loss(self, samples: Any) -> tuple[tuple, tuple]:
        """Compute the losses of both Q-functions together, of the value function, and of the policy.

        ::

            A = min Q_target(s,a) - V(s)
            Q:  ½ (Q_1(s,a) - y)² + ½ (Q_2(s,a) - y)²,  y = R + γ^m V(s')
            V:  ½ |τ - 1{A < 0}| A²
            π:  -min(exp(β A), max_weight) log π(a|s)

        All three have the parameters from before the update. (Code that updates V first has its new values in the others.) R is the sum of
        m discounted rewards, and s' is m steps after s, at most n. The second term of y is missing if the episode was
        terminated before.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.

        Returns:
            Losses (q, v, pi), with gradients for disjoint sets of parameters, and what is logged [n], which is Q_1, V and A.
        """
        agent, valid = self.agent, self.valid_samples(samples)
        with torch.no_grad():
            target_q = torch.minimum(*agent.target_q(*samples.agent_inputs, samples.action))
            factor = bootstrap_discount(samples, self.discount, self.n_step_return)
            y = torch.addcmul(samples.return_, factor, agent.v(*samples.target_inputs))
        q1, q2 = agent.q(*samples.agent_inputs, samples.action)
        q_loss = mean_huber(q1, y, valid=valid) + mean_huber(q2, y, valid=valid)

        v = agent.v(*samples.agent_inputs)
        advantage = target_q - v
        v_loss = mean_of_valid((self.expectile - (advantage.detach() < 0).to(v.dtype)).abs() * huber(advantage)[0], valid)

        weight = (self.temperature * advantage.detach()).exp().clamp(max=self.max_weight)
        pi_loss = -mean_of_valid(weight * agent.log_pi(*samples.agent_inputs, samples.action), valid)
        return (q_loss, v_loss, pi_loss), (q1.detach(), v.detach(), advantage.detach())
