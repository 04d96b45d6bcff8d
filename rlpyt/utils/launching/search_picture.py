"""A picture of a search: scores at the rungs, the best so far, which settings matter, and the settings of all trials."""

from __future__ import annotations

import math
from typing import Any

from rlpyt.utils.launching.halving import WORST, best_so_far, ranked
from rlpyt.utils.launching.search_dir import Search
from rlpyt.utils.launching.search_status import FEWEST, importances
from rlpyt.utils.launching.space import Choice
from rlpyt.utils.plotting import figure_maker, literal, picture_paths, save_figure

_WITHOUT_SCORE = "0.75"  # A light grey.


def plot_search(exp_dir: Any, path: Any = "search", title: str | None = None) -> list[str]:
    """Draw the search in a directory; return the paths of the pictures.

    Args:
        exp_dir: directory of the search.
        path: file .png, .svg or .pdf; without an extension, a PNG and an SVG.
        title: title; default the name of the directory.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: it is not the directory of a search, or no trial has a score yet.
    """
    make_figure, paths, search = figure_maker(), picture_paths(path), Search(exp_dir)
    n_runs = search.history.n_runs
    worst_first = ranked(search.trials, n_runs)[::-1]  # So the best are drawn last, on top.
    scored = [trial for trial in worst_first if search.score(trial) > WORST]
    if not scored:
        raise ValueError(f"No trial of {exp_dir} has a score yet: wait until one has reached the first rung.")
    figure = make_figure(figsize=(11, 8), dpi=110, layout="constrained")
    figure.suptitle(literal(title or search.exp_dir.resolve().name))
    grid = figure.add_gridspec(2, 2)
    colors = _colors(len(scored))

    rungs = figure.add_subplot(grid[0, 0])
    for trial, color in zip(scored, colors):
        scores = [score for score in trial.scores(n_runs) if score > WORST]
        rungs.plot(search.history.rungs[: len(scores)], scores, marker="o", markersize=4, color=color, linewidth=1.2)
    rungs.set_xscale("log")
    rungs.set_xticks(search.history.rungs, [f"{steps:,}" for steps in search.history.rungs])
    rungs.set_xticks([], minor=True)
    rungs.set(title="scores at the rungs", xlabel="environment steps of a run", ylabel="return (interquartile mean of the runs)")

    best = figure.add_subplot(grid[0, 1])
    may_be_best = {trial.number for trial in scored if trial.error is None}  # As in the table, where failed trials are the worst.
    history = best_so_far([(steps, (rung, score)) for steps, trial, rung, score in search.history.scored if trial in may_be_best])
    if history:
        steps = [*(at for at, _ in history), search.history.scored[-1][0]]
        scores = [score for _, (_, score) in history]
        best.step(steps, [*scores, scores[-1]], where="post", color="tab:blue")  # It falls if the best trial scores less at a higher rung.
    best.set(title="best so far, highest rung first", xlabel="environment steps of all runs", ylabel="score at its highest rung")

    bars = figure.add_subplot(grid[1, 0])
    importance = importances(search)
    is_known = not all(map(math.isnan, importance.values()))
    names = [literal(name) for name in importance]
    bars.barh(names[::-1], [0 if math.isnan(value) else value for value in importance.values()][::-1], color="tab:blue")
    meaning = "part of the ranks that one setting explains" if is_known else f"unknown, it takes {FEWEST} trials and different scores"
    bars.set(title=f"importance: {meaning}", xlabel="adjusted R², first rung", xlim=(0, 1))

    others = [trial for trial in worst_first if trial not in scored]
    unscored = [trial for trial in others if trial.error is not None or trial.scores(n_runs)]  # The rest are running.
    _parallel(figure.add_subplot(grid[1, 1]), search, unscored, scored, colors)
    return [save_figure(figure, each) for each in paths]


def _parallel(axes: Any, search: Search, unscored: list, scored: list, colors: list) -> None:
    """Draw each trial as a line through its settings, each between the ends of its range; the last axis is the score's rank."""
    ranges = list(search.space.ranges.values())
    places = [0.0] * len(unscored) + [place / max(len(scored) - 1, 1) for place in range(len(scored))]
    for trial, color, place in zip([*unscored, *scored], [_WITHOUT_SCORE] * len(unscored) + colors, places):
        ys = [range_.position(value) for range_, value in zip(ranges, trial.values)] + [place]
        axes.plot(range(len(ys)), ys, color=color, linewidth=1.2, alpha=0.8)
    labels = [name.rpartition(".")[2] for name in search.space.names]
    axes.set_xticks(range(len(labels) + 1), [*map(literal, labels), "rank"])
    for x, range_ in enumerate(ranges):
        ends = [range_.values[0], range_.values[-1]] if isinstance(range_, Choice) else [range_.low, range_.high]
        for y, end in enumerate(ends):
            text = f"{end:.3g}" if isinstance(end, float) else str(end)
            axes.annotate(literal(text), (x, y), textcoords="offset points", xytext=(3, -10 if y == 0 else 4), fontsize=8)
    title = "settings of all trials, the best in yellow" + ", failed or without return in grey" * bool(unscored)
    axes.set(title=title, ylim=(-0.1, 1.1), yticks=[])


def _colors(n: int) -> list:
    """Colours from dark (the first) to yellow (the last)."""
    from matplotlib import colormaps

    return [colormaps["viridis"](i / max(n - 1, 1)) for i in range(n)]
