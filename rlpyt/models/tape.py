"""Small models act from a tape: their operations are recorded once, and repeated without the Python code around them.

The operations of a small network take some tens of microseconds, and the modules around them several times as long. While an agent acts,
its model is called again and again with inputs of the same shapes. So a `Tape` keeps what one call did, with all its memory::

    record    model(*inputs)  ──each operation──►  calls: [addmm(..., out=), tanh(..., out=), ...]; views stay as they are
    repeat    inputs ──copied into the recorded ones──►  all calls, in order  ──►  copies of the recorded outputs

Operations, their order and their results are those of the model, to the last bit. They read parameters in place, so they see every step of
an optimizer. Random numbers are drawn anew.

A tape can stand for a model that does the same operations of torch in every call, whatever the values. Models of `rlpyt.models` and modules
of ``torch.nn`` do. A user's class says so by ``static_forward = True``. `Tapes` notices when parameters move to other memory. When the
agent's mode changes, it also compares modules and all that they hold. A model that is large or compiled, or does something that is not in
the tables below, is called as it is.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlpyt.models.utils import modules_of
from rlpyt.utils import choices
from rlpyt.utils.array import ALIGNMENT
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.structures import leaves_of, map_structure

CALLS_BEFORE = 32  # Calls of a model with inputs of the same shapes, before it is recorded. Recording takes as long as ten to twenty calls.
MOST_TAPES = 16  # of an agent; models are called as they are for further sets of shapes
MOST_ELEMENTS = 2**20  # of a tensor; of a larger one, the operations take much longer than the code around them.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")

Call = Callable[[], Any]


class NotRepeatable(Exception):
    """A model cannot be repeated from a tape; the text says why."""


class Tape:
    """What one call of a model did, to be repeated with other inputs of the same shapes.

    Args:
        model: on the CPU, in evaluation mode.
        inputs: structure of tensors.

    Attributes:
        first: outputs of the call that was recorded.
        calls: the operations, in order.

    Raises:
        NotRepeatable: the model does something that a tape does not repeat.
    """

    def __init__(self, model: torch.nn.Module, inputs: tuple) -> None:
        random_state = torch.get_rng_state()
        try:
            self._record(model, inputs)
            self._prove(model, inputs, random_state)
        except Exception as error:  # Of the model itself, too, which will be called again.
            torch.set_rng_state(random_state)
            raise NotRepeatable(str(error)) from error

    def _record(self, model: torch.nn.Module, inputs: tuple) -> None:
        self._signature = Signature(model)
        kept = map_structure(torch.clone, inputs)
        with _Recorder() as recorder:
            self._outputs = model(*kept)
        leaves = leaves_of(self._outputs)
        if not all(isinstance(output, torch.Tensor) for output in leaves):
            raise NotRepeatable("an output is not a tensor")
        self._is_flat = type(self._outputs) is tuple and all(isinstance(output, torch.Tensor) for output in self._outputs)
        self.first = map_structure(torch.clone, self._outputs)
        own = {_memory(leaf) for leaf in leaves_of(kept)}  # Addresses of what is written when the tape is repeated.
        read = {_memory(leaf) for leaf in leaves}
        parameters: dict[int, torch.Tensor] = {}
        self.calls: list[Call] = []
        for operation in recorder.operations:
            for tensor in operation.arguments:
                read.add(_memory(tensor))
                if _memory(tensor) not in own:
                    parameters[id(tensor)] = tensor
            call = operation.call(own)
            if call is not None:
                self.calls.append(call)
            own.update(map(_memory, operation.results))
        self._inputs = [(i, leaf) for i, leaf in enumerate(leaves_of(kept)) if _memory(leaf) in read]
        self._parameters = list(parameters.values())  # Parameters and buffers, or views of them.
        self._addresses = self._current_addresses()

    def repeat(self, leaves: list[torch.Tensor]) -> Any:
        """Return the model's outputs for inputs with these leaves, in new memory."""
        for i, kept in self._inputs:
            kept.copy_(leaves[i])
        for call in self.calls:
            call()
        return tuple([output.clone() for output in self._outputs]) if self._is_flat else map_structure(torch.clone, self._outputs)

    def finds_parameters(self) -> bool:
        """Return whether parameters and buffers are where they were."""
        return self._current_addresses() == self._addresses

    def is_of(self, model: torch.nn.Module) -> bool:
        """Return whether a model has the parts and settings of the recorded one."""
        return self._signature.is_that_of(model)

    def _current_addresses(self) -> list[int]:
        return [tensor.data_ptr() for tensor in self._parameters]

    def _prove(self, model: torch.nn.Module, inputs: tuple, random_state: torch.Tensor) -> None:
        """Raise NotRepeatable if the tape returns other outputs than the model, for inputs that differ from the recorded ones."""
        after = torch.get_rng_state()
        others = map_structure(_others_like, inputs)
        torch.set_rng_state(random_state)
        expected, expected_state = model(*others), torch.get_rng_state()
        torch.set_rng_state(random_state)
        found, found_state = self.repeat(leaves_of(others)), torch.get_rng_state()
        torch.set_rng_state(after)
        pairs = zip(leaves_of(expected), leaves_of(found), strict=True)
        if not torch.equal(expected_state, found_state) or not all(torch.equal(*pair) for pair in pairs):
            raise NotRepeatable("when it was repeated, its outputs were others")


