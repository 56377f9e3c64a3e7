# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The law that the tables imply, exactly; then the draws, against that law."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from dpfl.accounting.integer import summed_noise
from dpfl.vectors import integer_noise

SEED = tf.constant([11, 12], tf.int64)
# Shares at 5, 6, 7 and 8 bits for 100 clients; then of one integer an entry.
STDDEVS = [0.3, 0.62, 1.51, 3.1, 20.0, 700.0]
KINDS = sorted(integer_noise.NOISE)
BOTH = pytest.mark.parametrize("kind", KINDS)


def exact_pmf(kind, stddev, values):
    """mpf probabilities."""
    if kind == "skellam":
        mu = mpmath.mpf(stddev) ** 2
        return [mpmath.exp(-mu) * mpmath.besseli(int(k), mu) for k in values]
    factor = -1 / (2 * mpmath.mpf(stddev) ** 2)
    radius = math.ceil(25 * stddev) + 2
    total = 1 + 2 * mpmath.fsum(mpmath.exp(k * k * factor) for k in range(1, radius))
    return [mpmath.exp(int(k) ** 2 * factor) / total for k in values]


def decoded(noise, codes):
    """Pairs, or single integers, as tuples."""
    codes = np.asarray(codes, np.int32)
    halves = codes.view(np.int16).reshape(-1, 2) if noise.is_paired else codes[:, None]
    return [tuple(row) for row in halves.tolist()]


def implied_law(noise):
    """The exact law of an entry, by tuple."""
    first, alias = noise.table.first, noise.table.alias
    values, counts = np.unique(first[first != -(1 << 31)], return_counts=True)
    law = {
        value: Fraction(count, 1 << 16)
        for value, count in zip(decoded(noise, values), counts.tolist())
    }
    further = Fraction(int(np.sum(first == -(1 << 31))), 1 << 16)
    words = alias.low_thresholds.view(np.uint64) ^ np.uint64(1 << 63)
    full = 1 << (160 - alias.bits)
    outcomes = decoded(noise, alias.outcomes)
    for i, high in enumerate(alias.thresholds.tolist()):
        own = (high << 128) | (int(words[0, i]) << 64) | int(words[1, i])
        for outcome, weight in zip(outcomes[2 * i : 2 * i + 2], (full - own, own)):
            part = further * Fraction(weight, 1 << 160)
            law[outcome] = law.get(outcome, 0) + part
    return {outcome: share for outcome, share in law.items() if share}


@BOTH
@pytest.mark.parametrize("stddev", [0.01, *STDDEVS[:-1]])
def test_probabilities_have_a_hundred_digits(kind, stddev):
    law = getattr(integer_noise, kind)(Fraction(stddev) ** 2)
    radius = law.radius
    checked = np.unique(np.linspace(0, radius, 12).astype(int))
    with mpmath.workdps(130):
        found = [mpmath.mpf(str(law.probabilities[radius + k])) for k in checked]
        exact = exact_pmf(kind, stddev, checked)
        for p, wanted in zip(found, exact):
            ratio = p / found[0] / (wanted / exact[0])
            assert abs(ratio - 1) < mpmath.mpf(10) ** -100
        # The scale is that of all there are: the table's, and what is beyond.
        beyond = mpmath.mpf(str(law.beyond)) * (1 + mpmath.mpf(10) ** -90)
        assert 0 <= found[0] / exact[0] - 1 < 2 * beyond < 1e-37
        (after,) = exact_pmf(kind, stddev, [radius + 1])
        assert 2 * after < beyond
    assert law.probabilities == law.probabilities[::-1]


@BOTH
@pytest.mark.parametrize("stddev", [0.01, 0.3, 0.62, 1.51, 20.0])
def test_the_law_that_the_table_implies(kind, stddev):
    noise = integer_noise.NOISE[kind](stddev)
    assert noise.is_paired == (stddev < 9)
    law = implied_law(noise)
    assert sum(law.values()) == 1
    singles = sorted({k for outcome in law for k in outcome})
    with mpmath.workdps(60):
        pmf = dict(zip(singles, exact_pmf(kind, stddev, singles)))
        off, inside = mpmath.mpf(0), mpmath.mpf(0)
        for outcome, share in law.items():
            wanted = mpmath.fprod(pmf[k] for k in outcome)
            found = mpmath.mpf(share.numerator) / share.denominator
            off, inside = off + abs(found - wanted), inside + wanted
            if wanted > 1e-28:  # tails as well as the middle
                assert abs(found - wanted) < 1e-12 * wanted
        # What is missing beyond the table is the other half of the distance.
        assert (off + 1 - inside) / 2 <= noise.distance < 1e-38


