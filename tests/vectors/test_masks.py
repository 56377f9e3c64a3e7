# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_array_equal

from dpfl.vectors import masks
from tests.many_draws import many
from tests.refusals import refuses


def seed(number):
    return tf.constant([number, 77], tf.int64)


def test_every_pattern_has_its_probability():
    """All 32 masks of length 5: so coordinates are independent, pairwise and jointly."""
    gamma, count = 0.4, 12_000
    mask = masks.BernoulliMask(5, gamma)

    def code(number):
        indices, _ = mask.indices(tf.stack([number, 5]))
        return tf.reduce_sum(tf.bitwise.left_shift(1, indices))

    observed = np.bincount(many(code, count), minlength=32)
    sizes = np.array([bin(code).count("1") for code in range(32)])
    expected = count * gamma**sizes * (1 - gamma) ** (5 - sizes)
    assert scipy.stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("keep_fraction", [1e-4, 0.01, 0.5])
def test_distances_are_geometric(keep_fraction):
    length = int(40_000 / keep_fraction)
    indices = masks.BernoulliMask(length, keep_fraction).indices(seed(3))[0].numpy()
    gaps = np.diff(np.concatenate([[-1], indices]))
    exact = scipy.stats.geom(keep_fraction)
    edges = np.unique(exact.ppf(np.linspace(0, 1, 21)[1:-1]))
    cdf = np.concatenate([[0], exact.cdf(edges), [1]])
    bins = np.searchsorted(edges, gaps, side="left")
    observed = np.bincount(bins, minlength=len(edges) + 1)
    assert scipy.stats.chisquare(observed, len(gaps) * np.diff(cdf)).pvalue > 1e-3
    neighbours = np.corrcoef(gaps[1:], gaps[:-1])[0, 1]
    assert abs(neighbours) < 5 / math.sqrt(len(gaps))


@pytest.mark.parametrize("length", [1, 40, 2**20, 2**31 - 1])
@pytest.mark.parametrize("keep_fraction", [1e-9, 1e-3, 0.1, 0.9, 1 - 1e-6])
def test_block_of_distances_falls_short_below_1e_30(length, keep_fraction):
    mask = masks.BernoulliMask(length, keep_fraction)
    exact = scipy.stats.binom.logsf(mask.block, length, keep_fraction)
    assert exact <= math.log(1e-30)


def test_a_block_that_falls_short_drops_the_last_coordinates():
    whole, short = (masks.BernoulliMask(1000, 0.5) for _ in range(2))
    short.block = 100
    indices, number = short.indices(seed(2))
    assert number == 100
    assert_array_equal(indices, whole.indices(seed(2))[0][:100])


def test_distances_at_a_tiny_fraction_do_not_repeat():
    """Two are equal with chance 5e-9; with float32's steps of 2**-23 with 1e-7."""
    mask = masks.BernoulliMask(2**31 - 1, 1e-8)
    mask.block = 50_000
    gaps = np.diff(mask.positions(seed(3)))
    # 6 repetitions are to be expected, 150 with float32.
    assert len(gaps) - len(np.unique(gaps)) < 30
    assert gaps.mean() == pytest.approx(1e8, rel=4 / math.sqrt(len(gaps)))


@pytest.mark.parametrize("keep_fraction", [1e-300, 1e-17])
def test_keeps_nothing_at_vanishing_fractions(keep_fraction):
    indices, number = masks.BernoulliMask(1000, keep_fraction).indices(seed(0))
    assert len(indices) == number == 0


def test_keeps_almost_everything_just_below_one():
    kept, _ = masks.BernoulliMask(1000, 1 - 1e-15).indices(seed(0))
    assert_array_equal(kept, np.arange(1000))


@pytest.mark.parametrize("keep_fraction", [0.2, 1.0])
def test_scatter_undoes_gather(keep_fraction):
    mask = masks.build_mask(500, keep_fraction)
    vector = tf.range(1.0, 501.0)
    values, number = mask.gather(vector, seed(4))
    total, matches = mask.scatter_add(tf.ones([500]), values, seed(4))
    is_kept = np.zeros(500)
    is_kept[mask.indices(seed(4))[0] if keep_fraction < 1 else slice(None)] = 1
    assert_array_equal(total, 1 + is_kept * vector)
    assert matches.numpy()
    assert len(values) == number == is_kept.sum()


@pytest.mark.parametrize("keep_fraction", [0.2, 1.0])
@pytest.mark.parametrize(
    "change", [lambda v: v[:-1], lambda v: v[:0], lambda v: tf.tile(v, [2])]
)
def test_wrong_value_counts_add_nothing(keep_fraction, change):
    mask = masks.build_mask(500, keep_fraction)
    values = change(mask.gather(tf.ones([500]), seed(4))[0])
    floats = [tf.TensorSpec([500]), tf.TensorSpec([None])]
    signature = [*floats, tf.TensorSpec([2], tf.int64)]
    add = tf.function(mask.scatter_add, input_signature=signature)
    total, matches = add(tf.zeros([500]), values, seed(4))
    assert not matches.numpy()
    assert_array_equal(total, np.zeros(500))


@pytest.mark.parametrize("keep_fraction", [0.0, -0.1, 1.1, math.nan])
def test_refuses_bad_fractions(keep_fraction):
    with refuses(ValueError, "keep_fraction", keep_fraction):
        masks.build_mask(10, keep_fraction)


def test_refuses_lengths_beyond_int32():
    with refuses(ValueError, "length", 2147483648):
        masks.BernoulliMask(2**31, 0.1)
