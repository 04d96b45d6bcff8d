"""Pictures of runs. matplotlib (the extra "plot") is imported only when a picture is drawn."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlpyt.utils.extras import import_error
from rlpyt.utils.logging.runs import (
    RETURN_COLUMNS,
    STEPS_COLUMN,
    directory_labels,
    find_column,
    find_runs,
    has_column,
    read_columns,
    read_params,
    read_settings,
    variant_dir,
)
from rlpyt.utils.misc import atomic_write, did_you_mean
from rlpyt.utils.text import printable

FORMATS = ("png", "svg", "pdf")
X_LABELS = {
    "CumSteps": "environment steps",
    "CumTime": "time (s)",
    "CumTrainTime": "training time (s)",
    "CumEvalTime": "evaluation time (s)",
    "CumUpdates": "gradient updates",
    "CumCompletedTrajs": "episodes",
    "Iteration": "iteration",
}
_FIGURE_CHARACTERS = 88  # Width of the figure in characters of the legend.
_PANEL_CHARACTERS = 46  # Width of a panel of `plot_panels` in characters of its title; those of its legend are smaller.
_MOST_LINES_INSIDE = 3  # of the legend of a panel; more of them hide curves
_COLUMN_CHARACTERS = 31  # Width of half a panel in characters of its legend.
_LEGEND_LINE = 0.17  # inches
_MUCH_LONGER = 5  # A panel has a logarithmic axis if its longest curve has so many times the steps of its shortest.


def plot_learning_curve(run_dir: Any, y: str | None = None, x: str = STEPS_COLUMN, path: Any = None) -> str:
    """Draw a column of a run's progress.csv over another one; return the path of the PNG.

    Around an average, a band shows minimum to maximum, or one standard deviation without these columns. (A band of standard deviations
    may show returns that no episode can have.)

    Args:
        run_dir: the directory with progress.csv.
        y: column of the vertical axis; default the first existing one of RETURN_COLUMNS. "ReturnAverage" also finds "Return/Average".
        x: column of the horizontal axis.
        path: path of the picture; default <run_dir>/learning_curve.png.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: progress.csv has no such column.
    """
    make_figure = figure_maker()
    run_dir = Path(run_dir)
    columns = read_columns(run_dir / "progress.csv")
    x, y = find_column(columns, x), find_column(columns, *((y,) if y else RETURN_COLUMNS))
    band_label, low, high = _band(columns, y)
    points = zip(columns[x], columns[y], strict=True)
    shown = [i for i, point in enumerate(points) if all(map(math.isfinite, point))]

    def values(column: list[float]) -> list[float]:
        return [column[i] for i in shown]

    figure = make_figure(figsize=(7, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    xs, color = values(columns[x]), "tab:blue"
    axes.plot(xs, values(columns[y]), color=color, linewidth=1.6, marker=_marker(xs, few=20), label=_label(y))
    if band_label:
        axes.fill_between(xs, values(low), values(high), color=color, alpha=0.2, lw=0, label=band_label)
        axes.legend(frameon=False, loc="best")
    if not shown:
        axes.text(0.5, 0.5, f"no values of {literal(y)} yet", ha="center", transform=axes.transAxes, color="gray")
    axes.set_title(literal(_run_name(run_dir)))
    _finish_axes(axes, x, y)
    return save_figure(figure, Path(path or run_dir / "learning_curve.png"))


def plot_learning_curves(
    dirs: Iterable[Any],
    keys: Sequence[str] = (),
    x: str = STEPS_COLUMN,
    group_by: Sequence[str] = ("directory",),
    statistic: str = "mean",
    path: Any = "learning_curves",
    title: str | None = None,
    n_resamples: int = 2000,
    confidence: float = 0.95,
    note: Callable[[str], None] = print,
) -> list[str]:
    """Draw learning curves of many runs, one curve for each group of runs, with bootstrap confidence bands over the runs of a group.

    Straight lines connect the rows of a run. If some runs of a group end earlier, the curve of the other runs continues dashed.

    Args:
        dirs: directories of runs or experiments; runs are also found in their subdirectories.
        keys: columns, each in a separate panel; default the first existing one of RETURN_COLUMNS.
        x: column of the horizontal axis.
        group_by: what the runs of a group have in common: names of settings, such as "algo.learning_rate" or just "learning_rate", in
            params.json or in the variant of a sweep; or "directory", without run_<ID>; or "run", for one run in each group.
        statistic: "mean", or "IQM" (see `rlpyt.utils.aggregate.interquartile_mean`).
        path: path of the pictures. With an extension of FORMATS, this picture is made; without extension, a PNG and an SVG.
        title: title of the picture; default the common part of the directories' names.
        n_resamples: number of resamples for the bands; the seed is fixed, so that a picture is reproducible.
        confidence: confidence level of the bands.
        note: called with sentences about runs that are left out.

    Returns:
        The paths of the pictures.

    Raises:
        ImportError: matplotlib is not installed.
        FileNotFoundError: the directories contain no runs.
        ValueError: no run has such a column or setting, or the extension is not that of a picture.
    """
    from rlpyt.utils.aggregate import STATISTICS, bootstrap, on_common_grid

    if statistic not in STATISTICS:
        raise ValueError(f"statistic={statistic!r} is unknown: choose one of {', '.join(STATISTICS)}.")
    paths = picture_paths(path)
    make_figure = figure_maker()
    tables = {run_dir: read_columns(run_dir / "progress.csv") for run_dir in find_runs(dirs)}
    names = list(dict.fromkeys(column for table in tables.values() for column in table))
    begun = [table for table in tables.values() if table]
    common = [column for column in RETURN_COLUMNS if all(has_column(table, column) for table in begun)]
    keys = keys or [find_column(names, *common, *RETURN_COLUMNS)]
    for key in (*keys, x):
        find_column(names, key)
    groups = group_runs(list(tables), group_by)
    colors, largest = _colors(len(groups)), max(map(len, groups.values()))

    figure = make_figure(figsize=(7.2, 1 + 3.4 * len(keys)), dpi=150, layout="constrained")
    panels = figure.subplots(len(keys), 1, squeeze=False, sharex=True)[:, 0]
    handles: dict[str, Any] = {}
    for axes, key in zip(panels, keys, strict=True):
        without = [str(run_dir) for run_dir, table in tables.items() if not _curve(table, x, key)]
        if without:
            some = f"{', '.join(without[:3])}{', ...' if len(without) > 3 else ''}"
            note(f"{len(without)} of {len(tables)} runs have no values of {key} yet, and are left out: {some}.")
        for (group, runs), color in zip(groups.items(), colors, strict=True):
            curves = [curve for run_dir in runs if (curve := _curve(tables[run_dir], x, key))]
            if not curves:
                continue
            xs, values = on_common_grid(curves)
            band = bootstrap(values, STATISTICS[statistic], n_resamples, confidence)
            label = f"{literal(group)} (n={len(curves)})" if largest > 1 else literal(group)
            handles.setdefault(group, _draw_band(axes, xs, band, color, label))
        _finish_axes(axes, x, find_column(names, key))
        if not axes.lines:
            axes.text(0.5, 0.5, f"no values of {literal(key)} yet", ha="center", transform=axes.transAxes, color="gray")
    for axes in panels[:-1]:
        axes.set_xlabel("")
    figure.suptitle(title if title is not None else literal(_common_name(list(tables))), fontsize=12)
    if largest > 1:
        what = f"{statistic} over runs (n); bands: {confidence:.0%} bootstrap intervals, {n_resamples:,} resamples"
        panels[0].set_title(what, fontsize=8, color="0.4", loc="left")
    if len(groups) > 1 or largest > 1:
        _add_legend(figure, handles)
    return [save_figure(figure, each) for each in paths]


def check_picture(path: Any) -> None:
    """Check that the extension is that of a picture and matplotlib is installed, before anything is written.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the extension is not that of a picture.
    """
    picture_paths(path)
    figure_maker()


def plot_panels(
    panels: Mapping[str, Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]]],
    path: Any,
    n_resamples: int = 2000,
    confidence: float = 0.95,
) -> list[str]:
    """Draw the interquartile mean of curves with bootstrap bands, in a panel for each task; return the paths of the pictures.

    The axis of steps is logarithmic where some curves are much longer than others, so that the short ones can be seen.

    Args:
        panels: the curves (environment steps, returns) of all runs, by task and by algorithm.
        path, n_resamples, confidence: as in `plot_learning_curves`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: there are no curves, or the extension is not that of a picture.
    """
    from rlpyt.utils.aggregate import bootstrap, interquartile_mean, on_common_grid

    paths = picture_paths(path)
    make_figure = figure_maker()
    from matplotlib.transforms import ScaledTranslation

    if not panels:
        raise ValueError("There are no curves to draw.")
    n_columns = min(len(panels), 3)
    n_rows = -(-len(panels) // n_columns)
    names = {
        task: {algorithm: _wrapped(f"{algorithm} (n={len(curves)})") for algorithm, curves in each.items()} for task, each in panels.items()
    }
    below = [_lines_below(list(labels.values())) for labels in names.values()]
    # Constrained layout takes the place of a legend from the panels of a row, so the picture gets as much higher.
    extra = sum(max(below[i : i + n_columns])[0] for i in range(0, len(below), n_columns)) * _LEGEND_LINE
    figure = make_figure(figsize=(4 * n_columns, 3.1 * n_rows + extra), dpi=110, layout="constrained")
    all_axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes, (task, algorithms), (n_below, legend_columns) in zip(all_axes, panels.items(), below, strict=False):
        for (algorithm, curves), color in zip(algorithms.items(), _colors(len(algorithms)), strict=True):
            xs, values = on_common_grid(curves)
            band = bootstrap(values, interquartile_mean, n_resamples, confidence)
            _draw_band(axes, xs, band, color, names[task][algorithm])
        _spread_short_curves(axes, [curve for curves in algorithms.values() for curve in curves])
        _finish_axes(axes, STEPS_COLUMN, "return")
        axes.set_title(_wrapped(task), fontsize=10)
        where: dict[str, Any] = {}
        if n_below:
            below_axis = axes.transAxes + ScaledTranslation(0, -0.45, figure.dpi_scale_trans)
            where = dict(loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below_axis, ncols=legend_columns)
        axes.legend(frameon=False, fontsize=7, **where)
    for axes in all_axes[len(panels) :]:
        axes.set_axis_off()
    return [save_figure(figure, each) for each in paths]


def _wrapped(text: Any) -> str:
    """Return a text for a panel of `plot_panels`, literally, in lines that are not wider than the panel."""
    return "\n".join(map(literal, textwrap.wrap(printable(text), _PANEL_CHARACTERS))) or literal(text)


def _lines_below(labels: Sequence[str]) -> tuple[int, int]:
    """Lines of text and columns of a legend that belongs below its panel, where it hides no curve; 0 lines if it belongs inside."""
    n_lines = [label.count("\n") + 1 for label in labels]
    if max(n_lines, default=0) > 1:
        return sum(n_lines), 1
    n_columns = 2 if all(len(label) <= _COLUMN_CHARACTERS for label in labels) else 1
    return (-(-len(labels) // n_columns) if len(labels) > _MOST_LINES_INSIDE else 0), n_columns


def _spread_short_curves(axes: Any, curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> None:
    """Make the axis of steps logarithmic if curves differ much in length. It has no place for step 0."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ends = [max(steps) for steps, _ in curves if len(steps)]
    begins = [step for steps, _ in curves for step in steps if step > 0]
    if begins and min(ends) > 0 and max(ends) >= _MUCH_LONGER * min(ends):
        axes.set_xscale("log", nonpositive="mask")
        axes.set_xlim(left=min(begins))
        has_room = max(ends) <= 100 * min(begins)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if has_room else (1,)))
        axes.xaxis.set_minor_formatter(NullFormatter())


