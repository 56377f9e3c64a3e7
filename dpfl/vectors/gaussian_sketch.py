# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A dense Gaussian projection, and the recovery of sparse vectors from it."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from dpfl import checks
from dpfl.vectors import randomness


class GaussianSketch:
    """A sketch S of independent entries N(0, 1/m): m d numbers, for small d.

    E[S^T S g] = g and E ||S^T S g - g||^2 = (d + 1)/m ||g||^2. (Chen et al. 2022,
    Algorithm 3, has entries N(0, 1); dividing by sqrt(m) scales its clip alike.)
    """

    def __init__(self, dimension: int, length: int):
        """Makes the sketch of d numbers as m.

        Raises:
          ValueError: If either is below 1.
        """
        for name, value in (("dimension", dimension), ("length", length)):
            checks.integer(name, value)
        self.dimension = self.input_length = dimension
        self.length = length

    def expand(self, seed: tf.Tensor) -> tf.Tensor:
        """The matrix S, float32[m, d]."""
        entries = randomness.standard_normal(seed, self.length * self.dimension)
        entries /= math.sqrt(self.length)
        return tf.reshape(entries, [self.length, self.dimension])

    def encode(self, vector: tf.Tensor, expanded: tf.Tensor) -> tf.Tensor:
        """The sketch S g, float32[m]."""
        return tf.linalg.matvec(expanded, vector)

    def decode(self, sketch: tf.Tensor, expanded: tf.Tensor) -> tf.Tensor:
        """The decoded S^T y, float32[d]."""
        return tf.linalg.matvec(expanded, sketch, transpose_a=True)


def largest_singular_value(matrix: tf.Tensor) -> tf.Tensor:
    """The largest singular value of a float32[m, d], by the smaller Gram matrix."""
    is_wide = matrix.shape[0] <= matrix.shape[1]
    gram = tf.matmul(matrix, matrix, transpose_a=not is_wide, transpose_b=is_wide)
    return tf.sqrt(tf.reduce_max(tf.linalg.eigvalsh(gram)))


def lasso(
    matrix: tf.Tensor,
    target: tf.Tensor,
    penalty: tf.Tensor,
    largest: tf.Tensor,
    steps: int,
) -> tf.Tensor:
    """Minimizes ||y - S x||^2 / 2 + penalty ||x||_1 over x, float32[d], by FISTA.

    Beck and Teboulle 2009, "A Fast Iterative Shrinkage-Thresholding Algorithm",
    algorithm with constant step 1/sigma_max^2: after k steps the objective is within
    2 sigma_max^2 ||x*||^2 / (k+1)^2 of the least. scikit-learn's `Lasso` divides the
    first term by the number of rows; its `alpha` is penalty / m.

    Args:
      matrix: S, float32[m, d].
      target: y, float32[m].
      penalty: float32 scalar, at least 0.
      largest: sigma_max(S) or a bound on it.
      steps: Number of iterations.
    """
    step = 1 / tf.square(largest)

    def body(k: Any, x: Any, ahead: Any, momentum: Any) -> tuple[Any, ...]:
        gradient = tf.linalg.matvec(
            matrix, tf.linalg.matvec(matrix, ahead) - target, transpose_a=True
        )
        moved = ahead - step * gradient
        new = tf.sign(moved) * tf.nn.relu(tf.abs(moved) - step * penalty)
        following = (1 + tf.sqrt(1 + 4 * tf.square(momentum))) / 2
        ahead = new + (momentum - 1) / following * (new - x)
        return k + 1, new, ahead, following

    start = tf.zeros([matrix.shape[1]])
    _, x, _, _ = tf.while_loop(
        lambda k, *_: k < steps, body, [tf.constant(0), start, start, tf.constant(1.0)]
    )
    return x
