"""Lets tests, and the processes they spawn, import what lies directly under tests/ (``import envs``), and functions of test modules."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

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


def pytest_collection_modifyitems(config, items):
    """Leave out the tests marked `full`, except those of files that the command line names."""
    for item in items:  # One cluster for all tests with Ray.
        if "running_cluster" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("ray"))
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
    """Remove what libraries call in each garbage collection: Python drops the KeyboardInterrupt of a Ctrl-C that comes just then."""
    gc.callbacks.clear()
    forking.make_forks_cheap_again()


def pytest_terminal_summary(terminalreporter, config):
    if not config.option.all:
        terminalreporter.write_line("These were the quick tests, unless files were named. To run all of them: pytest --all")


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
