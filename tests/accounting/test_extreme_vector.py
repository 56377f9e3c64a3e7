# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The extreme vector under smooth thresholds, against quadrature and other routes."""

import math

import numpy as np
import pytest
from scipy import special

from dpfl import accounting
from dpfl.accounting import extreme_vector
from tests.accounting import quadrature
from tests.accounting.event_names import COMPOSED, GAUSSIAN, L2, POISSON, SELF, SLOT


def coordinate(keep, time):
    """Ratios of a coordinate, its posteriors, and weights under 'without'."""
    x = np.linspace(-12, 30, 20_001)
    weights = np.exp(-x * x / 2)
    ratio = 1 - keep + keep * np.exp(math.sqrt(time) * x - time / 2)
    return ratio, 1 - (1 - keep) / ratio, weights / np.sum(weights)


def bends(keep, time, power, b):
    """The condition's means, over their scales, of curvatures that fall, then rise.

    G is (X / v)^-b below v and (X / v)^A above it, for 60 places of v.
    """
    ratio, p, weights = coordinate(keep, time)
    falls, rises = 1 - 3 * p - 2 * b * p, 1 - 3 * p + 2 * power * p
    found = []
    for v in np.geomspace(1, ratio[weights > 1e-30].max(), 60):
        g = np.where(ratio < v, (ratio / v) ** -b, (ratio / v) ** power)
        inner = (1 - p) * np.where(ratio < v, falls, rises) - (1 + b) * p * p
        scale = weights @ (p * p * g)
        found.append(weights @ (p * p * g * inner) / scale)
    return np.array(found)


@pytest.mark.parametrize(
    ("keep", "time"), [(0.01, 1.5), (0.1, 0.04), (0.03, 0.4), (0.001, 4.0)]
)
@pytest.mark.parametrize("power", [2, 2.6, 4, 8])
def test_b_is_allowed_at_all_times_and_hardly_more_is(keep, time, power):
    b = extreme_vector.largest_b(keep, time, power)
    if b < 0:
        # The page's necessary condition, for powers that leave nothing.
        assert np.min(bends(keep, time, power, 0.3)) < 0
        return
    for part in (1, 0.9, 0.3, 0.01):
        assert np.min(bends(keep, part * time, power, b)) > 0
    assert np.min(bends(keep, time, power, 1.2 * b + 0.1)) < 0


@pytest.mark.parametrize(
    ("keep", "time", "power"),
    [(0.01, 1.5, 1.9), (0.01, 1.5, math.nan), (0.01, 16.1, 2), (1.0, 0.1, 2)],
)
def test_settings_that_the_theorem_does_not_have(keep, time, power):
    assert extreme_vector.largest_b(keep, time, power) == -1


@pytest.mark.parametrize(
    ("keep", "time", "power", "least"),
    [(1e-3, 1.0, 5, 49), (1e-3, 1.0, 20, -1), (1e-10, 4.0, 20, -1)]
    + [(1e-100, 15.0, 5, 49), (1e-300, 15.0, 20, 49)],
)
def test_tiny_shares_are_told_from_ones_that_are_found(keep, time, power, least):
    """Tilts by X^A find a share if e^(A time) is about 1 / keep."""
    found = extreme_vector.largest_b(keep, time, power)
    assert least <= found <= (least if least < 0 else 50)


@pytest.mark.parametrize("keep", [0.3, 0.9, 1 - 1e-12])
def test_no_b_allows_many_coordinates_that_are_kept(keep):
    assert extreme_vector.largest_b(keep, 1e-4, 2) < 0


@pytest.mark.parametrize(("power", "b"), [(2, 2.0), (6, 0.5), (20, 9.0)])
def test_thresholds_have_the_slopes_of_the_theorem(power, b):
    without, given = extreme_vector.threshold_losses(power, b, 1e-12)
    for side in (without, given):
        assert np.sum(side.masses) + side.infinite == pytest.approx(1, abs=1e-9)
        assert 0 <= side.infinite < 1e-11
    # Seen from e^u's law the losses are u, and e^-u has a mean of 1.
    u = given.step * (given.low + np.arange(given.masses.size))
    assert np.sum(given.masses * np.exp(-u)) == pytest.approx(1, abs=1e-9)
    near = np.flatnonzero(given.masses > 1e-8)[1:-1:20]
    curve, u = np.log(given.masses[near]), u[near]
    slopes = np.diff(curve) / np.diff(u)
    assert slopes.max() <= power + 1e-2 and slopes.min() >= -b - 1e-2
    # G'' - G' is at least -(2 + 2 b) G.
    bends = np.diff(slopes) / np.diff(u[:-1])
    middle = (slopes[1:] + slopes[:-1]) / 2
    assert np.min(bends + middle * middle - middle) >= -(2 + 2 * b) * 1.02


