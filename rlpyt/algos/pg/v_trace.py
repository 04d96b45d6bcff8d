"""What algorithms that learn from batches of an older policy have in common: V-trace (Espeholt et al. 2018, arXiv:1802.01561)."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.pg.base import OnPolicyAlgorithm
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import POSITIVE, checked


class VTrace(OnPolicyAlgorithm):
    """Corrects advantages and value targets for the age of the policy that acted. It comes before the class of the loss.

    Its settings are those of that class, where `gae_lambda` is the λ of V-trace, and:

    Args:
        rho_clip: ρ̄, largest ratio in the TD errors, and in the advantages.
        c_clip: c̄, largest ratio in the products that reach later steps.

    Raises:
        ValueError: a setting is not possible.
    """

    corrects_lag = True

    @checked(rho_clip=POSITIVE, c_clip=POSITIVE)
    def __init__(self, *, rho_clip: float = 1.0, c_clip: float = 1.0, **settings: Any) -> None:
        save__init__args(locals())
        super().__init__(**settings)

    def ratio_to_acting(self, action: Any, acted: Any, dist_info: Any) -> torch.Tensor:
        """Return the likelihood ratios [T,B] of actions, of the policy of `dist_info` to the one that acted; both [T,B,...]."""
        return self.agent.distribution.likelihood_ratio(action, old_dist_info=acted, new_dist_info=dist_info)
