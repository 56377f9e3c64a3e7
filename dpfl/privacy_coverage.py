# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The list of everything that a run writes, and of the part that its guarantee covers.

The event of a run describes the release of the model after each round. Functions of the
model and of public settings are covered too. Everything else that depends on the
clients' data is exact: a column, a tag or a file whose name begins with `exact_`, and a
key below `exact`. A file that holds the seed is secret, since the noise can be
subtracted with it. The settings and the number of clients N are public. Without a
private mechanism there is no event, and nothing is covered.

    privacy_coverage.kind("metrics.csv", "exact_train_loss")   # "exact"
    privacy_coverage.plain_names(row)["train_loss"]            # exact or not
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Optional

# Prefix of the names of exact values.
MARK = "exact_"
# Choices of what is measured: functions of the release alone, or also exact sums over
# clients, which secure aggregation would hide and only a simulation can see.
RELEASED, EXACT_FOR_SIMULATION = "released", "exact_for_simulation"
MEASURES = (RELEASED, EXACT_FOR_SIMULATION)
# Most names in a cell of the documentation's table.
_NAMES_IN_A_CELL = 8
# The key of summary.json below which exact values are.
KEY = "exact"
COVERED, EXACT, SECRET = "covered", "exact", "secret"

# Prefix of an aggregator's measurements, and the one that all aggregators release.
_MEASURED = "aggregator_"
_DOWNLINK = "downlink_bits"


class Output(NamedTuple):
    """A line of the list.

    Attributes:
      places: Patterns of files in the output folder, or a stream.
      names: Patterns of columns, tags, keys or parts; "*" for all.
      kind: `COVERED`, `EXACT` or `SECRET`.
      why: The reason, as the documentation's table gives it.
    """

    places: tuple[str, ...]
    names: tuple[str, ...]
    kind: str
    why: str


# Places, names, kind and reason; the first line that matches a name counts.
_TEXT = """
metrics.csv, tensorboard/* | exact_* | exact | of the cohort, and clients'
    test examples
metrics.csv, tensorboard/* | eval_* | covered | the model, on test examples of
    no client
metrics.csv, tensorboard/* | round, epsilon, noise_multiplier | covered | settings and
    their cost
metrics.csv, tensorboard/* | uplink_bits, downlink_bits | covered | settings, and what
    the server sends
metrics.csv, tensorboard/* | aggregator_* | covered | made from what the mechanism
    releases, as its `released_measurements` declare
tensorboard/* | wall time | exact | how long a client's examples take
times.csv | exact_* | exact | how long a client's examples take
times.csv | round | covered | a number
summary.json | exact, exact.* | exact | of cohorts, data, time and clients' test
    examples
summary.json | settings.seed, flags.seed | secret | there only if it was given
summary.json | final_* | covered | the model, on test examples of no client
summary.json | task, task_options, mechanism, mechanism_options, measure, settings,
    settings.*, flags, flags.*, rounds, stopped_early, epsilon, delta,
    accounting_method, relation, trust, remarks, lower_is_better, noise_multiplier,
    noise_stream, groups, min_separation, planned_participations, dimension, population,
    versions, git, *link_bits_per_*, compression_rate | covered | settings, what follows
    from them, and their cost
model.keras | * | covered | what the mechanism releases
report.html | Exact values | exact | what is exact in the files above
report.html | * | covered | the rest, without a seed
checkpoints/* | * | secret | the seed, and exact rows, times and participations
manifest.json | * | secret | the seed, and the digest of the data
worker.log | * | exact | what TFF's worker says of its computations
.lock | * | covered | the number of a process
stdout | exact: * | exact | the lines that begin so
stdout | * | covered | settings, their cost, and final metrics
stderr | exact *, exact: *, error: TFF's worker *, error: The data file * | exact | of
    the progress bar and of unusable data
stderr | * | covered | the rest, such as why a run ends
"""


def _entries(text: str) -> Iterator[Output]:
    """The lines of the list; an indented line continues the one before."""
    for line in text.strip().replace("\n    ", " ").splitlines():
        places, names, kind_of, why = line.split(" | ")
        yield Output(tuple(places.split(", ")), tuple(names.split(", ")), kind_of, why)


LIST = tuple(_entries(_TEXT))
_STREAMS = ("stdout", "stderr")
# Patterns of all that a run writes into its output folder.
FILES = tuple(
    dict.fromkeys(p for entry in LIST for p in entry.places if p not in _STREAMS)
)


def kind(place: str, name: str = "*", declared: Collection[str] = ()) -> str:
    """The kind of an output: "covered", "exact" or "secret".

    Args:
      place: A file in the output folder, or a stream.
      name: The column, tag, key or part; "*" for the whole.
      declared: The mechanism's `released_measurements`.

    Raises:
      KeyError: If the list has no such output, or the mechanism declares no such
        measurement.
    """
    measured = name[len(_MEASURED) :] if name.startswith(_MEASURED) else None
    if measured is None or name == measured_column(measured, declared):
        for entry in LIST:
            if _fits(place, entry.places) and _fits(name, entry.names):
                return entry.kind
    raise KeyError(f"{name} of {place} is not on the list of what is covered")


def _fits(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def measured_column(name: str, declared: Collection[str] = ()) -> str:
    """The column of an aggregator's measurement.

    Args:
      name: Name of the measurement.
      declared: The mechanism's `released_measurements`.
    """
    if name == _DOWNLINK or (name in declared and not name.startswith(MARK)):
        return f"{_MEASURED}{name}"
    return f"{MARK}{_MEASURED}{plain(name)}"


def plain(name: str) -> str:
    """A name without the mark of exact values."""
    return name[len(MARK) :] if name.startswith(MARK) else name


def column(row: Mapping[str, Any], name: str) -> Optional[str]:
    """Name of a column in a row, with or without `exact_`; None if it is missing."""
    return next((each for each in (name, MARK + name) if each in row), None)


def value(row: Mapping[str, Any], name: str) -> Any:
    """Value of a column, named with or without `exact_`; None if it is missing."""
    key = column(row, name)
    return None if key is None else row[key]


def plain_names(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of metrics.csv or times.csv with the marks of exact columns removed."""
    return {plain(name): cell for name, cell in row.items()}


def plain_keys(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The content of summary.json with the exact keys beside the others."""
    unmarked = {name: part for name, part in summary.items() if name != KEY}
    return {**unmarked, **summary.get(KEY, {})}


def without_exact(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that are not marked."""
    return {name: cell for name, cell in row.items() if not name.startswith(MARK)}


def table(kinds: Collection[str] = (COVERED, EXACT, SECRET)) -> str:
    """The list as a table for the documentation; many names are several lines."""
    lines = ["| where | what | is | since it is |", "| --- | --- | --- | --- |"]
    for places, names, kind_of, why in LIST:
        if kind_of in kinds:
            size = math.ceil(len(names) / math.ceil(len(names) / _NAMES_IN_A_CELL))
            for first in range(0, len(names), size):
                part = names[first : first + size]
                what = "all" if part == ("*",) else _quoted(part)
                lines.append(f"| {_quoted(places)} | {what} | {kind_of} | {why} |")
    return "\n".join(lines) + "\n"


def _quoted(names: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