@pytest.mark.parametrize("q", [1.0, 0.3])
@pytest.mark.parametrize(("keep", "time", "power"), [(0.1, 0.5, 3), (0.05, 1.0, 2)])
def test_other_vectors_are_below_the_extreme_one(keep, time, power, q):
    b = extreme_vector.largest_b(keep, time, power)
    assert b > 0
    smooth, _ = extreme_vector.threshold_losses(power, b, 1e-9)
    thresholds = -smooth.step * (smooth.low + np.arange(smooth.masses.size))[::-8]
    masses = np.add.reduceat(smooth.masses[::-1], np.arange(0, smooth.masses.size, 8))

    def delta(parts, epsilon):
        """The mean over thresholds, of two coordinates' worth of vectors."""
        sizes = [math.sqrt(time * part) for part in parts]
        u, weights = quadrature.ratios(sizes, keep, q, step=0.25, reach=6.5)
        rising = np.argsort(u)
        u, weights = u[rising], weights[rising]
        sums = [np.append(np.cumsum(x[::-1])[::-1], 0) for x in (weights, weights * u)]
        limits = np.expm1(epsilon + thresholds)
        place = np.searchsorted(u, limits)
        return masses @ (sums[1][place] - limits * sums[0][place])

    for epsilon in (-0.3, 0.0, 0.05, 0.5):
        most = delta([1.0, 1.0], epsilon)
        for parts in ([1, 0.5, 0.5], [0.9, 0.7, 0.4], [2 / 3] * 3):
            assert delta(parts, epsilon) <= most * (1 + 1e-9)


def two_coordinates(keep, time, q, epsilon):
    """Hockey-sticks of removing and of adding, exact in the second coordinate."""
    m = math.sqrt(time)
    x = np.arange(-12, 14 + m, 0.005)
    weights = np.exp(-x * x / 2) * 0.005 / math.sqrt(2 * math.pi)
    ratio = 1 + keep * np.expm1(m * x - time / 2)

    def payoff(sign):
        """Sums over w above, or below, of 1 - q + q ratio (1 - g + g w) - k."""
        k = math.exp(sign * epsilon)
        least = ((k - 1 + q) / (q * ratio) - 1 + keep) / keep
        place = (np.log(np.maximum(least, 1e-300)) + time / 2) / m
        place = np.where(least > 0, place, -np.inf)
        lost = (1 - q - k + q * ratio * (1 - keep)) * special.ndtr(-sign * place)
        kept = q * ratio * keep * special.ndtr(sign * (m - place))
        return sign * (weights @ (lost + kept))

    return payoff(1), math.exp(epsilon) * payoff(-1)


@pytest.mark.parametrize("q", [1.0, 0.05])
@pytest.mark.parametrize("keep", [0.001, 0.01])
@pytest.mark.parametrize("time", [0.001, 0.1, 1.6])
def test_losses_are_rounded_up_on_a_wide_grid(keep, time, q):
    bound = 0.5**0.5
    event = L2(bound / (math.sqrt(time) * keep), keep, bound, 16, q)
    sides, _ = extreme_vector.release_losses(event, 1e-9)
    spread = q * keep * math.sqrt(2 * math.expm1(time))
    for part in (0, 0.3, 1, 6, 20):
        epsilon = part * spread
        for side, wanted in zip(sides, two_coordinates(keep, time, q, epsilon)):
            found = side.profile()(np.array([epsilon]))[0]
            assert found >= wanted * (1 - 1e-9) - 1e-15
            assert found <= wanted * 1.001 + 1.5 * side.step


def test_one_coordinate_is_a_sampled_gaussian():
    """And is the worst vector as it is: no threshold is random."""
    event = L2(1.0, 0.2, 1.0, 1, 0.25)
    sides = extreme_vector.losses([(event, 20)], 1e-4)
    plain = POISSON(0.05, GAUSSIAN(0.2))
    same = SELF(plain, 20)
    wanted = accounting.epsilon(same, 1e-4, accounting_method="tight").epsilon
    found = max(side.epsilon(1e-4) for side in sides)
    assert found == pytest.approx(wanted, rel=1e-3)


def test_few_coordinates_cost_little_more_than_the_pair():
    event = L2(2.2, 0.03, 588**-0.5, 16384, 0.5)
    pair = 7.903
    found = max(s.epsilon(1e-3) for s in extreme_vector.losses([(event, 60)], 1e-3))
    assert pair < found < 1.015 * pair
    run = SELF(event, 60)
    others = accounting.epsilon(run, 1e-3, accounting_method="rdp")
    assert found < 0.93 * others.epsilon


def test_coordinates_that_tell_too_much_have_no_bound():
    assert extreme_vector.losses([(L2(1.0, 0.5, 0.1, 200, 0.5), 10)], 1e-5) is None
    with pytest.raises(accounting.privacy_loss.TooManyLossesError):
        extreme_vector.losses([(L2(0.1, 0.01, 0.1, 200, 0.5), 10)], 1e-5)


@pytest.mark.parametrize("rest", [0.0, 1e-13, 1e-5, 0.5])
def test_a_remainder_is_never_dropped(rest):
    """Nearly whole numbers of coordinates: the same, and rising."""
    sides = [
        extreme_vector.losses([(L2(40.0, 0.01, (4 + r) ** -0.5, 50, 0.5), 5)], 1e-3)
        for r in (0.0, rest)
    ]
    first, second = (max(side.epsilon(1e-3) for side in of) for of in sides)
    assert second <= first * (1 + 1e-4)


@pytest.mark.parametrize("wrap", [False, True])
def test_other_releases_are_refused(wrap):
    """Beside Gaussians, and in rounds that are a secret of the whole run."""
    event = L2(2.2, 0.03, 588**-0.5, 16384)
    if wrap:
        other = SLOT(event, 10, 10)
    else:
        other = COMPOSED([event, GAUSSIAN(1.0)])
    found = accounting.epsilon(other, 1e-5, every_route=True).candidates
    [route] = [c for c in found if c.route == "extreme-pld"]
    assert route.epsilon is None
