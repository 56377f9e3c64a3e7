# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0
"""Probabilities of summed integer noise, for a million shares and far into the tails.

A share of discrete Gaussian noise is itself a sum of independent Bernoulli variables
and their negatives (Jacobi's triple product), with odds q, q^3, q^5, ... for
q = exp(-1/(2 sigma^2)); Skellam noise is a limit of such sums. So a sum S of shares is
too, and it stays one when it is tilted, that is weighted by exp(tau k). With the tilt
at which k is about the mean, P_tau(S = k) is a Fourier sum of a few dozen terms which
does not cancel, and

  log P(S = k) = log P_tau(S = k) + log E exp(tau S) - tau k.

What the Fourier sum leaves out is bounded (Bernstein's inequality and the variance),
and every probability comes with a bound on its relative error. An FFT without the
tilt would have an error of 1e-16 of the mode in the tails.

`docs/privacy/rounding.md` has the proofs.
"""

from __future__ import annotations

import abc
import functools
import math
import threading
from typing import NamedTuple

import numpy as np

from dpfl import checks
from dpfl.accounting.integer import noise_events

# Frequencies and aliases that are left out weigh less than exp(-_OMITTED) each.
_OMITTED = 50.0
# Bernoulli variables with a probability below exp(-_NEGLIGIBLE) are left out.
_NEGLIGIBLE = 62.0
# A block of probabilities shares a tilt: this many standard deviations either way.
_BLOCK_DEVIATIONS = 2.0
# Held while a law that threads share learns more of its probabilities.
_GROWING = threading.RLock()
# Most arrays of factors times tilts that are held at once.
_CHUNK = 1 << 20


class Cumulants(NamedTuple):
    """Of the tilted sum, one value for each tilt; float64 [m].

    Attributes:
      log_moment: log E exp(tau S).
      mean: Mean of the tilted sum.
      variance: Variance of the tilted sum.
    """

    log_moment: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


class LogPmf(NamedTuple):
    """Log-probabilities of 0, 1, ..., K, in nats, and bounds on their errors.

    Attributes:
      values: float64 [K + 1].
      error: Largest absolute error of each value; float64 [K + 1].
    """

    values: np.ndarray
    error: np.ndarray


