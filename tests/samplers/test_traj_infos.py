"""Statistics of episodes, whoever sums them up, and whenever they are made."""

import copy
import functools
import json
import pickle
from collections import deque, namedtuple

import numpy as np
import pytest
from agents_for_tests import RecordingAgent
from collecting import ENV, make_sampler
from envs import CountingEnv
from tiers import thinned

from rlpyt.samplers.parallel.base import in_order
from rlpyt.samplers.traj_infos import BatchTracker, FinishedInfos, episode_tracker
from rlpyt.types import EnvSamples, Samples, TrajInfo


class PlainTrajInfo(TrajInfo):
    _discount = 0.97
    env_info_sums = (("Drift", "drift"),)


class AddingTrajInfo(PlainTrajInfo):
    """Adds several entries to a field, one of them to a field that it has anyway."""

    env_info_sums = (("Return", "drift"), ("Drift", "drift"), ("Drift", "traj_done"))


class Seen:
    """What ends and statistics should be: environments are looked at step by step, by `TrajInfo.step`."""

    def __init__(self, TrajInfoCls, B):
        self.TrajInfoCls, self.running = TrajInfoCls, [TrajInfoCls() for _ in range(B)]

    def batch(self, env, waits):
        finished, ends, idle = [], [], set()
        for t, b in np.ndindex(env.reward.shape):
            if b in idle or (env.valid is not None and not env.valid[t, b]):
                continue
            reward, done = env.reward[t, b].item(), env.done[t, b].item()
            info = self.running[b]
            info.step(None, None, reward, done, None, type(env.env_info)(*(x[t, b].item() for x in env.env_info)))
            if env.env_info.traj_done[t, b]:
                finished.append(info)
                ends.append([t, b])
                self.running[b] = self.TrajInfoCls()
            if done and waits:
                idle.add(b)
        return finished, ends


def random_batch(rng, T, B, blank, lives, waits):
    """Return a batch, whose episodes may end without ``done``, or not end with it if there are `lives`."""
    reward = (rng.standard_normal((T, B)) * 10 ** rng.uniform(-4, 4, (T, B)) * (rng.random((T, B)) < 0.7)).astype(np.float32)
    drift, done = rng.standard_normal((T, B)) * 10 ** rng.uniform(-8, 8, (T, B)), rng.random((T, B)) < 0.2
    valid = None if blank is None else np.ones((T, B), bool)
    for t in range(0 if blank is None else T):
        valid[t] = ~blank
        reward[t, blank], drift[t, blank], done[t, blank] = 0, 0, True
        blank[:] = done[t] & ~blank
    over = done ^ (rng.random((T, B)) < 0.1) if lives else done.copy()
    for b in range(B if waits else 0):
        for t in np.flatnonzero(done[:, b])[:1]:
            reward[t + 1 :, b], drift[t + 1 :, b], done[t + 1 :, b], over[t + 1 :, b] = 0, 0, True, lives
    return EnvSamples(None, reward, None, done, namedtuple("info", "drift traj_done")(drift, over), valid=valid)


