# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Parallel execution of a figure's work, with progress.

    runs = parallel_runs.ParallelRuns(folder, jobs=2)
    runs.check(grid)
    runs.do(grid, sweep.ResultsTable(folder / "results.csv"))

Each of a few threads has a `Trainer`, takes runs one after the other and sends events
to the main thread, which draws the bar and adds the rows. Runs that differ only in
their seed go to one trainer.
"""

from __future__ import annotations

import collections
import math
import queue
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

import psutil
import tqdm

from dpfl import machine
from dpfl.tasks import registry

from .. import exits
from . import sweep
from .sweep import Training, rounds_done
from .trainers import Trainer, WorkFailedError, end, refusals

# Runs after which a process is replaced: each leaves some 20 MB of graphs.
_RUNS_OF_A_TRAINER = 16
# A run's assumed memory, F-EMNIST's at a cohort of 100, and the share of the machine's
# that runs may fill.
_BYTES_OF_A_RUN, _PART_OF_MEMORY = 2_500_000_000, 0.8
# Number of failures after which no further runs are started.
_MOST_FAILURES = 3
# Seconds after which a run that another process trains is looked at again.
_LOOK_AGAIN = 10.0


class _Round(NamedTuple):
    """An event: a run has finished rounds."""

    work: Training
    done: int
    of: int


class _Ended(NamedTuple):
    """An event: a run has ended, is put off or left; without one, a thread ended."""

    work: Optional[Training]
    error: Optional[BaseException] = None
    is_put_off: bool = False
    is_divergence: bool = False
    is_late: bool = False


class ParallelRuns:
    """Does the work that a results table lacks."""

    def __init__(
        self,
        folder: Path,
        *,
        jobs: Optional[int] = None,
        keep_diverged: bool = False,
        hours: Optional[float] = None,
    ):
        """Initializes the runs; no process is started yet.

        Args:
          folder: Parent of the folders of all work.
          jobs: Concurrent runs; None for as many as the machine allows.
          keep_diverged: Whether a run that diverged has a row whose metric is NaN; if
            not, it has failed.
          hours: Hours after which no run begins; None for no end.
        """
        self._end = math.inf if hours is None else time.monotonic() + 3600 * hours
        self._folder, self._keep_diverged = folder, keep_diverged
        self._jobs, self._groups = jobs, 1
        self._chains: collections.deque[list[Training]] = collections.deque()
        self._events: queue.Queue[Any] = queue.Queue()
        self._trainers: list[Trainer] = []
        # Held while trainers are made or ended: none is made once all are ended.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._failures = 0
        # Times before which runs are not tried again, by key.
        self._put_off: dict[str, float] = {}

    def check(self, works: Iterable[sweep.Work]) -> Optional[str]:
        """Checks flags and data of runs, before any work is done.

        Returns:
          The kind of JAX's device; "" if TFF trains, and None if nothing does.

        Raises:
          ValueError: If they are refused.
          WorkFailedError: If they cannot be checked.
        """
        runs = [work for work in works if isinstance(work, Training)]
        if not runs:
            return None
        trainer = self._new_trainer()
        try:
            with refusals():
                devices = {trainer.check(work, self._folder) for work in runs}
        except BaseException:
            self.close()
            raise
        return devices.pop()

    def do(self, grid: Sequence[sweep.Work], table: sweep.ResultsTable) -> None:
        """Does the work of a grid that the table lacks; a row is added for each.

        Work other than runs of `dpfl-train` is done first, in this process, one by one,
        since it may measure time.

        Args:
          grid: The work.
          table: The table.

        Raises:
          WorkFailedError: If runs fail; the error is that of a refused run, or the
            first. The other runs are finished, unless three fail or one is refused:
            then they are stopped, and resume from their checkpoints the next time.
        """
        missing = [work for work in grid if work not in table]
        alone = [(work, work.compute) for work in missing if work.compute is not None]
        with _bar(len(alone), 0, "row") as bar:
            for work, compute in alone:
                bar.set_postfix_str(work.folder[-50:])
                table.add(work, compute(self._folder / work.folder))
                bar.update()
        runs = [work for work in missing if isinstance(work, Training)]
        if not runs:
            return
        try:
            self._begin(runs)
            self._follow({work.key: work for work in runs}, table)
        finally:
            self.close()

    def _follow(self, left: dict[str, Training], table: sweep.ResultsTable) -> None:
        """Adds the rows of the remaining runs as their threads finish them."""
        failures: list[BaseException] = []
        done = {k: rounds_done(self._folder / w.folder) for k, w in left.items()}
        totals = {key: work.rounds for key, work in left.items()}
        with _bar(sum(totals.values()), sum(done.values()), "round") as bar:
            while left:
                event = self._events.get()
                if event.work is None:
                    raise event.error or RuntimeError("a thread ended early")
                work = event.work
                if isinstance(event, _Round):
                    bar.total += event.of - totals[work.key]
                    totals[work.key] = event.of
                    bar.update(event.done - done[work.key])
                    done[work.key] = event.done
                elif event.is_late:
                    del left[work.key]
                elif event.is_put_off:
                    bar.set_postfix_str(f"elsewhere: {work.folder[-40:]}")
                elif event.error is None or event.is_divergence:
                    del left[work.key]
                    table.add(work, self._result(event))
                    bar.set_postfix_str(work.folder[-50:])
                else:
                    del left[work.key]
                    failures.append(event.error)
                    if len(failures) == _MOST_FAILURES:
                        bar.write(f"note: {event.error}", sys.stderr)
                        break
                    bar.write(f"note: {event.error}; the others go on", sys.stderr)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Ends all processes; their runs resume from checkpoints the next time."""
        with self._lock:
            self._closed.set()
            self._chains.clear()
            for trainer in self._trainers:
                trainer.close()
            self._trainers.clear()

    def _begin(self, runs: Sequence[Training]) -> None:
        """Starts as many threads as runs may be concurrent."""
        at_a_time = min(self._jobs or _concurrent(), len(runs))
        # Groups of clients in each of them.
        self._groups = max(1, machine.processors() // at_a_time)
        self._chains.extend(_chains(runs, at_a_time))
        # The process that has checked runs trains too.
        checked = self._trainers[:1]
        for number in range(min(at_a_time, len(self._chains))):
            own = () if number else checked
            threading.Thread(target=self._serve, args=own, daemon=True).start()

    def _serve(self, trainer: Optional[Trainer] = None) -> None:
        """Does the remaining chains, in a thread of its own."""
        try:
            runs = 0
            trainer = trainer or self._new_trainer()
            while self._chains:
                try:
                    chain = self._chains.popleft()
                except IndexError:
                    break
                for work in chain:
                    # Only what was put off is not tried at once.
                    self._closed.wait(self._put_off.get(work.key, 0) - time.monotonic())
                    if self._closed.is_set() or self._failures >= _MOST_FAILURES:
                        return
                    if time.monotonic() > self._end:
                        self._events.put(_Ended(work, is_late=True))
                        continue
                    if runs == _RUNS_OF_A_TRAINER:
                        trainer.close()
                        trainer, runs = self._new_trainer(), 0
                    try:
                        self._train_one(trainer, work)
                        runs += 1
                    except WorkFailedError as error:
                        if self._is_settled(work, error):
                            continue
                        is_refused = error.exit_code == exits.USAGE_EXIT_CODE
                        if self._closed.is_set() or is_refused:
                            raise
                        self._events.put(_Ended(work, error))
                        with self._lock:
                            self._failures += 1
                        if self._failures >= _MOST_FAILURES:
                            return
                        # A trainer that failed may be in any state, or gone.
                        trainer.close()
                        trainer, runs = self._new_trainer(), 0
        except BaseException as error:
            self._events.put(_Ended(None, error))

    def _train_one(self, trainer: Trainer, work: Training) -> None:
        def on_round(done: int, of: int) -> None:
            self._events.put(_Round(work, done, of))

        folder = self._folder / work.folder
        own = {"concurrency": self._groups} if work.has_groups else {}
        trainer.train(work, folder, on_round, **own)
        self._events.put(_Ended(work))

    def _is_settled(self, work: Training, error: WorkFailedError) -> bool:
        """Whether an error is a result, or the run is tried again later."""
        if error.is_elsewhere:
            self._put_off[work.key] = time.monotonic() + _LOOK_AGAIN
            self._chains.append([work])
            self._events.put(_Ended(work, is_put_off=True))
            return True
        if error.is_divergence and self._keep_diverged:
            self._events.put(_Ended(work, is_divergence=True))
            return True
        return False

    def _result(self, event: _Ended) -> Mapping[str, Any]:
        """The measured columns of a run that has ended."""
        assert event.work is not None
        if event.is_divergence:
            task = event.work.all_flags["task"]
            return {registry.task_entry(task).metric.final_column: math.nan}
        return sweep.measured(self._folder / event.work.folder)

    def _new_trainer(self) -> Trainer:
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("the runs must be open, found them closed")
            trainer = Trainer()
            self._trainers.append(trainer)
            return trainer


def do(
    grid: Sequence[sweep.Work],
    table: sweep.ResultsTable,
    folder: Path,
    checked: Iterable[sweep.Work],
    words: str = "",
    **options: Any,
) -> None:
    """Does the work of a binary's grid that a table lacks, or ends the process.

    Args:
      grid: The work.
      table: The table.
      folder: Parent of the folders of all work.
      checked: Runs whose flags and data are checked before any work is done.
      words: Printed once the runs are checked.
      **options: Those of `ParallelRuns`.

    Raises:
      ValueError: If a run that is checked is refused, or is on another device than
        those in the table.
    """
    runs = ParallelRuns(folder, **options)
    try:
        device = runs.check(checked)
        if device is not None:
            table.check_device(device)
        print(words, end="", flush=True)
        runs.do(grid, table)
    except WorkFailedError as error:
        end(error)
    finally:
        runs.close()


def _concurrent() -> int:
    """The number of concurrent runs that processors and memory allow."""
    free = machine.free_memory()
    if free is None:
        free = psutil.virtual_memory().available
    room = int(_PART_OF_MEMORY * free / _BYTES_OF_A_RUN)
    return max(1, min(machine.processors(), room))


def _chains(works: Sequence[Training], at_a_time: int) -> list[list[Training]]:
    """Lists of runs that one process does; of one run if they are few, or in order."""
    chains: dict[str, list[Training]] = {}
    for work in works:
        chains.setdefault(work.all_but_seed, []).append(work)
    # A process that has nothing to do costs more than tracing twice.
    is_few = at_a_time == 1 or len(chains) < 2 * at_a_time
    return [[work] for work in works] if is_few else list(chains.values())


def _bar(total: int, initial: int, unit: str) -> tqdm.tqdm:
    interval = 0.5 if sys.stderr.isatty() else 10
    kept = {"file": sys.stderr, "mininterval": interval, "disable": not total}
    return tqdm.tqdm(total=total, initial=initial, unit=unit, **kept)
