# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Correlated noise of an encoder whose inverse has p diagonals: A^-1 B = C^-1.

  y_t = sum_{k < p} e_k z_{t-k}

is a weighted sum of the last p rows of Z. They may be drawn again in every round, and
then there is nothing to remember.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from dpfl.noise_streams import stream as stream_lib


class MovingStream(stream_lib.NoiseStream):
    """Rows of C^-1 Z. Memory: a tuple of the last p - 1 rows of Z unless redrawn."""

    def __init__(
        self,
        weights: np.ndarray,
        rounds: int,
        dimension: int,
        *,
        redraw: bool = False,
        normals: stream_lib.Normals = stream_lib.grid_normals,
    ):
        """Initializes the stream.

        Args:
          weights: e, shape (p,).
          rounds: T.
          dimension: d.
          redraw: Draw earlier rows again in every round rather than remember them.
          normals: The source of Z.
        """
        super().__init__(rounds, dimension, normals)
        self._weights = [float(weight) for weight in np.asarray(weights, np.float32)]
        self._redraw = redraw

    def initial_memory(self) -> stream_lib.Memory:
        """Returns zeros: rows before the first."""
        kept = 0 if self._redraw else len(self._weights) - 1
        return tuple(tf.zeros([self.dimension]) for _ in range(kept))

    def step(
        self, seed: tf.Tensor, row: tf.Tensor, memory: stream_lib.Memory
    ) -> tuple[tf.Tensor, stream_lib.Memory]:
        """See base class."""
        z = self._normal(seed, row)
        noise = self._weights[0] * z
        for k, weight in enumerate(self._weights[1:], 1):
            if self._redraw:
                drawn = self._normal(seed, tf.maximum(row - k, 0))
                noise += tf.where(row >= k, weight, 0.0) * drawn
            else:
                noise += weight * memory[k - 1]
        return noise, () if self._redraw else ((z,) + tuple(memory))[: len(memory)]
