"""Pictures of a run. matplotlib (the extra "plot") is imported only when one is made."""

import csv
import json
import math
from itertools import zip_longest
from pathlib import Path

from rlpyt.utils.misc import atomic_write

RETURN_COLUMNS = ("GameScoreAverage", "ReturnAverage")  # for Atari: the score, not the sum of clipped rewards


def plot_learning_curve(run_dir, y: str | None = None, x: str = "Diagnostics/CumSteps", path=None) -> str:
    """Draw a column of a run's progress.csv over another one; returns the path of the PNG.

    Around an average, a band shows one standard deviation (or minimum to maximum where there is none).

    run_dir: the directory with progress.csv.
    y: column; default the first there is of RETURN_COLUMNS. A column "Return/Average" also answers to
        "ReturnAverage".
    path: of the picture; default <run_dir>/learning_curve.png.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError as error:
        raise ImportError('Plotting needs matplotlib: pip install "rlpyt[plot]"') from error
    run_dir = Path(run_dir)
    columns = _read_columns(run_dir / "progress.csv")
    x, y = _find_column(columns, x), _find_column(columns, *((y,) if y else RETURN_COLUMNS))
    band_label, low, high = _band(columns, y)
    points = zip(columns[x], columns[y], strict=True)
    shown = [i for i, point in enumerate(points) if all(map(math.isfinite, point))]

    def values(column: list[float]) -> list[float]:
        return [column[i] for i in shown]

    figure = Figure(figsize=(7, 4.2), dpi=150, layout="constrained")  # not pyplot: no global state, no window
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    xs, color, marker = values(columns[x]), "tab:blue", "." if len(shown) < 20 else ""
    axes.plot(xs, values(columns[y]), color=color, linewidth=1.6, marker=marker, label=_label(y))
    if band_label:
        axes.fill_between(xs, values(low), values(high), color=color, alpha=0.2, lw=0, label=band_label)
        axes.legend(frameon=False, loc="best")
    if not shown:
        axes.text(0.5, 0.5, f"no values of {y} yet", ha="center", transform=axes.transAxes, color="gray")
    axes.set_title(_run_name(run_dir))
    axes.set_xlabel("environment steps" if x.endswith("CumSteps") else x)
    axes.set_ylabel(_label(y))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    path = Path(path or run_dir / "learning_curve.png")
    with atomic_write(path) as file:
        figure.savefig(file, format="png")
    return str(path)


def _read_columns(progress_file: Path) -> dict[str, list[float]]:
    """The columns of a CSV file as floats, NaN where the text is no number."""
    with open(progress_file, newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    columns = zip_longest(*rows, fillvalue="nan") if rows else [()] * len(header)
    return {name: [_as_float(text) for text in column] for name, column in zip(header, columns, strict=False)}


def _as_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _find_column(columns: dict[str, list[float]], *names: str) -> str:
    for name in names:
        for column in columns:
            if column == name or column.replace("/", "") == name:
                return column
    available = ", ".join(columns) or "(it is empty)"
    raise ValueError(f"progress.csv has no column {' or '.join(names)}: choose among {available}.")


def _band(columns: dict[str, list[float]], y: str) -> tuple[str, list[float], list[float]]:
    """What there is to show around the average y: (label, low, high), with an empty label if nothing."""
    if y.endswith("Average"):
        base = y.removesuffix("Average")
        if f"{base}Std" in columns:
            pairs = list(zip(columns[y], columns[f"{base}Std"], strict=True))
            low, high = [mean - std for mean, std in pairs], [mean + std for mean, std in pairs]
            return "± one standard deviation", low, high
        if f"{base}Min" in columns and f"{base}Max" in columns:
            return "minimum to maximum", columns[f"{base}Min"], columns[f"{base}Max"]
    return "", [], []


def _label(column: str) -> str:
    """'ReturnAverage' -> 'average return', 'GameScoreAverage' -> 'average game score'."""
    base = column.removesuffix("Average").rstrip("/")
    if base == column:
        return column
    return "average" + "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in base)


def _run_name(run_dir: Path) -> str:
    try:
        params = json.loads((run_dir / "params.json").read_text(encoding="utf-8"))
        return f"{params['name']} (run {params['run_ID']})"
    except (OSError, ValueError, KeyError):
        return run_dir.resolve().name
