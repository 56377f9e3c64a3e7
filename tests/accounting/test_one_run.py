# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Bounds and estimates of epsilon from one run with many canaries."""

import math

import numpy as np
import pytest

from dpfl.accounting import gaussian, one_run

# Canaries, guesses, correct ones, error and delta; and the bounds of `epsilon_one_run`
# and `epsilon_one_run_fdp` in jax_privacy's auditing.py of August 2026.
PEERS = [
    ((1000, 500, 400, 0.025, 1e-5), 1.163741, 1.883021),
    ((1000, 126, 120, 0.05, 1e-5), 2.285306, 3.592036),
    ((400, 200, 200, 0.05, 1e-6), 4.192548, 9.242850),
    ((1000, 1000, 600, 0.05, 1e-3), 0.265991, 0.357813),
]


@pytest.mark.parametrize(("given", "epsilon", "of_gaussian"), PEERS)
def test_bounds_are_those_of_jax_privacy(given, epsilon, of_gaussian):
    m, guesses, correct, error, delta = given
    found = one_run.of_guesses(guesses, correct, m, delta, error)
    assert found.epsilon == pytest.approx(epsilon, abs=1e-5)
    assert found.gaussian_epsilon == pytest.approx(of_gaussian, rel=2e-4)
    assert found.gaussian_epsilon <= of_gaussian + 1e-5


def test_all_guesses_correct_bound_epsilon_in_closed_form():
    found = one_run.of_guesses(50, 50, 50, 1e-300, 0.05)
    chance = 0.05 ** (1 / 50)
    assert found.epsilon == pytest.approx(math.log(chance / (1 - chance)))


def drawn(mu, rng, m=1000):
    is_in = rng.random(m) < 0.5
    return rng.standard_normal(m) + mu * is_in, is_in


@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
def test_bounds_are_below_the_truth_and_intervals_hold_it(mu):
    rng, delta = np.random.default_rng(4), 1e-5
    truth = gaussian.gaussian_epsilon(delta, 1 / mu) if mu else 0.0
    inside, shown = 0, []
    for _ in range(40):
        scores, is_in = drawn(mu, rng)
        bounds = one_run.lower_bounds(scores, is_in, delta)
        shown.append((bounds.epsilon, bounds.gaussian_epsilon))
        found = one_run.estimate(scores[is_in], scores[~is_in], delta)
        inside += found.low <= truth <= found.high
    # Of 40, fewer than 34 have a probability of 0.3% at a confidence of 95%.
    assert inside >= 34
    assert np.sum(np.array(shown) > truth, 0).max() <= 5
    if mu:
        assert np.median(shown, 0).min() > truth / 5


def test_scores_that_say_nothing_bound_nothing():
    is_in = np.arange(200) % 2 == 0
    found = one_run.lower_bounds(np.zeros(200), is_in, 1e-5)
    assert (found.epsilon, found.mu, found.gaussian_epsilon) == (0, 0, 0)
    guess = one_run.estimate(np.zeros(1), np.zeros(9), 1e-5)
    assert (guess.low, guess.high) == (0, math.inf)
