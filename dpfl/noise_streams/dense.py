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
from typing import Optional

import numpy as np
import tensorflow as tf

from dpfl.noise_streams import stream as stream_lib

# The default block holds at most this many numbers, 128 MB. A pass takes about five
# times that: the last block, the next one, products and sums on their way, and chunks.
BLOCK_NUMBERS = 32_000_000
# Rows of Z in a chunk: fewer, and reading the block weighs more than drawing the chunk.
_CHUNK = 16


def default_block_rounds(rounds: int, dimension: int) -> int:
    """R: as many rounds as `BLOCK_NUMBERS` allows, at least 1."""
    return max(1, min(rounds, BLOCK_NUMBERS // dimension))


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
        normals: stream_lib.Normals = stream_lib.grid_normals,
    ):
        """Takes K = A^-1 B, of shape (T, m), and R; None is `default_block_rounds`.

        Raises:
          ValueError: If `block_rounds` is below 1.
        """
        rounds, columns = matrix.shape
        super().__init__(rounds, dimension, normals)
        if block_rounds is None:
            block_rounds = default_block_rounds(rounds, dimension)
        if block_rounds < 1:
            raise ValueError(f"block_rounds must be at least 1, found {block_rounds}")
        self.block_rounds = min(block_rounds, rounds)
        self._chunk = min(_CHUNK, columns)
        # Zeros up to whole blocks and chunks.
        padding = [(0, -rounds % self.block_rounds), (0, -columns % self._chunk)]
        self._matrix = np.pad(matrix, padding).astype(np.float32)
        self._chunks = _chunks_used(self._matrix, self.block_rounds, self._chunk)

    def initial_memory(self) -> stream_lib.Memory:
        """A block of zeros, which row 0 does not look at."""
        return tf.zeros([self.block_rounds, self.dimension])

    def seek(self, seed: tf.Tensor, row: tf.Tensor) -> collections.OrderedDict:
        """The state before a row: computes its block, unless `next` will."""
        seed, row = tf.convert_to_tensor(seed, tf.int64), tf.cast(row, tf.int32)
        state = self.init(seed)
        is_inside = tf.not_equal(row % self.block_rounds, 0)
        matrix = self._matrix_tensor()
        state["row"] = row
        state["memory"] = tf.cond(
            is_inside, lambda: self._block(seed, row, matrix), self.initial_memory
        )
        return state

    def step(
        self, seed: tf.Tensor, row: tf.Tensor, memory: stream_lib.Memory
    ) -> tuple[tf.Tensor, stream_lib.Memory]:
        """See base class; every R-th call does the work of R."""
        place = row % self.block_rounds
        matrix = self._matrix_tensor()
        block = tf.cond(
            tf.equal(place, 0), lambda: self._block(seed, row, matrix), lambda: memory
        )
        return block[place], block

    def _matrix_tensor(self) -> tf.Tensor:
        """K, outside of the graph where that can be.

        A constant within is copied with every graph that TensorFlow makes of this one:
        150 MB more at T = 2048. A `tf.function` captures it from here instead.
        """
        with tf.init_scope():
            return tf.constant(self._matrix)

    def _block(self, seed: tf.Tensor, row: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
        """float32[R, d]: the block that holds `row`."""
        number = row // self.block_rounds
        first = number * self.block_rounds

        def body(chunk: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, ...]:
            begin = chunk * self._chunk
            z = tf.map_fn(
                lambda column: self._normal(seed, column),
                begin + tf.range(self._chunk),
                fn_output_signature=tf.TensorSpec([self.dimension]),
                parallel_iterations=self._chunk,
            )
            weights = tf.slice(matrix, [first, begin], [self.block_rounds, self._chunk])
            return chunk + 1, total + weights @ z

        last = tf.gather(tf.constant(self._chunks), number)
        # One iteration at a time, or chunks drawn ahead would fill the memory.
        _, block = tf.while_loop(
            lambda chunk, total: chunk < last,
            body,
            [tf.zeros([], tf.int32), self.initial_memory()],
            parallel_iterations=1,
        )
        return block


def _chunks_used(matrix: np.ndarray, block: int, chunk: int) -> np.ndarray:
    """int32[blocks]: chunks up to the last nonzero column of each block."""
    used = np.abs(matrix).reshape(-1, block, matrix.shape[1]).max(axis=1) > 0
    last = matrix.shape[1] - np.argmax(used[:, ::-1], axis=1)
    return np.where(used.any(axis=1), -(-last // chunk), 0).astype(np.int32)
