# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Renyi divergences of Skellam noise, exactly.

Skellam noise of variance mu is the difference of two Poisson variables of mean mu / 2
each, and a sum of Skellam noise is again Skellam. Its log-probabilities come from the
ratios I_{k+1}/I_k of Bessel functions, whose backward recurrence has positive terms
only. Where the noise is large the published bound is all but exact and takes over.
`docs/privacy/integer_noise.md` has the proofs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from dpfl import checks
from dpfl.accounting import events, log_space
from dpfl.accounting.integer import noise_events, published_bounds

# Entries of a table of Skellam log-probabilities above which none is made.
_MAX_SKELLAM_TABLE = 1 << 20
# Skellam shifts evaluated one by one; of larger ones only every tenth part is.
_SINGLE_SHIFTS = 32
# Up to this total variance the exact rate soon falls in v, also at fractional orders.
_SMALL_SKELLAM = 50.0
# At this total variance Skellam's published bound is within 1e-4 of the Gaussian one
# at whole orders, and the exact sum would be long.
_NEARLY_GAUSSIAN_SKELLAM = 25_000.0


@functools.lru_cache(maxsize=16)
def _skellam_table(variance: float, size: int) -> np.ndarray:
    """Returns a table of log f(k), k = 0..size-1, where f(k) = exp(-mu) I_k(mu).

    r_k = I_{k+1}/I_k obeys r_{k-1} = 1 / (2k/mu + r_k), which contracts errors by
    r^2 a step; it starts from a bound of Amos (1974) far enough out for that to
    remove its error.
    """
    top = size + math.ceil(7 * math.sqrt(variance)) + 60
    ratio = variance / (top + 0.5 + math.hypot(top + 0.5, variance))
    log_ratios = np.empty(size)
    for k in range(top, 0, -1):
        ratio = 1.0 / (2.0 * k / variance + ratio)
        if k <= size:
            log_ratios[k - 1] = ratio
    log_ratios = np.log(log_ratios)
    table = np.empty(size)
    table[0] = math.log(special.ive(0, variance))
    table[1:] = table[0] + np.cumsum(log_ratios[:-1].astype(np.longdouble))
    table.setflags(write=False)
    return table


def _skellam_log_pmf(k: np.ndarray, variance: float) -> np.ndarray:
    size = 1 << max(6, int(np.max(np.abs(k))).bit_length())
    return _skellam_table(variance, size)[np.abs(k)]


def skellam_log_pmf(x: Sequence[int] | np.ndarray, variance: float) -> np.ndarray:
    """Returns log-probabilities of Skellam noise of a total variance and mean 0.

    The noise is the difference of two Poisson variables of mean variance / 2 each.

    Args:
      x: Integers of size below 2^20, in grid steps; any shape.
      variance: mu, in squared grid steps.

    Returns:
      float64 array of x's shape, in nats.

    Raises:
      ValueError: an x is too large for the table.
    """
    variance = checks.positive("variance", variance)
    x = np.asarray(x, dtype=np.int64)
    if x.size and int(np.max(np.abs(x))) >= _MAX_SKELLAM_TABLE:
        raise ValueError(
            f"x must be smaller than {_MAX_SKELLAM_TABLE} in size,"
            f" found {int(np.max(np.abs(x)))}"
        )
    if not x.size:
        return np.zeros(x.shape)
    return _skellam_log_pmf(x, variance)


def _skellam_mode(order: float, shift: int, variance: float) -> float:
    """Returns about where the Renyi sum has its largest term, at most alpha v."""

    def slope(x: float) -> float:
        return (order - 1) * math.asinh(x / variance) - order * math.asinh(
            (x - shift) / variance
        )

    low, high = float(shift), order * shift
    for _ in range(40):  # it only places a window: no more digits are needed
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def _geometric_rest(log_term: float, log_ratio: float) -> float:
    """Returns the log of what lies beyond a term, at most a geometric series."""
    return log_term + log_ratio - math.log(-math.expm1(log_ratio))


