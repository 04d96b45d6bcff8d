"""Another path to `rlpyt.envs.specs`."""

from rlpyt.envs.specs import EnvSpec, EnvStep, InOutSpec, StepType, TimeStep  # noqa: F401
