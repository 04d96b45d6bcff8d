"""Atari games on the Arcade Learning Environment (ALE)."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import numpy as np

from rlpyt.utils.extras import import_error

try:
    import ale_py
    import cv2
except ImportError as error:
    raise import_error("Atari environments need", "atari", error) from error

from rlpyt.envs.base import Env, EnvStep
from rlpyt.spaces.composite import child_seeds
from rlpyt.spaces.int_box import IntBox
from rlpyt.types import TrajInfo
from rlpyt.utils.misc import did_you_mean
from rlpyt.utils.plain import check_form, from_plain, shown, to_plain
from rlpyt.utils.settings import is_integer
from rlpyt.utils.structures import dtype_of, shape_of

# Images this small gain nothing from OpenCV's threads, which do not survive a fork. They are switched off at import: in a forked
# worker, switching them off would wait for threads that no longer exist.
cv2.setNumThreads(0)

W, H = (80, 104)  # The default frame: the screen less a row at the top and the bottom, at half the resolution.

EnvInfo = namedtuple("EnvInfo", ["game_score", "traj_done", "timeout"])


class AtariTrajInfo(TrajInfo):
    """Adds the raw score of the game (`Return` sums the rewards, which may be clipped)."""

    env_info_sums = (("GameScore", "game_score"),)


# Attributes that belong to the state, in addition to the emulator.
_STATE = ("_obs", "_raw_frame_1", "_raw_frame_2", "_lives", "_step_counter", "_fresh_start", "_rng", "_ale_seed")


class AtariEnv(Env):
    """An efficient implementation of the classic Atari RL environment.

    The observation is the last `num_img_obs` grayscale frames, oldest to newest, uint8 ``[num_img_obs, *frame_shape]``; conversion to
    float belongs in the model's ``forward()``. Each frame is the pixel-wise maximum of the last two screens of a step (to avoid flicker),
    reduced in one of two ways:

    - to ``(104, 80)``: the 210x160 screen loses its first and last row, and every 2x2 square becomes its mean ``(a + b + c + d + 2) // 4``,
      i.e. rounded to the nearest integer with halves up. This is cheap, and suits convolutions that do not cut off edges.
    - to any other `frame_shape`, as ``(84, 84)`` in much of the literature: the whole screen with area interpolation (``cv2.INTER_AREA``).
      The few games whose screens are not 210 rows high are reduced like this as well.

    At the start of a game, earlier frames are black; if `episodic_lives`, also at the start of a life. After a lost life one no-op starts
    the next life.

    Actions are indexes into the game's minimal action set. ``env_info`` holds:

    - ``game_score`` (float32): raw score gained in the step, without reward clipping.
    - ``traj_done`` (bool): game over or timeout. When only a life is lost, `done` is True, ``traj_done`` is False, and the game continues.
    - ``timeout`` (bool): the step is the `horizon`-th of its game, and neither the game nor (if `episodic_lives`) a life ends with it.

    Subclasses may override the methods that make up a step and a reset: `_get_screen`, `_update_obs`, `_reset_obs`, `_check_life` and
    `_life_reset`. The constructor calls them, too. A subclass adds further changing attributes to `get_state` and `set_state`.

    Args:
        game: name of the game in snake case, as in ``ale_py.roms``; or as in Gymnasium's ids: "space_invaders", "SpaceInvaders" and
            "ALE/SpaceInvaders-v5" are the same game. The version has no effect.
        frame_skip: frames per step (>= 1).
        num_img_obs: number of frames in an observation (>= 1).
        clip_reward: make the reward the sign of the score.
        episodic_lives: let `done` be True when a life is lost.
        fire_on_reset: press FIRE, and then UP, at the start of a game, if the game has these actions.
        max_start_noops: upper limit for the random number of no-op actions at the start of a game.
        repeat_action_probability: probability of sticky actions (0 to 1), in every frame.
        horizon: number of steps after which a game times out.
        frame_shape: ``(height, width)`` of a frame.
    """

    truncates_only_at_horizon = True

    def __init__(
        self,
        game: str = "pong",
        frame_skip: int = 4,
        num_img_obs: int = 4,
        clip_reward: bool = True,
        episodic_lives: bool = True,
        fire_on_reset: bool = False,
        max_start_noops: int = 30,
        repeat_action_probability: float = 0.0,
        horizon: int = 27000,
        frame_shape: tuple[int, int] = (H, W),
    ) -> None:
        if frame_skip < 1 or num_img_obs < 1 or horizon < 1:
            raise ValueError(f"frame_skip={frame_skip}, num_img_obs={num_img_obs} and horizon={horizon} must be at least 1.")
        if max_start_noops < 0:
            raise ValueError(f"max_start_noops={max_start_noops} must be at least 0: it is the largest number of no-ops at a game's start.")
        if not 0 <= repeat_action_probability <= 1:
            raise ValueError(f"repeat_action_probability={repeat_action_probability} must be a probability, from 0 to 1.")
        if not _is_frame_shape(frame_shape):
            raise ValueError(f"frame_shape={frame_shape!r} must be (height, width), two whole numbers of at least 1.")
        self._game = game
        self._frame_skip = frame_skip
        self._num_img_obs = num_img_obs
        self._clip_reward = clip_reward
        self._episodic_lives = episodic_lives
        self._fire_on_reset = fire_on_reset
        self._max_start_noops = max_start_noops
        self._repeat_action_probability = repeat_action_probability
        self._horizon = horizon
        self._frame_shape = tuple(int(size) for size in frame_shape)

        self._rom = _find_rom(game)
        self._start_rng(seed=int(np.random.randint(2**31)))
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", repeat_action_probability)
        self._load_game()
        self._fresh_start = False

        self._action_set = self.ale.getMinimalActionSet()
        self._has_fire = ale_py.Action.FIRE in self._action_set
        self._has_up = ale_py.Action.UP in self._action_set
        self._action_space = IntBox(low=0, high=len(self._action_set))
        self._observation_space = IntBox(0, 256, shape=(num_img_obs, *self._frame_shape), dtype="uint8")

        screen_shape = self.ale.getScreenDims()
        self._raw_frame_1, self._raw_frame_2 = (np.zeros(screen_shape, dtype=np.uint8) for _ in range(2))  # the last two screens
        self._max_frame = self._raw_frame_2  # The same memory: the maximum overwrites the second screen.
        halved = (screen_shape[0] - 2 == 2 * self._frame_shape[0]) and (screen_shape[1] == 2 * self._frame_shape[1])
        self._seen = self._max_frame[1:-1] if halved else self._max_frame  # the part that is reduced to the frame
        self._obs = np.zeros((num_img_obs, *self._frame_shape), dtype=np.uint8)
        self._make_views()
        self._plain_obs = type(self).get_obs is AtariEnv.get_obs
        self._lives = 0
        self._score = 0  # score of the current step
        self._step_counter = 0
        self._begin_game()

    def seed(self, seed: int) -> None:
        """Seed no-ops, sticky actions and spaces; the game after the next `reset` depends only on the seed."""
        super().seed(seed)
        self._start_rng(seed)
        self._fresh_start = True

    def reset(self) -> np.ndarray:
        """Perform a hard reset of the game; return the observation, a new array."""
        self._begin_game()
        return self.get_obs()

    def reset_into(self, observation_out: np.ndarray) -> None:
        """Perform a hard reset of the game and write the observation into `observation_out`."""
        self._begin_game()
        observation_out[...] = self._obs if self._plain_obs else self.get_obs()

    def step(self, action: int) -> EnvStep:
        """Play `frame_skip` frames with `action`; the observation returned is a new array."""
        reward, done, env_info = self._play(action)
        return EnvStep(self.get_obs(), reward, done, env_info)

    def step_into(self, action: int, observation_out: np.ndarray) -> tuple[float, bool, EnvInfo]:
        """Play `frame_skip` frames with `action` and write the observation into `observation_out`."""
        outcome = self._play(action)
        observation_out[...] = self._obs if self._plain_obs else self.get_obs()
        return outcome

    def get_obs(self) -> np.ndarray:
        """Return a copy of the current observation."""
        return self._obs.copy()

    def fire_and_up(self) -> None:
        """Press FIRE and then UP, if the game has these actions."""
        if self._has_fire:
            self.ale.act(ACTION_INDEX["FIRE"])
        if self._has_up:
            self.ale.act(ACTION_INDEX["UP"])

    def _play(self, action: int) -> tuple[float, bool, EnvInfo]:
        ale, a = self.ale, self._action_set[action]
        score = 0
        for _ in range(self._frame_skip - 1):
            score += ale.act(a)
        self._get_screen(1)
        self._score = score + ale.act(a)

        life_over = self._check_life() and self._episodic_lives
        if life_over:
            self._reset_obs()
        self._update_obs()

        self._step_counter += 1
        score = self._score
        game_over = ale.game_over()
        out_of_time = self._step_counter >= self._horizon and not game_over
        reward = float((score > 0) - (score < 0)) if self._clip_reward else float(score)
        env_info = EnvInfo(np.float32(score), game_over or out_of_time, out_of_time and not life_over)
        return reward, game_over or out_of_time or life_over, env_info

    def _begin_game(self) -> None:
        if self._fresh_start:
            self._fresh_start = False
            if self._repeat_action_probability > 0:
                self._load_game()  # The only way to seed sticky actions.
            else:
                self.ale.restoreState(self._start_state)
        ale = self.ale
        ale.reset_game()
        self._reset_obs()
        self._life_reset()
        if ale.game_over():
            ale.reset_game()
        for _ in range(self._rng.integers(self._max_start_noops + 1)):
            ale.act(0)
            if ale.game_over():
                ale.reset_game()
        if self._fire_on_reset:
            self.fire_and_up()
        self._lives = ale.lives()
        self._step_counter = 0
        self._update_obs()

    def _get_screen(self, frame: int = 1) -> None:
        """Write the emulator's screen into `_raw_frame_1`, or into `_raw_frame_2` if `frame` is 2."""
        self.ale.getScreenGrayscale(self._raw_frame_1 if frame == 1 else self._raw_frame_2)

    def _update_obs(self) -> None:
        """Append the newest frame to `_obs`: the maximum of `_raw_frame_1` and the current screen, reduced."""
        self._get_screen(2)
        np.maximum(self._raw_frame_1, self._raw_frame_2, out=self._max_frame)
        if self._obs is not self._viewed:  # An override has replaced it.
            self._make_views()
        self._older[:] = self._newer
        height, width = self._frame_shape
        cv2.resize(self._seen, (width, height), dst=self._newest, interpolation=cv2.INTER_AREA)

    def _reset_obs(self) -> None:
        """Set `_obs` and both screens to black: at the start of a game, and of a life if `episodic_lives`."""
        self._obs.fill(0)
        self._raw_frame_1.fill(0)
        self._raw_frame_2.fill(0)

    def _check_life(self) -> bool:
        """Return whether a life was lost in the step while others are left; if so, call `_life_reset`."""
        lives = self.ale.lives()
        lost_life = 0 < lives < self._lives
        self._lives = lives
        if lost_life:
            self._life_reset()
        return lost_life

    def _life_reset(self) -> None:
        """Start the first or next life with a no-op, and record the number of lives in `_lives`."""
        self._score += self.ale.act(0)
        self._lives = self.ale.lives()

    def _make_views(self) -> None:
        """Make views of `_obs`: all frames but the newest and all but the oldest (both flat, to copy twice as fast), and the newest.

        Raises:
            ValueError: an override has replaced `_obs` by an array of another form.
        """
        obs, shape = self._obs, (self._num_img_obs, *self._frame_shape)
        if not isinstance(obs, np.ndarray) or obs.shape != shape or obs.dtype != np.uint8 or not obs.flags.c_contiguous:
            raise ValueError(
                f"{type(self).__name__} has replaced _obs, but AtariEnv._update_obs writes into a contiguous uint8 array of shape {shape}: "
                "override _update_obs, too, or give AtariEnv the frame_shape and num_img_obs."
            )
        self._viewed = obs
        flat, frame_size = obs.reshape(-1), obs[0].size
        self._older, self._newer, self._newest = flat[:-frame_size], flat[frame_size:], obs[-1]

    def _start_rng(self, seed: int) -> None:
        *_, noop_seed, ale_seed = child_seeds(seed, 4)  # The first two seed the spaces.
        self._rng = np.random.default_rng(noop_seed)
        self._ale_seed = ale_seed >> 1  # ALE takes a non-negative 32-bit integer

    def _load_game(self) -> None:
        self.ale.setInt("random_seed", self._ale_seed)
        self.ale.loadROM(self._rom)
        self._start_state = self.ale.cloneState()

    def get_state(self) -> dict:
        """Return the complete state of game and environment as plain data."""
        return dict(
            ale=self.ale.cloneSystemState().serialize(),
            **{name: to_plain(getattr(self, name)) for name in _STATE},
        )

    def set_state(self, state: dict) -> None:
        """Restore a state that `get_state` returned."""
        check_form(state, dict.fromkeys(("ale", *_STATE), object), "The state of AtariEnv")
        check_form(state["ale"], bytes, "The state of ALE")
        values = {name: from_plain(state[name], name) for name in _STATE}
        for name, value in values.items():
            if _form(value) != _form(getattr(self, name)):
                raise ValueError(f"{name} of the state is {shown(value)}, which has another form than {shown(getattr(self, name))}.")
        try:
            self.ale.restoreSystemState(ale_py.ALEState(state["ale"]))
        except (RuntimeError, SystemError) as error:
            raise ValueError("The state of ALE is damaged: the emulator does not take it.") from error
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                getattr(self, name)[...] = value  # In place, because of views.
            else:
                setattr(self, name, value)

    def render(self, wait: int = 10, show_full_obs: bool = False) -> None:
        """Show the newest frame, or all frames of the observation side by side, in a window.

        Args:
            wait: milliseconds to wait (0: until a key is pressed).
            show_full_obs: show all frames, oldest at the left.
        """
        image = np.concatenate(tuple(self._obs), axis=1) if show_full_obs else self._obs[-1]
        try:
            cv2.imshow(self._game, image)
            cv2.waitKey(wait)
        except cv2.error as error:
            raise RuntimeError(
                "This OpenCV cannot open windows. To use render(), replace it: pip uninstall opencv-python-headless; "
                "pip install opencv-python"
            ) from error

    def get_action_meanings(self) -> list[str]:
        """Return the names of the actions, in the order of their indexes."""
        return [ACTION_MEANING[action.value] for action in self._action_set]

    game = property(attrgetter("_game"), doc="Name of the game.")
    frame_skip = property(attrgetter("_frame_skip"), doc="Frames per step.")
    num_img_obs = property(attrgetter("_num_img_obs"), doc="Number of frames in an observation.")
    clip_reward = property(attrgetter("_clip_reward"), doc="Whether the reward is the sign of the score.")
    max_start_noops = property(attrgetter("_max_start_noops"), doc="Upper limit of no-ops at the start of a game.")
    episodic_lives = property(attrgetter("_episodic_lives"), doc="Whether `done` is True when a life is lost.")
    repeat_action_probability = property(attrgetter("_repeat_action_probability"), doc="Probability of sticky actions.")
    horizon = property(attrgetter("_horizon"), doc="Number of steps after which a game times out.")
    frame_shape = property(attrgetter("_frame_shape"), doc="``(height, width)`` of a frame.")


