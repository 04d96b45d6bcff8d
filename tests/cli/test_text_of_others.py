"""What others have written into names and files is shown, but does nothing to the terminal, and leads nowhere."""

import json
import random
import shutil
from contextlib import suppress

import pytest
import torch
from damage import damaged
from tiers import full, thinned

from rlpyt.utils.launching.status import experiment_status, read_experiment

CLEARS = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"  # The screen, the title of the window, the line, colours, the direction of writing.
SHORT = ("algo.linear_lr_schedule=False", "runner.n_steps=256")
SHOWN = r"\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"


def clean(*outputs):
    """Nothing in what was printed but line ends is not printable."""
    for output in outputs:
        bad = {c for c in output if not c.isprintable() and c != "\n"}
        assert not bad, (bad, output[:2000])
    return "".join(outputs)


@pytest.fixture
def run_dir(tmp_path):
    """A run that somebody has made up."""
    run_dir = tmp_path / f"sweep{CLEARS}" / f"run_0{CLEARS}"
    run_dir.mkdir(parents=True)
    (run_dir / "progress.csv").write_bytes(f"Diagnostics/CumSteps,ReturnAverage,a{CLEARS},\n100,1.5,2,\n200,2.5,3,".encode() + b"\xff\n")
    (run_dir / "debug.log").write_text(f"Traceback (most recent call last):\nValueError: from the log{CLEARS}\n", encoding="utf-8")
    record = {
        "n_steps": 300, "script": {"file": f"/s{CLEARS}.py"}, "host": CLEARS, "command": ["python", CLEARS], "packages": {CLEARS: CLEARS},
        "sampler": {"arguments": {f"batch{CLEARS}": CLEARS}}, "runner": {"arguments": {}},
    }  # fmt: skip
    params = {"name": f"name{CLEARS}", "run_ID": 0, f"key{CLEARS}": [CLEARS], "$math": "$\\frac{$", "rlpyt": record}
    (run_dir / "params.json").write_text(json.dumps(params))
    return run_dir


def test_a_table_of_states(run_dir, rlpyt):
    code, out, err = rlpyt("status", run_dir.parent.parent)
    text = clean(out, err)
    assert code == 0 and f"run_0{SHOWN}" in text and f"from the log{SHOWN}" in text
    assert len({len(line) for line in out.splitlines()[:1]}) == 1
    (run_dir / "FAILED.json").write_text(json.dumps(dict(error=f"marked\n{CLEARS}", exit_code=[CLEARS], seconds="x", started="y", host=5)))
    text = clean(*rlpyt("status", run_dir.parent.parent)[1:])
    assert rf"marked\n{SHOWN}" in text
    raw = json.loads(rlpyt("status", run_dir.parent.parent, "--json")[1])
    assert raw[0]["error"] == f"marked\n{CLEARS}", "for programs, it is what it is"


def test_names_of_columns(run_dir, rlpyt):
    code, out, err = rlpyt("plot", "--keys", run_dir)
    assert code == 0 and f"a{SHOWN}" in clean(out, err).splitlines()
    code, out, err = rlpyt("plot", run_dir, "--key", "none")
    assert code == 2 and f"a{SHOWN}" in clean(out, err)


def test_a_picture_has_the_names_as_they_are(run_dir, rlpyt, tmp_path, recwarn):
    pytest.importorskip("matplotlib")
    code, out, err = rlpyt("plot", run_dir, "--group-by", "$math", "--out", tmp_path / "out.svg")
    assert code == 0 and clean(out, err) and (tmp_path / "out.svg").exists()
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_how_a_run_was_made(run_dir, rlpyt):
    code, out, err = rlpyt("info", run_dir)
    text = clean(out, err)
    assert code == 0 and f"name{SHOWN}" in text and f"key{SHOWN}" in text and f"batch{SHOWN}" in text
    assert json.loads(rlpyt("info", run_dir, "--json")[1])["name"] == f"name{CLEARS}"


