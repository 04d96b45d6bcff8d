"""Batches of transitions and of episodes: what they hold, what they refuse, what they turn into."""

import dataclasses
import pickle
import warnings
from contextlib import nullcontext

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlpyt.envs.specs import as_wrapped, same_value
from rlpyt.episodes import EnvSpec, EpisodeBatch, StepType, TimeStepBatch
from rlpyt.utils.structures import tree_map

BOX, DISCRETE = spaces.Box(-1.0, 1.0, (4, 3, 2), np.float32), spaces.MultiDiscrete([2, 5])
SPEC = EnvSpec(BOX, DISCRETE, 10)
LENGTHS = [3, 1, 5]


def steps_args(n, rng):
    return dict(
        observations=rng.uniform(-1, 1, (n, 4, 3, 2)).astype(np.float32),
        actions=rng.integers([2, 5], size=(n, 2)),
        rewards=rng.normal(size=n).astype(np.float32),
        env_infos={"goal": rng.normal(size=(n, 2)), "deep": {"foo": np.arange(n), "bar": rng.normal(size=(n, 1))}},
        agent_infos={"prev_action": rng.integers(5, size=n), "hidden": {"state": rng.normal(size=(n, 4))}},
    )


def step_types(lengths):
    types = [([0] + [1] * (n - 2) if n > 1 else []) + [2 + i % 2] for i, n in enumerate(lengths)]
    return np.array(sum(types, []), np.uint8)


def episode_args(lengths=LENGTHS, seed=0):
    rng, N = np.random.default_rng(seed), len(lengths)
    return dict(
        env_spec=SPEC,
        **steps_args(sum(lengths), rng),
        last_observations=rng.uniform(-1, 1, (N, 4, 3, 2)).astype(np.float32),
        episode_infos={"task": rng.integers(9, size=(N, 1)), "deep": {"names": rng.normal(size=(N, 2, 2))}},
        step_types=step_types(lengths),
        lengths=np.array(lengths),
    )


def time_step_args(n=2, seed=0):
    rng = np.random.default_rng(seed)
    return dict(
        env_spec=SPEC,
        **steps_args(n, rng),
        next_observations=rng.uniform(-1, 1, (n, 4, 3, 2)).astype(np.float32),
        episode_infos={"task": rng.integers(9, size=(n, 3))},
        step_types=np.array([StepType.FIRST, StepType.TERMINAL] * n, np.uint8)[:n],
    )


def episodes(**kwargs):
    return EpisodeBatch(**episode_args(**kwargs))


def transitions(**kwargs):
    return TimeStepBatch(**time_step_args(**kwargs))


# What is given is what is held ---------------------------------------------------------------------------------------
def test_batches_hold_the_very_arrays_they_are_given():
    for make, args in ((TimeStepBatch, time_step_args()), (EpisodeBatch, episode_args())):
        batch = make(**args)
        for name, value in args.items():
            name = "episode_infos_by_episode" if name == "episode_infos" and make is EpisodeBatch else name
            assert getattr(batch, name) is value, name


def test_batches_are_frozen():
    for batch in (transitions(), episodes()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            batch.rewards = None


def test_infos_are_optional():
    for make, args in ((TimeStepBatch, time_step_args()), (EpisodeBatch, episode_args())):
        for name in ("env_infos", "agent_infos", "episode_infos"):
            del args[name]
        batch = make(**args)
        assert batch.env_infos == batch.agent_infos == batch.episode_infos == {}
        assert make.concatenate(*batch.split()) == batch


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64, object])
def test_step_types_of_any_integer_dtype_are_kept_as_bytes(dtype):
    args = episode_args()
    expected = args["step_types"]
    args["step_types"] = np.array([StepType(x) for x in expected], dtype=dtype)
    batch = EpisodeBatch(**args)
    assert batch.step_types.dtype == np.uint8 and (batch.step_types == expected).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_lengths_may_have_any_integer_dtype(dtype):
    args = episode_args()
    args["lengths"] = args["lengths"].astype(dtype)
    batch = EpisodeBatch(**args)
    assert batch.next_observations.shape == batch.observations.shape
    assert batch.padded_rewards.shape == (3, 10) and len(batch.split()) == 3 and batch == episodes()


