# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The integers of trusted servers: bounds that are kept, sums, and noise with tails."""

import collections
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import mechanisms
from dpfl.arrays import in_tensorflow as nx
from dpfl.codecs import gaussian, integer_sums
from dpfl.codecs.base import Received
from dpfl.codecs.integer_sums import CountSum, IntegerSum
from dpfl.vectors import clipping
from tests.aggregators.cohorts import FLOAT_MAX
from tests.many_draws import many
from tests.refusals import refuses

SEED = tf.constant([5, 6], tf.int64)
D = 1_000_000


def squared_norm(integers):
    return sum(int(x) ** 2 for x in np.asarray(integers))


class TestIntegerSum:
    @pytest.mark.parametrize("z", [0.0, 1e-3, 1.0, 40.0])
    @pytest.mark.parametrize("clip", [1e-15, 0.7, 1e15])
    def test_clipped_vectors_are_closely_within_the_bound(self, z, clip):
        total = IntegerSum(300, z, 100)
        grid = total.grid
        vector = np.random.default_rng(1).standard_normal(300) * 9 * clip
        normed = clipping.safe_norm(tf.constant(vector, tf.float32))
        integers = total.round(normed, clip)
        assert integers.dtype == tf.int32
        assert squared_norm(integers) <= grid.max_squared_norm
        assert squared_norm(integers) >= grid.max_squared_norm * (1 - 2e-4)
        expected = vector * clip / np.linalg.norm(vector)
        found = total.to_float(integers, clip).numpy()
        assert_allclose(found, expected, atol=1.2e-4 * clip)

    def test_vectors_within_the_clip_are_only_rounded(self):
        """z = 1: 2^18 steps to the clip of 2."""
        total = IntegerSum(3, 1.0, 10)
        normed = clipping.safe_norm(tf.constant([0.5, -1e-5, 1.0]))
        integers = total.round(normed, 2.0)
        assert_array_equal(integers, [1 << 16, -1, 1 << 17])
        assert_allclose(
            total.to_float(integers, 2.0), [0.5, -(2.0**-17), 1.0], rtol=1e-7
        )

    @pytest.mark.parametrize(
        "value", [math.nan, math.inf, -math.inf, FLOAT_MAX, -FLOAT_MAX, 1e-38, 1e30]
    )
    @pytest.mark.parametrize("z", [0.5, 2.0**17])
    def test_no_vector_exceeds_the_bound(self, value, z):
        total = IntegerSum(64, z, 10)
        for vector in (
            np.full(64, value),
            np.append(value, np.ones(63)),
            # Coordinates that all are rounded away from zero.
            np.full(64, value) + 0.75 * z / total.grid.stddev,
        ):
            normed = clipping.safe_norm(tf.constant(vector, tf.float32))
            integers = total.round(normed, 1.0)
            assert squared_norm(integers) <= total.grid.max_squared_norm

    def test_large_cohorts_are_summed_in_64_bits(self):
        small, large = IntegerSum(2, 0.01, 10), IntegerSum(2, 0.01, 10**6)
        assert (small.dtype, large.dtype) == (tf.int32, tf.int64)
        message = tf.fill([2], large.grid.max_size)
        total = large.zero(nx)
        for _ in range(3000):
            total = large.accumulate(total, message)
        expected = 3000 * large.grid.max_size
        assert_array_equal(total, [expected] * 2)
        assert large.noised(total, SEED).dtype == tf.int64

    @pytest.mark.parametrize("z", [2.0**-25, 2.0**25])
    def test_refuses_noise_beyond_the_grid(self, z):
        with refuses(ValueError, "noise_multiplier", z):
            IntegerSum(2, z, 10)

    def test_shares_add_up_to_the_full_noise(self):
        total = IntegerSum(200_000, 1.0, 10)
        zeros = tf.zeros([200_000], tf.int32)
        seeds = [tf.constant([i, 3], tf.int64) for i in range(7)]
        shares = [total.with_share(zeros, seed, 7) for seed in seeds]
        whole = sum(share.numpy().astype(np.int64) for share in shares)
        assert whole.std() == pytest.approx(total.grid.noise_stddev, rel=0.01)
        assert shares[0].numpy().std() == pytest.approx(
            total.grid.noise_stddev / math.sqrt(7), rel=0.01
        )
        for number in (1, 3, 7, 999):
            share = Fraction(integer_sums.share_stddev(total.grid, number))
            assert number * share**2 >= Fraction(total.grid.stddev) ** 2 + 4

    def test_refuses_shares_too_small_for_a_discrete_gaussian(self):
        total = IntegerSum(2, 1e-6, 100)
        with refuses(ValueError, "noise_multiplier", 1e-06, 100):
            total.with_share(tf.zeros([2], tf.int32), SEED, 100)


