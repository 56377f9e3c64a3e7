# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The array operations that a stream of noise needs, and their numpy version.

A stream is written once, with operators that arrays and tensors share and the few
functions of `Arrays`. `dpfl.noise_streams.tensors` has TensorFlow's version.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpfl import seed_domains
from dpfl.arrays import philox
from dpfl.vectors import integer_tables

# float32[d], an array or a tensor.
Vector = Any
# An index: a whole number, or an int32 tensor.
Index = Any
# A structure of vectors, in tuples.
Memory = Any
# Function from the index of a row of Z to the row.
Draw = Callable[[Index], Vector]

# Denominator of the entries of Z; 14 of its multiples are exact in float32.
GRID = 1 << 18
# Parameter of their distribution, for the variance 1 + 4 / 2**36: with it an entry has
# the law of a normal number, rounded at random; see docs/privacy/integer_release.md.
GRID_STDDEV = GRID + 2 / GRID
# Columns of a block, 128 KiB of a vector.
_COLUMNS = 1 << 15


class Arrays(abc.ABC):
    """Array operations, and the rows of Z, each a function of its own seed."""

    @abc.abstractmethod
    def seed(self, seed: Any) -> Any:
        """A seed as int64[2]."""

    @abc.abstractmethod
    def index(self, value: Any) -> Index:
        """An integer as an index."""

    @abc.abstractmethod
    def zeros(self, *shape: int) -> Vector:
        """Zeros, float32, of a shape."""

    @abc.abstractmethod
    def least(self, index: Index, most: int) -> Index:
        """The smaller of the index and `most`."""

    @abc.abstractmethod
    def at(self, table: np.ndarray, place: Index) -> Any:
        """An entry, or a row, of a constant table."""

    @abc.abstractmethod
    def part(self, table: Any, begins: Sequence[Index], shape: Sequence[int]) -> Any:
        """A slice of a table from `constant`.

        Args:
          table: The table.
          begins: The begin of the slice along each axis.
          shape: The sizes of the slice.
        """

    @abc.abstractmethod
    def constant(self, table: np.ndarray) -> Any:
        """A large table, stored once however often it is used."""

    @abc.abstractmethod
    def with_row(self, rows: Any, place: Index, row: Vector) -> Any:
        """Replaces one row.

        Args:
          rows: float32[R, d].
          place: Index of the row.
          row: float32[d], the new row.
        """

    @abc.abstractmethod
    def minus_weighted(
        self, total: Vector, weights: Any, vectors: Sequence[Vector]
    ) -> Vector:
        """Subtracts weights[k] vectors[k] from a vector, in the order of k.

        Each product is rounded before it is subtracted, whatever the library.

        Args:
          total: float32[d].
          weights: float32[K].
          vectors: K vectors, float32[d].
        """

    @abc.abstractmethod
    def either(self, condition: Any, then: Callable, other: Callable) -> Any:
        """Evaluates one of two branches, as `tf.cond` does.

        Args:
          condition: A bool, or a bool scalar.
          then: Function of no arguments, for True.
          other: Function of no arguments, for False.
        """

    @abc.abstractmethod
    def loop(self, begin: Index, end: Index, body: Callable, *carried: Any) -> Any:
        """Updates `carried` by `body` for each index from `begin` to before `end`.

        Args:
          begin: The first index.
          end: The exclusive last index.
          body: Function from an index and the carried values to their new values.
          *carried: The initial values.
        """

    @abc.abstractmethod
    def checked(self, row: Index, rounds: int) -> Index:
        """The row's index; raises an error of the library if there is no such row."""

    @abc.abstractmethod
    def row_seed(self, seed: Any, index: Index) -> Any:
        """The seed of row `index`, int64[2], if all rows follow from one seed."""

    @abc.abstractmethod
    def normal(self, row_seed: Any, length: int) -> Vector:
        """A row of Z from its own seed: float32[length], independent N(0, 1) on a grid.

        The entries are integers of a discrete Gaussian divided by 2**18, so that they
        have the tails of N(0, 1): a float32 sampler has none beyond 5.7.
        """

    @abc.abstractmethod
    def rows(self, draw: Draw, begin: Index, number: int, length: int) -> Any:
        """Rows of Z from `begin` on: float32[number, length].

        Args:
          draw: Function from the index of a row to the row.
          begin: Index of the first row.
          number: Number of rows.
          length: Length of a row.
        """


