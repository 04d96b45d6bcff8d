"""Who chooses the actions: collectors ask an actor and do not know which one it is.

``request(t)`` says that the observation of step `t` is in place, ``receive(t)`` returns the action for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.utils.buffer import buffer_leaves, torchify_buffer
from rlpyt.utils.collections import namedarraytuple_like


class LocalActor:
    """The agent in this very process; it computes when the action is asked for.

    Args:
        agent: the agent.
        observations: what the agent sees, for each step: a list of numpy structures ``[B,...]``, read when the step is taken.
        prev_action: numpy structure ``[B,...]``, kept up to date by the collector.
        prev_reward: numpy array ``[B]``, kept up to date by the collector.
    """

    def __init__(self, agent: Any, observations: list, prev_action: Any, prev_reward: np.ndarray) -> None:
        self.agent = agent
        self._observations = [torchify_buffer(observation) for observation in observations]
        self._prev = torchify_buffer(prev_action), torchify_buffer(prev_reward)

    def request(self, t: int) -> None:
        """Nothing to do ahead of time."""

    def receive(self, t: int) -> tuple[Any, list[np.ndarray]]:
        """Return the action for step `t`, a numpy structure ``[B,...]``, and the leaves of the agent_info, arrays ``[B,...]``."""
        action, agent_info = self.agent.step(self._observations[t], *self._prev)
        return _as_arrays(action), [leaf.numpy() for leaf in buffer_leaves(agent_info)]

    def value(self, t: int) -> np.ndarray:
        """Return the value of the observation of step `t`, float32 ``[B]``, without advancing any recurrent state."""
        return self.agent.value(self._observations[t], *self._prev).numpy()


def _as_arrays(action: Any) -> Any:
    """Return an action ``[B,...]`` in numpy, such that ``action[b]`` is that of environment `b` also where it is a structure."""
    if isinstance(action, tuple):
        return namedarraytuple_like(action)._make(_as_arrays(part) for part in tuple(action))
    return action.numpy()
