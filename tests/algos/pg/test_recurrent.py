"""Policy gradients with recurrent agents, on data from a sampling loop that does everything one environment at a time."""

import numpy as np
import oracles
import pytest
import torch
from tiers import full, learning, thinned

from rlpyt.agents.pg.atari import AlternatingAtariLstmAgent, AtariLstmAgent
from rlpyt.agents.pg.mlp import AlternatingMlpLstmAgent, MlpFfAgent, MlpLstmAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent, MujocoLstmAgent
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.lstm import RnnState
from rlpyt.samplers.collections import AgentSamplesBsv, BatchSpec, EnvSamples, Samples
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_func

T, B, H = 9, 4, 5
VECTORS, IMAGES = FloatBox(-1, 1, (4,)), IntBox(0, 256, (1, 12, 12), dtype="uint8")
DISCRETE, CONTINUOUS = IntBox(0, 3, null_value=1), FloatBox(-1, 1, (2,), null_value=0.5)
CONV = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=6)
AGENTS = {
    "mlp": (MlpLstmAgent, EnvSpaces(VECTORS, DISCRETE), {}),
    "alternating mlp": (AlternatingMlpLstmAgent, EnvSpaces(VECTORS, DISCRETE), {}),
    "atari": (AtariLstmAgent, EnvSpaces(IMAGES, DISCRETE), CONV),
    "alternating atari": (AlternatingAtariLstmAgent, EnvSpaces(IMAGES, DISCRETE), CONV),
    "mujoco": (MujocoLstmAgent, EnvSpaces(VECTORS, CONTINUOUS), dict(hidden_sizes=[6], normalize_observation=True)),
}


def make(name):
    torch.manual_seed(0)
    AgentCls, spaces, model_kwargs = AGENTS[name]
    agent = AgentCls(model_kwargs=dict(model_kwargs, lstm_size=H))
    agent.initialize(spaces)
    return agent


def start(algo, agent, mid_batch_reset, n_itr=10):
    algo.initialize(agent, n_itr, BatchSpec(T, B), mid_batch_reset=mid_batch_reset)
    return algo


