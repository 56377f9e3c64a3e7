# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The law that the tables imply against many digits; the draws against the law."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_array_equal

from dpfl.accounting.integer import grid_numbers as numbers
from dpfl.accounting.integer import summed_noise
from dpfl.arrays import in_tensorflow
from dpfl.vectors import integer_noise, integer_tables
from dpfl.vectors.integer_noise import DiscreteGaussian
from tests.refusals import refuses

SEED = tf.constant([11, 12], tf.int64)
# Shares at 5, 6, 7 and 8 bits for 100 clients; then of one integer an entry.
SHARES = [0.3, 0.62, 1.51, 3.1, 20.0, 700.0]
KINDS = sorted(integer_noise.NOISE)
BOTH = pytest.mark.parametrize("kind", KINDS)
# One, two and three tables; whole and not; those of a grid, s^2 + 4, among them.
STDDEVS = [0.125, 0.5, 1.0, 3.7, 1000.1, 1024.01, 4096.5]
STDDEVS += [2.0**18, 2.0**20 + 0.3, 2.0**24]


def exact_pmf(variance, values, kind="discrete_gaussian"):
    """mpf probabilities of N_Z(0, variance), or of the Skellam law."""
    wide = mpmath.mpf(variance.numerator) / variance.denominator
    if kind == "skellam":
        return [mpmath.exp(-wide) * mpmath.besseli(int(k), wide) for k in values]
    factor = -1 / (2 * wide)
    radius = math.ceil(25 * math.sqrt(variance)) + 2
    total = 1 + 2 * mpmath.fsum(mpmath.exp(k * k * factor) for k in range(1, radius))
    return [mpmath.exp(int(k) ** 2 * factor) / total for k in values]


def alias_law(alias):
    """What the alias tables say, as fractions, by outcome."""
    words = alias.low_thresholds.view(np.uint64) ^ np.uint64(1 << 63)
    full = 1 << (160 - alias.bits)
    law = {}
    for i, high in enumerate(alias.thresholds.tolist()):
        threshold = (high << 128) | (int(words[0, i]) << 64) | int(words[1, i])
        other, own = alias.outcomes[2 * i : 2 * i + 2].tolist()
        law[own] = law.get(own, 0) + Fraction(threshold, 1 << 160)
        law[other] = law.get(other, 0) + Fraction(full - threshold, 1 << 160)
    return law


def table_law(table, flag):
    """The exact law of a table's draws, where a flag says to look further."""
    values, counts = np.unique(table.first, return_counts=True)
    first = dict(zip(values.tolist(), counts.tolist()))
    further = Fraction(first.pop(flag), 1 << 16)
    law = {value: Fraction(count, 1 << 16) for value, count in first.items()}
    for value, share in alias_law(table.alias).items():
        law[value] = law.get(value, 0) + further * share
    return {value: share for value, share in law.items() if share}


def decoded(noise, codes):
    """Pairs, or single integers, as tuples."""
    codes = np.asarray(codes, np.int32)
    halves = codes.view(np.int16).reshape(-1, 2) if noise.is_paired else codes[:, None]
    return [tuple(row) for row in halves.tolist()]


def by_outcome(noise, law):
    """A law of codes, by tuple."""
    return dict(zip(decoded(noise, list(law)), law.values()))


def look_further(alias, count):
    return integer_noise.look_further(alias, SEED, tf.range(count), count).numpy()


@BOTH
@pytest.mark.parametrize("stddev", [0.01, *SHARES[:-1]])
def test_probabilities_have_a_hundred_digits(kind, stddev):
    law = getattr(integer_tables, kind)(Fraction(stddev) ** 2)
    radius = law.radius
    checked = np.unique(np.linspace(0, radius, 12).astype(int))
    with mpmath.workdps(130):
        found = [mpmath.mpf(str(law.probabilities[radius + k])) for k in checked]
        exact = exact_pmf(Fraction(stddev) ** 2, checked, kind)
        for p, wanted in zip(found, exact):
            ratio = p / found[0] / (wanted / exact[0])
            assert abs(ratio - 1) < mpmath.mpf(10) ** -100
        # The scale is that of all there are: the table's, and what is beyond.
        beyond = mpmath.mpf(str(law.beyond)) * (1 + mpmath.mpf(10) ** -90)
        assert 0 <= found[0] / exact[0] - 1 < 2 * beyond < 1e-37
        (after,) = exact_pmf(Fraction(stddev) ** 2, [radius + 1], kind)
        assert 2 * after < beyond
    assert law.probabilities == law.probabilities[::-1]