@pytest.mark.parametrize("kind", ["plain", "blank rows", "lives", "idle"])
@pytest.mark.parametrize("discount", [1.0, 0.97])
@pytest.mark.parametrize("TrajInfoCls", [PlainTrajInfo, AddingTrajInfo])
@pytest.mark.parametrize("T", [1, 7, 40])
def test_statistics_from_the_batch_are_those_of_every_step_to_the_last_bit(T, TrajInfoCls, discount, kind, monkeypatch):
    monkeypatch.setattr(PlainTrajInfo, "_discount", discount)
    rng, B, waits = np.random.default_rng(T), 5, kind == "idle"
    seen = Seen(TrajInfoCls, B)
    singly, at_once = ([TrajInfoCls() for _ in range(B)] for _ in range(2))
    one, other = (episode_tracker(TrajInfoCls, infos, infos is at_once, waits) for infos in (singly, at_once))
    blank, n_finished = np.zeros(B, bool) if kind == "blank rows" else None, 0
    for i in range(60 // T + 3):
        env = random_batch(rng, T, B, blank, kind in ("lives", "idle"), waits)
        samples, still, finished = Samples(None, env), set(), []
        expected, ends = seen.batch(env, waits)
        for t, b in np.ndindex(T, B):
            if [t, b] in ends:
                finished.append(one.finish(b, t, samples, None))
            if waits and env.done[t, b] and b not in still:
                one.stand_still(b, t, samples)
                still.add(b)
        assert one.end_batch(samples, finished) == expected and singly == seen.running
        infos = other.end_batch(samples, [])
        assert infos == expected and len(infos) == len(expected)
        assert [type(x) for info in infos for x in info.values()] == [type(x) for info in expected for x in info.values()]
        if i % 3 == 2:  # They need not be written in each batch.
            other.store()
            assert at_once == seen.running
            assert [type(x) for info in at_once for x in info.values()] == [type(x) for info in singly for x in info.values()]
        assert np.transpose(other.ends).tolist() == ends
        n_finished += len(expected)
    assert n_finished > 5


class ConstructedTrajInfo(PlainTrajInfo):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.Return = 100.0


class CountingTrajInfo(PlainTrajInfo):
    env_info_sums = (("Length", "traj_done"),)


@pytest.mark.parametrize("TrajInfoCls", [ConstructedTrajInfo, CountingTrajInfo])
def test_classes_whose_sums_do_not_start_at_zero_or_are_counts_are_summed_up_one_by_one(TrajInfoCls):
    seen, infos = Seen(TrajInfoCls, 5), [TrajInfoCls() for _ in range(5)]
    tracker = episode_tracker(TrajInfoCls, infos, at_once=True)
    env = random_batch(np.random.default_rng(0), 40, 5, None, True, False)
    expected, ends = seen.batch(env, False)
    assert tracker.end_batch(Samples(None, env), [tracker.finish(b, t, Samples(None, env), None) for t, b in ends]) == expected
    assert infos == seen.running and len(ends) > 20


def started(**settings):
    sampler = make_sampler(**{**dict(kind="serial", env=dict(episode_length=100), B=8, T=10, decorrelation=0, eval_n_envs=0), **settings})
    affinity = dict(workers_cpus=[0, 1], set_affinity=False)
    sampler.initialize(RecordingAgent(), seed=0, affinity=affinity, traj_info_kwargs=dict(discount=0.9))
    return sampler


class Told(TrajInfo):
    def step(self, *args):
        super().step(*args)


@pytest.mark.parametrize(
    "kind, B", thinned([("serial", 6), ("CPU, 2 workers", 6), ("CPU, 2 workers", 11)], quick=[("serial", 6), ("CPU, 2 workers", 11)])
)
@pytest.mark.parametrize("wait_reset", [False, True])
def test_who_sums_up_statistics_does_not_change_them(kind, B, wait_reset):
    """Fewer than 64 steps are summed up otherwise than more: of 11 environments one worker has 5, 60 steps, and the other 6."""

    def statistics(**settings):
        sampler = started(kind=kind, B=B, T=12, env=ENV, wait_reset=wait_reset, **settings)
        try:
            return [dict(info) for itr in range(10) for info in sampler.obtain_samples(itr)[1]]
        finally:
            sampler.shutdown()

    assert statistics() == statistics(TrajInfoCls=Told) != []


@pytest.mark.parametrize("n_steps, is_compiled", [(63, False), (64, True)])
def test_statistics_of_many_steps_are_summed_up_by_the_compiled_loop(n_steps, is_compiled):
    sampler = started(B=1, T=n_steps)
    sampler.obtain_samples(0)
    assert isinstance(sampler.collector._tracker, BatchTracker) == is_compiled
    sampler.shutdown()


def test_running_statistics_of_a_serial_sampler_can_be_read_and_changed_between_batches():
    sampler = started()
    for itr in range(2):
        sampler.obtain_samples(itr)
    assert [info.Length for info in sampler.traj_infos] == [20] * 8
    sampler.traj_infos[3].Length = 1000
    sampler.obtain_samples(2)
    assert [info.Length for info in sampler.traj_infos] == [30] * 3 + [1010] + [30] * 4
    sampler.shutdown()


@pytest.mark.parametrize("B", [1, 8])
def test_fields_that_are_written_into_running_statistics_end_with_their_episodes(B):
    sampler = started(env=dict(episode_length=4), B=B, T=10)
    sampler.obtain_samples(0)
    for b, info in enumerate(sampler.traj_infos):
        info.Mark = b
    infos = [info for itr in (1, 2) for info in sampler.obtain_samples(itr)[1]]
    assert [info.get("Mark") for info in infos] == [*range(B), *[None] * (4 * B)] and [info.Length for info in infos] == [4] * 5 * B
    assert not any("Mark" in info for info in sampler.traj_infos)
    sampler.shutdown()


class ShapedEnv(CountingEnv):
    """Has entries of env_info with one number and with two, and rewards of numpy."""

    def step(self, action):
        step = super().step(action)
        entries = dict(one=np.array([0.5]), two=np.array([0.5, 1]), traj_done=step.done, timeout=False)
        return step._replace(reward=np.float32(0.1), env_info=namedtuple("ShapedInfo", entries)(**entries))

    def step_into(self, action, observation_out):
        observation, *outcome = self.step(action)
        observation_out[...] = observation
        return tuple(outcome)


class ShapedTrajInfo(TrajInfo):
    env_info_sums = (("One", "one"), ("Two", "two"))


@pytest.mark.parametrize("B, decorrelation", thinned([(1, 0), (1, 3), (8, 0), (8, 3)], quick=[(1, 0), (8, 3)]))
def test_numbers_of_an_entry_are_added_up_and_sums_have_the_precision_of_python(B, decorrelation):
    sampler = started(EnvCls=ShapedEnv, env=dict(episode_length=1000), B=B, decorrelation=decorrelation, TrajInfoCls=ShapedTrajInfo)
    for itr in range(110):
        _, infos = sampler.obtain_samples(itr)
        if infos:
            break
    sampler.shutdown()
    assert infos[0].One == 0.5 * 1000 and infos[0].Two == 1.5 * 1000 and infos[0].Return == pytest.approx(100, rel=1e-6)


def test_exchanging_an_environment_keeps_the_statistics_of_the_others():
    sampler = started()
    sampler.obtain_samples(0)
    assert sampler.update_envs([None, None, CountingEnv] + [None] * 5) == [2]
    assert [info.Length for info in sampler.traj_infos] == [10, 10, 0, 10, 10, 10, 10, 10]
    sampler.shutdown()


class Undiscounted(TrajInfo):
    """Samplers set the discount of the class that they are given; this one is given to none."""

    _discount = 1


def finished_infos():
    """Three episodes of 1, 1 and 2 steps."""
    done = np.array([[True, False, True], [False, False, False], [False, False, True]])
    tracker = episode_tracker(Undiscounted, [Undiscounted() for _ in range(3)], at_once=True)
    return tracker.end_batch(Samples(None, EnvSamples(None, np.ones((3, 3), np.float32), None, done, None)), [])


LENGTHS = [1, 1, 2]


def lengths(infos):
    return [info["Length"] for info in infos]


def added_in_place(infos):
    infos += [{"Length": 5}]
    return infos


USES = {
    "iteration": (lambda infos: [info.Length for info in infos], LENGTHS),
    "len": (len, 3),
    "slices": (lambda infos: (type(infos[1:]), lengths(infos[1:]), lengths(infos[::-2])), (list, [1, 2], [2, 1])),
    "reversed": (lambda infos: lengths(reversed(infos)), [2, 1, 1]),
    "unpacking": (lambda infos: lengths((lambda a, b, c: (c, a))(*infos)), [2, 1]),
    "sum": (lambda infos: sum(lengths(infos)), 4),
    "+ list": (lambda infos: lengths(infos + [{"Length": 5}]), [*LENGTHS, 5]),
    "list +": (lambda infos: lengths([{"Length": 5}] + infos), [5, *LENGTHS]),
    "+ alike": (lambda infos: lengths(infos + finished_infos()), LENGTHS * 2),
    "+=": (lambda infos: lengths(added_in_place(infos)), [*LENGTHS, 5]),
    "list +=": (lambda infos: lengths(functools.reduce(lambda a, b: a.__iadd__(b), [[], infos])), LENGTHS),
    "*": (lambda infos: lengths(infos * 2), LENGTHS * 2),
    "extend": (lambda infos: infos.extend([{"Length": 5}]) or lengths(infos), [*LENGTHS, 5]),
    "list.extend": (lambda infos: (a := [{"Length": 5}]).extend(infos) or lengths(a), [5, *LENGTHS]),
    "append": (lambda infos: infos.append({"Length": 5}) or lengths(infos), [*LENGTHS, 5]),
    "insert": (lambda infos: infos.insert(0, {"Length": 5}) or lengths(infos), [5, *LENGTHS]),
    "pop": (lambda infos: (infos.pop().Length, lengths(infos)), (2, [1, 1])),
    "del": (lambda infos: infos.__delitem__(0) or lengths(infos), [1, 2]),
    "clear": (lambda infos: infos.clear() or lengths(infos), []),
    "assignment": (lambda infos: infos.__setitem__(0, {"Length": 5}) or lengths(infos), [5, 1, 2]),
    "assignment of a slice": (lambda infos: infos.__setitem__(slice(0, 2), []) or lengths(infos), [2]),
    "assignment to a slice": (lambda infos: (a := [0]).__setitem__(slice(None), infos) or lengths(a), LENGTHS),
    "sort": (lambda infos: infos.sort(key=lambda info: -info.Length) or lengths(infos), [2, 1, 1]),
    "sorted": (lambda infos: lengths(sorted(infos, key=lambda info: -info.Length)), [2, 1, 1]),
    "reverse": (lambda infos: infos.reverse() or lengths(infos), [2, 1, 1]),
    "index": (lambda infos: infos.index(infos[2]), 2),
    "count": (lambda infos: infos.count(infos[0]), 2),
    "in": (lambda infos: (finished_infos()[2] in infos, None in infos), (True, False)),
    "==": (lambda infos: (infos == finished_infos(), infos == list(finished_infos()), list(finished_infos()) == infos), (True,) * 3),
    "!=": (lambda infos: (infos != finished_infos(), infos != [], [None] * 3 == infos), (False, True, False)),
    "isinstance": (lambda infos: isinstance(infos, list), True),
    "list": (lambda infos: lengths(list(infos)), LENGTHS),
    "tuple": (lambda infos: lengths(tuple(infos)), LENGTHS),
    "array": (lambda infos: lengths(np.array(infos, object)), LENGTHS),
    "copy": (lambda infos: lengths(infos.copy()), LENGTHS),
    "copy.copy": (lambda infos: lengths(copy.copy(infos)), LENGTHS),
    "deepcopy": (lambda infos: lengths(copy.deepcopy(infos)), LENGTHS),
    "json": (lambda infos: lengths(json.loads(json.dumps(infos))), LENGTHS),
    "json with indent": (lambda infos: lengths(json.loads(json.dumps(infos, indent=1))), LENGTHS),
    "repr": (lambda infos: repr(infos), repr(list(finished_infos()))),
    "pickle": (lambda infos: lengths(pickle.loads(pickle.dumps(infos))), LENGTHS),
    "deque": (lambda infos: lengths(deque(infos, maxlen=2)), [1, 2]),
    "an entry is made once": (lambda infos: infos[0].update(Mark=1) or (infos[0].Mark, infos[-1] is infos[2]), (1, True)),
    "pickle of a changed entry": (lambda infos: infos[0].update(Mark=1) or pickle.loads(pickle.dumps(infos))[0].Mark, 1),
    "a None of the user": (lambda infos: infos.append(None) or infos[3], None),
}


@pytest.mark.parametrize("use", USES)
def test_finished_episodes_that_are_made_when_they_are_asked_for_are_a_list(use):
    function, expected = USES[use]
    assert function(finished_infos()) == expected
    if use not in ("pickle of a changed entry", "an entry is made once"):
        assert function(pickle.loads(pickle.dumps(finished_infos()))) == expected


def test_only_those_finished_episodes_are_made_that_are_read():
    made = []

    class Counted(TrajInfo):
        def update(self, *args, **kwargs):
            made.append(self)
            super().update(*args, **kwargs)

    infos = FinishedInfos(Counted, ["Length"], np.arange(1000)[None])
    assert lengths(infos[-3:]) == [997, 998, 999] and infos[0].Length == 0 and len(infos) == 1000 and len(made) == 4
    with pytest.raises(IndexError):
        infos[1000]


def test_finished_episodes_of_several_workers_are_in_the_order_of_time():
    parts = [FinishedInfos(TrajInfo, ["Length"], np.array([lengths])) for lengths in ([1, 4, 5], [], [2, 3, 6])]
    ends = [np.array(pairs).reshape(-1, 2) for pairs in ([(0, 0), (2, 0), (2, 1)], [], [(0, 5), (1, 4), (7, 5)])]
    infos = in_order(list(zip(parts, ends)))
    assert isinstance(infos, FinishedInfos) and lengths(infos) == [1, 2, 3, 4, 5, 6]
    parts[2][0].Mark = 2  # One is made.
    list(parts[0])  # All are.
    infos = in_order(list(zip(parts, ends)))
    assert not isinstance(infos, FinishedInfos) and lengths(infos) == [1, 2, 3, 4, 5, 6] and infos[1].Mark == 2
    parts[0] = list(parts[0])
    assert lengths(in_order(list(zip(parts, ends)))) == [1, 2, 3, 4, 5, 6]
