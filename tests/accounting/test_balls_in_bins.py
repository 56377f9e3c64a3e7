# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Balls in bins against quadrature, known deltas and slots."""

import math

import numpy as np
import pytest
from scipy import optimize, special

from dpfl import accounting
from dpfl.accounting import gaussian, secret_participation
from dpfl.accounting.balls_in_bins import BallsInBinsDpEvent
from dpfl.accounting.secret_participation import tight_epsilon
from tests.accounting.event_names import GAUSSIAN, POISSON, SELF, SLOT

DIRECTIONS = {
    "removal": lambda ratio, epsilon: np.maximum(ratio - math.exp(epsilon), 0),
    "addition": lambda ratio, epsilon: np.maximum(1 - math.exp(epsilon) * ratio, 0),
}


def draws(gram, count, shift, seed):
    event = BallsInBinsDpEvent(1.0, gram, len(gram))
    return event.removal(count, shift, seed)


def shifts_of(encoder, groups=2):
    return np.stack([encoder[:, g::groups].sum(axis=1) for g in range(groups)])


def stream(rounds, noise_multiplier=1.0):
    """The Gram matrix of two groups and the root of prefix sums, in noise units."""
    column = special.binom(2 * np.arange(rounds), np.arange(rounds))
    column /= 4.0 ** np.arange(rounds)
    encoder = np.array(
        [
            [column[i - j] if i >= j else 0.0 for j in range(rounds)]
            for i in range(rounds)
        ]
    )
    shifts = shifts_of(encoder / noise_multiplier)
    return shifts @ shifts.T


def delta_of_two(gram, epsilon, direction, step=0.02, reach=9.0):
    """E f(R) for two groups, by equal steps over the second and parts of the first.

    Given W_2 the ratio rises with what is left of W_1, so that delta is a difference of
    normal probabilities.
    """
    (own, both), (_, other) = gram
    slope = both / other if other else 0.0
    rest = math.sqrt(max(own - slope * both, 1e-30))
    v = np.arange(-reach, reach, step)
    density = step * np.exp(-0.5 * v * v) / math.sqrt(2 * math.pi)
    w = math.sqrt(other) * v
    second = 0.5 * np.exp(w - other / 2)
    mean = slope * w - own / 2
    level = math.exp(epsilon if direction == "removal" else -epsilon)
    left = np.maximum(level - second, 1e-300)
    edge = (np.log(2 * left) - mean) / rest
    edge = np.where(left > 1e-300, edge, -np.inf)
    moment = 0.5 * np.exp(mean + rest * rest / 2)
    if direction == "removal":
        found = moment * special.ndtr(rest - edge) + (second - level) * special.ndtr(
            -edge
        )
    else:
        found = (level - second) * special.ndtr(edge) - moment * special.ndtr(
            edge - rest
        )
        found /= level
    return float(density @ np.where(np.isfinite(edge) | (edge < 0), found, 0.0))


def epsilon_of_two(gram, delta):
    def over(epsilon):
        return max(delta_of_two(gram, epsilon, name) for name in DIRECTIONS) - delta

    return optimize.brentq(over, 0, 60)


class TestEpsilon:
    @pytest.mark.parametrize("rounds", [2, 3, 4])
    @pytest.mark.parametrize("delta", [1e-3, 1e-6])
    def test_epsilon_is_closely_above_quadrature(self, rounds, delta):
        gram = stream(rounds, 1.2)
        exact = epsilon_of_two(gram, delta)
        found, accounting_method = tight_epsilon(BallsInBinsDpEvent(1.0, gram), delta)
        assert accounting_method == "monte-carlo"
        assert exact < found < 1.02 * exact

    @pytest.mark.parametrize("groups", [2, 32])
    def test_one_round_is_a_sampled_release(self, groups):
        """Of the first group alone: a client joins with probability 1/b."""
        gram = np.zeros((groups, groups))
        gram[0, 0] = 1.0
        sampled = POISSON(1 / groups, GAUSSIAN(0.7))
        exact = accounting.epsilon(sampled, 1e-3, accounting_method="tight").epsilon
        event = BallsInBinsDpEvent(0.7, gram)
        assert accounting.epsilon(event, 1e-3).epsilon == pytest.approx(exact, rel=1e-3)
        # Groups that are not alike are drawn.
        gram[1, 1] = 1e-3
        found, _ = tight_epsilon(BallsInBinsDpEvent(0.7, gram), 1e-3)
        assert exact < found < 1.05 * exact

    def test_one_group_and_no_noise(self):
        one = BallsInBinsDpEvent(2.0, [[9.0]])
        plain = gaussian.gaussian_epsilon(1e-5, 2 / 3)
        assert tight_epsilon(one, 1e-5)[0] == pytest.approx(plain, rel=1e-8)
        silent = BallsInBinsDpEvent(0.0, np.eye(2))
        assert tight_epsilon(silent, 1e-5) == (math.inf, "exact-gaussian")
        assert accounting.epsilon(silent, 1e-5).epsilon == math.inf
        nothing = BallsInBinsDpEvent(1.0, np.zeros((2, 2)))
        assert accounting.epsilon(nothing, 1e-5).epsilon == 0

    def test_equal_calls_agree_and_other_seeds_differ(self):
        event = BallsInBinsDpEvent(2.0, stream(4))
        found = []
        for seed in (0, 0, 1):
            secret_participation._epsilon_of.cache_clear()
            found.append(tight_epsilon(event, 1e-4, seed)[0])
        assert found[0] == found[1] != found[2]
        assert found[2] == pytest.approx(found[0], rel=0.01)

    def test_only_a_run_by_itself_is_sampled(self):
        event = BallsInBinsDpEvent(2.0, np.eye(3) + 0.1)
        run = accounting.RunDpEvent(SELF(event, 1), event.neighboring_relations)
        assert secret_participation.alone(run) is event
        twice = SELF(event, 2)
        assert tight_epsilon(twice, 1e-5) is None
        assert accounting.epsilon(twice, 1e-5).accounting_method == "rdp"
        assert accounting.epsilon(run, 1e-3).relation == "add_or_remove"


