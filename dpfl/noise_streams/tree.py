# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Correlated noise of the binary tree with Honaker's online estimator (DP-FTRL).

The first t rounds are a disjoint union of dyadic intervals, one for each one bit of t.
Remembered is the error e of the estimate of each: a round adds an interval of height 0
with error z, and two neighbours of height h - 1 join to one of height h with

  e = a_h z + (1 - a_h) (e_left + e_right),  a_h = 2^h / (2^{h+1} - 1),

z the normals of its own node (Honaker 2015). (B Z)_t for the prefix sum is the sum of
the errors remembered, so row t of S^-1 B Z is the new error minus those it replaces.
For any other workload A the decoder is A S^-1 B, and A^-1 A S^-1 B is the same.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from dpfl.noise_streams import stream as stream_lib
from dpfl.noise_streams.arrays import Arrays, Index, Memory, Vector


class TreeStream(stream_lib.NoiseStream):
    """Rows of S^-1 B Z. Memory: float32[levels, d], row h for the interval of height h.

    A round draws the normals of the nodes it completes, two on average.
    """

    def __init__(
        self,
        rounds: int,
        dimension: int,
        *,
        arrays: Optional[Arrays] = None,
    ):
        """Makes the stream; the rows of Z are the nodes.

        Their order is that of `dpfl.factorization.TreeFactors.nodes`: by the round that
        completes them, then by height.
        """
        super().__init__(rounds, dimension, arrays)
        self._levels = rounds.bit_length()
        heights = np.arange(self._levels)
        weights = 2.0**heights / (2.0 ** (heights + 1) - 1)
        self._own_weight = weights.astype(np.float32)
        ends = np.arange(1, rounds + 1)
        # The height of the largest interval that round t completes: zeros at the end
        # of t + 1 in binary.
        zeros = [(int(end) & -int(end)).bit_length() - 1 for end in ends]
        self._height = np.array(zeros, np.int32)
        first_node = np.cumsum(self._height + 1) - self._height - 1
        self._first_node = first_node.astype(np.int32)

    def initial_memory(self) -> Memory:
        """Zeros."""
        return self.arrays.zeros(self._levels, self.dimension)

    def step(self, seed: Any, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class."""
        height = self.arrays.at(self._height, row)
        node = self.arrays.at(self._first_node, row)

        def join(h: Index, error: Vector, replaced: Vector) -> tuple[Vector, ...]:
            left = memory[h - 1]
            own = self.arrays.at(self._own_weight, h)
            z = self._normal(seed, node + h)
            return own * z + (1 - own) * (left + error), replaced + left

        nothing = self.arrays.zeros(self.dimension)
        error, replaced = self.arrays.loop(
            1, height + 1, join, self._normal(seed, node), nothing
        )
        # The levels below are free now; what they hold is not looked at again.
        memory = self.arrays.with_row(memory, height, error)
        return error - replaced, memory
