# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import contextlib
import functools
import json
import mmap
import os
import subprocess

import pytest
import tensorflow_federated as tff
from absl import flags
from absl.testing import flagsaver

from dpfl import files, machine
from dpfl.aggregators.factory import CodecFactory
from experiments import benchmark
from experiments.benchmarks import harness, noise, programs, rounds, vectors
from tests import forks
from tests.refusals import names, refuses
from tools import soak

TINY = {
    **{"dimension": 50, "clients": 2, "dome_clients": 2, "model": 1600},
    **{"matrix_rounds": 32, "loop_rounds": 40, "training_rounds": 4},
    **{"messages": ((100, 7, 4096),)},
}


def tiny(worker=None, **more):
    return harness.settings(True, 1, worker=worker, **{**TINY, **more})


def test_rows_go_to_a_file(tmp_path):
    output = tmp_path / "rows.csv"
    given = ("--rows=masks", "--quick", "--repeats=1", f"--output={output}")
    done = forks.run("experiments.benchmark", *given, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert names(done.stderr, "small")
    first, second = files.read_csv(output)
    for found in (first, second):
        assert found["run"] == "masks" and found["row"] in done.stdout
        assert float(found["seconds"]) > 0 and not found["mebibytes"]
        assert found["of"] == first["row"] and found["repeats"] == "1"


def test_full_size_rows_carry_no_smoke_test_warning(tmp_path, monkeypatch, capsys):
    measured = [{"name": "n=10", "bytes": 3 * 2**19}]
    asked = []

    def measure(group, settings):
        asked.append((group, *settings.round_rows, settings.repeats))
        return measured

    monkeypatch.setattr(harness, "measure", measure)
    monkeypatch.setattr(benchmark, "apart", lambda measure, processes: measure())
    output = tmp_path / "rows.json"
    run(monkeypatch, "--rows=cohorts,plain,csgm", f"--output={output}")
    assert asked == [(name, "plain", "csgm", 7) for name in ("rounds", "cohorts")]
    expected = [{"run": name, **measured[0]} for name in ("rounds", "cohorts")]
    assert json.loads(output.read_text()) == expected
    out, err = capsys.readouterr()
    assert "n=10" in out and "1.5" in out and "mean nothing" not in err


def run(monkeypatch, *given):
    monkeypatch.setattr(benchmark.start, "import_tensorflow", lambda: None)
    with flagsaver.flagsaver():
        flags.FLAGS(["benchmark", *given])
        benchmark.main(["benchmark"])


def all_but_sketches(group, settings):
    if group == "sketches":
        raise OSError("no")
    return [{"name": "all", "bytes": 2**20}]


def test_rows_are_kept_if_a_later_group_fails(tmp_path, monkeypatch):
    output = tmp_path / "rows.csv"
    monkeypatch.setattr(harness, "measure", all_but_sketches)
    with refuses(OSError, "no"):
        run(monkeypatch, "--rows=masks,sketches", f"--output={output}")
    assert [row["run"] for row in files.read_csv(output)] == ["masks"]


def own_memory(size):
    # Of the kernel: an allocator may have as much of what earlier tests freed.
    with mmap.mmap(-1, size) as held:
        held.write(b"1" * size)
    return [{"name": f"{size}", "bytes": machine.peak_bytes(os.getpid())}]


def test_memory_peaks_are_independent_between_groups():
    [large] = benchmark.apart(functools.partial(own_memory, 2**28))
    [small] = benchmark.apart(functools.partial(own_memory, 2**20))
    if large["bytes"] is None:
        pytest.skip("this kernel keeps no peak")
    assert large["bytes"] - small["bytes"] > 2**27


def test_repeats_in_processes_give_medians_and_ranges():
    seconds, ratios = (3.0, 1.0, 2.5), (1.5, 1.0, 1.25)
    found = [
        [
            {"name": "a", "seconds_median": s, "ratio": r, "baseline": "a"},
            {"name": "b", "bytes": 2**20 * s, "ratio": None, "baseline": None},
        ]
        for s, r in zip(seconds, ratios)
    ]
    first, second = map(benchmark.as_measured, harness.over_processes(found))
    columns = ("seconds", "least", "most", "ratio", "low", "high", "processes")
    assert [first[name] for name in columns] == [2.5, 1, 3, 1.25, 1, 1.5, 3]
    columns = ("mebibytes", "least", "most", "ratio", "low")
    assert [second[name] for name in columns] == [2.5, 1, 3, None, None]
    with refuses(ValueError, "rows"):
        harness.over_processes([found[0], found[1][:1]])


def number_of_process():
    return [{"name": "a", "bytes": os.getpid()}]


def test_each_process_measures_anew():
    [row] = benchmark.apart(number_of_process, 2)
    assert len({row["least"], row["most"], os.getpid()}) == 3


def check_rows(rows):
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names) > 1
    for row in rows:
        if "bytes" in row:
            assert 2**20 < row["bytes"] < 2**36
        else:
            assert row["seconds_median"] > 0 and row["repeats"] == 1
            assert row["baseline"] in names


