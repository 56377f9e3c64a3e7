# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated averaging whose clients are computed by workers on other machines.

    workers = workers_at(config.worker_addresses, task, print)
    process = RemoteProcess(process, put_noise, client_key, workers, local)

A round has as many parts as there are workers, and a part as many groups as a worker
computes concurrently. Each part is computed by the next free worker and gives a partial
total, from which this machine's own worker computes the round's result. Parts and
groups are the same in every round, whichever workers are available, and so are the
result's bits.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Optional

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.engines.tff import connection
from dpfl.engines.tff.connection import Connection, WorkerDiedError
from dpfl.engines.tff.datasets import IndexedClients
from dpfl.engines.tff.federated_averaging import GroupedProcess
from dpfl.engines.tff.grouped import GroupedRounds
from dpfl.engines.tff.local_worker import Worker
from dpfl.engines.tff.process_state import ProcessState
from dpfl.tasks.task import Task
from dpfl.training import deadlines
from dpfl.training.engine import RoundOutput

# Seconds for a worker's handshake before others are tried.
_HELLO_SECONDS = 10.0
_POLL_SECONDS = 0.02
# Status codes of a call if the worker, or the way to it, is gone.
_LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.FAILED_PRECONDITION,
)


class RemoteWorker:
    """A worker that is used as long as it answers, and may come back.

    Attributes:
      address: The address on which the worker listens.
    """

    def __init__(self, place: str):
        self.address = place
        self._connection: Optional[Connection] = None
        self._context: Any = None
        self._lateness: Optional[float] = None

    @property
    def is_connected(self) -> bool:
        """Whether the worker is in use, and still the process that was connected to."""
        return self._connection is not None and not self._connection.was_lost

    def connect(self) -> bool:
        """Tries to reach the worker, and returns whether it answers."""
        self.close()
        connection = Connection(self.address, self._check)
        clock = deadlines.Clock()
        while not connection.is_ready:
            if connection.was_refused or clock.seconds() > _HELLO_SECONDS:
                connection.close()
                return False
            time.sleep(_POLL_SECONDS)
        self._lateness = None
        self._connection = connection
        self._context = connection.context(secure_sums=True)
        return True

    def call(
        self, computation: tff.Computation, *arguments: Any, seconds: Optional[float]
    ) -> Any:
        """Runs a computation here; raises WorkerDiedError if it is lost or too late.

        Args:
          computation: The computation.
          *arguments: Its arguments.
          seconds: Deadline; None for none.
        """
        limit = deadlines.time_limit(seconds, self._expire)
        try:
            with limit, tff.framework.get_context_stack().install(self._context):
                return computation(*arguments)
        except Exception as error:
            fault, late = "does not answer any more", self._lateness
            is_lost = isinstance(error, WorkerDiedError) or (
                isinstance(error, grpc.Call) and error.code() in _LOST
            )
            if late is not None:
                fault = f"did not finish within the deadline of {late:g} seconds"
            elif self._connection is not None and not is_lost:
                raise
            raise WorkerDiedError(f"the worker at {self.address} {fault}") from error

    def close(self) -> None:
        """Disconnects from the worker, which keeps running."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _expire(self, seconds: float) -> None:
        self._lateness = seconds
        self.close()

    def _check(self) -> None:
        """Raises WorkerDiedError if the connection that TFF is about to use is lost."""
        while True:
            connection = self._connection
            # A worker that came back in the meantime must report its versions first.
            if connection is None or connection.was_lost:
                raise WorkerDiedError(f"the worker at {self.address} does not answer")
            if connection.is_ready:
                return
            # The channel will notice the end in a moment.
            time.sleep(_POLL_SECONDS)


# Seconds for which workers are contacted if none answers.
_WAIT_SECONDS = 30.0
_TICK_SECONDS = 0.5
# Factor of the time of a failed attempt until the next one. With a tunnel in front of a
# worker that is gone, an attempt takes all of `_HELLO_SECONDS`.
_PATIENCE = 20
# Number of times that all workers may be lost before a round fails. A worker that was
# restarted between rounds is lost at the first attempt, and usable at the second.
_LIVES = 2


class Workers:
    """A pool of workers, each of which takes the next part that is not done.

    A lost worker is dropped with a message, and its part is computed by another; it is
    contacted again before later rounds, and may come back. Contacting workers takes at
    most a twentieth of the time. All workers may be lost once a round: if one of them
    answers again, it does the rest.

    Attributes:
      seconds: Current deadline of a part in seconds; None for no limit.
    """

    def __init__(
        self,
        workers: Sequence[RemoteWorker],
        say: Callable[[str], None],
        problem: Callable[[RemoteWorker, Optional[float]], Optional[str]] = (
            lambda worker, seconds: None
        ),
    ):
        """Initializes the pool of at least one worker; none is contacted yet.

        Args:
          workers: The workers.
          say: Called with messages for the user.
          problem: Called with a worker that answers and a deadline in seconds; returns
            the reason why the worker cannot be used, or None.
        """
        self.seconds: Optional[float] = None
        self._workers = list(workers)
        self._say = say
        self._problem = problem
        # Time of the next attempt, in seconds of the monotonic clock.
        self._next_attempt: dict[RemoteWorker, float] = {}
        # The last sentence about each worker that was contacted; None if it is in use.
        self._news: dict[RemoteWorker, Optional[str]] = {}

    def __len__(self) -> int:
        return len(self._workers)

    @contextlib.contextmanager
    def deadline(self, seconds: Optional[float]) -> Iterator[None]:
        """Drops, inside of the block, a worker that takes longer for a part."""
        before, self.seconds = self.seconds, seconds
        try:
            yield
        finally:
            self.seconds = before

    def run(
        self, computation: Any, arguments: Sequence[Any], parts: Sequence[Any]
    ) -> list[Any]:
        """Runs a computation on each part; raises WorkerDiedError if no worker is left.

        Args:
          computation: Computation of a part.
          arguments: The arguments before the part, the same for all.
          parts: The last argument, one for each call.

        Returns:
          The results in the order of the parts.
        """

        def compute(worker: RemoteWorker, number: int) -> Any:
            return worker.call(
                computation, *arguments, parts[number], seconds=self.seconds
            )

        results: dict[int, Any] = {}
        for _ in range(_LIVES):
            ready = self._ready()
            if not ready:
                break
            self._share(ready, compute, len(parts), results)
            if len(results) == len(parts):
                return [results[number] for number in range(len(parts))]
        raise WorkerDiedError(
            f"no worker is left: those at {_places(self._workers)} are lost"
        )

    def _share(
        self,
        ready: Sequence[RemoteWorker],
        compute: Callable[[RemoteWorker, int], Any],
        parts: int,
        results: dict[int, Any],
    ) -> None:
        """Fills in results by part, until all are done or no worker is left."""
        left: queue.SimpleQueue[Optional[int]] = queue.SimpleQueue()
        for number in range(parts):
            if number not in results:
                left.put(number)
        outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def serve(worker: RemoteWorker) -> None:
            for number in iter(left.get, None):
                try:
                    outcomes.put((number, worker, compute(worker, number), None))
                except BaseException as error:
                    outcomes.put((number, worker, None, error))
                    return

        for worker in ready:
            threading.Thread(target=serve, args=[worker], daemon=True).start()
        try:
            workers = len(ready)
            while workers and len(results) < parts:
                number, worker, result, error = outcomes.get()
                if error is None:
                    results[number] = result
                    continue
                if not isinstance(error, WorkerDiedError):
                    raise error
                workers -= 1
                left.put(number)
                self._exclude(worker, f"{error}; its clients are computed again")
        finally:
            for _ in ready:
                left.put(None)

    def close(self) -> None:
        """Disconnects from the workers, which keep running."""
        for worker in self._workers:
            worker.close()

    def _ready(self) -> list[RemoteWorker]:
        """The connected workers, after contacting the others."""
        with deadlines.waiting_for(f"the workers at {_places(self._workers)}") as clock:
            while True:
                for worker in self._due():
                    self._contact(worker)
                ready = [worker for worker in self._workers if worker.is_connected]
                if ready or clock.seconds() >= _WAIT_SECONDS:
                    return ready
                time.sleep(_TICK_SECONDS)

    def _due(self) -> list[RemoteWorker]:
        """The unconnected workers to contact now; all of them if none is connected."""
        away = [worker for worker in self._workers if not worker.is_connected]
        if len(away) == len(self._workers):
            return away
        now = time.monotonic()
        return [w for w in away if self._next_attempt.get(w, now) <= now]

    def _contact(self, worker: RemoteWorker) -> None:
        """Takes a worker into use if it answers and has no problem."""
        begun = time.monotonic()
        if not worker.connect():
            ended = time.monotonic()
            self._next_attempt[worker] = ended + _PATIENCE * (ended - begun)
            if self._news.get(worker) is None:
                self._exclude(worker, f"the worker at {worker.address} does not answer")
            return
        try:
            problem = self._problem(worker, self.seconds)
        except WorkerDiedError as error:
            problem = str(error)
        if problem is not None:
            self._exclude(worker, problem)
            return
        if worker in self._news:
            self._say(f"the worker at {worker.address} is used again")
        self._news[worker] = None

    def _exclude(self, worker: RemoteWorker, why: str) -> None:
        worker.close()
        if self._news.get(worker) != why:
            self._say(f"{why}; it is excluded")
        self._news[worker] = why


def _places(workers: Sequence[RemoteWorker]) -> str:
    return ", ".join(worker.address for worker in workers)


# Number of clients whose examples are compared.
_PROBED = 16


class RemoteProcess(GroupedProcess):
    """A process whose clients are computed by workers on other machines."""

    def __init__(
        self,
        rounds: GroupedRounds,
        put_noise: Callable[[Any], Any],
        client_key: Callable[[int], Sequence[int]],
        workers: Workers,
        local: Worker,
    ):
        """Initializes the process.

        Args:
          rounds: As for `GroupedProcess`.
          put_noise: As for `GroupedProcess`.
          client_key: As for `GroupedProcess`.
          workers: The workers of the clients' part.
          local: This machine's worker, for the server's part.
        """
        super().__init__(rounds, put_noise, client_key)
        self._workers, self._local = workers, local
        self._part, self._finish = rounds.parts(len(workers))

    def next(self, state: ProcessState, clients: list[int]) -> RoundOutput:
        """Runs a round; raises WorkerDiedError if no worker is left."""
        ready, size = self._with_noise(state), self._rounds.groups
        groups = self._split(clients, size * len(self._workers))
        parts = [groups[i : i + size] for i in range(0, len(groups), size)]
        arguments = tf.nest.map_structure(
            np.asarray, (ready.weights, ready.round_index, ready.aggregator)
        )
        partials = tuple(self._workers.run(self._part, arguments, parts))
        values, _before, after = self._rounds.values.given(ready)
        with self._local.deadline(self._workers.seconds):
            output = self._finish(values, partials)
        return output._replace(state=self._rounds.values.together(output.state, after))


def workers_at(
    places: Iterable[str], task: Task, say: Callable[[str], None]
) -> Workers:
    """The workers at some addresses, for a task.

    A worker is used only if it has the versions of this process and, if it reads the
    task's files itself, the same examples of a few clients. It is checked again
    whenever it was lost.

    Args:
      places: Their addresses.
      task: The task.
      say: Called with messages for the user.
    """
    told_versions = connection.versions()
    problem_of_data = _problem_of_data(task)

    def problem(worker: Any, seconds: Optional[float]) -> Optional[str]:
        told = worker.call(told_versions, seconds=seconds)
        other = connection.difference(worker.address, told)
        return other or problem_of_data(worker, seconds)

    return Workers([RemoteWorker(place) for place in places], say, problem)


def _problem_of_data(task: Task) -> Callable[[Any, Optional[float]], Optional[str]]:
    """The check of a worker's data, which returns a sentence or None."""
    if isinstance(task.dataset_from_index, IndexedClients):
        return lambda worker, seconds: None
    clients = np.linspace(0, task.population - 1, _PROBED).astype(np.int64)
    digest = examples_digest(task)
    expected = digest(clients)

    def problem(worker: Any, seconds: Optional[float]) -> Optional[str]:
        try:
            actual = worker.call(digest, clients, seconds=seconds)
        except WorkerDiedError:
            raise
        except Exception as error:
            return f"the worker at {worker.address} cannot read the data ({error})"
        if actual != expected:
            return f"the worker at {worker.address} reads other data than this process"
        return None

    return problem


def examples_digest(task: Task) -> tff.Computation:
    """The computation from clients, int64[k], to a hash of their first examples."""

    @tf.function
    def digest(clients: Any) -> Any:
        hash_value = tf.zeros([], tf.int64)
        for client in clients:
            for x, y in iter(task.dataset_from_index(client, 0)):
                parts = [tf.io.serialize_tensor(x), tf.io.serialize_tensor(y)]
                joined = tf.strings.join([tf.strings.as_string(hash_value), *parts])
                hash_value = tf.strings.to_hash_bucket_fast(joined, 2**62)
        return hash_value

    return tff.tensorflow.computation(digest, tff.TensorType(np.int64, [None]))
