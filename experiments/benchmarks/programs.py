# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Calibrations, factorizations, a start of `dpfl-train`, and long runs.

    settings = harness.settings(quick=True, repeats=2)
    rows = harness.measure("start_up", settings)

The functions are named as their groups in `harness.GROUPS`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpfl import factorization as fact
from dpfl import machine, mechanisms, planning

from . import harness, solvers
from .harness import Call, Row, Settings, row

_EPSILON, _DELTA = 8.0, 1e-8
# Population over the cohort size, and rounds, of calibrations.
_SAMPLED_OF, _ROUNDS = 100, 1000
_IMPORTS = ("tensorflow_federated", "dpfl")
_TRAIN = ("-m", "dpfl", "train", "--task=digits", "--rounds=1", "--noprogress")
_CLIENTS, _COHORT = 100, 10
# A training of a wide model, and the flags of mechanisms in it. The amount of noise
# does not affect its time and memory.
_WIDE = (
    *("-m", "dpfl", "train", "--task=synthetic", "--model=2nn", "--num_clients=40"),
    *("--cohort_size=4", "--examples_per_client=20", "--num_test_examples=20"),
    "--noprogress",
)
_OF_MECHANISMS = {row["row"]: row["flags"].split() for row in harness.read("wide")}
_SAID = re.compile(r"([0-9.]+) GB")
_WARM_UP = 0.02
_POLL_SECONDS = 0.05
OnRound = Callable[[int, int], None]


def calibration(settings: Settings) -> dict[str, Call]:
    """Times calibrations of one release and of sampled rounds.

    Messages grow with each repetition, which changes the grid, so that no cached result
    of the accountant is reused.
    """
    calls = {"calibrate Gaussian": _calibration(mechanisms.Gaussian(100, 1.0, 1.0), 1)}
    for n, bits, length in settings.messages:
        name = f"calibrate {n:.0e}, {bits} bits".replace("e+0", "e")
        plain = mechanisms.DistributedDiscreteGaussian(n, 1.0, 1.0, bits)
        calls[name] = _calibration(plain, length)
        helped = dataclasses.replace(plain, noise_source="helpers")
        sampled = mechanisms.PoissonSampling(_SAMPLED_OF * n, n, _ROUNDS)
        calls[f"{name}, sampled"] = _calibration(helped, length, sampled)
    return calls


def _calibration(mechanism: Any, length: int, participation: Any = None) -> Call:
    """A function that calibrates, with longer messages at each call."""
    lengths = itertools.count(length)
    return lambda: planning.calibrate(
        mechanism, participation, next(lengths), _EPSILON, _DELTA
    )


def factorization(settings: Settings) -> list[Row]:
    """Times the optimal factorization of prefix sums, to a relative gap of 1e-6.

    The plain fixed point, the baseline, is solved once: it takes minutes. The
    accelerated one is the median of the repeats. Each has a process of its own.
    """
    workload = fact.prefix_sum(settings.matrix_rounds)
    plain = solvers.measure(workload, accelerated=False, repeats=1)
    fast = solvers.measure(workload, repeats=settings.repeats)
    name, key = f"factorization T={settings.matrix_rounds}", "seconds_median"
    table: list[Row] = []
    for word, cost in (("plain", plain), ("accelerated", fast)):
        said = f"{cost.iterations} iterations"
        words = f"{name}, {word}"
        table.append(row(words, key, cost.seconds, *table, description=said))
    return [*table, row(f"{name}, memory", "bytes", fast.peak_bytes)]


