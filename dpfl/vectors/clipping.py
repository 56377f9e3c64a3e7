# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The L2 norm of any vector that a client may send, and the factor that clips it.

    normed = safe_norm(update)
    factor, is_clipped = clip_factor(normed, clip_norm)
    clipped = normed.direction * factor

Norms are right over the whole range of float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Union

import numpy as np

from dpfl import arrays
from dpfl.arrays import Array

# Range of sums of squares that come from vectors whose squares neither overflow nor
# vanish in float32 (for up to 2**40 coordinates, to 1e-6 of the sum).
_SMALLEST_SUM = 1e-20
_SMALLEST_NORMAL = 1.2e-38


class NormedVector(NamedTuple):
    """A vector as `unit * direction`, with its norm.

    Attributes:
      direction: float32[d], finite; all zeros if the vector was not finite.
      unit: float64 scalar; 1 unless the squares of the vector leave float32.
      direction_norm: float64 scalar, L2 norm of `direction`.
      is_finite: bool scalar; whether the vector held neither NaN nor infinities.
    """

    direction: Array
    unit: Array
    direction_norm: Array
    is_finite: Array

    @property
    def norm(self) -> Array:
        """The L2 norm of the vector, a float64 scalar; zero if it was not finite."""
        return self.unit * self.direction_norm


def safe_norm(vector: Array) -> NormedVector:
    """The L2 norm of a float32[d] vector, accurate over all of float32's range.

    One pass over the vector as a rule: a finite sum of squares proves that every
    coordinate is finite. Only a vector whose sum of squares overflows, is not a number
    or vanishes takes a second pass, divided by its largest coordinate first.
    """
    nx = arrays.of(vector)
    total = _sum_of_squares(vector)
    is_ordinary = nx.isfinite(total) & (total > _SMALLEST_SUM)
    return nx.cond(
        is_ordinary,
        lambda: NormedVector(
            vector,
            nx.ones([], np.float64),
            nx.sqrt(nx.asarray(total, np.float64)),
            nx.asarray(True, np.bool_),
        ),
        lambda: _rescaled(vector),
    )


def as_float32(clip_norm: Union[float, Array]) -> Any:
    """A clip norm; numbers are rounded to float32, which adaptive clips have."""
    return np.float32(clip_norm) if isinstance(clip_norm, float) else clip_norm


def clip_factor(
    normed: NormedVector, clip_norm: Union[float, Array]
) -> tuple[Array, Array]:
    """The float64 factor of `direction` that clips the norm to `clip_norm`.

    The second result is a bool scalar, whether it clips.
    """
    nx = arrays.of(normed.direction_norm)
    clip_norm = nx.asarray(as_float32(clip_norm), np.float64)
    is_clipped = normed.norm > clip_norm
    inside = nx.divide_no_nan(clip_norm, normed.direction_norm)
    return nx.where(is_clipped, inside, normed.unit), is_clipped


def finite(vector: Array, normed: NormedVector) -> Array:
    """The vector, or zeros if it is not finite."""
    nx = arrays.of(vector)
    return nx.cond(normed.is_finite, lambda: vector, lambda: nx.zeros_like(vector))


def _sum_of_squares(vector: Array) -> Array:
    # Added up as a tree or in rows, so that float32 loses less than 1e-5 even on a
    # large coordinate followed by very many small ones.
    return 2 * arrays.of(vector).half_square_sum(vector)


def _rescaled(vector: Array) -> NormedVector:
    nx = arrays.of(vector)
    is_finite = nx.all(nx.isfinite(vector))
    largest = nx.max(nx.abs(vector))
    is_usable = is_finite & (largest > _SMALLEST_NORMAL)
    unit = nx.where(is_usable, largest, np.float32(1))
    # XLA multiplies by the inverse, which must not be a subnormal number.
    scale = nx.where(unit > 1, np.float32(2.0**-64), np.float32(1))
    scaled = (vector * scale) / (unit * scale)
    direction = nx.where(is_usable, scaled, nx.zeros_like(vector))
    return NormedVector(
        direction,
        nx.asarray(unit, np.float64),
        nx.sqrt(nx.asarray(_sum_of_squares(direction), np.float64)),
        is_finite,
    )