def test_batches_are_compared_by_value():
    assert episodes() == episodes() and transitions() == transitions()
    assert episodes() != episodes(seed=1) and transitions() != transitions(seed=1)
    assert episodes() != transitions()


def test_batches_are_pickled():
    for batch in (episodes(), transitions()):
        assert pickle.loads(pickle.dumps(batch)) == batch == cloudpickle.loads(cloudpickle.dumps(batch))


# What is refused -----------------------------------------------------------------------------------------------------
def edited(args, name, change):
    """Return `args` with ``change`` applied to an entry, given by its path."""
    first, *rest = name.split(".")
    if rest:
        return {**args, first: {**args[first], rest[0]: change(args[first][rest[0]])}}
    return {**args, first: change(args[first])}


SHARED = [
    ("rewards", list, "rewards is not of type"),
    ("rewards", lambda x: x[:, None], "rewards has shape"),
    ("rewards", lambda x: np.stack([x, x]), "rewards has shape"),
    ("rewards", lambda x: np.array(["1"] * len(x)), "rewards has dtype <U1, but must have a dtype of real numbers"),
    ("rewards", lambda x: np.array([None] * len(x)), "rewards has dtype object"),
    ("rewards", lambda x: x.astype(complex), "rewards has dtype complex"),
    ("observations", lambda x: x[:-1], "observations has batch size"),
    ("observations", list, "observations is not of type"),
    ("observations", lambda x: x[:, :, :, :1], "Each observation has shape"),
    ("actions", lambda x: x[:-1], "actions has batch size"),
    ("actions", lambda x: x[:, 0], "Each action has shape"),
    ("actions", list, "actions is not of type"),
    ("step_types", lambda x: np.array([]), "step_types has batch size 0"),
    ("step_types", lambda x: x.astype(np.float32), "step_types has dtype float32"),
    ("step_types", lambda x: x[:, None], "step_types has shape"),
    ("step_types", lambda x: x + 4, "step_types has the values"),
    ("step_types", list, "step_types is not of type"),
    ("env_infos.bar", lambda x: [], "Entry 'bar' in env_infos"),
    ("env_infos.goal", lambda x: x[:1], "Entry 'goal' in env_infos has batch size 1"),
    ("env_infos.deep", lambda x: {"foo": x["foo"][:1]}, "Entry 'deep.foo' in env_infos has batch size 1"),
    ("env_infos", lambda x: [], "env_infos is not of type dict"),
    ("agent_infos.bar", lambda x: [], "Entry 'bar' in agent_infos"),
    ("agent_infos.prev_action", lambda x: x[:1], "Entry 'prev_action' in agent_infos has batch size 1"),
    ("episode_infos.bar", lambda x: [], "Entry 'bar' in episode_infos is of type"),
    ("episode_infos.task", lambda x: x[:1], "Entry 'task' in episode_infos has batch size 1"),
]


@pytest.mark.parametrize("make", [TimeStepBatch, EpisodeBatch])
@pytest.mark.parametrize(("name", "change", "fragment"), SHARED)
def test_what_does_not_fit_is_refused_by_name(make, name, change, fragment):
    args = time_step_args() if make is TimeStepBatch else episode_args()
    if name.endswith(".bar"):
        args[name.split(".")[0]]["bar"] = None
    with pytest.raises(ValueError, match=fragment):
        make(**edited(args, name, change))
    make(**edited(args, name, change), validate=False)


def test_sizes_are_named():
    args = time_step_args()
    for name in ("observations", "actions", "next_observations"):
        with pytest.raises(ValueError, match=f"{name} has batch size 1, but must have batch size 2"):
            TimeStepBatch(**edited(args, name, lambda x: x[:1]))
    with pytest.raises(ValueError, match="Each next_observation has shape"):
        TimeStepBatch(**edited(args, "next_observations", lambda x: x[:, :, :, :1]))
    with pytest.raises(ValueError, match=r"Each action has shape \(2,\).*Box"):
        TimeStepBatch(**{**args, "env_spec": EnvSpec(BOX, spaces.Box(-1, 1, (4, 3, 2)))})


