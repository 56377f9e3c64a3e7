# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Values as texts: JSON, whose digest is the same for equal values, and CSV.

texts.digest({"epsilon": 8.0})
texts.csv_text(["round", "epsilon"], rows)
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def csv_text(
    columns: Iterable[str],
    rows: Iterable[Mapping[str, Any]],
    end: str = "\n",
    with_head: bool = True,
) -> str:
    """Rows as CSV; None and missing values become empty cells.

    Args:
      columns: Names of the columns, in their order.
      rows: The cells of each row by column.
      end: The line terminator.
      with_head: Whether the first line holds the names of the columns.

    Raises:
      ValueError: If a row has a key that is no column.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), lineterminator=end)
    if with_head:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def plain(value: Any) -> Any:
    """A value as JSON holds it: numpy scalars as numbers, infinities as strings."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, Sequence):
        return [plain(part) for part in value]
    if isinstance(value, (int, np.integer)):
        return int(value)
    number = float(value)
    return number if np.isfinite(number) else str(number)


def digest(content: Mapping[str, Any]) -> str:
    """The SHA-256 of the JSON of a mapping, in hex, whatever its order.

    Numbers are written with all of their digits, so that any two different ones differ.
    """
    text = json.dumps(plain(content), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
