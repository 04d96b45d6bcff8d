"""Programs with environments of their own, as they are written for the original rlpyt."""

import sys
import types

import cv2
import gymnasium
import numpy as np
import pytest
from envs import ClassicGymEnv

import rlpyt.envs.gym
from rlpyt.envs.atari.atari_env import AtariEnv
from rlpyt.envs.gym import make
from rlpyt.envs.state import get_state, set_state


# ---------------------------------------------------------------------------------------------------------------------
# Atari
# ---------------------------------------------------------------------------------------------------------------------
class Bright(AtariEnv):
    """Makes its frames by itself, from the two screens, and replaces the observation each time."""

    def _update_obs(self):
        self._get_screen(2)
        np.maximum(self._raw_frame_1, self._raw_frame_2, out=self._max_frame)
        height, width = self._frame_shape
        image = 255 - cv2.resize(self._max_frame, (width, height), interpolation=cv2.INTER_AREA)
        self._obs = np.concatenate([self._obs[1:], image[None]])


class Gray(AtariEnv):
    """Starts from gray frames, in an array of its own."""

    def _reset_obs(self):
        super()._reset_obs()
        self._obs = np.full_like(self._obs, 128)


class Inverted(AtariEnv):
    """Sees other screens."""

    def _get_screen(self, frame=1):
        super()._get_screen(frame)
        screen = self._raw_frame_1 if frame == 1 else self._raw_frame_2
        np.subtract(255, screen, out=screen)


class EveryTenSteps(AtariEnv):
    """Loses a life every ten steps."""

    n_life_resets = 0

    def _check_life(self):
        lost_life = self._step_counter % 10 == 9
        if lost_life:
            self._life_reset()
        return lost_life

    def _life_reset(self):
        super()._life_reset()
        self.n_life_resets += 1


def frames_of(EnvCls, n_steps=3, **kwargs):
    env = EnvCls("pong", max_start_noops=0, **kwargs)
    env.seed(0)
    return np.stack([env.reset(), *(env.step(0).observation for _ in range(n_steps))])


def test_an_overridden_update_obs_makes_the_frames():
    settings = dict(frame_shape=(84, 84))
    ours, mine = frames_of(AtariEnv, **settings), frames_of(Bright, **settings)
    assert np.array_equal(mine[:, -1], 255 - ours[:, -1]) and np.array_equal(mine[3, :3], mine[2, 1:])


def test_an_overridden_update_obs_is_what_step_into_writes():
    env, twin = Bright("pong"), Bright("pong")
    out = np.zeros((4, 104, 80), np.uint8)
    for each in (env, twin):
        each.seed(3)
    observation = env.reset()
    twin.reset_into(out)
    for action in range(4):
        assert np.array_equal(observation, out)
        observation = env.step(action).observation
        twin.step_into(action, out)


def test_an_overridden_reset_obs_may_replace_the_observation():
    frames = frames_of(Gray)
    assert (frames[0, :3] == 128).all() and (frames[2, 0] == 128).all()
    assert np.array_equal(frames[:, -1], frames_of(AtariEnv)[:, -1])


def test_an_observation_of_another_form_is_refused_where_rlpyt_would_write_frames_into_it():
    class Wrong(AtariEnv):
        def _reset_obs(self):
            self._obs = np.zeros((4, 84, 84), np.uint8)

    with pytest.raises(ValueError, match="Wrong has replaced _obs.*override _update_obs"):
        Wrong("pong")


def test_an_overridden_get_screen_is_what_frames_are_made_of():
    settings = dict(frame_shape=(84, 84))
    assert not np.array_equal(frames_of(Inverted, **settings), frames_of(AtariEnv, **settings))
    env = Inverted("pong", max_start_noops=0, **settings)
    env.reset()
    screen = np.zeros(env.ale.getScreenDims(), np.uint8)
    env.ale.getScreenGrayscale(screen)
    assert np.array_equal(env._raw_frame_2, 255 - screen)


@pytest.mark.parametrize("episodic_lives", [True, False])
def test_an_overridden_check_life_says_when_a_life_is_lost(episodic_lives):
    env = EveryTenSteps("pong", episodic_lives=episodic_lives)
    env.reset()
    n = env.n_life_resets
    steps = [env.step(0) for _ in range(30)]
    assert [t + 1 for t, step in enumerate(steps) if step.done] == ([10, 20, 30] if episodic_lives else [])
    assert not any(step.env_info.traj_done for step in steps) and env.n_life_resets == n + 3
    black = [not step.observation[:3].any() for step in steps]
    assert black.count(True) == (3 if episodic_lives else 0)


