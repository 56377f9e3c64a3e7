# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Calibrations, factorizations, a start of `dpfl-train`, and long runs.

Long runs show whether a late round costs more time, or memory, than an early one. Both
have a checkpoint after every round: the loop of a training with its real checkpoints
and files of metrics around a process that computes nothing, so that TFF's cost does not
hide ours; and a whole training of a small network in TFF's worker. `ratio` is the last
tenth of the rounds over the first: medians of the time, and of the resident memory of
this process. The very first rounds, in which things are compiled and buffers are
filled, are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import psutil

from dpfl import accounting, factorization, mechanisms, planning

from .. import factorizations
from . import harness
from .harness import Row, Sizes

_EPSILON, _DELTA = 8.0, 1e-8
# Clients of which a round's are sampled, for each of a round, and rounds.
_SAMPLED_OF, _ROUNDS = 100, 1000
_IMPORT = ("-c", "import tensorflow_federated")
_TRAIN = ("-m", "dpfl", "train", "--task=digits", "--rounds=1", "--noprogress")
_CLIENTS, _COHORT = 100, 10
_WARM_UP = 0.02


def calibrations(sizes: Sizes) -> list[Row]:
    """Measures calibrations of one release, of sampled rounds, and refusals.

    Messages grow by a number from turn to turn, and with them the grid changes, so that
    nothing that the accountant remembers serves twice.
    """
    baseline = "calibrate Gaussian"
    calls: dict[str, Callable[[], None]] = {}
    calls[baseline] = _call(mechanisms.Gaussian(100, 1.0, 1.0), 1)
    for n, bits, length in sizes.messages:
        size = f"{n:.0e}, {bits} bits".replace("e+0", "e")
        plain = mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)
        helped = dataclasses.replace(plain, noise_source="helpers")
        sampled = mechanisms.PoissonSampling(_SAMPLED_OF * n, n, _ROUNDS)
        calls[f"calibrate {size}"] = _call(plain, length)
        calls[f"calibrate {size}, sampled"] = _call(helped, length, sampled)
    for n, bits, length in sizes.refused:
        plain = mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)
        name = f"refuse {n:.0e}, {bits} bits".replace("e+0", "e")
        calls[name] = _call(plain, length, refused=True)
    return harness.compare(calls, baseline, min(3, sizes.repeats))


def _call(
    mechanism: Any, length: int, participation: Any = None, refused: bool = False
) -> Callable[[], None]:
    """A function that calibrates, with longer messages at each call."""
    lengths = itertools.count(length)

    def run() -> None:
        try:
            planning.calibrate(
                mechanism, participation, next(lengths), _EPSILON, _DELTA
            )
        except accounting.CalibrationError:
            if not refused:
                raise

    return run


def optimal(sizes: Sizes) -> list[Row]:
    """Measures the optimal factorization of prefix sums, to a relative gap of 1e-6.

    The plain fixed point, the baseline, is solved once: it takes minutes. The
    accelerated one is the median of the repeats. Each has a process of its own.
    """
    workload = factorization.prefix_sum(sizes.matrix_rounds)
    plain = factorizations.measure(workload, accelerated=False, repeats=1)
    fast = factorizations.measure(workload, repeats=min(3, sizes.repeats))
    name = f"factorization T={sizes.matrix_rounds}"
    rows: list[Row] = []
    for words, cost in (("plain", plain), ("accelerated", fast)):
        other = rows[0] if rows else None
        row = {
            "name": f"{name}, {words}",
            "seconds_median": cost.seconds,
            "baseline": other and other["name"],
            "ratio": cost.seconds / plain.seconds if other else None,
            "description": f"{cost.iterations} iterations",
        }
        rows.append(row)
    return [*rows, harness.memory_row(f"{name}, memory", fast.peak_bytes)]


def start_up(sizes: Sizes) -> list[Row]:
    """Measures `dpfl-train` with digits and a single round, and the import of TFF.

    From the command line to the exit: imports, tracing, compiling and pictures are
    nearly all of it.
    """

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "run"
            _run((*_TRAIN, *sizes.train_flags, f"--output_dir={output}"))

    functions: dict[str, Callable[[], None]]
    functions = {"start_up: import of TFF": lambda: _run(_IMPORT)}
    functions["start_up: dpfl-train"] = train
    return harness.compare(functions, next(iter(functions)), min(5, sizes.repeats))