# What TensorFlow and TFF have traced, by what it is of.
TRACED = {}


def trace_once(monkeypatch, module, name, key=lambda *args, **options: ()):
    """Lets rows share what is traced where their keys are equal."""
    build = getattr(module, name)

    def built(*args, **options):
        own = (name, *key(*args, **options))
        if own not in TRACED:
            TRACED[own] = build(*args, **options)
        return TRACED[own]

    monkeypatch.setattr(module, name, built)


def groups_of(module):
    return [name for name, group in harness.GROUPS.items() if group.module == module]


@pytest.mark.parametrize("name", groups_of("vectors") + groups_of("noise"))
def test_rows_of_vectors(tff_secure_context, tff_worker, monkeypatch, name):
    def is_ours(factory, *_, **options):
        return (factory and isinstance(factory, CodecFactory), *options)

    def block(stream):
        return (getattr(stream, "block_rounds", None),)

    trace_once(monkeypatch, vectors, "_aggregation", is_ours)
    trace_once(monkeypatch, noise, "_stream_call", block)
    check_rows(harness.measure(name, tiny(tff_worker)))


@pytest.fixture
def one_process(tff_secure_context, monkeypatch):
    trace_once(monkeypatch, rounds, "training_process")


@pytest.mark.parametrize("name", groups_of("rounds"))
def test_rows_of_rounds(one_process, tff_worker, monkeypatch, name):
    check_rows(harness.measure(name, tiny(tff_worker)))


def test_rows_of_a_round(one_process, tff_worker, monkeypatch):
    def key(model_fn, **options):
        if callable(model_fn):
            assert model_fn().trainable_variables
        return ()

    algorithms = tff.learning.algorithms
    trace_once(monkeypatch, algorithms, "build_unweighted_fed_avg", key)
    own = contextlib.nullcontext(tff_worker)
    monkeypatch.setattr(rounds.worker_lib, "start", lambda: own)
    # The steps alone are those of digits; the functional model is traced in less time.
    asked = ["tff_iterator", "tff_default", *harness.ROUND_ROWS[3:]]
    settings = tiny(tff_worker, round_rows=asked)
    rows = {row["name"]: row for row in harness.measure("rounds", settings)}
    assert list(rows) == asked
    assert rows["none"]["ratio"] is None and rows["none"]["baseline"] == "plain"
    # One turn, so the ratio is that of the two times.
    for name in ("csgm", "gaussian"):
        assert rows[name]["baseline"] == "none"
        expected = rows[name]["seconds_median"] / rows["none"]["seconds_median"]
        assert abs(rows[name]["ratio"] / expected - 1) < 1e-9
    for name in harness.MEMORY_ROWS:
        assert 2**20 < rows[name]["bytes"] < 2**36


class QuickRun(contextlib.nullcontext):
    """Rounds of a training that do nothing."""

    def __init__(self, plan, say, on_round):
        self._plan, self._on_round = plan, on_round
        super().__init__(self)

    def train(self):
        for done in range(self._plan.last_round + 1):
            self._on_round(done, self._plan.last_round)


def test_rows_of_a_long_run(monkeypatch):
    monkeypatch.setattr("dpfl.training.run.Run", QuickRun)
    rows = harness.measure("long_run", tiny())
    assert len(rows) == 4
    for time, memory in (rows[:2], rows[2:]):
        assert 0 < time["seconds_median"] < 60 and time["ratio"] > 0
        assert 2**20 < memory["bytes"] < 2**36 and 0.5 < memory["ratio"] < 2


def test_compared_functions_alternate():
    calls = []
    functions = {name: functools.partial(calls.append, name) for name in "ab"}
    rows = harness.compare(functions, 2, {"a": None, "b": "a"})
    # Once each before the clock starts, then in turns.
    assert calls == ["a", "b"] * 3
    assert [row["baseline"] for row in rows] == [None, "a"]
    assert rows[0]["ratio"] is None and rows[1]["ratio"] > 0
    [alone] = harness.compare({"b": calls.clear}, 1, {"b": "a"})
    assert alone["ratio"] is None
    assert {row["baseline"] for row in harness.compare(functions, 1)} == {"a"}


