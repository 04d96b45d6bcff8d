"""Names of the original that were left out are errors that say what to do."""

import importlib
import sys

import pytest

from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.sync_rl import SyncRl
from rlpyt.samplers.async_ import collectors as async_collectors
from rlpyt.samplers.parallel.cpu import collectors as cpu
from rlpyt.samplers.parallel.gpu import collectors as gpu
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler
from rlpyt.utils.left_out import MODULES, NAMES, OVERRIDES, explain_missing_modules


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_was_left_out_says_so_however_it_is_imported(module):
    package, _, name = module.rpartition(".")
    for statement in (f"import {module}", f"from {module} import something", f"from {package} import {name}", f"import {module}.below"):
        with pytest.raises(ModuleNotFoundError, match=f"^{module} of rlpyt 0.1 does not exist here: .* See docs/differences.md.$"):
            exec(statement)


def test_other_modules_are_looked_for_as_ever():
    explain_missing_modules()  # It is there already.
    assert sum("left_out" in type(finder).__module__ for finder in sys.meta_path) == 1
    with pytest.raises(ModuleNotFoundError, match="No module named 'rlpyt.ull'"):
        importlib.import_module("rlpyt.ull")


@pytest.mark.parametrize("module, name", [(module, name) for module, names in NAMES.items() for name in names])
def test_a_name_that_was_left_out_says_so(module, name):
    with pytest.raises(ImportError, match=f"^{module}.{name} of rlpyt 0.1 does not exist here: .* See docs/differences.md.$"):
        exec(f"from {module} import {name}")


@pytest.mark.parametrize("module", NAMES)
def test_other_names_are_missing_as_ever(module):
    assert not hasattr(importlib.import_module(module), "nothing")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from {module} import nothing")


@pytest.mark.parametrize("Base, name", [(SyncRl, "WorkerCls"), (AsyncRl, "launch_memcpy"), (GpuSampler, "serve_actions")])
def test_a_class_that_overrides_what_nothing_calls_is_refused_when_it_is_made(Base, name):
    Mine = type("Mine", (Base,), {name: property(lambda self: None)})
    with pytest.raises(TypeError, match=f"^Mine defines {name}, which rlpyt never calls. .*{name} of rlpyt 0.1 does not exist.*override"):
        Mine()


def test_a_class_that_calls_what_it_defines_is_not_refused():
    class Mine(SyncRl):
        WorkerCls = None

        def launch_workers(self):
            return self.WorkerCls

    with pytest.raises(ValueError, match="affinity"):
        Mine()


def test_methods_that_nothing_calls_do_not_exist():
    for path, uncalled in OVERRIDES.items():
        module, _, cls = path.rpartition(".")
        cls = getattr(importlib.import_module(module), cls)
        assert not vars(cls).keys() & set(uncalled.names), path


def test_collectors_of_asynchronous_samplers_are_those_of_the_others_so_that_snapshots_of_either_name_resume():
    for name in ("CpuResetCollector", "CpuWaitResetCollector", "GpuResetCollector", "GpuWaitResetCollector"):
        assert vars(async_collectors)[f"Db{name}"] is vars(cpu if name.startswith("Cpu") else gpu)[name]
