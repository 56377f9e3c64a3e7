# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Epsilon of an event, and the least noise that meets a budget.

    report = epsilon(dp_accounting.GaussianDpEvent(1.0), 1e-6, accounting_method="rdp")
    report.epsilon, report.order  # 5.22, and the Renyi order that gives it
    z = calibrate_noise_multiplier(dp_accounting.GaussianDpEvent, 4, 1e-6)
    losses = loss_distribution(dp_accounting.GaussianDpEvent(z), 1e-6)

`make_event` is any function from a noise multiplier to an event.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Optional

import attr
import dp_accounting
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from scipy import optimize

from dpfl import checks
from dpfl.accounting import (
    accountant,
    audit_figures,
    events,
    gaussian_domination,
    privacy_loss,
    routes,
    secret_participation,
    trees,
)

ACCOUNTING_METHODS = ("auto", "rdp", "tight")
"""The values of `accounting_method`; `epsilon` describes them."""

ACCOUNTING_METHODS_HELP = (
    "auto: the smaller of the two others; rdp: Renyi differential privacy; tight: the "
    "exact curve or privacy loss distributions of Gaussian noise, in random allocation "
    "too, and of a dominating Gaussian for dropped coordinates and integer noise; "
    "Monte Carlo bounds for secret participation over the whole run."
)
"""Help text of the flag --accounting_method."""

LARGE_EPSILON = 50.0
"""A larger epsilon is remarked on.

An observer of the output may believe any guess about a client e^50 times more than
before.
"""

SMALLEST_NOISE_MULTIPLIER = 1e-6
LARGEST_NOISE_MULTIPLIER = events.LARGEST_NOISE_MULTIPLIER

# Least step of the grid of noise multipliers, whose points must be different floats.
_LEAST_STEP = 1e-12
# Size of the log of epsilon over its target as which larger ones count.
_FARTHEST = 50.0
# A longer step of a loss distribution has no power of e in the floats.
_LONGEST_INTERVAL = 100.0

MakeEvent = Callable[[float], dp_accounting.DpEvent]


class CalibrationError(ValueError):
    """No noise multiplier solves the calibration."""


class UnsupportedAccountingMethodError(dp_accounting.UnsupportedEventError, ValueError):
    """The accounting method does not support the event."""


class UnreachableBudgetError(CalibrationError):
    """The budget is exceeded however large the noise is."""


class BudgetNotBindingError(CalibrationError):
    """The budget is met however small the noise is, so that none is the least."""


@attr.s(frozen=True, slots=True, auto_attribs=True)
class PrivacyReport:
    """An epsilon of an event, its accounting method and its relation.

    Attributes:
      epsilon: The event is (epsilon, delta) differentially private; may be infinite.
      delta: See `epsilon`.
      accounting_method: Route to epsilon, see `routes`: 'rdp', 'exact-gaussian', 'pld',
        'unsampled-gaussian' (the exact curve without client sampling, which is never
        below the one with it), 'extreme-pld' (`extreme_vector`), or 'monte-carlo'
        (`secret_participation`). It begins with 'stopped-' where a Gaussian dominates
        masked coordinates or integer noise (`gaussian_domination`).
      order: The Renyi order that gave epsilon, for 'rdp'; otherwise None.
      relation: The relation between neighbours that epsilon is for, by its name in
        `events.NAMES`: 'add_or_remove' or 'replaced_by_zeros'.
      event: The event, in the normal form of `trees`; None if it is not known.
      candidates: Results of the routes that were tried, see `routes`.
      figures: What else the route says; None unless `epsilon` was asked for it.
    """

    epsilon: float
    delta: float
    accounting_method: str
    order: Optional[float] = None
    relation: Optional[str] = None
    event: Optional[dp_accounting.DpEvent] = attr.ib(None, eq=False, repr=False)
    candidates: tuple[routes.Candidate, ...] = attr.ib((), eq=False, repr=False)
    figures: Optional[audit_figures.AuditFigures] = attr.ib(None, eq=False, repr=False)

    def __str__(self) -> str:
        """Returns one sentence, with a remark on an epsilon above `LARGE_EPSILON`."""
        text = (
            f"epsilon {self.epsilon:.4g} at delta {self.delta:.4g} "
            f"by {self.accounting_method}"
        )
        if self.relation is not None:
            text += f", for the relation {self.relation}"
        if self.epsilon > LARGE_EPSILON:
            text += (
                "; an epsilon this large protects nobody, and "
                "dpfl.planning.remarks.epsilon_remark names the noise for a usual one"
            )
        return text


