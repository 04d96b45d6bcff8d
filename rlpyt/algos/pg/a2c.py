"""Synchronous advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783, without asynchrony)."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.pg.base import LossTerms, OnPolicyAlgorithm, OptInfo, batch_first_to_layer_first
from rlpyt.distributions.base import mean_entropy_and_perplexity
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.tensor import mean_huber, mean_of_valid

# What the loss is of, [T,B,...]. If another policy acted, `lagging` holds what returns are computed from, which are then None.
LossInputs = namedarraytuple(
    "LossInputs", ["agent_inputs", "init_rnn_state", "action", "return_", "advantage", "valid", "lagging"], defaults=(None,)
)


class A2C(OnPolicyAlgorithm):
    """One gradient step on every batch of samples. Settings and defaults are those of `rlpyt.algos.pg.base.OnPolicyAlgorithm`."""

    def check_settings(self) -> None:
        """Also refuse two schedules of the learning rate."""
        super().check_settings()
        if self.linear_lr_schedule and self.lr_schedule is not None:
            raise ValueError(
                f"{type(self).__name__}: linear_lr_schedule=True and lr_schedule={self.lr_schedule!r} are two schedules of the learning "
                "rate: leave linear_lr_schedule out."
            )

    def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: int | None = None) -> OptInfo:
        """Take one gradient step on `samples` [T,B]; return floats."""
        self.set_schedules(itr)
        samples = self.scaled(samples)
        opt_info = self._update(self.loss_inputs(samples) if self.cuda_graphs else samples)
        self.update_counter += 1
        self.update_obs_rms(samples)
        return OptInfo(*(values[0] if values else None for values in self.read(OptInfo, [opt_info])))

    def update(self, batch: Any) -> OptInfo:
        """Take one gradient step on the loss of `batch`, an argument of `loss`."""
        self.loss_terms = LossTerms()
        with self.autocast():
            loss, entropy, perplexity = self.loss(batch)
        grad_norm = self.descend(loss)
        terms = self.loss_terms
        diagnostics = terms.pi_loss, terms.value_loss, terms.explained_variance
        return OptInfo(loss.detach(), grad_norm, entropy.detach(), perplexity, *diagnostics)

    def loss_inputs(self, samples: Any) -> Any:
        """Return the inputs of the loss, `LossInputs` on the training device."""
        return_, advantage, valid = self.process_returns(samples)
        inputs = LossInputs(
            agent_inputs=self.agent_inputs(samples),
            init_rnn_state=self.init_rnn_state(samples),
            action=samples.agent.action,
            return_=return_,
            advantage=advantage,
            valid=valid,
        )
        return self.to_device(inputs)

    def targets(self, inputs: Any, dist_info: Any, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return return_, advantage and valid [T,B], as `process_returns` does; the current policy gives `dist_info` and `value` [T,B]."""
        return inputs.return_, inputs.advantage, inputs.valid

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
        dist = self.agent.distribution
        return_, advantage, valid = self.targets(inputs, dist_info, value)

        pi_loss = -mean_of_valid(dist.log_likelihood(inputs.action, dist_info) * advantage, valid)
        value_loss = mean_huber(value, return_, valid=valid)
        entropy, perplexity = mean_entropy_and_perplexity(dist, dist_info, valid)
        loss = self.weighted_loss(pi_loss, value_loss, entropy)
        explained_variance = None if inputs.lagging is None else self.explained_variance
        self.loss_terms = LossTerms(pi_loss.detach(), value_loss.detach(), explained_variance=explained_variance)
        return loss, entropy, perplexity
