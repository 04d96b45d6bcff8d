"""Spaces and agents: arguments of models, the action spaces that agents take, and advice for other spaces."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from rlpyt.envs.base import EnvSpaces
from rlpyt.models.mlp import ObservationVector
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.masked import mask_size, without_mask
from rlpyt.spaces.parts import composite_of, integers_of, leaf_spaces
from rlpyt.spaces.rescaling import has_same_bounds
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.quick_args import arguments_of

# Kinds of action spaces for which there are agents.
DISCRETE = "one of 0 to n - 1"
SEVERAL = "an array of such numbers"
BOUNDED = "a vector with bounds -a and a"
UNBOUNDED = "a vector without bounds"
BOX = "an array of real numbers with any bounds"
COMPOSITE = "a structure of parts of these kinds"


class Demand(NamedTuple):
    """The action spaces that an agent takes: their kinds, and words for messages, between the agent's name and the space."""

    kinds: frozenset[str]
    words: str


ONE_NUMBER = Demand(
    frozenset({DISCRETE}),
    "chooses one of n discrete actions, 0 to n - 1 (Discrete, or IntBox(0, n)), but the environment's action space is",
)
ANY_BOX = Demand(
    frozenset({BOUNDED, UNBOUNDED, BOX}),
    "needs continuous actions (Box, or FloatBox), but the environment's action space is",
)
BOUNDED_VECTOR = Demand(
    frozenset({BOUNDED}),
    "needs continuous actions (Box, or FloatBox), which are vectors with the same finite bounds -a and a in every component, but the "
    "environment's action space is",
)
ANY_PARTS = Demand(
    frozenset({DISCRETE, SEVERAL, BOUNDED, UNBOUNDED, BOX, COMPOSITE}),
    "needs actions whose parts are integers from 0 on, one or several, or real numbers, but in the environment's action space there is",
)

