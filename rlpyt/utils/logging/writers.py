"""Writers that send the numbers of a run elsewhere than to its files: to Weights & Biases, or to several writers at once.

The logger takes a writer instead of TensorBoard's SummaryWriter. A writer has ``add_scalar(name, value, step)``, ``flush()``, which is
called at the end of every row, and ``close()``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from rlpyt.utils.completed import Completed
from rlpyt.utils.extras import import_error

STEP = "global_step"  # the name in TensorBoard's export


def import_wandb() -> ModuleType:
    """Return the module of Weights & Biases; without it, raise an ImportError that says what to install."""
    try:
        import wandb
    except ImportError as error:
        raise import_error("use_wandb needs", "wandb", error) from error
    return wandb


class WandbWriter:
    """Sends every row to a run of Weights & Biases, with the step of the rows as the horizontal axis.

    A context manager that ends the run, as failed if an exception other than SystemExit leaves the block.

    Args:
        run_dir: directory of the run; files of Weights & Biases go into its subdirectory wandb.
        name: name of the run in Weights & Biases.
        params: configuration of the run, in types of JSON.
        settings: further arguments of ``wandb.init``, such as ``dict(project="atari", mode="offline")``; they override the others.
    """

    def __init__(self, run_dir: str, name: str, params: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> None:
        self.run = import_wandb().init(**{"dir": run_dir, "name": name, "config": dict(params), **(settings or {})})
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP)
        self._row: dict[str, Any] = {}

    def __enter__(self) -> WandbWriter:
        return self

    def __exit__(self, cls: type[BaseException] | None, *args: Any) -> None:
        failed = cls is not None and not issubclass(cls, SystemExit)
        self.flush()
        self.run.finish(exit_code=int(failed))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Keep a number of the current row."""
        self._row[name], self._row[STEP] = value, step

    def add_settings(self, settings: Mapping[str, Any]) -> None:
        """Add settings by dotted names to the configuration of the run."""
        self.run.config.update(dict(settings), allow_val_change=True)

    def flush(self) -> None:
        """Send the row."""
        row, self._row = self._row, {}
        if row:
            self.run.log(row)

    def close(self) -> None:
        """End the run."""
        self.__exit__(None)


class CompletedWriter(Completed):
    """A writer for the logger, which may be an object of a user or TensorBoard's SummaryWriter."""

    def add_settings(self, settings: Mapping[str, Any]) -> None:
        """Add the settings of a run. The default leaves them out."""

    def flush(self) -> None:
        """End the row. The default does nothing."""


class Writers:
    """Passes everything on to several writers."""

    def __init__(self, writers: Sequence[Any]) -> None:
        self.writers = list(writers)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Write a number to each."""
        for writer in self.writers:
            writer.add_scalar(name, value, step)

    def add_settings(self, settings: Mapping[str, Any]) -> None:
        """Add settings to the writers that take them."""
        for writer in self.writers:
            CompletedWriter(writer).add_settings(settings)

    def flush(self) -> None:
        """End the row of each."""
        for writer in self.writers:
            writer.flush()

    def close(self) -> None:
        """Close each."""
        for writer in self.writers:
            writer.close()


def writes_for_wandb(writer: Any) -> bool:
    """Whether a writer, or one of several, is of Weights & Biases."""
    return any(isinstance(each, WandbWriter) for each in (writer.writers if isinstance(writer, Writers) else [writer]))
