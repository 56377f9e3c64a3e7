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
from scipy import special

from dpfl import checks
from dpfl.accounting import events, log_space
from dpfl.accounting.integer import (
    discrete_gaussian,
    noise_events,
    ratio_moments,
    rounding_shifts,
    skellam,
)

# Cells of a search over x, and how often it may close in.
_CELLS = 20
_ROUNDS = 6
# How far above the largest value found the bound may be, relative.
_TOLERANCE = 2e-7
# How far above the truth a fractional order's bound by moments may be, relative, and
# the longest table over which it is otherwise summed directly.
_DOUBT = 3e-7
_DIRECT_TABLE = 600
# How far the noise may be from a discrete Gaussian, times its variance, for the closed
# form of coordinates longer than a step, and of those longer than _MOST_STEPS, which is
# how far both directions are summed otherwise.
_CLOSED_FORM_PART = 1e-5
_LATE_CLOSED_FORM_PART = 1e-2
# How far from Gaussian the noise of a whole vector may be where clients are sampled.
_MOST_DISTANCE = 1e-4
# There integer noise is a Gaussian, about whose values integers of this variance are
# drawn: in squared steps, and how far from true that is, per coordinate.
_SMOOTHING = 2.0
_SMOOTHING_DISTANCE = 3e-17
_MOST_STEPS = 8.0


def _log_growth(log_slope: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Returns log(1 + x^2 exp(log_slope)) / x^2, and its limit at 0."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        exponent = log_slope + 2 * np.log(x)
        value = np.logaddexp(0.0, exponent) / np.square(x)
        # log(1 + y) is at most y, and equal to all digits here.
        return np.where(exponent < -36, np.exp(log_slope), value)


@np.errstate(divide="ignore", over="ignore", invalid="ignore")
def _cell_bounds(
    x: np.ndarray, logs: np.ndarray, convex: np.ndarray, positive: np.ndarray
) -> np.ndarray:
    """Returns bounds on log(1 + h(x))/x^2 on the cells between points.

    For every y0, log(1 + y) <= log(1 + y0) + (y - y0)/(1 + y0). With a chord for
    h/x^2 this leaves a function of x that is convex, so that the ends bound it, and
    with a chord for h a quadratic in 1/x. Without either, h/x^2 is at most its value at
    the upper end.

    Args:
      x: Points in rising order, shape [m, p]; the first may be 0.
      logs: Log bounds on h/x^2 there.
      convex: Whether h/x^2 is convex in x, [m]; otherwise it only rises.
      positive: Whether `logs` are of a polynomial with positive coefficients, [m].

    Returns:
      float64 [m, p - 1].
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
    by_chord *= 1 + 64 * noise_events.EPSILON / np.square(1 - a / b)
    # log(1 + h) <= p + q t, with t = log(x/a).
    p, q = np.logaddexp(0.0, low + 2 * np.log(a)), np.log(b / a)
    q = (np.logaddexp(0.0, high + 2 * np.log(b)) - p) / q
    t = np.clip(0.5 - p / q, 0.0, np.log(b / a))
    by_logs = (p + q * t) * np.exp(-2 * t) / np.square(a)
    by_logs = np.where(positive[:, None] & (a > 0) & (p > 1e-9), by_logs, np.inf)
    best = simple
    for bound in (np.where(convex[:, None], by_quotient, by_chord), by_logs):
        best = np.fmin(best, bound)
    return best


def _points(low: np.ndarray, high: np.ndarray, cells: int) -> np.ndarray:
    """Returns the ends of cells between `low` and `high`, [m, cells + 1].

    They are evenly spaced in x, or in log x where that is a large part of x.
    """
    share = np.linspace(0, 1, cells + 1)
    even = low[:, None] + (high - low)[:, None] * share
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rising = low[:, None] * (high / low)[:, None] ** share
    rising[:, -1] = high
    return np.where(((low > 0) & (high > 1.5 * low))[:, None], rising, even)


def _largest(
    excess: Excess | DirectExcess,
    orders: np.ndarray,
    top: float,
) -> np.ndarray:
    """Returns bounds on log(1 + h(x))/x^2 for 0 < x <= top, one for each order; [m].

    The search closes in on the cells that may exceed the largest value at a point.
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
    orders: np.ndarray, noise: ratio_moments.Noise, top: float
) -> list[tuple[np.ndarray, Excess | DirectExcess]]:
    """Returns which orders are evaluated how for coordinates up to `top` <= 1."""
    moments = ratio_moments.ratio_moments(noise, math.ceil(orders.max()))
    excess = Excess(moments, orders)
    doubtful = excess.doubt(top) > _DOUBT
    if doubtful.any() and moments.route == "fourier":
        whole = math.ceil(orders[doubtful].max())
        shorter = ratio_moments.ratio_moments(noise, whole)
        if shorter.table()[0].size <= _DIRECT_TABLE:
            direct = np.nonzero(doubtful)[0]
            rest = np.nonzero(~doubtful)[0]
            return [
                (rest, Excess(moments, orders[rest])),
                (direct, DirectExcess(shorter, orders[direct])),
            ]
    return [(np.arange(orders.size), excess)]


