# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lower-triangular Toeplitz encoders: closed form, and optimised coefficients.

C[i, j] = c_{i-j}. Products and inverses are those of power series modulo x^T. Write
e = 1 / c for the first column of C^-1.

Closed form. A constant-rate workload has a(x) = 1 / ((1 - x)(1 - beta x)); C = B = its
square root, c(x) = prod_rho (1 - rho x)^(-1/2) over rho in {1, beta}, where
(1 - rho x)^(-1/2) has the coefficients binom(2k, k) (rho / 4)^k (Fichtenberger et al.
2022 for rho = 1; Kalinin and Lampert 2024 for two factors).

Optimised. The error is a quadratic form in e: column j of C^-1 is e delayed by j, so

  ||A C^-1||_F^2 = e^T H e,  H[k, l] = sum_j (A^T A)[j + k, j + l],

and for Toeplitz A, with b = a e, it is sum_k (T - k) b_k^2, in O(T). Since
de = - e^2 dc, a gradient g in e is the gradient -corr(e^2, g) in c. The sensitivity
is ||c|| for one participation and for (k, b) participation with b bands at most times
sqrt(k); in general ||sum_{m<k} x^{mb} c|| for coefficients that are not negative and
do not rise. L-BFGS minimises log error + log sensitivity^2, which no scaling changes.
"""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np
from scipy import optimize, signal

from dpfl import checks
from dpfl.factorization import sensitivity
from dpfl.factorization.encoders import ToeplitzFactors, series_inverse
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.workloads import Workload, check_products


def inverse_root(rho: float, rounds: int) -> np.ndarray:
    """Returns those of (1 - rho x)^(-1/2): binom(2k, k) (rho / 4)^k, shape (T,).

    Args:
      rho: In [-1, 1].
      rounds: T.
    """
    rho = checks.real("rho", rho, at_least=-1, at_most=1)
    k = np.arange(1, checks.integer("rounds", rounds))
    return np.concatenate([[1.0], np.cumprod(rho * (2 * k - 1) / (2 * k))])


def root_coefficients(rounds: int, *roots: float) -> np.ndarray:
    """Returns the coefficients of prod_rho (1 - rho x)^(-1/2), shape (T,).

    (1,) is the prefix sum's root, (1, beta) that of momentum, (alpha, beta) that of
    momentum with weight decay, x_t = alpha x_{t-1} - m_t.
    """
    result = np.zeros(checks.integer("rounds", rounds))
    result[0] = 1.0
    for rho in roots:
        result = signal.fftconvolve(result, inverse_root(rho, rounds))[:rounds]
    return result


class ErrorForm(abc.ABC):
    """The squared error e^T H e of a Toeplitz C^-1 with first column e."""

    @abc.abstractmethod
    def __call__(self, inverse: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the error and its gradient in e, which has shape (T,)."""


class _SeriesForm(ErrorForm):
    """sum_k w_k b_k^2 with b = a e for a Toeplitz workload, in O(T)."""

    def __init__(self, workload: Workload, weights: np.ndarray):
        self._weights = weights
        self._denominator = np.convolve([1.0, -1.0], [1.0, -workload.momentum])

    def _filter(self, x: np.ndarray) -> np.ndarray:
        return signal.lfilter([1.0], self._denominator, x)

    def __call__(self, inverse: np.ndarray) -> tuple[float, np.ndarray]:
        decoder = self._filter(inverse)
        weighted = self._weights * decoder
        gradient = 2 * self._filter(weighted[::-1])[::-1]
        return float(decoder @ weighted), gradient


class _MatrixForm(ErrorForm):
    """e^T H e with H in full: any workload, O(T^2)."""

    def __init__(self, form: np.ndarray):
        self._form = form

    def __call__(self, inverse: np.ndarray) -> tuple[float, np.ndarray]:
        product = self._form @ inverse
        return float(inverse @ product), 2 * product


def _diagonal_tail_sums(gram: np.ndarray) -> np.ndarray:
    """Returns H[k, l] = sum_{j >= 0} G[j + k, j + l]: sums along the diagonals."""
    result = gram.copy()
    for row in range(len(gram) - 2, -1, -1):
        result[row, :-1] += result[row + 1, 1:]
    return result


def _total_form(workload: Workload) -> ErrorForm:
    if workload.is_toeplitz:
        return _SeriesForm(workload, np.arange(workload.rounds, 0.0, -1.0))
    matrix = workload.matrix()
    return _MatrixForm(_diagonal_tail_sums(matrix.T @ matrix))


def _last_form(workload: Workload) -> ErrorForm:
    if workload.is_toeplitz:
        return _SeriesForm(workload, np.ones(workload.rounds))
    last = workload.matrix()[-1]
    return _MatrixForm(_diagonal_tail_sums(np.outer(last, last)))


