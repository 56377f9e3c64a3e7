# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Long runs: whether a late round costs more time, or memory, than an early one.

Two runs, each with a checkpoint after every round: the loop of a training with its
real checkpoints and files of metrics around a process that computes nothing, so that
TFF's cost does not hide ours; and a whole training of a small network in TFF's worker.
`ratio` is the last tenth of the rounds over the first: medians of the time, and of the
resident memory of this process. The very first rounds, in which things are compiled and
buffers are filled, are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import psutil

from .harness import Row

_CLIENTS, _COHORT = 100, 10
_WARM_UP = 0.02


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long the runs are.

    Attributes:
      loop_rounds: Rounds in which nothing is computed.
      training_rounds: Rounds of the training.
      repeats: How often; one run says it.
    """

    loop_rounds: int = 10_000
    training_rounds: int = 500
    repeats: int = 1


FULL = Settings()
QUICK = Settings(loop_rounds=200, training_rounds=20)


class _Output(NamedTuple):
    state: Any
    train: Mapping[str, Any]
    aggregator: Any


class StubProcess:
    """A process that adds up who took part; what it saves is small."""

    def initialize(self) -> np.ndarray:
        """Returns zeros."""
        return np.zeros(100, np.float32)

    def next(self, state: np.ndarray, clients: list[int]) -> _Output:
        """Returns the sum, and made-up metrics that depend on it."""
        state = state + np.float32(sum(clients) / 1000)
        train = {"loss": np.float32(state[0]), "accuracy": np.float32(0.5)}
        return _Output(state, train, {"clients": np.int32(len(clients))})

    def weights(self, state: np.ndarray) -> list[np.ndarray]:
        """Returns the state."""
        return [state]

    def leaves(self, state: np.ndarray) -> list[np.ndarray]:
        """Returns the state."""
        return [state]

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the state."""
        return leaves[0]

    @contextlib.contextmanager
    def deadline(self, seconds: Optional[float]) -> Iterator[None]:
        """Returns at once: as the worker of this process."""
        del seconds
        yield


def evaluate(state: np.ndarray, is_due: bool) -> dict[str, Any]:
    """Returns made-up metrics of a stub's state, None if none are due."""
    value = np.float32(1 / (1 + abs(state[0]))) if is_due else None
    return {"loss": value, "accuracy": value}


def make_plan(folder: pathlib.Path, rounds: int, checkpoint_every: int = 1) -> Any:
    """Returns the plan of a run of a small task.

    Args:
      folder: Where its results go.
      rounds: How many.
      checkpoint_every: Rounds between checkpoints.
    """
    from dpfl.tasks import registry
    from dpfl.training import config, plan

    task_config = registry.make_config(
        "synthetic",
        model="small_cnn",
        num_clients=_CLIENTS,
        examples_per_client=2,
        batch_size=2,
        num_test_examples=2,
    )
    return plan.make_plan(
        config.RunConfig(
            task="synthetic",
            task_config=task_config,
            mechanism="gaussian",
            mechanism_options={},
            output_dir=folder,
            cohort_size=_COHORT,
            rounds=rounds,
            noise_multiplier=1.0,
            client_lr=0.001,
            server_lr=0.001,
            accountant="rdp",
            seed=1,
            checkpoint_every=checkpoint_every,
            eval_every=10,
            progress=False,
        )
    )


def run_stub(plan: Any, folder: pathlib.Path, process: Any = None) -> Any:
    """Runs the loop of a plan around a process that computes nothing.

    Args:
      plan: From `make_plan`.
      folder: Where checkpoints and metrics go.
      process: A `StubProcess`, a new one if not given.

    Returns:
      Where the run is at its end, a `dpfl.training.record.Progress`.
    """
    from dpfl.training import checkpoint, loop, record

    def say(sentence: str) -> None:
        del sentence

    def publish(saved: Any) -> None:
        del saved

    process = process or StubProcess()
    store = checkpoint.CheckpointStore(folder / "checkpoints", say=say)
    own = loop.Loop(
        plan,
        plan.config.seed,
        process=process,
        worker=process,
        store=store,
        record=record.MetricsFiles(folder, say),
        evaluate=evaluate,
        publish=publish,
        say=say,
    )
    return own.run()[1]


class _Watch:
    """Called after every round: when it was, and how large this process then is."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.at = [time.perf_counter()]
        self.bytes: list[int] = []

    def __call__(self) -> None:
        self.at.append(time.perf_counter())
        self.bytes.append(self._process.memory_info().rss)

    def rows(self, name: str) -> list[Row]:
        """Returns a row about time and one about memory."""
        skipped = int(len(self.bytes) * _WARM_UP)
        seconds = [b - a for a, b in zip(self.at, self.at[1:])][skipped:]
        memory = self.bytes[skipped:]
        tenth = max(1, len(seconds) // 10)
        median = statistics.median
        common = {"repeats": len(self.bytes), "baseline": "first tenth"}
        return [
            {
                "name": f"{name}: a round",
                "seconds_median": median(seconds[-tenth:]),
                "ratio": median(seconds[-tenth:]) / median(seconds[:tenth]),
                "description": f"last tenth of {len(self.bytes)} rounds",
                **common,
            },
            {
                "name": f"{name}: memory",
                "bytes": median(memory[-tenth:]),
                "ratio": median(memory[-tenth:]) / median(memory[:tenth]),
                "description": "of this process, last tenth",
                **common,
            },
        ]


def loop_alone(settings: Settings) -> list[Row]:
    """Returns rows about the loop around a process that computes nothing."""
    watch = _Watch()

    class Watched(StubProcess):
        def next(self, state: np.ndarray, clients: list[int]) -> _Output:
            watch()
            return super().next(state, clients)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run_stub(make_plan(folder, settings.loop_rounds), folder, Watched())
    return watch.rows("loop alone")


def training(settings: Settings) -> list[Row]:
    """Returns rows about a whole training, in a worker of its own."""
    from dpfl.training import evaluation
    from dpfl.training import run as run_lib

    watch = _Watch()
    evaluator = evaluation.Evaluator.__call__

    def watched(self: Any, state: Any, is_due: bool = True) -> Any:
        watch()
        return evaluator(self, state, is_due)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = make_plan(folder, settings.training_rounds)
        with run_lib.Run(plan, lambda sentence: None) as run:
            evaluation.Evaluator.__call__ = watched  # type: ignore[method-assign]
            try:
                run.train()
            finally:
                evaluation.Evaluator.__call__ = evaluator  # type: ignore[method-assign]
    return watch.rows("training")


def long_run(settings: Settings) -> list[Row]:
    """Returns the rows of both runs."""
    return loop_alone(settings) + training(settings)


ROWS = {"long_run": long_run}
