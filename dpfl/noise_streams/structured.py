# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Correlated noise of a decoder that is a band plus a low-rank part.

B[i, j] = band for i - j < h, and U[i] . V[j] below (Denisov et al. 2022, Appendix H).
A^-1 has three diagonals (two without momentum). So K = A^-1 B has the same form: for
i - j >= w = h + 2 (h + 1 without momentum) all three rows of B that enter are in the
low-rank part, and K[i, j] = (A^-1 U)[i] . V[j]. With s_t the running sums of V[j] z_j
over j <= t - w, of which there are r,

  (K Z)_t = sum_{k < w} K[t, t - k] z_{t - k} + (A^-1 U)[t] . s_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfl import factorization as fact
from dpfl.arrays import in_numpy
from dpfl.factorization.factors import lower_band
from dpfl.noise_streams import stream as stream_lib
from dpfl.noise_streams.stream import Draw, Index, Memory, Vector


class StructuredStream(stream_lib.NoiseStream):
    """Rows of A^-1 B Z. Memory: r sums, and the last w rows of Z unless redrawn."""

    def __init__(
        self,
        factors: fact.BandLowRankFactors,
        workload: fact.Workload,
        dimension: int,
        *,
        redraw: bool = False,
        nx: Any = in_numpy,
    ):
        """Initializes the stream.

        Args:
          factors: The structured decoder B.
          workload: The workload A.
          dimension: d, the length of a row.
          redraw: Whether the last w rows of Z are drawn again in every round instead of
            remembered: slower, with w vectors less in the state.
          nx: The array library.
        """
        width = factors.noise_bands(workload)
        matrix = workload.solve(factors.decoder(workload))
        super().__init__(np.diagonal(matrix), dimension, nx)
        self._band = lower_band(matrix, width).astype(np.float32)
        self._left = workload.solve(factors.left).astype(np.float32)
        # Row t is V[t - w], or zero if there is no such row.
        delayed = np.zeros(factors.right.shape, np.float32)
        delayed[width:] = factors.right[: max(0, workload.rounds - width)]
        self._delayed_right = delayed
        self._width = width
        self._redraw = redraw

    def initial_memory(self) -> Memory:
        """Zeros: the sums, float32[r, d], and rows, the newest first."""
        sums = self.nx.zeros([self._left.shape[1], self.dimension], np.float32)
        return sums, self._zeros(0 if self._redraw else self._width)

    def past(self, draw: Draw, row: Index, memory: Memory) -> tuple[Vector, Memory]:
        """See base class."""
        sums, kept = memory
        # Rows before the first have weight zero, so they may be anything.
        recent = tuple(kept)
        if self._redraw:
            steps = range(1, self._width + 1)
            recent = tuple(self._earlier(draw, row, k) for k in steps)
        band = self._at(self._band, row)
        left = self._at(self._left, row)
        right = self._at(self._delayed_right, row)
        sums = sums + self.nx.product(right[:, np.newaxis], recent[-1])
        past = self.nx.matmul(left[np.newaxis], sums)[0]
        for k in range(1, self._width):
            past = past + self.nx.product(band[k], recent[k - 1])
        return past, (sums, kept)

    def remember(self, row: Index, memory: Memory, z: Vector, noise: Vector) -> Memory:
        """See base class."""
        sums, kept = memory
        return sums, ((z,) + tuple(kept))[: len(kept)]
