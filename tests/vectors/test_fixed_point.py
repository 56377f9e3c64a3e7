# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
import tensorflow as tf

from dpfl.vectors import rounding


def squares(values):
    """The sum of squares in Python's integers."""
    return sum(int(v) ** 2 for v in np.asarray(values))


class TestRoundWithin:
    def test_nearest_where_that_fits(self):
        x = tf.constant([1.4, -2.6, 0.5, 1.5, -0.2])
        np.testing.assert_array_equal(rounding.round_within(x, 14), [1, -3, 0, 2, 0])

    def test_the_bound_is_exact(self):
        x = tf.constant([3.0, 4.0])
        np.testing.assert_array_equal(rounding.round_within(x, 25), [3, 4])
        shrunk = rounding.round_within(x, 24)
        assert 0 < squares(shrunk) <= 24

    def test_exact_where_float64_begins_to_round(self):
        x = tf.constant([2.0**26, 1.0])
        np.testing.assert_array_equal(rounding.round_within(x, 2**52), [2**26 - 1, 0])
        np.testing.assert_array_equal(rounding.round_within(x[:1], 2**52), [2**26])

    @pytest.mark.parametrize("seed", range(20))
    def test_whatever_comes_stays_within(self, seed):
        rng = np.random.default_rng(seed)
        length = int(rng.integers(1, 3000))
        x = rng.standard_normal(length) * 10.0 ** rng.uniform(-2, 12)
        x = np.where(rng.random(length) < 0.3, np.round(x) + 0.5, x).astype(np.float32)
        bound = int(10.0 ** rng.uniform(0, 15.6))
        rounded = rounding.round_within(x, bound).numpy()
        assert rounded.dtype == np.int32 and squares(rounded) <= bound
        if float(np.sum(x.astype(np.float64) ** 2)) > 100 * length * bound**0.5 + 9e9:
            assert squares(rounded) > bound / 2 or bound < 4 * length

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_what_is_no_number_gives_zeros(self, bad):
        x = tf.constant([1.0, bad, 2.0])
        np.testing.assert_array_equal(rounding.round_within(x, 100), [0, 0, 0])

    def test_the_largest_numbers_are_shrunk(self):
        x = tf.constant([3e38, -3e38])
        np.testing.assert_array_equal(rounding.round_within(x, 201), [10, -10])

    def test_coordinates_are_bounded(self):
        x = tf.constant([9.0, -9.0, 2.4])
        np.testing.assert_array_equal(rounding.round_within(x, 10**6, 7), [7, -7, 2])

    def test_a_vector_clipped_to_the_target_is_not_shrunk(self):
        length, bound = 200_000, 2**30
        target = rounding.clip_target(bound, length)
        assert 0.999 < target / math.sqrt(bound) < 1
        for seed in range(5):
            x = np.random.default_rng(seed).standard_normal(length)
            x = (x / np.linalg.norm(x) * target).astype(np.float32)
            rounded = rounding.round_within(x, bound)
            np.testing.assert_array_equal(rounded, np.round(x))

    def test_in_a_graph(self):
        x = tf.constant([1.4, -2.6])
        rounded = tf.function(lambda v: rounding.round_within(v, 4), autograph=False)(x)
        assert rounded.shape == [2] and squares(rounded) <= 4


class TestSquaredNormAbove:
    @pytest.mark.parametrize("length", [1, 255, 256, 257, 5000])
    @pytest.mark.parametrize("scale", [1, 4097, 2**22 - 1])
    def test_it_is_above_and_not_by_much(self, length, scale):
        rng = np.random.default_rng(length + scale)
        x = np.round(rng.standard_normal(length) * scale)
        exact = sum(int(v) ** 2 for v in x)
        above = float(rounding.squared_norm_above(tf.constant(x, tf.float32)))
        assert exact <= above <= exact * (1 + 4e-5)

    def test_a_bound_that_float32_does_not_settle_is_met_exactly(self):
        """4097^2 takes 25 bits: float32 rounds it, and float64 finds it within."""
        x = tf.fill([300], 4097.0)
        rounded = rounding.round_within(x, 300 * 4097**2)
        np.testing.assert_array_equal(rounded, x)
        shorter = rounding.round_within(x, 300 * 4097**2 - 1)
        assert squares(shorter) < 300 * 4097**2


class TestRoundingFactor:
    @pytest.mark.parametrize("seed", range(10))
    def test_all_integers_are_within_though_none_is_looked_at(self, seed):
        rng = np.random.default_rng(seed)
        length = int(rng.integers(1, 3000))
        x = rng.standard_normal(length).astype(np.float32) * 10.0 ** rng.uniform(-6, 6)
        bound = int(length * 10.0 ** rng.uniform(-0.5, 8)) + 1
        factor = rounding.rounding_factor(tf.constant(x, tf.float32), bound)
        rounded = np.round(x.astype(np.float32) * factor.numpy())
        assert squares(rounded) <= bound
        room = 1 - math.sqrt(length / bound) - 1e-5
        assert np.linalg.norm(x * factor.numpy()) >= room * math.sqrt(bound)

    def test_the_worst_vector(self):
        """All coordinates at one half and a little: each is lengthened the most."""
        length, bound = 10_000, 10_000
        factor = rounding.rounding_factor(tf.ones([length]), bound)
        assert float(factor) == pytest.approx(0.5, rel=1e-5)
        assert squares(np.round(np.full(length, 1.00001) * float(factor))) <= bound

    @pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
    def test_nothing_of_what_is_no_vector(self, bad):
        x = tf.constant([0.0, bad])
        factor = rounding.rounding_factor(x, 100)
        assert float(factor) == 0
        np.testing.assert_array_equal(tf.math.multiply_no_nan(x, factor), [0, 0])

    def test_no_room(self):
        with pytest.raises(
            ValueError, match="max_squared_norm must be greater than 25"
        ):
            rounding.rounding_factor(tf.ones([100]), 25)
