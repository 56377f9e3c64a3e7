# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A dense Gaussian projection, and the recovery of sparse vectors from it.

    sketch = GaussianSketch(dimension, length)
    matrix = sketch.expand(seed)
    sent = sketch.encode(vector, matrix)

`GaussianSketch.decode` finds a sparse vector from the sum of what was sent.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfl import arrays
from dpfl.arrays import Array
from dpfl.vectors import integer_noise, randomness

# Least number of entries that are drawn at once, in whole rows.
_DRAWN_AT_ONCE = 1 << 20


class GaussianSketch:
    """A sketch S of independent entries N(0, 1/m): m d numbers, for small d.

    E[S^T S g] = g and E ||S^T S g - g||^2 = (d + 1)/m ||g||^2. (Chen et al. 2022,
    Algorithm 3, has entries N(0, 1); dividing by sqrt(m) scales its clip alike.)
    """

    def __init__(self, dimension: int, length: int):
        """Makes the sketch of d numbers as m."""
        self.dimension = self.input_length = dimension
        self.length = length

    def expand(self, seed: Array) -> Array:
        """The matrix S, float32[m, d], the same in each library.

        See `integer_noise.standard_normal` for the entries.
        """
        nx, scale = arrays.of(seed), np.float32(1 / math.sqrt(self.length))
        rows = min(self.length, math.ceil(_DRAWN_AT_ONCE / self.dimension))
        count, entries = math.ceil(self.length / rows), rows * self.dimension

        def some_rows(index: Any) -> Array:
            own = randomness.fold_in(seed, index)
            return scale * integer_noise.standard_normal(own, entries)

        drawn = nx.map_rows(some_rows, nx.arange(count), entries)
        return nx.reshape(drawn, [-1, self.dimension])[: self.length]

    def encode(self, vector: Array, expanded: Array) -> Array:
        """The sketch S g, float32[m]."""
        return _times(expanded, vector)

    def decode(self, sketch: Array, expanded: Array) -> Array:
        """The decoded S^T y, float32[d]."""
        return _times(expanded, sketch, transpose=True)


def _times(matrix: Array, vector: Array, transpose: bool = False) -> Array:
    """The product of a matrix, or its transpose, and a vector."""
    nx, column = arrays.of(matrix), vector[:, np.newaxis]
    return nx.reshape(nx.matmul(matrix, column, transpose_a=transpose), [-1])


def largest_singular_value(matrix: Array) -> Array:
    """The largest singular value of a float32[m, d], by the smaller Gram matrix."""
    nx, is_wide = arrays.of(matrix), matrix.shape[0] <= matrix.shape[1]
    gram = nx.matmul(matrix, matrix, transpose_a=not is_wide, transpose_b=is_wide)
    # TensorFlow's float32 eigenvalues are off by 1e-5.
    largest = nx.max(nx.eigvalsh(nx.asarray(gram, np.float64)))
    return nx.asarray(nx.sqrt(largest), np.float32)


def lasso(
    matrix: Array, target: Array, penalty: Array, largest: Array, steps: int
) -> Array:
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
    nx = arrays.of(matrix)
    step = 1 / nx.square(largest)

    def body(_: Any, x: Array, ahead: Array, momentum: Array) -> tuple[Array, ...]:
        gradient = _times(matrix, _times(matrix, ahead) - target, transpose=True)
        moved = ahead - step * gradient
        new = nx.sign(moved) * nx.maximum(nx.abs(moved) - step * penalty, 0)
        following = (1 + nx.sqrt(1 + 4 * nx.square(momentum))) / 2
        ahead = new + (momentum - 1) / following * (new - x)
        return new, ahead, following

    start = nx.zeros([matrix.shape[1]], np.float32)
    one = nx.ones([], np.float32)
    return nx.fori_loop(0, steps, body, start, start, one)[0]
