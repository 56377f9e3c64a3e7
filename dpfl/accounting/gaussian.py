# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tight epsilon of plain and sampled Gaussians, and of random allocation of them.

    gaussian_epsilon(delta=1e-6, noise_multiplier=2.0)

The Gaussian mechanism's privacy curve is known exactly (Balle and Wang, 'Improving
the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
Denoising', 2018, Theorem 8), also under adaptive composition, where noise
multipliers z_i act as one of (sum_i z_i^-2)^(-1/2). Poisson-sampled Gaussians are
composed numerically as privacy loss distributions (`privacy_loss`,
`random_allocation_loss`), with pessimistic rounding; a single sampled release has an
exact curve. None of this is used for any other mechanism.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, Optional, Union

import attr
import dp_accounting
import numpy as np
from scipy import special

from dpfl import checks
from dpfl.accounting import (
    bisection,
    events,
    privacy_loss,
    random_allocation_loss,
    trees,
)
from dpfl.fields import said

_LARGEST_EPSILON = 1e15
# Allowance for every evaluation of delta, above the rounding of log_ndtr and erfcx.
_ROUNDING = 1e-13
# The grid's step over the widest loss of a release.
_LOSS_STEP = 4e-5
_FINEST = 2**-20
# Least delta for loss distributions: their tails are infinite, and bound no smaller
# one.
LEAST_PLD_DELTA = 1e-12
TOO_SMALL_DELTA = f"delta is below {LEAST_PLD_DELTA:g}, the limit of the tail bounds"
# Above this loss of one release (a noise multiplier of about 0.002) the curves differ
# by little, and the grid would be coarse or slow.
_LARGEST_PLD_LOSS = 1e5

Losses = tuple[privacy_loss.LossDistribution, privacy_loss.LossDistribution]
Profile = Callable[[np.ndarray], np.ndarray]
"""Upper bounds on delta, both directions', at epsilons of at least 0; float64 [m]."""


def gaussian_rdp(noise_multiplier: float, orders: events.Orders) -> np.ndarray:
    """The Gaussian mechanism's RDP, order / (2 noise_multiplier^2), float64 [m].

    It is infinite without noise, and where the square underflows. The noise multiplier
    is the noise's standard deviation over the L2 sensitivity.
    """
    alphas = checks.orders(orders)
    if noise_multiplier * noise_multiplier == 0:
        return np.full(alphas.shape, np.inf)
    with np.errstate(over="ignore"):
        return alphas / (2 * noise_multiplier * noise_multiplier)


def gaussian_delta(epsilon: float, noise_multiplier: float) -> float:
    """The smallest delta of the Gaussian mechanism at an epsilon, rounded up.

    With m = 1 / noise_multiplier, delta is
    Phi(m/2 - epsilon/m) - exp(epsilon) Phi(-m/2 - epsilon/m). Both terms are the
    normal density at m/2 - epsilon/m times a Mills ratio, so nothing overflows. It is
    above the smallest by 1e-13 relative to Phi(m/2 - epsilon/m), and by a little more
    at deltas below 1e-90.

    Args:
      epsilon: At least 0.
      noise_multiplier: Noise std over L2 sensitivity; at least 0.

    Raises:
      ValueError: an argument is negative or not finite.
    """
    epsilon = checks.nonnegative("epsilon", epsilon)
    noise_multiplier = checks.nonnegative("noise_multiplier", noise_multiplier)
    if noise_multiplier == 0:
        return 1.0
    upper = 0.5 / noise_multiplier - epsilon * noise_multiplier
    lower = -0.5 / noise_multiplier - epsilon * noise_multiplier
    first = float(special.ndtr(upper))
    # exp(epsilon) Phi(lower) is the density at upper times the Mills ratio at -lower.
    mills = float(special.erfcx(-lower / math.sqrt(2.0)))
    second = 0.5 * math.exp(-0.5 * upper * upper) * mills
    # Far out the rounding of the exponent is larger.
    tail = max(_ROUNDING, min(upper, 0.0) ** 2 * 2.0**-51) if first else 0.0
    return min(1.0, max(0.0, first - second) + tail * first)


