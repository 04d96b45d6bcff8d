"""Actor-critic that corrects for the age of the acting policy by V-trace (Espeholt et al. 2018, arXiv:1802.01561)."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.pg.a2c import A2C, LossInputs
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import POSITIVE, checked


class Impala(A2C):
    """The loss of A2C, with the advantages and value targets of V-trace where an older policy acted.

    In asynchronous runs each batch is used once, and its policy is one or more updates older than the one that learns
    (`rlpyt.runners.async_rl`). The likelihood ratio of the two comes from the forward pass of the loss. Values are those recorded when
    acting: as in a target network, they are older by the lag. Where the current policy acted, as in synchronous runs, this is A2C bit for
    bit.

    It has the settings of `rlpyt.algos.pg.base.OnPolicyAlgorithm`, where `gae_lambda` is the λ of V-trace, and:

    Args:
        rho_clip: ρ̄, largest ratio in the TD errors, and in the advantages.
        c_clip: c̄, largest ratio in the products that reach later steps.

    Raises:
        ValueError: a setting is not possible.
    """

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
            init_rnn_state=samples.agent.agent_info.prev_rnn_state[0] if self.agent.recurrent else None,  # [B,N,H]
            action=samples.agent.action,
            return_=None,
            advantage=None,
            valid=None,
            lagging=self.for_returns(samples),
        )
        return self.to_device(inputs)

    def targets(self, inputs: LossInputs, dist_info: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return return_, advantage and valid [T,B], by V-trace if an older policy acted."""
        if inputs.lagging is None:
            return super().targets(inputs, dist_info)
        with torch.no_grad():
            acted = inputs.lagging.agent.agent_info.dist_info
            ratio = self.agent.distribution.likelihood_ratio(inputs.action, old_dist_info=acted, new_dist_info=dist_info)
            return self.process_returns(inputs.lagging, ratio)