def test_a_game_begins_by_the_methods_that_subclasses_override():
    calls = []

    class Told(AtariEnv):
        def _reset_obs(self):
            calls.append("_reset_obs")
            super()._reset_obs()

        def _life_reset(self):
            calls.append("_life_reset")
            super()._life_reset()

        def fire_and_up(self):
            calls.append("fire_and_up")
            super().fire_and_up()

        def _update_obs(self):
            calls.append("_update_obs")
            super()._update_obs()

    env = Told("breakout", fire_on_reset=True)
    calls.clear()
    env.reset()
    assert calls == ["_reset_obs", "_life_reset", "fire_and_up", "_update_obs"]


def test_subclasses_can_call_the_methods_that_make_up_a_step():
    env = AtariEnv("breakout", max_start_noops=0)
    env.reset()
    env._get_screen(1)
    env._update_obs()
    assert env._check_life() is False
    env._life_reset()
    assert env.get_obs()[2].any() and env._lives == 5
    env._reset_obs()
    assert not env.get_obs().any()


def test_an_environment_that_replaces_its_observation_goes_on_from_its_state():
    env, twin = Bright("pong"), Bright("pong")
    env.reset()
    env.step(1)
    twin.step(0)
    set_state(twin, get_state(env))
    for action in range(4):
        assert np.array_equal(env.step(action).observation, twin.step(action).observation)


def test_the_score_that_a_life_reset_of_the_users_does_not_count_is_dropped():
    class Dropping(EveryTenSteps):
        def _life_reset(self):
            self.ale.act(0)
            self._lives = self.ale.lives()

    scores = []
    for EnvCls in (EveryTenSteps, Dropping):
        env = EnvCls("space_invaders", max_start_noops=0, frame_skip=1, clip_reward=False)
        env.seed(0)
        env.reset()
        env.ale = CountingScore(env.ale)
        scores.append(sum(float(env.step(0).env_info.game_score) for _ in range(20)))
    assert scores == [22, 20]


class CountingScore:
    """An emulator whose every frame scores 1."""

    def __init__(self, ale):
        self._ale = ale

    def act(self, action):
        self._ale.act(action)
        return 1

    def __getattr__(self, name):
        return getattr(self._ale, name)


# ---------------------------------------------------------------------------------------------------------------------
# gym
# ---------------------------------------------------------------------------------------------------------------------
def classic_gym(**makers):
    """A module like classic gym, with environments registered by these names."""
    module = types.ModuleType("gym")

    def spec(id):
        if id not in makers:
            raise LookupError(f"No registered env with id: {id}")

    module.spec, module.make = spec, lambda id, **kwargs: makers[id](**kwargs)
    return module


def test_an_environment_registered_with_classic_gym_is_made_by_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", classic_gym(**{"Walk-v7": ClassicGymEnv}))
    for env in (make("Walk-v7"), make(id="Walk-v7")):
        assert isinstance(env.env, ClassicGymEnv)
        env.reset()
        assert env.step(env.action_space.sample()).env_info._fields == ("position", "timeout")


def test_what_both_know_is_made_by_gymnasium(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", classic_gym(**{"CartPole-v1": ClassicGymEnv}))
    assert isinstance(make("CartPole-v1").env, gymnasium.Env)


def test_what_neither_knows_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", classic_gym())
    with pytest.raises(gymnasium.error.NameNotFound, match="Walk.*Classic gym, which is imported, does not know it either"):
        make("Walk-v7")
    monkeypatch.delitem(sys.modules, "gym")
    with pytest.raises(gymnasium.error.NameNotFound, match="Qzxj.*For classic gym, import gym too"):
        make(id="Qzxj-v7")  # Gymnasium proposes no other name.


def test_the_wrapper_for_time_limits_is_found_where_programs_import_it():
    from rlpyt.envs.gym import TimeLimit

    env = make("CartPole-v1")
    assert TimeLimit is gymnasium.wrappers.TimeLimit and isinstance(env.env, TimeLimit)
    with pytest.raises(AttributeError, match="no attribute 'TimeLimits'"):
        _ = rlpyt.envs.gym.TimeLimits
