# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Measures rounds of federated averaging: medians, and ratios within one run.

  dpfl-benchmark
  dpfl-benchmark --rows=plain,tff_default,mean,csgm --repeats=9 --output=rows.json
  dpfl-benchmark --quick --json
  dpfl-benchmark --rows=all --output=benchmarks.csv

The round is the one by which dpfl's cost is judged: a convolutional network of
1,018,174 parameters without dropout, 50 clients of 100 examples, batches of 20, one
local epoch. Repeats of all rows take turns, so that a busy machine slows them alike.
`ratio` is that to the `baseline`, the median over turns; `cpu_seconds_median` and
`cpu_ratio` are the same for the processor time of both processes, which others on the
machine disturb less; memory rows are in bytes.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Optional

from absl import flags

from dpfl import files
from dpfl.training import launcher

from . import cli, start
from .benchmarks import harness, rounds
from .benchmarks.harness import Row

_ALL = "all"
_QUICK_NOTE = (
    "note that --quick only shows that the rows run: with sizes so small the numbers "
    "mean nothing"
)
_ROWS = flags.DEFINE_list(
    "rows",
    None,
    f"What to measure: rows of a round ({', '.join(rounds.NAMES)}), groups of rows "
    f"({', '.join(harness.names())}), or '{_ALL}', which takes half an hour. If not "
    "given, a round and the groups of the aggregators of a trusted server.",
)
_REPEATS = flags.DEFINE_integer("repeats", 7, "Timed repeats of each row.", 1, 1000)
_QUICK = flags.DEFINE_bool("quick", False, "A tiny round, to see that it runs.")
_JSON = flags.DEFINE_bool("json", False, "Print JSON instead of a table.")
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "File for the rows, as JSON, or as CSV if its name ends in .csv; each group's are "
    "in it when they are measured.",
)
# Of the CSV file, whose memory is in MiB.
_COLUMNS = (
    *("run", "row", "seconds", "processor_seconds", "ratio", "of", "mebibytes"),
    "repeats",
)


def chosen_rows() -> list[str]:
    """The names that --rows asks for; ValueError if it names what there is not."""
    every = [*rounds.NAMES, *harness.names()]
    if _ROWS.value == [_ALL]:
        return every
    if _ROWS.value is None:
        return [*rounds.NAMES, *harness.AGGREGATORS]
    for name in _ROWS.value or [""]:
        if name not in every:
            raise ValueError(
                f"--rows must be '{_ALL}' or some of {', '.join(every)}, found {name!r}"
            )
    return list(_ROWS.value)


def table(rows: Sequence[Row]) -> str:
    """Rows for people."""
    head = ("median", "ratio", "CPU", "ratio")
    lines = [f"{'row':32}" + "".join(f"{word:>9}" for word in head) + "  of"]
    for row in rows:
        if "bytes" in row:
            line = f"{row['name']:32}{row['bytes'] / 2**20:9.0f} MiB"
            if "ratio" in row:
                line += f", {row['ratio']:.3f} of {row['baseline']}"
        else:
            line = f"{row['name']:32}"
            for key in ("seconds_median", "ratio", "cpu_seconds_median", "cpu_ratio"):
                value = row.get(key)
                line += " " * 9 if value is None else f"{value:9.3f}"
            line += f"  {row.get('baseline') or '-':14} {row.get('description', '')}"
        lines.append(line)
    return "\n".join(lines)


def as_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV with a head, which docs/results keeps."""
    found = [
        {
            "run": row["run"],
            "row": row["name"],
            "seconds": _rounded(row.get("seconds_median")),
            "processor_seconds": _rounded(row.get("cpu_seconds_median")),
            "ratio": _rounded(row.get("ratio")),
            "of": row.get("baseline"),
            "mebibytes": _rounded(row["bytes"] / 2**20) if "bytes" in row else None,
            "repeats": row.get("repeats"),
        }
        for row in rows
    ]
    return files.csv_text(_COLUMNS, found)


def _rounded(value: Optional[float]) -> Optional[float]:
    """A number with the four digits that a measurement may have."""
    return None if value is None else float(f"{value:.4g}")


def _runs(
    names: Sequence[str], repeats: int, quick: bool
) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """What is measured together, by name: a round's rows, and each group."""
    if set(names) & set(rounds.NAMES):
        settings = rounds.Settings(repeats=repeats)
        if quick:
            settings = rounds.Settings(2, 4, 2, min(repeats, 2), quick=True)
        yield "rounds", functools.partial(rounds.measure, names, settings)
    turns = min(repeats, 2) if quick else repeats
    for name in names:
        if name not in rounds.NAMES:
            yield name, functools.partial(harness.measure, name, turns, quick)


def apart(measure: Callable[[], list[Row]]) -> list[Row]:
    """What is measured in a process that is forked for it.

    It begins with what was imported, and with nothing of what was measured before.

    Raises:
      BrokenProcessPool: If the process is killed, which for lack of memory it may be.
    """
    context = multiprocessing.get_context("fork")
    of_this = (os.getpid(),)
    with futures.ProcessPoolExecutor(1, context, launcher.end_with, of_this) as pool:
        return pool.submit(measure).result()


def main(argv: Sequence[str]) -> None:
    """Measures the rows."""
    cli.no_arguments(argv)
    names = chosen_rows()
    cli.check_outputs({"output": ()})
    repeats, quick = _REPEATS.value, _QUICK.value
    start.import_tensorflow()
    cli.work_begins()
    rows: list[Row] = []
    for run, measure in _runs(names, repeats, quick):
        rows += [{"run": run, **row} for row in apart(measure)]
        if _OUTPUT.value is not None:
            is_csv = _OUTPUT.value.endswith(".csv")
            text = as_csv(rows) if is_csv else f"{json.dumps(rows, indent=2)}\n"
            files.write_atomically(_OUTPUT.value, text)
    print(json.dumps(rows, indent=2) if _JSON.value else table(rows), flush=True)
    if quick:
        print(_QUICK_NOTE, file=sys.stderr)


def run() -> None:
    """Runs the binary."""
    cli.run(main)


if __name__ == "__main__":
    run()
