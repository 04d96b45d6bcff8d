"""Speed of AtariEnv as a fraction of the bare emulator loop it cannot do without.

The bare loop plays a game with random actions: four frames, the last two screens in gray, their maximum, resized into a buffer. Every
round times the bare loop and the environment's two interfaces one after the other, in alternating order; printed are medians over rounds of
the ratio (steps per second of the environment) / (steps per second of the bare loop).

Run: python tests/benchmarks/bench_atari_env.py [--game pong] [--rounds 9] [--steps 1500]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import ale_py
import cv2
import numpy as np

from rlpyt.envs.atari.atari_env import AtariEnv

GOAL = 0.95  # of the bare loop, by step_into


def bare_loop(game: str, frame_shape: tuple[int, int]) -> Callable[[np.ndarray], None]:
    """Return a function that plays one step for each of the action indexes it is given."""
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    action_set = ale.getMinimalActionSet()
    before, screen = np.zeros((2, *ale.getScreenDims()), dtype=np.uint8)
    frame = np.zeros(frame_shape, dtype=np.uint8)
    seen = screen[1:-1] if frame_shape == (104, 80) else screen

    def play(actions: np.ndarray) -> None:
        for action in actions:
            a = action_set[action]
            ale.act(a)
            ale.act(a)
            ale.act(a)
            ale.getScreenGrayscale(before)
            ale.act(a)
            ale.getScreenGrayscale(screen)
            np.maximum(screen, before, out=screen)
            cv2.resize(seen, frame_shape[::-1], dst=frame, interpolation=cv2.INTER_AREA)
            if ale.game_over():
                ale.reset_game()

    return play


def env_loops(env: AtariEnv) -> dict[str, Callable[[np.ndarray], None]]:
    """Return the same for `step` and `step_into`."""
    batch = np.zeros((2, *env.observation_space.shape), dtype=np.uint8)

    def play_step(actions: np.ndarray) -> None:
        for action in actions:
            observation, reward, done, env_info = env.step(action)
            if env_info.traj_done:
                env.reset()

    def play_step_into(actions: np.ndarray) -> None:
        out = batch[1]
        for action in actions:
            reward, done, env_info = env.step_into(action, out)
            if env_info.traj_done:
                env.reset_into(out)

    return {"step": play_step, "step_into": play_step_into}


def ratios(game: str, frame_shape: tuple[int, int], rounds: int, steps: int) -> dict[str, float]:
    """Return the median ratio to the bare loop of each way to step, and the bare loop's steps per second."""
    env = AtariEnv(game, frame_shape=frame_shape, max_start_noops=0)
    loops = {"bare": bare_loop(game, frame_shape), **env_loops(env)}
    actions = np.random.default_rng(0).integers(env.action_space.n, size=steps)
    for play in loops.values():
        play(actions[: steps // 10])
    seconds = {name: [] for name in loops}
    for i in range(rounds):
        for name in list(loops)[:: 1 if i % 2 == 0 else -1]:
            start = time.perf_counter()
            loops[name](actions)
            seconds[name].append(time.perf_counter() - start)
    result = {name: median(bare / own for bare, own in zip(seconds["bare"], seconds[name])) for name in ("step", "step_into")}
    return {"bare steps/s": steps / median(seconds["bare"]), **result}


def main(game: str = "pong", rounds: int = 9, steps: int = 1500) -> dict[str, dict[str, float]]:
    """Print and return the ratios for both frame shapes."""
    results = {}
    for frame_shape in ((104, 80), (84, 84)):
        result = results[str(frame_shape)] = ratios(game, frame_shape, rounds, steps)
        print(
            f"{game} {frame_shape}: bare {result['bare steps/s']:.0f} steps/s, step {result['step']:.3f}, "
            f"step_into {result['step_into']:.3f} (goal >= {GOAL}), medians over {rounds} rounds"
        )
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--game", default="pong")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1500, help="environment steps per loop and round")
    main(**vars(parser.parse_args()))
