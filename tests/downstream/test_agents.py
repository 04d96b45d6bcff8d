"""Agents and models as projects that build on rlpyt write them: classes of their own, on our base classes."""

import copy

import numpy as np
import pytest
import torch
from transitions import SIZES, SPACES, A, N, O, assert_same_parameters, start, transitions

from rlpyt.agents.base import AgentStep, AlternatingRecurrentAgentMixin, BaseAgent, RecurrentAgentMixin
from rlpyt.agents.dqn.atari.atari_catdqn_agent import AtariCatDqnAgent
from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.mlp import MlpMixin
from rlpyt.agents.pg.atari import AtariFfAgent, AtariMixin
from rlpyt.agents.pg.mujoco import MujocoMixin
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.sac_agent import AgentInfo, Models, SacAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.sac_v import SAC_V
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.distributions.gaussian import DistInfo, DistInfoStd, Gaussian
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.qpg.mlp import PiMlpModel, QofMuMlpModel
from rlpyt.models.utils import update_state_dict
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_to
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.tensor import infer_leading_dims, restore_leading_dims

# --- Constructors and attributes --------------------------------------------------------------------------------------


def test_what_an_agent_saves_before_its_bases_constructor_stays():
    class MyModel(PiMlpModel):
        pass

    class MyAgent(BaseAgent):
        def __init__(self, ModelCls=MyModel, model_kwargs=None, initial_model_state_dict=None, pretrain_std=0.5):
            if model_kwargs is None:
                model_kwargs = SIZES
            save__init__args(locals())
            super().__init__()

    agent = MyAgent()
    assert agent.ModelCls is MyModel and agent.model_kwargs == SIZES and agent.pretrain_std == 0.5


DERIVED = [(SacAgent, "pretrain_std"), (DdpgAgent, "action_std"), (MlpDqnAgent, "eps_final"), (Td3Agent, "pretrain_std")]


@pytest.mark.parametrize("Base, name", DERIVED)
def test_the_same_holds_for_agents_derived_from_ours(Base, name):
    class MyModel(torch.nn.Module):
        pass

    def constructor(self, ModelCls=MyModel, model_kwargs=None, eps_itr_min=3, **kwargs):
        setattr(self, name, 0.3)
        save__init__args(dict(locals()))
        Base.__init__(self)

    agent = type("Mine", (Base,), {"__init__": constructor})()
    assert agent.ModelCls is MyModel and getattr(agent, name) == 0.3
    assert agent.model_kwargs is not None and agent.eps_itr_min == 3


@pytest.mark.parametrize("Base", [SacAgent, Td3Agent])
def test_an_agent_may_assign_and_be_told_when_learning_begins(Base):
    class MyAgent(Base):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.min_itr_learn = 2

        def give_min_itr_learn(self, min_itr_learn):
            self.min_itr_learn = min_itr_learn + 1

    agent = MyAgent(model_kwargs=SIZES, q_model_kwargs=SIZES)
    assert agent.min_itr_learn == 2
    algo = start((SAC if Base is SacAgent else TD3)(min_steps_learn=80), agent)
    assert agent.min_itr_learn == algo.min_itr_learn + 1 == 11


def test_the_iterations_of_epsilon_may_be_assigned():
    agent = MlpDqnAgent()
    agent.eps_itr_min, agent.eps_itr_max = 5, 15
    agent.initialize(EnvSpaces(FloatBox(-1, 1, (O,)), IntBox(0, 4)))
    agent.sample_mode(10)
    assert agent.eps_sample == pytest.approx((agent.eps_init + agent.eps_final) / 2)


def test_models_know_how_many_dimensions_an_observation_has():
    class MyModel(MujocoFfModel):
        def forward(self, observation, prev_action, prev_reward):
            lead_dim, T, B, _ = infer_leading_dims(observation, self._obs_ndim)
            x = observation.reshape(T * B, -1)
            return restore_leading_dims((self.mu(x), self.log_std.repeat(T * B, 1), self.v(x).squeeze(-1)), lead_dim, T, B)

    mu, log_std, v = MyModel((2, 3), A)(torch.zeros(4, 5, 2, 3), None, None)
    assert mu.shape == log_std.shape == (4, 5, A) and v.shape == (4, 5)


@pytest.mark.parametrize("module", ["rlpyt.agents.pg.categorical", "rlpyt.agents.pg.gaussian"])
def test_star_imports_of_agents_give_torch_and_what_agents_are_made_of(module):
    names = {}
    exec(f"from {module} import *", names)
    assert names["torch"] is torch
    assert {"AgentInfo", "AgentInfoRnn", "AgentStep", "BaseAgent", "buffer_to"} <= names.keys()


