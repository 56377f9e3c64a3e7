# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gaussians that stand for integer noise, against sums, simulation and limits."""

import functools
import itertools
import math

import attr
import mpmath
import numpy as np
import pytest
from scipy import special

from dpfl import accounting
from dpfl.accounting import gaussian, gaussian_domination
from dpfl.accounting.integer import dominating_gaussian, noise_events
from dpfl.accounting.integer.summed_noise import DiscreteGaussianNoise, SkellamNoise
from tests.accounting import exact_noise
from tests.accounting.event_names import COMPOSED, GAUSSIAN, POISSON, SELF

DDG = noise_events.DistributedDiscreteGaussianDpEvent
SKELLAM = noise_events.DistributedSkellamDpEvent
NOISES = (
    DiscreteGaussianNoise(1, 0.8),
    DiscreteGaussianNoise(1, 3.0),
    DiscreteGaussianNoise(7, 0.5),
    DiscreteGaussianNoise(100, 0.4),
    SkellamNoise(0.7),
    SkellamNoise(12.0),
)
EPSILONS = (0.0, 0.05, 0.4, 1.5, 4.0)


def laws(noise, x):
    """f, and the law of a coordinate of x steps, rounded and noised."""
    y, k = np.arange(-80, 81), math.floor(x)
    f, low, high = (np.exp(noise.log_pmf_at(y - v)) for v in (0, k, k + 1))
    return f, (1 - (x - k)) * low + (x - k) * high


def hockey_sticks(p, q, epsilon):
    forward, backward = p - math.exp(epsilon) * q, q - math.exp(epsilon) * p
    return np.maximum(forward, 0).sum(), np.maximum(backward, 0).sum()


def tight(event, delta=1e-5):
    return accounting.epsilon(event, delta, accounting_method="tight")


@pytest.mark.parametrize("noise", NOISES)
def test_a_step_against_forty_digits(noise):
    """No step between normal quantiles is longer, and the first one is as long."""
    if isinstance(noise, SkellamNoise):
        pmf, kept = exact_noise.skellam(noise.variance, 150), 40
    else:
        pmf = exact_noise.discrete_gaussian(noise.count, noise.stddev, 150)
        kept = 25
    found = dominating_gaussian.gaussian_shift(noise)
    with mpmath.workdps(40):
        tails = list(itertools.accumulate(reversed(pmf)))[::-1]
        upper = [tails[150 + k] for k in range(kept)]
        z = [
            mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * tail)
            for tail in upper
            if tail > 1e-30
        ]
        steps = [float(b - a) for a, b in zip(z, z[1:])]
    assert max(steps) <= found <= max(steps) * (1 + 1e-9)
    assert found == pytest.approx(2 * special.ndtri((1 + float(pmf[150])) / 2))


@pytest.mark.parametrize("q", [1.0, 0.2])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    "x", [[0.3], [1.0], [2.6], [0.5, 0.5], [1.0, 0.2], [1.4, 0.7], [-0.6, 2.0]]
)
def test_hockey_sticks_are_below_the_dominating_gaussians(noise, x, q):
    """One and two coordinates, with and without client sampling, both directions."""
    pairs = [laws(noise, abs(each)) for each in x]
    without = functools.reduce(np.multiply.outer, [f for f, _ in pairs]).ravel()
    with_it = functools.reduce(np.multiply.outer, [mix for _, mix in pairs]).ravel()
    sampled, squared = (1 - q) * without + q * with_it, float(np.square(x).sum())
    time = dominating_gaussian.gaussian_shift(noise) ** 2
    for delta in (0.1, 1e-3, 1e-8):
        clock = dominating_gaussian.clock_bound(squared, max(map(abs, x)), time, delta)
        if not clock < math.inf:
            continue
        for epsilon in EPSILONS:
            # The sampled Gaussian's: at epsilon' with 1 - q + q e^eps' = e^eps.
            inner = math.log1p(math.expm1(epsilon) / q)
            limit = q * gaussian.gaussian_delta(inner, clock**-0.5) + delta
            assert max(hockey_sticks(sampled, without, epsilon)) <= limit + 1e-12


