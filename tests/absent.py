"""Modules as if they were not installed: importable as ``absent`` here."""

import sys


def make_absent(monkeypatch, *names):
    """Let imports of these packages fail, until the test ends."""
    for module in list(sys.modules):
        if module.partition(".")[0] in names:
            monkeypatch.delitem(sys.modules, module)
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
