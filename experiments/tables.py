# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rows as a table, as CSV or as JSON, on the terminal or in a file."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from dpfl import files

Row = Mapping[str, Any]


def text(rows: Sequence[Row], columns: Mapping[str, str], digits: int = 5) -> str:
    """A table with one line a row, for people; None, or nothing, is shown as "-".

    Args:
      rows: Values by column.
      columns: Heads by column, in the order in which they are shown.
      digits: Significant digits of a number.
    """

    def cell(value: Any) -> str:
        if isinstance(value, Mapping):
            return " ".join(f"{k}={v}" for k, v in value.items()) or "-"
        if isinstance(value, float):
            return f"{value:.{digits}g}"
        return "-" if value is None else str(value)

    cells = [list(columns.values())]
    cells += [[cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join(
        "  ".join(word.rjust(width) for word, width in zip(line, widths))
        for line in cells
    )


def as_json(rows: Sequence[Row]) -> str:
    """Rows as JSON, which has no infinity: null stands for it."""

    def finite(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    clean = [{key: finite(value) for key, value in row.items()} for row in rows]
    return json.dumps(clean, indent=2, allow_nan=False)


def as_csv(rows: Sequence[Row], columns: Iterable[str]) -> str:
    """Rows as CSV with a head; None, and what is missing, is an empty cell."""
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return content.getvalue()


def show(
    rows: Sequence[Row],
    columns: Mapping[str, str],
    path: Optional[str],
    form: str = "text",
    digits: int = 5,
) -> None:
    """Writes rows as text, json or csv to a file, or to stdout if there is none."""
    if form == "json":
        content = as_json(rows) + "\n"
    elif form == "csv":
        content = as_csv(rows, columns)
    else:
        content = text(rows, columns, digits) + "\n"
    if path is None:
        sys.stdout.write(content)
    else:
        files.write_atomically(path, content)
