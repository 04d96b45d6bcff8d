"""Samplers step vectors of environments as they step single ones."""

import functools
import re
from collections import namedtuple

import gymnasium
import numpy as np
import pytest
from agents_for_tests import RecordingAgent
from collecting import ASYNC_KINDS, KINDS, ONE_OF_EACH, assert_same, assert_same_arrays, collect, collect_in_parts, kinds, make_sampler
from envs import GymCounting, make_gym_vector
from tiers import thinned
from users import MyCollector

from rlpyt.envs.vector import VectorEnv, VectorEnvs, VectorStep
from rlpyt.episodes.assembler import EpisodeAssembler
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector
from rlpyt.samplers.vector import VectorCalls
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.types import AgentInputs, TrajInfo, as_recorded
from rlpyt.utils.buffer import buffer_func, numpify_buffer

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
@pytest.mark.parametrize("agent", thinned(AGENTS, quick=["recurrent"]))
@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH))
def test_a_vector_without_blank_rows_is_sampled_like_single_environments(kind, mode, agent):
    ours = by_vectors(kind, mode, AGENTS[agent], evaluate_after=(1, 3))
    assert_same(ours, singly(AGENTS[agent], evaluate_after=(1, 3)))


@pytest.mark.parametrize("agent", thinned(AGENTS, quick=["recurrent"]))
@pytest.mark.parametrize("kind", kinds(ONE_OF_EACH))
def test_a_vector_that_resets_itself_by_a_step_is_sampled_like_single_environments_but_for_blank_rows(kind, agent):
    ours, theirs = (get(agent=AGENTS[agent], T=7, n_batches=8) for get in (functools.partial(by_vectors, kind, "NextStep"), singly))
    assert_same_but_for_blanks(ours, theirs)


@pytest.mark.parametrize("T", thinned([1, 2, 9], quick=[2]))
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


# ---------------------------------------------------------------------------------------------------------------------
# Waiting, episodes, resuming
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["SameStep", "Disabled", "NextStep"])
@pytest.mark.parametrize("kind", kinds(["serial", "CPU, 2 workers", "GPU, 2 workers"], quick=["serial"]))
def test_environments_that_wait_for_the_end_of_the_batch_start_the_next_one_with_a_new_episode(kind, mode):
    batches = by_vectors(kind, mode, "recurrent", T=6, n_batches=5, wait_reset=True).batches
    firsts = singly("recurrent", T=6, n_batches=1, wait_reset=True).batches[0]
    for name in ("observation", "reward", "done", "timeout", "env_info"):  # Until then, all is as with single environments.
        assert_same_arrays(getattr(batches[0].env, name), getattr(firsts.env, name), name)
    assert_same_arrays(batches[0].agent, firsts.agent, "agent")
    done_before = np.zeros(6, bool)
    for batch in batches:
        done, observation = batch.env.done, batch.env.observation
        over = np.concatenate([np.zeros((1, 6), bool), np.logical_or.accumulate(done)[:-1]])
        assert done[over].all() and not batch.env.reward[over].any() and not observation[over].any()
        assert not any(leaf[over].any() for leaf in flat(batch.env.env_info)) and not batch.agent.action[over].any()
        assert (observation[0, done_before, 2] == 0).all() and observation[0, :, 0].all()
        done_before = done.any(axis=0)
        steps = observation[..., 2]
        assert (np.diff(steps, axis=0)[~over[1:]] == 1).all()