@BOTH
@pytest.mark.parametrize("stddev", [0.01, 0.3, 0.62, 1.51, 20.0])
def test_the_law_that_the_table_implies(kind, stddev):
    noise = integer_noise.NOISE[kind](stddev)
    assert noise.is_paired == (stddev < 9)
    law = by_outcome(noise, table_law(noise.table, -(1 << 31)))
    assert sum(law.values()) == 1
    singles = sorted({k for outcome in law for k in outcome})
    with mpmath.workdps(60):
        pmf = exact_pmf(Fraction(stddev) ** 2, singles, kind)
        pmf = dict(zip(singles, pmf))
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
@pytest.mark.parametrize("stddev", SHARES)
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


@pytest.mark.parametrize(
    ("make", "stddev"),
    [
        *((make, s) for make in integer_noise.NOISE.values() for s in (1.5, 30.0)),
        *((DiscreteGaussian, stddev) for stddev in (5.0, 5000.0, 2.0**21)),
    ],
)
def test_draws_follow_from_the_seed_and_are_independent(make, stddev):
    noise = make(stddev)
    draws = noise.sample(SEED, 200_000).numpy()
    again = tf.function(lambda s: noise.sample(s, 200_000), autograph=False)(SEED)
    assert again.shape == [200_000]
    assert_array_equal(draws, again)

    def check(late, early):
        limit = 4.5 / math.sqrt(len(late))
        for power in (1.0, 2.0):
            sizes = np.abs(late) ** power, np.abs(early) ** power
            assert abs(np.corrcoef(*sizes)[0, 1]) < limit
        assert abs(np.corrcoef(late, early)[0, 1]) < limit

    for change in ([1, 0], [0, 1], [1, 1]):
        other = noise.sample(SEED + tf.constant(change, tf.int64), 200_000).numpy()
        check(draws, other)
    # Neighbours share an entry of the table, places 4 apart a block of the generator.
    for lag in (1, 2, 4, 8, 100_000):
        check(draws[lag:], draws[:-lag])
    check(draws[::2], draws[1::2])


@pytest.mark.parametrize("length", [0, 1, 2, 5])
@pytest.mark.parametrize("stddev", [1.0, 1000.5, 2.0**22])
def test_short_vectors(length, stddev):
    for make in (integer_noise.discrete_gaussian_noise, integer_noise.DiscreteGaussian):
        draws = make(stddev).sample(SEED, length)
        assert draws.shape == [length] and draws.dtype == tf.int32


@pytest.mark.parametrize("stddev", [3.0, 2.0**18])
def test_graph_mode_draws_equal_eager_ones(stddev):
    """As TFF builds them: there `==` between tensors is something else."""
    noise = integer_noise.discrete_gaussian_noise(stddev)
    with tf.Graph().as_default() as graph:
        drawn = noise.sample(tf.constant([11, 12], tf.int64), 100_000)
    with tf.compat.v1.Session(graph=graph) as session:
        found = session.run(drawn)
    assert_array_equal(found, noise.sample(SEED, 100_000))


def test_a_law_that_is_too_wide_is_refused():
    with refuses(ValueError, "stddev", 5000.0):
        integer_noise.skellam_noise(5000.0)


def in_quantiles(draws, stddev, bins=60):
    """P-value of a chi-square test of draws in bins of about equal chance."""
    edges = np.round(scipy.stats.norm.ppf(np.arange(1, bins) / bins) * stddev)
    edges = np.unique(edges) + 0.5
    if stddev < 2000:  # the exact law, summed
        radius = math.ceil(20 * stddev)
        support = np.arange(-radius, radius + 1)
        pmf = np.exp(-np.square(support / stddev) / 2)
        cdf = np.cumsum(pmf / pmf.sum())[(edges - 0.5).astype(int) + radius]
    else:  # the midpoint rule is right to 1e-15
        cdf = scipy.stats.norm.cdf(edges / stddev)
    expected = np.diff(np.concatenate([[0], cdf, [1]])) * len(draws)
    counted = np.bincount(np.searchsorted(edges, draws), minlength=len(expected))
    return scipy.stats.chisquare(counted, expected).pvalue


