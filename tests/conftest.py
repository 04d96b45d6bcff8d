"""Lets tests, and the processes they spawn, import what lies directly under tests/ (``import envs``), and functions of test modules."""

import gc
import os
import random
import signal
import sys
import zlib
from pathlib import Path

import pytest
from xdist.scheduler import LoadGroupScheduling

sys.dont_write_bytecode = False  # Else each process of tests rewrites the assertions of all tests and of hypothesis anew, for ten seconds,
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # and what tests start compiles rlpyt anew.

import hypothesis  # noqa: E402  # After that, since pytest rewrites its assertions too.

hypothesis.settings.register_profile("tests", deadline=None)  # Tests are right or wrong, not slow: other programs run as well.
hypothesis.settings.load_profile("tests")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # Several tests, and other programs, share the processors: a process has one thread of torch,
os.environ.setdefault("GOMP_SPINCOUNT", "0")  # and where a test asks for more, none of them keeps a processor busy while it waits.

os.environ.setdefault("RLPYT_CALIBRATE", "0")  # Runs of tests measure nothing (`rlpyt.utils.choices`), unless a test is about that.

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import forking  # noqa: E402  # It lies beside this file.

for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:  # As jobs in the background are started: but tests press Ctrl-C, or hang up.
        signal.signal(_number, _handler)


RAY = "ray"  # group of the tests that need Ray


# ---------------------------------------------------------------------------------------------------------------------
# Tiers: tests marked `full` run with --all, or when their file is named
# ---------------------------------------------------------------------------------------------------------------------
def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run all tests, not only the quick ones")


def pytest_xdist_auto_num_workers(config):
    """Run four tests at a time, since many of them wait for processes; one, in this very process, where files are named."""
    return 0 if _named_files(config) or config.option.usepdb else 4


def _named_files(config):
    arguments = [config.invocation_params.dir / argument.split("::")[0] for argument in config.args]
    return {path.resolve() for path in arguments if path.is_file()}


@pytest.hookimpl(tryfirst=True)  # Before xdist looks which groups there are.
def pytest_collection_modifyitems(config, items):
    """Group tests that share something expensive; skip those that need a GPU where there is none; leave out those marked `full`, except
    those of files that the command line names.
    """
    from rlpyt.utils import accelerator

    if accelerator.device_type() != "cuda":
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))
    for item in items:  # One cluster for all tests with Ray.
        if "running_cluster" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group(RAY))
    # One process to fork scripts from, which takes longer to start than they run. Of all tests there are too many for one such process,
    # and each file has its own, since its tests share what runs have written.
    for item in items:
        if hasattr(item.module, "preloaded"):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__ if config.option.all else "preloaded"))
    if config.option.all:
        return
    named = _named_files(config)
    left_out = {item for item in items if item.get_closest_marker("full") and item.path.resolve() not in named}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage meanwhile, since next to nothing of what imports and tests take is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session):
    """Many tests fork, and many collect garbage, which then looks through their own objects only."""
    if not session.config.option.collectonly:
        forking.make_forks_cheap()


def pytest_runtest_setup(item):
    """Seed the test, and remove what libraries call in each garbage collection: Python drops the KeyboardInterrupt of a Ctrl-C that comes
    just then.
    """
    gc.callbacks.clear()
    forking.make_forks_cheap_again()
    _seed(zlib.crc32(item.name.encode()))


def _seed(seed):
    """Give each test its own random numbers, the same in each run: a failure is there again when its test is run alone."""
    import numpy as np  # Here, since the process that hands out tests needs neither.
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def pytest_terminal_summary(terminalreporter, config):
    if not config.option.all:
        terminalreporter.write_line("These were the quick tests, unless files were named. To run all of them: pytest --all")


# ---------------------------------------------------------------------------------------------------------------------
# Processes of tests that die, and failures that are told at once
# ---------------------------------------------------------------------------------------------------------------------
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getvalue("dist") == "loadgroup":
        return _Scheduler(config, log)


class _Scheduler(LoadGroupScheduling):
    """Goes on when a process of tests has died, where xdist runs the same test again, or waits for ever.

    xdist puts all groups of that process back into the queue, and hands out one after each test that ends. But a group of which all
    tests have run brings no such end, nor does a group of one test, which a process keeps until it has a second one.
    """

    def remove_node(self, node):
        groups = self.assigned_work.pop(node)
        left = [(name, test) for name, group in groups.items() for test, has_ended in group.items() if not has_ended]
        if not left:
            return None
        name, test = left[0]  # The process died in this one.
        groups[name][test] = True
        self.workqueue.update(groups)
        for other in self.assigned_work:
            self._reschedule(other)
        return test

    def _reschedule(self, node):
        if node.shutting_down:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= 2:
            name, group = next(iter(self.workqueue.items()))
            if all(group.values()):
                del self.workqueue[name]
            else:
                self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Call a test that joins a cluster of Ray, or needs a GPU, in a process of its own.

    A process that has joined and left clusters many times is no longer sound: seen were segmentation faults in threads of Ray's, and
    damaged memory, after which unrelated tests in the same process failed. After a process has used CUDA, its forks cannot use it.
    """
    if "running_cluster" not in pyfuncitem.fixturenames and not pyfuncitem.get_closest_marker("gpu"):
        return None
    forking.call_in_fork(pyfuncitem)
    return True


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Name each test that fails at once: a run that is killed prints no summary."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(reporter))


class _Failures:
    def __init__(self, reporter):
        self._reporter = reporter

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            error = (crash.message if crash else str(report.longrepr)).splitlines()
            self._reporter.write_line(f" {report.nodeid} ({report.when}, {report.duration:.0f} s): {error[0] if error else ''}")


# ---------------------------------------------------------------------------------------------------------------------
# Fixtures
# ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def running_cluster():
    """A Ray cluster of two CPUs, the same for all tests."""
    pytest.importorskip("ray")
    from ray_clusters import RunningCluster

    cluster = RunningCluster()
    yield cluster
    assert not cluster.close(), "processes of Ray are left behind"


@pytest.fixture
def ray_address(running_cluster):
    """Address of that cluster, on which no actor is left behind."""
    yield running_cluster.address
    assert not running_cluster.wait_until_idle(), "actors are left behind"


@pytest.fixture
def nothing_is_left_behind(tmp_path):
    """Fails if anything outlives the test that `leftovers.nothing_is_left` looks for, or a process group."""
    from leftovers import nothing_is_left

    with nothing_is_left(tmp_path):
        yield
    distributed = sys.modules.get("torch.distributed")
    assert distributed is None or not distributed.is_initialized()
