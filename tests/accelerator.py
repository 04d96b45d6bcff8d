"""A pretended accelerator: a device for torch, in Python alone, that shows what code does with a device, without one.

Tensors on it say that they are on ``pretend:0``, hold their numbers on the CPU, and do not mix with tensors on the CPU. Launches, copies
and waits are counted, with the lines of rlpyt that made them. Graphs are recorded and repeated as on CUDA: with the memory, the Python
numbers and the branches of the call that was recorded. Random numbers are those of the CPU, so results can be compared.

    import accelerator            # before rlpyt asks torch for accelerators
    with accelerator.pretended():
        ...                       # cuda_idx=0 is this device; forked processes have it, too
    with accelerator.counted() as counts:
        ...
    counts.launches, counts.to_device, counts.waits

torch cannot forget a device: a process that imports this module keeps it. Speed is not pretended at all.
"""

import collections
import contextlib
import functools
import sys
import types
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"

# Operations whose result depends on numbers on the device in a way that Python has to know.
_READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "aten.equal.", "unique")
# Operations that launch nothing, since they only describe memory.
_LAUNCH_NOTHING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh"}
# What graphs cannot contain.
_NOT_IN_GRAPHS = "in a graph: CUDA would not record this"


class Counts:
    """What happened on the device, as counters of the lines of rlpyt that did it.

    Attributes:
        launches: operations on the device.
        to_device, from_device: copies.
        waits: where this process waited for the device: numbers read, and copies that wait for their end. Those from or to memory that is
            not page-locked do.
        synchronized: waits that are asked for, until a copy or everything so far is done.
        graphs: graphs that were launched.
    """

    def __init__(self):
        self.launches, self.to_device, self.from_device = (collections.Counter() for _ in range(3))
        self.waits, self.synchronized, self.graphs = (collections.Counter() for _ in range(3))


_counting = []  # All counts of present `counted` contexts.
_locked = []  # Page-locked memory: (first address, end, what keeps it).
_recording = []  # The graph that is being recorded, if there is one.


@contextlib.contextmanager
def counted():
    """Within this context, count what happens on the device."""
    counts = Counts()
    _counting.append(counts)
    try:
        yield counts
    finally:
        _counting.remove(counts)


def _count(what, detail=""):
    for counts in _counting:
        getattr(counts, what)[f"{_line_of_rlpyt()} {detail}".strip()] += 1


def _line_of_rlpyt():
    frame = sys._getframe(2)
    while frame is not None:
        directory, _, path = frame.f_code.co_filename.rpartition("/rlpyt/")
        if directory:
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


# ---------------------------------------------------------------------------------------------------------------------
# Tensors
# ---------------------------------------------------------------------------------------------------------------------
class Tensor(torch.Tensor):
    """A tensor on the device; `x` holds its numbers."""

    @staticmethod
    def __new__(cls, x, device):
        kwargs = dict(strides=x.stride(), storage_offset=x.storage_offset(), dtype=x.dtype, device=device, requires_grad=False)
        return torch.Tensor._make_wrapper_subclass(cls, x.size(), **kwargs)

    def __init__(self, x, device):
        self.x = x

    def __repr__(self):
        return f"{self.x} on {self.device}"

    def __reduce_ex__(self, protocol):
        _count("from_device", "pickle")
        return _on_device, (self.x.detach().clone(), self.device, self.requires_grad)

    def __deepcopy__(self, memo):
        copied = _on_device(self.x.detach().clone(), self.device, self.requires_grad)
        memo[id(self)] = copied
        return copied

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, other):
        self.x = other.x

    def untyped_storage(self):
        return self.x.untyped_storage()

    def storage_offset(self):
        return self.x.storage_offset()

    def tolist(self):
        _count("waits", "tolist")
        return self.x.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _on_device(x, device, requires_grad):
    return Tensor(x, device).requires_grad_(requires_grad)


class _Mode(TorchDispatchMode):
    """Makes new tensors for the device, and sends to `_run` what concerns it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _is_here(kwargs.get("device")) or any(isinstance(t, Tensor) for t in _tensors_in((*args, *kwargs.values()))):
            return _run(func, args, kwargs)
        return func(*args, **kwargs)


def _is_here(device):
    return device is not None and torch.device(device).type == NAME


def _tensors_in(values):
    """Return the tensors among values, some of which are lists or tuples of values."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors_in(value)
    return found


def _each(func, value):
    """Apply a function to a value, or to each value in lists and tuples."""
    return type(value)([_each(func, item) for item in value]) if isinstance(value, list | tuple) else func(value)


class _Operation(NamedTuple):
    """What is known of an operation of torch before it is called.

    Attributes:
        name: as in ``aten.add.Tensor``.
        kernel: what computes it.
        is_copy, reads, launches: whether it is a copy, a read of numbers by Python, or a launch.
        gives_number: it returns a number, and no tensor.
        is_view: its results are views of its arguments.
        in_place: its results are the arguments that it writes to.
        has_results: it returns something.
        written: for each argument of the schema, whether it writes to it.
        written_names: names of the arguments that it writes to.
    """

    name: str
    kernel: Any
    is_copy: bool
    reads: bool
    launches: bool
    gives_number: bool
    is_view: bool
    in_place: bool
    has_results: bool
    written: list
    written_names: list


