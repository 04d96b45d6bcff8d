"""Another path to `rlpyt.envs.adapters`."""

from rlpyt.envs.adapters import *  # noqa: F403
