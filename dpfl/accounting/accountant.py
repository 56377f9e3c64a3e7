# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""An RDP accountant for dpfl's events and for dp_accounting's own.

    accountant = DpflAccountant()
    accountant.compose(mechanism.dp_event(plan, dimension))
    accountant.get_epsilon(1e-6)

`DpflAccountant` is dp_accounting's `RdpAccountant` with one more rule: an `RdpDpEvent`
is composed by adding its Renyi differential privacy at every order. Such events nest in
`ComposedDpEvent` and `SelfComposedDpEvent`, beside dp_accounting's own, and in
`PoissonSampledDpEvent` where a bound for the sampled mechanism is proven.

An accountant is for one relation between neighbours (see `events`), and refuses the
events that do not hold for it. dp_accounting's own events keep the meaning that they
have there.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Optional, Union

import dp_accounting
import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from dpfl import checks
from dpfl.accounting import csgm, events, gaussian, sampled_rdp, trees

# Events that dp_accounting takes apart.
_COMPOSED = (dp_accounting.SelfComposedDpEvent, dp_accounting.ComposedDpEvent)
# Substitute for order 1: far enough from it for (order - 1) to keep ten digits.
_ABOVE_ONE = 1.0 + 2.0**-20


def _deltas_of(
    orders: np.ndarray, rdp: np.ndarray, epsilons: Union[float, np.ndarray]
) -> np.ndarray:
    """The deltas of finite orders at epsilons, [..., 1] or one; [..., m].

    As dp_accounting's, of which some releases crash on an RDP below 1e-16.
    """
    by_divergence = np.sqrt(-np.expm1(-rdp))
    above = np.maximum(orders, 1.01)
    with np.errstate(over="ignore", under="ignore"):
        logs = (above - 1) * (rdp - epsilons + np.log1p(-1 / above)) - np.log(above)
        by_order = np.where(orders > 1.01, np.exp(np.minimum(logs, 0.0)), 1.0)
    return np.minimum(by_divergence, by_order)


