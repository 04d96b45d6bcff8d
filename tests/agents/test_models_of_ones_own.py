"""Models that users bring, and what is said of those that do not fit."""

import inspect

import numpy as np
import pytest
import torch

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.pg.atari import AtariFfAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent, MlpLstmAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.ensemble_sac_agent import DiscreteSacAgent, EnsembleSacAgent
from rlpyt.agents.qpg.iql_agent import IqlAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_lstm_agent import SacLstmAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as SacVAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.agents.qpg.td3_lstm_agent import Td3LstmAgent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.offline.iql import IQL
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.ensemble_sac import DiscreteSAC, EnsembleSAC
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.sac_v import SAC_V
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.distributions.categorical import Categorical, DistInfo
from rlpyt.envs.base import EnvSpaces
from rlpyt.envs.gym import make
from rlpyt.models.pg.atari_ff_model import AtariFfModel
from rlpyt.models.qpg.lstm import QofMuLstmModel
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.buffer import agent_example
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

ONE_THREAD = dict(master_torch_threads=1)


class GaussianModel(torch.nn.Module):
    """A policy without anything that normalizes observations."""

    def __init__(self, observation_shape, action_size):
        super().__init__()
        self.mu = torch.nn.Linear(observation_shape[0], action_size)

    def forward(self, observation, prev_action, prev_reward):
        mu = self.mu(observation)
        return mu, torch.zeros_like(mu), mu.sum(-1)


class QModel(torch.nn.Module):
    def __init__(self, observation_shape, action_size):
        super().__init__()
        self.q = torch.nn.Linear(observation_shape[0] + action_size, 1)

    def forward(self, observation, prev_action, prev_reward, action):
        return self.q(torch.cat([observation, action], -1)).squeeze(-1)


class SacPolicy(GaussianModel):
    def forward(self, observation, prev_action, prev_reward):
        return super().forward(observation, prev_action, prev_reward)[:2]


@pytest.mark.parametrize(
    "algo, agent, message",
    [
        (SAC(), Td3Agent(), "SAC needs an agent with .*Td3Agent is not one"),
        (PPO(), MlpDqnAgent(), "PPO needs an agent that estimates values, .*MlpDqnAgent has no method `value`"),
        (DQN(), MlpFfAgent(), "DQN needs an agent .*MlpFfAgent does not"),
        (SAC(replay_size=4, min_steps_learn=2), SacAgent(), "replay_size=4 must be at least the 16 environment steps"),
        (EnsembleSAC(n_target_critics=3), EnsembleSacAgent(), "n_target_critics=3 must be at most n_critics=2"),
        (PPO(minibatches=17), MlpFfAgent(), "minibatches=17 must be at most 16, the steps"),
        (PPO(minibatches=3), MlpLstmAgent(), "minibatches=3 must be at most 2, the environments .* whole sequences"),
    ],
)
def test_what_does_not_fit_is_refused_before_environments_are_made(algo, agent, message):
    def make_slowly():
        raise AssertionError("an environment was made")

    sampler = SerialSampler(make_slowly, {}, batch_T=8, batch_B=2)
    with pytest.raises(ValueError, match=message):
        MinibatchRl(algo=algo, agent=agent, sampler=sampler, n_steps=64, log_interval_steps=32, affinity=ONE_THREAD, seed=0).train()


class MadeLater(EnsembleSacAgent):
    """Has its number of critics only once it is initialized."""

    def initialize(self, *args, **kwargs):
        self.n_critics, self.q_model_kwargs = 5, dict(self.q_model_kwargs, n_critics=5)
        super().initialize(*args, **kwargs)


class SizedLater(SAC):
    def initialize(self, *args, **kwargs):
        self.replay_size = 200
        super().initialize(*args, **kwargs)


class DividedLater(PPO):
    def initialize(self, *args, **kwargs):
        self.minibatches = 2
        super().initialize(*args, **kwargs)


def test_parts_of_users_may_get_what_they_need_when_they_are_initialized():
    few = dict(min_steps_learn=16, batch_size=8, replay_ratio=1)
    train(EnsembleSAC(n_target_critics=4, replay_size=100, **few), MadeLater(action_squash=2.0), "Pendulum-v1")
    train(SizedLater(replay_size=4, **few), SacAgent(action_squash=2.0), "Pendulum-v1")
    algo = SizedLater(**few)
    algo.replay_size = None
    train(algo, SacAgent(action_squash=2.0), "Pendulum-v1")
    train(DividedLater(minibatches=1000), MlpFfAgent(), "CartPole-v1")


