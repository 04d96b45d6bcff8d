"""Spaces of gymnasium (and of classic gym) as rlpyt spaces."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlpyt.spaces.base import CompletedSpace, Space
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.rescaling import rescaling_of
from rlpyt.utils.collections import dynamic_namedtuple, fields_of, remade
from rlpyt.utils.structures import dtype_of, field_names

ARRAY_SPACES = ("Box", "MultiDiscrete", "MultiBinary")
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # by the size in bytes
SUPPORTED_SPACES = (*ARRAY_SPACES, "Discrete", "Tuple", "Dict")


class GymSpaceWrapper(Space):
    """Gives a gym space the rlpyt interface, and translates values between the two.

    =====================  ==========================================================================================
    gym space              value on the rlpyt side
    =====================  ==========================================================================================
    Box                    array; float64 becomes float32 if `force_float32`
    Discrete               index in ``0 .. n-1``: `convert` subtracts the space's ``start``, `revert` adds it
    MultiDiscrete          array of indexes from 0 (``start`` as for Discrete)
    MultiBinary            array
    Dict                   namedtuple; keys that are not valid names are changed (``a.b`` to ``a_b``), and changed back
    Tuple                  namedtuple with fields ``item_0``, ``item_1``, ...
    =====================  ==========================================================================================

    Dict and Tuple may be nested; the attribute `space` is then a `Composite` of wrapped spaces, and otherwise the gym space itself.
    Gym classes are recognized by name, so that neither gymnasium nor gym is imported here. `sample` always uses the gym space's
    generator.

    Args:
        space: a gym space; ValueError if it, or one inside it, is not listed above.
        null_value: fills the null value; for a Dict, may be a dictionary with a value for each key.
        name: name of the namedtuple types made here, and of the value in error messages.
        force_float32: let float64 boxes appear as float32.

    Attributes:
        is_same_in_gym: values are the same on both sides.
    """

    # Makes the type of structured values from a name and field names.
    tuple_type: Callable[[str, list[str]], Any] = staticmethod(dynamic_namedtuple)

    def __init__(self, space: Any, null_value: Any = 0, name: str = "obs", force_float32: bool = True) -> None:
        self._gym_space = space
        self._null_value = null_value
        self._name = name
        self._force_float32 = force_float32
        self._kind = _kind_of(space, name)
        self._warned = False
        self._parent: tuple[GymSpaceWrapper, Any] | None = None  # the Dict or Tuple that contains this space, and the key in it
        self.space = space
        if self._kind in ("Dict", "Tuple"):
            self._wrap_parts()
        else:
            self._gym_dtype = np.dtype(space.dtype)
            self._dtype = np.dtype("float32") if force_float32 and self._gym_dtype == "float64" else self._gym_dtype
            self._shape = tuple(space.shape)
            start = CompletedSpace(space).start
            self._start = start if np.any(start) else None
            n_values = {"Discrete": CompletedSpace(space).n, "MultiDiscrete": CompletedSpace(space).nvec}.get(self._kind)
            self._n_values = None if n_values is None else np.asarray(n_values, np.uint64)
        self.is_same_in_gym = not self.is_structured and self._start is None and self._dtype == self._gym_dtype

    def _wrap_parts(self) -> None:
        if self._kind == "Dict":
            parts = dict(self._gym_space.spaces.items())
            fields = field_names(parts)
        else:
            parts = dict(enumerate(self._gym_space.spaces))
            fields = [f"item_{i}" for i in parts]
        nulls = self._null_value if isinstance(self._null_value, Mapping) else dict.fromkeys(parts, self._null_value)
        wrapped = []
        for (key, part), field in zip(parts.items(), fields):
            wrapped.append(self._wrap_part(part, nulls.get(key, 0), f"{self._name}_{field}"))
            wrapped[-1]._parent = self, key
        self._parts = list(zip(parts, wrapped))
        self._tuple_cls = self.tuple_type(self._name, fields)
        self.space = Composite(wrapped, self._tuple_cls)

    def _wrap_part(self, space: Any, null_value: Any, name: str) -> GymSpaceWrapper:
        return type(self)(space, null_value=null_value, name=name, force_float32=self._force_float32)

    @property
    def _path(self) -> str:
        """Name of this space in messages, e.g. ``observation['camera']['left']``."""
        if self._parent is None:
            return self._name
        parent, key = self._parent
        return f"{parent._path}[{key!r}]"

    @property
    def is_structured(self) -> bool:
        """Whether values are namedtuples (of a Dict or a Tuple)."""
        return self._kind in ("Dict", "Tuple")

    @property
    def is_plain_array(self) -> bool:
        """Whether values are arrays that need no translation and no check except, possibly, a cast from float64."""
        return self._kind in ARRAY_SPACES and self._n_values is None

    def sample(self) -> Any:
        """Return one sample: a namedtuple, an array, or a numpy integer (from Discrete)."""
        return self.convert(self._gym_space.sample())

    def null_value(self) -> Any:
        """Return the null value, in the form of a sample."""
        if self.is_structured:
            return self.space.null_value()
        null_value = np.zeros(self._shape, dtype=self._dtype)
        null_value[...] = 0 if self._null_value is None else self._null_value
        return null_value[()]  # For Discrete a numpy integer, like the samples.

    def convert(self, value: Any) -> Any:
        """Translate a value of the gym environment into its rlpyt form.

        Raises:
            ValueError: wrong shape, keys or integer. TypeError: a dtype that cannot hold the value. Both name the part.
        """
        if self._kind == "Discrete":
            return self._to_index(value)
        if self.is_structured:
            return self._to_namedtuple(value)
        if not (type(value) is np.ndarray and value.dtype == self._gym_dtype and value.shape == self._shape):
            value = self._fit(value)
        if self._n_values is not None:
            value = self._from_zero(value)
        return value if value.dtype == self._dtype else value.astype(self._dtype)

    def revert(self, value: Any) -> Any:
        """Translate a value from its rlpyt form into that of the gym environment: the inverse of `convert`."""
        if self.is_same_in_gym:
            return value
        if self._kind == "Dict":
            return {key: part.revert(v) for (key, part), v in zip(self._parts, tuple(value))}
        if self._kind == "Tuple":
            return tuple(part.revert(v) for (_, part), v in zip(self._parts, tuple(value)))
        if self._start is not None:
            return value + self._start
        return np.asarray(value, dtype=self._gym_dtype)

    def convert_into(self, values: Any, out: Any) -> None:
        """Translate values ``[n,...]`` of a gym vector into their rlpyt form, and write them into `out`, arrays ``[n,...]``.

        Raises:
            ValueError: wrong shape, keys or integers. TypeError: a dtype that cannot hold the values. Both name the part.
        """
        if self.is_structured:
            try:
                parts = [values[key] for key, _ in self._parts]
            except (KeyError, IndexError, TypeError):
                keys = [key for key, _ in self._parts]
                raise ValueError(f"{self._path}: expected the parts {keys}, got {values!r}.") from None
            for value, (_, part), part_out in zip(parts, self._parts, tuple(out)):
                part.convert_into(value, part_out)
            return
        array = np.asarray(values)
        if array.shape != out.shape:
            raise ValueError(f"{self._path}: expected shape {out.shape}, got {array.shape}.")
        if array.dtype != self._gym_dtype and not np.can_cast(array.dtype, self._gym_dtype, casting="same_kind"):
            raise TypeError(f"{self._path}: expected dtype {self._gym_dtype}, got {array.dtype}, which cannot be cast safely.")
        out[...] = array if self._n_values is None else self._from_zero(array)

    def _from_zero(self, values: np.ndarray) -> np.ndarray:
        """Return integers ``[*lead,...]`` of a Discrete or MultiDiscrete space, counted from 0; raise ValueError if any is not in it."""
        indexes = values if self._start is None else np.subtract(values, self._start, dtype=np.int64)
        unsigned = indexes.view(_UNSIGNED[indexes.itemsize])  # Negative numbers are large ones.
        if (unsigned >= self._n_values).any():
            start: Any = 0 if self._start is None else self._start
            n_values: Any = self._n_values
            first, last = (np.array(bound).tolist() for bound in (start, start + n_values.astype(np.int64) - 1))
            raise ValueError(f"{self._path}: expected integers from {first} to {last}, got {values.tolist()}.")
        return indexes

    def _to_index(self, value: Any) -> np.integer:
        start = self._start or 0
        try:
            index = operator.index(value) - int(start)
        except TypeError:
            raise TypeError(f"{self._path}: expected an integer, got {value!r}.") from None
        if not 0 <= index < self._gym_space.n:
            raise ValueError(f"{self._path}: expected an integer from {start} to {start + self._gym_space.n - 1}, got {value}.")
        make: Any = self._dtype.type
        return make(index)

    def _to_namedtuple(self, value: Any) -> Any:
        if self._kind == "Dict":
            if not isinstance(value, Mapping) or len(value) != len(self._parts):
                self._refuse_keys(value)
            try:
                values = [part.convert(value[key]) for key, part in self._parts]
            except KeyError:
                self._refuse_keys(value)
                raise
        else:
            if not isinstance(value, (tuple, list)) or len(value) != len(self._parts):
                got = f"{len(value)}" if isinstance(value, (tuple, list)) else f"a {type(value).__name__}"
                raise ValueError(f"{self._path}: expected a tuple of {len(self._parts)} parts, got {got}.")
            values = [part.convert(v) for (_, part), v in zip(self._parts, tuple(value))]
        return self._tuple_cls(*values)

    def _refuse_keys(self, value: Any) -> None:
        keys = {key for key, _ in self._parts}
        if not isinstance(value, Mapping):
            raise ValueError(f"{self._path}: expected a dictionary with keys {sorted(keys)}, got {type(value).__name__}.")
        missing, unknown = keys - set(value), set(value) - keys
        if missing or unknown:
            raise ValueError(
                f"{self._path}: expected keys {sorted(keys)}, got {sorted(value, key=str)} "
                f"(missing {sorted(missing)}, not in the space {sorted(unknown, key=str)})."
            )

    def _fit(self, value: Any) -> np.ndarray:
        """Return `value` as an array of the gym space's shape and dtype; raise an error if this is impossible."""
        array = np.asarray(value)
        if array.shape != self._shape:
            raise ValueError(f"{self._path}: expected shape {self._shape}, got {array.shape}.")
        if array.dtype == self._gym_dtype:
            return array
        if dtype_of(value) is None and fits_losslessly(array, self._gym_dtype):
            return array.astype(self._gym_dtype)  # Python's numbers have no dtype to check.
        if not np.can_cast(array.dtype, self._gym_dtype, casting="same_kind"):
            raise TypeError(f"{self._path}: expected dtype {self._gym_dtype}, got {array.dtype}, which cannot be cast safely.")
        if not self._warned and array.dtype != self._dtype:
            self._warned = True
            warnings.warn(
                f"{self._path}: the space says {self._gym_dtype} but the values are {array.dtype}; they are cast.",
                stacklevel=4,
            )
        return array.astype(self._gym_dtype)

    @property
    def dtype(self) -> Any:
        """dtype of values; for structures a namedtuple of dtypes."""
        return self.space.dtype if self.is_structured else self._dtype

    @property
    def shape(self) -> Any:
        """Shape of values; for structures a namedtuple of shapes."""
        return self.space.shape if self.is_structured else self._shape

    @property
    def low(self) -> Any:
        """Lower bounds of a Box, in `dtype`; AttributeError for other spaces, like `high`."""
        return np.asarray(self._gym_space.low, dtype=self._dtype)

    @property
    def high(self) -> Any:
        """Upper bounds of a Box, in `dtype`."""
        return np.asarray(self._gym_space.high, dtype=self._dtype)

    @property
    def n(self) -> Any:
        """Number of elements of Discrete or of bits of MultiBinary; AttributeError for other spaces."""
        return _as_int(self._gym_space.n)

    @property
    def nvec(self) -> np.ndarray:
        """Numbers of elements of MultiDiscrete; AttributeError for other spaces."""
        return self._gym_space.nvec

    @property
    def names(self) -> tuple[str, ...]:
        """Field names of structured values; AttributeError for other spaces."""
        return self.space.names

    @property
    def spaces(self) -> list[Space]:
        """The wrapped parts of a structure, in the order of `names`; AttributeError for other spaces."""
        return self.space.spaces

    def contains(self, x: Any) -> bool:
        """Say whether `x`, in its rlpyt form, belongs to the space.

        Where float64 appears as float32, the bounds are rounded like the values: 0.1 is larger in float32 than in float64.
        """
        if self.is_structured:
            return self.space.contains(x)
        if self._kind == "Box" and self._dtype != self._gym_dtype:
            array = np.asarray(x)
            if array.shape != self._shape or not np.can_cast(array.dtype, self._gym_dtype):
                return False
            with np.errstate(over="ignore"):  # The bounds may be the largest numbers of float64.
                array = array.astype(self._dtype)
                return bool(((array >= self.low) & (array <= self.high)).all())
        return bool(self._gym_space.contains(self.revert(x)))

    def clip(self, value: Any) -> Any:
        """Return a copy of `value`, ``[*lead,...]``, with the parts of each Box limited to its bounds.

        The bounds are those of the gym space, in its dtype: 0.1 is larger in float32 than in float64.

        Args:
            value: in its rlpyt form, or in that of the gym environment.
        """
        if isinstance(value, Mapping):
            return {key: part.clip(value[key]) for key, part in self._parts}
        if self.is_structured:
            parts = [part.clip(v) for (_, part), v in zip(self._parts, tuple(value))]
            return remade(value, parts)
        if self._kind != "Box":
            return super().clip(value)
        return np.minimum(np.maximum(value, self._gym_space.low), self._gym_space.high)

    def rescaling(self, everywhere: bool = False) -> Callable[[Any], Any]:
        """Return a function that makes a copy in the units of the space, with the parts of each Box of real numbers rescaled.

        Its argument is like that of `clip`. Results have the dtype of the gym space.
        """
        if not self.is_structured:
            if self._kind != "Box" or self._gym_dtype.kind != "f":
                return super().rescaling(everywhere)
            return rescaling_of(self._gym_space.low, self._gym_space.high, self._gym_dtype, everywhere)
        of_parts = [(key, part.rescaling(everywhere)) for key, part in self._parts]

        def rescale(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: of_part(value[key]) for key, of_part in of_parts}
            parts = [of_part(v) for (_, of_part), v in zip(of_parts, tuple(value))]
            return remade(value, parts)

        return rescale

    def seed(self, seed: int | None = None) -> None:
        """Seed the gym space, including the parts of a structure."""
        self._gym_space.seed(seed)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, GymSpaceWrapper):
            return NotImplemented
        return self._gym_space == other._gym_space and self._force_float32 == other._force_float32

    __hash__ = None  # type: ignore[assignment]  # Compared by value.

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._gym_space!r})"


