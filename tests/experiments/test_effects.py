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


def test_two_cells_are_students_test_of_a_textbook():
    # Student (1908), hours of additional sleep by two drugs, as two samples.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = effects.effect({"a": first, "b": second}, [("a", "b")])
    assert found.size == pytest.approx(-1.58)
    # R: t.test(extra ~ group, data = sleep, var.equal = TRUE)
    assert (found.low, found.high) == pytest.approx((-3.363874, 0.203874), abs=1e-6)
    # At the level of one less the p-value the interval ends at zero.
    level = 1 - stats.ttest_ind(first, second).pvalue
    found = effects.effect({"a": first, "b": second}, [("a", "b")], level)
    assert found.high == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_intervals_cover_as_often_as_they_say(shared):
    # Three budgets, two choices, cells of 3, 5 and 2 seeds; or one baseline for all.
    rng = np.random.default_rng(1)
    seeds, tries, covered = (3, 5, 2), 4000, 0
    for _ in range(tries):
        cells = {("ours", b): rng.normal(b, 2, n) for b, n in enumerate(seeds)}
        more = {("base", b): rng.normal(b + 1, 2, n) for b, n in enumerate(seeds)}
        cells.update(more)
        base = [0] * 3 if shared else range(3)
        pairs = [(("ours", b), ("base", c)) for b, c in enumerate(base)]
        true = float(np.mean([b - (c + 1) for b, c in enumerate(base)]))
        found = effects.effect(cells, pairs)
        covered += found.low <= true <= found.high
    # Four standard errors of 95% in so many tries are 1.4%.
    assert covered / tries == pytest.approx(0.95, abs=0.014)


def test_the_number_of_seeds_has_its_power(monkeypatch):
    monkeypatch.setattr(ours, "_TRIES", 2000)
    for work in FIGURES["intervals"].grid("small"):
        seeds, true = work.labels["seeds"], work.labels["true_effect"]
        found, freedom = work.compute(Path()), 2 * seeds - 2
        least = stats.t.ppf(0.975, freedom)
        power = stats.nct.sf(least, freedom, true * (seeds / 2) ** 0.5)
        # Four standard errors of so many tries.
        assert found["shown"] == pytest.approx(power, abs=0.045)
        assert found["coverage"] == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(-0.9, 0.1, "yes"), (-2, -1.1, "no"), (-1.1, 0.2, "not decided")],
)
def test_an_effect_is_above_a_limit_if_all_its_interval_is(low, high, said):
    assert effects.Effect((low + high) / 2, low, high).is_above(-1) == said


def test_what_cannot_have_an_interval_is_refused():
    with pytest.raises(ValueError, match="pairs must"):
        effects.effect({"a": [1, 2]}, [])
    with pytest.raises(ValueError, match="two seeds"):
        effects.effect({"a": [1], "b": [2]}, [("a", "b")])


def test_a_table_of_a_page_has_effects_that_are_pooled():
    rows = [
        {"m": m, "e": e, "seed": s, "a": str(base + int(e) / 100 + int(s) / 1000)}
        for m, base in (("x", 0.5), ("y", 0.25))
        for e in "28"
        for s in "01"
    ]
    base = ["m=x", "over", "e"]
    assert pages.gained(rows, rows, ["m"], "a", ".1%", base)(rows[:4]) == ""
    found = effects.effect({"x": [0, 1e-3] * 2, "y": [0, 1e-3] * 2}, [("x", "y")])
    # Four cells of two seeds have a variance by four degrees of freedom and not six.
    half = found.high * (6 / 4) ** 0.5 * stats.t.ppf(0.975, 4) / stats.t.ppf(0.975, 6)
    shown = pages.gained(rows, rows, ["m"], "a", ".3%", base)(rows[4:])
    assert shown == f"-25.000 ({-25 - 100 * half:.3f} to {-25 + 100 * half:.3f})"


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
