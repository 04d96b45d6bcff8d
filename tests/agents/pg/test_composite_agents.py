"""Agents that act by several numbers at once, of different kinds: with all samplers, and learning."""

import copy

import numpy as np
import pytest
import torch
from collecting import KINDS, ONE_OF_EACH, collect, kinds
from envs import make_structured
from gymnasium import spaces
from ranks import process_group
from tiers import full, learning

from rlpyt.agents.pg.composite import AlternatingMlpCompositeLstmAgent, MlpCompositeFfAgent, MlpCompositeLstmAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.distributions.categorical import Categorical
from rlpyt.distributions.composite import Composite as CompositeDistribution
from rlpyt.distributions.gaussian import Gaussian, ShapedGaussian
from rlpyt.distributions.multi_categorical import MultiCategorical
from rlpyt.envs.base import Env, EnvSpaces, EnvStep
from rlpyt.models.utils import unwrap_ddp
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.collections import dynamic_namedtuple

Shot = dynamic_namedtuple("Shot", ["target", "aim"])
OBSERVATION, ACTION = FloatBox(-1, 1, (4,)), Composite([IntBox(0, 3), FloatBox(-1, 1, (1,))], Shot)


class AimEnv(Env):
    """Which of the first three numbers seen is the largest, and how large is the fourth?

    The reward is 1 for the right target, less the squared error of the aim; episodes last 5 steps.
    """

    def __init__(self):
        self._observation_space, self._action_space = copy.deepcopy((OBSERVATION, ACTION))

    def reset(self):
        self.t = 0
        return self.observe()

    def observe(self):
        self.observation = self.observation_space.sample()
        return self.observation

    def step(self, action):
        self.t += 1
        right = int(action.target) == self.observation[:3].argmax()
        reward = float(right) - float((action.aim[0] - self.observation[3]) ** 2)
        return EnvStep(self.observe(), reward, self.t == 5, None)


def make(AgentCls, action_space=ACTION, **model_kwargs):
    torch.manual_seed(0)
    agent = AgentCls(model_kwargs=model_kwargs)
    agent.initialize(EnvSpaces(OBSERVATION, action_space))
    agent.sample_mode(0)
    return agent


def inputs(*lead, seed=0):
    torch.manual_seed(seed)
    action = Shot(torch.randint(3, lead), torch.randn(*lead, 1))
    return torch.randn(*lead, 4), action, torch.randn(lead)


@pytest.mark.parametrize(
    "AgentCls, lead",
    [
        (MlpCompositeFfAgent, ()),
        (MlpCompositeFfAgent, (3,)),
        (MlpCompositeFfAgent, (2, 3)),
        (MlpCompositeLstmAgent, ()),
        (MlpCompositeLstmAgent, (3,)),
    ],
)
def test_a_step_gives_actions_and_what_training_needs(AgentCls, lead):
    agent = make(AgentCls)
    step = agent.step(*inputs(*lead))
    assert type(step.action) is Shot and step.action.target.shape == lead and step.action.aim.shape == (*lead, 1)
    info = step.agent_info.dist_info
    assert info.target.prob.shape == (*lead, 3) and info.aim.mean.shape == info.aim.log_std.shape == (*lead, 1)
    assert step.agent_info.value.shape == agent.value(*inputs(*lead)).shape == lead
    assert agent.distribution.log_likelihood(step.action, info).shape == lead
    assert not any(leaf.requires_grad for leaf in buffer_leaves(step))


def test_training_sees_what_the_steps_saw():
    batch = inputs(4, 3)
    for agent in (make(MlpCompositeFfAgent), make(MlpCompositeLstmAgent)):
        infos = [agent.step(*_row(batch, t)).agent_info for t in range(4)]
        dist_info, value, *_ = agent(*batch, None) if agent.recurrent else agent(*batch)
        for t, info in enumerate(infos):
            torch.testing.assert_close(value[t].detach(), info.value, rtol=1e-4, atol=1e-5)
            for now, then in zip(buffer_leaves(dist_info[t]), buffer_leaves(info.dist_info)):
                torch.testing.assert_close(now.detach(), then, rtol=1e-4, atol=1e-5)


def _row(batch, t):
    return tuple(type(part)(*(x[t] for x in part)) if isinstance(part, tuple) else part[t] for part in batch)


def test_the_recurrent_model_sees_the_previous_action():
    agent = make(MlpCompositeLstmAgent)
    observation, action, reward = inputs(3)
    values = {
        agent.value(observation, a, reward)[0].item()
        for a in (action, action._replace(target=(action.target + 1) % 3), action._replace(aim=action.aim + 1))
    }
    assert len(values) == 3


