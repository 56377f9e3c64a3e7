# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import pytest

from dpfl import covered
from tests.refusals import refuses

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        ("docs/training.md", (covered.COVERED, covered.EXACT, covered.SECRET)),
        ("docs/sharp_edges.md", (covered.EXACT, covered.SECRET)),
    ],
)
def test_documentation_lists_every_output(page, kinds):
    table = covered.table(kinds)
    assert table in (ROOT / page).read_text(encoding="utf-8"), table


@pytest.mark.parametrize(
    ("place", "name", "kind"),
    [
        ("metrics.csv", "exact_eval_loss", covered.EXACT),
        ("metrics.csv", "eval_loss", covered.COVERED),
        ("metrics.csv", "aggregator_noise_stddev", covered.COVERED),
        ("tensorboard/events.out.tfevents.1.dpfl", "exact_clients", covered.EXACT),
        ("summary.json", "exact.max_participations", covered.EXACT),
        ("summary.json", "settings.seed", covered.SECRET),
        ("summary.json", "settings.rounds", covered.COVERED),
        ("exact_accuracy_by_bits.png", "*", covered.EXACT),
        ("accuracy_by_round.png", "*", covered.COVERED),
        ("checkpoints/checkpoint-00000001", "*", covered.SECRET),
        ("stderr", "exact loss 0.5", covered.EXACT),
        ("stderr", "going on after round 4", covered.COVERED),
    ],
)
def test_every_output_has_a_coverage_kind(place, name, kind):
    assert covered.kind(place, name) == kind


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("metrics.csv", "clients"),
        ("metrics.csv", "train_loss"),
        ("metrics.csv", "aggregator_mean_update_norm"),
        ("summary.json", "max_participations"),
        ("clients.csv", "*"),
    ],
)
def test_unlisted_output_is_refused(place, name):
    with refuses(KeyError, name, place):
        covered.kind(place, name)


@pytest.mark.parametrize("name", ["clients", "exact_clients", "of_a_new_mechanism"])
def test_unlisted_measurement_counts_as_exact(name):
    column = covered.measured_column(name)
    assert column == f"exact_aggregator_{name.replace('exact_', '')}"
    assert covered.kind("metrics.csv", column) == covered.EXACT


def test_metric_is_found_under_any_prefix():
    row = {"round": 1, "exact_clients": 3, "eval_loss": None}
    assert covered.value(row, "clients") == 3 and covered.value(row, "x") is None
    assert covered.column(row, "clients") == "exact_clients"
    assert covered.column(row, "eval_loss") == "eval_loss"
    assert covered.plain_names(row) == {"round": 1, "clients": 3, "eval_loss": None}
    assert covered.without_exact(row) == {"round": 1, "eval_loss": None}
    summary = {"rounds": 2, "exact": {"final_loss": 0.5}}
    assert covered.plain_keys(summary) == {"rounds": 2, "final_loss": 0.5}
    assert covered.plain_keys({"rounds": 2}) == {"rounds": 2}
