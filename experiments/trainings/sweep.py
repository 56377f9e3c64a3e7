# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Reproducible figures: a grid of work, a results table and a drawing.

    work = sweep.training_work({"seed": 1}, {"task": "digits", "seed": 1})
    table = sweep.ResultsTable(folder / "results.csv")
    if work not in table:
        table.add(work, sweep.measured(folder / work.folder))

Each piece of work adds one row to `results.csv`. The row's key is everything that
defines the work, so that a second call does only what is missing, and never reuses a
row of other settings. Most work is a run of `dpfl-train`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from dpfl import checks, files, privacy_coverage
from dpfl.tasks import registry
from dpfl.training import engine

from .. import flag_files
from ..tables import Row, Rows, read_run

SCALES = ("small", "medium", "paper")
KEY = "key"
# Columns of a row from a run's summary.
SUMMARY_COLUMNS = (
    *("epsilon", "delta", "noise_multiplier"),
    *("uplink_bits_per_client", "uplink_bits_per_parameter"),
    *("downlink_bits_per_parameter", "wall_time_seconds"),
)
# Column of a row without a folder: a file with the curves of all rows.
CURVES = "curves"
# Column of the device in rows of runs in JAX, and words on those in TFF.
DEVICE, _TFF = "device", "TFF's processors"
# Flags on which no row depends.
HARMLESS = ("data_dir", "download", "round_deadline", "concurrency")


@dataclasses.dataclass(frozen=True)
class Work:
    """One row of a results table.

    Attributes:
      labels: Labels that identify the row in the drawing.
      settings: Everything else that defines the work; part of the key.
      compute: Function from a folder that the work may use to the measured columns;
        None for a `Training`.
    """

    labels: Mapping[str, Any]
    settings: Mapping[str, Any]
    compute: Optional[Callable[[Path], Mapping[str, Any]]] = None

    @functools.cached_property
    def key(self) -> str:
        """The row's key: labels and settings as JSON."""
        return json.dumps([dict(self.labels), dict(self.settings)], sort_keys=True)

    @property
    def folder(self) -> str:
        """A readable name for the work's folder, made of the labels."""
        return "_".join(f"{k}={v}" for k, v in self.labels.items()).replace("/", "-")


@dataclasses.dataclass(frozen=True)
class Training(Work):
    """A run of `dpfl-train` by a `trainers.Trainer`.

    Attributes:
      flags: The run's flags without --output_dir; a flag file by its name in
        `flag_files`.
    """

    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def all_flags(self) -> Mapping[str, Any]:
        """The flags, including those of the flag file."""
        return _all_flags(self.flags)

    @property
    def has_groups(self) -> bool:
        """Whether groups of clients run concurrently, as in TFF."""
        return engine.of(self.all_flags.get("engine", "auto")) == "tff"

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return int(self.all_flags["rounds"])

    @property
    def all_but_seed(self) -> str:
        """The settings shared by runs that differ only in their seed."""
        flags = {name: str(v) for name, v in self.flags.items() if name != "seed"}
        return json.dumps(flags, sort_keys=True)

    def arguments(self, folder: Path, **more: Any) -> list[str]:
        """The run's command line; `more` flags are added unless the run has them."""
        given = {**more, **self.flags}
        if "flagfile" in given:
            given["flagfile"] = flag_files.path(given["flagfile"])
        words = [f"--{name}={value}" for name, value in given.items()]
        return [f"--output_dir={folder}", *words]


def measured(folder: Path) -> dict[str, Any]:
    """The final metrics and the `SUMMARY_COLUMNS` of a finished run; JAX's device."""
    summary = privacy_coverage.plain_keys(files.read_json(folder / "summary.json"))
    names = [n for n in summary if n.startswith("final_") and n != "final_metrics"]
    own = {name: summary[name] for name in (*names, *SUMMARY_COLUMNS)}
    of = summary.get("engine", {})
    return {**own, DEVICE: of["device"]} if of.get("engine") == "jax" else own


def training_work(
    labels: Mapping[str, Any],
    flags: Mapping[str, Any],
    more: Mapping[str, Any] = {},
) -> Training:
    """Makes a run of `dpfl-train`.

    Args:
      labels: Labels of the row.
      flags: The run's flags without --output_dir.
      more: More flags, except options of other tasks.
    """
    others = options_of_others(_all_flags(flags).get("task"))
    flags = {**flags, **{name: v for name, v in more.items() if name not in others}}
    # The key includes the flags in the flag file, and no path of this machine.
    settings = {n: str(value) for n, value in flags.items() if n not in HARMLESS}
    if "flagfile" in settings:
        settings["flagfile"] = " ".join(flag_files.lines(settings["flagfile"]))
    return Training(labels, settings, flags=flags)


