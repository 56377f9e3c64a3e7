# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A strategy of Flower made private, and the clients' half of it.

strategy = PrivateStrategy(FedAvg(), mechanism, plan, epsilon=8, delta=1e-3)
strategy.start(grid=grid, initial_arrays=arrays, num_rounds=60)

app = ClientApp(mods=[private_mod])  # in client_app.py
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable
from typing import Any, Optional

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from dpfl import checks, files, mechanisms, reading
from dpfl.loops import Server
from dpfl.loops.flower_mod import RECORD, floats, request
from dpfl.loops.flower_mod import private_mod as private_mod

_LOG = logging.getLogger("flwr")


class PrivateStrategy(Strategy):
    """A strategy that is given a mechanism's private mean in place of clients' replies.

    Clients are not asked to evaluate: epsilon does not cover their metrics.

    Attributes:
      strategy: The strategy, which configures training and moves the arrays.
      server: The `dpfl.Server` with the ledger, from `start` on.
    """

    def __init__(
        self,
        strategy: Strategy,
        mechanism: mechanisms.Mechanism,
        plan: mechanisms.Participation,
        path: Optional[files.PathLike] = None,
        **options: Any,
    ):
        """Initializes the strategy.

        Args:
          strategy: One whose aggregate is a mean, or an optimizer's step along it.
          mechanism: As for `dpfl.Server`.
          plan: One that draws clients (not `FixedSize`), numbered as nodes register.
          path: File of the state, from which `start` goes on; None for no file.
          **options: `delta`, `epsilon` and `seed` of `dpfl.Server`.
        """
        self.strategy, self._run, self._more = strategy, (mechanism, plan), options
        self._path = None if path is None else files.output_path("path", path)
        self._nodes: list[int] = []
        self._renumbers, self._has_mod = True, False

    def start(
        self, grid: Grid, initial_arrays: Any, num_rounds: int = 1 << 40, **more: Any
    ) -> Result:
        """Trains to the end of the rounds, the plan or the budget. See base class.

        A state in the file replaces the arrays, and `num_rounds` counts its rounds too.

        Raises:
          ValueError: If the file is another run's, or a second start has none.
        """
        is_kept = self._path is not None and self._path.exists()
        is_new, wanted = "server" not in vars(self), "that of a state to go on from"
        checks.require(is_kept or is_new, "path", wanted, self._path)
        try:
            arrays = self._opened(initial_arrays)
        except ValueError as error:
            if not is_kept:
                raise
            found = f"found {self._path}: {error}"
            raise ValueError(f"path must be the file of this run, {found}") from error
        done = self.server.ledger.rounds
        left = max(min(self.server.rounds_left, num_rounds - done), 0)
        if is_kept:
            about = self._path, done, done + left
            _LOG.info("goes on from %s after round %d of %d", *about)
        else:
            self._save(arrays)
        if not left:
            _LOG.info("the run is complete, after round %d", done)
        result = super().start(grid, arrays, left, **more)
        return dataclasses.replace(result, arrays=result.arrays or arrays)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Draws the clients of a round. See base class."""
        self._arrays, self._round = arrays, self.server.ledger.rounds + 1
        draft, *_ = self.strategy.configure_train(self._round, arrays, config, grid)
        nodes = sorted(grid.get_nodes(), key=lambda n: (n.registered_at, n.node_id))
        online = [node.node_id for node in nodes]
        # A simulation that begins again registers its nodes anew, in the same order.
        if self._renumbers and not {*online} & {*self._nodes}:
            self._nodes = []
        self._renumbers = False
        self._nodes = [*dict.fromkeys([*self._nodes, *online])]
        clients = {node: client for client, node in enumerate(self._nodes)}
        now = self.server.begin_round()
        self._due = {*now.clients}
        self._cohort = {n: clients[n] for n in online if clients[n] in self._due}
        record = request(self.server.mechanism, now.message)
        content = RecordDict({**draft.content, RECORD: record})
        return [Message(content, node, "train") for node in self._cohort]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Releases the round's mean, for the strategy's step. See base class.

        Raises:
          ValueError: If replies came, and none was of the mod in any round so far.
        """
        bad, replies = 0, [*replies]
        held = [RECORD in r.content.config_records for r in replies if r.has_content()]
        self._has_mod |= any(held)
        if held and not self._has_mod:
            raise ValueError("ClientApp must have mods=[private_mod], found none")
        for reply in replies:
            client = self._cohort.get(reply.metadata.src_node_id)
            bad += client in self._due and reply.has_error()
            self._due.discard(client)
            if reply.has_content():
                record = reply.content.config_records.get(RECORD, {})
                self.server.add(client, record.get("update", b""))
        counts = dict(round=self._round, exact_failed=bad, exact_silent=len(self._due))
        try:
            release = self.server.end_round()
        except ValueError as error:
            _LOG.warning("no release: %s", error)
            return self._arrays, MetricRecord(counts)
        moved = ArrayRecord(dict(self._arrays))
        for name, step in release.mean.items():
            moved[name] = Array(np.asarray(moved[name].numpy() + step))
        weight = {getattr(self.strategy, "weighted_by_key", "num-examples"): 1.0}
        mean = RecordDict({"arrays": moved, "metrics": MetricRecord(weight)})
        new, _ = self.strategy.aggregate_train(self._round, [Message(mean, 0, "train")])
        for name, array in new.items():
            moved[name] = Array(array.numpy().astype(moved[name].dtype))
        self._save(moved)
        metrics = {"epsilon": release.epsilon, **release.metrics, **counts}
        return moved, MetricRecord(metrics)

    def configure_evaluate(self, *_: Any) -> list[Message]:
        """No messages; see the class."""
        return []

    def aggregate_evaluate(self, *_: Any) -> None:
        """No metrics; see the class."""

    def summary(self) -> None:
        """Logs the strategy's summary."""
        self.strategy.summary()

    def _opened(self, arrays: ArrayRecord, state: Any = None) -> ArrayRecord:
        """The arrays to go on from, for which there is the server."""
        if self._path is not None and self._path.exists():
            header, kept = reading.read_arrays(self._path)
            is_state = "nodes" in header and "server" in kept
            checks.require(is_state, "state", "of a strategy", [*kept])
            self._nodes, state = header["nodes"], kept.pop("server").tobytes()
            self._has_mod = header["has_mod"]
            own: dict[str, Any] = {}
            for place, part in kept.items():
                name, key = json.loads(place)
                own.setdefault(name, {})[key] = part
            arrays = ArrayRecord({k: Array(x) for k, x in own.pop("").items()})
            for name, parts in own.items():
                vars(self.strategy)[name] = [*parts.values()] if 0 in parts else parts
        run = (*self._run, floats(arrays))
        self.server: Server = Server(*run, **self._more, state=state)
        self._renumbers = True
        return arrays

    def _save(self, arrays: ArrayRecord) -> None:
        """Writes the state, with the arrays that the strategy keeps for its steps."""
        if self._path is None:
            return
        kept: dict[str, Any] = {"server": np.frombuffer(self.server.save(), np.uint8)}
        numbers = {name: array.numpy() for name, array in arrays.items()}
        for name, own in {"": numbers, **vars(self.strategy)}.items():
            own = dict(enumerate(own)) if isinstance(own, list) else own
            for key, part in own.items() if isinstance(own, dict) else ():
                if isinstance(part, (np.ndarray, np.generic)):
                    kept[json.dumps([name, key])] = part
        header = {"nodes": self._nodes, "has_mod": self._has_mod}
        files.write_arrays(self._path, header, kept, private=True)