def test_star_imports_of_models_give_numpy_and_torch():
    names = {}
    exec("from rlpyt.models.mlp import *", names)
    assert names["np"] is np and names["torch"] is torch and "MlpModel" in names


# --- Observations of models of one's own ------------------------------------------------------------------------------


class FramesModel(torch.nn.Module):
    """For observations of stacked images, (frames, channels, H, W)."""

    def __init__(self, image_shape, output_size, n_atoms=None):
        super().__init__()
        self.n_dims, self.shape = len(image_shape), (output_size,) if n_atoms is None else (output_size, n_atoms)
        self.linear = torch.nn.Linear(int(np.prod(image_shape)), int(np.prod(self.shape)))

    def forward(self, observation, prev_action, prev_reward):
        lead_dim, T, B, _ = infer_leading_dims(observation, self.n_dims)
        out = self.linear(observation.reshape(T * B, -1).float() / 255).view(T * B, *self.shape)
        return restore_leading_dims(out.softmax(-1), lead_dim, T, B)


@pytest.mark.parametrize("AgentCls", [AtariDqnAgent, AtariCatDqnAgent])
def test_agents_for_images_give_a_model_of_ones_own_observations_of_any_shape(AgentCls):
    agent = AgentCls(ModelCls=FramesModel)
    agent.initialize(EnvSpaces(IntBox(0, 256, shape=(4, 3, 8, 8), dtype="uint8"), IntBox(0, 5)))
    observation = torch.randint(0, 256, (2, 4, 3, 8, 8), dtype=torch.uint8)
    assert agent.step(observation, torch.zeros(2, dtype=torch.long), torch.zeros(2)).action.shape == (2,)


@pytest.mark.parametrize("AgentCls", [AtariDqnAgent, AtariFfAgent])
def test_models_of_ours_still_refuse_what_they_cannot_take(AgentCls):
    with pytest.raises(ValueError, match=r"needs images of shape \(C,H,W\)"):
        AgentCls().initialize(EnvSpaces(IntBox(0, 256, shape=(4, 3, 8, 8), dtype="uint8"), IntBox(0, 5)))


def test_a_perceptron_that_a_user_has_changed_may_take_images():
    class ImageMixin:
        def forward(self, observation, *args):
            return super().forward(observation.float().flatten(-3), *args)

    class Pi(ImageMixin, PiMlpModel):
        pass

    class Q(ImageMixin, QofMuMlpModel):
        pass

    agent = SacAgent(ModelCls=Pi, QModelCls=Q)
    image = IntBox(0, 256, shape=(1, 2, 2), dtype="uint8")
    agent.make_env_to_model_kwargs = lambda spaces: dict(observation_shape=(4,), action_size=A)
    agent.initialize(EnvSpaces(image, SPACES.action))
    assert agent.step(torch.zeros(5, 1, 2, 2, dtype=torch.uint8), torch.zeros(5, A), torch.zeros(5)).action.shape == (5, A)


# --- Mixins in front of a class of a user ------------------------------------------------------------------------------


class OwnArguments(BaseAgent):
    """Makes the arguments of its model by itself."""

    def make_env_to_model_kwargs(self, env_spaces):
        return dict(size=env_spaces.observation.shape)


@pytest.mark.parametrize(
    "Mixin, shape, actions, arguments",
    [
        (AtariMixin, (4, 8, 8), IntBox(0, 5), dict(image_shape=(4, 8, 8), output_size=5)),
        (MlpMixin, (3,), IntBox(0, 5), dict(observation_shape=(3,), output_size=5)),
        (MujocoMixin, (3,), FloatBox(-1, 1, shape=(2,)), dict(observation_shape=(3,), action_size=2)),
    ],
)
def test_a_mixin_in_front_of_an_agent_decides_the_arguments_of_its_model(Mixin, shape, actions, arguments):
    class Mixed(Mixin, OwnArguments):
        pass

    class Extended(Mixed):
        def make_env_to_model_kwargs(self, env_spaces):
            return dict(super().make_env_to_model_kwargs(env_spaces), more=1)

    class Fewer(Extended):
        model_arguments = ("output_size",) if "output_size" in arguments else ("action_size",)

    spaces = EnvSpaces(IntBox(0, 256, shape=shape, dtype="uint8"), actions)
    assert OwnArguments().make_env_to_model_kwargs(spaces) == dict(size=shape)
    assert Mixed().make_env_to_model_kwargs(spaces) == arguments
    assert Extended().make_env_to_model_kwargs(spaces) == dict(arguments, more=1)
    assert Fewer().make_env_to_model_kwargs(spaces) == dict(list(arguments.items())[1:], more=1)


