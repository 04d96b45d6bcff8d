"""Whole episodes: data types, and classes that collect, record, replay and measure them.

Names are imported from their modules at their first use, so that this import is cheap.
"""

from __future__ import annotations

from rlpyt.utils.lazy import lazy_names

_MODULES = {
    "rlpyt.envs.specs": ["EnvSpec", "EnvStep", "InOutSpec", "StepType", "TimeStep"],
    "rlpyt.episodes.batch": ["EpisodeBatch", "TimeStepBatch"],
    "rlpyt.episodes.assembler": ["EpisodeAssembler"],
    "rlpyt.episodes.performance": ["log_multitask_performance", "log_performance"],
    "rlpyt.envs.environment": ["Environment", "Wrapper"],
    "rlpyt.envs.adapters": ["as_environment", "as_gymnasium", "as_rlpyt"],
    "rlpyt.samplers.episodic.evaluation": ["obtain_evaluation_episodes", "rollout"],
    "rlpyt.experiments.wrap": ["ExperimentContext", "wrap_experiment"],
    "rlpyt.utils.optim": ["make_optimizer"],
    "rlpyt.runners.trainer": ["NotSetupError", "TrainArgs", "Trainer"],
}
_LEFT_OUT = {"TFTrainer": "There is no TFTrainer: rlpyt trains with PyTorch. Trainer takes the same arguments, but for `sess`."}

__getattr__, __dir__, __all__ = lazy_names(__name__, _MODULES, _LEFT_OUT)
