"""Agents for observations of images and vectors together, and for actions of any kind."""

import math

import gymnasium.spaces
import numpy as np
import pytest
import torch
from collecting import KINDS, ONE_OF_EACH, collect, kinds
from envs import make_every_kind, numbers_of
from tiers import full, learning

from rlpyt.agents.pg.multi_input import AlternatingMultiInputLstmAgent, MultiInputFfAgent, MultiInputLstmAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.base import ActionForm, EnvSpaces, for_envs
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.models.conv2d import Conv2dModel
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_func, buffer_leaves

SMALL = dict(channels=[4, 4], kernel_sizes=[3, 3], strides=[2, 2], paddings=[1, 1], image_sizes=8, vector_sizes=8)
FF, LSTM, GRU = dict(SMALL, fc_sizes=8), dict(SMALL, lstm_size=8), dict(SMALL, lstm_size=8, rnn="gru")


def make(AgentCls, spaces, **settings):
    torch.manual_seed(0)
    agent = AgentCls(**settings)
    agent.initialize(spaces)
    agent.sample_mode(0)
    return agent


def inputs(spaces, *lead):
    """Random observations and actions of these spaces, and zero rewards."""
    n = math.prod(lead)

    def draw(space):
        drawn = [space.sample() for _ in range(n)]
        columns = iter([np.stack(leaves).reshape((*lead, *np.shape(leaves[0]))) for leaves in zip(*map(buffer_leaves, drawn))])
        return buffer_func(drawn[0], lambda _: torch.from_numpy(next(columns)))

    return draw(spaces.observation), draw(spaces.action), torch.zeros(lead)


@pytest.mark.parametrize("AgentCls, model", [(MultiInputFfAgent, FF), (MultiInputLstmAgent, LSTM), (MultiInputLstmAgent, GRU)])
def test_training_sees_what_the_steps_saw(AgentCls, model):
    spaces = make_every_kind().spaces
    agent = make(AgentCls, spaces, model_kwargs=model)
    batch = inputs(spaces, 4, 3)
    steps = [agent.step(*(buffer_func(part, lambda x, t=t: x[t]) for part in batch)) for t in range(4)]
    dist_info, value, *_ = agent(*batch, None) if agent.recurrent else agent(*batch)
    for t, step in enumerate(steps):
        assert [leaf.shape for leaf in buffer_leaves(step.action)] == [leaf[t].shape for leaf in buffer_leaves(batch[1])]
        torch.testing.assert_close(value[t].detach(), step.agent_info.value, rtol=1e-4, atol=1e-5)
        for now, then in zip(buffer_leaves(dist_info[t]), buffer_leaves(step.agent_info.dist_info)):
            torch.testing.assert_close(now.detach(), then, rtol=1e-4, atol=1e-5)
    loss = value.sum() - agent.distribution.log_likelihood(batch[1], dist_info).sum() + agent.distribution.entropy(dist_info).sum()
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in agent.parameters())


def test_every_part_of_the_observation_matters():
    spaces = make_every_kind().spaces
    agent = make(MultiInputFfAgent, spaces, model_kwargs=FF)
    observation, *others = inputs(spaces, 50)
    value = agent.value(observation, *others)
    for k in range(len(buffer_leaves(observation))):
        number = iter(range(100))
        changed = buffer_func(observation, lambda x, k=k, number=number: x.flip(0) if next(number) == k else x)
        assert not torch.equal(agent.value(changed, *others), value), k


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize(
    "space, n_images",
    [
        (IntBox(0, 256, (2, 36, 36), dtype="uint8"), 1), (IntBox(0, 256, (40, 40), dtype="uint8"), 1), (FloatBox(0, 1, (3, 5, 5)), 1),
        (FloatBox(-1, 1, (4,)), 0), (FloatBox(-1, 1, ()), 0), (IntBox(0, 7), 0), (IntBox(0, 10**6), 0), (IntBox(0, 9, (5,)), 0),
    ],
)  # fmt: skip
def test_an_observation_may_be_a_single_image_vector_or_number(space, n_images, lead):
    spaces = EnvSpaces(space, IntBox(0, 3))
    agent = make(MultiInputFfAgent, spaces, model_kwargs=dict(fc_sizes=8))
    step = agent.step(*inputs(spaces, *lead))
    assert step.action.shape == lead and step.agent_info.value.shape == lead
    assert sum(isinstance(module, Conv2dModel) for module in agent.model.modules()) == n_images


def test_channels_that_are_last_are_refused():
    spaces = EnvSpaces(GymSpaceWrapper(gymnasium.spaces.Dict(eye=gymnasium.spaces.Box(0, 255, (40, 40, 3), np.uint8))), IntBox(0, 3))
    with pytest.raises(ValueError, match=r"\(40, 40, 3\) .* seems to be \(H,W,C\)"):
        make(MultiInputFfAgent, spaces)


