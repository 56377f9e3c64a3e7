# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Renyi divergences of summed discrete Gaussian noise, exactly.

Let f_n be the n-fold sum of N_Z(0, sigma^2) and s^2 = n sigma^2. Then
f_n(x) = exp(-x^2 / (2 s^2)) exp(phi_n(x)) / Z with phi_n of period n and even, and,
u_n being exp(phi_n), the convolution is

    u_{a+b}(x) = sum_y exp(-(y - a x/(a+b))^2 (a+b) / (2 a b sigma^2)) u_a(y) u_b(x-y).

So n numbers describe every tail exactly. Every term is positive and of moderate
size, nothing cancels and nothing underflows. (An FFT would put noise of relative
size 1e-16 of the mode in the tails, which the order alpha then magnifies.)

`docs/privacy/integer_noise.md` has the proofs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from dpfl import checks
from dpfl.accounting import events, log_space
from dpfl.accounting.integer import noise_events, ratio_moments, tilted_fourier

# Terms of one convolution above which the n-fold sum is not convolved any more.
_MAX_CONVOLUTION_TERMS = 20_000_000
# Shares above which probabilities of their sum come by Fourier sums.
_MOST_CONVOLVED = 1000
# As above for a part of the shares, which bounds them all only loosely.
_MAX_PART_TERMS = 500_000
# Terms handled at once by a vectorised sum: bounds the memory.
_CHUNK_TERMS = 2_000_000
# Shares of which the oscillation bound is summed one by one, and by how much the next
# ones are apart of which it is computed.
_EVERY_SUMMAND = 200
_NODE_RATIO = 1.02
# Shifts evaluated one by one; larger ones are covered by proven remainders.
_MAX_SHIFTS = 256


def _log_theta_oscillation(variance: np.ndarray | float) -> np.ndarray:
    """Returns log max/min, in t, of sum_y exp(-(y - t)^2 / (2 variance)), y integer.

    The largest value is at t = 0 and the smallest at t = 1/2. From the product form
    of the theta functions, with nome p = exp(-2 pi^2 variance), the log ratio is
    4 sum_k atanh(p^(2k-1)); below variance 0.05 the sums themselves converge at once.
    """
    variance = np.asarray(variance, dtype=np.float64)
    wide = np.maximum(variance, 0.05)[..., None]
    odd = np.arange(1, 41, 2)
    product = 4 * np.sum(np.arctanh(np.exp(-2 * np.pi**2 * wide * odd)), axis=-1)
    narrow = np.minimum(variance, 0.05)
    at_zero = np.log1p(2 * np.exp(-1 / (2 * narrow)))
    at_half = math.log(2) - 1 / (8 * narrow) + np.log1p(np.exp(-1 / narrow))
    # The terms left out of the narrow form are below exp(-30).
    return np.where(variance >= 0.05, product, at_zero - at_half + 1e-12)


def log_oscillation_bound(count: int, stddev: float) -> float:
    """Returns a closed bound on max - min of phi_n of the n-fold discrete Gaussian.

    Adding one share to k multiplies u_k's range by the range of a theta function of
    variance sigma^2 k / (k + 1), so the oscillation is at most their sum. It is of
    the form of the tau in Kairouz et al. 2021, Theorem 1 (there with a constant 10
    where this has about 4), and small once sigma is about 1.5 grid steps.

    Args:
      count: Number n of independent noise shares, at least 1.
      stddev: sigma of one share, in grid steps.

    Returns:
      The bound, in nats; 0 for one share.
    """
    count = checks.integer("count", count)
    variance = checks.positive("stddev", stddev) ** 2
    if count == 1:
        return 0.0
    shares = _summand_nodes(count)
    every = _log_theta_oscillation(variance * shares / (shares + 1))
    # Both ends of a chord, and as much of it between them as there are shares there.
    between = np.diff(shares) - 1
    return float(np.sum(every) + np.sum(between * (every[:-1] + every[1:])) / 2)


@functools.lru_cache(maxsize=32)
def _summand_nodes(count: int) -> np.ndarray:
    """Returns the k among 1..count-1 at which a share's range is computed, as float64.

    The log of the range is convex in k, since atanh(exp(-c t)) is convex in t and falls
    and t = sigma^2 k / (k + 1) is concave in k; those between two nodes are therefore
    on average at most the mean of the two.
    """
    few = np.arange(1, min(count, _EVERY_SUMMAND), dtype=np.float64)
    if count <= _EVERY_SUMMAND:
        return few
    number = 1 + math.ceil(math.log((count - 1) / few[-1]) / math.log(_NODE_RATIO))
    more = np.rint(np.geomspace(few[-1], count - 1, number + 1))
    return np.unique(np.concatenate([few, more]))


