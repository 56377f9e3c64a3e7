# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoders whose inverse has few diagonals: noise of p numbers a coordinate and round.

C^-1 is Toeplitz with the first column e, e_0 = 1 and p entries in all; C is full, with
the first column c = 1 / e modulo x^T. A round's noise is sum_{k<p} e_k z_{t-k}, without
a recurrence.

  banded-inverse-root  e is cut from the root of A^-1: prod_rho (1 - rho x)^(1/2)
                       (BISR, Kalinin et al. 2025)
  banded-inverse       e of the least error (BandInvMF, the same)

With f_k = -e_k, c_t = sum_k f_k c_{t-k}: c_t is the probability of a renewal at t, if
f_k is that of k rounds between two of them (what is left of 1: none follows). Where the
hazards r_k = f_k / (1 - f_1 - ... - f_{k-1}) do not rise, c does not either. For of two
ages (rounds since the last renewal) the smaller is renewed whenever the larger is, by
the same uniform number, so that it stays the smaller. The age starts at 0, its least,
and so rises in distribution; and c_{t+1}, the mean of r at the age in t plus 1, falls.
Then the (k, b) sensitivity is that of rounds 0, b, 2 b, ... For (1 - x)^(1/2) the
hazards are 1 / (2 k). L-BFGS is over hazards that are products of sigmoids.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize, special

from dpfl import checks
from dpfl.factorization.encoders import InverseBandedFactors, series_inverse
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.toeplitz import (
    error_form,
    log_sensitivity_squared,
    pull_back,
    root_coefficients,
)
from dpfl.factorization.workloads import Workload, check_products

# Ratios of hazards are between exp(-30) and 1 - exp(-30).
_LARGEST = 30.0


def _check_bands(workload: Workload, bands: int) -> int:
    rounds = workload.rounds
    bands = checks.integer("bands", bands, at_most=rounds)
    check_products("bands", bands, rounds)
    return bands


def _root(workload: Workload, bands: int) -> np.ndarray:
    """Returns the first entries of the root of A^-1 at a constant rate, shape (p,)."""
    roots = (1.0, workload.momentum) if workload.momentum else (1.0,)
    return series_inverse(root_coefficients(bands, *roots), bands)


def _padded(values: np.ndarray, rounds: int) -> np.ndarray:
    result = np.zeros(rounds)
    result[: len(values)] = values
    return result


def hazards(params: np.ndarray) -> np.ndarray:
    """Returns hazards that do not rise, in (0, 1), shape (p - 1,)."""
    return np.exp(np.cumsum(special.log_expit(params)))


def from_hazards(risks: np.ndarray) -> np.ndarray:
    """Returns e, shape (p,), from the hazards, shape (p - 1,)."""
    survival = np.cumprod(np.concatenate([[1.0], 1 - risks[:-1]]))
    return np.concatenate([[1.0], -risks * survival])


def chain(params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Returns the gradient in the parameters by that in e_1, ..., e_{p-1}."""
    risks = hazards(params)
    products = gradient * from_hazards(risks)[1:]
    # A hazard moves its own entry in proportion, and takes from all that follow.
    after = np.sum(products) - np.cumsum(products)
    in_logs = products - risks / (1 - risks) * after
    return np.cumsum(in_logs[::-1])[::-1] * special.expit(-params)


def root(workload: Workload, *, bands: int) -> Factorization:
    """Returns the closed form: C^-1 is cut from the root of A^-1 (BISR).

    Args:
      workload: A; its rates play no part in C.
      bands: p, diagonals of C^-1, in [1, T].
    """
    bands = _check_bands(workload, bands)
    return Factorization(
        workload=workload,
        method="banded-inverse-root",
        params={"bands": bands},
        factors=InverseBandedFactors(_padded(_root(workload, bands), workload.rounds)),
    )


def optimize_inverse(
    workload: Workload,
    *,
    bands: int,
    objective: str = "total",
    separation: int = 1,
    participations: int = 1,
    max_iterations: int = 500,
) -> Factorization:
    """Returns the C^-1 of p diagonals with the least error times squared sensitivity.

    Args:
      workload: A.
      bands: p, diagonals of C^-1, in [1, T].
      objective: 'total' or 'last': see `toeplitz.error_form`.
      separation: b, least separation of one client's rounds.
      participations: k, the most rounds of one client.
      max_iterations: L-BFGS iterations.

    Raises:
      ValueError: If an argument is out of range.
    """
    bands = _check_bands(workload, bands)
    rounds = workload.rounds
    separation = checks.integer("separation", separation)
    participations = checks.integer("participations", participations)
    form = error_form(workload, objective)
    many = participations if separation < rounds else 1

    def value_and_gradient(params: np.ndarray) -> tuple[float, np.ndarray]:
        inverse = _padded(from_hazards(hazards(params)), rounds)
        column = series_inverse(inverse, rounds)
        error, slope = form(inverse)
        moved, moved_slope = log_sensitivity_squared(column, separation, many)
        gradient = slope / error + pull_back(column, moved_slope)
        return float(np.log(error)) + moved, chain(params, gradient[1:bands])

    inverse = np.ones(1)
    if bands > 1:
        # Those of the prefix sum's root, 1 / (2 k): each over the one before.
        k = np.arange(1, bands)
        ratios = np.where(k == 1, 0.5, (k - 1) / k)
        found = optimize.minimize(
            value_and_gradient,
            special.logit(ratios),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-_LARGEST, _LARGEST)] * (bands - 1),
            options={
                "maxiter": max_iterations,
                "maxcor": 20,
                "ftol": 1e-14,
                "gtol": 1e-10,
            },
        )
        inverse = from_hazards(hazards(found.x))
    return Factorization(
        workload=workload,
        method="banded-inverse",
        params={
            "bands": bands,
            "objective": objective,
            "separation": separation,
            "participations": participations,
        },
        factors=InverseBandedFactors(_padded(inverse, rounds)),
    )
