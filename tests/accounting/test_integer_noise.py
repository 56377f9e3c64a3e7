# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the Renyi divergences of integer noise."""

import functools
import itertools
import math
import sys
from concurrent import futures

import mpmath
import numpy as np
import pytest
from scipy import special

from dpfl.accounting.integer import whole_shifts
from dpfl.accounting.integer.summed_noise import DiscreteGaussianNoise, SkellamNoise
from dpfl.accounting.integer.whole_shifts import shift_rate
from tests.accounting import exact_noise


def direct_pmf(noise):
    """Probabilities on -R..R of the noise, of a discrete Gaussian by convolution."""
    if isinstance(noise, SkellamNoise):
        return special.ive(np.abs(np.arange(-150, 151)), noise.variance)
    reach = math.ceil(12 * noise.stddev) + 2
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * noise.stddev**2))
    return functools.reduce(np.convolve, [one / one.sum()] * noise.count)


def direct_log_moment(pmf, order, shift):
    """log sum f(x-v)^a f(x)^(1-a), where float64 can hold both."""
    p, q = pmf[:-shift], pmf[shift:]
    known = (p > 1e-300) & (q > 1e-300)
    terms = order * np.log(p[known]) + (1 - order) * np.log(q[known])
    return special.logsumexp(terms)


def log_excess(count, stddev, order, shifts):
    """What log-moments of the discrete Gaussian's sum have above a Gaussian's."""
    profile = whole_shifts._Profile(DiscreteGaussianNoise(count, stddev))
    rise = whole_shifts._rises(profile, shifts)
    return whole_shifts._log_excess(order, shifts, rise, profile)


SHARES = map(DiscreteGaussianNoise, (2, 10, 30, 64), (0.5, 0.4, 0.7, 1))


@pytest.mark.parametrize(
    "noise, last",
    [
        *itertools.product(SHARES, (1, 5)),
        *itertools.product(map(SkellamNoise, (0.5, 4.0, 40.0)), (1, 3, 60)),
    ],
)
@pytest.mark.parametrize("order", [1.5, 2, 3, 7])
def test_rate_is_the_largest_over_shifts(noise, last, order):
    pmf, shifts = direct_pmf(noise), range(1, min(last, 12) + 1)
    each = [direct_log_moment(pmf, order, v) / (order - 1) / v**2 for v in shifts]
    found = shift_rate([order], noise, last)
    assert found[0] >= max(each) * (1 - 1e-12)
    # Remainders cover the shifts between those that are evaluated.
    several = 2e-2 if isinstance(noise, SkellamNoise) else 1e-3
    assert found[0] == pytest.approx(max(each), rel=several if last > 1 else 2e-9)


@pytest.mark.parametrize(
    ("noise", "tolerance"),
    [
        *((DiscreteGaussianNoise(n, 0.8), 0.2) for n in (2, 10, 300)),
        *((DiscreteGaussianNoise(n, 2.0), 1e-9) for n in (2, 10, 300)),
        *((DiscreteGaussianNoise(n, 1e6), 1e-12) for n in (2, 10, 300)),
        *((SkellamNoise(v), 3 / math.sqrt(v)) for v in (2e4, 1e6, 1e12)),
    ],
    ids=str,
)
def test_large_noise_tends_to_the_gaussian_from_above(noise, tolerance):
    orders = np.array([2, 16, 64])
    ratio = shift_rate(orders, noise, 5) * 2 * noise.variance / orders
    if isinstance(noise, DiscreteGaussianNoise):
        ratio *= noise.count * noise.stddev**2 / noise.variance
    assert np.all(ratio < 1 + tolerance) and np.all(ratio > 1 - 1e-12)


