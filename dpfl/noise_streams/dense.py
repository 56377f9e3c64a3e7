# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Correlated noise of any matrix, a block of rounds at a time.

A single row of K Z needs all rows of Z up to it: at d = 10^6 and row 2048 that is
2 * 10^9 normal variates, some 16 s of one processor. A block of R rows needs the same
normals once:

  Y = K[t : t + R, :] Z = sum over chunks c of K[t : t + R, c] Z[c, :],

each chunk of Z drawn afresh from its seeds and dropped after use. So a round costs the
R-th part of that pass, and the memory is R d numbers and one chunk.
"""

from __future__ import annotations

import collections
from typing import Any, Optional

import numpy as np

from dpfl.factorization import factorization
from dpfl.noise_streams import stream as stream_lib
from dpfl.noise_streams.arrays import Arrays, Index, Memory, Vector

# A pass takes up to seven times the memory of a block: the last block, the next one,
# products and sums on their way, and chunks of so many rows of Z. Were they fewer,
# reading the block would weigh more than drawing the chunk.
_CHUNK = factorization.CHUNK_ROWS


class DenseStream(stream_lib.NoiseStream):
    """Rows of K Z for a matrix K. Memory: the block that holds the row just taken.

    Blocks begin at multiples of R whatever row a run is resumed at, so that a resumed
    stream has the same bits.
    """

    def __init__(
        self,
        matrix: np.ndarray,
        dimension: int,
        *,
        block_rounds: Optional[int] = None,
        arrays: Optional[Arrays] = None,
    ):
        """Takes K = A^-1 B, of shape (T, m), and R; None is `block_rounds`'s.

        Raises:
          ValueError: If `block_rounds` is below 1.
        """
        rounds, columns = matrix.shape
        super().__init__(rounds, dimension, arrays)
        if block_rounds is None:
            block_rounds = factorization.block_rounds(rounds, dimension)
        if block_rounds < 1:
            raise ValueError(f"block_rounds must be at least 1, found {block_rounds}")
        self.block_rounds = min(block_rounds, rounds)
        self._chunk = min(_CHUNK, columns)
        # Zeros up to whole blocks and chunks.
        padding = [(0, -rounds % self.block_rounds), (0, -columns % self._chunk)]
        self._matrix = np.pad(matrix, padding).astype(np.float32)
        self._chunks = _chunks_used(self._matrix, self.block_rounds, self._chunk)

    def initial_memory(self) -> Memory:
        """A block of zeros, which row 0 does not look at."""
        return self.arrays.zeros(self.block_rounds, self.dimension)

    def seek(self, seed: Any, row: Index) -> collections.OrderedDict:
        """The state before a row: computes its block, unless `next` will."""
        row = self.arrays.index(row)
        state = self.init(seed)
        matrix = self.arrays.constant(self._matrix)
        state["row"] = row
        state["memory"] = self.arrays.either(
            row % self.block_rounds > 0,
            lambda: self._block(state["seed"], row, matrix),
            self.initial_memory,
        )
        return state

    def step(self, seed: Any, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class; every R-th call does the work of R."""
        place = row % self.block_rounds
        matrix = self.arrays.constant(self._matrix)
        block = self.arrays.either(
            place < 1, lambda: self._block(seed, row, matrix), lambda: memory
        )
        return block[place], block

    def _block(self, seed: Any, row: Index, matrix: Any) -> Any:
        """float32[R, d]: the block that holds `row`."""
        number = row // self.block_rounds
        first = number * self.block_rounds
        shape = [self.block_rounds, self._chunk]

        def body(chunk: Index, total: Any) -> tuple[Any]:
            begin = chunk * self._chunk
            z = self.arrays.normals(seed, begin, self._chunk, self.dimension)
            return (total + self.arrays.part(matrix, [first, begin], shape) @ z,)

        chunks = self.arrays.at(self._chunks, number)
        [block] = self.arrays.loop(0, chunks, body, self.initial_memory())
        return block


def _chunks_used(matrix: np.ndarray, block: int, chunk: int) -> np.ndarray:
    """int32[blocks]: chunks up to the last nonzero column of each block."""
    used = np.abs(matrix).reshape(-1, block, matrix.shape[1]).max(axis=1) > 0
    last = matrix.shape[1] - np.argmax(used[:, ::-1], axis=1)
    return np.where(used.any(axis=1), -(-last // chunk), 0).astype(np.int32)
