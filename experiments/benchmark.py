# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Measures rounds of federated averaging: medians, and ratios within one run.

  python -m experiments.benchmark --rows=plain,none,csgm --repeats=9 --output=rows.json
  python -m experiments.benchmark --rows=all --output=benchmarks.csv
  python -m experiments.benchmark --peers=tff,fedjax=/path/bin/python
  python -m experiments.benchmark --rows=jax_aggregation
  python -m experiments.benchmark --engine=jax --rows=cnn_100 --peers=pfl=/bin/python

The round is the one by which dpfl's cost is judged: a convolutional network of
1,018,174 parameters without dropout, 50 clients of 100 examples, batches of 20, one
local epoch. Repeats of all rows take turns, so that a busy machine slows them alike.
`ratio` is that to the `baseline`, the median over turns; `cpu_seconds_median` and
`cpu_ratio` are the same for the processor time of both processes, which others on the
machine disturb less; memory rows are in bytes. With --processes all are medians over
processes, `least` and `most` the range of the seconds or the bytes, and `low` and
`high` that of the ratio.

With --peers, rounds of dpfl take turns with those of other simulators, in a process of
its own each. A ratio is to dpfl, and `low` and `high` are its 95% interval over turns.
With --engine=jax dpfl trains in JAX, with each mechanism in turns in one process, and
peers are on the same device.

JAX's rows run where TensorFlow Federated is not installed, all others where it is.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent import futures

from absl import flags

from dpfl import cache_folder, checks, files, launcher
from dpfl.training import engine

from . import cli, exits, start, tables
from .benchmarks import harness, turns
from .benchmarks.harness import AGGREGATORS, GROUPS, ROUND_ROWS, Row

_ALL = "all"
# The group that needs an environment of its own.
_IN_JAX = "jax_aggregation"
_QUICK_NOTE = (
    "note that --quick only shows that the rows run: with such small sizes the numbers "
    "mean nothing"
)
_ROWS = flags.DEFINE_list(
    "rows",
    None,
    f"Measurements: rows of a round ({', '.join(ROUND_ROWS)}), groups of rows "
    f"({', '.join(GROUPS)}), or '{_ALL}', which takes half an hour and has "
    f"no {_IN_JAX}. Default: a round and the groups of the aggregators of a trusted "
    f"server. With --peers, some of {', '.join(turns.CASES)}: the model and the "
    "clients of a round. With --engine=jax, these and mechanisms, by their names in "
    f"{_IN_JAX}; default: all of both.",
)
_ENGINE = flags.DEFINE_enum(
    "engine", "tff", list(turns.ENGINES), "dpfl's engine; jax measures whole rounds."
)
_PEERS = flags.DEFINE_list(
    "peers",
    None,
    f"Simulators to measure beside dpfl: {', '.join(turns.PEERS)}. pfl=PYTHON runs pfl "
    "with another interpreter; dpfl is the engine of TFF, and dpfl_jax that of JAX.",
)
_REPEATS = flags.DEFINE_integer(
    "repeats",
    None,
    "Timed repeats of each row in a process; default: 7.",
    1,
    1000,
)
_PROCESSES = flags.DEFINE_integer(
    "processes",
    None,
    "Processes that measure each group; default: 1. With --peers, processes of each "
    f"simulator, at least 2; default: {turns.PROCESSES}.",
    1,
    1000,
)
_QUICK = flags.DEFINE_bool("quick", False, "Measure a tiny round, as a test.")
_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "File for the rows, as JSON, or as CSV if its name ends in .csv; each group is "
    "written as soon as it is measured.",
)
# Columns of the CSV file, which docs/results keeps.
_COLUMNS = (
    *("run", "row", "seconds", "processor_seconds", "ratio", "of", "mebibytes"),
    *("least", "most", "low", "high", "repeats", "processes"),
)
# Columns of numbers: their keys in a row, and their units.
_MEASURED = {
    "seconds": ("seconds_median", 1),
    "processor_seconds": ("cpu_seconds_median", 1),
    "ratio": ("ratio", 1),
    "processor_ratio": ("cpu_ratio", 1),
    "mebibytes": ("bytes", 2**20),
    "low": ("low", 1),
    "high": ("high", 1),
    "processor_low": ("cpu_low", 1),
    "processor_high": ("cpu_high", 1),
}
# Columns of the printed table.
_SHOWN = (*_COLUMNS[1:5], "processor_ratio", *_COLUMNS[5:7], "description")
# Columns of both tables, beside peers.
_PEER_COLUMNS = (
    *("run", "row", "seconds", "ratio", "low", "high", "processor_seconds"),
    *("processor_ratio", "processor_low", "processor_high", "of", "processes"),
)
Measures = dict[str, Callable[[], list[Row]]]


def _has_turns() -> bool:
    """Whether whole rounds are measured in processes that take turns."""
    return _PEERS.value is not None or _ENGINE.value == "jax"


def _mechanisms() -> list[str]:
    """The mechanisms of rounds that can be asked for."""
    if _ENGINE.value == "tff":
        return []
    from .benchmarks import jax_rounds

    return list(jax_rounds.measured_mechanisms(harness.settings(True, 1)))


