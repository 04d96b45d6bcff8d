"""rlpyt info."""

import json
import platform

import numpy
import torch
from tiers import processes

from rlpyt.cli import info
from rlpyt.utils.launching.affinity import quick_affinity_code
from rlpyt.utils.launching.machine import read_machine


@processes
def test_it_tells_versions_and_the_machine(rlpyt):
    code, out, err = rlpyt("info")
    lines = {line[:15].strip(): line[15:].strip() for line in out.splitlines()}
    assert (code, err) == (0, "")
    facts = json.loads(rlpyt("info", "--json")[1])
    assert facts["python"].startswith(platform.python_version())
    assert (facts["torch"], facts["numpy"]) == (torch.__version__, numpy.__version__)
    assert facts["machine"] == read_machine().describe().splitlines() and facts["affinity code"] == quick_affinity_code()
    assert len(facts["GPUs"]) == torch.cuda.device_count()
    assert facts["torch threads"].startswith(str(torch.get_num_threads()))
    assert lines["torch"] == torch.__version__ and "not installed" not in lines["rlpyt"]


def test_packages_that_are_missing_are_said():
    assert info.version_of("a-package-that-is-not-installed") == "not installed"
