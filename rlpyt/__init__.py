"""Deep reinforcement learning in PyTorch: policy gradient, deep Q-learning and Q-function policy gradient, at high throughput."""

import os

__version__ = "1.0.0.dev0"

# Threads of the OpenMP library that comes with PyTorch wait for more work by spinning, for milliseconds by default. Between optimizing and
# sampling that takes processors away from the environments' processes; with much shorter spinning neither loses. The library reads this
# when it is loaded, so it takes effect if rlpyt is imported before torch, or if it is in the environment already.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
