# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What the pages say of time and memory is what docs/results/benchmarks.csv has."""

import re
from pathlib import Path

import pytest

from experiments.benchmarks import groups
from experiments.papers import result_rows

DOCS = Path(__file__).resolve().parents[2] / "docs"
MEASURED = result_rows.read_csv(DOCS / "results/benchmarks.csv")
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


def texts(row, columns=tuple(SCALES)):
    """Returns the ways in which a page may write what a row has: two digits at least."""
    found = set()
    for column in columns:
        for scale in SCALES[column] if row[column] else ():
            value = float(row[column]) * scale
            found |= {f"{value:.2g}", f"{value:.3g}", f"{value:.4g}"}
            found |= {f"{value:.{digits}f}" for digits in (1, 2, 3) if value >= 1}
            if value >= 10:
                found |= {f"{value:,.0f}", f"{value:.0f}"}
            if 0.1 <= value < 1:
                found.add(f"{value:.2f}")
            if value == 1:
                found.add("1")
    # Of processor time there are hundredths.
    if row["processor_seconds"]:
        found.add(f"{float(row['processor_seconds']):.2f}")
    return found


def runs_of(names):
    """Returns the runs of what --rows names; the rows of a round are one run."""
    return {name if name in groups.names() else ROUNDS for name in names}


def sections(page):
    """Yields the runs that a part of a page names, and the part."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    for part in re.split(r"^##+ ", text, flags=re.MULTILINE):
        names = [name for words in NAMED.findall(part) for name in words.split(",")]
        if names:
            yield runs_of(names), part


def tables(page):
    """Yields the runs that a table is of, the numbers of a line of it, and the line."""
    for _, part in sections(page):
        named, head = [], True
        for line in part.splitlines():
            if not line.startswith("|"):
                head = True
                found = NAMED.findall(line)
                if found:
                    named = [name for words in found for name in words.split(",")]
            elif head:
                head = not line.startswith("| ---")
            elif named:
                for cell in line.strip("| ").split(" | ")[1:]:
                    yield runs_of(named), NUMBER.findall(cell), line


@pytest.mark.parametrize("page", ["benchmarks", "noise", "sketching", "dome"])
def test_the_tables_of_a_page_are_what_was_measured(page):
    checked = 0
    for runs, numbers, line in tables(page):
        found = [texts(row) for row in MEASURED if row["run"] in runs]
        known = set().union(*found)
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
        *(("benchmarks", "workers"), ("benchmarks", "calibration")),
        *(("benchmarks", "aggregation"), ("benchmarks", "rotations")),
        *(("dome", "dome_rounds"), ("dome", "dome_training")),
        *(("noise", "noise_draws"), ("noise", "noise_recurrences")),
        *(("noise", "noise_dense"), ("noise", "noise_aggregators")),
    ],
)
def test_a_page_has_what_was_measured(page, run):
    part = " ".join(part for runs, part in sections(page) if run in runs)
    said = set(NUMBER.findall(part))
    found = result_rows.where(MEASURED, run=run)
    assert found
    for row in found:
        if row["row"] not in ("data_sent", "calibrate Gaussian"):
            assert texts(row, ("seconds", "mebibytes")) & said, row


def test_the_times_of_factorizations_are_what_was_measured():
    page = (DOCS / "factorization.md").read_text(encoding="utf-8")
    heads = {"0": "prefix sum", "0.9": "β = 0.9", "0.99": "β = 0.99"}
    for row in result_rows.read_csv(DOCS / "results/factorization_time.csv"):
        [line] = [
            line
            for line in page.splitlines()
            if line.startswith(f"| {heads[row['momentum']]}, {row['rounds']} |")
        ]
        said = NUMBER.findall(line.split(" | ", 1)[1])
        columns = ("plain_iterations", "plain_seconds", "iterations", "seconds")
        found = [row[name] for name in (*columns, "ratio", "peak_mebibytes")]
        known = [float(text) for text in found if text]
        assert len(said) == len(known)
        for text, value in zip(said, known):
            assert float(text) == pytest.approx(value, rel=0.03)
