# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Moments of the likelihood ratio of a unit shift under summed integer noise.

With f the probabilities of the noise and r(k) = f(k-1)/f(k), these are

  m_l = E_f[(r - 1)^l] = sum_{k>=1} f(k) (r-1)^l (1 + (-1)^l r^(1-l)),

by pairing k with 1 - k, which exchanges f and its shift. No term is negative for l of
at least 2, so that bounds on f and r give bounds on the moments. They come by one of
three routes:

  'fourier': f from `summed_noise`, up to standard deviations of 1500 steps;
  'gaussian': where the oscillation of the discrete Gaussian's profile is negligible,
    the moments are those of the lognormal ratio of a Gaussian, by a quadrature that
    is exact to hundreds of digits;
  'composed': above 1500 steps otherwise, from those of a part of the noise. With a
    parts r - 1 is a conditional mean of the average of the a parts' own, so that by
    Jensen's inequality the moments of that average bound those of r - 1.

`Excess` is the bound that they give on the rounding of a coordinate x in (0, 1], which
is E_f[(1 + x (r - 1))^a] = 1 + h(x). `docs/privacy/rounding.md` has the proofs.
"""

from __future__ import annotations

import functools
import math

import attr
import numpy as np
from scipy import special

from dpfl.accounting import log_space
from dpfl.accounting.integer import summed_noise
from dpfl.accounting.log_space import EPSILON

GAUSSIAN_STDDEV = 8.0
"""Least standard deviation at which a Gaussian replaces the discrete one."""

# Largest standard deviation, in steps, of noise whose probabilities are tabulated.
_MAX_STDDEV = 1500.0
# Moments are computed in batches, at least one.
_BATCH = 32
# Log of the relative size at which a bound on the rest replaces higher moments.
_LOG_REST = -32.0
# Log of the mass that the table leaves out, over the squared inverse standard
# deviation.
_LOG_TAIL = 50.0
_GEOMETRIC = 1.02
# Orders above which the terms that a fractional order omits are not corrected for.
_MOST_CORRECTED = 16.0
# Floats of one block of terms.
_BLOCK = 1 << 20


@attr.s(frozen=True, auto_attribs=True, eq=False)
class RatioMoments:
    """Upper bounds on the moments m_l, for orders up to `top`.

    Attributes:
      route: 'fourier', 'gaussian' or 'composed'.
      top: A, the largest whole order.
      log_moments: log m_l at index l = 0, ..., L; -inf below 2. float64 [L + 1].
      log_rest: Log of a bound on sum_{l>L} C(A, l) m_l; -inf if L >= A.
      paired: Whether the moments are of r itself.
      tail_tilts: Bounds on the part beyond the table: sum_{k>K} f(k) r(k)^a is at most
        the sum of exp(a tail_tilts + tail_logs). float64 [t].
      tail_logs: See `tail_tilts`; float64 [t].
      log_pmf: Upper bounds on log f(k), k = 1, ..., K, by the route 'fourier'.
      log_ratio: Upper bounds on log r(k), likewise.
    """

    route: str
    top: int
    log_moments: np.ndarray
    log_rest: float
    paired: bool = True
    tail_tilts: np.ndarray = np.empty(0)
    tail_logs: np.ndarray = np.empty(0)
    log_pmf: np.ndarray = np.empty(0)
    log_ratio: np.ndarray = np.empty(0)

    def log_rest_of(self, orders: np.ndarray) -> np.ndarray:
        """Log bounds on sum_{l>L} C(a, l) m_l for whole orders a up to `top`.

        C(a, l) / C(A, l) falls in l.
        """
        first = self.log_moments.size
        if self.log_rest == -np.inf:
            return np.full(orders.size, -np.inf)
        part = log_space.log_binomials(orders, first) - log_space.log_binomials(
            self.top, first
        )
        return self.log_rest + part

    def log_tail(self, orders: np.ndarray) -> np.ndarray:
        """Log bounds on the contribution to h(x)/x^2 from beyond the table, x <= 1.

        For k above the table the pair k, 1 - k has at most x^2 f(k) (r^a + C r), where
        C = a (a-1)/2 and a is the order, at least 2; below 2, x^2 C 2 f(k) r^2.
        """
        if not self.tail_tilts.size:
            return np.full(orders.size, -np.inf)
        powers = np.maximum(orders, 2.0)[:, None]
        sums = log_space.log_sum_exp(powers * self.tail_tilts + self.tail_logs)
        factor = np.maximum(1.0, orders * (orders - 1) / 2)
        return sums + np.log(2 * np.where(orders < 2, factor * (orders - 1), factor))


class Tail:
    """Chernoff bounds on sum_{k>K} f(k) r(k)^a, for powers a up to `top`.

    Between the means of two tilts t < t', P(S >= mean) <= exp(log_moment - t mean), and
    r(k) <= exp(t') since a sum of Bernoullis whose mean is the integer k has its mode
    there (Darroch 1964). Tilts end where the rest is far below the smallest float.
    """

    def __init__(self, noise: summed_noise.Noise, top: float):
        scale = math.sqrt(noise.variance)
        last = noise.last_tilt(top)
        first = min(1.0 / scale, last / 64)
        count = math.ceil(math.log(last / first) / math.log(_GEOMETRIC)) + 1
        tilts = first * _GEOMETRIC ** np.arange(count + 1)
        cumulants = noise.cumulants(tilts[:-1])
        logs = cumulants.log_moment - tilts[:-1] * cumulants.mean
        size = cumulants.log_moment + tilts[:-1] * cumulants.mean
        self._means, self.tilts = cumulants.mean, tilts[1:]
        self.logs = logs + 8 * EPSILON * size
        self.log_size: float = -_LOG_TAIL - 2 * math.log1p(scale)

    def start(self, power: float) -> int:
        """The first tilt from which on the sum is below exp(log_size)."""
        terms = self.logs + power * self.tilts
        suffix = np.logaddexp.accumulate(terms[::-1])[::-1]
        return int(np.nonzero(suffix <= self.log_size)[0][0])

    def window(self, power: float) -> int:
        """A K for which sum_{k>K} f(k) r(k)^power <= exp(log_size)."""
        return max(1, math.floor(self._means[self.start(power)]))


def _moments_of_pairs(
    log_pmf: np.ndarray, upper: np.ndarray, lower: np.ndarray, top: int
) -> tuple[np.ndarray, float]:
    """log m_l until the rest is negligible, and the log of the rest.

    Args:
      log_pmf: Upper bounds on log f(k) for each pair.
      upper: Upper bounds on log r(k), positive.
      lower: Lower bounds on log r(k), at least 0.
      top: A, the largest whole order.
    """
    binomials = log_space.log_binomials(top, np.arange(top + 2))
    log_excess = upper + np.log(-np.expm1(-upper))
    moments = [-np.inf, -np.inf]
    rest = np.inf
    while len(moments) <= _BATCH or len(moments) <= top:
        l = np.arange(len(moments), len(moments) + _BATCH)[:, None]
        with np.errstate(divide="ignore"):
            both_of_pair = np.where(
                l % 2 == 0,
                np.log1p(np.exp(-(l - 1) * lower)),
                np.log(-np.expm1(-(l - 1) * upper)),
            )
        logs = log_pmf + l * log_excess + both_of_pair
        moments += log_space.log_sum_exp(logs).tolist()
        if len(moments) > top:
            return np.array(moments), -math.inf
        # By Taylor's theorem, sum_{l>=L} C(A,l) y^l <= C(A,L) y^L (1+y)^(A-L).
        size = len(moments)
        logs = log_pmf + size * log_excess + (top - size) * upper + math.log(2)
        rest = float(log_space.log_sum_exp(logs)) + float(binomials[size])
        total = log_space.log_sum_exp(binomials[2:size] + np.array(moments[2:]))
        if rest < total + _LOG_REST:
            break
    return np.array(moments), rest


def _tabulated(noise: summed_noise.Noise, top: int) -> RatioMoments:
    tail = Tail(noise, top)
    pmf = noise.log_pmf(tail.window(top))
    error = pmf.error[:-1] + pmf.error[1:]
    ratio = pmf.values[:-1] - pmf.values[1:]
    log_pmf, upper = pmf.values[1:] + pmf.error[1:], np.maximum(ratio, 0) + error
    lower = np.maximum(ratio - error, 0.0)
    return RatioMoments(
        "fourier",
        top,
        *_moments_of_pairs(log_pmf, upper, lower, top),
        tail_tilts=tail.tilts[tail.start(top) :],
        tail_logs=tail.logs[tail.start(top) :],
        log_pmf=log_pmf,
        log_ratio=upper,
    )


def _gaussian(noise: summed_noise.Noise, top: int) -> RatioMoments:
    """The moments of a lognormal ratio, with an allowance for the oscillation.

    E_f[r^j] = exp(j (j-1) / (2 s^2)) at whole j for N_Z(0, s^2) and for the Gaussian
    alike. The nodes are 1/2 + h (i + 1/2), h = s/12: the sum over them of the
    Gaussian's density times r^j is its integral up to a part of exp(-2842).
    """
    scale = math.sqrt(noise.variance)
    step = scale / 12
    reach = 14 * scale + top
    t = step * (np.arange(math.ceil(reach / step) + 1) + 0.5)
    log_pmf = math.log(step) - np.square((t + 0.5) / scale) / 2
    log_pmf = log_pmf - math.log(scale) - 0.5 * math.log(2 * math.pi)
    ratio = t / scale**2
    moments, rest = _moments_of_pairs(log_pmf, ratio, ratio, top)
    swing = noise.oscillation()
    # r - 1 is at least 1/(2 s^2) for the pair k, 1 - k: see docs/privacy/rounding.md.
    part = (2 * scale**2 + 1) * math.expm1(swing) + swing + 8 * EPSILON
    moments = moments + (np.arange(moments.size) + 1) * part
    return RatioMoments("gaussian", top, moments, rest + (top + 1) * part)


def _composed(noise: summed_noise.Noise, top: int) -> RatioMoments:
    """Moments of an average of the parts' r - 1, by a power of a polynomial."""
    parts = math.ceil(noise.variance / _MAX_STDDEV**2)
    base = ratio_moments(noise.part(parts), top)
    size = base.log_moments.size
    l = np.arange(size)
    # Beyond the table r - 1 <= exp(t) - 1, with r^top for the rest.
    excess = base.tail_tilts + np.log(-np.expm1(-base.tail_tilts))
    tails = math.log(2) + log_space.log_sum_exp(l[:, None] * excess + base.tail_logs)
    tail = math.log(2) + float(
        log_space.log_sum_exp(top * base.tail_tilts + base.tail_logs)
    )
    log_factorials = special.gammaln(l + 1)
    scale = 0.5 * math.log(noise.variance)
    # Coefficients of E exp(t s (r-1) / parts), so that all are of moderate size.
    coefficients = np.exp(
        np.logaddexp(base.log_moments, tails)
        + l * (scale - math.log(parts))
        - log_factorials
    )
    coefficients[:2] = 1.0, 0.0
    power = np.zeros(size)
    power[0] = 1.0
    left = parts
    while left:
        if left & 1:
            power = np.convolve(power, coefficients)[:size]
        coefficients = np.convolve(coefficients, coefficients)[:size]
        left >>= 1
    with np.errstate(divide="ignore"):
        moments = np.log(power) + log_factorials - l * scale
    moments[:2] = -np.inf
    rest = -math.inf if size > top else float(np.logaddexp(base.log_rest, tail))
    return RatioMoments("composed", top, moments, rest, paired=False)


def nearly_gaussian(noise: summed_noise.Noise, part: float) -> bool:
    """Whether the noise is N_Z(0, s^2) within `part`/s^2, and s at least 8."""
    if noise.variance < GAUSSIAN_STDDEV**2:
        return False
    return noise.variance * noise.oscillation() <= part


def route_of(noise: summed_noise.Noise) -> str:
    """The route of the moments: 'fourier', 'gaussian' or 'composed'."""
    if nearly_gaussian(noise, summed_noise.NEGLIGIBLE_OSCILLATION):
        return "gaussian"
    return "fourier" if noise.variance <= _MAX_STDDEV**2 else "composed"


@functools.lru_cache(maxsize=64)
def ratio_moments(noise: summed_noise.Noise, top: int) -> RatioMoments:
    """The moments of the likelihood ratio of a unit shift.

    Args:
      noise: The summed noise.
      top: Largest whole order of interest, at least 2.
    """
    routes = {"fourier": _tabulated, "gaussian": _gaussian, "composed": _composed}
    return routes[route_of(noise)](noise, max(top, 2))


class Excess:
    """Upper bounds on h(x)/x^2 at given orders, by moments."""

    def __init__(self, moments: RatioMoments, orders: np.ndarray):
        if not moments.paired:
            # Fractional orders are raised, as 1 + h rises in the order; their own sums
            # would omit terms of unknown sign.
            long = np.ceil(orders) + 2 >= moments.log_moments.size
            orders = np.where(long, np.ceil(orders), orders)
        self._moments = moments
        self._orders = orders
        self._ceiling = np.ceil(orders).astype(np.int64)
        self._size = moments.log_moments.size
        binomials = log_space.log_binomials(orders[:, None], np.arange(self._size))
        self._logs = binomials + moments.log_moments
        self._tail = moments.log_tail(orders)
        self._rest = moments.log_rest_of(self._ceiling)

    def log_at(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Log bounds on h(x)/x^2 for x in [0, 1]; [m, p].

        Args:
          x: One row for each order; [m, p].
          rows: The indices of these orders; [m].
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
        """The rows that omit terms, the first such l, and if two more may count.

        At a fractional order the first omitted term is negative, the next positive.
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
        """Adds the next two terms, in place, where the sum stays a bound.

        Moments that are not those of a ratio may lack a sign at odd l; the terms add at
        most |C(a,l)| (l/a) x^l sqrt(m_(l-1) m_(l+1)).
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
        """Whether h is bounded by a polynomial without negative terms; [m]."""
        whole = self._orders[rows] == self._ceiling[rows]
        return whole | (self._orders[rows] > _MOST_CORRECTED)

    def doubt(self, x: float) -> np.ndarray:
        """An estimate of the bounds' relative excess over the truth at x; [m]."""
        rows = np.arange(self._orders.size)
        index, first, known = self._omitted(rows)
        at = self.log_at(np.full((rows.size, 1), x), rows)[index, 0]
        omitted = self._logs[index, first] + (first - 2) * math.log(x) - at
        after = self._logs[index, first + 1] + (first - 1) * math.log(x) - at
        result = np.zeros(rows.size)
        # With hardly any noise the estimate may be above all floats.
        with np.errstate(over="ignore"):
            result[index] = np.exp(np.where(known, np.minimum(omitted, after), omitted))
        return result


class DirectExcess:
    """As `Excess`, at fractional orders, by direct sums over a table."""

    def __init__(self, moments: RatioMoments, orders: np.ndarray):
        self._log_pmf, self._log_ratio = moments.log_pmf, moments.log_ratio
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
    """log((1 + y)^a - 1 - a y) for y = sign exp(log_size) > -1."""
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
