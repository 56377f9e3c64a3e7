# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the drawings of all papers share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpfl import accounting
from dpfl.planning import remarks
from dpfl.tasks.registry import Measure

from . import trainings
from .result_rows import Rows, distinct, mean_and_range, mean_and_reach, numbers, where


def print_remark(rows: Rows) -> None:
    """Says how many rows have an epsilon that protects nobody, if any have."""
    spent = [row.get("measured_epsilon") or row.get("epsilon") or "0" for row in rows]
    large = [text for text in spent if float(text) > accounting.LARGE_EPSILON]
    if large:
        print(
            f"note that an epsilon above {accounting.LARGE_EPSILON:g} protects nobody, "
            f"found in {len(large)} of {len(rows)} rows; the train.log of a run names "
            f"the noise_multiplier that brings it to {remarks.USUAL_EPSILON:g}"
        )


# Place, mean, and how far the range reaches below and above.
Point = tuple[float, float, float, float]
# A point and the color of its line.
Drawn = tuple[Point, str]

# Color and marker of a mechanism, by its name in a grid and by what the papers call it.
# Color-blind safe (Okabe and Ito); what is akin has the same color, and the marker
# tells it apart in grey too.
STYLES: Mapping[str, tuple[str, str]] = {
    "gaussian": ("#000000", "*"),
    "mf": ("#5d3a9b", "P"),
    "ddg": ("#0072b2", "o"),
    "skellam": ("#004570", "D"),
    "sketched_ddg": ("#56b4e9", "s"),
    "sketched_ddg_once": ("#56b4e9", "p"),
    "l2_csgm": ("#d55e00", "^"),
    "linf_csgm": ("#e69f00", "v"),
    "sgmf": ("#cc79a7", "D"),
    "dome": ("#009e73", "x"),
    "dome_whole": ("#009e73", "X"),
    "dome_few_bits": ("#009e73", "*"),
    "sparse_recovery": ("#882255", "d"),
    "project_and_perturb": ("#7f7f7f", "p"),
    "honaker-online": ("#8c564b", "v"),
    "honaker-full": ("#b8a000", "^"),
    # Lighter than the optimal matrix of momentum, which stands beside it.
    "optimal-prefix-sum": ("#a98fd6", "h"),
}
STYLES = {
    **STYLES,
    "GM": STYLES["gaussian"],
    "MF": STYLES["mf"],
    "CSGM": STYLES["l2_csgm"],
    "SGMF": STYLES["sgmf"],
    "distributed_discrete_gaussian": STYLES["ddg"],
    "optimal": STYLES["mf"],
}
# What legends call a mechanism that grids and papers abbreviate.
TITLES: Mapping[str, str] = {
    "GM": "Gaussian",
    "MF": "matrix factorization",
    "CSGM": "L2-CSGM",
    "SGMF": "SGMF",
}
# Lines of one mechanism, such as one for each compression rate.
_DASHES: Sequence[Any] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
# Share of the rounds that the right or lower panel of a pair shows, and its title.
_LAST_PART = 1 / 3
_LAST_TITLE = "last third of the rounds"
# Share of the distance of two places by which lines stand apart at each.
_APART = 0.08
# Inches beyond which text is too small at the width of a page of 800 pixels.
_WIDEST = 10.0
_LEAST_PANEL = 3.2
_LEAST_PICTURE = 6.4
_STYLE: Mapping[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "figure.titlesize": 10,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "errorbar.capsize": 2,
    "legend.framealpha": 0.85,
}


class Line(NamedTuple):
    """A line over the rounds.

    Attributes:
      runs: Rows of runs with equal rounds.
      label: For the legend; {last} in it is the mean that they ended with.
      look: See the function of that name.
    """

    runs: Rows
    label: str
    look: Mapping[str, Any]


def style() -> Any:
    """Returns a context in which all figures are drawn: fonts, grid and lines."""
    import matplotlib

    return matplotlib.rc_context(dict(_STYLE))


def look(mechanism: str, step: int = 0, *, marked: bool = True) -> dict[str, Any]:
    """Returns color, marker and dashes of a mechanism's line, for `Axes.plot`.

    Args:
      mechanism: A key of `STYLES`.
      step: Which of the mechanism's lines it is.
      marked: Whether points are marked.
    """
    color, marker = STYLES[mechanism]
    found = {"color": color, "ls": _DASHES[step % len(_DASHES)]}
    if marked:
        found |= {"marker": marker, "ms": 9 if marker == "*" else 5}
    return found


def shade(
    mechanism: str,
    step: int,
    count: int,
    ends: tuple[float, float] = (-0.5, 0.33),
) -> str:
    """Returns one of a few shades of a mechanism's color, from dark to light.

    Args:
      mechanism: A key of `STYLES`.
      step: Which of them.
      count: How many there are.
      ends: Shares of black, below 0, or of white in the first and in the last.
    """
    from matplotlib import colors

    color = np.array(colors.to_rgb(STYLES[mechanism][0]))
    first, last = ends
    part = (last - first) * step / max(1, count - 1) + first
    mixed = color * (1 + part) if part < 0 else color + (1 - color) * part
    return colors.to_hex(mixed)


