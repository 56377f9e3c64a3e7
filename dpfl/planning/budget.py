# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise that a run needs for a budget, and the epsilon of a run with noise.

    mechanism = calibrate(mechanism, plan, dimension, epsilon=8.0, delta=1e-6)
    epsilon(mechanism, plan, dimension, delta=1e-6)   # at most 8

Both use the event that the mechanism makes of the plan, so that they cannot disagree.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Optional, TypeVar

import dp_accounting

from dpfl import accounting, checks
from dpfl.accounting.calibration import ACCOUNTING_METHODS
from dpfl.mechanisms.gaussian import AdaptiveClipMechanism
from dpfl.mechanisms.integer_grid import MOST_BITS
from dpfl.mechanisms.mechanism import ARGUMENTS, Mechanism
from dpfl.mechanisms.participation import Participation

# A ratio of noise multipliers below a step of the calibration's grid below.
_BARELY = 1.0002

_Mechanism = TypeVar("_Mechanism", bound=Mechanism)

# Checks of arguments about a run and its budget, by name.
OF_A_RUN: Mapping[str, checks.Check] = {
    **{**ARGUMENTS, "mechanism": checks.instance(Mechanism)},
    **{"epsilon": checks.positive, "delta": checks.delta},
    "accounting_method": functools.partial(checks.choice, choices=ACCOUNTING_METHODS),
}
# Checks for functions whose epsilon may be infinite, or that have none.
OF_AN_EPSILON = {name: check for name, check in OF_A_RUN.items() if name != "epsilon"}


@checks.of_arguments(OF_A_RUN)
def calibrate(
    mechanism: _Mechanism,
    participation: Optional[Participation],
    dimension: int,
    epsilon: float,
    delta: float,
    accounting_method: str = "auto",
) -> _Mechanism:
    """The mechanism with the least noise that meets a budget over a whole run.

    Args:
      mechanism: The mechanism; its own noise multiplier is ignored.
      participation: The choice of clients over the run; None is one release in which
        all clients take part.
      dimension: Length d of the flattened model update.
      epsilon: The budget's, greater than 0.
      delta: The budget's, in (0, 1).
      accounting_method: See `dpfl.accounting.epsilon`.

    Raises:
      dpfl.accounting.CalibrationError: If the noise that meets the budget does not suit
        the rest, as where bits are too few for it.
      dpfl.accounting.BudgetNotBindingError: If hardly any noise meets the budget.
      dpfl.accounting.UnreachableBudgetError: If no noise meets it.
      ValueError: If an argument is out of range.
    """
    budget = _Budget(dimension, epsilon, delta, participation, accounting_method)
    try:
        noised = budget.calibrated(mechanism)
    except accounting.UnreachableBudgetError as error:
        # With too few bits no noise suits.
        if sentence := budget.sentence(mechanism):
            raise accounting.CalibrationError(sentence) from error
        raise
    less = noised.with_noise_multiplier((noised.noise_multiplier or 0.0) / _BARELY)
    # The bits may require more noise than the budget does.
    reason = budget.sentence(noised) if less.needs_more_noise(dimension) else ""
    try:
        noised.check_noise(dimension)
    except ValueError as error:
        reason = budget.sentence(noised) or str(error)
    if reason:
        raise accounting.CalibrationError(reason)
    return noised


@checks.of_arguments(OF_A_RUN)
def privacy_report(
    mechanism: Mechanism,
    participation: Optional[Participation],
    dimension: int,
    delta: float,
    accounting_method: str = "auto",
) -> accounting.PrivacyReport:
    """Epsilon of a whole run, with its relation, accounting method and order.

    Args:
      mechanism: The mechanism with its noise.
      participation: The choice of clients over the run; None is one release in which
        all clients take part.
      dimension: Length d of the flattened model update.
      delta: In (0, 1).
      accounting_method: See `dpfl.accounting.epsilon`.

    Raises:
      ValueError: If an argument is out of range or the mechanism cannot run so.
    """
    return accounting.epsilon(
        _event(mechanism, participation, dimension),
        delta,
        accounting_method=accounting_method,
    )


