"""Masked actions: never chosen, of probability 0, and in no loss and no target."""

import functools

import gymnasium
import numpy as np
import pytest
import torch
from envs import MaskedGymEnv, make_masked
from gymnasium import spaces
from tiers import full, learning

from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent, MlpQrDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.pg.atari import AtariFfAgent, AtariLstmAgent
from rlpyt.agents.pg.composite import MlpCompositeFfAgent, MlpCompositeLstmAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpLstmAgent
from rlpyt.agents.pg.multi_input import MultiInputFfAgent, MultiInputLstmAgent
from rlpyt.agents.qpg.ensemble_sac_agent import DiscreteSacAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.envs.base import EnvSpaces
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.spaces.masked import mask_size, masked_space
from rlpyt.utils.buffer import buffer_func, buffer_leaves, torchify_buffer
from rlpyt.utils.collections import namedarraytuple

Masked = namedarraytuple("MaskedObservation", ["observation", "action_mask"])
VECTORS, IMAGES = FloatBox(-1, 1, (4,)), IntBox(0, 256, (1, 36, 36), dtype="uint8")
ACTIONS = {kind: GymSpaceWrapper(space, name="action") for kind, space in MaskedGymEnv.ACTIONS.items()}

CASES = {
    **{
        cls.__name__: (cls, VECTORS, "discrete")
        for cls in (
            MlpFfAgent,
            MlpLstmAgent,
            MlpDqnAgent,
            MlpCatDqnAgent,
            MlpQrDqnAgent,
            MlpIqnAgent,
            MlpR2d1Agent,
            MlpCompositeFfAgent,
            DiscreteSacAgent,
        )
    },
    **{cls.__name__: (cls, IMAGES, "discrete") for cls in (AtariFfAgent, AtariLstmAgent, AtariDqnAgent)},
    "several": (MlpCompositeFfAgent, VECTORS, "several"),
    "several, recurrent": (MlpCompositeLstmAgent, VECTORS, "several"),
    "a structure": (MlpCompositeFfAgent, VECTORS, "structure"),
    "a structure, recurrent": (MlpCompositeLstmAgent, VECTORS, "structure"),
    "any": (MultiInputFfAgent, VECTORS, "structure"),
    "any, recurrent": (MultiInputLstmAgent, VECTORS, "structure"),
}


@functools.cache
def make(name):
    torch.manual_seed(0)
    AgentCls, observation, kind = CASES[name]
    agent = AgentCls()
    agent.initialize(EnvSpaces(masked_space(observation, ACTIONS[kind]), ACTIONS[kind]))
    if hasattr(agent, "set_epsilon_itr_min_max"):
        agent.set_epsilon_itr_min_max(0, 10)
    return agent


def random_masks(sizes, *lead, rng):
    """Masks that allow at least one value of each integer, in all numbers from one to all; and, in some rows, nothing at all."""
    masks = []
    for n in sizes:
        mask = rng.random((*lead, n)) < rng.random((*lead, 1))
        mask |= np.eye(n, dtype=bool)[rng.integers(n, size=lead)]
        masks.append(mask)
    return torch.from_numpy(np.concatenate(masks, axis=-1).astype(np.int8))


def observations(space, masks, rng):
    *lead, _ = masks.shape
    if space is IMAGES:
        return Masked(torch.from_numpy(rng.integers(0, 256, (*lead, *space.shape), dtype=np.uint8)), masks)
    return Masked(torch.from_numpy(rng.normal(size=(*lead, *space.shape)).astype(np.float32) * 10), masks)


def nulls(kind, *lead):
    null = ACTIONS[kind].null_value()
    return torchify_buffer(buffer_func(null, lambda x: np.broadcast_to(x, (*lead, *np.shape(x))).copy())), torch.zeros(lead)


def integers(kind, action):
    """The integers of actions [*lead,K], in the order of the mask."""
    if kind == "structure":
        return torch.cat([action.a[..., None], action.c.item_0, action.c.item_1], dim=-1).long()
    return action[..., None] if kind == "discrete" else action