def train(algo, agent, env_id, n_steps=64, batch_T=8):
    sampler = SerialSampler(make, dict(id=env_id), batch_T=batch_T, batch_B=2)
    MinibatchRl(algo=algo, agent=agent, sampler=sampler, n_steps=n_steps, log_interval_steps=32, affinity=ONE_THREAD, seed=0).train()


def test_a_gaussian_model_need_not_normalize_observations():
    train(PPO(epochs=1), MlpGaussianFfAgent(ModelCls=GaussianModel), "Pendulum-v1")


def test_models_of_sac_are_made_without_sizes_that_they_do_not_take():
    agent = SacAgent(ModelCls=SacPolicy, QModelCls=QModel)
    assert agent.model_kwargs == agent.q_model_kwargs == {}
    assert SacAgent(QModelCls=QModel).model_kwargs == dict(hidden_sizes=[256, 256])
    agent.initialize(EnvSpaces(observation=FloatBox(-1, 1, 3), action=FloatBox(-1, 1, 2)))
    assert isinstance(agent.q2_model, QModel)


def test_other_settings_of_models_leave_the_sizes_those_of_the_agent():
    agent = SacAgent(model_kwargs=dict(batch_renorm=True), q_model_kwargs=dict(hidden_sizes=[8]))
    assert agent.model_kwargs == dict(batch_renorm=True, hidden_sizes=[256, 256])
    assert agent.q_model_kwargs == dict(hidden_sizes=[8])
    agent.initialize(EnvSpaces(observation=FloatBox(-1, 1, 3), action=FloatBox(-1, 1, 2)))


@pytest.mark.parametrize("AgentCls", [SacLstmAgent, Td3LstmAgent])
def test_other_settings_of_recurrent_models_leave_the_layers_before_the_memory(AgentCls):
    shapes = []
    for settings in ({}, dict(model_kwargs=dict(lstm_size=64), q_model_kwargs=dict(rnn="lstm"))):  # The defaults.
        agent = AgentCls(**settings)
        agent.initialize(EnvSpaces(observation=FloatBox(-1, 1, 3), action=FloatBox(-1, 1, 2)))
        shapes.append([p.shape for model in agent.named_models().values() for p in model.parameters()])
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("AgentCls", [SacLstmAgent, Td3LstmAgent])
def test_recurrent_agents_of_q_functions_say_what_they_cannot_take(AgentCls):
    class Forgetful(torch.nn.Module):
        def __init__(self, observation_shape, action_size, **kwargs):
            super().__init__()

    spaces = EnvSpaces(observation=FloatBox(-1, 1, 3), action=FloatBox(-1, 1, 2))
    with pytest.raises(TypeError, match="needs models with a method `remember`, which Forgetful .model. lacks: derive it from"):
        AgentCls(ModelCls=Forgetful).initialize(spaces)
    images = EnvSpaces(observation=IntBox(0, 256, (3, 8, 8), dtype="uint8"), action=FloatBox(-1, 1, 2))
    with pytest.raises(ValueError, match="has perceptrons for models, but observations are images"):
        AgentCls().initialize(images)


def test_an_agent_without_values_is_refused_where_they_are_needed():
    with pytest.raises(ValueError, match="PPO needs an agent that estimates values, such as MlpFfAgent.*SacAgent has no method `value`"):
        train(PPO(), SacAgent(action_squash=2.0), "Pendulum-v1")


def test_an_agent_of_a_user_may_have_values_once_it_is_initialized():
    class Later(MlpFfAgent):
        value = None

        def initialize(self, *args, **kwargs):
            self.value = super().value
            super().initialize(*args, **kwargs)

    train(PPO(epochs=1), Later(), "CartPole-v1")

    class Without(MlpFfAgent):
        value = None

    with pytest.raises(ValueError, match="The algorithm needs an agent that estimates values"):
        train(PPO(epochs=1), Without(), "CartPole-v1")


def test_logits_in_the_place_of_probabilities():
    with pytest.raises(ValueError, match="they are negative. If they are logits, let the model return torch.softmax"):
        Categorical(2).sample(DistInfo(prob=torch.tensor([[-1.0, -2.0]])))


def test_images_with_channels_last_are_refused():
    spaces = EnvSpaces(observation=IntBox(0, 256, (36, 36, 3), dtype="uint8"), action=IntBox(0, 2))
    with pytest.raises(ValueError, match=r"\(36, 36, 3\), seem to be \(H,W,C\). Let it put channels first"):
        AtariFfAgent().initialize(spaces)


