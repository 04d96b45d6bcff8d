"""Lets tests, and the processes they spawn, import what lies directly under tests/ (``import envs``), and functions of test modules."""

import signal
import sys
from pathlib import Path

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # As a job in the background is started: but tests press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
