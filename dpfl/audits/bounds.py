# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What scores of trials show of epsilon, by three tests that share one confidence.

Two have thresholds from the law of the scores, one in each direction: all trials count.
The third chooses its threshold on one half of the trials and is judged on the other: a
mechanism that is not what it claims has another law, of which the first two may see
nothing. Their chances to fail add up to 1%.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.accounting import audit
from dpfl.audits import finding, laws

_BY_LAW = 0.9955
"""Of each test with a threshold from the law."""
_BY_HALVES = 0.999
"""Of the test that chooses its threshold; with the others 0.99."""

# How far above the claim the law's own epsilon may be, since scores are in classes.
_LAW_SLACK = 4e-3
# As much of the claim is to be expected of a bound, for at most so many times the
# trials; more than one half, as counts vary.
_EXPECTED_RATIO, _MOST_DOUBLINGS = 0.58, 3


def enough_trials(law: laws.Law, epsilon: float, delta: float, trials: int) -> int:
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
            law.threshold(name, trials, delta, _BY_LAW)[1] for name in audit.DIRECTIONS
        )
        if expected >= _EXPECTED_RATIO * epsilon:
            break
        trials *= 2
    return trials


class Claimed:
    """Trials of a mechanism that claims something, which their scores are held to."""

    def __init__(self, claim: accounting.PrivacyReport, law: laws.Law, delta: float):
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
    law: laws.Law,
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
    for name in audit.DIRECTIONS:
        threshold, promised[name] = law.threshold(name, trials, delta, _BY_LAW)
        found[name] = audit.epsilon_lower_bound_at(
            present,
            absent,
            delta,
            threshold=threshold,
            direction=name,
            confidence=_BY_LAW,
        ).epsilon
    halves = audit.epsilon_lower_bound(
        present, absent, delta, confidence=_BY_HALVES
    ).epsilon
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
