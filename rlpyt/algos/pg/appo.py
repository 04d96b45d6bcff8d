"""Asynchronous proximal policy optimization: PPO's clipped ratios, with V-trace where an older policy acted."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.hyperparameters import TRACES, Needs
from rlpyt.algos.pg.base import batch_first_to_layer_first
from rlpyt.algos.pg.ppo import PPO, LossInputs
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import POSITIVE, checked


class Appo(PPO):
    """The loss of PPO, with the advantages and value targets of V-trace where an older policy acted.

    Ratios and clips are those of PPO, relative to the policy that acted, as in Sample Factory (Petrenko et al. 2020, arXiv:2006.11751). So
    no batch pushes the policy further than ε from the one that sampled it. V-trace (Espeholt et al. 2018, arXiv:1802.01561) corrects
    targets and advantages, from the policy that acted to the one with which the epochs begin. Ratios and values of the latter need one
    more forward pass for each batch.

    The epochs begin with the weights ``min(ρ̄, ratio)`` of `rlpyt.algos.pg.impala.Impala`: where the ratio is then above ρ̄, the advantage
    is divided by ratio / ρ̄. Otherwise, rare actions that have become likely could outweigh all others where their advantage is negative.
    Where `policy_lag` is 0, as with samplers that do not sample ahead, this is PPO bit for bit, without that forward pass.

    `clip_value_loss` limits how far values move from those with which the epochs begin. `approxKl`, and so `target_kl` and
    ``lr_schedule="adaptive"``, measure the distance to the policy that acted: all batches that are on their way share these limits.

    It has the settings of `rlpyt.algos.pg.ppo.PPO`, where `gae_lambda` is the λ of V-trace, and:

    Args:
        rho_clip: ρ̄, largest ratio by which TD errors and, when the epochs begin, advantages are weighted.
        c_clip: c̄, largest ratio in the products that weight later TD errors. In the paper it is at most ρ̄.

    Raises:
        ValueError: a setting is not possible.
    """

    settings_need: tuple[Needs, ...] = (TRACES,)
    corrects_lag = True

    @checked(rho_clip=POSITIVE, c_clip=POSITIVE)
    def __init__(self, *, rho_clip: float = 1.0, c_clip: float = 1.0, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def loss_inputs(self, samples: Any) -> tuple[LossInputs, Any, torch.Tensor | None, torch.Tensor | None]:
        """Return what all minibatches of a batch [T,B] are parts of; see `PPO.loss_inputs`."""
        if self.policy_lag == 0:
            return super().loss_inputs(samples)
        init_rnn_state = self.init_rnn_state(samples)
        agent_inputs, init_rnn_state, action, lagging = self.to_device(
            (self.agent_inputs(samples), init_rnn_state, samples.agent.action, self.for_returns(samples))
        )
        acted = lagging.agent.agent_info
        with torch.no_grad(), self.autocast():
            rnn = (batch_first_to_layer_first(init_rnn_state),) if self.agent.recurrent else ()
            dist_info, value, *_ = self.agent(*agent_inputs, *rnn)
            ratio = self.agent.distribution.likelihood_ratio(action, old_dist_info=acted.dist_info, new_dist_info=dist_info)
        return_, advantage, valid = self.process_returns(lagging, ratio, value)
        advantage = advantage * (self.rho_clip / ratio).clamp(max=1)
        inputs = LossInputs(agent_inputs, action, return_, advantage, valid, old_dist_info=acted.dist_info)
        return inputs, init_rnn_state, value.to(return_.dtype) if self.clip_value_loss else None, valid
