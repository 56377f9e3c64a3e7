# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Structured decoder: a band plus the strictly-below part of a low-rank product.

B'[i, j] = B[i, j]            for 0 <= i - j < h
         = U[i, :] . V[j, :]  for i - j >= h

fitted to a given B (Denisov et al. 2022, Appendix H): U, V of rank r minimise

  sum_{i-j >= h} (B[i, j] - U[i, :] . V[j, :])^2 + lambda (||U||_F^2 + ||V||_F^2)

by alternating least squares. Given V, row i of U solves a system of r equations with
the matrix lambda I + sum_{j <= i-h} V[j, :]^T V[j, :], a cumulative sum; and the same
with the roles exchanged. Then C = B'^+ A = B'^-1 A, and the sensitivity is that of this
C. A round of noise costs O((h + r) d): r running sums of V[j, :] Z[j, :].
"""

from __future__ import annotations

import numpy as np

from dpfl import checks
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.factors import BandLowRankFactors, lower_band

_RELATIVE_DECREASE = 1e-9
# lambda over the mean square of the entries times T.
_PENALTY = 1e-9


def _solve_rows(
    other: np.ndarray, target: np.ndarray, known: np.ndarray, penalty: float
) -> np.ndarray:
    """Rows u of least ||target row - other u||^2 + penalty ||u||^2.

    Args:
      other: The fixed factor, shape (T, r).
      target: The matrix to fit, shape (T, T), zero where unknown.
      known: Row i uses the first known[i] rows of `other`, shape (T,).
      penalty: lambda > 0.
    """
    rank = other.shape[1]
    outer = np.einsum("ja,jb->jab", other, other)
    sums = np.concatenate([np.zeros((1, rank, rank)), np.cumsum(outer, axis=0)])
    system = sums[known] + penalty * np.eye(rank)
    return np.linalg.solve(system, (target @ other)[..., None])[..., 0]


def fit_low_rank(
    below: np.ndarray,
    band: int,
    rank: int,
    *,
    penalty: float = _PENALTY,
    max_iterations: int = 200,
) -> tuple[np.ndarray, np.ndarray]:
    """U and V, float64 of shape (T, r), for the entries with i - j >= band.

    The start is the truncated SVD, so that the result is deterministic.

    Args:
      below: B with zeros elsewhere, shape (T, T).
      band: h, the first subdiagonal that is fitted.
      rank: r.
      penalty: lambda over the mean square of the entries times T.
      max_iterations: Sweeps; fewer when the objective stops falling.
    """
    rounds = len(below)
    steps = np.arange(rounds)
    count = max(1, (rounds - band) * (rounds - band + 1) // 2)
    scale = penalty * max(float(np.sum(below**2)) / count, 1e-300) ** 0.5 * rounds
    left, values, right = np.linalg.svd(below)
    u = left[:, :rank] * np.sqrt(values[:rank])
    v = right[:rank].T * np.sqrt(values[:rank])
    mask = np.tri(rounds, k=-band)
    # Columns are solved as rows of the matrix turned by 180 degrees and transposed,
    # so that their known entries come first too.
    known = np.maximum(steps - band + 1, 0)
    turned = below.T[::-1, ::-1]
    last = np.inf
    for _ in range(max_iterations):
        u = _solve_rows(v, below, known, scale)
        v = _solve_rows(u[::-1], turned, known, scale)[::-1]
        residual = float(np.sum((mask * (u @ v.T) - below) ** 2))
        value = residual + scale * float(np.sum(u**2) + np.sum(v**2))
        if last - value <= _RELATIVE_DECREASE * value:
            break
        last = value
    return u, np.ascontiguousarray(v)


def band_low_rank(factorization: Factorization, band: int, rank: int) -> Factorization:
    """The structured approximation of a factorization with a square B.

    Args:
      factorization: The factorization to approximate, such as the optimal one.
      band: h, diagonals kept, in [1, T].
      rank: r, in [0, T]; 0 keeps the band alone.

    Raises:
      ValueError: If B is not square and lower triangular, or h or r is out of range.
    """
    workload, decoder = factorization.workload, factorization.decoder()
    rounds = workload.rounds
    is_right = decoder.shape == (rounds, rounds) and not np.any(np.triu(decoder, 1))
    wanted = "one with a square lower-triangular decoder"
    given = factorization.method, decoder.shape
    checks.require(is_right, "factorization", wanted, given)
    band = checks.integer("band", band, at_most=rounds)
    if rank:
        rank = checks.integer("rank", rank, at_most=rounds)
    u = v = np.zeros((rounds, 0))
    if rank and band < rounds:
        u, v = fit_low_rank(np.tril(decoder, -band), band, rank)
    sizes = {"band": band, "rank": rank, "penalty": _PENALTY}
    return Factorization(
        workload,
        "band-low-rank",
        {**sizes, "of": factorization.method},
        BandLowRankFactors(lower_band(decoder, band), u, v),
    )