def _run(arguments: tuple[str, ...]) -> None:
    subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )


class _Output(NamedTuple):
    state: Any
    train: Mapping[str, Any]
    aggregator: Any


class StubProcess:
    """A process that adds up who took part; what it saves is small."""

    def initialize(self) -> np.ndarray:
        """Zeros."""
        return np.zeros(100, np.float32)

    def next(self, state: np.ndarray, clients: list[int]) -> _Output:
        """The sum, and made-up metrics that depend on it."""
        state = state + np.float32(sum(clients) / 1000)
        train = {"loss": np.float32(state[0]), "accuracy": np.float32(0.5)}
        return _Output(state, train, {"clients": np.int32(len(clients))})

    def weights(self, state: np.ndarray) -> list[np.ndarray]:
        """The state."""
        return [state]

    leaves = weights

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """The state."""
        return leaves[0]

    @contextlib.contextmanager
    def deadline(self, seconds: Optional[float]) -> Iterator[None]:
        """Returns at once: as the worker of this process."""
        del seconds
        yield


def evaluate(state: np.ndarray, is_due: bool) -> dict[str, Any]:
    """Made-up metrics of a stub's state, None if none are due."""
    value = np.float32(1 / (1 + abs(state[0]))) if is_due else None
    return {"loss": value, "accuracy": value}


def make_plan(folder: pathlib.Path, rounds: int, checkpoint_every: int = 1) -> Any:
    """The plan of a run of a small task, whose results go to a folder."""
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
      Where the run is at its end, a `dpfl.training.checkpoint.Progress`.
    """
    from dpfl.training import checkpoint, loop, record

    def say(sentence: Any) -> None:
        del sentence

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
        publish=say,
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
        """A row about time and one about memory."""
        skipped = int(len(self.bytes) * _WARM_UP)
        seconds = [b - a for a, b in zip(self.at, self.at[1:])][skipped:]
        memory = self.bytes[skipped:]
        tenth = max(1, len(seconds) // 10)
        median = statistics.median
        count = len(self.bytes)

        def row(what: str, key: str, found: list[Any], description: str) -> Row:
            last = median(found[-tenth:])
            return {
                **{"name": f"{name}: {what}", key: last},
                **{"ratio": last / median(found[:tenth]), "description": description},
                **{"repeats": count, "baseline": "first tenth"},
            }

        said = f"last tenth of {count} rounds"
        return [
            row("a round", "seconds_median", seconds, said),
            row("memory", "bytes", memory, "of this process, last tenth"),
        ]


def loop_alone(sizes: Sizes) -> list[Row]:
    """Rows about the loop around a process that computes nothing."""
    watch = _Watch()

    class Watched(StubProcess):
        def next(self, state: np.ndarray, clients: list[int]) -> _Output:
            watch()
            return super().next(state, clients)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run_stub(make_plan(folder, sizes.loop_rounds), folder, Watched())
    return watch.rows("loop alone")


def training(sizes: Sizes) -> list[Row]:
    """Rows about a whole training, in a worker of its own."""
    from dpfl.training import federated_averaging
    from dpfl.training import run as run_lib

    watch = _Watch()
    evaluator = federated_averaging.Evaluator.__call__

    def watched(self: Any, state: Any, is_due: bool = True) -> Any:
        watch()
        return evaluator(self, state, is_due)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = make_plan(folder, sizes.training_rounds)
        with run_lib.Run(plan, lambda sentence: None) as run:
            federated_averaging.Evaluator.__call__ = watched  # type: ignore[method-assign]
            try:
                run.train()
            finally:
                federated_averaging.Evaluator.__call__ = evaluator  # type: ignore[method-assign]
    return watch.rows("training")


ROWS: dict[str, Callable[[Sizes], list[Row]]] = {
    "calibration": calibrations,
    "factorization": optimal,
    "start_up": start_up,
    "long_run": lambda sizes: loop_alone(sizes) + training(sizes),
}
