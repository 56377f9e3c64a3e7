# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The L2 norm of any vector that a client may send, and the factor that clips it."""

from __future__ import annotations

from typing import NamedTuple, Union

import tensorflow as tf

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

    direction: tf.Tensor
    unit: tf.Tensor
    direction_norm: tf.Tensor
    is_finite: tf.Tensor

    @property
    def norm(self) -> tf.Tensor:
        """The L2 norm of the vector, a float64 scalar; zero if it was not finite."""
        return self.unit * self.direction_norm


def safe_norm(vector: tf.Tensor) -> NormedVector:
    """The L2 norm of a float32[d] vector, accurate over all of float32's range.

    One pass over the vector as a rule: a finite sum of squares proves that every
    coordinate is finite. Only a vector whose sum of squares overflows, is not a number
    or vanishes takes a second pass, divided by its largest coordinate first.
    """
    total = _sum_of_squares(vector)
    is_ordinary = tf.math.is_finite(total) & (total > _SMALLEST_SUM)
    return tf.cond(
        is_ordinary,
        lambda: NormedVector(
            vector,
            tf.ones([], tf.float64),
            tf.sqrt(tf.cast(total, tf.float64)),
            tf.constant(True),
        ),
        lambda: _rescaled(vector),
    )


def clip_factor(
    normed: NormedVector, clip_norm: Union[float, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """The float64 factor of `direction` that clips the norm to `clip_norm`.

    The second result is a bool scalar, whether it clips.
    """
    clip_norm = tf.cast(clip_norm, tf.float64)
    is_clipped = normed.norm > clip_norm
    inside = tf.math.divide_no_nan(clip_norm, normed.direction_norm)
    return tf.where(is_clipped, inside, normed.unit), is_clipped


def finite(vector: tf.Tensor, normed: NormedVector) -> tf.Tensor:
    """The vector, or zeros if it is not finite."""
    return tf.cond(normed.is_finite, lambda: vector, lambda: tf.zeros_like(vector))


def _sum_of_squares(vector: tf.Tensor) -> tf.Tensor:
    # Eigen sums a whole tensor as a tree, so that float32 loses less than 1e-5 even on
    # a large coordinate followed by very many small ones. l2_loss does not write the
    # squares down, as tf.square would.
    return 2 * tf.nn.l2_loss(vector)


def _rescaled(vector: tf.Tensor) -> NormedVector:
    is_finite = tf.reduce_all(tf.math.is_finite(vector))
    largest = tf.reduce_max(tf.abs(vector))
    is_usable = is_finite & (largest > _SMALLEST_NORMAL)
    unit = tf.where(is_usable, largest, 1.0)
    direction = tf.where(is_usable, vector / unit, tf.zeros_like(vector))
    return NormedVector(
        direction,
        tf.cast(unit, tf.float64),
        tf.sqrt(tf.cast(_sum_of_squares(direction), tf.float64)),
        is_finite,
    )
