# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sums in log space, and log-moments between the orders at which they are known.

The log-moment of order a is log E_Q[(P/Q)^a], which is (a - 1) times the Renyi
divergence of order a. The module does two things with it.

Sampling: clients join, or coordinates are kept, independently with probability q. With
L(l) the log-moment of order l without that, and L(0) = L(1) = 0, the log-moment becomes

  L_q(a) = log sum_l C(a, l) (1-q)^(a-l) q^l exp(L(l))
         = log( 1 + sum_{l>=2} C(a, l) (1-q)^(a-l) q^l expm1(L(l)) )

at an integer order a. The second form has no negative term and is the one computed,
so that a log-moment of 1e-20 is as accurate as one of 1e20.

Chords: the log-moment L is convex in a, so that between two integer orders it is
bounded by its chord. If P is a mixture of Gaussians and Q the Gaussian without a shift,
L(a)/a is convex too, and its chord is a smaller bound: see
docs/privacy/gaussian_mixtures.md.

`poisson_sampled_rdp` is for noise that looks the same from both sides: P and Q, the
outputs with the client and without it, are exchanged by an involution. See
docs/privacy/distributed.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

from dpfl import checks
from dpfl.accounting import events

EPSILON = float(np.finfo(np.float64).eps)
"""Relative spacing of float64, the unit of allowances for rounding."""

HUGE = 1e290
"""Substitute for infinity in sums of logs: 0 * HUGE is 0, and sums stay finite."""

MOST_ORDER = 2**16
"""The largest order of binomial sums; the RDP counts as infinite at larger ones."""

_TABLE_ORDER = 1024
# Floats of one block of terms, to stay in a core's cache.
_BLOCK = 1 << 16
# Integer orders up to this are computed one by one, larger ones in steps of this ratio
# with chords.
_DENSE_ORDERS = 48
_ORDER_RATIO = 1.04
# Below this q the RDP without sampling is too large to be worth comparing.
_RARE_SAMPLING = 0.5


