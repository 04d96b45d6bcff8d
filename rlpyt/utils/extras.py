"""Packages that only parts of rlpyt need, by extra, and the error when one is missing."""

from __future__ import annotations

import shlex
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

# Extra of setup.py -> the modules that it installs. None: modules of every installation that are imported only at first use.
EXTRAS: dict[str | None, tuple[str, ...]] = {
    None: ("tensorboard",),
    "atari": ("ale_py", "cv2"),
    "mujoco": ("mujoco", "imageio"),
    "plot": ("matplotlib",),
    "video": ("PIL", "imageio_ffmpeg", "pygame"),
    "box2d": ("Box2D", "pygame"),
    "wandb": ("wandb",),
    "envpool": ("envpool",),
    "ray": ("ray",),
    "minari": ("minari", "h5py"),
    "tune": ("optuna",),
}


def clone_directory() -> Path | None:
    """Return the directory of the clone that contains this code, or None if pip installed a copy."""
    directory = Path(__file__).resolve().parents[2]
    return directory if all((directory / name).is_file() for name in ("setup.py", "constraints.txt")) else None


def install_command(extra: str | None = None) -> str:
    """Return the command that installs an extra (None: only rlpyt) with the tested versions, from the current directory.

    The command names the clone that contains this code, unless it is the current directory. Without a clone, it is the command to run
    inside one. It never names the package itself: the rlpyt on the Python Package Index is not this project.
    """
    clone = clone_directory()
    if clone is None or clone == _current_directory():
        return f'pip install -c constraints.txt -e ".[{extra}]"' if extra else "pip install -c constraints.txt -e ."
    constraints, target = shlex.quote(str(clone / "constraints.txt")), str(clone)
    if not extra:
        return f"pip install -c {constraints} -e {shlex.quote(target)}"
    target = f'"{target}[{extra}]"' if shlex.quote(target) == target else shlex.quote(f"{target}[{extra}]")
    return f"pip install -c {constraints} -e {target}"


def missing_modules(extra: str | None = None) -> list[str]:
    """Return the modules of an extra that are not installed."""
    return [module for module in EXTRAS[extra] if not _is_installed(module)]


def extra_with(module: str | None) -> str | None:
    """Return the first extra that installs a module, or None."""
    return next((extra for extra, modules in EXTRAS.items() if extra and module in modules), None)


def import_error(who: str, extra: str | None, error: BaseException) -> ImportError:
    """Return the error to raise if a module of an extra cannot be imported.

    It proposes to install the extra if one of its modules is not installed, and otherwise to reinstall its packages. For packages that
    rlpyt always needs it proposes nothing.

    Args:
        who: the beginning of the message, with a verb: "Plotting needs".
        extra: a key of EXTRAS.
        error: what the import raised.
    """
    missing = missing_modules(extra)
    if missing:
        where = "In the clone of rlpyt" if clone_directory() is None else "To install them"
        return ImportError(f"{who} packages that are not installed ({', '.join(missing)}). {where}: {install_command(extra)}")
    message = f"{who} packages that are installed but cannot be imported: {error}"
    if extra is None:
        return ImportError(message)
    found = packages_distributions()
    packages = " ".join(dict.fromkeys(package for module in EXTRAS[extra] for package in found.get(module, [module])))
    return ImportError(f"{message.rstrip('.')}. To reinstall them: pip uninstall -y {packages} && {install_command(extra)}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: `sys.modules` has a module of this name without a specification.
        return False


def _current_directory() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # The directory has been removed.
        return None
