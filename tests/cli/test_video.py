"""rlpyt video."""

from functools import partial

import numpy as np
import pytest
from absent import make_absent
from tiers import full, processes

cv2 = pytest.importorskip("cv2")
Image = pytest.importorskip("PIL.Image")

from rlpyt.cli import video  # noqa: E402

HORIZON = ("env.horizon=12", "eval_env.horizon=12", "algo.replay_ratio=1")


class Camera:
    """An environment that shows the time."""

    metadata = dict(render_fps=20)

    def __init__(self, height=10, width=13):
        self.t, self.shape = 0, (height, width, 3)

    def render(self):
        self.t += 1
        return np.full(self.shape, 10 * self.t, np.uint8)


@pytest.fixture
def without(monkeypatch):
    """``without("cv2")`` lets imports of packages fail."""
    return partial(make_absent, monkeypatch)


def frames_of(path):
    capture, frames = cv2.VideoCapture(str(path)), []
    while True:
        there, frame = capture.read()
        if not there:
            return frames, capture.get(cv2.CAP_PROP_FPS)
        frames.append(frame[:, :, ::-1])


@full
@processes
def test_an_atari_game_becomes_an_mp4_of_the_emulators_screens(trained, tmp_path, rlpyt, without):
    without("imageio_ffmpeg")
    code, out, err = rlpyt("video", trained("atari_dqn", "dqn", *HORIZON), "--episodes", "2", "--out", tmp_path / "a.mp4")
    assert (code, err) == (0, "")
    frames, fps = frames_of(tmp_path / "a.mp4")
    assert len(frames) == 2 * 13 and f"{len(frames)} frames" in out and out.count("returns: ") == 1
    assert fps == 15 and frames[0].shape == (420, 320, 3)
    np.testing.assert_allclose(frames[-1][200, 100], (144, 72, 17), atol=25)  # Pong's ground is brown.
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


@full
def test_and_a_gif(trained, tmp_path, rlpyt):
    run_dir = trained("atari_dqn", "dqn", *HORIZON)
    code, _, err = rlpyt("video", run_dir, "--out", tmp_path / "a.gif", "--scale", "1", "--fps", "25")
    assert (code, err) == (0, "")
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.size == (160, 210) and gif.info["duration"] == 40
        # Pictures that are the same as the one before are shown for longer.
        durations = []
        for i in range(gif.n_frames):
            gif.seek(i)
            durations.append(gif.info["duration"])
        assert sum(durations) == 13 * 40


@processes
@pytest.mark.parametrize("Writer, name", [(video.OpenCvWriter, "a.mp4"), (video.H264Writer, "a.mp4"), (video.GifWriter, "a.gif")])
def test_frames_are_enlarged_to_even_sizes(tmp_path, Writer, name):
    try:
        Writer.check()
    except ImportError as error:
        pytest.skip(f"{error}")
    film, env = video.Video(tmp_path / name, Writer, None, None), Camera(133, 101)
    for _ in range(3):
        film.add(env)
    assert not (tmp_path / name).exists(), "before it is complete"
    film.finish()
    if name.endswith("gif"):
        with Image.open(tmp_path / name) as gif:
            assert gif.size == (404, 532) and gif.info["duration"] == 50
        return
    frames, fps = frames_of(tmp_path / name)
    assert len(frames) == 3 and frames[0].shape == (532, 404, 3) and fps == 20
    for i, frame in enumerate(frames):
        np.testing.assert_allclose(frame.mean(), 10 * (i + 1), atol=5)


def test_a_video_that_fails_leaves_what_was_there(tmp_path):
    (tmp_path / "a.gif").write_bytes(b"precious")
    film = video.Video(tmp_path / "a.gif", video.GifWriter, None, None)
    film.add(Camera())
    film.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["a.gif"] and (tmp_path / "a.gif").read_bytes() == b"precious"


