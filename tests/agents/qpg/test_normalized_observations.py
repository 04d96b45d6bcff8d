"""All models of agents with Q-functions can normalize observations by running statistics."""

import copy

import gymnasium
import numpy as np
import pytest
import torch
from tiers import processes
from transitions import EXAMPLES, SPACES, A, O, start, transitions

from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.ensemble_sac_agent import DiscreteSacAgent, EnsembleSacAgent
from rlpyt.agents.qpg.iql_agent import IqlAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_lstm_agent import SacLstmAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as SacVAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.base import normalization_of, start_targets
from rlpyt.algos.offline.iql import IQL
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.ensemble_sac import DiscreteSAC, EnsembleSAC
from rlpyt.algos.qpg.recurrent import RecurrentSAC
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.sac_v import SAC_V
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.envs.base import EnvSpaces
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.models.qpg.ensemble import QEnsembleModel
from rlpyt.models.qpg.lstm import MuLstmModel, PiLstmModel, QofMuLstmModel
from rlpyt.models.qpg.mlp import BoundedPiMlpModel, MuMlpModel, PiCategoricalMlpModel, PiMlpModel, QofMuMlpModel, VMlpModel
from rlpyt.models.running_mean_std import RunningMeanStdModel
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.collections import BatchSpec
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_leaves

CLIP = 1.5  # Low, so that it limits some observations.
SEEN = torch.randn(500, O, generator=torch.Generator().manual_seed(1)) * torch.tensor([3.0, 0.1, 0.0]) + torch.tensor([5.0, -2.0, 7.0])
SMALL = dict(hidden_sizes=[6])
NORMALIZED = dict(normalize_observation=True, norm_obs_clip=CLIP, norm_obs_var_clip=0.04)

PAIRS = {
    "DDPG": (DDPG, DdpgAgent, {}, {}),
    "TD3": (TD3, Td3Agent, {}, {}),
    "TD3+BC": (TD3, Td3Agent, dict(behavior_cloning=2.5), {}),
    "SAC": (SAC, SacAgent, {}, {}),
    "SAC with a value function": (SAC_V, SacVAgent, {}, {}),
    "IQL": (IQL, IqlAgent, {}, {}),
    "REDQ": (EnsembleSAC, EnsembleSacAgent, dict(n_target_critics=2), dict(n_critics=4)),
    "TQC": (EnsembleSAC, EnsembleSacAgent, {}, dict(n_quantiles=5)),
    "discrete SAC": (DiscreteSAC, DiscreteSacAgent, {}, {}),
}


def expected(observation):
    """Observations of `SEEN`'s kind as networks should see them, from the definition."""
    seen = SEEN.double().numpy()
    std = np.sqrt(np.maximum(seen.var(axis=0), 0.04))
    return torch.as_tensor(np.clip((observation.double().numpy() - seen.mean(axis=0)) / std, -CLIP, CLIP), dtype=torch.float32)


def like_seen(observation):
    """Turn standard normal numbers [...,O] into observations of `SEEN`'s kind; the last component varies although it was constant."""
    return observation * torch.tensor([3.0, 0.1, 0.2]) + torch.tensor([5.0, -2.0, 7.0])


def plain(state_dict):
    return {name: value for name, value in state_dict.items() if "obs_rms" not in name}


# --- Models -----------------------------------------------------------------------------------------------------------
MODELS = [
    (MuMlpModel, dict(hidden_sizes=[6], action_size=A), "o"),
    (PiMlpModel, dict(hidden_sizes=[6], action_size=A), "o"),
    (BoundedPiMlpModel, dict(hidden_sizes=[6], action_size=A), "o"),
    (PiCategoricalMlpModel, dict(hidden_sizes=[6], output_size=4), "o"),
    (QofMuMlpModel, dict(hidden_sizes=[6], action_size=A), "oa"),
    (VMlpModel, dict(hidden_sizes=[6]), "o"),
    (QEnsembleModel, dict(hidden_sizes=[6], action_size=A), "oa"),
    (MuLstmModel, dict(action_size=A, lstm_size=4, head_size=5), "os"),
    (PiLstmModel, dict(action_size=A, lstm_size=4, head_size=5), "os"),
    (QofMuLstmModel, dict(action_size=A, lstm_size=4, head_size=5), "osa"),
]


