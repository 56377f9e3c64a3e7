# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The table of computed numbers is what the code computes today."""

from pathlib import Path

import pytest

from experiments.papers import result_rows
from tools import exact_numbers

TABLE = Path(__file__).resolve().parents[2] / "docs/results/exact_numbers.csv"
# Left out: streams with free entries, and the optimal factorization, which take longest.
SLOW = (exact_numbers.SLOW, "optimal dense C")


def test_the_table_of_exact_numbers():
    table = [
        row
        for row in result_rows.read_csv(TABLE)
        if not any(word in row["number"] for word in SLOW)
    ]
    found = list(exact_numbers.numbers(is_slow=False))
    assert [(one.page, one.number, one.format) for one in found] == [
        (row["page"], row["number"], row["format"]) for row in table
    ]
    for one, row in zip(found, table):
        assert one.value == pytest.approx(float(row["value"]), rel=2e-4), row
