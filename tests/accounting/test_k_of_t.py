# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""k of T rounds in secret, against integration and all sets."""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from dpfl import accounting
from dpfl.accounting import k_of_t
from tests.accounting.event_names import COMPOSED, GAUSSIAN, POISSON, SELF


@pytest.mark.parametrize("seed", range(3))
def test_the_number_of_first_rounds_is_a_sum_of_coins(seed):
    rng = np.random.default_rng(seed)
    for _ in range(30):
        rounds = int(rng.integers(1, 60))
        count, first = rng.integers(0, rounds + 1, 2).tolist()
        chances = k_of_t.coins(count, rounds, first)
        law = np.ones(1)
        for chance in chances:
            law = np.convolve(law, [1 - chance, chance])
        numbers = np.arange(law.size)
        want = stats.hypergeom.pmf(numbers, rounds, count, first)
        np.testing.assert_allclose(law, want, atol=1e-14)
        assert chances.size == min(count, first)


def test_many_coins_have_the_mean_and_the_variance():
    for rounds, count, first in [(1500, 45, 700), (10**9, 1000, 10**8)]:
        chances = k_of_t.coins(count, rounds, first)
        mean = count * (first / rounds)
        variance = mean * (1 - first / rounds) * (rounds - count) / (rounds - 1)
        assert np.sum(chances) == pytest.approx(mean, rel=1e-12)
        assert chances @ (1 - chances) == pytest.approx(variance, rel=1e-9)


def rows(number, step, reach=8.5):
    """Points of Q, by rounds, and their weights."""
    y = np.arange(-reach, reach + step / 2, step)
    points = np.stack(np.meshgrid(*[y] * number, indexing="ij")).reshape(number, -1)
    weights = np.exp(-0.5 * np.sum(points**2, axis=0))
    return points, weights / weights.sum()


def ratio(points, law, z):
    """R of the first rounds, of which `points` are, by all sets of T rounds."""
    total = 0.0
    for more, chance in ((0, 1 - law.chance), (1, law.chance)):
        sets = list(itertools.combinations(range(law.rounds), law.k + more))
        for turns in sets if chance else ():
            loss = 0.0
            for t in turns:
                if t < len(points):
                    loss = loss + points[t] / z - 0.5 / z**2
            total = total + chance / len(sets) * np.exp(loss)
    return total


def exact(law, first, z, epsilon):
    """The delta of either direction, of a client that always sends the same.

    R is linear in the last round's ratio, over which the integral is known.
    """
    points, weights = rows(first - 1, {1: 0.01, 2: 0.06, 3: 0.25}[first - 1])
    flat = np.zeros(points.shape[1])
    without, one = (
        ratio(np.vstack([points, flat + last]), law, z) for last in (-1e4, 0.5 / z)
    )
    share = one - without
    at = np.exp([epsilon, -epsilon])[:, None]
    strike = (at - without) / share
    cut = np.log(np.maximum(strike, 1e-300)) * z + 0.5 / z
    call = special.ndtr(1 / z - cut[0]) - strike[0] * special.ndtr(-cut[0])
    call = np.where(strike[0] > 0, call, 1 - strike[0])
    put = strike[1] * special.ndtr(cut[1]) - special.ndtr(cut[1] - 1 / z)
    put = np.where(strike[1] > 0, put, 0) / at[1]
    return max((share * call) @ weights, (share * put) @ weights)


LAWS = [
    *((k_of_t.Law(2, 3), 3), (k_of_t.Law(2, 4), 4), (k_of_t.Law(3, 4), 2)),
    *((k_of_t.Law(1, 4, 0.3), 3), (k_of_t.Law(0, 3, 0.7), 2), (k_of_t.Law(1, 3), 3)),
    (k_of_t.Law(1, 4, 0.3), 4),
]


@pytest.mark.parametrize("z", [0.7, 2.0])
@pytest.mark.parametrize("law, first", LAWS)
def test_slots_cost_no_less_than_the_truth(law, first, z):
    """And hardly more where slots are all that there is."""
    event = k_of_t.slots(GAUSSIAN(z), first, law)
    for delta in (1e-1, 1e-3, 1e-5):
        found = accounting.epsilon(event, delta).epsilon
        truth = exact(law, first, z, found)
        assert truth <= delta * (1 + 1e-6)
        if law.k + (law.chance > 0) == 1:
            assert truth > 0.98 * delta or not found
    points, weights = rows(min(first, 3), 0.4, 8.5 + 5 / z)
    event = k_of_t.slots(GAUSSIAN(z), len(points), law)
    ratios = ratio(points, law, z)
    moments = event_rdp(event, [2, 5]) * [1, 4]
    for order, moment in zip((2, 5), moments):
        assert math.log(ratios**order @ weights) <= moment * (1 + 1e-9)
        assert math.log(ratios ** (1 - order) @ weights) <= moment * (1 + 1e-9)


def event_rdp(event, orders):
    book = accounting.DpflAccountant(orders)
    book.compose(event)
    return book._rdp


