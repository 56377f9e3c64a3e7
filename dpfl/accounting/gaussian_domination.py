# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""A Gaussian that dominates a release of masked coordinates, up to a small probability.

`dpfl.accounting.integer.dominating_gaussian` has one for integer noise, which is
composed here too.

Coordinates are kept at random with probability gamma, and Gaussian noise is added. Run
the noise of coordinate j as a Brownian motion for the time t_j, its squared shift over
the noise's variance, and let p_j be the posterior probability that it was kept. The
likelihood ratio x of 'with the client' to 'without' is a martingale, dx = x sum_j p_j
dB_j, with the clock V = sum_j int p_j^2. Stopped where V reaches V*, x is in convex
order at most the ratio of a Gaussian of noise multiplier V*^(-1/2). Hence every
hockey-stick of the release is at most that Gaussian's plus P(V > V*), in both
directions. By Chernoff's bound

  P(V > V*) <= exp(K h_s(t) - s V*),    h_s(t) = log E_P exp(s int_0^t p^2),

K coordinates of the time t being the worst case, since h_s is convex in t.
docs/privacy/gaussian_domination.md has the proofs.

p is a martingale under P. `_log_exponential` bounds h_s from above: in each of n steps
the integral is taken to be the step times the last p^2, and functions of p, all of
them convex, are replaced by their interpolation between nodes, of which the
expectation is known. Both only ever increase the bound; float64 rounds positive
numbers, by parts in 1e-12 of each, for which an allowance is made.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Optional

import attr
import dp_accounting
import numpy as np
from scipy import special

from dpfl.accounting import (
    csgm,
    events,
    gaussian,
    privacy_loss,
    random_allocation,
    trees,
)
from dpfl.accounting.integer import dominating_gaussian

# Number of steps in time; each adds at most 1/n of the growth of V by its own spread.
_STEPS = 40
# Nodes per standard deviation of a step, and the range in standard deviations of the
# whole time.
_NODES = 3
_BELOW, _ABOVE = 9.0, 24.0
# Times at which the exponent is computed are powers of this; between two of them it is
# at most its chord, being convex, so that a calibration computes only a few.
_RATIO = 1.1
# Exponents s of Chernoff's bound are even powers of `_RATIO` between these, over t.
# float64 ends at exp(709).
_SMALLEST, _LARGEST = 0.1, 600.0
# Times outside of these are bounded by the values at the ends.
_SHORTEST, _LONGEST = 1e-6, 1e3
# Allowance for rounding, in all steps together.
_ROUNDING = 1e-10
# The share of delta for the clocks, of all releases together.
_SHARE = 0.01
# The share for the tails of integer noise, which are far below it.
_TAIL_SHARE = 1e-6
CHARGED_SHARE = _SHARE + _TAIL_SHARE
"""The share of delta for clocks and tails."""
# Events of a cohort's release that one Gaussian release can take the place of.
_OF_COHORTS = gaussian.FixedSizeDpEvent, random_allocation.RandomAllocationDpEvent


def _logits(keep: float, time: float) -> np.ndarray:
    """The logits of the nodes between 0 and 1, in equal steps, one of them keep's."""
    step = math.sqrt(time / _STEPS) / _NODES
    count = _STEPS**0.5 * _NODES
    below, above = math.ceil(_BELOW * count), math.ceil(_ABOVE * count)
    center = math.log(keep) - math.log1p(-keep)
    logits = center + step * np.arange(-below, above + 1)
    # Beyond these a posterior is 0 or 1 in float64, or nearly.
    return logits[(logits > -600) & (logits < 30)]


