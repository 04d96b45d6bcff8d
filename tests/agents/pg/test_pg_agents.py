import numpy as np
import pytest
import torch
from envs import CountingEnv
from ranks import run_ranks
from tiers import processes

from rlpyt.agents.base import AgentInputs
from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.distributions.gaussian import Gaussian
from rlpyt.envs.base import EnvSpaces
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.collections import dynamic_namedtuple

IMAGES, VECTORS, NUMBERS = IntBox(0, 256, (2, 36, 36), dtype="uint8"), FloatBox(-1, 1, (4,)), IntBox(0, 7)
DISCRETE, CONTINUOUS = IntBox(0, 3), FloatBox(-2, 2, (2,))
Parts = dynamic_namedtuple("Parts", ["camera", "speed"])
COMPOSITE = Composite([FloatBox(-1, 1, (2, 2)), FloatBox(-1, 1, ())], Parts)

AGENTS = {
    "images": (AtariFfAgent, IMAGES, DISCRETE),
    "vectors": (MlpFfAgent, VECTORS, DISCRETE),
    "numbers": (MlpFfAgent, NUMBERS, DISCRETE),
    "structures": (MlpFfAgent, COMPOSITE, DISCRETE),
    "mujoco": (MujocoFfAgent, VECTORS, CONTINUOUS),
    "gaussian": (MlpGaussianFfAgent, VECTORS, CONTINUOUS),
    "gaussian structures": (MlpGaussianFfAgent, COMPOSITE, CONTINUOUS),
}


def sample(space, *lead):
    if isinstance(space, Composite):
        return Parts(*(sample(part, *lead) for part in space.spaces))
    values = np.asarray([space.sample() for _ in range(int(np.prod(lead)))])
    return torch.from_numpy(values).reshape((*lead, *space.shape))


def make(AgentCls, observation_space, action_space, **kwargs):
    agent = AgentCls(**kwargs)
    agent.initialize(EnvSpaces(observation_space, action_space))
    return agent


@pytest.fixture(params=AGENTS)
def case(request):
    torch.manual_seed(0)
    _, observation_space, action_space = AGENTS[request.param]
    return make(*AGENTS[request.param]), lambda *lead: AgentInputs(
        sample(observation_space, *lead), sample(action_space, *lead), torch.zeros(lead)
    )


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_a_step_gives_actions_and_what_training_needs(case, lead):
    agent, inputs = case
    step = agent.step(*inputs(*lead))
    assert step.action.shape == (*lead, *agent.env_spaces.action.shape)
    assert step.agent_info.value.shape == lead and agent.value(*inputs(*lead)).shape == lead
    for part in step.agent_info.dist_info:
        assert part.shape == (*lead, agent.distribution.dim) and not part.requires_grad
    assert agent.distribution.log_likelihood(step.action, step.agent_info.dist_info).shape == lead


def test_training_sees_what_the_step_saw(case):
    agent, inputs = case
    batch = inputs(2, 3)
    step = agent.step(*batch)
    dist_info, value = agent(*batch)
    assert value.requires_grad and all(part.requires_grad for part in dist_info)
    torch.testing.assert_close(value.detach(), step.agent_info.value, rtol=1e-4, atol=1e-5)
    for now, then in zip(tuple(dist_info), tuple(step.agent_info.dist_info)):
        torch.testing.assert_close(now.detach(), then, rtol=1e-4, atol=1e-5)


def test_recorded_values_are_constants_of_a_loss(case):
    agent, inputs = case
    batch = inputs(2, 3)
    step = agent.step(*batch)
    recorded = (step.agent_info.value, *step.agent_info.dist_info)
    before = [part.clone() for part in recorded]
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    for _ in range(2):
        dist_info, value = agent(*batch)
        ratio = agent.distribution.likelihood_ratio(step.action, step.agent_info.dist_info, dist_info)
        optimizer.zero_grad()
        ((value - step.agent_info.value - 1).square() - ratio).mean().backward()
        optimizer.step()
    assert all(map(torch.equal, recorded, before))


