"""Decides what is imported for a run, so that nobody can hide code in the directory of one.

A snapshot is plain data. But params.json names classes and functions that must be imported and called to make the agent again. All names
are checked before anything is imported, and again when they are resolved. Accepted are:

- classes of rlpyt, torch and gymnasium that runs consist of, named by the module that defines them, and a few functions, listed by name;
- definitions in the user's files. These are files below the current directory, except in two places. The subdirectory of the current
  directory that contains the run may have come with the run. Python's library and installed packages, wherever they are, contain functions,
  such as `os.system`, that a run must not call.

A name means a *definition* in its module: `mine:os.system` is refused although mine.py imports os.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from rlpyt.utils.logging.context import no_new_runs
from rlpyt.utils.misc import file_of, module_of
from rlpyt.utils.recipes import TAGS, Script, running_script

HINT = "Say how to build it: --script file.py:function, where the function returns the runner of the run."
_NONLINEARITIES = "celu elu gelu hardtanh leaky_relu logsigmoid mish relu relu6 selu sigmoid silu softplus softsign tanh tanhshrink".split()
FUNCTIONS = {  # The accepted functions: they make environments, or are nonlinearities.
    *("rlpyt.envs.gym:make", "rlpyt.envs.gym_schema:make", "rlpyt.envs.multitask:_construct", "gymnasium.envs.registration:make"),
    *("rlpyt.envs.vector:make_ale", "rlpyt.envs.vector:make_envpool", "gymnasium.envs.registration:make_vec"),
    *("rlpyt.experiments.envs:make_partial", "rlpyt.experiments.envs:make_scaled"),
    *(f"{module}:{name}" for module in ("torch", "torch.nn.functional") for name in _NONLINEARITIES),
}
_RAY_SETTINGS = {"object_store_memory", "num_cpus", "num_gpus", "include_dashboard", "log_to_driver"}
_ENV_ID = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_].*", re.DOTALL)  # "module:Name-v0": gymnasium first imports the module.
_LIBRARY = re.compile(r"(site|dist)-packages|python\d[\d.]*")  # Parts of the paths of Python's library and of installed packages.


def library_classes() -> dict[str, tuple[type, ...]]:
    """Return the base classes of accepted classes, by the library that must define them."""
    import gymnasium
    import numpy as np
    import torch

    from rlpyt.agents.base import BaseAgent
    from rlpyt.algos.base import RlAlgorithm
    from rlpyt.distributions.base import Distribution
    from rlpyt.envs.base import Env
    from rlpyt.envs.environment import Environment
    from rlpyt.envs.multitask import TaskOnehotWrapper
    from rlpyt.envs.vector import VectorEnvs
    from rlpyt.replays.base import BaseReplayBuffer
    from rlpyt.replays.episode import EpisodeReplayBuffer
    from rlpyt.runners.minibatch_rl import MinibatchRlBase
    from rlpyt.samplers.base import BaseSampler
    from rlpyt.samplers.collectors import BaseCollector
    from rlpyt.samplers.episodic.factory import WorkerFactory
    from rlpyt.samplers.episodic.sampler import Sampler
    from rlpyt.samplers.episodic.workers import Worker
    from rlpyt.types import TrajInfo

    parts = (BaseAgent, RlAlgorithm, BaseSampler, MinibatchRlBase, BaseCollector, TrajInfo, BaseReplayBuffer, EpisodeReplayBuffer)
    episodes = (Sampler, Worker, WorkerFactory, Environment, TaskOnehotWrapper, VectorEnvs)
    return dict(
        rlpyt=(*parts, *episodes, Env, Distribution, torch.nn.Module),
        torch=(torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler),
        gymnasium=(gymnasium.Env,),
        numpy=(np.generic,),
    )


LIBRARIES = ("rlpyt", "torch", "gymnasium", "numpy")
_MODULES = (  # Modules of libraries that are imported to look for accepted classes.
    *(f"rlpyt.{name}" for name in ("agents", "algos", "distributions", "envs", "episodes", "models", "replays", "runners", "samplers")),
    *("torch.nn.modules", "torch.optim", "gymnasium.envs", "numpy"),
)


PARTS = ("runner", "algo", "agent", "sampler", "env")  # of a record
MADE_OF = ("class", "arguments", "positional")  # entries of a part that are used, not only shown


class Names:
    """Resolves the trusted names in the record of a run.

    Args:
        record: see `rlpyt.runners.record`.
        params_file: file of the record.
        trust: accept every name.

    Raises:
        ValueError: names are not trusted; the message lists them. Only modules of the accepted libraries have been imported then.
        FileNotFoundError: the script of the run is needed, but does not exist.
    """

    def __init__(self, record: Mapping[str, Any], params_file: Path, trust: bool = False) -> None:
        self.trust, self.params_file = trust, params_file
        self.script = _script_of(record, params_file)
        self._received = _received_with(params_file)
        names = {each for part in PARTS if part in record for key in MADE_OF for each in names_in(record[part].get(key))}
        if any(tag == "$script" for tag, _ in names) and not (self.script.file and os.path.isfile(self.script.file)):
            raise FileNotFoundError(f"The script of the run, {self.script.file}, is not there any more. {HINT}")
        if not trust:
            refused = sorted(self._described(tag, name) for tag, name in names if not self._is_accepted(tag, name))
            refused += _ray_settings(record)
            if refused:
                raise ValueError(
                    f"{params_file} names what opening this run would import and call: {', '.join(refused)}. These are neither classes "
                    "of rlpyt, torch and gymnasium that runs consist of, nor defined in files of yours: below the current directory, "
                    f"{os.getcwd()}, but not in the subdirectory of the run. If you trust the run, say so: --trust, or trust=True."
                )

    def _described(self, tag: str, name: str) -> str:
        return f"{name} of {self.script.file}" if tag == "$script" else name

    def _is_accepted(self, tag: str, name: str) -> bool:
        if tag not in TAGS:
            return False
        if tag == "$script":
            return self.is_users_file(self.script.file)
        module, _, qualname = name.partition(":")
        if module.partition(".")[0] in LIBRARIES:
            return _is_library_part(module, qualname)
        return self._users_module_file(module) is not None

    def is_users_file(self, file: Any) -> bool:
        """Whether a file is one of the user's, as defined at the top of this module."""
        if not (isinstance(file, (str, os.PathLike)) and os.path.isabs(file) and os.path.exists(file)):
            return False
        path, here = Path(file).resolve(), Path.cwd().resolve()
        if here == Path(here.anchor) or not path.is_relative_to(here):
            return False
        below = [here.joinpath(*path.relative_to(here).parts[:i]) for i in range(1, len(path.relative_to(here).parts) + 1)]
        is_installed = any(_LIBRARY.fullmatch(part) for part in path.parts) or any(
            (directory / mark).exists() for directory in (here, *below) for mark in ("pyvenv.cfg", "conda-meta")
        )
        return not is_installed and not any(path.is_relative_to(other) for other in (*self._received, *_library_directories()))

    def _users_module_file(self, module: str) -> str | None:
        """Return the file of a module, without importing it; None if the module is not the user's."""
        parts = module.split(".")
        if not all(part.isidentifier() for part in parts) or parts[0] in sys.stdlib_module_names:
            return None
        directory = os.path.dirname(self.script.file) if self.script.file else None
        path = [*([directory] if directory and self.is_users_file(self.script.file) else []), *sys.path]
        spec = None
        for i in range(len(parts)):
            with suppress(ImportError, ValueError, AttributeError):
                spec = PathFinder.find_spec(".".join(parts[: i + 1]), path)
            if spec is None:
                return None
            inside = list(spec.submodule_search_locations or ())
            file = spec.origin if spec.has_location else None
            if not all(self.is_users_file(os.path.abspath(place)) for place in (inside if file is None else [file])):
                return None
            path, origin, spec = inside, file and os.path.realpath(file), None
        there = sys.modules.get(module)
        return origin if there is None or _file_of(there) == origin else None

    # What is found --------------------------------------------------------------------------------------------------
    def find(self, tag: str, name: str) -> Any:
        """Return the object of a ``$name`` or ``$script``; ValueError if its module does not define it, ImportError if it is missing."""
        if not (self.trust or self._is_accepted(tag, name)):
            raise ValueError(f"{self._described(tag, name)} is not trusted.")
        module_name, _, qualname = name.partition(":") if tag == "$name" else ("", "", name)
        module = self._import(module_name) if tag == "$name" else script_module(self.script)
        found, is_defined_there = module, True
        for step in qualname.split("."):
            if not hasattr(found, step):
                raise ImportError(f"There is no {qualname} in {file_of(module) or module_name} any more.")
            found = getattr(found, step)
            is_defined_there &= not isinstance(found, type(sys))
        home = module_of(type(found) if isinstance(found, enum.Enum) else found)
        is_listed = name in FUNCTIONS
        if not (self.trust or is_listed or (is_defined_there and home == module.__name__)):
            raise ValueError(f"{self._described(tag, name)} is not defined there, so it is not imported. If you trust the run: --trust.")
        return found

    def _import(self, name: str) -> Any:
        """Return a module; modules beside the script of the run can be imported, as in the run."""
        if name.partition(".")[0] in LIBRARIES:
            return importlib.import_module(name)
        directory = os.path.dirname(self.script.file) if self.script.file else None
        if directory and directory not in sys.path and (self.trust or self.is_users_file(self.script.file)):
            sys.path.insert(0, directory)
        expected = None if self.trust else self._users_module_file(name)
        with no_new_runs(f"Importing {name} starts a run. Put the code that trains below `if __name__ == '__main__':`."):
            module = importlib.import_module(name)
        if not (self.trust or _file_of(module) == expected):
            raise ValueError(f"{name} is another module than the one below the current directory. If you trust the run: --trust.")
        return module