def _transition(logits: np.ndarray, time: float) -> np.ndarray:
    """Expected hat function of each node, from each node, after a time; [m + 2, m + 2].

    From p, the posterior stays at most c with the probability of log w <= logit c -
    logit p, and E[p; p <= c] is that probability with the coordinate kept, times p.
    Only positive numbers are added, and differences are of neighbours in the logit.
    """
    m, root = logits.size, math.sqrt(time)
    # The nodes are equally spaced: only the number between two of them counts.
    gaps = root / _NODES * np.arange(1 - m, m)
    between = np.arange(m) - np.arange(m)[:, None] + m - 1
    p, rest = special.expit(logits)[:, None], special.expit(-logits)[:, None]
    kept = p * _rows_of_cells(gaps / root - root / 2, between)
    lost = rest * _rows_of_cells(gaps / root + root / 2, between)
    # Lower node of each cell, and its distances to 1 and to the upper node.
    low = np.concatenate([[0.0], special.expit(logits)])
    room = np.concatenate([[1.0], special.expit(-logits)])
    fall = room - np.append(room[1:], 0.0)
    rise = np.append(low[1:], 1.0) - low
    widths = np.where(low < 0.5, rise, fall)
    mass = kept + lost
    upper = np.clip((kept * room - low * lost) / widths, 0, mass)
    result = np.zeros((m + 2, m + 2))
    result[1:-1, 1:] += upper
    result[1:-1, :-1] += mass - upper
    result[0, 0] = result[-1, -1] = 1.0
    return result


def _rows_of_cells(bounds: np.ndarray, between: np.ndarray) -> np.ndarray:
    """Normal masses below, between and above the bounds of each row; [m, m + 1]."""
    rows = np.empty((between.shape[0], between.shape[1] + 1))
    # A mass of 1e-300 counts where its weight is 1e250.
    rows[:, 1:-1] = privacy_loss.normal_masses(bounds)[between[:, :-1]]
    rows[:, 0] = special.ndtr(bounds[between[:, 0]])
    rows[:, -1] = special.ndtr(-bounds[between[:, -1]])
    return rows


def _powers(place: int) -> np.ndarray:
    """The exponents s at the time `_RATIO`^place, as powers of `_RATIO`^2, rising."""
    first = math.ceil((math.log(_SMALLEST, _RATIO) - place) / 2)
    last = math.floor((math.log(_LARGEST, _RATIO) - place) / 2)
    return np.arange(first, last + 1)


def _exponents(place: int) -> np.ndarray:
    return _RATIO ** (2.0 * _powers(place))


@functools.lru_cache(maxsize=256)
def _log_exponential(keep: float, place: int) -> np.ndarray:
    """Upper bounds on h_s(t) at t = `_RATIO`^place and s = `_exponents(place)`."""
    time = _RATIO**place
    logits = _logits(keep, time)
    nodes = np.concatenate([[0.0], special.expit(logits), [1.0]])
    transition = _transition(logits, time / _STEPS)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rates = np.square(nodes)[:, None] * (_exponents(place) * time / _STEPS)
        growth = np.exp(rates)
        values = np.ones_like(growth)
        for _ in range(_STEPS):
            values = transition @ (growth * values)
        # The node of keep, or the one above if rounding has moved it: values rise in p.
        moments = values[np.searchsorted(nodes, keep * (1 - 1e-12))]
        result = np.log(moments) + _ROUNDING
    return np.where(np.isfinite(result), result, np.inf)


def clock_bound(
    keep_fraction: float, time: float, full_coordinates: float, delta: float
) -> float:
    """A V* with P(V > V*) <= delta, at most the K t of a release that keeps everything.

    Args:
      keep_fraction: gamma, in (0, 1).
      time: t, (a coordinate's bound / noise std)^2, greater than 0.
      full_coordinates: K, the number of coordinates at their bound that the L2 bound
        allows.
      delta: Greater than 0.
    """
    everything = full_coordinates * time
    # A larger keep fraction has a larger clock, and numbers below underflow.
    keep = max(keep_fraction, 1e-250)
    if not time < _LONGEST:
        return everything
    # The exponent is convex in the time and 0 at 0: below the shortest time it is at
    # most its share.
    base = max(time, _SHORTEST)
    share = full_coordinates * (time / base)
    place = math.floor(math.log(base, _RATIO))
    before, after = _RATIO**place, _RATIO ** (place + 1)
    weight = min(1.0, max(0.0, (base - before) / (after - before)))
    powers, *where = np.intersect1d(
        _powers(place), _powers(place + 1), return_indices=True
    )
    ends = (_log_exponential(keep, place + i)[where[i]] for i in (0, 1))
    chord = np.dot([1 - weight, weight], list(ends))
    bounds = (share * chord - math.log(delta)) / _RATIO ** (2.0 * powers)
    return min(float(np.min(bounds)), everything)


