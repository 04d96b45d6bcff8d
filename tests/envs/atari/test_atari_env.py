import multiprocessing as mp
import subprocess
import sys

import ale_py
import cv2
import numpy as np
import pytest
from tiers import full, processes, start_methods, thinned

from rlpyt.envs.atari import atari_env
from rlpyt.envs.atari.atari_env import ACTION_INDEX, ACTION_MEANING, AtariEnv, AtariTrajInfo, EnvInfo
from rlpyt.envs.base import EnvStep, fast_reset, fast_step
from rlpyt.envs.contract import check_env


@pytest.mark.parametrize(
    "kwargs, n_steps",
    [
        (dict(game="pong", horizon=40), 100),
        pytest.param(dict(game="breakout", repeat_action_probability=0.25, fire_on_reset=True), 150, marks=full),
        (dict(game="breakout", frame_shape=(84, 84), num_img_obs=2, frame_skip=3, episodic_lives=False, clip_reward=False), 150),
    ],
)
def test_the_contract_is_kept(kwargs, n_steps):
    check_env(AtariEnv, kwargs, n_steps=n_steps)


# ---------------------------------------------------------------------------------------------------------------------
# Pixels, against the emulator played by hand
# ---------------------------------------------------------------------------------------------------------------------
def mean_of_squares(screen):
    """Rounded means of 2x2 squares of the screen without its first and last row, one by one."""
    cropped = screen[1:-1].astype(int)
    frame = np.zeros((104, 80), np.uint8)
    for y in range(104):
        for x in range(80):
            frame[y, x] = (cropped[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].sum() + 2) // 4
    return frame


def resized(screen):
    return cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA)


class Oracle:
    """The rules of AtariEnv without a shortcut; plays no random no-ops."""

    def __init__(self, game, to_frame, frame_shape, episodic_lives=True, frame_skip=4, num_img_obs=4):
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(ale_py.roms.get_rom_path(game))
        self.to_frame, self.episodic_lives, self.frame_skip = to_frame, episodic_lives, frame_skip
        self.black = [np.zeros(frame_shape, np.uint8)] * num_img_obs

    def reset(self):
        self.ale.reset_game()
        self.ale.act(0)
        self.lives = self.ale.lives()
        self.frames = self.black[1:] + [self.to_frame(self.ale.getScreenGrayscale())]
        return np.stack(self.frames)

    def step(self, action):
        action = self.ale.getMinimalActionSet()[action]
        score, screens = 0, [None, self.ale.getScreenGrayscale()]
        for _ in range(self.frame_skip):
            score += self.ale.act(action)
            screens = [screens[1], self.ale.getScreenGrayscale()]
        lost_life = self.lives > self.ale.lives() > 0
        if lost_life:
            score += self.ale.act(0)
            screens[1] = self.ale.getScreenGrayscale()
            if self.episodic_lives:
                self.frames = self.black
                screens[0] = np.zeros_like(screens[1])
        self.lives = self.ale.lives()
        self.frames = self.frames[1:] + [self.to_frame(np.maximum(*screens))]
        game_over = self.ale.game_over()
        return np.stack(self.frames), score, game_over or (lost_life and self.episodic_lives), game_over


@pytest.mark.parametrize("episodic_lives", thinned([True, False], quick=[True]))
@pytest.mark.parametrize(
    "game, shape, frame_skip",
    thinned(
        [("breakout", (84, 84), 4), ("seaquest", (84, 84), 1), ("pong", (104, 80), 4)],
        quick=[("breakout", (84, 84), 4), ("pong", (104, 80), 4)],
    ),
)
def test_pixels_scores_and_episode_ends_are_those_of_the_emulator_played_by_hand(game, shape, frame_skip, episodic_lives):
    kwargs = dict(frame_skip=frame_skip, episodic_lives=episodic_lives)
    env = AtariEnv(game, frame_shape=shape, max_start_noops=0, clip_reward=False, **kwargs)
    oracle = Oracle(game, resized if shape == (84, 84) else mean_of_squares, shape, **kwargs)
    rng = np.random.default_rng(0)
    assert np.array_equal(env.reset(), oracle.reset())
    n_steps, n_done, n_over = (30 if game == "pong" else 400), 0, 0
    for _ in range(n_steps):
        action = rng.integers(env.action_space.n)
        observation, score, done, game_over = oracle.step(action)
        step = env.step(action)
        assert np.array_equal(step.observation, observation)
        assert (step.reward, step.done, step.env_info.traj_done) == (score, done, game_over)
        assert step.env_info.game_score == score and not step.env_info.timeout
        n_done, n_over = n_done + done, n_over + game_over
        if game_over:
            assert np.array_equal(env.reset(), oracle.reset())
    if game == "breakout":
        assert n_over > 0
        assert (n_done > n_over) == episodic_lives


