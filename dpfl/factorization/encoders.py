# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Factors A = B C that are given by a lower-triangular C alone: B = A C^-1.

  ToeplitzFactors       C as its first column
  BandedFactors         C as its diagonals
  BufferedFactors       C as a rational generating function
  InverseBandedFactors  C^-1 as the few entries of its first column

The noise is A (C^-1 Z). For the first three C^-1 Z obeys a short recurrence,
y_t = (z_t - sum_{j>=1} C[t, t-j] y_{t-j}) / C[t, t]; for the last it is a short sum.
"""

from __future__ import annotations

import abc
import dataclasses

import numpy as np
from scipy import linalg, signal

from dpfl import checks
from dpfl.factorization.factors import Factors, freeze
from dpfl.factorization.sensitivity import OneParticipation, Plan, Sensitivity
from dpfl.factorization.workloads import Workload, check_dense, check_products


def toeplitz_matrix(coefficients: np.ndarray, rounds: int) -> np.ndarray:
    """Returns the lower-triangular Toeplitz matrix of a column, padded by zeros.

    Raises:
      ValueError: If it is too large to be written out, see `workloads.check_dense`.
    """
    check_dense(rounds)
    column = np.zeros(rounds)
    kept = min(rounds, len(coefficients))
    column[:kept] = coefficients[:kept]
    return linalg.toeplitz(column, np.zeros(rounds))


def series_inverse(coefficients: np.ndarray, rounds: int) -> np.ndarray:
    """Returns the first column of C^-1 for Toeplitz C: 1 / c(x) mod x^T.

    Raises:
      ValueError: If the column is so long that this takes too long.
    """
    column = np.trim_zeros(coefficients[:rounds], "b")
    check_products("bands", len(column), rounds)
    impulse = np.zeros(rounds)
    impulse[0] = 1.0
    return signal.lfilter([1.0], column, impulse)


class _EncoderFactors(Factors):
    """Factors given by a lower-triangular C alone: B = A C^-1."""

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        inverse = linalg.solve_triangular(
            self.encoder(workload), np.eye(workload.rounds), lower=True
        )
        return np.tril(workload.apply(inverse))


class _ToeplitzEncoderFactors(_EncoderFactors):
    """Factors given by a lower-triangular Toeplitz C alone."""

    @abc.abstractmethod
    def coefficients(self) -> np.ndarray:
        """Returns the first column of C, shape (T,)."""

    def inverse_coefficients(self) -> np.ndarray:
        """Returns the first column of C^-1, shape (T,)."""
        return series_inverse(self.coefficients(), self.rounds)

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        return toeplitz_matrix(self.coefficients(), workload.rounds)

    def decoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        inverse = toeplitz_matrix(self.inverse_coefficients(), workload.rounds)
        return np.tril(workload.apply(inverse))

    def row_norms_squared(self, workload: Workload) -> np.ndarray:
        """See base class; O(T) memory when A is Toeplitz, since then B is."""
        if not workload.is_toeplitz:
            return super().row_norms_squared(workload)
        return np.cumsum(workload.apply(self.inverse_coefficients()) ** 2)

    def sensitivity(
        self, workload: Workload, plan: Plan, rounds: int | None = None
    ) -> Sensitivity:
        """See base class; without forming C for one participation."""
        if isinstance(plan, OneParticipation):
            norm = float(np.linalg.norm(self.coefficients()[:rounds]))
            return Sensitivity(norm, True)
        return super().sensitivity(workload, plan, rounds)


@dataclasses.dataclass(frozen=True, eq=False)
class ToeplitzFactors(_ToeplitzEncoderFactors):
    """C[i, j] = c[i - j].

    Attributes:
      c: float64 of shape (T,), c[0] > 0; zeros from the number of bands on.
    """

    c: np.ndarray
    kind = "toeplitz"

    def __post_init__(self) -> None:
        c = checks.vector("c", self.c)
        if c[0] <= 0:
            raise ValueError(f"c must start with a positive value, found {c[0]:g}")
        freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return len(self.c)

    @property
    def bands(self) -> int:
        """Number of diagonals up to the last that is not zero."""
        return int(np.flatnonzero(self.c)[-1]) + 1

    def coefficients(self) -> np.ndarray:
        """See base class."""
        return self.c


@dataclasses.dataclass(frozen=True, eq=False)
class InverseBandedFactors(_ToeplitzEncoderFactors):
    """C^-1[i, j] = e[i - j].

    Attributes:
      e: float64 of shape (T,), e[0] > 0; zeros from the number of diagonals on.
    """

    e: np.ndarray
    kind = "inverse-banded"

    def __post_init__(self) -> None:
        e = checks.vector("e", self.e)
        if e[0] <= 0:
            raise ValueError(f"e must start with a positive value, found {e[0]:g}")
        freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return len(self.e)

    @property
    def bands(self) -> int:
        """Number of diagonals of C^-1 up to the last that is not zero."""
        return int(np.flatnonzero(self.e)[-1]) + 1

    def coefficients(self) -> np.ndarray:
        """See base class."""
        return series_inverse(self.e, self.rounds)

    def inverse_coefficients(self) -> np.ndarray:
        """See base class."""
        return self.e


@dataclasses.dataclass(frozen=True, eq=False)
class BandedFactors(_EncoderFactors):
    """C[i, j] = diagonals[j, i - j] for 0 <= i - j < h: row j is column j of C.

    Attributes:
      diagonals: float64 of shape (T, h), zero where i would be T or more; its first
        column, the main diagonal, is positive.
    """

    diagonals: np.ndarray
    kind = "banded"

    def __post_init__(self) -> None:
        diagonals = checks.matrix("diagonals", self.diagonals)
        rounds, bands = diagonals.shape
        if bands > rounds:
            raise ValueError(
                f"diagonals must have at most {rounds} columns, found {bands}"
            )
        if np.min(diagonals[:, 0]) <= 0:
            raise ValueError(
                "diagonals must start with a positive main diagonal, found "
                f"{np.min(diagonals[:, 0]):g} in it"
            )
        freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return len(self.diagonals)

    def encoder(self, workload: Workload) -> np.ndarray:
        """See base class."""
        rounds, bands = self.diagonals.shape
        check_dense(rounds)
        result = np.zeros((rounds, rounds))
        for k in range(bands):
            np.fill_diagonal(result[k:], self.diagonals[: rounds - k, k])
        return result


@dataclasses.dataclass(frozen=True, eq=False)
class BufferedFactors(_ToeplitzEncoderFactors):
    """Buffered linear Toeplitz: c_0 = 1, c_t = sum_i scale[i] decay[i]^(t-1).

    C and C^-1 have the same form, so d buffers do for either. With s_0 = 0 of d
    buffers, C^-1 z is y_t = z_t - scale . s_t, s_{t+1} = decay * s_t + y_t; and equally
    y_t = z_t + inverse_scale . r_t, r_{t+1} = inverse_decay * r_t + z_t.

    Attributes:
      length: T, int64 scalar.
      decay: theta, float64 of shape (d,), decreasing, in (0, 1).
      scale: omega, float64 of shape (d,).
      inverse_decay: theta of C^-1, shape (d,).
      inverse_scale: omega of C^-1, shape (d,).
    """

    length: np.ndarray
    decay: np.ndarray
    scale: np.ndarray
    inverse_decay: np.ndarray
    inverse_scale: np.ndarray
    kind = "buffered"

    def __post_init__(self) -> None:
        checks.integer("length", np.asarray(self.length).item())
        shape = checks.vector("decay", self.decay).shape
        for name in ("scale", "inverse_decay", "inverse_scale"):
            found = checks.vector(name, getattr(self, name)).shape
            if found != shape:
                raise ValueError(
                    f"{name} must have the shape of decay, {shape}, found {found}"
                )
        freeze(self)

    @property
    def rounds(self) -> int:
        """See base class."""
        return int(self.length)

    @property
    def buffers(self) -> int:
        """Number of buffers d."""
        return len(self.decay)

    def coefficients(self) -> np.ndarray:
        """See base class."""
        return _buffered_column(self.decay, self.scale, self.rounds)

    def inverse_coefficients(self) -> np.ndarray:
        """See base class."""
        return _buffered_column(self.inverse_decay, self.inverse_scale, self.rounds)


def _buffered_column(decay: np.ndarray, scale: np.ndarray, rounds: int) -> np.ndarray:
    powers = decay[:, None] ** np.arange(rounds - 1)
    return np.concatenate([[1.0], scale @ powers])
