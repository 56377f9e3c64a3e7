# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Ledger of a run's privacy: its cost in advance, and the budget that is spent.

For training loops of any kind; TensorFlow is not needed:

    ledger = Ledger(mechanism, participation, dimension, delta=1e-5)
    for clients in cohorts:
        ...                                     # the round, with the mechanism's noise
        epsilon = ledger.record_round(clients)  # of all rounds so far
    print(ledger.report())

A round that is repeated, after a kill and from an older state, has other noise and is
another release. A ledger with a `path` has every round on the disk before it is
released, and charges for both:

    ledger = Ledger(mechanism, participation, dimension, 1e-5, path="ledger.jsonl")
    ledger.resume_at(state.round)  # where the program goes on
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Optional

from dpfl import accounting, checks, files
from dpfl.accounting import events
from dpfl.accounting.calibration import ACCOUNTING_METHODS
from dpfl.fields import Checked, option, required
from dpfl.mechanisms.mechanism import Mechanism
from dpfl.mechanisms.participation import (
    SECRET_PARTICIPATIONS,
    KOfT,
    Participation,
)
from dpfl.planning.history import History, Names, names_of
from dpfl.planning.journal import Journal


def default_delta(population: int) -> float:
    """min(1e-3, N**-1.1): less than one in N, and never larger than 1e-3."""
    return min(1e-3, checks.integer("population", population) ** -1.1)


def _most(above: int, is_allowed: Callable[[int], bool]) -> int:
    """The most rounds that are allowed, of less than `above` and at least 0.

    Args:
      above: A number that is known not to be allowed, or beyond the plan.
      is_allowed: Function of a number of rounds.
    """
    low, high = 0, above
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_allowed(middle) else (low, middle)
    return low


class Again(NamedTuple):
    """Numbers of releases of rounds that were repeated since.

    Attributes:
      drawn: Releases to other cohorts, drawn afresh as if they were more rounds.
      whole: Releases that a client is charged for as if it was in them.
    """

    drawn: int = 0
    whole: int = 0


