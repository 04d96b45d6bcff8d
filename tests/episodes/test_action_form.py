"""Batches keep actions as agents chose them, and say how they become those that environments got, which other programs are given."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.agents.pg.composite import MlpCompositeFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent
from rlpyt.envs.base import ActionForm
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.episodes import EnvSpec, EpisodeAssembler, EpisodeBatch, TimeStepBatch, obtain_evaluation_episodes
from rlpyt.episodes.minari import from_minari, to_minari
from rlpyt.replays.episode import EpisodeReplayBuffer
from rlpyt.runners.offline_rl import episodes_of
from rlpyt.samplers.episodic import LocalSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.structures import leaves

ANY = spaces.Box(np.float32([0, -2]), np.float32([1, 6]))
ALIKE = spaces.Box(-1, 1, (2,), np.float32)
STRUCTURE = spaces.Dict({"a.b": ANY, "n": spaces.Discrete(3)})


class Telling(gymnasium.Env):
    """Its info has the real numbers of the action that it got. Episodes have 5 steps."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)

    def __init__(self, action_space=ANY):
        self.action_space = action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        got = action["a.b"] if isinstance(action, dict) else action
        return np.full(3, 0.1 * self.t, np.float32), 0.0, self.t == 5, False, dict(got=np.array(got, np.float32))


def make(**kwargs):
    return GymEnvWrapper(Telling(**kwargs))


def agent_for(space=ANY):
    AgentCls = MlpCompositeFfAgent if space is STRUCTURE else MlpGaussianFfAgent
    return AgentCls(model_kwargs=dict(hidden_sizes=[4], init_log_std=0.5))


def sampled(space=ANY):
    torch.manual_seed(0)  # Some actions must be outside the bounds, also of the steps that a test picks out.
    agent = agent_for(space)
    sampler = SerialSampler(make, dict(action_space=space), 10, 2, max_decorrelation_steps=0, keep_terminal_observations=True)
    sampler.initialize(agent, seed=1, bootstrap_value=True)
    samples, _ = sampler.obtain_samples(0)
    sampler.shutdown()
    return samples, EnvSpec.from_env(make(action_space=space), agent)


def numbers(batch):
    return dict(leaves(batch.actions)).get("a_b", batch.actions)


def check(batch):
    assert not np.array_equal(numbers(batch), batch.env_infos["got"])
    for_envs = batch.for_envs()
    np.testing.assert_array_equal(numbers(for_envs), batch.env_infos["got"])
    assert for_envs.env_spec == dataclasses.replace(batch.env_spec, action_form=ActionForm()) != batch.env_spec
    assert for_envs.for_envs() is for_envs
    return for_envs


@pytest.mark.parametrize("space", [ANY, ALIKE, STRUCTURE])
def test_a_batch_of_a_sampler_knows_the_actions_that_environments_got(space):
    samples, spec = sampled(space)
    batch = EpisodeBatch.from_samples(samples, spec, first=True)
    recorded = samples.agent.action.a_b if space is STRUCTURE else samples.agent.action
    np.testing.assert_array_equal(numbers(batch), np.asarray(recorded).swapaxes(0, 1).reshape(-1, 2))
    check(batch)
    check(batch.select([1, 0]))
    check(EpisodeBatch.concatenate(batch, batch))
    check(TimeStepBatch.from_episode_batch(batch).take(np.array([3, 7])))
    check(batch.torch())
    assembler = EpisodeAssembler(spec, 2, first=True)
    check(assembler.push(samples))


def test_so_do_episodes_of_samplers_of_episodes_and_of_evaluations():
    sampler = LocalSampler(agents=agent_for(), envs=Telling(), max_episode_length=10, n_workers=1)
    check(sampler.obtain_samples(0, 20, None))
    sampler.shutdown_worker()
    check(obtain_evaluation_episodes(agent_for(), Telling(), num_eps=2, deterministic=False))


def test_the_spec_is_that_of_the_environment_if_actions_are_its_own():
    unbounded = make(action_space=spaces.Box(-np.inf, np.inf, (2,), np.float32))
    spec = EnvSpec.from_env(unbounded)
    assert spec.of_agent(MlpGaussianFfAgent()) is spec and spec.action_form == ActionForm()
    assert EnvSpec.from_env(make(), MlpGaussianFfAgent(clip_actions=False, rescale_actions=False)) == EnvSpec.from_env(make())
    assert EnvSpec.from_env(make(action_space=spaces.Discrete(3)), MlpFfAgent()).action_form == ActionForm()
    assert EnvSpec.from_env(make(), MlpGaussianFfAgent()).action_form == ActionForm(clip=True, rescale="auto")
    assert EnvSpec.from_env(make(action_space=ALIKE), MlpGaussianFfAgent()).action_form == ActionForm(clip=True)


def test_a_buffer_keeps_them_and_refuses_others():
    batch = EpisodeBatch.from_samples(*sampled(), first=True)
    buffer = EpisodeReplayBuffer(100, EnvSpec.from_env(make()))
    buffer.append_episodes(batch)
    check(buffer.episodes())
    other = EpisodeReplayBuffer(100, EnvSpec.from_env(make()))
    other.load_state_dict(buffer.state_dict())
    check(other.sample_timesteps(10))
    with pytest.raises(ValueError, match=r"must be in the same units, but some .* rescale='auto'.*: join the results of for_envs\(\)"):
        buffer.append_episodes(batch.for_envs())
    with pytest.raises(ValueError, match="must be in the same units"):
        EpisodeBatch.concatenate(batch, batch.for_envs())
    older = {name: value for name, value in buffer.state_dict().items() if name != "action_form"}
    other.load_state_dict(older)
    assert other.n_episodes == batch.n_episodes


def test_a_buffer_without_a_spec_keeps_them_in_a_checkpoint():
    batch = EpisodeBatch.from_samples(*sampled(), first=True)
    buffer, restored = EpisodeReplayBuffer(200), EpisodeReplayBuffer(200)
    buffer.append_episodes(batch)
    restored.load_state_dict(buffer.state_dict())
    assert restored.env_spec is None and restored.state_dict()["action_form"] == buffer.state_dict()["action_form"]
    with pytest.raises(ValueError, match="must be in the same units"):
        restored.append_episodes(batch.for_envs())
    assert restored.env_spec is None and restored.n_episodes == buffer.n_episodes
    for read in (restored.episodes, lambda: restored.sample_episodes(1), lambda: restored.sample_timesteps(1)):
        with pytest.raises(ValueError, match=r"only an EnvSpec tells .*: make the buffer with env_spec, and load the state again"):
            read()
    assert len(restored.sample_transitions(3)["actions"]) == 3 and len(restored.sample_path()["actions"])
    restored.append_episodes(batch)
    assert restored.env_spec == batch.env_spec
    check(restored.episodes())


def test_other_programs_get_the_actions_of_environments(tmp_path, monkeypatch):
    batch = EpisodeBatch.from_samples(*sampled(), first=True)
    np.testing.assert_array_equal(episodes_of(batch).actions, batch.env_infos["got"])
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    np.testing.assert_array_equal(from_minari(to_minari(batch, "telling/test-v0")).actions, batch.env_infos["got"])
