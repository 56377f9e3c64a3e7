# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Correlated noise of any matrix, a block of rounds at a time.

A single row of K Z needs all rows of Z up to it: at d = 10^6 and row 2048 that is
2 * 10^9 normal variates, some 16 s of one processor. A block of R rows needs the same
normals once:

  P = K[t : t + R, : t] Z[: t] = sum over chunks c of K[t : t + R, c] Z[c, :],

each chunk of Z drawn afresh from its seeds and dropped after use. So a round costs the
R-th part of that pass, and the memory is R d numbers and one chunk. Rows of Z from t on
are drawn in their own round, where they take the places in the block of rows of P that
were used.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from dpfl import checks
from dpfl.arrays import in_numpy
from dpfl.factorization import factorization
from dpfl.noise_streams import stream as stream_lib
from dpfl.noise_streams.stream import Draw, Index, Memory, Vector

# Rows of a chunk of Z. A pass takes up to seven times the memory of a block: the last
# block, the next one, products and sums on their way, and chunks of so many rows of Z.
# Were they fewer, reading the block would weigh more than drawing the chunk.
_CHUNK = factorization.CHUNK_ROWS


class DenseStream(stream_lib.NoiseStream):
    """Rows of K Z for a lower-triangular K. Memory: the block of the last row taken.

    The block has rows of Z up to that row, and rows of P after it. Blocks begin at
    multiples of R whatever row a run is resumed at, so that a resumed stream has the
    same bits.
    """

    def __init__(
        self,
        matrix: np.ndarray,
        dimension: int,
        *,
        block_rounds: Optional[int] = None,
        nx: Any = in_numpy,
    ):
        """Initializes the stream.

        Args:
          matrix: K = A^-1 B, lower triangular of shape (T, T).
          dimension: d, the length of a row.
          block_rounds: R; None for `factorization.block_rounds`.
          nx: The array library.

        Raises:
          ValueError: If `block_rounds` is below 1.
        """
        super().__init__(np.diagonal(matrix), dimension, nx)
        rounds = self.rounds
        if block_rounds is None:
            block_rounds = factorization.block_rounds(rounds, dimension)
        block_rounds = checks.integer("block_rounds", block_rounds)
        self.block_rounds = min(block_rounds, rounds)
        self._chunk = min(_CHUNK, rounds)
        block = np.arange(rounds) // self.block_rounds
        is_own = block[:, np.newaxis] == block
        # Padded with zeros to whole blocks and chunks.
        padding = [(0, -rounds % self.block_rounds), (0, -rounds % self._chunk)]
        before = np.where(is_own, 0, matrix)
        self._before = np.pad(before, padding).astype(np.float32)
        self._within = _within(matrix, self.block_rounds)

    def initial_memory(self) -> Memory:
        """A block of zeros, which row 0 does not read."""
        return self.nx.zeros([self.block_rounds, self.dimension], np.float32)

    def memory_before(self, draw: Draw, row: Index) -> Memory:
        """See base class; computes the block of the row, unless `past` will."""
        place = row % self.block_rounds
        matrix = self.nx.shared_table(self._before)
        block = self.nx.cond(
            place > 0, lambda: self._block(draw, row, matrix), self.initial_memory
        )
        [block] = self.nx.fori_loop(
            0,
            place,
            lambda k, rows: (self.nx.with_row(rows, k, draw(row - place + k)),),
            block,
        )
        return block

    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class; every R-th call does the work of R."""
        place = row % self.block_rounds
        matrix = self.nx.shared_table(self._before)
        block = self.nx.cond(
            place < 1, lambda: self._block(draw, row, matrix), lambda: memory
        )
        weights = self._at(self._within, row)
        return self.nx.matmul(weights[np.newaxis], block)[0], block

    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """See base class."""
        return self.nx.with_row(memory, row % self.block_rounds, z)

    def _block(self, draw: Draw, row: Index, matrix: Any) -> Any:
        """The rows of P of the block that holds `row`, float32[R, d]."""
        first = row - row % self.block_rounds
        shape = [self.block_rounds, self._chunk]

        def body(chunk: Index, total: Any) -> tuple[Any]:
            begin = chunk * self._chunk
            z = self._rows(draw, begin)
            part = self.nx.slice_at(matrix, [first, begin], shape)
            return (total + self.nx.matmul(part, z),)

        # The block's own columns are zero in the matrix.
        chunks = (first + self._chunk - 1) // self._chunk
        [block] = self.nx.fori_loop(0, chunks, body, self.initial_memory())
        return block

    def _rows(self, draw: Draw, begin: Index) -> Any:
        """A chunk of Z; rows after the last, of weight zero, repeat the last."""
        rows = self.nx.minimum(begin + self.nx.arange(self._chunk), self.rounds - 1)
        return self.nx.map_rows(draw, rows, self.dimension)


def _within(matrix: np.ndarray, block: int) -> np.ndarray:
    """Weights of a block's rows in each row, float32[T, R]: K, and 1 for rows of P."""
    weights = np.zeros((len(matrix), block), np.float32)
    for row in range(len(matrix)):
        place = row % block
        weights[row, :place] = matrix[row, row - place : row]
        weights[row, place] = 1
    return weights