_NONE_AGAIN = Again()
# The last rounds of a secret count as so small a part of all of them together.
_PARTS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class RunCost(Checked):
    """Privacy loss of the rounds of a run, before any of them is done.

    Attributes:
      mechanism: The mechanism, with its noise multiplier.
      participation: The choice of clients over the run.
      dimension: Length d of the flattened model update.
      delta: In (0, 1).
      target_epsilon: Budget over all rounds, None for none.
      accounting_method: See `dpfl.accounting.epsilon`.
    """

    mechanism: Mechanism
    participation: Participation
    dimension: int = required(None, check=checks.dimension)
    delta: float = required(None, check=checks.delta)
    target_epsilon: Optional[float] = option(None, None, above=0)
    accounting_method: str = option("auto", None, choices=ACCOUNTING_METHODS)

    checked_arguments: ClassVar[Mapping[str, checks.Check]] = {
        "rounds": functools.partial(checks.integer, at_least=0)
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mechanism.check(self.participation, self.dimension)

    @functools.cached_property
    def planned(self) -> accounting.PrivacyReport:
        """The report of all planned rounds."""
        return self.report_after(self.participation.rounds)

    @functools.cached_property
    def rounds_allowed(self) -> int:
        """The number of rounds that fit in the budget; epsilon never falls."""
        target = self.target_epsilon
        rounds = self.participation.rounds
        if target is None or self.planned.epsilon <= target:
            return rounds
        return _most(rounds, lambda n: self.report_after(n).epsilon <= target)

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

    def report_after(
        self, rounds: int, again: Again = _NONE_AGAIN, figures: bool = False
    ) -> accounting.PrivacyReport:
        """The report of the first `rounds` rounds, and repeated ones.

        Args:
          rounds: How many of the first rounds count, at least 0.
          again: Releases of rounds that were repeated.
          figures: Whether the report has `figures`, which no rounds have not.

        Raises:
          ValueError: If no bound for the repeated rounds is known.
        """
        if rounds == 0 and not any(again):
            [relation, *_] = self.mechanism.neighboring_relations(self.participation)
            name = events.NAMES[relation]
            return accounting.PrivacyReport(
                0.0, self.delta, self.accounting_method, relation=name
            )
        event = self.event_after(rounds, again)
        return accounting.epsilon(
            event,
            self.delta,
            accounting_method=self.accounting_method,
            figures=figures,
        )

    def event_after(self, rounds: int, again: Again) -> accounting.RunDpEvent:
        """The event of `report_after`."""
        of_run = self.participation, self.dimension
        return self.mechanism.history_event(*of_run, rounds, again.drawn, again.whole)

    def epsilon_after(self, rounds: int) -> float:
        """Epsilon of the first rounds, by `accounting_method`, which never falls.

        It is no more than epsilon of all rounds that fit in the budget: a part of them
        cannot have a larger one. Bounds of a secret that are not equally tight after
        each round are held between those of halves, quarters and so on.
        """
        whole, before, least = self._allowed, 0, 0.0
        most = self.rounds_allowed
        if rounds > most:
            before, least = most, whole.epsilon
            whole, most = self.planned, self.participation.rounds
        if not isinstance(self.participation, (*SECRET_PARTICIPATIONS, KOfT)):
            return min(self.report_after(rounds).epsilon, whole.epsilon)
        largest = whole.epsilon
        while before < rounds < most and (most - before) * _PARTS > most:
            middle = (before + most) // 2
            if middle not in self._halves:
                self._halves[middle] = self.report_after(middle).epsilon
            epsilon = min(max(self._halves[middle], least), largest)
            if rounds <= middle:
                most, largest = middle, epsilon
            else:
                before, least = middle, epsilon
        return largest if rounds > before else least

    @functools.cached_property
    def _halves(self) -> dict[int, float]:
        return {}


class Ledger:
    """The budget that the rounds of a run have spent: a round in, epsilon out.

    Attributes:
      cost: The `RunCost` of the run.
      again: The releases of rounds that were lost, and are or will be repeated; they
        are charged for as well.
    """

    _journal: Optional[Journal] = None

    def __init__(
        self,
        mechanism: Mechanism,
        participation: Participation,
        dimension: int,
        delta: float,
        *,
        target_epsilon: Optional[float] = None,
        accounting_method: str = "auto",
        path: Optional[files.PathLike] = None,
    ):
        """An empty ledger of a `RunCost` of these arguments, or the one of a file.

        Rounds that would exceed `target_epsilon` are refused.

        Args:
          mechanism: The mechanism, with its noise multiplier.
          participation: The choice of clients over the run.
          dimension: Length d of the flattened model update.
          delta: In (0, 1).
          target_epsilon: Budget over all rounds, None for none.
          accounting_method: See `dpfl.accounting.epsilon`.
          path: The ledger's file, made if it does not exist, for a program that may be
            killed: a round is in it before `record_round` returns. It has the clients,
            and is as secret as they are. None for no file.

        Raises:
          ValueError: If an argument is out of range, the mechanism cannot run so, or
            the file is that of another run.
        """
        cost = RunCost(
            mechanism,
            participation,
            dimension,
            delta,
            target_epsilon,
            accounting_method,
        )
        self._begin(cost)
        if path is None:
            return
        about = {"mechanism": mechanism.identity, "dimension": dimension}
        plan = dataclasses.asdict(participation)
        about.update(participation=participation.name_in_digests, **plan)
        self._journal = journal = Journal(path, about)
        for number, names in journal.entries():
            if number != self.rounds + 1:
                self._lose(number - 1)
                self._history.go_to(number - 1, self._known)
            self._add(names)

    @classmethod
    def of(cls, cost: RunCost) -> Ledger:
        """An empty ledger of a run with a known cost."""
        ledger = cls.__new__(cls)
        # The cost keeps the reports that it has computed.
        ledger._begin(cost)
        return ledger

    def _begin(self, cost: RunCost) -> None:
        self.cost = cost
        self.again = _NONE_AGAIN
        self._history = History(cost.participation)
        # The known clients of rounds that count, by the rounds' numbers.
        self._known: dict[int, Sequence[Hashable]] = {}
        # Cohorts of lost rounds.
        self._lost: collections.Counter[frozenset] = collections.Counter()
        # The number of rounds within the budget, by repeated ones.
        self._allowed: dict[Again, int] = {}
        self._last: Optional[tuple[int, Again, accounting.PrivacyReport]] = None

    @property
    def rounds(self) -> int:
        """The number of recorded rounds, without lost ones."""
        return self._history.rounds

    @property
    def epsilon(self) -> float:
        """Epsilon of all releases so far, by the ledger's accounting method."""
        if not any(self.again):
            return self.cost.epsilon_after(self.rounds)
        return self.report().epsilon

    def report(self) -> accounting.PrivacyReport:
        """The report of all releases so far, by the ledger's accounting method."""
        return self._report(self.rounds, self.again)

    def record_round(self, participants: Optional[Iterable[Hashable]] = None) -> float:
        """Records one more round, whose result is about to be released.

        Call it before the release, so that a round too many is refused in time. With
        participants, the clients of the round by any names that stay the same, it
        checks that no client takes part more often than is accounted for, and that
        cohorts do not contradict the plan beyond doubt (docs/privacy/ledger.md).

        Returns:
          Epsilon of all releases, this round included.

        Raises:
          ValueError: If the round was not planned for, or is not within the budget, or
            a client is in it twice, or a second time in an epoch of `OncePerEpoch` or
            `RandomAllocation`, or sooner than `Participation.separation` allows, or
            with another group, or window of `OncePerEpoch`, than before, or the plan
            would not draw such cohorts.
          TypeError: If participants are no names. The ledger is then unchanged, too.
        """
        names = self.check_round(participants)
        if self._journal is not None:
            self._journal.add(self.rounds + 1, names)
        self._add(names)
        return self.epsilon

    def check_round(
        self, participants: Optional[Iterable[Hashable]] = None
    ) -> Optional[list[Hashable]]:
        """The names of a round's clients, if `record_round` would take them.

        It raises the errors of `record_round`, and records nothing.
        """
        names = None if participants is None else names_of(participants)
        if names is not None:
            self._history.check(names)
        self._check_room(self.rounds + 1, self._charged(names))
        return names

    @property
    def rounds_left(self) -> int:
        """The rounds that the plan and the budget allow beyond the recorded ones."""
        if not any(self.again) or self.cost.target_epsilon is None:
            return self.cost.rounds_allowed - self.rounds
        if self.again not in self._allowed:
            target = self.cost.target_epsilon
            self._allowed[self.again] = _most(
                self.cost.participation.rounds + 1,
                lambda n: self._report(n, self.again).epsilon <= target,
            )
        return max(self._allowed[self.again] - self.rounds, 0)

    def resume_at(
        self, rounds: int, cohorts: Sequence[Iterable[Hashable]] = ()
    ) -> None:
        """Resumes from the state after `rounds` rounds of the run.

        Rounds that are not recorded here count as released, such as by an earlier
        process. Rounds recorded beyond are lost: their releases stay charged, and they
        are charged again when they are repeated. That is right if their noise is then
        other noise, as without a seed. docs/privacy/ledger.md has their privacy loss.

        Args:
          rounds: The number of rounds in all.
          cohorts: The clients of the last of them, the newest last, from
            `Participation.known_from` on: of rounds whose clients may not return yet,
            or of all rounds where clients belong to groups. Rounds that are recorded
            here may be left out. None at all are for loops in which nobody is checked.

        Raises:
          ValueError: If there are more rounds than planned, or too few cohorts or more
            than rounds, or a cohort that `record_round` would have refused, or no bound
            for lost rounds is known.
          TypeError: If a cohort is no names. The ledger is then unchanged, too.
        """
        rounds = checks.integer("rounds", rounds, 0)
        done = self.rounds
        if rounds >= done:
            self.check_room(rounds)
        try:
            cohorts = list(cohorts)
        except TypeError:
            message = checks.message("cohorts", "a list of cohorts", cohorts)
            raise TypeError(message) from None
        least = min(
            rounds - self.cost.participation.known_from(rounds), max(rounds - done, 0)
        )
        is_right = not cohorts or least <= len(cohorts) <= rounds
        wanted = f"empty or of from {least} to {rounds} rounds"
        checks.require(is_right, "cohorts", wanted, len(cohorts))
        with checks.renaming({"participants": "cohorts"}):
            named = [names_of(cohort) for cohort in cohorts]
            history = self._history.copy()
            history.go_to(rounds - len(named), self._known)
            for names in named:
                history.check(names)
                history.add(names)
        if rounds < done:
            self.cost.event_after(rounds, self._with_lost(rounds))
        if self._journal is not None and rounds > done:
            first = rounds - len(named)
            # The next round comes first, for rounds beyond it were lost if there are.
            for number in sorted({done, *range(max(done, first), rounds), rounds - 1}):
                cohort = named[number - first] if number >= first else None
                self._journal.add(number + 1, cohort)
        self._lose(rounds)
        self._history = history
        self._known.update(enumerate(named, rounds - len(named) + 1))

    def check_room(self, rounds: int) -> None:
        """Raises ValueError if the run has fewer than `rounds` rounds."""
        self._check_room(rounds, self.again)

    def _check_room(self, rounds: int, again: Again) -> None:
        planned, target = self.cost.participation.rounds, self.cost.target_epsilon
        rounds = checks.integer("rounds", rounds, 0, planned, "the participation's")
        if target is None:
            return
        if not any(again):
            allowed, reason = self.cost.rounds_allowed, self.cost.stop_message
        else:
            epsilon = self._report(rounds, again).epsilon
            allowed = rounds if epsilon <= target else rounds - 1
            reason = (
                f"with lost rounds done again ({sum(again)}), round {rounds} would "
                f"bring epsilon to {epsilon:.4g}, above the budget of {target:g}"
            )
        if rounds > allowed:
            raise ValueError(
                f"rounds must be at most {allowed}, found {rounds}: {reason}"
            )

    def _report(self, rounds: int, again: Again) -> accounting.PrivacyReport:
        """The report of rounds; the last one is cached."""
        if self._last is None or self._last[:2] != (rounds, again):
            self._last = rounds, again, self.cost.report_after(rounds, again)
        return self._last[2]

    def _add(self, names: Names) -> None:
        self.again = self._charged(names)
        if names is not None:
            cohort = frozenset(names)
            self._lost[cohort] -= self._lost[cohort] > 0
            self._known[self.rounds + 1] = names
        self._history.add(names)

    def _charged(self, names: Names) -> Again:
        """The charge for lost rounds, once the next round is of these clients.

        A round with the very clients of a lost one is no further draw: both releases
        are of one sample, which is one secret.
        """
        drawn, whole = self.again
        if drawn and names is not None and self._lost[frozenset(names)]:
            return Again(drawn - 1, whole + 1)
        return self.again

    def _lose(self, rounds: int) -> None:
        """Charges for the rounds beyond, which are to be repeated."""
        self.again = self._with_lost(rounds)
        for number in range(rounds + 1, self.rounds + 1):
            if number in self._known:
                self._lost[frozenset(self._known.pop(number))] += 1

    def _with_lost(self, rounds: int) -> Again:
        if rounds >= self.rounds:
            return self.again
        drawn, whole = self.again
        chosen = self.cost.participation
        if chosen.draws_afresh and not self.cost.mechanism.remembers_noise:
            return Again(drawn + self.rounds - rounds, whole)
        return Again(drawn, whole + chosen.most_rounds_in(rounds, self.rounds))
