"""Algorithms as projects that build on rlpyt write them: classes derived from ours, with losses and updates of their own."""

import copy

import numpy as np
import pytest
import torch
from transitions import SIZES, SPACES, A, N, assert_same_parameters, start, transitions

from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.r2d1 import SamplesToBufferRnn
from rlpyt.algos.pg.base import OptInfo as PgOptInfo
from rlpyt.algos.pg.base import PolicyGradientAlgo
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.sac import SAC, OptInfo
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.envs.base import EnvSpaces
from rlpyt.envs.gym import make as gym_make
from rlpyt.experiments.configs import load
from rlpyt.models.dqn.atari_dqn_model import AtariDqnModel
from rlpyt.models.dqn.atari_r2d1_model import AtariR2d1Model
from rlpyt.models.pg.atari_ff_model import AtariFfModel
from rlpyt.models.pg.atari_lstm_model import AtariLstmModel
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.replays.sequence.uniform import UniformSequenceReplayBuffer
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.collections import BatchSpec
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_method, buffer_to
from rlpyt.utils.tensor import select_at_indexes, valid_mean


def train(algo, agent, EnvCls, batch_T=8, n_itr=12, **env_kwargs):
    """Train for some iterations of 2 * batch_T steps; return what was logged of the algorithm in the last ones."""
    sampler = SerialSampler(EnvCls=EnvCls, env_kwargs=env_kwargs, batch_T=batch_T, batch_B=2, max_decorrelation_steps=0)
    n_steps = 2 * batch_T * n_itr
    logged = []

    class Runner(MinibatchRl):
        def store_diagnostics(self, itr, traj_infos, opt_info):
            logged.append(opt_info)
            super().store_diagnostics(itr, traj_infos, opt_info)

    Runner(algo=algo, agent=agent, sampler=sampler, n_steps=n_steps, log_interval_steps=n_steps // 2, seed=0).train()
    return logged[-1]


# --- Losses of one's own, with agents of other kinds ---------------------------------------------------------------------


class RecurrentDQN(DQN):
    """Q-learning on whole sequences, from a state of zeros, with its own loop of updates."""

    def __init__(self, batch_T=6, batch_B=4, **kwargs):
        super().__init__(**kwargs)
        self.batch_T, self.batch_B = batch_T, batch_B

    def initialize_replay_buffer(self, examples, batch_spec, async_=False):
        example = SamplesToBufferRnn(
            observation=examples["observation"],
            action=examples["action"],
            reward=examples["reward"],
            done=examples["done"],
            prev_rnn_state=examples["agent_info"].prev_rnn_state,
        )
        self.replay_buffer = UniformSequenceReplayBuffer(
            example=example, size=self.replay_size, B=batch_spec.B, rnn_state_interval=2, discount=self.discount, batch_T=self.batch_T
        )

    def samples_to_buffer(self, samples):
        return SamplesToBufferRnn(
            observation=samples.env.observation,
            action=samples.agent.action,
            reward=samples.env.reward,
            done=samples.env.done,
            prev_rnn_state=samples.agent.agent_info.prev_rnn_state,
        )

    def optimize_agent(self, itr, samples=None, sampler_itr=None):
        self.replay_buffer.append_samples(self.samples_to_buffer(samples))
        opt_info = self.OptInfoCls(*([] for _ in self.OptInfoCls._fields))
        if itr < self.min_itr_learn:
            return opt_info
        for _ in range(self.updates_per_optimize):
            self.optimizer.zero_grad()
            loss, td_abs_errors = self.loss(self.replay_buffer.sample_batch(self.batch_B))
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(self.agent.parameters(), self.clip_grad_norm)
            self.optimizer.step()
            opt_info.loss.append(loss.item())
            opt_info.gradNorm.append(grad_norm.item())
            opt_info.tdAbsErr.extend(td_abs_errors[::8].numpy())
            self.update_counter += 1
            self.agent.update_target(self.target_update_tau)
        return opt_info

    def loss(self, samples):
        all_inputs = buffer_to((samples.all_observation, samples.all_action, samples.all_reward), device=self.agent.device)
        state = buffer_method(buffer_method(samples.init_rnn_state, "transpose", 0, 1), "contiguous")
        qs, _ = self.agent(*all_inputs, state)
        q = select_at_indexes(samples.all_action[1 : self.batch_T + 1], qs[: self.batch_T])
        with torch.no_grad():
            next_q = self.agent.target(*all_inputs, state)[0][1 : self.batch_T + 1].max(dim=-1).values
        y = samples.return_ + (1 - samples.done_n.float()) * self.discount * next_q
        return (0.5 * (y - q) ** 2).mean(), abs(y - q).detach()


def test_a_recurrent_q_learning_of_ones_own_trains_a_recurrent_agent():
    algo = RecurrentDQN(min_steps_learn=32, replay_size=400, replay_ratio=2)
    info = train(algo, MlpR2d1Agent(model_kwargs=dict(lstm_size=4)), gym_make, id="CartPole-v1")
    assert algo.update_counter > 5 and np.isfinite(info.loss).all()


class MyCategoricalDQN(DQN):
    """Learns a distribution of the return, by its mean alone."""

    def initialize(self, *args, **kwargs):
        super().initialize(*args, **kwargs)
        self.agent.give_V_min_max(-2, 2)

    def loss(self, samples):
        z = torch.linspace(-2, 2, self.agent.n_atoms)
        q = select_at_indexes(samples.action, self.agent(*samples.agent_inputs)) @ z
        with torch.no_grad():
            target_q = (self.agent.target(*samples.target_inputs) @ z).max(dim=-1).values
        delta = samples.return_ + self.discount * (1 - samples.done_n.float()) * target_q - q
        return (delta**2).mean(), abs(delta.detach())


def test_a_distributional_loss_of_ones_own_trains_a_distributional_agent():
    algo = MyCategoricalDQN(min_steps_learn=32, replay_size=400, replay_ratio=2, prioritized_replay=True)
    info = train(algo, MlpCatDqnAgent(n_atoms=5), gym_make, id="CartPole-v1")
    assert algo.update_counter > 5 and np.isfinite(info.loss).all()


class MyTD3(DDPG):
    """Twin Q-functions on top of our DDPG, whose own loss is for one."""

    def q_loss(self, samples, valid):
        q1, q2 = self.agent.q(*samples.agent_inputs, samples.action)
        with torch.no_grad():
            target_q = torch.min(*self.agent.target_q_at_mu(*samples.target_inputs))
        y = samples.return_ + self.discount * (1 - samples.done_n.float()) * target_q
        return valid_mean(0.5 * (y - q1) ** 2, valid) + valid_mean(0.5 * (y - q2) ** 2, valid)


def test_a_loss_for_two_q_functions_on_top_of_our_ddpg_trains_what_our_td3_trains():
    agents = [Td3Agent(model_kwargs=SIZES, q_model_kwargs=SIZES) for _ in range(2)]
    algos = [start(Cls(batch_size=N, learning_rate=0.1, policy_update_interval=1), agent) for Cls, agent in zip((MyTD3, TD3), agents)]
    agents[0].load_state_dict(agents[1].state_dict())
    for seed in range(3):
        for algo in algos:
            torch.manual_seed(seed)
            algo.update(transitions(seed))
    assert_same_parameters(*agents)


def test_a_policy_gradient_of_ones_own_trains_an_agent_without_likelihoods():
    class ValuesOnly(PolicyGradientAlgo):
        """Monte-Carlo evaluation of Q-values."""

        bootstrap_value = False

        def __init__(self, learning_rate=0.01):
            self.learning_rate, self.OptimCls, self.optim_kwargs, self.initial_optim_state_dict = learning_rate, torch.optim.Adam, {}, None

        def optimize_agent(self, itr, samples):
            q = select_at_indexes(samples.agent.action, self.agent(samples.env.observation, None, None))
            self.optimizer.zero_grad()
            loss = ((q - samples.env.reward) ** 2).mean()
            loss.backward()
            self.optimizer.step()
            self.update_counter += 1
            return PgOptInfo(loss=loss.item(), gradNorm=0.0, entropy=0.0, perplexity=0.0)

    assert np.isfinite(train(ValuesOnly(), MlpDqnAgent(), gym_make, id="CartPole-v1").loss)


@pytest.mark.parametrize("AlgoCls, AgentCls", [(DQN, MlpR2d1Agent), (CategoricalDQN, MlpDqnAgent), (DDPG, Td3Agent), (TD3, DdpgAgent)])
def test_our_own_losses_still_refuse_agents_they_cannot_train(AlgoCls, AgentCls):
    class Mine(AlgoCls):
        """Nothing of its own that an agent would matter to."""

        def samples_to_buffer(self, samples):
            return super().samples_to_buffer(samples)

    agent = AgentCls()
    agent.initialize(SPACES if hasattr(agent, "action_std") else EnvSpaces(SPACES.observation, IntBox(0, 3)))
    with pytest.raises(ValueError, match="Mine needs an agent"):
        Mine().initialize(agent, 10, None, True, None)


# --- SAC --------------------------------------------------------------------------------------------------------------


class OriginalLossSac(SAC):
    """SAC's loss as the original computes it: the policy's has gradients for the Q-functions, which are to be thrown away."""

    def loss(self, samples):
        self._alpha = torch.exp(self._log_alpha.detach())
        q1, q2 = self.agent.q(*samples.agent_inputs, samples.action)
        with torch.no_grad():
            target_action, target_log_pi, _ = self.agent.pi(*samples.target_inputs)
            target_q = torch.min(*self.agent.target_q(*samples.target_inputs, target_action))
        y = self.reward_scale * samples.return_
        y = y + (1 - samples.done_n.float()) * self.discount * (target_q - self._alpha * target_log_pi)
        q1_loss, q2_loss = 0.5 * valid_mean((y - q1) ** 2), 0.5 * valid_mean((y - q2) ** 2)
        new_action, log_pi, (mean, log_std) = self.agent.pi(*samples.agent_inputs)
        min_q = torch.min(*self.agent.q(*samples.agent_inputs, new_action))
        pi_loss = valid_mean(self._alpha * log_pi - min_q - self.get_action_prior(new_action))
        alpha_loss = -valid_mean(self._log_alpha * (log_pi.detach() + self._target_entropy))
        values = tuple(value.detach() for value in (q1, q2, mean, log_std))
        return (q1_loss, q2_loss, pi_loss, alpha_loss), values


class StepByStepSac(OriginalLossSac):
    """SAC's update as the original does it: one backward and one step after the other."""

    def optimize_agent(self, itr, samples=None, sampler_itr=None):
        opt_info = OptInfo(*([] for _ in OptInfo._fields))
        self.replay_buffer.append_samples(self.samples_to_buffer(samples))
        if itr < self.min_itr_learn:
            return opt_info
        for _ in range(self.updates_per_optimize):
            self.my_update(self.replay_buffer.sample_batch(self.batch_size), opt_info)
            self.update_counter += 1
            self.agent.update_target(self.target_update_tau)
        return opt_info

    def my_update(self, batch, opt_info):
        losses, values = self.loss(batch)
        q1_loss, q2_loss, pi_loss, alpha_loss = losses
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        self.pi_optimizer.zero_grad()
        pi_loss.backward()
        pi_norm = torch.nn.utils.clip_grad_norm_(self.agent.pi_parameters(), self.clip_grad_norm)
        self.pi_optimizer.step()
        self.q1_optimizer.zero_grad()
        q1_loss.backward()
        q1_norm = torch.nn.utils.clip_grad_norm_(self.agent.q1_parameters(), self.clip_grad_norm)
        self.q1_optimizer.step()
        self.q2_optimizer.zero_grad()
        q2_loss.backward()
        q2_norm = torch.nn.utils.clip_grad_norm_(self.agent.q2_parameters(), self.clip_grad_norm)
        self.q2_optimizer.step()
        self.append_opt_info_(opt_info, losses, (q1_norm, q2_norm, pi_norm), values)


def test_a_sac_of_ones_own_makes_the_same_updates_as_ours_whoever_steps_the_optimizers():
    def make(AlgoCls):
        return start(AlgoCls(batch_size=N, learning_rate=0.1), SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES))

    ours, loss_only, all_mine = make(SAC), make(OriginalLossSac), make(StepByStepSac)
    for algo in (loss_only, all_mine):
        algo.agent.load_state_dict(ours.agent.state_dict())
    info = OptInfo(*([] for _ in OptInfo._fields))
    for seed in range(3):
        for algo in (ours, loss_only, all_mine):
            torch.manual_seed(seed)
            algo.my_update(transitions(seed), info) if algo is all_mine else algo.update(transitions(seed))
            algo.agent.update_target(0.5)
        assert_same_parameters(loss_only.agent, ours.agent)
        assert_same_parameters(all_mine.agent, ours.agent)
    assert loss_only._log_alpha == all_mine._log_alpha == ours._log_alpha != 0


