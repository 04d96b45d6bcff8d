"""Another path to `rlpyt.envs.env_update`."""

from rlpyt.envs.env_update import EnvUpdate, ExistingEnvUpdate, NewEnvUpdate, SetTaskUpdate  # noqa: F401