def test_steps_repeat_with_the_seed(case):
    agent, inputs = case
    batch = inputs(5)
    torch.manual_seed(1)
    first = agent.step(*batch).action
    torch.manual_seed(1)
    assert torch.equal(agent.step(*batch).action, first)


class SeesPrevAction(torch.nn.Module):
    def __init__(self, **kwargs):
        super().__init__()
        self.seen = None

    def forward(self, observation, prev_action, prev_reward):
        self.seen = prev_action
        return torch.full((*prev_action.shape[:-1], 3), 1 / 3), torch.zeros(prev_action.shape[:-1])


def test_a_users_model_receives_the_previous_action_one_hot():
    agent = make(MlpFfAgent, VECTORS, DISCRETE, ModelCls=SeesPrevAction)
    agent.step(torch.zeros(2, 4), torch.tensor([2, 0]), torch.zeros(2))
    assert agent.model.seen.tolist() == [[0, 0, 1], [1, 0, 0]]
    agent(torch.zeros(2, 4), torch.tensor([1, 0]), torch.zeros(2))
    assert agent.model.seen.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_observation_statistics_reach_the_model():
    agent = make(MujocoFfAgent, VECTORS, CONTINUOUS, model_kwargs=dict(normalize_observation=True))
    observation = torch.randn(5, 3, 4)
    agent.update_obs_rms(observation)
    torch.testing.assert_close(agent.model.obs_rms.mean, observation.mean((0, 1)))
    assert agent.state_dict()["obs_rms.count"] == 15


@processes
def test_observation_statistics_reach_worker_processes():
    agent = MujocoFfAgent(model_kwargs=dict(normalize_observation=True))
    sampler = CpuSampler(CountingEnv, dict(n_actions=0, episode_length=[4, 2]), batch_T=5, batch_B=4, max_decorrelation_steps=0)
    sampler.initialize(agent, affinity=dict(workers_cpus=[0, 1], set_affinity=False), seed=0)
    try:
        for itr in range(2):
            agent.sample_mode(itr)
            samples, _ = sampler.obtain_samples(itr)
            agent.train_mode(itr)
            _, value = agent(samples.env.observation, samples.agent.prev_action, samples.env.prev_reward)
            torch.testing.assert_close(samples.agent.agent_info.value, value.detach())
            agent.update_obs_rms(samples.env.observation)
            _, changed = agent(samples.env.observation, samples.agent.prev_action, samples.env.prev_reward)
            assert not torch.allclose(changed, value)
    finally:
        sampler.shutdown()


def normalize_in_a_rank(rank, results):
    torch.manual_seed(rank)  # Data-parallel training starts from rank 0's parameters.
    agent = make(MujocoFfAgent, VECTORS, CONTINUOUS, model_kwargs=dict(normalize_observation=True))
    agent.data_parallel()
    observation = ranks_observation(rank)
    for _ in range(2):
        agent.update_obs_rms(observation)
    results[rank] = torch.cat([agent.state_dict()["obs_rms.exact_mean"], agent.state_dict()["obs_rms.exact_var"]])
    if rank == 0:
        agent.eval_mode(0)
        agent.step(torch.zeros(4), torch.zeros(2), torch.zeros(()))  # One rank alone may use the model.
    agent.train_mode(0)
    agent(observation, torch.zeros(5, 3, 2), torch.zeros(5, 3))[1].sum().backward()
    agent.model = None


def ranks_observation(rank):
    return torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(rank)) * (1 + rank) + 10 * rank


@processes
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_observation_statistics_are_of_all_ranks_together_and_equal_in_them():
    results = torch.zeros(2, 8, dtype=torch.float64).share_memory_()
    run_ranks(normalize_in_a_rank, results)
    assert torch.equal(results[0], results[1])
    everything = torch.cat([ranks_observation(rank) for rank in range(2)]).double().view(-1, 4)
    torch.testing.assert_close(results[0, :4], everything.mean(0))
    torch.testing.assert_close(results[0, 4:], everything.var(0, correction=0))