def epsilon(
    mechanism: Mechanism,
    participation: Optional[Participation],
    dimension: int,
    delta: float,
    accounting_method: str = "auto",
) -> float:
    """Epsilon of a whole run.

    Args:
      mechanism: The mechanism with its noise.
      participation: The choice of clients over the run; None is one release in which
        all clients take part.
      dimension: Length d of the flattened model update.
      delta: In (0, 1).
      accounting_method: See `dpfl.accounting.epsilon`.

    Raises:
      ValueError: If an argument is out of range or the mechanism cannot run so.
    """
    return privacy_report(
        mechanism, participation, dimension, delta, accounting_method
    ).epsilon


def _event(
    mechanism: Mechanism, participation: Optional[Participation], dimension: int
) -> dp_accounting.DpEvent:
    if participation is None:
        return mechanism.round_dp_event(dimension, 1.0)
    return mechanism.dp_event(participation, dimension)


@dataclasses.dataclass(frozen=True)
class _Budget:
    """The arguments of `calibrate` except the mechanism, by their names there."""

    dimension: int
    epsilon: float
    delta: float
    participation: Optional[Participation]
    accounting_method: str

    def calibrated(self, mechanism: _Mechanism) -> _Mechanism:
        """The mechanism with the least noise, whether or not it suits the rest."""
        try:
            return mechanism.with_noise_multiplier(self._least_noise(mechanism))
        except accounting.BudgetNotBindingError as error:
            raise accounting.BudgetNotBindingError(
                f"epsilon must be smaller for {mechanism.name}, which meets it with "
                f"hardly any noise, found {self.epsilon:g}"
            ) from error
        except accounting.UnreachableBudgetError as error:
            raise accounting.UnreachableBudgetError(
                self._count_sentence(mechanism)
                or f"epsilon must be larger for {mechanism.name}, which exceeds it "
                f"with any amount of noise, found {self.epsilon:g}"
            ) from error

    def _count_sentence(self, mechanism: Mechanism) -> str:
        """A sentence on the count's noise that would do; "" if none would help."""
        if (
            not isinstance(mechanism, AdaptiveClipMechanism)
            or mechanism.count_stddev is None
        ):
            return ""
        try:
            free = self.calibrated(dataclasses.replace(mechanism, count_stddev=None))
        except accounting.CalibrationError:
            return ""
        enough = free.resolved_count_stddev * 1.0005
        return (
            f"count_stddev must be None or at least {enough:.4g} to meet epsilon "
            f"{self.epsilon:g}, found {mechanism.count_stddev:g}"
        )

    def _least_noise(self, mechanism: Mechanism) -> float:
        def make_event(noise_multiplier: float) -> dp_accounting.DpEvent:
            noisy = mechanism.with_noise_multiplier(noise_multiplier)
            if noisy.needs_more_noise(self.dimension):
                raise accounting.NoiseTooSmallError("noise_multiplier is too small")
            return _event(noisy, self.participation, self.dimension)

        return accounting.calibrate_noise_multiplier(
            make_event,
            self.epsilon,
            self.delta,
            accounting_method=self.accounting_method,
        )

    def sentence(self, mechanism: Mechanism) -> str:
        """A sentence on the bits that would do for the least noise of the budget.

        With too few bits all noise is large, and says little about the budget. "" if
        there are no bits, or they would do.
        """
        if mechanism.bits is None:
            return ""
        fine = dataclasses.replace(mechanism, **{"bits": MOST_BITS})
        noise = self.calibrated(fine).noise_multiplier or 0.0
        try:
            mechanism.with_noise_multiplier(noise).check_noise(self.dimension)
        except ValueError as error:
            return str(error)
        return ""
