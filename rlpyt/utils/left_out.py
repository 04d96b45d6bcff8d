"""Names of rlpyt 0.1 that do not exist here, with what takes their place, for the errors about them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from typing import Any, NamedTuple, NoReturn

_PROCESSES = "`launch_workers` of the runner starts all processes; override methods of the runner, such as `optimize`."
_RANKS = "all ranks run the class of the runner itself: override its methods, in which `self.rank` tells the process."
_HELPERS = "it was a helper for command lines, which nothing used; take argparse."

MODULES = {
    "rlpyt.ul": "representation learning is not part of this project.",
    "rlpyt.projects": "safe reinforcement learning is not part of this project.",
    "rlpyt.experiments.scripts": "examples/launch.py and examples/train.py take the place of its scripts.",
    "rlpyt.utils.logging.autoargs": _HELPERS,
    "rlpyt.utils.logging.tabulate": "it was a copy of a package: pip install tabulate, and from tabulate import tabulate.",
    "rlpyt.utils.shmemarray": "shared memory needs no names any more; take np_mp_array of rlpyt.utils.buffer.",
}
NAMES = {
    "rlpyt.runners.async_rl": dict.fromkeys(
        ("AsyncOptWorker", "run_async_sampler", "run_async_sampler_eval", "memory_copier", "placeholder"), _PROCESSES
    ),
    "rlpyt.runners.sync_rl": dict.fromkeys(("SyncWorkerMixin", "SyncWorker", "SyncWorkerEval"), _RANKS),
    "rlpyt.utils.logging.console": dict.fromkeys(("collect_args", "type_hint", "tweak", "tweakval", "tweakfun"), _HELPERS),
}


class Uncalled(NamedTuple):
    """Methods and properties that subclasses of the original's class override, and that nothing calls here.

    Attributes:
        names: the methods.
        caller: the method of the original that calls them. A subclass with its own may call them, too.
        instead: what takes their place.
    """

    names: Sequence[str]
    caller: str
    instead: str


OVERRIDES = {
    "rlpyt.runners.async_rl.AsyncRlBase": Uncalled(
        ("build_ctrl", "launch_optimizer_workers", "launch_memcpy", "launch_sampler"), "launch_workers", _PROCESSES
    ),
    "rlpyt.runners.sync_rl.SyncRlMixin": Uncalled(("WorkerCls", "build_par_objs"), "launch_workers", _RANKS),
    "rlpyt.samplers.parallel.gpu.action_server.ActionServer": Uncalled(
        ("serve_actions", "serve_actions_evaluation"),
        "obtain_samples",
        "the agent acts for all workers by its method `step`; override that one.",
    ),
}


def _missing(name: str, instead: str) -> str:
    return f"{name} of rlpyt 0.1 does not exist here: {instead} See docs/differences.md."


class _Modules(MetaPathFinder):
    """Python asks it for modules that have not been found."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname in MODULES:
            raise ModuleNotFoundError(_missing(fullname, MODULES[fullname]))  # With a `name`, "from package import it" would hide it.


def explain_missing_modules() -> None:
    """From now on, let the import of a module that was left out say what takes its place."""
    if not any(type(finder) is _Modules for finder in sys.meta_path):
        sys.meta_path.append(_Modules())


def names_left_out(module: str) -> Callable[[str], NoReturn]:
    """Return ``__getattr__`` of a module, which says what takes the place of names that were left out.

    It raises ImportError, also for hasattr(): only so does the text of ``from module import name`` reach its reader.
    """

    def get(name: str) -> NoReturn:
        if name in NAMES[module]:
            raise ImportError(_missing(f"{module}.{name}", NAMES[module][name]))
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


def check_overrides(cls: type) -> None:
    """Raise TypeError if a subclass of ours defines what nothing would call."""
    for i, base in enumerate(cls.__mro__):
        uncalled = OVERRIDES.get(f"{base.__module__}.{base.__qualname__}")
        defined = {name for subclass in cls.__mro__[:i] for name in vars(subclass)} if uncalled else ()
        if uncalled and uncalled.caller not in defined:
            for name in sorted({*uncalled.names}.intersection(defined)):
                missing = _missing(f"{base.__name__}.{name}", uncalled.instead)
                raise TypeError(f"{cls.__name__} defines {name}, which rlpyt never calls. {missing}")
