# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The distribution of an audit's scores if a mechanism is what it claims to be.

    expected = score_distributions.gaussian([1.0], 0.5).sampled(0.25)
    epsilon = expected.attainable(1e-3)
    threshold, bound = expected.threshold("present", 20_000, 1e-3, 0.99)

It is computed from the mechanism's numbers alone, without its aggregator: for each
coordinate of the release by definition, and for their sum by convolution. So the best
threshold is known before any trial, and so is the result of the same test with
infinitely many trials.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import signal, special

from dpfl import mechanisms
from dpfl.accounting import lower_bounds
from dpfl.mechanisms import integer
from dpfl.mechanisms.integer import CLIP_COUNT_BITS

from . import adversary

# Width of a class of scores, and the largest absolute score that is distinguished.
_STEP, _LARGEST = 1 / 512, 64.0
# Number of points of a coordinate, and their reach in standard deviations.
_POINTS, _REACH = 100_001, 12.0
# Number of classes between candidates for a threshold.
_CANDIDATES_EVERY = 8


@dataclasses.dataclass(frozen=True)
class ScoreDistribution:
    """Probabilities of classes of scores, with the canary and without.

    Attributes:
      first: The first class; class c has the scores nearest to c / 512.
      present: float64[k], with the canary.
      absent: float64[k], without it.
    """

    first: int
    present: np.ndarray
    absent: np.ndarray

    def plus(self, other: ScoreDistribution) -> ScoreDistribution:
        """The distribution of the sum with an independent score."""
        present = np.maximum(signal.fftconvolve(self.present, other.present), 0.0)
        absent = np.maximum(signal.fftconvolve(self.absent, other.absent), 0.0)
        return ScoreDistribution(self.first + other.first, present, absent)

    def sampled(self, probability: float) -> ScoreDistribution:
        """The distribution if the canary joins with probability q."""
        if probability == 1:
            return self
        scores = adversary.sampled_score(self._scores(), probability)
        present = (1 - probability) * self.absent + probability * self.present
        return of_points(scores, present, self.absent)

    def attainable(self, delta: float) -> float:
        """The epsilon at delta that thresholds find with infinitely many trials.

        For log-likelihood ratios that is the epsilon of the pair itself.
        """
        epsilons = [0.0]
        for direction in lower_bounds.DIRECTIONS:
            hit, false = self._rates(direction)
            is_seen = (hit > delta) & (false > 0)
            ratio = (hit[is_seen] - delta) / false[is_seen]
            epsilons += [math.log(np.max(ratio))] if ratio.size else []
        return max(epsilons)

    def threshold(
        self, direction: str, trials: int, delta: float, confidence: float
    ) -> tuple[float, float]:
        """The best threshold, between two classes, and the bound that it promises.

        The promised bound at delta assumes that both counts equal their expectations.

        Args:
          direction: One of `lower_bounds.DIRECTIONS`.
          trials: Number of trials with the canary, and as many without.
          delta: The delta of the bound.
          confidence: Probability that the bound holds.
        """
        hit, false = (
            np.minimum(rate[::_CANDIDATES_EVERY], 1.0) * trials
            for rate in self._rates(direction)
        )
        error = (1 - confidence) / 2
        least = special.betaincinv(np.maximum(hit, 1e-9), trials - hit + 1, error)
        most = special.betaincinv(false + 1, np.maximum(trials - false, 1), 1 - error)
        with np.errstate(divide="ignore"):
            promised = np.log(np.maximum(least - delta, 0.0)) - np.log(most)
        best = int(np.argmax(promised))
        edge = (self.first + best * _CANDIDATES_EVERY + 0.5) * _STEP
        return edge, max(0.0, float(promised[best]))

    def _scores(self) -> np.ndarray:
        return (self.first + np.arange(self.present.size)) * _STEP

    def _rates(self, direction: str) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of hits and false hits, for thresholds above each class."""
        if direction == "absent":
            return np.cumsum(self.absent), np.cumsum(self.present)
        hit, false = (
            np.cumsum(part[::-1])[::-1] - part for part in (self.present, self.absent)
        )
        return hit, false


def of_points(
    scores: np.ndarray, present: np.ndarray, absent: np.ndarray
) -> ScoreDistribution:
    """The distribution of a score on points with known probabilities.

    Args:
      scores: float64[k], the points' scores, finite or infinite.
      present: float64[k], probabilities or weights of the points with the canary.
      absent: float64[k], without it.
    """
    classes = np.rint(np.clip(scores, -_LARGEST, _LARGEST) / _STEP).astype(np.int64)
    first = int(classes.min())
    parts = [np.bincount(classes - first, part) for part in (present, absent)]
    return ScoreDistribution(first, *(part / np.sum(part) for part in parts))


def mixed(
    parts: Sequence[ScoreDistribution], weights: Sequence[float]
) -> ScoreDistribution:
    """The distribution of a mixture of known components, with these weights."""
    scores = np.concatenate([part._scores() for part in parts])
    present, absent = (
        np.concatenate(
            [weight * getattr(part, side) for part, weight in zip(parts, weights)]
        )
        for side in ("present", "absent")
    )
    return of_points(scores, present, absent)


def summed(parts: Iterable[ScoreDistribution]) -> ScoreDistribution:
    """The distribution of the sum of independent scores."""
    first, *others = parts
    for other in others:
        first = first.plus(other)
    return first


def gaussian(
    block: Any, stddev: float, keep_fraction: float = 1.0
) -> ScoreDistribution:
    """The distribution of `adversary.gaussian_ratio`.

    Args:
      block: As for `adversary.gaussian_ratio`.
      stddev: As for `adversary.gaussian_ratio`.
      keep_fraction: As for `adversary.gaussian_ratio`.
    """
    return summed(_kept(float(size), stddev, keep_fraction) for size in block)


def _kept(size: float, stddev: float, keep_fraction: float) -> ScoreDistribution:
    reach = _REACH * stddev + abs(size)
    x = np.linspace(-reach, reach, _POINTS)
    score = adversary.gaussian_ratio(
        x[:, np.newaxis], np.array([size]), stddev, keep_fraction
    )
    log_absent = -((x / stddev) ** 2) / 2
    return of_points(score, np.exp(log_absent + score), np.exp(log_absent))


def of_release(mechanism: Any, dimension: int, block: Any) -> ScoreDistribution:
    """The distribution of `adversary.log_ratio`.

    Args:
      mechanism: As for `adversary.log_ratio`.
      dimension: As for `adversary.log_ratio`.
      block: As for `adversary.log_ratio`.
    """
    if isinstance(mechanism, mechanisms.DomeDdg):
        mechanism, dimension = mechanism.release, mechanism.sketch_size
    if not isinstance(mechanism, integer.IntegerMechanism):
        keep = mechanism.keep_fraction
        return gaussian(block, adversary.noise_multiplier(mechanism), keep)
    steps = adversary.steps_to_clip(mechanism, dimension)
    stddev = mechanism.grid(dimension).local_stddev_steps
    canary = np.asarray(block, np.float64) * steps
    return _opened(mechanism, mechanism.bits, canary, stddev)


def of_count(mechanism: Any) -> ScoreDistribution:
    """The distribution of `adversary.count_ratio`."""
    if isinstance(mechanism, integer.IntegerMechanism):
        stddev = mechanism.local_count_stddev
        return _opened(mechanism, CLIP_COUNT_BITS, adversary.COUNT_CANARY, stddev)
    return gaussian(adversary.HALF_VOTE, mechanism.resolved_count_stddev)


def _opened(
    mechanism: integer.IntegerMechanism, bits: int, canary: np.ndarray, stddev: float
) -> ScoreDistribution:
    """The distribution of `adversary.integer_ratio`, of sums modulo 2^b."""
    total = stddev * math.sqrt(mechanism.noise_shares)
    far = math.ceil(_REACH * total)
    reach, half = far + math.ceil(np.max(np.abs(canary))) + 1, 1 << (bits - 1)
    x = np.arange(-far, far + 1)
    noise = np.exp(adversary.noise_log_pmf(mechanism, x, stddev))
    least = max(-half, -reach)
    opened = np.arange(least, min(half, reach + 1))

    def folded(shift: int) -> np.ndarray:
        residues = adversary.centered(x + shift, bits)
        return np.bincount(residues - least, noise, opened.size)

    parts = []
    for size in canary:
        score = adversary.integer_ratio(
            mechanism, opened[:, np.newaxis], np.array([size]), stddev
        )
        lower = math.floor(size + adversary.WHOLE)
        up = max(0.0, size - lower)
        present = (1 - up) * folded(lower) + up * folded(lower + 1)
        parts.append(of_points(score, present, folded(0)))
    return summed(parts)


@dataclasses.dataclass(frozen=True)
class NoisedSums:
    """An integer with standard normal noise, whose distribution is known.

    Attributes:
      numbers: int64[s], the possible integers.
      present: float64[s], their probabilities with the canary.
      absent: float64[s], without it.
    """

    numbers: np.ndarray
    present: np.ndarray
    absent: np.ndarray

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        """The ratio log P/Q of noised integers, float64[trials]."""
        one, other = self._log_densities(x)
        return one - other

    def distribution(self) -> ScoreDistribution:
        """The distribution of `log_ratio`."""
        reach = _REACH + np.max(np.abs(self.numbers))
        x = np.linspace(-reach, reach, _POINTS)
        one, other = self._log_densities(x)
        return of_points(one - other, np.exp(one), np.exp(other))

    def _log_densities(self, x: np.ndarray) -> list[np.ndarray]:
        shape = -((np.asarray(x)[:, np.newaxis] - self.numbers) ** 2) / 2
        parts = (self.present, self.absent)
        return [special.logsumexp(shape, axis=1, b=part) for part in parts]
