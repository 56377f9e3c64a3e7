# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Small result tables of figures, from which they can be drawn again.

    figure = index.FIGURES["csgm_fig2"]
    result_tables.write(path, figure, "medium", works, rows)
    rows = result_tables.read(path, figure, "medium", works)

Each line names its figure and scale, and that of a run in JAX its device. If the
drawing shows curves, `NAME_curves.csv` beside `NAME.csv` has the points of each row,
identified by its labels, and `NAME.csv` their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpfl import files

from ..tables import Row, Rows
from ..trainings.sweep import CURVES, KEY, Figure, Work, points_of

# The first columns of both files.
_OWNER = ("figure", "scale")
# Column of the number of a row's points.
_POINTS = "points"
# Columns of a results table about its making rather than its results.
_LEFT_OUT = (KEY, "folder", "wall_time_seconds")
# Label that need not be one of the figure's.
_SEED = "seed"


def curves_path(path: Path) -> Path:
    """The path of the curves beside a table."""
    return path.with_name(f"{path.stem}_curves{path.suffix}")


def refused(figure: Figure, scale: str, fault: str) -> ValueError:
    """The error for a table that is not of this figure.

    Args:
      figure: The figure.
      scale: Name of the scale.
      fault: Words on the table.
    """
    return ValueError(
        f"--from_table must be a table of {figure.name} at the {scale} scale, "
        f"found {fault}"
    )


def write(
    path: Path, figure: Figure, scale: str, works: Sequence[Work], rows: Rows
) -> None:
    """Writes a figure's table, and its curves if it has any.

    Args:
      path: Path of the table.
      figure: The figure.
      scale: Name of the scale.
      works: The figure's work.
      rows: Rows of the results table, each with its `folder`.
    """
    owner = dict(zip(_OWNER, (figure.name, scale)))
    own = [{**owner, **row} for row in rows]
    if figure.curves:
        labels = dict.fromkeys(name for work in works for name in work.labels)
        known = [*_OWNER, *labels]
        columns = [*known, figure.curves.place, *figure.curves.columns]
        lines = []
        for number, row in enumerate(own):
            points = points_of([row], figure.curves)
            own[number] = {**row, _POINTS: str(len(points))}
            lines += [{name: each.get(name, "") for name in columns} for each in points]
        files.write_atomically(curves_path(path), files.csv_text(columns, lines))
    own = [{n: v for n, v in row.items() if n not in _LEFT_OUT} for row in own]
    columns = list(dict.fromkeys(name for row in own for name in row))
    files.write_atomically(path, files.csv_text(columns, own))


def read(path: Path, figure: Figure, scale: str, works: Sequence[Work]) -> list[Row]:
    """Reads a figure's table as drawings ask for it; any seeds may have rows.

    Args:
      path: Path of the table.
      figure: The figure.
      scale: Name of the scale.
      works: The figure's work.

    Raises:
      ValueError: If the table, or the curves beside it, are of another figure or scale,
        are missing or damaged.
    """
    grid = [
        {name: str(value) for name, value in work.labels.items() if name != _SEED}
        for work in works
    ]
    rows = _lines(path, figure, scale)
    for row in rows:
        if not any(labels.items() <= row.items() for labels in grid):
            raise refused(figure, scale, f"a row that is not of its grid, {row}")
    if figure.curves is None:
        return rows
    curves = curves_path(path)
    count = len(_lines(curves, figure, scale))
    if count != sum(int(row.get(_POINTS, 0)) for row in rows):
        raise refused(figure, scale, f"{count} points in {curves}, not as its rows say")
    return [{**row, CURVES: str(curves)} for row in rows]


def _lines(path: Path, figure: Figure, scale: str) -> list[Row]:
    """The rows of a file without the owner's columns."""
    rows = files.read_csv(files.input_path("--from_table", path))
    owner = dict(zip(_OWNER, (figure.name, scale)))
    if not rows or any({n: row.get(n) for n in owner} != owner for row in rows):
        raise refused(figure, scale, f"no rows, or some of another, in {path}")
    return [{n: v for n, v in row.items() if n not in owner} for row in rows]
