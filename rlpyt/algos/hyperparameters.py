"""Settings that several algorithms have in common, and their allowed values; see `rlpyt.utils.settings`."""

from __future__ import annotations

from rlpyt.algos.schedules import SCHEDULE
from rlpyt.utils.settings import CALLABLE, COUNT, DICTIONARY, FLAG, FRACTION, POSITIVE, RATE, STEPS, ArgumentsFor, Number

__all__ = ["OF_OPTIMIZERS", "OF_REPLAY", "Number"]

OF_OPTIMIZERS = dict(
    OptimCls=CALLABLE,
    optim_kwargs=ArgumentsFor(
        "OptimCls",
        given=dict(params="the agent", lr="learning_rate"),
        by=("initialize", "optim_initialize", "make_optimizers", "make_optimizer"),
        optional=True,
    ),
    initial_optim_state_dict=DICTIONARY._replace(optional=True),
    learning_rate=RATE,
    clip_grad_norm=POSITIVE,
    lr_schedule=SCHEDULE,
)

OF_REPLAY = dict(
    OF_OPTIMIZERS,
    discount=FRACTION,
    batch_size=COUNT,
    min_steps_learn=STEPS,
    replay_size=COUNT,
    replay_ratio=Number(0, above=True, finite=True),
    n_step_return=COUNT,
    target_update_tau=FRACTION,
    target_update_interval=COUNT,
    updates_per_sync=COUNT,
    prioritized_replay=FLAG,
    prefetch_batches=FLAG,
    bootstrap_timelimit=FLAG,
)