@pytest.mark.parametrize("AgentCls", [MlpCompositeFfAgent, MlpCompositeLstmAgent])
@pytest.mark.parametrize(
    "space, DistributionCls",
    [
        (IntBox(0, 3), Categorical),
        (FloatBox(-2, 2, (2,)), Gaussian),
        (FloatBox(0, 1, (2, 3)), ShapedGaussian),
        (FloatBox(0, np.inf, ()), ShapedGaussian),
        (IntBox(0, 3, (2,)), MultiCategorical),
        (ACTION, CompositeDistribution),
        (make_structured().spaces.action, CompositeDistribution),
    ],
)
def test_the_action_space_decides_the_distribution(AgentCls, space, DistributionCls):
    agent = make(AgentCls, action_space=space)
    assert type(agent.distribution) is DistributionCls
    null = torch.utils._pytree.tree_map(lambda x: torch.as_tensor(x).expand(3, *np.shape(x)), space.null_value())
    step = agent.step(torch.zeros(3, 4), null, torch.zeros(3))
    assert agent.distribution.entropy(step.agent_info.dist_info).shape == (3,)


@pytest.mark.parametrize(
    "part, advice",
    [
        (IntBox(1, 4), "starts at 1"),
        (IntBox(1, 4, (2,)), "starts at 1"),
        (GymSpaceWrapper(spaces.Box(0, 10**6, (2,), np.int64)), "with up to 10,000 values, .* Here are 2,000,002"),
    ],
)
def test_a_part_without_distribution_is_refused(part, advice):
    with pytest.raises(ValueError, match=advice):
        make(MlpCompositeFfAgent, action_space=Composite([IntBox(0, 3), part], Shot))


@pytest.mark.parametrize("AgentCls", [MlpCompositeFfAgent, MlpCompositeLstmAgent, AlternatingMlpCompositeLstmAgent])
def test_states_are_saved_and_loaded_also_under_data_parallel_training(AgentCls, tmp_path):
    agent, other = make(AgentCls), make(AgentCls)
    for parameter in other.parameters():
        parameter.data.add_(1)
    with process_group(tmp_path / "meeting"):
        agent.data_parallel()
        assert unwrap_ddp(agent.model) is not agent.model
        dist_info, value, *_ = agent(*inputs(2, 3), None) if agent.recurrent else agent(*inputs(2, 3))
        action = Shot(*inputs(2, 3)[1])
        (value.sum() - agent.distribution.log_likelihood(action, dist_info).sum()).backward()
        assert all(parameter.grad is not None for parameter in agent.parameters())
        state_dict = copy.deepcopy(agent.state_dict())
        agent.model = None
    other.load_state_dict(state_dict)
    assert all(torch.equal(state_dict[name], value) for name, value in other.state_dict().items())


# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", kinds([*ONE_OF_EACH, "alternating, spawn"], quick=["serial", "CPU, 2 workers"]))
def test_all_samplers_collect_mixed_actions(kind, recurrent):
    AgentCls = MlpCompositeFfAgent
    if recurrent:
        AgentCls = AlternatingMlpCompositeLstmAgent if KINDS[kind].alternating else MlpCompositeLstmAgent
    agent = AgentCls(model_kwargs=dict(init_log_std=-5))  # This environment takes only actions within the bounds.
    collected = collect(kind, agent, EnvCls=make_structured, env={}, wait_reset=recurrent, T=6, B=4)
    for batch in collected.batches:
        action, info = batch.agent.action, batch.agent.agent_info
        assert action.move.shape == (6, 4, 2) and action.tool.item_0.shape == action.tool.item_1.shape == (6, 4)
        assert info.dist_info.tool.item_1.prob.shape == (6, 4, 3)
        assert len(set(action.move[0].ravel())) == 8, "of each environment's own"


@learning
@full
@pytest.mark.parametrize(
    "Algo, AgentCls, settings, n_steps",
    [
        (PPO, MlpCompositeFfAgent, dict(epochs=4, learning_rate=1e-2, ratio_clip=0.2), 10_000),
        (A2C, MlpCompositeFfAgent, dict(learning_rate=5e-3), 40_000),
        (PPO, MlpCompositeLstmAgent, dict(epochs=4, learning_rate=1e-2, ratio_clip=0.2), 16_000),
    ],
)
def test_a_mixed_game_is_learned_by_unchanged_algorithms(Algo, AgentCls, settings, n_steps):
    returns = []

    class Recording(MinibatchRl):
        def store_diagnostics(self, itr, traj_infos, opt_info):
            super().store_diagnostics(itr, traj_infos, opt_info)
            returns.extend(info.Return / info.Length for info in traj_infos)

    T = 20 if Algo is PPO else 5
    Recording(
        algo=Algo(discount=0.0, normalize_advantage=True, entropy_loss_coeff=0.0, **settings),
        agent=AgentCls(model_kwargs=dict(init_log_std=-0.5)),
        sampler=SerialSampler(AimEnv, dict(), batch_T=T, batch_B=16, max_decorrelation_steps=0),
        n_steps=n_steps,
        log_interval_steps=n_steps,
        seed=0,
        affinity=dict(master_torch_threads=1),
    ).train()
    assert np.mean(returns[:50]) < 0
    assert np.mean(returns[-100:]) > 0.6  # at random -0.4, 1 at best