def allowed_of(kind, action, masks):
    """Whether each integer of the actions is allowed, [*lead,K]; all are where nothing is."""
    of_integers = masks.bool().split(MaskedGymEnv.SIZES[kind], dim=-1)
    values = integers(kind, action)
    return torch.stack(
        [(mask | ~mask.any(-1, keepdim=True)).gather(-1, values[..., k, None])[..., 0] for k, mask in enumerate(of_integers)], dim=-1
    )


def probs(kind, dist_info):
    """Probabilities [*lead,n] of all values of all integers."""
    if kind == "structure":
        return torch.cat([dist_info.a.prob, dist_info.c.item_0.prob, dist_info.c.item_1.prob], dim=-1)
    return dist_info.prob


@pytest.mark.parametrize("name", CASES)
def test_masked_actions_are_never_chosen_and_have_no_probability(name):
    agent, (_, space, kind), rng = make(name), CASES[name], np.random.default_rng(1)
    for mode in ("sample", "eval"):
        getattr(agent, f"{mode}_mode")(5)
        for _ in range(3):
            masks = random_masks(MaskedGymEnv.SIZES[kind], 64, rng=rng)
            agent.reset()
            action, info = agent.step(observations(space, masks, rng), *nulls(kind, 64))
            assert allowed_of(kind, action, masks).all()
            if hasattr(info, "dist_info"):
                prob = probs(kind, info.dist_info)
                assert (prob[~masks.bool()] == 0).all() and (prob[masks.bool()] > 0).all()
                sums = torch.stack([part.sum(-1) for part in prob.split(MaskedGymEnv.SIZES[kind], dim=-1)])
                torch.testing.assert_close(sums, torch.ones_like(sums))
            elif hasattr(info, "q"):
                assert (info.q[~masks.bool()] == -torch.inf).all() and info.q[masks.bool()].isfinite().all()


