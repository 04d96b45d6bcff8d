"""Deep Q-learning from observations of images and vectors together."""

import gymnasium
import numpy as np
import pytest
import torch
from collecting import collect, kinds
from tiers import thinned

from rlpyt.agents.dqn.multi_input import (
    MultiInputCatDqnAgent,
    MultiInputDqnAgent,
    MultiInputIqnAgent,
    MultiInputIqnR2d1Agent,
    MultiInputIqnR2d1AlternatingAgent,
    MultiInputQrDqnAgent,
    MultiInputQrR2d1Agent,
    MultiInputR2d1Agent,
    MultiInputR2d1AlternatingAgent,
)
from rlpyt.algos.base import normalization_of
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.algos.dqn.quantile_r2d1 import QuantileR2D1
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.buffer import torchify_buffer


class GuessGymEnv(gymnasium.Env):
    """The reward is 1 for the number of the bright row of a picture, or for the next one if a flag is set. Some actions are masked."""

    observation_space = gymnasium.spaces.Dict(
        picture=gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8), flag=gymnasium.spaces.Box(0, 1, (1,), np.float32)
    )
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe()

    def _observe(self):
        self.row, flag = self.np_random.integers(2), self.np_random.integers(0, 2, 1)
        self.right = self.row + flag[0]
        picture = np.zeros((1, 8, 8), np.uint8)
        picture[0, 2 * self.row] = 255
        self.mask = self.np_random.integers(0, 2, 3).astype(np.int8)
        self.mask[self.right] = 1
        return dict(picture=picture, flag=flag.astype(np.float32)), dict(action_mask=self.mask)

    def step(self, action):
        if not self.mask[action]:
            raise ValueError("planned failure: masked")
        self.t += 1
        reward = float(action == self.right)
        return self._observe()[0], reward, self.t == 5, False, dict(action_mask=self.mask)


def make_guess():
    return GymEnvWrapper(GuessGymEnv(), action_mask="action_mask")


REPLAY = dict(min_steps_learn=32, replay_size=1000, replay_ratio=2)
OF_R2D1 = dict(batch_T=4, batch_B=4, warmup_T=2, store_rnn_state_interval=2, **REPLAY)
CASES = {
    "DQN": (DQN, dict(batch_size=16, **REPLAY), MultiInputDqnAgent, {}),
    "Rainbow": (
        CategoricalDQN,
        dict(batch_size=16, double_dqn=True, prioritized_replay=True, n_step_return=3, **REPLAY),
        MultiInputCatDqnAgent,
        dict(dueling=True, noisy=True),
    ),
    "R2D1": (R2D1, OF_R2D1, MultiInputR2d1Agent, {}),
    "R2D1 with a GRU": (R2D1, OF_R2D1, MultiInputR2d1Agent, dict(rnn="gru")),
    "QR-DQN": (QuantileDQN, dict(batch_size=16, **REPLAY), MultiInputQrDqnAgent, dict(dueling=True)),
    "IQN": (QuantileDQN, dict(batch_size=16, munchausen=True, **REPLAY), MultiInputIqnAgent, dict(dueling=True, noisy=True)),
    "QR-R2D1": (QuantileR2D1, OF_R2D1, MultiInputQrR2d1Agent, {}),
    "IQN-R2D1": (QuantileR2D1, dict(munchausen=True, **OF_R2D1), MultiInputIqnR2d1Agent, dict(noisy=True)),
}


def runner(name, n_steps, collector=CpuResetCollector, normalize=False, **settings):
    Algo, algo_settings, AgentCls, model = CASES[name]
    return MinibatchRl(
        algo=Algo(**{**algo_settings, **settings}),
        agent=AgentCls(model_kwargs=dict(model, image_sizes=16, fc_sizes=16, normalize_observation=normalize)),
        sampler=SerialSampler(make_guess, {}, batch_T=4, batch_B=4, CollectorCls=collector),
        n_steps=n_steps,
        log_interval_steps=n_steps,
        seed=0,
        affinity=dict(master_torch_threads=1),
    )


@pytest.mark.parametrize("name", thinned(CASES, ["DQN", "IQN-R2D1"]))
def test_unchanged_algorithms_train_them_also_with_masks(name):
    run = runner(name, 96)
    before = None
    optimize = run.algo.optimize_agent

    def optimize_agent(*args, **kwargs):
        nonlocal before
        if before is None:
            before = [parameter.detach().clone() for parameter in run.agent.parameters()]
        return optimize(*args, **kwargs)

    run.algo.optimize_agent = optimize_agent
    run.train()
    changed = [not torch.equal(old, new) for old, new in zip(before, run.agent.parameters())]
    assert all(changed), "in all branches of the network"


