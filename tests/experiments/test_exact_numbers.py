# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tables of computed numbers are what the code computes, and pages have the tables."""

import math
from pathlib import Path

import pytest

from dpfl import accounting, files, mechanisms, planning
from dpfl.mechanisms import build, participation
from tools import exact_numbers, pages, tightness

TABLE = Path(__file__).resolve().parents[2] / "docs/results/exact_numbers.csv"
# Left out, as they take longest: streams with free entries, the optimal factorization,
# the first training, losses of streams of which there is another, secret rounds, and
# fixed cohorts of CSGM, which the table of tightness has too.
SLOW = (
    *(exact_numbers.SLOW, "optimal dense C", "z, q = 0.5,"),
    *("error by privacy loss, h = 1,", "error by privacy loss, h = 16,"),
    *("epsilon = 2, T = 1000, ", "l2_csgm", "best cyclic"),
    *("balls_in_bins", "b_min_separation"),
    *(f"{n}, k of T" for n in (10, 33, 1000)),
)


def test_the_table_of_exact_numbers():
    table = [
        row
        for row in files.read_csv(TABLE)
        if not any(word in row["number"] for word in SLOW)
    ]
    found = list(exact_numbers.numbers(is_slow=False))
    assert [names for *names, _ in found] == [
        [row["page"], row["number"]] for row in table
    ]
    for (*_, value), row in zip(found, table):
        assert value == pytest.approx(float(row["value"]), rel=2e-4), row


def test_noise_of_runs_is_nearly_tight_or_explained():
    table = files.read_csv(TABLE.with_name("tightness.csv"))
    assert [*map(tightness.key, table)] == [*map(tightness.key, tightness.RUNS)]
    for given, row in zip(tightness.RUNS, table):
        run = tightness.run_of(given)
        ours, least = float(row["dpfl"]), float(row["least"])
        for less, is_enough in ((1 - 1e-7, True), (1.0003, False)):
            noised = run.mechanism.with_noise_multiplier(ours / less)
            own = noised, run.participation, tightness.DIMENSION, run.delta
            assert (planning.epsilon(*own) <= run.epsilon) == is_enough, row
        most = min(1.02 * least, 1.0001 * float(row["peer"] or "inf"))
        assert (ours > most) == bool(row["why"]) and row["why"] == given["why"], row
        if row["participation"] == "fixed":
            found = tightness.true_noise(run, ours, given["truth"])
            assert found == pytest.approx(least, rel=1e-4) and found < ours


def test_shifted_gaussians_have_the_closed_form_divergence():
    for count in (1, 60):
        found = tightness.shifted(0.3).summed(count).delta(1.0)
        exact = accounting.gaussian_delta(1.0, 1 / (0.3 * count**0.5))
        assert found == pytest.approx(exact, rel=1e-4)


def test_drawn_losses_are_those_of_an_equal_law(monkeypatch):
    monkeypatch.setattr(tightness, "_DRAWS", 5_000)
    noised = mechanisms.Gaussian(100, 1.0, 1.0)

    def delta(truth, plan):
        return truth(tightness.Run(noised, plan, 0.3, 1e-3), noised)

    # Coins in each round, and one of 16 rounds.
    poisson = delta(tightness.of_rounds, participation.PoissonSampling(800, 100, 16))
    coins = participation.BMinSeparation(800, 100, 16, min_separation=1)
    once = 1600, 100, 16
    slots = delta(tightness.of_places, participation.RandomAllocation(*once))
    equal = (
        (poisson, delta(tightness.of_separated, coins)),
        (slots, delta(tightness.of_places, participation.KOfT(*once))),
        (slots, delta(tightness.of_places, participation.BallsInBins(*once))),
    )
    for (exact, error), (found, other) in equal:
        assert abs(found - exact) < 4 * math.hypot(error, other) < 0.1 * exact


ACCOUNTED_TASKS = {
    "mnist": (836, 48, 1e-4, 1_011_466),
    "fashion": (2000, 100, 2000**-1.1, 15_994),
}


def test_table_noise_matches_both_accountants():
    """Those that take seconds, of dropped coordinates, are left out."""
    found = files.read_csv(TABLE.with_name("accounting_methods.csv"))
    sparse = ("l2_csgm", "sgmf")
    chosen = [
        row
        for row in found
        if row["accounting_method"] == "rdp" or row["mechanism"] not in sparse
    ]
    assert len(found) == 18 and len(chosen) == 12
    for row in chosen:
        population, rounds, delta, dimension = ACCOUNTED_TASKS[row["task"]]
        epoch = population // 100
        values = {"cohort_size": 100, "noise_multiplier": 1.0, "clip_norm": 1.0}
        if row["mechanism"] in sparse:
            values["compression_rate"] = float(row["compression_rate"])
        if row["mechanism"] in ("matrix_factorization", "sgmf"):
            values["rounds_per_epoch"] = epoch
        calibrated = planning.calibrate(
            build.build(row["mechanism"], values),
            build.participation(
                row["participation"], population, 100, rounds, rounds_per_epoch=epoch
            ),
            dimension,
            8.0,
            delta,
            row["accounting_method"],
        )
        expected = float(row["noise_multiplier"])
        assert calibrated.noise_multiplier == pytest.approx(expected, rel=2e-4), row


def test_pages_have_their_tables():
    assert pages.main(["--check"]) == 0
