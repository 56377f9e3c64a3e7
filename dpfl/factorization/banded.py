# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Banded encoder: a lower-triangular C with h diagonals, every entry free.

C = P diag(1 / ||P[:, j]||) for a banded P, so each column has norm 1: the sensitivity
is 1 for one participation, and sqrt(k) for (k, b) participation with b >= h, where
the columns of one client's rounds are orthogonal (Choquette-Choo et al. 2023b, Section
4 and Equation 6). L-BFGS over P minimises E(C) = ||A C^-1||_F^2, whose gradient is

  dE/dC = -2 B^T B C^-T  (on the band),  B = A C^-1,

and so -2 <B[:, i], (B C^-T)[:, j]> at (i, j). One evaluation is two triangular solves
and products of blocks around the diagonal. Dense ones: at T = 2048 they take half a
second, where LAPACK's banded solves, with fewer operations, take several.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from dpfl import checks
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.factors import BandedFactors, ToeplitzFactors
from dpfl.factorization.toeplitz import minimized, optimize_toeplitz
from dpfl.factorization.workloads import Workload, check_dense

# Least number of columns in a block of the gradient: smaller products are slower.
_BLOCK = 128
# Relative decrease of log E(C) at which the search ends.
_TOLERANCE = 1e-11
# Initial norm of the columns of P, without effect on C: the first step that L-BFGS
# tries has length 1, and must not change the sign of an entry on the diagonal.
_START_NORM = 30.0


def error_and_gradient(
    diagonals: np.ndarray, matrix: np.ndarray
) -> tuple[float, np.ndarray]:
    """||A C^-1||_F^2 and its gradient in the diagonals.

    Args:
      diagonals: C[j + k, j] at [j, k], shape (T, h).
      matrix: A, shape (T, T); Fortran order saves a copy.
    """
    rounds, bands = diagonals.shape
    encoder = np.zeros((rounds, rounds), order="F")
    for k in range(bands):
        columns = np.arange(rounds - k)
        encoder[columns + k, columns] = diagonals[: rounds - k, k]
    decoder = linalg.blas.dtrsm(1.0, encoder, matrix, side=1, lower=1)
    half = linalg.blas.dtrsm(1.0, encoder, decoder, side=1, lower=1, trans_a=1)
    gradient = np.zeros_like(diagonals)
    width = max(bands, _BLOCK)
    for start in range(0, rounds, width):
        end = min(rounds, start + width)
        block = decoder[:, start : end + bands - 1].T @ half[:, start:end]
        for k in range(bands):
            below = np.diagonal(block, -k)
            gradient[start : start + len(below), k] = -2 * below
    return float(np.einsum("ij,ij->", decoder, decoder)), gradient


def _normalised(
    params: np.ndarray, rounds: int, bands: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit columns from parameters, their norms, and the mask of the band."""
    inside = np.arange(rounds)[:, None] + np.arange(bands) < rounds
    free = np.where(inside, params.reshape(rounds, bands), 0.0)
    norms = np.linalg.norm(free, axis=1, keepdims=True)
    return free / norms, norms, inside


def log_error(
    params: np.ndarray, matrix: np.ndarray, bands: int
) -> tuple[float, np.ndarray]:
    """log E(C), which is minimised, and its gradient in the diagonals of P.

    Args:
      params: P[j + k, j] at [j, k], shape (T h,); entries outside P do not count.
      matrix: A, shape (T, T).
      bands: h.
    """
    unit, norms, inside = _normalised(params, len(matrix), bands)
    if np.min(unit[:, 0]) <= 0:
        return np.inf, np.zeros_like(params)
    error, slope = error_and_gradient(unit, matrix)
    along = np.sum(slope * unit, axis=1, keepdims=True)
    gradient = np.where(inside, (slope - along * unit) / norms, 0.0)
    return float(np.log(error)), gradient.ravel() / error


def optimize_banded(workload: Workload, *, bands: int) -> Factorization:
    """The banded C with unit columns and the least total squared error.

    The search starts from the best banded Toeplitz C, so that the result is never worse
    than that with its columns normalised.

    Args:
      workload: A.
      bands: h, in [1, T].

    Raises:
      ValueError: If `bands` is out of range.
    """
    rounds = workload.rounds
    bands = checks.integer("bands", bands, at_most=rounds)
    check_dense(rounds)
    # One band of unit columns leaves nothing to optimise.
    diagonals = np.ones((rounds, 1))
    if bands > 1:
        toeplitz = optimize_toeplitz(workload, bands=bands).factors
        assert isinstance(toeplitz, ToeplitzFactors)
        matrix = np.asfortranarray(workload.matrix())
        optimum = minimized(
            lambda params: log_error(params, matrix, bands),
            _START_NORM * np.tile(toeplitz.c[:bands], rounds),
            maxiter=300,
            ftol=_TOLERANCE,
            gtol=1e-9,
        )
        diagonals = _normalised(optimum, rounds, bands)[0]
    factors = BandedFactors(diagonals)
    return Factorization(workload, "banded", {"bands": bands}, factors)
