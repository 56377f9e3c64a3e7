# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the drawings of all papers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import trainings
from .rows import Rows, mean_and_range, numbers

Point = tuple[float, float, float, float]

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
}
STYLES = {
    **STYLES,
    "GM": STYLES["gaussian"],
    "MF": STYLES["mf"],
    "CSGM": STYLES["l2_csgm"],
    "SGMF": STYLES["sgmf"],
}


def panels(count: int, width: float, height: float, **options: Any) -> Any:
    """Returns a picture and its panels side by side.

    Args:
      count: Number of panels.
      width: Of a panel, in inches.
      height: Of the picture, in inches.
      **options: Of `pyplot.subplots`.

    Returns:
      The figure and a list of `count` axes.
    """
    import matplotlib.pyplot as plt

    picture, axes = plt.subplots(
        1, count, figsize=(width * count, height), squeeze=False, **options
    )
    return picture, list(axes[0])


def finish(axis: Any, *, legend: float = 8, **labels: Any) -> None:
    """Sets labels, a faint grid and a legend.

    Args:
      axis: A panel.
      legend: Its size in points.
      **labels: Of `Axes.set`.
    """
    axis.set(**labels)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=legend)


def ranges(axis: Any, points: Sequence[Point], color: str, label: str) -> None:
    """Draws a line through means with the range of each.

    Args:
      axis: A panel.
      points: Place, mean, and the distances of the range below and above.
      color: Of the line.
      label: For the legend.
    """
    places, means, down, up = zip(*points)
    axis.errorbar(
        places,
        means,
        yerr=(down, up),
        fmt="o-",
        ms=4,
        lw=1,
        capsize=2,
        color=color,
        label=label,
    )


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
    color: str,
    label: str,
    *,
    final_part: float = 1.0,
    alpha: float = 0.15,
) -> None:
    """Draws the mean of a column over the rounds, with its range over runs.

    Args:
      axis: A panel.
      runs: Rows of runs with equal rounds.
      column: Of the runs' metrics.csv.
      color: Of the line and the range.
      label: For the legend; {last} in it is the mean that they ended with.
      final_part: Share of the rounds that is drawn, the last ones.
      alpha: Of the range.
    """
    found = [trainings.curve(row, column) for row in runs]
    values = np.array([[value for _, value in one] for one in found])
    x = np.array([where for where, _ in found[0]])
    shown = x > (1 - final_part) * x[-1]
    low, high = values.min(0)[shown], values.max(0)[shown]
    text = label.format(last=values[:, -1].mean())
    axis.plot(x[shown], values.mean(0)[shown], color=color, lw=1.2, label=text)
    axis.fill_between(x[shown], low, high, color=color, alpha=alpha, lw=0)


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
    axis.set_title(title, fontsize=9)
    if cells:
        drawn = axis.table(
            [[f" {row.get(name, '')} " for name in columns] for row in cells],
            colLabels=[f" {name} " for name in columns],
            loc="center",
            cellLoc="center",
        )
        drawn.auto_set_font_size(False)
        drawn.set_fontsize(8)
        drawn.auto_set_column_width(range(len(columns)))
        drawn.scale(1, 1.2)
    return picture