def log_sum_exp(terms: np.ndarray) -> np.ndarray:
    """The log of the sum of exponentials over the last axis; -inf adds 0."""
    largest = np.max(terms, axis=-1, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        return np.log(np.exp(terms - shift).sum(axis=-1)) + shift[..., 0]


def scaled_log_sum_exp(
    factor: float, logs: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """log sum_y exp(factor logs[x, y] + weights[y]), a block of rows at a time; [m].

    Args:
      factor: The factor of all `logs`.
      logs: float64 [m, n].
      weights: Logs of the weights; float64 [n].
    """
    rows = max(1, _BLOCK // logs.shape[1])
    blocks = (logs[start : start + rows] for start in range(0, len(logs), rows))
    return np.concatenate([log_sum_exp(factor * block + weights) for block in blocks])


def chord(
    orders: np.ndarray, integers: np.ndarray, log_moments: np.ndarray
) -> np.ndarray:
    """Bounds on log-moments at any orders by chords between integer ones; [m].

    Args:
      orders: Renyi orders of at least 1, shape [m].
      integers: Sorted integers, floor and ceiling of every order among them; [n].
      log_moments: Bounds at `integers`, shape [n].
    """
    low = np.searchsorted(integers, np.floor(orders))
    high = np.searchsorted(integers, np.ceil(orders))
    share = orders - np.floor(orders)
    with np.errstate(invalid="ignore"):
        between = log_moments[..., low] * (1 - share) + log_moments[..., high] * share
    # Avoids 0 * inf where the upper order has no weight.
    return np.where(share == 0, log_moments[..., low], between)


def mixture_chord(
    orders: np.ndarray, integers: np.ndarray, log_moments: np.ndarray
) -> np.ndarray:
    """Bounds as `chord`'s for mixtures of Gaussians, never larger; [m].

    For a single Gaussian L(a)/a is linear in a, and the bound is exact.

    Args:
      orders: Renyi orders of at least 1, shape [m].
      integers: Sorted integers, floor and ceiling of every order among them; [n].
      log_moments: Bounds at `integers`, shape [n].
    """
    return orders * chord(orders, integers, log_moments / integers)


def up_to_most_order(
    orders: np.ndarray, rdp_of_orders: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The RDP at orders up to `MOST_ORDER`, and infinity at larger ones; [m].

    Args:
      orders: Renyi orders, shape [m].
      rdp_of_orders: Maps orders, shape [k], to shape [k].
    """
    near = orders <= MOST_ORDER
    result = np.full(orders.shape, np.inf)
    if near.any():
        result[near] = rdp_of_orders(orders[near])
    return result


def whole_orders(orders: np.ndarray) -> np.ndarray:
    """The integers that `chord` needs for orders of at least 1, sorted, as int64."""
    both = np.concatenate([np.floor(orders), np.ceil(orders)])
    return np.unique(both).astype(np.int64)


@np.errstate(under="ignore", divide="ignore")
def sampled_log_moment(
    orders: Sequence[int] | np.ndarray, probability: float, log_moments: np.ndarray
) -> np.ndarray:
    """L_q, the log-moment under sampling, by the module's formula; float64 [m].

    Args:
      orders: Integers of at least 1; shape [m].
      probability: q in (0, 1].
      log_moments: L at the orders 0, 1, ..., max(orders), of which the first two
        are 0 and none is negative; shape [max(orders) + 1].
    """
    l = np.arange(2, log_moments.size)
    e = np.minimum(log_moments[2:], HUGE)
    # log expm1(e), for small e and large.
    terms = l * np.log(probability) + e
    terms += np.maximum(np.log(-np.expm1(-e)), -HUGE)
    log_rest = np.maximum(special.xlog1py(1.0, -probability), -HUGE)
    result = binomial_sums(orders, terms, log_rest)
    # Log-moments that were cut at HUGE may be any larger number.
    return np.where(result >= 0.5 * HUGE, np.inf, result)


def binomial_sums(
    orders: Sequence[int] | np.ndarray, terms: np.ndarray, log_rest: float = 0.0
) -> np.ndarray:
    """log(1 + sum_{l>=2} C(a, l) exp(terms_l + (a - l) log_rest)); float64 [m].

    Args:
      orders: The integers a, of at least 1; shape [m].
      terms: terms_l for l = 2, ..., max(orders).
      log_rest: The log of 1 - q, or 0.
    """
    result = np.zeros(len(orders))
    for i, order in enumerate(orders):
        if order >= 2:
            logs = np.arange(order - 2, -1, -1) * log_rest
            logs += terms[: order - 1]
            logs += _log_binomials(int(order))
            result[i] = np.logaddexp(0.0, log_sum_exp(logs))
    return result


@functools.lru_cache(maxsize=1)
def _log_binomial_table() -> np.ndarray:
    """log C(a, l) for a, l <= 1024, by Pascal's rule; C(1024, 512) < 1e307."""
    table = np.zeros((_TABLE_ORDER + 1, _TABLE_ORDER + 1))
    table[:, 0] = 1.0
    for a in range(1, _TABLE_ORDER + 1):
        table[a, 1 : a + 1] = table[a - 1, :a] + table[a - 1, 1 : a + 1]
    with np.errstate(divide="ignore"):
        return np.log(table)


def log_binomials(n: Any, k: Any) -> np.ndarray:
    """log |C(n, k)| of any numbers, as arrays; -inf where it is 0."""
    # |Gamma(n - k + 1)|, or |Gamma(k + 1)|, is infinite there.
    logs = special.gammaln(np.add(n, 1.0)) - special.gammaln(np.add(k, 1.0))
    return logs - special.gammaln(np.subtract(n, k) + 1.0)


def _log_binomials(order: int) -> np.ndarray:
    """log C(order, l) for l = 2 .. order."""
    if order <= _TABLE_ORDER:
        return _log_binomial_table()[order, 2 : order + 1]
    return log_binomials(order, np.arange(2, order + 1))


def integer_nodes(top: int, dense_orders: int = _DENSE_ORDERS) -> np.ndarray:
    """Integer orders from 2 to top: all small ones, then some in geometric steps."""
    dense = np.arange(2, min(top, dense_orders) + 1)
    count = max(0, math.ceil(math.log(top / dense_orders) / math.log(_ORDER_RATIO)))
    sparse = np.floor(dense_orders * _ORDER_RATIO ** np.arange(1, count))
    return np.unique(np.append(np.append(dense, sparse), top).astype(np.int64))


def every_log_moment(nodes: np.ndarray, log_moments: np.ndarray) -> np.ndarray:
    """Bounds on log-moments at 0, 1, ..., the last node, by chords; float64.

    Args:
      nodes: Integers from 2 on, in rising order; [n].
      log_moments: Log-moments at the nodes, cut at `HUGE`; [n].
    """
    return np.interp(
        np.arange(nodes[-1] + 1.0),
        np.concatenate([[0.0, 1.0], nodes]),
        np.concatenate([[0.0, 0.0], np.minimum(log_moments, HUGE)]),
    )


def poisson_sampled_rdp(
    orders: events.Orders,
    sampling_probability: float,
    rdp: Callable[[Any], np.ndarray],
) -> np.ndarray:
    """The RDP of a symmetric pair of outputs when the client joins at random; [m].

    For P and Q exchanged by an involution (noise that is symmetric about the client's
    shift) log E_Q[(1-q+q P/Q)^alpha] bounds both directions, and at an integer order
    it is at most log sum_l C(alpha,l) (1-q)^(alpha-l) q^l exp((l-1) RDP(l)).
    `docs/privacy/distributed.md` has the proof. Between integers, and between the
    integers at which `rdp` is asked for, the log-moment is bounded by its chord.

    Args:
      orders: Renyi orders, each greater than 1; shape [m].
      sampling_probability: q in [0, 1].
      rdp: Maps orders, shape [k], to the RDP without sampling, shape [k].
    """
    alphas = checks.orders(orders)
    q = checks.probability("sampling_probability", sampling_probability)
    if q == 0:
        return np.zeros_like(alphas)
    if q == 1:
        return rdp(alphas)
    sampled_rdp = up_to_most_order(alphas, lambda near: _by_binomials(near, q, rdp))
    if q < _RARE_SAMPLING:
        return sampled_rdp
    # Sampling never increases the RDP (Renyi divergence is quasi-convex), but a chord
    # might.
    return np.minimum(sampled_rdp, rdp(alphas))


def _by_binomials(
    alphas: np.ndarray, q: float, rdp: Callable[[Any], np.ndarray]
) -> np.ndarray:
    """The binomial sums of `poisson_sampled_rdp`, and chords between them."""
    nodes = integer_nodes(math.ceil(np.max(alphas)))
    moments = (nodes - 1) * rdp(nodes.astype(np.float64))
    needed = whole_orders(alphas)
    sampled = sampled_log_moment(needed, q, every_log_moment(nodes, moments))
    return chord(alphas, needed, sampled) / (alphas - 1)
