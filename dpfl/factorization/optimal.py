# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimal factorization: least total squared error under one participation.

`iteration` finds X = C^T C; here it is started from the solution of a
coarser problem, and becomes the lower-triangular factors B and C.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
from scipy import linalg

from dpfl.factorization.factorization import Factorization
from dpfl.factorization.factors import DenseFactors
from dpfl.factorization.iteration import Progress, Solution, prolong, solve
from dpfl.factorization.workloads import Workload, check_dense

_COARSEST = 96  # Below this many rounds a coarser start saves nothing.
_COARSENING = 4


def solve_workload(
    workload: Workload,
    *,
    rtol: float = 1e-6,
    max_iterations: int = 500,
    accelerated: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
) -> Solution:
    """Returns `iteration.solve` for A, started from a coarser problem if accelerated.

    Args:
      workload: The workload A.
      rtol: See `solve`.
      max_iterations: See `solve`.
      accelerated: False is the plain fixed point from diag(G^1/2).
      on_progress: See `solve`; the finest level alone is reported.
    """
    check_dense(workload.rounds)
    begin = time.perf_counter()
    start = None
    if accelerated and workload.rounds > _COARSEST:
        coarse = workload.with_rounds(-(-workload.rounds // _COARSENING))
        found = solve_workload(coarse, rtol=rtol, max_iterations=max_iterations)
        start = prolong(found.v, workload.rounds)
    matrix = workload.matrix()
    gram = matrix.T @ matrix
    del matrix
    solution = solve(
        gram,
        rtol=rtol,
        max_iterations=max_iterations,
        accelerated=accelerated,
        start=start,
        on_progress=on_progress,
    )
    return dataclasses.replace(solution, seconds=time.perf_counter() - begin)


def factorize(
    workload: Workload,
    *,
    rtol: float = 1e-6,
    max_iterations: int = 500,
    accelerated: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
) -> Factorization:
    """Returns the optimal factorization of a workload, with its dual bound.

    Every column of C has norm 1 (up to rounding): the sensitivity under one
    participation is 1.

    Args:
      workload: The workload A.
      rtol: Relative duality gap to reach.
      max_iterations: Iterations allowed at each level.
      accelerated: See `solve_workload`.
      on_progress: See `solve_workload`.

    Raises:
      ConvergenceError: If the gap is not reached.
    """
    solution = solve_workload(
        workload,
        rtol=rtol,
        max_iterations=max_iterations,
        accelerated=accelerated,
        on_progress=on_progress,
    )
    encoder = lower_encoder(solution.gram)
    bound = solution.bound
    del solution
    return Factorization(
        workload=workload,
        method="optimal",
        params={"rtol": rtol},
        factors=DenseFactors(decoder_for(workload.matrix(), encoder), encoder),
        lower_bound=bound,
    )


def for_momentum(workload: Workload, *, rtol: float = 1e-6) -> Factorization:
    """Returns the optimal prefix sum, used for momentum by post-processing.

    B = M S^-1 B_S and C = C_S (Denisov et al. 2022, Table 1): the server estimates
    prefix sums and runs momentum on their differences.

    Args:
      workload: M.
      rtol: Gap to reach for the prefix sum.

    Raises:
      ConvergenceError: If the gap is not reached.
    """
    base = Workload(workload.rounds)
    found = factorize(base, rtol=rtol)
    encoder = found.encoder()
    decoder = workload.apply(base.solve(found.decoder()))
    return Factorization(
        workload=workload,
        method="optimal-prefix-sum",
        params={"rtol": rtol},
        factors=DenseFactors(np.tril(decoder), encoder),
    )


def lower_encoder(gram: np.ndarray) -> np.ndarray:
    """Returns the lower-triangular C with positive diagonal and C^T C = X.

    With J the reversal, J X J = L L^T (Cholesky) gives C = J L^T J.

    Args:
      gram: X, shape (T, T), symmetric positive definite.
    """
    # lower=True of the reversed matrix, then reversed and transposed.
    factor = linalg.cholesky(
        gram[::-1, ::-1], lower=True, overwrite_a=False, check_finite=False
    )
    return np.ascontiguousarray(factor.T[::-1, ::-1])


def decoder_for(matrix: np.ndarray, encoder: np.ndarray) -> np.ndarray:
    """Returns B = A C^-1 for lower-triangular A and C: lower triangular.

    Args:
      matrix: A, shape (T, T).
      encoder: C, shape (T, T), lower triangular with non-zero diagonal.
    """
    transposed = linalg.solve_triangular(
        encoder, matrix.T, lower=True, trans="T", check_finite=False
    )
    return np.tril(transposed.T)
