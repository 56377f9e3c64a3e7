# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimal factorization: least total squared error under one participation.

    factors = optimal.factorize(Workload(32))
    factors.loss(), factors.gap()  # the gap is to the dual bound

`iteration` finds X = C^T C; here it is started from the solution of a
coarser problem, and becomes the lower-triangular factors B and C.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import linalg

from dpfl.factorization.factorization import Factorization
from dpfl.factorization.factors import DenseFactors
from dpfl.factorization.iteration import Solution, prolong, solve
from dpfl.factorization.workloads import Workload, check_dense

_COARSEST = 96  # Below this many rounds a coarser start saves nothing.
_COARSENING = 4


def solve_workload(
    workload: Workload,
    *,
    rtol: float = 1e-6,
    max_iterations: int = 500,
    accelerated: bool = True,
) -> Solution:
    """`iteration.solve` for A, started from a coarser problem if accelerated.

    Args:
      workload: A.
      rtol: Relative duality gap to reach, positive.
      max_iterations: Iterations allowed, for each problem.
      accelerated: Whether to mix steps and to start from a coarser problem; else the
        plain fixed point from diag(G^1/2).

    Returns:
      The solution, with the history of the finest problem alone.

    Raises:
      ConvergenceError: If the gap is not reached.
    """
    check_dense(workload.rounds)
    start = None
    if accelerated and workload.rounds > _COARSEST:
        fewer = -(-workload.rounds // _COARSENING)
        coarse = dataclasses.replace(workload, rounds=fewer)
        coarser = solve_workload(coarse, rtol=rtol, max_iterations=max_iterations)
        start = prolong(coarser.v, workload.rounds)
    matrix = workload.matrix()
    gram = matrix.T @ matrix
    del matrix
    return solve(
        gram,
        rtol=rtol,
        max_iterations=max_iterations,
        accelerated=accelerated,
        start=start,
    )


def factorize(workload: Workload, *, rtol: float = 1e-6) -> Factorization:
    """The optimal factorization of a workload, with its dual bound.

    Every column of C has norm 1 (up to rounding): the sensitivity under one
    participation is 1.

    Args:
      workload: A.
      rtol: Relative duality gap to reach, positive.

    Raises:
      ConvergenceError: If the relative duality gap `rtol` is not reached.
    """
    solution = solve_workload(workload, rtol=rtol)
    bound, encoder = solution.bound, lower_encoder(solution.gram)
    del solution
    factors = dense_factors(workload, encoder)
    return Factorization(workload, "optimal", {"rtol": rtol}, factors, bound)


def for_momentum(workload: Workload, *, rtol: float = 1e-6) -> Factorization:
    """The optimal prefix sum, used for momentum by post-processing.

    B = M S^-1 B_S and C = C_S (Denisov et al. 2022, Table 1): the server estimates
    prefix sums and runs momentum on their differences.

    Raises:
      ConvergenceError: If the gap is not reached for the prefix sum.
    """
    base = Workload(workload.rounds)
    decoder, encoder = factorize(base, rtol=rtol).materialize()
    decoder = workload.apply(base.solve(decoder))
    factors = DenseFactors(np.tril(decoder), encoder)
    return Factorization(workload, "optimal-prefix-sum", {"rtol": rtol}, factors)


def lower_encoder(gram: np.ndarray) -> np.ndarray:
    """The lower-triangular C with positive diagonal and C^T C = X, shape (T, T).

    With J the reversal, J X J = L L^T (Cholesky) gives C = J L^T J.
    """
    # The lower Cholesky factor of the reversed matrix, reversed and transposed.
    factor = linalg.cholesky(
        gram[::-1, ::-1], lower=True, overwrite_a=False, check_finite=False
    )
    return np.ascontiguousarray(factor.T[::-1, ::-1])


def dense_factors(workload: Workload, encoder: np.ndarray) -> DenseFactors:
    """The factors with B = A C^-1 for a lower-triangular C; B is so, too."""
    transposed = linalg.solve_triangular(
        encoder, workload.matrix().T, lower=True, trans="T", check_finite=False
    )
    return DenseFactors(np.tril(transposed.T), encoder)
