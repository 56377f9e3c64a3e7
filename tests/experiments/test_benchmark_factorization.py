# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

from experiments import benchmark_factorization as benchmark


def test_rows_compare_both_ways_and_memory():
    plain, fast, memory = benchmark.optimal(benchmark.Settings(rounds=16, repeats=1))
    assert plain["baseline"] is None and fast["baseline"] == plain["name"]
    assert 0 < fast["ratio"] == fast["seconds_median"] / plain["seconds_median"]
    assert memory["bytes"] > 1e6