@functools.lru_cache(maxsize=256)
def _unit_moments(
    orders: tuple[float, ...], noise: ratio_moments.Noise, top: float
) -> np.ndarray:
    """Returns bounds on (a - 1) F_a(x)/x^2 for 0 < x <= top <= 1; [m]."""
    alphas = np.array(orders)
    result = np.empty(alphas.size)
    low, high = np.nonzero(alphas <= 2)[0], np.nonzero(alphas > 2)[0]
    if low.size:
        # Up to order 2 h/x^2 is at most its limit at 0, and so is log(1 + h)/x^2.
        excess = Excess(ratio_moments.ratio_moments(noise, 2), alphas[low])
        at_zero = excess.log_at(np.zeros((low.size, 1)), np.arange(low.size))
        with np.errstate(over="ignore"):
            result[low] = np.exp(at_zero[:, 0])
    if high.size:
        for rows, found in _evaluators(alphas[high], noise, top):
            result[high[rows]] = _largest(found, alphas[high][rows], top)
    # Covers the rounding of logs of binomials, of moments, and of their sums.
    result *= 1 + 1e-11
    result.setflags(write=False)
    return result


def rounded_log_moment(
    orders: events.Orders, noise: ratio_moments.Noise, coordinate: float
) -> np.ndarray:
    """Returns (a - 1) F_a(x) from above, for one coordinate of at most one step.

    Args:
      orders: Renyi orders, each greater than 1; shape [m].
      noise: The sum of the noise of all clients, in grid steps.
      coordinate: x, in (0, 1], the coordinate before rounding in grid steps.

    Returns:
      float64 array of shape [m], in nats; exact but for rounding at whole orders.
    """
    alphas = checks.orders(orders)
    x = checks.real("coordinate", coordinate, above=0, at_most=1)
    result = np.empty(alphas.size)
    for rows, excess in _evaluators(alphas, noise, x):
        logs = excess.log_at(np.full((rows.size, 1), x), np.arange(rows.size))[:, 0]
        result[rows] = np.logaddexp(0.0, logs + 2 * math.log(x))
        small = logs + 2 * math.log(x) < -36
        result[rows] = np.where(small, np.exp(logs) * x**2, result[rows])
    return result * (1 + 1e-11)


def _has_closed_form(noise: ratio_moments.Noise, first: float = 1.0) -> bool:
    """Returns whether the closed form may serve for coordinates from `first` on."""
    part = _CLOSED_FORM_PART if first < _MOST_STEPS else _LATE_CLOSED_FORM_PART
    return ratio_moments.nearly_gaussian(noise, part)


def _beyond_one_step(
    alphas: np.ndarray, noise: ratio_moments.Noise, unit: np.ndarray, top: float
) -> np.ndarray:
    """Returns bounds on (a - 1) F_a(x)/x^2 for x up to `top`; `unit` has x <= 1."""
    if _has_closed_form(noise):
        return rounding_shifts.gaussian_log_moments(alphas, noise, unit, 1.0, top)
    result, first = unit, 1.0
    if ratio_moments.route_of(noise) != "composed":
        first = min(top, _MOST_STEPS)
        summed = rounding_shifts.summed_log_moments(alphas, noise, first)
        result = np.maximum(result, summed)
    if _has_closed_form(noise, _MOST_STEPS):
        late = result
        if top > first:
            late = rounding_shifts.gaussian_log_moments(alphas, noise, unit, first, top)
        whole = rounding_shifts.gaussian_log_moments(alphas, noise, unit, 1.0, top)
        return np.minimum(np.maximum(result, late), whole)
    if top > first:
        rate = _shift_rate(alphas, noise, math.ceil(top))
        beyond = rounding_shifts.chord_log_moments(alphas, rate, first, top)
        result = np.maximum(result, beyond)
    return result


