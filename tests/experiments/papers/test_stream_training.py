# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from dpfl import accounting, mechanisms, planning
from dpfl import factorization as mf
from dpfl.mechanisms import build
from dpfl.planning import bands_curve
from experiments.papers import sweep
from experiments.papers.index import FIGURES
from experiments.papers.ours import stream_training as streams
from tests.experiments.papers import invented

FIGURE = FIGURES["stream_training"]
# Modules to train on with Python 3.11, and parameters of the model.
POPULATION, DIMENSION = 2459, 39_932
DELTA = POPULATION**-1.1
ROUNDS, COHORT = streams.SHARED["rounds"], streams.SHARED["cohort_size"]
OWN = {
    *("mechanism", "participation", "rounds_per_epoch", "min_separation"),
    *("noise_stream", "matrix_method", "matrix_bands", "compression_rate", "seed"),
}


def works(seed=1):
    found = FIGURE.grid(sweep.Setting("medium"))
    return [work for work in found if work.labels["seed"] == seed]


def test_runs_differ_in_mechanism_and_choice_of_clients_alone():
    shared = [
        {name: value for name, value in work.settings.items() if name not in OWN}
        for work in works()
    ]
    assert all(one == shared[0] for one in shared)
    assert "--docs_source=packages" in shared[0]["flagfile"]


def participation(flags):
    numbers = {
        name: int(flags[name]) if name in flags else None
        for name in ("rounds_per_epoch", "min_separation")
    }
    return mechanisms.participation.build(
        flags["participation"], POPULATION, COHORT, ROUNDS, **numbers
    )


def mechanism(flags, choice):
    options = {
        name: int(flags[name]) if name == "matrix_bands" else flags[name]
        for name in ("noise_stream", "matrix_method", "matrix_bands")
        if name in flags
    }
    if "compression_rate" in flags:
        options["compression_rate"] = float(flags["compression_rate"])
    known = {
        "cohort_size": COHORT,
        "clip_norm": 1.0,
        "noise_multiplier": 0.0,
        "rounds_per_epoch": choice.rounds_per_epoch,
        "rounds": ROUNDS if "noise_stream" in flags else None,
    }
    return build.build(flags["mechanism"], {**known, **options})


@pytest.mark.parametrize("work", works(), ids=lambda work: work.folder)
def test_epsilon_is_eight_by_one_relation(work):
    choice = participation(work.settings)
    chosen = mechanism(work.settings, choice)
    noised = planning.calibrate(chosen, choice, DIMENSION, 8.0, DELTA, "rdp")
    event = noised.dp_event(choice, DIMENSION)
    relation = accounting.Relation.REPLACE_SPECIAL
    found = accounting.epsilon(event, DELTA, method="rdp", relation=relation).epsilon
    assert 7.9 < found <= 8.0


def test_groups_are_the_best_of_the_curve():
    run = bands_curve.StreamRun(
        mf.prefix_sum(ROUNDS), POPULATION, COHORT, 8.0, DELTA, accountant="rdp"
    )
    points = bands_curve.curve(run, [1, 12, streams.GROUPS, 20, 24])
    assert bands_curve.best(points).bands == streams.GROUPS
    assert run.most_groups == streams.ROUNDS_PER_EPOCH


def test_drawing_of_complete_and_of_unfinished_tables(tmp_path):
    grid = FIGURE.grid(sweep.Setting("medium"))
    metrics = {"round": [24, 48], "eval_loss": [6, 5]}
    table = list(invented.rows(grid, tmp_path, {}, metrics))
    whole = invented.draw(FIGURE, table, tmp_path / "figure.png", "medium")
    # Of each way the range with its caps, the mean, and the seeds.
    assert whole == 5 * len(works())
    assert invented.draw(FIGURE, table[:1], tmp_path / "figure.png", "medium") == 5
