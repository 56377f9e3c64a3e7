# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Distributions on the integers to 120 digits, and exact tables to sample them.

    law = discrete_gaussian(Fraction(9))   # law.probabilities of -R, ..., R
    tables, distance = parts_of(stddev)    # to draw from, and their distance to it

`integer_noise` draws from the tables.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

# Digits of the probabilities, and of all that is computed from them.
PRECISION = 120
# Integers of probability below about exp(-90) of the largest are left out.
_LOG_TAIL = 90
# Further decay to where the Skellam recurrence begins, so that the influence of its
# starting values is below 1e-120 within the radius.
_LOG_BEGINNING = _LOG_TAIL + 140


class SymmetricLaw(NamedTuple):
    """A distribution on the integers that is symmetric about zero.

    Attributes:
      probabilities: The probabilities of -R, ..., R.
      beyond: Upper bound on the probability of all other integers.
    """

    probabilities: list[decimal.Decimal]
    beyond: decimal.Decimal

    @property
    def radius(self) -> int:
        """The radius R."""
        return len(self.probabilities) // 2


def discrete_gaussian(variance: Fraction) -> SymmetricLaw:
    """The discrete Gaussian N_Z(0, s^2), of weight exp(-k^2 / (2 s^2)) at k.

    The ratio of neighbours is multiplied by exp(-1/variance) from each to the next; the
    relative errors of 1e-120 an operation add up to less than R^2 of them.
    """
    radius = math.ceil(math.sqrt(2 * _LOG_TAIL * variance))
    with decimal.localcontext() as context:
        context.prec = PRECISION
        inverse = decimal.Decimal(variance.denominator) / variance.numerator
        ratio, factor = (-inverse / 2).exp(), (-inverse).exp()
        terms = [decimal.Decimal(1)]
        for _ in range(radius):
            terms.append(terms[-1] * ratio)
            ratio *= factor
        return _normalized(terms, ratio)


def skellam(variance: Fraction) -> SymmetricLaw:
    """The Skellam distribution: exp(-mu) I_|k|(mu) at k, a difference of two Poissons.

    The ratios I_k / I_(k-1) = 1 / (2 k / mu + I_(k+1) / I_k) are computed downwards:
    all terms are positive, and an error shrinks by the square of each ratio.
    """
    begin = math.ceil(math.sqrt(2 * _LOG_BEGINNING * variance)) + 2 * _LOG_BEGINNING
    with decimal.localcontext() as context:
        context.prec = PRECISION
        mu = decimal.Decimal(variance.numerator) / variance.denominator
        ratios = [decimal.Decimal(0)]
        for k in range(begin, 0, -1):
            ratios.append(1 / (2 * k / mu + ratios[-1]))
        terms, least = [decimal.Decimal(1)], decimal.Decimal(-_LOG_TAIL).exp()
        while terms[-1] > least or len(terms) < 2:
            terms.append(terms[-1] * ratios.pop())
        return _normalized(terms, ratios[-1])


def _normalized(terms: list[decimal.Decimal], ratio: decimal.Decimal) -> SymmetricLaw:
    """The distribution of weights at 0, ..., R; `ratio` is that of R + 1 to R.

    Beyond R the weights fall faster than by that ratio.
    """
    total = 2 * sum(terms) - 1
    half = [term / total for term in terms]
    beyond = 2 * half[-1] * ratio / (1 - ratio)
    return SymmetricLaw(half[:0:-1] + half, beyond)


# Bits that choose an entry of the first level, and those of the alias method.
FIRST_BITS = 16
_ALIAS_BITS = 160


class Alias(NamedTuple):
    """Walker's alias tables with 2**bits columns, which sample in constant time.

    Attributes:
      bits: Number of bits that choose a column.
      thresholds: int32[columns], the leading 32 - bits bits of the threshold; a column
        that is its own outcome alone has 2**(32 - bits).
      low_thresholds: int64[2, columns], its other 128 bits, less 2**63 each.
      outcomes: int32[2 * columns], each column's alias and its own outcome.
    """

    bits: int
    thresholds: np.ndarray
    low_thresholds: np.ndarray
    outcomes: np.ndarray


class Table(NamedTuple):
    """Both levels of a sampling table.

    Attributes:
      first: int32[2**16], outcomes, or the entry for 'look further'.
      alias: The second level.
      distance: Upper bound on the total variation distance of an outcome to its
        probabilities.
      further_share: The share of the first level's entries for 'look further'.
    """

    first: np.ndarray
    alias: Alias
    distance: float
    further_share: float


