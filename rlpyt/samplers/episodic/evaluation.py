"""Plays single episodes: one as a dictionary of arrays, or many as an `EpisodeBatch`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from rlpyt.envs.adapters import as_environment
from rlpyt.envs.environment import Environment
from rlpyt.envs.specs import StepType, checked_action
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.samplers.episodic.in_progress import InProgressEpisode
from rlpyt.samplers.episodic.policies import OptionalMethods
from rlpyt.samplers.episodic.workers import as_policy, check_has, for_worker
from rlpyt.utils.settings import COUNT, Number, checked, has
from rlpyt.utils.structures import copied, from_structure, stack

ENVIRONMENT = has("an environment", "reset", "step")


@checked(env=ENVIRONMENT, max_episode_length=Number(1), speedup=Number(0, above=True, finite=True))
def rollout(
    env: Any,
    agent: Any,
    *,
    max_episode_length: float | None = math.inf,
    animated: bool = False,
    speedup: float = 1,
    deterministic: bool = False,
) -> dict[str, Any]:
    """Play one episode.

    Args:
        env: environment of any kind.
        agent: a policy, with ``get_action(observation)`` and ``reset()``, or an agent of rlpyt, which explores as in its last iteration of
            sampling.
        max_episode_length: env steps after which the episode is truncated; None, or infinity, for no limit.
        animated: show the environment while it runs, at about 20 steps per second.
        speedup: factor of the animation's speed.
        deterministic: replace actions by the ``mean`` in the policy's info, if any. An agent acts in evaluation mode, by the means of
            Gaussian distributions (see `rlpyt.agents.policy.AgentPolicy.acting_deterministically`).

    Returns:
        ``observations`` and ``next_observations`` [T,...], ``actions`` [T,...] as the agent chose them, ``rewards`` [T], ``agent_infos``
        and ``env_infos`` (dictionaries of arrays [T,...]), ``step_types`` [T] uint8, ``dones`` [T] bool (True where the episode
        terminated), and ``episode_infos``, the information on the whole episode.

    Raises:
        ValueError: max_episode_length is less than 1. TypeError: `agent` is no policy, or `env` no environment.
    """
    env = as_environment(env)
    with _playing(env, agent, deterministic) as (policy, by_mean):
        return _rollout(env, policy, max_episode_length, by_mean, animated, speedup)


@checked(env=ENVIRONMENT, max_episode_length=Number(1), num_eps=COUNT)
def obtain_evaluation_episodes(
    policy: Any, env: Any, max_episode_length: float | None = 1000, num_eps: int = 100, deterministic: bool = True
) -> EpisodeBatch:
    """Play episodes one after the other.

    Args:
        policy: a policy, with ``get_action(observation)`` and ``reset()``, or an agent of rlpyt.
        env: environment of any kind.
        max_episode_length: env steps after which an episode is truncated; None, or infinity, for no limit.
        num_eps: number of episodes.
        deterministic: see `rollout`.
    """
    env = as_environment(env)
    with _playing(env, policy, deterministic) as (playing, by_mean):
        spec = env.spec.of_agent(playing)
        return EpisodeBatch.from_list(spec, [_rollout(env, playing, max_episode_length, by_mean) for _ in range(num_eps)])


@contextmanager
def _playing(env: Any, agent: Any, deterministic: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the agent as a policy, prepared for the environment, and whether means must replace its actions to make it deterministic.

    The memory of the episodes that an agent is sampling is put aside, or the agent plays as a copy with a memory of its own.
    """
    policy = as_policy(agent)
    check_has(policy, ["get_action", "reset"], "a rollout")
    optional = OptionalMethods(policy)
    optional.prepare(env)
    if not deterministic:
        policy = for_worker(policy)
    with optional.acting_deterministically() if deterministic else nullcontext():
        yield policy, deterministic and "acting_deterministically" not in optional


def _rollout(
    env: Environment,
    policy: Any,
    max_episode_length: float | None,
    by_mean: bool,
    animated: bool = False,
    speedup: float = 1,
) -> dict:
    max_episode_length = math.inf if max_episode_length is None else max_episode_length
    if not max_episode_length >= 1:
        raise ValueError(f"max_episode_length={max_episode_length} must be at least 1 step.")
    episode = InProgressEpisode(env)
    policy.reset()
    if animated:
        env.visualize()
    optional = OptionalMethods(policy)
    step_types = episode.step_types
    while len(step_types) < max_episode_length and not (step_types and step_types[-1] >= StepType.TERMINAL):
        action, agent_info = checked_action(policy.get_action(episode.last_obs), policy, "get_action")
        agent_info = from_structure(agent_info)
        if by_mean and "mean" in agent_info:
            action = agent_info["mean"]
        for_env, chosen = optional.for_envs(action), copied(action)
        episode.step(for_env, agent_info)
        if for_env is not action:
            episode.actions[-1] = chosen
        optional.take_rewards(np.array(episode.rewards[-1:], np.float32))
        if animated:
            time.sleep(0.05 / speedup)
    if step_types[-1] < StepType.TERMINAL:
        step_types[-1] = StepType.TIMEOUT
    arrays = episode.arrays()
    return dict(
        arrays,
        episode_infos=episode.episode_info,
        next_observations=stack(episode.observations[1:], env.observation_space),
        rewards=arrays["rewards"].astype(np.float64, copy=False),
        dones=arrays["step_types"] == StepType.TERMINAL,
    )
