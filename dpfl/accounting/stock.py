# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""dp_accounting's RDP accountant, opened for more events and for every order.

This is the only module that uses names which dp_accounting does not promise to keep:
`PrivacyAccountant._maybe_compose`, which it asks accountants to define, and
`RdpAccountant._rdp`, `_orders` and `_neighboring_relation`.

Two orders are special. At order 1 the Renyi divergence is the Kullback-Leibler
divergence, and since divergences do not fall in the order, the one at an order
slightly above bounds it. At order infinity it is the largest privacy loss, so that an
event of Renyi differential privacy r at infinity is (r, 0)-differentially private.
dp_accounting's own conversion takes the difference of two infinities there, which is
not a number, and reports an epsilon of 0; here the order infinity is converted apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Optional

import dp_accounting
import numpy as np
from dp_accounting.rdp import rdp_privacy_accountant

RdpOfOrders = Callable[[np.ndarray], np.ndarray]

# Stands in for order 1: far enough from it for (order - 1) to keep ten digits.
_ABOVE_ONE = 1.0 + 2.0**-20


class RefusedEventError(Exception):
    """An event that is known, but not under the accountant's adjacency relation."""


def rdp_at(orders: np.ndarray, rdp_of_orders: RdpOfOrders) -> np.ndarray:
    """Returns the Renyi differential privacy at orders from 1 to infinity.

    Args:
      orders: float64 array of shape [m], each at least 1, infinity included.
      rdp_of_orders: Maps finite orders above 1, shape [m], to bounds of that shape,
        which do not fall in the order.

    Returns:
      float64 array of shape [m], in nats. At infinity it is 0 for what costs nothing
      and infinite for all else. Where `rdp_of_orders` gives NaN it is infinite.
    """
    finite = np.isfinite(orders)
    asked = np.where(orders == 1, _ABOVE_ONE, np.where(finite, orders, 2.0))
    values = rdp_of_orders(asked)
    # What could not be computed is no bound: dp_accounting would take it for zero.
    values = np.where(np.isnan(values), np.inf, values)
    return np.where(finite | (values == 0), values, np.inf)


class OpenRdpAccountant(rdp_privacy_accountant.RdpAccountant):
    """dp_accounting's accountant; a subclass adds events by `_own_rdp`."""

    def _own_rdp(self, event: dp_accounting.DpEvent) -> Optional[RdpOfOrders]:
        """Returns the Renyi differential privacy of an event of the subclass's.

        Args:
          event: Any event of the tree that is composed.

        Returns:
          What maps finite orders above 1 to it, or None for an event that is to be
          handled by dp_accounting.

        Raises:
          RefusedEventError: the event has no bound under `_neighboring_relation`.
        """
        raise NotImplementedError

    def _opened(self, event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
        """Returns what an event of the subclass's holds, or the event itself.

        Args:
          event: Any event of the tree that is composed.

        Raises:
          RefusedEventError: what it holds is not for `_neighboring_relation`.
        """
        return event

    def _maybe_compose(
        self, event: dp_accounting.DpEvent, count: int, do_compose: bool
    ) -> Optional[dp_accounting.PrivacyAccountant.CompositionErrorDetails]:
        try:
            event = self._opened(event)
            own = self._own_rdp(event)
        except RefusedEventError as error:
            return dp_accounting.PrivacyAccountant.CompositionErrorDetails(
                invalid_event=event, error_message=str(error)
            )
        if own is None:
            return super()._maybe_compose(event, count, do_compose)
        if do_compose:
            self._rdp += count * rdp_at(self._orders, own)
        return None

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """Returns the least epsilon at a delta, and the order that gave it.

        Args:
          target_delta: At least 0.
        """
        return self._convert(
            rdp_privacy_accountant.compute_epsilon,
            lambda largest_loss, _: largest_loss,
            target_delta,
        )

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """Returns the least delta at an epsilon, and the order that gave it.

        Args:
          target_epsilon: At least 0.
        """
        return self._convert(
            rdp_privacy_accountant.compute_delta, _delta_of_pure, target_epsilon
        )

    def _convert(
        self,
        convert: Callable[..., tuple[float, float]],
        at_infinity: Callable[[float, float], float],
        target: float,
    ) -> tuple[float, float]:
        """Returns the least of what the finite orders and the infinite one give."""
        finite = np.isfinite(self._orders)
        found = [
            (at_infinity(cost, target), math.inf)
            for cost in self._rdp[~finite].tolist()
        ]
        if finite.any():
            found.insert(0, convert(self._orders[finite], self._rdp[finite], target))
        return min(found, key=lambda pair: pair[0])

    def get_epsilon(self, target_delta: float) -> float:
        """Returns the least epsilon at a delta of at least 0."""
        return self.get_epsilon_and_optimal_order(target_delta)[0]

    def get_delta(self, target_epsilon: float) -> float:
        """Returns the least delta at an epsilon of at least 0."""
        return self.get_delta_and_optimal_order(target_epsilon)[0]


def _delta_of_pure(largest_loss: float, epsilon: float) -> float:
    """Returns a delta at `epsilon` of what is (largest_loss, 0)-private."""
    if largest_loss <= epsilon:
        return 0.0
    # By the Kullback-Leibler divergence, which is at most the largest loss.
    return math.sqrt(-math.expm1(-largest_loss))
