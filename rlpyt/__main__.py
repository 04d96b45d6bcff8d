"""``python -m rlpyt`` is the command ``rlpyt``."""

import sys

from rlpyt.cli import main

sys.exit(main())
