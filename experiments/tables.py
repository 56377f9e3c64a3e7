# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tables of rows: selection, and output as text, CSV or JSON.

    print(tables.text(rows, {"mechanism": "mechanism", "epsilon": "epsilon"}, digits=4))
    chosen = tables.where(rows, seed=1)

`show` writes a table to a file or to stdout, also as JSON or CSV.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from dpfl import files, privacy_coverage

# Columns of a run's bits.
BITS = ("uplink_bits_per_parameter", "downlink_bits_per_parameter")
Row = Mapping[str, Any]
Rows = Sequence[Row]


def columns(table: str) -> dict[str, str]:
    """The heads of columns of one of the tables in `columns.csv`, in their order."""
    every = files.read_csv(Path(__file__).with_name("columns.csv"))
    return {row["column"]: row["head"] for row in every if row["table"] == table}


# Names of columns on pages and drawings.
HEADS = columns("pages")


def head(column: str) -> str:
    """The name of a column on pages and drawings; of a metric, that on the test set."""
    words = column.replace("_", " ")
    for prefix in ("eval ", "final "):
        if words.startswith(prefix):
            words = f"test {words[len(prefix) :]}"
    return HEADS.get(column, words)


def value(text: str) -> Any:
    """The value that a text is as JSON, or else the text."""
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def options(text: str) -> dict[str, Any]:
    """The values of words NAME=VALUE, as `value` has each."""
    return {name: value(own) for name, own in (w.split("=") for w in text.split())}


def number(text: str) -> float:
    """The number that a text is; NaN for any other."""
    with contextlib.suppress(ValueError):
        return float(text)
    return math.nan


def where(rows: Rows, **labels: Any) -> list[Row]:
    """The rows with these labels."""
    return [r for r in rows if all(r[k] == str(v) for k, v in labels.items())]


def over(rows: Rows, column: str, by: str, name: str, **base: Any) -> list[Row]:
    """The rows with a column over that of a row of the same kind, where there is one.

    Args:
      rows: Rows of a table.
      column: Column of the numbers.
      by: Column of the kind.
      name: Column of the ratios.
      **base: Labels of the rows by which others are divided.
    """
    bases = {row[by]: float(row[column]) for row in where(rows, **base)}
    return [
        {**row, name: str(float(row[column]) / bases[row[by]])}
        for row in rows
        if row[by] in bases
    ]


def has(row: Row, labels: Mapping[str, str]) -> bool:
    """Whether a row has labels, each a value or several separated by |."""
    return all(row[name] in wanted.split("|") for name, wanted in labels.items())


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    every = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in every)


def distinct(rows: Rows, name: str) -> list[str]:
    """The distinct values of a column, in their order."""
    return list(dict.fromkeys(row[name] for row in rows))


def numbers(rows: Iterable[Row], column: str) -> list[float]:
    """A column as numbers."""
    return [float(row[column]) for row in rows]


def mean_and_range(rows: Rows, column: str) -> tuple[float, float, float]:
    """The mean of a column, and the distances to its least and greatest values."""
    values = numbers(rows, column)
    mean = sum(values) / len(values)
    # The mean of equal values may be rounded to beyond them.
    return mean, max(0.0, mean - min(values)), max(0.0, max(values) - mean)


def read_run(path: Path, *, cut: bool = False) -> list[dict[str, str]]:
    """The rows of a run's metrics.csv or times.csv, without marks of exact columns.

    Args:
      path: Path of the file.
      cut: As for `files.read_csv`.
    """
    return [privacy_coverage.plain_names(row) for row in files.read_csv(path, cut=cut)]


def write_columns(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Writes columns of numbers or words to a CSV file, whose folder is made."""
    files.public_folder(path.parent)
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    files.write_atomically(path, files.csv_text(columns, rows, end="\r\n"))


def text(rows: Rows, columns: Mapping[str, str], digits: int = 5) -> str:
    """A text table with one line a row; None, or nothing, is shown as "-".

    Args:
      rows: Values by column.
      columns: Heads by column, in the order in which they are shown.
      digits: Significant digits of a number.
    """
    cells = [list(columns.values())]
    cells += [[cell(row.get(column), digits) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join(
        "  ".join(word.rjust(width) for word, width in zip(line, widths))
        for line in cells
    )


def cell(value: Any, digits: int = 5) -> str:
    """A value in a text table."""
    if isinstance(value, Mapping):
        return " ".join(f"{k}={v}" for k, v in value.items()) or "-"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return "-" if value is None else str(value)


def as_json(rows: Rows) -> str:
    """Rows as JSON, in which null replaces infinity."""

    def finite(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: finite(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [finite(part) for part in value]
        is_infinite = isinstance(value, float) and not math.isfinite(value)
        return None if is_infinite else value

    return json.dumps(finite(rows), indent=2, allow_nan=False)


def show(
    rows: Rows,
    columns: Mapping[str, str],
    path: Optional[str],
    form: str = "text",
    digits: int = 5,
) -> None:
    """Writes rows as text, JSON or CSV to a file, or to stdout.

    Args:
      rows: Values by column.
      columns: Heads by column, in their order.
      path: Path of the file; None for stdout.
      form: "text", "json" or "csv".
      digits: Significant digits of a number in text.
    """
    if form == "json":
        content = as_json(rows) + "\n"
    elif form == "csv":
        content = files.csv_text(columns, rows)
    else:
        content = text(rows, columns, digits) + "\n"
    write(content, path)


def write(content: str, path: Optional[str]) -> None:
    """Writes text to a file, or to stdout if there is none."""
    if path is None:
        sys.stdout.write(content)
    else:
        files.write_atomically(path, content)
