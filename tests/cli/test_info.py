"""rlpyt info."""

import json
import os
import platform
import signal
import threading

import checks_for_tests
import numpy
import psutil
import pytest
import torch
from absent import make_absent
from tiers import full, processes, thinned

from rlpyt.cli import checks, info
from rlpyt.cli.checks import FAILED, MISSING, NONE, OK, Check, results
from rlpyt.utils import accelerator
from rlpyt.utils.extras import EXTRAS, install_command, missing_modules
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
    assert len(facts["GPUs"]) == accelerator.count()
    assert facts["torch threads"].startswith(str(torch.get_num_threads()))
    assert lines["torch"] == torch.__version__ and "not installed" not in lines["rlpyt"]


def test_packages_that_are_missing_are_said():
    assert info.version_of("a-package-that-is-not-installed") == "not installed"


# ---------------------------------------------------------------------------------------------------------------------
# --check
# ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def of_tests(monkeypatch):
    """Lets ``rlpyt info --check`` run functions of `checks_for_tests`, by their names."""

    def choose(*names):
        monkeypatch.setattr(checks, "CHECKS", [Check(name.replace("_", " "), getattr(checks_for_tests, name)) for name in names])

    return choose


@pytest.fixture
def no_process_is_left(nothing_is_left_behind):
    """Fails if a process of `checks_for_tests` is left, which may have lost its parent."""
    yield
    assert not [process for process in psutil.process_iter(["cmdline"]) if checks_for_tests.SLEEP == process.info["cmdline"]]


def test_there_is_a_check_of_each_extra():
    assert {check.extra for check in checks.CHECKS} == set(EXTRAS)


@full
@processes
@pytest.mark.timeout(600)
def test_this_installation_works(rlpyt, nothing_is_left_behind):
    code, out, _ = rlpyt("info", "--check", "--json")
    ended = {result["name"]: result for result in json.loads(out)}
    assert list(ended) == [check.name for check in checks.CHECKS]
    assert not {name: result for name, result in ended.items() if result["status"] == FAILED} and code == 0
    for check in checks.CHECKS:
        expected = MISSING if check.extra and missing_modules(check.extra) else OK
        if check.name == "GPU" and not accelerator.count():
            expected = NONE
        assert ended[check.name]["status"] == expected


@processes
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", thinned(["shared memory", "numba"], quick=["shared memory"]))
def test_what_works_is_ok(rlpyt, monkeypatch, nothing_is_left_behind, name):
    monkeypatch.setattr(checks, "CHECKS", [check for check in checks.CHECKS if check.name == name])
    code, out, err = rlpyt("info", "--check")
    assert code == 0 and err == "" and out.startswith(f"{name}  ok       ") and "1 ok, in " in out


@processes
@pytest.mark.timeout(120)
def test_what_fails_is_said_in_a_sentence_with_where_to_read_on(rlpyt, of_tests, nothing_is_left_behind):
    of_tests("works", "fails", "is_not_here", "dies", "exits")
    code, out, err = rlpyt("info", "--check")
    read_on = f"Read on in {checks.where_to_read_on()}"
    assert out.splitlines()[:-1] == [
        "works        ok       as it should",
        f"fails        FAILED   ValueError: the sum is 3, not 4 {read_on}",
        "is not here  none     there is none",
        f"dies         FAILED   Its process was ended by SIGKILL. {read_on}",
        f"exits        FAILED   Its process ended with exit code 3. {read_on}",
        "",
    ]
    assert "1 ok, 1 not there, 3 FAILED, in " in out and (code, err) == (1, "")


@processes
@pytest.mark.timeout(120)
def test_the_output_of_what_failed_is_in_the_json(rlpyt, of_tests):
    of_tests("works", "fails")
    worked, failed = json.loads(rlpyt("info", "--check", "--json")[1])
    assert (worked["status"], worked["output"], failed["status"]) == (OK, "", FAILED)
    assert "before it failed" in failed["output"] and "in fails\n" in failed["output"] and "more than a sentence" in failed["output"]


@full
@processes
@pytest.mark.timeout(120)
def test_what_hangs_is_said_and_ended_with_all_that_it_started(monkeypatch, no_process_is_left):
    monkeypatch.setattr(checks, "GRACE", 60)  # The process ends itself, however long it takes to start.
    hangs, works = (Check(name, getattr(checks_for_tests, name)) for name in ("hangs", "works"))
    hung, worked = results([hangs, works], timeout=4, at_once=2)
    assert (hung.status, hung.detail) == (FAILED, "It did not end within 4 s.") and hung.seconds < 60 and worked.status == OK
    assert "in hangs\n" in hung.output  # Where it hung.

    monkeypatch.setattr(checks, "GRACE", 0.5)
    hangs_for_good = Check("hangs_for_good", checks_for_tests.hangs_for_good)
    (hung,) = results([hangs_for_good], timeout=4)
    assert (hung.status, hung.detail) == (FAILED, "It did not end within 4 s.")


@processes
@pytest.mark.timeout(120)
def test_what_a_check_leaves_is_ended_and_so_is_what_nobody_waits_for(no_process_is_left):
    (left,) = results([Check("leaves a process", checks_for_tests.leaves_a_process)])
    assert left.status == OK
    unfinished = results([Check("works", checks_for_tests.works), Check("hangs", checks_for_tests.hangs)], at_once=2)
    assert next(unfinished).status == OK
    unfinished.close()


@processes
@pytest.mark.timeout(120)
def test_sigterm_ends_the_checks_in_progress(rlpyt, of_tests, no_process_is_left):
    of_tests("works", "hangs")
    before = signal.getsignal(signal.SIGTERM)  # A test with Ray in this process may have left a handler.
    timer = threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    assert rlpyt("info", "--check")[0] == 143 and signal.getsignal(signal.SIGTERM) == before


def test_what_is_not_installed_is_not_tried(rlpyt, monkeypatch):
    make_absent(monkeypatch, "wandb")
    monkeypatch.setattr(checks, "CHECKS", [Check("wandb", checks_for_tests.fails, "wandb")])
    code, out, _ = rlpyt("info", "--check")
    assert code == 0 and out.startswith(f"wandb  missing  {install_command('wandb')}") and "1 not installed, in 0 s." in out


def test_a_run_is_not_checked(rlpyt):
    code, _, err = rlpyt("info", "run_0", "--check")
    assert code == 2 and "leave out run_0" in err


def test_the_facts_of_a_run_stay_whatever_its_settings_are_called(tmp_path, rlpyt):
    record = dict(host="here", started="today")
    params = dict(name="a", status="mine", host="mine", size=3, rlpyt=record)
    (tmp_path / "params.json").write_text(json.dumps(params))
    facts = json.loads(rlpyt("info", tmp_path, "--json")[1])
    assert (facts["host"], facts["size"]) == ("here", "3") and facts["status"].endswith("environment steps")
