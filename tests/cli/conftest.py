"""Small runs for the commands to work on; each is trained once."""

from pathlib import Path

import pytest

from rlpyt.experiments import train


@pytest.fixture
def rlpyt(capsys):
    """Runs a command in this process: ``rlpyt("eval", path)`` returns (exit code, stdout, stderr)."""
    from rlpyt.cli import main

    def run(*args):
        capsys.readouterr()
        try:
            code = main([str(arg) for arg in args])
        except SystemExit as exit:  # argparse's
            code = exit.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Returns the directory of a tiny run of a configuration, such as ``trained("cartpole", "dqn")``. Do not write there."""
    runs = {}

    def make(module, key, *settings, **kwargs):
        name = (module, key, settings, tuple(kwargs.items()))
        if name not in runs:
            log_dir = tmp_path_factory.mktemp(f"{module}_{key}")
            runs[name] = Path(train.build_and_train(module, key, log_dir=str(log_dir), smoke=True, settings=settings, **kwargs))
        return runs[name]

    return make
