# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


import numpy as np
import pytest
import tensorflow as tf

from dpfl.vectors import integers

SEED = tf.constant([11, 12], tf.int64)


class TestConditionalRound:
    def test_unbiased_with_the_variance_of_the_fraction(self):
        x = tf.tile([-1.7, -0.25, 0.0, 0.5, 3.1], [40_000])
        rounded = integers.conditional_round(x, SEED, 10**9, 100).numpy()
        rounded = rounded.reshape(-1, 5)
        fraction = np.array([0.3, 0.75, 0, 0.5, 0.1])
        deviation = np.sqrt(fraction * (1 - fraction) / 40_000)
        off = np.abs(rounded.mean(0) - [-1.7, -0.25, 0.0, 0.5, 3.1])
        assert np.all(off <= 4.5 * deviation + 1e-6)
        np.testing.assert_allclose(
            rounded.var(0), fraction * (1 - fraction), rtol=0.04, atol=1e-12
        )
        assert np.abs(rounded - np.array([-1.7, -0.25, 0.0, 0.5, 3.1])).max() < 1

    def test_the_norm_is_bounded(self):
        """A bound that one in three trials meets is met by every result."""
        x = tf.fill([40], 0.5)
        norms = [
            np.sum(np.square(integers.conditional_round(x, [3, i], 19, 5)))
            for i in range(30)
        ]
        assert max(norms) <= 19 and len(set(norms)) > 3

    def test_what_no_trial_meets_is_truncated_or_dropped(self):
        x = tf.constant([3.9, -3.9, 0.9])
        truncated = integers.conditional_round(x + [0.0, 0, 0.1], SEED, 19, 5)
        assert np.sum(np.square(truncated)) <= 19
        np.testing.assert_array_equal(
            integers.conditional_round(x, SEED, 18, 5), [3, -3, 0]
        )
        np.testing.assert_array_equal(
            integers.conditional_round(x, SEED, 17, 5), [0, 0, 0]
        )

    def test_coordinates_are_bounded(self):
        x = tf.constant([1e8, -1e8, 2.0])
        rounded = integers.conditional_round(x, SEED, 10**9, 7)
        np.testing.assert_array_equal(rounded, [7, -7, 2])


@pytest.mark.parametrize("bits", [2, 8, 16, 30])
def test_residues_and_back(bits):
    half = 1 << (bits - 1)
    values = np.array([-half, -1, 0, 1, half - 1], np.int32)
    residues = integers.wrap(tf.constant(values), bits).numpy()
    assert residues.min() >= 0 and residues.max() < 1 << bits
    np.testing.assert_array_equal(integers.center(tf.constant(residues), bits), values)
    # A sum that overflowed int32 is the same residue.
    many = np.add.reduce(np.full(3000, (1 << bits) - 1, np.int64))
    overflowed = tf.constant([many], tf.int64)
    assert integers.center(tf.cast(overflowed, tf.int32), bits)[0] == (
        (-3000 + half) % (1 << bits) - half
    )


class TestOverlapRotation:
    @pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 100, 127])
    def test_orthogonal_and_inverted_by_its_transpose(self, length):
        rotation = integers.OverlapRotation(length)
        expanded = rotation.expand(SEED)
        rows = [rotation.rotate(row, expanded) for row in tf.unstack(tf.eye(length))]
        matrix = np.stack(rows)
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(length), atol=1e-5)
        x = tf.random.stateless_normal([length], [1, 2])
        back = rotation.invert(rotation.rotate(x, expanded), expanded)
        np.testing.assert_allclose(back, x, atol=1e-5)

    @pytest.mark.parametrize("hot", [0, 50, 99])
    def test_spreads(self, hot):
        rotation = integers.OverlapRotation(100)
        x = tf.one_hot(hot, 100)
        squares = np.mean(
            [
                np.square(rotation.rotate(x, rotation.expand(SEED + i)))
                for i in range(400)
            ],
            0,
        )
        assert squares.max() < 1.35 / rotation.flat_length

    def test_refuses(self):
        with pytest.raises(ValueError, match="length must be .* found 0"):
            integers.OverlapRotation(0)
