# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Work that is a run of `dpfl-train`, and what such a run leaves behind."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from dpfl import covered, files
from dpfl.tasks import registry
from dpfl.training import config

from .. import flag_files
from .result_rows import Row, read_csv, read_run, where
from .sweep import Curves, Setting, Work

# What a row keeps of a run's summary.
SUMMARY_COLUMNS = (
    "final_accuracy",
    "final_loss",
    "epsilon",
    "delta",
    "noise_multiplier",
    "uplink_bits_per_client",
    "uplink_bits_per_parameter",
    "downlink_bits_per_parameter",
    "wall_time_seconds",
)
# What is measured of a model now and then.
EVALUATED = Curves(("eval_accuracy", "eval_loss"))
# Of a row without a folder: a file with the curves of all rows.
CURVES = "curves"
# Flags on which no row depends.
_HARMLESS = ("data_dir", "download", "workers", "round_deadline", "concurrency")


@dataclasses.dataclass(frozen=True)
class Training(Work):
    """A run of `dpfl-train`, done by a `crew.Crew` beside others.

    Attributes:
      flags: The run's without --output_dir; a flag file by its name in `flag_files`.
    """

    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def task(self) -> str:
        """Returns the name of its task."""
        return _all_flags(self.flags)["task"]

    @property
    def problem(self) -> str:
        """Returns what its costs depend on.

        That is its task, its model if that is not the task's own, and how many workers
        of other machines it has.
        """
        flags = _all_flags(self.flags)
        words = [flags["task"]]
        if model := flags.get("model"):
            words.append(f"with {model}")
        if workers := len(config.addresses(flags.get("workers"))):
            words.append(f"on {workers} worker{'s' if workers > 1 else ''}")
        return " ".join(words)

    @property
    def rounds(self) -> int:
        """Returns how many rounds were asked for."""
        return int(_all_flags(self.flags)["rounds"])

    @property
    def cohort_size(self) -> int:
        """Returns n."""
        return int(_all_flags(self.flags)["cohort_size"])

    @property
    def all_but_seed(self) -> str:
        """Returns what runs have in common that differ in their seed alone."""
        flags = {name: str(v) for name, v in self.flags.items() if name != "seed"}
        return json.dumps(flags, sort_keys=True)

    def arguments(self, folder: Path, **more: Any) -> list[str]:
        """Returns the run's command line.

        Args:
          folder: Where its results go.
          **more: Flags that it is given too, unless it has them.
        """
        given = {**more, **self.flags}
        if "flagfile" in given:
            given["flagfile"] = flag_files.path(given["flagfile"])
        words = [f"--{name}={value}" for name, value in given.items()]
        return [f"--output_dir={folder}", *words]

    def measured(self, folder: Path) -> Mapping[str, Any]:
        """Returns the columns of a run that has ended."""
        found = covered.plain_keys(files.read_json(folder / "summary.json"))
        return {name: found[name] for name in SUMMARY_COLUMNS}


def training_work(
    labels: Mapping[str, Any], flags: Mapping[str, Any], setting: Setting
) -> Training:
    """Returns work that is a run of `dpfl-train`.

    Args:
      labels: See `Work`.
      flags: See `Training`.
      setting: What else the run is given, as far as its task has the option.

    Returns:
      Work whose row has the columns of `SUMMARY_COLUMNS`.
    """
    task = _all_flags(flags).get("task")
    own = {o.name for t in registry.task_names() for o in registry.task_options(t)}
    if task is not None:
        own -= {option.name for option in registry.task_options(task)}
    more = {name: v for name, v in setting.run_flags.items() if name not in own}
    flags = {**flags, **more}
    return Training(labels, _settings(flags), compute=None, flags=flags)


# Labels and flags of a run, or what it shares with others.
Cell = tuple[Mapping[str, Any], Mapping[str, Any]]


def axis(name: str, values: Iterable[Any], flag: str = "") -> list[Cell]:
    """Returns a cell for each value of a label that is a flag."""
    return [({name: value}, {flag or name: value}) for value in values]


def cross(*axes: Iterable[Cell]) -> list[Cell]:
    """Returns every choice of a cell from each axis; the last axis changes first."""
    found: list[Cell] = [({}, {})]
    for cells in map(list, axes):
        found = [
            ({**labels, **more}, {**flags, **others})
            for labels, flags in found
            for more, others in cells
        ]
    return found


def runs(cells: Iterable[Cell], setting: Setting) -> list[Training]:
    """Returns the runs of cells."""
    return [training_work(labels, flags, setting) for labels, flags in cells]


def _all_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns flags with those of their flag file."""
    name = flags.get("flagfile")
    return {**(flag_files.values(name) if name else {}), **flags}


def _settings(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns flags for a key: those in the flag file too, no path of this machine."""
    settings = {n: str(value) for n, value in flags.items() if n not in _HARMLESS}
    if "flagfile" in settings:
        settings["flagfile"] = " ".join(flag_files.lines(settings["flagfile"]))
    return settings


def without_budget(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns flags without epsilon, so that the noise may be given in its place."""
    given = dict(flags)
    name = given.pop("flagfile", None)
    return {**(flag_files.values(name, "epsilon") if name else {}), **given}


def rounds_done(folder: Path) -> int:
    """Returns after how many rounds a run goes on, or was done."""
    return len(_times(folder))


def seconds_a_round(folder: Path) -> Optional[float]:
    """Returns what a round of a run took; None if too few were done to tell."""
    # The first traces what the others run.
    seconds = [float(row["seconds"]) for row in _times(folder)[1:]]
    return statistics.median(seconds) if seconds else None


def _times(folder: Path) -> list[Row]:
    path = folder / "times.csv"
    rows = read_run(path) if path.exists() else []
    # A kill may leave a part of a row, which the run takes back.
    return [row for row in rows if row.get("seconds")]


def curve(row: Row, column: str, curves: Curves = EVALUATED) -> list[tuple[int, float]]:
    """Returns (place, value) of a column, where it has a value.

    Args:
      row: Of the work; its `CURVES` names a file that stands in for those of all work,
        with the labels before the place of each point.
      column: Name of the column.
      curves: Says in which file it is.
    """
    if CURVES in row:
        rows = read_csv(Path(row[CURVES]))
        head = list(rows[0])
        names = head[: head.index(curves.place)]
        labels = {name: row[name] for name in names if name in row}
        rows = [dict(one) for one in where(rows, **labels)]
    else:
        rows = read_run(Path(row["folder"]) / curves.file)
    return [
        (int(r.get(curves.place, number)), float(r[column]))
        for number, r in enumerate(rows, 1)
        if r[column]
    ]
