"""Stable-Baselines3's ``SubprocVecEnv`` for ``bench_vector.py``, in a Python that has that library.

    python sb3_vector.py ID N

Each line of the input is a number of steps to take in N environments; the answer is a line with the steps per second of all together. An
empty line ends the program.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np


def gym_env(gym_id: str) -> Any:
    """Make an environment; Atari games with frame skip 4, 84 times 84 pixels and four frames, as vectors have them."""
    if not gym_id.startswith("ALE/"):
        return gymnasium.make(gym_id)
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.wrappers.AtariPreprocessing(gymnasium.make(gym_id, frameskip=1), noop_max=0)
    return gymnasium.wrappers.FrameStackObservation(env, 4)


def main() -> None:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    gym_id, n = sys.argv[1], int(sys.argv[2])
    vector = SubprocVecEnv([partial(gym_env, gym_id)] * n)
    vector.reset()
    actions = np.ones(n, np.int64)
    while line := sys.stdin.readline().strip():
        n_steps = int(line)
        start = time.perf_counter()
        for _ in range(n_steps):
            vector.step(actions)
        print(n * n_steps / (time.perf_counter() - start), flush=True)
    vector.close()


if __name__ == "__main__":
    main()
