# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Moments of the likelihood ratio of a unit shift under summed integer noise.

With f the probabilities of the noise and r(k) = f(k-1)/f(k), these are

  m_l = E_f[(r - 1)^l] = sum_{k>=1} f(k) (r-1)^l (1 + (-1)^l r^(1-l)),

by pairing k with 1 - k, which exchanges f and its shift. No term is negative for l of
at least 2, so that bounds on f and r give bounds on the moments. They come by one of
three ways:

  'fourier': f from `tilted_fourier`, up to standard deviations of 1500 steps;
  'gaussian': where the oscillation of the discrete Gaussian's profile is negligible,
    the moments are those of the lognormal ratio of a Gaussian, by a quadrature that
    is exact to hundreds of digits;
  'composed': above 1500 steps otherwise, from those of a part of the noise. With a
    parts r - 1 is a conditional mean of the average of the a parts' own, so that
    moments of that average bound, by Jensen's inequality, what is asked of r.

`docs/privacy/rounding.md` has the proofs.
"""

from __future__ import annotations

import functools
import math
from typing import Optional, Union

import attr
import numpy as np
from scipy import special

from dpfl import checks
from dpfl.accounting import log_space
from dpfl.accounting.integer import noise_events, tilted_fourier

GAUSSIAN_STDDEV = 8.0
"""Least standard deviation of which the Gaussian stands in for the discrete one."""

# Largest standard deviation, in steps, of noise whose probabilities are tabulated.
_MAX_STDDEV = 1500.0
# How much the moments may be moved by the oscillation of a profile, relative.
_MAX_OSCILLATION = 1e-11
# Shares of which the profile's range is computed; more change it by a closed bound.
_PROFILE_SHARES = 64
# Moments come in batches, and there are at least as many as the first batch.
_BATCH = 32
# Relative size at which moments of higher order are left to a bound on the rest.
_LOG_REST = -32.0
# Log of what lies beyond the table, over the squared inverse standard deviation.
_LOG_TAIL = 50.0
_GEOMETRIC = 1.02
# exp(tau) at which any Skellam noise of a variance above 1e-100 has no mass left.
_MAX_SKELLAM_TILT = 300.0


@attr.s(frozen=True, auto_attribs=True)
class DiscreteGaussianNoise:
    """The sum of `count` shares N_Z(0, stddev^2).

    Attributes:
      count: n, the number of shares.
      stddev: sigma of one share, in grid steps.
    """

    count: int = attr.ib(validator=checks.validator(checks.integer))
    stddev: float = attr.ib(validator=checks.validator(checks.positive))

    @property
    def variance(self) -> float:
        """s^2 = n sigma^2, in squared grid steps."""
        return self.count * self.stddev**2

    def law(self) -> tilted_fourier.IntegerLaw:
        """Returns the law of the sum."""
        return tilted_fourier.summed_discrete_gaussian(self.count, self.stddev)

    def part(self, parts: int) -> DiscreteGaussianNoise:
        """Returns one of `parts` equal parts, leaving out shares that are left over."""
        return DiscreteGaussianNoise(max(1, self.count // parts), self.stddev)

    def oscillation(self) -> float:
        """Returns a bound on max - min of the profile phi_n of integer_noise.md.

        It is at most that of phi_a, for any a < n, and 4 sum_k sum_j atanh(p_k^(2j-1)),
        p_k = exp(-2 pi^2 sigma^2 k/(k+1)), a <= k < n. Each inner sum is at most
        1.25 p_k where p_k <= 1/10. phi_1 is constant; for a = 64 the range is computed.
        """
        bound = self._oscillation_from(1)
        if bound * self.variance > _MAX_OSCILLATION:
            first = min(self.count, _PROFILE_SHARES)
            further = self._oscillation_from(first)
            if further < math.inf:
                start = DiscreteGaussianNoise(first, self.stddev)
                bound = min(bound, _profile_range(start) + further)
        return bound

    def _oscillation_from(self, first: int) -> float:
        k = np.arange(first, min(self.count, first + 256), dtype=np.float64)
        if not k.size:
            return 0.0
        nomes = np.exp(-2 * (math.pi * self.stddev) ** 2 * k / (k + 1))
        if nomes[0] > 0.1:
            return math.inf
        rest = self.count - first - k.size
        return 5 * (float(np.sum(nomes)) + rest * float(nomes[-1]))


@attr.s(frozen=True, auto_attribs=True)
class SkellamNoise:
    """Skellam noise of a total variance.

    Attributes:
      variance: mu, in squared grid steps.
    """

    variance: float = attr.ib(validator=checks.validator(checks.positive))

    def law(self) -> tilted_fourier.IntegerLaw:
        """Returns the law of the sum."""
        return tilted_fourier.Skellam(self.variance)

    def part(self, parts: int) -> SkellamNoise:
        """Returns one of `parts` equal parts."""
        return SkellamNoise(self.variance / parts)

    def oscillation(self) -> float:
        """Returns infinity: Skellam noise has no Gaussian profile."""
        return math.inf


@functools.lru_cache(maxsize=64)
def _profile_range(noise: DiscreteGaussianNoise) -> float:
    """Returns max - min of log f(k) + k^2/(2 s^2) over half a period, from above."""
    pmf = noise.law().log_pmf(noise.count // 2)
    square = np.square(np.arange(pmf.values.size, dtype=np.float64))
    square /= 2 * noise.variance
    profile = pmf.values + square
    error = pmf.error + 4 * noise_events.EPSILON * (square + np.abs(pmf.values))
    return float(np.max(profile + error) - np.min(profile - error))


Noise = Union[DiscreteGaussianNoise, SkellamNoise]


@attr.s(frozen=True, auto_attribs=True, eq=False)
class RatioMoments:
    """The moments m_l from above, for orders up to `top`.

    Attributes:
      route: 'fourier', 'gaussian' or 'composed'.
      top: A, the largest whole order.
      log_moments: log m_l at index l = 0, ..., L; -inf below 2. float64 [L + 1].
      log_rest: Log of a bound on sum_{l>L} C(A, l) m_l; -inf if L >= A.
      tail_tilts: Bounds on what lies beyond the table: sum_{k>K} f(k) r(k)^a is at most
        the sum of exp(a tail_tilts + tail_logs). float64 [t].
      tail_logs: See `tail_tilts`; float64 [t].
      paired: Whether the moments are of r itself.
      log_pmf: Bounds from above on log f(k), k = 1, ..., K, if tabulated.
      log_ratio: Bounds from above on log r(k), likewise.
    """

    route: str
    top: int
    log_moments: np.ndarray
    log_rest: float
    tail_tilts: np.ndarray
    tail_logs: np.ndarray
    paired: bool
    log_pmf: Optional[np.ndarray] = None
    log_ratio: Optional[np.ndarray] = None

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns `log_pmf` and `log_ratio`, which must be tabulated."""
        if self.log_pmf is None or self.log_ratio is None:
            raise ValueError(
                f"route must be 'fourier' for a table, found {self.route!r}"
            )
        return self.log_pmf, self.log_ratio

    def log_rest_of(self, orders: np.ndarray) -> np.ndarray:
        """Returns log bounds on sum_{l>L} C(a, l) m_l for whole orders a up to `top`.

        C(a, l) / C(A, l) falls in l.
        """
        first = self.log_moments.size
        if self.log_rest == -np.inf:
            return np.full(orders.size, -np.inf)
        part = _log_binomial(orders, first) - _log_binomial(np.array(self.top), first)
        return self.log_rest + part

    def log_tail(self, orders: np.ndarray) -> np.ndarray:
        """Returns log bounds on what the table's end keeps from h(x)/x^2, x <= 1.

        For k beyond the table the pair k, 1 - k has at most x^2 f(k) (r^a + C r), where
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

    def __init__(self, law: tilted_fourier.IntegerLaw, top: float):
        scale = law.stddev
        last = max(60.0 / scale, 16.0 * top / scale**2)
        if isinstance(law, tilted_fourier.SummedDiscreteGaussian):
            last = max(last, law.largest_reduced_tilt)
        else:
            last = min(last, _MAX_SKELLAM_TILT)
        first = min(1.0 / scale, last / 64)
        count = math.ceil(math.log(last / first) / math.log(_GEOMETRIC)) + 1
        tilts = first * _GEOMETRIC ** np.arange(count + 1)
        found = law.cumulants(tilts[:-1])
        logs = found.log_moment - tilts[:-1] * found.mean
        size = found.log_moment + tilts[:-1] * found.mean
        self._means, self._tilts = found.mean, tilts[1:]
        self._logs = logs + 8 * noise_events.EPSILON * size
        self.log_size: float = -_LOG_TAIL - 2 * math.log1p(scale)

    def start(self, power: float) -> int:
        """Returns the tilt from which on all is below exp(log_size)."""
        terms = self._logs + power * self._tilts
        suffix = np.logaddexp.accumulate(terms[::-1])[::-1]
        return int(np.nonzero(suffix <= self.log_size)[0][0])

    def window(self, power: float) -> int:
        """Returns a K for which sum_{k>K} f(k) r(k)^power <= exp(log_size)."""
        return max(1, math.floor(self._means[self.start(power)]))

    def beyond(self, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns `RatioMoments.tail_tilts` and `tail_logs` from a tilt on."""
        return self._tilts[start:], self._logs[start:]