def test_a_run_that_ends_before_learning_begins_is_said(capsys):
    train(DQN(min_steps_learn=1000, replay_size=200), MlpDqnAgent(), "CartPole-v1")
    said = "nothing will be learned: learning begins after 992 environment steps (min_steps_learn), and the run ends after 64."
    assert said in capsys.readouterr().out
    train(PPO(epochs=1), MlpFfAgent(), "CartPole-v1")
    assert "nothing will be learned" not in capsys.readouterr().out


def test_a_subclass_may_name_its_model_in_its_body():
    class MyModel(AtariFfModel):
        pass

    class Mine(AtariFfAgent):
        ModelCls = MyModel

    class MyDqn(MlpDqnAgent):
        ModelCls = torch.nn.Linear

    assert Mine().ModelCls is MyModel and Mine(AtariFfModel).ModelCls is AtariFfAgent.ModelCls is AtariFfModel
    assert list(inspect.signature(MyDqn).parameters)[:2] == ["ModelCls", "eps_init"]
    assert inspect.signature(MyDqn).parameters["ModelCls"].default is torch.nn.Linear
    assert (MyDqn(eps_init=0.5).ModelCls, MyDqn(None, 0.5).eps_init) == (torch.nn.Linear, 0.5)


class Softmax(torch.nn.Module):
    """A policy whose outputs subclasses get wrong."""

    def __init__(self, observation_shape, output_size):
        super().__init__()
        self.logits, self.value = torch.nn.Linear(observation_shape[0], output_size), torch.nn.Linear(observation_shape[0], 1)

    def forward(self, observation, prev_action, prev_reward):
        return torch.softmax(self.logits(observation), -1), self.value(observation).squeeze(-1)


class WithoutSoftmax(Softmax):
    def forward(self, observation, prev_action, prev_reward):
        # Without the 1, their sum is near 1 now and then.
        return torch.sigmoid(self.logits(observation) + 1), self.value(observation).squeeze(-1)


class WithLogits(Softmax):
    def forward(self, observation, prev_action, prev_reward):
        return self.logits(observation) - 10, self.value(observation).squeeze(-1)


class WithAValueOfOneElement(Softmax):
    def forward(self, observation, prev_action, prev_reward):
        return torch.softmax(self.logits(observation), -1), self.value(observation)


class WithMoreActions(Softmax):
    def __init__(self, observation_shape, output_size):
        super().__init__(observation_shape, output_size + 3)


class WithoutAValue(Softmax):
    def forward(self, observation, prev_action, prev_reward):
        return torch.softmax(self.logits(observation), -1)


class WithAState(Softmax):
    def forward(self, observation, prev_action, prev_reward):
        return *super().forward(observation, prev_action, prev_reward), None


class OfNumpy(Softmax):
    def forward(self, observation, prev_action, prev_reward):
        prob, value = super().forward(observation, prev_action, prev_reward)
        return prob.detach().numpy(), value


class WithAnError(Softmax):
    def forward(self, observation, prev_action, prev_reward):
        raise RuntimeError("no license")


@pytest.mark.parametrize(
    "ModelCls, error, message",
    [
        (WithoutSoftmax, ValueError, r"are no probabilities: make them positive, with sum 1"),
        (WithLogits, ValueError, "If they are logits"),
        (WithAValueOfOneElement, ValueError, r"A value of shape \[1\] was returned for one observation: end it with value.squeeze"),
        (WithMoreActions, ValueError, r"Probabilities of shape \[5\] were returned for one observation and 2 actions"),
        (WithoutAValue, ValueError, r"WithoutAValue returned one tensor; MlpFfAgent needs a tuple of tensors, \(prob, value\)"),
        (WithAState, ValueError, r"WithAState returned 3 outputs; MlpFfAgent needs a tuple of tensors, \(prob, value\)"),
        (OfNumpy, ValueError, r"OfNumpy returned arrays of numpy, prob; MlpFfAgent needs a tuple of tensors, \(prob, value\)"),
        (WithAnError, RuntimeError, "no license"),
    ],
)
def test_outputs_that_do_not_fit_are_told_before_training(ModelCls, error, message):
    sampler = SerialSampler(make, dict(id="CartPole-v1"), batch_T=4, batch_B=1)
    agent = MlpFfAgent(ModelCls=ModelCls)
    with pytest.raises(error, match=message) as raised:
        MinibatchRl(algo=PPO(minibatches=1), agent=agent, sampler=sampler, n_steps=4, affinity=ONE_THREAD).train()
    (note,) = raised.value.__notes__
    assert note.startswith(f"This was in the first step of MlpFfAgent with {ModelCls.__name__}; docs/custom_agent.md")


