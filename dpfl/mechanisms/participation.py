# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Participation: the choice of each round's clients, and its effect on privacy.

    plan = PoissonSampling(population=100_000, cohort_size=1000, rounds=1500)
    plan.sampling_probability   # 0.01
    plan.max_participations     # 1500

A class says by which sampling privacy is amplified, how many rounds a client may be in,
and for which relations between neighbours a guarantee can hold.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import ClassVar, Optional

import dp_accounting
import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, SelfComposedDpEvent

from dpfl import checks
from dpfl.accounting import events, gaussian, k_of_t, random_allocation, trees
from dpfl.accounting.balls_in_bins import BallsInBinsDpEvent
from dpfl.accounting.min_separation import MinSeparationDpEvent
from dpfl.fields import Checked, option, required

__all__ = ["PARTICIPATIONS", "Participation", "PoissonSampling", "CyclicPoisson"]
__all__ += ["BallsInBins", "BMinSeparation", "RandomAllocation", "OncePerEpoch"]
__all__ += ["KOfT", "WithoutReplacement", "FixedSize"]

# Limits of plausible numbers: more devices than there are people, and a round for each
# second of thirty years.
MOST_CLIENTS = 10**11
MOST_ROUNDS = 10**9
# Rounds in which clients wait in secret until they are free again.
_MOST_WAITING_ROUNDS = 10**5


@dataclasses.dataclass(frozen=True)
class Participation(Checked, abc.ABC):
    """The choice of clients over a whole run; rounds are counted from 0 on.

    Attributes:
      population: Number of clients N.
      cohort_size: Expected number of clients n in a round, at most N.
      rounds: Number of rounds T.
    """

    population: int = required(None, at_least=1, at_most=MOST_CLIENTS)
    cohort_size: int = required(None, at_least=1, at_most=MOST_CLIENTS)
    rounds: int = required(None, at_least=1, at_most=MOST_ROUNDS)

    checked_arguments: ClassVar[Mapping[str, checks.Check]] = {
        "round_index": functools.partial(checks.integer, at_least=0),
        "round_event": checks.instance(DpEvent),
        "first": functools.partial(checks.integer, at_least=0),
        "last": checks.integer,
    }
    name: ClassVar[str]
    # Whether cohorts of different rounds are independent.
    draws_afresh: ClassVar[bool] = False
    # Whether nobody but a client may know its rounds.
    are_rounds_secret: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.population
        checks.integer("cohort_size", self.cohort_size, 1, most, "the population")

    def _check_stretch(self, name: str, value: int) -> None:
        """Raises ValueError for rounds that the clients do not fill, each once."""
        most, numbers = self.population // self.cohort_size, f"{self.cohort_size} of"
        limit = f"for {numbers} {self.population} clients a round and no client twice"
        checks.integer(name, value, 1, most, limit)

    def first(self, rounds: int) -> Participation:
        """The participation in the first `rounds` rounds alone."""
        return dataclasses.replace(self, rounds=rounds)

    @property
    def name_in_digests(self) -> str:
        """The name in the digests of runs, which a renaming does not change."""
        return self.name

    @property
    def sampling_probability(self) -> float:
        """The q by which Poisson sampling amplifies privacy; 1 if nothing does."""
        return 1.0

    @property
    def varies_cohorts(self) -> bool:
        """Whether the number of clients in a round is random.

        A client that is removed is then not replaced by another, and would take along
        any noise that it brings.
        """
        return False

    @property
    def neighboring_relations(self) -> events.Relations:
        """The relations between neighbours that this choice of clients allows.

        With exactly n clients in a round only 'replaced by zeros' is possible: a client
        that is removed makes room for another, whose update is then in the sum.
        """
        return events.ZERO_OUT_ONLY

    @property
    def max_participations(self) -> int:
        """The largest number of rounds in which one client can take part."""
        return self.rounds

    @property
    def rounds_per_epoch(self) -> Optional[int]:
        """Rounds of an epoch, in which no client is twice; None without epochs."""
        return None

    @property
    def separation(self) -> int:
        """The least distance of two rounds of one client; 1 is consecutive rounds."""
        return getattr(self, "min_separation", None) or 1

    @property
    def groups(self) -> int:
        """The number of groups into which clients are dealt for the whole run."""
        return 1

    def group_of(self, round_index: int) -> Optional[int]:
        """The group that has its turn in a round, from 0 on; None without groups."""
        return None

    def run_event(self, round_event: DpEvent) -> DpEvent:
        """The releases of a run, from that of a round whose noise is no client's."""
        return SelfComposedDpEvent(round_event, self.max_participations)

    def most_rounds_in(self, first: int, last: int) -> int:
        """The most rounds of a client that affect those from `first` to `last` - 1.

        With correlated noise a round affects later ones that are less than `separation`
        away.
        """
        return 1 - -(last - first - 1) // self.separation

    def excluded_from(self, round_index: int) -> int:
        """The first of the earlier rounds whose clients cannot be in this one.

        Clients of the rounds since then cannot either. It never falls.
        """
        return max(0, round_index - self.separation + 1)

    def known_from(self, round_index: int) -> int:
        """The first round that must be known to decide who can be in this one."""
        return 0 if self.groups > 1 else self.excluded_from(round_index)