@pytest.mark.parametrize(
    ("name", "change", "fragment"),
    [
        ("lengths", lambda x: x[:, None], "lengths has shape"),
        ("lengths", lambda x: x.astype(np.float32), "lengths has dtype float32"),
        ("lengths", list, "lengths is not of type"),
        ("lengths", lambda x: x + [0, 0, 1], "lengths has the sum 10, but must have the sum 9"),
        ("lengths", lambda x: x - [0, 1, -1], "lengths has an entry of 0"),
        ("last_observations", list, "last_observations is not of type"),
        ("last_observations", lambda x: np.concatenate([x, x])[:7], "last_observations has batch size 6"),
        ("last_observations", lambda x: x[:, :2], "last_observations must have the same number of entries"),
        ("step_types", lambda x: np.stack([x, x]), "step_types has batch size 2"),
        (
            "step_types",
            lambda x: np.array([0, 1, 3, 2, 0, 1, 2, 1, 2], np.uint8),
            "step_types.6. is TERMINAL, but its episode goes on to step 8",
        ),
        ("step_types", lambda x: np.array([3, 1, 3, 2, 0, 1, 1, 1, 1]), "step_types.0. is TIMEOUT, .* goes on to step 2"),
    ],
)
def test_what_does_not_fit_episodes_is_refused_by_name(name, change, fragment):
    with pytest.raises(ValueError, match=fragment):
        EpisodeBatch(**edited(episode_args(), name, change))


def test_flattened_observations_and_one_hot_actions_fit():
    args = time_step_args()
    args.update(
        env_spec=EnvSpec(BOX, spaces.Discrete(3)),
        observations=args["observations"].reshape(2, 24),
        next_observations=args["next_observations"].reshape(2, 24),
        actions=np.eye(3)[:2],
    )
    with warnings.catch_warnings(record=True):
        TimeStepBatch(**args)
    TimeStepBatch(**{**args, "actions": np.array([7, 8])}, validate=False)


def test_values_outside_of_the_space_give_one_warning():
    args = episode_args()
    args["observations"] = args["observations"] + 100
    with pytest.warns(UserWarning, match="observations is not in the observation_space") as record:
        batch = EpisodeBatch(**args)
    assert len(record) == 1 and batch.observations is args["observations"]


@pytest.mark.parametrize("wrapped", [as_wrapped, lambda space: space])
def test_bounds_of_float64_are_in_the_space_as_float32(wrapped):
    space = spaces.Box(-0.1, 0.1, (1,), np.float64)
    args = dict(actions=np.zeros(2, int), rewards=np.zeros(2), step_types=np.array([0, 2], np.uint8), lengths=np.array([2]))
    for last in (0.1, 0.2):
        observations = np.array([[last], [-0.1]], np.float32)
        with nullcontext() if last == 0.1 else pytest.warns(UserWarning, match="not in the observation_space"):
            EpisodeBatch(EnvSpec(wrapped(space), spaces.Discrete(2)), observations=observations, last_observations=observations[:1], **args)


# Computed fields -----------------------------------------------------------------------------------------------------
def by_hand(batch):
    """Per episode: the range of its steps."""
    stop = 0
    for i, length in enumerate(batch.lengths):
        start, stop = stop, stop + length
        yield i, start, stop


def test_next_observations_are_shifted_within_episodes():
    batch = episodes()
    expected = np.empty_like(batch.observations)
    for i, start, stop in by_hand(batch):
        for t in range(start, stop):
            expected[t] = batch.observations[t + 1] if t + 1 < stop else batch.last_observations[i]
    assert (batch.next_observations == expected).all()


def test_episode_infos_are_repeated_for_each_step():
    batch = episodes()
    for i, start, stop in by_hand(batch):
        for t in range(start, stop):
            by_step = tree_map(lambda x, t=t: x[t], batch.episode_infos)
            assert same_value(by_step, tree_map(lambda x, i=i: x[i], batch.episode_infos_by_episode))


def test_lists_of_observations_and_actions():
    batch = episodes()
    assert [len(x) for x in batch.observations_list] == LENGTHS == [len(x) for x in batch.actions_list]
    assert (np.concatenate(batch.observations_list) == batch.observations).all()
    assert (np.concatenate(batch.actions_list) == batch.actions).all()


