# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The round loop of a run: selection, training, accounting and records.

    loop = Loop(plan, key, engine=engine, store=store, record=record,
                publish=page.at_checkpoint, say=print)
    state, progress = loop.run()

Engine and storage are passed in, so that nothing here needs TensorFlow or JAX.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import tqdm

from dpfl.planning import ledger as ledger_lib
from dpfl.privacy_coverage import RELEASED
from dpfl.training import canaries as canaries_lib
from dpfl.training import checkpoint as checkpoint_lib
from dpfl.training import plan as plan_lib
from dpfl.training import report, selection
from dpfl.training.checkpoint import Progress
from dpfl.training.record import MetricsFiles, Row, RunTotals, check_noise, round_row

if TYPE_CHECKING:
    from dpfl.training.engine import Engine


_WITHOUT_PACE = "{l_bar}{bar}| {n_fmt}/{total_fmt}{postfix}"


class DivergedError(ArithmeticError):
    """A round left a model that cannot be trained further.

    This is decided from the model and public examples alone, so that one client cannot
    end a run, and the end of a run reveals nothing that the event does not cover.
    """


class Loop:
    """The rounds of one run in one process."""

    def __init__(
        self,
        plan: plan_lib.Plan,
        key: int,
        *,
        engine: Engine,
        store: checkpoint_lib.CheckpointStore,
        record: MetricsFiles,
        publish: Callable[[Progress], None],
        say: Callable[[str], None],
        on_round: Callable[[int, int], None] = lambda done, of: None,
    ):
        """Initializes the loop; nothing is read or computed.

        Args:
          plan: The plan of the run.
          key: The run's key from `selection.run_key`, from which cohorts are drawn.
          engine: The engine, which trains.
          store: The store of checkpoints.
          record: The files of metrics.
          publish: Called with the saved progress, once its rows are recorded.
          say: Called with sentences for the user.
          on_round: Called with the number of rounds done and in all, at the beginning
            and after each round.
        """
        self._plan = plan
        self._key = key
        self._engine = engine
        self._store = store
        self._record = record
        self._publish = publish
        self._say = say
        self._on_round = on_round
        self._ledger = ledger_lib.Ledger.of(plan.cost)
        self._canaries = canaries_lib.Canaries(plan, key)

    def run(self) -> tuple[Any, Progress]:
        """Runs the remaining rounds; returns the last state and the progress.

        Raises:
          DamagedCheckpointError: If the checkpoint holds no state of the process.
          DamagedRecordError: If the files of metrics do not match the checkpoint, or a
            round had other noise than the plan's.
          DivergedError: If a round leaves a model that is not finite, or whose loss is
            not on test examples that belong to no client; or if one did before.
        """
        state, progress = self._restore()
        last = self._plan.last_round
        self._on_round(progress.round_index, last)
        with self._bar(progress.round_index) as bar:
            while progress.round_index < last:
                begun = time.monotonic()
                state, row, cohort, scores = self._round(state, progress.totals)
                problem = self._problem(state, row)
                progress = progress.advanced(
                    row,
                    cohort,
                    time.monotonic() - begun,
                    scores=scores,
                    without_exact=self._plan.config.measure == RELEASED,
                )
                if problem or self._plan.is_saved(progress.round_index):
                    progress = self._save(state, progress)
                if problem:
                    # It is saved, and so refused again: other noise for it would be
                    # another release.
                    raise DivergedError(problem)
                if self._plan.is_shown(progress.round_index):
                    words = report.postfix(self._plan, progress.totals)
                    bar.set_postfix_str(words, refresh=False)
                bar.update()
                self._on_round(progress.round_index, last)
        if self._plan.cost.stop_message:
            self._say(self._plan.cost.stop_message)
        return state, progress

    def _save(self, state: Any, progress: Progress) -> Progress:
        """Writes a checkpoint, and then appends its rows to the files."""
        progress = progress._replace(leaves=self._engine.leaves(state))
        self._store.save(progress)
        self._record.append(progress.rows, progress.times)
        self._publish(progress)
        return progress.recorded()

    def _problem(self, state: Any, row: Row) -> Optional[str]:
        """A sentence on a round's result that cannot be trained further, else None."""
        flaw = None
        if not all(np.isfinite(part).all() for part in self._engine.weights(state)):
            flaw = "the model is not finite"
        # Missing if clients hold test examples.
        loss = row.get("eval_loss")
        if loss is not None and not np.isfinite(loss):
            flaw = f"eval_loss is {loss}"
        if flaw is None:
            return None
        return (
            f"training diverged in round {row['round']}: {flaw}; smaller client_lr and "
            "server_lr, or less noise, may help, in another output_dir"
        )

    def _bar(self, done: int) -> Any:
        return tqdm.tqdm(
            total=self._plan.last_round,
            initial=done,
            unit="round",
            file=sys.stderr,
            disable=not self._plan.config.progress,
            mininterval=0.1 if sys.stderr.isatty() else 10,
            # The duration of a round is an exact value.
            bar_format=_WITHOUT_PACE if self._plan.config.measure == RELEASED else None,
        )

    def _restore(self) -> tuple[Any, Progress]:
        progress = self._store.load_newest()
        if progress is None:
            first = self._engine.initialize()
            self._record.rewind()
            scores = self._canaries.scores(self._engine.weights(first))
            number = self._plan.participation.population
            return first, checkpoint_lib.beginning(number, scores)
        try:
            state = self._engine.from_leaves(progress.leaves)
        except ValueError as error:
            raise checkpoint_lib.DamagedCheckpointError(
                f"{error}; choose another output_dir"
            ) from error
        # The ledger charges for this noise only.
        last = [progress.totals.last] if progress.totals.last is not None else []
        check_noise(self._plan, [*last, *progress.rows])
        done = progress.round_index
        before = done - len(progress.rows)
        self._record.rewind(before, progress.rows, progress.times)
        problem = self._problem(state, progress.totals.last or {})
        if problem:
            raise DivergedError(problem)
        self._say(f"resuming after round {done}")
        begun = self._plan.participation.known_from(done)
        self._ledger.resume_at(done, [self._cohort(r) for r in range(begun, done)])
        return state, progress.recorded()

    def _cohort(self, round_index: int) -> list[int]:
        chosen = selection.select_cohort(
            self._plan.participation, self._key, round_index
        )
        return [int(client) for client in chosen]

    def _round(
        self, state: Any, before: RunTotals
    ) -> tuple[Any, Row, list[int], np.ndarray]:
        """Runs a round; returns the next state, its row, clients and scores."""
        chosen = self._cohort(before.rounds)
        epsilon = self._ledger.record_round(chosen)
        clients = canaries_lib.present(self._plan, self._key, chosen)
        output = self._engine.round(state, clients)
        scores = self._canaries.scores(output.released)
        is_due = self._plan.is_evaluated(before.rounds + 1)
        row = round_row(
            self._plan,
            before,
            len(clients),
            output.train,
            self._engine.evaluate(output.state, is_due),
            epsilon,
            output.aggregator,
        )
        return output.state, row, clients, scores