# Agents for each kind of actions: feedforward, recurrent. Agents before the semicolon take any observations.
_PG, _DQN = "rlpyt.agents.pg", "rlpyt.agents.dqn"
_OF_VECTORS = (f"{_PG}.mlp.MlpGaussianFfAgent with A2C or PPO", f"{_PG}.mujoco.MujocoLstmAgent with A2C or PPO")
_OF_ALL_ACTIONS = (
    f"{_PG}.composite.MlpCompositeFfAgent with A2C or PPO; for images {_PG}.multi_input.MultiInputFfAgent",
    f"{_PG}.composite.MlpCompositeLstmAgent with A2C or PPO; for images {_PG}.multi_input.MultiInputLstmAgent",
)
_AGENTS = {
    DISCRETE: (
        f"{_PG}.mlp.MlpFfAgent with A2C or PPO, or {_DQN}.mlp_dqn_agent.MlpDqnAgent with DQN, "
        f"or rlpyt.agents.qpg.ensemble_sac_agent.DiscreteSacAgent with DiscreteSAC; "
        f"for images {_PG}.atari.AtariFfAgent or {_DQN}.atari.atari_dqn_agent.AtariDqnAgent",
        f"{_PG}.mlp.MlpLstmAgent with A2C or PPO, or {_DQN}.mlp_r2d1_agent.MlpR2d1Agent with R2D1; "
        f"for images {_PG}.atari.AtariLstmAgent or {_DQN}.atari.atari_r2d1_agent.AtariR2d1Agent",
    ),
    SEVERAL: _OF_ALL_ACTIONS,
    BOUNDED: (
        f"{_OF_VECTORS[0]}; for images {_PG}.multi_input.MultiInputFfAgent; for vectors also rlpyt.agents.qpg.sac_agent.SacAgent with SAC",
        f"{_OF_VECTORS[1]}; for images {_PG}.multi_input.MultiInputLstmAgent",
    ),
    UNBOUNDED: (
        f"{_OF_VECTORS[0]}; for images {_PG}.multi_input.MultiInputFfAgent",
        f"{_OF_VECTORS[1]}; for images {_PG}.multi_input.MultiInputLstmAgent",
    ),
    COMPOSITE: _OF_ALL_ACTIONS,
}
_AGENTS[BOX] = _AGENTS[UNBOUNDED]
_WITH_CONVOLUTIONS = {  # Agents with perceptrons -> their counterparts for images.
    "MlpFfAgent": f"{_PG}.atari.AtariFfAgent",
    "MlpLstmAgent": f"{_PG}.atari.AtariLstmAgent",
    "AlternatingMlpLstmAgent": f"{_PG}.atari.AlternatingAtariLstmAgent",
    "MlpDqnAgent": f"{_DQN}.atari.atari_dqn_agent.AtariDqnAgent",
    "MlpCatDqnAgent": f"{_DQN}.atari.atari_catdqn_agent.AtariCatDqnAgent",
    "MlpQrDqnAgent": f"{_DQN}.atari.atari_quantile_agents.AtariQrDqnAgent",
    "MlpIqnAgent": f"{_DQN}.atari.atari_quantile_agents.AtariIqnAgent",
    "MlpR2d1Agent": f"{_DQN}.atari.atari_r2d1_agent.AtariR2d1Agent",
    "MlpR2d1AlternatingAgent": f"{_DQN}.atari.atari_r2d1_agent.AtariR2d1AlternatingAgent",
    "MlpQrR2d1Agent": f"{_DQN}.atari.atari_r2d1_agent.AtariQrR2d1Agent",
    "MlpQrR2d1AlternatingAgent": f"{_DQN}.atari.atari_r2d1_agent.AtariQrR2d1AlternatingAgent",
    "MlpIqnR2d1Agent": f"{_DQN}.atari.atari_r2d1_agent.AtariIqnR2d1Agent",
    "MlpIqnR2d1AlternatingAgent": f"{_DQN}.atari.atari_r2d1_agent.AtariIqnR2d1AlternatingAgent",
}
_FOR_STRUCTURES = {  # Agents for images or vectors -> their counterparts for both together.
    "MlpFfAgent": f"{_PG}.multi_input.MultiInputFfAgent",
    "AtariFfAgent": f"{_PG}.multi_input.MultiInputFfAgent",
    "MujocoFfAgent": f"{_PG}.multi_input.MultiInputFfAgent",
    "MlpCompositeFfAgent": f"{_PG}.multi_input.MultiInputFfAgent",
    "MlpLstmAgent": f"{_PG}.multi_input.MultiInputLstmAgent",
    "AtariLstmAgent": f"{_PG}.multi_input.MultiInputLstmAgent",
    "MujocoLstmAgent": f"{_PG}.multi_input.MultiInputLstmAgent",
    "MlpCompositeLstmAgent": f"{_PG}.multi_input.MultiInputLstmAgent",
    "AlternatingMlpLstmAgent": f"{_PG}.multi_input.AlternatingMultiInputLstmAgent",
    "AlternatingAtariLstmAgent": f"{_PG}.multi_input.AlternatingMultiInputLstmAgent",
    "AlternatingMujocoLstmAgent": f"{_PG}.multi_input.AlternatingMultiInputLstmAgent",
    "AlternatingMlpCompositeLstmAgent": f"{_PG}.multi_input.AlternatingMultiInputLstmAgent",
    "MlpDqnAgent": f"{_DQN}.multi_input.MultiInputDqnAgent",
    "AtariDqnAgent": f"{_DQN}.multi_input.MultiInputDqnAgent",
    "MlpCatDqnAgent": f"{_DQN}.multi_input.MultiInputCatDqnAgent",
    "AtariCatDqnAgent": f"{_DQN}.multi_input.MultiInputCatDqnAgent",
    "QrDqnAgent": f"{_DQN}.multi_input.MultiInputQrDqnAgent",
    "IqnAgent": f"{_DQN}.multi_input.MultiInputIqnAgent",
    "MlpR2d1Agent": f"{_DQN}.multi_input.MultiInputR2d1Agent",
    "AtariR2d1Agent": f"{_DQN}.multi_input.MultiInputR2d1Agent",
    "MlpR2d1AlternatingAgent": f"{_DQN}.multi_input.MultiInputR2d1AlternatingAgent",
    "AtariR2d1AlternatingAgent": f"{_DQN}.multi_input.MultiInputR2d1AlternatingAgent",
    "QrR2d1Agent": f"{_DQN}.multi_input.MultiInputQrR2d1Agent",
    "QrR2d1AlternatingAgent": f"{_DQN}.multi_input.MultiInputQrR2d1AlternatingAgent",
    "IqnR2d1Agent": f"{_DQN}.multi_input.MultiInputIqnR2d1Agent",
    "IqnR2d1AlternatingAgent": f"{_DQN}.multi_input.MultiInputIqnR2d1AlternatingAgent",
}
_FEWEST_PIXELS = 32 * 32  # Perceptrons can learn from smaller grids.
_DARK = 16  # Values of uint8 that never get there are no colours.
_MOST_CHANNELS = 4  # of an image with channels last.
_MOST_VALUES = 10_000  # Of all integers of a Box together, since each gets an output of the network; also of a Discrete that is proposed.


