"""Recurrent deep Q-learning from prioritized replay of sequences: R2D1, after R2D2 (Kapturowski et al. 2019,
https://openreview.net/forum?id=r1lyTjAqYX).
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from rlpyt.algos.dqn.dqn import DQN, LEAST_PRIORITY, TD_ERROR_STRIDE, SamplesToBuffer, td_losses
from rlpyt.algos.hyperparameters import Needs
from rlpyt.algos.sequences import OF_SEQUENCES, SEQUENCE_BUFFERS, SamplesToBufferRnn, Sequences, agent_inputs, as_model_state
from rlpyt.returns import discount_return_n_step, valid_from_done, valid_steps
from rlpyt.types import BatchSpec, as_recorded
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import field_of, namedarraytuple
from rlpyt.utils.logging import logger
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import FRACTION, RATE, STEPS, checked
from rlpyt.utils.tensor import mean_of_valid, select_at_indexes

__all__ = [
    "R2D1",
    "SEQUENCE_BUFFERS",
    "OptInfo",
    "PrioritiesSamplesToBuffer",
    "SamplesToBuffer",
    "SamplesToBufferRnn",
    "inverse_rescale",
    "rescale",
]

OptInfo = namedtuple("OptInfo", ["loss", "gradNorm", "tdAbsErr", "priority"])

_MANY_IDLE_ITRS = 10  # Too many to be chance.

#   priorities  [B], of the sequences that the samples belong to
PrioritiesSamplesToBuffer = namedarraytuple("PrioritiesSamplesToBuffer", ["priorities", "samples"])


class R2D1(DQN):
    """Q-learning with a recurrent agent, on sequences from a replay buffer.

    A sequence begins with the recurrent state that the agent had while sampling, if that is stored. Both networks first update the state
    through `warmup_T` steps. The network then learns from the next `batch_T` steps, up to the end of the first episode.

    To train on the beginnings of episodes, use a sampler that does not reset environments inside batches, with batches of
    `store_rnn_state_interval` steps. Episodes and sequences then begin at the same steps.

    It has the settings of `rlpyt.algos.dqn.dqn.DQN`, except `batch_size` and `target_update_tau`, and:

    Args:
        batch_T: steps of a sequence to train on.
        batch_B: sequences per gradient update.
        warmup_T: steps of a sequence before those to train on.
        store_rnn_state_interval: steps between two stored recurrent states. Sequences begin only at steps with a stored state. 0 stores
            no states: sequences begin anywhere, with a state of zeros.
        replay_ratio: replayed steps per sampled step; an update replays ``(batch_T + warmup_T) * batch_B`` steps.
        pri_eta: η; the priority of a sequence is ``η max|δ| + (1 - η) mean|δ|``.
        default_priority: priority of new samples without input priorities.
        input_priorities: also compute priorities of new samples, from the Q-values that the agent recorded while sampling.
        input_priority_shift: number of sequence starts by which input priorities are shifted back; None means
            ``warmup_T // store_rnn_state_interval``.
        value_scale_eps: ε of `rescale`.
        munchausen: see `DQN`. The policy is ``π = softmax(h⁻¹(Q_target) / τ)``, and the reward that it adds is not rescaled.
        optim_kwargs: None means ``eps = 1e-3``, if `OptimCls` has an eps.

    Raises:
        ValueError: a setting is not possible.
    """

    batch_T: int
    batch_B: int
    warmup_T: int
    store_rnn_state_interval: int
    pri_eta: float
    input_priorities: bool
    input_priority_shift: int | None
    value_scale_eps: float

    recurrent = True
    OptInfoCls = OptInfo
    opt_info_fields = OptInfo._fields
    settings_need: tuple[Needs, ...] = (
        Needs(
            ("input_priority_shift",),
            "prioritized_replay=True and input_priorities=True",
            lambda algo: algo.prioritized_replay and algo.input_priorities,
            may_be_left=True,
        ),
    )
    _idle_itrs = 0  # Number of latest consecutive iterations in which all priorities were 0.
    agents = (
        "that acts epsilon-greedily on Q-values, has a target network and a recurrent state, such as AtariR2d1Agent or "
        "MlpR2d1Agent of rlpyt.agents.dqn"
    )

    @checked(
        OF_SEQUENCES,
        without=("batch_size", "target_update_tau"),
        pri_eta=FRACTION,
        input_priority_shift=STEPS,
        value_scale_eps=RATE,
    )
    def __init__(
        self,
        *,
        discount: float = 0.997,
        batch_T: int = 80,
        batch_B: int = 64,
        warmup_T: int = 40,
        store_rnn_state_interval: int = 40,
        min_steps_learn: int = int(1e5),
        delta_clip: float | None = None,
        replay_ratio: float = 1,
        target_update_interval: int = 2500,
        n_step_return: int = 5,
        learning_rate: float = 1e-4,
        clip_grad_norm: float = 80.0,
        double_dqn: bool = True,
        prioritized_replay: bool = True,
        pri_beta_init: float = 0.9,
        pri_beta_final: float = 0.9,
        pri_eta: float = 0.9,
        default_priority: float | None = None,
        input_priorities: bool = True,
        input_priority_shift: int | None = None,
        value_scale_eps: float = 1e-3,
        ReplayBufferCls: type | None = None,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        self.sequences = Sequences.of(self)
        super().__init__(batch_size=self.sequences.batch_size, **settings)
        if self.input_priority_shift is None:
            self.input_priority_shift = self.warmup_T // max(1, self.store_rnn_state_interval)

    def optim_eps(self) -> float:
        """Return the optimizer's eps for `optim_kwargs=None`."""
        return 1e-3

    def trained_rows(self, agent: Any, batch_spec: BatchSpec) -> list[int]:
        """Return the sizes of the part of the sequences with gradient, and of the part that the target network sees."""
        n = self.n_step_return
        return [(self.batch_T + n * self.double_dqn) * self.batch_B, (self.batch_T + n) * self.batch_B]

    # -----------------------------------------------------------------------------------------------------------------
    # Replay
    # -----------------------------------------------------------------------------------------------------------------
    def _prepare(self, *args: Any, **kwargs: Any) -> None:
        """Also count idle iterations from 0."""
        super()._prepare(*args, **kwargs)
        self._idle_itrs = 0

    def replay_kwargs(self, batch_spec: BatchSpec) -> dict[str, Any]:
        """Add the settings of input priorities."""
        kwargs = super().replay_kwargs(batch_spec)
        if self.prioritized_replay:
            kwargs.update(input_priorities=self.input_priorities, input_priority_shift=self.input_priority_shift)
        return kwargs

    def samples_to_buffer(self, samples: Any) -> Any:
        """Return the part of a batch [T,B] to store, with its priorities if `input_priorities`."""
        stored = super().samples_to_buffer(samples)
        if not (self.prioritized_replay and self.input_priorities):
            return stored
        return PrioritiesSamplesToBuffer(priorities=self.compute_input_priorities(samples), samples=stored)

    @torch.no_grad()
    def compute_input_priorities(self, samples: Any) -> torch.Tensor:
        """Compute the priorities [B] of the sequences to which a batch [T,B] of the sampler belongs.

        They differ from the priorities of `loss` in using the recorded Q-values of the acting network. Near the end of the batch, targets
        bootstrap from its last step, after fewer than n steps. A column without valid steps gets `default_priority`, since its sequence
        may hold valid steps of other batches.
        """
        env, qs, n = as_recorded(samples).env, samples.agent.agent_info.q, self.n_step_return
        T = len(env.done)
        q = select_at_indexes(samples.agent.action, qs)[:-1]  # [T-1,B]
        return_, done_n = discount_return_n_step(env.reward[:-1], env.done[:-1], n, self.discount, do_truncated=True)
        t = torch.arange(T - 1)
        end = (t + n).clamp(max=T - 1)  # Step from which the target of step t bootstraps.
        discount = self.discount ** (end - t).to(q.dtype)[:, None] * ~done_n.bool()  # [T-1,B]
        if self.munchausen:
            return_ = return_ + self.munchausen_reward(samples.agent.action[:-1], qs[:-1])
        next_value = self.next_values(qs, qs) if self.munchausen else qs.max(dim=-1).values
        y = self.value_scale(return_ + discount * self.inv_value_scale(next_value[end]))
        _, abs_errors = td_losses(y - q, self.delta_clip)

        valid = valid_steps(env.done, env.valid, until_done=True)  # [T,B], steps of the first episode
        assert valid is not None
        if env.timeout is not None:
            truncated = (env.timeout * valid).any(dim=0)  # [B], targets would bootstrap from the end of that episode
            valid[:-1] *= ~(done_n.bool() & truncated)
        valid = valid[:-1]
        return torch.where(valid.any(dim=0), self._mixed(abs_errors, valid), self.default_priority)

    def _mixed(self, abs_errors: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Return ``η max|δ| + (1 - η) mean|δ|`` [B] over valid errors [T,B], at least `LEAST_PRIORITY`; 0 for columns without any."""
        abs_errors = abs_errors * valid
        if not len(abs_errors):
            return abs_errors.sum(dim=0)
        mixed = self.pri_eta * abs_errors.amax(dim=0) + (1 - self.pri_eta) * mean_of_valid(abs_errors, valid, dim=0)
        return torch.where(valid.any(dim=0), mixed.clamp(min=LEAST_PRIORITY), mixed)

    # -----------------------------------------------------------------------------------------------------------------
    # Learning
    # -----------------------------------------------------------------------------------------------------------------
    def update(self, batch: Any) -> tuple[OptInfo, torch.Tensor | None]:
        """Do one gradient step on the loss of `batch`."""
        loss, td_abs_errors, priorities = self.loss(batch)
        grad_norm = self.descend(loss)
        opt_info = OptInfo(loss.detach(), grad_norm, td_abs_errors[::TD_ERROR_STRIDE], priorities)
        return opt_info, priorities if self.prioritized_replay else None

    def optimize_agent(self, itr: int, samples: Any = None, sampler_itr: int | None = None) -> OptInfo:
        """Do the updates; log a message if the last iterations had nothing to learn from."""
        opt_info = super().optimize_agent(itr, samples, sampler_itr)
        if opt_info.priority:
            self._idle_itrs = 0 if any(opt_info.priority) else self._idle_itrs + 1
            if self._idle_itrs == _MANY_IDLE_ITRS:
                logger.log(
                    f"R2D1 has learned nothing in {_MANY_IDLE_ITRS} iterations: no replayed step has a target. A step has no target if its "
                    f"episode is truncated within the next n_step_return={self.n_step_return} steps, or if it is blank. A sampler without "
                    "mid_batch_reset leaves blank steps after the end of an episode. Lower n_step_return, or let episodes go on longer."
                )
        return opt_info

    def loss(self, samples: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # type: ignore[override]
        """Compute the loss ½ (Q(s,a) - y)², linear beyond `delta_clip`, over the valid steps of sequences.

        ``y = h(R + γ^n h⁻¹(max_a' Q_target(s',a')))``, where h is `value_scale`, R is the sum of n discounted rewards, and s' is n steps
        after s. The second term is missing if the episode was terminated before. With `double_dqn`, a' is the best action by Q. Prioritized
        replay weights sequences by importance. With `munchausen`, R includes the term of `munchausen_reward`, and the maximum is replaced
        by the value of `next_values`.

        Steps after the warm-up are valid up to the end of the first episode, unless their target would bootstrap from the end of a
        truncated episode. If an episode ends during the warm-up, the state after the warm-up is zeros.

        Args:
            samples: `SamplesFromReplay` of sequences, [warmup_T + batch_T (+ n), B], on the training device.

        Returns:
            The mean loss over valid steps; |Q - y| of each step [batch_T,B], 0 for invalid steps; and the priority of each sequence [B],
            0 for sequences without valid steps.
        """
        W = self.warmup_T
        inputs = agent_inputs(samples)  # [W+T+n,B,...] each
        state = target_state = as_model_state(samples.init_rnn_state)
        if W:
            warmup = [x[:W] for x in inputs]
            alive = ~samples.done[:W].any(dim=0)  # [B]
            with torch.no_grad():
                state = _where_alive(self.agent(*warmup, state)[1], alive)
                target_state = _where_alive(self.agent.target(*warmup, target_state)[1], alive)
        losses, abs_errors = self.step_losses(samples, [x[W:] for x in inputs], state, target_state)
        valid = valid_from_done(samples.done[W:]).to(losses.dtype)
        if field_of(samples, "valid") is not None:
            valid = valid * samples.valid[W:]
        if self.prioritized_replay:
            losses = losses * samples.is_weights
        return mean_of_valid(losses, valid), abs_errors * valid, self._mixed(abs_errors, valid)

    def step_losses(self, samples: Any, inputs: list, state: Any, target_state: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return losses and ``|Q - y|`` of steps [T,B], also of those that `loss` masks: after the end of the episode, and invalid ones.

        Args:
            samples: as for `loss`.
            inputs: of the agent, [T+n,B,...] each, after the warm-up.
            state, target_state: of the network and of the target network after the warm-up.
        """
        T, n = self.batch_T, self.n_step_return
        with torch.no_grad():
            all_target_qs, _ = self.agent.target(*inputs, target_state)  # [T+n,B,A]
            target_qs = all_target_qs[n:]  # [T,B,A]

        # With double Q-learning, the last n steps only choose actions; they have no gradient.
        qs, _ = self.agent(*(x[: T + n if self.double_dqn else T] for x in inputs), state)  # [T(+n),B,A]
        q = select_at_indexes(self.trained_actions(samples), qs[:T])
        with torch.no_grad():
            samples = self.with_munchausen_reward(samples, all_target_qs[:T])
            y = self.targets(samples, self.next_values(target_qs, qs[n:] if self.double_dqn else target_qs))
        return td_losses(y - q, self.delta_clip)

    def trained_actions(self, samples: Any) -> torch.Tensor:
        """Return the actions [T,B] at the steps after the warm-up."""
        return samples.all_action[self.warmup_T + 1 : self.warmup_T + self.batch_T + 1]

    def with_munchausen_reward(self, samples: Any, qs: torch.Tensor) -> Any:
        """With `munchausen`, return samples whose returns after the warm-up include its reward, by target Q-values [T,B,A]."""
        if not self.munchausen:
            return samples
        rewards = self.munchausen_reward(self.trained_actions(samples), qs)
        return samples._replace(return_=torch.cat([samples.return_[: self.warmup_T], samples.return_[self.warmup_T :] + rewards]))

    def munchausen_reward(self, action: torch.Tensor, qs: torch.Tensor) -> torch.Tensor:
        """Return ``α max(τ log π(a|s), munchausen_min)`` [T,B], π = softmax(h⁻¹(Q) / τ), for actions [T,B] and Q-values [T,B,A]."""
        return super().munchausen_reward(action, self._unscaled(qs))

    def next_values(self, values: torch.Tensor, qs: torch.Tensor) -> torch.Tensor:
        """Return the values [T,B,...] at s', as `DQN` does, for rescaled ones [T,B,A,...] and [T,B,A]; they are rescaled again."""
        if not self.munchausen:
            return super().next_values(values, qs)
        return self.value_scale(super().next_values(self._unscaled(values), self._unscaled(qs)))

    def _unscaled(self, z: torch.Tensor) -> torch.Tensor:
        """Return h⁻¹(z), and minus infinity for the values of masked actions, which are minus infinity."""
        return torch.where(z.isneginf(), z, self.inv_value_scale(z))

    def targets(self, samples: Any, values: torch.Tensor) -> torch.Tensor:
        """Return ``h(R + γ^n h⁻¹(value))`` for values [T,B,...] n steps after the steps to train on, without those after terminations."""
        shape = (*values.shape[:2], *[1] * (values.dim() - 2))
        return_, done_n = samples.return_[self.warmup_T :].view(shape), samples.done_n[self.warmup_T :].view(shape)
        bootstrap = self.discount**self.n_step_return * ~done_n.bool() * self.inv_value_scale(values)
        return self.value_scale(return_ + bootstrap)

    def value_scale(self, x: torch.Tensor) -> torch.Tensor:
        """Return h(x), the scale on which values are learned. A subclass that overrides it also overrides `inv_value_scale`."""
        return rescale(x, self.value_scale_eps)

    def inv_value_scale(self, z: torch.Tensor) -> torch.Tensor:
        """Return h⁻¹(z)."""
        return inverse_rescale(z, self.value_scale_eps)


def rescale(x: torch.Tensor, eps: float) -> torch.Tensor:
    """``h(x) = sign(x) (√(|x| + 1) - 1) + ε x`` (Pohlen et al. 2018, https://arxiv.org/abs/1805.11593), without cancellation near 0."""
    return x / ((x.abs() + 1).sqrt() + 1) + eps * x


def inverse_rescale(z: torch.Tensor, eps: float) -> torch.Tensor:
    """Return x with ``rescale(x, eps) = z``: ``sign(z) (((√(1 + 4ε(|z| + 1 + ε)) - 1) / 2ε)² - 1)``, without cancellation for small ε."""
    z_abs = z.abs()
    root = (1 + 4 * eps * (z_abs + 1 + eps)).sqrt()  # 1 + 2ε at z = 0.
    u = 2 * z_abs * (1 - 2 * eps / (root + 1 + 2 * eps)) / (root + 1)  # The base of the square above, minus 1.
    return torch.copysign(u * (u + 2), z)


def _where_alive(state: Any, alive: torch.Tensor) -> Any:
    """Return the state [N,B,...], set to zeros where `alive` [B] is False."""
    return buffer_func(state, lambda x: x * alive.view(1, -1, *[1] * (x.dim() - 2)))