# --- Agents that share only the protocol with ours ---------------------------------------------------------------------


class ProtocolSacAgent(BaseAgent):
    """A SAC agent with what algorithms of the original call, and nothing else: no `freeze_q`, no `q_names`."""

    def __init__(self, ModelCls=PiMlpModel, QModelCls=QofMuMlpModel, model_kwargs=None, q_model_kwargs=None):
        model_kwargs, q_model_kwargs = model_kwargs or SIZES, q_model_kwargs or SIZES
        save__init__args(locals())
        super().__init__()
        self.min_itr_learn = 0

    def initialize(self, env_spaces, share_memory=False, global_B=1, env_ranks=None):
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.q1_model, self.q2_model = (self.QModelCls(**self.env_model_kwargs, **self.q_model_kwargs) for _ in range(2))
        self.target_q1_model, self.target_q2_model = copy.deepcopy(self.q1_model), copy.deepcopy(self.q2_model)
        self.distribution = Gaussian(dim=env_spaces.action.shape[0], squash=1.0, min_std=np.exp(-20), max_std=np.exp(2))

    def make_env_to_model_kwargs(self, env_spaces):
        return dict(observation_shape=env_spaces.observation.shape, action_size=env_spaces.action.shape[0])

    def give_min_itr_learn(self, min_itr_learn):
        self.min_itr_learn = min_itr_learn

    def q(self, observation, prev_action, prev_reward, action):
        inputs = buffer_to((observation, prev_action, prev_reward, action), device=self.device)
        return self.q1_model(*inputs).cpu(), self.q2_model(*inputs).cpu()

    def target_q(self, observation, prev_action, prev_reward, action):
        inputs = buffer_to((observation, prev_action, prev_reward, action), device=self.device)
        return self.target_q1_model(*inputs).cpu(), self.target_q2_model(*inputs).cpu()

    def pi(self, observation, prev_action, prev_reward):
        mean, log_std = self.model(*buffer_to((observation, prev_action, prev_reward), device=self.device))
        dist_info = DistInfoStd(mean=mean, log_std=log_std)
        action, log_pi = self.distribution.sample_loglikelihood(dist_info)
        return action.cpu(), log_pi.cpu(), dist_info

    @torch.no_grad()
    def step(self, observation, prev_action, prev_reward):
        mean, log_std = self.model(observation, prev_action, prev_reward)
        dist_info = DistInfoStd(mean=mean, log_std=log_std)
        return AgentStep(action=self.distribution.sample(dist_info), agent_info=AgentInfo(dist_info=dist_info))

    def update_target(self, tau=1):
        update_state_dict(self.target_q1_model, self.q1_model.state_dict(), tau)
        update_state_dict(self.target_q2_model, self.q2_model.state_dict(), tau)

    @property
    def models(self):
        return Models(pi=self.model, q1=self.q1_model, q2=self.q2_model, v=None)

    def pi_parameters(self):
        return self.model.parameters()

    def q1_parameters(self):
        return self.q1_model.parameters()

    def q2_parameters(self):
        return self.q2_model.parameters()

    def state_dict(self):
        names = ("model", "q1_model", "q2_model", "target_q1_model", "target_q2_model")
        return {name: getattr(self, name).state_dict() for name in names}

    def load_state_dict(self, state_dict):
        for name, values in state_dict.items():
            getattr(self, name).load_state_dict(values)


def test_our_sac_trains_an_agent_of_the_original_protocol_as_it_trains_ours():
    mine, ours = ProtocolSacAgent(), SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES)
    algos = [start(SAC(batch_size=N, learning_rate=0.1), agent) for agent in (mine, ours)]
    mine.load_state_dict(ours.state_dict())
    for seed in range(3):
        for algo in algos:
            torch.manual_seed(seed)
            algo.update(transitions(seed))
    assert_same_parameters(mine, ours)


