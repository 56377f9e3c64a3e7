# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""A Gaussian release that stands for rounded vectors under summed integer noise.

The sum f of n shares N_Z(0, sigma^2) is, up to a factor exp(+-w) in each probability,
what a draw of N_Z(y, r^2) about y ~ N(0, s^2 - r^2) gives, s^2 = n sigma^2, whatever
the whole shift. So the release is that of Gaussian noise, with shifts k_j that are
coordinates x_j rounded at random, and its likelihood ratio is a martingale with the
clock V = int sum_j m_j^2 over the time tau = 1/(s^2 - r^2), m_j the posterior mean of
k_j. As for masked coordinates (`stopped_martingale`) a Gaussian of noise multiplier
V*^(-1/2) stands for it, but for P(V > V*); and by a supersolution

  P(V > V*) <= exp(v c^2 - a V*),    log E exp(a int m^2) <= v x^2,

for a vector of L2 norm c in steps. `docs/privacy/rounding.md` has the proofs.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import dp_accounting
import numpy as np

from dpfl.accounting.integer import noise_events, summed_noise

# Exponents a of Chernoff's bound, as multiples of 1/tau.
_EXPONENTS = np.geomspace(0.01, 1e5, 141)
# Terms of the supersolution for coordinates of up to a step, and steps in time.
_TERMS = 4
_STEPS = 64
_ITERATIONS = 12
# Cells of the integral for the sum's distance, of which each is bounded by its ends.
_CELLS = 4000
# Covers float64's rounding of a clock, which is a sum of numbers above 0.
_ROUNDING = 1e-9
# The integers that are drawn about a Gaussian are no narrower than this, in steps.
_LEAST_WIDTH = 0.6


class StandIn(NamedTuple):
    """What stands for a release.

    Attributes:
      clock: V*, the Gaussian's noise multiplier to the power -2.
      distance: w: it is the stand-in for one that has each probability within a factor
        exp(+-w), so that epsilon is larger by 2 w, and delta by a factor exp(w).
    """

    clock: float
    distance: float


@functools.lru_cache(maxsize=256)
def distance_of_shares(noise: summed_noise.DiscreteGaussianNoise) -> float:
    """A bound on |log f(k)/N_Z(0, n sigma^2)(k)| for all integers k.

    f(k) exp(k^2/(2 s^2)) is a constant times 1 +- eta, where

      eta = s/sqrt(2 pi) int exp(-s^2 theta^2/2) ((1 + a(theta))^n - 1) d theta,
      a(theta) = 2 sum_j exp(-2 pi^2 sigma^2 j^2) cosh(2 pi j sigma^2 theta),

    over |theta| <= pi, and what exp(-s^2 theta^2/2) has beyond. Infinite if eta is not
    below 1/2.
    """
    if noise.count == 1:
        return 0.0
    n, square, deviation = noise.count, noise.stddev**2, math.sqrt(noise.variance)
    middle = min(math.pi, 60.0 / deviation)
    ends = np.linspace(0.0, middle, _CELLS + 1)
    ends = np.append(ends, np.linspace(middle, math.pi, _CELLS + 1)[1:])
    low, high = ends[:-1], ends[1:]
    j = np.arange(1.0, 9.0)[:, None]
    # exp(-2 pi^2 sigma^2 (j^2 - j)) at the most, for |theta| <= pi.
    rise = 2 * math.pi * square * j * (high - math.pi * j)
    extra = np.sum(np.exp(rise) * (1 + np.exp(-4 * math.pi * square * j * high)), 0)
    extra += 4 * math.exp(-2 * math.pi**2 * square * 72)
    growth = n * np.log1p(extra) - np.square(deviation * low) / 2
    fall = -np.square(deviation * low) / 2
    with np.errstate(over="ignore", divide="ignore"):
        small = np.exp(fall) * np.expm1(np.minimum(n * np.log1p(extra), 1.0))
        terms = np.where(n * extra < 1, small, np.exp(growth))
    eta = 2 * float(np.sum(terms * (high - low))) * deviation / math.sqrt(2 * math.pi)
    eta = eta * (1 + 1e-9) + math.erfc(math.pi * deviation / math.sqrt(2))
    return 2 * math.atanh(eta) if eta < 0.5 else math.inf


def _distance_of_width(width: float) -> float:
    """Returns 2 atanh eps(r), r the width: how far rounded Gaussians are from N_Z."""
    tail = math.exp(-2 * (math.pi * width) ** 2)
    return 2 * math.atanh(2 * tail / (1 - tail**3))


def _width(distance: float) -> float:
    """Returns about the least r with `_distance_of_width` at most `distance`."""
    square = math.log(4.0 / distance) / (2 * math.pi**2) if distance > 0 else math.inf
    return max(math.sqrt(max(square, 0.0)) * (1 + 1e-4), _LEAST_WIDTH)


