# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments import effects
from experiments.papers import claims, ours
from experiments.papers.index import FIGURES
from tools import pages

# Student (1908), hours of additional sleep by two drugs.
SLEEP = {
    "a": [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    "b": [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
}


def numbered(values, first=0):
    """Values by their seeds."""
    return dict(enumerate(values, first))


# R: t.test(extra ~ group, data = sleep, var.equal = TRUE), and with paired = TRUE.
@pytest.mark.parametrize(
    ("shared", "low", "high"),
    [(False, -3.363874, 0.203874), (True, -2.4598858, -0.7001142)],
)
def test_two_cells_are_students_tests_of_a_textbook(shared, low, high):
    first, second = SLEEP.values()
    cells = {"a": numbered(first), "b": numbered(second, 0 if shared else 10)}
    found = effects.effect(cells, [("a", "b")])
    assert found.size == pytest.approx(-1.58)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    # At the level of one less the p-value the interval ends at zero.
    test = stats.ttest_rel if shared else stats.ttest_ind
    level = 1 - test(first, second).pvalue
    found = effects.effect(cells, [("a", "b")], level)
    assert found.high == pytest.approx(0, abs=1e-12)


def test_a_block_design_is_that_of_a_textbook():
    # Montgomery, Design and Analysis of Experiments: four extrusion pressures and six
    # batches of resin; mean square of errors 7.33 with 15 degrees of freedom.
    yields = {
        8500: [90.3, 89.2, 98.2, 93.9, 87.4, 97.9],
        8700: [92.5, 89.5, 90.6, 94.7, 87.0, 95.8],
        8900: [85.5, 90.8, 89.6, 86.2, 88.0, 93.4],
        9100: [82.5, 89.5, 85.6, 87.4, 78.9, 90.7],
    }
    cells = {name: numbered(values) for name, values in yields.items()}
    # The mean of two differences, which all four cells are part of.
    found = effects.effect(cells, [(8500, 8900), (8700, 9100)])
    half = stats.t.ppf(0.975, 15) * (7.33 / 6) ** 0.5
    assert found.high - found.size == pytest.approx(half, rel=1e-3)


def test_few_seeds_have_the_variance_of_the_whole_figure():
    rng = np.random.default_rng(1)
    cells = {
        cell: numbered(rng.normal(0, 9 if cell > 1 else 1, 6)) for cell in range(4)
    }
    own = effects.effect({0: cells[0], 1: cells[1]}, [(0, 1)])
    assert effects.effect(cells, [(0, 1)]) == own
    few = {cell: numbered([*values.values()][:5]) for cell, values in cells.items()}
    two = effects.effect({0: few[0], 1: few[1]}, [(0, 1)])
    wide = effects.effect(few, [(0, 1)])
    assert wide.high - wide.low > 2 * (two.high - two.low)


# Three budgets, two choices; what runs of a seed share, in deviations of their own.
@pytest.mark.parametrize("shared", [0.0, 2.0])
@pytest.mark.parametrize(
    ("seeds", "baselines"),
    [((3, 3, 3), 3), ((8, 8, 8), 1), ((3, 5, 2), 3), ((4, 7, 6), 1)],
)
def test_intervals_cover_as_often_as_they_say(shared, seeds, baselines):
    rng = np.random.default_rng(1)
    tries, covered = 2000, 0
    for _ in range(tries):
        common = shared * rng.normal(size=10)
        cells = {
            (who, b): numbered(b + common[:n] + rng.normal(size=n))
            for who in ("ours", "base")
            for b, n in enumerate(seeds)
        }
        # With one baseline for all the other two estimate the variance alone.
        pairs = [(("ours", b), ("base", b % baselines)) for b in range(3)]
        found = effects.effect(cells, pairs)
        covered += found.low <= (1 if baselines == 1 else 0) <= found.high
    # Four standard errors of 95% in so many tries are 2%.
    assert covered / tries == pytest.approx(0.95, abs=0.02)


def test_the_number_of_seeds_has_its_power(monkeypatch):
    monkeypatch.setattr(ours, "_TRIES", 1500)
    for work in FIGURES["intervals"].grid("small"):
        seeds, true, alike = work.labels.values()
        found = work.compute(Path())
        freedom = (seeds - 1) * (1 if seeds > 5 else ours.CELLS - 1)
        away = true * (seeds / (2 - 2 * alike)) ** 0.5
        power = stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, away)
        # Four standard errors of so many tries.
        assert found["shown"] == pytest.approx(power, abs=0.052)
        assert found["coverage"] == pytest.approx(0.95, abs=0.023)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(-0.9, 0.1, "yes"), (-2, -1.1, "no"), (-1.1, 0.2, "not decided")],
)
def test_an_effect_is_above_a_limit_if_all_its_interval_is(low, high, said):
    assert effects.Effect((low + high) / 2, low, high).is_above(-1) == said


def test_what_cannot_have_an_interval_is_refused():
    with pytest.raises(ValueError, match="pairs must"):
        effects.effect({"a": {1: 1, 2: 2}}, [])
    with pytest.raises(ValueError, match="two seeds"):
        effects.effect({"a": {1: 1}, "b": {1: 2}}, [("a", "b")])
    with pytest.raises(ValueError, match="found 1 twice"):
        effects.by_seed([("a", 1, 0.5), ("b", 1, 0.5), ("a", 1, 0.25)])


def test_a_table_of_a_page_has_effects_that_are_pooled():
    cells = {
        (m, e): {s: base + e / 100 + way * s / 1000 for s in (0, 1)}
        for m, base, way in (("x", 0.5, 1), ("y", 0.25, -1))
        for e in (2, 8)
    }
    rows = [
        {"m": m, "e": str(e), "seed": str(s), "a": str(value)}
        for (m, e), values in cells.items()
        for s, value in values.items()
    ]
    base = ["m=x", "over", "e"]
    assert pages.gained(rows, rows, ["m"], "a", ".1%", base)(rows[:4]) == ""
    found = effects.effect(cells, [(("y", e), ("x", e)) for e in (2, 8)]).times(100)
    assert found.size == pytest.approx(-25.1) and found.high > found.size + 0.1
    shown = pages.gained(rows, rows, ["m"], "a", ".3%", base)(rows[4:])
    assert shown == f"{found.size:.3f} ({found.low:.3f} to {found.high:.3f})"


def test_a_gain_of_a_page_is_the_effect_of_the_claim_on_the_same_runs():
    """Both have the variance of all seeds of the figure, whatever is shown of it."""
    line = "equal_bits mechanism=gaussian|l2_csgm point=b32|r10: mechanism | final_accuracy .1% vs mechanism=gaussian"
    shown = pages.table(line).splitlines()[3].split(" | ")[1]
    claim = next(
        one
        for one in claims.CLAIMS
        if one.ours == {"mechanism": "l2_csgm", "point": "r10"}
        and one.other == {"mechanism": "gaussian", "point": "b32"}
    )
    assert shown.strip(" |") == claim.cells(pages.ROOT / "docs/results")[1]
