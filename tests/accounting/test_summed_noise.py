# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of probabilities of summed noise by tilted Fourier sums."""

import math
import sys
from concurrent import futures

import mpmath
import numpy as np
import pytest

from dpfl.accounting.integer.summed_noise import DiscreteGaussianNoise, SkellamNoise
from tests.accounting import exact_noise


@pytest.mark.parametrize("count", [1, 2, 3, 50])
@pytest.mark.parametrize("stddev", [0.1, 0.3, 0.75, 1.8, 3.0])
def test_discrete_gaussian_within_its_error(count, stddev):
    reach = math.ceil(20 * math.sqrt(count) * stddev + 10)
    exact = exact_noise.discrete_gaussian(count, stddev, reach)[reach:]
    found = DiscreteGaussianNoise(count, stddev).log_pmf(reach)
    compared = 0
    for value, error, probability in zip(found.values, found.error, exact):
        if probability > mpmath.mpf(2) ** -1200:
            assert abs(value - float(mpmath.log(probability))) <= error
            compared += 1
    assert compared >= min(reach, 4)
    assert found.error[: reach // 4].max() < 1e-9


def test_threads_and_the_order_of_questions_change_nothing():
    alone = DiscreteGaussianNoise(5000, 1.0).log_pmf(2000)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for attempt in range(20):
            shared = DiscreteGaussianNoise(5000, 1.0)
            asked = [100 + attempt, 2000, 700, 2000]
            with futures.ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(shared.log_pmf, asked))
            for last, found in zip(asked, answers):
                assert np.array_equal(found.values, alone.values[: last + 1])
                assert np.array_equal(found.error, alone.error[: last + 1])
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("variance", [0.05, 3.0, 700.0])
def test_skellam_within_its_error(variance):
    reach = math.ceil(20 * math.sqrt(variance) + 20)
    found = SkellamNoise(variance).log_pmf(reach)
    exact = exact_noise.skellam(variance, reach)[reach:]
    for value, error, probability in zip(*found, exact):
        assert abs(value - float(mpmath.log(probability))) <= error
    assert found.error[0] < 1e-11


def test_a_share_is_a_sum_of_bernoullis():
    # Jacobi's triple product: cumulants of the sum against those of the pmf.
    stddev, tilts = 0.8, np.array([0.0, 0.4, 2.0, 7.3])
    found = DiscreteGaussianNoise(3, stddev).cumulants(tilts)
    k = np.arange(-60, 61)
    weight = np.exp(-np.square(k) / (2 * stddev**2))
    for i, tilt in enumerate(tilts):
        tilted = weight * np.exp(tilt * k)
        mean = np.sum(k * tilted) / np.sum(tilted)
        variance = np.sum(np.square(k - mean) * tilted) / np.sum(tilted)
        log_moment = math.log(np.sum(tilted) / np.sum(weight))
        assert found.log_moment[i] == pytest.approx(3 * log_moment, abs=1e-12)
        assert found.mean[i] == pytest.approx(3 * mean, abs=1e-11)
        assert found.variance[i] == pytest.approx(3 * variance, rel=1e-11)


def test_a_million_shares():
    law = DiscreteGaussianNoise(1_000_000, 0.5)
    found = law.log_pmf(5000)
    pmf = np.exp(found.values)
    k = np.arange(5001)
    variance = float(law.cumulants(np.zeros(1)).variance[0])
    assert pmf[0] + 2 * pmf[1:].sum() == pytest.approx(1, abs=1e-11)
    assert 2 * np.sum(pmf * k**2) == pytest.approx(variance, rel=1e-10)
    assert found.error.max() < 1e-10
    assert np.all(np.diff(found.values, 2) < 0)  # log-concave, tails included
