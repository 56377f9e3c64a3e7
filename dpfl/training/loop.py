# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The rounds of a run: choose clients, let them train, account, keep what happened.

What trains, evaluates and stores is handed in, so that nothing here needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Protocol

import numpy as np
import tqdm

from dpfl import covered
from dpfl.covered import RELEASED
from dpfl.planning import ledger as ledger_lib
from dpfl.training import checkpoint as checkpoint_lib
from dpfl.training import plan as plan_lib
from dpfl.training import record as progress_lib
from dpfl.training import report, selection
from dpfl.training.record import Progress, Row, Tally, check_noise, round_row


class Output(Protocol):
    """What a round gives; see `federated_averaging.RoundOutput`."""

    @property
    def state(self) -> Any:
        """Returns the state after the round."""

    @property
    def train(self) -> Mapping[str, Any]:
        """Returns the clients' metrics, name to scalar."""

    @property
    def aggregator(self) -> Any:
        """Returns the aggregator's measurements, nested."""


class Process(Protocol):
    """What trains; see `federated_averaging.FedProcess`."""

    def initialize(self) -> Any:
        """Returns the state before the first round."""

    def next(self, state: Any, clients: list[int]) -> Output:
        """Returns what a round with these clients gives."""

    def weights(self, state: Any) -> list[np.ndarray]:
        """Returns the weights of the model in a state."""

    def leaves(self, state: Any) -> list[np.ndarray]:
        """Returns a state as arrays."""

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> Any:
        """Returns the inverse of `leaves`; ValueError if they are another process's."""


class Worker(Protocol):
    """What the process runs on; see `worker.Worker`."""

    def deadline(
        self, seconds: Optional[float]
    ) -> contextlib.AbstractContextManager[None]:
        """Returns a block that may take so long."""


class Store(Protocol):
    """Where checkpoints are; see `checkpoint.CheckpointStore`."""

    def load_newest(self) -> Optional[checkpoint_lib.Checkpoint]:
        """Returns the newest checkpoint, None if there is none."""

    def save(self, checkpoint: checkpoint_lib.Checkpoint) -> Any:
        """Writes a checkpoint."""


class Record(Protocol):
    """Where the rows go; see `metrics.MetricsFiles`."""

    @property
    def marks(self) -> dict[str, Any]:
        """Returns where the files end, as JSON."""

    def rewind(self, marks: Optional[dict[str, Any]] = None) -> None:
        """Takes the files back to where they were; to no rows without marks."""

    def append(self, rows: Sequence[Row], times: Sequence[Row]) -> None:
        """Adds the rows of a checkpoint."""


class DivergedError(ArithmeticError):
    """A round left no model that could be trained on.

    Whether it did is seen from the model and from public examples alone, so that one
    client cannot end a run, and a run's end says nothing that the event does not cover.
    """