def test_the_default_reduction_is_exactly_opencvs_area_and_bilinear_interpolation():
    env = AtariEnv("pong")
    rng = np.random.default_rng(0)

    class Noise:
        def getScreenGrayscale(self, out):
            out[:] = self.screen

    env.ale = Noise()
    for _ in range(20):
        env.ale.screen = rng.integers(0, 256, (210, 160), dtype=np.uint8)
        env._raw_frame_1[:] = before = rng.integers(0, 256, (210, 160), dtype=np.uint8)
        env._update_obs()
        cropped = np.maximum(before, env.ale.screen)[1:-1]
        newest = env.get_obs()[-1]
        assert np.array_equal(newest, cv2.resize(cropped, (80, 104), interpolation=cv2.INTER_AREA))
        assert np.array_equal(newest, cv2.resize(cropped, (80, 104), interpolation=cv2.INTER_LINEAR))
        assert np.array_equal(newest, mean_of_squares(np.maximum(before, env.ale.screen)))


def test_frames_go_from_oldest_to_newest_and_unseen_ones_are_black():
    env = AtariEnv("pong", max_start_noops=0)
    first = env.reset()
    assert not first[:3].any() and first[3].any()
    second = env.step(0).observation
    assert not second[:2].any() and np.array_equal(second[2], first[3])
    third = env.step(0).observation
    assert np.array_equal(third[1:3], second[2:4])


@pytest.mark.parametrize("shape", [(104, 80), (84, 84), (42, 42)])
def test_screens_of_other_heights_are_reduced_to_the_frame_shape(shape):
    env = AtariEnv("mr_do", frame_shape=shape)
    assert env.ale.getScreenDims() == (250, 160)
    assert env.reset().shape == (4, *shape) == env.observation_space.shape == env.step(0).observation.shape


# ---------------------------------------------------------------------------------------------------------------------
# Interface
# ---------------------------------------------------------------------------------------------------------------------
def test_observations_returned_are_not_overwritten_later():
    env = AtariEnv("pong")
    env.seed(0)
    kept = [env.reset()] + [env.step(2).observation for _ in range(6)]
    copies = [observation.copy() for observation in kept]
    env.reset()
    for _ in range(6):
        env.step(3)
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies))


def test_the_frame_stack_does_not_depend_on_what_happens_to_the_rows_it_was_written_to():
    env, twin = AtariEnv("pong"), AtariEnv("pong")
    env.seed(0), twin.seed(0)
    out = np.zeros((4, 104, 80), np.uint8)
    fast_reset(env)(out)
    assert np.array_equal(out, twin.reset())
    for action in (2, 3, 2, 2):
        out[:] = 77
        fast_step(env)(action, out)
        assert np.array_equal(out, twin.step(action).observation)


def test_overriding_get_obs_takes_effect_everywhere():
    class Inverted(AtariEnv):
        def get_obs(self):
            return 255 - super().get_obs()

    env = Inverted("pong", max_start_noops=0)
    out = np.zeros((4, 104, 80), np.uint8)
    fast_reset(env)(out)
    assert (out[0] == 255).all() and (env.reset()[0] == 255).all()
    fast_step(env)(0, out)
    assert (out[0] == 255).all() and (env.step(0).observation[0] == 255).all()


def test_rewards_are_clipped_to_the_sign_and_the_score_is_not():
    env = AtariEnv("seaquest", clip_reward=True)
    env.seed(0)
    env.reset()
    rng = np.random.default_rng(0)
    steps = [env.step(rng.integers(env.action_space.n)) for _ in range(200)]
    scores = np.array([step.env_info.game_score for step in steps])
    assert scores.max() > 1 and scores.dtype == np.float32
    assert [step.reward for step in steps] == np.sign(scores).tolist()
    assert all(type(step.reward) is float and type(step.done) is bool for step in steps)
    assert isinstance(steps[0], EnvStep) and isinstance(steps[0].env_info, EnvInfo)


