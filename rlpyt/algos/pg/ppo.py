"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347) with clipped likelihood ratios."""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
import torch.distributed

from rlpyt.algos.hyperparameters import Needs
from rlpyt.algos.pg.base import LossTerms, OnPolicyAlgorithm, batch_first_to_layer_first
from rlpyt.algos.schedules import Schedule, schedule_kind
from rlpyt.distributions.base import mean_entropy_and_perplexity
from rlpyt.types import BatchSpec
from rlpyt.utils.array import ALIGNMENT
from rlpyt.utils.buffer import buffer_leaves, buffer_method
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.plain import check_form
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import COUNT, POSITIVE, Number, checked
from rlpyt.utils.structures import map_structure
from rlpyt.utils.tensor import half_square, mean_huber, mean_of_valid

# The fields of `rlpyt.algos.pg.base.OptInfo`, and two more.
OptInfo = namedtuple(
    "OptInfo",
    ["loss", "gradNorm", "entropy", "perplexity", "piLoss", "valueLoss", "explainedVariance", "learningRate", "approxKl", "clipFrac"],
    defaults=(None, None, None, None, None, None),
)

# Of one minibatch: likelihood ratios [n] or [T,n], and their mask; None if all count.
Ratios = namedtuple("Ratios", ["ratio", "valid"])

# How `lr_schedule="adaptive"` changes the learning rate after an iteration, and how far from its initial value.
_ADAPTATION, _LEAST_FACTOR, _LARGEST_FACTOR = 1.5, 0.01, 10.0

