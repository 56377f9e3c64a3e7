# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounds at least b apart, against all patterns, quadrature, adaptive clients, bins."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from dpfl import accounting
from dpfl.accounting import balls_in_bins, gaussian, min_separation
from dpfl.accounting.min_separation import MinSeparationDpEvent
from dpfl.accounting.secret_participation import revealed_epsilon, tight_epsilon
from tests.accounting.event_names import GAUSSIAN, POISSON, SELF, SLOT

DIRECTIONS = {
    "removal": lambda ratio, epsilon: np.maximum(ratio - math.exp(epsilon), 0),
    "addition": lambda ratio, epsilon: np.maximum(1 - math.exp(epsilon) * ratio, 0),
}


def columns(rounds, *diagonals):
    """Columns of a Toeplitz C with these diagonals."""
    places = np.arange(rounds)[:, None] + np.arange(len(diagonals))
    return np.where(places < rounds, diagonals, 0.0)


def encoder_of(event):
    """|C| in units of the noise."""
    return event._encoder.toarray()


def law(event):
    """Each pattern of rounds, and its probability, from what the sampling says."""
    p, b, rounds = event.probability, event.separation, event.rounds
    found = {}

    def go(t, turns, chance):
        if t >= rounds:
            found[turns] = found.get(turns, 0) + chance
            return
        go(t + b, (*turns, t), chance * p)
        go(t + 1, turns, chance * (1 - p))

    rate = p / (1 + (b - 1) * p)
    go(0, (), 1 - (b - 1) * rate)
    for first in range(1, b):
        go(first, (), rate)
    return {turns: chance for turns, chance in found.items() if chance}


def ratios(event, step=0.25, reach=7.5):
    """R on a grid of rows, and Q's weight of each point; for few rounds."""
    y = np.arange(-reach, reach + step / 2, step)
    rows = np.stack(np.meshgrid(*[y] * event.rounds, indexing="ij"))
    rows = rows.reshape(event.rounds, -1)
    weight = np.exp(-0.5 * np.sum(rows**2, axis=0))
    encoder = encoder_of(event)
    ratio = np.zeros(rows.shape[1])
    for turns, chance in law(event).items():
        shift = encoder[:, list(turns)].sum(axis=1)
        ratio += chance * np.exp(shift @ rows - 0.5 * shift @ shift)
    return ratio, weight / weight.sum()


def exact_delta(event, epsilon, direction, **grid):
    ratio, weight = ratios(event, **grid)
    return float(DIRECTIONS[direction](ratio, epsilon) @ weight)


FEW = MinSeparationDpEvent(1.0, columns(3, 1.0, 0.5), 2, 0.4)


class TestTheSum:
    @pytest.mark.parametrize("b, p", [(1, 0.3), (2, 0.4), (3, 1.0), (5, 0.2)])
    def test_log_ratio_sums_over_all_patterns(self, b, p):
        event = MinSeparationDpEvent(1.0, columns(6, 1.0), b, p)
        logs = 3 * np.random.default_rng(0).normal(size=[6, 40])
        want = sum(
            chance * np.exp(logs[list(turns)].sum(axis=0))
            for turns, chance in law(event).items()
        )
        np.testing.assert_allclose(event.log_ratio(logs), np.log(want), atol=1e-12)

    def test_every_round_has_the_same_probability(self):
        event = MinSeparationDpEvent(1.0, columns(7, 1.0), 3, 0.4)
        for t in range(7):
            found = sum(c for turns, c in law(event).items() if t in turns)
            assert found == pytest.approx(event.rate)


def sets_of(event, copies):
    """All tuples of patterns, with the weight E of the product of their ratios."""
    encoder, patterns = encoder_of(event), law(event)
    for turns in itertools.product(patterns, repeat=copies):
        shifts = [encoder[:, list(each)].sum(axis=1) for each in turns]
        pairs = sum(a @ b for a, b in itertools.combinations(shifts, 2))
        chance = math.prod(patterns[each] for each in turns)
        yield turns, chance * math.exp(pairs)


