# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs what dpfl says of cards: a training, kills, equal integers, benchmarks.

  python -m tools.card results --minutes=9
  python -m tools.card results --minutes=9     # goes on with what is left
  python -m tools.card rehearsal --quick       # at tiny sizes, on a processor too

Each step leaves what it prints in a file of the folder, and benchmarks their rows as
CSV. It is skipped where the file is, and begins only if the time that it takes on a
card is left. Compiled programs are kept in a folder beside that of the results. pfl and
FedJAX must be there for the steps of peers.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_TEST = "pytest -q -p no:cacheprovider -o addopts=--import-mode=importlib"
_MEASURE = "experiments.benchmark --output={file}.csv"
_ROUNDS = f"{_MEASURE} --engine=jax"
# Seconds that a step takes on a card by estimate, its module and arguments, and those
# that it has besides, or has again, with --quick.
STEPS: Mapping[str, tuple[float, str, str]] = {
    "train": (
        *(90, "experiments.train --engine=jax --seed=1 --output_dir={file}"),
        "--rounds=20",
    ),
    "kills": (120, "tools.soak --only --kills=3 --mechanisms=l2_csgm", "--kills=1"),
    "cnn": (
        120,
        f"{_ROUNDS} --rows=cnn_100,none,gaussian,csgm_0.1,ddg_clients,ddg_helpers "
        "--processes=3",
        "--quick",
    ),
    "cnn_peers": (
        *(170, f"{_ROUNDS} --rows=cnn_100,none --processes=2 --peers=fedjax,pfl"),
        "--quick",
    ),
    "lstm": (
        *(110, f"{_ROUNDS} --rows=lstm_100,none,csgm_0.1 --processes=3"),
        "--quick",
    ),
    "lstm_peers": (
        *(180, f"{_ROUNDS} --rows=lstm_100,none --processes=2 --peers=fedjax,pfl"),
        "--quick",
    ),
    "thousand": (
        *(70, f"{_ROUNDS} --rows=cnn_1000,none,csgm_0.1 --processes=2"),
        "--quick",
    ),
    "aggregation": (150, f"{_MEASURE} --rows=jax_aggregation", "--quick"),
    "integers": (
        120,
        f"{_TEST} tests/arrays/test_same_integers.py tests/arrays/test_bounds.py "
        "-k 'jax and (vectors or rounds or bounds)'",
        "-k 'jax and rounding'",
    ),
}


def main(argv: Sequence[str]) -> int:
    """Runs the steps that are left; returns 0 once none is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9, help="time that there is")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only", default=",".join(STEPS), help="steps, by commas")
    asked = parser.parse_args(argv)
    folder, end = asked.folder.resolve(), time.monotonic() + 60 * asked.minutes
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        # Without it the tests choose programs that are not optimized.
        "XLA_FLAGS": "",
        **os.environ,
        # A process compiles what an earlier one has not.
        "JAX_COMPILATION_CACHE_DIR": f"{folder}-programs",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    for name in asked.only.split(","):
        seconds, words, quick = STEPS[name]
        said, left = folder / f"{name}.txt", end - time.monotonic()
        if said.exists() or left < seconds:
            continue
        given = shlex.split(words.format(file=folder / name))
        command = [sys.executable, "-m", *given, *shlex.split(quick) * asked.quick]
        print("$", shlex.join(command[1:]), flush=True)
        partial = folder / f"{name}.partial"
        options = {"cwd": ROOT, "env": environment, "timeout": left}
        try:
            with partial.open("w") as file:
                subprocess.run(command, stdout=file, stderr=file, check=True, **options)
            partial.rename(said)
        except subprocess.SubprocessError as error:
            print(f"error: {name}: {error}; {partial}", file=sys.stderr)
    waiting = [name for name in STEPS if not (folder / f"{name}.txt").exists()]
    print(f"left, for the same command: {', '.join(waiting)}" if waiting else "done")
    return bool(waiting)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
