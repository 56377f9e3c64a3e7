# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Renyi divergences between summed integer noise and a whole shift of it, exactly.

    noise = summed_noise.DiscreteGaussianNoise(10, 1.5)  # of 10 clients
    rate = shift_rate([2.0, 4.0], noise, max_shift=3)  # max over v of D_a(v) / v^2

Let f_n be the n-fold sum of N_Z(0, sigma^2) and s^2 = n sigma^2. Then
f_n(x) = exp(-x^2 / (2 s^2)) u_n(x) where u_n has period n and is even. So n numbers
describe every tail exactly: those of half a period, by `summed_noise`. Nothing cancels
and nothing underflows. (An FFT would put noise of relative size 1e-16 of the mode in
the tails, which the order alpha then magnifies.)

Skellam noise of variance mu is the difference of two Poisson variables of mean mu / 2
each, and a sum of Skellam noise is again Skellam. Where the noise is large the
published bound is practically exact and is used instead.

`docs/privacy/integer_noise.md` has the proofs.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from dpfl import checks
from dpfl.accounting import bisection, events, log_space
from dpfl.accounting.integer import summed_noise
from dpfl.accounting.log_space import EPSILON

# Log of the largest relative part missing from a truncated sum, before its bound is
# added.
_LOG_TAIL = 45.0
# A remainder this close to the largest rate found ends the search over shifts.
_RATE_TOLERANCE = 1e-3
# Discrete Gaussian shares up to which the sum itself is used, and those of parts of it,
# which are upper bounds: loose, but with smaller remainders of large shifts.
_MOST_SHARES = 30_000
_PARTS = (1_400, 1_640, 2_000, 2_450, 2_800)
# Terms of a vectorised sum at a time, to bound the memory.
_CHUNK_TERMS = 2_000_000
# Shifts evaluated one by one; larger ones are covered by proven remainders.
_MAX_SHIFTS = 256
# Largest table of Skellam log-probabilities.
_MAX_SKELLAM_TABLE = 1 << 20
# Skellam shifts evaluated one by one; of larger ones only every tenth part is.
_SINGLE_SHIFTS = 32
# Up to this total variance the exact rate soon falls in v, also at fractional orders.
_SMALL_SKELLAM = 50.0
# At this total variance Skellam's published bound is within 1e-4 of the Gaussian one
# at whole orders, and the exact sum would be long.
_NEARLY_GAUSSIAN_SKELLAM = 25_000.0


def shift_rate(
    orders: events.Orders, noise: summed_noise.Noise, max_shift: int
) -> np.ndarray:
    """A bound on D_alpha(v) / v^2 over whole shifts 1 <= v <= max_shift, in nats; [m].

    For discrete Gaussian noise it is exact up to 30000 shares, except for a remainder
    of shifts above 256, and for more the smaller of the closed form of Theorem 3 and of
    the bound by some 2000 shares. The closed form is also used where it has eleven
    digits. For one share it is alpha / (2 sigma^2) (Canonne et al. 2020, Proposition
    5).

    For Skellam noise it is exact up to a total variance of 25000, then published
    (within 1e-4 there at whole orders). Shifts up to 32 are evaluated one by one.
    D_alpha(v) does not fall in v, so that one evaluation covers a gap of larger ones;
    and the published bound over v^2 falls in v, and covers all remaining shifts once it
    is small enough. With shifts above 32 and a variance above 50, fractional orders
    are chords.

    Args:
      orders: Renyi orders, each greater than 1; shape [m].
      noise: The sum of all noise.
      max_shift: Largest shift of a coordinate, in grid steps, at least 1.

    Raises:
      ValueError: an argument is out of its range.
    """
    alphas = tuple(checks.orders(orders).tolist())
    max_shift = checks.integer("max_shift", max_shift)
    if isinstance(noise, summed_noise.DiscreteGaussianNoise):
        return _discrete_gaussian_rate(alphas, noise, max_shift)
    return _skellam_rate(alphas, noise.variance, max_shift)