def test_our_sac_with_a_value_function_needs_no_more_either():
    class MyAgent(ProtocolSacAgent):
        def initialize(self, *args, **kwargs):
            super().initialize(*args, **kwargs)
            self.v_model = QofMuMlpModel(**self.env_model_kwargs, **SIZES)

        def v(self, observation, prev_action, prev_reward):
            return self.v_model(observation, prev_action, prev_reward, torch.zeros(len(observation), A))

        target_v = v

        def v_parameters(self):
            return self.v_model.parameters()

    algo = start(SAC_V(batch_size=N, learning_rate=0.1), MyAgent())
    before = copy.deepcopy(algo.agent.q1_model.state_dict())
    algo.update(transitions())
    assert not torch.equal(before["mlp.model.0.weight"], algo.agent.q1_model.state_dict()["mlp.model.0.weight"])


class MyTd3Agent(DdpgAgent):
    """Twin Q-functions on top of our DDPG agent."""

    def __init__(self, pretrain_std=0.5, target_noise_std=0.2, target_noise_clip=0.5, **kwargs):
        super().__init__(**kwargs)
        self.min_itr_learn = 0
        save__init__args(locals())

    def initialize(self, env_spaces, share_memory=False, global_B=1, env_ranks=None):
        super().initialize(env_spaces, share_memory, global_B=global_B, env_ranks=env_ranks)
        self.q2_model = self.QModelCls(**self.env_model_kwargs, **self.q_model_kwargs)
        self.target_q2_model = copy.deepcopy(self.q2_model)
        clip = env_spaces.action.high[0]
        self.target_distribution = Gaussian(A, std=self.target_noise_std, noise_clip=self.target_noise_clip, clip=clip)

    def q(self, observation, prev_action, prev_reward, action):
        inputs = buffer_to((observation, prev_action, prev_reward, action), device=self.device)
        return self.q_model(*inputs), self.q2_model(*inputs)

    def target_q_at_mu(self, observation, prev_action, prev_reward):
        inputs = buffer_to((observation, prev_action, prev_reward), device=self.device)
        action = self.target_distribution.sample(DistInfo(mean=self.target_model(*inputs)))
        return self.target_q_model(*inputs, action), self.target_q2_model(*inputs, action)

    def update_target(self, tau=1):
        super().update_target(tau)
        update_state_dict(self.target_q2_model, self.q2_model.state_dict(), tau)

    def q_parameters(self):
        yield from self.q_model.parameters()
        yield from self.q2_model.parameters()

    def state_dict(self):
        return dict(super().state_dict(), q2_model=self.q2_model.state_dict(), target_q2_model=self.target_q2_model.state_dict())

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.q2_model.load_state_dict(state_dict["q2_model"])
        self.target_q2_model.load_state_dict(state_dict["target_q2_model"])


def test_our_td3_trains_an_agent_that_adds_a_second_q_function_to_ours():
    mine, ours = (Cls(model_kwargs=SIZES, q_model_kwargs=SIZES) for Cls in (MyTd3Agent, Td3Agent))
    algos = [start(TD3(batch_size=N, learning_rate=0.1, policy_update_interval=1), agent) for agent in (mine, ours)]
    mine.load_state_dict(ours.state_dict())
    for seed in range(3):
        for algo in algos:
            torch.manual_seed(seed)
            algo.update(transitions(seed))
            algo.agent.update_target(0.5)
    assert_same_parameters(mine, ours)


# --- Recurrent state behind a class of a user --------------------------------------------------------------------------


class OwnResets(BaseAgent):
    """Counts resets, and does not call the methods that it overrides."""

    n_resets = 0
    memory = "an attribute of the user"

    def reset(self):
        self.n_resets += 1

    def reset_one(self, idx):
        self.n_resets += 1


@pytest.mark.parametrize("Mixin", [RecurrentAgentMixin, AlternatingRecurrentAgentMixin])
def test_a_recurrent_mixin_in_front_of_an_agent_resets_the_state_whatever_that_overrides(Mixin):
    class Mixed(Mixin, OwnResets):
        pass

    class Extended(Mixed):
        def reset_one(self, idx):
            super().reset_one(idx)
            self.extended = True

    for AgentCls in (Mixed, Extended):
        agent = AgentCls()
        agent.advance_rnn_state(torch.ones(1, 3, 2))
        if agent.alternating:
            agent.toggle_alt()
        agent.reset_one(1)
        assert agent.prev_rnn_state[:, 1].eq(0).all() and agent.prev_rnn_state[:, 0].eq(1).all()
        agent.reset()
        assert agent.prev_rnn_state is None and agent.n_resets == 0 and agent.memory == "an attribute of the user"
    assert agent.extended