def options_of_others(task: Optional[str]) -> set[str]:
    """Options of other tasks that a task does not have; of all tasks for None."""
    every = {o.name for t in registry.task_names() for o in registry.task_options(t)}
    own = registry.task_options(task) if task is not None else ()
    return every - {option.name for option in own}


def _all_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    name = flags.get("flagfile")
    return {**(flag_files.values(name) if name else {}), **flags}


# The word that sets an option to None.
NONE = "none"


def completed(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Flags with the task's rounds and clients, from which a run's cost is known.

    Raises:
      ValueError: If the task is unknown, or refuses its options or their data.
    """
    if "rounds" in flags and "cohort_size" in flags:
        return flags
    known = {option.name for option in registry.task_options(flags["task"])}
    options = tuple((n, str(v)) for n, v in flags.items() if n in known)
    return {**_defaults(flags["task"], options), **flags}


@functools.cache
def _defaults(task: str, options: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The rounds and the clients of a task for which neither is given."""
    hints = typing.get_type_hints(registry.task_entry(task).config_class)
    chosen = {name: _typed(hints[name], text) for name, text in options}
    own = registry.load_config(task, registry.make_config(task, **chosen)).defaults
    return {"rounds": str(own.rounds), "cohort_size": str(own.cohort_size)}


def _typed(hint: Any, text: str) -> Any:
    """The value of an option; the text itself if it is none, which is then refused."""
    # Optional[int] has the arguments int and NoneType, and int has none.
    kind, *none = typing.get_args(hint) or [hint]
    if none and text == NONE:
        return None
    if kind is bool:
        return text.lower() in ("true", "t", "1")
    with contextlib.suppress(ValueError):
        return kind(text)
    return text


# Labels and flags of a run, or of a group of runs.
Cell = tuple[Mapping[str, Any], Mapping[str, Any]]


def axis(name: str, values: Iterable[Any]) -> list[Cell]:
    """A cell for each value of a label that is a flag."""
    return [({name: value}, {name: value}) for value in values]


def cross(*axes: Iterable[Cell]) -> list[Cell]:
    """Every choice of a cell from each axis; the last axis changes first."""
    crossed: list[Cell] = []
    for cells in itertools.product(*axes):
        labels: dict[str, Any] = {}
        flags: dict[str, Any] = {}
        for more, others in cells:
            labels |= more
            flags |= others
        crossed.append((labels, flags))
    return crossed


@dataclasses.dataclass(frozen=True)
class Curves:
    """The curves of a drawing, with several points for each piece of work.

    Attributes:
      columns: Columns that are shown.
      file: File of the columns in the work's folder.
      place: Column that numbers the points; they are counted from 1 if the file has
        none.
    """

    columns: tuple[str, ...]
    file: str = "metrics.csv"
    place: str = "round"


# Columns of evaluations, which not every round has.
EVALUATED = Curves(("eval_accuracy", "eval_loss"))


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of a paper or of dpfl's own experiments.

    Attributes:
      name: The value of `--figure`.
      source: Paper and number.
      cells: Function from the scale to the figure's work; a `Cell` is a run of
        `dpfl-train`.
      plot: The drawing, a `panels.Plot`.
      sweep: Name of the results table, which figures may share; None is `name`.
      scales: Scales of the figure, from `SCALES`.
      curves: Curves that the drawing shows; None if it shows rows.
      words: Measured columns that may have words besides numbers.
      needs_folders: The reason if a table does not suffice to draw it.
    """

    name: str
    source: str
    cells: Callable[[str], Iterable[Union[Work, Cell]]]
    plot: Any
    sweep: Optional[str] = None
    scales: tuple[str, ...] = ("small", "paper")
    curves: Optional[Curves] = None
    words: tuple[str, ...] = ()
    needs_folders: str = ""

    @property
    def folder(self) -> str:
        """The name of the folder of the results, without the scale."""
        return self.sweep or self.name

    def grid(
        self, scale: str, more: Mapping[str, Any] = {}, seeds: Sequence[int] = ()
    ) -> list[Work]:
        """The figure's work.

        Args:
          scale: One of `scales`.
          more: More flags of the runs; see `training_work`.
          seeds: Seeds of each setting in place of its own; empty for its own.
        """
        cells: Any = self.cells(scale)
        if seeds:
            # Cells that differed in their seed alone are one.
            runs = cross(cells, axis("seed", seeds))
            cells = {json.dumps(cell, sort_keys=True): cell for cell in runs}.values()
        return [
            each if isinstance(each, Work) else training_work(each[0], each[1], more)
            for each in cells
        ]


class ResultsTable:
    """A CSV file with one row for each piece of work, in the order of completion."""

    def __init__(self, path: Path):
        """Opens the table at `path`, which need not exist yet."""
        self._path = path
        self._rows = self._read()

    def _read(self) -> dict[str, dict[str, str]]:
        path = self._path
        rows = files.read_csv(path, cut=True) if path.exists() else []
        if len({row.get(KEY) for row in rows} - {None}) < len(rows):
            raise ValueError(
                f"{path} must be a table of results, each with another {KEY}, found "
                "one that dpfl did not write, or that was changed"
            )
        return {row[KEY]: row for row in rows}

    def __contains__(self, work: Work) -> bool:
        return work.key in self._rows

    def row(self, work: Work) -> dict[str, str]:
        """The row of finished work."""
        labels = {name: str(value) for name, value in work.labels.items()}
        return {**self._rows[work.key], **labels, "folder": work.folder}

    def check_device(self, device: str) -> None:
        """Raises ValueError unless all runs in the table are of a kind of device.

        Args:
          device: The kind of JAX's device; "" in TFF, which has processors alone.
        """
        for row in self._rows.values():
            # Without a time are other work and runs that diverged.
            if row.get("wall_time_seconds") and row.get(DEVICE, "") != device:
                wanted = (
                    f"{row.get(DEVICE) or _TFF}, as of the rows in {self._path} (or "
                    "another folder be asked for)"
                )
                raise ValueError(
                    checks.message("engine's device", wanted, device or _TFF)
                )

    def add(self, work: Work, results: Mapping[str, Any]) -> None:
        """Adds a row to those of the file, which is replaced atomically.

        Rows that another process adds at the same moment may be lost in the file, until
        it adds its next one.

        Raises:
          ValueError: If the work is a run on another device than those in the file.
        """
        self._rows = {**self._read(), **self._rows}
        if "wall_time_seconds" in results:
            self.check_device(results.get(DEVICE, ""))
        row = {**work.labels, KEY: work.key}
        for name, value in results.items():
            # For instance the requested and the spent epsilon.
            row[f"measured_{name}" if name in work.labels else name] = value
        own = {work.key: {k: str(v) for k, v in row.items()}}
        self._rows |= own
        columns = dict.fromkeys(name for done in self._rows.values() for name in done)
        del columns[KEY]
        text = files.csv_text([*columns, KEY], self._rows.values(), end="\r\n")
        files.write_atomically(self._path, text)


def rounds_done(folder: Path) -> int:
    """The number of rounds from which a run resumes, or with which it ended."""
    path = folder / "times.csv"
    # A kill may leave a partial row, which the resumed run removes.
    rows = read_run(path, cut=True) if path.exists() else []
    return sum(bool(row.get("seconds")) for row in rows)


def points_of(rows: Rows, curves: Curves) -> list[Row]:
    """A row for each measured point of the curves of rows.

    A row's `CURVES` names a file that replaces those of all work, with the labels
    before the place of each point.
    """
    points: dict[tuple[str, ...], list[Row]] = {}
    labels: list[str] = []
    if rows and CURVES in rows[0]:
        every = files.read_csv(rows[0][CURVES])
        head = list(every[0])
        labels = [n for n in head[: head.index(curves.place)] if n in rows[0]]
        for point in every:
            points.setdefault(tuple(point[n] for n in labels), []).append(point)
    expanded: list[Row] = []
    for row in rows:
        own: Rows = points.get(tuple(row[name] for name in labels), [])
        if CURVES not in row:
            own = read_run(Path(row["folder"]) / curves.file)
        for number, each in enumerate(own, 1):
            values = {n: each[n] for n in curves.columns if each.get(n)}
            if values:
                place = each.get(curves.place, str(number))
                expanded.append({**row, curves.place: place, **values})
    return expanded