def _log_binomial(order: np.ndarray, l: np.ndarray | int) -> np.ndarray:
    """Returns log C(order, l) of whole numbers; -inf where l exceeds the order."""
    logs = special.gammaln(order + 1) - special.gammaln(np.add(l, 1))
    logs = logs - special.gammaln(np.maximum(order - l, 0) + 1)
    return np.where(l <= order, logs, -np.inf)


def _moments_of_pairs(
    log_pmf: np.ndarray, upper: np.ndarray, lower: np.ndarray, top: int
) -> tuple[np.ndarray, float]:
    """Returns log m_l until the rest is negligible, and the log of the rest.

    Args:
      log_pmf: log f(k) for each pair, from above.
      upper: log r(k), from above, positive.
      lower: log r(k), from below, at least 0.
      top: A, the largest whole order.
    """
    binomials = _log_binomial(np.array(top), np.arange(top + 2))
    log_excess = upper + np.log(-np.expm1(-upper))
    found = [-np.inf, -np.inf]
    rest = np.inf
    while len(found) <= _BATCH or len(found) <= top:
        l = np.arange(len(found), len(found) + _BATCH)[:, None]
        with np.errstate(divide="ignore"):
            mirrored = np.where(
                l % 2 == 0,
                np.log1p(np.exp(-(l - 1) * lower)),
                np.log(-np.expm1(-(l - 1) * upper)),
            )
        found += log_space.log_sum_exp(log_pmf + l * log_excess + mirrored).tolist()
        if len(found) > top:
            return np.array(found), -math.inf
        # Taylor: sum_{l>=L} C(A,l) y^l <= C(A,L) y^L (1+y)^(A-L).
        size = len(found)
        rest = float(
            log_space.log_sum_exp(
                log_pmf + size * log_excess + (top - size) * upper + math.log(2)
            )
        )
        rest += float(binomials[size])
        total = log_space.log_sum_exp(binomials[2:size] + np.array(found[2:]))
        if rest < total + _LOG_REST:
            break
    return np.array(found), rest


