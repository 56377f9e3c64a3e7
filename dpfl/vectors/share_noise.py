# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Integers that a client adds as its share of the noise of a secure sum.

From random bits to integers there is no floating point: `tables` draws from
probabilities of 100 digits. A share is small where a message has few bits, often of the
order of one grid step, and a sum needs a million of them from every client, so that the
time of a draw matters. One entry of a table therefore holds two draws where it can: of
16 bits a pair with s = 3 needs all but a few thousandths of the time no more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

import numpy as np
import tensorflow as tf

from dpfl import purposes
from dpfl.vectors import discrete_gaussian, laws, randomness, tables

# Below this radius pairs have at most 2**16 outcomes.
_PAIR_RADIUS = 1 << 7
# Tables of more columns would take seconds to build.
_LARGEST_RADIUS = 1 << 16
# What stands for 'look further' in the first level: a pair of 0 and -2**15.
_FURTHER = -(1 << 31)
_HALF_BITS = 16


class Sampler(Protocol):
    """Draws independent integers of one law.

    Attributes:
      distance: Total variation distance of a draw to the law, from above. Any number of
        draws adds up: n draws are within n times this.
    """

    distance: float

    def sample(self, seed: tf.Tensor, length: int) -> tf.Tensor:
        """Returns int32[length], a function of the seed, int64[2]."""


class TableNoise:
    """Draws from a law by one lookup for each integer, or for each two.

    Attributes:
      distance: See `Sampler`.
      is_paired: Whether an entry of the table holds two integers.
      table: Both levels; of pairs (x, y) each is x + 2**16 y, reduced to 32 bits.
    """

    def __init__(self, law: laws.Law):
        """Builds the table, in less than a second but for the widest.

        Args:
          law: Of a draw.
        """
        values = np.arange(-law.radius, law.radius + 1)
        probabilities = law.probabilities
        self.is_paired = law.radius < _PAIR_RADIUS
        if self.is_paired:
            probabilities = laws.of_pairs(law)
            # The low half as it is in memory: 16 bits, negative or not.
            values = np.add.outer(values << _HALF_BITS, values & 0xFFFF).reshape(-1)
        middle = len(values) // 2
        self.table = tables.build(values, probabilities, middle, _FURTHER)
        draws = 1 + self.is_paired
        self.distance = float(draws * law.beyond + self.table.distance) * (1 + 1e-9)

    def sample(self, seed: tf.Tensor, length: int) -> tf.Tensor:
        """Returns int32[length], independent, a function of the seed.

        Args:
          seed: int64[2].
          length: How many.
        """
        count = (length + 1) // 2 if self.is_paired else length
        words = tables.random_bits(
            randomness.fold_in(seed, purposes.Draw.TABLES),
            [(count + 1) // 2],
            tf.uint32,
        )
        entries = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]
        drawn = tf.gather(
            tf.constant(self.table.first), tf.cast(entries, tf.int32), name="first"
        )
        places = tf.where(tf.equal(drawn, _FURTHER))
        rest = tables.look_further(
            self.table.alias,
            randomness.fold_in(seed, purposes.Draw.SECOND_LEVEL),
            tf.shape(places)[0],
        )
        drawn = tf.tensor_scatter_nd_update(drawn, places, rest)
        if not self.is_paired:
            return drawn
        halves = tf.reshape(tf.bitcast(drawn, tf.int16), [-1])
        return tf.cast(halves[:length], tf.int32)


@functools.lru_cache(maxsize=32)
def discrete_gaussian_noise(stddev: float) -> Sampler:
    """Returns what draws from N_Z(0, s^2).

    Args:
      stddev: s, the parameter, above 0 and at most 2**24; taken exactly. From 1 on it
        is the standard deviation to 1e-7.
    """
    if stddev > discrete_gaussian.ONE_TABLE:
        return discrete_gaussian.DiscreteGaussian(stddev)
    return TableNoise(laws.discrete_gaussian(Fraction(stddev) ** 2))


@functools.lru_cache(maxsize=32)
def skellam_noise(stddev: float) -> Sampler:
    """Returns what draws differences of two Poisson variables.

    Args:
      stddev: Standard deviation, above 0; its square is taken exactly.

    Raises:
      ValueError: If it is above 4800 or so, for which no table is wide enough.
    """
    law = laws.skellam(Fraction(stddev) ** 2)
    if law.radius >= _LARGEST_RADIUS:
        raise ValueError(
            f"stddev must be at most {stddev * _LARGEST_RADIUS / law.radius:.4g} steps "
            f"for Skellam noise, found {stddev:g}: a coarser grid would fit"
        )
    return TableNoise(law)


NOISE: dict[str, Callable[[float], Sampler]] = {
    "discrete_gaussian": discrete_gaussian_noise,
    "skellam": skellam_noise,
}
