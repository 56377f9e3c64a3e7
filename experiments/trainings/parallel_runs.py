# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Parallel execution of a figure's work, with progress.

    runs = parallel_runs.ParallelRuns(folder, jobs=2)
    runs.check(grid)
    runs.do(grid, sweep.ResultsTable(folder / "results.csv"))

Each of a few threads has a `Trainer`, takes runs one after the other, and moves the bar
and adds the rows. Runs that differ only in their seed go to one trainer.
"""

from __future__ import annotations

import collections
import math
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

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
        self._trainers: list[Trainer] = []
        # Held while trainers are made or ended, and while bar and table change: no
        # trainer is made once all are ended.
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._failures: list[BaseException] = []
        # What ended all runs: a refusal, or a fault.
        self._fatal: Optional[BaseException] = None
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
        at_a_time = min(self._jobs or _concurrent(), len(runs))
        # Groups of clients in each of them.
        self._groups = max(1, machine.processors() // at_a_time)
        self._chains.extend(_chains(runs, at_a_time))
        done = sum(rounds_done(self._folder / work.folder) for work in runs)
        with _bar(sum(work.rounds for work in runs), done, "round") as bar:
            count = min(at_a_time, len(self._chains))
            # The process that has checked runs trains too.
            first: list[Optional[Trainer]] = [*self._trainers, *[None] * count]
            threads = [
                threading.Thread(
                    target=self._serve, args=(table, bar, own), daemon=True
                )
                for own in first[:count]
            ]
            try:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            finally:
                self.close()
        for error in (self._fatal, *self._failures):
            if error is not None:
                raise error

    def close(self) -> None:
        """Ends all processes; their runs resume from checkpoints the next time."""
        with self._lock:
            self._closed.set()
            self._chains.clear()
            for trainer in self._trainers:
                trainer.close()
            self._trainers.clear()

    def _serve(
        self, table: sweep.ResultsTable, bar: tqdm.tqdm, trainer: Optional[Trainer]
    ) -> None:
        """Does the remaining chains, in a thread of its own."""
        try:
            trainer, runs = trainer or self._new_trainer(), 0
            while self._chains:
                try:
                    chain = self._chains.popleft()
                except IndexError:
                    break
                for work in chain:
                    # Only what was put off is not tried at once.
                    self._closed.wait(self._put_off.get(work.key, 0) - time.monotonic())
                    if self._closed.is_set():
                        return
                    if time.monotonic() > self._end:
                        continue
                    if runs == _RUNS_OF_A_TRAINER:
                        trainer.close()
                        trainer, runs = self._new_trainer(), 0
                    try:
                        row = self._trained(trainer, work, bar)
                        runs += 1
                    except WorkFailedError as error:
                        if error.is_elsewhere:
                            self._put_off[work.key] = time.monotonic() + _LOOK_AGAIN
                            self._chains.append([work])
                            continue
                        if not (error.is_divergence and self._keep_diverged):
                            self._fail(error, bar)
                            # A trainer that failed may be in any state, or gone.
                            trainer.close()
                            trainer, runs = self._new_trainer(), 0
                            continue
                        metric = registry.task_entry(work.all_flags["task"]).metric
                        row = {metric.final_column: math.nan}
                    with self._lock:
                        table.add(work, row)
                        bar.set_postfix_str(work.folder[-50:])
        except BaseException as error:
            with self._lock:
                if not self._closed.is_set():
                    self._fatal = error
                    self.close()

    def _trained(
        self, trainer: Trainer, work: Training, bar: tqdm.tqdm
    ) -> Mapping[str, Any]:
        """Trains a run; returns the measured columns."""
        folder = self._folder / work.folder
        last, total = rounds_done(folder), work.rounds

        def on_round(done: int, of: int) -> None:
            nonlocal last, total
            with self._lock:
                bar.total += of - total
                bar.update(done - last)
            last, total = done, of

        own = {"concurrency": self._groups} if work.has_groups else {}
        trainer.train(work, folder, on_round, **own)
        return sweep.measured(folder)

    def _fail(self, error: WorkFailedError, bar: tqdm.tqdm) -> None:
        """Notes a failure; a refusal, and one too many, end all runs.

        Raises:
          WorkFailedError: If they end, or have ended.
        """
        with self._lock:
            if self._closed.is_set() or error.exit_code == exits.USAGE_EXIT_CODE:
                raise error
            self._failures.append(error)
            if len(self._failures) == _MOST_FAILURES:
                bar.write(f"note: {error}", sys.stderr)
                self.close()
                raise error
            bar.write(f"note: {error}; the others go on", sys.stderr)

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
