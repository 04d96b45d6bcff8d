"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347) with clipped likelihood ratios."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from rlpyt.algos.base import read_opt_info
from rlpyt.algos.pg.base import OnPolicyAlgorithm, OptInfo, batch_first_to_layer_first
from rlpyt.types import BatchSpec
from rlpyt.utils.buffer import buffer_method
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.plain import check_form
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import COUNT, POSITIVE, checked
from rlpyt.utils.structures import map_structure
from rlpyt.utils.tensor import huber, mean_of_valid

LossInputs = namedarraytuple("LossInputs", ["agent_inputs", "action", "return_", "advantage", "valid", "old_dist_info"])


class PPO(OnPolicyAlgorithm):
    """Several epochs of gradient steps on shuffled minibatches of every batch of samples.

    It has the settings of `rlpyt.algos.pg.base.OnPolicyAlgorithm`, and:

    Args:
        minibatches: gradient steps per epoch. A minibatch has ``T*B // minibatches`` steps, or, if the agent is recurrent, whole sequences
            [T] of ``B // minibatches`` environments. If `minibatches` does not divide the batch, an epoch has as many further minibatches
            as fit, and drops the rest. If the sampler waits with resets, an epoch of a feed-forward agent has exactly `minibatches`, of
            valid steps only.
        epochs: passes over the batch.
        ratio_clip: ε; the likelihood ratio is clipped to ``[1-ε, 1+ε]``.
        linear_lr_schedule: let learning rate and ratio_clip fall linearly to 0 over the run, ratio_clip one iteration later.

    Attributes:
        ratio_clip: the current value.
        lr_scheduler: for subclasses that override `optimize_agent` without calling `set_schedules`. Its `step()` at the end of each
            iteration makes the learning rate follow the schedule. None for all others.

    Raises:
        ValueError: a setting is not possible.
    """

    lr_scheduler: Any = None
    minibatches: int
    epochs: int
    ratio_clip: Any  # A number, or with CUDA graphs a tensor of it.

    @checked(minibatches=COUNT, epochs=COUNT, ratio_clip=POSITIVE)
    def __init__(
        self,
        *,
        value_loss_coeff: float = 1.0,
        minibatches: int = 4,
        epochs: int = 4,
        ratio_clip: float = 0.1,
        linear_lr_schedule: bool = True,
        normalize_advantage: bool = False,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)
        self._ratio_clip = ratio_clip  # At the start of the run.

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Also check the size of minibatches.

        Raises:
            ValueError: a minibatch would be empty.
        """
        super().initialize(*args, **kwargs)
        has_own_loop = self.linear_lr_schedule and not self.trains_by("optimize_agent")
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.remaining) if has_own_loop else None
        T, B = self.batch_spec
        n, unit = (B, "environments") if self.agent.recurrent else (T * B, "steps")
        if n < self.minibatches:
            raise ValueError(
                f"minibatches={self.minibatches} must be at most {n}, the {unit} in a batch of T={T}, B={B}"
                f"{': a recurrent agent trains on whole sequences' if self.agent.recurrent else ''}."
            )
        # If the sampler waits with resets, the number of valid steps differs from batch to batch.
        size = n // self.minibatches
        if n % self.minibatches and (self.mid_batch_reset or self.agent.recurrent):
            warnings.warn(
                f"minibatches={self.minibatches} does not divide the {n} {unit} in a batch of T={T}, B={B}: every "
                f"epoch has {n // size} minibatches, and leaves out {n % size} {unit}, chosen at random.",
                stacklevel=2,
            )
        self._batch_size = self.batch_spec.size // self.minibatches
        self._clip_of_graph = torch.full((), self.ratio_clip, device=self.agent.device)  # Always in the same memory.

    def trained_rows(self, agent: Any, batch_spec: BatchSpec) -> list[int]:
        """Return the size of a minibatch."""
        T, B = batch_spec
        return [T * max(B // self.minibatches, 1) if agent.recurrent else max(T * B // self.minibatches, 1)]

    def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: int | None = None) -> OptInfo:
        """Train for `epochs` passes over `samples` [T,B], which are copied to the device once."""
        self.set_schedules(itr)
        recurrent = self.agent.recurrent
        return_, advantage, valid = self.process_returns(samples)
        inputs = LossInputs(
            agent_inputs=self.agent_inputs(samples),
            action=samples.agent.action,
            return_=return_,
            advantage=advantage,
            valid=valid,
            old_dist_info=samples.agent.agent_info.dist_info,
        )
        init_rnn_state = samples.agent.agent_info.prev_rnn_state[0] if recurrent else None  # [B,N,H]
        inputs, init_rnn_state = self.to_device((inputs, init_rnn_state))
        if not recurrent:
            inputs = buffer_method(inputs, "flatten", 0, 1)  # [T*B,...]

        updates = []
        for idxs in self.minibatch_idxs(samples.env.reward.shape, self.agent.device, valid):
            minibatch = (*inputs[:, idxs], init_rnn_state[idxs]) if recurrent else tuple(inputs[idxs])
            updates.append(self._update(minibatch))
            self.update_counter += 1
        self.update_obs_rms(samples)
        return read_opt_info(OptInfo, updates)

    def update(self, batch: tuple) -> OptInfo:
        """Take one gradient step on a minibatch: `LossInputs` and, if the agent is recurrent, initial states [n,N,H] of the sequences."""
        if self.agent.recurrent:
            batch = (*batch[:-1], batch_first_to_layer_first(batch[-1]))
        with self.autocast():
            loss, entropy, perplexity = self.loss(*batch)
        grad_norm = self.descend(loss)
        return OptInfo(loss.detach(), grad_norm, entropy.detach(), perplexity)

    def minibatch_idxs(self, leading_dims: tuple[int, int], device: Any, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Return the indexes of all minibatches in order, [epochs * minibatches per epoch, minibatch size], on `device`.

        The indexes of a recurrent agent count environments, whose sequences all begin with a valid step. Otherwise they count steps in the
        flattened [T*B]. With a mask `valid` [T,B], only valid steps are drawn, in exactly `minibatches` per epoch, since ranks that train
        together must not wait for each other; if there are too few, some are drawn twice. Without a mask, an epoch has as many as fit.
        """
        T, B = leading_dims
        is_masked = valid is not None and not self.agent.recurrent
        if valid is not None and is_masked:
            choices = self.to_device(valid.flatten().nonzero()[:, 0])
        else:
            choices = torch.arange(B if self.agent.recurrent else T * B, device=device)
        n = len(choices)
        size = max(n // self.minibatches, 1)
        n_minibatches = self.minibatches if is_masked else n // size
        shuffled = choices[torch.rand(self.epochs, n, device=device).argsort(dim=1)]
        return shuffled[:, torch.arange(n_minibatches * size, device=device) % n].reshape(-1, size)

    def set_schedules(self, itr: int) -> None:
        """Also set ratio_clip."""
        super().set_schedules(itr)
        if self.linear_lr_schedule:
            ratio_clip = self._ratio_clip * self.remaining(max(itr - 1, 0))  # Always one iteration late, as in the original.
            self.ratio_clip = self._clip_of_graph.fill_(ratio_clip) if self.cuda_graphs else ratio_clip

    def training_state(self) -> dict[str, Any]:
        """Add the position of `lr_scheduler`."""
        state = super().training_state()
        return state if self.lr_scheduler is None else dict(state, lr_scheduler_itr=self.lr_scheduler.last_epoch)

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Restore what `training_state` returned."""
        super().load_training_state(state)
        if self.lr_scheduler is not None:
            last_epoch = state.get("lr_scheduler_itr", self.lr_scheduler.last_epoch)
            check_form(last_epoch, int, "algo['lr_scheduler_itr']")
            self.lr_scheduler.last_epoch = last_epoch

    def loss(
        self,
        agent_inputs: Any,
        action: torch.Tensor,
        return_: torch.Tensor,
        advantage: torch.Tensor,
        valid: torch.Tensor | None,
        old_dist_info: Any,
        init_rnn_state: Any = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return policy loss + value loss + entropy loss, the mean entropy, and the mean perplexity.

        Policy loss: -min(ρ A, clip(ρ, 1-ε, 1+ε) A), with ρ = π(a|s) / π_old(a|s). Value loss: ½ (V(s) - G)².
        Entropy loss: -H(π(·|s)). Means over the valid steps.

        Args:
            agent_inputs, action, return_, advantage, valid, old_dist_info: [n,...], or [T,n,...] if
                recurrent.
            init_rnn_state: initial state [N,n,H] of the sequences, if the agent is recurrent.
        """
        if init_rnn_state is not None:
            dist_info, value, _ = self.agent(*agent_inputs, init_rnn_state)  # type: ignore[call-arg]
        else:
            dist_info, value = self.agent(*agent_inputs)
        dist = self.agent.distribution

        if valid is not None:  # Records of invalid steps are meaningless; their ratio could overflow.
            old_dist_info = _where(valid.bool(), old_dist_info, dist_info)
        ratio = dist.likelihood_ratio(action, old_dist_info=old_dist_info, new_dist_info=dist_info)
        pi_loss = -mean_of_valid(clipped_surrogate(ratio, advantage, self.ratio_clip), valid)
        value_loss = self.value_loss_coeff * mean_of_valid(huber(value - return_)[0], valid)
        entropy = dist.mean_entropy(dist_info, valid)
        loss = pi_loss + value_loss - self.entropy_loss_coeff * entropy
        with torch.no_grad():
            perplexity = dist.mean_perplexity(dist_info, valid)
        return loss, entropy, perplexity


def clipped_surrogate(ratio: torch.Tensor, advantage: torch.Tensor, clip: float | torch.Tensor) -> torch.Tensor:
    """Return ``min(ρ A, clip(ρ, 1-ε, 1+ε) A)`` of ratios ρ and advantages A. Its derivative by ρ is A, or 0 where ρ is clipped."""
    return _ClippedSurrogate.apply(ratio, advantage, clip)


class _ClippedSurrogate(torch.autograd.Function):
    """The clipped surrogate as one node of the autograd graph. For small networks, each operation costs as much as a layer."""

    @staticmethod
    def forward(ctx: Any, ratio: torch.Tensor, advantage: torch.Tensor, clip: Any) -> torch.Tensor:
        unclipped, clipped = ratio * advantage, ratio.clamp(1 - clip, 1 + clip).mul_(advantage)
        ctx.save_for_backward(advantage, unclipped <= clipped)
        return torch.minimum(unclipped, clipped)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        advantage, is_free = ctx.saved_tensors
        return grad * advantage * is_free, None, None


def _where(mask: torch.Tensor, x: Any, other: Any) -> Any:
    """Apply `torch.where` to structures of tensors. `other` gets no gradient."""
    return map_structure(lambda a, b: torch.where(mask.reshape(mask.shape + (1,) * (a.dim() - mask.dim())), a, b.detach()), x, other)
