import ctypes
import subprocess
import sys

import pytest
import torch
from tiers import full, processes

from rlpyt.models.utils import (
    conv2d_output_shape,
    matching_state_dict,
    modules_of,
    parameters_of,
    scale_grad,
    strip_ddp_state_dict,
    update_state_dict,
)


@pytest.mark.parametrize(
    "settings",
    [
        dict(kernel_size=8, stride=4),
        dict(kernel_size=3, stride=2, padding=1),
        dict(kernel_size=3, dilation=2),
        dict(kernel_size=(5, 3), stride=(2, 1), padding=(0, 2), dilation=(1, 2)),
    ],
)
def test_output_shape_is_what_torch_computes(settings):
    out = torch.nn.Conv2d(1, 1, **settings)(torch.zeros(1, 1, 37, 29))
    assert conv2d_output_shape(37, 29, **settings) == tuple(out.shape[2:])


def test_scale_grad_changes_only_the_gradient():
    x = torch.randn(5, requires_grad=True)
    y = scale_grad(x, 0.25)
    assert torch.equal(y, x)
    (y * torch.arange(5.0)).sum().backward()
    assert torch.equal(x.grad, 0.25 * torch.arange(5.0))


def model_with_counter() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def test_tau_1_copies_parameters_and_buffers():
    old, new = model_with_counter(), model_with_counter()
    new(torch.randn(4, 3))
    update_state_dict(old, new.state_dict())
    for a, b in zip(old.state_dict().values(), new.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_tau_mixes_in_place_and_copies_integers():
    old, new = model_with_counter(), model_with_counter()
    new(torch.randn(4, 3))
    expected = {
        name: 0.3 * new.state_dict()[name] + 0.7 * value if value.is_floating_point() else new.state_dict()[name]
        for name, value in old.state_dict().items()
    }
    places = [value.data_ptr() for value in old.state_dict().values()]
    update_state_dict(old, new.state_dict(), tau=0.3)
    assert places == [value.data_ptr() for value in old.state_dict().values()]
    for name, value in old.state_dict().items():
        torch.testing.assert_close(value, expected[name])
    assert old.state_dict()["1.num_batches_tracked"] == 1


def test_a_data_parallel_state_dict_is_accepted():
    old, new = model_with_counter(), model_with_counter()
    wrapped = {f"module.{name}": value for name, value in new.state_dict().items()}
    assert strip_ddp_state_dict(wrapped).keys() == new.state_dict().keys()
    update_state_dict(old, wrapped)
    assert torch.equal(old[0].weight, new[0].weight)


def test_a_submodule_called_module_keeps_its_name():
    state_dict = {"module.weight": 1, "head.weight": 2}
    assert strip_ddp_state_dict(state_dict) == state_dict


class OnlyChildCalledModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.module = torch.nn.Linear(3, 2)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_model_whose_only_part_is_called_module_is_updated(wrapped):
    old, new = OnlyChildCalledModule(), OnlyChildCalledModule()
    state_dict = {f"module.{name}": value for name, value in new.state_dict().items()} if wrapped else new.state_dict()
    assert matching_state_dict(old, state_dict).keys() == new.state_dict().keys()
    update_state_dict(old, state_dict)
    assert torch.equal(old.module.weight, new.module.weight)


def test_without_strip_ddp_names_must_be_those_of_the_model():
    model = model_with_counter()
    with pytest.raises(KeyError, match="in excess.*module.0.bias"):
        update_state_dict(model, {f"module.{name}": value for name, value in model.state_dict().items()}, strip_ddp=False)


def test_a_state_dict_of_another_model_is_refused():
    with pytest.raises(KeyError, match="lacks.*1.bias"):
        update_state_dict(model_with_counter(), torch.nn.Sequential(torch.nn.Linear(3, 2)).state_dict())


BLOCKS = """
import ctypes, sys, torch
from rlpyt.agents.base import BaseAgent
from rlpyt.models.utils import keep_large_blocks

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Info
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    keep_large_blocks()
if sys.argv[1] == "act":
    BaseAgent().collector_initialize()
before = mallinfo2()
block = torch.ones(16 * 2**20)  # 64 MB
held = mallinfo2()
del block
after = mallinfo2()
print((held.hblkhd - before.hblkhd) >> 20, (held.arena - before.arena) >> 20, (after.arena - before.arena) >> 20)
"""


@processes
@full
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_large_blocks_come_from_memory_that_the_process_keeps():
    def measure(mode):
        """MB mapped for a block by itself; MB that the heap grows by for it, and still has after its release."""
        run = subprocess.run([sys.executable, "-c", BLOCKS, mode], capture_output=True, check=True, text=True)
        return [int(number) for number in run.stdout.split()]

    mapped, grown, kept = measure("default")
    assert mapped >= 64 and grown < 32 and kept < 32
    for mode in ("keep", "act"):
        mapped, grown, kept = measure(mode)
        assert mapped == 0 and grown > 32 and kept == grown  # Some of it was there before.


def test_modules_and_parameters_are_those_of_torch():
    shared = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(shared, torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False), torch.nn.LSTM(3, 2)), shared)
    model.register_module("nothing", None)
    model.register_parameter("last", torch.nn.Parameter(torch.zeros(1)))
    assert [id(p) for p in parameters_of(model)] == [id(p) for p in model.parameters()]
    assert {id(m) for m in modules_of(model)} == {id(m) for m in model.modules()}


def test_a_model_that_says_which_parameters_it_has_is_asked():
    class Own(torch.nn.Linear):
        def parameters(self, recurse=True):
            return iter([self.weight])

    assert len(list(parameters_of(Own(2, 2)))) == 1
