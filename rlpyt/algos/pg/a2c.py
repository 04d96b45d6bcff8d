"""Synchronous advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783, without asynchrony)."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.base import read_opt_info
from rlpyt.algos.pg.base import OnPolicyAlgorithm, OptInfo, batch_first_to_layer_first
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.tensor import huber, mean_of_valid

LossInputs = namedarraytuple("LossInputs", ["agent_inputs", "init_rnn_state", "action", "return_", "advantage", "valid"])


class A2C(OnPolicyAlgorithm):
    """One gradient step on every batch of samples. Settings and defaults are those of `rlpyt.algos.pg.base.OnPolicyAlgorithm`."""

    def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: int | None = None) -> OptInfo:
        """Take one gradient step on `samples` [T,B]; return floats."""
        self.set_schedules(itr)
        opt_info = self._update(self.loss_inputs(samples) if self.cuda_graphs else samples)
        self.update_counter += 1
        self.update_obs_rms(samples)
        return OptInfo(*(value for (value,) in read_opt_info(OptInfo, [opt_info])))

    def update(self, batch: Any) -> OptInfo:
        """Take one gradient step on the loss of `batch`, an argument of `loss`."""
        with self.autocast():
            loss, entropy, perplexity = self.loss(batch)
        grad_norm = self.descend(loss)
        return OptInfo(loss.detach(), grad_norm, entropy.detach(), perplexity)

    def loss_inputs(self, samples: Any) -> Any:
        """Return the inputs of the loss, `LossInputs` on the training device."""
        return_, advantage, valid = self.process_returns(samples)
        inputs = LossInputs(
            agent_inputs=self.agent_inputs(samples),
            init_rnn_state=samples.agent.agent_info.prev_rnn_state[0] if self.agent.recurrent else None,  # [B,N,H]
            action=samples.agent.action,
            return_=return_,
            advantage=advantage,
            valid=valid,
        )
        return self.to_device(inputs)

    def loss(self, samples: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return policy loss + value loss + entropy loss, the mean entropy, and the mean perplexity.

        Policy loss: -log π(a|s) A. Value loss: ½ (V(s) - G)². Entropy loss: -H(π(·|s)). Means over the
        valid steps.

        Args:
            samples: a batch [T,B] of the sampler, or its `loss_inputs`.
        """
        inputs = samples if isinstance(samples, LossInputs) else self.loss_inputs(samples)
        if self.agent.recurrent:
            dist_info, value, _ = self.agent(*inputs.agent_inputs, batch_first_to_layer_first(inputs.init_rnn_state))  # type: ignore[call-arg]
        else:
            dist_info, value = self.agent(*inputs.agent_inputs)
        dist, valid = self.agent.distribution, inputs.valid

        pi_loss = -mean_of_valid(dist.log_likelihood(inputs.action, dist_info) * inputs.advantage, valid)
        value_loss = self.value_loss_coeff * mean_of_valid(huber(value - inputs.return_)[0], valid)
        entropy = dist.mean_entropy(dist_info, valid)
        loss = pi_loss + value_loss - self.entropy_loss_coeff * entropy
        with torch.no_grad():
            perplexity = dist.mean_perplexity(dist_info, valid)
        return loss, entropy, perplexity
