# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import csv
import functools
import io
import itertools
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from dpfl import files, tasks
from dpfl.tasks import metrics
from dpfl.training import engine
from experiments import client_metrics, effects, run_folders
from tests.experiments import programs
from tests.refusals import names, refuses
from tests.tasks import test_femnist

COMPARED = Path(__file__).with_name("compared")
SUMMARY = files.read_json(COMPARED / "summary.json")
METRICS = (COMPARED / "metrics.csv").read_text()


def make(folder, **changes):
    """A run's folder; `settings`, `flags` and `exact` are merged with the others."""
    folder.mkdir()
    merged = {
        name: {**SUMMARY[name], **changes.pop(name, {})}
        for name in ("settings", "flags", "exact")
    }
    text = json.dumps({**SUMMARY, **merged, **changes})
    (folder / "summary.json").write_text(text)
    (folder / "metrics.csv").write_text(METRICS)
    return str(folder)


def read(*paths):
    return run_folders.read(paths)


compare = functools.partial(programs.forked, "compare")


def test_row_has_final_and_best_of_each_metric(tmp_path):
    (run,) = read(make(tmp_path / "a"))
    found = run_folders.row(run, ["server_lr"], "accuracy")
    assert (found["run"], found["server_lr"]) == ("a", 0.5)
    assert (found["final_accuracy"], found["best_accuracy"]) == (0.75, 0.875)
    assert (found["final_loss"], found["best_loss"]) == (0.5, 0.25)
    assert found["late_change"] == 0.75 - 0.875
    assert run_folders.row(run, [], "loss")["late_change"] == 0.5 - 0.25
    assert (found["epsilon"], found["delta"], found["seconds"]) == (7.5, 1e-3, 12.5)
    # Round 2 has an infinite epsilon, round 1 no accuracy.
    assert run.points("epsilon", "eval_accuracy") == [(7.5, 0.75)]
    assert run.points("round", "eval_accuracy") == [(2, 0.875), (3, 0.75)]


def test_metrics_on_clients_test_examples_are_compared(tmp_path):
    (plain,) = read(make(tmp_path / "a"))
    make(tmp_path / "b", exact={"final_metrics": plain.summary["final_metrics"]})
    content = json.loads((tmp_path / "b/summary.json").read_text())
    del content["final_metrics"]
    (tmp_path / "b/summary.json").write_text(json.dumps(content))
    named = METRICS.replace("eval_", "exact_eval_")
    (tmp_path / "b/metrics.csv").write_text(named)
    (run,) = read(str(tmp_path / "b"))
    assert {**run_folders.row(run, [], "accuracy"), "run": "a"} == run_folders.row(
        plain, [], "accuracy"
    )


def test_released_only_runs_are_compared(tmp_path):
    paths = [make(tmp_path / name) for name in "ab"]
    for name in "ab":
        path = tmp_path / name / "summary.json"
        content = json.loads(path.read_text())
        bits = content.pop("exact")["uplink_bits_per_parameter"]
        content.update(uplink_bits_per_parameter=bits, downlink_bits_per_parameter=bits)
        path.write_text(json.dumps(content))
    runs = read(*paths)
    run_folders.check_one_task(runs)
    assert run_folders.row(runs[0], [], "accuracy")["seconds"] is None


def test_settings_that_differ(tmp_path):
    a = make(tmp_path / "a")
    own = {"mechanism": "dome", "sketch_size": 16, "beta_1": 0.9}
    idle = {"output_dir": "b", "profile": True, "num_processes": 2, "process_id": 0}
    b = make(
        tmp_path / "b",
        settings=own,
        flags={"mechanism": "dome", "sketch_size": 16, **idle},
    )
    # What only DOME has is shown if it was given.
    assert run_folders.different_settings(read(a, b)) == ["mechanism", "sketch_size"]
    assert run_folders.different_settings(read(a)) == []


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"relation": "replaced_by_zeros"}, ["add_or_remove", "replaced_by_zeros"]),
        ({"accounting_method": "rdp"}, ["pld", "rdp"]),
        ({"delta": 1e-5}, [0.001, 1e-05]),
        ({"accounting_method": "rdp", "epsilon": math.inf}, None),
        ({}, None),
    ],
)
def test_incomparable_epsilons_are_noted(tmp_path, changes, parts):
    runs = read(make(tmp_path / "a"), make(tmp_path / "b", **changes))
    notes = run_folders.remarks(runs)
    assert len(notes) == (parts is not None)
    assert parts is None or names(notes[0], *parts)