class TestDiscreteGaussian:
    def test_log_pmf_keeps_x_shape_and_far_tails(self):
        x = np.array([[0, 3000], [-3000, 7]])
        log_pmf = DiscreteGaussianNoise(10, 0.5).log_pmf_at(x)
        assert log_pmf.shape == (2, 2)
        # Multiples of n have an exact answer: only equal shares are nearest.
        assert log_pmf[0, 0] - log_pmf[0, 1] == pytest.approx(3000**2 / 5, rel=1e-14)
        assert log_pmf[0, 1] == log_pmf[1, 0]

    @pytest.mark.parametrize(
        "count,stddev,order,shift",
        [(3, 0.5, 2, 1), (4, 0.3, 8, 2), (5, 1.0, 16, 1), (4, 0.4, 2.5, 3)],
    )
    def test_log_moment_against_forty_digits(self, count, stddev, order, shift):
        pmf = exact_noise.discrete_gaussian(count, stddev, 60)
        exact = exact_noise.log_moments(pmf, order, shift)[0]
        excess = log_excess(count, stddev, order, np.array([shift]))
        gaussian = order * (order - 1) * shift**2 / (2 * count * stddev**2)
        found = gaussian + excess[0]
        assert found >= exact * (1 - 1e-14)
        assert found == pytest.approx(exact, rel=1e-11)

    @pytest.mark.parametrize("stddev", [0.1, 0.5])
    def test_rate_covers_shifts_that_are_not_evaluated(self, monkeypatch, stddev):
        """Those beyond the last block, too: shares of a tenth of a step differ there."""

        def none(order, shifts, rise, profile):
            return np.full(shifts.size, -1.0)

        whole_shifts._discrete_gaussian_rate.cache_clear()
        monkeypatch.setattr(whole_shifts, "_log_excess", none)
        found = shift_rate([2, 9], DiscreteGaussianNoise(50, stddev), 10**6)
        whole_shifts._discrete_gaussian_rate.cache_clear()
        # However low the first few are, some later shift might be a Gaussian's.
        assert np.all(found >= np.array([2, 9]) / (2 * 50 * stddev**2))

    @pytest.mark.parametrize("count,stddev,order", [(30, 0.5, 2), (40, 0.3, 20)])
    def test_rate_covers_a_period_of_shifts(self, count, stddev, order):
        v = np.arange(1, 2 * count + 1)
        excess = log_excess(count, stddev, order, v)
        each = order / (2 * count * stddev**2) + excess / (order - 1) / v**2
        found = shift_rate([order], DiscreteGaussianNoise(count, stddev), 10**6)
        assert found[0] >= np.max(each) * (1 - 1e-12)
        assert found[0] == pytest.approx(np.max(each), rel=2e-3)
        # Whole multiples of n differ by nothing from the Gaussian.
        np.testing.assert_allclose(excess[count - 1 :: count], 0, atol=1e-9)

    @pytest.mark.parametrize("stddev", [0.05, 0.5, 3.0, 1e4])
    def test_one_share_is_as_private_as_a_gaussian(self, stddev):
        orders = [2, 5, 64, 1024]
        found = shift_rate(orders, DiscreteGaussianNoise(1, stddev), 50)
        np.testing.assert_allclose(
            found, np.array(orders) / (2 * stddev**2), rtol=1e-12
        )

    @pytest.mark.parametrize("count", [2, 64, 500])
    @pytest.mark.parametrize("stddev", [0.1, 0.3, 0.5, 1.0, 1.6])
    def test_oscillation_bound_holds(self, count, stddev):
        noise = DiscreteGaussianNoise(count, stddev)
        profile = whole_shifts._Profile(noise)
        swing = float(np.ptp(profile.values)) - 2 * profile.error
        assert noise.oscillation() >= swing * (1 - 1e-9)

    def test_large_counts_use_fewer_shares_or_the_bound(self):
        found = shift_rate([2.0, 8.0], DiscreteGaussianNoise(10**6, 1.5), 10)
        gaussian = np.array([2.0, 8.0]) / (2 * 10**6 * 2.25)
        assert np.all(found > gaussian)
        assert np.all(found < gaussian * 1.02)
        few = shift_rate([2.0], DiscreteGaussianNoise(1000, 0.5), 1)
        many = shift_rate([2.0], DiscreteGaussianNoise(10**6, 0.5), 1)
        assert many[0] < few[0]


