"""Lets tests, and the processes they spawn, import what lies directly under tests/ (``import envs``)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
