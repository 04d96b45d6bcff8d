"""Another path to `rlpyt.envs.gym_env`."""

from rlpyt.envs.gym_env import GymEnv  # noqa: F401