@dataclasses.dataclass(frozen=True)
class Independent(Participation):
    """Participation in which clients join independently of each other."""

    @property
    def varies_cohorts(self) -> bool:
        """Whether some clients are not in every round."""
        return self.cohort_size < self.population

    # A client of zeros has the same effect as none: adding and removing, and replacing
    # by zeros, are covered.
    neighboring_relations = events.TRUSTED_RELATIONS


@dataclasses.dataclass(frozen=True)
class PoissonSampling(Independent):
    """Each client joins each round independently with probability n / N."""

    name: ClassVar[str] = "poisson"
    draws_afresh: ClassVar[bool] = True

    @property
    def sampling_probability(self) -> float:
        """The q of the amplification, n / N."""
        return self.cohort_size / self.population


@dataclasses.dataclass(frozen=True)
class FixedSize(Participation):
    """Exactly n clients a round, chosen in any way.

    No amplification is claimed, and a client is charged for every round. Nor is
    anything claimed for adding or removing a client: the other clients' chances depend
    on whether it is there, and one of them takes its place in the sum.
    """

    name: ClassVar[str] = "fixed"
    draws_afresh: ClassVar[bool] = True
    are_rounds_secret: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class WithoutReplacement(FixedSize):
    """Exactly n clients a round, each cohort of n as likely as any other.

    Cohorts are drawn afresh, and nobody who sees a release sees who is in it. That
    amplifies privacy (docs/privacy/fixed_size.md), if an update depends on no earlier
    round that its client was in, but for what was released. A client is charged for
    every round where noise is correlated over rounds, or brought by the clients: then
    the server, which is not to be trusted, sees who they are.
    """

    name: ClassVar[str] = "without_replacement"
    are_rounds_secret: ClassVar[bool] = True

    def run_event(self, round_event: DpEvent) -> DpEvent:
        """See base class; the cohorts amplify."""
        release = _of_cohort(round_event)
        if self.cohort_size < self.population:
            fraction = self.cohort_size / self.population
            # Only releases known as Gaussian or by their RDP are amplified.
            with contextlib.suppress(TypeError, ValueError):
                release = gaussian.FixedSizeDpEvent(release, fraction)
        return super().run_event(release)


