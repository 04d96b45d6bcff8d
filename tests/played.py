"""Environments that write down all they do, and the slow and obvious way from that to episodes: importable as ``played``."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from agents_for_tests import RecordingAgent, StructuredAgent
from envs import CountingEnv, make_structured
from gymnasium import spaces
from hypothesis import strategies as st

from rlpyt.episodes import EnvSpec, EpisodeBatch, StepType
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.structures import from_structure, tree_map

SPEC = EnvSpec(spaces.Box(-1, 1e6, (4,)), spaces.Discrete(3))  # Of a CountingEnv.

# Keyword arguments of a CountingEnv.
ENVS = st.fixed_dictionaries(
    dict(
        episode_length=st.lists(st.integers(1, 7), min_size=1, max_size=4),
        end=st.lists(st.sampled_from(["terminated", "timeout", "life"]), min_size=1, max_size=4),
    )
)


class Diary:
    """Wraps an environment, and writes down every step: a dictionary of copies. Environments of one test share `all_of_them`."""

    def __init__(self, env: Any, all_of_them: list) -> None:
        self.env, self.steps, self.observation = env, [], None
        all_of_them.append(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self) -> Any:
        observation = self.env.reset()
        self.observation = copy.deepcopy(observation)
        return observation

    def step(self, action: Any) -> Any:
        step = observation, reward, done, info = self.env.step(action)
        self.steps.append(
            dict(
                observation=self.observation,
                action=copy.deepcopy(action),
                reward=reward,
                next_observation=copy.deepcopy(observation),
                env_info=copy.deepcopy(info),
                done=bool(done),
                traj_done=bool(getattr(info, "traj_done", done)),
                timeout=bool(done and getattr(info, "timeout", False)),
            )
        )
        self.observation = copy.deepcopy(observation)
        return step


class Play:
    """A serial sampler, whose environments keep diaries.

    Attributes:
        diaries: of the environments, one per column.
    """

    def __init__(self, T, B, make_env=CountingEnv, env=None, wait_reset=False, agent=None, decorrelation=0, seed=3, **kwargs):
        self.made: list = []
        self.T, self.B, self.wait_reset = T, B, wait_reset
        self.sampler = SerialSampler(
            EnvCls=lambda: Diary(make_env(**(env or {})), self.made),
            env_kwargs={},
            batch_T=T,
            batch_B=B,
            CollectorCls=CpuWaitResetCollector if wait_reset else CpuResetCollector,
            max_decorrelation_steps=decorrelation,
            **{"keep_terminal_observations": True, **kwargs},
        )
        agent = agent or (StructuredAgent() if make_env is make_structured else RecordingAgent())
        self.sampler.initialize(agent, seed=seed, bootstrap_value=True)
        self.diaries = self.made[-B:]  # Another was made for examples.
        self.itr = -1

    def batch(self):
        """Return the next batch, and the steps that were taken for it, a list per column."""
        before = [len(diary.steps) for diary in self.diaries]
        self.itr += 1
        samples, _ = self.sampler.obtain_samples(self.itr)
        return samples, [diary.steps[n:] for diary, n in zip(self.diaries, before)]


def split(steps: list[dict], boundary: str = "done") -> list[list[dict]]:
    """Return steps of one environment as pieces, each ending with the end of an episode or with the last step."""
    pieces, piece = [], []
    for step in steps:
        piece.append(step)
        if step[boundary]:
            pieces.append(piece)
            piece = []
    return pieces + [piece] * bool(piece)


def ends(piece: list[dict], boundary: str = "done") -> bool:
    return piece[-1][boundary]


def as_episodes(pieces: list[list[dict]], begins: list[bool], boundary: str = "done") -> list[dict]:
    """Return what each piece must become, as `EpisodeBatch.to_list` returns it, but agent_infos."""
    episodes = []
    for piece, begin in zip(pieces, begins):
        types = [StepType.FIRST if begin and t == 0 else StepType.MID for t in range(len(piece))]
        if ends(piece, boundary):
            types[-1] = StepType.TERMINAL if piece[-1]["done"] and not piece[-1]["timeout"] else StepType.TIMEOUT
        columns = {
            name: [from_structure(step[key]) for step in piece]
            for name, key in (
                ("observations", "observation"),
                ("next_observations", "next_observation"),
                ("actions", "action"),
                ("rewards", "reward"),
                ("env_infos", "env_info"),
            )
        }
        stacked = {name: tree_map(lambda *x: np.stack([np.asarray(y) for y in x]), *values) for name, values in columns.items()}
        episodes.append({**stacked, "step_types": np.array(types)})
    return episodes


def assert_episodes(batch: EpisodeBatch, expected: list[dict]) -> None:
    """The batch holds exactly the expected episodes, in their order; what the agent recorded is what it must have seen."""
    got = batch.to_list()
    assert batch.lengths.tolist() == [len(episode["rewards"]) for episode in expected]
    for mine, theirs in zip(got, expected):
        for name, values in theirs.items():
            tree_map(lambda x, y, name=name: np.testing.assert_allclose(x, y, rtol=1e-6, err_msg=name), mine[name], values)
        tree_map(np.testing.assert_array_equal, mine["agent_infos"]["observation"], mine["observations"])
