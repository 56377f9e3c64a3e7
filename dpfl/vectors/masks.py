# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Random sets of coordinates, each kept independently with the same probability.

A mask is a function of a seed, from which the receiver knows the coordinates of the
values. Every mask has

  * `gather(vector, seed)`: the kept coordinates of a float32[length] vector, in order,
    and their number, an int32 scalar; where shapes are fixed, with zeros behind;
  * `scatter_add(total, values, seed)`: the `total`, of `length` numbers of any type,
    with the values, of the same type, added where they belong, and whether there were
    as many values as the seed says; if not, `total` is returned as it was.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfl import arrays, checks
from dpfl.arrays import Array
from dpfl.vectors import randomness


class FullMask:
    """A mask that keeps everything and needs no seed."""

    def __init__(self, length: int):
        self.length = length

    def gather(self, vector: Array, seed: Array) -> tuple[Array, Array]:
        """The vector itself, and its length."""
        return vector, arrays.of(vector).asarray(self.length, np.int32)

    def scatter_add(
        self, total: Array, values: Array, seed: Array
    ) -> tuple[Array, Array]:
        """Adds the values to `total` if there are `length` values.

        Args:
          total: [length] of any dtype.
          values: [k] of the same dtype.
          seed: Ignored.

        Returns:
          The sum, or `total` unchanged, and whether the values were added, a bool
          scalar.
        """
        nx = arrays.of(values)
        matches = nx.equal(nx.size(values), self.length)
        padding = nx.zeros([self.length], values.dtype)
        fitted = nx.concatenate([values, padding])[: self.length]
        return total + nx.where(matches, fitted, nx.zeros_like(fitted)), matches


# Standard deviations, and more places, by which a block of distances is longer than the
# mean; see `BernoulliMask`.
_DEVIATIONS, _MORE = 12, 50


class BernoulliMask:
    """A mask that keeps each coordinate with probability `keep_fraction`, exactly.

    The distances between neighbours that are kept are independent and geometric: 1 +
    floor(log(u) / log(1 - gamma)) for u uniform on (0, 1] (Devroye 1986, Non-Uniform
    Random Variate Generation, X.2.2). So the work is in proportion to the number that
    is kept, not to the length. Everything is computed in float64, whose 2**-52 steps
    change the probability by less than 1e-15 (float32 draws come in steps of 1.2e-7).

    A fixed number of distances is drawn. They fall short of the length with a
    probability below 1e-30, and then the last coordinates are not kept: the number
    that is kept is binomial.
    """

    def __init__(self, length: int, keep_fraction: float):
        most = np.iinfo(np.int32).max
        self.length = checks.integer("length", length, at_most=most)
        self._log_skip = math.log1p(-keep_fraction)
        mean = length * keep_fraction
        deviation = math.sqrt(mean * (1 - keep_fraction))
        # More than all coordinates are never kept.
        block = math.ceil(mean + _DEVIATIONS * deviation + _MORE)
        self.block = min(block, self.length + 1)

    def indices(self, seed: Array) -> tuple[Array, Array]:
        """The kept coordinates in increasing order, and their number, int32.

        Where shapes are fixed, places at the length follow.
        """
        nx = arrays.of(seed)
        positions = self.positions(seed)
        number = nx.count_below(positions, self.length)
        first = nx.prefix(positions, number)
        return nx.asarray(nx.minimum(first, self.length), np.int32), number

    def positions(self, seed: Array) -> Array:
        """The kept coordinates, and places beyond the length, int64[block]."""
        nx = arrays.of(seed)
        draws = nx.uniform(randomness.fold_in(seed, 0), self.block)
        skipped = nx.floor(nx.log(1 - draws) / self._log_skip)
        # Bounded so that the sums cannot overflow; all beyond the length is the same.
        steps = nx.asarray(nx.minimum(skipped, float(self.length)), np.int64) + 1
        return nx.cumsum(steps) - 1

    def gather(self, vector: Array, seed: Array) -> tuple[Array, Array]:
        """The kept coordinates of a float32[length] vector, and their number."""
        indices, number = self.indices(seed)
        return arrays.of(vector).take_or_zero(vector, indices), number

    def scatter_add(
        self, total: Array, values: Array, seed: Array
    ) -> tuple[Array, Array]:
        """Adds the values to the kept coordinates if their numbers are equal.

        Args:
          total: [length] of any dtype.
          values: [k] of the same dtype.
          seed: int64[2], the mask's seed.

        Returns:
          The sum, or `total` unchanged, and whether the values were added, a bool
          scalar.
        """
        indices, number = self.indices(seed)
        return arrays.of(total).add_at(total, indices, values, number)


def build_mask(length: int, keep_fraction: float) -> Any:
    """The mask that keeps each of `length` coordinates with a given probability.

    Raises:
      ValueError: If `keep_fraction` is not in (0, 1].
    """
    keep_fraction = checks.fraction("keep_fraction", keep_fraction)
    if keep_fraction == 1:
        return FullMask(length)
    return BernoulliMask(length, keep_fraction)
