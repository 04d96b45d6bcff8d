"""Uniform replay, of transitions and of sequences."""

from __future__ import annotations

from typing import Any

from rlpyt.replays.draws import Draw, DrawnReplay
from rlpyt.replays.selectors import UniformSelector
from rlpyt.utils.plain import generator_state, set_generator_state


class UniformDraws(DrawnReplay):
    """Replays what `sample_idxs` chooses, by default all that is valid with the same probability.

    Attributes:
        selector: what chooses.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.selector = UniformSelector(
            self.ring, self.B, *self.start_zones(), interval=self.start_interval, valid=getattr(self._rows, "valid", None)
        )

    def _draw(self, *size: int) -> Draw:
        return Draw((*self.sample_idxs(*size), *size[1:]))

    def state_dict(self, since: int = 0) -> dict[str, Any]:
        """Extend that of the buffer by the state of the random numbers."""
        return {**super().state_dict(since), "rng": generator_state(self.selector.rng)}

    def _check_state(self, state_dict: dict[str, Any]) -> None:
        super()._check_state(state_dict)
        if "rng" not in state_dict:
            raise ValueError("The saved replay buffer is not one that replays uniformly, and this one is.")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state_dict)
        set_generator_state(self.selector.rng, state_dict["rng"])