def test_terminals_and_timeouts():
    batch = episodes()
    assert np.flatnonzero(batch.terminals).tolist() == [2, 8] and np.flatnonzero(batch.timeouts).tolist() == [3]
    assert batch.terminals.dtype == bool and batch.terminals.shape == batch.rewards.shape


PADDED = ["observations", "actions", "rewards", "next_observations", "step_types", "env_infos", "agent_infos"]


@pytest.mark.parametrize("limit", [10, None, float("inf")])
@pytest.mark.parametrize("name", PADDED)
def test_padded_views(name, limit):
    batch = EpisodeBatch(**{**episode_args(), "env_spec": EnvSpec(BOX, DISCRETE, limit)})
    L = 10 if limit == 10 else 5

    def check(padded, packed):
        assert padded.shape == (3, L, *packed.shape[1:]) and padded.dtype == packed.dtype
        for i, start, stop in by_hand(batch):
            assert (padded[i, : stop - start] == packed[start:stop]).all() and not padded[i, stop - start :].any()

    tree_map(check, getattr(batch, f"padded_{name}"), getattr(batch, name))


def test_valids_are_ones_where_there_are_steps():
    valids = episodes().valids
    assert valids.dtype == np.float32 and valids.tolist() == [[1.0] * n + [0.0] * (10 - n) for n in LENGTHS]
    batch = episodes()
    batch.rewards[:2] = np.nan, np.inf
    assert (batch.valids == valids).all()


def test_an_episode_longer_than_the_limit_gives_one_warning():
    batch = EpisodeBatch(**{**episode_args(), "env_spec": EnvSpec(BOX, DISCRETE, 4)})
    with pytest.warns(UserWarning, match="longer length than requested") as record:
        assert batch.padded_rewards.shape == (3, 5)
    assert len(record) == 1


# From one to the other -----------------------------------------------------------------------------------------------
def test_splitting_and_concatenating_are_inverse():
    for batch, n in ((episodes(), 3), (transitions(), 2)):
        parts = batch.split()
        assert len(parts) == n and all(type(part) is type(batch) for part in parts)
        assert type(batch).concatenate(*parts) == batch
    assert [part.lengths.tolist() for part in episodes().split()] == [[n] for n in LENGTHS]


def test_concatenating_nothing_or_what_does_not_fit():
    for make in (TimeStepBatch, EpisodeBatch):
        with pytest.raises(ValueError, match="at least one"):
            make.concatenate()
    args = episode_args()
    other = EpisodeBatch(**{**args, "env_infos": {"foo": args["env_infos"]["goal"]}})
    with pytest.raises(ValueError, match="env_infos of batch 1 has the keys"):
        EpisodeBatch.concatenate(episodes(), other)


def test_selecting_episodes():
    batch, parts = episodes(), episodes().split()
    assert batch.select([2, 0]) == EpisodeBatch.concatenate(parts[2], parts[0])
    assert batch.select(np.array([False, True, False])) == parts[1]
    assert len(batch.select([])) == 0


def test_episodes_whose_spec_is_not_known():
    for make, args in ((EpisodeBatch, episode_args()), (TimeStepBatch, time_step_args())):
        known, batch = make(**args), make(**{**args, "env_spec": None})
        assert batch.env_spec is None and make.concatenate(*batch.split()) == batch != known
        for name in make._PER_STEP:
            assert same_value(getattr(batch, name), getattr(known, name))
        with pytest.raises(ValueError, match="observations has batch size"):
            make(**{**args, "env_spec": None, "observations": args["observations"][:-1]})
    batch = EpisodeBatch(**{**episode_args(), "env_spec": None})
    unlimited = EpisodeBatch(**{**episode_args(), "env_spec": EnvSpec(BOX, DISCRETE)})
    for name in PADDED:
        assert same_value(getattr(batch, f"padded_{name}"), getattr(unlimited, f"padded_{name}"))
    assert batch.valids.tolist() == unlimited.valids.tolist()
    assert EpisodeBatch.from_list(None, batch.to_list()) == batch
    steps = TimeStepBatch.from_episode_batch(batch)
    assert TimeStepBatch.from_time_step_list(None, batch.to_time_step_list()) == steps == batch.take(np.arange(9))
    with pytest.raises(ValueError, match="last_observations must have the same number of entries"):
        EpisodeBatch(**{**episode_args(), "env_spec": None, "last_observations": np.zeros((3, 4))})


