# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Rounding of vectors in grid steps to integers for exact and secure sums.

    integers = randomized_round(vector, seed, max_norm, max_coordinate)
    kept = round_within(vector, max_squared_norm)   # to the nearest integers

The guarantees that privacy rests on hold despite floating point. `randomized_round` is
accounted as a part of the noise: each integer is distributed as a randomized rounding
of a real number x', and the vector of these x' is within the bounds on norm and
coordinates. It may differ a little from the given vector.
"""

from __future__ import annotations

import math

import numpy as np

from dpfl import arrays, checks
from dpfl.arrays import Array

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


def norm_target(max_norm: float, length: int) -> float:
    """The norm, in steps, to clip a vector to before `randomized_round`."""
    return _norm_limit(max_norm, length) * _ROOM


def randomized_round(
    vector: Array, seed: Array, max_norm: float, max_coordinate: float
) -> Array:
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
    nx = arrays.of(vector)
    length = vector.shape[0]
    inside = _within(
        vector,
        _norm_limit(max_norm, length),
        _float32_below(max_coordinate - ROUNDING_ERROR),
    )
    lower = nx.floor(inside)
    draws = nx.float_uniform(seed, length)
    is_up = draws < inside - lower
    return nx.asarray(lower, np.int32) + nx.asarray(is_up, np.int32)


def _norm_limit(max_norm: float, length: int) -> float:
    """The norm that leaves room for the error of the rounding probabilities."""
    limit = max_norm * _BELOW_ONE_64 - math.sqrt(length) * ROUNDING_ERROR
    least = math.sqrt(length) * ROUNDING_ERROR
    wanted = f"above {least:.3g} steps for {length} coordinates"
    checks.require(limit > 0, "max_norm", wanted, max_norm)
    return limit


def _within(vector: Array, max_norm: float, max_coordinate: float) -> Array:
    """Shrinks a vector so that its norm and coordinates are certainly within bounds."""
    nx = arrays.of(vector)
    clipped = nx.clip(vector, -max_coordinate, max_coordinate)
    squared = squared_norm_above(clipped)
    squared += vector.shape[0] * _LOST_SQUARE

    def shrunk() -> Array:
        factor = nx.asarray(max_norm * _BELOW_ONE_32 / nx.sqrt(squared), np.float32)
        factor = nx.where(nx.isfinite(squared), factor, 0.0)
        return nx.multiply_no_nan(clipped, factor)

    is_surely_within = squared <= max_norm**2 * _BELOW_ONE_64
    return nx.cond(is_surely_within, lambda: clipped, shrunk)


def _float32_below(value: float) -> float:
    """The largest float32 that is not above a number."""
    rounded = np.float32(value)
    # numpy 2 would compare as float32, in which the two are equal.
    if float(rounded) > value:
        rounded = np.nextafter(rounded, np.float32(-np.inf))
    return float(rounded)


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


def round_within(vector: Array, max_squared_norm: int) -> Array:
    """Rounds to the nearest integers, and shrinks them if their norm is too large.

    The sum of squares of the integers returned is at most `max_squared_norm`, exactly,
    whatever the vector is: NaN gives zeros. Integers of too large a norm are scaled to
    fit and rounded towards zero, which never increases the norm.

    The bound is at most 2**52. The vector is float32[m] in steps, the result int32[m].
    """
    nx = arrays.of(vector)
    rounded = nx.round(vector)
    limit = max_squared_norm / 2

    def compared_exactly() -> Array:
        wide = nx.asarray(rounded, np.float64)
        half = nx.half_square_sum(wide)
        factor = nx.minimum(nx.sqrt(limit / half) * _BELOW_ONE_64, 1.0)
        factor = nx.where(half <= limit, np.float64(1), factor)
        values = nx.where(nx.isfinite(half), wide * factor, 0.0)
        values = nx.asarray(nx.asarray(values, np.int64), np.float64)
        is_within = nx.half_square_sum(values) <= limit
        return nx.asarray(nx.where(is_within, values, 0.0), np.int32)

    is_surely_within = squared_norm_above(rounded) <= max_squared_norm
    return nx.cond(
        is_surely_within, lambda: nx.asarray(rounded, np.int32), compared_exactly
    )


def squared_norm_above(vector: Array) -> Array:
    """An upper bound on the sum of squares, float64 scalar.

    Rows of 256 squares are added up in float32, the rows in float64. It exceeds the sum
    by at most 4e-5 of it, if no square is so small that float32 loses it, as for
    integers, or if squares below 1e-38 do not matter. It is infinite or NaN if the
    vector, or a square, is not finite.
    """
    nx = arrays.of(vector)
    length = vector.shape[0]
    whole = length - length % _ROW
    rows = nx.sum(nx.square(nx.reshape(vector[:whole], [whole // _ROW, _ROW])), 1)
    rest = nx.sum(nx.square(vector[whole:]))
    total = nx.sum(nx.asarray(rows, np.float64)) + nx.asarray(rest, np.float64)
    return total * _MARGIN


def rounding_factor(vector: Array, max_squared_norm: int) -> Array:
    """The factor that scales a vector so that its integers are within a bound.

    It serves vectors of which only some coordinates are rounded, while all of them must
    be within the bound: `round(vector * factor)` has a sum of squares of at most
    `max_squared_norm`, over all coordinates. Rounding to nearest adds at most sqrt(m) /
    2 to the norm, for which room is left, and no computed norm is below the true one.

    The factor is a float32; any smaller one will do as well, the step's inverse for a
    vector that is not clipped. It is 0 if the vector is zero or not finite; multiply
    with `multiply_no_nan`, which makes zeros of it then.

    Raises:
      ValueError: If the bound is not above m / 4; it must be at most 2**52.
    """
    nx = arrays.of(vector)
    target = math.sqrt(max_squared_norm) - math.sqrt(vector.shape[0]) / 2
    wanted = f"above {vector.shape[0] / 4:.15g}, a quarter of the coordinates"
    checks.require(target > 0, "max_squared_norm", wanted, max_squared_norm)
    squared = squared_norm_above(vector)
    # Compensates for squares below 1e-38 that float32 loses.
    norm = nx.sqrt(squared + vector.shape[0] * _LOST_SQUARE)
    factor = nx.divide_no_nan(target * _BELOW_ONE_32, norm)
    factor = nx.where(nx.isfinite(norm) & (squared > 0), factor, 0.0)
    return nx.asarray(factor, np.float32)
