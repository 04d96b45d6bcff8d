"""Whole episodes: data types for them, and what collects, records, replays and measures them.

Names are imported from their modules when they are first asked for, so that this import is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "rlpyt.episodes.specs": ["EnvSpec", "EnvStep", "InOutSpec", "StepType", "TimeStep"],
    "rlpyt.episodes.batch": ["EpisodeBatch", "TimeStepBatch"],
    "rlpyt.episodes.assembler": ["EpisodeAssembler"],
    "rlpyt.episodes.performance": ["log_multitask_performance", "log_performance"],
    "rlpyt.episodes.environment": ["Environment", "Wrapper", "as_environment", "as_gymnasium", "as_rlpyt"],
    "rlpyt.episodes.evaluation": ["obtain_evaluation_episodes", "rollout"],
    "rlpyt.experiment.wrap": ["ExperimentContext", "wrap_experiment"],
    "rlpyt.utils.optim": ["make_optimizer"],
    "rlpyt.runners.trainer": ["NotSetupError", "TrainArgs", "Trainer"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)

_LEFT_OUT = {"TFTrainer": "There is no TFTrainer: rlpyt trains with PyTorch. Trainer takes the same arguments, but for `sess`."}


def __getattr__(name: str) -> Any:
    if name in _LEFT_OUT:
        raise ImportError(_LEFT_OUT[name])
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}.")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