COPIES = [
    (MinSeparationDpEvent(0.9, columns(5, 1.0, 0.5, 0.3), 3, 0.4), 3),
    (MinSeparationDpEvent(1.1, columns(4, 1.0), 4, 0.3), 3),
    (MinSeparationDpEvent(1.0, [[1.0, 0.2], [0.4, 0.8], [1.1, 0]], 2, 0.6), 3),
    *((MinSeparationDpEvent(1.0, columns(6, 1.0), 1, 0.3), 2), (FEW, 2)),
    (MinSeparationDpEvent(1.0, columns(2, 1.0), 5, 1.0), 3),
]


class TestCopies:
    @pytest.mark.parametrize("event, most", COPIES)
    def test_moments_sum_over_all_patterns(self, event, most):
        for copies in range(2, most + 1):
            want = math.log(sum(weight for _, weight in sets_of(event, copies)))
            assert event._log_moments[copies] == pytest.approx(want, rel=1e-8)
        own = log_moment = event._log_moments[2]
        assert event.rdp([2.0]) == pytest.approx(own)
        assert event.rdp([1.5]) == pytest.approx(0.75 * log_moment)

    def test_states_beyond_float64_are_numbered_apart(self):
        waits, _, after, rounds = min_separation._steps(6, 24)
        for joining in (1, 12):
            left = waits.copy()
            left[:, :joining] = 6
            left = np.maximum(left - rounds[:, [joining]], 0)
            assert np.array_equal(waits[after[:, joining]], np.sort(left, axis=1))

    @pytest.mark.parametrize("event, copies", [(COPIES[0][0], 2), COPIES[2], COPIES[5]])
    def test_copies_are_drawn_with_their_weights(self, event, copies):
        number = 200_000
        of = min_separation._Copies(event, copies)
        drawn = of.drawn(number, np.random.default_rng(1))
        digits = (copies + 1) ** np.arange(event.rounds)
        wanted = dict.fromkeys(range((copies + 1) ** event.rounds), 0.0)
        for turns, weight in sets_of(event, copies):
            wanted[sum(int(digits[t]) for each in turns for t in each)] += weight
        total = sum(wanted.values())
        found = np.bincount(digits @ drawn, minlength=len(wanted)) / number
        want = np.array(list(wanted.values())) / total
        np.testing.assert_allclose(found, want, atol=0.005)
        assert np.all(found[want == 0] == 0)


class TestEpsilon:
    @pytest.mark.parametrize("delta", [1e-2, 1e-4])
    def test_epsilon_is_closely_above_quadrature(self, delta):
        found, accounting_method = tight_epsilon(FEW, delta)
        assert accounting_method == "monte-carlo"
        deltas = [exact_delta(FEW, found, name) for name in DIRECTIONS]
        less = [exact_delta(FEW, 0.95 * found, name) for name in DIRECTIONS]
        assert max(deltas) < delta < max(less)

    def test_probability_one_equals_balls_in_bins(self):
        event = MinSeparationDpEvent(1.0, columns(16, 1.0), 4, 1.0)
        bins = balls_in_bins.BallsInBinsDpEvent(1.0, 4 * np.eye(4))
        found, _ = tight_epsilon(event, 1e-4)
        exact = accounting.epsilon(bins, 1e-4).epsilon
        assert found == pytest.approx(exact, rel=0.01)

    @pytest.mark.parametrize("rounds", [1, 10])
    def test_separation_of_one_is_poisson_sampling(self, rounds):
        event = MinSeparationDpEvent(0.7, columns(rounds, 1.0), 1, 0.2)
        run = SELF(POISSON(0.2, GAUSSIAN(0.7)), rounds)
        exact = accounting.epsilon(run, 1e-5).epsilon
        assert accounting.epsilon(event, 1e-5).epsilon == pytest.approx(exact, rel=1e-3)

    def test_a_run_of_one_round_each_is_a_slot(self):
        event = MinSeparationDpEvent(0.8, columns(9, 1.0), 12, 0.1)
        run = SLOT(GAUSSIAN(0.8), 9, 1 / event.rate)
        exact = accounting.epsilon(run, 1e-5).epsilon
        assert accounting.epsilon(event, 1e-5).epsilon == pytest.approx(exact, rel=1e-3)

    def test_a_slot_whose_length_rounds_below_its_rounds(self):
        event = MinSeparationDpEvent(9.0, columns(93, 1.0), 93, 1.0).as_composition()
        assert accounting.epsilon(event, 1e-5).epsilon > 0

    def test_no_more_than_if_rounds_were_known(self, monkeypatch):
        """Where the states of two copies are too many."""
        monkeypatch.setattr(min_separation, "_MOST_TERMS", 0)
        event = MinSeparationDpEvent(5.0, columns(12, 1.0), 3, 0.9)
        revealed = revealed_epsilon(event, 1e-5)
        report = accounting.epsilon(event, 1e-5, accounting_method="tight")
        assert report.epsilon == pytest.approx(revealed)
        assert report.accounting_method == "unsampled-gaussian"

    def test_probability_one_and_no_noise(self):
        whole = MinSeparationDpEvent(2.0, columns(9, 1.0), 1, 1.0)
        plain = gaussian.gaussian_epsilon(1e-5, 2 / 3)
        assert tight_epsilon(whole, 1e-5)[0] == pytest.approx(plain, rel=1e-8)
        silent = MinSeparationDpEvent(0.0, columns(3, 1.0), 1, 0.5)
        assert tight_epsilon(silent, 1e-5) == (math.inf, "exact-gaussian")
        assert accounting.epsilon(silent, 1e-5).epsilon == math.inf

    def test_the_longest_pattern_bounds_it(self):
        event = MinSeparationDpEvent(3.0, columns(5, 1.0, 0.5), 2, 0.3)
        encoder = encoder_of(event)
        most = max(
            np.sum(encoder[:, list(turns)].sum(axis=1) ** 2) for turns in law(event)
        )
        assert event.longest() == pytest.approx(most)
        orders = np.array([1.5, 4.0])
        assert np.all(event.rdp(orders) < orders * most / 2)
        # Beyond the copies that are counted.
        assert event.rdp([500.0]) == pytest.approx(250 * most)
        assert (
            accounting.epsilon(event, 1e-3, accounting_method="rdp").relation
            == "add_or_remove"
        )


