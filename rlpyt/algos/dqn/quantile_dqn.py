"""Deep Q-learning of quantiles: QR-DQN (Dabney et al. 2018, https://arxiv.org/abs/1710.10044) and IQN (Dabney et al. 2018,
https://arxiv.org/abs/1806.06923).
"""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.agents.base import action_mask
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.replay import bootstrap_discount
from rlpyt.distributions.epsilon_greedy import masked_q
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import Number, checked
from rlpyt.utils.tensor import quantile_huber, select_at_indexes


class QuantileDQN(DQN):
    """Learns quantiles of the return. The agent chooses the fractions: fixed ones make it QR-DQN, random ones IQN.

    It has the settings of `rlpyt.algos.dqn.dqn.DQN`, and:

    Args:
        delta_clip: κ, the difference of quantiles above which the Huber loss is linear.
        munchausen: see `DQN`; with an agent of IQN this is M-IQN. The Q-values of the policy are means of quantiles.

    Raises:
        ValueError: a setting is not possible.
    """

    delta_clip: float

    by_quantiles = True
    agents = (
        "that acts epsilon-greedily on means of quantiles and has a target network, such as AtariIqnAgent, MlpIqnAgent, AtariQrDqnAgent "
        "or MlpQrDqnAgent of rlpyt.agents.dqn"
    )

    @checked(delta_clip=Number(0, above=True, finite=True))
    def __init__(
        self,
        *,
        delta_clip: float = 1.0,
        learning_rate: float = 5e-5,
        clip_grad_norm: float = 1e9,
        munchausen: bool = False,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def loss(self, samples: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the quantile Huber loss of each quantile θ(s,a) relative to all target quantiles ``y_j = R + γ^k θ_target,j(s',a')``.

        R is the sum of k discounted rewards, and s' is k steps after s, at most n; the second term of y is missing if the episode was
        terminated before. a' has the largest mean of target quantiles, or of the network's quantiles with `double_dqn`. With `munchausen`,
        R includes the term of `munchausen_reward`, and θ_target(s',a') is replaced by `next_values`. Prioritized replay weights losses by
        importance.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.

        Returns:
            The mean over samples of `quantile_huber`, and its mean per quantile [n], which are the priorities.
        """
        agent, n = self.agent, len(samples.action)
        fractions = agent.fractions(n)
        quantiles = select_at_indexes(samples.action, agent(*samples.agent_inputs, fractions))  # [n,N]
        with torch.no_grad():
            next_quantiles = agent.target(*samples.target_inputs, agent.target_fractions(n))  # [n,A,M]
            next_qs = masked_means(agent(*samples.target_inputs) if self.double_dqn else next_quantiles, samples.target_inputs)  # [n,A]
            return_ = samples.return_
            if self.munchausen:
                qs = masked_means(agent.target(*samples.agent_inputs), samples.agent_inputs)
                return_ = return_ + self.munchausen_reward(samples.action, qs)
            discount = bootstrap_discount(samples, self.discount, self.n_step_return)
            y = return_[:, None] + discount[:, None] * self.next_values(next_quantiles, next_qs)  # [n,M]

        losses = quantile_huber(quantiles, fractions, y.to(quantiles), self.delta_clip)
        priorities = losses.detach() / quantiles.shape[-1]
        if self.prioritized_replay:
            losses = losses * samples.is_weights
        return losses.mean(), priorities


def masked_means(quantiles: torch.Tensor, inputs: Any) -> torch.Tensor:
    """Return means [n,A] of quantiles [n,A,N]: minus infinity for actions that the observation in `inputs` masks."""
    observation, *_ = inputs
    return masked_q(quantiles.mean(dim=-1), action_mask(observation, quantiles.device))
