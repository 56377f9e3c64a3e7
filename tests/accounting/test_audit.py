# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the empirical lower bounds, and of every claimed epsilon against them."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfl.accounting import lower_bounds


class TestClopperPearson:
    @pytest.mark.parametrize("k", [0, 1, 7, 99, 100])
    def test_matches_the_beta_quantiles(self, k):
        low, high = lower_bounds.clopper_pearson(k, 100, 0.01)
        want = stats.beta.ppf(0.01, k, 101 - k) if k else 0
        assert low == pytest.approx(want)
        want = stats.beta.ppf(0.99, k + 1, 100 - k) if k < 100 else 1
        assert high == pytest.approx(want)

    def test_covers_the_rate(self):
        low, high = lower_bounds.clopper_pearson(np.arange(51), 50, 0.05)
        for p in (0.02, 0.3, 0.5):
            mass = stats.binom.pmf(np.arange(51), 50, p)
            assert mass[low > p].sum() <= 0.05
            assert mass[high < p].sum() <= 0.05


class TestLowerBound:
    def test_equal_distributions_give_epsilon_zero(self):
        rng = np.random.default_rng(1)
        for _ in range(20):
            result = lower_bounds.epsilon_lower_bound(
                rng.normal(size=2000), rng.normal(size=2000), 0.0
            )
            assert result.epsilon < 0.2

    def test_finds_most_of_a_known_epsilon(self):
        # Randomised response with epsilon ln 3: the truth is 3/4 of the time told.
        rng = np.random.default_rng(2)
        present = (rng.random(100_000) < 0.75).astype(float)
        absent = (rng.random(100_000) < 0.25).astype(float)
        result = lower_bounds.epsilon_lower_bound(present, absent, 0.0)
        assert math.log(3) * 0.95 < result.epsilon < math.log(3)
        assert 0.74 < result.hit_rate < 0.75 < 1 - result.false_rate + 0.01

    def test_delta_is_subtracted(self):
        # Total variation 0.04: (0, 0.04)-private, so nothing is found at delta 0.05.
        present = np.r_[np.ones(1000), np.zeros(24_000)].repeat(2)
        present = np.random.default_rng(9).permutation(present)
        absent = np.zeros(50_000)
        assert lower_bounds.epsilon_lower_bound(present, absent, 0.05).epsilon == 0
        assert lower_bounds.epsilon_lower_bound(present, absent, 0.01).epsilon > 4

    def test_threshold_and_bound_use_separate_scores(self):
        rng = np.random.default_rng(10)
        present, absent = rng.normal(size=2000), rng.normal(size=2000)
        present[:1000] += 10  # what the first half promises, the second does not keep
        assert lower_bounds.epsilon_lower_bound(present, absent, 0.0).epsilon == 0
        result = lower_bounds.epsilon_lower_bound(present[::-1], absent, 0.0)
        assert result.epsilon < 6

    def test_larger_direction_is_chosen(self):
        # An event of chance 0.1 without the canary that never happens with it.
        rng = np.random.default_rng(3)
        absent = np.where(rng.random(50_000) < 0.1, -1.0, 0.0)
        result = lower_bounds.epsilon_lower_bound(np.zeros(50_000), absent, 0.01)
        assert result.direction == "absent"
        assert result.epsilon > math.log(0.08 / 3e-4)

    def test_bound_holds_with_its_confidence(self):
        # epsilon(delta) of a Gaussian is known: at 90% few of 200 may exceed it.
        truth, mean, failures = 1.0, 1 / 1.5, 0
        rates = stats.norm.cdf([mean / 2 - truth / mean, -mean / 2 - truth / mean])
        delta = rates[0] - math.exp(truth) * rates[1]
        rng = np.random.default_rng(4)
        for _ in range(200):
            present, absent = rng.normal(mean, size=1000), rng.normal(size=1000)
            found = lower_bounds.epsilon_lower_bound(
                present, absent, delta, confidence=0.9
            )
            failures += found.epsilon > truth
        assert failures <= 20
