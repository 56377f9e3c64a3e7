# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What is kept of a figure: a small table, from which it can be drawn again.

Where the drawing shows curves over the rounds, `NAME_curves.csv` beside `NAME.csv` has
the points of each run, known by its labels.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dpfl import files

from .rows import Row, Rows, read_csv
from .sweep import KEY, Figure, Work
from .trainings import CURVES, METRICS, ROUND

# Columns of a results table that say how it was made, and not what came of it.
_LEFT_OUT = (KEY, "folder", "wall_time_seconds")


def curves_path(path: Path) -> Path:
    """Returns where the curves beside a table are."""
    return path.with_name(f"{path.stem}_curves{path.suffix}")


def write(path: Path, figure: Figure, works: Sequence[Work], rows: Rows) -> None:
    """Writes a table, and its curves if it has any.

    Args:
      path: Of the table.
      figure: What is drawn.
      works: The work behind each of the rows.
      rows: Of the results table, each with its `folder`.
    """
    found = list(dict.fromkeys(name for row in rows for name in row))
    _write(path, rows, [name for name in found if name not in _LEFT_OUT])
    if figure.curves:
        labels = list(dict.fromkeys(name for work in works for name in work.labels))
        points = [point for row in rows for point in _points(row, labels, figure)]
        _write(curves_path(path), points, [*labels, ROUND, *figure.curves])


def read(path: Path) -> list[Row]:
    """Returns the rows of a table as drawings ask for them."""
    curves = curves_path(path)
    beside = {CURVES: str(curves)} if curves.exists() else {}
    return [{**row, **beside} for row in read_csv(path)]


def _points(row: Row, labels: Sequence[str], figure: Figure) -> Iterator[Row]:
    """Yields the rounds of a run in which something that is drawn was measured."""
    own = {name: row.get(name, "") for name in labels}
    for each in read_csv(Path(row["folder"]) / METRICS):
        values = {name: each.get(name, "") for name in figure.curves}
        if any(values.values()):
            yield {**own, ROUND: each[ROUND], **values}


def _write(
    path: Path, rows: Sequence[Mapping[str, str]], columns: Sequence[str]
) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(
        text, columns, restval="", extrasaction="ignore", lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    files.write_atomically(path, text.getvalue())
