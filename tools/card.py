# Copyright 2026 The dpfl Authors.
# SPDX-License-Identifier: Apache-2.0

"""Runs what dpfl says of cards: a training, a resume, equal integers, benchmarks.

  python -m tools.card results --minutes=9
  python -m tools.card results --minutes=9     # goes on with what is left
  python -m tools.card rehearsal --quick       # at tiny sizes, on a processor too

Each step writes a file in the folder, and is skipped where the file is. A step begins
only if the time that it takes on a card is left. Compiled programs are kept in a folder
beside that of the results. The commands are those of this tree. pfl and FedJAX are
measured where this Python can import them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.benchmarks import turns

ROOT = Path(__file__).resolve().parent.parent
_TRAIN = ("experiments.train", "--engine=jax", "--seed=1", "--noprogress")
_TRAIN += ("--checkpoint_every=1",)
_INTEGERS = ("tests/arrays/test_same_integers.py", "tests/arrays/test_bounds.py", "-k")
# The peers that are measured where this Python can import them.
_PEERS = ("fedjax", "pfl")


class Card:
    """Commands on the device of this machine, within a time."""

    def __init__(self, folder: Path, is_quick: bool, seconds: float):
        """Initializes the commands.

        Args:
          folder: Folder of the results.
          is_quick: Whether everything has tiny sizes.
          seconds: Time that is left.
        """
        self.folder, self.is_quick = folder, is_quick
        self._end = time.monotonic() + seconds
        self._environment = {
            # Without it the tests choose programs that are not optimized.
            "XLA_FLAGS": "",
            **os.environ,
            # A process compiles what an earlier one has not.
            "JAX_COMPILATION_CACHE_DIR": f"{folder}-programs",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - time.monotonic()

    def begin(self, name: str, *given: str) -> subprocess.Popen[str]:
        """Starts a module, whose output goes to this one's."""
        print("$", name, *given, flush=True)
        words = [sys.executable, "-m", name, *given]
        return subprocess.Popen(
            words, cwd=ROOT, env=self._environment, text=True, start_new_session=True
        )

    def run(self, name: str, *given: str) -> float:
        """Runs a module to its end; returns its seconds.

        Raises:
          RuntimeError: If it fails.
          subprocess.TimeoutExpired: If time is up.
        """
        begun = time.monotonic()
        process = self.begin(name, *given)
        try:
            code = process.wait(self.left)
        finally:
            # Nothing that it has started slows the next step down.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if code:
            raise RuntimeError(f"exit code {code} of {name}")
        return time.monotonic() - begun


def _train(card: Card) -> None:
    """The README's run, and again with a kill: both have the same bits."""
    line = [*_TRAIN, *["--rounds=20"] * card.is_quick]
    with tempfile.TemporaryDirectory() as name:
        whole, killed = (Path(name, part) for part in ("whole", "killed"))
        seconds = card.run(*line, f"--output_dir={whole}")
        process = card.begin(*line, f"--output_dir={killed}")
        while not list(killed.glob("checkpoints/checkpoint-*")):
            if process.poll() is not None or card.left < 0:
                break
            time.sleep(0.01)
        process.kill()
        if process.wait() != -signal.SIGKILL:
            raise RuntimeError("the run that is to be killed ended before")
        resumed = card.run(*line, f"--output_dir={killed}")
        contents = [(each / "model.npz").read_bytes() for each in (whole, killed)]
        models = [hashlib.sha256(content).hexdigest() for content in contents]
        summary = json.loads((whole / "summary.json").read_text())
    if models[0] != models[1]:
        raise RuntimeError("the resumed run has other weights")
    found = {"seconds": seconds, "seconds_resumed": resumed, "summary": summary}
    _write(card, "train", {**found, "model": models[0], "model_resumed": models[1]})


def _integers(card: Card) -> None:
    """The stored digests of exact inputs and the bounds of privacy, on this device."""
    kinds = "rounding" if card.is_quick else "vectors or rounds or bounds"
    chosen = f"jax and ({kinds})"
    options = ("-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib")
    found = card.run("pytest", *options, *_INTEGERS, chosen)
    _write(card, "integers", {"seconds": found})


def _write(card: Card, name: str, found: Mapping[str, object]) -> None:
    path = card.folder / f"{name}.json"
    path.write_text(json.dumps(found, indent=2) + "\n")


def _benchmark(card: Card, name: str, rows: str, more: Sequence[str]) -> None:
    """Runs the benchmark, whose rows are the step's file."""
    partial = card.folder / f"{name}.partial.json"
    given = [f"--rows={rows}", *more, *["--quick"] * card.is_quick]
    if "--peers" in given:
        peers = [p for p in _PEERS if turns.has(turns.PEERS[p], sys.executable)]
        if not peers:
            raise RuntimeError(f"no {' and no '.join(_PEERS)} to measure")
        given[given.index("--peers")] = f"--peers={','.join(peers)}"
    card.run("experiments.benchmark", *given, f"--output={partial}")
    partial.rename(card.folder / f"{name}.json")


# Seconds that a step takes on a card by estimate, and rows and flags of the benchmark;
# `--peers` are those that are there.
STEPS: Mapping[str, tuple[float, str, str]] = {
    "train": (90, "", ""),
    "cnn": (
        *(120, "cnn_100,none,gaussian,csgm_0.1,ddg_clients,ddg_helpers"),
        "--engine=jax --processes=3",
    ),
    "cnn_peers": (170, "cnn_100,none", "--engine=jax --processes=2 --peers"),
    "lstm": (110, "lstm_100,none,csgm_0.1", "--engine=jax --processes=3"),
    "lstm_peers": (180, "lstm_100,none", "--engine=jax --processes=2 --peers"),
    "thousand": (70, "cnn_1000,none,csgm_0.1", "--engine=jax --processes=2"),
    "aggregation": (150, "jax_aggregation", ""),
    "integers": (120, "", ""),
}


def main(argv: Sequence[str]) -> int:
    """Runs the steps that are left; returns 0 once none is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9, help="time that there is")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only", default=",".join(STEPS), help="steps, by commas")
    asked = parser.parse_args(argv)
    asked.folder.mkdir(parents=True, exist_ok=True)
    card = Card(asked.folder.resolve(), asked.quick, 60 * asked.minutes)
    failed = []
    for name in asked.only.split(","):
        if (asked.folder / f"{name}.json").exists() or card.left < STEPS[name][0]:
            continue
        try:
            _, rows, flags = STEPS[name]
            if rows:
                _benchmark(card, name, rows, flags.split())
            else:
                {"train": _train, "integers": _integers}[name](card)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            failed.append(name)
    left = [n for n in STEPS if not (asked.folder / f"{n}.json").exists()]
    text = f"left, for the same command: {', '.join(left)}"
    print(text if left else "done")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