def chosen_rows() -> list[str]:
    """The names that --rows asks for; raises ValueError for an unknown one."""
    every = [*ROUND_ROWS, *GROUPS]
    if _has_turns():
        every = [*turns.CASES, *_mechanisms()]
    if _ROWS.value == [_ALL] or (_ROWS.value is None and _has_turns()):
        return [name for name in every if name != _IN_JAX]
    if _ROWS.value is None:
        return [*ROUND_ROWS, *AGGREGATORS]
    for name in _ROWS.value or [""]:
        if name not in every:
            raise ValueError(
                f"--rows must be '{_ALL}' or some of {', '.join(every)}, found {name!r}"
            )
    return list(_ROWS.value)


def as_measured(row: Row) -> Row:
    """A row with four significant digits, and memory in MiB."""
    as_they_are = ("run", "repeats", "processes", "description")
    result = {name: row.get(name) for name in as_they_are}
    result.update(row=row["name"], of=row.get("baseline"))
    of_range = 1 if "seconds_median" in row else 2**20
    measured = {**_MEASURED, "least": ("least", of_range), "most": ("most", of_range)}
    for name, (key, unit) in measured.items():
        value = row.get(key)
        result[name] = None if value is None else float(f"{value / unit:.4g}")
    return result


def apart(measure: Callable[[], list[Row]], processes: int = 1) -> list[Row]:
    """Measures in forked processes, one after the other.

    A process inherits the imports, and no effects of earlier measurements.

    Raises:
      BrokenProcessPool: If the process is killed, for instance for lack of memory.
    """
    context = multiprocessing.get_context("fork")
    of_this = (os.getpid(),)
    results = []
    for _ in range(processes):
        with futures.ProcessPoolExecutor(
            1, context, launcher.end_with, of_this
        ) as pool:
            results.append(pool.submit(measure).result())
    return results[0] if processes == 1 else harness.over_processes(results)


def of_groups() -> Measures:
    """The functions that measure the rows of each group, in processes of their own."""
    names = chosen_rows()
    repeats = _REPEATS.value or 7
    if _QUICK.value:
        repeats = min(repeats, 2)
    round_rows = [name for name in names if name in ROUND_ROWS]
    settings = harness.settings(_QUICK.value, repeats, round_rows=round_rows)
    groups = ["rounds"] * bool(round_rows) + [name for name in names if name in GROUPS]
    if _IN_JAX in groups:
        wanted = "others where TFF is installed"
        checks.require(engine.of("auto") == "jax", "rows", wanted, _IN_JAX)

    def measure(group: str) -> list[Row]:
        if group != _IN_JAX:
            start.import_tensorflow()
        own = functools.partial(harness.measure, group, settings)
        return apart(own, _PROCESSES.value or 1)

    return {group: functools.partial(measure, group) for group in groups}


def of_turns() -> Measures:
    """The functions that measure whole rounds of dpfl, and of its peers, by case."""
    names = chosen_rows()
    every = _mechanisms()
    own = turns.ENGINES[engine.of(_ENGINE.value)]
    cases = [name for name in names if name in turns.CASES] or list(turns.CASES)
    asked = [name for name in names if name in every] or every
    beside = [name for name in asked if name != "none"]
    cli.refuse("--peers", "repeats")
    processes = _PROCESSES.value or turns.PROCESSES
    if processes < 2:
        raise ValueError(
            f"--processes must be at least 2 for --peers, found {processes}"
        )
    if _QUICK.value:
        processes = 2
    pythons = {}
    if _PEERS.value is not None:
        pythons = turns.interpreters(_PEERS.value, own)
    return {
        name: functools.partial(
            turns.compare,
            turns.work(name, _QUICK.value, ["none", *beside]),
            *(pythons, processes, own),
        )
        for name in cases
    }


def main(argv: Sequence[str]) -> None:
    """Measures the rows."""
    cli.no_arguments(argv)
    cli.check_outputs({"output": ()})
    columns: Sequence[str] = _PEER_COLUMNS
    shown_columns: Sequence[str] = _PEER_COLUMNS
    if _has_turns():
        measures = of_turns()
    else:
        measures, columns, shown_columns = of_groups(), _COLUMNS, _SHOWN
    if _ENGINE.value == "tff" and list(measures) != [_IN_JAX]:
        try:
            from dpfl import needs_tff  # noqa: F401
        except ImportError as error:
            exits.fail(str(error))
    # Only computing time is measured.
    os.environ[cache_folder.VARIABLE] = cache_folder.OFF
    cli.work_begins()
    rows: list[Row] = []
    for run, measure in measures.items():
        rows += [{"run": run, **row} for row in measure()]
        said = [as_measured(row) for row in rows]
        if _OUTPUT.value is not None:
            text = f"{json.dumps(rows, indent=2)}\n"
            if _OUTPUT.value.endswith(".csv"):
                kept = [{name: row[name] for name in columns} for row in said]
                text = files.csv_text(columns, kept)
            files.write_atomically(_OUTPUT.value, text)
    print(tables.text(said, {name: name for name in shown_columns}, digits=4))
    if _QUICK.value:
        print(_QUICK_NOTE, file=sys.stderr)


if __name__ == "__main__":
    cli.run(main)