def _is_replaced(event: dp_accounting.DpEvent) -> bool:
    """Whether a release is to be replaced by a dominating Gaussian."""
    masked = isinstance(event, csgm.SparsifiedDpEvent) and event.keep_fraction < 1
    return masked or dominating_gaussian.is_known(event)


def _replaced_releases(event: dp_accounting.DpEvent) -> int:
    """The number of releases of a tree to be replaced by Gaussians."""
    total = 0
    for release, count in trees.releases(event):
        one = trees.resolve_sampling(release)
        if isinstance(one, _OF_COHORTS):
            count, one = count * getattr(one, "rounds", 1), one.round_event
        total += count * _is_replaced(one)
    return total


def _with_gaussians(
    event: dp_accounting.DpEvent,
    gaussian_of: Callable[[events.RdpDpEvent, int, int], dp_accounting.GaussianDpEvent],
) -> Iterator[tuple[dp_accounting.DpEvent, int]]:
    """`trees.releases` with a (sampled) Gaussian for each that is replaced.

    `gaussian_of` maps such a release, without its sampling, the number of times that it
    is composed, and the number of consecutive ones that share a clock, or 0 in a cohort
    of a fixed size, to the Gaussian.
    """
    for release, count in trees.releases(event):
        release = trees.resolve_sampling(release)
        if isinstance(release, _OF_COHORTS):
            one = release.round_event
            if _is_replaced(one) and getattr(one, "sampling_probability", 1.0) == 1:
                is_fixed = isinstance(release, gaussian.FixedSizeDpEvent)
                times = count * getattr(release, "rounds", 1)
                plain = gaussian_of(one, times, 0 if is_fixed else 1)
                release = attr.evolve(release, round_event=plain)
        elif _is_replaced(release):
            q = getattr(release, "sampling_probability", 1.0)
            # Unsampled releases share one clock.
            release = gaussian_of(release, count, count if q == 1 else 1)
            if q < 1:
                release = dp_accounting.PoissonSampledDpEvent(q, release)
        yield release, count


def _stopped(event: csgm.SparsifiedDpEvent, count: int, delta: float) -> float:
    """The V* of consecutive releases that is exceeded with the probability delta."""
    scale = max(event.noise_multiplier * event.keep_fraction, 1e-150)
    time = (event.linf_ratio / scale) * (event.linf_ratio / scale)
    full = event.full_coordinates * count
    return clock_bound(event.keep_fraction, time, full, delta)


def _between_clients(
    stand: Callable[[float], dominating_gaussian.DominatingGaussian], delta: float
) -> dominating_gaussian.DominatingGaussian:
    """A Gaussian that dominates the replacement of one client's vector by another's.

    With F(a) = Phi(Phi^-1(a) + V^(1/2)) a test has at most the power F(level) + e of
    either vector against none, e the probability of the clock, or a tail; and so at
    most F(F(level)) + e + F(e) of one against the other (docs/privacy/fixed_size.md).

    Args:
      stand: Maps a delta to the dominating Gaussian of one vector against none.
      delta: Bound on e + F(e), greater than 0.
    """
    for part in 10.0 ** -np.arange(1, 60):
        dominating = stand(max(delta * part, 1e-300))
        if not dominating.clock < math.inf or delta * part < 1e-300:
            break
        # A thousandth is for the tails, on both sides.
        e = delta * part * 1.001
        shift = math.sqrt(dominating.clock)
        tails = dominating.distance + special.ndtr(
            special.ndtri(dominating.distance) + shift
        )
        power = special.ndtr(special.ndtri(e) + shift)
        if tails <= delta * part * 1e-3 and (e + power) * (1 + 1e-9) <= delta:
            return dominating
    return dominating_gaussian.DominatingGaussian(math.inf, 0.0)