def test_runs_of_equal_name_are_shown_by_path(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    a, b = make(tmp_path / "x" / "a"), make(tmp_path / "y" / "a")
    assert [run.name for run in read(a, b)] == [a, b]
    with refuses(ValueError, "RUN", a):
        read(a, a)


@pytest.mark.parametrize("files", [None, [], ["manifest.json"]])
def test_a_folder_without_a_finished_run_is_refused(tmp_path, files):
    if files is not None:
        (tmp_path / "a").mkdir()
        for name in files:
            (tmp_path / "a" / name).touch()
    with refuses(ValueError, "RUN", tmp_path / "a"):
        read(str(tmp_path / "a"))


WHOLE = json.dumps(SUMMARY).encode()
SPOILED = {
    **{
        f"no {name}": ("summary.json", json.dumps({**SUMMARY, name: 0}).encode())
        for name in ("final_metrics", "exact")
    },
    "another name": ("summary.json", WHOLE.replace(b'"epsilon"', b'"other"')),
    "no number": ("summary.json", WHOLE.replace(b"7.5", b'"many"')),
    "another byte": ("summary.json", WHOLE.replace(b"digits", b"dig\x80its")),
    "a part": ("summary.json", WHOLE[:-9]),
    "missing": ("metrics.csv", None),
    "words": ("metrics.csv", b"round\nmany\n"),
    "a part of a row": ("metrics.csv", b"round,a\n1\n"),
}


@pytest.mark.parametrize("name, content", SPOILED.values(), ids=SPOILED)
def test_a_damaged_file_is_refused(tmp_path, name, content):
    folder = tmp_path / "a"
    make(folder)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with refuses(ValueError, "RUN", folder):
        read(str(folder))


def test_nonfinite_numbers_are_strings_in_json(tmp_path):
    """As dpfl-train writes them."""
    metrics = {"eval_accuracy": "nan", "eval_loss": "inf"}
    a = make(tmp_path / "a", epsilon="inf", final_metrics=metrics)
    runs = read(a, make(tmp_path / "b"))
    assert run_folders.remarks(runs) == []
    found = run_folders.row(runs[0], [], "accuracy")
    assert math.isnan(found["final_accuracy"]) and found["final_loss"] == math.inf
    assert found["epsilon"] == math.inf


def test_end_to_end(tmp_path):
    # No text, and half of a formula.
    a = make(tmp_path / "a\udcff$")
    b = make(tmp_path / "<b>", settings={"server_lr": 1.0}, flags={"server_lr": 1.0})
    page = tmp_path / "page.html"
    done = compare(a, b, "--csv", f"--html={page}")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    shown = [(row["run"], row["server_lr"]) for row in rows]
    assert shown == [("a\\udcff$", "0.5"), ("<b>", "1.0")]
    text = page.read_text()
    assert text.count("<figure>") == 3 and "&lt;b&gt;" in text and "<b>1" not in text
    assert all(f">bits {way} a parameter<" in text for way in ("up", "down"))


def test_runs_on_other_data_need_a_flag(tmp_path):
    a = make(tmp_path / "a")
    other = {"task_fingerprint": "fedcba9876543210"}
    b = make(tmp_path / "b", exact=other, task="mnist")
    told = "digits", "abcdef01", "mnist", "fedcba98", "--any_task"
    compare(a, b, refused=told)
    done = compare(a, b, "--any_task", "--json")
    assert [row["run"] for row in json.loads(done.stdout)] == ["a", "b"]


def seeds(tmp_path):
    """Runs of two rates with three and two seeds."""
    return [
        make(
            tmp_path / f"{rate}-{seed}",
            flags={"server_lr": rate, "seed": seed},
            final_metrics={"eval_accuracy": rate + seed * way, "eval_loss": 0.5},
        )
        for rate, number, way in ((0.5, 3, 0.01), (0.25, 2, -0.01))
        for seed in range(number)
    ]


def test_gains_over_a_baseline(tmp_path):
    page = tmp_path / "page.html"
    done = compare(*seeds(tmp_path), "--baseline=0.5-1", "--csv", f"--html={page}")
    base, other = csv.DictReader(io.StringIO(done.stdout))
    assert (base["server_lr"], base["seeds"], base["effect"]) == ("0.5", "3", "")
    assert (other["server_lr"], other["seeds"]) == ("0.25", "2")
    low, size, high = (float(other[name]) for name in ("low", "effect", "high"))
    assert (low + high) / 2 == pytest.approx(size) == pytest.approx(-0.26)
    # Of two seeds that both have t is 12.706.
    assert high - size == pytest.approx(12.706 * 0.01, rel=1e-4)
    assert other["seeds_of_effect"] == "2"
    assert "<h1>5 runs</h1>" in page.read_text()
    assert "server_lr=0.25, seed=1" in page.read_text()


def test_single_run_has_no_interval_and_unknown_baseline_is_refused(tmp_path):
    a, b = make(tmp_path / "a"), make(tmp_path / "b", flags={"server_lr": 1.0})
    done = compare(a, b, "--baseline=a", "--json")
    _, other = json.loads(done.stdout)
    assert (other["effect"], other["low"], other["high"]) == (0, None, None)
    for folder in (a, f"{a}/", tmp_path / "b" / ".." / "a"):
        again = compare(a, b, f"--baseline={folder}", "--json")
        assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr
    compare(
        a, b, f"--baseline={tmp_path / 'c'}", refused=("--baseline", tmp_path / "c")
    )
    compare(a, b, "--baseline=c", refused=("--baseline", "a, b", "'c'"))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, ["seed", "a and b"]),
        (
            {"final_metrics": {"eval_accuracy": math.nan}, "flags": {"seed": 3}},
            ["--metric", "nan", "b"],
        ),
    ],
)
def test_runs_not_comparable_by_effect_are_refused(tmp_path, changes, parts):
    given = {"seed": 1}
    a = make(tmp_path / "a", flags=given)
    b = make(tmp_path / "b", **{"flags": given, **changes})
    compare(a, b, "--baseline=a", refused=(*parts,))


