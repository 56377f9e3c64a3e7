# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dpfl.arrays import in_tensorflow
from dpfl.vectors import clipping

MAX = np.finfo(np.float32).max
TINY = np.finfo(np.float32).tiny


def norm64(vector):
    """The norm without overflow or underflow, in long double."""
    return np.sqrt(np.sum(np.asarray(vector, np.longdouble) ** 2))


def clipped(vector, clip_norm):
    normed = clipping.safe_norm(tf.constant(vector, tf.float32))
    factor, is_clipped = clipping.clip_factor(normed, clip_norm)
    factor = tf.cast(factor, tf.float32)
    return (normed.direction * factor).numpy(), bool(is_clipped)


@hypothesis.settings(derandomize=True, max_examples=60, deadline=None)
@hypothesis.given(
    exponent=st.floats(-37, 38),
    spread=st.floats(0, 30),
    length=st.integers(1, 300),
    clip_exponent=st.floats(-6, 6),
    seed=st.integers(0, 1000),
)
def test_norm_and_clip_hold_over_the_range_of_float32(
    exponent, spread, length, clip_exponent, seed
):
    rng = np.random.default_rng(seed)
    powers = exponent - spread * rng.random(length)
    vector = np.clip(rng.choice([-1, 1], length) * 10**powers, -MAX, MAX)
    vector = vector.astype(np.float32)
    # Numbers below the smallest normal one are zero to TensorFlow.
    vector[np.abs(vector) < TINY] = 0
    clip_norm = float(np.float32(10**clip_exponent))
    exact = norm64(vector)
    normed = clipping.safe_norm(tf.constant(vector))
    assert normed.is_finite.numpy()
    assert float(normed.norm) == pytest.approx(float(exact), rel=1e-5, abs=1e-37)

    result, is_clipped = clipped(vector, clip_norm)
    assert is_clipped == (float(normed.norm) > clip_norm)
    assert norm64(result) <= clip_norm * (1 + 1e-5)
    if is_clipped:
        assert norm64(result) == pytest.approx(clip_norm, rel=1e-5)
    else:
        assert_allclose(result, vector, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize(
    ("bad", "other", "place"), [(np.nan, 0.0, 57), (np.inf, 1.0, 99), (-np.inf, MAX, 0)]
)
def test_non_finite_vectors_become_zero(bad, other, place):
    vector = np.full(100, other, np.float32)
    vector[place] = bad
    normed = clipping.safe_norm(tf.constant(vector))
    assert not normed.is_finite.numpy()
    assert_array_equal(normed.direction, np.zeros(100))
    assert float(normed.norm) == 0
    result, is_clipped = clipped(vector, 1.0)
    assert_array_equal(result, np.zeros(100))
    assert not is_clipped


def test_an_empty_vector_has_norm_zero():
    normed = clipping.safe_norm(tf.zeros([0]))
    assert float(normed.norm) == 0
    assert normed.is_finite.numpy()


def test_numbers_keep_the_bits_of_seeded_rounds():
    """A clip is float32 as adaptive ones are; other numbers are exact float64."""
    for value in (0.7, 0.1, 2.0**24 + 1):
        converted = in_tensorflow.asarray(value, np.float64)
        assert converted.dtype == tf.float64 and converted.numpy() == value
    normed = clipping.safe_norm(tf.constant([3.0, 4.0]))
    factor, _ = clipping.clip_factor(normed, 0.7)
    assert factor.numpy() == float(np.float32(0.7)) / 5
