"""Collectors whose agent is in the same process as the environments."""

from rlpyt.samplers.collectors import EvalCollector, TrainingCollector


class CpuResetCollector(TrainingCollector):
    """Resets each environment as soon as its trajectory ends, within the batch."""

    mid_batch_reset = True


class CpuWaitResetCollector(TrainingCollector):
    """Resets environments between batches; until then, those whose episode has ended stand still.

    For recurrent agents, which train on a sequence only up to its first ``done``, so that beginnings of episodes would be lost; and for
    environments whose reset is so slow that it had better happen while the agent trains.
    """

    mid_batch_reset = False


class CpuEvalCollector(EvalCollector):
    """Evaluates the agent that is in the same process."""
