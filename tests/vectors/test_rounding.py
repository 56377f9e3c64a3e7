# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl.arrays import in_tensorflow as nx
from dpfl.vectors import rounding
from tests.refusals import refuses

SEED = tf.constant([11, 12], tf.int64)
NO_NORM, NO_SIZE = 1e9, 1e6


def squares(values):
    """The sum of squares in Python's integers."""
    return sum(int(v) ** 2 for v in np.asarray(values))


def draws_of(x, number, **bounds):
    """int64[number, len(x)], each row rounded afresh."""
    bounds = {"max_norm": NO_NORM, "max_coordinate": NO_SIZE, **bounds}
    rounded = rounding.randomized_round(tf.tile(x, [number]), SEED, **bounds)
    return rounded.numpy().reshape(number, -1)


class TestRandomizedRound:
    def test_rounds_up_with_the_fractions_probability(self):
        x = np.float32([-7.125, -1.7, -0.25, -1e-4, 0.0, 0.03, 0.5, 3.1, 1000.9, 65536])
        number = 400_000
        rounded = draws_of(x, number)
        lower = np.floor(x.astype(np.float64))
        fraction = x - lower
        ups = (rounded - lower).sum(0)
        assert np.all((rounded == lower) | (rounded == lower + 1))
        for up, p in zip(ups, fraction):
            law = scipy.stats.binom(number, p)
            assert min(law.cdf(up), law.sf(up - 1)) > 1e-4
        variance = fraction * (1 - fraction)
        common = variance > 0.02
        assert_allclose(rounded.var(0)[common], variance[common], rtol=0.04)

    def test_rounding_probability_is_exact_to_22_bits(self, monkeypatch):
        """By all 2**23 uniforms that there are, cut where they are interesting."""
        x = np.float32(
            [-(2.0**-30), -0.3, -1 + 2.0**-24, 2.0**-30, 0.7, 12.345, -4001.1]
        )
        lower = np.floor(x.astype(np.float64))
        wanted = x - lower
        for value, low, p in zip(x, lower, wanted):
            near = np.round(p * 2**23) + np.arange(-8, 9)
            near = near[(near >= 0) & (near < 2**23)]
            uniforms = tf.constant(near * 2.0**-23, tf.float32)
            monkeypatch.setattr(nx, "float_uniform", lambda *_, u=uniforms: u)
            rounded = rounding.randomized_round(
                tf.fill([len(near)], value), SEED, NO_NORM, NO_SIZE
            ).numpy()
            ups = near[rounded == low + 1]
            chance = (ups.max() + 1) * 2.0**-23 if len(ups) else near.min() * 2.0**-23
            assert abs(chance - p) < rounding.ROUNDING_ERROR
            assert set(rounded) <= {low, low + 1}

    def test_coordinates_are_independent(self):
        up = draws_of(np.full([8], 0.3, np.float32), 50_000)
        products = np.corrcoef(up.T) - np.eye(8)
        assert np.abs(products).max() < 4.5 / math.sqrt(50_000)
        assert abs(np.corrcoef(up[1:].ravel(), up[:-1].ravel())[0, 1]) < 0.007
        again = draws_of(np.full([8], 0.3, np.float32), 50_000)
        assert_array_equal(up, again)

    @pytest.mark.parametrize("limit", [0.04, 0.7, 5.25])
    def test_coordinates_are_clipped(self, limit):
        """What is beyond has the law of the bound itself, on both sides."""
        x = np.float32([-30, 30, 1e30, -limit / 2, limit / 2])
        number = 100_000
        rounded = draws_of(x, number, max_coordinate=limit)
        assert np.abs(rounded).max() <= math.ceil(limit)
        means = np.array([-1, 1, 1, -0.5, 0.5]) * limit
        assert np.abs(rounded.mean(0) - means).max() < 4.5 * 0.5 / math.sqrt(number)

    @pytest.mark.parametrize("length", [3, 300, 70_001])
    def test_long_vectors_are_scaled_to_the_norm(self, length):
        """The vector whose chances they are, from what is rounded, by its definition."""
        x = tf.random.stateless_normal([length], [1, 2])
        for longer in (0.5, 1 - 1e-7, 1 + 1e-7, 1.001, 40.0):
            steps = x * (longer * 9.0 / np.linalg.norm(x.numpy().astype(np.float64)))
            inside = rounding._within(steps, 9.0, 1e6).numpy().astype(np.float64)
            assert np.linalg.norm(inside) <= 9.0
            shrunk = np.linalg.norm(inside) / min(longer, 1) / 9.0
            assert 1 - 3e-5 < shrunk <= 1 + 1e-7
            expected = steps.numpy() if longer == 0.5 else inside
            assert_array_equal(inside, expected)

    def test_vector_at_the_target_is_not_scaled(self):
        """What codecs scale to keeps its bits: no second pass."""
        x = tf.random.stateless_normal([300_000], [1, 2])
        target = rounding.norm_target(6.2, 300_000)
        assert 6.2 * (1 - 1e-4) < target < 6.2
        steps = x * tf.cast(
            target / np.linalg.norm(x.numpy().astype(float)), tf.float32
        )
        limit = rounding._norm_limit(6.2, 300_000)
        assert_array_equal(rounding._within(steps, limit, 1e6), steps)
        room = math.sqrt(300_000) * rounding.ROUNDING_ERROR
        assert limit + room <= 6.2

    @pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
    def test_non_finite_vectors_become_zeros(self, value):
        x = np.float32([1.5, value, -2.0])
        rounded = draws_of(x, 1, max_coordinate=1e25)
        assert_array_equal(rounded, np.zeros([1, 3]))

    def test_zeros_and_integers_stay(self):
        x = np.float32([0, 3, -4, 12])
        assert_array_equal(draws_of(x, 100), np.tile(x, [100, 1]))

    def test_refuses_a_norm_without_room(self):
        with refuses(ValueError, "max_norm", 0.0001):
            rounding.norm_target(1e-4, 1 << 22)


