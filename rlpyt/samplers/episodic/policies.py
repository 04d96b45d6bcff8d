"""The methods that policies may have, but need not."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np


class OptionalMethods:
    """The optional methods of a policy, with defaults for those that it lacks. `rlpyt.agents.policy.AgentPolicy` has all of them.

    ``name in methods`` tells whether the policy has a method.

    Args:
        policy: any policy. None, and parameters for a policy, have none of the methods.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        for name in _OPTIONAL:
            if hasattr(policy, name):
                setattr(self, name, getattr(policy, name))

    def __contains__(self, name: str) -> bool:
        return name in _OPTIONAL and name in vars(self)

    def prepare(self, env: Any) -> None:
        """Prepare for an environment before the first action. Further calls do nothing."""

    def exploration_itr(self) -> int:
        """Return the iteration whose exploration the policy uses."""
        return 0

    def for_envs(self, actions: Any) -> Any:
        """Return the actions for environments, given the actions that the policy returned."""
        return actions

    def take_rewards(self, rewards: np.ndarray) -> None:
        """Store the rewards ``[B]`` of the last actions."""

    def sampling_state(self) -> Any:
        """Return what the policy remembers of episodes in progress; None for nothing."""

    def set_sampling_state(self, state: Any) -> None:
        """Continue from a `sampling_state`."""

    def copy_for_worker(self, cpu: bool = False) -> Any:
        """Return a policy for one worker, with its models on the CPU if `cpu`."""
        return self.policy

    def acting_deterministically(self) -> AbstractContextManager:
        """Return a context in which the policy does not explore. The default changes nothing."""
        return nullcontext()

    def get_param_values(self) -> Any:
        """Return the parameters, or None if the policy does not offer them."""


_OPTIONAL = tuple(name for name in vars(OptionalMethods) if not name.startswith("_"))