def epsilon(
    event: dp_accounting.DpEvent,
    delta: float,
    *,
    accounting_method: str = "auto",
    orders: Optional[Sequence[float]] = None,
    relation: Optional[events.Relation] = None,
    every_route: bool = False,
    figures: bool = False,
) -> PrivacyReport:
    """The epsilon of an event at a delta, with its accounting method and relation.

    Args:
      event: Any tree of dpfl's and dp_accounting's events.
      delta: In (0, 1).
      accounting_method: 'rdp', by Renyi differential privacy; 'tight', by the exact
        curve or privacy loss distributions, for trees of plain, masked and
        Poisson-sampled Gaussians, integer noise and random allocation of these alone;
        or 'auto', the smaller of the two.
      orders: Renyi orders, each greater than 1; `events.DEFAULT_ORDERS` if None.
      relation: The relation between neighbours; None is the first for which the event
        holds, ADD_OR_REMOVE_ONE for dp_accounting's own events alone.
      every_route: Whether the report has a candidate for each of `routes.ROUTES`,
        which takes longer and changes no epsilon. Otherwise it has those that were
        needed.
      figures: Whether the report has `figures`, which take some hundredths of a second.

    Raises:
      dp_accounting.UnsupportedEventError: the tree has an event without a bound, for
        the relation and by the accounting method.
      ValueError: an argument, or a number of the event, is out of range.
    """
    delta = checks.delta("delta", delta)
    accounting_method = checks.choice(
        "accounting_method", accounting_method, ACCOUNTING_METHODS
    )
    event = trees.normalised(event)
    if relation is None:
        relation = first_relation(event)
    question = routes.Question(event, delta, orders, relation)
    if accounting_method != "tight" or not question.book.supports(event):
        # Raises the error of an event that is not supported.
        question.rdp  # noqa: B018
    candidates = routes.candidates(question, accounting_method, every_route)
    taken = next((each for each in candidates if each.is_taken), None)
    if taken is None or taken.epsilon is None:
        raise UnsupportedAccountingMethodError(
            "accounting_method must be 'auto' or 'rdp' for events other than plain, "
            "masked and Poisson-sampled Gaussians, integer noise, random allocation of "
            f"these and secret participation, found {accounting_method!r}"
        )
    order = float(question.rdp[1]) if taken.route == "rdp" else None
    found = None
    if figures:
        found = audit_figures.of(question, taken.route, taken.epsilon)
    name = events.NAMES[relation]
    return PrivacyReport(
        taken.epsilon, delta, taken.route, order, name, event, candidates, found
    )


def first_relation(event: dp_accounting.DpEvent) -> events.Relation:
    """The relation that an event's epsilon is for by default.

    Raises:
      dp_accounting.UnsupportedEventError: its parts have none in common.
    """
    neighboring_relations = trees.relations_of(event)
    if not neighboring_relations:
        raise dp_accounting.UnsupportedEventError(
            f"the parts of the event share no neighboring relation: {event}"
        )
    return neighboring_relations[0]


