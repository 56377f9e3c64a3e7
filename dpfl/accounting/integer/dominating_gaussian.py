# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""A Gaussian that dominates rounded vectors under summed integer noise.

Let f be the law of the noise of a coordinate, even and log-concave, and z_k the normal
quantile of P(K < k). With h the largest z_k - z_(k-1), the pair (f shifted by whole
numbers >= 0 at random, f) is at most as easy to tell apart as (N(0, 1) shifted by h
times those, N(0, 1)): the test that rejects from k on has the level of the normal one
that rejects from z_k on, and no more power. So a release of integers is as private as
one of Gaussian noise of 1/h steps, in which coordinates x_j are rounded at random.

Its likelihood ratio is a martingale with the clock V = int sum_j m_j^2 over the time
h^2, m_j the posterior mean of coordinate j's shift. As for masked coordinates
(`gaussian_domination`) a Gaussian of noise multiplier V*^(-1/2) dominates it up to
P(V > V*), and by a supersolution

  P(V > V*) <= exp(v c^2 - s V*),    log E exp(s int m_j^2) <= v x_j^2,

for a vector of L2 norm c in steps. `docs/privacy/rounding.md` has the proofs.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import dp_accounting
import numpy as np
from scipy import special

from dpfl.accounting.integer import grid_numbers, noise_events, summed_noise
from dpfl.accounting.log_space import EPSILON

# Exponents s of Chernoff's bound, as multiples of 1/h^2.
_EXPONENTS = np.geomspace(0.1, 1e5, 61)
# Steps in time of the supersolution, and iterations for each.
_STEPS = 64
_ITERATIONS = 8
# Allowance for the rounding of sums and products of positive numbers in float64.
_ROUNDING = 1e-9
# Logs of the least tail whose quantile is compared, and of the far smaller least one
# that is summed.
_LEAST_LOG_TAIL, _LEAST_LOG = -600.0, -690.0
# Longest table of probabilities.
_MOST_INTEGERS = 1 << 20
# Variances of discrete Gaussian noise with a closed form, which costs 1e-6 at most and
# saves the table.
_WIDE_VARIANCES = 2e6, 1e30
# Bound on 1/density at the normal quantile, relative to the smaller tail.
_MILLS = 1.2534


class DominatingGaussian(NamedTuple):
    """A Gaussian that dominates a release, and its distance.

    Attributes:
      clock: V*, the Gaussian's noise multiplier to the power -2; infinite if there is
        none.
      distance: Total variation, with and without the client, between the release and
        the one that the Gaussian dominates: the noise's tails beyond the range of
        float64, or the error of a closed form.
    """

    clock: float
    distance: float


@functools.lru_cache(maxsize=16)
def _quantiles(noise: summed_noise.Noise) -> tuple[float, np.ndarray]:
    """An upper bound on h, and P(K >= k) for k from 0 to the last compared; [m].

    By symmetry z_(1-k) = -z_k, so that k >= 1 is enough. h is infinite if the table
    would be too long.
    """
    last = math.ceil(38 * math.sqrt(noise.variance)) + 16
    while last <= _MOST_INTEGERS:
        logs, errors = noise.log_pmf(last)
        if not logs[-1] > _LEAST_LOG:
            break
        last *= 2
    else:
        return math.inf, np.ones(1)
    with np.errstate(under="ignore"):
        tails = np.cumsum(np.exp(logs)[::-1])[::-1]
    # The part beyond the table is below a geometric series, by exp(-90) of a tail.
    kept = np.count_nonzero(tails >= math.exp(_LEAST_LOG_TAIL))
    tails = tails[:kept]
    relative = float(np.max(errors[np.isfinite(logs) & (logs > _LEAST_LOG)]))
    relative += EPSILON * (4 * logs.size + 2 * abs(_LEAST_LOG))
    z = -special.ndtri(tails[1:])
    if not z.size or not np.all(np.isfinite(z)) or not relative < 1e-3:
        return math.inf, tails
    steps = np.diff(np.concatenate([-z[:1], z]))
    allowed = 3 * _MILLS * relative + 64 * EPSILON * float(z[-1])
    return float(np.max(steps)) * (1 + EPSILON) + allowed, tails


def gaussian_shift(noise: summed_noise.Noise) -> float:
    """h: one step under the noise is at most a shift of h standard deviations.

    About 1/s (1 + 1/(24 s^2)) for discrete Gaussian noise of standard deviation s. From
    `_WIDE_VARIANCES` on it is that of N(0, s^2 - 4), of which the noise is a
    post-processing. It is infinite where it cannot be computed.
    """
    if _is_post_processing(noise):
        return 1 / math.sqrt(noise.variance - grid_numbers.COVER_VARIANCE)
    return _quantiles(noise)[0]


def _is_post_processing(noise: summed_noise.Noise) -> bool:
    """Whether the noise is wide, and practically a post-processed Gaussian."""
    least, most = _WIDE_VARIANCES
    return (
        isinstance(noise, summed_noise.DiscreteGaussianNoise)
        and noise.stddev >= summed_noise.WIDE_SHARE
        and least <= noise.variance <= most
    )


