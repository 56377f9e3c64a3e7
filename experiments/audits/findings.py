# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lines of an audit: the claim, the finding and the verdict.

    claim = findings.tightest(mechanism, participation, dimension, delta)
    own = {"mechanism": mechanism.name, "setting": "z=1"}
    finding = findings.epsilon_finding(claim, delta, expected, scores, **own)
    finding.verdict, finding.row()

A finding is sound if nothing that was measured contradicts the claim.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Optional

import attr
import dp_accounting
import numpy as np
from scipy import special

from dpfl import accounting, mechanisms
from dpfl.accounting import calibration, lower_bounds

from .score_distributions import ScoreDistribution


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of an audit.

    Attributes:
      check: "epsilon" or the name of another check.
      mechanism: Name of the mechanism.
      setting: The release, in a few words.
      is_sound: Whether the finding agrees with the claim.
      relation: Relation of the neighbours, for a claimed epsilon.
      delta: The delta of the claimed epsilon.
      accounting_method: See `accounting.PrivacyReport`.
      claimed: The epsilon, or the expected count or number.
      found: The lower bound on epsilon, or the count or measurement.
      attainable: The ratio that the test of a bound reaches with infinitely many trials
        if the mechanism is what it claims to be; None for another check.
      trials: Releases with the canary and as many without, or draws.
      detail: More for the reader.
    """

    check: str
    mechanism: str
    setting: str
    is_sound: bool
    relation: Optional[str] = None
    delta: Optional[float] = None
    accounting_method: Optional[str] = None
    claimed: Optional[float] = None
    found: Optional[float] = None
    attainable: Optional[float] = None
    trials: Optional[int] = None
    detail: str = ""

    @property
    def ratio(self) -> Optional[float]:
        """The found value over the claimed one; None if either is missing or zero."""
        if self.found is None or not self.claimed:
            return None
        return self.found / self.claimed

    @property
    def verdict(self) -> str:
        """The verdict in a word: "below" the claim or "ABOVE" it, "ok" or "FAILED"."""
        if self.check == "epsilon":
            return "below" if self.is_sound else "ABOVE"
        return "ok" if self.is_sound else "FAILED"

    def row(self) -> dict[str, Any]:
        """The finding as a row of tables and files, by column."""
        own = {**dataclasses.asdict(self), "ratio": self.ratio, "verdict": self.verdict}
        del own["is_sound"]
        return own


def count_chance(count: int, trials: int, probability: float) -> float:
    """The two-sided probability of a count as far from its expectation.

    It is twice the smaller binomial tail, at most 1, for independent trials.

    Args:
      count: Number of successes.
      trials: Number of independent trials.
      probability: Probability of a success.
    """
    below = special.bdtr(count, trials, probability)
    above = special.bdtrc(count - 1, trials, probability) if count else 1.0
    return float(min(1.0, 2 * min(below, above)))


def correlation(one: Any, other: Any) -> float:
    """The correlation of two vectors times the root of their length.

    For independent vectors it is about N(0, 1).
    """
    one, other = (np.asarray(x, np.float64).ravel() for x in (one, other))
    one, other = one - np.mean(one), other - np.mean(other)
    scale = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / scale * math.sqrt(one.size)) if scale else 0.0


ONE_COORDINATE = "one-coordinate "
"""Prefix of the accounting method where a client masks a single coordinate."""


def tightest(
    mechanism: Any,
    participation: mechanisms.Participation,
    dimension: int,
    delta: float,
) -> accounting.PrivacyReport:
    """The least epsilon of a run by any accounting method that supports it.

    A lower bound is most informative if the claim itself is not loose. So this is the
    least epsilon by the accounting methods "auto" and "tight", and of
    `_one_coordinate`, for the relation that the run reports.

    Args:
      mechanism: The mechanism.
      participation: The participation of clients.
      dimension: d.
      delta: The delta of epsilon.
    """
    event = mechanism.dp_event(participation, dimension)
    reported = accounting.epsilon(event, delta)
    reports = [reported]
    try:
        reports.append(accounting.epsilon(event, delta, accounting_method="tight"))
    except calibration.UnsupportedAccountingMethodError:
        pass
    exact = _one_coordinate(mechanism, participation, dimension)
    if exact is not None:
        report = accounting.epsilon(exact, delta)
        accounting_method = ONE_COORDINATE + report.accounting_method
        reports.append(
            attr.evolve(
                report, accounting_method=accounting_method, relation=reported.relation
            )
        )
    return min(reports, key=lambda report: report.epsilon)


def _one_coordinate(
    mechanism: Any, participation: mechanisms.Participation, dimension: int
) -> Optional[dp_accounting.DpEvent]:
    """The exact event of one round of a sparsified vector of a single coordinate.

    The coordinate is in the sum if its client joins and keeps it, so that the release
    is a Gaussian's, sampled with the product of both probabilities. A shorter
    coordinate is a post-processing of the longest: shrink the output, and add noise.
    """
    kinds = mechanisms.L2Csgm, mechanisms.LinfCsgm
    if type(mechanism) not in kinds or participation.rounds != 1:
        return None
    if mechanism.rotated_dimension(dimension) != 1:
        return None
    longest = mechanism.resolved_linf_ratio(dimension)
    multiplier = mechanism.noise_multiplier * mechanism.keep_fraction / longest
    joins = participation.sampling_probability * mechanism.keep_fraction
    return dp_accounting.PoissonSampledDpEvent(
        joins, dp_accounting.GaussianDpEvent(multiplier)
    )


_BY_DISTRIBUTION = 0.9955
"""Confidence of each test with a threshold from the distribution."""
_BY_HALVES = 0.999
"""Confidence of the test that chooses its threshold; with the others 0.99."""

# Most that the distribution's own epsilon may exceed the claim, since scores are in
# classes.
_SLACK = 4e-3
# Share of the claim to be expected of a bound, and most doublings of the trials; more
# than one half, as counts vary.
_EXPECTED_RATIO, _MOST_DOUBLINGS = 0.58, 3


def enough_trials(
    expected: ScoreDistribution, epsilon: float, delta: float, trials: int
) -> int:
    """The number of trials that are expected to show more than half of a claim.

    Args:
      expected: The scores if the mechanism is what it claims to be.
      epsilon: The claim.
      delta: The delta of the claim.
      trials: The least number, which is doubled as needed, at most three times.
    """
    for _ in range(_MOST_DOUBLINGS):
        promised = max(
            expected.threshold(name, trials, delta, _BY_DISTRIBUTION)[1]
            for name in lower_bounds.DIRECTIONS
        )
        if promised >= _EXPECTED_RATIO * epsilon:
            break
        trials *= 2
    return trials


def epsilon_finding(
    claim: accounting.PrivacyReport,
    delta: float,
    expected: ScoreDistribution,
    scores: Sequence[np.ndarray],
    **named: Any,
) -> Finding:
    """The largest of three bounds, and its verdict.

    The claim is unsound if a bound is above it, or if the distribution itself has a
    larger epsilon.

    Args:
      claim: The claim.
      delta: The delta of the claim.
      expected: The scores if the mechanism is what it claims to be.
      scores: float64[trials] with the canary, and without.
      **named: The mechanism and the setting.
    """
    present, absent = scores
    trials = min(len(present), len(absent))
    promised, reached = {}, {}
    for name in lower_bounds.DIRECTIONS:
        threshold, promised[name] = expected.threshold(
            name, trials, delta, _BY_DISTRIBUTION
        )
        reached[name] = lower_bounds.epsilon_lower_bound_at(
            *(present, absent, delta),
            threshold=threshold,
            direction=name,
            confidence=_BY_DISTRIBUTION,
        ).epsilon
    halves = lower_bounds.epsilon_lower_bound(
        present, absent, delta, confidence=_BY_HALVES
    ).epsilon
    largest = max(*reached.values(), halves)
    needed = expected.attainable(delta)
    return Finding(
        check="epsilon",
        is_sound=max(largest, needed - _SLACK) <= claim.epsilon,
        relation=claim.relation,
        delta=delta,
        claimed=claim.epsilon,
        found=largest,
        attainable=needed / claim.epsilon,
        trials=trials,
        accounting_method=claim.accounting_method,
        detail=f"by what is likelier with it {reached['present']:.3f}, by what is "
        f"likelier without {reached['absent']:.3f}, of which "
        f"{max(promised.values()):.3f} was expected, and {halves:.3f} by halves",
        **named,
    )