def test_a_sac_of_ones_own_trains_and_logs_with_a_time_limited_environment():
    class MaskedSac(StepByStepSac):
        def loss(self, samples):
            assert samples.timeout_n.dtype == torch.bool and samples.timeout_n.shape == samples.done_n.shape
            self.n_timeouts = getattr(self, "n_timeouts", 0) + int(samples.timeout_n.sum())
            return super().loss(samples)

    algo = MaskedSac(min_steps_learn=32, replay_size=400, batch_size=16, replay_ratio=2)
    info = train(algo, SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES), gym_make, id="Pendulum-v1", max_episode_steps=9)
    assert algo.n_timeouts and algo.update_counter > 10 and all(len(field) for field in info)


def test_sac_leaves_alpha_at_1_without_a_target_entropy():
    algo = start(SAC(batch_size=N, target_entropy=None), SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES))
    for seed in range(2):
        algo.update(transitions(seed))
    assert algo._alpha == 1 and algo._log_alpha == 0 and algo.alpha_optimizer is None
    assert start(SAC(target_entropy=None, fixed_alpha=0.5), SacAgent())._alpha == 0.5


class ReadsAlphaSac(OriginalLossSac):
    """Relies on the base class to keep alpha and the entropy it is tuned for."""

    def loss(self, samples):
        self.seen = float(self._alpha), self._target_entropy
        return super().loss(samples)


