# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy losses of masked coordinates, by the vector with most of them at their bound.

    remove, add = losses(list(trees.releases(event)), delta)
    max(remove.epsilon(delta), add.epsilon(delta))

That vector is the worst for every payoff whose curvature changes slowly over log x, x
the likelihood ratio. A mean of hockey-sticks at thresholds k e^u, with E e^u = 1, is
such a payoff, and at least the one at k. So any vectors cost no more than the extreme
ones and one further loss -u: docs/privacy/extreme_vector.md. With

  G(u) = e^(A u), then e^(u / 2) cos(w u), then e^(-b u), joined smoothly,

w^2 = 7/4 + 2b, u has the density e^-u G(u), moved and scaled. A is at least 2, and b
the largest that Theorem 3 of the page allows for a coordinate at its bound.

All rounding is upwards: masses between two points of a grid are moved to both so that
both laws' are kept, a spread of the likelihood ratio that raises every convex function
of it, whatever the grid's step is. Tails have infinite losses.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional

import numpy as np
from scipy import special

from dpfl.accounting import bisection, csgm, privacy_loss

# Values of A that are tried, from above, until epsilon rises.
_POWERS = (20.0, 17.0, 14.0, 12.0, 10.0, 8.0, 7.0, 6.0, 5.5, 5.0, 4.5, 4.25, 4.0) + (
    *(3.75, 3.5, 3.25, 3.0, 2.75, 2.5, 2.25, 2.0),
)
# Cells of a standard normal, and places in each: those of Gauss and Legendre, and its
# end. Sums differ from integrals by less than 1e-11 of those of absolute values.
_CELL, _FARTHEST_CELL, _FARTHEST_END = 0.1, 12.0, 8.0
_PLACES, _WEIGHTS = (x / 2 for x in np.polynomial.legendre.leggauss(6))
_LONGEST = 16.0
# The longest time that a grid of losses has room for.
_MOST_TIME = 100.0
# Allowances: of the condition, of its numbers.
_ROUNDING = 1e-9
# The step of losses.
_STEP = 2.5e-4
# A larger b leaves thresholds of a spread that does not count.
_LARGEST_B = 50.0
# Thresholds' tails, over delta, and the most that they may reach for it.
_TAIL, _FARTHEST = 1e-6, 60.0
# The share of delta for tails of a single release's loss.
_TAIL_SHARE = 1e-4
# K is rounded up by this share, and its remainder to at least this.
_OF_K, _LEAST_REST = 1e-12, 1e-6

Losses = tuple[privacy_loss.LossDistribution, privacy_loss.LossDistribution]


def largest_b(keep: float, time: float, power: float) -> float:
    """The largest b with which the extreme vector is the worst; -1 if there is none.

    It is found by bisection, as all smaller ones are allowed, for conditions at the
    longest time (Theorem 3 of the page): K, and S, L and R at any end of a cell.

    Args:
      keep: gamma, in (0, 1).
      time: c, (a coordinate's bound / noise std)^2, above 0.
      power: A, at least 2.
    """
    time = max(time, _ROUNDING) * (1 + _ROUNDING)
    if not (power >= 2 and keep < 1 and time <= _LONGEST):
        return -1.0
    root = math.sqrt(time)
    starts = np.arange(0, power * root + _FARTHEST_CELL, _CELL)
    z = starts[:, None] + _CELL * np.append(0.5 + _PLACES, 1)
    ahead, back = (_at(keep, root, place) for place in (z, -z))
    growth = ahead.log_density + power * ahead.log_x
    growth = np.exp(growth - np.max(growth))
    dropped = special.expit(-special.logit(keep) - root * z)
    steep, bend = dropped * (1 + (2 * power - 3) * ahead.p), ahead.p**2
    rest = dropped[:, -1]
    at_ends, both = 2 / root * rest, ahead.p[:, -1] + back.p[:, -1]
    least_slope = 2.5 + 3 * rest**2 / (1 + rest) - _ROUNDING
    is_near = z[:, -1] <= _FARTHEST_END

    def integrals(values: np.ndarray) -> np.ndarray:
        """Integrals over cells of z, less an allowance."""
        values = values[:, :-1] - _ROUNDING * np.abs(values[:, :-1])
        return values @ (_CELL * _WEIGHTS)

    def is_allowed(b: float) -> bool:
        if 1 - (2 + b) * keep * (2 - keep) < 0:
            return False
        forward, backward = (np.exp(x.log_density - b * x.log_x) for x in (ahead, back))
        left = integrals(forward * (1 - (2 + b) * ahead.found))
        left += integrals(backward * (1 - (2 + b) * back.found))
        right = integrals(growth * (steep - (1 + b) * bend))
        right = np.append(np.cumsum(right[:0:-1])[::-1], -math.inf)
        slack = (
            np.cumsum(left) - forward[:, -1] * at_ends,
            right + growth[:, -1] * at_ends,
            least_slope - (2 + b) * both,
        )
        return bool(np.any(np.min(slack, axis=0)[is_near] > 0))

    if not is_allowed(0.0):
        return -1.0
    return bisection.bisected(is_allowed, 0.0, _LARGEST_B, rtol=_ROUNDING)[0]


