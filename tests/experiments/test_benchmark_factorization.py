# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import importlib

from experiments import benchmark as binary
from experiments import benchmark_factorization as benchmark


def test_rows_compare_both_ways_and_memory():
    plain, fast, memory = benchmark.optimal(benchmark.Settings(rounds=16, repeats=1))
    assert plain["baseline"] is None and fast["baseline"] == plain["name"]
    assert 0 < fast["ratio"] == fast["seconds_median"] / plain["seconds_median"]
    assert memory["bytes"] > 1e6


def test_every_group_of_rows_is_named():
    for name, groups in binary.GROUPS.items():
        module = importlib.import_module(f"experiments.benchmark_{name}")
        assert tuple(module.ROWS) == groups
        assert module.FULL.repeats > 0 and module.QUICK.repeats > 0
