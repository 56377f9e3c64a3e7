# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The integers of trusted servers: bounds that are kept, sums, and shares of noise.

No vector exceeds the bound, whatever a client has: `arrays/test_bounds.py`.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dpfl.arrays import in_numpy
from dpfl.codecs import integer_sums
from dpfl.codecs.integer_sums import CountSum, IntegerSum
from dpfl.vectors import clipping
from tests.refusals import refuses

SEED = np.array([5, 6])


@pytest.mark.parametrize("z", [0.0, 1e-3, 1.0, 40.0])
@pytest.mark.parametrize("clip", [1e-15, 0.7, 1e15])
def test_clipped_vectors_are_closely_within_the_bound(z, clip):
    total = IntegerSum(300, z, 100)
    vector = np.random.default_rng(1).standard_normal(300) * 9 * clip
    integers = total.round(clipping.safe_norm(vector.astype(np.float32)), clip)
    assert integers.dtype == np.int32
    most, squared = total.grid.max_squared_norm, sum(int(x) ** 2 for x in integers)
    assert most * (1 - 2e-4) <= squared <= most
    expected = vector * clip / np.linalg.norm(vector)
    assert_allclose(total.to_float(integers, clip), expected, atol=1.2e-4 * clip)


def test_vectors_within_the_clip_are_only_rounded():
    """z = 1: 2^18 steps to the clip of 2."""
    total = IntegerSum(3, 1.0, 10)
    normed = clipping.safe_norm(np.float32([0.5, -1e-5, 1.0]))
    integers = total.round(normed, 2.0)
    assert_array_equal(integers, [1 << 16, -1, 1 << 17])
    assert_allclose(total.to_float(integers, 2.0), [0.5, -(2.0**-17), 1.0], rtol=1e-7)


def test_large_cohorts_are_summed_in_64_bits():
    small, large = IntegerSum(2, 0.01, 10), IntegerSum(2, 0.01, 10**6)
    assert (small.dtype, large.dtype) == (np.int32, np.int64)
    message, total = np.full(2, large.grid.max_size, np.int32), large.zero(in_numpy)
    for _ in range(3000):
        total = large.accumulate(total, message)
    assert_array_equal(total, [3000 * large.grid.max_size] * 2)
    assert large.noised(total, SEED).dtype == np.int64


@pytest.mark.parametrize("z", [2.0**-25, 2.0**25])
def test_refuses_noise_beyond_the_grid(z):
    with refuses(ValueError, "noise_multiplier", z):
        IntegerSum(2, z, 10)


def test_shares_add_up_to_the_full_noise():
    total = IntegerSum(50_000, 1.0, 10)
    zeros = np.zeros(50_000, np.int32)
    shares = [total.with_share(zeros, np.array([i, 3]), 7) for i in range(7)]
    whole, stddev = np.sum(shares, 0, np.int64), total.grid.noise_stddev
    assert whole.std() == pytest.approx(stddev, rel=0.015)
    assert shares[0].std() == pytest.approx(stddev / math.sqrt(7), rel=0.015)
    for number in (1, 3, 7, 999):
        share = Fraction(integer_sums.share_stddev(total.grid, number))
        assert number * share**2 >= Fraction(total.grid.stddev) ** 2 + 4


def test_refuses_shares_too_small_for_a_discrete_gaussian():
    total = IntegerSum(2, 1e-6, 100)
    with refuses(ValueError, "noise_multiplier", 1e-06, 100):
        total.with_share(np.zeros(2, np.int32), SEED, 100)


@pytest.mark.parametrize("stddev", [0.0, 1.5, 5e4])
def test_votes_are_plus_or_minus_half(stddev):
    """Replaced by zeros a client moves the sum by 1/2 of a count, and no more."""
    count = CountSum(stddev, 100)
    total = count.zero(in_numpy)
    for vote in (1, 1, 1, -1, 0):
        total = count.accumulate(total, np.int32(vote))
    grid = count._sum.grid
    assert abs(int(total)) == 2 * grid.max_size
    if stddev:
        assert grid.max_size <= grid.stddev / (2 * stddev)
    else:
        assert count.noised(total, SEED) == 1
