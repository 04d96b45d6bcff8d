"""Policies, environments and oracles for tests of episodic samplers: importable as ``policies_for_tests`` here and in spawned processes."""

import random

import gymnasium
import numpy as np
import torch
from envs import CountingEnv
from gymnasium import spaces

from rlpyt.envs.base import EnvStep
from rlpyt.envs.grid_world import GridWorldEnv
from rlpyt.episodes import Environment, EnvSpec, StepType
from rlpyt.episodes import EnvStep as WholeStep
from rlpyt.samplers.episodic import WorkerFactory

PATH = [1, 1, 2, 1, 2, 2]  # From the start of the 4x4 grid to its goal, by moves.
TO_GOAL = {0: 1, 4: 1, 8: 2, 9: 1, 13: 2, 14: 2}  # The same by squares.


class ScriptedPolicy:
    """Does what a table says, and nothing else; counts what it is asked for."""

    def __init__(self, table=TO_GOAL, default=0):
        self.table, self.default, self.resets, self.n_calls = dict(table), default, [], 0

    def get_action(self, observation):
        self.n_calls += 1
        return self.table.get(int(observation), self.default), {"twice": 2.0 * float(observation)}

    def get_actions(self, observations):
        steps = [self.get_action(observation) for observation in observations]
        return np.array([a for a, _ in steps]), {"twice": np.array([info["twice"] for _, info in steps])}

    def reset(self, do_resets=None):
        self.resets.append(do_resets)

    def get_param_values(self):
        return {"keys": np.array(list(self.table)), "values": np.array(list(self.table.values()))}

    def set_param_values(self, params):
        self.table = dict(zip(params["keys"].tolist(), params["values"].tolist()))


class RandomPolicy:
    """Draws from numpy's global generator."""

    def __init__(self, n_actions=3):
        self.n_actions = n_actions

    def get_action(self, observation):
        return np.random.randint(self.n_actions), {}

    def get_actions(self, observations):
        return np.random.randint(self.n_actions, size=len(observations)), {}

    def reset(self, do_resets=None):
        pass


def factory(worker_class, n_workers=1, seed=3, max_episode_length=100, **worker_args):
    return WorkerFactory(
        seed=seed, max_episode_length=max_episode_length, n_workers=n_workers, worker_class=worker_class, worker_args=worker_args
    )


def worker(worker_class, policy, env, number=0, n_workers=1, **kwargs):
    made = factory(worker_class, max(n_workers, number + 1), **kwargs)(number)
    made.update_agent(policy)
    made.update_env(env)
    return made


def grid():
    return GridWorldEnv("4x4")


