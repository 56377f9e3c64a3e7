# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hockey-sticks of masked coordinates, by the vector with most of them at their bound.

    run = ExtremeRun(list(trees.releases(event)), delta)
    run.epsilon(delta)

That vector is the worst for every payoff whose curvature changes slowly over log x, x
the likelihood ratio. A mean of hockey-sticks at thresholds k e^u, with E e^u = 1, is
such a payoff, and at least the one at k. So delta of any vectors is at most the mean of
delta at epsilon + u of the extreme one: docs/privacy/extreme_vector.md. With

  G(u) = e^(A u), then e^(u / 2) cos(w u), then e^(-b u), joined smoothly,

w^2 = 7/4 + 2b, u has the density e^-u G(u), moved and scaled. A is a whole number of at
least 2, and b the largest with E[X^A k(p)] >= 0 for a coordinate at its bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from dpfl.accounting import csgm, gaussian, privacy_loss

# Values of A that are tried; of these the best is taken at each epsilon.
_POWERS = (2, 3, 4, 5, 6, 8, 10, 14, 20)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(200)
# Allowance for the quadrature's rounding, and for that of b; and for cells' masses.
_ROUNDING, _OF_MASSES = 1e-9, 1e-12
# The step of losses and of thresholds.
_STEP, _CELL = 2.5e-4, 2e-3
# Thresholds beyond these have the deltas of the ends.
_LOWEST, _HIGHEST = -6.0, 25.0
_LARGEST = 60.0
# The share of delta for tails of a single release's loss.
_TAIL_SHARE = 1e-4

Losses = tuple[privacy_loss.LossDistribution, privacy_loss.LossDistribution]


def largest_b(keep: float, time: float, power: int) -> float:
    """The largest b with which the extreme vector is the worst; maybe below 0.

    Args:
      keep: gamma, in (0, 1).
      time: c, (a coordinate's bound / noise std)^2, above 0.
      power: A, at least 2.
    """
    i = np.arange(power - 1.0)
    weights = special.gammaln(power - 1) - special.gammaln(i + 1)
    weights += (i + 2) * (i + 1) * time / 2 - special.gammaln(power - 1 - i)
    weights += (power - 2 - i) * math.log1p(-keep) + i * math.log(keep)
    weights = special.softmax(weights)
    places = (i[:, None] + 1.5) * time + math.sqrt(time) * _NODES
    p = special.expit(special.logit(keep) + places)
    nodes = _WEIGHTS / np.sum(_WEIGHTS)
    first, second = (float(weights @ (power_of_p @ nodes)) for power_of_p in (p, p * p))
    return (1 - 4 * first + 2 * second) / (2 * first - second) - _ROUNDING


