"""An environment of your own: PPO learns to catch a ball.

What it teaches, compared with example 0: any class with the methods of a Gymnasium environment can be given to a sampler as it is, with the
arguments of its constructor as `env_kwargs`. `check_env` looks for mistakes before training does. The agent fits because the spaces tell it
what it sees (a vector) and what it can do (one of three actions); for continuous actions, see continuous_ppo.py.

    python examples/own_env.py
"""

import gymnasium
import numpy as np

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.contract import check_env
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.parallel.cpu.sampler import CpuSampler
from rlpyt.utils.logging.context import logger_context


class Catch(gymnasium.Env):
    """A ball falls straight down. The return is 1 if the paddle is below it in the end, otherwise -1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, size: int = 9, render_mode: str | None = None):
        self.size, self.render_mode = size, render_mode
        self.observation_space = gymnasium.spaces.Box(0, 1, shape=(3,), dtype=np.float32)  # column and row of the ball, paddle
        self.action_space = gymnasium.spaces.Discrete(3)  # left, stay, right

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)  # Makes self.np_random: draw all random numbers from it, so that equal seeds give equal episodes.
        self.column, self.paddle = self.np_random.integers(self.size, size=2)
        self.row = 0
        return self._observe(), {}

    def step(self, action):
        self.row += 1
        self.paddle = np.clip(self.paddle + action - 1, 0, self.size - 1)
        has_fallen = self.row == self.size - 1
        reward = 0.0 if not has_fallen else 1.0 if self.column == self.paddle else -1.0
        return self._observe(), reward, has_fallen, False, {}  # terminated; truncated is for time limits

    def render(self):
        picture = np.zeros((self.size, self.size, 3), np.uint8)
        picture[self.row, self.column, 0] = picture[-1, self.paddle, 1] = 255
        return picture

    def _observe(self):
        end = self.size - 1
        return np.array([self.column / end, self.row / end, self.paddle / end], np.float32)


def build(size: int = 9, n_steps: int = 200_000, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        size: rows and columns.
        n_steps: environment steps to train for, unless it catches nearly all balls before.
    """
    return MinibatchRl(
        algo=PPO(learning_rate=1e-3, gae_lambda=0.95, epochs=10, normalize_advantage=True),
        agent=MlpFfAgent(),
        sampler=CpuSampler(EnvCls=Catch, env_kwargs=dict(size=size), batch_T=128, batch_B=8),
        n_steps=n_steps,
        log_interval_steps=10_000,
        stop_return=0.95,
        affinity=dict(master_torch_threads=1),
        seed=seed,
    )


def build_and_train(run_ID: int = 0, *, size: int = 9, log_dir: str = "own_env", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    check_env(Catch, dict(size=size))
    runner = build(size, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name="ppo_catch") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