class Loop:
    """The rounds of one run in one process."""

    def __init__(
        self,
        plan: plan_lib.Plan,
        key: int,
        *,
        process: Process,
        worker: Worker,
        store: Store,
        record: Record,
        evaluate: Callable[[Any, bool], Mapping[str, Any]],
        publish: Callable[[Progress], None],
        say: Callable[[str], None],
        on_round: Callable[[int, int], None] = lambda done, of: None,
    ):
        """Initializes the loop; nothing is read or computed.

        Args:
          plan: What is to be done.
          key: The run's, from `seeds.run_key`, of which the cohorts are drawn.
          process: What trains.
          worker: What it runs on.
          store: Where checkpoints are.
          record: Where rows go.
          evaluate: Maps (state, whether it is due) to metrics.
          publish: Called with what was saved, its rows in the record.
          say: Called with sentences for people.
          on_round: Called with how many rounds are done, and of how many, at the
            beginning and after each.
        """
        self._plan = plan
        self._key = key
        self._process = process
        self._worker = worker
        self._store = store
        self._record = record
        self._evaluate = evaluate
        self._publish = publish
        self._say = say
        self._on_round = on_round
        self._ledger = ledger_lib.Ledger.of(plan.cost)
        self._warned = False

    def run(self) -> tuple[Any, Progress]:
        """Does all rounds that are left.

        Returns:
          The state after the last round, and where the run then is.

        Raises:
          DamagedRecordError: If the files of metrics are not those of the checkpoint,
            or a round had other noise than the plan's.
          DivergedError: If a round leaves a model that is not finite, or a loss that
            is not on test examples that belong to no client; the round before it is
            then the newest checkpoint.
          ValueError: If the newest checkpoint is of another process or manifest.
          OSError: If a checkpoint or a metric cannot be written.
        """
        state, progress = self._restore()
        last = self._plan.last_round
        self._on_round(progress.round_index, last)
        with self._bar(progress.round_index) as bar:
            while progress.round_index < last:
                begun = time.monotonic()
                after, row, cohort = self._round(state, progress.tally)
                problem = self._problem(after, row)
                if problem:
                    if progress.rows:
                        self._save(state, progress)
                    raise DivergedError(problem)
                self._warn(row)
                state, seconds = after, time.monotonic() - begun
                progress = progress.advanced(
                    row,
                    cohort,
                    seconds,
                    without_exact=self._plan.config.measure == RELEASED,
                )
                if self._plan.is_saved(progress.round_index):
                    progress = self._save(state, progress)
                words = report.postfix(self._plan, progress.tally)
                bar.set_postfix_str(words, refresh=False)
                bar.update()
                self._on_round(progress.round_index, last)
        if self._plan.cost.stop_message:
            self._say(self._plan.cost.stop_message)
        return state, progress

    def _save(self, state: Any, progress: Progress) -> Progress:
        """Makes a checkpoint, and only then adds its rows to the files."""
        progress = progress._replace(leaves=self._process.leaves(state))
        self._store.save(progress.to_checkpoint(self._record.marks))
        self._record.append(progress.rows, progress.times)
        self._publish(progress)
        # They may be gigabytes, and are in the file.
        return progress.recorded()._replace(leaves=[])

    def _problem(self, state: Any, row: Row) -> Optional[str]:
        """Returns what is wrong with a round's result, None if nothing is."""
        found = None
        if not all(np.isfinite(part).all() for part in self._process.weights(state)):
            found = "a model that is not finite"
        # Not there where clients hold test examples.
        loss = row.get("eval_loss")
        if loss is not None and not np.isfinite(loss):
            found = f"eval_loss {loss}"
        if found is None:
            return None
        return (
            f"round {row['round']} left {found}, so the training has diverged; smaller "
            "client_lr and server_lr, or less noise, may help, in another output_dir; "
            "the checkpoints of the rounds before are kept"
        )

    def _warn(self, row: Row) -> None:
        """Says once that all of a cohort diverged, where that is measured."""
        measured = row.get(covered.measured_column("nonfinite_clients"))
        if self._warned or not measured or measured < row["exact_clients"]:
            return
        self._warned = True
        self._say(
            f"exact: no client of round {row['round']} had a finite update; a smaller "
            "client_lr may help, in another output_dir"
        )

    def _bar(self, done: int) -> Any:
        return tqdm.tqdm(
            total=self._plan.last_round,
            initial=done,
            unit="round",
            file=sys.stderr,
            disable=not self._plan.config.progress,
            mininterval=0.1 if sys.stderr.isatty() else 10,
        )

    def _restore(self) -> tuple[Any, Progress]:
        """Returns state and progress of the newest checkpoint, or of a new run."""
        found = self._store.load_newest()
        if found is None:
            with self._worker.deadline(self._plan.config.round_deadline):
                first = self._process.initialize()
            self._record.rewind()
            return first, progress_lib.beginning(self._plan.participation.population)
        progress = progress_lib.from_checkpoint(found)
        state = self._process.from_leaves(progress.leaves)
        # What the ledger charges for them is right for this noise alone. Those before
        # were checked when the run went on with them.
        last = [progress.tally.last] if progress.tally.last is not None else []
        check_noise(self._plan, [*last, *progress.rows])
        self._record.rewind(found.info["marks"])
        self._record.append(progress.rows, progress.times)
        self._say(f"going on after round {found.round_index}")
        self._ledger.resume_at(found.round_index, self._last_cohorts(found.round_index))
        return state, progress.recorded()._replace(leaves=[])

    def _last_cohorts(self, done: int) -> list[list[int]]:
        """Returns the clients of the rounds that some may not yet be back from."""
        begun = self._plan.participation.excluded_from(done)
        return [self._cohort(r) for r in range(begun, done)]

    def _cohort(self, round_index: int) -> list[int]:
        chosen = selection.select_cohort(
            self._plan.participation, self._key, round_index
        )
        return [int(client) for client in chosen]

    def _round(self, state: Any, before: Tally) -> tuple[Any, Row, list[int]]:
        """Returns the state after the next round, its row, and who took part."""
        clients = self._cohort(before.rounds)
        epsilon = self._ledger.record_round(clients)
        with self._worker.deadline(self._plan.config.round_deadline):
            output = self._process.next(state, clients)
        is_due = self._plan.is_evaluated(before.rounds + 1)
        row = round_row(
            self._plan,
            before,
            len(clients),
            output.train,
            self._evaluate(output.state, is_due),
            epsilon,
            output.aggregator,
        )
        return output.state, row, clients
