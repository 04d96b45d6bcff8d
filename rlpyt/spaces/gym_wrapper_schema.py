"""`rlpyt.spaces.gym_wrapper` with structures made by schema objects instead of namedtuple classes."""

from __future__ import annotations

from typing import Any

from rlpyt.spaces import gym_wrapper
from rlpyt.spaces.gym_wrapper import nt_to_dict, to_namedtuples
from rlpyt.utils.collections import NamedTupleSchema

__all__ = ["GymSpaceWrapper", "dict_to_nt", "nt_to_dict"]


class GymSpaceWrapper(gym_wrapper.GymSpaceWrapper):
    """A `rlpyt.spaces.gym_wrapper.GymSpaceWrapper` whose structures are made by `NamedTupleSchema` objects.

    Args:
        schemas: dictionary to which the schema of every Dict and Tuple is added, under its type name (``name``, ``name_key``, ...).
    """

    def __init__(
        self,
        space: Any,
        null_value: Any = 0,
        name: str = "obs",
        force_float32: bool = True,
        schemas: dict[str, NamedTupleSchema] | None = None,
    ) -> None:
        self.schemas = {} if schemas is None else schemas
        super().__init__(space, null_value=null_value, name=name, force_float32=force_float32)

    def tuple_type(self, name: str, fields: list[str]) -> NamedTupleSchema:
        """Return a schema, and add it to `schemas`."""
        self.schemas[name] = NamedTupleSchema(name, fields)
        return self.schemas[name]

    def _wrap_part(self, space: Any, null_value: Any, name: str) -> GymSpaceWrapper:
        return type(self)(space, null_value, name, self._force_float32, schemas=self.schemas)


def dict_to_nt(value: Any, name: str, schemas: dict[str, NamedTupleSchema]) -> Any:
    """Turn a dictionary, and any inside it, into namedtuples of ``schemas[name]``, ``schemas[name_key]``, ...; make missing schemas."""
    return to_namedtuples(value, name, lambda name, fields: schemas.setdefault(name, NamedTupleSchema(name, fields)))