def start_up(settings: Settings) -> dict[str, Call]:
    """Times the start of `dpfl-train`, a refused start, and imports.

    The time is from the command line to the exit: nearly all of it is imports, tracing
    and compiling.
    """

    def run(code: int, *words: str) -> None:
        command = [sys.executable, *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode != code:
            raise RuntimeError(f"{command} failed: {done.stderr.decode()}")

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder:
            run(0, *_TRAIN, *settings.train_flags, f"--output_dir={folder}/run")

    calls: dict[str, Call] = {
        f"start_up: import of {name}": functools.partial(run, 0, "-c", f"import {name}")
        for name in _IMPORTS
    }
    refused = functools.partial(run, 2, *_TRAIN, "--cohort_size=0")
    return {**calls, "start_up: dpfl-train": train, "start_up: a refusal": refused}


def parameters(settings: Settings) -> list[Row]:
    """Rows on `dpfl-train` with a wide model: a round, and memory over its estimate.

    The ratio is the largest memory of both processes over the command's estimate at its
    start.
    """
    return [
        _wide_run(name, settings.hidden_units, settings.wide_rounds)
        for name in _OF_MECHANISMS
    ]


def _wide_run(label: str, units: int, rounds: int) -> Row:
    mechanism = label.partition(",")[0]
    given = (f"--mechanism={mechanism}", *_OF_MECHANISMS[label])
    named = f"{label}, 2nn of {units} units"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sizes = (f"--hidden_units={units}", f"--rounds={rounds}")
        with open(folder / "said", "w", encoding="utf-8") as said:
            process = subprocess.Popen(
                [sys.executable, *_WIDE, *given, *sizes, f"--output_dir={folder}/run"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
            peak = _peak_of_all(process)
        text = (folder / "said").read_text()
        memory = [line for line in text.splitlines() if "memory" in line]
        if not memory or process.returncode:
            raise RuntimeError(f"dpfl-train failed for {named}: {text}")
        foretold = float(_SAID.findall(memory[0])[0]) * 1e9
        times = np.genfromtxt(folder / "run/times.csv", delimiter=",", names=True)
    seconds = float(np.median(times["exact_seconds"][1:]))
    of = {"name": "what the command said", "bytes": foretold}
    more = {"seconds_median": seconds, "repeats": len(times) - 1}
    return row(named, "bytes", peak, of, **more)


def _peak_of_all(process: subprocess.Popen[bytes]) -> int:
    """Waits for a process; returns the sum of its and its children's peak memory."""
    import psutil

    peaks: dict[int, int] = {}
    line: list[str] = []
    while process.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(process.pid)
            # A process that is ending has no command line any more.
            line = own.cmdline() or line
            for each in (own, *own.children(recursive=True)):
                if each != own and each.cmdline() in (line, []):
                    continue  # A fork of the program shares its memory: not counted.
                peak = machine.peak_bytes(each.pid) or 0
                peaks[each.pid] = max(peaks.get(each.pid, 0), peak)
        time.sleep(_POLL_SECONDS)
    return sum(peaks.values())


class StubEngine:
    """An engine that counts participations; its state is small."""

    def __init__(self, metric: str):
        """Initializes the engine.

        Args:
          metric: The name of the metric of evaluations, beside the loss.
        """
        self._metric = metric

    def initialize(self) -> np.ndarray:
        """Zeros."""
        return np.zeros(100, np.float32)

    def round(self, state: np.ndarray, clients: Sequence[int]) -> Any:
        """The sum, and made-up metrics that depend on it."""
        state = state + np.float32(sum(clients) / 1000)
        return types.SimpleNamespace(
            state=state,
            train={"loss": np.float32(state[0]), "accuracy": np.float32(0.5)},
            aggregator={"clients": np.int32(len(clients))},
            released=(),
        )

    def evaluate(self, state: np.ndarray, is_due: bool) -> dict[str, Any]:
        """Made-up metrics that depend on the state; None if none is due."""
        value = np.float32(1 / (1 + abs(state[0]))) if is_due else None
        return {"loss": value, self._metric: value}

    def weights(self, state: np.ndarray) -> list[np.ndarray]:
        """The state."""
        return [state]

    leaves = weights

    def from_leaves(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """The state."""
        return leaves[0]

    def save_model(self, state: np.ndarray, directory: pathlib.Path) -> None:
        """Writes nothing."""


def make_plan(folder: pathlib.Path, rounds: int, **changes: Any) -> Any:
    """The plan of a run, by default of a small task with a checkpoint after each round.

    Args:
      folder: Folder of the results.
      rounds: Number of rounds.
      **changes: Other settings of the run.
    """
    from dpfl.tasks import registry
    from dpfl.training import config, plan

    few = {"examples_per_client": 2, "batch_size": 2, "num_test_examples": 2}
    task_config = registry.make_config(
        "synthetic", model="small_cnn", num_clients=_CLIENTS, **few
    )
    settings: dict[str, Any] = {
        "task_config": task_config,
        "mechanism": "gaussian",
        "cohort_size": _COHORT,
        "noise_multiplier": 1.0,
        "client_lr": 0.001,
        "server_lr": 0.001,
        "accounting_method": "rdp",
        "checkpoint_every": 1,
        "eval_every": 10,
        **changes,
    }
    return plan.make_plan(
        config.RunConfig(
            task="synthetic",
            mechanism_options={},
            output_dir=folder,
            rounds=rounds,
            seed=1,
            progress=False,
            **settings,
        )
    )


def run_stub(
    plan: Any,
    folder: pathlib.Path,
    on_round: OnRound = lambda done, of: None,
    engine: Any = None,
) -> Any:
    """Runs the loop of a plan around an engine.

    Args:
      plan: The plan.
      folder: Folder of checkpoints and metrics.
      on_round: Called with the number of rounds done and in all.
      engine: The engine; by default one that computes nothing.

    Returns:
      The progress at the end, a `dpfl.training.checkpoint.Progress`.
    """
    from dpfl.training import checkpoint, loop, record

    def say(sentence: Any) -> None:
        del sentence

    own = loop.Loop(
        plan,
        plan.config.seed,
        engine=engine or StubEngine(plan.task_entry.metric.name),
        store=checkpoint.CheckpointStore(folder / "checkpoints", say=say),
        record=record.MetricsFiles(folder),
        publish=say,
        say=say,
        on_round=on_round,
    )
    return own.run()[1]


def long_run(settings: Settings) -> list[Row]:
    """Rows on whether a late round costs more time or memory than an early one.

    Two runs have a checkpoint after every round: the training loop with real
    checkpoints and files of metrics around a process that computes nothing, so that
    TFF's cost does not hide ours; and a whole training of a small network in its own
    worker.
    """
    from dpfl.training import run as run_lib

    def training(plan: Any, folder: pathlib.Path, on_round: OnRound) -> None:
        with run_lib.Run(plan, lambda sentence: None, on_round=on_round) as run:
            run.train()

    return [
        *_late_rounds("loop alone", run_stub, settings.loop_rounds),
        *_late_rounds("training", training, settings.training_rounds),
    ]


def _late_rounds(
    name: str, run: Callable[[Any, pathlib.Path, OnRound], Any], rounds: int
) -> list[Row]:
    """One row with the time and one with the resident memory of this process.

    They are medians of the last tenth of the rounds, and ratios to the first. The very
    first rounds, which compile and fill buffers, are left out.
    """
    import psutil

    own, at, memory = psutil.Process(), [], []

    def on_round(done: int, of: int) -> None:
        at.append(time.perf_counter())
        memory.append(own.memory_info().rss)

    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        run(make_plan(folder, rounds), folder, on_round)
    skipped = int(rounds * _WARM_UP)
    tenth = max(1, (rounds - skipped) // 10)

    def late(what: str, key: str, values: Sequence[float], description: str) -> Row:
        early = statistics.median(values[skipped : skipped + tenth])
        first = {"name": "first tenth", key: early}
        last = statistics.median(values[-tenth:])
        more = {"repeats": rounds, "description": description}
        return row(f"{name}: {what}", key, last, first, **more)

    said = f"last tenth of {rounds} rounds"
    return [
        late("a round", "seconds_median", np.diff(at).tolist(), said),
        late("memory", "bytes", memory[1:], "of this process, last tenth"),
    ]
