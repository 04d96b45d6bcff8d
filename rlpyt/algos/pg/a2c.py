"""Synchronous advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783, without asynchrony)."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.base import read_opt_info
from rlpyt.algos.pg.base import OnPolicyAlgorithm, OptInfo, batch_first_to_layer_first
from rlpyt.utils.buffer import buffer_to
from rlpyt.utils.tensor import valid_mean


class A2C(OnPolicyAlgorithm):
    """One gradient step on every batch of samples. Settings and defaults are those of `rlpyt.algos.pg.base.OnPolicyAlgorithm`."""

    def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: int | None = None) -> OptInfo:
        """Take one gradient step on `samples` [T,B]; return floats."""
        self.set_schedules(itr)
        with self.autocast():
            loss, entropy, perplexity = self.loss(samples)
        grad_norm = self.descend(loss)
        self.update_counter += 1
        self.update_obs_rms(samples)
        opt_info = read_opt_info(OptInfo, [OptInfo(loss, grad_norm, entropy, perplexity)])
        return OptInfo(*(value for (value,) in opt_info))

    def loss(self, samples: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return policy loss + value loss + entropy loss, the mean entropy, and the mean perplexity.

        Policy loss: -log π(a|s) A. Value loss: ½ (V(s) - G)². Entropy loss: -H(π(·|s)). Means over the
        valid steps.
        """
        device = self.agent.device
        inputs = buffer_to(self.agent_inputs(samples), device)
        if self.agent.recurrent:
            init_rnn_state = batch_first_to_layer_first(samples.agent.agent_info.prev_rnn_state[0])
            dist_info, value, _ = self.agent(*inputs, buffer_to(init_rnn_state, device))
        else:
            dist_info, value = self.agent(*inputs)
        targets = (*self.process_returns(samples), samples.agent.action)
        return_, advantage, valid, action = buffer_to(targets, device)
        dist = self.agent.distribution

        pi_loss = -valid_mean(dist.log_likelihood(action, dist_info) * advantage, valid)
        value_loss = self.value_loss_coeff * valid_mean(0.5 * (value - return_) ** 2, valid)
        entropy = dist.mean_entropy(dist_info, valid)
        loss = pi_loss + value_loss - self.entropy_loss_coeff * entropy
        with torch.no_grad():
            perplexity = dist.mean_perplexity(dist_info, valid)
        return loss, entropy, perplexity
