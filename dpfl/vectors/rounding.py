# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounding of vectors in grid steps to integers for exact and secure sums.

The guarantees that privacy rests on hold despite floating point. `randomized_round` is
accounted as a part of the noise: each integer is distributed as a randomized rounding
of a real number x', and the vector of these x' is within the bounds on norm and
coordinates. It may differ a little from the given vector. For `conditional_round` the
integers themselves are within the bounds.
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from dpfl.vectors import randomness

# Error of a rounding probability: a uniform float32 is a multiple of 2**-23, and 1 + x
# is right to 2**-25.
ROUNDING_ERROR = 2.0**-22
# Factor below 1 by more than the rounding of a few products of float32, and of float64.
_BELOW_ONE_32 = 1 - 2.0**-20
_BELOW_ONE_64 = 1 - 2.0**-48
# Slack with which a vector scaled to `norm_target` is rarely found too long: the
# computed sum of squares is at most 2**-15 above the true one, and norms are right to
# 2**-17.
_ROOM = 1 - 2.0**-15
# Bound on the loss of a square and a sum by underflow of float32.
_LOST_SQUARE = 4e-38
# Trials of conditional rounding; each fails with probability beta = exp(-1/2) at most.
_MAX_TRIALS = 64


def norm_target(max_norm: float, length: int) -> float:
    """The norm, in steps, to clip a vector to before `randomized_round`."""
    return _norm_limit(max_norm, length) * _ROOM


def randomized_round(
    vector: tf.Tensor, seed: tf.Tensor, max_norm: float, max_coordinate: float
) -> tf.Tensor:
    """Clips to bounds and rounds each coordinate, up or down at random, once.

    Coordinates are clipped to their bound, and the whole vector is shrunk if its norm
    is above the bound; then x becomes floor(x) + 1 with probability x - floor(x), else
    floor(x), each independently. These probabilities are off by less than 2**-22: they
    are those of an x' for which both bounds hold exactly. Integers within the bounds
    are unchanged; a vector that is not a number, or overflows when squared, becomes
    zeros.

    Args:
      vector: float32[m] in grid steps; the result is int32[m].
      seed: int64[2].
      max_norm: Bound on the vector's L2 norm, in steps; above 2**-22 sqrt(m).
      max_coordinate: Bound on the absolute coordinates, in steps; above 2**-22 and
        below 2**30.

    Raises:
      ValueError: If the bound on the norm leaves no room.
    """
    length = vector.shape[0]
    inside = _within(
        vector,
        _norm_limit(max_norm, length),
        _float32_below(max_coordinate - ROUNDING_ERROR),
    )
    lower = tf.floor(inside)
    draws = randomness.uniform(seed, length, tf.float32)
    is_up = draws < inside - lower
    return tf.cast(lower, tf.int32) + tf.cast(is_up, tf.int32)


def _norm_limit(max_norm: float, length: int) -> float:
    """The norm that leaves room for the error of the rounding probabilities."""
    limit = max_norm * _BELOW_ONE_64 - math.sqrt(length) * ROUNDING_ERROR
    if limit <= 0:
        raise ValueError(
            f"max_norm must be above {math.sqrt(length) * ROUNDING_ERROR:.3g} steps "
            f"for {length} coordinates, found {max_norm:g}"
        )
    return limit


def _within(vector: tf.Tensor, max_norm: float, max_coordinate: float) -> tf.Tensor:
    """Shrinks a vector so that its norm and coordinates are certainly within bounds."""
    clipped = tf.clip_by_value(vector, -max_coordinate, max_coordinate)
    squared = squared_norm_above(clipped)
    squared += vector.shape[0] * _LOST_SQUARE

    def shrunk() -> tf.Tensor:
        factor = tf.cast(max_norm * _BELOW_ONE_32 / tf.sqrt(squared), tf.float32)
        factor = tf.where(tf.math.is_finite(squared), factor, 0.0)
        return tf.math.multiply_no_nan(clipped, factor)

    is_surely_within = squared <= max_norm**2 * _BELOW_ONE_64
    return tf.cond(is_surely_within, lambda: clipped, shrunk)


def _float32_below(value: float) -> float:
    """The largest float32 that is not above a number."""
    rounded = np.float32(value)
    if rounded > value:
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    return float(rounded)


