"""An episode in progress, for programs that step an environment themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.envs.adapters import as_environment
from rlpyt.envs.base import as_number
from rlpyt.envs.specs import checked_reset, checked_step
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.utils.structures import copied, info_as_dictionaries, stack


class InProgressEpisode:
    """An episode in progress: steps one environment, and records the steps in lists.

    Args:
        env: an environment of any kind.
        initial_observation: the first observation, if the environment has been reset; None to reset it.
        episode_info: the information on the episode from that reset.

    Attributes:
        env: the environment, as an `Environment`.
        episode_info: information on the episode from the reset.
        observations: list of observations, including the first: one more than steps.
        actions, rewards, step_types, agent_infos, env_infos: lists with an entry per step.

    Raises:
        ValueError: `episode_info` is given, but no `initial_observation`.
    """

    def __init__(self, env: Any, initial_observation: Any = None, episode_info: dict | None = None) -> None:
        if initial_observation is None and episode_info is not None:
            raise ValueError("episode_info needs initial_observation: both are from the same reset. Give both, or neither.")
        self.env = as_environment(env)
        if initial_observation is None:
            initial_observation, episode_info = checked_reset(self.env.reset(), self.env)
        self.episode_info = {} if episode_info is None else copied(episode_info)
        self.observations = [copied(initial_observation)]
        self.actions: list = []
        self.rewards: list[float] = []
        self.step_types: list = []
        self.agent_infos: list[dict] = []
        self.env_infos: list[dict] = []

    def step(self, action: Any, agent_info: dict) -> Any:
        """Step the environment, and record copies, since environments and policies may reuse their memory.

        Args:
            action: the policy's action.
            agent_info: further information from the policy, with the same keys at every step.

        Returns:
            The new observation.
        """
        before, agent_info = copied(action), copied(agent_info)
        env_step = checked_step(self.env.step(action), self.env)
        reward = as_number(env_step.reward)
        self.observations.append(copied(env_step.observation))
        self.actions.append(before if env_step.action is action else copied(env_step.action))
        self.rewards.append(reward)
        self.step_types.append(env_step.step_type)
        self.agent_infos.append(agent_info)
        self.env_infos.append(copied(env_step.env_info))
        return self.observations[-1]

    def arrays(self) -> dict[str, Any]:
        """Return the steps so far: observations [T,...], actions, rewards, step_types, env_infos and agent_infos."""
        return dict(
            observations=stack(self.observations[:-1], self.env.observation_space),
            actions=stack(self.actions, self.env.action_space),
            rewards=np.array(self.rewards),
            env_infos=stack([info_as_dictionaries(info) for info in self.env_infos], name="env_info"),
            agent_infos=stack([info_as_dictionaries(info) for info in self.agent_infos], name="agent_info"),
            step_types=np.array(self.step_types, np.uint8),
        )

    def to_batch(self) -> EpisodeBatch:
        """Return the steps so far as a batch with one episode.

        Raises:
            AssertionError: no step has been taken.
        """
        assert self.rewards, "The episode has no steps yet: call step() first."
        return EpisodeBatch(
            env_spec=self.env.spec,
            **self.arrays(),
            last_observations=stack(self.observations[-1:], self.env.observation_space),
            episode_infos=stack([info_as_dictionaries(self.episode_info)]),
            lengths=np.array([len(self.rewards)]),
            validate=False,
        )

    @property
    def last_obs(self) -> Any:
        """The last observation so far."""
        return self.observations[-1]
