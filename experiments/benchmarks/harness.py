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
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np

from dpfl import files, mechanisms

from .. import tables

Row = dict[str, Any]
_RATIOS = ("ratio", "cpu_ratio")
Call = Callable[[], Any]


# Values by name of `SIZES`, and of the arguments of `settings`.
Settings = types.SimpleNamespace


def read(name: str) -> list[dict[str, str]]:
    """The rows of a table beside this file."""
    return files.read_csv(Path(__file__).with_name(f"{name}.csv"))


class Group(NamedTuple):
    """Rows that are measured together.

    The module has a function with the group's name, of `Settings`. It returns rows, or
    the functions to be compared by name, of which the first is the baseline.
    """

    module: str
    most_repeats: int = 1000
    warm_ups: int = 1


# From a file, so that names are checked before TensorFlow is imported.
GROUPS = {
    row["name"]: Group(row["module"], int(row["most_repeats"]), int(row["warm_ups"]))
    for row in read("groups")
}
# Groups measured after a round if no rows are asked for.
AGGREGATORS = ("aggregation", "rotations", "masks")
# Rows of the group "rounds", which are asked for one by one.
MEMORY_ROWS = ("memory_python", "memory_worker")
ROUND_ROWS = (
    *("plain", "tff_default", "tff_iterator", "none", "gaussian", "csgm"),
    *MEMORY_ROWS,
)
# The sizes at which dpfl's cost is judged, and those of --quick.
SIZES = {
    row["name"]: (tables.value(row["judged"]), tables.value(row["quick"]))
    for row in read("sizes")
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


def mechanisms_of(group: str, settings: Settings) -> dict[str, mechanisms.Mechanism]:
    """The mechanisms of a group by their rows' names, as `mechanisms.csv` has them.

    Names of sizes are in braces there.
    """
    made = {}
    release: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    for row in tables.where(read("mechanisms"), group=group):
        kind: Any = mechanisms.MECHANISMS[row["mechanism"]]
        own = tables.options(row["options"].format(**vars(settings)))
        own |= release if kind.is_private else {}
        made[row["row"]] = kind(cohort_size=settings.clients, **own)
    return made


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
