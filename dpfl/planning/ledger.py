# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Privacy of a run: what it will cost, what it has spent.

For training loops of any kind; TensorFlow is not needed:

    ledger = Ledger(mechanism, dimension, participation, delta=1e-5)
    for clients in cohorts:
        ...                                     # the round, with the mechanism's noise
        epsilon = ledger.record_round(clients)  # of all rounds so far
    print(ledger.report())

`dpfl.training.release` has the same for `tff.program`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Optional

from dpfl import accounting, checks
from dpfl.accounting import events
from dpfl.accounting.calibration import METHODS
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.mechanisms.participation import Participation


def default_delta(population: int) -> float:
    """Min(1e-3, N**-1.1): less than one in N, and never larger than 1e-3."""
    return min(1e-3, population**-1.1)


@dataclasses.dataclass(frozen=True, eq=False)
class RunCost:
    """What the rounds of a run cost, before any of them is done.

    Attributes:
      mechanism: With its noise multiplier.
      participation: How clients are chosen, and for how many rounds.
      dimension: Length d of the flattened model update.
      delta: In (0, 1).
      target_epsilon: Budget over all rounds, None for none.
      method: See `dpfl.accounting.epsilon`.
    """

    mechanism: Mechanism
    participation: Participation
    dimension: int
    delta: float
    target_epsilon: Optional[float] = None
    method: str = "auto"

    def __post_init__(self) -> None:
        checks.delta("delta", self.delta)
        checks.choice("method", self.method, METHODS)
        if self.target_epsilon is not None:
            checks.positive("target_epsilon", self.target_epsilon)
        self.mechanism.check(self.participation, self.dimension)

    @functools.cached_property
    def planned(self) -> accounting.PrivacyReport:
        """The report of all the rounds that were asked for."""
        return self.report_after(self.participation.rounds)

    @functools.cached_property
    def rounds_allowed(self) -> int:
        """The number of rounds that fit in the budget; epsilon never falls."""
        target = self.target_epsilon
        rounds = self.participation.rounds
        if target is None or self.planned.epsilon <= target:
            return rounds
        low, high = 0, rounds
        while high - low > 1:
            middle = (low + high) // 2
            if self.report_after(middle).epsilon <= target:
                low = middle
            else:
                high = middle
        return low

    @functools.cached_property
    def _allowed(self) -> accounting.PrivacyReport:
        return self.report_after(self.rounds_allowed)

    @functools.cached_property
    def stop_message(self) -> Optional[str]:
        """The reason why a run ends before its last round, None if it does not."""
        if self.rounds_allowed == self.participation.rounds:
            return None
        following = self.report_after(self.rounds_allowed + 1).epsilon
        return (
            f"the run stops after {self.rounds_allowed} of "
            f"{self.participation.rounds} rounds: round {self.rounds_allowed + 1} "
            f"would bring epsilon to {following:.4g}, above the budget of "
            f"{self.target_epsilon:g}"
        )

    def report_after(self, rounds: int) -> accounting.PrivacyReport:
        """The report of the first `rounds` rounds, by `method`."""
        if rounds == 0:
            [relation, *_] = self.mechanism.relations(self.participation)
            name = events.NAMES[relation]
            return accounting.PrivacyReport(0.0, self.delta, self.method, relation=name)
        return accounting.epsilon(self._event(rounds), self.delta, method=self.method)

    def epsilon_after(self, rounds: int) -> float:
        """Epsilon of the first rounds, by `method`.

        Or what all the rounds that fit in the budget cost, if that is less: some of
        them cannot cost more.
        """
        whole = self._allowed if rounds <= self.rounds_allowed else self.planned
        return min(self.report_after(rounds).epsilon, whole.epsilon)

    def _event(self, rounds: int) -> accounting.RunDpEvent:
        return self.mechanism.dp_event(self.participation.first(rounds), self.dimension)


def _names(clients: Iterable[Hashable], argument: str) -> list[Hashable]:
    """The names of clients, those in arrays and tensors of any library as numbers.

    Two tensors are never the same key, so that nobody would be found twice.
    """
    listed = clients.tolist() if hasattr(clients, "tolist") else clients
    try:
        if isinstance(listed, (str, bytes)):
            raise TypeError("one name")
        names = [each.item() if hasattr(each, "item") else each for each in listed]
        hash(tuple(names))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{argument} must be names of clients in a list, found {clients!r:.80}"
        ) from error
    return names


