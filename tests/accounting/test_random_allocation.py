# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random allocation against quadrature, many digits, enumeration and the other direction."""

import itertools
import math

import attr
import dp_accounting
import mpmath
import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting import csgm, log_space, random_allocation
from tests.accounting.quadrature import log_moment
from tests.refusals import refuses

gaussian = dp_accounting.GaussianDpEvent
RandomAllocation = random_allocation.RandomAllocationDpEvent


def masked(noise_multiplier=0.8, keep=0.3, linf_ratio=0.7):
    """A sparsified release; K = 1/linf_ratio^2 coordinates stand at their bound."""
    return accounting.SparsifiedGaussianDpEvent(
        noise_multiplier, keep, linf_ratio, dimension=100
    )


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
    def test_rdp_matches_published_values(self):
        two = RandomAllocation(gaussian(1.0), rounds=2, slots=2).rdp([2, 8])
        np.testing.assert_allclose(two, [0.62011, 3.30792], atol=6e-6)
        ten = RandomAllocation(gaussian(1.0), 10, 10).rdp([2])[0]
        assert ten == pytest.approx(math.log(1 + (math.e - 1) / 10), rel=1e-9)

    def test_one_slot_is_no_amplification(self):
        for event in (gaussian(1.3), masked()):
            orders = [1.5, 2, 7.25, 256, 300]
            want = accounting.DpflAccountant(orders).compose(event).rdp
            found = RandomAllocation(event, 1, 1).rdp(orders)
            np.testing.assert_allclose(found, want, rtol=1e-9)

    @pytest.mark.parametrize("q", [0.5, 0.03, 1e-6])
    def test_one_round_released_is_poisson_sampling(self, q):
        orders = [2, 3, 17, 100]
        want = csgm.SparsifiedGaussianDpEvent(0.9, 1.0, 1.0, 1, q).rdp(orders)
        found = RandomAllocation(gaussian(0.9), 1, 1 / q).rdp(orders)
        np.testing.assert_allclose(found, want, rtol=1e-9)
        want = masked().poisson_sampled(q).rdp(orders)
        found = RandomAllocation(masked(), 1, 1 / q).rdp(orders)
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
        found = RandomAllocation(event, rounds, slots).rdp([4])[0]
        assert 3 * found == pytest.approx(math.log(total), rel=1e-9)

    def test_more_rounds_and_fewer_slots_cost_more(self):
        rounds = [
            RandomAllocation(gaussian(1.0), r, 40).rdp([2, 30]) for r in (1, 7, 40)
        ]
        slots = [
            RandomAllocation(gaussian(1.0), 7, s).rdp([2, 30]) for s in (40, 8.5, 7)
        ]
        for costs in (rounds, slots):
            for less, more in zip(costs, costs[1:]):
                assert np.all(less < more)

    def test_rdp_does_not_fall_in_the_order(self):
        orders = np.arange(1.05, 300, 0.05)
        for event in (gaussian(0.7), masked()):
            found = RandomAllocation(event, 9, 12).rdp(orders)
            assert np.all(np.diff(found) >= -1e-9 * found[1:])


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
        for event in (gaussian(0.0), masked(0.0), gaussian(1e-200)):
            assert np.all(np.isinf(RandomAllocation(event, 3, 4).rdp([2, 5, 300])))

    def test_zero_loss_release_costs_nothing(self):
        found = RandomAllocation(masked().poisson_sampled(0.0), 3, 4).rdp([2, 2.5, 300])
        np.testing.assert_array_equal(found, 0)