def thresholds(power: int, b: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells of u: their edges, and the masses of u and of e^u in and outside of them.

    Returns:
      Edges [m + 1], and two arrays [m + 2] of sum 1: below, in the cells, above.
    """
    w = math.sqrt(1.75 + 2 * b)
    first, last = -math.atan((power - 0.5) / w) / w, math.atan((b + 0.5) / w) / w

    def up_to(u: np.ndarray, shift: int) -> np.ndarray:
        """The integral of e^(-shift u) G(u) up to u."""
        s = 0.5 - shift

        def middle(v: np.ndarray) -> np.ndarray:
            return (
                np.exp(s * v)
                * (s * np.cos(w * v) + w * np.sin(w * v))
                / (s * s + w * w)
            )

        ends = np.array([first, last])
        at_first, at_last = np.exp(s * ends) * np.cos(w * ends)
        left = np.exp((power - shift) * np.minimum(u - first, 0)) / (power - shift)
        right = -np.expm1(-(b + shift) * np.maximum(u - last, 0)) / (b + shift)
        inside = middle(np.clip(u, first, last)) - middle(ends[0])
        return at_first * left + inside + at_last * right

    edges = np.arange(_LOWEST, _HIGHEST, _CELL)
    wide = np.concatenate([edges, [np.inf]])
    sums = [up_to(wide, shift) for shift in (1, 0)]
    masses, means = (np.diff(np.append(0, each)) / each[-1] for each in sums)
    return edges - math.log(sums[1][-1] / sums[0][-1]), masses, means


def release_losses(
    event: csgm.SparsifiedDpEvent, delta: float
) -> tuple[Losses, float, float]:
    """The losses of the extreme vector in one release, its clients sampled.

    Args:
      event: The release, with noise and dropped coordinates.
      delta: The delta at which they are the most accurate.

    Returns:
      The losses of removing and of adding, and the time and number of coordinates at
      their bound.
    """
    keep, full = event.keep_fraction, event.full_coordinates
    time = (event.linf_ratio / (event.noise_multiplier * keep)) ** 2
    whole = math.floor(full)
    coordinates = [(time, whole), ((full - whole) * time, 1)]
    pairs = [
        (privacy_loss.sampled_gaussian(keep, t**-0.5, _STEP), n)
        for t, n in coordinates
        if n and t > 1e-12 * time
    ]
    remove, add = (
        privacy_loss.composed([(pair[side], n) for pair, n in pairs], delta)
        for side in (0, 1)
    )
    q = getattr(event, "sampling_probability", 1.0)
    if q == 1:
        return (remove, add), time, full
    return _sampled(remove, add, q), time, full


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
    losses = np.concatenate(
        [
            np.log1p(q * np.expm1(-below)),
            [math.log1p(-q)],
            np.log1p(q * np.expm1(above)),
        ]
    )
    without = np.concatenate([without, [add.infinite], given * np.exp(-above)])
    given = without * np.exp(losses)
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


class ExtremeRun:
    """Bounds on the hockey-sticks of a run, from those of its extreme vectors."""

    def __init__(
        self, releases: Sequence[tuple[csgm.SparsifiedDpEvent, int]], delta: float
    ):
        """Composes the extreme vectors' losses.

        Args:
          releases: Masked releases, with the number of each.
          delta: The delta at which they are the most accurate.
        """
        parts = []
        bounds = dict.fromkeys(_POWERS, math.inf)
        self._is_exact = True
        total = sum(n for _, n in releases)
        for event, n in releases:
            losses, time, full = release_losses(event, _TAIL_SHARE * delta / total)
            parts.append((losses, n))
            if full < event.dimension:
                self._is_exact = False
                for power in _POWERS:
                    b = largest_b(event.keep_fraction, time, power)
                    bounds[power] = min(bounds[power], b)
        remove, add = (
            privacy_loss.composed([(losses[side], n) for losses, n in parts], delta)
            for side in (0, 1)
        )
        self._sides = remove.of_one(), add.of_one()
        self._bounds = {power: b for power, b in bounds.items() if b > 0}

    def epsilon(self, delta: float) -> float:
        """The least epsilon of at least 0 at a delta; maybe infinite."""
        if self._is_exact:
            return max(side.epsilon(delta) for side in self._sides)
        remove, add = (side.profile() for side in self._sides)

        def at(
            own: gaussian.Profile, other: gaussian.Profile, epsilons: np.ndarray
        ) -> np.ndarray:
            """Deltas at epsilons of any sign; those below 0 are the other side's."""
            less = np.exp(np.minimum(epsilons, 0))
            return np.where(
                epsilons < 0,
                1 - less + less * other(np.maximum(-epsilons, 0)),
                own(np.maximum(epsilons, 0)),
            )

        result = [math.inf, math.inf]
        for power, b in self._bounds.items():
            edges, masses, means = thresholds(power, b)

            def removing(epsilon: float) -> float:
                known = at(remove, add, epsilon + edges)  # noqa: B023
                return float(masses[0] + masses[1:] @ known)  # noqa: B023

            def adding(epsilon: float) -> float:
                known = at(add, remove, epsilon - edges)  # noqa: B023
                return float(means[:-1] @ known + means[-1])  # noqa: B023

            for side, delta_of in enumerate((removing, adding)):
                result[side] = _least(delta_of, delta, result[side])
        return max(result)


def _least(delta_of: Callable[[float], float], delta: float, most: float) -> float:
    """The least epsilon with at most this delta, rounded up; `most` if it is less."""
    low, high, goal = 0.0, min(most, _LARGEST), delta * (1 - _ROUNDING) - _OF_MASSES
    if delta_of(high) > goal:
        return most
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if delta_of(middle) <= goal:
            high = middle
        else:
            low = middle
    return high
