"""Hopper-v5 with observations of positions only, 5 of 11 numbers."""

from rlpyt.experiments.configs import variant
from rlpyt.experiments.configs.mujoco import halfcheetah_without_velocities as halfcheetah

classes, classes_by_key = halfcheetah.classes, halfcheetah.classes_by_key

configs = {key: variant(config, env=dict(id="Hopper-v5", components=list(range(5)))) for key, config in halfcheetah.configs.items()}
