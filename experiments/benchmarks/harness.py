# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The groups of rows, their sizes, and the clock.

    rows = harness.measure("calibration", harness.settings(quick=True, repeats=2))
    rows = harness.compare({"plain": steps, "mean": a_round}, repeats=9)

Compared functions take turns within one run, so that other load on the machine affects
all of them alike; a row's ratio is the median over turns of the ratios to its baseline.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

Row = dict[str, Any]
_RATIOS = ("ratio", "cpu_ratio")
Call = Callable[[], Any]


# Values by name of `SIZES`, and of the arguments of `settings`.
Settings = types.SimpleNamespace


class Group(NamedTuple):
    """Rows that are measured together.

    The module has a function with the group's name, of `Settings`. It returns rows, or
    the functions to be compared by name, of which the first is the baseline.
    """

    module: str
    most_repeats: int = 1000
    warm_ups: int = 1


# Names are listed here so that they are checked before TensorFlow is imported.
GROUPS = {
    "calibration": Group("programs", 3),
    "factorization": Group("programs", 3),
    "start_up": Group("programs", 5),
    "long_run": Group("programs"),
    "parameters": Group("programs"),
    "aggregation": Group("vectors"),
    "rotations": Group("vectors"),
    "masks": Group("vectors"),
    "sketch_aggregation": Group("vectors", 3),
    "jax_aggregation": Group("jax_rounds"),
    "sketches": Group("vectors"),
    "recurrent": Group("vectors"),
    "noise_draws": Group("noise"),
    "noise_dense": Group("noise"),
    "noise_recurrences": Group("noise", warm_ups=2),
    "noise_bands": Group("noise", warm_ups=2),
    "dome_rounds": Group("vectors", 5),
    "digits_rounds": Group("rounds", warm_ups=2),
    "cohorts": Group("rounds"),
    "sizes": Group("rounds"),
}
# Groups measured after a round if no rows are asked for.
AGGREGATORS = ("aggregation", "rotations", "masks")
# Rows of the group "rounds", which are asked for one by one.
MEMORY_ROWS = ("memory_python", "memory_worker")
ROUND_ROWS = (
    *("plain", "tff_default", "tff_iterator", "mean", "none", "gaussian", "csgm"),
    *MEMORY_ROWS,
)
# The sizes at which dpfl's cost is judged, and those of --quick.
SIZES = {
    # Sizes of an aggregation: length of a client's vector, clients, and clients with
    # DOME.
    "dimension": (1_000_000, 1000),
    "clients": (100, 3),
    "dome_clients": (50, 3),
    # Parameters of the model behind sketches and streams (a multiple of the highest
    # rate of 16 rows if there are few), and numbers k of DOME's sketches.
    "model": (1_018_174, 3200),
    "sketch_sizes": ((16, 64, 256), (4, 8)),
    # T of a matrix, and standard deviations of drawn integers, of one to three tables.
    "matrix_rounds": (2048, 64),
    "noise_bits": ((9, 18, 22), (9,)),
    # Clients of a round and their examples, and clients of rounds of several sizes.
    "cohort": (50, 2),
    "examples": (100, 4),
    "cohorts": ((10, 100, 1000), (2, 3)),
    # Options of the task `synthetic`.
    "models": (("small_cnn", "2nn", "cnn"), ("small_cnn",)),
    # Tokens, length, width and units of a recurrent model, Stack Overflow's.
    "recurrent_sizes": ((10_004, 20, 96, 670), (16, 3, 4, 5)),
    # Units of wide models: 10,002,767 parameters, and 99,980,350.
    "hidden_units": ((2767, 9584), (5, 6)),
    "wide_rounds": (20, 3),
    # Rounds after which a worker's memory is looked at again.
    "late_round": (60, 3),
    # Clients, bits and coordinates of calibrations.
    "messages": (
        (
            *((100, 7, 2**20), (10_000, 13, 1_000_000)),
            *((100_000, 18, 1_000_000), (1_000_000, 22, 10_000_000)),
        ),
        ((100, 7, 10_000),),
    ),
    # Rounds of a long run in which nothing is computed, and of a long training.
    "loop_rounds": (10_000, 200),
    "training_rounds": (500, 20),
    # Calls of each compared function before the first turn.
    "most_warm_ups": (2, 0),
    # Options of the program whose start is measured.
    "train_flags": ((), ("--num_clients=10", "--cohort_size=2", "--epsilon=100")),
}


def settings(quick: bool, repeats: int, **more: Any) -> Settings:
    """The sizes and repeats of a measurement.

    Args:
      quick: Whether sizes are small.
      repeats: Number of turns of each compared function.
      **more: Other sizes, `round_rows` to measure only some rows of a round, and TFF's
        `worker` if it is already running.
    """
    sizes = {name: pair[quick] for name, pair in SIZES.items()}
    rest = {"repeats": repeats, "round_rows": ROUND_ROWS, "worker": None}
    return Settings(**{**sizes, **rest, **more})