def test_a_layer_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="rnn='LSTM' is not possible; it must be 'lstm' or 'gru'"):
        make(MultiInputLstmAgent, EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, 3)), model_kwargs=dict(rnn="LSTM"))


@pytest.mark.parametrize("AgentCls, model", [(MultiInputFfAgent, FF), (MultiInputLstmAgent, LSTM)])
def test_vectors_are_normalized_by_their_statistics(AgentCls, model):
    spaces = make_every_kind().spaces
    agent = make(AgentCls, spaces, model_kwargs=dict(model, normalize_observation=True))
    observation, *_ = inputs(spaces, 5, 40)
    agent.update_obs_rms(observation)
    seen = torch.cat([observation.body.item_0, observation.body.item_1 / 255, observation.lamps], dim=-1).flatten(0, 1).float()
    torch.testing.assert_close(agent.model.obs_rms.mean, seen.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(agent.model.obs_rms.var, seen.var(0, unbiased=False), rtol=1e-4, atol=1e-5)


def dict_of(**parts):
    return EnvSpaces(GymSpaceWrapper(gymnasium.spaces.Dict(parts)), IntBox(0, 3))


EYE, CARD = gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8), gymnasium.spaces.Discrete(3)


def test_normalization_that_has_nothing_to_normalize_is_told_of(capsys):
    normalize = dict(FF, normalize_observation=True)
    agent = make(MultiInputFfAgent, dict_of(eye=EYE, card=CARD), model_kwargs=normalize)
    assert "MultiInputFfModel: normalize_observation=True has no effect, leave it out" in capsys.readouterr().out
    assert agent.model.obs_rms is None
    make(MultiInputFfAgent, dict_of(eye=EYE, card=CARD), model_kwargs=FF)
    make(MultiInputFfAgent, dict_of(eye=EYE, v=gymnasium.spaces.Box(-1, 1, (2,))), model_kwargs=normalize)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("wrong", [0, 1])
def test_each_image_of_floats_is_looked_at_until_one_is_not_black(wrong):
    image = gymnasium.spaces.Box(0, 1, (1, 8, 8))
    spaces = dict_of(left=image, right=image)
    agent = make(MultiInputFfAgent, spaces, model_kwargs=FF)
    observation, *others = inputs(spaces, 3)

    def scaled(*factors):
        return type(observation)(*(part * factor for part, factor in zip(tuple(observation), factors)))

    agent.value(scaled(*((0, 1) if wrong == 0 else (1, 0))), *others)
    with pytest.raises(ValueError, match=r"takes images as uint8 in \[0,255\] or as floats in \[0,1\], but these are floats up to 2"):
        agent.value(scaled(*((255, 1) if wrong == 0 else (1, 255))), *others)
    agent.value(scaled(1, 1), *others)
    agent.value(scaled(255, 255), *others)  # Both are known, so nothing waits for a GPU any more.


def test_deterministic_evaluation_takes_the_means_of_all_real_numbers():
    spaces = make_every_kind().spaces
    agent = make(MultiInputFfAgent, spaces, model_kwargs=FF, deterministic_eval=True)
    batch = inputs(spaces, 3)
    agent.eval_mode(1)
    action, info = agent.step(*batch)
    assert torch.equal(action.steer, info.dist_info.steer.mean) and torch.equal(action.table.flatten(1), info.dist_info.table.mean)
    agent.sample_mode(1)
    action, info = agent.step(*batch)
    assert not torch.equal(action.steer, info.dist_info.steer.mean)


# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [FF, LSTM, pytest.param(GRU, marks=full)], ids=["feedforward", "lstm", "gru"])
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH, quick=["serial", "GPU, 2 workers"]))
def test_all_samplers_give_environments_actions_in_their_units(kind, model):
    """The environment refuses actions that are not in its space."""
    AgentCls = MultiInputFfAgent
    if model is not FF:
        AgentCls = AlternatingMultiInputLstmAgent if KINDS[kind].alternating else MultiInputLstmAgent
    agent = AgentCls(model_kwargs=model)
    collected = collect(kind, agent, EnvCls=make_every_kind, env={}, wait_reset=model is LSTM, T=6, B=4)
    space = make_every_kind().action_space
    first = buffer_leaves(collected.batches[0].agent.prev_action[0])
    assert not any(leaf.any() for leaf in first), "those before the batch were not drawn by the agent, and in other units"
    for batch in collected.batches:
        in_units = for_envs(space, ActionForm.of(agent))(batch.agent.action)
        for t, b in zip(*np.nonzero(batch.env.env_info.got.any(-1))):  # Where environments wait there are zeros.
            expected = numbers_of(space.revert(in_units[t, b]))
            np.testing.assert_allclose(batch.env.env_info.got[t, b], expected, rtol=1e-6)
    assert any((np.abs(batch.agent.action.steer) > 1).any() for batch in collected.batches), "batches keep what was chosen"


