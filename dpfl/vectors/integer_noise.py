# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Integer noise drawn from exact tables of its law, alone or in shares."""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from dpfl import checks, purposes
from dpfl.vectors import randomness

# Digits of the probabilities, and of all that is computed from them.
PRECISION = 120
# Integers of probability below about exp(-90) of the largest are left out.
_LOG_TAIL = 90
# Where the recurrence of the Skellam law begins its probabilities are so much smaller
# again that what it begins with is forgotten to 1e-120 within the law.
_LOG_BEGINNING = _LOG_TAIL + 140


class Law(NamedTuple):
    """A law on the integers that is symmetric about zero.

    Attributes:
      probabilities: Those of -R, ..., R.
      beyond: The probability of all other integers, from above.
    """

    probabilities: list[decimal.Decimal]
    beyond: decimal.Decimal

    @property
    def radius(self) -> int:
        """R."""
        return len(self.probabilities) // 2


def discrete_gaussian(variance: Fraction) -> Law:
    """N_Z(0, s^2), of weight exp(-k^2 / (2 s^2)) at k.

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


def skellam(variance: Fraction) -> Law:
    """exp(-mu) I_|k|(mu) at k, of the difference of two Poisson variables.

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


def _normalized(terms: list[decimal.Decimal], ratio: decimal.Decimal) -> Law:
    """The law of weights at 0, ..., R, and of 0 at R + 1 over that at R.

    Beyond, weights fall faster than by that ratio.
    """
    total = 2 * sum(terms) - 1
    half = [term / total for term in terms]
    beyond = 2 * half[-1] * ratio / (1 - ratio)
    return Law(half[:0:-1] + half, beyond)


# Bits that choose an entry of the first level, and those of the alias method.
_FIRST_BITS = 16
_ALIAS_BITS = 160


class Alias(NamedTuple):
    """Walker's tables of 2**bits columns.

    Attributes:
      bits: How many bits choose a column.
      thresholds: int32[columns], the leading 32 - bits bits of the threshold; a column
        that is its own outcome alone has 2**(32 - bits).
      low_thresholds: int64[2, columns], its other 128 bits, less 2**63 each.
      outcomes: int32[2 * columns], of each column the alias and the own outcome.
    """

    bits: int
    thresholds: np.ndarray
    low_thresholds: np.ndarray
    outcomes: np.ndarray


class Table(NamedTuple):
    """Both levels.

    Attributes:
      first: int32[2**16], outcomes, or what stands for 'look further'.
      alias: The second level.
      distance: Total variation distance of an outcome to its probabilities, from above.
    """

    first: np.ndarray
    alias: Alias
    distance: float


def build(
    outcomes: np.ndarray,
    probabilities: Sequence[decimal.Decimal],
    beyond: decimal.Decimal,
    further: int,
) -> Table:
    """The table of given probabilities, k for int32[k] different outcomes.

    The outcome in the middle, a likely one, gets what is missing, of the sum and by
    rounding down to units of 2**-160 of what the first level leaves over.

    Args:
      outcomes: What is drawn.
      probabilities: To `PRECISION` digits; their sum is 1 or a little less.
      beyond: What other outcomes should have had, from above.
      further: int32 that is no outcome, which is to stand for 'look further'.
    """
    entries, common = 1 << _FIRST_BITS, len(outcomes) // 2
    with decimal.localcontext() as context:
        context.prec = PRECISION
        scaled = [p * entries for p in probabilities]
        counts = [int(value) for value in scaled]
        # An entry at least, where one outcome is certain to all digits.
        counts[common] -= sum(counts) == entries
        left = entries - sum(counts)
        unit = decimal.Decimal(1 << _ALIAS_BITS) / left
        weights = [int((value - n) * unit) for value, n in zip(scaled, counts)]
        lost = (1 << _ALIAS_BITS) - sum(weights)
        weights[common] += lost
        distance = decimal.Decimal(lost) / unit / entries + beyond
    first = np.append(np.repeat(outcomes, counts), np.full(left, further))
    alias = alias_tables(outcomes, weights)
    return Table(first.astype(np.int32), alias, float(distance) * (1 + 1e-9))


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


