"""Samplers step vectors of environments as they step single ones."""

import functools

import numpy as np
import pytest
from collecting import ASYNC_KINDS, ONE_OF_EACH, assert_same, assert_same_arrays, collect, collect_in_parts, kinds
from envs import GymCounting, make_gym_vector

from rlpyt.envs.vector import VectorEnvs
from rlpyt.types import TrajInfo
from rlpyt.utils.buffer import buffer_func

VECTORS = VectorEnvs(make_gym_vector)
ENV = dict(lengths=(5, 1, 3, 7), ends=("terminated", "truncated", "truncated"))
AGENTS = {"feed-forward": "recording", "recurrent": "recurrent"}


class CodedTrajInfo(TrajInfo):
    """Says which environment it is of, by the mean of a sum."""

    env_info_sums = (("Code", "code"),)

    def terminate(self, observation):
        self.Code /= self.Length
        self.FinalStep = float(observation[2])
        return super().terminate(observation)


class StepwiseTrajInfo(CodedTrajInfo):
    """Is told about every step."""

    def step(self, observation, action, reward, done, agent_info, env_info):
        super().step(observation, action, reward, done, agent_info, env_info)
        self.Actions = self.get("Actions", 0) + int(action)


DEFAULTS = dict(decorrelation=0, n_batches=6, TrajInfoCls=CodedTrajInfo, keep_terminal_observations=True)


@functools.cache
def singly(agent="recording", **kwargs):
    return collect("serial", agent, EnvCls=GymCounting, env=ENV, **{**DEFAULTS, **kwargs})


def by_vectors(kind, mode, agent="recording", **kwargs):
    how = collect_in_parts if kind in ASYNC_KINDS else collect
    return how(kind, agent=agent, EnvCls=VECTORS, env=dict(mode=mode, **ENV), **{**DEFAULTS, **kwargs})


# ---------------------------------------------------------------------------------------------------------------------
# Equal samples
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH))
def test_a_vector_without_blank_rows_is_sampled_like_single_environments(kind, mode, agent):
    ours = by_vectors(kind, mode, AGENTS[agent], evaluate_after=(1, 3))
    assert_same(ours, singly(AGENTS[agent], evaluate_after=(1, 3)))


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH))
def test_a_vector_that_resets_itself_by_a_step_is_sampled_like_single_environments_but_for_blank_rows(kind, agent):
    ours, theirs = (get(agent=AGENTS[agent], T=7, n_batches=8) for get in (functools.partial(by_vectors, kind, "NextStep"), singly))
    assert_same_but_for_blanks(ours, theirs)


@pytest.mark.parametrize("T", [1, 2, 9])
@pytest.mark.parametrize("mode", ["SameStep", "Disabled", "NextStep"])
def test_the_length_of_batches_does_not_matter(mode, T):
    ours, theirs = (f(agent="recurrent", T=T, n_batches=40 // T) for f in (functools.partial(by_vectors, "serial", mode), singly))
    (assert_same_but_for_blanks if mode == "NextStep" else assert_same)(ours, theirs)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_traj_info_that_sees_every_step_sees_those_of_a_vector(mode):
    ours, theirs = (f(TrajInfoCls=StepwiseTrajInfo) for f in (functools.partial(by_vectors, "serial", mode), singly))
    assert any(theirs.infos)
    (assert_same_but_for_blanks if mode == "NextStep" else assert_same)(ours, theirs)


@pytest.mark.parametrize("kind", kinds([kind for kind in ASYNC_KINDS if "spawn" not in kind and "fork" not in kind]))
def test_asynchronous_samplers_step_vectors(kind):
    ours = by_vectors(kind, "SameStep")
    for a, b in zip(ours.batches, singly().batches, strict=True):
        for field in ("agent", "env"):  # Of the slots of final observations, some hold those of earlier batches.
            assert_same_arrays(getattr(a, field), getattr(b, field), field)


def test_a_capped_evaluation_is_the_same_in_all_modes():  # Of a later one, the environments that had their share would be ahead.
    def evals(collected):
        return [sorted(map(str, infos)) for infos in collected.evals]

    expected = evals(singly(evaluate_after=(3,), eval_max_trajectories=7))
    for mode in ("SameStep", "Disabled", "NextStep"):
        assert evals(by_vectors("serial", mode, evaluate_after=(3,), eval_max_trajectories=7)) == expected


def assert_same_but_for_blanks(ours, theirs):
    """Each column of our batches, without its blank rows, is the beginning of theirs."""
    assert all(batch.env.valid is not None for batch in ours.batches) and any((~batch.env.valid).any() for batch in ours.batches)
    B = theirs.batches[0].env.reward.shape[1]
    for b in range(B):
        mine = [column_steps(batch, b) for batch in ours.batches]
        yours = [column_steps(batch, b) for batch in theirs.batches]
        for name in mine[0]:
            x, y = (buffer_func_join([steps[name] for steps in parts]) for parts in (mine, yours))
            n = len(flat(x)[0])
            assert 0 < n <= len(flat(y)[0])
            assert_same_arrays(x, buffer_func(y, lambda leaf, n=n: leaf[:n]), f"{name} of column {b}")
    mine, yours = (infos_by_code(collected) for collected in (ours, theirs))
    assert mine.keys() == yours.keys()
    for code, infos in mine.items():
        assert infos and infos == yours[code][: len(infos)]
    for batch in ours.batches:
        blank = ~batch.env.valid
        assert batch.env.done[blank].all() and not batch.env.timeout[blank].any()
        assert not batch.env.reward[blank].any() and not batch.env.observation[blank].any()
        assert not any(leaf[blank].any() for leaf in flat(batch.env.env_info))


def infos_by_code(collected):
    infos = [info for infos in collected.infos for info in infos]
    return {code: [info for info in infos if info.Code == code] for code in {info.Code for info in infos}}


def flat(x):
    return [leaf for part in x for leaf in flat(part)] if isinstance(x, tuple) else [x]


def buffer_func_join(parts):
    if isinstance(parts[0], tuple):
        return parts[0]._make(buffer_func_join(list(each)) for each in zip(*map(tuple, parts)))
    return np.concatenate(parts)


def column_steps(batch, b):
    """What a batch says of the steps of column `b`, blank rows removed."""
    env, agent = batch.env, batch.agent
    T = len(env.reward)
    valid = np.ones(T, bool) if env.valid is None else env.valid[:, b]
    steps = dict(
        observation=env.observation[valid, b],
        action=agent.action[valid, b],
        agent_info=buffer_func(agent.agent_info, lambda x: x[valid, b]),
        timeout_value=agent.timeout_value[valid, b],
        reward=env.reward[valid, b],
        done=env.done[valid, b],
        timeout=env.timeout[valid, b],
        env_info=buffer_func(env.env_info, lambda x: x[valid, b]),
        final_observation=batch.final_observation[: env.timeout[:, b].sum(), b],
        terminal_observation=batch.terminal_observation[: (env.done & ~env.timeout)[valid, b].sum(), b],
    )
    return steps
