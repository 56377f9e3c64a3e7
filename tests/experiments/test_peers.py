# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
import multiprocessing
import sys
import types

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from dpfl import files
from dpfl.tasks import load_task
from experiments import benchmark
from experiments.benchmarks import harness, peers, rounds, turns
from tests import forks
from tests.experiments.test_effects import SLEEP
from tests.refusals import refuses

WORK = turns.work("cnn_50", True)


def run(*given):
    with flagsaver.flagsaver():
        flags.FLAGS(["benchmark", *given])
        benchmark.main(["benchmark"])


def of_sleep(asked, parameters=7):
    """What stands for a process: seconds whose logarithms are hours of sleep."""
    hours = dict(zip(("tff", "dpfl"), map(iter, SLEEP.values())))

    def measured(peer, python, work):
        asked.append((peer, python, work))
        seconds = math.exp(next(hours[peer]))
        more = {"parameters": parameters if peer == "tff" else 7, "examples": 8}
        own = {"seconds": seconds, "processor_seconds": 2 * seconds, **more}
        return {"none": {"first_seconds": 3 * seconds, **own}}

    return measured


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    monkeypatch.setattr(turns.machine, "processors", lambda: 2)


def test_ratios_have_t_intervals_over_alternating_processes(monkeypatch, tmp_path):
    asked, output = [], tmp_path / "peers.csv"
    monkeypatch.setattr(turns, "run", of_sleep(asked))
    given = ("--peers=tff", "--rows=lstm_1000", "--processes=10", f"--output={output}")
    run(*given)
    assert [peer for peer, _, _ in asked] == ["dpfl", "tff"] * 10
    assert {work[:4] for _, _, work in asked} == {("lstm", 1000, 20, 1)}
    own, first, other, other_first = files.read_csv(output)
    assert first["ratio"] == "3.0" and other_first["row"] == "tff, first round"
    assert own["run"] == "lstm_1000" and own["row"] == other["of"] == "dpfl"
    assert not own["ratio"] and other["processes"] == "10"
    # R: t.test(extra ~ group, data = sleep, paired = TRUE)
    for name, log in (("ratio", -1.58), ("low", -2.4598858), ("high", -0.7001142)):
        expected = pytest.approx(math.exp(log), rel=1e-3)
        assert float(other[name]) == expected
        assert float(other[f"processor_{name}"]) == expected


def test_peers_with_other_workload_are_refused(monkeypatch):
    monkeypatch.setattr(turns, "run", of_sleep([], parameters=6))
    with refuses(RuntimeError, "parameters", "dpfl", "tff", 7, 6):
        turns.compare(WORK, {"tff": sys.executable}, 2, "dpfl")


def test_mechanisms_and_processes_of_peers_have_rows(monkeypatch):
    asked = []

    def measured(peer, python, work):
        asked.append((peer, work.processes, list(work.mechanisms)))
        facts = {"seconds": 2.0, "processor_seconds": 1.0, "parameters": 7}
        rows = {name: {**facts, "examples": 8} for name in work.mechanisms}
        return {**rows, "a round of a run": {"seconds": 1.0}} if "_" in peer else rows

    monkeypatch.setattr(turns, "run", measured)
    work = turns.work("cnn_100", True, ["none", "gaussian"])
    rows = turns.compare(work, {"pfl": "python"}, 2, "dpfl_jax")
    once = [("dpfl_jax", 1, ["none", "gaussian"])]
    once += [("pfl", count, ["none"]) for count in (1, 2)]
    assert asked == 2 * once
    found = {row["name"]: row.get("ratio") for row in rows}
    assert list(found) == [
        *("dpfl_jax", "dpfl_jax, gaussian", "dpfl_jax, a round of a run"),
        *("pfl", "pfl, 2 processes"),
    ]
    assert found["dpfl_jax, a round of a run"] == pytest.approx(0.5)


def of_processor(work, peer="tff"):
    """A loop whose rounds take processor time."""
    done = []
    weights = lambda: [np.full([3], len(done)), np.ones([4])]  # noqa: E731
    return peers.PeerLoop(done.append, weights, 5, lambda: 1.5 * len(done))


def test_clients_are_distributed_over_processes(monkeypatch):
    monkeypatch.setitem(peers.LOOPS, "tff", of_processor)
    monkeypatch.setattr(peers.multiprocessing, "get_context", forked)
    work = peers.RoundWork("cnn", 7, 5, 2, 7, processes=2)
    [found] = peers._in_processes("tff", work).values()
    assert found["examples"] == 35 and found["parameters"] == 3
    assert found["processor_seconds"] == 3.0 and found["seconds"] > 0


def forked(kind, get_context=multiprocessing.get_context):
    # A spawned process would not have the loop.
    assert kind == "spawn"
    return get_context("fork")


@pytest.mark.parametrize("peer", ["dpfl", "tff"])
def test_peer_process_trains_and_measures(peer, monkeypatch):
    if peer == "tff":
        # dpfl's process imports everything by itself.
        fork = {"run": lambda command, **_: forks.run(*command[2:]), "DEVNULL": None}
        monkeypatch.setattr(turns, "subprocess", types.SimpleNamespace(**fork))
    [found] = turns.run(peer, sys.executable, WORK).values()
    assert found["parameters"] == 1_018_174 and found["examples"] == 8
    assert 0 < found["seconds"] < 3600 and found["processor_seconds"] > 0


def test_failed_peer_process_raises(tmp_path, monkeypatch, capsys):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    python.chmod(0o755)
    with refuses(RuntimeError, "pfl", python, "no such thing"):
        turns.run("pfl", str(python), WORK)
    # The other test has a process of dpfl.
    own, run = of_sleep([]), turns.run
    with monkeypatch.context() as patch:
        patch.setattr(turns, "run", lambda *a: (own if a[0] == "dpfl" else run)(*a))
        found = turns.compare(WORK, {"pfl": str(python)}, 2, "dpfl")
    failed = ["pfl, failed", "pfl, 2 processes, failed"]
    assert [row["name"] for row in found][2:] == failed
    assert found[2].keys() == {"name"} and "no such thing" in capsys.readouterr().err
    with refuses(RuntimeError, "dpfl", python):
        monkeypatch.setattr(turns.sys, "executable", str(python))
        turns.compare(WORK, {}, 2, "dpfl")
    with refuses(ValueError, "pfl", python, "pip install"):
        turns.interpreters([f"pfl={python}"], "dpfl")
    with refuses(ValueError, "peers", "dpfl"):
        turns.interpreters(["dpfl"], "dpfl")


def test_peers_use_the_same_models_and_examples():
    for case in ("cnn_50", "lstm_50"):
        work = turns.work(case, True)
        task = load_task("synthetic", model=work.model, num_clients=2)
        settings = harness.settings(False, 1, models=(work.model,), cohort=2)
        theirs, ours = (
            peers.keras_model(work),
            rounds.round_task(settings).build_keras_model(),
        )
        theirs.set_weights(ours.get_weights())
        x = next(peers._examples(work))[0]
        np.testing.assert_array_equal(theirs(x, training=True), ours(x))
        assert theirs.count_params() == task.dimension
        assert task.config.batch_size == peers.BATCH
        for pair in peers._examples(work):
            for found, spec in zip(pair, task.element_spec):
                assert found.shape[1:] == spec.shape[1:] and found.dtype == spec.dtype