def _growth(a: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Returns F(a), of the terms a_i of p^(2i) and exponents; [terms, m], as `a`.

    What has a power above 2 * terms counts in the last one, by the largest value of
    p^(2e) (1-p)^2.
    """
    terms = a.shape[0]
    i = np.arange(1.0, terms + 1)[:, None]
    result = i * (2 * i - 1) * a
    result[0] += exponent
    weighted = i * a
    for j in range(terms):
        for k in range(terms):
            product = 2 * weighted[j] * weighted[k]
            over = j + k + 2 - terms
            if over > 0:
                product *= (over / (over + 1)) ** (2 * over) / (over + 1) ** 2
            result[min(j + k + 1, terms - 1)] += product
    return result


@functools.lru_cache(maxsize=256)
def _supersolution(terms: int, tau: float) -> np.ndarray:
    """Returns a_i with log E exp(a int m^2) <= sum a_i x^(2i), [terms, exponents].

    They are those of polygons a_i(t) with a_i(0) = 0 and slopes of at least F(a),
    for exponents of _EXPONENTS/tau. Infinite where none is found.
    """
    exponent, step = _EXPONENTS / tau, tau / _STEPS
    a = np.zeros((terms, exponent.size))
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_STEPS):
            end = a
            for _ in range(_ITERATIONS):
                end = (a + step * _growth(end, exponent)) * (1 + _ROUNDING)
            a = a + step * _growth(end, exponent)
            # The slope is F(end), and F rises: enough if the polygon stays below it.
            a = np.where(np.all(a <= end, axis=0), a, np.inf)
    return np.where(np.isfinite(a), a, np.inf)


def clock_bound(
    squared_norm: float, max_coordinate: float, tau: float, delta: float
) -> float:
    """A V* with P(V > V*) <= delta for vectors that are rounded at random.

    Args:
      squared_norm: c^2, bound on the sum of squares before rounding, in steps.
      max_coordinate: X, bound on the size of each, in steps.
      tau: The time, one over the variance of the Gaussian noise in squared steps.
      delta: Greater than 0.
    """
    best, log = math.inf, math.log(1 / delta)
    for terms in (1, _TERMS) if max_coordinate <= 1 else (1,):
        powers = max_coordinate ** (2 * np.arange(terms)[:, None])
        with np.errstate(over="ignore", invalid="ignore"):
            rate = np.sum(_supersolution(terms, tau) * powers, axis=0)
            found = (squared_norm * rate + log) * tau / _EXPONENTS
        best = min(best, float(np.min(found[np.isfinite(found)], initial=math.inf)))
    return best * (1 + _ROUNDING)


def is_known(event: dp_accounting.DpEvent) -> bool:
    """Whether `stand_in` has something: of discrete Gaussian noise, Skellam has not."""
    if isinstance(event, noise_events.WithClipCountDpEvent):
        return is_known(event.update) and is_known(event.count)
    return isinstance(event, noise_events.DistributedDiscreteGaussianDpEvent)


def stand_in(event: dp_accounting.DpEvent, delta: float, distance: float) -> StandIn:
    """What stands for a release of integers, sampling aside, but for a probability.

    A Poisson-sampled Gaussian stands for one with sampled clients. The clock is
    infinite where the noise of a share is so small that nothing stands for it.

    Args:
      event: One that `is_known`.
      delta: The probability, greater than 0.
      distance: What `StandIn.distance` may be, but for what the noise itself adds;
        greater than 0.
    """
    if isinstance(event, noise_events.WithClipCountDpEvent):
        update, count = (
            stand_in(part, delta / 2, distance / 2)
            for part in (event.update, event.count)
        )
        clock = (update.clock + count.clock) * (1 + _ROUNDING)
        return StandIn(clock, update.distance + count.distance)
    assert isinstance(event, noise_events.DistributedDiscreteGaussianDpEvent)
    noise, dimension = event.summed_noise, event.dimension
    width = _width(distance / dimension)
    rest = (noise.variance - width**2) * (1 - _ROUNDING)
    apart = dimension * (distance_of_shares(noise) + _distance_of_width(width))
    if rest <= 0 or not apart < math.inf:
        return StandIn(math.inf, 0.0)
    # The posterior mean of the whole vector is no longer than what rounding makes.
    clock = event.shift_budget / rest
    if event.bound == "exact":
        squared = (event.clip_norm / event.granularity) ** 2
        by_chance = clock_bound(squared, event.max_steps, 1 / rest, delta)
        clock = min(clock, by_chance)
    return StandIn(clock, apart)