def test_events_of_equal_entries_and_other_shapes_differ():
    """One had the other's epsilon, kept from before: 2.66 for 3.45."""
    square = MinSeparationDpEvent(1.0, np.array([[1.0, 1.0], [1.0, 0.0]]), 2, 0.5)
    long = MinSeparationDpEvent(1.0, np.array([[1.0], [1.0], [1.0], [0.0]]), 2, 0.5)
    assert square != long and hash(square) != hash(long)


class TestDraws:
    @pytest.mark.parametrize("copies", [2, 3, 5])
    def test_they_have_the_mean_and_no_term_above_the_bound(self, copies):
        drawn, epsilon = FEW._draws(copies, 3), 1.0
        values = np.exp(drawn.weights)
        values *= -np.expm1(np.minimum(epsilon - drawn.losses, 0))
        exact = exact_delta(FEW, epsilon, "removal")
        deviation = np.std(values) / math.sqrt(values.size)
        assert abs(np.mean(values) - exact) < 5 * deviation
        bound = math.exp(drawn.log_bound(epsilon))
        assert 0.9 * bound < np.max(values) <= bound * (1 + 1e-9)

    def test_failure_rate_is_within_the_stated_probability(self, monkeypatch):
        monkeypatch.setattr(min_separation, "_NUMBERS", 3 * 100)
        truth = optimize.brentq(
            lambda e: exact_delta(FEW, e, "removal") - 0.05, 0.5, 2.0, xtol=0.01
        )
        found = [
            FEW._draws(3, seed).epsilon_by_bets(0.05, 0.3, 4.0) for seed in range(100)
        ]
        assert np.mean(np.array(found) < truth - 0.02) < 0.3 + 3 * math.sqrt(0.21 / 100)
        assert np.median(found) < truth + 0.5


def test_epsilon_of_many_rounds_is_that_of_simulation():
    """By plain draws of the run's own law, up to a hundredth."""
    event = MinSeparationDpEvent(1.0, columns(48, 1.0), 3, 0.125)
    assert tight_epsilon(event, 1e-3)[0] == pytest.approx(3.107, rel=0.02)


def test_absolute_values_are_charged():
    size, signed = (
        MinSeparationDpEvent(1.0, columns(3, 1.0, x), 2, 0.5) for x in (0.8, -0.8)
    )
    assert np.array_equal(encoder_of(signed), encoder_of(size))