def names_in(recipe: Any) -> Iterator[tuple[str, str]]:
    """Yield tag and name of everything that resolving a recipe would import, and of unknown tags.

    This includes strings such as "module:Name-v0", for which gymnasium would import a module.
    """
    if isinstance(recipe, Mapping):
        for key, value in recipe.items():
            if key in ("$name", "$script"):
                yield key, str(value)
            elif key.startswith("$") and key not in TAGS:
                yield key, key
            else:
                yield from names_in(value)
    elif isinstance(recipe, list):
        for each in recipe:
            yield from names_in(each)
    elif isinstance(recipe, str) and _ENV_ID.fullmatch(recipe):
        yield "$name", recipe


def check_experiment(exp_dir: Path) -> None:
    """Raise ValueError if an experiment launches code that is not the user's: a script, classes that a variant names, a Ray cluster.

    Args:
        exp_dir: directory of the experiment, or of a search.
    """
    from rlpyt.utils.launching.search_dir import is_search
    from rlpyt.utils.launching.status import read_experiment

    asked = _asked_of_search(exp_dir) if is_search(exp_dir) else read_experiment(exp_dir)
    file = os.path.abspath(os.path.join(str(asked.get("cwd", "")), str(asked.get("script", ""))))
    names = Names({"script": {"file": file}}, exp_dir / "params.json")
    refused = [] if asked.get("script", "") is None or names.is_users_file(file) else [file]
    texts = [*_texts(asked.get("common_args")), *_texts(asked.get("runs_args")), *_texts(asked.get("variants"))]
    refused += [text for text in texts if _ENV_ID.fullmatch(text.rpartition("=")[2])]
    for variant in asked.get("variants") or ():
        paths = _texts(variant.get("classes")) if isinstance(variant, Mapping) else ()
        refused += [path for path in paths if "." in path and not names._is_accepted("$name", ":".join(path.rsplit(".", 1)))]
    if asked.get("ray_address"):
        refused.append(f"the Ray cluster {asked['ray_address']}")
    if refused:
        raise ValueError(
            f"{exp_dir} would be resumed by running {', '.join(refused)}, which may not be yours, judged from the current "
            f"directory, {os.getcwd()}. If you trust the experiment, say so: --trust."
        )


