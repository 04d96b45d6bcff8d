"""Datasets of Minari, written and read."""

import dataclasses
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from played import SPEC, Play

from rlpyt.envs.specs import same_value
from rlpyt.episodes import EnvSpec, EpisodeBatch, StepType
from rlpyt.episodes.minari import from_minari, to_minari
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.quick_args import takes


@pytest.fixture
def minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return pytest.importorskip("minari")


def played(**kwargs):
    samples, _ = Play(30, 2, env=dict(episode_length=[4, 6, 1], end=["terminated", "timeout"])).batch()
    return EpisodeBatch.from_samples(samples, SPEC, first=True, **kwargs)


def test_infos_that_only_some_episodes_have_are_left_out_with_a_warning(minari):
    from minari.data_collector import EpisodeBuffer

    def episode(i, T):
        infos = dict(k=np.arange(T) + 10.0 * i, of_three=np.zeros(3), deep=dict(x=np.arange(T), y=np.zeros(T)))
        if i:
            infos.update(extra=np.zeros(T))
            infos["deep"].pop("y")
        observations, is_last = np.zeros((T + 1, 2), np.float32), np.arange(T) == T - 1
        steps = dict(actions=np.zeros(T, np.int64), rewards=np.ones(T), terminations=is_last, truncations=np.zeros(T, bool))
        return EpisodeBuffer(id=i, observations=observations, infos=infos, **steps)

    gym_spaces = dict(observation_space=spaces.Box(-1, 1, (2,), np.float32), action_space=spaces.Discrete(2))
    dataset = minari.create_dataset_from_buffers("rlpyt/infos-v0", [episode(i, T) for i, T in enumerate((3, 5))], **gym_spaces)
    with pytest.warns(UserWarning, match="these env_infos with one entry per step: deep.y, extra, of_three. They are left out"):
        batch = from_minari(dataset)
    assert batch.env_infos.keys() == {"k", "deep"} and batch.env_infos["deep"].keys() == {"x"}
    assert batch.env_infos["k"].tolist() == [0, 1, 2, 10, 11, 12, 13, 14]
    assert batch.env_infos["deep"]["x"].tolist() == [*range(3), *range(5)]


def test_writing_and_reading_gives_the_same_episodes(minari):
    batch = played(partial="drop")
    dataset = to_minari(batch, "rlpyt/counting/test-v0", algorithm_name="arithmetic")
    assert from_minari(dataset) == batch == from_minari("rlpyt/counting/test-v0")
    assert batch.terminals.any() and batch.timeouts.any() and batch.agent_infos and batch.env_infos
    assert dataset.total_episodes == batch.n_episodes and dataset.total_steps == len(batch)
    assert dataset.observation_space == SPEC.observation_space and dataset.action_space == SPEC.action_space


def test_minari_sees_what_was_played(minari):
    batch = played(partial="drop")
    dataset = to_minari(batch, "counting/test-v0")
    for episode, path in zip(dataset.iterate_episodes(), batch.to_list(), strict=True):
        T = len(path["rewards"])
        assert episode.observations.shape == (T + 1, 4) and (episode.observations[:-1] == path["observations"]).all()
        assert (episode.observations[1:] == path["next_observations"]).all()
        assert (episode.rewards == path["rewards"]).all() and (episode.actions == path["actions"]).all()
        end = path["step_types"][-1]
        assert episode.terminations.tolist() == [False] * (T - 1) + [end == StepType.TERMINAL]
        assert episode.truncations.tolist() == [False] * (T - 1) + [end == StepType.TIMEOUT]
        assert (episode.infos["t"] == path["env_infos"]["t"]).all()


def test_some_of_the_episodes(minari):
    batch = played(partial="drop")
    dataset = to_minari(batch, "counting/test-v0")
    assert from_minari(dataset, [2, 0]) == batch.select([2, 0])
    assert from_minari(dataset, (i for i in np.array([1]))) == batch.select([1])
    n = batch.n_episodes
    with pytest.raises(ValueError, match=rf"counting/test-v0 has no episodes \[-1, {n}\]: choose among .*, {n} in all"):
        from_minari(dataset, [0, n, -1])
    with pytest.raises(ValueError, match=rf"No episodes are selected; the dataset counting/test-v0 has {n}"):
        from_minari(dataset, [])
    some = dataset.filter_episodes(lambda episode: episode.id in (1, 3))
    assert from_minari(some) == batch.select([1, 3])
    with pytest.raises(ValueError, match=r"has no episodes \[0\]: .*, 2 in all"):
        from_minari(some, [0, 1])


def test_the_time_limit_is_that_of_the_environment_if_it_is_told(minari):
    batch = played(partial="drop")
    args = {name: getattr(batch, name) for name in (*EpisodeBatch._PER_STEP, "last_observations", "lengths")}
    batch = EpisodeBatch(env_spec=dataclasses.replace(SPEC, max_episode_length=50), **args)
    assert from_minari(to_minari(batch, "counting/without-v0")).env_spec.max_episode_length is None
    assert from_minari(to_minari(batch, "counting/with-v0", env="CartPole-v1")).env_spec.max_episode_length == 500


def test_parts_of_episodes_are_written_as_truncated(minari):
    batch = played()
    assert (batch.step_types[-1:] == StepType.MID).all()
    read = from_minari(to_minari(batch, "counting/test-v0"))
    assert read.step_types[-1] == StepType.TIMEOUT and (read.observations == batch.observations).all()


