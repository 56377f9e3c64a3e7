# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Benchmarks: a harness with the table of groups, and the groups' measurements.

    settings = harness.settings(quick=True, repeats=2)
    rows = harness.measure("masks", settings)

`experiments/benchmark.py` writes the rows of all groups.
"""
