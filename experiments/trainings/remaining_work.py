# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""The number of concurrent runs of a figure, and its remaining work.

    machine = remaining_work.this_machine()
    jobs = remaining_work.jobs(machine, runs=6, rates={})
    groups = remaining_work.concurrency(machine, jobs)

Without measured rates the memory of a run is guessed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from dpfl import files
from dpfl import machine as machine_lib

from .sweep import Training, rounds_done

# A run's assumed memory before it is measured: F-EMNIST's at a cohort of 100.
_GUESSED_BYTES = 2_500_000_000
# Share of the memory that runs may fill.
_PART_OF_MEMORY = 0.8
# Number of checkpoints kept, as in `RunConfig.keep_checkpoints`.
_CHECKPOINTS = 3


class Machine(NamedTuple):
    """The processors that runs may use, and the bytes of free memory."""

    processors: int
    memory: int


@dataclasses.dataclass(frozen=True)
class Rate:
    """The measured cost of a run of a problem; see `Training.problem`.

    These are the seconds of a round of `cohort_size` clients in `concurrency` groups at
    a time, the bytes of memory of its processes, those of a checkpoint, and the seconds
    before the first round of a run with other settings.
    """

    seconds: float
    cohort_size: int
    concurrency: int
    memory: int
    checkpoint: int
    start: float = 0.0


Rates = Mapping[str, Rate]


def this_machine() -> Machine:
    """The machine's current state, within the limits of a container."""
    free = machine_lib.free_memory()
    if free is None:
        free = psutil.virtual_memory().available
    return Machine(machine_lib.processors(), free)


def jobs(machine: Machine, runs: int, rates: Rates) -> int:
    """The number of concurrent runs that processors and memory allow.

    Args:
      machine: The machine before any run began.
      runs: Number of runs.
      rates: Measured costs by problem; empty if nothing is measured yet.
    """
    each = max((rate.memory for rate in rates.values()), default=_GUESSED_BYTES)
    room = int(_PART_OF_MEMORY * machine.memory / each)
    return max(1, min(runs, machine.processors, room))


def concurrency(machine: Machine, at_a_time: int) -> int:
    """The number of concurrent groups of clients in each of several runs."""
    return max(1, machine.processors // at_a_time)


def sentence(
    left: Sequence[Training],
    of: Sequence[Training],
    folder: Path,
    rates: Rates,
    at_a_time: int,
    groups: int,
) -> str:
    """A sentence on the remaining runs of a figure and their cost.

    Args:
      left: The remaining runs.
      of: All runs.
      folder: Parent of the runs' folders.
      rates: Measured costs by problem.
      at_a_time: Number of concurrent runs.
      groups: Number of concurrent groups of clients in a run.
    """
    rounds, seconds = 0, []
    for work in left:
        own = max(0, work.rounds - rounds_done(folder / work.folder))
        rate = rates[work.problem]
        clients = int(work.all_flags["cohort_size"]) / rate.cohort_size
        shares = rate.concurrency / groups if work.has_groups else 1
        seconds.append(own * rate.seconds * clients * shares)
        rounds += own
    # Runs that differ in their seed alone start together.
    starts = {work.all_but_seed: rates[work.problem].start for work in left}
    # A single run is not divided, so the longest is a lower bound.
    hours = max([(sum(seconds) + sum(starts.values())) / at_a_time, *seconds]) / 3600
    memory = at_a_time * max(rates[work.problem].memory for work in left)
    disk = sum(_CHECKPOINTS * rates[work.problem].checkpoint for work in left)
    words = f" on {groups} group{'s' if groups > 1 else ''} of clients each"
    return (
        f"{len(left)} of {len(of)} runs and {rounds} of "
        f"{sum(work.rounds for work in of)} rounds are left, about {_time(hours)}, "
        f"{memory / 1e9:.1f} GB of memory and {disk / 1e9:.1f} GB of disk, with "
        f"{at_a_time} at a time{words if any(w.has_groups for w in left) else ''}"
    )


def load(path: Path, machine: Machine) -> dict[str, Rate]:
    """Loads the costs that were measured on such a machine, by problem."""
    try:
        content = files.read_json(path)
        if content["processors"] != machine.processors:
            return {}
        rates = {task: Rate(**fields) for task, fields in content["tasks"].items()}
        are_finite = [
            math.isfinite(sum(vars(rate).values())) for rate in rates.values()
        ]
        return rates if all(are_finite) else {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # The file is missing, or of another version.
        return {}


def save(path: Path, machine: Machine, rates: Rates) -> None:
    """Saves costs for the next call.

    Args:
      path: Path of the file.
      machine: The machine.
      rates: Measured costs by problem.
    """
    tasks = {task: dataclasses.asdict(rate) for task, rate in rates.items()}
    files.write_json(path, {"processors": machine.processors, "tasks": tasks})


def checkpoint_bytes(folder: Path) -> int:
    """The size of a run's largest checkpoint; 0 if it has none."""
    stats = [p.stat() for p in (folder / "checkpoints").glob("*") if p.is_file()]
    return max((each.st_size for each in stats), default=0)


def _time(hours: float) -> str:
    for unit, size in (("months", 730.0), ("days", 24.0), ("h", 1.0)):
        if hours >= 2 * size or (unit == "h" and hours >= 1):
            return f"{hours / size:.1f} {unit}"
    return f"{max(1, round(60 * hours))} min"
