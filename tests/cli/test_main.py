"""The command line as a whole."""

import subprocess
import sys

import pytest
from tiers import processes

from rlpyt.cli import COMMANDS

HEAVY = {"torch", "numpy", "matplotlib", "gymnasium", "numba", "cv2", "psutil"}


def run(*args, **kwargs):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=120, **kwargs)


@processes
@pytest.mark.timeout(150)
def test_help_lists_the_commands_and_needs_nothing_heavy():
    code = "import sys, rlpyt.cli\ntry: rlpyt.cli.main(['--help'])\nfinally: print('modules', *sys.modules)"
    out = run("-c", code)
    text, _, modules = out.stdout.partition("modules ")
    assert out.returncode == 0, out.stderr
    assert all(f"\n    {command} " in text for command in COMMANDS)
    assert not HEAVY & set(modules.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_with_an_example(command, rlpyt):
    code, out, _ = rlpyt(command, "--help")
    assert code == 0 and f"  rlpyt {command}" in out.partition("example")[2]
    assert max(map(len, out.splitlines())) <= 110


@processes
@pytest.mark.timeout(150)
def test_it_also_runs_as_a_module(tmp_path):
    out = run("-m", "rlpyt", "plot", str(tmp_path))
    assert out.returncode == 2 and out.stdout == ""
    assert out.stderr.startswith(f"rlpyt plot: There is no run in {tmp_path}: no directory with ")


def test_a_misspelt_command_is_refused_with_those_there_are(rlpyt):
    code, _, err = rlpyt("polt", "somewhere")
    assert code == 2 and all(command in err for command in COMMANDS)


@processes
@pytest.mark.timeout(150)
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    for i in range(200):
        (tmp_path / f"run_{i}").mkdir()
        (tmp_path / f"run_{i}" / "debug.log").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "rlpyt", "status", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(120) == 0
    process.stderr.close()