_FORMS: dict[str, Callable[[Workload], ErrorForm]] = {
    "total": _total_form,
    "last": _last_form,
}


def error_form(workload: Workload, objective: str) -> ErrorForm:
    """Returns the error to minimise: 'total', or 'last' (the last iterate's).

    For a constant rate the last iterate's error is the largest.

    Raises:
      ValueError: If the objective is another.
    """
    return _FORMS[checks.choice("objective", objective, _FORMS)](workload)


def pull_back(inverse: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Returns the gradient in c by that in e = 1/c: -sum_k g[k] (e^2)_{k-j} at j."""
    rounds = len(inverse)
    square = signal.fftconvolve(inverse, inverse)[:rounds]
    return -signal.fftconvolve(gradient, square[::-1])[rounds - 1 :]


def root(workload: Workload) -> Factorization:
    """Returns the closed form: C is the root of the workload at a constant rate."""
    roots = (1.0, workload.momentum) if workload.momentum else (1.0,)
    return Factorization(
        workload=workload,
        method="toeplitz-root",
        params={},
        factors=ToeplitzFactors(root_coefficients(workload.rounds, *roots)),
    )


def log_sensitivity_squared(
    coefficients: np.ndarray, separation: int, participations: int
) -> tuple[float, np.ndarray]:
    """Returns log ||P c||^2 and its gradient, where P c = sum_{m<k} x^{mb} c."""
    comb = sensitivity.comb_sum(coefficients, separation, participations)
    squared = float(comb @ comb)
    turned = sensitivity.comb_sum(comb[::-1], separation, participations)[::-1]
    return float(np.log(squared)), 2 * turned / squared


def optimize_toeplitz(
    workload: Workload,
    *,
    bands: int | None = None,
    objective: str = "total",
    separation: int = 1,
    participations: int = 1,
    max_iterations: int = 500,
) -> Factorization:
    """Returns the Toeplitz C with the least error times squared sensitivity.

    Args:
      workload: A.
      bands: Diagonals of C, in [1, T]; None is all T.
      objective: See `error_form`.
      separation: b, least separation of one client's rounds.
      participations: k, the most rounds of one client.
      max_iterations: L-BFGS iterations.

    Raises:
      ValueError: If an argument is out of range.
    """
    rounds = workload.rounds
    bands = checks.integer("bands", rounds if bands is None else bands, at_most=rounds)
    check_products("bands", bands, rounds)
    separation = checks.integer("separation", separation)
    participations = checks.integer("participations", participations)
    form = error_form(workload, objective)
    # The comb's formula needs coefficients that are not negative and do not rise:
    # they are then tail sums of free values that are not negative.
    repeated = participations > 1 and separation < rounds
    many = participations if repeated else 1

    def objective_of(c: np.ndarray) -> tuple[float, np.ndarray]:
        padded = np.zeros(rounds)
        padded[:bands] = c
        inverse = series_inverse(c, rounds)
        error, slope = form(inverse)
        moved, moved_slope = log_sensitivity_squared(padded, separation, many)
        gradient = pull_back(inverse, slope) / error + moved_slope
        return float(np.log(error)) + moved, gradient[:bands]

    def in_drops(drops: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective_of(np.cumsum(drops[::-1])[::-1])
        return value, np.cumsum(gradient)

    def in_ratios(ratios: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective_of(np.concatenate([[1.0], ratios]))
        return value, gradient[1:]

    roots = (1.0, workload.momentum) if workload.momentum else (1.0,)
    start = root_coefficients(rounds, *roots)[:bands]
    options = {"maxiter": max_iterations, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-10}
    if repeated:
        start = root_coefficients(rounds, 1.0)[:bands]
        drops = -np.diff(start, append=0.0)
        limits = [(0.0, None)] * (bands - 1) + [(1e-9, None)]
        found = optimize.minimize(
            in_drops, drops, jac=True, method="L-BFGS-B", bounds=limits, options=options
        )
        coefficients = np.cumsum(found.x[::-1])[::-1]
    elif bands > 1:
        found = optimize.minimize(
            in_ratios, start[1:], jac=True, method="L-BFGS-B", options=options
        )
        coefficients = np.concatenate([[1.0], found.x])
    else:
        coefficients = start
    padded = np.zeros(rounds)
    padded[:bands] = coefficients / np.linalg.norm(coefficients)
    return Factorization(
        workload=workload,
        method="toeplitz",
        params={
            "bands": bands,
            "objective": objective,
            "separation": separation,
            "participations": participations,
        },
        factors=ToeplitzFactors(padded),
    )
