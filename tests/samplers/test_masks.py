"""Masks reach the agent with the observation to which they belong, in every sampler: the environment refuses masked actions."""

import numpy as np
import pytest
from collecting import ANY_KIND, ASYNC_KINDS, ONE_OF_EACH, collect, collect_in_parts, kinds
from envs import MaskedGymEnv, make_masked
from gymnasium.vector import SyncVectorEnv
from tiers import full, thinned

from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent, MlpR2d1AlternatingAgent
from rlpyt.agents.pg.composite import AlternatingMlpCompositeLstmAgent, MlpCompositeFfAgent, MlpCompositeLstmAgent
from rlpyt.agents.pg.mlp import AlternatingMlpLstmAgent, MlpFfAgent, MlpLstmAgent
from rlpyt.envs.vector import GymVectorEnv, VectorEnvs
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector, CpuWaitResetCollector
from rlpyt.samplers.serial.sampler import SerialSampler

# The agent for most samplers, that for alternating ones, and the kind of actions.
AGENTS = {
    "one of n": (MlpFfAgent, MlpFfAgent, "discrete"),
    "one of n, recurrent": (MlpLstmAgent, AlternatingMlpLstmAgent, "discrete"),
    "Q, recurrent": (MlpR2d1Agent, MlpR2d1AlternatingAgent, "discrete"),
    "Q": (MlpDqnAgent, MlpDqnAgent, "discrete"),
    "several": (MlpCompositeFfAgent, MlpCompositeFfAgent, "several"),
    "structure, recurrent": (MlpCompositeLstmAgent, AlternatingMlpCompositeLstmAgent, "structure"),
}
QUICK = ["one of n", "structure, recurrent"]


def check(kind, name, wait_reset, where="info", T=6, **settings):
    AgentCls, AlternatingAgentCls, of_actions = AGENTS[name]
    alternating = ANY_KIND[kind].alternating
    agent = (AlternatingAgentCls if alternating else AgentCls)()
    if hasattr(agent, "set_epsilon_itr_min_max"):
        agent.eps_init = agent.eps_final = 0.5
    settings["bootstrap_value"] = hasattr(agent, "value")
    run = collect_in_parts if kind in ASYNC_KINDS else collect
    collected = run(kind, agent=agent, EnvCls=make_masked, env=dict(kind=of_actions, where=where), wait_reset=wait_reset, T=T, **settings)
    for batch in collected.batches:
        observation = batch.env.observation
        vectors, masks = observation.observation, observation.action_mask
        assert masks.dtype == np.int8 and masks.any() and not masks.all()
        np.testing.assert_array_equal(masks, vectors[..., :-1])
    return collected


def cases():
    """Every kind of sampler with every agent, resetting in turn within batches and between them.

    So each kind resets in both ways with feed-forward and with recurrent agents, and so does each agent. How processes are started is not
    seen by what they send: two agents are enough there.
    """
    for i, param in enumerate(kinds([*ONE_OF_EACH, "GPU, 2 workers, as ready", *ASYNC_KINDS], quick=["serial", "GPU, 2 workers"])):
        (kind,) = param.values
        for j, name in enumerate(AGENTS if ANY_KIND[kind].start_method in ("fork", None) else QUICK):
            yield pytest.param(kind, name, (i + j) % 2 == 1, marks=[*param.marks, *[full] * (name not in QUICK)])


@pytest.mark.parametrize("kind, name, wait_reset", [*cases()])
def test_no_masked_action_reaches_an_environment(kind, name, wait_reset):
    check(kind, name, wait_reset)


@pytest.mark.parametrize("wait_reset", [False, True])
def test_masks_of_observations_travel_in_the_same_way(wait_reset):
    collected = check("serial", "several", wait_reset, where="observation")
    assert all(batch.env.env_info._fields == ("timeout",) for batch in collected.batches)
    assert MaskedGymEnv.SIZES["several"] == [3, 2, 4]


def make_masked_vector(num_envs, mode):
    return GymVectorEnv(SyncVectorEnv([MaskedGymEnv] * num_envs, autoreset_mode=mode), action_mask="action_mask")


@pytest.mark.parametrize("mode", thinned(["SameStep", "NextStep", "Disabled"], quick=["SameStep", "Disabled"]))
@pytest.mark.parametrize("CollectorCls", [CpuResetCollector, CpuWaitResetCollector])
@pytest.mark.parametrize("n", thinned([None, 4], quick=[4]))
def test_no_masked_action_reaches_an_environment_of_a_vector(n, CollectorCls, mode):
    """Nor those that nobody records: of environments that wait, or that have played their share of an evaluation."""
    sampler = SerialSampler(
        VectorEnvs(make_masked_vector, n=n),
        dict(mode=mode),
        batch_T=12,
        batch_B=4,
        CollectorCls=CollectorCls,
        max_decorrelation_steps=5,
        eval_n_envs=4,
        eval_max_steps=400,
        eval_max_trajectories=6,
    )
    sampler.initialize(MlpFfAgent(), seed=1, bootstrap_value=True)
    try:
        for itr in range(4):
            sampler.obtain_samples(itr)
            assert len(sampler.evaluate_agent(itr)) == 6
            sampler.agent.sample_mode(itr)
    finally:
        sampler.shutdown()


@full
@pytest.mark.parametrize("name", AGENTS)
def test_no_masked_action_in_many_steps(name):
    """Episodes last 1 to 6 steps. `tests/agents/test_masks.py` has a million steps of each agent."""
    check("serial", name, wait_reset=False, T=100, B=100, n_batches=3)
