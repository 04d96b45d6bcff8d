"""Tiny runs, to see whether everything works: the option ``--smoke`` of examples and of ``rlpyt train``."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from rlpyt.experiments.configs import variant
from rlpyt.utils.quick_args import arguments_of
from rlpyt.utils.recipes import arguments_given, made_again

SMOKE = dict(  # No setting is larger than this in a tiny run.
    algo=dict(
        **dict(batch_size=32, replay_ratio=8, min_steps_learn=128, replay_size=2048),
        **dict(batch_T=8, warmup_T=4, store_rnn_state_interval=4, epochs=2, minibatches=4),
    ),
    runner=dict(n_steps=256, log_interval_steps=128),
    sampler=dict(batch_T=32, batch_B=4, max_decorrelation_steps=10, eval_n_envs=2, eval_max_steps=60),
)


def tiny(runner: Any) -> Any:
    """Return a runner with the same agent, environments and classes, whose run takes seconds: no setting is above SMOKE.

    The constructors of algorithm, sampler and runner are called again. If every column has a different environment, the number of
    columns stays the same.

    Args:
        runner: must not be used afterwards, because the new runner takes over its agent.
    """
    algo, sampler = (made_again(part, **_limits(name, part)) for name, part in (("algo", runner.algo), ("sampler", runner.sampler)))
    algo.accelerate(**{name: getattr(runner.algo, name) for name in arguments_of(algo.accelerate)})
    return made_again(runner, algo=algo, sampler=sampler, **_limits("runner", runner))


def _limits(section: str, made: Any) -> dict[str, Any]:
    given = arguments_given(made)
    changes = limits(section, type(made), given)
    envs = (given.get(name) for name in ("EnvCls", "env_kwargs", "eval_EnvCls", "eval_env_kwargs"))
    fixed = ("batch_B", "eval_n_envs") if any(isinstance(value, (list, tuple)) for value in envs) else ()
    return {name: value for name, value in changes.items() if name not in fixed}


def limits(section: str, cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a section that SMOKE limits: those in `values`, and defaults of the section's class."""
    defaults = {name: a.default for name, a in arguments_of(cls).items() if a.default is not a.empty}
    values = {**defaults, **values}
    # What is no number is refused by the class.
    return {name: min(values[name], limit) for name, limit in SMOKE[section].items() if isinstance(values.get(name), Real) and values[name]}


def limited(config: Mapping[str, Any], classes: Mapping[str, Any]) -> dict[str, dict]:
    """Return the configuration with no setting above SMOKE, including defaults of the sections' classes."""
    return variant(config, **{section: limits(section, classes[section], config[section]) for section in SMOKE})