@functools.cache
def _operation(func):
    """Return what is known of an operation."""
    name = str(func)
    short = name.split(".")[1]
    arguments, returns = func._schema.arguments, func._schema.returns
    is_view = bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)
    written = [argument.alias_info is not None and argument.alias_info.is_write for argument in arguments]
    return _Operation(
        name=name,
        kernel=_KERNELS.get(name, func),
        is_copy="copy" in short,
        reads=any(read in name for read in _READS),
        launches=not is_view and short not in _LAUNCH_NOTHING,
        gives_number=name.startswith("aten.") and short in ("_local_scalar_dense", "equal", "is_nonzero"),
        is_view=is_view,
        in_place=bool(returns) and all(r.alias_info is not None and r.alias_info.is_write for r in returns),
        has_results=bool(returns),
        written=written,
        written_names=[argument.name for argument, is_written in zip(arguments, written) if is_written],
    )


def _run(func, args, kwargs):
    """Do an operation of torch that has something to do with the device."""
    op = _operation(func)
    tensors = _tensors_in((*args, *kwargs.values()))
    here, on_cpu = [t for t in tensors if isinstance(t, Tensor)], [t for t in tensors if not isinstance(t, Tensor)]
    target = kwargs.get("device")
    is_to_cpu = target is not None and not _is_here(target)
    if not op.is_copy and (len({t.device for t in here}) > 1 or (here and any(t.dim() for t in on_cpu))):
        shapes = [(str(t.device), tuple(t.shape)) for t in tensors]
        raise RuntimeError(f"Expected all tensors to be on the same device: {op.name} at {_line_of_rlpyt()} got {shapes}")
    if op.is_copy and (on_cpu or is_to_cpu):
        _copy_between(op.name, args, kwargs, here, on_cpu)
    elif op.reads:
        _count("waits", op.name)
        assert not _recording, f"{op.name} {_NOT_IN_GRAPHS}"
    elif op.launches:
        _count("launches", op.name)

    args_on_cpu, kwargs_on_cpu = [_each(_numbers, value) for value in args], _kwargs_on_cpu(kwargs)

    def do():
        with torch.no_grad():  # And in no mode: torch leaves it while it calls what handles an operation.
            return op.kernel(*args_on_cpu, **kwargs_on_cpu)

    if _recording:
        _recording[-1].keep([value for value, is_written in zip(args_on_cpu, op.written) if is_written])
    result = do()
    if op.gives_number or (is_to_cpu and here):
        return result
    if op.in_place:
        given = [value for value, is_written in zip(args, op.written) if is_written]
        given += [kwargs[name] for name in op.written_names if name in kwargs]
        wrapped = given[0] if len(func._schema.returns) == 1 else tuple(given)
    elif not op.has_results:
        wrapped = None
    else:
        index = torch.device(target).index if _is_here(target) else here[0].device.index
        device = torch.device(NAME, index or 0)
        wrapped = _each(lambda x: Tensor(x, device) if isinstance(x, torch.Tensor) else x, result)
    if _recording and not op.is_view:
        _recording[-1].record(do, result if wrapped is not None else None, any(op.written))
    return wrapped


def _copy_between(name, args, kwargs, here, on_cpu):
    """Count a copy between the CPU and the device."""
    to_device = bool(on_cpu) and (isinstance(args[0], Tensor) if ".copy_" in name else _is_here(kwargs.get("device")))
    _count("to_device" if to_device else "from_device", str(tuple((on_cpu or here)[0].shape)))
    non_blocking = kwargs.get("non_blocking", len(args) > 2 and args[2])
    if "_foreach" not in name and not (non_blocking and on_cpu and _is_locked(on_cpu[0])):
        _count("waits", "copy")
        assert not _recording, f"a copy from or to memory that is not page-locked {_NOT_IN_GRAPHS}"
    assert not (_recording and to_device), f"a copy of numbers that Python made {_NOT_IN_GRAPHS} but once"


def _numbers(leaf):
    return leaf.x if isinstance(leaf, Tensor) else leaf


def _kwargs_on_cpu(kwargs):
    kwargs = {name: _each(_numbers, value) for name, value in kwargs.items()}
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device("cpu")
    kwargs.pop("pin_memory", None)
    return kwargs


@contextlib.contextmanager
def _no_mode():
    with torch.utils._python_dispatch._disable_current_modes():
        yield