def play_until(env, condition, actions):
    """Return the number of the first step whose EnvStep satisfies the condition, and that EnvStep."""
    env.seed(0)
    env.reset()
    for t, action in enumerate(actions, start=1):
        step = env.step(action)
        if condition(step):
            return t, step


ACTIONS = np.random.default_rng(1).integers(4, size=2000)


def test_a_game_times_out_after_exactly_horizon_steps():
    env = AtariEnv("pong", horizon=7)
    assert env.horizon == 7 and env.truncates_only_at_horizon
    env.seed(0)
    for _ in range(2):
        env.reset()
        steps = [env.step(0) for _ in range(7)]
        assert [step.done for step in steps] == [False] * 6 + [True]
        assert [step.env_info.traj_done for step in steps] == [False] * 6 + [True]
        assert [step.env_info.timeout for step in steps] == [False] * 6 + [True]


def test_game_over_at_the_horizon_is_no_timeout():
    t_over, _ = play_until(AtariEnv("breakout"), lambda step: step.env_info.traj_done, ACTIONS)
    t, step = play_until(AtariEnv("breakout", horizon=t_over), lambda step: step.env_info.traj_done, ACTIONS)
    assert t == t_over and step.done and not step.env_info.timeout
    t, step = play_until(AtariEnv("breakout", horizon=t_over - 1), lambda step: step.env_info.traj_done, ACTIONS)
    assert t == t_over - 1 and step.done and step.env_info.timeout


def test_a_lost_life_is_done_but_not_the_end_of_the_game_and_no_timeout():
    t_life, step = play_until(AtariEnv("breakout"), lambda step: step.done, ACTIONS)
    assert not step.env_info.traj_done and not step.env_info.timeout
    _, step = play_until(AtariEnv("breakout", horizon=t_life), lambda step: step.done, ACTIONS)
    assert step.env_info.traj_done and not step.env_info.timeout  # the life is over for the agent, and so is the time
    t, step = play_until(AtariEnv("breakout", horizon=t_life, episodic_lives=False), lambda step: step.done, ACTIONS)
    assert t == t_life and step.env_info.traj_done and step.env_info.timeout


@pytest.mark.parametrize("repeat_action_probability", thinned([0.0, 0.25], quick=[0.25]))
def test_equal_seeds_give_equal_games_whatever_was_played_before(repeat_action_probability):
    def play(env, seed):
        env.seed(seed)
        frames = [env.reset()[-1]]
        for action in ACTIONS[:60]:
            step = env.step(action)
            frames.append(env.reset()[-1] if step.env_info.traj_done else step.observation[-1])
        return np.stack(frames)

    kwargs = dict(game="demon_attack", repeat_action_probability=repeat_action_probability, horizon=50)
    one, two = AtariEnv(**kwargs), AtariEnv(**kwargs)
    first = play(one, 1)
    assert np.array_equal(first, play(two, 1))
    assert not np.array_equal(first, play(two, 2))
    assert np.array_equal(first, play(two, 1))


def test_sticky_actions_repeat_the_action_before():
    def frames(p):
        env = AtariEnv("pong", repeat_action_probability=p, max_start_noops=0)
        env.seed(0)
        env.reset()
        return np.stack([env.step(2 + t % 2).observation[-1] for t in range(30)])

    assert not np.array_equal(frames(0.0), frames(0.25))
    assert np.array_equal(frames(1.0), np.stack([frames_of_noops(30)]).reshape(30, 104, 80))


def frames_of_noops(n):
    env = AtariEnv("pong", max_start_noops=0)
    env.seed(0)
    env.reset()
    return [env.step(0).observation[-1] for _ in range(n)]


def test_unseeded_environments_follow_numpys_global_state():
    def first_observation():
        np.random.seed(5)
        return AtariEnv("breakout").reset()

    assert np.array_equal(first_observation(), first_observation())


