"""AtariMixin, which Atari agents of all algorithms share."""

from rlpyt.agents.atari import AtariMixin

__all__ = ["AtariMixin"]
