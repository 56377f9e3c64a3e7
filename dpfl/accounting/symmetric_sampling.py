# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Client sampling around noise that looks the same from both sides.

P and Q, the outputs with the client and without it, are exchanged by an involution, as
those of symmetric noise are: see docs/privacy/distributed.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl import checks
from dpfl.accounting import events, log_space

# Integer orders computed one by one; above, in steps of this ratio with chords.
_DENSE_ORDERS = 48
_ORDER_RATIO = 1.04
# Below this q a chord's excess is not worth comparing with the unsampled RDP.
_RARE_SAMPLING = 0.5


def integer_nodes(top: int) -> np.ndarray:
    """The orders 2..top: all the small ones, and then some that rise by a ratio."""
    dense = np.arange(2, min(top, _DENSE_ORDERS) + 1)
    count = max(0, math.ceil(math.log(top / _DENSE_ORDERS) / math.log(_ORDER_RATIO)))
    sparse = np.floor(_DENSE_ORDERS * _ORDER_RATIO ** np.arange(1, count))
    return np.unique(np.concatenate([dense, sparse, [top]]).astype(np.int64))


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
    top = int(math.ceil(np.max(alphas)))
    nodes = integer_nodes(max(top, 2)).astype(np.float64)
    moments = (nodes - 1) * rdp(nodes)
    every = np.interp(
        np.arange(top + 1, dtype=np.float64),
        np.concatenate([[0.0, 1.0], nodes]),
        np.concatenate([[0.0, 0.0], moments]),
    )
    needed = log_space.whole_orders(alphas)
    sampled = log_space.sampled_log_moment(needed, q, every)
    sampled_rdp = log_space.chord(alphas, needed, sampled) / (alphas - 1)
    if q < _RARE_SAMPLING:
        return sampled_rdp
    # Sampling never costs (Renyi divergence is quasi-convex), but a chord might.
    return np.minimum(sampled_rdp, rdp(alphas))
