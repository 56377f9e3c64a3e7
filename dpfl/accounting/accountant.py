# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""An RDP accountant for dpfl's events and for dp_accounting's own.

    accountant = DpflAccountant()
    accountant.compose(mechanism.dp_event(plan, dimension))
    accountant.get_epsilon(1e-6)

`DpflAccountant` is dp_accounting's `RdpAccountant` with one more rule: an event in
`register`'s table is composed by adding its Renyi differential privacy at every
order. Every `RdpDpEvent` is in the table from the start. Such events nest in
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
from collections.abc import Callable, Sequence
from typing import Optional

import dp_accounting
import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from dpfl import checks
from dpfl.accounting import csgm, events, gaussian, sampled_rdp, trees

# Substitute for order 1: far enough from it for (order - 1) to keep ten digits.
_ABOVE_ONE = 1.0 + 2.0**-20

# Substitute for a larger number of releases, which would not be a float.
_MOST = 10**300

_SAMPLED = (
    dp_accounting.PoissonSampledDpEvent,
    dp_accounting.SampledWithoutReplacementDpEvent,
)

RdpFunction = Callable[[dp_accounting.DpEvent, np.ndarray], np.ndarray]

_TABLE: dict[type, RdpFunction] = {}


class RefusedEventError(Exception):
    """A known event that does not hold under the accountant's adjacency relation."""


