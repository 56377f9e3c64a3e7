# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The tightest epsilon that is proven of a run, with which an audit compares.

A bound found from below says most of a mechanism where the claim is not loose itself.
"""

from __future__ import annotations

from typing import Any, Optional

import attr
import dp_accounting

from dpfl import accounting, mechanisms
from dpfl.accounting import calibration

ONE_COORDINATE = "one-coordinate "
"""Before the method of a claim for which the mask of one coordinate is a client's."""
ONE_SLOT = "one-slot "
"""Before the method of a claim for which one round of slots is a Poisson sample."""


def tightest(
    mechanism: Any,
    participation: mechanisms.Participation,
    dimension: int,
    delta: float,
) -> accounting.PrivacyReport:
    """Returns the least epsilon of a run by any accountant that serves it, by name.

    Args:
      mechanism: Its numbers.
      participation: How cohorts are chosen.
      dimension: d.
      delta: At which epsilon is claimed.

    Returns:
      The least of what `accounting.epsilon` finds by its methods "auto" and "tight",
      of `_one_coordinate` and of `_one_slot`; for the relation that the run reports.
    """
    event = mechanism.dp_event(participation, dimension)
    reported = accounting.epsilon(event, delta)
    found = [reported]
    try:
        found.append(accounting.epsilon(event, delta, method="tight"))
    except calibration.UnsupportedMethodError:
        pass
    exact = {
        ONE_COORDINATE: _one_coordinate(mechanism, participation, dimension),
        ONE_SLOT: _one_slot(mechanism, participation, dimension),
    }
    for prefix, event in exact.items():
        if event is not None:
            report = accounting.epsilon(event, delta)
            method = prefix + report.method
            found.append(attr.evolve(report, method=method, relation=reported.relation))
    return min(found, key=lambda report: report.epsilon)


def _one_coordinate(
    mechanism: Any, participation: mechanisms.Participation, dimension: int
) -> Optional[dp_accounting.DpEvent]:
    """Returns what one round of a sparsified vector of a single coordinate exactly is.

    The coordinate is in the sum if its client joins and keeps it, so that the release
    is a Gaussian's, sampled with the product of both probabilities. A shorter one is a
    post-processing of the longest: shrink the output, and add noise.
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


def _one_slot(
    mechanism: Any, participation: mechanisms.Participation, dimension: int
) -> Optional[dp_accounting.DpEvent]:
    """Returns what one round of random slots exactly is: a Poisson sample.

    Each client has the slot of that round with probability n / N, by itself.
    """
    if not isinstance(participation, mechanisms.RandomSlot):
        return None
    if participation.rounds != 1:
        return None
    sample = mechanisms.PoissonSampling(
        participation.population, participation.cohort_size, 1
    )
    return mechanism.dp_event(sample, dimension)