@functools.lru_cache(maxsize=256)
def _rounded_rate(
    orders: tuple[float, ...], noise: ratio_moments.Noise, top: float
) -> tuple[np.ndarray, str]:
    alphas = np.array(orders)
    result = _unit_moments(orders, noise, min(top, 1.0))
    if top > 1:
        result = _beyond_one_step(alphas, noise, result, top)
    rate = result / (alphas - 1)
    rate.setflags(write=False)
    return rate, ratio_moments.route_of(noise)


def distance_from_gaussian(noise: ratio_moments.Noise) -> float:
    """Returns how far noise is from one that a Gaussian is post-processed to.

    By Theorem 8 of docs/privacy/rounding.md and what follows it, the logs of the
    probabilities of a coordinate under both differ by no more than this, so that the
    log-moments of order a of m coordinates differ by (2a-1) m times this at the most.

    Args:
      noise: The sum of the noise of all clients, in grid steps.
    """
    return noise.oscillation() + _SMOOTHING_DISTANCE


def is_covered(
    noise: ratio_moments.Noise, max_coordinate: float, sampled_dimension: int = 0
) -> bool:
    """Returns whether `rounded_rate` has a bound for coordinates of that length.

    Args:
      noise: As for `rounded_rate`.
      max_coordinate: As for `rounded_rate`.
      sampled_dimension: Length of the vector where clients are sampled; 0 where they
        are not.
    """
    if max_coordinate <= 1 or not sampled_dimension:
        return True
    gaussian = _smoothed_variance(noise) >= ratio_moments.GAUSSIAN_STDDEV**2
    distance = sampled_dimension * distance_from_gaussian(noise)
    return gaussian and distance <= _MOST_DISTANCE


def _smoothed_variance(noise: ratio_moments.Noise) -> float:
    """Returns the variance of the Gaussian that such noise is made from."""
    return noise.variance - _SMOOTHING


def _shift_rate(
    orders: np.ndarray, noise: ratio_moments.Noise, steps: int
) -> np.ndarray:
    """Returns bounds on D_a(v)/v^2 for whole shifts v up to `steps`; [m]."""
    if isinstance(noise, ratio_moments.SkellamNoise):
        return skellam.skellam_rate(orders, noise.variance, steps).rate
    return discrete_gaussian.discrete_gaussian_rate(
        orders, noise.count, noise.stddev, steps
    ).rate


def rounded_rate(
    orders: events.Orders,
    noise: ratio_moments.Noise,
    max_coordinate: float,
    *,
    sampled: bool = False,
) -> noise_events.DivergenceRate:
    """Returns a bound on F_a(x)/x^2, 0 < x <= max_coordinate, for rounding and noise.

    Args:
      orders: Renyi orders, each greater than 1; shape [m].
      noise: `ratio_moments.DiscreteGaussianNoise` or `SkellamNoise`: the sum of the
        noise of all clients, in grid steps.
      max_coordinate: X, the largest size of a coordinate before it is rounded, in grid
        steps; greater than 0.
      sampled: Whether the rates at whole orders are to go into the binomial sum for
        clients that join at random, as `mirrored.poisson_sampled_rdp` does. If
        `max_coordinate` exceeds 1, what `distance_from_gaussian` says is to be added.

    Returns:
      The rates, shape [m], and the route: 'fourier', 'gaussian' or 'composed', as
      `ratio_moments` has them. A vector of L2 norm at most c, with coordinates at most
      X g in size, rounded to multiples of g, has a Renyi divergence of at most
      (c/g)^2 times the rate, in both directions.

    Raises:
      ValueError: an argument is out of its range, or, with `sampled`,
        `max_coordinate` exceeds 1 and the noise is not very close to a discrete
        Gaussian with a variance of at least 66 squared steps.
    """
    alphas = checks.orders(orders)
    top = checks.positive("max_coordinate", max_coordinate)
    checks.boolean("sampled", sampled)
    if not is_covered(noise, top, int(sampled)):
        raise ValueError(
            "max_coordinate must be at most 1 grid step where clients are sampled "
            f"under {noise}, found {top:g}"
        )
    if sampled and top > 1:
        # N_Z(0, s^2) is all but a post-processing of a Gaussian of variance s^2 - 2,
        # whose moments at whole orders are those of N_Z(0, s^2 - 2).
        stddev = math.sqrt(_smoothed_variance(noise))
        noise = ratio_moments.DiscreteGaussianNoise(1, stddev)
    return noise_events.DivergenceRate(
        *_rounded_rate(tuple(alphas.tolist()), noise, top)
    )


