"""Another path to `rlpyt.types`, which scripts use."""

from rlpyt.types import *  # noqa: F403
