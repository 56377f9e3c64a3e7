# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import linear_model

from dpfl import mechanisms
from dpfl.arrays import in_tensorflow
from dpfl.codecs.sketch import make_sketch
from dpfl.vectors import count_sketch, gaussian_sketch
from experiments.papers.hash_sketch import HashSketch
from experiments.papers.secure_sums import HashedDdg
from tests.many_draws import many

D, DRAWS = 90, 1500
# Both have m = 24; the shifts have 4 blocks, the last one only partly filled.
MAKE = {
    "hashes": lambda: HashSketch(D, 3, 8),
    "shifts": lambda: count_sketch.ShiftSketch(D, 4, 6),
}
VECTORS = {
    "ones": np.ones(D),
    "one-hot": np.eye(D)[7],
    "sparse": np.eye(D)[3] - 2 * np.eye(D)[40] + np.eye(D)[41] + 3 * np.eye(D)[89],
    "dense": np.random.default_rng(0).standard_normal(D),
}
KINDS = pytest.mark.parametrize("kind", sorted(MAKE))


def padded(sketch, vector):
    vector = tf.constant(vector, tf.float32)
    return tf.pad(vector, [[0, sketch.input_length - sketch.dimension]])


def over_seeds(sketch, function, count=DRAWS):
    """function(expanded) for many seeds, as one float64 array."""
    found = many(lambda n: function(sketch.expand(tf.stack([n, 5]))), count)
    return found.astype(np.float64)


def round_trips(sketch, vector):
    g = padded(sketch, vector)
    return over_seeds(sketch, lambda e: sketch.decode(sketch.encode(g, e), e))


def block_of(sketch):
    """Column block of each coordinate of a ShiftSketch."""
    return np.arange(D) % (sketch.blocks * sketch.width) // sketch.width


def expected_error(sketch, g):
    """E ||S^T S g - g||^2, from the pairs that may collide."""
    if isinstance(sketch, HashSketch):
        others = np.full(D, D - 1)
    else:
        blocks = block_of(sketch)
        others = np.array([np.sum(blocks != b) for b in blocks])
    return np.sum(others * np.square(g)) / sketch.length


@KINDS
@pytest.mark.parametrize("name", sorted(VECTORS))
def test_round_trip_is_unbiased_and_errs_by_the_formula(kind, name):
    sketch, g = MAKE[kind](), VECTORS[name]
    errors = round_trips(sketch, g) - g
    squared = np.sum(np.square(errors), 1)
    expected = expected_error(sketch, g)
    # A few coordinates alone collide rarely: their error has the larger spread.
    spread = 4.5 * squared.std() / np.sqrt(DRAWS)
    assert abs(squared.mean() - expected) < min(spread, 0.15 * expected)
    if name in ("ones", "dense"):
        assert squared.mean() == pytest.approx(expected, rel=0.04)
    assert expected <= D / sketch.length * np.sum(g**2)
    deviation = np.sqrt(np.square(errors).mean(0).max() / DRAWS)
    assert np.abs(errors.mean(0)).max() < 4.5 * deviation


@KINDS
def test_collision_rate_is_at_most_a_count_sketchs(kind):
    """(S^T S)_jk: variance 1/m at the most, for every j."""
    sketch, k = MAKE[kind](), 17
    entries = round_trips(sketch, np.eye(D)[k])
    assert_allclose(entries[:, k], 1, rtol=1e-5)
    variance = np.square(np.delete(entries, k, 1)).mean(0)
    if kind == "shifts":
        apart = np.delete(block_of(sketch) != block_of(sketch)[k], k)
        assert np.abs(variance[~apart]).max() < 1e-10
        variance = variance[apart]
    assert variance.mean() == pytest.approx(1 / sketch.length, rel=0.04)
    assert variance.max() < 1.5 / sketch.length
    last = entries[:, -20:]
    moments = last.T @ last * sketch.length / DRAWS
    np.fill_diagonal(moments, 0)
    assert np.abs(moments).max() < 7 / np.sqrt(DRAWS)


@KINDS
def test_each_coordinate_is_in_every_row_once(kind):
    sketch = MAKE[kind]()
    expanded = sketch.expand(tf.constant([1, 2], tf.int64))
    for j in (0, 50, D - 1):
        table = sketch.encode(padded(sketch, np.eye(D)[j]), expanded).numpy()
        table = table.reshape(sketch.rows, sketch.width)
        assert np.all(np.count_nonzero(table, axis=1) == 1)
        assert_allclose(np.abs(table).sum(1), sketch.rows**-0.5, rtol=1e-6)


