"""rlpyt plot."""

import csv
import json

import pytest


def write_run(run_dir, returns, settings=None, column="ReturnAverage", step=1000):
    run_dir.mkdir(parents=True)
    with open(run_dir / "progress.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Diagnostics/CumSteps", column, "Diagnostics/StepsPerSecond"])
        writer.writerows([i * step, value, 100 + i] for i, value in enumerate(returns))
    if settings is not None:
        (run_dir / "params.json").write_text(json.dumps(settings))


@pytest.fixture
def sweep(tmp_path):
    for lr in (0.1, 0.2):
        for run_ID in range(3):
            settings = dict(algo=dict(learning_rate=lr), name="sweep", run_ID=run_ID)
            write_run(tmp_path / "sweep" / f"lr{lr}" / f"run_{run_ID}", [lr * i + run_ID for i in range(9)], settings)
    return tmp_path / "sweep"


@pytest.fixture
def figure(monkeypatch):
    """The figure saved last."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    saved, savefig = [], Figure.savefig

    def record(figure, *args, **kwargs):
        saved.append(figure)
        savefig(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", record)
    return lambda: saved[-1]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


def test_a_sweep_becomes_a_png_and_an_svg_with_a_curve_for_each_variant(sweep, tmp_path, rlpyt, figure):
    code, out, err = rlpyt("plot", sweep, "--out", tmp_path / "curves")
    assert (code, err) == (0, "") and out.split() == [str(tmp_path / "curves.png"), str(tmp_path / "curves.svg")]
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG" and b"<svg" in (tmp_path / "curves.svg").read_bytes()
    axes = figure().axes[0]
    assert legend(figure()) == ["lr0.1 (n=3)", "lr0.2 (n=3)"]
    assert axes.get_xlabel() == "environment steps" and axes.get_ylabel() == "average return"
    assert "mean" in axes.get_title(loc="left") and "2,000 resamples" in axes.get_title(loc="left")
    x, y = axes.lines[0].get_data()
    assert list(x) == [i * 1000 for i in range(9)] and list(y) == pytest.approx([0.1 * i + 1 for i in range(9)])
    assert len(axes.collections) == 2  # bands


@pytest.mark.parametrize("name", ["learning_rate", "algo.learning_rate"])
def test_groups_may_have_a_setting_in_common(sweep, tmp_path, rlpyt, figure, name):
    assert rlpyt("plot", sweep, "--group-by", name, "--iqm", "--out", tmp_path / "a.png")[0] == 0
    assert legend(figure()) == ["learning_rate=0.1 (n=3)", "learning_rate=0.2 (n=3)"]
    assert "IQM" in figure().axes[0].get_title(loc="left") and not (tmp_path / "a.svg").exists()


def test_settings_of_a_variant_above_the_run_count_too(tmp_path, rlpyt, figure):
    for size in (16, 32):
        write_run(tmp_path / f"B{size}" / "run_0", [1, 2])
        (tmp_path / f"B{size}" / "variant_config.json").write_text(json.dumps(dict(sampler=dict(batch_B=size))))
    assert rlpyt("plot", tmp_path, "--group-by", "batch_B", "--out", tmp_path / "a.png")[0] == 0
    assert legend(figure()) == ["batch_B=16", "batch_B=32"]


def test_single_runs_can_be_drawn_each(sweep, tmp_path, rlpyt, figure):
    assert rlpyt("plot", sweep / "lr0.1", "--group-by", "run", "--out", tmp_path / "a.png")[0] == 0
    assert legend(figure()) == ["run_0", "run_1", "run_2"] and not figure().axes[0].get_title(loc="left")


def test_logged_columns_are_listed_and_chosen(sweep, tmp_path, rlpyt, figure):
    assert rlpyt("plot", sweep, "--keys")[1].split() == ["Diagnostics/CumSteps", "ReturnAverage", "Diagnostics/StepsPerSecond"]
    assert rlpyt("plot", sweep, "--key", "ReturnAverage", "StepsPerSecond", "--out", tmp_path / "a.png")[0] == 0
    assert [axes.get_ylabel() for axes in figure().axes] == ["average return", "steps per second"]


def test_other_horizontal_axes_have_units(trained, tmp_path, rlpyt, figure):
    run_dir = trained("cartpole", "ppo")
    for x, label in (("CumTime", "time (s)"), ("CumUpdates", "gradient updates"), ("CumCompletedTrajs", "episodes")):
        assert rlpyt("plot", run_dir, "--x", x, "--key", "OptimizationTime", "--out", tmp_path / "a.png")[0] == 0
        assert figure().axes[0].get_xlabel() == label and figure().axes[0].get_ylabel() == "optimization time (s)"


def test_a_curve_goes_on_dashed_where_a_run_has_ended(tmp_path, rlpyt, figure):
    write_run(tmp_path / "a" / "run_0", [0, 1, 2, 3, 4, 5])
    write_run(tmp_path / "a" / "run_1", [2, 3, 4])
    assert rlpyt("plot", tmp_path, "--out", tmp_path / "a.png")[0] == 0
    solid, dashed = figure().axes[0].lines
    assert list(solid.get_xdata()) == [0, 1000, 2000] and list(solid.get_ydata()) == [1, 2, 3]
    assert list(dashed.get_xdata()) == [2000, 3000, 4000, 5000] and list(dashed.get_ydata()) == [3, 3, 4, 5] and dashed.is_dashed()


def test_the_same_runs_make_the_same_picture(sweep, tmp_path, rlpyt):
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("a.png", "b.png"):
        rlpyt("plot", sweep, "--out", tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]


def test_runs_that_have_just_begun_are_left_out_and_named(sweep, tmp_path, rlpyt, figure):
    (sweep / "lr0.1" / "run_3").mkdir()
    (sweep / "lr0.1" / "run_3" / "progress.csv").touch()
    code, out, _ = rlpyt("plot", sweep, "--out", tmp_path / "a.png")
    assert code == 0 and "1 of 7 runs have no values of ReturnAverage yet, and are left out" in out
    assert legend(figure())[0] == "lr0.1 (n=3)"


@pytest.mark.parametrize(
    "args, message",
    [
        (["--key", "Score"], "no column Score: choose among Diagnostics/CumSteps, ReturnAverage"),
        (["--key", "Return"], "no column Return: did you mean 'ReturnAverage'?"),
        (["--group-by", "learning_rat"], "no setting 'learning_rat'. Did you mean 'learning_rate' or 'algo.learning_rate'?"),
        (["--group-by", "zzz"], "There are: directory, run, algo.learning_rate"),
        (["--out", "a.pgn"], "a.pgn is no picture. Did you mean '.png'?"),
        (["--out", "progress.csv"], "progress.csv is no picture"),
        (["--n_resamples", "0"], "n_resamples=0 must be at least 1"),
        (["--confidence", "95"], "confidence=95.0 between 0 and 1"),
        (["nowhere"], "There is no directory nowhere"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence_and_writes_nothing(sweep, tmp_path, monkeypatch, rlpyt, args, message):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = rlpyt("plot", sweep, *args)
    assert code == 2 and message in err and len(err.splitlines()) == 1 and out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_an_ambiguous_setting_is_refused_with_the_full_names(tmp_path, rlpyt):
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "run_0", [1], dict(algo=dict(size=1), model=dict(size=2)))
    code, _, err = rlpyt("plot", tmp_path, "--group-by", "size")
    assert code == 2 and "'size' may be any of algo.size, model.size" in err