class Ledger:
    """What the rounds of a run have spent: a round in, epsilon out.

    Attributes:
      cost: The `RunCost` that says what rounds cost.
      rounds: Number of rounds recorded.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        participation: Participation,
        dimension: int,
        delta: float,
        *,
        target_epsilon: Optional[float] = None,
        method: str = "auto",
    ):
        """An empty ledger of a `RunCost` of these arguments.

        Rounds that would exceed `target_epsilon` are refused.

        Raises:
          ValueError: If an argument is out of range or the mechanism cannot run so.
        """
        self.cost = RunCost(
            mechanism, participation, dimension, delta, target_epsilon, method
        )
        self.rounds = 0
        # Clients of the last rounds, by round: of those they may not yet be back from.
        self._recent: dict[int, frozenset[Hashable]] = {}
        # Of clients that have taken part, where groups take turns.
        self._group_of: dict[Hashable, Optional[int]] = {}

    @classmethod
    def of(cls, cost: RunCost) -> Ledger:
        """An empty ledger of a run whose cost is known already."""
        of_run = cost.mechanism, cost.participation, cost.dimension, cost.delta
        ledger = cls(*of_run, target_epsilon=cost.target_epsilon, method=cost.method)
        # What it has computed need not be computed again.
        ledger.cost = cost
        return ledger

    @property
    def epsilon(self) -> float:
        """Epsilon of the rounds recorded, by the ledger's method."""
        return self.cost.epsilon_after(self.rounds)

    def record_round(self, participants: Optional[Iterable[Hashable]] = None) -> float:
        """Records one more round, of which the result is to be released.

        To be called before the release, so that a round too many is refused in time.
        With participants, the clients of the round by any names that stay the same, it
        is checked that nobody takes part more often than is accounted for.

        Returns:
          Epsilon of all rounds so far.

        Raises:
          ValueError: If the round was not planned for, or is not within the budget, or
            a client is in it twice, or a second time in an epoch of `OncePerEpoch` or
            `RandomSlot`, or sooner than `Participation.separation` allows, or with
            another group, or window of `OncePerEpoch`, than before.
          TypeError: If participants are no names. The ledger is then as it was, too.
        """
        self.check_room(self.rounds + 1)
        here = [] if participants is None else _names(participants, "participants")
        chosen = self.cost.participation
        begin = chosen.excluded_from(self.rounds)
        recent = {r: who for r, who in self._recent.items() if r >= begin}
        seen: set[Hashable] = set()
        for client in here:
            before = [r for r, who in recent.items() if client in who]
            if before or client in seen:
                where = self._shared_stretch(before[-1]) if before else "the round"
                raise ValueError(
                    f"participants must have each client once in {where}, "
                    f"found {client!r} again in round {self.rounds + 1}"
                )
            seen.add(client)
            self._check_group(client, self.rounds)
        self._recent = {**recent, self.rounds: frozenset(seen)}
        self._remember_groups(self.rounds, seen)
        self.rounds += 1
        return self.epsilon

    def _check_group(self, client: Hashable, number: int) -> None:
        """Raises ValueError if it is another group's turn than a client's.

        Clients that change their group may be in rounds whose columns of C have more in
        common than is charged, though they are far enough apart.
        """
        turn = self.cost.participation.group_of(number)
        known = self._group_of.get(client, turn)
        if known != turn:
            raise ValueError(
                f"participants must be of group {turn} in round {number + 1}, "
                f"found {client!r} of group {known}"
            )

    def _remember_groups(self, number: int, cohort: Iterable[Hashable]) -> None:
        turn = self.cost.participation.group_of(number)
        if turn is not None:
            self._group_of.update((client, turn) for client in cohort)

    def _shared_stretch(self, before: int) -> str:
        """The stretch that the round that comes has in common with an earlier one."""
        chosen = self.cost.participation
        epoch = chosen.rounds_per_epoch
        if epoch is not None and before // epoch == self.rounds // epoch:
            return "the epoch"
        return f"any {chosen.separation} rounds"

    def resume_at(
        self, rounds: int, cohorts: Sequence[Iterable[Hashable]] = ()
    ) -> None:
        """Counts rounds that were released before, such as by an earlier process.

        Args:
          rounds: How many in all; at least as many as are recorded.
          cohorts: The clients of the last of them, the newest last, from
            `Participation.known_from` on: of those who may not yet return, or of all
            rounds where clients belong to groups. Rounds that are recorded here may be
            left out. None at all are for loops in which nobody is checked.

        Raises:
          ValueError: If it is less than what is recorded or more than what is planned,
            or there are too few cohorts or more than rounds, or a client is in two
            groups.
          TypeError: If a cohort is no names.
        """
        checks.integer("rounds", rounds, self.rounds)
        self.check_room(rounds)
        needed = self.cost.participation.known_from(rounds)
        least = min(rounds - needed, rounds - self.rounds)
        if len(cohorts) > rounds or 0 < len(cohorts) < least:
            raise ValueError(
                f"cohorts must be of at least {least} and at most {rounds} rounds, or "
                f"none, found {len(cohorts)}"
            )
        first = rounds - len(cohorts)
        recent = {
            first + number: frozenset(_names(cohort, "cohorts"))
            for number, cohort in enumerate(cohorts)
        }
        for number, cohort in recent.items():
            for client in cohort:
                self._check_group(client, number)
            self._remember_groups(number, cohort)
        self._recent.update(recent)
        self.rounds = rounds

    def report(self) -> accounting.PrivacyReport:
        """The report of the rounds recorded, by the ledger's method."""
        return self.cost.report_after(self.rounds)

    def check_room(self, rounds: int) -> None:
        """Raises ValueError if so many rounds are too many."""
        planned, allowed = self.cost.participation.rounds, self.cost.rounds_allowed
        if rounds > planned:
            raise ValueError(
                f"rounds must be at most the {planned} that are planned for, "
                f"found {rounds}"
            )
        if rounds > allowed:
            raise ValueError(
                f"rounds must be at most {allowed}, found {rounds}: "
                f"{self.cost.stop_message}"
            )
