# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0


import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl.vectors import integers

SEED = tf.constant([11, 12], tf.int64)


@pytest.mark.parametrize("bits", [2, 8, 16, 30])
def test_residues_and_back(bits):
    half = 1 << (bits - 1)
    values = np.array([-half, -1, 0, 1, half - 1], np.int32)
    residues = integers.wrap(tf.constant(values), bits).numpy()
    assert residues.min() >= 0 and residues.max() < 1 << bits
    assert_array_equal(integers.center(tf.constant(residues), bits), values)
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
        assert_allclose(matrix @ matrix.T, np.eye(length), atol=1e-5)
        x = tf.random.stateless_normal([length], [1, 2])
        back = rotation.invert(rotation.rotate(x, expanded), expanded)
        assert_allclose(back, x, atol=1e-5)

    @pytest.mark.parametrize("hot", [0, 50, 99])
    def test_spreads(self, hot):
        rotation = integers.OverlapRotation(100)
        x = tf.one_hot(hot, 100)
        rotated = [rotation.rotate(x, rotation.expand(SEED + i)) for i in range(400)]
        assert np.square(rotated).mean(0).max() < 1.35 / rotation.flat_length

    def test_refuses(self):
        with pytest.raises(ValueError, match="length must be .* found 0"):
            integers.OverlapRotation(0)
