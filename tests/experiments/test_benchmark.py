# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import functools
import json
import os

import pytest
from absl import flags
from absl.testing import flagsaver

from dpfl import machine
from experiments import benchmark
from experiments.benchmarks import noise, rounds
from experiments.papers.result_rows import read_csv
from tests import forks
from tests.experiments import programs


def test_every_row_runs(tmp_path):
    output = tmp_path / "rows.json"
    names = [*rounds.NAMES, "masks", "digits_rounds", "sizes", "workers", "cohorts"]
    given = ("--quick", "--repeats=1", "--json", f"--output={output}")
    rows = f"--rows={','.join(names)}"
    done = forks.run("experiments.benchmark", *given, rows, folder=tmp_path)
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
def test_numbers_are_said_to_mean_nothing_where_they_do(quick, tmp_path):
    output = tmp_path / "rows.csv"
    given = ("--rows=masks", "--repeats=1", f"--output={output}", *["--quick"] * quick)
    done = forks.run("experiments.benchmark", *given, "--json", folder=tmp_path)
    assert done.returncode == 0 and "mean nothing" not in done.stdout
    assert done.stderr.count("the numbers mean nothing") == quick
    kept = read_csv(output)
    for found, row in zip(kept, json.loads(done.stdout)):
        assert (found["run"], found["row"]) == (row["run"], row["name"])
        assert float(found["seconds"]) == pytest.approx(row["seconds_median"], rel=1e-3)
        assert found["of"] == (row["baseline"] or "") and not found["mebibytes"]
        assert int(found["repeats"]) == row["repeats"]


def test_a_table_of_memory_is_in_mebibytes():
    rows = [{"run": "cohorts", "name": "n=10", "bytes": 3 * 2**19}]
    assert benchmark.as_csv(rows).splitlines()[1] == "cohorts,n=10,,,,,1.5,"


def all_but_sketches(group, repeats, quick):
    if group == "sketches":
        raise OSError("no")
    return [{"name": "all", "bytes": 2**20}]


def test_what_was_measured_is_kept_if_the_next_group_fails(tmp_path, monkeypatch):
    output = tmp_path / "rows.csv"
    monkeypatch.setattr(benchmark.groups, "measure", all_but_sketches)
    monkeypatch.setattr(benchmark.start, "import_tensorflow", lambda: None)
    words = ["benchmark", "--rows=masks,sketches", f"--output={output}"]
    with flagsaver.flagsaver(), pytest.raises(OSError, match="no"):
        flags.FLAGS(words)
        benchmark.main(words[:1])
    assert [row["run"] for row in read_csv(output)] == ["masks"]


def test_an_unknown_row_is_named():
    done = programs.run("benchmark", "--rows=plain,fast")
    assert done.returncode == 2
    assert "'fast'" in done.stderr


def own_memory(size):
    held = b"1" * size
    return [{"name": f"{len(held)}", "bytes": machine.peak_bytes(os.getpid())}]


def test_a_group_has_no_memory_of_the_one_before_it():
    [large] = benchmark.apart(functools.partial(own_memory, 2**28))
    [small] = benchmark.apart(functools.partial(own_memory, 2**20))
    if large["bytes"] is None:
        pytest.skip("this kernel keeps no peak")
    assert large["bytes"] - small["bytes"] > 2**27


def test_noise_of_the_full_size_fits_into_sums():
    for found in noise.recurrences_of(noise.FULL.rounds).values():
        assert found.sensitivity().value < 100


def test_the_model_of_the_cost_target():
    model = rounds.cnn_without_dropout(0)
    assert model.count_params() == 1_018_174
    assert not any("dropout" in layer.name for layer in model.layers)
