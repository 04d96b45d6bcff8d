"""Structures are copied to a device and back in one piece each."""

import pickle
from pathlib import Path

import preloaded
import torch

from rlpyt.utils.packing import PackedCopies, to_cpu


def test_structures_arrive_in_one_copy_without_waiting(tmp_path):
    done = preloaded.run(Path(__file__).with_name("packing_run.py"), cwd=tmp_path)
    assert "all copies have arrived" in done.stdout, done.stderr[-3000:]


def test_on_the_cpu_nothing_is_copied():
    structure = torch.ones(3), None, (torch.zeros(2),)
    copies = pickle.loads(pickle.dumps(PackedCopies(torch.device("cpu"))))
    assert copies.to_device(structure) is structure
    assert all(a is b for a, b in zip(to_cpu(structure), structure) if torch.is_tensor(a))
