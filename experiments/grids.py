# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Grids of a user's own settings, each tuned by itself: their runs, table and picture.

    grid = Grid(cells({"task": ["docs"], "mechanism": ["gaussian", "dome"]}), ["1"])
    grid.do(folder, jobs=1)

The runs are those of `trainings.parallel_runs`, as the figures of papers have them. A
cell is the flags of runs that differ in their seed alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from dpfl import checks, files, privacy_coverage, tasks

from . import cli, effects, mechanism_flags, plotting, tables
from .panels import Plot
from .tables import Row
from .trainings import parallel_runs, sweep, tuning
from .trainings.sweep import Training

Flags = Mapping[str, str]
# Columns of a run that are shown without an interval.
COMPUTED = ("epsilon", *tables.BITS)
# Column of the best settings, as they are written into the picture.
_BEST = "best"
# Flags whose effect is drawn over the bits that clients sent, and these.
_RATES, _SENT = ("compression_rate", "keep_fraction"), tables.BITS[0]
# Ratio of an axis's ends from which on it is logarithmic.
_WIDE = 8


def lacking(task: str, mechanism: str, given: Collection[str]) -> set[str]:
    """The flags among `given` that have no meaning for a task or a mechanism.

    Args:
      task: Name of the task.
      mechanism: Name of the mechanism.
      given: Names of flags of `dpfl-train`.
    """
    without = mechanism_flags.without_meaning(mechanism, given)
    return {*without, *(sweep.options_of_others(task) & {*given})}


def cells(given: Mapping[str, Sequence[str]]) -> list[Flags]:
    """The cells of all choices of values, without flags that have no meaning there.

    Args:
      given: Values by flag, with a task and a mechanism.

    Raises:
      ValueError: If a flag has no meaning in any cell, or a task or a mechanism is
        unknown.
    """
    made: list[Flags] = []
    used: set[str] = set()
    for task, mechanism in itertools.product(given["task"], given["mechanism"]):
        without = lacking(task, mechanism, given)
        own = {name: given[name] for name in given if name not in without}
        own.update(task=[task], mechanism=[mechanism])
        used.update(own)
        made += [labels for labels, _ in _choices(own)]
    for name in given:
        if name not in used:
            every = ", ".join([*given["task"], *given["mechanism"]])
            raise ValueError(f"--{name} has no meaning for {every}")
    return made


def _choices(values: Mapping[str, Sequence[str]]) -> list[sweep.Cell]:
    count, most = math.prod(map(len, values.values())), cli.MOST_RUNS
    names, wanted = f"values of {', '.join(values)}", f"at most {most} choices"
    checks.require(count <= most, names, wanted, count)
    return sweep.cross(*(sweep.axis(name, own) for name, own in values.items()))


def work(flags: Flags, seed: str) -> Training:
    """A run; its folder is one of its settings, whatever else a grid has."""
    alike = sweep.training_work({}, flags).settings
    digest = hashlib.sha256(json.dumps(alike, sort_keys=True).encode()).hexdigest()
    labels = {name: flags[name] for name in ("task", "mechanism")}
    labels.update(settings=digest[:8], seed=seed)
    return sweep.training_work(labels, {**flags, "seed": seed})


