# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the pages say of time and memory is what docs/results/benchmarks.csv has."""

import re
from pathlib import Path

import pytest

from experiments.benchmarks import groups
from experiments.papers import rows

DOCS = Path(__file__).resolve().parents[2] / "docs"
MEASURED = rows.read_csv(DOCS / "results/benchmarks.csv")
ROUNDS = "rounds"
# Seconds also in milliseconds, mebibytes also in gibibytes.
SCALES = {
    "seconds": (1, 1000),
    "processor_seconds": (1, 1000),
    "ratio": (1,),
    "mebibytes": (1, 1 / 1024),
}
NAMED = re.compile(r"--rows=([\w,]+)")
NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]|\s*bits)")


def texts(row):
    """Returns the ways in which a page may write what a row has."""
    found = set()
    for column, scales in SCALES.items():
        for scale in scales if row[column] else ():
            value = float(row[column]) * scale
            found |= {f"{value:.{digits}f}" for digits in range(4)}
            found |= {f"{value:,.0f}", f"{value:.2g}", f"{value:.3g}"}
    return found


def tables(page):
    """Yields the runs that a table is of, and the numbers in its body."""
    named, head = None, True
    for line in (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            named = None
        if not line.startswith("|"):
            head = True
            for words in NAMED.findall(line):
                named = words.split(",")
        elif head:
            head = not line.startswith("| ---")
        elif named:
            for cell in line.strip("| ").split(" | ")[1:]:
                yield named, NUMBER.findall(cell), line


def of(names):
    """Returns the rows of a --rows, those of a round under the name of their run."""
    runs = {name if name in groups.names() else ROUNDS for name in names}
    return [row for row in MEASURED if row["run"].split(":")[0] in runs]


@pytest.mark.parametrize("page", ["benchmarks", "noise", "sketching", "dome"])
def test_the_tables_of_a_page_are_what_was_measured(page):
    checked = 0
    for names, numbers, line in tables(page):
        known = set().union(*map(texts, of(names)))
        for number in numbers:
            assert number in known, f"{number} in {line}"
            checked += 1
    assert checked > 4


@pytest.mark.parametrize(
    ("page", "run"),
    [
        *(("benchmarks", ROUNDS), ("benchmarks", "digits_rounds")),
        *(("benchmarks", "sizes"), ("benchmarks", "cohorts")),
        *(("benchmarks", "start_up"), ("benchmarks", "long_run")),
        *(("benchmarks", "sketch_aggregation"), ("benchmarks", "factorization")),
        *(("dome", "dome_rounds"), ("dome", "dome_training")),
        *(("noise", "noise_draws"), ("noise", "noise_recurrences")),
    ],
)
def test_a_page_has_what_was_measured(page, run):
    page = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    said = {word.rstrip(".,;:") for word in re.split(r"[\s()|]+", page)}
    found = rows.where(MEASURED, run=run)
    assert found
    for row in found:
        if "values alone" not in row["row"]:
            assert texts(row) & said, row


def test_the_times_of_factorizations_are_what_was_measured():
    page = (DOCS / "factorization.md").read_text(encoding="utf-8")
    heads = {"0": "prefix sum", "0.9": "β = 0.9", "0.99": "β = 0.99"}
    for row in rows.read_csv(DOCS / "results/factorization_time.csv"):
        [line] = [
            line
            for line in page.splitlines()
            if line.startswith(f"| {heads[row['momentum']]}, {row['rounds']} |")
        ]
        said = NUMBER.findall(line.split(" | ", 1)[1])
        columns = ("plain_iterations", "plain_seconds", "iterations", "seconds")
        found = [row[name] for name in (*columns, "ratio", "peak_megabytes")]
        known = [float(text) for text in found if text]
        assert len(said) == len(known)
        for text, value in zip(said, known):
            assert float(text) == pytest.approx(value, rel=0.03)
