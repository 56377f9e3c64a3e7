# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Seconds, memory and losses of solvers of the optimal factorization.

cost = solvers.measure(mf.prefix_sum(2048), repeats=1)
curve = solvers.lbfgs_curve(mf.prefix_sum(256), max_seconds=30.0, target=1e4)
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import statistics
import time

import numpy as np
from scipy import linalg, optimize

from dpfl import machine
from dpfl.factorization import optimal
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.workloads import Workload


@dataclasses.dataclass(frozen=True)
class SolverCost:
    """The cost of one way to solve one workload."""

    # Wall-clock time to B and C, the median over the repeats.
    seconds: float
    # Eigendecompositions at full size.
    iterations: int
    # ||B||_F^2 max_j ||C[:, j]||^2, and the relative duality gap reached.
    loss: float
    gap: float
    # Peak resident memory of a process that does nothing else; 0 except on Linux, which
    # alone reports it.
    peak_bytes: int


def _measure(workload: Workload, rtol: float, accelerated: bool) -> SolverCost:
    begin = time.perf_counter()
    solution = optimal.solve_workload(
        workload, rtol=rtol, max_iterations=5000, accelerated=accelerated
    )
    progress, encoder = solution.history, optimal.lower_encoder(solution.gram)
    # Number of T^2 arrays, as in `factorize`.
    del solution
    factors = optimal.dense_factors(workload, encoder)
    seconds = time.perf_counter() - begin
    return SolverCost(
        seconds=seconds,
        iterations=len(progress),
        loss=Factorization(workload, "optimal", {}, factors).loss,
        gap=progress[-1].gap,
        peak_bytes=machine.peak_bytes(os.getpid()) or 0,
    )


def measure(
    workload: Workload,
    *,
    rtol: float = 1e-6,
    accelerated: bool = True,
    repeats: int = 3,
) -> SolverCost:
    """Measures one way to solve one workload, each repeat in a fresh process.

    The time is the median over the repeats, the memory their maximum.

    Args:
      workload: The workload.
      rtol: Relative duality gap of the solution.
      accelerated: Whether the fixed point iteration is accelerated.
      repeats: Number of repeats.

    Raises:
      ConvergenceError: If the relative duality gap rtol is not reached.
    """
    context = multiprocessing.get_context("spawn")
    costs = []
    for _ in range(repeats):
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            costs.append(pool.submit(_measure, workload, rtol, accelerated).result())
    return dataclasses.replace(
        costs[-1],
        seconds=statistics.median(c.seconds for c in costs),
        peak_bytes=max(c.peak_bytes for c in costs),
    )


# (seconds, least loss so far), one for each evaluation.
Curve = list[tuple[float, float]]


def fixed_point_curve(
    workload: Workload, *, accelerated: bool, rtol: float = 1e-8
) -> tuple[Curve, float]:
    """The loss of the fixed point iteration over time, and the dual bound.

    Args:
      workload: The workload.
      accelerated: Whether the iteration is accelerated.
      rtol: Relative duality gap at which it stops.

    Returns:
      (seconds, loss) after each iteration, and the dual bound on the loss.
    """
    begin = time.perf_counter()
    solution = optimal.solve_workload(
        workload, rtol=rtol, max_iterations=20_000, accelerated=accelerated
    )
    # The coarser problems of the accelerated start come first, and count too.
    earlier = time.perf_counter() - begin - solution.history[-1].seconds
    return [(earlier + p.seconds, p.loss) for p in solution.history], solution.bound


class _StopError(Exception):
    """The solver reached its target or its time limit."""


def lbfgs_curve(workload: Workload, max_seconds: float, target: float) -> Curve:
    """Solves a workload by L-BFGS, a general-purpose method.

    It minimises ||A C^-1||_F^2 over lower-triangular C with columns of norm 1, which is
    the problem of the optimal factorization with X = C^T C: the variables are the
    entries of a lower-triangular P, and C is P with its columns scaled. It starts at C
    = I.

    Args:
      workload: The workload.
      max_seconds: Seconds after which it stops.
      target: Loss at which it stops.

    Returns:
      (seconds, least loss so far) after each evaluation.
    """
    matrix = workload.matrix()
    rounds = workload.rounds
    where = np.tril_indices(rounds)
    curve: Curve = []
    begin = time.perf_counter()

    def loss_and_gradient(entries: np.ndarray) -> tuple[float, np.ndarray]:
        p = np.zeros((rounds, rounds))
        p[where] = entries
        norms = np.linalg.norm(p, axis=0)
        c = p / norms
        inverse = linalg.solve_triangular(c, np.eye(rounds), lower=True)
        b = matrix @ inverse
        loss = float(np.sum(b * b))
        slope = -2 * (b.T @ b) @ inverse.T
        # Chain rule of the scaling: a change along a column's own direction has no
        # effect.
        slope = (slope - c * np.sum(slope * c, axis=0)) / norms
        seconds = time.perf_counter() - begin
        curve.append((seconds, min(loss, curve[-1][1]) if curve else loss))
        if seconds > max_seconds or loss <= target:
            raise _StopError
        return loss, slope[where]

    options = {"maxiter": 10**6, "maxfun": 10**7, "maxcor": 10, "ftol": 0, "gtol": 0}
    how = {"jac": True, "method": "L-BFGS-B", "options": options}
    with contextlib.suppress(_StopError):
        optimize.minimize(loss_and_gradient, np.eye(rounds)[where], **how)
    return curve