def gaussian_epsilon(delta: float, noise_multiplier: float) -> float:
    """The epsilon of the Gaussian mechanism, within 1e-12 relative and rounded up.

    It is infinite without noise, or where it exceeds 1e15.

    Args:
      delta: In (0, 1).
      noise_multiplier: Noise std over L2 sensitivity; at least 0.

    Raises:
      ValueError: an argument is out of range.
    """
    delta = checks.delta("delta", delta)
    if gaussian_delta(0.0, noise_multiplier) <= delta:
        return 0.0

    def is_low(epsilon: float) -> bool:
        return gaussian_delta(epsilon, noise_multiplier) > delta

    low, high = 0.0, 1.0
    while is_low(high):
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return math.inf
    return bisection.bisected(is_low, low, high, rtol=1e-13)[1]


def round_release(name: str, value: Any) -> dp_accounting.DpEvent:
    """Checks the release of a secret cohort, and returns it without its relations.

    Raises:
      TypeError: its Renyi divergences are unknown.
      ValueError: its clients bring the noise, or a number is out of range.
    """
    release = value
    if isinstance(value, dp_accounting.DpEvent):
        release = trees.bare(trees.normalised(value))
    is_gaussian = type(release) is dp_accounting.GaussianDpEvent
    if not (is_gaussian or getattr(release, "is_one_round", False)):
        raise TypeError(
            f"{name} must be a GaussianDpEvent or an RdpDpEvent of one round, found "
            f"{type(value).__name__}"
        )
    has_own_noise = events.Relation.ADD_OR_REMOVE_ONE in trees.relations_of(value)
    wanted = "a release whose noise does not come from clients"
    checks.require(has_own_noise, name, wanted, type(release).__name__)
    return release


def round_rdp(event: dp_accounting.DpEvent, orders: events.Orders) -> np.ndarray:
    """The RDP of a `round_release`; float64 [m]."""
    if isinstance(event, events.RdpDpEvent):
        return event.rdp(orders)
    return gaussian_rdp(event.noise_multiplier, orders)


@attr.s(frozen=True, auto_attribs=True)
class FixedSizeDpEvent(events.RdpDpEvent):
    """The release of a cohort of n out of N clients, drawn without replacement.

    Assumptions: each round's cohort is drawn afresh, uniformly from all cohorts of n,
    and nobody who sees the release sees who is in it; a client's update depends on its
    data and on earlier releases, and on no earlier round in which it took part.

    Adjacency: one client's contributions become zeros. `rdp` is without amplification;
    privacy loss distributions are amplified (docs/privacy/fixed_size.md).

    Attributes:
      round_event: The release of a cohort that the client is in: dp_accounting's
        `GaussianDpEvent`, or an `RdpDpEvent` without client sampling.
      fraction: n / N, in (0, 1].
    """

    round_event: dp_accounting.DpEvent = attr.ib(metadata=said(check=round_release))
    fraction: float = attr.ib(metadata=said(check=checks.fraction))

    pages: ClassVar[tuple[str, ...]] = ("fixed_size.md",)
    is_one_round: ClassVar[bool] = False
    # The one for a fixed number of clients.
    neighboring_relations = events.ZERO_OUT_ONLY

    def rdp(self, orders: events.Orders) -> np.ndarray:
        """See base class."""
        return round_rdp(self.round_event, orders)

    def as_part(self) -> Optional[Part]:
        """See `gaussian_parts`: None unless a round is a plain Gaussian."""
        z = plain_noise_multiplier(self.round_event)
        return None if z is None else Part(self.fraction, z, self.fraction < 1)


class Part(NamedTuple):
    """A Gaussian release, with its sampling.

    Attributes:
      q: The sampling probability; for cohorts of a fixed size the share of clients in
        one.
      z: The noise multiplier.
      is_fixed: Whether cohorts have a fixed size.
      rounds: A client is in at most one of so many rounds, each with probability q.
    """

    q: float
    z: float
    is_fixed: bool = False
    rounds: int = 1


