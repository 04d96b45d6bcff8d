"""PPO with actions of two integers, some of which are impossible in each state.

What it teaches, compared with own_env.py: an environment with `MultiDiscrete` actions, and masks. In each square of a grid the agent
chooses one of four directions and one of three keys. The key must be that of the square, and the direction must stay inside the grid. The
environment says so by a mask in `info`, which `GymEnvWrapper` is told the name of. The agent then never chooses anything else, in
training and in evaluation.

    python examples/masked_actions.py
    python examples/masked_actions.py --masks False      # impossible actions cost 0.1 and do nothing: it learns more slowly
"""

import gymnasium
import numpy as np
from gymnasium import spaces

from rlpyt.agents.pg.composite import MlpCompositeFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.logging.context import logger_context

SIZE = 6
MOVES = [(1, 0), (0, 1), (-1, 0), (0, -1)]
N_KEYS = 3


class Doors(gymnasium.Env):
    """Walk from one corner of a grid to the opposite one through locked doors: -0.01 for each step, 1 at the goal, at most 60 steps."""

    observation_space = spaces.Box(0, 1, (SIZE * SIZE,), np.float32)
    action_space = spaces.MultiDiscrete([len(MOVES), N_KEYS])
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.y = self.t = 0
        return self._observe()

    def _observe(self):
        observation = np.zeros(SIZE * SIZE, np.float32)
        observation[self.x * SIZE + self.y] = 1
        directions = np.array([0 <= self.x + dx < SIZE and 0 <= self.y + dy < SIZE for dx, dy in MOVES], np.int8)
        keys = np.zeros(N_KEYS, np.int8)
        keys[(self.x + 2 * self.y) % N_KEYS] = 1
        self.mask = directions, keys  # One array for each integer of the action.
        return observation, dict(action_mask=self.mask)

    def step(self, action):
        direction, key = action
        reward = -0.01
        if self.mask[0][direction] and self.mask[1][key]:
            self.x, self.y = self.x + MOVES[direction][0], self.y + MOVES[direction][1]
        else:
            reward = -0.1
        self.t += 1
        arrived = self.x == self.y == SIZE - 1
        observation, info = self._observe()
        return observation, reward + arrived, arrived, self.t == 60 and not arrived, info

    def render(self):
        picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        picture[self.x, self.y] = 255
        return picture


def make(masks: bool = True, render_mode: str | None = None):
    return GymEnvWrapper(Doors(render_mode), action_mask="action_mask" if masks else None)


def build(masks: bool = True, n_steps: int = 40_000, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        masks: impossible actions are masked, so that the agent never takes them.
        n_steps: environment steps to train for.
    """
    return MinibatchRl(
        algo=PPO(learning_rate=3e-3, gae_lambda=0.95, normalize_advantage=True, ratio_clip=0.2),
        agent=MlpCompositeFfAgent(),
        sampler=SerialSampler(EnvCls=make, env_kwargs=dict(masks=masks), batch_T=32, batch_B=8, max_decorrelation_steps=0),
        n_steps=n_steps,
        log_interval_steps=2_048,
        affinity=dict(master_torch_threads=1),
        seed=seed,
    )


def build_and_train(masks: bool = True, run_ID: int = 0, *, log_dir: str = "masked_actions", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    runner = build(masks, **settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name="ppo_doors", log_params=dict(masks=masks)) as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
