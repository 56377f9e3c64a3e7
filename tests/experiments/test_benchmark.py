# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import json

import pytest

from experiments.benchmarks import rounds
from tests import forks
from tests.experiments import programs


def test_every_row_runs(tmp_path):
    output = tmp_path / "rows.json"
    names = [*rounds.NAMES, "masks", "digits_rounds", "sizes", "workers", "cohorts"]
    flags = ("--quick", "--repeats=1", "--json", f"--output={output}")
    rows = f"--rows={','.join(names)}"
    done = forks.run("experiments.benchmark", *flags, rows, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("sizes so small the numbers mean nothing\n")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert list(rows.values()) == json.loads(output.read_text())
    for name in ("plain", "tff_default", "tff_iterator", "data_sent", "mean", "none"):
        assert rows[name]["seconds_median"] > 0
    assert rows["plain"]["ratio"] is None
    # One turn, so the ratio is that of the two times.
    for name in ("csgm", "gaussian"):
        assert rows[name]["baseline"] == "none"
        expected = rows[name]["seconds_median"] / rows["none"]["seconds_median"]
        assert abs(rows[name]["ratio"] / expected - 1) < 1e-9
    for name in ("memory_python", "memory_worker"):
        assert 2**20 < rows[name]["bytes"] < 2**36
    assert any(name not in names for name in rows)


@pytest.mark.parametrize("quick", [True, False])
def test_numbers_are_said_to_mean_nothing_where_they_do(quick):
    flags = ("--rows=masks", "--repeats=1", *["--quick"] * quick)
    done = forks.run("experiments.benchmark", *flags)
    assert done.returncode == 0 and "mean nothing" not in done.stdout
    assert done.stderr.count("the numbers mean nothing") == quick


def test_an_unknown_row_is_named():
    done = programs.run("benchmark", "--rows=plain,fast")
    assert done.returncode == 2
    assert "'fast'" in done.stderr


def test_the_model_of_the_cost_target():
    model = rounds.cnn_without_dropout(0)
    assert model.count_params() == 1_018_174
    assert not any("dropout" in layer.name for layer in model.layers)
