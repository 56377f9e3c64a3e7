# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Disturbs trainings in all the ways that are promised to do no harm.

  python -m tools.soak --seed=1
  python -m tools.soak --seed=1 --mechanisms=gaussian --kills=5 --signals=0 --lines=0
  python -m tools.soak --only --load=20 --stops=3 --tests=tests/training

SIGKILL at random moments, over every mechanism, and of workers that share a round;
every signal that can be caught, and a closed stdout; disks that are full at every size;
updates that no honest client sends; command lines that no user would write. Whatever
went on is compared, bit by bit, with a training that nobody disturbed. With --load and
--stops the tests run beside busy processes, and in one that is stopped for a minute.
Prints a table; the exit code is 1 after any fault.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from tools.soaks import disks, kills, runs, slowness, vectors, worker_kills

_ROOT = pathlib.Path(__file__).resolve().parent.parent
# How much of each kind of trouble there is by default.
_COUNTS = {
    **dict(kills=200, loop_kills=500, signals=64, full_disks=25, disk_sizes=1),
    **dict(worker_kills=100, vectors=10_000, lines=5_000),
    # The tests, for which most people have no hours: busy processes, and stops.
    **dict(load=0, stops=0),
}


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Returns what the command line says; 0 leaves a kind of trouble out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", action="store_true", help="what is asked for alone")
    for name, count in _COUNTS.items():
        default = 0 if "--only" in argv else count
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tests", default="tests", help="what --load and --stops run")
    parser.add_argument("--mechanisms", default=",".join(runs.CASES))
    parser.add_argument(
        "--minutes", type=float, default=600, help="no new kill after so many"
    )
    return parser.parse_args(argv)


def fuzz(seed: int, lines: int) -> kills.Outcome:
    """Runs the fuzzer of command lines, in a process of its own.

    Args:
      seed: Its seed.
      lines: How many command lines.
    """
    command = [sys.executable, "-m", "tools.fuzz", f"--seed={seed}", f"--lines={lines}"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    # A line of its table: binary, lines, seconds, exit codes; a fault is one of JSON.
    rows = [line.split() for line in done.stdout.splitlines()]
    count = sum(int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit())
    faults = [line for line in done.stderr.splitlines() if line.startswith("{")]
    if done.returncode and not faults:
        faults = [f"exit code {done.returncode}: {done.stderr[-500:]}"]
    return kills.Outcome(count, faults)


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    asked = arguments(argv)
    end = time.monotonic() + 60 * asked.minutes
    print(f"seed {asked.seed}", flush=True)
    runs.prepare()
    # Not a TemporaryDirectory: every fork would remove it at its end.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="soak"))
    try:
        return _soak(asked, folder, end)
    finally:
        shutil.rmtree(folder)


def _soak(asked: argparse.Namespace, folder: pathlib.Path, end: float) -> int:
    """Runs the parts, and prints a row about each; returns the exit code."""
    faults: list[str] = []
    seed = asked.seed
    names = asked.mechanisms.split(",")
    parts: list[tuple[str, int, Callable[[], kills.Outcome]]] = [
        (
            "full disks, a file system of every size",
            asked.disk_sizes,
            lambda: disks.full_at_every_page(folder / "sizes"),
        ),
        (
            "full disks during a training",
            asked.full_disks,
            lambda: disks.full_while_training(seed, asked.full_disks, folder),
        ),
        (
            "SIGKILLs of the loop around a process that computes nothing",
            asked.loop_kills,
            lambda: kills.kill_loops(asked.loop_kills, seed, folder),
        ),
        (
            "signals, each of those that can be caught",
            asked.signals,
            lambda: kills.send_signals(seed, asked.signals, folder),
        ),
        (
            f"SIGKILLs over {len(names)} mechanisms",
            asked.kills,
            lambda: kills.kill_all(names, asked.kills, seed, folder, end),
        ),
        (
            "SIGKILLs of workers that share a round",
            asked.worker_kills,
            lambda: kills.Outcome(
                *runs.fork_call(worker_kills.kill_in_rounds, seed, asked.worker_kills)
            ),
        ),
        (
            "hostile updates through every codec",
            asked.vectors,
            # In a fork: TensorFlow may compute nothing here.
            lambda: kills.Outcome(
                *runs.fork_call(vectors.hostile, seed, asked.vectors)
            ),
        ),
        ("command lines", asked.lines, lambda: fuzz(seed, asked.lines)),
        (
            f"tests beside {asked.load} busy processes",
            asked.load,
            lambda: slowness.under_load(asked.tests.split(), asked.load),
        ),
        (
            "tests in a process that is stopped for a minute",
            asked.stops,
            lambda: slowness.stopped(asked.tests.split(), seed, asked.stops),
        ),
    ]
    for title, wanted, part in parts:
        if not wanted:
            continue
        begun = time.monotonic()
        found = part()
        seconds = time.monotonic() - begun
        row = f"| {title} | {found.count} | {len(found.faults)} | {seconds:.0f} |"
        print(row, flush=True)
        for fault in found.faults:
            print(f"    {fault}", flush=True)
        faults += found.faults
    left = runs.left_behind()
    print(f"| processes left behind | | {len(left)} | |", flush=True)
    return int(bool(faults or left))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
