# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Who takes part when: what amplifies privacy, and how often a client is charged."""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar, Optional

import dp_accounting

from dpfl import checks
from dpfl.accounting import adjacency, events, random_slot

# Larger numbers are mistakes: more devices than there are people, and a round for each
# second of thirty years.
MOST_CLIENTS = 10**11
MOST_ROUNDS = 10**9


@dataclasses.dataclass(frozen=True)
class Participation(abc.ABC):
    """How clients are chosen over a whole run.

    Attributes:
      population: Number of clients N.
      cohort_size: Expected number of clients n in a round, at most N.
      rounds: Number of rounds T.
    """

    population: int
    cohort_size: int
    rounds: int

    name: ClassVar[str]

    def __post_init__(self) -> None:
        checks.integer("population", self.population, at_most=MOST_CLIENTS)
        checks.integer("cohort_size", self.cohort_size, at_most=MOST_CLIENTS)
        checks.integer("rounds", self.rounds, at_most=MOST_ROUNDS)
        if self.cohort_size > self.population:
            raise ValueError(
                f"cohort_size must be at most the population of {self.population} "
                f"clients, found {self.cohort_size}"
            )

    def first(self, rounds: int) -> Participation:
        """Returns the participation in the first `rounds` rounds alone."""
        return dataclasses.replace(self, rounds=rounds)

    @property
    def sampling_probability(self) -> float:
        """The q by which Poisson sampling amplifies privacy; 1 where it does not."""
        return 1.0

    @property
    def varies_cohorts(self) -> bool:
        """Whether how many clients a round has is left to chance.

        A client that goes is then not made up for by another, and would take along
        whatever noise it brings.
        """
        return False

    @property
    def relations(self) -> adjacency.Relations:
        """The relations between neighbours that this choice of clients leaves.

        With exactly n clients in a round only 'replaced by zeros' is left: whoever is
        removed makes room for another, whose update is then in the sum.
        """
        return events.ZEROS_ONLY

    @property
    @abc.abstractmethod
    def max_participations(self) -> int:
        """The largest number of rounds in which one client can take part."""

    @property
    def rounds_per_epoch(self) -> Optional[int]:
        """Rounds until the same client may return, None where that is not bounded."""
        return None


@dataclasses.dataclass(frozen=True)
class PoissonSampling(Participation):
    """Each client joins each round independently with probability n / N."""

    name: ClassVar[str] = "poisson"

    @property
    def sampling_probability(self) -> float:
        """The q of the amplification, n / N."""
        return self.cohort_size / self.population

    @property
    def varies_cohorts(self) -> bool:
        """Whether not all clients are in every round."""
        return self.cohort_size < self.population

    @property
    def relations(self) -> adjacency.Relations:
        """Adding and removing: who joins does not depend on who else there is.

        A client of zeros is then as good as none, so that replacing one by zeros is
        covered as well.
        """
        return events.TRUSTED_RELATIONS

    @property
    def max_participations(self) -> int:
        """All rounds: a client may be drawn in every one."""
        return self.rounds


@dataclasses.dataclass(frozen=True)
class FixedSize(Participation):
    """Exactly n clients a round, drawn afresh without replacement.

    No amplification is claimed, and a client is charged for every round. Nor is
    anything claimed for adding or removing a client: the other clients' chances depend
    on whether it is there, and one of them takes its place in the sum.
    """

    name: ClassVar[str] = "fixed"

    @property
    def max_participations(self) -> int:
        """All rounds: a client may be drawn in every one."""
        return self.rounds


@dataclasses.dataclass(frozen=True)
class InEpochs(Participation):
    """No client is in two rounds of an epoch; how they are dealt out is a subclass's.

    Attributes:
      epoch_rounds: Rounds of an epoch; None is as many as there can be, floor(N / n).
    """

    epoch_rounds: Optional[int] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epoch_rounds is None:
            return
        checks.integer("rounds_per_epoch", self.epoch_rounds)
        most = self.population // self.cohort_size
        if self.epoch_rounds > most:
            raise ValueError(
                f"rounds_per_epoch must be at most {most}, for {self.cohort_size} of "
                f"{self.population} clients a round and no client twice, "
                f"found {self.epoch_rounds}"
            )

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds of an epoch."""
        return self.epoch_rounds or self.population // self.cohort_size

    @property
    def epochs(self) -> int:
        """Number of epochs begun."""
        return -(-self.rounds // self.rounds_per_epoch)

    @property
    def max_participations(self) -> int:
        """One round in each epoch begun."""
        return self.epochs


@dataclasses.dataclass(frozen=True)
class OncePerEpoch(InEpochs):
    """Clients are shuffled each epoch and taken n at a time, no client twice.

    The clients left over sit that epoch out.
    """

    name: ClassVar[str] = "once_per_epoch"


@dataclasses.dataclass(frozen=True)
class RandomSlot(InEpochs):
    """Each client draws a round of every epoch by itself, and tells nobody which.

    Each round has the probability n / N, so that cohorts vary and n clients are
    expected; with what is left the client sits the epoch out. The secret amplifies
    privacy: see `accounting.random_slot`.
    """

    name: ClassVar[str] = "random_slot"

    @property
    def slots(self) -> float:
        """The S of the amplification, N / n."""
        return self.population / self.cohort_size

    @property
    def varies_cohorts(self) -> bool:
        """Whether not all clients are in every round."""
        return self.cohort_size < self.population

    @property
    def relations(self) -> adjacency.Relations:
        """Adding and removing: nobody's slot depends on who else there is."""
        return events.TRUSTED_RELATIONS

    def run_event(self, round_event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
        """Returns the releases of all rounds: whole epochs, and one that has begun.

        Args:
          round_event: The release of one round that a client is in.
        """
        if isinstance(round_event, dp_accounting.NonPrivateDpEvent):
            return round_event
        whole, rest = divmod(self.rounds, self.rounds_per_epoch)
        parts: list[dp_accounting.DpEvent] = []
        if whole:
            epoch = random_slot.RandomSlotDpEvent(
                round_event, self.rounds_per_epoch, self.slots
            )
            parts.append(dp_accounting.SelfComposedDpEvent(epoch, whole))
        if rest:
            parts.append(random_slot.RandomSlotDpEvent(round_event, rest, self.slots))
        return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)


_KINDS: tuple[type[Participation], ...] = (
    PoissonSampling,
    FixedSize,
    OncePerEpoch,
    RandomSlot,
)
PARTICIPATIONS = {kind.name: kind for kind in _KINDS}