def test_an_agent_with_a_step_of_its_own_may_have_other_outputs_and_its_error_is_told():
    class Own(MlpFfAgent):
        def step(self, observation, prev_action, prev_reward):
            raise KeyError("of its own")

    sampler = SerialSampler(make, dict(id="CartPole-v1"), batch_T=4, batch_B=1)
    with pytest.raises(KeyError, match="of its own"):
        sampler.initialize(Own(ModelCls=WithAState), seed=0, bootstrap_value=True)


def test_a_recurrent_model_without_its_state_is_told():
    class Forgetful(Softmax):
        def forward(self, observation, prev_action, prev_reward, init_rnn_state):
            return super().forward(observation, prev_action, prev_reward)

    agent, spaces = MlpLstmAgent(ModelCls=Forgetful), EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 2))
    agent.initialize(spaces)
    with pytest.raises(ValueError, match=r"Forgetful returned 2 outputs; MlpLstmAgent needs .* \(prob, value, next_rnn_state\)"):
        agent_example(agent, np.zeros(4, np.float32), np.zeros((), int), np.zeros((), np.float32))


class WithOtherArguments(Softmax):
    def __init__(self, obs_dim, n):
        super().__init__((obs_dim,), n)


@pytest.mark.parametrize(
    "ModelCls, message",
    [
        (Softmax((4,), 2), "ModelCls is a model. Give its class, Softmax, and its settings in model_kwargs"),
        (WithOtherArguments, "gives its model observation_shape, output_size, but the constructor of WithOtherArguments takes no obs"),
    ],
)
def test_models_that_cannot_be_made_are_told(ModelCls, message):
    with pytest.raises(ValueError, match=message):
        MlpFfAgent(ModelCls=ModelCls).initialize(EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 2)))


# --- Values and actions of a wrong shape ------------------------------------------------------------------------------
class Unsqueezed(QModel):
    def forward(self, observation, prev_action, prev_reward, action):
        return super().forward(observation, prev_action, prev_reward, action).unsqueeze(-1)


class UnsqueezedV(torch.nn.Module):
    def __init__(self, observation_shape, action_size):
        super().__init__()
        self.v = torch.nn.Linear(observation_shape[0], 1)

    def forward(self, observation, prev_action, prev_reward):
        return self.v(observation)


SMALL = dict(min_steps_learn=16, batch_size=8, replay_size=100, replay_ratio=8)


@pytest.mark.parametrize(
    "algo, agent",
    [
        (SAC(**SMALL), SacAgent(QModelCls=Unsqueezed, action_squash=2.0)),
        (TD3(**SMALL), Td3Agent(QModelCls=Unsqueezed)),
        (DDPG(**SMALL), DdpgAgent(QModelCls=Unsqueezed)),
        (IQL(**SMALL), IqlAgent(QModelCls=Unsqueezed)),
        (IQL(**SMALL), IqlAgent(VModelCls=UnsqueezedV)),
        (SAC_V(**SMALL), SacVAgent(VModelCls=UnsqueezedV, action_squash=2.0)),
    ],
    ids=["SAC", "TD3", "DDPG", "IQL", "IQL, V", "SAC with V"],
)
def test_values_with_one_dimension_too_many_are_no_values(algo, agent):
    """They would be compared with the targets of all samples."""
    with pytest.raises(ValueError, match=r"Values have the shape .* is not one target for each value.* end it with .squeeze"):
        train(algo, agent, "Pendulum-v1")


def test_critics_return_as_many_values_as_there_are_critics():
    class Critics(QModel):
        n_returned = 1

        def __init__(self, observation_shape, action_size, n_critics):
            super().__init__(observation_shape, action_size)
            self.q = torch.nn.Linear(observation_shape[0] + action_size, self.n_returned)

        def forward(self, observation, prev_action, prev_reward, action):
            return self.q(torch.cat([observation, action], -1))

    with pytest.raises(ValueError, match=r"shape \[8, 1\] for 8 observations, but must return \[8, 2\]. They are of .*Critics"):
        train(EnsembleSAC(**SMALL), EnsembleSacAgent(QModelCls=Critics, action_squash=2.0), "Pendulum-v1")
    train(EnsembleSAC(**SMALL), EnsembleSacAgent(QModelCls=Critics, n_critics=1, action_squash=2.0), "Pendulum-v1")
    Critics.n_returned = 3  # More do no harm.
    train(EnsembleSAC(**SMALL), EnsembleSacAgent(QModelCls=Critics, action_squash=2.0), "Pendulum-v1")


def test_a_users_agent_may_make_other_critics():
    class Drops(EnsembleSacAgent):
        def make_models(self):
            self.q_model_kwargs = {}
            super().make_models()

        def q(self, *inputs):
            return torch.stack([super().q(*inputs)] * 2, dim=-1)

        def target_q(self, *inputs):
            return torch.stack([super().target_q(*inputs)] * 2, dim=-1)

    train(EnsembleSAC(**SMALL), Drops(QModelCls=QModel, action_squash=2.0), "Pendulum-v1")


