# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sparsified Gaussian matrix factorization (SGMF).

    numbers = dict(cohort_size=100, clip_norm=1.0, noise_multiplier=1.0)
    mechanism = Sgmf(**numbers, keep_fraction=0.1, rounds_per_epoch=64)

It is CSGM with noise that is correlated over the rounds.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from dp_accounting import DpEvent

from dpfl import accounting
from dpfl.mechanisms import csgm, matrix_factorization
from dpfl.mechanisms.participation import Participation


@dataclasses.dataclass(frozen=True)
class Sgmf(matrix_factorization.StreamedMatrix, csgm.L2Csgm):
    """SGMF (Chen et al. 2024, Algorithms 2 and 3, Theorem 5.1).

    The clients of `L2Csgm`, the noise of `MatrixFactorization`: row t of G is the sum
    of the masked rotated updates of round t, rotated back, Z has independent rows of
    N(0, sigma^2 I), sigma = noise_multiplier keep_fraction clip_norm max_j ||C[:, j]||,
    of the part of C that a stream releases, and A G + B Z is divided by n
    keep_fraction. So equal `noise_multiplier` means equal noise on the iterates as with
    `MatrixFactorization`. Over a whole run C has at most as many diagonals as lie
    between the rounds of a client.
    """

    name: ClassVar[str] = "sgmf"
    released_measurements = (
        *matrix_factorization.StreamedMatrix.released_measurements,
        "linf_clip",
    )
    takes_any_matrix: ClassVar[bool] = False

    def _release_event(self, dimension: int, factor: float) -> DpEvent:
        kind = accounting.SparsifiedMatrixFactorizationDpEvent
        if self.is_over_run:
            kind = accounting.SparsifiedGaussianDpEvent
        return kind(
            noise_multiplier=self.noise_multiplier * factor,
            keep_fraction=self.keep_fraction,
            linf_ratio=self.resolved_linf_ratio(dimension),
            dimension=self.rotated_dimension(dimension),
        )

    def again_event(self, participation: Participation, dimension: int) -> DpEvent:
        """See base class; refused: repeated rows have the masks of the first ones."""
        raise ValueError(
            f"{self.name} cannot repeat lost rounds: no bound is known for the same "
            "masks with fresh noise"
        )
