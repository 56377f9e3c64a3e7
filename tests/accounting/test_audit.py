# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the empirical lower bounds, and of every claimed epsilon against them."""

import math

import attr
import dp_accounting
import numpy as np
import pytest
from scipy import stats

from dpfl import accounting
from dpfl.accounting import lower_bounds
from tests.accounting import simulators
from tests.refusals import refuses

TRIALS = 200_000
DELTA = 1e-3
GAMMA = 0.3
CANARY = simulators.extreme_vector(1.0, 0.6, 4)  # K = 2.78: two full and one part


Masked = simulators.SparsifiedGaussianSimulator
gaussian = dp_accounting.GaussianDpEvent


def claimed(event, count=1):
    [relation, *_] = accounting.relations_of(event)
    ledger = accounting.DpflAccountant(neighboring_relation=relation)
    return ledger.compose(event, count).get_epsilon(DELTA)


def found(simulator, seed=20260101, trials=TRIALS):
    return simulators.audit(simulator, trials, DELTA, seed=seed).epsilon


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

    def test_refuses_impossible_counts(self):
        with refuses(ValueError, "successes", 11):
            lower_bounds.clopper_pearson(11, 10, 0.1)
        with refuses(ValueError, "error", 0.0):
            lower_bounds.clopper_pearson(1, 10, 0.0)


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

    def test_refuses_bad_scores(self):
        with refuses(ValueError, "present", (3,)):
            lower_bounds.epsilon_lower_bound(np.zeros(3), np.zeros(9), 0.1)
        with refuses(ValueError, "absent", "NaN"):
            lower_bounds.epsilon_lower_bound(np.zeros(9), np.full(9, np.nan), 0.1)


LEFT = np.tril(np.ones((3, 3)))
RIGHT = np.array([[1.0, 0, 0], [0.5, 1, 0], [0.375, 0.5, 1]])
SENSITIVITY = np.linalg.norm(RIGHT, axis=0).max()
L2 = accounting.SparsifiedGaussianDpEvent(0.45 / GAMMA, GAMMA, 0.6, 4)
LINF = accounting.LinfSparsifiedGaussianDpEvent(0.45 / GAMMA, GAMMA, 0.6, 4)
SAMPLED = L2.poisson_sampled(0.2)
SGMF = accounting.SparsifiedMatrixFactorizationDpEvent(
    0.5 / (GAMMA * SENSITIVITY), GAMMA, 0.6, 4
)
MF = accounting.MatrixFactorizationDpEvent(0.8 / SENSITIVITY)
INTEGERS = (10, 0.5, 1.0, math.sqrt(2), 2, 1.0)  # every coordinate is at most a step
DDG = accounting.DistributedDiscreteGaussianDpEvent(*INTEGERS)
SKELLAM = accounting.DistributedSkellamDpEvent(*INTEGERS)
DOME = dp_accounting.SelfComposedDpEvent(gaussian(math.sqrt(5)), 2)
# The five shares of a sum, in each epoch's round with the canary.
DOMES = Masked(np.array([0.6, 0.8]), 1.0, math.sqrt(5), releases=2)
EXTREME = np.full(4, 0.6)  # of L-infinity clipping alone


def csgm(**changes):
    return Masked(CANARY, GAMMA, 0.45, **changes)


def stream(stddev=0.8, rounds=(0,), **changes):
    return simulators.MatrixFactorizationSimulator(
        LEFT, RIGHT, CANARY, stddev, rounds, **changes
    )


def shares(clients=10, stddev=0.5, **changes):
    return simulators.DistributedNoiseSimulator(
        np.array([1, 1]), clients, stddev, **changes
    )


# name: (event, how often it is composed, simulator, part of the claim to be found)
SOUND = {
    "gaussian": (gaussian(1.0), 1, Masked(CANARY, 1.0, 1.0), 0.6),
    "l2-csgm": (L2, 1, csgm(), 0.6),
    "l2-csgm, three releases": (L2, 3, csgm(releases=3), 0.5),
    "l2-csgm, sampled clients": (
        SAMPLED, 3, csgm(releases=3, sampling_probability=0.2), 0.3),
    "linf-csgm": (LINF, 1, csgm(), 0.3),
    "linf-csgm, its own extreme": (LINF, 1, Masked(EXTREME, GAMMA, 0.45), 0.5),
    "mf": (MF, 1, stream(), 0.6),
    "sgmf": (SGMF, 1, stream(0.5, keep_fraction=GAMMA), 0.5),
    "ddg": (DDG, 1, shares(), 0.6),
    "ddg, modulo": (DDG, 1, shares(modulus=16), 0.6),
    "ddg, sampled": (
        DDG.poisson_sampled(0.3), 1, shares(sampling_probability=0.3), 0.4),
    "skellam": (SKELLAM, 1, shares(skellam=True), 0.6),
    "dome": (DOME, 1, DOMES, 0.6),
}  # fmt: skip

# name: (event claimed, how often, simulator of what is done instead)
BROKEN = {
    "gaussian, half the noise": (gaussian(1.0), 1, Masked(CANARY, 1.0, 0.5)),
    "l2-csgm, half the noise": (L2, 1, Masked(CANARY, GAMMA, 0.225)),
    # Summed, the releases of a kept coordinate stand out; of fresh masks they do not.
    "l2-csgm, a mask reused": (
        accounting.SparsifiedGaussianDpEvent(20.0, 0.1, 1.0, 4), 100,
        Masked(np.array([1.0]), 0.1, 2.0, releases=100, reuse_mask=True)),
    "l2-csgm, no coordinate dropped": (L2, 1, Masked(CANARY, 1.0, 0.45)),
    "l2-csgm, no coordinate bound": (
        attr.evolve(L2, linf_ratio=0.2, dimension=25), 1,
        Masked(np.array([1.0]), GAMMA, 0.45)),
    "linf-csgm, half the noise": (LINF, 1, Masked(EXTREME, GAMMA, 0.225)),
    "csgm, all clients instead of a sample": (SAMPLED, 1, csgm()),
    "mf, half the noise": (MF, 1, stream(0.4)),
    "mf, two rounds": (MF, 1, stream(rounds=(0, 1))),
    "sgmf, half the noise": (SGMF, 1, stream(0.25, keep_fraction=GAMMA)),
    "ddg, half the noise": (DDG, 1, shares(2, 0.56)),
    "ddg, half the clients drop out": (DDG, 1, shares(5)),
    "skellam, half the noise": (SKELLAM, 1, shares(10, 0.25, skellam=True)),
    "dome, half the noise": (DOME, 1, attr.evolve(DOMES, stddev=math.sqrt(5) / 2)),
    "dome, twice an epoch": (DOME, 1, attr.evolve(DOMES, releases=4)),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_claims_are_above_the_measured_lower_bounds(name):
    event, count, simulator, part = SOUND[name]
    trials = TRIALS if name != "l2-csgm, three releases" else TRIALS // 2
    lower, upper = found(simulator, trials=trials), claimed(event, count)
    assert lower <= upper
    assert lower >= part * upper  # an audit that finds nothing would test nothing


@pytest.mark.parametrize("name", BROKEN)
def test_broken_mechanisms_are_caught(name):
    event, count, simulator = BROKEN[name]
    trials = TRIALS if count == 1 else 30_000
    assert found(simulator, trials=trials) > claimed(event, count)