class TestBothDirections:
    @pytest.mark.parametrize("z", [0.5, 1.0, 2.0])
    @pytest.mark.parametrize("slots", [2, 2.7])
    def test_two_slots_by_quadrature(self, z, slots):
        event = RandomAllocation(gaussian(z), 2, slots)
        log_ratio = slots_log_ratio(z, slots)
        for order in (1.2, 1.7, 2, 3, 4.5, 8):
            bound = (order - 1) * event.rdp([order])[0]
            removed = quadrature(log_ratio, order, 2, shift=1 / z)
            added = quadrature(log_ratio, 1 - order, 2, shift=1 / z)
            assert added <= bound
            assert removed <= bound * (1 + 1e-9)
            if order == int(order):
                assert removed == pytest.approx(bound, rel=1e-8)

    @pytest.mark.parametrize("keep", [0.05, 0.5])
    def test_masked_slots_with_adaptive_clients(self, keep):
        """Slot 2 of two: all there is left to send depends on what slot 1 showed.

        Its two coordinates are one at the bound or two that are smaller; whichever is
        worse for the direction at hand is sent. The bound holds for both directions.
        """
        step, reach = 0.5, 7.0
        t = np.arange(-reach, reach + 3, step)
        weight = np.exp(-0.5 * t * t) * step / math.sqrt(2 * math.pi)

        def one(size):
            return 1 - keep + keep * np.exp(size * t - size * size / 2)

        both = np.multiply.outer(one(math.sqrt(0.5)), one(math.sqrt(0.5))).ravel()
        both_weight = np.multiply.outer(weight, weight).ravel()
        # DeltaInf = sigma = 1 and Delta2 = 1: K = 1 coordinate, or two smaller ones.
        event = accounting.SparsifiedGaussianDpEvent(1 / keep, keep, 1.0, 2)
        bound = RandomAllocation(event, 2, 2)
        # After slot 1 only its ratio counts: the sender's choice is a function of it.
        first = np.concatenate([one(1.0), both])
        ratios_and_weights = [(one(1.0), weight), (both, both_weight)]
        for order in (2, 3, 1.5, 2.6):
            limit = (order - 1) * bound.rdp([order])[0]
            for power in (order, 1 - order):
                ways = [
                    np.array([w @ ((x + y) / 2) ** power for x in first])
                    for y, w in ratios_and_weights
                ]
                worst = np.maximum(*ways)
                values = [weight @ worst[: t.size], both_weight @ worst[t.size :]]
                assert math.log(max(values)) <= limit + 1e-9

    def test_randomized_response_is_bounded_in_both_directions(self):
        """Randomized response, which no theorem on Gaussians is for."""
        event = TwoOutcomes(math.exp(1.2), 1 / (1 + math.exp(1.2)))
        assert event.law[1][1] == pytest.approx(math.exp(-1.2))
        for order in (1.5, 2, 3, 6.5):
            limit = (order - 1) * RandomAllocation(event, 2, 3).rdp([order])[0]
            for power in (order, 1 - order):
                total = sum(
                    p * q * ((1 + x + y) / 3) ** power
                    for (p, x), (q, y) in itertools.product(event.law, repeat=2)
                )
                assert math.log(total) <= limit

    @pytest.mark.parametrize("order", [3, 5])
    def test_rdp_covers_releases_with_a_larger_reverse_divergence(self, order):
        """One outcome, of probability 0.95 without the client, all but goes with it."""
        event, slots = TwoOutcomes(0.001, 0.95), 4
        moments = [0, 0, *(np.arange(1, order) * event.rdp(range(2, order + 1)))]
        forward = random_allocation.slot_log_moments(np.array(moments), slots, slots)[
            order
        ]
        total = 0.0
        for drawn in itertools.product(event.law, repeat=slots):
            chances, ratios = zip(*drawn)
            total += math.prod(chances) * np.mean(ratios) ** (1 - order)
        backward = math.log(total)
        limit = (order - 1) * RandomAllocation(event, slots, slots).rdp([order])[0]
        assert forward < backward <= limit