@pytest.mark.parametrize(("x", "time"), [(0.1, 0.2), (0.5, 0.05), (1.5, 0.1)])
def test_the_clock_is_above_a_simulation_and_close(x, time):
    """log E exp(s int m^2) by 20,000 paths of the posterior mean m."""
    rng = np.random.default_rng(2)
    paths, steps, k = 20_000, 100, math.floor(x)
    up = rng.random(paths) < x - k
    logit, integral = np.full(paths, special.logit(x - k)), np.zeros(paths)
    for _ in range(steps):
        before = special.expit(logit)
        logit += rng.normal(size=paths) * math.sqrt(time / steps)
        logit += (up - 0.5) * time / steps
        after = special.expit(logit)
        integral += ((k + before) ** 2 + (k + after) ** 2) / 2 * time / steps
    for short in (False, True)[: 2 - k]:
        a, b = dominating_gaussian._supersolution(short, time)
        for s, rate in zip(dominating_gaussian._EXPONENTS / time, a * x**2 + b * x**4):
            if s * integral.std() > 1:
                break
            sample = np.exp(s * (integral - x**2 * time))
            mean, spread = sample.mean(), 4 * sample.std() / math.sqrt(paths)
            assert rate >= math.log(mean - spread) + s * x**2 * time
            if s < 3 / time:
                assert rate <= 1.25 * math.log(mean + spread) + 1.25 * s * x**2 * time


def test_many_coordinates_by_monte_carlo():
    """400 coordinates of half a step under Skellam noise: E_P[(1 - e^eps/R)+]."""
    rng = np.random.default_rng(3)
    noise, count, draws, x = SkellamNoise(60.0), 400, 40_000, 0.5
    f, mix = laws(noise, x)
    ratio = np.log(mix / f)
    counts = rng.multinomial(count, mix / mix.sum(), size=draws)
    loss = counts @ ratio
    clock = dominating_gaussian.clock_bound(
        count * x**2, x, dominating_gaussian.gaussian_shift(noise) ** 2, 1e-6
    )
    for epsilon in (0.5, 2.0, 4.0):
        sample = np.maximum(-np.expm1(epsilon - loss), 0)
        limit = gaussian.gaussian_delta(epsilon, clock**-0.5) + 1e-6
        assert sample.mean() <= limit + 4 * sample.std() / math.sqrt(draws)
        assert sample.mean() >= 0.9 * limit - 4 * sample.std() / math.sqrt(draws)


def release(kind=DDG, n=100, z=1.0, granularity=0.03, m=10**6, q=1.0, **more):
    more = {"max_coordinate": 6e-3, "clip_norm": 1.0, **more}
    return kind(
        noise_clients=n,
        local_stddev=z / math.sqrt(n),
        granularity=granularity,
        dimension=m,
        sampling_probability=q,
        **more,
    )


