"""The command line: ``rlpyt COMMAND``, also ``python -m rlpyt COMMAND``.

Every command is a module of this package. Its docstring is the help, and it defines

- ``add_arguments(parser)``, which declares the options;
- ``run(args)``, which does the work and returns the exit code.

These modules import slow packages (torch, matplotlib) only when they run. They print for people by `show`, because directories, and the
files in them, may be from others.

Expected errors end a command, or a script that calls `main_of_script`, with their message alone; ``--traceback`` adds the traceback.
"""

from __future__ import annotations

import argparse
import dis
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlpyt.utils.text import CompletedStream, notes_of, said, show

COMMANDS = ("train", "tune", "plot", "results", "eval", "video", "resume", "status", "info", "verify", "bisect")
USAGE_ERROR = 2  # also argparse's
INTERRUPTED = 130  # as shells expect after Ctrl-C
TRACEBACK = "--traceback"
_RAISE = dis.opmap["RAISE_VARARGS"]
Result = TypeVar("Result")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 for success, 2 for an expected error, whose message is printed.

    Args:
        argv: the arguments; None takes those of the process.
    """
    parser = make_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return USAGE_ERROR
    args = parser.parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # The reader of the output, such as head, has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if args.traceback or not (isinstance(error, (ValueError, RecursionError)) or is_expected(error)):
            raise
        show(_sentence(f"rlpyt {args.command}", error), sys.stderr)
        return USAGE_ERROR


def main_of_script(function: Callable[[], Result]) -> Result:
    """Call the main function of a script, and return its result. An expected error ends the script with its message and exit code 2.

        if __name__ == "__main__":
            main_of_script(main)

    The option ``--traceback`` of the script adds the traceback. It is removed from `sys.argv` before the call, so that the script's parser
    need not declare it.

    Args:
        function: called without arguments.

    Raises:
        SystemExit: the function raised an error that `is_expected`, or KeyboardInterrupt.
        Exception: the function raised another error, or any error with ``--traceback``.
    """
    shows_traceback = TRACEBACK in sys.argv[1:]
    sys.argv[1:] = [word for word in sys.argv[1:] if word != TRACEBACK]
    try:
        return function()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if shows_traceback or not is_expected(error):
            raise
        show(_sentence(os.path.basename(sys.argv[0]), error), sys.stderr)
        if CompletedStream(sys.stderr).isatty():  # Not in files: launchers show their last line.
            show(f"({TRACEBACK} shows where this was raised.)", sys.stderr)
        sys.exit(USAGE_ERROR)


def is_expected(error: Exception) -> bool:
    """Whether an error is a message for users, who do not need its traceback.

    Expected are errors of ``raise`` statements in this package, but not those from other code that it calls; and missing files and modules.
    """
    if isinstance(error, (ImportError, OSError)):
        return True
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None or isinstance(error, AssertionError):
        return False
    is_ours = at.tb_frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]
    return is_ours and at.tb_frame.f_code.co_code[at.tb_lasti] == _RAISE


def _sentence(who: str, error: Exception) -> str:
    """The message of an error, with its place if the error has one."""
    return "\n".join([f"{who}: {said(error)}", *notes_of(error)])


def module_of_command(name: str) -> Any:
    """Return the module of a command, which has `add_arguments` and `run`."""
    return importlib.import_module(f"{__name__}.{name}")


class Gather(argparse.Action):
    """Takes the values of an option that is repeated together, where argparse would keep only the last ones. They replace the default."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        """Add the values of one place in the command line."""
        so_far = getattr(namespace, self.dest)
        setattr(namespace, self.dest, list(values) if so_far is self.default else [*so_far, *values])


class Parser(argparse.ArgumentParser):
    """A parser of command lines whose error for an unknown option, command or choice names the nearest one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line, and refuse unknown arguments. The parser of each command gets only the arguments of that command."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            from rlpyt.utils.misc import did_you_mean

            options = [name for action in self._actions for name in action.option_strings]
            hint = did_you_mean(unknown[0].partition("=")[0], options, otherwise=f"{self.prog} --help lists all options.")
            self.error(f"unrecognized arguments: {' '.join(unknown)}. {hint}")
        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from rlpyt.utils.misc import did_you_mean

            hint = did_you_mean(value, action.choices or (), otherwise=f"{self.prog} --help explains them.")
            error.message = f"{error.message}. {hint}"
            raise


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="rlpyt",
        description="Train agents, and search for good settings; inspect, evaluate, film and resume runs.",
        epilog="Each command explains itself: rlpyt plot --help",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = module_of_command(name)
        command = commands.add_parser(
            name,
            help=str(module.__doc__).splitlines()[0].rstrip("."),
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.add_argument(TRACEBACK, help="show where an error was raised, not only its message", action="store_true")
        command.set_defaults(run=module.run)
    return parser
