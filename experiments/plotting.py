# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The common drawing of all commands and figures: panels of lines of means.

    plot = Plot("rounds", "method", y="loss")
    plotting.write(plot, rows, "Losses of prefix sums", Path("losses.png"))

A line is drawn for each method, over the numbers of rounds, with ranges over seeds.
Matplotlib is imported at the first drawing.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from dpfl import accounting, files, tasks
from dpfl.planning import remarks

from . import panels
from .panels import Plot
from .tables import Rows, distinct
from .trainings import sweep

# Width in inches of a picture that is shown at 800 pixels.
_WIDTH, _HEIGHT = 10.0, 3.4
_LEGEND_LINE = 0.24
# Letters per inch.
_LETTERS = 12
_STYLE: Mapping[str, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 10),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 9),
    **{"figure.titlesize": 10, "axes.grid": True, "grid.alpha": 0.3},
    **{"axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False},
    **{"lines.linewidth": 1.4, "lines.markersize": 5, "errorbar.capsize": 2},
    "legend.framealpha": 0.85,
}


def print_remark(rows: Rows) -> None:
    """Prints how many rows have an epsilon that protects nobody, if any."""
    spent = [row.get("measured_epsilon") or row.get("epsilon") or "0" for row in rows]
    large = [text for text in spent if float(text) > accounting.LARGE_EPSILON]
    if large:
        print(
            f"note that an epsilon above {accounting.LARGE_EPSILON:g} protects nobody, "
            f"found in {len(large)} of {len(rows)} rows; the train.log of a run names "
            f"the noise_multiplier that brings it to {remarks.USUAL_EPSILON:g}"
        )


def save(figure: sweep.Figure, rows: Rows, folder: Path) -> Path:
    """Draws rows to FOLDER/FIGURE.png; returns the path.

    Args:
      figure: The figure.
      rows: Rows of its table.
      folder: Folder of the picture.
    """
    path = folder / f"{figure.name}.png"
    write(figure.plot, rows, figure.source, path, figure.curves)
    return path


def write(
    plot: Plot,
    rows: Rows,
    title: str,
    path: files.PathLike,
    curves: Optional[sweep.Curves] = None,
) -> None:
    """Writes the drawing of rows to a file, whose folder is made; see `draw`.

    Args:
      plot: The drawing.
      rows: The rows.
      title: Title above all panels.
      path: Path of the file.
      curves: As for `draw`.
    """
    import matplotlib

    matplotlib.use("Agg")
    files.public_folder(Path(path).parent)
    write_picture(draw(plot, rows, title, curves), path, dpi=130)


def write_picture(picture: Any, path: files.PathLike, **options: Any) -> None:
    """Writes a `matplotlib.figure.Figure` atomically; the ending names the format."""
    buffer = io.BytesIO()
    kind = Path(path).suffix.lstrip(".") or "png"
    picture.savefig(buffer, format=kind, **options)
    files.write_atomically(path, buffer.getvalue())


def draw(
    plot: Plot, rows: Rows, title: str, curves: Optional[sweep.Curves] = None
) -> Any:
    """Draws the rows of a table as a matplotlib figure.

    Args:
      plot: The drawing.
      rows: Rows of a figure, each with the folder or the file of its curves.
      title: Title above all panels.
      curves: Curves whose points are drawn; None to draw the rows themselves.
    """
    import matplotlib
    from matplotlib import pyplot

    rows = plot.rows(rows if curves is None else sweep.points_of(rows, curves))
    if not rows:
        return pyplot.figure(figsize=(_WIDTH, _HEIGHT))
    parts = [
        (key, own, column)
        for key, own in panels.grouped(rows, plot.panels.split())
        for column in plot.y.split() or [_metric_column(own)]
    ]
    with matplotlib.rc_context(dict(_STYLE)):
        across = 2 if len(parts) in (2, 4) else min(3, len(parts))
        down = -(-len(parts) // across)
        width = _WIDTH if across > 1 else 0.72 * _WIDTH
        names = distinct(rows, plot.x) if panels.is_named(plot, rows) else []
        height = max(_HEIGHT, 0.26 * len(names) + 1.4)
        size = (width, height * down + 0.4)
        picture, axes = pyplot.subplots(
            down, across, figsize=size, squeeze=False, layout="constrained"
        )
        for axis in list(axes.flat)[len(parts) :]:
            axis.remove()
        counts: set[int] = set()
        for axis, (key, own, column) in zip(axes.flat, parts):
            counts |= panels.draw(axis, plot, own, column)
            axis.set_title(panels.words_of(plot, plot.panels, key))
        named = {
            label: handle
            for axis in picture.axes
            for handle, label in zip(*axis.get_legend_handles_labels())
        }
        if named:
            columns = int(width * _LETTERS / (max(map(len, named)) + 8))
            columns = max(1, min(5, columns))
            lines = -(-len(named) // columns)
            picture.set_figheight(picture.get_figheight() + _LEGEND_LINE * lines)
            place = {"loc": "outside lower center", "ncol": columns}
            picture.legend(list(named.values()), list(named), **place)
        if "seed" in rows[0]:
            count = " or ".join(map(str, sorted(counts)))
            reach = "95% interval" if plot.interval else "range"
            seeds = f"mean and {reach} of {count} seeds"
            if counts == {1}:
                seeds = "one seed"
            if plot.baseline:
                seeds = f"{count} seeds, 95% intervals"
            title = f"{title}; {seeds}"
        picture.suptitle(textwrap.fill(title, int(width * _LETTERS)))
    return picture


def _metric_column(rows: Rows) -> str:
    """The column of the metric of the rows' task: at a point, or at the end."""
    metric = tasks.task_entry(rows[0].get("task") or rows[0]["problem"]).metric
    return metric.column if metric.column in rows[0] else metric.final_column