def _asked_of_search(exp_dir: Path) -> dict[str, Any]:
    """Return what a search launches, as experiment.json has it, with variants that contain all choices.

    The train script of ``rlpyt tune`` is part of this package. Of its arguments, as ``rlpyt tune`` writes them, only the sampler and the
    values of settings remain, because they can name code. In any other form the script itself is what is launched.
    """
    from rlpyt.experiments.build import read_value
    from rlpyt.experiments.configs import config_modules
    from rlpyt.utils.launching.search_dir import read_settings_of
    from rlpyt.utils.launching.space import Space

    settings = read_settings_of(exp_dir)
    space, args = Space.read(settings.space), settings.common_args
    variants = [space.variant(with_lowest) for _, (with_lowest, _) in space.corners()]
    asked: dict[str, Any] = dict(script=settings.script, cwd=settings.cwd, common_args=args, variants=variants)
    own = Path(__file__).parents[1] / "cli" / "launched" / "train.py"
    if Path(settings.cwd, settings.script).resolve() == own.resolve() and args and args[0].partition(":")[0] in config_modules():
        n_of_sampler = 2 * (args[1:2] == ["--sampler"])
        sampler, rest = args[2 : 1 + n_of_sampler], args[1 + n_of_sampler :]
        rest = rest[rest[:1] == ["--smoke"] :]
        if rest[:1] in ([], ["--set"]) and not any(each.startswith("-") for each in rest[1:]):
            values = [read_value(each.partition("=")[2]) for each in rest[1:]]
            asked.update(script=None, common_args=values, variants=[*variants, *(dict(classes=[path]) for path in sampler)])
    return asked


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            yield from _texts(each)


