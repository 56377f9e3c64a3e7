# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Tests of a history of cohorts against the sampling that is accounted for.

    evidence = Evidence(plan)
    evidence.refusal(0, clients)   # None, or a sentence
    evidence.add(0, clients)

They are bets against the sampling, whose wealth is expected to fall if it is honest:
the probability that it ever grows to 1/a is then at most a (Ville's inequality), over
all rounds together. docs/privacy/ledger.md has the laws and their proofs.
"""

from __future__ import annotations

import collections
import copy
import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Optional

import numpy as np

from dpfl.mechanisms.participation import (
    BallsInBins,
    BMinSeparation,
    CyclicPoisson,
    KOfT,
    Participation,
    PoissonSampling,
    RandomAllocation,
    WithoutReplacement,
)

# Probability that a history of honest sampling is refused.
LEVEL = 1e-9
# Number of bets: on one client's rounds, on sizes that vary too little, on clients that
# come back, on slots that are as in the epoch before, and on clients that come back
# late.
_BETS = 5
# Stake on sizes that vary too little; the rest is kept for odd rounds.
_STAKE = 0.9


# Plans that claim something about the choice of clients; the law of a subclass may be
# another.
TESTED = (
    *(PoissonSampling, WithoutReplacement, RandomAllocation),
    *(CyclicPoisson, BallsInBins, BMinSeparation, KOfT),
)


def _exclusive(plan: Participation, before: int) -> float:
    """Probability of a round, where a client is in at most one, each with n / N.

    It is given that the client was in none of the `before` rounds.
    """
    left = plan.population - before * plan.cohort_size
    return plan.cohort_size / max(left, plan.cohort_size)


def _chances(plan: Participation, index: int) -> tuple[float, float]:
    """The largest probabilities that a client joins a round.

    The first is that of the round `index`, given the rounds before, in which clients
    join independently; the second that of each round, or epoch, that it could join.
    """
    if isinstance(plan, RandomAllocation):
        length = plan.rounds_per_epoch
        each = length * plan.cohort_size / plan.population
        return _exclusive(plan, index % length), min(1.0, each)
    if isinstance(plan, BMinSeparation):
        return plan.turn_probability, plan.turn_probability
    if isinstance(plan, KOfT):
        # Of a run that ends earlier, all of a client's rounds may come first.
        return min(1.0, plan.law.most / max(plan.of_rounds - index, 1)), 1.0
    if isinstance(plan, CyclicPoisson):
        each = min(1.0, plan.turn_probability)
        return (_exclusive(plan, index) if 1 < plan.groups > index else each), each
    each = plan.cohort_size / plan.population
    return each, each


class Evidence:
    """The bets against a plan: rounds in, a refusal out.

    Rounds that were not seen, and repeated ones, are not bet on.
    """

    def __init__(self, plan: Participation, level: float = LEVEL):
        self._plan = plan
        self._is_tested = type(plan) in TESTED
        self._log_limit = math.log(_BETS / level)
        self._begun = 0
        # Rounds that were seen, and whether those are all from the first on.
        self._rounds, self._is_whole = 0, True
        # Rounds of each group, its distinct clients, and epochs begun.
        self._turns: collections.Counter[Optional[int]] = collections.Counter()
        self._members: collections.Counter[Optional[int]] = collections.Counter()
        self._epochs: set[int] = set()
        self._counts: dict[Hashable, int] = {}
        self._narrow = _Narrow(plan.cohort_size)
        share = _tilts(plan.cohort_size / plan.population)
        self._back = _Tilts(np.concatenate([2.0 ** np.arange(-10, 0), share]))
        self._same = _Tilts(share) if isinstance(plan, RandomAllocation) else None
        self._place: dict[Hashable, int] = {}
        self._at: collections.Counter[int] = collections.Counter()
        self._late = _Tilts(share) if plan.draws_afresh else None
        # Half of an epoch, if there were epochs.
        self._window = max(1, plan.population // plan.cohort_size // 2)
        # Last round of each client, and the number of clients whose last round it is,
        # for recent rounds.
        self._last: dict[Hashable, int] = {}
        self._of_round: dict[int, int] = {}

    def refusal(self, index: int, names: Sequence[Hashable]) -> Optional[str]:
        """A sentence on a round that contradicts the plan, or None.

        Args:
          index: The round's index, from 0 on.
          names: The clients of the round.
        """
        plan, size = self._plan, len(names)
        if not self._is_tested or index < self._begun:
            return None
        if isinstance(plan, WithoutReplacement) and size > plan.cohort_size:
            return self._sentence(f"{size} clients in round {index + 1}")
        client = max(names, key=lambda c: self._counts.get(c, 0), default=None)
        count = self._counts.get(client, 0) + 1
        if count > plan.max_participations:
            return self._sentence(f"client {client!r} in {count} rounds")
        trials, (_, chance) = self._trials(index, count), _chances(plan, index)
        often = size and (
            _log_wealth(_tilts(chance), count, trials, chance)
            - math.log(plan.population)
        )
        if often >= self._log_limit:
            rounds = "epochs" if isinstance(plan, RandomAllocation) else "rounds"
            event = f"client {client!r} in {count} of its {trials} possible {rounds}"
            return self._sentence(event)
        narrow, back, same, late = self._after(index, names)
        if narrow.log_wealth >= self._log_limit:
            return self._sentence(f"cohorts of a nearly constant size of {size}")
        if back.log_wealth >= self._log_limit:
            came, known = self._again(index, names, plan.excluded_from(index))
            event = f"{came} of {known} earlier clients again in round {index + 1}"
            return self._sentence(event)
        if same is not None and same.log_wealth >= self._log_limit:
            event = f"slot {self._slot(index) + 1} with the clients of another epoch"
            return self._sentence(event)
        if late is not None and late.log_wealth >= self._log_limit:
            event = f"clients that mostly come back after {self._window} rounds"
            return self._sentence(event)
        return None

    def _after(self, index: int, names: Sequence[Hashable]) -> _Bets:
        """The bets on more than one client, after a round of these clients."""
        plan, (chance, _) = self._plan, _chances(self._plan, index)
        narrow, same, late = self._narrow, self._same, self._late
        if plan.varies_cohorts:
            narrow = narrow.after(len(names), chance)
        again = self._again(index, names, plan.excluded_from(index))
        if same is not None:
            same = same.after(*self._repeats(index, names), chance)
        if late is not None and index >= 2 * self._window:
            begin = index - self._window
            late = late.after(*self._again(index, names, begin), chance)
        return _Bets(narrow, self._back.after(*again, chance), same, late)

    def add(self, index: int, names: Optional[Sequence[Hashable]]) -> None:
        """Adds a round; None for clients that are not known."""
        is_again, self._begun = index < self._begun, max(self._begun, index + 1)
        plan = self._plan
        if not self._is_tested or names is None or is_again:
            self._is_whole = False
            return
        self._is_whole = self._is_whole and index == self._rounds
        self._narrow, self._back, self._same, self._late = self._after(index, names)
        if self._same is not None:
            for client in names:
                self._at[self._place.get(client, -1)] -= 1
                self._place[client] = self._slot(index)
            self._at[self._slot(index)] += len(names)
        group = plan.group_of(index)
        for client in names:
            count = self._counts.get(client, 0)
            self._counts[client] = count + 1
            self._members[group] += not count
            before = self._last.get(client, -1)
            if before in self._of_round:
                self._of_round[before] -= 1
        self._last.update(dict.fromkeys(names, index))
        self._of_round[index] = len(names)
        first = min(plan.excluded_from(index), index - self._window)
        self._of_round = {r: n for r, n in self._of_round.items() if r >= first}
        self._turns[group] += 1
        self._rounds += 1
        if plan.rounds_per_epoch:
            self._epochs.add(index // plan.rounds_per_epoch)

    def _trials(self, index: int, count: int) -> int:
        """The number of times that a client could have joined, round `index` included.

        It has now joined `count` times.
        """
        plan = self._plan
        if plan.rounds_per_epoch:
            return len(self._epochs | {index // plan.rounds_per_epoch})
        trials = self._turns[plan.group_of(index)] + 1
        if isinstance(plan, BMinSeparation) and self._is_whole:
            # After each of its rounds it was not free.
            trials -= (plan.separation - 1) * (count - 1)
        return trials

    def _again(
        self, index: int, names: Sequence[Hashable], begin: int
    ) -> tuple[int, int]:
        """Counts clients last seen before `begin`: those that came, and all of them.

        Where groups take turns only the group's clients count.
        """
        plan, group = self._plan, self._plan.group_of(index)
        came = sum(self._last.get(client, begin) < begin for client in names)
        recent = sum(
            number
            for before, number in self._of_round.items()
            if before >= begin and plan.group_of(before) == group
        )
        return came, self._members[group] - recent

    def _slot(self, index: int) -> int:
        return index % (self._plan.rounds_per_epoch or 1)

    def _repeats(self, index: int, names: Sequence[Hashable]) -> tuple[int, int]:
        """Counts clients whose last slot was this one: those that came, and all."""
        slot = self._slot(index)
        same = sum(self._place.get(client) == slot for client in names)
        return same, self._at[slot]

    def _sentence(self, event: str) -> str:
        return (
            f"participants must be drawn by {self._plan.name}, found {event}, whose "
            f"probability in a whole run is below {LEVEL:g}"
        )


def _tilts(chance: float) -> np.ndarray:
    """Log odds ratios of the bets, up to joining nearly always."""
    most = max(1, math.ceil(math.log2(1000 / max(chance, 1e-12))))
    return math.log(2) * np.arange(1, most + 1)


def _log_mean(logs: np.ndarray) -> float:
    """The logarithm of the mean of numbers given by logarithms."""
    top = float(np.max(logs))
    return top + math.log(float(np.mean(np.exp(logs - top))))


def _log_wealth(tilts: np.ndarray, count: int, trials: int, chance: float) -> float:
    """The log wealth of equal bets that `count` of `trials` is too many."""
    fair = trials * np.log1p(chance * np.expm1(tilts))
    return _log_mean(tilts * count - fair)


class _Tilts:
    """Bets that too many of the clients that may join do, at several odds."""

    def __init__(self, tilts: np.ndarray, logs: Optional[np.ndarray] = None):
        self._tilts = tilts
        self._logs = np.zeros(len(tilts)) if logs is None else logs

    @property
    def log_wealth(self) -> float:
        return _log_mean(self._logs)

    def after(self, size: int, clients: int, chance: float) -> _Tilts:
        fair = clients * np.log1p(chance * np.expm1(self._tilts))
        return _Tilts(self._tilts, self._logs + self._tilts * size - fair)


class _Narrow:
    """Bets that sizes vary too little: around the last one, and around their mean."""

    def __init__(self, cohort_size: int):
        # The scale 4 is a bet on the very number, and 1 / s one on a variance of about
        # s.
        halvings = math.ceil(math.log(cohort_size + 1, 4))
        self._scales = np.array([4.0, *4.0 ** -np.arange(halvings + 1.0)])
        self._logs = np.zeros(len(self._scales))
        self._last, self._sum, self._rounds = 0, 0, 0

    @property
    def log_wealth(self) -> float:
        return _log_mean(self._logs)

    def after(self, size: int, chance: float) -> _Narrow:
        other = copy.copy(self)
        if self._rounds:
            centre = np.full(len(self._scales), self._sum / self._rounds)
            centre[0] = self._last
            most = most_near(self._scales, centre, chance)
            with np.errstate(under="ignore"):
                near = np.exp(-self._scales * (size - centre) ** 2)
            gains = np.log(1 - _STAKE + _STAKE * near / most)
            other._logs = self._logs + np.where(most < 1, gains, 0.0)
        other._last = size
        other._sum, other._rounds = self._sum + size, self._rounds + 1
        return other


class _Bets(NamedTuple):
    """The bets of `Evidence` on more than one client."""

    narrow: _Narrow
    back: _Tilts
    same: Optional[_Tilts]
    late: Optional[_Tilts]


def most_probable(sizes: np.ndarray, chance: float) -> np.ndarray:
    """A bound on the probability of each size, 1 / sqrt(2 e (k - p) (1 - p)).

    It holds for any number of clients, each of which joins with probability `chance` at
    most, by Herzog's (1947) bound on a binomial's.
    """
    spread = 2 * math.e * (sizes - chance) * (1 - chance)
    return np.maximum(spread, 1.0) ** -0.5


def most_near(scales: np.ndarray, centres: np.ndarray, chance: float) -> np.ndarray:
    """A bound on the mean of exp(-s (X - c)^2) of sizes X as in `most_probable`.

    Args:
      scales: The scales s; [m].
      centres: The centres c; [m].
      chance: The largest probability with which a client joins.
    """
    # Blocks of sizes, of a single size where that reaches far enough; the rest is below
    # 1e-12.
    strides = np.ceil((np.sqrt(40 / scales) + 1) / 500)[:, None]
    first = np.floor(centres)[:, None] + strides * np.arange(-501, 502)
    nearest = np.clip(centres[:, None], first, first + strides - 1)
    with np.errstate(under="ignore"):
        near = np.exp(-scales[:, None] * (nearest - centres[:, None]) ** 2)
    near[first + strides <= 0] = 0
    terms = strides * near * most_probable(np.maximum(first, 0), chance)
    return np.sum(terms, axis=1) + 1e-12
