# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The tools that measure what runs and their clients take count all of it."""

import subprocess
import sys

import pytest

from experiments.papers import medium, result_rows
from tests.experiments import programs
from tests.experiments.papers import test_medium
from tools import paper_client_costs, run_costs

# A program that ends at once, and leaves behind what computes for half a second.
PROGRAM = """
import subprocess, sys
burn = "import time\\nwhile time.process_time() < 0.5: pass"
subprocess.Popen([sys.executable, "-S", "-c", burn], start_new_session=True)
"""
# Alone in its process: the tool waits for every child that there is.
MEASURE = """
import pathlib, sys
from tools import paper_client_costs, run_costs
run_costs.adopt_orphans()
log = pathlib.Path(sys.argv[1])
seconds, _ = run_costs.measure([sys.executable, "-S", "-c", sys.argv[2]], log)
print(seconds)
again, _ = run_costs.measure([sys.executable, "-S", "-c", ""], log)
print(again)
"""


def measured(program, folder):
    return subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder / "log"), program],
        env=programs.environment(),
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
    )


def test_what_outlives_a_program_is_counted(tmp_path):
    done = measured(PROGRAM, tmp_path)
    first, second = map(float, done.stdout.split())
    assert 0.5 <= first < 5 and second < 0.4, done.stderr


def test_a_program_that_fails_is_no_measurement(tmp_path):
    done = measured("raise SystemExit('no such thing')", tmp_path)
    assert not done.stdout and "found exit code 1" in done.stderr
    assert "no such thing" in done.stderr


@pytest.mark.parametrize(
    ("setting", "task"), [("cnn", medium.MNIST), ("docs", medium.DOCS)]
)
def test_its_flags_are_those_of_a_figure(setting, task):
    [flags] = {
        tuple(sorted((k, str(v)) for k, v in work.flags.items() if k != "seed"))
        for work in test_medium.runs("csgm_fig2")
        if work.labels["task"] == task
        and work.labels["epsilon"] == 8
        and work.labels["compression_rate"] == 1
    }
    own = {name: str(value) for name, value in run_costs.SETTINGS[setting].items()}
    assert {**dict(flags), "epsilon": "8"} == own


def test_a_table_of_tiny_runs(tmp_path):
    table = tmp_path / "costs.csv"
    done = subprocess.run(
        [sys.executable, "-c", TINY, str(table)],
        env=programs.environment(),
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = result_rows.read_csv(table)
    assert tuple(found[0]) == run_costs.Cost._fields
    assert [row["seed"] for row in found] == ["1", "2"]
    assert {(row["cohort_size"], row["rounds"]) for row in found} == {("2", "1")}
    # More than imports alone, and no more than all processors could have given.
    assert all(float(row["processor_seconds"]) > 1 for row in found)


TINY = """
import sys
from tools import paper_client_costs, run_costs
run_costs.SETTINGS = {"tiny": {
    "task": "synthetic", "num_clients": 4, "model": "small_cnn", "cohort_size": 2,
    "rounds": 9, "mechanism": "gaussian", "noise_multiplier": 1,
}}
run_costs.main([sys.argv[1], "--settings=tiny", "--seeds=1,2", "--rounds=1"])
"""


def test_two_runs_of_a_seed_differ_in_their_cohorts(tmp_path, monkeypatch):
    given = []

    def train(flags, folder):
        given.append(flags)
        rounds, size = flags["rounds"], flags["cohort_size"]
        columns = {"round": range(rounds), "clients": [size] * rounds}
        result_rows.write_columns(folder / "run/metrics.csv", columns)
        return 7.0 + 0.5 * rounds * size, 10.0

    monkeypatch.setattr(run_costs, "train", train)
    monkeypatch.setattr(run_costs, "adopt_orphans", lambda: None)
    sizes = paper_client_costs.Sizes(population=3, examples=4, few=2, many=5)
    monkeypatch.setitem(paper_client_costs.SIZES, "emnist", sizes)
    found = list(paper_client_costs.costs(["emnist"], [1, 2], tmp_path))
    assert [cost.client_processor_seconds for cost in found] == [0.5, 0.5]
    assert [(cost.few_clients, cost.many_clients) for cost in found] == [(4, 10)] * 2
    assert (tmp_path / "emnist_all.sqlite").exists()
    same = [
        {k: v for k, v in flags.items() if k not in ("seed", "cohort_size")}
        for flags in given
    ]
    assert same == [same[0]] * 4 and same[0]["data_dir"] == tmp_path
    assert [(f["seed"], f["cohort_size"]) for f in given] == [
        *((1, 2), (1, 5)),
        *((2, 2), (2, 5)),
    ]
