# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""The bounds on integer noise that its papers print.

Discrete Gaussian (Chen et al. 2022, Theorem E.1, with its misprints corrected). For a
sum of n shares N_Z(0, (sigma/g)^2) in grid steps g, in m dimensions, with squared
sensitivity Delta^2 after rounding (`rounded_l2_squared`),

  tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 (sigma^2/g^2) k/(k+1))
  eps = min{ sqrt(Delta^2/(n sigma^2) + tau m/2),
             Delta/(sqrt(n) sigma) + tau sqrt(m) }

and the sum is eps^2/2-concentrated: RDP(alpha) = alpha eps^2 / 2.

Skellam (Agarwal, Kairouz and Liu 2021, Theorem 3.5). For a sum of variance mu and
sensitivities Delta_1 and Delta_2 in grid steps, at an integer order alpha,

  RDP(alpha) = alpha Delta_2^2 / (2 mu)
    + min{ ((2 alpha - 1) Delta_2^2 + 6 Delta_1) / (4 mu^2), 3 Delta_1 / (2 mu) }.
"""

from __future__ import annotations

import math

import numpy as np

from dpfl import checks
from dpfl.accounting import events

LEAST_PUBLISHED_STDDEV = 0.5
"""The least sigma/g that Kairouz et al. 2021, Proposition 14, covers."""

DEFAULT_ROUNDING_BIAS = math.exp(-0.5)
"""beta, the bias allowed to conditional rounding, as Kairouz et al. choose it."""


def rounded_l2_squared(
    clip_norm: float,
    granularity: float,
    dimension: int,
    rounding_bias: float = DEFAULT_ROUNDING_BIAS,
) -> float:
    """Delta^2, the largest squared norm that conditional rounding accepts.

    Chen et al. 2022, Theorem E.1 and Algorithm 6; Kairouz et al. 2021, Proposition 26.

    Args:
      clip_norm: c, the L2 bound before rounding.
      granularity: g, the grid step, in the units of `clip_norm`.
      dimension: m, length of the rotated (padded) vector.
      rounding_bias: beta in [0, 1); 0 rounds without a condition.

    Raises:
      ValueError: an argument is out of its range.
    """
    c = checks.positive("clip_norm", clip_norm)
    g = checks.positive("granularity", granularity)
    m = checks.integer("dimension", dimension)
    beta = checks.real("rounding_bias", rounding_bias, at_least=0, below=1)
    always = (c + g * math.sqrt(m)) ** 2
    if beta == 0:
        return always
    usually = c**2 + g**2 * m / 4
    usually += math.sqrt(2 * math.log(1 / beta)) * g * (c + g * math.sqrt(m) / 2)
    return min(usually, always)


def has_discrete_gaussian_bound(noise_clients: int, local_stddev_steps: float) -> bool:
    """Whether there is a published bound of n discrete Gaussian shares.

    For a sum it presumes shares of at least half a grid step; below it is no bound. A
    single share needs no such premise (Canonne, Kamath and Steinke 2020).
    """
    return noise_clients == 1 or local_stddev_steps >= LEAST_PUBLISHED_STDDEV


def discrete_gaussian_tau(noise_clients: int, local_stddev_steps: float) -> float:
    """tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 (sigma/g)^2 k/(k+1)).

    Above 10^6 shares each later term is replaced by the (smallest) term at 10^6, which
    is an upper bound.
    """
    n = checks.integer("noise_clients", noise_clients)
    stddev = checks.positive("local_stddev_steps", local_stddev_steps)
    k = np.arange(1, min(n, 1_000_000), dtype=np.float64)
    terms = np.exp(-2 * np.pi**2 * stddev**2 * k / (k + 1))
    rest = (n - 1 - k.size) * float(terms[-1]) if n - 1 > k.size else 0.0
    return 10 * (float(np.sum(terms)) + rest)


def discrete_gaussian_published_epsilon(
    l2_squared: float,
    dimension: int,
    noise_clients: int,
    local_stddev: float,
    granularity: float,
) -> float:
    """The published eps, with RDP(alpha) = alpha eps^2 / 2 at every order.

    Args:
      l2_squared: Delta^2, squared L2 sensitivity after rounding.
      dimension: m, number of coordinates that carry noise.
      noise_clients: n, the number of noise shares in the sum.
      local_stddev: sigma, one client's noise, in the units of Delta.
      granularity: g, the grid step, in the units of Delta.

    Raises:
      ValueError: an argument is out of its range, or the noise is less than half a grid
        step, which the published bound does not cover.
    """
    l2_squared = checks.positive("l2_squared", l2_squared)
    m = checks.integer("dimension", dimension)
    n = checks.integer("noise_clients", noise_clients)
    stddev = checks.positive("local_stddev", local_stddev)
    granularity = checks.positive("granularity", granularity)
    if not has_discrete_gaussian_bound(n, stddev / granularity):
        raise ValueError(
            "local_stddev must be at least half the granularity for the published "
            f"bound, found {stddev / granularity:g} times the granularity"
        )
    tau = discrete_gaussian_tau(n, stddev / granularity)
    return min(
        math.sqrt(l2_squared / (n * stddev**2) + tau * m / 2),
        math.sqrt(l2_squared / n) / stddev + tau * math.sqrt(m),
    )


def skellam_published_rdp(
    orders: events.Orders, variance: float, l2_squared: float, l1: float
) -> np.ndarray:
    """The Renyi bound of Skellam noise, [m] (Agarwal et al. 2021, Theorem 3.5).

    The theorem is for integer orders. Between two of them this uses the chord of the
    log-moment (alpha - 1) D_alpha, which is convex in alpha and 0 at 1.

    Args:
      orders: Renyi orders, each greater than 1; shape [m].
      variance: Total variance mu of the noise, in squared grid steps.
      l2_squared: Square of the L2 sensitivity, in squared grid steps.
      l1: The L1 sensitivity, in grid steps.
    """
    alphas = checks.orders(orders)
    variance = checks.positive("variance", variance)
    l2_squared = checks.nonnegative("l2_squared", l2_squared)
    l1 = checks.nonnegative("l1", l1)
    return np.array(
        [skellam_published_one(a, variance, l2_squared, l1) for a in alphas.tolist()]
    )


def skellam_published_one(
    order: float, variance: float, l2_squared: float, l1: float
) -> float:
    """`skellam_published_rdp` at one order, without checks.

    Args:
      order: The Renyi order, greater than 1.
      variance: Total variance mu of the noise, in squared grid steps.
      l2_squared: Square of the L2 sensitivity, in squared grid steps.
      l1: The L1 sensitivity, in grid steps.
    """

    def log_moment(whole: int) -> float:
        first = ((2 * whole - 1) * l2_squared + 6 * l1) / (4 * variance**2)
        least = min(first, 3 * l1 / (2 * variance))
        return (whole - 1) * (whole * l2_squared / (2 * variance) + least)

    low = math.floor(order)
    share = order - low
    moment = log_moment(low)
    if share:
        moment = (1 - share) * moment + share * log_moment(low + 1)
    return moment / (order - 1)
