"""Seeds: of this process's generators, and of everything in a run that needs a separate stream.

`rng` and `env_seed` derive all streams of a run from its one seed, keyed by purpose and global index. So no
two environments share a stream, and environment 7 gets the same stream with any number of workers.

Only `set_seed` imports torch, and only if asked to: environment workers do without it.
"""

import operator
import os
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from rlpyt.utils import accelerator
from rlpyt.utils.misc import attributes
from rlpyt.utils.plain import check_form, from_plain, set_legacy_state, set_python_state, shown, to_plain

# The codes are part of what a seed means: append to the table, never renumber it.
PURPOSES = {"train_env": 0, "eval_env": 1, "decorrelation": 2, "agent": 3, "algo": 4, "example": 5}
_PURPOSE_BITS = 4
_INDEX_BITS = 32 - _PURPOSE_BITS

seed_ = None
n_derived_ = 0  # Seeds that `next_seed` has returned since `set_seed`.


def set_seed(seed: int, import_torch: bool = True) -> None:
    """Seed this process's generators: Python's, numpy's, and torch's on the CPU and every GPU.

    Args:
        seed: any integer, taken modulo 2**32 (the widest range numpy accepts); 0 is a seed like another.
        import_torch: False seeds torch only if it has been imported already.
    """
    global seed_, n_derived_
    seed_, n_derived_ = _as_integer(seed) % 2**32, 0
    random.seed(seed_)
    np.random.seed(seed_)
    if import_torch or "torch" in sys.modules:
        import torch

        torch.manual_seed(seed_)


def get_seed() -> int | None:
    """Return the seed last given to `set_seed` in this process, or None."""
    return seed_


def next_seed() -> int | None:
    """Return a new seed at each call, so that several objects of one kind, such as samplers, draw different random numbers.

    The first call after `set_seed` returns the seed given there, each later call a seed derived from it. The k-th call returns the same
    seed in each process. None if `set_seed` was not called.
    """
    global n_derived_
    if seed_ is None:
        return None
    n_derived_ += 1
    if n_derived_ == 1:
        return seed_
    return int.from_bytes(np.random.SeedSequence([seed_, 0, n_derived_ - 1]).generate_state(4).tobytes(), "little")


def make_seed() -> int:
    """Return a random seed from 0 to 9999, made of the operating system's entropy.

    It is independent of generators, clock and process id, so processes started at the same moment get independent seeds. Two out of n
    coincide with probability about n**2 / 20000.
    """
    return int(np.random.SeedSequence(int.from_bytes(os.urandom(16), "little")).generate_state(1)[0] % 10000)


def set_envs_seeds(envs: Iterable, seed: int | None) -> None:
    """Seed environment i of `envs` with seed + i (modulo 2**32), or none of them if seed is None.

    `env.seed` seeds an environment and its spaces. Without that method, the spaces that can be seeded are seeded.
    """
    if seed is None:
        return
    for i, env in enumerate(envs):
        env_seed_i = (_as_integer(seed) + i) % 2**32
        parts = (env.action_space, env.observation_space) if seed_method(env) is None else (env,)
        for method in filter(None, map(seed_method, parts)):
            method(env_seed_i)


def seed_env(env: Any, seed: int | None) -> None:
    """Give each random generator of an environment a separate stream, derived from `seed`, or from the system's entropy if it is None.

    These are the generators in its attributes (see `generators_in`), so copies of one environment draw different numbers. Then its
    method ``seed`` is called, if it has one and `seed` is not None; this call has the last word.
    """
    seed_generators(env, seed)
    method = seed_method(env)
    if seed is not None and method is not None:
        method(seed)


def seed_generators(thing: Any, seed: int | None) -> None:
    """Give each random generator in an object's attributes a separate stream, as `seed_env` does."""
    generators = generators_in(thing)
    for generator, sequence in zip(generators, np.random.SeedSequence(seed).spawn(len(generators))):
        _seed_generator(generator, sequence)


def seed_method(thing: Any) -> Callable[..., Any] | None:
    """Return the method ``seed`` of an environment, wrapper or space of any kind; None without one."""
    return getattr(thing, "seed", None)


def generators_in(thing: Any) -> list:
    """Return the random generators in an object's attributes: those of numpy, torch, and `random.Random`.

    The search follows the attributes to any depth: through lists, tuples, dictionaries, arrays of objects, partial functions, bound
    methods, and attributes of other objects. It skips classes, modules, functions and sets, and containers of more than `_LONGEST` entries.
    The order is the same in all copies of the object.
    """
    return list(filter(_is_generator, all_parts(thing)))


