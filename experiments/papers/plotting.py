# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the drawings of all papers share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import trainings
from .rows import Rows, distinct, mean_and_range, numbers, where

Point = tuple[float, float, float, float]
# A key of `STYLES`, and what a legend calls the mechanism.
Named = tuple[str, str]

# Color and marker of a mechanism, by its name in a grid and by what the papers call it.
# Color-blind safe (Okabe and Ito); what is akin has the same color, and the marker
# tells it apart in grey too.
STYLES: Mapping[str, tuple[str, str]] = {
    "gaussian": ("#000000", "*"),
    "mf": ("#7f7f7f", "P"),
    "ddg": ("#0072b2", "o"),
    "sketched_ddg": ("#56b4e9", "s"),
    "l2_csgm": ("#d55e00", "^"),
    "linf_csgm": ("#e69f00", "v"),
    "sgmf": ("#cc79a7", "D"),
    "dome": ("#009e73", "x"),
    "dome_whole": ("#009e73", "X"),
    "dome_few_bits": ("#009e73", "*"),
    "sparse_recovery": ("#8c564b", "d"),
    "project_and_perturb": ("#332288", "p"),
    "honaker-online": ("#8c564b", "v"),
    "honaker-full": ("#b8a000", "^"),
    "optimal": ("#5d3a9b", "o"),
}
STYLES = {
    **STYLES,
    "GM": STYLES["gaussian"],
    "MF": STYLES["mf"],
    "CSGM": STYLES["l2_csgm"],
    "SGMF": STYLES["sgmf"],
    "distributed_discrete_gaussian": STYLES["ddg"],
    "optimal-prefix-sum": STYLES["mf"],
}
# Lines of one mechanism, such as one for each compression rate.
_DASHES: Sequence[Any] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
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


def finish(axis: Any, *, legend: float = 9, **labels: Any) -> None:
    """Sets labels and a legend.

    Args:
      axis: A panel.
      legend: Its size in points.
      **labels: Of `Axes.set`.
    """
    axis.set(**labels)
    if axis.get_xscale() == "log":
        plain_numbers(axis)
    axis.legend(fontsize=legend)


def plain_numbers(axis: Any) -> None:
    """Writes the numbers of a logarithmic axis without powers, where they are few."""
    from matplotlib import ticker

    low, high = axis.get_xlim()
    if low >= 1e-3 and high <= 1e4:
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


def measured(axis: Any, x: Sequence[float], rows: Rows, **options: Any) -> None:
    """Draws squared errors that were measured, with two standard errors each way."""
    axis.errorbar(
        x,
        numbers(rows, "squared_error"),
        yerr=[2 * error for error in numbers(rows, "standard_error")],
        **options,
    )


def curves(
    axis: Any,
    runs: Rows,
    column: str,
    label: str,
    look: Mapping[str, Any],
    *,
    final_part: float = 1.0,
    alpha: float = 0.15,
) -> Point:
    """Draws the mean of a column over the rounds, with its range over runs.

    Args:
      axis: A panel.
      runs: Rows of runs with equal rounds.
      column: Of the runs' metrics.csv.
      label: For the legend; {last} in it is the mean that they ended with.
      look: See the function of that name.
      final_part: Share of the rounds that is drawn, the last ones.
      alpha: Of the range.

    Returns:
      The last round, as a point of `ranges`.
    """
    found = [trainings.curve(row, column) for row in runs]
    values = np.array([[value for _, value in one] for one in found])
    x = np.array([place for place, _ in found[0]])
    shown = x > (1 - final_part) * x[-1]
    low, high = values.min(0)[shown], values.max(0)[shown]
    mean = values[:, -1].mean()
    text = label.format(last=mean)
    axis.plot(x[shown], values.mean(0)[shown], label=text, **look)
    axis.fill_between(x[shown], low, high, color=look["color"], alpha=alpha, lw=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    return float(x[-1]), mean, mean - low[-1], high[-1] - mean


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
    return picture


def curves_by_rate(
    axis: Any, runs: Rows, column: str, whole: Named, compressed: Named
) -> None:
    """Draws the curves of runs at each compression rate; 1 is no compression.

    Args:
      axis: A panel.
      runs: Rows of runs, with their `compression_rate`.
      column: As for `curves`.
      whole: Of the mechanism without compression.
      compressed: Of that with it.
    """
    rates = distinct(runs, "compression_rate")
    steps = itertools.count()
    for number, rate in enumerate(rates, 1):
        is_whole = float(rate) == 1
        mechanism, name = whole if is_whole else compressed
        fold = "" if is_whole else f", {float(rate):g}-fold"
        step = 0 if is_whole else next(steps)
        own = {**look(mechanism, step), "markevery": []}
        if step:
            # Hollow, where lines of one mechanism have its marker.
            own["mfc"] = "white"
        chosen = where(runs, compression_rate=rate)
        last = curves(axis, chosen, column, f"{name}{fold}: {{last:.3f}}", own)
        _end(axis, last, number, own)


def _end(axis: Any, last: Point, number: int, look: Mapping[str, Any]) -> None:
    """Draws where runs ended, with the range, right of the last round.

    Args:
      axis: A panel.
      last: From `curves`.
      number: Which of the panel's lines it is, from 1: ends stand side by side.
      look: Of the line.
    """
    place, mean, down, up = last
    beside = place * (1 + 0.045 * number)
    # Small, so that a short range is seen behind it.
    own = {**look, "ls": "", "markevery": None, "ms": 0.6 * look["ms"]}
    # The line itself is in the legend.
    ranges(axis, [(beside, mean, down, up)], "_", **own)
