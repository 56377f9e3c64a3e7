# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Routes from an event to an epsilon, in one table.

    report = accounting.epsilon(event, 1e-5, every_route=True)
    for candidate in report.candidates:
        print(candidate.route, candidate.epsilon, candidate.reason)

`dpfl-privacy explain` prints them, with the pages that prove them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional, Union

import attr
import dp_accounting

from dpfl.accounting import (
    accountant,
    csgm,
    events,
    extreme_vector,
    gaussian,
    gaussian_domination,
    privacy_loss,
    secret_participation,
    trees,
)

Found = Union[float, str]
"""An epsilon, or a sentence that says why there is none."""


_TIGHT = ("auto", "tight")


class Question:
    """An event at a delta; results that several routes share are computed once."""

    def __init__(
        self,
        event: dp_accounting.DpEvent,
        delta: float,
        orders: Optional[Sequence[float]],
        relation: events.Relation,
    ):
        """A question.

        Args:
          event: A tree of events, normalised.
          delta: In (0, 1).
          orders: Renyi orders; `events.DEFAULT_ORDERS` if None.
          relation: The relation between neighbours, for which the event holds.
        """
        self.event, self.delta, self.relation = event, delta, relation
        self.book = accountant.DpflAccountant(orders, relation)

    @functools.cached_property
    def refusal(self) -> str:
        """Why Renyi divergences alone are known; "" if more is."""
        if self.relation not in events.TRUSTED_RELATIONS:
            name = events.NAMES[self.relation]
            return f"only Renyi divergence is known for {name}"
        return ""

    @functools.cached_property
    def rdp(self) -> tuple[float, float]:
        """Epsilon by Renyi divergences, and its order."""
        self.book.compose(self.event)
        return self.book.get_epsilon_and_optimal_order(self.delta)

    @functools.cached_property
    def curves(self) -> Optional[gaussian.EpsilonCurves]:
        """Curves of a tree of Gaussians; None for other trees."""
        parts = gaussian.gaussian_parts(trees.releases(self.event))
        return None if parts is None else gaussian.EpsilonCurves(parts, self.delta)

    @functools.cached_property
    def dominating(self) -> Optional[tuple[gaussian.EpsilonCurves, float]]:
        """See `gaussian_domination.dominating_curves`."""
        return gaussian_domination.dominating_curves(self.event, self.delta)

    @functools.cached_property
    def extreme(self) -> Union[extreme_vector.Losses, str]:
        """See `extreme_vector.losses`; or why there are none.

        Rounds that a client spends in secret are no composition of masked releases.
        """
        parts = trees.releases(self.event, splits=False)
        masked = [(trees.resolve_sampling(release), n) for release, n in parts]
        if not masked or not all(
            isinstance(release, csgm.SparsifiedDpEvent) and release.keep_fraction < 1
            for release, _ in masked
        ):
            return "not all releases are of coordinates kept at random"
        if self.delta < gaussian.LEAST_PLD_DELTA:
            return gaussian.TOO_SMALL_DELTA
        try:
            found = extreme_vector.losses(masked, self.delta)
        except privacy_loss.TooManyLossesError:
            return "the noise is too small for its grid"
        return found or "a coordinate at its bound tells too much of its mask"


class Route(NamedTuple):
    """A way from an event to an epsilon.

    Attributes:
      name: Value of `PrivacyReport.accounting_method`.
      find: Computes epsilon, or says why this route has none.
      is_last: Whether its epsilon is the least that 'tight' has.
      accounting_methods: Values of `accounting_method` that allow it.
    """

    name: str
    find: Callable[[Question], Found]
    is_last: bool = False
    accounting_methods: Sequence[str] = _TIGHT


Curve = Callable[[gaussian.EpsilonCurves], Found]


def _of_gaussians(curve: Curve) -> Callable[[Question], Found]:
    def find(question: Question) -> Found:
        if question.curves is None:
            return "not all releases are Gaussian"
        return curve(question.curves)

    return find


def _of_dominating(curve: Curve) -> Callable[[Question], Found]:
    def find(question: Question) -> Found:
        if question.curves is not None:
            return "all releases are Gaussian"
        if question.dominating is None:
            return "no proof of domination by a Gaussian applies"
        curves, most = question.dominating
        epsilon = curve(curves)
        # Tails would take more than their part of delta.
        return math.inf if not isinstance(epsilon, str) and epsilon > most else epsilon

    return find


