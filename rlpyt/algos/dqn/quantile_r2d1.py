"""Recurrent deep Q-learning of quantiles: the losses of QR-DQN and IQN on the sequences of R2D1."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.dqn.dqn import clipped_errors
from rlpyt.algos.dqn.quantile_dqn import masked_means
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import Number, checked
from rlpyt.utils.tensor import quantile_huber, select_at_indexes


class QuantileR2D1(R2D1):
    """Learns quantiles of the return with a recurrent agent, which chooses the fractions: fixed ones for QR-DQN, random ones for IQN.

    Priorities are those of R2D1, where Q is the mean of quantiles.

    It has the settings of `rlpyt.algos.dqn.r2d1.R2D1`, and:

    Args:
        delta_clip: κ, the difference of quantiles above which the Huber loss is linear; also the largest error for priorities.
        munchausen: see `R2D1`. The Q-values of the policy are means of quantiles.
    """

    delta_clip: float

    by_quantiles = True
    agents = (
        "that acts epsilon-greedily on means of quantiles, has a target network and a recurrent state, such as AtariIqnR2d1Agent, "
        "MlpIqnR2d1Agent, AtariQrR2d1Agent or MlpQrR2d1Agent of rlpyt.agents.dqn"
    )

    @checked(delta_clip=Number(0, above=True, finite=True))
    def __init__(self, *, delta_clip: float = 1.0, munchausen: bool = False, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def step_losses(self, samples: Any, inputs: list, state: Any, target_state: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the quantile Huber losses of steps [T,B], and the absolute difference between the means of quantiles and of targets.

        The loss is that of each quantile θ(s,a) relative to all target quantiles ``y_j = h(R + γ^n h⁻¹(θ_target,j(s',a')))``: h increases,
        so it maps quantiles to quantiles. a' has the largest mean of target quantiles, or of the network's quantiles with `double_dqn`, at
        the fractions at which they are learned. Further terms and the arguments are those of R2D1.
        """
        T, n, agent = self.batch_T, self.n_step_return, self.agent
        trained = [x[: T + n if self.double_dqn else T] for x in inputs]
        fractions = _of_steps(agent.fractions, trained)
        quantiles, _ = agent(*trained, state, fractions)  # [T(+n),B,A,N]
        theta = select_at_indexes(self.trained_actions(samples), quantiles[:T])  # [T,B,N]
        with torch.no_grad():
            all_targets, _ = agent.target(*inputs, target_state, _of_steps(agent.target_fractions, inputs))  # [T+n,B,A,M]
            if self.munchausen:
                samples = self.with_munchausen_reward(samples, masked_means(all_targets[:T], [inputs[0][:T]]))
            target_quantiles = all_targets[n:]  # [T,B,A,M]
            next_qs = masked_means(quantiles[n:] if self.double_dqn else target_quantiles, [inputs[0][n:]])  # [T,B,A]
            y = self.targets(samples, self.next_values(target_quantiles, next_qs)).to(theta)  # [T,B,M]
            abs_errors = clipped_errors(y.mean(dim=-1) - theta.mean(dim=-1), self.delta_clip)
        if fractions.dim() > 1:
            fractions = fractions[:T]
        return quantile_huber(theta, fractions, y, self.delta_clip), abs_errors


def _of_steps(fractions: Any, inputs: list) -> torch.Tensor:
    """Return what an agent's method `fractions` returns for all steps of inputs [T,B,...]: [T,B,N], or [N] for all."""
    T, B = inputs[2].shape
    drawn: torch.Tensor = fractions(T * B)
    return drawn.view(T, B, -1) if drawn.dim() > 1 else drawn
