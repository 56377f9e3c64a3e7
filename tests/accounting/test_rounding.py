# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the Renyi divergence of randomized rounding under integer noise."""

import math
import os

import numpy as np
import pytest
from scipy import special

from dpfl.accounting import events, log_space
from dpfl.accounting.integer import ratio_moments, rounding
from dpfl.accounting.integer.rounding import rounded_rate
from dpfl.accounting.integer.summed_noise import DiscreteGaussianNoise, SkellamNoise
from tests.accounting import exact_noise

# Random noise, each at ten coordinates and orders; 100 make the full comparison.
SEEDS = int(os.environ.get("DPFL_ROUNDING_LAWS", "5"))


def over_gaussian(orders, noise, top):
    rate = rounded_rate(orders, noise, top)
    return rate * 2 * noise.variance / np.asarray(orders)


def log_moment(order, noise, x):
    """The bound of the cells' ends, for one coordinate of at most a step."""
    [[excess]] = [
        [excess.log_at(np.array([[x]]), rows)[0, 0]]
        for rows, excess in rounding._evaluators(np.array([order]), noise, x)
        if rows.size
    ]
    return math.log1p(math.exp(excess) * x**2) * (1 + 1e-11)


def laws(noise, x, reach):
    """log f on -reach..reach, and log mix there of a coordinate rounded from x."""
    y, k = np.arange(-reach, reach + 1), math.floor(x)
    f, low, high = (noise.log_pmf_at(y - v) for v in (0, k, k + 1))
    with np.errstate(divide="ignore"):
        return f, np.logaddexp(np.log(1 - (x - k)) + low, np.log(x - k) + high)


def sampled_bound(orders, q, rate, squared):
    """The log-moments that are claimed of sampled clients."""
    every = np.concatenate([[0.0, 0.0], (orders - 1) * rate * squared])
    return log_space.sampled_log_moment(orders, q, every)


def both_directions(noise, order, x):
    """Float sums of log E[(mix/f)^a] and log E[(mix/f)^(1-a)], for moderate orders."""
    reach = math.ceil(12 * math.sqrt(noise.variance) + order * (x + 1) + 20)
    f, mix = laws(noise, x, reach)
    forward = special.logsumexp(order * mix + (1 - order) * f)
    return forward, special.logsumexp(order * f + (1 - order) * mix)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_against_fifty_digits(seed):
    rng = np.random.default_rng(seed)
    count = int(np.exp(rng.uniform(0, np.log(200))))
    stddev = float(np.exp(rng.uniform(np.log(0.2), np.log(2.0))))
    spread = math.sqrt(count) * stddev
    most = min(60.0, 4 + 12 * spread)
    reach = math.ceil(12 * spread + most + 20)
    if seed % 4 == 3:
        noise = SkellamNoise(spread**2)
        pmf = exact_noise.skellam(spread**2, reach)
    else:
        noise = DiscreteGaussianNoise(count, stddev)
        pmf = exact_noise.discrete_gaussian(count, stddev, reach)
    for i in range(10):
        x = float(np.exp(rng.uniform(np.log(1e-3), 0)))
        order = float(1 + np.exp(rng.uniform(np.log(0.05), np.log(most - 1))))
        order = float(max(2, round(order))) if i % 2 else order
        forward, backward = exact_noise.log_moments(pmf, order, x)
        found = log_moment(order, noise, x)
        assert found >= forward * (1 - 1e-13), (noise, order, x)
        assert backward <= forward
        if order < 2:  # where the rate takes the limit at 0
            limit = exact_noise.log_moments(pmf, 2.0, 1e-9)[0] * 1e18
            highest = order * (order - 1) / 2 * limit * x**2
        else:
            highest = forward
        assert found <= highest * (1 + (1e-9 if order == round(order) else 1e-6))


class TestValues:
    def test_large_cohort(self):
        noise = DiscreteGaussianNoise(100_000, 0.75)
        found = rounded_rate([2, 3], noise, 1.0)
        assert ratio_moments.route_of(noise) == "fourier"
        assert found[0] == pytest.approx(1.779e-5, abs=5e-9)


