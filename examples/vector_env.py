"""A vector of environments of your own, compiled by numba: PPO learns CartPole in seconds.

What it teaches, compared with own_env.py: environments that step together, for all columns of a process at once. One call of `step_into`
steps them all and writes their observations straight into the batch, which makes millions of steps per second. `VectorEnvs` tells the
sampler, and `check_vector_env` looks for mistakes before training does. `gymnasium.make_vec`, and `make_ale` and `make_envpool` of
`rlpyt.envs.vector`, can stand in place of the class.

    python examples/vector_env.py
"""

import math

import numba
import numpy as np

from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.algos.pg.ppo import PPO
from rlpyt.cli.scripts import command_line
from rlpyt.envs.vector import SAME_STEP, VectorEnv, VectorEnvs, VectorStep
from rlpyt.envs.vector_contract import check_vector_env
from rlpyt.experiments.smoke import tiny
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.logging.context import logger_context

HORIZON = 500  # env steps
X_LIMIT, ANGLE_LIMIT = 2.4, 12 * math.pi / 180


@numba.njit(cache=True)
def random(generators, i):
    """The next number in [0, 1) of environment i, by xorshift64* (Vigna 2016, arXiv:1402.6246)."""
    x = generators[i]
    x ^= x >> numba.uint64(12)
    x ^= x << numba.uint64(25)
    x ^= x >> numba.uint64(27)
    generators[i] = x
    return (x * numba.uint64(0x2545F4914F6CDD1D) >> numba.uint64(11)) / 9007199254740992.0


@numba.njit(cache=True)
def reset(i, state, t, generators):
    t[i] = 0
    for k in range(4):
        state[i, k] = 0.1 * random(generators, i) - 0.05


@numba.njit(cache=True)
def step(actions, state, t, generators, observation, terminated, truncated, final):
    """One step of all environments: CartPole-v1 of Gymnasium, with its constants."""
    for i in range(len(actions)):
        x, v, angle, w = state[i]
        force = 10.0 if actions[i] == 1 else -10.0
        cos, sin = math.cos(angle), math.sin(angle)
        push = (force + 0.05 * w * w * sin) / 1.1
        angular = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        x, v = x + 0.02 * v, v + 0.02 * (push - 0.05 * angular * cos / 1.1)
        angle, w = angle + 0.02 * w, w + 0.02 * angular
        state[i, 0], state[i, 1], state[i, 2], state[i, 3] = x, v, angle, w
        t[i] += 1
        terminated[i] = abs(x) > X_LIMIT or abs(angle) > ANGLE_LIMIT
        truncated[i] = t[i] >= HORIZON
        if terminated[i] or truncated[i]:
            for k in range(4):
                final[i, k] = state[i, k]
            reset(i, state, t, generators)
        for k in range(4):
            observation[i, k] = state[i, k]


class CartPoles(VectorEnv):
    """`num_envs` times CartPole. It resets an environment in the same step as the last one of its episode."""

    autoreset_mode = SAME_STEP
    truncates_only_at_horizon = True
    horizon = HORIZON

    def __init__(self, num_envs: int):
        self.n = num_envs
        self._observation_space = FloatBox(-math.inf, math.inf, shape=(4,), null_value=0.0)
        self._action_space = IntBox(0, 2)
        self.state, self.t = np.zeros((num_envs, 4)), np.zeros(num_envs, np.int64)
        self.generators = np.zeros(num_envs, np.uint64)  # An environment's random numbers do not depend on how many there are.
        self.reward, self.final = np.ones(num_envs, np.float32), np.zeros((num_envs, 4), np.float32)
        self.terminated, self.truncated = np.zeros(num_envs, bool), np.zeros(num_envs, bool)
        self.seed(range(num_envs))

    def seed(self, seeds):
        super().seed(seeds)
        self.generators[:] = [np.random.SeedSequence(int(seed)).generate_state(1, np.uint64)[0] | np.uint64(1) for seed in seeds]

    def reset_into(self, observation_out, which=None):
        for i in range(self.n):
            reset(i, self.state, self.t, self.generators)
        observation_out[...] = self.state

    def step_into(self, actions, observation_out):
        step(actions, self.state, self.t, self.generators, observation_out, self.terminated, self.truncated, self.final)
        return VectorStep(self.reward, self.terminated, self.truncated, None, self.final)

    def render(self):  # Of the first one, for `rlpyt video`.
        picture = np.zeros((64, 128, 3), np.uint8)
        x, _, angle, _ = self.state[0]
        column, along = int(64 + 20 * x), np.arange(40)
        picture[56:60, max(column - 6, 0) : column + 7, 0] = 255
        picture[(56 - along * np.cos(angle)).astype(int), np.clip(column + along * np.sin(angle), 0, 127).astype(int), 1] = 255
        return picture

    def get_state(self):  # With it, a run that is resumed continues the same episodes.
        return dict(state=self.state.tolist(), t=self.t.tolist(), generators=[int(x) for x in self.generators])

    def set_state(self, state):
        self.state[...], self.t[:] = state["state"], state["t"]
        self.generators[:] = np.array(state["generators"], np.uint64)


def build(n_envs: int = 64, n_steps: int = 2_000_000, seed: int | None = None):
    """Return the runner, with which nothing has been started yet.

    Args:
        n_envs: number of environments.
        n_steps: environment steps to train for, unless CartPole is solved before.
    """
    return MinibatchRl(
        algo=PPO(
            discount=0.98,
            learning_rate=2e-3,
            gae_lambda=0.8,
            entropy_loss_coeff=0.0,
            minibatches=4,
            epochs=10,
            ratio_clip=0.2,
            normalize_advantage=True,
            linear_lr_schedule=False,
        ),
        agent=MlpFfAgent(),
        sampler=SerialSampler(EnvCls=VectorEnvs(CartPoles), batch_T=32, batch_B=n_envs, max_decorrelation_steps=0),
        n_steps=n_steps,
        log_interval_steps=20_000,
        stop_return=475,
        affinity=dict(master_torch_threads=1),
        seed=seed,
    )


def build_and_train(run_ID: int = 0, *, log_dir: str = "vector_env", smoke: bool = False, **settings):
    """Train, and return the directory of the run. Further settings are those of `build`."""
    check_vector_env(CartPoles)
    runner = build(**settings)
    if smoke:
        runner = tiny(runner)
    with logger_context(log_dir, run_ID, name="ppo_cartpoles") as run_dir:
        runner.train()
    return run_dir


if __name__ == "__main__":
    command_line(build_and_train, __doc__, build)