def loss_distribution(
    event: dp_accounting.DpEvent, delta: float, interval: float = 1e-4
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """The privacy loss distribution of an event, rounded up, for others to compose.

    It dominates the event in both directions, at any delta. Its epsilon is nearly that
    by the accounting method 'tight'. Repetitions within the event are composed
    already. The event of a mechanism's run is `mechanism.dp_event(plan, dimension)`.
    docs/privacy/README.md states the guarantee and its proof.

        loss_distribution(event, delta).compose(others).get_epsilon_for_delta(delta)

    Args:
      event: A tree of plain, masked and Poisson-sampled Gaussians, integer noise, and
        random allocation and cohorts of a fixed size of these. The distribution is for
        any relation for which the event holds; see `relations_of`.
      delta: The delta of the whole composition, in (0, 1). Epsilon is most accurate
        there, and may be infinite at a smaller one: masked coordinates and integer
        noise put a hundredth of delta at infinity.
      interval: The grid's step, up to 100; `PLDAccountant`'s by default. Only
        distributions of the same interval compose.

    Raises:
      dp_accounting.UnsupportedEventError: the event has no known loss distribution, or
        its parts have no relation in common.
      ValueError: an argument is out of range.
    """
    delta = checks.delta("delta", delta)
    interval = checks.real("interval", interval, above=0, at_most=_LONGEST_INTERVAL)
    event = trees.normalised(event)
    relation = first_relation(event)
    book = accountant.DpflAccountant(neighboring_relation=relation)
    if not book.supports(event):
        # Raises the error of an event that is not supported.
        book.compose(event)
    pair = None
    if relation in events.TRUSTED_RELATIONS:
        try:
            pair = gaussian_domination.losses(event, delta, interval)
        except privacy_loss.TooManyLossesError as error:
            raise ValueError(
                "interval must be long enough for at most "
                f"{privacy_loss.MOST} losses, found {interval!r}"
            ) from error
    if pair is None:
        raise dp_accounting.UnsupportedEventError(
            f"no privacy loss distribution is known for {type(event).__name__}; it is "
            "for plain, masked and Poisson-sampled Gaussians, integer noise and random "
            "allocation of these, where no client is replaced by another, and "
            "DpflAccountant composes all others by Renyi divergence"
        )
    remove, add = (
        pld_pmf.DensePLDPmf(interval, side.low, side.masses, side.infinite, True)
        for side in map(privacy_loss.LossDistribution.of_one, pair)
    )
    return privacy_loss_distribution.PrivacyLossDistribution(remove, add)


def calibrate_noise_multiplier(
    make_event: MakeEvent,
    target_epsilon: float,
    target_delta: float,
    *,
    accounting_method: str = "auto",
    rtol: float = 1e-4,
    orders: Optional[Sequence[float]] = None,
    guess: float = 1.0,
) -> float:
    """The least noise multiplier whose event meets a budget.

    The result is a point of the grid (1 + rtol)^k, k an integer, so that equal
    arguments give equal results and a larger budget never needs more noise. Its event
    was evaluated, and has an epsilon of at most `target_epsilon`.

        calibrate_noise_multiplier(dp_accounting.GaussianDpEvent, 1.0, 1e-6)

    Args:
      make_event: Maps a noise multiplier (a positive float) to the event of the whole
        run. Its epsilon must not rise with the noise multiplier. Where there is no such
        event it raises `events.NoiseTooLargeError` or `NoiseTooSmallError`, and the
        search goes on at the other side.
      target_epsilon: Greater than 0.
      target_delta: In (0, 1).
      accounting_method: As for `epsilon`.
      rtol: The relative step of the grid, from 1e-12 on and below 1; the result is
        within it of the optimum, on the private side.
      orders: As for `epsilon`.
      guess: Start of the tight search, without effect on the result.

    Raises:
      UnreachableBudgetError: no noise multiplier up to 1e12, or up to the largest that
        there is an event for, meets the budget.
      BudgetNotBindingError: even 1e-6 meets the budget.
      ValueError: an argument is out of range.
    """
    make_event = checks.function("make_event", make_event)
    target = checks.positive("target_epsilon", target_epsilon)
    delta = checks.delta("target_delta", target_delta)
    step = math.log1p(checks.real("rtol", rtol, at_least=_LEAST_STEP, below=1))
    accounting_method = checks.choice(
        "accounting_method", accounting_method, ACCOUNTING_METHODS
    )
    least, most = SMALLEST_NOISE_MULTIPLIER, LARGEST_NOISE_MULTIPLIER
    guess = checks.real("guess", guess, at_least=least, at_most=most)

    def gap_at(k: int, some: Optional[Sequence[float]], by: str = "rdp") -> float:
        try:
            event = make_event(math.exp(k * step))
        except events.NoiseTooLargeError:
            return -math.inf
        except events.NoiseTooSmallError:
            return math.inf
        report = epsilon(event, delta, accounting_method=by, orders=some)
        if math.isnan(report.epsilon):
            return math.inf
        return math.log(max(report.epsilon, 1e-300)) - math.log(target)

    half = math.ceil(0.5 / step)
    all_orders: Sequence[float] = events.DEFAULT_ORDERS
    if orders is not None:
        all_orders = sorted(set(checks.orders(orders, closed=True).tolist()))

    def by_rdp() -> int:
        return _least_index(lambda k: gap_at(k, all_orders), 0, half, step)

    if accounting_method == "rdp" or (
        accounting_method == "auto" and not _may_be_tight(make_event, 1.0)
    ):
        best = by_rdp()
    else:
        try:
            best = _least_index(
                lambda k: gap_at(k, orders, "tight"),
                round(math.log(guess) / step),
                half,
                step,
            )
        except UnreachableBudgetError:
            if accounting_method == "tight":
                raise
            best = by_rdp()
        # The tight epsilon is seldom above that by RDP, which is then not needed.
        if accounting_method == "auto" and gap_at(best - 1, all_orders) <= 0:
            best = min(best, by_rdp())
    noise_multiplier = math.exp(best * step)
    try:
        make_event(noise_multiplier)
    except events.NoiseTooLargeError as error:
        raise UnreachableBudgetError(
            "target_epsilon or target_delta must be larger, since the noise that they "
            f"need is out of range: {error}"
        ) from error
    return noise_multiplier


def has_tight_epsilon(event: dp_accounting.DpEvent) -> bool:
    """Whether an exact, PLD or Monte Carlo epsilon is available."""
    event = trees.normalised(event)
    if secret_participation.alone(event) is not None:
        return True
    return gaussian_domination.is_of_gaussians(event)


def _may_be_tight(make_event: MakeEvent, noise_multiplier: float) -> bool:
    """Whether a tight epsilon is available at this noise, or there is no such event."""
    try:
        return has_tight_epsilon(make_event(noise_multiplier))
    except (events.NoiseTooLargeError, events.NoiseTooSmallError):
        return True


def _least_index(
    gap: Callable[[int], float], start: int, stride: int, step: float
) -> int:
    """The least integer k with gap(k) <= 0; gap does not rise with k."""
    gap = functools.cache(gap)

    def near(k: float) -> float:
        # Log epsilon is nearly linear in log noise. A root is not the least index.
        return min(max(gap(round(k)), -_FARTHEST), _FARTHEST) or -_FARTHEST

    ends = _bracket(gap, start, stride, step)
    k = round(optimize.brentq(near, *ends, xtol=0.5, maxiter=1000))
    while gap(k) > 0:
        k += 1
    while gap(k - 1) <= 0:
        k -= 1
    return k


def _bracket(
    gap: Callable[[int], float], start: int, stride: int, step: float
) -> tuple[int, int]:
    """Two integers; gap is above 0 at the first, and not at the second."""
    floor = math.ceil(math.log(SMALLEST_NOISE_MULTIPLIER) / step)
    ceiling = math.floor(math.log(LARGEST_NOISE_MULTIPLIER) / step)
    k, upwards = start, gap(start) > 0
    while True:
        if k == (ceiling if upwards else floor):
            if not upwards:
                raise BudgetNotBindingError(
                    "target_epsilon must be smaller, since noise_multiplier "
                    f"{SMALLEST_NOISE_MULTIPLIER:g} already meets the budget; check "
                    "that make_event uses its argument"
                )
            raise UnreachableBudgetError(
                "target_epsilon or target_delta must be larger, or the bits of integer "
                f"noise, since even noise_multiplier {LARGEST_NOISE_MULTIPLIER:g} "
                "exceeds the budget"
            )
        # Log epsilon falls about as log noise rises, or faster.
        far = min(abs(gap(k)) * 1.05 / step, 4 * stride)
        stride = max(1, math.ceil(far)) if math.isfinite(gap(k)) else stride
        following = min(max(k + (stride if upwards else -stride), floor), ceiling)
        if upwards != (gap(following) > 0):
            return (k, following) if upwards else (following, k)
        k, stride = following, 2 * stride
