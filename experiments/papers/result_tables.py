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

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpfl import files

from ..tables import Row, Rows
from ..trainings.sweep import CURVES, DEVICE, KEY, Curves, Figure, Work, points_of

# The first columns of both files.
_OWNER = ("figure", "scale")
# Column of the number of a row's points.
_POINTS = "points"
# Columns of a results table about its making rather than its results.
_LEFT_OUT = (KEY, "folder", "wall_time_seconds")
# Label that need not be one of the figure's.
_SEED = "seed"
# Texts of a missing value, as `str` and `csv` write it.
_NOTHING = ("", "None")


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
    rows = []
    seen = set()
    for place, row in _lines(path, figure, scale):
        for work in works:
            labels = {n: str(v) for n, v in work.labels.items() if n != _SEED}
            if all(row.get(name) == value for name, value in labels.items()):
                break
        else:
            raise refused(figure, scale, f"a row that is not of its grid in {place}")
        own = tuple(row.get(name) for name in work.labels)
        if own in seen:
            raise refused(figure, scale, f"a row for the second time in {place}")
        seen.add(own)
        words = (*labels, *figure.words, DEVICE)
        measured = [name for name in row if name not in words]
        _check_numbers({name: row[name] for name in measured}, place, figure, scale)
        rows.append(row)
    if figure.curves is None:
        return rows
    curves = curves_path(path)
    _check_curves(curves, figure, figure.curves, scale, rows)
    return [{**row, CURVES: str(curves)} for row in rows]


def _check_curves(
    path: Path, figure: Figure, curves: Curves, scale: str, rows: Rows
) -> None:
    """Raises ValueError if the points of a row are missing or no numbers."""
    if not path.exists():
        raise ValueError(
            f"--from_table must have the curves of {figure.name} beside it, "
            f"found no file {path}"
        )
    files.input_path("--from_table", path)
    counts: dict[tuple[str, ...], int] = {}
    labels: list[str] = []
    for place, point in _lines(path, figure, scale):
        head = list(point)
        if not {curves.place, *curves.columns} <= set(head):
            raise refused(figure, scale, f"{path} without the columns of its curves")
        labels = head[: head.index(curves.place)]
        own = {name: point[name] for name in head[len(labels) :]}
        _check_numbers(own, place, figure, scale)
        key = tuple(point[name] for name in labels)
        counts[key] = counts.get(key, 0) + 1
    for row in rows:
        count = counts.get(tuple(row.get(name, "") for name in labels), 0)
        if str(count) != row.get(_POINTS):
            wanted = row.get(_POINTS, "unknown")
            text = f"{count} points of a curve in {path} where {wanted} were written"
            raise refused(figure, scale, text)


def _check_numbers(cells: Row, place: str, figure: Figure, scale: str) -> None:
    """Raises ValueError if a cell is no number, and not empty."""
    for name, cell in cells.items():
        try:
            float(0 if cell in _NOTHING else cell)
        except ValueError as error:
            fault = f"{cell!r} for {name} in {place}"
            raise refused(figure, scale, fault) from error


def _lines(path: Path, figure: Figure, scale: str) -> Iterator[tuple[str, Row]]:
    """Yields the place of each row, and the row without the owner's columns."""
    try:
        text = files.read_text(path)
        head, *lines = list(csv.reader(io.StringIO(text, newline=""))) or [[]]
    except (ValueError, csv.Error) as error:
        raise refused(figure, scale, f"{path}, which is no CSV file") from error
    if not lines:
        raise refused(figure, scale, f"no row in {path}")
    if tuple(head[: len(_OWNER)]) != _OWNER:
        raise refused(figure, scale, f"{path} without the columns figure and scale")
    for number, cells in enumerate(lines, 2):
        is_last = number == len(lines) + 1
        place = f"line {number} of {path}"
        if len(cells) != len(head) or (is_last and not text.endswith("\n")):
            raise refused(figure, scale, f"{place} cut off")
        owner = tuple(cells[: len(_OWNER)])
        if owner != (figure.name, scale):
            fault = f"one of {owner[0]} at the {owner[1]} scale in {path}"
            raise refused(figure, scale, fault)
        yield place, dict(zip(head[len(_OWNER) :], cells[len(_OWNER) :]))