@dataclasses.dataclass(frozen=True, eq=False)
class _Profile:
    """phi_n on its period, not normalised, with bounds on its numerical error."""

    values: np.ndarray  # shape [n]
    error: float  # largest absolute error of a value, relative to phi_1 = 0
    _repeated: list[np.ndarray] = dataclasses.field(default_factory=list)

    def windows(self, starts: np.ndarray, width: int) -> np.ndarray:
        """Returns phi_n at `width` integers from each start on; [starts, width]."""
        n = self.values.size
        # Another thread may put a shorter one there meanwhile.
        repeated = self._repeated[0] if self._repeated else self.values
        if repeated.size < n + width:
            repeated = np.resize(self.values, n + 2 * width)
            self._repeated[:] = [repeated]
        windows = np.lib.stride_tricks.sliding_window_view(repeated, width)
        return windows[starts % n]


def _combine_radius(
    first: _Profile, second: _Profile, variance: float
) -> tuple[int, float]:
    """Returns the convolution window's half width, and its Gaussian's variance."""
    a, b = first.values.size, second.values.size
    width = variance * a * b / (a + b)
    swing = float(np.ptp(first.values) + np.ptp(second.values))
    # The term next to the centre is at least exp(-1/(8 width)) times the smallest.
    needed = (
        swing + 0.125 / width + noise_events.LOG_TAIL + math.log1p(math.sqrt(width))
    )
    return math.ceil(math.sqrt(2 * width * needed)) + 2, width


