# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Measures rounds of federated averaging: medians, and ratios within one run.

  dpfl-benchmark
  dpfl-benchmark --rows=plain,tff_default,mean,csgm --repeats=9 --output=rows.json
  dpfl-benchmark --quick --json

The round is the one by which dpfl's cost is judged: a convolutional network of
1,018,174 parameters without dropout, 50 clients of 100 examples, batches of 20, one
local epoch. Repeats of all rows take turns, so that a busy machine slows them alike.
`ratio` is that to the `baseline`, the median over turns; `cpu_seconds_median` and
`cpu_ratio` are the same for the processor time of both processes, which others on the
machine disturb less; memory rows are in bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from absl import flags

from dpfl import files

from . import cli, start
from .benchmarks import groups, rounds
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
    f"({', '.join(groups.names())}), or '{_ALL}', which takes half an hour. By default "
    "the rows of a round and the groups of the aggregators of a trusted server.",
)
_REPEATS = flags.DEFINE_integer("repeats", 7, "Timed repeats of each row.", 1, 1000)
_QUICK = flags.DEFINE_bool("quick", False, "A tiny round, to see that it runs.")
_JSON = flags.DEFINE_bool("json", False, "Print JSON instead of a table.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file for the rows.")


def chosen_rows() -> list[str]:
    """Returns the names that --rows asks for.

    Raises:
      ValueError: If it names what there is not.
    """
    every = [*rounds.NAMES, *groups.names()]
    if _ROWS.value == [_ALL]:
        return every
    if _ROWS.value is None:
        return [*rounds.NAMES, *groups.GROUPS["aggregators"]]
    for name in _ROWS.value or [""]:
        if name not in every:
            raise ValueError(
                f"--rows must be '{_ALL}' or some of {', '.join(every)}, found {name!r}"
            )
    return list(_ROWS.value)


def table(rows: Sequence[Row]) -> str:
    """Returns rows for people."""
    head = ("median", "ratio", "CPU", "ratio")
    lines = [f"{'row':32}" + "".join(f"{word:>9}" for word in head) + "  of"]
    for row in rows:
        if "bytes" in row:
            ratio = (
                f", {row['ratio']:.3f} of {row['baseline']}" if "ratio" in row else ""
            )
            lines.append(f"{row['name']:32}{row['bytes'] / 2**20:9.0f} MiB{ratio}")
            continue
        keys = ("seconds_median", "ratio", "cpu_seconds_median", "cpu_ratio")
        cells = "".join(
            f"{row[key]:9.3f}" if row.get(key) is not None else " " * 9 for key in keys
        )
        baseline = row.get("baseline") or "-"
        lines.append(
            f"{row['name']:32}{cells}  {baseline:14} {row.get('description', '')}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    """Measures the rows."""
    if len(argv) > 1:
        raise ValueError(f"there are no positional arguments, found {argv[1]!r}")
    names = chosen_rows()
    cli.check_outputs({"output": ()})
    repeats, quick = _REPEATS.value, _QUICK.value
    start.import_tensorflow()
    cli.work_begins()
    rows: list[Row] = []
    if set(names) & set(rounds.NAMES):
        settings = rounds.Settings(repeats=repeats)
        if quick:
            settings = rounds.Settings(2, 4, 2, min(repeats, 2), quick=True)
        rows += rounds.measure(names, settings)
    for name in names:
        if name not in rounds.NAMES:
            rows += groups.measure(name, min(repeats, 2) if quick else repeats, quick)
    text = json.dumps(rows, indent=2)
    if _OUTPUT.value is not None:
        files.write_atomically(_OUTPUT.value, f"{text}\n")
    print(text if _JSON.value else table(rows), flush=True)
    if quick:
        print(_QUICK_NOTE, file=sys.stderr)


def run() -> None:
    """Runs the binary."""
    cli.run(main)


if __name__ == "__main__":
    run()
