"""A stopwatch for parts of a program."""

from time import perf_counter


class Stopwatch:
    """Adds up the seconds spent in its ``with`` blocks, which must not be nested.

    Attributes:
        seconds: the sum so far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._start = perf_counter()

    def __exit__(self, *exc_info: object) -> None:
        self.seconds += perf_counter() - self._start