@BOTH
@pytest.mark.parametrize("stddev", STDDEVS)
def test_draws_have_the_law_tails_included(kind, stddev):
    """A chi-square test whose last cells are the two tails, and the variance."""
    count, noise = 1_000_001, integer_noise.NOISE[kind](stddev)
    draws = noise.sample(SEED, count).numpy()
    assert draws.dtype == np.int32 and draws.shape == (count,)
    radius = math.ceil(14 * stddev) + 40
    support = np.arange(-radius, radius + 1)
    if kind == "skellam":
        pmf = np.exp(summed_noise.SkellamNoise(stddev**2).log_pmf_at(support))
    else:
        pmf = np.exp(summed_noise.DiscreteGaussianNoise(1, stddev).log_pmf_at(support))
    variance = np.sum(pmf * np.square(support))
    kurtosis = np.sum(pmf * support**4.0) / variance**2
    tolerance = 4.5 * math.sqrt((kurtosis - 1) / count)
    assert tolerance < (0.03 if stddev > 0.5 else 0.06)
    assert np.var(draws) == pytest.approx(variance, rel=tolerance)
    assert abs(draws.mean()) < 4.5 * math.sqrt(variance / count)
    counted = np.bincount(draws + radius, minlength=len(support))
    # Neighbours together until 20 are expected; the rest of either tail is one cell.
    edges, total = [0], 0.0
    for i, expected in enumerate(pmf * count):
        total += expected
        if total >= 20:
            edges, total = [*edges, i + 1], 0.0
    edges = edges[: np.searchsorted(edges, len(support))]
    if np.sum(pmf[edges[-1] :]) * count < 20:
        edges.pop()
    wanted = np.add.reduceat(pmf * count, edges)
    found = np.add.reduceat(counted, edges)
    assert scipy.stats.chisquare(found, wanted / wanted.sum() * count).pvalue > 1e-3


@BOTH
def test_what_the_first_level_leaves_over(kind):
    """There outcomes of a ten-thousandth and less are met, as often as they should."""
    noise, count = integer_noise.NOISE[kind](1.51), 400_000
    found = integer_noise.look_further(noise.table.alias, SEED, count).numpy()
    further = np.mean(noise.table.first == -(1 << 31))
    counts = dict(zip(*np.unique(noise.table.first, return_counts=True)))
    law = {
        outcome: float(share) / further for outcome, share in implied_law(noise).items()
    }
    for code, n in counts.items():
        if code != -(1 << 31):
            (outcome,) = decoded(noise, [code])
            law[outcome] -= n / 65536 / further
    far = [outcome for outcome in law if max(map(abs, outcome)) > 4 * 1.51]
    seen = [max(map(abs, outcome)) > 4 * 1.51 for outcome in decoded(noise, found)]
    share = sum(law[outcome] for outcome in far)
    assert share > 0.015
    assert np.mean(seen) == pytest.approx(share, abs=4.5 * math.sqrt(share / count))


@BOTH
@pytest.mark.parametrize("stddev", [1.5, 30.0])
def test_draws_follow_from_the_seed_and_are_independent(kind, stddev):
    noise = integer_noise.NOISE[kind](stddev)
    draws = noise.sample(SEED, 200_000).numpy()
    again = tf.function(lambda seed: noise.sample(seed, 200_000))(SEED)
    np.testing.assert_array_equal(draws, again)
    limit = 4.5 / math.sqrt(len(draws))
    other = noise.sample(SEED + 1, 200_000).numpy()
    assert abs(np.corrcoef(draws, other)[0, 1]) < limit
    # Neighbours share an entry of the table, places 4 apart a block of the generator.
    for lag in (1, 2, 4, 8):
        for late, early in (
            (draws[lag:], draws[:-lag]),
            (np.square(draws[lag:]), np.square(draws[:-lag])),
            (draws[::2][:99_000], draws[1::2][:99_000]),
        ):
            limit = 4.5 / math.sqrt(len(late))
            assert abs(np.corrcoef(late, early)[0, 1]) < limit


@BOTH
def test_a_pair_is_two_independent_draws(kind):
    draws = integer_noise.NOISE[kind](1.51).sample(SEED, 1_000_000).numpy()
    pairs = np.clip(draws.reshape(-1, 2), -3, 3) + 3
    table = np.bincount(pairs[:, 0] * 7 + pairs[:, 1], minlength=49).reshape(7, 7)
    assert table.min() > 20
    assert scipy.stats.chi2_contingency(table)[1] > 1e-3


def test_stay_what_they_were():
    """A saved run must go on with the noise that it began with."""
    found = {
        (kind, stddev): integer_noise.NOISE[kind](stddev)
        .sample(SEED, 5)
        .numpy()
        .tolist()
        for kind in KINDS
        for stddev in (1.5, 100.0)
    }
    assert found == {
        ("discrete_gaussian", 1.5): [-2, 1, 0, -6, -1],
        ("discrete_gaussian", 100.0): [38, -363, 115, -146, 197],
        ("skellam", 1.5): [-4, 1, -3, -7, -1],
        ("skellam", 100.0): [38, -363, 115, -146, 197],
    }


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("stddev", [1.0, 50.0, 3000.0])
def test_short(length, stddev):
    noise = integer_noise.discrete_gaussian_noise(stddev)
    draws = noise.sample(SEED, length)
    assert draws.shape == [length] and draws.dtype == tf.int32


def test_in_a_graph_of_its_own():
    """As TFF builds them: there `==` between tensors is something else."""
    noise = integer_noise.discrete_gaussian_noise(3.0)
    with tf.Graph().as_default() as graph:
        drawn = noise.sample(tf.constant([11, 12], tf.int64), 100_000)
    with tf.compat.v1.Session(graph=graph) as session:
        found = session.run(drawn)
    np.testing.assert_array_equal(found, noise.sample(SEED, 100_000))


def test_a_law_that_is_too_wide_is_refused():
    with pytest.raises(ValueError, match="stddev must be at most 4[0-9]+ .*found 5000"):
        integer_noise.skellam_noise(5000.0)
