"""Options of deep Q-learning together, from samples through a replay buffer to the loss, for vectors and for images."""

import itertools

import numpy as np
import pytest
import torch
from experience import in_float64
from tiers import thinned

from rlpyt.agents.dqn.atari.atari_catdqn_agent import AtariCatDqnAgent
from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.atari.atari_quantile_agents import AtariIqnAgent, AtariQrDqnAgent
from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent, MlpQrDqnAgent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.quantile_dqn import QuantileDQN
from rlpyt.envs.base import EnvSpaces
from rlpyt.samplers.collections import AgentSamples, BatchSpec, EnvSamples, Samples
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

T, B, A, C, SIZE = 5, 3, 3, 2, 12
VECTORS = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, A))
IMAGES = EnvSpaces(IntBox(0, 256, (C, SIZE, SIZE), dtype="uint8"), IntBox(0, A))
SMALL = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0], fc_sizes=6)
AGENTS = {
    ("DQN", False): MlpDqnAgent,
    ("DQN", True): AtariDqnAgent,
    ("CategoricalDQN", False): MlpCatDqnAgent,
    ("CategoricalDQN", True): AtariCatDqnAgent,
    ("QR-DQN", False): MlpQrDqnAgent,
    ("QR-DQN", True): AtariQrDqnAgent,
    ("IQN", False): MlpIqnAgent,
    ("IQN", True): AtariIqnAgent,
}
ALGORITHMS = {
    "DQN": DQN,
    "CategoricalDQN": lambda **kwargs: CategoricalDQN(V_min=-3, V_max=3, **kwargs),
    "QR-DQN": QuantileDQN,
    "IQN": lambda **kwargs: QuantileDQN(munchausen=True, munchausen_temperature=0.5, **kwargs),
}
ATOMS = {"CategoricalDQN": dict(n_atoms=5), "QR-DQN": dict(n_quantiles=5), "IQN": dict(n_quantiles=5, n_target_quantiles=4)}
# Every third of all: each value of each option occurs with each agent and with each value of each other option, several times.
COMBINATIONS = list(itertools.product(AGENTS, (False, True), (False, True), (False, True), (1, 3)))[::3]


class Stream:
    """Batches of random vectors, or of random frames in stacks that are empty at the start of episodes."""

    def __init__(self, images, seed=0):
        self.images, self.rng = images, np.random.default_rng(seed)
        self.observation = self.first()

    def first(self):
        stack = np.zeros((B, C, SIZE, SIZE), np.uint8)
        return self.following(stack, np.zeros(B, bool))

    def following(self, observation, done):
        if not self.images:
            return self.rng.normal(size=(B, 4)).astype(np.float32)
        new = self.rng.integers(0, 256, size=(B, 1, SIZE, SIZE), dtype=np.uint8)
        stack = np.concatenate([observation[:, 1:], new], axis=1)
        stack[done, :-1] = 0
        return stack

    def batch(self, agent, itr):
        agent.sample_mode(itr)
        done = self.rng.random((T, B)) < 0.2
        rows, actions, infos = [], [], []
        for t in range(T):
            rows.append(self.observation)
            step = agent.step(torch.from_numpy(self.observation), torch.zeros(B, dtype=torch.long), torch.zeros(B))
            actions.append(step.action)
            infos.append(step.agent_info)
            self.observation = self.following(self.observation, done[t])
        reward = torch.from_numpy(self.rng.normal(size=(T + 1, B)).astype(np.float32))
        action = torch.stack([torch.zeros(B, dtype=torch.long), *actions])
        observation = torch.from_numpy(np.stack(rows))
        return Samples(
            AgentSamples(action[1:], action[:-1], None),
            EnvSamples(observation, reward[1:], reward[:-1], torch.from_numpy(done), None),
        )