def fits_losslessly(array: np.ndarray, dtype: np.dtype) -> bool:
    """Say whether numbers keep their values when cast to `dtype` (rounding between floating-point types is not a loss)."""
    casting: Any = "same_kind" if dtype.kind in "fc" else "safe"  # An integer may be too large for a smaller type.
    if array.dtype.kind in "biufc" and np.can_cast(array.dtype, dtype, casting=casting):
        return True
    if array.dtype.kind not in "biuf":
        return False
    with np.errstate(invalid="ignore"):
        return bool(np.array_equal(array.astype(dtype), array))


def dict_to_nt(value: Any, name: str) -> Any:
    """Turn a dictionary, and any inside it, into namedtuples called `name`, ``name_key``, ...; return other values unchanged."""
    return to_namedtuples(value, name, dynamic_namedtuple)


def to_namedtuples(value: Any, name: str, tuple_type: Callable[[str, list[str]], Any]) -> Any:
    """Do what `dict_to_nt` does, with types made by ``tuple_type(name, field names)``."""
    if not isinstance(value, Mapping):
        return value
    fields = field_names(value)
    parts = (to_namedtuples(part, f"{name}_{field}", tuple_type) for field, part in zip(fields, value.values()))
    return tuple_type(name, fields)(*parts)


def nt_to_dict(value: Any) -> Any:
    """Turn a namedtuple, and any inside it, into dictionaries whose keys are the field names; return other values unchanged."""
    fields = fields_of(value)
    if not isinstance(value, tuple) or fields is None:
        return value
    return {field: nt_to_dict(v) for field, v in zip(fields, tuple(value))}


def _kind_of(space: Any, name: str) -> str:
    for cls in type(space).__mro__:
        if cls.__name__ in SUPPORTED_SPACES:
            return cls.__name__
    raise ValueError(
        f"The space of {name!r}, {space!r}, is not supported. Supported are {', '.join(SUPPORTED_SPACES)}, and any nesting "
        "of them; wrap the environment to use these."
    )


def _as_int(n: Any) -> Any:
    return int(n) if np.ndim(n) == 0 else n