def test_a_loss_of_ones_own_sees_alpha_change_and_the_number_that_it_is_tuned_for():
    algo = start(ReadsAlphaSac(batch_size=N, learning_rate=0.1), SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES))
    algo.update(transitions())
    assert algo.seen == (1, -2)
    assert algo._alpha == algo._log_alpha.exp() != 1
    algo.update(transitions())
    assert algo.seen[0] != 1


# --- PPO --------------------------------------------------------------------------------------------------------------


class MyPpo(PPO):
    """Its own loop of updates, and the schedules as the original steps them: at the end of an iteration."""

    def optimize_agent(self, itr, samples):
        self.rates = self.optimizer.param_groups[0]["lr"], self.ratio_clip
        return_, advantage, valid = self.process_returns(samples)
        self.optimizer.zero_grad()
        inputs = self.agent_inputs(samples), samples.agent.action, return_, advantage, valid, samples.agent.agent_info.dist_info
        loss, entropy, perplexity = self.loss(*inputs)
        loss.backward()
        self.optimizer.step()
        self.update_counter += 1
        if self.linear_lr_schedule:
            self.lr_scheduler.step()
            self.ratio_clip = self._ratio_clip * (self.n_itr - itr) / self.n_itr
        return PgOptInfo(loss=loss.item(), gradNorm=0.0, entropy=entropy.item(), perplexity=perplexity.item())


