# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import dpfl
from dpfl import files
from experiments import effects
from experiments.papers import ours
from experiments.papers.index import FIGURES
from tests.refusals import refuses
from tools import comparisons, pages

# Student (1908), hours of additional sleep by two drugs.
SLEEP = {
    "a": [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    "b": [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
}

ACCURACY = "final_accuracy"
# Relative errors, that of epsilon by sums of numpy's exponentials with AVX-512.
COSTS = {"epsilon": 1e-13, "delta": 0, "noise_multiplier": 0}


def numbered(values, first=0):
    """Values by their seeds."""
    return dict(enumerate(values, first))


# R: t.test(extra ~ group, data = sleep), and with paired = TRUE.
@pytest.mark.parametrize(
    ("shared", "low", "high"),
    [(False, -3.3654832, 0.2054832), (True, -2.4598858, -0.7001142)],
)
def test_two_cells_reproduce_textbook_t_tests(shared, low, high):
    first, second = SLEEP.values()
    cells = {"a": numbered(first), "b": numbered(second, 0 if shared else 10)}
    found = effects.effect(cells, [("a", "b")])
    assert found.size == pytest.approx(-1.58)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    # At the level of one less the p-value the interval ends at zero.
    if shared:
        test = stats.ttest_rel(first, second)
    else:
        test = stats.ttest_ind(first, second, equal_var=False)
    found = effects.effect(cells, [("a", "b")], 1 - test.pvalue)
    assert found.high == pytest.approx(0, abs=1e-12)


def test_only_common_seeds_count():
    first, second = SLEEP.values()
    cells = {"a": numbered(first[:6]), "b": numbered(second[:6])}
    both = effects.effect(cells, [("a", "b")])
    assert both.seeds == 6
    cells = {"a": {**cells["a"], 20: 9.0}, "b": {21: -9.0, **cells["b"]}}
    assert effects.effect(cells, [("a", "b")]) == both
    third = {seed: value for seed, value in cells["a"].items() if seed > 0}
    pooled = effects.effect({**cells, "c": third}, [("a", "b"), ("c", "b")])
    assert pooled.seeds == 5
    difference = np.mean(first[1:6]) - np.mean(second[1:6])
    assert pooled.size == pytest.approx(difference)


# Three budgets, of which the cells vary by other amounts, and what all runs of a seed,
# and the choices in all budgets, have in common.
@pytest.mark.parametrize(
    ("common", "seeds", "baselines"), [(0.0, 3, 3), (20.0, 3, 1), (20.0, 8, 3)]
)
def test_intervals_have_nominal_coverage(common, seeds, baselines):
    rng = np.random.default_rng(1)
    tries, covered = 4000, 0
    for _ in range(tries):
        of_seed = common * rng.normal(size=seeds)
        of_choice = {"ours": common * rng.normal(size=seeds), "base": 0.0}
        cells = {
            (who, b): numbered(b + of_seed + choice + 4**b * rng.normal(size=seeds))
            for who, choice in of_choice.items()
            for b in range(3)
        }
        pairs = [(("ours", b), ("base", b % baselines)) for b in range(3)]
        found = effects.effect(cells, pairs)
        covered += found.low <= (1 if baselines == 1 else 0) <= found.high
    # Four standard errors of 95% in so many tries are 1.4%.
    assert covered / tries == pytest.approx(0.95, abs=0.014)


def by_client(gains):
    """Cells of two arms that differ by gains [seeds, clients]."""
    return {"a": dict(enumerate(gains)), "b": numbered(np.zeros_like(gains))}


def test_variance_over_seeds_and_clients_is_that_of_two_ways():
    """For clients of one size by the mean squares of Cornfield and Tukey (1956)."""
    gains = np.random.default_rng(2).normal(size=(4, 6))
    gains += 3 * np.arange(6) + 2 * np.arange(4)[:, np.newaxis]
    found = effects.effect_over_clients(by_client(gains), np.full(6, 5), [("a", "b")])
    assert found.size == pytest.approx(gains.mean() / 5) and found.seeds == 4
    of_seeds, of_clients = gains.mean(1), gains.mean(0)
    rest = gains - of_seeds[:, np.newaxis] - of_clients + gains.mean()
    squares = [6 * of_seeds.var(ddof=1), 4 * of_clients.var(ddof=1)]
    squares.append((rest**2).sum() / 15)
    variance = squares[0] + squares[1] - squares[2]
    assert found.error**2 == pytest.approx(variance / 24 / 25)
    spread = sum(x**2 / free for x, free in zip(squares, (3, 5, 15)))
    assert found.degrees == pytest.approx(variance**2 / spread)
    for each in (found, found.times(100)):
        assert each.p_value(each.high) == pytest.approx(0.05)


def test_clients_without_a_part_of_their_own_add_nothing():
    """Two seeds and two clients of two examples: a quarter, plus and minus a quarter."""
    gains, examples = np.array([[2, 0], [0, 0]]), np.array([2, 2])
    found = effects.effect_over_clients(by_client(gains), examples, [("a", "b")])
    assert (found.size, found.error, found.degrees) == pytest.approx((0.25, 0.25, 1))
    # Each example weighs alike: five of six gain in one of two seeds.
    unequal = effects.effect_over_clients(
        by_client(np.array([[5, 0], [0, 0]])), np.array([5, 1]), [("a", "b")]
    )
    assert unequal.size == pytest.approx(5 / 12)
    for gain in (gains[:1], gains[:, :1], np.array([[1, 1], [1, 1]])):
        own = examples[: gain.shape[1]]
        alone = effects.effect_over_clients(by_client(gain), own, [("a", "b")])
        assert (alone.low, alone.high) == (-math.inf, math.inf)
    other = {"a": {1: gains[0]}, "b": {2: gains[0]}}
    with refuses(ValueError, "seeds", 2):
        effects.effect_over_clients(other, examples, [("a", "b")])


def test_seed_count_gives_the_stated_power(monkeypatch):
    monkeypatch.setattr(ours, "_TRIES", 1500)
    for work in FIGURES["intervals"].grid("small")[::5]:
        seeds, true, alike = work.labels.values()
        found, least = work.compute(Path()), stats.t.ppf(0.975, seeds - 1)
        away = true * (seeds / (2 - 2 * alike)) ** 0.5
        power = stats.nct.sf(least, seeds - 1, away)
        # Four standard errors of so many tries.
        assert found["shown"] == pytest.approx(power, abs=0.052)
        assert found["coverage"] == pytest.approx(0.95, abs=0.023)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(-0.9, 0.1, "yes"), (-2, -1.1, "no"), (-1.1, 0.2, "not decided")],
)
def test_effect_exceeds_a_limit_only_with_its_whole_interval(low, high, said):
    assert effects.Effect((low + high) / 2, low, high).is_above(-1) == said


