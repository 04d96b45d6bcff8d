"""What a process may use of its machine, read from the system's files: recorded ones of several machines."""

import os
import subprocess
import sys

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import NAMES, lay_out, recorded
from tiers import processes

from rlpyt.utils.launching.machine import Core, cpu_list, parse_cpu_list, read_machine

GIB = 2**30


def test_a_server_has_sockets_hyperthreads_and_gpus_next_to_them(tmp_path):
    machine = recorded("eight_gpus", tmp_path)
    assert machine.cores == tuple(Core((i, i + 40), socket=i // 20) for i in range(40))
    assert [len(cores) for cores in machine.sockets] == [20, 20]
    assert machine.gpu_sockets == (0, 0, 0, 0, 1, 1, 1, 1)
    assert machine.cpu_quota is None and machine.n_cores == 40 and not machine.is_limited and machine.can_bind
    assert machine.memory == 528274432 * 1024


def test_hyperthreads_may_have_neighbouring_numbers(tmp_path):
    machine = recorded("desktop", tmp_path)
    assert machine.cores == tuple(Core((i, i + 1)) for i in range(0, 16, 2))
    assert machine.gpu_sockets == (0,) and machine.cpu_quota is None and machine.memory == 65757944 * 1024


def test_only_processors_that_are_allowed_are_seen(tmp_path):
    machine = recorded("cpuset", tmp_path)
    pairs = [(8, 24), (9, 25), (10, 26), (11, 27), (12,), (13,)]
    assert machine.cores == tuple(Core(cpus, socket=1) for cpus in pairs)
    assert machine.gpu_sockets == (1,)  # CUDA_VISIBLE_DEVICES leaves the third one, which is next to socket 1.
    assert machine.memory == 32 * GIB


def test_a_system_that_tells_nothing_has_single_cores_in_one_socket(tmp_path):
    machine = recorded("one_core", tmp_path)
    assert machine.cores == (Core((0,), socket=0),) and machine.n_cores == 1 and not machine.has_hyperthreads


def test_a_quota_limits_the_cores_that_can_be_busy(tmp_path):
    machine = recorded("container", tmp_path)
    assert len(machine.cores) == 32 and machine.cpu_quota == 4.5 and machine.n_cores == 4 and machine.is_limited
    assert machine.memory == 16 * GIB


@pytest.mark.parametrize(
    "files, quota",
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "300000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 3.0),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "300000 100000", "sys/fs/cgroup/a/b/cpu.max": "50000 100000"}, 0.5),
        ({"proc/self/cgroup": "0::/host/path/not/seen/inside", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        ({"proc/self/cgroup": "0::/../elsewhere", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            2.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({"sys/fs/cgroup/cpu.max": "100000 100000"}, 1.0),
        ({}, None),
    ],
)
def test_the_least_quota_of_all_control_groups_counts(files, quota, tmp_path):
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")
    machine = read_machine(tmp_path, cpus=range(16), n_gpu=0)
    assert machine.cpu_quota == quota
    assert machine.n_cores == (16 if quota is None else max(int(quota), 1))


@pytest.mark.parametrize(
    "visible, sockets",
    [
        ("0,7", (0, 1)),
        ("7,0", (1, 0)),
        (" 4 , 5 ", (1, 1)),
        ("GPU-2f6e0d5a,GPU-6f6e", (0, 1)),
        ("MIG-of-another-name", (None,)),
        ("GPU-", (None,)),  # Any of them begins so.
        ("11", (None,)),
    ],
)
def test_cuda_visible_devices_says_which_gpus_these_are(visible, sockets, tmp_path):
    lay_out("eight_gpus", tmp_path)
    machine = read_machine(tmp_path, cpus=range(80), n_gpu=len(sockets), env=dict(CUDA_VISIBLE_DEVICES=visible))
    assert machine.gpu_sockets == sockets


def test_gpus_of_which_the_system_tells_another_number_have_no_known_place(tmp_path):
    lay_out("eight_gpus", tmp_path)
    assert read_machine(tmp_path, cpus=range(80), n_gpu=3, env={}).gpu_sockets == (None, None, None)
    assert read_machine(tmp_path, cpus=range(80), n_gpu=0, env=dict(CUDA_VISIBLE_DEVICES="")).gpu_sockets == ()


@pytest.mark.parametrize(
    "n_cpus, n_cores, cores", [(8, 8, 8 * [1]), (8, 4, 4 * [2]), (10, 8, 2 * [2] + 6 * [1]), (4, None, 4 * [1]), (None, None, [1])]
)
def test_elsewhere_processors_are_counted_and_not_bound(n_cpus, n_cores, cores, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: n_cpus)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: n_cpus if logical else n_cores)
    machine = read_machine(tmp_path, n_gpu=0)
    assert [len(core.cpus) for core in machine.cores] == cores and not machine.can_bind and machine.cpu_quota is None
    assert machine.cpus == tuple(range(n_cpus or 1))
    assert machine.memory > 0
    assert "does not bind" in machine.describe()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not bind processes")
def test_this_machine_has_the_processors_that_are_allowed():
    machine = read_machine()
    assert set(machine.cpus) == os.sched_getaffinity(0)
    assert 1 <= machine.n_cores <= len(machine.cores)
    assert machine.memory > 0


@processes
@pytest.mark.timeout(60)
def test_no_torch_is_imported_where_gpus_need_not_be_counted():
    code = "import sys; from rlpyt.utils.launching import affinity; affinity.affinity_from_code('1cpu'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_gpus_are_counted_by_torch(monkeypatch, tmp_path):
    monkeypatch.setattr("rlpyt.utils.accelerator.count", lambda: 2)
    assert read_machine(tmp_path, cpus=[0]).n_gpu == 2


@settings(deadline=None)
@given(st.sets(st.integers(0, 200)))
def test_lists_of_processors_are_read_as_they_are_written(cpus):
    assert parse_cpu_list(cpu_list(cpus)) == sorted(cpus)


def test_lists_of_processors_are_written_as_the_system_does():
    assert cpu_list([9, 0, 1, 2, 4, 7, 8]) == "0-2,4,7-9"
    assert parse_cpu_list("") == parse_cpu_list("\n") == []


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_is_described_in_a_few_lines(name, tmp_path):
    text = recorded(name, tmp_path).describe()
    assert text.startswith("Processors: ") and "\nGPUs: " in text and "\nMemory: " in text
    assert max(map(len, text.splitlines())) <= 140


def test_the_description_says_what_matters(tmp_path):
    text = recorded("eight_gpus", tmp_path).describe()
    for said in ("40 cores", "CPUs 0-79", "2 sockets", "socket 1: 20 cores, CPUs 20-39,60-79", "2 hyperthreads", "8 visible", "503.8 GiB"):
        assert said in text
    assert "next to socket 1: 4-7" in text
