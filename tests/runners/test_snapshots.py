"""Which snapshots are kept, and which one is found."""

import os
import pickle

import pytest
import torch

from rlpyt.experiment import NotAFileError, Snapshotter
from rlpyt.runners.snapshots import find_snapshot, load_snapshot

FILES = {
    ("all", 1): ["itr_0", "itr_1", "itr_2", "itr_3", "itr_4"],
    ("last", 1): ["params", "params_previous"],
    ("gap", 2): ["itr_0", "itr_2", "itr_4"],
    ("gap_and_last", 3): ["itr_0", "itr_3", "params", "params_previous"],
    ("last+gap", 3): ["itr_0", "itr_3", "params", "params_previous"],
    ("gap_overwrite", 3): ["params", "params_previous"],
    ("none", 1): [],
}


def snapshot(epoch):
    return dict(itr=epoch, weights=torch.arange(3) + epoch)


def saved(directory, mode, gap=1, epochs=range(5)):
    snapshotter = Snapshotter(directory, mode, gap)
    for epoch in epochs:
        assert snapshotter.save_itr_params(epoch, snapshot(epoch)) == snapshotter.is_due(epoch)
    return snapshotter


@pytest.mark.parametrize("mode, gap", FILES)
def test_each_mode_keeps_its_files(mode, gap, tmp_path):
    saved(tmp_path / "new" / "dir", mode, gap)
    assert sorted(os.listdir(tmp_path / "new" / "dir")) == [f"{name}.pkl" for name in FILES[mode, gap]]


@pytest.mark.parametrize("mode, gap, last", [(m, g, 3 if m == "gap_overwrite" else 4) for m, g in FILES if m != "none"])
def test_the_last_one_is_found_in_each_mode(mode, gap, last, tmp_path):
    snapshotter = saved(tmp_path, mode, gap)
    loaded = snapshotter.load(tmp_path, "last")
    assert loaded["itr"] == last and loaded["weights"].tolist() == [last, last + 1, last + 2]
    assert snapshotter.load(tmp_path)["itr"] == last


def test_the_first_one_is_the_first_epoch_also_where_the_last_is_kept_too(tmp_path):
    assert saved(tmp_path, "gap_and_last", 3).load(tmp_path, "first")["itr"] == 0


def test_epochs_are_compared_as_numbers(tmp_path):
    snapshotter = saved(tmp_path, "all", epochs=[9, 80, 120])
    assert snapshotter.load(tmp_path, "last")["itr"] == 120 and snapshotter.load(tmp_path, "first")["itr"] == 9
    assert snapshotter.load(tmp_path, 80)["itr"] == snapshotter.load(tmp_path, "80")["itr"] == 80


def test_an_epoch_is_found_under_whatever_name_it_has(tmp_path):
    snapshotter = saved(tmp_path, "gap_and_last", 3)
    assert snapshotter.load(tmp_path, 4)["itr"] == 4
    with pytest.raises(NotAFileError, match="no snapshot of epoch 2 in .*, but of 0, 3, 4"):
        snapshotter.load(tmp_path, 2)


def test_the_snapshot_of_another_program_is_not_of_an_epoch(tmp_path):
    snapshotter = saved(tmp_path, "all", epochs=[3, 9])
    torch.save(dict(weights=1), tmp_path / "params.pkl")
    with pytest.raises(NotAFileError, match=r"no snapshot of epoch 0 in .*, but of 3, 9, one, in params.pkl, that tells no epoch\.$"):
        snapshotter.load(tmp_path, 0)
    assert snapshotter.load(tmp_path, "last") == dict(weights=1)


def test_other_files_in_the_directory_do_not_matter(tmp_path):
    snapshotter = saved(tmp_path, "all")
    (tmp_path / "itr_best.pkl").write_bytes(b"")
    (tmp_path / "zzz.pkl").write_bytes(b"")
    (tmp_path / "itr_99.pkl.tmp").write_bytes(b"")
    assert snapshotter.load(tmp_path)["itr"] == 4