class _Profile:
    """log u_n on its period."""

    def __init__(self, noise: summed_noise.DiscreteGaussianNoise):
        half, errors = noise.half_profile()
        n = noise.count
        self.variance = noise.variance
        self.values = np.concatenate([half, half[1 : n - half.size + 1][::-1]])
        self.error = float(np.max(errors))

    def windows(self, starts: np.ndarray, width: int) -> np.ndarray:
        """Values at `width` integers from each start on; [starts, width]."""
        repeated = np.resize(self.values, self.values.size + width)
        windows = np.lib.stride_tricks.sliding_window_view(repeated, width)
        return windows[starts % self.values.size]


def _rises(profile: _Profile, shifts: np.ndarray) -> np.ndarray:
    """The largest rise of log u_n over each shift; shape of `shifts`."""
    n = profile.values.size
    earlier = (profile.windows(np.array([-v]), n)[0] for v in shifts)
    return np.array([np.max(values - profile.values) for values in earlier])


def _log_excess(
    order: float, shifts: np.ndarray, rise: np.ndarray, profile: _Profile
) -> np.ndarray:
    """Upper bounds on (alpha - 1) D_alpha(v) without its Gaussian part.

    With t = x - alpha v,
      (alpha-1) D_alpha(v) = alpha (alpha-1) v^2 / (2 s^2)
        + log sum_x exp(-t^2 / (2 s^2)) u(x-v)^alpha u(x)^(1-alpha).
    """
    # Bound on u(x-v)^alpha u(x)^(1-alpha), for the omitted tails.
    log_most = np.max(profile.values) + (order - 1) * rise
    spread = float(np.max(log_most) - np.min(profile.values))
    within = 2 * profile.variance * (_LOG_TAIL + max(spread, 0.0))
    edge = math.ceil(math.sqrt(within)) + 1
    # On either side the tail is at most a geometric series that starts at the edge.
    tail = log_most + math.log(2) - edge**2 / (2 * profile.variance)
    tail -= math.log1p(-math.exp(-edge / profile.variance))
    radius = edge + 1
    result = np.empty(shifts.size)
    offsets = np.arange(-radius, radius + 1)
    step = max(1, _CHUNK_TERMS // offsets.size)
    for start in range(0, shifts.size, step):
        v = shifts[start : start + step]
        centre = np.rint(order * v).astype(np.int64)
        squares = np.square((centre - order * v)[:, None] + offsets)
        terms = squares / (-2 * profile.variance)
        first = centre - radius
        terms += order * profile.windows(first - v, offsets.size)
        terms -= (order - 1) * profile.windows(first, offsets.size)
        result[start : start + step] = log_space.log_sum_exp(terms)
    size = float(np.max(np.abs(profile.values)))
    allowance = 2 * profile.error + EPSILON * (100.0 + 4.0 * size)
    return np.logaddexp(result, tail) + order * allowance


def _exact_rates(
    orders: np.ndarray, noise: summed_noise.DiscreteGaussianNoise, max_shift: int
) -> np.ndarray:
    """The rates at all orders, exact except for a remainder of large shifts."""
    profile = _Profile(noise)
    gaussian = orders / (2 * noise.variance)
    # Remainder: log_excess(v) is at most alpha times the oscillation, for any v.
    most = orders * (float(np.ptp(profile.values)) + 4 * profile.error)
    best = np.full(orders.size, -np.inf)
    left = np.arange(orders.size)
    edges = [1, 5, 17, 65, _MAX_SHIFTS + 1]
    for low, high in zip(edges, edges[1:]):
        block = np.arange(low, min(high, max_shift + 1))
        rise = _rises(profile, block)
        squares = block.astype(np.float64) ** 2
        for i in left.tolist():
            excess = _log_excess(float(orders[i]), block, rise, profile)
            best[i] = max(best[i], float(np.max(excess / squares)))
        last = int(block[-1])
        if last == max_shift:
            return gaussian + best / (orders - 1)
        remainder = most / (last + 1) ** 2
        tolerance = _RATE_TOLERANCE * (orders - 1) * gaussian
        done = left[remainder[left] <= np.maximum(best, tolerance)[left]]
        best[done] = np.maximum(best, remainder)[done]
        left = np.setdiff1d(left, done)
    best[left] = np.maximum(best, remainder)[left]
    return gaussian + best / (orders - 1)


@functools.lru_cache(maxsize=1024)
def _discrete_gaussian_rate(
    orders: tuple[float, ...], noise: summed_noise.DiscreteGaussianNoise, max_shift: int
) -> np.ndarray:
    alphas = np.array(orders)
    swing = noise.oscillation()
    rate = alphas / (2 * noise.variance) + alphas * swing / (alphas - 1)
    # Below this the profile would not change eleven digits of the rate.
    if swing > 1e-11 / (2 * noise.variance):
        # More shares are a post-processing of fewer, whose rates are upper bounds.
        counts = {min(noise.count, part) for part in _PARTS}
        if noise.count <= _MOST_SHARES:
            counts.add(noise.count)
        for count in counts:
            part = summed_noise.DiscreteGaussianNoise(count, noise.stddev)
            rate = np.minimum(rate, _exact_rates(alphas, part, max_shift))
    rate.setflags(write=False)
    return rate


@functools.lru_cache(maxsize=16)
def _skellam_table(variance: float, size: int) -> summed_noise.LogPmf:
    return summed_noise.SkellamNoise(variance).log_pmf(size - 1)


def _skellam_log_pmf(k: np.ndarray, variance: float) -> summed_noise.LogPmf:
    k = np.abs(k)
    size = 1 << max(6, int(np.max(k)).bit_length())
    return summed_noise.LogPmf(*(table[k] for table in _skellam_table(variance, size)))


def _skellam_mode(order: float, shift: int, variance: float) -> float:
    """The approximate place of the Renyi sum's largest term, at most alpha v."""

    def rises(x: float) -> bool:
        own = order * math.asinh((x - shift) / variance)
        return (order - 1) * math.asinh(x / variance) > own

    # The mode only places a window: no more digits are needed.
    return sum(bisection.bisected(rises, shift, order * shift, steps=40)) / 2


def _geometric_rest(log_term: float, log_ratio: float) -> float:
    """Log of the sum of all terms after one, at most a geometric series."""
    return log_term + log_ratio - math.log(-math.expm1(log_ratio))


def _skellam_log_moment(order: float, shift: int, variance: float) -> float | None:
    """An upper bound on (alpha - 1) D_alpha(v); None if the table would be too long.

    T(x) = f(x-v)^alpha f(x)^(1-alpha). Ratios r_k = f(k+1)/f(k) lie between
    exp(-asinh((k+1)/mu)) and exp(-asinh(k/mu)) (Amos 1974), so that T(x+1)/T(x) has
    explicit bounds that fall in x for x >= (v-1)/2; and T(x) <= f(x) for x <= v/2.
    """
    mode = _skellam_mode(order, shift, variance)
    curvature = order / math.hypot(variance, mode - shift) - (order - 1) / math.hypot(
        variance, mode
    )
    width = math.ceil(math.sqrt(2 * _LOG_TAIL / curvature)) + 20
    if mode + 2 * width + shift >= _MAX_SKELLAM_TABLE:
        return None
    centre = round(mode)

    def terms(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        base = _skellam_log_pmf(x, variance)
        shifted = _skellam_log_pmf(x - shift, variance)
        values = base.values + order * (shifted.values - base.values)
        return values, order * shifted.error + (order - 1) * base.error

    def log_ratio(x: int, shifted: int) -> float:
        return (order - 1) * math.asinh(x / variance) - order * math.asinh(
            shifted / variance
        )

    last = centre + width
    while log_ratio(last + 1, last - shift) > -1 / width:
        last += width
        if last + shift >= _MAX_SKELLAM_TABLE:
            return None
    first = centre - width
    log_ratio_below = log_ratio(first - 1, first - shift)
    peak = float(terms(np.array([centre]))[0][0])
    bulk = math.ceil(math.sqrt(2 * _LOG_TAIL * variance)) + 2 * math.ceil(_LOG_TAIL)
    separate = first > shift and peak > _LOG_TAIL and log_ratio_below > 0
    x = np.arange(first if separate else min(first, -bulk), last + 1)
    values, errors = terms(x)
    total = float(log_space.log_sum_exp(values))
    above = float(log_space.log_sum_exp(values + errors)) - total
    rest = _geometric_rest(float(values[-1]), log_ratio(last + 1, last - shift))
    total = float(np.logaddexp(total, rest))
    ends = _skellam_log_pmf(np.array([x[0], last]), variance)
    if separate:  # left of the window down to v/2, and at most 1 below that
        rest = _geometric_rest(float(values[0]), -log_ratio_below)
        total = float(np.logaddexp(np.logaddexp(total, rest), 0.0))
    else:  # T(x) <= f(x) there, and f's own tail is geometric
        rest = _geometric_rest(
            float(ends.values[0]), -math.asinh(-int(x[0]) / variance)
        )
        total = float(np.logaddexp(total, rest))
    depth = abs(float(ends.values[-1]))
    return total + max(2 * above, EPSILON * (100 + 8 * order * (1 + depth)))


def _skellam_rate_one(order: float, variance: float, max_shift: int) -> float:
    def published(v: int) -> float:
        return skellam_published_rdp(order, variance, float(v) ** 2, float(v)) / (v**2)

    best, last = 0.0, 0
    while last < max_shift:
        remainder = published(last + 1)
        if last and remainder <= best * (1 + _RATE_TOLERANCE):
            return max(best, remainder)
        # Every shift at first; later D_alpha(v) at the end of a gap covers the gap.
        step = 1 if last < _SINGLE_SHIFTS else max(1, last // 10)
        v = min(last + step, max_shift)
        moment = _skellam_log_moment(order, v, variance)
        if moment is None or last >= 1 << 14:
            return max(best, remainder)
        rate = min(moment / ((order - 1) * (last + 1) ** 2), remainder)
        best, last = max(best, rate), v
    return best


@functools.lru_cache(maxsize=1024)
def _skellam_rate(
    orders: tuple[float, ...], variance: float, max_shift: int
) -> np.ndarray:
    alphas = np.array(orders)
    if variance >= _NEARLY_GAUSSIAN_SKELLAM:
        # Divided by v^2 the published bound falls in v: v = 1 is the worst.
        return np.array([skellam_published_rdp(a, variance, 1.0, 1.0) for a in orders])
    direct = max_shift <= _SINGLE_SHIFTS or variance <= _SMALL_SKELLAM
    # The remainders are published bounds, which are best at whole orders.
    needed = np.unique(alphas) if direct else log_space.whole_orders(alphas)
    rates = np.array(
        [
            _skellam_rate_one(order, variance, max_shift) if order > 1 else 0.0
            for order in needed.tolist()
        ]
    )
    if direct:
        rate = rates[np.searchsorted(needed, alphas)]
    else:
        rate = log_space.chord(alphas, needed, (needed - 1) * rates) / (alphas - 1)
    rate.setflags(write=False)
    return rate


def skellam_published_rdp(
    order: float, variance: float, l2_squared: float, l1: float
) -> float:
    """The Renyi bound of Skellam noise (Agarwal et al. 2021, Theorem 3.5).

    The theorem is for integer orders. Between two of them this uses the chord of the
    log-moment (alpha - 1) D_alpha, which is convex in alpha and 0 at 1.

    Args:
      order: The Renyi order, greater than 1.
      variance: Total variance mu of the noise, in squared grid steps.
      l2_squared: Square of the L2 sensitivity, in squared grid steps.
      l1: The L1 sensitivity, in grid steps.
    """

    def log_moment(whole: int) -> float:
        first = ((2 * whole - 1) * l2_squared + 6 * l1) / (4 * variance**2)
        least = min(first, 3 * l1 / (2 * variance))
        return (whole - 1) * (whole * l2_squared / (2 * variance) + least)

    low = math.floor(order)
    share = order - low
    moment = log_moment(low)
    if share:
        moment = (1 - share) * moment + share * log_moment(low + 1)
    return moment / (order - 1)
