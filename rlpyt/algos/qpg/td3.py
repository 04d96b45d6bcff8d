"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477), and the policy's loss of TD3+BC (Fujimoto
and Gu 2021, arXiv:2106.06860).
"""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import POSITIVE, RATE, checked
from rlpyt.utils.tensor import mean_huber, mean_of_valid

MU_LEARNING_RATE = 1e-3  # default
_LEAST_MEAN_Q = 1e-12  # Where nothing is valid, the mean is 0.


class TD3(DDPG):
    """DDPG with clipped double Q-learning, a noisy target policy, and fewer updates of the policy.

    It has the settings of `rlpyt.algos.qpg.ddpg.DDPG`, and:

    Args:
        mu_learning_rate: step size of the policy's optimizer.
        learning_rate: DDPG's name of `mu_learning_rate`; None: use `mu_learning_rate`.
        behavior_cloning: α of TD3+BC, 2.5 in the paper, for data sets: the policy also imitates replayed actions. None: it does not.
            The paper also normalizes states by the data set, as networks with ``normalize_observation=True`` do. Its batches of 256,
            learning rates of 3e-4 and two hidden layers of 256 units are not the defaults here, either.

    Raises:
        ValueError: a setting is not possible.
    """

    behavior_cloning: float | None

    agent_example = "rlpyt.agents.qpg.td3_agent.Td3Agent"
    n_q = 2

    @checked(mu_learning_rate=RATE, behavior_cloning=POSITIVE, learning_rate=RATE)
    def __init__(
        self,
        batch_size: int = 100,
        replay_ratio: float = 100,
        target_update_tau: float = 0.005,
        target_update_interval: int = 2,
        policy_update_interval: int = 2,
        mu_learning_rate: float = MU_LEARNING_RATE,
        q_learning_rate: float = 1e-3,
        behavior_cloning: float | None = None,
        learning_rate: float | None = None,
        **settings: Any,
    ) -> None:
        if learning_rate is None:
            learning_rate = mu_learning_rate
        elif learning_rate != mu_learning_rate != MU_LEARNING_RATE:
            raise ValueError(
                f"TD3: mu_learning_rate={mu_learning_rate} and learning_rate={learning_rate} are two names of one setting: "
                "give one of them."
            )
        mu_learning_rate = learning_rate
        save__init__args(locals())
        super().__init__(learning_rate=learning_rate, **settings)
        if behavior_cloning is not None:
            self.agent_needs = (*self.agent_needs, "mu")

    def mu_loss(self, samples: Any, valid: torch.Tensor | None) -> torch.Tensor:
        """Compute the policy's loss, that of DDPG. With `behavior_cloning`, ``-λ Q(s, mu(s)) + (mu(s) - a)²``, ``λ = α / mean |Q|``.

        λ uses Q(s, mu(s)), where the paper's formula has Q(s, a) of the data. The square is the mean over the action's components. The
        arguments are those of `DDPG.mu_loss`.
        """
        if self.behavior_cloning is None:
            return super().mu_loss(samples, valid)
        mu = self.agent.mu(*samples.agent_inputs)
        with self.freeze_q():
            q = self.agent.q(*samples.agent_inputs, mu)[0]
        weight = self.behavior_cloning / mean_of_valid(q.detach().abs(), valid).clamp(min=_LEAST_MEAN_Q)
        return mean_of_valid((mu - samples.action).square().mean(dim=-1) - weight * q, valid)

    def q_loss(self, samples: Any, valid: torch.Tensor | None) -> torch.Tensor:
        """Compute the loss ``½ (Q_1(s,a) - y)² + ½ (Q_2(s,a) - y)²`` with ``y = R + γ^m min Q_target(s', mu_target(s') + noise)``.

        R, m, s' and the arguments are those of `DDPG.q_loss`.
        """
        y = self.q_target(samples, torch.minimum(*self.agent.target_q_at_mu(*samples.target_inputs)))
        q1, q2 = self.agent.q(*samples.agent_inputs, samples.action)
        return mean_huber(q1, y, valid=valid) + mean_huber(q2, y, valid=valid)
