# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Sparsified Gaussian matrix factorization (SGMF)."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import dp_accounting
import numpy as np

from dpfl import accounting
from dpfl.mechanisms import csgm, matrix_factorization
from dpfl.mechanisms.participation import Participation


@dataclasses.dataclass(frozen=True)
class Sgmf(
    matrix_factorization.StreamedMatrix, csgm.L2Csgm, matrix_factorization.EpochFields
):
    """SGMF (Chen et al. 2024, Algorithms 2 and 3, Theorem 5.1).

    The clients of `L2Csgm`, the noise of `MatrixFactorization`: row t of G is the sum
    of the masked rotated updates of round t, rotated back, Z has independent rows of
    N(0, sigma^2 I), sigma = noise_multiplier keep_fraction clip_norm max_j ||C[:, j]||,
    of what a stream releases of C, and A G + B Z is divided by n keep_fraction. So
    equal `noise_multiplier` means equal noise on the iterates as with
    `MatrixFactorization`. Over a whole run C has at most as many diagonals as lie
    between the rounds of a client.
    """

    name: ClassVar[str] = "sgmf"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_streamed_matrix()

    @property
    def stddev(self) -> float:
        """sigma, the standard deviation of an entry of Z."""
        return super().stddev * self.matrix_sensitivity

    @property
    def noise_divisor(self) -> float:
        """What the noised sum is divided by, n gamma."""
        return self.cohort_size * self.keep_fraction

    def check(self, participation: Participation, dimension: int) -> None:
        """See base class."""
        super().check(participation, dimension)
        self.check_participation(participation, any_matrix=False)

    def round_dp_event(
        self, dimension: int, sampling_probability: float
    ) -> dp_accounting.DpEvent:
        """Returns the release that a client's epoch, or its round of a run, is."""
        return matrix_factorization.round_event(
            self, self._release_event(dimension, 1.0), sampling_probability
        )

    def _release_event(self, dimension: int, factor: float) -> dp_accounting.DpEvent:
        kind = accounting.SparsifiedMatrixFactorizationDpEvent
        if self.is_over_run:
            kind = accounting.SparsifiedGaussianDpEvent
        return kind(
            noise_multiplier=self.noise_multiplier * factor,
            keep_fraction=self.keep_fraction,
            linf_ratio=self.resolved_linf_ratio(dimension),
            dimension=self.rotated_dimension(dimension),
        )

    def _run_event(
        self, participation: Participation, dimension: int
    ) -> dp_accounting.DpEvent:
        """Returns the streams of the run; see `noise_stream.run_event`."""
        release = functools.partial(self._release_event, dimension)
        return matrix_factorization.run_event(self, release, participation)

    def mean_squared_error(self, dimension: int) -> float:
        """Returns the error of `MatrixFactorization` and of the masks together."""
        gamma, n = self.keep_fraction, self.cohort_size
        rows = matrix_factorization.sum_noise(self.factorization, self.stream_rounds)
        noise = dimension * (self.stddev / self.noise_divisor) ** 2
        masks = (1 - gamma) / gamma * self.clip_norm**2 / n
        return noise * float(
            np.mean(rows**2)
        ) + masks * dimension / self.rotated_dimension(dimension)
