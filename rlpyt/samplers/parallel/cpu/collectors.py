"""Collectors whose agent is in the same process as the environments."""

from rlpyt.samplers.collectors import EvalCollector, TrainingCollector


class CpuResetCollector(TrainingCollector):
    """Resets each environment as soon as its trajectory ends, within the batch."""

    mid_batch_reset = True


class CpuEvalCollector(EvalCollector):
    """Evaluates the agent that is in the same process."""