class TestRoundWithin:
    def test_rounds_to_nearest_if_within_the_bound(self):
        x = tf.constant([1.4, -2.6, 0.5, 1.5, -0.2])
        assert_array_equal(rounding.round_within(x, 14), [1, -3, 0, 2, 0])

    def test_the_bound_is_exact(self):
        x = tf.constant([3.0, 4.0])
        assert_array_equal(rounding.round_within(x, 25), [3, 4])
        shrunk = rounding.round_within(x, 24)
        assert 0 < squares(shrunk) <= 24

    def test_exact_where_float64_begins_to_round(self):
        x = tf.constant([2.0**26, 1.0])
        assert_array_equal(rounding.round_within(x, 2**52), [2**26 - 1, 0])
        assert_array_equal(rounding.round_within(x[:1], 2**52), [2**26])

    @pytest.mark.parametrize("seed", range(8))
    def test_any_input_stays_within_the_bound(self, seed):
        rng = np.random.default_rng(seed)
        length = int(rng.integers(1, 3000))
        x = rng.standard_normal(length) * 10.0 ** rng.uniform(-2, 12)
        x = np.where(rng.random(length) < 0.3, np.round(x) + 0.5, x).astype(np.float32)
        bound = int(10.0 ** rng.uniform(0, 15.6))
        rounded = rounding.round_within(tf.constant(x), bound).numpy()
        assert rounded.dtype == np.int32 and squares(rounded) <= bound
        if float(np.sum(x.astype(np.float64) ** 2)) > 100 * length * bound**0.5 + 9e9:
            assert squares(rounded) > bound / 2 or bound < 4 * length

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_nan_gives_zeros(self, bad):
        x = tf.constant([1.0, bad, 2.0])
        assert_array_equal(rounding.round_within(x, 100), [0, 0, 0])

    def test_largest_floats_are_scaled_down(self):
        x = tf.constant([3e38, -3e38])
        assert_array_equal(rounding.round_within(x, 201), [10, -10])

    def test_vector_clipped_to_the_target_is_not_scaled(self):
        length, bound = 200_000, 2**30
        target = rounding.clip_target(bound, length)
        assert 0.999 < target / math.sqrt(bound) < 1
        for seed in range(5):
            x = np.random.default_rng(seed).standard_normal(length)
            x = (x / np.linalg.norm(x) * target).astype(np.float32)
            rounded = rounding.round_within(x, bound)
            assert_array_equal(rounded, np.round(x))


class TestSquaredNormAbove:
    def test_bound_beyond_float32_precision_is_met_exactly(self):
        """4097^2 takes 25 bits: float32 rounds it, and float64 finds it within."""
        x = tf.fill([300], 4097.0)
        rounded = rounding.round_within(x, 300 * 4097**2)
        assert_array_equal(rounded, x)
        shorter = rounding.round_within(x, 300 * 4097**2 - 1)
        assert squares(shorter) < 300 * 4097**2


class TestRoundingFactor:
    @pytest.mark.parametrize("seed", range(10))
    def test_worst_case_integers_are_within_the_bound(self, seed):
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
    def test_zero_and_non_finite_vectors_have_factor_zero(self, bad):
        x = tf.constant([0.0, bad])
        factor = rounding.rounding_factor(x, 100)
        assert float(factor) == 0
        assert_array_equal(tf.math.multiply_no_nan(x, factor), [0, 0])

    def test_refuses_a_bound_without_room(self):
        with refuses(ValueError, "max_squared_norm", 25):
            rounding.rounding_factor(tf.ones([100]), 25)
