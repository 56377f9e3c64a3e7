# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a history of cohorts contradicts of the sampling that is accounted for.

Bets against the sampling, whose wealth is expected to fall if it is honest: the chance
that it ever grows to 1/a is then at most a (Ville's inequality), at all rounds
together. docs/privacy/ledger.md has the laws and their proofs.
"""

from __future__ import annotations

import collections
import copy
import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Optional

import numpy as np

from dpfl.mechanisms.participation import (
    BallsInBins,
    BMinSeparation,
    CyclicPoisson,
    FixedSize,
    InEpochs,
    OncePerEpoch,
    Participation,
    PoissonSampling,
    RandomSlot,
    WithoutReplacement,
)

# The chance that any history of honest sampling is refused.
LEVEL = 1e-9
# On one client's rounds, on sizes that vary too little, on sizes that are too large, on
# slots that are as in the epoch before, and on clients that do not come back soon.
_BETS = 5
# What is staked on sizes that vary too little; the rest is kept for odd rounds.
_STAKE = 0.9


class Free(NamedTuple):
    """The law of a cohort's size, given the rounds before: Binomial(clients, chance).

    Attributes:
      clients: Of whom each joins independently.
      chance: With which it does.
      is_exact: Whether there may not be more such clients.
    """

    clients: int
    chance: float
    is_exact: bool = True


class Seen:
    """The rounds that were seen, as far as laws depend on them."""

    def __init__(self, plan: Participation):
        self.plan = plan
        self.rounds = 0
        # Whether these are all, from the first on.
        self.is_whole = True
        # Rounds of each group, its different clients, and epochs begun.
        self.turns: collections.Counter[Optional[int]] = collections.Counter()
        self.members: collections.Counter[Optional[int]] = collections.Counter()
        self.epochs: set[int] = set()
        self.sizes: dict[int, int] = {}

    def total(self, first: int, index: int) -> Optional[int]:
        """The clients of the rounds before `index`, from `first` on, if all known."""
        sizes = [self.sizes.get(number) for number in range(first, index)]
        return None if None in sizes else sum(filter(None, sizes))


def _poisson_size(seen: Seen, index: int) -> Optional[Free]:
    return Free(seen.plan.population, seen.plan.cohort_size / seen.plan.population)


def _slot_size(seen: Seen, index: int) -> Optional[Free]:
    epoch_begins = seen.plan.excluded_from(index)
    return _exclusive(seen, epoch_begins, index)


def _exclusive(seen: Seen, first: int, index: int) -> Optional[Free]:
    """Of rounds of which each client has one at most, with probability n / N each."""
    gone, population = seen.total(first, index), seen.plan.population
    left = population - (index - first) * seen.plan.cohort_size
    if gone is None or gone >= population or left <= 0:
        return None
    return Free(population - gone, min(1.0, seen.plan.cohort_size / left))


def _group_size(seen: Seen, index: int) -> Optional[Free]:
    plan = seen.plan
    assert isinstance(plan, CyclicPoisson)
    if plan.groups == 1:
        return _poisson_size(seen, index)
    if index < plan.groups:
        return _exclusive(seen, 0, index)
    members = seen.members[plan.group_of(index)]
    return Free(members, min(1.0, plan.turn_probability), False)


def _separated_size(seen: Seen, index: int) -> Optional[Free]:
    plan = seen.plan
    assert isinstance(plan, BMinSeparation)
    blocked = seen.total(index - plan.separation + 1, index)
    if blocked is None or blocked > plan.population:
        return None
    return Free(plan.population - blocked, plan.turn_probability)


def _poisson_join(seen: Seen, index: int, count: int) -> tuple[int, float]:
    return seen.rounds + 1, seen.plan.cohort_size / seen.plan.population


def _slot_join(seen: Seen, index: int, count: int) -> tuple[int, float]:
    length = seen.plan.rounds_per_epoch or 1
    chance = length * seen.plan.cohort_size / seen.plan.population
    return len(seen.epochs | {index // length}), min(1.0, chance)


def _group_join(seen: Seen, index: int, count: int) -> tuple[int, float]:
    plan = seen.plan
    assert isinstance(plan, CyclicPoisson)
    return seen.turns[plan.group_of(index)] + 1, min(1.0, plan.turn_probability)


def _separated_join(seen: Seen, index: int, count: int) -> tuple[int, float]:
    plan = seen.plan
    assert isinstance(plan, BMinSeparation)
    # Rounds after those of the client before, in which it was not free.
    blocked = (plan.separation - 1) * (count - 1) if seen.is_whole else 0
    return seen.rounds + 1 - blocked, plan.turn_probability


def _nothing(seen: Seen, index: int) -> Optional[Free]:
    return None


class Law(NamedTuple):
    """How a plan's clients join.

    Attributes:
      size: Of what is seen and a round's index: what is known of its size.
      join: Of these and the rounds that a client has now been in: how many times it
        could have joined, and the most probable that each was.
    """

    size: Callable[[Seen, int], Optional[Free]]
    join: Callable[[Seen, int, int], tuple[int, float]]


# Plans that are not here claim nothing of how clients are chosen.
LAWS: dict[type, Law] = {
    PoissonSampling: Law(_poisson_size, _poisson_join),
    WithoutReplacement: Law(_nothing, _poisson_join),
    RandomSlot: Law(_slot_size, _slot_join),
    CyclicPoisson: Law(_group_size, _group_join),
    BallsInBins: Law(_group_size, _group_join),
    BMinSeparation: Law(_separated_size, _separated_join),
}


class Evidence:
    """The bets against a plan: rounds in, a refusal out.

    Rounds that were not seen, and those that are done again, are not bet on.
    """

    def __init__(self, plan: Participation, level: float = LEVEL):
        self._plan = plan
        self._law = LAWS.get(type(plan))
        self._seen = Seen(plan)
        self._log_limit = math.log(_BETS / level)
        self._begun = 0
        self._counts: dict[Hashable, int] = {}
        self._most = 0
        self._narrow = _Narrow(plan.cohort_size)
        self._large = _Tilts(2.0 ** np.arange(-10, 2))
        slots = _Tilts(_tilts(plan.cohort_size / plan.population))
        self._same = slots if isinstance(plan, RandomSlot) else None
        self._place: dict[Hashable, int] = {}
        self._at: collections.Counter[int] = collections.Counter()
        self._late = _Tilts(_tilts(0.5)) if plan.draws_afresh else None
        self._returns = _Returns(plan)

    def copy(self) -> Evidence:
        """Other bets on the same rounds."""
        return copy.deepcopy(self)

    def refusal(self, index: int, names: Sequence[Hashable]) -> Optional[str]:
        """What is found if a round contradicts the plan, with one that would fit."""
        plan, size = self._plan, len(names)
        if self._law is None or index < self._begun:
            return None
        if isinstance(plan, WithoutReplacement) and size > plan.cohort_size:
            return self._sentence(f"{size} clients in round {index + 1}", size, False)
        client = max(names, key=lambda c: self._counts.get(c, 0), default=None)
        count = self._counts.get(client, 0) + 1
        trials, chance = self._law.join(self._seen, index, count)
        often = size and (
            _log_wealth(_tilts(chance), count, trials, chance)
            - math.log(plan.population)
        )
        if often >= self._log_limit:
            rounds = "epochs" if isinstance(plan, RandomSlot) else "rounds"
            found = (
                f"client {client!r} in {count} of {trials} {rounds} that it could be in"
            )
            return self._sentence(found, plan.cohort_size, False)
        free = self._law.size(self._seen, index)
        if free and self._narrow.after(size, free).log_wealth >= self._log_limit:
            # For what is only advice a quarter of the evidence is enough.
            found = f"cohorts that hardly vary around {size} clients"
            is_usual = plan.draws_afresh and often < self._log_limit / 4
            return self._sentence(found, size, is_usual, max(count, self._most) == 1)
        if free and self._large.after(size, free).log_wealth >= self._log_limit:
            found = f"cohorts as large as {size} clients"
            return self._sentence(found, size, False)
        if (
            self._same is not None
            and self._same.after(*self._repeats(index, names)).log_wealth
            >= self._log_limit
        ):
            found = f"the clients of slot {self._slot(index) + 1} as in another epoch"
            return self._sentence(found, plan.cohort_size, False)
        if (
            self._late is not None
            and self._late.after(*self._returns.late(names)).log_wealth
            >= self._log_limit
        ):
            found = f"hardly a client back within {self._returns.window} rounds"
            return self._sentence(found, plan.cohort_size, False, True)
        return None

    def add(self, index: int, names: Optional[Sequence[Hashable]]) -> None:
        """One more round; None for clients that are not known."""
        is_again, self._begun = index < self._begun, max(self._begun, index + 1)
        seen, law = self._seen, self._law
        if law is None or names is None or is_again:
            seen.is_whole = False
            seen.sizes.pop(index, None)
            return
        seen.is_whole = seen.is_whole and index == seen.rounds
        free = law.size(seen, index)
        self._narrow = self._narrow.after(len(names), free)
        if free:
            self._large = self._large.after(len(names), free)
        if self._same is not None:
            self._same = self._same.after(*self._repeats(index, names))
            for client in names:
                self._at[self._place.get(client, -1)] -= 1
                self._place[client] = self._slot(index)
            self._at[self._slot(index)] += len(names)
        if self._late is not None:
            self._late = self._late.after(*self._returns.late(names))
            self._returns.add(names)
        group = self._plan.group_of(index)
        for client in names:
            count = self._counts.get(client, 0)
            self._counts[client] = count + 1
            self._most = max(self._most, count + 1)
            seen.members[group] += not count
        seen.turns[group] += 1
        seen.rounds += 1
        seen.sizes[index] = len(names)
        if self._plan.rounds_per_epoch:
            seen.epochs.add(index // self._plan.rounds_per_epoch)

    def _slot(self, index: int) -> int:
        return index % (self._plan.rounds_per_epoch or 1)

    def _repeats(self, index: int, names: Sequence[Hashable]) -> tuple[int, Free]:
        """How many are in a slot that had them when they last came, and of how many."""
        slot = self._slot(index)
        same = sum(self._place.get(client) == slot for client in names)
        left = self._plan.population - slot * self._plan.cohort_size
        chance = self._plan.cohort_size / max(left, self._plan.cohort_size)
        return same, Free(self._at[slot], chance)

    def _sentence(
        self, found: str, size: int, is_usual: bool, is_first: bool = False
    ) -> str:
        plan = self._plan
        numbers = plan.population, min(max(size, 1), plan.population), plan.rounds
        fits: Participation
        if not size:
            found += "; clients that are not known are None"
        if isinstance(plan, InEpochs) and size * (plan.epoch_rounds or 1) <= numbers[0]:
            fits = OncePerEpoch(*numbers, plan.epoch_rounds)
        elif is_first:
            fits = OncePerEpoch(*numbers)
        else:
            fits = (WithoutReplacement if is_usual else FixedSize)(*numbers)
        return (
            f"participants must be drawn as {plan.name} says, found {found}, which has "
            f"less than the chance of {LEVEL:g} for a whole run; what is done needs "
            f"another plan, such as {fits}"
        )


class _Returns:
    """The clients that came in the last rounds, and all that ever came.

    Attributes:
      window: The number of the last rounds: half of an epoch, if there were epochs.
    """

    def __init__(self, plan: Participation):
        self.window = max(1, plan.population // plan.cohort_size // 2)
        self._population = plan.population
        self._rounds = self._recent = 0
        self._last: dict[Hashable, int] = {}
        self._of_round: collections.Counter[int] = collections.Counter()

    def late(self, names: Sequence[Hashable]) -> tuple[int, Free]:
        """How many came before the last rounds alone, and the most likely law of it."""
        begin = self._rounds - self.window
        late = sum(self._last.get(client, begin) < begin for client in names)
        ever = len(self._last)
        chance = (ever - self._recent) / max(ever, self._population)
        return late, Free(len(names), chance)

    def add(self, names: Sequence[Hashable]) -> None:
        """One more round."""
        begin = self._rounds - self.window
        for client in names:
            before = self._last.get(client, begin - 1)
            if before >= begin:
                self._of_round[before] -= 1
                self._recent -= 1
        self._last.update(dict.fromkeys(names, self._rounds))
        self._of_round[self._rounds] = len(names)
        self._recent += len(names) - self._of_round.pop(begin, 0)
        self._rounds += 1


def _tilts(chance: float) -> np.ndarray:
    """Log odds ratios of what is bet on, up to joining nearly always."""
    most = max(1, math.ceil(math.log2(1000 / max(chance, 1e-12))))
    return math.log(2) * np.arange(1, most + 1)


def _log_mean(logs: np.ndarray) -> float:
    """The logarithm of a mean, of logarithms."""
    top = float(np.max(logs))
    return top + math.log(float(np.mean(np.exp(logs - top))))


def _log_wealth(tilts: np.ndarray, count: int, trials: int, chance: float) -> float:
    """The wealth of bets, in equal parts, that `count` of `trials` is too many."""
    fair = trials * np.log1p(chance * np.expm1(tilts))
    return _log_mean(tilts * count - fair)


class _Tilts:
    """Bets that too many of those who may join do, at several odds."""

    def __init__(self, tilts: np.ndarray, logs: Optional[np.ndarray] = None):
        self._tilts = tilts
        self._logs = np.zeros(len(tilts)) if logs is None else logs

    @property
    def log_wealth(self) -> float:
        return _log_mean(self._logs)

    def after(self, size: int, free: Free) -> _Tilts:
        if not free.is_exact:
            return self
        fair = free.clients * np.log1p(free.chance * np.expm1(self._tilts))
        return _Tilts(self._tilts, self._logs + self._tilts * size - fair)


class _Narrow:
    """Bets that sizes vary too little: around the last one, and around their mean."""

    def __init__(self, cohort_size: int):
        # 4 is a bet on the very number, and 1 / s one on a variance of about that.
        halvings = math.ceil(math.log(cohort_size + 1, 4))
        self._scales = np.array([4.0, *4.0 ** -np.arange(halvings + 1.0)])
        self._theta = np.array([_theta(scale) for scale in self._scales])
        self._logs = np.zeros(len(self._scales))
        self._last, self._sum, self._rounds = 0, 0, 0

    @property
    def log_wealth(self) -> float:
        return _log_mean(self._logs)

    def after(self, size: int, free: Optional[Free]) -> _Narrow:
        other = copy.copy(self)
        if free and self._rounds:
            centre = np.full(len(self._scales), self._sum / self._rounds)
            centre[0] = self._last
            most = self._theta * most_probable(free)
            with np.errstate(under="ignore"):
                near = np.exp(-self._scales * (size - centre) ** 2)
            gains = np.log(1 - _STAKE + _STAKE * near / most)
            other._logs = self._logs + np.where(most < 1, gains, 0.0)
        other._last = size
        other._sum, other._rounds = self._sum + size, self._rounds + 1
        return other


def most_probable(free: Free) -> float:
    """A bound on the probability of any one size (Herzog 1947); it falls with clients.

    It is 1 / sqrt(2 e N p (1-p)), and 1 at most.
    """
    spread = free.clients * free.chance * (1 - free.chance)
    return 1.0 if spread < 1 / (2 * math.e) else (2 * math.e * spread) ** -0.5


def _theta(scale: float) -> float:
    """The largest sum over integers of exp(-scale (i - c)^2), which c = 0 has."""
    steps = np.arange(1, 9)
    if scale >= 1:
        return 1 + 2 * float(np.sum(np.exp(-scale * steps**2)))
    tail = 2 * float(np.sum(np.exp(-((math.pi * steps) ** 2) / scale)))
    return math.sqrt(math.pi / scale) * (1 + tail)
