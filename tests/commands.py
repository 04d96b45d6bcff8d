"""Runs commands of ``rlpyt`` one after the other, in one process: ``python commands.py '["info", "DIR"]' '["eval", "DIR"]'``.

Prints, after what each of them says, a line "exit code N".
"""

import json
import sys

from rlpyt.cli import main

if __name__ == "__main__":
    for command in map(json.loads, sys.argv[1:]):
        try:
            code = main(command)
        except SystemExit as end:
            code = end.code
        print(f"exit code {code or 0}", flush=True)
