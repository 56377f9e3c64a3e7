# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the distributed-noise events and their bounds."""

import math

import attr
import numpy as np
import pytest
from scipy import special

from dpfl.accounting import log_space
from dpfl.accounting.integer import noise_events, rounding, summed_noise, whole_shifts

KINDS = (
    noise_events.DistributedDiscreteGaussianDpEvent,
    noise_events.DistributedSkellamDpEvent,
)


def unit_event(kind=KINDS[0], **changes):
    """One coordinate, grid step 1, shift 1: the smallest mechanism there is."""
    return attr.evolve(kind(100, 0.5, 1.0, 1.0, 1), **changes)


def count_event(kind=KINDS[0], **changes):
    """A whole number of size 1, which rounding leaves as it is."""
    return unit_event(kind, max_coordinate=1.0, **changes)


def summed_pmf(kind, count, stddev, reach):
    """The summed noise on -reach..reach, for brute force."""
    x = np.arange(-reach, reach + 1)
    if kind is KINDS[1]:
        return np.exp(summed_noise.SkellamNoise(count * stddev**2).log_pmf_at(x))
    return np.exp(summed_noise.DiscreteGaussianNoise(count, stddev).log_pmf_at(x))


class TestExactBound:
    @pytest.mark.parametrize("kind", KINDS)
    def test_little_noise_uses_whole_shifts(self, kind):
        """Where nothing is proved of rounding, any integer vector it makes is covered.

        One share of half a step, coordinates of up to twenty: at most 20 + sqrt(4).
        """
        event = unit_event(kind, noise_clients=3, clip_norm=20.0, dimension=4)
        sampled = attr.evolve(event, sampling_probability=0.5)
        assert sampled.route(sampled=True) == "shifts"
        rate = whole_shifts.shift_rate([2, 5], event.summed_noise, event.max_shift)
        expected = 22**2 * rate
        found = event.exact_rdp([2, 5], sampled=True)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert np.all(sampled.rdp([2, 5]) <= expected)
        assert event.route() == "rounding"

    def test_small_shares_under_long_coordinates(self):
        """Fifty shares of 1.3 steps are nearly Gaussian: no bound by whole shifts."""
        event = KINDS[0](50, 1.3, 1.0, 12.0, 160)
        sampled = attr.evolve(event, sampling_probability=0.05)
        assert event.max_steps > 1 and sampled.route(sampled=True) == "rounding"
        distance = 160 * rounding.distance_from_gaussian(event.summed_noise)
        orders = [1.5, 2, 7, 12.5, 32]
        np.testing.assert_array_equal(
            sampled.rdp_beside_sampling(orders), np.full(5, 3 * distance)
        )
        by_shifts = log_space.poisson_sampled_rdp(orders, 0.05, event.shifts_rdp)
        found = sampled.rdp(orders)
        assert np.all(np.diff(found) >= 0)
        assert np.all(found < by_shifts / 2)
        # A little above N(0, s^2 - 2), about which integers of variance 2 are drawn.
        z2 = (50 * 1.3**2 - 2) / 12**2
        by_gaussian = log_space.poisson_sampled_rdp(
            orders, 0.05, lambda a: np.asarray(a) / (2 * z2)
        )
        np.testing.assert_allclose(found, by_gaussian + 3 * distance, rtol=0.15)
        assert np.all(found >= by_gaussian)

    def test_sampled_clients_under_long_coordinates_have_no_smaller_bound(self):
        """The dominating Gaussian would have no law by the bound of whole shifts."""
        event = unit_event(
            local_stddev=1.0, clip_norm=20.0, max_coordinate=2.0, dimension=10
        )
        assert event.max_steps > 1 and event.route(sampled=True) == "rounding"
        rate = rounding.rounded_rate([2, 16], event.summed_noise, 2.0, sampled=True)
        found = event.exact_rdp([2, 16], sampled=True)
        np.testing.assert_array_equal(found, 20**2 * rate)
        assert np.all(found > 9 * event.shifts_rdp([2, 16]))

    def test_shift_bounds(self):
        event = unit_event(clip_norm=2.5, dimension=100)
        assert event.max_shift == 3  # 2.5 rounds up to 3
        assert event.shift_budget == math.floor((2.5 + 10) ** 2)
        for largest, shift in ((1.0, 1), (0.5, 1), (1.5, 2), (9.0, 3)):
            clipped = attr.evolve(event, max_coordinate=largest)
            assert clipped.max_steps == min(largest, 2.5)
            assert clipped.max_shift == shift
        assert attr.evolve(event, max_coordinate=1.0).shift_budget == 100
        # A float32 may leave a clipped coordinate a little above 3 grid steps.
        assert attr.evolve(event, clip_norm=3.0).max_shift == 4

    def test_scale_does_not_matter(self):
        event = unit_event(clip_norm=3.0, dimension=8)
        scaled = attr.evolve(event, clip_norm=0.3, local_stddev=0.05, granularity=0.1)
        np.testing.assert_allclose(event.rdp([2, 9]), scaled.rdp([2, 9]), rtol=1e-9)
        assert scaled.noise_multiplier == pytest.approx(10 * 0.5 / 3)


