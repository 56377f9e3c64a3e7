# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""History of cohorts, and the check of the clients of the next round.

    history, names = History(participation), names_of(clients)
    history.check(names)  # ValueError if the round may not have them
    history.add(names)

`go_to` moves to a later or an earlier round, as after a restart.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Optional

from dpfl import checks
from dpfl.mechanisms.participation import Participation
from dpfl.planning.evidence import Evidence

Names = Optional[Sequence[Hashable]]


def names_of(clients: Iterable[Hashable]) -> list[Hashable]:
    """The names of clients, those in arrays and tensors of any library as numbers.

    Two tensors are never the same key, so that no client would be found twice.
    """
    listed = clients.tolist() if hasattr(clients, "tolist") else clients
    try:
        if isinstance(listed, (str, bytes)):
            raise TypeError("participants are a single name")
        names = [each.item() if hasattr(each, "item") else each for each in listed]
        hash(tuple(names))
        if any(name != name for name in names):
            raise TypeError("NaN cannot name a client")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"participants must be a list of client names, found {clients!r:.80}"
        ) from error
    return names


class History:
    """Cohorts of the past rounds of a program, where they are known.

    Attributes:
      rounds: Their number.
    """

    def __init__(self, participation: Participation):
        self.rounds = 0
        self._participation = participation
        # Clients of the last rounds, by round, who may not be back yet.
        self._recent: dict[int, Sequence[Hashable]] = {}
        # The last of these rounds of each client, and of some clients an older one.
        self._last: dict[Hashable, int] = {}
        # Groups of clients that have taken part, where groups take turns.
        self._group_of: dict[Hashable, Optional[int]] = {}
        self._evidence = Evidence(participation)

    def copy(self) -> History:
        """An independent copy of the history."""
        other = copy.copy(self)
        other._recent, other._last = dict(self._recent), dict(self._last)
        other._group_of = dict(self._group_of)
        other._evidence = copy.deepcopy(self._evidence)
        return other

    def go_to(self, rounds: int, known: Mapping[int, Sequence[Hashable]]) -> None:
        """Moves forward or back to the state after `rounds` rounds.

        Args:
          rounds: The number of rounds.
          known: Clients of some of them, by the rounds' numbers from 1 on.
        """
        begin = self._participation.excluded_from(rounds)
        kept = {r: names for r, names in self._recent.items() if begin <= r < rounds}
        kept.update((r, known[r + 1]) for r in range(begin, rounds) if r + 1 in known)
        self.rounds, self._recent = rounds, kept
        self._last = {client: r for r in sorted(kept) for client in kept[r]}

    def check(self, names: Sequence[Hashable]) -> None:
        """Raises ValueError if the clients cannot be in the next round."""
        begin = self._participation.excluded_from(self.rounds)
        seen: set[Hashable] = set()
        for client in names:
            before = self._last.get(client, -1)
            if before >= begin or client in seen:
                where = "the round" if client in seen else self._stretch(before)
                raise ValueError(
                    f"participants must have each client once in {where}, "
                    f"found {client!r} again in round {self.rounds + 1}"
                )
            seen.add(client)
            self._check_group(client)
        refusal = self._evidence.refusal(self.rounds, names)
        if refusal is not None:
            raise ValueError(refusal)

    def add(self, names: Names) -> None:
        """Adds a round of clients that were checked, or of unknown ones if None."""
        begin = self._participation.excluded_from(self.rounds)
        self._recent = {r: names for r, names in self._recent.items() if r >= begin}
        if names is not None:
            self._recent[self.rounds] = names
            self._last.update(dict.fromkeys(names, self.rounds))
            turn = self._participation.group_of(self.rounds)
            if turn is not None:
                self._group_of.update((client, turn) for client in names)
        self._evidence.add(self.rounds, names)
        self.rounds += 1

    def _check_group(self, client: Hashable) -> None:
        """Raises ValueError if a client belongs to another group than has its turn.

        Clients that change their group may be in rounds whose columns of C have more in
        common than is charged for, though they are far enough apart.
        """
        turn = self._participation.group_of(self.rounds)
        known = self._group_of.get(client, turn)
        wanted = f"of group {turn}, not group {known}, in round {self.rounds + 1}"
        checks.require(known == turn, "participants", wanted, client)

    def _stretch(self, before: int) -> str:
        """The stretch of rounds that contains the next round and an earlier one."""
        chosen = self._participation
        epoch = chosen.rounds_per_epoch
        if epoch is not None and before // epoch == self.rounds // epoch:
            return "the epoch"
        return f"any {chosen.separation} rounds"