def test_of_a_damaged_snapshot_the_one_before_is_taken(tmp_path, capsys):
    snapshotter = saved(tmp_path, "last")
    data = (tmp_path / "params.pkl").read_bytes()
    (tmp_path / "params.pkl").write_bytes(data[: len(data) // 2])
    assert snapshotter.load(tmp_path)["itr"] == 3
    assert "params.pkl is not a readable snapshot" in capsys.readouterr().out
    assert load_snapshot(tmp_path)[1]["itr"] == 3
    assert "damaged or incomplete, or another kind of file. Trying the one before it." in capsys.readouterr().out
    (tmp_path / "params_previous.pkl").unlink()
    with pytest.raises(ValueError, match="No snapshot in .* is readable"):
        snapshotter.load(tmp_path)


def test_loading_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save(Evil(), tmp_path / "params.pkl")
    with pytest.raises(ValueError, match="not a readable snapshot"):
        find_snapshot(tmp_path)
    (tmp_path / "itr_0.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="not a readable snapshot"):
        find_snapshot(tmp_path, 0)
    assert not (tmp_path / "executed").exists()


def test_what_would_have_to_be_executed_is_not_saved(tmp_path):
    with pytest.raises(TypeError, match=r"params\['policy'\] is a"):
        Snapshotter(tmp_path).save_itr_params(0, dict(policy=Snapshotter))
    assert os.listdir(tmp_path) == []


def test_a_file_put_aside_by_a_new_run_is_found_until_that_has_one(tmp_path):
    saved(tmp_path, "last", epochs=[5])
    os.rename(tmp_path / "params.pkl", tmp_path / "params.1.pkl")
    saved(tmp_path, "last", epochs=[7])
    os.rename(tmp_path / "params.pkl", tmp_path / "params.2.pkl")
    assert find_snapshot(tmp_path)[1]["itr"] == 7
    saved(tmp_path, "last", epochs=[2])
    assert find_snapshot(tmp_path)[1]["itr"] == 2


@pytest.mark.parametrize("is_counted", [True, False], ids=["after a counted one", "after one of an older version"])
@pytest.mark.parametrize(
    "names, epochs, last",
    [
        (["params_previous", "params"], [4, 0], "params"),
        (["itr_4", "params_previous", "params"], [4, 3, 0], "params"),
        (["params", "itr_0"], [4, 0], "itr_0"),
        (["params", "itr_4"], [4, 4], "itr_4"),
    ],
)
def test_the_last_one_is_of_the_newest_training_whatever_the_epochs_are(names, epochs, last, is_counted, tmp_path):
    for name, epoch in zip(names, epochs, strict=True):
        number = {} if name != last and not is_counted else dict(training=1 + (name == last))
        torch.save(dict(epoch=epoch, cum_steps=10 * epoch + 10, trainer=number), tmp_path / f"{name}.pkl")
    for itr in ("last", epochs[names.index(last)]):
        assert find_snapshot(tmp_path, itr)[0].stem == last
    assert load_snapshot(tmp_path)[0].stem == last, "for runners and commands, too"
    assert find_snapshot(tmp_path, 4)[1]["epoch"] == 4
    assert Snapshotter(tmp_path).next_training() == 3
    (tmp_path / f"{last}.pkl").write_bytes(b"damaged")
    assert find_snapshot(tmp_path)[0].stem != last and Snapshotter(tmp_path).next_training() == 1 + is_counted


def test_an_interrupted_run_saves_what_is_not_due(tmp_path):
    snapshotter = Snapshotter(tmp_path, "gap", 10)
    assert not snapshotter.save_itr_params(3, snapshot(3)) and snapshotter.save_itr_params(3, snapshot(3), force=True)
    assert os.listdir(tmp_path) == ["itr_3.pkl"]


def test_wrong_settings_are_refused(tmp_path):
    for mode, gap, message in (
        ("lats", 1, "snapshot_mode='lats' is unknown"),
        ("last", 2, "must be 1 in snapshot_mode='last'"),
        ("gap_overwrite", 1, "must be more than 1"),
        ("gap", 0, "snapshot_gap=0 is not possible; it must be a whole number at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Snapshotter(tmp_path / "made", mode, gap)
    assert not (tmp_path / "made").exists()


def test_where_there_is_nothing_it_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="no snapshot in"):
        find_snapshot(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_snapshot(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="itr='best' must be"):
        find_snapshot(tmp_path, "best")


def test_the_default_is_below_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snapshotter = Snapshotter()
    assert (snapshotter.snapshot_dir, snapshotter.snapshot_mode, snapshotter.snapshot_gap) == (
        str(tmp_path / "data" / "local" / "experiment"), "last", 1,
    )  # fmt: skip