class TestSkellam:
    @pytest.mark.parametrize("variance", [0.01, 1.0, 30.0, 5000.0])
    def test_ratio_bounds_of_the_truncation(self, variance):
        k = np.arange(-300, 300)
        log_f = SkellamNoise(variance).log_pmf_at(np.arange(-300, 301))
        ratios = np.diff(log_f)
        assert np.all(ratios >= -np.arcsinh((k + 1) / variance) - 1e-11)
        assert np.all(ratios <= -np.arcsinh(k / variance) + 1e-11)

    @pytest.mark.parametrize(
        "variance,order,shift",
        [(4, 2, 1), (4, 64, 3), (0.1, 8, 2), (50, 32, 1), (0.01, 100, 1), (30, 5.5, 4)],
    )
    def test_log_moment_against_fifty_digits(self, variance, order, shift):
        reach = int(order * shift + 40 * math.sqrt(variance + order * shift) + 90)
        pmf = exact_noise.skellam(variance, reach)
        exact = exact_noise.log_moments(pmf, order, shift)[0]
        found = whole_shifts._skellam_log_moment(order, shift, variance)
        assert found >= exact * (1 - 1e-14)
        assert found == pytest.approx(exact, rel=1e-11)

    @pytest.mark.parametrize("variance", [0.2, 4.0, 300.0, 1e7])
    @pytest.mark.parametrize("last", [1, 4, 500])
    def test_never_above_the_published_bound(self, variance, last):
        orders = np.array([2, 3, 4.5, 8, 64, 512])
        found = shift_rate(orders, SkellamNoise(variance), last)
        for order, rate in zip(orders, found):
            published = whole_shifts.skellam_published_rdp(order, variance, 1, 1)
            assert rate <= published * (1 + 1e-12)

    def test_published_bound_by_hand(self):
        # 2*9/(2*4) + min((3*9 + 6*5)/(4*16), 3*5/(2*4))
        two, half, three = (
            whole_shifts.skellam_published_rdp(order, 4.0, 9.0, 5.0)
            for order in (2.0, 2.5, 3.0)
        )
        assert two == pytest.approx(2.25 + min(57 / 64, 15 / 8))
        # Half way between orders 2 and 3: the mean of the log-moments, over 1.5.
        assert half == pytest.approx((two + 2 * three) / 2 / 1.5)


@pytest.mark.parametrize("count", [1, 2, 3, 50])
@pytest.mark.parametrize("stddev", [0.1, 0.75, 1.8])
def test_discrete_gaussian_is_within_its_stated_error(count, stddev):
    reach = math.ceil(20 * math.sqrt(count) * stddev + 10)
    exact = exact_noise.discrete_gaussian(count, stddev, reach)[reach:]
    found = DiscreteGaussianNoise(count, stddev).log_pmf(reach)
    compared = 0
    for value, error, probability in zip(found.values, found.error, exact):
        if probability > mpmath.mpf(2) ** -1200:
            assert abs(value - float(mpmath.log(probability))) <= error
            compared += 1
    assert compared >= min(reach, 4)
    assert found.error[: reach // 4].max() < 1e-9


def test_results_do_not_depend_on_threads_or_call_order():
    alone = DiscreteGaussianNoise(5000, 1.0).log_pmf(2000)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for attempt in range(20):
            shared = DiscreteGaussianNoise(5000, 1.0)
            asked = [100 + attempt, 2000, 700, 2000]
            with futures.ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(shared.log_pmf, asked))
            for last, found in zip(asked, answers):
                assert np.array_equal(found.values, alone.values[: last + 1])
                assert np.array_equal(found.error, alone.error[: last + 1])
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("variance", [0.05, 3.0, 700.0])
def test_skellam_is_within_its_stated_error(variance):
    reach = math.ceil(20 * math.sqrt(variance) + 20)
    found = SkellamNoise(variance).log_pmf(reach)
    exact = exact_noise.skellam(variance, reach)[reach:]
    for value, error, probability in zip(*found, exact):
        assert abs(value - float(mpmath.log(probability))) <= error
    assert found.error[0] < 1e-11


def test_a_share_is_a_sum_of_bernoullis():
    # Jacobi's triple product: cumulants of the sum against those of the pmf.
    stddev, tilts = 0.8, np.array([0.0, 0.4, 2.0, 7.3])
    found = DiscreteGaussianNoise(3, stddev).cumulants(tilts)
    k = np.arange(-60, 61)
    weight = np.exp(-np.square(k) / (2 * stddev**2))
    for i, tilt in enumerate(tilts):
        tilted = weight * np.exp(tilt * k)
        mean = np.sum(k * tilted) / np.sum(tilted)
        variance = np.sum(np.square(k - mean) * tilted) / np.sum(tilted)
        log_moment = math.log(np.sum(tilted) / np.sum(weight))
        assert found.log_moment[i] == pytest.approx(3 * log_moment, abs=1e-12)
        assert found.mean[i] == pytest.approx(3 * mean, abs=1e-11)
        assert found.variance[i] == pytest.approx(3 * variance, rel=1e-11)


def test_a_million_shares():
    law = DiscreteGaussianNoise(1_000_000, 0.5)
    found = law.log_pmf(5000)
    pmf = np.exp(found.values)
    k = np.arange(5001)
    variance = float(law.cumulants(np.zeros(1)).variance[0])
    assert pmf[0] + 2 * pmf[1:].sum() == pytest.approx(1, abs=1e-11)
    assert 2 * np.sum(pmf * k**2) == pytest.approx(variance, rel=1e-10)
    assert found.error.max() < 1e-10
    assert np.all(np.diff(found.values, 2) < 0)  # log-concave, tails included
