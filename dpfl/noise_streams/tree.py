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

import numpy as np
import tensorflow as tf

from dpfl.noise_streams import stream as stream_lib


class TreeStream(stream_lib.NoiseStream):
    """Rows of S^-1 B Z. Memory: float32[levels, d], row h for the interval of height h.

    A round draws the normals of the nodes it completes, two on average.
    """

    def __init__(
        self,
        rounds: int,
        dimension: int,
        *,
        normals: stream_lib.Normals = stream_lib.grid_normals,
    ):
        """Makes the stream; the rows of Z are the nodes.

        Their order is that of `dpfl.factorization.TreeFactors.nodes`: by the round that
        completes them, then by height.
        """
        super().__init__(rounds, dimension, normals)
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

    def initial_memory(self) -> stream_lib.Memory:
        """Zeros."""
        return tf.zeros([self._levels, self.dimension])

    def step(
        self, seed: tf.Tensor, row: tf.Tensor, memory: stream_lib.Memory
    ) -> tuple[tf.Tensor, stream_lib.Memory]:
        """See base class."""
        height = tf.gather(tf.constant(self._height), row)
        node = tf.gather(tf.constant(self._first_node), row)
        own_weight = tf.constant(self._own_weight)

        def join(
            h: tf.Tensor, error: tf.Tensor, replaced: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            left = memory[h - 1]
            own = own_weight[h]
            z = self._normal(seed, node + h)
            return h + 1, own * z + (1 - own) * (left + error), replaced + left

        leaf = self._normal(seed, node)
        _, error, replaced = tf.while_loop(
            lambda h, error, replaced: h <= height,
            join,
            [tf.ones([], tf.int32), leaf, tf.zeros_like(leaf)],
            parallel_iterations=1,
        )
        # The levels below are free now; what they hold is not looked at again.
        memory = tf.tensor_scatter_nd_update(memory, [[height]], error[tf.newaxis])
        return error - replaced, memory