class TestBounds:
    @pytest.mark.parametrize("shift", [0, 1, 3])
    def test_draws_have_the_mean_and_stay_below_their_bound(self, shift):
        gram, epsilon = stream(4, 1.5), 1.0
        drawn = draws(gram, 400_000, shift, 3)
        values = np.exp(drawn.weights) * -np.expm1(
            np.minimum(epsilon - drawn.losses, 0)
        )
        exact = delta_of_two(gram, epsilon, "removal")
        deviation = np.std(values) / math.sqrt(values.size)
        assert abs(np.mean(values) - exact) < 5 * deviation
        assert np.max(values) <= math.exp(drawn.log_bound(epsilon)) * (1 + 1e-9)
        assert exact < drawn.delta(epsilon, 1e-9) < 1.4 * exact

    @pytest.mark.parametrize("shift", [0, 2])
    def test_failure_rate_is_within_the_stated_probability(self, shift):
        """Few draws and a failure of a half, so that failures are seen at all."""
        gram, epsilon, seeds = stream(2, 1.0), 1.0, 400
        exact = delta_of_two(gram, epsilon, "removal")
        found = [
            draws(gram, 60, shift, seed).delta(epsilon, 0.5) for seed in range(seeds)
        ]
        failed = np.mean(np.array(found) < exact)
        assert failed < 0.5 + 3 * math.sqrt(0.25 / seeds)


class TestRenyi:
    ORDERS = np.array([1.5, 2.0, 4.0, 16.0, 300.0])

    def test_independent_noise_is_an_epoch_of_slots(self):
        event = BallsInBinsDpEvent(1.5, np.eye(8))
        slots = SLOT(GAUSSIAN(1.5), 8, 8)
        assert np.array_equal(event.rdp(self.ORDERS), slots.rdp(self.ORDERS))
        found, wanted = (accounting.epsilon(one, 1e-4) for one in (event, slots))
        assert found.accounting_method == "pld" and found.epsilon == wanted.epsilon

    def test_both_directions_are_below_the_bound(self):
        """By quadrature over two groups, where shifts are alike and where not."""
        for gram in (stream(2), stream(4, 2.0), np.diag([1.0, 0.4])):
            root = np.linalg.cholesky(gram)
            t = np.arange(-12, 18, 0.05)
            v = np.stack(np.meshgrid(t, t, indexing="ij"))
            w = np.tensordot(root, v, 1) - 0.5 * np.diag(gram)[:, None, None]
            losses = np.logaddexp(*w) - math.log(2)
            weight = (
                -0.5 * np.sum(v * v, axis=0) + 2 * math.log(0.05) - math.log(2 * np.pi)
            )
            bounds = BallsInBinsDpEvent(1.0, gram).rdp(self.ORDERS[:3])
            for order, bound in zip(self.ORDERS, bounds):
                for power in (order, 1 - order):
                    moment = special.logsumexp(power * losses + weight)
                    assert moment / (order - 1) <= bound * (1 + 1e-6)

    def test_equal_shifts_are_one_release(self):
        event = BallsInBinsDpEvent(2.0, np.full((3, 3), 4.0))
        plain = gaussian.gaussian_rdp(1.0, self.ORDERS)
        assert event.rdp(self.ORDERS) == pytest.approx(plain)


def test_losses_that_are_no_numbers_meet_no_delta():
    losses, weights = np.array([1.0, np.nan] * 1000), np.zeros(2000)
    draws = secret_participation.Draws(losses, weights, lambda epsilon: 0.0)
    assert draws.epsilon(1e-5, 1e-20, 7.0) == 7.0