def _by_extreme(question: Question) -> Found:
    if isinstance(question.extreme, str):
        return question.extreme
    return max(side.epsilon(question.delta) for side in question.extreme)


def _by_draws(question: Question) -> Found:
    drawn = secret_participation.tight_epsilon(question.event, question.delta)
    if drawn is None:
        return "participation is not secret over the whole run"
    epsilon, accounting_method = drawn
    is_least = accounting_method == "monte-carlo"
    return epsilon if is_least else "Monte Carlo gives no smaller epsilon"


def _if_known(curve: Curve, is_composed: bool) -> Callable[[Question], Found]:
    """A route of Gaussians, or of a run with secret rounds as if they were known.

    Args:
      curve: The route of Gaussians, and of runs that are not of its kind.
      is_composed: Whether the run's kind is one with a composition that costs no less.
    """

    def find(question: Question) -> Found:
        event = secret_participation.alone(question.event)
        if event is None or (event.as_composition() is not None) != is_composed:
            return _of_gaussians(curve)(question)
        return secret_participation.revealed_epsilon(event, question.delta)

    return find


_EXACT, _PLD = gaussian.EpsilonCurves.exact, gaussian.EpsilonCurves.pld
_UNSAMPLED = gaussian.EpsilonCurves.unsampled
ROUTES: tuple[Route, ...] = (
    Route("monte-carlo", _by_draws, is_last=True),
    Route("exact-gaussian", _if_known(_EXACT, False), is_last=True),
    Route("pld", _of_gaussians(_PLD)),
    Route("unsampled-gaussian", _if_known(_UNSAMPLED, True)),
    Route("extreme-pld", _by_extreme),
    Route("stopped-exact-gaussian", _of_dominating(_EXACT), is_last=True),
    Route("stopped-pld", _of_dominating(_PLD)),
    Route("stopped-unsampled-gaussian", _of_dominating(_UNSAMPLED)),
    Route(
        "rdp",
        lambda question: float(question.rdp[0]),
        accounting_methods=("auto", "rdp"),
    ),
)
"""All routes, in the order in which they are tried; of equal epsilons the first one is
taken."""


@attr.s(frozen=True, slots=True, auto_attribs=True)
class Candidate:
    """Result of a route.

    Attributes:
      route: Its name.
      epsilon: None if it has none.
      reason: Why it was taken, or was not, or has no epsilon.
      is_taken: Whether its epsilon is that of the report.
    """

    route: str
    epsilon: Optional[float]
    reason: str
    is_taken: bool


def candidates(
    question: Question, accounting_method: str, every_route: bool = False
) -> tuple[Candidate, ...]:
    """Results of routes in the order of `ROUTES`; none is taken without an epsilon.

    Args:
      question: The event and delta.
      accounting_method: See `accounting.epsilon`.
      every_route: Whether to compute routes that are not needed as well.
    """
    results: dict[Route, Found] = {}
    for route in ROUTES:
        is_tight = route.accounting_methods is _TIGHT
        known = (
            other for other, value in results.items() if not isinstance(value, str)
        )
        is_needed = not (is_tight and any(other.is_last for other in known))
        if every_route or (accounting_method in route.accounting_methods and is_needed):
            refusal = question.refusal if is_tight else ""
            results[route] = refusal or route.find(question)
    allowed = {
        route: value
        for route, value in results.items()
        if accounting_method in route.accounting_methods and not isinstance(value, str)
    }
    least = min(allowed.values(), default=math.inf)
    taken = next((route for route in allowed if allowed[route] == least), None)
    return tuple(
        Candidate(
            route.name,
            None if isinstance(value, str) else value,
            "taken: the least"
            if route == taken
            else _reason(route, value, accounting_method, least),
            route == taken,
        )
        for route, value in results.items()
    )


def _reason(route: Route, result: Found, accounting_method: str, least: float) -> str:
    """Why a route was not taken."""
    if isinstance(result, str):
        return f"refused: {result}"
    if accounting_method not in route.accounting_methods:
        return f"excluded by accounting_method {accounting_method!r}"
    return "not taken: larger" if result > least else "not taken: no smaller"
