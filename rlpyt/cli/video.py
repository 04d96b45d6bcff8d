"""Make a video of episodes played by the agent of a snapshot.

The agent is in evaluation mode, in an evaluation environment of the run. The frames are the results of
env.render() with render_mode="rgb_array"; for Atari games, the emulator's screen at every step of the
agent. A GIF needs Pillow. An MP4 needs imageio-ffmpeg (H.264) or OpenCV (MPEG-4, which browsers do not
play). The extra "video" installs Pillow and imageio-ffmpeg.
Classes of the run come from rlpyt, torch, gymnasium and files below the current directory; see --trust.

examples:
  rlpyt video data/local/20260101/120000/atari_dqn/run_0 --episodes 2 --out pong.mp4
  rlpyt video data/local/20260101/120000/halfcheetah_sac/run_0 --env camera_name=track
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlpyt.cli import playing
from rlpyt.utils.extras import extra_with, import_error
from rlpyt.utils.text import printable, show

DEFAULT_FPS = 30
ATARI_FPS = 60  # of the emulator
SMALLEST_HEIGHT = 400  # pixels; smaller pictures are enlarged, by whole factors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    playing.add_arguments(parser, n_episodes=1)
    parser.add_argument("--out", default="video.mp4", help="file .mp4 or .gif; default: video.mp4")
    parser.add_argument("--fps", type=float, help="frames per second; default: real time, as given by the environment")
    parser.add_argument("--scale", type=playing.at_least_1, help="enlarge frames by this factor; default: to 400 pixels of height or more")


def run(args: argparse.Namespace) -> int:
    """Play, and write the video."""
    path = Path(args.out)
    Writer = writer_class(path)
    if args.fps is not None and not args.fps > 0:
        raise ValueError(f"--fps {args.fps} must be more than 0.")
    opened = playing.open_run(args)
    from rlpyt.envs.multitask import without_task
    from rlpyt.samplers.base import entry
    from rlpyt.utils.quick_args import takes

    EnvCls = opened.sampler.eval_EnvCls
    env_kwargs = playing.env_settings(args.env, EnvCls)
    if takes(without_task(entry(EnvCls, 0)), "render_mode"):
        env_kwargs.setdefault("render_mode", "rgb_array")
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("MUJOCO_GL", "egl")  # The default needs a screen.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame complains without one, although it needs none.
    video = Video(path, Writer, args.fps, args.scale)
    try:
        played = playing.play(
            opened,
            args.episodes,
            seed=args.seed,
            cuda_idx=args.cuda_idx,
            max_steps=args.max_steps,
            env_kwargs=env_kwargs,
            wrap=lambda env: FilmedEnv(env, video),
        )
        if video.n_frames == 0:  # Ctrl-C came before the first one.
            raise KeyboardInterrupt
        video.finish()
    finally:
        video.discard()
    returns = ", ".join(f"{info['Return']:g}" for info in played.traj_infos) or "no episode came to an end"
    show(f"{printable(path)}: {video.n_frames} frames, {video.seconds:.1f} s; returns: {returns}")
    why_fewer = played.why_fewer()
    if why_fewer is not None:
        show(why_fewer)
    return 0


class FilmedEnv:
    """Wraps an environment, and films its picture at every reset and step."""

    def __init__(self, env: Any, video: Video) -> None:
        self._env, self._video = env, video

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self) -> Any:
        """Reset the environment, and film."""
        observation = self._env.reset()
        self._video.add(self._env)
        return observation

    def step(self, action: Any) -> Any:
        """Step the environment, and film."""
        outcome = self._env.step(action)
        self._video.add(self._env)
        return outcome


def frame_of(env: Any) -> Any:
    """Return the picture of an environment, uint8 [height,width,3].

    Raises:
        ImportError: rendering needs a package that is not installed.
        ValueError: the environment renders nothing, or no such picture.
    """
    import numpy as np

    from rlpyt.envs.base import CompletedEnv

    completed = CompletedEnv(env)
    if completed.ale is not None:
        return completed.ale.getScreenRGB()
    render = completed.render
    if render is None:
        raise ValueError(f"{_name(env)} has no render(), so there is nothing to film.")
    try:
        frame = render()
    except Exception as error:
        if type(error).__name__ == "DependencyNotInstalled":  # gymnasium's error; its message says what to install
            cause = error.__cause__
            extra = extra_with(cause.name) if isinstance(cause, ImportError) else None
            if cause is not None and extra is not None:
                raise import_error(f"Rendering {_name(env)} needs", extra, cause) from error
            raise ImportError(f"Rendering {_name(env)} needs more packages: {error}") from error
        if type(error).__module__.partition(".")[0] in ("mujoco", "glfw", "OpenGL"):
            raise ValueError(
                f"{_name(env)} could not be rendered: {error}. Without a screen, MuJoCo needs EGL or OSMesa. Install libegl1 or libosmesa6 "
                "and set the environment variable MUJOCO_GL to egl or osmesa."
            ) from error
        raise
    if isinstance(frame, (list, tuple)) and frame:  # render modes that collect frames
        frame = frame[-1]
    frame = np.asarray(frame)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3:
        raise ValueError(
            f"render() of {_name(env)} must return a picture, an array of uint8 [height,width,3], not {frame.dtype} {list(frame.shape)}: "
            'the function that makes the environment must take render_mode="rgb_array", and pass it on.'
        )
    return frame


def frames_per_second(env: Any) -> float:
    """Return the number of steps in a second of an environment's simulated time."""
    from rlpyt.envs.base import CompletedEnv

    completed = CompletedEnv(env)
    if completed.ale is not None:
        return ATARI_FPS / completed.frame_skip
    return (completed.metadata or {}).get("render_fps") or DEFAULT_FPS