def _as_in_a_tape(values: Any) -> Any:
    """Return values in memory like that of a tape: contiguous, and from an aligned address on.

    The last bits of a product can depend on both. A run that is resumed calls the model at first, where the run that went on repeats the
    tape. So both get inputs in such memory.
    """
    if not isinstance(values, torch.Tensor) or values.data_ptr() % ALIGNMENT == 0 and values.is_contiguous():
        return values
    return values.clone(memory_format=torch.contiguous_format)


def _others_like(values: torch.Tensor) -> torch.Tensor:
    """Return other values of the same kind: they are possible inputs wherever these are."""
    if values.is_floating_point():
        return values * 0.5 + 0.25
    return values.flip(0) if values.dim() else values.clone()


class Tapes:
    """The tapes of an agent: one for each mode, and each set of shapes, in which its model is called often.

    Copies and pickles of it are empty, since a tape belongs to the memory of one model in one process. One thread at a time may use it.
    """

    def __init__(self) -> None:
        self._model: torch.nn.Module | None = None
        # For mode and shapes: a tape; so far only the number of calls; or None, where the model is called as it is.
        self._tapes: dict[tuple, Tape | int | None] = {}
        self._checked: set[tuple] = set()

    def __reduce__(self) -> tuple:
        return Tapes, ()

    def check(self) -> None:
        """Compare models with their tapes once more, before these are used again."""
        self._checked.clear()

    def __call__(self, model: torch.nn.Module, inputs: tuple, mode: str | None = None) -> Any:
        """Return ``model(*inputs)``.

        Args:
            model: the agent's.
            inputs: structure of tensors on the CPU.
            mode: of the agent; in another mode the model may do other operations.
        """
        if model.training or torch.is_grad_enabled() or torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cpu"):
            return model(*inputs)
        if model is not self._model:
            self._model, self._tapes, self._checked = model, {}, set()
        leaves = leaves_of(inputs)
        try:
            key = (mode, *[(leaf.shape, leaf.dtype) for leaf in leaves])
        except AttributeError:  # An agent gives its model something else than tensors.
            return model(*inputs)
        tape = self._tapes.get(key, 0)
        if isinstance(tape, Tape):
            if tape.finds_parameters() and (key in self._checked or self._check(key, tape, model)):
                return tape.repeat(leaves)
            tape = self._tapes[key] = 0
        inputs = map_structure(_as_in_a_tape, inputs)
        return model(*inputs) if tape is None else self._counted(key, tape, model, inputs)

    def _check(self, key: tuple, tape: Tape, model: torch.nn.Module) -> bool:
        """Return whether the model is the recorded one, with the same parts and settings."""
        self._checked.add(key)
        return tape.is_of(model)

    def _counted(self, key: tuple, n_calls: int, model: torch.nn.Module, inputs: tuple) -> Any:
        """Call the model after `n_calls` such calls, and record the call if these are enough."""
        if n_calls == 0 and len(self._tapes) >= MOST_TAPES and key not in self._tapes:
            return model(*inputs)
        if n_calls == 0 and not all(map(_may_be_repeated, modules_of(model))):
            self._tapes[key] = None
        elif n_calls < CALLS_BEFORE:
            self._tapes[key] = n_calls + 1
        else:
            try:
                tape = self._tapes[key] = Tape(model, inputs)
                return tape.first
            except NotRepeatable:
                self._tapes[key] = None
        return model(*inputs)


