# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from dpfl.vectors import integers, rotation
from tests.many_draws import many

SEED = tf.constant([11, 12], tf.int64)


def normal(length, seed=0):
    values = np.random.default_rng(seed).standard_normal(length)
    return tf.constant(values, tf.float32)


def rotate(rot, vector, seed=SEED):
    return rot.rotate(vector, rot.expand(seed))


def invert(rot, vector, seed=SEED):
    return rot.invert(vector, rot.expand(seed))


def as_matrix(rot, seed=SEED):
    """Row i is the rotated i-th unit vector."""
    return np.stack([rotate(rot, row, seed) for row in tf.eye(rot.length)])


@pytest.mark.parametrize("bits", range(11))
def test_hadamard_equals_scipy(bits):
    length = 2**bits
    x = normal(length)
    expected = scipy.linalg.hadamard(length) @ x.numpy() / math.sqrt(length)
    actual = tf.function(rotation.hadamard_transform, autograph=False)(x)
    assert_allclose(actual, expected, atol=1e-5)


def test_fourier_equals_numpy():
    rot = rotation.FourierRotation(30)
    x = normal(30).numpy()
    cos, sin = rot.expand(SEED).numpy()
    expected = np.fft.fft((x[:15] + 1j * x[15:]) * (cos + 1j * sin), norm="ortho")
    assert_allclose(
        rotate(rot, tf.constant(x)),
        np.concatenate([expected.real, expected.imag]),
        atol=1e-5,
    )
    assert_allclose(cos**2 + sin**2, 1, atol=1e-6)


@pytest.mark.parametrize(("blocks", "size"), [(1, 64), (3, 1), (3, 4), (5, 512)])
def test_blocks_are_interleaved_and_transformed_one_by_one(blocks, size):
    rot = rotation.HadamardRotation(blocks * size)
    x = normal(blocks * size)
    signed = (x * rot.expand(SEED)).numpy()
    whole = scipy.linalg.hadamard(size) / math.sqrt(size)
    expected = np.concatenate([whole @ signed[b::blocks] for b in range(blocks)])
    assert_allclose(rotate(rot, x), expected, atol=1e-5)


LENGTHS = [
    *[("hadamard", 1), ("hadamard", 32), ("dft", 2), ("dft", 30), ("dft", 32)],
    *[("block_hadamard", n) for n in (1, 3, 12, 32, 3 * 32)],
    *[("overlap", n) for n in (1, 2, 3, 5, 8, 100, 127)],
]


@pytest.mark.parametrize(("name", "length"), LENGTHS)
def test_is_orthogonal(name, length):
    rot = rotation.ROTATIONS[name](length)
    matrix = as_matrix(rot)
    assert_allclose(matrix @ matrix.T, np.eye(length), atol=1e-5)
    x = normal(length)
    assert_allclose(invert(rot, x), matrix @ x.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "length"),
    [("hadamard", 2**15), ("block_hadamard", 7 * 2**12), ("dft", 30_030)],
)
def test_keeps_the_norm_and_comes_back(name, length):
    rot = rotation.ROTATIONS[name](length)
    x = normal(length)
    rotated = rotate(rot, x)
    # A norm that grew would exceed the clip; single precision transforms can, by 1e-3.
    norms = [np.linalg.norm(v.numpy().astype(np.float64)) for v in (x, rotated)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-6)
    assert_allclose(invert(rot, rotated), x, atol=1e-5)


def test_block_rotation_keeps_a_coordinate_within_its_block():
    rot = rotation.HadamardRotation(3 * 16)
    rotated = rotate(rot, tf.one_hot(4, 48)).numpy()
    assert_allclose(np.abs(rotated), np.repeat([0, 0.25, 0], 16), atol=1e-6)


@pytest.mark.parametrize("name", rotation.ROTATIONS)
def test_coordinates_are_centred_and_equal_in_size_over_seeds(name):
    """Mean 0 and variance 1/16 in each coordinate, whatever the vector."""
    rot = rotation.ROTATIONS[name](16)
    x = tf.constant([3.0, 4.0] + [0.0] * 13 + [12.0]) / 13
    draws = many(lambda number: rotate(rot, x, tf.stack([number] * 2)), 10_000)
    assert_allclose(draws.mean(0), 0, atol=5 / 4 / math.sqrt(10_000))
    assert_allclose(draws.var(0), 1 / 16, rtol=0.05)
    assert draws.var() == pytest.approx(1 / 16, rel=0.01)


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


def test_overlap_spreads_the_mass_of_one_coordinate():
    turn = rotation.OverlapRotation(100)
    vectors = tf.unstack(tf.one_hot([0, 50, 99], 100))

    def rotated(number):
        shared = turn.expand(SEED + number)
        return tf.stack([turn.rotate(x, shared) for x in vectors])

    sizes = np.square(many(rotated, 400)).mean(0)
    assert sizes.max() < 1.35 / turn.flat_length