def reference_loss(algo, agent, samples):
    """One transition at a time; for distributions, as in test_cat_dqn and test_quantile_dqn."""
    total, n = 0.0, len(samples.action)
    by_quantiles = isinstance(algo, QuantileDQN)
    fractions, others = (agent.fractions(n), agent.target_fractions(n)) if by_quantiles else (None, None)
    for i in range(n):
        now, later = samples.agent_inputs[i : i + 1], samples.target_inputs[i : i + 1]
        own, of_target = ([x[i : i + 1] if x.dim() == 2 else x] if by_quantiles else [] for x in (fractions, others))
        prediction = agent(*now, *own)[0, samples.action[i]]
        with torch.no_grad():
            target, online, target_now = agent.target(*later, *of_target)[0], agent(*later)[0], agent.target(*now)[0]
            chooser = online if algo.double_dqn else target
            return_, discount = samples.return_[i].item(), samples.bootstrap_discount[i].item()
            if isinstance(algo, CategoricalDQN):
                z = np.linspace(algo.V_min, algo.V_max, agent.n_atoms)
                best = int((chooser.numpy() @ z).argmax())
                values, spacing = np.clip(return_ + discount * z, z[0], z[-1]), z[1] - z[0]
                m = [sum(target[best, j].item() * max(0, 1 - abs(values[j] - x) / spacing) for j in range(len(z))) for x in z]
            elif algo.munchausen:
                tau = algo.munchausen_temperature
                log_pi_now, log_pi = (torch.log_softmax(q.mean(-1) / tau, -1) for q in (target_now, chooser))
                return_ += algo.munchausen_alpha * max(algo.munchausen_min, tau * log_pi_now[samples.action[i]].item())
                y = return_ + discount * (log_pi.exp()[:, None] * (target - tau * log_pi[:, None])).sum(0)
            elif by_quantiles:
                y = return_ + discount * target[int(chooser.mean(-1).argmax())]
            else:
                y = return_ + discount * target[int(chooser.argmax())].item()
        if isinstance(algo, CategoricalDQN):
            loss = -sum(m[j] * prediction[j].log() for j in range(len(m)))
        elif by_quantiles:
            pairs = [(f, q, y_j) for f, q in zip(own[0].flatten().tolist(), prediction) for y_j in y]
            loss = sum(huber(y_j - q) * abs(f - float(y_j < q)) / len(y) for f, q, y_j in pairs)
        else:
            loss = huber(y - prediction)
        total = total + loss * (samples.is_weights[i] if algo.prioritized_replay else 1)
    return total / n


def huber(delta):
    return 0.5 * delta**2 if delta.abs() <= 1 else delta.abs() - 0.5


@pytest.mark.parametrize("kind, double, dueling, prioritized, n_step", thinned(COMBINATIONS, quick=COMBINATIONS[::3]))
def test_combinations_train_on_the_loss_they_should(kind, double, dueling, prioritized, n_step):
    torch.manual_seed(0)
    np.random.seed(0)
    (name, images), settings = kind, dict(dueling=dueling)
    agent = AGENTS[kind](
        model_kwargs=dict(settings, **SMALL) if images else settings, eps_final=0.1, eps_final_min=0.01, **ATOMS.get(name, {})
    )
    agent.initialize(IMAGES if images else VECTORS, global_B=B, env_ranks=range(B))
    in_float64(agent)
    algo_kwargs = dict(
        double_dqn=double, prioritized_replay=prioritized, n_step_return=n_step, discount=0.9, batch_size=8, min_steps_learn=60,
        replay_size=300, replay_ratio=2, learning_rate=3e-3, pri_beta_steps=200,
    )  # fmt: skip
    algo = ALGORITHMS[name](**algo_kwargs)
    stream = Stream(images)
    examples = dict(observation=stream.observation[0], action=np.int64(0), reward=np.float32(0), done=np.bool_(False), env_info=None)
    algo.initialize(agent, 100, BatchSpec(T, B), True, examples)
    assert type(algo.replay_buffer).__name__ == (f"{'Prioritized' if prioritized else 'Uniform'}Replay{'Frame' if images else ''}Buffer")
    for itr in range(8):
        samples = stream.batch(agent, itr)
        agent.train_mode(itr)
        info = algo.optimize_agent(itr, samples)
        assert bool(info.loss) == (itr >= 4)
    assert agent.distribution.epsilon.shape == (B,) and len(set(agent.distribution.epsilon.tolist())) == B

    replayed = algo.replay_buffer.sample_batch(8)
    torch.manual_seed(1)
    loss = algo.loss(replayed)[0]
    torch.manual_seed(1)
    expected = reference_loss(algo, agent, replayed)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    grads = torch.autograd.grad(loss, list(agent.parameters()))
    for g, e in zip(grads, torch.autograd.grad(expected, list(agent.parameters())), strict=True):
        torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-9)
