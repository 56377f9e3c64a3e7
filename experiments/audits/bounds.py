# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lower bounds on epsilon by experiment: a canary, a threshold, Clopper-Pearson.

If a mechanism is (epsilon, delta)-DP, every event A has
P(A) <= exp(epsilon) Q(A) + delta, P and Q being its output's laws with the canary
and without it. So estimates of P(A) from below and of Q(A) from above give a lower
bound on epsilon. A claimed epsilon under it is wrong (but for the stated chance); one
over it is not proved by it. The event is {score > t} (or {score < t} for the other
direction), the score is the log-likelihood ratio, which is the best there is, and t
is chosen on one half of the samples and judged on the other, or before there are any.

`simulators` has the mechanisms to audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

import attr
import numpy as np
from scipy import special

from dpfl import accounting, checks

from . import finding, score_laws

_CANDIDATES = 256

DIRECTIONS = ("present", "absent")
"""By outputs that are more likely with the canary, and by those without it."""


class Simulator(Protocol):
    """A mechanism run on two neighbouring inputs."""

    def sample(
        self, rng: np.random.Generator, present: bool, trials: int
    ) -> np.ndarray:
        """Returns outputs, shape [trials, ...], with or without the canary."""

    def score(self, outputs: np.ndarray) -> np.ndarray:
        """Returns log P(output)/Q(output), or any score, shape [trials]."""


