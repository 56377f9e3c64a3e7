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

w^2 = 7/4 + 2b, u has the density e^-u G(u), moved and scaled. A is a whole number of at
least 2, and b the largest with E[X^A k(p)] >= 0 for a coordinate at its bound.

All rounding is upwards: masses between two points of a grid are moved to both so that
both laws' are kept, a spread of the likelihood ratio that raises every convex function
of it, whatever the grid's step is. Tails have infinite losses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Optional

import numpy as np
from scipy import special

from dpfl.accounting import csgm, privacy_loss

# Values of A that are tried; the one with the least epsilon is taken.
_POWERS = (2, 3, 4, 5, 6, 8, 10, 14, 20)
# Equal steps over a standard normal. The integrand is analytic, and at most 1 times the
# density where |Im| <= 0.39, at times of up to `_LONGEST`, so that the sums differ from
# the integrals by less than 4 exp(0.39^2 / 2 - 2 pi 0.39 / 0.05) < 1e-20.
_NODES = 0.05 * np.arange(-200, 201)
_WEIGHTS = special.softmax(-_NODES * _NODES / 2)
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


def largest_b(keep: float, time: float, power: int) -> float:
    """The largest b with which the extreme vector is the worst; maybe below 0.

    The condition need be checked at the longest time alone (Theorem 3 of the page). It
    is a mixture over m of E[1 - 4p + 2p^2 - b (2p - p^2)], logit p normal of the mean
    logit(keep) + (m - 1/2) time and the variance time.

    Args:
      keep: gamma, in (0, 1).
      time: c, (a coordinate's bound / noise std)^2, above 0.
      power: A, whole, at least 2.
    """
    keep, time = keep * (1 + _ROUNDING), time * (1 + _ROUNDING)
    if keep >= 1 or time > _LONGEST:
        return -1.0
    i = np.arange(power - 1.0)
    weights = special.gammaln(power - 1) - special.gammaln(i + 1)
    weights += (i + 2) * (i + 1) * time / 2 - special.gammaln(power - 1 - i)
    weights += (power - 2 - i) * math.log1p(-keep) + i * math.log(keep)
    weights = special.softmax(weights)
    places = (i[:, None] + 1.5) * time + math.sqrt(time) * _NODES
    p = special.expit(special.logit(keep) + places)
    first, second = (
        float(weights @ (power_of_p @ _WEIGHTS)) for power_of_p in (p, p * p)
    )
    return (1 - 4 * first + 2 * second) / (2 * first - second) - _ROUNDING


def threshold_losses(power: int, b: float, tail: float) -> Losses:
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
    parts, bounds = [], dict.fromkeys(_POWERS, math.inf)
    total = sum(n for _, n in releases)
    for event, n in releases:
        pair, time = release_losses(event, _TAIL_SHARE * delta / total)
        parts.append((pair, n))
        if _coordinates(event) < event.dimension:
            for power in _POWERS:
                b = largest_b(event.keep_fraction, time, power)
                bounds[power] = min(bounds[power], b)
    run = [
        privacy_loss.composed([(pair[side], n) for pair, n in parts], delta).of_one()
        for side in (0, 1)
    ]
    # Where all coordinates may be at their bound no threshold is random.
    smooth = [
        threshold_losses(power, min(b, _LARGEST_B), _TAIL * delta)
        for power, b in bounds.items()
        if 0 < b < math.inf
    ]
    if math.inf not in bounds.values():
        if not smooth:
            return None
        run = [
            min(
                (
                    privacy_loss.composed(
                        [(run[side], 1), (pair[side], 1)], delta
                    ).of_one()
                    for pair in smooth
                ),
                key=lambda found: found.epsilon(delta),
            )
            for side in (0, 1)
        ]
    remove, add = run
    return remove, add
