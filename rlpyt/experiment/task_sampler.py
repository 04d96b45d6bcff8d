"""Another path to `rlpyt.experiments.task_sampler`."""

from rlpyt.experiments.task_sampler import *  # noqa: F403
