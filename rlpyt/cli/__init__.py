"""The command line: ``rlpyt COMMAND``, also ``python -m rlpyt COMMAND``.

Every command is a module of this package, whose docstring is its help, with

- ``add_arguments(parser)``, which declares its options;
- ``run(args)``, which does the work and returns the exit code.

These modules import what takes time (torch, matplotlib) only when they run. What they print for people, they print by `show`, because
directories, and the files in them, may have been made by others.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from rlpyt.utils.text import show

COMMANDS = ("train", "plot", "eval", "video", "resume", "status", "info")
USAGE_ERROR = 2  # also argparse's
INTERRUPTED = 130  # what a shell expects after Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 if all went well, 2 for what cannot be done, which is said in a sentence.

    Args:
        argv: the arguments; None takes those of the process.
    """
    args = make_parser().parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # Whoever read the output, such as head, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, ImportError, OSError, RecursionError) as error:
        show(f"rlpyt {args.command}: {error}", sys.stderr)
        return USAGE_ERROR


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="rlpyt",
        description="Train, look at runs, play what they have learned, and go on with them.",
        epilog="Each command explains itself: rlpyt plot --help",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"{__name__}.{name}")
        command = commands.add_parser(
            name,
            help=module.__doc__.splitlines()[0].rstrip("."),
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
