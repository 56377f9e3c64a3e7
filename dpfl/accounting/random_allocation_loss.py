# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy losses of clients that draw one round of an epoch in secret.

    if is_in_reach(z, rounds):
        remove, add = slot_gaussian(1 / rounds, z, rounds, step=1e-2)

With w_i the likelihood ratio of a round's Gaussian noise, were the client in it, that
of the first r rounds of an epoch of S slots is R = 1 - r/S + (1/S) sum_{i<=r} w_i. Both
directions' hockey-sticks are means of convex functions of R without the client, so
that they only grow where a mass is moved to two points, on either side of it, that
keep the mass and the mean. The law of the sum of n ratios is held on a grid that is
even in the logarithm, and added to itself: if two terms are d points apart, the
logarithm of their sum is a fixed distance above the larger one, and the mass goes to
the two points around it. Only positive numbers are added, so that tails are as accurate
as the rest. Mass far out is dropped, and counted as an infinite loss.

docs/privacy/random_allocation.md has the proofs.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import special

from dpfl.accounting import privacy_loss

# The grid's step over the standard deviation of a log-normal variable with the sum's
# variance. Epsilons are some 1e-3 above those of finer grids.
_STEP = 1 / 40
# Standard deviations at which a release is cut, and the mass at which a sum is.
_REACH = 9.5
_LEFT_OUT = 1e-20
# Limits of rounds and noise, beyond which a grid would be long, or so fine that
# rounding counts, or numbers overflow.
_MOST_ROUNDS = 2**20
_LEAST_STEP = 1e-9
_LARGEST_LOSS = 600.0
# Allowance for the rounding of float64 in masses: in all, and for each round.
_ROUNDING = 1e-10
_ROUNDING_OF_ROUND = 4e-15


class _Sum(NamedTuple):
    """The law, without the client, of a sum of likelihood ratios.

    Attributes:
      terms: The number of ratios.
      step: The step of the grid, which is even in the logarithm of the sum.
      low: The smallest logarithm is `low * step`.
      masses: Masses at `low * step`, `(low + 1) * step` and so on; float64 [n].
      lost: Bound on the probability of the dropped part.
      lost_mean: Bound on the sum's mean over the dropped part.
    """

    terms: int
    step: float
    low: int
    masses: np.ndarray
    lost: float
    lost_mean: float

    def logs(self) -> np.ndarray:
        """The logarithms of the sums; float64 [n]."""
        return self.step * (self.low + np.arange(self.masses.size))

    def trimmed(self) -> _Sum:
        """The law without ends of negligible mass, with the client or without."""
        means = self.masses * np.exp(self.logs())
        least = _LEFT_OUT, _LEFT_OUT * self.terms
        first = int(np.searchsorted(np.cumsum(self.masses), least[0]))
        beyond = int(np.searchsorted(np.cumsum(means[::-1]), least[1]))
        kept = slice(first, self.masses.size - beyond)
        lost, lost_mean = (
            float(np.sum(of[: kept.start]) + np.sum(of[kept.stop :]))
            for of in (self.masses, means)
        )
        return self._replace(
            low=self.low + first,
            masses=self.masses[kept],
            lost=self.lost + lost,
            lost_mean=self.lost_mean + lost_mean,
        )


def _step(z: float, terms: int) -> float:
    """The step of the grid for a sum of `terms` losses."""
    return _STEP * math.sqrt(math.log1p(math.expm1(z**-2.0) / terms))


def is_in_reach(z: float, rounds: int) -> bool:
    """Whether a grid exists for noise multiplier `z` and epochs of `rounds` rounds."""
    m = 1 / z
    if rounds > _MOST_ROUNDS or _REACH * m + 0.5 * m * m > _LARGEST_LOSS:
        return False
    return _step(z, rounds) >= _LEAST_STEP


def _one(z: float, step: float) -> _Sum:
    """The law of one ratio, exp(X/z - 1/(2 z^2)) of a standard normal X."""
    m = 1 / z
    low = math.floor((-_REACH * m - 0.5 * m * m) / step)
    logs = step * np.arange(low, math.ceil((_REACH * m + 0.5 * m * m) / step) + 1)
    edges = logs / m + 0.5 * m
    without, joined = (
        privacy_loss.normal_masses(edges),
        privacy_loss.normal_masses(edges - m),
    )
    above = joined * np.exp(-logs[:-1]) - without
    upper = np.clip(above / math.expm1(step), 0, without)
    masses = np.append(without - upper, 0.0)
    masses[1:] += upper
    lost = 2 * float(special.ndtr(-_REACH))
    return _Sum(1, step, low, masses, lost, lost)


def _moved(
    places: np.ndarray, masses: np.ndarray, step: float
) -> tuple[int, np.ndarray]:
    """Moves masses at rising places, in steps of a grid, to the points of the grid."""
    below = np.floor(places)
    upper = masses * (np.expm1((places - below) * step) / math.expm1(step))
    low = int(below[0])
    index = (below - low).astype(np.int64)
    moved = np.zeros(index[-1] + 2)
    moved[1:] += np.bincount(index, upper)
    moved[:-1] += np.bincount(index, masses - upper)
    return low, moved


