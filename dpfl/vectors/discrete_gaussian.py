# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Integers from the discrete Gaussian N_Z(0, s^2), of weight exp(-k^2/(2 s^2)) at k.

From random bits to integers there is no floating point. A large s needs no large table:
k X1 + X2 with X1, X2 discrete Gaussians is one too, with s^2 = k^2 s1^2 + s2^2, if
s1 s2 / s, the width of one given the sum, is at least 2 (Peikert 2010, Theorem 3.1;
Micciancio and Walter 2017). How far a draw is from the law is computed with the tables,
which are those of `tables`; docs/privacy/fixed_point.md has the proofs.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from dpfl import checks, purposes
from dpfl.vectors import laws, randomness, tables

# The least and the largest parameter; 14 of the largest stay below the flag.
# A grid of s = 2**24 steps asks for a little more, sqrt(s**2 + 4).
SMALLEST, LARGEST = 0.125, 2.0**24 + 1e-6
# Up to these parameters one table, or two, are enough.
ONE_TABLE, _TWO_TABLES = 1 << 10, 1 << 20
# The square of s1 s2 / s at least, where two parts are added.
_SMOOTHING_VARIANCE = 4
# What an entry that stands for 'look further' holds. Three of them fit int32.
_FURTHER = 1 << 29
_LARGEST_DRAW = 1 << 28


class Part(NamedTuple):
    """A discrete Gaussian on the multiples of an integer, as tables.

    Attributes:
      multiple: What its integers are multiplied by.
      variance: The square of its parameter, before that.
      first: int32[2**16], multiples, or 2**29 for 'look further'.
      alias: The tables to look further in.
      distance: Total variation distance to the discrete Gaussian, from above.
    """

    multiple: int
    variance: Fraction
    first: np.ndarray
    alias: tables.Alias
    distance: float


class DiscreteGaussian:
    """Draws integers from N_Z(0, s^2).

    Attributes:
      stddev: s, the parameter; from 1 on the standard deviation to 1e-7.
      parts: One to three parts that are added.
      distance: Total variation distance of a draw to N_Z(0, s^2), from above. Any
        number of draws adds up: n draws are within n times this.
    """

    def __init__(self, stddev: float):
        """Builds the tables, in about a second, or takes them from those built before.

        Args:
          stddev: s, from 1/8 to 2**24; any real number, taken exactly.

        Raises:
          ValueError: If it is out of range.
        """
        self.stddev = checks.real("stddev", stddev, at_least=SMALLEST, at_most=LARGEST)
        self.parts, self.distance = _build(self.stddev)

    def sample(self, seed: tf.Tensor, length: int) -> tf.Tensor:
        """Returns int32[length], independent, a function of the seed.

        Args:
          seed: int64[2].
          length: How many.
        """
        halves = _sixteen_bits(
            randomness.fold_in(seed, purposes.Draw.TABLES), length, len(self.parts)
        )
        firsts = [tf.constant(part.first) for part in self.parts]
        drawn = tf.gather(firsts[0], halves[0])
        for table, half in zip(firsts[1:], halves[1:]):
            drawn += tf.gather(table, half)
        # Without a flag the sum is below this, with one or more it is above.
        places = tf.where(drawn >= _LARGEST_DRAW)
        resolved = tf.zeros(tf.shape(places)[:1], tf.int32)
        for i, (part, table, half) in enumerate(zip(self.parts, firsts, halves)):
            value = tf.gather(table, tf.gather(half, places[:, 0]))
            further = tf.where(tf.equal(value, _FURTHER))
            count = tf.shape(further)[0]
            own = randomness.fold_in(seed, purposes.Draw.SECOND_LEVEL + i)
            rest = tables.look_further(part.alias, own, count)
            resolved += tf.tensor_scatter_nd_update(value, further, rest)
        return tf.tensor_scatter_nd_update(drawn, places, resolved)


def _sixteen_bits(seed: tf.Tensor, length: int, parts: int) -> list[tf.Tensor]:
    """Returns for each part int32[length] in [0, 2**16), from the fewest words."""
    count = length * (parts // 2) + (length + 1) // 2 * (parts % 2)
    words = tables.random_bits(seed, [count], tf.uint32)
    bits = tables.FIRST_BITS
    low = tf.bitcast(tf.bitwise.bitwise_and(words, (1 << bits) - 1), tf.int32)
    high = tf.bitcast(tf.bitwise.right_shift(words, bits), tf.int32)
    if parts == 2:
        return [low, high]
    last = slice(length * (parts // 2), None)
    return [
        *(half[:length] for half in (low, high) if parts > 2),
        tf.concat([low[last], high[last]], 0)[:length],
    ]


def decompose(
    stddev: float, one_table: float = ONE_TABLE, two_tables: float = _TWO_TABLES
) -> list[tuple[int, Fraction]]:
    """Returns multiples m_i and variances v_i with sum_i m_i^2 v_i = stddev^2 exactly.

    Args:
      stddev: s.
      one_table: The largest s for which one part is enough.
      two_tables: The largest for which two are.

    Returns:
      The parts, the finest first. Their parameters are about equal.
    """
    variance = Fraction(stddev) ** 2
    levels = 1 + (stddev > one_table) + (stddev > two_tables)
    parts, multiple = [], 1
    for level in range(levels, 1, -1):
        width = math.sqrt(variance)
        smoothing = math.sqrt(_SMOOTHING_VARIANCE)
        step = int((width * smoothing ** (level - 1)) ** (1 / level) / smoothing)
        # The larger root v of v (s^2 - step^2 v) = 4 s^2; below it is smoother.
        square = Fraction(step) ** 2
        inner = variance**2 - 4 * square * _SMOOTHING_VARIANCE * variance
        root = math.isqrt(math.floor(inner))
        coarse = Fraction(math.floor((variance + root) / (2 * square)))
        parts.append((multiple, variance - square * coarse))
        multiple, variance = multiple * step, coarse
    return [*parts, (multiple, variance)]


def smoothing_distance(parts: list[tuple[int, Fraction]]) -> float:
    """Returns a bound of the total variation between exact parts' sum and N_Z(0, s^2).

    With eps = 2 sum_n exp(-2 pi^2 tau^2 n^2) and tau = s1 s2 / s each probability is
    within a factor (1 + eps) / (1 - eps), so that the distance is at most
    eps / (1 - eps).
    """
    total = 0.0
    multiple, variance = parts[-1]
    for next_multiple, fine in reversed(parts[:-1]):
        step = multiple // next_multiple
        combined = step**2 * variance + fine
        tau_squared = variance * fine / combined
        q = math.exp(-2 * math.pi**2 * float(tau_squared) * (1 - 1e-12))
        eps = 2 * q / (1 - q)
        total += eps / (1 - eps)
        multiple, variance = next_multiple, combined
    return total


@functools.lru_cache(maxsize=32)
def _build(stddev: float) -> tuple[list[Part], float]:
    pairs = decompose(stddev)
    parts = [build_part(multiple, variance) for multiple, variance in pairs]
    distance = smoothing_distance(pairs) + sum(part.distance for part in parts)
    return parts, distance * (1 + 1e-9)


@functools.lru_cache(maxsize=64)
def build_part(multiple: int, variance: Fraction) -> Part:
    """Returns the tables of one part, from probabilities to 100 digits."""
    law = laws.discrete_gaussian(variance)
    values = np.arange(-law.radius, law.radius + 1) * multiple
    table = tables.build(values, law.probabilities, law.radius, _FURTHER)
    distance = float(law.beyond + table.distance) * (1 + 1e-9)
    return Part(multiple, variance, table.first, table.alias, distance)