def _is_generator(value: Any) -> bool:
    """Return whether `value` is a random generator other than the global ones of the process."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return value is not torch.default_generator
    is_one = isinstance(value, (np.random.Generator, np.random.RandomState, random.Random))
    return is_one and value is not random._inst and value is not np.random.mtrand._rand


def unseedable_in(thing: Any) -> list[str]:
    """Return the names of an object's parts that may draw random numbers but that `seed_env` cannot seed: all copies may draw the same.

    These are generators that belong to a class, that a closure holds, or of which the object holds only a bound method; seed sequences;
    and objects of types not written in Python, except those of packages known to draw none.
    """
    return sorted({name for part in all_parts(thing) for name in _unseedable(part)})


def _unseedable(part: Any) -> Iterator[str]:
    cls = type(part)
    if isinstance(part, np.random.SeedSequence):
        yield "a numpy.random.SeedSequence"
    elif isinstance(part, BuiltinMethodType):
        if generators_in(part.__self__):
            yield f"the generator of a method {part.__name__}()"
    elif isinstance(part, FunctionType):
        if generators_in([cell.cell_contents for cell in part.__closure__ or () if cell != CellType()]):
            yield f"the generator in {part.__qualname__}()"
    elif not isinstance(part, type):
        for owner in cls.__mro__:
            yield from (f"{owner.__qualname__}.{name}, which belongs to the class" for name, x in vars(owner).items() if _is_generator(x))
        package = cls.__module__.partition(".")[0]
        is_of_python = hasattr(part, "__dict__") or any("__slots__" in vars(owner) for owner in cls.__mro__)
        if not is_of_python and package not in _DRAW_NOTHING:
            yield f"a {cls.__module__}.{cls.__qualname__}"


def all_parts(thing: Any) -> Iterator[Any]:
    """Yield `thing` and every object inside it, at any depth, once. `generators_in` lists the objects that are skipped."""
    seen: dict[int, Any] = {}  # By id. Holding the objects keeps their ids from being reused.
    waiting = [thing]
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen[id(part)] = part
            yield part
            waiting.extend(reversed(_parts(part)))


_LONGEST = 10_000  # entries: longer containers hold data.
_DRAW_NOTHING = {*sys.stdlib_module_names, "numpy", "torch", "gymnasium", "mujoco", "pygame"}  # Packages of types that are written in C.
_WITHOUT_PARTS = (str, bytes, bytearray, int, float, complex, np.random.Generator, np.random.RandomState, random.Random)


def _parts(value: Any) -> list:
    """Return the objects that an object holds directly."""
    if value is None or isinstance(value, (*_WITHOUT_PARTS, type, ModuleType, FunctionType)):
        return []
    if isinstance(value, np.ndarray):
        return value.ravel().tolist() if value.dtype == object and value.size <= _LONGEST else []
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__self__]
    parts: list = []
    if isinstance(value, (list, tuple, deque, dict)) and len(value) <= _LONGEST:
        parts += value.values() if isinstance(value, dict) else value
    parts += attributes(value).values()
    return parts + _in_slots(value)


def _in_slots(value: Any) -> list:
    parts = []
    for cls in type(value).__mro__:
        names = vars(cls).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            name = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if type(vars(cls).get(name)).__name__ == "member_descriptor" and hasattr(value, name):
                parts.append(getattr(value, name))
    return parts


def _seed_generator(generator: Any, sequence: np.random.SeedSequence) -> None:
    """Seed a generator of any kind in place, because other objects may refer to it."""
    words = sequence.generate_state(4)
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(sequence).state
    elif isinstance(generator, np.random.RandomState):
        generator.seed(words)
    elif isinstance(generator, random.Random):
        generator.seed(int.from_bytes(words.tobytes(), "little"))
    else:
        generator.manual_seed(int.from_bytes(words.tobytes()[:7], "little"))


def rng(seed: int, purpose: str, index: int = 0) -> np.random.Generator:
    """Return the generator for `purpose` (a key of PURPOSES) and global `index` in a run with `seed` (>= 0)."""
    _check_key(purpose, index)
    return np.random.default_rng(np.random.SeedSequence(_as_seed(seed), spawn_key=(PURPOSES[purpose], index)))


def env_seed(seed: int, purpose: str, index: int) -> int:
    """Return a 32-bit seed for `purpose` (a key of PURPOSES) and global `index` in a run with `seed` (>= 0).

    Within a run no two pairs (purpose, index) get the same seed, which independent draws of 32 bits could not
    promise: the pair is packed into 32 bits, and a permutation keyed by `seed` maps them to the result.
    """
    _check_key(purpose, index)
    return _permute_32_bits(PURPOSES[purpose] << _INDEX_BITS | index, *_permutation_keys(_as_seed(seed)))


def rng_from_global_seed() -> np.random.Generator:
    """Return a generator seeded from numpy's global generator: seeding the global one makes it repeatable."""
    return np.random.default_rng(np.random.randint(2**31, size=4))


class ProcessGenerator:
    """An attribute `rng` that is a generator: copies of the object in other processes draw different numbers.

    class Draws:
        rng = ProcessGenerator()
    """

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        if obj is None:
            return self
        if obj._pid != os.getpid():
            self.__set__(obj, np.random.default_rng([os.getpid(), *obj._rng.integers(2**31, size=4)]))
        return obj._rng

    def __set__(self, obj: Any, rng: np.random.Generator) -> None:
        obj._rng, obj._pid = rng, os.getpid()