def _resolve_sampling(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    """The event that sampling resolves to; a sampled Gaussian becomes one of csgm's.

    dp_accounting computes the same, but takes seconds at fractional orders where q is
    near 1/2 and the noise large, and is there off by 1e-14, which may be below zero.
    """
    if (
        isinstance(event, dp_accounting.PoissonSampledDpEvent)
        and type(event.event) is dp_accounting.GaussianDpEvent
    ):
        q, z = event.sampling_probability, event.event.noise_multiplier
        return csgm.SparsifiedGaussianDpEvent(z, 1.0, 1.0, 1, q)
    return trees.resolve_sampling(event)


def _is_known(event: dp_accounting.DpEvent) -> bool:
    """Whether dpfl computes the RDP of an event itself.

    Events of dp_accounting count by their exact type: a subclass may have further
    parameters.
    """
    if isinstance(event, events.RdpDpEvent):
        return True
    if type(event) is dp_accounting.SampledWithoutReplacementDpEvent:
        event = event.event
    return type(event) is dp_accounting.GaussianDpEvent


def _rdp_of(event: dp_accounting.DpEvent, orders: tuple[float, ...]) -> np.ndarray:
    """The RDP of an event that `_is_known`, at orders from 1 to infinity, in nats; [m].

    At infinity it is 0 if the finite orders give 0, and infinite otherwise. It is
    infinite where the event gives NaN. Its cached form is for events that every round
    composes.
    """
    finite = np.isfinite(orders)
    asked = np.where(np.equal(orders, 1), _ABOVE_ONE, np.where(finite, orders, 2.0))
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        share = event.sample_size / event.source_dataset_size
        z = event.event.noise_multiplier
        values = sampled_rdp.drawn_gaussian_rdp(asked, share, z)
    else:
        values = gaussian.round_rdp(event, asked)
    # NaN is no bound, and dp_accounting would take it for zero.
    values = np.where(np.isnan(values), np.inf, values)
    return np.where(finite | (values == 0), values, np.inf)


_remembered_rdp_of = functools.lru_cache(maxsize=256)(_rdp_of)


def _is_value(event: dp_accounting.DpEvent) -> bool:
    """Whether equal events are alike: other packages' classes may define no equality.

    Classes that inherit their equality compare all instances as equal, and some have no
    hash.
    """
    try:
        hash(event)
    except TypeError:
        return False
    return "__eq__" in vars(type(event)) and getattr(event, "is_remembered", True)


class DpflAccountant(rdp_privacy_accountant.RdpAccountant):
    """RDP accountant that composes dpfl's events with dp_accounting's own."""

    _orders: np.ndarray
    _rdp: np.ndarray

    def __init__(
        self,
        orders: Optional[Sequence[float]] = None,
        neighboring_relation: events.Relation = events.Relation.ADD_OR_REMOVE_ONE,
    ):
        """Initializes the accountant.

        Args:
          orders: Renyi orders, each at least 1, infinity included;
            `events.DEFAULT_ORDERS` if None.
          neighboring_relation: The relation to account for. Events that do not hold for
            it are refused; `accounting.relations_of` gives an event's relations.

        Raises:
          ValueError: an order is not a number of at least 1.
        """
        orders = events.DEFAULT_ORDERS if orders is None else orders
        relation = checks.instance(events.Relation)
        super().__init__(
            checks.orders(orders, closed=True),
            relation("neighboring_relation", neighboring_relation),
        )

    def compose(self, event: dp_accounting.DpEvent, count: int = 1) -> DpflAccountant:
        """See base class; ValueError if a number of the event is out of range."""
        count = checks.integer("count", count, 1, trees.MOST_RELEASES)
        super().compose(trees.normalised(event), count)
        return self

    def _maybe_compose(
        self, event: dp_accounting.DpEvent, count: int, do_compose: bool
    ) -> Optional[dp_accounting.PrivacyAccountant.CompositionErrorDetails]:
        event = trees.normalised(event)
        if isinstance(event, events.RunDpEvent):
            refused = self._refused(event, event.neighboring_relations)
            return refused or self._maybe_compose(event.event, count, do_compose)
        resolved = _resolve_sampling(event)
        if _is_known(resolved):
            refused = self._refused(event, trees.neighboring_relations(resolved))
            if refused or not do_compose:
                return refused
            asked = resolved, tuple(self._orders)
            is_value = _is_value(resolved)
            rdp = _remembered_rdp_of(*asked) if is_value else _rdp_of(*asked)
        elif isinstance(event, _COMPOSED) or not do_compose:
            return super()._maybe_compose(event, count, do_compose)
        else:
            rdp = self._their_rdp(event)
        self._rdp += float(min(count, trees.MOST_PRODUCTS)) * rdp
        return None

    def _their_rdp(self, event: dp_accounting.DpEvent) -> np.ndarray:
        """The RDP that dp_accounting has for an event; infinite where it has none."""
        orders, rdp = self._orders, self._rdp
        result = np.full(orders.shape, np.inf)
        # All releases of dp_accounting refuse an RDP below 1e-16 of selected runs, and
        # order 1 of randomized response.
        errors: list[type[Exception]] = [OverflowError, ZeroDivisionError]
        if isinstance(event, dp_event.RepeatAndSelectDpEvent):
            errors.append(ValueError)
        # Of randomized response alone all releases know the largest loss.
        is_response = hasattr(event, "num_buckets")
        asked = np.isfinite(orders) | is_response
        try:
            self._orders = np.maximum(orders[asked], _ABOVE_ONE if is_response else 1.0)
            self._rdp = np.zeros(self._orders.shape)
            with contextlib.suppress(*errors), np.errstate(all="ignore"):
                super()._maybe_compose(event, 1, True)
                result[asked] = self._rdp
        finally:
            self._orders, self._rdp = orders, rdp
        # NaN and negative numbers mean that the RDP could not be computed, too.
        return np.where(result >= 0, result, np.inf)

    def _refused(
        self, event: dp_accounting.DpEvent, neighboring_relations: events.Relations
    ) -> Optional[dp_accounting.PrivacyAccountant.CompositionErrorDetails]:
        """The error of an event that does not hold for the accountant's relation."""
        if self._neighboring_relation in neighboring_relations:
            return None
        names = " or ".join(relation.name for relation in neighboring_relations)
        return dp_accounting.PrivacyAccountant.CompositionErrorDetails(
            invalid_event=event,
            error_message=f"neighboring_relation must be {names or 'none'} for this "
            f"event, found {self._neighboring_relation.name}",
        )

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """The least epsilon at a delta of at least 0, and the order that gave it."""
        target_delta = min(trees.up_to_infinity("target_delta", target_delta), 1.0)
        known, found = self._known_orders(), (math.inf, self._orders[0])
        if known.any():
            with np.errstate(over="ignore"):
                found = rdp_privacy_accountant.compute_epsilon(
                    self._orders[known], self._rdp[known], target_delta
                )
        return min(found, (self._largest_loss(), math.inf))

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """The least delta at an epsilon of at least 0, and the order that gave it."""
        target_epsilon = trees.up_to_infinity("target_epsilon", target_epsilon)
        if self._largest_loss() <= target_epsilon < math.inf:
            return 0.0, math.inf
        known = self._known_orders()
        if not known.any():
            return 1.0, self._orders[0]
        deltas = _deltas_of(self._orders[known], self._rdp[known], target_epsilon)
        best = int(np.argmin(deltas))
        return float(deltas[best]), float(self._orders[known][best])

    def profile(self, epsilons: np.ndarray) -> np.ndarray:
        """The least deltas at epsilons of at least 0; float64 [n]."""
        known = self._known_orders()
        rows = _deltas_of(self._orders[known], self._rdp[known], epsilons[:, None])
        deltas = np.min(rows, axis=1, initial=1.0)
        return np.where(self._largest_loss() <= epsilons, 0.0, deltas)

    def _largest_loss(self) -> float:
        """The RDP at the infinite order, a pure epsilon; infinite without the order."""
        return float(np.min(self._rdp[np.isinf(self._orders)], initial=math.inf))

    def _known_orders(self) -> np.ndarray:
        """Whether a finite order gives a bound, which an infinite RDP does not."""
        return np.isfinite(self._orders) & np.isfinite(self._rdp)

    def get_epsilon(self, target_delta: float) -> float:
        """The least epsilon at a delta of at least 0."""
        return self.get_epsilon_and_optimal_order(target_delta)[0]

    def get_delta(self, target_epsilon: float) -> float:
        """The least delta at an epsilon of at least 0."""
        return self.get_delta_and_optimal_order(target_epsilon)[0]
