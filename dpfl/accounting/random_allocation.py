# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random allocation: each client draws one round of an epoch in secret, its slot.

With x_i the likelihood ratio of round i, were the client in it, the ratio of an epoch
is R = 1 - r/S + (1/S) sum_{i<=r} x_i: S slots, of which the first r rounds have been
released. With exp(L(l)) a bound on E_Q[x_i^l] the moment of a whole order a is at most

  E_Q[R^a] = a! S^-a [y^a] A(y)^r exp((S - r) y),  A(y) = sum_l y^l exp(L(l)) / l!,

which is the multinomial expansion of R^a. With A(y)^r = exp(r y) + B_r(y) it is
1 + a! S^-a [y^a] B_r(y) exp((S - r) y), and no coefficient of B_r is negative. B_r
comes by repeated squaring in log space, truncated at the largest order, so that a
log-moment of 1e-12 is as accurate as one of 1e12.

This is the direction from 'with the client' to 'without'. For mixtures of Gaussians
the other one is never larger; for any other release it is bounded separately. The
proofs are in docs/privacy/random_allocation.md.

Sources: Chua et al. (2024), 'Balls-and-Bins Sampling for DP-SGD'; Feldman and Shenfeld
(2025), 'Privacy Amplification by Random Allocation'.
"""

from __future__ import annotations

from typing import ClassVar, Optional

import attr
import dp_accounting
import numpy as np
from scipy import special

from dpfl import checks
from dpfl.accounting import csgm, events, gaussian, log_space
from dpfl.fields import said

MOST_ORDERS = 256
"""The largest order at which slots amplify; above, the RDP is that of one round."""

# Allowance for the rounding of some fifty products of polynomials, each of about 1e-15.
_ROUNDING = 1e-11
# Orders this close above 1 are raised to it in the bound for any release.
_LEAST_EXCESS = 1e-4


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The log coefficients of a product of polynomials, truncated; [n]."""
    size = left.size
    padded = np.concatenate([np.full(size - 1, -np.inf), right])
    # Row k is right[k], right[k-1], ..., and -inf where the index would be negative.
    rows = np.lib.stride_tricks.sliding_window_view(padded, size)[:, ::-1]
    return log_space.log_sum_exp(left + rows)


def _exponential(rate: float, size: int) -> np.ndarray:
    """The log coefficients of exp(rate y), rate at least 0; float64 [size]."""
    power = np.arange(size)
    return special.xlogy(power, rate) - special.gammaln(power + 1)


@np.errstate(under="ignore", divide="ignore")
def slot_log_moments(log_moments: np.ndarray, rounds: int, slots: float) -> np.ndarray:
    """log E_Q[R^a] at a = 0, ..., top by the module's formula; float64 [top + 1].

    Args:
      log_moments: L of one round at the orders 0, 1, ..., top, of which the first two
        are 0 and none is negative; at most `log_space.HUGE`. float64 [top + 1].
      rounds: r, the rounds that have been released, at least 1.
      slots: S, at least r; each round is the client's with probability 1/S.
    """
    size = log_moments.size
    power = np.arange(size)
    # exp(y / S) and B_1, both in y / S in place of y.
    unit = _exponential(1 / slots, size)
    excess = log_moments + np.log(-np.expm1(-log_moments)) + unit
    first = excess
    done = 1
    for bit in bin(rounds)[3:]:
        both = np.logaddexp(_exponential(done / slots, size) + np.log(2), excess)
        excess = _product(excess, both)
        done *= 2
        if bit == "1":
            grown = _product(excess, np.logaddexp(unit, first))
            rest = _product(first, _exponential(done / slots, size))
            excess = np.logaddexp(grown, rest)
            done += 1
    if slots > rounds:
        excess = _product(excess, _exponential((slots - rounds) / slots, size))
    result = np.logaddexp(0.0, excess + special.gammaln(power + 1))
    return np.where(result >= 0.5 * log_space.HUGE, np.inf, result)