@pytest.mark.parametrize(
    "Algo, AgentCls, model",
    [
        (PPO, MultiInputFfAgent, FF),
        (A2C, MultiInputLstmAgent, GRU),
        pytest.param(A2C, MultiInputFfAgent, FF, marks=full),
        pytest.param(PPO, MultiInputLstmAgent, GRU, marks=full),
    ],
)
def test_unchanged_algorithms_train_them(Algo, AgentCls, model):
    runner = MinibatchRl(
        algo=Algo(),
        agent=AgentCls(model_kwargs=dict(model, normalize_observation=True)),
        sampler=SerialSampler(make_every_kind, {}, batch_T=8, batch_B=4, max_decorrelation_steps=0),
        n_steps=128,
        log_interval_steps=64,
        seed=0,
        affinity=dict(master_torch_threads=1),
    )
    runner.train()
    assert runner.agent.model.obs_rms.count == 128


# ---------------------------------------------------------------------------------------------------------------------
class LampsGymEnv(gymnasium.Env):
    """Press the buttons of the lamps that are lit in a picture, as hard as a number says; reward 1 at best, episodes of 8 steps."""

    observation_space = gymnasium.spaces.Dict(
        picture=gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8), force=gymnasium.spaces.Box(0, 1, (1,), np.float32)
    )
    action_space = gymnasium.spaces.Dict(buttons=gymnasium.spaces.MultiBinary(3), force=gymnasium.spaces.Box(0, 1, (1,), np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def _observe(self):
        self.lit, self.force = self.np_random.integers(0, 2, 3), self.np_random.uniform(0, 1, 1).astype(np.float32)
        picture = np.zeros((1, 8, 8), np.uint8)
        picture[0, 2, [1, 3, 5]] = 255 * self.lit
        return dict(picture=picture, force=self.force)

    def step(self, action):
        right = (action["buttons"] == self.lit).mean()
        reward = float(2 * right - 1 - abs(action["force"] - self.force)[0])
        self.t += 1
        return self._observe(), reward, self.t == 8, False, {}


def make_lamps():
    return GymEnvWrapper(LampsGymEnv())


@learning
@full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("AgentCls", [MultiInputFfAgent, MultiInputLstmAgent])
def test_a_game_of_pictures_and_numbers_is_learned(AgentCls):
    returns = []

    class Recording(MinibatchRl):
        def store_diagnostics(self, itr, traj_infos, opt_info):
            super().store_diagnostics(itr, traj_infos, opt_info)
            returns.extend(info.Return / info.Length for info in traj_infos)

    Recording(
        algo=PPO(discount=0.0, learning_rate=5e-3, ratio_clip=0.2, entropy_loss_coeff=0.0, normalize_advantage=True, clip_grad_norm=10),
        agent=AgentCls(model_kwargs=dict(SMALL, init_log_std=-1.0)),
        sampler=SerialSampler(make_lamps, {}, batch_T=32, batch_B=16, max_decorrelation_steps=0),
        n_steps=20_480,
        log_interval_steps=20_480,
        seed=0,
        affinity=dict(master_torch_threads=1),
    ).train()
    assert np.mean(returns[:50]) < 0
    assert np.mean(returns[-100:]) > 0.7  # about -0.3 at random, 1 at best


IMAGES_OF_BITS = [gymnasium.spaces.MultiBinary([3, 8, 8]), gymnasium.spaces.Box(0, 1, (3, 8, 8), np.int8)]


@pytest.mark.parametrize("space", IMAGES_OF_BITS, ids=str)
def test_planes_of_zeros_and_ones_are_images(space):
    spaces = EnvSpaces(GymSpaceWrapper(space), FloatBox(-1, 1, (2,)))
    agent = make(MultiInputFfAgent, spaces, model_kwargs=FF)
    assert len(agent.model.images) == 1
    observation, action, reward = inputs(spaces, 4)
    bits = [agent.step(x, action, reward).agent_info.value for x in (observation, observation.float())]
    assert torch.equal(*bits)


@pytest.mark.parametrize(
    "space",
    [gymnasium.spaces.Box(0, 255, (3, 8, 8), np.int64), gymnasium.spaces.MultiDiscrete(np.full((3, 8, 8), 4))],
    ids=["box", "discrete"],
)
def test_other_integers_with_three_dimensions_are_refused_when_the_model_is_made(space):
    with pytest.raises(ValueError, match=r"Observations \(3, 8, 8\) of int64 have three dimensions, like images, but are neither uint8"):
        make(MultiInputFfAgent, EnvSpaces(GymSpaceWrapper(space), FloatBox(-1, 1, (2,))), model_kwargs=FF)