def test_structured_and_image_spaces_are_exact(minari):
    rng = np.random.default_rng(0)
    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (8, 6, 3), np.uint8), pair=spaces.Tuple((spaces.Discrete(4), spaces.Box(-9, 9, (2,))))
    )

    def some(n):
        pair = {"item_0": rng.integers(4, size=n), "item_1": rng.normal(size=(n, 2)).astype(np.float32)}
        return {"image": rng.integers(256, size=(n, 8, 6, 3), dtype=np.uint8), "pair": pair}

    batch = EpisodeBatch(
        env_spec=EnvSpec(observation_space, spaces.Dict(a=spaces.Discrete(3))),
        observations=some(5),
        last_observations=some(2),
        actions={"a": rng.integers(3, size=5)},
        rewards=rng.normal(size=5),
        env_infos={"deep": {"x": np.arange(5)}, "name": np.array(["a"] * 5)},
        step_types=np.array([0, 2, 0, 1, 3], np.uint8),
        lengths=np.array([2, 3]),
    )
    if not takes(minari.create_dataset_from_buffers, "jpeg_encoding"):  # As in the last version for Python 3.10.
        with pytest.raises(ValueError, match="stores images as JPEG, which changes them"):
            to_minari(batch, "structured/test-v0")
        return
    read = from_minari(to_minari(batch, "structured/test-v0"))
    assert same_value(read.observations, batch.observations) and same_value(read.last_observations, batch.last_observations)
    assert same_value(read.actions, batch.actions) and same_value(read.env_infos, {"deep": {"x": np.arange(5)}})
    assert read.env_spec == batch.env_spec


def test_spaces_of_rlpyt(minari):
    batch = played(partial="drop")
    args = {name: getattr(batch, name) for name in (*EpisodeBatch._PER_STEP, "last_observations", "lengths")}
    spec = EnvSpec(FloatBox(-1, 1e6, (4,)), IntBox(0, 3))
    dataset = to_minari(EpisodeBatch(env_spec=spec, **args), "counting/test-v0")
    assert isinstance(dataset.action_space, spaces.Discrete) and dataset.action_space.n == 3
    assert (from_minari(dataset).observations == batch.observations).all()


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=5), spaces.MultiDiscrete([3, 3], start=[5, 6])], ids=str)
def test_actions_that_rlpyt_counts_from_0_are_written_as_the_environment_got_them(space, minari):
    batch = played(partial="drop")
    args = {name: getattr(batch, name) for name in (*EpisodeBatch._PER_STEP, "last_observations", "lengths")}
    args["actions"] = np.arange(len(batch) * max(1, len(space.shape) * 2)).reshape(len(batch), *space.shape) % 3
    spec = EnvSpec(SPEC.observation_space, GymSpaceWrapper(space))
    read = from_minari(to_minari(EpisodeBatch(env_spec=spec, **args), "counting/test-v0"))
    assert read.env_spec.action_space == space
    np.testing.assert_array_equal(read.actions, args["actions"] + space.start)
    assert from_minari(to_minari(read, "counting/again-v0")) == read


def test_a_dataset_recorded_by_minari_itself(minari):
    """Its infos have an entry for the reset as well; the time limit comes from the environment."""
    pytest.importorskip("jax", reason="Minari records with jax.")
    env = minari.DataCollector(gymnasium.make("CartPole-v1"), record_infos=True)
    for seed in range(3):
        env.reset(seed=seed)
        while not any(env.step(env.action_space.sample())[2:4]):
            pass
    dataset = env.create_dataset("cartpole/test-v0")
    batch = from_minari(dataset)
    assert batch.n_episodes == 3 and batch.terminals.sum() == 3 and batch.env_spec.max_episode_length == 500
    assert batch.rewards.sum() == len(batch) == dataset.total_steps


def test_an_info_of_the_reset_is_left_out(minari):
    EpisodeBuffer = minari.data_collector.EpisodeBuffer
    buffer = EpisodeBuffer(
        observations=np.zeros((4, 1), np.float32),
        actions=np.zeros(3, np.int64),
        rewards=[1.0, 2.0, 3.0],
        terminations=[False, False, True],
        truncations=[False, False, False],
        infos={"t": np.arange(4), "once": np.arange(1), "deep": {"t": np.arange(4)}},
    )
    box = spaces.Box(-1, 1, (1,))
    dataset = minari.create_dataset_from_buffers("one/test-v0", [buffer], observation_space=box, action_space=spaces.Discrete(2))
    infos = from_minari(dataset).env_infos
    assert infos["t"].tolist() == [1, 2, 3] == infos["deep"]["t"].tolist() and set(infos) == {"t", "deep"}


def test_errors(minari, monkeypatch):
    batch = played()
    with pytest.raises(ValueError, match="no episodes"):
        to_minari(batch.select([]), "counting/test-v0")
    args = {name: getattr(batch, name) for name in (*EpisodeBatch._PER_STEP, "last_observations", "lengths")}
    with pytest.raises(ValueError, match="no env_spec"):
        to_minari(EpisodeBatch(env_spec=None, validate=False, **args), "counting/test-v0")
    monkeypatch.setitem(sys.modules, "minari", None)
    for call in (lambda: to_minari(batch, "counting/test-v0"), lambda: from_minari("counting/test-v0")):
        with pytest.raises(ImportError, match=r'Datasets of Minari need .*pip install -c constraints.txt -e "\.\[minari\]"'):
            call()