def _is_frame_shape(shape: Any) -> bool:
    if not isinstance(shape, (tuple, list, np.ndarray)) or len(shape) != 2:
        return False
    return all(is_integer(size, lowest=1) for size in shape)


def _find_rom(game: str) -> Any:
    """Return the path of the game's ROM; ValueError suggests similar names."""
    names = ale_py.roms.get_all_rom_ids()
    if isinstance(game, str) and game not in names:
        game = _snake_case(game, names)
    if game not in names:
        hint = did_you_mean(game, names, otherwise="See ale_py.roms.get_all_rom_ids().")
        raise ValueError(f"There is no Atari game called {game!r}. {hint}")
    rom = ale_py.roms.get_rom_path(game)
    if rom is None or ale_py.ALEInterface.isSupportedROM(rom) is None:
        raise ValueError(f"The game {game!r} is known to ale-py but cannot be played with it (it needs two players).")
    return rom


def _snake_case(game: str, names: Iterable[str]) -> str:
    """Return the entry of `names` for a game in the spelling of Gymnasium's ids; `game` itself if none matches."""
    camel = re.fullmatch(r"(?:ALE/)?([A-Za-z0-9]+?)(?:NoFrameskip|Deterministic)?(?:-v\d+)?", game)
    return next((name for name in names if camel is not None and name.replace("_", "") == camel[1].lower()), game)


ACTION_MEANING = {
    0: "NOOP",
    1: "FIRE",
    2: "UP",
    3: "RIGHT",
    4: "LEFT",
    5: "DOWN",
    6: "UPRIGHT",
    7: "UPLEFT",
    8: "DOWNRIGHT",
    9: "DOWNLEFT",
    10: "UPFIRE",
    11: "RIGHTFIRE",
    12: "LEFTFIRE",
    13: "DOWNFIRE",
    14: "UPRIGHTFIRE",
    15: "UPLEFTFIRE",
    16: "DOWNRIGHTFIRE",
    17: "DOWNLEFTFIRE",
}

ACTION_INDEX = {meaning: index for index, meaning in ACTION_MEANING.items()}


def _form(value: Any) -> tuple:
    """Return the form of an attribute's value: type, shape and dtype."""
    return type(value), shape_of(value), dtype_of(value)