@dataclasses.dataclass(frozen=True)
class Grid:
    """Cells, and what is tuned in each of them.

    Attributes:
      cells: Flags of the cells.
      seeds: Seeds of the runs of each cell.
      tuned: Values to try by flag.
      tune_seeds: Seeds of the runs of each setting that is tried.
      fraction: Share of the training data on which settings are judged.
    """

    cells: Sequence[Flags]
    seeds: Sequence[str]
    tuned: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    tune_seeds: Sequence[str] = ()
    fraction: str = "0.1"

    def settings(self, cell: Flags) -> list[Flags]:
        """The settings that are tried in a cell; an empty one if none is tuned."""
        without = lacking(cell["task"], cell["mechanism"], self.tuned)
        own = {name: self.tuned[name] for name in self.tuned if name not in without}
        return [labels for labels, _ in _choices(own)]

    def trials(self, cell: Flags) -> list[Training]:
        """The runs that choose a cell's setting; none if there is no choice."""
        settings = self.settings(cell)
        if len(settings) == 1:
            return []
        share = tuning.validation(cell["task"], self.fraction)
        return [
            work({**cell, **setting, **share}, seed)
            for setting in settings
            for seed in self.tune_seeds
        ]

    def runs(self, cell: Flags, setting: Flags) -> list[Training]:
        """The runs of a cell with its setting."""
        return [work({**cell, **setting}, seed) for seed in self.seeds]

    def best(self, cell: Flags, table: sweep.ResultsTable) -> Flags:
        """The setting with the best measure in a table of trials.

        Raises:
          ValueError: If all trials diverged.
        """
        trials = self.trials(cell)
        if not trials:
            return self.settings(cell)[0]
        metric = tasks.task_entry(cell["task"]).metric
        rows = [{**one.flags, **table.row(one)} for one in trials]
        best, *_ = tuning.ranked(
            rows, self.tuned, metric.final_column, metric.lower_is_better
        )
        if math.isnan(best.mean):
            words = ", ".join(f"{name} {cell[name]}" for name in self.varied(cell))
            wanted = "values of which one does not diverge"
            raise ValueError(f"--tune must have {wanted}, found none for {words}")
        return best.setting

    def varied(self, cell: Optional[Flags] = None) -> list[str]:
        """Flags in which cells differ, the mechanism first; those of a cell alone."""
        names = dict.fromkeys(["mechanism", *itertools.chain(*self.cells)])
        return [
            name
            for name in names
            if name == "mechanism" or len({one.get(name) for one in self.cells}) > 1
            if cell is None or name in cell
        ]

    def do(self, folder: Path, **options: Any) -> None:
        """Does what is missing in a folder, and writes its table and its picture.

        Args:
          folder: The folder of all results.
          **options: Those of `parallel_runs.ParallelRuns`.

        Raises:
          ValueError: If a run is refused, before any is done.
        """
        trials = [one for cell in self.cells for one in self.trials(cell)]
        options |= {"keep_diverged": True}
        tried = sweep.ResultsTable(folder / "tuning.csv")
        table = sweep.ResultsTable(folder / "results.csv")
        if any(one not in tried for one in trials):
            # As many runs, and as long, as with the best settings.
            some = self._runs([(cell, self.settings(cell)[0]) for cell in self.cells])
            words = _begin(trials, tried, "tuning") + _begin(some, table, "grid")
            checked = _distinct(trials, tried) + _distinct(some, table)
            parallel_runs.do(trials, tried, folder, checked, words, **options)
        chosen = [(cell, self.best(cell, tried)) for cell in self.cells]
        runs = self._runs(chosen)
        checked = _distinct(runs, table)
        words = _begin(runs, table, "grid")
        parallel_runs.do(runs, table, folder, checked, words, **options)
        self.show(chosen, table, folder)

    def _runs(self, chosen: Iterable[tuple[Flags, Flags]]) -> list[Training]:
        return [one for pair in chosen for one in self.runs(*pair)]

    def show(
        self,
        chosen: Sequence[tuple[Flags, Flags]],
        table: sweep.ResultsTable,
        folder: Path,
    ) -> None:
        """Prints the table of cells, and writes it and its picture.

        Args:
          chosen: The cells with their settings.
          table: Table of all runs.
          folder: Folder of what is written.
        """
        lines, drawn = [], []
        every: dict[str, str] = {}
        for cell, setting in chosen:
            rows = [table.row(one) for one in self.runs(cell, setting)]
            exact = _exact(cell, rows, folder)
            every |= exact
            line = {**self._chosen(cell, setting), **_measured(cell, rows)}
            column = tasks.task_entry(cell["task"]).metric.final_column
            lines.append({**line, "metric": exact.get(column, line["metric"])})
            best = ", ".join(self._marked(cell, setting))
            marks: dict[str, Optional[str]] = {_BEST: best}
            marks |= {f"{privacy_coverage.MARK}{n}": n for n in exact}
            # One place for all seeds, which may have sent some more or less.
            marks[_SENT] = line[_SENT] and str(line[_SENT])
            drawn += [{**cell, **setting, **row, **marks} for row in rows]
        names = dict.fromkeys(name for line in lines for name in line)
        heads = {name: tables.head(name) for name in names}
        print(tables.text(lines, heads, digits=4))
        if every:
            print(f"epsilon does not cover {', '.join(every.values())}")
        files.write_atomically(folder / "sweep.csv", files.csv_text(names, lines))
        plotting.print_remark([row for row in drawn if row.get("epsilon")])
        print(f"table: {folder / 'sweep.csv'}")
        placed = self.placed(drawn)
        print(f"picture: {plotting.save(self.figure(placed), placed, folder)}")

    def _chosen(self, cell: Flags, setting: Flags) -> dict[str, Optional[str]]:
        """The columns that identify a line of the table."""
        line = {name: cell.get(name) for name in self.varied()}
        line.update((f"best_{name}", setting.get(name)) for name in self.tuned)
        ends = [n for n in setting if setting[n] in self._ends(n)]
        return {**line, **({"best_at_end": " ".join(ends)} if self.tuned else {})}

    def _ends(self, name: str) -> Collection[str]:
        """The least and the greatest value that was tried, if there are several."""
        values = tuning.in_order(self.tuned[name])
        is_range = len(values) > 1 and tuning.is_number(values[0])
        return (values[0], values[-1]) if is_range else ()

    def _marked(self, cell: Flags, setting: Flags) -> Iterable[str]:
        for name, value in setting.items():
            yield f"{value}*" if value in self._ends(name) else value

    def figure(self, rows: Sequence[Row]) -> sweep.Figure:
        """The figure of the rows of runs."""
        place, series, panels = self._axes()
        by, place = (place, _SENT) if place in _RATES else ("", place)
        numbers = [float(r[place]) for r in rows if tuning.is_number(r[place])]
        is_wide = numbers and min(numbers) > 0 and max(numbers) >= _WIDE * min(numbers)
        title = " and ".join(dict.fromkeys(row["task"] for row in rows))
        spent = {f"{float(row['epsilon']):.3g}" for row in rows if row.get("epsilon")}
        if len(spent) == 1:
            title += f", \N{GREEK SMALL LETTER EPSILON} {spent.pop()}"
        if self.tuned:
            names = ", ".join(self.tuned)
            title += f"; the best {names} at each point, * if at an end of those tried"
        plot = Plot(
            *(place, series, panels),
            by=by,
            log="x" if is_wide else "",
            interval=True,
            note=_BEST,
        )
        return sweep.Figure("sweep", title, lambda scale: [], plot)

    def placed(self, rows: Sequence[Row]) -> list[Row]:
        """Rows with a place: infinite where a cell has no such flag."""
        place = self._axes()[0]
        if place == "mechanism":
            words = [f" ({row[_BEST]})" if row[_BEST] else "" for row in rows]
            return [{**r, place: f"{r[place]}{w}"} for r, w in zip(rows, words)]
        if place in _RATES:
            placed = [r if place in r else {**r, _SENT: "inf"} for r in rows]
            return [row for row in placed if row[_SENT]]
        return [{**row, place: row.get(place, "inf")} for row in rows]

    def _axes(self) -> tuple[str, str, str]:
        """The flags of the horizontal axis, of the lines and of the panels."""
        others = [name for name in self.varied() if name != "mechanism"]
        values = {name: {c[name] for c in self.cells if name in c} for name in others}
        numeric = [n for n in others if all(map(tuning.is_number, values[n]))]
        rates = [n for n in numeric if n in _RATES]
        place = (rates or sorted(numeric, key=lambda n: -len(values[n])))[:1]
        others = [name for name in others if name not in place]
        if not place:
            return "mechanism", " ".join(others[:1]), " ".join(others[1:])
        return place[0], "mechanism", " ".join(others)


