# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Correlated noise of an encoder C with a small memory: A^-1 B = C^-1.

    rows = rows_of_columns(factorization.factors.diagonals)
    stream = BandedStream(rows, dimension)
    noise, state = stream.next(stream.init(seed))

`build_stream` chooses among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl import factorization as fact
from dpfl.arrays import in_numpy
from dpfl.noise_streams import stream as stream_lib
from dpfl.noise_streams.stream import Draw, Index, Memory, Vector


class BandedStream(stream_lib.NoiseStream):
    """Rows of C^-1 Z where C has h diagonals.

    Y = C^-1 Z obeys (Choquette-Choo et al. 2023, Algorithm 9)

      y_t = (z_t - sum_{1 <= k < h} C[t, t - k] y_{t - k}) / C[t, t],

    so only the last h - 1 rows are remembered. Memory: a tuple of them, the newest
    first. It is a tuple and not a ring buffer, so that a step moves references and
    copies nothing.
    """

    def __init__(
        self,
        diagonals: np.ndarray,
        dimension: int,
        *,
        nx: Any = in_numpy,
    ):
        """Initializes the stream.

        Args:
          diagonals: C[t, t - k] at [t, k], zero for k > t, shape (T, h).
          dimension: d, the length of a row.
          nx: The array library.
        """
        super().__init__(1 / diagonals[:, 0], dimension, nx)
        self._bands = diagonals.shape[1]
        self.has_memory = self._bands > 1
        self._weights = (diagonals[:, 1:] / diagonals[:, :1]).astype(np.float32)

    def initial_memory(self) -> Memory:
        """Zero rows."""
        return self._zeros(self._bands - 1)

    def memory_before(self, draw: Draw, row: Index) -> Memory:
        """See base class; independent rows leave nothing to step through."""
        return super().memory_before(draw, row) if self.has_memory else ()

    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class."""
        weights = self._at(self._weights, row)
        [zeros] = self._zeros(1)
        return self.nx.minus_weighted(zeros, weights, memory), memory

    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """See base class."""
        return ((noise,) + tuple(memory))[: self._bands - 1]


def rows_of_columns(columns: np.ndarray) -> np.ndarray:
    """Converts C[j + k, j] at [j, k] to C[t, t - k] at [t, k], both (T, h)."""
    rounds, bands = columns.shape
    rows = np.zeros_like(columns)
    for k in range(bands):
        rows[k:, k] = columns[: rounds - k, k]
    return rows


class BufferedStream(stream_lib.NoiseStream):
    """Rows of C^-1 Z where C is a buffered linear Toeplitz matrix.

    With the decays theta and scales omega of C^-1, r_0 = 0 (McMahan et al. 2024):

      y_t = z_t + sum_i omega_i r_t^i,   r_{t+1}^i = theta_i r_t^i + z_t.

    Memory: float32[buffers, d].
    """

    def __init__(
        self,
        factors: fact.BufferedFactors,
        dimension: int,
        *,
        nx: Any = in_numpy,
    ):
        """Initializes the stream.

        Args:
          factors: theta and omega of C^-1.
          dimension: d, the length of a row.
          nx: The array library.
        """
        super().__init__(np.ones(factors.rounds), dimension, nx)
        self._decay = np.asarray(factors.inverse_decay, np.float32)[:, np.newaxis]
        self._scale = np.asarray(factors.inverse_scale, np.float32)[np.newaxis]

    def initial_memory(self) -> Memory:
        """Zero buffers."""
        return self.nx.zeros([len(self._decay), self.dimension], np.float32)

    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class."""
        return self.nx.matmul(self._scale, memory)[0], memory

    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """See base class."""
        return self.nx.product(self._decay, memory) + z


class MovingStream(stream_lib.NoiseStream):
    """Rows of C^-1 Z where C^-1 has p diagonals.

      y_t = sum_{k < p} e_k z_{t-k}

    is a weighted sum of the last p rows of Z. Memory: a tuple of the last p - 1, or
    nothing if they are drawn again in every round.
    """

    def __init__(
        self,
        weights: np.ndarray,
        rounds: int,
        dimension: int,
        *,
        redraw: bool = False,
        nx: Any = in_numpy,
    ):
        """Initializes the stream.

        Args:
          weights: e, shape (p,).
          rounds: T, the number of rows.
          dimension: d, the length of a row.
          redraw: Whether earlier rows are drawn again instead of remembered.
          nx: The array library.
        """
        super().__init__(np.full(rounds, weights[0]), dimension, nx)
        columns = np.tile(np.asarray(weights, np.float32), (rounds, 1))
        # Rows before the first are arbitrary, since their weight is zero.
        self._weights = rows_of_columns(columns)
        self._redraw = redraw

    def initial_memory(self) -> Memory:
        """Zeros for the rows before the first."""
        return self._zeros(0 if self._redraw else self._weights.shape[1] - 1)

    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class."""
        weights = self._at(self._weights, row)
        [past] = self._zeros(1)
        for k in range(1, self._weights.shape[1]):
            earlier = self._earlier(draw, row, k) if self._redraw else memory[k - 1]
            past = past + self.nx.product(weights[k], earlier)
        return past, memory

    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """See base class."""
        return ((z,) + tuple(memory))[: len(memory)]