class IntegerLaw(abc.ABC):
    """An even sum of independent Bernoulli variables, negated ones, and a constant."""

    @property
    @abc.abstractmethod
    def stddev(self) -> float:
        """A number of the size of the sum's standard deviation, not below it."""

    @abc.abstractmethod
    def cumulants(self, tilts: np.ndarray) -> Cumulants:
        """Returns the tilted sum's log-moment, mean and variance; `tilts` is [m]."""

    @abc.abstractmethod
    def _exponent(self, tilt: float, angles: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns log E_tau exp(i theta (S - mean)), complex, and its error; [m]."""

    @abc.abstractmethod
    def _tilts(self, points: np.ndarray) -> np.ndarray:
        """Returns tilts at which the means are about `points`, at least 0."""

    # Blocks go no further.
    _last = 1 << 62

    @functools.cached_property
    def _blocks(self) -> list[LogPmf]:
        """Those that were asked for so far, from 0 on."""
        return []

    def log_pmf(self, last: int) -> LogPmf:
        """Returns log P(S = k) for k from 0 to `last`, with bounds on the errors.

        Blocks are whole, whatever was asked for, so that nothing depends on the order
        of questions.
        """
        with _GROWING:
            known = sum(block.values.size for block in self._blocks)
            while known <= last:
                spread = self._variance_at(float(known))
                width = math.floor(_BLOCK_DEVIATIONS * math.sqrt(spread))
                k = np.arange(known, min(known + 2 * width, self._last) + 1)
                self._blocks.append(LogPmf(*self._block(k)))
                known += k.size
            columns = [np.concatenate(column) for column in zip(*self._blocks)]
        return LogPmf(*(column[: last + 1] for column in columns))

    def _variance_at(self, point: float) -> float:
        return float(self.cumulants(self._tilts(np.array([point]))).variance[0])

    def _block(self, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns log P(S = k) and error bounds for neighbouring k, by one tilt."""
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
        # exp, cos, products, the angle itself, and the sum of `top` terms.
        loss = loss + noise_events.EPSILON * (10 + angles * (away + abs(mean)) + top)
        error = 2 * float(size @ loss) + noise_events.EPSILON * (1 + top)
        error = error / period + 4 * math.exp(-_OMITTED)
        tilted = total / period
        relative = error / np.maximum(tilted - error, 1e-300)
        size_of_terms = abs(log_moment) + abs(tilt) * k
        relative = relative + noise_events.EPSILON * (16 + 4 * size_of_terms)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(tilted) + log_moment - tilt * k, relative


class SummedDiscreteGaussian(IntegerLaw):
    """The sum of `count` independent N_Z(0, parameter^2)."""

    def __init__(self, count: int, parameter: float):
        self._count = checks.integer("count", count)
        self._variance = checks.positive("parameter", parameter) ** 2
        # Odds q^(2j-1), tilted by at most 1/(2 variance): q^(2j-2) at the most.
        factors = math.ceil(1 + _NEGLIGIBLE * self._variance)
        self._log_odds = -(np.arange(factors) + 0.5) / self._variance
        self._last = self._count // 2

    @property
    def stddev(self) -> float:
        """sqrt(n) sigma; the variance of a discrete Gaussian is at most sigma^2."""
        return math.sqrt(self._count * self._variance)

    @property
    def largest_reduced_tilt(self) -> float:
        """2 / sigma^2: from here on log E exp(tau S) - tau mean <= -(s tau)^2 / 4."""
        return 2 / self._variance

    def _reduce(self, tilts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the share's shift to the nearest integer, and the tilt left."""
        shift = np.rint(tilts * self._variance)
        return shift, tilts - shift / self._variance

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
        log_moment += shift * rest + np.square(shift) / (2 * self._variance)
        up, down = self._chances(rest)
        mean = shift + np.sum(up - down, axis=1)
        variance = np.sum(up * (1 - up) + down * (1 - down), axis=1)
        return Cumulants(*(self._count * c for c in (log_moment, mean, variance)))

    def _means(self, tilts: np.ndarray) -> np.ndarray:
        """Returns the means of few tilted sums, as `cumulants` does."""
        shift, rest = self._reduce(tilts)
        up, down = self._chances(rest)
        return self._count * (shift + np.sum(up - down, axis=1))

    def _tilts(self, points: np.ndarray) -> np.ndarray:
        low = np.zeros(points.size)
        high = (points / self._count + 0.5) / self._variance
        # Means differ from centres by less than 1/2; a tilt need not be precise.
        for _ in range(60):
            middle = (low + high) / 2
            below = self._means(middle) < points
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if np.all((high - low) * self.stddev <= 0.05 * np.minimum(1, self.stddev)):
                break
        return (low + high) / 2

    def _exponent(self, tilt: float, angles: np.ndarray) -> tuple[np.ndarray, ...]:
        _, rest = self._reduce(np.array([tilt]))
        up, down = self._chances(rest)
        sine, half = np.sin(angles)[:, None], np.square(np.sin(angles / 2))[:, None]
        real = np.zeros(angles.size)
        imaginary = np.zeros(angles.size)
        for chance, sign in ((up, 1), (down, -1)):
            real += np.sum(np.log1p(-4 * chance * (1 - chance) * half), axis=1) / 2
            turn = np.arctan2(chance * sine, 1 - 2 * chance * half)
            imaginary += sign * np.sum(turn - chance * angles[:, None], axis=1)
        weight = angles * float(np.sum(up) + np.sum(down))
        factors = 8 + 2 * math.log2(self._log_odds.size + 1)
        error = factors * noise_events.EPSILON * (np.abs(real) + weight)
        return self._count * (real + 1j * imaginary), self._count * error

    def log_pmf(self, last: int) -> LogPmf:
        """See base class. Beyond half a period, n/2, a shift by n is explicit."""
        if last <= self._last:
            return super().log_pmf(last)
        values, errors = super().log_pmf(self._last)
        k = np.arange(last + 1)
        folded = k % self._count
        folded = np.minimum(folded, self._count - folded)
        fall = (np.square(k.astype(float)) - np.square(folded.astype(float))) / (
            2 * self._count * self._variance
        )
        rounding = 4 * noise_events.EPSILON * (fall + np.abs(values[folded]))
        return LogPmf(values[folded] - fall, errors[folded] + rounding)


@functools.lru_cache(maxsize=16)
def summed_discrete_gaussian(count: int, parameter: float) -> SummedDiscreteGaussian:
    """Returns the law, which keeps the probabilities that it was asked for."""
    return SummedDiscreteGaussian(count, parameter)


class Skellam(IntegerLaw):
    """The difference of two Poisson variables of mean variance / 2 each."""

    def __init__(self, variance: float):
        self._variance = checks.positive("variance", variance)

    @property
    def stddev(self) -> float:
        """See base class."""
        return math.sqrt(self._variance)

    def cumulants(self, tilts: np.ndarray) -> Cumulants:
        """See base class."""
        with np.errstate(over="ignore"):
            return Cumulants(
                2 * self._variance * np.square(np.sinh(tilts / 2)),
                self._variance * np.sinh(tilts),
                self._variance * np.cosh(tilts),
            )

    def _tilts(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(np.arcsinh(points / self._variance))

    def _exponent(self, tilt: float, angles: np.ndarray) -> tuple[np.ndarray, ...]:
        real = -2 * self._variance * math.cosh(tilt) * np.square(np.sin(angles / 2))
        mean = self._variance * math.sinh(tilt)
        imaginary = mean * (np.sin(angles) - angles)
        error = 4 * noise_events.EPSILON * (np.abs(real) + abs(mean) * angles)
        return real + 1j * imaginary, error
