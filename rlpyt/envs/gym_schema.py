"""`rlpyt.envs.gym` with structures made by schema objects instead of namedtuple classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlpyt.envs import gym
from rlpyt.envs.gym import EnvInfoWrapper, InfoConverter, infill_info
from rlpyt.spaces.gym_wrapper_schema import GymSpaceWrapper
from rlpyt.utils.collections import NamedTupleSchema
from rlpyt.utils.structures import field_names

__all__ = ["EnvInfoWrapper", "GymEnvWrapper", "infill_info", "info_to_nt", "make"]


class GymEnvWrapper(gym.GymEnvWrapper):
    """A `rlpyt.envs.gym.GymEnvWrapper` whose structures are made by `NamedTupleSchema` objects."""

    _space_wrapper = GymSpaceWrapper
    _tuple_type = NamedTupleSchema


def info_to_nt(value: Any, schemas: dict[str, NamedTupleSchema], name: str = "info") -> Any:
    """Return an info dictionary as a namedtuple made by ``schemas[name]``; return other values unchanged.

    Schemas missing from `schemas` are made and added. Keys without a field in the schema are ignored; fields without a key become 0.
    """
    if not isinstance(value, Mapping):
        return value
    if name not in schemas:
        InfoConverter(value, name, lambda name, fields: schemas.setdefault(name, NamedTupleSchema(name, fields)))
    by_field = dict(zip(field_names(value), value.values()))
    parts = []
    for field in schemas[name]._fields:
        part_name = f"{name}_{field}"
        parts.append(info_to_nt(by_field.get(field, {} if part_name in schemas else 0), schemas, part_name))
    return schemas[name]._make(parts)


def make(*args: Any, info_example: Mapping | None = None, **kwargs: Any) -> GymEnvWrapper:
    """Make and wrap an environment: `rlpyt.envs.gym.make`, with this module's wrapper."""
    return GymEnvWrapper(gym.make_gym(*args, info_example=info_example, **kwargs))