@pytest.mark.parametrize("T", [1, 6])
def test_whole_episodes_are_those_of_single_environments(T):
    def assembled(batches):
        assembler = EpisodeAssembler(None, B=6, first=True)
        episodes = [episode for batch in batches for episode in assembler.push(batch).to_list()]
        return sorted(episodes, key=lambda episode: tuple(episode["observations"][0]))

    ours, theirs = (assembled(f(T=T, n_batches=48 // T).batches) for f in (functools.partial(by_vectors, "serial", "NextStep"), singly))
    known = {tuple(episode["observations"][0]): episode for episode in theirs}
    assert len(ours) > 20
    for episode in ours:
        twin = known[tuple(episode["observations"][0])]
        for name in ("observations", "next_observations", "rewards", "actions", "step_types"):
            np.testing.assert_array_equal(episode[name], twin[name], err_msg=name)


@pytest.mark.parametrize("wait_reset", [False, True])
@pytest.mark.parametrize("mode", ["SameStep", "Disabled", "NextStep"])
def test_a_resumed_sampler_continues_the_episodes_of_its_vector(mode, wait_reset):
    def run(agent, n_batches, state=None):
        sampler = make_sampler("serial", VECTORS, dict(mode=mode), T=5, B=4, decorrelation=0, wait_reset=wait_reset)
        sampler.initialize(agent, seed=3)
        if state is not None:
            assert sampler.load_state_dict(state) == []
        batches = []
        for itr in n_batches:
            batches.append(buffer_func(numpify_buffer(sampler.obtain_samples(itr)[0]), np.copy))
        state = sampler.state_dict()
        sampler.shutdown()
        return batches, state

    whole, _ = run(RecordingAgent(), range(6))
    _, state = run(RecordingAgent(), range(3))
    for ours, theirs in zip(run(RecordingAgent(), range(3, 6), state)[0], whole[3:], strict=True):
        assert_same_arrays(ours.env, theirs.env, "env")
        assert_same_arrays(ours.agent.action, theirs.agent.action, "action")


def test_a_vector_whose_state_is_unknown_begins_new_episodes_when_a_run_is_resumed():
    samplers = [make_sampler("serial", VECTORS, dict(async_=True), B=3) for _ in range(2)]
    for sampler in samplers:
        sampler.initialize(RecordingAgent(), seed=3)
    try:
        samplers[0].obtain_samples(0)
        assert samplers[1].load_state_dict(samplers[0].state_dict()) == [0, 1, 2]
        samples, _ = samplers[1].obtain_samples(1)
        assert (samples.env.observation[0, :, 2] == 0).all() and samples.env.valid[0].all()
    finally:
        for sampler in samplers:
            sampler.shutdown()


class PartlyUnknownTrajInfo(TrajInfo):
    """Cannot be written as plain data in the second environment."""

    made = 0

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        type(self).made += 1
        if type(self).made % 3 == 2:
            self.Unknown = object()


def test_all_environments_of_a_vector_begin_new_episodes_if_one_cannot_be_restored():
    PartlyUnknownTrajInfo.made = 0
    samplers = [
        make_sampler("serial", VECTORS, dict(lengths=(50,)), B=3, decorrelation=0, eval_n_envs=0, TrajInfoCls=PartlyUnknownTrajInfo)
        for _ in range(2)
    ]
    try:
        samplers[0].initialize(RecordingAgent(), seed=3)
        samplers[0].obtain_samples(0)
        state = samplers[0].state_dict()
        assert [info is None for info in state["collector"]["traj_infos"]].count(True) == 1
        samplers[1].initialize(RecordingAgent(), seed=3)
        assert samplers[1].load_state_dict(state) == [0, 1, 2]
        samples, _ = samplers[1].obtain_samples(1)
        assert (samples.env.observation[0, :, 2] == 0).all() and (samples.agent.prev_action[0] == 0).all()
    finally:
        for sampler in samplers:
            sampler.shutdown()


def test_decorrelated_environments_start_at_different_steps_of_episodes():
    sampler = make_sampler("serial", VECTORS, dict(lengths=(3, 5)), B=4, decorrelation=50)
    sampler.initialize(RecordingAgent(), seed=3)
    try:
        samples, _ = sampler.obtain_samples(0)
        assert samples.env.observation[0, :, 1].max() > 0
    finally:
        sampler.shutdown()


def test_environments_that_wait_begin_with_a_first_observation_after_decorrelation():
    sampler = make_sampler("serial", VECTORS, dict(lengths=(1,)), B=3, decorrelation=1, wait_reset=True, eval_n_envs=0)
    sampler.initialize(RecordingAgent(), seed=3)
    samples, _ = sampler.obtain_samples(0)
    assert samples.env.valid[0].all() and samples.env.observation[0, :, 0].all()
    sampler.shutdown()


class ReusingVector(VectorEnv):
    """Overwrites the actions that it is given, and the rewards of a step when it is reset. The reward is the action + 1."""

    autoreset_mode = "Disabled"
    resets_some = True

    def __init__(self, num_envs):
        self.n, self._reward, self.actions = num_envs, np.zeros(num_envs), []
        self._action_space, self._observation_space = IntBox(0, 1000), FloatBox(-9, 9, shape=(4,))

    def reset_into(self, observation_out, which=None):
        self._reward[:] = -1
        observation_out[slice(None) if which is None else which] = 0

    def step_into(self, actions, observation_out):
        self.actions.append(actions.copy())
        self._reward[:] = actions + 1
        actions[:] = -1
        observation_out[...] = 1
        return VectorStep(self._reward, np.array([len(self.actions) == 3, False]), np.zeros(2, bool))


class OddVector(ReusingVector):
    """Its mode is none that a sampler knows."""

    autoreset_mode = "Sometimes"


class KeepingTrajInfo(TrajInfo):
    """Keeps actions and rewards."""

    def step(self, observation, action, reward, done, agent_info, env_info):
        self.setdefault("kept", []).append((action, reward))


def test_the_traj_infos_of_decorrelation_may_keep_what_they_are_told():
    vector = ReusingVector(2)
    inputs = AgentInputs(np.zeros((2, 4), np.float32), np.zeros(2, np.int64), np.zeros(2, np.float32))
    _, info = VectorCalls(vector, range(2)).start(inputs, KeepingTrajInfo, 4)
    assert info.kept == [(actions[1], actions[1] + 1) for actions in vector.actions]


CartPoleWithoutMask = functools.partial(gymnasium.make_vec, "CartPole-v1", vectorization_mode="vector_entry_point")


class UnknownMode(gymnasium.vector.SyncVectorEnv):
    def __init__(self, num_envs):
        super().__init__([GymCounting] * num_envs)
        self.metadata["autoreset_mode"] = "sometimes"


class OtherSpace(GymCounting):
    def __init__(self, high):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-1.0, high, (4,), np.float32)


def make_different(num_envs):
    envs = [functools.partial(OtherSpace, high) for high in (1e6, 2e6)] * num_envs
    return gymnasium.vector.SyncVectorEnv(envs[: max(num_envs, 2)], observation_mode="different")


# ---------------------------------------------------------------------------------------------------------------------
# What does not fit is told before any process starts
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind, settings, message",
    [
        ("serial", dict(EnvCls=VectorEnvs(make_gym_vector, n=4), B=6), "makes vectors of 4 environments, but 6 environments are asked"),
        ("CPU, 2 workers", dict(EnvCls=VectorEnvs(make_gym_vector, n=4), B=6), r"a worker has 3 of batch_B=6 \(2 workers\)"),
        ("CPU, 2 workers", dict(EnvCls=VectorEnvs(lambda num_envs: make_gym_vector(3))), "returned a GymVectorEnv of 3 environments"),
        ("CPU, 2 workers", dict(EnvCls=functools.partial(make_gym_vector, 6)), "give EnvCls=VectorEnvs"),
        ("CPU, 2 workers", dict(EnvCls=VectorEnvs(CartPoleWithoutMask), wait_reset=True), "cannot reset some of its environments"),
        ("CPU, 2 workers", dict(EnvCls=VectorEnvs(UnknownMode)), "must be one of gymnasium.vector.AutoresetMode"),
        ("CPU, 2 workers", dict(EnvCls=VectorEnvs(OddVector)), "autoreset_mode='Sometimes' of OddVector must be NEXT_STEP, SAME_STEP or"),
        ("CPU, 2 workers", dict(EnvCls=VectorEnvs(make_different)), "have different spaces of observations"),
        ("CPU, 2 workers", dict(EnvCls=VectorEnvs(make_gym_vector), env=[{}] * 6), "one dictionary, not a list"),
        ("CPU, 2 workers", dict(EnvCls=[VectorEnvs(make_gym_vector)] * 6), "give one instead of a list"),
        ("CPU, 2 workers", dict(EnvCls=lambda: BadVector(6)), "give EnvCls=VectorEnvs"),
        ("CPU, 2 workers", dict(EnvCls=VECTORS, change_collector=lambda _: MyCollector), "MyCollector steps environments one by one"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(kind, settings, message, monkeypatch):
    monkeypatch.setattr("rlpyt.samplers.parallel.base.WorkerPool", lambda *args, **kwargs: pytest.fail("A process started."))
    with pytest.raises(ValueError, match=message):
        make_sampler(kind, **{"env": {}, **settings}).initialize(RecordingAgent(), affinity=KINDS[kind].affinity)


class ReplacedLoop(CpuResetCollector):
    """Steps environments one by one."""

    collect_batch = MyCollector.collect_batch


class ExtendedLoop(CpuResetCollector):
    """Does something before each batch."""

    def collect_batch(self, *args):
        self.progress[0] += 0
        return super().collect_batch(*args)


def test_a_loop_that_steps_one_environment_of_a_vector_alone_is_told_but_one_that_is_extended_may_go_on():
    sampler = make_sampler("serial", VECTORS, ENV, decorrelation=0, change_collector=lambda _: ReplacedLoop)
    sampler.initialize(RecordingAgent(), seed=0)
    with pytest.raises(ValueError, match="One environment of a vector cannot be stepped alone"):
        sampler.obtain_samples(0)
    sampler.shutdown()
    assert_same_but_for_blanks(by_vectors("serial", "NextStep", change_collector=lambda _: ExtendedLoop), singly())


def test_a_batch_whose_ends_are_not_recorded_tells_no_blank_rows():
    batch = by_vectors("serial", "NextStep", n_batches=1).batches[0]
    assert as_recorded(batch).env.valid is not None
    unrecorded = batch._replace(env=batch.env._replace(ends_recorded=np.zeros_like(batch.env.ends_recorded)))
    assert as_recorded(unrecorded).env.valid is None


@pytest.mark.parametrize(
    "kind, B, n_parts, settings",
    [
        ("async serial", 4, None, {}),
        ("async serial", 3, None, dict(eval_n_envs=4, eval_max_steps=8)),
        ("async CPU", 4, None, {}),
        ("async serial", 6, 1, {}),
        ("async serial", 9, 2, {}),
        ("async CPU", 9, 2, {}),
    ],
)
def test_vectors_that_do_not_fit_an_asynchronous_sampler_are_refused_by_the_process_that_trains(kind, B, n_parts, settings):
    sampler = make_sampler(kind, VectorEnvs(make_gym_vector, n=3), {}, B=B, **{"eval_n_envs": 0, **settings})
    if n_parts is not None:
        sampler.async_initialize(RecordingAgent(), seed=0)
    with pytest.raises(ValueError, match="makes vectors of 3 environments, but sampling processes have"):
        sampler.async_initialize(RecordingAgent(), seed=0) if n_parts is None else sampler.parts(n_parts)


def test_vectors_that_fit_the_parts_of_an_asynchronous_sampler_are_accepted():
    for kind, B in (("async serial", 6), ("async CPU", 12)):
        sampler = make_sampler(kind, VectorEnvs(make_gym_vector, n=3), {}, B=B, eval_n_envs=0)
        sampler.async_initialize(RecordingAgent(), seed=0)
        assert [part.batch_spec.B for part in sampler.parts(2)] == [B // 2] * 2


def test_a_misspelled_argument_of_a_vector_is_told_when_the_sampler_is_made():
    with pytest.raises(ValueError, match="env_kwargs has 'mod', which is no argument of .*mode"):
        make_sampler("serial", VectorEnvs(lambda num_envs, mode="NextStep": make_gym_vector(num_envs, mode)), dict(mod="SameStep"))


def test_environments_of_a_vector_cannot_be_exchanged():
    sampler = make_sampler("serial", VECTORS, {}, B=2)
    sampler.initialize(RecordingAgent(), seed=0)
    with pytest.raises(ValueError, match="those of a vector cannot be exchanged one by one"):
        sampler.update_envs(GymCounting)
    sampler.shutdown()


class BadVector(VectorEnv):
    """A vector that is right, but for one part from its fifth step on."""

    autoreset_mode = "Disabled"
    resets_some = True

    def __init__(self, num_envs, **wrong):
        self.n, self.wrong, self.t = num_envs, wrong, 0
        self._action_space, self._observation_space = IntBox(0, 3), FloatBox(-9, 9, shape=(4,))

    def reset_into(self, observation_out, which=None):
        observation_out[slice(None) if which is None else which] = 0

    def step_into(self, actions, observation_out):
        self.t += 1
        observation_out[...] = self.t % 5
        right = dict(reward=np.ones(self.n), terminated=np.zeros(self.n, bool), truncated=np.zeros(self.n, bool), infos=None)
        if self.t > 5 and "error" in self.wrong:
            raise ZeroDivisionError("planned failure")
        return VectorStep(**{**right, **(self.wrong if self.t > 5 else {})})


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(reward=np.ones(3)), r"reward: expected shape \(2,\).*got \(3,\)"),
        (dict(reward=np.array(["a", "b"])), "reward: expected numbers, got dtype <U1"),
        (dict(terminated=np.zeros(2)), "terminated: expected bool, got dtype float64"),
        (dict(infos=namedtuple("Infos", "x")(np.zeros(2))), r"infos: expected the fields \[\] at every step, got \['x'\]"),
        (dict(infos=namedtuple("Infos", "timeout")(np.zeros(2))), "a vector tells timeouts by `truncated`"),
        (dict(error=1), "planned failure"),
    ],
)
@pytest.mark.parametrize("kind", kinds(["serial", "CPU, 2 workers"], quick=["serial"]))
def test_what_is_wrong_with_a_step_of_a_vector_is_told_with_environments_and_step(kind, wrong, message):
    sampler = make_sampler(kind, VectorEnvs(BadVector), wrong, B=4 if "CPU" in kind else 2, eval_n_envs=0, decorrelation=0)
    sampler.initialize(RecordingAgent(), affinity=KINDS[kind].affinity, seed=0)
    with pytest.raises(Exception, match=message) as raised:
        sampler.obtain_samples(0)
    text = "".join([str(raised.value), *getattr(raised.value, "__notes__", ())])
    assert re.search("in the vector of environments (0 to 1|2 to 3), step 5 of batch 0", text)
    sampler.shutdown()


class SeeingTrajInfo(TrajInfo):
    """Sees every step, so that episodes are not finished all at once."""

    def step(self, *args):
        super().step(*args)


@pytest.mark.parametrize("traj_info", [TrajInfo, SeeingTrajInfo])
def test_a_vector_that_truncates_more_often_than_its_horizon_allows_is_told_so(traj_info):
    class Hasty(BadVector):
        truncates_only_at_horizon, horizon = True, 1000

        def step_into(self, actions, observation_out):  # Environment 0 is truncated no more than once.
            return super().step_into(actions, observation_out)._replace(truncated=np.array([self.t == 6, self.t > 5])[-self.n :])

    sampler = make_sampler("serial", VectorEnvs(Hasty), {}, T=30, B=2, eval_n_envs=0, decorrelation=0, TrajInfoCls=traj_info)
    sampler.initialize(RecordingAgent(), seed=0)
    with pytest.raises(ValueError, match="Environment 1 was truncated more than 1 time in a batch.*let it say False"):
        sampler.obtain_samples(0)
    sampler.shutdown()


@pytest.mark.parametrize("later, stored", [(np.array([300, 1]), None), (np.array([3, 1]), [3, 1]), (np.array([3.0, 1.5]), None)])
def test_infos_of_a_vector_keep_their_values_or_are_named(later, stored):
    class Telling(BadVector):
        def step_into(self, actions, observation_out):
            step = super().step_into(actions, observation_out)
            return step._replace(infos=Infos(later if self.t > 5 else np.zeros(2, np.int8)))

    Infos = namedtuple("Infos", "x")
    sampler = make_sampler("serial", VectorEnvs(Telling), {}, T=8, B=2, eval_n_envs=0, decorrelation=0)
    sampler.initialize(RecordingAgent(), seed=0)
    if stored is None:
        with pytest.raises(ValueError, match="infos: expected shape .* and dtype int8, as at the first step, got .* and"):
            sampler.obtain_samples(0)
    else:
        np.testing.assert_array_equal(sampler.obtain_samples(0)[0].env.env_info.x[-1], stored)
    sampler.shutdown()


def test_a_vector_that_cannot_be_used_is_closed():
    class Failing(gymnasium.vector.SyncVectorEnv):
        def step(self, actions):
            raise ZeroDivisionError("planned failure")

        def close_extras(self, **kwargs):
            closed.append(self)

    closed = []
    with pytest.raises(ZeroDivisionError, match="planned failure"):
        VectorEnvs(lambda num_envs: Failing([GymCounting] * num_envs))(2)
    assert len(closed) == 1


@pytest.mark.parametrize("mode", ["Disabled", "NextStep"])
def test_after_a_batch_that_was_cut_short_all_environments_begin_a_new_episode(mode):
    class Stopping(BadVector):
        autoreset_mode = mode

        def reset_into(self, observation_out, which=None):
            self.t = 0
            super().reset_into(observation_out, which)

        def step_into(self, actions, observation_out):
            step = super().step_into(actions, observation_out)
            if stops.pop():
                raise KeyboardInterrupt
            observation_out[...] = self.t
            return step

    stops = [False] * 6  # Of steps of the example, and of the first batch.
    sampler = make_sampler("serial", VectorEnvs(Stopping), {}, T=4, B=2, eval_n_envs=0, decorrelation=0)
    sampler.initialize(RecordingAgent(), seed=0)
    stops[:] = [False] * 8 + [True] + [False] * 6
    sampler.obtain_samples(0)
    with pytest.raises(KeyboardInterrupt):
        sampler.obtain_samples(1)
    observation = np.concatenate([sampler.obtain_samples(itr)[0].env.observation[:, :, 0].numpy().copy() for itr in (1, 2)])
    np.testing.assert_array_equal(observation, np.repeat(np.arange(8)[:, None], 2, axis=1))
    assert sampler.take_restarted() == [0, 1]
    sampler.shutdown()


def test_a_vector_that_resets_in_the_same_step_must_return_the_last_observation():
    class Forgetful(BadVector):
        autoreset_mode = "SameStep"

    wrong = dict(terminated=np.array([False, True]))
    sampler = make_sampler("serial", VectorEnvs(Forgetful), dict(wrong), B=2, eval_n_envs=0, decorrelation=0)
    sampler.initialize(RecordingAgent(), seed=0)
    with pytest.raises(ValueError, match="SAME_STEP vector must return final_observation where an episode ends"):
        sampler.obtain_samples(0)
    sampler.shutdown()