class TestEpsilon:
    @pytest.mark.parametrize("kind", [DDG, SKELLAM])
    @pytest.mark.parametrize(
        ("z", "q", "rounds", "target", "delta"),
        [
            (3.73, 1.0, 1, 1.0, 1e-5),
            (6.0, 1.0, 100, 8.0, 1e-5),
            (0.96, 0.01, 1000, 2.0, 1e-5),
            (1.97, 0.5, 60, 8.0, 1e-3),
        ],
    )
    def test_wide_noise_costs_as_gaussian(self, kind, z, q, rounds, target, delta):
        """Renyi accounting asks for 6 to 10% more, and this for less than 0.4%."""
        event = SELF(release(kind, z=1.004 * z, granularity=0.03 * z, q=q), rounds)
        plain = GAUSSIAN(z)
        if q < 1:
            plain = POISSON(q, plain)
        found = tight(event, delta)
        assert found.accounting_method.startswith("stopped-")
        assert found.epsilon <= tight(SELF(plain, rounds), delta).epsilon
        assert (
            found.epsilon
            < accounting.epsilon(event, delta, accounting_method="rdp").epsilon
        )
        more = attr.evolve(event.event, local_stddev=event.event.local_stddev / 1.004)
        exact = tight(SELF(plain, rounds), delta).epsilon
        assert tight(SELF(more, rounds), delta).epsilon > exact
        assert abs(exact / target - 1) < 0.01

    def test_composes_with_counts_and_gaussians(self):
        more = {"max_coordinate": 1.0, "noise_of_helpers": True}
        update = release(m=1024, **more)
        count = release(granularity=1.0, z=10.0, m=1, **more)
        both = noise_events.WithClipCountDpEvent(update, count)
        assert tight(update).epsilon < tight(both).epsilon
        sampled = tight(POISSON(0.1, both))
        assert sampled == tight(both.poisson_sampled(0.1))
        assert sampled.epsilon < tight(both).epsilon / 2
        plain = GAUSSIAN(1.0)
        beside = COMPOSED([update, plain])
        assert tight(beside).epsilon > max(tight(plain).epsilon, tight(update).epsilon)

    def test_integer_shifts_need_no_rounding_allowance(self):
        """A count: V is the square of the shift, and what is left is the noise's h."""
        count = release(granularity=1.0, z=20.0, m=1, max_coordinate=1.0)
        h = dominating_gaussian.gaussian_shift(count.summed_noise)
        found = dominating_gaussian.dominating_gaussian(count, 1e-9)
        assert found.clock == pytest.approx(h * h) and 0 < found.distance < 1e-200

    def test_unsampled_releases_share_a_clock(self):
        event = release(granularity=0.15, z=4.0)
        apart, shared = (
            dominating_gaussian.dominating_gaussian(event, *numbers).clock
            for numbers in ((1e-9,), (1e-7, 100))
        )
        least = dominating_gaussian.gaussian_shift(event.summed_noise) ** 2 / 0.15**2
        assert least < shared < apart and shared - least < (apart - least) / 2

    @pytest.mark.parametrize("kind", [DDG, SKELLAM])
    @pytest.mark.parametrize("z", [1e-300, 1e-9, 1e-3, 0.05])
    def test_vanishing_noise_is_infinite(self, kind, z):
        for event in (release(kind, z=z), release(kind, z=z, granularity=2.0, m=1)):
            found = dominating_gaussian.dominating_gaussian(event, 1e-9)
            assert found.clock > 40 and tight(event).epsilon > 20

    def test_noise_wider_than_tables_is_closed_form_or_infinite(self):
        """Discrete Gaussian noise has a closed form, and Skellam noise none."""
        wide = release(z=1.0, granularity=1e-9)
        assert dominating_gaussian.dominating_gaussian(
            wide, 1e-9
        ).clock == pytest.approx(1, abs=1e-8)
        skellam = release(SKELLAM, z=1.0, granularity=1e-9)
        assert dominating_gaussian.dominating_gaussian(skellam, 1e-9).clock == math.inf
        assert gaussian_domination.is_of_gaussians(skellam)

    @pytest.mark.parametrize("stddev", [1500.0, 6000.0, 30_000.0])
    def test_wide_noise_against_its_own_sums(self, stddev):
        """The longest step, z_1 - z_0, and hockey-sticks of a shift of s steps."""
        noise = DiscreteGaussianNoise(4, stddev / 2)
        h, k = (
            dominating_gaussian.gaussian_shift(noise),
            np.arange(-12 * int(stddev), 0),
        )
        with mpmath.workdps(40):
            mode = 1 / (mpmath.sqrt(2 * mpmath.pi) * stddev)
            longest = float(2 * mpmath.sqrt(2) * mpmath.erfinv(mode))
        assert longest < h < longest * (1 + 3 / stddev**2)
        k = np.concatenate([k, -1 - k])
        p, q = (np.exp(noise.log_pmf_at(k - v)) for v in (int(stddev), 0))
        for epsilon in EPSILONS:
            limit = gaussian.gaussian_delta(epsilon, 1 / (h * int(stddev)))
            for found in hockey_sticks(p, q, epsilon):
                assert limit * (1 - 1e-4) < found < limit


class TestClock:
    def test_small_steps_cost_nothing(self):
        found = dominating_gaussian.clock_bound(1e6, 0.01, 1e-6, 1e-9)
        assert 1 < found < 1 + 1e-5

    def test_clock_is_monotone_in_delta_lengths_and_steps(self):
        base = (36.0, 0.05, 1 / 36)
        found = [
            dominating_gaussian.clock_bound(*base, delta)
            for delta in (1e-3, 1e-6, 1e-12)
        ]
        assert found == sorted(found) and 1.014 < found[0] < found[2] < 1.04
        longer = dominating_gaussian.clock_bound(36.0, 0.3, 1 / 36, 1e-6)
        assert longer > found[1]
        assert dominating_gaussian.clock_bound(9.0, 0.05, 1 / 9, 1e-6) > found[1]

    @pytest.mark.parametrize("time", [1e-320, 1e-12, 1.0, 1e4])
    def test_any_time(self, time):
        for top in (1e-9, 1.0, 50.0):
            assert dominating_gaussian.clock_bound(2.0, top, time, 1e-9) >= 2 * time