def group_runs(run_dirs: Sequence[Path], group_by: Sequence[str] = ("directory",)) -> dict[str, list[Path]]:
    """Return the runs of each group by its label, in the given order; `group_by` as in `plot_learning_curves`.

    Raises:
        ValueError: no run has such a setting, or its name is ambiguous.
    """
    labels = [_Labels(run_dirs, key) for key in group_by]
    groups: dict[str, list[Path]] = {}
    for run_dir in run_dirs:
        groups.setdefault(", ".join(label(run_dir) for label in labels), []).append(run_dir)
    return groups


class _Labels:
    """Labels of runs by one key of `group_by`."""

    def __init__(self, run_dirs: Sequence[Path], key: str) -> None:
        if key in ("directory", "run"):
            directories = {run: variant_dir(run) if key == "directory" else Path(run).resolve() for run in run_dirs}
            labels = directory_labels(set(directories.values()))
            self._labels = {run: labels[path] for run, path in directories.items()}
            return
        settings = {run: read_settings(run) for run in run_dirs}
        name = _find_setting(sorted({name for each in settings.values() for name in each}), key)
        short = name.rpartition(".")[2]
        self._labels = {run: f"{short}={_text(each[name])}" if name in each else f"no {short}" for run, each in settings.items()}

    def __call__(self, run_dir: Path) -> str:
        return self._labels[run_dir]


