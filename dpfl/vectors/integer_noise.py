# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Integer noise drawn from exact tables of its distribution, alone or in shares.

    noise = discrete_gaussian_noise(stddev).sample(seed, length)
    share = Shares("skellam", stddev).sample(seed, domain, number, length)

A share is secret to the client that draws it.
"""

from __future__ import annotations

import decimal
import functools
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Optional, Protocol

import numpy as np

from dpfl import arrays, checks, seed_domains
from dpfl.arrays import Array
from dpfl.vectors import integer_tables as tables
from dpfl.vectors import randomness
from dpfl.vectors.integer_tables import FIRST_BITS, FURTHER, ONE_TABLE

# The least and the largest parameter; 14 of the largest stay below the flag.
# A grid of s = 2**24 steps asks for a little more, sqrt(s**2 + 4).
SMALLEST, LARGEST = 0.125, 2.0**24 + 1e-6


def look_further(alias: tables.Alias, seed: Array, rank: Array, count: Array) -> Array:
    """Draws int32 from the mass that the first level leaves over.

    Args:
      alias: The second level's tables.
      seed: int64[2].
      rank: Ranks of the draws, from 0 to before `count`; int32 [n].
      count: int32 scalar.
    """
    nx = arrays.of(seed)
    own = randomness.fold_in(seed, seed_domains.AliasDomain.COLUMNS)
    word = nx.words_at(own, rank, count)
    column = nx.bitcast(nx.bitwise_and(word, (1 << alias.bits) - 1), np.int32)
    high = nx.bitcast(nx.right_shift(word, alias.bits), np.int32)
    threshold = nx.take(nx.table(alias.thresholds), column)
    own = randomness.fold_in(seed, seed_domains.AliasDomain.LOW_BITS)

    def by_low_bits(pick: Any, rank: Array, count: Array) -> Array:
        places = nx.concatenate([rank, rank + count], 0)
        low = nx.reshape(nx.words_at(own, places, 2 * count, np.int64), [2, -1])
        limit = nx.take(nx.table(alias.low_thresholds), pick(column), axis=1)
        is_even = nx.equal(low[0], limit[0])
        return (low[0] < limit[0]) | (is_even & (low[1] < limit[1]))

    # One draw in 2**17 or so is not decided by these bits.
    is_own = nx.replaced(high < threshold, nx.equal(high, threshold), by_low_bits)
    place = 2 * column + nx.asarray(is_own, np.int32)
    return nx.take(nx.table(alias.outcomes), place)


class DiscreteGaussian:
    """Draws integers from N_Z(0, s^2).

    Attributes:
      stddev: s, the parameter; at 1 or more the standard deviation to 1e-7.
      parts: One to three independent parts that are added.
      distance: Upper bound on the total variation distance of a draw to N_Z(0, s^2); n
        draws are within n times this.
    """

    def __init__(self, stddev: float):
        """Builds the tables, in about a second, or reuses equal ones.

        The parameter may be any real number from 1/8 to 2**24, and is used exactly.

        Raises:
          ValueError: If it is out of range.
        """
        self.stddev = checks.real("stddev", stddev, at_least=SMALLEST, at_most=LARGEST)
        self.parts, self.distance = tables.parts_of(self.stddev)

    def sample(self, seed: Array, length: int) -> Array:
        """Draws int32[length] independently, as a function of the seed."""
        own = randomness.fold_in(seed, seed_domains.DrawDomain.TABLES)
        halves = _sixteen_bits(own, length, len(self.parts))
        drawn = []
        for i, (part, half) in enumerate(zip(self.parts, halves)):
            own = randomness.fold_in(seed, seed_domains.DrawDomain.SECOND_LEVEL + i)
            drawn.append(_looked_up(part, half, FURTHER, own))
        return functools.reduce(operator.add, drawn)


def _looked_up(table: tables.Table, half: Array, further: int, own: Array) -> Array:
    """Outcomes by sixteen bits, int32[n], and where they are `further` by more."""
    nx = arrays.of(half)
    drawn = nx.take(nx.table(table.first), half)
    return nx.replaced(
        drawn,
        nx.equal(drawn, further),
        lambda pick, rank, count: look_further(table.alias, own, rank, count),
        table.further_share,
    )


def _sixteen_bits(seed: Array, length: int, parts: int) -> list[Array]:
    """Draws int32[length] in [0, 2**16) for each part, from the fewest words."""
    nx = arrays.of(seed)
    count = length * (parts // 2) + (length + 1) // 2 * (parts % 2)
    words = nx.random_words(seed, count)
    low = nx.bitcast(nx.bitwise_and(words, (1 << FIRST_BITS) - 1), np.int32)
    high = nx.bitcast(nx.right_shift(words, FIRST_BITS), np.int32)
    if parts == 2:
        return [low, high]
    last = slice(length * (parts // 2), None)
    return [
        *(half[:length] for half in (low, high) if parts > 2),
        nx.concatenate([low[last], high[last]])[:length],
    ]


# Below this radius pairs have at most 2**16 outcomes.
_PAIR_RADIUS = 1 << 7
# Tables of more columns would take seconds to build.
_LARGEST_RADIUS = 1 << 16
# The entry for 'look further' in the first level, a pair of 0 and -2**15.
_FURTHER_SHARES = -(1 << 31)
# Denominator of normal numbers; 14 of its multiples are exact in float32.
GRID = 1 << 18
# Parameter of their distribution, for the variance 1 + 4 / 2**36: with it a number has
# the law of a normal one, rounded at random; see docs/privacy/integer_release.md.
GRID_STDDEV = GRID + 2 / GRID


def standard_normal(seed: Array, length: int) -> Array:
    """Independent N(0, 1) on a grid, float32[length], the same in each library.

    They are integers of a discrete Gaussian divided by 2**18, so that they have the
    tails of N(0, 1): a float32 sampler has none beyond 5.7.
    """
    drawn = discrete_gaussian_noise(GRID_STDDEV).sample(seed, length)
    return arrays.of(drawn).asarray(drawn, np.float32) / np.float32(GRID)


class Sampler(Protocol):
    """Draws independent integers of one distribution.

    Attributes:
      distance: Upper bound on the total variation distance of a draw to the
        distribution; n draws are within n times this.
    """

    distance: float

    def sample(self, seed: Array, length: int) -> Array:
        """Draws int32[length] as a function of the seed, int64[2]."""


class TableNoise:
    """Draws from a distribution by one lookup for each integer, or for each two.

    Attributes:
      distance: See `Sampler`.
      is_paired: Whether an entry of the table holds two integers.
      table: Both levels; a pair (x, y) is stored as x + 2**16 y, reduced to 32 bits.
    """

    def __init__(self, law: tables.SymmetricLaw):
        """Builds the table of a distribution, mostly in less than a second."""
        values = np.arange(-law.radius, law.radius + 1)
        probabilities = law.probabilities
        self.is_paired = law.radius < _PAIR_RADIUS
        if self.is_paired:
            with decimal.localcontext() as context:
                context.prec = tables.PRECISION
                # Two independent draws, row after row.
                probabilities = [p * q for p in probabilities for q in probabilities]
            # The low half as it is in memory: 16 bits, negative or not.
            values = np.add.outer(values << 16, values & 0xFFFF).reshape(-1)
        beyond = (1 + self.is_paired) * law.beyond
        self.table = tables.build(values, probabilities, beyond, _FURTHER_SHARES)
        self.distance = self.table.distance

    def sample(self, seed: Array, length: int) -> Array:
        """Draws int32[length] independently, as a function of the seed."""
        nx = arrays.of(seed)
        count = (length + 1) // 2 if self.is_paired else length
        own = randomness.fold_in(seed, seed_domains.DrawDomain.TABLES)
        words = nx.random_words(own, (count + 1) // 2)
        own = randomness.fold_in(seed, seed_domains.DrawDomain.SECOND_LEVEL)
        half = nx.halves(words)[:count]
        drawn = _looked_up(self.table, half, _FURTHER_SHARES, own)
        if not self.is_paired:
            return drawn
        return nx.signed_halves(drawn)[:length]


@functools.lru_cache(maxsize=32)
def discrete_gaussian_noise(stddev: float) -> Sampler:
    """A sampler of N_Z(0, s^2).

    The parameter s, above 0 and at most 2**24, is used exactly. At 1 or more it is the
    standard deviation to 1e-7.
    """
    if stddev > ONE_TABLE:
        return DiscreteGaussian(stddev)
    return TableNoise(tables.discrete_gaussian(Fraction(stddev) ** 2))


@functools.lru_cache(maxsize=32)
def skellam_noise(stddev: float) -> Sampler:
    """A sampler of differences of two Poisson variables.

    The square of the standard deviation, above 0, is used exactly.

    Raises:
      ValueError: If it is above about 4800, for which no table is wide enough.
    """
    law = tables.skellam(Fraction(stddev) ** 2)
    most = stddev * _LARGEST_RADIUS / law.radius
    wanted = f"at most {most:.4g} steps for Skellam noise, by a coarser grid"
    checks.require(law.radius < _LARGEST_RADIUS, "stddev", wanted, stddev)
    return TableNoise(law)


NOISE: dict[str, Callable[[float], Sampler]] = {
    "discrete_gaussian": discrete_gaussian_noise,
    "skellam": skellam_noise,
}


class Shares:
    """Shares of integer noise, many of which make up the noise of a round's sum."""

    def __init__(self, kind: str, stddev: float):
        """Makes shares of a kind, "discrete_gaussian" or "skellam".

        The `stddev` of one share is in grid steps; zero means no noise.
        """
        self._sampler: Optional[Sampler] = None
        if stddev:
            self._sampler = NOISE[kind](stddev)

    def sample(self, seed: Array, domain: int, number: int, length: int) -> Array:
        """The sum of `number` shares, int32[length].

        Args:
          seed: int64[2], secret.
          domain: Domain of the seed.
          number: Number of shares; zeros for 0.
          length: Length of the vector.
        """
        nx, sampler = arrays.of(seed), self._sampler
        total = nx.zeros([length], np.int32)
        if sampler is None or not number:
            return total
        if number == 1:
            return sampler.sample(randomness.fold_in(seed, domain), length)

        def add_share(share: Array, total: Array) -> tuple[Array]:
            own = randomness.fold_in(seed, domain, share)
            return (total + sampler.sample(own, length),)

        return nx.fori_loop(0, number, add_share, total)[0]
