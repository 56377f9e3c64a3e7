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

from collections.abc import Callable, Sequence

import numpy as np
from scipy import optimize, signal

from dpfl import checks
from dpfl.factorization import sensitivity
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.factors import ToeplitzFactors, series_inverse
from dpfl.factorization.workloads import Workload, check_products

# Maps a vector to a value and its gradient, such as e to the error e^T H e.
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def inverse_root(rho: float, rounds: int) -> np.ndarray:
    """The series (1 - rho x)^(-1/2): binom(2k, k) (rho / 4)^k, shape (T,).

    Args:
      rho: In [-1, 1].
      rounds: T.
    """
    k = np.arange(1, rounds)
    return np.concatenate([[1.0], np.cumprod(rho * (2 * k - 1) / (2 * k))])


def root_coefficients(rounds: int, *roots: float) -> np.ndarray:
    """The coefficients of prod_rho (1 - rho x)^(-1/2), shape (T,).

    The roots (1,) are for the prefix sum, (1, beta) for momentum, (alpha, beta) for
    momentum with weight decay, x_t = alpha x_{t-1} - m_t.
    """
    result = padded(np.ones(1), rounds)
    for rho in roots:
        if rho:
            result = signal.fftconvolve(result, inverse_root(rho, rounds))[:rounds]
    return result


def padded(values: np.ndarray, rounds: int) -> np.ndarray:
    """A column of the given values followed by zeros, shape (T,)."""
    result = np.zeros(rounds)
    result[: len(values)] = values
    return result


def check_bands(bands: int, rounds: int) -> int:
    """The number of diagonals, if it is in [1, T] and few enough to compute with."""
    bands = checks.integer("bands", bands, at_most=rounds)
    check_products("bands", bands, rounds)
    return bands


def error_form(workload: Workload) -> Objective:
    """The total error, which is minimised.

    For a constant rate the form is computed in O(T), as sum_k w_k b_k^2 with b = a e,
    and else with H in full, in O(T^2).
    """
    rounds = workload.rounds
    if workload.is_toeplitz:
        return _series_form(np.arange(rounds, 0.0, -1.0), workload.momentum)
    matrix = workload.matrix()
    # H[k, l] = sum_{j >= 0} G[j + k, j + l]: sums along the diagonals.
    form = matrix.T @ matrix
    for row in range(rounds - 2, -1, -1):
        form[row, :-1] += form[row + 1, 1:]

    def in_full(inverse: np.ndarray) -> tuple[float, np.ndarray]:
        product = form @ inverse
        return float(inverse @ product), 2 * product

    return in_full


def _series_form(weights: np.ndarray, momentum: float) -> Objective:
    denominator = np.convolve([1.0, -1.0], [1.0, -momentum])

    def filtered(x: np.ndarray) -> np.ndarray:
        return signal.lfilter([1.0], denominator, x)

    def in_series(inverse: np.ndarray) -> tuple[float, np.ndarray]:
        decoder = filtered(inverse)
        weighted = weights * decoder
        return float(decoder @ weighted), 2 * filtered(weighted[::-1])[::-1]

    return in_series