def _find_setting(names: Sequence[str], key: str) -> str:
    if key in names:
        return key
    fitting = [name for name in names if name.endswith(f".{key}")]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ValueError(f"{key!r} may be any of {', '.join(fitting)}: give the full name.")
    short = [name.rpartition(".")[2] for name in names]
    hint = did_you_mean(key, [*names, *short, "directory", "run"], otherwise=f"There are: directory, run, {', '.join(names)}.")
    raise ValueError(f"The runs have no setting {key!r}. {hint}")


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _curve(table: Mapping[str, list[float]], x: str, y: str) -> tuple[list[float], list[float]] | None:
    """The finite points of a run; None without any."""
    if not (has_column(table, x) and has_column(table, y)):
        return None
    points = list(zip(table[find_column(table, x)], table[find_column(table, y)], strict=True))
    finite = [point for point in points if all(map(math.isfinite, point))]
    return ([x for x, _ in finite], [y for _, y in finite]) if finite else None


def _draw_band(axes: Any, xs: Any, band: Any, color: Any, label: str) -> Any:
    """Draw a curve and its band; return the handle for the legend. The curve is solid where all runs have values, and dashed elsewhere."""
    n_runs = band.n_runs.max()
    is_full = band.n_runs == n_runs
    first, last = is_full.nonzero()[0][[0, -1]]
    solid = slice(first, last + 1)
    (handle,) = axes.plot(xs[solid], band.center[solid], color=color, linewidth=1.6, marker=_marker(xs, few=5), label=label)
    for part in (slice(0, first + 1), slice(last, None)):
        if len(xs[part]) > 1:
            axes.plot(xs[part], band.center[part], color=color, linewidth=1.2, linestyle=(0, (3, 2)))
    axes.fill_between(xs, band.low, band.high, color=color, alpha=0.2, lw=0)
    return handle