def panels(count: int, width: float, height: float, **options: Any) -> Any:
    """Returns a picture and its panels, side by side as far as text stays readable.

    Args:
      count: Number of panels.
      width: Of a panel, in inches; less where there are many, more for one.
      height: Of a panel, in inches.
      **options: Of `pyplot.subplots`.

    Returns:
      The figure and a list of `count` axes.
    """
    import matplotlib.pyplot as plt

    across = min(count, int(_WIDEST / _LEAST_PANEL))
    # Four are two and two.
    across = 2 if count == 4 else across
    lines = -(-count // across)
    whole = max(_LEAST_PICTURE, min(width * across, _WIDEST))
    picture, axes = plt.subplots(
        lines,
        across,
        figsize=(whole, height * lines),
        squeeze=False,
        **options,
    )
    found = list(axes.flat)
    for unused in found[count:]:
        unused.remove()
    return picture, found[:count]


def pairs(count: int, width: float, height: float) -> Any:
    """Returns a picture with two panels for each curve: all rounds, and the last.

    Args:
      count: Number of pairs.
      width: Of a panel, in inches; less where there are many.
      height: Of a panel, in inches.

    Returns:
      The figure and a list of `count` pairs of axes.
    """
    import matplotlib.pyplot as plt

    # One above the other where pairs stand side by side.
    is_above = 1 < count <= int(_WIDEST / _LEAST_PANEL)
    lines, across = (2, count) if is_above else (count, 2)
    picture, axes = plt.subplots(
        lines,
        across,
        figsize=(min(width * across, _WIDEST), height * lines + 0.4),
        squeeze=False,
    )
    return picture, list(zip(*axes) if is_above else map(tuple, axes))


def head(picture: Any, text: str) -> None:
    """Writes a line above all panels, as far from them in a tall picture as in others.

    Args:
      picture: A figure whose panels are drawn.
      text: The line.
    """
    inch = 1 / picture.get_figheight()
    picture.suptitle(text, y=1 - 0.08 * inch, va="top")
    picture.tight_layout(rect=(0, 0, 1, 1 - 0.1 * inch))


def finish(
    axis: Any, *, legend: float = 9, below: int = 0, last: str = "", **labels: Any
) -> None:
    """Sets labels and a legend.

    Args:
      axis: A panel.
      legend: Its size in points.
      below: Columns of a legend that stands below the panel; within it if 0.
      last: What the legend names after all else.
      **labels: Of `Axes.set`.
    """
    axis.set(**labels)
    if axis.get_xscale() == "log":
        plain_numbers(axis)
    named = zip(*axis.get_legend_handles_labels())
    place: dict[str, Any] = {"fontsize": legend}
    if below:
        # Where it hides no data: below the numbers and the label.
        place |= {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "ncol": below}
    axis.legend(*zip(*sorted(named, key=lambda one: one[1] == last)), **place)


def plain_numbers(axis: Any) -> None:
    """Writes the numbers of a logarithmic axis without powers, where they are few."""
    from matplotlib import ticker

    low, high = axis.get_xlim()
    if low >= 5e-4 and high <= 1e4:
        axis.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))


def ranges(axis: Any, points: Sequence[Point], label: str, **look: Any) -> None:
    """Draws a line through means with the range of each.

    Args:
      axis: A panel.
      points: Place, mean, and the distances of the range below and above.
      label: For the legend.
      **look: See `look`.
    """
    places, means, down, up = zip(*points)
    axis.errorbar(places, means, yerr=(down, up), elinewidth=1, label=label, **look)


def range_points(groups: Mapping[float, Rows], column: str) -> list[Point]:
    """Returns a point of `ranges` for each group of rows by its place."""
    return [
        (place, *mean_and_range(rows, column)) for place, rows in groups.items() if rows
    ]


def measured_label(repeats: int) -> str:
    """Returns what a point and its bar are that `measured` draws, in words."""
    return f"mean of {repeats}, bars: two standard errors each way"


def measured(axis: Any, x: Sequence[float], rows: Rows, **options: Any) -> None:
    """Draws squared errors that were measured, with two standard errors each way."""
    axis.errorbar(
        x,
        numbers(rows, "squared_error"),
        yerr=[2 * error for error in numbers(rows, "standard_error")],
        **options,
    )


def _values(runs: Rows, column: str) -> tuple[Any, Any]:
    """Returns the rounds of runs, and a column by run and round."""
    found = [trainings.curve(row, column) for row in runs]
    rounds = np.array([place for place, _ in found[0]])
    return rounds, np.array([[value for _, value in one] for one in found])