def _skellam_log_moment(order: float, shift: int, variance: float) -> float | None:
    """Returns (alpha - 1) D_alpha(v) from above; None where the table would be long.

    T(x) = f(x-v)^alpha f(x)^(1-alpha). Ratios r_k = f(k+1)/f(k) lie between
    exp(-asinh((k+1)/mu)) and exp(-asinh(k/mu)) (Amos 1974), so that T(x+1)/T(x) has
    explicit bounds that fall in x for x >= (v-1)/2; and T(x) <= f(x) for x <= v/2.
    """
    mode = _skellam_mode(order, shift, variance)
    curvature = order / math.hypot(variance, mode - shift) - (order - 1) / math.hypot(
        variance, mode
    )
    width = math.ceil(math.sqrt(2 * noise_events.LOG_TAIL / curvature)) + 20
    if mode + 2 * width + shift >= _MAX_SKELLAM_TABLE:
        return None
    centre = round(mode)

    def terms(x: np.ndarray) -> np.ndarray:
        base = _skellam_log_pmf(x, variance)
        return base + order * (_skellam_log_pmf(x - shift, variance) - base)

    def log_ratio_above(x: int) -> float:
        return (order - 1) * math.asinh((x + 1) / variance) - order * math.asinh(
            (x - shift) / variance
        )

    def log_ratio_below(x: int) -> float:
        return (order - 1) * math.asinh(x / variance) - order * math.asinh(
            (x - shift + 1) / variance
        )

    last = centre + width
    while log_ratio_above(last) > -1 / width:
        last += width
        if last + shift >= _MAX_SKELLAM_TABLE:
            return None
    first = centre - width
    peak = float(terms(np.array([centre]))[0])
    bulk = math.ceil(math.sqrt(2 * noise_events.LOG_TAIL * variance)) + 2 * math.ceil(
        noise_events.LOG_TAIL
    )
    separate = (
        first > shift
        and peak > noise_events.LOG_TAIL
        and log_ratio_below(first - 1) > 0
    )
    x = np.arange(first if separate else min(first, -bulk), last + 1)
    values = terms(x)
    total = float(log_space.log_sum_exp(values))
    rest = _geometric_rest(float(values[-1]), log_ratio_above(last))
    total = float(np.logaddexp(total, rest))
    if separate:  # left of the window down to v/2, and at most 1 beyond that
        rest = _geometric_rest(float(values[0]), -log_ratio_below(first - 1))
        total = float(np.logaddexp(np.logaddexp(total, rest), 0.0))
    else:  # T(x) <= f(x) there, and f's own tail is geometric
        edge = int(x[0])
        log_edge = float(_skellam_log_pmf(np.array([edge]), variance)[0])
        rest = _geometric_rest(log_edge, -math.asinh(-edge / variance))
        total = float(np.logaddexp(total, rest))
    depth = abs(float(_skellam_log_pmf(np.array([last]), variance)[0]))
    return total + noise_events.EPSILON * (100 + 8 * order * (1 + depth))


def _skellam_rate_one(
    order: float, variance: float, max_shift: int
) -> tuple[float, bool]:
    """Returns the rate of one order, and whether the exact distribution gave it."""

    def published(v: int) -> float:
        return (
            published_bounds.skellam_published_one(
                order, variance, float(v) ** 2, float(v)
            )
            / v**2
        )

    best, last, used = 0.0, 0, False
    while last < max_shift:
        remainder = published(last + 1)
        if last and remainder <= best * (1 + noise_events.RATE_TOLERANCE):
            return max(best, remainder), used
        # First every shift; beyond, D_alpha(v) at the end of a gap covers it.
        step = 1 if last < _SINGLE_SHIFTS else max(1, last // 10)
        v = min(last + step, max_shift)
        moment = _skellam_log_moment(order, v, variance)
        if moment is None or last >= 1 << 14:
            return max(best, remainder), used
        rate = min(moment / ((order - 1) * (last + 1) ** 2), remainder)
        best, last, used = max(best, rate), v, True
    return best, used


@functools.lru_cache(maxsize=1024)
def _skellam_rate(
    orders: tuple[float, ...], variance: float, max_shift: int
) -> tuple[np.ndarray, str]:
    alphas = np.array(orders)
    if variance >= _NEARLY_GAUSSIAN_SKELLAM:
        # Divided by v^2 the published bound falls in v: v = 1 is the worst.
        return published_bounds.skellam_published_rdp(
            alphas, variance, 1.0, 1.0
        ), "published"
    direct = max_shift <= _SINGLE_SHIFTS or variance <= _SMALL_SKELLAM
    # The remainders, which are published bounds, are best at whole orders.
    needed = np.unique(alphas) if direct else log_space.whole_orders(alphas)
    found = [
        _skellam_rate_one(order, variance, max_shift) if order > 1 else (0.0, False)
        for order in needed.tolist()
    ]
    rates = np.array([rate for rate, _ in found])
    if direct:
        rate = rates[np.searchsorted(needed, alphas)]
    else:
        rate = log_space.chord(alphas, needed, (needed - 1) * rates) / (alphas - 1)
    rate.setflags(write=False)
    return rate, "bessel" if any(used for _, used in found) else "published"


def skellam_rate(
    orders: events.Orders, variance: float, max_shift: int
) -> noise_events.DivergenceRate:
    """Returns a bound on D_alpha(v) / v^2, 1 <= v <= max_shift, for Skellam noise.

    Exact up to a total variance of 25000, then published (within 1e-4 there at whole
    orders). Shifts up to 32 are evaluated one by one. D_alpha(v) does not fall in v,
    so that one evaluation covers a gap of larger ones; and the published bound over
    v^2 falls in v, and covers all that are left once it is small enough. With shifts
    above 32 and a variance above 50, fractional orders are chords.

    Args:
      orders: Renyi orders, each greater than 1; shape [m].
      variance: Total variance mu of the summed noise, in squared grid steps.
      max_shift: Largest shift of a coordinate, in grid steps, at least 1.

    Returns:
      The rates, shape [m], and the route: 'bessel' (exact) or 'published'.

    Raises:
      ValueError: an argument is out of its range.
    """
    alphas = checks.orders(orders)
    variance = checks.positive("variance", variance)
    max_shift = checks.integer("max_shift", max_shift)
    return noise_events.DivergenceRate(
        *_skellam_rate(tuple(alphas.tolist()), variance, max_shift)
    )
