# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Does the runs of a figure beside each other, and says how far they are.

Each of a few threads has a `Trainer`, takes runs one after the other and tells this
thread what happens, which draws the bar and adds the rows. Runs that differ in their
seed alone go to one trainer. The first rounds of each task and model are measured
before more runs are started than the processors and the memory are sure to bear.
"""

from __future__ import annotations

import collections
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import tqdm

from .. import cli
from . import remaining_work
from .sweep import Training, rounds_done
from .trainers import Trainer, WorkFailedError

# Rounds after the first one of a run that are measured.
_MEASURED_ROUNDS = 2
# Runs after which a process is replaced: each leaves some 20 MB of graphs.
_RUNS_OF_A_TRAINER = 16
# So is one that holds so many times what it held after its first run: each matrix
# factorization with a million parameters leaves 150 MB.
_MOST_GROWTH = 1.5
# Runs that fail before the others are not tried any more.
_MOST_FAILURES = 3

Add = Callable[[Training, Mapping[str, Any]], None]


class _Round(NamedTuple):
    """A run has done rounds."""

    work: Training
    done: int
    of: int
    seconds: float
    memory: int


class _Ended(NamedTuple):
    """A run has ended; or, without one, a thread has."""

    work: Optional[Training]
    error: Optional[BaseException] = None


class Crew:
    """What does the runs that a results table lacks."""

    def __init__(
        self,
        folder: Path,
        *,
        jobs: Optional[int] = None,
        concurrency: Optional[int] = None,
    ):
        """Initializes the crew; no process is started yet.

        Args:
          folder: Each run has a folder in it.
          jobs: Runs at a time; None for what the machine bears.
          concurrency: Groups of clients that a run works on at a time; None for an
            equal share of the processors.
        """
        self._folder = folder
        self._machine = remaining_work.this_machine()
        self._jobs, self._concurrency = jobs, concurrency
        self._groups = concurrency or 1
        self._rates = remaining_work.load(folder / "rates.json", self._machine)
        self._chains: collections.deque[list[Training]] = collections.deque()
        self._events: queue.Queue[Any] = queue.Queue()
        self._trainers: list[Trainer] = []
        # Held where trainers are made or ended: none is made once all are ended.
        self._lock = threading.Lock()
        self._closed = False
        self._failures = 0
        self._threads = 0
        self._first: dict[str, _Round] = {}

    def check(self, works: Iterable[Training]) -> None:
        """Checks flags and data of a run of each task, before any work is done.

        Raises:
          ValueError: If they are refused.
          WorkFailedError: If they cannot be checked.
        """
        first = {work.task: work for work in reversed(list(works))}
        if not first:
            return
        trainer = self._new_trainer()
        for work in first.values():
            try:
                trainer.check(work, self._folder)
            except WorkFailedError as error:
                self.close()
                if error.exit_code == cli.USAGE_EXIT_CODE and error.said:
                    raise ValueError(error.said) from error
                raise

    def train(
        self, missing: Sequence[Training], of: Sequence[Training], add: Add
    ) -> None:
        """Does runs.

        Args:
          missing: Those to be done.
          of: All runs of the figure.
          add: Called, in this thread, with each run that is done and its columns.

        Raises:
          WorkFailedError: If runs fail; it is the first one's, or that of one that is
            refused. The others are done, unless three fail or one is refused: they
            are stopped then, and go on from their checkpoints the next time.
        """
        if not missing:
            return
        failures: list[BaseException] = []
        left = {work.key: work for work in missing}
        self._begin(missing)
        done = {w.key: rounds_done(self._folder / w.folder) for w in missing}
        totals = {work.key: work.rounds for work in missing}
        try:
            with _bar(sum(totals.values()), sum(done.values())) as bar:
                self._forecast(list(left.values()), of, bar)
                while left:
                    event = self._events.get()
                    if isinstance(event, _Round):
                        bar.total += event.of - totals[event.work.key]
                        totals[event.work.key] = event.of
                        bar.update(event.done - done[event.work.key])
                        done[event.work.key] = event.done
                        if self._measure(event):
                            self._forecast(list(left.values()), of, bar)
                        continue
                    if event.work is None:
                        raise event.error or RuntimeError("a thread ended early")
                    work = left.pop(event.work.key)
                    if event.error is None:
                        add(work, work.measured(self._folder / work.folder))
                        bar.set_postfix_str(work.folder[-50:])
                        continue
                    failures.append(event.error)
                    if len(failures) == _MOST_FAILURES:
                        bar.write(f"note: {event.error}", sys.stderr)
                        break
                    bar.write(f"note: {event.error}; the others go on", sys.stderr)
                    if self._forget(work.problem, left.values()):
                        self._forecast(list(left.values()), of, bar)
        finally:
            self.close()
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Ends all processes; runs go on from their checkpoints the next time."""
        with self._lock:
            self._closed = True
            self._chains.clear()
            for trainer in self._trainers:
                trainer.close()
            self._trainers.clear()

    def _begin(self, missing: Sequence[Training]) -> None:
        """Starts as many runs as is safe before anything is measured."""
        problems = dict.fromkeys(work.problem for work in missing)
        unknown = [each for each in problems if each not in self._rates]
        self._unknown = set(unknown)
        known = {} if unknown else {each: self._rates[each] for each in problems}
        at_a_time = self._jobs or remaining_work.jobs(
            self._machine, len(missing), known
        )
        self._groups = self._share(at_a_time)
        chains = _chains(missing, at_a_time)
        # A run of each problem that is to be measured goes first.
        first = {chain[0].problem: chain for chain in reversed(chains)}
        heads = [first[problem] for problem in unknown]
        others = [chain for chain in chains if not any(chain is h for h in heads)]
        self._chains.extend([*heads, *others])
        # Where there is less room than problems, they are measured one after another.
        at_first = min(len(unknown), at_a_time) if unknown else at_a_time
        self._hire(self._jobs or at_first)

    def _share(self, at_a_time: int) -> int:
        return self._concurrency or remaining_work.concurrency(self._machine, at_a_time)

    def _hire(self, threads: int) -> None:
        """Starts threads until there are so many, or as many as chains."""
        while self._threads < threads and self._threads < len(self._chains) + 1:
            trainer = (
                self._trainers[0] if self._threads == 0 and self._trainers else None
            )
            self._threads += 1
            serve = threading.Thread(target=self._serve, args=[trainer], daemon=True)
            serve.start()

    def _serve(self, trainer: Optional[Trainer]) -> None:
        """Does what is left of the chains, in a thread of its own."""
        try:
            runs, first_memory = 0, 0
            trainer = trainer or self._new_trainer()
            while self._chains:
                try:
                    chain = self._chains.popleft()
                except IndexError:
                    break
                for work in chain:
                    if self._closed or self._failures >= _MOST_FAILURES:
                        return
                    if _is_spent(trainer, runs, first_memory):
                        trainer.close()
                        trainer, runs = self._new_trainer(), 0
                    try:
                        self._train_one(trainer, work)
                        runs += 1
                        first_memory = trainer.memory() if runs == 1 else first_memory
                    except WorkFailedError as error:
                        if self._closed or error.exit_code == cli.USAGE_EXIT_CODE:
                            raise
                        self._events.put(_Ended(work, error))
                        with self._lock:
                            self._failures += 1
                        if self._failures >= _MOST_FAILURES:
                            return
                        # Whoever failed may be in any state, or gone.
                        trainer.close()
                        trainer, runs = self._new_trainer(), 0
        except BaseException as error:
            self._events.put(_Ended(None, error))

    def _train_one(self, trainer: Trainer, work: Training) -> None:
        def on_round(done: int, of: int) -> None:
            is_measured = work.problem in self._unknown
            memory = trainer.memory() if is_measured else 0
            self._events.put(_Round(work, done, of, time.monotonic(), memory))

        folder = self._folder / work.folder
        trainer.train(work, folder, on_round, concurrency=self._groups)
        self._events.put(_Ended(work))

    def _new_trainer(self) -> Trainer:
        with self._lock:
            if self._closed:
                raise RuntimeError("the crew must be open, found it closed")
            trainer = Trainer()
            self._trainers.append(trainer)
            return trainer

    def _forget(self, problem: str, left: Iterable[Training]) -> bool:
        """Whether a failed run was the last of what is to be measured."""
        if problem not in self._unknown or any(w.problem == problem for w in left):
            return False
        self._unknown.discard(problem)
        return not self._unknown

    def _measure(self, event: _Round) -> bool:
        """Keeps what a round cost; returns whether that was the last thing unknown."""
        problem = event.work.problem
        if problem not in self._unknown:
            return False
        # The first round of a process traces what the others run.
        first = self._first.get(event.work.key)
        if first is None or first.done == 0:
            self._first[event.work.key] = event
            return False
        rounds = event.done - first.done
        if rounds < _MEASURED_ROUNDS and event.done < event.of:
            return False
        self._rates[problem] = remaining_work.Rate(
            (event.seconds - first.seconds) / max(1, rounds),
            event.work.cohort_size,
            self._groups,
            max(first.memory, event.memory),
            remaining_work.checkpoint_bytes(self._folder / event.work.folder),
        )
        self._unknown.discard(problem)
        remaining_work.save(self._folder / "rates.json", self._machine, self._rates)
        return not self._unknown

    def _forecast(
        self, left: Sequence[Training], of: Sequence[Training], bar: Any
    ) -> None:
        """Says what is left, once that is known, and starts the other runs."""
        if self._unknown:
            names = ", ".join(sorted(self._unknown))
            bar.write(f"the first rounds of {names} are measured", sys.stderr)
            return
        rates = {work.problem: self._rates[work.problem] for work in left}
        at_a_time = self._jobs or remaining_work.jobs(self._machine, len(left), rates)
        at_a_time = max(1, min(at_a_time, len(left)))
        self._groups = self._share(at_a_time)
        told = remaining_work.sentence(
            left, of, self._folder, rates, at_a_time, self._groups
        )
        bar.write(told, sys.stderr)
        self._hire(at_a_time)


def _is_spent(trainer: Trainer, runs: int, first_memory: int) -> bool:
    """Whether a process is to be replaced before its next run."""
    if runs < 2:
        return False
    has_grown = trainer.memory() > _MOST_GROWTH * first_memory
    return has_grown or runs >= _RUNS_OF_A_TRAINER


def _chains(works: Sequence[Training], at_a_time: int) -> list[list[Training]]:
    """Returns runs in lists that one process does; all of one run if those are few."""
    found: dict[str, list[Training]] = {}
    for work in works:
        found.setdefault(work.all_but_seed, []).append(work)
    # A process that has nothing to do costs more than tracing twice.
    if len(found) < 2 * at_a_time:
        return [[work] for work in works]
    return list(found.values())


def _bar(total: int, initial: int) -> tqdm.tqdm:
    return tqdm.tqdm(
        total=total,
        initial=initial,
        unit="round",
        file=sys.stderr,
        mininterval=0.5 if sys.stderr.isatty() else 10,
    )