@pytest.mark.parametrize("AgentCls", [MultiInputDqnAgent, MultiInputR2d1AlternatingAgent, MultiInputIqnR2d1AlternatingAgent])
@pytest.mark.parametrize("kind", kinds(["alternating, 2 workers"]))
def test_alternating_samplers_take_them(kind, AgentCls):
    collected = collect(kind, AgentCls(), EnvCls=make_guess, env={}, T=6, B=4, bootstrap_value=False)
    assert collected.batches[0].env.observation.observation.picture.shape == (6, 4, 1, 8, 8)


@pytest.mark.parametrize("collector", [CpuResetCollector, CpuWaitResetCollector])
@pytest.mark.parametrize("name", ["DQN", "R2D1"])
def test_vectors_are_normalized_by_the_statistics_of_what_was_replayed(name, collector):
    run = runner(name, 96, collector, normalize=True)
    seen, n_first, update_once = [], [], run.algo.update

    def update(batch):
        if run.algo.sequences is None:
            flags = batch.agent_inputs.observation.observation.flag
        else:
            flags = batch.all_observation.observation.flag[: len(batch.done)][batch.valid]
        seen.extend(flags.flatten().tolist())
        n_first.append(len(seen))
        statistics = run.agent.model.obs_rms  # They include this batch.
        assert statistics.count == len(seen)
        np.testing.assert_allclose([float(statistics.mean), float(statistics.var)], [np.mean(seen), np.var(seen)], rtol=1e-6)
        return update_once(batch)

    run.algo.update = update
    run.train()
    statistics = run.agent.model.obs_rms
    assert len(seen) > 40 and 0.2 < statistics.mean < 0.8
    targets = run.agent.target_model.obs_rms  # Older, like the rest of the target network: of the first batch that was replayed.
    assert targets.count == n_first[0] < statistics.count
    np.testing.assert_allclose(targets.exact_mean, [np.mean(seen[: n_first[0]])], rtol=1e-6)

    run.agent.update_target(1)
    assert torch.equal(targets.exact_mean, statistics.exact_mean) and targets.count == statistics.count
    heard = []
    run.agent.model.vector.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[0]))
    observation = torchify_buffer(run.sampler.samples_np.env.observation[-1])
    run.agent.reset()
    run.agent.step(observation, torch.zeros(4, dtype=torch.int64), torch.zeros(4))
    expected = (observation.observation.flag.numpy() - np.mean(seen)) / np.std(seen)
    np.testing.assert_allclose(heard[0], expected, rtol=1e-5)


def test_statistics_are_those_of_before_where_a_run_goes_on(tmp_path):
    """A state dict has them, and loading it gives the same Q-values."""
    run = runner("DQN", 96, normalize=True)
    run.train()
    other = runner("DQN", 96, normalize=True)
    other.agent.initialize(run.agent.env_spaces)
    other.agent.load_state_dict(run.agent.state_dict())
    observation = torch.as_tensor(run.sampler.samples_np.env.observation[-1].observation.flag)
    assert torch.equal(other.agent.model.obs_rms.normalize(observation), run.agent.model.obs_rms.normalize(observation))


@pytest.mark.parametrize("normalize", [False, True])
def test_an_agent_tells_whether_it_normalizes_observations(normalize):
    env = make_guess()
    agent = MultiInputDqnAgent(model_kwargs=dict(image_sizes=16, fc_sizes=16, normalize_observation=normalize))
    agent.initialize(env.spaces)
    assert agent.normalizes_observations == normalize
    assert (normalization_of(agent) is not None) == normalize


@pytest.mark.parametrize("is_given", [False, True])
def test_target_networks_that_were_given_stay_when_the_first_statistics_are_there(is_given):
    """New target networks get the statistics of the models."""
    run = runner("DQN", 64, normalize=True, target_update_interval=10**6)
    if is_given:
        first = runner("DQN", 32, normalize=True).agent
        first.initialize(make_guess().spaces)
        given = first.state_dict()
        with torch.no_grad():
            for name, x in given["target"].items():
                x.add_(1) if "weight" in name else None
        run.agent.initial_model_state_dict = given
    run.train()
    target = run.agent.state_dict()["target"]
    assert run.algo.update_counter > 0
    if is_given:
        assert all(torch.equal(target[name], x) for name, x in given["target"].items())
    else:
        assert run.agent.target_model.obs_rms.count > 0
