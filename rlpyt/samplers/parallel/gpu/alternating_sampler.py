"""Two groups of worker processes: while one steps its environments, the agent acts for the other."""

from __future__ import annotations

from typing import Any

from rlpyt.samplers.parallel.gpu.action_server import AlternatingActionServer, NoOverlapAlternatingActionServer
from rlpyt.samplers.parallel.gpu.sampler import GpuSamplerBase
from rlpyt.utils.settings import checked


class AlternatingSamplerBase(GpuSamplerBase):
    """Steps one half of the environments while the agent acts for the other half.

    This hides the time of the agent, or that of the environments, whichever is less. The agent is called twice as often, with half the
    batch. Each entry of ``affinity["workers_cpus"]`` stands for two workers, one in each group, which share its processors. With
    ``affinity["alternating"]`` the list is for both groups, and its first half for the first group.

    A recurrent agent must be made for it (with `AlternatingRecurrentAgentMixin`); a feed-forward one need not.

    Raises:
        ValueError: `batch_B` is odd. `initialize` also raises it if the agent has only one recurrent state, or if a list of workers for
            both groups has an odd length.
    """

    alternating = True

    @checked()
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.batch_B % 2:
            raise ValueError(f"batch_B={self.batch_B} must be even: the alternating sampler steps two groups of environments in turn.")


class AlternatingSampler(AlternatingActionServer, AlternatingSamplerBase):
    """The two groups step independently of each other."""


class NoOverlapAlternatingSampler(NoOverlapAlternatingActionServer, AlternatingSamplerBase):
    """Only one of the two groups steps at any time, with all processors to itself."""