def test_accuracy_by_client(tmp_path):
    """Two untrained models on the test images of 27 writers of ten to thirty images."""
    folder = test_femnist.write(tmp_path / "data")
    task = test_femnist.load(folder, model="2nn")
    paths = []
    for rate, seed in itertools.product((0.5, 0.25), (1, 2)):
        path = tmp_path / f"{rate}-{seed}"
        flags = {"server_lr": rate, "seed": seed}
        options = {"data_dir": str(folder), "model": "2nn"}
        exact = {"task_fingerprint": task.fingerprint}
        paths.append(
            make(path, task="femnist", task_options=options, flags=flags, exact=exact)
        )
        weights = task.network.initial_weights(round(4 * rate + seed))
        engine.write_weights(path, task.network.weight_names, weights)
    text = tmp_path / "clients.csv"
    done = compare(*paths, "--baseline=0.5-1", f"--by_client={text}", "--json")
    rows = files.read_csv(text)
    owners = task.test_owners()
    assert [row["client"] for row in rows] == sorted({*owners})
    x, y = task.test_examples()
    for path in paths:
        with np.load(f"{path}/model.npz") as saved:
            first, *rest = saved.values()
        hidden = task.to_input(x).reshape(len(x), -1) @ first + rest[0]
        hidden = np.maximum(hidden, 0) @ rest[1] + rest[2]
        right = (np.maximum(hidden, 0) @ rest[3] + rest[4]).argmax(1) == y
        for row in rows:
            own = right[owners == row["client"]]
            counts = row["examples"], row[os.path.basename(path)]
            assert counts == (str(len(own)), str(own.sum()))
    _, other = json.loads(done.stdout)
    sums = [[float(row[os.path.basename(path)]) for row in rows] for path in paths]
    cells = {"a": dict(enumerate(sums[2:])), "b": dict(enumerate(sums[:2]))}
    examples = [int(row["examples"]) for row in rows]
    wanted = effects.effect_over_clients(cells, examples, [("a", "b")])
    assert (other["low_clients"], other["high_clients"]) == (wanted.low, wanted.high)
    found = metrics.ByClient(np.array(owners), np.array(examples), np.array(sums))
    row, *_ = client_metrics.percentiles(found, "accuracy")
    # Runs without a common seed have the interval over seeds alone.
    runs, names = read(paths[0], paths[3]), ["server_lr", "seed"]
    unpaired = found._replace(sums=found.sums[[0, 3]])
    _, other = run_folders.arms(runs, names, "0.5-1", "accuracy", unpaired)
    assert "effect" in other and "low_clients" not in other
    shares = [one / n for one, n in zip(sums[0], examples)]
    assert row["clients"] == len(rows)
    assert row["client_accuracy_90"] == pytest.approx(np.percentile(shares, 90))


def test_what_has_no_clients_is_not_evaluated_by_client(tmp_path):
    def evaluated(path, engine_name="tff"):
        return client_metrics.by_client(read(path), "accuracy", engine_name)

    a = make(tmp_path / "a", task="synthetic", task_options={"model": "2nn"})
    compare(a, f"--by_client={tmp_path / 'c.csv'}", refused=("RUN", "model.npz", a))
    task = tasks.load_task("synthetic", model="2nn")
    own = task.network.weight_names, task.network.initial_weights(0)
    engine.write_weights(tmp_path / "a", *own)
    with refuses(ValueError, "RUN", "abcdef01"):
        evaluated(a)
    exact = {"task_fingerprint": task.fingerprint}
    options = {"model": "2nn"}
    b = make(tmp_path / "b", task="synthetic", task_options=options, exact=exact)
    engine.write_weights(tmp_path / "b", *own)
    with refuses(ValueError, "RUN", "synthetic"):
        evaluated(b)