def _name(env: Any) -> str:
    from rlpyt.envs.base import CompletedEnv

    return str(CompletedEnv(env).env or type(env).__name__)


class Video:
    """A video file, written frame by frame; it appears under its name when it is complete.

    Args:
        path: path of the file.
        Writer: class of the writer, called with ``(path, fps)``; its objects have ``add(frame)`` and ``close()``.
        fps: frames per second; None for the rate of the environment.
        scale: factor by which frames are enlarged; None makes them at least SMALLEST_HEIGHT high.

    Attributes:
        n_frames: number of frames so far.
    """

    def __init__(self, path: Path, Writer: type, fps: float | None, scale: int | None) -> None:
        self.path, self.Writer, self.fps, self.scale = path, Writer, fps, scale
        self.n_frames = 0
        self._writer: Any = None
        self._size: tuple[int, ...] = ()  # Height and width of the pictures.
        self._unfinished = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")

    @property
    def seconds(self) -> float:
        """Duration of the frames so far."""
        return self.n_frames / self.fps if self.fps else 0.0

    def add(self, env: Any) -> None:
        """Append the picture of an environment; ValueError if it has another size than those before."""
        import numpy as np

        frame = frame_of(env)
        if self._writer is None:
            self._size = frame.shape[:2]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.fps = self.fps or frames_per_second(env)
            self.scale = self.scale or -(-SMALLEST_HEIGHT // frame.shape[0])
            self._writer = self.Writer(self._unfinished, self.fps)
        if frame.shape[:2] != self._size:
            (height, width), (new_height, new_width) = self._size, frame.shape[:2]
            raise ValueError(
                f"The picture of {_name(env)} is {new_width} x {new_height} pixels after {self.n_frames} frames of {width} x {height}: "
                "a video has frames of one size. Let render() return pictures of the same size in all steps."
            )
        frame = frame.repeat(self.scale, axis=0).repeat(self.scale, axis=1)
        height, width, _ = frame.shape
        self._writer.add(np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))  # Codecs need even sizes.
        self.n_frames += 1

    def finish(self) -> None:
        """Complete the file."""
        writer, self._writer = self._writer, None
        writer.close()
        os.replace(self._unfinished, self.path)

    def discard(self) -> None:
        """Remove an unfinished file, if any."""
        writer, self._writer = self._writer, None
        with suppress(Exception):
            writer and writer.close()
        with suppress(OSError):
            self._unfinished.unlink()


def writer_class(path: Path) -> type:
    """Return the class of the writer for the extension of a file.

    Raises:
        ValueError: the extension is neither .mp4 nor .gif.
        ImportError: no package that can write the file is installed.
    """
    if path.suffix not in (".mp4", ".gif"):
        raise ValueError(f"--out {path} must end with .mp4 or .gif.")
    for Writer in (GifWriter,) if path.suffix == ".gif" else (H264Writer, OpenCvWriter):
        try:
            Writer.check()
            return Writer
        except ImportError as error:
            reason = error
    raise import_error(f"Writing {path.suffix} needs", "video", reason)


class GifWriter:
    """Writes GIFs with Pillow. Times in GIFs are multiples of 10 ms, and viewers show no more than 50 frames per second."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path, self.milliseconds = path, max(round(100 / fps), 2) * 10
        self.images: list[Any] = []

    @staticmethod
    def check() -> None:
        """ImportError if it cannot be used."""
        import PIL.Image  # noqa: F401

    def add(self, frame: Any) -> None:
        """Append a frame."""
        from PIL import Image

        self.images.append(Image.fromarray(frame).quantize(colors=128))  # Quantized frames take a third of the memory.

    def close(self) -> None:
        """Complete the file."""
        first, *others = self.images
        first.save(self.path, format="GIF", save_all=True, append_images=others, duration=self.milliseconds, loop=0)


class H264Writer:
    """Writes MP4s of H.264, which everything plays, with imageio-ffmpeg."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path, self.fps = path, fps
        self.frames: Any = None  # The generator that writes them, from the first frame on.

    @staticmethod
    def check() -> None:
        """ImportError if it cannot be used."""
        import imageio_ffmpeg  # noqa: F401

    def add(self, frame: Any) -> None:
        """Append a frame."""
        import imageio_ffmpeg
        import numpy as np

        if self.frames is None:
            height, width, _ = frame.shape
            self.frames = imageio_ffmpeg.write_frames(str(self.path), (width, height), fps=self.fps, macro_block_size=2)
            self.frames.send(None)
        self.frames.send(np.ascontiguousarray(frame))

    def close(self) -> None:
        """Complete the file."""
        self.frames.close()


class OpenCvWriter:
    """Writes MP4s of MPEG-4 with OpenCV, which comes with the Atari environments."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path, self.fps = path, fps
        self.writer: Any = None  # cv2.VideoWriter, from the first frame on.

    @staticmethod
    def check() -> None:
        """ImportError if it cannot be used."""
        import cv2  # noqa: F401

    def add(self, frame: Any) -> None:
        """Append a frame."""
        import cv2

        if self.writer is None:
            height, width, _ = frame.shape
            self.writer = cv2.VideoWriter(str(self.path), cv2.VideoWriter.fourcc(*"mp4v"), self.fps, (width, height))
            if not self.writer.isOpened():
                raise OSError(f"{self.path} could not be written by OpenCV.")
        self.writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))

    def close(self) -> None:
        """Complete the file."""
        self.writer.release()