# ---------------------------------------------------------------------------------------------------------------------
# What torch has for devices only
# ---------------------------------------------------------------------------------------------------------------------
def _lstm_cell(input_gates, hidden_gates, cell, input_bias=None, hidden_bias=None):
    gates = input_gates + hidden_gates
    for bias in (input_bias, hidden_bias):
        if bias is not None:
            gates = gates + bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new_cell = f * cell + i * g
    return o * new_cell.tanh(), new_cell, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(grad_hidden, grad_cell, cell, new_cell, workspace, has_bias):
    i, f, g, o = workspace.chunk(4, 1)
    tanh = new_cell.tanh()
    grad_hidden = torch.zeros_like(cell) if grad_hidden is None else grad_hidden
    grad = grad_hidden * o * (1 - tanh.square())
    if grad_cell is not None:
        grad = grad + grad_cell
    of_gates = [grad * g * i * (1 - i), grad * cell * f * (1 - f), grad * i * (1 - g.square()), grad_hidden * tanh * o * (1 - o)]
    of_gates = torch.cat(of_gates, 1)
    return of_gates, grad * f, of_gates.sum(0) if has_bias else None


_KERNELS = {
    "aten._thnn_fused_lstm_cell.default": _lstm_cell,
    "aten._thnn_fused_lstm_cell_backward_impl.default": _lstm_cell_backward,
}


class Graph:
    """A recorded sequence of operations. As on CUDA, what is recorded is not done before `replay`."""

    def __init__(self):
        self._operations = []
        self._kept, self._rng_state = [], None

    def begin(self):
        """Remember what recording must not change."""
        self._rng_state = torch.get_rng_state()

    def keep(self, written):
        """Remember the numbers of tensors that the next operation overwrites."""
        self._kept += [(x, x.clone()) for x in _tensors_in(written)]

    def end(self):
        """Undo what was done to record it."""
        for x, numbers in reversed(self._kept):
            x.copy_(numbers)
        self._kept.clear()
        torch.set_rng_state(self._rng_state)

    def record(self, do, result, in_place):
        """Add an operation that has just been done, with its result."""
        memory = [] if in_place else _tensors_in([result])
        self._operations.append((do, memory))

    def replay(self):
        """Do all operations again, on the same memory."""
        _count("graphs")
        with torch.no_grad(), _no_mode():
            for do, memory in self._operations:
                result = do()
                if memory:
                    for old, new in zip(memory, _tensors_in([result])):
                        old.copy_(new)


@contextlib.contextmanager
def _recorded(graph):
    graph.begin()
    _recording.append(graph)
    try:
        yield
    finally:
        _recording.pop()
        with torch.no_grad(), _no_mode():
            graph.end()


class Event:
    """An event of the device, which is over at once."""

    def __init__(self, *args, **kwargs):
        pass

    def record(self, *args):
        """Nothing to do."""

    def synchronize(self):
        """Count that this process would wait."""
        _count("synchronized", "event")


class Stream:
    """A stream of the device."""

    def synchronize(self):
        """Count that this process waits."""
        _count("synchronized", "stream")
        assert not _recording, f"waiting {_NOT_IN_GRAPHS}"

    def wait_stream(self, other):
        """Nothing to do."""


class _Cudart:
    @staticmethod
    def cudaHostRegister(address, n_bytes, flags):
        _locked.append((address, address + n_bytes, None))
        return 0

    @staticmethod
    def cudaHostUnregister(address):
        _locked[:] = [memory for memory in _locked if memory[0] != address]
        return 0


def _is_locked(tensor):
    return any(start <= tensor.data_ptr() < end for start, end, _ in _locked)


def _empty(*args, pin_memory=False, **kwargs):
    tensor = _torch_empty(*args, **kwargs)
    if pin_memory:
        _locked.append((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, tensor))
    return tensor


def _tensor(*args, device=None, **kwargs):
    tensor = _torch_tensor(*args, **kwargs)
    return tensor if device is None else tensor.to(device)


def _module():
    module = types.ModuleType(f"torch.{NAME}")
    nothing = contextlib.nullcontext
    found = dict(
        Event=Event,
        Stream=Stream,
        CUDAGraph=Graph,
        graph=_recorded,
        is_available=lambda: True,
        is_initialized=lambda: True,
        _is_in_bad_fork=lambda: False,
        device_count=lambda: 1,
        current_device=lambda: 0,
        set_device=lambda index: None,
        get_device_name=lambda index=0: "pretended accelerator",
        manual_seed_all=lambda seed: None,
        get_rng_state_all=lambda: [],
        set_rng_state_all=lambda states: None,
        is_bf16_supported=lambda: True,
        get_amp_supported_dtype=lambda: [torch.bfloat16],
        current_stream=lambda device=None: Stream(),
        stream=lambda stream: nothing(),
        device=lambda device: nothing(),
        cudart=_Cudart,
    )
    vars(module).update(found)
    return module


_setup_privateuseone_for_python_backend(NAME, backend_module=_module())
torch.distributed.Backend.default_device_backend_map[NAME] = "gloo"
_torch_empty, torch.empty = torch.empty, _empty
_torch_tensor, torch.tensor = torch.tensor, _tensor
torch.Tensor.is_pinned = _is_locked


@contextlib.contextmanager
def pretended():
    """Within this context there is the device, in this thread and in forked processes."""
    with _Mode():
        yield