def rng_states() -> dict:
    """Return the states of the generators that `set_seed` seeds, as plain data."""
    states = dict(python=to_plain(random.getstate()), numpy=to_plain(np.random.get_state()))
    if "torch" in sys.modules:
        import torch

        states |= dict(torch=torch.get_rng_state(), **accelerator.rng_states())
    return states


def raw_rng_states() -> dict[str, Any]:
    """Return the same states as each library has them: quickly, to be compared and not to be saved."""
    python, numpy_, torch_ = _global_states()
    return dict(python=python, numpy=numpy_, **({} if torch_ is None else dict(torch=torch_, **accelerator.rng_states())))


def set_rng_states(states: dict, name: str = "rng") -> None:
    """Restore states that `rng_states` returned; raise ValueError for anything else."""
    check_form(states, dict(python=tuple, numpy=tuple), name)
    set_python_state(random, from_plain(states["python"], f"{name}['python']"), f"{name}['python']")
    set_legacy_state(np.random, from_plain(states["numpy"], f"{name}['numpy']"), f"{name}['numpy']")
    if "torch" in states:
        import torch

        own, saved = torch.get_rng_state(), states["torch"]
        if not isinstance(saved, torch.Tensor) or (saved.shape, saved.dtype) != (own.shape, own.dtype):
            raise ValueError(f"{name}['torch'] is {shown(saved)}, and not the {len(own)} bytes of a state of torch's generator.")
        try:
            torch.set_rng_state(saved)
            accelerator.set_rng_states(states)
        except (RuntimeError, TypeError, AttributeError) as error:
            raise ValueError(f"{name} does not have the states of torch's random numbers: {error}") from error


class RandomState:
    """One worker's state of the global generators of Python, numpy and torch, for workers that share a process.

    In the block ``with random_state:`` the generators have this state; afterwards they have their previous one. Blocks may be nested.

    Args:
        seed: a SeedSequence.
    """

    def __init__(self, seed: np.random.SeedSequence) -> None:
        python, numpy_, torch_ = (int(x) for x in seed.generate_state(3))
        self._torch_seed = torch_
        self._own = random.Random(python).getstate(), np.random.RandomState(numpy_).get_state(), None
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._others = _global_states()
            _set_global_states(self._own, self._torch_seed)

    def __exit__(self, *exc_info: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._own = _global_states()
            _set_global_states(self._others)

    def state_dict(self) -> dict:
        """Return the state, for a checkpoint: plain data and arrays."""
        python, numpy_, torch_ = self._own
        return dict(python=python, numpy=numpy_, torch=None if torch_ is None else torch_.numpy(), torch_seed=self._torch_seed)

    def load_state_dict(self, state: dict) -> None:
        """Restore the result of `state_dict`; ValueError if `state` has another form."""
        check_form(state, {"python": tuple, "numpy": object, "torch": object, "torch_seed": object}, "random")
        set_python_state(random.Random(0), state["python"], "random['python']")  # Raises an error now instead of at the first use.
        set_legacy_state(np.random.RandomState(0), state["numpy"], "random['numpy']")
        torch_ = None if state["torch"] is None else sys.modules["torch"].from_numpy(state["torch"].copy())
        self._own, self._torch_seed = (state["python"], state["numpy"], torch_), state["torch_seed"]


def _global_states() -> tuple:
    torch = sys.modules.get("torch")
    return random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state()


def _set_global_states(states: tuple, torch_seed: int | None = None) -> None:
    python, numpy_, torch_state = states
    random.setstate(python)
    np.random.set_state(numpy_)
    if "torch" not in sys.modules:
        return
    torch = sys.modules["torch"]
    if torch_state is not None:
        torch.set_rng_state(torch_state)
    elif torch_seed is not None:
        torch.set_rng_state(torch.Generator().manual_seed(torch_seed).get_state())


def _permute_32_bits(x: int, *keys: int) -> int:
    """Invertible steps: xor with a key, product with an odd number modulo 2**32, xor with the high half."""
    for key in keys:
        x ^= key
        x = x * 0x9E3779B1 % 2**32  # odd, near 2**32 / golden ratio: spreads neighbouring indexes
        x ^= x >> 16
    return x


@lru_cache(maxsize=16)
def _permutation_keys(seed: int) -> tuple[int, ...]:
    return tuple(int(key) for key in np.random.SeedSequence(seed).generate_state(4))


def _check_key(purpose: str, index: int) -> None:
    if purpose not in PURPOSES:
        raise ValueError(f"purpose={purpose!r} has no seeds: choose one of {', '.join(PURPOSES)}.")
    if not 0 <= index < 2**_INDEX_BITS:
        raise ValueError(f"index={index} must be in 0..2**{_INDEX_BITS} - 1.")


def _as_seed(seed: int) -> int:
    if _as_integer(seed) < 0:
        raise ValueError(f"seed={seed} must not be negative: choose an integer from 0 on.")
    return _as_integer(seed)


def _as_integer(seed: int) -> int:
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(f"seed={seed!r} must be an integer.") from None