def test_lists_of_episodes_are_inverse():
    batch = episodes()
    paths = batch.to_list()
    assert EpisodeBatch.from_list(SPEC, paths) == batch
    for i, start, stop in by_hand(batch):
        path = paths[i]
        assert set(path) == {*PADDED, "episode_infos"}
        assert (path["observations"] == batch.observations[start:stop]).all()
        assert (path["next_observations"][:-1] == batch.observations[start + 1 : stop]).all()
        assert (path["next_observations"][-1] == batch.last_observations[i]).all()
        assert (path["rewards"] == batch.rewards[start:stop]).all() and len(path["step_types"]) == stop - start
        assert (path["episode_infos"]["task"] == batch.episode_infos_by_episode["task"][i]).all()


def test_a_list_of_episodes_with_one_observation_more():
    batch, paths = episodes(), episodes().to_list()
    for path in paths:
        path["observations"] = np.concatenate([path["observations"], path.pop("next_observations")[-1:]])
    assert EpisodeBatch.from_list(SPEC, paths) == batch


def test_a_list_of_episodes_without_last_observations_repeats_what_there_is():
    paths = episodes().to_list()
    for path in paths:
        del path["next_observations"]
    batch = EpisodeBatch.from_list(SPEC, paths)
    assert all((last == path["observations"][-1]).all() for last, path in zip(batch.last_observations, paths))


@pytest.mark.parametrize("n_paths", [1, 2])
@pytest.mark.parametrize("kind", [np.ndarray.tolist, torch.as_tensor], ids=["lists", "tensors"])
def test_a_list_of_episodes_of_lists_or_tensors(kind, n_paths):
    spec = EnvSpec(spaces.Box(-9, 9, (2,), np.float64), spaces.Discrete(4))
    paths = [
        dict(
            observations=np.arange(6.0).reshape(3, 2) + i,
            next_observations=np.arange(6.0).reshape(3, 2) + i + 1,
            actions=np.array([0, 3, i]),
            rewards=np.array([0.5, 1.5, i]),
            dones=np.array([False, False, True]),
            env_infos={"deep": {"x": np.array([1, 2, 3])}},
            episode_infos={"goal": np.array([0.5, i])},
        )
        for i in range(n_paths)
    ]
    batch = EpisodeBatch.from_list(spec, [tree_map(kind, path) for path in paths])
    assert batch == EpisodeBatch.from_list(spec, paths) and batch.last_observations[-1].tolist() == [4 + n_paths, 5 + n_paths]
    paths[0].update(agent_infos=None, step_types=None, other=[[1], [2, 3]])
    assert EpisodeBatch.from_list(spec, paths) == batch
    with pytest.raises(ValueError, match="Episode 0 lacks actions"):
        EpisodeBatch.from_list(spec, [{**paths[0], "actions": None}])


def test_a_list_of_episodes_with_dones():
    paths = episodes().to_list()
    for path in paths:
        path["dones"] = path.pop("step_types") == StepType.TERMINAL
    assert EpisodeBatch.from_list(SPEC, paths).step_types.tolist() == [1, 1, 2, 1, 1, 1, 1, 1, 2]
    del paths[0]["dones"]
    with pytest.raises(ValueError, match="Episode 0 lacks step_types"):
        EpisodeBatch.from_list(SPEC, paths)
    with pytest.raises(ValueError, match="at least one dict"):
        EpisodeBatch.from_list(SPEC, [])


@pytest.mark.parametrize("kind", [bool, int, np.float32, object])
def test_dones_are_bools_or_0_and_1(kind):
    path = dict(observations=np.zeros((3, 2)), actions=np.zeros(3), rewards=np.zeros(3))
    assert EpisodeBatch.from_list(None, [dict(path, dones=np.array([0, 0, 1]).astype(kind))]).step_types.tolist() == [1, 1, 2]


