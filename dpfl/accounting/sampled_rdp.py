# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Renyi divergences of a Gaussian with Poisson sampling, at any orders, by quadrature.

With P = (1 - q) N(0, 1) + q N(m, 1) and Q = N(0, 1), the moment E_Q (P/Q)^a is 1 + E_Q
g, of a g without a negative value: what (1 + u)^a has beyond its chord, u = P/Q - 1.
"""

from __future__ import annotations

import math

import numpy as np

from dpfl import checks
from dpfl.accounting import events, log_space

# The error of the rule, and of the window that it is used on, is below exp(-45).
_LOG_ERROR = 45.0
_WINDOW = 13.0
# Values of the integrand above which the quadrature is not done.
_MOST_VALUES = 1_000_000
# Relative allowance for rounding; that of g itself grows towards order 1.
_RDP_ROUNDING = 1e-11


def _log_excess(orders: np.ndarray, x: np.ndarray, q: float, m: float) -> np.ndarray:
    """Returns log g, shape [len(orders), len(x)]."""
    exponent = m * x - 0.5 * m * m
    u = q * np.expm1(np.minimum(exponent, 300.0))
    log_ratio = np.where(
        exponent < 300.0, np.log1p(u), math.log(q) + np.maximum(exponent, 300.0)
    )
    a = orders[:, None]
    power = a * log_ratio
    # Three forms of g: the binomial series, the definition, and without overflow.
    term = np.where(np.abs(u) * a < 0.01, u, 0.0)
    term = 0.5 * a * (a - 1) * term * term
    series = term.copy()
    for k in range(3, 9):
        term = term * (a - k + 1) / k * np.where(np.abs(u) * a < 0.01, u, 0.0)
        series += term
    direct = np.expm1(np.minimum(power, 30.0)) - a * np.minimum(u, 1e15)
    small = np.where(np.abs(u) * a < 0.01, series, np.maximum(direct, 0.0))
    linear = np.log(a) + log_ratio
    large = power + np.log1p(-np.exp(np.minimum(linear - power, -1e-9)))
    return np.where(power < 30.0, np.log(small), large)


def sampled_gaussian_rdp(
    orders: events.Orders, sampling_probability: float, noise_multiplier: float
) -> np.ndarray:
    """The RDP of the Poisson-sampled Gaussian at any orders, rounded up; float64 [m].

    It is infinite where the noise is so small that the quadrature would be long. The
    sampling probability is in (0, 1), and the noise multiplier above 0.
    """
    alphas = checks.orders(orders)
    m, q = 1 / noise_multiplier, sampling_probability
    strip = min(2.5 / m, 6.0)
    step = 2 * math.pi * strip / (_LOG_ERROR + 0.5 * strip * strip)
    length = (float(np.max(alphas)) * m + 2 * _WINDOW) / step
    if not length * alphas.size < _MOST_VALUES:
        return np.full(alphas.shape, np.inf)
    x = -_WINDOW + step * np.arange(math.ceil(length) + 1)
    with np.errstate(divide="ignore", under="ignore"):
        terms = _log_excess(alphas, x, q, m) - 0.5 * x * x
        total = log_space.log_sum_exp(terms)
        total += math.log(step / math.sqrt(2 * math.pi))
        rdp = np.logaddexp(0.0, total) / (alphas - 1)
    return rdp * (1 + _RDP_ROUNDING + 1e-14 / (alphas - 1))
