# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""What a run of the medium scale takes: processor time and time on the clock.

  python -m tools.run_costs docs/results/run_costs.csv --data_dir=FOLDER

Runs `dpfl-train` by itself, one run after another, with the flags that
`experiments.papers.medium` has for figures and the Gaussian mechanism at epsilon 8, of
each setting with each seed. The folder has the images of MNIST. Processor time is that
of the system and the user, of the program and of all that it started: of a worker that
outlives it too, which is waited for. Measure on a machine that does nothing else; it
takes half an hour of two processors.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import flag_files
from experiments.papers import medium, result_rows

# <linux/prctl.h>: whoever loses its parent becomes a child of this process.
_SUBREAPER = 36
_SHARED = {"mechanism": "gaussian", "epsilon": 8, "cohort_size": 100}
# By the name of the setting, which is that of `--model`, if it is given, or the task.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "cnn": {**medium.FLAGS[medium.MNIST], **_SHARED},
    "small_cnn": {**medium.FLAGS[medium.MNIST], **_SHARED, "model": "small_cnn"},
    "docs": {**medium.FLAGS[medium.DOCS], **_SHARED},
}


class Cost(NamedTuple):
    """What one run took, a row of the table."""

    setting: str
    task: str
    cohort_size: int
    rounds: int
    seed: int
    processor_seconds: float
    wall_seconds: float


def adopt_orphans() -> None:
    """Makes this process the parent of what its programs leave behind.

    Raises:
      OSError: The system cannot do that.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(command: Sequence[str], log: Path) -> tuple[float, float]:
    """Runs a program to its end, and to that of all that it started.

    `adopt_orphans` is to be called before, and this process must have no other child.

    Args:
      command: The program and its arguments.
      log: Where its output goes.

    Returns:
      Seconds of a processor, and seconds on the clock until the program ended.

    Raises:
      RuntimeError: It did not succeed.
    """
    before, begun = _children_seconds(), time.perf_counter()
    # A file and not a pipe: a worker that outlives the program would hold it open.
    with log.open("wb") as out:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ).returncode
    wall = time.perf_counter() - begun
    if code:
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        words = f"{' '.join(command)} must succeed, found exit code {code}"
        raise RuntimeError(f"{words}, after it said\n{said}")
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return _children_seconds() - before, wall


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """Returns words of a command line; a flag file is found by its name."""
    given = dict(flags)
    if "flagfile" in given:
        given["flagfile"] = flag_files.path(given["flagfile"])
    return [f"--{name}={value}" for name, value in given.items()]


def train(flags: Mapping[str, Any], folder: Path) -> tuple[float, float]:
    """Runs `dpfl-train` to its end; see `measure`.

    Args:
      flags: The run's.
      folder: Gets the run's results, as `run`, and what it says, as `log`.
    """
    given = {**flags, "output_dir": folder / "run", "progress": False}
    program = [sys.executable, "-m", "experiments.train"]
    return measure([*program, *arguments(given)], folder / "log")


def costs(
    settings: Sequence[str], seeds: Sequence[int], more: Mapping[str, Any]
) -> Iterator[Cost]:
    """Yields what each run took.

    Args:
      settings: Keys of `SETTINGS`.
      seeds: Of the runs of each setting.
      more: Flags that all runs are given besides.
    """
    adopt_orphans()
    for setting in settings:
        flags = {**SETTINGS[setting], **more}
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                taken = train({**flags, "seed": seed}, Path(folder))
            yield Cost(
                setting,
                flags.get("task", "docs"),
                int(flags["cohort_size"]),
                int(flags["rounds"]),
                seed,
                *(round(seconds, 1) for seconds in taken),
            )


def write(table: Path, found: Sequence[Any]) -> None:
    """Writes what there is by now, and says its last row.

    Args:
      table: The CSV file.
      found: Named tuples of one kind, its rows.
    """
    print(*found[-1], flush=True)
    names = found[0]._fields
    result_rows.write_columns(
        table, {n: [getattr(one, n) for one in found] for n in names}
    )


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="the CSV file to write")
    parser.add_argument("--data_dir", help="the folder with the images of MNIST")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default=",".join(map(str, medium.SEEDS)))
    parser.add_argument("--rounds", type=int, help="in place of those of the figures")
    options = parser.parse_args(argv)
    given = {"data_dir": options.data_dir, "rounds": options.rounds}
    more = {name: value for name, value in given.items() if value is not None}
    found = []
    seeds = [int(seed) for seed in options.seeds.split(",")]
    for cost in costs(options.settings.split(","), seeds, more):
        found.append(cost)
        write(options.table, found)


if __name__ == "__main__":
    main(sys.argv[1:])