@pytest.mark.parametrize("dones", [["False", "False", "True"], [False, False, np.nan], [0, 0, 2], [0.0, 0.5, 1.0], [False, None, True]])
def test_dones_that_are_something_else_are_refused(dones):
    path = dict(observations=np.zeros((3, 2)), actions=np.zeros(3), rewards=np.zeros(3), dones=dones)
    with pytest.raises(ValueError, match="^Episode 0: dones has the value .*, but must have True or False"):
        EpisodeBatch.from_list(None, [path])


def test_a_data_set_of_several_episodes_in_one_dictionary_is_refused():
    path = dict(observations=np.zeros((6, 1)), actions=np.zeros(6), rewards=np.ones(6), dones=[0, 0, 1, 0, 0, 1])
    with pytest.raises(ValueError, match=r"^Episode 0: step_types.2. is TERMINAL, .* to step 5: .* its own dictionary"):
        EpisodeBatch.from_list(None, [path])


def test_a_list_of_episodes_that_do_not_fit_is_refused_by_name():
    def said(*changes):
        paths = episodes().to_list()
        for path, change in zip(paths, changes):
            path.update(change)
        with pytest.raises(ValueError) as info:
            EpisodeBatch.from_list(SPEC, paths)
        return str(info.value)

    T = [len(path["rewards"]) for path in episodes().to_list()]
    assert "env_infos of episode 1 has the keys {'a': None" in said({}, {"env_infos": {"a": np.zeros(T[1])}})
    assert "agent_infos of episode 1 has the keys {}" in said({}, {"agent_infos": None})
    assert "episode_infos of episode 1 has the keys" in said({}, {"episode_infos": {"a": 1}})
    shapes = {"agent_infos": {"a": np.zeros((T[0], 2))}}, {"agent_infos": {"a": np.zeros((T[1], 3))}}
    assert "agent_infos cannot be put together, because shapes differ" in said(*shapes, {"agent_infos": {"a": np.zeros((T[2], 3))}})
    assert said({}, {"actions": episodes().actions_list[0]}).startswith("Episode 1: actions has batch size")
    assert said({}, {"next_observations": episodes().observations[:4]}).startswith("Episode 1: next_observations has batch size 4")
    assert said({}, {"rewards": 1.0}) == "Episode 1: rewards has no dimension of steps, but must have one entry for each step."
    assert said({"rewards": [[1], [1, 2]]}).startswith("Episode 0: rewards: [[1], [1, 2]] is no array")
    swapped = {"actions": np.concatenate([episodes().actions_list[0], episodes().actions[:1]])}, {"actions": episodes().actions_list[1][1:]}
    assert said(*swapped).startswith("Episode 0: actions has batch size"), "though there are as many actions as rewards in all"
    with pytest.raises(ValueError, match="Episode 0 is not a dictionary, but ndarray"):
        EpisodeBatch.from_list(SPEC, [np.zeros(3)])
    with pytest.raises(ValueError, match="actions cannot be put together, because shapes differ"):
        TimeStepBatch.concatenate(transitions(), dataclasses.replace(transitions(), actions=np.zeros((2, 9)), validate=False))


def test_lists_of_time_steps_are_inverse():
    for batch in (transitions(), TimeStepBatch.from_episode_batch(episodes())):
        steps = batch.to_time_step_list()
        names = {"episode_infos", "observations", "actions", "rewards", "next_observations", "env_infos", "agent_infos", "step_types"}
        assert len(steps) == len(batch) and all(set(step) == names for step in steps)
        assert steps[1]["observations"].shape == (1, 4, 3, 2) and steps[1]["rewards"].tolist() == [batch.rewards[1]]
        assert TimeStepBatch.from_time_step_list(SPEC, steps) == batch
    assert TimeStepBatch.from_time_step_list(SPEC, episodes().to_time_step_list()) == TimeStepBatch.from_episode_batch(episodes())
    with pytest.raises(ValueError, match="at least one dict"):
        TimeStepBatch.from_time_step_list(SPEC, [])