@attr.s(frozen=True, auto_attribs=True)
class AuditResult:
    """What an audit found.

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
    """Returns exact one-sided limits of a probability (Clopper and Pearson 1934).

    Args:
      successes: Numbers of successes, any shape.
      trials: Number of trials.
      error: The chance with which each limit, taken alone, may fail.

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
    present: np.ndarray,
    absent: np.ndarray,
    delta: float,
    *,
    confidence: float = 0.99,
    direction: Optional[str] = None,
) -> AuditResult:
    """Returns a lower bound on epsilon from scores of outputs on two inputs.

    Args:
      present: Scores of outputs with the canary, shape [trials], finite or infinite;
        larger where the canary is more likely to be there.
      absent: Scores of outputs without it, shape [trials].
      delta: The delta at which epsilon is bounded, in [0, 1).
      confidence: The chance that the bound holds, in (0, 1).
      direction: One of `DIRECTIONS`; None for the one that the first half favours.

    Returns:
      The bound, from the second half of each array; the test is chosen on the first.

    Raises:
      ValueError: fewer than four samples, a NaN score, or an argument out of range.
    """
    spec = _spec(delta, confidence)
    if direction is not None:
        checks.choice("direction", direction, DIRECTIONS)
    halves = {}
    for name, scores in (("present", present), ("absent", absent)):
        scores = _scores(name, scores)
        halves[name] = scores[: scores.size // 2], scores[scores.size // 2 :]
    # 'present': P(score > t) against Q; 'absent': Q(-score > -t) against P.
    tests = {
        "present": (halves["present"], halves["absent"]),
        "absent": tuple(
            (-first, -second) for first, second in (halves["absent"], halves["present"])
        ),
    }
    chosen = {
        name: _best_threshold(hit[0], false[0], spec)
        for name, (hit, false) in tests.items()
        if direction in (None, name)
    }
    direction = max(chosen, key=lambda name: chosen[name][1])
    threshold = chosen[direction][0]
    hit, false = (half[1] for half in tests[direction])
    return _judged(hit, false, threshold, direction, spec)


def epsilon_lower_bound_at(
    present: np.ndarray,
    absent: np.ndarray,
    delta: float,
    *,
    threshold: float,
    direction: str,
    confidence: float = 0.99,
) -> AuditResult:
    """Returns a lower bound on epsilon by a test that was chosen before the samples.

    Args:
      present: As of `epsilon_lower_bound`, all of which count.
      absent: Likewise.
      delta: The delta at which epsilon is bounded, in [0, 1).
      threshold: Of the scores; it may depend on how many there are, on none of them.
      direction: One of `DIRECTIONS`, likewise.
      confidence: The chance that the bound holds, in (0, 1); of several tests the
        chances to fail add up.

    Raises:
      ValueError: As of `epsilon_lower_bound`.
    """
    spec = _spec(delta, confidence)
    checks.choice("direction", direction, DIRECTIONS)
    hit, false = _scores("present", present), _scores("absent", absent)
    if direction == "absent":
        hit, false, threshold = -false, -hit, -threshold
    return _judged(hit, false, threshold, direction, spec)


def audit(
    simulator: Simulator,
    trials: int,
    delta: float,
    *,
    seed: int,
    confidence: float = 0.99,
) -> AuditResult:
    """Runs a simulator on both inputs and bounds its epsilon from below.

    Args:
      simulator: The mechanism.
      trials: Number of runs on each input, at least 4; half of them choose the test.
      delta: The delta at which epsilon is bounded, in [0, 1).
      seed: Of the random generator; the same seed gives the same result.
      confidence: The chance that the bound holds, in (0, 1).

    Returns:
      The lower bound and the test that gave it.
    """
    trials = checks.integer("trials", trials, at_least=4)
    rng = np.random.default_rng(seed)
    present = simulator.score(simulator.sample(rng, True, trials))
    absent = simulator.score(simulator.sample(rng, False, trials))
    return epsilon_lower_bound(present, absent, delta, confidence=confidence)


@attr.s(frozen=True, auto_attribs=True)
class _Spec:
    delta: float
    error: float  # of each of the two limits


def _spec(delta: float, confidence: float) -> _Spec:
    delta = checks.probability("delta", delta)
    return _Spec(delta, (1 - checks.delta("confidence", confidence)) / 2)


def _scores(name: str, scores: np.ndarray) -> np.ndarray:
    """Returns checked scores, float64[trials]."""
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or scores.size < 4:
        raise ValueError(
            f"{name} must be a vector of at least 4 scores, found shape {scores.shape}"
        )
    if np.any(np.isnan(scores)):
        raise ValueError(f"{name} must hold no NaN, found one.")
    return scores


def _judged(
    hit: np.ndarray, false: np.ndarray, threshold: float, direction: str, spec: _Spec
) -> AuditResult:
    """Returns what the test of exceeding a threshold shows; 'absent' is negated."""
    at = np.array([threshold])
    bound, hit_rate, false_rate = _log_ratio(
        _above(hit, at), _above(false, at), (hit.size, false.size), spec
    )
    return AuditResult(
        epsilon=max(0.0, float(bound[0])),
        confidence=1 - 2 * spec.error,
        threshold=threshold if direction == "present" else -threshold,
        direction=direction,
        hit_rate=float(hit_rate[0]),
        false_rate=float(false_rate[0]),
    )


def _log_ratio(
    hits: np.ndarray, falses: np.ndarray, sizes: tuple[int, int], spec: _Spec
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns lower bounds on epsilon, and the two limits, from counts."""
    hit_rate, _ = clopper_pearson(hits, sizes[0], spec.error)
    _, false_rate = clopper_pearson(falses, sizes[1], spec.error)
    gain = np.maximum(hit_rate - spec.delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(gain) - np.log(false_rate), hit_rate, false_rate


def _above(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Returns how many scores exceed each threshold."""
    return scores.size - np.searchsorted(np.sort(scores), thresholds, side="right")


def _best_threshold(
    positive: np.ndarray, negative: np.ndarray, spec: _Spec
) -> tuple[float, float]:
    """Returns the threshold with the largest bound on these samples, and that bound."""
    levels = np.concatenate(
        [np.linspace(0, 1, _CANDIDATES), 1 - np.logspace(-6, -1, _CANDIDATES)]
    )
    pooled = np.sort(np.concatenate([positive, negative]))
    thresholds = np.unique(pooled[np.rint(levels * (pooled.size - 1)).astype(int)])
    bounds, _, _ = _log_ratio(
        _above(positive, thresholds),
        _above(negative, thresholds),
        (positive.size, negative.size),
        spec,
    )
    best = int(np.argmax(bounds))
    return float(thresholds[best]), float(bounds[best])


_BY_LAW = 0.9955
"""Of each test with a threshold from the law."""
_BY_HALVES = 0.999
"""Of the test that chooses its threshold; with the others 0.99."""

# How far above the claim the law's own epsilon may be, since scores are in classes.
_LAW_SLACK = 4e-3
# As much of the claim is to be expected of a bound, for at most so many times the
# trials; more than one half, as counts vary.
_EXPECTED_RATIO, _MOST_DOUBLINGS = 0.58, 3


def enough_trials(
    law: score_laws.Law, epsilon: float, delta: float, trials: int
) -> int:
    """Returns how many trials are expected to show more than half of a claim.

    Args:
      law: Of the scores.
      epsilon: What is claimed.
      delta: At which.
      trials: The least.

    Returns:
      `trials`, doubled as often as it takes, but at most three times.
    """
    for _ in range(_MOST_DOUBLINGS):
        expected = max(
            law.threshold(name, trials, delta, _BY_LAW)[1] for name in DIRECTIONS
        )
        if expected >= _EXPECTED_RATIO * epsilon:
            break
        trials *= 2
    return trials


class Claimed:
    """Trials of a mechanism that claims something, which their scores are held to."""

    def __init__(
        self, claim: accounting.PrivacyReport, law: score_laws.Law, delta: float
    ):
        """Initializes what is expected of the scores.

        Args:
          claim: The least epsilon that is proven.
          law: Of the scores if the mechanism is what it claims to be.
          delta: Of the claim.
        """
        self._claim, self._law, self._delta = claim, law, delta

    def enough(self, trials: int) -> int:
        """Returns as many trials as are expected to show half of the claim."""
        return enough_trials(self._law, self._claim.epsilon, self._delta, trials)


def epsilon_finding(
    claim: accounting.PrivacyReport,
    delta: float,
    law: score_laws.Law,
    scores: Sequence[np.ndarray],
    **named: Any,
) -> finding.Finding:
    """Returns the largest of the three bounds, and its verdict.

    The claim is unsound if a bound is above it, or if the law alone needs more.

    Args:
      claim: What is claimed.
      delta: At which.
      law: Of the scores.
      scores: float64[trials] with the canary, and without.
      **named: The mechanism and the setting.
    """
    present, absent = scores
    trials = min(len(present), len(absent))
    promised, found = {}, {}
    for name in DIRECTIONS:
        threshold, promised[name] = law.threshold(name, trials, delta, _BY_LAW)
        found[name] = epsilon_lower_bound_at(
            present,
            absent,
            delta,
            threshold=threshold,
            direction=name,
            confidence=_BY_LAW,
        ).epsilon
    halves = epsilon_lower_bound(present, absent, delta, confidence=_BY_HALVES).epsilon
    largest = max(*found.values(), halves)
    needed = law.attainable(delta)
    return finding.Finding(
        check="epsilon",
        is_sound=max(largest, needed - _LAW_SLACK) <= claim.epsilon,
        relation=claim.relation,
        delta=delta,
        claimed=claim.epsilon,
        found=largest,
        attainable=needed / claim.epsilon,
        trials=trials,
        method=claim.method,
        detail=f"by what is likelier with it {found['present']:.3f}, by what is "
        f"likelier without {found['absent']:.3f}, of which {max(promised.values()):.3f}"
        f" was expected, and {halves:.3f} by halves",
        **named,
    )