def test_calibrations_are_never_of_one_length_twice(monkeypatch):
    asked = []

    def calibrate(mechanism, participation, length, *_):
        asked.append((mechanism.cohort_size, getattr(mechanism, "bits", None), length))

    monkeypatch.setattr(programs.planning, "calibrate", calibrate)
    rows = harness.measure("calibration", tiny(most_warm_ups=1))
    assert [row["name"] for row in rows] == [
        "calibrate Gaussian",
        "calibrate 1e2, 7 bits",
        "calibrate 1e2, 7 bits, sampled",
    ]
    # A warm-up and a turn.
    assert asked.count((100, 7, 4096)) == asked.count((100, 7, 4097)) == 2


def test_factorization_rows_compare_speed_and_memory():
    plain, fast, memory = harness.measure("factorization", tiny())
    assert plain["baseline"] is None and fast["baseline"] == plain["name"]
    assert 0 < fast["ratio"] == fast["seconds_median"] / plain["seconds_median"]
    assert memory["bytes"] > 1e6


def test_a_run_is_compared_with_an_import(monkeypatch):
    """A program that does nothing of it stands for the training."""
    monkeypatch.setattr(programs, "_IMPORTS", ("sys", "dpfl"))
    program = "import sys; '--cohort_size=0' in sys.argv and sys.exit(2)"
    program += "; assert sys.argv[-1].startswith('--output_dir='); sum(range(10**7))"
    monkeypatch.setattr(programs, "_TRAIN", ("-c", program))
    imported, ours, trained, refused = harness.measure("start_up", tiny())
    assert imported["name"] == trained["baseline"]
    assert ours["name"] == "start_up: import of dpfl"
    assert refused["seconds_median"] < trained["seconds_median"]
    # Programs that ended count.
    assert trained["cpu_seconds_median"] > imported["cpu_seconds_median"] > 0
    assert trained["ratio"] > 1


WIDE = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[-1].partition("=")[2])
folder.mkdir()
(folder / "times.csv").write_text("round,exact_seconds\\n1,9\\n2,3\\n3,5\\n")
print("memory: at most about 0.5 GB", flush=True)
filled = bytearray(200_000_000)
# What a fork shares counts once.
os.fork()
# It is measured every so often.
time.sleep(1.5)
"""


def test_wide_model_memory_matches_its_estimate(monkeypatch):
    some = dict.fromkeys(("none", "gaussian, again"), ())
    monkeypatch.setattr(programs, "_WIDE", ("-c", WIDE))
    monkeypatch.setattr(programs, "_OF_MECHANISMS", some)
    run, again = harness.measure("parameters", tiny())
    assert run["seconds_median"] == 4 and run["repeats"] == 2
    assert 0.4 < run["ratio"] == run["bytes"] / 5e8 < 0.6
    assert again["name"] == "gaussian, again, 2nn of 5 units"


def test_failed_run_raises_instead_of_a_row():
    train = programs.start_up(tiny(train_flags=("--no_such_flag",)))
    with refuses(RuntimeError, "no_such_flag"):
        train["start_up: dpfl-train"]()


def test_a_round_of_the_stub_moves_its_weights(tmp_path):
    plan = programs.make_plan(tmp_path, 3)
    moved = after_three_rounds(plan, tmp_path)
    assert moved.any()
    # Going on changes nothing.
    assert (after_three_rounds(plan, tmp_path) == moved).all()


def after_three_rounds(plan, folder):
    """The weights of the newest checkpoint, which are its last array."""
    assert programs.run_stub(plan, folder).round_index == 3
    newest = max((folder / "checkpoints").glob("checkpoint-*"))
    arrays = files.read_arrays(newest)[1]
    return arrays[max(arrays)]


def test_steps_of_a_card_have_flags_that_exist_and_wait_for_time(tmp_path):
    """A Python that prints its words stands for one with a card."""
    python, folder = tmp_path / "python", tmp_path / "results"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)

    def card(minutes):
        own = {**os.environ, "PYTHON": str(python), "MINUTES": minutes}
        command = ["sh", forks.ROOT / "tools/card.sh", folder, "--quick"]
        return subprocess.run(command, env=own, stdout=subprocess.PIPE, text=True)

    without_time = card("0")
    assert without_time.returncode == 1 and not list(folder.iterdir())
    assert without_time.stdout.endswith("lstm_peers thousand aggregation integers\n")
    assert card("9").returncode == 0 and card("9").stdout == "done\n"
    steps = [said.read_text().splitlines() for said in folder.glob("*.txt")]
    assert len(steps) == 9
    for _, module, *words in steps:
        if module == "tools.soak":
            assert soak.arguments(words).kills == 1
        elif module == "experiments.benchmark":
            with flagsaver.flagsaver():
                assert flags.FLAGS(["benchmark", *words])[1:] == []
        elif module == "pytest":
            paths = [word for word in words if word.startswith("tests/")]
            assert all((forks.ROOT / path).exists() for path in paths)
        else:
            assert module == "experiments.train" and "--engine=jax" in words
