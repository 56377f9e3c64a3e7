# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A private program of TFF in a folder, which may be killed at any point.

    run = dpfl.PrivateProgram(mechanism, plan, model_fn, "run", delta=1e-5, epsilon=8)
    for clients in run.cohorts():
        metrics = run.next([data[client] for client in clients])

The ledger has a round before it is computed, and a state is saved before it is shown.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Optional

import tensorflow_federated as tff

from dpfl import checks, files, planning
from dpfl.aggregators import build_with_host_noise
from dpfl.codecs.base import Codec
from dpfl.engines.tff import learning
from dpfl.mechanisms import Mechanism, Participation
from dpfl.training import selection

_LOGGER = logging.getLogger(__name__)


class PrivateProgram:
    """A mechanism's training by TFF: its cohorts, ledger, process and saved states.

    Attributes:
      mechanism: The mechanism with all of its numbers.
      participation: The choice of clients over the run.
      dimension: d, the number of the model's trainable parameters.
      ledger: The `dpfl.Ledger` of the run, whose file is `ledger.jsonl` in the folder.
      aggregator: The tff.aggregators factory of the mechanism. Its noise that spans
        rounds, if it has any, is put into the state by `next`.
      process: The tff.learning process.
      state: The process's state after `rounds` rounds.
      rounds: The number of rounds in the state.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        participation: Participation,
        model_fn: Any,
        folder: Optional[files.PathLike] = None,
        *,
        delta: float,
        epsilon: Optional[float] = None,
        client_optimizer: Any = None,
        server_optimizer: Any = None,
        process: Optional[Callable[[Any], Any]] = None,
    ):
        """Begins a program, or goes on with the one in a folder.

        Args:
          mechanism: A configuration from `dpfl.MECHANISMS`.
          participation: The choice of clients over the run.
          model_fn: A function without arguments to a `tff.learning` model, or a
            functional model.
          folder: The folder of states and ledger, made if it does not exist, which is
            as secret as the data. None saves nothing: the program ends with its Python.
          delta: In (0, 1).
          epsilon: The budget, for which the mechanism is calibrated, its numbers that
            are "auto" too; None for the mechanism as it is, without a budget.
          client_optimizer: As TFF's `client_optimizer_fn`; None for SGD with rate 0.1.
          server_optimizer: As TFF's `server_optimizer_fn`; None for TFF's default.
          process: Function from the aggregator to a tff.learning process of `model_fn`,
            whose optimizers it has; None for unweighted federated averaging.

        Raises:
          accounting.CalibrationError: If no noise meets the budget.
          ValueError: If an argument is out of range, or the folder is another run's.
        """
        self.participation = participation
        self.dimension = learning.dimension_of(model_fn)
        run = participation, self.dimension
        if epsilon is not None:
            mechanism = planning.calibrate(mechanism, *run, epsilon, delta)
        self.mechanism = planning.resolve(mechanism, *run, delta=delta).logged()
        self.aggregator, self._put_noise = build_with_host_noise(
            self.mechanism, self.dimension, around=self._checked
        )
        if process is None:
            process = learning.federated_averaging(
                model_fn, client_optimizer, server_optimizer, self.mechanism
            )
        self.process = process(self.aggregator)
        self._folder = learning.Folder(folder)
        self.ledger = planning.Ledger(
            self.mechanism,
            *run,
            delta,
            target_epsilon=epsilon,
            path=self._folder.ledger,
        )
        self._most_clients: Optional[int] = None
        self.state, self.rounds = self._folder.newest(self.process.initialize())
        self._go_back()

    def _checked(self, codec: Codec) -> Codec:
        wanted = f"of {codec.dimension} trainable parameters, as the updates are"
        is_right = codec.dimension == self.dimension
        checks.require(is_right, "model_fn", wanted, self.dimension)
        return codec

    def _go_back(self) -> None:
        """Charges for rounds that the ledger has beyond the state's, as lost ones."""
        if self.ledger.rounds != self.rounds:
            self.ledger.resume_at(self.rounds)

    @property
    def model_weights(self) -> tff.learning.models.ModelWeights:
        """The weights of the model after `rounds` rounds."""
        return self.process.get_model_weights(self.state)

    def cohorts(self) -> Iterator[list[int]]:
        """Yields the clients of each round that is left, once the ledger has it.

        They are drawn by the participation, as indices, from the system's entropy. It
        ends when the budget is spent, which rounds that were lost may bring forward.

        Raises:
          ValueError: If `next` was not called with the data of a cohort.
        """
        plan = self.participation
        while self.rounds < plan.rounds:
            self._go_back()
            try:
                self.ledger.check_room(self.rounds + 1)
            except ValueError as error:
                _LOGGER.warning("%s", error)
                return
            number, seed = self.rounds, self._folder.seed_for(plan)
            cohort = selection.select_cohort(plan, seed, number).tolist()
            self.record(cohort)
            yield cohort
            is_done = self.rounds > number
            checks.require(is_done, "next", "called for each cohort", "it was not")

    def record(self, clients: Optional[Iterable[Hashable]] = None) -> float:
        """Charges for one more round, as `Ledger.record_round`, before it is computed.

        `cohorts` has done so. This is for clients that the program chooses by itself.
        A round that was charged and not computed remains charged.

        Args:
          clients: The clients by any names that stay the same; None if unknown.

        Returns:
          Epsilon of all rounds, this one included.

        Raises:
          ValueError: As `Ledger.record_round`.
        """
        names = None if clients is None else list(clients)
        self._go_back()
        spent = self.ledger.record_round(names)
        self._most_clients = None if names is None else len(names)
        return spent

    def next(self, client_data: Sequence[Any]) -> collections.OrderedDict[str, Any]:
        """Computes the round that was charged, and saves the state.

        Args:
          client_data: The data of the round's clients. Clients may be missing.

        Returns:
          The metrics of the process, with `epsilon` and `delta` of all rounds so far.

        Raises:
          ValueError: If no round was charged, or fewer clients than there are data.
        """
        number = self.rounds + 1
        wanted = f"in the ledger before it is computed: round {number}"
        is_charged = self.ledger.rounds == number
        checks.require(is_charged, "round", wanted, self.ledger.rounds)
        most = self._most_clients
        if most is not None:
            wanted = f"of the clients in the ledger, {most}"
            is_cohort = len(client_data) <= most
            checks.require(is_cohort, "client_data", wanted, len(client_data))
        noise = self._put_noise(self.state.aggregator)
        state = self.state._replace(aggregator=noise)
        output = self.process.next(state, list(client_data))
        self.state, self.rounds = output.state, number
        self._folder.save(self.state, number)
        return collections.OrderedDict(
            output.metrics, epsilon=self.ledger.epsilon, delta=self.ledger.cost.delta
        )