def test_a_list_of_time_steps_may_have_further_keys_but_not_fewer():
    batch = transitions()
    steps = [dict(step, env_spec=SPEC, terminals=1, note=None) for step in batch.to_time_step_list()]
    assert TimeStepBatch.from_time_step_list(SPEC, steps) == batch == TimeStepBatch.from_time_step_list(SPEC, iter(steps))
    for name in ("observations", "actions", "rewards", "next_observations", "step_types"):
        wrong = [steps[0], {key: value for key, value in steps[1].items() if key != name}]
        with pytest.raises(ValueError, match=f"Entry 1 lacks {name}; it has the keys .*'note'"):
            TimeStepBatch.from_time_step_list(SPEC, wrong)
    for wrong, said in (
        (dict(steps[1], rewards=[1]), "Entry 1: rewards is not of type"),
        (dict(steps[1], env_infos={}), "env_infos of entry 1 has the keys {}"),
        (5, "Entry 1 is not a dictionary, but int"),
    ):
        with pytest.raises(ValueError, match=said):
            TimeStepBatch.from_time_step_list(SPEC, [steps[0], wrong])


def test_the_specification_may_be_given_by_position_and_has_to_be_one():
    for batch in (transitions(), episodes()):
        names = [*batch._PER_STEP, *batch._PER_EPISODE]
        fields = {name.removesuffix("_by_episode"): getattr(batch, name) for name in names}
        assert type(batch)(SPEC, **fields) == batch
        with pytest.raises(TypeError, match="positional"):
            type(batch)(SPEC, *fields.values())
        with pytest.raises(ValueError, match="env_spec='x' must be an EnvSpec, or None"):
            type(batch)("x", **fields)


def test_a_list_of_time_steps_may_hold_batches_and_the_singular_name():
    batch = transitions(n=4)
    fields = {name: getattr(batch, name) for name in TimeStepBatch._PER_STEP}
    parts = [tree_map(lambda x, s=s: x[s], fields) for s in (slice(3), slice(3, 4))]
    parts[1]["next_observation"] = parts[1].pop("next_observations")
    assert TimeStepBatch.from_time_step_list(SPEC, parts) == batch


def test_transitions_of_episodes():
    batch = episodes()
    steps = TimeStepBatch.from_episode_batch(batch)
    assert steps.observations is batch.observations and (steps.next_observations == batch.next_observations).all()
    assert type(steps) is TimeStepBatch and len(steps) == 9


@pytest.mark.parametrize("as_tensors", [False, True])
@pytest.mark.parametrize("make", [episodes, transitions])
def test_steps_are_taken_by_masks_and_numbers_as_arrays_are(make, as_tensors):
    batch = make()
    everything = TimeStepBatch.from_episode_batch(batch) if make is episodes else batch
    n = len(batch)
    steps = everything.split()
    choices = [
        ([0, n - 1, 0], [0, n - 1, 0]),
        ([-1, -n, 1], [n - 1, 0, 1]),
        (np.array([n - 1], np.uint8), [n - 1]),
        (torch.tensor([1, -1]), [1, n - 1]),
        ([True] + [False] * (n - 1), [0]),
        (torch.ones(n, dtype=torch.bool), list(range(n))),
        (batch.terminals, [t for t in range(n) if batch.step_types[t] == StepType.TERMINAL]),
    ]
    batch = batch.torch() if as_tensors else batch
    for idxs, chosen in choices:
        taken = batch.take(idxs).numpy()
        assert type(taken) is TimeStepBatch and taken == TimeStepBatch.concatenate(*(steps[i] for i in chosen))
    for nothing in ([], np.array([], int), np.zeros(n, bool)):
        assert len(batch.take(nothing)) == 0
    for wrong in ([n], [-n - 1], [0.7], [True] * (n + 1)):
        with pytest.raises(IndexError):
            batch.take(wrong)
    batch.take([0]).rewards[:] = 99
    assert not (batch.rewards == 99).any()


@pytest.mark.parametrize("make", [episodes, transitions])
def test_sampled_steps_are_steps(make):
    batch = make()
    sample = batch.sample(50, np.random.default_rng(0))
    assert type(sample) is TimeStepBatch and len(sample) == 50
    everything = TimeStepBatch.from_episode_batch(batch) if make is episodes else batch
    idxs = [int(np.flatnonzero(everything.rewards == reward)[0]) for reward in sample.rewards]
    assert sample == everything.take(np.array(idxs)) and set(idxs) == set(range(len(batch)))
    assert batch.sample(50, np.random.default_rng(0)) == sample


