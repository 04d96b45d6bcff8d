"""Settings that several algorithms have in common, and their allowed values; see `rlpyt.utils.settings`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rlpyt.algos.schedules import SCHEDULE
from rlpyt.utils.logging import logger
from rlpyt.utils.quick_args import arguments_of
from rlpyt.utils.settings import CALLABLE, COUNT, DICTIONARY, FLAG, FRACTION, POSITIVE, RATE, STEPS, ArgumentsFor, Number, shown

__all__ = ["OF_OPTIMIZERS", "OF_REPLAY", "PRIORITIES", "Needs", "Number", "check_effects"]

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


class Needs(NamedTuple):
    """Settings that have an effect only with another one.

    Attributes:
        names: the settings.
        what: the other setting, as a constructor's argument.
        is_given: says, of the object with all settings as attributes, whether the other one is given.
        may_be_left: configurations switch the other setting off and keep these: a warning, not an error.
    """

    names: tuple[str, ...]
    what: str
    is_given: Callable[[Any], bool]
    may_be_left: bool = False


PRIORITIES = Needs(
    ("pri_alpha", "pri_beta_init", "pri_beta_final", "pri_beta_steps", "pri_eta", "default_priority"),
    "prioritized_replay=True",
    lambda algo: algo.prioritized_replay,
    may_be_left=True,
)
TRACES = Needs(("c_clip",), "gae_lambda above 0", lambda algo: algo.gae_lambda > 0)


def check_effects(owner: Any, needs: Iterable[Needs]) -> None:
    """Check that no setting is switched off by another one. Settings with the default of their class are not looked at.

    Raises:
        ValueError: a setting has no effect; the message says which one it needs.
    """
    defaults = {name: argument.default for name, argument in arguments_of(type(owner)).items()}
    for each in needs:
        if each.is_given(owner):
            continue
        for name in each.names:
            value = getattr(owner, name, None)
            if name not in defaults or value is defaults[name] or value == defaults[name]:
                continue
            message = f"{type(owner).__name__}: {name}={shown(value)} has no effect without {each.what}: give both, or leave {name} out."
            if not each.may_be_left:
                raise ValueError(message)
            logger.warn(message)