class TestEvent:
    def test_integer_noise_of_helpers_is_amplified(self):
        event = accounting.DistributedDiscreteGaussianDpEvent(
            100, 0.1, 0.01, 1.0, 64, noise_of_helpers=True
        )
        slots = RandomAllocation(event, 20, 20)
        assert not random_allocation.is_gaussian_mixture(event)
        assert np.all(slots.rdp([2, 5]) < 0.75 * event.rdp([2, 5]))
        assert accounting.relations_of(slots)[0].name == "ADD_OR_REMOVE_ONE"

    def test_refuses_bad_arguments(self):
        with refuses(ValueError, "slots", 3.9):
            RandomAllocation(gaussian(1.0), 4, 3.9)
        with refuses(TypeError, "round_event", "NoOpDpEvent"):
            RandomAllocation(dp_accounting.NoOpDpEvent(), 4, 5)
        with refuses(ValueError, "rounds", 0):
            RandomAllocation(gaussian(1.0), 0, 5)
        own = accounting.DistributedDiscreteGaussianDpEvent(100, 0.1, 0.01, 1.0, 64)
        with refuses(ValueError, "round_event", type(own).__name__):
            RandomAllocation(own, 5, 5.0)


def test_extreme_vector_is_worst_by_convexity_at_real_orders():
    """log E_Q[(1 - q + q x)^a] is convex in the squared shifts: random midpoints."""
    rng = np.random.default_rng(8)
    for _ in range(25):
        q, keep = rng.random(), rng.random(2)
        order = 1 + 10 ** rng.uniform(-2, 0.5)
        ends = rng.random((2, 2)) * rng.choice([0.1, 1.0, 3.0])
        shifts = np.sqrt([*ends, ends.mean(axis=0)])
        one, other, middle = (log_moment(v, keep, q, order, 0.08) for v in shifts)
        assert middle <= (one + other) / 2 * (1 + 1e-9)


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


@pytest.mark.parametrize("seed", range(6))
def test_adding_to_a_mixture_costs_no_more_than_removing(seed):
    """Four Gaussians with any means, in the plane; for one mean both are the same."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(4, 2)) * rng.choice([0.3, 1.0, 2.5], (4, 1))
    weights = rng.dirichlet(0.3 * np.ones(4))
    axis = np.arange(-12, 12.01, 0.05)
    points = np.stack(np.meshgrid(axis, axis)).reshape(2, -1)
    of_q = np.exp(-0.5 * np.sum(points**2, axis=0))
    of_q /= of_q.sum()
    shifts = means @ points - 0.5 * np.sum(means**2, axis=1)[:, None]
    ratio = weights @ np.exp(shifts)
    for t in np.exp([0.01, 0.1, 0.5, 1.0, 2.0, 4.0]):
        remove = of_q @ np.maximum(ratio - t, 0)
        add = of_q @ np.maximum(1 - t * ratio, 0)
        assert add <= remove * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_laplace_transforms_of_mixtures_are_below_the_gaussians(seed):
    """Of the same second moment; this is what lets slots treat clients that adapt."""
    rng = np.random.default_rng(seed)
    t = np.arange(-30, 30, 0.01)
    weight = np.exp(-t * t / 2) * 0.01 / math.sqrt(2 * math.pi)
    for keep in (0.05, 0.6):
        means = rng.uniform(0.2, 2, 3) * rng.choice([1, 1, -1], 3)
        mixed = np.exp(np.outer(means, t) - 0.5 * means[:, None] ** 2)
        x = 1 - keep + keep * rng.dirichlet(np.ones(3)) @ mixed
        size = math.sqrt(math.log(weight @ x**2))
        gaussians = np.exp(size * t - size**2 / 2)
        for s in (0.01, 0.3, 1.0, 5.0, 60.0):
            # Both minus the tangent exp(-s)(1 - s (x - 1)), which has the same mean.
            ours, theirs = (
                weight @ (np.exp(-s * r) - math.exp(-s) * (1 - s * (r - 1)))
                for r in (x, gaussians)
            )
            assert ours <= theirs * (1 + 1e-9)


@pytest.mark.parametrize("slots", [10.0, 1e7, 1e11])
def test_rdp_rises_in_the_order_for_any_slots(slots):
    event = accounting.DistributedDiscreteGaussianDpEvent(
        1000, 0.5, 1.0, 40.0, 1, noise_of_helpers=True
    )
    found = RandomAllocation(event, 5, slots).rdp([1.000001, 1.1, 2, 3])
    assert np.all(np.diff(found) >= 0)
