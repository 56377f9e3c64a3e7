# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Correlated noise of the binary tree with Honaker's online estimator (DP-FTRL).

The first t rounds are a disjoint union of dyadic intervals, one for each one bit of t.
The memory holds the error e of each interval's estimate: a round adds an interval of
height 0 with error z, and two neighbours of height h - 1 join to one of height h with

  e = a_h z + (1 - a_h) (e_left + e_right),  a_h = 2^h / (2^{h+1} - 1),

where z are the normals of its own node (Honaker 2015). (B Z)_t for the prefix sum is
the sum of the errors remembered, so row t of S^-1 B Z is the new error minus those it
replaces. For any other workload A the decoder is A S^-1 B, and A^-1 A S^-1 B is the
same.

The nodes that a round completes enter only one sum, that error, so that one row of
normals represents all of them. With s_0 = 1 its weight at height h is s_h^2 = a_h^2 +
(1 - a_h)^2 s_{h-1}^2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl.arrays import in_numpy
from dpfl.noise_streams import stream as stream_lib
from dpfl.noise_streams.stream import Draw, Index, Memory, Vector


class TreeStream(stream_lib.NoiseStream):
    """Rows of S^-1 B Z. Memory: float32[levels, d], row h for the interval of height h.

    The error of an interval is remembered once a round completes the interval.
    """

    def __init__(
        self,
        rounds: int,
        dimension: int,
        *,
        nx: Any = in_numpy,
    ):
        """Initializes the stream.

        Args:
          rounds: T, the number of rows.
          dimension: d, the length of a row.
          nx: The array library.
        """
        self._levels = rounds.bit_length()
        heights = np.arange(self._levels)
        weights = 2.0**heights / (2.0 ** (heights + 1) - 1)
        self._node_weight = weights.astype(np.float32)
        ends = np.arange(1, rounds + 1)
        # The height of the largest interval that round t completes: zeros at the end
        # of t + 1 in binary.
        zeros = [(int(end) & -int(end)).bit_length() - 1 for end in ends]
        self._height = np.array(zeros, np.int32)
        variances = [1.0]
        for weight in weights[1:]:
            variances.append(weight**2 + (1 - weight) ** 2 * variances[-1])
        own_weights = np.sqrt(variances)[self._height]
        super().__init__(own_weights, dimension, nx)

    def initial_memory(self) -> Memory:
        """Zeros."""
        return self.nx.zeros([self._levels, self.dimension], np.float32)

    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class; the memory then has the error without its own normals."""
        height = self._at(self._height, row)

        def join(h: Index, error: Vector, replaced: Vector) -> tuple[Vector, ...]:
            left = memory[h - 1]
            own = self._at(self._node_weight, h)
            return (1 - own) * (left + error), replaced + left

        error, replaced = self.nx.fori_loop(1, height + 1, join, *self._zeros(2))
        # The levels below are free now; their content is not read again.
        memory = self.nx.with_row(memory, height, error)
        return error - replaced, memory

    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """See base class."""
        height = self._at(self._height, row)
        own = self.nx.product(self._at(self.own_weights, row), z)
        error = memory[height] + own
        return self.nx.with_row(memory, height, error)
