"""Another path to `rlpyt.envs.environment` and `rlpyt.envs.adapters`."""

from rlpyt.envs.adapters import as_environment, as_gymnasium, as_rlpyt  # noqa: F401
from rlpyt.envs.environment import Environment, Wrapper  # noqa: F401
