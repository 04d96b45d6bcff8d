"""Algorithms for data sets; `rlpyt.runners.offline_rl.OfflineRl` runs them."""