class TestClientSampling:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("q", [1e-3, 0.1, 0.5, 0.9])
    @pytest.mark.parametrize(
        ("order", "size"), [(2, 1), (3, 1), (7, 1), (2.5, 1), (4, 2)]
    )
    def test_one_and_two_coordinates_by_direct_summation(self, kind, q, order, size):
        shape = {"clip_norm": math.sqrt(size), "dimension": size}
        event = count_event(kind, noise_clients=6, local_stddev=0.6, **shape)
        event = event.poisson_sampled(q)
        assert event.shift_budget == size
        f = summed_pmf(kind, 6, 0.6, 45)
        p, w = f[1:], f[:-1] / f[1:]
        if size == 2:
            p, w = np.outer(p, p), np.outer(w, w)
        y = 1 - q + q * w
        forward = math.log(np.sum(p * y**order)) / (order - 1)
        reverse = math.log(np.sum(p * y ** (1 - order))) / (order - 1)
        found = event.rdp([order])[0]
        assert max(forward, reverse) <= found * (1 + 1e-9) + 1e-13
        if order == int(order):
            assert found == pytest.approx(forward, rel=1e-6)

    def test_sampled_mixtures_are_below_the_smaller_bound(self):
        """A search: vectors that are rounded, sampling, and both directions summed.

        At each order the smaller of what rounding and whole shifts cost goes into the
        binomial sum; in some of the cases now one, now the other.
        """
        rng, mixed, closest = np.random.default_rng(7), 0, 0.0
        for trial in range(30):
            kind, count = KINDS[trial % 2], int(rng.integers(1, 6))
            stddev, m = rng.uniform(0.25, 0.9), int(rng.integers(1, 3))
            largest, q = rng.uniform(0.4, 1), rng.uniform(0.02, 0.9)
            q = q if trial % 6 else 1.0
            clip = largest * rng.uniform(0.9, 1) * math.sqrt(m)
            event = kind(count, stddev, 1.0, clip, m, max_coordinate=largest)
            event = event.poisson_sampled(q)
            orders = [*range(2, 10), float(rng.uniform(1.1, 9))]
            by_shifts = event.shifts_rdp(orders)
            before = event.rdp_before_sampling(orders)
            is_shift = before[:8] >= by_shifts[:8] * (1 - 1e-12)
            mixed += is_shift.any() and not is_shift.all()
            reach = math.ceil(12 * stddev * math.sqrt(count)) + 12
            f = summed_pmf(kind, count, stddev, reach)
            f = f[f > 1e-280]
            found = event.rdp(orders)
            for vector in (np.ones(m), rng.uniform(0, 1, m), rng.uniform(0, 1, m)):
                x = np.minimum(vector, 1) * largest
                x *= min(1.0, clip / np.linalg.norm(x))
                log_p, log_w = np.zeros(1), np.zeros(1)
                for size in x:
                    ratio = np.log(1 - size + size * f[:-1] / f[1:])
                    log_p = np.add.outer(log_p, np.log(f[1:])).ravel()
                    log_w = np.add.outer(log_w, ratio).ravel()
                log_y = np.log1p(q * np.expm1(log_w))
                for order, bound in zip(orders, found):
                    for power in (order, 1 - order):
                        direct = special.logsumexp(log_p + power * log_y)
                        direct /= order - 1
                        closest = max(closest, direct / bound)
                        assert direct <= bound * (1 + 1e-9) + 1e-12
        assert mixed >= 5 and closest > 0.9

    def test_extremes_of_the_probability(self):
        event, orders = count_event(), [1.5, 2, 30]
        np.testing.assert_array_equal(event.poisson_sampled(0.0).rdp(orders), 0)
        nearly = event.poisson_sampled(1 - 1e-9)
        np.testing.assert_allclose(nearly.rdp([2, 30]), event.rdp([2, 30]), rtol=1e-6)
        assert np.all(nearly.rdp(orders) <= event.rdp(orders) * (1 + 1e-12))
        tiny = event.poisson_sampled(1e-6).rdp([2])[0]
        expected = 1e-12 * math.expm1(event.rdp([2])[0])
        assert tiny == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("stddev", "probability"), [(1e-9, 1.0), (1e-9, 0.1), (1e-170, 1.0), (1e-170, 0.1)]
)
def test_noise_that_is_always_zero_gives_no_privacy(kind, stddev, probability):
    event = unit_event(kind, local_stddev=stddev, clip_norm=1000.0, dimension=64)
    if probability < 1:
        event = event.poisson_sampled(probability)
    np.testing.assert_array_equal(event.rdp([1.5, 2.0, 64.0]), [np.inf] * 3)


def test_skellam_noise_of_many_tiny_shares_is_computed():
    event = unit_event(KINDS[1], noise_clients=10**4, local_stddev=0.01)
    assert np.all(np.isfinite(event.rdp([2.0])))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [1.0, 0.1])
def test_extreme_scales_have_monotone_divergences(kind, q):
    orders = [1.5, 2.0, 32.0]
    for steps, stddev in ((1e-6, 1.0), (1e12, 1.0), (1e12, 1e12), (1.0, 1e10)):
        event = unit_event(kind, clip_norm=steps, local_stddev=stddev)
        found = attr.evolve(event, sampling_probability=q).rdp(orders)
        assert np.all(np.isfinite(found) & (found > 0))
        assert np.all(np.diff(found) >= 0)
