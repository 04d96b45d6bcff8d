"""Asynchronous proximal policy optimization: PPO's clipped ratios, with V-trace where an older policy acted."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.pg.base import batch_first_to_layer_first
from rlpyt.algos.pg.ppo import PPO, LossInputs
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import POSITIVE, checked


class Appo(PPO):
    """The loss of PPO, with the advantages and value targets of V-trace where an older policy acted.

    As in Sample Factory (Petrenko et al. 2020, arXiv:2006.11751), ratios and clips are those of PPO: relative to the policy that acted. So
    the policy stays near the policies of all batches that are on their way, however old these are. V-trace (Espeholt et al. 2018,
    arXiv:1802.01561) corrects what later steps add to targets and advantages, from the policy that acted to the one with which the epochs
    begin. The latter takes one more forward pass for each batch. Where the current policy acted, as in synchronous runs, there is no such
    pass, and this is PPO bit for bit.

    `approxKl`, and so `target_kl` and ``lr_schedule="adaptive"``, measure the distance to the policy that acted, too.

    It has the settings of `rlpyt.algos.pg.ppo.PPO`, where `gae_lambda` is the λ of V-trace, and:

    Args:
        rho_clip: ρ̄, largest ratio in the TD errors.
        c_clip: c̄, largest ratio in the products that reach later steps.

    Raises:
        ValueError: a setting is not possible.
    """

    corrects_lag = True
    weight_advantages = False  # The loss multiplies them by its own ratio.

    @checked(rho_clip=POSITIVE, c_clip=POSITIVE)
    def __init__(self, *, rho_clip: float = 1.0, c_clip: float = 1.0, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def loss_inputs(self, samples: Any) -> tuple[LossInputs, Any, torch.Tensor | None, torch.Tensor | None]:
        """Return what all minibatches of a batch [T,B] are parts of; see `PPO.loss_inputs`."""
        if self.policy_lag == 0:
            return super().loss_inputs(samples)
        init_rnn_state = samples.agent.agent_info.prev_rnn_state[0] if self.agent.recurrent else None  # [B,N,H]
        agent_inputs, init_rnn_state, action, lagging = self.to_device(
            (self.agent_inputs(samples), init_rnn_state, samples.agent.action, self.for_returns(samples))
        )
        acted = lagging.agent.agent_info
        with torch.no_grad(), self.autocast():
            rnn = (batch_first_to_layer_first(init_rnn_state),) if self.agent.recurrent else ()
            dist_info = self.agent(*agent_inputs, *rnn)[0]
            ratio = self.agent.distribution.likelihood_ratio(action, old_dist_info=acted.dist_info, new_dist_info=dist_info)
        return_, advantage, valid = self.process_returns(lagging, ratio)
        inputs = LossInputs(agent_inputs, action, return_, advantage, valid, old_dist_info=acted.dist_info)
        return inputs, init_rnn_state, acted.value if self.clip_value_loss else None, valid