class WrongActionSpace(ValueError):
    """An agent does not take the action space of the environment."""


def check_action_space(agent: Any, space: Any, demand: Demand) -> None:
    """Check that an agent takes an action space.

    Raises:
        WrongActionSpace: it does not. The message names an agent that takes it, or says how to declare the space for one, if possible.
    """
    change, kind = _remedy(space)
    if not change and kind in demand.kinds:
        return
    bounds = f" with bounds {space.low} to {space.high}" if isinstance(space, FloatBox) else ""  # Other spaces print their bounds.
    sentences = [" ".join(f"{type(agent).__name__} {demand.words} {space!r}{bounds}.".split())]
    agents = "" if kind is None or kind in demand.kinds else f"use {_AGENTS[kind][agent.recurrent]}"
    if change or agents:
        advice = ", and ".join(part for part in (change, agents) if part)
        sentences.append(f"{advice[0].upper()}{advice[1:]}.")
    if kind in (UNBOUNDED, BOX) and BOUNDED in demand.kinds:
        sentences.append(f"Or {_declared_vector(space)}.")
    if kind == SEVERAL and demand is ONE_NUMBER:
        sentences.append(_as_one_number(space))
    if kind is None:
        sentences.append(next((_too_many_values(part) for part in leaf_spaces(space) if _has_too_many_values(part)), ""))
    raise WrongActionSpace(" ".join(filter(None, sentences)))


def arguments_of_model(agent: Any, env_spaces: EnvSpaces) -> dict[str, Any]:
    """Return the keyword arguments of an agent's model that depend on the environment's spaces: those that ``agent.model_arguments`` names.

    Raises:
        ValueError: the model is one of ours and takes images [C,H,W], but the observations are not images.
    """
    env_spaces = EnvSpaces(without_mask(env_spaces.observation), env_spaces.action)
    arguments = {name: _MODEL_ARGUMENTS[name](agent, env_spaces) for name in agent.model_arguments}
    return {name: value for name, value in arguments.items() if value is not None}


def _image_shape(agent: Any, env_spaces: EnvSpaces) -> tuple[int, ...]:
    """Return the shape of an observation, [C,H,W] if the model is one of ours."""
    image_shape = env_spaces.observation.shape
    is_image = len(image_shape) == 3 and not any(isinstance(size, tuple) for size in image_shape)
    if composite_of(env_spaces.observation) is not None and is_of_rlpyt(agent.ModelCls):
        better = _counterpart(agent, _FOR_STRUCTURES) or f"{_PG}.multi_input.MultiInputFfAgent"
        raise ValueError(
            f"{type(agent).__name__} needs images of shape (C,H,W), but the environment's observation space is a structure, "
            f"{env_spaces.observation!r}. Use {better}, which takes images and vectors together."
        )
    if not is_image and is_of_rlpyt(agent.ModelCls):
        raise ValueError(
            f"{type(agent).__name__} needs images of shape (C,H,W), but the environment's observation space is "
            f"{env_spaces.observation!r}. For vectors use rlpyt.agents.pg.mlp.MlpFfAgent or "
            "rlpyt.agents.dqn.mlp_dqn_agent.MlpDqnAgent."
        )
    if is_image and image_shape[2] <= _MOST_CHANNELS < min(image_shape[:2]) and is_of_rlpyt(agent.ModelCls):
        raise ValueError(
            f"{type(agent).__name__} needs images of shape (C,H,W), but the environment's, {image_shape}, seem to be (H,W,C). Let "
            "it put channels first, as gymnasium.wrappers.TransformObservation does with lambda x: x.transpose(2, 0, 1)."
        )
    return image_shape