def test_pictures_of_another_size_are_refused(tmp_path):
    film = video.Video(tmp_path / "a.gif", video.GifWriter, None, None)
    film.add(Camera(10, 13))
    film.add(Camera(10, 13))
    with pytest.raises(ValueError, match="The picture of Camera is 13 x 9 pixels after 2 frames of 13 x 10: "):
        film.add(Camera(9, 13))


@pytest.mark.parametrize(
    "frame, message",
    [
        (None, "must return a picture, an array of uint8 .height,width,3., not object"),
        (np.zeros((4, 4), np.uint8), "not uint8 .4, 4."),
        (np.zeros((4, 4, 3)), "not float64"),
    ],
)
def test_what_is_no_picture_is_refused(frame, message):
    camera = Camera()
    camera.render = lambda: frame
    with pytest.raises(ValueError, match=message):
        video.frame_of(camera)
    with pytest.raises(ValueError, match="object has no render.., so there is nothing to film"):
        video.frame_of(object())


def test_render_errors_say_what_to_install():
    class DependencyNotInstalled(Exception):
        pass

    def fail():
        raise DependencyNotInstalled('pygame is not installed, run `pip install "gymnasium[classic-control]"`')

    camera = Camera()
    camera.render = fail
    with pytest.raises(ImportError, match="needs more packages: pygame is not installed"):
        video.frame_of(camera)


def test_missing_packages_are_named_before_anything_is_played(tmp_path, rlpyt, without):
    without("PIL", "imageio_ffmpeg", "cv2")
    for name in ("a.mp4", "a.gif"):
        code, _, err = rlpyt("video", tmp_path / "nowhere", "--out", tmp_path / name)
        assert code == 2 and "Writing .m" in err.replace(".gif", ".mp4") and 'pip install -c constraints.txt -e ".[video]"' in err


def test_other_kinds_of_files_are_refused(tmp_path, rlpyt):
    code, _, err = rlpyt("video", tmp_path, "--out", tmp_path / "a.avi")
    assert code == 2 and "a.avi must end with .mp4 or .gif" in err
    assert "--fps 0.0 must be more than 0" in rlpyt("video", tmp_path, "--fps", "0")[2]


@processes
def test_environments_of_gymnasium_are_made_to_show_frames(trained, tmp_path, rlpyt):
    pytest.importorskip("pygame")
    code, out, err = rlpyt("video", trained("cartpole", "ppo"), "--out", tmp_path / "a.mp4", "--max_steps", "20")
    frames, fps = frames_of(tmp_path / "a.mp4")
    assert code == 0 and fps == 50 and len(frames) <= 21 and frames[0].shape == (400, 600, 3)


@full
@processes
def test_episodes_that_are_cut_are_filmed_up_to_there_and_said(trained, tmp_path, rlpyt):
    run_dir = trained("atari_dqn", "dqn", *HORIZON)
    code, out, _ = rlpyt("video", run_dir, "--out", tmp_path / "a.gif", "--scale", "1", "--episodes", "2", "--max_steps", "5")
    assert code == 0 and f"{2 * 6} frames" in out and "returns: no episode came to an end\n" in out
    assert "Only 0 of 2 episodes came to an end; a larger --max_steps allows longer ones." in out


@full
def test_ctrl_c_before_the_first_frame_ends_the_command(trained, tmp_path, rlpyt, monkeypatch):
    def stopped(env):
        raise KeyboardInterrupt

    monkeypatch.setattr(video, "frame_of", stopped)
    run_dir = trained("atari_dqn", "dqn", *HORIZON)
    code, out, err = rlpyt("video", run_dir, "--out", tmp_path / "a.gif")
    assert (code, out, err) == (130, "", "") and not list(tmp_path.iterdir())


def test_without_what_renders_them_it_is_said(trained, tmp_path, rlpyt, without):
    without("pygame")
    code, _, err = rlpyt("video", trained("cartpole", "ppo"), "--out", tmp_path / "a.gif")
    assert code == 2 and "(pygame)" in err and 'pip install -c constraints.txt -e ".[video]"' in err and not list(tmp_path.iterdir())
