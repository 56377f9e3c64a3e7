# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The list of everything that a run writes, and of the part that its guarantee covers.

The event of a run describes the release of the model after each round. Functions of the
model and of public settings are covered too. Everything else that depends on the
clients' data is exact: a column, a tag or a file whose name begins with `exact_`, and a
key below `exact`. A file that holds the seed is secret, since the noise can be
subtracted with it. The settings and the number of clients N are public. Without a
private mechanism there is no event, and nothing is covered.

    privacy_coverage.FILES                            # patterns of all files
    privacy_coverage.plain_names(row)["train_loss"]   # exact or not
"""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Optional

from dpfl import reading

# Prefix of the names of exact values.
MARK = "exact_"
# Choices of what is measured: functions of the release alone, or also exact sums over
# clients, which secure aggregation would hide and only a simulation can see.
RELEASED, EXACT_FOR_SIMULATION = "released", "exact_for_simulation"
MEASURES = (RELEASED, EXACT_FOR_SIMULATION)
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


def _entries() -> Iterator[Output]:
    """The lines of the list's file, of which the first that matches a name counts."""
    for row in reading.read_csv(pathlib.Path(__file__).with_suffix(".csv")):
        places, names = row["places"].split(", "), row["names"].split(", ")
        yield Output(tuple(places), tuple(names), row["kind"], row["why"])


LIST = tuple(_entries())
_STREAMS = ("stdout", "stderr")
# Patterns of all that a run writes into its output folder.
FILES = tuple(
    dict.fromkeys(p for entry in LIST for p in entry.places if p not in _STREAMS)
)


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