@pytest.mark.parametrize("lead", [(), (3,), (4, 3)])
@pytest.mark.parametrize("ModelCls, settings, takes", MODELS, ids=[Cls.__name__ for Cls, *_ in MODELS])
def test_a_model_computes_from_normalized_observations_what_another_does_from_observations(ModelCls, settings, takes, lead):
    model, other = ModelCls((O,), **settings, **NORMALIZED), ModelCls((O,), **settings)
    other.load_state_dict(plain(model.state_dict()))
    for part in SEEN.split([100, 399, 1]):
        model.update_obs_rms(part)
    observation = like_seen(torch.randn(*lead, O))
    rest = dict(s=None, a=torch.randn(*lead, A))
    others = torch.randn(*lead, A), torch.randn(lead), *(rest[each] for each in takes[1:])
    outputs, wanted = (list(buffer_leaves(each)) for each in (model(observation, *others), other(expected(observation), *others)))
    torch.testing.assert_close(outputs, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ModelCls, settings, takes", MODELS, ids=[Cls.__name__ for Cls, *_ in MODELS])
def test_models_that_earlier_versions_have_pickled_compute_the_same(ModelCls, settings, takes):
    """They have no attributes of normalization."""
    model = ModelCls((O,), **settings)
    inputs = torch.randn(3, O), torch.randn(3, A), torch.randn(3), *(dict(s=None, a=torch.randn(3, A))[each] for each in takes[1:])
    wanted = list(buffer_leaves(model(*inputs)))
    old = copy.deepcopy(model)
    for name in ("normalize_observation", "norm_obs_clip", "norm_obs_var_clip", "_normalizes"):
        del old.__dict__[name]
    torch.testing.assert_close(list(buffer_leaves(old(*inputs))), wanted)


def test_a_users_model_that_normalizes_by_itself_does_it_once():
    class Normalizes(PiMlpModel):
        def __init__(self, observation_shape, hidden_sizes, action_size):
            super().__init__(observation_shape, hidden_sizes, action_size)
            self.normalize_observation, self.obs_rms = True, RunningMeanStdModel(observation_shape)
            self.obs_rms.update(SEEN)

        def forward(self, observation, *others):
            return super().forward(self.obs_rms.normalize(observation, 10, 1e-6), *others)

    model, other = Normalizes((O,), [6], A), PiMlpModel((O,), [6], A)
    other.load_state_dict(plain(model.state_dict()))
    observation = SEEN[:5]
    wanted = other(model.obs_rms.normalize(observation, 10, 1e-6), None, None)
    torch.testing.assert_close(model(observation, None, None), wanted)


# --- Losses -----------------------------------------------------------------------------------------------------------
def pair(name, normalized):
    """Algorithm with its agent, the agent without any statistics yet."""
    AlgoCls, AgentCls, algo_settings, agent_settings = PAIRS[name]
    torch.manual_seed(0)
    networks = dict(SMALL, **(NORMALIZED if normalized else {}))
    values = dict(v_model_kwargs=networks) if AgentCls in (IqlAgent, SacVAgent) else {}
    agent = AgentCls(model_kwargs=networks, q_model_kwargs=networks, **values, **agent_settings)
    algo = AlgoCls(batch_size=8, min_steps_learn=8, learning_rate=1e-2, **algo_settings)
    if AlgoCls is not DiscreteSAC:
        return start(algo, agent), agent
    agent.initialize(EnvSpaces(SPACES.observation, IntBox(0, 4)))
    algo.replay_size = 100
    algo.initialize(agent, 10, BatchSpec(4, 2), True, dict(EXAMPLES, action=np.int64(0)))
    agent.train_mode(0)
    return algo, agent


def batches(name, form):
    """Three replayed batches, with observations in this form."""
    for seed in range(3):
        batch = transitions(seed)
        inputs, targets = (
            x._replace(observation=form(like_seen(x.observation))) for x in (batch.agent_inputs, batch.target_inputs)
        )  # fmt: skip
        action = batch.action if name != "discrete SAC" else (batch.action[:, 0] * 2 + 2).long()
        yield batch._replace(agent_inputs=inputs, target_inputs=targets, action=action)


@pytest.mark.parametrize("name", PAIRS)
def test_an_algorithm_trains_on_observations_as_another_on_normalized_ones(name):
    """Also where it computes several networks in one pass, and its targets."""
    trained = []
    for normalized, form in ((True, lambda x: x), (False, expected)):
        algo, agent = pair(name, normalized)
        if normalized:
            begin = copy.deepcopy({each: plain(x) for each, x in agent.state_dict().items()})
            assert normalization_of(agent) is not None
            agent.update_obs_rms(SEEN)
            start_targets(agent)
        else:
            assert normalization_of(agent) is None
            for each, model in agent.named_models().items():
                model.load_state_dict(begin[each])
        torch.manual_seed(3)
        for batch in batches(name, form):
            algo.update(batch)
            algo.update_counter += 1
            agent.update_target(0.1)
        trained.append({each: plain(x) for each, x in agent.state_dict().items()})
    for each, of_other in trained[1].items():
        torch.testing.assert_close(dict(trained[0][each]), dict(of_other), rtol=1e-3, atol=1e-4)
        moved = [not torch.equal(value, begin[each][key]) for key, value in of_other.items()]
        assert any(moved), each


def test_statistics_of_one_q_function_do_not_serve_the_other():
    """They differ if a run begins with Q-functions of two others."""
    _, agent = pair("TD3", True)
    agent.q_model.update_obs_rms(SEEN)
    agent.q2_model.update_obs_rms(2 * SEEN)
    observation, action = like_seen(torch.randn(5, O)), torch.randn(5, A)
    inputs = observation, torch.zeros(5, A), torch.zeros(5)
    with torch.no_grad(), agent.joint_q():
        q = agent.q(*inputs, action)
    for model, value in zip((agent.q_model, agent.q2_model), q):
        torch.testing.assert_close(value, model(*inputs, action))


# --- Training ---------------------------------------------------------------------------------------------------------
class Shifted(gymnasium.ObservationWrapper):
    """Pendulum far from where networks expect it."""

    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.observation_space = gymnasium.spaces.Box(-1000, 1000, (3,), np.float32)

    def observation(self, observation):
        return (100 + 20 * observation).astype(np.float32)


def make_shifted():
    return GymEnvWrapper(Shifted())


KINDS = {
    "SAC": (SAC, SacAgent, SMALL, dict(batch_size=16, replay_ratio=2)),
    "TD3": (TD3, Td3Agent, SMALL, dict(batch_size=16, replay_ratio=2)),
    "recurrent SAC": (
        RecurrentSAC, SacLstmAgent, dict(lstm_size=4, head_size=5),
        dict(batch_T=4, batch_B=4, warmup_T=2, replay_ratio=3, store_rnn_state_interval=1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_statistics_are_those_of_what_was_replayed_and_targets_follow(name):
    AlgoCls, AgentCls, sizes, settings = KINDS[name]
    agent = AgentCls(model_kwargs=dict(sizes, normalize_observation=True), q_model_kwargs=dict(sizes, normalize_observation=True))
    algo = AlgoCls(min_steps_learn=64, replay_size=1000, target_update_tau=0.3, target_update_interval=1, **settings)
    sampler = SerialSampler(make_shifted, {}, batch_T=8, batch_B=2, max_decorrelation_steps=0)
    run = MinibatchRl(algo=algo, agent=agent, sampler=sampler, n_steps=160, log_interval_steps=80, seed=0)
    seen, means, update_once = [], [], algo.update

    def update(batch):
        observations = algo.replayed_observations(batch)
        seen.append(observations.reshape(-1, 3).double())
        means.append(torch.cat(seen).mean(0))
        for model in agent.trained_models():
            assert model.obs_rms.count == sum(map(len, seen))
            torch.testing.assert_close(model.obs_rms.exact_mean, means[-1])
            torch.testing.assert_close(model.obs_rms.exact_var, torch.cat(seen).var(0, correction=0))
        return update_once(batch)

    algo.update = update
    run.train()
    assert len(seen) > 3 and means[-1].min() > 50
    follower = means[0]  # Targets begin with the first statistics, and move as all of their tensors do.
    for mean in means:
        follower = torch.lerp(follower, mean, 0.3)
    targets = [getattr(agent, target) for target in agent.target_names.values()]
    assert targets and agent.normalizes_observations
    for target in targets:
        torch.testing.assert_close(target.obs_rms.exact_mean, follower)


@processes
def test_workers_act_by_the_statistics(nothing_is_left_behind):
    agent = SacAgent(model_kwargs=dict(SMALL, normalize_observation=True), q_model_kwargs=dict(SMALL, normalize_observation=True))
    sampler = CpuSampler(make_shifted, {}, batch_T=4, batch_B=2, max_decorrelation_steps=0)
    sampler.initialize(agent, affinity=dict(workers_cpus=[0, 1], set_affinity=False), seed=0)
    try:
        agent.update_obs_rms(100 + 20 * torch.randn(50, 3))
        samples, _ = sampler.obtain_samples(0)
        observation, mean = samples.env.observation, samples.agent.agent_info.dist_info.mean
        other = PiMlpModel((3,), [6], 1)
        other.load_state_dict(plain(agent.model.state_dict()))
        rms = agent.model.obs_rms
        wanted, _ = other(((observation - rms.mean) / rms.var.sqrt()).clamp(-10, 10), None, None)
        torch.testing.assert_close(mean, wanted, rtol=1e-4, atol=1e-5)
        assert rms.mean.min() > 50
    finally:
        sampler.shutdown()
