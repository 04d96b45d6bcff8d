"""The script that tries other Pythons: what it finds, and how it reports."""

import os
import sys

import pythons
from tiers import processes

HERE = ".".join(map(str, sys.version_info[:2]))
GOOD, BAD = [[sys.executable, "-c", "print(1)"]], [[sys.executable, "-c", "print('what went wrong'); raise SystemExit(3)"]]


@processes
def test_the_newest_interpreter_of_each_version_is_found_and_shims_are_not(tmp_path, monkeypatch):
    def script(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    script(tmp_path / "bin" / "python3.10", "echo 'not chosen' >&2; exit 127")
    script(tmp_path / "bin" / "python3.12", "echo 3 12 1")
    newest = script(tmp_path / "pyenv" / "versions" / "3.12.11" / "bin" / "python", "echo 3 12 11")
    script(tmp_path / "uv" / "cpython-3.12.9-linux" / "bin" / "python", "echo 3 12 9")
    of_uv = script(tmp_path / "uv" / "cpython-3.13.0-linux" / "bin" / "python", "echo 3 13 0")
    assert pythons.interpreters() == {"3.12.11": newest, "3.13.0": of_uv}
    assert pythons.interpreters(["3.10"]) == {}


@processes
def test_this_interpreter_says_its_version():
    assert pythons.full_version(sys.executable) == sys.version_info[:3] and pythons.full_version("/no/such/python") == ()


@processes
def test_what_follows_a_failure_is_left_out(tmp_path, capfd):
    first, second, third = pythons.run_steps(dict(a=GOOD, b=[*GOOD, *BAD, *GOOD], c=GOOD), tmp_path)
    assert pythons.is_ok(first) and (second, third) == ("FAILED", pythons.LEFT_OUT)
    assert capfd.readouterr().err.strip().endswith("raise SystemExit(3): 3\nwhat went wrong")


@processes
def test_a_table_says_how_it_went_and_the_exit_code_whether_all_went_well(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pythons, "interpreters", lambda versions: {"3.11.7": "a", "3.12.1": "b"})
    steps = {"a": dict(install=GOOD, tests=GOOD), "b": dict(install=BAD, tests=GOOD)}
    monkeypatch.setattr(pythons, "commands", lambda python, extras, tests: steps[python])
    monkeypatch.setattr(pythons, "copy_tree", lambda tree, directory: None)
    assert pythons.main(["--keep", str(tmp_path / "kept"), "--only", "3.11", "3.12", "3.13"]) == 1
    out = capsys.readouterr().out.partition("\n\n")[2]
    assert [line.split() for line in out.splitlines() if line[:2] == "3."] == [
        ["3.11.7", "0", "s", "-", "-", "0", "s"],
        ["3.12.1", "FAILED", "-", "-", "-"],
    ]
    assert "No interpreter was found of 3.13." in out and len(os.listdir(tmp_path / "kept")) == 2
    steps["b"] = steps["a"]
    assert pythons.main([]) == 0
