# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Randomized rounding as part of the noise: Renyi divergence of a mixture of shifts.

A coordinate of x grid steps, |x| <= X, is rounded up with a probability equal to its
fractional part, without any condition, and integer noise with probabilities f is
added. The output is the mixture mix_x of two shifts of f, and

  F_a(x) = max{ D_a(mix_x || f), D_a(f || mix_x) }.

A vector of L2 norm c, rounded to multiples of g, has RDP(a) <= (c/g)^2 sup F_a(x)/x^2,
the supremum over 0 < x <= X. For X <= 1 the larger direction is the first, and

  exp((a-1) D_a(mix_x || f)) = 1 + h(x),  h(x)/x^2 <= sum_l C(a,l) x^(l-2) m_l

over l from 2 to the order rounded up, with equality at whole orders; m_l are the
moments of `ratio_moments`. The sum rises in x, and it is convex, so that a bound on a
cell follows from its ends.

`docs/privacy/rounding.md` has the proofs.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from dpfl import checks
from dpfl.accounting import events
from dpfl.accounting.integer import (
    ratio_moments,
    rounding_shifts,
    summed_noise,
    whole_shifts,
)
from dpfl.accounting.log_space import EPSILON

# Cells of a search over x, and the most refinements.
_CELLS = 20
_ROUNDS = 6
# Relative tolerance of the bound over the largest value found.
_TOLERANCE = 2e-7
# Largest relative excess of a fractional order's bound by moments, and the longest
# table over which it is otherwise summed directly.
_DOUBT = 3e-7
_DIRECT_TABLE = 600
# Largest distance of the noise from a discrete Gaussian, times its variance, for the
# closed form of coordinates longer than a step, and of those longer than _MOST_STEPS,
# up to which both directions are summed otherwise.
_CLOSED_FORM_PART = 1e-5
_LATE_CLOSED_FORM_PART = 1e-2
# Largest distance from Gaussian of the noise of a whole vector where clients are
# sampled.
_MOST_DISTANCE = 1e-4
# Variance, in squared steps, of the integers drawn around a Gaussian's values that
# replace integer noise there, and the distance of that from the truth, per coordinate.
_SMOOTHING = 2.0
_SMOOTHING_DISTANCE = 3e-17
_MOST_STEPS = 8.0