def _n_observations(agent: Any, env_spaces: EnvSpaces) -> int | None:
    """Return n if an observation is one of n integers from 0, and the model takes it by this name, else None."""
    space = CompletedSpace(env_spaces.observation)
    is_choice = len(space.shape) == 0 and space.low in (None, 0)
    return space.n if is_choice and "n_observations" in arguments_of(agent.ModelCls) else None


_MODEL_ARGUMENTS = {
    "image_shape": _image_shape,
    "observation_space": lambda agent, env_spaces: env_spaces.observation,
    "observation_shape": lambda agent, env_spaces: env_spaces.observation.shape,
    "n_observations": _n_observations,
    "output_size": lambda agent, env_spaces: env_spaces.action.n,
    "action_size": lambda agent, env_spaces: math.prod(env_spaces.action.shape),
    "distribution": lambda agent, env_spaces: agent.make_distribution(env_spaces.action),
}


def check_mask(env_spaces: EnvSpaces) -> None:
    """Raise ValueError if observations come with a mask that does not fit the action space."""
    if without_mask(env_spaces.observation) is env_spaces.observation:
        return
    shape, size = env_spaces.observation.shape.action_mask, mask_size(env_spaces.action)
    if shape != (size,):
        raise ValueError(
            f"The field 'action_mask' of observations has shape {shape}, but must have ({size},), an entry for each value of each integer "
            f"of the action space, {env_spaces.action!r}."
        )


def images_in(space: Any) -> list[Any]:
    """Return the spaces of images, which are uint8 [C,H,W] or [H,W,C], in an observation space."""
    return [part for part in _bytes_in(space) if len(part.shape) == 3]


def _bytes_in(space: Any) -> list[Any]:
    """Return the parts of an observation space that are arrays of uint8."""
    return [part for part in leaf_spaces(space) if CompletedSpace(part).dtype == np.uint8]


def check_flattened(agent: Any, space: Any) -> None:
    """Log what to do if models of the agent flatten images among its observations into a vector, or make small numbers tiny.

    Args:
        agent: an agent whose models have been made.
        space: of observations.
    """
    flattening = [name for name, model in agent.models_by_class().items() if _flattens(model, space)] if _bytes_in(space) else []
    if not flattening:
        return
    _check_scale(agent, space)
    images = [image for image in images_in(space) if math.prod(image.shape) >= _FEWEST_PIXELS]
    if not images:
        return
    path = None if composite_of(space) is not None else _counterpart(agent, _WITH_CONVOLUTIONS)
    path = _counterpart(agent, _FOR_STRUCTURES) if path is None else path
    advice = f"Give it models with convolutions, as {' and '.join(flattening)}."
    if path is not None:
        advice = f"Use {path}, which has convolutions"
        are_first = all(image.shape[0] <= image.shape[2] for image in images)
        advice += "." if are_first else ", and let the environment put channels first: [C,H,W]."
    shapes = " and ".join(str(image.shape) for image in images)
    logger.warn(f"{type(agent).__name__} flattens images of shape {shapes} into a vector, and hardly learns from them. {advice}")


def _flattens(model: Any, space: Any) -> bool:
    """Return whether a model turns whole observations of a space into a vector, other than one-hot."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    vectors = [module for module in modules if isinstance(module, ObservationVector)]
    return any(vector.observation_shape == space.shape and vector.n_values is None for vector in vectors)


def _check_scale(agent: Any, space: Any) -> None:
    """Log what to do if `ObservationVector`, which divides uint8 by 255, makes numbers tiny that are not the colours of pixels."""
    highest = [(part.shape, CompletedSpace(part).high) for part in _bytes_in(space) if len(part.shape) != 3 and 0 not in part.shape]
    shapes = [str(shape) for shape, high in highest if high is not None and np.max(high) < _DARK]
    if shapes:
        logger.warn(
            f"{type(agent).__name__} divides observations of uint8 by 255, also those of shape {' and '.join(shapes)}, whose numbers are "
            "small: let the environment give these as float32 or int8."
        )


def _remedy(space: Any) -> tuple[str, str | None]:
    """Return the change of the environment ("" for none) that lets an agent take its actions, and the kind of the changed actions.

    The kind is None if no change is known.
    """
    composite = composite_of(space)
    if composite is not None:
        parts = [(name, *_remedy(part)) for name, part in zip(composite.names, composite.spaces)]
        if any(kind is None for *_, kind in parts):
            return "", None
        return ", and ".join(f"in its part {name!r} {change}" for name, change, _ in parts if change), COMPOSITE
    kind = _kind_of_box(space)
    if kind is not None:
        return "", kind
    integers = integers_of(space)
    return ("", None) if integers is None else _remedy_for_integers(space, *integers)


def _counterpart(agent: Any, agents: dict[str, str]) -> str | None:
    """Return the entry of `agents` for the agent's class or the nearest of its bases that has one."""
    return next((agents[cls.__name__] for cls in type(agent).__mro__ if cls.__name__ in agents), None)