@pytest.mark.parametrize("command", ["resume", "eval", "video"])
def test_errors(command, run_dir, rlpyt, tmp_path):
    out_file = ["--out", tmp_path / "x.gif"] if command == "video" else []
    code, out, err = rlpyt(command, run_dir, *out_file)
    assert code == 2 and SHOWN in clean(out, err)
    torch.save({"agent_state_dict": {}, "itr": CLEARS, f"k{CLEARS}": 5}, run_dir / "params.pkl")
    code, out, err = rlpyt(command, run_dir, *out_file)
    assert code == 2 and SHOWN in clean(out, err)


@full
def test_a_resumed_run_says_nothing_else(trained, rlpyt, tmp_path):
    run_dir = shutil.copytree(trained("cartpole", "ppo", *SHORT), tmp_path / f"of{CLEARS}" / "run_0")
    params = json.loads((run_dir / "params.json").read_text())
    (run_dir / "params.json").write_text(json.dumps(dict(params, name=CLEARS)))
    code, out, err = rlpyt("resume", run_dir)
    assert code == 0 and SHOWN in clean(out, err) and "complete" in out
    code, out, err = rlpyt("resume", run_dir, "--n_steps", "512")
    assert code == 0 and SHOWN in clean(out, err) and "Resumed" in out
    code, out, err = rlpyt("eval", run_dir, "--episodes", "1")
    assert code == 0 and SHOWN in clean(out, err)


def test_a_snapshot_that_names_a_function_is_no_program(trained, rlpyt, tmp_path, monkeypatch):
    """`numpy.random.test` imports conftest.py of the current directory."""
    run_dir = shutil.copytree(trained("cartpole", "ppo", *SHORT), tmp_path / "run_0")
    snapshot = torch.load(run_dir / "params.pkl", weights_only=True)
    snapshot["run"]["rng"]["python"] = ("generator", '{"bit_generator": "test"}')
    torch.save(snapshot, run_dir / "params.pkl")
    (tmp_path / "conftest.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    code, out, err = rlpyt("resume", run_dir, "--n_steps", "512")
    assert code == 1 and "run['rng'] of" in err and "bit generator 'test', which is none of PCG64" in err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("n", thinned([20, 100], quick=[20]))
def test_damaged_files_are_no_reason_to_fail(n, trained, rlpyt, tmp_path):
    run_dir, choices = tmp_path / "run_0", random.Random(n)
    shutil.copytree(trained("cartpole", "ppo", *SHORT), run_dir)
    params = json.loads((run_dir / "params.json").read_text())
    mark = dict(exit_code=1, error="what", seconds=3.0, started=1e9, host="here", pid=5, process_start=1e9, traceback=["a"])
    experiment = dict(log_dirs=["a", "b"], runs_per_setting=[1, 2], script="x.py", variants=[{}, {}], runs_args=[[], []], cwd="/")
    state = choices.choice(["FAILED", "RUNNING"])

    def write(file, contents):
        with suppress(ValueError, RecursionError):  # What JSON cannot hold.
            file.write_text(json.dumps(damaged(contents, choices), default=str, skipkeys=True))

    for i in range(n):
        write(run_dir / "params.json", params)
        if i % 10 == 0:
            (run_dir / "params.json").write_text("[" * 100_000)
        write(run_dir / f"{state}.json", mark)
        write(tmp_path / "experiment.json", experiment)
        assert rlpyt("status", tmp_path)[0] == 0
        assert rlpyt("info", run_dir)[0] in (0, 2)
        assert rlpyt("plot", "--keys", run_dir)[0] == 0


@pytest.mark.parametrize("log_dirs", [["../x"], ["/tmp/x"], ["a/../../x"], ["a\0"], "ab", [5], [["a"]]])
def test_an_experiment_has_its_runs_in_its_directory(log_dirs, tmp_path):
    (tmp_path / "experiment.json").write_text(json.dumps(dict(log_dirs=log_dirs, runs_per_setting=1)))
    assert read_experiment(tmp_path) == {} and experiment_status(tmp_path) == []


@pytest.mark.parametrize("n", [10**12, 0, -1, True, "1", None])
def test_numbers_of_runs_that_nobody_can_ask_for(n, tmp_path):
    (tmp_path / "experiment.json").write_text(json.dumps(dict(log_dirs=["a"], runs_per_setting=n)))
    assert experiment_status(tmp_path) == []
