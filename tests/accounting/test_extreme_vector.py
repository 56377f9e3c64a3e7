# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The extreme vector under smooth thresholds, against quadrature and other routes."""

import math

import dp_accounting
import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting import extreme_vector
from tests.accounting import quadrature

L2 = accounting.SparsifiedGaussianDpEvent


def coordinate(keep, time):
    """Ratios of a coordinate, its posteriors, and weights under 'without'."""
    x = np.linspace(-12, 30, 200_001)
    weights = np.exp(-x * x / 2)
    ratio = 1 - keep + keep * np.exp(math.sqrt(time) * x - time / 2)
    return ratio, 1 - (1 - keep) / ratio, weights / np.sum(weights)


@pytest.mark.parametrize(("keep", "time"), [(0.01, 1.5), (0.1, 0.04), (0.03, 0.4)])
@pytest.mark.parametrize("power", [2, 3, 8])
def test_b_is_the_largest_that_the_condition_allows(keep, time, power):
    b = extreme_vector.largest_b(keep, time, power)

    def mean(t, b):
        ratio, p, weights = coordinate(keep, t)
        k = p * p * (1 - (4 + 2 * b) * p + (2 + b) * p * p)
        return weights @ (ratio**power * k)

    scale = mean(time, b - 1)
    assert abs(mean(time, b)) < 1e-6 * scale
    for part in (0.01, 0.3, 0.9):
        assert mean(part * time, b) > 0


@pytest.mark.parametrize(("power", "b"), [(2, 2.0), (6, 0.5), (20, 9.0)])
def test_thresholds_have_the_mean_and_the_slopes_of_the_theorem(power, b):
    edges, masses, means = extreme_vector.thresholds(power, b)
    assert np.sum(masses) == pytest.approx(1) and np.sum(means) == pytest.approx(1)
    # Their sums are of e^u within the cells that they are of.
    near = np.minimum(masses, means)[1:-1] > 1e-8
    masses, means, edges = masses[1:-1][near], means[1:-1][near], edges[:-1][near]
    assert np.all(means / masses >= np.exp(edges) * (1 - 1e-6))
    assert np.all(means / masses <= np.exp(edges + 2e-3) * (1 + 1e-6))
    slopes = np.diff(np.log(means)) / np.diff(edges)
    assert slopes.max() <= power + 1e-3 and slopes.min() >= -b - 1e-3
    # G'' - G' is at least -(2 + 2 b) G.
    bends = np.diff(slopes[::20]) / np.diff(edges[:-1:20])
    middle = (slopes[::20][1:] + slopes[::20][:-1]) / 2
    assert np.min(bends + middle * middle - middle) >= -(2 + 2 * b) * 1.02


@pytest.mark.parametrize("q", [1.0, 0.3])
@pytest.mark.parametrize(("keep", "time", "power"), [(0.1, 0.5, 3), (0.05, 1.0, 2)])
def test_other_vectors_are_below_the_extreme_one(keep, time, power, q):
    b = extreme_vector.largest_b(keep, time, power)
    assert b > 0
    edges, masses, _ = extreme_vector.thresholds(power, b)

    def delta(parts, epsilon):
        """The mean over thresholds, of two coordinates' worth of vectors."""
        sizes = [math.sqrt(time * part) for part in parts]
        u, weights = quadrature.ratios(sizes, keep, q, step=0.2, reach=7.0)
        rising = np.argsort(u)
        u, weights = u[rising], weights[rising]
        sums = [np.append(np.cumsum(x[::-1])[::-1], 0) for x in (weights, weights * u)]
        limits = np.expm1(epsilon + edges)
        place = np.searchsorted(u, limits)
        return masses[1:] @ (sums[1][place] - limits * sums[0][place])

    for epsilon in (-0.3, 0.0, 0.05, 0.5):
        most = delta([1.0, 1.0], epsilon)
        for parts in ([1, 0.5, 0.5], [0.9, 0.7, 0.4], [2 / 3] * 3):
            assert delta(parts, epsilon) <= most * (1 + 1e-9)


def test_one_coordinate_is_a_sampled_gaussian():
    """And is the worst vector as it is: nothing is smoothed."""
    event = L2(1.0, 0.2, 1.0, 1, 0.25)
    run = extreme_vector.ExtremeRun([(event, 20)], 1e-4)
    plain = dp_accounting.PoissonSampledDpEvent(
        0.05, dp_accounting.GaussianDpEvent(0.2)
    )
    same = dp_accounting.SelfComposedDpEvent(plain, 20)
    wanted = accounting.epsilon(same, 1e-4, accounting_method="tight").epsilon
    assert run.epsilon(1e-4) == pytest.approx(wanted, rel=1e-3)


def test_few_coordinates_cost_little_more_than_the_extreme_pair():
    event = L2(2.2, 0.03, 588**-0.5, 16384, 0.5)
    run = extreme_vector.ExtremeRun([(event, 60)], 1e-3)
    pair = max(side.epsilon(1e-3) for side in run._sides)
    found = run.epsilon(1e-3)
    assert pair == pytest.approx(7.903, abs=0.01)
    assert pair < found < 1.015 * pair
    others = accounting.epsilon(
        dp_accounting.SelfComposedDpEvent(event, 60), 1e-3, accounting_method="rdp"
    )
    assert found < 0.93 * others.epsilon
