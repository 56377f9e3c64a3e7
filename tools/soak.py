# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Disturbs trainings in all ways that must do no harm.

  python -m tools.soak --seed=1
  python -m tools.soak --seed=1 --mechanisms=gaussian --kills=5 --signals=0 --lines=0

  python -m tools.soak --seed=1 --only --kills=30   # in an environment with JAX, of JAX

SIGKILL at random moments, over every mechanism; every signal that can be caught;
command lines that no user would write. Every resumed training is compared, bit by bit,
with an undisturbed one. It prints a table; the exit code is 1 after any fault.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from dpfl import mechanisms
from tools.soaks import kills, runs

Part = Callable[[int, argparse.Namespace, pathlib.Path], kills.Outcome]


def run_lines(count: int, seed: int) -> kills.Outcome:
    """Runs the fuzzer of command lines."""
    # Environments with JAX have no hypothesis.
    from tools import fuzz

    share = -(-count // len(fuzz.BASES))
    said = ""
    for name in fuzz.BASES:
        command = [sys.executable, "-m", "tools.fuzz", name]
        command += [f"--lines={share}", f"--seed={seed}"]
        # Flags of one binary are in the way of another's.
        said += subprocess.check_output(command, text=True)
    results = [json.loads(x) for x in said.splitlines() if x.startswith("{")]
    return len(results), [json.dumps(each) for each in results if each["fault"]]


# Kinds of trouble, by the flag of their amount: the default amount, a description, and
# a function of the amount, the other flags and a folder.
PARTS: dict[str, tuple[int, str, Part]] = {
    "loop_kills": (
        500,
        "SIGKILLs of the loop around a process that computes nothing",
        lambda n, asked, folder: kills.disturb(
            kills.loops(), [signal.SIGKILL] * n, asked.seed, folder
        ),
    ),
    "signals": (
        64,
        "signals, each of those that can be caught",
        lambda n, asked, folder: kills.disturb(
            kills.trainings(["gaussian"]), kills.CATCHABLE[:n], asked.seed, folder
        ),
    ),
    "kills": (
        200,
        "SIGKILLs over the mechanisms",
        lambda n, asked, folder: kills.disturb(
            kills.trainings(asked.mechanisms.split(",")),
            *([signal.SIGKILL] * n, asked.seed, folder),
        ),
    ),
    "lines": (5_000, "command lines", lambda n, asked, _: run_lines(n, asked.seed)),
}


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the command line; 0 turns a kind of trouble off."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", action="store_true", help="what is asked for alone")
    for name, (count, title, _) in PARTS.items():
        default = 0 if "--only" in argv else count
        parser.add_argument(f"--{name}", type=int, default=default, help=title)
    parser.add_argument("--mechanisms", default=",".join(mechanisms.TEST_CONFIGS))
    asked = parser.parse_args(argv)
    for name in set(asked.mechanisms.split(",")) - set(mechanisms.TEST_CONFIGS):
        known = ", ".join(mechanisms.TEST_CONFIGS)
        parser.error(f"--mechanisms must be some of {known}, found {name!r}")
    return asked


def main(argv: Sequence[str]) -> int:
    """Runs the parts, and prints a row about each; returns the exit code."""
    asked = arguments(argv)
    print(f"seed {asked.seed}", flush=True)
    runs.prepare()
    # A TemporaryDirectory would be removed by every fork at its end.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="soak"))
    has_fault = False
    try:
        for name, (_, title, part) in PARTS.items():
            wanted = getattr(asked, name)
            if not wanted:
                continue
            begun = time.monotonic()
            own = folder / name
            own.mkdir()
            count, faults = part(wanted, asked, own)
            seconds = time.monotonic() - begun
            row = f"| {title} | {count} | {len(faults)} | {seconds:.0f} |"
            print("\n    ".join([row, *faults]), flush=True)
            has_fault = has_fault or bool(faults)
        left = runs.left_behind()
        print(f"| processes left behind | | {len(left)} | |", flush=True)
        return int(has_fault or bool(left))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
