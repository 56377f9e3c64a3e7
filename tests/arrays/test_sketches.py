# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sketches in each library against numpy; those of counts are in `cases`."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from dpfl import arrays
from dpfl.arrays import in_numpy
from dpfl.vectors import gaussian_sketch
from tests.arrays import libraries


def seed_in(nx):
    return nx.asarray(np.array([5, -7]), np.int64)


def test_gaussian_sketches_have_one_matrix(nx, monkeypatch):
    """Drawn in several blocks of rows, of which the last one is cut."""
    monkeypatch.setattr(gaussian_sketch, "_DRAWN_AT_ONCE", 150)
    sketch = gaussian_sketch.GaussianSketch(50, 10)
    expected = sketch.expand(seed_in(in_numpy))
    found = libraries.traced(nx, sketch.expand)(seed_in(nx))
    assert found.shape == (10, 50)
    assert_array_equal(found, expected)
    assert len(np.unique(expected)) > 490


def test_singular_value_and_lasso(nx):
    matrix = gaussian_sketch.GaussianSketch(80, 30).expand(seed_in(in_numpy))
    target = matrix[:, 3] - 2 * matrix[:, 50]

    def solved(matrix, target):
        largest = gaussian_sketch.largest_singular_value(matrix)
        penalty = arrays.of(matrix).asarray(0.05, np.float32)
        return largest, gaussian_sketch.lasso(matrix, target, penalty, largest, 200)

    given = (nx.asarray(part, np.float32) for part in (matrix, target))
    for one, other in zip(libraries.traced(nx, solved)(*given), solved(matrix, target)):
        assert one.dtype == other.dtype == np.float32
        assert_allclose(one, other, rtol=1e-5, atol=1e-5)
