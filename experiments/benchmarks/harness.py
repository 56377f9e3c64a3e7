# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The groups of rows, the sizes at which they are measured, and the clock.

Compared functions take turns within one run, so that what else the machine does weighs
on all of them alike; a row's ratio is the median of the ratios to its baseline, turn by
turn.
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
import psutil

Row = dict[str, Any]
_RATIOS = ("ratio", "cpu_ratio")
Call = Callable[[], Any]


# Values by name of `SIZES`, and of the arguments of `settings`.
Settings = types.SimpleNamespace


class Group(NamedTuple):
    """Rows that are measured together.

    In the module there is a function of the group's name, of `Settings`. It returns the
    functions to be compared by name, of which the first is the baseline, or rows.
    """

    module: str
    most_repeats: int = 1000
    warm_ups: int = 1


# They stand here so that names are checked before TensorFlow is imported.
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
    "sketches": Group("vectors"),
    "recurrent": Group("vectors"),
    "noise_draws": Group("vectors"),
    "noise_dense": Group("vectors"),
    "noise_recurrences": Group("vectors", warm_ups=2),
    "noise_bands": Group("vectors", warm_ups=2),
    "dome_rounds": Group("vectors", 5),
    "digits_rounds": Group("rounds", warm_ups=2),
    "cohorts": Group("rounds"),
    "sizes": Group("rounds"),
    "workers": Group("rounds"),
}
# Measured where no rows are asked for, after a round.
AGGREGATORS = ("aggregation", "rotations", "masks")
# Rows of the group "rounds", which are asked for one by one.
MEMORY_ROWS = ("memory_python", "memory_worker")
ROUND_ROWS = (
    *("plain", "tff_default", "tff_iterator", "mean", "none", "gaussian", "csgm"),
    *MEMORY_ROWS,
)
# The size at which dpfl's cost is judged, and that of --quick.
SIZES = {
    # Of an aggregation: the length of a client's vector, and clients, some by DOME.
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
    # Of the task `synthetic`.
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
    # Of the program whose start is measured.
    "train_flags": ((), ("--num_clients=10", "--cohort_size=2", "--epsilon=100")),
}


def settings(quick: bool, repeats: int, **more: Any) -> Settings:
    """What is measured, and how often.

    Args:
      repeats: Turns that each compared function gets.
      **more: Sizes that are others, `round_rows`, if not all of a round are measured,
        and TFF's `worker`, if it is not to be started.
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
        if group.module != "programs" and own.worker is None:
            import tensorflow_federated as tff

            from dpfl.training import local_worker as worker_lib

            # Clients of rounds are in groups, as in `dpfl-train`; others have TFF's.
            is_grouped = group.module == "rounds"
            own.worker = stack.enter_context(worker_lib.start(groups=is_grouped))
            tff.framework.set_default_context(own.worker.context(secure_sums=True))
        module = importlib.import_module(f".{group.module}", __package__)
        found = getattr(module, name)(own)
        if not isinstance(found, list):
            warm_ups = min(group.warm_ups, own.most_warm_ups)
            found = compare(found, repeats, warm_ups=warm_ups)
    return found


def compare(
    functions: Mapping[str, Call],
    repeats: int,
    baselines: Optional[Mapping[str, Optional[str]]] = None,
    warm_ups: int = 1,
) -> list[Row]:
    """Times functions in turns; a row a function.

    A ratio is None where there is no baseline, or where the clock saw nothing of it.

    Args:
      baselines: Name of the one that each is compared with; by default the first.
      warm_ups: Calls of each before the first turn, which do not count.
    """
    for function in functions.values():
        for _ in range(warm_ups):
            function()
    clocks = {"": time.perf_counter, "cpu_": cpu_seconds}
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
        found: Row = {"name": name, "repeats": repeats, "baseline": other}
        for clock, seconds in taken.items():
            found[f"{clock}seconds_median"] = float(np.median(seconds[name]))
            found[f"{clock}ratio"] = None
            if other is not None and all(seconds.get(other, [0.0])):
                ratios = np.divide(seconds[name], seconds[other])
                found[f"{clock}ratio"] = float(np.median(ratios))
        rows.append(found)
    return rows


def over_processes(found: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows that processes measured, each with medians and ranges over them.

    Raises:
      ValueError: If they measured other rows.
    """
    names = [[row["name"] for row in rows] for rows in found]
    if any(own != names[0] for own in names):
        raise ValueError(f"processes must measure the same rows, found {names}")
    rows = []
    for each in zip(*found):
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

    Programs that it waited for count too. Others on the machine disturb it less than
    they do the clock on the wall.
    """
    own = psutil.Process()
    every = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    ended = own.cpu_times()
    alive = sum(each.user + each.system for each in every)
    return alive + ended.children_user + ended.children_system


def row(
    name: str, key: str, value: float, of: Optional[Row] = None, **more: Any
) -> Row:
    """A row of one "seconds_median" or "bytes", and its ratio to another such row."""
    baseline, ratio = (None, None) if of is None else (of["name"], value / of[key])
    return {"name": name, key: value, "baseline": baseline, "ratio": ratio, **more}