def _begin(runs: Sequence[Training], table: sweep.ResultsTable, words: str) -> str:
    """A line on the runs that are left."""
    left = [one for one in runs if one not in table]
    rounds = sum(one.rounds for one in left)
    return f"{words}: {len(left)} of {len(runs)} runs are left, {rounds} rounds\n"


def _distinct(runs: Sequence[Training], table: sweep.ResultsTable) -> list[Training]:
    """Runs that are left, one of those that differ in their seed alone."""
    return list({one.all_but_seed: one for one in runs if one not in table}.values())


def _measured(cell: Flags, rows: Sequence[Row]) -> dict[str, Any]:
    """The measured columns of a cell's line, from the rows of its runs."""
    metric = tasks.task_entry(cell["task"]).metric
    values = {row["seed"]: float(row[metric.final_column]) for row in rows}
    finite = {seed: value for seed, value in values.items() if math.isfinite(value)}
    line: dict[str, Any] = {"metric": metric.label, "mean": None}
    if finite:
        mean = effects.mean(finite)
        ends = {"low": mean.low, "high": mean.high}
        line["mean"] = mean.size
        line |= {n: v if math.isfinite(v) else None for n, v in ends.items()}
    line |= {"seeds": len(finite), "diverged": len(values) - len(finite)}
    for column in COMPUTED:
        # Bits differ where clients send a random number of values.
        numbers = [float(row[column]) for row in rows if row.get(column)]
        line[column] = sum(numbers) / len(numbers) if numbers else None
    return line


def _exact(cell: Flags, rows: Sequence[Row], folder: Path) -> dict[str, str]:
    """The heads of columns that epsilon does not cover; all if a run's folder is gone.

    Args:
      cell: The cell's flags.
      rows: Rows of its runs.
      folder: The folder of all results.
    """
    metric = tasks.task_entry(cell["task"]).metric
    heads = {metric.final_column: f"exact {metric.label}"}
    heads.update((name, tables.head(name)) for name in tables.BITS)
    names: set[str] = set()
    for row in rows:
        path = folder / row["folder"] / "summary.json"
        if row.get("epsilon"):
            summary = files.read_json(path) if path.exists() else None
            names |= {
                *(heads if summary is None else summary.get(privacy_coverage.KEY, ()))
            }
    return {name: head for name, head in heads.items() if name in names}
