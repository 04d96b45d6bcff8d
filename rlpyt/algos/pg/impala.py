"""Actor-critic that corrects for the age of the acting policy by V-trace (Espeholt et al. 2018, arXiv:1802.01561)."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.hyperparameters import TRACES, Needs
from rlpyt.algos.pg.a2c import A2C, LossInputs
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import POSITIVE, checked


class Impala(A2C):
    """The loss of A2C, with the advantages and value targets of V-trace where an older policy acted.

    In asynchronous runs each batch is used once, and its policy is one or more updates older than the one that learns
    (`rlpyt.runners.async_rl`). The likelihood ratio of the two, and the values, come from the forward pass of the loss. Only the values of
    what follows the batch, and of final observations of truncated episodes, are those recorded when acting. The loss weights each
    advantage by ``min(ρ̄, ratio)``, after `normalize_advantage`. Where `policy_lag` is 0, as with samplers that do not sample ahead, this
    is A2C bit for bit.

    It has the settings of `rlpyt.algos.pg.base.OnPolicyAlgorithm`, where `gae_lambda` is the λ of V-trace, and:

    Args:
        rho_clip: ρ̄, largest ratio by which TD errors and advantages are weighted.
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

    def loss_inputs(self, samples: Any) -> LossInputs:
        """Return the inputs of the loss, on the training device."""
        if self.policy_lag == 0:
            return super().loss_inputs(samples)
        inputs = LossInputs(
            agent_inputs=self.agent_inputs(samples),
            init_rnn_state=self.init_rnn_state(samples),
            action=samples.agent.action,
            return_=None,
            advantage=None,
            valid=None,
            lagging=self.for_returns(samples),
        )
        return self.to_device(inputs)

    def targets(self, inputs: LossInputs, dist_info: Any, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return return_, advantage and valid [T,B], by V-trace if an older policy acted."""
        if inputs.lagging is None:
            return super().targets(inputs, dist_info, value)
        with torch.no_grad():
            acted = inputs.lagging.agent.agent_info.dist_info
            ratio = self.agent.distribution.likelihood_ratio(inputs.action, old_dist_info=acted, new_dist_info=dist_info)
            return_, advantage, valid = self.process_returns(inputs.lagging, ratio, value)
            weight = ratio.clamp(max=self.rho_clip)
            if valid is not None:  # Ratios of invalid steps are meaningless; they could be infinite.
                weight = torch.where(valid.bool(), weight, 0)
            return return_, weight * advantage, valid