def is_of_gaussians(event: dp_accounting.DpEvent) -> bool:
    """Whether a tree holds only Gaussians and releases that one can dominate."""
    alike = _with_gaussians(event, lambda *_: dp_accounting.GaussianDpEvent(1.0))
    return gaussian.gaussian_parts(alike) is not None


def _dominating_parts(
    event: dp_accounting.DpEvent, delta: float
) -> Optional[tuple[Counter[gaussian.Part], float]]:
    """The Gaussians that dominate a tree, and their distance.

    Clocks take the part `_SHARE` of delta, and the distance is that of
    `DominatingGaussian`, of all releases together. None if no release of the tree is
    replaced, or it holds any other event.
    """
    count = _replaced_releases(event)
    if not count:
        return None
    # The number of releases is rounded up to a power of two, so that a run's rounds,
    # counted one by one, seldom need another Gaussian.
    share = _SHARE * delta / 2 ** math.ceil(math.log2(count))
    distance = 0.0

    def gaussian_of(
        release: events.RdpDpEvent, times: int, whole: int
    ) -> dp_accounting.GaussianDpEvent:
        nonlocal distance
        if not getattr(release, "noise_multiplier", 1.0):
            return dp_accounting.GaussianDpEvent(0.0)
        count_of_clock = max(whole, 1)

        def stand(part: float) -> dominating_gaussian.DominatingGaussian:
            if not isinstance(release, csgm.SparsifiedDpEvent):
                return dominating_gaussian.dominating_gaussian(
                    release, part, count_of_clock
                )
            clock = _stopped(release, count_of_clock, part) / count_of_clock
            return dominating_gaussian.DominatingGaussian(clock, 0.0)

        if whole:
            dominating = stand(whole * share)
            distance += times * dominating.distance
        else:
            dominating = _between_clients(stand, share)
        return dp_accounting.GaussianDpEvent(max(dominating.clock, 1e-300) ** -0.5)

    parts = gaussian.gaussian_parts(_with_gaussians(event, gaussian_of))
    return None if parts is None else (parts, distance)


def _largest_epsilon(distance: float, delta: float) -> float:
    """The largest epsilon at which the distance takes no more than its share of delta.

    Releases within D of (epsilon, delta)-private ones add (1 + e^epsilon) D.
    """
    if not distance:
        return math.inf
    return math.log(_TAIL_SHARE) + math.log(delta) - math.log(distance) - 1


def dominating_curves(
    event: dp_accounting.DpEvent, delta: float
) -> Optional[tuple[gaussian.EpsilonCurves, float]]:
    """Curves of the Gaussians that stand for releases of a tree, and their reach.

    The curves are at the rest of `delta` that clocks and tails leave; an epsilon of
    them above the reach is none. None if nothing that drops coordinates or adds
    integers is in the tree, or it holds any other event.
    """
    if (stands := _dominating_parts(event, delta)) is None:
        return None
    parts, distance = stands
    rest = (1 - _SHARE - _TAIL_SHARE) * delta
    return gaussian.EpsilonCurves(parts, rest), _largest_epsilon(distance, delta)


def losses(
    event: dp_accounting.DpEvent, delta: float, step: float
) -> Optional[tuple[privacy_loss.LossDistribution, privacy_loss.LossDistribution]]:
    """`gaussian.tight_losses` of a tree, or of Gaussians that dominate its releases.

    In the latter case the shares of delta for clocks and tails are at infinity, and so
    are losses that are so large that tails would take more.

    Args:
      event: The tree of events, normalised.
      delta: The delta at which the losses are the most accurate, in (0, 1).
      step: The step of the losses' grid, above 0.

    Returns:
      The losses of removing and of adding a client; None if the tree holds any other
      event, or one without noise.
    """
    parts = gaussian.gaussian_parts(trees.releases(event))
    if parts is not None:
        return gaussian.tight_losses(parts, delta, step)
    if (stands := _dominating_parts(event, delta)) is None:
        return None
    directions = gaussian.tight_losses(stands[0], delta, step)
    top = _largest_epsilon(stands[1], delta)
    if directions is None or top < 0:
        return None
    remove, add = (side.worse(CHARGED_SHARE * delta, top) for side in directions)
    return remove, add