def _ray_settings(record: Mapping[str, Any]) -> list[str]:
    """Settings of Ray beyond a local cluster: a cluster at an address, or the setup of a worker's environment, could run code here."""
    sampler = record.get("sampler")
    arguments = sampler.get("arguments", {}) if isinstance(sampler, Mapping) else {}
    address, settings = arguments.get("address"), arguments.get("init_kwargs") or {}
    refused = [] if address in (None, "local", "auto") else [f"the Ray cluster {address}"]
    others = sorted({str(name) for name in settings} - _RAY_SETTINGS) if isinstance(settings, Mapping) else ["init_kwargs"]
    return refused + [f"the setting {name} of Ray" for name in others]


def _is_library_part(module: str, qualname: str) -> bool:
    """Whether a library defines a class for runs, or a listed function, by this name. Imports the module, if it is one of `_MODULES`."""
    if f"{module}:{qualname}" in FUNCTIONS:
        return True
    if not qualname.isidentifier() or not any(module == name or module.startswith(f"{name}.") for name in _MODULES):
        return False
    try:
        found = getattr(importlib.import_module(module), qualname, None)
    except ImportError:
        return True  # It does not exist, or needs an extra; resolving it raises an error that says so.
    library = module.partition(".")[0]
    is_defined_there = isinstance(found, type) and (found.__module__ == module and found.__qualname__ == qualname)
    return found is None or (is_defined_there and issubclass(found, library_classes()[library]))


def _script_of(record: Mapping[str, Any], params_file: Path) -> Script:
    """The script of a run, at its original path, or at its new one if it was moved together with the run."""
    said = record.get("script") or {}
    file, beside = said.get("file"), said.get("relative")
    if isinstance(file, str) and not os.path.isfile(file) and isinstance(beside, str):
        moved = os.path.normpath(params_file.resolve().parent / beside)
        file = moved if os.path.isfile(moved) else file
    return Script(file if isinstance(file, str) and os.path.isabs(file) else None, said.get("module"))


def _received_with(params_file: Path) -> list[Path]:
    """Directories that may have come with a run: its own, and the subdirectory of the current directory that contains it."""
    here, given = Path.cwd().resolve(), Path(os.path.abspath(params_file)).parent
    directories = {given, given.resolve(), params_file.resolve().parent}
    for directory in list(directories):
        for base in (here, Path.cwd()):
            if directory.is_relative_to(base) and directory != base:
                directories.add(base / directory.relative_to(base).parts[0])
    return [directory.resolve() for directory in directories]


def _library_directories() -> list[Path]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    return [Path(path).resolve() for path in paths if path]


def _file_of(module: Any) -> str | None:
    file = file_of(module)
    return None if file is None else os.path.realpath(file)


# --- Scripts ----------------------------------------------------------------------------------------------------------
_IMPORTED: dict[str, Any] = {}  # Modules of files, by their paths.


def script_module(script: Script) -> Any:
    """Return the module of a script. It is imported without the code below its main guard, unless it is the script of this process.

    Raises:
        ValueError: importing the script starts a run.
    """
    if script == running_script():
        return sys.modules["__main__"]
    if script.file is None:
        raise ValueError("An interactive session has no script to import.")
    with no_new_runs(f"Importing {script.file} starts a run. Put the code that trains below `if __name__ == '__main__':`."):
        if script.module is None:
            return import_file(Path(script.file))
        parts = Path(*str(script.module).split(".")).with_suffix(".py").parts
        if Path(script.file).parts[-len(parts) :] != parts:
            raise ValueError(f"{script.file} cannot be the module {script.module}.")
        sys.path.insert(0, str(Path(*Path(script.file).parts[: -len(parts)])))
        module = importlib.import_module(script.module)
    if _file_of(module) != os.path.realpath(script.file):
        raise ValueError(f"{script.file} is not the file that is imported as {script.module}.")
    return module


def import_file(path: Path) -> Any:
    """Return the module in a Python file, which is executed only once. Modules beside the file can be imported.

    The module has the file's name, so that worker processes find it, or a longer one if that name is taken.
    """
    key = str(path)
    if key in _IMPORTED:
        return sys.modules.setdefault(_IMPORTED[key].__name__, _IMPORTED[key])
    there = sys.modules.get(path.stem)
    if there is not None and _file_of(there) == os.path.realpath(key):
        return there
    is_free = there is None and path.stem not in sys.stdlib_module_names
    name = path.stem if is_free else f"{path.stem}_of_{path.parent.name}_{len(_IMPORTED)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # as "python file.py" does; never removed
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _IMPORTED[key] = module
    return module
