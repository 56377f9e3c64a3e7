# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Federated averaging whose clients are worked on by workers of other machines.

A round has as many parts as there are workers, and a part as many groups as a worker
has clients at a time. Each part is computed by whichever worker is free, and gives a
partial total; this machine's own worker makes the round's result of them. Parts and
groups are the same in every round, whoever is there: so are the result's bits.
"""

from __future__ import annotations

import collections
import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Optional

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.tasks.task import IndexedClients, Task
from dpfl.training import connection, patience
from dpfl.training.config import Address
from dpfl.training.connection import Connection, WorkerDiedError
from dpfl.training.federated_averaging import FedAvgProcess, FedProcess
from dpfl.training.process_state import ProcessState, RoundOutput
from dpfl.training.worker import Worker

# How long TCP may take to say whether anybody listens: kernels do, however busy.
_KNOCK_SECONDS = 2.0
# How long a worker may take to say hello before others go first.
_GREETING_SECONDS = 60.0
_POLL_SECONDS = 0.02
# What a call fails with when the worker, or the way to it, is gone.
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
      address: Where it listens.
      is_slow: Whether it took the last connection and did not say a word: it may be
        busy, or gone behind a tunnel that is not.
    """

    def __init__(self, place: Address):
        self.address = place
        self.is_slow = False
        self._connection: Optional[Connection] = None
        self._context: Any = None
        self._lateness: Optional[float] = None

    @property
    def is_connected(self) -> bool:
        """Whether it is in use, and is still the process that was connected to."""
        return self._connection is not None and not self._connection.was_lost

    def connect(self) -> bool:
        """Tries to reach the worker, and returns whether it answers."""
        self.close()
        self.is_slow = False
        if not self._is_listened_to():
            return False
        connection = Connection(str(self.address), self._check)
        clock = patience.Clock()
        while not connection.is_ready:
            self.is_slow = clock.seconds() > _GREETING_SECONDS
            if self.is_slow or connection.was_refused:
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
        """Returns what a computation gives on this worker.

        Args:
          computation: Any; secure sums are simulated.
          *arguments: Its own.
          seconds: Time allowed, None for no limit.

        Raises:
          WorkerDiedError: If the worker is lost, or takes longer.
        """
        stack = tff.framework.get_context_stack()
        try:
            with (
                patience.time_limit(seconds, self._expire),
                stack.install(self._context),
            ):
                return computation(*arguments)
        except Exception as error:
            if self._lateness is not None:
                raise WorkerDiedError(
                    f"the worker at {self.address} did not finish within the deadline "
                    f"of {self._lateness:g} seconds"
                ) from error
            if self._connection is None or _is_lost(error):
                raise WorkerDiedError(
                    f"the worker at {self.address} does not answer any more"
                ) from error
            raise

    def close(self) -> None:
        """Stops using the worker, which goes on by itself."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _expire(self, seconds: float) -> None:
        self._lateness = seconds
        self.close()

    def _check(self) -> None:
        """Raises if the connection that TFF is about to use is not one any more."""
        while True:
            connection = self._connection
            # One that came back in the meantime is to be greeted first.
            if connection is None or connection.was_lost:
                raise WorkerDiedError(f"the worker at {self.address} does not answer")
            if connection.is_ready:
                return
            # It hears of its end in a moment.
            time.sleep(_POLL_SECONDS)

    def _is_listened_to(self) -> bool:
        try:
            with socket.create_connection(self.address, _KNOCK_SECONDS):
                return True
        except (OSError, UnicodeError):
            # The second: no name of a host.
            return False


def _is_lost(error: Exception) -> bool:
    if isinstance(error, WorkerDiedError):
        return True
    return isinstance(error, grpc.Call) and error.code() in _LOST


# How long the first round waits for workers that are about to start.
_START_SECONDS = 30.0
# How often a round that waits lets an interrupt through.
_TICK_SECONDS = 0.5
# A worker that did not answer is left alone for so many times as long as that took.
# Where a tunnel answers for a worker that is gone it may take a minute to find out.
_PATIENCE = 20
# How often all workers of a round may be lost before it is given up: one that was
# restarted between rounds is found out, and can be used, in the next.
_LIVES = 2


class Pool:
    """Workers that each take the next part that nobody has done.

    A worker that is lost is left out with a sentence, and what it was doing is done
    again by another; it is asked again before later rounds, and may come back. Asking
    takes a twentieth of the time at the most. Once a round all may be lost: if one of
    them answers again, it does what is left. Where none is used those that are slow are
    waited for, up to the deadline.
    """

    def __init__(
        self,
        workers: Sequence[RemoteWorker],
        say: Callable[[str], None],
        problem: Callable[[RemoteWorker, Optional[float]], Optional[str]] = (
            lambda worker, seconds: None
        ),
    ):
        """Initializes the pool; nobody is reached yet.

        Args:
          workers: At least one.
          say: Called with sentences for people.
          problem: Returns why a worker that answers cannot be used, None if it can;
            called with the worker and how long it may take to tell.
        """
        self._workers = list(workers)
        self._say = say
        self._problem = problem
        self._seconds: Optional[float] = None
        self._was_asked = False
        # When a worker may be asked again, in seconds of the monotonic clock.
        self._asked_again: dict[str, float] = {}
        # Those that people take to be in use.
        self._used: set[str] = set()
        # What was said last of each, so that it is not said in every round.
        self._news: dict[str, Optional[str]] = {}

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def seconds(self) -> Optional[float]:
        """Returns how long a part may take now, None for no limit."""
        return self._seconds

    @contextlib.contextmanager
    def deadline(self, seconds: Optional[float]) -> Iterator[None]:
        """Leaves out, inside of the block, a worker that takes longer for a part."""
        before, self._seconds = self._seconds, seconds
        try:
            yield
        finally:
            self._seconds = before

    def run(
        self, computation: Any, arguments: Sequence[Any], parts: Sequence[Any]
    ) -> list[Any]:
        """Returns what a computation gives for each part, in their order.

        Args:
          computation: Called with the arguments and a part.
          arguments: The same for all parts.
          parts: What differs.

        Raises:
          WorkerDiedError: If no worker is left.
          Exception: What the computation itself raises.
        """
        work = _Work(len(parts))
        for _ in range(_LIVES):
            ready = self._ready()
            if not ready:
                break
            work.join(len(ready))
            for worker in ready:
                threading.Thread(
                    target=self._serve,
                    args=[worker, work, computation, arguments, parts],
                    daemon=True,
                ).start()
            results = work.results()
            if results is not None:
                return results
        raise WorkerDiedError(self._nobody())

    def _serve(
        self,
        worker: RemoteWorker,
        work: _Work,
        computation: Any,
        arguments: Sequence[Any],
        parts: Sequence[Any],
    ) -> None:
        """Has a worker do parts until all are done or it is lost."""
        for number in iter(work.take, None):
            try:
                result = worker.call(
                    computation, *arguments, parts[number], seconds=self._seconds
                )
            except WorkerDiedError as error:
                worker.close()
                self._used.discard(str(worker.address))
                self._tell(
                    worker,
                    f"{error}; it is left out, and its clients are computed again",
                )
                work.lost(number)
                return
            except BaseException as error:
                work.failed(error)
                return
            work.done(number, result)

    def close(self) -> None:
        """Stops using the workers, which go on by themselves."""
        for worker in self._workers:
            worker.close()

    def _ready(self) -> list[RemoteWorker]:
        """Returns the workers that can be used, after asking those that could not."""
        away = self._to_be_asked()
        with patience.waiting_for(f"the workers at {_places(away)}") as clock:
            while away:
                came = [worker for worker in away if self._answers(worker)]
                for worker in came:
                    self._greet(worker)
                away = [worker for worker in away if worker not in came]
                if not away or clock.seconds() >= self._limit(away):
                    break
                time.sleep(_TICK_SECONDS)
        ready = [worker for worker in self._workers if worker.is_connected]
        # One that was lost while others were asked is not among `away`.
        for worker in (worker for worker in self._workers if worker not in ready):
            does_not = f"the worker at {worker.address} does not answer"
            if str(worker.address) in self._used:
                self._tell(worker, f"{does_not} any more; it is left out")
            elif not self._was_asked and worker in away:
                self._tell(worker, f"{does_not} yet")
        self._was_asked = True
        self._used = {str(worker.address) for worker in ready}
        return ready

    def _limit(self, away: Sequence[RemoteWorker]) -> float:
        """Returns how many seconds workers that are not used are asked for."""
        if any(w.is_slow for w in away) and not any(
            w.is_connected for w in self._workers
        ):
            return math.inf if self._seconds is None else self._seconds
        return 0.0 if self._was_asked else _START_SECONDS

    def _to_be_asked(self) -> list[RemoteWorker]:
        """Returns the workers that are not used and may be; all, if none is used."""
        away = [worker for worker in self._workers if not worker.is_connected]
        if len(away) == len(self._workers):
            return away
        now = time.monotonic()
        return [w for w in away if self._asked_again.get(str(w.address), now) <= now]

    def _answers(self, worker: RemoteWorker) -> bool:
        begun = time.monotonic()
        does = worker.connect()
        ended = time.monotonic()
        wait = 0.0 if does else _PATIENCE * (ended - begun)
        self._asked_again[str(worker.address)] = ended + wait
        return does

    def _greet(self, worker: RemoteWorker) -> None:
        """Asks a worker that answers again whether it can be used."""
        try:
            problem = self._problem(worker, self._seconds)
        except WorkerDiedError as error:
            problem = str(error)
        if problem is not None:
            worker.close()
            self._tell(worker, f"{problem}; it is left out")
            return
        self._used.add(str(worker.address))
        if self._was_asked:
            self._tell(worker, f"the worker at {worker.address} is used again")

    def _tell(self, worker: RemoteWorker, news: str) -> None:
        name = str(worker.address)
        if self._news.get(name) != news:
            self._say(news)
        self._news[name] = news

    def _nobody(self) -> str:
        return f"none of the workers at {_places(self._workers)} is left"


def _places(workers: Sequence[RemoteWorker]) -> str:
    return ", ".join(str(worker.address) for worker in workers)


class _Work:
    """The parts of a round, and who may take the next."""

    def __init__(self, parts: int):
        self._left = collections.deque(range(parts))
        self._results: list[Any] = [None] * parts
        self._pending = parts
        self._workers = 0
        self._error: Optional[BaseException] = None
        self._changed = threading.Condition()

    def join(self, workers: int) -> None:
        """Counts workers that are about to take parts, where there is none."""
        with self._changed:
            self._workers = workers

    def take(self) -> Optional[int]:
        """Returns the next part, once there is one; None if all are done."""
        with self._changed:
            while self._pending and not self._left and self._error is None:
                self._changed.wait()
            if not self._pending or self._error is not None:
                return None
            return self._left.popleft()

    def done(self, number: int, result: Any) -> None:
        """Keeps what a part gave."""
        with self._changed:
            self._results[number] = result
            self._pending -= 1
            self._changed.notify_all()

    def lost(self, number: int) -> None:
        """Gives a part back, and takes a worker out."""
        with self._changed:
            self._left.append(number)
            self._workers -= 1
            self._changed.notify_all()

    def failed(self, error: BaseException) -> None:
        """Ends the round with an error."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def results(self) -> Optional[list[Any]]:
        """Returns what all parts gave, once they did; None if no worker is left."""
        with self._changed:
            while self._pending and self._workers and self._error is None:
                self._changed.wait(_TICK_SECONDS)
            if self._error is not None:
                raise self._error
            return None if self._pending else self._results


# Clients whose examples a worker is asked about.
_PROBED = 16


class RemoteProcess(FedProcess):
    """A process of which a pool of workers does the clients' part."""

    def __init__(
        self,
        process: FedAvgProcess,
        feed: Callable[[Any], Any],
        client_key: Optional[Callable[[int], Sequence[int]]],
        pool: Pool,
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


def pool(places: Iterable[Address], task: Task, say: Callable[[str], None]) -> Pool:
    """Returns the pool of the workers at some addresses, for a task.

    A worker is used only if it has the versions of this process and, where it reads the
    task's files itself, if some of the clients have the same examples there as here. It
    is asked again whenever it was lost.

    Args:
      places: Where they listen.
      task: What is learned.
      say: Called with sentences for people.
    """
    told_versions = connection.versions()
    problem_of_data = _problem_of_data(task)

    def problem(worker: Any, seconds: Optional[float]) -> Optional[str]:
        told = worker.call(told_versions, seconds=seconds)
        different = connection.difference(worker.address, told)
        return different or problem_of_data(worker, seconds)

    workers = [RemoteWorker(place) for place in places]
    return Pool(workers, say, problem)


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
