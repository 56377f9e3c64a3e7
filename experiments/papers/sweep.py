# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a reproducible figure is: a grid of work, a results table and a drawing.

Each piece of work adds one row to `results.csv`. The row is keyed by everything that
defines the work, so that a second call does only what is missing, and a row made with
other settings is never mistaken for a new one.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import tqdm

from dpfl import files

SCALES = ("small", "medium", "paper")
KEY = "key"


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the command line says of a figure.

    Attributes:
      scale: One of `SCALES`.
      run_flags: Flags of `dpfl-train` for every run whose task has them.
    """

    scale: str
    run_flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Work:
    """One row of a results table.

    Attributes:
      labels: What tells this row from the others in the drawing.
      settings: Everything else that defines the work; part of the key.
      compute: Called with the folder that the work may use; returns the measured
        columns. None for a `trainings.Training`, which a crew does.
    """

    labels: Mapping[str, Any]
    settings: Mapping[str, Any]
    compute: Optional[Callable[[Path], Mapping[str, Any]]]

    @property
    def key(self) -> str:
        """Returns the row's key: labels and settings as JSON."""
        return json.dumps([dict(self.labels), dict(self.settings)], sort_keys=True)

    @property
    def folder(self) -> str:
        """Returns a readable name for the work's folder, from the labels."""
        return "_".join(f"{k}={v}" for k, v in self.labels.items()).replace("/", "-")


Grid = Callable[[Setting], Sequence[Work]]


@dataclasses.dataclass(frozen=True)
class Curves:
    """What a drawing shows of each piece of work point by point.

    Attributes:
      columns: Those that are shown.
      file: Has them, in the folder of the work.
      place: Column that numbers the points; they are counted from 1 if the file has
        none.
    """

    columns: tuple[str, ...]
    file: str = "metrics.csv"
    place: str = "round"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of a paper, or one of ours.

    Attributes:
      name: What `--figure` calls it.
      source: Paper and number.
      grid: From the setting to the work it takes.
      plot: What is drawn of them, a `plotting.Plot`.
      sweep: Name of the results table, which figures may share; None is `name`.
      scales: Those of `SCALES` that it has.
      curves: What the drawing shows point by point, if anything.
      words: Measured columns that have words beside numbers.
      needs_folders: Why no table is enough to draw it, if none is.
    """

    name: str
    source: str
    grid: Grid
    plot: Any
    sweep: Optional[str] = None
    scales: tuple[str, ...] = ("small", "paper")
    curves: Optional[Curves] = None
    words: tuple[str, ...] = ()
    needs_folders: str = ""

    @property
    def folder(self) -> str:
        """Returns where its results are, without the scale."""
        return self.sweep or self.name


class ResultsTable:
    """A CSV file with one row for each piece of work, in the order it was done."""

    def __init__(self, path: Path):
        """Opens the table at `path`, which need not exist yet."""
        self._path = path
        self._rows: dict[str, dict[str, str]] = {}
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    # A row cut off by a kill lacks its last columns.
                    if None not in row and None not in row.values():
                        self._rows[row[KEY]] = row

    def __contains__(self, work: Work) -> bool:
        return work.key in self._rows

    def row(self, work: Work) -> dict[str, str]:
        """Returns the row of work that is done."""
        labels = {name: str(value) for name, value in work.labels.items()}
        return {**self._rows[work.key], **labels, "folder": work.folder}

    def add(self, work: Work, measured: Mapping[str, Any]) -> None:
        """Adds a row; the file is replaced at once, never left half written."""
        row = {**work.labels, KEY: work.key}
        for name, value in measured.items():
            # The epsilon that was asked for and the one that was spent, say.
            row[f"measured_{name}" if name in work.labels else name] = value
        self._rows[work.key] = {k: str(v) for k, v in row.items()}
        columns: list[str] = []
        for done in self._rows.values():
            columns += [name for name in done if name not in columns]
        columns.remove(KEY)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [*columns, KEY], restval="")
        writer.writeheader()
        writer.writerows(self._rows.values())
        files.write_atomically(self._path, text.getvalue())


def do_alone(works: Sequence[Work], table: ResultsTable, folder: Path) -> None:
    """Does, one by one, the work that the table lacks; a row is added when it is done.

    Args:
      works: They work in this process, and may measure time.
      table: Where rows are added.
      folder: Each piece of work has a folder in it.
    """
    missing = [work for work in works if work not in table]
    with tqdm.tqdm(total=len(missing), unit="row", disable=not missing) as progress:
        for work in missing:
            if work.compute is not None:
                table.add(work, work.compute(folder / work.folder))
            progress.set_postfix_str(work.folder[-60:])
            progress.update()