def pull_back(inverse: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """The gradient in c from that in e = 1/c: -sum_k g[k] (e^2)_{k-j} at j."""
    rounds = len(inverse)
    square = signal.fftconvolve(inverse, inverse)[:rounds]
    return -signal.fftconvolve(gradient, square[::-1])[rounds - 1 :]


def log_sensitivity_squared(
    coefficients: np.ndarray, separation: int, participations: int
) -> tuple[float, np.ndarray]:
    """log ||P c||^2 and its gradient, where P c = sum_{m<k} x^{mb} c.

    Args:
      coefficients: c, shape (T,).
      separation: b.
      participations: k.
    """
    comb = sensitivity.comb_sum(coefficients, separation, participations)
    squared = float(comb @ comb)
    turned = sensitivity.comb_sum(comb[::-1], separation, participations)[::-1]
    return float(np.log(squared)), 2 * turned / squared


def log_objective(
    workload: Workload, separation: int, participations: int
) -> Callable[..., tuple[float, float, np.ndarray, np.ndarray]]:
    """The log of the error times squared sensitivity, as a function of two columns.

    Args:
      workload: A.
      separation: b.
      participations: k.

    Returns:
      A function from the first columns of C and of C^-1 to the value, the error, its
      gradient in the column of C^-1, and that of the log sensitivity squared in C's.
    """
    form = error_form(workload)

    def objective(column: np.ndarray, inverse: np.ndarray) -> tuple:
        error, slope = form(inverse)
        moved, moved_slope = log_sensitivity_squared(column, separation, participations)
        return float(np.log(error)) + moved, error, slope, moved_slope

    return objective


def minimized(
    value_and_gradient: Objective,
    start: np.ndarray,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
    callback: Callable[[np.ndarray], None] | None = None,
    **options: float,
) -> np.ndarray:
    """Minimises an objective by L-BFGS, and returns the minimiser.

    Args:
      value_and_gradient: The objective.
      start: The first point.
      bounds: Lower and upper bound of each coordinate; None for none.
      callback: Function that is called with the point after each iteration.
      **options: Options of scipy's method "L-BFGS-B".
    """
    usual = {"maxiter": 500, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-10}
    # A step that is much too long overflows, and the search backtracks.
    with np.errstate(over="ignore", invalid="ignore"):
        return optimize.minimize(
            value_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=callback,
            options={**usual, **options},
        ).x


def root(workload: Workload) -> Factorization:
    """The closed form: C is the root of the workload at a constant rate."""
    column = root_coefficients(workload.rounds, 1.0, workload.momentum)
    return Factorization(workload, "toeplitz-root", {}, ToeplitzFactors(column))


def optimize_toeplitz(
    workload: Workload,
    *,
    bands: int | None = None,
    separation: int = 1,
    participations: int = 1,
) -> Factorization:
    """The Toeplitz C with the least error times squared sensitivity.

    Args:
      workload: A.
      bands: Diagonals of C, in [1, T]; None is all T.
      separation: b, least separation of one client's rounds.
      participations: k, the most rounds of one client.

    Raises:
      ValueError: If an argument is out of range.
    """
    rounds = workload.rounds
    bands = check_bands(rounds if bands is None else bands, rounds)
    goal = {"separation": separation, "participations": participations}
    objective = log_objective(workload, separation, participations)

    def objective_of(c: np.ndarray) -> tuple[float, np.ndarray]:
        inverse = series_inverse(c, rounds)
        value, error, slope, moved_slope = objective(padded(c, rounds), inverse)
        gradient = pull_back(inverse, slope) / error + moved_slope
        return value, gradient[:bands]

    def in_drops(drops: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective_of(np.cumsum(drops[::-1])[::-1])
        return value, np.cumsum(gradient)

    def in_ratios(ratios: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective_of(np.concatenate([[1.0], ratios]))
        return value, gradient[1:]

    if participations > 1 and separation < rounds:
        # The comb's formula needs coefficients that are not negative and do not rise:
        # they are then tail sums of free values that are not negative.
        start = root_coefficients(rounds, 1.0)[:bands]
        limits = [(0.0, None)] * (bands - 1) + [(1e-9, None)]
        drops = minimized(in_drops, -np.diff(start, append=0.0), limits)
        coefficients = np.cumsum(drops[::-1])[::-1]
    elif bands > 1:
        start = root_coefficients(rounds, 1.0, workload.momentum)[:bands]
        coefficients = np.concatenate([[1.0], minimized(in_ratios, start[1:])])
    else:
        coefficients = np.ones(1)
    factors = ToeplitzFactors(
        padded(coefficients / np.linalg.norm(coefficients), rounds)
    )
    return Factorization(workload, "toeplitz", {"bands": bands, **goal}, factors)