class Signature:
    """What a tape takes for granted: modules and all that they hold, and choices of how to compute."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._objects = [each for module in modules_of(model) for each in _objects_in(module)]
        self._parts = self._parts_of(model)
        self._choices = choices.adopted()

    def is_that_of(self, model: torch.nn.Module) -> bool:
        """Return whether a model still has this signature."""
        parts = self._parts_of(model)
        return len(parts) == len(self._parts) and all(map(operator.is_, parts, self._parts)) and choices.adopted() == self._choices

    def _parts_of(self, model: torch.nn.Module) -> list:
        parts: list = []
        for module in modules_of(model):
            own = vars(module)
            parts += (module, *own.values(), *own["_parameters"].values(), *own["_buffers"].values())
            for name in _HOOKS:
                parts += own[name].values()
        for each in self._objects:
            parts += vars(each).values()
        return parts


def _objects_in(holder: Any) -> list[Any]:
    """Return what a module holds that has attributes itself, such as a distribution and its parts; without modules and tensors."""
    found = [holder]
    for each in found:  # The list grows meanwhile. Objects may refer to each other.
        for value in vars(each).values():
            for part in value if isinstance(value, (list, tuple)) else (value,):
                is_object = hasattr(part, "__dict__") and not isinstance(part, (torch.nn.Module, torch.Tensor, dict)) and not callable(part)
                if is_object and all(part is not other for other in found):
                    found.append(part)
    return found[1:]


def _may_be_repeated(module: torch.nn.Module) -> bool:
    """Return whether a module does the same operations in every call, as far as its class tells."""
    own, cls = vars(module), type(module)
    if "forward" in own or own.get("_compiled_call_impl") is not None or any(own[name] for name in _HOOKS):
        return False  # Compiled code must not run while operations are recorded: torch would never use it again.
    if not all(is_of_rlpyt(type(value)) for value in _objects_in(module)):
        return False
    return cls.__module__.startswith("torch.nn.modules.") or is_of_rlpyt(cls) or bool(vars(cls).get("static_forward"))


class _Operation(NamedTuple):
    """An operation of torch that a model has done."""

    function: Any
    args: tuple
    kwargs: dict
    result: Any

    @property
    def arguments(self) -> list[torch.Tensor]:
        return _tensors_in([*self.args, *self.kwargs.values()])

    @property
    def results(self) -> list[torch.Tensor]:
        return _tensors_in(self.result)

    def call(self, own: set[int]) -> Call | None:
        """Return a call that does the operation again, with the result in the same memory; None if there is nothing to do.

        Args:
            own: addresses of the memory that calls of this tape write.

        Raises:
            NotRepeatable: it is not in the tables below, or large, or would change something else.
        """
        function, args, kwargs, result = self
        name = function.overloadpacket.__name__
        written = set(map(_memory, self.results))
        if max((tensor.numel() for tensor in (*self.arguments, *self.results)), default=0) > MOST_ELEMENTS:
            raise NotRepeatable(f"{function} is large, so that the code around it does not matter")
        if function._schema.is_mutable:
            if name not in IN_PLACE or not written <= own:
                raise NotRepeatable(f"it does {function}")
            return functools.partial(getattr(args[0], name), *args[1:], **kwargs)
        if not written:
            raise NotRepeatable(f"it looks at values: {function}")
        if self.arguments and written <= set(map(_memory, self.arguments)):
            return None  # A view, which shows what is written there.
        if name in WITH_OUT:
            return functools.partial(getattr(torch, name), *args, **kwargs, out=result)
        if name in AS_OTHERS:
            return AS_OTHERS[name](result, *args)
        if name in COPIED:
            return functools.partial(_do_and_copy, self)
        raise NotRepeatable(f"it does {function}")


# What tapes repeat. Functions of torch that write their result into given memory:
WITH_OUT = frozenset(
    "_log_softmax _softmax abs add addcmul addmm argmax cat clamp copysign div exp gather log maximum mean minimum mm mul neg reciprocal "
    "rsqrt sigmoid sqrt stack sub sum tanh where".split()
)
# Methods that change a tensor:
IN_PLACE = frozenset("add_ clamp_ div_ exp_ mul_ neg_ relu_ scatter_ sigmoid_ sub_ tanh_".split())
# Operations that are done in another way, by a function of the result and the arguments:
AS_OTHERS: dict[str, Callable[..., Call]] = {
    "_to_copy": lambda result, x: functools.partial(result.copy_, x),
    "clone": lambda result, x: functools.partial(result.copy_, x),
    "rand": lambda result, *_: result.uniform_,
    "randn": lambda result, *_: result.normal_,
    "relu": lambda result, x: functools.partial(torch.clamp_min, x, 0, out=result),  # What torch itself does.
    "repeat": lambda result, x, repeats: functools.partial(result.copy_, x.expand(result.shape)),
    "zeros": lambda result, *_: result.zero_,
}
# Operations whose result is copied into the memory of the recorded one:
COPIED = frozenset("aminmax bernoulli elu gelu hardtanh leaky_relu mkldnn_rnn_layer native_layer_norm silu softplus".split())


def _do_and_copy(operation: _Operation) -> None:
    """Do an operation again, and copy its results into the memory of the recorded ones."""
    results = _tensors_in(operation.function(*operation.args, **operation.kwargs))
    for kept, result in zip(operation.results, results):
        kept.copy_(result)


class _Recorder(TorchDispatchMode):
    """Records the operations within this context."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[_Operation] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: torch would otherwise import its compiler, for seconds, to protect `__torch_dispatch__` from it."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.operations.append(_Operation(func, args, kwargs, result))
        return result


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors_in(values: Any) -> list[torch.Tensor]:
    if isinstance(values, (list, tuple)):
        return [tensor for value in values for tensor in _tensors_in(value)]
    return [values] if isinstance(values, torch.Tensor) else []
