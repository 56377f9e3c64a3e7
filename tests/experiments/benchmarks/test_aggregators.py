# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from experiments import benchmark as binary
from experiments.benchmarks import aggregators, harness

SMALL = harness.Settings(dimension=50, clients=3, repeats=2)


@pytest.mark.parametrize("table", sorted(aggregators.ROWS))
def test_rows(tff_context, table):
    rows = aggregators.ROWS[table](SMALL)
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names) > 1
    for row in rows:
        assert set(row) == set(harness.KEYS)
        assert row["baseline"] in names
        assert row["seconds_median"] > 0 and row["repeats"] == 2
        assert row["name"] in binary.table([row])
    assert rows[names.index(rows[0]["baseline"])]["ratio"] == 1


def test_functions_take_turns():
    calls = []
    rows = harness.compare(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, "a", 2
    )
    # Once each before the clock starts, then in turns.
    assert calls == ["a", "b"] * 3
    assert [row["name"] for row in rows] == ["a", "b"]
