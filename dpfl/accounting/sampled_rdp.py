# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Renyi divergences of sampled Gaussians: Poisson sampling and cohorts of a fixed size.

With P = (1 - q) N(0, 1) + q N(m, 1) and Q = N(0, 1), the moment E_Q (P/Q)^a is 1 + E_Q
g, with g = (1 + u)^a - 1 - a u, u = P/Q - 1, which is nowhere negative. It is computed
by quadrature, at any order.

For cohorts of a fixed size the log-moment of a whole order a is at most

  log(1 + sum_{l>=2} C(a, l) q^l min(4 sqrt(B(2 floor(l/2)) B(2 ceil(l/2))),
                                     2 exp((l - 1) l m^2 / 2))),  B(l) = E_Q (w - 1)^l,

w the likelihood ratio of one client replaced by another, where nobody is sampled: Wang,
Balle and Kasiviswanathan (2019), 'Subsampled Renyi Differential Privacy and Analytical
Moments Accountant', Theorem 27. No B of an even l has a negative term, and the
quadrature has none.
"""

from __future__ import annotations

import math

import numpy as np

from dpfl import checks
from dpfl.accounting import events, gaussian, log_space

# Log error of the rule, and of the window that it is used on.
_LOG_ERROR = 45.0
_WINDOW = 13.0
# Largest number of values of the integrand for which the quadrature is done.
_MOST_VALUES = 1_000_000
# Relative allowance for rounding; that of g itself grows towards order 1.
_RDP_ROUNDING = 1e-11


def _log_excess(orders: np.ndarray, x: np.ndarray, q: float, m: float) -> np.ndarray:
    """log g, shape [len(orders), len(x)]."""
    exponent = m * x - 0.5 * m * m
    u = q * np.expm1(np.minimum(exponent, 300.0))
    log_ratio = np.where(
        exponent < 300.0, np.log1p(u), math.log(q) + np.maximum(exponent, 300.0)
    )
    a = orders[:, None]
    power = a * log_ratio
    # Three forms of g: the binomial series, the definition, and one that cannot
    # overflow.
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

    It is infinite where the noise is so small that the quadrature would be long.

    Args:
      orders: Renyi orders, finite and greater than 1; shape [m].
      sampling_probability: In (0, 1).
      noise_multiplier: Noise std over L2 sensitivity, above 0.
    """
    alphas = checks.orders(orders)
    m, q = 1 / noise_multiplier, sampling_probability
    strip = min(2.5 / m, 6.0)
    step = 2 * math.pi * strip / (_LOG_ERROR + 0.5 * strip * strip)
    result = np.full(alphas.shape, np.inf)
    near = (alphas * m + 2 * _WINDOW) / step * alphas.size < _MOST_VALUES
    if not near.any():
        return result
    alphas = alphas[near]
    length = (float(np.max(alphas)) * m + 2 * _WINDOW) / step
    x = -_WINDOW + step * np.arange(math.ceil(length) + 1)
    with np.errstate(divide="ignore", under="ignore"):
        terms = _log_excess(alphas, x, q, m) - 0.5 * x * x
        total = log_space.log_sum_exp(terms)
        total += math.log(step / math.sqrt(2 * math.pi))
        rdp = np.logaddexp(0.0, total) / (alphas - 1)
    result[near] = rdp * (1 + _RDP_ROUNDING + 1e-14 / (alphas - 1))
    return result


# Largest l at which B is computed, as in dp_accounting; the other term is the bound
# beyond.
_MOST_POWER = 256
# The other term is the smaller one where w reaches exp of this.
_MOST_EXPONENT = 50.0


def _log_even_moments(m: float) -> np.ndarray:
    """log B(l), l = 0, 2, ..., 256; infinite where it is not needed."""
    powers = np.arange(0, _MOST_POWER + 1, 2)
    result = np.full(powers.shape, np.inf)
    near = powers * m <= _MOST_EXPONENT
    # The mass of powers of x is around the roots of their degrees.
    reach = _WINDOW + math.sqrt(_MOST_POWER)
    step = 0.125
    x = np.arange(-reach, reach + _MOST_EXPONENT + step, step)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = m * x - 0.5 * m * m
        ratio = np.log(np.abs(np.expm1(np.minimum(exponent, 40.0))))
        ratio = np.maximum(ratio, np.where(exponent > 40, exponent, -np.inf))
        terms = powers[near, None] * ratio - 0.5 * x * x
    terms[0] = -0.5 * x * x
    result[near] = log_space.log_sum_exp(terms) + math.log(
        step / math.sqrt(2 * math.pi)
    )
    return result


def drawn_gaussian_rdp(
    orders: events.Orders, fraction: float, noise_multiplier: float
) -> np.ndarray:
    """The RDP of the Gaussian on cohorts of a fixed size, drawn afresh; float64 [m].

    One client is replaced by another. Between whole orders the log-moment is bounded by
    its chord.

    Args:
      orders: Renyi orders, finite and greater than 1; shape [m].
      fraction: The share of clients that are drawn, in [0, 1].
      noise_multiplier: Noise std over the largest change of a sum by a replacement.
    """
    alphas = checks.orders(orders)
    plain = gaussian.gaussian_rdp(noise_multiplier, alphas)
    if fraction == 0:
        return np.zeros(alphas.shape)
    if fraction == 1 or noise_multiplier == 0:
        return plain
    rdp = log_space.up_to_most_order(
        alphas, lambda near: _drawn_rdp(near, fraction, 1 / noise_multiplier)
    )
    # Sampling never increases the RDP: Renyi divergence is quasi-convex.
    return np.minimum(rdp * (1 + _RDP_ROUNDING), plain)


def _drawn_rdp(alphas: np.ndarray, fraction: float, m: float) -> np.ndarray:
    """The module's bound for cohorts of a fixed size, with chords; [m]."""
    integers = log_space.whole_orders(alphas)
    l = np.arange(2.0, integers[-1] + 1)
    terms = np.minimum(math.log(2) + 0.5 * l * (l - 1) * min(m * m, 1e280), 1e290)
    even = _log_even_moments(m)
    low, high = (
        np.append(even, np.inf)[np.minimum(half, even.size).astype(int)]
        for half in (np.floor(l / 2), np.ceil(l / 2))
    )
    terms = np.minimum(terms, math.log(4) + 0.5 * (low + high))
    terms += l * math.log(fraction)
    moments = log_space.binomial_sums(integers, terms)
    return log_space.chord(alphas, integers, moments) / (alphas - 1)
