# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Comparison of runs: their differing settings, results and costs.

  dpfl-compare runs/a runs/b
  dpfl-compare runs/a runs/b --csv --output=runs.csv
  dpfl-compare runs/* --html=runs.html
  dpfl-compare runs/* --baseline=gaussian-1
  dpfl-compare runs/* --baseline=gaussian-1 --by_client=clients.csv

A RUN is the output folder of a run of dpfl-train that is done. The table has the
settings that differ, the final and the best metrics on the test set, and epsilon, bits
a parameter and seconds. `best` is that of the rounds that were evaluated: who chooses a
round by it has looked at the test set. `late change` is what the metric that judges the
runs has changed since the evaluation before the last. With --baseline there is a line
for runs that differ in their seeds alone: the mean of their final metrics, and what
they gain over the runs of the baseline's settings with its 95% interval. The gain is
over the seeds that both have, whose number stands beside it; where there are none, the
runs are independent samples. --by_client evaluates the final models on each client's
test examples, and adds percentiles over clients or, with --baseline, the interval over
seeds and clients.
Notes on stderr say where epsilons are not of one kind. Runs of different data are
refused unless --any_task is given. TensorFlow is imported for --by_client alone, where
JAX is not installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

from absl import flags

from dpfl import files
from dpfl.pages import elements, svg
from dpfl.training import engine

from . import cli, client_metrics, run_folders, start, tables
from .run_folders import RunFolder

_JSON = flags.DEFINE_bool("json", False, "Print JSON; null stands for infinity.")
_CSV = flags.DEFINE_bool("csv", False, "Print CSV.")
_OUTPUT = flags.DEFINE_string("output", None, "Write to this file, not to stdout.")
_HTML = flags.DEFINE_string("html", None, "Write table and curves as one page.")
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "Show the gain over this run and its settings, by the run's name or folder.",
)
_BY_CLIENT = flags.DEFINE_string(
    "by_client",
    None,
    "Write a row for each client that test examples belong to, with their number and "
    "the right ones of each run, or the sum of another metric; a CSV file.",
)
_ANY_TASK = flags.DEFINE_bool(
    "any_task", False, "Compare runs of different data and splits, too."
)

# Columns of metrics.csv against which curves are drawn, their labels, and whether the
# axis is logarithmic.
AXES = {
    "round": ("round", False),
    "total_uplink_bits": ("bits up of all clients so far", True),
    "epsilon": ("epsilon so far", False),
}
_HEADS = {
    "uplink_bits_per_parameter": "bits up a parameter",
    "downlink_bits_per_parameter": "bits down a parameter",
}

Curves = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def curves(runs: Sequence[RunFolder], metric: str) -> Curves:
    """The points of each run, by axis and by the run's name."""
    labels = run_folders.labels(runs)
    return {
        axis: {labels[run.name]: run.points(axis, f"eval_{metric}") for run in runs}
        for axis in AXES
    }


def page(
    rows: tables.Rows,
    settings: Sequence[str],
    notes: Sequence[str],
    drawn: Curves,
    y_label: str,
) -> str:
    """The comparison as an HTML page.

    Args:
      rows: Rows of the table.
      settings: Columns of the rows that are settings.
      notes: Sentences below the table.
      drawn: Points of the charts, by axis and run.
      y_label: Label of the metric that is drawn.
    """
    heads = _columns(rows)
    keys = [name for name in dict.fromkeys(["run", *settings]) if name in heads]
    chosen = {name: heads.pop(name) for name in keys}
    named = {"run": "run"} if "run" in chosen else chosen
    charts = []
    for axis, (label, is_logarithmic) in AXES.items():
        lines = [
            svg.Line(name, points, color)
            for color, (name, points) in enumerate(drawn[axis].items())
        ]
        is_positive = all(x > 0 for line in drawn[axis].values() for x, _ in line)
        title = f"{y_label} over {axis.rpartition('_')[2]}"
        charts.append(
            svg.chart(
                *(lines, title, label, y_label),
                is_logarithmic=is_logarithmic and is_positive,
            )
        )
    runs = f"{sum(row.get('seeds', 1) for row in rows)} runs"
    return elements.page(
        f"dpfl: {runs}",
        [
            elements.heading(runs, 1),
            *map(elements.paragraph, notes),
            elements.charts(charts),
            elements.heading("Results and costs"),
            elements.table(rows, {**named, **heads}),
            elements.paragraph("Bits are those of a client and round."),
            elements.heading("Settings that differ"),
            elements.table(rows, chosen),
        ],
    )


def _columns(rows: tables.Rows) -> dict[str, str]:
    """Heads of the columns of any row."""
    names = dict.fromkeys(name for row in rows for name in row)
    heads = {name: _HEADS.get(name, name.replace("_", " ")) for name in names}
    percent = r"(client .*) (\d+)", r"\1, \2th percentile"
    return {name: re.sub(*percent, head) for name, head in heads.items()}


def main(argv: Sequence[str]) -> None:
    """Compares the runs whose folders are named."""
    if len(argv) < 2:
        raise ValueError("RUN must be the output folder of a run, found none")
    if _JSON.value and _CSV.value:
        raise ValueError("--csv must be left out beside --json, found both")
    cli.check_outputs({"output": (), "html": (".html",), "by_client": (".csv",)})
    runs = run_folders.read(argv[1:])
    if not _ANY_TASK.value or _BY_CLIENT.value:
        run_folders.check_one_task(runs)
    metric = run_folders.headline(runs)
    notes = run_folders.remarks(runs)
    settings = run_folders.different_settings(runs)
    rows = [run_folders.row(run, settings, metric) for run in runs]
    clients = None
    if _BY_CLIENT.value:
        name = engine.of("auto")
        start.import_engine(name)
        clients = client_metrics.by_client(runs, metric, name)
        more = client_metrics.percentiles(clients, metric)
        rows = [{**row, **own} for row, own in zip(rows, more)]
        notes.append("note: epsilon does not cover what is of a client's examples")
    if _BASELINE.value is not None:
        rows = run_folders.arms(runs, settings, _BASELINE.value, metric, clients)
    cli.work_begins()
    form = "json" if _JSON.value else "csv" if _CSV.value else "text"
    tables.show(rows, _columns(rows), _OUTPUT.value, form, digits=4)
    if clients is not None:
        names = [run.name for run in runs]
        files.write_atomically(_BY_CLIENT.value, client_metrics.csv_of(clients, names))
    for note in notes:
        print(note, file=sys.stderr)
    if _HTML.value:
        parts = settings, notes, curves(runs, metric), tables.head(f"final_{metric}")
        files.write_atomically(_HTML.value, page(rows, *parts))


if __name__ == "__main__":
    cli.run(main)
