"""What agents for vector observations and discrete actions share."""

from collections.abc import Sequence


class MlpMixin:
    """Gives the model observation_shape, output_size (the number of actions), and n_observations if an observation is one of n integers."""

    model_arguments: Sequence[str] = ("observation_shape", "output_size", "n_observations")