def is_gaussian_mixture(event: dp_accounting.DpEvent) -> bool:
    """Whether a release has Gaussian noise, shifted at random or not.

    The theorems on both directions assume it: see docs/privacy.
    """
    return isinstance(event, (dp_accounting.GaussianDpEvent, csgm.SparsifiedDpEvent))


@attr.s(frozen=True, auto_attribs=True)
class RandomAllocationDpEvent(events.RdpDpEvent):
    """The first rounds of an epoch of which each client draws one in secret.

    Each client draws, independently of the other clients, of all data and of all
    releases, in which round of the epoch it takes part: each round has the probability
    1/slots, and with the remaining probability it sits the epoch out. Rounds are
    released one after the other, and a client's update may depend on earlier ones. The
    next epoch is this event again, with a slot drawn afresh.

    Assumptions: nobody who sees the release sees who takes part when; the divisor of a
    mean is a constant; the noise of a round is there whoever takes part (a server's
    or helpers'), and is not brought and taken away by the client.

    Adjacency: one client is added, removed, or replaced by one that sends zeros.

    Attributes:
      round_event: The release of one round that the client is in, without client
        sampling: dp_accounting's `GaussianDpEvent`, or an `RdpDpEvent`.
      rounds: r, the number of the epoch's rounds that have been released, at least 1.
      slots: S, at least r: population over cohort, or the rounds of an epoch where
        everybody takes part once.
    """

    round_event: dp_accounting.DpEvent = attr.ib(
        metadata=said(check=gaussian.round_release)
    )
    rounds: int = attr.ib(metadata=said(check=events.whole))
    slots: float = attr.ib(metadata=said(check=checks.positive))

    pages: ClassVar[tuple[str, ...]] = ("random_allocation.md",)

    def __attrs_post_init__(self) -> None:
        """Raises ValueError if there are more rounds than slots."""
        wanted = f"at least the {self.rounds} released rounds"
        checks.require(self.slots >= self.rounds, "slots", wanted, self.slots)

    def as_part(self) -> Optional[gaussian.Part]:
        """See `gaussian.gaussian_parts`: None unless a round is a plain Gaussian."""
        z = gaussian.plain_noise_multiplier(self.round_event)
        if z is None:
            return None
        return gaussian.Part(1 / self.slots, z, rounds=self.rounds)

    def _round_log_moments(self, top: int) -> np.ndarray:
        """L at 0, 1, ..., top, or its chords for other noise; float64 [top + 1]."""
        exact = is_gaussian_mixture(self.round_event)
        nodes = np.arange(2, top + 1) if exact else log_space.integer_nodes(top)
        moments = (nodes - 1.0) * gaussian.round_rdp(
            self.round_event, nodes.astype(np.float64)
        )
        return log_space.every_log_moment(nodes, moments)

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        alphas = checks.orders(orders)
        # No slot has more RDP than the round itself (Renyi divergence is quasi-convex).
        result = gaussian.round_rdp(self.round_event, alphas)
        near = alphas <= MOST_ORDERS
        if not near.any():
            return result
        asked = alphas[near]
        needed = log_space.whole_orders(asked)
        every = slot_log_moments(
            self._round_log_moments(max(2, int(needed[-1]))), self.rounds, self.slots
        )
        if is_gaussian_mixture(self.round_event):
            moments = log_space.mixture_chord(asked, needed, every[needed])
            amplified = moments / (asked - 1)
        else:
            moments = log_space.chord(asked, needed, every[needed])
            amplified = np.maximum(moments / (asked - 1), self._backward_rdp(asked))
        amplified *= 1 + _ROUNDING
        result[near] = np.minimum(result[near], amplified)
        return result

    def _backward_rdp(self, orders: np.ndarray) -> np.ndarray:
        """A bound on the direction from 'without' to 'with', for any release.

        R >= prod_i x_i^(1/S), the mean of x_i's and ones being above their product.
        """
        share = self.rounds / self.slots
        # The RDP at a larger order bounds that at a smaller one, and bounds of integer
        # noise close to 1 divide their own rounding errors by nearly 0.
        raised = np.maximum((orders - 1) / self.slots, _LEAST_EXCESS)
        return share * gaussian.round_rdp(self.round_event, 1 + raised)
