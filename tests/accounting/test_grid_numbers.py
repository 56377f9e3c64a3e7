# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The claims of docs/privacy/integer_release.md, by summation over the integers."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats

from dpfl.accounting.integer import grid_numbers


def log_pmf(x, stddev):
    """Of N_Z(0, stddev^2); x must hold all integers that matter."""
    terms = -np.square(x / stddev) / 2
    return terms - scipy.special.logsumexp(terms)


def pair(stddev, shift, reach=2):
    """Logs of Q and of the likelihood ratio, where orders up to `reach` look."""
    radius = math.ceil(13 * stddev + (reach + 1) * abs(shift)) + 2
    x = np.arange(-radius, radius + 1.0)
    return log_pmf(x, stddev), (2 * x * shift - shift**2) / (2 * stddev**2)


def mixed(log_ratio, rate):
    """log(1 - rate + rate * ratio)."""
    with np.errstate(divide="ignore"):
        return np.logaddexp(np.log1p(-rate), np.log(rate) + log_ratio)


def random_cases(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        stddev = float(rng.choice([0.3, 0.5, 1, 2, 7, 30]) * rng.uniform(0.8, 1.6))
        shift = int(rng.integers(1, max(2, 3 * stddev)))
        order = float(rng.choice([1.05, 1.5, 2, 2.5, 3, 5.3, 8, 13, 20]))
        rate = float(rng.choice([1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 1]))
        yield stddev, shift, order, rate


def gaussian_hockey_stick(mu, epsilon):
    """delta(epsilon) of N(mu, 1) from N(0, 1)."""
    over, under = scipy.stats.norm.cdf([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu])
    return over - math.exp(epsilon) * under


class TestThePostProcessedGaussian:
    @staticmethod
    def largest_ratio(stddev, width, centre, values):
        """SymmetricLaw of a Gaussian rounded at random about itself, over N_Z(centre, s^2)."""
        s, r, c = (mpmath.mpf(number) for number in (stddev, width, centre))
        t_squared = s**2 - r**2
        fineness = 4  # of the trapezoidal rule, whose error is below exp(-200)
        reach = int(15 * s * fineness)
        nodes = [c + mpmath.mpf(i) / fineness for i in range(-reach, reach + 1)]
        around = range(-int(14 * r) - 2, int(14 * r) + 3)

        def weight(gap, variance):
            return mpmath.exp(-(gap**2) / (2 * variance))

        thetas = [
            mpmath.fsum(weight(int(mpmath.nint(y)) + k - y, r**2) for k in around)
            for y in nodes
        ]
        scale = fineness * mpmath.sqrt(2 * mpmath.pi * t_squared)
        span = range(-int(17 * s), int(17 * s) + 1)
        norm = mpmath.fsum(weight(x - c, s**2) for x in span)
        ratios = []
        for x in values:
            terms = (
                weight(y - c, t_squared) * weight(x - y, r**2) / theta
                for y, theta in zip(nodes, thetas)
            )
            ratios.append(mpmath.fsum(terms) / scale * norm / weight(x - c, s**2))
        return max(abs(ratio - 1) for ratio in ratios)

    def test_smoothing_bound_holds_at_the_width_in_use(self):
        assert grid_numbers.COVER_VARIANCE == 4
        with mpmath.workdps(60):
            assert self.largest_ratio(3.0, 2.0, 1, [0, 5]) < 2.1e-34
        assert 2.1e-34 < grid_numbers.DRAW_DISTANCE / 4

    def test_every_hockey_stick_is_covered(self):
        fractions = np.random.default_rng(1).uniform(0, 3, 300)
        cases = random_cases(300, seed=2)
        for fraction, (stddev, shift, _, rate) in zip(fractions, cases):
            epsilon = float(fraction * shift / stddev)
            noise = math.sqrt(stddev**2 + grid_numbers.COVER_VARIANCE)
            log_q, log_ratio = pair(noise, shift)
            mu = shift / stddev
            plain = self.hockey_stick(log_q, log_ratio, epsilon)
            assert plain <= gaussian_hockey_stick(mu, epsilon) + 1e-13
            # Sampled: 1 - q + q w > e^eps where w > (e^eps - 1 + q) / q.
            inner = math.log((math.expm1(epsilon) + rate) / rate)
            sampled = self.hockey_stick(log_q, mixed(log_ratio, rate), epsilon)
            assert sampled <= rate * gaussian_hockey_stick(mu, inner) + 1e-13

    @staticmethod
    def hockey_stick(log_q, log_ratio, epsilon):
        gap = np.maximum(-np.expm1(epsilon - log_ratio), 0)
        return float(np.sum(np.exp(log_q + log_ratio) * gap))


class TestGrid:
    @pytest.mark.parametrize("ratio", [1.0, 6.4e-3])
    @pytest.mark.parametrize("clients", [1, 100, 10**5, 10**7])
    @pytest.mark.parametrize("z", [1e-7, 1e-3, 0.01 / 3, 0.5, 1.1, 30.0, 1e4])
    def test_integers_fit_their_widths_and_no_finer_grid_does(self, z, clients, ratio):
        grid = grid_numbers.grid(z, clients, ratio)
        scale = Fraction(grid.stddev) / Fraction(z)
        assert grid.max_squared_norm <= scale**2 and grid.max_squared_norm <= 2**52
        assert grid.max_size <= scale * Fraction(ratio) and grid.max_size <= 2**24
        assert Fraction(grid.noise_stddev) ** 2 >= Fraction(grid.stddev) ** 2 + 4
        largest = clients * grid.max_size + 14 * grid.noise_stddev
        assert largest < 2 ** (grid.total_bits - 1)
        assert grid.noise_stddev <= 2**24 + 1e-6
        if grid.total_bits == 32:
            assert grid.stddev >= 8 * clients
        # Not coarser than it need be: twice as fine, something would not.
        finer = 2 * grid.stddev
        assert (
            finer > max(1, z) * 2**18
            or finer > 2**24
            or (finer / z) ** 2 > 2**52
            or finer / z * ratio > 2**24
            or clients * finer / z * ratio + 16 * finer >= 2 ** (grid.total_bits - 1)
        )
