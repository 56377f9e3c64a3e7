# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Randomized rounding of coordinates longer than one grid step.

With x = k + u, k at least 1, let H(x) = E_f[(mix_x/f)^a] and J(x) the same with 1-a:
D_a(mix_x || f) and D_a(f || mix_x) are log H/(a-1) and log J/(a-1). Within a step
H^(1/a) is convex in u (it is a norm) and exp(-D_a(f || mix_x)) is concave, so that a
chord between two points bounds each from above.

Where the noise is a Gaussian up to a negligible part, J <= H and H has a closed form:
with s the standard deviation, e = exp((a-1) k/s^2) and w = u e/(1 - u + u e),

  log H(k+u) = a (a-1) k^2/(2 s^2) + a log(1 - u + u e) + log(1 + h(w)).

Otherwise both are summed. `docs/privacy/rounding.md` has the proofs.
"""

from __future__ import annotations

import math

import numpy as np

from dpfl.accounting import log_space
from dpfl.accounting.integer import ratio_moments, summed_noise

# Relative excess that cells and the closed form for long coordinates may have.
_EXCESS = 2e-6
# Longest coordinate, in steps, that is divided into cells with Gaussian noise.
_MOST_STEPS = 2000
# Cells of the first step where both directions are summed, for small and large noise,
# and the largest variance that counts as small.
_SUMMED_CELLS = (10.0, 3.0)
_SMALL_VARIANCE = 1600.0
# Number of chords between whole coordinates, before Hoeffding's lemma takes over.
_CHORD_STEPS = 64


def _line_over_square(
    a: np.ndarray, b: np.ndarray, at_middle: np.ndarray, slope: np.ndarray
) -> np.ndarray:
    """The largest value of (line through the middle)/x^2 for x in [a, b]."""
    constant = at_middle - slope * (a + b) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = np.clip(-slope / (2 * constant), 1 / b, 1 / a)
    peak = np.where(constant < 0, peak, 1 / a)
    return (constant * peak + slope) * peak


def _forward_cells(orders: np.ndarray, x: np.ndarray, log_h: np.ndarray) -> np.ndarray:
    """Bounds on log H(x)/x^2 between points, from a chord for H^(1/a); [m].

    Args:
      orders: Renyi orders; [m].
      x: Points in rising order that include all integers between the ends; [p].
      log_h: Bounds on log H at the points; [m, p].
    """
    log_n = log_h / orders[:, None]
    low, high, a, b = log_n[:, :-1], log_n[:, 1:], x[:-1], x[1:]
    # The log of the chord is below its tangent at the middle. Small logs keep their
    # digits: the noise may be millions of steps wide.
    gap = high - low
    rise = np.expm1(np.minimum(gap, 30.0))
    middle = np.where(
        gap < 30, low + np.log1p(rise / 2), np.logaddexp(low, high) - math.log(2)
    )
    steep = np.exp(high - middle) - np.exp(low - middle)
    slope = np.where(gap < 30, rise * np.exp(low - middle), steep) / (b - a)
    bound = _line_over_square(a, b, middle, slope)
    return orders * np.max(bound, axis=1)


def _backward_cells(x: np.ndarray, divergence: np.ndarray) -> np.ndarray:
    """Bounds on D_a(f || mix_x)/x^2 between points; [m].

    exp(-D) is concave, so that D is at most its own chord.
    """
    a, b = x[:-1], x[1:]
    slope = (divergence[:, 1:] - divergence[:, :-1]) / (b - a)
    middle = (divergence[:, 1:] + divergence[:, :-1]) / 2
    return np.max(_line_over_square(a, b, middle, slope), axis=1)


def _points(cells: float, last: float) -> np.ndarray:
    """Points from 1 to `last`; step k has about cells/k cells, at least 1."""
    whole = [
        k + np.arange(count) / count
        for k in range(1, math.ceil(last))
        for count in (max(1, math.ceil(cells / k)),)
    ]
    points = np.concatenate([*whole, [math.ceil(last)]])
    inside = points < last
    return np.append(points[inside], last)


def chord_log_moments(
    orders: np.ndarray, whole: np.ndarray, first: float, top: float
) -> np.ndarray:
    """Bounds on (a-1) F_a(x)/x^2, 1 <= first <= x <= top, from whole shifts alone; [m].

    They exceed those of whole shifts by a part of about 1/(4 first^2).

    Args:
      orders: Renyi orders; [m].
      whole: Bounds on D_a(v)/v^2 for whole shifts v up to ceil(top); [m].
      first: The shortest coordinate.
      top: The longest coordinate.
    """
    points = np.arange(math.floor(first), math.floor(first) + _CHORD_STEPS + 1.0)
    last = math.ceil(top)
    points = points[points <= last]
    divergence = whole[:, None] * np.square(points)
    log_h = (orders - 1)[:, None] * divergence
    best = _forward_cells(orders, points, log_h)
    best = np.maximum(best, (orders - 1) * _backward_cells(points, divergence))
    half, x = (orders - 1) * whole, float(points[-1])
    if last > x:
        bump = half / (2 * orders) * (1 + 1 / (2 * x)) ** 2
        best = np.maximum(best, half * (1 + 1 / (4 * x**2) + bump))
    return best


def gaussian_log_moments(
    orders: np.ndarray,
    noise: summed_noise.Noise,
    unit: np.ndarray,
    first: float,
    top: float,
) -> np.ndarray:
    """Bounds on (a-1) F_a(x)/x^2, 1 <= first <= x <= top, for nearly Gaussian noise.

    Args:
      orders: Renyi orders; [m].
      noise: The summed noise, in grid steps.
      unit: Bounds on log(1 + h(x))/x^2 for 0 < x <= 1; [m].
      first: The shortest coordinate.
      top: The longest coordinate.
    """
    variance = noise.variance
    half = orders * (orders - 1) / (2 * variance)
    bump = (orders - 1) / (4 * variance)
    swing = (2 * orders - 1) * noise.oscillation()

    def longer_than(x: float) -> np.ndarray:
        """Bounds for all coordinates longer than x, by Hoeffding's lemma."""
        return half * (1 + 1 / (4 * x**2) + bump * (1 + 1 / (2 * x)) ** 2) + swing

    last = top
    for power in range(64):
        candidate = first * 2.0 ** (power / 4)
        if candidate >= min(top, _MOST_STEPS):
            last = min(top, _MOST_STEPS)
            break
        if np.all(longer_than(candidate) <= unit * (1 + _EXCESS)):
            last = candidate
            break
    best = np.maximum(unit, longer_than(last)) if last < top else unit
    points = _points(0.5 / math.sqrt(_EXCESS), last)
    points = points[points >= math.floor(first)]
    if points.size < 2:
        return best
    step = max(2, (1 << 18) // orders.size)
    for start in range(0, points.size - 1, step):
        x = points[start : start + step + 1]
        k = np.floor(x)
        u = x - k
        with np.errstate(divide="ignore"):
            tilt = (orders[:, None] - 1) * k / variance
            small = np.log1p(u * np.expm1(np.minimum(tilt, 1.0)))
            large = np.logaddexp(np.log1p(-u), np.log(u) + tilt)
            log_mean = np.where(tilt < 1, small, large)
            weight = np.exp(np.log(u) + tilt - log_mean)
        log_h = half[:, None] * k**2 + orders[:, None] * log_mean
        log_h += unit[:, None] * np.square(weight) + 2 * swing[:, None]
        best = np.maximum(best, _forward_cells(orders, x, log_h))
    return best


def summed_log_moments(
    orders: np.ndarray, noise: summed_noise.Noise, top: float
) -> np.ndarray:
    """Bounds on (a-1) F_a(x)/x^2 for 1 <= x <= top by summing both directions; [m].

    The cost grows with the square of `top`.

    Args:
      orders: Renyi orders; [m].
      noise: The summed noise, of a standard deviation that can be tabulated.
      top: The longest coordinate.
    """
    longest = math.ceil(top) + 1
    tail = ratio_moments.Tail(noise, float(orders.max()) * longest)
    windows = np.array([tail.window(order * longest) for order in orders.tolist()])
    pmf = noise.log_pmf(int(windows.max()) + 2 * longest)
    largest = np.maximum.accumulate(pmf.error)[windows + 2 * longest]
    errors = 2 * orders * largest
    points = _points(_SUMMED_CELLS[noise.variance > _SMALL_VARIANCE], top)
    rest = tail.log_size + math.log(4)
    widest = int(windows.max())
    y = np.arange(-widest, widest + longest + 1)
    f = pmf.values[np.abs(y)]
    ratio = _log_mixtures(pmf.values, y, points) - f
    forward = np.empty((orders.size, points.size))
    backward = np.empty((orders.size, points.size))
    for i, order in enumerate(orders.tolist()):
        near = slice(widest - windows[i], widest + windows[i] + longest + 1)
        up = log_space.scaled_log_sum_exp(order, ratio[:, near], f[near])
        down = log_space.scaled_log_sum_exp(1 - order, ratio[:, near], f[near])
        forward[i] = np.logaddexp(up, rest) + errors[i]
        backward[i] = np.logaddexp(down, rest) + errors[i]
    best = _forward_cells(orders, points, forward)
    backward_best = _backward_cells(points, backward / (orders - 1)[:, None])
    return np.maximum(best, (orders - 1) * backward_best)


def _log_mixtures(log_pmf: np.ndarray, y: np.ndarray, points: np.ndarray) -> np.ndarray:
    """log mix_x(y), shape [points, y]; `log_pmf` is even and starts at 0."""
    mixtures = np.empty((points.size, y.size))
    for row, x in zip(mixtures, points.tolist()):
        k = math.floor(x)
        u = x - k
        row[:] = log_pmf[np.abs(y - k)]
        if u:
            longer = math.log(u) + log_pmf[np.abs(y - k - 1)]
            np.logaddexp(math.log1p(-u) + row, longer, out=row)
    return mixtures