class World:
    """B environments of noise, whose episodes end at random or by time limit; sampled as collectors do, but plainly.

    mid_batch_reset: False lets an environment whose episode has ended stand still until the next batch, its rows being zero.
    """

    def __init__(self, agent, mid_batch_reset, p_done=0.08, seed=0):
        self.agent, self.mid_batch_reset, self.p_done = agent, mid_batch_reset, p_done
        self.rng = np.random.default_rng(seed)
        self.spaces = agent.env_spaces
        self.observation = [self.observe() for _ in range(B)]
        self.action = [self.null_action() for _ in range(B)]
        self.reward = [0.0] * B
        self.waiting = [False] * B
        agent.reset()

    def observe(self):
        if self.spaces.observation is IMAGES:
            return torch.from_numpy(self.rng.integers(0, 256, IMAGES.shape).astype(np.uint8))
        return torch.from_numpy(self.rng.normal(size=VECTORS.shape).astype(np.float32)) * 3 + 1

    def null_action(self):
        return torch.as_tensor(self.spaces.action.null_value())

    def halves(self):
        return [range(B // 2), range(B // 2, B)] if self.agent.alternating else [range(B)]

    def ask(self, method, half):
        """What the agent answers for some environments; if it is alternating, in its turn."""
        if self.agent.alternating and self.agent.get_alt() != (half[0] > 0):
            self.agent.toggle_alt()
        chosen = slice(half[0], half[-1] + 1)
        return method(torch.stack(self.observation[chosen]), torch.stack(self.action[chosen]), torch.tensor(self.reward[chosen]))

    def forget(self, b):
        self.action[b], self.reward[b] = self.null_action(), 0.0
        half = int(self.agent.alternating and b >= B // 2)
        if self.agent.alternating and self.agent.get_alt() != half:
            self.agent.toggle_alt()
        self.agent.reset_one(b - half * B // 2)

    def batch(self, itr):
        """Samples of T steps."""
        self.agent.sample_mode(itr)
        rows, observations = [], [torch.stack(self.observation)]
        raw_action, raw_reward = [torch.stack(self.action)], [torch.tensor(self.reward)]
        for _ in range(T):
            steps = [self.ask(self.agent.step, half) for half in self.halves()]
            action = torch.cat([step.action for step in steps])
            info = join([step.agent_info for step in steps])
            value = [0.0] * B
            reward, done, timeout = torch.zeros(B), torch.zeros(B, dtype=torch.bool), torch.zeros(B, dtype=torch.bool)
            ended = []
            for b in range(B):
                if self.waiting[b]:
                    done[b], action[b], self.observation[b] = True, 0, self.observation[b] * 0
                    for leaf in leaves(info):
                        leaf[b] = 0
                    ended.append(b)
                    continue
                reward[b], self.observation[b] = self.rng.normal(), self.observe()
                self.action[b], self.reward[b] = action[b], reward[b].item()
                if self.rng.random() < self.p_done:
                    done[b], timeout[b] = True, bool(self.rng.random() < 0.5)
                    ended.append(b)
            if timeout.any():
                values = torch.cat([self.ask(self.agent.value, half) for half in self.halves()])
                value = (values * timeout).tolist()
            for b in ended:
                self.forget(b)
                self.waiting[b] = not self.mid_batch_reset
                self.observation[b] = self.observe() if self.mid_batch_reset else self.observation[b] * 0
            rows.append((info, done, timeout, torch.tensor(value)))
            raw_action.append(action)
            raw_reward.append(reward)
            observations.append(torch.stack(self.observation))
        bootstrap = torch.cat([self.ask(self.agent.value, half) for half in self.halves()])[None]
        for b in range(B):
            if self.waiting[b]:
                self.waiting[b], self.observation[b] = False, self.observe()
        if self.agent.alternating and self.agent.get_alt():
            self.agent.toggle_alt()
        info, done, timeout, value = (stack([row[i] for row in rows]) for i in range(4))
        action, reward, observation = torch.stack(raw_action), torch.stack(raw_reward), torch.stack(observations)
        return Samples(
            AgentSamplesBsv(action[1:], action[:-1], info, bootstrap, value),
            EnvSamples(observation[:-1], reward[1:], reward[:-1], done, None, timeout, observation[1:]),
        )


def leaves(structure):
    return [leaf for part in structure for leaf in leaves(part)] if isinstance(structure, tuple) else [structure]


def combine(structures, function):
    if isinstance(structures[0], tuple):
        return structures[0]._make(combine([s[i] for s in map(tuple, structures)], function) for i in range(len(structures[0])))
    return function([x.clone() for x in structures])


def join(structures):
    return combine(structures, torch.cat)


def stack(structures):
    return combine(structures, torch.stack)


def valid_steps(samples):
    return torch.from_numpy(oracles.columns(oracles.valid_until_done, samples.env.done.numpy())).bool()


def recorded(owner, method):
    """A list to which from now on everything is added that this method returns."""
    original, results = getattr(owner, method), []
    setattr(owner, method, lambda *args, **kwargs: (results.append(original(*args, **kwargs)), results[-1])[1])
    return results


@pytest.fixture(params=thinned(AGENTS, quick=["alternating mlp", "atari", "mujoco"]))
def name(request):
    return request.param


@pytest.mark.parametrize("mid_batch_reset", [True, False])
def test_what_is_recorded_is_the_model_run_one_step_of_one_environment_at_a_time(name, mid_batch_reset):
    agent = make(name)
    world = World(agent, mid_batch_reset)
    states, actions, rewards = [None] * B, [world.null_action() for _ in range(B)], [torch.zeros(())] * B
    n_done = 0
    for itr in range(3):
        samples = world.batch(itr)
        info, env = samples.agent.agent_info, samples.env
        for b in range(B):
            for t in range(T):
                if not mid_batch_reset and env.done[:t, b].any():
                    continue
                inputs = agent._model_inputs(env.observation[t, b], actions[b], rewards[b])
                recorded = buffer_func(info.prev_rnn_state[t, b], lambda x: x[:, None])  # [N,1,H]
                for now, then in zip(recorded, [torch.zeros(1, 1, H)] * 2 if states[b] is None else states[b]):
                    torch.testing.assert_close(now, then, rtol=1e-4, atol=1e-5)
                *outputs, states[b] = agent.model(*inputs, states[b])
                expected = [*info.dist_info[t, b], info.value[t, b]]
                for now, then in zip(outputs, expected, strict=True):
                    torch.testing.assert_close(now, then, rtol=1e-4, atol=1e-5)
                actions[b], rewards[b] = samples.agent.action[t, b], env.reward[t, b]
                if env.done[t, b]:
                    states[b], actions[b], rewards[b] = None, world.null_action(), torch.zeros(())
                    n_done += 1
    assert n_done >= 3


@pytest.mark.parametrize("mid_batch_reset", [True, False])
def test_training_reproduces_what_was_recorded_on_all_valid_steps(name, mid_batch_reset):
    agent = make(name)
    algo, world = start(A2C(), agent, mid_batch_reset), World(agent, mid_batch_reset)
    n_later, n_invalid = 0, 0
    for itr in range(4):
        samples = world.batch(itr)
        agent.train_mode(itr)
        first = RnnState(*(x[0].transpose(0, 1).contiguous() for x in samples.agent.agent_info.prev_rnn_state))
        dist_info, value, _ = agent(*algo.agent_inputs(samples), first)
        valid = valid_steps(samples)
        assert torch.equal(algo.process_returns(samples)[2].bool(), valid)
        info = samples.agent.agent_info
        for now, then in zip([*dist_info, value], [*info.dist_info, info.value]):
            torch.testing.assert_close(now[valid], then[valid], rtol=1e-4, atol=1e-5)
        n_later += itr > 0 and first.h.abs().sum().item() > 0
        n_invalid += (~valid).sum()
        algo.optimize_agent(itr, samples)
    assert n_later >= 2 and n_invalid > 0


def test_training_sees_null_inputs_after_an_end(name):
    agent = make(name)
    algo, world = start(A2C(), agent, True), World(agent, True)
    samples = world.batch(0)
    inputs, done = algo.agent_inputs(samples), samples.env.done[:-1]
    assert done.any() and not done.all() and (world.null_action() != 0).all()
    assert (inputs.prev_action[1:][done] == world.null_action()).all() and (inputs.prev_reward[1:][done] == 0).all()
    assert torch.equal(inputs.prev_action[1:][~done], samples.agent.action[:-1][~done])
    assert torch.equal(inputs.prev_reward[1:][~done], samples.env.reward[:-1][~done])


@pytest.mark.parametrize("mid_batch_reset", [True, False])
def test_likelihood_ratios_start_at_one(name, mid_batch_reset):
    agent = make(name)
    algo = start(PPO(minibatches=2, epochs=2, learning_rate=0.01), agent, mid_batch_reset)
    world, ratios, idxs = World(agent, mid_batch_reset), recorded(agent.distribution, "likelihood_ratio"), recorded(algo, "minibatch_idxs")
    for itr in range(3):
        samples = world.batch(itr)
        agent.train_mode(itr)
        ratios.clear()
        algo.optimize_agent(itr, samples)
        valid = valid_steps(samples)[:, idxs[-1][0]]
        assert ratios[0].shape == (T, B // 2)
        torch.testing.assert_close(ratios[0][valid], torch.ones(int(valid.sum())), rtol=1e-4, atol=1e-4)
        assert (ratios[-1] - 1).abs().max() > 1e-3


def test_a_narrow_policy_does_not_overflow_where_no_step_was_taken():
    n = 8
    agent = MujocoLstmAgent(model_kwargs=dict(hidden_sizes=[6], lstm_size=H))
    agent.initialize(EnvSpaces(VECTORS, FloatBox(-1, 1, (n,))))
    with torch.no_grad():
        agent.model.head.weight[: 2 * n] = 0
        agent.model.head.bias[: 2 * n] = torch.tensor([0.0] * n + [-15.0] * n)  # mean, log_std
    algo = start(PPO(minibatches=1, epochs=1, entropy_loss_coeff=0), agent, mid_batch_reset=False)
    samples = World(agent, mid_batch_reset=False).batch(0)
    assert (samples.agent.agent_info.dist_info.log_std[~valid_steps(samples)] == 0).all() and (~valid_steps(samples)).any()
    assert np.isfinite(algo.optimize_agent(0, samples).loss).all()
    assert all(torch.isfinite(parameter).all() for parameter in agent.parameters())


@pytest.mark.parametrize("Algo", [A2C, PPO])
@pytest.mark.parametrize("mid_batch_reset", [True, False])
def test_what_comes_after_an_end_has_no_influence(Algo, mid_batch_reset):
    results = []
    for garbage in (False, True):
        agent = make("mlp")
        one_update = dict(minibatches=1, epochs=1) if Algo is PPO else {}
        algo = start(Algo(gae_lambda=0.9, normalize_advantage=True, **one_update), agent, mid_batch_reset)
        samples = World(agent, mid_batch_reset).batch(0)
        if garbage:
            invalid = ~valid_steps(samples)
            samples.env.observation[invalid] = torch.randn(int(invalid.sum()), 4)
            samples.agent.action[invalid] = 2
            samples.agent.agent_info.value[invalid] = 7.0
            samples.agent.agent_info.dist_info.prob[invalid] = 1 / 3
            samples.env.reward[invalid] = 5.0
            assert invalid.any()
        agent.train_mode(0)
        torch.manual_seed(1)
        algo.optimize_agent(0, samples)
        results.append([p.detach().clone() for p in agent.parameters()])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("AgentCls", [MlpLstmAgent, MlpFfAgent])
@pytest.mark.parametrize("gae_lambda", [1, 0.8])
def test_advantages_of_a_column_that_waits_end_with_its_episode(AgentCls, gae_lambda):
    """Each column, cut off after its end, as a batch of its own."""
    agent = AgentCls()
    agent.initialize(EnvSpaces(VECTORS, DISCRETE))
    algo, world = start(A2C(discount=0.9, gae_lambda=gae_lambda), agent, False), World(agent, False, p_done=0.2)
    kinds = set()
    for itr in range(4):
        samples = world.batch(itr)
        return_, advantage, valid = algo.process_returns(samples)
        info, env = samples.agent.agent_info, samples.env
        for b in range(B):
            n = int(valid[:, b].sum())
            reward, value, done, timeout = (x[:n, b].numpy() for x in (env.reward, info.value, env.done, env.timeout))
            bootstrap, timeout_value = samples.agent.bootstrap_value[0, b].item(), samples.agent.timeout_value[:n, b].numpy()
            expected = oracles.gae(reward, value, done, bootstrap, 0.9, gae_lambda, timeout, timeout_value)
            np.testing.assert_allclose(advantage[:n, b], expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(return_[:n, b], expected + value, rtol=1e-4, atol=1e-5)
            kinds.add((n < T, bool(timeout[-1])))
    assert {(True, True), (True, False), (False, False)} <= kinds


@pytest.mark.parametrize("name", ["mlp", "mujoco"])
def test_advantages_are_normalized_over_valid_steps(name):
    agent = make(name)
    algo = start(PPO(normalize_advantage=True), agent, True)
    _, advantage, valid = algo.process_returns(World(agent, True).batch(0))
    kept = advantage[valid.bool()]
    assert 0 < len(kept) < T * B
    assert kept.mean().item() == pytest.approx(0, abs=1e-6) and kept.std().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("AgentCls", [MujocoLstmAgent, MujocoFfAgent])
@pytest.mark.parametrize("mid_batch_reset", [True, False])
def test_observation_statistics_are_of_real_observations_only(AgentCls, mid_batch_reset):
    recurrent = AgentCls.recurrent
    agent = AgentCls(model_kwargs=dict(hidden_sizes=[6], normalize_observation=True))
    agent.initialize(EnvSpaces(VECTORS, CONTINUOUS))
    algo, world = start(PPO(minibatches=2), agent, mid_batch_reset), World(agent, mid_batch_reset)
    seen = []
    for itr in range(2):
        samples = world.batch(itr)
        for t in range(T):
            for b in range(B):
                if mid_batch_reset or not samples.env.done[:t, b].any():
                    seen.append(samples.env.observation[t, b].numpy())
        agent.train_mode(itr)
        algo.optimize_agent(itr, samples)
    assert (len(seen) == 2 * T * B) is mid_batch_reset and agent.recurrent is recurrent
    assert agent.model.obs_rms.count == len(seen)
    np.testing.assert_allclose(agent.model.obs_rms.mean, np.mean(seen, axis=0), rtol=1e-4)
    np.testing.assert_allclose(agent.model.obs_rms.var, np.var(seen, axis=0), rtol=1e-4)


@learning
@full
@pytest.mark.parametrize("Algo", [A2C, PPO])
def test_it_learns_to_remember(Algo):
    """The first observation of an episode tells which action is right in all of it; the others tell nothing."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    agent = MlpLstmAgent(model_kwargs=dict(lstm_size=16))
    agent.initialize(EnvSpaces(VECTORS, IntBox(0, 2)))
    n, length, n_itr = 16, 4, 15 if Algo is PPO else 120
    algo = Algo(learning_rate=0.01, discount=0.5)
    algo.initialize(agent, n_itr, BatchSpec(length, n), mid_batch_reset=True)
    rewards = []
    for itr in range(n_itr):
        agent.sample_mode(itr)
        agent.reset()
        right = torch.from_numpy(rng.integers(2, size=n))
        observation, done = torch.zeros(length, n, 4), torch.zeros(length, n, dtype=torch.bool)
        observation[0, torch.arange(n), right], done[-1] = 1.0, True
        action, reward, infos = torch.zeros(length + 1, n, dtype=torch.long), torch.zeros(length + 1, n), []
        for t in range(length):
            action[t + 1], info = agent.step(observation[t], action[t], reward[t] * 0)
            infos.append(info)
            reward[t + 1] = (action[t + 1] == right).float()
        samples = Samples(
            AgentSamplesBsv(action[1:], action[:-1], stack(infos), torch.zeros(1, n)),
            EnvSamples(observation, reward[1:], torch.zeros(length, n), done, None),
        )
        rewards.append(reward[1:].mean().item())
        agent.train_mode(itr)
        algo.optimize_agent(itr, samples)
    assert np.mean(rewards[:2]) < 0.65 and np.mean(rewards[-5:]) > 0.95