class TestCountSum:
    @pytest.mark.parametrize("stddev", [0.0, 1.5, 5e4])
    def test_votes_are_plus_or_minus_half(self, stddev):
        """Replaced by zeros a client moves the sum by 1/2 of a count, and no more."""
        count = CountSum(stddev, 100)
        total = count.zero(nx)
        for vote in (1, 1, 1, -1, 0):
            total = count.accumulate(total, tf.constant(vote))
        grid = count._sum.grid
        assert abs(int(total)) == 2 * grid.max_size
        if stddev:
            assert grid.max_size <= grid.stddev / (2 * stddev)
        else:
            assert count.noised(total, SEED) == 1

    def test_noise_is_that_of_the_mechanism(self):
        count = CountSum(1.5, 100)

        def draw(number):
            return count.noised(count.zero(nx), tf.stack([number] * 2))

        draws = many(draw, 4000)
        assert np.std(draws) == pytest.approx(1.5, rel=0.05)


def released(codec, dimension, count):
    """Noise of `count` rounds of a real codec on nothing, in standard deviations."""
    shared = codec.decode_broadcast(codec.broadcast(codec.initial_state(), SEED))
    names = ("clients", "l2_clipped", "linf_clipped", "kept")
    sums = collections.OrderedDict((name, tf.zeros([], tf.float64)) for name in names)

    @tf.function(autograph=False)
    def run(number):
        seed = tf.stack([number, 77])
        state = codec.initial_state()
        decoded = codec.decode(Received(state, codec.zero(), sums, shared, seed))
        return decoded.mean, decoded.measurements["noise_stddev"]

    for number in tf.range(count, dtype=tf.int64):
        mean, stddev = run(number)
        assert mean.shape == [dimension]
        yield mean.numpy().astype(np.float64) / stddev.numpy()


class TestReleasedNoise:
    def test_gaussian_has_the_moments_and_the_tails(self):
        """Twenty million draws; a float32 sampler has none beyond 5.7."""
        rounds = 20
        codec = gaussian.GaussianCodec(mechanisms.Gaussian(10, 2.0, 0.7), D, nx)
        beyond = collections.Counter()
        moments = []
        for noise in released(codec, D, rounds):
            size = np.abs(noise)
            beyond.update({t: int((size > t).sum()) for t in (4.0, 4.5, 5.0, 5.5)})
            moments.append([noise.mean(), (noise**2).mean(), (noise**4).mean()])
        draws = rounds * D
        first, second, fourth = np.mean(moments, 0)
        assert abs(first) < 4.5 / math.sqrt(draws)
        assert abs(second - 1) < 4.5 * math.sqrt(2 / draws)
        assert abs(fourth - 3) < 4.5 * math.sqrt(96 / draws)
        for threshold, found in beyond.items():
            expected = draws * 2 * scipy.stats.norm.sf(threshold)
            low, high = scipy.stats.poisson.interval(1 - 1e-5, expected)
            assert low <= found <= high, (threshold, found, expected)
