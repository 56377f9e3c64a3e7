# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Figures that auditors ask for, from the route that gave an epsilon.

    figures = accounting.epsilon(event, 1e-5, figures=True).figures
    figures.true_positive_rates[0.001]

The route bounds delta(epsilon), the larger of both directions' hockey-sticks H(t) at
t = e^epsilon >= 1. Each is convex in t, so that between two points the chord is a
bound, too. All figures follow from some thousand points, with the theorems of
docs/privacy/README.md#what-auditors-ask-for, and claim no more privacy than there is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Optional

import attr
import numpy as np
from scipy import special

from dpfl.accounting import (
    bisection,
    gaussian,
    gaussian_domination,
    routes,
    secret_participation,
)

DELTAS = tuple(float(f"1e-{k}") for k in range(2, 11))
"""Deltas of the curve, beside the report's own."""
FALSE_POSITIVE_RATES = (0.001, 0.01)

_WHY_NO_MU = {"rdp": "renyi", "monte-carlo": "draws"}
# By routes; all others are approximate.
_WHY_NO_RHO = {
    "rdp": "orders",
    "monte-carlo": "draws",
    "exact-gaussian": "sampled",
    "pld": "sampled",
}
# By the words of `AuditFigures.absent`.
_WORDS = {
    "infinite": "epsilon is infinite",
    "draws": "not known from draws",
    "renyi": "not known from Renyi divergences",
    "orders": "known at some orders alone",
    "large": "too large",
    "sampled": "sampling does not lower it",
    "approximate": "not known for what is not Gaussian",
}
# Of the curve, where draws gave the epsilon at the report's delta.
_WITHOUT_DRAWS = "without draws, and larger than need be"
# Where the search for the last epsilon of interest begins and ends.
_FIRST, _LAST = 1e-9, 1e7
_EVEN, _NEAR_ZERO = 1000, 200
# Allowance for rounding of a true positive rate.
_ROUNDING = 1e-12


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AuditFigures:
    """Bounds on what anybody learns of a client, all of them without units.

    Attributes:
      epsilons: Epsilon by delta, for the report's own and the `DELTAS`, larger ones
        first; without those at which no finite epsilon is known.
      true_positive_rates: Largest true positive rate of any test of whether a client
        took part, by its false positive rate, whichever answer counts as positive.
      mu: Least mu such that the Gaussian mechanism of noise multiplier 1 / mu has, at
        every epsilon up to the report's, a delta of at least the route's. Any test's
        true positive rate is then at most Phi(Phi^-1(false positive rate) + mu) +
        delta, and without the delta, mu-GDP, for a Gaussian mechanism. None if `absent`
        has it.
      rho: Of zero-concentrated differential privacy, the largest Renyi divergence over
        its order, over all orders above 1. None if `absent` has it.
      absent: Word that says why there is no such figure, by 'mu' or 'rho': 'infinite',
        as epsilon is; 'draws', of Monte Carlo; 'renyi' where mu is not known from the
        divergences; 'large' where mu is too large for float64; 'sampled' where rho is
        no smaller than without client sampling; 'approximate' where a part of delta
        stands for releases that are not Gaussian; 'orders' where the divergences are
        known at some orders alone.
    """

    epsilons: Mapping[float, float]
    true_positive_rates: Mapping[float, float]
    mu: Optional[float]
    rho: Optional[float]
    absent: Mapping[str, str]


