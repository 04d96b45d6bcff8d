"""Deep Q-learning in bfloat16: hidden layers may compute in it, what losses are made of may not."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiers import full

from rlpyt.agents.dqn.atari.atari_catdqn_agent import AtariCatDqnAgent
from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.atari.atari_r2d1_agent import AtariR2d1Agent
from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.dqn.r2d1_agent import AgentInfo
from rlpyt.algos.base import has_bf16
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.dqn.noisy import NoisyLinear
from rlpyt.models.lstm import RnnState
from rlpyt.samplers.collections import AgentSamples, BatchSpec, EnvSamples, Samples
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

T, B, A, P, H = 8, 6, 3, 5, 9
VECTORS = EnvSpaces(FloatBox(-1, 1, (4,)), IntBox(0, A))
IMAGES = EnvSpaces(IntBox(0, 256, (1, 12, 12), dtype="uint8"), IntBox(0, A))  # One frame each: any images will do.
CONV = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0])
LEARN = dict(min_steps_learn=T * B, replay_size=500, prioritized_replay=False)  # Priorities that differ a little draw other samples.
SEQUENCES = dict(LEARN, batch_T=4, warmup_T=4, batch_B=8, store_rnn_state_interval=4, n_step_return=2, replay_ratio=2)
AGENTS = {
    "dqn": (MlpDqnAgent, VECTORS, dict(hidden_sizes=[32, 16]), {}),
    "dqn images": (AtariDqnAgent, IMAGES, dict(CONV, fc_sizes=16), {}),
    "catdqn": (MlpCatDqnAgent, VECTORS, dict(hidden_sizes=[32, 16]), dict(n_atoms=P)),
    "catdqn images": (AtariCatDqnAgent, IMAGES, dict(CONV, fc_sizes=16), dict(n_atoms=P)),
    "r2d1": (MlpR2d1Agent, VECTORS, dict(hidden_sizes=[32], lstm_size=H, head_size=16), {}),
    "r2d1 images": (AtariR2d1Agent, IMAGES, dict(CONV, fc_size=16, lstm_size=H, head_size=16), {}),
}
ALGOS = {
    "dqn": lambda: DQN(batch_size=16, **LEARN),
    "catdqn": lambda: CategoricalDQN(batch_size=16, V_min=-3, V_max=3, double_dqn=True, **LEARN),
    "r2d1": lambda: R2D1(**SEQUENCES),
}
needs_bf16 = pytest.mark.skipif(not has_bf16(torch.device("cpu")), reason="This processor has no instructions for bfloat16.")
heads = pytest.mark.parametrize("dueling, noisy", [(False, False), (True, False), (False, True), (True, True)])


def make_agent(name, dueling, noisy):
    AgentCls, spaces, model_kwargs, kwargs = AGENTS[name]
    torch.manual_seed(0)
    agent = AgentCls(model_kwargs=dict(model_kwargs, dueling=dueling, noisy=noisy), **kwargs)
    agent.initialize(spaces)
    return agent


def batch(name, seed):
    rng = np.random.default_rng(seed)
    space = AGENTS[name][1].observation
    if space.dtype == np.uint8:
        observation = rng.integers(0, 256, size=(T, B, *space.shape), dtype=np.uint8)
    else:
        observation = rng.normal(size=(T, B, *space.shape)).astype(np.float32)
    action = torch.from_numpy(rng.integers(0, A, size=(T + 1, B)))
    reward = torch.from_numpy(rng.normal(size=(T + 1, B)).astype(np.float32))
    done = torch.from_numpy(rng.random((T, B)) < 0.1)
    state = RnnState(*(torch.from_numpy(rng.normal(size=(T, B, 1, H)).astype(np.float32)) for _ in range(2)))
    info = AgentInfo(torch.from_numpy(rng.normal(size=(T, B, A)).astype(np.float32)), state)
    env = EnvSamples(torch.from_numpy(observation), reward[1:], reward[:-1], done, None, torch.zeros_like(done))
    return Samples(AgentSamples(action[1:], action[:-1], info), env)


def trained(name, bf16, dueling, noisy, n_itr=3):
    """Losses of a few iterations, and the parameters after them."""
    agent, algo = make_agent(name, dueling, noisy), ALGOS[name.split()[0]]().accelerate(bf16=bf16)
    np.random.seed(0)
    samples = [batch(name, itr) for itr in range(n_itr)]
    first = samples[0]
    examples = dict(
        observation=first.env.observation[0, 0].numpy(), action=np.int64(0), reward=np.float32(0), done=np.bool_(False),
        agent_info=AgentInfo(np.zeros(A, np.float32), RnnState(*(np.zeros((1, H), np.float32) for _ in range(2)))),
    )  # fmt: skip
    algo.initialize(agent, 10, BatchSpec(T, B), mid_batch_reset=True, examples=examples)
    agent.train_mode(0)
    losses = [loss for itr in range(n_itr) for loss in algo.optimize_agent(itr, samples[itr]).loss]
    return torch.tensor(losses), torch.cat([p.detach().flatten() for p in agent.parameters()])


@needs_bf16
@pytest.mark.parametrize(
    "name, dueling, noisy",  # Each agent, and each head at least once.
    [
        ("dqn", False, False),
        pytest.param("dqn images", True, True, marks=full),
        pytest.param("catdqn", True, False, marks=full),
        pytest.param("catdqn images", False, True, marks=full),
        pytest.param("r2d1", False, True, marks=full),
        pytest.param("r2d1 images", True, False, marks=full),
    ],
)
def test_training_in_bf16_is_training_in_float32_within_its_tolerance(name, dueling, noisy):
    (losses, parameters), (bf16_losses, bf16_parameters) = (trained(name, bf16, dueling, noisy) for bf16 in (False, True))
    assert len(losses) == len(bf16_losses) > 1 and not torch.equal(parameters, bf16_parameters)
    assert parameters.dtype == bf16_parameters.dtype == torch.float32
    torch.testing.assert_close(bf16_losses, losses, rtol=0.05, atol=0.02)
    torch.testing.assert_close(bf16_parameters, parameters, rtol=0.02, atol=0.01)


@heads
@pytest.mark.parametrize("name", [pytest.param(name, marks=[needs_bf16] * name.startswith("r2d1")) for name in AGENTS])  # LSTM layers do.
def test_last_layers_compute_in_float32_and_others_in_bf16(name, dueling, noisy):
    agent = make_agent(name, dueling, noisy)
    dtypes = {"last": set(), "hidden": set()}
    for module in agent.model.head.modules():
        if isinstance(module, (torch.nn.Linear, NoisyLinear)):
            kind = "last" if module.out_features in (1, P, A, A * P) else "hidden"
            module.register_forward_hook(lambda module, inputs, output, kind=kind: dtypes[kind].add(output.dtype))
    samples = batch(name, 0)
    state = (None,) if agent.recurrent else ()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = agent(samples.env.observation, samples.agent.prev_action, samples.env.prev_reward, *state)
    outputs = outputs[0] if agent.recurrent else outputs
    assert dtypes == {"last": {torch.float32}, "hidden": {torch.bfloat16}}
    assert outputs.dtype == torch.float32
    if name.startswith("catdqn"):
        torch.testing.assert_close(outputs.sum(-1), torch.ones(T, B, A), rtol=0, atol=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_means_that_bf16_cannot_tell_apart_choose_the_right_action_nevertheless(double):
    algo = CategoricalDQN(V_min=0, V_max=1, double_dqn=double)
    p = torch.tensor([[[0.0, 1.0, 0.0], [0.4995, 0.0, 0.5005]]])  # [1,2,3]: means 0.5 and 0.5005

    class Agent:
        def __call__(self, *inputs):
            return p

        target = __call__

    algo.agent = Agent()
    zeros, inputs = torch.zeros(1), (None,) * 3
    samples = SimpleNamespace(
        action=torch.tensor([1]), agent_inputs=inputs, target_inputs=inputs, return_=zeros, done_n=zeros, bootstrap_discount=torch.ones(1)
    )
    with torch.autocast("cpu", torch.bfloat16):
        _, kl = algo.loss(samples)
    assert kl.item() == pytest.approx(0, abs=1e-6), "the target is the distribution of action 1, which is the prediction"
