# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import functools
import subprocess

import pytest

from experiments.benchmarks import harness, start_up


def test_a_run_is_compared_with_an_import(monkeypatch):
    """Without a turn before the first, which would only take twice as long."""
    cold = functools.partial(harness.compare, warm_ups=0)
    monkeypatch.setattr(harness, "compare", cold)
    settings = start_up.Settings(start_up.QUICK.flags, repeats=1)
    imported, trained = start_up.start_up(settings)
    assert imported["name"] == trained["baseline"] == start_up.BASELINE
    # Programs that ended: a training imports TFF and goes on.
    assert trained["cpu_seconds_median"] > imported["cpu_seconds_median"] > 1
    assert trained["ratio"] > 1


def test_a_run_that_fails_is_no_row(monkeypatch):
    monkeypatch.setattr(start_up, "_IMPORT", ("-c", ""))
    with pytest.raises(subprocess.CalledProcessError):
        start_up.start_up(start_up.Settings(("--no_such_flag",), repeats=1))


def test_processor_time_of_programs_that_ended_counts():
    before = harness.cpu_seconds()
    start_up._run(("-c", "sum(range(30_000_000))"))
    assert harness.cpu_seconds() - before > 0.2
