# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""k of T rounds in secret, against integration, all sets and clients that adapt."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import special, stats

from dpfl import accounting
from dpfl.accounting import k_of_t

GAUSSIAN = dp_accounting.GaussianDpEvent
POISSON = dp_accounting.PoissonSampledDpEvent


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


def ratio(points, law, z, sent=lambda turns, i: 1.0):
    """R of the first rounds, of which `points` are, by all sets of T rounds.

    `sent` is the message of the client in round `turns[i]`.
    """
    total = 0.0
    for more, chance in ((0, 1 - law.chance), (1, law.chance)):
        sets = list(itertools.combinations(range(law.rounds), law.k + more))
        for turns in sets if chance else ():
            loss = 0.0
            for i, t in enumerate(turns):
                if t < len(points):
                    v = sent(turns, i)
                    loss = loss + v * points[t] / z - 0.5 * (v / z) ** 2
            total = total + chance / len(sets) * np.exp(loss)
    return total


def deltas(ratios, weights, epsilon):
    """The delta of either direction."""
    growth = math.exp(epsilon)
    return np.array(
        [
            np.maximum(ratios - growth, 0) @ weights,
            np.maximum(1 - growth * ratios, 0) @ weights,
        ]
    )


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


@pytest.mark.parametrize("count", [1, 2])
def test_clients_that_adapt_and_remember_gain_nothing(count):
    """Messages of any sign, by the releases before and by their own earlier rounds."""
    rng = np.random.default_rng(count)
    # With these points a martingale stays one.
    nodes, weight = np.polynomial.hermite_e.hermegauss(40)
    points = np.array(list(itertools.product(nodes, repeat=3))).T
    weights = np.prod(np.array(list(itertools.product(weight, repeat=3))), axis=1)
    weights /= weights.sum()
    law, z, epsilons = k_of_t.Law(count, 3), 0.9, (-1, 0, 0.3, 1, 2.5)
    always = [deltas(ratio(points, law, z), weights, at) for at in epsilons]
    for trial in range(25):
        rules = rng.normal(size=(3, 3, 4)) * rng.choice([0.3, 1, 5])

        def sent(turns, i, rules=rules, is_hard=trial % 2):
            t, before = turns[i], turns[i - 1] + 1 if i else 0
            own, *by = rules[t, before]
            v = own + sum(b * row for b, row in zip(by, points[:t]))
            return np.sign(v) if is_hard else np.tanh(v)

        found = [deltas(ratio(points, law, z, sent), weights, at) for at in epsilons]
        assert np.all(np.array(found) <= np.array(always) + 1e-12)


def test_everybody_and_one_round_have_their_own_figures():
    """k = T is no secret, and one round of a run without others is a sample."""
    whole = k_of_t.slots(GAUSSIAN(2.0), 5, k_of_t.Law(5, 5))
    want = dp_accounting.SelfComposedDpEvent(GAUSSIAN(2.0), 5)
    assert accounting.epsilon(whole, 1e-5).epsilon == pytest.approx(
        accounting.epsilon(want, 1e-5).epsilon
    )
    once = k_of_t.slots(GAUSSIAN(1.0), 1, k_of_t.Law(0, 1, 0.2))
    want = POISSON(0.2, GAUSSIAN(1.0))
    assert accounting.epsilon(once, 1e-5).epsilon == pytest.approx(
        accounting.epsilon(want, 1e-5).epsilon
    )


def test_many_rounds_have_few_parts():
    """A third of a long run, and one of more coins than are computed."""
    event = k_of_t.slots(GAUSSIAN(1.0), 10**5, k_of_t.Law(300, 3 * 10**5))
    assert sum(part.count for part in event.events) == 300
    assert len(event.events) < 200
    event = k_of_t.slots(GAUSSIAN(1.0), 10, k_of_t.Law(10**4, 10**6))
    assert event.count == 10 and event.event.slots == 1
