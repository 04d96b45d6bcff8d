"""What Atari agents of all algorithms share."""

from collections.abc import Sequence


class AtariMixin:
    """Gives the model image_shape and output_size, the number of actions.

    If the model is one of ours, observations must be images [C,H,W].
    """

    model_arguments: Sequence[str] = ("image_shape", "output_size")