class TestTables:
    @pytest.mark.parametrize("stddev", STDDEVS)
    def test_variances_of_the_parts_add_up(self, stddev):
        parts = integer_tables.decompose(stddev)
        assert sum(m**2 * v for m, v in parts) == Fraction(stddev) ** 2
        assert parts[0][0] == 1 and min(v for _, v in parts) > 0
        combined = parts[-1][1]
        for (fine_multiple, fine), (multiple, _) in zip(parts[-2::-1], parts[::-1]):
            step = multiple // fine_multiple
            total = step**2 * combined + fine
            assert combined * fine / total >= 4  # tau at least 2
            combined = total

    @pytest.mark.parametrize("stddev", [9.3, 24.7, 60.0])
    def test_the_sum_of_two_parts_is_one_discrete_gaussian(self, stddev):
        """By convolution with 80 digits, within what the smoothing bound says."""
        pairs = integer_tables.decompose(stddev, one_table=4)
        (_, fine), (step, coarse) = pairs
        assert step > 1
        with mpmath.workdps(80):
            reach = math.ceil(13 * math.sqrt(coarse))
            first = exact_pmf(coarse, range(-reach, reach + 1))
            wide = math.ceil(18 * math.sqrt(fine)) + step
            second = exact_pmf(fine, range(-wide, wide + 1))
            checked = [*range(8), *range(round(5 * stddev), round(6 * stddev), 7)]
            wanted = exact_pmf(Fraction(stddev) ** 2, checked)
            ratios = []
            for x, p in zip(checked, wanted):
                total = mpmath.mpf(0)
                for j in range(-reach, reach + 1):
                    if abs(x - step * j) <= wide:
                        total += first[j + reach] * second[x - step * j + wide]
                ratios.append(abs(total / p - 1))
            bound = 2 * integer_tables.smoothing_distance(pairs)
            assert max(ratios) <= bound * (1 + 1e-6) + 1e-36
            assert bound < 2.1e-34

    def test_the_smoothing_bound_is_not_loose(self):
        """At tau = 0.7 the ripple is large enough to see, and just below the bound."""
        coarse, fine, step = Fraction(25), Fraction(2), 2
        variance = step**2 * coarse + fine
        tau = mpmath.sqrt(mpmath.mpf(50) / 102)
        with mpmath.workdps(30):
            first = exact_pmf(coarse, range(-60, 61))
            second = exact_pmf(fine, range(-30, 31))
            off = 0
            for x, p in zip(range(-40, 41), exact_pmf(variance, range(-40, 41))):
                total = mpmath.fsum(
                    first[j + 60] * second[x - step * j + 30]
                    for j in range(-60, 61)
                    if abs(x - step * j) <= 30
                )
                off = max(off, abs(total / p - 1))
        eps = 2 * math.exp(-2 * math.pi**2 * float(tau) ** 2)
        bound = 2 * integer_tables.smoothing_distance([(1, fine), (step, coarse)])
        assert eps / 2 < off <= bound < 2.1 * eps

    @pytest.mark.parametrize("stddev", STDDEVS)
    def test_a_draw_is_within_what_the_accountant_charges(self, stddev):
        noise = DiscreteGaussian(stddev)
        assert 0 < noise.distance < numbers.DRAW_DISTANCE / 4
        outcomes = [part.alias.outcomes.astype(np.int64) for part in noise.parts]
        assert sum(abs(each).max() for each in outcomes) < 1 << 28

    def test_refuses_widths_out_of_range(self):
        with refuses(ValueError, "stddev", 0.1):
            DiscreteGaussian(0.1)
        with refuses(ValueError, "stddev", 2.0**24 + 2):
            DiscreteGaussian(2.0**24 + 2)


