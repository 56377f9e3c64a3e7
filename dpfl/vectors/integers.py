# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Integers for secure sums: rounding, residues, and a flat rotation.

Everything a privacy bound leans on is enforced on the integers themselves, so that no
rounding error of floating point comes into it.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from dpfl import checks
from dpfl.vectors import randomness, rotation

# Trials of conditional rounding; each fails with probability beta = exp(-1/2) at most.
_MAX_TRIALS = 64


def conditional_round(
    vector: tf.Tensor, seed: tf.Tensor, max_squared_norm: int, max_size: int
) -> tf.Tensor:
    """Rounds each coordinate up or down at random, until the norm is within a bound.

    Kairouz et al. 2021 ("The Distributed Discrete Gaussian Mechanism", Algorithm 1 and
    Proposition 26); Chen et al. 2022, Algorithm 6. Without the condition the mean is
    the vector. The bounds hold for the integers returned, whatever the vector is:
    should 64 trials fail, the vector is rounded towards zero, and if that is too long
    it was longer than it may be, and zeros are returned.

    Args:
      vector: float32[m] in grid steps, of size below 2**30.
      seed: int64[2].
      max_squared_norm: Bound on the sum of squares.
      max_size: Bound on the size of a coordinate.

    Returns:
      int32[m].
    """
    lower = tf.floor(vector)
    fraction = vector - lower
    limit = tf.constant(float(max_size), tf.float32)
    length = vector.shape[0]

    def clipped(values: tf.Tensor) -> tf.Tensor:
        return tf.clip_by_value(values, -limit, limit)

    def is_within(values: tf.Tensor) -> tf.Tensor:
        total = tf.reduce_sum(tf.square(tf.cast(values, tf.float64)))
        return total <= max_squared_norm

    def attempt(trial: tf.Tensor) -> tuple[tf.Tensor, ...]:
        draws = tf.random.stateless_uniform(
            [length], randomness.fold_in(seed, trial), alg="philox"
        )
        values = clipped(lower + tf.cast(draws < fraction, tf.float32))
        return trial + 1, values, is_within(values)

    _, values, accepted = tf.while_loop(
        lambda trial, values, accepted: (~accepted) & (trial < _MAX_TRIALS),
        lambda trial, values, accepted: attempt(trial),
        attempt(tf.constant(0)),
    )

    def without_chance() -> tf.Tensor:
        truncated = clipped(tf.sign(vector) * tf.floor(tf.abs(vector)))
        return truncated * tf.cast(is_within(truncated), tf.float32)

    values = tf.cond(accepted, lambda: values, without_chance)
    return tf.cast(values, tf.int32)


def wrap(values: tf.Tensor, bits: int) -> tf.Tensor:
    """Returns residues in [0, 2**bits) of int32 that may have overflowed."""
    return tf.bitwise.bitwise_and(values, (1 << bits) - 1)


def center(values: tf.Tensor, bits: int) -> tf.Tensor:
    """Returns residues in [-2**(bits-1), 2**(bits-1)), those of least size."""
    half = 1 << (bits - 1)
    return wrap(values + half, bits) - half


class OverlapRotation:
    """A random rotation of any length that pads nothing.

    Random signs and the Hadamard transform of the leading 2**k coordinates, then the
    same of the trailing 2**k ones, 2**k being the largest power of two that fits: over
    half the length, so that the two overlap or are the same. Orthogonal, and a
    coordinate of the result has at most 2**-k of the squared norm on average.
    """

    def __init__(self, length: int):
        checks.integer("length", length)
        self.length = length
        self.flat_length = 1 << (length.bit_length() - 1)

    def expand(self, seed: tf.Tensor) -> tf.Tensor:
        """Returns float32[2, 2**k], the signs."""
        signs = randomness.rademacher(seed, 2 * self.flat_length)
        return tf.reshape(signs, [2, self.flat_length])

    def rotate(self, vector: tf.Tensor, expanded: tf.Tensor) -> tf.Tensor:
        """Returns float32[length] to float32[length]."""
        flat, rest = self.flat_length, self.length - self.flat_length
        head = rotation.hadamard_transform(vector[:flat] * expanded[0])
        if not rest:
            return head
        tail = tf.concat([head[rest:], vector[flat:]], 0)
        tail = rotation.hadamard_transform(tail * expanded[1])
        return tf.concat([head[:rest], tail], 0)

    def invert(self, vector: tf.Tensor, expanded: tf.Tensor) -> tf.Tensor:
        """Returns the transpose of `rotate`."""
        flat, rest = self.flat_length, self.length - self.flat_length
        if not rest:
            return rotation.hadamard_transform(vector) * expanded[0]
        tail = rotation.hadamard_transform(vector[rest:]) * expanded[1]
        head = tf.concat([vector[:rest], tail[: flat - rest]], 0)
        head = rotation.hadamard_transform(head) * expanded[0]
        return tf.concat([head, tail[flat - rest :]], 0)


ROTATIONS: dict[str, Callable[[int], rotation.Rotation]] = {
    **rotation.ROTATIONS,
    "overlap": OverlapRotation,
}
