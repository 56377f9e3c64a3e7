# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random allocation against quadrature, many digits, enumeration and the other direction."""

import itertools
import math

import attr
import mpmath
import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting import csgm, log_space, random_allocation
from tests.accounting.event_names import GAUSSIAN, L2, SLOT


def masked(noise_multiplier=0.8, keep=0.3, linf_ratio=0.7):
    """A sparsified release; K = 1/linf_ratio^2 coordinates stand at their bound."""
    return L2(noise_multiplier, keep, linf_ratio, dimension=100)


@attr.s(frozen=True, auto_attribs=True)
class TwoOutcomes(accounting.RdpDpEvent):
    """The first has this likelihood ratio, and this probability under Q."""

    ratio: float
    probability: float

    @property
    def law(self):
        p, x = self.probability, self.ratio
        return (p, x), (1 - p, (1 - p * x) / (1 - p))

    def rdp(self, orders):
        both = [
            [math.log(sum(p * x**b for p, x in self.law)) / (a - 1) for b in (a, 1 - a)]
            for a in orders
        ]
        return np.max(both, axis=1)


def quadrature(log_ratio, power, coordinates, step=0.08, reach=9.0, shift=2.0):
    """log E_Q[R^power] over normals, by equal steps; log_ratio takes them stacked."""
    t = np.arange(-reach, reach + abs(power) * shift, step)
    grid = np.stack(np.meshgrid(*[t] * coordinates, indexing="ij"))
    weight = -0.5 * np.sum(grid**2, axis=0)
    terms = power * log_ratio(grid) + weight
    largest = terms.max()
    total = math.log(np.sum(np.exp(terms - largest))) + largest
    return total + coordinates * math.log(step / math.sqrt(2 * math.pi))


def slots_log_ratio(z, slots):
    """log of the mean of `slots` likelihood ratios; ones for those beyond the grid."""

    def log_ratio(x):
        logs = x / z - 0.5 / z**2
        idle = slots - len(x)
        total = np.sum(np.exp(logs), axis=0) + idle
        return np.log(total / slots)

    return log_ratio


class TestEpsilons:
    def test_one_slot_is_no_amplification(self):
        for event in (GAUSSIAN(1.3), masked()):
            orders = [1.5, 2, 7.25, 256, 300]
            want = accounting.DpflAccountant(orders).compose(event).rdp
            found = SLOT(event, 1, 1).rdp(orders)
            np.testing.assert_allclose(found, want, rtol=1e-9)

    @pytest.mark.parametrize("q", [0.5, 0.03, 1e-6])
    def test_one_round_released_is_poisson_sampling(self, q):
        orders = [2, 3, 17, 100]
        want = csgm.SparsifiedGaussianDpEvent(0.9, 1.0, 1.0, 1, q).rdp(orders)
        found = SLOT(GAUSSIAN(0.9), 1, 1 / q).rdp(orders)
        np.testing.assert_allclose(found, want, rtol=1e-9)
        want = masked().poisson_sampled(q).rdp(orders)
        found = SLOT(masked(), 1, 1 / q).rdp(orders)
        np.testing.assert_allclose(found, want, rtol=1e-9)

    @pytest.mark.parametrize("slots", [3, 3.5])
    def test_moments_equal_the_sum_over_slots(self, slots):
        """Order 4: each of four copies of the client draws a slot of its own."""
        event, rounds = masked(), 3
        log_moments = [0.0, 0.0, *(np.arange(1, 4) * event.rdp([2, 3, 4]))]
        total = 0.0
        for drawn in itertools.product(range(rounds + 1), repeat=4):
            weight = math.prod(
                1 / slots if i < rounds else (slots - rounds) / slots for i in drawn
            )
            counts = [drawn.count(i) for i in range(rounds)]
            total += weight * math.exp(sum(log_moments[c] for c in counts))
        found = SLOT(event, rounds, slots).rdp([4])[0]
        assert 3 * found == pytest.approx(math.log(total), rel=1e-9)