class TestDraws:
    @pytest.mark.parametrize("stddev", STDDEVS)
    def test_have_the_law(self, stddev):
        draws = DiscreteGaussian(stddev).sample(SEED, 600_001).numpy()
        assert draws.dtype == np.int32 and len(draws) == 600_001
        assert in_quantiles(draws, stddev) > 1e-4
        if stddev >= 1:
            scaled = draws / stddev
            deviation = 1 / math.sqrt(len(draws))
            assert abs(scaled.mean()) < 4.5 * deviation
            assert abs(np.mean(scaled**2) - 1) < 4.5 * math.sqrt(2) * deviation
            assert abs(np.mean(scaled**4) - 3) < 4.5 * math.sqrt(96) * deviation

    def test_fraction_left_by_the_first_table(self):
        """docs/privacy/integer_release.md has the share of the finest part."""
        parts = DiscreteGaussian(2.0**18).parts
        shares = [np.mean(part.first == integer_tables.FURTHER) for part in parts]
        assert f"{100 * shares[0]:.1f}" == "3.7" and 0.03 < min(shares)

    def test_law_of_draws_left_by_the_first_table(self):
        """Tails again: there they are 27 times as likely, and beyond 6 are met."""
        part = DiscreteGaussian(2.0**18).parts[1]
        multiple, variance = integer_tables.decompose(2.0**18)[1]
        count = 3_000_000
        draws = look_further(part.alias, count)
        assert np.all(draws % multiple == 0)
        law = {k // multiple: v for k, v in alias_law(part.alias).items()}
        stddev = math.sqrt(variance)
        sizes = np.abs(draws // multiple)
        for level in (3, 4, 5, 5.5, 6):
            share = float(sum(v for k, v in law.items() if abs(k) > level * stddev))
            found = np.count_nonzero(sizes > level * stddev)
            poisson = scipy.stats.poisson(share * count)
            assert min(poisson.cdf(found), poisson.sf(found - 1)) > 1e-4, level
        assert share * count > 0.1
        values = np.array(sorted(law))
        expected = np.array([float(law[k]) for k in values.tolist()])
        edges = np.unique(np.searchsorted(np.cumsum(expected), np.arange(1, 200) / 200))
        counted = np.bincount(
            np.searchsorted(values, draws // multiple), minlength=len(values)
        )
        starts = np.concatenate([[0], edges])
        pvalue = scipy.stats.chisquare(
            np.add.reduceat(counted, starts),
            np.add.reduceat(expected, starts) / expected.sum() * count,
        ).pvalue
        assert pvalue > 1e-4

    def test_no_residue_is_preferred(self):
        noise = DiscreteGaussian(2.0**18)
        step = integer_tables.decompose(noise.stddev)[1][0]
        draws = noise.sample(SEED, 1 << 21).numpy()
        # A discrete Gaussian this wide has each residue with the same chance to 1e-100.
        for modulus in (2, 16, step, 2 * step, 1000):
            counted = np.bincount(draws % modulus, minlength=modulus)
            assert scipy.stats.chisquare(counted).pvalue > 1e-4, modulus


@pytest.mark.parametrize(
    ("words", "is_own"),
    [((4, 9), True), ((5, 8), False), ((5, 6), True), ((5, 7), False), ((6, 0), False)],
)
def test_ties_of_leading_bits_use_the_remaining_bits(monkeypatch, words, is_own):
    threshold = (3 << 128) | (5 << 64) | 7
    weights = [threshold, (1 << 160) - threshold, 0]
    alias = integer_tables.alias_tables(np.array([-1, 1, 0]), weights)
    assert alias.bits == 2

    def bits(seed, count, dtype=np.uint32):
        if dtype == np.uint32:
            return tf.fill([count], tf.constant(3 << 2, tf.uint32))
        return tf.repeat([w - (1 << 63) for w in words], count // 2)

    monkeypatch.setattr(in_tensorflow, "random_words", bits)
    drawn = look_further(alias, 2)
    assert_array_equal(drawn, [-1, -1] if is_own else [1, 1])


@pytest.mark.parametrize("multiplier", [63.0, 64.0, 1e4])
def test_the_noise_of_every_grid_can_be_drawn(multiplier):
    """The finest grid asks for a little more than 2**24 steps."""
    grid = numbers.grid(multiplier, clients=108)
    assert DiscreteGaussian(grid.noise_stddev).parts


def test_standard_normals_are_the_integers_of_a_grid():
    draws = integer_noise.standard_normal(SEED, 200_000).numpy()
    assert draws.dtype == np.float32
    steps = DiscreteGaussian(2**18 + 2**-17).sample(SEED, 200_000)
    assert_array_equal(draws * 2.0**18, steps)
    assert abs(draws.mean()) < 4.5 / math.sqrt(200_000)
    assert draws.std() == pytest.approx(1, abs=4.5 / math.sqrt(400_000))
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-3
