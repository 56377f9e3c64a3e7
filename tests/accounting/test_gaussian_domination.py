# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Gaussians that stand for masked ones, against quadrature, simulation and limits."""

import math

import numpy as np
import pytest
from scipy import special

from dpfl import accounting
from dpfl.accounting import gaussian, gaussian_domination
from tests.accounting import quadrature
from tests.accounting.event_names import (
    ADD,
    COMPOSED,
    GAUSSIAN,
    L2,
    LAPLACE,
    LINF,
    SELF,
)

MODEL = 1018174
RATIO = math.sqrt(2 * math.log(MODEL * 100) / MODEL)


def tight(event, delta=1e-5):
    return accounting.epsilon(event, delta, accounting_method="tight")


def hockey_sticks(sizes, keep, q, epsilon):
    """E_Q[(y - e^eps)+] and E_Q[(1 - e^eps y)+], y = 1 - q + q x."""
    u, weights = quadrature.ratios(sizes, keep, q, step=0.02, reach=8.0)
    remove = weights @ np.maximum(u - math.expm1(epsilon), 0)
    add = weights @ np.maximum(1 - math.exp(epsilon) * (1 + u), 0)
    return remove, add


@pytest.mark.parametrize("keep", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("sizes", [[1.0], [0.4], [0.7, 0.7], [0.5, 0.2]])
@pytest.mark.parametrize("q", [1.0, 0.2])
def test_hockey_sticks_are_below_the_dominating_gaussians(keep, sizes, q):
    """Vectors within |v_j| <= max(sizes), and of the L2 norm of `sizes`."""
    time = max(sizes) ** 2
    full = sum(size**2 for size in sizes) / time
    for delta in (0.1, 1e-3, 1e-8):
        clock = gaussian_domination.clock_bound(keep, time, full, delta)
        assert clock <= full * time
        for epsilon in (0.0, 0.02, 0.3, 1.0):
            # The sampled Gaussian's: at epsilon' with 1 - q + q e^eps' = e^eps.
            inner = math.log1p(math.expm1(epsilon) / q)
            limit = q * gaussian.gaussian_delta(inner, clock**-0.5) + delta
            assert max(hockey_sticks(sizes, keep, q, epsilon)) <= limit + 1e-7


def exponent(keep, place):
    """The bounds on h_s at a time, and the exponents s that they are for."""
    found = gaussian_domination._log_exponential(keep, place)
    return found, gaussian_domination._exponents(place)


@pytest.mark.parametrize(("keep", "place"), [(0.3, 0), (0.05, -12), (0.8, 7)])
def test_the_exponent_is_above_a_simulation_and_close(keep, place):
    """E_P exp(s int p^2) by 20,000 paths of the posterior."""
    time = gaussian_domination._RATIO**place
    rng = np.random.default_rng(2)
    paths, steps = 20_000, 200
    kept = rng.random(paths) < keep
    logit = np.full(paths, special.logit(keep))
    integral = np.zeros(paths)
    for _ in range(steps):
        noise = rng.normal(size=paths) * math.sqrt(time / steps)
        before = special.expit(logit)
        logit += noise + (kept - 0.5) * time / steps
        after = special.expit(logit)
        integral += (before**2 + after**2) / 2 * time / steps
    for bound, s in list(zip(*exponent(keep, place)))[:24:4]:
        sample = np.exp(s * integral)
        mean = sample.mean()
        spread = 4 * sample.std() / math.sqrt(paths)
        assert bound >= math.log(mean - spread)
        assert bound <= 1.03 * math.log(mean + spread)


class TestClock:
    def test_keep_fraction_one_is_the_gaussian(self):
        found = gaussian_domination.clock_bound(1 - 1e-9, 0.04, 25.0, 1e-6)
        assert 0.999 < found <= 1.0 + 1e-12

    @pytest.mark.parametrize("time", [1e-300, 1e-9, 1e4, math.inf])
    def test_any_time_has_a_bound(self, time):
        for keep in (1e-300, 0.01, 0.5):
            found = gaussian_domination.clock_bound(keep, time, 10.0, 1e-9)
            assert 0 <= found <= 10 * time

    def test_many_small_coordinates_act_as_their_mean(self):
        """K to infinity at equal z: V* goes to 1/z^2 = (gamma Delta2 / sigma)^2."""
        excess = [
            gaussian_domination.clock_bound(0.1, 100 / full, full, 1e-6) - 1
            for full in (1e4, 1e5, 1e6)
        ]
        assert 0 < excess[2] < excess[1] < excess[0] < 0.2


def training(z, keep, q, rounds):
    return SELF(L2(z, keep, RATIO, MODEL, q), rounds)


class TestEpsilon:
    @pytest.mark.parametrize(
        ("z", "q", "rounds", "delta"),
        [(2.035, 0.5, 60, 1e-3), (1.085, 0.03, 1500, 1e-5)],
    )
    def test_trainings_with_an_epsilon_of_eight(self, z, q, rounds, delta):
        run = training(z, 0.01, q, rounds)
        report = tight(run, delta)
        [found] = [c for c in report.candidates if c.route == "stopped-pld"]
        assert 7.8 < found.epsilon < 8.0
        assert report == accounting.epsilon(run, delta)
        assert report.accounting_method == "extreme-pld"
        assert 0.9 * found.epsilon < report.epsilon < found.epsilon
        by_rdp = accounting.epsilon(run, delta, accounting_method="rdp")
        assert found.epsilon < by_rdp.epsilon
        # Nothing dropped: the Gaussian's own, which is less.
        assert tight(training(z, 1.0, q, rounds), delta).epsilon < found.epsilon

    def test_a_stream_is_one_release(self):
        stream = accounting.SparsifiedMatrixFactorizationDpEvent
        found = tight(SELF(stream(2.46, 0.01, RATIO, MODEL), 16))
        assert found.accounting_method == "stopped-exact-gaussian"
        assert 7.9 < found.epsilon < 8.0

    def test_composes_with_gaussians_within_a_run(self):
        parts = [training(3.0, 0.1, 0.1, 5), GAUSSIAN(5.0)]
        both = COMPOSED(parts)
        run = accounting.RunDpEvent(both, [ADD])
        most = accounting.epsilon(run, 1e-5, accounting_method="rdp").epsilon
        assert tight(parts[1]).epsilon < tight(run).epsilon < most

    def test_linf_events_cost_the_dimension(self):
        numbers = 2.0, 0.2, 0.1
        events = L2(*numbers, 100), LINF(*numbers, 100), LINF(*numbers, 200)
        values = [tight(event).epsilon for event in events]
        assert values[0] == pytest.approx(values[1], rel=1e-9)
        assert values[1] < values[2]

    def test_no_noise_is_infinite_and_other_events_are_unsupported(self):
        silent = L2(0.0, 0.2, 0.1, 100)
        assert tight(silent).epsilon == math.inf
        laplace = LAPLACE(1.0)
        mixed = COMPOSED([training(1.0, 0.1, 1.0, 1), laplace])
        for event in (laplace, mixed):
            assert gaussian_domination.dominating_curves(event, 1e-5) is None