@pytest.mark.parametrize("name", ["MlpFfAgent", "MlpLstmAgent", "several", "a structure", "any, recurrent"])
def test_the_policy_is_the_one_without_masks_given_that_nothing_masked_is_drawn(name):
    agent, (_, space, kind), rng = make(name), CASES[name], np.random.default_rng(2)
    sizes = MaskedGymEnv.SIZES[kind]
    masks = random_masks(sizes, 3, 5, rng=rng)
    masked = observations(space, masks, rng)
    rest = (*nulls(kind, 3, 5), None) if agent.recurrent else nulls(kind, 3, 5)
    dist_info, value, *_ = agent(masked, *rest)
    free, free_value, *_ = agent(masked._replace(action_mask=torch.ones_like(masks)), *rest)
    expected = probs(kind, free) * masks
    expected = torch.cat([part / part.sum(-1, keepdim=True) for part in expected.split(sizes, dim=-1)], dim=-1)
    torch.testing.assert_close(probs(kind, dist_info), expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(value, free_value)
    blank, *_ = agent(masked._replace(action_mask=torch.zeros_like(masks)), *rest)
    torch.testing.assert_close(probs(kind, blank), probs(kind, free), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["MlpFfAgent", "MlpLstmAgent", "several", "a structure", "any, recurrent"])
def test_training_sees_the_masks_of_the_steps_and_has_finite_gradients(name):
    agent, (_, space, kind), rng = make(name), CASES[name], np.random.default_rng(3)
    masks = random_masks(MaskedGymEnv.SIZES[kind], 4, 6, rng=rng)
    batch = (observations(space, masks, rng), *nulls(kind, 4, 6))
    agent.sample_mode(0)
    agent.reset()
    steps = [agent.step(*(buffer_func(part, lambda x, t=t: x[t]) for part in batch)) for t in range(4)]
    dist_info, value, *_ = agent(*batch, None) if agent.recurrent else agent(*batch)
    for t, step in enumerate(steps):
        for now, then in zip(buffer_leaves(dist_info[t]), buffer_leaves(step.agent_info.dist_info)):
            torch.testing.assert_close(now.detach(), then, rtol=1e-4, atol=1e-5)
        old = step.agent_info.dist_info
        ratio = agent.distribution.likelihood_ratio(step.action, old_dist_info=old, new_dist_info=dist_info[t])
        torch.testing.assert_close(ratio.detach(), torch.ones_like(ratio), rtol=1e-3, atol=1e-3)
        (ratio.sum() + agent.distribution.entropy(dist_info[t]).sum() + value[t].sum()).backward(retain_graph=True)
    assert all(parameter.grad.isfinite().all() for parameter in agent.parameters())
    for parameter in agent.parameters():
        parameter.grad = None


def test_the_policy_of_discrete_sac_is_the_one_without_masks_given_that_nothing_masked_is_drawn():
    agent, rng = make("DiscreteSacAgent"), np.random.default_rng(4)
    masks = random_masks([6], 40, rng=rng)
    masked, allowed = observations(VECTORS, masks, rng), masks.bool()
    pi, log_pi, _ = agent.pi(masked, *nulls("discrete", 40))
    free, log_free, _ = agent.pi(masked.observation, *nulls("discrete", 40))
    torch.testing.assert_close(pi, free * masks / (free * masks).sum(-1, keepdim=True))
    torch.testing.assert_close(log_pi[allowed], pi[allowed].log())
    assert log_pi.isfinite().all() and torch.equal(free, log_free.exp())
    expected = torch.stack([-(p[p > 0] * p[p > 0].log()).sum() for p in pi])
    torch.testing.assert_close(-(pi * log_pi).sum(-1), expected)
    blank, log_blank, _ = agent.pi(masked._replace(action_mask=torch.zeros_like(masks)), *nulls("discrete", 40))
    torch.testing.assert_close((blank, log_blank), (free, log_free))
    assert torch.equal(agent.q(masked, *nulls("discrete", 40)), agent.q(masked.observation, *nulls("discrete", 40)))


def test_an_allowed_action_is_drawn_even_if_the_network_never_wants_it():
    agent = make("MlpFfAgent")
    dist_info = agent.distribution.masked(
        agent.DistInfoCls(torch.tensor([[1.0, 0, 0, 0, 0, 0]])), torch.tensor([[0, 1, 1, 0, 0, 0]]).bool()
    )
    assert dist_info.prob.tolist() == [[0, 0.5, 0.5, 0, 0, 0]]
    hopeless = torch.tensor([[9.0, -torch.inf, 3, 3, 3, 3]])
    agent = make("MlpDqnAgent")
    agent.distribution.set_epsilon(0)
    assert agent.distribution.sample(hopeless, mask=torch.tensor([[0, 1, 0, 0, 0, 0]]).bool()).tolist() == [1]


def test_exploration_is_uniform_over_allowed_actions():
    torch.manual_seed(0)
    agent = make("MlpDqnAgent")
    agent.distribution.set_epsilon(1)
    mask = torch.tensor([0, 1, 0, 1, 1, 0]).bool().expand(30_000, 6)
    drawn = agent.distribution.sample(torch.randn(30_000, 6), mask=mask).bincount(minlength=6) / 30_000
    assert drawn[[0, 2, 5]].tolist() == [0, 0, 0] and drawn[[1, 3, 4]].numpy() == pytest.approx(1 / 3, abs=0.02)


def test_a_mask_of_the_wrong_size_is_refused():
    space = Composite([VECTORS, IntBox(0, 2, (5,))], Masked)
    with pytest.raises(ValueError, match=r"'action_mask' of observations has shape \(5,\), but must have \(6,\)"):
        MlpFfAgent().initialize(EnvSpaces(space, ACTIONS["discrete"]))
    assert mask_size(ACTIONS["discrete"]) == 6


@full
@pytest.mark.parametrize("name", CASES)
def test_in_a_million_steps_no_masked_action_is_chosen(name):
    agent, (_, space, kind), rng = make(name), CASES[name], np.random.default_rng(1)
    agent.sample_mode(5)
    agent.reset()
    B = 10_000 if space is VECTORS else 500
    n_steps = 1_000_000 if space is VECTORS else 50_000
    for _ in range(n_steps // B):
        masks = random_masks(MaskedGymEnv.SIZES[kind], B, rng=rng)
        action, _ = agent.step(observations(space, masks, rng), *nulls(kind, B))
        assert allowed_of(kind, action, masks).all()


def test_the_environment_that_tests_use_refuses_masked_actions():
    env, mask = make_masked("discrete"), np.ones(1)
    while mask.all():  # A random mask may allow all actions.
        _, mask = env.reset()
    with pytest.raises(ValueError, match="planned failure"):
        env.step(np.flatnonzero(mask == 0)[0])


# --- Learning ---------------------------------------------------------------------------------------------------------
class DoorsGymEnv(gymnasium.Env):
    """Walk from one corner of a 6x6 grid to the other. An action is one of four directions and one of three keys.

    The key must be that of the square, and the direction must stay inside the grid. Other actions are masked; or, with `penalty`, they have
    this reward and no effect. Reward -0.01 for each step and 1 at the goal; at most 60 steps.
    """

    size = 6
    observation_space, action_space = spaces.Box(0, 1, (36,), np.float32), spaces.Discrete(12)

    def __init__(self, penalty=None):
        self.penalty = penalty

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.y = self.t = 0
        return self._observe()

    def _moves(self):
        for action in range(12):
            direction, key = divmod(action, 3)
            x, y = self.x + (1, 0, -1, 0)[direction], self.y + (0, 1, 0, -1)[direction]
            yield (x, y) if 0 <= x < self.size and 0 <= y < self.size and key == (self.x + 2 * self.y) % 3 else None

    def _observe(self):
        observation = np.eye(36, dtype=np.float32)[self.x * self.size + self.y]
        mask = np.array([move is not None for move in self._moves()], np.int8)
        return observation, {} if self.penalty is not None else dict(action_mask=mask)

    def step(self, action):
        self.t += 1
        move, reward = list(self._moves())[action], -0.01
        if move is None:
            reward = self.penalty
        else:
            self.x, self.y = move
        arrived = self.x == self.y == self.size - 1
        observation, info = self._observe()
        return observation, reward + arrived, arrived, self.t == 60 and not arrived, info


def make_doors(penalty=None):
    return GymEnvWrapper(DoorsGymEnv(penalty), action_mask="action_mask" if penalty is None else None)


def arrivals(penalty, seed, n_steps=4_096):
    """How often the goal is reached while learning."""
    n = 0

    class Counting(MinibatchRl):
        def store_diagnostics(self, itr, traj_infos, opt_info):
            nonlocal n
            super().store_diagnostics(itr, traj_infos, opt_info)
            n += sum(info.Length < 60 for info in traj_infos)

    Counting(
        algo=PPO(learning_rate=3e-3, gae_lambda=0.95, normalize_advantage=True, ratio_clip=0.2),
        agent=MlpFfAgent(),
        sampler=SerialSampler(make_doors, dict(penalty=penalty), batch_T=32, batch_B=8, max_decorrelation_steps=0),
        n_steps=n_steps,
        log_interval_steps=n_steps,
        seed=seed,
        affinity=dict(master_torch_threads=1),
    ).train()
    return n


@learning
@full
@pytest.mark.timeout(900)
def test_with_masks_the_way_is_learned_faster_than_with_penalties():
    seeds = range(5)
    masked = [arrivals(None, seed) for seed in seeds]
    for penalty in (-0.01, -0.1):
        penalized = [arrivals(penalty, seed) for seed in seeds]
        assert min(masked) > max(penalized), f"{masked} arrivals with masks, {penalized} with a penalty of {penalty}"
