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
f_k is that of k rounds between two of them (with the rest of the probability none
follows). Where the hazards r_k = f_k / (1 - f_1 - ... - f_{k-1}) do not rise, c does
not either. For of two ages (rounds since the last renewal) the smaller is renewed
whenever the larger is, by the same uniform number, so that it stays the smaller. The
age starts at 0, its least, and so rises in distribution; and c_{t+1}, the mean of r at
the age in t plus 1, falls. Then the (k, b) sensitivity is that of rounds 0, b, 2 b, ...
For (1 - x)^(1/2) the hazards are 1 / (2 k). L-BFGS is over hazards that are products of
sigmoids.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from dpfl.factorization import toeplitz
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.factors import InverseBandedFactors, series_inverse
from dpfl.factorization.workloads import Workload

# Bound on the logits of ratios of hazards, which are between exp(-30) and 1 - exp(-30).
_LARGEST = 30.0


def hazards(params: np.ndarray) -> np.ndarray:
    """Hazards that do not rise, in (0, 1), shape (p - 1,)."""
    return np.exp(np.cumsum(special.log_expit(params)))


def from_hazards(risks: np.ndarray) -> np.ndarray:
    """The entries of e, shape (p,), from the hazards, shape (p - 1,)."""
    survival = np.append(1.0, 1 - risks[:-1]).cumprod()
    return np.concatenate([[1.0], -risks * survival])


def chain(params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The gradient in the parameters from the gradient in e_1, ..., e_{p-1}."""
    risks = hazards(params)
    products = gradient * from_hazards(risks)[1:]
    # A hazard changes its own entry in proportion, and reduces all later ones.
    after = np.sum(products) - np.cumsum(products)
    in_logs = products - risks / (1 - risks) * after
    return np.cumsum(in_logs[::-1])[::-1] * special.expit(-params)


def root(workload: Workload, *, bands: int) -> Factorization:
    """The closed form: C^-1 is cut from the root of A^-1 (BISR).

    Args:
      workload: A; its rates do not affect C.
      bands: p, diagonals of C^-1, in [1, T].
    """
    bands = toeplitz.check_bands(bands, workload.rounds)
    column = toeplitz.root_coefficients(bands, 1.0, workload.momentum)
    inverse = series_inverse(column, bands)
    factors = InverseBandedFactors(toeplitz.padded(inverse, workload.rounds))
    return Factorization(workload, "banded-inverse-root", {"bands": bands}, factors)


def optimize_inverse(
    workload: Workload,
    *,
    bands: int,
    separation: int = 1,
    participations: int = 1,
) -> Factorization:
    """The C^-1 of p diagonals with the least error times squared sensitivity.

    Args:
      workload: A.
      bands: p, diagonals of C^-1, in [1, T].
      separation: b, least separation of one client's rounds.
      participations: k, the most rounds of one client.

    Raises:
      ValueError: If an argument is out of range.
    """
    rounds = workload.rounds
    bands = toeplitz.check_bands(bands, rounds)
    goal = {"separation": separation, "participations": participations}
    objective = toeplitz.log_objective(workload, separation, participations)

    def value_and_gradient(params: np.ndarray) -> tuple[float, np.ndarray]:
        inverse = toeplitz.padded(from_hazards(hazards(params)), rounds)
        column = series_inverse(inverse, rounds)
        value, error, slope, moved_slope = objective(column, inverse)
        gradient = slope / error + toeplitz.pull_back(column, moved_slope)
        return value, chain(params, gradient[1:bands])

    inverse = np.ones(1)
    if bands > 1:
        # Hazards of the prefix sum's root, 1 / (2 k), each over the one before.
        k = np.arange(1, bands)
        ratios = np.where(k == 1, 0.5, (k - 1) / k)
        limits = [(-_LARGEST, _LARGEST)] * (bands - 1)
        optimum = toeplitz.minimized(value_and_gradient, special.logit(ratios), limits)
        inverse = from_hazards(hazards(optimum))
    factors = InverseBandedFactors(toeplitz.padded(inverse, rounds))
    return Factorization(workload, "banded-inverse", {"bands": bands, **goal}, factors)