class InNumpy(Arrays):
    """Array operations in numpy, with the same integers for Z as in TensorFlow."""

    def seed(self, seed: Any) -> np.ndarray:
        """See base class."""
        return np.asarray(seed, np.int64)

    def index(self, value: Any) -> int:
        """See base class."""
        return int(value)

    def zeros(self, *shape: int) -> np.ndarray:
        """See base class."""
        return np.zeros(shape, np.float32)

    def least(self, index: int, most: int) -> int:
        """See base class."""
        return min(index, most)

    def at(self, table: np.ndarray, place: int) -> Any:
        """See base class."""
        return table[place]

    def part(self, table: Any, begins: Sequence[int], shape: Sequence[int]) -> Any:
        """See base class."""
        return table[tuple(slice(b, b + n) for b, n in zip(begins, shape))]

    def constant(self, table: np.ndarray) -> np.ndarray:
        """See base class."""
        return table

    def with_row(self, rows: np.ndarray, place: int, row: np.ndarray) -> np.ndarray:
        """See base class."""
        rows = rows.copy()
        rows[place] = row
        return rows

    def minus_weighted(
        self, total: np.ndarray, weights: Any, vectors: Sequence[np.ndarray]
    ) -> np.ndarray:
        """See base class; each block of columns stays in the cache through all k."""
        total = total.copy()
        for begin in range(0, len(total), _COLUMNS):
            block = total[begin : begin + _COLUMNS]
            product = np.empty_like(block)
            for weight, vector in zip(weights, vectors):
                columns = vector[begin : begin + _COLUMNS]
                block -= np.multiply(columns, weight, out=product)
        return total

    def either(self, condition: bool, then: Callable, other: Callable) -> Any:
        """See base class."""
        return then() if condition else other()

    def loop(self, begin: int, end: int, body: Callable, *carried: Any) -> Any:
        """See base class."""
        for index in range(begin, end):
            carried = body(index, *carried)
        return carried

    def checked(self, row: int, rounds: int) -> int:
        """Raises IndexError if there is no such row."""
        if row >= rounds:
            raise IndexError(f"the noise stream has only {rounds} rows")
        return row

    def row_seed(self, seed: np.ndarray, index: int) -> np.ndarray:
        """See base class."""
        return philox.fold_in(seed, seed_domains.NoiseStreamDomain.NORMALS, index)

    def normal(self, row_seed: np.ndarray, length: int) -> np.ndarray:
        """See base class."""
        return grid_integers(row_seed, length).astype(np.float32) / np.float32(GRID)

    def rows(self, draw: Draw, begin: int, number: int, length: int) -> np.ndarray:
        """See base class."""
        return np.stack([draw(row) for row in range(begin, begin + number)])


def grid_integers(seed: np.ndarray, length: int) -> np.ndarray:
    """Draws int32[length] of `GRID_STDDEV`, bit for bit as `DiscreteGaussian` does."""
    parts, _ = integer_tables.parts_of(GRID_STDDEV)
    # A grid of 2**18 takes two tables, and each word has an entry of both.
    words = philox.random_words(
        philox.fold_in(seed, seed_domains.DrawDomain.TABLES), length
    )
    bits = integer_tables.FIRST_BITS
    halves = [words & np.uint32((1 << bits) - 1), words >> np.uint32(bits)]
    drawn = sum(np.take(part.first, half) for part, half in zip(parts, halves))
    [places] = np.nonzero(drawn >= integer_tables.LARGEST_DRAW)
    resolved = np.zeros(len(places), np.int32)
    for i, (part, half) in enumerate(zip(parts, halves)):
        values = part.first[half[places]]
        further = values == integer_tables.FURTHER
        own = philox.fold_in(seed, seed_domains.DrawDomain.SECOND_LEVEL + i)
        values[further] = _look_further(part.alias, own, np.count_nonzero(further))
        resolved += values
    drawn[places] = resolved
    return drawn


def _look_further(alias: integer_tables.Alias, seed: Any, count: int) -> np.ndarray:
    """Draws int32[count] from the mass that the first level leaves over."""
    words = philox.random_words(
        philox.fold_in(seed, seed_domains.AliasDomain.COLUMNS), count
    )
    column = (words & np.uint32((1 << alias.bits) - 1)).astype(np.int64)
    high = (words >> np.uint32(alias.bits)).astype(np.int64)
    threshold = alias.thresholds[column]
    is_own = high < threshold
    [ties] = np.nonzero(high == threshold)
    own = philox.fold_in(seed, seed_domains.AliasDomain.LOW_BITS)
    words = philox.random_words(own, 4 * len(ties))
    low = words.astype("<u4").view("<i8").reshape(2, -1)
    limit = alias.low_thresholds[:, column[ties]]
    is_even = low[0] == limit[0]
    is_own[ties] = (low[0] < limit[0]) | (is_even & (low[1] < limit[1]))
    return alias.outcomes[2 * column + is_own]
