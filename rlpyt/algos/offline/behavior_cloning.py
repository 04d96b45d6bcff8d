"""Behavior cloning: supervised learning of recorded actions (Pomerleau 1991, https://doi.org/10.1162/neco.1991.3.1.88)."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from rlpyt.agents.base import BaseAgent
from rlpyt.algos.replay import OffPolicyAlgorithm
from rlpyt.envs.base import ActionForm, rescales
from rlpyt.utils.misc import has_all
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import checked

OptInfo = namedtuple("OptInfo", ["loss", "gradNorm"])

_NEVER = 2**62  # gradient updates; there is no target network.


class BehaviorCloning(OffPolicyAlgorithm):
    """Maximizes the likelihood of replayed actions, for any policy gradient agent without recurrent state.

    Actions are in the units of the environment, so the agent must not rescale its actions to them. An agent that normalizes observations
    does it by the statistics of the data set, which `rlpyt.runners.offline_rl.OfflineRl` gives it.

    It has the settings of `rlpyt.algos.replay.OffPolicyAlgorithm`, except those of targets, `discount` among them.

    Raises:
        ValueError: a setting is not possible.
    """

    agent: Any
    learning_rate: float
    initial_optim_state_dict: dict | None
    OptimCls: type
    optim_kwargs: dict | None

    OptInfoCls: type = OptInfo
    opt_info_fields: tuple[str, ...] = OptInfo._fields

    @checked(without=("discount", "n_step_return", "target_update_tau", "target_update_interval"))
    def __init__(self, *, batch_size: int = 256, learning_rate: float = 3e-4, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(target_update_interval=_NEVER, **settings)

    def _prepare(self, agent: BaseAgent, *args: Any, **kwargs: Any) -> None:
        """Check that the agent has a distribution with likelihoods of the environment's actions.

        Raises:
            ValueError: it has none, or a recurrent state, or it rescales its actions for the environment.
        """
        is_suitable = has_all(agent.distribution, "log_likelihood") and not agent.recurrent and has_all(agent, "value")
        if not is_suitable and self.trains_by("optimize_agent", "update", "loss"):
            raise ValueError(
                f"{type(self).__name__} needs a policy gradient agent without recurrent state, such as MlpFfAgent or MujocoFfAgent of "
                f"rlpyt.agents.pg; {type(agent).__name__} is not one."
            )
        if self.trains_by("optimize_agent", "update", "loss") and rescales(agent.env_spaces.action, ActionForm.of(agent)):
            raise ValueError(
                f"{type(self).__name__} learns recorded actions in the units of the environment, but {type(agent).__name__} acts in [-1,1] "
                "and rescales to these units: give the agent rescale_actions=False."
            )
        super()._prepare(agent, *args, **kwargs)

    def update(self, batch: Any) -> tuple[OptInfo, None]:
        """Do one gradient step on the loss of `batch`."""
        loss = self.loss(batch)
        grad_norm = self.descend(loss)
        return OptInfo(loss.detach(), grad_norm), None

    def loss(self, samples: Any) -> torch.Tensor:
        """Compute ``-mean log π(a|s)``.

        Args:
            samples: `SamplesFromReplay` with leading dimension [n], on the training device.
        """
        dist_info, value = self.agent(*samples.agent_inputs)
        # The value is not trained; data-parallel training expects a gradient of its parameters.
        return -self.agent.distribution.log_likelihood(samples.action, dist_info).mean() + 0 * value.mean()