def conditional_round(
    vector: tf.Tensor, seed: tf.Tensor, max_squared_norm: int, max_size: int
) -> tf.Tensor:
    """Rounds each coordinate up or down at random, until the norm is within a bound.

    Kairouz et al. 2021 ("The Distributed Discrete Gaussian Mechanism", Algorithm 1 and
    Proposition 26); Chen et al. 2022, Algorithm 6. Without the condition the mean is
    the vector. The bounds hold for the returned integers, int32[m], whatever the vector
    is: if 64 trials fail, the vector is rounded towards zero, and if that is too long,
    so was the vector, and zeros are returned.

    Args:
      vector: float32[m] in grid steps, of absolute value below 2**30.
      seed: int64[2].
      max_squared_norm: Bound on the sum of squares of the integers.
      max_size: Bound on the absolute value of an integer.
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
        own = randomness.fold_in(seed, trial)
        draws = randomness.uniform(own, length, tf.float32)
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


# Number of squares that are added up in float32.
_ROW = 256
_MARGIN = 1 + (_ROW + 16) * 2.0**-24


def clip_target(max_squared_norm: int, length: int) -> float:
    """The norm, in steps, to clip a vector to before `round_within`.

    Rounding adds 1/12 to the sum of squares for a coordinate, on average over vectors
    whose coordinates fall anywhere between integers. With room for that, and for the
    errors of float32, it is rare that a rounded vector is too long.
    """
    room = length / 12 + 4 * math.sqrt(length / 180)
    # Cross terms, 2 <v, error>, have a standard deviation of |v| / sqrt(3).
    room += 4 * math.sqrt(max_squared_norm / 3)
    squared = max_squared_norm * (1 - 2.0**-14) - room
    return math.sqrt(max(squared, max_squared_norm / 4))


def round_within(vector: tf.Tensor, max_squared_norm: int) -> tf.Tensor:
    """Rounds to the nearest integers, and shrinks them if their norm is too large.

    The sum of squares of the integers returned is at most `max_squared_norm`, exactly,
    whatever the vector is: NaN gives zeros. Integers of too large a norm are scaled to
    fit and rounded towards zero, which never increases the norm.

    The bound is at most 2**52. The vector is float32[m] in steps, the result int32[m].
    """
    rounded = tf.round(vector)
    limit = max_squared_norm / 2

    def compared_exactly() -> tf.Tensor:
        wide = tf.cast(rounded, tf.float64)
        half = tf.nn.l2_loss(wide)
        factor = tf.minimum(tf.sqrt(limit / half) * _BELOW_ONE_64, 1.0)
        factor = tf.where(half <= limit, tf.ones([], tf.float64), factor)
        values = tf.where(tf.math.is_finite(half), wide * factor, 0.0)
        values = tf.cast(tf.cast(values, tf.int64), tf.float64)
        is_within = tf.nn.l2_loss(values) <= limit
        return tf.cast(tf.where(is_within, values, 0.0), tf.int32)

    is_surely_within = squared_norm_above(rounded) <= max_squared_norm
    return tf.cond(
        is_surely_within, lambda: tf.cast(rounded, tf.int32), compared_exactly
    )


def squared_norm_above(vector: tf.Tensor) -> tf.Tensor:
    """An upper bound on the sum of squares, float64 scalar.

    Rows of 256 squares are added up in float32, the rows in float64. It exceeds the sum
    by at most 4e-5 of it, if no square is so small that float32 loses it, as for
    integers, or if squares below 1e-38 do not matter. It is infinite or NaN if the
    vector, or a square, is not finite.
    """
    length = vector.shape[0]
    whole = length - length % _ROW
    rows = tf.reduce_sum(
        tf.square(tf.reshape(vector[:whole], [whole // _ROW, _ROW])), 1
    )
    rest = tf.reduce_sum(tf.square(vector[whole:]))
    total = tf.reduce_sum(tf.cast(rows, tf.float64)) + tf.cast(rest, tf.float64)
    return total * _MARGIN


def rounding_factor(vector: tf.Tensor, max_squared_norm: int) -> tf.Tensor:
    """The factor that scales a vector so that its integers are within a bound.

    It serves vectors of which only some coordinates are rounded, while all of them must
    be within the bound: `tf.round(vector * factor)` has a sum of squares of at most
    `max_squared_norm`, over all coordinates. Rounding to nearest adds at most sqrt(m) /
    2 to the norm, for which room is left, and no computed norm is below the true one.

    The factor is a float32; any smaller one will do as well, the step's inverse for a
    vector that is not clipped. It is 0 if the vector is zero or not finite; multiply
    with `tf.math.multiply_no_nan`, which makes zeros of it then.

    Raises:
      ValueError: If the bound is not above m / 4; it must be at most 2**52.
    """
    target = math.sqrt(max_squared_norm) - math.sqrt(vector.shape[0]) / 2
    if target <= 0:
        raise ValueError(
            f"max_squared_norm must be greater than {vector.shape[0] / 4:.15g}, a "
            f"quarter of the coordinates, found {max_squared_norm}"
        )
    squared = squared_norm_above(vector)
    # Compensates for squares below 1e-38 that float32 loses.
    norm = tf.sqrt(squared + vector.shape[0] * _LOST_SQUARE)
    factor = tf.math.divide_no_nan(target * _BELOW_ONE_32, norm)
    factor = tf.where(tf.math.is_finite(norm) & (squared > 0), factor, 0.0)
    return tf.cast(factor, tf.float32)
