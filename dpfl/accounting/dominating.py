# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Privacy loss distributions of dpfl's events, in dp_accounting's form.

They compose with those of any other library's events:

    loss_distribution(event, delta).compose(others).get_epsilon_for_delta(delta)

docs/privacy/README.md states their guarantee and its proof.
"""

from __future__ import annotations

import dp_accounting
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from dpfl import checks
from dpfl.accounting import (
    accountant,
    calibration,
    events,
    gaussian,
    privacy_loss,
    trees,
)
from dpfl.accounting.gaussian_domination import stopped_losses

# A longer step has no power of e in the floats.
_LONGEST_INTERVAL = 100.0


def loss_distribution(
    event: dp_accounting.DpEvent, delta: float, interval: float = 1e-4
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """The privacy loss distribution of an event, rounded up, for others to compose.

    It dominates the event in both directions, at any delta. Its epsilon is nearly that
    by the accounting method 'tight'. Repetitions within the event are composed
    already. The event of a mechanism's run is `mechanism.dp_event(plan, dimension)`.

    Args:
      event: A tree of plain, masked and Poisson-sampled Gaussians, integer noise, and
        random allocation and cohorts of a fixed size of these. The distribution is for
        any relation for which the event holds; see `relations_of`.
      delta: The delta of the whole composition, in (0, 1). Epsilon is most accurate
        there, and may be infinite at a smaller one: masked coordinates and integer
        noise put a hundredth of delta at infinity.
      interval: The grid's step, up to 100; `PLDAccountant`'s by default. Only
        distributions of the same interval compose.

    Raises:
      dp_accounting.UnsupportedEventError: the event has no known loss distribution, or
        its parts have no relation in common.
      ValueError: an argument is out of range.
    """
    delta = checks.delta("delta", delta)
    interval = checks.real("interval", interval, above=0, at_most=_LONGEST_INTERVAL)
    event = trees.normalised(event)
    relation = calibration.first_relation(event)
    book = accountant.DpflAccountant(neighboring_relation=relation)
    if not book.supports(event):
        # Raises the error of an event that is not supported.
        book.compose(event)
    pair = None
    try:
        is_own = not trees.has_registered(event)
        if relation in events.TRUSTED_RELATIONS and is_own:
            pair = gaussian.tight_losses(event, delta, interval)
            pair = pair or stopped_losses(event, delta, interval)
    except privacy_loss.TooManyLossesError as error:
        raise ValueError(
            "interval must be long enough for at most "
            f"{privacy_loss.MOST} losses, found {interval!r}"
        ) from error
    if pair is None:
        raise dp_accounting.UnsupportedEventError(
            f"no privacy loss distribution is known for {type(event).__name__}; it is "
            "for plain, masked and Poisson-sampled Gaussians, integer noise and random "
            "allocation of these, where no client is replaced by another, and "
            "DpflAccountant composes all others by Renyi divergence"
        )
    remove, add = (
        pld_pmf.DensePLDPmf(interval, side.low, side.masses, side.infinite, True)
        for side in map(privacy_loss.LossDistribution.of_one, pair)
    )
    return privacy_loss_distribution.PrivacyLossDistribution(remove, add)
