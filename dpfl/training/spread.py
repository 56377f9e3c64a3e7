# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated averaging whose clients are worked on by workers of other machines.

A round has as many parts as there are workers, and a part as many groups as a worker
has clients at a time. Each part is computed by whichever worker is free, and gives a
partial total; this machine's own worker makes the round's result of them. Parts and
groups are the same in every round, whoever is there: so are the result's bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.tasks.task import IndexedClients, Task
from dpfl.training import greeting, remote
from dpfl.training import pool as pool_lib
from dpfl.training.addresses import Address
from dpfl.training.connection import WorkerDiedError
from dpfl.training.federated_averaging import FedAvgProcess, FedProcess
from dpfl.training.process_state import ProcessState, RoundOutput
from dpfl.training.worker import Worker

# Clients whose examples a worker is asked about.
_PROBED = 16


class SpreadProcess(FedProcess):
    """A process of which a pool of workers does the clients' part."""

    def __init__(
        self,
        process: FedAvgProcess,
        feed: Callable[[Any], Any],
        client_key: Optional[Callable[[int], Sequence[int]]],
        pool: pool_lib.Pool,
        local: Worker,
    ):
        """Initializes the process.

        Args:
          process: With `groups`, so many for each worker.
          feed: As for `FedProcess`.
          client_key: As for `FedProcess`.
          pool: The workers.
          local: What TFF's default context is on, for the server's part.

        Raises:
          ValueError: If the process has no groups.
        """
        super().__init__(process, feed, client_key)
        if process.rounds is None or process.groups is None:
            raise ValueError(
                "workers must be left out for an aggregator without groups, found "
                f"{len(pool)} of them"
            )
        self._rounds = process.rounds
        self._groups = process.groups
        self._pool = pool
        self._local = local
        self._part, self._finish = process.rounds.parts(len(pool))

    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """Returns what a round with these clients gives.

        Raises:
          WorkerDiedError: If no worker is left.
        """
        fed = self._fed(state)
        size = self._groups
        groups = self._rounds.cohort.split(
            clients, self._keys(clients), size * len(self._pool)
        )
        parts = [groups[i : i + size] for i in range(0, len(groups), size)]
        arguments = tf.nest.map_structure(
            np.asarray, (fed.weights, fed.round_index, fed.aggregator)
        )
        partials = tuple(self._pool.run(self._part, arguments, parts))
        values, _before, after = self._rounds.values.given(fed)
        with self._local.deadline(self._pool.seconds):
            output = self._finish(values, partials)
        return output._replace(state=self._rounds.values.together(output.state, after))


def pool(
    places: Iterable[Address], task: Task, say: Callable[[str], None]
) -> pool_lib.Pool:
    """Returns the pool of the workers at some addresses, for a task.

    A worker is used only if it has the versions of this process and, where it reads the
    task's files itself, if some of the clients have the same examples there as here. It
    is asked again whenever it was lost.

    Args:
      places: Where they listen.
      task: What is learned.
      say: Called with sentences for people.
    """
    versions = greeting.versions()
    problem_of_data = _problem_of_data(task)

    def problem(worker: Any, seconds: Optional[float]) -> Optional[str]:
        told = worker.call(versions, seconds=seconds)
        different = greeting.difference(worker.address, told)
        return different or problem_of_data(worker, seconds)

    workers = [remote.RemoteWorker(place) for place in places]
    return pool_lib.Pool(workers, say, problem)


def _problem_of_data(task: Task) -> Callable[[Any, Optional[float]], Optional[str]]:
    """Returns what says why a worker's data cannot be used, None if they can."""
    if isinstance(task.dataset_from_index, IndexedClients):
        return lambda worker, seconds: None
    clients = np.linspace(0, task.population - 1, _PROBED).astype(np.int64)
    digest = examples_digest(task)
    expected = digest(clients)

    def problem(worker: Any, seconds: Optional[float]) -> Optional[str]:
        try:
            found = worker.call(digest, clients, seconds=seconds)
        except WorkerDiedError:
            raise
        except Exception as error:
            return f"the worker at {worker.address} cannot read the data ({error})"
        if found != expected:
            return f"the worker at {worker.address} reads other data than this process"
        return None

    return problem


def examples_digest(task: Task) -> tff.Computation:
    """Returns the computation from clients, int64[k], to a hash of their examples.

    Args:
      task: Whose clients they are; their order is that of the first round.
    """

    @tff.tensorflow.computation(tff.TensorType(np.int64, [None]))
    def digest(clients: Any) -> Any:
        @tf.function
        def of_all() -> Any:
            found = tf.zeros([], tf.int64)
            for client in clients:
                for x, y in iter(task.dataset_from_index(client, 0)):
                    texts = [
                        tf.strings.as_string(found),
                        tf.io.serialize_tensor(x),
                        tf.io.serialize_tensor(y),
                    ]
                    joined = tf.strings.join(texts)
                    found = tf.strings.to_hash_bucket_fast(joined, 2**62)
            return found

        return of_all()

    return digest