def _tabulated(noise: Noise, top: int) -> RatioMoments:
    law = noise.law()
    tail = Tail(law, top)
    last, (tilts, logs) = tail.window(top), tail.beyond(tail.start(top))
    pmf = law.log_pmf(last)
    error = pmf.error[:-1] + pmf.error[1:]
    ratio = pmf.values[:-1] - pmf.values[1:]
    log_pmf, upper = pmf.values[1:] + pmf.error[1:], np.maximum(ratio, 0) + error
    moments, rest = _moments_of_pairs(
        log_pmf, upper, np.maximum(ratio - error, 0.0), top
    )
    return RatioMoments(
        "fourier", top, moments, rest, tilts, logs, True, log_pmf, upper
    )


def _gaussian(noise: Noise, top: int) -> RatioMoments:
    """Returns the moments of a lognormal ratio, raised by the oscillation's share.

    E_f[r^j] = exp(j (j-1) / (2 s^2)) at whole j for N_Z(0, s^2) and for the Gaussian
    alike. The nodes are 1/2 + h (i + 1/2), h = s/12: the sum over them of the
    Gaussian's density times r^j is its integral but for a part of exp(-2842).
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
    # The pair k, 1 - k has r - 1 at least 1/(2 s^2): see docs/privacy/rounding.md.
    part = (2 * scale**2 + 1) * math.expm1(swing) + swing + 8 * noise_events.EPSILON
    moments = moments + (np.arange(moments.size) + 1) * part
    none = np.empty(0)
    return RatioMoments(
        "gaussian", top, moments, rest + (top + 1) * part, none, none, True
    )


def _composed(noise: Noise, top: int) -> RatioMoments:
    """Returns moments of an average of the parts' r - 1, by a power of a polynomial."""
    parts = math.ceil(noise.variance / _MAX_STDDEV**2)
    base = ratio_moments(noise.part(parts), top)
    size = base.log_moments.size
    l = np.arange(size)
    # What lies beyond the table: r - 1 <= exp(t) - 1 there, and r^top for the rest.
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
    none = np.empty(0)
    rest = -math.inf if size > top else float(np.logaddexp(base.log_rest, tail))
    return RatioMoments("composed", top, moments, rest, none, none, False)


def nearly_gaussian(noise: Noise, part: float) -> bool:
    """Returns whether the noise is N_Z(0, s^2) within `part`/s^2, and s at least 8."""
    if noise.variance < GAUSSIAN_STDDEV**2:
        return False
    return noise.variance * noise.oscillation() <= part


def route_of(noise: Noise) -> str:
    """Returns how the moments come: 'fourier', 'gaussian' or 'composed'."""
    if nearly_gaussian(noise, _MAX_OSCILLATION):
        return "gaussian"
    return "fourier" if noise.variance <= _MAX_STDDEV**2 else "composed"


@functools.lru_cache(maxsize=64)
def ratio_moments(noise: Noise, top: int) -> RatioMoments:
    """Returns the moments of the likelihood ratio of a unit shift.

    Args:
      noise: The summed noise.
      top: Largest whole order that will be asked for, at least 2.
    """
    routes = {"fourier": _tabulated, "gaussian": _gaussian, "composed": _composed}
    return routes[route_of(noise)](noise, max(top, 2))