_GATHERED = 2**18  # bytes of small minibatches that are gathered at once; they stay in a processor's cache

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
        linear_lr_schedule: let learning rate and ratio_clip fall linearly to 0 over the run, ratio_clip one iteration later. With
            `lr_schedule` it has no effect.
        lr_schedule: another schedule of the learning rate, as in `OnPolicyAlgorithm`, or "adaptive": after an iteration whose mean
            approxKl is above ``2 desired_kl`` the rate is divided by 1.5, below ``desired_kl / 2`` it is multiplied by 1.5. It stays within
            0.01 and 10 times `learning_rate`. The rule is that of Rudin et al. 2021
            (https://arxiv.org/abs/2109.11978).
        desired_kl: for "adaptive", in nats.
        target_kl: end the epochs of an iteration after the first one whose mean approxKl is above this, in nats; None does all epochs. It
            costs one read of the device per epoch. (Stable-Baselines3 compares with 1.5 times its target_kl after each minibatch.)
        clip_value_loss: the value loss is the larger one of those of V and of V clipped to ``[V_old - ε, V_old + ε]``, with the ε of
            `ratio_clip`, in units of reward.

    Attributes:
        ratio_clip: the current value.
        lr_scheduler: for subclasses that override `optimize_agent` without calling `set_schedules`. Its `step()` at the end of each
            iteration makes the learning rate follow the schedule. None for all others, and for "adaptive". (Such a subclass also has to
            call `scaled` for `normalize_reward`, and `set_schedules` for the other schedules.)

    Raises:
        ValueError: a setting is not possible.
    """

    opt_info_fields = OptInfo._fields
    settings_need: tuple[Needs, ...] = (
        Needs(("desired_kl",), 'lr_schedule="adaptive"', lambda algo: algo.lr_schedule == "adaptive"),
        Needs(("target_kl",), "epochs above 1", lambda algo: algo.epochs > 1),
    )
    lr_scheduler: Any = None
    minibatches: int
    epochs: int
    ratio_clip: Any  # A number, or with CUDA graphs a tensor of it.
    clip_value_loss: bool
    target_kl: float | None
    desired_kl: float
    _has_warned = False
    _adapted = 1.0  # The current factor of the initial learning rate, for "adaptive".

    @checked(
        minibatches=COUNT,
        epochs=COUNT,
        ratio_clip=POSITIVE,
        lr_schedule=schedule_kind("adaptive"),
        desired_kl=POSITIVE,
        target_kl=Number(0, above=True, optional=True),
    )
    def __init__(
        self,
        *,
        value_loss_coeff: float = 1.0,
        minibatches: int = 4,
        epochs: int = 4,
        ratio_clip: float = 0.1,
        linear_lr_schedule: bool = True,
        normalize_advantage: bool = False,
        lr_schedule: Schedule | None = None,
        desired_kl: float = 0.01,
        target_kl: float | None = None,
        clip_value_loss: bool = False,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)
        self._ratio_clip = ratio_clip  # At the start of the run.

    def check_parts(self, agent: Any, batch_spec: BatchSpec | None) -> None:
        """Extend the base class: no minibatch may be empty. (A user's class may determine its settings later.)"""
        super().check_parts(agent, batch_spec)
        if batch_spec is not None and self.trains_by("initialize"):
            self._check_minibatches(agent, batch_spec)

    def _check_minibatches(self, agent: Any, batch_spec: BatchSpec) -> tuple[int, str]:
        """Return how many items the minibatches of a batch share out, and what these are."""
        T, B = batch_spec
        n, unit = (B, "environments") if agent.recurrent else (T * B, "steps")
        if n < self.minibatches:
            raise ValueError(
                f"minibatches={self.minibatches} must be at most {n}, the {unit} in a batch of T={T}, B={B}"
                f"{': a recurrent agent trains on whole sequences' if agent.recurrent else ''}."
            )
        return n, unit

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """Also check the size of minibatches.

        Raises:
            ValueError: a minibatch would be empty.
        """
        super().initialize(*args, **kwargs)
        self._adapted = 1.0
        has_own_loop = not self.trains_by("optimize_agent")
        follows = has_own_loop and (self.linear_lr_schedule or self.lr_schedule is not None) and self.lr_schedule != "adaptive"
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.rate_factor) if follows else None
        T, B = self.batch_spec
        n, unit = self._check_minibatches(self.agent, self.batch_spec)
        # If the sampler waits with resets, the number of valid steps differs from batch to batch.
        size = n // self.minibatches
        if n % self.minibatches and (self.mid_batch_reset or self.agent.recurrent):
            left_out = f", and leaves out {n % size} {unit}, chosen at random" if n % size else ""
            warnings.warn(
                f"minibatches={self.minibatches} does not divide the {n} {unit} in a batch of T={T}, B={B}: every "
                f"epoch has {n // size} minibatches of {size} {unit}{left_out}.",
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
        samples = self.scaled(samples)
        inputs, init_rnn_state, old_value, valid = self.loss_inputs(samples)

        updates: list[OptInfo] = []
        ratios: list[Ratios] = []
        all_idxs = self.minibatch_idxs(samples.env.reward.shape, self.agent.device, valid)
        minibatches = self._minibatches(inputs, init_rnn_state, old_value, all_idxs)
        per_epoch = max(len(all_idxs) // self.epochs, 1)
        for start in range(0, len(all_idxs), per_epoch):
            if start > 0 and self.target_kl is not None and self._mean_kl(ratios[-per_epoch:]) > self.target_kl:
                break
            for minibatch in islice(minibatches, per_epoch):
                opt_info, of_minibatch = self._update(minibatch)
                updates.append(opt_info)
                ratios.append(of_minibatch)
                self.update_counter += 1
        self.update_obs_rms(samples)
        diagnosed = self._diagnosed(ratios)
        if isinstance(self.explained_variance, torch.Tensor):  # On the device; it is read with the others.
            diagnosed = diagnosed._replace(explainedVariance=self.explained_variance)
        opt_info = self.read(OptInfo, [*updates, diagnosed])
        self._adapt_rate(opt_info)
        return opt_info

    def loss_inputs(self, samples: Any) -> tuple[Any, Any, Any, torch.Tensor | None]:
        """Return what all minibatches of a batch [T,B] are parts of.

        Returns:
            On the training device, the inputs of the loss [T,B,...], initial states [B,N,H] of the sequences (None if the agent is not
            recurrent), and the values [T,B] when acting (None without `clip_value_loss`); and the mask `valid` of `process_returns`.
        """
        return_, advantage, valid = self.process_returns(samples)
        inputs = LossInputs(
            agent_inputs=self.agent_inputs(samples),
            action=samples.agent.action,
            return_=return_,
            advantage=advantage,
            valid=valid,
            old_dist_info=samples.agent.agent_info.dist_info,
        )
        init_rnn_state = self.init_rnn_state(samples)
        old_value = samples.agent.agent_info.value if self.clip_value_loss else None
        return *self.to_device((inputs, init_rnn_state, old_value)), valid

    def _minibatches(self, inputs: Any, init_rnn_state: Any, old_value: Any, all_idxs: torch.Tensor) -> Iterator[tuple]:
        """Yield each minibatch as `update` takes it, given what `loss_inputs` returned and the indexes of all minibatches [m,size]."""
        if self.agent.recurrent:
            for idxs in all_idxs:
                minibatch = *inputs[:, idxs], init_rnn_state[idxs]
                yield minibatch if old_value is None else (*minibatch, old_value[:, idxs])
            return
        inputs, old_value = buffer_method((inputs, old_value), "flatten", 0, 1)  # [T*B,...]
        for some_idxs in all_idxs.split(_gathered_at_once((inputs, old_value), all_idxs.shape[1])):
            gathered, old_values = inputs[some_idxs], None if old_value is None else old_value[some_idxs]  # [some,size,...]
            for i in range(len(some_idxs)):
                yield tuple(gathered[i]) if old_values is None else (*gathered[i], old_values[i])

    def update(self, batch: tuple) -> tuple[Any, Ratios]:
        """Take one gradient step on a minibatch; return tensors.

        Args:
            batch: `LossInputs`; if the agent is recurrent, also initial states [n,N,H] of the sequences; with `clip_value_loss`, last the
                values [n] or [T,n] when acting.
        """
        inputs, further = list(batch), {}
        if self.clip_value_loss:
            further["old_value"] = inputs.pop()
        if self.agent.recurrent:
            inputs[-1] = batch_first_to_layer_first(inputs[-1])
        self.loss_terms = LossTerms()
        with self.autocast():
            loss, entropy, perplexity = self.loss(*inputs, **further)
        grad_norm = self.descend(loss)
        terms = self.loss_terms
        opt_info = OptInfo(loss.detach(), grad_norm, entropy.detach(), perplexity, terms.pi_loss, terms.value_loss)
        return opt_info, Ratios(terms.ratio, terms.valid)

    def _diagnosed(self, ratios: list[Ratios]) -> Any:
        """Return an `OptInfo` with only approxKl and clipFrac of all minibatches, [n] each; one call for all of them is faster.

        ``approxKl = mean(ρ - 1 - log ρ)``, an unbiased estimate of the divergence of old and new policy that is never negative (Schulman
        2020, http://joschu.net/blog/kl-approx.html).
        """
        empty = OptInfo(*[None] * 4)
        if not ratios or any(of_minibatch.ratio is None for of_minibatch in ratios):  # The loss of a user.
            return empty
        ratio = torch.stack([of_minibatch.ratio.flatten() for of_minibatch in ratios]).float()  # [n, minibatch size]
        weight: Any = 1.0
        if ratios[0].valid is not None:  # Ratios of invalid steps are 1.
            valid = torch.stack([of_minibatch.valid.flatten() for of_minibatch in ratios]).float()
            weight = 1 / valid.mean(dim=1).clamp(min=1 / valid.shape[1])  # 0 valid steps if all sequences begin with a blank row.
        limits = torch.finfo(torch.float32)
        finite = ratio.clamp(limits.tiny, 1 / limits.tiny)
        approx_kl = (finite - 1 - finite.log()).mean(dim=1) * weight
        clip_frac = ((ratio - 1).abs() > self.ratio_clip).float().mean(dim=1) * weight
        return empty._replace(approxKl=approx_kl, clipFrac=clip_frac)

    def _mean_kl(self, ratios: list[Ratios]) -> float:
        """Return the mean approxKl of minibatches, in all processes that train together; 0 if it is not known."""
        approx_kl = self._diagnosed(ratios).approxKl
        return 0.0 if approx_kl is None else self._agreed(approx_kl.mean())

    def _agreed(self, x: torch.Tensor) -> float:
        """Return the mean of a number over the processes that train together. They must agree, or some would wait for others in vain."""
        if self.world_size > 1:
            torch.distributed.all_reduce(x)
            x /= self.world_size
        return float(x)

    def _adapt_rate(self, opt_info: Any) -> None:
        """Change the learning rate of the next iteration by the divergence of this one, with `lr_schedule="adaptive"`."""
        if self.lr_schedule != "adaptive" or not opt_info.approxKl:
            return
        if self.epochs * self.minibatches == 1 and self.policy_lag == 0:
            if not self._has_warned:
                warnings.warn(
                    f'{type(self).__name__}: lr_schedule="adaptive" leaves the learning rate as it is. It needs several updates on each '
                    "batch: with epochs=1 and minibatches=1 the divergence, which is measured before each update, is 0.",
                    stacklevel=2,
                )
            self._has_warned = True
            return
        kl = sum(opt_info.approxKl) / len(opt_info.approxKl)
        if self.world_size > 1:
            kl = self._agreed(torch.tensor(kl, device=self.agent.device))
        if kl > 2 * self.desired_kl:
            self._adapted = max(self._adapted / _ADAPTATION, _LEAST_FACTOR)
        elif kl < self.desired_kl / 2:
            self._adapted = min(self._adapted * _ADAPTATION, _LARGEST_FACTOR)

    def rate_factor(self, itr: int) -> float:
        """Return the factor of the initial learning rate at iteration `itr`; "adaptive" does not depend on it."""
        return self._adapted if self.lr_schedule == "adaptive" else super().rate_factor(itr)

    def minibatch_idxs(self, leading_dims: tuple[int, int], device: Any, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Return the indexes of all minibatches in order, [epochs * minibatches per epoch, minibatch size], on `device`.

        The indexes of a recurrent agent count environments; a sequence that begins with a blank row has no valid steps. Otherwise they
        count steps in the flattened [T*B]. With a mask `valid` [T,B], only valid steps are drawn. Each epoch has exactly `minibatches`, on
        every rank, so that no rank waits for another. If there are too few valid steps, some are drawn twice. If there are none, all steps
        are drawn, which the loss leaves out. Without a mask, an epoch has as many as fit.
        """
        T, B = leading_dims
        is_masked = valid is not None and not self.agent.recurrent
        if valid is not None and is_masked and valid.any():
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
        if self.linear_lr_schedule and self.lr_schedule is None:
            ratio_clip = self._ratio_clip * self.remaining(max(itr - 1, 0))  # Always one iteration late, as in the original.
            self.ratio_clip = self._clip_of_graph.fill_(ratio_clip) if self.cuda_graphs else ratio_clip

    def training_state(self) -> dict[str, Any]:
        """Add the position of `lr_scheduler`, and the learning rate of "adaptive"."""
        state = super().training_state()
        if self.lr_schedule == "adaptive":
            state["adapted"] = self._adapted
        return state if self.lr_scheduler is None else dict(state, lr_scheduler_itr=self.lr_scheduler.last_epoch)

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Restore what `training_state` returned."""
        super().load_training_state(state)
        if self.lr_schedule == "adaptive":
            check_form(state, dict(adapted=(int, float)), "algo")
            self._adapted = float(state["adapted"])
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
        *,
        old_value: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return policy loss + value loss + entropy loss, the mean entropy, and the mean perplexity.

        Policy loss: -min(ρ A, clip(ρ, 1-ε, 1+ε) A), with ρ = π(a|s) / π_old(a|s). Value loss: ½ (V(s) - G)².
        Entropy loss: -H(π(·|s)). Means over the valid steps.

        Args:
            agent_inputs, action, return_, advantage, valid, old_dist_info: [n,...], or [T,n,...] if
                recurrent.
            init_rnn_state: initial state [N,n,H] of the sequences, if the agent is recurrent.
            old_value: values when acting, like `return_`, with `clip_value_loss`.
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
        if old_value is None:
            value_loss = mean_huber(value, return_, valid=valid)
        else:
            clipped = old_value + (value - old_value).clamp(-self.ratio_clip, self.ratio_clip)
            value_loss = mean_of_valid(torch.maximum(half_square(value, return_), half_square(clipped, return_)), valid)
        entropy, perplexity = mean_entropy_and_perplexity(dist, dist_info, valid)
        loss = self.weighted_loss(pi_loss, value_loss, entropy)
        self.loss_terms = LossTerms(pi_loss.detach(), value_loss.detach(), ratio.detach(), valid)
        return loss, entropy, perplexity


def _gathered_at_once(structure: Any, size: int) -> int:
    """Return how many minibatches of `size` rows of a structure [n,...] to gather by one operation for each array.

    As many as are small together, if the arrays of each begin where a new array might: the rounding of a matrix product depends on the
    alignment of its operands.
    """
    sizes = [leaf.nbytes // max(len(leaf), 1) * size for leaf in buffer_leaves(structure)]  # bytes
    return 1 if any(n % ALIGNMENT for n in sizes) else max(_GATHERED // max(sum(sizes), 1), 1)


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