@dataclasses.dataclass(frozen=True)
class InEpochs(Participation):
    """Participation at most once an epoch; subclasses deal the clients out.

    Attributes:
      epoch_rounds: Rounds of an epoch; None is the largest number, floor(N / n).
    """

    epoch_rounds: Optional[int] = option(None, None, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_stretch("epoch_rounds", self.rounds_per_epoch)

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds of an epoch."""
        return self.epoch_rounds or self.population // self.cohort_size

    @property
    def max_participations(self) -> int:
        """One round in each epoch begun."""
        return -(-self.rounds // self.rounds_per_epoch)

    def most_rounds_in(self, first: int, last: int) -> int:
        """See base class: one in each epoch, and one that affects the first."""
        length = self.rounds_per_epoch
        epochs = (last - 1) // length - first // length + 1
        return min(epochs + (self.separation > 1), super().most_rounds_in(first, last))

    def excluded_from(self, round_index: int) -> int:
        """See base class: at least from the beginning of the epoch."""
        epoch_begins = round_index // self.rounds_per_epoch * self.rounds_per_epoch
        return min(epoch_begins, super().excluded_from(round_index))


@dataclasses.dataclass(frozen=True)
class OncePerEpoch(InEpochs):
    """Clients are shuffled each epoch and taken n at a time, no client twice.

    The remaining clients sit that epoch out.

    Attributes:
      min_separation: Least distance of two rounds of one client, across epochs too. For
        more than 1, clients are dealt once into windows of `window` rounds each, and
        shuffled within their own: every epoch has the same windows, so that two rounds
        are at least `rounds_per_epoch` - `window` + 1 apart. None is 1, a shuffle of
        all.
    """

    min_separation: Optional[int] = option(None, None, at_least=1)

    name: ClassVar[str] = "once_per_epoch"
    are_rounds_secret: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.rounds_per_epoch
        limit = f"the rounds of an epoch for {self.cohort_size} clients a round"
        checks.integer("min_separation", self.separation, 1, most, limit)

    @property
    def window(self) -> int:
        """Rounds among which a client's place is shuffled in each epoch."""
        return self.rounds_per_epoch - self.separation + 1

    @property
    def groups(self) -> int:
        """The number of windows into which clients are dealt for the whole run."""
        return -(-self.rounds_per_epoch // self.window)

    def group_of(self, round_index: int) -> Optional[int]:
        """The window of a round; None if there is only one."""
        if self.groups == 1:
            return None
        return round_index % self.rounds_per_epoch // self.window


@dataclasses.dataclass(frozen=True)
class Separated(Independent):
    """Rounds of one client are at least b apart.

    Attributes:
      min_separation: b; None is a subclass's own.
    """

    min_separation: Optional[int] = option(None, None, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_stretch("min_separation", self.separation)

    @property
    def max_participations(self) -> int:
        """One round in each b, ceil(T / b)."""
        return -(-self.rounds // self.separation)


@dataclasses.dataclass(frozen=True)
class CyclicPoisson(Separated):
    """Cyclic Poisson sampling: groups take turns, and a round samples from its group.

    Each client draws one of b groups by itself, once for the whole run; in round t each
    client of group t modulo b joins independently with probability q' = n b / N, so
    that n clients are expected. Rounds of one client are at least b apart, and each of
    them is amplified by q' (Choquette-Choo et al. 2023, '(Amplified) Banded Matrix
    Factorization'). With one group this is `PoissonSampling`, with N / n of them
    everybody joins whenever it is the group's turn. Cohorts vary even then, as groups
    do. Groups of one fixed size would not be private for adding and removing: a client
    that is removed would move another one to another group.

    Attributes:
      min_separation: b, the number of groups; None is 1.
    """

    name: ClassVar[str] = "cyclic_poisson"

    @property
    def turn_probability(self) -> float:
        """The q' with which a client joins a round of its group."""
        return self.cohort_size * self.groups / self.population

    @property
    def sampling_probability(self) -> float:
        """The q' of the amplification."""
        return self.turn_probability

    @property
    def groups(self) -> int:
        """b, the number of groups."""
        return self.separation

    def group_of(self, round_index: int) -> Optional[int]:
        """See base class."""
        return round_index % self.groups


@dataclasses.dataclass(frozen=True)
class BallsInBins(CyclicPoisson):
    """Balls-in-bins sampling: `CyclicPoisson` with secret groups.

    The secret amplifies privacy over the whole run: see `accounting.balls_in_bins`.
    With floor(N / n) groups a client stays away from a round of its group only where n
    does not divide N; with fewer of them it does so more often, which is charged as if
    it did not.

    Attributes:
      min_separation: b, the number of groups; None is the largest number, floor(N / n).
    """

    name: ClassVar[str] = "balls_in_bins"

    # The secret of the group amplifies, and no sampling.
    sampling_probability = 1.0

    @property
    def separation(self) -> int:
        """The least distance of two rounds of one client, b."""
        return self.min_separation or self.population // self.cohort_size

    @property
    def turns(self) -> np.ndarray:
        """The number of rounds of each group that has any, int64 [min(b, T)]."""
        return np.bincount(np.arange(self.rounds) % self.groups)

    def run_event(self, round_event: DpEvent) -> DpEvent:
        """See base class; with Gaussian noise the secret groups amplify."""
        release = _of_cohort(round_event)
        if not isinstance(release, GaussianDpEvent):
            return super().run_event(round_event)
        turns = np.diag(self.turns.astype(np.float64))
        return BallsInBinsDpEvent(release.noise_multiplier, turns, self.groups)


@dataclasses.dataclass(frozen=True)
class BMinSeparation(Separated):
    """Each client joins by coins of its own, at least b rounds apart, and tells nobody.

    A client that is free joins a round with probability n / (N - (b - 1) n), and is
    free again b rounds later. The first round in which it is free is drawn so that n
    clients are expected in every round. The secret amplifies privacy over the whole
    run: see `accounting.min_separation`. With b = 1 this is `PoissonSampling`; with N =
    b n no free client waits, as in `BallsInBins`. The epsilon of more than 100,000
    rounds would take minutes.

    Attributes:
      min_separation: b; None is 1.
    """

    name: ClassVar[str] = "b_min_separation"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer("rounds", self.rounds, 1, _MOST_WAITING_ROUNDS)

    @property
    def turn_probability(self) -> float:
        """The p with which a client that is free joins a round."""
        blocked = (self.separation - 1) * self.cohort_size
        return self.cohort_size / (self.population - blocked)

    def run_event(self, round_event: DpEvent) -> DpEvent:
        """See base class; with Gaussian noise the secret rounds amplify."""
        release = _of_cohort(round_event)
        if not isinstance(release, GaussianDpEvent):
            return super().run_event(round_event)
        if self.separation == 1:
            sampled = dp_accounting.PoissonSampledDpEvent(
                self.turn_probability, release
            )
            return super().run_event(sampled)
        noise, columns = release.noise_multiplier, np.ones([self.rounds, 1])
        return MinSeparationDpEvent(
            noise, columns, self.separation, self.turn_probability
        )


@dataclasses.dataclass(frozen=True)
class RandomAllocation(Independent, InEpochs):
    """Each client draws a round of every epoch by itself, and tells nobody which.

    Each round has the probability n / N, so that cohorts vary and n clients are
    expected; with the remaining probability the client sits the epoch out. The secret
    amplifies privacy: see `accounting.random_allocation`.
    """

    name: ClassVar[str] = "random_allocation"
    # An earlier name, which digests keep: seeds are made from them.
    name_in_digests = "random_slot"

    def run_event(self, round_event: DpEvent) -> DpEvent:
        """See base class: the releases of whole epochs and of a partial one."""
        release = _of_cohort(round_event)
        if isinstance(release, dp_accounting.NonPrivateDpEvent):
            return release
        whole, rest = divmod(self.rounds, self.rounds_per_epoch)
        event_class = random_allocation.RandomAllocationDpEvent
        slots = self.population / self.cohort_size
        parts: list[DpEvent] = []
        if whole:
            epoch = event_class(release, self.rounds_per_epoch, slots)
            parts.append(SelfComposedDpEvent(epoch, whole))
        if rest:
            parts.append(event_class(release, rest, slots))
        return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)


@dataclasses.dataclass(frozen=True)
class KOfT(Independent):
    """Each client draws k of the T rounds by itself, and tells nobody which.

    Each set of k rounds is as likely as any other. k is n T / N, so that n clients are
    expected in each round; what is left of a whole number is the probability of drawing
    one more. The secret amplifies privacy: see `accounting.k_of_t`. Where coordinates
    are masked or integers sent, an update depends on no earlier round that its client
    was in, but for what was released.

    Attributes:
      drawn_rounds: T, of which `rounds` are the first; None for no further ones.
    """

    drawn_rounds: Optional[int] = option(None, None, at_least=1, at_most=MOST_ROUNDS)

    name: ClassVar[str] = "k_of_t"

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = "the rounds that are drawn"
        checks.integer("rounds", self.rounds, 1, self.of_rounds, limit)

    def first(self, rounds: int) -> KOfT:
        """See base class; they have a part of a client's rounds."""
        return dataclasses.replace(self, rounds=rounds, drawn_rounds=self.of_rounds)

    @property
    def of_rounds(self) -> int:
        """T, the number of rounds of which a client draws some."""
        return self.drawn_rounds or self.rounds

    @property
    def law(self) -> k_of_t.Law:
        """The law of a client's rounds."""
        k, rest = divmod(self.cohort_size * self.of_rounds, self.population)
        return k_of_t.Law(k, self.of_rounds, rest / self.population)

    @property
    def max_participations(self) -> int:
        """k, rounded up, unless there are fewer rounds."""
        return min(self.rounds, self.law.most)

    def most_rounds_in(self, first: int, last: int) -> int:
        """See base class."""
        return min(last - first, self.max_participations)

    def run_event(self, round_event: DpEvent) -> DpEvent:
        """See base class: by its own law, or slots of as many blocks of the rounds."""
        release = _of_cohort(round_event)
        if isinstance(release, dp_accounting.NonPrivateDpEvent):
            return release
        if isinstance(release, GaussianDpEvent) and release.noise_multiplier:
            noise, (k, of_rounds, chance) = release.noise_multiplier, self.law
            return k_of_t.KOfTDpEvent(noise, self.rounds, k, of_rounds, chance)
        return k_of_t.slots(release, self.rounds, self.law)


def _of_cohort(round_event: DpEvent) -> DpEvent:
    """The release of a round to which a client contributes, without relations."""
    event = trees.bare(round_event)
    is_sampled = isinstance(event, dp_accounting.PoissonSampledDpEvent)
    return event.event if is_sampled else event


_KINDS: tuple[type[Participation], ...] = (
    *(PoissonSampling, FixedSize, WithoutReplacement),
    *(OncePerEpoch, RandomAllocation, CyclicPoisson, BallsInBins, BMinSeparation),
    KOfT,
)
PARTICIPATIONS = {kind.name: kind for kind in _KINDS}
# Names of participations with epochs.
WITH_EPOCHS = tuple(kind.name for kind in _KINDS if issubclass(kind, InEpochs))
# Participations with secret rounds, of which the whole run is one release.
SECRET_PARTICIPATIONS = (BallsInBins, BMinSeparation)
# Names of participations that need a `min_separation`.
SEPARATED = (CyclicPoisson.name, BMinSeparation.name)
WITH_SEPARATION = (OncePerEpoch.name, BallsInBins.name, *SEPARATED)