def test_a_ppo_of_ones_own_steps_its_schedules_and_has_our_rates():
    n_itr, seen = 8, {}

    class Recording(PPO):
        def optimize_agent(self, itr, samples):
            info = super().optimize_agent(itr, samples)
            seen[itr] = self.optimizer.param_groups[0]["lr"], self.ratio_clip
            return info

    class Mine(MyPpo):
        def optimize_agent(self, itr, samples):
            info = super().optimize_agent(itr, samples)
            assert self.rates == pytest.approx(seen[itr])
            return info

    for AlgoCls in (Recording, Mine):
        train(AlgoCls(learning_rate=0.1, ratio_clip=0.2), MlpFfAgent(), gym_make, n_itr=n_itr, id="CartPole-v1")
    assert len(seen) == n_itr and seen[0] == (0.1, 0.2) and seen[1] == pytest.approx((0.1 * 7 / 8, 0.2))


def test_a_schedule_that_is_stepped_goes_on_where_a_checkpoint_was_made():
    def make():
        agent = MlpFfAgent()
        agent.initialize(EnvSpaces(SPACES.observation, IntBox(0, 3)))
        algo = MyPpo(learning_rate=0.1)
        algo.initialize(agent, 10, BatchSpec(4, 2), True)
        return algo

    algo, resumed = make(), make()
    for _ in range(3):
        algo.optimizer.step()
        algo.lr_scheduler.step()
    resumed.load_optim_state_dict(copy.deepcopy(algo.optim_state_dict()))
    resumed.load_training_state(algo.training_state())
    for each in (algo, resumed):
        each.optimizer.step()
        each.lr_scheduler.step()
        assert each.optimizer.param_groups[0]["lr"] == pytest.approx(0.06)


