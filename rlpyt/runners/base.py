"""The base class of runners."""

from rlpyt.utils.recipes import Recorded


class BaseRunner(Recorded):
    """Runs the training loop with a sampler and an algorithm, and logs its progress."""

    def train(self) -> None:
        """Conduct a whole training run. A launch script calls this after building algorithm, agent and sampler."""
        raise NotImplementedError