def gaussian_parts(
    releases: Iterable[tuple[dp_accounting.DpEvent, int]],
) -> Optional[Counter[Part]]:
    """The number of times that each Gaussian release occurs in `trees.releases`.

    The probability is 1 for a plain Gaussian and the noise 0 for a non-private event.

    Returns:
      The counts; None if there is any other release.
    """
    total: Counter[Part] = Counter()
    for release, count in releases:
        part = _part_of(release)
        if part is None:
            return None
        if part.q:
            total[part] += count
    return total


def _part_of(release: dp_accounting.DpEvent) -> Optional[Part]:
    """A release as a part, or None if it is no Gaussian.

    An event with a method `as_gaussian`, such as `MatrixFactorizationDpEvent`, counts
    as the (sampled) Gaussian which that returns, and one with a method `as_part` as its
    part.
    """
    event = trees.resolve_sampling(release)
    if hasattr(event, "as_gaussian"):
        event = event.as_gaussian()
    if hasattr(event, "as_part"):
        return event.as_part()
    q = 1.0
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        q, event = float(event.sampling_probability), event.event
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return Part(q, float(event.noise_multiplier))
    if isinstance(event, dp_accounting.NonPrivateDpEvent) and q == 1:
        return Part(1.0, 0.0)
    return None


def plain_noise_multiplier(event: dp_accounting.DpEvent) -> Optional[float]:
    """Noise multiplier of an unsampled Gaussian release, else None."""
    part = _part_of(event)
    return part.z if part is not None and part.q == 1 else None


class EpsilonCurves:
    """Ways to the epsilon of a tree of Gaussians at a delta, computed when asked for.

    Each returns an epsilon, or a sentence that says why it has none.
    """

    def __init__(self, parts: Counter[Part], delta: float):
        """EpsilonCurves of the `gaussian_parts` of a tree, at a delta in (0, 1)."""
        self._parts, self._delta = parts, delta
        self._sampled = {part: n for part, n in parts.items() if part.q != 1}
        self._has_noise = all(part.z for part in parts)
        plain = {part: n for part, n in parts.items() if part.q == 1}
        self._plain = _inverse_square(plain) if self._has_noise else math.inf
        self._losses: Optional[Losses] = None

    def exact(self) -> Union[float, str]:
        """Exact epsilon of unsampled Gaussians, or of one sampled release alone."""
        if not self._has_noise:
            return math.inf
        if not self._sampled:
            return _unsampled_epsilon(self._plain, self._delta)
        if self._plain == 0 and sum(self._sampled.values()) == 1:
            [(q, z, is_fixed, rounds)] = self._sampled
            if not is_fixed and rounds == 1:
                return _once_sampled_epsilon(q, z, self._delta)
        return "several releases with client sampling have no closed-form curve"

    def pld(self) -> Union[float, str]:
        """Epsilon of composed privacy loss distributions, rounded up."""
        if not (self._has_noise and self._sampled):
            return self._not_sampled
        if self._delta < LEAST_PLD_DELTA:
            return TOO_SMALL_DELTA
        is_in_reach = _widest_loss(
            self._plain, self._sampled
        ) <= _LARGEST_PLD_LOSS and all(
            random_allocation_loss.is_in_reach(part.z, part.rounds)
            for part in self._sampled
            if part.rounds > 1
        )
        if not is_in_reach:
            return "privacy losses are too large for a grid"
        # A number of slots that needs few doublings has a finer grid: a few more slots,
        # which cannot lower the true epsilon, may give the smaller bound.
        ways = (
            _pld_epsilon(self._plain, of, self._delta)
            for of in _alternatives(self._sampled)
        )
        epsilon, self._losses = min(ways, key=lambda way: way[0])
        return epsilon

    def unsampled(self) -> Union[float, str]:
        """Epsilon of the exact curve without client sampling, which is an upper bound.

        Sampling never increases epsilon: the sampled pair of laws is a post-processing
        of the other (keep the output with probability q, else draw from the law without
        the client). In cohorts of a fixed size the other members are a mixture, and of
        slots each is one release of the client's.
        """
        if not (self._has_noise and self._sampled):
            return self._not_sampled
        return _unsampled_epsilon(_inverse_square(self._parts), self._delta)

    @property
    def mu(self) -> Optional[float]:
        """1 / z of all releases together, or None if clients are sampled."""
        return None if self._sampled else math.sqrt(self._plain)

    def profile(self, route: str) -> tuple[Profile, Optional[float]]:
        """The deltas at epsilons of at least 0 by a way that has given an epsilon.

        Args:
          route: 'pld' for the last result of `pld`, 'exact-gaussian' for `exact` or
            'unsampled-gaussian' for `unsampled`.

        Returns:
          The deltas, and mu if they are those of a Gaussian mechanism of 1 / z = mu.
        """
        if route == "pld" and self._losses is not None:
            remove, add = (side.profile() for side in self._losses)
            return lambda epsilons: np.maximum(remove(epsilons), add(epsilons)), None
        if route == "exact-gaussian" and self._sampled:
            [(q, z, _, _)] = self._sampled
            return lambda epsilons: _once_sampled_deltas(q, z, epsilons), None
        mu = math.sqrt(_inverse_square(self._parts))
        return gaussian_profile(mu), mu

    @property
    def _not_sampled(self) -> str:
        return "no clients are sampled" if self._has_noise else "there is no noise"