class RecordingAle:
    """Passes everything on to the emulator and keeps the actions."""

    def __init__(self, ale):
        self.ale, self.actions = ale, []

    def act(self, action):
        self.actions.append(getattr(action, "value", action))
        return self.ale.act(action)

    def __getattr__(self, name):
        return getattr(self.ale, name)


def test_a_game_starts_with_one_noop_and_up_to_max_start_noops_more():
    env = AtariEnv("pong", max_start_noops=3)
    env.ale = RecordingAle(env.ale)
    counts = set()
    for seed in range(40):
        env.seed(seed)
        env.reset()
        assert set(env.ale.actions) == {0}
        counts.add(len(env.ale.actions))
        env.ale.actions.clear()
    assert counts == {1, 2, 3, 4}


def test_fire_and_up_are_pressed_at_the_start_of_games_that_have_them():
    for game, expected in (("breakout", [1]), ("seaquest", [1, 2]), ("freeway", [2])):
        env = AtariEnv(game, fire_on_reset=True, max_start_noops=0)
        env.ale = RecordingAle(env.ale)
        env.reset()
        assert env.ale.actions == [0, *expected]


def test_actions_are_indexes_into_the_minimal_action_set():
    env = AtariEnv("breakout")
    assert env.get_action_meanings() == ["NOOP", "FIRE", "RIGHT", "LEFT"]
    assert env.action_space.n == 4 and env.action_space.dtype == np.int32
    env.ale = RecordingAle(env.ale)
    env.step(np.int64(3))
    assert env.ale.actions == [ACTION_INDEX["LEFT"]] * 4


def test_names_of_actions_are_those_of_the_emulator():
    assert {action.value: action.name for action in ale_py.Action} == ACTION_MEANING
    assert all(ACTION_MEANING[index] == meaning for meaning, index in ACTION_INDEX.items())


def test_constructor_arguments_can_be_read_back():
    kwargs = dict(
        game="breakout",
        frame_skip=2,
        num_img_obs=3,
        clip_reward=False,
        episodic_lives=False,
        max_start_noops=5,
        repeat_action_probability=0.1,
        horizon=99,
        frame_shape=(84, 84),
    )
    env = AtariEnv(**kwargs)
    assert {name: getattr(env, name) for name in kwargs} == kwargs
    assert env.observation_space.contains(np.full((3, 84, 84), 255, np.uint8)) and env.observation_space.dtype == np.uint8


@pytest.mark.parametrize(
    "game",
    thinned(
        ["SpaceInvaders", "ALE/SpaceInvaders-v5", "SpaceInvadersNoFrameskip-v4", "spaceinvaders"],
        quick=["ALE/SpaceInvaders-v5", "SpaceInvadersNoFrameskip-v4"],
    ),
)
def test_a_game_may_be_written_as_in_gymnasium(game):
    assert AtariEnv(game)._rom == AtariEnv("space_invaders")._rom


def test_a_misspelt_game_gives_the_nearest_names():
    with pytest.raises(ValueError, match="no Atari game called 'pnog'. Did you mean 'pong'"):
        AtariEnv("pnog")
    with pytest.raises(ValueError, match="cannot be played"):
        AtariEnv("joust")
    with pytest.raises(ValueError, match="must be at least 1"):
        AtariEnv(frame_skip=0)


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ValueError, match="repeat_action_probability=.* must be a probability, from 0 to 1"):
        AtariEnv(repeat_action_probability=p)


def test_a_negative_number_of_noops_is_refused():
    with pytest.raises(ValueError, match="max_start_noops=-1 must be at least 0"):
        AtariEnv(max_start_noops=-1)


@pytest.mark.parametrize("shape", [(84,), (84, 84, 1), (0, 84), (84.5, 84), 84, None, "ab"])
def test_a_frame_shape_of_anything_but_height_and_width_is_refused(shape):
    with pytest.raises(ValueError, match="frame_shape=.* must be .height, width., two whole numbers"):
        AtariEnv(frame_shape=shape)