class TestNumbers:
    @pytest.mark.parametrize("seed", range(6))
    def test_powers_of_polynomials_have_their_digits(self, seed):
        """Against 60 digits, from hardly any privacy loss to a huge one."""
        rng = np.random.default_rng(seed)
        z = float(10 ** rng.uniform(-0.7, 1.5))
        rounds = int(10 ** rng.uniform(0, 5))
        slots = rounds * float(rng.choice([1.0, 1 + rng.random()]))
        top = int(rng.integers(8, 40))
        order = np.arange(top + 1.0)
        log_moments = order * (order - 1) / (2 * z**2)
        found = random_allocation.slot_log_moments(log_moments, rounds, slots)
        with mpmath.workdps(60):
            factorials = [mpmath.factorial(i) for i in range(top + 1)]
            base = [mpmath.exp(m) / f for m, f in zip(log_moments, factorials)]
            power = self.power(base, rounds)
            idle = mpmath.mpf(slots) - rounds
            rest = [idle**i / f for i, f in enumerate(factorials)]
            whole = self.product(power, rest)
            whole = [c / mpmath.mpf(slots) ** i for i, c in enumerate(whole)]
            want = [float(mpmath.log(c * f)) for c, f in zip(whole, factorials)]
        np.testing.assert_allclose(found[2:], want[2:], rtol=2e-11)

    @staticmethod
    def product(left, right):
        return np.convolve(left, right)[: len(left)]

    def power(self, base, exponent):
        result = np.array([mpmath.mpf(1)] + [mpmath.mpf(0)] * (len(base) - 1))
        while exponent:
            if exponent & 1:
                result = self.product(result, base)
            base = self.product(base, base)
            exponent >>= 1
        return result

    def test_without_noise_there_is_no_privacy(self):
        for event in (GAUSSIAN(0.0), masked(0.0), GAUSSIAN(1e-200)):
            assert np.all(np.isinf(SLOT(event, 3, 4).rdp([2, 5, 300])))


class TestBothDirections:
    @pytest.mark.parametrize("z", [0.5, 1.0, 2.0])
    @pytest.mark.parametrize("slots", [2, 2.7])
    def test_two_slots_by_quadrature(self, z, slots):
        event = SLOT(GAUSSIAN(z), 2, slots)
        log_ratio = slots_log_ratio(z, slots)
        for order in (1.2, 1.7, 2, 3, 4.5, 8):
            bound = (order - 1) * event.rdp([order])[0]
            removed = quadrature(log_ratio, order, 2, shift=1 / z)
            added = quadrature(log_ratio, 1 - order, 2, shift=1 / z)
            assert added <= bound
            assert removed <= bound * (1 + 1e-9)
            if order == int(order):
                assert removed == pytest.approx(bound, rel=1e-8)

    @pytest.mark.parametrize(
        "event, rounds, slots",
        [
            # Randomized response, which no theorem on Gaussians is for.
            (TwoOutcomes(math.exp(1.2), 1 / (1 + math.exp(1.2))), 2, 3),
            # One outcome all but goes with the client: adding it costs more.
            (TwoOutcomes(0.001, 0.95), 4, 4),
        ],
    )
    @pytest.mark.parametrize("order", [1.5, 2, 3, 5, 6.5])
    def test_two_outcomes_are_bounded_in_both_directions(
        self, event, rounds, slots, order
    ):
        limit = (order - 1) * SLOT(event, rounds, slots).rdp([order])[0]
        for power in (order, 1 - order):
            total = 0.0
            for drawn in itertools.product(event.law, repeat=rounds):
                chances, ratios = zip(*drawn)
                ratio = (slots - rounds + sum(ratios)) / slots
                total += math.prod(chances) * ratio**power
            assert math.log(total) <= limit * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_chord_of_mixtures_lies_between_the_truth_and_the_chord(seed):
    """Three Gaussians with any means: L(a)/a is convex, and so below its chord."""
    rng = np.random.default_rng(seed)
    means, weights = rng.normal(size=3), rng.dirichlet(np.ones(3))

    def log_ratio(x):
        terms = means[:, None] * x - 0.5 * means[:, None] ** 2
        return np.log(weights @ np.exp(terms))

    whole = np.arange(1, 7)
    moments = np.array([quadrature(log_ratio, a, 1, reach=30.0) for a in whole])
    orders = np.array([1.1, 1.6, 2.5, 4.3, 5.9])
    truth = np.array([quadrature(log_ratio, a, 1, reach=30.0) for a in orders])
    backward = np.array([quadrature(log_ratio, 1 - a, 1, reach=30.0) for a in orders])
    found = log_space.mixture_chord(orders, whole, moments)
    assert np.all(truth <= found + 1e-12)
    assert np.all(found <= log_space.chord(orders, whole, moments) + 1e-12)
    # The other direction, for any mixture: D_a(Q, P) <= (a/2) D_2(P, Q) <= D_a(P, Q).
    half = orders * (orders - 1) / 2 * moments[1]
    assert np.all(backward <= half + 1e-12)
    assert np.all(half[orders > 2] <= truth[orders > 2] + 1e-12)


@pytest.mark.parametrize("slots", [10.0, 1e7, 1e11])
def test_rdp_rises_in_the_order_for_any_slots(slots):
    event = accounting.DistributedDiscreteGaussianDpEvent(
        1000, 0.5, 1.0, 40.0, 1, noise_of_helpers=True
    )
    found = SLOT(event, 5, slots).rdp([1.000001, 1.1, 2, 3])
    assert np.all(np.diff(found) >= 0)