def _log_growth(log_slope: np.ndarray, x: np.ndarray) -> np.ndarray:
    """log(1 + x^2 exp(log_slope)) / x^2, and its limit at 0."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        exponent = log_slope + 2 * np.log(x)
        value = np.logaddexp(0.0, exponent) / np.square(x)
        # log(1 + y) is at most y, and equal to all digits here.
        return np.where(exponent < -36, np.exp(log_slope), value)


@np.errstate(divide="ignore", over="ignore", invalid="ignore")
def _cell_bounds(
    x: np.ndarray, logs: np.ndarray, convex: np.ndarray, positive: np.ndarray
) -> np.ndarray:
    """Bounds on log(1 + h(x))/x^2 on the cells between points; [m, p - 1].

    For every y0, log(1 + y) <= log(1 + y0) + (y - y0)/(1 + y0). With a chord for
    h/x^2 this leaves a function of x that is convex, so that the ends bound it, and
    with a chord for h a quadratic in 1/x. Without either, h/x^2 is at most its value at
    the upper end.

    Args:
      x: Points in rising order, shape [m, p]; the first may be 0.
      logs: Log bounds on h/x^2 there.
      convex: Whether h/x^2 is convex in x, [m]; otherwise it only rises.
      positive: Whether `logs` are of a polynomial with positive coefficients, [m].
    """
    a, b, low, high = x[:, :-1], x[:, 1:], logs[:, :-1], logs[:, 1:]
    simple = _log_growth(high, a)
    middle = np.logaddexp(low, high) - math.log(2) + 2 * np.log((a + b) / 2)
    log_y0 = np.where(a > 0, middle, -np.inf)
    at = np.logaddexp(0.0, log_y0)  # log(1 + y0)
    constant = np.where(log_y0 < -16, np.exp(2 * log_y0), at - np.exp(log_y0 - at))
    ends = [
        np.where(point > 0, constant / np.square(point), 0.0) + np.exp(log - at)
        for point, log in ((a, low), (b, high))
    ]
    by_quotient = np.maximum(*ends)
    # h <= e + f x; then constant/x^2 + (e/x^2 + f/x)/(1 + y0), a quadratic in 1/x.
    start, end = np.exp(low + 2 * np.log(a) - at), np.exp(high + 2 * np.log(b) - at)
    slope = (end - start) / (b - a)
    square = constant + start - slope * a
    peak = np.clip(-slope / (2 * square), 1 / b, 1 / a)
    peak = np.where(square < 0, peak, 1 / a)
    by_chord = (square * peak + slope) * peak
    by_chord = np.where((a > 0) & np.isfinite(by_chord), by_chord, np.inf)
    by_chord *= 1 + 64 * EPSILON / np.square(1 - a / b)
    # log(1 + h) <= p + q t, with t = log(x/a).
    p, q = np.logaddexp(0.0, low + 2 * np.log(a)), np.log(b / a)
    q = (np.logaddexp(0.0, high + 2 * np.log(b)) - p) / q
    t = np.clip(0.5 - p / q, 0.0, np.log(b / a))
    by_logs = (p + q * t) * np.exp(-2 * t) / np.square(a)
    by_logs = np.where(positive[:, None] & (a > 0) & (p > 1e-9), by_logs, np.inf)
    best = np.fmin(simple, np.where(convex[:, None], by_quotient, by_chord))
    return np.fmin(best, by_logs)


def _points(low: np.ndarray, high: np.ndarray, cells: int) -> np.ndarray:
    """The ends of cells between `low` and `high`, [m, cells + 1].

    They are evenly spaced in x, or in log x where that is a large part of x.
    """
    share = np.linspace(0, 1, cells + 1)
    even = low[:, None] + (high - low)[:, None] * share
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rising = low[:, None] * (high / low)[:, None] ** share
    rising[:, -1] = high
    return np.where(((low > 0) & (high > 1.5 * low))[:, None], rising, even)


def _largest(
    excess: ratio_moments.Excess | ratio_moments.DirectExcess,
    orders: np.ndarray,
    top: float,
) -> np.ndarray:
    """Bounds on log(1 + h(x))/x^2 for 0 < x <= top, one for each order; [m].

    The search refines the cells that may exceed the largest value at a point.
    """
    convex = orders >= 3
    positive = excess.positive(np.arange(orders.size))
    first = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, _CELLS)]) * top
    x = np.tile(first, (orders.size, 1))
    result = np.empty(orders.size)
    rows = np.arange(orders.size)
    floor = np.zeros(orders.size)
    for attempt in range(_ROUNDS):
        logs = excess.log_at(x, rows)
        floor = np.maximum(floor, np.max(_log_growth(logs, x), axis=1))
        bounds = _cell_bounds(x, logs, convex[rows], positive[rows])
        enough = floor[:, None] * (1 + _TOLERANCE)
        result[rows] = np.maximum(enough[:, 0], np.max(bounds, axis=1))
        above = bounds > enough
        more = np.any(above, axis=1)
        if attempt == _ROUNDS - 1 or not more.any():
            break
        first_cell = np.argmax(above, axis=1)[more]
        last_cell = (above.shape[1] - np.argmax(above[:, ::-1], axis=1))[more]
        kept = np.nonzero(more)[0]
        low, high = x[kept, first_cell], x[kept, last_cell]
        x = _points(low, high, _CELLS << attempt)
        rows, floor = rows[kept], floor[kept]
    return result


def _evaluators(
    orders: np.ndarray, noise: summed_noise.Noise, top: float
) -> list[tuple[np.ndarray, ratio_moments.Excess | ratio_moments.DirectExcess]]:
    """The evaluator of each order for coordinates up to `top` <= 1."""
    moments = ratio_moments.ratio_moments(noise, math.ceil(orders.max()))
    excess = ratio_moments.Excess(moments, orders)
    doubtful = excess.doubt(top) > _DOUBT
    if doubtful.any() and moments.route == "fourier":
        whole = math.ceil(orders[doubtful].max())
        shorter = ratio_moments.ratio_moments(noise, whole)
        if shorter.log_pmf.size <= _DIRECT_TABLE:
            direct = np.nonzero(doubtful)[0]
            rest = np.nonzero(~doubtful)[0]
            return [
                (rest, ratio_moments.Excess(moments, orders[rest])),
                (direct, ratio_moments.DirectExcess(shorter, orders[direct])),
            ]
    return [(np.arange(orders.size), excess)]


@functools.lru_cache(maxsize=256)
def _unit_moments(
    orders: tuple[float, ...], noise: summed_noise.Noise, top: float
) -> np.ndarray:
    """Bounds on (a - 1) F_a(x)/x^2 for 0 < x <= top <= 1; [m]."""
    alphas = np.array(orders)
    result = np.empty(alphas.size)
    low, high = np.nonzero(alphas <= 2)[0], np.nonzero(alphas > 2)[0]
    if low.size:
        # Up to order 2 h/x^2 is at most its limit at 0, and so is log(1 + h)/x^2.
        moments = ratio_moments.ratio_moments(noise, 2)
        excess = ratio_moments.Excess(moments, alphas[low])
        at_zero = excess.log_at(np.zeros((low.size, 1)), np.arange(low.size))
        with np.errstate(over="ignore"):
            result[low] = np.exp(at_zero[:, 0])
    if high.size:
        for rows, evaluator in _evaluators(alphas[high], noise, top):
            result[high[rows]] = _largest(evaluator, alphas[high][rows], top)
    # Allowance for the rounding of logs of binomials, of moments, and of their sums.
    result *= 1 + 1e-11
    result.setflags(write=False)
    return result


def _longer_than_a_step(
    alphas: np.ndarray, noise: summed_noise.Noise, unit: np.ndarray, top: float
) -> np.ndarray:
    """Bounds on (a - 1) F_a(x)/x^2 for x up to `top`; `unit` has x <= 1."""
    if ratio_moments.nearly_gaussian(noise, _CLOSED_FORM_PART):
        return rounding_shifts.gaussian_log_moments(alphas, noise, unit, 1.0, top)
    result, first = unit, 1.0
    if ratio_moments.route_of(noise) != "composed":
        first = min(top, _MOST_STEPS)
        summed = rounding_shifts.summed_log_moments(alphas, noise, first)
        result = np.maximum(result, summed)
    if ratio_moments.nearly_gaussian(noise, _LATE_CLOSED_FORM_PART):
        late = result
        if top > first:
            late = rounding_shifts.gaussian_log_moments(alphas, noise, unit, first, top)
        whole = rounding_shifts.gaussian_log_moments(alphas, noise, unit, 1.0, top)
        return np.minimum(np.maximum(result, late), whole)
    if top > first:
        rate = whole_shifts.shift_rate(alphas, noise, math.ceil(top))
        longer = rounding_shifts.chord_log_moments(alphas, rate, first, top)
        result = np.maximum(result, longer)
    return result


@functools.lru_cache(maxsize=256)
def _rounded_rate(
    orders: tuple[float, ...], noise: summed_noise.Noise, top: float
) -> np.ndarray:
    alphas = np.array(orders)
    result = _unit_moments(orders, noise, min(top, 1.0))
    if top > 1:
        result = _longer_than_a_step(alphas, noise, result, top)
    rate = result / (alphas - 1)
    rate.setflags(write=False)
    return rate


def distance_from_gaussian(noise: summed_noise.Noise) -> float:
    """The distance of summed noise from a post-processed Gaussian, per coordinate.

    By Theorem 8 of docs/privacy/rounding.md and the text after it, the logs of the
    probabilities of a coordinate under both differ by no more than this, so that the
    log-moments of order a of m coordinates differ by (2a-1) m times this at the most.
    """
    return noise.oscillation() + _SMOOTHING_DISTANCE


def is_covered(
    noise: summed_noise.Noise, max_coordinate: float, sampled_dimension: int = 0
) -> bool:
    """Whether `rounded_rate` has a bound for coordinates of up to `max_coordinate`.

    Args:
      noise: The sum of the noise of all clients, in grid steps.
      max_coordinate: X, the largest size of a coordinate, in grid steps.
      sampled_dimension: The length of the vector if clients are sampled; 0 if not.
    """
    if max_coordinate <= 1 or not sampled_dimension:
        return True
    gaussian = _smoothed_variance(noise) >= ratio_moments.GAUSSIAN_STDDEV**2
    distance = sampled_dimension * distance_from_gaussian(noise)
    return gaussian and distance <= _MOST_DISTANCE


def _smoothed_variance(noise: summed_noise.Noise) -> float:
    """The variance of the Gaussian that such noise is made from."""
    return noise.variance - _SMOOTHING


def rounded_rate(
    orders: events.Orders,
    noise: summed_noise.Noise,
    max_coordinate: float,
    *,
    sampled: bool = False,
) -> np.ndarray:
    """A bound on F_a(x)/x^2, 0 < x <= max_coordinate, for rounding and noise; [m].

    A vector of L2 norm at most c, with coordinates at most X g in size, rounded to
    multiples of g, has a Renyi divergence of at most (c/g)^2 times the rate, in both
    directions.

    Args:
      orders: Renyi orders, each greater than 1; shape [m].
      noise: The sum of the noise of all clients, in grid steps.
      max_coordinate: X, the largest size of a coordinate before it is rounded, in grid
        steps; greater than 0.
      sampled: Whether the rates at whole orders go into the binomial sum of
        `log_space.poisson_sampled_rdp`. If `max_coordinate` exceeds 1, the caller must
        add the term of `distance_from_gaussian`, and `is_covered` must hold.

    Raises:
      ValueError: an order is out of its range.
    """
    alphas = checks.orders(orders)
    if sampled and max_coordinate > 1:
        # N_Z(0, s^2) is, up to that distance, a post-processing of a Gaussian of
        # variance s^2 - 2, whose moments at whole orders are those of N_Z(0, s^2 - 2).
        stddev = math.sqrt(_smoothed_variance(noise))
        noise = summed_noise.DiscreteGaussianNoise(1, stddev)
    return _rounded_rate(tuple(alphas.tolist()), noise, max_coordinate)