def test_critics_that_take_no_number_are_refused():
    with pytest.raises(TypeError, match="gives its critics n_critics, which QModel does not take: let it take that number, and return"):
        EnsembleSacAgent(QModelCls=QModel)

    class OfMeans(QModel):
        def __init__(self, observation_shape, action_size, n_critics):
            super().__init__(observation_shape, action_size)

    assert EnsembleSacAgent(QModelCls=OfMeans).q_model_kwargs == dict(n_critics=2)
    with pytest.raises(TypeError, match=r"gives its critics n_quantiles, which .*OfMeans does not .*\[\*lead,n_critics,n_quantiles\]"):
        EnsembleSacAgent(QModelCls=OfMeans, n_quantiles=5)


class TooFew(SacPolicy):
    def __init__(self, observation_shape, action_size):
        super().__init__(observation_shape, action_size - 1)


class Alone(GaussianModel):
    def forward(self, observation, prev_action, prev_reward):
        return super().forward(observation, prev_action, prev_reward)[0]


class TooFewAlone(TooFew):
    def forward(self, observation, prev_action, prev_reward):
        return super().forward(observation, prev_action, prev_reward)[0]


@pytest.mark.parametrize("AgentCls, ModelCls", [(SacAgent, TooFew), (Td3Agent, TooFewAlone), (SacAgent, Alone)])
def test_actions_of_a_wrong_shape_name_the_model(AgentCls, ModelCls):
    agent = AgentCls(ModelCls=ModelCls)
    example = dict(observation=np.zeros(3, np.float32), action=np.zeros(2, np.float32), reward=np.float32(0))
    agent.initialize(EnvSpaces(observation=FloatBox(-1, 1, 3), action=FloatBox(-1, 1, 2)))
    with pytest.raises(
        ValueError, match=r"An action of shape \[1?\] was chosen for one observation, but the environment takes \[2\]"
    ) as error:
        agent_example(agent, **example)
    assert "docs/custom_agent.md" in "".join(error.value.__notes__)


@pytest.mark.parametrize("n_more", [-1, 1])
def test_as_many_q_values_as_actions(n_more):
    class Wrong(torch.nn.Linear):
        def __init__(self, observation_shape, output_size):
            super().__init__(observation_shape[0], output_size + n_more)

        def forward(self, observation, prev_action, prev_reward):
            return super().forward(observation)

    with pytest.raises(ValueError, match=rf"Values of shape \[{2 + n_more}\] were returned for one observation and 2 actions"):
        train(DQN(min_steps_learn=16, replay_size=100), MlpDqnAgent(ModelCls=Wrong, model_kwargs={}), "CartPole-v1")


def test_logits_of_discrete_sac_are_answered_by_their_logarithms():
    class Logits(torch.nn.Linear):
        def __init__(self, observation_shape, output_size):
            super().__init__(observation_shape[0], output_size)

        def forward(self, observation, prev_action, prev_reward):
            return super().forward(observation)

    with pytest.raises(ValueError, match="or return their logarithms by torch.log_softmax if this agent takes logarithms"):
        train(DiscreteSAC(**SMALL), DiscreteSacAgent(ModelCls=Logits), "CartPole-v1")


def test_what_remember_returns_is_looked_at():
    class Forgetful(QofMuLstmModel):
        def remember(self, *inputs):
            return super().remember(*inputs)[1]

    agent = SacLstmAgent(QModelCls=Forgetful)
    agent.initialize(EnvSpaces(observation=FloatBox(-1, 1, 3), action=FloatBox(-1, 1, 2)))
    with pytest.raises(TypeError, match="`remember` of Forgetful must return a tuple whose second element is the state"):
        agent.step(torch.zeros(1, 3), torch.zeros(1, 2), torch.zeros(1))

    class Lists(QofMuLstmModel):
        def remember(self, *inputs):
            return list(super().remember(*inputs))[:2]

    agent = SacLstmAgent(QModelCls=Lists)
    agent.initialize(EnvSpaces(observation=FloatBox(-1, 1, 3), action=FloatBox(-1, 1, 2)))
    with pytest.raises(ValueError):  # Its own forward takes three.
        agent.q(torch.zeros(1, 1, 3), torch.zeros(1, 1, 2), torch.zeros(1, 1), None, torch.zeros(1, 1, 2))
    agent.step(torch.zeros(1, 3), torch.zeros(1, 2), torch.zeros(1))
