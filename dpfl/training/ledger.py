# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Privacy of a run: the noise it needs, what it has spent, when it must stop."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Optional

import attr
import dp_accounting
import numpy as np

from dpfl import accounting
from dpfl.mechanisms import Mechanism, Participation


def default_delta(population: int) -> float:
    """min(1e-3, N**-1.1): less than one in N, and never larger than 1e-3."""
    return min(1e-3, population**-1.1)


def calibrate(
    mechanism: Mechanism,
    dimension: int,
    participation: Participation,
    target_epsilon: float,
    target_delta: float,
    method: str = "rdp",
) -> Mechanism:
    """The mechanism with the least noise that meets a budget over a whole run.

    Args:
      mechanism: Its own noise multiplier plays no part.
      dimension: Length d of the flattened model update.
      participation: How clients are chosen, and for how many rounds.
      target_epsilon: Greater than 0.
      target_delta: In (0, 1).
      method: See `dpfl.accounting.epsilon`.

    Raises:
      dpfl.accounting.CalibrationError: If no noise multiplier does.
      ValueError: If an argument is out of range.
    """

    def make_event(noise_multiplier: float) -> dp_accounting.DpEvent:
        noisy = mechanism.with_noise_multiplier(noise_multiplier)
        return noisy.dp_event(dimension, participation)

    return mechanism.with_noise_multiplier(
        accounting.calibrate_noise_multiplier(
            make_event, target_epsilon, target_delta, method=method
        )
    )


class Ledger:
    """What the rounds of a run cost.

    Attributes:
      planned: `dpfl.accounting.PrivacyReport` of all the rounds that were asked for.
      rounds_allowed: How many of them fit in the budget.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        dimension: int,
        participation: Participation,
        delta: float,
        *,
        target_epsilon: Optional[float] = None,
        method: str = "rdp",
    ):
        """Initializes the ledger.

        Args:
          mechanism: With its noise multiplier.
          dimension: Length d of the flattened model update.
          participation: How clients are chosen, and for how many rounds.
          delta: In (0, 1).
          target_epsilon: Budget, None for none.
          method: See `dpfl.accounting.epsilon`.
        """
        self._mechanism = mechanism
        self._dimension = dimension
        self._participation = participation
        self._delta = delta
        self._target_epsilon = target_epsilon
        self._method = method
        self.planned = self._report(participation.rounds)
        self.rounds_allowed = self._rounds_allowed()

    @property
    def stop_message(self) -> Optional[str]:
        """Why the run ends before its last round, None if it does not."""
        if self.rounds_allowed == self._participation.rounds:
            return None
        following = self._report(self.rounds_allowed + 1).epsilon
        return (
            f"the run stops after {self.rounds_allowed} of "
            f"{self._participation.rounds} rounds: round {self.rounds_allowed + 1} "
            f"would bring epsilon to {following:.4g}, above the target_epsilon of "
            f"{self._target_epsilon:g}"
        )

    def epsilon_after(self, rounds: int) -> float:
        """Epsilon of the first `rounds` rounds by Renyi accounting; cheap."""
        if rounds == 0:
            return 0.0
        event = self._event(rounds)
        if isinstance(event, dp_accounting.SelfComposedDpEvent):
            vector = _rdp_vector(event.event) * event.count
        else:
            vector = _rdp_vector(event)
        return accounting.epsilon(_KnownRdpDpEvent(tuple(vector)), self._delta).epsilon

    def actual(
        self, rounds: int, participations: Sequence[int]
    ) -> accounting.PrivacyReport:
        """The report of what really happened.

        Args:
          rounds: Rounds whose result was released.
          participations: How often each client took part.

        Raises:
          ValueError: If a client took part more often than is accounted for.
        """
        most = int(np.max(participations, initial=0))
        if rounds and most > self._participation.first(rounds).max_participations:
            raise ValueError(
                "participations must be at most "
                f"{self._participation.first(rounds).max_participations} for each "
                f"client, found {most}"
            )
        return self._report(rounds)

    def _event(self, rounds: int) -> dp_accounting.DpEvent:
        return self._mechanism.dp_event(
            self._dimension, self._participation.first(rounds)
        )

    def _report(self, rounds: int) -> accounting.PrivacyReport:
        if rounds == 0:
            return accounting.PrivacyReport(0.0, self._delta, self._method)
        return accounting.epsilon(self._event(rounds), self._delta, method=self._method)

    def _rounds_allowed(self) -> int:
        """The largest number of rounds within the budget: epsilon never falls."""
        target = self._target_epsilon
        rounds = self._participation.rounds
        if target is None or self.planned.epsilon <= target:
            return rounds
        low, high = 0, rounds
        while high - low > 1:
            middle = (low + high) // 2
            if self._report(middle).epsilon <= target:
                low = middle
            else:
                high = middle
        return low


@attr.s(frozen=True, auto_attribs=True)
class _KnownRdpDpEvent(accounting.RdpDpEvent):
    """An event whose Renyi differential privacy at the default orders is known."""

    vector: tuple[float, ...]

    def rdp(self, orders: Sequence[float]) -> np.ndarray:
        return np.asarray(self.vector)


@functools.lru_cache(maxsize=64)
def _rdp_vector(event: Any) -> np.ndarray:
    """Renyi differential privacy at the default orders; computed once an event."""
    if isinstance(event, accounting.RdpDpEvent):
        return np.asarray(event.rdp(accounting.DEFAULT_ORDERS))
    if isinstance(event, dp_accounting.NonPrivateDpEvent):
        return np.full(len(accounting.DEFAULT_ORDERS), math.inf)
    accountant = accounting.DpflAccountant()
    accountant.compose(event)
    # The accountant's vector has no public name.
    return np.array(accountant._rdp)
