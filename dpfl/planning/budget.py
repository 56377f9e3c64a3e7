# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The noise that a run needs for a budget, and the epsilon of a run with noise.

    setting = Setting(dimension, plan, delta=1e-6)
    mechanism = setting.calibrated(mechanism, epsilon=8.0)
    epsilon(mechanism, plan, dimension, delta=1e-6)   # at most 8

Both use the event that the mechanism makes of the plan, so that they cannot disagree.
`planning.calibrate` also chooses numbers that are "auto".
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

# Default delta, for one release where no run is given.
DEFAULT_DELTA = 1e-5
# A ratio of noise multipliers below a step of the calibration's grid below.
_BARELY = 1.0002

_Mechanism = TypeVar("_Mechanism", bound=Mechanism)

# Checks of arguments about a run and its budget, by name.
OF_A_RUN: Mapping[str, checks.Check] = {
    **{**ARGUMENTS, "mechanism": checks.instance(Mechanism)},
    **{"epsilon": checks.positive, "delta": checks.delta},
    "accounting_method": functools.partial(checks.choice, choices=ACCOUNTING_METHODS),
}


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
    return Setting(dimension, participation, delta, accounting_method).report(mechanism)


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


@dataclasses.dataclass(frozen=True)
class Setting:
    """Circumstances of a calibration, besides the mechanism and epsilon.

    Attributes:
      dimension: Length d of the flattened model update.
      participation: The choice of clients over the run; None is one release in which
        all clients take part.
      delta: The budget's.
      accounting_method: See `dpfl.accounting.epsilon`.
    """

    dimension: int
    participation: Optional[Participation] = None
    delta: float = DEFAULT_DELTA
    accounting_method: str = "auto"

    def event(self, mechanism: Mechanism) -> dp_accounting.DpEvent:
        """All releases of the run."""
        if self.participation is None:
            return mechanism.round_dp_event(self.dimension, 1.0)
        return mechanism.dp_event(self.participation, self.dimension)

    def report(self, mechanism: Mechanism) -> accounting.PrivacyReport:
        """Epsilon of the run, with its relation, accounting method and order."""
        event, method = self.event(mechanism), self.accounting_method
        return accounting.epsilon(event, self.delta, accounting_method=method)

    def calibrated(self, mechanism: _Mechanism, epsilon: float) -> _Mechanism:
        """The mechanism with the least noise for a budget; see `planning.calibrate`."""
        try:
            noised = self._with_least_noise(mechanism, epsilon)
        except accounting.UnreachableBudgetError as error:
            # With too few bits no noise suits.
            if sentence := self._bits_sentence(mechanism, epsilon):
                raise accounting.CalibrationError(sentence) from error
            raise
        less = noised.with_noise_multiplier((noised.noise_multiplier or 0.0) / _BARELY)
        # The bits may require more noise than the budget does.
        reason = ""
        if less.needs_more_noise(self.dimension):
            reason = self._bits_sentence(noised, epsilon)
        try:
            noised.check_noise(self.dimension)
        except ValueError as error:
            reason = self._bits_sentence(noised, epsilon) or str(error)
        if reason:
            raise accounting.CalibrationError(reason)
        return noised

    def _with_least_noise(self, mechanism: _Mechanism, epsilon: float) -> _Mechanism:
        """As `calibrated`, whether or not the noise suits the rest."""

        def make_event(noise_multiplier: float) -> dp_accounting.DpEvent:
            noisy = mechanism.with_noise_multiplier(noise_multiplier)
            if noisy.needs_more_noise(self.dimension):
                raise accounting.NoiseTooSmallError("noise_multiplier is too small")
            return self.event(noisy)

        method = self.accounting_method
        try:
            noise = accounting.calibrate_noise_multiplier(
                make_event, epsilon, self.delta, accounting_method=method
            )
        except accounting.BudgetNotBindingError as error:
            raise accounting.BudgetNotBindingError(
                f"epsilon must be smaller for {mechanism.name}, which meets it with "
                f"hardly any noise, found {epsilon:g}"
            ) from error
        except accounting.UnreachableBudgetError as error:
            raise accounting.UnreachableBudgetError(
                self._count_sentence(mechanism, epsilon)
                or f"epsilon must be larger for {mechanism.name}, which exceeds it "
                f"with any amount of noise, found {epsilon:g}"
            ) from error
        return mechanism.with_noise_multiplier(noise)

    def _count_sentence(self, mechanism: Mechanism, epsilon: float) -> str:
        """A sentence on the count's noise that would do; "" if none would help."""
        if (
            not isinstance(mechanism, AdaptiveClipMechanism)
            or mechanism.count_stddev is None
        ):
            return ""
        free = dataclasses.replace(mechanism, count_stddev=None)
        try:
            enough = (
                self._with_least_noise(free, epsilon).resolved_count_stddev * 1.0005
            )
        except accounting.CalibrationError:
            return ""
        return (
            f"count_stddev must be None or at least {enough:.4g} to meet epsilon "
            f"{epsilon:g}, found {mechanism.count_stddev:g}"
        )

    def _bits_sentence(self, mechanism: Mechanism, epsilon: float) -> str:
        """A sentence on the bits that would do for the least noise of the budget.

        With too few bits all noise is large, and says little about the budget. "" if
        there are no bits, or they would do.
        """
        if mechanism.bits is None:
            return ""
        fine = dataclasses.replace(mechanism, **{"bits": MOST_BITS})
        noise = self._with_least_noise(fine, epsilon).noise_multiplier or 0.0
        try:
            mechanism.with_noise_multiplier(noise).check_noise(self.dimension)
        except ValueError as error:
            return str(error)
        return ""
