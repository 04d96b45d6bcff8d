"""Train a run of a search: ``rlpyt train``, called as launchers call a script."""

from __future__ import annotations

import argparse
import sys

from rlpyt.cli import Parser, main_of_script, train

if __name__ == "__main__":
    parser = Parser(description=train.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    train.add_arguments(parser)
    sys.exit(main_of_script(lambda: train.run(parser.parse_args())))