def build(
    outcomes: np.ndarray,
    probabilities: Sequence[decimal.Decimal],
    beyond: decimal.Decimal,
    further: int,
) -> Table:
    """Builds the table of k different outcomes, int32[k], with given probabilities.

    The middle outcome, a likely one, gets the missing mass: that of the sum, and that
    of rounding the first level's remainders down to units of 2**-160.

    Args:
      outcomes: int32[k], the outcomes.
      probabilities: To `PRECISION` digits; their sum is 1 or a little less.
      beyond: Upper bound on the mass of other outcomes.
      further: int32 that is no outcome, the entry for 'look further'.
    """
    entries, common = 1 << FIRST_BITS, len(outcomes) // 2
    with decimal.localcontext() as context:
        context.prec = PRECISION
        scaled = [p * entries for p in probabilities]
        counts = [int(value) for value in scaled]
        # At least one entry, if one outcome is certain to all digits.
        counts[common] -= sum(counts) == entries
        left = entries - sum(counts)
        unit = decimal.Decimal(1 << _ALIAS_BITS) / left
        weights = [int((value - n) * unit) for value, n in zip(scaled, counts)]
        lost = (1 << _ALIAS_BITS) - sum(weights)
        weights[common] += lost
        distance = decimal.Decimal(lost) / unit / entries + beyond
    first = np.append(np.repeat(outcomes, counts), np.full(left, further))
    alias = alias_tables(outcomes, weights)
    bound, share = float(distance) * (1 + 1e-9), left / entries
    return Table(first.astype(np.int32), alias, bound, share)


def alias_tables(values: np.ndarray, weights: list[int]) -> Alias:
    """Walker's tables (Vose 1991) of weights that sum to 2**160, exactly."""
    bits = (len(weights) - 1).bit_length()
    columns = 1 << bits
    full = 1 << (_ALIAS_BITS - bits)
    remaining = weights + [0] * (columns - len(weights))
    thresholds, aliases = [full] * columns, list(range(columns))
    small = [i for i, weight in enumerate(remaining) if weight < full]
    large = [i for i, weight in enumerate(remaining) if weight > full]
    while small:
        low, high = small.pop(), large[-1]
        thresholds[low], aliases[low] = remaining[low], high
        remaining[high] -= full - remaining[low]
        if remaining[high] <= full:
            large.pop()
            if remaining[high] < full:
                small.append(high)
    outcomes = np.zeros(columns, np.int64)
    outcomes[: len(values)] = values
    word = (1 << 64) - 1
    low_bits = [[(t >> 64) & word for t in thresholds], [t & word for t in thresholds]]
    return Alias(
        bits,
        np.array([t >> 128 for t in thresholds], np.int32),
        (np.array(low_bits, np.uint64) ^ np.uint64(1 << 63)).view(np.int64),
        np.stack([outcomes[aliases], outcomes], 1).reshape(-1).astype(np.int32),
    )


# Largest parameters for which one table, or two, are enough.
ONE_TABLE, _TWO_TABLES = 1 << 10, 1 << 20
# Least square of s1 s2 / s where two parts are added.
_SMOOTHING_VARIANCE = 4
# The value of an entry for 'look further'; no outcome is as large.
FURTHER = 1 << 29


def decompose(
    stddev: float, one_table: float = ONE_TABLE
) -> list[tuple[int, Fraction]]:
    """Multiples m_i and variances v_i with sum_i m_i^2 v_i = stddev^2 exactly.

    The finest part is first, and the parameters are about equal.

    Args:
      stddev: The parameter s.
      one_table: Largest parameter for which one part is enough.
    """
    variance = Fraction(stddev) ** 2
    levels = 1 + (stddev > one_table) + (stddev > _TWO_TABLES)
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
    """A bound on the total variation between exact parts' sum and N_Z(0, s^2).

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
def parts_of(stddev: float) -> tuple[list[Table], float]:
    """One to three tables to be added, and their distance to N_Z(0, stddev^2)."""
    pairs = decompose(stddev)
    parts = [build_part(multiple, variance) for multiple, variance in pairs]
    distance = smoothing_distance(pairs) + sum(part.distance for part in parts)
    return parts, distance * (1 + 1e-9)


@functools.lru_cache(maxsize=64)
def build_part(multiple: int, variance: Fraction) -> Table:
    """The tables of N_Z(0, variance) times an integer."""
    law = discrete_gaussian(variance)
    values = np.arange(-law.radius, law.radius + 1) * multiple
    return build(values, law.probabilities, law.beyond, FURTHER)
