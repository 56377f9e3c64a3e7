# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Summed integer noise: its probabilities, for a million shares and far into the tails.

    DiscreteGaussianNoise(count=1000, stddev=2.0).log_pmf_at([0, 5000])

A share of discrete Gaussian noise is itself a sum of independent Bernoulli variables
and their negatives (Jacobi's triple product), with odds q, q^3, q^5, ... for
q = exp(-1/(2 sigma^2)); Skellam noise is a limit of such sums. So a sum S of shares is
one too, also when it is tilted, that is weighted by exp(tau k). With the tilt at which
k is about the mean, P_tau(S = k) is a Fourier sum of a few dozen terms which does not
cancel, and

  log P(S = k) = log P_tau(S = k) + log E exp(tau S) - tau k.

The omitted part of the Fourier sum is bounded (Bernstein's inequality and the
variance), and every probability comes with a bound on its relative error. An FFT
without the tilt would have an error of 1e-16 of the mode in the tails.

`docs/privacy/rounding.md` has the proofs.
"""

from __future__ import annotations

import abc
import functools
import math
import threading
from collections.abc import Sequence
from typing import NamedTuple, Union

import attr
import numpy as np

from dpfl import checks
from dpfl.accounting.log_space import EPSILON
from dpfl.fields import Checked, said

# Omitted frequencies and aliases weigh less than exp(-_OMITTED) each.
_OMITTED = 50.0
# Bernoulli variables with a probability below exp(-_NEGLIGIBLE) are omitted.
_NEGLIGIBLE = 62.0
# Half-width of a block of probabilities with one tilt, in standard deviations.
_BLOCK_DEVIATIONS = 2.0
# Lock for extending the probabilities that threads share.
_GROWING = threading.RLock()
# Most arrays of factors times tilts that are held at once.
_CHUNK = 1 << 20
# Least share, in steps, for which a sum is N_Z(0, s^2) itself, up to a part of 4
# exp(-87).
WIDE_SHARE = 3.0
# Tilt at which any Skellam noise of a variance above 1e-100 has no mass left.
_MAX_SKELLAM_TILT = 300.0
# Shares whose profile's range is computed; more change it by a closed bound.
_PROFILE_SHARES = 64
# Largest relative effect of the profile on moments of the likelihood ratio.
NEGLIGIBLE_OSCILLATION = 1e-11


class Cumulants(NamedTuple):
    """The tilted sum's log E exp(tau S), mean and variance, a value for each tilt."""

    log_moment: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


class LogPmf(NamedTuple):
    """Log-probabilities of 0, 1, ..., K, in nats, float64 [K + 1].

    Attributes:
      values: The log-probabilities.
      error: The largest absolute error of each value.
    """

    values: np.ndarray
    error: np.ndarray


class _TiltedSum(Checked, abc.ABC):
    """An even sum of independent Bernoulli variables, negated ones, and a constant.

    Subclasses are frozen and hashable: equal ones share their probabilities.
    """

    def _end(self) -> int:
        """The largest integer whose probability is computed directly."""
        return 1 << 62

    @abc.abstractmethod
    def oscillation(self) -> float:
        """A bound on max - min of log P(S = k) + k^2 / (2 variance), infinite if none.

        See docs/privacy/integer_noise.md.
        """

    @abc.abstractmethod
    def last_tilt(self, top: float) -> float:
        """A tilt above which P(S >= mean) exp(top tilt) only falls."""

    @abc.abstractmethod
    def cumulants(self, tilts: np.ndarray) -> Cumulants:
        """The tilted sum's cumulants; float64 [m] each, as `tilts`."""

    @abc.abstractmethod
    def _exponent(self, tilt: float, angles: np.ndarray) -> tuple[np.ndarray, ...]:
        """log E_tau exp(i theta (S - mean)), complex, and its error; [m]."""

    @abc.abstractmethod
    def _tilts(self, points: np.ndarray) -> np.ndarray:
        """Tilts at which the means are about `points`, at least 0."""

    def log_pmf_at(self, x: Sequence[int] | np.ndarray) -> np.ndarray:
        """Log-probabilities of integers in grid steps, in nats, of x's shape."""
        size = np.abs(np.asarray(x, dtype=np.int64))
        return self.log_pmf(int(np.max(size, initial=0))).values[size]

    def log_pmf(self, last: int) -> LogPmf:
        """Log P(S = k) for k from 0 to `last`, with bounds on the errors.

        Blocks are computed whole, so that no value depends on earlier calls.
        """
        blocks = _known_blocks(self)
        with _GROWING:
            known = sum(block.values.size for block in blocks)
            while known <= last:
                tilt = self._tilts(np.array([float(known)]))
                spread = float(self.cumulants(tilt).variance[0])
                width = math.floor(_BLOCK_DEVIATIONS * math.sqrt(spread))
                k = np.arange(known, min(known + 2 * width, self._end()) + 1)
                blocks.append(self._block(k))
                known += k.size
            columns = [np.concatenate(column) for column in zip(*blocks)]
        return LogPmf(*(column[: last + 1] for column in columns))

    def _block(self, k: np.ndarray) -> LogPmf:
        """Log P(S = k) and error bounds for neighbouring k, by one tilt."""
        tilt = float(self._tilts(np.array([(k[0] + k[-1]) / 2]))[0])
        log_moment, mean, variance = (
            float(c[0]) for c in self.cumulants(np.array([tilt]))
        )
        away = float(np.max(np.abs(k - mean)))
        # Bernstein: P(|S - mean| >= t) <= 2 exp(-t^2 / (2 variance + 2 t / 3)).
        third = _OMITTED / 3
        reach = third + math.sqrt(third**2 + 2 * _OMITTED * variance)
        period = 2 * math.ceil((reach + away) / 2) + 1
        # |E exp(i theta S)| <= exp(-2 variance sin^2(theta / 2)).
        top = (period - 1) // 2
        if variance > _OMITTED / 2:
            cut = 2 * math.asin(math.sqrt(_OMITTED / (2 * variance)))
            top = min(top, math.ceil(cut * period / (2 * math.pi)))
        angles = 2 * math.pi * np.arange(1, top + 1) / period
        exponent, loss = self._exponent(tilt, angles)
        size = np.exp(exponent.real)
        turns = exponent.imag[:, None] - angles[:, None] * (k - mean)
        total = 1 + 2 * (size @ np.cos(turns))
        # Rounding of exp, cos, products, the angle itself, and the sum of `top` terms.
        loss = loss + EPSILON * (10 + angles * (away + abs(mean)) + top)
        error = 2 * float(size @ loss) + EPSILON * (1 + top)
        error = error / period + 4 * math.exp(-_OMITTED)
        tilted = total / period
        relative = error / np.maximum(tilted - error, 1e-300)
        size_of_terms = abs(log_moment) + abs(tilt) * k
        relative = relative + EPSILON * (16 + 4 * size_of_terms)
        with np.errstate(divide="ignore", invalid="ignore"):
            return LogPmf(np.log(tilted) + log_moment - tilt * k, relative)


@functools.lru_cache(maxsize=32)
def _known_blocks(noise: _TiltedSum) -> list[LogPmf]:
    """The list of a noise's computed probabilities, to which `log_pmf` appends."""
    return []


@attr.s(frozen=True, auto_attribs=True)
class DiscreteGaussianNoise(_TiltedSum):
    """The sum of `count` independent shares N_Z(0, stddev^2).

    Attributes:
      count: n, the number of shares.
      stddev: sigma of one share, in grid steps.
    """

    count: int = attr.ib(metadata=said(check=checks.integer))
    stddev: float = attr.ib(metadata=said(check=checks.positive))

    @property
    def variance(self) -> float:
        """s^2 = n sigma^2; the variance of a discrete Gaussian is at most sigma^2."""
        return self.count * self.stddev**2

    def part(self, parts: int) -> DiscreteGaussianNoise:
        """One of `parts` equal parts of the noise; leftover shares are dropped."""
        return DiscreteGaussianNoise(max(1, self.count // parts), self.stddev)

    def oscillation(self) -> float:
        """See base class: a bound on max - min of the profile phi_n.

        It is at most that of phi_a, for any a < n, and 4 sum_k sum_j atanh(p_k^(2j-1)),
        p_k = exp(-2 pi^2 sigma^2 k/(k+1)), a <= k < n. Each inner sum is at most
        1.25 p_k where p_k <= 1/10. phi_1 is constant; for a = 64 the range is computed.
        """
        bound = self._oscillation_from(1)
        if bound * self.variance > NEGLIGIBLE_OSCILLATION:
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

    def half_profile(self) -> LogPmf:
        """log P(S = k) + k^2 / (2 s^2), which has the period n, for k up to n/2."""
        pmf = self.log_pmf(self._end())
        square = np.square(np.arange(self._end() + 1, dtype=np.float64))
        square /= 2 * self.variance
        error = pmf.error + 4 * EPSILON * (square + np.abs(pmf.values))
        return LogPmf(pmf.values + square, error)

    def last_tilt(self, top: float) -> float:
        """See base class. From 2/sigma^2 log E exp(t S) - t mean <= -(s t)^2 / 4."""
        return max(
            60.0 / math.sqrt(self.variance),
            16.0 * top / self.variance,
            2 / self.stddev**2,
        )

    def _end(self) -> int:
        return self.count // 2

    @functools.cached_property
    def _log_odds(self) -> np.ndarray:
        """Odds q^(2j-1), tilted by at most 1/(2 sigma^2): q^(2j-2) at the most."""
        factors = math.ceil(1 + _NEGLIGIBLE * self.stddev**2)
        return -(np.arange(factors) + 0.5) / self.stddev**2

    def _reduce(self, tilts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The share's shift to the nearest integer, and the remaining tilt."""
        shift = np.rint(tilts * self.stddev**2)
        return shift, tilts - shift / self.stddev**2

    def _chances(self, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        up = np.exp(self._log_odds + rest[:, None])
        down = np.exp(self._log_odds - rest[:, None])
        return up / (1 + up), down / (1 + down)

    def cumulants(self, tilts: np.ndarray) -> Cumulants:
        """See base class."""
        rows = max(1, _CHUNK // self._log_odds.size)
        parts = [
            self._cumulants(tilts[start : start + rows])
            for start in range(0, tilts.size, rows)
        ]
        return Cumulants(*(np.concatenate(column) for column in zip(*parts)))

    def _cumulants(self, tilts: np.ndarray) -> Cumulants:
        shift, rest = self._reduce(tilts)
        size = np.abs(rest)[:, None]
        # (1 + a e^t)(1 + a e^-t)/(1 + a)^2 = 1 + a e^|t| (1 - e^-|t|)^2/(1 + a)^2.
        odds = np.exp(self._log_odds)
        rise = np.exp(self._log_odds + size) * np.square(np.expm1(-size) / (1 + odds))
        log_moment = np.sum(np.log1p(rise), axis=1)
        log_moment += shift * rest + np.square(shift) / (2 * self.stddev**2)
        up, down = self._chances(rest)
        mean = shift + np.sum(up - down, axis=1)
        variance = np.sum(up * (1 - up) + down * (1 - down), axis=1)
        return Cumulants(*(self.count * c for c in (log_moment, mean, variance)))

    def _tilts(self, points: np.ndarray) -> np.ndarray:
        spread = math.sqrt(self.variance)
        low = np.zeros(points.size)
        high = (points / self.count + 0.5) / self.stddev**2
        # Means differ from centres by less than 1/2; a tilt need not be precise.
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cumulants(middle).mean < points
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if np.all((high - low) * spread <= 0.05 * min(1, spread)):
                break
        return (low + high) / 2

    def _exponent(self, tilt: float, angles: np.ndarray) -> tuple[np.ndarray, ...]:
        _, rest = self._reduce(np.array([tilt]))
        up, down = self._chances(rest)
        sine, half = np.sin(angles)[:, None], np.square(np.sin(angles / 2))[:, None]
        real = np.zeros(angles.size)
        imaginary = np.zeros(angles.size)
        for chance, sign in ((up, 1), (down, -1)):
            real += np.log1p(-4 * chance * (1 - chance) * half).sum(axis=1) / 2
            turn = np.arctan2(chance * sine, 1 - 2 * chance * half)
            imaginary += sign * np.sum(turn - chance * angles[:, None], axis=1)
        weight = angles * float(np.sum(up) + np.sum(down))
        factors = 8 + 2 * math.log2(self._log_odds.size + 1)
        error = factors * EPSILON * (np.abs(real) + weight)
        return self.count * (real + 1j * imaginary), self.count * error

    def log_pmf(self, last: int) -> LogPmf:
        """See base class. Above half a period, n/2, a shift by n is explicit."""
        k = np.arange(last + 1.0)
        if self.stddev >= WIDE_SHARE:
            logs = -np.square(k) / (2 * self.variance)
            logs -= math.log(2 * math.pi * self.variance) / 2
            return LogPmf(logs, 4 * EPSILON * (1 - logs))
        if last <= self._end():
            return super().log_pmf(last)
        values, errors = super().log_pmf(self._end())
        folded = np.arange(last + 1) % self.count
        folded = np.minimum(folded, self.count - folded)
        fall = (np.square(k) - np.square(folded.astype(float))) / (2 * self.variance)
        rounding = 4 * EPSILON * (fall + np.abs(values[folded]))
        return LogPmf(values[folded] - fall, errors[folded] + rounding)


@functools.lru_cache(maxsize=64)
def _profile_range(noise: DiscreteGaussianNoise) -> float:
    """An upper bound on max - min of the profile."""
    values, error = noise.half_profile()
    return float(np.max(values + error) - np.min(values - error))


@attr.s(frozen=True, auto_attribs=True)
class SkellamNoise(_TiltedSum):
    """Skellam noise: the difference of two Poisson variables of mean variance / 2.

    Attributes:
      variance: mu, in squared grid steps; that of a sum is the sum of its shares'.
    """

    variance: float = attr.ib(metadata=said(check=checks.positive))

    def part(self, parts: int) -> SkellamNoise:
        """One of `parts` equal parts of the noise."""
        return SkellamNoise(self.variance / parts)

    def oscillation(self) -> float:
        """See base class: Skellam noise has no Gaussian profile."""
        return math.inf

    def last_tilt(self, top: float) -> float:
        """See base class."""
        last = max(60.0 / math.sqrt(self.variance), 16.0 * top / self.variance)
        return min(last, _MAX_SKELLAM_TILT)

    def cumulants(self, tilts: np.ndarray) -> Cumulants:
        """See base class."""
        with np.errstate(over="ignore"):
            return Cumulants(
                2 * self.variance * np.square(np.sinh(tilts / 2)),
                self.variance * np.sinh(tilts),
                self.variance * np.cosh(tilts),
            )

    def _tilts(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(np.arcsinh(points / self.variance))

    def _exponent(self, tilt: float, angles: np.ndarray) -> tuple[np.ndarray, ...]:
        real = -2 * self.variance * math.cosh(tilt) * np.square(np.sin(angles / 2))
        mean = self.variance * math.sinh(tilt)
        imaginary = mean * (np.sin(angles) - angles)
        error = 4 * EPSILON * (np.abs(real) + abs(mean) * angles)
        return real + 1j * imaginary, error


Noise = Union[DiscreteGaussianNoise, SkellamNoise]