def _distance(noise: summed_noise.Noise, max_shift: int) -> float:
    """One coordinate's part of the distance; infinite if that is too much."""
    if _is_post_processing(noise):
        return 2 * grid_numbers.DRAW_DISTANCE
    # Outputs that lie further out, on either side, are merged into one.
    tails = _quantiles(noise)[1]
    beyond = tails.size - 1 - max_shift
    return 2 * float(tails[beyond]) if beyond >= 0 else math.inf


def _slopes(
    a: np.ndarray, b: np.ndarray, exponent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The least a' and b' for a p^2 + b p^4; [m] each.

    Powers above the fourth count in b, by the largest values of p^2 (1-p)^2, 1/16, and
    p^4 (1-p)^2, 16/729.
    """
    rise = 6 * b + 2 * a * a + a * b / 2 + (128 / 729) * b * b
    return exponent + a, rise


def _slope(
    a: np.ndarray, b: np.ndarray, exponent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `_slopes`, for a (k + p)^2 alone: the largest (1-p)^2 (a + 2 a^2 p^2)."""
    p = (1 + np.sqrt(np.maximum(1 - 4 / np.maximum(a, 4.0), 0.0))) / 4
    inside = np.square(1 - p) * (a + 2 * np.square(a * p))
    return exponent + np.maximum(a, inside) * (1 + _ROUNDING), b


@functools.lru_cache(maxsize=256)
def _supersolution(short: bool, time: float) -> tuple[np.ndarray, np.ndarray]:
    """a and b with log E exp(s int m^2) <= a x^2 + b x^4; [exponents] each.

    They end polygons from 0 with at least the necessary slopes, for the exponents s =
    _EXPONENTS/time. a is infinite where none is found, and b is 0 unless coordinates
    are `short`, of up to a step.
    """
    needed = _slopes if short else _slope
    with np.errstate(over="ignore", invalid="ignore"):
        exponent, step = _EXPONENTS / time, time / _STEPS
        a, b = np.zeros_like(exponent), np.zeros_like(exponent)
        for _ in range(_STEPS):
            ends = a, b
            for _ in range(_ITERATIONS):
                up = needed(*ends, exponent)
                ends = tuple(
                    (y + step * f) * (1 + _ROUNDING) for y, f in zip((a, b), up)
                )
            # Slopes are those at the ends, and rise: it is enough that a and b do not
            # pass these.
            up = needed(*ends, exponent)
            a, b = a + step * up[0], b + step * up[1]
            a = np.where((a <= ends[0]) & (b <= ends[1]), a, np.inf)
    return a, b


def clock_bound(
    squared_norm: float, max_coordinate: float, time: float, delta: float
) -> float:
    """A V* with P(V > V*) <= delta for vectors that are rounded at random.

    Args:
      squared_norm: c^2, bound on the sum of squares before rounding, in steps.
      max_coordinate: X, bound on the size of each, in steps.
      time: h^2, one over the variance of the Gaussian noise in squared steps.
      delta: Greater than 0.
    """
    best, log = math.inf, math.log(1 / delta)
    for short in (False, True)[: 1 + (max_coordinate <= 1)]:
        a, b = _supersolution(short, time)
        with np.errstate(over="ignore", invalid="ignore"):
            rate = a + b * (max_coordinate * max_coordinate if short else 0.0)
            clocks = (squared_norm * rate + log) * time / _EXPONENTS
        best = min(best, float(np.min(clocks[np.isfinite(clocks)], initial=math.inf)))
    return best * (1 + _ROUNDING)


def is_known(event: dp_accounting.DpEvent) -> bool:
    """Whether the event is one release of integers, or of two at a time."""
    if isinstance(event, noise_events.WithClipCountDpEvent):
        return is_known(event.update) and is_known(event.count)
    return isinstance(event, noise_events.DistributedNoiseDpEvent)


def dominating_gaussian(
    event: dp_accounting.DpEvent, delta: float, times: int = 1
) -> DominatingGaussian:
    """A Gaussian that dominates a release of integers, without its sampling.

    A Poisson-sampled Gaussian dominates a release with sampled clients.

    Args:
      event: An event that `is_known`.
      delta: The probability, greater than 0, for all of the `times` together.
      times: The number of consecutive unsampled releases whose clocks are added up:
        deviations of the sum are smaller than those of each.
    """
    if isinstance(event, noise_events.WithClipCountDpEvent):
        update, count = (
            dominating_gaussian(part, delta / 2, times)
            for part in (event.update, event.count)
        )
        clock = (update.clock + count.clock) * (1 + _ROUNDING)
        return DominatingGaussian(clock, update.distance + count.distance)
    assert isinstance(event, noise_events.DistributedNoiseDpEvent)
    if event.is_always_zero:
        return DominatingGaussian(math.inf, 0.0)
    noise = event.summed_noise
    shift, distance = gaussian_shift(noise), _distance(noise, event.max_shift)
    if math.inf in (shift, distance):
        return DominatingGaussian(math.inf, 0.0)
    distance *= event.dimension * (1 + _ROUNDING)
    # The posterior mean of the whole vector is no longer than the longest rounded
    # vector.
    time = shift * shift * (1 + _ROUNDING)
    squared = times * (event.clip_norm / event.granularity) ** 2
    by_chance = clock_bound(squared, event.max_steps, time, delta) / times
    clock = min(event.shift_budget * time, by_chance * (1 + _ROUNDING))
    return DominatingGaussian(clock, distance)