class PictureEnv(CountingEnv):
    """A CountingEnv whose observation is large: 20,000 numbers, all of them the step in the episode."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        from rlpyt.spaces.float_box import FloatBox

        self._observation_space = FloatBox(0.0, 1e6, shape=(20_000,))

    def _observation(self):
        return np.full(20_000, self.t, np.float32)


class RandomLengthEnv(CountingEnv):
    """A CountingEnv whose episodes take 1 or `long` steps, each with probability 1/2, by its own seed."""

    def __init__(self, long=30):
        super().__init__(episode_length=long)
        self.long, self._lengths_rng = long, np.random.default_rng(0)

    def seed(self, seed):
        super().seed(seed)
        self._lengths_rng = np.random.default_rng(seed)

    def reset(self):
        observation = super().reset()
        self._next_end = self.long if self._lengths_rng.random() < 0.5 else 1
        return observation


class RememberingPolicy(torch.nn.Module):
    """Acts by its parameter, and by what it has seen in the episode so far, which it remembers in two ways."""

    def __init__(self, value=1.0):
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor(value))
        self.register_buffer("seen", torch.zeros(8))
        self.n_steps = [0] * 8

    def get_action(self, observation):
        actions, infos = self.get_actions(np.asarray(observation)[None])
        return actions[0], {name: value[0] for name, value in infos.items()}

    def get_actions(self, observations):
        for b, observation in enumerate(observations):
            self.n_steps[b] += 1
            self.seen[b] += float(np.sum(observation))
        action = (self.seen.numpy()[: len(observations)] * 1000 * self.value.item()).astype(int) % 3
        return action, {"n_steps": np.array(self.n_steps[: len(observations)])}

    def reset(self, do_resets=None):
        for b in range(8) if do_resets is None else np.flatnonzero(do_resets):
            self.n_steps[b], self.seen[b] = 0, 0.0

    def get_param_values(self):
        return {"value": self.value.detach().clone()}

    def set_param_values(self, params):
        self.value.data.copy_(params["value"])


class NoisyEnvironment(Environment):
    """Observes random numbers of a generator that nothing seeds, for four steps."""

    observation_space, action_space = spaces.Box(0, 1, (1,), np.float64), spaces.Discrete(3)
    spec, render_modes = EnvSpec(observation_space, action_space, 4), ()

    def __init__(self):
        self._hidden = {"inside": [np.random.default_rng(0)]}

    def observe(self):
        return self._hidden["inside"][0].uniform(size=1)

    def reset(self):
        self._t = 0
        return self.observe(), {}

    def step(self, action):
        self._t += 1
        return WholeStep(self.spec, action, 1.0, self.observe(), {}, StepType.get_step_type(self._t, 4, False))

    def render(self, mode):
        pass

    def visualize(self):
        pass

    def close(self):
        pass


class TellingGym(gymnasium.Env):
    """Observes text that grows by a letter with each step, alone or in a structure; episodes take four steps."""

    action_space = spaces.Discrete(3)

    def __init__(self, kind="text"):
        text, numbers = spaces.Text(9), spaces.Box(0, 9, (2,))
        parts = {"words": text, "numbers": numbers}
        self.kind = kind
        self.observation_space = {"text": text, "dict": spaces.Dict(parts), "tuple": spaces.Tuple((text, numbers))}[kind]

    def observe(self):
        text, numbers = "x" * (self.t + 1), np.full(2, self.t, np.float32)
        return {"text": text, "dict": {"words": text, "numbers": numbers}, "tuple": (text, numbers)}[self.kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        return self.observe(), 1.0, self.t == 4, False, {}


class NoisyGym(gymnasium.Env):
    """The same for gymnasium: `reset` takes a seed, and ignores it."""

    observation_space, action_space = NoisyEnvironment.observation_space, NoisyEnvironment.action_space

    def __init__(self):
        self.mine = random.Random(0)

    def observe(self):
        return np.array([self.mine.random()])

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        return self.observe(), 1.0, self.t == 4, False, {}


class NoisyRlpytEnv(CountingEnv):
    """The same for rlpyt: `seed` leaves the generator alone."""

    def __init__(self):
        super().__init__(episode_length=4)
        self._mine = np.random.RandomState(0)

    def _observation(self):
        return self._mine.uniform(size=super()._observation().shape).astype(np.float32)


def noisy_envs():
    """Environments that share their random numbers with their copies, if nobody takes care."""
    return dict(environment=NoisyEnvironment(), gym=NoisyGym(), wrapped=gymnasium.wrappers.TimeLimit(NoisyGym(), 9), rlpyt=NoisyRlpytEnv())


def n_different(episodes):
    """How many of the episodes are not a repetition of another one."""
    return len({x.tobytes() for x in episodes.observations_list})


def by_hand(env, policy, limit=100):
    """One episode of an rlpyt environment, as lists."""
    observation, lists = env.reset(), dict(observations=[], actions=[], rewards=[], next_observations=[])
    for _ in range(limit):
        action, _ = policy.get_action(observation)
        next_observation, reward, done, info = EnvStep(*env.step(action))
        for name, value in zip(lists, (observation, action, reward, next_observation)):
            lists[name].append(value)
        observation = next_observation
        if done:
            break
    return lists, done and not info.timeout
