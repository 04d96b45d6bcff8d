"""Soft actor-critic in its first form, with a value function (Haarnoja et al. 2018, arXiv:1801.01290)."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from rlpyt.algos.qpg.sac import SoftActorCritic
from rlpyt.algos.replay import SamplesToBuffer, bootstrap_discount
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import RATE, checked
from rlpyt.utils.tensor import mean_huber, mean_of_valid, smaller

__all__ = ["SAC_V", "OptInfo", "SamplesToBuffer"]

OptInfo = namedtuple("OptInfo", "q1Loss q2Loss vLoss piLoss q1GradNorm q2GradNorm vGradNorm piGradNorm q1 q2 v piMu piLogStd qMeanDiff")


class SAC_V(SoftActorCritic):
    """Learns a policy that maximizes reward and entropy, with two Q-functions, and a value function with a target network.

    `reward_scale` sets the weight of reward relative to entropy.

    It has the settings of `rlpyt.algos.qpg.sac.SoftActorCritic`, and:

    Args:
        policy_output_regularization: weight of the loss ``½ mean² + ½ log_std²`` of the policy's outputs.

    Raises:
        ValueError: a setting is not possible.
    """

    policy_output_regularization: float

    OptInfoCls = OptInfo
    opt_info_fields = OptInfo._fields
    optimizer_names = ("q1_optimizer", "q2_optimizer", "v_optimizer", "pi_optimizer")
    clipped = 4
    agent_needs = (
        *("pi", "q", "v", "target_v", "update_target"),
        *("pi_parameters", "q1_parameters", "q2_parameters", "v_parameters"),
    )
    agent_example = "rlpyt.agents.qpg.sac_v_agent.SacAgent"

    @checked(policy_output_regularization=RATE)
    def __init__(self, *, policy_output_regularization: float = 0.001, n_step_return: int = 1, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def loss(self, samples: Any) -> tuple[tuple, tuple]:
        """Compute the losses of both Q-functions, of the value function, and of the policy.

        ::

            Q:  ½ (Q_i(s,a) - R - γ^m V_target(s'))²
            V:  ½ (V(s) - min Q(s,ã) + log π(ã|s) - log prior(ã))²,          ã ~ π(s)
            π:  log π(ã|s) - min Q(s,ã) - log prior(ã) + regularization

        R is the sum of m discounted rewards, and s' is m steps after s, at most n. The last term of the first line is missing if the
        episode was terminated before.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.

        Returns:
            Losses (q1, q2, v, pi), with gradients for disjoint sets of parameters; and (q1, q2, v, mean, log_std).
        """
        agent, valid = self.agent, self.valid_samples(samples)
        with torch.no_grad():
            factor = bootstrap_discount(samples, self.discount, self.n_step_return)
            y = self.scaled_return(samples) + factor * agent.target_v(*samples.target_inputs)
        q1, q2 = agent.q(*samples.agent_inputs, samples.action)
        q1_loss, q2_loss = (mean_huber(q, y, valid=valid) for q in (q1, q2))

        new_action, log_pi, dist_info = agent.pi(*samples.agent_inputs)
        with self.freeze_q():
            min_q = smaller(*agent.q(*samples.agent_inputs, new_action))
        soft_value = min_q - log_pi + self.get_action_prior(new_action)
        v = agent.v(*samples.agent_inputs)
        v_loss = mean_huber(v, soft_value, valid=valid)

        outputs = 0.5 * (dist_info.mean.square() + dist_info.log_std.square()).mean(-1)
        pi_loss = mean_of_valid(self.policy_output_regularization * outputs - soft_value, valid)
        values = (q1, q2, v, dist_info.mean, dist_info.log_std)
        return (q1_loss, q2_loss, v_loss, pi_loss), self.to_log(values, samples)