class _Coordinate(NamedTuple):
    """A coordinate at places of log w, float64 [cells, places] each.

    Attributes:
      p: Its posterior that it was kept.
      found: p (2 - p).
      log_x: Log of its ratio X.
      log_density: Log of the density times (p / gamma)^2.
    """

    p: np.ndarray
    found: np.ndarray
    log_x: np.ndarray
    log_density: np.ndarray


def _at(keep: float, root: float, z: np.ndarray) -> _Coordinate:
    log_w = root * z
    log_x = np.logaddexp(math.log1p(-keep), math.log(keep) + log_w)
    p = special.expit(special.logit(keep) + log_w)
    return _Coordinate(p, p * (2 - p), log_x, 1.5 * log_w - 2 * log_x - z * z / 2)


def threshold_losses(power: float, b: float, tail: float) -> Losses:
    """The losses -u: of 'with', where u has its law, and of 'without', where e^u has.

    Args:
      power: A, at least 2.
      b: Above 0.
      tail: The mass that may be lost to infinity at either end.
    """
    w = math.sqrt(1.75 + 2 * b)
    ends = np.array([-math.atan((power - 0.5) / w) / w, math.atan((b + 0.5) / w) / w])

    def masses(v: np.ndarray, shift: int) -> np.ndarray:
        """Integrals of e^(-shift v) G(v) above, between and below falling places."""
        s = 0.5 - shift
        at_ends = np.exp(s * ends) * np.cos(w * ends) / (power - shift, b + shift)
        left = at_ends[0] * np.exp((power - shift) * np.minimum(v - ends[0], 0))
        right = at_ends[1] * np.exp(-(b + shift) * np.maximum(v - ends[1], 0))
        inside = np.clip(v, *ends)
        middle = np.exp(s * inside) * (s * np.cos(w * inside) + w * np.sin(w * inside))
        # Differences of each piece by itself, so that tails are accurate.
        cells = np.diff(right) - np.diff(left) - np.diff(middle) / (s * s + w * w)
        return np.concatenate([right[:1], np.maximum(cells, 0), left[-1:]])

    of_all = [float(np.sum(masses(ends[::-1], shift))) for shift in (0, 1)]
    move = math.log(of_all[0] / of_all[1])
    reach = -math.log(tail)
    lowest = ends[0] - min(reach / (power - 1), _FARTHEST)
    highest = ends[1] + min(reach / b, _FARTHEST)
    first, last = (move - highest) / _STEP, (move - lowest) / _STEP
    grid = _STEP * np.arange(math.floor(first), math.ceil(last) + 1)
    without, given = (masses(move - grid, shift) / of_all[shift] for shift in (0, 1))
    return privacy_loss.on_grid(given, without, grid, _STEP)


def _coordinates(event: csgm.SparsifiedDpEvent) -> float:
    """K, rounded up: one that is whole but for float64 is whole."""
    return min(event.full_coordinates * (1 + _OF_K), float(event.dimension))


def release_losses(event: csgm.SparsifiedDpEvent, delta: float) -> tuple[Losses, float]:
    """The losses of the extreme vector in one release, its clients sampled.

    Args:
      event: The release, with noise and dropped coordinates.
      delta: The delta at which they are the most accurate.

    Returns:
      The losses of removing and of adding, and the time of coordinates at their bound.

    Raises:
      TooManyLossesError: noise is too small.
    """
    keep, full = event.keep_fraction, _coordinates(event)
    with np.errstate(over="ignore", divide="ignore", under="ignore"):
        root = np.float64(event.linf_ratio) / (event.noise_multiplier * keep)
        time = float(np.square(root))
    if not 1e-300 < time <= _MOST_TIME:
        raise privacy_loss.TooManyLossesError(f"a coordinate's time is {time:g}")
    whole = math.floor(full)
    rest = full - whole
    counts = {time: whole, max(rest, _LEAST_REST) * time: math.ceil(rest)}
    pairs = [
        (privacy_loss.sampled_gaussian(keep, t**-0.5, _STEP), n)
        for t, n in counts.items()
        if n
    ]
    remove, add = (
        privacy_loss.composed([(pair[side], n) for pair, n in pairs], delta).of_one()
        for side in (0, 1)
    )
    q = getattr(event, "sampling_probability", 1.0)
    return (remove, add) if q == 1 else _sampled(remove, add, q), time


