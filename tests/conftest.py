"""Lets tests, and the processes they spawn, import what lies directly under tests/ (``import envs``), and functions of test modules."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]
