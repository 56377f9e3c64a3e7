# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
import json
import os
import subprocess

import pytest
from absl import flags
from absl.testing import flagsaver

from dpfl import accounting, files, machine
from dpfl.training import checkpoint
from experiments import benchmark
from experiments.benchmarks import harness, noise, programs, rounds, trainings, vectors
from tests import forks


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
    kept = files.read_csv(output)
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
    monkeypatch.setattr(benchmark.harness, "measure", all_but_sketches)
    monkeypatch.setattr(benchmark.start, "import_tensorflow", lambda: None)
    words = ["benchmark", "--rows=masks,sketches", f"--output={output}"]
    with flagsaver.flagsaver(), pytest.raises(OSError, match="no"):
        flags.FLAGS(words)
        benchmark.main(words[:1])
    assert [row["run"] for row in files.read_csv(output)] == ["masks"]


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
    for found in noise.recurrences_of(harness.Sizes().matrix_rounds).values():
        assert found.sensitivity().value < 100


def test_the_model_of_the_cost_target():
    model = rounds.cnn_without_dropout(0)
    assert model.count_params() == 1_018_174
    assert not any("dropout" in layer.name for layer in model.layers)


SMALL = dataclasses.replace(
    harness.QUICK,
    **{"dimension": 50, "model": 1600, "repeats": 2, "matrix_rounds": 16},
    **{"loop_rounds": 40, "training_rounds": 4, "messages": ((100, 7, 4096),)},
)
MODULES = {"vectors": vectors, "noise": noise}


def check_rows(rows, repeats=2):
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names) > 1
    for row in rows:
        assert row["name"] in benchmark.table([row])
        if "bytes" in row:
            assert 2**20 < row["bytes"] < 2**36
            continue
        assert row["seconds_median"] > 0 and row["repeats"] in (1, repeats)
        assert row["baseline"] in names


def test_every_group_of_rows_is_named():
    modules = {**MODULES, "programs": programs, "trainings": trainings}
    for name, groups in harness.GROUPS.items():
        assert tuple(modules[name].ROWS) == groups
    assert set(harness.AGGREGATORS) < set(harness.names())


@pytest.mark.parametrize(
    ("module", "group"),
    [(name, group) for name in MODULES for group in harness.GROUPS[name]],
)
def test_rows_of_a_group(tff_secure_context, module, group):
    check_rows(MODULES[module].ROWS[group](SMALL))


def test_rows_of_training_with_dome(tff_secure_context):
    rows = trainings.dome_training(SMALL)
    check_rows(rows)
    sizes = {row["name"]: row["bytes"] for row in rows if "bytes" in row}
    assert sizes["python: with dome"] <= sizes["python: peak with dome"]


@pytest.mark.parametrize("run", [programs.loop_alone, programs.training])
def test_rows_of_a_long_run(run):
    time, memory = run(SMALL)
    assert 0 < time["seconds_median"] < 60 and time["ratio"] > 0
    assert 2**20 < memory["bytes"] < 2**36 and 0.5 < memory["ratio"] < 2


def test_functions_take_turns():
    calls = []
    functions = {name: functools.partial(calls.append, name) for name in "ab"}
    rows = harness.compare(functions, {"a": None, "b": "a"}, 2)
    # Once each before the clock starts, then in turns.
    assert calls == ["a", "b"] * 3
    assert [row["baseline"] for row in rows] == [None, "a"]
    assert rows[0]["ratio"] is None and rows[1]["ratio"] > 0


def test_calibrations_are_never_of_one_length_twice(monkeypatch):
    asked = []

    def calibrate(mechanism, participation, length, *_):
        asked.append((mechanism.cohort_size, getattr(mechanism, "bits", None), length))
        if getattr(mechanism, "bits", None) == 3:
            raise accounting.CalibrationError("too few")

    monkeypatch.setattr(programs.planning, "calibrate", calibrate)
    sizes = dataclasses.replace(SMALL, refused=((100, 3, 4096),), repeats=1)
    rows = programs.calibrations(sizes)
    assert [row["name"] for row in rows] == [
        "calibrate Gaussian",
        "calibrate 1e2, 7 bits",
        "calibrate 1e2, 7 bits, sampled",
        "refuse 1e2, 3 bits",
    ]
    # A warm-up and a turn.
    assert asked.count((100, 7, 4096)) == asked.count((100, 7, 4097)) == 2
    assert asked.count((100, 3, 4096)) == asked.count((100, 3, 4097)) == 1
    with pytest.raises(accounting.CalibrationError):
        programs.calibrations(dataclasses.replace(sizes, messages=sizes.refused))


def test_a_factorization_is_compared_both_ways_and_by_memory():
    plain, fast, memory = programs.optimal(dataclasses.replace(SMALL, repeats=1))
    assert plain["baseline"] is None and fast["baseline"] == plain["name"]
    assert 0 < fast["ratio"] == fast["seconds_median"] / plain["seconds_median"]
    assert memory["bytes"] > 1e6


def test_a_run_is_compared_with_an_import(monkeypatch):
    """Without a turn before the first, which would only take twice as long."""
    cold = functools.partial(harness.compare, warm_ups=0)
    monkeypatch.setattr(harness, "compare", cold)
    imported, trained = programs.start_up(dataclasses.replace(SMALL, repeats=1))
    assert imported["name"] == trained["baseline"]
    # Programs that ended: a training imports TFF and goes on.
    assert trained["cpu_seconds_median"] > imported["cpu_seconds_median"] > 1
    assert trained["ratio"] > 1


def test_a_run_that_fails_is_no_row(monkeypatch):
    monkeypatch.setattr(programs, "_IMPORT", ("-c", ""))
    sizes = dataclasses.replace(SMALL, train_flags=("--no_such_flag",), repeats=1)
    with pytest.raises(subprocess.CalledProcessError):
        programs.start_up(sizes)


def test_a_round_of_the_stub_moves_its_weights(tmp_path):
    plan = programs.make_plan(tmp_path, 3)
    moved = after_three_rounds(plan, tmp_path)
    assert moved.any()
    # Going on changes nothing.
    assert (after_three_rounds(plan, tmp_path) == moved).all()


def after_three_rounds(plan, folder):
    """The weights of the newest checkpoint; participations are before them in it."""
    assert programs.run_stub(plan, folder).round_index == 3
    newest = max((folder / "checkpoints").glob("checkpoint-*"))
    return checkpoint.decode(newest.read_bytes()).arrays[1]