def measure(name: str, settings: Settings) -> list[Row]:
    """Measures a group of `GROUPS`, or "rounds"."""
    group = GROUPS.get(name, Group("rounds"))
    repeats = min(group.most_repeats, settings.repeats)
    own = copy.copy(settings)
    own.repeats = repeats
    with contextlib.ExitStack() as stack:
        if group.module in ("vectors", "noise", "rounds") and own.worker is None:
            import tensorflow_federated as tff

            from dpfl.engines.tff import local_worker as worker_lib

            # Clients of rounds are in groups, as in `dpfl-train`; others have TFF's.
            is_grouped = group.module == "rounds"
            own.worker = stack.enter_context(worker_lib.start(groups=is_grouped))
            tff.framework.set_default_context(own.worker.context(secure_sums=True))
        module = importlib.import_module(f".{group.module}", __package__)
        result = getattr(module, name)(own)
        if not isinstance(result, list):
            warm_ups = min(group.warm_ups, own.most_warm_ups)
            result = compare(result, repeats, warm_ups=warm_ups)
    return result


def compare(
    functions: Mapping[str, Call],
    repeats: int,
    baselines: Optional[Mapping[str, Optional[str]]] = None,
    warm_ups: int = 1,
    processor_seconds: Optional[Callable[[], float]] = None,
) -> list[Row]:
    """Times functions in turns; returns a row for each function.

    A ratio is None without a baseline, or if the baseline's time is below the clock's
    resolution.

    Args:
      functions: The functions by their row's name.
      repeats: Number of turns.
      baselines: Name of each function's baseline; by default the first function.
      warm_ups: Calls of each function before the first turn, which do not count.
      processor_seconds: The processor time so far; by default `cpu_seconds`.
    """
    for function in functions.values():
        for _ in range(warm_ups):
            function()
    clocks = {"": time.perf_counter, "cpu_": processor_seconds or cpu_seconds}
    taken: dict[str, dict[str, list[float]]] = {
        clock: {name: [] for name in functions} for clock in clocks
    }
    for _ in range(repeats):
        for name, function in functions.items():
            begin = {clock: read() for clock, read in clocks.items()}
            function()
            for clock, read in clocks.items():
                taken[clock][name].append(read() - begin[clock])
    rows = []
    for name in functions:
        other = next(iter(functions)) if baselines is None else baselines[name]
        timed: Row = {"name": name, "repeats": repeats, "baseline": other}
        for clock, seconds in taken.items():
            timed[f"{clock}seconds_median"] = float(np.median(seconds[name]))
            timed[f"{clock}ratio"] = None
            if other is not None and all(seconds.get(other, [0.0])):
                ratios = np.divide(seconds[name], seconds[other])
                timed[f"{clock}ratio"] = float(np.median(ratios))
        rows.append(timed)
    return rows


def over_processes(results: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of several processes, with medians and ranges over them.

    Raises:
      ValueError: If the processes measured different rows.
    """
    names = [[row["name"] for row in rows] for rows in results]
    if any(own != names[0] for own in names):
        raise ValueError(f"processes must measure the same rows, found {names}")
    rows = []
    for each in zip(*results):
        merged: Row = {**each[0], "processes": len(each)}
        for key in ("seconds_median", "cpu_seconds_median", "bytes", *_RATIOS):
            if each[0].get(key) is not None:
                merged[key] = float(np.median([row[key] for row in each]))
        key = "seconds_median" if "seconds_median" in merged else "bytes"
        ends = {key: ("least", "most"), "ratio": ("low", "high")}
        for name, (least, most) in ends.items():
            if merged.get(name) is not None:
                values = [row[name] for row in each]
                merged.update({least: min(values), most: max(values)})
        rows.append(merged)
    return rows


def cpu_seconds() -> float:
    """The processor time so far of this process and of its workers.

    Programs that this process waited for are included. Other load on the machine
    disturbs it less than wall time.
    """
    import psutil

    own = psutil.Process()
    every = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    ended = own.cpu_times()
    alive = sum(each.user + each.system for each in every)
    return alive + ended.children_user + ended.children_system


def row(
    name: str, key: str, value: float, of: Optional[Row] = None, **more: Any
) -> Row:
    """A row of one "seconds_median" or "bytes", and its ratio to another such row.

    Args:
      name: Name of the row.
      key: Column of the value.
      value: The value.
      of: The baseline's row; None for no ratio.
      **more: Other columns.
    """
    baseline, ratio = (None, None) if of is None else (of["name"], value / of[key])
    return {"name": name, key: value, "baseline": baseline, "ratio": ratio, **more}
