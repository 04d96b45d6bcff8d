"""What a runner is."""


class BaseRunner:
    """Orchestrates sampler and algorithm to run the training loop, and records how it goes."""

    def train(self) -> None:
        """Conduct a whole training run: what a launch script calls once it has made algorithm, agent and sampler."""
        raise NotImplementedError