@pytest.mark.parametrize("AgentCls", [MujocoFfAgent, MlpGaussianFfAgent])
def test_evaluation_may_be_deterministic(AgentCls):
    batch = torch.zeros(3, 4), torch.zeros(3, 2), torch.zeros(3)
    for deterministic in (True, False):
        agent = make(AgentCls, VECTORS, CONTINUOUS, deterministic_eval=deterministic)
        agent.eval_mode(0)
        action, info = agent.step(*batch)
        assert torch.equal(action, info.dist_info.mean) is deterministic
        for mode in (agent.sample_mode, agent.train_mode):
            mode(1)
            action, info = agent.step(*batch)
            assert not torch.equal(action, info.dist_info.mean)
            expected = (info.dist_info.log_std + 0.5 * np.log(2 * np.pi * np.e)).sum(-1)
            torch.testing.assert_close(agent.distribution.entropy(info.dist_info), expected)


def test_deterministic_evaluation_leaves_a_standard_deviation_of_ones_own_alone():
    class Fixed(MujocoFfAgent):
        def make_distribution(self, action_space):
            return Gaussian(dim=2, std=0.1)

    agent = make(Fixed, VECTORS, CONTINUOUS, deterministic_eval=True)
    batch = torch.zeros(4000, 4), torch.zeros(4000, 2), torch.zeros(4000)
    for mode, std in (("sample", 0.1), ("eval", 0), ("eval", 0), ("train", 0.1), ("sample", 0.1)):
        getattr(agent, f"{mode}_mode")(0)
        action, info = agent.step(*batch)
        assert (action - info.dist_info.mean).std().item() == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize(
    "AgentCls, observation_space, action_space, advice",
    [
        (AtariFfAgent, VECTORS, DISCRETE, "MlpFfAgent"),
        (AtariFfAgent, IMAGES, CONTINUOUS, "MlpGaussianFfAgent"),
        (MlpFfAgent, VECTORS, CONTINUOUS, "MlpGaussianFfAgent"),
        (MlpFfAgent, VECTORS, IntBox(0, 3, (2,)), "discrete"),
        (MlpFfAgent, VECTORS, IntBox(1, 4), "starts at 1"),
        (MlpGaussianFfAgent, VECTORS, DISCRETE, "MlpFfAgent"),
        (MujocoFfAgent, VECTORS, IntBox(0, 3, (2,)), "MlpCompositeFfAgent"),
    ],
)
def test_an_agent_for_other_spaces_says_which_one_to_use(AgentCls, observation_space, action_space, advice):
    with pytest.raises(ValueError, match=advice):
        make(AgentCls, observation_space, action_space)


def test_constructor_arguments_are_attributes():
    agent = AtariFfAgent(model_kwargs=dict(fc_sizes=8), initial_model_state_dict={})
    assert agent.model_kwargs == dict(fc_sizes=8) and agent.initial_model_state_dict == {}
    assert make(AtariFfAgent, IMAGES, DISCRETE, model_kwargs=dict(fc_sizes=8)).model.conv.output_size == 8


LARGE, SMALL = FloatBox(-2, 2, (2,)), FloatBox(-0.4, 0.4, (2,))


@pytest.mark.parametrize(
    "AgentCls, settings, space, warns",
    [
        (MujocoFfAgent, dict(), LARGE, True),
        (MujocoFfAgent, dict(rescale_actions=False), FloatBox([-1, 0], [1, 3]), True),
        (MujocoFfAgent, dict(rescale_actions=False), FloatBox([-3], [1]), True),
        (MujocoFfAgent, dict(), FloatBox([-1, 0], [1, 3]), False),  # Rescaled.
        (MujocoFfAgent, dict(rescale_actions=True), LARGE, False),
        (MujocoFfAgent, dict(model_kwargs=dict(mu_nonlinearity=None)), LARGE, False),
        (MujocoFfAgent, dict(), SMALL, False),
        (MlpGaussianFfAgent, dict(), LARGE, False),
    ],
)
def test_actions_that_no_mean_reaches_are_told(AgentCls, settings, space, warns, capsys):
    AgentCls(**settings).initialize(EnvSpaces(VECTORS, space))
    assert ("rescale_actions=True, or mu_nonlinearity=None" in capsys.readouterr().out) == warns
