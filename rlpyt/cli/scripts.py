"""Command lines of scripts: the arguments of a function are the options, and its docstring explains them."""

from __future__ import annotations

import argparse
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rlpyt.cli import TRACEBACK, Gather, Parser, Result, main_of_script

COMMON = dict(  # Help for common arguments without a docstring entry.
    run_ID="number of the run, part of its directory",
    log_dir="directory of the experiment: absolute, or a name, which is put below data/local/<date>/<time>/",
    seed="the same seed gives the same run; default: a new one",
    cuda_idx="GPU to use; default: none",
    smoke="a tiny run, to see whether everything works",
)
DIGEST = "record digests in each row of the log, with which rlpyt verify and rlpyt bisect compare runs bit for bit"


def command_line(function: Callable[..., Result], description: str, *others: Callable, **choices: Collection[str]) -> Result:
    """Call the main function of a script with arguments from the command line. Expected errors end the script with their message.

        def build(game: str = "pong", seed: int | None = None):
            '''Return the runner.

            Args:
                game: Atari game.
            '''

        def build_and_train(run_ID: int = 0, **settings):
            '''Train; the other settings are those of `build`.'''
            ...

        if __name__ == "__main__":
            command_line(build_and_train, __doc__, build)

    Options have the names and defaults of the arguments, and the types of their annotations: ``str``, ``int``, ``float``, ``bool``, a
    sequence of one of these, or one of these or None. (Without an annotation: the type of the default, or int if that is None.) Their help
    is in the ``Args`` of the docstrings, or in COMMON. Arguments without a default are positional, in the same order.

    Every script also has the option ``--digest``, which sets `rlpyt.runners.digests.set_digest`, unless its function has such an argument.

    Args:
        function: the main function.
        description: description of the script, usually its docstring.
        others: functions to which the main function passes its ``**settings``.
        choices: the allowed values of options, by name.

    Returns:
        The result of the function.
    """
    parser = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.epilog = f"With {TRACEBACK}, errors show where they were raised."
    functions = (function, *others)
    helps = {name: text for each in reversed(functions) for name, text in _helps(each).items()}
    arguments = _arguments(functions)
    has_places = any(parameter.default is parameter.empty for parameter, _ in arguments.values())
    for name, (parameter, kind) in arguments.items():
        settings = _reading(kind, parameter.default, has_places)
        if name in choices:
            settings["choices"] = list(choices[name])
        names = [name] if parameter.default is parameter.empty else [f"--{name}"]
        if names != [name]:
            settings["default"] = parameter.default
        parser.add_argument(*names, help=helps.get(name, COMMON.get(name, "")).replace("%", "%%"), **settings)
    has_own = "digest" in arguments
    if not has_own:
        parser.add_argument("--digest", action="store_true", help=DIGEST)

    def main() -> Result:
        settings = vars(parser.parse_args())
        if not has_own and settings.pop("digest"):
            from rlpyt.runners.digests import set_digest

            set_digest(True)
        return function(**settings)

    return main_of_script(main)


def true_or_false(text: str) -> bool:
    """Read a truth value; `bool` would turn every text into True, even "false"."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def _arguments(functions: Sequence[Callable]) -> dict[str, tuple[inspect.Parameter, Any]]:
    """Arguments of the functions by name: the parameter of the first function that has it, and its annotation or None."""
    found: dict[str, tuple[inspect.Parameter, Any]] = {}
    for each in functions:
        annotations = typing.get_type_hints(each)
        for name, parameter in inspect.signature(each).parameters.items():
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                found.setdefault(name, (parameter, annotations.get(name)))
    return found


def _reading(kind: Any, default: Any, has_places: bool) -> dict[str, Any]:
    """Keywords of `add_argument` for a type. With positional arguments, flags take no value, because they could take one of those."""
    if kind is None:
        kind = Sequence[int] if isinstance(default, (list, tuple)) else int if default is None else type(default)
    if kind is type:  # The type of a missing default.
        kind = str
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = (each for each in typing.get_args(kind) if each is not type(None))
    if kind is bool and has_places:
        return dict(action="store_true")
    if kind is bool:
        return dict(nargs="?", const=True, type=true_or_false, metavar="true|false")
    if typing.get_origin(kind) is not None:
        return dict(nargs="*", action=Gather, type=typing.get_args(kind)[0])
    return dict(type=kind)


def _helps(function: Callable) -> dict[str, str]:
    """Descriptions of arguments in the ``Args`` section of a docstring, by name."""
    section = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