def _alternatives(sampled: dict[Part, int]) -> list[dict[Part, int]]:
    """The parts, and the same with a few more slots if that makes a difference."""
    others: Counter[Part] = Counter()
    for part, n in sampled.items():
        others[_with_more_slots(part)] += n
    return [sampled] if others == sampled else [sampled, others]


def _with_more_slots(part: Part) -> Part:
    """A part with its rounds rounded up to six binary digits, a thirtieth at most."""
    unit = 1 << max(0, part.rounds.bit_length() - 6)
    more = -(-part.rounds // unit) * unit
    return part._replace(rounds=more) if more * part.q <= 1 else part


def _inverse_square(parts: dict[Part, int]) -> float:
    """The sum of 1 / z^2 over all releases."""
    return sum(n * (1 / part.z) * (1 / part.z) for part, n in parts.items())


def _unsampled_epsilon(inverse_square: float, delta: float) -> float:
    """The epsilon of Gaussians whose 1 / z^2 add up to this."""
    if inverse_square == 0:
        return 0.0
    # Clamped to a number with a normal inverse; the curve is the same there.
    return gaussian_epsilon(delta, max(inverse_square, 1e-300) ** -0.5)


def _once_sampled_epsilon(q: float, z: float, delta: float) -> float:
    """The epsilon of one Poisson-sampled Gaussian release, rounded up.

    A mechanism that is (epsilon', delta/q)-private is (log(1 + q (exp(epsilon') - 1)),
    delta)-private on a sample, in both directions, and for removal that is exact
    (Balle, Barthe and Gaboardi 2018, Theorem 8).
    """
    if delta >= q:
        return 0.0
    inner = gaussian_epsilon(delta / q * (1 - 1e-15), z)
    if not inner < 700:
        return float(np.logaddexp(math.log1p(-q), math.log(q) + inner)) * (1 + 1e-14)
    return math.log1p(q * math.expm1(inner)) * (1 + 1e-14)


def _once_sampled_deltas(q: float, z: float, epsilons: np.ndarray) -> np.ndarray:
    """The deltas of `_once_sampled_epsilon`, at epsilons of at least 0."""
    inner = epsilons + np.log1p((q - 1) * np.exp(-epsilons)) - math.log(q)
    return q * gaussian_profile(1 / z)(np.maximum(inner * (1 - 1e-14), 0.0))


def gaussian_profile(mu: float) -> Profile:
    """Maps epsilons to `gaussian_delta` for a noise multiplier of 1 / mu."""
    z = 1 / max(mu, 1e-150)
    return lambda epsilons: np.array([gaussian_delta(e, z) for e in epsilons])


def _pld_epsilon(
    inverse_square: float, sampled: dict[Part, int], delta: float
) -> tuple[float, Losses]:
    """The epsilon of composed privacy loss distributions, rounded up, and they."""
    step = _interval(inverse_square, sampled)
    while True:
        try:
            losses = _losses_on_grid(inverse_square, sampled, delta, step)
            return max(side.epsilon(delta) for side in losses), losses
        except privacy_loss.TooManyLossesError:
            step *= 4


def _losses_on_grid(
    inverse_square: float, sampled: dict[Part, int], delta: float, step: float
) -> Losses:
    parts = []
    for (q, z, is_fixed, rounds), n in sampled.items():
        if is_fixed:
            parts.append((privacy_loss.fixed_size_gaussian(q, z, step), n))
        elif rounds > 1:
            parts.append((random_allocation_loss.slot_gaussian(q, z, rounds, step), n))
        else:
            parts.append((privacy_loss.sampled_gaussian(q, z, step), n))
    if inverse_square:
        parts.append(
            (privacy_loss.sampled_gaussian(1.0, inverse_square**-0.5, step), 1)
        )
    remove, add = ([(pair[side], n) for pair, n in parts] for side in (0, 1))
    return privacy_loss.composed(remove, delta), privacy_loss.composed(add, delta)


def tight_losses(
    parts: Counter[Part], delta: float, step: float
) -> Optional[tuple[privacy_loss.LossDistribution, privacy_loss.LossDistribution]]:
    """The loss distributions of removing and of adding a client, for Gaussians alone.

    They dominate those of the tree at any delta, and are exact to rounding near this
    one.

    Args:
      parts: The `gaussian_parts` of a tree.
      delta: The delta at which they are the most accurate, in (0, 1).
      step: The step of the losses' grid, above 0.

    Returns:
      The two distributions; None if there is a part without noise.

    Raises:
      TooManyLossesError: there would be too many steps.
    """
    if any(part.z == 0 for part in parts):
        return None
    sampled, plain = Counter[Part](), Counter[Part]()
    for part, n in parts.items():
        is_out = part.rounds > 1 and not random_allocation_loss.is_in_reach(
            part.z, part.rounds
        )
        (plain if is_out or part.q == 1 else sampled)[part] += n
    inverse_square = _inverse_square(plain)
    if not _widest_loss(inverse_square, sampled) < privacy_loss.MOST * step:
        raise privacy_loss.TooManyLossesError(
            f"the step {step:g} is too short: there would be more than "
            f"{privacy_loss.MOST} privacy losses"
        )
    if not sampled and not inverse_square:
        nothing = privacy_loss.LossDistribution(step, 0, np.ones(1), 0.0)
        return nothing, nothing
    return _losses_on_grid(inverse_square, sampled, delta, step)


def _widest_loss(inverse_square: float, sampled: dict[Part, int]) -> float:
    """An estimate of the largest loss of a single release."""
    shares = [(1 + part.is_fixed) / part.z for part in sampled]
    m2 = max([inverse_square, *(share * share for share in shares)])
    return 0.5 * m2 + 10.0 * math.sqrt(m2)


def _interval(inverse_square: float, sampled: dict[Part, int]) -> float:
    """The grid's step: 1e-4, or one that suits the size of the losses.

    Any interval is valid, since the rounding is pessimistic. With little noise a fixed
    one would need arrays that take long, and with much noise it would be larger than
    all of the losses together.
    """
    widest = _widest_loss(inverse_square, sampled)
    releases = 1 + sum(sampled.values())
    together = widest * math.sqrt(releases)
    usual = max(_LOSS_STEP * widest, min(1e-4, _LOSS_STEP * together))
    # Losses are small if clients seldom join: rounding may add at most a fiftieth to
    # the variance of their sum.
    variance = inverse_square + sum(
        n * (part.q * part.q) * math.expm1(min(part.z**-2, 100.0))
        for part, n in sampled.items()
    )
    fine = math.sqrt(0.12 * variance / releases)
    return min(usual, max(fine, _FINEST * widest))