@KINDS
def test_linear_and_decoding_is_the_transpose(kind):
    sketch = MAKE[kind]()
    expanded = sketch.expand(tf.constant([3, 4], tf.int64))
    g, h = padded(sketch, VECTORS["dense"]), padded(sketch, VECTORS["sparse"])
    y = tf.random.stateless_normal([sketch.length], [5, 6])
    separately = 2 * sketch.encode(g, expanded) - sketch.encode(h, expanded)
    assert_allclose(sketch.encode(2 * g - h, expanded), separately, atol=1e-5)
    left = tf.tensordot(sketch.encode(g, expanded), y, 1)
    right = tf.tensordot(g[:D], sketch.decode(y, expanded), 1)
    assert float(left) == pytest.approx(float(right), rel=1e-4)


def test_without_compression_shifts_lose_nothing():
    sketch = count_sketch.ShiftSketch(D, 16, 6)
    g = padded(sketch, VECTORS["dense"])
    expanded = sketch.expand(tf.constant([3, 4], tf.int64))
    decoded = sketch.decode(sketch.encode(g, expanded), expanded)
    assert_allclose(decoded, VECTORS["dense"], atol=1e-5)


@pytest.mark.parametrize("width", [8, 10])
def test_index_and_sign_are_independent(width):
    """Published code draws both from one seed; the sign then follows the bucket."""
    sketch = HashSketch(20_000, 1, width)
    codes = sketch.expand(tf.constant([3, 4], tf.int64))["buckets"].numpy()[0]
    counts = np.bincount(codes, minlength=2 * width)
    expected = 10_000 / width
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@KINDS
def test_draws_have_distinct_seeds(kind, monkeypatch):
    """What one seed would make of bucket and sign depends on how bits become them.

    With Philox, buckets by remainder and signs by the highest bit, no statistic would
    tell: so the seeds themselves are looked at.
    """
    seeds, draw = [], in_tensorflow.drawn

    def record(operation, shape, seed, **kwargs):
        if list(shape) != [2]:  # Those make seeds of seeds.
            seeds.append(tuple(np.asarray(seed)))
        return draw(operation, shape, seed, **kwargs)

    monkeypatch.setattr(in_tensorflow, "drawn", record)
    sketch = MAKE[kind]()
    sketch.expand(tf.constant([3, 4], tf.int64))
    assert len(seeds) == (2 * sketch.rows if kind == "hashes" else 3)
    assert len(set(seeds)) == len(seeds)


def test_groups_are_sketched_apart():
    parts = [count_sketch.ShiftSketch(40, 4, 5), MAKE["shifts"]()]
    grouped = count_sketch.GroupedSketch(parts)
    assert (grouped.dimension, grouped.length) == (130, parts[0].length + 24)
    expanded = grouped.expand(tf.constant([3, 4], tf.int64))
    g = tf.random.stateless_normal([130], [1, 1])
    y = grouped.encode(g, expanded)
    only_second = grouped.encode(tf.concat([tf.zeros(40), g[40:]], 0), expanded)
    assert np.all(only_second[: parts[0].length] == 0)
    assert_array_equal(only_second[parts[0].length :], y[parts[0].length :])
    back = parts[1].decode(y[parts[0].length :], expanded["part_1"])
    assert_allclose(grouped.decode(y, expanded)[40:], back)


@KINDS
@pytest.mark.parametrize("rate", [1.0, 3.3, 5.5])
def test_configurations_know_the_sizes_and_the_error(kind, rate):
    of_kind = mechanisms.SketchedDdg if kind == "shifts" else HashedDdg
    shape = of_kind(5, 1.0, 1.0, 16, compression_rate=rate).shape(D)
    if kind == "shifts":
        sketch = make_sketch(shape)
    else:
        sketch = HashSketch(D, shape.rows, *shape.widths)
    width = math.ceil(D / (rate * sketch.rows))
    assert (shape.rows, shape.widths) == (sketch.rows, [width])
    assert shape.length == sketch.length == sketch.rows * width
    ones = VECTORS["ones"]
    assert shape.error == pytest.approx(expected_error(sketch, ones) / D)


def test_unbiased_with_the_error_of_the_formula():
    d, m, draws = 30, 12, 2000
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
    lasso = tf.function(gaussian_sketch.lasso, autograph=False)
    found = lasso(matrix, y, tf.constant(penalty), largest, 2000)
    found = found.numpy()
    solver = linear_model.Lasso(
        alpha=penalty / m, fit_intercept=False, tol=1e-10, max_iter=100_000
    )
    expected = solver.fit(matrix.numpy().astype(np.float64), y.numpy()).coef_
    assert_allclose(found, expected, atol=2e-4)
    assert set(np.argsort(-np.abs(found))[:3]) == {3, 50, 180}
