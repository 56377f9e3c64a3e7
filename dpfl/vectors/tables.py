# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tables from which outcomes are drawn by random bits, with no floating point between.

A table is in two levels. 16 random bits choose one of 2**16 entries, of which outcome x
has floor(2**16 P(x)). The few entries that are left over stand for 'look further': then
Walker's alias method draws from what the rounding down has left of each probability,
with 160 bits, of which all but 32 are drawn only in the case that they decide.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from dpfl import purposes
from dpfl.vectors import laws, randomness

# Bits that choose an entry of the first level.
FIRST_BITS = 16
# Of the 160 bits of the alias method, those drawn at once.
_WORD_BITS = 32
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
    distance: decimal.Decimal


def build(
    outcomes: np.ndarray,
    probabilities: Sequence[decimal.Decimal],
    common: int,
    further: int,
) -> Table:
    """Returns the table of given probabilities.

    Args:
      outcomes: int32[k], different from each other.
      probabilities: k of them, to `laws.PRECISION` digits; their sum is 1 or a little
        less.
      common: Index of the outcome that gets what is missing, of the sum and by rounding
        down to units of 2**-160 of what the first level leaves over; a likely one.
      further: int32 that is no outcome, which is to stand for 'look further'.
    """
    entries = 1 << FIRST_BITS
    with decimal.localcontext() as context:
        context.prec = laws.PRECISION
        scaled = [p * entries for p in probabilities]
        counts = [int(value) for value in scaled]
        # An entry at least, where one outcome is certain to all digits.
        counts[common] -= sum(counts) == entries
        left = entries - sum(counts)
        unit = decimal.Decimal(1 << _ALIAS_BITS) / left
        weights = [int((value - n) * unit) for value, n in zip(scaled, counts)]
        lost = (1 << _ALIAS_BITS) - sum(weights)
        weights[common] += lost
        distance = decimal.Decimal(lost) / unit / entries
    first = np.append(np.repeat(outcomes, counts), np.full(left, further))
    return Table(first.astype(np.int32), alias_tables(outcomes, weights), distance)


def alias_tables(values: np.ndarray, weights: list[int]) -> Alias:
    """Returns Walker's tables (Vose 1991) of weights that sum to 2**160, exactly."""
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
    """Returns int32[count] from what the first level leaves over."""
    word = random_bits(
        randomness.fold_in(seed, purposes.Alias.COLUMNS), [count], tf.uint32
    )
    column = tf.bitwise.bitwise_and(word, (1 << alias.bits) - 1)
    column = tf.bitcast(column, tf.int32)
    high = tf.bitcast(tf.bitwise.right_shift(word, alias.bits), tf.int32)
    threshold = tf.gather(tf.constant(alias.thresholds), column)
    is_own = high < threshold
    # One draw in 2**17 or so is not decided by these bits.
    ties = tf.where(tf.equal(high, threshold))
    low = random_bits(
        randomness.fold_in(seed, purposes.Alias.LOW_BITS),
        tf.stack([2, tf.shape(ties)[0]]),
        tf.int64,
    )
    limit = tf.gather(
        tf.constant(alias.low_thresholds), tf.gather(column, ties[:, 0]), axis=1
    )
    # In the graphs that TFF builds `==` would compare the tensors' identities.
    is_even = tf.equal(low[0], limit[0])
    is_below = (low[0] < limit[0]) | (is_even & (low[1] < limit[1]))
    is_own = tf.tensor_scatter_nd_update(is_own, ties, is_below)
    return tf.gather(
        tf.constant(alias.outcomes), 2 * column + tf.cast(is_own, tf.int32)
    )


def random_bits(seed: tf.Tensor, shape: Any, dtype: tf.DType) -> tf.Tensor:
    """Returns integers of whose bits each is fair and independent."""
    return tf.random.stateless_uniform(
        shape, seed, minval=None, maxval=None, dtype=dtype, alg="philox"
    )