def _combine(first: _Profile, second: _Profile, variance: float) -> _Profile:
    """Returns the profile of a + b shares from theirs by the module's formula."""
    a, b = first.values.size, second.values.size
    n = a + b
    radius, width = _combine_radius(first, second, variance)
    offsets = np.arange(-radius, radius + 1)
    half = np.empty(n // 2 + 1)
    step = max(1, _CHUNK_TERMS // offsets.size)
    for start in range(0, half.size, step):
        x = np.arange(start, min(start + step, half.size))[:, None]
        centre = a * x / n
        y = np.rint(centre).astype(np.int64) + offsets
        terms = -((y - centre) ** 2) / (2 * width)
        terms += first.values[y % a] + second.values[(x - y) % b]
        half[start : start + step] = log_space.log_sum_exp(terms)
    values = np.concatenate([half, half[1 : n - half.size + 1][::-1]])
    rounding = noise_events.EPSILON * (16.0 + 4.0 * float(np.max(np.abs(values))))
    return _Profile(values, first.error + second.error + rounding)


@functools.lru_cache(maxsize=256)
def _profile(count: int, variance: float) -> _Profile:
    if count == 1:
        return _Profile(np.zeros(1), 0.0)
    half = count // 2
    profile = _combine(
        _profile(half, variance), _profile(count - half, variance), variance
    )
    profile.values.setflags(write=False)
    return profile


@functools.lru_cache(maxsize=64)
def _fourier_profile(count: int, variance: float) -> _Profile:
    """Returns the profile from the probabilities of half a period; see tilted_fourier.

    It costs far less than a convolution where there are many shares, and knows values
    to twelve digits or so in place of fourteen.
    """
    half = count // 2
    law = tilted_fourier.summed_discrete_gaussian(count, math.sqrt(variance))
    pmf = law.log_pmf(half)
    square = np.square(np.arange(half + 1, dtype=np.float64)) / (2 * count * variance)
    rounding = 4 * noise_events.EPSILON * (square + np.abs(pmf.values))
    error = float(np.max(pmf.error + rounding))
    values = pmf.values + square
    values -= values[0]
    values = np.concatenate([values, values[1 : count - half][::-1]])
    values.setflags(write=False)
    return _Profile(values, 2 * error)


def _convolution_terms(count: int, variance: float) -> float:
    """Returns an upper estimate of the terms in the last convolution of `_profile`."""
    # phi_a spans at most a / (8 sigma^2), and at most its oscillation bound.
    swing = min(
        count / (8 * variance), log_oscillation_bound(count, math.sqrt(variance))
    )
    radius = math.sqrt(variance * count * (swing + noise_events.LOG_TAIL + 10) / 2) + 3
    return count * radius


@functools.lru_cache(maxsize=256)
def _affordable_count(count: int, variance: float, terms: int) -> int:
    """Returns the most shares, up to `count`, that are convolved in so many terms."""
    if _convolution_terms(count, variance) <= terms:
        return count
    low, high = 1, count
    while high - low > 1:
        middle = (low + high) // 2
        fits = _convolution_terms(middle, variance) <= terms
        low, high = (middle, high) if fits else (low, middle)
    return low


def _log_normaliser(profile: _Profile, variance: float) -> float:
    """Returns the log of sum_x exp(-x^2 / (2 s^2)) u_n(x), truncated from below."""
    n = profile.values.size
    total = n * variance
    radius = (
        math.ceil(
            math.sqrt(2 * total * (noise_events.LOG_TAIL + np.ptp(profile.values)))
        )
        + 2
    )
    x = np.arange(-radius, radius + 1)
    return float(log_space.log_sum_exp(-(x**2) / (2 * total) + profile.values[x % n]))


def summed_discrete_gaussian_log_pmf(
    x: Sequence[int] | np.ndarray, count: int, stddev: float
) -> np.ndarray:
    """Returns log-probabilities of the sum of `count` independent N_Z(0, stddev^2).

    Exact at any distance from the mean, however small the probability.

    Args:
      x: Integers, in grid steps; any shape.
      count: Number n of independent noise shares, at least 1.
      stddev: sigma of one share, in grid steps.

    Returns:
      float64 array of x's shape, in nats.

    Raises:
      ValueError: `count` is too large to be convolved for this `stddev`.
    """
    count = checks.integer("count", count)
    variance = checks.positive("stddev", stddev) ** 2
    most = _affordable_count(count, variance, _MAX_CONVOLUTION_TERMS)
    if most < count:
        raise ValueError(
            f"count must be at most {most} for an exact convolution at stddev"
            f" {stddev!r}, found {count!r}"
        )
    profile = _profile(count, variance)
    x = np.asarray(x, dtype=np.int64)
    gaussian = -(x.astype(np.float64) ** 2) / (2 * count * variance)
    return gaussian + profile.values[x % count] - _log_normaliser(profile, variance)


def discrete_gaussian_log_pmf(
    x: Sequence[int] | np.ndarray, stddev: float
) -> np.ndarray:
    """Returns log-probabilities of N_Z(0, stddev^2); see Canonne et al. 2020."""
    return summed_discrete_gaussian_log_pmf(x, 1, stddev)


def _log_gaussian_tail(variance: float, radius: float) -> float:
    """Returns a log bound on the sum of exp(-t^2 / (2 variance)), |t| >= radius.

    The points t are those of a shifted integer grid. On either side the sum is at
    most a geometric series that starts at the radius.
    """
    ratio = math.exp(-radius / variance)
    return math.log(2) - radius**2 / (2 * variance) - math.log1p(-ratio)


def _rises(profile: _Profile, shifts: np.ndarray) -> np.ndarray:
    """Returns the most that phi_n rises over each shift; shape of `shifts`."""
    n = profile.values.size
    earlier = (profile.windows(np.array([-v]), n)[0] for v in shifts)
    return np.array([np.max(values - profile.values) for values in earlier])


def _log_excess(
    order: float,
    shifts: np.ndarray,
    rise: np.ndarray,
    profile: _Profile,
    variance: float,
) -> np.ndarray:
    """Returns (alpha - 1) D_alpha(v) without its Gaussian part, from above.

    With t = x - alpha v,
      (alpha-1) D_alpha(v) = alpha (alpha-1) v^2 / (2 s^2)
        + log sum_x exp(-t^2 / (2 s^2)) u(x-v)^alpha u(x)^(1-alpha) - log Z.
    """
    total = profile.values.size * variance
    # Most that u(x-v)^alpha u(x)^(1-alpha) can be, for the omitted tails.
    log_most = np.max(profile.values) + (order - 1) * rise
    spread = float(np.max(log_most) - np.min(profile.values))
    radius = (
        math.ceil(math.sqrt(2 * total * (noise_events.LOG_TAIL + max(spread, 0.0)))) + 2
    )
    tail = log_most + _log_gaussian_tail(total, radius - 1)
    result = np.empty(shifts.size)
    offsets = np.arange(-radius, radius + 1)
    step = max(1, _CHUNK_TERMS // offsets.size)
    for start in range(0, shifts.size, step):
        v = shifts[start : start + step]
        centre = np.rint(order * v).astype(np.int64)
        terms = np.square((centre - order * v)[:, None] + offsets) / (-2 * total)
        first = centre - radius
        terms += order * profile.windows(first - v, offsets.size)
        terms -= (order - 1) * profile.windows(first, offsets.size)
        result[start : start + step] = log_space.log_sum_exp(terms)
    result = np.logaddexp(result, tail) - _log_normaliser(profile, variance)
    size = float(np.max(np.abs(profile.values)))
    return result + order * (
        2 * profile.error + noise_events.EPSILON * (100.0 + 4.0 * size)
    )


def _shift_blocks(max_shift: int) -> list[np.ndarray]:
    """Returns the shifts 1..max_shift in growing blocks, no more than `_MAX_SHIFTS`."""
    edges = [1, 5, 17, 65, _MAX_SHIFTS + 1]
    last = min(max_shift, _MAX_SHIFTS) + 1
    blocks = [np.arange(lo, min(hi, last)) for lo, hi in zip(edges, edges[1:])]
    return [block for block in blocks if block.size]


def _convolved_rates(
    orders: np.ndarray, profile: _Profile, variance: float, max_shift: int
) -> np.ndarray:
    """Returns the rates at all orders, as `DivergenceRate` defines them, exactly."""
    gaussian = orders / (2 * profile.values.size * variance)
    # log_excess(v) is at most alpha times the oscillation, whatever v: the remainder.
    most = orders * (float(np.ptp(profile.values)) + 4 * profile.error)
    best = np.full(orders.size, -np.inf)
    left = np.arange(orders.size)
    for block in _shift_blocks(max_shift):
        rise = _rises(profile, block)
        squares = block.astype(np.float64) ** 2
        for i in left.tolist():
            excess = _log_excess(float(orders[i]), block, rise, profile, variance)
            best[i] = max(best[i], float(np.max(excess / squares)))
        last = int(block[-1])
        if last == max_shift:
            return gaussian + best / (orders - 1)
        remainder = most / (last + 1) ** 2
        tolerance = noise_events.RATE_TOLERANCE * (orders - 1) * gaussian
        done = left[remainder[left] <= np.maximum(best, tolerance)[left]]
        best[done] = np.maximum(best, remainder)[done]
        left = np.setdiff1d(left, done)
    best[left] = np.maximum(best, remainder)[left]
    return gaussian + best / (orders - 1)


@functools.lru_cache(maxsize=1024)
def _discrete_gaussian_rate(
    orders: tuple[float, ...], count: int, variance: float, max_shift: int
) -> tuple[np.ndarray, str]:
    alphas = np.array(orders)
    swing = log_oscillation_bound(count, math.sqrt(variance))
    exact_count = 0
    # Below this, knowing phi exactly could not change eleven digits of the rate.
    if swing > 1e-11 / (2 * count * variance):
        exact_count = count
        if _convolution_terms(count, variance) > _MAX_CONVOLUTION_TERMS:
            noise = ratio_moments.DiscreteGaussianNoise(count, math.sqrt(variance))
            swing = min(swing, noise.oscillation())
            exact_count = _affordable_count(count, variance, _MAX_PART_TERMS)
    rate = alphas / (2 * count * variance) + alphas * swing / (alphas - 1)
    route = "oscillation"
    if exact_count:
        # More shares are a post-processing of fewer, so fewer bound them from above.
        make = _fourier_profile if exact_count > _MOST_CONVOLVED else _profile
        profile = make(exact_count, variance)
        exact = _convolved_rates(alphas, profile, variance, max_shift)
        if exact_count == count or np.any(exact < rate):
            route = "convolution"
        rate = np.minimum(rate, exact)
    rate.setflags(write=False)
    return rate, route


def discrete_gaussian_rate(
    orders: events.Orders, count: int, stddev: float, max_shift: int
) -> noise_events.DivergenceRate:
    """Returns a bound on D_alpha(v) / v^2, 1 <= v <= max_shift, for the summed noise.

    Exact (by `convolution`) where the convolution is affordable; the closed-form
    `oscillation` bound where it is not or where the two agree to eleven digits. For
    one share this is alpha / (2 sigma^2) (Canonne et al. 2020, Proposition 5).

    Args:
      orders: Renyi orders, each greater than 1; shape [m].
      count: Number n of independent noise shares in the sum, at least 1.
      stddev: sigma of one share, in grid steps.
      max_shift: Largest shift of a coordinate, in grid steps, at least 1.

    Returns:
      The rates, shape [m], and the route that gave them.

    Raises:
      ValueError: an argument is out of its range.
    """
    alphas = checks.orders(orders)
    count = checks.integer("count", count)
    variance = checks.positive("stddev", stddev) ** 2
    max_shift = checks.integer("max_shift", max_shift)
    return noise_events.DivergenceRate(
        *_discrete_gaussian_rate(tuple(alphas.tolist()), count, variance, max_shift)
    )
