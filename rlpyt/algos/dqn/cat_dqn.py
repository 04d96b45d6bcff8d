"""Categorical deep Q-learning, C51 (Bellemare et al. 2017, https://arxiv.org/abs/1707.06887).

Rainbow (Hessel et al. 2018, https://arxiv.org/abs/1710.02298) combines it with double Q-learning, prioritized replay by KL divergence,
n-step returns, and a dueling noisy model.
"""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.base import action_mask
from rlpyt.algos.dqn.dqn import DQN, MUNCHAUSEN
from rlpyt.algos.hyperparameters import PRIORITIES, Needs
from rlpyt.algos.replay import bootstrap_discount
from rlpyt.distributions.epsilon_greedy import masked_q
from rlpyt.models.dqn.heads import atoms
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import Number, checked
from rlpyt.utils.tensor import select_at_indexes

# Lower bound of the probabilities in a divergence, which limits priorities, and of the divergence, so that no priority is 0.
EPS = 1e-6


class CategoricalDQN(DQN):
    """Learns the distribution of the return over fixed atoms, evenly spaced from `V_min` to `V_max`. The agent sets their number.

    It has the settings of `rlpyt.algos.dqn.dqn.DQN` except those of Munchausen (for which `rlpyt.algos.dqn.quantile_dqn.QuantileDQN` has
    them); `delta_clip` affects only `default_priority`. And:

    Args:
        V_min, V_max: returns of the first and the last atom.

    Raises:
        ValueError: a setting is not possible.
    """

    V_min: float
    V_max: float

    settings_need: tuple[Needs, ...] = (PRIORITIES._replace(names=("delta_clip",)),)
    distributional = True
    agents = (
        "that acts epsilon-greedily on distributions of the return and has a target network, such as AtariCatDqnAgent or "
        "MlpCatDqnAgent of rlpyt.agents.dqn"
    )

    @checked(without=MUNCHAUSEN, V_min=Number(finite=True), V_max=Number(finite=True))
    def __init__(self, V_min: float = -10, V_max: float = 10, **settings: Any) -> None:
        super().__init__(**settings)
        save__init__args(locals())
        if not self.V_min < self.V_max:
            raise ValueError(f"{type(self).__name__}: V_max={self.V_max!r} is not possible; it must be above V_min={self.V_min!r}.")

    def _prepare(self, agent: Any, *args: Any, **kwargs: Any) -> None:
        """Also give the agent the returns that its atoms stand for."""
        super()._prepare(agent, *args, **kwargs)
        agent.give_V_min_max(self.V_min, self.V_max)

    def loss(self, samples: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the cross-entropy of the predicted distribution p(s,a) relative to the target distribution m.

        m is the distribution of ``R + γ^k z``, z from p_target(s',a'), projected on the atoms (`project`). R is the sum of k discounted
        rewards, and s' is k steps after s, at most n; z is left out if the episode was terminated before. a' has the largest mean by
        p_target, or by p with `double_dqn`. Prioritized replay weights losses by importance.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.

        Returns:
            The mean loss, and KL(m || p) [n], which is the cross-entropy minus the entropy of m, a constant. In it, probabilities below
            `EPS` count as `EPS`. It is from `EPS` to 1 / `EPS`.
        """
        p = select_at_indexes(samples.action, self.agent(*samples.agent_inputs))  # [n,P]
        with torch.no_grad():
            z = atoms(self.V_min, self.V_max, p.shape[-1], like=p)
            target_ps = self.agent.target(*samples.target_inputs)  # [n,A,P]
            next_ps = self.agent(*samples.target_inputs) if self.double_dqn else target_ps
            next_means = (next_ps * z).sum(dim=-1)  # [n,A]; unlike a matrix product, not in bfloat16 under autocast.
            next_observation, *_ = samples.target_inputs
            next_means = masked_q(next_means, action_mask(next_observation, next_means.device))
            target_p = select_at_indexes(next_means.argmax(dim=-1), target_ps)  # [n,P]
            discount = bootstrap_discount(samples, self.discount, self.n_step_return)
            m = project(target_p, samples.return_.to(p), discount.to(p), self.V_min, self.V_max)

        # Limited only where the logarithm would be infinite: a prediction that is certain and wrong must have a gradient.
        cross_entropy = -(m * p.clamp(min=torch.finfo(p.dtype).tiny).log()).sum(dim=-1)
        with torch.no_grad():
            m, p = m.clamp(EPS, 1), p.clamp(EPS, 1)
            kl = (m * (m.log() - p.log())).sum(dim=-1).clamp(EPS, 1 / EPS)
        losses = cross_entropy * samples.is_weights if self.prioritized_replay else cross_entropy
        return losses.mean(), kl


def project(p: torch.Tensor, return_: torch.Tensor, discount: torch.Tensor, V_min: float, V_max: float) -> torch.Tensor:
    """Project the distribution of ``R + γ Z``, for Z with distribution p, on the atoms of Z.

    The probability of each value ``R + γ z_j``, limited to [V_min,V_max], is divided between its two neighbouring atoms, linearly by
    distance (Bellemare et al. 2017, algorithm 1).

    Args:
        p: [n,P], probabilities of P atoms evenly spaced from V_min to V_max.
        return_: [n], R.
        discount: [n], γ.

    Returns:
        Probabilities [n,P].
    """
    P = p.shape[-1]
    z = atoms(V_min, V_max, P, like=p)
    spacing = (V_max - V_min) / (P - 1)
    position = ((return_[:, None] + discount[:, None] * z - V_min) / spacing).clamp_(0, P - 1)  # [n,P], in units of atoms
    lower = position.floor()
    to_upper = p * (position - lower)
    lower = lower.long()
    m = torch.zeros_like(p)
    m.scatter_add_(1, lower, p - to_upper)
    m.scatter_add_(1, (lower + 1).clamp_(max=P - 1), to_upper)
    return m
