# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Buffered linear Toeplitz (BLT) encoders: a rational c(x) of degree d.

  c(x) = prod_i (1 - mu_i x) / prod_i (1 - theta_i x)
       = 1 + sum_i omega_i x / (1 - theta_i x)
  omega_i = prod_j (theta_i - mu_j) / prod_{j != i} (theta_i - theta_j)

and 1 / c(x) is the same with theta and mu exchanged (Dvijotham et al. 2024, Lemma 5.2;
McMahan et al. 2024, Algorithms 2 and 3). With 1 > theta_1 > mu_1 > theta_2 > ... > 0
every omega of C is positive and every one of C^-1 negative, and the coefficients of C
are positive and fall.

Start: 1 / sqrt(1 - x) = (2 / pi) int e^s / (e^{2s} + 1 - x) ds by the trapezoidal rule
at d points s: theta = 1 / (1 + e^{2s}), weights e^s theta normalised to sum 1.

Optimised: L-BFGS over p in R^{2d} with theta_1, mu_1, theta_2, ... = exp(-cumsum(e^p)),
which keeps their order. The derivatives need no partial fractions,

  dc / dtheta_i = c x / (1 - theta_i x),   dc / dmu_i = -c x / (1 - mu_i x),

and for e = 1 / c with the opposite signs: each is one pass of a first-order filter, so
an evaluation costs O(d T) (O(T^2) when the rate is not constant).
"""

from __future__ import annotations

import numpy as np
from scipy import signal

from dpfl import checks
from dpfl.factorization import toeplitz
from dpfl.factorization.factorization import Factorization
from dpfl.factorization.factors import BufferedFactors
from dpfl.factorization.workloads import Workload

_LEAST_LOG_STEP = np.log(1e-7)
_LARGEST_LOG_STEP = np.log(30.0)
_LARGEST_BUFFERS = 10
_AGREEMENT = 1e-9


def _scales(decay: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """The scales omega of prod (1 - zeros x) / prod (1 - decay x), shape (d,)."""
    difference = decay[:, None] - decay
    np.fill_diagonal(difference, 1.0)
    return np.prod(decay[:, None] - zeros, axis=1) / np.prod(difference, axis=1)


def _cascade(numerator: np.ndarray, denominator: np.ndarray, rounds: int) -> np.ndarray:
    """The series of prod (1 - numerator x) / prod (1 - denominator x)."""
    result = np.zeros(rounds)
    result[0] = 1.0
    for zero, pole in zip(numerator, denominator):
        result = signal.lfilter([1.0, -zero], [1.0, -pole], result)
    return result


def _delayed(column: np.ndarray, pole: float) -> np.ndarray:
    """The series of column x / (1 - pole x)."""
    return signal.lfilter([0.0, 1.0], [1.0, -pole], column)


def rational_start(buffers: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """The theta and mu of the trapezoidal rule for 1 / sqrt(1 - x), shape (d,).

    In T rounds the relevant 1 - x are from about 1 / (2 T) to 2, so e^{2s} must cover
    that and more: cutting the integral off delta further out at both ends leaves an
    error of e^-delta, the rule with the step h one of e^(-pi^2 / h), and delta balances
    them.
    """
    span = 0.5 * np.log(2.0 * max(rounds, 2))
    delta = (np.sqrt(span**2 + 8 * np.pi**2 * buffers) - span) / 4
    points = (np.arange(buffers) + 0.5) / buffers
    s = (span + 2 * delta) * points - span - delta
    decay = 1 / (1 + np.exp(2 * s))
    weights = np.exp(s) * decay
    scale = decay * weights / np.sum(weights)
    # The buffers of C^-1 are updated by decay * buffer - scale . buffer: its decays are
    # the eigenvalues, real and between those of C; the least is 0, as c(x) has a
    # numerator of degree d - 1.
    zeros = np.linalg.eigvals(np.diag(decay) - np.outer(np.ones(buffers), scale))
    zeros = np.sort(zeros.real)[::-1]
    zeros[-1] = max(zeros[-1], 1e-3 * decay[-1])
    return decay, zeros


def _ordered(params: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = np.exp(-np.cumsum(np.exp(params)))
    return values[0::2], values[1::2]


def _params(decay: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    values = np.stack([decay, zeros], axis=1).ravel()
    steps = np.diff(-np.log(values), prepend=0.0)
    log_steps = np.log(np.maximum(steps, 1e-300))
    return np.clip(log_steps, _LEAST_LOG_STEP, _LARGEST_LOG_STEP)


def factors_from_pair(
    decay: np.ndarray, zeros: np.ndarray, rounds: int
) -> BufferedFactors:
    """The factors with c(x) = prod (1 - zeros x) / prod (1 - decay x).

    Args:
      decay: theta, shape (d,), decreasing, in (0, 1).
      zeros: mu, shape (d,), interlaced with theta.
      rounds: T.

    Raises:
      ValueError: If two decays are so close that the partial fractions are not
        accurate.
    """
    factors = BufferedFactors(
        length=np.array(rounds, dtype=np.int64),
        decay=decay,
        scale=_scales(decay, zeros),
        inverse_decay=zeros,
        inverse_scale=_scales(zeros, decay),
    )
    error = max(
        np.max(np.abs(factors.coefficients() - _cascade(zeros, decay, rounds))),
        np.max(np.abs(factors.inverse_coefficients() - _cascade(decay, zeros, rounds))),
    )
    wanted = f"fewer than {len(decay)}, whose decays are too close for this workload"
    checks.require(error <= _AGREEMENT, "buffers", wanted, len(decay))
    return factors


def rational(workload: Workload, *, buffers: int) -> Factorization:
    """The closed-form rational approximation of the prefix sum's square root.

    Args:
      workload: A; its momentum and rates do not affect C.
      buffers: d, in [1, 10].
    """
    buffers = checks.integer("buffers", buffers, at_most=_LARGEST_BUFFERS)
    start = rational_start(buffers, workload.rounds)
    factors = factors_from_pair(*start, workload.rounds)
    return Factorization(workload, "blt-rational", {"buffers": buffers}, factors)


def optimize_blt(
    workload: Workload,
    *,
    buffers: int,
    separation: int = 1,
    participations: int = 1,
) -> Factorization:
    """The BLT of d buffers with the least error times squared sensitivity.

    Args:
      workload: A.
      buffers: d, in [1, 10].
      separation: b, least separation of one client's rounds.
      participations: k, the most rounds of one client.

    Raises:
      ValueError: If an argument is out of range, or the buffers are too many to be
        distinguished.
    """
    rounds = workload.rounds
    buffers = checks.integer("buffers", buffers, at_most=_LARGEST_BUFFERS)
    goal = {"separation": separation, "participations": participations}
    objective = toeplitz.log_objective(workload, separation, participations)

    def value_and_gradient(params: np.ndarray) -> tuple[float, np.ndarray]:
        decay, zeros = _ordered(params)
        column = _cascade(zeros, decay, rounds)
        inverse = _cascade(decay, zeros, rounds)
        value, error, slope, moved_slope = objective(column, inverse)
        signed = np.stack([decay, zeros], axis=1).ravel()
        gradient = np.empty(2 * buffers)
        for position, pole in enumerate(signed):
            sign = 1.0 if position % 2 == 0 else -1.0
            of_c = moved_slope @ _delayed(column, pole)
            of_e = slope @ _delayed(inverse, pole) / error
            gradient[position] = sign * (of_c - of_e)
        # value_m = exp(-sum_{l<=m} e^{p_l}), so d value_m / d p_l = -e^{p_l} value_m.
        tails = np.cumsum((gradient * signed)[::-1])[::-1]
        return value, -np.exp(params) * tails

    start = _params(*rational_start(buffers, rounds))
    limits = [(_LEAST_LOG_STEP, _LARGEST_LOG_STEP)] * (2 * buffers)
    optimum = toeplitz.minimized(value_and_gradient, start, limits, maxcor=30)
    factors = factors_from_pair(*_ordered(optimum), rounds)
    return Factorization(workload, "blt", {"buffers": buffers, **goal}, factors)