def rdp_at(
    orders: np.ndarray, rdp_of_orders: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The Renyi differential privacy at orders from 1 to infinity, in nats; [m].

    At infinity it is 0 if the finite orders give 0, and infinite otherwise. It is
    infinite where `rdp_of_orders` gives NaN.

    Args:
      orders: float64 [m], each at least 1, infinity included.
      rdp_of_orders: Maps finite orders above 1, shape [m], to bounds of that shape,
        which do not fall in the order.
    """
    finite = np.isfinite(orders)
    asked = np.where(orders == 1, _ABOVE_ONE, np.where(finite, orders, 2.0))
    values = rdp_of_orders(asked)
    # NaN is no bound, and dp_accounting would take it for zero.
    values = np.where(np.isnan(values), np.inf, values)
    return np.where(finite | (values == 0), values, np.inf)


def _delta_of(
    orders: np.ndarray, rdp: np.ndarray, epsilon: float
) -> tuple[float, float]:
    """The least delta of finite orders at an epsilon, and its order.

    As dp_accounting's, of which some releases crash on an RDP below 1e-16.
    """
    by_divergence = np.sqrt(-np.expm1(-rdp))
    above = np.maximum(orders, 1.01)
    with np.errstate(over="ignore", under="ignore"):
        logs = (above - 1) * (rdp - epsilon + np.log1p(-1 / above)) - np.log(above)
        by_order = np.where(orders > 1.01, np.exp(np.minimum(logs, 0.0)), 1.0)
    deltas = np.minimum(by_divergence, by_order)
    best = int(np.argmin(deltas))
    return float(deltas[best]), float(orders[best])


def _delta_of_pure(largest_loss: float, epsilon: float) -> float:
    """A delta at `epsilon` of a (largest_loss, 0)-private release."""
    if largest_loss <= epsilon:
        return 0.0
    # Bound by the Kullback-Leibler divergence, which is at most the largest loss.
    return math.sqrt(-math.expm1(-largest_loss))


def register(event_type: type, rdp_function: RdpFunction) -> None:
    """Registers the RDP of an event type, and of its subclasses, with `DpflAccountant`.

    Args:
      event_type: A subclass of `dp_accounting.DpEvent`. An `RdpDpEvent` need not be
        registered.
      rdp_function: Maps (event, float64 orders of shape [m], finite and greater than 1)
        to float64 [m], in nats, not falling in the order.

    Raises:
      TypeError: `event_type` is not a subclass of `DpEvent`.
    """
    if not (
        isinstance(event_type, type) and issubclass(event_type, dp_accounting.DpEvent)
    ):
        raise TypeError(
            f"event_type must be a subclass of DpEvent, found {event_type!r}"
        )
    _TABLE[event_type] = rdp_function
    trees.REGISTERED.add(event_type)


def _drawn_rdp(event: dp_accounting.DpEvent, orders: np.ndarray) -> np.ndarray:
    share = event.sample_size / event.source_dataset_size
    return sampled_rdp.drawn_gaussian_rdp(orders, share, event.event.noise_multiplier)


# Events of dp_accounting that dpfl computes itself, by their exact type: a subclass may
# have further parameters.
_THEIR_TABLE: dict[type, RdpFunction] = {
    dp_accounting.GaussianDpEvent: lambda event, orders: gaussian.gaussian_rdp(
        event.noise_multiplier, orders
    ),
    dp_accounting.SampledWithoutReplacementDpEvent: _drawn_rdp,
}
_TABLE[events.RdpDpEvent] = lambda event, orders: event.rdp(orders)


def _resolve_sampling(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    """The event that sampling resolves to; a sampled Gaussian becomes one of csgm's.

    dp_accounting computes the same, but takes seconds at fractional orders where q is
    near 1/2 and the noise large, and is there off by 1e-14, which may be below zero.
    """
    if (
        isinstance(event, dp_accounting.PoissonSampledDpEvent)
        and type(event.event) is dp_accounting.GaussianDpEvent
    ):
        return csgm.sampled_gaussian_event(
            event.event.noise_multiplier, event.sampling_probability
        )
    return trees.resolve_sampling(event)


def _rdp_of(
    function: RdpFunction, event: dp_accounting.DpEvent, orders: tuple[float, ...]
) -> np.ndarray:
    """`rdp_at` of an event; its cached form is for events that every round composes."""
    return rdp_at(np.array(orders), functools.partial(function, event))


_remembered_rdp_of = functools.lru_cache(maxsize=256)(_rdp_of)


def _function_of(event: dp_accounting.DpEvent) -> Optional[RdpFunction]:
    """The function for an event's RDP, or None if dp_accounting is to compute it."""
    for kind in type(event).__mro__:
        if kind in _TABLE:
            return _TABLE[kind]
    inner = getattr(event, "event", None)
    if inner is not None and type(inner) is not dp_accounting.GaussianDpEvent:
        return None
    return _THEIR_TABLE.get(type(event))


def _relations_of_known(event: dp_accounting.DpEvent) -> events.Relations:
    """The relations of an event of which `_function_of` knows the RDP."""
    if isinstance(event, events.RdpDpEvent) or type(event) in _THEIR_TABLE:
        return trees.neighboring_relations(event)
    return events.TRUSTED_RELATIONS


def _as_float(count: int) -> float:
    return float(min(count, _MOST))


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
          orders: Renyi orders, each at least 1, infinity included (see `rdp_at` for
            these two); `events.DEFAULT_ORDERS` if None.
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
        try:
            while isinstance(event, events.RunDpEvent):
                self._check_relation(event.neighboring_relations)
                event = event.event
            resolved = _resolve_sampling(event)
            function = _function_of(resolved)
            if function is None:
                return self._maybe_compose_theirs(event, count, do_compose)
            self._check_relation(_relations_of_known(resolved))
        except RefusedEventError as error:
            return dp_accounting.PrivacyAccountant.CompositionErrorDetails(
                invalid_event=event, error_message=str(error)
            )
        if do_compose:
            asked = function, resolved, tuple(self._orders)
            if _is_value(resolved):
                self._rdp += _as_float(count) * _remembered_rdp_of(*asked)
            else:
                self._rdp += _as_float(count) * _rdp_of(*asked)
        return None

    def _maybe_compose_theirs(
        self, event: dp_accounting.DpEvent, count: int, do_compose: bool
    ) -> Optional[dp_accounting.PrivacyAccountant.CompositionErrorDetails]:
        """As `_maybe_compose`, for events that dp_accounting takes apart or knows."""
        is_composed = isinstance(
            event, (dp_accounting.SelfComposedDpEvent, dp_accounting.ComposedDpEvent)
        )
        if isinstance(event, _SAMPLED) and trees.has_registered(event.event):
            raise RefusedEventError(
                f"no bound under client sampling is registered for {event.event}"
            )
        if is_composed or not do_compose:
            return super()._maybe_compose(event, count, do_compose)
        self._rdp += _as_float(count) * self._their_rdp(event)
        return None

    def _their_rdp(self, event: dp_accounting.DpEvent) -> np.ndarray:
        """The RDP that dp_accounting has for an event; infinite where it has none."""
        orders, rdp = self._orders, self._rdp
        result = np.full(orders.shape, np.inf)
        finite = np.isfinite(orders)
        # Some releases of dp_accounting refuse the infinite order, and all of them an
        # RDP below 1e-16 of selected runs, and order 1 of randomized response.
        usual: tuple[type[Exception], ...] = (OverflowError, ZeroDivisionError)
        is_selected = isinstance(event, dp_event.RepeatAndSelectDpEvent)
        least = _ABOVE_ONE if hasattr(event, "num_buckets") else 1.0
        try:
            for part in (finite, ~finite):
                if not part.any():
                    continue
                refuses = is_selected or part is not finite
                errors = (*usual, ValueError) if refuses else usual
                self._orders = np.maximum(orders[part], least)
                self._rdp = np.zeros(part.sum())
                with contextlib.suppress(*errors), np.errstate(all="ignore"):
                    super()._maybe_compose(event, 1, True)
                    result[part] = self._rdp
        finally:
            self._orders, self._rdp = orders, rdp
        if isinstance(event, dp_accounting.LaplaceDpEvent):
            # The largest loss, which not all releases of dp_accounting give.
            result[~finite] = 1 / event.noise_multiplier
        # NaN and negative numbers mean that the RDP could not be computed, too.
        return np.where(result >= 0, result, np.inf)

    def _check_relation(self, neighboring_relations: events.Relations) -> None:
        if self._neighboring_relation not in neighboring_relations:
            if not neighboring_relations:
                raise RefusedEventError("the event holds for no neighboring relation")
            names = " or ".join(relation.name for relation in neighboring_relations)
            raise RefusedEventError(
                f"neighboring_relation must be {names} for this event, found "
                f"{self._neighboring_relation.name}"
            )

    def get_epsilon_and_optimal_order(self, target_delta: float) -> tuple[float, float]:
        """The least epsilon at a delta of at least 0, and the order that gave it."""
        target_delta = min(trees.up_to_infinity("target_delta", target_delta), 1.0)
        return self._convert(
            rdp_privacy_accountant.compute_epsilon,
            lambda largest_loss, _: largest_loss,
            math.inf,
            target_delta,
        )

    def get_delta_and_optimal_order(self, target_epsilon: float) -> tuple[float, float]:
        """The least delta at an epsilon of at least 0, and the order that gave it."""
        target_epsilon = trees.up_to_infinity("target_epsilon", target_epsilon)
        return self._convert(_delta_of, _delta_of_pure, 1.0, target_epsilon)

    def _convert(
        self,
        convert: Callable[..., tuple[float, float]],
        at_infinity: Callable[[float, float], float],
        unknown: float,
        target: float,
    ) -> tuple[float, float]:
        """The smaller of the results from the finite orders and from the infinite one.

        It is `unknown` where the RDP is infinite at all orders.
        """
        finite = np.isfinite(self._orders)
        known = finite & np.isfinite(self._rdp)
        results = [
            (at_infinity(cost, target), math.inf)
            for cost in self._rdp[~finite].tolist()
        ]
        # Infinite RDP bounds nothing, and NaN would be the minimum.
        if known.any():
            with np.errstate(over="ignore"):
                of_known = convert(self._orders[known], self._rdp[known], target)
            results.insert(0, of_known)
        elif finite.any():
            results.insert(0, (unknown, self._orders[finite][0]))
        return min(results, key=lambda pair: pair[0])

    def get_epsilon(self, target_delta: float) -> float:
        """The least epsilon at a delta of at least 0."""
        return self.get_epsilon_and_optimal_order(target_delta)[0]

    def get_delta(self, target_epsilon: float) -> float:
        """The least delta at an epsilon of at least 0."""
        return self.get_delta_and_optimal_order(target_epsilon)[0]
