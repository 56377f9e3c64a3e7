# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rows of results tables, as drawings ask for them, and columns of numbers in files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfl import covered, files

# What pages and drawings call columns.
HEADS = {
    "epsilon": "ε",
    "compression_rate": "compression",
    "cohort_size": "clients",
    "noise_multiplier": "z",
    "measured_noise_multiplier": "z",
    "budget": "ε",
    "uplink_bits_per_parameter": "bits up",
    "downlink_bits_per_parameter": "bits down",
    "final_accuracy": "test accuracy",
    "eval_accuracy": "test accuracy",
    "final_loss": "test loss",
    "eval_loss": "test loss",
    "clip_norm": "clip",
    "server_lr": "rate",
}
Row = Mapping[str, str]
Rows = Sequence[Row]


def where(rows: Rows, **labels: Any) -> list[Row]:
    """The rows with these labels."""
    return [r for r in rows if all(r[k] == str(v) for k, v in labels.items())]


def distinct(rows: Rows, name: str) -> list[str]:
    """The values of a column, in the order in which they appear."""
    return list(dict.fromkeys(row[name] for row in rows))


def numbers(rows: Iterable[Row], column: str) -> list[float]:
    """A column as numbers."""
    return [float(row[column]) for row in rows]


def mean_and_range(rows: Rows, column: str) -> tuple[float, float, float]:
    """The mean of a column, and how far its values reach down and up from it."""
    found = numbers(rows, column)
    mean = sum(found) / len(found)
    # Of equal values the mean may be rounded to beyond them.
    return mean, max(0.0, mean - min(found)), max(0.0, max(found) - mean)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a head."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_run(path: Path) -> list[dict[str, str]]:
    """The rows of a run's metrics.csv or times.csv, no column marked exact."""
    return [covered.plain_names(row) for row in read_csv(path)]


def csv_text(
    columns: Iterable[str], rows: Iterable[Mapping[str, Any]], end: str = "\r\n"
) -> str:
    """Rows as CSV with a head; what a row lacks is an empty cell."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), "", "ignore", lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_columns(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Writes columns of numbers or words as a CSV file, whose folder is made."""
    files.public_folder(path.parent)
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    files.write_atomically(path, csv_text(columns, rows))