# Orders above which the terms that a fractional order omits are not looked at.
_MOST_CORRECTED = 16.0
# Floats of one block of terms.
_BLOCK = 1 << 20


def _log_binomials(orders: np.ndarray, size: int) -> np.ndarray:
    """Returns log |C(a, l)|, l = 0 .. size - 1, and -inf where it is 0; [m, size]."""
    a, l = orders[:, None], np.arange(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = special.gammaln(a + 1) - special.gammaln(l + 1)
        # |Gamma(a - l + 1)|, which is infinite where C(a, l) is 0.
        return np.where(
            (a == np.floor(a)) & (l > a), -np.inf, logs - special.gammaln(a - l + 1)
        )


class Excess:
    """Bounds from above on h(x)/x^2 at given orders, by moments."""

    def __init__(self, moments: ratio_moments.RatioMoments, orders: np.ndarray):
        if not moments.paired:
            # 1 + h rises in the order; these would omit terms of unknown sign.
            long = np.ceil(orders) + 2 >= moments.log_moments.size
            orders = np.where(long, np.ceil(orders), orders)
        self._moments = moments
        self._orders = orders
        self._ceiling = np.ceil(orders).astype(np.int64)
        self._size = moments.log_moments.size
        binomials = _log_binomials(orders, self._size)
        self._logs = binomials + moments.log_moments
        self._tail = moments.log_tail(orders)
        self._rest = moments.log_rest_of(self._ceiling)

    def log_at(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns log bounds on h(x)/x^2.

        Args:
          x: In [0, 1], one row for each order asked for; shape [m, p].
          rows: Which orders these are; shape [m].
        """
        log_x = np.log(np.maximum(x, 1e-200))
        result = np.empty(x.shape)
        ceiling = self._ceiling[rows]
        edges = [0, 8, 16, 32, 64, 128, 256, 512, 1 << 30]
        for low, high in zip(edges, edges[1:]):
            part = np.nonzero((ceiling > low) & (ceiling <= high))[0]
            if part.size:
                result[part] = self._polynomial(rows[part], log_x[part])
        rest = self._rest[rows, None] + (self._size - 2) * log_x
        result = np.logaddexp(result, rest)
        self._add_omitted_terms(result, log_x, rows)
        return np.logaddexp(result, self._tail[rows, None])

    def _polynomial(self, rows: np.ndarray, log_x: np.ndarray) -> np.ndarray:
        size = min(self._size, int(self._ceiling[rows].max()) + 1)
        l = np.arange(2, size)
        kept = l <= self._ceiling[rows, None]
        logs = np.where(kept, self._logs[rows, 2:size], -np.inf)
        result = np.empty(log_x.shape)
        step = max(1, _BLOCK // (log_x.shape[1] * l.size))
        for start in range(0, rows.size, step):
            part = slice(start, start + step)
            terms = logs[part, None, :] + (l - 2) * log_x[part, :, None]
            result[part] = log_space.log_sum_exp(terms)
        return result

    def _omitted(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns which rows omit terms, the first such l, and if two more may count.

        At a fractional order the first term left out is negative, the next positive.
        """
        fractional = self._orders[rows] != self._ceiling[rows]
        first = self._ceiling[rows] + 1
        index = np.nonzero(fractional & (first + 1 < self._size))[0]
        first, a = first[index], self._orders[rows[index]]
        known = (first % 2 == 0) | (self._moments.paired & (a >= (first + 3) / 2))
        return index, first, known

    def _add_omitted_terms(
        self, result: np.ndarray, log_x: np.ndarray, rows: np.ndarray
    ) -> None:
        """Adds the next two terms, in place, where the sum is still a bound.

        Moments that are not those of a ratio may lack a sign at odd l; what they can
        add is at most |C(a,l)| (l/a) x^l sqrt(m_(l-1) m_(l+1)).
        """
        index, first, known = self._omitted(rows)
        if not index.size:
            return
        at, log_x = rows[index], log_x[index]
        negative = self._logs[at, first][:, None] + (first[:, None] - 2) * log_x
        positive = self._logs[at, first + 1][:, None] + (first[:, None] - 1) * log_x
        change = np.exp(np.minimum(positive - negative, 1.0)) - 1
        change *= np.exp(np.minimum(negative - result[index], 0.0))
        known &= ~self.positive(at)
        change = np.where(known[:, None], np.clip(change, -0.5, 0.0), 0.0)
        result[index] += np.log1p(change)
        if not self._moments.paired:
            moments = self._moments.log_moments
            slack = (moments[first - 1] + moments[first + 1]) / 2 - moments[first]
            slack += np.log(first / self._orders[at])
            slack = np.where(first % 2 == 1, slack, -np.inf)
            result[index] = np.logaddexp(result[index], slack[:, None] + negative)

    def positive(self, rows: np.ndarray) -> np.ndarray:
        """Returns whether h is bounded by a polynomial without negative terms; [m]."""
        whole = self._orders[rows] == self._ceiling[rows]
        return whole | (self._orders[rows] > _MOST_CORRECTED)

    def doubt(self, x: float) -> np.ndarray:
        """Returns about how far above the truth the bounds are at x, relative; [m]."""
        rows = np.arange(self._orders.size)
        index, first, known = self._omitted(rows)
        at = self.log_at(np.full((rows.size, 1), x), rows)[index, 0]
        omitted = self._logs[index, first] + (first - 2) * math.log(x) - at
        after = self._logs[index, first + 1] + (first - 1) * math.log(x) - at
        result = np.zeros(rows.size)
        # Under hardly any noise the doubt may be beyond all floats.
        with np.errstate(over="ignore"):
            result[index] = np.exp(np.where(known, np.minimum(omitted, after), omitted))
        return result


class DirectExcess:
    """The same at fractional orders by direct sums over a table; see `Excess`."""

    def __init__(self, moments: ratio_moments.RatioMoments, orders: np.ndarray):
        self._log_pmf, self._log_ratio = moments.table()
        self._orders = orders
        self._tail = moments.log_tail(orders)
        self._limit = np.log(orders * (orders - 1) / 2) + moments.log_moments[2]

    def positive(self, rows: np.ndarray) -> np.ndarray:
        """See `Excess`."""
        return np.zeros(rows.size, dtype=bool)

    def log_at(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """See `Excess`."""
        ratio = self._log_ratio
        log_rise = ratio + np.log(-np.expm1(-ratio))  # log(r - 1)
        log_fall = np.log(-np.expm1(-ratio))  # log(1 - 1/r)
        result = np.empty(x.shape)
        for i, row in enumerate(rows.tolist()):
            order = float(self._orders[row])
            log_x = np.log(np.maximum(x[i], 1e-9))[:, None]
            pairs = np.logaddexp(
                _log_convex(order, log_x + log_rise, 1.0),
                _log_convex(order, np.minimum(log_x + log_fall, 0.0), -1.0) + ratio,
            )
            sums = log_space.log_sum_exp(self._log_pmf + pairs) - 2 * log_x[:, 0]
            sums = np.logaddexp(sums, self._tail[row])
            result[i] = np.where(x[i] < 1e-9, self._limit[row], sums)
        return result + 1e-11


def _log_convex(order: float, log_size: np.ndarray, sign: float) -> np.ndarray:
    """Returns log((1 + y)^a - 1 - a y) for y = sign exp(log_size) > -1."""
    small = log_size < -4.6
    y = sign * np.exp(np.where(small, log_size, -4.6))
    series = np.ones(y.shape)
    for l in range(8, 2, -1):
        series = 1 + series * y * (order - l + 1) / l
    near = np.log(series * order * (order - 1) / 2) + 2 * log_size
    large = np.where(small, 0.0, log_size)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        if sign > 0:
            power = order * np.logaddexp(0.0, large)
            line = np.logaddexp(0.0, math.log(order) + large)
            far = power + np.log(-np.expm1(line - power))
        else:
            size = np.exp(large)
            far = np.log(np.power(1 - size, order) - 1 + order * size)
    return np.where(small, near, far)