def test_spaces_noops_and_emulator_are_seeded_with_different_numbers(monkeypatch):
    seeds = []
    default_rng = np.random.default_rng
    env = AtariEnv("pong", repeat_action_probability=0.25)
    for space in env.spaces:
        monkeypatch.setattr(space, "seed", seeds.append)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: (seeds.append(int(seed)), default_rng(seed))[1])
    env.seed(5)
    seeds.append(env._ale_seed)
    assert len(seeds) == 4 and len({seed >> shift for seed in seeds for shift in (0, 1)}) == 8


def test_what_the_noop_after_a_lost_life_scores_is_counted():
    class LosesALife(RecordingAle):
        """A game in which the action before last costs a life, and the no-op which follows scores 7."""

        lives_left = 3

        def act(self, action):
            score = 7 if self.lives_left == 2 and len(self.actions) == 4 else 1
            super().act(action)
            self.lives_left = 2 if len(self.actions) >= 3 else 3
            return score

        def lives(self):
            return self.lives_left

    for clip_reward, reward in ((False, 11.0), (True, 1.0)):
        env = AtariEnv("breakout", clip_reward=clip_reward)
        env.ale, env._lives = LosesALife(env.ale), 3
        step = env.step(2)
        assert len(env.ale.actions) == 5 and env.ale.actions[-1] == 0
        assert step.done and step.env_info.game_score == 11 and step.reward == reward


def test_rendering_shows_the_newest_frame_or_all(monkeypatch):
    shown = []
    monkeypatch.setattr(cv2, "imshow", lambda title, image: shown.append((title, image.shape)))
    monkeypatch.setattr(cv2, "waitKey", lambda wait: shown.append(wait))
    env = AtariEnv("pong")
    env.render()
    env.render(wait=0, show_full_obs=True)
    assert shown == [("pong", (104, 80)), 10, ("pong", (104, 320)), 0]

    def no_window(title, image):
        raise cv2.error("not implemented")

    monkeypatch.setattr(cv2, "imshow", no_window)
    with pytest.raises(RuntimeError, match="pip install opencv-python"):
        env.render()


def test_the_traj_info_sums_the_raw_score():
    info = AtariTrajInfo()
    assert info.GameScore == 0
    for score in (3.0, 4.0):
        info.step(None, 0, 1.0, False, None, EnvInfo(np.float32(score), False, False))
    assert info.GameScore == 7.0 and info.Return == 2.0
    assert {"GameScore", "Return", "Length"} <= set(info.terminate(None))


# ---------------------------------------------------------------------------------------------------------------------
# Processes
# ---------------------------------------------------------------------------------------------------------------------
def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@processes
def test_nothing_is_printed_and_neither_torch_nor_numba_is_imported():
    done = run_python(
        "import sys; from rlpyt.envs.atari.atari_env import AtariEnv; AtariEnv('pong').reset(); "
        "assert not {'torch', 'numba'} & set(sys.modules)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@processes
@pytest.mark.parametrize("missing", ["ale_py", "cv2"])
def test_a_missing_dependency_names_the_install_command(missing):
    done = run_python(f"import sys; sys.modules[{missing!r}] = None; import rlpyt.envs.atari.atari_env")
    assert f"ImportError: Atari environments need packages that are not installed ({missing})." in done.stderr
    assert 'pip install -c constraints.txt -e ".[atari]"' in done.stderr


@pytest.mark.parametrize("method", start_methods("fork", "spawn"))
def test_environments_work_in_child_processes_though_opencv_used_threads_before(method):
    image = np.random.default_rng(0).integers(0, 256, (2000, 2000), dtype=np.uint8)
    cv2.setNumThreads(2)
    cv2.resize(image, (999, 999), interpolation=cv2.INTER_AREA)
    cv2.setNumThreads(0)  # what importing the module does
    args = (AtariEnv, dict(game="pong", frame_shape=(84, 84)), 5)
    process = mp.get_context(method).Process(target=check_env, args=args, daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@processes
def test_importing_the_module_switches_opencvs_threads_off():
    done = run_python("import cv2; cv2.setNumThreads(4); import rlpyt.envs.atari.atari_env; print(cv2.getNumThreads())")
    assert done.stdout.strip() in ("0", "1")


def test_the_default_frame_is_80_wide_and_104_high():
    assert (atari_env.W, atari_env.H) == (80, 104)
    assert AtariEnv().observation_space.shape == (4, 104, 80)
