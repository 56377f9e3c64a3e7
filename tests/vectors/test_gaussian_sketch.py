# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from sklearn import linear_model

from dpfl.vectors import gaussian_sketch
from tests.many_draws import many


def test_unbiased_with_the_error_of_the_formula():
    d, m, draws = 30, 12, 3000
    sketch = gaussian_sketch.GaussianSketch(d, m)
    g = tf.random.stateless_normal([d], [1, 2])

    def one(number):
        matrix = sketch.expand(tf.stack([number, 7]))
        return sketch.decode(sketch.encode(g, matrix), matrix)

    errors = many(one, draws) - g.numpy()
    squared = np.sum(np.square(errors), 1)
    expected = (d + 1) / m * np.sum(np.square(g))
    assert squared.mean() == pytest.approx(expected, rel=0.05)
    limit = 4.5 * np.sqrt(squared.mean() / d / draws)
    assert np.abs(errors.mean(0)).max() < 1.5 * limit


@pytest.mark.parametrize("shape", [(5, 20), (20, 5)])
def test_largest_singular_value(shape):
    matrix = tf.random.stateless_normal(shape, [1, 2])
    expected = np.linalg.norm(matrix.numpy(), 2)
    found = gaussian_sketch.largest_singular_value(matrix).numpy()
    assert found == pytest.approx(expected, rel=1e-5)


def test_lasso_agrees_with_scikit_learn():
    d, m, penalty = 200, 60, 0.05
    sketch = gaussian_sketch.GaussianSketch(d, m)
    matrix = sketch.expand(tf.constant([1, 2], tf.int64))
    x = np.zeros(d, np.float32)
    x[[3, 50, 180]] = [1.0, -2.0, 0.5]
    y = sketch.encode(x, matrix) + 0.02 * tf.random.stateless_normal([m], [3, 4])
    largest = gaussian_sketch.largest_singular_value(matrix)
    found = gaussian_sketch.lasso(matrix, y, tf.constant(penalty), largest, 2000)
    found = found.numpy()
    solver = linear_model.Lasso(
        alpha=penalty / m, fit_intercept=False, tol=1e-10, max_iter=100_000
    )
    expected = solver.fit(matrix.numpy().astype(np.float64), y.numpy()).coef_
    assert_allclose(found, expected, atol=2e-4)
    assert set(np.argsort(-np.abs(found))[:3]) == {3, 50, 180}


def test_refuses():
    with pytest.raises(ValueError, match="length must be .* found 0"):
        gaussian_sketch.GaussianSketch(3, 0)
