# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import fnmatch
import math
from pathlib import Path

import pytest

from dpfl import privacy_coverage
from dpfl.privacy_coverage import COVERED, EXACT, SECRET
from tests.refusals import refuses

ROOT = Path(__file__).resolve().parents[1]
# Most names in a cell of the documentation's table.
NAMES_IN_A_CELL = 8


def table(kinds):
    """The list as a table for the documentation; many names are several lines."""

    def quoted(names):
        return ", ".join(f"`{name}`" for name in names)

    lines = ["| where | what | is | since it is |", "| --- | --- | --- | --- |"]
    for places, names, kind, why in privacy_coverage.LIST:
        if kind in kinds:
            size = math.ceil(len(names) / math.ceil(len(names) / NAMES_IN_A_CELL))
            for first in range(0, len(names), size):
                part = names[first : first + size]
                what = "all" if part == ("*",) else quoted(part)
                lines.append(f"| {quoted(places)} | {what} | {kind} | {why} |")
    return "\n".join(lines) + "\n"


def kind(place, name="*", declared=()):
    """The kind of an output: the first line of the list that has it says it.

    Args:
      place: A file in the output folder, or a stream.
      name: The column, tag, key or part; "*" for the whole.
      declared: The mechanism's `released_measurements`.
    """
    prefix = "aggregator_"
    measured = name[len(prefix) :] if name.startswith(prefix) else None
    if measured is None or name == privacy_coverage.measured_column(measured, declared):
        for entry in privacy_coverage.LIST:
            if fits(place, entry.places) and fits(name, entry.names):
                return entry.kind
    raise KeyError(f"{name} of {place} is not on the list of what is covered")


def fits(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        ("docs/training.md", (COVERED, EXACT, SECRET)),
        ("docs/sharp_edges.md", (EXACT, SECRET)),
    ],
)
def test_documentation_lists_every_output(page, kinds):
    text = table(kinds)
    assert text in (ROOT / page).read_text(encoding="utf-8"), text


@pytest.mark.parametrize(
    ("place", "name", "expected"),
    [
        ("metrics.csv", "aggregator_noise_stddev", COVERED),
        ("summary.json", "settings.seed", SECRET),
        ("summary.json", "settings.rounds", COVERED),
        ("checkpoints/checkpoint-00000001", "*", SECRET),
        ("stderr", "exact loss 0.5", EXACT),
    ],
)
def test_every_output_has_a_coverage_kind(place, name, expected):
    assert kind(place, name, ("noise_stddev",)) == expected


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("metrics.csv", "train_loss"),
        ("metrics.csv", "aggregator_mean_update_norm"),
        ("clients.csv", "*"),
    ],
)
def test_unlisted_output_is_refused(place, name):
    with refuses(KeyError, name, place):
        kind(place, name, ("noise_stddev",))


@pytest.mark.parametrize("name", ["clients", "exact_clients", "of_a_new_mechanism"])
def test_unlisted_measurement_counts_as_exact(name):
    column = privacy_coverage.measured_column(name, ["other", "exact_clients"])
    assert column == f"exact_aggregator_{name.replace('exact_', '')}"
    assert kind("metrics.csv", column) == EXACT