def facts(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values of figures for readers, but for the curve.

    Args:
      figures: `AuditFigures` as a mapping, such as `audit_figures` in a summary.json.
    """
    names = {"mu": "mu of GDP, but for the delta", "rho": "rho of zCDP"}
    rates = figures["true_positive_rates"].items()
    of_draws = figures["absent"].get("mu") == "draws"
    return {
        **({"epsilon at other deltas": _WITHOUT_DRAWS} if of_draws else {}),
        **{
            name: f"none ({_WORDS[why]})"
            if (why := figures["absent"].get(key))
            else figures[key]
            for key, name in names.items()
        },
        **{
            f"largest true positive rate at {100 * float(rate):g}% false "
            "positives": value
            for rate, value in rates
        },
    }


def of(question: routes.Question, route: str, epsilon: float) -> AuditFigures:
    """The figures of the route that gave an epsilon.

    Args:
      question: The event and the delta, of which the route's epsilon was computed.
      route: The name of the route.
      epsilon: Its epsilon, at least 0.
    """
    if math.isinf(epsilon):
        rates, why = dict.fromkeys(FALSE_POSITIVE_RATES, 1.0), "infinite"
        return AuditFigures({}, rates, None, None, {"mu": why, "rho": why})
    profile, mu = _profile(question, route, epsilon)
    x, deltas = _points(profile, epsilon, question.delta)
    absent = {}
    rho_mu = mu
    if route == "rdp" and question.curves is not None:
        rho_mu = question.curves.mu
    if rho_mu is None:
        absent["rho"] = _WHY_NO_RHO.get(route, "approximate")
    if route in _WHY_NO_MU:
        mu, absent["mu"] = None, _WHY_NO_MU[route]
    elif mu is None:
        mu = _mu(x, deltas, epsilon)
        if not math.isfinite(mu):
            mu, absent["mu"] = None, "large"
    curve = {delta: _epsilon_at(delta, x, deltas) for delta in DELTAS}
    curve[question.delta] = epsilon
    return AuditFigures(
        {d: e for d, e in sorted(curve.items(), reverse=True) if math.isfinite(e)},
        {rate: _power(rate, x, deltas) for rate in FALSE_POSITIVE_RATES},
        mu,
        None if rho_mu is None else rho_mu * rho_mu / 2,
        absent,
    )


def _profile(
    question: routes.Question, route: str, epsilon: float
) -> tuple[gaussian.Profile, Optional[float]]:
    """The deltas of a route, and mu if they are those of a Gaussian mechanism."""
    if route == "rdp":
        return question.book.profile, None

    def of_epsilon(x: np.ndarray) -> np.ndarray:
        return np.where(x < epsilon, 1.0, question.delta)

    curves = question.curves
    if curves is not None and route != "monte-carlo":
        return curves.profile(route)
    if (secret := secret_participation.alone(question.event)) is not None:
        mu = math.sqrt(secret.longest())
        without = gaussian.gaussian_profile(mu)
        if route != "monte-carlo":
            return without, mu
        # Draws bound delta at one epsilon.
        if curves is not None and not isinstance(curves.pld(), str):
            without, _ = curves.profile("pld")
        return lambda x: np.minimum(without(x), of_epsilon(x)), None
    if route == "extreme-pld" and not isinstance(question.extreme, str):
        remove, add = (side.profile() for side in question.extreme)
        return lambda x: np.maximum(remove(x), add(x)), None
    if question.dominating is not None:
        dominating, most = question.dominating
        profile, _ = dominating.profile(route.replace("stopped-", ""))
        charged = gaussian_domination.CHARGED_SHARE * question.delta
        return lambda x: np.where(x > most, 1.0, profile(x) + charged), None
    return of_epsilon, None


def _points(
    profile: gaussian.Profile, epsilon: float, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Rising epsilons from 0 on, with their deltas, which do not rise; [n], [n].

    The last one is where delta reaches its least, or is below all `DELTAS`.
    """
    least = min(*DELTAS, delta)
    rough = np.geomspace(_FIRST, _LAST, _NEAR_ZERO)
    found = np.minimum.accumulate(profile(rough))
    last = rough[np.argmax(found <= max(least, found[-1]))]
    near = last * np.geomspace(1e-6, 1, _NEAR_ZERO)
    x = np.unique(np.concatenate([np.linspace(0, last, _EVEN), near]))
    place = np.searchsorted(x, epsilon)
    deltas = np.insert(np.minimum(profile(x), 1.0), place, delta)
    return np.insert(x, place, epsilon), np.minimum.accumulate(deltas)


def _epsilon_at(delta: float, x: np.ndarray, deltas: np.ndarray) -> float:
    """The least epsilon at a delta, by the chords between points."""
    place = int(np.argmax(deltas <= delta))
    if deltas[place] > delta:
        return math.inf
    if place == 0:
        return 0.0
    (low, high), (above, below) = (
        x[place - 1 : place + 1],
        deltas[place - 1 : place + 1],
    )
    share = (above - delta) / (above - below)
    gap = high - low
    if gap > 1:
        return float(high + math.log(share + (1 - share) * math.exp(-gap)))
    return float(low + math.log1p(share * math.expm1(gap)))


def _power(rate: float, x: np.ndarray, deltas: np.ndarray) -> float:
    """The largest true positive rate of a test, by all (epsilon, delta) at once.

    With f(a) the smallest rate of the other error, f(a) >= 1 - delta - e^epsilon a and
    >= e^-epsilon (1 - delta - a) for each (Dong, Roth and Su 2022, Proposition 2.5).
    """
    with np.errstate(over="ignore"):
        steep = deltas + np.exp(x) * rate
    flat = 1 - np.exp(-x) * (1 - deltas - rate)
    return min(float(np.min(np.minimum(steep, flat))) * (1 + _ROUNDING), 1.0)


def _mu(x: np.ndarray, deltas: np.ndarray, epsilon: float) -> float:
    """The least mu whose Gaussian mechanism is above all chords up to an epsilon.

    A chord's line b - a t is below H_mu(t) for every t if b is at most the minimum of
    H_mu(t) + a t, which is Phi(Phi^-1(a) + mu), the power of a test of N(0, 1) against
    N(mu, 1) at the rate a. Where the minimum is outside of all chords, which is at log
    t = -mu (Phi^-1(a) + mu / 2), the first and the last point are enough.
    """
    until = int(np.searchsorted(x, epsilon, side="right"))
    x, deltas = x[:until], deltas[:until]
    falls = -np.diff(deltas)
    is_chord = (falls > 0) & (np.diff(x) > 0)
    with np.errstate(divide="ignore", over="ignore"):
        shares = np.log(falls) - np.log(np.expm1(np.diff(x)))
        quantiles = special.ndtri_exp(shares - x[:-1])[is_chord]
        powers = np.minimum((deltas[:-1] + np.exp(shares)) * (1 + _ROUNDING), 1.0)
        mus = special.ndtri(powers[is_chord]) - quantiles
    # At the first point delta_mu(0) = 2 Phi(mu / 2) - 1.
    mu = float(2 * special.ndtri((1 + deltas[0]) / 2))
    high = float(np.max(mus, initial=mu))
    if not math.isfinite(high):
        return math.inf

    def is_low(mu: float) -> bool:
        return gaussian.gaussian_delta(epsilon, 1 / mu) < deltas[-1]

    mu = bisection.bisected(is_low, mu, high, rtol=_ROUNDING)[1]
    while True:
        places = -mu * (quantiles + mu / 2)
        inside = mus[(places >= 0) & (places <= epsilon) & (mus > mu)]
        if not inside.size:
            return mu
        mu = float(np.max(inside))
