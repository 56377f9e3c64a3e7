# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Workers on several machines that share the parts of a round."""

from __future__ import annotations

import collections
import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional, Protocol

from dpfl.training import patience
from dpfl.training.connection import WorkerDiedError

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


class Worker(Protocol):
    """What does a part; see `remote.RemoteWorker`."""

    @property
    def address(self) -> Any:
        """Returns where it is, for people."""

    @property
    def is_connected(self) -> bool:
        """Returns whether it is in use."""

    @property
    def is_slow(self) -> bool:
        """Returns whether it took the last connection and did not answer in time."""

    def connect(self) -> bool:
        """Tries to reach it, and returns whether it answers."""

    def call(self, computation: Any, *arguments: Any, seconds: Optional[float]) -> Any:
        """Returns what a computation gives; WorkerDiedError if it is lost."""

    def close(self) -> None:
        """Stops using it."""


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
        workers: Sequence[Worker],
        say: Callable[[str], None],
        problem: Callable[[Worker, Optional[float]], Optional[str]] = (
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
        worker: Worker,
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

    def _ready(self) -> list[Worker]:
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

    def _limit(self, away: Sequence[Worker]) -> float:
        """Returns how many seconds workers that are not used are asked for."""
        if any(w.is_slow for w in away) and not any(
            w.is_connected for w in self._workers
        ):
            return math.inf if self._seconds is None else self._seconds
        return 0.0 if self._was_asked else _START_SECONDS

    def _to_be_asked(self) -> list[Worker]:
        """Returns the workers that are not used and may be; all, if none is used."""
        away = [worker for worker in self._workers if not worker.is_connected]
        if len(away) == len(self._workers):
            return away
        now = time.monotonic()
        return [w for w in away if self._asked_again.get(str(w.address), now) <= now]

    def _answers(self, worker: Worker) -> bool:
        begun = time.monotonic()
        does = worker.connect()
        ended = time.monotonic()
        wait = 0.0 if does else _PATIENCE * (ended - begun)
        self._asked_again[str(worker.address)] = ended + wait
        return does

    def _greet(self, worker: Worker) -> None:
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

    def _tell(self, worker: Worker, news: str) -> None:
        name = str(worker.address)
        if self._news.get(name) != news:
            self._say(news)
        self._news[name] = news

    def _nobody(self) -> str:
        return f"none of the workers at {_places(self._workers)} is left"


def _places(workers: Sequence[Worker]) -> str:
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
