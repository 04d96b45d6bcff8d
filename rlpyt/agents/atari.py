"""What Atari agents of all algorithms share."""

from typing import Any

from rlpyt.utils.misc import is_of_rlpyt

_MOST_CHANNELS = 4  # of an image that has them last.


class AtariMixin:
    """Gives the model the image's shape and the number of actions."""

    def make_env_to_model_kwargs(self, env_spaces) -> dict[str, Any]:
        """image_shape and output_size; ValueError if the model is one of ours and observations are not images [C,H,W]."""
        image_shape = env_spaces.observation.shape
        is_image = len(image_shape) == 3 and not any(isinstance(size, tuple) for size in image_shape)
        if not is_image and is_of_rlpyt(self.ModelCls):
            raise ValueError(
                f"{type(self).__name__} needs images of shape (C,H,W), but the environment's observation space is "
                f"{env_spaces.observation!r}. For vectors use rlpyt.agents.pg.mlp.MlpFfAgent or "
                "rlpyt.agents.dqn.mlp_dqn_agent.MlpDqnAgent."
            )
        if is_image and image_shape[2] <= _MOST_CHANNELS < min(image_shape[:2]) and is_of_rlpyt(self.ModelCls):
            raise ValueError(
                f"{type(self).__name__} needs images of shape (C,H,W), but the environment's, {image_shape}, seem to be (H,W,C). Let "
                "it put channels first, as gymnasium.wrappers.TransformObservation does with lambda x: x.transpose(2, 0, 1)."
            )
        return dict(image_shape=image_shape, output_size=env_spaces.action.n)