def test_effects_without_an_interval():
    found = effects.effect({"a": {1: 1.0}, "b": {1: 3.0}}, [("a", "b")])
    assert found == effects.Effect(-2, -math.inf, math.inf, 1)
    assert found.p_value(0) == 1
    with refuses(ValueError, "pairs"):
        effects.effect({"a": {1: 1, 2: 2}}, [])
    # Accuracies that are the same in each seed may have been rounded.
    cells = {"a": {1: 0.93, 2: 0.92}, "b": {1: 0.92, 2: 0.91}}
    assert effects.effect(cells, [("a", "b")]) == (
        effects.Effect(0.01, -math.inf, math.inf, 2)
    )
    with refuses(ValueError, "finite", "nan"):
        effects.effect({**cells, "a": {**cells["a"], 3: math.nan}}, [("a", "b")])
    with refuses(ValueError, "seeds", 3):
        effects.effect({**cells, "c": {3: 1, 4: 2}}, [("a", "b"), ("c", "b")])
    with refuses(ValueError, 1):
        effects.by_seed([("a", 1, 0.5), ("b", 1, 0.5), ("a", 1, 0.25)])


def test_engines_train_alike():
    """Within half a point on MNIST by writer, at the same cost."""
    found = {}
    for row in files.read_csv(pages.ROOT / "docs/results/same_training.csv"):
        run = row["task"], row["mechanism"], row["seed"]
        found.setdefault(run, {})[row["engine"]] = row
    trained = {(task, name) for task, name, _ in found}
    cases = comparisons.cases("same_training")
    assert trained == {(case["task"], case["mechanism"]) for case in cases}
    assert {name for task, name in trained if task == "digits"} == set(dpfl.MECHANISMS)
    accuracies = []
    for (task, name, seed), both in found.items():
        tff, jax = (both[engine] for engine in comparisons.ENGINES)
        # Bits of a client whose kept coordinates are not the same ones.
        masked = 0.005 if name in ("l2_csgm", "linf_csgm", "sgmf") else 0
        for column, error in {**COSTS, "total_uplink_bits": masked}.items():
            cost = [float(row[column] or 0) for row in (tff, jax)]
            assert cost[1] == pytest.approx(cost[0], rel=error, abs=0), (task, name)
        for engine, row in both.items():
            accuracies.append(((task, name, engine), seed, float(row[ACCURACY])))
    cells = effects.by_seed(accuracies)
    for task, name in trained:
        pair = effects.effect(cells, [((task, name, "jax"), (task, name, "tff"))])
        assert pair.seeds >= 8
        if task == "mnist" and math.isfinite(pair.low):
            assert -0.005 < pair.low <= pair.high < 0.005, name
        else:
            assert abs(pair.size) < 0.05


def test_fedjax_reaches_the_same():
    """Within a point, without noise."""
    rows = files.read_csv(pages.ROOT / "docs/results/same_training_fedjax.csv")
    cells = effects.by_seed(
        ((row["after"], row["simulator"]), row["seed"], float(row[ACCURACY]))
        for row in rows
    )
    last = rows[-1]["after"]
    pair = effects.effect(cells, [((last, "dpfl"), (last, "fedjax"))])
    assert pair.seeds >= 6 and -0.01 < pair.low < pair.high < 0.01


@pytest.mark.parametrize(
    ("families", "rejected"),
    [
        # Half the level for each, and all of it for the one that is left.
        (((0.01, 0.04), (0.02,)), [2, 1]),
        (((0.03,), (0.02,)), [1, 1]),
        (((0.03, 0.001), (0.03,)), [0, 0]),
        (((0.01, 0.03, 0.001), (0.03,)), [1, 0]),
        (((1.0,), (0.02, 0.025, 0.026)), [0, 2]),
        ((), []),
    ],
)
def test_families_are_tested_in_their_order(families, rejected):
    assert effects.holm_in_order(families) == rejected


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [((0.01, 0.04, 0.03, 0.005), {0, 3}), ((0.02, 0.02, 0.02), set()), ((), set())],
)
def test_holm_rejects_until_a_value_is_too_large(p_values, rejected):
    assert effects.holm(dict(enumerate(p_values))) == rejected
    alone = effects.holm_in_order([[one] for one in p_values])
    assert alone == [int(place in rejected) for place in range(len(p_values))]