class TestRate:
    CASES = [
        DiscreteGaussianNoise(100, 0.62),
        DiscreteGaussianNoise(100, 2.0),
        DiscreteGaussianNoise(6, 1.0),
        DiscreteGaussianNoise(2000, 0.3),
        SkellamNoise(30.0),
    ]
    ORDERS = [1.3, 2, 2.5, 3.5, 5, 9.7, 24]

    @pytest.mark.parametrize("noise", CASES, ids=str)
    @pytest.mark.parametrize("top", [0.05, 1.0])
    def test_is_the_supremum(self, noise, top):
        rates = rounded_rate(self.ORDERS, noise, top)
        for order, rate in zip(self.ORDERS, rates):
            best = 0.0
            for x in np.linspace(0.02, 1, 50) * top:
                forward, backward = both_directions(noise, order, x)
                # Sums that leave 1e-15 of 1 have that over x^2.
                noise_floor = 1e-13 / x**2
                assert backward <= forward + 1e-13
                at = forward / (x**2 * (order - 1))
                assert at <= rate * (1 + 1e-9) + noise_floor
                best = max(best, at)
            moments = ratio_moments.ratio_moments(noise, 2).log_moments
            assert rate <= max(best, order / 2 * math.exp(moments[2])) * (1 + 2e-3)

    @pytest.mark.parametrize(
        ("noise", "top"), [(CASES[0], 6.2), (CASES[1], 6.2), (CASES[3], 3.0)], ids=str
    )
    def test_long_coordinates(self, noise, top):
        """They cost what short ones do, and more only where noise is not Gaussian."""
        rates, short = (rounded_rate(self.ORDERS, noise, x) for x in (top, 1.0))
        for order, rate, one in zip(self.ORDERS, rates, short):
            worst = max(
                max(both_directions(noise, order, x)) / (x**2 * (order - 1))
                for x in np.linspace(0.1, top, 60)
            )
            assert worst <= rate * (1 + 1e-9) + 1e-12
            assert one * (1 - 1e-5) <= rate
            assert rate <= (
                worst * 1.05 if noise == self.CASES[3] else one * (1 + 1e-5)
            )

    def test_small_orders_are_the_limit(self):
        noise = DiscreteGaussianNoise(20, 0.7)
        moments = ratio_moments.ratio_moments(noise, 2)
        chi_square = math.exp(moments.log_moments[2])
        orders = np.array([1.001, 1.5, 2.0])
        rates = rounded_rate(orders, noise, 1.0)
        np.testing.assert_allclose(rates, orders / 2 * chi_square, rtol=1e-10)

    def test_large_noise_is_gaussian(self):
        noise = DiscreteGaussianNoise(1_000_000, 50.0)
        found = over_gaussian(events.DEFAULT_ORDERS, noise, 1.0)
        np.testing.assert_allclose(found, 1.0, atol=1e-5)

    def test_routes_agree(self):
        # On either side of each change of route the divergences are nearly the same.
        orders = [1.5, 2, 2.5, 3.3, 8, 64, 512]
        gauss = DiscreteGaussianNoise(100, 2.0)
        assert ratio_moments.route_of(gauss) == "gaussian"
        table = ratio_moments._tabulated(gauss, 512)
        closed = ratio_moments._gaussian(gauss, 512)
        np.testing.assert_allclose(
            table.log_moments[2:30], closed.log_moments[2:30], atol=1e-7
        )
        small = SkellamNoise(2.2e6)
        large = SkellamNoise(2.3e6)
        assert ratio_moments.route_of(small) == "fourier"
        assert ratio_moments.route_of(large) == "composed"
        np.testing.assert_allclose(
            over_gaussian(orders, small, 1.0), over_gaussian(orders, large, 1.0), 3e-6
        )

    def test_long_coordinates_under_little_noise_are_not_covered(self):
        skellam = SkellamNoise(81.0)
        for law, top in ((DiscreteGaussianNoise(100, 0.5), 20.0), (skellam, 2.0)):
            assert not rounding.is_covered(law, top, 1)
        assert rounded_rate([2], skellam, 1.0, sampled=True)[0] > 0


class TestClaims:
    """What the proofs of docs/privacy/rounding.md say, by numbers."""

    @pytest.mark.parametrize(
        "count, stddev", [(90, 0.9), (90, 1.05), (90, 1.3), (9, 3.0)]
    )
    @pytest.mark.parametrize("x, q", [(1.5, 0.3), (6.2, 0.3), (4.0, 0.03)])
    def test_client_sampling_of_long_coordinates(self, count, stddev, x, q):
        """Where shares are no Gaussian quite, what is added covers the difference."""
        noise = DiscreteGaussianNoise(count, stddev)
        distance = rounding.distance_from_gaussian(noise)
        assert (distance > 1e-5) == (stddev < 1)
        assert rounding.is_covered(noise, x, 1) == (distance <= 1e-4)
        assert rounding.is_covered(noise, x, 10**4) == (stddev > 1.2)
        # By what the law is made of: a Gaussian, and integers about its values.
        s2, y = noise.variance, np.arange(-400, 401)
        f, mix = laws(noise, x, 400)
        gaussian = -np.square(y) / (2 * s2) - math.log(2 * math.pi * s2) / 2
        near = np.abs(y) < 4 * math.sqrt(s2)
        assert np.max(np.abs(f - gaussian)[near]) <= distance
        if not rounding.is_covered(noise, x, 1):
            return
        log_y = np.logaddexp(math.log(1 - q), math.log(q) + mix - f)
        orders = np.arange(2, 12)
        rate = rounded_rate(orders, noise, 7.0, sampled=True)
        # Of the Gaussian that integers of variance 2 are drawn about.
        assert np.all(rate >= orders / (2 * (s2 - 2)) * (1 - 1e-9))
        for order, most in zip(orders.tolist(), sampled_bound(orders, q, rate, x**2)):
            forward, backward = (
                special.logsumexp(f + power * log_y) for power in (order, 1 - order)
            )
            assert backward <= most + (2 * order - 1) * distance
            assert distance > 1e-12 or backward <= forward * (1 + 1e-12) + 1e-14
            assert forward <= most + (2 * order - 1) * distance
