# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""A training run from its plan to its files, across any number of restarts.

    plan = make_plan(RunConfig(...))   # everything is checked, nothing is trained
    print(report.describe(plan))
    with Run(plan) as run:
        summary = run.train()

`output_dir` then holds `manifest.json` (settings, noise, versions and seed: with the
seed the noise can be removed, so do not publish it, nor the checkpoints),
`checkpoints/`, `metrics.csv`, `times.csv`, `tensorboard/`, `model.npz`,
`summary.json` and `report.html`; from the engine of TFF `worker.log` too.
`privacy_coverage.LIST` lists what the guarantee covers.
"""

from __future__ import annotations

import contextlib
import pathlib
import secrets
from collections.abc import Callable
from typing import Any, Optional

from dpfl import files, locks, privacy_coverage, reading
from dpfl.seed_domains import RunDomain
from dpfl.tasks.downloads import DataFileError
from dpfl.training import canaries as canaries_lib
from dpfl.training import checkpoint as checkpoint_lib
from dpfl.training import engine as engine_lib
from dpfl.training import loop as loop_lib
from dpfl.training import page as page_lib
from dpfl.training import plan as plan_lib
from dpfl.training import provenance, record, report, selection
from dpfl.training.record import EVENTS, METRICS

# Exceptions of `Run.train` about a damaged file, or too little memory.
INPUT_ERRORS = (
    *(checkpoint_lib.DamagedCheckpointError, record.DamagedRecordError),
    *(DataFileError, engine_lib.NotEnoughMemoryError),
)


class Run:
    """A run in its output folder, which it locks while it is open as a context."""

    def __init__(
        self,
        plan: plan_lib.Plan,
        say: Callable[[str], None] = print,
        *,
        on_round: Callable[[int, int], None] = lambda done, of: None,
        last: Optional[engine_lib.LastProcess] = None,
    ):
        """Initializes the run; the folder is not touched yet.

        Args:
          plan: The plan of the run.
          say: Called with sentences for the user.
          on_round: Called with the number of rounds done and in all, at the beginning
            and after each round.
          last: The newest process of this Python process, which may be reused; None for
            a new one.
        """
        self.plan = plan
        self._say = say
        self._on_round = on_round
        self._last = last or engine_lib.LastProcess()
        self._directory = pathlib.Path(plan.config.output_dir)
        self._stack = contextlib.ExitStack()
        self._seed, self._key = 0, 0

    def __enter__(self) -> Run:
        """Locks the output folder, and checks that it belongs to this run.

        Raises:
          locks.InUseError: If another process has locked it.
          ChangedFlagsError: If another run was started in it, or this run with other
            noise or versions.
          DamagedCheckpointError: If a round that was seen would be repeated with other
            updates.
          ValueError: If the folder cannot be written, has files that a new run would
            replace, or the manifest is lost or damaged.
        """
        try:
            files.private_folder(self._directory)
            with contextlib.ExitStack() as opened:
                self._open(opened)
                # Kept open unless the run was refused.
                self._stack = opened.pop_all()
        except OSError as error:
            raise ValueError(
                f"output_dir must be a writable folder, found {self._directory} "
                f"({error.strerror})"
            ) from error
        return self

    def __exit__(self, *unused_exception: Any) -> None:
        self._stack.close()

    def _open(self, stack: contextlib.ExitStack) -> None:
        stack.enter_context(locks.locked(self._directory))
        files.remove_partials(self._directory)
        self._store = checkpoint_lib.CheckpointStore(
            self._directory / "checkpoints",
            self.plan.config.keep_checkpoints,
            self._say,
        )
        path = self._directory / "manifest.json"
        if not path.exists() and self._store.newest_round:
            # With another seed, its rounds would be released as those of this run.
            raise checkpoint_lib.DamagedManifestError(
                f"{path} is missing, though its folder has checkpoints; choose another "
                "output_dir"
            )
        if not path.exists():
            _check_fresh(self._directory)
        seed = self.plan.config.seed
        facts = provenance.manifest(self.plan)
        engine_lib.check_same(self.plan, facts)
        manifest = checkpoint_lib.open_manifest(
            path,
            facts,
            lambda: secrets.randbits(selection.SEED_BITS) if seed is None else seed,
        )
        self._store.bind(manifest)
        self._check_not_seen()
        self._seed = manifest.seed
        self._key = selection.run_key(manifest.seed, provenance.digest(self.plan))

    def _check_not_seen(self) -> None:
        """Raises DamagedCheckpointError if a seen round would be repeated differently.

        Under the same noise, the difference of the two results would be one of updates
        alone.
        """
        rows, path = 0, self._directory / METRICS
        with contextlib.suppress(FileNotFoundError), reading.opened(path) as file:
            rows = sum(1 for _ in file) - 1
        seen = max(rows, self._store.newest_round)
        newest = self._store.load_newest(say=lambda sentence: None)
        whole = 0 if newest is None else newest.round_index
        if seen > whole and not self.plan.about.repeats_rounds:
            raise checkpoint_lib.DamagedCheckpointError(
                f"{self._directory} has no intact checkpoint of round {seen}, only of "
                f"round {whole}: the model draws random numbers, as for dropout, or a "
                "card may add in another order, so that a round whose release may have "
                "been seen cannot be repeated with the same updates; choose another "
                "output_dir"
            )

    def train(self) -> dict[str, Any]:
        """Runs the remaining rounds and writes the results.

        Raises:
          DataFileError: If the task's data file is damaged.
          DamagedRecordError: If the files of metrics were changed since they were
            written.
          DivergedError: If a round leaves a model that is not finite, or whose loss is
            not on test examples that belong to no client.
          EngineLostError: If the engine ends or fails, or a round takes too long.
          NotEnoughMemoryError: If a round does not fit in the device's memory.
        """
        setup = engine_lib.Setup(
            self._directory, self._key, self._model_seed, self._say, self._last
        )
        name = self.plan.config.engine
        with engine_lib.opened(name, self.plan, setup) as trainer:
            page = page_lib.Page(self.plan, self._directory)
            loop = loop_lib.Loop(
                self.plan,
                self._key,
                engine=trainer,
                store=self._store,
                record=record.MetricsFiles(self._directory),
                publish=page.at_checkpoint,
                say=self._say,
                on_round=self._on_round,
            )
            state, progress = loop.run()
            trainer.save_model(state, self._directory)
            audit = None
            if self.plan.config.canaries:
                canaries = canaries_lib.Canaries(self.plan, self._key)
                audit = canaries.audit(progress.scores, trainer.weights(state))
        summary = report.summary(self.plan, progress, audit)
        files.write_json(self._directory / "summary.json", summary)
        page.write(summary)
        return summary

    @property
    def _model_seed(self) -> int:
        """The model's seed, within the 31 bits that Keras allows."""
        return selection.derive_seed(self._seed, RunDomain.MODEL) % 1_000_000


def follow(plan: plan_lib.Plan, say: Callable[[str], None] = print) -> None:
    """Computes the rounds of a run with its first process; writes no files.

    Args:
      plan: The plan of the run.
      say: Called with sentences for the user.

    Raises:
      EngineLostError: If another process ends or fails.
      ValueError: If the plan is not that of the first process.
    """
    engine_lib.check_same(plan, provenance.manifest(plan))
    nowhere = pathlib.Path(plan.config.output_dir)
    setup = engine_lib.Setup(nowhere, 0, 0, say, engine_lib.LastProcess())
    engine_lib.follow(plan, setup)


def _check_fresh(directory: pathlib.Path) -> None:
    """Raises ValueError if there are files that a new run would replace."""
    for place in (*privacy_coverage.FILES, EVENTS):
        # Others' events stay, and a log is added to.
        is_kept = place.endswith("/*") or place in (".lock", "worker.log")
        for path in () if is_kept else directory.glob(place):
            raise ValueError(
                f"output_dir has {path}, which this run would replace, and no "
                "manifest.json; choose another output_dir"
            )
