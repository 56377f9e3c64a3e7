# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on epsilon by experiment: a canary, a threshold, Clopper-Pearson.

    found = lower_bounds.epsilon_lower_bound(present, absent, delta=1e-3)
    found.epsilon, found.confidence

If a mechanism is (epsilon, delta)-DP, every event A has P(A) <= exp(epsilon) Q(A) +
delta, P and Q being its output's distributions with the canary and without it. So
estimates of P(A) from below and of Q(A) from above give a lower bound on epsilon. A
claimed epsilon below it is wrong (but for the stated probability); one above it is not
proved. The event is {score > t} (or {score < t} for the other direction), the score is
the log-likelihood ratio, which is the best there is, and t is chosen on one half of the
samples and judged on the other, or before there are any.
"""

from __future__ import annotations

import attr
import numpy as np
from scipy import special

from dpfl import checks

_CANDIDATES = 256

DIRECTIONS = ("present", "absent")
"""Tests by outputs that are more likely with the canary, and without it."""


@attr.s(frozen=True, auto_attribs=True)
class AuditResult:
    """The result of an audit.

    Attributes:
      epsilon: Lower bound on epsilon at the audited delta; 0 if nothing was shown.
      confidence: The probability with which the bound holds, over the experiment.
      threshold: The score t of the test.
      direction: 'present' if P is bounded by exp(epsilon) Q, else 'absent'.
      hit_rate: Lower confidence limit of the test's true positives.
      false_rate: Upper confidence limit of its false positives.
    """

    epsilon: float
    confidence: float
    threshold: float
    direction: str
    hit_rate: float
    false_rate: float


def clopper_pearson(
    successes: np.ndarray | int, trials: int, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """Exact one-sided limits of a probability (Clopper and Pearson 1934).

    Args:
      successes: Numbers of successes, any shape.
      trials: Number of trials.
      error: Probability with which each limit, taken alone, may fail.

    Returns:
      Lower and upper limits, of the shape of `successes`.

    Raises:
      ValueError: `error` is not in (0, 1), or a count is not in 0..trials.
    """
    trials = checks.integer("trials", trials)
    error = checks.delta("error", error)
    k = np.asarray(successes)
    if np.any(k < 0) or np.any(k > trials):
        raise ValueError(f"successes must be from 0 to {trials}, found {successes!r}")
    lower = np.where(
        k == 0, 0.0, special.betaincinv(np.maximum(k, 1), trials - k + 1, error)
    )
    upper = np.where(
        k == trials,
        1.0,
        special.betaincinv(k + 1, np.maximum(trials - k, 1), 1 - error),
    )
    return lower, upper


def epsilon_lower_bound(
    present: np.ndarray, absent: np.ndarray, delta: float, *, confidence: float = 0.99
) -> AuditResult:
    """A lower bound on epsilon from scores of outputs on two inputs.

    The test, of a direction and a threshold, is chosen on the first half of each array,
    and the bound is of the second.

    Args:
      present: Scores of outputs with the canary, shape [trials], finite or infinite;
        larger where the canary is more likely to be there.
      absent: Scores of outputs without it, shape [trials].
      delta: The delta at which epsilon is bounded, in [0, 1).
      confidence: Probability that the bound holds, in (0, 1).

    Raises:
      ValueError: If there are fewer than four samples, a NaN score, or an argument out
        of range.
    """
    spec = _spec(delta, confidence)
    present, absent = _scores("present", present), _scores("absent", absent)
    chosen = []
    for name in DIRECTIONS:
        # 'present': P(score > t) against Q; 'absent': Q(-score > -t) against P.
        both = (present, absent) if name == "present" else (-absent, -present)
        (hit, judged_hit), (false, judged_false) = map(_halves, both)
        threshold, promised = _best_threshold(hit, false, *spec)
        chosen.append((promised, judged_hit, judged_false, threshold, name))
    best = max(chosen, key=lambda each: each[0])
    return _judged(*best[1:], *spec)


def epsilon_lower_bound_at(
    present: np.ndarray,
    absent: np.ndarray,
    delta: float,
    *,
    threshold: float,
    direction: str,
    confidence: float = 0.99,
) -> AuditResult:
    """A lower bound on epsilon by a test that was chosen before the samples.

    Args:
      present: As for `epsilon_lower_bound`, all of which count.
      absent: Likewise.
      delta: The delta at which epsilon is bounded, in [0, 1).
      threshold: The score t; it may depend on the number of scores but not on the
        scores.
      direction: One of `DIRECTIONS`, likewise.
      confidence: Probability that the bound holds, in (0, 1); the probabilities of
        failure of several tests add up.

    Raises:
      ValueError: As for `epsilon_lower_bound`.
    """
    spec = _spec(delta, confidence)
    direction = checks.choice("direction", direction, DIRECTIONS)
    hit, false = _scores("present", present), _scores("absent", absent)
    if direction == "absent":
        hit, false, threshold = -false, -hit, -threshold
    return _judged(hit, false, threshold, direction, *spec)


def _spec(delta: float, confidence: float) -> tuple[float, float]:
    """The delta, and the probability of failure of each of the two limits."""
    delta = checks.probability("delta", delta)
    return delta, (1 - checks.delta("confidence", confidence)) / 2


def _scores(name: str, scores: np.ndarray) -> np.ndarray:
    """Checked scores, float64[trials]."""
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or scores.size < 4:
        raise ValueError(
            f"{name} must be a vector of at least 4 scores, found shape {scores.shape}"
        )
    if np.any(np.isnan(scores)):
        raise ValueError(f"{name} must hold no NaN, found one.")
    return scores


def _halves(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return scores[: scores.size // 2], scores[scores.size // 2 :]


def _judged(
    hit: np.ndarray,
    false: np.ndarray,
    threshold: float,
    direction: str,
    delta: float,
    error: float,
) -> AuditResult:
    """The result of the test of exceeding a threshold; 'absent' is negated."""
    bound, hit_rate, false_rate = _log_ratio(
        hit, false, np.array([threshold]), delta, error
    )
    return AuditResult(
        epsilon=max(0.0, float(bound[0])),
        confidence=1 - 2 * error,
        threshold=threshold if direction == "present" else -threshold,
        direction=direction,
        hit_rate=float(hit_rate[0]),
        false_rate=float(false_rate[0]),
    )


def _log_ratio(
    hit: np.ndarray,
    false: np.ndarray,
    thresholds: np.ndarray,
    delta: float,
    error: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower bounds on epsilon by each threshold, and the two limits."""

    def above(scores: np.ndarray) -> np.ndarray:
        return scores.size - np.searchsorted(np.sort(scores), thresholds, side="right")

    hit_rate, _ = clopper_pearson(above(hit), hit.size, error)
    _, false_rate = clopper_pearson(above(false), false.size, error)
    gain = np.maximum(hit_rate - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(gain) - np.log(false_rate), hit_rate, false_rate


def _best_threshold(
    positive: np.ndarray, negative: np.ndarray, delta: float, error: float
) -> tuple[float, float]:
    """The threshold with the largest bound on these samples, and that bound."""
    levels = np.concatenate(
        [np.linspace(0, 1, _CANDIDATES), 1 - np.logspace(-6, -1, _CANDIDATES)]
    )
    pooled = np.sort(np.concatenate([positive, negative]))
    thresholds = np.unique(pooled[np.rint(levels * (pooled.size - 1)).astype(int)])
    bounds, _, _ = _log_ratio(positive, negative, thresholds, delta, error)
    best = int(np.argmax(bounds))
    return float(thresholds[best]), float(bounds[best])
