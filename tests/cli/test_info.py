"""rlpyt info."""

import json
import os
import platform
import sys
import types

import numpy
import pytest
import torch

from rlpyt.cli import info


def test_it_tells_versions_and_the_machine(rlpyt):
    code, out, err = rlpyt("info")
    lines = {line[:15].strip(): line[15:].strip() for line in out.splitlines()}
    assert (code, err) == (0, "")
    facts = json.loads(rlpyt("info", "--json")[1])
    assert facts["python"].startswith(platform.python_version())
    assert (facts["torch"], facts["numpy"]) == (torch.__version__, numpy.__version__)
    assert f"{len(info.allowed_cpus())} allowed of {os.cpu_count()}" in facts["CPUs"]
    assert "GiB" in facts["memory"] and len(facts["GPUs"]) == torch.cuda.device_count()
    assert facts["torch threads"].startswith(str(torch.get_num_threads()))
    assert lines["torch"] == torch.__version__ and "not installed" not in lines["rlpyt"]


def test_packages_that_are_missing_are_said():
    assert info.version_of("a-package-that-is-not-installed") == "not installed"


def test_the_affinity_code_is_told_if_there_is_one(monkeypatch):
    module = types.ModuleType("rlpyt.utils.launching.affinity")
    module.quick_affinity_code = lambda: "2cpu"
    monkeypatch.setitem(sys.modules, "rlpyt.utils.launching.affinity", module)
    assert info.facts_of_this_machine()["affinity code"] == "2cpu"


@pytest.mark.parametrize("numbers, text", [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2, 5, 7-8")])
def test_processors_are_shown_as_ranges(numbers, text):
    assert info.ranges(numbers) == text
