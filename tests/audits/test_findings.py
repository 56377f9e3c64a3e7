# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What an audit computes from what it saw; the rounds are in tests/experiments."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfl import mechanisms
from dpfl.accounting import discrete_gaussian
from dpfl.audits import finding, tails, views


def test_chance_of_a_count():
    law = stats.binom(1000, 0.01)
    for count in (0, 3, 10, 17, 30):
        tail = min(law.cdf(count), law.sf(count - 1))
        chance = finding.count_chance(count, 1000, 0.01)
        assert chance == pytest.approx(min(1, 2 * tail))
    # Twelve draws beyond 5.7 are expected of a billion; none at all is no chance.
    assert finding.count_chance(0, 10**9, 1.2e-8) < 2e-5
    assert finding.count_chance(12, 10**9, 1.2e-8) > 0.9


def test_correlation_is_in_standard_deviations():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(200, 100))
    found = [finding.correlation(one, noise[0]) for one in noise[1:]]
    assert 0.8 < np.std(found) < 1.2
    assert finding.correlation(noise[0], 3 * noise[0] + 1) == pytest.approx(10)
    assert finding.correlation(noise[0], np.zeros(100)) == 0


def test_verdicts_and_rows():
    below = finding.Finding("epsilon", "m", "s", True, claimed=2.0, found=1.0)
    assert (below.verdict, below.ratio) == ("below", 0.5)
    above = finding.Finding("epsilon", "m", "s", False, claimed=1.0, found=2.0)
    assert above.verdict == "ABOVE"
    failed = finding.Finding("masks", "m", "s", False, claimed=0.0, found=2.0)
    assert failed.verdict == "FAILED" and failed.ratio is None
    assert failed.row()["verdict"] == "FAILED" and "is_sound" not in failed.row()


def test_residues_of_least_size():
    found = views.centered(np.array([0, 7, 8, 15, 16, 33]), 4)
    np.testing.assert_array_equal(found, [0, 7, -8, -1, 0, 1])


@pytest.mark.parametrize("size", [0.3, 1.0, 2.75])
@pytest.mark.parametrize(
    "kind", [mechanisms.DistributedDiscreteGaussian, mechanisms.DistributedSkellam]
)
def test_ratio_of_a_rounded_canary_has_mean_one(kind, size):
    """Where the canary is not there: the sum of Q P/Q is that of P."""
    mechanism = kind(4, 1.0, 1.0, 5)
    step = mechanism.grid(4).granularity
    opened = np.arange(-15, 16)
    block = [size * step]
    ratio = views.log_ratio(mechanism, 4, opened[:, np.newaxis] % 32, block)
    shares, stddev = mechanism.noise_shares, mechanism.grid(4).local_stddev_steps
    if kind is mechanisms.DistributedDiscreteGaussian:
        law = discrete_gaussian.summed_discrete_gaussian_log_pmf(opened, shares, stddev)
    else:
        half = shares * stddev**2 / 2
        law = stats.skellam.logpmf(opened, half, half)
    with_canary = np.exp(law + ratio)
    assert np.sum(with_canary) == pytest.approx(1, abs=1e-6)
    assert np.sum(with_canary * opened) == pytest.approx(size, abs=1e-4)


def test_tails_of_a_law():
    normal = tails.Source("m", None, 1.0, 1000.0)
    for size in (3, 5, 6.5):
        expected = 2 * stats.norm.sf((1000 * size - 0.5) / 1000)
        assert normal.tail(round(1000 * size)) == pytest.approx(expected)
    coarse = tails.Source(
        "m", None, 1.0, 2.0, lambda x: discrete_gaussian.discrete_gaussian_log_pmf(x, 2)
    )
    weights = np.exp(-(np.arange(-60, 61) ** 2) / 8.0)
    beyond = weights[np.abs(np.arange(-60, 61)) >= 7].sum() / weights.sum()
    assert coarse.tail(7) == pytest.approx(beyond)
    assert not math.isclose(normal.tail(7), beyond)