# --- Settings and inputs of models ------------------------------------------------------------------------------------


def test_a_mean_without_nonlinearity_is_that_of_the_last_layer():
    model = MujocoFfModel((3,), A, [6], mu_nonlinearity=None)
    x = torch.randn(5, 3)
    torch.testing.assert_close(model(x, None, None)[0], model.mu(x))
    model.mu.model[-1].bias.data += 5
    assert model.mu(x).max() > 1 and "mu.model.0.weight" in model.state_dict()


@pytest.mark.parametrize("given, expected", [({}, 2), (dict(output_max=1), 1)])
def test_the_largest_output_of_a_policy_is_that_of_actions_unless_its_arguments_say(given, expected):
    agent = DdpgAgent(model_kwargs=dict(SIZES, **given))
    agent.initialize(EnvSpaces(FloatBox(-1, 1, (3,)), FloatBox(-2, 2, (A,))))
    with torch.no_grad():
        for model in (agent.model, agent.target_model):
            model.mlp.model[-1].bias += 1e6
            assert model(torch.zeros(1, 3), None, None).max() == expected


IMAGE = (2, 24, 20)
LAYERS = dict(channels=[3], kernel_sizes=[4], strides=[2], paddings=[0])
IMAGE_MODELS = {
    "ff": lambda **kwargs: AtariFfModel(IMAGE, 3, 6, **kwargs),
    "lstm": lambda **kwargs: AtariLstmModel(IMAGE, 3, 6, 5, **kwargs),
    "dqn": lambda **kwargs: AtariDqnModel(IMAGE, 3, 6, **kwargs),
    "r2d1": lambda **kwargs: AtariR2d1Model(IMAGE, 3, 6, 5, 6, **kwargs),
}


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_float_images_above_1_are_refused_and_others_are_used_as_they_are(name):
    model = IMAGE_MODELS[name](**LAYERS)
    rest = (torch.zeros(4, 3), torch.zeros(4), *([None] if name in ("lstm", "r2d1") else []))
    image = torch.randint(0, 256, (4, *IMAGE), dtype=torch.uint8)
    model(torch.zeros(4, *IMAGE), *rest)  # Says nothing yet.
    with pytest.raises(ValueError, match=r"as floats in \[0,1\], but these are floats up to 2.*divide them by 255"):
        model(image.float(), *rest)
    out, expected = model(image.float() / 255, *rest), model(image, *rest)
    torch.testing.assert_close(out[0], expected[0])


@pytest.mark.parametrize("name", ["dqn", "r2d1"])
def test_fewer_channels_than_there_are_by_default_make_fewer_layers(name):
    model = IMAGE_MODELS[name](channels=[4, 5])
    convs = [layer for layer in model.conv.conv if isinstance(layer, torch.nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size[0], c.stride[0], c.padding[0]) for c in convs] == [(4, 8, 4, 0), (5, 4, 2, 1)]
    with pytest.raises(ValueError, match="one entry per layer"):
        IMAGE_MODELS[name](channels=[4, 5], kernel_sizes=[3, 3, 3])
    with pytest.raises(ValueError, match="one entry per layer"):
        IMAGE_MODELS[name](channels=[4, 5, 6, 7])


def test_variants_of_the_td3_configuration_may_set_its_learning_rate():
    config = load("mujoco_td3").configs["td3_1M_serial"]
    assert config["algo"]["learning_rate"] == TD3(**config["algo"]).mu_learning_rate == 1e-3
    assert TD3(**dict(config["algo"], learning_rate=3e-4)).mu_learning_rate == 3e-4