def _add_legend(figure: Any, handles: Mapping[str, Any]) -> None:
    """Put the legend outside the panels, so that it hides no curve: below them, or to the right if it is long."""
    longest = max((len(handle.get_label()) for handle in handles.values()), default=1)
    n_columns = max(_FIGURE_CHARACTERS // (longest + 7), 1)
    n_lines = -(-len(handles) // n_columns)
    width, height = figure.get_size_inches()
    if n_lines > 5:
        figure.set_size_inches(width * (1 + (longest + 7) / _FIGURE_CHARACTERS), max(height, 0.2 * len(handles) + 0.6))
        where: dict[str, Any] = dict(loc="outside right upper")
    else:
        figure.set_size_inches(width, height + 0.2 * n_lines)
        where = dict(loc="outside lower center", ncols=-(-len(handles) // max(n_lines, 1)) or 1)
    figure.legend(handles=list(handles.values()), frameon=False, fontsize=9, **where)


def _colors(n: int) -> list:
    from matplotlib import colormaps

    if n <= 10:
        return [colormaps["tab10"](i) for i in range(n)]
    return [colormaps["turbo"](0.05 + 0.9 * i / (n - 1)) for i in range(n)]


def figure_maker() -> Callable:
    """Return a function that makes a matplotlib Figure with a canvas for files: without pyplot, so without global state and windows."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise import_error("Plotting needs", "plot", error) from error

    def make(**kwargs: Any) -> Figure:
        figure = Figure(**kwargs)
        FigureCanvasAgg(figure)
        return figure

    return make


def _finish_axes(axes: Any, x: str, y: str) -> None:
    """Label the axes."""
    from matplotlib.ticker import EngFormatter, FuncFormatter

    axes.set_xlabel(X_LABELS.get(x.rpartition("/")[2].partition(" (")[0], literal(_label(x))))
    axes.set_ylabel(literal(_label(y)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if axes.lines and max(map(abs, axes.get_ylim())) >= 1000:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _marker(xs: Sequence, few: int) -> str:
    return "." if len(xs) < few else ""


def picture_paths(path: Any) -> list[Path]:
    """Return the files to draw into: `path`, or, if it has no extension, a PNG and an SVG; ValueError for a format that is not drawn."""
    path = Path(path)
    extension = path.suffix.removeprefix(".").lower()
    if extension in FORMATS:
        return [path]
    if extension:
        hint = did_you_mean(f".{extension}", [f".{each}" for each in FORMATS])
        raise ValueError(f"{path} is no picture. {hint} (Without an extension, a PNG and an SVG are made.)")
    return [path.with_suffix(".png"), path.with_suffix(".svg")]


def save_figure(figure: Any, path: Path) -> str:
    """Write a matplotlib Figure to a file, in the format of its extension; return the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix(".").lower() or "png")
    return str(path)


def _band(columns: dict[str, list[float]], y: str) -> tuple[str, list[float], list[float]]:
    """Return the band around the average y: (label, low, high), with an empty label if no columns for it exist."""
    if y.endswith("Average"):
        base = y.removesuffix("Average")
        if f"{base}Min" in columns and f"{base}Max" in columns:
            return "minimum to maximum", columns[f"{base}Min"], columns[f"{base}Max"]
        if f"{base}Std" in columns:
            pairs = list(zip(columns[y], columns[f"{base}Std"], strict=True))
            low, high = [mean - std for mean, std in pairs], [mean + std for mean, std in pairs]
            return "± one standard deviation", low, high
    return "", [], []


def _label(column: str) -> str:
    """'ReturnAverage' -> 'average return', 'Diagnostics/StepsPerSecond' -> 'steps per second'."""
    name = column.removeprefix("Diagnostics/")
    for statistic, word in (("Average", "average"), ("Std", "standard deviation of"), ("Median", "median")):
        if name.endswith(statistic) and name != statistic:
            return f"{word} {_words(name.removesuffix(statistic).rstrip('/'))}"
    return _words(name)


def _words(name: str) -> str:
    """'GameScore' -> 'game score', 'qLoss' -> 'q loss', 'KLDivergence' -> 'KL divergence', 'CumTime (s)' -> 'cum time (s)'."""
    name, bracket, unit = name.partition(" (")
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z]", name)
    return (" ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words) or name) + bracket + unit


def literal(text: Any) -> str:
    """Return a text from a run's files such that matplotlib shows it literally: not as a formula, and without missing glyphs."""
    return printable(text).replace("$", r"\$")


def _run_name(run_dir: Path) -> str:
    try:
        params = read_params(run_dir / "params.json")
        return f"{params['name']} (run {params['run_ID']})"
    except (OSError, ValueError, KeyError):
        return run_dir.resolve().name


def _common_name(run_dirs: Sequence[Path]) -> str:
    """The name that all runs share, or the name of the innermost directory that contains them all."""
    names = set()
    for run_dir in run_dirs:
        try:
            names.add(read_params(run_dir / "params.json").get("name"))
        except (OSError, ValueError):
            names.add(None)
    if len(names) == 1 and None not in names:
        return str(names.pop())
    return Path(os.path.commonpath([variant_dir(run_dir) for run_dir in run_dirs])).name
