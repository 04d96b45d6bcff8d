"""What agents for vector observations and discrete actions share."""

from typing import Any


class MlpMixin:
    """Gives the model the observation's shape and the number of actions."""

    def make_env_to_model_kwargs(self, env_spaces) -> dict[str, Any]:
        """observation_shape and output_size; also n_observations, if an observation is one of n integers from 0."""
        space = env_spaces.observation
        kwargs = dict(observation_shape=space.shape, output_size=env_spaces.action.n)
        if len(space.shape) == 0 and hasattr(space, "n") and getattr(space, "low", 0) == 0:
            kwargs["n_observations"] = space.n
        return kwargs
