"""Deep reinforcement learning in PyTorch: policy gradient, deep Q-learning and Q-function policy gradient, at high throughput."""

import os

from rlpyt.utils.lazy import lazy_names
from rlpyt.utils.left_out import explain_missing_modules

__version__ = "1.0.0.dev0"

__getattr__, __dir__, __all__ = lazy_names(__name__, {"rlpyt.experiments.opening": ["load_agent", "load_policy"]})

# Threads of the OpenMP library that comes with PyTorch wait for more work by spinning, for milliseconds by default. That takes processors
# from the environments' processes between optimizing and sampling, and from other programs always. This many turns of the loop take about
# 0.1 ms, which is the time from one operation of an update to the next. The library reads the number when it is loaded, so it takes effect
# if rlpyt is imported before torch, or if it is in the environment already.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

explain_missing_modules()