def _kind_of_box(space: Any) -> str | None:
    """Return BOUNDED or UNBOUNDED for vectors with the same bounds -a and a in every component, BOX for other real numbers, else None."""
    if CompletedSpace(space).n is not None or CompletedSpace(space).high is None or np.dtype(space.dtype).kind != "f" or 0 in space.shape:
        return None
    if len(space.shape) != 1 or not has_same_bounds(space.low, space.high):
        return BOX
    return BOUNDED if np.isfinite(space.high).all() else UNBOUNDED


def _remedy_for_integers(space: Any, n: np.ndarray, low: np.ndarray) -> tuple[str, str | None]:
    if not n.size or (n < 1).any() or _has_too_many_values(space):
        return "", None
    is_one = CompletedSpace(space).n is not None and n.shape == ()
    kind = DISCRETE if is_one else SEVERAL
    if not low.any():
        return "", kind
    if isinstance(space, GymSpaceWrapper):
        return f"declare MultiDiscrete({n.tolist()}, start={low.tolist()}) in the environment", kind
    shape = "" if is_one else f", {n.shape}"
    first = int(low.flat[0])  # All are alike in an IntBox.
    declared = f"IntBox(0, {int(n.flat[0])}{shape})"
    return f"declare {declared} in the environment and add {first}, as rlpyt.envs.from_zero.FromZero does, since it starts at {first}", kind


def _has_too_many_values(space: Any) -> bool:
    """Return whether a Box of integers has more values than an agent takes. Other spaces say that each value is a choice by itself."""
    completed = CompletedSpace(space)
    is_box = completed.n is None and completed.nvec is None and completed.high is not None and np.dtype(space.dtype).kind in "iu"
    return is_box and _n_values(space) > _MOST_VALUES


def _n_values(box: Any) -> int:
    """Return how many values the integers of a Box have together, also if no integer of numpy is large enough for that."""
    low, high = (np.asarray(bound).ravel().tolist() for bound in (box.low, box.high))
    return sum(high) - sum(low) + len(low)


def _too_many_values(box: Any) -> str:
    return (
        f"An agent takes a Box of integers with up to {_MOST_VALUES:,} values, those of all integers together, as each needs an output. "
        f"Here are {_n_values(box):,}: let the environment take real numbers (a Box of float32), or fewer values. Discrete, MultiDiscrete "
        "and MultiBinary may have any number."
    )


def _as_one_number(space: Any) -> str:
    """Return how to make one number of several, or "" if there would be too many."""
    n, _ = integers_of(space) or (np.zeros(0), None)
    combinations = math.prod(n.ravel().tolist())
    if combinations > _MOST_VALUES:
        return ""
    declared = f"Discrete({combinations})" if isinstance(space, GymSpaceWrapper) else f"IntBox(0, {combinations})"
    return (
        f"Or declare {declared} in the environment, a number for each combination, which numpy.unravel_index turns into {n.size} integers."
    )


def _declared_vector(space: Any) -> str:
    """Return how to change a Box for agents that need the same finite bounds -a and a."""
    name = "Box" if isinstance(space, GymSpaceWrapper) else "FloatBox"
    low, high, is_vector = np.asarray(space.low), np.asarray(space.high), len(space.shape) == 1
    if not is_vector:
        do = "reshape actions" if (high == 1).all() and (low == -1).all() else "reshape and rescale actions"
    else:
        is_finite = np.isfinite(low).all() and np.isfinite(high).all()
        do = "rescale actions" + (", as gymnasium.wrappers.RescaleAction does for a Box" if is_finite else "")
    return f"declare {name}(-1, 1, ({math.prod(space.shape)},)) in the environment and {do}"
