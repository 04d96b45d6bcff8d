"""Collectors whose agent is in the same process as the environments."""

from rlpyt.samplers.collectors import EvalCollector, TrainingCollector


class CpuResetCollector(TrainingCollector):
    """Resets each environment as soon as its trajectory ends, within the batch."""

    mid_batch_reset = True


class CpuWaitResetCollector(TrainingCollector):
    """Resets environments between batches; until then, those whose episode has ended are idle.

    This suits recurrent agents, which train on a sequence only up to its first ``done`` and would lose the beginnings of episodes. It also
    suits environments with a slow reset, which then happens while the agent trains.
    """

    mid_batch_reset = False


class CpuEvalCollector(EvalCollector):
    """Evaluates the agent that is in the same process."""