def _positive(
    losses: privacy_loss.LossDistribution,
) -> tuple[np.ndarray, np.ndarray]:
    """The losses above 0 and their masses."""
    first = max(0, 1 - losses.low)
    masses = losses.masses[first:]
    return losses.step * (losses.low + first + np.arange(masses.size)), masses


def _sampled(
    remove: privacy_loss.LossDistribution,
    add: privacy_loss.LossDistribution,
    q: float,
) -> Losses:
    """The losses where the client joins with probability q.

    Those above 0 are known from `remove`, those below from `add`; what is left has a
    loss of 0.
    """
    step = remove.step
    (above, given), (below, without) = _positive(remove), _positive(add)
    # Losses above 700 overflow as ratios.
    with np.errstate(under="ignore", divide="ignore"):
        losses = np.concatenate(
            [
                np.log1p(q * np.expm1(-below)),
                [math.log1p(-q)],
                np.logaddexp(math.log1p(-q), np.log(q) + above),
            ]
        )
        joined = np.concatenate([without * np.exp(-below), [0.0], given])
        without = np.concatenate([without, [add.infinite], given * np.exp(-above)])
    given = (1 - q) * without + q * joined
    rest = 1 - max(np.sum(given) + q * remove.infinite, np.sum(without))
    losses, given, without = (
        np.append(x, y) for x, y in ((losses, 0.0), (given, rest), (without, rest))
    )
    given, without = np.maximum(given, 0), np.maximum(without, 0)
    low = math.floor(np.min(losses) / step) - 1
    grid = step * np.arange(low, math.ceil(np.max(losses) / step) + 2)
    cells = np.searchsorted(grid, losses, side="right")
    given, without = (np.bincount(cells, x, grid.size + 1) for x in (given, without))
    given[-1] += q * remove.infinite
    return privacy_loss.on_grid(given, without, grid, step)


def _thresholds(
    power: float, coordinates: Sequence[tuple[float, float]], delta: float
) -> Optional[Losses]:
    """Losses of the random threshold that all of the coordinates allow, if any."""
    b = min(largest_b(keep, time, power) for keep, time in coordinates)
    return threshold_losses(power, b, _TAIL * delta) if b > 0 else None


def _least(
    run: privacy_loss.LossDistribution,
    side: int,
    thresholds: Callable[[float], Optional[Losses]],
    delta: float,
) -> Optional[privacy_loss.LossDistribution]:
    """A run's losses with the threshold of the largest power before epsilon rises."""
    best, least = None, math.inf
    for pair in map(thresholds, _POWERS):
        if pair is None:
            continue
        found = privacy_loss.composed([(run, 1), (pair[side], 1)], delta).of_one()
        epsilon = found.epsilon(delta)
        if epsilon > least:
            break
        best, least = found, epsilon
    return best


def losses(
    releases: Sequence[tuple[csgm.SparsifiedDpEvent, int]], delta: float
) -> Optional[Losses]:
    """Losses of removing and of adding a client that bound those of any vectors.

    Args:
      releases: Masked releases, each with noise, and the number of each.
      delta: The delta at which they are the most accurate.

    Returns:
      The losses; None where the theorem has no A for the releases.

    Raises:
      TooManyLossesError: noise is too small.
    """
    parts, random = [], []
    total = sum(n for _, n in releases)
    for event, n in releases:
        pair, time = release_losses(event, _TAIL_SHARE * delta / total)
        parts.append((pair, n))
        if _coordinates(event) < event.dimension:
            random.append((event.keep_fraction, time))
    run = [
        privacy_loss.composed([(pair[side], n) for pair, n in parts], delta).of_one()
        for side in (0, 1)
    ]
    # Where all coordinates may be at their bound no threshold is random.
    if not random:
        return run[0], run[1]
    smooth = functools.lru_cache(lambda power: _thresholds(power, random, delta))
    remove, add = (_least(run[side], side, smooth, delta) for side in (0, 1))
    return None if remove is None or add is None else (remove, add)