def look_further(alias: Alias, seed: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """int32[count] from what the first level leaves over."""
    own = randomness.fold_in(seed, purposes.Alias.COLUMNS)
    word = randomness.random_bits(own, [count], tf.uint32)
    column = tf.bitwise.bitwise_and(word, (1 << alias.bits) - 1)
    column = tf.bitcast(column, tf.int32)
    high = tf.bitcast(tf.bitwise.right_shift(word, alias.bits), tf.int32)
    threshold = tf.gather(tf.constant(alias.thresholds), column)
    is_own = high < threshold
    # One draw in 2**17 or so is not decided by these bits.
    ties = tf.where(tf.equal(high, threshold))
    own = randomness.fold_in(seed, purposes.Alias.LOW_BITS)
    low = randomness.random_bits(own, tf.stack([2, tf.shape(ties)[0]]), tf.int64)
    tied = tf.gather(column, ties[:, 0])
    limit = tf.gather(tf.constant(alias.low_thresholds), tied, axis=1)
    # In the graphs that TFF builds `==` would compare the tensors' identities.
    is_even = tf.equal(low[0], limit[0])
    is_below = (low[0] < limit[0]) | (is_even & (low[1] < limit[1]))
    is_own = tf.tensor_scatter_nd_update(is_own, ties, is_below)
    place = 2 * column + tf.cast(is_own, tf.int32)
    return tf.gather(tf.constant(alias.outcomes), place)


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

        The parameter, from 1/8 to 2**24, is any real number, and is taken exactly.

        Raises:
          ValueError: If it is out of range.
        """
        self.stddev = checks.real("stddev", stddev, at_least=SMALLEST, at_most=LARGEST)
        self.parts, self.distance = _build(self.stddev)

    def sample(self, seed: tf.Tensor, length: int) -> tf.Tensor:
        """int32[length], independent, a function of the seed."""
        own = randomness.fold_in(seed, purposes.Draw.TABLES)
        halves = _sixteen_bits(own, length, len(self.parts))
        firsts = [tf.constant(part.first) for part in self.parts]
        drawn = tf.gather(firsts[0], halves[0])
        for table, half in zip(firsts[1:], halves[1:]):
            drawn += tf.gather(table, half)
        # Without a flag the sum is below this, with one or more it is above.
        places = tf.where(drawn >= _LARGEST_DRAW)
        resolved = tf.zeros(tf.shape(places)[:1], tf.int32)
        for i, (part, table, half) in enumerate(zip(self.parts, firsts, halves)):
            value = tf.gather(table, tf.gather(half, places[:, 0]))
            own = randomness.fold_in(seed, purposes.Draw.SECOND_LEVEL + i)
            resolved += _resolved(value, _FURTHER, part.alias, own)
        return tf.tensor_scatter_nd_update(drawn, places, resolved)


def _resolved(drawn: tf.Tensor, further: int, alias: Alias, own: tf.Tensor) -> Any:
    """What was drawn, with an outcome in place of each `further`."""
    places = tf.where(tf.equal(drawn, further))
    rest = look_further(alias, own, tf.shape(places)[0])
    return tf.tensor_scatter_nd_update(drawn, places, rest)


def _sixteen_bits(seed: tf.Tensor, length: int, parts: int) -> list[tf.Tensor]:
    """For each part int32[length] in [0, 2**16), from the fewest words."""
    count = length * (parts // 2) + (length + 1) // 2 * (parts % 2)
    words = randomness.random_bits(seed, [count], tf.uint32)
    low = tf.bitcast(tf.bitwise.bitwise_and(words, (1 << _FIRST_BITS) - 1), tf.int32)
    high = tf.bitcast(tf.bitwise.right_shift(words, _FIRST_BITS), tf.int32)
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
    """Multiples m_i and variances v_i with sum_i m_i^2 v_i = stddev^2 exactly.

    The finest is first, and parameters are about equal. Up to `one_table` one part is
    enough, up to `two_tables` two are.
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
    """A bound of the total variation between exact parts' sum and N_Z(0, s^2).

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
def _build(stddev: float) -> tuple[list[Table], float]:
    pairs = decompose(stddev)
    parts = [build_part(multiple, variance) for multiple, variance in pairs]
    distance = smoothing_distance(pairs) + sum(part.distance for part in parts)
    return parts, distance * (1 + 1e-9)


@functools.lru_cache(maxsize=64)
def build_part(multiple: int, variance: Fraction) -> Table:
    """The tables of N_Z(0, variance) times an integer."""
    law = discrete_gaussian(variance)
    values = np.arange(-law.radius, law.radius + 1) * multiple
    return build(values, law.probabilities, law.beyond, _FURTHER)


# Below this radius pairs have at most 2**16 outcomes.
_PAIR_RADIUS = 1 << 7
# Tables of more columns would take seconds to build.
_LARGEST_RADIUS = 1 << 16
# What stands for 'look further' in the first level: a pair of 0 and -2**15.
_FURTHER_SHARES = -(1 << 31)


class Sampler(Protocol):
    """Draws independent integers of one law.

    Attributes:
      distance: Total variation distance of a draw to the law, from above. Any number of
        draws adds up: n draws are within n times this.
    """

    distance: float

    def sample(self, seed: tf.Tensor, length: int) -> tf.Tensor:
        """int32[length], a function of the seed, int64[2]."""


class TableNoise:
    """Draws from a law by one lookup for each integer, or for each two.

    Attributes:
      distance: See `Sampler`.
      is_paired: Whether an entry of the table holds two integers.
      table: Both levels; of pairs (x, y) each is x + 2**16 y, reduced to 32 bits.
    """

    def __init__(self, law: Law):
        """Builds the table of a draw's law, mostly in less than a second."""
        values = np.arange(-law.radius, law.radius + 1)
        probabilities = law.probabilities
        self.is_paired = law.radius < _PAIR_RADIUS
        if self.is_paired:
            with decimal.localcontext() as context:
                context.prec = PRECISION
                # Two independent draws, row after row.
                probabilities = [p * q for p in probabilities for q in probabilities]
            # The low half as it is in memory: 16 bits, negative or not.
            values = np.add.outer(values << 16, values & 0xFFFF).reshape(-1)
        beyond = (1 + self.is_paired) * law.beyond
        self.table = build(values, probabilities, beyond, _FURTHER_SHARES)
        self.distance = self.table.distance

    def sample(self, seed: tf.Tensor, length: int) -> tf.Tensor:
        """int32[length], independent, a function of the seed."""
        count = (length + 1) // 2 if self.is_paired else length
        own = randomness.fold_in(seed, purposes.Draw.TABLES)
        words = randomness.random_bits(own, [(count + 1) // 2], tf.uint32)
        entries = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:count]
        drawn = tf.gather(
            tf.constant(self.table.first), tf.cast(entries, tf.int32), name="first"
        )
        own = randomness.fold_in(seed, purposes.Draw.SECOND_LEVEL)
        drawn = _resolved(drawn, _FURTHER_SHARES, self.table.alias, own)
        if not self.is_paired:
            return drawn
        halves = tf.reshape(tf.bitcast(drawn, tf.int16), [-1])
        return tf.cast(halves[:length], tf.int32)


@functools.lru_cache(maxsize=32)
def discrete_gaussian_noise(stddev: float) -> Sampler:
    """A sampler of N_Z(0, s^2).

    The parameter s, above 0 and at most 2**24, is taken exactly. From 1 on it is the
    standard deviation to 1e-7.
    """
    if stddev > ONE_TABLE:
        return DiscreteGaussian(stddev)
    return TableNoise(discrete_gaussian(Fraction(stddev) ** 2))


@functools.lru_cache(maxsize=32)
def skellam_noise(stddev: float) -> Sampler:
    """A sampler of differences of two Poisson variables.

    The square of the standard deviation, above 0, is taken exactly.

    Raises:
      ValueError: If it is above 4800 or so, for which no table is wide enough.
    """
    law = skellam(Fraction(stddev) ** 2)
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
