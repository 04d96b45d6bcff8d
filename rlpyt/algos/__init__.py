"""Algorithms: what to minimise, with which hyper-parameters."""
