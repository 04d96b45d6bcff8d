"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477)."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import RATE, checked
from rlpyt.utils.tensor import huber, mean_of_valid

MU_LEARNING_RATE = 1e-3  # default


class TD3(DDPG):
    """DDPG with clipped double Q-learning, a noisy target policy, and fewer updates of the policy.

    It has the settings of `rlpyt.algos.qpg.ddpg.DDPG`, and:

    Args:
        mu_learning_rate: step size of the policy's optimizer; an alias of `learning_rate`, its name in DDPG.

    Raises:
        ValueError: a setting is not possible.
    """

    agent_example = "rlpyt.agents.qpg.td3_agent.Td3Agent"
    n_q = 2

    @checked(mu_learning_rate=RATE)
    def __init__(
        self,
        batch_size: int = 100,
        replay_ratio: float = 100,
        target_update_tau: float = 0.005,
        target_update_interval: int = 2,
        policy_update_interval: int = 2,
        mu_learning_rate: float = MU_LEARNING_RATE,
        q_learning_rate: float = 1e-3,
        **settings: Any,
    ) -> None:
        if settings.setdefault("learning_rate", mu_learning_rate) != mu_learning_rate and mu_learning_rate != MU_LEARNING_RATE:
            raise ValueError(
                f"TD3: mu_learning_rate={mu_learning_rate} and learning_rate={settings['learning_rate']} are two names of one setting: "
                "give one of them."
            )
        mu_learning_rate = settings["learning_rate"]
        save__init__args(locals())
        super().__init__(**settings)

    def q_loss(self, samples: Any, valid: torch.Tensor | None) -> torch.Tensor:
        """Compute the loss ``½ (Q_1(s,a) - y)² + ½ (Q_2(s,a) - y)²`` with ``y = R + γ^m min Q_target(s', mu_target(s') + noise)``.

        R, m, s' and the arguments are those of `DDPG.q_loss`.
        """
        y = self.q_target(samples, torch.minimum(*self.agent.target_q_at_mu(*samples.target_inputs)))
        q1, q2 = self.agent.q(*samples.agent_inputs, samples.action)
        return mean_of_valid(huber(y - q1)[0] + huber(y - q2)[0], valid)
