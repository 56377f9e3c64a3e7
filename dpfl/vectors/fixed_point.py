# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Vectors rounded to integers, deterministically, within bounds that integers keep.

The bounds are those of `dpfl.accounting.fixed_point.Grid`; all is in steps of the grid.
A vector is first compared with the bound by a sum of squares in float32 with a margin
that is proved, and only if that does not settle it in float64: integers and halves of
them up to 2**52 add up exactly in any order, and a larger sum is never taken for one
below.
"""

from __future__ import annotations

import math
from typing import Optional

import tensorflow as tf

# Below 1 by more than the rounding of a few products of float64, and float32.
_BELOW_ONE_64 = 1 - 2.0**-48
_BELOW_ONE_32 = 1 - 2.0**-20
# Squares that are added up in float32. Whatever the order, the sum of n nonnegative
# numbers, each rounded itself, is off by less than n + 1 parts in 2**24, for n this far
# from 2**24.
_ROW = 256
_MARGIN = 1 + (_ROW + 16) * 2.0**-24
# More than what a square and a sum lose where float32 has no numbers left.
_LOST_SQUARE = 4e-38


def clip_target(max_squared_norm: int, length: int) -> float:
    """Returns the norm, in steps, to which to clip what `round_within` rounds.

    Rounding adds 1/12 to the sum of squares for a coordinate, on average over vectors
    whose coordinates fall anywhere between integers. With room for that, and for the
    errors of float32, it is rare that a rounded vector is too long.

    Args:
      max_squared_norm: The bound that the integers must keep.
      length: How many coordinates are rounded.
    """
    room = length / 12 + 4 * math.sqrt(length / 180)
    # The cross terms, 2 <v, error>, have a standard deviation of |v| / sqrt(3).
    room += 4 * math.sqrt(max_squared_norm / 3)
    squared = max_squared_norm * (1 - 2.0**-14) - room
    return math.sqrt(max(squared, max_squared_norm / 4))


def round_within(
    vector: tf.Tensor, max_squared_norm: int, max_size: Optional[int] = None
) -> tf.Tensor:
    """Rounds to the nearest integers, or shrinks them if they are too long.

    The sum of squares of the integers returned is at most `max_squared_norm`, exactly,
    and each is at most `max_size` in size, whatever the vector is: NaN gives zeros.
    Integers that are too long are multiplied by what makes them fit and rounded towards
    zero, which lengthens none.

    Args:
      vector: float32[m], in steps.
      max_squared_norm: At most 2**52.
      max_size: If a coordinate has a bound besides; at most 2**24.

    Returns:
      int32[m].
    """
    rounded = tf.round(vector)
    if max_size is not None:
        rounded = tf.clip_by_value(rounded, -float(max_size), float(max_size))
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
    """Returns a number that the sum of squares is not above, float64 scalar.

    Rows of 256 squares are added up in float32, the rows in float64. It is above by at
    most 4e-5 of the sum, if no square is so small that float32 loses it.

    Args:
      vector: float32[m]; integers, or anything whose squares below 1e-38 may be lost.

    Returns:
      Such a number; infinite or NaN if the vector, or a square, is not finite.
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
    """Returns what to multiply a vector by so that its integers are within a bound.

    For a vector of which only some coordinates will be rounded, where all of them must
    be within the bound: `tf.round(vector * factor)` has a sum of squares of at most
    `max_squared_norm`, over all coordinates. Rounding to nearest adds at most
    sqrt(m) / 2 to the norm, for which room is left, and no norm is below the true one.

    Args:
      vector: float32[m].
      max_squared_norm: Above m / 4, and at most 2**52.

    Returns:
      float32 scalar, such a factor; any smaller one will do as well, the step's
      inverse for a vector that is not clipped. 0 if the vector is zero or not finite;
      multiply with `tf.math.multiply_no_nan`, which makes zeros of it then.

    Raises:
      ValueError: If the bound leaves no room.
    """
    target = math.sqrt(max_squared_norm) - math.sqrt(vector.shape[0]) / 2
    if target <= 0:
        raise ValueError(
            f"max_squared_norm must be greater than {vector.shape[0] / 4:.15g}, a "
            f"quarter of the coordinates, found {max_squared_norm}"
        )
    squared = squared_norm_above(vector)
    # What float32 loses of squares below 1e-38 is made up for here.
    norm = tf.sqrt(squared + vector.shape[0] * _LOST_SQUARE)
    factor = tf.math.divide_no_nan(target * _BELOW_ONE_32, norm)
    factor = tf.where(tf.math.is_finite(norm) & (squared > 0), factor, 0.0)
    return tf.cast(factor, tf.float32)
