# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Epsilon beside the metrics that a `tff.program` releases.

ledger = dpfl.Ledger(mechanism, participation, dimension, delta, path="ledger.jsonl")
metrics = EpsilonReleaseManager(ledger, tff.program.LoggingReleaseManager())
await tff.learning.programs.train_model(..., train_metrics_manager=metrics)
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow_federated as tff

from dpfl import checks
from dpfl.planning.ledger import Ledger


class EpsilonReleaseManager(tff.program.ReleaseManager):
    """Releases the metrics of a round together with epsilon of all rounds so far.

    It must receive what is released after every round, such as training metrics. A
    round that the ledger refuses is not passed on. `tff.learning.programs.train_model`
    reports this when it ends, not at that round, so give it no more rounds than the
    participation has.

    A round that is done again, in a program that was killed and goes on from an older
    state, is another release, and is charged as one more. A ledger with a `path` has
    the round on the disk before it is passed on here; without one it is forgotten with
    the process, and epsilon is too small. The same holds for rounds that a program
    discards after some of their results were seen, since it does not release them here,
    and for results that it releases earlier in a round, such as an evaluation, if it is
    killed in between: a loop that calls `Ledger.record_round` before `process.next` has
    neither gap. The cohorts are not known here: epsilon is that of a program that
    chooses its clients as the ledger's participation says, afresh if a round is
    repeated.
    """

    def __init__(self, ledger: Ledger, release_manager: tff.program.ReleaseManager):
        self._ledger = ledger
        self._inner = release_manager

    async def release(self, value: Mapping[str, Any], key: int) -> None:
        """Releases the metrics of a round, with `epsilon` and `delta` among them.

        Args:
          value: Metrics by name, without `epsilon` and `delta`.
          key: The number of the round, from 1 on. A number that skips rounds, as in a
            resumed program, charges for those as well. A number that the ledger has
            already is a repeated round.

        Raises:
          TypeError: If the value is not a mapping or the key not an integer.
          ValueError: If the round is one too many, a name is taken, or the cost of a
            repeated round is unknown.
        """
        if not isinstance(value, Mapping):
            raise TypeError(checks.message("value", "a mapping of metrics", value))
        for name in ("epsilon", "delta"):
            if name in value:
                raise ValueError(
                    f"value must not have a metric named {name}, found {sorted(value)}"
                )
        key = checks.integer("key", key)
        self._ledger.check_room(key)
        if key != self._ledger.rounds + 1:
            self._ledger.resume_at(key - 1)
        epsilon = self._ledger.record_round()
        await self._inner.release(
            collections.OrderedDict(
                value, epsilon=epsilon, delta=self._ledger.cost.delta
            ),
            key,
        )