def curves(axis: Any, line: Line, column: str, *, skipped: int = 0) -> None:
    """Draws the mean of a column over the rounds, with its range over runs.

    Args:
      axis: A panel.
      line: What is drawn.
      column: Of the runs' metrics.csv.
      skipped: First rounds that are not drawn.
    """
    x, values = _values(line.runs, column)
    shown = x > skipped
    low, high = values.min(0)[shown], values.max(0)[shown]
    text = line.label.format(last=values[:, -1].mean())
    axis.plot(x[shown], values.mean(0)[shown], label=text, **line.look)
    axis.fill_between(x[shown], low, high, color=line.look["color"], alpha=0.15, lw=0)
    axis.xaxis.get_major_locator().set_params(integer=True)


def aside(number: int, count: int) -> float:
    """Returns how far from its place a line is drawn, so that ranges do not overlap.

    Args:
      number: Which of the lines it is.
      count: How many there are.

    Returns:
      A share of the distance to the next place, below 0 for the first lines.
    """
    return _APART * (number - (count - 1) / 2)


def last_rounds(
    axis: Any, lines: Sequence[Line], column: str, part: float = _LAST_PART
) -> list[Drawn]:
    """Draws the mean and range of each line at the last rounds, side by side.

    Args:
      axis: A panel, whose ticks are the rounds that are shown.
      lines: What is drawn.
      column: Of the runs' metrics.csv.
      part: Share of the rounds that is drawn.

    Returns:
      What was drawn, each point at its round.
    """
    found: list[Drawn] = []
    for number, line in enumerate(lines):
        x, values = _values(line.runs, column)
        shown = x > (1 - part) * x[-1]
        x, values = x[shown], values[:, shown]
        gap = x[-1] - x[-2] if len(x) > 1 else x[-1]
        points = [
            (place, *mean_and_reach(of_runs))
            for place, of_runs in zip(x.tolist(), values.T.tolist())
        ]
        found += [(point, line.look["color"]) for point in points]
        away = gap * aside(number, len(lines))
        shown = [(place + away, *reach) for place, *reach in points]
        label = line.label.format(last=points[-1][1])
        ranges(axis, shown, label, **{**line.look, "markevery": None})
        axis.set_xlim(x[0] - 0.3 * gap, x[-1] + 0.3 * gap)
        # As many as can be read.
        axis.set_xticks(x[:: -max(1, -(-len(x) // 8))])
    return found


def table(cells: Sequence[Mapping[str, str]], title: str, width: float = 7.0) -> Any:
    """Returns a table as a picture.

    Args:
      cells: Rows of text by column.
      title: What it shows.
      width: In inches.
    """
    import matplotlib.pyplot as plt

    columns = list(dict.fromkeys(name for row in cells for name in row))
    picture, axis = plt.subplots(figsize=(width, 0.6 + 0.27 * (len(cells) + 1)))
    axis.axis("off")
    axis.set_title(title)
    if cells:
        drawn = axis.table(
            [[f" {row.get(name, '')} " for name in columns] for row in cells],
            colLabels=[f" {name} " for name in columns],
            loc="center",
            cellLoc="center",
        )
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(9)
        drawn.auto_set_column_width(range(len(columns)))
        drawn.scale(1, 1.2)
        lines = 1 + max(name.count("\n") for name in columns)
        for column in range(len(columns)):
            head = drawn[0, column]
            head.set_height(head.get_height() * (0.3 + 0.7 * lines))
    return picture


def curves_by_rate(
    pair: tuple[Any, Any], runs: Rows, measure: Measure, whole: str, compressed: str
) -> None:
    """Draws the curves of runs at each compression rate; 1 is no compression.

    Args:
      pair: Panels of all rounds and of the last, see `pairs`.
      runs: Rows of runs, with their `compression_rate`.
      measure: What is drawn.
      whole: The mechanism without compression, a key of `TITLES`.
      compressed: That with it.
    """
    lines = []
    steps = itertools.count()
    for rate in distinct(runs, "compression_rate"):
        is_whole = float(rate) == 1
        mechanism = whole if is_whole else compressed
        fold = "" if is_whole else f", {float(rate):g}-fold"
        step = 0 if is_whole else next(steps)
        own = {**look(mechanism, step), "markevery": []}
        if step:
            # Hollow, where lines of one mechanism have its marker.
            own["mfc"] = "white"
        chosen = where(runs, compression_rate=rate)
        lines.append(Line(chosen, f"{TITLES[mechanism]}{fold}: {{last:.3f}}", own))
        curves(pair[0], lines[-1], measure.column)
    last_rounds(pair[1], lines, measure.column)
    pair[1].set_title(_LAST_TITLE)
    for axis in pair:
        axis.set(xlabel="round", ylabel=measure.label)
    pair[0].legend()