def _added(left: _Sum, right: _Sum, parts: int) -> _Sum:
    """The law of the sum of two independent sums on one grid, on a finer grid.

    The grid's step is divided by `parts`. The sum of terms i and j is
    log(1 + exp(-|i - j| step)) above the larger one, in logarithms.
    """
    step = left.step / parts
    cell = math.expm1(step)
    # From this distance on, the sum is within the cell above the larger term.
    near = max(1, math.ceil(-math.log(cell) / left.step))
    low = max(left.low, right.low)
    end = max(left.low + left.masses.size, right.low + right.masses.size)
    out = np.zeros(parts * (end - low) + math.ceil(math.log(2) / step) + 3)
    for larger, smaller in ((left, right), (right, left)):
        _add_far(out[::parts], out[1::parts], larger, smaller, low, near, cell)
    apart = left.low - right.low
    # For equal laws, negative distances duplicate positive ones.
    least = 0 if left is right else max(1 - near, apart - right.masses.size + 1)
    distances = np.arange(least, min(near, apart + left.masses.size))
    rise = np.log1p(np.exp(-np.abs(distances) * left.step)) / step
    below = np.floor(rise)
    shares = np.expm1((rise - below) * step) / cell
    first = np.maximum(0, distances - apart)
    last = np.minimum(left.masses.size, right.masses.size + distances - apart)
    places = parts * (left.low - low + first + np.maximum(0, -distances))
    places += below.astype(np.int64)
    rows = zip(*(x.tolist() for x in (distances, shares, first, last, places)))
    for d, share, i, stop, place in rows:
        pairs = left.masses[i:stop] * right.masses[i + apart - d : stop + apart - d]
        if d and left is right:
            pairs *= 2
        upper = pairs * share
        beyond = place + parts * pairs.size
        out[place + 1 : beyond + 1 : parts] += upper
        pairs -= upper
        out[place:beyond:parts] += pairs
    return _Sum(
        left.terms + right.terms,
        *(step, parts * low, out),
        left.lost + right.lost,
        left.lost_mean
        + right.lost_mean
        + left.lost * right.terms
        + right.lost * left.terms,
    ).trimmed()


def _add_far(
    out: np.ndarray,
    above: np.ndarray,
    larger: _Sum,
    smaller: _Sum,
    low: int,
    near: int,
    cell: float,
) -> None:
    """Adds pairs at least `near` points apart to `out`, and to `above` one point up.

    The mass that goes up is linear in the smaller term, of which only the mean counts.
    """
    start = max(0, low - larger.low)
    masses, logs = larger.masses[start:], larger.logs()[start:]
    count = larger.low + start + np.arange(masses.size) - near - smaller.low + 1
    count = np.clip(count, 0, smaller.masses.size)
    means = smaller.masses * np.exp(smaller.logs())
    of_mass, of_mean = (
        np.concatenate([[0.0], np.cumsum(x)])[count] for x in (smaller.masses, means)
    )
    whole = masses * of_mass
    upper = np.minimum(masses * np.exp(-logs) * of_mean / cell, whole)
    place = larger.low + start - low
    above[place : place + masses.size] += upper
    out[place : place + masses.size] += whole - upper


@functools.lru_cache(maxsize=256)
def _sum_of(z: float, terms: int) -> _Sum:
    """The law of a sum of independent ratios."""
    if terms == 1:
        return _one(z, _step(z, 1))
    if terms % 2:
        before = _sum_of(z, terms - 1)
        return _added(before, _one(z, before.step), 1)
    half = _sum_of(z, terms // 2)
    total = _added(half, half, 2)
    # Moved to a step that changes gradually with the noise and the number of terms.
    step = _step(z, terms)
    low, masses = _moved(total.logs() / step, total.masses, step)
    return total._replace(step=step, low=low, masses=masses)


@functools.lru_cache(maxsize=64)
def slot_gaussian(
    q: float, z: float, rounds: int, step: float
) -> tuple[privacy_loss.LossDistribution, privacy_loss.LossDistribution]:
    """The losses of removing and of adding a client, rounded up.

    Args:
      q: The probability with which a round is the client's, at most 1/rounds.
      z: Noise std over L2 sensitivity, above 0 and `is_in_reach`.
      rounds: The number of the epoch's released rounds.
      step: The step of the losses' grid, above 0.
    """
    total = _sum_of(z, rounds)
    idle = max(0.0, 1 - rounds * q)
    ratios = idle + q * np.exp(total.logs())
    low, masses = _moved(np.log(ratios) / step, total.masses, step)
    masses *= 1 + _ROUNDING + _ROUNDING_OF_ROUND * rounds
    joined = masses * np.exp(step * (low + np.arange(masses.size)))
    lost = idle * total.lost + q * total.lost_mean
    remove = privacy_loss.LossDistribution(step, low, joined, lost)
    high = low + masses.size - 1
    return remove, privacy_loss.LossDistribution(
        step, -high, masses[::-1].copy(), total.lost
    )
