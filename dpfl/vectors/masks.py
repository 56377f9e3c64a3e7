# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random sets of coordinates, each kept independently with the same probability.

A mask is a function of a seed, from which the receiver knows the coordinates of the
values. Every mask has

  * `gather(vector, seed)`: the kept coordinates of a float32[length] vector, in order;
  * `scatter_add(total, values, seed)`: the `total`, of `length` numbers of any type,
    with the values, of the same type, added where they belong, and whether there were
    as many values as the seed says; if not, `total` is returned as it was.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from dpfl import checks
from dpfl.vectors import randomness


class FullMask:
    """A mask that keeps everything and needs no seed."""

    def __init__(self, length: int):
        self.length = length

    def gather(self, vector: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """The vector itself."""
        del seed
        return vector

    def scatter_add(
        self, total: tf.Tensor, values: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Adds the values to `total` if there are `length` values.

        Args:
          total: [length] of any dtype.
          values: [k] of the same dtype.
          seed: Ignored.

        Returns:
          The sum, or `total` unchanged, and whether the values were added, a bool
          scalar.
        """
        del seed
        matches = tf.equal(tf.size(values), self.length)
        padding = tf.zeros([self.length], values.dtype)
        fitted = tf.concat([values, padding], 0)[: self.length]
        added = total + tf.where(matches, fitted, tf.zeros_like(fitted))
        return added, matches


class BernoulliMask:
    """A mask that keeps each coordinate with probability `keep_fraction`, exactly.

    The distances between neighbours that are kept are independent and geometric: 1 +
    floor(log(u) / log(1 - gamma)) for u uniform on (0, 1] (Devroye 1986, Non-Uniform
    Random Variate Generation, X.2.2). So the work is in proportion to the number that
    is kept, not to the length. Everything is computed in float64, whose 2**-52 steps
    change the probability by less than 1e-15 (float32 draws come in steps of 1.2e-7).
    """

    def __init__(self, length: int, keep_fraction: float):
        length = checks.integer("length", length, at_most=tf.int32.max)
        self.length = length
        self._log_skip = math.log1p(-keep_fraction)
        mean = length * keep_fraction
        # Size for which a block falls short of the length with probability below 1e-13;
        # then another block follows.
        self._block = math.ceil(mean + 8 * math.sqrt(mean * (1 - keep_fraction)) + 16)

    def indices(self, seed: tf.Tensor) -> tf.Tensor:
        """The kept coordinates in increasing order, int32[None]."""
        last = self.length - 1

        def body(positions: tf.Tensor, block: tf.Tensor) -> tuple[Any, Any]:
            more = positions[-1] + self._steps(seed, block)
            return tf.concat([positions, more], 0), block + 1

        positions, _ = tf.while_loop(
            lambda positions, block: positions[-1] < last,
            body,
            [self._steps(seed, 0) - 1, tf.constant(1)],
            shape_invariants=[tf.TensorShape([None]), tf.TensorShape([])],
        )
        count = tf.searchsorted(positions, [tf.cast(self.length, tf.int64)])[0]
        return tf.cast(positions[:count], tf.int32)

    def gather(self, vector: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """The kept coordinates of a float32[length] vector, float32[None]."""
        return tf.gather(vector, self.indices(seed))

    def scatter_add(
        self, total: tf.Tensor, values: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Adds the values to the kept coordinates if their numbers are equal.

        Args:
          total: [length] of any dtype.
          values: [k] of the same dtype.
          seed: int64[2], the mask's seed.

        Returns:
          The sum, or `total` unchanged, and whether the values were added, a bool
          scalar.
        """
        indices = self.indices(seed)
        matches = tf.equal(tf.size(values), tf.size(indices))
        added = tf.cond(
            matches,
            lambda: tf.tensor_scatter_nd_add(total, indices[:, tf.newaxis], values),
            lambda: total,
        )
        return added, matches

    def _steps(self, seed: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
        """The running sums of one block of distances, int64[block size]."""
        draws = randomness.uniform(randomness.fold_in(seed, block), self._block)
        skipped = tf.floor(tf.math.log(1 - draws) / self._log_skip)
        # Bounded so that the sums cannot overflow; all beyond the length is the same.
        return tf.cumsum(tf.cast(tf.minimum(skipped, self.length), tf.int64) + 1)


def build_mask(length: int, keep_fraction: float) -> Any:
    """The mask that keeps each of `length` coordinates with a given probability.

    Raises:
      ValueError: If `keep_fraction` is not in (0, 1].
    """
    keep_fraction = checks.fraction("keep_fraction", keep_fraction)
    if keep_fraction == 1:
        return FullMask(length)
    return BernoulliMask(length, keep_fraction)
