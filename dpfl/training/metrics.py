# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Metrics of a run on disk: each round once, however often the run was killed.

The files grow by the rows of a checkpoint after it is safe, and never before, so they
never say more than what a resumed run starts from. The checkpoint holds those rows and
the files' marks before them: a resumed run rewinds to the marks and appends the rows.
So a round costs the same however many there were.
"""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from dpfl import files
from dpfl.training import events
from dpfl.training.appended import (
    BEGINNING,
    AppendedFile,
    DamagedRecordError,
    Mark,
)
from dpfl.training.rows import Row

METRICS, TIMES, EVENTS = "metrics.csv", "times.csv", "tensorboard"

# By the name of a file: length and digest.
Marks = dict[str, list[Any]]


class MetricsFiles:
    """metrics.csv, times.csv and the TensorBoard events of a run.

    `metrics.csv` is the same for equal runs; what depends on the machine is in
    `times.csv`.
    """

    def __init__(self, directory: pathlib.Path, say: Callable[[str], None] = print):
        """Initializes the files; the folder is not touched yet.

        Args:
          directory: The run's.
          say: Called with a sentence about what is not the run's.
        """
        self._directory = directory
        self._say = say
        self._files: dict[str, AppendedFile] = {}
        self._columns: dict[str, list[str]] = {}

    @property
    def marks(self) -> Marks:
        """Returns where the files end, for the next checkpoint."""
        return {name: list(file.mark) for name, file in self._files.items()}

    def rewind(self, marks: Optional[Marks] = None) -> None:
        """Takes the files back to what they were when `marks` was asked for.

        Args:
          marks: Those of a checkpoint; None for those of no rows.

        Raises:
          DamagedRecordError: If metrics.csv or times.csv was changed before its mark.
            Events that were changed are made again.
          OSError: If a file cannot be read or cut.
        """
        folder = self._directory / EVENTS
        self._files = {
            METRICS: AppendedFile(self._directory / METRICS),
            TIMES: AppendedFile(self._directory / TIMES),
            EVENTS: AppendedFile(events.choose_path(folder, self._say)),
        }
        if folder.is_dir():
            files.remove_partials(folder)
        found = {name: Mark(*mark) for name, mark in (marks or {}).items()}
        for name in (METRICS, TIMES):
            mark = found.get(name, BEGINNING)
            self._files[name].rewind(mark)
            self._columns[name] = (
                _columns(self._files[name].path) if mark.length else []
            )
        try:
            self._files[EVENTS].rewind(found.get(EVENTS, BEGINNING))
        except DamagedRecordError:
            self._say(f"{self._files[EVENTS].path} was changed and is made again")
            self._files[EVENTS].rewind(BEGINNING)
            self._append_events(
                read_rows(self._files[METRICS].path), read_rows(self._files[TIMES].path)
            )

    def append(self, rows: Sequence[Row], times: Sequence[Row]) -> None:
        """Adds the rows that a checkpoint has beyond the one before.

        Args:
          rows: A scalar for each name, None where there is none; the names are those
            of the first row of all.
          times: As many rows, of the same rounds.

        Raises:
          OSError: If a file cannot be written.
        """
        if not rows:
            return
        for name, content in ((METRICS, rows), (TIMES, times)):
            is_first = not self._columns[name]
            if is_first:
                self._columns[name] = list(content[0])
            text = _to_csv(content, self._columns[name], with_header=is_first)
            self._files[name].append(text.encode())
        self._append_events(rows, times)

    def _append_events(self, rows: Sequence[Row], times: Sequence[Row]) -> None:
        file = self._files[EVENTS]
        is_first = file.mark == BEGINNING
        file.append(events.encode(rows, times, with_version=is_first))


def read_rows(path: pathlib.Path) -> list[Row]:
    """Returns the rows of a file that `MetricsFiles` wrote, the numbers bit by bit.

    Args:
      path: Of metrics.csv or times.csv.

    Returns:
      Whole numbers as int, others as float, empty cells as None; no rows if there is
      no file.

    Raises:
      OSError: If it cannot be read.
      ValueError: If a cell is no number.
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            {name: _number(cell) for name, cell in row.items()}
            for row in csv.DictReader(file)
        ]


def _number(cell: str) -> Any:
    if not cell:
        return None
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _columns(path: pathlib.Path) -> list[str]:
    with path.open(newline="") as file:
        return next(csv.reader(file))


def _to_csv(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, with_header: bool
) -> str:
    """Returns rows as CSV; None is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if with_header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
