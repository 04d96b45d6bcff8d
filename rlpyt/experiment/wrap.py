"""Another path to `rlpyt.experiments.wrap`."""

from rlpyt.experiments.wrap import ExperimentContext, wrap_experiment  # noqa: F401