@pytest.mark.parametrize("law", [(1, 30, 0.1), (6, 48, 0.25), (46, 48, 0.9), (7, 48)])
def test_blocks_are_all_rounds_and_a_rare_one_is_short(law):
    law = k_of_t.Law(*law)
    chances = k_of_t._coins_of(law, law.rounds)
    lengths = k_of_t._lengths(chances, law.rounds)
    assert np.sum(lengths) == law.rounds and np.min(lengths) >= 1
    assert lengths[0] - lengths[-1] * (1 / chances[-1]) <= 1 + 0.5 / chances[-1]


def test_everybody_and_one_round_have_their_own_figures():
    """k = T is no secret, and one round of a run without others is a sample."""
    whole = k_of_t.slots(GAUSSIAN(2.0), 5, k_of_t.Law(5, 5))
    want = SELF(GAUSSIAN(2.0), 5)
    assert accounting.epsilon(whole, 1e-5).epsilon == pytest.approx(
        accounting.epsilon(want, 1e-5).epsilon
    )
    once = k_of_t.slots(GAUSSIAN(1.0), 1, k_of_t.Law(0, 1, 0.2))
    want = POISSON(0.2, GAUSSIAN(1.0))
    assert accounting.epsilon(once, 1e-5).epsilon == pytest.approx(
        accounting.epsilon(want, 1e-5).epsilon
    )


def drawn(event, delta, **more):
    """The epsilon of the run's own law."""
    report = accounting.epsilon(event, delta, accounting_method="tight", **more)
    assert report.accounting_method == "monte-carlo"
    return report.epsilon


@pytest.mark.parametrize("z", [0.7, 2.0])
@pytest.mark.parametrize("law, first", LAWS[:3])
def test_its_own_law_matches_integration(law, first, z):
    event = k_of_t.KOfTDpEvent(z, first, *law)
    for delta in (1e-1, 1e-4):
        report = accounting.epsilon(event, delta)
        truth = exact(law, first, z, report.epsilon)
        assert 0.85 * delta <= truth <= delta * (1 + 1e-6)
        of_slots = accounting.epsilon(event.as_composition(), delta)
        assert report.epsilon <= of_slots.epsilon


@pytest.mark.parametrize("z, epsilon", [(0.7093, 8), (1.6326, 2)])
def test_six_of_48_rounds_match_many_draws(z, epsilon):
    """The noise of these epsilons by plain simulation, to a hundredth."""
    found = drawn(k_of_t.KOfTDpEvent(z, 48, 6, 48), 1e-4)
    assert found == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize("law, first", [*LAWS[:4], (k_of_t.Law(5, 20, 0.5), 12)])
@pytest.mark.parametrize("b, y", [(0, 1.0), (1, 0.3), (5, 0.05)])
def test_draws_have_their_density_and_no_term_above_the_bound(law, first, b, y):
    law_of = k_of_t.numbers(law, first)
    want = (1 - law.chance) * stats.hypergeom.pmf(
        np.arange(law_of.size), law.rounds, law.k, first
    )
    if law.chance:
        want += law.chance * stats.hypergeom.pmf(
            np.arange(law_of.size), law.rounds, law.k + 1, first
        )
    np.testing.assert_allclose(law_of, want, atol=1e-14)
    tilted = k_of_t._Tilted(1.2, first, law_of)
    losses, weights = tilted._draws(b, math.log(y), 40_000, 1)
    # Both laws, as means of their likelihoods; few draws are of small ratios.
    with_it = np.exp(weights)
    assert abs(np.mean(with_it) - 1) < 5 * np.std(with_it) / 200
    log_tilts = tilted._log_tilts(b, math.log(y))
    log_mean = special.logsumexp(tilted._log_pair_weights(log_tilts))
    for epsilon in (0.0, 0.5, 2.0):
        bound = math.exp(log_mean + tilted.log_bound(epsilon, b, math.log(y)))
        terms = with_it * np.maximum(-np.expm1(epsilon - losses), 0)
        assert np.max(terms) <= bound * (1 + 1e-9)


def test_beside_other_releases_it_counts_as_slots():
    event = k_of_t.KOfTDpEvent(1.0, 12, 3, 12)
    other = GAUSSIAN(5.0)
    both = [
        accounting.epsilon(COMPOSED((part, other)), 1e-5).epsilon
        for part in (event, event.as_composition())
    ]
    assert both[0] == both[1]
    np.testing.assert_array_equal(
        event.rdp([2.0, 9.5]), event_rdp(event.as_composition(), [2.0, 9.5])
    )


def test_many_rounds_have_few_parts():
    """A third of a long run, and one of more coins than are computed."""
    event = k_of_t.slots(GAUSSIAN(1.0), 10**5, k_of_t.Law(300, 3 * 10**5))
    assert sum(part.count for part in event.events) == 300
    assert len(event.events) < 200
    event = k_of_t.slots(GAUSSIAN(1.0), 10, k_of_t.Law(10**4, 10**6))
    assert event.count == 10 and event.event.slots == 1