def test_there_is_nothing_to_sample_from_nothing():
    with pytest.raises(ValueError, match="no steps"):
        episodes().select([]).sample(1)


def test_no_episodes_at_all():
    empty = episodes().select([])
    args = {name: getattr(empty, name) for name in ("env_spec", *EpisodeBatch._PER_STEP, "last_observations", "lengths")}
    empty = EpisodeBatch(**args, episode_infos=empty.episode_infos_by_episode)
    assert empty.n_episodes == 0 and empty.split() == [] and empty.to_list() == [] and empty.observations_list == []
    assert empty.next_observations.shape == (0, 4, 3, 2) and empty.padded_rewards.shape == (0, 10) and empty.terminals.shape == (0,)
    assert EpisodeBatch.concatenate(empty, episodes()) == episodes()


# Tensors, structures -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [episodes, transitions])
def test_tensors_over_the_same_memory(make):
    batch = make()
    tensors = batch.torch()
    assert isinstance(tensors.rewards, torch.Tensor) and tensors.rewards.data_ptr() == batch.rewards.ctypes.data
    assert isinstance(tensors.env_infos["deep"]["foo"], torch.Tensor) and tensors.step_types.dtype == torch.uint8
    assert type(tensors) is type(batch) and tensors.numpy() == batch
    assert type(batch).concatenate(*tensors.split()).numpy() == batch
    assert (tensors.terminals.numpy() == batch.terminals).all()


def test_computed_fields_of_tensors():
    batch, tensors = episodes(), episodes().torch()
    assert (tensors.next_observations.numpy() == batch.next_observations).all()
    for name in PADDED:
        mine, theirs = (getattr(x, f"padded_{name}") for x in (tensors, batch))
        tree_map(lambda x, y: np.testing.assert_array_equal(x.numpy(), y), mine, theirs)
    assert (tensors.valids.numpy() == batch.valids).all()
    assert tensors.select([2, 0]).numpy() == batch.select([2, 0])
    assert tensors.take(np.array([8, 0, 2])).numpy() == batch.take(np.array([8, 0, 2]))


def test_names_stay_arrays():
    args = episode_args()
    args["env_infos"]["task_name"] = np.array(["a"] * 9)
    batch = EpisodeBatch(**args)
    assert batch.torch().env_infos["task_name"] is args["env_infos"]["task_name"]
    assert batch.torch().numpy() == batch and EpisodeBatch.concatenate(*batch.split()) == batch


def test_structured_observations_and_actions():
    rng = np.random.default_rng(0)
    space = spaces.Dict(image=spaces.Box(0, 255, (2, 2), np.uint8), where=spaces.Dict(x=spaces.Box(-9, 9, (3,))))

    def some(n):
        image, x = rng.integers(255, size=(n, 2, 2), dtype=np.uint8), rng.normal(size=(n, 3)).astype(np.float32)
        return {"image": image, "where": {"x": x}}

    args = dict(
        env_spec=EnvSpec(space, spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-9, 9, (2,)))),
        observations=some(5),
        last_observations=some(2),
        actions={"a": rng.integers(3, size=5), "b": rng.normal(size=(5, 2)).astype(np.float32)},
        rewards=np.ones(5),
        step_types=step_types([2, 3]),
        lengths=np.array([2, 3]),
    )
    batch = EpisodeBatch(**args)
    assert EpisodeBatch.concatenate(*batch.split()) == batch == EpisodeBatch.from_list(batch.env_spec, batch.to_list())
    assert (batch.next_observations["where"]["x"][1] == args["last_observations"]["where"]["x"][0]).all()
    assert batch.padded_observations["image"].shape == (2, 3, 2, 2)
    with pytest.raises(ValueError, match="Each observation has shape"):
        EpisodeBatch(**{**args, "observations": {"image": args["observations"]["image"]}, "last_observations": {"image": some(2)["image"]}})
    with pytest.raises(ValueError, match="last_observations has the keys"):
        EpisodeBatch(**{**args, "last_observations": {"image": some(2)["image"]}})
    with pytest.raises(ValueError, match="observations.where.x has batch size 4"):
        EpisodeBatch(**edited(args, "observations.where", lambda x: {"x": x["x"][:4]}))
