import csv
import json

import pytest
from absent import make_absent
from tiers import full

from rlpyt.utils.plotting import _label, plot_learning_curve, plot_panels

PNG = b"\x89PNG"


def write_run(run_dir, rows, params=None):
    with open(run_dir / "progress.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    if params:
        (run_dir / "params.json").write_text(json.dumps(params))


def rows(n=30, y="Return", slash=""):
    return [{"Diagnostics/CumSteps": i * 1000, f"{y}{slash}Average": "nan" if i == 0 else i, f"{y}{slash}Std": 2.0} for i in range(n)]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that get saved."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figures, savefig = [], Figure.savefig

    def record(figure, *args, **kwargs):
        figures.append(figure)
        savefig(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", record)
    return figures


def test_the_curve_of_a_run_is_drawn_into_its_directory(tmp_path, drawn):
    write_run(tmp_path, rows(), dict(name="ppo", run_ID=3))
    path = plot_learning_curve(tmp_path)
    assert path == str(tmp_path / "learning_curve.png") and open(path, "rb").read(4) == PNG
    axes = drawn[0].axes[0]
    assert axes.get_title() == "ppo (run 3)"
    assert axes.get_xlabel() == "environment steps" and axes.get_ylabel() == "average return"
    x, y = axes.lines[0].get_data()
    assert list(x) == [i * 1000 for i in range(1, 30)] and list(y) == list(range(1, 30))  # without the NaN
    assert len(axes.collections) == 1  # the band


def test_columns_with_slashes_and_the_game_score_are_found(tmp_path, drawn):
    write_run(tmp_path, [{**a, **b} for a, b in zip(rows(), rows(y="GameScore", slash="/"), strict=True)])
    plot_learning_curve(tmp_path)
    plot_learning_curve(tmp_path, y="ReturnAverage", path=tmp_path / "other.png")
    assert [figure.axes[0].get_ylabel() for figure in drawn] == ["average game score", "average return"]
    assert (tmp_path / "other.png").read_bytes()[:4] == PNG


@pytest.mark.parametrize("others", [{}, {"lossStd": 5.0}])
def test_the_band_goes_from_minimum_to_maximum(others, tmp_path, drawn):
    write_run(tmp_path, [{"x": i, "lossAverage": i, "lossMin": i - 1, "lossMax": i + 1, **others} for i in range(5)])
    plot_learning_curve(tmp_path, y="lossAverage", x="x")
    axes = drawn[0].axes[0]
    assert axes.get_legend().get_texts()[1].get_text() == "minimum to maximum"
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).intervaly.tolist() == [-1, 5]


def test_the_band_is_a_standard_deviation_where_there_is_no_minimum_and_maximum(tmp_path, drawn):
    write_run(tmp_path, rows())
    plot_learning_curve(tmp_path)
    assert drawn[0].axes[0].get_legend().get_texts()[1].get_text() == "± one standard deviation"


def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    pytest.importorskip("matplotlib")
    write_run(tmp_path, rows())
    with pytest.raises(ValueError, match="no column Score: choose among Diagnostics/CumSteps, ReturnAverage"):
        plot_learning_curve(tmp_path, y="Score")


def test_a_run_without_any_value_yet_gives_an_empty_picture(tmp_path, drawn):
    write_run(tmp_path, rows(1))
    assert open(plot_learning_curve(str(tmp_path)), "rb").read(4) == PNG


def test_an_empty_file_is_an_error_that_says_so(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "progress.csv").touch()
    with pytest.raises(ValueError, match="it is empty"):
        plot_learning_curve(tmp_path)


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    make_absent(monkeypatch, "matplotlib")
    with pytest.raises(ImportError, match=r'Plotting needs .* \(matplotlib\).* pip install -c constraints.txt -e "\.\[plot\]"'):
        plot_learning_curve(tmp_path)


@pytest.mark.parametrize(
    "column, label",
    [
        ("ReturnAverage", "average return"),
        ("Return/Average", "average return"),
        ("qLossAverage", "average q loss"),
        ("KLDivergenceMedian", "median KL divergence"),
        ("Diagnostics/StepsPerSecond", "steps per second"),
        ("Diagnostics/SamplingTime (s)", "sampling time (s)"),
        ("gradNormStd", "standard deviation of grad norm"),
        ("perplexity", "perplexity"),
    ],
)
def test_axes_say_in_words_what_a_column_holds(column, label):
    assert _label(column) == label


@full
@pytest.mark.filterwarnings("error")
def test_panels_have_room_beside_long_labels_and_many_of_them(tmp_path, drawn):
    changed = "PPO, algo.discount=0.97, algo.learning_rate=0.0007, model.hidden_sizes=[64, 64, 64], optim.eps=1e-05, $x$=" + 40 * "long"
    curves = [([0, 10], [0.0, 1.0])] * 2
    plot_panels(dict(Short=dict(PPO=curves)), tmp_path / "short.png", n_resamples=10)
    plot_panels(
        {"Long": {f"{changed}, {i}": curves for i in range(3)}, "Many": {str(i): curves for i in range(30)}, "Short": dict(PPO=curves)},
        tmp_path / "long.png",
        n_resamples=10,
    )
    (short,), panels = (figure.axes for figure in drawn)
    for axes in panels:
        figure = axes.figure
        legend = axes.get_legend().get_window_extent()
        assert axes.get_window_extent().height > 0.7 * short.get_window_extent().height
        assert axes.get_window_extent().width > 0.7 * short.get_window_extent().width
        assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1 and figure.bbox.y0 <= legend.y0
    texts = [text.get_text() for text in panels[0].get_legend().get_texts()]
    assert len(set(texts)) == 3 and all("hidden_sizes" in text and "(n=2)" in text for text in texts)
    below = [axes.get_legend().get_window_extent().y1 <= axes.get_window_extent().y0 for axes in panels]
    assert below == [True, True, False]


def test_legends_of_more_than_three_lines_are_below_and_in_two_columns_if_these_have_room(tmp_path, drawn):
    curves = [([0, 10], [0.0, 1.0])] * 2
    names = dict(few=["A", "B", "C"], more=["A", "B", "C", "D"], wide=["A", "B", "C", "PPO, normalized, of another library"])
    plot_panels({task: dict.fromkeys(each, curves) for task, each in names.items()}, tmp_path / "panels.png", n_resamples=10)
    legends = [axes.get_legend() for axes in drawn[0].axes]
    below = [legend.get_window_extent().y1 <= legend.axes.get_window_extent().y0 for legend in legends]
    assert below == [False, True, True] and [legend._ncols for legend in legends] == [1, 2, 1]


@pytest.mark.filterwarnings("error")
def test_a_panel_with_much_longer_curves_than_its_shortest_has_a_logarithmic_axis(tmp_path, drawn):
    short, nothing = [([0, 5, 10], [0.0, 1.0, 2.0])] * 2, [([0], [1.0])]
    panels = {
        "alike": dict(A=short, B=[([0, 49], [0.0, 1.0])]),
        "apart": dict(A=short, B=[([0, 50], [0.0, 1.0]), ([], [])]),
        "between powers": dict(A=[([12, 16], [0.0, 1.0])], B=[([12, 90], [0.0, 1.0])]),
        "decades": dict(A=short, B=[([0, 5000], [0.0, 1.0])]),
        "not begun": dict(A=nothing, B=[([0, 50], [0.0, 1.0])]),
        "nothing": dict(A=nothing),
    }
    plot_panels(panels, tmp_path / "panels.png", n_resamples=10)
    all_axes = dict(zip(panels, drawn[0].axes))
    assert [name for name, axes in all_axes.items() if axes.get_xscale() == "log"] == ["apart", "between powers", "decades"]
    assert all_axes["apart"].get_xlim() == (5, pytest.approx(50, rel=0.2))

    def labels(name):
        (left, right), axis = all_axes[name].get_xlim(), all_axes[name].xaxis
        ticks = [*axis.get_majorticklocs(), *axis.get_minorticklocs()]
        texts = [*axis.get_majorticklabels(), *axis.get_minorticklabels()]
        return [text.get_text() for tick, text in zip(ticks, texts, strict=True) if left <= tick <= right and text.get_text()]

    assert [labels(name) for name in ("apart", "between powers", "decades")] == [["5", "10", "20", "50"], ["20", "50"], ["10", "100", "1k"]]
