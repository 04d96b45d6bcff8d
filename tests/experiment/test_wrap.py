"""A function that becomes an experiment: its directory, its log, and the record of what was run."""

import inspect
import json
import os
import pickle
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tiers import full, processes

from rlpyt.episodes import wrap_experiment
from rlpyt.experiment import ExperimentContext, Snapshotter
from rlpyt.experiments import wrap
from rlpyt.utils import provenance
from rlpyt.utils.logging import logger

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_empty_directory(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(provenance, "launcher", lambda: str(tmp_path / "nowhere" / "script.py"))  # In no repository.


@wrap_experiment
def experiment(ctxt, seed, lr=0.5, *, units=(8, 8)):
    """Return its arguments."""
    logger.log("hello")
    logger.record_tabular("TotalEnvSteps", 10)
    logger.record_tabular("Loss", 0.25)
    logger.dump_tabular()
    return ctxt, seed, lr, units


def read_json(path):
    return json.loads(Path(path).read_text())


# --- Calls ------------------------------------------------------------------------------------------------------------
def test_an_experiment_gets_a_context_and_returns_what_the_function_returns(tmp_path):
    ctxt, *arguments = experiment(seed=3)
    assert arguments == [3, 0.5, (8, 8)]
    directory = str(tmp_path / "work" / "data" / "local" / "experiment" / "experiment")
    assert (ctxt.snapshot_dir, ctxt.snapshot_mode, ctxt.snapshot_gap) == (directory, "last", 1) and os.fspath(ctxt) == directory
    assert Snapshotter(ctxt.snapshot_dir, ctxt.snapshot_mode, ctxt.snapshot_gap).snapshot_dir == directory


def test_it_looks_like_the_function_without_its_context():
    assert str(inspect.signature(experiment)) == "(*, seed, lr=0.5, units=(8, 8))"
    assert experiment.__name__ == "experiment" and experiment.__doc__ == "Return its arguments."
    assert pickle.loads(pickle.dumps(experiment)) is experiment


def test_a_dictionary_changes_options_for_one_call():
    assert experiment(dict(snapshot_mode="gap", snapshot_gap=5, name="other"), seed=1)[0].snapshot_mode == "gap"
    ctxt = experiment(seed=1)[0]
    assert ctxt.snapshot_mode == "last" and os.path.basename(ctxt.snapshot_dir) == "experiment"
    with pytest.raises(ValueError, match="no option 'snapshotmode'. Did you mean 'snapshot_mode'"):
        experiment(dict(snapshotmode="gap"), seed=1)
    with pytest.raises(ValueError, match="arguments by keyword"):
        experiment(1)
    with pytest.raises(ValueError, match="arguments by keyword"):
        experiment({}, {}, seed=1)


def test_missing_arguments_are_an_error_before_anything_is_written():
    with pytest.raises(
        TypeError, match=r"experiment\(\*, seed, lr=0.5, units=\(8, 8\)\): missing a required (keyword-only )?argument: 'seed'"
    ):
        experiment()
    with pytest.raises(TypeError, match=r"experiment\(.*unexpected keyword argument 'sed'"):
        experiment(seed=1, sed=3)
    assert os.listdir() == []


def test_the_first_parameter_is_called_ctxt():
    with pytest.raises(ValueError, match="named 'ctxt' instead of 'seed'"):
        wrap_experiment(lambda seed, ctxt: None)
    with pytest.raises(ValueError, match="named 'ctxt'"):
        wrap_experiment(lambda: None)
    with pytest.raises(ValueError, match="takes args by position only"):
        wrap_experiment(lambda ctxt, *args: None)


def test_options_are_checked_when_the_function_is_decorated():
    for options in (dict(snapshot_mode="lats"), dict(snapshot_gap=2), dict(snapshot_mode="gap", snapshot_gap=0)):
        with pytest.raises(ValueError, match="snapshot_"):
            wrap_experiment(**options)(lambda ctxt: None)
    with pytest.raises(ValueError, match="by keyword, such as name='mine'"):
        wrap_experiment("mine")


# --- Directories ------------------------------------------------------------------------------------------------------
def test_every_call_has_a_directory_of_its_own():
    directories = [experiment(seed=1)[0].snapshot_dir for _ in range(3)]
    assert [os.path.basename(directory) for directory in directories] == ["experiment", "experiment_1", "experiment_2"]


def test_prefix_name_and_log_dir_say_where(tmp_path):
    @wrap_experiment(prefix="sweep", name="mine")
    def function(ctxt):
        return ctxt.snapshot_dir

    assert function() == str(tmp_path / "work" / "data" / "local" / "sweep" / "mine")
    assert function(dict(log_dir=tmp_path / "here")) == str(tmp_path / "here")
    assert function(dict(log_dir=tmp_path / "here")) == str(tmp_path / "here_1")


@pytest.mark.parametrize("options", [dict(prefix=".."), dict(name="../../../x"), dict(prefix="a/../..", name="../b"), dict(name="a\0b")])
def test_an_experiment_stays_where_experiments_are(options, tmp_path):
    @wrap_experiment(**options)
    def function(ctxt):
        raise AssertionError("it was run")

    with pytest.raises(ValueError, match="prefix/name of wrap_experiment=.* (leads out of|cannot be the name of)"):
        function()
    assert os.listdir(tmp_path / "work") == [] and os.listdir(tmp_path) == ["work"]


def files_below(directory):
    """Contents of all files, by path."""
    return {path: path.read_bytes() for path in sorted(Path(directory).rglob("*")) if path.is_file()}


@pytest.fixture
def torchrun(monkeypatch):
    """A function that makes this process one of two that torchrun started."""

    def be_rank(rank):
        for name, value in dict(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2).items():
            monkeypatch.setenv(name, str(value))

    return be_rank


def test_of_the_processes_of_torchrun_only_the_first_one_leaves_anything(tmp_path, torchrun):
    @wrap_experiment
    def saving(ctxt, seed):
        with ctxt:  # As a script has it that also runs without an experiment.
            is_safe = Snapshotter(ctxt.snapshot_dir, ctxt.snapshot_mode).save_itr_params(seed, dict(itr=seed))
            logger.record_tabular("TotalEnvSteps", 10)
            logger.dump_tabular()
            Path(ctxt.snapshot_dir, f"own_{seed}").write_text("of this rank")
        return ctxt.snapshot_dir, is_safe

    saving(seed=1)
    before = files_below(tmp_path)
    torchrun(1)
    directory, is_safe = saving(seed=2)
    assert files_below(tmp_path) == before and not is_safe and not os.path.exists(directory)
    torchrun(0)
    directory, is_safe = saving(seed=3)
    assert os.path.basename(directory) == "saving_1" and is_safe and before.items() <= files_below(tmp_path).items()
    assert {"params.pkl", "own_3", "progress.csv", "variant.json"} <= set(os.listdir(directory))


def test_in_an_existing_directory_all_processes_of_torchrun_are_told_it(tmp_path, torchrun):
    directory = experiment(dict(log_dir=tmp_path / "here", use_existing_dir=True), seed=1)[0].snapshot_dir
    before = files_below(tmp_path)
    torchrun(1)
    assert experiment(dict(log_dir=tmp_path / "here", use_existing_dir=True), seed=2)[0].snapshot_dir == directory
    assert files_below(tmp_path) == before


def test_a_snapshotter_of_another_process_of_torchrun_reads_what_is_there(tmp_path, torchrun):
    Snapshotter(tmp_path / "a").save_itr_params(3, dict(itr=3))
    torchrun(1)
    other = Snapshotter(tmp_path / "a", "all")
    assert not other.is_writer and not other.is_due(4) and not other.is_due(4, force=True) and other.load(tmp_path / "a")["itr"] == 3


def test_an_existing_directory_is_used_again_and_nothing_in_it_is_lost(tmp_path):
    options = dict(log_dir=tmp_path / "here", use_existing_dir=True)
    for seed in (1, 2):
        ctxt = experiment(options, seed=seed)[0]
        assert ctxt.snapshot_dir == str(tmp_path / "here")
        Snapshotter(ctxt.snapshot_dir).save_itr_params(seed, dict(itr=seed))
    names = os.listdir(tmp_path / "here")
    for name in ("progress", "debug", "variant", "metadata", "params"):
        extensions = [file.split(".", 1)[1] for file in names if file.startswith(f"{name}.")]
        assert len(extensions) == (4 if name == "params" else 2) and any(each.startswith("1.") for each in extensions), names
    assert read_json(tmp_path / "here" / "variant.1.json")["seed"] == 1 and read_json(tmp_path / "here" / "variant.json")["seed"] == 2
    assert (tmp_path / "here" / "progress.1.csv").read_text() == (tmp_path / "here" / "progress.csv").read_text()


@pytest.mark.parametrize(
    "which, name", [(None, "experiment"), ("passed", "experiment_seed=1_units=3"), ("all", "experiment_seed=1_lr=0.5_units=3")]
)
def test_parameters_are_part_of_the_name_in_the_order_of_the_definition(which, name):
    assert os.path.basename(experiment(dict(name_parameters=which), units=3, seed=1)[0].snapshot_dir) == name


def test_other_values_of_name_parameters_are_refused():
    with pytest.raises(ValueError, match="wrap_experiment.name_parameters must be"):
        experiment(dict(name_parameters="some"), seed=1)


def test_a_value_with_slashes_is_still_one_directory(tmp_path):
    ctxt = experiment(dict(name_parameters="passed"), seed="a/b\\c/../..\n")[0]
    assert os.path.dirname(ctxt.snapshot_dir) == str(tmp_path / "work" / "data" / "local" / "experiment")
    assert os.path.basename(ctxt.snapshot_dir) == "experiment_seed=a-b-c-..-..-"
    long = experiment(dict(name_parameters="passed"), seed="ä" * 300)[0]
    assert len(os.path.basename(long.snapshot_dir).encode()) < 255
    assert experiment(dict(name_parameters="passed"), seed="ä" * 301)[0].snapshot_dir != long.snapshot_dir


# --- Files ------------------------------------------------------------------------------------------------------------
def test_the_directory_tells_what_was_run():
    directory = experiment(seed=np.int64(3), units=[np.bool_(True), None])[0].snapshot_dir
    names = os.listdir(directory)
    assert {"variant.json", "params.json", "metadata.json", "debug.log", "progress.csv"} <= set(names)
    assert any(name.startswith("events.out.tfevents") for name in names) and "launch_archive.tar.xz" not in names
    assert read_json(f"{directory}/variant.json") == dict(seed=3, lr=0.5, units=[True, None])
    assert read_json(f"{directory}/params.json") == dict(seed=3, lr=0.5, units=[True, None], name="experiment")
    metadata = read_json(f"{directory}/metadata.json")
    assert metadata["command"] == sys.orig_argv and metadata["packages"]["torch"] and metadata["host"] and metadata["python"]
    assert metadata["passed_parameters"] == ["seed", "units"] and "githash" not in metadata
    assert Path(directory, "progress.csv").read_text() == "TotalEnvSteps,Loss\n10,0.25\n"
    assert "experiment hello" in Path(directory, "debug.log").read_text()


def test_keyword_arguments_without_a_name_are_in_the_variant():
    @wrap_experiment(name_parameters="all")
    def function(ctxt, a=1, **more):
        return ctxt.snapshot_dir, more

    directory, more = function(c=3)
    assert more == dict(c=3) and read_json(f"{directory}/variant.json") == dict(a=1, c=3) and directory.endswith("function_a=1_c=3")


@pytest.mark.parametrize("x_axis, step", [("TotalEnvSteps", 10), ("CumSteps", 10), ("Evaluation/Epoch", 7)])
def test_the_x_axis_is_the_column_of_that_name(x_axis, step, monkeypatch):
    points = []

    class Writer:
        def __init__(self, directory):
            pass

        def add_scalar(self, key, value, step):
            points.append((key, value, step))

        def close(self):
            pass

    monkeypatch.setattr(logger, "get_tf_summary_writer_class", lambda: Writer)

    @wrap_experiment(x_axis=x_axis)
    def function(ctxt):
        for key, value in {"Diagnostics/CumSteps" if step == 10 else "TotalEnvSteps": 10, "Evaluation/Epoch": 7, "a": 0.5}.items():
            logger.record_tabular(key, value)
        logger.dump_tabular()

    function()
    assert ("a", 0.5, step) in points and {point[2] for point in points} == {step}


def open_files():
    """Paths of the files this process has open."""
    return {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_experiment_that_raises_leaves_the_log_as_it_was_and_no_file_open(error, tmp_path):
    @wrap_experiment
    def failing(ctxt):
        logger.push_prefix("inner ")
        logger.push_tabular_prefix("inner/")
        logger.record_tabular("a", 1)
        logger.dump_tabular()
        raise error("on purpose")

    before, prefixes = open_files(), list(logger._state.prefixes)
    with pytest.raises(error, match="on purpose"):
        failing()
    assert not {path for path in open_files() - before if path.startswith(str(tmp_path))}
    assert logger.get_snapshot_dir() is None and logger.get_tf_summary_writer() is None and logger._state.prefixes == prefixes
    log = Path("data/local/experiment/failing/debug.log").read_text()
    assert "on purpose" in log
    directory = experiment(seed=1)[0].snapshot_dir
    assert "hello" in Path(directory, "debug.log").read_text() and "hello" not in log


def test_experiments_nest(tmp_path):
    @wrap_experiment
    def outer(ctxt):
        logger.log("before")
        inner = experiment(seed=1)[0].snapshot_dir
        logger.log("after")
        assert logger.get_snapshot_dir() == ctxt.snapshot_dir
        return ctxt.snapshot_dir, inner

    outer_dir, inner_dir = outer()
    text = Path(outer_dir, "debug.log").read_text()
    assert "before" in text and "after" in text and "hello" not in text and "hello" in Path(inner_dir, "debug.log").read_text()


def test_a_context_is_a_context_of_the_log(tmp_path):
    with ExperimentContext(str(tmp_path / "mine"), "all") as directory:
        assert directory == str(tmp_path / "mine") == logger.get_snapshot_dir() and logger.get_snapshot_mode() == "all"
        logger.log("hello")
    assert logger.get_snapshot_dir() is None and "hello" in (tmp_path / "mine" / "debug.log").read_text()

    @wrap_experiment
    def function(ctxt):
        with ctxt as directory:
            assert directory == ctxt.snapshot_dir == logger.get_snapshot_dir()
        assert logger.get_snapshot_dir() == directory  # It was open before, and stays so.

    function()


def test_a_context_can_be_entered_again_inside_itself(tmp_path):
    context = ExperimentContext(str(tmp_path / "mine"))
    with context as directory:
        with context, context:
            assert logger.get_snapshot_dir() == directory
        assert logger.get_snapshot_dir() == directory
        logger.log("still open")
    assert logger.get_snapshot_dir() is None and "still open" in (tmp_path / "mine" / "debug.log").read_text()
    with context:
        assert logger.get_snapshot_dir() == directory
    assert logger.get_snapshot_dir() is None


@pytest.mark.parametrize("mode, logger_mode", [("gap_and_last", "last+gap"), ("gap_overwrite", "last"), ("none", "none")])
def test_runners_without_a_trainer_are_told_the_nearest_mode(mode, logger_mode):
    @wrap_experiment(snapshot_mode=mode, snapshot_gap=3)
    def function(ctxt):
        return logger.get_snapshot_mode(), logger.get_snapshot_gap(), ctxt.snapshot_mode

    assert function() == (logger_mode, 3, mode)


# --- The repository ---------------------------------------------------------------------------------------------------
def git(directory, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path, monkeypatch):
    root = tmp_path / "repo with ä"
    (root / "pkg").mkdir(parents=True)
    git(root, "init")
    for name, text in {"script.py": "1", "pkg/module.py": "2", "gone.py": "3", ".gitignore": "ignored*\n"}.items():
        (root / name).write_text(text)
    (root / "link.py").symlink_to("script.py")
    (root / "ignored.txt").write_text("4")
    (root / "large.bin").write_bytes(bytes(wrap.provenance.LARGE))
    monkeypatch.chdir(root)
    monkeypatch.setattr(provenance, "launcher", lambda: str(root / "pkg" / "module.py"))
    return root


def archived(directory):
    with tarfile.open(f"{directory}/launch_archive.tar.xz") as tar:
        return {member.name: tar.extractfile(member).read() if member.isreg() else member.linkname for member in tar.getmembers()}


CODE = {"script.py": b"1", "pkg/module.py": b"2", "gone.py": b"3", ".gitignore": b"ignored*\n", "link.py": "script.py"}


@processes
def test_a_repository_without_commits_is_archived(repository):
    for _ in range(2):  # What the first run has written belongs to no archive.
        directory = experiment(seed=1)[0].snapshot_dir
        metadata = read_json(f"{directory}/metadata.json")
        assert metadata["githash"] is None and metadata["launcher"] == "pkg/module.py" and metadata["git_root_path"] == str(repository)
        assert archived(directory) == CODE


@processes
def test_the_archive_has_what_was_run_and_metadata_the_commit(repository):
    git(repository, "add", "script.py", "gone.py", ".gitignore", "pkg", "link.py", "large.bin")
    git(repository, "commit", "-m", "first")
    head = git(repository, "rev-parse", "HEAD").strip()
    clean = read_json(f"{experiment(seed=1)[0].snapshot_dir}/metadata.json")
    assert clean["githash"] == head and clean["git_dirty"] is False
    (repository / "script.py").write_text("changed")
    (repository / "gone.py").unlink()
    (repository / "new.py").write_text("5")
    directory = experiment(seed=1)[0].snapshot_dir
    dirty = read_json(f"{directory}/metadata.json")
    assert dirty["githash"] == f"{head}-dirty" and dirty["git_dirty"] is True
    expected = {**CODE, "script.py": b"changed", "new.py": b"5"}
    del expected["gone.py"]
    assert archived(directory) == expected
    assert "launch_archive.tar.xz" not in os.listdir(experiment(dict(archive_launch_repo=False), seed=1)[0].snapshot_dir)


@processes
def test_what_git_tracks_is_archived_wherever_it_is(repository):
    tracked = repository / "data" / "local" / "tracked.txt"
    tracked.parent.mkdir(parents=True)
    tracked.write_text("6")
    git(repository, "add", "-f", "data/local/tracked.txt")
    git(repository, "commit", "-m", "first")
    directory = experiment(seed=1)[0].snapshot_dir
    assert archived(directory)["data/local/tracked.txt"] == b"6" and read_json(f"{directory}/metadata.json")["git_dirty"] is True
    tracked.write_text("7")
    directory = experiment(dict(log_dir=str(repository), use_existing_dir=True), seed=1)[0].snapshot_dir
    assert set(CODE) <= set(archived(directory)), "the directory of the log is the whole repository"


@processes
def test_a_parameter_called_name_keeps_its_value(repository):
    @wrap_experiment
    def experiment_of(ctxt, name="a"):
        return ctxt.snapshot_dir

    assert read_json(f"{experiment_of(name='b')}/params.json")["name"] == "b"


@processes
def test_a_large_archive_comes_with_a_warning(repository, capsys):
    (repository / "large.bin").unlink()
    experiment(seed=1)
    assert "archive_launch_repo" not in capsys.readouterr().out
    (repository / "a.bin").write_bytes(bytes(provenance.LARGE - 1))
    (repository / "b.bin").write_bytes(bytes(9))
    directory = experiment(seed=1)[0].snapshot_dir
    assert "archive_launch_repo=False" in capsys.readouterr().out and "b.bin" in archived(directory)


@processes
def test_files_that_are_too_large_for_the_archive_are_named(repository, capsys):
    for i in range(11):
        with open(repository / f"\x1b{i:02d}.bin", "wb") as file:
            file.truncate(8 * 2**20 + i * 2**20)
    os.symlink("nowhere", repository / "link")
    directory = experiment(seed=0)[0].snapshot_dir
    said = capsys.readouterr().out
    assert "launch_archive.tar.xz lacks files of 8 MiB or more, '\\x1b00.bin' (8 MiB), " in said
    assert "'\\x1b09.bin' (17 MiB) and 2 more: let git ignore" in said
    assert "archive_launch_repo=False" in said and not any(name.endswith(".bin") for name in archived(directory))


@processes
def test_without_git_there_is_no_commit_and_no_archive(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository / "nothing"))
    directory = experiment(seed=1)[0].snapshot_dir
    assert "githash" not in read_json(f"{directory}/metadata.json") and "launch_archive.tar.xz" not in os.listdir(directory)
    assert read_json(f"{directory}/metadata.json")["launcher"] == str(repository / "pkg" / "module.py")


@full
@processes
def test_a_script_is_its_own_launcher(repository):
    text = """
        from rlpyt.experiment import wrap_experiment

        @wrap_experiment(archive_launch_repo=False)
        def main(ctxt, seed=1):
            print(ctxt.snapshot_dir)

        main()
    """
    (repository / "script.py").write_text(textwrap.dedent(text))
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    run = subprocess.run([sys.executable, "script.py"], cwd=repository, capture_output=True, text=True, env=environment, timeout=120)
    assert run.returncode == 0, run.stderr
    metadata = read_json(f"{run.stdout.splitlines()[-1]}/metadata.json")
    assert metadata["launcher"] == "script.py" and metadata["command"][-1] == "script.py" and metadata["githash"] is None
