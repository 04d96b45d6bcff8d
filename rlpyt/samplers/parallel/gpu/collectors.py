"""Collectors whose agent is in an action server."""

from rlpyt.samplers.collectors import EvalCollector, TrainingCollector


class GpuResetCollector(TrainingCollector):
    """Resets each environment as soon as its trajectory ends, within the batch."""

    gpu = True
    mid_batch_reset = True


class GpuWaitResetCollector(TrainingCollector):
    """Resets environments between batches; until then, those whose episode has ended are idle. See `CpuWaitResetCollector`."""

    gpu = True
    mid_batch_reset = False


class GpuEvalCollector(EvalCollector):
    """Evaluates the agent that is in an action server."""

    gpu = True
